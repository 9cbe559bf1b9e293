"""Counting and listing true elements against the interpreter."""

from __future__ import annotations

import numpy as np

from tests.support.entries import entry, reference
from tests.support.every_target import on_every_target


def locate(size: int):
    return lambda b, x, counts: b.op("locate_true", x, counts, size=size)


@on_every_target
def test_counts_of_runs(target) -> None:
    function = entry(["i1[n,7]"], lambda b, x: b.op("count_true", x), {"n": (0, None)})
    for n in (0, 1, 5, 3000):
        target.check(function, n=n)


@on_every_target
def test_places_in_row_major_order(target) -> None:
    counter = entry(["i1[n,7]"], lambda b, x: b.op("count_true", x), {"n": (0, None)})
    for n in (0, 1, 5, 6000):
        mask = np.random.default_rng(n).random((n, 7)) < 0.3
        (counts,) = reference(counter, [mask])
        function = entry([f"i1[{n},7]", "i64[64]"], locate(int(mask.sum())))
        target.check(function, [mask, counts])


@on_every_target
def test_wrong_counts_are_written_nowhere_else(target) -> None:
    function = entry(["i1[40]", "i64[64]"], locate(40))
    around = np.full(3 * 40, -7)
    for count in (-30, 30, np.iinfo(np.int64).min // 100, np.iinfo(np.int64).max // 100):
        counts = np.full(64, count)
        target.fault(function, [np.ones(40, bool), counts], [around[40:80].reshape(1, 40)])
        np.testing.assert_array_equal(around.reshape(3, 40)[[0, 2]], -7)
