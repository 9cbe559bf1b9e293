"""Devices of this machine, by URI. One C instance serves the whole process; what it logs goes
to the logger "ingot" of the standard library."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from ingot.hal.errors import Error, InvalidArgument
from ingot.hal.native import Handle, Uncopied, check, ffi, keep_error, lib, text
from ingot.hal.whole_file import c_text

__all__ = ["Device", "devices", "instance", "open_device"]

_PRIORITIES = ("low", "normal", "high")


@lru_cache(maxsize=1)
def instance() -> Handle:
    """The C instance, made on first use."""
    out = ffi.new("ingot_instance_t **")
    # `python -X perf` names Python's own functions for the profiler; then kernels too.
    is_profiling = getattr(sys, "is_stack_trampoline_active", bool)()
    drivers = ffi.new("ingot_driver_t *[]", [lib.ingot_opencl_driver()])
    options = {
        "log": lib.ingot_python_log,
        "profiling": is_profiling,
        "drivers": drivers,
        "driver_count": len(drivers),
    }
    check(lib.ingot_instance_create(ffi.new("ingot_instance_options_t *", options), out))
    return Handle(out[0], lib.ingot_instance_release)


@ffi.def_extern(name="ingot_python_log", onerror=keep_error)  # type: ignore[untyped-decorator]
def _log(_user: Any, severity: int, message: Any) -> None:
    level = logging.WARNING if severity >= lib.INGOT_LOG_WARNING else logging.INFO
    logging.getLogger("ingot").log(level, text(message))


class Device(Uncopied):
    """A device that is open. Devices with one URI share threads: `open_device` makes one."""

    __slots__ = ("__weakref__", "handle", "is_borrowed", "uri")

    def __init__(self, uri: str, handle: Handle, is_borrowed: bool = False) -> None:
        """`handle` owns a C device; `uri` is what it is called, by which `open_device` finds it
        again unless it is borrowed from another library."""
        self.uri = uri
        self.handle = handle
        self.is_borrowed = is_borrowed

    def __copy__(self) -> Device:
        return self  # it never changes

    def __deepcopy__(self, _memo: object) -> Device:
        return self

    @property
    def is_host(self) -> bool:
        """Whether its memory is this process's own."""
        return self.uri.startswith("cpu")

    @property
    def description(self) -> str:
        """What it is and can do, for people."""
        return text(lib.ingot_device_description(self.handle.pointer))

    def runs(self, format: str, features: int = 0) -> bool:
        """Whether it runs code of a module's variant: of this format, such as "elf-aarch64", with
        these INGOT_CPU_* bits of the module layout."""
        return bool(lib.ingot_device_runs(self.handle.pointer, format.encode(), features))

    def avoids(self, features: int) -> bool:
        """Whether code with these bits takes it longer than what does without: such a variant is
        chosen where there is no other."""
        return bool(lib.ingot_device_avoids(self.handle.pointer, features))

    def __repr__(self) -> str:
        return f"Device({self.uri!r}: {self.description})"


@cache
def _open_by_uri(uri: str) -> Device:
    if uri.startswith("opencl"):
        _opencl().find_library()
    out = ffi.new("ingot_device_t **")
    uri_text = c_text("device", uri)
    check(lib.ingot_device_create(instance().pointer, uri_text, ffi.NULL, out))
    return Device(uri, Handle(out[0], lib.ingot_device_release, instance()))


def _opencl() -> Any:
    """What is known of OpenCL: imported when it is first asked for, since it needs this file."""
    return import_module("ingot.hal.opencl")


def open_device(
    device: Any = "cpu",
    threads: int | None = None,
    *,
    affinity: Iterable[int] | None = None,
    priority: str | None = None,
    spin: bool | None = None,
) -> Device:
    """The device at a URI, such as "cpu", or that of a pyopencl context or command queue.

    Of the CPU: `threads` that work for one call, with the calling one. The others run on the
    processors in `affinity`, with a `priority` beside the system's other threads ("low", "normal"
    or "high"), and sleep at once where they wait if not `spin`: less power, later answers. Devices
    that are opened alike are one, whose threads serve all models.

    NotFound: there is no such device. InvalidArgument: an option fits no device, or is in the URI
    already.
    """
    options = dict(_cpu_options(threads, affinity, priority, spin))
    named = ", ".join(f"{name}={value}" for name, value in options.items())
    if isinstance(device, Device):
        if named:
            raise InvalidArgument(f"{device} is open: leave {named} out")
        return device
    if not isinstance(device, str):
        wrapped: Device | None = _opencl().wrap_device(device)
        if wrapped is not None and not named:
            return wrapped
        raise InvalidArgument(
            f'device is {type(device).__name__}, but must be a URI such as "cpu", or a context '
            "or queue of pyopencl; ingot.devices() lists the devices"
            if wrapped is None
            else f'{named} goes with device="cpu" only; leave it out'
        )
    if not named:
        return _open_by_uri(device)
    if "?" in device or not device.startswith("cpu"):
        raise InvalidArgument(
            f'{named} goes with device="cpu", not with {device!r}; '
            "leave it out or write it into the URI"
        )
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return _open_by_uri(f"{device.removesuffix('://')}://?{query}")


def _cpu_options(
    threads: int | None, affinity: Iterable[int] | None, priority: str | None, spin: bool | None
) -> Iterator[tuple[str, object]]:
    """Those that are given, as a URI spells them."""
    if threads is not None:
        if not _is_integer(threads) or threads < 1:
            raise InvalidArgument(f"threads is {threads!r}, but must be an integer of at least 1")
        yield "threads", threads
    if affinity is not None:
        is_list = isinstance(affinity, Iterable) and not isinstance(affinity, (str, bytes))
        processors = [*affinity] if is_list else []
        if not processors or not all(_is_integer(each) and each >= 0 for each in processors):
            raise InvalidArgument(
                f"affinity is {affinity!r}, but must be the numbers of processors, as [0, 1]"
            )
        yield "affinity", ",".join(map(str, sorted({*processors})))
    if priority is not None:
        if priority not in _PRIORITIES:
            raise InvalidArgument(f"priority is {priority!r}, but must be one of {_PRIORITIES}")
        yield "priority", priority
    if spin is not None:
        yield "spin", "on" if spin else "off"


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def devices() -> list[Device]:
    """All devices of this machine. One that cannot be opened is left out, and named in the
    log."""
    _opencl().find_library()
    uris: list[str] = []
    while uri := lib.ingot_instance_device_uri(instance().pointer, len(uris)):
        uris.append(text(uri))
    return [device for uri in uris for device in _open_listed(uri)]


def _open_listed(uri: str) -> list[Device]:
    try:
        return [open_device(uri)]
    except Error as error:
        logging.getLogger("ingot").warning("device %s cannot be opened: %s", uri, error)
        return []
