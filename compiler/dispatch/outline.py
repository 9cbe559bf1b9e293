"""Moves every dispatch region into an entry function of its own; equal regions share one.

An entry is a function over tensors whose symbols are renamed s0, s1, ... in the order in
which they occur, so that regions of different layers become equal. Its name, which becomes
the name of a C function, holds nothing of the source but letters, digits and underscores of
the caller's name. In the caller stays
`dispatch.call(operands){entry, dims}`: `dims` are the values of the entry's symbols.
Source layers do not make regions different; each call keeps its own.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from ingot.compiler.dispatch.group import CONTRACTIONS, REDUCTIONS
from ingot.compiler.dispatch.ops import Call, Entry
from ingot.compiler.graph.ops import defined_symbols
from ingot.compiler.ir import (
    Block,
    Function,
    Literal,
    Module,
    Op,
    Region,
    ScalarType,
    TensorType,
    Type,
    Value,
    clone_region,
    walk,
)
from ingot.compiler.ir.attributes import Record, leaves_of
from ingot.compiler.ir.dims import Dim, Expr, substitute, symbol, symbols_of

__all__ = ["outline", "region_key"]

_SILENT = frozenset({"constant", "broadcast", "reshape", "dim", "convert", "yield"})
_LONGEST_NAME = 48


def outline(module: Module) -> Module:
    """The module with entry functions behind the functions that call them."""
    outliner = _Outliner(module)
    result = Module(attributes=dict(module.attributes), variables=dict(module.variables))
    for function in module.functions.values():
        result.add(outliner.function(function))
    for entry in outliner.entries.values():
        result.add(entry)
    return result


class _Outliner:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.entries: dict[object, Function] = {}
        self.symbols: dict[str, tuple[int, int | None]] = {}

    def function(self, function: Function) -> Function:
        self.symbols = {**function.symbols, **_scalar_symbols(function)}
        body = Region([self._block(function.block, function, {})])
        return replace(function, body=body)

    def _block(self, old: Block, function: Function, values: dict[Value, Value]) -> Block:
        block = Block(argument.type for argument in old.arguments)
        values.update(zip(old.arguments, block.arguments, strict=True))
        for argument, new in zip(old.arguments, block.arguments, strict=True):
            new.name = argument.name
        for op in old.ops:
            if op.name == "dispatch.region":
                new_op = self._call(op, function, values)
            else:
                operands = [values[operand] for operand in op.operands]
                types = [result.type for result in op.results]
                bodies = [self._block(region.block, function, values) for region in op.regions]
                regions = [Region([body]) for body in bodies]
                new_op = Op(op.name, operands, types, op.attributes, regions, op.location)
            block.append(new_op)
            for result, new in zip(op.results, new_op.results, strict=True):
                new.name = result.name
                values[result] = new
        return block

    def _call(self, op: Op, function: Function, values: Mapping[Value, Value]) -> Op:
        entry, dims = self._entry(op, function)
        return Op(
            "dispatch.call",
            [values[operand] for operand in op.operands],
            [result.type for result in op.results],
            Call(entry.name, dims),
            location=op.location,
        )

    def _entry(self, op: Op, caller: Function) -> tuple[Function, tuple[Dim, ...]]:
        """The entry for a region, new or shared, and its symbols as the caller knows them."""
        region = op.regions[0]
        names = _symbols_in_order(region)
        renamed: dict[str, Dim] = {name: symbol(f"s{i}") for i, name in enumerate(names)}
        body = region
        if names:
            body = clone_region(
                region,
                {},
                lambda type: _rename_type(type, renamed),
                lambda leaf: substitute(leaf, renamed) if isinstance(leaf, Expr) else leaf,
            )
        symbols = {f"s{i}": self.symbols.get(name, (0, None)) for i, name in enumerate(names)}
        key = (tuple(symbols.items()), region_key(body))
        entry = self.entries.get(key)
        if entry is None:
            own = body if names else clone_region(region, {})
            entry = self._new_entry(own, symbols, caller, op.location)
            self.entries[key] = entry
        return entry, tuple(symbol(name) for name in names)

    def _new_entry(
        self,
        body: Region,
        symbols: dict[str, tuple[int, int | None]],
        caller: Function,
        location: str,
    ) -> Function:
        yielded = body.block.ops.pop()
        body.block.append(Op("return", yielded.operands))
        start = re.sub(r"[^A-Za-z0-9_]|^(?=\d)", "_", caller.name)[:_LONGEST_NAME]
        name = f"{start}_dispatch_{len(self.entries)}_{_summary(body.block)}"
        while name in self.module.functions:
            name += "_"
        return Function(
            name,
            body,
            exported=False,
            symbols=symbols,
            attributes=Entry(layer=location),
        )


def _scalar_symbols(function: Function) -> dict[str, tuple[int, int | None]]:
    """The bounds of symbols that are registers of the VM: those of their dtype."""
    found: dict[str, tuple[int, int | None]] = {}
    for op in walk(function):
        if op.name == "scalar.symbol":
            dtype = op.operands[0].typed(ScalarType).dtype
            found.update(dict.fromkeys(defined_symbols(op), (dtype.limits[0], None)))
    return found


def _summary(block: Block) -> str:
    """The ops that say what a kernel does, for its name: "dot_packed_add_max"."""
    names = [op.name for op in block.ops[:-1] if op.name not in _SILENT]
    main = [name for name in names if name in CONTRACTIONS or name in REDUCTIONS]
    names = list(dict.fromkeys([*main, *names])) or [block.ops[0].name]
    text = "_".join(names)
    while len(text) > _LONGEST_NAME:
        names.pop()
        text = "_".join(names)
    return text


def _symbols_in_order(region: Region) -> list[str]:
    """The symbols of a region, in the order of arguments, ops and attributes."""
    found: dict[str, None] = {}
    for argument in region.block.arguments:
        found.update(dict.fromkeys(_type_symbols(argument.type)))
    for op in region.block.ops:
        for leaf in leaves_of(op.attributes) if op.attributes.symbols_used else ():
            if isinstance(leaf, Expr):
                found.update(dict.fromkeys(sorted(symbols_of(leaf))))
        for result in op.results:
            found.update(dict.fromkeys(_type_symbols(result.type)))
    return list(found)


def _type_symbols(type: Type) -> Iterator[str]:
    if isinstance(type, TensorType) and type.symbols:
        for dim in type.shape:
            if isinstance(dim, Expr):
                yield from sorted(symbols_of(dim))


def _rename_type(type: Type, names: Mapping[str, Dim]) -> Type:
    if not isinstance(type, TensorType) or type.symbols.isdisjoint(names):
        return type
    return TensorType(type.dtype, tuple(substitute(dim, names) for dim in type.shape))


def region_key(region: Region, masked: Container[Op] = ()) -> tuple[object, ...]:
    """What makes two regions the same kernel: everything but names and locations, and what the
    constants `masked` are."""
    numbers: dict[Value, int] = {}
    parts: list[object] = []
    for block in region.blocks:
        for argument in block.arguments:
            numbers[argument] = len(numbers)
            parts.append(argument.type)
        for op in block.ops:
            for result in op.results:
                numbers[result] = len(numbers)
            parts.append(
                (
                    op.name,
                    tuple(numbers[operand] for operand in op.operands),
                    None if op in masked else _freeze(op.attributes),
                    tuple(result.type for result in op.results),
                    tuple(region_key(inner, masked) for inner in op.regions),
                )
            )
    return tuple(parts)


def _freeze(attribute: object) -> object:
    """The attribute as a key: 1, 1.0 and True are different, NaN equals itself."""
    if isinstance(attribute, Record):
        return type(attribute), *map(_freeze, vars(attribute).values())
    if isinstance(attribute, tuple):
        return tuple(map(_freeze, attribute))
    if isinstance(attribute, (bool, int, float)):
        return (type(attribute).__name__, repr(attribute))
    if isinstance(attribute, Literal):
        return (attribute.dtype.name, attribute.array.shape, attribute.array.tobytes())
    return attribute
