"""The namespace of the functions on traced tensors, as the array API standard has one."""

from __future__ import annotations

import math
from typing import Any

from ingot.compiler.frontends import program as _program

__array_api_version__ = "2024.12"

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi

can_cast = _program.can_cast
finfo = _program.finfo
iinfo = _program.iinfo
isdtype = _program.isdtype
result_type = _program.result_type
Size = _program.Size
Tensor = _program.Tensor

globals().update({name: _program.element_type(name) for name in _program.NAMES})
globals().update(
    {name: each for name, each in _program.FUNCTIONS.items() if not name.startswith("_")}
)

__all__ = [
    "Size",
    "Tensor",
    "can_cast",
    "e",
    "finfo",
    "iinfo",
    "inf",
    "isdtype",
    "nan",
    "newaxis",
    "pi",
    "result_type",
    *_program.NAMES,
    *(name for name in _program.FUNCTIONS if not name.startswith("_")),
]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"ingot.ops has no {name!r}; what it has, and what of the array API standard it lacks, is "
        "in docs/programs.md"
    )
