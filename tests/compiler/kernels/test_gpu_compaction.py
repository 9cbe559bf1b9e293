"""Counting and listing true elements by work-groups, against the interpreter."""

from __future__ import annotations

import numpy as np

from ingot.compiler.kernels.items.compaction import lower_compaction
from tests.support.entries import entry, reference
from tests.support.work_items import check, needs_device

pytestmark = needs_device


def locate(size: int):
    return lambda b, x, counts: b.op("locate_true", x, counts, size=size)


def test_counts_of_runs() -> None:
    function = entry(["i1[n,7]"], lambda b, x: b.op("count_true", x), {"n": (0, None)})
    for n in (0, 1, 5, 3000):
        check(function, lower_compaction, n=n)


def test_places_in_row_major_order() -> None:
    counter = entry(["i1[n,7]"], lambda b, x: b.op("count_true", x), {"n": (0, None)})
    for n in (0, 1, 5, 6000):
        mask = np.random.default_rng(n).random((n, 7)) < 0.3
        (counts,) = reference(counter, [mask])
        function = entry([f"i1[{n},7]", "i64[64]"], locate(int(mask.sum())))
        check(function, lower_compaction, [mask, counts])
