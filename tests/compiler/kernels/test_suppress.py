"""The kernel of suppress, against the interpreter."""

from __future__ import annotations

import numpy as np

from tests.support.entries import entry
from tests.support.every_target import on_every_target


@on_every_target
def test_boxes_that_overlap_are_left_out(target) -> None:
    function = entry(
        ["f32[3,n,4]", "i1[3,n]", "i64[]", "f32[]"],
        lambda b, *operands: b.op("suppress", *operands),
        {"n": (0, None)},
    )
    random = np.random.default_rng(0)
    for n in (0, 1, 60, 400):
        corners = random.random((3, n, 2)).astype(np.float32) * 5
        boxes = np.concatenate([corners, corners + 1], axis=2)
        candidates = random.random((3, n)) < 0.7
        operands = [boxes, candidates, np.array(50), np.array(0.2, np.float32)]
        target.check(function, operands, n=n)
