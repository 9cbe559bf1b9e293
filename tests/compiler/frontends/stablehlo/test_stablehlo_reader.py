"""The own reader of portable artifacts agrees with jaxlib's, for all versions and dtypes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax._src.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from ingot.compiler.frontends.stablehlo import import_stablehlo, read_artifact
from ingot.compiler.frontends.stablehlo.reading.attributes import read_attribute, read_type
from ingot.compiler.frontends.stablehlo.reading.cursor import Cursor
from ingot.compiler.frontends.stablehlo.reading.program import (
    Constant,
    OtherType,
    SourceBlock,
    SourceProgram,
    TupleType,
)
from ingot.hal.errors import CompileError, DataLoss, Error, Incompatible
from tests.support.stablehlo_cases import artifact, export, normal, spec

VERSIONS = [
    "0.9.0",
    "0.10.0",
    "0.12.0",
    "0.13.0",
    "0.14.0",
    "0.15.0",
    "0.17.0",
    "0.19.0",
    "1.0.0",
    "1.4.0",
    "1.8.0",
    "1.12.0",
]


def everything(x: Any, w: Any) -> Any:
    """Regions in regions, inner functions, packed and splat constants, several dtypes."""
    y = jax.nn.softmax(x @ w)
    looped = lax.fori_loop(0, 3, lambda i, a: jnp.where(a > i, a * 2.0, a + i), y)
    mask = jnp.where(looped > 0, np.array([[True, False, True]]), False)
    half = looped.astype(jnp.bfloat16) * jnp.bfloat16(2.5)
    return (
        jnp.sort(looped),
        jnp.argmax(looped, -1),
        mask,
        half,
        lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    )


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "everything": (everything, spec(2, 4), spec(4, 3)),
    "symbolic": (
        lambda x: jnp.mean(x, 0) + x.shape[0],
        spec(*jax.export.symbolic_shape("b, 4")),
    ),
    "convolution": (
        lambda x, w: lax.reduce_window(
            lax.conv_general_dilated(x, w, (2, 1), "SAME"),
            0.0,
            lax.add,
            (1, 1, 2, 2),
            (1, 1, 2, 2),
            "SAME",
        ),
        spec(1, 3, 8, 8),
        spec(4, 3, 3, 3),
    ),
    "indexed": (lambda t, i: t.at[i].add(t[i] * 2), spec(9, 4), spec(3, dtype="int32")),
    "random": (
        lambda k: jax.random.normal(jax.random.wrap_key_data(k), (4,)),
        spec(2, dtype="uint32"),
    ),
}


Row = tuple[str, list[int], list[str], int]


def jaxlib_ops(artifact: bytes) -> list[Row]:
    """(name, operands by number, result types, regions) of each op below the module."""
    context = jax_mlir.make_ir_context()
    numbers: dict[Any, int] = {}
    found: list[Row] = []

    def visit(operation: Any) -> None:
        for region in operation.regions:
            for block in region:
                numbers.update((value, len(numbers) + i) for i, value in enumerate(block.arguments))
                for each in block:
                    op = each.operation
                    operands = [numbers[value] for value in op.operands]
                    numbers.update((value, len(numbers) + i) for i, value in enumerate(op.results))
                    results = [str(value.type) for value in op.results]
                    found.append((op.name, operands, results, len(op.regions)))
                    visit(op)

    with context, ir.Location.unknown():
        visit(stablehlo.deserialize_portable_artifact(context, artifact).operation)
    return found


def own_ops(program: SourceProgram) -> list[Row]:
    numbers: dict[Any, int] = {}
    found: list[Row] = []

    def visit(block: SourceBlock) -> None:
        numbers.update((value, len(numbers) + i) for i, value in enumerate(block.arguments))
        for op in block.ops:
            operands = [numbers[value] for value in op.operands]
            numbers.update((value, len(numbers) + i) for i, value in enumerate(op.results))
            results = [_mlir_type(value.type) for value in op.results]
            found.append((op.name, operands, results, len(op.regions)))
            for region in op.regions:
                for inner in region:
                    visit(inner)

    for function in program.functions.values():
        found.append(("func.func", [], [], 1))
        visit(function.body)
    return found


def _mlir_type(type: Any) -> str:
    dims = [f"{'?' if dim is None else dim}x" for dim in type.shape]
    element = f"u{type.element}" if type.element.startswith("u") else type.element
    return f"tensor<{''.join(dims)}{element.replace('uu', 'ui')}>"


@pytest.mark.parametrize("name", PROGRAMS)
def test_ops_operands_types_and_regions_are_those_that_jaxlib_reads(name: str) -> None:
    function, *specs = PROGRAMS[name]
    artifact = export(function, *specs).mlir_module_serialized
    wanted = jaxlib_ops(artifact)
    found = own_ops(read_artifact(artifact))
    assert len(found) == len(wanted)
    for own, reference in zip(found, wanted, strict=True):
        assert reference[0].rpartition(".")[2].rstrip("_") == own[0].rpartition(".")[2]
        assert own[1:] == reference[1:]


@pytest.mark.parametrize("version", [*VERSIONS, stablehlo.get_current_version()])
def test_every_version_reads_as_the_same_program(version: str) -> None:
    text = export(everything, spec(2, 4), spec(4, 3)).mlir_module()
    newest = read_artifact(
        stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version())
    )
    program = read_artifact(stablehlo.serialize_portable_artifact_str(text, version))
    assert program.version == version
    assert own_ops(program) == own_ops(newest)
    for old, new in zip(_constants(program), _constants(newest), strict=True):
        np.testing.assert_array_equal(old.array, new.array)


def _constants(program: SourceProgram) -> list[Constant]:
    ops = [op for function in program.functions.values() for op in function.body.walk()]
    return [op.attributes["value"] for op in ops if op.name == "constant"]


@pytest.mark.parametrize("version", ["0.9.0", "0.15.0", "1.15.0"])
def test_a_function_without_a_body_is_a_declaration(version: str) -> None:
    text = """
      func.func private @elsewhere(tensor<4xf32>) -> tensor<4xf32>
      func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
        %0 = {} : {}tensor<4xf32>
        return %0 : tensor<4xf32>
      }}"""
    called = text.format("func.call @elsewhere(%a)", "(tensor<4xf32>) -> ")
    unused = text.format("stablehlo.add %a, %a", "")
    artifacts = [
        stablehlo.serialize_portable_artifact_str(each, version) for each in (unused, called)
    ]
    assert list(read_artifact(artifacts[0]).functions) == ["main"]
    import_stablehlo(artifacts[0])
    with pytest.raises(CompileError, match="'elsewhere' that it stands for has no body"):
        import_stablehlo(artifacts[1])


NARROW = ["int4", "uint4", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"]


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 7), (0, 4)])
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "uint32", "float16", "float32", *NARROW]
)
def test_constants_of_every_dtype_keep_their_values(dtype: str, shape: tuple[int, ...]) -> None:
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.abs(normal(*shape) * 3).astype(numpy_dtype)
    if numpy_dtype.kind in "bi" and shape:
        values = (np.arange(values.size).reshape(shape) % 3 - 1).astype(numpy_dtype)
    artifact = export(lambda x: (jnp.asarray(values), x), spec(2)).mlir_module_serialized
    found = _constants(read_artifact(artifact))
    assert [(each.array.shape, each.array.dtype) for each in found] == [(shape, numpy_dtype)]
    np.testing.assert_array_equal(found[0].array, values)


def test_a_splat_takes_no_memory() -> None:
    artifact = export(lambda x: x + jnp.full((1000, 1000), 2.5), spec(1000, 1000))
    program = read_artifact(artifact.mlir_module_serialized)
    (constant,) = _constants(program)
    assert constant.array.strides == (0,) * constant.array.ndim


def test_large_constants_share_the_memory_of_the_artifact() -> None:
    weight = normal(100, 100)
    artifact = bytearray(export(lambda x: x @ weight, spec(2, 100)).mlir_module_serialized)
    (constant,) = _constants(read_artifact(artifact))
    assert np.shares_memory(constant.array, np.frombuffer(artifact, np.uint8))
    np.testing.assert_array_equal(constant.array, weight)


def test_locations_are_layer_names() -> None:
    def layers(x: Any) -> Any:
        with jax.named_scope("encoder"):
            return jnp.tanh(x)

    program = read_artifact(export(layers, spec(2)).mlir_module_serialized)
    (op,) = [op for op in program.functions["main"].body.ops if op.name == "tanh"]
    assert op.location.endswith("encoder/tanh")


def test_the_serialized_jax_export_reads_as_the_artifact_in_it() -> None:
    exported = export(everything, spec(2, 4), spec(4, 3))
    assert own_ops(read_artifact(bytes(exported.serialize()))) == own_ops(
        read_artifact(exported.mlir_module_serialized)
    )


ARTIFACT = bytes(export(everything, spec(2, 4), spec(4, 3)).mlir_module_serialized)


def test_a_truncated_artifact_is_data_loss_at_every_length() -> None:
    for length in range(4, len(ARTIFACT), 5):
        with pytest.raises((DataLoss, CompileError)):
            read_artifact(ARTIFACT[:length])


@pytest.mark.slow
def test_a_corrupted_artifact_is_an_error_or_another_program() -> None:
    random = np.random.default_rng(0)
    errors = 0
    for _ in range(600):
        broken = bytearray(ARTIFACT)
        broken[random.integers(len(broken))] = random.integers(256)
        try:
            read_artifact(broken)
        except Error:
            errors += 1
    assert errors > 100


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", CompileError, "no StableHLO portable artifact"),
        (b"not an artifact at all", CompileError, "no StableHLO portable artifact"),
        (b"ML\xefR\x0dMLIR20\x00", CompileError, "MLIR bytecode by 'MLIR20'"),
        (b"ML\xefR\x0dStableHLO_v2.0.0\x00", Incompatible, "StableHLO 2.0.0"),
        (b"ML\xefR\x15StableHLO_v1.0.0\x00", Incompatible, "format 10"),
        (b"ML\xefR\x0dStableHLO_v1.0.0\x00", DataLoss, "section of strings is missing"),
    ],
)
def test_what_is_no_readable_artifact_is_an_error_that_says_why(
    data: bytes, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_artifact(data)


def test_tuples_of_tuples_take_no_more_than_their_bytes() -> None:
    count = 17  # jaxlib itself takes twice as long for each one more
    types = [f"!t{k} = tuple<!t{k - 1}, !t{k - 1}>" for k in range(1, count)]
    ops = [f"%t{k} = stablehlo.tuple %t{k - 1}, %t{k - 1} : !t{k}" for k in range(1, count)]
    text = "\n".join(
        [
            "!t0 = tuple<tensor<f32>, tensor<f32>>",
            *types,
            "func.func @main(%x: tensor<f32>) -> tensor<f32> {",
            "%t0 = stablehlo.tuple %x, %x : !t0",
            *ops,
            "return %x : tensor<f32> }",
        ]
    )
    data = artifact(text)
    assert len(data) < 1000
    with pytest.raises(DataLoss, match="too many values"):
        read_artifact(data)


class Tables:
    """Tables of an artifact whose attribute 0 and type 0 are the ones given."""

    def __init__(self, attribute: Any = None, type: Any = None) -> None:
        self._attribute, self._type = attribute, type

    def string(self, cursor: Cursor) -> str:
        return ""

    def attribute(self, cursor: Cursor) -> Any:
        cursor.unsigned()
        return self._attribute

    def type(self, cursor: Cursor) -> Any:
        cursor.unsigned()
        return self._type


ZERO = b"\x01"


@pytest.mark.parametrize(
    ("code", "type"),
    [(8, OtherType("i" + str(1 << 60))), (8, TupleType(())), (9, TupleType(()))],
    ids=["width", "integer", "float"],
)
def test_numbers_of_no_type_of_numbers_are_data_loss(code: int, type: Any) -> None:
    data = memoryview(bytes([code << 1 | 1]) + 2 * ZERO)
    with pytest.raises(DataLoss, match="type"):
        read_attribute("builtin", Cursor(data, "attributes"), Tables(type=type))


@pytest.mark.parametrize(
    ("code", "type"),
    [(1, TupleType(())), (1, OtherType("x" * 65)), (25, TupleType(())), (24, TupleType(()))],
    ids=["complex", "long", "unranked", "quantised"],
)
def test_elements_of_no_type_of_elements_are_data_loss(code: int, type: Any) -> None:
    data = memoryview(bytes([code << 1 | 1]) + 3 * ZERO)
    with pytest.raises(DataLoss, match="elements have a type"):
        read_type("vhlo", Cursor(data, "types"), Tables(type=type))


@pytest.mark.parametrize("code", [1, 11, 14, 22], ids=["dictionary", "file", "name", "range"])
def test_names_that_are_no_strings_are_data_loss(code: int) -> None:
    data = memoryview(bytes([code << 1 | 1]) + 3 * b"\x03")
    with pytest.raises(DataLoss, match="a name is no string"):
        read_attribute("builtin", Cursor(data, "attributes"), Tables(attribute=((),)))
