"""The kernel of suppress, against the interpreter."""

from __future__ import annotations

import numpy as np

from tests.support.entries import entry
from tests.support.every_target import on_every_target


@on_every_target
def test_boxes_that_overlap_are_left_out(target) -> None:
    function = entry(
        ["f32[3,4,n]", "i64[3,2,n]", "i1[3,2,n]", "i64[]", "f32[]"],
        lambda b, *operands: b.op("suppress", *operands),
        {"n": (0, None)},
    )
    random = np.random.default_rng(0)
    limits = {50: (0, 1, 60, 400), 1000: (31, 400), 0: (40,), -3: (40,)}
    for limit, n in ((limit, n) for limit, lengths in limits.items() for n in lengths):
        corners = random.random((3, n, 2)).astype(np.float32) * 5
        boxes = np.concatenate([corners, corners + 1], axis=2)
        order = random.permuted(np.tile(np.arange(n), (3, 2, 1)), axis=2)
        order[order == n // 3] = random.choice([-1, -(1 << 62), n, 1 << 62])
        candidates = random.random((3, 2, n)) < 0.7
        odd = random.random((3, n, 4)) < 0.02
        boxes[odd] = random.choice([np.nan, np.inf, -np.inf, 0, -9], np.count_nonzero(odd))
        boxes[:, n // 2 :: 7] = boxes[:, : n - n // 2 : 7]  # equal ones
        operands = [
            boxes.transpose(0, 2, 1),
            order,
            candidates,
            np.array(limit),
            np.array(0.2, np.float32),
        ]
        target.check(function, operands, n=n)
