"""Attention of `com.microsoft` to some of the keys, against onnxruntime and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from tests.support.onnx_contrib import Read, drawn, node_of, of_nodes
from tests.support.onnx_models import make_value

Array = np.ndarray[Any, Any]
I32 = TensorProto.INT32
ROOM, SIZE = 64, 16


def in_place(model: Read, inputs: dict[str, Array]) -> dict[str, Array]:
    """What onnxruntime makes of a model whose caches it wants back where they were."""
    session = onnxruntime.InferenceSession(
        model.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    values = {x: onnxruntime.OrtValue.ortvalue_from_numpy(v.copy()) for x, v in inputs.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    for name in ("k", "v"):
        binding.bind_ortvalue_output(f"present_{name}", values[f"past_{name}"])
    session.run_with_iobinding(binding)
    return dict(zip(model.names, binding.copy_outputs_to_cpu(), strict=True))


@pytest.mark.parametrize("turned", [0, 1])
def test_blocks_of_keys(turned: int) -> None:
    layouts = np.tril(np.ones((2, 4, 4), int))
    layouts[0, 2, 0] = layouts[1, 3, 1] = 0
    columns = [np.nonzero(each)[1] for each in layouts]
    width = max(map(len, columns))
    angle = np.arange(ROOM)[:, None] / 50 ** (np.arange(8) / 8)
    arrays = {
        "rows": np.array([[0, *np.cumsum(each.sum(1))] for each in layouts], np.int32),
        "columns": np.array([[*c, *[-1] * (width - len(c))] for c in columns], np.int32),
    }
    names = ["q", "k", "v", "past_k", "past_v", "rows", "columns", "total", "lengths"]
    if turned:
        arrays |= {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}
        names += ["cos", "sin"]
    node = node_of(
        "SparseAttention", names, ["y", "present_k", "present_v"], num_heads=4, kv_num_heads=2,
        sparse_block_size=16, do_rotary=turned, scale=0.3,
    )  # fmt: skip
    widths = {"q": 4 * SIZE, "k": 2 * SIZE, "v": 2 * SIZE}
    inputs = [make_value(name, ["b", "s", width]) for name, width in widths.items()]
    inputs += [make_value(f"past_{name}", ["b", 2, "room", SIZE]) for name in "kv"]
    inputs += [make_value("total", [1], I32), make_value("lengths", ["b"], I32)]
    model = of_nodes([node], inputs, arrays)
    for length, before in ((40, 0), (1, 50), (1, 20)):
        values = {x: drawn(1, length, width, seed=len(x)) for x, width in widths.items()}
        for name in "kv":
            values[f"past_{name}"] = drawn(1, 2, ROOM, SIZE, seed=ord(name))
            values[f"past_{name}"][:, :, before:] = 0
        values |= {x: np.array([before + length], np.int32) for x in ("total", "lengths")}
        model.compare(in_place(model, values), 2e-5, **values)


def test_neighbours_and_global_tokens() -> None:
    length, width, heads, window = 8, 8, 2, 2
    arrays = {"w": drawn(width, 24), "b": drawn(24, seed=1)}
    arrays |= {"all_w": drawn(width, 24, seed=2), "all_b": drawn(24, seed=3)}
    names = ["x", "w", "b", "mask", "all_w", "all_b", "chosen"]
    node = node_of("LongformerAttention", names, ["y"], num_heads=heads, window=window)
    inputs = [make_value("x", ["n", "s", width]), make_value("mask", ["n", "s"])]
    inputs.append(make_value("chosen", ["n", "s"], I32))
    model = of_nodes([node], inputs, arrays, floats=["y"])
    x, mask = drawn(2, length, width), np.zeros((2, length), np.float32)
    mask[1, 6:] = -10000
    chosen = np.zeros((2, length), np.int32)
    chosen[:, 0] = chosen[1, 3] = 1
    place = np.arange(length)
    near = (np.abs(place[:, None] - place) <= window) | (chosen[:, None, None] == 1)

    def attended(side: str, seen: Any) -> Array:
        q, k, v = (
            part.reshape(2, length, heads, -1).transpose(0, 2, 1, 3)
            for part in np.split(x @ arrays[f"{side}w"] + arrays[f"{side}b"], 3, -1)
        )
        scores = q @ k.swapaxes(-1, -2) / 2 + mask[:, None, None]
        weights = np.exp(np.where(seen, scores, -np.inf))
        result = weights / weights.sum(-1, keepdims=True) @ v
        return result.transpose(0, 2, 1, 3).reshape(2, length, width)

    wanted = np.where(chosen[..., None] == 1, attended("all_", True), attended("", near))
    model.compare({"y": wanted}, 1e-5, x=x, mask=mask, chosen=chosen)
