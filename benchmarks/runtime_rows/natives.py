"""A native function of f32[16] -> f32[16] that copies, 64 of them one behind another in a call:
what each adds, in C and in Python, beside a kernel of the user's own that does the same."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from runtime_rows.row import Row

import ingot
from ingot import ops

COUNT = 64
SIGNATURE = "(f32[n]) -> (f32[n])"
FUNCTION = """
#include <string.h>
#include "ingot/ingot.h"
ingot_status_t copy(void *user, const ingot_native_call_t *call) {
  (void)user;
  memcpy(call->results[0].data, call->arguments[0].data, call->results[0].length);
  return NULL;
}
"""
KERNEL = """
static void copy(const float *x, float *y, int64_t n, int64_t i) {
  (void)i;
  for (int64_t k = 0; k < n; ++k) y[k] = x[k];
}
"""


def rows() -> Iterator[Row]:
    x = np.arange(16, dtype=np.float32)
    natives = ingot.compile(_chain(ops.native))
    kernel = ingot.Kernel(SIGNATURE, KERNEL, entry="copy", workload=[1])
    models = {
        "in C": ingot.load(natives, threads=1, natives={"copy": _in_c()}),
        "in Python": ingot.load(natives, threads=1, natives={"copy": lambda x: x}),
        "a kernel": ingot.load(
            ingot.compile(_chain(ops.kernel), kernels={"copy": kernel}), threads=1
        ),
    }
    sides = {name: lambda model=model: model(x) for name, model in models.items()}
    yield Row("native function", sides, COUNT)


def _chain(call: Any) -> Any:
    def program(x: Any) -> Any:
        for _ in range(COUNT):
            x = call("copy", SIGNATURE, x)
        return x

    return ingot.trace(program, ingot.spec("f32[16]"))


def _in_c() -> Any:
    include = Path(__file__).resolve().parents[2] / "csrc" / "include"
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "copy.c", Path(folder) / "copy.so"
        source.write_text(FUNCTION, encoding="utf-8")
        command = ["cc", "-O2", "-shared", "-fPIC", f"-I{include}", source, "-o", library]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library)).copy
