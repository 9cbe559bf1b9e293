"""The op table of the graph level, by family. Importing this fills `OPS`."""

from __future__ import annotations

from ingot.compiler.graph.ops import (
    boxes,
    contraction,
    control,
    elementwise,
    indexed,
    leaves,
    lists,
    reduction,
    shape,
    sizing,
    table,
)
from ingot.compiler.graph.ops.contraction import (
    PANEL,
    ConvolutionLayout,
    code_steps,
    lane_depth,
    packed_shape,
    parse_layout,
)
from ingot.compiler.graph.ops.control import CONTROL, defined_symbols, fresh_dim_count
from ingot.compiler.graph.ops.elementwise import COSTLY, DIRECTIONS
from ingot.compiler.graph.ops.lists import LIST_OPS
from ingot.compiler.graph.ops.reduction import REDUCE_KINDS, window_dim
from ingot.compiler.graph.ops.shape import can_broadcast
from ingot.compiler.graph.ops.table import (
    OPS,
    OpRow,
    RuleError,
    complete_attributes,
    infer_types,
    lookup,
)

__all__ = [
    "CONTROL",
    "COSTLY",
    "DIRECTIONS",
    "LIST_OPS",
    "OPS",
    "PANEL",
    "REDUCE_KINDS",
    "ConvolutionLayout",
    "OpRow",
    "RuleError",
    "boxes",
    "can_broadcast",
    "code_steps",
    "complete_attributes",
    "contraction",
    "control",
    "defined_symbols",
    "elementwise",
    "fresh_dim_count",
    "indexed",
    "infer_types",
    "lane_depth",
    "leaves",
    "lists",
    "lookup",
    "packed_shape",
    "parse_layout",
    "reduction",
    "shape",
    "sizing",
    "table",
    "window_dim",
]
