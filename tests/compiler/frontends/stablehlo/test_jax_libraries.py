"""Models of the libraries on jax, as docs/jax.md shows them. What is not installed is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import ingot
from tests.support.devices import best_variant, load_best
from tests.support.stablehlo_cases import Array, normal, spec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the libraries themselves
]


def check(function: Callable[..., Any], x: Array) -> None:
    """The function with a symbolic batch gives what it gives in jax."""
    (batch,) = export.symbolic_shape("batch")
    exported = export.export(jax.jit(function))(spec(batch, *x.shape[1:]))
    found = load_best(exported)(x)
    np.testing.assert_allclose(found.numpy(), function(x), rtol=1e-4, atol=1e-5)


def test_flax_linen() -> None:
    nn = pytest.importorskip("flax.linen")
    model = nn.Sequential(
        [
            *(nn.Conv(4, (3, 3)), nn.relu, nn.LayerNorm()),
            *(lambda x: x.reshape(x.shape[0], -1), nn.Dense(3)),
        ]
    )
    x = normal(2, 5, 5, 1)
    variables = model.init(jax.random.key(0), x)
    check(lambda x: model.apply(variables, x), x)
    module = ingot.compile(
        export.export(jax.jit(model.apply))(variables, x), variants=[best_variant()]
    )
    assert "variables.params.layers_4.kernel: f32[100,3]" in str(ingot.load(module).signature)


def test_flax_nnx() -> None:
    nnx = pytest.importorskip("flax.nnx")
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(
        *(nnx.Linear(4, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs), nnx.gelu),
        nnx.MultiHeadAttention(num_heads=2, in_features=8, decode=False, rngs=rngs),
        nnx.Dropout(0.5, rngs=rngs),
    )
    model.eval()
    graph, state = nnx.split(model)
    check(lambda x: nnx.merge(graph, state)(x), normal(2, 5, 4))


def test_equinox() -> None:
    equinox = pytest.importorskip("equinox")
    model = equinox.nn.MLP(4, 3, 8, 2, key=jax.random.key(0))
    cell = equinox.nn.GRUCell(3, 5, key=jax.random.key(1))

    def steps(x: Any) -> Any:
        rows = jax.vmap(model)(x)
        return jax.lax.scan(lambda h, row: (cell(row, h), None), jnp.zeros(5), rows)[0]

    check(steps, normal(6, 4))


def test_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    layers = keras.layers
    model = keras.Sequential(
        [
            *(keras.Input((6, 6, 2)), layers.Conv2D(4, 3, activation="relu")),
            *(layers.BatchNormalization(), layers.MaxPooling2D(), layers.Reshape((4, 4))),
            *(layers.LSTM(3), layers.Dropout(0.5), layers.Dense(2, activation="softmax")),
        ]
    )
    trained = [each.value for each in model.trainable_variables]
    others = [each.value for each in model.non_trainable_variables]

    def predict(x: Any) -> Any:
        return model.stateless_call(trained, others, x, training=False)[0]

    check(predict, normal(2, 6, 6, 2))
