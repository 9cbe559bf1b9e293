"""Dimension numbers of scatters, which tests of several schedules share."""

from __future__ import annotations

from typing import Any

__all__ = ["CASES", "ROWS", "elements"]

ROWS: dict[str, Any] = {
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
}
"""Rows of a table at single indices, as the gradient of an embedding."""


def elements(axis: int) -> dict[str, Any]:
    """Single elements along one axis of a matrix."""
    return {
        "update_window_dims": (),
        "inserted_window_dims": (axis,),
        "input_batching_dims": (1 - axis,),
        "scatter_indices_batching_dims": (1 - axis,),
        "scatter_dims_to_operand_dims": (axis,),
        "index_vector_dim": 2,
        "mode": "wrap_check",
    }


WINDOWS: dict[str, Any] = {
    "update_window_dims": (0, 2, 3),
    "inserted_window_dims": (),
    "scatter_dims_to_operand_dims": (1, 0),
    "index_vector_dim": 1,
}
COLUMNS: dict[str, Any] = {
    "update_window_dims": (0, 1),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (2, 0),
    "index_vector_dim": 0,
}
POINTS: dict[str, Any] = {**ROWS, "update_window_dims": ()}

CASES = {
    "rows": (["f32[b,200]", "i32[n,1]", "f32[n,200]"], ROWS, (-3, 12)),
    "narrow rows": (["i16[b,3]", "i64[n,1]", "i16[n,3]"], ROWS, (-3, 12)),
    "points": (["bf16[b]", "u8[n,1]", "bf16[n]"], POINTS, (0, 12)),
    "elements of rows": (["f32[b,20]", "i64[b,n]", "f32[b,n]"], elements(1), (-20, 20)),
    "elements of columns": (["i8[20,b]", "i32[n,b]", "i8[n,b]"], elements(0), (-20, 20)),
    "windows": (["f64[9,8,7]", "i32[n,2]", "f64[2,n,4,7]"], WINDOWS, (-2, 9)),
    "windows of columns": (["f32[9,8,7]", "i32[2,n]", "f32[5,3,n]"], COLUMNS, (-2, 9)),
}
