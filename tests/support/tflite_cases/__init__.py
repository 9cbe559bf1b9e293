"""Cases of builtin ops of TFLite, by name: CASES[name] are functions that compare with LiteRT."""

from __future__ import annotations

from tests.support.tflite_cases import (
    choices,
    complex,
    contractions,
    elementwise,
    shapes,
    sounds,
    strings,
)
from tests.support.tflite_cases.table import CASES

__all__ = [
    "CASES",
    "choices",
    "complex",
    "contractions",
    "elementwise",
    "shapes",
    "sounds",
    "strings",
]
