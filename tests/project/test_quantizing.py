"""`ingot quantize`: accuracy, what stays float and why, refusals, reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import QuantizedModule
from ingot.command import main
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.quantizing.deciding import Decision
from ingot.quantizing.measuring import Measured
from ingot.quantizing.page import make_page
from ingot.quantizing.report import LayerReport, QuantizationReport
from ingot.quantizing.work import _if_faster
from tests.models import graphs
from tests.support.browser import Browser, find_chromium
from tests.support.devices import best_variant, load_best

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples" / "digits"
HOSTILE = "\x1b[2J</title><script>alert(1)</script>\n\u202e"
RANDOM = np.random.default_rng(5)


def matrix(*shape: int) -> str:
    numbers = RANDOM.standard_normal(shape).astype(np.float32)
    return f"dense<f32[{','.join(map(str, shape))}] {numbers.reshape(-1).tolist()}>"


LAYERS = f"""
module {{}} {{
  func @main(%x: f32[b,48] "x") -> (f32[b,10] "y") symbols {{b in [1, none]}} {{
    %0 = constant() {{value={matrix(48, 32)}}} : f32[48,32]
    %1 = dot_general(%x, %0) {{lhs_contract=[1], rhs_contract=[0]}} : f32[b,32] loc("first")
    %2 = constant() {{value={matrix(10, 32)}}} : f32[10,32]
    %3 = dot_general(%1, %2) {{lhs_contract=[1], rhs_contract=[1]}} : f32[b,10] loc("second")
    return(%3)
  }}
}}
"""
GIVEN = """
module {} {
  func @main(%x: f32[2,4] "x") -> (f32[2,3] "y") {
    %0 = parameter() {scope="", key="w", dtype=f32, shape=[4,3]} : f32[4,3]
    %1 = dot_general(%x, %0) {lhs_contract=[1], rhs_contract=[0]} : f32[2,3] loc("only")
    return(%1)
  }
}
"""
DATA = RANDOM.standard_normal((64, 48)).astype(np.float32)


def quantized(source: Any = LAYERS, **options: Any) -> QuantizedModule:
    return ingot.quantize(source, **{"measure": False, "variants": [best_variant()], **options})


def relative(module: Any, source: Any, x: Any) -> float:
    """The relative l2 error of the first result."""
    found, wanted = (
        np.asarray(ingot.load(each)(x))
        for each in (module, ingot.compile(source, variants=[best_variant()]))
    )
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def schemes(report: QuantizationReport) -> dict[str, str]:
    return {each.name: each.scheme for each in report.layers}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, 0.01),
        ({"weights": "int4"}, 0.12),
        ({"weights": "int4", "compensate": True, "data": DATA}, 0.12),
        ({"weights": "int3"}, 0.25),
        ({"weights": "int2"}, 0.6),
        ({"activations": "int8", "data": DATA}, 0.02),
        ({"activations": "int8", "data": DATA, "method": "minmax"}, 0.02),
        ({"activations": "int8", "data": DATA, "method": "entropy"}, 0.05),
        ({"activations": "dynamic"}, 0.02),
    ],
)
def test_results_are_close_and_the_report_says_how_close(
    options: dict[str, Any], error: float
) -> None:
    module = quantized(dims={"b": 16}, **options)
    report = module.quantization
    assert report.quantized == 2
    found = relative(module, LAYERS, DATA)
    assert 0 < found < error
    assert report.samples == (2 if "data" in options else 0)
    (result,) = report.results
    assert result.name == "y"
    assert result.error == pytest.approx(found, rel=0.01 if report.samples else 1.0)
    assert result.cosine == pytest.approx(1 - result.error**2 / 2, abs=0.02)
    bits = {"int8": 8, "int4": 4, "int3": 3, "int2": 2}[options.get("weights", "int8")]
    for each in report.layers:
        assert bits < each.bits < bits + 2
        assert each.length_after == pytest.approx(each.length_before * each.bits / 32)
        assert each.error is not None
        assert 0 < each.error < error
        assert each.is_measured == ("data" in options)
    assert report.length_after == len(module)
    again = quantized(dims={"b": 16}, **options)
    assert bytes(again) == bytes(module)  # it depends on its source and data alone


@pytest.mark.slow
def test_layers_stay_float_for_a_reason() -> None:
    kept = quantized(keep=["fir*"]).quantization
    assert schemes(kept) == {"first": "float", "second": "int8"}
    assert [each.reason for each in kept.layers] == ["kept as asked", ""]
    errors = [each.error or 0.0 for each in quantized(weights="int4").quantization.layers]
    between = sum(errors) / 2
    limited = quantized(weights="int4", max_error=between).quantization
    for each, error in zip(limited.layers, errors, strict=True):
        assert each.is_quantized == (error < between)
        assert each.error == error
        assert each.is_quantized or f"more than {between:.2g}" in each.reason
    assert limited.quantized == 1
    head, _, rest = LAYERS.partition("%2 = constant()")
    rest = (
        '%2 = parameter() {scope="", key="w", dtype=f32, shape=[10,32]}'
        + rest[rest.index("} :") + 1 :]
    )
    report = quantized(head + rest).quantization
    assert schemes(report) == {"first": "int8", "second": "float"}
    assert "given when the module is loaded" in report.layers[1].reason
    assert not report.results
    with pytest.raises(CompileError, match="all are given when the module is loaded"):
        quantized(GIVEN)


def test_data_of_zeros_shows_neither_ranges_nor_errors() -> None:
    zeros = np.zeros_like(DATA)
    report = quantized(activations="int8", data=zeros).quantization
    assert schemes(report) == {"first": "float", "second": "float"}
    assert all("which tells no range" in each.reason for each in report.layers)
    limited = quantized(weights="int4", data=zeros, max_error=1e-3).quantization
    assert limited.quantized == 0
    errors = [each.error for each in quantized(weights="int4").quantization.layers]
    assert [each.error for each in limited.layers] == errors
    assert not any(each.is_measured for each in limited.layers)


def test_a_layer_that_is_slower_stays_float() -> None:
    class Named:
        name, kind = "first", "product"

    decision = Decision(Named(), object())  # type: ignore[arg-type]

    def kept(before: float, after: float, call: float = 1e-4) -> Decision:
        times = ({f"other, first, {HOSTILE}": each} for each in (before, after))
        return _if_faster(decision, *(Measured(call, each) for each in times))

    assert kept(10e-6, 10.5e-6) is decision
    assert kept(10e-6, 12e-6, call=1.0) is decision  # nobody sees that
    slower = kept(10e-6, 12e-6)
    assert slower.change is None
    assert slower.reason == "it would be slower: 12.0 us, against 10.0 us"


@pytest.mark.slow
def test_times_are_measured_and_predicted() -> None:
    module = ingot.quantize(LAYERS, weights="int4", dims={"b": 4})
    report = module.quantization
    assert report.time_before
    assert report.time_after
    for each in report.layers:
        times = each.predicted_before, each.predicted_after, each.time_before, each.time_after
        assert all(time is not None and 0 < time < 1 for time in times)
    assert "call 0.0" in report.summary
    assert quantized().quantization.time_after is None
    assert quantized().quantization.layers[0].predicted_after is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "int5"}, "weights is 'int5', expected one of int8, int4, int3, int2"),
        ({"activations": "u4"}, "activations is 'u4', expected one of int8, dynamic"),
        ({"method": "best"}, "method is 'best', expected one of minmax, entropy, mse"),
        (
            {"activations": "int8"},
            "activations='int8' needs calibration data: give data=, or activations='dynamic'",
        ),
        ({"compensate": True}, "compensate needs calibration data: give data=, or leave it out"),
        ({"weights": "int4", "activations": "dynamic"}, "weights must be 'int8', not 'int4'"),
        ({"activations": "dynamic", "group": 32}, "one scale for each output: leave group out"),
        ({"group": 20}, "group is 20, expected a multiple of 16"),
        ({"group": 32}, "layer 'first' has rows of 48 weights, which groups of 32 do not divide"),
        ({"max_error": 0.0}, "max_error is 0.0, expected a relative error"),
        ({"keep": ["frist"]}, "no layer is called 'frist'; of 2 layers the nearest are: 'first'"),
        ({"parameters": "external"}, "leave parameters out"),
        ({"data": DATA[:, :3]}, "sample 0: argument 'x' has the shape [32, 3]"),
        ({"data": DATA[:0]}, "'x' is empty"),
        ({"data": {"z": DATA}}, "lacks 'x'"),
        ({"data": np.where(DATA > 2, np.nan, DATA)}, "has NaN"),
        ({"data": [[[1.0], [1.0, 2.0]]]}, "argument 'x' is no array"),
        ({"data": [np.full((1, 48), 3e38, np.float32)]}, "layer 'second' reads NaN or infinity"),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        quantized(**options)
    assert message in str(caught.value)


def test_a_program_without_layers_is_refused() -> None:
    text = 'module {} {\nfunc @main(%x: f32[2] "x") -> (f32[2] "y") {\n return(%x)\n}\n}\n'
    with pytest.raises(CompileError, match="no layer to quantise"):
        quantized(text)


@pytest.mark.slow
def test_several_functions_share_their_codes_and_take_no_data() -> None:
    one = quantized({"a": LAYERS})
    both = quantized({"a": LAYERS, "b": LAYERS})
    assert list(schemes(both.quantization)) == ["first", "second", "first (2)", "second (2)"]
    assert len(both) < 1.5 * len(one)
    model = ingot.load(both)
    np.testing.assert_array_equal(model.a(DATA), model.b(DATA))
    with pytest.raises(InvalidArgument, match="leave it out"):
        quantized({"a": LAYERS}, data=DATA)


@pytest.mark.slow
def test_state_stays_in_the_model() -> None:
    weight = matrix(16, 16)
    text = f"""module {{}} {{
  func @main(%x: f32[16] "x", %h: f32[16] "h") -> (f32[16] "next", f32[16] "y") {{
    %0 = constant() {{value={weight}}} : f32[16,16]
    %1 = dot_general(%h, %0) {{lhs_contract=[0], rhs_contract=[0]}} : f32[16] loc("step")
    %2 = add(%x, %1) : f32[16]
    %3 = tanh(%2) : f32[16]
    return(%3, %2)
  }}
}}
"""
    state = {"next": "h"}
    module = quantized(text, weights="int4", state=state)
    assert schemes(module.quantization)["step"].startswith("int4")
    assert not module.quantization.results
    models = ingot.load(module), load_best(text, state=state)
    x = RANDOM.standard_normal(16).astype(np.float32)
    results = [[np.asarray(each(x)) for each in models] for _ in range(3)]
    off = [float(np.abs(found - wanted).max()) for found, wanted in results]
    assert off[0] == 0  # the state is 0 at first
    assert 0 < off[1] < 0.5
    with pytest.raises(InvalidArgument, match="neither state nor external weights"):
        quantized(text, state=state, data=[(x, x)])


BLOCK = f"""
module {{}} {{
  func @main(%x: f32[1,8,12,12] "x") -> (f32[1,8,6,6] "y") {{
    %zero = constant() {{value=dense<f32[] 0.0>}} : f32[]
    %z = broadcast(%zero) {{shape=[1, 8, 6, 6], dimensions=[]}} : f32[1,8,6,6]
    %top = reduce_window(%x) {{kind="max", window=[1, 1, 2, 2], strides=[1, 1, 2, 2]}}
      : f32[1,8,6,6] loc("pool")
    %w0 = constant() {{value={matrix(24, 8, 1, 1)}}} : f32[24,8,1,1]
    %a = convolution(%top, %w0) {{layout="nchw,oihw->nchw"}} : f32[1,24,6,6] loc("wide")
    %w1 = constant() {{value={matrix(24, 1, 3, 3)}}} : f32[24,1,3,3]
    %b = convolution(%a, %w1) {{layout="nchw,oihw->nchw", groups=24, padding=[[1, 1], [1, 1]]}}
      : f32[1,24,6,6] loc("deep")
    %w2 = constant() {{value={matrix(8, 24, 1, 1)}}} : f32[8,24,1,1]
    %c = convolution(%b, %w2) {{layout="nchw,oihw->nchw"}} : f32[1,8,6,6] loc("narrow")
    %d = add(%c, %top) : f32[1,8,6,6] loc("sum")
    %y = max(%d, %z) : f32[1,8,6,6] loc("relu")
    return(%y)
  }}
}}
"""


@pytest.mark.slow
def test_a_block_of_convolutions_runs_in_bytes() -> None:
    data = RANDOM.standard_normal((8, 1, 8, 12, 12)).astype(np.float32)
    module = quantized(BLOCK, activations="int8", data=data)
    report = module.quantization
    assert [each.kind for each in report.layers] == ["convolution", "depthwise", "convolution"]
    assert all(each.scheme == "int8 x u8" for each in report.layers)
    assert not module.report.left_in_float
    wanted = np.asarray(load_best(BLOCK)(data[0]))
    found = np.asarray(ingot.load(module)(data[0]))
    assert 0 < np.linalg.norm(found - wanted) < 0.03 * np.linalg.norm(wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error"),
    [({"activations": "int8"}, 0.03), ({"weights": "int4", "compensate": True}, 0.15)],
)
def test_models_are_close_to_their_floats(options: dict[str, Any], error: float) -> None:
    source = graphs.load("mlp", seed=0)
    data = [graphs.sample("mlp", seed) for seed in range(4)]
    report = quantized(source, data=data, **options).quantization
    assert report.quantized == len(report.layers) == 3
    assert report.results[0].error < error
    assert report.length_before is not None
    assert report.length_after < report.length_before / 2


# The command, and what it tells.


def test_the_command_writes_module_page_and_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, data, page = tmp_path / "m.ir", tmp_path / "data.npz", tmp_path / "page.html"
    source.write_text(LAYERS.replace('"first"', json.dumps(HOSTILE)))
    np.savez(data, x=DATA)
    out = tmp_path / "m.ingot"
    arguments = ["quantize", source, "-o", out, "--activations", "int8", "--data", data]
    arguments += ["--keep", "second", "--report", page, "--no-measure"]
    assert main([*map(str, arguments)]) == 0
    printed = capsys.readouterr().out
    assert "1 of 2 layers quantised" in printed
    assert "second  float: kept as asked" in printed
    assert "\x1b" not in printed
    assert np.asarray(ingot.load(out)(DATA)).shape == (64, 10)
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;/title&gt;&lt;script&gt;" in text
    assert "kept as asked" in text
    assert main(["quantize", str(source), "-o", str(out), "--keep", "third"]) == 1
    assert "no layer is called 'third'" in capsys.readouterr().err


def test_the_page_says_what_errors_are_of() -> None:
    def page(*measured: bool) -> str:
        layers = [
            LayerReport(name, "product", (4, 4), "int8", 8.5, 64, 16, 0.1, is_measured=each)
            for name, each in zip("ab", measured, strict=True)
        ]
        return make_page(QuantizationReport(tuple(layers), (), 64, 16), "model")

    assert "Errors are those of its weight: " in page(False, False)
    assert "Errors are those of what the layer gives on calibration data: " in page(True, True)
    assert "calibration data, and of its weight where data shows none: " in page(True, False)


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium")
@pytest.mark.slow
def test_the_page_opens_without_a_network(tmp_path: Path) -> None:
    report = ingot.quantize(LAYERS, keep=["second"], dims={"b": 4}).quantization
    path = tmp_path / "page.html"
    path.write_text(make_page(report, HOSTILE), encoding="utf-8")
    with Browser() as browser:
        browser.open(path, "document.readyState === 'complete'")
        assert browser.problems == []
        count = browser.evaluate("document.querySelectorAll('tr').length")
        assert count == 3
        assert browser.evaluate("document.querySelectorAll('circle').length") == 1
        assert browser.evaluate("document.querySelectorAll('rect').length") == 4


# A network that was trained, and another engine.


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    images = np.load(SAMPLES / "images.npy").astype(np.float32)[:, None]
    return images, np.load(SAMPLES / "labels.npy")


def accuracy(module: Any, digits: tuple[Any, Any]) -> float:
    images, labels = digits
    return float((np.argmax(np.asarray(ingot.load(module)(images)), axis=1) == labels).mean())


@pytest.mark.slow
@pytest.mark.parametrize("file", ["digits.onnx", "digits.stablehlo"])
def test_a_trained_network_keeps_its_accuracy(file: str, digits: tuple[Any, Any]) -> None:
    source, data = SAMPLES / file, digits[0][:128]
    plain = accuracy(ingot.compile(source, variants=[best_variant()]), digits)
    for options, drop in (
        ({"activations": "int8", "data": data}, 0.003),
        ({"weights": "int4", "compensate": True, "data": data}, 0.006),
    ):
        assert accuracy(quantized(source, **options), digits) >= plain - drop


@pytest.mark.slow
def test_compensation_saves_a_trained_network_at_two_bits(digits: tuple[Any, Any]) -> None:
    source, data = SAMPLES / "digits.onnx", digits[0][:128]
    rounded, compensated = (
        quantized(source, weights="int2", compensate=each, data=data) for each in (False, True)
    )
    pairs = zip(rounded.quantization.layers[1:], compensated.quantization.layers[1:], strict=True)
    assert all((b.error or 0) < 0.8 * (a.error or 0) for a, b in pairs)
    errors = [each.quantization.results[0].error for each in (rounded, compensated)]
    assert errors[1] < errors[0]
    assert accuracy(compensated, digits) > 0.93


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_static_quantisation_is_no_worse_than_onnxruntimes(
    digits: tuple[Any, Any], tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    quantization = pytest.importorskip("onnxruntime.quantization")
    images = digits[0]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        rest = iter([{"images": images[:128]}])

        def get_next(self) -> Any:
            return next(self.rest, None)

    path = str(tmp_path / "int8.onnx")
    quantization.quantize_static(
        str(SAMPLES / "digits.onnx"), path, Reader(), per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = np.asarray(load_best(SAMPLES / "digits.onnx")(images))
    ours = quantized(SAMPLES / "digits.onnx", activations="int8", data=images[:128])
    errors = [
        float(np.linalg.norm(found - wanted))
        for found in (
            np.asarray(ingot.load(ours)(images)),
            session.run(None, {"images": images})[0],
        )
    ]
    assert errors[0] < errors[1]
