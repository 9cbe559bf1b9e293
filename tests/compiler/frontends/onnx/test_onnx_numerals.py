"""Cast between strings and numbers: against Python and NumPy, which read and write exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from tests.support.devices import load_best
from tests.support.drawn import examples
from tests.support.node_tests import Run, interpreted
from tests.support.onnx_models import in_session, make_value
from tests.support.onnx_sequences import Node
from tests.support.results import assert_same

TEXT = TensorProto.STRING


def _model(casts: list[tuple[int, int]]) -> onnx.ModelProto:
    """A cast each from an input of the first type to the second one."""
    nodes = [Node("Cast", [f"x{i}"], [f"y{i}"], to=to) for i, (_, to) in enumerate(casts)]
    inputs = [make_value(f"x{i}", [f"n{i}"], given) for i, (given, _) in enumerate(casts)]
    outputs = [make_value(f"y{i}", [f"n{i}"], to) for i, (_, to) in enumerate(casts)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture(scope="module")
def floats() -> Run:
    return interpreted(import_onnx(_model([(TEXT, TensorProto.DOUBLE), (TEXT, TensorProto.FLOAT)])))


_digits = st.text("0123456789", min_size=1, max_size=17)
_written = st.one_of(
    st.floats().map(repr),
    st.floats(width=32).map(repr),
    st.builds("{}.{}e{}".format, _digits, _digits, st.integers(-345, 310)),
    st.builds("{}{}".format, st.sampled_from(["-", "+", " "]), _digits),
    st.sampled_from(["INF", "-inf", "+Infinity", "NaN", "-nan", " 1. ", ".5", "-0", "0e999999999"]),
    # between two floats, and next to it
    st.sampled_from(["16777217", "16777219", "16777217.00000001", "9007199254740993", "1e23"]),
    st.sampled_from(["2.4703282292062328e-324", "7.006492321624085e-46", "3.4028235677973366e38"]),
    st.sampled_from(["0." + "0" * 30 + "1" + "0" * 40, "1" * 40, "1" + "0" * 25 + "e-25"]),
)


def _same(got: Any, wanted: np.ndarray[Any, Any]) -> bool:
    got = np.asarray(got)
    is_nan = np.isnan(wanted)
    return bool((np.isnan(got) == is_nan).all()) and np.array_equal(
        got[~is_nan].view(f"u{got.itemsize}"), wanted[~is_nan].view(f"u{got.itemsize}")
    )


@pytest.mark.slow
@settings(max_examples=10, deadline=None, derandomize=True)
@given(texts=st.lists(_written, min_size=8, max_size=40))
def test_strings_are_read_as_the_nearest_floats(floats: Run, texts: list[str]) -> None:
    x = np.array(texts, object)
    doubles, _ = floats([x, x])
    assert _same(doubles, np.array([float(each) for each in texts])), texts


FLOATS = {
    "1.0000000596046447754": "0x1.000002p+0",  # above the middle by less than f64 can tell
    "1.0000000596046447753": "0x1p+0",
    "16777217": "0x1p+24",
    "16777219": "0x1.000004p+24",
    "3.4028235677973367e38": "inf",
    "3.4028235677973366e38": "0x1.fffffep+127",
    "7.006492321624085e-46": "0x0p+0",
    "7.006492321624086e-46": "0x1p-149",
    "1e39": "inf",
    "-0.1": "-0x1.99999ap-4",
}


def test_floats_of_32_bits_are_rounded_once(floats: Run) -> None:
    x = np.array(list(FLOATS), object)
    _, singles = floats([x, x])
    got = np.asarray(singles).tolist()
    assert got == [float.fromhex(each) for each in FLOATS.values()]


def test_what_is_no_number_is_refused(floats: Run) -> None:
    one = np.array(["1"], object)
    middle = "1.000000059604644775390625"  # which more digits may move up
    for text in ("", "a", "1e", ".", "1_0", "0x1", "1 2", "--1", "inf1", middle):
        with pytest.raises(ingot.InvalidArgument, match="are numbers of f32"):
            floats([one, np.array(["2", text], object)])


def test_integers_are_read_and_written() -> None:
    types = [TensorProto.INT64, TensorProto.UINT64, TensorProto.INT8, TensorProto.BOOL]
    casts = [*((TEXT, each) for each in types), *((each, TEXT) for each in types)]
    run = interpreted(import_onnx(_model(casts)))
    columns = [
        [0, -1, 10, 2**63 - 1, -(2**63)],
        [0, 9, 10**19, 2**64 - 1],
        [-128, 127, -10, 0],
        [True, False],
    ]
    arrays = [
        np.array(column, helper.tensor_dtype_to_np_dtype(each))
        for column, each in zip(columns, types, strict=True)
    ]
    texts = [np.array([str(int(each)) for each in column], object) for column in columns]
    made = run([*texts, *arrays])
    for got, wanted in zip(made[:4], arrays, strict=True):
        assert np.asarray(got).dtype == wanted.dtype
        assert np.asarray(got).tolist() == wanted.tolist()
    assert [each.tolist() for each in made[4:]] == [each.tolist() for each in texts]
    spaced = np.array([" +7\n", "-0", "00012"], object)
    assert np.asarray(run([spaced, *texts[1:], *arrays])[0]).tolist() == [7, 0, 12]
    for place, text in [(0, "9223372036854775808"), (1, "18446744073709551616"), (2, "128"),
                        (1, "-1"), (0, "1.5"), (0, ""), (3, "true")]:  # fmt: skip
        given = [np.array([text], object) if index == place else x for index, x in enumerate(texts)]
        with pytest.raises(ingot.InvalidArgument, match="strings are numbers"):
            run([*given, *arrays])
    nothing = [np.empty(0, each.dtype) for each in (*texts, *arrays)]
    assert [np.asarray(each).size for each in run(nothing)] == [0] * 8


def _first_digits(x: Any) -> str:
    """As C writes it with "%.8g", and onnxruntime what is no number."""
    text = f"{float(x):.8g}"
    return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(text, text)


@pytest.fixture(scope="module")
def written() -> Run:
    floats = [TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT16]
    return interpreted(import_onnx(_model([(each, TEXT) for each in floats])))


def test_floats_are_written_as_onnxruntime_writes_them(written: Run) -> None:
    plain = [0.0, -0.0, 0.1, -1e-5, 1e-4, 12345.678, 1e7, 99999999.5, 1e8, np.nan, np.inf, -np.inf]
    ties = [123456785.0, 123456775.0, 12345678.5, 1.00000005, 2.5, 1.5e16, 1e100, -1e-100]
    ends = [5e-324, 1.7976931348623157e308, 1e-45, 3.4e38]
    with np.errstate(over="ignore"):
        arrays = [np.array([*plain, *ties, *ends]).astype(each) for each in ("f8", "f4", "f2")]
    made = written(arrays)
    model = _model([(each, TEXT) for each in (TensorProto.DOUBLE, TensorProto.FLOAT)])
    theirs = in_session(model, {f"x{place}": each for place, each in enumerate(arrays[:2])})
    for place, (array, got) in enumerate(zip(arrays, made, strict=True)):
        assert got.tolist() == list(map(_first_digits, array))
        assert place == 2 or got.tolist() == theirs[place].tolist()
    assert [each.shape for each in written([each[:0] for each in arrays])] == [(0,)] * 3


@pytest.mark.slow
@examples(10)
@given(
    bits=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40), scale=st.integers(-12, 12)
)
def test_any_floats_are_written_with_their_first_digits(
    written: Run, bits: list[int], scale: int
) -> None:
    words = np.array(bits, np.uint64)
    near = (words % 10**9).astype(np.float64) / 2 * 10.0**scale  # often between two texts
    doubles = np.concatenate([words.view(np.float64), near])
    floats = words.astype(np.uint32).view(np.float32)
    made = written([doubles, floats, floats[:0].astype(np.float16)])
    for array, got in zip((doubles, floats), made, strict=False):
        assert got.tolist() == list(map(_first_digits, array))


@pytest.mark.slow
def test_compiled() -> None:
    casts = [(TEXT, TensorProto.DOUBLE), (TensorProto.INT64, TEXT), (TensorProto.FLOAT, TEXT)]
    model = load_best(_model(casts))
    numbers = np.array([-0.15, 1e-7, np.nan], np.float32)
    doubles, texts, floats = model(["1e23", "-inf", " .1\n"], np.array([-120, 0]), numbers)
    assert np.asarray(doubles).tolist() == [1e23, -np.inf, 0.1]
    assert texts.tolist() == ["-120", "0"]
    assert floats.tolist() == ["-0.15000001", "1e-07", "NaN"]
    doubles, texts, floats = model(["1"], np.array([1]), numbers[:0])
    assert floats.shape == (0,)


def test_other_casts_are_refused() -> None:
    what = "casts strings to f8e5m2: use integers of 8 to 64 bits or floats of 16 to 64"
    with pytest.raises(ingot.CompileError, match=what):
        import_onnx(_model([(TEXT, TensorProto.FLOAT8E5M2)]))


def test_strings_become_floats_of_16_bits() -> None:
    model = _model([(TEXT, TensorProto.FLOAT16)])
    texts = ["0.1", "-65504", "1e-7", "1e9", "NaN", "1.00048828125000001"]
    (found,) = interpreted(import_onnx(model))([np.array(texts, object)])
    assert_same(found, in_session(model, {"x0": np.array(texts, object)})[0])
