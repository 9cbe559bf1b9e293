"""The variables of a session: out as arrays, in from arrays."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.lib.format import write_array

from ingot.hal.array import Array, empty_array
from ingot.hal.device import open_device
from ingot.hal.errors import InvalidArgument
from ingot.hal.native import check, ffi, lib
from ingot.hal.whole_file import write_whole
from ingot.runtime.frame import bytes_of
from ingot.runtime.program import Program
from ingot.runtime.signature import Value
from ingot.runtime.tensors import bits_of_input

__all__ = ["read_state", "save_state", "state_spans", "write_state"]


def read_state(session: Any, program: Program) -> dict[str, Array]:
    """Copies of all variables of a C session, on the CPU. FailedPrecondition: one is half
    changed."""
    state = {}
    for ordinal, variable in enumerate(program.variables):
        shape = cast("tuple[int, ...]", variable.shape)
        array = empty_array(variable.dtype, shape, open_device())
        length = lib.ingot_buffer_view_layout(array._view).length
        check(
            lib.ingot_session_read_variable(session, program.module, ordinal, array._map(), length)
        )
        state[variable.name] = array
    return state


def save_state(path: str | os.PathLike[str], state: Mapping[str, Array]) -> None:
    """Writes a .npz file with an array per variable. Raises as `write_whole`.

    Elements that NumPy lacks are written as bytes.
    """

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in state.items():
                element = array.dtype.numpy if array.dtype.is_numpy else f"V{array.dtype.bytes}"
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    write_array(member, array._storage(np.dtype(element)), allow_pickle=False)

    write_whole(path, write)


def state_spans(program: Program, state: Any) -> list[tuple[Any, int]]:
    """The bytes for each variable, and their length. InvalidArgument: they do not fit."""
    if not isinstance(state, Mapping):
        raise InvalidArgument(
            f"the state is {type(state).__name__}, but must be a dict of arrays by name"
        )
    names = [variable.name for variable in program.variables]
    missing = [name for name in names if name not in state]
    unknown = [name for name in state if name not in names]
    if missing or unknown:
        what = f"lacks variable {missing[0]!r}" if missing else f"has no variable {unknown[0]!r}"
        whose = "the state" if missing else "the model"
        raise InvalidArgument(f"{whose} {what}; the variables are: {', '.join(names) or 'none'}")
    return list(_spans(program.variables, state))


def write_state(session: Any, program: Program, spans: list[tuple[Any, int]]) -> None:
    """Sets all variables of a C session."""
    for ordinal, (data, length) in enumerate(spans):
        check(lib.ingot_session_write_variable(session, program.module, ordinal, data, length))


def _spans(variables: tuple[Value, ...], state: Mapping[str, Any]) -> Iterator[tuple[Any, int]]:
    """The bytes of each variable and their length; the pointers keep what they point into."""
    for variable in variables:
        value, what = state[variable.name], f"variable '{variable.name}'"
        is_array = type(value) is Array and value.dtype is variable.dtype and value.is_host
        bits = value if is_array else bits_of_input(value, variable.dtype, what)
        if bits.shape != variable.shape:
            raise InvalidArgument(f"{what}: shape is {bits.shape}, but must be {variable.shape}")
        if is_array:
            yield value._map(), lib.ingot_buffer_view_layout(value._view).length
        else:
            data = ffi.from_buffer(bytes_of(bits))
            yield data, len(data)
