"""Ops on images, signals and quantised tensors, compiled, against onnxruntime and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.devices import load_best
from tests.support.onnx_cases import Pair
from tests.support.onnx_models import build_model, make_value

Node = helper.make_node
Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pair_of(
    nodes: Any, inputs: Any, outputs: Any = None, opset: int = 20, **constants: Any
) -> Pair:
    names = outputs or [name for node in nodes for name in node.output]
    return Pair(build_model(nodes, inputs, names, constants, opset=opset))


def sampling(modes: Any) -> Any:
    """A model that samples by the modes, with every padding, corners aligned by turns."""
    nodes = [
        Node(
            "GridSample",
            ["x", "g"],
            [f"{mode}_{padding}"],
            mode=mode,
            padding_mode=padding,
            align_corners=(first + second) % 2,
        )
        for first, mode in enumerate(modes)
        for second, padding in enumerate(("zeros", "border", "reflection"))
    ]
    inputs = [make_value("x", ["n", 3, "h", "w"]), make_value("g", ["n", "p", "q", 2])]
    return build_model(nodes, inputs, [node.output[0] for node in nodes])


def grid(n: int) -> Array:
    return np.random.default_rng(1).uniform(-1.6, 1.6, (n, 4, 6, 2)).astype(np.float32)


@pytest.mark.slow
def test_grids_are_sampled() -> None:
    pair = Pair(sampling(["linear", "nearest"]))
    for n, h, w in ((2, 5, 7), (1, 2, 3)):
        pair.check(5e-6, x=numbers(n, 3, h, w), g=grid(n))


def test_many_channels_are_sampled_as_rows() -> None:
    node = Node("GridSample", ["x", "g"], ["y"])
    places = grid(2)
    inputs = [make_value("x", ["n", 9, 2, 3]), make_value("g", ["n", *places.shape[1:]])]
    pair_of([node], inputs).check(5e-6, x=numbers(2, 9, 2, 3), g=places)


@pytest.mark.slow
def test_grids_are_sampled_by_cubic_convolution() -> None:
    pair = Pair(sampling(["cubic"]))
    pair.check(1e-4, x=numbers(1, 3, 3, 4), g=grid(1)[:, :2])


def test_regions_are_pooled() -> None:
    nodes = [
        Node(
            "RoiAlign",
            ["x", "r", "i"],
            [f"align_{mode}_{place}_{ratio}"],
            mode=mode,
            coordinate_transformation_mode=place,
            output_height=3,
            output_width=2,
            sampling_ratio=ratio,
            spatial_scale=0.5,
        )
        for mode, ratio in (("avg", 2), ("max", 2), ("avg", 0))
        for place in ("half_pixel", "output_half_pixel")
    ]
    inputs = [
        make_value("x", ["n", 19, "h", "w"]),
        make_value("r", ["k", 4]),
        make_value("i", ["k"], TensorProto.INT64),
    ]
    pair = pair_of(nodes, inputs)
    regions = np.array([[0, 0, 9, 9], [-3, 2, 20, 12], [4, 4, 5, 5]], np.float32)
    pair.check(x=numbers(2, 19, 8, 9), r=regions, i=np.array([0, 1, 1]))

    pool = [Node("MaxRoiPool", ["x", "q"], ["pool"], pooled_shape=[3, 2], spatial_scale=0.5)]
    pair = pair_of(pool, [make_value("x", ["n", 3, "h", "w"]), make_value("q", ["k", 5])])
    boxes = np.concatenate([np.array([[0], [1], [1]], np.float32), regions], 1)
    pair.check(x=numbers(2, 3, 8, 9), q=boxes)


def test_windows_with_places_norms_and_sums() -> None:
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]}
    nodes = [
        Node("MaxPool", ["x"], ["greatest", "places"], **window),
        Node("MaxPool", ["x"], ["g2", "by_columns"], storage_order=1, **window),
        Node("LpPool", ["x"], ["lp3"], p=3, **window),
        Node("LpPool", ["x"], ["lp2"], **window),
        Node("GlobalLpPool", ["x"], ["global"], p=1),
        Node("LRN", ["x"], ["lrn"], size=5, alpha=0.1, beta=0.6, bias=1.5),
    ]
    pair = pair_of(nodes, [make_value("x", ["n", 5, "h", "w"])])
    for size in ((1, 5, 4, 3), (2, 5, 7, 6)):
        pair.check(x=numbers(*size))


def test_what_windows_took_goes_back() -> None:
    nodes = [
        Node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2]),
        Node("MaxUnpool", ["y", "i"], ["back"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    pair = pair_of(nodes, [make_value("x", [2, 3, 4, 6])], ["back"])
    pair.check(x=numbers(2, 3, 4, 6))
    laid = [
        Node(
            "Col2Im",
            ["c", "s", "b"],
            ["image"],
            strides=[2, 1],
            dilations=[1, 2],
            pads=[1, 0, 0, 2],
        )
    ]
    shape, block = np.array([5, 6]), np.array([2, 3])
    pair = pair_of(laid, [make_value("c", ["n", 12, 12])], s=shape, b=block)
    pair.check(c=numbers(2, 12, 12))


def test_sequences_are_reversed_and_written() -> None:
    nodes = [
        Node("ReverseSequence", ["x", "l"], ["rows"], time_axis=1, batch_axis=0),
        Node("ReverseSequence", ["z", "l"], ["columns"], time_axis=0, batch_axis=1),
    ]
    inputs = [
        make_value("x", ["n", "t", 2]),
        make_value("z", ["t", "n", 2]),
        make_value("l", ["n"], TensorProto.INT64),
    ]
    lengths = np.array([1, 4, 2])
    pair_of(nodes, inputs).check(x=numbers(3, 4, 2), z=numbers(4, 3, 2), l=lengths)


@pytest.mark.parametrize("length", [5, 64, 96, 131, 360])
def test_fourier_transforms_of_any_length(length: int) -> None:
    nodes = [
        Node("DFT", ["x", "", "a"], ["all"]),
        Node("DFT", ["x", "", "a"], ["half"], onesided=1),
        Node("DFT", ["all", "", "a"], ["back"], inverse=1),
    ]
    inputs = [make_value("x", ["n", length, 1])]
    model = build_model(nodes, inputs, ["all", "half", "back"], {"a": np.array(1)})
    x = numbers(3, length, 1)
    whole, half, back = (np.asarray(y) for y in load_best(model)(x))
    wanted = np.fft.fft(x[..., 0].astype(np.float64), axis=1)
    pairs = np.stack([wanted.real, wanted.imag], -1)
    np.testing.assert_allclose(whole, pairs, atol=3e-5)
    np.testing.assert_allclose(half, pairs[:, : length // 2 + 1], atol=3e-5)
    np.testing.assert_allclose(back[..., 0], x[..., 0], atol=2e-6)


def test_determinants() -> None:
    model = build_model([Node("Det", ["x"], ["y"])], [make_value("x", ["n", 7, 7])], ["y"])
    x = numbers(4, 7, 7)
    x[1, 3] = x[1, 2]
    x[2, 0, 0] = 0
    (found,) = (np.asarray(load_best(model)(x)),)
    np.testing.assert_allclose(found, np.linalg.det(x.astype(np.float64)), rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 5)]),
        ("bii->bi", [(2, 3, 3)]),
        ("ii", [(4, 4)]),
        ("i,j,k->kji", [(2,), (3,), (4,)]),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
        ("...a,...a", [(3, 4), (3, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("iji,i->j", [(3, 2, 3), (3,)]),
        ("a...b->b...", [(2, 3, 4, 5)]),
    ],
)
def test_einsum_forms(equation: str, shapes: list[tuple[int, ...]]) -> None:
    names = [f"x{place}" for place in range(len(shapes))]
    inputs = [make_value(n, list(s)) for n, s in zip(names, shapes, strict=True)]
    model = build_model([Node("Einsum", names, ["y"], equation=equation)], inputs, ["y"])
    arrays = [numbers(*shape, seed=place) for place, shape in enumerate(shapes)]
    found = np.asarray(load_best(model)(*arrays))
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), rtol=1e-5, atol=1e-6)


def test_quantised_products_with_scales_per_channel() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (1, 2, 6, 5)).astype(np.uint8)
    w = rng.integers(-100, 100, (3, 2, 3, 3)).astype(np.int8)
    a, b = (
        rng.integers(-100, 100, (2, 4, 8)).astype(np.int8),
        rng.integers(0, 9, (8, 3)).astype(np.int8),
    )
    constants = {
        "w": w,
        "ws": np.array([0.01, 0.02, 0.005], np.float32),
        "wz": np.zeros(3, np.int8),
        "s": np.array(0.03, np.float32),
        "xz": np.array(120, np.uint8),
        "ys": np.array(1.5, np.float32),
        "yz": np.array(100, np.uint8),
        "bias": np.array([100, -2000, 5], np.int32),
        "b": b,
        "z": np.array(3, np.int8),
        "bs": np.array([0.1, 0.2, 0.05], np.float32),
        "bz": np.zeros(3, np.int8),
    }
    names = ["x", "s", "xz", "w", "ws", "wz", "ys", "yz", "bias"]
    nodes = [
        Node("QLinearConv", names, ["conv"], pads=[1, 1, 0, 0]),
        Node("QLinearMatMul", ["a", "s", "z", "b", "bs", "bz", "s", "z"], ["product"]),
        Node("MatMulInteger", ["a", "b", "z"], ["sums"]),
    ]
    inputs = [
        make_value("x", ["n", 2, "h", "w"], TensorProto.UINT8),
        make_value("a", ["n2", 4, 8], TensorProto.INT8),
    ]
    model = build_model(nodes, inputs, ["conv", "product", "sums"], constants)
    conv, product, sums = (np.asarray(y) for y in load_best(model)(x, a))
    wide = np.pad(x.astype(np.int64) - 120, ((0, 0), (0, 0), (1, 0), (1, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    total = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64))
    total = total + constants["bias"][:, None, None]
    scale = np.float32(0.03) * constants["ws"] / np.float32(1.5)
    wanted = np.clip(np.rint(total * scale[:, None, None]) + 100, 0, 255)
    assert np.abs(conv.astype(int) - wanted).max() <= 1
    assert (conv == wanted).mean() > 0.98
    exact = (a.astype(np.int64) - 3) @ b.astype(np.int64)
    np.testing.assert_array_equal(sums, exact)
    wanted = np.clip(np.rint(exact * constants["bs"]) + 3, -128, 127)
    assert np.abs(product.astype(int) - wanted).max() <= 1
