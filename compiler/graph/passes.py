"""The graph pipeline: the passes between an importer and dispatch formation, in order."""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.graph.arrange_contractions import arrange_contractions
from ingot.compiler.graph.batch_invariants import batch_invariants
from ingot.compiler.graph.choose_layout import choose_layout
from ingot.compiler.graph.choose_winograd import choose_winograd
from ingot.compiler.graph.eliminate_common_subexpressions import eliminate_common_subexpressions
from ingot.compiler.graph.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.fold_constants import fold_constants
from ingot.compiler.graph.fold_control import fold_control
from ingot.compiler.graph.fold_ranges import fold_ranges
from ingot.compiler.graph.fold_scales import fold_scales
from ingot.compiler.graph.fuse_attention import fuse_attention
from ingot.compiler.graph.hoist_invariants import hoist_invariants
from ingot.compiler.graph.pack_weights import pack_weights
from ingot.compiler.graph.share_constants import share_constants
from ingot.compiler.graph.simplify import simplify
from ingot.compiler.graph.split_init import split_init
from ingot.compiler.graph.split_reductions import split_reductions
from ingot.compiler.graph.store_narrow import store_narrow
from ingot.compiler.ir import Module

__all__ = ["GRAPH_PASSES", "run_graph_passes"]

GRAPH_PASSES: tuple[Callable[[Module], Module], ...] = (
    store_narrow,
    eliminate_dead_code,
    fold_control,
    fold_constants,
    simplify,
    fold_constants,
    simplify,
    eliminate_common_subexpressions,
    fold_ranges,
    fold_control,
    eliminate_dead_code,
    hoist_invariants,
    batch_invariants,
    eliminate_dead_code,
    fold_scales,
    fuse_attention,
    eliminate_dead_code,
    choose_layout,
    simplify,
    eliminate_dead_code,
    choose_winograd,
    pack_weights,
    arrange_contractions,
    fold_constants,
    simplify,
    split_reductions,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    share_constants,
    split_init,
)
"""Each takes a module, changes it in place, and returns it. Dims may be symbolic throughout."""


def run_graph_passes(module: Module) -> Module:
    """Run the whole pipeline on a module of the graph level; returns the module."""
    for each in GRAPH_PASSES:
        module = each(module)
    return module
