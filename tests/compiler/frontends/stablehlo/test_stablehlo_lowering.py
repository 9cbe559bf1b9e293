"""Each lowering gives what jax gives, through the interpreter of graph IR."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.support.stablehlo_cases import check, integers, normal

X = normal(3, 4)
Y = normal(3, 4, seed=2)
IMAGE = normal(2, 8, 8, 3)
TABLE = normal(10, 4)
INDICES = integers(3, 2, low=0, high=10)

UNARY = (
    *(jnp.abs, jnp.ceil, jnp.floor, jnp.round, jnp.rint, jnp.sign, jnp.negative, jnp.square),
    *(jnp.exp, jnp.expm1, jnp.tanh, jnp.cbrt, jnp.sin, jnp.cos, jnp.tan),
    *(jnp.arctan, jnp.sinh, jnp.cosh, jnp.arcsinh, jax.nn.sigmoid, jax.scipy.special.erf),
    *(jnp.isfinite, jnp.isinf, jnp.isnan),
)
POSITIVE = (jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.log2)
BINARY = (
    *(jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum),
    *(jnp.arctan2, jnp.remainder, jnp.fmod, jnp.floor_divide),
    *(jnp.less, jnp.less_equal, jnp.equal, jnp.not_equal, jnp.greater, jnp.greater_equal),
)
INTEGER = (
    *(jnp.add, jnp.subtract, jnp.multiply, jnp.floor_divide, jnp.remainder),
    *(jnp.maximum, jnp.minimum, jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor, jnp.less),
)
REDUCTIONS = (
    *(jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.mean, jnp.var, jnp.std),
    *(jnp.argmax, jnp.argmin, jnp.any, jnp.all),
)
ACTIVATIONS = (
    *(jax.nn.softmax, jax.nn.log_softmax, jax.nn.gelu, jax.nn.silu, jax.nn.elu),
    *(jax.nn.softplus, jax.nn.relu6, jax.nn.selu),
)


@pytest.mark.parametrize(
    ("functions", "x"),
    [(UNARY, X), (POSITIVE, np.abs(X) + np.float32(0.1)), (ACTIVATIONS, X)],
    ids=["any", "positive", "activations"],
)
def test_unary_ops_give_what_jax_gives(functions: Any, x: Any) -> None:
    check(lambda x: [function(x) for function in functions], x, tolerance=2e-5)


def test_binary_ops_give_what_jax_gives() -> None:
    check(lambda a, b: [function(a, b) for function in BINARY], X, Y)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
def test_integer_ops_give_what_jax_gives(dtype: str) -> None:
    a, b = integers(3, 4, dtype=dtype), integers(3, 4, low=1, dtype=dtype)
    check(lambda a, b: [function(a, b) for function in INTEGER], a, b)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_reductions_give_what_jax_gives(axis: int | None) -> None:
    check(lambda x: [function(x, axis=axis) for function in REDUCTIONS], normal(3, 4, 5))


ELEMENTWISE: dict[str, Any] = {
    "where": lambda a, b: jnp.where(a > 0, a, b),
    "clip": lambda a, b: jnp.clip(a, -0.5, 0.5) + b,
    "power": lambda a, b: jnp.abs(a) ** b + a**3,
    "logic": lambda a, b: (~(a < b), (a < b) & (a > 0), (a < b) | (a > 0), (a < b) ^ (b > 0)),
    "boolean arithmetic": lambda a, b: ((a > 0) + (b > 0), (a > 0) * (b > 0)),
    "bitcast": lambda a, b: lax.bitcast_convert_type(a, jnp.int32),
    "reduce_precision": lambda a, b: lax.reduce_precision(a, 8, 7) + b,
    "total order": lambda a, b: lax.sort(jnp.concatenate([a, -a * 0, jnp.sqrt(b)])),
    "barrier": lambda a, b: lax.optimization_barrier((a, b)),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_program_gives_what_jax_gives(name: str) -> None:
    check(ELEMENTWISE[name], X, Y)


@pytest.mark.parametrize("wanted", ["bool", "int8", "uint8", "int32", "float16", "bfloat16"])
def test_conversion_and_back_gives_what_jax_gives(wanted: str) -> None:
    check(lambda x: (x.astype(wanted), x.astype(wanted).astype("float32")), np.abs(X) * 50)


def test_shifts_and_bit_counts_give_what_jax_gives() -> None:
    a, b = integers(3, 4, low=-99, high=99), integers(3, 4, low=0)
    check(lambda a, b: (a << b, a >> b, lax.shift_right_logical(a, b)), a, b)
    check(lambda a: (lax.population_count(a), lax.clz(a)), a)


SHAPES: dict[str, Any] = {
    "broadcast": lambda x: x[:, None] + x[None],
    "reshape": lambda x: x.reshape(2, 12).T.reshape(-1),
    "slice": lambda x: (x[1:3, ::2], x[-1], x[:, ::-1]),
    "pad": lambda x: (jnp.pad(x, ((1, 2), (0, 1))), lax.pad(x, 0.5, ((1, -1, 2), (-1, 2, 0)))),
    "concatenate": lambda x: (jnp.concatenate([x, x[:, :2]], 1), jnp.stack([x, x])),
    "iota": lambda x: x + jnp.arange(6.0) + lax.broadcasted_iota("float32", (4, 6), 0),
    "constant": lambda x: x + normal(4, 6, seed=3) + jnp.full((4, 6), 2.5),
    "boolean constant": lambda x: jnp.where(normal(4, 6) > 0, x, 0),
    "zero size": lambda x: (x[:0].sum(), x[:0] + 1, jnp.concatenate([x[:0], x])),
    "rank 0": lambda x: x[0, 0] * 2 + 1,
    "argument as result": lambda x: (x, x, jnp.ones(3)),
    "static slice": lambda x: lax.dynamic_slice(x, (2, 1), (2, 2)),
    "triangle": lambda x: jnp.tril(x),
    "norm": lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True),
    "sort": lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1), jnp.sort(x, 0)[::-1]),
    "median": lambda x: (jnp.median(x), jnp.quantile(x, 0.3, axis=0)),
    "top_k": lambda x: lax.top_k(x, 2),
    "approx_max_k": lambda x: lax.approx_max_k(x, 2, recall_target=1.0),
    "approx_min_k": lambda x: lax.approx_min_k(x, 2, reduction_dimension=0, recall_target=1.0),
    "cumulative": lambda x: (jnp.cumsum(x, 1), lax.cumsum(x, 0, reverse=True), lax.cummax(x, 1)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_program_gives_what_jax_gives(name: str) -> None:
    check(SHAPES[name], normal(4, 6))


def test_reduce_with_an_init_value_takes_it_in_once() -> None:
    check(lambda x: lax.reduce(x, jnp.float32(3), lax.add, (0,)), X)
    check(lambda x: lax.reduce(x, jnp.float32(0.1), lax.max, (1,)), X)


def test_argmax_and_argmin_pick_the_first_nan_and_the_first_of_equals() -> None:
    x = np.array([[1, np.nan, 3, np.nan], [2, 2, 1, 1]], np.float32)
    check(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1), jnp.argmax(x)), x)


def test_integer_reductions_give_what_jax_gives() -> None:
    check(lambda x: (x.sum(), x.max(0), x.min(1), x.prod(0), x.argmax(0)), integers(3, 4))


CONTRACTIONS: dict[str, tuple[Any, ...]] = {
    "matmul": (lambda a, b: a @ b, normal(4, 6), normal(6, 3)),
    "batched": (
        lambda a, b: jnp.einsum("bhqd,bhkd->bhqk", a, b),
        normal(2, 3, 4, 6),
        normal(2, 3, 5, 6),
    ),
    "permuted": (lambda a, b: jnp.einsum("abc,cd->dab", a, b), normal(2, 3, 4), normal(4, 5)),
    "vector": (lambda a, b: jnp.dot(a, b), normal(6), normal(6)),
    "i8": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        integers(4, 6, low=-99, high=99, dtype="int8"),
        integers(6, 3, low=-99, high=99, dtype="int8"),
    ),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contraction_gives_what_jax_gives(name: str) -> None:
    function, a, b = CONTRACTIONS[name]
    check(function, a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_layer_is_near_jax(dtype: str) -> None:
    a, b = (jnp.asarray(each, dtype) for each in (normal(4, 6), normal(6, 3)))
    layer = lambda a, b: (jax.nn.gelu(a @ b), lax.dot(a, b, preferred_element_type=jnp.float32))  # noqa: E731
    check(layer, a, b, tolerance=2e-2)


NHWC = ("NHWC", "HWIO", "NHWC")
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "same": {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC},
    "strided": {"window_strides": (2, 2), "padding": "SAME", "dimension_numbers": NHWC},
    "valid": {"window_strides": (1, 1), "padding": "VALID", "dimension_numbers": NHWC},
    "padded": {"window_strides": (2, 1), "padding": ((1, 2), (0, 1)), "dimension_numbers": NHWC},
    "dilated": {
        "window_strides": (1, 1),
        "padding": ((2, 1), (1, 2)),
        "dimension_numbers": NHWC,
        "lhs_dilation": (2, 1),
        "rhs_dilation": (1, 2),
    },
}


def test_what_is_said_of_spatial_axes_is_in_the_order_of_the_window() -> None:
    numbers = {"padding": ((3, 0), (1, 2)), "rhs_dilation": (2, 1), "lhs_dilation": (1, 3)}
    check(
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 2), dimension_numbers=("HCNW", "WOIH", "CNWH"), **numbers
        ),
        normal(6, 3, 2, 6),
        normal(3, 4, 3, 3),
    )


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_gives_what_jax_gives(name: str) -> None:
    arguments = CONVOLUTIONS[name]
    check(lambda x, w: lax.conv_general_dilated(x, w, **arguments), IMAGE, normal(3, 3, 3, 4))


@pytest.mark.parametrize(
    ("groups", "shape"), [(1, (6, 4, 3, 3)), (2, (6, 2, 3, 3)), (4, (4, 1, 3, 3))]
)
def test_grouped_convolution_gives_what_jax_gives(groups: int, shape: tuple[int, ...]) -> None:
    check(
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=groups),
        normal(2, 4, 8, 8),
        normal(*shape),
    )


def test_convolution_of_one_and_three_spatial_dims_gives_what_jax_gives() -> None:
    check(
        lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME"), normal(2, 3, 8), normal(4, 3, 3)
    )
    check(
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1, 1), "SAME"),
        normal(1, 2, 4, 4, 4),
        normal(3, 2, 3, 3, 3),
    )


def test_transposed_convolution_gives_what_jax_gives() -> None:
    check(
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"),
        normal(2, 5, 5, 4),
        normal(3, 3, 4, 6),
    )


def test_pooling_gives_what_jax_gives() -> None:
    window = ((1, 2, 2, 1), (1, 2, 2, 1), "SAME")
    check(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, *window), IMAGE)
    check(
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9, IMAGE
    )


INDEXED: dict[str, Any] = {
    "rows": lambda t, i: t[i],
    "take": lambda t, i: jnp.take(t, i, axis=0),
    "take columns": lambda t, i: jnp.take(t.T, i, axis=1, mode="clip"),
    "take along axis": lambda t, i: jnp.take_along_axis(t[:3].T[:3] * 2, i % 3, 1),
    "pairs": lambda t, i: t[i, i % 4],
    "one row": lambda t, i: t[i[0, 0] - 10],
    "dynamic slice": lambda t, i: lax.dynamic_slice(t, (i[0, 0], i[0, 1]), (3, 2)),
    "dynamic update": lambda t, i: lax.dynamic_update_slice(t, t[:2, :2], (i[0, 0], 0)),
    "scatter add": lambda t, i: t.at[i[:, 0]].add(1.0),
    "scatter set": lambda t, i: t.at[2, 1].set(7.0),
    "one hot": lambda t, i: jax.nn.one_hot(i, 10) @ t,
}


@pytest.mark.parametrize("name", INDEXED)
def test_indexed_program_gives_what_jax_gives(name: str) -> None:
    check(INDEXED[name], TABLE, INDICES)


def test_an_embedding_becomes_a_take() -> None:
    module = check(lambda t, i: t[i], TABLE, INDICES)
    assert "take" in [op.name for op in module.functions["main"].block.ops]


def test_an_element_at_a_known_index_becomes_a_slice() -> None:
    module = check(lambda x: (x[:, -1], x[2]), normal(4, 6))
    names = {op.name for op in module.functions["main"].block.ops}
    assert "slice" in names
    assert not names & {"gather", "take", "dynamic_slice"}


def test_erf_composite_becomes_one_op() -> None:
    module = check(jax.scipy.special.erf, X)
    assert [op.name for op in module.functions["main"].block.ops] == ["erf", "return"]


def test_a_composite_without_op_is_replaced_by_its_decomposition() -> None:
    check(lambda x: jax.nn.gelu(x, approximate=False), X)


def test_image_resize_gives_what_jax_gives() -> None:
    for method in ("nearest", "bilinear"):
        check(lambda x, method=method: jax.image.resize(x, (2, 12, 12, 3), method), IMAGE)
