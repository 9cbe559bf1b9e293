"""The devices that tests run programs on: the CPU, and an OpenCL device where there is one.

INGOT_REQUIRE_OPENCL=1 makes it a failure that there is none; INGOT_TEST_DEVICES=cpu leaves
OpenCL out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import ingot

__all__ = ["load_everywhere", "opencl_uri", "targets"]


@cache
def opencl_uri() -> str | None:
    """The first OpenCL device of this machine; None without one."""
    if os.environ.get("INGOT_TEST_DEVICES") == "cpu":
        return None
    uris = [device.uri for device in ingot.devices() if device.uri.startswith("opencl:")]
    if not uris and os.environ.get("INGOT_REQUIRE_OPENCL"):
        raise RuntimeError("INGOT_REQUIRE_OPENCL is set, and there is no OpenCL device")
    return uris[0] if uris else None


def targets() -> list[str]:
    """What to compile for."""
    return ["cpu", *(["opencl"] if opencl_uri() else [])]


def load_everywhere(source: Any, **options: Any) -> dict[str, ingot.Model]:
    """One module for all targets, loaded on a device of each: models by target. `source` may
    be that module already."""
    is_module = isinstance(source, ingot.Module)
    module = source if is_module else ingot.compile(source, target=targets(), **options)
    uris: Sequence[str] = ["cpu", opencl_uri() or ""]
    return {
        target: ingot.load(module, device=uri) for target, uri in zip(targets(), uris, strict=False)
    }
