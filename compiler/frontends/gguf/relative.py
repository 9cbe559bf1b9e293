"""Scores that follow from how far a key is from a query, as T5 has them: distances are in buckets,
near ones each in one of its own, and each head has learned a number for each bucket."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.halves_configuration import Relative
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["RelativeScores"]

I64 = dtype("i64")


class RelativeScores:
    """What is added to scores of queries at `places`, i64[queries], for so many keys from 0 on.
    Layers have numbers of their own, or all those of the first one."""

    def __init__(self, c: Configuration, weights: Weights, places: Value, keys: Dim) -> None:
        assert c.relative is not None
        self.c, self.weights, self.b, self.relative = c, weights, weights.builder, c.relative
        b, (queries,) = self.b, tensor_type(places).shape
        shape, far = (queries, keys), c.relative.farthest
        key = b.value("iota", dtype=I64, shape=shape, axis=1)
        query = b.value("broadcast", places, shape=shape, dimensions=(0,))
        self.distances = b.value("sub", key, query)
        least, most = (b.full(each, I64, shape) for each in (-far, far))
        self.rows = b.value("add", b.value("clamp", least, self.distances, most), most)
        self.made: dict[str, Value] = {}

    def of(self, layer: int) -> Value:
        """f32[heads, queries, keys]."""
        own = f"blk.{layer}.attn_rel_b.weight"
        name = own if own in self.weights else "blk.0.attn_rel_b.weight"
        if name not in self.made:
            b, c = self.b, self.c
            numbers = self.weights.table(name, (self.relative.buckets, c.heads))
            buckets = b.constant(_buckets(self.relative, not c.is_causal))
            numbers = b.value("take", numbers, buckets, axis=0)
            numbers = b.value("transpose", numbers, permutation=(1, 0))
            self.made[name] = b.value("take", numbers, self.rows, axis=1)
        return self.made[name]


def _buckets(relative: Relative, has_both: bool) -> Any:
    """The bucket of each distance from -farthest to farthest, i64. `has_both`: half of them are for
    keys behind the query."""
    count, far = relative.buckets, relative.farthest
    distances, first = np.arange(-far, far + 1), np.zeros(2 * far + 1, np.int64)
    if has_both:
        count //= 2
        first += (distances > 0) * count
    apart = np.abs(distances) if has_both else np.maximum(-distances, 0)
    near = count // 2
    steps = np.log(np.maximum(apart, 1).astype(np.float32) / near) / np.float32(np.log(far / near))
    wide = near + (steps * (count - near)).astype(np.int64)
    return first + np.where(apart < near, apart, np.minimum(wide, count - 1))
