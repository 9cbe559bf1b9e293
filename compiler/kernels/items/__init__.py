"""Schedules for groups of work items that share local memory, by the name of their class."""

from ingot.compiler.kernels.items.attention import lower_attention
from ingot.compiler.kernels.items.compaction import lower_compaction
from ingot.compiler.kernels.items.contraction import lower_contraction
from ingot.compiler.kernels.items.convolution import lower_convolution
from ingot.compiler.kernels.items.cumulative import lower_cumulative
from ingot.compiler.kernels.items.depthwise import lower_depthwise
from ingot.compiler.kernels.items.map import lower_map
from ingot.compiler.kernels.items.row import lower_row
from ingot.compiler.kernels.items.scatter import lower_scatter
from ingot.compiler.kernels.items.sort import lower_sort
from ingot.compiler.kernels.items.top_k import lower_top_k
from ingot.compiler.kernels.items.window import lower_window
from ingot.compiler.kernels.items.winograd import lower_winograd

__all__ = ["ITEMS"]

ITEMS = {
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
