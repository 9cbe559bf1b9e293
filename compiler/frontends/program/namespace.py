"""The namespace of the functions on traced tensors, as the array API standard has one."""

from __future__ import annotations

import math
from typing import Any

from ingot.compiler.frontends import program as _program
from ingot.compiler.frontends.program.dtypes import complex_dtype, default_float, default_int
from ingot.hal.spec import DType

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


class _Extension:
    """A namespace within this one."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__dict__.update(_program.EXTENSIONS[name])

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ingot.ops.{self.__name__} has no {name!r}: see docs/programs.md")


fft, linalg = _Extension("fft"), _Extension("linalg")


class _Info:
    """What the standard asks of a namespace. A program has no devices."""

    def capabilities(self) -> dict[str, Any]:
        """Shapes may depend on data, and masks may be indices."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> None:
        """None: a device is chosen where the module is loaded."""
        return

    def devices(self) -> list[None]:
        """None alone."""
        return [None]

    def default_dtypes(self, *, device: None = None) -> dict[str, DType]:
        """Of numbers that have no other one."""
        whole = default_int()
        real = default_float()
        return {
            "real floating": real,
            "complex floating": complex_dtype(real),
            "integral": whole,
            "indexing": whole,
        }

    def dtypes(self, *, device: None = None, kind: Any = None) -> dict[str, DType]:
        """Dtypes by name, those of a kind only."""
        found = {name: _program.element_type(name) for name in _program.NAMES}
        return {name: each for name, each in found.items() if kind is None or isdtype(each, kind)}


def __array_namespace_info__() -> _Info:  # noqa: N807
    """What this namespace has, in the words of the standard."""
    return _Info()


__all__ = [
    "Size",
    "Tensor",
    "__array_namespace_info__",
    "can_cast",
    "e",
    "fft",
    "finfo",
    "iinfo",
    "inf",
    "isdtype",
    "linalg",
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
