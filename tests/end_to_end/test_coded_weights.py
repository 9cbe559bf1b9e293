"""Weights of matrix products behind a DequantizeLinear stay packed codes, whatever their scales."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.ops import Constant, DotCoded, Global
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.graph.references.leaves import literal_of
from ingot.compiler.ir import Module, Op, Value, walk
from ingot.compiler.read_source import read_source
from ingot.hal.spec import dtype
from tests.support.compiled_programs import Program, build
from tests.support.devices import best_variant, load_everywhere
from tests.support.rounding import rounded

Array = np.ndarray[Any, Any]
NUMBERS = {
    "INT4": ml_dtypes.int4, "UINT4": ml_dtypes.uint4, "INT2": ml_dtypes.int2,
    "UINT2": ml_dtypes.uint2, "INT8": np.int8, "UINT8": np.uint8,
}  # fmt: skip


class Case:
    """x @ W or x @ W.T, W = (q - z) * s in groups along K (0: per tensor, -1: per column)."""

    def __init__(
        self, k: int, n: int, name: str, group: int, zeros: str = "", turned: bool = False,
        scale: Any = np.float32,
    ) -> None:  # fmt: skip
        info = ml_dtypes.iinfo(NUMBERS[name])
        self.rng = np.random.default_rng(5)
        self.k, self.turned, self.scale = k, turned, scale
        axis, shape = (1, (n, k)) if turned else (0, (k, n))
        small = {0: (), -1: (n,)}.get(group) if group < 1 else list(shape)
        if group > 0:
            small[axis] = -(-k // group)
        q = self.rng.integers(info.min, info.max + 1, shape)
        s = (self.rng.random(small) * 0.1 + 0.01).astype(scale)
        z = self.rng.integers(info.min, info.max + 1, small)
        if zeros == "middle":
            z = np.full(small, (int(info.max) + 1) // 2)
        self.attributes = {"axis": axis, "block_size": group} if group > 0 else {"axis": 1 - axis}
        kind = getattr(TensorProto, name)
        self.initializers = [self._tensor("q", kind, q), numpy_helper.from_array(s, "s")]
        if zeros:
            self.initializers.append(self._tensor("z", kind, z))

        def spread(x: Array) -> Array:
            if group > 0:
                return np.repeat(x, group, axis)[: shape[0], : shape[1]]
            return x[:, None] if turned and group else x

        s64 = s.astype(np.float64)
        weight = (q - (spread(z) if zeros else 0)) * spread(s64)
        self.weight = weight.T if turned else weight

    @staticmethod
    def _tensor(name: str, kind: int, values: Array) -> onnx.TensorProto:
        return helper.make_tensor(name, kind, np.shape(values), np.ravel(values).tolist())

    def model(self, rows: int | str) -> onnx.ModelProto:
        names = [each.name for each in self.initializers]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.scale))
        dot = ("Gemm", {"transB": 1}) if self.turned else ("MatMul", {})
        nodes = [
            helper.make_node("DequantizeLinear", names, ["w"], **self.attributes),
            helper.make_node(dot[0], ["x", "w"], ["p"], **dot[1]),
            helper.make_node("Relu", ["p"], ["y"]),
        ]
        ends = [
            helper.make_tensor_value_info(name, kind, [rows, dim])
            for name, dim in (("x", self.k), ("y", self.weight.shape[1]))
        ]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)

    def check(self, model: Any, rows: int) -> None:
        x = self.rng.standard_normal((rows, self.k)).astype(self.scale)
        wanted = np.maximum(x.astype(np.float64) @ self.weight, 0)
        got = np.asarray(model(x)).astype(np.float64)
        tolerance = 3e-6 if self.scale is np.float32 else 2e-3
        assert np.abs(got - wanted).max() <= tolerance * np.abs(wanted).max()


def ops(module: Module) -> list[Op]:
    return [op for function in module.functions.values() for op in walk(function)]


CASES = {
    "groups": Case(83, 39, "INT4", 32),
    "groups with zeros of a turned weight": Case(72, 50, "UINT4", 24, "drawn", turned=True),
    "zeros in the middle": Case(64, 33, "UINT4", 16, "middle"),
    "groups with signed zeros": Case(64, 40, "INT4", 32, "drawn"),
    "a scale per column": Case(90, 39, "UINT2", -1, "drawn"),
    "a scale per column of a turned weight": Case(77, 40, "INT4", -1, turned=True),
    "a scale": Case(51, 70, "INT2", 0),
    "bytes in groups": Case(96, 48, "INT8", 32, "drawn"),
    "bytes per column": Case(90, 39, "INT8", -1, turned=True),
    "halves": Case(64, 48, "UINT4", 32, "drawn", scale=np.float16),
}


SLOW = ("groups with zeros of a turned weight", "bytes per column")


@pytest.mark.parametrize(
    "name",
    ["groups", *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)],
)
def test_a_weight_in_groups_is_read_packed_by_any_number_of_rows(name: str) -> None:
    case = CASES[name]
    for model in load_everywhere(case.model("rows")).values():
        for rows in (1, 2, 3, 17):
            case.check(model, rows)


@pytest.mark.parametrize(
    "name", [pytest.param("groups that divide", marks=pytest.mark.slow), "bytes in groups"]
)
def test_activations_are_rounded_where_they_are_asked_to_be(name: str) -> None:
    case = {**CASES, "groups that divide": Case(96, 39, "UINT4", 32, "drawn")}[name]
    for model in load_everywhere(case.model("rows"), precision="int8").values():
        for rows in (1, 2, 3, 17):
            x = case.rng.standard_normal((rows, case.k)).astype(np.float32)
            x[:, :32] = 0
            wanted = np.maximum(rounded(x, 32) @ case.weight, 0)
            got = np.asarray(model(x)).astype(np.float64)
            assert np.abs(got - wanted).max() <= 3e-6 * np.abs(wanted).max()
            exact = np.maximum(x @ case.weight, 0)
            assert np.abs(wanted - exact).max() > 1e-4 * np.abs(exact).max()


def test_the_report_of_a_target_tells_which_codes_it_multiplies_as_floats() -> None:
    options = {"precision": "int8", "variants": [best_variant()], "target": ["cpu", "opencl"]}
    report = ingot.compile(CASES["bytes in groups"].model(3), **options).report
    (layer,) = report.targets["opencl"].as_floats
    assert not report.targets["cpu"].as_floats
    assert f"1 layer of codes multiplied as floats: {layer}" in report.text()


def test_the_report_tells_what_is_rounded() -> None:
    options = {"precision": "int8", "variants": [best_variant()]}
    report = ingot.compile(CASES["bytes in groups"].model(3), **options).report
    assert report.rounded_rows == 1
    assert "1 product with activations of 8 bits" in report.text()
    report = ingot.compile(CASES["groups"].model(3), **options).report
    assert report.rounded_rows == 0
    assert "groups of 32 do not divide rows of 83 in words of 4" in report.text()
    with pytest.raises(ingot.InvalidArgument, match="precision='int4' is not known; there are"):
        ingot.compile(CASES["groups"].model(3), precision="int4")


@pytest.mark.parametrize("name", CASES)
def test_the_graph_keeps_codes_and_says_the_same(name: str) -> None:
    case = CASES[name]
    module = run_graph_passes(read_source(case.model(3)))
    names = [op.name for op in ops(module)]
    assert names.count("dot_coded") == 1, names
    assert not {"dot_packed", "dot_general"} & set(names)
    state = interpret(module, "init", []) if "init" in module.functions else []
    for op in ops(module):  # results of `init` as constants
        if op.name == "global":
            found = Global.of(op)
            literal = literal_of(state[found.index], found.dtype)
            op.name, op.attributes = "constant", Constant(literal)
    case.check(lambda x: interpret(module, "main", [x])[0], 3)


@pytest.mark.parametrize(
    "case", [Case(64, 48, "INT4", 12), Case(64, 48, "UINT2", 8)],
    ids=["groups of no whole lines", "short groups"],
)  # fmt: skip
def test_other_weights_are_floats_as_before(case: Case) -> None:
    module = run_graph_passes(read_source(case.model(3)))
    assert "dot_coded" not in [op.name for op in ops(module)]
    case.check(ingot.load(ingot.compile(case.model(3), variants=[best_variant()])), 3)


def test_a_large_weight_is_packed_when_the_module_is_made() -> None:
    case = Case(512, 512, "UINT4", 32, "drawn")
    module = ingot.compile(case.model(1), variants=[best_variant()])
    codes, scales, zeros = 512 * 512 // 2, 16 * 512 * 4, 16 * 512
    assert module.report.constant_length <= codes + scales + zeros + 3 * 64
    case.check(ingot.load(module), 1)


def test_weights_that_come_later_are_packed_at_load() -> None:
    case = Case(128, 96, "INT8", 32, "drawn")
    module = ingot.compile(case.model("rows"), parameters="external", variants=[best_variant()])
    parameters = {each.name: numpy_helper.to_array(each) for each in case.initializers}
    case.check(ingot.load(module, parameters=parameters), 2)


def test_scales_may_be_rounded_very_many_times() -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        q = b.op("parameter", scope="", key="q", dtype=dtype("i4"), shape=(64, 32))
        s = b.op("parameter", scope="", key="s", dtype=dtype("f32"), shape=(32,))
        for name in ("f16", "f32") * 600:
            s = b.op("convert", s, dtype=dtype(name))
        s = b.op("broadcast", s, shape=(64, 32), dimensions=(1,))
        return [x_times(b, x, b.op("mul", b.op("convert", q, dtype=dtype("f32")), s))]

    module = build(make, ("f32", (3, 64)))
    compiled = ingot.compile(module, variants=[best_variant()])
    assert "dot_coded" in [op.name for op in ops(run_graph_passes(module))]
    rng = np.random.default_rng(0)
    q = rng.integers(-8, 8, (64, 32)).astype(ml_dtypes.int4)
    s = rng.random(32).astype(np.float32)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    got = np.asarray(ingot.load(compiled, parameters={"q": q, "s": s})(x))
    rounded = s.astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(got, x @ (q.astype(np.float32) * rounded), rtol=1e-4, atol=1e-4)


def test_groups_may_be_an_axis_of_the_weight_when_it_is_scaled() -> None:
    rng = np.random.default_rng(1)
    q = rng.integers(-8, 8, (4, 32, 24)).astype(ml_dtypes.int4)
    s = rng.random((4, 24)).astype(np.float32)

    def make(b: Builder, x: Value) -> list[Value]:
        codes = b.op("convert", b.constant(q.reshape(128, 24)), dtype=dtype("f32"))
        codes = b.op("reshape", codes, shape=(4, 32, 24))
        scales = b.op("broadcast", b.constant(s), shape=(4, 32, 24), dimensions=(0, 2))
        w = b.op("transpose", b.op("reshape", b.op("mul", codes, scales), shape=(128, 24)),
                 permutation=(1, 0))  # fmt: skip
        sides = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (1,)}
        return [b.op("dot_general", w, x, **sides)]

    program = Program(build(make, ("f32", (3, 128))))
    dots = [op for op in ops(run_graph_passes(program.reference)) if op.name == "dot_coded"]
    assert [DotCoded.of(op).group for op in dots] == [32]
    x = rng.standard_normal((3, 128)).astype(np.float32)
    wanted = (q.astype(np.float32) * s[:, None]).reshape(128, 24).T @ x.T
    for target in program.models:
        np.testing.assert_allclose(program.call(x, target=target)[0], wanted, atol=1e-4)


def x_times(b: Builder, x: Value, w: Value) -> Value:
    sides = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,)}
    return b.op("dot_general", x, w, **sides)


@pytest.mark.parametrize("name", ["i4", "u4"])
def test_parameters_of_a_byte_each_become_packed_codes(name: str) -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        q = b.op("parameter", scope="", key="q", dtype=dtype(name), shape=(64, 40))
        w = b.op("convert", q, dtype=dtype("f32"))
        return [x_times(b, x, b.op("mul", w, b.full(0.5, "f32", (64, 40))))]

    module = build(make, ("f32", (3, 64)))
    compiled = ingot.compile(module, variants=[best_variant()])
    dots = [op for op in ops(run_graph_passes(module)) if op.name == "dot_coded"]
    assert [DotCoded.of(op).coding.name for op in dots] == [name]
    rng = np.random.default_rng(0)
    info = ml_dtypes.iinfo(dtype(name).numpy)
    q = rng.integers(info.min, info.max + 1, (64, 40)).astype(dtype(name).numpy)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    got = np.asarray(ingot.load(compiled, parameters={"q": q})(x))
    np.testing.assert_allclose(got, x @ (q.astype(np.float32) * 0.5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "codings"), [("i8", ["i4", "i2"]), ("u8", ["u8", "u8"])])
def test_bytes_shifted_with_copies_of_their_top_bit_are_narrow_only_if_signed(
    name: str, codings: list[str]
) -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        q = b.op("parameter", scope="", key="q", dtype=dtype(name), shape=(64, 32))
        shifted = [b.op("shift_right_arithmetic", q, b.full(s, name, (64, 32))) for s in (4, 6)]
        return [x_times(b, x, b.op("convert", each, dtype=dtype("f32"))) for each in shifted]

    module = build(make, ("f32", (3, 64)))
    compiled = ingot.compile(module, variants=[best_variant()])
    dots = [op for op in ops(run_graph_passes(module)) if op.name == "dot_coded"]
    assert [DotCoded.of(op).coding.name for op in dots] == codings
    rng = np.random.default_rng(0)
    q = rng.integers(0, 256, (64, 32), np.uint8).view(dtype(name).numpy)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    results = ingot.load(compiled, parameters={"q": q})(x)
    for places, got in zip((4, 6), results, strict=True):
        wanted = (q.view(np.int8) >> places).view(q.dtype).astype(np.float32)
        np.testing.assert_allclose(np.asarray(got), x @ wanted, rtol=1e-4, atol=1e-3)
