"""Devices of this machine, by URI. One C instance serves the whole process; what it logs goes
to the logger "ingot" of the standard library."""

from __future__ import annotations

import logging
import sys
from functools import cache, lru_cache
from typing import Any

from ingot.hal.errors import InvalidArgument
from ingot.hal.native import Handle, check, ffi, lib, text

__all__ = ["Device", "devices", "instance", "open_device"]


@lru_cache(maxsize=1)
def instance() -> Handle:
    """The C instance, made on first use."""
    out = ffi.new("ingot_instance_t **")
    # `python -X perf` names Python's own functions for the profiler; then kernels too.
    is_profiling = getattr(sys, "is_stack_trampoline_active", bool)()
    options = {"log": lib.ingot_python_log, "profiling": is_profiling}
    check(lib.ingot_instance_create(ffi.new("ingot_instance_options_t *", options), out))
    return Handle(out[0], lib.ingot_instance_release)


@ffi.def_extern(name="ingot_python_log")  # type: ignore[untyped-decorator]
def _log(_user: Any, severity: int, message: Any) -> None:
    level = logging.WARNING if severity >= lib.INGOT_LOG_WARNING else logging.INFO
    logging.getLogger("ingot").log(level, text(message))


class Device:
    """A device that is open. Devices with one URI share threads: `open_device` makes one."""

    __slots__ = ("handle", "uri")

    def __init__(self, uri: str) -> None:
        out = ffi.new("ingot_device_t **")
        check(lib.ingot_device_create(instance().pointer, uri.encode(), out))
        self.uri = uri
        self.handle = Handle(out[0], lib.ingot_device_release, instance())

    @property
    def is_host(self) -> bool:
        """Whether its memory is this process's own."""
        return self.uri.startswith("cpu")

    @property
    def description(self) -> str:
        """What it is and can do, for people."""
        return text(lib.ingot_device_description(self.handle.pointer))

    def __repr__(self) -> str:
        return f"Device({self.uri!r}: {self.description})"


_open_by_uri = cache(Device)


def open_device(uri: str = "cpu", threads: int | None = None) -> Device:
    """The device at `uri`, such as "cpu", with that many threads for the CPU.

    NotFound: there is no such device. InvalidArgument: `threads` fits no device.
    """
    if not isinstance(uri, str):
        raise InvalidArgument(
            f'device is {type(uri).__name__}, but must be a URI such as "cpu"; '
            "ingot.devices() lists them"
        )
    if threads is None:
        return _open_by_uri(uri)
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise InvalidArgument(f"threads is {threads!r}, but must be an integer of at least 1")
    if "?" in uri or not uri.startswith("cpu"):
        raise InvalidArgument(
            f'threads={threads} goes with device="cpu", not with {uri!r}; '
            "leave it out or write it into the URI"
        )
    return _open_by_uri(f"{uri.removesuffix('://')}://?threads={threads}")


def devices() -> list[Device]:
    """All devices of this machine."""
    uris: list[Any] = []
    while uri := lib.ingot_instance_device_uri(instance().pointer, len(uris)):
        uris.append(text(uri))
    return [open_device(uri) for uri in uris]
