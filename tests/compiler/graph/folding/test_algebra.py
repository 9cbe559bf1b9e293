"""Every algebraic rule holds on random and special numbers, for every dtype it lists."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.algebra import RULES, AlgebraRule, Term, parse_term
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.folding.simplify import simplify
from ingot.compiler.ir import Module, Value
from ingot.hal.spec import dtype
from tests.support.programs import names, program, run

DTYPES = {
    "f": ("f32", "f64", "f16", "bf16"),
    "w": ("f32", "f64"),
    "i": ("i8", "i32"),
    "u": ("u8", "u64"),
    "b": ("i1",),
}
CASES = [
    pytest.param(rule, name, id=f"{rule.left} -> {rule.right} [{name}]")
    for rule in RULES
    for kind in rule.kinds
    for name in DTYPES[kind]
]
COUNT = 400


def numbers(name: str, seed: int) -> np.ndarray[Any, Any]:
    """Random numbers of a dtype, the special ones among them."""
    rng = np.random.default_rng(seed)
    element = dtype(name)
    if element.is_boolean:
        return rng.random(COUNT) < 0.5
    if element.is_integer:
        raw = rng.integers(0, 256, (COUNT, element.bytes), np.uint8).tobytes()
        return np.frombuffer(raw, element.numpy).copy()
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, 0.5])
    values = np.concatenate([rng.standard_normal(COUNT // 2) * 8, rng.choice(special, COUNT // 2)])
    return rng.permutation(values).astype(element.numpy)


def letters(rule: AlgebraRule) -> list[str]:
    found = re.findall(r"(?<!\w)([a-z])(?!\w|\()", rule.left)
    return [each for each in dict.fromkeys(found) if each != rule.power_of_two]


def term_value(term: Term, bound: dict[str, Value], builder: Builder, name: str) -> Value:
    if term.is_number:
        number = float(term.name)
        element = dtype(name)
        return builder.full(number if element.is_float else int(number), name, (COUNT,))
    if not term.operands:
        return bound[term.name]
    operands = [term_value(each, bound, builder, name) for each in term.operands]
    if term.name == "select" and term.operands[0].is_number:
        operands[0] = builder.full(bool(int(term.operands[0].name)), "i1", (COUNT,))
    value: Value = builder.op(term.name, *operands)
    return value


def left_side(rule: AlgebraRule, name: str, power: float) -> tuple[Module, list[str]]:
    places = letters(rule)
    types = ["i1" if place == "p" else name for place in places]

    def build(builder: Builder, *values: Value) -> Value:
        bound = dict(zip(places, values, strict=True))
        if rule.power_of_two:
            bound[rule.power_of_two] = builder.full(power, name, (COUNT,))
        return term_value(parse_term(rule.left), bound, builder, name)

    return program(build, *(f"{type}[{COUNT}]" for type in types)), types


def distance(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """The greatest difference in units of the last place; NaN equals NaN."""
    element = np.finfo(a.dtype) if a.dtype.kind == "f" else None
    digits = 8 if element is None else element.nmant + 1
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(all="ignore"):
        unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x), 1e-38))) - digits + 1)
        gap = np.abs(x - y) / unit
    return float(np.where(same, 0, gap).max())


@pytest.mark.parametrize(("rule", "name"), CASES)
def test_rule_holds(rule: AlgebraRule, name: str) -> None:
    for power in (4.0, -0.125) if rule.power_of_two else (1.0,):
        module, types = left_side(rule, name, power)
        arrays = [numbers(type, seed) for seed, type in enumerate(types)]
        before = run(module, *arrays)[0]
        old = names(module)
        eliminate_dead_code(simplify(module))
        after = run(module, *arrays)[0]
        assert names(module) != old, "the rule was not applied"
        if rule.ulp:
            assert distance(before, after) <= rule.ulp * 2
            continue
        nan = np.isnan(before.astype(np.float64))
        assert (np.isnan(after.astype(np.float64)) == nan).all()
        assert before[~nan].tobytes() == after[~nan].tobytes()


def test_sides_that_matter_are_kept() -> None:
    def kept(op: str, number: float, name: str) -> bool:
        module = program(lambda b, x: b.op(op, x, b.full(number, name, (4,))), f"{name}[4]")
        return names(eliminate_dead_code(simplify(module)))[op] == 1

    assert kept("add", 0.0, "f32")  # -0 + 0 is +0
    assert kept("mul", 0.0, "f32")  # NaN * 0 is NaN
    assert kept("sub", -0.0, "f32")
    assert kept("div", 3.0, "f32")  # 1/3 is not exact
    assert not kept("mul", 1.0, "f32")


POWERS = [rule for rule in RULES if rule.left.startswith("pow(") and "f" in rule.kinds]


@pytest.mark.parametrize("name", DTYPES["f"])
@pytest.mark.parametrize("rule", POWERS, ids=[rule.left for rule in POWERS])
def test_a_power_by_products_and_roots_is_as_close_as_said(rule: AlgebraRule, name: str) -> None:
    """Over all bit patterns: subnormals, results that over- and underflow, -0, -inf, NaN."""
    element = np.dtype(dtype(name).numpy)
    bits = np.random.default_rng(5).integers(0, 256, (4096, element.itemsize), np.uint8)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1]).astype(element)
    near_one = np.random.default_rng(6).uniform(-8, 8, 4096).astype(element)
    x = np.concatenate([bits.reshape(-1).view(element), special, near_one])
    exponent = float(parse_term(rule.left).operands[1].name)
    module = program(
        lambda b, x: b.op("pow", x, b.full(exponent, name, tensor_type(x).shape)),
        f"{name}[{len(x)}]",
    )
    eliminate_dead_code(simplify(module))
    assert not names(module)["pow"]
    with np.errstate(all="ignore"):
        result = run(module, x)[0].astype(np.longdouble)
        exact = np.power(x.astype(np.longdouble), np.longdouble(exponent))
        limits = ml_dtypes.finfo(element)
        ends = (exact == 0) | ~np.isfinite(exact)
        assert np.array_equal(result[ends], exact[ends], equal_nan=True)
        assert (np.signbit(result) == np.signbit(exact))[ends & ~np.isnan(exact)].all()
        place = np.maximum(np.floor(np.log2(np.abs(exact))), int(limits.minexp)) - limits.nmant
        gap = np.abs(result - exact) / np.exp2(place)
        over = np.abs(exact) > np.longdouble(limits.max) * (1 - rule.ulp * float(limits.eps))
    over &= np.isinf(result)  # rounded beyond the largest number, as the exact one nearly is
    assert (gap[~ends & ~over] <= max(rule.ulp, 0.5)).all()
