"""`precision="f16"`: factors of large products are rounded to f16. Where instructions add in f16,
sums of some products are; everywhere else they are f32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import ingot
from ingot.compiler.targets.cpu.variants import default_variants, named_variants
from tests.support.devices import best_variant, load_everywhere
from tests.support.kernel_runner import half2_variants
from tests.support.onnx_models import build_model, make_value
from tests.support.products import draw

Array = np.ndarray[Any, Any]
VARIANTS = [*half2_variants(), best_variant()]


def product(w: Array, rows: Any = "rows") -> Any:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "layer")
    return build_model([node], [make_value("x", (rows, w.shape[0]))], ["y"], {"w": w})


def rounded(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float64)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("k", [66, 4096])
def test_factors_are_rounded_and_long_sums_keep_their_digits(variant: str, k: int) -> None:
    w, x = draw(k, 70), draw(9, k, seed=1)
    models = load_everywhere(product(w), precision="f16", variants=[variant])
    exact, within = rounded(x) @ rounded(w), 1.4e-3 if "fp16" in variant else 2e-6
    for target, model in models.items():
        got = np.asarray(model(x))
        bound = within if target == "cpu" else 2e-6
        assert np.linalg.norm(got - exact) <= bound * np.linalg.norm(exact)


@pytest.mark.parametrize("variant", VARIANTS)
def test_numbers_that_f16_does_not_hold_round_to_what_is_nearest(variant: str) -> None:
    x, w = np.zeros((6, 64), np.float32), np.zeros((64, 64), np.float32)
    x[:, 0] = [7e4, 1 + 2**-11, np.inf, np.nan, 6.2e-8, 1e-8]
    np.fill_diagonal(w, 1)
    model = ingot.load(ingot.compile(product(w, 6), precision="f16", variants=[variant]))
    got = np.asarray(model(x))
    np.testing.assert_array_equal(got[:, 0], np.float32([np.inf, 1, np.inf, np.nan, 2**-24, 0]))


def test_a_sum_beyond_the_greatest_f16_is_infinite_only_where_f16_are_added() -> None:
    x, w = np.full((1, 128), 128, np.float32), np.full((128, 64), 16, np.float32)
    for variant in VARIANTS:
        model = ingot.load(ingot.compile(product(w, 1), precision="f16", variants=[variant]))
        got = np.asarray(model(x))
        assert (got == (np.inf if "fp16" in variant else 128 * 128 * 16)).all()


def test_the_report_names_layers_and_a_weight_beyond_f16_is_kept() -> None:
    w = draw(64, 64)
    module = ingot.compile(product(w), precision="f16", variants=[best_variant()])
    assert module.report.in_f16 == ("layer",)
    assert not module.report.in_bf16
    assert "1 layer of f16" in module.report.text()
    length = ingot.compile(product(w), variants=[best_variant()]).report.constant_length
    assert module.report.constant_length * 2 == length
    options: Any = {"weights": "f16", "measure": False}
    (layer,) = ingot.quantize(product(w), **options).quantization.layers
    assert (layer.scheme, layer.length_after) == ("f16 x f16", 64 * 64 * 2)
    assert 0 < layer.error < 4e-4
    w[3, 5] = 1e5
    (layer,) = ingot.quantize(product(w), **options).quantization.layers
    assert (layer.scheme, layer.reason) == ("float", "its weight has elements beyond f16")


def test_variants_with_arithmetic_of_f16_are_for_programs_of_it() -> None:
    for machine, best in (("x86_64", "x86-64-v4-fp16"), ("aarch64", "aarch64-fp16")):
        assert default_variants(machine, {"f16"})[0].name == best
        assert best not in [each.name for each in default_variants(machine, {"bf16", "i8"})]
        assert best not in [each.name for each in named_variants("server", {"i8"})]
        assert best in [each.name for each in named_variants("server", {"f16"})]


def test_a_program_of_bytes_and_f16_has_tiles_and_arithmetic_of_f16() -> None:
    both = {"i8", "f16"}
    for first, *_ in (default_variants("x86_64", both), named_variants("server", both)):
        assert first.target.tiles
        assert first.target.half2
        assert [each.name for each in first.levels][1:3] == ["x86-64-v4-fp16", "x86-64-v4"]
        for alone in ({"i8"}, {"f16"}, {"bf16", "i8"}):
            assert first not in default_variants("x86_64", alone)
            assert first not in named_variants("server", alone)
