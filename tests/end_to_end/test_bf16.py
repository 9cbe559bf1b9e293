"""`precision="bf16"`: factors of products with weights are rounded, sums are f32, everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from onnx import helper

import ingot
from tests.support.devices import best_variant, load_everywhere
from tests.support.drawn import examples
from tests.support.kernel_runner import dot2_variants, tile_variants
from tests.support.onnx_models import build_model, make_value
from tests.support.products import draw, error_of

Array = np.ndarray[Any, Any]
OPTIONS: Any = {"precision": "bf16", "variants": [*dot2_variants(), best_variant()][:1]}
"""Where there is an instruction, it is used; what a device does instead gives the same."""


def rounded(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def product(w: Array, op: str = "MatMul", shape: Any = ("rows",), **attributes: Any) -> Any:
    """x times the weight."""
    x = (*shape, w.shape[0]) if op == "MatMul" else shape
    node = helper.make_node(op, ["x", "w"], ["y"], **attributes)
    return build_model([node], [make_value("x", x)], ["y"], {"w": w})


def check(model: Any, x: Array, wanted: Array) -> None:
    assert error_of(np.asarray(model(x)), wanted) <= 2e-6


@pytest.mark.slow
@examples(3)
@given(
    k=st.integers(20, 45),
    n=st.integers(103, 170),
    rows=st.integers(0, 40),
    shape=st.sampled_from([None, "rows"]),
)
def test_both_factors_are_rounded_and_sums_are_f32(
    k: int, n: int, rows: int, shape: str | None
) -> None:
    w, x = draw(2 * k, n), draw(rows, 2 * k, seed=1)
    for model in load_everywhere(product(w, shape=(shape or rows,)), **OPTIONS).values():
        check(model, x, rounded(x) @ rounded(w))
        off = np.abs(np.asarray(model(x)) - x.astype(np.float64) @ w)
        assert (off <= 2.0**-7 * (np.abs(x.astype(np.float64)) @ np.abs(w))).all()


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "size"), [(3, 9), (34, "h")])
def test_images_are_rounded(channels: int, size: Any) -> None:
    w = draw(56, channels, 5, 5) / 25
    source = product(w, "Conv", (1, channels, size, 9), strides=[2, 2], pads=[2, 2, 2, 2])
    x = draw(1, channels, 9, 9, seed=1)
    padded = np.pad(rounded(x), ((0, 0), (0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), (2, 3))[:, :, ::2, ::2]
    wanted = np.einsum("nchwij,ocij->nohw", windows, rounded(w))
    for model in load_everywhere(source, **OPTIONS).values():
        check(model, x, wanted)


def test_winograds_way_is_for_modules_without_tiles() -> None:
    source = product(draw(32, 32, 3, 3), "Conv", (1, 32, 16, 16), pads=[1, 1, 1, 1])
    for variants, layers in ((["x86-64-v4"], 0), (["x86-64-v4-amx", "x86-64-v4"], 1)):
        module = ingot.compile(source, precision="bf16", variants=variants)
        assert len(module.report.in_bf16) == layers


def test_numbers_that_bf16_does_not_hold_round_to_what_is_nearest() -> None:
    most, even = np.float32(3.4e38), np.float32(1 + 2**-8)
    x = np.zeros((4, 64), np.float32)
    x[:, 0] = [most, even, np.inf, np.nan]
    w = np.zeros((64, 64), np.float32)
    np.fill_diagonal(w, 1)
    for model in load_everywhere(product(w, shape=(4,)), **OPTIONS).values():
        got = np.asarray(model(x))
        np.testing.assert_array_equal(got[:, 0], [np.inf, 1, np.inf, np.nan])
        assert not got[1, 1:].any()


@pytest.mark.parametrize("variant", [*tile_variants(), OPTIONS["variants"][0]])
def test_what_waits_for_a_later_product_is_rounded(variant: str) -> None:
    """Of whole numbers, whose sums are exact."""
    shapes = (33, 64), (64, 96), (64, 96), (96, 96)
    x, a, b, c = (np.rint(8 * draw(*each, seed=seed)) for seed, each in enumerate(shapes))
    edges = np.array([1e-39, -3e-41, 2**-149, np.nan, -np.inf, 1 + 2**-8, 3.4e38, 1e-38], "f4")

    def build(x: Any) -> Any:
        y = jnp.maximum(x @ a, 0)
        return y @ c + y, y @ c.T + x @ b, (x @ a + jnp.tile(edges, 12)).astype(jnp.bfloat16)

    shape = jax.ShapeDtypeStruct(x.shape, np.float32)
    source = jax.export.export(jax.jit(build))(shape)
    model = ingot.load(ingot.compile(source, precision="bf16", variants=[variant]))
    residual, shortcut, _ = map(np.asarray, model(x))
    y = rounded(np.maximum(x @ a, 0))
    assert (rounded(x @ b) != x @ b).any()
    assert (y != np.maximum(x @ a, 0)).any()
    np.testing.assert_array_equal(residual, y @ c + y)
    waiting = (rounded(y @ c.T) + x @ b, y @ c.T + rounded(x @ b))
    assert any((shortcut == each).all() for each in waiting)
    narrow = np.asarray(model(np.zeros_like(x))[2], np.float64)
    np.testing.assert_array_equal(narrow, np.tile(rounded(edges), (33, 12)))


def test_a_program_of_bf16_is_multiplied_as_it_is() -> None:
    text = (
        'module {} { func @main(%a: bf16[3,66] "a") -> (f32[3,80] "c") { %b = parameter() '
        '{scope="", key="b", dtype=bf16, shape=[66,80]} : bf16[66,80] %0 = dot_general(%a, %b) '
        "{lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0], dtype=f32} : f32[3,80] "
        "return(%0) } }"
    )
    module = ingot.compile(text, **OPTIONS)
    assert len(module.report.in_bf16) == 1
    a, b = (draw(*shape).astype(ml_dtypes.bfloat16) for shape in ((3, 66), (66, 80)))
    got = np.asarray(ingot.load(module, parameters={"b": b})(a))
    assert error_of(got, rounded(a) @ rounded(b)) <= 2e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("equation", "operands", "result", "axes"),
    [
        ("ji,jk->ik", ((70, "n"), (70, 40)), "f32[n,40]", ((), (), (0,), (0,))),
        ("qhd,khd->hqk", (("n", 6, 64), (50, 6, 64)), "f32[6,n,50]", ((1,), (1,), (2,), (2,))),
        ("hqk,khd->hqd", ((6, "n", 50), (50, 6, 64)), "f32[6,n,64]", ((0,), (1,), (2,), (0,))),
    ],
)
def test_two_activations_are_rounded(
    equation: str, operands: Sequence[Sequence[Any]], result: str, axes: Any
) -> None:
    names = ("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract")
    given = ", ".join(f"{name}={list(each)}" for name, each in zip(names, axes, strict=True))
    first, second = (f"f32[{','.join(map(str, shape))}]" for shape in operands)
    text = (
        f'module {{}} {{ func @main(%a: {first} "a", %b: {second} "b") -> ({result} "c") '
        f"{{ %0 = dot_general(%a, %b) {{{given}, dtype=f32}} : {result} return(%0) }} }}"
    )
    x, y = (
        draw(*(33 if dim == "n" else dim for dim in shape), seed=place)
        for place, shape in enumerate(operands)
    )
    for model in load_everywhere(text, **OPTIONS).values():
        got = np.asarray(model(x, y))
        assert error_of(got, np.einsum(equation, rounded(x), rounded(y))) <= 2e-6


def test_what_is_exact_stays_so() -> None:
    shape = jax.ShapeDtypeStruct((64, 64), np.float32)

    def build(a: Any, b: Any) -> Any:
        window = {"window_strides": (1, 1), "padding": "VALID", "precision": "highest"}
        image = lax.conv_general_dilated(a.reshape(1, 64, 8, 8), b.reshape(64, 64, 1, 1), **window)
        return lax.dot(a, b, precision="highest") + image.reshape(64, 64), a @ b

    source = jax.export.export(jax.jit(build))(shape, shape)
    module = ingot.compile(source, **OPTIONS)
    assert len(module.report.in_bf16) == 1
    a, b = draw(64, 64), draw(64, 64, seed=1)
    exact, off = ingot.load(module)(a, b)
    assert error_of(np.asarray(exact), np.asarray(build(a, b)[0], np.float64)) <= 3e-6
    assert error_of(np.asarray(off), rounded(a) @ rounded(b)) <= 2e-6

    @ingot.program(ingot.spec("f32[128,128]"))
    def solved(x: Any) -> Any:
        return ingot.ops.linalg.inv(x + 64 * ingot.ops.eye(128)), ingot.ops.fft.rfft(x)

    assert ingot.compile(solved, **OPTIONS).report.in_bf16 == ()


def tied(table: Array) -> onnx.ModelProto:
    """Embeddings whose table makes the logits, too."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["x"]),
        helper.make_node("Transpose", ["table"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    inputs = [make_value("i", (2,), onnx.TensorProto.INT64)]
    return build_model(nodes, inputs, ["y"], {"table": table})


def test_weights_take_half_the_bytes_and_a_table_that_is_multiplied_lies_once() -> None:
    table = draw(2048, 256)
    i = np.array([7, 2000])
    for precision, bytes_of_one in (("f32", 4), ("bf16", 2)):
        module = ingot.compile(tied(table), **{**OPTIONS, "precision": precision})
        assert 0 <= module.report.constant_length - table.size * bytes_of_one < 4096
    for model in load_everywhere(tied(table), **OPTIONS).values():
        assert error_of(np.asarray(model(i)), rounded(table[i]) @ rounded(table.T)) <= 2e-6


def test_channels_of_bf16_are_no_words_of_bytes() -> None:
    w = draw(3, 3, 1, 32).astype(ml_dtypes.bfloat16)

    def build(x: Any) -> Any:
        order = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "feature_group_count": 32}
        return lax.conv_general_dilated(x, w, (1, 1), "VALID", **order) @ draw(32, 128)

    x = draw(1, 8, 8, 32).astype(ml_dtypes.bfloat16)
    source = jax.export.export(jax.jit(build))(x)
    for model in load_everywhere(source, **OPTIONS).values():
        assert error_of(np.asarray(model(x)), np.asarray(build(x), np.float64)) <= 1e-2


@pytest.mark.slow
def test_quantizing_tells_the_error_of_each_layer_and_keeps_others() -> None:
    nodes = [
        helper.make_node("MatMul", [each, f"w{i}"], [f"{each}x"], f"layer{i}")
        for i, each in enumerate(("x", "xx", "xxx"))
    ]
    weights = {"w0": draw(64, 80), "w1": draw(80, 70, seed=1), "w2": draw(70, 8, seed=2)}
    source = build_model(nodes, [make_value("x", (5, 64))], ["xxxx"], weights)
    data, options = draw(4, 5, 64, seed=3), {"weights": "bf16", "measure": False}
    module = ingot.quantize(source, data={"x": data}, keep=["layer1"], **options)
    first, second, third = module.quantization.layers
    assert (first.scheme, second.scheme, third.scheme) == ("bf16 x bf16", "float", "float")
    x, w = data.reshape(-1, 64), weights["w0"]
    expected = x.astype(np.float64) @ w
    off = np.linalg.norm(rounded(x) @ rounded(w) - expected) / np.linalg.norm(expected)
    assert first.error == pytest.approx(off, rel=1e-3)
    assert first.length_after * 2 == first.length_before == w.nbytes
    assert (second.reason, third.reason[:11]) == ("kept as asked", "it is small")
    assert module.report.in_bf16 == ("layer0",)
    exact = ingot.quantize(source, max_error=1e-6, **options).quantization
    assert all("more than 1e-06" in each.reason for each in exact.layers)
    with pytest.raises(ingot.InvalidArgument, match="'bf16' has neither codes nor scales"):
        ingot.quantize(source, activations="int8", **options)


def test_the_report_tells_what_is_rounded() -> None:
    source = product(draw(64, 64), shape=(4,))
    assert "1 layer of bf16" in ingot.compile(source, **OPTIONS).report.text()
    for w in (draw(64, 63), draw(65, 80)):  # few, and no pairs
        assert ingot.compile(product(w, shape=(4,)), **OPTIONS).report.in_bf16 == ()
    assert len(ingot.compile(product(draw(32, 16), shape=(512,)), **OPTIONS).report.in_bf16) == 1
    with pytest.raises(ingot.InvalidArgument, match="'bf17' is not known; there are 'f32'"):
        ingot.compile(source, precision="bf17")
