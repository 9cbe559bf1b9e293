"""Language models with several texts in one cache, whose pages the caller gives to them.

Each text has a slot. `place(slot, length, pages: i32[n])` says which pages it has, in order, and
how many tokens are in them; `prefill(slots: i64[rows], counts: i64[rows], ids: i32[s])` puts tokens
behind those, `counts` of `ids` for each of several texts, and gives the logits of the next ones;
`decode(slots, ids: i32[rows])` does so with one token for each, and
`choose(slots, temperature: f32[rows], ...)` gives what comes next in each.
`copy_slot(source, target, pages)` lets another slot go on from a text, whose pages it may have
too, and `copy_page(source, target)` is for the one in which both write. `capacity()` says how many
tokens a text may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.gguf.cache import PagedCache
from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.sampling import OPTION_TYPES, Options, choose
from ingot.compiler.frontends.gguf.seen import NOWHERE, seen, without
from ingot.compiler.frontends.gguf.spans import Spans
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
_ROWS_I64 = TensorType(I64, (_ROWS,))
_IDS = TensorType(I32, (symbol("s"),))


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
        f = self._function({"slots": _ROWS_I64, "counts": _ROWS_I64, "ids": _IDS})
        f.function.symbols["s"] = (1, self.room.pages * PAGE)
        slots, counts, ids = f.arguments
        logits = self._step(f, slots, ids, self._spans(f, counts))
        self._end(f, "prefill", logits=logits)

    def _add_decode(self) -> None:
        f = self._function({"slots": _ROWS_I64, "ids": TensorType(I32, (_ROWS,))})
        slots, ids = f.arguments
        self._end(f, "decode", logits=self._step(f, slots, ids, None))

    def _spans(self, f: _Function, counts: Value) -> Spans:
        """The texts of a function's ids. Counts that do not fit these end the call."""
        b, (total,) = f.b, _IDS.shape
        least, most, sum = (
            b.value("reduce", counts, axes=(0,), kind=kind) for kind in ("min", "max", "add")
        )
        least = b.value(
            "min", least, b.constant(1, "i64")
        )  # with one number that fits it is a check
        f.size(least, 1, "the least of 'counts'", low=1)
        longest = f.size(most, total, "the greatest of 'counts'")
        f.size(sum, total, "the sum of 'counts', for so many 'ids',", low=total)
        return Spans(b, counts, total, longest)

    def _step(self, f: _Function, slots: Value, ids: Value, spans: Spans | None) -> Value:
        """Put tokens behind those of the slots, one for each without `spans`; the logits of those
        that come next, which are stored, too."""
        b = f.b
        lengths = b.value("take", f.load("length"), slots, axis=0, mode="check")
        counts = b.full(1, I64, (_ROWS,)) if spans is None else spans.counts
        after = b.value("add", lengths, counts)
        end = self._length(f, b.value("reduce", after, axes=(0,), kind="max"))
        table = b.value("take", f.load("table"), slots, axis=0)
        owners, places, last = slots, lengths, None
        if spans is not None:
            owners, places = (
                b.value("take", each, spans.text, axis=0) for each in (slots, lengths)
            )
            places, last = b.value("add", places, spans.place), spans.last
        self.weights.open(b)
        caches = [f.load(name) for name in self.caches]
        cache = PagedCache(self.c, b, table, places, end, caches, spans)
        is_long = self.room.capacity > self.c.rope.original
        logits = Transformer(self.c, self.weights, b, is_long).logits(ids, cache, last or _ROWS)
        for name, value in zip(self.caches, cache.caches, strict=True):
            f.store(name, value)
        rows = b.value("reshape", slots, shape=(_ROWS, 1))
        pairs = [
            b.value("reshape", each, shape=(cache.count, 1))
            for each in (owners, b.value("convert", ids, dtype=I64))
        ]
        pair = b.value("concatenate", *pairs, axis=1)
        first = b.value("convert", places, dtype=I32)
        self._put(f, "length", rows, after)
        self._put(f, "logits", rows, logits, update_window_dims=(1,))
        self._put(f, "seen", pair, first, inserted_window_dims=(0, 1), kind="min")
        return logits

    def _add_choose(self) -> None:
        options = {name: TensorType(type.dtype, (_ROWS,)) for name, type in OPTION_TYPES.items()}
        f = self._function({"slots": _ROWS_I64, **options})
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
        length = b.number(self._length(f, length), I64)
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

    def _put(self, f: _Function, name: str, places: Value, value: Value, **numbers: Any) -> None:
        """Store the variable with values at places [rows, dims], of which a row has one."""
        inserted = numbers.setdefault("inserted_window_dims", (0,))
        numbers = {"update_window_dims": (), "scatter_dims_to_operand_dims": inserted} | numbers
        options = {"index_vector_dim": 1, **numbers}
        f.store(name, f.b.value("scatter", f.load(name), places, value, **options))

    def _slot(self, f: _Function, slot: Value, name: str) -> Value:
        """The number of a slot. Another one ends the call."""
        return f.b.number(f.size(slot, self.room.sequences - 1, f"'{name}'"), I64)

    def _length(self, f: _Function, length: Value) -> Dim:
        """The length of a text. One that is too long ends the call."""
        capacity = self.room.capacity
        return f.size(length, capacity, f"the length of a text (capacity {capacity})")

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

    def size(self, value: Value, high: Dim, what: str, low: Dim = 0) -> Dim:
        """A number of `low` to `high` as a dim. Another one ends the call."""
        self.sizes += 1
        name = f"size{self.sizes}"
        limits = {"low": low, "high": high, "what": what, "status": "OutOfRange"}
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
