"""Nothing of a source program's text reaches a compiler's input or command line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot.compiler.targets.cpu import compilers
from ingot.compiler.targets.opencl import object as opencl_object

MARK = "PWNED"
HOSTILE = [
    f"{MARK}() {{ return 0; }} static int x",
    f'{MARK}"\n#include "/etc/hostname"\n',
    f"{MARK} */ int evil; /*",
    f"\\\n{MARK}\\",
    f"??/{MARK}??'??=",
    f'\r\n#define main {MARK}\n_Pragma("{MARK}")',
    f"-o/tmp/{MARK} -fplugin={MARK} @{MARK}",
    f"; touch {MARK} $(touch {MARK}) `touch {MARK}` | {MARK} & {MARK}",
    f"../../{MARK}/../{MARK}",
    f"{MARK}\0{MARK}",
    f"{MARK}ünïcödé\u202e\u2028{MARK}",
    f"%s%n{{0}}{{}}{MARK}",
    MARK * 20_000,
]


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """All texts and command lines that compilers get while the test runs."""
    texts: list[str] = []
    real_start = subprocess.Popen
    real_source: Callable[..., str] = opencl_object._source

    def start(command: list[str], **options: Any) -> Any:
        texts.append(" ".join(command))
        if options.get("cwd"):
            texts.extend(path.read_text() for path in Path(options["cwd"]).glob("*.c"))
            texts.extend(path.name for path in Path(options["cwd"]).iterdir())
        return real_start(command, **options)

    def source(*arguments: Any) -> str:
        texts.append(real_source(*arguments))
        return texts[-1]

    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compilers.subprocess, "Popen", start)
    monkeypatch.setattr(opencl_object, "_source", source)
    yield texts
    text = "\n".join(texts)
    assert "kernels_0.c" in text, "a kernel was compiled"
    assert "__kernel" in text, "OpenCL kernels were printed"
    for part in (MARK, MARK.lower(), "etc/hostname", "\u202e", "??/"):
        assert part not in text


def _names(shift: int) -> Callable[[], str]:
    """Hostile names, all different, that start with another one for each `shift`."""
    endless = cycle(HOSTILE[shift:] + HOSTILE[:shift])
    count = iter(range(10_000))
    return lambda: f"{next(endless)}{next(count)}"


def _plain() -> Callable[[], str]:
    count = iter(range(10_000))
    return lambda: f"plain{next(count)}"


def _metadata(message: Any, name: Callable[[], str]) -> None:
    entry = message.metadata_props.add()
    entry.key, entry.value = name(), name()
    entry = message.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", repr(["", name()])


def _onnx_model(name: Callable[[], str]) -> onnx.ModelProto:
    """A model whose every text is hostile, and which is valid all the same."""
    domain, op, inner, dim, x, m, w, flag, y, z, body = (name() for _ in range(11))

    def node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
        made = helper.make_node(kind, inputs, outputs, name=name(), doc_string=name(), **attributes)
        _metadata(made, name)
        return made

    taken = [
        helper.make_graph([node(kind, [m], [each])], name(), [], [_value(each, [dim, 8])])
        for kind, each in (("Exp", name()), ("Tanh", name()))
    ]
    call = node(op, [m], [body], domain=domain)
    call.attribute.add(name=name(), type=onnx.AttributeProto.STRING, s=name().encode())
    nodes = [
        node("MatMul", [x, w], [m]),
        call,
        node("If", [flag], [y], then_branch=taken[0], else_branch=taken[1]),
        node("Add", [y, body], [z]),
    ]
    function = helper.make_function(
        domain, op, [inner], [y], [node("Softmax", [inner], [y])], [helper.make_opsetid("", 17)]
    )
    function.doc_string = name()
    weights = np.eye(8, dtype=np.float32) * 0.5
    graph = helper.make_graph(
        nodes,
        name(),
        [_value(x, [dim, 8]), _value(flag, [], TensorProto.BOOL)],
        [_value(z, [dim, 8])],
        [onnx.numpy_helper.from_array(weights, w)],
        name(),
        [_value(m, [name(), 8])],
    )
    graph.initializer[0].doc_string = name()
    graph.quantization_annotation.add(tensor_name=name())
    _metadata(graph, name)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[function])
    model.ir_version = 10
    model.producer_name, model.producer_version, model.domain = name(), name(), name()
    model.doc_string = name()
    _metadata(model, name)
    return model


def _value(name: str, shape: list[Any], element: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    value = helper.make_tensor_value_info(name, element, shape)
    value.doc_string = f"{name}?"
    return value


@pytest.mark.parametrize("shift", [0, 6])
def test_hostile_names_of_an_onnx_model_stay_names(generated: list[str], shift: int) -> None:
    model = _onnx_model(_names(shift))
    module = ingot.compile(model, target=["cpu", "opencl"])
    loaded = ingot.load(module)
    x = np.ones((2, 8), np.float32)
    expected = np.exp(x * 0.5) + 1 / 8
    np.testing.assert_allclose(np.asarray(loaded(x, True)), expected, rtol=1e-5)


def test_an_onnx_model_with_texts_that_are_no_utf8_is_refused_or_runs(generated: list[str]) -> None:
    names = _names(3)
    data = _onnx_model(lambda: f"NAME{names()}").SerializeToString()
    ingot.compile(data, target=["cpu", "opencl"])
    for place in range(0, data.count(b"NAME"), 7):
        parts = data.split(b"NAME")
        broken = (
            b"NAME".join(parts[: place + 1])
            + b"\xff\xfe\xc0\x80"
            + b"NAME".join(parts[place + 1 :])
        )
        with suppress(ingot.CompileError):
            ingot.compile(broken)


def _quoted(text: str) -> str:
    """The text as MLIR writes strings."""
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "
    return "".join(chr(b) if chr(b) in plain else f"\\{b:02X}" for b in text.encode())


_PLACE = "a_name_that_mlir_would_not_let_be_hostile"


def _artifact(name: Callable[[], str], public: str = "main") -> bytes:
    from jaxlib.mlir.dialects import stablehlo

    def quoted() -> str:
        return _quoted(name()) + r"\FF\FE"

    inner, body = quoted(), quoted()
    text = f"""
    module @"{quoted()}" attributes {{mhlo.num_partitions = 1 : i32, test.a = "{quoted()}"}} {{
      func.func public @"{_quoted(public)}"(
          %x: tensor<?x8xf32> {{jax.arg_info = "{quoted()}"}} loc("{quoted()}"),
          %w: tensor<8x8xf32> {{test.b = "{quoted()}"}} loc("{quoted()}"))
          -> (tensor<?x8xf32> {{jax.result_info = "result{quoted()}"}}) {{
        %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
          : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32> loc("{quoted()}")
        %1 = func.call @"{inner}"(%0) : (tensor<?x8xf32>) -> tensor<?x8xf32> loc("{quoted()}")
        %2 = stablehlo.custom_call @Sharding(%1) {{backend_config = "{quoted()}",
          mhlo.sharding = "{quoted()}"}} : (tensor<?x8xf32>) -> tensor<?x8xf32>
          loc("{quoted()}"("{quoted()}":1:2))
        return %2 : tensor<?x8xf32> loc(callsite("{quoted()}" at "{quoted()}":3:4))
      }}
      func.func private @"{inner}"(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {{
        %0 = stablehlo.composite "chlo.{_PLACE}" %x {{composite_attributes = {{a = "{quoted()}"}},
          decomposition = @"{body}"}} : (tensor<?x8xf32>) -> tensor<?x8xf32>
        return %0 : tensor<?x8xf32>
      }}
      func.func private @"{body}"(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {{
        %0 = stablehlo.exponential %x : tensor<?x8xf32> loc("{quoted()}")
        return %0 : tensor<?x8xf32>
      }}
    }}"""
    artifact = bytes(stablehlo.serialize_portable_artifact_str(text, "1.9.0"))
    evil = f'{MARK}"*/;{{\n#include'.encode()
    return artifact.replace(_PLACE.encode(), evil.ljust(len(_PLACE), b"\\"))


@pytest.mark.parametrize("shift", [0, 6])
def test_hostile_names_of_an_artifact_stay_names(generated: list[str], shift: int) -> None:
    loaded = ingot.load(ingot.compile(_artifact(_names(shift)), target=["cpu", "opencl"]))
    x, w = np.ones((2, 8), np.float32), np.eye(8, dtype=np.float32)
    np.testing.assert_allclose(np.asarray(loaded.main(x, w)), np.exp(x), rtol=1e-5)


@pytest.mark.parametrize("public", [*HOSTILE, "init", "", "0main"])
def test_a_public_name_that_is_no_identifier_is_refused(public: str) -> None:
    with pytest.raises(ingot.CompileError, match="cannot name a function"):
        ingot.compile(_artifact(_plain(), public))


def test_a_public_name_in_other_letters_names_kernels_in_plain_ones(generated: list[str]) -> None:
    module = ingot.compile(_artifact(_plain(), "größe"), target=["cpu", "opencl"])
    assert list(ingot.load(module).functions) == ["größe"]
    assert all(text.isascii() for text in generated if "main_" in text or "_dispatch_" in text)


def test_a_program_may_have_functions_named_like_kernels(generated: list[str]) -> None:
    body = "(%x: f32[n]) -> (f32[n]) { %y = exp(%x) : f32[n] return(%y) }"
    names = ["main", "main_dispatch_0_exp", "main_dispatch_0_exp_"]
    text = "module {} { " + " ".join(f"func @{name}{body}" for name in names) + " }"
    model = ingot.load(ingot.compile(text, target=["cpu", "opencl"]))
    assert set(model.functions) == set(names)
    np.testing.assert_allclose(np.asarray(model.main_dispatch_0_exp(np.zeros(3, np.float32))), 1)


LONG = "n" * 4096


@pytest.mark.parametrize("kind", ["external weight", "variable"])
def test_names_longer_than_the_module_format_takes_are_refused(kind: str) -> None:
    def compile(name: str) -> bytes:
        weight = onnx.numpy_helper.from_array(np.ones(4, np.float32), name)
        ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [4]) for end in "xy"]
        names = ["x", name]
        if kind == "variable":
            names = [name, "x"]
            ends.insert(0, helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]))
        node = helper.make_node("Add", names, ["y"])
        weights = [weight] if kind == "external weight" else []
        graph = helper.make_graph([node], "main", ends[:-1], ends[-1:], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        state = {"y": name} if kind == "variable" else None
        return bytes(ingot.compile(model, parameters="external", state=state))

    with pytest.raises(
        ingot.CompileError, match=rf"name of the {kind} 'n{{80}}\.\.\.' has 4096 bytes"
    ):
        compile(LONG)
    weights = {LONG[1:]: np.ones(4, np.float32)} if kind == "external weight" else None
    ingot.load(compile(LONG[1:]), parameters=weights)


def test_other_names_of_a_module_have_the_same_length() -> None:
    text = 'module {} { func @main(%x: f32[4]) -> (f32[4]) { %w = parameter() {key="w", '
    text += 'scope="", dtype=f32, shape=[4]} : f32[4] %y = add(%x, %w) : f32[4] return(%y) } }'
    with pytest.raises(ingot.CompileError, match=r"name of the scope 'n.* has 4096 bytes"):
        ingot.compile(text, scope=LONG)
    native = text[: text.index("%w =")] + f'%y = native_call(%x) {{name="{LONG}", '
    native += 'signature="(f32[n]) -> (f32[n])"} : f32[4] return(%y) } }'
    with pytest.raises(ingot.CompileError, match=r"the native function 'n.* has 4096 bytes"):
        ingot.compile(native)
    with pytest.raises(ingot.CompileError, match=r"requires\['n{80}'\]: write the name of a"):
        ingot.compile(text, requires={LONG: 1})


@pytest.mark.parametrize(
    "op",
    [
        'call(%x) {function="main", types=[!f32[4]]}',
        'call(%x) {function="other", types=[!f32[4]]}',
        "global() {index=7, dtype=f32, shape=[4]}",
    ],
)
def test_what_only_the_compiler_makes_is_refused(op: str) -> None:
    text = (
        f"module {{}} {{ func @main(%x: f32[4]) -> (f32[4]) {{ %y = {op} : f32[4] return(%y) }} }}"
    )
    with pytest.raises(ingot.CompileError, match="of 'main' is one that only the compiler makes"):
        ingot.compile(text)
