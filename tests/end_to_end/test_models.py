"""Whole small models through compiler and runtime, static and symbolic, and the committed ones.

Errors are max |d| / max |ref| against float64 or the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal import spec
from tests.models import graphs
from tests.support.compiled_programs import Program, build
from tests.support.devices import best_variant, load_best

F32 = spec.dtype("f32")
Array = np.ndarray[Any, Any]
WIDTH, HEADS = 32, 4


def relative_error(got: Array, wanted: Array) -> float:
    """max |d| / max |ref|; 0 for tensors without elements."""
    if wanted.size == 0:
        return 0.0
    scale = float(np.abs(wanted).max()) or 1.0
    return float(np.abs(got.astype(np.float64) - wanted).max()) / scale


def weights(b: Builder, seed: int, *shape: int) -> Value:
    random = np.random.default_rng(seed)
    return b.constant((random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))


def dense(b: Builder, x: Value, seed: int, n: int) -> Value:
    shape = x.type.shape  # type: ignore[union-attr]
    k = len(shape) - 1
    w, bias = weights(b, seed, shape[-1], n), weights(b, seed + 1, n)
    dims = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (k,), "rhs_contract": (0,)}
    y = b.op("dot_general", x, w, **dims, dtype=F32)
    return b.op("add", y, b.broadcast_to(bias, (*shape[:-1], n)))  # type: ignore[no-any-return]


def rows(b: Builder, x: Value, kind: str) -> Value:
    """The reduction of x over its last axis, broadcast back to x's shape."""
    shape = x.type.shape  # type: ignore[union-attr]
    reduced = b.op("reduce", x, axes=(len(shape) - 1,), kind=kind)
    dimensions = tuple(range(len(shape) - 1))
    return b.op("broadcast", reduced, shape=shape, dimensions=dimensions)  # type: ignore[no-any-return]


def layer_norm(b: Builder, x: Value) -> Value:
    shape = x.type.shape  # type: ignore[union-attr]
    scale = b.full(1.0 / WIDTH, F32, shape)
    d = b.op("sub", x, b.op("mul", rows(b, x, "add"), scale))
    variance = b.op("mul", rows(b, b.op("mul", d, d), "add"), scale)
    y = b.op("mul", d, b.op("rsqrt", b.op("add", variance, b.full(1e-5, F32, shape))))
    return b.op("mul", y, b.broadcast_to(weights(b, 99, WIDTH), shape))  # type: ignore[no-any-return]


def heads(b: Builder, x: Value, order: tuple[int, ...]) -> Value:
    n, s, _ = x.type.shape  # type: ignore[union-attr]
    x = b.op("reshape", x, shape=(n, s, HEADS, WIDTH // HEADS))
    return b.op("transpose", x, permutation=order)  # type: ignore[no-any-return]


def transformer_block(b: Builder, x: Value) -> list[Value]:
    shape = x.type.shape  # type: ignore[union-attr]
    q = heads(b, dense(b, x, 0, WIDTH), (0, 2, 1, 3))
    k = heads(b, dense(b, x, 2, WIDTH), (0, 2, 3, 1))
    v = heads(b, dense(b, x, 4, WIDTH), (0, 2, 1, 3))
    batch = {"lhs_batch": (0, 1), "rhs_batch": (0, 1), "lhs_contract": (3,), "rhs_contract": (2,)}
    scores = b.op("dot_general", q, k, **batch, dtype=F32)
    scores = b.op("mul", scores, b.full(0.35, F32, scores.type.shape))
    e = b.op("exp", b.op("sub", scores, rows(b, scores, "max")))
    y = b.op("dot_general", b.op("div", e, rows(b, e, "add")), v, **batch, dtype=F32)
    y = b.op("reshape", b.op("transpose", y, permutation=(0, 2, 1, 3)), shape=shape)
    x = layer_norm(b, b.op("add", x, dense(b, y, 6, WIDTH)))
    h = dense(b, x, 8, 4 * WIDTH)
    h = b.op("mul", h, b.op("logistic", h))
    return [layer_norm(b, b.op("add", x, dense(b, h, 10, WIDTH)))]


def perceptron(b: Builder, x: Value) -> list[Value]:
    for seed, n in ((0, 48), (2, 33), (4, 10)):
        x = dense(b, x, seed, n)
        x = b.op("max", x, b.full(0.0, F32, x.type.shape))
    return [x, b.op("arg_max", x, axis=1, dtype=spec.dtype("i64"), last=False)]


def convolution(b: Builder, x: Value, seed: int, n: int, stride: int, groups: int = 1) -> Value:
    c = x.type.shape[1]  # type: ignore[union-attr]
    y = b.op(
        "convolution",
        *(x, weights(b, seed, n, c // groups, 3, 3)),
        strides=(stride, stride),
        padding=((1, 1), (1, 1)),
        lhs_dilation=(1, 1),
        rhs_dilation=(1, 1),
        groups=groups,
        layout="nchw,oihw->nchw",
        dtype=F32,
    )
    bias = b.op("broadcast", weights(b, seed + 1, n), shape=y.type.shape, dimensions=(1,))
    return b.op("max", b.op("add", y, bias), b.full(0.0, F32, y.type.shape))  # type: ignore[no-any-return]


def small_cnn(b: Builder, x: Value) -> list[Value]:
    x = convolution(b, x, 0, 16, 2)
    y = convolution(b, x, 2, 16, 1, groups=16)
    x = b.op("add", x, convolution(b, y, 4, 16, 1))
    x = b.op(
        "reduce_window",
        x,
        kind="max",
        window=(1, 1, 2, 2),
        strides=(1, 1, 2, 2),
        padding=((0, 0), (0, 0), (0, 0), (0, 0)),
        base_dilation=(1, 1, 1, 1),
        window_dilation=(1, 1, 1, 1),
    )
    return [dense(b, b.op("reduce", x, axes=(2, 3), kind="add"), 6, 10)]


MODELS: list[tuple[str, Callable[..., Sequence[Value]], tuple[Dim, ...], list[dict[str, int]]]] = [
    ("perceptron", perceptron, (symbol("b"), 20), [{"b": n} for n in (0, 1, 2, 37)]),
    ("cnn", small_cnn, (symbol("b"), 3, 16, 16), [{"b": n} for n in (0, 1, 3)]),
    (
        "transformer",
        transformer_block,
        (symbol("b"), symbol("s"), WIDTH),
        [{"b": 1, "s": 1}, {"b": 2, "s": 17}, {"b": 3, "s": 64}, {"b": 0, "s": 5}],
    ),
]


@pytest.mark.parametrize(("make", "shape", "sizes"), [row[1:] for row in MODELS])
def test_symbolic_models_match_the_interpreter(
    make: Callable[..., Sequence[Value]], shape: tuple[Dim, ...], sizes: list[dict[str, int]]
) -> None:
    symbols: dict[str, tuple[int, int | None]] = dict.fromkeys(sizes[0], (0, None))
    program = Program(build(make, ("f32", shape), symbols=symbols))
    for values in sizes:
        actual = tuple(values.get(str(dim), dim) for dim in shape)
        x = np.random.default_rng(7).standard_normal(actual).astype(np.float32)  # type: ignore[arg-type]
        wanted = interpret(program.reference, "main", [x])
        for got, expected in zip(program.call(x), wanted, strict=True):
            assert got.shape == expected.shape
            assert relative_error(got, expected) < 5e-6


@pytest.mark.parametrize(("make", "shape", "sizes"), [row[1:] for row in MODELS])
def test_static_and_symbolic_models_queue_as_many_dispatches(
    make: Callable[..., Sequence[Value]], shape: tuple[Dim, ...], sizes: list[dict[str, int]]
) -> None:
    symbols: dict[str, tuple[int, int | None]] = dict.fromkeys(sizes[0], (1, None))
    symbolic = ingot.compile(
        build(make, ("f32", shape), symbols=symbols), variants=[best_variant()]
    ).report
    static_shape = tuple(sizes[1].get(str(dim), dim) for dim in shape)
    static = Program(build(make, ("f32", static_shape)))
    assert static.dispatches == symbolic.dispatches["main"]
    x = np.random.default_rng(7).standard_normal(static_shape).astype(np.float32)  # type: ignore[arg-type]
    for got, expected in zip(static.call(x), interpret(static.reference, "main", [x]), strict=True):
        assert relative_error(got, expected) < 5e-6


def test_a_transformer_block_is_few_dispatches() -> None:
    """q, k, v, attention or its three parts, projection, norm, up, down, norm."""
    shape = (symbol("b"), symbol("s"), WIDTH)
    bounds: dict[str, tuple[int, int | None]] = {"b": (1, None), "s": (1, None)}
    module = ingot.compile(
        build(transformer_block, ("f32", shape), symbols=bounds), variants=[best_variant()]
    )
    assert module.report.dispatches["main"] <= 14


@pytest.mark.slow
@pytest.mark.parametrize("name", graphs.NAMES)
def test_committed_models_are_right_to_5e_6(name: str) -> None:
    model = load_best(graphs.load(name, seed=0))
    arguments = graphs.sample(name, 0, **graphs.REFERENCE_DIMS.get(name, {}))
    assert relative_error(model(**arguments).numpy(), graphs.reference(name)) < 5e-6
