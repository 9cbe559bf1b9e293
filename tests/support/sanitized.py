"""A pytest plugin: run tests with the C runtime and all kernels under the sanitizers.

`make sanitized` builds the extension with ASan and UBSan, and runs pytest with `-p
tests.support.sanitized`, which puts that extension in the place of the usual one and compiles
kernels with the sanitizers too. The runtime of such a build loads kernels by dlopen, and
forbids all bytes around the bindings of a dispatch while it runs. The first error ends the
process with a report. With pytest-xdist, workers run the tests, and are what is sanitized.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from ingot.compiler.targets.cpu import toolchain
from ingot.compiler.targets.cpu.compilers import Compiler
from ingot.compiler.targets.cpu.variants import Variant

__all__ = ["pytest_configure"]

EXTENSION = Path(__file__).parents[2] / "build/sanitized/hal/extension/_ingot.abi3.so"
SANITIZERS = (
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O0"),
    "--param=asan-instrumentation-with-call-threshold=0",  # calls compile faster than code
)
_UNWANTED = ("-O3", "-ffreestanding", "-nostdlib", "-Wl,--no-undefined", "-Wl,-s")


def _use_extension() -> None:
    """Put the sanitized extension where `ingot.hal.native` finds it."""
    name = "ingot.hal._ingot"
    loader = importlib.machinery.ExtensionFileLoader(name, str(EXTENSION))
    spec = importlib.util.spec_from_file_location(name, EXTENSION, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module


def _sanitize_kernels() -> None:
    """Compile kernels for one variant with the sanitizers; the system binds what they call."""
    for name in ("compile_command", "link_command"):
        setattr(Compiler, name, _sanitized(getattr(Compiler, name)))
    one = toolchain.default_variants

    def best(machine: str, products: Collection[str] = ()) -> tuple[Variant, ...]:
        from tests.support.kernel_runner import dot4_variants  # it loads the extension

        variants = one(machine, products)
        runs = tuple(each for each in variants if each.name in dot4_variants())
        return runs[:1] or variants[-1:]

    toolchain.default_variants = best


def _sanitized(command: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The command of a compiler with the sanitizers."""

    def sanitized(*arguments: Any) -> list[str]:
        flags = [flag for flag in command(*arguments) if flag not in _UNWANTED]
        return [*flags, *SANITIZERS]

    return sanitized


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is collected, in each process that runs tests."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # its workers inherit the environment
    os.environ.pop("LD_PRELOAD", None)  # for this process only: compilers need no sanitizer
    _use_extension()
    _sanitize_kernels()
