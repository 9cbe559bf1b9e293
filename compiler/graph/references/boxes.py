"""The reference of `suppress`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.compiler.graph.references.numbers import Array

__all__ = ["REFERENCES"]


def _overlap(a: Array, b: Array) -> Any:
    """Intersection over union of two boxes, 0 where one is empty."""
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), np.float32(0))
    inside = sides[0] * sides[1]
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return inside / (areas[0] + areas[1] - inside) if inside > 0 else np.float32(0)


@np.errstate(all="ignore")
def _suppress(
    boxes: Array, order: Array, candidates: Array, limit: Array, threshold: Array
) -> Array:
    result = np.zeros(candidates.shape, np.bool_)
    for group, line in np.ndindex(candidates.shape[:2]):
        kept: list[Array] = []
        for place in np.flatnonzero(candidates[group, line]):
            if len(kept) >= int(limit):
                break
            at = np.clip(order[group, line, place], 0, boxes.shape[2] - 1)
            box = boxes[group, :, at]
            if not any(_overlap(box, other) > threshold for other in kept):
                kept.append(box)
                result[group, line, place] = True
    return result


REFERENCES: dict[str, Callable[..., Any]] = {"suppress": _suppress}
