"""Programs whose shapes depend on data, compiled: one session called with many counts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ingot
from ingot.compiler import compile
from ingot.hal.errors import Error as IngotError
from ingot.hal.errors import InvalidArgument, OutOfMemory
from tests.support.devices import load_everywhere, on_every_device, targets
from tests.support.drawn import examples

MASK = """
module {producer="a test"} {
  func @main(%x: f32[a,b] "x", %y: f32[a,b] "y")
      -> (i64[2,n] "places", f32[n] "values", f32[n] "exps", f32[] "sum")
      symbols {a in [0, 512], b in [0, 512]} {
    %mask = add(%x, %y) : f32[a,b] loc("mask")
    %places = nonzero(%mask) {symbols=["n"]} : i64[2,n] loc("nonzero")
    %rows = slice(%places) {start=[0, 0], limit=[1, <n>], stride=[1, 1]} : i64[1,n]
    %columns = slice(%places) {start=[1, 0], limit=[2, <n>], stride=[1, 1]} : i64[1,n]
    %width = dim() {value=<b>, dtype=i64} : i64[]
    %widths = broadcast(%width) {shape=[1, <n>], dimensions=[]} : i64[1,n]
    %starts = mul(%rows, %widths) : i64[1,n]
    %flat = add(%starts, %columns) : i64[1,n]
    %index = reshape(%flat) {shape=[<n>]} : i64[n]
    %line = reshape(%mask) {shape=[<a*b>]} : f32[a*b]
    %values = take(%line, %index) {axis=0, mode="check"} : f32[n] loc("pick")
    %exps = exp(%values) : f32[n] loc("exp")
    %sum = reduce(%exps) {axes=[0], kind="add"} : f32[] loc("sum")
    return(%places, %values, %exps, %sum)
  }
}
"""
SIZE = """
module {producer="a test"} {
  func @main(%x: f32[a,6] "x", %n: i64[] "n", %m: i32[] "m")
      -> (f32[n,m] "y", f32[n,m] "z", f32[n] "rows")
      symbols {a in [0, 512]} {
    size(%n) {symbols=["n"], low=0, high=1099511627776, what="the rows",
      status="InvalidArgument"} loc("shape")
    size(%m) {symbols=["m"], low=0, high=<3*a>, what="the columns",
      status="InvalidArgument"} loc("shape")
    %y = reshape(%x) {shape=[<n>, <m>]} : f32[n,m] loc("reshape")
    %z = exp(%y) : f32[n,m] loc("exp")
    %rows = reduce(%z) {axes=[1], kind="add"} : f32[n] loc("rows")
    return(%y, %z, %rows)
  }
}
"""


@pytest.fixture(scope="module")
def mask_module() -> ingot.compiler.Module:
    return compile(MASK, target=targets())


def _mask(rows: int, columns: int, density: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, columns)).astype(np.float32)
    return np.where(random.random((rows, columns)) < density, values, np.float32(0))


def _check(model: ingot.Model, x: np.ndarray) -> None:
    places, values, exps, total = map(np.asarray, model.main(x, np.zeros_like(x)))
    np.testing.assert_array_equal(places, np.stack(np.nonzero(x)))
    np.testing.assert_array_equal(values, x[x != 0])
    np.testing.assert_allclose(exps, np.exp(values), rtol=1e-6)
    np.testing.assert_allclose(total, np.exp(values, dtype=np.float64).sum(), rtol=1e-5)


@on_every_device
def test_one_session_gives_any_count_of_results(
    mask_module: ingot.compiler.Module, device: str
) -> None:
    model = ingot.load(mask_module, device=device)

    @given(st.integers(0, 40), st.integers(0, 40), st.floats(0, 1), st.integers(0, 99))
    @examples(60)
    def run(rows: int, columns: int, density: float, seed: int) -> None:
        _check(model, _mask(rows, columns, density, seed))

    run()


@on_every_device
@pytest.mark.parametrize("density", [0.0, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 512), (512, 512), (0, 7), (64, 1), (13, 5)])
def test_none_and_all_are_found(
    mask_module: ingot.compiler.Module, shape: tuple[int, int], density: float, device: str
) -> None:
    _check(ingot.load(mask_module, device=device), _mask(*shape, density, 0))


def test_the_order_is_that_of_the_rows_with_any_number_of_threads(
    mask_module: ingot.compiler.Module,
) -> None:
    x = _mask(300, 400, 0.3, 1)
    for threads in (1, 2, 5):
        _check(ingot.load(mask_module, threads=threads), x)


def test_the_signature_names_the_dim_that_data_decides(mask_module: ingot.compiler.Module) -> None:
    signature = ingot.load(mask_module).signature
    assert [value.shape for value in signature.results] == [(2, "n"), ("n",), ("n",), ()]


def test_the_memory_is_a_formula_of_the_symbols(mask_module: ingot.compiler.Module) -> None:
    assert "a*b" in mask_module.report.peaks["main"]


@pytest.fixture(scope="module")
def size_models() -> dict[str, ingot.Model]:
    return load_everywhere(SIZE)


@pytest.fixture(params=targets())
def size_model(request: pytest.FixtureRequest, size_models: dict[str, ingot.Model]) -> ingot.Model:
    return size_models[request.param]


def test_sizes_from_data_shape_the_results(size_model: ingot.Model) -> None:
    for rows, shape in ((4, (4, 6)), (4, (2, 12)), (4, (24, 1)), (0, (0, 0)), (0, (7, 0))):
        x = np.random.default_rng(rows).random((rows, 6), np.float32)
        y, z, sums = map(np.asarray, size_model.main(x, np.int64(shape[0]), np.int32(shape[1])))
        np.testing.assert_array_equal(y, x.reshape(shape))
        np.testing.assert_allclose(z, np.exp(x.reshape(shape)), rtol=1e-6)
        np.testing.assert_allclose(sums, np.exp(x.reshape(shape)).sum(1), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 5), r"layer 'reshape': 6\*a is 24, expected m\*n = 25"),
        ((-1, 6), r"layer 'shape': the rows is -1, expected 0 to 1099511627776"),
        ((2**60, 6), r"layer 'shape': the rows is 1152921504606846976, expected 0 to"),
        ((1, 24), r"layer 'shape': the columns is 24, expected 0 to 12"),
        ((2**40, 12), r"layer 'reshape': 6\*a is 24, expected m\*n = 13194139533312"),
    ],
)
def test_sizes_that_cannot_be_are_refused_by_name(
    size_model: ingot.Model, shape: tuple[int, int], message: str
) -> None:
    x = np.ones((4, 6), np.float32)
    with pytest.raises(InvalidArgument, match=message):
        size_model.main(x, np.int64(shape[0]), np.int32(shape[1]))
    y, *_ = size_model.main(x, np.int64(4), np.int32(6))
    np.testing.assert_array_equal(np.asarray(y), x)


def test_a_size_that_no_memory_holds_is_an_error_and_no_crash() -> None:
    text = """
    module {producer="a test"} {
      func @main(%n: i64[] "n") -> (f32[n] "y", f32[] "s") {
        size(%n) {symbols=["n"], low=0, high=1099511627776, what="n",
          status="InvalidArgument"} loc("size")
        %i = iota() {dtype=f32, shape=[<n>], axis=0} : f32[n]
        %y = exp(%i) : f32[n] loc("exp")
        %s = reduce(%y) {axes=[0], kind="max"} : f32[] loc("max")
        return(%y, %s)
      }
    }"""
    for model in load_everywhere(text).values():
        with pytest.raises(IngotError) as caught:
            model.main(np.int64(2**40))
        assert isinstance(caught.value, OutOfMemory)
        assert np.asarray(model.main(np.int64(3))[0]).shape == (3,)


LOOP = """
module {producer="a test"} {
  func @main(%x: f32[a] "x", %steps: i64[] "steps") -> (f32[a] "y", i64[] "found")
      symbols {a in [0, 512]} {
    %zero = constant() {value=dense<i64[] [0]>} : i64[]
    %one = constant() {value=dense<i64[] [1]>} : i64[]
    %y, %found, %n = while(%x, %zero, %zero) {symbols=[]} : f32[a], i64[], i64[] (
      {
        ^(%v: f32[a], %t: i64[], %k: i64[]):
        %go = compare(%k, %steps) {direction="lt"} : i1[]
        yield(%go)
      },
      {
        ^(%v: f32[a], %t: i64[], %k: i64[]):
        %i = nonzero(%v) {symbols=["n"]} : i64[1,n]
        %j = reshape(%i) {shape=[<n>]} : i64[n]
        %s = take(%v, %j) {axis=0, mode="check"} : f32[n]
        %e = exp(%s) : f32[n]
        %m = reduce(%e) {axes=[0], kind="add"} : f32[]
        %mb = broadcast(%m) {shape=[<a>], dimensions=[]} : f32[a]
        %q = broadcast(%one) {shape=[<a>], dimensions=[]} : i64[a]
        %qf = convert(%q) {dtype=f32} : f32[a]
        %d = sub(%v, %qf) : f32[a]
        %w = max(%d, %mb) : f32[a]
        %z = min(%d, %w) : f32[a]
        %size = dim() {value=<n>, dtype=i64} : i64[]
        %t1 = add(%t, %size) : i64[]
        %k1 = add(%k, %one) : i64[]
        yield(%z, %t1, %k1)
      })
    return(%y, %found)
  }
}
"""


def test_a_step_of_a_loop_has_a_count_of_its_own() -> None:
    models = load_everywhere(LOOP).values()
    for model, count in product(models, (0, 1, 5, 300)):
        for steps in (0, 1, 3):
            x = np.random.default_rng(count).integers(0, 4, count).astype(np.float32)
            y, found = map(np.asarray, model.main(x, np.int64(steps)))
            np.testing.assert_array_equal(y, x - steps)
            assert found == sum(np.count_nonzero(x - step) for step in range(steps))
