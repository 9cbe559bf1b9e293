"""An entry of every kernel class, small enough for the interpreter of loop IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.compiler.ir import Function
from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.kernel import Kernel
from ingot.hal.spec import dtype
from tests.support.comparators import sorter
from tests.support.entries import entry
from tests.support.scatters import ROWS

__all__ = ["ENTRIES", "interpret"]

F32, I32, I64 = map(dtype, ("f32", "i32", "i64"))

ENTRIES: dict[str, Callable[[], Function]] = {
    "map": lambda: entry(
        ["f32[n,5]", "f32[5]"],
        lambda b, x, y: b.op(
            "mul", b.op("add", x, b.op("broadcast", y, shape=x.type.shape, dimensions=(1,))), x
        ),
        {"n": (1, None)},
    ),
    "transposed map": lambda: entry(
        ["i16[7,n]"], lambda b, x: b.op("transpose", x, permutation=(1, 0)), {"n": (1, None)}
    ),
    "row": lambda: entry(
        ["f32[3,n]"], lambda b, x: b.op("reduce", x, axes=(1,), kind="add"), {"n": (1, None)}
    ),
    "position": lambda: entry(
        ["f32[3,n]"], lambda b, x: b.op("arg_max", x, axis=1, dtype=I64), {"n": (1, None)}
    ),
    "scaled": lambda: entry(
        ["i8[n,64]", "u8[2,8,16,4]", "f32[2,2,16]", "f32[n,2]", "f32[n,2]"],
        lambda b, *x: b.op("dot_scaled", *x, n=20, coding=dtype("u4"), group=32, dtype=F32),
        {"n": (1, None)},
    ),
    "contraction": lambda: entry(
        ["f32[n,9]", "f32[9,6]"],
        lambda b, x, y: b.op(
            "dot_general", x, y, lhs_batch=(), rhs_batch=(), lhs_contract=(1,), rhs_contract=(0,)
        ),
        {"n": (1, None)},
    ),
    "convolution": lambda: entry(
        ["f32[1,6,5,3]", "f32[1,18,16,1]"],
        lambda b, x, w: b.op(
            "conv_packed", x, w, window=(2, 3), strides=(1, 1), padding=((1, 0), (1, 1)), n=16
        ),
    ),
    "planar": lambda: entry(
        ["f32[n,3,5,20]", "f32[1,18,16,1]"],
        lambda b, x, w: b.op(
            "conv_planar", x, w, window=(2, 3), strides=(1, 2), padding=((1, 0), (1, 1)), n=9
        ),
        {"n": (1, None)},
    ),
    "planar depthwise": lambda: entry(
        ["f32[1,3,20]", "f32[3,3]"],
        lambda b, x, w: b.op(
            "conv_planar", x, w, window=(3,), strides=(1,), padding=((1, 1),), n=3
        ),
    ),
    "winograd": lambda: entry(
        ["f32[1,7,9,4]", "f32[36,1,4,16]"],
        lambda b, x, u: b.op("conv_winograd", x, u, padding=((1, 1), (1, 1)), n=16),
    ),
    "winograd with a depth": lambda: entry(
        ["f32[1,5,6,5,16]", "f32[36,1,48,16]"],
        lambda b, x, u: b.op("conv_winograd", x, u, padding=((1, 1),) * 3, n=16),
    ),
    "winograd of narrow images": lambda: entry(
        ["f16[1,7,9,4]", "f32[36,1,4,16]"],
        lambda b, x, u: b.op("conv_winograd", x, u, padding=((1, 1), (1, 1)), n=16),
    ),
    "depthwise": lambda: entry(
        ["f32[1,6,7,5]", "f32[3,3,5]"],
        lambda b, x, w: b.op(
            "depthwise", x, w, strides=(1, 2), rhs_dilation=(1, 1), padding=((1, 1), (1, 1))
        ),
    ),
    "attention": lambda: entry(
        ["f32[1,2,n,8]"] * 3, lambda b, *x: b.op("attention", *x, scale=0.3), {"n": (1, None)}
    ),
    "window": lambda: entry(
        ["f32[1,9,8,3]"],
        lambda b, x: b.op(
            "reduce_window", x, kind="max", window=(1, 3, 3, 1), strides=(1, 2, 2, 1),
            padding=((0, 0), (1, 1), (1, 1), (0, 0)),
        ),
    ),
    "sort": lambda: entry(["f32[2,n]"], sorter(1, ["f32"]), {"n": (0, None)}),
    "scatter": lambda: entry(
        ["f32[n,3]", "i32[5,1]", "f32[5,3]"],
        lambda b, *x: b.op("scatter", *x, kind="add", **ROWS), {"n": (1, None)},
    ),
    "update": lambda: entry(
        ["i32[n,5]", "i32[2,3]", "i32[]", "i32[]"],
        lambda b, *x: b.op("dynamic_update_slice", *x), {"n": (2, None)},
    ),
    "compaction": lambda: entry(
        ["i1[n,7]"], lambda b, x: b.op("count_true", x), {"n": (0, None)}
    ),
    "cumulative": lambda: entry(
        ["f32[2,n]"], lambda b, x: b.op("cumulative", x, axis=1, kind="add"), {"n": (1, None)}
    ),
    "top_k": lambda: entry(
        ["f32[2,n]"],
        lambda b, x: b.op("top_k", x, k=3, axis=1, largest=True, dtype=I64),
        {"n": (3, None)},
    ),
}  # fmt: skip


def interpret(
    kernel: Kernel,
    operands: Sequence[np.ndarray[Any, Any]],
    results: Sequence[np.ndarray[Any, Any]],
    **symbols: int,
) -> None:
    spaces = [
        np.full([evaluate(dim, symbols) for dim in each.shape], 77).astype(each.dtype.numpy)
        for each in kernel.workspaces
    ]
    assert run_kernel(kernel, [*operands, *results, *spaces], symbols) is None
