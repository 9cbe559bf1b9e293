"""Rows of ops that no pass looks into: functions of the application, and kernels of users."""

from __future__ import annotations

from ingot.compiler.graph.native_signature import NativeSignature, parse_signature
from ingot.compiler.graph.ops.table import OpRow, register, require
from ingot.compiler.ir import ReferenceType, TensorType
from ingot.compiler.ir.attributes import Attributes, Names, RuleError
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import InvalidArgument

__all__ = ["KernelCall", "NativeCall"]


@dataclass(frozen=True)
class NativeCall(Attributes):
    """What the application's function `name` gives for the operands; `details` is a JSON object of
    what it is told beside tensors. It decides the dims that only results of its `signature` have,
    which are `symbols`. Calls with `effects` are made in the order of the program, and all of
    them; others where a result is used, and equal ones perhaps once. One that is
    `optional` is made only where somebody gives the function."""

    name: str
    signature: str
    details: str = ""
    effects: bool = False
    symbols: Names = ()
    optional: bool = False

    @property
    def types(self) -> NativeSignature:
        """The signature."""
        try:
            return parse_signature(self.signature)
        except InvalidArgument as error:
            raise RuleError(str(error)) from None

    def result(self, *operands: TensorType) -> tuple[TensorType, ...]:
        types = self.types
        what = f"native function '{self.name}'"
        wanted = f"by its signature {types}"
        require(
            len(operands) == len(types.arguments),
            f"{what} is called with {len(operands)} tensors, expected {len(types.arguments)} "
            f"{wanted}",
        )
        for place, (type, operand) in enumerate(zip(types.arguments, operands, strict=True)):
            require(
                (type.dtype, type.rank, _name(type))
                == (operand.dtype, operand.rank, _name(operand)),
                f"argument {place} of {what} is {operand}, expected {type} {wanted}",
            )
        for size, expected in types.relations(operands):
            require(
                not (isinstance(size, int) and isinstance(expected, int)),
                f"{what} is called with a dim of {size}, expected {expected} {wanted}",
            )
        require(
            len(self.symbols) == len(types.decided),
            f"{what} decides {len(types.decided)} dims, but {len(self.symbols)} symbols are given",
        )
        return tuple(types.given(operands, self.symbols))


@dataclass(frozen=True)
class KernelCall(Attributes):
    """What the kernel `name` makes of the operands, which the user of the compiler has written and
    gives as `kernels`; all dims follow from the operands by its `signature`."""

    name: str
    signature: str

    def result(self, *operands: TensorType) -> tuple[TensorType, ...]:
        call = NativeCall(self.name, self.signature)
        require(not call.types.decided, f"kernel '{self.name}' cannot decide dims of its results")
        require(bool(call.types.results), f"kernel '{self.name}' has no results")
        require(
            not any(map(_name, call.types.results)),
            f"kernel '{self.name}' gives tensors, not references as in {self.signature}",
        )
        require(
            not call.types.has_complex,
            f"kernel '{self.name}' computes with reals, not complex numbers as in "
            f"{self.signature}: pass their parts",
        )
        return call.result(*operands)


def _name(type: TensorType) -> str:
    """What type of references it is."""
    return type.name if isinstance(type, ReferenceType) else ""


register(OpRow("native_call", "natives", ("*operands",), NativeCall))
register(OpRow("kernel_call", "natives", ("*operands",), KernelCall))
