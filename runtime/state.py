"""The variables of a session: out as arrays, in from arrays, and both as a file."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import prod
from typing import Any, BinaryIO, cast

from ingot.hal.array import Array, empty_array
from ingot.hal.device import open_device
from ingot.hal.errors import Cancelled, Error, InvalidArgument
from ingot.hal.native import check, ffi, keep_error, lib
from ingot.hal.whole_file import open_regular, write_whole
from ingot.runtime.frame import bytes_of
from ingot.runtime.program import Program
from ingot.runtime.signature import Value
from ingot.runtime.tensors import bits_of_input

__all__ = [
    "is_archive",
    "load_state",
    "read_state",
    "restore_state",
    "save_state",
    "state_spans",
    "stream_state",
    "write_state",
]


def read_state(session: Any, program: Program) -> dict[str, Array]:
    """Copies of all variables of a C session, on the CPU. FailedPrecondition: one is half
    changed."""
    state = {}
    grows = any(map(_grows, program.variables))
    rows = _rows(session, program.variables) if grows else []
    for place, variable in enumerate(program.variables):
        module, ordinal = program.places[place]
        shape = cast("tuple[int, ...]", variable.shape)
        if _grows(variable):
            shape = (rows[place], *shape[1:])
        array = empty_array(variable.dtype, shape, open_device())
        length = lib.ingot_buffer_view_layout(array._view).length
        check(lib.ingot_session_read_variable(session, module, ordinal, array._map(), length))
        state[variable.name] = array
    return state


def _grows(variable: Value) -> bool:
    return any(not isinstance(dim, int) for dim in variable.shape)


def _rows(session: Any, variables: tuple[Value, ...]) -> list[int]:
    """How many rows there are of each variable that grows, else 0, as the head of a saved state
    tells."""
    head = _Head(1 + sum(2 + bool(each.shape) for each in variables))
    with suppress(Cancelled):
        stream_state(session, cast("BinaryIO", head))
    data, place, rows = b"".join(head.pieces), 16, []
    for each in variables:
        _, rank, length = struct.unpack_from("<iII", data, place)
        count = struct.unpack_from("<q", data, place + 12)[0] if _grows(each) else 0
        row = cast("tuple[int, ...]", each.shape[1:])
        rows.append(count // (each.dtype.bytes * prod(row) or 1))
        place += 12 + 8 * rank + length
    return rows


class _Head:
    """A file that takes the first `count` pieces only: the header of a state and, of each variable,
    signature, dims and name."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        if len(self.pieces) == self.count:
            return 0
        self.pieces.append(bytes(data))
        return len(data)


def save_state(session: Any, path: str | os.PathLike[str]) -> None:
    """Writes all variables of a C session to a file. Raises as `stream_state` and
    `write_whole`."""
    write_whole(path, lambda file: stream_state(session, file))


def stream_state(session: Any, file: BinaryIO) -> None:
    """The same to an open file. FailedPrecondition: one is half changed."""
    handle = ffi.new_handle(file)
    check(lib.ingot_session_save_state(session, lib.ingot_python_write, handle))


def load_state(session: Any, path: str | os.PathLike[str]) -> None:
    """Sets all variables of a C session from such a file. Raises as `restore_state` and
    `open_regular`."""
    with open_regular(path) as file:
        restore_state(session, file, os.fsdecode(path))


def restore_state(session: Any, file: BinaryIO, name: str) -> None:
    """The same from an open file. DataLoss, Incompatible, InvalidArgument: the file is damaged, of
    another version, or of another module; then nothing is changed."""
    handle = ffi.new_handle(file)
    try:
        check(lib.ingot_session_load_state(session, lib.ingot_python_read, handle))
    except Error as error:
        raise type(error)(f"'{name}': {error}") from None


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a .npz archive. Raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read(2) == b"PK"


@ffi.def_extern(onerror=keep_error, error=False)  # type: ignore[untyped-decorator]
def ingot_python_write(user: Any, data: Any, length: int) -> bool:
    count: int = ffi.from_handle(user).write(ffi.buffer(data, length))
    return count == length


@ffi.def_extern(onerror=keep_error, error=False)  # type: ignore[untyped-decorator]
def ingot_python_read(user: Any, data: Any, length: int) -> bool:
    count: int = ffi.from_handle(user).readinto(ffi.buffer(data, length))
    return count == length


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
    """Sets all variables of a C session. OutOfMemory: nothing is changed, or the session is reset,
    so that no part of the state is new and the rest old."""
    for done, (place, (data, length)) in enumerate(zip(program.places, spans, strict=True)):
        try:
            check(lib.ingot_session_write_variable(session, *place, data, length))
        except Error as error:
            if done == 0:
                raise
            check(lib.ingot_session_reset(session))
            raise type(error)(
                f"variable '{program.variables[done].name}': {error}; as others were set before, "
                "the state was reset"
            ) from None


def _spans(variables: tuple[Value, ...], state: Mapping[str, Any]) -> Iterator[tuple[Any, int]]:
    """The bytes of each variable and their length; the pointers keep what they point into."""
    for variable in variables:
        value, what = state[variable.name], f"variable '{variable.name}'"
        is_array = type(value) is Array and value.dtype is variable.dtype and value.is_host
        bits = value if is_array else bits_of_input(value, variable.dtype, what)
        rows = bits.shape[:1] if bits.shape and _grows(variable) else variable.shape[:1]
        wanted = (*rows, *variable.shape[1:])
        if bits.shape != wanted:
            raise InvalidArgument(f"{what}: shape is {bits.shape}, but must be {variable.shape}")
        if is_array:
            yield value._map(), lib.ingot_buffer_view_layout(value._view).length
        else:
            data = ffi.from_buffer(bytes_of(bits))
            yield data, len(data)
