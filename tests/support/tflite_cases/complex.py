"""Cases of complex tensors, of the ops that LiteRT has for them."""

from __future__ import annotations

import numpy as np

from tests.support.tflite_cases.table import I32, F, X, case, floats

C = "complex64"
Z = (floats(2, 3, 4) + 1j * floats(2, 3, 4)).astype(C)
_at = [np.array(each, I32) for each in ([0, 1, 0], [2, 3, 2], [1, 1, 1])]

case("RESHAPE", [Z], [(C, (6, 4))], "ReshapeOptions", newShape=[6, 4])
case("SQUEEZE", [Z[:1]], [(C, (3, 4))], "SqueezeOptions", squeezeDims=[0])
case("EXPAND_DIMS", [Z, np.array(1, I32)], [(C, (2, 1, 3, 4))], "ExpandDimsOptions", (1,))
case("TRANSPOSE", [Z, np.array([2, 0, 1], I32)], [(C, (4, 2, 3))], "TransposeOptions", (1,))
case("SLICE", [Z, _at[0], np.array([2, 2, 2], I32)], [(C, (2, 2, 2))], "SliceOptions", (1, 2))
case("STRIDED_SLICE", [Z, *_at], [(C, (2, 2, 2))], "StridedSliceOptions", (1, 2, 3))
case("TILE", [Z, np.array([1, 2, 1], I32)], [(C, (2, 6, 4))], "TileOptions", (1,))
case("BROADCAST_TO", [Z[:, :1], np.array(Z.shape, I32)], [(C, Z.shape)], "BroadcastToOptions", (1,))
case("SELECT_V2", [X > 0, Z, Z[0]], [(C, Z.shape)], "SelectV2Options")
case("FILL", [np.array([2, 3], I32), Z[0, 0, 0]], [(C, (2, 3))], "FillOptions", (0,))
case("SHAPE", [Z], [(I32, (3,))], "ShapeOptions", outType=2)
case("MUL", [Z, Z[0]], [(C, Z.shape)], "MulOptions")
for _source, _target in ((Z, F), (Z, I32), (X, C)):
    case("CAST", [_source], [(_target, Z.shape)], "CastOptions")
for _name in ("COMPLEX_ABS", "IMAG", "REAL"):
    case(_name, [Z], [(F, Z.shape)])
