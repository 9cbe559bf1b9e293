"""Writes the C source of the extension `_ingot`; CMake runs it and compiles the result.

    python build_extension.py OUTPUT.c

The declarations are those of the C headers themselves, so there is no second copy.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from hal import header  # noqa: E402  the package `ingot` is not installed yet

PUBLIC_HEADERS = ("ingot.h", "opencl.h")
PRIVATE_HEADERS = ("buffer.h", "call.h", "debug.h", "dlpack.h", "lz4.h", "record.h", "submit.h")

# Called by C: for every line of the log (`hal/device.py`), every few milliseconds of a call
# (`runtime/limits.py`), where a debugger stops one (`runtime/debugging.py`), where one calls a
# native function (`runtime/natives.py`), when a submitted one has failed (`runtime/submission.py`),
# for the bytes of a state (`runtime/state.py`), for a program's weights (`runtime/parameters.py`),
# and when it lets go of an object (`hal/reference.py`).
CALLBACKS = """
extern "Python" void ingot_python_log(void *user, int32_t severity, const char *message);
extern "Python+C" bool ingot_python_handle_signals(void);
extern "Python" ingot_status_t ingot_python_find_parameter(
    void *user, const char *scope, const char *key, ingot_parameter_span_t *out_span);
extern "Python+C" void ingot_python_failed(ingot_python_submission_t *submission);
extern "Python+C" bool ingot_python_stopped(void *user, const ingot_debug_stop_t *stop);
extern "Python" ingot_status_t ingot_python_native(void *user, const ingot_native_call_t *call);
extern "Python" void ingot_python_release(void *user, void *object);
extern "Python" bool ingot_python_write(void *user, const void *data, size_t length);
extern "Python" bool ingot_python_read(void *user, void *data, size_t length);
"""


def main(output: str) -> None:
    public = [header.read(name) for name in PUBLIC_HEADERS]
    private = [(FOLDER / name).read_text(encoding="utf-8") for name in PRIVATE_HEADERS]
    ffi = cffi.FFI()
    ffi.cdef(header.declarations(header.read("kernel_abi.h")))
    for text in (*public, *private):
        ffi.cdef(header.declarations(text))
        for name, value in header.constants(text).items():
            if isinstance(value, int):
                ffi.cdef(f"#define {name} {value}")
    ffi.cdef(CALLBACKS)
    includes = [*(f"ingot/{name}" for name in PUBLIC_HEADERS), *PRIVATE_HEADERS]
    source = "".join(f'#include "{name}"\n' for name in includes)
    ffi.set_source("ingot.hal._ingot", source)
    ffi.emit_c_code(output)


if __name__ == "__main__":
    main(sys.argv[1])
