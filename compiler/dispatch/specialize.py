"""Adds entries for given values of symbols beside the entries for all values.

A `dispatch.call` whose entry uses a symbol with hot values gets `alternatives`: entries in
which the symbol is that number, so that their kernels know the size, and guards that say when
they may run. The VM takes the first whose guards hold, else the entry itself. Everything else
of the program stays as it is: the values' memory, the number of dispatches, the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from ingot.compiler.dispatch.ops import Alternative, Call, Entry, Guard
from ingot.compiler.graph.symbols import inner_symbols, substitute_symbols
from ingot.compiler.ir import Function, Module, Op, clone_region, tensor_type, walk
from ingot.compiler.ir.dims import symbol, symbols_of
from ingot.compiler.ir.renamed_dims import renamed_dims, sizes_of_symbols
from ingot.hal.errors import CompileError

__all__ = ["specialize"]

HotValues = Mapping[str, Sequence[int]]
_MOST = 16  # alternatives of a call; each is a comparison at run time and a kernel in the module


def specialize(module: Module, values: HotValues) -> Module:
    """Add alternatives for the `values` of symbols by name; returns the module.

    CompileError: no function has such a symbol, it cannot have such a value, or there would
    be too many alternatives.
    """
    values = _of_symbols(module, values)
    _check(module, values)
    for function in list(module.functions.values()):
        for op in walk(function):
            if op.name == "dispatch.call":
                _add_alternatives(op, module, values)
    return module


def _of_symbols(module: Module, values: HotValues) -> HotValues:
    """The values by symbol, of names that the import replaced too."""
    renamed = renamed_dims(module.functions.values())
    found: dict[str, Sequence[int]] = {}
    for name, numbers in values.items():
        if name not in renamed or not isinstance(numbers, (list, tuple)):
            found[name] = numbers
            continue
        for number in numbers:
            try:
                sizes = sizes_of_symbols({name: number}, renamed)
            except (TypeError, ValueError) as error:
                raise CompileError(f"specialize: {error}") from None
            for each, size in sizes.items():
                found[each] = [*found.get(each, ()), size]
    return found


def _check(module: Module, values: HotValues) -> None:
    known = _bounds_of_symbols(module)
    for name, numbers in values.items():
        if name not in known:
            has = f"its dims are: {', '.join(known)}" if known else "all its dims are fixed"
            raise CompileError(f"specialize: the program has no dim {name!r}; {has}")
        if not isinstance(numbers, (list, tuple)):
            raise CompileError(f"specialize: {name} = {numbers!r}, but must be a list of integers")
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int):
                raise CompileError(f"specialize: {name} = {number!r}, but must be an integer")
            if not any(_is_inside(number, bounds) for bounds in known[name]):
                low, high = known[name][0]
                end = "" if high is None else f" and at most {high}"
                raise CompileError(
                    f"specialize: {name} = {number}, but must be at least {max(low, 1)}{end}"
                )


def _bounds_of_symbols(module: Module) -> dict[str, list[tuple[int, int | None]]]:
    """The symbols of arguments and of data, by name, with their bounds in every function."""
    known: dict[str, list[tuple[int, int | None]]] = {}
    for function in module.functions.values():
        if not isinstance(function.attributes, Entry):
            shapes = (tensor_type(value).shape for value in function.arguments)
            used = {name for shape in shapes for dim in shape for name in symbols_of(dim)}
            for name in sorted({*function.symbols, *used, *inner_symbols(function)}):
                known.setdefault(name, []).append(function.symbols.get(name, (0, None)))
    return known


def _is_inside(number: int, bounds: tuple[int, int | None]) -> bool:
    low, high = bounds
    return number >= max(low, 1) and (high is None or number <= high)


def _add_alternatives(op: Op, module: Module, values: HotValues) -> None:
    call = Call.of(op)
    entry = module.functions[call.entry]
    dims = dict(zip(entry.symbols, call.dims, strict=True))
    hot = {
        inner: (dim, dict.fromkeys(values[name]))
        for inner, dim in dims.items()
        for name in values
        if dim == symbol(name)
    }
    # The most special come first: None stands for any value.
    choices = [[*numbers, None] for _, numbers in hot.values()]
    rows = sorted(product(*choices), key=lambda row: row.count(None))[:-1] if hot else []
    if len(rows) > _MOST:
        raise CompileError(
            f"specialize: a kernel of layer '{op.location}' would get {len(rows)} alternatives, "
            f"expected at most {_MOST}: give fewer values"
        )
    alternatives: list[Alternative] = []
    for row in rows:
        fixed = {name: number for name, number in zip(hot, row, strict=True) if number is not None}
        special = _special_entry(module, entry, fixed)
        others = tuple(dim for name, dim in dims.items() if name not in fixed)
        guards = tuple(Guard(hot[name][0], number) for name, number in fixed.items())
        alternatives.append(Alternative(special, others, guards))
    if alternatives:
        op.attributes = replace(call, alternatives=tuple(alternatives))


def _special_entry(module: Module, entry: Function, fixed: Mapping[str, int]) -> str:
    """The name of the entry with these symbols as numbers; it is made if it is not there."""
    name = "_".join([entry.name, *(f"{key}_{number}" for key, number in fixed.items())])
    if name not in module.functions:
        symbols = {key: each for key, each in entry.symbols.items() if key not in fixed}
        special = replace(
            entry,
            name=name,
            body=clone_region(entry.body, {}),
            symbols=symbols,
        )
        substitute_symbols(special, fixed)
        module.add(special)
    return name
