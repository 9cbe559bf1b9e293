"""Caches of keys and values: state of programs that are Python functions (`ingot.state.cache`).

There is one layout in memory: pages [pages, heads, rows, length] per layer, which `attention_paged`
reads in place. A linear cache has one page for each sequence; a ring too, whose rows begin anew
behind the last one; a paged one has a table of pages, shared by owners that are counted. Pages that
nobody has wait on a stack; behind `top` there are none that anybody ever had, so a pool that grows
needs nothing but more rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.program.creation import arange, asarray, astype
from ingot.compiler.frontends.program.elementwise import where
from ingot.compiler.frontends.program.manipulation import broadcast_to, permute_dims, reshape
from ingot.compiler.frontends.program.reductions import cumulative_sum
from ingot.compiler.frontends.program.reductions import max as greatest
from ingot.compiler.frontends.program.reductions import sum as total
from ingot.compiler.frontends.program.searching import take
from ingot.compiler.frontends.program.tensor import (
    Size,
    Tensor,
    as_dim,
    as_size,
    current,
    given,
    placed,
    value_of,
)
from ingot.compiler.ir import TensorType, Variable
from ingot.compiler.ir.dims import Dim, ceildiv, maximum, symbol
from ingot.compiler.ir.literals import literal_from_numbers
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["Cache", "Step", "cache"]

_UNIT = 64
"""Rows of linear caches and rings are a multiple: kernels take so many at once."""

_MOST = 2**31 - 1  # tokens of a sequence
_I32, _I64 = dtype("i32"), dtype("i64")


def cache(
    heads: int,
    dim: int,
    *,
    capacity: int | None = None,
    layout: Literal["linear", "ring", "paged"] = "linear",
    window: int = 0,
    slack: int = 64,
    page: int = 64,
    pages: int | None = None,
    sequences: int = 1,
    layers: int = 1,
    value_dim: int | None = None,
    dtype: str = "f32",
    name: str = "cache",
) -> Cache:
    """A cache for attention in programs (`ingot.program`), which use it by its name.

    Each of `sequences` has its own length, of `capacity` tokens at most; keys have `dim` elements,
    values `value_dim` or as many, in each of `heads`, for each of `layers`. "linear" and "paged"
    sequences see all tokens, or the last `window`. A "ring" holds the window and `slack` tokens,
    and goes on for ever; a step adds at most `slack` + 1. "paged" sequences share `pages` of `page`
    tokens each: as many as all need at most, or, without a `capacity`, any number, which grows.
    CompileError: numbers that do not fit together.
    """
    numbers = {"heads": heads, "dim": dim, "sequences": sequences, "layers": layers, "page": page}
    given_too = {"capacity": capacity, "pages": pages, "value_dim": value_dim}
    numbers |= {key: number for key, number in given_too.items() if number is not None}
    for key, number in (numbers | {"window": window, "slack": slack}).items():
        least = 1 if key in numbers else 0
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            wanted = "a positive integer" if least else "an integer of at least 0"
            raise CompileError(f"cache: {key} is {number!r}, expected {wanted}")
    if layout not in ("linear", "ring", "paged"):
        raise CompileError(f"cache: layout is {layout!r}, expected 'linear', 'ring' or 'paged'")
    if dtype not in ("f32", "f16", "bf16"):
        raise CompileError(f"cache: dtype is {dtype!r}, expected 'f32', 'f16' or 'bf16'")
    if layout == "ring" and (window < 1 or capacity is not None):
        raise CompileError("cache: a ring has a window= and perhaps a slack=, and no capacity=")
    if layout == "linear" and capacity is None:
        raise CompileError("cache: a linear cache needs a capacity=; a paged one may grow")
    if layout != "paged" and pages is not None:
        raise CompileError("cache: pages= is for paged caches")
    if layout == "paged" and capacity is None and pages is not None:
        raise CompileError("cache: pages= needs a capacity=; without both the cache grows")
    if layout != "paged":
        page = -(-(window + slack if layout == "ring" else capacity or 0) // _UNIT) * _UNIT
        pages = sequences
    elif capacity is not None and pages is None:
        pages = sequences * -(-capacity // page)
    made = Cache()
    made.heads, made.dims, made.layers, made.name = heads, (dim, value_dim or dim), layers, name
    made.layout, made.window, made.page, made.pages = layout, window, page, pages
    made.capacity, made.sequences, made.element = capacity, sequences, dtype
    return made


class Cache:
    """See `cache`. Its methods are for functions that are being traced."""

    heads: int
    dims: tuple[int, int]  # of keys and of values
    layers: int
    name: str
    layout: str
    window: int
    page: int
    pages: int | None  # None: it grows
    capacity: int | None
    sequences: int
    element: str

    def __repr__(self) -> str:
        room = "grows" if self.pages is None else f"{self.pages} pages"
        return f"<cache '{self.name}': {self.layout}, {room} of {self.page} tokens>"

    @placed
    def lengths(self) -> Tensor:
        """How many tokens each sequence has, i64[sequences]."""
        return self._load("length", self.sequences)

    @placed
    def extend(self, tokens: int | Size, sequences: Any = None) -> Step:
        """Makes room for `tokens` more tokens in each of some sequences (i64[rows]; without it,
        all). The call ends with OutOfRange, and the cache stays, if one gets too long or is there
        twice, or pages are short."""
        return Step(self, as_dim(tokens), self._numbers(sequences))

    @placed
    def reset(self, sequences: Any = None) -> None:
        """Empties some sequences (i64[rows], none of them twice); without it, all. Pages that no
        other has become free."""
        slots = self._numbers(sequences)
        length = self._load("length", self.sequences)
        stored: dict[str, Tensor] = {}
        if self.layout == "paged":
            losses, is_free, pool = self._losses(slots, take(length, slots))
            stored = {"free": self._freed(is_free), "pool": pool}
            stored["owners"] = self._load("owners", as_dim(losses.shape[0])) - losses
        self._store(stored | {"length": _put(length, slots, slots * 0)})

    @placed
    def copy(self, source: Any, target: Any) -> None:
        """Lets sequence `target` go on from the tokens of `source`. Whole pages are shared; the
        last one, to which both will write, is copied. Linear caches and rings are copied. Without
        a page for that the call ends with OutOfRange, and the cache stays."""
        source, target = (self._number(each) for each in (source, target))
        length = self._load("length", self.sequences)
        own = take(length, source)
        if self.layout == "paged":
            is_other = (source != target) * 1  # of one onto itself no page gets or loses an owner
            lengths = own * is_other, take(length, target) * is_other
            old, new, pools, stored = self._share(source, target, *lengths)
        else:
            old, new, pools, stored = source, target, self._loaded(self.pages or 0), {}
        stored |= {key: _put(pool, new, take(pool, old, axis=0)) for key, pool in pools.items()}
        self._store(stored | {"length": _put(length, target, own)})

    # Variables

    def _load(self, key: str, *shape: Dim, element: str = "i64") -> Tensor:
        """A variable as it is now; one whose rows no number tells grows to have so many."""
        trace, name = current(), f"{self.name}.{key}"
        if trace.variables is None:
            raise UnsupportedNode("a cache is for programs, and not for lowerings")
        found, shown = dtype(element), shape
        if self.pages is None and key != "length" and key != "pool":
            shown = (symbol("rows"), *shape[1:])
        made = Variable(TensorType(found, shown), literal_from_numbers([0], (), found))
        known = trace.variables.setdefault(name, made)
        if known.type != made.type:
            raise UnsupportedNode(f"two caches are called '{self.name}': give them names")
        attributes = {"name": name, "dtype": found, "shape": shape}
        return given(trace.builder.append("variable.load", (), (), attributes).result)

    def _store(self, values: dict[str, Tensor]) -> None:
        for key, value in values.items():
            name = {"name": f"{self.name}.{key}"}
            current().builder.append("variable.store", (value_of(value),), (), name)

    def _pools(self) -> list[tuple[str, int]]:
        """The names of keys and values of all layers, and which of `dims` they have."""
        return [(f"{layer}.{'kv'[at]}", at) for layer in range(self.layers) for at in (0, 1)]

    def _pool(self, key: str, at: int, pages: Dim) -> Tensor:
        shape = (pages, self.heads, self.page, self.dims[at])
        return self._load(key, *shape, element=self.element)

    def _loaded(self, pages: Dim) -> dict[str, Tensor]:
        """Keys and values of all layers."""
        return {key: self._pool(key, at, pages) for key, at in self._pools()}

    # Sequences

    def _numbers(self, sequences: Any) -> Tensor:
        """The numbers of sequences, all different, checked, i64[rows]."""
        if sequences is None:
            return arange(self.sequences)
        numbers = reshape(astype(given(value_of(sequences)), "i64"), (-1,))
        most, least = greatest(numbers), -greatest(-numbers)
        what = f"a sequence of '{self.name}'"
        last = _limit(where(least < 0, least, most), self.sequences - 1, what)
        numbers = _at_most(numbers, as_size(last))
        if numbers.shape == (1,):
            return numbers
        times = _put(arange(self.sequences) * 0, numbers, numbers * 0 + 1, "add")
        once = _limit(greatest(times), 1, f"how often {what} is listed")
        return _at_most(numbers, as_size(once * (self.sequences - 1)))

    def _number(self, sequence: Any) -> Tensor:
        numbers = self._numbers(sequence)
        if numbers.shape != (1,):
            raise UnsupportedNode(f"a sequence is {numbers}, expected one number")
        return numbers

    # Pages: "pool" is how many there were ever, and how many of them wait in "free".

    def _end(self, ends: Tensor) -> Dim:
        """Where the longest sequence ends."""
        room = "" if self.capacity is None else f" (capacity {self.capacity})"
        what = f"the length of a sequence of '{self.name}'{room}"
        return _limit(greatest(ends), self.capacity or _MOST, what)

    def _allocate(self, count: Tensor, pool: Tensor) -> tuple[Dim, Tensor]:
        """How many pages there are with `count` more that had been nobody's, and what "pool"
        becomes."""
        top, free = pool[0], pool[1]
        short = where(count > free, count - free, 0)
        what = f"the number of pages of '{self.name}' in use"
        used = _limit(top + short, self.pages or _MOST, what)
        after = [_at_most(top + short, as_size(used)), where(count > free, 0, free - count)]
        return maximum(used, 1), asarray(after)

    def _page_numbers(self, pool: Tensor, order: Tensor, waiting: Tensor) -> Tensor:
        """The pages that an allocation gives first, second, ..., by these numbers."""
        top, free = pool[0], pool[1]
        last = where(free > order, free - 1 - order, 0)
        return where(order < free, take(waiting, last), top + order - free)

    def _add(
        self, slots: Tensor, lengths: Tensor, tokens: Dim, end: Dim
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """The tables [rows, columns] of sequences that get pages for `tokens` more, up to `end`,
        keys and values, and what variables become. All room is made before anything is written."""
        ends, page = lengths + as_size(tokens), self.page
        columns = ceildiv(end, page)
        have, want = (lengths + (page - 1)) // page, (ends + (page - 1)) // page
        new = want - have
        pool = self._load("pool", 2)
        used, after = self._allocate(total(new), pool)
        most = arange(as_size(ceildiv(tokens, page)))
        first = cumulative_sum(new) - new
        waiting = self._load("free", self.pages or used)
        numbers = self._page_numbers(pool, first[:, None] + most[None, :], waiting)
        is_new = most[None, :] < new[:, None]
        owners = self._load("owners", self.pages or used)
        nowhere = as_size(self.pages or used)
        table = self._load("table", self._room(columns), self.sequences)
        at = where(is_new, have[:, None] + most[None, :], as_size(self._room(columns)))
        pools = self._loaded(self.pages or used)
        table = _put_at(table, (at, broadcast_to(slots[:, None], is_new.shape)), numbers)
        owners = _put(owners, where(is_new, numbers, nowhere), is_new * 1)
        stored = {"pool": after, "owners": owners, "table": table}
        table = table[: as_size(columns)]
        return permute_dims(take(table, slots, axis=1), (1, 0)), pools, stored

    def _room(self, columns: Dim) -> Dim:
        """Rows of the table."""
        return columns if self.capacity is None else -(-self.capacity // self.page)

    def _losses(self, slots: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How many owners each page loses with the sequences, which have so many tokens, whether
        it has none then, and what "pool" becomes."""
        columns = ceildiv(self._end(lengths), self.page)
        pool = self._load("pool", 2)
        used = self.pages or maximum(_limit(pool[0], _MOST, "the number of pages"), 1)
        owners = self._load("owners", used)
        table = take(self._load("table", self._room(columns), self.sequences), slots, axis=1)
        rows = arange(as_size(self._room(columns)))[:, None]
        is_own = rows * self.page < lengths[None, :]
        losses = arange(as_size(used)) * 0
        losses = _put(losses, where(is_own, table, as_size(used)), is_own * 1, "add")
        is_free = (losses > 0) & (owners == losses)
        return losses, is_free, asarray([pool[0], pool[1] + total(is_free * 1)])

    def _freed(self, is_free: Tensor) -> Tensor:
        """What "free" becomes when these pages wait for another owner."""
        used = as_dim(is_free.shape[0])
        order = cumulative_sum(is_free * 1) + (self._load("pool", 2)[1] - 1)
        waiting = self._load("free", used)
        return _put(waiting, where(is_free, order, as_size(used)), arange(as_size(used)))

    def _share(
        self, source: Tensor, target: Tensor, length: Tensor, old_length: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Gives `target`, which had `old_length` tokens, the whole pages of `source`, and one of
        its own for the rest: the page of the rest, where it is to be, keys and values, and what
        variables become. All room is made before anything is written."""
        page = self.page
        columns = ceildiv(self._end(length), page)
        rest = (length % page > 0) * 1
        losses, is_free, pool = self._losses(target, old_length)
        used, after = self._allocate(total(rest), pool)
        room = self._room(maximum(columns, 1))
        table = self._load("table", room, self.sequences)
        owners = self._load("owners", self.pages or used)
        pools = self._loaded(self.pages or used)
        waiting = self._freed(is_free)
        own, rows = reshape(take(table, source, axis=1), (-1,)), arange(as_size(room))
        last = where(length > page, (length - 1) // page, 0)
        old = take(own, last)
        new = where(rest > 0, self._page_numbers(pool, rest * 0, waiting), old)
        own = where((rows == last) & (rest > 0), new, own)
        is_own = rows * page < length
        owners = _put(owners, arange(losses.shape[0]), losses * -1, "add")
        owners = _put(owners, where(is_own, own, as_size(self.pages or used)), is_own * 1, "add")
        table = where(arange(self.sequences)[None, :] == target, own[:, None], table)
        return old, new, pools, {"pool": after, "free": waiting, "owners": owners, "table": table}


class Step:
    """Tokens that are being added to sequences. `positions` i64[rows, tokens] are their places."""

    def __init__(self, owner: Cache, tokens: Dim, slots: Tensor) -> None:
        self.cache, self.tokens = owner, tokens
        lengths = owner._load("length", owner.sequences)
        before = take(lengths, slots)
        after = before + as_size(tokens)
        end = owner._end(after)
        if owner.layout == "ring":
            what = f"the number of tokens that '{owner.name}' gets at once"
            most = _limit(asarray(as_size(tokens)), owner.page - owner.window + 1, what)
            after = _at_most(after, before + as_size(most))
        table = slots[:, None]
        stored: dict[str, Tensor] = {}
        if owner.layout == "paged":
            table, self._pools, stored = owner._add(slots, before, tokens, end)
        else:
            self._pools = owner._loaded(owner.pages or 0)
        stored["length"] = _put(lengths, slots, _at_most(after, as_size(end)))
        owner._store(stored)
        self.positions = before[:, None] + arange(as_size(tokens))[None, :]
        self._table = astype(table, "i32")
        column = self.positions // owner.page
        if owner.layout != "paged":
            column = column * 0
        pages = _along(table, column)
        self._places = (pages, self.positions % owner.page)

    @placed
    def append(self, k: Any, v: Any, layer: int = 0) -> None:
        """Puts keys [rows, tokens, heads, dim] and values [rows, tokens, heads, value_dim] into the
        cache of a layer."""
        rows = self.positions.shape
        for key, x, length in zip(self._keys(layer), (k, v), self.cache.dims, strict=True):
            x, wanted = given(value_of(x)), (*rows, self.cache.heads, length)
            if x.shape != wanted:
                raise UnsupportedNode(f"{key} is {x}, expected the shape {_shown(wanted)}")
            x = reshape(astype(x, self.cache.element), (-1, *x.shape[2:]))
            pool = _put_at(self._pools[key], self._places, x, (0, 2))
            self._pools[key] = pool
            self.cache._store({key: pool})

    @placed
    def attend(
        self, q: Any, layer: int = 0, *, scale: float | None = None, cap: float = 0
    ) -> Tensor:
        """Attention of queries [rows, tokens, n * heads, dim] over what they see of the cache of a
        layer, each its own token too: [rows, tokens, n * heads, value_dim]. `scale`: of scores,
        else dim ** -0.5; `cap`: they become cap * tanh(score / cap)."""
        own, q = self.cache, given(value_of(q))
        rows, tokens = self.positions.shape
        if len(q.shape) != 4 or q.shape[:2] != (rows, tokens) or q.shape[3] != own.dims[0]:
            wanted = _shown((rows, tokens, f"n*{own.heads}", own.dims[0]))
            raise UnsupportedNode(f"q is {q}, expected the shape {wanted}")
        if not isinstance(q.shape[2], int) or q.shape[2] % own.heads:
            raise UnsupportedNode(f"q is {q}, whose heads are no multiple of {own.heads}")
        group = q.shape[2] // own.heads
        element = q.dtype
        q = reshape(q, (rows, tokens, own.heads, group, own.dims[0]))
        q = reshape(
            permute_dims(q, (0, 2, 3, 1, 4)), (rows, own.heads, group * tokens, own.dims[0])
        )
        ends = broadcast_to((self.positions + 1)[:, None, :], (rows, group, tokens))
        ends = astype(reshape(ends, (rows, group * tokens)), "i32")
        scale = 1 / math.sqrt(own.dims[0]) if scale is None else scale
        sight = {"scale": float(scale), "cap": float(cap)}
        sight |= {"window": own.window, "ring": own.layout == "ring"}
        k, v = (self._pools[key] for key in self._keys(layer))
        operands = (astype(q, "f32"), k, v, self._table, ends)
        y = given(current().builder.value("attention_paged", *map(value_of, operands), **sight))
        y = reshape(y, (rows, own.heads, group, tokens, own.dims[1]))
        y = permute_dims(y, (0, 3, 1, 2, 4))
        return astype(reshape(y, (rows, tokens, own.heads * group, own.dims[1])), element)

    def _keys(self, layer: int) -> tuple[str, str]:
        if not 0 <= layer < self.cache.layers:
            raise UnsupportedNode(f"layer {layer} of '{self.cache.name}' with {self.cache.layers}")
        return f"{layer}.k", f"{layer}.v"


def _shown(shape: Any) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _limit(number: Tensor, most: int, what: str) -> Dim:
    """A number of 0 to `most` as a dim. Another one ends the call."""
    trace = current()
    name = trace.fresh("size")
    limits: Mapping[str, Any] = {"low": 0, "high": most, "what": what, "status": "OutOfRange"}
    number = reshape(astype(number, "i64"), ())
    trace.builder.append("size", (value_of(number),), (), {"symbols": (name,), **limits})
    return symbol(name)


def _at_most(x: Tensor, most: Any) -> Tensor:
    """x, which is no more than that: so that the check behind it is not dropped."""
    return where(x < most, x, most)


def _put(x: Tensor, rows: Tensor, values: Tensor, kind: str = "set") -> Tensor:
    """x with values in rows, or combined with them; rows that there are not are left out."""
    return _put_at(x, (rows,), values, (0,), kind)


def _put_at(
    x: Tensor,
    places: tuple[Tensor, ...],
    values: Tensor,
    axes: tuple[int, ...] = (0, 1),
    kind: str = "set",
) -> Tensor:
    """The same at places along some axes."""
    builder = current().builder
    columns = [value_of(reshape(astype(each, "i64"), (-1, 1))) for each in places]
    at = builder.value("concatenate", *columns, axis=1) if len(columns) > 1 else columns[0]
    rest = tuple(dim for axis, dim in enumerate(x.shape) if axis not in axes)
    values = astype(reshape(values, (-1, *rest)), x.dtype)
    return given(
        builder.value(
            "scatter", value_of(x), at, value_of(values),
            update_window_dims=tuple(range(1, len(rest) + 1)), inserted_window_dims=axes,
            scatter_dims_to_operand_dims=axes, index_vector_dim=1, kind=kind,
        )
    )  # fmt: skip


def _along(table: Tensor, columns: Tensor) -> Tensor:
    """table[rows, c] at columns[rows, n] of each row."""
    rows, width = table.shape
    return take(reshape(table, (-1,)), arange(rows)[:, None] * width + columns)
