"""The devices that tests run programs on: the CPU, and an OpenCL device where there is one.

INGOT_REQUIRE_OPENCL=1 makes it a failure that there is none. INGOT_TEST_OPENCL is the URI of
the device to take, such as opencl://gpu, or "off".
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest

import ingot
from ingot.compiler.targets.cpu.variants import VARIANTS

__all__ = [
    "best_variant",
    "load_best",
    "load_everywhere",
    "on_every_device",
    "opencl_device",
    "opencl_uri",
    "targets",
]


@cache
def opencl_uri() -> str | None:
    """The OpenCL device of this machine; None without one."""
    chosen = os.environ.get("INGOT_TEST_OPENCL")
    if chosen:
        return None if chosen == "off" else chosen
    uris = [device.uri for device in ingot.devices() if device.uri.startswith("opencl:")]
    if not uris and os.environ.get("INGOT_REQUIRE_OPENCL"):
        raise RuntimeError("INGOT_REQUIRE_OPENCL is set, and there is no OpenCL device")
    return uris[0] if uris else None


def opencl_device() -> str | None:
    """The same without the cache of programs. For a binary to keep, PoCL compiles every kernel once
    more, for groups of any size, which takes as long as all that runs."""
    uri = opencl_uri()
    return uri and f"{uri}{'&' if '?' in uri else '?'}cache=off"


@cache
def best_variant() -> str:
    """The name of the best variant that this machine's CPU runs."""
    level = ingot.devices()[0].description.replace(",", " ").split()[0]
    return max(name for name in VARIANTS if name <= level and name[:3] == level[:3])


def load_best(source: Any, **options: Any) -> ingot.Model:
    """Compiled for the best variant that this machine's CPU runs, and loaded: one variant is
    enough where results are what is tested, and takes a third of the time."""
    return ingot.load(ingot.compile(source, variants=[best_variant()], **options))


def targets() -> list[str]:
    """What to compile for."""
    return ["cpu", *(["opencl"] if opencl_uri() else [])]


def load_everywhere(source: Any, **options: Any) -> dict[str, ingot.Model]:
    """One module for all targets, loaded on a device of each: models by target. `source` may
    be that module already; else its CPU code is of the best variant, unless `options` say more.
    """
    options = {"variants": [best_variant()], **options}
    is_module = isinstance(source, ingot.Module)
    module = source if is_module else ingot.compile(source, target=targets(), **options)
    return {
        target: ingot.load(module, device=uri)
        for target, uri in zip(targets(), _uris(), strict=True)
    }


def _uris() -> list[str]:
    opencl = opencl_device()
    return ["cpu", *([opencl] if opencl else [])]


on_every_device = pytest.mark.parametrize("device", _uris(), ids=targets())
"""Runs a test once per device, whose URI it takes as the argument `device`."""
