"""Every form in which jax gives a program compiles to the same one; damaged ones are refused."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.stablehlo.lowering import Context
from ingot.compiler.frontends.stablehlo.reading import text as reading_text
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_source
from tests.support.stablehlo_cases import export, normal, spec

MHLO = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = mhlo.add %a, %a : tensor<4xf32>
  %1 = "mhlo.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}"""


def model(x: Any) -> Any:
    values, places = jax.lax.top_k(jnp.arcsinh(x), 2)
    return jnp.linalg.cholesky(values[0] * jnp.eye(2, dtype=x.dtype) + 1), places


def sources(folder: Path) -> dict[str, Any]:
    x = spec(3, 4)
    exported, lowered = export(model, x), jax.jit(model).lower(x)
    generic = lowered.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True)
    for name, data in (
        ("pretty.mlir", exported.mlir_module().encode()),
        ("artifact.mlir", exported.mlir_module_serialized),
        ("export.bin", bytes(exported.serialize())),
    ):
        (folder / name).write_bytes(data)
    files = {name: folder / name for name in ("pretty.mlir", "artifact.mlir", "export.bin")}
    texts = {"text": exported.mlir_module(), "lowered": lowered.as_text(), "generic": generic}
    return {**files, **texts, "serialized": exported.serialize(), "exported": exported}


@pytest.mark.slow
def test_a_program_compiles_from_every_form(tmp_path: Path) -> None:
    x = normal(3, 4)
    wanted = jax.tree_util.tree_leaves(jax.jit(model)(x))
    for name, source in sources(tmp_path).items():
        found = interpret(read_source(source), "main", [x])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, err_msg=name)
    (doubled,) = interpret(read_source("module {" + MHLO + "}"), "main", [x[0]])
    np.testing.assert_allclose(doubled, np.tanh(2 * x[0]), rtol=1e-6)


QUANTISED = "tensor<4x!quant.uniform<i8:f32, SCALE:3>>"


@pytest.mark.slow
def test_text_has_quantised_types_beside_ops_of_chlo() -> None:
    """Types of a dialect that jaxlib does not register where it parses modules."""
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %q = stablehlo.uniform_quantize %x
        : (tensor<4xf32>) -> QUANTISED
      %y = stablehlo.uniform_dequantize %q : (QUANTISED) -> tensor<4xf32>
      return %y : tensor<4xf32> }""".replace("QUANTISED", QUANTISED)
    x = np.array([0.6, -1.2, 99, -99], np.float32)
    (found,) = interpret(read_source(text.replace("SCALE", "0.5")), "main", [x])
    np.testing.assert_array_equal(found, np.array([0.5, -1, 62, -65.5], np.float32))
    with pytest.raises(ingot.CompileError, match=r"scale 0\.0.* out of"):
        read_source(text.replace("SCALE", "0.0"))
    doubled = "%q = chlo.broadcast_add %p, %p : (Q, Q) -> Q".replace("Q", QUANTISED)
    both = text.replace("%q =", "%p =").replace("%y =", f"{doubled}\n%z =")
    both = both.replace("return", "%y = chlo.erf %z : tensor<4xf32> -> tensor<4xf32>\nreturn")
    (found,) = interpret(read_source(both.replace("SCALE", "0.5")), "main", [x])
    np.testing.assert_allclose(
        found, jax.scipy.special.erf(np.array([1, -2, 62, -65.5])), rtol=1e-6
    )


def test_the_command_takes_text(tmp_path: Path) -> None:
    path = tmp_path / "twice.mlir"
    path.write_text(MHLO)
    command = [sys.executable, "-m", "ingot", "compile", str(path), "-o", str(tmp_path / "a.ingot")]
    subprocess.run(command, check=True)
    x = normal(4)
    np.testing.assert_allclose(ingot.load(tmp_path / "a.ingot")(x), np.tanh(2 * x), rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "module { func.func @main(",
        "func.func @main() {" + "(" * 500_000,  # which jaxlib's parser does not survive
        "module attributes {a = " + "[" * 500_000 + " stablehlo.add",
        "func.func @main() { return \udcff }",
    ],
    ids=["cut", "deep", "attributes", "surrogates"],
)
def test_text_that_is_not_valid_is_refused(text: str) -> None:
    with pytest.raises(ingot.CompileError, match=r"MLIR text|jaxlib's parser"):
        read_source(text)


@pytest.mark.skipif(sys.platform != "linux", reason="files of limited length")
def test_an_artifact_that_no_disk_takes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
    monkeypatch.setattr(reading_text, "_PROGRAM", limit + reading_text._PROGRAM)
    with pytest.raises(ingot.CompileError, match="File too large"):
        read_source(MHLO)


def test_without_jaxlib_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    program = reading_text._PROGRAM.replace("from jaxlib", "from jaxlib_that_is_not_there")
    monkeypatch.setattr(reading_text, "_PROGRAM", program)
    with pytest.raises(ingot.Unsupported, match="pip install jaxlib"):
        read_source(MHLO)


@pytest.mark.slow
def test_damaged_exports_are_refused_or_read(tmp_path: Path) -> None:
    """Cut and changed bytes of all forms; of text few, since each takes a process."""
    draw = random.Random(0)
    for name, source in sources(tmp_path).items():
        data = source.encode() if isinstance(source, str) else source
        if isinstance(data, Path):
            data = data.read_bytes()
        if not isinstance(data, (bytes, bytearray)):
            continue
        for _ in range(3 if b"func.func" in data else 150):
            changed = bytearray(data[: draw.randrange(len(data) // 2, len(data))])
            for _ in range(draw.randrange(3)):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            try:
                read_source(bytes(changed))
            except (ingot.CompileError, ingot.DataLoss, ingot.Unsupported, ingot.InvalidArgument):
                continue
            except Exception as error:
                raise AssertionError(f"{name}: {bytes(changed)!r}") from error


def test_functions_that_call_the_next_one_twice_end_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Context, "inline", lambda *arguments: pytest.fail("it began"))
    type = "(tensor<4xf32>) -> tensor<4xf32>"
    text = ""
    for number in range(30):
        name = f"func.call @f{number + 1}" if number < 29 else '"stablehlo.negate"'
        text += f"""func.func private @f{number}(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = {name}(%a) : {type}
  %1 = {name}(%0) : {type}
  return %1 : tensor<4xf32>
}}
"""
    text += text.split("}")[0].replace("private @f0", "public @main").replace("@f1", "@f0") + "}"
    with pytest.raises(ingot.CompileError, match="calls of functions become more than 262144 ops"):
        read_source(text)
