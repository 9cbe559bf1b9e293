"""The table of lowerings, and what one of them works with.

A lowering is a function that makes the graph ops of one StableHLO op:

    @lowering("concatenate")
    def concatenate(context: Context, op: SourceOp) -> Value:
        axis = op.attributes["dimension"]
        return context.builder.op("concatenate", *context.operands(op), axis=axis)

It returns a value, or a list for several results. A `check` says what of the op cannot be
lowered, before anything is built; the import reports all such ops of a model at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np

from ingot.compiler.frontends.amounts import Amounts
from ingot.compiler.frontends.complex_numbers import join, take_apart
from ingot.compiler.frontends.inlining import Inlined
from ingot.compiler.frontends.stablehlo.reading.program import (
    Constant,
    SourceBlock,
    SourceOp,
    SourceProgram,
    SourceType,
    SourceValue,
)
from ingot.compiler.frontends.symbols import Symbols
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Literal, Op, Value
from ingot.compiler.ir import TensorType as GraphTensorType
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, prove_le
from ingot.hal.errors import CompileError, DataLoss
from ingot.hal.spec import DType, dtype

__all__ = [
    "LOWERINGS",
    "Check",
    "Context",
    "Lowered",
    "Result",
    "Row",
    "ints",
    "lowering",
    "well_formed",
]


@dataclass(eq=False)
class Lowered:
    """What a source value became, and what is known about it.

    `value` is None until it is used, where `constant`, the source's constant, says it all.
    `iota_axis` is set for a tensor whose elements count along that axis. `parts` are the real
    and imaginary parts of a complex tensor, `elements` what is in a tuple.
    """

    value: Value | None = None
    constant: Constant | None = None
    iota_axis: int | None = None
    parts: tuple[Value, Value] | None = None
    elements: tuple[Lowered, ...] | None = None
    home: list[Op] | None = None  # the ops among which `value` was made when it was used


Result = Value | Lowered | Sequence[Value | Lowered]
Check = Callable[[SourceOp, SourceProgram], str | None]
"""Says why an op cannot be lowered; None if it can."""


@dataclass(frozen=True)
class Row:
    """How an op is lowered, and which of its forms cannot be."""

    lower: Callable[[Context, SourceOp], Result]
    check: Check | None = None


LOWERINGS: dict[str, Row] = {}


def lowering(
    *names: str, check: Check | None = None
) -> Callable[[Callable[[Context, SourceOp], Result]], Callable[[Context, SourceOp], Result]]:
    """Register the decorated function for these ops (without dialect and version)."""

    def register(
        function: Callable[[Context, SourceOp], Result],
    ) -> Callable[[Context, SourceOp], Result]:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"op '{name}' has a lowering already")
            LOWERINGS[name] = Row(function, check)
        return function

    return register


@contextmanager
def well_formed(what: str) -> Iterator[None]:
    """Turn what a malformed op does to its lowering into DataLoss that names it.

    MLIR verifies ops before it writes them, so the lowerings do not check that attributes and
    operands are there and of the right kind; a corrupted artifact is caught here.
    """
    try:
        yield
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataLoss(
            f"{what} is malformed ({type(error).__name__}: {error}): the StableHLO artifact is "
            "corrupted; export the model again"
        ) from error


@dataclass(eq=False)
class Context:
    """The import of one function: where ops are built and what values became.

    `lifted` is a shape while the scalar code of a region is lowered for all elements at once:
    its arguments are tensors of that shape, and what else it uses is repeated to it.
    """

    program: SourceProgram
    builder: Builder
    amounts: Amounts
    lower_ops: Callable[[Context, SourceBlock], list[Lowered]]
    values: dict[SourceValue, Lowered] = field(default_factory=dict)
    prefix: str = ""  # the location of the call whose function is being inlined
    depth: int = 0
    inlined: Inlined = field(default_factory=Inlined)
    calls: tuple[SourceOp, ...] = ()  # the calls whose functions are being inlined
    lifted: tuple[Dim, ...] | None = None
    listener: Callable[[Context, SourceOp, Sequence[Lowered]], None] | None = None

    @property
    def symbols(self) -> Symbols:
        return self.amounts.symbols

    def lowered(self, op: SourceOp, place: int) -> Lowered:
        """What operand `place` of `op` became."""
        return self.values[op.operands[place]]

    def operand(self, op: SourceOp, place: int) -> Value:
        """Operand `place` of `op` as a graph value."""
        value = self.value(self.lowered(op, place))
        if self.lifted and not tensor_type(value).shape:
            return self.builder.broadcast_to(value, self.lifted)
        return value

    def operands(self, op: SourceOp) -> list[Value]:
        """All operands of `op` as graph values."""
        return [self.operand(op, place) for place in range(len(op.operands))]

    def flat(self, lowered: Sequence[Lowered]) -> list[Value]:
        """What values became, the real and the imaginary part of a complex one."""
        found: list[Value] = []
        for each in lowered:
            found += self.parts_of(each) if self._is_complex(each) else [self.value(each)]
        return found

    @staticmethod
    def _is_complex(lowered: Lowered) -> bool:
        if lowered.parts is not None:
            return True
        if lowered.value is None:
            return lowered.constant is not None and lowered.constant.array.dtype.kind == "c"
        return bool(lowered.value.dtype.is_complex)

    def flat_operands(self, op: SourceOp) -> list[Value]:
        """All operands of `op` as graph values, complex ones as their parts."""
        return self.flat([self.lowered(op, place) for place in range(len(op.operands))])

    def sizes(self, op: SourceOp, place: int, low: int | None = 0) -> tuple[Dim, ...]:
        """The elements of an integer operand as dims, fresh symbols where they depend on data,
        which the call refuses below `low` (None: they may be negative)."""
        lowered = self.lowered(op, place)
        known = self.known(lowered)
        if known is not None:
            for size in known:
                if low is not None and not prove_le(low, size, self.symbols.bounds):
                    self.builder.append("assert", (), (), {"kind": "le", "a": low, "b": size})
            return known
        value, what = self.value(lowered), f"operand {place} of '{op.full_name}'"
        parts = enumerate(self.amounts.parts(self.builder, value, self.describe(op)))
        sizes = tuple(self._define(part, f"element {axis} of {what}", low) for axis, part in parts)
        self.amounts.learn(self.builder, value, sizes)
        return sizes

    def _define(self, part: Dim | Value, what: str, low: int | None) -> Dim:
        if low is None:
            return self.amounts.define_amount(
                self.builder, part, lambda side: self.symbols.fresh("size"), what
            )
        name = partial(self.symbols.fresh, "size")
        return self.amounts.define_size(self.builder, part, name, what, low)

    def known(self, lowered: Lowered) -> tuple[Dim, ...] | None:
        """The elements of an integer value as dims; None where they depend on data."""
        if lowered.parts is not None or lowered.elements is not None:
            return None
        known = self.amounts.dims(self.value(lowered))
        return None if known is None else tuple(known)

    def whole_number(self, lowered: Lowered) -> Constant | None:
        """A constant of one element, for a value that is one number, however it was computed."""
        known = self.known(lowered)
        if known is None or len(known) != 1 or not isinstance(known[0], int):
            return None
        element = tensor_type(self.value(lowered)).dtype
        return Constant(np.array(known[0], element.numpy), element.name)

    def parts(self, value: SourceValue) -> list[Value]:
        """The elements of a small integer value as values of rank 0 and one dtype."""
        whole = self.value(self.values[value])
        element = tensor_type(whole).dtype
        return [
            part if isinstance(part, Value) else self.builder.number(part, element)
            for part in self.amounts.parts(self.builder, whole)
        ]

    def value(self, lowered: Lowered) -> Value:
        """The graph value of `lowered`, made now if it was not needed in this block before.

        What was made in a region is not defined behind it.
        """
        if lowered.value is None or (
            lowered.home is not None and lowered.home is not self.builder.ops
        ):
            if lowered.parts is not None:
                lowered.value = join(self.builder, lowered.parts)
                lowered.home = self.builder.ops
                return lowered.value
            assert lowered.constant is not None
            wanted = dtype(lowered.constant.element)
            if wanted.is_complex:
                lowered.value = join(self.builder, self.parts_of(lowered))
            else:
                lowered.value = self._constant(lowered.constant, wanted)
            lowered.home = self.builder.ops
        return lowered.value

    def complex_parts(self, op: SourceOp, place: int) -> tuple[Value, Value]:
        """The real and imaginary parts of operand `place`, which is complex."""
        real, imaginary = self.parts_of(self.lowered(op, place))
        if self.lifted and not tensor_type(real).shape:
            wide = (self.builder.broadcast_to(each, self.lifted) for each in (real, imaginary))
            real, imaginary = wide
        return real, imaginary

    def parts_of(self, lowered: Lowered) -> tuple[Value, Value]:
        """The real and imaginary parts of a complex tensor."""
        if lowered.parts is not None:
            return lowered.parts
        constant = lowered.constant
        if constant is not None:
            halves = (
                replace(constant, array=array, element="f32" if array.itemsize == 4 else "f64")
                for array in (constant.array.real, constant.array.imag)
            )
            real, imaginary = (self._constant(each, dtype(each.element)) for each in halves)
            return real, imaginary
        return take_apart(self.builder, self.value(lowered))

    def _constant(self, constant: Constant, wanted: DType) -> Value:
        if not constant.is_splat:
            return self.builder.constant(Literal(constant.array, wanted))
        element = constant.array[(0,) * constant.array.ndim] if constant.array.size else 0
        scalar = self.builder.constant(Literal(np.array(element, constant.array.dtype), wanted))
        return self.builder.broadcast_to(scalar, constant.array.shape)

    def agree(self, op: SourceOp, value: Value, shape: Sequence[Dim]) -> Value:
        """The value with the dims `shape`, which its own must equal; the call checks those that
        cannot be made so here."""
        pairs = zip(tensor_type(value).shape, shape, strict=True)
        are_one = [self.equate(op, a, b) for a, b in pairs]
        return value if all(are_one) else self.builder.value("reshape", value, shape=tuple(shape))

    def equate(self, op: SourceOp, a: Dim, b: Dim) -> bool:
        """Whether two dims, which must be equal, are made so here; else the call checks it."""
        is_one = self.symbols.equate(a, b, self.describe(op))
        if not is_one:
            self.builder.append("assert", (), (), {"a": a, "b": b})
        return is_one

    def same_shape(self, op: SourceOp, values: Sequence[Value]) -> list[Value]:
        """The values with one shape, which they must have; scalars of a region always do."""
        if any(not isinstance(value.type, GraphTensorType) for value in values):
            return list(values)
        first = tensor_type(values[0])
        for value in values[1:]:
            if first.rank != tensor_type(value).rank:
                other = tensor_type(value)
                raise self.error(op, f"the operands {first} and {other} differ in rank")
        return [self.agree(op, value, first.shape) for value in values]

    def describe(self, op: SourceOp) -> str:
        """The op and its layer, as messages name it."""
        place = self.location(op)
        return f"op '{op.full_name}'" + (f" at '{place}'" if place else "")

    def location(self, op: SourceOp) -> str:
        """The layer of `op`, below the layer that calls its function."""
        own = op.location.rstrip(":")
        if not self.prefix or own.startswith((self.prefix, "jit(")):
            return own or self.prefix
        return f"{self.prefix}/{own}" if own else self.prefix

    def error(self, op: SourceOp, problem: str) -> CompileError:
        """The error that `op` cannot be lowered because of `problem`."""
        return CompileError(f"{self.describe(op)}: {problem}")

    def lower_as(
        self,
        op: SourceOp,
        stand_ins: Sequence[Value | None],
        retyped: Callable[[SourceType], SourceType],
    ) -> list[Value]:
        """What the op gives of values in place of its operands (None: the operand), all its types
        being `retyped`."""
        values, operands = dict(self.values), []
        for operand, value in zip(op.operands, stand_ins, strict=True):
            operands.append(operand if value is None else SourceValue(retyped(operand.type)))
            if value is not None:
                values[operands[-1]] = Lowered(value)
        shadow = replace(
            op,
            operands=operands,
            results=[SourceValue(retyped(result.type)) for result in op.results],
            regions=[[block.retyped(retyped) for block in region] for region in op.regions],
        )
        inner = replace(self, values=values)
        made = LOWERINGS[op.full_name].lower(inner, shadow)
        results = [made] if isinstance(made, (Value, Lowered)) else made
        return [inner.value(each) if isinstance(each, Lowered) else each for each in results]

    def inline(self, name: str, op: SourceOp, arguments: Sequence[Lowered]) -> list[Lowered]:
        """Lower the body of a function here, in place of the op that calls it."""
        function = self.program.functions.get(name)
        if function is None or len(function.arguments) != len(arguments):
            raise self.error(op, f"there is no function '{name}' with {len(arguments)} arguments")
        if self.depth >= 100:
            raise self.error(op, f"the call of '{name}' is recursive or nested too deep")
        self.inlined.add(len(function.body.ops))
        inner = replace(
            self,
            values=dict(zip(function.arguments, arguments, strict=True)),
            prefix=self.location(op),
            depth=self.depth + 1,
            calls=(*self.calls, op),
        )
        for argument, attributes in zip(arguments, function.argument_attributes, strict=True):
            symbol_name = attributes.get("jax.global_constant")
            if isinstance(symbol_name, str):
                for size in (self.known(argument) or ())[:1]:
                    self.symbols.name(size, symbol_name)
        return self.lower_ops(inner, function.body)


def ints(attribute: Any) -> tuple[int, ...]:
    """An attribute that lists integers, as a tensor or an array."""
    if isinstance(attribute, Constant):
        return attribute.integers()
    return tuple(int(each) for each in attribute)
