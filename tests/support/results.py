"""What calls of compiled programs give, as NumPy arrays, and how two of them are compared."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["arrays_of", "assert_same", "several"]

Array = np.ndarray[Any, Any]


def several(results: Any) -> list[Any]:
    """The one result of a call, or its several, as they are."""
    return list(results) if isinstance(results, tuple) else [results]


def arrays_of(results: Any) -> list[Array]:
    """The one result of a call, or its several, as arrays."""
    return [np.asarray(each) for each in several(results)]


def assert_same(
    got: Array, wanted: Array, rtol: float = 0.0, atol: float = 0.0, what: str = ""
) -> None:
    """Equal in dtype, shape and elements: exactly, or floats to these tolerances."""
    wanted = np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), what
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, wanted, what)
        return
    wide = complex if got.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(wide), wanted.astype(wide), rtol, atol, err_msg=what)
