"""Cases of matrix products, convolutions and pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.tflite_cases.table import (
    I8,
    I16,
    I32,
    I64,
    RNG,
    U8,
    F,
    Q,
    X,
    case,
    codes,
    floats,
    whole,
)


def _dense(inputs: Any, outputs: Any, constants: tuple[int, ...] = (1, 2), **options: Any) -> None:
    case("FULLY_CONNECTED", inputs, outputs, "FullyConnectedOptions", constants, **options)


def _conv(inputs: Any, outputs: Any, **options: Any) -> None:
    options = {"strideH": 1, "strideW": 1, **options}
    case("CONV_2D", inputs, outputs, "Conv2DOptions", (1, 2), **options)


def _depthwise(inputs: Any, outputs: Any, **options: Any) -> None:
    options = {"strideH": 1, "strideW": 1, "depthMultiplier": 2, **options}
    case("DEPTHWISE_CONV_2D", inputs, outputs, "DepthwiseConv2DOptions", (1, 2), **options)


def _transposed(inputs: Any, outputs: Any, padding: int = 0) -> None:
    options = {"strideH": 2, "strideW": 2, "padding": padding}
    case("TRANSPOSE_CONV", inputs, outputs, "TransposeConvOptions", (0, 1), **options)


for _bias in (False, True):
    _dense(
        [X, floats(5, 4), floats(5) if _bias else None], [(F, (6, 5))], fusedActivationFunction=1
    )
_dense([X, floats(5, 4), None], [(F, (2, 3, 5))], constants=(1,), keepNumDims=True)
_columns = RNG.uniform(0.005, 0.02, 5), np.zeros(5, int)
for _asymmetric in (True, False):
    _dense(
        [X, (codes(5, 4), (*_columns, 0)), floats(5)], [(F, (6, 5))],
        asymmetricQuantizeInputs=_asymmetric,
    )  # fmt: skip
_dense(
    [(codes(3, 8), Q), (codes(5, 8), (0.02, 0)), (whole(5), (0.001, 0))], [(I8, (3, 5), (0.2, 3))]
)
_dense(
    [
        (codes(3, 8, type=U8), (0.05, 120)),
        (codes(5, 8, type=U8), (0.02, 99)),
        (whole(5), (0.001, 0)),
    ],
    [(U8, (3, 5), (0.2, 130))],
)
_dense(
    [
        (codes(3, 8, type=I16), (0.001, 0)),
        (codes(5, 8), (0.02, 0)),
        (whole(5, type=I64), (2e-5, 0)),
    ],
    [(I16, (3, 5), (0.01, 0))],
)
_dense(
    [(codes(3, 8), Q), (whole(5, 8, low=-7, high=7, type=I8), (0.02, 0)), None],
    [(I8, (3, 5), (0.2, 3))],
    constants=(1,),
)
case("BATCH_MATMUL", [floats(2, 3, 4), floats(1, 4, 5)], [(F, (2, 3, 5))], "BatchMatMulOptions")
case(
    "BATCH_MATMUL",
    [floats(2, 4, 3), floats(2, 5, 4)],
    [(F, (2, 3, 5))],
    "BatchMatMulOptions",
    adjX=True,
    adjY=True,
)
for _asymmetric in (True, False):
    case(
        "BATCH_MATMUL", [floats(2, 3, 4), (codes(2, 4, 5), (0.02, 0))], [(F, (2, 3, 5))],
        "BatchMatMulOptions", (1,), asymmetricQuantizeInputs=_asymmetric,
    )  # fmt: skip
for _padding in (0, 1):
    _size = (4, 4) if _padding == 0 else (3, 2)
    _steps = {"padding": _padding, "strideH": 2, "strideW": 2}
    _conv([floats(2, 8, 7, 3), floats(5, 3, 4, 3), floats(5)], [(F, (2, *_size, 5))], **_steps)
    _depthwise([floats(2, 8, 7, 3), floats(1, 3, 4, 6), floats(6)], [(F, (2, *_size, 6))], **_steps)
    _pool = {"filterHeight": 3, "filterWidth": 4, **_steps}
    for _name in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
        case(_name, [floats(2, 8, 7, 3)], [(F, (2, *_size, 3))], "Pool2DOptions", **_pool)
    for _name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        case(
            _name,
            [(codes(2, 8, 7, 3), Q)],
            [(I8, (2, *_size, 3), Q)],
            "Pool2DOptions",
            fusedActivationFunction=3,
            **_pool,
        )
_conv([floats(1, 8, 8, 4), floats(6, 3, 3, 2), np.zeros(6, F)], [(F, (1, 8, 8, 6))])
_weight = whole(5, 3, 3, 4, low=-127, high=127, type=I8)
for _scales in ((*_columns, 0), (0.02, 0)):
    _conv([floats(2, 5, 5, 4), (_weight, _scales), floats(5)], [(F, (2, 5, 5, 5))])
_depthwise(
    [floats(1, 5, 5, 5, low=0.5), (codes(1, 3, 3, 5), (*_columns, 3)), floats(5)],
    [(F, (1, 5, 5, 5))],
    depthMultiplier=1,
)
_conv(
    [floats(1, 9, 9, 2), floats(6, 3, 3, 2), np.zeros(6, F)],
    [(F, (1, 9, 9, 6))],
    dilationHFactor=2,
    dilationWFactor=3,
)
_scales = [0.01, 0.02, 0.005, 0.03]
_both = [0.05 * each for each in _scales]
_conv(
    [
        (codes(1, 6, 6, 3), Q),
        (codes(4, 3, 3, 3), (_scales, [0] * 4, 0)),
        (whole(4, low=-900, high=900), (_both, [0] * 4, 0)),
    ],
    [(I8, (1, 6, 6, 4), (0.3, -9))],
    fusedActivationFunction=1,
)
_conv(
    [
        (codes(1, 6, 6, 3, type=U8), (0.05, 120)),
        (codes(4, 3, 3, 3, type=U8), (0.02, 99)),
        (whole(4, low=-900, high=900), (0.001, 0)),
    ],
    [(U8, (1, 6, 6, 4), (0.3, 130))],
)
_conv(
    [
        (codes(1, 6, 6, 3, type=I16), (2e-4, 0)),
        (codes(4, 3, 3, 3), (_scales, [0] * 4, 0)),
        (whole(4, type=I64), ([2e-4 * each for each in _scales], [0] * 4, 0)),
    ],
    [(I16, (1, 6, 6, 4), (2e-3, 0))],
)
_depthwise(
    [
        (codes(1, 6, 6, 2), Q),
        (codes(1, 3, 3, 4), (_scales, [0] * 4, 3)),
        (whole(4, low=-900, high=900), (_both, [0] * 4, 0)),
    ],
    [(I8, (1, 6, 6, 4), (0.3, -9))],
)
for _padding, _size in ((0, (8, 6)), (1, (9, 7)), (1, (10, 8))):
    _transposed(
        [np.array([1, *_size, 5], I32), floats(5, 3, 3, 2), floats(1, 4, 3, 2)],
        [(F, (1, *_size, 5))],
        padding=_padding,
    )
_transposed(
    [
        np.array([1, 8, 6, 4], I32),
        (codes(4, 3, 3, 2), (_scales, [0] * 4, 0)),
        (codes(1, 4, 3, 2), Q),
    ],
    [(I8, (1, 8, 6, 4), (0.3, 2))],
)
case(
    "CONV_3D",
    [floats(1, 4, 5, 6, 2), floats(2, 3, 2, 2, 4), floats(4)],
    [(F, (1, 4, 5, 6, 4))],
    "Conv3DOptions",
    (1, 2),
    strideD=1,
    strideH=1,
    strideW=1,
)
case(
    "CONV_3D_TRANSPOSE",
    [np.array([1, 4, 6, 6, 3], I32), floats(2, 3, 2, 3, 2), floats(1, 2, 3, 3, 2)],
    [(F, (1, 4, 6, 6, 3))],
    "Conv3DOptions",
    (0, 1),
    strideD=2,
    strideH=2,
    strideW=2,
)
