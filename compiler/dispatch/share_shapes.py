"""Lets kernels that run once, when a program is made, serve weights of several shapes.

Packing is the same for all matrices of a model, but for their sizes. Another kernel costs a C
compiler more than numbers instead of constants cost a kernel that runs once: dims in which entries
of `init` differ become symbols. Sizes that are in one proportion everywhere are multiples of one
symbol, or of the product of two, so that what fits - whole lines, equal counts - stays known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from math import gcd

from ingot.compiler.dispatch.group import INDEX_OPS, is_elementwise
from ingot.compiler.dispatch.ops import Call, entries_of
from ingot.compiler.dispatch.outline import region_key
from ingot.compiler.dispatch.own_sizes import own_sizes
from ingot.compiler.graph.init_functions import is_init
from ingot.compiler.graph.ops import infer_types
from ingot.compiler.ir import Function, Module, Op, Region, TensorType, Type, clone_region, walk
from ingot.compiler.ir.attributes import RuleError, rows_of
from ingot.compiler.ir.dims import Dim, substitute, symbol

__all__ = ["share_shapes", "shared_entries"]

_Sizes = tuple[int, ...]
"""A dim of each of some entries."""


def share_shapes(module: Module) -> Module:
    """Make entries of `init` that differ in dims alone one entry; returns the module."""
    others = {
        op.attributes.entry
        for function in module.functions.values()
        if not is_init(function.name)
        for op in walk(function)
        if isinstance(op.attributes, Call)
    }

    def is_shared(entry: Function) -> bool | None:
        return (entry.name not in others and not entry.symbols and _is_map(entry)) or None

    return shared_entries(module, is_shared)


def shared_entries(
    module: Module, kind: Callable[[Function], object], of_any_size: bool = False
) -> Module:
    """Make entries of a kind, which is not None, one entry if they differ in dims alone; returns
    the module. Their symbols have the same bounds, unless they may stand for sizes that they are in
    (`of_any_size`); no call has alternatives to them."""
    calls: dict[str, list[Op]] = {}
    special: set[str] = set()
    for function in module.functions.values():
        for op in walk(function):
            if isinstance(op.attributes, Call):
                name, others = op.attributes.entry, op.attributes.alternatives
                calls.setdefault(name, []).append(op)
                special.update(each for other in others for each in (name, other.entry))
    alike: dict[object, list[Function]] = {}
    sizes_of: dict[str, list[Dim]] = {}  # by entry
    for entry in entries_of(module):
        if entry.name in special or kind(entry) is None:
            continue
        if of_any_size:
            entry, sizes_of[entry.name] = own_sizes(entry)
        text = region_key(_with_dims(entry.body, lambda _: 0))
        key = kind(entry), tuple(entry.symbols.items()), text
        alike.setdefault(key, []).append(entry)
    for entries in alike.values():
        sizes = _Symbols(len(entries[0].symbols))
        body = _shared(entries, sizes) if len(entries) > 1 else None
        if body is None:
            continue
        first = entries[0].name
        bounds = {name: (min(each), max(each)) for name, each in sizes.named.items()}
        symbols = {**entries[0].symbols, **bounds}
        module.functions[first] = replace(entries[0], body=body, symbols=symbols)
        for place, entry in enumerate(entries):
            dims = tuple(each[place] for each in sizes.named.values())
            for op in calls[entry.name]:
                given = Call.of(op).dims
                if of_any_size:
                    values = dict(zip(entry.symbols, given, strict=True))
                    given = tuple(substitute(each, values) for each in sizes_of[entry.name])
                op.attributes = Call(first, (*given, *dims))
            if place:
                del module.functions[entry.name]
    return module


def _is_map(entry: Function) -> bool:
    """Whether it moves elements and computes with single ones alone, so that its kernel is made
    for all sizes."""
    return all(
        op.name in ("constant", "return", *INDEX_OPS) or (is_elementwise(op) and not op.regions)
        for op in entry.block.ops
    )


def _with_dims(region: Region, change: Callable[[int], Dim]) -> Region:
    """A copy of a region without inner ones, with `change` made of all dims of its types and
    attributes, in order."""

    def changed(dims: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(change(dim) if isinstance(dim, int) else dim for dim in dims)

    def type_of(type: Type) -> Type:
        return replace(type, shape=changed(type.shape)) if isinstance(type, TensorType) else type

    copy = clone_region(region, {}, type_of)
    for op in copy.block.ops:
        own, rows = vars(op.attributes), rows_of(type(op.attributes))
        dims = {name: changed(each) for name, each in own.items() if rows[name].kind.name == "dims"}
        one = [name for name in own if rows[name].kind.name == "dim"]
        if dims or one:
            single = {name: changed((own[name],))[0] for name in one}
            op.attributes = replace(op.attributes, **dims, **single)
    return copy


def _dims_of(region: Region) -> list[int]:
    found: list[int] = []

    def note(dim: int) -> Dim:
        found.append(dim)
        return dim

    _with_dims(region, note)
    return found


class _Symbols:
    """The symbols that sizes are multiples of, behind the first ones, which entries have. `named`:
    what they are in each entry."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.named: dict[str, _Sizes] = {}

    def dim(self, sizes: _Sizes) -> Dim:
        """A dim with these values."""
        factor = gcd(*sizes)
        if len({*sizes}) == 1:
            return sizes[0]
        least = tuple(size // factor for size in sizes)
        for name, values in self.named.items():
            if values == least:
                return symbol(name) * factor
        for (a, x), (b, y) in combinations_with_replacement(self.named.items(), 2):
            if tuple(map(int.__mul__, x, y)) == least:
                return symbol(a) * symbol(b) * factor
        name = f"s{self.first + len(self.named)}"
        self.named[name] = least
        return symbol(name) * factor


def _shared(entries: Sequence[Function], symbols: _Symbols) -> Region | None:
    """The body of an entry for the dims of all; None where these are known to fit only as numbers,
    or where some are 1 or 0, which ops may treat in another way."""
    columns = list(zip(*(_dims_of(entry.body) for entry in entries), strict=True))
    varying = {sizes for sizes in columns if len({*sizes}) > 1}
    if any(min(sizes) < 2 for sizes in varying):
        return None
    # Products come behind their factors.
    for sizes in sorted(varying, key=lambda each: (sum(each), each)):
        symbols.dim(sizes)
    dims = iter([symbols.dim(sizes) for sizes in columns])
    body = _with_dims(entries[0].body, lambda dim: next(dims))
    return body if all(map(_holds, body.block.ops)) else None


def _holds(op: Op) -> bool:
    """Whether the op's results are those of its rule."""
    types = [operand.type for operand in op.operands]
    try:
        made = infer_types(op.name, types, op.attributes)
    except RuleError:
        return False
    return made == tuple(result.type for result in op.results)
