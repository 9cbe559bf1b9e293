"""Branches whose results differ in dims: what is picked in front of them, and what comes out of
them in lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, while_loop
from ingot.compiler.ir import Value, parse_type
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import dtype
from tests.support.devices import load_best
from tests.support.programs import program


def test_dims_that_differ_are_picked_in_front_of_the_branch() -> None:
    def build(b: Builder, x: Value, which: Value) -> Sequence[Value]:
        builds = [
            lambda inner: [inner.value("exp", x)],
            lambda inner: [inner.value("concatenate", x, x, axis=0)],
            lambda inner: [inner.full(7, "f32", (3,))],
        ]
        (y,) = branches(b, "case", which, builds, iter(["k"]))
        return [y, b.value("reduce", y, axes=(0,), kind="add")]

    module = program(build, "f32[a]", "i64[]")
    main = module.functions["main"]
    main.symbols, main.result_names = {"a": (0, None)}, ["y", "total"]
    model = load_best(module)
    for count in (0, 1, 40):
        x = np.linspace(-1, 1, count, dtype=np.float32)
        wanted = [np.exp(x), np.concatenate([x, x]), np.full(3, 7, np.float32)]
        for which in (-1, 0, 1, 2, 5):
            y, total = map(np.asarray, model.main(x, np.int64(which)))
            expected = wanted[which if 0 <= which < 3 else 2]
            np.testing.assert_allclose(y, expected, rtol=1e-6)
            np.testing.assert_allclose(total, expected.sum(), rtol=1e-5, atol=1e-5)


def test_a_dim_that_only_the_inside_of_a_branch_tells_comes_out_of_it() -> None:
    def build(b: Builder, x: Value, flag: Value) -> Sequence[Value]:
        def found(inner: Builder) -> list[Value]:
            return [inner.value("nonzero", x, symbols=("n",)), x]

        def none(inner: Builder) -> list[Value]:
            return [inner.full(5, "i64", (1, 2)), inner.value("neg", x)]

        y, z = branches(b, "if", flag, [found, none], iter(["k"]))
        return [b.value("add", y, y), z]

    module = program(build, "f32[4]", "i1[]")
    module.functions["main"].result_names = ["y", "z"]
    model = load_best(module)
    x = np.array([0, 3, 0, 4], np.float32)
    for values, flag, wanted in (
        (x, True, [[2, 6]]),
        (x, False, [[10, 10]]),
        (x * 0, True, np.zeros((1, 0))),
        (x + 1, True, [[0, 2, 4, 6]]),
    ):
        y, z = model.main(values, np.bool_(flag))
        np.testing.assert_array_equal(np.asarray(y), wanted)
        np.testing.assert_array_equal(np.asarray(z), values if flag else -values)


def test_a_loop_may_test_the_dim_that_it_changes() -> None:
    def build(b: Builder, x: Value) -> Value:
        def is_short(inner: Builder, values: Sequence[Value]) -> Value:
            size = inner.value("dim", value=symbol("k"), dtype=dtype("i64"))
            return inner.value("compare", size, inner.constant(9, "i64"), direction="lt")

        def double(inner: Builder, values: Sequence[Value]) -> list[Value]:
            return [inner.value("concatenate", values[0], values[0], axis=0)]

        (y,) = while_loop(b, [x], is_short, double, [parse_type("f32[k]")], ["k"])
        return y

    module = program(build, "f32[a]")
    main = module.functions["main"]
    main.symbols, main.result_names = {"a": (1, None)}, ["y"]
    model = load_best(module)
    for count, length in ((1, 16), (3, 12), (9, 9), (20, 20)):
        x = np.arange(count, dtype=np.float32)
        np.testing.assert_array_equal(np.asarray(model.main(x)), np.resize(x, length))
