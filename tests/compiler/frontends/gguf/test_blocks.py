"""Blocks of every type: their numbers are those of the `gguf` package, bit by bit, and products
with them keep the codes packed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import gguf
import numpy as np
import pytest

from ingot.compiler.frontends.gguf.blocks import DECODED, decode, parameter
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.round_rows import set_precision
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.ops import DotCoded
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import Module, TensorType, Value, walk
from ingot.hal.errors import OutOfRange
from ingot.hal.gguf import BLOCK_TYPES, GgufTensor
from ingot.hal.spec import dtype
from tests.support.programs import program
from tests.support.rounding import rounded

CODINGS = {
    "Q8_0": ("i8", 8, 32, 0), "Q4_0": ("i4", 4, 32, 0), "Q4_1": ("u4", 4, 32, 0),
    "Q5_0": ("i8", 5, 32, 0), "Q5_1": ("u8", 5, 32, 0), "Q2_K": ("u2", 2, 16, 256),
    "Q3_K": ("i8", 3, 16, 256), "Q4_K": ("u4", 4, 32, 256), "Q5_K": ("u8", 5, 32, 256),
    "Q6_K": ("i8", 6, 16, 256), "IQ4_NL": ("u4", 4, 32, 0), "MXFP4": ("u4", 4, 32, 0),
    "IQ4_XS": ("u4", 4, 32, 256), "NVFP4": ("u4", 4, 16, 0), "TQ1_0": ("u2", 2, 256, 0),
    "TQ2_0": ("u2", 2, 256, 0), "IQ2_XXS": ("u8", 3, 32, 256), "IQ2_XS": ("u8", 3, 16, 256),
    "IQ2_S": ("u8", 3, 16, 256), "IQ3_XXS": ("u4", 4, 32, 256), "IQ3_S": ("u4", 4, 32, 256),
    "IQ1_S": ("u8", 3, 32, 256), "IQ1_M": ("u8", 3, 16, 256),
}  # fmt: skip
"""Coding, bits, steps of a group, and of a block whose scales are bytes with a factor."""

MINIMA = {"Q2_K": ("u4", 4, 16, 0), "Q4_K": ("u8", 8, 8, 0), "Q5_K": ("u8", 8, 8, 0)}
"""Codes of the minima of groups, in groups themselves."""

ZEROS = ("TQ1_0", "TQ2_0")
"""Types whose codes have zeros that do not fit signed codes of as many bits."""

LONGER = {"Q2_K": 1.1, "MXFP4": 1.06, "NVFP4": 1.12, "TQ1_0": 1.3, "TQ2_0": 1.07}
LONGER |= {"IQ2_XXS": 1.65, "IQ2_XS": 1.57, "IQ2_S": 1.42, "IQ3_XXS": 1.43, "IQ3_S": 1.28}
LONGER |= {"IQ1_S": 2.2, "IQ1_M": 2.1}
"""How much longer than in the file panels may be, where that is more than 5 %."""

HALVES = {
    "Q6_K": (208,), "Q3_K": (108,), "Q2_K": (80, 82), "MXFP4": (), "NVFP4": (), "TQ1_0": (52,),
    "TQ2_0": (64,), "IQ1_M": (), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2),
}  # fmt: skip
"""Where a block has scales and minima of f16."""

ROWS, LENGTH = 20, 512
COLUMNS = 32
"""Of panels that hold the rows."""


def _tensor(name: str) -> GgufTensor:
    """A tensor of random blocks, whose scales are moderate."""
    type = next(each for each in BLOCK_TYPES.values() if each.name == name)
    random = np.random.default_rng(0)
    if type.count == 1:
        values = random.normal(size=(ROWS, LENGTH)).astype(np.float32)
        data = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name])
        return GgufTensor("w", type, (ROWS, LENGTH), np.frombuffer(data.tobytes(), np.uint8))
    blocks = random.integers(0, 256, (ROWS * LENGTH // type.count, type.length), np.uint8)
    for start in HALVES.get(name, (0,)):
        scales = random.uniform(0.5, 2, len(blocks)).astype(np.float16)
        blocks[:, start : start + 2] = scales.view(np.uint8).reshape(-1, 2)
    if name == "IQ1_M":
        blocks[:, 49:56:2] = blocks[:, 49:56:2] & 15 | np.array([0, 0, 0xC0, 0x30], np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = random.integers(0, 2, len(blocks)) + 126
        blocks[:2, 0] = 0, 1
    return GgufTensor("w", type, (ROWS, LENGTH), blocks.reshape(-1))


def _expected(name: str, tensor: GgufTensor) -> Any:
    data = tensor.data.reshape(ROWS, -1)
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name]).astype(np.float32)


def _globals(module: Module) -> set[TensorType]:
    """What `main` reads of the weight."""
    ops = walk(module.functions["main"])
    return {tensor_type(op.result) for op in ops if op.name == "global"}


def _module(name: str, tensor: GgufTensor, is_product: bool) -> Module:
    def build(builder: Builder, x: Value) -> Value:
        w = decode(name, parameter(tensor, builder), builder)
        if not is_product:
            return w
        return builder.value("dot_general", x, w, lhs_contract=(1,), rhs_contract=(1,))

    return program(build, TensorType(dtype("f32"), (2, LENGTH)))


@pytest.mark.parametrize("name", DECODED)
def test_numbers_are_exact(name: str) -> None:
    tensor = _tensor(name)
    x = np.zeros((2, LENGTH), np.float32)
    (got,) = interpret(_module(name, tensor, False), "main", [x], {"w": tensor.rows})
    np.testing.assert_array_equal(got, _expected(name, tensor))


@pytest.mark.parametrize("name", CODINGS)
def test_products_keep_codes(name: str) -> None:
    tensor = _tensor(name)
    module = run_graph_passes(_module(name, tensor, True))
    found = [op for op in walk(module.functions["main"]) if op.name == "dot_coded"]
    expected = [CODINGS[name], *([MINIMA[name]] if name in MINIMA else [])]
    codings = [DotCoded.of(op) for op in found]
    assert [(each.coding.name, each.width, each.group, each.block) for each in codings] == expected
    assert len(found[0].operands) == 3 + (codings[0].block > 0) + (name in ZEROS)
    kept = [op.result.type for op in walk(module.functions["main"]) if op.name == "global"]
    length = sum(prod(each.shape) * each.dtype.bytes for each in kept) * ROWS / COLUMNS
    assert length <= LONGER.get(name, 1.05) * tensor.data.nbytes
    x = np.random.default_rng(1).normal(size=(2, LENGTH)).astype(np.float32)
    (got,) = interpret(module, "main", [x], {"w": tensor.rows})
    weight = _expected(name, tensor).astype(np.float64)
    bound = 1e-5 * (np.abs(x) @ np.abs(weight).T)
    assert np.all(np.abs(got - x @ weight.T) <= bound)


@pytest.mark.parametrize("name", CODINGS)
def test_rows_of_a_table_are_read_in_the_panels_of_its_product(name: str) -> None:
    """All its rows, the last ones in a panel that is not full, and no others."""
    tensor = _tensor(name)

    def build(builder: Builder, x: Value, ids: Value) -> Sequence[Value]:
        w = decode(name, parameter(tensor, builder), builder)
        rows = builder.value("take", w, ids, axis=0, mode="check")
        return rows, builder.value("dot_general", x, w, lhs_contract=(1,), rhs_contract=(1,))

    types = TensorType(dtype("f32"), (2, LENGTH)), TensorType(dtype("i32"), (2, ROWS // 2))
    module = program(build, *types)
    alone = run_graph_passes(_module(name, tensor, True))
    module = run_graph_passes(module)
    assert _globals(module) == _globals(alone)
    x, ids = np.zeros((2, LENGTH), np.float32), np.arange(ROWS, dtype=np.int32)[::-1].reshape(2, -1)
    got, _ = interpret(module, "main", [x, ids], {"w": tensor.rows})
    np.testing.assert_array_equal(got, _expected(name, tensor)[ids])
    with pytest.raises(OutOfRange, match=f"{ROWS} is out of range"):
        interpret(module, "main", [x, ids + 1], {"w": tensor.rows})


@pytest.mark.parametrize("name", CODINGS)
def test_products_round_rows(name: str) -> None:
    tensor = _tensor(name)
    module = _module(name, tensor, True)
    set_precision(module, "int8")
    module = run_graph_passes(module)
    names = [op.name for op in walk(module.functions["main"])]
    assert "dot_scaled" in names
    assert "dot_coded" not in names  # minima meet the sums of the rows in the same product
    x = np.random.default_rng(1).normal(size=(2, LENGTH)).astype(np.float32)
    (got,) = interpret(module, "main", [x], {"w": tensor.rows})
    weight = _expected(name, tensor).astype(np.float64)
    bound = 1e-5 * (np.abs(x) @ np.abs(weight).T)
    assert np.all(np.abs(got - rounded(x, CODINGS[name][2]) @ weight.T) <= bound)
