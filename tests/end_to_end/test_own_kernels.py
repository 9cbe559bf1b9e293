"""Kernels that users write, in C and OpenCL C: dispatched like Ingot's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.references.natives import native_functions
from tests.support.devices import best_variant, on_every_device, opencl_device, opencl_uri, targets

SIGNATURE = "(f32[n,m], f32[m]) -> (f32[n,m], i32[n])"
BODY = """
  {for_each} {{
    y[row * m + j] = twice(x[row * m + j]) + bias[j];
  }}
  count[row] = (int)m;
"""
C = (
    """
#include <stdint.h>
static float twice(float value) { return 2 * value; }
static void affine(const float *x, const float *bias, float *y, int32_t *count, int64_t n,
                   int64_t m, int64_t row) {
"""
    + BODY.format(for_each="for (int64_t j = 0; j < m; ++j)")
    + "}\n"
)
OPENCL_C = (
    """
float twice(float value) { return 2 * value; }
void affine(__global const float *x, __global const float *bias, __global float *y,
            __global int *count, long n, long m, long row) {
"""
    + BODY.format(for_each="for (long j = get_local_id(0); j < m; j += get_local_size(0))")
    + "}\n"
)


def in_c(**changed: Any) -> ingot.Kernel:
    options = {"entry": "affine", "workload": ["n"], "flops": "2*n*m", **changed}
    return ingot.Kernel(SIGNATURE, options.pop("source", C), **options)


def in_opencl_c() -> ingot.Kernel:
    return in_c(source=OPENCL_C, target="opencl", local_size=[8])


@ingot.program(ingot.spec("f32[a,4]"), ingot.spec("f32[4]"))
def program(x: Any, bias: Any) -> Any:
    """Twice with one shape, once with another; a result is not used, an operand is used twice."""
    first, _ = ops.kernel("acme.affine", SIGNATURE, x + 1, bias)
    second, counts = ops.kernel("acme.affine", SIGNATURE, first, bias)
    square, _ = ops.kernel("acme.affine", SIGNATURE, ops.reshape(bias, (1, 4)), bias)
    return second * 1, counts, square


def expected(x: Any, bias: Any) -> list[Any]:
    second = 2 * (2 * (x + 1) + bias) + bias
    return [second, np.full(len(x), 4, np.int32), (3 * bias)[None]]


BIAS = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def module() -> ingot.Module:
    kernels = {"acme.affine": [in_c(), in_opencl_c()]}
    return ingot.compile(program, target=targets(), variants=[best_variant()], kernels=kernels)


@on_every_device
def test_kernels_compute_all_sizes(module: ingot.Module, device: str) -> None:
    model = ingot.load(module, device=device)
    assert model.host_kernels == ()
    for rows in (3, 1, 0, 200):
        x = np.linspace(-1, 1, 4 * rows, dtype=np.float32).reshape(rows, 4)
        for got, wanted in zip(model(x, BIAS), expected(x, BIAS), strict=True):
            np.testing.assert_array_equal(got.numpy(), wanted)


def test_the_report_and_the_interpreter_know_them(module: ingot.Module) -> None:
    assert "3 own" in str(module.report)
    x = np.ones((2, 4), np.float32)

    def affine(x: Any, bias: Any) -> Any:
        return 2 * x + bias, np.full(len(x), x.shape[1], np.int32)

    with native_functions({"acme.affine": affine}):
        for got, wanted in zip(
            interpret(program.module, arguments=[x, BIAS]), expected(x, BIAS), strict=True
        ):
            np.testing.assert_array_equal(got, wanted)
    with pytest.raises(
        ingot.Unsupported, match=r"no Python function for the kernel 'acme\.affine'"
    ):
        interpret(program.module, arguments=[x, BIAS])


@pytest.mark.skipif(opencl_uri() is None, reason="there is no OpenCL device")
def test_a_device_without_its_own_text_has_the_host_run_it() -> None:
    module = ingot.compile(program, target="opencl", kernels={"acme.affine": in_c()})
    model = ingot.load(module, device=opencl_device())
    assert len(model.host_kernels) == 3
    assert "takes OpenCL C" in next(iter(module.report.targets["opencl"].host.values()))
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(model(x, BIAS)[0].numpy(), expected(x, BIAS)[0])


@pytest.mark.skipif(opencl_uri() is None, reason="there is no OpenCL device")
def test_texts_in_opencl_c_may_have_entries_of_one_name() -> None:
    signature = "(f32[n]) -> (f32[n])"

    def kernel(value: str) -> ingot.Kernel:
        text = "void f(__global const float *x, __global float *y, long n, long i) { // \u2192\n"
        text += f"  y[i] = {value};\n}}\n"
        return ingot.Kernel(signature, text, entry="f", workload=["n"], target="opencl")

    def both(x: Any) -> Any:
        return ops.kernel("add", signature, ops.kernel("twice", signature, x))

    kernels = {"twice": kernel("2 * x[i]"), "add": kernel("x[i] + 1")}
    source = ingot.trace(both, ingot.spec("f32[4]"))
    module = ingot.compile(source, target="opencl", kernels=kernels, fallback=False)
    model = ingot.load(module, device=opencl_device())
    np.testing.assert_array_equal(model(BIAS).numpy(), 2 * BIAS + 1)


def test_kernels_of_weights_run_when_the_module_is_loaded() -> None:
    def shift(x: Any) -> Any:
        weights = ops.asarray(np.ones((2, 4), np.float32))
        return x + ops.kernel("acme.affine", SIGNATURE, weights, ops.asarray(BIAS))[0]

    source = ingot.trace(shift, ingot.spec("f32[2,4]"))
    module = ingot.compile(source, variants=[best_variant()], kernels={"acme.affine": in_c()})
    assert module.report.dispatches["main"] == 1
    x = np.zeros((2, 4), np.float32)
    np.testing.assert_array_equal(ingot.load(module)(x).numpy(), [2 + BIAS] * 2)


def test_a_text_may_have_names_of_the_object_around_it() -> None:
    names = "#define library 7\nenum { entries };\n"
    body = "static void f(const float *x, float *y, int64_t n, int64_t i) { y[i] = 2 * x[i]; }"
    signature = "(f32[n]) -> (f32[n])"
    kernel = ingot.Kernel(signature, names + body, entry="f", workload=["n"])
    source = ingot.trace(lambda x: ops.kernel("f", signature, x), ingot.spec("f32[4]"))
    module = ingot.compile(source, variants=[best_variant()], kernels={"f": kernel})
    np.testing.assert_array_equal(ingot.load(module)(BIAS).numpy(), 2 * BIAS)


def refused(**options: Any) -> str:
    with pytest.raises(ingot.CompileError) as caught:
        ingot.compile(program, variants=[best_variant()], **options)
    return str(caught.value)


def test_what_is_missing_or_wrong_is_told_with_the_name() -> None:
    assert "the kernel 'acme.affine', which is not given" in refused()
    other = ingot.Kernel("(f32[n]) -> (f32[n])", C, entry="affine", workload=["n"])
    assert "is given as (f32[n]) -> (f32[n])" in refused(kernels={"acme.affine": other})
    broken = in_c(source="static void affine(int x) { return y; }")
    assert "error" in refused(kernels={"acme.affine": broken})
    only = {"acme.affine": in_opencl_c()}
    assert "written in OpenCL C, and" in refused(kernels=only)
    with pytest.raises(ingot.CompileError, match="or compile with fallback=False"):
        ingot.compile(program, target="opencl", kernels=only)
    assert ingot.compile(program, target="opencl", kernels=only, fallback=False).report.kernel_count


KERNELS: list[tuple[dict[str, Any], str]] = [
    ({"entry": "a b"}, "'a b' is no name of a function"),
    ({"workload": []}, "workload has 0 axes, expected 1 to 3"),
    ({"workload": ["k"]}, r"workload 'k': no argument of .* has a dim 'k'"),
    ({"workload": ["n+"]}, "workload: dim expression"),
    ({"workload": [None]}, "workload has None, expected dims"),
    ({"flops": 1.5}, r"flops has 1\.5, expected dims"),
    ({"tile": [0]}, r"tile is \[0\], expected numbers above 0"),
    ({"source": "\0"}, "source has a character that"),
    ({"tile": [1.5]}, r"tile is \[1.5\], expected numbers above 0"),
    ({"local_size": [64, 64]}, "local_size is .*: more than 1024 work items"),
    ({"target": "npu"}, "for the target 'npu'; the targets are: cpu, opencl"),
]


@pytest.mark.parametrize(("changed", "message"), KERNELS)
def test_declarations_that_are_none_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match=message):
        in_c(**changed)


def test_kernels_decide_no_dims_and_are_one_for_a_target() -> None:
    with pytest.raises(ingot.InvalidArgument, match="whose dims its arguments tell"):
        ingot.Kernel("(f32[n]) -> (f32[k])", C, entry="affine", workload=["n"])
    complex_to_real = "(c64[n]) -> (f32[n])"
    with pytest.raises(ingot.InvalidArgument, match="takes complex numbers as parts"):
        ingot.Kernel(complex_to_real, C, entry="affine", workload=["n"])
    with pytest.raises(ingot.CompileError, match="not complex numbers as in"):
        ingot.trace(lambda: ops.kernel("acme.f", complex_to_real, np.zeros(3)))
    for given in (3, [in_c(), in_c()], {"a": 1}):
        with pytest.raises((ingot.InvalidArgument, ingot.CompileError)):
            ingot.compile(program, kernels={"acme.affine": given})


def test_the_text_of_a_program_brings_no_kernel() -> None:
    text = """
module {} {
  func @main(%x: f32[4] "x") -> (f32[4] "y") {
    %y = kernel_call(%x) {name="acme.f", signature="(f32[n]) -> (f32[n])"} : f32[4]
    return(%y)
  }
}
"""
    with pytest.raises(ingot.CompileError, match=r"the kernel 'acme\.f', which is not given"):
        ingot.compile(text, variants=[best_variant()])
