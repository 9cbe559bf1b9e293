"""Builtin ops against LiteRT: the graph that Ingot reads, interpreted."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from ingot.compiler.frontends.tflite import lowerings  # noqa: F401 - it fills the table
from ingot.compiler.frontends.tflite.importer import import_tflite
from ingot.compiler.frontends.tflite.lowering import LOWERINGS
from ingot.hal.errors import CompileError
from tests.support.tflite_cases import CASES
from tests.support.tflite_cases.table import I32, F, X
from tests.support.tflite_models import Model, one_op, run_interpreted


@pytest.mark.parametrize("name", CASES)
def test_an_op_agrees_with_litert(name: str) -> None:
    for run in CASES[name]:
        run()


POSITIVE = np.abs(X) + np.float32(0.1)
STABLEHLO: dict[str, tuple[list[Any], str, dict[str, Any], Any]] = {
    "ADD": ([X, X], "", {}, X + X),
    "SUBTRACT": ([X, POSITIVE], "", {}, X - POSITIVE),
    "MULTIPLY": ([X, X], "", {}, X * X),
    "DIVIDE": ([X, POSITIVE], "", {}, X / POSITIVE),
    "MAXIMUM": ([X, -X], "", {}, np.abs(X)),
    "MINIMUM": ([X, -X], "", {}, -np.abs(X)),
    "POWER": ([POSITIVE, X], "", {}, POSITIVE**X),
    "REMAINDER": ([X, POSITIVE], "", {}, np.fmod(X, POSITIVE)),
    "ABS": ([X], "", {}, np.abs(X)),
    "COSINE": ([X], "", {}, np.cos(X)),
    "EXPONENTIAL": ([X], "", {}, np.exp(X)),
    "FLOOR": ([X], "", {}, np.floor(X)),
    "LOGISTIC": ([X], "", {}, 1 / (1 + np.exp(-X))),
    "NEGATE": ([X], "", {}, -X),
    "TANH": ([X], "", {}, np.tanh(X)),
    "CBRT": ([X], "", {}, np.cbrt(X)),
    "LOG": ([POSITIVE], "", {}, np.log(POSITIVE)),
    "RSQRT": ([POSITIVE], "", {}, 1 / np.sqrt(POSITIVE)),
    "AND": ([X > 0, X > 1], "", {}, X > 1),
    "OR": ([X > 0, X > 1], "", {}, X > 0),
    "SHIFT_LEFT": ([np.array([1, 3], I32), np.array([4, 1], I32)], "", {}, np.array([16, 6], I32)),
    "CLAMP": ([np.array(0, F), X, np.array(1, F)], "", {}, np.clip(X, 0, 1)),
    "SELECT": ([X > 0, X, -X], "", {}, np.abs(X)),
    "CONVERT": ([X], "", {}, X.astype(I32)),
    "COMPARE": ([X, -X], "StablehloCompareOptions", {"comparisonDirection": 5}, X < -X),
    "RESHAPE": ([X], "", {}, X.reshape(6, 4)),
    "TRANSPOSE": (
        [X], "StablehloTransposeOptions", {"permutation": [2, 0, 1]}, X.transpose(2, 0, 1)
    ),
    "CONCATENATE": (
        [X, X], "StablehloConcatenateOptions", {"dimension": 1}, np.concatenate([X, X], 1)
    ),
    "SLICE": (
        [X], "StablehloSliceOptions",
        {"startIndices": [0, 1, 0], "limitIndices": [2, 3, 4], "strides": [1, 1, 2]}, X[:, 1:, ::2],
    ),
    "DYNAMIC_SLICE": (
        [X, *(np.array(n, I32) for n in (1, 9, 0))], "StablehloDynamicSliceOptions",
        {"sliceSizes": [1, 2, 4]}, X[1:, 1:3],
    ),
    "DYNAMIC_UPDATE_SLICE": (
        [X, X[:1], *(np.array(n, I32) for n in (1, 0, 0))], "", {}, np.concatenate([X[:1]] * 2)
    ),
    "PAD": (
        [X, np.array(5, F)], "StablehloPadOptions",
        {"edgePaddingLow": [0, 0, 1], "edgePaddingHigh": [0] * 3, "interiorPadding": [0] * 3},
        np.pad(X, [(0, 0), (0, 0), (1, 0)], constant_values=5),
    ),
    "BROADCAST_IN_DIM": (
        [X[0, 0]], "StablehloBroadcastInDimOptions", {"broadcastDimensions": [1]},
        np.broadcast_to(X[0, 0], (3, 4)),
    ),
    "GATHER": (
        [X, np.array([[2, 1], [0, 9]], I32)], "StablehloGatherOptions",
        {"offsetDims": [1, 2], "collapsedSliceDims": [1], "startIndexMap": [1, 2],
         "indexVectorDim": 1, "sliceSizes": [2, 1, 3]},
        np.stack([X[:, 2, 1:], X[:, 0, 1:]]),
    ),
    "DOT_GENERAL": (
        [X, X], "StablehloDotGeneralOptions",
        {"lhsBatchingDimensions": [0], "rhsBatchingDimensions": [0],
         "lhsContractingDimensions": [2], "rhsContractingDimensions": [2]},
        X @ X.transpose(0, 2, 1),
    ),
    "IOTA": (
        [], "StablehloIotaOptions", {"iotaDimension": 1}, np.arange(12, dtype=I32).reshape(3, 4) % 4
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STABLEHLO)
def test_an_op_of_stablehlo_is_what_numpy_gives(name: str) -> None:
    """LiteRT has no kernels for most of them."""
    inputs, kind, options, wanted = STABLEHLO[name]
    outputs = [(wanted.dtype.name, wanted.shape)]
    model, arguments = one_op(f"STABLEHLO_{name}", inputs, outputs, kind, **options)
    ((got,),) = run_interpreted(model, arguments)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


FOLDED: dict[str, tuple[list[Any], str, dict[str, Any], str, Any]] = {
    "REDUCE": (
        [X, np.array(0.5, F)], "StablehloReduceOptions", {"dimensions": [0, 2]}, "MAXIMUM",
        np.maximum(X.max((0, 2)), np.float32(0.5)),
    ),
    "REDUCE_WINDOW": (
        [X[0], np.array(2, F)], "StablehloReduceWindowOptions",
        {"windowDimensions": [1, 2], "windowStrides": [1, 2], "padding": [0, 0, 0, 0],
         "baseDilations": [1, 1], "windowDilations": [1, 2]},
        "ADD", X[0, :, :1] + X[0, :, 2:3] + 2,
    ),
    "SCATTER": (
        [X[0], np.array([[2], [0], [2], [7]], I32), X[0, 0] + np.zeros((4, 1), F)],
        "StablehloScatterOptions",
        {"updateWindowDims": [1], "insertedWindowDims": [0], "scatterDimsToOperandDims": [0],
         "indexVectorDim": 1},
        "ADD", X[0] + X[0, 0] * np.array([[1], [0], [2]], F),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDED)
def test_an_op_with_a_body_is_what_numpy_gives(name: str) -> None:
    inputs, kind, options, combined, wanted = FOLDED[name]
    model = Model()
    g, body = model.main, model.graph("body")
    place = "updateComputationSubgraphIndex" if name == "SCATTER" else "bodySubgraphIndex"
    given = [g.tensor(each.dtype.name, each.shape) for each in inputs]
    result = g.tensor("float32", wanted.shape)
    g.op(f"STABLEHLO_{name}", given, [result], kind, **{**options, place: 1})
    g.ends(given, [result])
    a, b, made = (body.tensor("float32", ()) for _ in range(3))
    body.op(f"STABLEHLO_{combined}", [a, b], [made])
    body.ends([a, b], [made])
    ((got,),) = run_interpreted(bytes(model), inputs)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    body.op("STABLEHLO_NEGATE", [made], [made])
    with pytest.raises(CompileError, match=f"its body is {combined} NEGATE: use one op"):
        import_tflite(bytes(model))


def test_sums_of_stablehlo_are_of_what_codes_stand_for() -> None:
    model = Model()
    g, body = model.main, model.graph("body")
    x, first, y = (g.tensor("int8", shape, (0.5, 3)) for shape in ((2, 3), (), (2,)))
    g.op(
        "STABLEHLO_REDUCE", [x, first], [y], "StablehloReduceOptions",
        dimensions=[1], bodySubgraphIndex=1,
    )  # fmt: skip
    g.ends([x, first], [y])
    a, b, made = (body.tensor("int8", (), (0.5, 3)) for _ in range(3))
    body.op("STABLEHLO_ADD", [a, b], [made])
    body.ends([a, b], [made])
    codes = np.array([[3, 4, 5], [13, 3, 3]], np.int8)
    ((got,),) = run_interpreted(bytes(model), [codes, np.array(3, np.int8)])
    assert got.tolist() == [3 + 3, 3 + 10]


KEYS = np.array([[2, 0, 2, 1], [3, 3, 0, 3]], F)
PLACES = np.arange(8, dtype=I32).reshape(2, 4)


@pytest.mark.parametrize(
    ("comparator", "swapped", "axis"),
    [("STABLEHLO_COMPARE", False, 1), ("GREATER", True, 1), ("LESS", False, 0)],
)
def test_a_sort_is_stable_and_moves_all_operands(comparator: str, swapped: bool, axis: int) -> None:
    model, order = _sort(comparator, swapped, axis), np.argsort(KEYS, axis, stable=True)
    places, keys = run_interpreted(model, [PLACES, KEYS])[0]
    np.testing.assert_array_equal(keys, np.take_along_axis(KEYS, order, axis))
    np.testing.assert_array_equal(places, np.take_along_axis(PLACES, order, axis))


def test_a_sort_by_what_does_not_order_is_refused() -> None:
    with pytest.raises(CompileError, match="its comparator is LESS_EQUAL: use one op"):
        import_tflite(_sort("LESS_EQUAL", False, 1))


def _sort(comparator: str, swapped: bool, axis: int) -> bytes:
    """Sorts places and keys by rising keys."""
    model = Model()
    g, body = model.main, model.graph("body")
    given, results = (
        [g.tensor(each.dtype.name, each.shape) for each in (PLACES, KEYS)] for _ in range(2)
    )
    g.op(
        "STABLEHLO_SORT", given, results, "StablehloSortOptions",
        dimension=axis, comparatorSubgraphIndex=1,
    )  # fmt: skip
    g.ends(given, results)
    pairs = [body.tensor(type, ()) for type in (I32, I32, F, F)]
    compared, is_less = (pairs[:1:-1] if swapped else pairs[2:]), body.tensor("bool", ())
    if comparator == "STABLEHLO_COMPARE":
        body.op(comparator, compared, [is_less], "StablehloCompareOptions", comparisonDirection=5)
    else:
        body.op(comparator, compared, [is_less])
    body.ends(pairs, [is_less])
    return bytes(model)


CONVOLVED: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("NHWC HWIO NHWC", (2, 7, 6, 4), (3, 2, 2, 6), {"window_strides": [2, 1], "groups": 2}),
    ("NCHW OIHW NHWC", (4, 3, 5, 5), (6, 3, 2, 3), {"rhs_dilation": [2, 1], "batches": 2}),
    ("HCNW WOIH CNWH", (5, 3, 2, 4), (2, 4, 3, 3), {"lhs_dilation": [2, 1], "turned": [1, 0]}),
    ("NCW OIW NCW", (2, 3, 9), (5, 3, 4), {"padding": [3, -1]}),
]


@pytest.mark.parametrize(("layout", "x_shape", "w_shape", "options"), CONVOLVED)
def test_a_convolution_of_stablehlo_is_that_of_jax(
    layout: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    from jax import lax

    count = len(x_shape) - 2
    padding = options.get("padding", [1, 2, 0, 1][: 2 * count])
    strides = options.get("window_strides", [1] * count)
    dilations = [options.get(name, [1] * count) for name in ("lhs_dilation", "rhs_dilation")]
    turned = options.get("turned", [0] * count)
    groups = [options.get(name, 1) for name in ("groups", "batches")]
    x, w = (np.random.default_rng(1).normal(size=shape).astype(F) for shape in (x_shape, w_shape))
    layouts = layout.split()
    letters = re.sub("[IO]", "", layouts[1])
    flipped = [layouts[1].index(each) for each, flag in zip(letters, turned, strict=True) if flag]
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    w_turned, numbers = np.flip(w, flipped), (*dilations, tuple(layouts), *groups)
    wanted = np.asarray(lax.conv_general_dilated(x, w_turned, strides, pairs, *numbers))
    made: dict[str, Any] = {
        "windowStrides": strides, "padding": padding, "lhsDilation": dilations[0],
        "rhsDilation": dilations[1], "windowReversal": turned, "featureGroupCount": groups[0],
        "batchGroupCount": groups[1],
    }  # fmt: skip
    for prefix, axes, first, second in zip(
        ("input", "kernel", "output"), layouts, ("Batch:N", "InputFeature:I", "Batch:N"),
        ("Feature:C", "OutputFeature:O", "Feature:C"), strict=True,
    ):  # fmt: skip
        for name, letter in (first.split(":"), second.split(":")):
            made[f"{prefix}{name}Dimension"] = axes.index(letter)
        made[f"{prefix}SpatialDimensions"] = [axes.index(letter) for letter in letters]
    kind = "StablehloConvolutionOptions"
    model, arguments = one_op("STABLEHLO_CONVOLUTION", [x, w], [(F, wanted.shape)], kind, **made)
    ((got,),) = run_interpreted(model, arguments)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    made["inputBatchDimension"] = made["inputFeatureDimension"]
    model, _ = one_op("STABLEHLO_CONVOLUTION", [x, w], [(F, wanted.shape)], kind, **made)
    with pytest.raises(CompileError, match=r"the axes of its input, .*, are not each one once"):
        import_tflite(model)


def test_every_op_has_a_test() -> None:
    elsewhere = {
        "ASSIGN_VARIABLE", "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "CALL",
        "CALL_ONCE", "DENSIFY", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT",
        "HASHTABLE_SIZE", "IF", "LSTM", "MULTINOMIAL",
        "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "READ_VARIABLE", "RFFT2D", "RNN",
        "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_CONVOLUTION", "STABLEHLO_SORT",
        "STABLEHLO_WHILE", "SVDF",
        "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "VAR_HANDLE", "WHILE",
    }  # fmt: skip
    tested = {*CASES, *elsewhere, *(f"STABLEHLO_{name}" for name in (*STABLEHLO, *FOLDED))}
    assert {re.sub(r"^CUSTOM '(.*)'$", r"\1", name) for name in LOWERINGS} == tested


@pytest.mark.parametrize("index", [-3, 2])
def test_an_index_out_of_range_is_refused(index: int) -> None:
    bounds = [np.array(each, I32) for each in ([index], [0], [1])]
    model, _ = one_op(
        "STRIDED_SLICE", [X, *bounds], [(F, (3, 4))], "StridedSliceOptions", (1, 2, 3),
        shrinkAxisMask=1,
    )  # fmt: skip
    with pytest.raises(CompileError, match=f"its index {index} of axis 0 .* expected -2 to 1"):
        import_tflite(model)


WRONG: list[tuple[str, list[Any], str, dict[str, Any], str]] = [
    ("FAKE_QUANT", [X], "FakeQuantOptions", {"numBits": 2**31 - 1, "max": 1.0}, "num_bits is 2147"),
    (
        "GATHER", [X, np.zeros((2, 2), I32)], "GatherOptions", {"axis": 1, "batchDims": 2**31 - 1},
        "batch_dims is 2147483647, expected 0 to 1",
    ),
    ("GATHER_ND", [X, np.zeros((2, 4), I32)], "GatherNdOptions", {}, "have 4 numbers each"),
    (
        "STRIDED_SLICE", [X, *[np.ones(4, I32)] * 3], "StridedSliceOptions", {},
        "4 entries for axes and 0 ellipses, expected at most 3 and 1",
    ),
    (
        "STRIDED_SLICE", [X, *[np.ones(2, I32)] * 3], "StridedSliceOptions", {"ellipsisMask": 3},
        "0 entries for axes and 2 ellipses",
    ),
    (
        "STRIDED_SLICE", [X, np.ones(1, I32), *[np.ones(2, I32)] * 2], "StridedSliceOptions", {},
        "1 beginnings, 2 ends and 2 strides",
    ),
    (
        "STRIDED_SLICE", [X, *[np.zeros(1, I32)] * 2, np.full(1, -1, I32)], "StridedSliceOptions",
        {"shrinkAxisMask": 1}, "the stride of axis 0 is -1, expected 1 or more where one index",
    ),
    ("SUM", [X.astype("complex64"), np.zeros(1, I32)], "ReducerOptions", {}, "complex numbers"),
    ("ADD", [X.astype("complex64"), X], "AddOptions", {}, "its numbers are c64 and f32, expected"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "kind", "options", "message"), WRONG)
def test_what_an_op_does_not_take_is_named(
    name: str, inputs: list[Any], kind: str, options: dict[str, Any], message: str
) -> None:
    constants = tuple(range(1, len(inputs)))
    model, _ = one_op(name, inputs, [(F, (3, 4))], kind, constants, **options)
    with pytest.raises(CompileError, match=re.escape(message)):
        import_tflite(model)


SPECTRUM = {"window_size": 50, "stride": 55}
MFCC = {
    "upper_frequency_limit": 4000.0, "lower_frequency_limit": 20.0,
    "filterbank_channel_count": 40, "dct_coefficient_count": 13,
}  # fmt: skip
MEANINGLESS: list[tuple[dict[str, Any], str]] = [
    (SPECTRUM | {"window_size": 1}, "window_size is 1"),
    (SPECTRUM | {"window_size": 1 << 40}, "window_size is 1099511627776"),
    (SPECTRUM | {"stride": 2.5}, "stride is 2.5"),
    ({"stride": 55}, "window_size is None"),
    (MFCC | {"dct_coefficient_count": -1}, "dct_coefficient_count is -1, expected 1 to 40"),
    (MFCC | {"dct_coefficient_count": 41}, "dct_coefficient_count is 41"),
    (MFCC | {"filterbank_channel_count": "many"}, "filterbank_channel_count is 'many'"),
    (MFCC | {"upper_frequency_limit": 20.0}, "do not rise"),
    (MFCC | {"lower_frequency_limit": float("nan")}, "do not rise"),
]


@pytest.mark.parametrize(("options", "message"), MEANINGLESS)
def test_options_of_no_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    if "stride" in options:
        model, _ = one_op("AudioSpectrogram", [np.zeros((500, 1), F)], [(F, (1, 9, 33))], **options)
    else:
        inputs = [np.ones((1, 5, 257), F), np.array([16000], I32)]
        model, _ = one_op("Mfcc", inputs, [(F, (1, 5, 13))], "", (1,), **options)
    with pytest.raises(CompileError, match=re.escape(message)):
        import_tflite(model)
