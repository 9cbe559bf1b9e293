"""Language models with several texts in one cache, whose pages the caller gives to them.

Each text has a slot. `place(slot, length, pages: i32[n])` says which pages it has, in order, and
how many tokens are in them; `prefill(slots: i64[rows], counts: i64[rows], ids: i32[s])` puts tokens
behind those, `counts` of `ids` for each of several texts, and gives the logits of the next ones;
`decode(slots, ids: i32[rows])` does so with one token for each, and
`choose(slots, temperature: f32[rows], ...)` gives what comes next in each.
`copy_slot(source, target, pages)` lets another slot go on from a text, whose pages it may have
too, and `copy_page(source, target)` is for the one in which both write. `capacity()` says how many
tokens a text may have. `verify(slots, counts, ids, temperature: f32[rows], ...)`, if it is there,
keeps those of drafted tokens that `choose` would give, and says how many these are and what comes
behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.cached_tokens import Grid, Tokens
from ingot.compiler.frontends.gguf.cache import Cache
from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.drafted import Drafted
from ingot.compiler.frontends.gguf.function_builder import FunctionBuilder
from ingot.compiler.frontends.gguf.pieces import part
from ingot.compiler.frontends.gguf.sampling import OPTION_TYPES, Options, choose
from ingot.compiler.frontends.gguf.seen import NOWHERE, seen, without
from ingot.compiler.frontends.gguf.transformer import Transformer
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.frontends.spans import Spans
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Module, TensorType, Value, Variable
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv, symbol
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
_OPTIONS = {name: TensorType(type.dtype, (_ROWS,)) for name, type in OPTION_TYPES.items()}


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


@dataclass(frozen=True)
class _Tokens:
    """The tokens of a call: `lengths` of the texts in `slots` become `after`, with `end` the
    greatest; `owners` are the slots of the tokens, `places` where they stand."""

    ids: Value
    slots: Value
    owners: Value
    places: Value
    lengths: Value
    after: Value
    end: Dim
    spans: Spans | None


class Batch:
    """Builds the functions."""

    def __init__(
        self, weights: Weights, c: Configuration, room: Room, cache: str, producer: str
    ) -> None:
        self.weights, self.c, self.room = weights, c, room
        self.module = Module(attributes={"producer": producer})
        self.caches = {
            f"cache.{layer}.{part}": TensorType(dtype(cache), (room.pages, heads, PAGE, length))
            for layer in range(c.layers)
            for part, (heads, length) in c.cached(layer).items()
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

    def run(self, verify: bool) -> Module:
        """The module. `verify`: with that function."""
        self._add_prefill()
        self._add_decode()
        self._add_choose()
        self._add_place()
        self._add_copy_slot()
        self._add_copy_page()
        self._add_capacity()
        if verify:
            self._add_verify()
        return self.module

    def _add_prefill(self) -> None:
        f = self._function({"slots": _ROWS_I64, "counts": _ROWS_I64, "ids": _IDS})
        slots, counts, ids = f.arguments
        tokens = self._tokens(f, slots, ids, f.spans(counts, _IDS.shape[0]))
        f.end("prefill", logits=self._step(f, tokens))

    def _add_decode(self) -> None:
        f = self._function({"slots": _ROWS_I64, "ids": TensorType(I32, (_ROWS,))})
        slots, ids = f.arguments
        f.end("decode", logits=self._step(f, self._tokens(f, slots, ids, None)))

    def _add_verify(self) -> None:
        types = {"slots": _ROWS_I64, "counts": _ROWS_I64, "ids": _IDS}
        f = self._function({**types, **_OPTIONS})
        b, (slots, counts, ids, *given) = f.b, f.arguments
        spans = f.spans(counts, _IDS.shape[0])
        tokens = self._tokens(f, slots, ids, spans)
        logits = self._network(f, tokens, spans.total)

        def step(inner: Builder, row: Value, values: Sequence[Value]) -> Sequence[Value]:
            kept, following, all_logits, first = values
            slot, start, count, length, *own = (
                inner.value("take", each, row, axis=0)
                for each in (slots, spans.starts, counts, tokens.lengths, *given)
            )
            seen_first = _row(first, slot, inner)
            drafted = Drafted(
                ids, logits, start, count, length, _row(all_logits, slot, inner), seen_first
            )
            number, id, next_logits = drafted.kept(inner, Options(*own))
            end = inner.value("add", length, number)
            lines = [
                inner.value("dynamic_update_slice", x, inner.value("reshape", y, shape=(1,)), row)
                for x, y in ((kept, number), (following, id))
            ]
            rest = _with_row(first, slot, without(inner, seen_first, end), inner)
            return [*lines, _with_row(all_logits, slot, next_logits, inner), rest]

        start = [b.full(0, I64, (_ROWS,)), b.full(0, I32, (_ROWS,))]
        start += [f.load("logits"), self._first(f, tokens)]
        kept, following, all_logits, first = counted_loop(b, b.number(_ROWS, I64), start, step)
        f.store("logits", all_logits)
        f.store("seen", first)
        self._put(f, "length", tokens, b.value("add", tokens.lengths, kept))
        f.end("verify", counts=kept, next=following)

    def _tokens(self, f: FunctionBuilder, slots: Value, ids: Value, spans: Spans | None) -> _Tokens:
        """Tokens behind those of the slots, one for each without `spans`. Texts that become too
        long end the call."""
        b = f.b
        lengths = b.value("take", f.load("length"), slots, axis=0, mode="check")
        counts = b.full(1, I64, (_ROWS,)) if spans is None else spans.counts
        after = b.value("add", lengths, counts)
        end = self._length(f, b.value("reduce", after, axes=(0,), kind="max"))
        if spans is None:
            return _Tokens(ids, slots, slots, lengths, lengths, after, end, None)
        owners, places = (b.value("take", each, spans.text, axis=0) for each in (slots, lengths))
        places = b.value("add", places, spans.place)
        return _Tokens(ids, slots, owners, places, lengths, after, end, spans)

    def _network(self, f: FunctionBuilder, tokens: _Tokens, rows: Dim | Value) -> Value:
        """The logits behind `rows` of the tokens, which are in the cache then."""
        self.weights.open(f.b)
        caches = [f.load(name) for name in self.caches]
        table = f.b.value("take", f.load("table"), tokens.slots, axis=0)
        table = part(table, 1, 0, ceildiv(tokens.end, PAGE), f.b)
        put = Tokens(f.b, tokens.spans or Grid(f.b, _ROWS, 1), tokens.places, table)
        cache = Cache(self.c, put, put, caches)
        is_long = self.room.capacity > self.c.rope.original
        logits = Transformer(self.c, self.weights, f.b, is_long).logits(tokens.ids, cache, rows)
        for name, value in zip(self.caches, cache.caches, strict=True):
            f.store(name, value)
        return logits

    def _step(self, f: FunctionBuilder, tokens: _Tokens) -> Value:
        """Put the tokens behind the others; the logits of those that come next, which are stored,
        too."""
        logits = self._network(f, tokens, _ROWS if tokens.spans is None else tokens.spans.last)
        self._put(f, "length", tokens, tokens.after)
        self._put(f, "logits", tokens, logits, update_window_dims=(1,))
        f.store("seen", self._first(f, tokens))
        return logits

    def _first(self, f: FunctionBuilder, tokens: _Tokens) -> Value:
        """Where tokens first stand, with these."""
        b, ids = f.b, f.b.value("convert", tokens.ids, dtype=I64)
        shape = (*tensor_type(ids).shape, 1)
        pairs = [b.value("reshape", each, shape=shape) for each in (tokens.owners, ids)]
        return b.value(
            "scatter", f.load("seen"), b.value("concatenate", *pairs, axis=1),
            b.value("convert", tokens.places, dtype=I32),
            update_window_dims=(), inserted_window_dims=(0, 1),
            scatter_dims_to_operand_dims=(0, 1), index_vector_dim=1, kind="min",
        )  # fmt: skip

    def _add_choose(self) -> None:
        f = self._function({"slots": _ROWS_I64, **_OPTIONS})
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
        f.end("choose", ids=ids)

    def _add_place(self) -> None:
        pages = TensorType(I32, (self.room.columns,))
        f = self._function({"slot": _number(I64), "length": _number(I64), "pages": pages})
        b, (slot, length, given) = f.b, f.arguments
        slot = self._slot(f, slot, "slot")
        length = b.number(self._length(f, length), I64)
        rest = without(b, _row(f.load("seen"), slot, b), length)
        for name, value in (("length", length), ("table", given), ("seen", rest)):
            f.store(name, _with_row(f.load(name), slot, value, b))
        f.end("place")

    def _add_copy_slot(self) -> None:
        pages = TensorType(I32, (self.room.columns,))
        f = self._function({"source": _number(I64), "target": _number(I64), "pages": pages})
        b, (source, target, given) = f.b, f.arguments
        source, target = self._slot(f, source, "source"), self._slot(f, target, "target")
        for name in ("length", "logits", "seen"):
            rows = f.load(name)
            f.store(name, _with_row(rows, target, _row(rows, source, b), b))
        f.store("table", _with_row(f.load("table"), target, given, b))
        f.end("copy_slot")

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
        f.end("copy_page")

    def _add_capacity(self) -> None:
        f = self._function({})
        f.end("capacity", tokens=f.b.constant(self.room.capacity, "i64"))

    def _put(
        self, f: FunctionBuilder, name: str, tokens: _Tokens, value: Value, **numbers: Any
    ) -> None:
        """Store the variable with the rows of the tokens' slots."""
        rows = f.b.value("reshape", tokens.slots, shape=(_ROWS, 1))
        options = {"update_window_dims": (), "inserted_window_dims": (0,)} | numbers
        options |= {"scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}
        f.store(name, f.b.value("scatter", f.load(name), rows, value, **options))

    def _slot(self, f: FunctionBuilder, slot: Value, name: str) -> Value:
        """The number of a slot. Another one ends the call."""
        return f.b.number(f.size(slot, self.room.sequences - 1, f"'{name}'"), I64)

    def _length(self, f: FunctionBuilder, length: Value) -> Dim:
        """The length of a text. One that is too long ends the call."""
        capacity = self.room.capacity
        return f.size(length, capacity, f"the length of a text (capacity {capacity})")

    def _function(self, arguments: dict[str, TensorType]) -> FunctionBuilder:
        f = FunctionBuilder(self.module, arguments)
        if any(_ROWS in type.shape for type in arguments.values()):
            f.function.symbols["rows"] = (1, self.room.sequences)
        if "counts" in arguments:
            f.function.symbols["s"] = (1, self.room.pages * PAGE)
        return f


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
