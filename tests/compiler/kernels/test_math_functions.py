"""Math functions in loop IR: the interpreter, printed C and OpenCL C give the same bits."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import mpmath
import numpy as np
import pytest

from ingot.compiler.graph.ops import OPS
from ingot.compiler.ir import parse_function, to_text
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.kernels.level import verify_function, verify_kernel
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.math.functions import MATH_FUNCTIONS, math_function
from ingot.compiler.kernels.references import REFERENCES
from ingot.compiler.kernels.table import LOOP_OPS
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.kernel_runner import VARIANTS, Loaded, all_variants, host_variants, run
from tests.support.loops import kernel_of

Array = np.ndarray[Any, Any]
FLOATS = ["f32", "f64"]
NAMES = sorted(MATH_FUNCTIONS - LOOP_OPS.keys())
OF_TWO = ["atan2", "pow"]
OF_ONE = [name for name in NAMES if name not in OF_TWO]


def every_exponent(name: str, step: int = 1) -> Array:
    """Both zeros, subnormals, infinities, NaN, and of every exponent the edges and some more."""
    bits, mantissa = (32, 23) if name == "f32" else (64, 52)
    rng = np.random.default_rng(7)
    edges = [0, 1, (1 << mantissa) - 1, 1 << (mantissa - 1)]
    some = [*edges, *rng.integers(0, 1 << mantissa, 4).tolist()]
    numbers = [
        at << mantissa | each for at in range(0, 1 << (bits - mantissa), step) for each in some
    ]
    return np.array(numbers, f"u{bits // 8}").view(dtype(name).numpy)


def kernel(name: str, ops: list[str], operands: int, size: int, variant: str) -> Kernel:
    types = [f"{name}[{size}]"] * operands
    function = entry(types, lambda b, *x: [b.op(op, *x) for op in ops])
    return lower_map(function, VARIANTS[variant].target)


def interpret(name: str, ops: list[str], operands: list[Array]) -> list[Array]:
    """By the interpreter of loop IR, an item for each element."""
    b, element, size = LoopBuilder(), dtype(name), operands[0].size
    results = [np.zeros_like(operands[0]) for _ in ops]
    memory = [b.binding(place, element) for place in range(len(operands) + len(ops))]
    values = [b.load(each, b.workgroup(0)) for each in memory[: len(operands)]]
    for target, op in zip(memory[len(operands) :], ops, strict=True):
        b.store(target, b.workgroup(0), b.op(op, *values))
    bindings = (element,) * len(memory)
    fields = {"bindings": bindings, "result_count": len(ops), "local_size": (1, 1, 1)}
    items = kernel_of(b, **fields, workload=(size, 1, 1))
    assert run_kernel(items, [*operands, *results], {}) is None
    return results


def check_bits(name: str, ops: list[str], operands: list[Array]) -> None:
    """The interpreter, C and OpenCL C, where there is a multiply-add that rounds once."""
    size = operands[0].size
    interpreted = interpret(name, ops, operands)
    variants = [each for each in all_variants() if VARIANTS[each].target.fma]
    for variant in variants:
        printed = kernel(name, ops, len(operands), size, variant)
        got = run(printed, operands, [each.copy() for each in interpreted], variant)
        for op, mine, theirs in zip(ops, interpreted, got, strict=True):
            same = mine.view(f"u{mine.itemsize}") == theirs.view(f"u{mine.itemsize}")
            same |= np.isnan(mine) & np.isnan(theirs)
            at = int(np.argmin(same))
            message = f"{op} of {operands[0][at]!r}: {mine[at]!r}, {variant} has {theirs[at]!r}"
            assert same.all(), message


@pytest.mark.parametrize("name", FLOATS)
def test_interpreter_c_and_opencl_give_the_same_bits(name: str) -> None:
    x = every_exponent(name, 1 if name == "f32" else 37)
    check_bits(name, OF_ONE, [x])
    y = np.random.default_rng(3).permutation(x)
    near = np.random.default_rng(4).uniform(-20, 20, x.size).astype(x.dtype)
    check_bits(name, OF_TWO, [np.concatenate([x, np.abs(y)]), np.concatenate([y, near])])


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_narrow_floats_go_through_f32_and_are_rounded_once(name: str) -> None:
    x = np.arange(0, 1 << 16, 7, np.uint16).view(dtype(name).numpy)
    ops = ["exp", "sin", "tanh", "log", "asinh"]
    check_bits(name, ops, [x])
    lowered = kernel(name, ops, 1, x.size, host_variants()[0])
    got = run(lowered, [x], [np.zeros_like(x) for _ in ops], host_variants()[0])
    wide = [np.zeros(x.size, np.float32) for _ in ops]
    with np.errstate(invalid="ignore"):  # signalling NaN
        operand = x.astype(np.float32)
    run(kernel("f32", ops, 1, x.size, host_variants()[0]), [operand], wide)
    for mine, theirs in zip(got, wide, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = theirs.astype(x.dtype).astype(np.float32)
        np.testing.assert_array_equal(mine.astype(np.float32), expected)


@pytest.mark.parametrize("name", FLOATS)
def test_scalars_have_the_bits_of_vectors(name: str) -> None:
    x = np.array([0.7, -0.3, 1e7], dtype(name).numpy)
    variant = host_variants()[0]
    whole = run(kernel(name, OF_ONE, 1, 3, variant), [x], [x.copy() for _ in OF_ONE], variant)
    one = kernel(name, OF_ONE, 1, 1, variant)
    for place in range(3):
        part = x[place : place + 1]
        results = run(one, [part], [part.copy() for _ in OF_ONE], variant)
        for vector, scalar in zip(whole, results, strict=True):
            np.testing.assert_array_equal(vector[place], scalar[0])


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("name", sorted(MATH_FUNCTIONS))
def test_functions_are_valid_and_read_back(name: str, element: str, lanes: int) -> None:
    function = math_function(name, dtype(element), lanes)
    assert function is not None
    verify_function(function)
    text = to_text(function)
    again = parse_function(text)
    verify_function(again)
    assert to_text(again) == text


@pytest.mark.parametrize("name", FLOATS)
def test_powers_below_one(name: str) -> None:
    kind, lanes = dtype(name).numpy, 8
    x = -np.abs(every_exponent(name, 1 if name == "f32" else 37))
    x = np.concatenate([x[x == x], np.linspace(-110, 0, 8000, dtype=kind)])
    x = np.append(x[: x.size // lanes * lanes - 1], kind.type(np.nan))
    b = LoopBuilder()
    source, target = (b.binding(place, dtype(name)) for place in range(2))
    at = b.mul(b.workgroup(0), lanes)
    b.store(target, at, b.part("loop.exp_nonpositive", b.load(source, at, lanes)))
    fields = {"bindings": (dtype(name),) * 2, "workload": (x.size // lanes, 1, 1)}
    small = kernel_of(b, **fields, local_size=(1, 1, 1))
    wanted = np.zeros_like(x)
    assert run_kernel(small, [x, wanted], {}) is None
    exact = np.exp(x[:-1].astype(np.longdouble))
    unit = np.spacing(np.maximum(exact, np.finfo(kind).tiny).astype(kind)).astype(np.longdouble)
    for variant in host_variants():
        (got,) = run(small, [x], [np.zeros_like(x)], variant)
        if VARIANTS[variant].target.fma:
            np.testing.assert_array_equal(got, wanted)
        twice = 0 if VARIANTS[variant].target.fma else 0.1  # roundings of a multiply-add
        assert (np.abs(got[:-1] - exact) <= (OPS["exp"].ulp + twice) * unit).all()
        assert np.isnan(got[-1])


@pytest.mark.parametrize("name", FLOATS)
def test_powers_of_what_is_masked_take_no_longer(name: str) -> None:
    size, kind = 1 << 14, dtype(name).numpy
    for variant in host_variants():
        loaded = Loaded(kernel(name, ["exp"], 1, size, variant), variant)
        masked, plain = np.full(size, -1e4, kind), np.full(size, -1.0, kind)
        result, times = np.zeros(size, kind), dict[int, list[float]]()
        for _ in range(30):  # in turns
            for place, operand in enumerate((plain, masked)):
                begin = perf_counter()
                loaded([operand, result])
                times.setdefault(place, []).append(perf_counter() - begin)
        # some processors take five times as long where they have to round what is subnormal
        assert min(times[1]) < 2.5 * min(times[0])


def test_only_floats_have_functions() -> None:
    assert math_function("pow", dtype("i32"), 4) is None
    assert math_function("add", dtype("f32"), 4) is None
    half = math_function("exp", dtype("f16"), 4)
    assert half is math_function("exp", dtype("f32"), 4)


def test_a_function_touches_nothing_but_registers() -> None:
    f32 = dtype("f32")
    b = LoopBuilder()
    with pytest.raises(CompileError, match=r"op 'loop\.load' has no place in a function"):
        verify_function(b.finish("reads", b.load(b.binding(0, f32), 0)))
    b = LoopBuilder()
    with pytest.raises(CompileError, match="gives 0 values, expected one"):
        verify_function(b.finish("gives_nothing"))
    b = LoopBuilder()
    loops = b.finish("small", b.constant(1.0, f32))
    with pytest.raises(CompileError, match="'return': gives values"):
        verify_kernel(kernel_of(LoopBuilder(), loops=loops))


def test_parts_take_equal_floats() -> None:
    b = LoopBuilder()
    scaled = b.part("loop.scale", b.constant(1, dtype("i32")), b.constant(1, dtype("i32")))
    with pytest.raises(CompileError, match=r"'loop\.scale'.*numbers of f32 or f64"):
        verify_function(b.finish("scaled", scaled))
    b = LoopBuilder()
    scaled = b.part("loop.scale", b.constant(1.0, dtype("f32")), b.constant(1.0, dtype("f64")))
    with pytest.raises(CompileError, match="takes equal types"):
        verify_function(b.finish("scaled", scaled))


@pytest.mark.parametrize(("name", "precision"), [("f32", 24), ("f64", 53)])
def test_multiply_add_of_the_interpreter_rounds_once(name: str, precision: int) -> None:
    rng, kind = np.random.default_rng(11), dtype(name).numpy
    a, b = rng.standard_normal((2, 2000)).astype(kind)
    c = (-(a * b) * (1 + rng.choice([0, 1e-7, 3e-5], 2000))).astype(kind)
    # A square half-way between two numbers, but for what is added.
    a[:2], b[:2], c[:2] = [[1 + 2.0 ** (-precision // 2)]] * 2 + [[2.0**-90, -(2.0**-90)]]
    wanted = []
    for row in zip(a, b, c, strict=True):
        x, y, z = map(mpmath.mpf, map(float, row))
        with mpmath.workprec(400):
            exact = x * y + z
        with mpmath.workprec(precision):
            wanted.append(float(+exact))
    np.testing.assert_array_equal(REFERENCES["loop.fma"](a, b, c), np.array(wanted, kind))


@pytest.mark.parametrize("name", FLOATS)
def test_multiply_add_of_the_interpreter_at_the_edges(name: str) -> None:
    most = np.finfo(dtype(name).numpy).max
    rows = [
        (most, 2, -most, most),
        (most, 2, 0, np.inf),
        (-most, most, 1, -np.inf),
        (np.inf, 0, 1, np.nan),
        (3, 5, -15, 0.0),
        (-0.0, 5, -0.0, -0.0),
    ]
    a, b, c, wanted = np.array(rows, dtype(name).numpy).T
    got = REFERENCES["loop.fma"](a, b, c)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got[4:]), np.signbit(wanted[4:]))
