"""arrange_contractions changes the form of contractions, never what they compute."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.forms.arrange_contractions import arrange_contractions, run_stride
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Function, Module, TensorType, clone_region, walk
from ingot.hal.spec import dtype
from tests.support.programs import program

F32 = dtype("f32")


def module_of(
    name: str, shapes: list[tuple[int, ...]], kind: str = "f32", **attributes: Any
) -> Module:
    """A module whose main applies one op to its arguments."""
    types = [TensorType(dtype(kind), shape) for shape in shapes]
    return program(lambda b, *operands: b.op(name, *operands, **attributes), *types)


def check(module: Module) -> Counter[str]:
    """Arrange a copy, compare results on random arguments, give back the names of its ops."""
    main = module.functions["main"]
    generator = np.random.default_rng(5)
    arguments = [
        generator.integers(-4, 5, size=value.type.shape).astype(value.type.dtype.numpy)
        for value in main.arguments
        if isinstance(value.type, TensorType)
    ]
    arranged = Module()
    arranged.add(Function("main", clone_region(main.body, {}), main.argument_names, ["y"]))
    arrange_contractions(arranged)
    (wanted,) = interpret(module, "main", arguments)
    (got,) = interpret(arranged, "main", arguments)
    np.testing.assert_array_equal(got, wanted)  # small integers: every order of sums is exact
    return Counter(op.name for op in walk(arranged))


@pytest.mark.parametrize(
    ("layout", "x", "w"),
    [
        ("nchw,oihw->nchw", (2, 3, 7, 6), (5, 3, 3, 2)),
        ("nhwc,hwio->nhwc", (2, 7, 6, 3), (3, 2, 3, 5)),
        ("cnwh,whoi->hcnw", (3, 2, 7, 6), (3, 2, 5, 3)),
        ("ncd,oid->ncd", (2, 3, 9), (4, 3, 3)),
    ],
)
def test_any_layout_becomes_a_packed_channels_last_convolution(
    layout: str, x: tuple[int, ...], w: tuple[int, ...]
) -> None:
    spatial = len(x) - 2
    names = check(
        module_of(
            "convolution",
            [x, w],
            strides=(2,) * spatial,
            padding=((1, 0),) * spatial,
            lhs_dilation=(1,) * spatial,
            rhs_dilation=(1,) * spatial,
            groups=1,
            layout=layout,
            dtype=F32,
        )
    )
    assert "conv_packed" in names
    assert "convolution" not in names


@pytest.mark.parametrize(
    ("groups", "inputs", "outputs", "expected"),
    [
        *((groups, 6, 12, "depthwise") for groups in (2, 3)),
        *((2, 6, 26, "conv_packed"), (16, 32, 208, "depthwise")),
        *((groups, 16, 16, "depthwise") for groups in (2, 4, 16)),
        *((3, 3, 9, "depthwise"), (2, 4, 40, "conv_packed"), (2, 128, 4, "conv_packed")),
    ],
)
def test_groups_become_single_convolutions_or_depthwise(
    groups: int, inputs: int, outputs: int, expected: str
) -> None:
    names = check(
        module_of(
            "convolution",
            [(1, inputs, 6, 5), (outputs, inputs // groups, 3, 3)],
            strides=(1, 1),
            padding=((1, 1), (0, 2)),
            lhs_dilation=(1, 1),
            rhs_dilation=(1, 1),
            groups=groups,
            layout="nchw,oihw->nchw",
            dtype=F32,
        )
    )
    assert expected in names
    assert "convolution" not in names


@pytest.mark.parametrize(("groups", "inputs", "outputs"), [(3, 12, 9), (2, 10, 40)])
def test_groups_of_single_pixels_are_products(groups: int, inputs: int, outputs: int) -> None:
    module = module_of(
        "convolution", [(2, 4, 5, inputs), (1, 1, inputs // groups, outputs)],
        groups=groups, layout="nhwc,hwio->nhwc",
    )  # fmt: skip
    names = check(module)
    assert (names["dot_general"], names["concatenate"]) == (1, 0)


@pytest.mark.parametrize(
    ("layout", "x", "w", "expected"),
    [
        ("nc,io->nc", (3, 8), (4, 6), 0),
        ("nc,io->nc", (3, 2), (1, 6), 1),
        ("ndhwc,dhwio->ndhwc", (1, 3, 4, 5, 2), (2, 3, 1, 1, 4), 1),
        ("ndhwc,dhwio->ndhwc", (1, 3, 4, 5, 4), (2, 1, 3, 2, 4), 1),
    ],
)
def test_groups_of_any_number_of_spatial_dims_have_lanes(
    layout: str, x: tuple[int, ...], w: tuple[int, ...], expected: int
) -> None:
    names = check(module_of("convolution", [x, w], groups=2, layout=layout))
    assert (names["depthwise"], names["convolution"]) == (expected, 0)


@pytest.mark.parametrize(
    ("groups", "inputs", "outputs", "expected"),
    [(2, 6, 4, 1), (8, 16, 40, 4), (12, 24, 48, 3), (3, 6, 60, 3), (5, 5, 5, 0)],
)
def test_groups_of_bytes_become_as_many_convolutions_as_panels(
    groups: int, inputs: int, outputs: int, expected: int
) -> None:
    module = module_of(
        "convolution", [(2, 4, 5, inputs), (3, 2, inputs // groups, outputs)], "i8",
        padding=((1, 1), (0, 2)), groups=groups, layout="nhwc,hwio->nhwc", dtype=dtype("i32"),
    )  # fmt: skip
    names = check(module)
    assert (names["conv_packed"], names["convolution"]) == (expected, 0)


@pytest.mark.parametrize(
    ("size", "step", "pads", "groups", "count"),
    [
        (4, 2, (2, 2), 1, 1),  # all phases in one convolution, the first result is of the second
        (3, 2, (1, 2), 1, 2),  # windows of one and of two elements
        (5, 3, (-1, 7), 2, 2),  # in two groups
        (2, 4, (1, 4), 1, 1),  # half of the results meet zeros only
        (1, 2, (0, -1), 1, 1),
    ],
)
def test_phases_of_a_spread_input_are_convolutions_without_zeros(
    size: int, step: int, pads: tuple[int, int], groups: int, count: int
) -> None:
    module = module_of(
        "convolution", [(1, 2 * groups, 4, 5), (3 * groups, 2, size, 3)], groups=groups,
        padding=(pads, (2, 2)), lhs_dilation=(step, 1), layout="nchw,oihw->nchw",
    )  # fmt: skip
    names = check(module)
    assert (names["conv_packed"] + names["depthwise"], names["convolution"]) == (count, 0)


@pytest.mark.parametrize(
    ("strides", "dilation", "groups"),
    [((1, 2), (1, 1), 1), ((1, 1), (1, 2), 1), ((1, 1), (1, 1), 2)],
)
def test_other_spread_inputs_get_zeros_between_their_elements(
    strides: tuple[int, int], dilation: tuple[int, int], groups: int
) -> None:
    module = module_of(
        "convolution", [(1, groups, 4, 5), (3 * groups, 1, 3, 3)], groups=groups, strides=strides,
        padding=((2, 1), (2, 2)), lhs_dilation=(1, 3), rhs_dilation=dilation,
        layout="nchw,oihw->nchw",
    )  # fmt: skip
    names = check(module)
    assert names["conv_packed"] + names["depthwise"] == 1
    assert names["pad"]
    assert not names["reverse"] + names["convolution"]


@pytest.mark.parametrize(
    ("a", "b", "numbers"),
    [
        ((4, 5), (5, 1), ((), (), (1,), (0,))),
        ((5,), (5, 7), ((), (), (0,), (0,))),
        ((2, 3, 1, 4), (3, 6, 4, 2), ((0, 1), (3, 0), (3,), (2,))),
        ((3, 5, 2, 4), (5, 1, 4), ((), (), (3, 1), (2, 0))),
    ],
)
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_products_with_a_vector_are_sums(a: Any, b: Any, numbers: Any, kind: str) -> None:
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = numbers
    module = module_of(
        "dot_general", [a, b], kind, lhs_batch=lhs_batch, rhs_batch=rhs_batch,
        lhs_contract=lhs_contract, rhs_contract=rhs_contract,
    )  # fmt: skip
    names = check(module)
    assert (names["reduce"], names["dot_general"]) == (1, 0)


@pytest.mark.parametrize(
    ("a", "b", "numbers"),
    [
        ((2, 3, 4, 5), (5, 3, 6), ((1,), (1,), (3,), (0,))),
        ((4, 2, 3), (3, 7, 2), ((), (), (1, 2), (2, 0))),
        ((2, 5, 3), (5, 4, 3), ((1,), (0,), (2,), (2,))),
    ],
)
def test_products_get_operands_whose_groups_are_runs(a: Any, b: Any, numbers: Any) -> None:
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = numbers
    module = module_of(
        "dot_general",
        [a, b],
        lhs_batch=lhs_batch,
        rhs_batch=rhs_batch,
        lhs_contract=lhs_contract,
        rhs_contract=rhs_contract,
        dtype=F32,
    )
    check(module)


def test_a_run_of_dims_has_one_stride() -> None:
    type = TensorType(F32, (2, 3, 1, 4))
    assert run_stride(type, [0, 1]) == 4
    assert run_stride(type, [1, 2, 3]) == 1
    with pytest.raises(ValueError, match="not one run"):
        run_stride(type, [0, 3])
