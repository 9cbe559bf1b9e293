"""Models that cannot be compiled: the message names what is wrong and where."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from ingot.compiler.frontends import inlining
from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.frontends.onnx.walk import Walk
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.ops import Constant
from ingot.hal.errors import CompileError, NotFound
from tests.support.onnx_models import build_model, make_value

Node = helper.make_node
X = make_value("x", [2, 3])
ZEROS = np.zeros((2, 3), np.float32)


def test_all_missing_ops_are_listed_at_once_with_layer_dtype_and_shape() -> None:
    model = build_model(
        [
            Node("ImageDecoder", ["x"], ["a"], name="photo"),
            Node("Relu", ["x"], ["b"], name="fine"),
            Node("StringSplit", ["b"], ["c", "n"], name="words"),
            Node("RegexFullMatch", ["c"], ["d"], name="again"),
        ],
        [X],
        ["a", "d"],
    )
    with pytest.raises(CompileError) as caught:
        import_onnx(model)
    message = str(caught.value)
    assert "3 problems" in message
    assert (
        "layer 'photo': ImageDecoder(f32[2,3]): ImageDecoder of opset 20 is not supported; "
        "decode images before the call, which takes their pixels" in message
    )
    assert "layer 'words': StringSplit(f32[2,3])" in message
    assert "layer 'again': RegexFullMatch(" in message
    assert "'fine'" not in message


def test_a_string_argument_does_not_hide_what_else_is_missing() -> None:
    sequence = onnx.ValueInfoProto(name="s")
    sequence.type.map_type.key_type = onnx.TensorProto.INT64
    model = build_model(
        [
            Node("RegexFullMatch", ["t"], ["u"], name="lower", pattern="("),
            Node("Identity", ["u"], ["v"], name="silent"),
            Node("MatMul", ["x", "x"], ["y"], name="product"),
            Node("Relu", ["x"], ["z"]),
        ],
        [make_value("t", [2], onnx.TensorProto.STRING), X, sequence, make_value("w")],
        ["v", "y", "z"],
    )
    model.graph.output[2].CopyFrom(make_value("z", [2], onnx.TensorProto.STRING))
    with pytest.raises(CompileError) as caught:
        import_onnx(model)
    message = str(caught.value)
    assert "5 problems" in message
    assert "graph input 's' is a map" in message
    assert "graph input 'w' has no shape" in message
    assert "layer 'lower': RegexFullMatch(string[2])" in message
    assert "layer 'product': MatMul(f32[2,3], f32[2,3])" in message
    assert "graph output 'z' is f32[2,3], but the model declares it as STRING" in message
    assert "'silent'" not in message


def test_layers_that_no_result_needs_are_left_out() -> None:
    words = onnx.numpy_helper.from_array(np.array(["a", "b"], object), "words")
    branch = helper.make_graph(
        [
            Node("StringConcat", ["texts", "texts"], ["both"]),
            Node("Relu", ["x"], ["z"]),
        ],
        "branch",
        [],
        [make_value("z")],
    )
    nodes = [
        Node("Constant", [], ["texts"], value=words),
        Node("StringConcat", ["texts", "texts"], ["longer"]),
        Node("Identity", ["longer"], ["labels"]),
        Node("RandomNormalLike", ["x"], ["noise"]),
        Node("If", ["p"], ["y"], then_branch=branch, else_branch=branch),
    ]
    model = build_model(nodes, [X, make_value("p", [], onnx.TensorProto.BOOL)], ["y"])
    model.graph.initializer.append(words)
    module = import_onnx(model)
    assert not module.variables
    assert {op.name for op in module.functions["main"].block.ops} <= {"if", "return"}


def test_an_op_of_another_domain_is_named_with_its_domain() -> None:
    node = Node("FusedGelu", ["x"], ["y"], domain="com.example", name="gelu")
    model = build_model([node], [X], ["y"], domains=["com.example"])
    with pytest.raises(CompileError, match=r"com\.example\.FusedGelu .* default domain only"):
        import_onnx(model)


def test_a_body_that_onnx_has_only_for_known_dims_is_refused_for_others() -> None:
    node = Node("CausalConvWithState", ["x", "w"], ["y", "state"], name="conv")
    inputs = [make_value("x", ["b", "c", "l"]), make_value("w", ["c", 1, 4])]
    model = build_model([node], inputs, ["y", "state"], opset=27)
    with pytest.raises(CompileError, match=r"layer 'conv'.* defined only for dims that are known"):
        import_onnx(model)


def test_gradients_are_refused_as_such() -> None:
    domain = "ai.onnx.preview.training"
    nodes = [Node("Relu", ["x"], ["y"]), Node("Gradient", ["x"], ["d"], domain=domain, xs=["x"])]
    model = build_model(nodes, [X], ["d"], domains=[domain])
    with pytest.raises(CompileError, match="it computes gradients: export what the model does in"):
        import_onnx(model)


def test_the_domain_of_onnxruntime_may_be_left_out() -> None:
    """As nncf and neural-compressor do; it has one version."""
    model = build_model([Node("QuickGelu", ["x"], ["y"], domain="com.microsoft")], [X], ["y"])
    assert all(each.domain != "com.microsoft" for each in model.opset_import)
    (found,) = interpret(import_onnx(model), "main", [ZEROS + 1])
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-1.702)), 1e-6)


def test_a_domain_that_the_model_does_not_import_is_named() -> None:
    model = build_model([Node("Thing", ["x"], ["y"], domain="nowhere")], [X], ["y"])
    with pytest.raises(CompileError, match="imports no opset of 'nowhere'"):
        import_onnx(model)


def test_a_cycle_is_shown_with_its_nodes() -> None:
    model = build_model(
        [Node("Add", ["x", "b"], ["a"], name="first"), Node("Relu", ["a"], ["b"], name="second")],
        [X],
        ["b"],
    )
    with pytest.raises(CompileError, match=r"cycle: .*'first' reads .*'second' reads .*'first'"):
        import_onnx(model)


def test_nodes_in_any_order_are_sorted() -> None:
    model = build_model([Node("Relu", ["a"], ["b"]), Node("Neg", ["x"], ["a"])], [X], ["b"])
    names = [op.name for op in import_onnx(model).functions["main"].block.ops]
    assert names[0] == "neg"


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([Node("Relu", ["nothing"], ["y"], name="n")], "reads 'nothing', which nothing defines"),
        ([Node("Relu", ["x"], ["y"]), Node("Neg", ["x"], ["y"])], "every name may be defined once"),
        ([Node("Relu", ["x"], ["z"])], "output 'y' is defined by nothing"),
    ],
)
def test_names_that_are_wrong_are_quoted(nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        import_onnx(build_model(nodes, [X], ["y"]))


def test_two_initializers_of_one_name_are_refused() -> None:
    model = build_model([Node("Add", ["x", "w"], ["y"])], [X], ["y"], {"w": np.zeros(3, "f4")})
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(CompileError, match="two initializers are named 'w'"):
        import_onnx(model)


@pytest.mark.parametrize("opset", [0, 10_000])
def test_an_opset_that_is_too_old_or_too_new_is_refused_with_the_range(opset: int) -> None:
    model = build_model([Node("Relu", ["x"], ["y"])], [X], ["y"], opset=opset)
    with pytest.raises(CompileError, match=rf"uses opset {opset}; supported are 1 to"):
        import_onnx(model)


def test_inputs_without_shape_or_of_complex_numbers_are_refused() -> None:
    for value, message in [
        (make_value("x", None), "'x' has no shape"),
        (make_value("x", [1], onnx.TensorProto.COMPLEX64), "'x' has element type COMPLEX64"),
    ]:
        with pytest.raises(CompileError, match=message):
            import_onnx(build_model([Node("Relu", ["x"], ["y"])], [value], ["y"]))


def test_shapes_that_do_not_fit_are_reported_with_the_layer() -> None:
    nodes = [
        Node("MatMul", ["x", "x"], ["a"], name="product"),
        Node("Add", ["x", "w"], ["y"], name="sum"),
    ]
    model = build_model(nodes, [X], ["a", "y"], {"w": np.zeros((5,), np.float32)})
    with pytest.raises(CompileError, match=r"'product'(.|\n)*'sum'.*do not broadcast"):
        import_onnx(model)


def test_bytes_that_are_no_model_and_paths_that_do_not_exist(tmp_path: Path) -> None:
    for data in (b"", b"not a model", b"\x08"):
        with pytest.raises(CompileError, match="no ONNX model"):
            import_onnx(data)
    with pytest.raises(NotFound, match="there is no file"):
        import_onnx(tmp_path / "nothing.onnx")


def _external(tmp_path: Path, **entries: str) -> Path:
    model = build_model([Node("Add", ["x", "w"], ["y"])], [X], ["y"], {"w": np.ones(3, "f4")})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read_from_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"\0" * 8 + np.array([1, 2, 3], "<f4").tobytes())
    module = import_onnx(_external(tmp_path, location="weights", offset="8", length="12"))
    literals = [Constant.of(op).value for op in module.functions["main"].block.ops[:1]]
    np.testing.assert_array_equal(literals[0].array, [1, 2, 3])  # type: ignore[union-attr]


@pytest.mark.parametrize("target", ["../secret", "/etc/hostname", "../folder/secret"])
def test_external_data_is_no_link_out_of_the_folder(tmp_path: Path, target: str) -> None:
    folder, outside = tmp_path / "model", tmp_path / "folder"
    folder.mkdir()
    outside.mkdir()
    for place in (tmp_path, outside):
        (place / "secret").write_bytes(bytes(12))
    (folder / "weights").symlink_to(target)
    with pytest.raises(CompileError, match="link out of the model's folder"):
        import_onnx(_external(folder, location="weights"))
    (folder / "inner").symlink_to(outside)
    with pytest.raises(CompileError, match="link out of the model's folder"):
        import_onnx(_external(folder, location="inner/secret"))


def test_external_data_may_be_a_link_inside_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    (tmp_path / "link").symlink_to("parts")
    (tmp_path / "weights").symlink_to("link/a")
    (result,) = interpret(
        import_onnx(_external(tmp_path, location="weights")), "main", [np.zeros((2, 3), "f4")]
    )
    np.testing.assert_array_equal(result[0], [0, 1, 2])


def test_a_model_in_a_cache_of_links_finds_its_data(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    _external(blobs, location="model.data").rename(blobs / "0ab")
    (blobs / "1cd").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    (snapshot / "model.onnx").symlink_to("../../blobs/0ab")
    (snapshot / "model.data").symlink_to("../../blobs/1cd")
    (result,) = interpret(import_onnx(snapshot / "model.onnx"), "main", [ZEROS])
    np.testing.assert_array_equal(result[0], [0, 1, 2])


def test_external_data_in_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "sub").mkdir()
    for location in ("pipe", "loop", "sub", "x" * 5000, "a\0b", "sub/../weights", ".", "pipe/x"):
        with pytest.raises(CompileError, match="keeps its data in the file"):
            import_onnx(_external(tmp_path, location=location))


def test_external_data_that_is_cut_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(12))
    real = os.fstat

    def cut(descriptor: int) -> os.stat_result:
        facts = real(descriptor)
        if facts.st_size == 12:
            path.write_bytes(bytes(5))
        return facts

    monkeypatch.setattr(os, "fstat", cut)
    with pytest.raises(CompileError, match="cut while it was read"):
        import_onnx(_external(tmp_path, location="weights"))


def test_external_data_that_is_missing_truncated_or_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"'w' keeps its data in the file 'gone'.*external"):
        import_onnx(_external(tmp_path, location="gone"))
    (tmp_path / "short").write_bytes(b"\0" * 8)
    with pytest.raises(CompileError, match="the file has 8 bytes: it is truncated"):
        import_onnx(_external(tmp_path, location="short"))
    with pytest.raises(CompileError, match="bad offset or length: -4 is less than 0"):
        import_onnx(_external(tmp_path, location="short", offset="-4"))
    for location in ("../weights", str(tmp_path / "short")):
        with pytest.raises(CompileError, match="', which is not a path below the model's folder; "):
            import_onnx(_external(tmp_path, location=location))
    data = _external(tmp_path, location="short").read_bytes()
    with pytest.raises(CompileError, match="the model was not given as a path"):
        import_onnx(data)


def test_initializer_data_of_the_wrong_length_is_refused() -> None:
    model = build_model([Node("Add", ["x", "w"], ["y"])], [X], ["y"], {"w": np.ones(3, "f4")})
    model.graph.initializer[0].raw_data = b"\0" * 7
    with pytest.raises(CompileError, match=r"'w' has 7 bytes of data, but f32\[3\] needs 12"):
        import_onnx(model)


def test_a_function_that_calls_itself_is_refused() -> None:
    body = [Node("Again", ["a"], ["b"], domain="local")]
    function = helper.make_function(
        "local",
        "Again",
        ["a"],
        ["b"],
        body,
        [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)],
    )
    node = Node("Again", ["x"], ["y"], domain="local")
    model = build_model([node], [X], ["y"], domains=["local"], functions=[function])
    with pytest.raises(CompileError, match="calls itself"):
        import_onnx(model)


@pytest.mark.parametrize("last", ["Neg", "f7"])
def test_functions_that_call_the_next_one_twice_end_at_once(
    last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Walk, "walk", lambda *arguments: pytest.fail("it began"))
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    functions = []
    for number in range(30):
        name, domain = (f"f{number + 1}", "local") if number < 29 else (last, "")
        domain = "local" if name == "f7" else domain
        body = [Node(name, [a], [b], domain=domain) for a, b in ("ab", "bc")]
        functions.append(helper.make_function("local", f"f{number}", ["a"], ["c"], body, opsets))
    node = Node("f0", ["x"], ["y"], domain="local")
    model = build_model([node], [X], ["y"], domains=["local"], functions=functions)
    message = "become more than 262144 ops" if last == "Neg" else "'f\\d+' calls itself, through"
    with pytest.raises(CompileError, match=message):
        import_onnx(model)


def test_functions_that_nothing_calls_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlining, "_MOST", 3)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    body = [Node("Neg", ["a"], ["b"]), Node("Dead", ["a"], ["c"], domain="local")]
    used = helper.make_function("local", "Used", ["a"], ["b"], body, opsets)
    dead = helper.make_function("local", "Dead", ["a"], ["b"], [body[0]] * 9, opsets)
    nodes = [Node("Used", ["x"], ["y"], domain="local"), Node("Dead", ["x"], ["z"], domain="local")]
    import_onnx(build_model(nodes, [X], ["y"], domains=["local"], functions=[used, dead]))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Node("Concat", ["x", "x"], ["y"]), "attribute 'axis' is missing"),
        (Node("Concat", ["x", "x"], ["y"], axis=1.5), "'axis' is of the kind FLOAT, expected INT"),
        (Node("Relu", ["x", "x", "x"], ["y"]), "it has 3 inputs, expected 1"),
        *((Node("Flatten", ["x"], ["y"], axis=n), f"axis {n} is out of .* 2") for n in (-3, 3)),
        (Node("Flatten", ["s"], ["y"]), "axis 1 is out of range for rank 0"),
        *(
            (Node(op, ["s", *more], ["y"], **given), f"axis {axis} .* expected a tensor of rank 1")
            for op, more, given, axis in (
                *(("ArgMax", [], {"axis": 0}, 0), ("Softmax", [], {}, -1)),
                *(("ReduceSum", ["axes"], {}, 0), ("Squeeze", ["axes"], {}, 0)),
                *(("Concat", ["s"], {"axis": 0}, 0), ("Gather", ["axes"], {}, 0)),
            )
        ),
    ],
)
def test_a_node_that_breaks_its_schema_is_refused(node: onnx.NodeProto, message: str) -> None:
    inputs, axes = [X, make_value("s", [])], {"axes": np.array([0])}
    with pytest.raises(CompileError, match=message):
        import_onnx(build_model([node], inputs, ["y"], axes))


CODED = {
    "Quantize": Node("QuantizeLinear", ["x", "s", "z"], ["y"], "layer"),
    "Dequantize": Node("DequantizeLinear", ["w", "s", "z"], ["y"], "layer"),
    "Blocks": Node("DequantizeLinear", ["w", "s"], ["y"], "layer", axis=1, block_size=2),
    "MatMul": Node("QLinearMatMul", ["q", "one", "u", "w", "s", "z", "one", "u"], ["y"], "layer"),
    "NBits": Node(
        "MatMulNBits", ["long", "b", "s"], ["y"], "layer", domain="com.microsoft", K=32, N=1,
        block_size=16,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "scale", "zero", "message"),
    [
        *(("Quantize", s, 0, f"its scale is {s}, expected finite and pos") for s in (0.0, -1.0)),
        *(("Dequantize", [1, s, 1], 0, f"scale 1 of 3 is {s}") for s in (np.nan, np.inf)),
        ("Quantize", [1, 0, 1], 0, "scale 1 of 3 is 0.0, expected finite and positive"),
        ("Dequantize", [1, 0, -1], 0, None),  # a channel of zeros, and as nncf writes it
        ("Dequantize", [1, 1], 0, r"zero point is f32\[2\], expected 1 number or 3"),
        ("Dequantize", [1, 1, 1], [0, 0], r"zero point is i8\[2\], expected 1 number or 3"),
        ("Dequantize", 1, np.uint8(0), r"zero point is u8\[\], but codes are i8"),
        ("Blocks", [[1, -1], [0, 1], [1, 1]], 0, None),
        ("Blocks", [[1, 1], [1, np.nan], [1, 1]], 0, "scale 3 of 6 is nan, expected finite"),
        ("Blocks", [[1], [1], [1]], 0, r"axis 1 of i8\[3,3\] has 2 blocks of 2"),
        ("MatMul", [1, 1, np.nan], 0, "scale 2 of 3 is nan, expected finite"),
        ("MatMul", [1, 1], 0, r"is f32\[2\], expected 1 number or 3, one per index of axis 1"),
        ("MatMul", 1, np.uint8(0), "but codes are i8"),
        ("NBits", [0, -1], 0, None),
        ("NBits", [0, np.nan], 0, "scale 1 of 2 is nan"),
    ],
)  # fmt: skip
def test_scales_and_zero_points_that_are_none_are_refused(
    kind: str, scale: Any, zero: Any, message: str | None
) -> None:
    arrays = {
        "s": np.array(scale, np.float32), "one": np.float32(1), "u": np.uint8(0),
        "z": zero if isinstance(zero, np.generic) else np.array(zero, np.int8),
        "w": np.ones((3, 3), np.int8), "b": np.ones((1, 2, 8), np.uint8),
    }  # fmt: skip
    inputs = [X, make_value("q", [2, 3], onnx.TensorProto.UINT8), make_value("long", [2, 32])]
    model = build_model([CODED[kind]], inputs, ["y"], arrays, opset=21)
    if message is None:
        import_onnx(model)
        return
    with pytest.raises(CompileError, match=f"layer 'layer': .*{message}"):
        import_onnx(model)


def test_zero_points_of_floats_are_zero() -> None:
    zero = helper.make_tensor("z", onnx.TensorProto.FLOAT8E4M3FN, [], [1.0])
    model = build_model([CODED["Quantize"]], [X], ["y"], {"s": np.float32(1)}, opset=21)
    model.graph.initializer.append(zero)
    with pytest.raises(CompileError, match="zero point is not 0, but codes are f8e4m3fn"):
        import_onnx(model)


def test_an_output_declared_with_other_elements_is_refused() -> None:
    model = build_model([Node("Relu", ["x"], ["y"])], [X], ["y"])
    model.graph.output[0].CopyFrom(make_value("y", [2, 3], onnx.TensorProto.INT64))
    with pytest.raises(CompileError, match="declares it as i64"):
        import_onnx(model)


@pytest.mark.parametrize("shape", [[2, 4], [2], ["n", 1, 3]])
def test_an_output_declared_with_another_shape_is_warned_of(shape: list[int | str]) -> None:
    """As skl2onnx declares some, and onnxruntime takes them."""
    model = build_model([Node("Relu", ["x"], ["y"])], [X], ["y"])
    model.graph.output[0].CopyFrom(make_value("y", shape))
    with pytest.warns(UserWarning, match=r"'y' is f32\[2,3\], but the model declares \["):
        module = import_onnx(model)
    assert str(module.functions["main"].result_types[0]) == "f32[2,3]"


def test_sizes_that_no_memory_can_have_are_refused() -> None:
    large = make_value("x", [1 << 40, 1 << 40])
    with pytest.raises(CompileError, match="more bytes than an address can count"):
        import_onnx(build_model([Node("Relu", ["x"], ["y"])], [large], ["y"]))
    shape = {"shape": np.array([-(1 << 32), 3])}
    model = build_model(
        [Node("Reshape", ["x", "shape"], ["y"])], [make_value("x", ["n", 3])], ["y"], shape
    )
    with pytest.raises(CompileError, match="negative dim"):
        import_onnx(model)


BROKEN: dict[str, Any] = {
    "a rank too low": (Node("DepthToSpace", ["x"], ["y"], blocksize=2), (2, 4, 6)),
    "a divisor of 0": (Node("SpaceToDepth", ["x"], ["y"], blocksize=0), (1, 4, 6, 6)),
    "no groups": (Node("GroupNormalization", ["x", "w", "w"], ["y"], num_groups=0), (1, 4, 6)),
    "too many sizes": (Node("Resize", ["x", "", "", "sizes"], ["y"]), (1, 1, 4)),
    "huge sizes": (Node("Resize", ["x", "", "", "sizes"], ["y"]), (1, 1, 4, 4)),
    "a sequence without batch": (Node("LSTM", ["x", "w", "w"], ["y"], hidden_size=2), (3, 2)),
    "a text that is none": (
        Node("DepthToSpace", ["x"], ["y"], blocksize=2, mode=b"\xff"),
        (1, 4, 2, 2),
    ),
    "a long transform": (Node("DFT", ["x"], ["y"]), (1, 2**40, 1)),
    "deep indices": (Node("GatherND", ["x", "deep"], ["y"]), (2, 2)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_node_that_breaks_the_standard_is_a_compile_error(name: str) -> None:
    node, shape = BROKEN[name]
    inputs = [make_value("x", shape), make_value("deep", [2, 2**62], onnx.TensorProto.INT64)]
    sizes = [1, 1, 2**40, 8] if name == "huge sizes" else [1, 1, 8, 8]
    constants = {"w": np.ones(4, np.float32), "sizes": np.array(sizes)}
    model = build_model([node], inputs, ["y"], constants)
    with pytest.raises(CompileError, match=node.op_type):
        import_onnx(model)


def test_counts_that_no_memory_holds_are_refused_before_it_is_asked_for() -> None:
    node = Node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode="TF",
        max_gram_length=1,
        max_skip_count=0,
        min_gram_length=1,
        ngram_counts=[0],
        ngram_indexes=[2**40],
        pool_int64s=[5],
    )
    model = build_model([node], [make_value("x", [4], onnx.TensorProto.INT64)], ["y"])
    with pytest.raises(CompileError, match="count of columns is 1099511627777"):
        import_onnx(model)


def test_a_weight_file_that_is_missing_is_told_once(project_root: Path) -> None:
    with pytest.raises(CompileError) as caught:
        import_onnx(project_root / "tests" / "models" / "mlp.onnx")
    message = str(caught.value)
    assert "1 problem\n" in message
    assert message.count("which is not in") == 1
    assert "also in 5 more places: 'hidden1.bias', " in message
