"""SparseTensor: what programs for onnxruntime make sparse arguments with, which are dense here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ingot.onnxruntime.types import NamedNumber, onnx_code, type_text

if TYPE_CHECKING:
    from ingot.onnxruntime.places import OrtDevice

__all__ = ["OrtSparseFormat", "SparseTensor"]

Array = np.ndarray[Any, Any]


class OrtSparseFormat(NamedNumber):
    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class _CooView:
    def __init__(self, indices: Array) -> None:
        self._indices = indices

    def indices(self) -> Array:
        return self._indices


class _CsrView:
    def __init__(self, inner: Array, outer: Array) -> None:
        self._inner, self._outer = inner, outer

    def inner(self) -> Array:
        return self._inner

    def outer(self) -> Array:
        return self._outer


class SparseTensor:
    """Elements and where they stand in a matrix. It stays in the memory of the host."""

    def __init__(
        self, shape: Sequence[int], values: Any, format: OrtSparseFormat, *indices: Array
    ) -> None:
        self._shape = [int(dim) for dim in shape]
        self._values = np.asarray(values)
        self._format = format
        self._indices = indices
        self._dense = self._made_dense()

    @staticmethod
    def sparse_coo_from_numpy(
        dense_shape: Any, values: Any, coo_indices: Any, ort_device: OrtDevice | None = None
    ) -> SparseTensor:
        """`coo_indices`: a row and a column for each value, or its place in all elements.
        RuntimeError: one is out of range."""
        indices = np.asarray(coo_indices, np.int64)
        return SparseTensor(dense_shape, values, OrtSparseFormat.ORT_SPARSE_COO, indices)

    @staticmethod
    def sparse_csr_from_numpy(
        dense_shape: Any,
        values: Any,
        inner_indices: Any,
        outer_indices: Any,
        ort_device: OrtDevice | None = None,
    ) -> SparseTensor:
        """The column of each value, and where each row begins in them, and the last ends.
        RuntimeError: one is out of range."""
        indices = (np.asarray(each, np.int64) for each in (inner_indices, outer_indices))
        return SparseTensor(dense_shape, values, OrtSparseFormat.ORT_SPARSE_CSRC, *indices)

    def _made_dense(self) -> Array:
        count, places = len(self._values), self._indices[0]
        wrong = len(self._shape) != 2 or self._values.ndim != 1 or len(places) != count
        if not wrong and self._format is OrtSparseFormat.ORT_SPARSE_CSRC:
            starts = self._indices[1]
            wrong = len(starts) != self._shape[0] + 1 or starts[0] != 0 or starts[-1] != count
            if not wrong and not (wrong := bool((np.diff(starts) < 0).any())):
                rows = np.repeat(np.arange(self._shape[0]), np.diff(starts))
                places = np.stack([rows, places], 1)
        if not wrong and places.ndim == 1:
            wrong = bool((places < 0).any())
            places = np.stack(
                [places // max(self._shape[1], 1), places % max(self._shape[1], 1)], 1
            )
        if wrong or places.shape != (count, 2) or not _lie_within(places, self._shape):
            raise RuntimeError(
                f"a sparse tensor of shape {self._shape} has {count} values and indices of shapes "
                f"{[list(each.shape) for each in self._indices]}, or some that are out of range"
            )
        dense = np.zeros(self._shape, self._values.dtype)
        dense[tuple(places.T)] = self._values
        return dense

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self._dense if dtype is None else self._dense.astype(dtype)

    def values(self) -> Array:
        return self._values

    def dense_shape(self) -> list[int]:
        return self._shape

    def format(self) -> OrtSparseFormat:
        return self._format

    def data_type(self) -> str:
        """sparse_tensor(float) and its like."""
        return f"sparse_{type_text(onnx_code(self._values.dtype))}"

    def device_name(self) -> str:
        return "cpu"

    def as_coo_view(self) -> _CooView:
        """RuntimeError: it is in another format."""
        self._require(OrtSparseFormat.ORT_SPARSE_COO)
        return _CooView(*self._indices)

    def as_csrc_view(self) -> _CsrView:
        """RuntimeError: it is in another format."""
        self._require(OrtSparseFormat.ORT_SPARSE_CSRC)
        return _CsrView(*self._indices)

    def as_blocksparse_view(self) -> Any:
        """RuntimeError: there is no way to make one."""
        self._require(OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE)

    def to_cuda(self, ort_device: OrtDevice) -> SparseTensor:
        """RuntimeError: arguments are made dense in the memory of the host."""
        raise RuntimeError("sparse tensors stay on the CPU: bind a dense OrtValue to a device")

    def _require(self, format: OrtSparseFormat) -> None:
        if self._format is not format:
            raise RuntimeError(f"the sparse tensor is {self._format.name}, not {format.name}")


def _lie_within(places: Array, shape: Sequence[int]) -> bool:
    return bool(((places >= 0) & (places < np.array(shape))).all())
