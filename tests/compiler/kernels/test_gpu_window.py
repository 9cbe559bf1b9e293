"""Pooling by work items, against the interpreter."""

from __future__ import annotations

import pytest

from ingot.compiler.kernels.items.window import lower_window
from tests.support.entries import entry
from tests.support.work_items import check, needs_device

pytestmark = needs_device


def pool(kind: str, window, strides, padding):
    ones = (1,) * len(window)

    def body(b, x):
        return b.op(
            "reduce_window",
            x,
            kind=kind,
            window=window,
            strides=strides,
            padding=padding,
            base_dilation=ones,
            window_dilation=ones,
        )

    return body


@pytest.mark.parametrize("kind", ["max", "add"])
@pytest.mark.parametrize("channels", [3, 20])
def test_padded_pooling_of_channels_last(kind: str, channels: int) -> None:
    body = pool(kind, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    check(entry([f"f32[2,9,8,{channels}]"], body), lower_window)


def test_channels_first_and_a_symbolic_batch() -> None:
    body = pool("max", (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 0)))
    check(entry(["f32[b,3,7,9]"], body, {"b": (1, None)}), lower_window, b=2)


def test_sums_along_a_line() -> None:
    check(entry(["i32[2,300]"], pool("add", (1, 5), (1, 1), ((0, 0), (4, 0)))), lower_window)
