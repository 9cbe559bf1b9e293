"""Weights of few bits in blocks against onnxruntime; they stay packed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from ingot.compiler.graph.ops import DotCoded
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import walk
from ingot.hal.errors import CompileError
from tests.support.onnx_contrib import drawn, node_of, of_nodes
from tests.support.onnx_models import make_value

Array = np.ndarray[Any, Any]
K, N, BLOCK = 72, 10, 16
BLOCKS = -(-K // BLOCK)


def pack(codes: Array, bits: int) -> Array:
    """Numbers along the last axis as bytes, the first one in the low bits."""
    per = 8 // bits
    missing = -codes.shape[-1] % per
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)])
    parts = codes.reshape(*codes.shape[:-1], -1, per) << (np.arange(per) * bits)
    return parts.sum(-1).astype(np.uint8)


def draw_codes(bits: int, *shape: int) -> Array:
    return np.random.default_rng(bits).integers(0, 1 << bits, shape)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products_with_blocks_are_right_and_stay_packed(bits: int) -> None:
    if bits == 8:
        weight = draw_codes(8, N, BLOCKS, BLOCK).astype(np.uint8)
        zeros = draw_codes(8, N, BLOCKS).astype(np.uint8)
    else:
        weight = pack(draw_codes(bits, N, BLOCKS, BLOCK), bits)
        zeros = pack(draw_codes(bits, N, BLOCKS), bits)
    scales = (np.abs(drawn(N, BLOCKS)) + 0.1).astype(np.float32)
    arrays = {
        "w": weight, "s": scales, "z": zeros, "f": drawn(N, BLOCKS, seed=3) + 2, "b": drawn(N),
    }  # fmt: skip
    more = {"K": K, "N": N, "bits": bits, "block_size": BLOCK, "accuracy_level": 1}
    nodes = [
        node_of("MatMulNBits", ["x", "w", "s"], ["plain"], **more),
        node_of("MatMulNBits", ["x", "w", "s", "z", "", "b"], ["zeros"], **more),
    ]
    if bits < 8:  # onnxruntime has no floats there
        nodes.append(node_of("MatMulNBits", ["x", "w", "s", "f"], ["floats"], **more))
    model = of_nodes(nodes, [make_value("x", ["a", "rows", K])], arrays)
    for rows in (1, 5):
        model.check(1e-5, x=drawn(2, rows, K, seed=rows))
    coded = [
        DotCoded.of(op) for op in walk(run_graph_passes(model.module).functions["main"])
        if op.name == "dot_coded"
    ]  # fmt: skip
    assert [each.group for each in coded] == [BLOCK] * len(nodes)
    assert all(each.coding.bits == bits for each in coded)


def test_columns_of_groups_that_are_listed() -> None:
    """Against NumPy: onnxruntime reads the list for 4 bits only, in a form of its own."""
    codes, zeros = draw_codes(4, N, BLOCKS * BLOCK), draw_codes(4, N, BLOCKS)
    scales, groups = np.abs(drawn(N, BLOCKS)) + 0.1, np.arange(K) % BLOCKS
    arrays = {
        "w": pack(codes, 4).reshape(N, BLOCKS, -1), "s": scales, "z": pack(zeros, 4),
        "g": groups.astype(np.int32),
    }  # fmt: skip
    nodes = [
        node_of("MatMulNBits", ["x", "w", "s", "z", "g"], ["y"], K=K, N=N, bits=4, block_size=BLOCK)
    ]
    x = drawn(3, K)
    weight = (codes[:, :K] - zeros[:, groups]) * scales[:, groups].astype(np.float64)
    model = of_nodes(nodes, [make_value("x", ["rows", K])], arrays)
    model.compare({"y": x @ weight.T}, 1e-5, x=x)


def test_products_with_numbers_of_a_table() -> None:
    arrays = {"w": draw_codes(8, N * K // 2).astype(np.uint8), "s": np.abs(drawn(N * K // 16))}
    nodes = [
        node_of(
            "MatMulBnb4", ["x", "w", "s"], [f"y{kind}"], K=K, N=N, block_size=16, quant_type=kind
        )
        for kind in (0, 1)
    ]
    of_nodes(nodes, [make_value("x", ["rows", K])], arrays).check(1e-5, x=drawn(3, K))


def test_look_ups_in_blocks() -> None:
    codes, zeros = draw_codes(4, 9, 40), draw_codes(4, 9, 3)
    scales = (np.abs(drawn(9, 3)) + 0.1).astype(np.float32)
    arrays = {
        "bytes": pack(codes, 4), "byte_zeros": pack(zeros, 4), "s": scales,
        "wide": draw_codes(8, 9, 40).astype(np.uint8), "u4": codes.astype(ml_dtypes.uint4),
        "z4": zeros.astype(ml_dtypes.uint4), "i4": (codes - 8).astype(ml_dtypes.int4),
        "across": np.abs(drawn(1, 40, seed=1)) + 0.1,
    }  # fmt: skip
    names = ["i", "s"]
    more = {"block_size": 16}
    nodes = [
        node_of("GatherBlockQuantized", ["bytes", *names], ["packed"], **more),
        node_of("GatherBlockQuantized", ["bytes", *names, "byte_zeros"], ["zeros"], **more),
        node_of("GatherBlockQuantized", ["wide", *names], ["eight"], bits=8, **more),
        node_of("GatherBlockQuantized", ["u4", *names, "z4"], ["four"], **more),
        node_of("GatherBlockQuantized", ["i4", *names], ["columns"], gather_axis=1, **more),
        node_of("GatherBlockQuantized", ["i4", "i", "across"], ["other"], quantize_axis=0, **more),
    ]
    model = of_nodes(nodes, [make_value("i", ["a", "b"], TensorProto.INT64)], arrays, opset=21)
    model.check(i=np.array([[0, 8, 3], [-1, 5, 5]]))


def test_weights_that_do_not_fit_are_told() -> None:
    arrays = {"w": np.zeros((N, 2, 8), np.uint8), "s": np.zeros((N, BLOCKS), np.float32)}
    for problem, more in (
        ("make 400 bytes", {"bits": 4}), ("its bits are 3", {"bits": 3}),
        ("packed for another device", {"weight_prepacked": 1}),
    ):  # fmt: skip
        node = node_of(
            "MatMulNBits", ["x", "w", "s"], ["y"], **{"K": K, "N": N, "block_size": BLOCK, **more}
        )
        with pytest.raises(Exception, match=problem):
            of_nodes([node], [make_value("x", [2, K])], arrays)


ROWS = {
    2: 18,
    6: 22,
    8: 34,
    20: 18,
    30: 64,
    13: 176,
    14: 210,
    16: 66,
    17: 74,
    18: 98,
    22: 82,
    23: 136,
}
"""The bytes of the blocks of ggml's types, of 32 elements or of 256 from a K on."""


def packed_rows(number: int, rows: int, blocks: int) -> Array:
    """Bytes whose scales are no great numbers."""
    return np.random.default_rng(number).integers(0, 60, (rows, blocks * ROWS[number]), np.uint8)


@pytest.mark.parametrize("number", [2, 6, 8, 13, 14, 16, 17, 18, 20, 22, 23, 30])
def test_rows_of_a_table_in_blocks_of_ggml(number: int) -> None:
    k = 64 if number in (2, 6, 8, 20, 30) else 512
    nodes = [
        node_of("GatherPacked", ["w", "i"], [name], packed_type=number, K=k, output_dtype=code)
        for name, code in (("y", TensorProto.FLOAT), ("z", TensorProto.FLOAT16))
    ]
    model = of_nodes(
        nodes, [make_value("i", ["n", 2], TensorProto.INT64)], {"w": packed_rows(number, 5, 2)}
    )
    model.check(i=np.array([[1, 4], [-1, 5], [0, 3]]))


@pytest.mark.parametrize("kind", ["none", "relu2", "silu"])
def test_products_with_weights_in_blocks_of_ggml(kind: str) -> None:
    rows = packed_rows(8, 6, 2)
    numbers = of_nodes(
        [node_of("GatherPacked", ["w", "i"], ["y"], packed_type=8, K=64, output_dtype=1)],
        [make_value("i", ["n"], TensorProto.INT64)], {"w": rows},
    ).results(i=np.arange(6))["y"]  # fmt: skip
    node = node_of("MatMulPacked", ["x", "w"], ["y"], packed_type=8, K=64, N=6,
                   activation_type=kind)  # fmt: skip
    model = of_nodes([node], [make_value("x", ["n", 64])], {"w": rows})
    x = drawn(3, 64) / 1000
    y = x @ numbers.T
    y = {"none": y, "relu2": np.maximum(y, 0) ** 2, "silu": y / (1 + np.exp(-y))}[kind]
    model.compare({"y": y}, 1e-5, x=x)


def test_blocks_of_ggml_that_are_not_taken_are_told() -> None:
    node = node_of("GatherPacked", ["w", "i"], ["y"], packed_type=9, K=64)
    with pytest.raises(CompileError, match=r"packed_type is 9: 2 \(Q4_0\), .* are taken"):
        of_nodes(
            [node], [make_value("i", [1], TensorProto.INT64)], {"w": np.zeros((2, 72), np.uint8)}
        )


@pytest.mark.parametrize("kind", [0, 1])
def test_products_with_columns_of_blocks(kind: int) -> None:
    k, n, blocks = 200, 6, 7
    scales = (np.abs(drawn(n, blocks, 1)) + 0.1).astype("<f4").view(np.uint8)
    zeros = draw_codes(4, n, blocks, kind).astype(np.uint8)
    codes = np.random.default_rng(kind).integers(0, 256, (n, blocks, 16), np.uint8)
    arrays = {
        "w": np.concatenate([scales, zeros, codes], axis=2).reshape(-1),
        "shape": np.array([k, n]),
    }
    node = node_of("MatMulFpQ4", ["x", "w", "shape"], ["y"], blk_quant_type=kind)
    model = of_nodes([node], [make_value("x", ["a", "rows", k])], arrays, floats=["y"])
    model.check(1e-5, x=drawn(2, 3, k))


@pytest.mark.parametrize("rank", [0, 24])
def test_an_adapter_of_few_bits_is_added(rank: int) -> None:
    k, n, block = 40, 6, 32

    def weight(name: str, rows: int, columns: int) -> dict[str, Array]:
        blocks = -(-columns // block)
        codes = np.random.default_rng(rows).integers(0, 256, (rows, blocks, block // 2), np.uint8)
        return {name: codes, f"{name}s": drawn(rows, blocks, seed=rows)}

    arrays = {**weight("w", n, k), **weight("a", rank or 8, k), **weight("b", n, rank or 8)}
    if not rank:
        arrays["a"], arrays["b"] = arrays["a"][:0], arrays["b"][:, :0]
    sizes = {"N": n, "K": k, "block_size": block, "bits": 4}
    node = node_of("MatMulNBitsQLoRA", ["x", *arrays], ["y"], lora_bits=4, lora_block_size=block,
                   **sizes)  # fmt: skip
    model = of_nodes([node], [make_value("x", ["n", k])], arrays)
    x = drawn(3, k)
    parts = [node_of("MatMulNBits", ["x", "w", "ws"], ["base"], **sizes)]
    if rank:
        parts += [
            node_of("MatMulNBits", ["x", "a", "as"], ["low"], **{**sizes, "N": rank}),
            node_of("MatMulNBits", ["low", "b", "bs"], ["more"], **{**sizes, "K": rank}),
        ]
    made = of_nodes(parts, [make_value("x", ["n", k])], arrays).results(x=x)
    model.compare({"y": made["base"] + made.get("more", 0)}, x=x)
