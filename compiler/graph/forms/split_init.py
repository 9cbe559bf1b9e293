"""Moves everything that depends on constants and parameters only out of the functions.

What is small enough is baked: evaluated here and embedded as a constant. The rest goes to
the function `init`, which runs once when a program is created; functions read its results
as `global`. Broadcasts and iotas stay where they are, since kernels make them from nothing.
Weights of loop bodies and branches move too, so that a step only reads them. What several
functions compute in the same way from equal constants is made once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.eliminate_common_subexpressions import (
    attribute_key,
    eliminate_common_subexpressions,
)
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.ops import Global
from ingot.compiler.graph.rewriter import defined_by, literal_of_value, tensor_ops, weights_of
from ingot.compiler.graph.weight_arrays import WeightArrays
from ingot.compiler.ir import Block, Function, Literal, Module, Op, Region, Value, clone_op, walk

__all__ = ["split_init"]

_GROWTH = 1.25
"""How much longer than what it is made from a baked constant may be: a choice between the file's
length and the time of a load, as `_SMALL` is."""

_SMALL = 1 << 16
"""Bytes that are always baked, unless they are made from packed elements or many codes."""

_MANY = 1 << 12
"""So many bytes are a weight, whose codes make the shorter file, and fewer are not worth a kernel
of `init`."""

_STAYING = frozenset({"broadcast", "iota", "constant", "global"})
"""Ops that stay in `main`: their results are large only on paper, or those of `init`."""

_LOOKUPS = frozenset({"take", "gather", "dynamic_slice"})
"""Ops of `main` that read packed elements where they lie; for others `init` unpacks them."""


def split_init(module: Module, bake: bool = True) -> Module:
    """Move the weights of every function to `init`; returns the module.

    Without `bake` nothing is evaluated here: tests run every program both ways.
    """
    functions = {name: each for name, each in module.functions.items() if each.exported}
    frontiers = {name: _frontier(each, weights_of(each)) for name, each in functions.items()}
    return _split(module, frontiers, bake)


def _split(module: Module, frontiers: Mapping[str, Sequence[Value]], bake: bool) -> Module:
    """Move these values of functions to `init`."""
    identities = _Identities()
    baked: dict[int, Literal] = {}
    indices: dict[int, int] = {}  # of globals
    init = module.functions.pop("init", None)
    body = list(init.block.ops[:-1]) if init else []
    results = list(init.block.terminator.operands) if init else []
    first = len(results)
    for name, frontier in frontiers.items():
        function = module.functions[name]
        moved: list[Value] = []
        made: list[Op] = []
        replaced: dict[Value, Value] = {}
        baker = _Baker(function) if bake else None
        for value in frontier:
            identity = identities.of(value)
            if baker is not None and identity not in baked and identity not in indices:
                literal = baker.bake(value)
                if literal is not None:
                    baked[identity] = literal
            builder = Builder(made, value.owner.location if isinstance(value.owner, Op) else "")
            if identity in baked:
                replaced[value] = builder.constant(baked[identity])
            else:
                if identity not in indices:
                    indices[identity] = first + len(indices)
                    moved.append(value)
                replaced[value] = _read_global(value, indices[identity], builder)
            replaced[value].name = value.name
        results += _copy_to_init(function, moved, body, results)
        _replace(function, replaced, made)
    if results:
        block = Block()
        block.ops = body
        Builder(block).return_(*results)
        init = module.add(Function("init", Region([block]), exported=False))
        eliminate_common_subexpressions(Module({"init": init}))
    return eliminate_dead_code(module)


def _replace(function: Function, replaced: dict[Value, Value], made: list[Op]) -> None:
    """Put `made` in front of the function's ops, and its values where they are replaced."""
    ops = function.block.ops
    function.block.ops = made + [op for op in ops if replaced.keys().isdisjoint(op.results)]
    for op in walk(function):
        if not replaced.keys().isdisjoint(op.operands):
            op.operands = [replaced.get(operand, operand) for operand in op.operands]


class _Identities:
    """Numbers that are equal for values computed in the same way from the same constants."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.known: dict[Value, int] = {}

    def of(self, value: Value) -> int:
        waiting = [value]
        while waiting:
            op = waiting[-1].owner
            assert isinstance(op, Op)
            missing = [operand for operand in op.operands if operand not in self.known]
            if missing:
                waiting += missing
                continue
            for place, result in enumerate(op.results):
                key = (place, self._key(op))
                self.known[result] = self.numbers.setdefault(key, len(self.numbers))
            waiting.pop()
        return self.known[value]

    def _key(self, op: Op) -> Any:
        if op.regions:
            return id(op), op
        operands = tuple(self.known[operand] for operand in op.operands)
        return op.name, operands, attribute_key(op.attributes)


def _frontier(main: Function, weights: set[Value]) -> list[Value]:
    """The weights that some op computes and that live ops outside `init` read, in order. Results
    of `init` are there already."""
    live: set[Value] = set()
    wanted: dict[Value, None] = {}
    outside = set(main.block.ops)  # of loops and branches
    for op in reversed(list(tensor_ops(main.block))):
        if op.results and not any(result in live for result in op.results):
            continue
        for operand in op.operands:
            owner = operand.owner
            inside = isinstance(owner, Op) and owner.name in _STAYING
            inside = inside or (op in outside and _is_looked_up(op, operand))
            if operand in weights and isinstance(owner, Op) and not inside:
                wanted[operand] = None
            else:
                live.add(operand)
    return list(wanted)[::-1]


def _is_unpacked(value: Value) -> bool:
    return defined_by(value, "unpack") is not None


def _is_looked_up(op: Op, operand: Value) -> bool:
    """Whether the op reads a few elements of a packed operand, and so where they lie packed."""
    return operand is op.operands[0] and op.name in _LOOKUPS and _is_unpacked(operand)


def _read_global(value: Value, index: int, builder: Builder) -> Value:
    type = tensor_type(value)
    return builder.value("global", index=index, dtype=type.dtype, shape=type.shape)


def _copy_to_init(
    main: Function, results: list[Value], body: list[Op], made: Sequence[Value]
) -> list[Value]:
    """Append copies of the ops that compute `results` to `body`, which has `made` the globals; the
    results there."""
    needed: set[Value] = set(results)
    ops: list[Op] = []
    for op in reversed(list(tensor_ops(main.block))):
        if not needed.isdisjoint(op.results):
            needed.update(op.operands)
            ops.append(op)
    values = {op.result: made[Global.of(op).index] for op in ops if op.name == "global"}
    body.extend(clone_op(op, values) for op in reversed(ops) if op.name != "global")
    return [values[value] for value in results]


class _Baker:
    """Evaluates weights, as far as the rules above allow."""

    def __init__(self, main: Function) -> None:
        self.arrays = WeightArrays(main)

    def bake(self, value: Value) -> Literal | None:
        """The value as a literal; None if it must be computed at load."""
        type = tensor_type(value)
        count = int(np.prod(type.shape, dtype=np.float64))  # type: ignore[arg-type]
        length = count * type.dtype.bytes
        sources = self.sources(value)
        literals = [literal_of_value(each) for each in sources]
        kept = sum(each.nbytes for each in literals if each is not None)
        codes = [each for each in literals if each is not None and each.dtype.bits == 8]
        is_coded = length > _MANY and any(2 * each.size > count for each in codes)
        small = length <= _SMALL and not is_coded and not any(map(_is_unpacked, sources))
        if not small and length > _GROWTH * kept:
            return None
        later = None if small else self.arrays.later(value)
        array = self.arrays.of(value) if later is None else None
        stored = array if later is None else later
        return None if stored is None else Literal(stored, type.dtype)

    def sources(self, value: Value) -> set[Value]:
        """The value, and all that it is made from."""
        seen: set[Value] = set()
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if each not in seen and isinstance(each.owner, Op):
                seen.add(each)
                waiting.extend(each.owner.operands)
        return seen
