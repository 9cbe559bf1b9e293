"""Schedules for one thread with vector registers, by the name of their class."""

from ingot.compiler.kernels.lanes.attention import lower_attention
from ingot.compiler.kernels.lanes.compaction import lower_compaction
from ingot.compiler.kernels.lanes.contraction import lower_contraction
from ingot.compiler.kernels.lanes.convolution import lower_convolution
from ingot.compiler.kernels.lanes.cumulative import lower_cumulative
from ingot.compiler.kernels.lanes.depthwise import lower_depthwise
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.kernels.lanes.row import lower_row
from ingot.compiler.kernels.lanes.scatter import lower_scatter
from ingot.compiler.kernels.lanes.sort import lower_sort
from ingot.compiler.kernels.lanes.top_k import lower_top_k
from ingot.compiler.kernels.lanes.window import lower_window
from ingot.compiler.kernels.lanes.winograd import lower_winograd

__all__ = ["LANES"]

LANES = {
    "attention": lower_attention,
    "compaction": lower_compaction,
    "contraction": lower_contraction,
    "convolution": lower_convolution,
    "cumulative": lower_cumulative,
    "depthwise": lower_depthwise,
    "map": lower_map,
    "row": lower_row,
    "scatter": lower_scatter,
    "sort": lower_sort,
    "top_k": lower_top_k,
    "window": lower_window,
    "winograd": lower_winograd,
}
