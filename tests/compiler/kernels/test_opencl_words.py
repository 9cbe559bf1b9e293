"""Words of bytes on work items: exact in plain OpenCL C, with the functions of the extension as a
device without them can play them, and compiled by clang, which has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, TensorType, Value, walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.items.contraction import lower_contraction
from ingot.compiler.kernels.items.convolution import lower_convolution
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.targets.opencl import object as opencl_object
from ingot.compiler.targets.opencl.variant import OPENCL_C, OPENCL_C_LARGE
from ingot.hal.spec import dtype
from tests.support import opencl_runner
from tests.support.entries import entry
from tests.support.products import convolved, extremes, pack
from tests.support.work_items import needs_device

Array = np.ndarray[Any, Any]
TARGETS = (OPENCL_C.target, OPENCL_C_LARGE.target)
SIGNS = (("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8"))
BUILT_IN = "__opencl_c_integer_dot_product_input_4x8bit_packed"
PLAYED = f"#define {BUILT_IN} 1\n" + "".join(
    f"{result} dot_4x8packed_{signs}_{result}(uint a, uint b) {{\n"
    f"  return convert_{result}4(as_{left}4(a)).s0 * convert_{result}4(as_{right}4(b)).s0"
    + "".join(
        f" + convert_{result}4(as_{left}4(a)).s{i} * convert_{result}4(as_{right}4(b)).s{i}"
        for i in (1, 2, 3)
    )
    + ";\n}\n"
    for signs, left, right, result in (
        ("us", "uchar", "char", "int"),
        ("ss", "char", "char", "int"),
        ("uu", "uchar", "uchar", "uint"),
        ("su", "char", "uchar", "int"),
    )
)


def product(left: str, right: str, m: Any, k: int, n: int) -> Function:
    def build(b: Builder, x: Value, w: Value) -> Value:
        return b.value("dot_packed", x, w, n=n, dtype=dtype("i32"))

    panels = TensorType(dtype(right), (-(-n // 16), k // 4, 16, 4))
    return entry([TensorType(dtype(left), (m, k)), panels], build)


def pixels(channels: int, n: int) -> Function:
    def build(b: Builder, x: Value, w: Value) -> Value:
        moves = {"window": (3, 3), "padding": ((1, 1), (1, 1)), "strides": (1, 2)}
        return b.value("conv_packed", x, w, n=n, dtype=dtype("i32"), **moves)

    panels = TensorType(dtype("i8"), (-(-n // 16), 9 * channels // 4, 16, 4))
    return entry([TensorType(dtype("u8"), (2, 6, 9, channels)), panels], build)


def in_words(kernel: Kernel) -> bool:
    return any(op.name == "loop.dot4" for op in walk(kernel.loops))


@pytest.fixture(params=["plain", "played"])
def built_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both texts of a dot product: what a device has instead, and with functions like those of
    the extension."""
    if request.param == "played":
        monkeypatch.setattr(opencl_object, "_HEAD", opencl_object._HEAD + PLAYED)


@needs_device
@pytest.mark.usefixtures("built_in")
@pytest.mark.parametrize(
    ("target", "m"), [(TARGETS[0], 9), (TARGETS[1], 37)], ids=["small", "large"]
)
@pytest.mark.parametrize(("left", "right"), SIGNS)
def test_bytes_are_multiplied_exactly(target: Any, left: str, right: str, m: int) -> None:
    k, n = 36, 70
    kernel = lower_contraction(product(left, right, symbol("m") if m > 9 else m, k, n), target)
    assert in_words(kernel)
    assert kernel.alignments == [1, 4, 4]  # rows begin anywhere
    a, w = extremes(left, m, k), extremes(right, k, n)
    got = np.full((m, n), -1, np.int32)
    assert opencl_runner.run(kernel, [a, pack(w), got], m=m) is None
    np.testing.assert_array_equal(got, a.astype(np.int32) @ w.astype(np.int32))


@needs_device
@pytest.mark.usefixtures("built_in")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.variant)
def test_pixels_of_bytes_are_multiplied_exactly(target: Any) -> None:
    channels, n = 8, 21
    kernel = lower_convolution(pixels(channels, n), target)
    assert in_words(kernel)
    x, w = extremes("u8", 2, 6, 9, channels), extremes("i8", 3, 3, channels, n)
    got = np.full((2, 6, 5, n), -1, np.int32)
    assert opencl_runner.run(kernel, [x, pack(w.reshape(-1, n)), got]) is None
    np.testing.assert_array_equal(got, convolved(x, w))


@needs_device
def test_two_activations_are_words_where_both_lie_so() -> None:
    def both(k: int) -> Function:
        def build(b: Builder, x: Value, y: Value) -> Value:
            axes = {"lhs_batch": (0,), "rhs_batch": (0,), "lhs_contract": (2,)}
            return b.value("dot_general", x, y, dtype=dtype("i32"), rhs_contract=(2,), **axes)

        types = [TensorType(dtype(name), (2, m, k)) for name, m in (("u8", 9), ("i8", 21))]
        return entry(types, build)

    assert not in_words(lower_contraction(both(15), TARGETS[0]))
    kernel = lower_contraction(both(16), TARGETS[0])
    assert in_words(kernel)
    assert kernel.alignments == [1, 1, 4]
    a, b = extremes("u8", 2, 9, 16), extremes("i8", 2, 21, 16)
    got = np.full((2, 9, 21), -1, np.int32)
    assert opencl_runner.run(kernel, [a, b, got]) is None
    np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32).swapaxes(1, 2))


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")
def test_clang_takes_the_functions_of_the_extension(tmp_path: Path) -> None:
    kernels = [lower_contraction(product(*signs, 37, 36, 70), TARGETS[0]) for signs in SIGNS]
    source = tmp_path / "kernels.cl"
    texts = [opencl_object.print_source([kernel]) for kernel in kernels]
    command = ["clang", "-target", "spir64", "-cl-std=CL3.0", "-Xclang"]
    command += ["-finclude-default-header", "-DINGOT_GROUP_SIZE=256", "-DINGOT_LOCAL_LENGTH=32768"]
    for text, name in zip(texts, ("us_int", "ss_int", "uu_uint", "su_int"), strict=True):
        source.write_text(text)
        done = subprocess.run(
            [*command, "-S", "-emit-llvm", "-o", "-", str(source)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[:4000]
        assert f"dot_4x8packed_{name}" in done.stdout
