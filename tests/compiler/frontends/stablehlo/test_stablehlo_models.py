"""Whole models, and the names of their arguments and results."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.ir import parse, to_text
from tests.support.stablehlo_cases import check, export, integers, normal, spec

NHWC = ("NHWC", "HWIO", "NHWC")


def mlp(params: Any, x: Any) -> Any:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return {"logits": x @ params[-1]["w"] + params[-1]["b"], "features": x}


def mlp_params(dtype: str) -> Any:
    sizes = (12, 16, 16, 5)
    return [
        {"w": jnp.asarray(normal(a, b, seed=a), dtype) / 4, "b": jnp.asarray(normal(b), dtype)}
        for a, b in itertools.pairwise(sizes)
    ]


def block(params: Any, x: Any, stride: int) -> Any:
    """Residual bottleneck with batch norm, as in ResNet."""
    y = x
    for place, (kernel, scale) in enumerate(zip(params["kernels"], params["scales"], strict=True)):
        steps = (stride, stride) if place == 1 else (1, 1)
        y = lax.conv_general_dilated(y, kernel, steps, "SAME", dimension_numbers=NHWC)
        mean, variance = scale[2], jnp.abs(scale[3]) + 1
        y = (y - mean) * lax.rsqrt(variance + 1e-5) * scale[0] + scale[1]
        y = jax.nn.relu(y) if place < 2 else y
    return jax.nn.relu(y + x[:, ::stride, ::stride])


def cnn(params: Any, image: Any) -> Any:
    x = image.astype("float32") / 255 - 0.5
    x = lax.conv_general_dilated(x, params["stem"], (2, 2), "SAME", dimension_numbers=NHWC)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stride, each in zip((1, 2), params["blocks"], strict=True):
        x = block(each, x, stride)
    return jax.nn.softmax(x.mean((1, 2)) @ params["head"])


def cnn_params() -> Any:
    def one(seed: int) -> Any:
        shapes = ((1, 1, 16, 8), (3, 3, 8, 8), (1, 1, 8, 16))
        return {
            "kernels": [normal(*shape, seed=seed) / 8 for shape in shapes],
            "scales": [normal(4, shape[-1], seed=seed + 1) for shape in shapes],
        }

    return {
        "stem": normal(7, 7, 3, 16) / 8,
        "blocks": [one(1), one(2)],
        "head": normal(16, 10),
    }


def encoder(params: Any, ids: Any, mask: Any) -> Any:
    """A two-layer BERT with mean pooling, as sentence embeddings use it."""
    x = params["words"][ids] + params["positions"][: ids.shape[1]]
    x = norm(x, params["norm"])
    bias = jnp.where(mask[:, None, None, :] > 0, 0.0, -1e9)
    for layer in params["layers"]:
        x = norm(x + attend(layer, x, bias), layer["norm1"])
        y = jax.nn.gelu(x @ layer["up"], approximate=False) @ layer["down"]
        x = norm(x + y, layer["norm2"])
    weights = mask[..., None].astype("float32")
    return (x * weights).sum(1) / jnp.maximum(weights.sum(1), 1e-9)


def attend(layer: Any, x: Any, bias: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = (
        (x @ layer[name]).reshape(batch, length, 4, width // 4).transpose(0, 2, 1, 3)
        for name in ("q", "k", "v")
    )
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(jnp.float32(width // 4))
    mixed = jax.nn.softmax(scores + bias) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ layer["o"]


def norm(x: Any, scale: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt(x.var(-1, keepdims=True) + 1e-12) * scale[0] + scale[1]


def encoder_params() -> Any:
    def one(seed: int) -> Any:
        layer = {name: normal(16, 16, seed=seed + i) / 4 for i, name in enumerate("qkvo")}
        layer |= {"up": normal(16, 32, seed=seed) / 4, "down": normal(32, 16, seed=seed) / 4}
        return layer | {"norm1": normal(2, 16, seed=seed), "norm2": normal(2, 16, seed=seed + 9)}

    return {
        "words": normal(50, 16),
        "positions": normal(12, 16, seed=5),
        "norm": normal(2, 16, seed=6),
        "layers": [one(10), one(20)],
    }


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("float16", 2e-2), ("bfloat16", 1e-1)]
)
def test_mlp_gives_what_jax_gives(dtype: str, tolerance: float) -> None:
    check(mlp, mlp_params(dtype), jnp.asarray(normal(3, 12), dtype), tolerance=tolerance)


def test_mlp_with_symbolic_batch_is_right_at_three_sizes() -> None:
    params, (batch,) = mlp_params("float32"), jax.export.symbolic_shape("batch")
    inputs = [(params, normal(size, 12)) for size in (1, 4, 9)]
    check(mlp, specs=(params, spec(batch, 12)), inputs=inputs)


def test_cnn_on_bytes_gives_what_jax_gives() -> None:
    check(cnn, cnn_params(), integers(2, 32, 32, 3, low=0, high=255, dtype="uint8"))


def test_cnn_with_symbolic_batch_is_right_at_three_sizes() -> None:
    params, (batch,) = cnn_params(), jax.export.symbolic_shape("batch")
    inputs = [(params, integers(n, 32, 32, 3, low=0, high=255, dtype="uint8")) for n in (1, 2, 3)]
    check(cnn, specs=(params, spec(batch, 32, 32, 3, dtype="uint8")), inputs=inputs)


def test_encoder_with_symbolic_batch_and_sequence_is_right_at_three_sizes() -> None:
    params = encoder_params()
    batch, length = jax.export.symbolic_shape("batch, length", constraints=["length <= 12"])
    inputs = []
    for n in (1, 2, 4):
        mask = integers(n, n + 3, low=0, high=2)
        mask[:, 0] = 1
        inputs.append((params, integers(n, n + 3, low=0, high=50), mask))
    ids = spec(batch, length, dtype="int32")
    module = check(encoder, specs=(params, ids, ids), inputs=inputs, tolerance=1e-4)
    assert module.functions["main"].symbols == {"batch": (1, None), "length": (1, 12)}


def test_names_of_arguments_and_results_come_from_the_source() -> None:
    (batch,) = jax.export.symbolic_shape("batch")
    for x in (spec(3, 12), spec(batch, 12)):
        exported = export(mlp, mlp_params("float32"), x)
        for source in (exported, exported.mlir_module_serialized):
            main = import_stablehlo(source).functions["main"]
            assert main.argument_names[:3] == ["params.0.b", "params.0.w", "params.1.b"]
            assert main.argument_names[-1] == "x"
            assert main.result_names == ["features", "logits"]


def test_results_without_names_are_numbered() -> None:
    one = import_stablehlo(export(lambda x: x + 1, spec(2)))
    two = import_stablehlo(export(lambda x: (x + 1, x), spec(2)))
    assert one.functions["main"].result_names == ["result"]
    assert two.functions["main"].result_names == ["result.0", "result.1"]


def test_unused_arguments_leave_the_names_of_the_others_right() -> None:
    module = check(lambda first, second: second + 1, normal(3), normal(4))
    assert module.functions["main"].argument_names == ["second"]


def test_ops_carry_the_layer_they_come_from() -> None:
    def model(x: Any) -> Any:
        with jax.named_scope("layer7"):
            return jax.nn.softmax(x)

    main = import_stablehlo(export(model, spec(2, 4))).functions["main"]
    places = {op.name: op.location for op in main.block.ops}
    assert "layer7" in places["exp"]
    assert "layer7" in places["div"]


def test_an_imported_model_prints_as_text_that_parses_back() -> None:
    params, (batch,) = encoder_params(), jax.export.symbolic_shape("batch")
    ids = spec(batch, 8, dtype="int32")
    text = to_text(import_stablehlo(export(encoder, params, ids, ids)))
    assert to_text(parse(text)) == text
