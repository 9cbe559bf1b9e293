"""A program: modules made ready on a device, with their parameters. Sessions share it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO

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
from ingot.hal.module_bytes import ModuleBytes
from ingot.hal.native import Handle, Uncopied, check, ffi, lib, raise_kept, text
from ingot.hal.whole_file import c_text, open_regular
from ingot.runtime.limits import LONGEST, set_limits
from ingot.runtime.natives import Natives
from ingot.runtime.parameters import open_parameters
from ingot.runtime.signature import Signature, Value, read_signature, read_variables

if TYPE_CHECKING:
    from ingot.runtime.origin import Origin

__all__ = ["HostKernel", "Program", "load_module", "module_source", "read_metadata"]


@dataclass(frozen=True)
class HostKernel:
    """A kernel that the host runs for a model's device."""

    kernel: str
    layer: str  # the source layers that it computes, "" if unknown
    reason: str  # why the device does not run it


class Program(Uncopied):
    """The modules, and the C program made from them. Only its parameters change, by a swap.

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
        memory_limit: int | None = None,
        shares_slab: bool = False,
    ) -> None:
        verify, zero_memory, shares_slab = map(bool, (verify, zero_memory, shares_slab))
        given = {"zero_memory": zero_memory, "memory_limit": _limit(memory_limit)}
        options = ffi.new("ingot_program_options_t *", given)
        set_limits(options.limits, None, timeout)
        self.shares_slab = shares_slab  # of its sessions
        sources = named_sources(source)
        own: dict[str, Any] = {}  # of modules that were compiled here
        for each in sources.values():
            own |= getattr(each, "natives", {})
        table = Natives(own, natives, device)
        self._options: dict[str, Any] = {
            "verify": verify,
            "timeout": timeout,
            "zero_memory": zero_memory,
            "memory_limit": memory_limit,
            "shares_slab": shares_slab,
        }
        self.natives = {**own, **dict(natives or {})}  # functions by name
        options.natives, options.native_count = table.table, table.count
        begin = time.monotonic()
        self.device = device
        self.names = tuple(sources)
        scopes = [ffi.new("char[]", name.encode()) for name in sources]
        options.names = c_scopes = ffi.new("char *[]", scopes)
        self._loaded = {name: load_module(each, verify) for name, each in sources.items()}
        self.modules = tuple(each.pointer for each in self._loaded.values())
        out = ffi.new("ingot_program_t **")
        modules = ffi.new("ingot_module_t *[]", self.modules)
        with open_parameters(self.modules, parameters) as (weights, packed):
            set_limits(options.limits, None, _rest(timeout, begin))
            names = ffi.new("char *[]", packed)
            options.packed, options.packed_count = names, len(packed)
            options.verify_packed = verify
            arguments = (device.handle.pointer, modules, len(self.modules), weights, options, out)
            check(lib.ingot_program_create(*arguments))
            keep = (*self._loaded.values(), device, table)
            self._handle = Handle(out[0], lib.ingot_program_release, *keep)
        del c_scopes
        raise_kept()
        self.pointer = self._handle.pointer
        self.signatures = tuple(self._signatures())
        self.places = tuple(self._places())
        self.variables = tuple(self._variables())
        self.host_kernels = tuple(self._host_kernels())
        self._swapping = Lock()

    def exchange(self, name: str, source: Any, parameters: Any) -> Program:
        """A program with another module in the place of the one of that name."""
        if not name or name not in self._loaded:
            raise NotFound(
                f"there is no module called {name!r}; the modules are: "
                f"{', '.join(filter(None, self.names)) or 'one without a name'}"
            )
        sources = {**self._loaded, name: source}
        return Program(sources, self.device, parameters, natives=self.natives, **self._options)

    def swap_parameters(self, parameters: Any, scope: str | None, timeout: float | None) -> None:
        """See `Model.swap_parameters`."""
        limits = ffi.new("ingot_call_options_t *")
        set_limits(limits, None, timeout)
        c_scope = ffi.NULL if scope is None else c_text("scope", scope)
        with self._swapping, open_parameters(self.modules, parameters) as (table, packed):
            if packed:
                raise InvalidArgument(
                    "packed weights cannot be swapped in; give the parameters themselves"
                )
            check(lib.ingot_program_swap_parameters(self.pointer, c_scope, table, limits))
            if not isinstance(self.origin, str):
                why = "its parameters were swapped; load it anew with those it has now"
                self.origin = replace(self.origin, weights_obstacle=why)
        raise_kept()

    def save_weights(self, file: BinaryIO, scope: str | None) -> None:
        """See `Model.save_weights`."""
        if len(self.modules) > 1:
            raise InvalidArgument(
                "packed weights are those of one module: load each alone to write its file, and "
                "give all files as parameters="
            )
        c_scope = ffi.NULL if scope is None else c_text("scope", scope)
        handle = ffi.new_handle(file)
        arguments = (self.pointer, self.modules[0], c_scope, lib.ingot_python_write, handle)
        check(lib.ingot_program_save_weights(*arguments))

    def metadata(self) -> dict[str, Any]:
        """What the compiler wrote into the module; of several by their names."""
        found = dict(zip(self.names, map(read_metadata, self.modules), strict=True))
        return found.get("", found)

    def _places(self) -> Iterator[tuple[Any, int]]:
        """The C module and the ordinal of each variable."""
        for module in self.modules:
            for ordinal in range(lib.ingot_module_info(module).variable_count):
                yield module, ordinal

    def _variables(self) -> Iterator[Value]:
        for name, module in zip(self.names, self.modules, strict=True):
            for variable in read_variables(module):
                yield replace(variable, name=_qualified(name, variable.name))

    def _signatures(self) -> Iterator[Signature]:
        module, function = ffi.new("ingot_module_t **"), ffi.new("uint32_t *")
        for ordinal in range(lib.ingot_program_function_count(self.pointer)):
            check(lib.ingot_program_function(self.pointer, ordinal, module, function))
            signature = read_signature(module[0], function[0])
            name = self.names[self.modules.index(module[0])]
            yield replace(signature, name=_qualified(name, signature.name))

    def _host_kernels(self) -> Iterator[HostKernel]:
        out = ffi.new("ingot_host_kernel_t *")
        ordinal = 0
        while lib.ingot_program_host_kernel(self.pointer, ordinal, out):
            yield HostKernel(text(out.kernel), text(out.layer), text(out.reason))
            ordinal += 1


def _rest(timeout: float | None, begin: float) -> float | None:
    """What is left of a timeout since `begin`. DeadlineExceeded: nothing."""
    if not isinstance(timeout, (int, float)):
        return timeout
    rest = min(timeout, LONGEST) - (time.monotonic() - begin)
    if rest <= 0:
        raise DeadlineExceeded(f"load has run longer than its timeout of {timeout} s")
    return rest


def named_sources(source: Any) -> dict[str, Any]:
    """The modules by their names; one that is given alone has none. InvalidArgument: a name is no
    identifier."""
    if not isinstance(source, Mapping):
        return {"": source}
    if not source:
        raise InvalidArgument("no module to load: the dict of modules is empty")
    for name in source:
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidArgument(f"the name of a module is {name!r}, expected an identifier")
    return dict(source)


def _qualified(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def read_metadata(module: Any) -> dict[str, Any]:
    """What the compiler wrote into a C module. DataLoss: it is no JSON object."""
    info = lib.ingot_module_info(module)
    written = bytes(ffi.buffer(info.metadata, info.metadata_length))
    try:
        found = json.loads(written or b"{}")
    except (RecursionError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise DataLoss(f"the module's metadata is no JSON object; {COPY_AGAIN}")
    return found


def _limit(memory_limit: int | None) -> int:
    if memory_limit is None:
        return 0
    if not isinstance(memory_limit, int) or memory_limit < 1:
        raise InvalidArgument(
            f"memory_limit is {memory_limit!r}, but must be a number of bytes of at least 1"
        )
    return min(memory_limit, sys.maxsize)


def module_source(source: Any) -> Any:
    """What a module is loaded from, with bytes where weights are read fastest: those of a compiled
    module as they are, others are copied."""
    if isinstance(source, (str, os.PathLike, Handle, ModuleBytes)):
        return source
    if isinstance(contents := getattr(source, "contents", None), ModuleBytes):
        return contents
    if isinstance(source, (bytes, bytearray, memoryview)) or hasattr(source, "__bytes__"):
        return ModuleBytes(bytes(source))
    return source


def load_module(source: Any, verify: bool) -> Handle:
    """The C module in a path, bytes or compiled module, checked; see `runtime.load`."""
    source = module_source(source)
    if isinstance(source, Handle):
        return source
    is_path = isinstance(source, (str, os.PathLike))
    if not is_path and not isinstance(source, ModuleBytes):
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


def _why_not(source: ModuleBytes | str | os.PathLike[str], is_unread: bool) -> str | None:
    """What the source is, if it is known and no module."""
    if not is_unread:
        return why_no_module(*_start_and_name(source))
    if isinstance(source, ModuleBytes) or not os.path.isdir(source):
        return None
    return why_no_file(os.listdir(source), os.fsdecode(source))


def _load_file(path: str | os.PathLike[str], verify: bool) -> Handle:
    out = ffi.new("ingot_module_t **")
    flags = lib.INGOT_MODULE_VERIFY_CONSTANTS if verify else 0
    c_instance = instance()
    check(lib.ingot_module_load_file(c_instance.pointer, c_text("path", path), flags, out))
    return Handle(out[0], lib.ingot_module_release, c_instance)


def _load_bytes(source: ModuleBytes, verify: bool) -> Handle:
    out = ffi.new("ingot_module_t **")
    flags = lib.INGOT_MODULE_VERIFY_CONSTANTS if verify else 0
    c_instance = instance()
    data = ffi.from_buffer(source.array)
    arguments = (c_instance.pointer, data, len(source), flags, ffi.NULL, ffi.NULL, out)
    check(lib.ingot_module_load_memory(*arguments))
    return Handle(out[0], lib.ingot_module_release, c_instance, data)


def _start_and_name(source: ModuleBytes | str | os.PathLike[str]) -> tuple[bytes, str]:
    """The first bytes of what is loaded, and its name."""
    if isinstance(source, ModuleBytes):
        return bytes(source.view[:START_LENGTH]), ""
    with open_regular(source) as file:
        return file.read(START_LENGTH), os.fsdecode(source)
