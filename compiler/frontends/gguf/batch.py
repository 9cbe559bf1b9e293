"""Language models with several texts in one cache, whose pages the caller gives to them.

Each text has a slot. `place(slot, length, pages: i32[n])` says which pages it has, in order, and
how many tokens are in them; `prefill(slot, ids: i32[s])` puts tokens behind those and gives the
logits of the next one; `decode(slots: i64[rows], ids: i32[rows])` does so with one token for each
of several texts, and `choose(slots, temperature: f32[rows], ...)` gives what comes next in each.
`copy_slot(source, target, pages)` lets another slot go on from a text, whose pages it may have
too, and `copy_page(source, target)` is for the one in which both write. `capacity()` says how many
tokens a text may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.gguf.cache import PagedCache, Position
from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.sampling import OPTION_TYPES, Options, choose
from ingot.compiler.frontends.gguf.seen import NOWHERE, seen, without
from ingot.compiler.frontends.gguf.transformer import Transformer
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value, Variable
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.ir.literals import literal_from_numbers
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

__all__ = ["Batch", "Room"]

PAGE = 64
"""Positions of a page: half of one is left over, and a kernel looks each up once."""

MOST_SEQUENCES = 256

F32, I32, I64 = dtype("f32"), dtype("i32"), dtype("i64")
_ROWS = symbol("rows")


@dataclass(frozen=True)
class Room:
    """How many texts, of how many tokens each, and pages of all together."""

    sequences: int
    capacity: int
    pages: int

    @staticmethod
    def of(sequences: int, capacity: int, tokens: int | None) -> Room:
        """CompileError: there cannot be so many. Without `tokens` it is a quarter of what all
        texts may have."""
        if not 1 <= sequences <= MOST_SEQUENCES:
            raise CompileError(f"sequences is {sequences}, expected 1 to {MOST_SEQUENCES}")
        tokens = max(capacity, sequences * capacity // 4) if tokens is None else tokens
        if not capacity <= tokens <= sequences * capacity:
            raise CompileError(
                f"cache_tokens is {tokens}, expected {capacity}, the capacity of one sequence, to "
                f"{sequences * capacity}, that of all {sequences}"
            )
        return Room(sequences, capacity, -(-tokens // PAGE))

    @property
    def columns(self) -> int:
        """Pages of one text at most."""
        return -(-self.capacity // PAGE)


class Batch:
    """Builds the functions."""

    def __init__(
        self, weights: Weights, c: Configuration, room: Room, cache: str, producer: str
    ) -> None:
        self.weights, self.c, self.room = weights, c, room
        self.module = Module(attributes={"producer": producer})
        lengths = {"k": c.key_length, "v": c.value_length}
        shape = (room.pages, c.kv_heads, PAGE)
        self.caches = {
            f"cache.{layer}.{part}": TensorType(dtype(cache), (*shape, length))
            for layer in range(c.layers)
            for part, length in lengths.items()
        }
        words = weights.vocabulary
        variables = {
            "length": TensorType(I64, (room.sequences,)),
            "table": TensorType(I32, (room.sequences, room.columns)),
            "logits": TensorType(F32, (room.sequences, words)),
            "seen": TensorType(I32, (room.sequences, words)),
            **self.caches,
        }
        for name, type in variables.items():
            initial = literal_from_numbers([NOWHERE if name == "seen" else 0], (), type.dtype)
            self.module.variables[name] = Variable(type, initial)

    def run(self) -> Module:
        """The module."""
        self._add_prefill()
        self._add_decode()
        self._add_choose()
        self._add_place()
        self._add_copy_slot()
        self._add_copy_page()
        self._add_capacity()
        return self.module

    def _add_prefill(self) -> None:
        f = self._function({"slot": _number(I64), "ids": TensorType(I32, (symbol("s"),))})
        f.function.symbols["s"] = (1, self.room.capacity)
        b, (slot, ids) = f.b, f.arguments
        slot, count = self._slot(f, slot, "slot"), symbol("s")
        index = _row(f.load("length"), slot, b)
        at = Position("before", index, self._length(f, index, count), count)
        places = b.value("reshape", at.places(b), shape=(1, count))
        table = _row(f.load("table"), slot, b, is_kept=True)
        logits = self._network(f, ids, table, places, at.end, 1)
        logits = b.value("reshape", logits, shape=tensor_type(logits).shape[1:])
        first = _row(f.load("seen"), slot, b)
        first = b.value(
            "scatter", first, b.value("reshape", ids, shape=(count, 1)),
            b.value("convert", at.places(b), dtype=I32),
            update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1, kind="min",
        )  # fmt: skip
        for name, value in (("seen", first), ("logits", logits)):
            f.store(name, _with_row(f.load(name), slot, value, b))
        f.store("length", _with_row(f.load("length"), slot, b.number(at.end, I64), b))
        self._end(f, "prefill", logits=logits)

    def _add_decode(self) -> None:
        f = self._function({"slots": TensorType(I64, (_ROWS,)), "ids": TensorType(I32, (_ROWS,))})
        b, (slots, ids) = f.b, f.arguments
        lengths = b.value("take", f.load("length"), slots, axis=0, mode="check")
        most = self._length(f, b.value("reduce", lengths, axes=(0,), kind="max"), 1)
        places = b.value("reshape", lengths, shape=(_ROWS, 1))
        table = b.value("take", f.load("table"), slots, axis=0)
        logits = self._network(f, ids, table, places, most + 1, _ROWS)
        rows = b.value("reshape", slots, shape=(_ROWS, 1))
        wide = b.value("reshape", b.value("convert", ids, dtype=I64), shape=(_ROWS, 1))
        pairs = b.value("concatenate", rows, wide, axis=1)
        one = b.full(1, I64, (_ROWS,))
        first = b.value("convert", lengths, dtype=I32)
        self._put(f, "length", rows, b.value("add", lengths, one))
        self._put(f, "logits", rows, logits, update_window_dims=(1,))
        self._put(f, "seen", pairs, first, inserted_window_dims=(0, 1), kind="min")
        self._end(f, "decode", logits=logits)

    def _add_choose(self) -> None:
        options = {name: TensorType(type.dtype, (_ROWS,)) for name, type in OPTION_TYPES.items()}
        f = self._function({"slots": TensorType(I64, (_ROWS,)), **options})
        b, (slots, *given) = f.b, f.arguments
        lengths = b.value("take", f.load("length"), slots, axis=0, mode="check")
        logits, first = f.load("logits"), f.load("seen")

        def step(inner: Builder, place: Value, ids: Sequence[Value]) -> Sequence[Value]:
            slot, length, *own = (
                inner.value("take", each, place, axis=0) for each in (slots, lengths, *given)
            )
            words = seen(inner, _row(first, slot, inner), length)
            id = choose(inner, _row(logits, slot, inner), words, Options(*own), length)
            line = inner.value("reshape", id, shape=(1,))
            return [inner.value("dynamic_update_slice", ids[0], line, place)]

        (ids,) = counted_loop(b, b.number(_ROWS, I64), [b.full(0, I32, (_ROWS,))], step)
        self._end(f, "choose", ids=ids)

    def _add_place(self) -> None:
        pages = TensorType(I32, (self.room.columns,))
        f = self._function({"slot": _number(I64), "length": _number(I64), "pages": pages})
        b, (slot, length, given) = f.b, f.arguments
        slot = self._slot(f, slot, "slot")
        length = b.number(self._length(f, length, 0), I64)
        rest = without(b, _row(f.load("seen"), slot, b), length)
        for name, value in (("length", length), ("table", given), ("seen", rest)):
            f.store(name, _with_row(f.load(name), slot, value, b))
        self._end(f, "place")

    def _add_copy_slot(self) -> None:
        pages = TensorType(I32, (self.room.columns,))
        f = self._function({"source": _number(I64), "target": _number(I64), "pages": pages})
        b, (source, target, given) = f.b, f.arguments
        source, target = self._slot(f, source, "source"), self._slot(f, target, "target")
        for name in ("length", "logits", "seen"):
            rows = f.load(name)
            f.store(name, _with_row(rows, target, _row(rows, source, b), b))
        f.store("table", _with_row(f.load("table"), target, given, b))
        self._end(f, "copy_slot")

    def _add_copy_page(self) -> None:
        f = self._function({"source": _number(I64), "target": _number(I64)})
        b, last = f.b, self.room.pages - 1
        source, target = (
            b.number(f.size(each, last, f"page '{name}'"), I64)
            for each, name in zip(f.arguments, ("source", "target"), strict=True)
        )
        for name in self.caches:
            pages = f.load(name)
            f.store(name, _with_row(pages, target, _row(pages, source, b), b))
        self._end(f, "copy_page")

    def _add_capacity(self) -> None:
        f = self._function({})
        self._end(f, "capacity", tokens=f.b.constant(self.room.capacity, "i64"))

    def _network(
        self, f: _Function, ids: Value, tables: Value, places: Value, end: Dim, rows: Dim
    ) -> Value:
        """The logits behind the last rows of all tokens, which are in the cache then."""
        self.weights.open(f.b)
        caches = [f.load(name) for name in self.caches]
        cache = PagedCache(self.c, f.b, tables, places, end, caches)
        is_long = self.room.capacity > self.c.rope.original
        logits = Transformer(self.c, self.weights, f.b, is_long).logits(ids, cache, rows)
        for name, value in zip(self.caches, cache.caches, strict=True):
            f.store(name, value)
        return logits

    def _put(self, f: _Function, name: str, places: Value, value: Value, **numbers: Any) -> None:
        """Store the variable with values at places [rows, dims], of which a row has one."""
        inserted = numbers.setdefault("inserted_window_dims", (0,))
        numbers = {"update_window_dims": (), "scatter_dims_to_operand_dims": inserted} | numbers
        options = {"index_vector_dim": 1, **numbers}
        f.store(name, f.b.value("scatter", f.load(name), places, value, **options))

    def _slot(self, f: _Function, slot: Value, name: str) -> Value:
        """The number of a slot. Another one ends the call."""
        return f.b.number(f.size(slot, self.room.sequences - 1, f"'{name}'"), I64)

    def _length(self, f: _Function, length: Value, count: Dim) -> Dim:
        """How long a text is that takes `count` more tokens. One that is too long ends the call."""
        most = self.room.capacity - count
        return f.size(length, most, f"the length of a text (capacity {self.room.capacity})")

    def _function(self, arguments: dict[str, TensorType]) -> _Function:
        f = _Function(self.module, arguments)
        if any(_ROWS in type.shape for type in arguments.values()):
            f.function.symbols["rows"] = (1, self.room.sequences)
        return f

    def _end(self, f: _Function, name: str, **results: Value) -> None:
        f.b.return_(*results.values())
        f.function.name, f.function.result_names = name, list(results)
        self.module.add(f.function)


class _Function:
    """A function that is being built. Variables are loaded once, and stored where told."""

    def __init__(self, module: Module, arguments: dict[str, TensorType]) -> None:
        block = Block(list(arguments.values()))
        self.module, self.b, self.arguments = module, Builder(block), block.arguments
        self.function = Function("", Region([block]), list(arguments), [])
        self.loaded: dict[str, Value] = {}
        self.sizes = 0

    def load(self, name: str) -> Value:
        """The variable as it was when the function began."""
        if name not in self.loaded:
            type = self.module.variables[name].type
            attributes = {"name": name, "dtype": type.dtype, "shape": type.shape}
            self.loaded[name] = self.b.append("variable.load", (), (), attributes).result
        return self.loaded[name]

    def store(self, name: str, value: Value) -> None:
        self.b.append("variable.store", (value,), (), {"name": name})

    def size(self, value: Value, high: Dim, what: str) -> Dim:
        """A number of 0 to `high` as a dim. Another one ends the call."""
        self.sizes += 1
        name = f"size{self.sizes}"
        limits = {"low": 0, "high": high, "what": what, "status": "OutOfRange"}
        self.b.append("size", (value,), (), {"symbols": (name,), **limits})
        return symbol(name)


def _number(element: DType) -> TensorType:
    return TensorType(element)


def _row(x: Value, place: Value, b: Builder, is_kept: bool = False) -> Value:
    """x[place], or x[place : place + 1] with its axis kept."""
    shape = tensor_type(x).shape
    zeros = [b.constant(0, "i64")] * (len(shape) - 1)
    row = b.value("dynamic_slice", x, place, *zeros, sizes=(1, *shape[1:]))
    return row if is_kept else b.value("reshape", row, shape=shape[1:])


def _with_row(x: Value, place: Value, row: Value, b: Builder) -> Value:
    """x with x[place] = row."""
    shape = tensor_type(x).shape
    zeros = [b.constant(0, "i64")] * (len(shape) - 1)
    row = b.value("reshape", row, shape=(1, *shape[1:]))
    return b.value("dynamic_update_slice", x, row, place, *zeros)
