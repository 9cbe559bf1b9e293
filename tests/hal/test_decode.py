"""Decoding of element bits, against ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.hal import spec
from ingot.hal.decode import decode, storage_dtype

NARROW = [
    dtype
    for dtype in spec.DTYPES.values()
    if (dtype.bytes == 1 or dtype.name == "bf16") and not dtype.is_boolean
]


@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_every_bit_pattern_has_the_value_that_ml_dtypes_gives(dtype: spec.DType) -> None:
    storage = np.arange(1 << min(dtype.bits, 16), dtype=storage_dtype(dtype))
    expected = storage.view(dtype.numpy).astype(np.float32)
    values = decode(storage, dtype).astype(np.float32)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))


def test_wide_dtypes_come_through_as_they_are() -> None:
    values = np.array([1.5, -2.0])
    assert decode(values, spec.dtype("f64")) is values
