"""What cannot be lowered is reported all at once, with layer, types and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.read_source import read_source
from ingot.hal.errors import CompileError, DataLoss, Error, NotFound
from tests.support.stablehlo_cases import export, spec


def test_all_missing_ops_are_listed_with_layer_types_and_advice() -> None:
    def acme(x: Any, name: str = "acme_solve") -> Any:
        return jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    def model(x: Any) -> Any:
        with jax.named_scope("mixer"):
            y = acme(x)
        with jax.named_scope("solver"):
            z = acme(x + 1j, "acme_turn")
        return y, z, lax.fori_loop(0, 3, lambda i, a: acme(a) * i, x)

    unstable = [
        jax.export.DisabledSafetyCheck.custom_call(name) for name in ("acme_solve", "acme_turn")
    ]
    exported = jax.export.export(jax.jit(model), disabled_checks=unstable)(spec(4, 4))
    with pytest.raises(CompileError) as caught:
        import_stablehlo(exported)
    message = str(caught.value)
    for part in ("custom_call at", "mixer", "solver", "c64[4,4]", "acme_turn"):
        assert part in message
    assert "rewrite these layers" in message
    assert message.count("the custom call 'acme_solve") == 1  # the other one is in the loop
    assert "(also in 1 more place" in message


def test_calls_of_python_say_what_to_do() -> None:
    def model(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    text = jax.jit(model).lower(spec(4)).as_text()
    with pytest.raises(CompileError, match=r"it calls Python.* jax\.ffi\.ffi_call and natives="):
        read_source(text)


def test_a_region_that_computes_more_than_elements_names_its_layer_and_why() -> None:
    from jaxlib.mlir.dialects import stablehlo

    text = """
    func.func public @main(%x: tensor<4xf32>, %i: tensor<f32>) -> tensor<f32> {
      %0 = "stablehlo.reduce"(%x, %i) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %1 = stablehlo.custom_call @mystery(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
          stablehlo.return %1 : tensor<f32>
      }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }"""
    artifact = stablehlo.serialize_portable_artifact_str(text, "1.9.0")
    with pytest.raises(CompileError, match=r"reduce.*a region with 'custom_call'"):
        import_stablehlo(artifact)


def test_an_unknown_dtype_is_named() -> None:
    text = """
    func.func public @main(%a: tensor<4xf6E2M3FN>) -> tensor<4xf6E2M3FN> {
      return %a : tensor<4xf6E2M3FN>
    }"""
    from jaxlib.mlir.dialects import stablehlo

    artifact = stablehlo.serialize_portable_artifact_str(text, "1.9.0")
    with pytest.raises(CompileError, match="f6e2m3fn is not supported"):
        import_stablehlo(artifact)


def test_an_unknown_custom_call_is_named() -> None:
    text = """
    func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @secret_kernel(%a) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    from jaxlib.mlir.dialects import stablehlo

    artifact = stablehlo.serialize_portable_artifact_str(text, "1.9.0")
    with pytest.raises(CompileError, match="the custom call 'secret_kernel'"):
        import_stablehlo(artifact)


def test_files_that_are_missing_or_empty_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        import_stablehlo(tmp_path / "model.mlirbc")
    (tmp_path / "empty").touch()
    with pytest.raises(DataLoss, match="is empty"):
        import_stablehlo(tmp_path / "empty")
    with pytest.raises(CompileError, match="expected bytes or a path"):
        import_stablehlo(42)


def test_a_path_imports_as_the_bytes_do(tmp_path: Path) -> None:
    artifact = export(lambda x: x @ np.ones((4, 3), np.float32), spec(2, 4)).mlir_module_serialized
    (tmp_path / "model.mlirbc").write_bytes(artifact)
    for source in (artifact, str(tmp_path / "model.mlirbc"), tmp_path / "model.mlirbc"):
        assert "main" in import_stablehlo(source).functions


@pytest.mark.slow
def test_a_corrupted_artifact_never_gives_another_exception_than_ours() -> None:
    def model(x: Any) -> Any:
        return jnp.sort(jax.nn.softmax(x)), jnp.argmax(x, -1), x.reshape(-1), x[:, 1:]

    (size,) = jax.export.symbolic_shape("b")
    artifact = bytes(export(model, spec(size, 4)).mlir_module_serialized)
    random = np.random.default_rng(0)
    messages = []
    for _ in range(400):
        broken = bytearray(artifact)
        broken[random.integers(len(broken))] = random.integers(256)
        try:
            import_stablehlo(broken)
        except Error as error:
            messages.append(str(error))
    assert len(messages) > 50
    assert all(len(message) > 20 for message in messages)
