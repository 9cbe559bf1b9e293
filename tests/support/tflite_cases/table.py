"""The table of cases, and how one is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.tflite_models import Array, Quant, check, one_op

__all__ = [
    "CASES",
    "I8",
    "I16",
    "I32",
    "I64",
    "OUT",
    "RNG",
    "U8",
    "B",
    "F",
    "Q",
    "X",
    "case",
    "codes",
    "floats",
    "whole",
]  # fmt: skip

RNG = np.random.default_rng(0)
F, I32, I64, I8, U8, I16, B = "float32", "int32", "int64", "int8", "uint8", "int16", "bool"

CASES: dict[str, list[Callable[[], None]]] = {}


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return RNG.uniform(low, high, shape).astype(np.float32)


def whole(*shape: int, low: int = -9, high: int = 9, type: str = I32) -> Array:
    return RNG.integers(low, high + 1, shape).astype(type)


def codes(*shape: int, type: str = I8) -> Array:
    info = np.iinfo(type)
    return RNG.integers(info.min, info.max + 1, shape).astype(type)


def case(name: str, *given: Any, **options: Any) -> None:
    """An op on these inputs and with these outputs, as `one_op` takes them."""
    settings = {key: options.pop(key) for key in ("codes", "tolerance") if key in options}

    def run() -> None:
        model, arguments = one_op(name, *given, **options)
        check(model, arguments, **settings)

    CASES.setdefault(name, []).append(run)


X = floats(2, 3, 4)
Q: Quant = (0.05, 3)
OUT: Quant = (0.04, -7)
