"""Programs that are Python functions: they run once on traced tensors, which note what is done."""

from __future__ import annotations

from ingot.compiler.frontends.program import (
    complex,
    complex_reductions,
    control,
    creation,
    elementwise,
    fft,
    images,
    linalg,
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
from ingot.compiler.frontends.program.tensor import EXTENSIONS, FUNCTIONS, Size, Tensor
from ingot.compiler.frontends.program.tracing import Program, Spec, program, spec, trace

__all__ = [
    "EXTENSIONS",
    "FUNCTIONS",
    "NAMES",
    "Program",
    "Size",
    "Spec",
    "Tensor",
    "can_cast",
    "complex",
    "complex_reductions",
    "control",
    "creation",
    "element_type",
    "elementwise",
    "fft",
    "finfo",
    "iinfo",
    "images",
    "isdtype",
    "linalg",
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
