"""The tensors of a file as weights of a network, with the shapes that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Protocol

from ingot.compiler.frontends.gguf.adapters import Adapters
from ingot.compiler.frontends.gguf.blocks import DECODED, decode, parameter
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Op, Value, clone_op
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.hal.errors import CompileError
from ingot.hal.gguf import GgufTensor
from ingot.hal.spec import dtype

__all__ = ["Tensors", "Weights"]

F32 = dtype("f32")
_SHOWN = 5  # names in a message
_CHOICES = ("rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors of which a network may need only one."""


class Tensors(Protocol):
    """Tensors of a model by the names that GGUF files have for them; `name_of` gives the file's
    own name."""

    @property
    def tensors(self) -> Mapping[str, GgufTensor]: ...

    @property
    def title(self) -> str: ...

    def name_of(self, name: str) -> str: ...


@dataclass(frozen=True)
class _Kind:
    """The ops that make numbers of parameters, which are copied for others of their types and
    shapes: that takes a fraction of the time."""

    reads: Sequence[Value]
    ops: Sequence[Op]
    numbers: Value

    def again(self, reads: Sequence[Value], builder: Builder) -> Value:
        values = dict(zip(self.reads, reads, strict=True))
        for op in self.ops:
            builder.ops.append(clone_op(op, values))
            builder.ops[-1].location = builder.location
        return values[self.numbers]


class Weights:
    """Products with the weights of a file, built where `builder` is. What is wrong with tensors is
    noted, and told by `check`; meanwhile zeros stand for them."""

    def __init__(self, file: Tensors) -> None:
        self.file = file
        self.builder = Builder([])
        self.read: set[str] = set()
        self.problems: dict[str, None] = {}
        self.kinds: dict[object, _Kind] = {}
        self.adapters: Adapters | None = None

    def open(self, builder: Builder) -> None:
        """What is to be read where a function begins."""
        if self.adapters is not None:
            self.adapters.open(builder, self.file.tensors)

    def __contains__(self, name: str) -> bool:
        return name in self.file.tensors

    def leave(self, unused: Sequence[str]) -> None:
        """Tensors that the network may have and does not use."""
        self.read.update(unused)

    def check(self, architecture: str, layers: range) -> None:
        """CompileError: tensors are missing or wrong, or belong to nothing. Those of `layers` are
        left out."""
        problems, left = list(self.problems), tuple(f"blk.{layer}." for layer in layers)
        known = self.read | set(_CHOICES)
        unread = [name for name in self.file.tensors if name not in known]
        unread = [name for name in unread if not name.startswith(left)]
        if unread:
            shown = ", ".join(f"'{self.file.name_of(name)}'" for name in unread[:_SHOWN])
            more = ", ..." if len(unread) > _SHOWN else ""
            problems.append(
                f"{len(unread)} tensors belong to nothing that {architecture} is known to have: "
                f"{shown}{more}"
            )
        if len(problems) > 2 * _SHOWN:
            problems[2 * _SHOWN :] = [f"... and {len(problems) - 2 * _SHOWN} more"]
        if problems:
            first = f"{self.file.title} cannot be compiled:"
            raise CompileError("\n  ".join([first, *problems]))

    def rows(self, name: str) -> int:
        """How many elements a row has; 1 for a missing tensor."""
        tensor = self.file.tensors.get(name)
        return 1 if tensor is None else tensor.shape[-1]

    def length(self, name: str) -> int:
        """How many rows a tensor has; 1 for a missing one."""
        tensor = self.file.tensors.get(name)
        return 1 if tensor is None else tensor.shape[0]

    def has_rows(self, name: str) -> bool:
        """Whether a tensor is a matrix."""
        tensor = self.file.tensors.get(name)
        return tensor is not None and len(tensor.shape) > 1

    def vector(self, name: str, length: int) -> Value:
        """f32[length]."""
        return self._numbers(name, (length,))

    def line(self, name: str, length: int) -> Value:
        """f32[length] of a tensor with so many elements, whatever its shape."""
        tensor = self.file.tensors.get(name)
        is_whole = tensor is not None and prod(tensor.shape) == length
        shape = tensor.shape if tensor is not None and is_whole else (length,)
        return self.builder.value("reshape", self._numbers(name, shape), shape=(length,))

    def linear(self, x: Value, name: str, length: int, heads: tuple[int, int] = (1, 0)) -> Value:
        """x[s, k] times the weight [length, k], with its bias: [s, length].

        `heads`: how many heads its rows are of, and how many of a head's first rows come as pairs
        of neighbours, of which all first ones are to stand in front of all second ones.
        """
        with self.builder.at(name):
            k = known_dim(tensor_type(x).shape[-1])
            weight = self._numbers(f"{name}.weight", (length, k), heads)
            rows = self.rows_for(x, name)
            y = self.builder.value(
                "dot_general", rows, weight, lhs_contract=(1,), rhs_contract=(1,)
            )
            y = self.columns_of(y, name, heads)
            if self.adapters is not None and name in self.adapters:
                y = self.adapters.added(y, x, name, heads, self.builder)
            if f"{name}.scale" in self and self.rows(f"{name}.scale") == 1:
                scale = self._numbers(f"{name}.scale", (1,))
                shape = tensor_type(y).shape
                scale = self.builder.value("reshape", scale, shape=())
                y = self.builder.value("mul", y, self.builder.broadcast_to(scale, shape))
            if f"{name}.bias" not in self:
                return y
            bias = self._numbers(f"{name}.bias", (length,), heads)
            return self.builder.value(
                "add", y, self.builder.broadcast_to(bias, tensor_type(y).shape)
            )

    def rows_for(self, x: Value, name: str) -> Value:
        """x[s, k] with the elements of rows in the order in which the weight has them."""
        return x

    def columns_of(self, y: Value, name: str, heads: tuple[int, int]) -> Value:
        """y[s, length] of a weight whose rows stand as they were: its columns as `heads` says."""
        return y

    def stack(self, name: str, shape: tuple[int, int, int]) -> Value:
        """The weights of all experts, f32[experts, length, k]."""
        return self._numbers(f"{name}.weight", shape)

    def table(self, name: str, shape: tuple[int, int]) -> Value:
        """The matrix as it is, f32[shape]; files may have it as [length, 1, taps]."""
        tensor, (length, taps) = self.file.tensors.get(name), shape
        if tensor is None or tensor.shape != (length, 1, taps):
            return self._numbers(name, shape)
        return self.builder.value("reshape", self._numbers(name, tensor.shape), shape=shape)

    def embedding(self, ids: Value, width: int) -> Value:
        """Rows of the table, f32[s, width]. An id outside of it ends the call."""
        is_read_twice = "output.weight" not in self
        return self._rows("token_embd.weight", ids, (self.vocabulary, width), is_read_twice)

    def positions(self, places: Value, shape: tuple[int, int]) -> Value:
        """Rows of the table of positions, which has this shape."""
        return self._rows("position_embd.weight", places, shape, False)

    def rows_of(self, name: str, ids: Value, width: int) -> Value:
        """Rows of a table, f32[s, width]; the first one for ids that it has not."""
        tensor, b = self.file.tensors.get(name), self.builder
        count = 1 if tensor is None else tensor.shape[0]
        if count < self.vocabulary:
            type = tensor_type(ids)
            least, end = (b.full(each, type.dtype, type.shape) for each in (0, count))
            ids = b.value("select", b.value("compare", ids, end, direction="lt"), ids, least)
        return self._rows(name, ids, (count, width), False)

    def _rows(self, name: str, ids: Value, shape: tuple[int, int], is_read_twice: bool) -> Value:
        """Rows of a table. `is_read_twice`: products read it, too."""
        with self.builder.at(name):
            tensor = self._found(name, shape)
            if tensor is None:
                return self.builder.full(0.0, F32, (*tensor_type(ids).shape, shape[1]))
            if (is_read_twice and tensor.type.count > 1) or tensor.type.name not in DECODED:
                # Products with the table keep codes in panels, where rows are found, too.
                table = self._numbers(name, tensor.shape)
                return self.builder.value("take", table, ids, axis=0, mode="check")
            table = parameter(tensor, self.builder)
            rows = self.builder.value("take", table, ids, axis=0, mode="check")
            return decode(tensor.type.name, rows, self.builder)

    def output(self, x: Value) -> Value:
        """The logits, f32[s, vocabulary], by the table of embeddings where there is no other."""
        name = "output" if "output.weight" in self else "token_embd"
        return self.linear(x, name, self.vocabulary)

    def rope_factors(self, length: int, is_long: bool) -> Value | None:
        """Tensor by which the frequencies of rotations are divided, f32[length]; `is_long`: for
        more positions than the model was first trained for."""
        long, short = _CHOICES
        for name in ("rope_freqs.weight", long if is_long else short):
            if name in self:
                return self.vector(name, length)
        return None

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        table = self.file.tensors.get("token_embd.weight")
        return 1 if table is None else table.shape[0]

    def _numbers(self, name: str, shape: tuple[int, ...], heads: tuple[int, int] = (1, 0)) -> Value:
        """The tensor, f32[shape]."""
        tensor = self._found(name, shape)
        if tensor is None:
            return self.builder.full(0.0, F32, shape)
        read = parameter(tensor, self.builder)

        def write() -> Value:
            return decode(tensor.type.name, self._turned(read, heads), self.builder)

        return self.of_kind((tensor.type.name, tensor.row_shape, heads), [read], write)

    def of_kind(self, key: object, reads: Sequence[Value], write: Callable[[], Value]) -> Value:
        """What `write` makes of parameters, by a copy of its ops where some were made for others
        of the kind."""
        if key in self.kinds:
            return self.kinds[key].again(reads, self.builder)
        first = len(self.builder.ops)
        numbers = write()
        self.kinds[key] = _Kind(reads, self.builder.ops[first:], numbers)
        return numbers

    def _found(self, name: str, shape: tuple[int, ...]) -> GgufTensor | None:
        """The tensor; None with a note if it is not there, or not as it should be."""
        tensor = self.file.tensors.get(name)
        problem = ""
        if tensor is None:
            problem = "is missing"
        elif not self.is_known(tensor):
            known = ", ".join(DECODED)
            problem = f"has the type {tensor.type.name}; those that can be compiled are: {known}"
        elif tensor.shape != shape:
            problem = f"has the shape {list(tensor.shape)}, expected {list(shape)}"
        self.read.add(name)
        if not problem:
            return tensor
        self.problems[f"tensor '{self.file.name_of(name)}' {problem}"] = None
        return None

    def is_known(self, tensor: GgufTensor) -> bool:
        """Whether numbers can be made of the tensor."""
        return tensor.type.name in DECODED

    def _turned(self, rows: Value, heads: tuple[int, int]) -> Value:
        """Rows with the pairs of each head taken apart."""
        count, paired = heads
        if not paired:
            return rows
        b, shape = self.builder, tensor_type(rows).shape
        length = known_dim(shape[0]) // count
        rest = shape[1:]
        split = b.value("reshape", rows, shape=(count, length, *rest))
        pairs = self._part(split, 0, paired)
        pairs = b.value("reshape", pairs, shape=(count, paired // 2, 2, *rest))
        order = (0, 2, 1, *range(3, 3 + len(rest)))
        pairs = b.value("transpose", pairs, permutation=order)
        pairs = b.value("reshape", pairs, shape=(count, paired, *rest))
        if paired < length:
            pairs = b.value("concatenate", pairs, self._part(split, paired, length), axis=1)
        return b.value("reshape", pairs, shape=shape)

    def _part(self, x: Value, start: int, limit: int) -> Value:
        """Elements of axis 1."""
        shape: tuple[Dim, ...] = tensor_type(x).shape
        first = tuple(start if axis == 1 else 0 for axis in range(len(shape)))
        last = tuple(limit if axis == 1 else dim for axis, dim in enumerate(shape))
        return self.builder.value("slice", x, start=first, limit=last)
