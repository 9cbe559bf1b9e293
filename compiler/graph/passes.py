"""The graph pipeline: the passes between an importer and dispatch formation, in order."""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.graph.control.batch_invariants import batch_invariants
from ingot.compiler.graph.control.fold_control import fold_control
from ingot.compiler.graph.control.hoist_invariants import hoist_invariants
from ingot.compiler.graph.folding.eliminate_common_subexpressions import (
    eliminate_common_subexpressions,
)
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.folding.fold_constants import fold_constants
from ingot.compiler.graph.folding.fold_ranges import fold_ranges
from ingot.compiler.graph.folding.fold_scales import fold_constant_scales, fold_scales
from ingot.compiler.graph.folding.share_constants import share_constants
from ingot.compiler.graph.folding.simplify import simplify
from ingot.compiler.graph.forms.arrange_contractions import arrange_contractions
from ingot.compiler.graph.forms.choose_layout import choose_layout
from ingot.compiler.graph.forms.choose_winograd import choose_winograd
from ingot.compiler.graph.forms.fuse_attention import fuse_attention
from ingot.compiler.graph.forms.fuse_scales import fuse_scales
from ingot.compiler.graph.forms.multiply_codes import multiply_codes
from ingot.compiler.graph.forms.multiply_pixels import multiply_pixels
from ingot.compiler.graph.forms.nest_concatenates import nest_concatenates
from ingot.compiler.graph.forms.pack_weights import pack_weights
from ingot.compiler.graph.forms.round_factors import round_factors
from ingot.compiler.graph.forms.share_tables import share_tables
from ingot.compiler.graph.forms.simplify_rescaling import simplify_rescaling
from ingot.compiler.graph.forms.split_factors import split_factors
from ingot.compiler.graph.forms.split_init import split_init
from ingot.compiler.graph.forms.split_reductions import split_reductions
from ingot.compiler.graph.forms.store_halves import store_halves
from ingot.compiler.graph.forms.store_narrow import store_narrow
from ingot.compiler.graph.forms.tabulate_codes import tabulate_codes
from ingot.compiler.ir import Module

__all__ = ["GRAPH_PASSES", "run_graph_passes"]

GRAPH_PASSES: tuple[Callable[[Module], Module], ...] = (
    fold_constant_scales,
    eliminate_dead_code,
    store_narrow,
    multiply_codes,
    fuse_scales,
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
    multiply_pixels,
    choose_layout,
    simplify,
    eliminate_dead_code,
    tabulate_codes,
    eliminate_dead_code,
    simplify_rescaling,
    round_factors,
    split_factors,
    store_halves,
    choose_winograd,
    pack_weights,
    share_tables,
    arrange_contractions,
    fold_constants,
    simplify,
    split_reductions,
    nest_concatenates,
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
