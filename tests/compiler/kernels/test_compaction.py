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
