"""A program for tests of devices and arrays: rows of a table, looked up by checked indices."""

from __future__ import annotations

import numpy as np

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import symbol
from tests.support.compiled_programs import build

__all__ = ["TABLE", "compile_lookup"]

TABLE = np.arange(40, dtype=np.float32).reshape(10, 4)


def compile_lookup() -> ingot.Module:
    """main(table: f32[10,4], indices: i64[n]) -> f32[n,4], for CPU and OpenCL."""

    def make(b: Builder, table: Value, indices: Value) -> list[Value]:
        with b.at("embeddings"):
            return [b.op("take", table, indices, axis=0, mode="check")]

    types = ("f32", (10, 4)), ("i64", (symbol("n"),))
    return ingot.compile(build(make, *types, symbols={"n": (0, None)}), target=["cpu", "opencl"])
