"""Codes of weights, ranges of activations, and the samples that these come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.hal.errors import DataLoss, InvalidArgument, NotFound
from ingot.hal.spec import dtype
from ingot.quantizing.deciding import _mean_beyond_chance
from ingot.quantizing.ranges import METHODS, Histogram, range_of
from ingot.quantizing.samples import read_samples
from ingot.quantizing.weights import Grid, compensated, rounded, sum_of_squares
from ingot.runtime.signature import Signature, Value
from tests.support.drawn import examples

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(3)
_START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same, whichever came before it."""
    RANDOM.bit_generator.state = _START


def off(weight: Array, grid: Grid, may_have_zeros: bool = False) -> float:
    codes, _ = rounded(weight, grid, may_have_zeros)
    return sum_of_squares(codes.numbers() - weight)


@given(st.data())
@examples(40)
def test_codes_are_near_and_the_searched_scale_is_no_worse(data: st.DataObject) -> None:
    n, groups, group = (data.draw(st.integers(1, 9)) for _ in range(3))
    bits = data.draw(st.sampled_from((2, 3, 4, 8)))
    is_narrow = data.draw(st.booleans())
    size = data.draw(st.sampled_from((1e-2, 1.0, 300.0)))
    has_zeros = data.draw(st.booleans())
    weight = (size * RANDOM.standard_normal((n, groups * group))).astype(np.float32)
    weight[data.draw(st.integers(0, n - 1))] *= data.draw(st.sampled_from((0.0, 1.0)))
    plain = Grid(bits, group, is_searched=False, is_narrow=is_narrow)
    codes, grid = rounded(weight, plain, has_zeros)
    least, greatest = grid.bounds
    assert codes.codes.min() >= least
    assert codes.codes.max() <= greatest
    assert (codes.bits, codes.codes.dtype.kind) == (bits, "i" if grid.is_signed else "u")
    step = np.repeat(codes.scales.astype(np.float32), group, axis=1)
    slack = 1e-3 * (1 << bits) if is_narrow else 1e-5 * (1 << bits)
    assert (np.abs(codes.numbers() - weight) <= (0.5 + slack + (not grid.is_signed)) * step).all()
    searched = Grid(bits, group, is_searched=True, is_narrow=is_narrow)
    assert off(weight, searched) <= off(weight, plain) * (1 + 1e-6)


def test_zero_points_are_taken_where_they_are_closer() -> None:
    weight = RANDOM.uniform(-1, 1, (16, 64)).astype(np.float32)
    grid = Grid(4, 32, is_searched=True)
    assert rounded(weight, grid, True)[0].zeros is None
    shifted = np.abs(weight)
    assert rounded(shifted, grid, True)[0].zeros is not None
    assert off(shifted, grid, True) < 0.5 * off(shifted, grid)


def correlated(rows: int, k: int) -> Array:
    """Inputs of which each depends on those before it."""
    mixed = RANDOM.standard_normal((rows, k)) @ np.triu(RANDOM.standard_normal((k, k)))
    return mixed.astype(np.float32)


@pytest.mark.parametrize(("k", "group"), [(96, 32), (150, 50), (160, 160), (33, 11)])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_compensated_codes_beat_rounded_ones_on_correlated_inputs(
    k: int, group: int, bits: int
) -> None:
    x, weight = correlated(400, k), RANDOM.standard_normal((20, k)).astype(np.float32)
    for is_signed in (True, False):
        grid = Grid(bits, group, is_searched=True, is_signed=is_signed)
        simple, _ = rounded(weight, grid, False)
        better = compensated(weight, grid, x.T @ x)
        assert better.codes.min() >= grid.bounds[0]
        assert better.codes.max() <= grid.bounds[1]
        errors = [sum_of_squares(x @ (each.numbers() - weight).T) for each in (better, simple)]
        assert errors[0] < 0.8 * errors[1]


def test_without_correlation_compensated_codes_are_the_rounded_ones() -> None:
    weight = RANDOM.standard_normal((9, 130)).astype(np.float32)
    grid = Grid(4, 26, is_searched=False)
    same = compensated(weight, grid, np.eye(130, dtype=np.float32))
    np.testing.assert_array_equal(same.codes, rounded(weight, grid, False)[0].codes)


def test_inputs_that_never_occur_do_not_stop_compensation() -> None:
    x = correlated(50, 40)
    x[:, 5:20] = 0
    weight = RANDOM.standard_normal((6, 40)).astype(np.float32)
    codes = compensated(weight, Grid(4, 8, is_searched=False), x.T @ x)
    assert np.isfinite(codes.numbers()).all()


def histogram(x: Array) -> Histogram:
    made = Histogram()
    for part in np.array_split(x, 3):
        made.widen(part)
    for part in np.array_split(x, 3):
        made.add(part)
    return made


@given(st.data())
@examples(20)
def test_the_range_of_mse_has_the_least_squared_error(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(("normal", "uniform", "positive", "outliers", "negative")))
    x = RANDOM.standard_normal(4000).astype(np.float32)
    x = {
        "normal": x,
        "uniform": RANDOM.uniform(-1, 3, 4000),
        "positive": np.abs(x),
        "outliers": np.concatenate([x, [80.0]]),
        "negative": -np.abs(x),
    }[kind].astype(np.float32)
    counted = histogram(x)
    ranges = {method: range_of(counted, method) for method in METHODS}
    off = {name: each.rounded(counted.middles) - counted.middles for name, each in ranges.items()}
    errors = {name: float(np.dot(each * each, counted.counts)) for name, each in off.items()}
    assert errors["mse"] <= errors["minmax"]
    assert errors["mse"] <= 1.05 * errors["entropy"]
    everything = ranges["minmax"]
    assert np.abs(everything.rounded(x) - x).max() <= 0.51 * everything.scale
    assert everything.rounded(np.float32([0]))[0] == 0
    if kind == "outliers":
        assert ranges["entropy"].scale < 0.8 * everything.scale


def test_zeros_tell_nothing_of_a_range() -> None:
    x = RANDOM.standard_normal(4000).astype(np.float32)
    for method in METHODS:
        rectified, positive = np.maximum(x, 0), x[x > 0]
        assert range_of(histogram(rectified), method) == range_of(histogram(positive), method)


def test_numbers_that_are_all_the_same_have_a_range() -> None:
    for method in METHODS:
        assert range_of(histogram(np.zeros(5, np.float32)), method).rounded(np.zeros(2)).any() == 0
        found = range_of(histogram(np.full(5, 3, np.float32)), method)
        assert abs(found.rounded(np.float32([3]))[0] - 3) < 0.02


def test_a_mean_of_few_rows_is_believed_only_as_far_as_it_is_no_chance() -> None:
    assert not _mean_beyond_chance(np.float32([[5, -3]])).any()
    many = RANDOM.standard_normal((1000, 2)).astype(np.float32) + np.float32([0, 3])
    shift = _mean_beyond_chance(many)
    assert abs(shift[0]) < 0.05
    assert abs(shift[1] - 3) < 0.15
    assert not _mean_beyond_chance(np.zeros((4, 2), np.float32)).any()


# Samples.

FIXED = Value("x", dtype("f32"), (2, 3))
OPEN = Value("x", dtype("f32"), ("batch", 3))
IDS = Value("ids", dtype("i64"), ("batch", "s"))


def signature(*values: Value) -> Signature:
    return Signature("main", values, ())


def shapes(data: Any, *values: Value) -> list[list[tuple[int, ...]]]:
    samples = read_samples(data, signature(*values))
    return [[sample[value.name].shape for value in values] for sample in samples]


def test_samples_come_in_many_forms(tmp_path: Path) -> None:
    floats = np.zeros((6, 3), np.float32)
    assert shapes(floats, FIXED) == [[(2, 3)]] * 3
    assert shapes({"x": floats.reshape(3, 2, 3)}, FIXED) == [[(2, 3)]] * 3
    assert shapes(np.zeros((70, 3), np.float32), OPEN) == [[(32, 3)], [(32, 3)], [(6, 3)]]
    pair = {"x": np.zeros((40, 3)), "ids": np.zeros((40, 5), np.int64)}
    assert shapes(pair, OPEN, IDS) == [[(32, 3), (32, 5)], [(8, 3), (8, 5)]]
    assert shapes([pair, {**pair, "ids": np.zeros((40, 9), np.int32)}], OPEN, IDS) == [
        [(40, 3), (40, 5)],
        [(40, 3), (40, 9)],
    ]
    assert (
        shapes(((pair["x"], pair["ids"]) for _ in range(2)), OPEN, IDS) == [[(40, 3), (40, 5)]] * 2
    )
    np.savez(tmp_path / "data.npz", **pair)
    assert shapes(tmp_path / "data.npz", OPEN, IDS) == shapes(pair, OPEN, IDS)
    scalar = Value("t", dtype("f32"), ())
    assert shapes({"t": np.zeros(3)}, scalar) == [[()]] * 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "is empty: give at least one sample"),
        (np.zeros((0, 3), np.float32), "'x' is empty"),
        (np.zeros((5, 3), np.float32), "5 rows, which samples of 2 do not divide"),
        (np.zeros((2, 4), np.float32), "sample 0: argument 'x' has the shape [2, 4]: expected"),
        (np.zeros(3, np.float32), "'x' has the shape [3], but the argument is x: f32[2,3]"),
        ({"y": np.zeros((2, 3))}, "lacks 'x': the arguments are x"),
        ({"x": np.zeros((2, 3)), "y": 1}, "has 'y', which is no argument"),
        ([np.full((2, 3), np.nan, np.float32)], "sample 0: argument 'x' has NaN"),
        ([np.zeros((2, 3)), np.full((2, 3), 1e300)], "sample 1: argument 'x' has NaN or infinite"),
        ([np.zeros((2, 3), np.complex64)], "is complex64, expected f32"),
        (5, "not int"),
        ([np.zeros((2, 3))] * 2 + [np.zeros((2, 2))], "sample 2: argument 'x' has the shape"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_wrong_data_is_refused_by_the_name_of_the_tensor(data: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_samples(data, signature(FIXED))
    assert message in str(caught.value)


def test_data_of_different_counts_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    ids = Value("ids", dtype("i64"), (1, 4))
    data = {"x": np.zeros((4, 3)), "ids": np.zeros((3, 4), np.int64)}
    with pytest.raises(InvalidArgument, match="has 2 of 'x', 3 of 'ids': give as many of each"):
        read_samples(data, signature(FIXED, ids))
    with pytest.raises(InvalidArgument, match="is one array, but the arguments are x, ids"):
        read_samples(np.zeros((4, 3)), signature(FIXED, ids))
    with pytest.raises(InvalidArgument, match="ids' is float64, expected i64"):
        read_samples([(np.zeros((2, 3)), np.zeros((1, 4)))], signature(FIXED, ids))
    many = Value("xs", dtype("f32"), (), "", "sequence")
    with pytest.raises(InvalidArgument, match="arguments that are tensors, not lists"):
        read_samples([], signature(many))
    with pytest.raises(NotFound):
        read_samples(tmp_path / "none.npz", signature(FIXED))
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(DataLoss):
        read_samples(tmp_path / "bad.npz", signature(FIXED))
