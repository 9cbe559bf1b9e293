"""Trials: each is a valid small call of its kernel, on which right kernels agree.

Two variants of the CPU stand for a device and its fallback.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  NumPy learns the names of its dtypes
import numpy as np
import pytest

from ingot.compiler.dispatch.ops import Entry
from ingot.compiler.graph.passes import GRAPH_PASSES
from ingot.compiler.ir import Function, Module, TensorType
from ingot.compiler.ir.dims import broadcast, symbol
from ingot.compiler.kernels.classes import lower_entries
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.trial import Trial, TrialBinding, plan_trial
from ingot.compiler.pipeline import DISPATCH_PASSES
from ingot.compiler.read_source import read_source
from ingot.compiler.targets.cpu import c_printer
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.kernel_runner import PLAIN, V3, Loaded, build, host_variants

Array = np.ndarray[Any, Any]


def fill(binding: TrialBinding, random: np.random.Generator) -> Array:
    """What a driver puts there."""
    dtype = binding.dtype
    count = binding.length // dtype.bytes
    if binding.fill == "zero":
        return np.zeros(count, dtype.numpy)
    if dtype.is_float:
        low = 0.5 if binding.fill == "positive" else -1.0
        return random.uniform(low, low + (1 if low > 0 else 2), count).astype(dtype.numpy)
    high = 2 if dtype.is_boolean else binding.bound if binding.fill == "index" else 8
    return random.integers(0, high, count).astype(dtype.numpy)


def agree(one: Array, other: Array, binding: TrialBinding) -> bool:
    """Whether two results are the same, as a driver judges."""
    if binding.tolerance < 0:
        return True
    if not binding.dtype.is_float:
        return one.tobytes() == other.tobytes()
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        scale = np.maximum(1, np.maximum(abs(a), abs(b)))
        near = abs(a - b) <= binding.tolerance * scale
    return bool(np.all((a == b) | near | (np.isnan(a) & np.isnan(b))))


def results(loaded: Loaded, trial: Trial) -> list[Array]:
    """All bindings after the run. IndexFault: an index was out of range."""
    random = np.random.default_rng(0)
    arrays = [fill(binding, random) for binding in trial.bindings]
    stored = zip(arrays, loaded.kernel.bindings, strict=True)
    views = [array.view(np.dtype(f"u{dtype.bytes}")) for array, dtype in stored]
    loaded.launch(views, trial.constants, trial.workload)
    return arrays


def check(entries: Module) -> dict[str, Trial | None]:
    """Run the trials of all kernels for two variants, and compare; gives them by name."""
    kernels = lower_entries(entries, [V3, PLAIN])
    trials = {name: plan_trial(entries.functions[name], each[0]) for name, each in kernels.items()}
    paths = [
        build(
            c_printer.print_source(
                [c_printer.print_kernel(each[place]) for each in kernels.values()]
            ),
            name,
        )
        for place, name in enumerate(("x86-64-v3", "x86-64"))
    ]
    for name, pair in kernels.items():
        trial = trials[name]
        if trial is None:
            continue
        runs: list[Kernel] = list(pair)
        one, other = (
            results(Loaded(kernel, variant, path=path), trial)
            for kernel, variant, path in zip(runs, ("x86-64-v3", "x86-64"), paths, strict=True)
        )
        for a, b, binding in zip(one, other, trial.bindings, strict=True):
            assert agree(a, b, binding), name
        written = [a for a, b in zip(one, trial.bindings, strict=True) if b.fill == "zero"]
        assert any(np.asarray(each, np.float64).any() for each in written), name
    return trials


pytestmark = pytest.mark.skipif("x86-64-v3" not in host_variants(), reason="needs AVX2")


@pytest.mark.slow
def test_every_kernel_of_a_dynamic_model_has_a_trial(project_root: Path) -> None:
    module = read_source(project_root / "tests" / "models" / "minilm.onnx", parameters="external")
    for run in (*GRAPH_PASSES, *DISPATCH_PASSES):
        module = run(module)
    trials = check(module)
    assert len(trials) > 10
    assert None not in trials.values()


def module_of(*functions: Function) -> Module:
    module = Module()
    for place, function in enumerate(functions):
        function.name = f"entry_{place}"
        function.attributes = Entry()
        module.add(function)
    return module


def log(b: Any, x: Any) -> Any:
    return b.op("log", x)


def lookup(b: Any, table: Any, indices: Any) -> Any:
    return b.op("take", table, indices, axis=0, mode="check")


def window(b: Any, x: Any, start: Any) -> Any:
    return b.op("dynamic_slice", x, start, start, sizes=(2, 3))


def replaced(b: Any, x: Any, update: Any, start: Any) -> Any:
    return b.op("dynamic_update_slice", x, update, start, start)


@pytest.mark.parametrize(
    ("types", "body", "bound"),
    [
        (["f32[b,4]", "i64[n]"], lookup, 131),
        (["f32[b,4]", "i32[]"], window, 2),
        (["f32[b,4]", "f32[1,4]", "i32[]"], replaced, 1),
    ],
)
def test_indices_stay_in_range(types: list[str], body: Callable[..., Any], bound: int) -> None:
    function = entry(types, body, {"b": (1, None), "n": (1, None)})
    (trial,) = check(module_of(function)).values()
    assert trial is not None
    assert {each.bound for each in trial.bindings if each.fill == "index"} == {bound}


def test_logarithms_are_tried_on_positive_numbers() -> None:
    (trial,) = check(module_of(entry(["f32[b]"], log, {"b": (1, None)}))).values()
    assert trial is not None
    assert [each.fill for each in trial.bindings] == ["positive", "zero"]
    assert trial.bindings[1].tolerance == 1e-4


def test_sizes_fit_each_other_and_the_bounds() -> None:
    wide = entry(["f32[b,c]"], lambda b, x: b.op("neg", x), {"b": (7, 7), "c": (1, 4)})
    (trial,) = check(module_of(wide)).values()
    assert trial is not None
    assert trial.bindings[0].length == 7 * 4 * 4


def test_a_slice_stays_inside_its_operand() -> None:
    limit = {"start": (0,), "limit": (symbol("n") + 1,), "stride": (1,)}
    function = entry(["f32[32]"], lambda b, x: b.op("slice", x, **limit), {"n": (0, None)})
    (trial,) = check(module_of(function)).values()
    assert trial is not None
    assert trial.bindings[1].length <= 32 * 4


def test_what_takes_too_long_has_no_trial() -> None:
    function = entry(["f32[5000,5000]"], lambda b, x: b.op("neg", x))
    (kernels,) = lower_entries(module_of(function), [PLAIN]).values()
    assert plan_trial(function, kernels[0]) is None


def test_sizes_that_a_computed_size_broadcasts_do_so() -> None:
    size = symbol("b") * broadcast(symbol("b"), symbol("c"))

    def plus_size(b: Any, x: Any) -> Any:
        return b.op("add", x, b.op("dim", value=size, dtype=dtype("i64")))

    def product(b: Any, x: Any, y: Any) -> Any:
        batch = {"lhs_batch": (0,), "rhs_batch": (0,)}
        terms = {"lhs_contract": (2,), "rhs_contract": (1,), "dtype": dtype("f32")}
        return b.op("dot_general", x, y, **batch, **terms)

    one: dict[str, tuple[int, int | None]] = {"b": (1, None), "c": (1, None)}
    common = broadcast(symbol("b"), symbol("c"))
    factors = [TensorType(dtype("f32"), (common, *rest)) for rest in ((5, 16), (16, 4))]
    for function in (entry(["i64[]"], plus_size, one), entry(factors, product, one)):
        (kernels,) = lower_entries(module_of(function), [PLAIN]).values()
        trial = plan_trial(function, kernels[0])
        assert trial is not None
        sizes = dict(zip(map(str, kernels[0].constants), trial.constants, strict=True))
        assert len({sizes["b"], sizes["c"]} - {1}) <= 1
