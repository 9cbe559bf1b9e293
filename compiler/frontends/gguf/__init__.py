"""Language models from GGUF files: functions over one cache, which is state of the module.

`prefill(ids: i32[s])` and `decode(id: i32[])` put tokens behind those before and give the logits
of the next one. `generate` goes on from there: it chooses tokens, puts them behind the others, and
gives them; `choose(bias, ...)` says which comes next where numbers are added to logits.
`rewind(length: i64[])` keeps the first tokens only; `verify(ids: i32[s], ...)`, which
is there when asked for, keeps those of drafted tokens that `generate` would choose. The file stays
where it is: its tensors are external parameters, and what the kernels need of them `init` makes
when the module is loaded. `docs/design/0014-language-models.md`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ingot.compiler.frontends.attributes import ADAPTERS
from ingot.compiler.frontends.gguf.adapters import Lora, open_adapters
from ingot.compiler.frontends.gguf.batch import Batch, Room
from ingot.compiler.frontends.gguf.cache import (
    SLACK,
    Cache,
    Caches,
    Position,
    ring_length,
)
from ingot.compiler.frontends.gguf.configuration import Configuration, read_configuration
from ingot.compiler.frontends.gguf.drafted import Drafted
from ingot.compiler.frontends.gguf.encoder import WholeTexts, build_encoder
from ingot.compiler.frontends.gguf.function_builder import FunctionBuilder
from ingot.compiler.frontends.gguf.halves import DECODER, ENCODER, Source, SourceTokens, half
from ingot.compiler.frontends.gguf.keys import GREATEST
from ingot.compiler.frontends.gguf.sampling import OPTION_TYPES, Options, choose
from ingot.compiler.frontends.gguf.seen import NOWHERE, seen, without
from ingot.compiler.frontends.gguf.sketch import sketched
from ingot.compiler.frontends.gguf.transformer import Transformer
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.frontends.spans import Spans
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import while_loop
from ingot.compiler.ir import Block, Function, Literal, Module, Region, TensorType, Value, Variable
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.ir.literals import literal_from_numbers
from ingot.hal.errors import CompileError, DataLoss
from ingot.hal.gguf import Gguf
from ingot.hal.spec import dtype

__all__ = ["DEFAULT_CAPACITY", "MOST_TOKENS", "Layout", "build_model", "import_gguf"]

DEFAULT_CAPACITY = 4096
"""Positions of the cache, where the model has so many and nobody asks for others."""

MOST_TOKENS = 32
"""How many tokens a call of `generate` gives at most."""

CACHES = ("f32", "f16")
"""What the elements of caches may be."""

_MOST_PLACES = 1 << 16  # multiples of 256 that f16 holds

_LENGTH, _LOGITS, _SEEN, _WRITTEN = "length", "logits", "seen", "written"
_INDEX = TensorType(dtype("i64"))
_ID = dtype("i32")


def import_gguf(
    path: str | os.PathLike[str],
    *,
    capacity: int | None = None,
    cache: str = "f32",
    verify: bool = False,
    lora: Lora = None,
    sequences: int | None = None,
    cache_tokens: int | None = None,
    sketch: bool = False,
) -> Module:
    """The module of a GGUF file. `capacity`: the positions of the cache, whose elements are those
    of `cache`, f32 or f16. `verify`: with the function for drafted tokens. `lora`: with room for
    adapters. `sequences`: how many texts have a place in the cache, which has room for
    `cache_tokens` together (`batch.py`). `sketch`: with few of its layers (`sketch.py`).

    CompileError: the file is damaged, or its model cannot be compiled; the message says why.
    """
    try:
        file = Gguf(path)
    except DataLoss as error:
        raise CompileError(str(error)) from None
    if file.metadata.get("general.type") == "adapter":
        raise CompileError(
            f"GGUF file '{file.path}' is an adapter (LoRA): compile the model that it belongs to, "
            "with lora= and the path of the adapter"
        )
    configuration = read_configuration(file)
    producer = f"gguf {configuration.name}"
    layout = Layout(capacity, cache, verify, sequences, cache_tokens, sketch)
    weights = Weights(file)
    weights.adapters = open_adapters(lora)
    return build_model(weights, configuration, layout, producer)


@dataclass(frozen=True)
class Layout:
    """What the caller chooses of a model's functions and cache; see `import_gguf`."""

    capacity: int | None
    cache: str
    verify: bool
    sequences: int | None
    cache_tokens: int | None
    sketch: bool = False


def build_model(
    weights: Weights, configuration: Configuration, layout: Layout, producer: str
) -> Module:
    """The module of a model with these weights; of a sketch that would be no part of it, an empty
    one."""
    cache = layout.cache
    if cache not in CACHES:
        raise CompileError(f"cache is {cache!r}, expected {' or '.join(map(repr, CACHES))}")
    capacity = _checked(layout.capacity, configuration)
    if configuration.slopes and cache == "f16" and capacity > _MOST_PLACES:
        raise CompileError(
            f"the capacity is {capacity}, but keys that tell their position are none of f16 from "
            f"{_MOST_PLACES} on: expected at most so many, or cache='f32'"
        )
    if configuration.recurrence and (layout.verify or layout.sequences is not None):
        raise CompileError(
            f"{weights.file.title} has layers whose state goes from token to token and cannot go "
            "back: neither drafts (verify) nor several texts in one cache (sequences) are "
            "supported; `fork` of a loaded model gives further texts"
        )
    if layout.sketch:
        configuration = sketched(configuration, weights.file.tensors)
        if not configuration.sketched:
            return Module()
    if configuration.relative is not None:
        return _build_halves(weights, configuration, layout, capacity, producer)
    if configuration.pooling:
        _check_encoder(layout, weights)
        module = build_encoder(weights, configuration, capacity, producer)
    elif layout.sequences is None:
        if layout.cache_tokens is not None:
            raise CompileError("cache_tokens is the room of several texts: give sequences too")
        importer = _Importer(weights, configuration, capacity, cache, producer)
        module = importer.run(layout.verify)
    else:
        room = Room.of(layout.sequences, capacity, layout.cache_tokens)
        module = Batch(weights, configuration, room, cache, producer).run(layout.verify)
    if layout.sketch:
        return module
    weights.leave(configuration.unused)
    first = configuration.layers
    weights.check(configuration.name, range(first, first + configuration.ahead))
    if weights.adapters is not None:
        weights.adapters.check(weights.file.title)
        module.attributes[ADAPTERS] = weights.adapters.attribute(producer)
    return module


def _build_halves(
    weights: Weights, c: Configuration, layout: Layout, capacity: int, producer: str
) -> Module:
    """The module of an encoder, or with a decoder behind. CompileError: as `build_model`."""
    given = {
        "verify": layout.verify, "sequences": layout.sequences is not None,
        "cache_tokens": layout.cache_tokens is not None, "lora": weights.adapters is not None,
    }  # fmt: skip
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise CompileError(
            f"{weights.file.title} has an encoder (T5): {' and '.join(wrong)} cannot be chosen for "
            "such models"
        )
    if layout.sketch:
        return Module()
    read, encoder = half(weights, c, ENCODER)
    if c.decoder is None:
        _check_encoder(layout, weights)
        module = build_encoder(read, encoder, capacity, producer)
        read.leave(encoder.unused)
        read.check(c.name, range(0))
        return module
    written, decoder = half(weights, c, DECODER)
    importer = _Importer(written, decoder, capacity, layout.cache, producer)
    module = importer.run(verify=False)
    f = FunctionBuilder(module, {"ids": TensorType(_ID, (symbol("s"),))})
    f.function.symbols["s"] = (1, capacity)
    (ids,) = f.arguments
    spans = Spans(f.b, f.b.number(symbol("s"), "i64", (1,)), symbol("s"), symbol("s"))
    seen = WholeTexts(encoder, f.b, spans)
    encoded = Transformer(encoder, read, f.b, False).hidden(ids, seen, symbol("s"))
    assert importer.source is not None
    importer.source.add_functions(module, written, encoded, f)
    written.leave([f"blk.{layer}.cross_attn_rel_b.weight" for layer in range(decoder.layers)])
    for each in (read, written):
        each.check(c.name, range(0))
    return module


def _check_encoder(layout: Layout, weights: Weights) -> None:
    """CompileError: a model that makes vectors of texts is asked to keep some."""
    is_given = {
        "verify": layout.verify, "sequences": layout.sequences is not None,
        "cache_tokens": layout.cache_tokens is not None, "cache": layout.cache != "f32",
    }  # fmt: skip
    wrong = [name for name, given in is_given.items() if given]
    if wrong:
        raise CompileError(
            f"{weights.file.title} makes vectors of texts (pooling_type) and keeps nothing, so "
            f"{' and '.join(wrong)} cannot be chosen; a call of `embed` takes many texts"
        )


def _checked(capacity: int | None, configuration: Configuration) -> int:
    longest = configuration.longest
    if capacity is None and longest:
        return min(configuration.context, DEFAULT_CAPACITY, longest)
    if capacity is None:
        # memory does not grow with the capacity
        is_bounded = bool(configuration.pooling) or all(configuration.windows)
        return min(configuration.context, configuration.context if is_bounded else DEFAULT_CAPACITY)
    if longest and capacity > longest:
        raise CompileError(
            f"the capacity is {capacity}, but layers of the model see {longest} positions at most, "
            "those of a chunk or chosen ones, which is not supported for longer texts: expected at "
            "most so many"
        )
    context = GREATEST if configuration.relative is not None else configuration.context
    if not 1 <= capacity <= context:
        raise CompileError(
            f"the capacity is {capacity}, but the model has {context} positions: "
            "expected at least 1 and at most so many"
        )
    return capacity


class _Importer:
    def __init__(
        self,
        weights: Weights,
        configuration: Configuration,
        capacity: int,
        cache: str,
        producer: str,
    ) -> None:
        self.weights, self.c, self.capacity = weights, configuration, capacity
        self.positions = 0  # symbols of them
        self.read: SourceTokens | None = None  # in the function that is built
        self.module = Module(attributes={"producer": producer})
        self.ring = ring_length(configuration, capacity)
        rows = {False: capacity, True: self.ring or capacity}  # by whether a layer has a window
        self.states = {
            f"state.{layer}": TensorType(dtype("f32"), configuration.recurrence.state)
            for layer in configuration.recurrent
            if configuration.recurrence is not None
        }
        self.caches = {
            f"cache.{layer}.{part}": TensorType(
                dtype(cache), (heads, rows[configuration.is_local(layer, part)], length)
            )
            for layer in range(configuration.layers)
            for part, (heads, length) in configuration.cached(layer).items()
        }
        has_source = configuration.decoder is not None
        self.source = Source(configuration, capacity, cache) if has_source else None

    def run(self, verify: bool) -> Module:
        vocabulary = (self.weights.vocabulary,)
        variables = {
            _LENGTH: _INDEX,
            _LOGITS: TensorType(dtype("f32"), vocabulary),
            _SEEN: TensorType(_ID, vocabulary),
            **({_WRITTEN: _INDEX} if self.ring else {}),
            **self.caches,
            **self.states,
        }
        for name, type in variables.items():
            initial = NOWHERE if name == _SEEN else 0
            self._add_variable(name, type, initial)
        self.own = list(variables.items())
        for name, type in self.source.variables.items() if self.source else ():
            self._add_variable(name, type, 0)
        self._add_step("prefill", "ids", (symbol("s"),))
        self._add_step("decode", "id", ())
        self._add_generate()
        self._add_choose()
        self._add_rewind()
        self._add_capacity()
        if verify:
            self._add_verify()
        return self.module

    def _add_variable(self, name: str, type: TensorType, initial: int) -> None:
        literal: Literal = literal_from_numbers([initial], (), type.dtype)
        self.module.variables[name] = Variable(type, literal)

    def _add_step(self, name: str, argument: str, shape: tuple[Dim, ...]) -> None:
        """A function that puts tokens behind those before, and gives the next one's logits."""
        block = Block([TensorType(_ID, shape)])
        builder = Builder(block)
        (ids,) = block.arguments
        before = self._open(builder)
        after = self._step(builder, ids if shape else _line(ids, builder), before)
        self._store(after, builder)
        builder.return_(after.logits)
        function = Function(name, Region([block]), [argument], [_LOGITS])
        if shape:
            function.symbols["s"] = (1, self.capacity)
        self.module.add(function)

    def _add_generate(self) -> None:
        """A loop of choosing a token and putting it behind the others, until one of `stop` comes,
        or `count` have, or the cache is full."""
        stops = TensorType(_ID, (symbol("stops"),))
        types = {"count": _INDEX, "stop": stops, **OPTION_TYPES}
        block = Block(list(types.values()))
        builder = Builder(block)
        count, stop, *options = block.arguments
        before = self._open(builder)
        room = builder.value("sub", builder.constant(self.capacity, "i64"), before.index)
        count = builder.value(
            "min", count, builder.value("min", room, builder.constant(MOST_TOKENS, "i64"))
        )

        def goes_on(inner: Builder, values: Sequence[Value]) -> Value:
            made, going = values[:2]
            more = inner.value("compare", made, count, direction="lt")
            return inner.value("and", more, going)

        def step(inner: Builder, values: Sequence[Value]) -> Sequence[Value]:
            made, _, ids, *rest = values
            state = self._state(rest)
            penalized = seen(inner, state.seen, state.index)
            id = choose(inner, state.logits, penalized, Options(*options), state.index)
            line = _line(id, inner)
            ids = inner.value("dynamic_update_slice", ids, line, made)
            others = inner.value(
                "compare", stop, inner.broadcast_to(id, stops.shape), direction="ne"
            )
            going = inner.value("reduce", others, axes=(0,), kind="and")
            made = inner.value("add", made, inner.constant(1, "i64"))
            return [made, going, ids, *self._step(inner, line, state).values]

        start = [builder.constant(0, "i64"), builder.constant(True, "i1")]
        start.append(builder.full(0, _ID, (MOST_TOKENS,)))
        made, _, ids, *rest = while_loop(builder, [*start, *before.values], goes_on, step)
        self._store(self._state(rest), builder)
        builder.return_(ids, made)
        function = Function("generate", Region([block]), list(types), ["ids", "count"])
        function.symbols["stops"] = (0, None)
        self.module.add(function)

    def _add_choose(self) -> None:
        """A function that says which token comes next where numbers are added to its logits, which
        it gives, too, and changes nothing."""
        (vocabulary,) = self.module.variables[_SEEN].type.shape
        types = {"bias": TensorType(dtype("f32"), (vocabulary,)), **OPTION_TYPES}
        block = Block(list(types.values()))
        builder = Builder(block)
        bias, *options = block.arguments
        state = self._load(builder)
        penalized = seen(builder, state.seen, state.index)
        logits = builder.value("add", state.logits, bias)
        id = choose(builder, logits, penalized, Options(*options), state.index)
        builder.return_(id, state.logits)
        self.module.add(Function("choose", Region([block]), list(types), ["id", _LOGITS]))

    def _add_rewind(self) -> None:
        """A function that keeps the first tokens. The cache stays as it is: what stands behind its
        length is overwritten. Nothing is known of the next token before another is put behind."""
        block = Block([_INDEX])
        builder = Builder(block)
        (length,) = block.arguments
        before = self._load(builder)
        builder.append("size", (before.index,), (), {"symbols": ("before",)})
        what = f"the length to which the state '{_LENGTH}' is rewound"
        low = self._first_kept(builder, length, before)
        limits = {"low": low, "high": symbol("before"), "what": what, "status": "OutOfRange"}
        builder.append("size", (length,), (), {"symbols": ("after",), **limits})
        length = builder.number(symbol("after"), "i64")
        rest, written = without(builder, before.seen, length), before.written
        is_new = builder.value("compare", length, builder.constant(0, "i64"), direction="eq")
        if written is not None:
            written = builder.value("select", is_new, builder.constant(0, "i64"), written)
        caches, states = before.caches[: len(self.caches)], before.caches[len(self.caches) :]
        states = [self._unless(builder, is_new, each) for each in states]
        self._store(_State(length, before.logits, rest, written, [*caches, *states]), builder)
        builder.return_()
        self.module.add(Function("rewind", Region([block]), ["length"], []))

    def _unless(self, builder: Builder, is_new: Value, state: Value) -> Value:
        """The state, or zeros where a text begins."""
        shape = tensor_type(state).shape
        zeros = builder.full(0.0, dtype("f32"), shape)
        return builder.value("select", builder.broadcast_to(is_new, shape), zeros, state)

    def _first_kept(self, builder: Builder, length: Value, before: _State) -> Dim:
        """The least length to which a text may be rewound, with all that its next token sees.
        Rings have lost what newer tokens took the place of, states what there was before the last;
        without any token nothing is missing."""
        written, zero = before.written, builder.constant(0, "i64")
        if written is None and not self.states:
            return 0
        is_new = builder.value("compare", length, zero, direction="le")
        if self.states or written is None:
            low = builder.value("select", is_new, zero, before.index)
        else:
            kept = builder.value("sub", written, builder.constant(SLACK, "i64"))
            ring = builder.constant(self.ring or 0, "i64")
            is_whole = builder.value("compare", written, ring, direction="le")
            low = builder.value("select", builder.value("or", is_whole, is_new), zero, kept)
        builder.append("size", (builder.value("max", low, zero),), (), {"symbols": ("kept",)})
        return symbol("kept")

    def _add_capacity(self) -> None:
        """A function that says how many tokens a text may have."""
        block = Block([])
        builder = Builder(block)
        builder.return_(builder.constant(self.capacity, "i64"))
        self.module.add(Function("capacity", Region([block]), [], ["tokens"]))

    def _add_verify(self) -> None:
        """A function that keeps those of drafted tokens, from the first on, that `generate` would
        choose, and gives their count and the token that it chooses behind them."""
        types = {"ids": TensorType(_ID, (symbol("s"),)), **OPTION_TYPES}
        block = Block(list(types.values()))
        builder = Builder(block)
        ids, *options = block.arguments
        before = self._open(builder)
        after = self._step(builder, ids, before, symbol("s"))
        zero, count = builder.constant(0, "i64"), builder.number(symbol("s"), "i64")
        drafted = Drafted(ids, after.logits, zero, count, before.index, before.logits, after.seen)
        kept, id, logits = drafted.kept(builder, Options(*options))
        length = builder.value("add", before.index, kept)
        rest = without(builder, after.seen, length)
        self._store(_State(length, logits, rest, after.written, after.caches), builder)
        builder.return_(kept, id)
        function = Function("verify", Region([block]), list(types), ["count", "next"])
        function.symbols["s"] = (1, SLACK if self.ring else self.capacity)
        self.module.add(function)

    def _step(self, builder: Builder, ids: Value, before: _State, rows: Dim = 1) -> _State:
        """The state with tokens i32[s] behind it; its logits are those behind the last `rows`."""
        (count,) = tensor_type(ids).shape
        at = self._position(builder, before.index, count)
        cache = Cache.of_one(self.c, builder, at, self.ring, before.caches)
        cache.source = self.read
        is_long = self.capacity > self.c.rope.original
        logits = Transformer(self.c, self.weights, builder, is_long).logits(ids, cache, rows)
        if rows == 1:
            logits = builder.value("reshape", logits, shape=tensor_type(logits).shape[1:])
        places = builder.value("convert", cache.positions, dtype=_ID)
        first = builder.value(
            "scatter", before.seen, builder.value("reshape", ids, shape=(count, 1)), places,
            update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1, kind="min",
        )  # fmt: skip
        end, written = builder.number(at.end, "i64"), before.written
        written = None if written is None else builder.value("max", written, end)
        return _State(end, logits, first, written, cache.caches)

    def _position(self, builder: Builder, index: Value, count: Dim) -> Position:
        """Behind what is cached. A call that does not fit ends here."""
        self.positions += 1
        name = f"before{self.positions}"
        what = f"the length of the state '{_LENGTH}' (capacity {self.capacity}) before the call"
        limits = {"low": 0, "high": self.capacity - count, "what": what, "status": "OutOfRange"}
        builder.append("size", (index,), (), {"symbols": (name,), **limits})
        return Position(index, symbol(name), count)

    def _open(self, builder: Builder) -> _State:
        """The state where tokens are put behind it, and what they are to see beside."""
        self.weights.open(builder)
        self.read = None if self.source is None else self.source.load(builder)
        return self._load(builder)

    def _load(self, builder: Builder) -> _State:
        values = []
        for name, type in self.own:
            attributes = {"name": name, "dtype": type.dtype, "shape": type.shape}
            value = builder.append("variable.load", (), (), attributes).result
            if name in self.caches:
                value = builder.value("reshape", value, shape=(1, *type.shape))
            values.append(value)
        return self._state(values)

    def _state(self, values: Sequence[Value]) -> _State:
        index, logits, first, *rest = values
        written = rest.pop(0) if self.ring else None
        return _State(index, logits, first, written, rest)

    def _store(self, state: _State, builder: Builder) -> None:
        for (name, _), value in zip(self.own, state.values, strict=True):
            if name in self.caches:
                value = builder.value("reshape", value, shape=self.caches[name].shape)
            builder.append("variable.store", (value,), (), {"name": name})


@dataclass(frozen=True)
class _State:
    """The values of the variables, in their order."""

    index: Value  # how many tokens are cached
    logits: Value  # of the next one
    seen: Value  # where each token first stands, i32[vocabulary]
    written: Value | None  # how many tokens rings had at most
    caches: Caches

    @property
    def values(self) -> list[Value]:
        written = [] if self.written is None else [self.written]
        return [self.index, self.logits, self.seen, *written, *self.caches]


def _line(id: Value, builder: Builder) -> Value:
    return builder.value("reshape", id, shape=(1,))
