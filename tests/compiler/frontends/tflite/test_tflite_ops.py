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


def test_every_op_has_a_test() -> None:
    elsewhere = {
        "ASSIGN_VARIABLE", "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "CALL",
        "CALL_ONCE", "COMPLEX_ABS", "DENSIFY", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT",
        "HASHTABLE_SIZE", "IF", "IMAG", "LSTM", "MULTINOMIAL",
        "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "READ_VARIABLE", "REAL", "RFFT2D", "RNN",
        "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "SVDF",
        "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "VAR_HANDLE", "WHILE",
    }  # fmt: skip
    tested = {*CASES, *elsewhere, *(f"STABLEHLO_{name}" for name in (*STABLEHLO, *FOLDED))}
    assert {re.sub(r"^CUSTOM '(.*)'$", r"\1", name) for name in LOWERINGS} == tested


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
