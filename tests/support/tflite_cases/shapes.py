"""Cases of reductions, and of ops that move elements."""

from __future__ import annotations

import numpy as np

from tests.support.tflite_cases.table import (
    I8,
    I32,
    I64,
    OUT,
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
for _name in ("SUM", "MEAN"):
    case(_name, [np.array(2.5, F), np.array([-1], I32)], [(F, ())], "ReducerOptions", (1,))
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
    ([0, 1], [0, 3], [1, 1], (2, 3, 2), {"ellipsisMask": 1, "newAxisMask": 1}),
    ([-1], [0], [1], (3, 4), {"shrinkAxisMask": 1}),
    ([1, 2], [2, 3], [1, 2], (4,), {"beginMask": 3, "endMask": 1, "shrinkAxisMask": 3}),
    ([-2, -2, 1], [2, 2, 3], [1, 1, 2], (2, 2, 2), {"offset": True}),
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
