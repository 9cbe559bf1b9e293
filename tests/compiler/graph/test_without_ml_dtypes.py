"""Without ml_dtypes, bf16 weights travel as 16-bit carriers: moved and packed, never computed."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.ops import Constant
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import Literal, Module, parse, to_text
from ingot.hal.errors import Unsupported
from ingot.hal.spec import DTYPES, dtype
from tests.support.programs import normal, program

WEIGHT = normal(0, 40, 24).astype(ml_dtypes.bfloat16)


def network() -> Module:
    def build(b: Builder, x: Any) -> Any:
        w = b.constant(Literal(WEIGHT.view(np.uint16), dtype("bf16")))
        scale = b.constant(Literal(WEIGHT[:1, 0].view(np.uint16).reshape(()), dtype("bf16")))
        y = b.op("dot_general", x, w, lhs_contract=(1,), rhs_contract=(0,))
        scale = b.op("add", scale, b.constant(0.1, "bf16"))
        return b.op("mul", y, b.op("broadcast", scale, shape=y.type.shape, dimensions=()))

    return run_graph_passes(program(build, "bf16[n,40]"))


def packed(module: Module) -> bytes:
    (panels,) = (
        Constant.of(op).value
        for op in module.functions["main"].block.ops
        if op.name == "constant" and len(op.result.type.shape) == 4  # type: ignore[union-attr]
    )
    return panels.array.tobytes()


def test_weights_are_packed_and_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = packed(network())
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    cached = DTYPES["bf16"].__dict__.pop("numpy", None)
    try:
        with pytest.raises(Unsupported, match="ml_dtypes"):
            _ = dtype("bf16").numpy
        module = network()
        assert packed(module) == wanted
        assert "init" in module.functions  # the sum of two bf16 numbers waits for load time
        assert to_text(parse(to_text(module))) == to_text(module)
    finally:
        if cached is not None:
            DTYPES["bf16"].__dict__["numpy"] = cached
