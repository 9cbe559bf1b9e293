"""Ops of an application's own domain become native functions and kernels, from every front end."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot import ops
from tests.support.devices import best_variant

Array = npt.NDArray[Any]
X = np.arange(8, dtype=np.float32).reshape(2, 4)
SIGNATURE = "(f32[a,b]) -> (f32[a,b])"


def scale(x: Array, factor: float = 1.0, **told: Any) -> Array:
    return x * np.float32(factor)


def load(source: Any, name: str, declared: Any = SIGNATURE) -> ingot.Model:
    module = ingot.compile(source, natives={name: declared}, variants=[best_variant()])
    return ingot.load(module, natives={name: scale})


def onnx_model(op: str = "Scale", domain: str = "acme", **attributes: Any) -> onnx.ModelProto:
    """z = x + op(x)."""
    node = helper.make_node(op, ["x"], ["y"], domain=domain, **attributes)
    add = helper.make_node("Add", ["y", "x"], ["z"])
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])] for name in ("x", "z")
    ]
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    return helper.make_model(helper.make_graph([node, add], "g", *ends), opset_imports=imports)


def test_an_onnx_node_with_its_attributes() -> None:
    model = load(onnx_model(factor=3.0, mode="fast", sizes=[1, 2]), "acme.Scale")
    np.testing.assert_array_equal(model(X).numpy(), 4 * X)


def test_an_onnx_node_may_be_a_kernel_which_takes_no_attributes() -> None:
    source = (
        "static void three(const float *x, float *y, int64_t n, int64_t i) { y[i] = 3 * x[i]; }"
    )
    kernel = ingot.Kernel("(f32[n]) -> (f32[n])", source, entry="three", workload=["n"])
    flat = "static void three(const float *x, float *y, int64_t a, int64_t b, int64_t i)"
    body = "{ for (int64_t j = 0; j < b; ++j) y[i * b + j] = 3 * x[i * b + j]; }"
    square = ingot.Kernel(SIGNATURE, flat + body, entry="three", workload=["a"])
    options = {"variants": [best_variant()]}
    module = ingot.compile(onnx_model(), kernels={"acme.Scale": square}, **options)
    np.testing.assert_array_equal(ingot.load(module)(X).numpy(), 4 * X)
    with pytest.raises(ingot.CompileError, match="the op has the attributes factor"):
        ingot.compile(onnx_model(factor=3.0), kernels={"acme.Scale": square}, **options)
    with pytest.raises(ingot.CompileError, match=r"argument 0 of native function 'acme\.Scale' is"):
        ingot.compile(onnx_model(), kernels={"acme.Scale": kernel}, **options)


def test_a_python_function_stands_for_a_lowering_while_one_develops() -> None:
    native = ingot.Native(SIGNATURE, function=lambda x, factor: factor * x)
    with pytest.warns(UserWarning, match=r"Python functions of this process: acme\.Scale"):
        module = ingot.compile(onnx_model(factor=3.0), natives={"acme.Scale": native})
    assert "acme.Scale (f32[a,b]) -> (f32[a,b]) as a Python function" in str(module.report)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(ingot.load(module)(X).numpy(), 4 * X)
    with pytest.raises(ingot.NotFound, match=r"1 native function is missing: 'acme\.Scale'"):
        ingot.load(bytes(module))  # as a file that is saved


def test_a_node_may_have_a_substitute_in_ops() -> None:
    native = ingot.Native(SIGNATURE, otherwise=lambda x, factor: x - factor)
    module = ingot.compile(onnx_model(factor=3.0), natives={"acme.Scale": native})
    np.testing.assert_array_equal(ingot.load(module)(X).numpy(), 2 * X - 3)
    model = ingot.load(module, natives={"acme.Scale": scale})
    np.testing.assert_array_equal(model(X).numpy(), 4 * X)


def test_operands_that_do_not_fit_are_a_problem_of_their_layer() -> None:
    for declared, message in (
        ("(f32[n]) -> (f32[n])", r"argument 0 of .* is f32\[n,4\], expected f32\[n\]"),
        ("(f32[n,3]) -> (f32[n,3])", "called with a dim of 4, expected 3"),
        ("(f32[a,b], f32[]) -> (f32[a,b])", "called with 1 tensors, expected 2"),
    ):
        with pytest.raises(ingot.CompileError, match=message) as caught:
            load(onnx_model(), "acme.Scale", declared)
        assert "layer 'Scale_0'" in str(caught.value)
    with pytest.raises(ingot.CompileError, match=r"natives is .* a dict from strings to Native"):
        load(onnx_model(), "acme.Scale", 3)
    with pytest.raises(ingot.InvalidArgument, match="a signature is int; write it as"):
        ingot.Native(5)  # type: ignore[arg-type]
    with pytest.raises(ingot.CompileError, match="native: otherwise is 5, expected a function"):
        ingot.trace(lambda x: ops.native("f", SIGNATURE, x, otherwise=5), ingot.spec("f32[n,4]"))
    for kernels in (5, {"acme.Scale": 5}):
        with pytest.raises(
            ingot.CompileError, match=r"kernels is .*, expected a dict from strings"
        ):
            ingot.compile(onnx_model(), kernels=kernels)


def test_natives_stay_in_a_chain() -> None:
    double = ingot.trace(
        lambda x: ops.native("acme.Scale", SIGNATURE, x, factor=2), ingot.spec("f32[n,4]")
    )
    chain = ingot.chain(double, onnx_model(factor=3.0))
    np.testing.assert_array_equal(load(chain, "acme.Scale")(X).numpy(), 8 * X)


def test_own_lowerings_may_call_natives() -> None:
    from ingot.compiler.frontends import own_ops

    @ingot.lowering("acme", "Scale")
    def lower(x: Any, factor: float) -> Any:
        return ops.native("acme.function", SIGNATURE, x * 2, factor=factor)

    try:
        module = ingot.compile(onnx_model(factor=3.0), variants=[best_variant()])
    finally:
        own_ops._own.clear()
    model = ingot.load(module, natives={"acme.function": scale})
    np.testing.assert_array_equal(model(X).numpy(), 7 * X)


TURN = "(c64[a,b]) -> (c64[a,b])"


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("x", "declared"), [(X, SIGNATURE), (X * (1 - 2j), TURN)])
def test_a_custom_call_of_jax(x: Array, declared: str, is_open: bool) -> None:
    jax, x = pytest.importorskip("jax"), x.astype(np.complex64 if declared == TURN else np.float32)
    (rows,) = jax.export.symbolic_shape("rows") if is_open else x.shape[:1]

    def function(x: Any) -> Any:
        result = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return x + jax.ffi.ffi_call("acme.scale", result)(x, factor=np.float32(3))

    exported = jax.export.export(
        jax.jit(function),
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("acme.scale")],
    )(jax.ShapeDtypeStruct((rows, x.shape[1]), x.dtype))
    np.testing.assert_array_equal(load(exported, "acme.scale", declared)(x).numpy(), 4 * x)


def test_an_op_of_torch_takes_complex_numbers() -> None:
    torch = pytest.importorskip("torch")

    schema = "(Tensor x, float factor) -> Tensor"
    op = torch.library.custom_op("acme::scale", lambda x, factor: 1, mutates_args=(), schema=schema)
    op.register_fake(lambda x, factor: torch.empty_like(x))

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + torch.ops.acme.scale(-x, 3.0)

    x = (X * (1 - 2j)).astype(np.complex64)
    exported = torch.export.export(Model(), (torch.from_numpy(x),))
    np.testing.assert_allclose(load(exported, "acme.scale", TURN)(x).numpy(), -2 * x)
