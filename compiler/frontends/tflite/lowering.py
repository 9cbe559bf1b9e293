"""The table of lowerings, and what one of them works with.

A lowering is a function that makes the graph ops of one builtin op, of the op's inputs in order
(None: left out):

    @lowering("ADD")
    def add(c: Context, a: Value, b: Value) -> Value:
        return c.op("add", *c.broadcast(a, b))

It works on numbers: what is quantised has been made f32 before it, and is made codes behind it,
as is what the op's fused activation does. Ops that only move elements have `codes=`, the place of
the input that they move, and get that one as it is; with EACH all inputs are in the codes of the
result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ingot.compiler.frontends.amounts import Amounts
from ingot.compiler.frontends.emitter import Emitter, UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.symbols import Names
from ingot.compiler.frontends.tflite.model import Operator, Subgraph, Tensor
from ingot.compiler.frontends.tflite.quantized import dequantize
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__ = [
    "EACH",
    "LOWERINGS",
    "OF_COMPLEX",
    "OF_STRINGS",
    "Context",
    "Handle",
    "HashTable",
    "Lowering",
    "Walker",
    "lowering",
]

EACH = -1

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Lowering:
    """`raw`: the function gets tensors as they are, and gives them so."""

    function: Callable[..., Any]
    codes: int | None
    raw: bool


LOWERINGS: dict[str, Lowering] = {}
OF_STRINGS: dict[str, Lowering] = {}
"""Of ops that take numbers, what they do with strings."""
OF_COMPLEX: dict[str, Lowering] = {}
"""What ops do that take or give complex tensors."""


def lowering(
    *names: str,
    codes: int | None = None,
    raw: bool = False,
    into: dict[str, Lowering] = LOWERINGS,
) -> Callable[[_Function], _Function]:
    """Register the decorated function for these ops in one of the tables."""

    def register(function: _Function) -> _Function:
        for name in names:
            if name in into:
                raise ValueError(f"op '{name}' has a lowering already")
            into[name] = Lowering(function, codes, raw)
        return function

    return register


@dataclass(frozen=True)
class Handle:
    """What stands for a variable until it is read or assigned."""

    name: str


@dataclass
class HashTable:
    """Keys and values, both as in the file; None until they are imported."""

    keys: Tensor | None = None
    values: Tensor | None = None


class Walker(Protocol):
    """What lowerings of control flow and of variables need of the walk."""

    amounts: Amounts
    names: Names
    entry: list[Op]
    tables: dict[int, HashTable]

    def subgraph(self, place: int, builder: Builder, given: Sequence[Any]) -> list[Any]:
        """What the subgraph gives for these."""

    def body(self, place: int) -> Subgraph:
        """The subgraph as the file has it."""

    def run_once(self, place: int) -> None:
        """Run a subgraph now: what it assigns is what variables begin with."""

    def load(self, builder: Builder, name: str, tensor: Tensor) -> Value:
        """The value of a variable."""

    def store(self, builder: Builder, name: str, value: Value) -> None: ...


class Context(Emitter):
    """One operator as its lowering sees it. `inputs` and `outputs` are what the file says of its
    tensors."""

    def __init__(
        self,
        builder: Builder,
        walker: Walker,
        operator: Operator,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        assign: Callable[[int, Value], None],
    ) -> None:
        super().__init__(builder)
        self.assign = assign  # the tensor of input `place`, a variable, gets another value
        self.walker = walker
        self.operator = operator
        self.options = operator.options
        self.inputs = inputs
        self.outputs = outputs

    @property
    def dtype(self) -> DType:
        """Of the first result: of the numbers it stands for, where it is quantised."""
        first = self.outputs[0]
        return dtype("f32") if first.quantization is not None else first.dtype

    def _are_one(self, a: Dim, b: Dim, kept: Dim = 0) -> bool:
        if self.builder.ops is self.walker.entry:
            return self.walker.amounts.symbols.equate(a, b, "its operands", kept)
        return super()._are_one(a, b, kept)

    def number(self, place: int, x: Value) -> Value:
        """Input `place` as the numbers that it stands for."""
        tensor = self.inputs[place]
        q = None if tensor is None else tensor.quantization
        return x if q is None else dequantize(self, x, q)

    # ---- sizes

    def parts(self, x: Value) -> list[Dim | Value]:
        """The elements of a small tensor: dims where they are known, else values of rank 0."""
        return self.walker.amounts.parts(self.builder, x, "it")

    def dims(self, x: Value, what: str = "a size") -> list[Dim]:
        """The elements of a small tensor as sizes, which the call defines where it must."""
        return [self.size_of(part, what) for part in self.parts(x)]

    def size_of(self, part: Dim | Value, what: str = "a size", high: Dim | None = None) -> Dim:
        name = partial(next, self.fresh_names())
        return self.walker.amounts.define_size(self.builder, part, name, what, 0, high)

    def known(self, x: Value, what: str) -> list[int]:
        """The elements of a small tensor. UnsupportedNode: they depend on the call."""
        numbers = [part for part in self.parts(x) if isinstance(part, int)]
        if len(numbers) != len(self.parts(x)):
            raise UnsupportedNode(f"its {what} is not a constant: make it one in the model")
        return [int(each) for each in numbers]

    def fresh_names(self) -> Iterator[str]:
        while True:
            yield self.walker.names.fresh(self.outputs[0].name.rpartition("/")[2][:40])

    def axis(self, axis: int, x: Value) -> int:
        return self.normalize_axis(axis, type_of(x).rank)

    # ---- ops

    def places(self, shape: Sequence[Dim], axis: int, element: str = "i64") -> Value:
        """The index along an axis, of every element."""
        return self.op("iota", dtype=dtype(element), shape=tuple(shape), axis=axis)

    def dot(
        self,
        a: Value,
        b: Value,
        contract: tuple[int, int],
        batch: int = 0,
    ) -> Value:
        """The product along one axis of each, the first `batch` axes being the same."""
        b = self.agree_on(b, contract[1], shape_of(a)[contract[0]])
        axes = tuple(range(batch))
        return self.op(
            "dot_general", a, b, lhs_batch=axes, rhs_batch=axes, lhs_contract=(contract[0],),
            rhs_contract=(contract[1],), dtype=type_of(a).dtype,
        )  # fmt: skip
