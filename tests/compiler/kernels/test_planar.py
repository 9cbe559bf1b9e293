"""Convolutions of images channels first against the interpreter, and which ones become such."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.choose_layout import choose_layout
from ingot.compiler.graph.forms.keep_planes import keep_planes
from ingot.compiler.graph.forms.pack_weights import pack_weights
from ingot.compiler.ir import Function, TensorType, Value
from ingot.compiler.ir.dims import ceildiv, product, symbol
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.every_target import CPU
from tests.support.products import draw, pack
from tests.support.programs import check_pass, constant, names, normal, program

Array = np.ndarray[Any, Any]

CASES = [
    # images, features, size, window, n, strides, dilation, padding
    (2, 3, (9, 35), (3, 3), 20, (1, 1), (1, 1), ((1, 1), (1, 1))),
    (1, 2, (12, 70), (3, 5), 5, (2, 2), (1, 1), ((1, 0), (2, 2))),
    (1, 1, (900,), (10,), 19, (5,), (1,), ((0, 0),)),
    (1, 2, (11, 23), (2, 3), 33, (1, 2), (2, 3), ((2, 0), (0, 5))),
    (1, 3, (8, 24), (3, 3), 7, (1, 2), (1, 2), ((-1, 0), (0, -2))),
    (1, 2, (3, 520), (3, 1), 4, (1, 1), (1, 1), ((1, 1), (0, 700))),
    (1, 40, (40, 33), (1, 5), 3, (2, 1), (1, 1), ((0, 1), (2, 2))),
]
DEPTHWISE = [
    (2, 19, (14, 35), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    (1, 17, (13, 66), (5, 3), (2, 2), (1, 1), ((2, 2), (1, 0))),
    (1, 4, (600,), (7,), (1,), (2,), ((12, 0),)),
    (1, 3, (70, 20), (2, 3), (1, 3), (3, 1), ((0, 0), (-1, 2))),
    (1, 2, (20, 40), (17, 2), (1, 1), (1, 1), ((8, 8), (0, 1))),
]


def convolution(case: Any, name: str, images: Any) -> Function:
    """conv_planar, times a number for each feature, plus a tensor like it."""
    _, features, size, window, *n, strides, dilation, padding = case
    element, outputs = dtype(name), n[0] if n else features
    packed = (ceildiv(outputs, 16), product(window) * features, 16, 1)

    def build(b: Builder, x: Value, w: Value, scale: Value, y: Value) -> Value:
        z = b.op(
            "conv_planar", x, w, window=window, strides=strides, rhs_dilation=dilation,
            padding=padding, n=outputs, dtype=element,
        )  # fmt: skip
        wide = b.op("broadcast", scale, shape=z.type.shape, dimensions=(1,))
        result: Value = b.op("add", b.op("mul", z, wide), y)
        return result

    made = [
        (length + sum(pads) - (taps - 1) * by - 1) // step + 1
        for length, taps, step, by, pads in zip(
            size, window, strides, dilation, padding, strict=True
        )
    ]
    types = [
        TensorType(element, (images, features, *size)),
        TensorType(element, packed if n else (*window, features)),
        TensorType(element, (outputs,)),
        TensorType(element, (images, outputs, *made)),
    ]
    return entry(types, build)


@pytest.mark.parametrize(
    ("case", "name", "is_open"),
    [
        *((case, "f32", number % 2 == 0) for number, case in enumerate([*CASES, *DEPTHWISE])),
        (CASES[1], "f64", False),
    ],
)
def test_images_channels_first_are_convolved(case: Any, name: str, is_open: bool) -> None:
    images, element = case[0], dtype(name).numpy
    function = convolution(case, name, symbol("n") if is_open else images)
    shapes = [
        [images if dim == symbol("n") else int(dim) for dim in argument.type.shape]
        for argument in function.arguments
    ]
    operands = [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    if len(shapes[1]) == 4:
        depth = shapes[1][1]
        operands[1] = pack(draw(depth, shapes[2][0], seed=1) / 8)
    operands = [each.astype(element) for each in operands]
    CPU.check(function, operands, **({"n": images} if is_open else {}))


PASSES = (choose_layout, pack_weights, eliminate_dead_code, keep_planes, eliminate_dead_code)


def kept(shape: str, w: tuple[int, ...], steps: int = 1, behind: str = "max") -> list[str]:
    """The convolutions of a network of one that pads by 1, in the form that kernels have, after its
    results were compared."""
    letters = "dhw"[5 - len(w) :]
    count = len(letters)

    def build(b: Builder, x: Any) -> Any:
        y = b.op(
            "convolution", x, constant(b, 1, *w),
            layout=f"nc{letters},oi{letters}->nc{letters}", groups=x.type.shape[1] // w[1],
            strides=(steps,) * count, padding=((1, 1),) * count,
        )  # fmt: skip
        bias = constant(b, 2, w[0])
        y = b.op("add", y, b.op("broadcast", bias, shape=y.type.shape, dimensions=(1,)))
        if behind == "reduce":
            return b.op("reduce", y, axes=(2,), kind="add")
        for _ in range(1500 if behind == "many" else 0):
            y = b.op("neg", y)
        return b.op("max", y, b.full(0, "f32", y.type.shape))

    x = normal(0, *({"n": 2, "h": 3}.get(dim) or int(dim) for dim in shape.split(",")))
    after = check_pass(PASSES, program(build, f"f32[{shape}]"), x, tolerance=1e-5)
    found = names(after)
    return [name for name in found if name.startswith(("conv", "depthwise"))]


def test_convolutions_between_two_transposes_lie_channels_first() -> None:
    planar = ["conv_planar"]
    assert kept("1,8,12,56", (8, 1, 3, 3)) == planar
    assert kept("n,8,12,96", (8, 1, 3, 3), 2) == planar
    assert kept("1,3,12,64", (16, 3, 3, 3), 2) == planar
    assert kept("1,1,500", (16, 1, 5)) == planar
    assert kept("1,16,100", (32, 16, 3)) == planar
    assert kept("1,16,100", (32, 16, 3), behind="many") == planar


def test_convolutions_that_gain_nothing_are_left() -> None:
    packed = ["conv_packed"]
    assert kept("1,64,6,16", (80, 64, 3, 3), 2) == packed  # rows of 8 waste half a vector
    assert kept("1,8,h,56", (8, 1, 3, 3)) == ["depthwise"]  # no number of rows
    assert kept("1,4,3,8,8", (4, 4, 3, 3, 3)) == packed  # three dims
    assert kept("1,16,100", (32, 16, 3), behind="reduce") == packed  # no transpose behind
    assert kept("1,512,9,40", (4, 512, 9, 3)) == packed  # no room in scratch
    assert kept("1,3,48,48", (8, 3, 16, 16), 16) == packed  # steps that pick pixels
