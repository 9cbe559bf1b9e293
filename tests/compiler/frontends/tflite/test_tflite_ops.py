"""Builtin ops against LiteRT: the graph that Ingot reads, interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from ingot.compiler.frontends.tflite import lowerings  # noqa: F401 - it fills the table
from ingot.compiler.frontends.tflite.lowering import LOWERINGS
from tests.support.tflite_models import Array, Quant, check, one_op, run_interpreted

RNG = np.random.default_rng(0)
F, I32, I64, I8, U8, I16, B = "float32", "int32", "int64", "int8", "uint8", "int16", "bool"

Case = Callable[[], None]
CASES: dict[str, list[Case]] = {}


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return RNG.uniform(low, high, shape).astype(np.float32)


def whole(*shape: int, low: int = -9, high: int = 9, type: str = I32) -> Array:
    return RNG.integers(low, high + 1, shape).astype(type)


def codes(*shape: int, type: str = I8) -> Array:
    info = np.iinfo(type)
    return RNG.integers(info.min, info.max + 1, shape).astype(type)


def case(name: str, *given: Any, **options: Any) -> None:
    """An op on these inputs and with these outputs, as `one_op` takes them."""
    settings = {key: options.pop(key) for key in ("codes", "tolerance") if key in options}

    def run() -> None:
        model, arguments = one_op(name, *given, **options)
        check(model, arguments, **settings)

    CASES.setdefault(name, []).append(run)


X = floats(2, 3, 4)
Q: Quant = (0.05, 3)
OUT: Quant = (0.04, -7)

for _name in (
    "ABS",
    "CEIL",
    "COS",
    "EXP",
    "FLOOR",
    "NEG",
    "ROUND",
    "SIN",
    "TANH",
    "LOGISTIC",
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "RELU_0_TO_1",
    "ELU",
    "SQUARE",
    "SIGN",
    "HARD_SWISH",
):
    case(_name, [X * 4], [(F, X.shape)])
for _name in ("LOG", "SQRT", "RSQRT"):
    case(_name, [np.abs(X) + 0.1], [(F, X.shape)])
for _name in ("ABS", "RELU", "RELU6", "HARD_SWISH"):
    case(_name, [(codes(4, 5), Q)], [(I8, (4, 5), OUT)])
case("TANH", [(codes(4, 5), Q)], [(I8, (4, 5), (1 / 128, 0))])
case("TANH", [(codes(4, 5, type=U8), (0.05, 120))], [(U8, (4, 5), (1 / 128, 128))])
case("LOGISTIC", [(codes(4, 5), Q)], [(I8, (4, 5), (1 / 256, -128))])
case("LOGISTIC", [(codes(4, 5, type=I16), (2**-12, 0))], [(I16, (4, 5), (2**-15, 0))], codes=8)
case("EXP", [(codes(4, 5), (0.02, 0))], [(I8, (4, 5), (0.06, -128))])
case("LEAKY_RELU", [X], [(F, X.shape)], "LeakyReluOptions", alpha=0.3)
case("LEAKY_RELU", [(codes(9), Q)], [(I8, (9,), OUT)], "LeakyReluOptions", alpha=0.3)
case("PRELU", [floats(2, 3, 3, 4), floats(1, 1, 4)], [(F, (2, 3, 3, 4))], constants=(1,))
for _flag in (False, True):
    case("GELU", [X], [(F, X.shape)], "GeluOptions", approximate=_flag)
case("SOFTMAX", [X], [(F, X.shape)], "SoftmaxOptions", beta=1.5)
case("SOFTMAX", [(codes(3, 7), Q)], [(I8, (3, 7), (1 / 256, -128))], "SoftmaxOptions", beta=1.0)
case("LOG_SOFTMAX", [X], [(F, X.shape)])
case("L2_NORMALIZATION", [X], [(F, X.shape)], "L2NormOptions")
case(
    "LOCAL_RESPONSE_NORMALIZATION",
    [floats(1, 2, 2, 9)],
    [(F, (1, 2, 2, 9))],
    "LocalResponseNormalizationOptions",
    radius=2,
    bias=1.0,
    alpha=0.2,
    beta=0.6,
)
case("FAKE_QUANT", [X], [(F, X.shape)], "FakeQuantOptions", min=-1.3, max=1.4, numBits=8)

for _name in ("ADD", "SUB", "MUL"):
    _kind = f"{_name.capitalize()}Options"
    case(_name, [X, floats(4)], [(F, X.shape)], _kind, fusedActivationFunction=3)
    case(_name, [whole(2, 3), whole(1, 3)], [(I32, (2, 3))], _kind)
    case(
        _name,
        [(codes(2, 9), Q), (codes(9), (0.03, 5))],
        [(I8, (2, 9), (0.1, 9))],
        _kind,
        fusedActivationFunction=1,
    )
    case(
        _name,
        [(codes(2, 9, type=U8), (0.05, 99)), (codes(9, type=U8), (0.03, 5))],
        [(U8, (2, 9), (0.1, 150))],
        _kind,
    )
case("DIV", [X, np.abs(floats(4)) + 0.2], [(F, X.shape)], "DivOptions")
for _name in ("MAXIMUM", "MINIMUM"):
    case(_name, [X, floats(3, 1)], [(F, X.shape)], "MaximumMinimumOptions")
    case(_name, [(codes(9), Q), (codes(9), Q)], [(I8, (9,), Q)], "MaximumMinimumOptions")
for _name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
    case(_name, [whole(3, 9), whole(9)], [(B, (3, 9))])
    case(_name, [(codes(30), Q), (codes(30), Q)], [(B, (30,))])
case("POW", [np.abs(X) + 0.1, floats(4)], [(F, X.shape)])
case("SQUARED_DIFFERENCE", [X, floats(4)], [(F, X.shape)])
case("SQUARED_DIFFERENCE", [(codes(9), Q), (codes(9), Q)], [(I8, (9,), (0.5, -100))])
for _name in ("FLOOR_DIV", "FLOOR_MOD"):
    case(_name, [whole(40), np.where(RNG.random(40) < 0.5, -3, 4).astype(I32)], [(I32, (40,))])
    case(_name, [floats(40), np.where(RNG.random(40) < 0.5, -0.7, 0.4).astype(F)], [(F, (40,))])
for _name in ("LOGICAL_AND", "LOGICAL_OR"):
    case(_name, [whole(9) > 0, whole(9) > 0], [(B, (9,))])
case("LOGICAL_NOT", [whole(9) > 0], [(B, (9,))])
case("BITWISE_XOR", [whole(9), whole(9)], [(I32, (9,))])
case("RIGHT_SHIFT", [whole(9), whole(9, low=0)], [(I32, (9,))])
case("ATAN2", [floats(9), floats(9)], [(F, (9,))])
case("ADD_N", [X, X * 2, X * 3], [(F, X.shape)])
case("SELECT", [whole(2, 3) > 0, floats(2, 3), floats(2, 3)], [(F, (2, 3))])
case("SELECT", [np.array([True, False]), floats(2, 3), floats(2, 3)], [(F, (2, 3))])
case("SELECT_V2", [whole(2, 1) > 0, floats(2, 3), floats(1)], [(F, (2, 3))])
for _type in (I32, I64, B, F):
    case(
        "CAST",
        [floats(9) * 3],
        [(_type, (9,))],
        "CastOptions",
        inDataType=0,
        outDataType={I32: 2, I64: 4, B: 6, F: 0}[_type],
    )
case("BITCAST", [floats(9)], [(I32, (9,))], "BitcastOptions")
case("QUANTIZE", [floats(30)], [(I8, (30,), (0.02, 4))])
case("QUANTIZE", [(codes(30, type=U8), (0.02, 128))], [(I8, (30,), (0.03, 4))])
case("DEQUANTIZE", [(codes(30), Q)], [(F, (30,))])
case("DEQUANTIZE", [floats(5).astype(np.float16)], [(F, (5,))], constants=(0,))
case("ZEROS_LIKE", [X], [(F, X.shape)])
case("BUCKETIZE", [X], [(I32, X.shape)], "BucketizeOptions", boundaries=[-1.0, 0.0, 0.5])

for _bias in (False, True):
    case(
        "FULLY_CONNECTED",
        [X, floats(5, 4), floats(5) if _bias else None],
        [(F, (6, 5))],
        "FullyConnectedOptions",
        (1, 2),
        fusedActivationFunction=1,
    )
case(
    "FULLY_CONNECTED",
    [X, floats(5, 4), None],
    [(F, (2, 3, 5))],
    "FullyConnectedOptions",
    (1,),
    keepNumDims=True,
)
case(
    "FULLY_CONNECTED",
    [(codes(3, 8), Q), (codes(5, 8), (0.02, 0)), (whole(5), (0.001, 0))],
    [(I8, (3, 5), (0.2, 3))],
    "FullyConnectedOptions",
    (1, 2),
)
case(
    "FULLY_CONNECTED",
    [
        (codes(3, 8, type=U8), (0.05, 120)),
        (codes(5, 8, type=U8), (0.02, 99)),
        (whole(5), (0.001, 0)),
    ],
    [(U8, (3, 5), (0.2, 130))],
    "FullyConnectedOptions",
    (1, 2),
)
case(
    "FULLY_CONNECTED",
    [
        (codes(3, 8, type=I16), (0.001, 0)),
        (codes(5, 8), (0.02, 0)),
        (whole(5, type=I64), (2e-5, 0)),
    ],
    [(I16, (3, 5), (0.01, 0))],
    "FullyConnectedOptions",
    (1, 2),
)
case(
    "FULLY_CONNECTED",
    [(codes(3, 8), Q), (whole(5, 8, low=-7, high=7, type=I8), (0.02, 0)), None],
    [(I8, (3, 5), (0.2, 3))],
    "FullyConnectedOptions",
    (1,),
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
for _padding in (0, 1):
    _size = (4, 4) if _padding == 0 else (3, 2)
    _steps = {"padding": _padding, "strideH": 2, "strideW": 2}
    case(
        "CONV_2D",
        [floats(2, 8, 7, 3), floats(5, 3, 4, 3), floats(5)],
        [(F, (2, *_size, 5))],
        "Conv2DOptions",
        (1, 2),
        **_steps,
    )
    case(
        "DEPTHWISE_CONV_2D",
        [floats(2, 8, 7, 3), floats(1, 3, 4, 6), floats(6)],
        [(F, (2, *_size, 6))],
        "DepthwiseConv2DOptions",
        (1, 2),
        depthMultiplier=2,
        **_steps,
    )
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
case(
    "CONV_2D",
    [floats(1, 8, 8, 4), floats(6, 3, 3, 2), np.zeros(6, F)],
    [(F, (1, 8, 8, 6))],
    "Conv2DOptions",
    (1, 2),
    strideH=1,
    strideW=1,
)
case(
    "CONV_2D",
    [floats(1, 9, 9, 2), floats(6, 3, 3, 2), np.zeros(6, F)],
    [(F, (1, 9, 9, 6))],
    "Conv2DOptions",
    (1, 2),
    strideH=1,
    strideW=1,
    dilationHFactor=2,
    dilationWFactor=3,
)
_scales = [0.01, 0.02, 0.005, 0.03]
_both = [0.05 * each for each in _scales]
case(
    "CONV_2D",
    [
        (codes(1, 6, 6, 3), Q),
        (codes(4, 3, 3, 3), (_scales, [0] * 4, 0)),
        (whole(4, low=-900, high=900), (_both, [0] * 4, 0)),
    ],
    [(I8, (1, 6, 6, 4), (0.3, -9))],
    "Conv2DOptions",
    (1, 2),
    strideH=1,
    strideW=1,
    fusedActivationFunction=1,
)
case(
    "CONV_2D",
    [
        (codes(1, 6, 6, 3, type=U8), (0.05, 120)),
        (codes(4, 3, 3, 3, type=U8), (0.02, 99)),
        (whole(4, low=-900, high=900), (0.001, 0)),
    ],
    [(U8, (1, 6, 6, 4), (0.3, 130))],
    "Conv2DOptions",
    (1, 2),
    strideH=1,
    strideW=1,
)
case(
    "CONV_2D",
    [
        (codes(1, 6, 6, 3, type=I16), (2e-4, 0)),
        (codes(4, 3, 3, 3), (_scales, [0] * 4, 0)),
        (whole(4, type=I64), ([2e-4 * each for each in _scales], [0] * 4, 0)),
    ],
    [(I16, (1, 6, 6, 4), (2e-3, 0))],
    "Conv2DOptions",
    (1, 2),
    strideH=1,
    strideW=1,
)
case(
    "DEPTHWISE_CONV_2D",
    [
        (codes(1, 6, 6, 2), Q),
        (codes(1, 3, 3, 4), (_scales, [0] * 4, 3)),
        (whole(4, low=-900, high=900), (_both, [0] * 4, 0)),
    ],
    [(I8, (1, 6, 6, 4), (0.3, -9))],
    "DepthwiseConv2DOptions",
    (1, 2),
    strideH=1,
    strideW=1,
    depthMultiplier=2,
)
for _padding, _size in ((0, (8, 6)), (1, (9, 7)), (1, (10, 8))):
    case(
        "TRANSPOSE_CONV",
        [np.array([1, *_size, 5], I32), floats(5, 3, 3, 2), floats(1, 4, 3, 2)],
        [(F, (1, *_size, 5))],
        "TransposeConvOptions",
        (0, 1),
        padding=_padding,
        strideH=2,
        strideW=2,
    )
case(
    "TRANSPOSE_CONV",
    [
        np.array([1, 8, 6, 4], I32),
        (codes(4, 3, 3, 2), (_scales, [0] * 4, 0)),
        (codes(1, 4, 3, 2), Q),
    ],
    [(I8, (1, 8, 6, 4), (0.3, 2))],
    "TransposeConvOptions",
    (0, 1),
    strideH=2,
    strideW=2,
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

for _keep in (False, True):
    _after = (2, 1, 4) if _keep else (2, 4)
    for _name in ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
        case(_name, [X, np.array([-2], I32)], [(F, _after)], "ReducerOptions", (1,), keepDims=_keep)
    for _name in ("REDUCE_ANY", "REDUCE_ALL"):
        case(
            _name,
            [X > 0, np.array([1], I32)],
            [(B, _after)],
            "ReducerOptions",
            (1,),
            keepDims=_keep,
        )
case(
    "MEAN",
    [(codes(2, 5, 5, 3), Q), np.array([1, 2], I32)],
    [(I8, (2, 3), OUT)],
    "ReducerOptions",
    (1,),
)
case("SUM", [(codes(2, 5), Q), np.array([1], I32)], [(I8, (2,), (0.5, 2))], "ReducerOptions", (1,))
for _name in ("ARG_MAX", "ARG_MIN"):
    case(
        _name,
        [X, np.array(1, I32)],
        [(I64, (2, 4))],
        f"{_name[:3].capitalize()}{_name[4:].capitalize()}Options",
        (1,),
        outputType=4,
    )
case(
    "CUMSUM",
    [X, np.array(1, I32)],
    [(F, X.shape)],
    "CumsumOptions",
    (1,),
    exclusive=True,
    reverse=True,
)
case("CUMSUM", [whole(3, 4), np.array(-1, I32)], [(I32, (3, 4))], "CumsumOptions", (1,))
case(
    "REDUCE_WINDOW",
    [whole(6, 5), np.array(0, I32), *(np.array(each, I64) for each in ((2, 3), (1, 2), (1, 1)))],
    [(I32, (5, 2))],
    "ReduceWindowOptions",
    (1, 2, 3, 4),
    reduceFunction=1,
)
case("SEGMENT_SUM", [floats(5, 2), np.array([0, 0, 1, 2, 2], I32)], [(F, (3, 2))], "", (1,))
for _name in ("SUM", "PROD", "MAX", "MIN"):
    case(
        f"UNSORTED_SEGMENT_{_name}",
        [floats(5, 2), np.array([3, 0, 1, 3, 0], I32), np.array(4, I32)],
        [(F, (4, 2))],
        "",
        (1, 2),
    )

case(
    "RESHAPE", [X, np.array([4, -1], I32)], [(F, (4, 6))], "ReshapeOptions", (1,), newShape=[4, -1]
)
case(
    "RESHAPE", [(codes(2, 6), Q), np.array([3, 4], I32)], [(I8, (3, 4), Q)], "ReshapeOptions", (1,)
)
case("SQUEEZE", [floats(1, 3, 1)], [(F, (3, 1))], "SqueezeOptions", squeezeDims=[0])
case("EXPAND_DIMS", [X, np.array(-2, I32)], [(F, (2, 3, 1, 4))], "", (1,))
case("TRANSPOSE", [(codes(2, 3, 4), Q), np.array([2, 0, 1], I32)], [(I8, (4, 2, 3), Q)], "", (1,))
case("SHAPE", [X], [(I32, (3,))], "ShapeOptions", outType=2)
case("RANK", [X], [(I32, ())])
case("CONCATENATION", [X, X + 1], [(F, (2, 6, 4))], "ConcatenationOptions", axis=-2)
case(
    "CONCATENATION",
    [(codes(2, 3), Q), (codes(2, 4), Q)],
    [(I8, (2, 7), Q)],
    "ConcatenationOptions",
    axis=1,
)
case(
    "CONCATENATION",
    [(codes(2, 3, type=U8), (0.05, 120)), (codes(2, 4, type=U8), (0.02, 90))],
    [(U8, (2, 7), (0.06, 100))],
    "ConcatenationOptions",
    axis=1,
)
case("PACK", [X, X + 1], [(F, (2, 2, 3, 4))], "PackOptions", axis=1, valuesCount=2)
case("UNPACK", [X], [(F, (2, 4))] * 3, "UnpackOptions", axis=1, num=3)
case("SPLIT", [np.array(2, I32), X], [(F, (2, 3, 2))] * 2, "SplitOptions", (0,), numSplits=2)
case(
    "SPLIT_V",
    [X, np.array([1, -1], I32), np.array(1, I32)],
    [(F, (2, 1, 4)), (F, (2, 2, 4))],
    "SplitVOptions",
    (1, 2),
    numSplits=2,
)
case(
    "SLICE", [X, np.array([0, 1, 2], I32), np.array([-1, 2, 1], I32)], [(F, (2, 2, 1))], "", (1, 2)
)
for _begin, _end, _by, _after, _masks in (
    ([0, -2, 3], [2, 3, -4], [1, 1, -1], (2, 2, 3), {"endMask": 4}),
    ([0, 1, 0], [0, 2, 4], [1, 1, 2], (2, 2), {"beginMask": 1, "endMask": 1, "shrinkAxisMask": 2}),
    ([0, 0, 1], [0, 0, 3], [1, 1, 1], (1, 2, 3, 2), {"ellipsisMask": 2, "newAxisMask": 1}),
    ([-1], [0], [1], (3, 4), {"shrinkAxisMask": 1}),
    ([0, 5], [9, -9], [1, -2], (2, 2, 4), {}),
):
    case(
        "STRIDED_SLICE",
        [X, *(np.array(each, I32) for each in (_begin, _end, _by))],
        [(F, _after)],
        "StridedSliceOptions",
        (1, 2, 3),
        **_masks,
    )
case("DYNAMIC_UPDATE_SLICE", [X, floats(1, 2, 2), np.array([1, 1, 2], I32)], [(F, X.shape)])
case("PAD", [X, np.array([[0, 1], [2, 0], [1, 1]], I32)], [(F, (3, 5, 6))], "", (1,))
case("PAD", [(codes(2, 3), Q), np.array([[0, 1], [2, 0]], I32)], [(I8, (3, 5), Q)], "", (1,))
case(
    "PADV2",
    [X, np.array([[0, 1], [2, 0], [1, 1]], I32), np.array(5, F)],
    [(F, (3, 5, 6))],
    "",
    (1, 2),
)
for _mode in (0, 1):
    case(
        "MIRROR_PAD",
        [X, np.array([[0, 1], [2, 1], [1, 3]], I32)],
        [(F, (3, 6, 8))],
        "MirrorPadOptions",
        (1,),
        mode=_mode,
    )
case(
    "DILATE", [whole(3, 4), np.array([2, 3], I32), np.array(-1, I32)], [(I32, (5, 10))], "", (1, 2)
)
case("TILE", [X, np.array([2, 1, 3], I32)], [(F, (4, 3, 12))], "", (1,))
case("BROADCAST_TO", [floats(3, 1), np.array([2, 3, 4], I32)], [(F, (2, 3, 4))], "", (1,))
case("BROADCAST_ARGS", [np.array([3, 1], I32), np.array([2, 1, 4], I32)], [(I32, (3,))])
case("REVERSE_V2", [X, np.array([1], I32)], [(F, X.shape)], "", (1,))
case(
    "SPACE_TO_DEPTH", [floats(2, 4, 6, 3)], [(F, (2, 2, 3, 12))], "SpaceToDepthOptions", blockSize=2
)
case(
    "DEPTH_TO_SPACE", [floats(2, 2, 3, 12)], [(F, (2, 4, 6, 3))], "DepthToSpaceOptions", blockSize=2
)
case(
    "SPACE_TO_BATCH_ND",
    [floats(1, 4, 5, 3), np.array([2, 3], I32), np.array([[0, 0], [1, 0]], I32)],
    [(F, (6, 2, 2, 3))],
    "",
    (1, 2),
)
case(
    "BATCH_TO_SPACE_ND",
    [floats(6, 2, 2, 3), np.array([2, 3], I32), np.array([[0, 0], [1, 0]], I32)],
    [(F, (1, 4, 5, 3))],
    "",
    (1, 2),
)

case("GATHER", [X, np.array([2, 0], I32)], [(F, (2, 2, 4))], "GatherOptions", axis=1)
case(
    "GATHER",
    [floats(2, 3, 4, 5), whole(2, 2, low=0, high=3)],
    [(F, (2, 3, 2, 5))],
    "GatherOptions",
    axis=2,
    batchDims=1,
)
case("GATHER_ND", [X, np.array([[0, 1], [1, 2]], I32)], [(F, (2, 4))])
case("EMBEDDING_LOOKUP", [np.array([2, 0, 2], I32), floats(4, 5)], [(F, (3, 5))], "", (1,))
case(
    "SCATTER_ND",
    [np.array([[1], [3], [1]], I32), floats(3, 2), np.array([5, 2], I32)],
    [(F, (5, 2))],
    "",
    (2,),
)
case(
    "SPARSE_TO_DENSE",
    [np.array([[0, 1], [2, 0]], I32), np.array([3, 2], I32), floats(2), np.array(7, F)],
    [(F, (3, 2))],
    "SparseToDenseOptions",
    (1,),
)
case(
    "ONE_HOT",
    [np.array([1, 0, 5], I32), np.array(4, I32), np.array(2, F), np.array(-1, F)],
    [(F, (3, 4))],
    "OneHotOptions",
    (1, 2, 3),
    axis=-1,
)
case("RANGE", [np.array(each, I32) for each in (2, 11, 3)], [(I32, (3,))], "", (0, 1, 2))
case("RANGE", [np.array(each, F) for each in (2, -1, -0.5)], [(F, (6,))])
case("FILL", [np.array([2, 3], I32), np.array(4, F)], [(F, (2, 3))], "", (0,))
case(
    "REVERSE_SEQUENCE",
    [X, np.array([2, 0, 4], I32)],
    [(F, X.shape)],
    "ReverseSequenceOptions",
    seqDim=2,
    batchDim=1,
)
case("MATRIX_DIAG", [floats(2, 3)], [(F, (2, 3, 3))])
case("MATRIX_SET_DIAG", [floats(2, 3, 4), floats(2, 3)], [(F, (2, 3, 4))])
case("WHERE", [X > 0], [(I64, (int((X > 0).sum()), 3))])
case(
    "UNIQUE",
    [np.array([3, 1, 3, 2, 1], I32)],
    [(I32, (3,)), (I32, (5,))],
    "UniqueOptions",
    idxOutType=2,
)
case("TOPK_V2", [X, np.array(2, I32)], [(F, (2, 3, 2)), (I32, (2, 3, 2))], "", (1,))
_corners = floats(9, 2, low=0, high=3)
_boxes = np.concatenate([_corners, _corners + floats(9, 2, low=0.5, high=2)], axis=1)
_nms = [_boxes, floats(9, low=0, high=1), np.array(5, I32), np.array(0.3, F), np.array(0.2, F)]
case("NON_MAX_SUPPRESSION_V4", _nms, [(I32, (5,)), (I32, ())], "", (2, 3, 4))
case(
    "NON_MAX_SUPPRESSION_V5",
    [*_nms, np.array(0, F)],
    [(I32, (5,)), (F, (5,)), (I32, ())],
    "",
    (2, 3, 4, 5),
)
for _align, _half in ((False, False), (True, False), (False, True)):
    _flags = {"alignCorners": _align, "halfPixelCenters": _half}
    for _size in ([7, 9], [2, 3]):
        case(
            "RESIZE_BILINEAR",
            [floats(1, 4, 5, 2), np.array(_size, I32)],
            [(F, (1, *_size, 2))],
            "ResizeBilinearOptions",
            (1,),
            **_flags,
        )
        case(
            "RESIZE_NEAREST_NEIGHBOR",
            [floats(1, 4, 5, 2), np.array(_size, I32)],
            [(F, (1, *_size, 2))],
            "ResizeNearestNeighborOptions",
            (1,),
            **_flags,
        )
case(
    "RESIZE_BILINEAR",
    [(codes(1, 4, 5, 2), Q), np.array([7, 9], I32)],
    [(I8, (1, 7, 9, 2), Q)],
    "ResizeBilinearOptions",
    (1,),
    halfPixelCenters=True,
)


@pytest.mark.parametrize("name", CASES)
def test_an_op_agrees_with_litert(name: str) -> None:
    for run in CASES[name]:
        run()


POSITIVE = np.abs(X) + np.float32(0.1)
STABLEHLO: dict[str, tuple[list[Any], str, dict[str, Any], Any]] = {
    "ADD": ([X, X], "", {}, X + X),
    "SUBTRACT": ([X, POSITIVE], "", {}, X - POSITIVE),
    "MULTIPLY": ([X, X], "", {}, X * X),
    "DIVIDE": ([X, POSITIVE], "", {}, X / POSITIVE),
    "MAXIMUM": ([X, -X], "", {}, np.abs(X)),
    "MINIMUM": ([X, -X], "", {}, -np.abs(X)),
    "POWER": ([POSITIVE, X], "", {}, POSITIVE**X),
    "REMAINDER": ([X, POSITIVE], "", {}, np.fmod(X, POSITIVE)),
    "ABS": ([X], "", {}, np.abs(X)),
    "COSINE": ([X], "", {}, np.cos(X)),
    "EXPONENTIAL": ([X], "", {}, np.exp(X)),
    "FLOOR": ([X], "", {}, np.floor(X)),
    "LOGISTIC": ([X], "", {}, 1 / (1 + np.exp(-X))),
    "NEGATE": ([X], "", {}, -X),
    "TANH": ([X], "", {}, np.tanh(X)),
    "CBRT": ([X], "", {}, np.cbrt(X)),
    "LOG": ([POSITIVE], "", {}, np.log(POSITIVE)),
    "RSQRT": ([POSITIVE], "", {}, 1 / np.sqrt(POSITIVE)),
    "AND": ([X > 0, X > 1], "", {}, X > 1),
    "OR": ([X > 0, X > 1], "", {}, X > 0),
    "SHIFT_LEFT": ([np.array([1, 3], I32), np.array([4, 1], I32)], "", {}, np.array([16, 6], I32)),
    "CLAMP": ([np.array(0, F), X, np.array(1, F)], "", {}, np.clip(X, 0, 1)),
    "SELECT": ([X > 0, X, -X], "", {}, np.abs(X)),
    "CONVERT": ([X], "", {}, X.astype(I32)),
    "COMPARE": ([X, -X], "StablehloCompareOptions", {"comparisonDirection": 5}, X < -X),
    "RESHAPE": ([X], "", {}, X.reshape(6, 4)),
    "TRANSPOSE": (
        [X], "StablehloTransposeOptions", {"permutation": [2, 0, 1]}, X.transpose(2, 0, 1)
    ),
    "CONCATENATE": (
        [X, X], "StablehloConcatenateOptions", {"dimension": 1}, np.concatenate([X, X], 1)
    ),
    "SLICE": (
        [X], "StablehloSliceOptions",
        {"startIndices": [0, 1, 0], "limitIndices": [2, 3, 4], "strides": [1, 1, 2]}, X[:, 1:, ::2],
    ),
    "DYNAMIC_SLICE": (
        [X, *(np.array(n, I32) for n in (1, 9, 0))], "StablehloDynamicSliceOptions",
        {"sliceSizes": [1, 2, 4]}, X[1:, 1:3],
    ),
    "DYNAMIC_UPDATE_SLICE": (
        [X, X[:1], *(np.array(n, I32) for n in (1, 0, 0))], "", {}, np.concatenate([X[:1]] * 2)
    ),
    "PAD": (
        [X, np.array(5, F)], "StablehloPadOptions",
        {"edgePaddingLow": [0, 0, 1], "edgePaddingHigh": [0] * 3, "interiorPadding": [0] * 3},
        np.pad(X, [(0, 0), (0, 0), (1, 0)], constant_values=5),
    ),
    "BROADCAST_IN_DIM": (
        [X[0, 0]], "StablehloBroadcastInDimOptions", {"broadcastDimensions": [1]},
        np.broadcast_to(X[0, 0], (3, 4)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STABLEHLO)
def test_an_op_of_stablehlo_is_what_numpy_gives(name: str) -> None:
    """LiteRT has no kernels for most of them."""
    inputs, kind, options, wanted = STABLEHLO[name]
    outputs = [(wanted.dtype.name, wanted.shape)]
    model, arguments = one_op(f"STABLEHLO_{name}", inputs, outputs, kind, **options)
    ((got,),) = run_interpreted(model, arguments)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_every_op_has_a_test() -> None:
    elsewhere = {
        "ASSIGN_VARIABLE", "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "CALL",
        "CALL_ONCE", "COMPLEX_ABS", "DENSIFY", "IF", "IMAG", "LSTM", "MULTINOMIAL",
        "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "READ_VARIABLE", "REAL", "RFFT2D", "RNN",
        "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "SVDF",
        "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "VAR_HANDLE", "WHILE",
    }  # fmt: skip
    tested = {*CASES, *elsewhere, *(f"STABLEHLO_{name}" for name in STABLEHLO)}
    assert set(LOWERINGS) == tested
