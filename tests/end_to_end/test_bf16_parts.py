"""`precision="bf16x3"` and "bf16x6": products of f32 made of products of bf16, where tiles are."""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import numpy as np
import pytest
from jax import lax
from onnx import helper

import ingot
from tests.support.devices import best_variant, load_everywhere
from tests.support.kernel_runner import tile_variants
from tests.support.onnx_models import build_model, make_value
from tests.support.products import draw, error_of

Array = np.ndarray[Any, Any]
BOUNDS = {"bf16x3": 2.0**-14, "bf16x6": 2.0**-21}
OPTIONS: Any = {"variants": [*tile_variants(), best_variant()]}


def product(w: Array, rows: Any = "rows") -> Any:
    """relu(x) times the weight."""
    nodes = [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("MatMul", ["z", "w"], ["y"])]
    return build_model(nodes, [make_value("x", (rows, w.shape[0]))], ["y"], {"w": w})


@pytest.mark.slow
@pytest.mark.parametrize("precision", BOUNDS)
def test_results_are_within_what_is_promised(precision: str) -> None:
    w, rows = draw(90, 100), 70
    w *= 10.0 ** np.linspace(-12, 12, 90, dtype=np.float32)[:, None]
    for model in load_everywhere(product(w), precision=precision, **OPTIONS).values():
        for count in (1, rows):
            x = draw(count, 90, seed=1)
            x /= 10.0 ** np.linspace(-12, 12, 90, dtype=np.float32)
            z = np.maximum(x, 0).astype(np.float64)
            off = np.abs(np.asarray(model(x)) - z @ w)
            assert (off <= BOUNDS[precision] * (z @ np.abs(w))).all()


@pytest.mark.skipif(not tile_variants(), reason="the processor has no tiles")
def test_tiles_are_used_and_others_multiply_f32() -> None:
    w, x = draw(64, 80), draw(64, 64, seed=1)
    wanted, errors = np.maximum(x, 0).astype(np.float64) @ w, {}
    for precision in ("f32", *BOUNDS):
        for variant in OPTIONS["variants"]:
            module = ingot.compile(product(w, 64), precision=precision, variants=[variant])
            errors[precision, variant] = error_of(np.asarray(ingot.load(module)(x)), wanted)
    tiles, plain = OPTIONS["variants"]
    assert errors["bf16x3", tiles] > 1e-6
    assert errors["bf16x6", tiles] < 3e-7
    assert len({errors[each, plain] for each in ("f32", *BOUNDS)}) == 1


def test_a_report_says_which_layers_they_are_and_where() -> None:
    w = draw(64, 80)
    module = ingot.compile(product(w), precision="bf16x3", variants=["x86-64-v4-amx", "x86-64-v3"])
    assert module.report.in_bf16x3 == ("MatMul_1",)
    assert "2^-14 of its terms' magnitudes (with x86-64-v4-amx, f32 elsewhere)" in str(
        module.report
    )
    module = ingot.compile(product(w), precision="bf16x6", variants=["x86-64-v3"])
    assert module.report.in_bf16x6 == ("MatMul_1",)
    assert "(f32: no variant has tiles)" in str(module.report)
    assert not ingot.compile(product(w, 1), precision="bf16x6").report.in_bf16x6


def test_weights_that_are_stored_as_f16_are_read_so() -> None:
    w, x = draw(256, 80).astype(np.float16), draw(64, 256, seed=1)
    nodes = [
        helper.make_node("Cast", ["w"], ["v"], to=1),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    source = build_model(nodes, [make_value("x", (64, 256))], ["y"], {"w": w})
    module = ingot.compile(source, precision="bf16x3", variants=[best_variant()])
    assert not module.report.in_bf16x3
    wanted = x.astype(np.float64) @ w.astype(np.float64)
    assert error_of(np.asarray(ingot.load(module)(x)), wanted) <= 1e-6


def convolutions(pixels: int) -> Any:
    """Of a 3x3 window, which Winograd's way suits, and of one with strides."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4),
        helper.make_node("Conv", ["y", "w"], ["z"], pads=[1] * 4, strides=[2, 2]),
    ]
    w = draw(32, 32, 3, 3) / np.float32(17)
    return build_model(nodes, [make_value("x", (1, 32, pixels, pixels))], ["z"], {"w": w})


@pytest.mark.slow
def test_convolutions_are_of_parts_unless_winograds_way_is_faster() -> None:
    source, x = convolutions(16), draw(1, 32, 16, 16, seed=1)
    wanted = np.asarray(ingot.load(ingot.compile(source, variants=[best_variant()]))(x))
    for precision, layers in (("bf16x3", ("Conv_0", "Conv_1")), ("bf16x6", ("Conv_1",))):
        module = ingot.compile(source, precision=precision, variants=["x86-64-v4-amx", "x86-64-v3"])
        assert getattr(module.report, f"in_{precision}") == layers
    assert not ingot.compile(source, precision="bf16x3", variants=["x86-64-v3"]).report.in_bf16x3
    module = ingot.compile(convolutions(300), precision="bf16x3", variants=["x86-64-v4-amx"])
    assert module.report.in_bf16x3 == ("Conv_1",)  # lines of 300 pixels are made in pieces
    for model in load_everywhere(source, precision="bf16x3", **OPTIONS).values():
        assert error_of(np.asarray(model(x)), wanted) <= 1e-5


def exported(algorithm: str) -> Any:
    """x times a weight by such an algorithm."""
    w = draw(64, 80)
    preset = getattr(lax.DotAlgorithmPreset, algorithm)
    shape = jax.ShapeDtypeStruct((64, 64), np.float32)
    return jax.export.export(jax.jit(lambda x: lax.dot(x, w, precision=preset)))(shape), w


@pytest.mark.parametrize(
    ("algorithm", "layers"),
    [
        ("BF16_BF16_F32", (1, 0)),
        ("BF16_BF16_F32_X3", (1, 0)),
        ("BF16_BF16_F32_X6", (0, 1)),
        ("F32_F32_F32", (0, 0)),
        ("F64_F64_F64", (0, 0)),
    ],
)
def test_a_program_may_ask_for_the_algorithm_of_one_product(
    algorithm: str, layers: tuple[int, int]
) -> None:
    """Whatever the precision of the others."""
    source, w = exported(algorithm)
    x = draw(64, 64, seed=1)
    wanted = x.astype(np.float64) @ w
    for precision in ("f32", "bf16", "bf16x3"):
        module = ingot.compile(source, precision=precision)
        assert (len(module.report.in_bf16x3), len(module.report.in_bf16x6)) == layers
        assert error_of(np.asarray(ingot.load(module)(x)), wanted) <= (1e-5 if layers[0] else 1e-6)
