"""Ops that few programs hold, compiled, against jax and NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.experimental import sparse

import ingot
from ingot.compiler.frontends.stablehlo.importer import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from tests.support.devices import load_best
from tests.support.stablehlo_cases import (
    artifact,
    assert_gives,
    check,
    check_compiled,
    export,
    integers,
    normal,
    run_compiled,
)

Array = np.ndarray[Any, Any]


CASTS = ["f32 i8 4", "i64 f16 4", "i16 i32 2", "f64 i32 2", "i32 i4 8", "u8 i4 2", "bf16 i8 2"]
NUMPY = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": ml_dtypes.bfloat16}
NUMPY |= {"i4": ml_dtypes.int4, "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"}
NUMPY |= {"u8": "uint8"}


@pytest.mark.parametrize("case", CASTS)
def test_bits_are_seen_as_elements_of_another_width(case: str) -> None:
    one, other, ratio = case.split()
    wide, narrow = np.dtype(NUMPY[one]), np.dtype(NUMPY[other])
    spelled = {"u8": "ui8"}
    a, b = (spelled.get(each, each) for each in (one, other))
    if wide.itemsize * 8 < int("".join(filter(str.isdigit, other))):
        a, b, wide, narrow = b, a, narrow, wide
    rng = np.random.default_rng(0)
    x = rng.integers(1, 60, 3 * wide.itemsize, np.uint8).view(wide)
    text = f"""
    func.func @main(%x: tensor<3x{a}>) -> (tensor<3x{ratio}x{b}>, tensor<3x{a}>) {{
      %0 = stablehlo.bitcast_convert %x : (tensor<3x{a}>) -> tensor<3x{ratio}x{b}>
      %1 = stablehlo.bitcast_convert %0 : (tensor<3x{ratio}x{b}>) -> tensor<3x{a}>
      return %0, %1 : tensor<3x{ratio}x{b}>, tensor<3x{a}>
    }}"""
    parts, back = run_compiled(artifact(text), x)
    assert back.tobytes() == x.tobytes()
    codes = x.view(np.uint8)
    if narrow.itemsize == 1 and other == "i4":
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(-1)
        found = parts.astype(np.int8).reshape(-1).view(np.uint8) & 15
        np.testing.assert_array_equal(found, codes)
    else:
        assert parts.tobytes() == x.tobytes()


def test_precision_is_reduced_as_xla_does() -> None:
    sizes = [(5, 10), (8, 7), (4, 3), (5, 2), (8, 0), (2, 23), (11, 52), (8, 23), (3, 1)]

    def model(x: Any, h: Any) -> Any:
        return [lax.reduce_precision(x, *size) for size in sizes] + [lax.reduce_precision(h, 3, 4)]

    every = np.arange(0, 1 << 32, 65_521, dtype=np.uint32).view(np.float32)
    edges = np.array([0.0, -0.0, np.inf, np.nan, 65519.0, 65520.0, 6e-5], np.float32)
    x = np.concatenate([every, edges])
    h = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    results = load_best(export(model, x, h))(x, h)
    for size, one, other in zip([*sizes, "f16"], results, jax.jit(model)(x, h), strict=True):
        np.testing.assert_array_equal(one.numpy(), np.asarray(other), err_msg=str(size))


def test_precision_of_narrow_floats_is_reduced_as_xla_does() -> None:
    sizes = [(5, 2), (5, 10), (4, 1), (3, 7), (8, 23), (2, 0)]
    kinds = [name for name in dir(ml_dtypes) if name.startswith("float8")]
    every = [np.arange(256, dtype=np.uint8).view(name) for name in kinds]
    every.append(np.arange(16, dtype=np.uint8).view("float4_e2m1fn"))

    def model(*every: Any) -> Any:
        return [lax.reduce_precision(x, *size) for x in every for size in sizes]

    check(model, *every)


def test_triangular_systems_and_factors() -> None:
    a = normal(2, 5, 5)
    spd = a @ a.transpose(0, 2, 1) + 5 * np.eye(5, dtype=np.float32)
    solve = jax.lax.linalg.triangular_solve

    lines, results = [], []
    for place, (left, lower, unit, transposed) in enumerate(
        (left, lower, unit, transposed)
        for left in ("true", "false")
        for lower in ("true", "false")
        for unit in ("true", "false")
        for transposed in ("NO_TRANSPOSE", "TRANSPOSE")
    ):
        b = "%b" if left == "true" else "%c"
        type = "tensor<2x5x3xf32>" if left == "true" else "tensor<2x3x5xf32>"
        lines.append(
            f'%{place} = "stablehlo.triangular_solve"(%a, {b}) {{left_side = {left}, '
            f"lower = {lower}, unit_diagonal = {unit}, "
            f"transpose_a = #stablehlo<transpose {transposed}>}} "
            f": (tensor<2x5x5xf32>, {type}) -> {type}"
        )
        results.append((f"%{place}", type))
    for place, lower in enumerate(("true", "false"), len(results)):
        lines.append(
            f'%{place} = "stablehlo.cholesky"(%s) {{lower = {lower}}} '
            ": (tensor<2x5x5xf32>) -> tensor<2x5x5xf32>"
        )
        results.append((f"%{place}", "tensor<2x5x5xf32>"))
    names, types = (", ".join(column) for column in zip(*results, strict=True))
    program = f"""
    func.func @main(%a: tensor<2x5x5xf32>, %b: tensor<2x5x3xf32>, %c: tensor<2x3x5xf32>,
        %s: tensor<2x5x5xf32>) -> ({types}) {{
      {chr(10).join(lines)}
      return {names} : {types}
    }}"""
    a = a + 4 * np.eye(5, dtype=np.float32)
    b, c = normal(2, 5, 3), normal(2, 3, 5)
    *solved, low, high = run_compiled(artifact(program), a, b, c, spd)
    at = iter(solved)
    for left in (True, False):
        for lower in (True, False):
            for unit in (True, False):
                for transposed in (False, True):
                    wanted = solve(
                        a,
                        b if left else c,
                        left_side=left,
                        lower=lower,
                        unit_diagonal=unit,
                        transpose_a=transposed,
                    )
                    np.testing.assert_allclose(next(at), wanted, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(low, np.linalg.cholesky(spd), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(high, low.transpose(0, 2, 1), rtol=1e-5, atol=1e-6)


def test_batch_normalisation_in_training_and_its_gradient() -> None:
    text = """
    func.func @main(%x: tensor<2x3x4xf32>, %s: tensor<3xf32>, %o: tensor<3xf32>,
        %g: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>,
        tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>) {
      %0:3 = "stablehlo.batch_norm_training"(%x, %s, %o)
        {epsilon = 0.01 : f32, feature_index = 1 : i64}
        : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
        -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
      %1:3 = "stablehlo.batch_norm_grad"(%x, %s, %0#1, %0#2, %g)
        {epsilon = 0.01 : f32, feature_index = 1 : i64}
        : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<2x3x4xf32>)
        -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
      return %0#0, %0#1, %0#2, %1#0, %1#1, %1#2 : tensor<2x3x4xf32>, tensor<3xf32>,
        tensor<3xf32>, tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>
    }"""
    x, s, o, g = normal(2, 3, 4), normal(3, seed=1), normal(3, seed=2), normal(2, 3, 4, seed=3)

    def norm(x: Any, s: Any, o: Any) -> Any:
        mean, variance = x.mean((0, 2)), x.var((0, 2))
        column = (slice(None), None)
        root = jnp.sqrt(variance + 0.01)[column]
        return s[column] * (x - mean[column]) / root + o[column], mean, variance

    found = run_compiled(artifact(text), x, s, o, g)
    wanted, back = jax.vjp(lambda *each: norm(*each)[0], x, s, o)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-5)
    for one, other in zip(found[1:3], norm(x, s, o)[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for one, other in zip(found[3:], back(g), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


CONVOLUTIONS: dict[str, Any] = {
    "batch groups": ((4, 5, 6, 3), (3, 2, 3, 6), {"batch_group_count": 2}),
    "negative padding": ((2, 7, 8, 3), (3, 2, 3, 4), {"padding": ((-1, 2), (1, -2))}),
    "dilations": (
        (2, 7, 8, 4),
        (2, 3, 2, 6),
        {
            "lhs_dilation": (2, 1),
            "rhs_dilation": (1, 2),
            "window_strides": (2, 3),
            "feature_group_count": 2,
            "padding": ((2, 1), (0, 3)),
        },
    ),
    "depthwise": ((1, 6, 6, 4), (3, 3, 1, 8), {"feature_group_count": 4}),
    "empty": ((0, 6, 6, 4), (3, 3, 4, 8), {}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_every_form(name: str) -> None:
    shape, window, options = CONVOLUTIONS[name]
    given = {"window_strides": (1, 1), "padding": ((1, 1), (1, 1)), **options}

    def model(x: Any, w: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, dimension_numbers=numbers, **given)

    check_compiled(model, normal(*shape), normal(*window, seed=1), tolerance=1e-4)
    check_compiled(model, integers(*shape), integers(*window))


def test_products_of_other_dtypes_and_dims() -> None:
    def model(a: Any, b: Any, i: Any, h: Any) -> Any:
        dot = lax.dot_general
        return (
            dot(a, b, (((1, 3), (2, 0)), ((2,), (1,)))),
            dot(a, b, (((), ()), ((), ()))),
            dot(a, a, (((0, 1, 2, 3), (0, 1, 2, 3)), ((), ()))),
            dot(a, a, (((), ()), ((0, 1, 2, 3), (0, 1, 2, 3)))),
            dot(i, i, (((1,), (1,)), ((), ())), preferred_element_type="int32"),
            dot(h, h, (((1,), (1,)), ((), ())), preferred_element_type="float32"),
            dot(a[..., :0], a[..., :0], (((3,), (3,)), ((0,), (0,)))),
        )

    a, b = normal(2, 3, 4, 5), normal(5, 4, 3, 6, seed=1)
    i = integers(4, 7, low=-100, high=100, dtype="int8")
    check_compiled(model, a, b, i, normal(4, 7, dtype="float16"), tolerance=1e-4)


@pytest.mark.slow
def test_random_numbers_of_jax_and_special_functions() -> None:
    def model(x: Any) -> Any:
        key = jax.random.key(7)
        one, two = jax.random.split(key)
        special = jax.scipy.special
        return (
            *(jax.random.uniform(one, (3, 4)), jax.random.normal(two, (5,))),
            *(jax.random.randint(one, (4,), 0, 100), jax.random.permutation(two, 8)),
            *(special.erfc(x), special.erfinv(x / 4), special.gammaln(x + 4)),
            *(special.digamma(x + 4), special.expit(x)),
            *(special.i0e(x), special.i1e(x), jnp.nextafter(x, 0.0), special.logit(x / 8 + 0.5)),
        )

    check_compiled(model, normal(3, 4), tolerance=3e-5)


def test_einsums_selections_and_numbers_of_devices() -> None:
    text = """
    func.func @main(%a: tensor<2x3x4xf32>, %b: tensor<2x4x5xf32>, %i: tensor<2x2xi32>,
        %j: tensor<2xi32>) -> (tensor<2x5x3xf32>, tensor<4xf32>, tensor<2x3x2xf32>,
        tensor<2x2x4xf32>, tensor<ui32>) {
      %0 = "stablehlo.einsum"(%a, %b) {einsum_config = "bij,bjk->bki"}
        : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x5x3xf32>
      %1 = "stablehlo.unary_einsum"(%a) {einsum_config = "bij->j"}
        : (tensor<2x3x4xf32>) -> tensor<4xf32>
      %2 = "stablehlo.torch_index_select"(%a, %i) {dim = 2 : i64, batch_dims = 1 : i64}
        : (tensor<2x3x4xf32>, tensor<2x2xi32>) -> tensor<2x3x2xf32>
      %3 = "stablehlo.torch_index_select"(%a, %j) {dim = 1 : i64, batch_dims = 0 : i64}
        : (tensor<2x3x4xf32>, tensor<2xi32>) -> tensor<2x2x4xf32>
      %4 = "stablehlo.partition_id"() : () -> tensor<ui32>
      return %0, %1, %2, %3, %4 : tensor<2x5x3xf32>, tensor<4xf32>, tensor<2x3x2xf32>,
        tensor<2x2x4xf32>, tensor<ui32>
    }"""
    a, b = normal(2, 3, 4), normal(2, 4, 5)
    i, j = np.array([[3, 0], [1, 1]], np.int32), np.array([2, 0], np.int32)
    product, total, batched, rows, device = run_compiled(artifact(text), a, b, i, j)
    np.testing.assert_allclose(product, np.einsum("bij,bjk->bki", a, b), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, a.sum((0, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(batched, np.stack([a[n][:, i[n]] for n in range(2)]))
    np.testing.assert_array_equal(rows, a[:, j])
    assert device == 0


def test_what_one_device_exchanges_is_its_own() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    whole, rows = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("d")

    def exchange(x: Any, z: Any) -> list[Any]:
        here, nowhere = [(0, 0)], []
        return [
            lax.psum(x, "d"), lax.pmax(x, "d"), lax.all_gather(x, "d"), lax.psum(z, "d"),
            lax.psum_scatter(x, "d", tiled=True), lax.ppermute(x, "d", here),
            lax.ppermute(z, "d", nowhere), lax.all_to_all(x, "d", 0, 0, tiled=True),
        ]  # fmt: skip

    mapped = jax.shard_map(
        exchange, mesh=mesh, in_specs=(rows, rows), out_specs=[whole] * 8, check_vma=False
    )
    check(mapped, normal(4, 3), normal(2, dtype="complex64"))
    text = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<0> : tensor<1x1xi64>}
        : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    x = normal(2)
    (found,) = interpret(import_stablehlo(artifact(text)), "main", [x])
    np.testing.assert_array_equal(found, x)


def test_sizes_of_a_gather_that_the_call_knows() -> None:
    text = """
    func.func @main(%x: tensor<3x4xf32>, %i: tensor<2x2xi64>, %n: tensor<2xi64>)
        -> tensor<2x?xf32> {
      %0 = "stablehlo.dynamic_gather"(%x, %i, %n) {dimension_numbers = #stablehlo.gather<
        offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0, 1],
        index_vector_dim = 1>} : (tensor<3x4xf32>, tensor<2x2xi64>, tensor<2xi64>)
        -> tensor<2x?xf32>
      return %0 : tensor<2x?xf32>
    }"""
    x, at = normal(3, 4), np.array([[0, 1], [2, 0]])
    model = load_best(artifact(text))
    for width in (1, 3):
        wanted = np.stack([x[row, column : column + width] for row, column in at])
        np.testing.assert_array_equal(model(x, at, np.array([1, width])), wanted)
    with pytest.raises(ingot.InvalidArgument):
        model(x, at, np.array([2, 3]))


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ('"stablehlo.all_gather"(%y) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : '
         "tensor<1x2xi64>} : (tensor<3xf32>) -> tensor<6xf32>", "one device"),
        ('"stablehlo.collective_permute"(%y) {source_target_pairs = dense<[[0, 1]]> : '
         "tensor<1x2xi64>} : (tensor<3xf32>) -> tensor<3xf32>", "one device"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_says_what_to_do(op: str, reason: str) -> None:
    text = f"""
    func.func @main(%y: tensor<3xf32>) -> tensor<3xf32> {{
      %0 = {op}
      return %y : tensor<3xf32>
    }}"""
    with pytest.raises(ingot.CompileError, match=reason):
        ingot.compile(artifact(text))


def test_tuples_and_tokens_become_what_is_in_them() -> None:
    inner = "tuple<tensor<?xi32>, tensor<complex<f32>>>"
    given, made = f"tuple<tensor<2xf32>, {inner}>", f"tuple<{inner}, tensor<2xf32>>"
    token = "!stablehlo.token"
    text = f"""
    func.func private @swap(%t: {given}) -> {made} {{
      %0 = stablehlo.get_tuple_element %t[0] : ({given}) -> tensor<2xf32>
      %1 = stablehlo.get_tuple_element %t[1] : ({given}) -> {inner}
      %2 = stablehlo.tuple %1, %0 : {made}
      return %2 : {made}
    }}
    func.func @main(%a: {given}, %k: {token}, %b: tensor<2xf32>)
        -> ({made}, {token}, tensor<2xf32>) {{
      %0 = func.call @swap(%a) : ({given}) -> {made}
      %1 = stablehlo.get_tuple_element %0[1] : ({made}) -> tensor<2xf32>
      %2 = stablehlo.add %1, %b : tensor<2xf32>
      %3 = stablehlo.create_token : {token}
      %4 = stablehlo.after_all %3, %k : {token}
      return %0, %4, %2 : {made}, {token}, tensor<2xf32>
    }}"""
    source = artifact(text)
    model = load_best(source)
    for name in (
        "arg0.0",
        "arg0.1.0",
        "arg0.1.1",
        "arg2",
        "result.0.0.0",
        "result.0.1",
        "result.2",
    ):
        assert name in str(model.signature)
    x, i, z = normal(2), np.arange(3, dtype=np.int32), np.complex64(1 + 2j)
    found = [each.numpy() for each in model(x, i, np.asarray(z), x)]
    for one, other in zip(found, (i, z, x, 2 * x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_tuple_where_none_can_be_is_named() -> None:
    pair = "tuple<tensor<2xf32>, tensor<f32>>"
    text = f"""func.func @main(%a: {pair}) -> {pair} {{
      %0 = "stablehlo.custom_call"(%a) {{call_target_name = "Sharding"}} : ({pair}) -> {pair}
      return %0 : {pair} }}"""
    source = artifact(text)
    with pytest.raises(ingot.CompileError, match=r"tuple<f32\[2\], f32\[\]> are not supported"):
        ingot.compile(source)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_sparse_matrices_of_compressed_rows(dtype: str, columns: tuple[int, ...]) -> None:
    """Rows without elements, one column twice, and two elements that only fill up."""

    def product(elements: Any, places: Any, bounds: Any, dense: Any) -> Any:
        return sparse.BCSR((elements, places, bounds), shape=(5, 4)) @ dense

    turn = np.array(1 - 2j if dtype == "complex64" else 1, dtype)
    arguments = (
        normal(6) * turn, np.array([1, 3, 3, 0, 4, 4], np.int32),
        np.array([0, 0, 1, 3, 4, 4], np.int32), normal(4, *columns, seed=1) * turn,
    )  # fmt: skip
    module = import_stablehlo(artifact(jax.jit(product).lower(*arguments).as_text()))
    found = interpret(module, "main", arguments)
    assert_gives(found, product, *arguments, tolerance=1e-5)


def test_booleans_are_clamped() -> None:
    text = """func.func @main(%a: tensor<8xi1>, %b: tensor<8xi1>, %c: tensor<8xi1>)
        -> tensor<8xi1> {
      %0 = stablehlo.clamp %a, %b, %c : tensor<8xi1>
      return %0 : tensor<8xi1> }"""
    source = artifact(text)
    model = load_best(source)
    low, x, high = ((np.arange(8) >> place & 1).astype(bool) for place in range(3))
    np.testing.assert_array_equal(model(low, x, high).numpy(), (low | x) & high)
