"""Caches of keys and values: state of programs that are Python functions (`ingot.state.cache`).

There is one layout in memory: pages [pages, heads, rows, length] per layer, which tokens are put
into, and see, as those of language models do (`cached_tokens.py`). A linear cache has one page for
each sequence; a ring too, whose rows begin anew behind the last one; a paged one has a table of
pages, shared by owners that are counted. Pages that nobody has wait on a stack; behind `top` there
are none that anybody ever had, so a pool that grows needs nothing but more rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ingot.compiler.frontends.cached_tokens import Grid, Line, Tokens
from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.program.cache_numbers import (
    at_most,
    greatest,
    limit,
    of_each,
    put,
    put_at,
    shown,
    within,
)
from ingot.compiler.frontends.program.creation import arange, asarray, astype
from ingot.compiler.frontends.program.elementwise import where
from ingot.compiler.frontends.program.manipulation import (
    broadcast_to,
    concat,
    permute_dims,
    reshape,
)
from ingot.compiler.frontends.program.reductions import cumulative_sum
from ingot.compiler.frontends.program.reductions import sum as total
from ingot.compiler.frontends.program.searching import argmax, take
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

_MOST = 2**31 - 1  # tokens of a sequence


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
    _check_numbers(numbers, {"window": window, "slack": slack})
    _check_layout(layout, capacity, window, pages)
    if dtype not in ("f32", "f16", "bf16"):
        raise CompileError(f"cache: dtype is {dtype!r}, expected 'f32', 'f16' or 'bf16'")
    if layout != "paged":
        page = window + slack if layout == "ring" else capacity or 0
        pages = sequences
    elif capacity is not None and pages is None:
        pages = sequences * -(-capacity // page)
    dims = dim, value_dim or dim
    return Cache(heads, dims, layers, name, layout, window, page, pages, capacity, sequences, dtype)


def _check_numbers(positive: Mapping[str, int], others: Mapping[str, int]) -> None:
    """Those of the first are at least 1, of the second at least 0."""
    for key, number in {**positive, **others}.items():
        least = 1 if key in positive else 0
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            wanted = "a positive integer" if least else "an integer of at least 0"
            raise CompileError(f"cache: {key} is {number!r}, expected {wanted}")


def _check_layout(layout: str, capacity: int | None, window: int, pages: int | None) -> None:
    if layout not in ("linear", "ring", "paged"):
        raise CompileError(f"cache: layout is {layout!r}, expected 'linear', 'ring' or 'paged'")
    if layout == "ring" and (window < 1 or capacity is not None):
        raise CompileError("cache: a ring has a window= and perhaps a slack=, and no capacity=")
    if layout == "linear" and capacity is None:
        raise CompileError("cache: a linear cache needs a capacity=; a paged one may grow")
    if layout != "paged" and pages is not None:
        raise CompileError("cache: pages= is for paged caches")
    if layout == "paged" and capacity is None and pages is not None:
        raise CompileError("cache: pages= needs a capacity=; without both the cache grows")


@dataclass(repr=False, eq=False)
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
    def extend(self, tokens: int | Size, sequences: Any = None, counts: Any = None) -> Step:
        """Makes room for `tokens` more tokens in each of some sequences (i64[rows]; without it,
        all), or, with `counts` (i64[rows], 0 to `tokens`), for so many of them, which come first.
        The call ends with OutOfRange, and the cache stays, if one gets too long or is there twice,
        a count does not fit, or pages are short."""
        slots, most = self._numbers(sequences), as_dim(tokens)
        if counts is not None:
            what = f"how many tokens a sequence of '{self.name}' gets"
            counts = within(of_each(counts, slots, "counts"), most, what)
        return Step(self, most, slots, counts)

    @placed
    def drop(self, tokens: Any, sequences: Any = None) -> None:
        """Takes the last `tokens` (one number, or i64[rows]) of some sequences back. Whole pages
        that no other has become free. A ring has only `slack` more tokens than it sees, and none
        whose place others have taken. Without so many, or without a page for the rest of one that
        another has too, the call ends with OutOfRange, and the cache stays."""
        slots = self._numbers(sequences)
        length = self._load("length", self.sequences)
        before, tokens = take(length, slots), of_each(tokens, slots, "tokens")
        most, stored = before, {}
        if self.layout == "ring":
            written = self._load("written", self.sequences)
            most = self._spare(before, tokens, take(written, slots))
        kept = before - self._dropped(tokens, most)
        if self.layout == "paged":
            stored = self._cut(slots, before, kept)
        elif self.layout == "ring":
            stored = {"written": put(written, slots, where(kept > 0, take(written, slots), 0))}
        self._store(stored | {"length": put(length, slots, kept)})

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
        elif self.layout == "ring":
            written = self._load("written", self.sequences)
            stored = {"written": put(written, slots, slots * 0)}
        self._store(stored | {"length": put(length, slots, slots * 0)})

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
        if self.layout == "ring":
            written = self._load("written", self.sequences)
            stored = {"written": put(written, target, take(written, source))}
        stored |= {key: put(pool, new, take(pool, old, axis=0)) for key, pool in pools.items()}
        self._store(stored | {"length": put(length, target, own)})

    # Variables

    def _load(self, key: str, *shape: Dim, element: str = "i64") -> Tensor:
        """A variable as it is now; one whose rows no number tells grows to have so many."""
        trace, name = current(), f"{self.name}.{key}"
        if trace.variables is None:
            raise UnsupportedNode("a cache is for programs, and not for lowerings")
        found, declared = dtype(element), shape
        if self.pages is None and key != "length" and key != "pool":
            declared = (symbol("rows"), *shape[1:])
        made = Variable(TensorType(found, declared), literal_from_numbers([0], (), found))
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
        what = f"a sequence of '{self.name}'"
        numbers = reshape(astype(given(value_of(sequences)), "i64"), (-1,))
        numbers = within(numbers, self.sequences - 1, what)
        if numbers.shape == (1,):
            return numbers
        times = put(arange(self.sequences) * 0, numbers, numbers * 0 + 1, "add")
        once = limit(greatest(times), 1, f"how often {what} is listed")
        return at_most(numbers, as_size(once * (self.sequences - 1)))

    def _number(self, sequence: Any) -> Tensor:
        numbers = self._numbers(sequence)
        if numbers.shape != (1,):
            raise UnsupportedNode(f"a sequence is {numbers}, expected one number")
        return numbers

    def _spare(self, before: Tensor, tokens: Tensor, written: Tensor) -> Tensor:
        """How many tokens sequences of a ring may lose, of which this was the greatest length: all,
        or those beside the window that others have not taken the place of."""
        least = where(written > self.page, written - (self.page - self.window), 0)
        return where(tokens == before, before, where(least < before, before - least, 0))

    def _dropped(self, tokens: Tensor, most: Tensor) -> Tensor:
        """How many tokens sequences lose, checked, i64[rows]; the message is of the worst."""
        some, room = (concat([each, asarray([0])]) for each in (tokens, most))  # even of none
        worst = argmax(where(some < 0, _MOST, some - room))
        high = limit(take(room, worst), _MOST, f"the length of a sequence of '{self.name}'")
        what = f"how many tokens a sequence of '{self.name}' loses"
        checked = limit(take(some, worst), high, what)
        return at_most(tokens, as_size(checked) + _MOST)

    # Pages: "pool" is how many there were ever, and how many of them wait in "free".

    def _end(self, ends: Tensor) -> Dim:
        """Where the longest sequence ends."""
        room = "" if self.capacity is None else f" (capacity {self.capacity})"
        what = f"the length of a sequence of '{self.name}'{room}"
        return limit(greatest(ends), self.capacity or _MOST, what)

    def _allocate(self, count: Tensor, pool: Tensor) -> tuple[Dim, Tensor]:
        """How many pages there are with `count` more that had been nobody's, and what "pool"
        becomes."""
        top, free = pool[0], pool[1]
        short = where(count > free, count - free, 0)
        what = f"the number of pages of '{self.name}' in use"
        used = limit(top + short, self.pages or _MOST, what)
        after = [at_most(top + short, as_size(used)), where(count > free, 0, free - count)]
        return maximum(used, 1), asarray(after)

    def _page_numbers(self, pool: Tensor, order: Tensor, waiting: Tensor) -> Tensor:
        """The pages that an allocation gives first, second, ..., by these numbers."""
        top, free = pool[0], pool[1]
        last = where(free > order, free - 1 - order, 0)
        return where(order < free, take(waiting, last), top + order - free)

    def _add(
        self, slots: Tensor, lengths: Tensor, ends: Tensor, tokens: Dim, end: Dim
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """The tables [rows, columns] of sequences that get pages up to `ends`, `end` at most, for
        `tokens` more at most, keys and values, and what variables become. All room is made before
        anything is written."""
        page = self.page
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
        table = put_at(table, (at, broadcast_to(slots[:, None], is_new.shape)), numbers)
        owners = put(owners, where(is_new, numbers, nowhere), is_new * 1)
        stored = {"pool": after, "owners": owners, "table": table}
        table = table[: as_size(columns)]
        return permute_dims(take(table, slots, axis=1), (1, 0)), pools, stored

    def _room(self, columns: Dim) -> Dim:
        """Rows of the table."""
        return columns if self.capacity is None else -(-self.capacity // self.page)

    def _losses(
        self, slots: Tensor, lengths: Tensor, kept: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """How many owners each page loses with the sequences, which have so many tokens, whether
        it has none then, and what "pool" becomes. They keep the pages of `kept` tokens; that of
        the last only if it is whole or their own."""
        columns = ceildiv(self._end(lengths), self.page)
        pool = self._load("pool", 2)
        used = self.pages or maximum(limit(pool[0], _MOST, "the number of pages"), 1)
        owners = self._load("owners", used)
        table = take(self._load("table", self._room(columns), self.sequences), slots, axis=1)
        rows = arange(as_size(self._room(columns)))[:, None]
        is_own = rows * self.page < lengths[None, :]
        if kept is not None:
            is_shared = (take(owners, table) > 1) * 1
            is_own &= (rows + is_shared) * self.page >= kept + is_shared
        losses = arange(as_size(used)) * 0
        losses = put(losses, where(is_own, table, as_size(used)), is_own * 1, "add")
        is_free = (losses > 0) & (owners == losses)
        return losses, is_free, asarray([pool[0], pool[1] + total(is_free * 1)])

    def _freed(self, is_free: Tensor) -> Tensor:
        """What "free" becomes when these pages wait for another owner."""
        used = as_dim(is_free.shape[0])
        order = cumulative_sum(is_free * 1) + (self._load("pool", 2)[1] - 1)
        waiting = self._load("free", used)
        return put(waiting, where(is_free, order, as_size(used)), arange(as_size(used)))

    def _cut(self, slots: Tensor, before: Tensor, kept: Tensor) -> dict[str, Tensor]:
        """What variables become when sequences keep so many of their tokens. One whose last page
        is not whole, and another's too, gets a page of its own with the same, since it will write
        to that. All room is made before anything is written."""
        losses, is_free, pool = self._losses(slots, before, kept)
        room = self._room(maximum(ceildiv(self._end(before), self.page), 1))
        table = self._load("table", room, self.sequences)
        column = where(kept > 0, (kept - 1) // self.page, 0)
        old = take(reshape(table, (-1,)), column * self.sequences + slots)
        owners = self._load("owners", as_dim(losses.shape[0]))
        moves = ((kept % self.page > 0) & (take(owners, old) > 1)) * 1
        used, after = self._allocate(total(moves), pool)
        owners = self._load("owners", self.pages or used)
        pools = self._loaded(self.pages or used)
        waiting = self._freed(is_free)
        new = self._page_numbers(pool, cumulative_sum(moves) - moves, waiting)
        at = where(moves > 0, new, as_size(self.pages or used))
        owners = put(owners, arange(losses.shape[0]), losses * -1, "add")
        table = put_at(table, (where(moves > 0, column, as_size(room)), slots), new)
        stored = {"pool": after, "free": waiting, "owners": put(owners, at, moves), "table": table}
        return stored | {key: put(each, at, take(each, old, axis=0)) for key, each in pools.items()}

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
        owners = put(owners, arange(losses.shape[0]), losses * -1, "add")
        owners = put(owners, where(is_own, own, as_size(self.pages or used)), is_own * 1, "add")
        table = where(arange(self.sequences)[None, :] == target, own[:, None], table)
        return old, new, pools, {"pool": after, "free": waiting, "owners": owners, "table": table}


class Step:
    """Tokens that are being added to sequences. `positions` i64[rows, tokens] are their places."""

    def __init__(self, owner: Cache, tokens: Dim, slots: Tensor, counts: Tensor | None) -> None:
        self.cache, self.counts = owner, counts
        lengths = owner._load("length", owner.sequences)
        before = take(lengths, slots)
        after = before + (as_size(tokens) if counts is None else counts)
        end = owner._end(after)
        stored: dict[str, Tensor] = {}
        self._table = slots[:, None]
        if owner.layout == "ring":
            what = f"the number of tokens that '{owner.name}' gets at once"
            added = limit(greatest(after - before), owner.page - owner.window + 1, what)
            after = at_most(after, before + as_size(added))
            written = owner._load("written", owner.sequences)
            most = take(written, slots)
            stored["written"] = put(written, slots, where(most < after, after, most))
        if owner.layout == "paged":
            self._table, self._pools, stored = owner._add(slots, before, after, tokens, end)
        else:
            self._pools = owner._loaded(owner.pages or 0)
        stored["length"] = put(lengths, slots, at_most(after, as_size(end)))
        owner._store(stored)
        self.positions = before[:, None] + arange(as_size(tokens))[None, :]

    def _tokens(self) -> Tokens:
        """In the block that is being traced."""
        b, own, (rows, tokens) = current().builder, self.cache, map(as_dim, self.positions.shape)
        flat, ring = value_of(reshape(self.positions, (-1,))), own.layout == "ring"
        is_line = own.layout == "linear" or (ring and tokens == 1)
        if is_line and own.sequences == rows == 1 and self.counts is None:
            first = value_of(reshape(self.positions[:, :1], ()))
            return Line(b, flat, first, own.page if ring else 0)
        counts = None if self.counts is None else value_of(self.counts)
        return Tokens(b, Grid(b, rows, tokens, counts), flat, value_of(self._table), ring)

    @placed
    def append(self, k: Any, v: Any, layer: int = 0) -> None:
        """Puts keys [rows, tokens, heads, dim] and values [rows, tokens, heads, value_dim] into the
        cache of a layer."""
        rows, tokens = self.positions.shape, self._tokens()
        for key, x, length in zip(self._keys(layer), (k, v), self.cache.dims, strict=True):
            x, wanted = given(value_of(x)), (*rows, self.cache.heads, length)
            if x.shape != wanted:
                raise UnsupportedNode(f"{key} is {x}, expected the shape {shown(wanted)}")
            x = value_of(reshape(x, (-1, *x.shape[2:])))
            pool = self._pools[key] = given(tokens.put(value_of(self._pools[key]), x)[0])
            self.cache._store({key: pool})

    @placed
    def attend(
        self, q: Any, layer: int = 0, *, scale: float | None = None, cap: float = 0
    ) -> Tensor:
        """Attention of queries [rows, tokens, n * heads, dim] over what they see of the cache of a
        layer, each its own token too: [rows, tokens, n * heads, value_dim]; 0 where there is no
        token. `scale`: of scores, else dim ** -0.5; `cap`: they become cap * tanh(score / cap)."""
        own, q = self.cache, given(value_of(q))
        rows, tokens = self.positions.shape
        if len(q.shape) != 4 or q.shape[:2] != (rows, tokens) or q.shape[3] != own.dims[0]:
            wanted = shown((rows, tokens, f"n*{own.heads}", own.dims[0]))
            raise UnsupportedNode(f"q is {q}, expected the shape {wanted}")
        if not isinstance(q.shape[2], int) or q.shape[2] % own.heads:
            raise UnsupportedNode(f"q is {q}, whose heads are no multiple of {own.heads}")
        scale = 1 / math.sqrt(own.dims[0]) if scale is None else scale
        k, v = (value_of(self._pools[key]) for key in self._keys(layer))
        flat = value_of(reshape(astype(q, "f32"), (-1, *q.shape[2:])))
        seen = self._tokens().attend(
            flat, k, v, scale=float(scale), window=own.window, cap=float(cap)
        )
        y = given(seen)
        return astype(reshape(y, (rows, tokens, q.shape[2], own.dims[1])), q.dtype)

    def _keys(self, layer: int) -> tuple[str, str]:
        if not 0 <= layer < self.cache.layers:
            raise UnsupportedNode(f"layer {layer} of '{self.cache.name}' with {self.cache.layers}")
        return f"{layer}.k", f"{layer}.v"
