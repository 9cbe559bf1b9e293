"""Kernels built with the undefined-behaviour sanitizer meet every hostile integer and float."""

from __future__ import annotations

import ctypes
import itertools
import math
import operator

import numpy as np
import pytest

from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.targets.cpu import c_printer
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.kernel_runner import PLAIN, Loaded, build

UNDEFINED = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
BINARY = ("add", "sub", "mul", "div", "rem", "pow", "shift_left")
SHIFTS = ("shift_right_arithmetic", "shift_right_logical")


def sanitized(function, arrays, results) -> None:
    kernel = lower_map(function, PLAIN)
    path = build(c_printer.print_source([c_printer.print_kernel(kernel)]), "x86-64", UNDEFINED)
    Loaded(kernel, "x86-64", path=path)([*arrays, *results])


@pytest.mark.parametrize("name", ["i8", "i32", "i64", "u8"])
def test_integers(name: str) -> None:
    kind = dtype(name).numpy
    info = np.iinfo(kind)
    some = [info.min, info.max, 0, 1, 2, 7, 63, 64, info.max - 1, info.min + 1]
    some += [-1] if info.min < 0 else []
    pairs = np.array(list(itertools.product(some, some)), kind)
    a, b = (np.ascontiguousarray(pairs[:, place]) for place in (0, 1))
    names = [*BINARY, *SHIFTS]
    function = entry([f"{name}[{a.size}]"] * 2, lambda x, *y: [x.op(each, *y) for each in names])
    results = [np.empty_like(a) for _ in names]
    sanitized(function, [a, b], results)
    assert (results[names.index("div")][b == 0] == np.array(-1).astype(kind)).all()
    np.testing.assert_array_equal(results[names.index("rem")][b == 0], a[b == 0])


def test_float_to_integer_saturates() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**31, -(2.0**63), 300, -5], np.float32)
    names = ["i8", "i32", "i64", "u8", "u64"]
    function = entry(
        [f"f32[{x.size}]"], lambda b, x: [b.op("convert", x, dtype=dtype(name)) for name in names]
    )
    results = [np.empty(x.size, dtype(name).numpy) for name in names]
    sanitized(function, [x], results)
    for result in results:
        info = np.iinfo(result.dtype)
        assert result[:5].tolist() == [0, info.max, info.min, info.max, info.min]


def test_sizes_of_any_dispatch() -> None:
    """What checks the numbers of a dispatch meets any numbers, and says what has no value."""
    functions = {
        "add": operator.add,
        "mul": operator.mul,
        "floordiv": operator.floordiv,
        "mod": operator.mod,
        "broadcast": lambda a, b: {a: b, b: a}[1] if a != b else a,
    }
    lines = [
        f'__attribute__((visibility("default"))) int64_t of_{name}(int64_t a, int64_t b, '
        f"uint32_t *bad) {{ return size_{name}(a, b, bad); }}"
        for name in functions
    ]
    library = ctypes.CDLL(
        str(build("\n".join(['#include "kernel_misfit.h"', *lines]), "x86-64", UNDEFINED))
    )
    end = 1 << 63
    some = [-end, 1 - end, -7, -2, -1, 0, 1, 2, 3, 7, end - 2, end - 1]
    for name, function in functions.items():
        compiled = library[f"of_{name}"]
        compiled.restype = ctypes.c_int64
        compiled.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_uint32)]
        for a, b in itertools.product(some, some):
            bad = ctypes.c_uint32(0)
            found = compiled(a, b, bad)
            try:
                expected = function(a, b)
            except (ZeroDivisionError, KeyError):
                expected = math.inf
            assert bool(bad.value) == (not -end <= expected < end), (name, a, b)
            assert bad.value or found == expected, (name, a, b)
