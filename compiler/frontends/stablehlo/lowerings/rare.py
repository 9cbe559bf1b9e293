"""Lowerings of ops that few programs hold, and the reasons why others are refused."""

from __future__ import annotations

from ingot.compiler.frontends.einsum import contract_letters
from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, SourceProgram
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value

__all__ = ["COLLECTIVES", "REFUSED"]

_DEVICES = "programs run on one device: export the model without sharding"
_HOST = "programs exchange data by arguments and results only: pass it as one"
REFUSED = {
    **dict.fromkeys(("async_done", "async_start"), _DEVICES),
    **dict.fromkeys(("infeed", "outfeed", "recv", "send"), _HOST),
}
"""Ops without a lowering, and what to do instead."""


@lowering("partition_id", "replica_id")
def device_number(context: Context, op: SourceOp) -> Value:
    """There is one device, number 0."""
    return context.builder.constant(0, "u32")


def _check_group(op: SourceOp, program: SourceProgram) -> str | None:
    """No group, or that of one device, is what there is."""
    groups = op.attributes.get("replica_groups")
    return _DEVICES if groups is not None and groups.array.size > 1 else None


COLLECTIVES = (
    *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "cross-replica-sum"),
    "reduce_scatter",
)
"""Ops that give what they take where there is one device."""


@lowering(*COLLECTIVES, check=_check_group)
def of_one_device(context: Context, op: SourceOp) -> list[Value]:
    """What a group of one device exchanges is its own."""
    return context.operands(op)


def _check_pairs(op: SourceOp, program: SourceProgram) -> str | None:
    return _DEVICES if op.attributes["source_target_pairs"].array.any() else None


@lowering("collective_permute", check=_check_pairs)
def collective_permute(context: Context, op: SourceOp) -> Value:
    """What the one device sends to itself, or zeros where it sends nothing."""
    x = context.operand(op, 0)
    if op.attributes["source_target_pairs"].array.size:
        return x
    return context.builder.full(0, tensor_type(x).dtype, tensor_type(x).shape)


def _check_select(op: SourceOp, program: SourceProgram) -> str | None:
    dim, batch = op.attributes.get("dim"), op.attributes.get("batch_dims")
    if not isinstance(dim, int) or not isinstance(batch, int) or not 0 <= batch <= dim:
        return f"dim {dim} with batch_dims {batch}"
    return None


@lowering("torch_index_select", check=_check_select)
def torch_index_select(context: Context, op: SourceOp) -> Value:
    """Slices at indices along one dim; leading dims may be batches of both operands."""
    x, indices = context.operands(op)
    axis, batch = int(op.attributes["dim"]), int(op.attributes["batch_dims"])
    shape, picked = tensor_type(x).shape, tensor_type(indices).shape
    if batch == 0:
        return context.builder.value("take", x, indices, axis=axis, mode="clamp")
    indices = context.agree(op, indices, (*shape[:batch], *picked[batch:]))
    rank = len(picked) - batch
    kept = [place for place in range(len(shape)) if place >= batch and place != axis]
    before = axis - batch
    order = [*range(batch), *range(batch + rank, batch + rank + before)]
    order += [*range(batch, batch + rank), *range(batch + rank + before, len(shape) - 1 + rank)]
    found = context.builder.value(
        "gather",
        x,
        indices,
        offset_dims=tuple(range(batch + rank, batch + rank + len(kept))),
        collapsed_slice_dims=(axis,),
        operand_batching_dims=tuple(range(batch)),
        start_indices_batching_dims=tuple(range(batch)),
        start_index_map=(axis,),
        index_vector_dim=len(picked),
        slice_sizes=tuple(1 if a == axis or a < batch else dim for a, dim in enumerate(shape)),
        mode="clamp",
    )
    return context.builder.value("transpose", found, permutation=tuple(order))


@lowering("set_dimension_size")
def set_dimension_size(context: Context, op: SourceOp) -> Lowered:
    """The first `size` elements along a dim, which must be no more than there are."""
    x = context.operand(op, 0)
    axis = int(op.attributes["dimension"])
    (size,) = context.sizes(op, 1)
    shape = list(tensor_type(x).shape)
    if size == shape[axis]:
        return context.lowered(op, 0)
    shape[axis] = size
    start = (0,) * len(shape)
    return Lowered(context.builder.value("slice", x, start=start, limit=tuple(shape)))


@lowering("unary_einsum", "einsum")
def einsum(context: Context, op: SourceOp) -> Value:
    """A product of one or two operands, summed over the letters that the result lacks."""
    equation, values = str(op.attributes["einsum_config"]), context.operands(op)
    terms = equation.partition("->")[0].split(",")
    sizes = {
        letter: dim
        for value, term in zip(values, terms, strict=True)
        for letter, dim in zip(term, tensor_type(value).shape, strict=True)
    }
    values = [
        context.agree(op, value, [sizes[letter] for letter in term])
        for value, term in zip(values, terms, strict=True)
    ]
    return contract_letters(Emitter(context.builder), equation, values)
