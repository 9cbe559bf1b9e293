"""A program: a module made ready on a device, with its parameters. Sessions share it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ingot.hal.checkpoint import Checkpoint
from ingot.hal.device import Device, instance
from ingot.hal.errors import (
    DataLoss,
    DeadlineExceeded,
    Error,
    Incompatible,
    InvalidArgument,
    NotFound,
)
from ingot.hal.file_kind import COPY_AGAIN, START_LENGTH, why_no_file, why_no_module
from ingot.hal.gguf import MAGIC, Gguf
from ingot.hal.native import Handle, Uncopied, check, ffi, lib, raise_kept, text
from ingot.hal.whole_file import c_text, open_regular
from ingot.runtime.frame import bytes_of
from ingot.runtime.limits import set_limits
from ingot.runtime.natives import Natives
from ingot.runtime.signature import Signature, read_signature, read_variables
from ingot.runtime.tensors import bits_of_parameter

if TYPE_CHECKING:
    from ingot.runtime.origin import Origin

__all__ = ["HostKernel", "Program", "load_module"]

_SHOWN = 5  # names in a message


@dataclass(frozen=True)
class HostKernel:
    """A kernel that the host runs for a model's device."""

    kernel: str
    layer: str  # the source layers that it computes, "" if unknown
    reason: str  # why the device does not run it


class Program(Uncopied):
    """The module, and the C program made from it. It never changes.

    `origin` is how another process makes it, or why none can."""

    origin: Origin | str = "it was not made by ingot.load"

    def __init__(
        self,
        source: Any,
        device: Device,
        parameters: Any,
        *,
        verify: bool,
        timeout: float | None,
        zero_memory: bool,
        natives: Mapping[str, Any] | Sequence[tuple[str, Any]] | None = None,
    ) -> None:
        options = ffi.new("ingot_program_options_t *", {"zero_memory": zero_memory})
        own = getattr(source, "natives", {})  # of a module that was compiled here
        table = Natives(own, natives, device)
        options.natives, options.native_count = table.table, table.count
        set_limits(options.limits, None, timeout)
        begin = time.monotonic()
        self.device = device
        self._module = load_module(source, verify)
        out = ffi.new("ingot_program_t **")
        modules = ffi.new("ingot_module_t *[]", [self._module.pointer])
        with _open_parameters(self._module.pointer, parameters) as weights:
            if timeout is not None:
                rest = timeout - (time.monotonic() - begin)
                if rest <= 0:
                    raise DeadlineExceeded(f"load has run longer than its timeout of {timeout} s")
                set_limits(options.limits, None, rest)
            arguments = (device.handle.pointer, modules, 1, weights, options, out)
            check(lib.ingot_program_create(*arguments))
        self._handle = Handle(out[0], lib.ingot_program_release, self._module, device, table)
        raise_kept()
        self.pointer = self._handle.pointer
        self.signatures = tuple(self._signatures())
        self.module = self._module.pointer
        self.variables = read_variables(self.module)
        self.host_kernels = tuple(self._host_kernels())

    def metadata(self) -> dict[str, Any]:
        """What the compiler wrote into the module."""
        info = lib.ingot_module_info(self.module)
        written = bytes(ffi.buffer(info.metadata, info.metadata_length))
        found: dict[str, Any] = json.loads(written or b"{}")
        return found

    def _signatures(self) -> Iterator[Signature]:
        module, function = ffi.new("ingot_module_t **"), ffi.new("uint32_t *")
        for ordinal in range(lib.ingot_program_function_count(self.pointer)):
            check(lib.ingot_program_function(self.pointer, ordinal, module, function))
            yield read_signature(module[0], function[0])

    def _host_kernels(self) -> Iterator[HostKernel]:
        out = ffi.new("ingot_host_kernel_t *")
        ordinal = 0
        while lib.ingot_program_host_kernel(self.pointer, ordinal, out):
            yield HostKernel(text(out.kernel), text(out.layer), text(out.reason))
            ordinal += 1


def load_module(source: Any, verify: bool) -> Handle:
    """The C module in a path, bytes or compiled module, checked; see `runtime.load`."""
    is_path = isinstance(source, (str, os.PathLike))
    if not is_path and (
        isinstance(source, (bytearray, memoryview)) or hasattr(source, "__bytes__")
    ):
        source = bytes(source)
    if not is_path and not isinstance(source, bytes):
        raise InvalidArgument(
            f"cannot load a {type(source).__name__}; pass a path, bytes, or a compiled module, "
            "which ingot.compile makes of a model, or of several by name: "
            "ingot.compile({'a': ..., 'b': ...})"
        )
    try:
        return _load_file(source, verify) if is_path else _load_bytes(source, verify)
    except (DataLoss, Incompatible, InvalidArgument) as error:
        try:
            reason = _why_not(source, isinstance(error, InvalidArgument))
        except (Error, OSError):  # it is gone by now
            reason = None
        if reason is None and is_path and isinstance(error, DataLoss):
            reason = f"{error}; {COPY_AGAIN}"
        if reason is None:
            raise
        raise type(error)(reason) from None


def _why_not(source: bytes | str | os.PathLike[str], is_unread: bool) -> str | None:
    """What the source is, if it is known and no module."""
    if not is_unread:
        return why_no_module(*_start_and_name(source))
    if isinstance(source, bytes) or not os.path.isdir(source):
        return None
    return why_no_file(os.listdir(source), os.fsdecode(source))


def _load_file(path: str | os.PathLike[str], verify: bool) -> Handle:
    out = ffi.new("ingot_module_t **")
    flags = lib.INGOT_MODULE_VERIFY_CONSTANTS if verify else 0
    c_instance = instance()
    check(lib.ingot_module_load_file(c_instance.pointer, c_text("path", path), flags, out))
    return Handle(out[0], lib.ingot_module_release, c_instance)


def _load_bytes(source: bytes, verify: bool) -> Handle:
    out = ffi.new("ingot_module_t **")
    flags = lib.INGOT_MODULE_VERIFY_CONSTANTS if verify else 0
    c_instance = instance()
    data = ffi.from_buffer(source)
    arguments = (c_instance.pointer, data, len(source), flags, ffi.NULL, ffi.NULL, out)
    check(lib.ingot_module_load_memory(*arguments))
    return Handle(out[0], lib.ingot_module_release, c_instance, data)


def _start_and_name(source: bytes | str | os.PathLike[str]) -> tuple[bytes, str]:
    """The first bytes of what is loaded, and its name."""
    if isinstance(source, bytes):
        return source[:START_LENGTH], ""
    with open_regular(source) as file:
        return file.read(START_LENGTH), os.fsdecode(source)


@contextmanager
def _open_parameters(module: Any, parameters: Any) -> Iterator[Any]:
    """The C table of parameters, for as long as the program is being made."""
    keys = _parameter_keys(module)
    if parameters is None:
        if keys:
            raise NotFound(
                f"the module needs {len(keys)} parameters ({_some(keys)}); "
                "pass parameters= with a safetensors or GGUF file, a model's folder or a dict of "
                "arrays"
            )
        yield ffi.NULL
    elif isinstance(parameters, Mapping):
        table, keep = _table_of_arrays(parameters, keys)
        yield table
        del keep
    elif isinstance(parameters, (str, os.PathLike)) and (arrays := _arrays_of(parameters)):
        table, keep = _table_of_arrays(arrays, keys)
        yield table
        del keep
    elif isinstance(parameters, (str, os.PathLike)):
        out = ffi.new("ingot_safetensors_t **")
        check(lib.ingot_safetensors_open(instance().pointer, c_text("path", parameters), out))
        try:
            yield ffi.new("ingot_parameters_t *", lib.ingot_safetensors_parameters(out[0]))
        finally:
            lib.ingot_safetensors_close(out[0])
    else:
        raise InvalidArgument(
            f"parameters is {type(parameters).__name__}, but must be the path of a "
            "safetensors or GGUF file, of a model's folder, or a dict of arrays"
        )


def _arrays_of(path: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    """The tensors of a GGUF file or of a model's folder; None: it is another file."""
    if os.path.isfile(os.path.join(path, "config.json")):
        return Checkpoint(path).parameters()
    try:
        start, _ = _start_and_name(path)
    except OSError:
        return None  # which the reader of safetensors files says
    return Gguf(path).parameters() if start.startswith(MAGIC) else None


def _parameter_keys(module: Any) -> list[str]:
    info = ffi.new("ingot_parameter_info_t *")
    keys = []
    for ordinal in range(lib.ingot_module_info(module).parameter_count):
        check(lib.ingot_module_parameter(module, ordinal, info))
        keys.append(text(info.key))
    return keys


def _table_of_arrays(parameters: Mapping[str, Any], keys: list[str]) -> tuple[Any, list[Any]]:
    """The C table, and what it points into. NotFound names the keys that are missing."""
    missing = [key for key in keys if key not in parameters]
    if missing:
        raise NotFound(
            f"{len(missing)} of {len(keys)} parameters are missing: {_some(missing)}; "
            f"parameters= has {_some(list(parameters)) or 'nothing'}"
        )
    names = [ffi.new("char[]", key.encode()) for key in keys]
    c_keys = ffi.new("const char *[]", names)
    spans = ffi.new("ingot_parameter_span_t[]", len(keys))
    keep: list[Any] = [names, c_keys, spans]
    for ordinal, key in enumerate(keys):
        bits, dtype = bits_of_parameter(parameters[key], f"parameter '{key}'")
        data, dims = ffi.from_buffer(bytes_of(bits)), ffi.new("int64_t[]", bits.shape)
        spans[ordinal] = {
            "data": data,
            "length": bits.nbytes,
            "dtype": dtype.code,
            "rank": bits.ndim,
            "dims": dims,
        }
        keep += [data, dims]
    rows = {"count": len(keys), "keys": c_keys, "spans": spans}
    table = ffi.new("ingot_python_parameters_t *", rows)
    keep.append(table)
    return ffi.new("ingot_parameters_t *", lib.ingot_python_parameters(table)), keep


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown + (", ..." if len(names) > _SHOWN else "")
