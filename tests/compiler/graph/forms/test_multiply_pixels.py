"""Convolutions of one pixel that stand alone, channels first."""

from __future__ import annotations

from typing import Any

import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.multiply_pixels import multiply_pixels
from tests.support.programs import check_pass, constant, names, normal, program

PASSES = (multiply_pixels, eliminate_dead_code)


def pointwise(b: Builder, x: Any, outputs: int, **attributes: Any) -> Any:
    spatial = "dhw"[5 - x.type.rank :]
    w = constant(b, 1, outputs, x.type.shape[1], *(1,) * len(spatial))
    return b.op("convolution", x, w, layout=f"nc{spatial},oi{spatial}->nc{spatial}", **attributes)


def along(b: Builder, like: Any, *axes: int) -> Any:
    """Numbers that change along some axes."""
    sizes = [like.type.shape[axis] for axis in axes]
    return b.op("broadcast", constant(b, 2, *sizes), shape=like.type.shape, dimensions=axes)


@pytest.mark.parametrize("shape", ["1,6,8,9", "n,6,8,9", "n,6,h,9", "n,6,70", "2,6,3,5,7"])
def test_a_convolution_that_stands_alone_is_a_product(shape: str) -> None:
    def build(b: Builder, x: Any) -> Any:
        y = pointwise(b, x, 6)
        y = b.op("add", y, along(b, y, 1))
        return b.op("tanh", b.op("add", y, x))

    x = normal(0, *({"n": 2, "h": 8}.get(dim) or int(dim) for dim in shape.split(",")))
    after = check_pass(PASSES, program(build, f"f32[{shape}]"), x, tolerance=1e-6)
    kinds = names(after)
    assert (kinds["convolution"], kinds["transpose"], kinds["dot_general"]) == (0, 0, 1)
    *_, last, reshape, _ = after.functions["main"].block.ops
    assert (last.name, reshape.name) == ("tanh", "reshape")  # in the kernel of the product


def test_what_changes_along_pixels_waits_for_the_whole_shape() -> None:
    def build(b: Builder, x: Any) -> Any:
        x = along(b, x, 3)  # the image, too
        y = pointwise(b, x, 5)
        return b.op("mul", y, along(b, y, 2))

    for images in ("1", "n"):
        x = normal(0, 1, 4, 8, 9)
        after = check_pass(PASSES, program(build, f"f32[{images},4,8,9]"), x, tolerance=1e-6)
        assert names(after)["dot_general"] == 1


@pytest.mark.parametrize(
    "kept",
    [
        "beside a window",
        "beside a transpose",
        "strided",
        "few pixels",
        "a long weight",
        "channels last",
    ],
)
def test_others_are_left_to_channels_last(kept: str) -> None:
    def build(b: Builder, x: Any) -> Any:
        if kept == "beside a transpose":
            x = b.op("transpose", x, permutation=(0, 3, 1, 2))
        if kept == "channels last":
            w = constant(b, 1, 1, 1, x.type.shape[3], 6)
            return b.op("convolution", x, w, layout="nhwc,hwio->nhwc")
        y = pointwise(
            b, x, 400 if kept == "a long weight" else 6, strides=(1 + (kept == "strided"),) * 2
        )
        if kept == "beside a window":
            w = constant(b, 2, 6, 6, 3, 3)
            y = b.op("convolution", b.op("tanh", y), w, layout="nchw,oihw->nchw")
        return y

    shape = {"few pixels": (1, 4, 7, 9), "a long weight": (2, 400, 8, 9)}.get(kept, (2, 4, 8, 9))
    x = normal(0, *shape)
    types = f"f32[{','.join(map(str, shape))}]"
    module = program(build, types)
    assert names(check_pass(PASSES, module, x)) == names(module)


def test_all_convolutions_of_one_layout_are_products_or_none() -> None:
    def build(b: Builder, x: Any) -> Any:
        y = b.op("tanh", pointwise(b, x, 5))
        return pointwise(b, b.op("concatenate", x, y, axis=1), 7)

    x = normal(0, 2, 4, 8, 9)
    after = check_pass(PASSES, program(build, "f32[n,4,8,9]"), x, tolerance=1e-6)
    assert names(after)["dot_general"] == 2
