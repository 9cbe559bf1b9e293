"""Caches of GroupQueryAttention that hold codes, or only the newest rows, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ingot.hal.errors import CompileError, InvalidArgument
from tests.support.devices import load_best
from tests.support.onnx_cases import in_onnxruntime
from tests.support.onnx_contrib import Read, drawn, node_of, of_nodes
from tests.support.onnx_models import make_value
from tests.support.results import assert_same

Array = np.ndarray[Any, Any]
HEADS, GROUPS, SIZE = 4, 2, 16
NAMES = ["q", "k", "v", "pk", "pv", "last", "total"]


def read(extra: list[str], arrays: dict[str, Any], width: int, element: int, **named: Any) -> Read:
    node = node_of(
        "GroupQueryAttention", [*NAMES, *extra], ["y", "keys", "values"], num_heads=HEADS,
        kv_num_heads=GROUPS, **named,
    )  # fmt: skip
    widths = {"q": HEADS * SIZE, "k": GROUPS * SIZE, "v": GROUPS * SIZE}
    inputs = [make_value(name, ["b", "s", size]) for name, size in widths.items()]
    inputs += [make_value(name, ["b", GROUPS, "p", width], element) for name in ("pk", "pv")]
    inputs += [make_value("last", ["b"], TensorProto.INT32)]
    inputs += [make_value("total", [1], TensorProto.INT32)]
    return of_nodes([node], inputs, arrays)


def tokens(batch: int, count: int, total: int) -> dict[str, Array]:
    widths = {"q": HEADS * SIZE, "k": GROUPS * SIZE, "v": GROUPS * SIZE}
    given = {
        name: drawn(batch, count, width, seed=total + place)
        for place, (name, width) in enumerate(widths.items())
    }
    last = np.full(batch, total - 1, np.int32)
    return given | {"last": last, "total": np.array([total], np.int32)}


@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("bits", [8, 4])
def test_caches_of_codes(kind: str, bits: int) -> None:
    """What queries see are the codes, of new tokens too. Codes of 4 bits saturate."""
    shape = (1,) if kind == "PER_TENSOR" else (1, GROUPS, 1, SIZE)
    arrays = {x: np.abs(drawn(*shape, seed=place)) * 0.1 + 0.1 for place, x in enumerate("ab")}
    element = TensorProto.INT8 if bits == 8 else TensorProto.UINT8
    model = read(
        ["", "", "", "", "", "a", "b"], arrays, SIZE * bits // 8, element, k_quant_type=kind,
        v_quant_type=kind, kv_cache_bit_width=bits,
    )  # fmt: skip
    dtype = np.int8 if bits == 8 else np.uint8
    caches = [np.zeros((2, GROUPS, 0, SIZE * bits // 8), dtype)] * 2
    total = 0
    for count in (3, 1, 1):
        total += count
        given = tokens(2, count, total) | dict(zip(("pk", "pv"), caches, strict=True))
        model.check(1e-5, **given)
        _, *caches = model.results(**given).values()


@pytest.mark.parametrize(("room", "window"), [(4, 4), (7, 4), (5, 1)])
def test_caches_of_the_newest_rows(room: int, window: int) -> None:
    """Prompts longer than the cache, and tokens behind them, by and beyond the room."""
    model = read([], {}, SIZE, TensorProto.FLOAT, local_window_size=window, sliding_window_cache=1)
    for prompt in (2, 9):
        caches = [np.zeros((1, GROUPS, room, SIZE), np.float32)] * 2
        total = 0
        for count in (prompt, 1, 1, 3, 1, 1, 1):
            total += count
            given = tokens(1, count, total) | dict(zip(("pk", "pv"), caches, strict=True))
            check_rows(model, given, total, room, window)
            _, *caches = model.results(**given).values()


def check_rows(model: Read, given: dict[str, Array], total: int, room: int, window: int) -> None:
    """Rows behind those that are held are unspecified."""
    step = room - window + 1
    held = total if total <= room else total - step * -((room - total) // step)
    wanted = in_onnxruntime(model.proto)(given)
    found = list(model.results(**given).values())
    assert_same(found[0], wanted[0], 1e-5, 1e-5)
    for mine, other in zip(found[1:], wanted[1:], strict=True):
        assert_same(mine[:, :, :held], other[:, :, :held])


def test_caches_that_are_shorter_than_the_window() -> None:
    model = read([], {}, SIZE, TensorProto.FLOAT, local_window_size=4, sliding_window_cache=1)
    given = tokens(1, 2, 2) | dict.fromkeys(("pk", "pv"), np.zeros((1, GROUPS, 3, SIZE), "f"))
    with pytest.raises(InvalidArgument, match="p is 3, expected at least 4"):
        load_best(model.module)(*(given[x] for x in model.inputs))


def test_caches_of_several_sequences_when_compiled() -> None:
    """Each has dropped other rows; caches of codes drop theirs, too."""
    arrays = {"a": np.array([0.2], np.float32)}
    model = read(
        ["", "", "", "", "", "a", "a"], arrays, SIZE, TensorProto.INT8,
        k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR", kv_cache_bit_width=8,
        local_window_size=3, sliding_window_cache=1,
    )  # fmt: skip
    compiled = load_best(model.module)
    caches = np.random.default_rng(0).integers(-9, 9, (2, 3, GROUPS, 5, SIZE), np.int8)
    given = tokens(3, 1, 8) | {"pk": caches[0], "pv": caches[1]}
    given["last"] = np.array([2, 5, 7], np.int32)
    wanted = in_onnxruntime(model.proto)(given)
    found = [np.asarray(each) for each in compiled(*(given[x] for x in model.inputs))]
    assert_same(found[0], wanted[0], 1e-5, 1e-5)
    for place, held in enumerate((3, 3, 5)):
        for mine, other in zip(found[1:], wanted[1:], strict=True):
            assert_same(mine[place, :, :held], other[place, :, :held])


def test_caches_that_are_refused() -> None:
    with pytest.raises(CompileError, match="its k_quant_type is 'NONE' with a cache i8"):
        read([], {}, SIZE, TensorProto.INT8)
    with pytest.raises(
        CompileError, match=r"of p rows needs a causal window .* local_window_size is -1"
    ):
        read([], {}, SIZE, TensorProto.FLOAT, sliding_window_cache=1)
