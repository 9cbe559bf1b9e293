"""Joins what the branches of an `if` or `case` give, as structures.

Tensors of branches may differ in dims. Where they differ in rank, no type has them all: the
result is `Forked`, and each layer that reads it is lowered once for every branch, in branches
of the same choice, until the ranks are one again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from ingot.compiler.frontends.onnx.node import Node, shape_of, unsupported
from ingot.compiler.frontends.onnx.structures import (
    Flow,
    Forked,
    Structure,
    common_flow,
    flow_of,
    put_together,
    take_apart,
)
from ingot.compiler.graph.control.build_control import join_branches
from ingot.compiler.graph.symbols import inner_symbols
from ingot.compiler.ir import Block, Region, TensorType, Value, dims
from ingot.compiler.ir.dims import Dim, symbols_of

__all__ = ["alternative", "join_structures", "refuse_branches"]

Results = Sequence[Structure | None]


def join_structures(
    node: Node,
    name: str,
    selector: Value,
    branches: Sequence[tuple[Node, Block]],
    results: Sequence[Results],
) -> tuple[Structure | None, ...]:
    """The results of an `if` or `case` whose branches were lowered by these nodes into these
    blocks, and gave `results`; None where they gave none."""
    counts = [len(each) for each in results]
    texts = " and ".join(map(str, counts))
    unsupported(len(set(counts)) > 1, f"its branches have {texts} outputs: fix the model")
    columns = list(zip(*results, strict=True))
    forked = [_have_several_ranks(column) for column in columns]
    flows = [
        None if is_forked else _common(column)
        for column, is_forked in zip(columns, forked, strict=True)
    ]
    for place, (inner, _) in enumerate(branches):
        values: list[list[Value]] = []
        for column, flow, is_forked in zip(columns, flows, forked, strict=True):
            given = column[place]
            if is_forked:
                assert isinstance(given, Value)
                values.append(_flattened(inner, given, _greatest_rank(column)))
            elif flow is not None and given is not None:
                values.append(take_apart(given, flow, inner.builder))
        inner.builder.yield_(*chain.from_iterable(values))
    regions = [Region([block]) for _, block in branches]
    fresh = node.fresh_symbols(node.proto.output[0])
    joined = iter(join_branches(node.builder, name, selector, regions, fresh))
    made: list[Structure | None] = []
    for column, flow, is_forked in zip(columns, flows, forked, strict=True):
        if is_forked:
            flat, *sizes = (next(joined) for _ in range(_greatest_rank(column) + 1))
            shapes = [
                _known_outside(shape_of(each), region, sizes)
                for each, region in zip(column, regions, strict=True)
            ]
            made.append(Forked(node.builder.location, name, selector, flat, tuple(shapes)))
        else:
            made.append(None if flow is None else put_together(flow, joined))
    return tuple(made)


def alternative(
    structure: Structure | None, fork: Forked, place: int, inner: Node
) -> Structure | None:
    """What the structure is in branch number `place` of the choice that `fork` depends on."""
    if not isinstance(structure, Forked) or structure.selector is not fork.selector:
        return structure
    name = inner.proto.output[0]
    shape = [
        inner.define_size(dim, f"{name}_{axis}", f"dim {axis}")
        for axis, dim in enumerate(structure.shapes[place])
    ]
    return inner.reshape(structure.flat, shape)


def refuse_branches(
    fork: Forked,
    branches: Sequence[tuple[Node, Block]],
    results: list[Sequence[Any]],
    failed: Sequence[bool],
) -> bool:
    """Whether a call can do without the branches that `failed` to be lowered, since another was
    lowered to tensors, for another rank: a call that takes one of them ends with an error."""
    if all(failed) or not any(failed):
        return False
    good, ranks = failed.index(False), [len(shape) for shape in fork.shapes]
    if any(bad and rank == ranks[good] for bad, rank in zip(failed, ranks, strict=True)):
        return False
    own = inner_symbols(branches[good][1])
    types = [each.type for each in results[good] if isinstance(each, Value)]
    tensors = [type for type in types if isinstance(type, TensorType)]
    if len(tensors) < len(results[good]):
        return False
    for place, (inner, block) in enumerate(branches):
        if failed[place]:
            block.ops.clear()
            layer = inner.builder.location
            rank = inner.constant(ranks[place], "i64")
            inner.require(rank, ranks[good], f"the rank of what layer '{layer}' is given")
            results[place] = [
                inner.full(
                    0, each.dtype, [0 if symbols_of(dim) & own else dim for dim in each.shape]
                )
                for each in tensors
            ]
    return True


def _have_several_ranks(column: Results) -> bool:
    types = [each.type for each in column if isinstance(each, Value)]
    tensors = [type for type in types if isinstance(type, TensorType)]
    alike = len(tensors) == len(column) and len({type.dtype for type in tensors}) == 1
    return alike and len({type.rank for type in tensors}) > 1


def _greatest_rank(column: Results) -> int:
    return max(len(shape_of(each)) for each in column if isinstance(each, Value))


def _common(column: Results) -> Flow | None:
    """How all are taken apart. Tensors that do not go together are the op's own matter."""
    flows = [flow_of(each) for each in column if each is not None]
    if not flows:
        return None
    flow = flows[0]
    for other in flows[1:]:
        if not (isinstance(flow, TensorType) and isinstance(other, TensorType)):
            flow = common_flow(flow, other)
    return flow


def _flattened(inner: Node, x: Value, rank: int) -> list[Value]:
    """The elements in a row, and the dims."""
    shape = shape_of(x)
    sizes = [inner.size(dim) for dim in (*shape, *[1] * (rank - len(shape)))]
    return [inner.reshape(x, (dims.product(shape),)), *sizes]


def _known_outside(
    shape: Sequence[Dim], region: Region, sizes: Sequence[Value]
) -> tuple[Dim | Value, ...]:
    """The dims, as one of `sizes` where only the branch knows them."""
    own = inner_symbols(region)
    both = zip(shape, sizes, strict=False)
    return tuple(size if symbols_of(dim) & own else dim for dim, size in both)
