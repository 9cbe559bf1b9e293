"""The row of `suppress`: the greedy choice of boxes that non-maximum suppression makes."""

from __future__ import annotations

from ingot.compiler.graph.ops.table import OpRow, register, require
from ingot.compiler.ir import TensorType
from ingot.hal.spec import dtype

__all__: list[str] = []

_F32, _I1, _I64 = dtype("f32"), dtype("i1"), dtype("i64")


def _suppress(
    boxes: TensorType,
    order: TensorType,
    candidates: TensorType,
    limit: TensorType,
    threshold: TensorType,
) -> TensorType:
    require(candidates.rank == 3, f"candidates are {candidates}, expected rank 3")
    groups, _, length = candidates.shape
    wanted = TensorType(_F32, (groups, 4, length))
    require(boxes == wanted, f"boxes are {boxes}, expected {wanted}")
    places = TensorType(_I64, candidates.shape)
    require(order == places, f"the order is {order}, expected {places}")
    require(limit == TensorType(_I64), f"the limit is {limit}, expected i64[]")
    require(threshold == TensorType(_F32), f"the threshold is {threshold}, expected f32[]")
    return TensorType(_I1, candidates.shape)


register(
    OpRow(
        "suppress",
        "indexed",
        ("boxes: real", "order: integer", "candidates: i1", "limit: integer", "threshold: real"),
        _suppress,
        "Which candidates are kept: along each line, at most `limit` of those that do not overlap "
        "one kept before by more than `threshold` (intersection over union). A candidate's box "
        "stands in its group, low y, low x, high y, high x in four rows, at the place of `order`, "
        "which is clamped. A box without area overlaps none.",
    )
)
