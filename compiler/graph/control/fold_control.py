"""Removes branches that are decided, loops of no or one step, and values without need.

A carried value that keeps its first value, that counts as another one does, or that only
its own next value reads is no longer carried; a result of a branch that nobody reads, or
that is one value from outside whichever branch runs, is no result. What a region used of
them it takes from outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.loops import (
    Induction,
    body_of,
    induction_of,
    known_integer,
    trip_count,
)
from ingot.compiler.graph.effects import effects_of
from ingot.compiler.graph.ops import CONTROL, Control, defined_symbols
from ingot.compiler.graph.rewriter import defined_by, literal_of_value, rewrite, splat_of
from ingot.compiler.graph.symbols import inner_symbols, substitute_symbols
from ingot.compiler.ir import (
    Block,
    Function,
    Module,
    Op,
    Region,
    TensorType,
    Value,
    count_uses,
    tensor_type,
    walk,
)
from ingot.compiler.ir.dims import Dim, substitute, symbol, symbols_of

__all__ = ["fold_control"]


def fold_control(module: Module) -> Module:
    """Fold the branches and loops of every function; returns the module."""
    for function in module.functions.values():
        if any(op.name in CONTROL for op in walk(function)):
            folder = _Folder()
            rewrite(function.block, folder.rule)
            substitute_symbols(function, _resolved(folder.symbols))
            _settle_symbols(function)
            _drop_unused(function)
    return module


def _resolved(symbols: Mapping[str, Dim]) -> dict[str, Dim]:
    """The dims with dims in place of those symbols that they name themselves."""
    resolved = dict(symbols)
    while any(symbols_of(dim) & resolved.keys() for dim in resolved.values()):
        resolved = {name: substitute(dim, resolved) for name, dim in resolved.items()}
    return resolved


def _settle_symbols(function: Function) -> None:
    """Put dims for the symbols of branches whose dims are equal by now."""
    while True:
        settled: dict[str, Dim] = {}
        for op in walk(function):
            if op.name in ("if", "case") and defined_symbols(op):
                settled.update(_equal_dims(op))
                kept = (name for name in defined_symbols(op) if name not in settled)
                op.attributes = replace(Control.of(op), symbols=tuple(kept))
        if not settled:
            return
        substitute_symbols(function, _resolved(settled))


def _equal_dims(op: Op) -> dict[str, Dim]:
    """The symbols of a branch that are one dim, known in front of it, whichever region runs."""
    found: dict[str, Dim] = {}
    names = {symbol(name): name for name in defined_symbols(op)}
    inner = inner_symbols(op) if names else set()
    yielded = [region.block.terminator.operands for region in op.regions]
    for result, values in zip(op.results, zip(*yielded, strict=True), strict=True):
        types = [each.type for each in (result, *values)]
        shapes = [type.shape for type in types if isinstance(type, TensorType)]
        for dim, first, *rest in zip(*shapes, strict=True):
            if dim in names and set(rest) <= {first} and not symbols_of(first) & inner:
                found[names[dim]] = first
    return found


def _drop_unused(function: Function) -> None:
    """Drop results that nobody reads, until none is left; what stands for them is not read."""
    while True:
        uses = count_uses(function)

        def rule(op: Op, builder: Builder, uses: dict[Value, int] = uses) -> list[Value] | None:
            if op.name not in CONTROL:
                return None
            unused = {place for place, each in enumerate(op.results) if not uses.get(each)}
            unused = {place for place in unused if not _has_fresh_dims(op, op.results[place])}
            if op.name == "while":
                values = {place: op.operands[place] for place in _unread(op, unused)}
            else:
                values = dict.fromkeys(unused, op.operands[0])
            results = _without(op, values, builder)
            for old, new in zip(op.results, results or (), strict=False):
                uses.setdefault(new, uses.get(old, 0))
            return results

        if not rewrite(function.block, rule):
            return


def _has_fresh_dims(op: Op, value: Value) -> bool:
    """Whether the op defines a dim of the value."""
    return not _dim_names(value).isdisjoint(defined_symbols(op))


def _dim_names(value: Value) -> set[str]:
    """The symbols in the dims of a tensor; a list tells its dims when it is read."""
    if not isinstance(value.type, TensorType):
        return set()
    return {name for dim in value.type.shape for name in symbols_of(dim)}


class _Folder:
    """`symbols` learns the dims of what was inlined, for the symbols that stood for them."""

    def __init__(self) -> None:
        self.symbols: dict[str, Dim] = {}

    def rule(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.name == "while":
            return self.known_steps(op, builder) or _fixed_values(op, builder)
        if op.name in ("if", "case"):
            chosen = _chosen_branch(op)
            if chosen is not None:
                return self.inline(op, op.regions[chosen].block, builder)
            results = _as_if(op, builder) or _common_results(op, builder)
            return None if results is None else self.standing_for(op, results)
        return None

    def inline(self, op: Op, block: Block, builder: Builder) -> Sequence[Value]:
        """The ops of a block in place of the op; the block has no arguments left."""
        builder.ops.extend(block.ops[:-1])
        return self.standing_for(op, block.terminator.operands)

    def standing_for(self, op: Op, values: Sequence[Value]) -> list[Value]:
        """Learn the symbols that the op would have defined from what its results are."""
        names = set(defined_symbols(op))
        for old, new in zip(op.results, values, strict=True):
            if not isinstance(old.type, TensorType) or not isinstance(new.type, TensorType):
                continue
            for symbolic, dim in zip(old.type.shape, new.type.shape, strict=True):
                if symbolic != dim:
                    for name in symbols_of(symbolic) & names:
                        self.symbols[name] = dim
        return list(values)

    def known_steps(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """A loop that runs no step, or one."""
        condition, body = op.regions[0].block, body_of(op)
        if effects_of(condition.terminator) or any(map(effects_of, condition.ops)):
            return None
        never = splat_of(condition.terminator.operands[0])
        steps = 0 if never is not None and not never else trip_count(op)
        if steps == 0:
            return self.standing_for(op, op.operands)
        if steps != 1 or defined_symbols(op):
            return None
        _substitute(body, dict(zip(body.arguments, op.operands, strict=True)))
        return self.inline(op, body, builder)


def _substitute(block: Block, values: Mapping[Value, Value]) -> None:
    for op in block.ops:
        for inner in walk(op):
            inner.operands = [values.get(operand, operand) for operand in inner.operands]


# Branches.


def _chosen_branch(op: Op) -> int | None:
    """The number of the region that will run, if that is known now."""
    count = len(op.regions)
    if count == 1:
        return 0
    if op.name == "if":
        predicate = splat_of(op.operands[0])
        return None if predicate is None else (0 if predicate else 1)
    index = known_integer(op.operands[0])
    if not isinstance(index, int):
        return None
    return index if 0 <= index < count else count - 1


def _as_if(op: Op, builder: Builder) -> Sequence[Value] | None:
    """A case by a boolean is an if; an if by `not p` is one by p."""
    (selector,) = op.operands
    name = "convert" if op.name == "case" else "not"
    inner = defined_by(selector, name)
    if inner is None or len(op.regions) != 2:
        return None
    predicate = inner.operands[0]
    if not tensor_type(predicate).dtype.is_boolean:
        return None
    return _again(op, "if", (predicate,), op.regions[::-1], op.results, builder).results


def _again(
    op: Op,
    name: str,
    operands: Sequence[Value],
    regions: Sequence[Region],
    results: Sequence[Value],
    builder: Builder,
) -> Op:
    """The op with other operands, regions and fewer results. What stands inside may have been
    folded, and the symbols that it defines be settled only when all is, so types are not asked."""
    types = [result.type for result in results]
    left = {name for each in results for name in _dim_names(each)}
    symbols = tuple(name for name in defined_symbols(op) if name in left)
    attributes = replace(Control.of(op), symbols=symbols)
    made = Op(name, operands, types, attributes, regions, op.location)
    builder.ops.append(made)
    return made


def _common_results(op: Op, builder: Builder) -> Sequence[Value] | None:
    """Results that are one value from outside, or equal constants, whichever branch runs."""
    inside = {value for region in op.regions for each in walk(region) for value in each.results}
    common: dict[int, Value] = {}
    yielded = [region.block.terminator.operands for region in op.regions]
    for place, values in enumerate(zip(*yielded, strict=True)):
        if all(value is values[0] for value in values) and values[0] not in inside:
            common[place] = values[0]
    return _without(op, common, builder)


# Loops.


def _fixed_values(op: Op, builder: Builder) -> Sequence[Value] | None:
    """Carried values that never change, or that count in step with another one."""
    body = body_of(op)
    fixed: dict[int, Value] = {}
    inside: dict[Value, Value] = {}
    counters: dict[Induction, int] = {}
    for place, (argument, following) in enumerate(
        zip(body.arguments, body.terminator.operands, strict=True)
    ):
        if _has_fresh_dims(op, argument):
            continue
        initial = op.operands[place]
        first, then = literal_of_value(initial), literal_of_value(following)
        if following is argument or (first is not None and first == then):
            fixed[place] = initial
            continue
        found = induction_of(op, place)
        if found is None:
            continue
        key = Induction(0, found.start, found.step)
        twin = counters.setdefault(key, place)
        if twin != place and op.results[twin].type == argument.type:
            fixed[place] = op.results[twin]
            for region in op.regions:
                arguments = region.block.arguments
                inside[arguments[place]] = arguments[twin]
    return _without(op, fixed, builder, inside)


def _unread(op: Op, unused: set[int]) -> set[int]:
    """The places among `unused` whose carried value nothing that matters reads."""
    condition, body = op.regions[0].block, body_of(op)
    read = set(range(len(op.operands))) - unused
    while True:
        needed = {
            operand for each in condition.ops for inner in walk(each) for operand in inner.operands
        }
        wanted = {body.terminator.operands[place] for place in read}
        needed |= _needed(body, wanted)
        more = {
            place
            for place in range(len(op.operands))
            if body.arguments[place] in needed or condition.arguments[place] in needed
        }
        if more <= read:
            return unused - read
        read |= more


def _needed(block: Block, wanted: set[Value]) -> set[Value]:
    """The values that ops of the block need for those in `wanted` and for their effects."""
    needed = set(wanted)
    for op in reversed(block.ops[:-1]):
        if any(result in needed for result in op.results) or effects_of(op) - {"read"}:
            needed.update(operand for inner in walk(op) for operand in inner.operands)
    return needed


def _without(
    op: Op,
    values: Mapping[int, Value],
    builder: Builder,
    inside: Mapping[Value, Value] | None = None,
) -> list[Value] | None:
    """The op without the results in `values`, which stand for them; None if there are none.

    In the regions of a loop they also stand for the carried values, unless `inside` says
    what does.
    """
    if not values:
        return None
    kept = [place for place in range(len(op.results)) if place not in values]
    operands = list(op.operands)
    if op.name == "while":
        operands = [op.operands[place] for place in kept]
        for region in op.regions:
            block = region.block
            replaced = {block.arguments[place]: value for place, value in values.items()}
            _substitute(block, {**replaced, **(inside or {})})
            block.arguments = [block.arguments[place] for place in kept]
    ends = [body_of(op)] if op.name == "while" else [region.block for region in op.regions]
    for block in ends:
        terminator = block.terminator
        terminator.operands = [terminator.operands[place] for place in kept]
    left = [op.results[place] for place in kept]
    made = _again(op, op.name, operands, op.regions, left, builder)
    results = dict(zip(kept, made.results, strict=True))
    latest = {op.results[place]: value for place, value in results.items()}
    return [
        results[place] if place in results else latest.get(values[place], values[place])
        for place in range(len(op.results))
    ]
