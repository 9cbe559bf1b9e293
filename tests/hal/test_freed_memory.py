"""Memory of arrays that are gone goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import numpy as np
from ingot.hal.freed_memory import return_freed_memory
def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if "VmRSS" in line)
arrays = [np.ones(50_000, np.uint8) for _ in range(400)]
del arrays[:-1]
before = resident()
return_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries give it back")
def test_memory_between_arrays_in_use_is_returned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 15_000  # KB, of 20 MB
