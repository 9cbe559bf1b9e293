"""Deletes ops whose results nobody uses, unless they or ops inside write state or check.

An op also lives for the sake of a symbol that it defines and that a living op uses, and a loop
if it may never end: the call then runs into its limit, as the source says.
"""

from __future__ import annotations

from ingot.compiler.graph.control.loops import may_not_end
from ingot.compiler.graph.effects import effects_of
from ingot.compiler.graph.ops import defined_symbols
from ingot.compiler.graph.symbols import inner_symbols, symbols_used
from ingot.compiler.ir import Block, Module, Op, Value, walk

__all__ = ["drop_unread_constants", "eliminate_dead_code"]


def eliminate_dead_code(module: Module) -> Module:
    """Delete dead ops of every function, regions included; returns the module."""
    for function in module.functions.values():
        symbols: set[str] | None = set() if inner_symbols(function) else None
        for block in function.body.blocks:
            _clean(block, set(), symbols)
    return module


def drop_unread_constants(block: Block) -> None:
    """What importers have read of a source and then computed with by themselves."""
    read = {operand for op in walk(block) for operand in op.operands}
    block.ops = [op for op in block.ops if op.name != "constant" or op.results[0] in read]


def _clean(block: Block, used: set[Value], symbols: set[str] | None) -> None:
    """Keep the terminator and what it needs; `used` learns every value that is needed.

    `symbols` learns the symbols that are needed; it is None where no op defines any.
    """
    kept = []
    for op in reversed(block.ops):
        if op is not block.ops[-1] and not _is_needed(op, used, symbols):
            op.results.clear()  # they refer to each other: memory is free now, not at a collection
            continue
        used.update(op.operands)
        for region in op.regions:
            for inner in region.blocks:
                _clean(inner, used, symbols)
        if symbols is not None:  # of what is left of it
            symbols.update(symbols_used(op))
        kept.append(op)
    block.ops = kept[::-1]


def _is_needed(op: Op, used: set[Value], symbols: set[str] | None) -> bool:
    if not used.isdisjoint(op.results):
        return True
    if symbols and any(name in symbols for name in defined_symbols(op)):
        return True
    return bool(effects_of(op) - {"read"}) or (bool(op.regions) and may_not_end(op))
