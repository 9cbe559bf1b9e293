"""What all tests share: the root of the checkout, and a word on devices."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import drawn

# How long an example takes depends on what else the machine does.
settings.register_profile(
    "ingot",
    max_examples=100 * drawn.TIMES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ingot")

# Every compile of a test verifies its kernels: 5 ms for one that takes the C compiler 100.
os.environ["INGOT_VERIFY_KERNELS"] = "1"

# What PoCL and jax have compiled, kept between runs: it takes seconds for a program.
BUILD = Path(__file__).resolve().parent.parent / "build"
os.environ.setdefault("POCL_CACHE_DIR", str(BUILD / "pocl-cache"))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(BUILD / "jax-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Kernels that run once or twice: LLVM's optimiser takes longer than what it saves.
os.environ.setdefault("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")
# A reference runs once: what LLVM would make faster costs more than it saves.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that no process is left alone with one at the end; those
    that are long only in a long run."""
    if drawn.TIMES == 1:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


# What is imported stays, so collections of garbage need not look at it.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on there is garbage; graphs, of which each has thousands of objects, are none."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line where programs ran on the CPU only."""
    devices = sys.modules.get("tests.support.devices")
    if devices is not None and devices.opencl_uri() is None:
        terminalreporter.write_line(
            "no OpenCL device: programs ran on the CPU only (Debian: apt install pocl-opencl-icd)"
        )


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent
