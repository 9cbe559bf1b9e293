"""Ops of the user's own in ONNX models, StableHLO, and from packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import ingot
from ingot import ops
from ingot.compiler.frontends import own_ops
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import verify
from ingot.compiler.read_source import read_source

X = np.array([[1, -2], [-3, 4]], np.float32)


@pytest.fixture(autouse=True)
def _own() -> Iterator[None]:
    """No op is left behind for other tests."""
    before = dict(own_ops._own)
    yield
    own_ops._own.clear()
    own_ops._own.update(before)


def model(nodes: str, result: str = "float[n, 2] y") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["": 20, "com.acme": 1, "com.microsoft": 1]>
    model (float[n, 2] x) => ({result}) {{ {nodes} }}
    """)


def run(source: Any, *arrays: Any) -> list[Any]:
    module = read_source(source)
    verify(module, GRAPH)
    return [np.asarray(each) for each in interpret(module, "main", arrays)]


# ---- ONNX


def test_a_node_of_an_own_domain() -> None:
    seen: list[Any] = []

    @ingot.lowering("com.acme", "Leak")
    def leak(x: Any, y: Any = None, *, alpha: float = 1.0, **rest: Any) -> Any:
        seen.append((y, rest))
        return ops.where(x > 0, x, alpha * x), ops.asarray(x.shape[0])

    source = model(
        'a, n = com.acme.Leak <alpha = 0.5, names = ["p", "q"], sizes = [1, 2], text = "t", '
        "scales = [0.5], table = float[2] {1, 2}> (x)\n y = Neg(a)"
    )
    (got,) = run(source, X)
    assert got.tolist() == [[-1, 1], [1.5, -4]]
    ((y, rest),) = seen
    assert y is None
    assert rest.pop("table").tolist() == [1, 2]
    assert rest == {"names": ["p", "q"], "sizes": [1, 2], "text": "t", "scales": [0.5]}


def test_control_flow_and_sizes_from_data_in_a_lowering_compile() -> None:
    @ingot.lowering("com.acme", "Keep")
    def keep(x: Any) -> Any:
        flat = ops.reshape(x, (-1,))
        doubled = ops.fori_loop(0, 2, lambda i, v: v + v, flat)
        return doubled[flat > 0]

    source = model("y = com.acme.Keep(x)", "float[m] y")
    module = ingot.compile(source)
    assert np.asarray(ingot.load(module)(X)).tolist() == [4, 16]
    layers = {op.location for op in read_source(source).functions["main"].block.ops}
    assert layers <= {"Keep_0", ""}


def test_what_the_user_registers_comes_before_what_is_built_in() -> None:
    @ingot.lowering("com.microsoft", "Gelu")
    def gelu(x: Any) -> Any:
        return x * 0

    assert not np.any(run(model("y = com.microsoft.Gelu(x)"), X)[0])


def refused(source: Any) -> str:
    with pytest.raises(ingot.CompileError) as caught:
        read_source(source)
    return str(caught.value)


def test_what_is_wrong_with_a_lowering() -> None:
    source = model("y = com.acme.Mine <beta = 2> (x)")
    assert "give it a lowering with @ingot.lowering or declare it with natives=" in refused(source)

    @ingot.lowering("com.acme", "Mine")
    def narrow(x: Any) -> Any:
        return x

    text = refused(source)
    assert "layer 'Mine_0'" in text
    assert "narrow (test_own_ops.py:" in text
    assert "does not take its 1 operands and the attributes ['beta']" in text

    @ingot.lowering("com.acme", "Mine")
    def broken(x: Any, beta: int) -> Any:
        return x + ops.zeros((3, 7))

    assert "test_own_ops.py:" in refused(source)
    assert "add: shapes [n,2] and [3,7] do not broadcast" in refused(source)

    @ingot.lowering("com.acme", "Mine")
    def failing(x: Any, beta: int) -> Any:
        raise KeyError("table")

    assert "failed: KeyError: 'table'" in refused(source)

    @ingot.lowering("com.acme", "Mine")
    def text_of(x: Any, beta: int) -> Any:
        return "text"

    assert "a result of text_of" in refused(source)
    for domain in ("", "ai.onnx", "ai.onnx.ml", "aten"):
        with pytest.raises(ingot.InvalidArgument, match="no op of your own"):
            ingot.lowering(domain, "Relu")


# ---- StableHLO


def test_a_custom_call() -> None:
    jax = pytest.importorskip("jax")
    call = jax.ffi.ffi_call("acme.scaled", jax.ShapeDtypeStruct((2, 2), np.float32))
    check = jax.export.DisabledSafetyCheck.custom_call("acme.scaled")
    exported = jax.export.export(
        jax.jit(lambda x: call(x, factor=np.float32(3)) + 1), disabled_checks=[check]
    )(jax.ShapeDtypeStruct((2, 2), np.float32))
    assert "the custom call 'acme.scaled': give it a lowering" in refused(exported)

    @ingot.lowering("acme", "scaled")
    def scaled(x: Any, *, factor: float) -> Any:
        return x * factor

    assert run(exported, X)[0].tolist() == (X * 3 + 1).tolist()

    @ingot.lowering("acme", "scaled")
    def integers(x: Any, *, factor: float) -> Any:
        return ops.astype(x, "i32")

    assert "gives i32[2,2], but the program takes f32[2,2]" in refused(exported)


# ---- TFLite


def test_a_custom_op_of_tflite() -> None:
    pytest.importorskip("ai_edge_litert")
    from tests.support.tflite_models import one_op

    outputs = [("int8", (2, 2), (0.5, 3))]
    source, _ = one_op("AcmeScaled", [X], outputs, factor=3.0, of="texts", wide=True, less=-7)
    text = refused(source)
    assert "CUSTOM 'AcmeScaled'(f32[2,2]): the op is not supported; give it a lowering" in text
    seen: dict[str, Any] = {}

    @ingot.lowering("tflite", "AcmeScaled")
    def scaled(x: Any, *, factor: float, **rest: Any) -> Any:
        seen.update(rest)
        return x * factor

    assert run(source, X)[0].tolist() == (X * 6 + 3).tolist()
    assert seen == {"of": "texts", "wide": True, "less": -7}
    damaged = source.replace(b"factor\0", b"facto\xff\0", 1)
    assert "does not take its 1 operands" in refused(damaged)


# ---- packages


def install(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with lowerings, which Python finds."""
    (folder / "acme_ops.py").write_text(code)
    info = folder / "acme_ops-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-ops\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ingot.lowerings]\nacme = acme_ops\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "acme_ops", raising=False)
    own_ops._import_packages.cache_clear()


def test_packages_bring_lowerings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import ingot\n@ingot.lowering('com.acme', 'Twice')\ndef twice(x): return x + x\n"
    install(tmp_path, code, monkeypatch)
    assert run(model("y = Neg(x)"), X)[0].tolist() == (-X).tolist()
    assert "acme_ops" not in sys.modules
    assert run(model("y = com.acme.Twice(x)"), X)[0].tolist() == (X * 2).tolist()


def test_packages_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "import nothing_of_this_name", monkeypatch)
    text = refused(model("y = com.acme.Twice(x)"))
    assert "the lowerings of the package 'acme-ops' (acme_ops) cannot be imported" in text
    own_ops._import_packages.cache_clear()
