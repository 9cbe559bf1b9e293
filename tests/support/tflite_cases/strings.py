"""Ops on strings, which LiteRT takes in fewer shapes than Ingot, and lookups of rows."""

from __future__ import annotations

import numpy as np

from tests.support.tflite_cases.table import I32, U8, B, F, case, floats

__all__: list[str] = []

S = "str"
WORDS = np.array(["red", "", "grün", "blue", "a word of more than eight bytes", "red"])
GRID = WORDS.reshape(2, 3)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


case("GATHER", [WORDS, ints(4, 0, 2)], [(S, (3,))], "GatherOptions")
case("RESHAPE", [GRID, ints(3, 2)], [(S, (3, 2))], "ReshapeOptions", [1], newShape=[3, 2])
case("SQUEEZE", [WORDS.reshape(1, 6)], [(S, (6,))], "SqueezeOptions", squeezeDims=[0])
case("FILL", [ints(2, 3), np.array("blue")], [(S, (2, 3))], "FillOptions", [0, 1])
case("TILE", [GRID, ints(2, 1)], [(S, (4, 3))], "TileOptions", [1])
case("SLICE", [GRID, ints(0, 1), ints(2, -1)], [(S, (2, 2))], "SliceOptions", [1, 2])
case(
    "STRIDED_SLICE",
    [WORDS, ints(5), ints(0), ints(-2)],
    [(S, (3,))],
    "StridedSliceOptions",
    [1, 2, 3],
)
case("SHAPE", [GRID], [(I32, (2,))], "ShapeOptions", outType=2)
case("RANK", [GRID], [(I32, ())], "RankOptions")
for _name in ("EQUAL", "NOT_EQUAL"):
    _kind = f"{_name.title().replace('_', '')}Options"
    case(_name, [GRID, WORDS[::-1].reshape(2, 3)], [(B, (2, 3))], _kind)
    case(_name, [GRID, WORDS[:3]], [(B, (2, 3))], _kind, [1])
_KEYS, _ASKED = ints(-3, 0, 7, 9), ints(7, 8, -3, 9, 10)
case("HASHTABLE_LOOKUP", [_ASKED, _KEYS, floats(4, 2, 3)], [(F, (5, 2, 3)), (U8, (5,))])
case("HASHTABLE_LOOKUP", [_ASKED, _KEYS, floats(4)], [(F, (5,)), (U8, (5,))])
case("HASHTABLE_LOOKUP", [_ASKED, _KEYS, WORDS[:4]], [(S, (5,)), (U8, (5,))])
_PLACES = np.array([[0, 1], [0, 3], [2, 0], [2, 1], [2, 2]], np.int32)
for _combiner in range(3):
    case(
        "EMBEDDING_LOOKUP_SPARSE",
        [ints(3, 0, 2, 2, 1), _PLACES, ints(3, 4), floats(5, low=0.5), floats(4, 2, 3)],
        [(F, (3, 2, 3))],
        "EmbeddingLookupSparseOptions",
        [1, 2],
        combiner=_combiner,
    )
