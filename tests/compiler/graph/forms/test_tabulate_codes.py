"""tabulate_codes makes one look-up of what stands between codes and codes, where that is much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.tabulate_codes import tabulate_codes
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Module, Value, walk
from ingot.compiler.read_source import copy_module
from ingot.hal.spec import dtype
from tests.support.programs import program


def quantised(b: Builder, x: Value, scale: float, zero: int, target: str) -> Value:
    low = -128 if target == "i8" else 0
    shape = x.type.shape  # type: ignore[attr-defined]
    x = b.value("round_even", b.value("div", x, b.full(scale, "f32", shape)))
    x = b.value("add", x, b.full(zero, "f32", shape))
    x = b.value("clamp", b.full(low, "f32", shape), x, b.full(low + 255, "f32", shape))
    return b.value("convert", x, dtype=dtype(target))


def dequantised(b: Builder, x: Value, scale: float, zero: int) -> Value:
    x = b.value("convert", x, dtype=dtype("f32"))
    shape = x.type.shape  # type: ignore[attr-defined]
    x = b.value("sub", x, b.full(zero, "f32", shape))
    return b.value("mul", x, b.full(scale, "f32", shape))


def gated(b: Builder, x: Value, *_: Value) -> Value:
    """x * logistic(x) with codes in between."""
    kind = x.type.dtype.name  # type: ignore[attr-defined]
    x = dequantised(b, x, 0.05, 3)
    gate = dequantised(b, quantised(b, b.value("logistic", x), 1 / 255, -9, kind), 1 / 255, -9)
    return quantised(b, b.value("mul", x, gate), 0.03, 11, kind)


def turned(b: Builder, x: Value) -> Value:
    """The same, with codes of the other sign."""
    codes = b.value("bitcast", gated(b, x), dtype=dtype("u8"))
    return b.value("xor", codes, b.full(128, "u8", codes.type.shape))  # type: ignore[attr-defined]


def check(build: Callable[..., Any], kind: str, *others: str) -> Counter[str]:
    """All codes give what they gave. The ops that are left."""
    module: Module = program(build, f"{kind}[n,256]", *others)
    changed = eliminate_dead_code(tabulate_codes(copy_module(module)))
    codes = np.arange(512, dtype=np.int64).astype(np.uint8).reshape(2, 256)
    arrays = [codes.view(dtype(kind).numpy)] * (1 + len(others))
    (wanted,), (got,) = (interpret(each, "main", arrays) for each in (module, changed))
    np.testing.assert_array_equal(got, wanted)
    return Counter(op.name for op in walk(changed))


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_a_function_of_codes_is_one_table(kind: str) -> None:
    ops = check(gated, kind)
    assert (ops["take"], ops["logistic"], ops["div"]) == (1, 0, 0)


def test_codes_that_are_turned_come_from_the_same_table() -> None:
    ops = check(turned, "i8")
    assert (ops["take"], ops["xor"]) == (1, 0)


def test_few_steps_stay() -> None:
    assert not check(lambda b, x: quantised(b, dequantised(b, x, 0.1, 7), 0.2, 5, "u8"), "u8")[
        "take"
    ]


def test_what_depends_on_two_codes_is_no_table() -> None:
    def build(b: Builder, x: Value, y: Value) -> Value:
        both = b.value("mul", dequantised(b, x, 0.1, 7), dequantised(b, y, 0.1, 7))
        return quantised(b, b.value("exp", both), 0.2, 5, "u8")

    ops = check(build, "u8", "u8[n,256]")
    assert (ops["take"], ops["exp"]) == (0, 1)
