"""Cases of ops that read and choose elements by index, and that resize images."""

from __future__ import annotations

import numpy as np

from tests.support.tflite_cases.table import I8, I16, I32, I64, F, Q, X, case, codes, floats, whole

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
case("MATRIX_SET_DIAG", [(codes(2, 3, 4), Q), (codes(2, 3), Q)], [(I8, (2, 3, 4), Q)])
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
for _sigma in (0.2, 1.0):
    case(
        "NON_MAX_SUPPRESSION_V5",
        [*_nms, np.array(_sigma, F)],
        [(I32, (5,)), (F, (5,)), (I32, ())],
        "",
        (2, 3, 4, 5),
    )
_anchors = floats(30, 4, low=0.2, high=0.8)
for _regular in (False, True):
    for _background in (0, 1):
        case(
            "TFLite_Detection_PostProcess",
            [floats(1, 30, 4), floats(1, 30, 3 + _background, low=0, high=1), _anchors],
            [(F, (1, 8, 4)), (F, (1, 8)), (F, (1, 8)), (F, (1,))],
            "",
            (2,),
            max_detections=8, max_classes_per_detection=1, num_classes=3, detections_per_class=4,
            nms_score_threshold=0.3 if _regular else 0.75, nms_iou_threshold=0.4,
            y_scale=10.0, x_scale=9.0, h_scale=5.0, w_scale=4.0, use_regular_nms=_regular,
        )  # fmt: skip
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
for _type, _flags in ((I8, {"halfPixelCenters": True}), (I16, {"alignCorners": True}), (I16, {})):
    case(
        "RESIZE_BILINEAR",
        [(codes(1, 4, 5, 2, type=_type), (0.003, 0)), np.array([7, 9], I32)],
        [(_type, (1, 7, 9, 2), (0.003, 0))],
        "ResizeBilinearOptions",
        (1,),
        codes=0,
        **_flags,
    )
case(
    "RESIZE_BILINEAR",
    [codes(1, 4, 5, 2), np.array([7, 9], I32)],
    [(I8, (1, 7, 9, 2))],
    "ResizeBilinearOptions",
    (1,),
)
for _algorithm, _words in ((0, 3), (1, 2), (1, 3), (2, 2)):
    for _type, _shape in ((I32, (3, 5)), (I64, (2, 3)), ("uint32", ()), ("uint64", (0, 2))):
        case(
            "STABLEHLO_RNG_BIT_GENERATOR",
            [np.array([5 << 40 | 3, 2**64 - 2, 7 << 35 | 1][:_words], np.uint64)],
            [("uint64", (_words,)), (_type, _shape)],
            "StablehloRngBitGeneratorOptions",
            codes=0,
            algorithm=_algorithm,
        )
