"""TFLite models of several ops: compiled, with branches, loops, state and signatures."""

from __future__ import annotations

import math
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

import ingot
from ingot.compiler.frontends import inlining
from ingot.compiler.frontends.tflite import flatbuffer
from ingot.compiler.read_source import read_source
from tests.support.devices import best_variant, load_best
from tests.support.tflite_models import Array, Model, check, one_op, run_interpreted, run_litert

RNG = np.random.default_rng(1)


def _floats(*shape: int) -> Array:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def _weights(*shape: int) -> Array:
    return RNG.integers(-127, 128, shape).astype(np.int8)


def _mobile(batch: int = 1) -> bytes:
    """Two blocks as in MobileNetV2, int8: convolution, depthwise, projection, residual, mean."""
    model = Model()
    g = model.main
    x = g.tensor("int8", (batch, 12, 12, 3), (0.0078, -1), name="image")
    given, first, scale, depth = x, x, 0.0078, 3
    for place, (kind, width, step, fused) in enumerate(
        [("CONV_2D", 8, 2, 3), ("DEPTHWISE_CONV_2D", 8, 1, 3), ("CONV_2D", 8, 1, 0)]
    ):
        shape = (width, 3, 3, depth) if kind == "CONV_2D" else (1, 3, 3, width)
        axis = 0 if kind == "CONV_2D" else 3
        scales = RNG.uniform(0.002, 0.01, width)
        w = g.constant(_weights(*shape), (scales, np.zeros(width, int), axis))
        bias = RNG.integers(-500, 500, width).astype(np.int32)
        b = g.constant(bias, (scales * scale, np.zeros(width, int), 0))
        scale = 0.0235 if fused else 0.05
        y = g.tensor("int8", (batch, 6, 6, width), (scale, -128 if fused else 4), name=f"c{place}")
        options = {"strideH": step, "strideW": step, "fusedActivationFunction": fused}
        if kind == "DEPTHWISE_CONV_2D":
            options["depthMultiplier"] = 1
        g.op(
            kind,
            [x, w, b],
            [y],
            "Conv2DOptions" if axis == 0 else "DepthwiseConv2DOptions",
            **options,
        )
        first = y if place == 0 else first
        x, depth = y, width
    joined = g.tensor("int8", (batch, 6, 6, 8), (0.06, 0))
    g.op("ADD", [x, first], [joined], "AddOptions")
    pooled = g.tensor("int8", (batch, 8), (0.03, 2))
    g.op("MEAN", [joined, g.constant(np.array([1, 2], np.int32))], [pooled], "ReducerOptions")
    w = g.constant(_weights(5, 8), (0.01, 0))
    logits = g.tensor("int8", (batch, 5), (0.1, 3))
    bias = g.constant(np.arange(5).astype(np.int32), (0.0003, 0))
    g.op("FULLY_CONNECTED", [pooled, w, bias], [logits], "FullyConnectedOptions")
    scores = g.tensor("int8", (batch, 5), (1 / 256, -128), name="scores")
    g.op("SOFTMAX", [logits], [scores], "SoftmaxOptions", beta=1.0)
    g.ends([given], [scores])
    return bytes(model)


@pytest.mark.slow
def test_a_quantised_network_of_vision_agrees_compiled(tmp_path: Path) -> None:
    path = tmp_path / "mobile.tflite"
    path.write_bytes(_mobile())
    x = RNG.integers(-128, 128, (1, 12, 12, 3)).astype(np.int8)
    ((wanted,),) = run_litert(path.read_bytes(), [x])
    module = ingot.compile(path)
    assert "vnni" in str(module.report)  # only what multiplies bytes is built for it
    model = ingot.load(module)
    assert [each.name for each in model.signature.arguments] == ["image"]
    got = np.asarray(model(image=x))
    assert got.dtype == np.int8
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("has_zeros", [True, False])
def test_weights_of_bytes_multiply_bytes_where_activations_are_floats(has_zeros: bool) -> None:
    """By rows, as in LiteRT; a row of zeros has a scale, too."""
    codes, x = RNG.integers(-127, 128, (256, 128)).astype(np.int8), _floats(3, 128)
    x[1] = 0
    scales = RNG.uniform(0.001, 0.01, 256).astype(np.float32)
    source, arguments = one_op(
        "FULLY_CONNECTED", [x, (codes, (scales, np.zeros(256, int), 0)), _floats(256)],
        [("float32", (3, 256))], "FullyConnectedOptions", (1, 2),
        asymmetricQuantizeInputs=has_zeros,
    )  # fmt: skip
    module = ingot.compile(source, variants=[best_variant()])
    assert len(bytes(module)) < 2 * codes.nbytes  # floats alone would be four times as long
    assert module.report.left_in_float == ()
    found = np.asarray(ingot.load(module)(*arguments))
    ((wanted,),) = run_litert(source, arguments)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_an_open_dim_is_a_symbol() -> None:
    model = Model()
    g = model.main
    x, y = g.tensor("float32", (-1, 4), name="x"), g.tensor("float32", (-1, 3), name="y")
    w = g.constant(_floats(3, 4))
    h = g.tensor("float32", (-1, 3))
    g.op("FULLY_CONNECTED", [x, w, -1], [h], "FullyConnectedOptions", fusedActivationFunction=1)
    shape, parts = g.tensor("int32", (2,)), g.tensor("int32", ())
    g.op("SHAPE", [h], [shape], "ShapeOptions", outType=2)
    ends = [g.constant(np.array(each, np.int32)) for each in ([0], [1], [1])]
    g.op("STRIDED_SLICE", [shape, *ends], [parts], "StridedSliceOptions", shrinkAxisMask=1)
    packed, flat = g.tensor("int32", (2,)), g.tensor("float32", (-1, 1))
    three = g.constant(np.array(1, np.int32))
    rows = g.tensor("int32", ())
    g.op("MUL", [parts, g.constant(np.array(3, np.int32))], [rows], "MulOptions")
    g.op("PACK", [rows, three], [packed], "PackOptions", valuesCount=2)
    g.op("RESHAPE", [h, packed], [flat], "ReshapeOptions")
    back = g.constant(np.array([-1, 3], np.int32))
    g.op("RESHAPE", [flat, back], [y], "ReshapeOptions")
    g.ends([x], [y])
    data = bytes(model)
    module = read_source(data)
    assert str(module.functions["main"].result_types[0]) == "f32[x_0,3]"
    for rows_given in (1, 5):
        check(data, [_floats(rows_given, 4)])


def test_open_dims_that_an_op_needs_equal_are_one() -> None:
    model = Model()
    g = model.main
    rows, new = g.tensor("int32", (-1, 1), name="rows"), g.tensor("float32", (-1, 4), name="new")
    sums, y = g.tensor("float32", (6, 4)), g.tensor("float32", (-1, 3, 4))
    g.op("SCATTER_ND", [rows, new, g.constant(np.array([6, 4], np.int32))], [sums])
    x = g.tensor("float32", (-1, 3, 4), name="x")
    g.op("PRELU", [x, g.constant(_floats(2, 1, 4))], [y])
    g.ends([rows, new, x], [sums, y])
    data = bytes(model)
    for count in (1, 3):
        check(
            data, [np.arange(count, dtype=np.int32)[:, None], _floats(count, 4), _floats(2, 3, 4)]
        )


def _while() -> bytes:
    """x doubles until its sum is above 10; then one of two branches."""
    model = Model()
    g = model.main
    test, body = model.graph("test"), model.graph("body")
    a = test.tensor("float32", (3,))
    total, holds = test.tensor("float32", ()), test.tensor("bool", ())
    test.op("SUM", [a, test.constant(np.array([0], np.int32))], [total], "ReducerOptions")
    test.op("LESS", [total, test.constant(np.array(10, np.float32))], [holds])
    test.ends([a], [holds])
    a, b = body.tensor("float32", (3,)), body.tensor("float32", (3,))
    body.op("ADD", [a, a], [b], "AddOptions")
    body.ends([a], [b])
    branches = []
    for name in ("NEG", "EXP"):
        branch = model.graph(name)
        a, b = branch.tensor("float32", (3,)), branch.tensor("float32", (3,))
        branch.op(name, [a], [b])
        branch.ends([a], [b])
        branches.append(branch)
    x, chosen = g.tensor("float32", (3,)), g.tensor("bool", ())
    y, z = g.tensor("float32", (3,)), g.tensor("float32", (3,))
    g.op("WHILE", [x], [y], "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    g.op("IF", [chosen, y], [z], "IfOptions", thenSubgraphIndex=3, elseSubgraphIndex=4)
    g.ends([x, chosen], [z])
    return bytes(model)


def test_loops_and_branches() -> None:
    data = _while()
    x = np.array([0.1, 0.2, 0.3], np.float32)
    for chosen in (True, False):
        check(data, [x, np.array(chosen)])
    model = load_best(data)
    ((wanted,),) = run_litert(data, [x, np.array(False)])
    np.testing.assert_allclose(model(x, np.array(False)), wanted, rtol=1e-5)


def _counter() -> bytes:
    """A variable that begins with what CALL_ONCE assigns, and a signature that adds to it."""
    model = Model()
    g = model.main
    first = model.graph("init")
    handle = first.tensor("resource", ())
    first.op("VAR_HANDLE", [], [handle], "VarHandleOptions", container="", sharedName="total")
    start = first.constant(np.array([5, 6], np.float32))
    first.op("ASSIGN_VARIABLE", [handle, start], [])
    first.ends([], [])
    x, y = g.tensor("float32", (2,)), g.tensor("float32", (2,))
    handle, old = g.tensor("resource", ()), g.tensor("float32", (2,))
    g.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    g.op("VAR_HANDLE", [], [handle], "VarHandleOptions", container="", sharedName="total")
    g.op("READ_VARIABLE", [handle], [old])
    g.op("ADD", [old, x], [y], "AddOptions")
    g.op("ASSIGN_VARIABLE", [handle, y], [])
    g.ends([x], [y])
    reading = model.graph("read")
    handle, value = reading.tensor("resource", ()), reading.tensor("float32", (2,))
    reading.op("VAR_HANDLE", [], [handle], "VarHandleOptions", container="", sharedName="total")
    reading.op("READ_VARIABLE", [handle], [value])
    reading.ends([], [value])
    model.signature("count", 0, {"step": x}, {"total": y})
    model.signature("read", 2, {}, {"total": value})
    return bytes(model)


def test_variables_and_signatures() -> None:
    data = _counter()
    model = load_best(data)
    assert set(model.functions) == {"count", "read"}
    step = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(model.count(step=step), [6, 8])
    np.testing.assert_array_equal(model.count(step), [7, 10])
    np.testing.assert_array_equal(model.read(), [7, 10])
    model.reset()
    np.testing.assert_array_equal(model.read(), [5, 6])
    for (wanted,) in run_litert(data, [step], [step], [step]):
        np.testing.assert_array_equal(model.count(step), wanted)


def test_calls_cases_and_composites() -> None:
    """LiteRT inlines or lacks them: the results are NumPy's."""
    for name, kind, options in (
        ("CALL", "CallOptions", {"subgraph": 1}),
        ("STABLEHLO_COMPOSITE", "StableHLOCompositeOptions", {"decompositionSubgraphIndex": 1}),
    ):
        model = Model()
        inner = model.graph("inner")
        a, b = inner.tensor("float32", (3,)), inner.tensor("float32", (3,))
        inner.op("NEG", [a], [b])
        inner.ends([a], [b])
        x, y = (model.main.tensor("float32", (3,)) for _ in range(2))
        model.main.op(name, [x], [y], kind, **options)
        model.main.ends([x], [y])
        given = _floats(3)
        np.testing.assert_array_equal(run_interpreted(bytes(model), [given])[0][0], -given)
    model = Model()
    for name in ("NEG", "ABS"):
        inner = model.graph(name)
        a, b = inner.tensor("float32", (3,)), inner.tensor("float32", (3,))
        inner.op(name, [a], [b])
        inner.ends([a], [b])
    g = model.main
    chosen, x, y = g.tensor("int32", ()), g.tensor("float32", (3,)), g.tensor("float32", (3,))
    g.op("STABLEHLO_CASE", [chosen, x], [y], "StablehloCaseOptions", branchSubgraphIndices=[1, 2])
    g.ends([chosen, x], [y])
    calls = [[np.array(n, np.int32), given] for n in range(2)]
    for (got,), wanted in zip(
        run_interpreted(bytes(model), *calls), (-given, abs(given)), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_a_spectrum_as_tensorflow_writes_it_agrees_compiled() -> None:
    """A transform of one axis is one of two, of which an axis of 1 is taken away; and complex
    tensors go through calls, constants, arguments and results."""
    model = Model()
    g, inner = model.main, model.graph("inner")
    given, taken = (each.tensor("complex64", (5, 9)) for each in (inner, inner))
    gains = (_floats(9) + 1j * _floats(9)).astype(np.complex64)
    inner.op("MUL", [given, inner.constant(gains)], [taken], "MulOptions")
    inner.ends([given], [taken])
    x = g.tensor("float32", (5, 1, 16), name="x")
    spectrum = g.tensor("complex64", (5, 1, 9))
    g.op("RFFT2D", [x, g.constant(np.array([1, 16], np.int32))], [spectrum])
    flat, loud = (g.tensor("complex64", (5, 9), name=name) for name in ("flat", "loud"))
    size = g.tensor("float32", (5, 9), name="size")
    shift, shifted = (g.tensor("complex64", shape, name="shift") for shape in ((9,), (5, 9)))
    g.op("SQUEEZE", [spectrum], [flat], "SqueezeOptions", squeezeDims=[1])
    g.op("CALL", [flat], [loud], "CallOptions", subgraph=1)
    g.op("SUB", [loud, shift], [shifted], "SubOptions")
    g.op("COMPLEX_ABS", [shifted], [size])
    g.ends([x, shift], [loud, size])
    sound = _floats(5, 1, 16)
    wanted = gains * np.fft.rfft(sound[:, 0])
    got = load_best(bytes(model))(sound, gains)
    for a, b in zip((wanted, np.abs(wanted - gains)), map(np.asarray, got), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_a_sparse_constant_is_read_dense() -> None:
    from ai_edge_litert import schema_py_generated as schema

    dense = np.array([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0]], np.float32)
    model = Model()
    g = model.main
    w = g.tensor("float32", dense.shape, data=dense[dense != 0])
    sparsity = schema.SparsityParametersT()
    sparsity.traversalOrder, sparsity.dimMetadata = [0, 1], []
    for format, size in ((0, 3), (1, 0)):
        level = schema.DimensionMetadataT()
        level.format, level.denseSize = format, size
        if format:
            level.arraySegmentsType = level.arrayIndicesType = schema.SparseIndexVector.Uint8Vector
            level.arraySegments, level.arrayIndices = schema.Uint8VectorT(), schema.Uint8VectorT()
            level.arraySegments.values, level.arrayIndices.values = [0, 2, 2, 3], [1, 3, 0]
        sparsity.dimMetadata.append(level)
    g.graph.tensors[w].sparsity = sparsity
    x, y, v = g.tensor("float32", (1, 4)), g.tensor("float32", (1, 3)), g.tensor("float32", (3, 4))
    g.op("DENSIFY", [w], [v])
    g.op("FULLY_CONNECTED", [x, v, -1], [y], "FullyConnectedOptions")
    g.ends([x], [y])
    given = _floats(1, 4)
    np.testing.assert_allclose(
        run_interpreted(bytes(model), [given])[0][0], given @ dense.T, rtol=1e-6
    )


def test_all_that_is_not_supported_is_named_at_once() -> None:
    model = Model()
    g = model.main
    x = g.tensor("float32", (2,), name="x")
    y, z = g.tensor("float32", (2,), name="a/y"), g.tensor("float32", (2,), name="b/z")
    g.op("LSH_PROJECTION", [x], [y])
    g.op("SKIP_GRAM", [y], [z])
    g.ends([x], [z])
    with pytest.raises(ingot.CompileError) as caught:
        ingot.compile(bytes(model))
    assert "'a/y': LSH_PROJECTION(f32[2]): the op is not supported" in str(caught.value)
    assert "'b/z': SKIP_GRAM(f32[2])" in str(caught.value)


def _detector() -> bytes:
    outputs = [("float32", shape) for shape in ((1, 2, 4), (1, 2), (1, 2), (1,))]
    scales = dict.fromkeys(("x_scale", "y_scale", "h_scale", "w_scale"), 5.0)
    return one_op(
        "TFLite_Detection_PostProcess", [_floats(1, 9, 4), _floats(1, 9, 3), _floats(9, 4)],
        outputs, max_detections=2, max_classes_per_detection=1, num_classes=3,
        nms_score_threshold=0.1, nms_iou_threshold=0.5, **scales,
    )[0]  # fmt: skip


def test_damaged_models_give_programs_or_errors() -> None:
    draw = random.Random(0)
    sources = [
        _while(),
        _counter(),
        _mobile(),
        one_op("ADD", [_floats(3)] * 2, [("float32", (3,))])[0],
        _detector(),
    ]
    for number in range(400):
        data = bytearray(draw.choice(sources))
        for _ in range(draw.choice([1, 1, 2, 5])):
            place = draw.randrange(len(data))
            match draw.randrange(4):
                case 0:
                    data[place] = draw.choice([0, 1, 127, 128, 255, draw.randrange(256)])
                case 1:
                    data[place : place + 4] = draw.choice([0, 1, 2**31 - 1, 2**32 - 1]).to_bytes(
                        4, "little"
                    )
                case 2:
                    del data[place : place + draw.randrange(1, 9)]
                case 3 if number % 8 == 0:
                    del data[place:]
        with suppress(ingot.CompileError, ingot.Unsupported):
            read_source(bytes(data))


def _hostile(kind: str) -> bytes:
    model = Model()
    g = model.main
    x, y = g.tensor("float32", (2,), name="x"), g.tensor("float32", (2,), name="y")
    g.op("ADD", [x, x], [y], "AddOptions")
    ends = [x], [y]
    if kind == "large":
        ends[1].append(g.tensor("float32", (100000, 100000), variable=True, name="v"))
    elif kind == "zero":
        ends[1].append(g.tensor("int8", (2,), (1.0, 2**62), variable=True, name="v"))
    elif kind in ("scale", "infinite"):
        scale = 0.0 if kind == "scale" else math.inf
        ends[1].append(g.tensor("int8", (2,), (scale, 1), variable=True, name="v"))
    elif kind == "none":
        ends[1].append(-1)
    elif kind == "twice":
        ends[0].append(x)
    elif kind == "loop":
        once, test, body = (model.graph(name) for name in ("once", "test", "body"))
        test.ends([test.tensor("float32", ())], [test.constant(np.array(True))])
        a = body.tensor("float32", ())
        body.ends([a], [a])
        start, result = once.constant(np.array(0, np.float32)), once.tensor("float32", ())
        options = {"condSubgraphIndex": 2, "bodySubgraphIndex": 3}
        once.op("WHILE", [start], [result], "WhileOptions", **options)
        once.ends([], [])
        g.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    elif kind in ("calls", "circle"):  # each subgraph calls the next one twice
        for place in range(1, 40):
            inner = model.graph(f"inner{place}")
            a, b, c = (inner.tensor("float32", (2,)) for _ in range(3))
            for given, made in ((a, b), (b, c)):
                if place == 39 and kind == "calls":
                    inner.op("NEG", [given], [made])
                else:
                    called = place + 1 if place < 39 else 20
                    inner.op("CALL", [given], [made], "CallOptions", subgraph=called)
            inner.ends([a], [c])
        g.op("CALL", [x], [y], "CallOptions", subgraph=1)
    g.ends(*ends)
    return bytes(model)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("large", "'v' is damaged: .* at most 1073741824"),
        ("zero", "'v' has a zero point of 4611686018427387904, which i8 does not hold"),
        ("scale", "'v' has a scale of 0.0, expected finite positive"),
        ("infinite", "'v' has a scale of inf, expected finite positive"),
        ("none", "tensor -1 of 2"),
        ("twice", "takes a tensor twice"),
        ("loop", "loops or branches: set variables up without them"),
        ("calls", "calls of functions become more than 1000 ops"),
        ("circle", r"function 'inner\d+' calls itself, through others or not"),
    ],
)
def test_hostile_models_are_refused(
    kind: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inlining, "_MOST", 1000)
    with pytest.raises(ingot.CompileError, match=message):
        read_source(_hostile(kind))


def test_what_a_file_says_again_and_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatbuffer, "_MOST_READ", 1000)
    with pytest.raises(ingot.CompileError, match="its tables say too much"):
        read_source(_mobile())
