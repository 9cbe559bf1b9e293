"""Calibration data: samples of a function's arguments, checked one by one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ingot.hal.errors import InvalidArgument
from ingot.hal.masks import unmasked
from ingot.hal.whole_file import read_arrays
from ingot.runtime.signature import Signature, Value

__all__ = ["Sample", "read_samples"]

Sample = dict[str, Any]
"""Arguments by name."""

_Array = np.ndarray[Any, Any]

_ROWS = 32
"""Of data whose leading dim is open, in one sample."""


def read_samples(data: Any, signature: Signature) -> list[Sample]:
    """The samples in `data`: the path of an .npz file or a mapping, whose arrays hold all samples
    of an argument along one more axis in front or, where that makes the leading dim longer, along
    this; or an iterable of samples, each a mapping by name, a sequence of arguments, or the one
    argument.

    InvalidArgument: what is there is no data for this signature; the message names the tensor.
    """
    kinds = {value.kind for value in signature.arguments}
    if kinds - {"tensor"}:
        raise InvalidArgument("calibration data is for arguments that are tensors, not lists")
    if isinstance(data, (str, os.PathLike)):
        data = read_arrays(data)
    if isinstance(data, np.ndarray):
        data = _named(data, signature)
    samples = _cut(data, signature) if isinstance(data, Mapping) else _listed(data, signature)
    if not samples:
        raise InvalidArgument("the calibration data is empty: give at least one sample")
    for place, sample in enumerate(samples):
        for value in signature.arguments:
            what = f"calibration sample {place}: argument '{value.name}'"
            sample[value.name] = _checked(sample[value.name], value, what)
    return samples


def _named(array: Any, signature: Signature) -> dict[str, Any]:
    """One array as that of the one argument."""
    names = [value.name for value in signature.arguments]
    if len(names) != 1:
        raise InvalidArgument(
            f"the calibration data is one array, but the arguments are {', '.join(names)}: give an "
            ".npz file or a dict with an array for each"
        )
    return {names[0]: array}


def _listed(data: Any, signature: Signature) -> list[Sample]:
    if not isinstance(data, Iterable):
        raise InvalidArgument(
            f"calibration data is the path of an .npz file, a dict of arrays, or samples one by "
            f"one, not {type(data).__name__}"
        )
    names = [value.name for value in signature.arguments]
    samples: list[Sample] = []
    for each in data:
        if isinstance(each, Mapping):
            sample = dict(each)
        elif isinstance(each, (tuple, list)) and len(each) == len(names):
            sample = dict(zip(names, each, strict=True))
        else:
            sample = _named(each, signature)
        _check_names(sample, names, f"calibration sample {len(samples)}")
        samples.append(sample)
    return samples


def _check_names(given: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    missing = [name for name in names if name not in given]
    unknown = [name for name in given if name not in names]
    if missing or unknown:
        wrong = f"lacks {missing[0]!r}" if missing else f"has {unknown[0]!r}, which is no argument"
        raise InvalidArgument(f"{what} {wrong}: the arguments are {', '.join(names)}")


def _cut(data: Mapping[str, Any], signature: Signature) -> list[Sample]:
    """The samples of arrays that hold all of them."""
    _check_names(data, [value.name for value in signature.arguments], "the calibration data")
    arrays = {name: np.asarray(each) for name, each in data.items()}
    parts = {
        value.name: _parts(arrays[value.name], value, _leading(signature, arrays))
        for value in signature.arguments
    }
    counts = {name: len(each) for name, each in parts.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} of '{name}'" for name, count in counts.items())
        raise InvalidArgument(f"the calibration data has {listed}: give as many of each")
    return [dict(zip(parts, each, strict=True)) for each in zip(*parts.values(), strict=True)]


def _leading(signature: Signature, arrays: Mapping[str, _Array]) -> int:
    """How many rows of arrays with an open leading dim make a sample: a part of them where the
    dim is that of all arguments, as a batch is; else all."""
    dims = {value.shape[:1] for value in signature.arguments}
    is_batch = len(dims) == 1 and all(isinstance(dim, str) for shape in dims for dim in shape)
    return (
        _ROWS if is_batch else max((len(each) for each in arrays.values() if each.ndim), default=1)
    )


def _parts(array: _Array, value: Value, rows: int) -> list[_Array]:
    what = f"the calibration data of '{value.name}'"
    if array.size == 0:
        raise InvalidArgument(f"{what} is empty, of shape {list(array.shape)}: give some samples")
    if array.ndim == len(value.shape) + 1:
        return list(array)
    if array.ndim != len(value.shape) or not array.ndim:
        raise InvalidArgument(
            f"{what} has the shape {list(array.shape)}, but the argument is {value}: expected this "
            "shape with an axis for the samples in front, or with more rows"
        )
    length = value.shape[0]
    if isinstance(length, int):
        if not length or len(array) % length:
            raise InvalidArgument(
                f"{what} has {len(array)} rows, which samples of {length} do not divide: the "
                f"argument is {value}"
            )
        rows = length
    return [array[at : at + rows] for at in range(0, len(array), rows)]


def _checked(given: Any, value: Value, what: str) -> _Array:
    """The argument as an array of its dtype."""
    try:
        array = unmasked(given)
    except (ValueError, InvalidArgument) as error:  # rows of different lengths, or masks
        raise InvalidArgument(f"{what} is no array: {error}") from None
    fits = array.ndim == len(value.shape) and all(
        isinstance(dim, str) or dim == size
        for dim, size in zip(value.shape, array.shape, strict=False)
    )
    if not fits:
        raise InvalidArgument(f"{what} has the shape {list(array.shape)}: expected {value}")
    if array.size == 0:
        raise InvalidArgument(f"{what} is empty, of shape {list(array.shape)}")
    wanted = value.dtype
    if array.dtype == wanted.numpy:
        converted = array
    elif not np.can_cast(array.dtype, wanted.numpy, "same_kind"):
        raise InvalidArgument(
            f"{what} is {array.dtype}, expected {wanted.name}: convert it where you save it"
        )
    else:
        converted = array.astype(wanted.numpy)
    if wanted.is_float and not np.isfinite(converted.astype(np.float32)).all():
        raise InvalidArgument(f"{what} has NaN or infinite elements: leave such samples out")
    return converted
