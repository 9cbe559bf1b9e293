"""A program of jax with symbolic dims queues as many kernels as with numbers, and gives what jax
gives: what follows from dims is done by the VM, and loops read nothing back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import ingot
from tests.support.devices import best_variant, load_best

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

BEST = [best_variant()]
SIZES = {"b": 3, "s": 5}

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "moments": (lambda x: (jnp.var(x, 1), jnp.std(x, 0), jnp.mean(x)), ("b, s",)),
    "normalise": (
        lambda x: (x - x.mean((0, 1))) / jnp.sqrt(x.var((0, 1)) + 1e-5),
        ("b, s, 3",),
    ),
    "roll": (lambda x: jnp.roll(x, x.shape[1] // 2, axis=1), ("b, s",)),
    "take": (lambda x: jnp.take(x, jnp.array([0, 2]), axis=0), ("b, s",)),
    "block": (lambda x: lax.dynamic_slice(x, (x.shape[0] - 2, 0), (2, 2)), ("b + 1, 4",)),
    "scan": (
        lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c), x[0], x, reverse=True),
        ("s, b",),
    ),
    "map": (lambda x: lax.map(lambda v: jnp.sort(v).sum(), x), ("b, s",)),
    "split": (lambda x: jnp.stack(jnp.split(x, 2, axis=0)), ("2*b, s",)),
    "join": (lambda x, y, z: jnp.concatenate([x, y]) + z, ("b, 4", "s, 4", "b + s, 4")),
    "pool": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2), (1, 2, 2), "SAME"),
        ("b, s, s + 1",),
    ),
}


def exported(function: Callable[..., Any], shapes: list[Any]) -> Any:
    specs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return jax.export.export(jax.jit(function))(*specs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_symbolic_programs_queue_as_many_kernels_as_static_ones(name: str) -> None:
    function, texts = PROGRAMS[name]
    scope = jax.export.SymbolicScope(["b >= 2"])
    shapes = [jax.export.symbolic_shape(text, scope=scope) for text in texts]
    symbolic = ingot.compile(exported(function, shapes), variants=BEST)
    model = ingot.load(symbolic)
    for sizes in (SIZES, {"b": 2, "s": 1}, {"b": 7, "s": 16}):
        known = [
            tuple(dim if isinstance(dim, int) else dim._evaluate(sizes) for dim in shape)
            for shape in shapes
        ]
        inputs = [np.random.default_rng(0).random(shape, np.float32) for shape in known]
        wanted = jax.tree_util.tree_leaves(function(*inputs))
        found = model(*inputs)
        for a, b in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5)
        if sizes is SIZES:
            static = ingot.compile(exported(function, known), variants=BEST)
            assert symbolic.report.dispatches == static.report.dispatches


def test_empty_arguments_may_lie_anywhere() -> None:
    ends = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [dim]) for name, dim in ("xn", "ym")
    ]
    result = helper.make_tensor_value_info("z", TensorProto.INT64, ["k"])
    node = helper.make_node("Concat", ["x", "y"], ["z"], axis=0)
    graph = helper.make_graph([node], "main", ends, [result])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = load_best(source)
    empty = np.ndarray((0,), np.int64, buffer=bytearray(32), offset=1)
    full = np.arange(4)
    for arguments in ((empty, full), (full, empty)):
        np.testing.assert_array_equal(model(*arguments), full)
