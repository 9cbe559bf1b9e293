"""Programs that are Python functions: they run once on traced tensors, which note what is done."""

from __future__ import annotations

from ingot.compiler.frontends.program import (
    control,
    creation,
    elementwise,
    images,
    linear,
    manipulation,
    natives,
    reductions,
    searching,
    sets,
)
from ingot.compiler.frontends.program.dtypes import (
    NAMES,
    can_cast,
    element_type,
    finfo,
    iinfo,
    isdtype,
    result_type,
)
from ingot.compiler.frontends.program.tensor import FUNCTIONS, Size, Tensor
from ingot.compiler.frontends.program.tracing import Program, Spec, program, spec, trace

__all__ = [
    "FUNCTIONS",
    "NAMES",
    "Program",
    "Size",
    "Spec",
    "Tensor",
    "can_cast",
    "control",
    "creation",
    "element_type",
    "elementwise",
    "finfo",
    "iinfo",
    "images",
    "isdtype",
    "linear",
    "manipulation",
    "natives",
    "program",
    "reductions",
    "result_type",
    "searching",
    "sets",
    "spec",
    "trace",
]
