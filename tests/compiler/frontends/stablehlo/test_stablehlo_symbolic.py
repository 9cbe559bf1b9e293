"""Symbolic dims: one import is right at every size, and the dims carry the source's names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ingot
from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.dims import symbol
from ingot.hal.errors import InvalidArgument
from tests.support.devices import best_variant
from tests.support.stablehlo_cases import check, export, integers, normal, spec

B, S = jax.export.symbolic_shape("b, s")
WEIGHT = normal(4, 5)
KERNEL = normal(3, 3, 3, 4)

BATCHED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "mlp": (lambda x: jax.nn.softmax(jnp.tanh(x @ WEIGHT) + 1), (B, 4)),
    "flatten": (lambda x: x.reshape(x.shape[0], -1) @ jnp.ones((12, 2)), (B, 3, 4)),
    "fold": (lambda x: x.reshape(-1, 2), (B, 3, 4)),
    "mean": (lambda x: jnp.mean(x, 0) + x.shape[0], (B, 4)),
    "cnn": (
        lambda x: jax.nn.relu(
            lax.conv_general_dilated(
                x, KERNEL, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        ).mean((1, 2)),
        (B, 8, 8, 3),
    ),
    "pool": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID"),
        (B, 8),
    ),
    "argmax": (lambda x: (jnp.argmax(x, -1), jnp.argmax(x, 0)), (B, 4)),
    "arithmetic": (lambda x: x.reshape(-1)[: (x.shape[0] * 6 + 2) // 4].sum(), (B, 4)),
}


@pytest.mark.parametrize("name", BATCHED)
def test_symbolic_batch_is_right_at_three_sizes(name: str) -> None:
    function, shape = BATCHED[name]
    inputs = [(normal(size, *shape[1:]),) for size in (1, 3, 6)]
    module = check(function, specs=[spec(*shape)], inputs=inputs)
    assert module.functions["main"].symbols == {"b": (1, None)}


def attention(q: Any, mask: Any) -> Any:
    """Two heads over [batch, sequence, 4]; masked positions get no weight."""
    batch, length, width = q.shape
    heads = q.reshape(batch, length, 2, width // 2).transpose(0, 2, 1, 3)
    scores = jnp.einsum("bhqd,bhkd->bhqk", heads, heads) / 2
    scores = jnp.where(mask[:, None, None, :] > 0, scores, -1e9)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), heads)
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, width)


def causal(x: Any) -> Any:
    visible = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    return jax.nn.softmax(jnp.where(visible, x @ x.transpose(0, 2, 1), -1e9))


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def test_attention_with_symbolic_batch_and_sequence_is_right_at_three_sizes() -> None:
    inputs = []
    for size in (1, 2, 5):
        mask = integers(size, size + 2, low=0, high=2)
        mask[:, 0] = 1
        inputs.append((normal(size, size + 2, 4), mask))
    specs = [spec(B, S, 4), spec(B, S, dtype="int32")]
    module = check(attention, specs=specs, inputs=inputs)
    types = [argument.type for argument in module.functions["main"].arguments]
    assert [str(type) for type in types] == ["f32[b,s,4]", "i32[b,s]"]


SEQUENCES: dict[str, Any] = {
    "causal": causal,
    "layer_norm": layer_norm,
    "last": lambda x: x[:, -1],
    "append": lambda x: jnp.concatenate([x, x[:, :1]], 1),
    "positions": lambda x: x + jnp.arange(x.shape[1])[:, None],
    "gather": lambda x: x[:, jnp.array([0, 1, 0])] + x[jnp.array([0]), :1],
    "transpose": lambda x: x.transpose(1, 0, 2).reshape(x.shape[1], -1, 2),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_symbolic_sequence_is_right_at_three_sizes(name: str) -> None:
    inputs = [(normal(size, size + 2, 4),) for size in (1, 2, 5)]
    check(SEQUENCES[name], specs=[spec(B, S, 4)], inputs=inputs)


def test_convolution_with_symbolic_image_size_is_right_at_three_sizes() -> None:
    height, width = jax.export.symbolic_shape("h, w")
    inputs = [(normal(2, 3, size, size + 2),) for size in (3, 6, 7)]
    for stride in (1, 2):
        check(
            lambda x, stride=stride: lax.conv_general_dilated(
                x, normal(4, 3, 3, 3), (stride, stride), "SAME"
            ),
            specs=[spec(2, 3, height, width)],
            inputs=inputs,
        )


def decaying(x: Any, y: Any) -> Any:
    """Associative, and not commutative with itself: the later of two counts where it is greater."""
    return jnp.where(jnp.abs(y) >= jnp.abs(x), y, x)


def test_windows_and_running_folds_of_any_region_have_symbolic_sizes() -> None:
    def folds(x: Any) -> Any:
        return (
            lax.cumlogsumexp(x, 1),
            lax.cumlogsumexp(x, 0, reverse=True),
            lax.reduce_window(x, np.float32(0), decaying, (1, 2), (1, 1), "SAME"),
        )

    inputs = [(4 * normal(*sizes),) for sizes in ((1, 1), (3, 4), (2, 7))]
    check(folds, specs=[spec(B, S)], inputs=inputs)
    module = ingot.compile(export(folds, spec(B, S)), variants=[best_variant()])
    model = ingot.load(module)
    for (x,) in inputs:
        for got, wanted in zip(model(x), folds(x), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_arguments_that_share_a_dim_share_its_symbol() -> None:
    inputs = [(normal(size, 4), normal(size, 4)) for size in (1, 3)]
    module = check(lambda x, y: x + y, specs=[spec(B, 4), spec(B, 4)], inputs=inputs)
    assert {str(each.type) for each in module.functions["main"].arguments} == {"f32[b,4]"}


def test_a_multiple_of_a_symbol_stays_a_multiple() -> None:
    (half,) = jax.export.symbolic_shape(
        "c",
    )
    module = import_stablehlo(export(lambda x: x.reshape(-1, 2, 4).sum(1), spec(2 * half, 4)))
    main = module.functions["main"]
    assert str(main.arguments[0].type) == "f32[2*c,4]"
    assert str(main.result_types[0]) == "f32[c,4]"


def test_bounds_of_a_symbol_become_bounds_of_the_function() -> None:
    (size,) = jax.export.symbolic_shape("n", constraints=["n >= 2", "n <= 8"])
    module = import_stablehlo(export(lambda x: x + 1, spec(size, 4)))
    assert module.functions["main"].symbols == {"n": (2, 8)}


def test_a_relation_between_symbols_that_no_bound_implies_is_checked_by_the_call() -> None:
    a, b = jax.export.symbolic_shape("a, b", constraints=["a >= b"])
    check(
        lambda x, y: x[: y.shape[0]] + y,
        specs=[spec(a, 4), spec(b, 4)],
        inputs=[(normal(5, 4), normal(3, 4)), (normal(2, 4), normal(2, 4))],
    )
    module = import_stablehlo(export(lambda x, y: x[: y.shape[0]] + y, spec(a, 4), spec(b, 4)))
    with pytest.raises(InvalidArgument, match="3 is not at most 2"):
        interpret(module, "main", [normal(2, 4), normal(3, 4)])


def test_equal_shapes_unify_dims_of_a_program_without_names() -> None:
    text = """
    func.func public @main(%a: tensor<?x4xf32>, %b: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %0 = stablehlo.add %a, %b : tensor<?x4xf32>
      return %0 : tensor<?x4xf32>
    }"""
    main = import_stablehlo(_artifact(text)).functions["main"]
    first, second = (argument.type for argument in main.arguments)
    assert first == second
    assert isinstance(first, TensorType)
    assert len(main.symbols) == 1


def test_a_size_that_depends_on_data_is_a_symbol_of_the_result() -> None:
    text = """
    func.func public @main(%a: tensor<4xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
      %0 = stablehlo.dynamic_reshape %a, %n : (tensor<4xf32>, tensor<1xi32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    (result,) = import_stablehlo(_artifact(text)).functions["main"].result_types
    assert isinstance(result, TensorType)
    assert result.shape == (symbol("size_1"),)


def _artifact(text: str) -> bytes:
    from jaxlib.mlir.dialects import stablehlo

    return bytes(stablehlo.serialize_portable_artifact_str(text, "1.9.0"))


def test_results_of_random_programs_of_sizes_match() -> None:
    inputs = [(np.ones((size, 3), np.float32),) for size in (1, 2, 7)]
    check(
        lambda x: jnp.pad(x, ((1, 2), (0, 0)))[: x.shape[0] * 2 // 2] * (x.shape[0] - 1),
        specs=[spec(B, 3)],
        inputs=inputs,
    )
