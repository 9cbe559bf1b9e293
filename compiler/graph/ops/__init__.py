"""The op table of the graph level, by family. Importing this fills `OPS`."""

from __future__ import annotations

from ingot.compiler.graph.ops import (
    boxes,
    coded,
    contraction,
    control,
    elementwise,
    indexed,
    leaves,
    lists,
    natives,
    reduction,
    shape,
    sizing,
    table,
)
from ingot.compiler.graph.ops.coded import *  # noqa: F403
from ingot.compiler.graph.ops.contraction import *  # noqa: F403
from ingot.compiler.graph.ops.control import *  # noqa: F403
from ingot.compiler.graph.ops.elementwise import *  # noqa: F403
from ingot.compiler.graph.ops.indexed import *  # noqa: F403
from ingot.compiler.graph.ops.leaves import *  # noqa: F403
from ingot.compiler.graph.ops.lists import *  # noqa: F403
from ingot.compiler.graph.ops.natives import *  # noqa: F403
from ingot.compiler.graph.ops.reduction import *  # noqa: F403
from ingot.compiler.graph.ops.shape import *  # noqa: F403
from ingot.compiler.graph.ops.sizing import *  # noqa: F403
from ingot.compiler.graph.ops.table import (
    OPS,
    OpRow,
    RuleError,
    infer_types,
    lookup,
)

__all__ = [
    *coded.__all__,
    *contraction.__all__,
    *control.__all__,
    *elementwise.__all__,
    *indexed.__all__,
    *leaves.__all__,
    *lists.__all__,
    *natives.__all__,
    *reduction.__all__,
    *shape.__all__,
    *sizing.__all__,
    "OPS",
    "OpRow",
    "RuleError",
    "boxes",
    "infer_types",
    "lookup",
    "table",
]
