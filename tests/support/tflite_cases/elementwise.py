"""Cases of ops on elements, and of activations."""

from __future__ import annotations

import numpy as np

from tests.support.tflite_cases.table import (
    I8,
    I16,
    I32,
    I64,
    OUT,
    RNG,
    U8,
    B,
    F,
    Q,
    X,
    case,
    codes,
    floats,
    whole,
)

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
for _types in ((I16, I32), (I32, I8)):
    case(
        "QUANTIZE",
        [(whole(30, low=-30000, high=30000, type=_types[0]), (0.002, 0))],
        [(_types[1], (30,), (0.5, 0))],
    )
case("DEQUANTIZE", [(codes(30), Q)], [(F, (30,))])
case("DEQUANTIZE", [floats(5).astype(np.float16)], [(F, (5,))], constants=(0,))
case("ZEROS_LIKE", [X], [(F, X.shape)])
case("BUCKETIZE", [X], [(I32, X.shape)], "BucketizeOptions", boundaries=[-1.0, 0.0, 0.5])
