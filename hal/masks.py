"""Masks of NumPy's arrays, which tensors do not have."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.hal.errors import InvalidArgument

__all__ = ["unmasked"]


def unmasked(array: npt.ArrayLike) -> npt.NDArray[Any]:
    """As NumPy has it. InvalidArgument: elements of it, or of an array in its lists, are masked,
    which would be lost."""
    if "numpy.ma" in sys.modules:  # else there is none, and looking would load it
        _refuse_masks(array)
    return np.asarray(array)


def _refuse_masks(value: Any, depth: int = 64) -> None:
    """Down to as many lists in each other as an array may have dims."""
    if isinstance(value, (list, tuple)):
        for each in value if depth else ():
            if isinstance(each, (list, tuple, np.ma.MaskedArray)):
                _refuse_masks(each, depth - 1)
        return
    is_one = isinstance(value, np.ma.MaskedArray) and value.dtype.names is None
    if is_one and np.ma.is_masked(value):
        raise InvalidArgument("has masked elements, which no tensor has; pass its .filled(value)")
