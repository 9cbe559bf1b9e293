"""The op table: every row is complete, shape rules say what is wrong, the page is fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.compiler.graph.builder import Builder, SharingBuilder
from ingot.compiler.graph.document_ops import ops_markdown
from ingot.compiler.graph.ops import OPS, Broadcast, Compare, Reshape, infer_types
from ingot.compiler.graph.relations import relations_of
from ingot.compiler.ir import Block, ScalarType, TensorType, VectorType, parse_type
from ingot.compiler.ir.dims import broadcast, symbol
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.programs import program

F32, I1 = dtype("f32"), dtype("i1")


def test_every_row_has_a_reference_and_a_doc_line() -> None:
    for row in OPS.values():
        assert row.text.endswith("."), row.name
        if (
            not row.terminator
            and not row.effect
            and row.name not in ("parameter", "global", "call")
        ):
            assert callable(row.reference), row.name


def test_the_page_of_ops_is_fresh(project_root: Path) -> None:
    page = (project_root / "docs" / "ops.md").read_text(encoding="utf-8")
    assert page == ops_markdown(), "run: python -m ingot.compiler.graph.document_ops docs/ops.md"


@pytest.mark.parametrize(
    ("name", "types", "attributes", "message"),
    [
        ("add", ["f32[2]", "f32[3]"], {}, r"op 'add' at 'layer' on \(f32\[2\], f32\[3\]\)"),
        ("add", ["f32[2]", "i32[2]"], {}, "must be equal"),
        ("add", ["i1[2]", "i1[2]"], {}, "class 'number'"),
        ("rem", ["i1[2]", "i1[2]"], {}, "class 'ordered number'"),
        ("add", ["f32[2]"], {}, "takes the operands"),
        ("exp", ["i32[2]"], {}, "class 'float'"),
        ("nothing", ["f32[2]"], {}, "no op 'nothing'"),
        ("compare", ["f32[2]", "f32[2]"], {"direction": "xx"}, "must be one of: eq, ne"),
        ("compare", ["f32[2]", "f32[2]"], {}, "needs the attribute 'direction'"),
        ("neg", ["f32[2]"], {"axis": 1}, "has no attribute 'axis'"),
        ("transpose", ["f32[2,3]"], {"permutation": (0, 0)}, "not one of the 2 axes"),
        ("transpose", ["f32[2,3]"], {"permutation": "01"}, "a tuple of integers"),
        ("reshape", ["f32[2,3]"], {"shape": (5,)}, "has 6 elements, but"),
        ("reshape", ["f32[n,3]"], {"shape": (symbol("n"), 4)}, "3[*]n elements"),
        ("broadcast", ["f32[3]"], {"shape": (2, 4), "dimensions": (1,)}, "expected 1 or 4"),
        ("slice", ["f32[4]"], {"start": (3,), "limit": (2,)}, "does not hold"),
        ("concatenate", ["f32[2,3]", "f32[2,4]"], {"axis": 0}, "in dim 0 only"),
        ("reduce", ["f32[2,3]"], {"axes": (2,), "kind": "add"}, "not in 0 ... 1"),
        ("reduce", ["f32[2,3]"], {"axes": (0,), "kind": "and"}, "integers or i1"),
        ("arg_max", ["f32[0]"], {"axis": 0, "dtype": dtype("i64")}, "empty"),
        (
            "dot_general", ["f32[2,3]", "f32[4,5]"],
            {"lhs_contract": (1,), "rhs_contract": (0,)}, "dim 1 of f32.2,3. is 3",
        ),
        (
            "convolution", ["f32[1,3,8,8]", "f32[4,2,3,3]"],
            {"layout": "nchw,oihw->nchw"}, "x has 3 features",
        ),
        ("convolution", ["f32[1,3,8]", "f32[4,3,3]"], {"layout": "abc"}, "is not like"),
        ("take", ["f32[3]", "f32[2]"], {"axis": 0}, "class 'integer'"),
    ],
)  # fmt: skip
def test_rules_say_what_is_wrong(
    name: str, types: list[str], attributes: dict[str, object], message: str
) -> None:
    block = Block([parse_type(type) for type in types])
    builder = Builder(block)
    with builder.at("layer"), pytest.raises(CompileError, match=message):
        builder.op(name, *block.arguments, **attributes)


def test_symbolic_shapes_go_through_the_rules() -> None:
    def build(b: Builder, x: object, w: object) -> object:
        return b.op(
            "convolution", x, w, layout="nchw,oihw->nchw", strides=(2, 2), padding=((1, 1), (1, 1))
        )  # type: ignore[arg-type]

    module = program(build, "f32[b,3,h,32]", "f32[8,3,3,3]")
    batch, height = symbol("b"), symbol("h")
    wanted = TensorType(F32, (batch, 8, (height - 1) // 2 + 1, 16))
    assert module.functions["main"].result_types == [wanted]


def test_a_dim_that_may_be_1_broadcasts() -> None:
    a, b = symbol("a"), symbol("b")
    both = broadcast(a, b)
    (result,) = infer_types("broadcast", [TensorType(F32, (a,))], Broadcast((both,), (0,)))
    assert result == TensorType(F32, (both,))


def test_element_wise_ops_work_on_scalars_and_vectors() -> None:
    scalar, vector = ScalarType(F32), VectorType(F32, 8)
    assert infer_types("add", [scalar, scalar]) == (scalar,)
    assert infer_types("add", [vector, vector]) == (vector,)
    less = Compare("lt")
    assert infer_types("compare", [vector, vector], less) == (VectorType(I1, 8),)
    assert infer_types("add", [scalar, TensorType(F32, ())]) == (scalar,)
    with pytest.raises(ValueError, match="takes tensors only"):
        infer_types("reshape", [scalar], Reshape(()))


def test_the_builder_broadcasts_by_numpys_rules() -> None:
    block = Block([parse_type("f32[b,1,4]"), parse_type("f32[3,1]"), parse_type("f32[5]")])
    builder = Builder(block)
    x, y, z = block.arguments
    first, second = builder.broadcast_together(x, y)
    wanted = parse_type("f32[b,3,4]")
    assert first.type == wanted
    assert second.type == wanted
    with pytest.raises(CompileError, match="do not broadcast"):
        builder.broadcast_together(x, z)


def test_gathers_need_elements_along_what_they_look_up_alone() -> None:
    """Of no texts there may be nothing to gather."""

    def gather(b, x, at):
        return b.op(
            "gather", x, at,
            offset_dims=(), collapsed_slice_dims=(1,), operand_batching_dims=(0,),
            start_indices_batching_dims=(0,), start_index_map=(1,), index_vector_dim=2,
            slice_sizes=(1, 1), mode="clamp",
        )  # fmt: skip

    module = program(gather, "f32[n,k]", "i64[n,m]")
    (op,) = (op for op in module.functions["main"].block.ops if op.name == "gather")
    assert list(relations_of(op)) == [("le", 1, symbol("k"))]


def test_a_number_that_is_too_large_for_a_dtype_is_infinite() -> None:
    block = Block()
    Builder(block).constant(1e300, "f32")
    (op,) = block.ops
    assert "inf" in str(op.attributes)


def test_equal_numbers_of_a_source_are_one_op() -> None:
    block = Block([])
    builder = SharingBuilder(block)
    given = [(0.0, "f32"), (-0.0, "f32"), (0, "f32"), (0.0, "f64"), (True, "i1"), (1, "i1")]
    for shape in ((), (2,), (2,), (3, 1)):
        for value, element in given:
            assert str(builder.full(value, element, shape).type) == str(
                TensorType(dtype(element), shape)
            )
    names = [op.name for op in block.ops]
    assert (names.count("constant"), names.count("broadcast")) == (len(given), 2 * len(given))
    assert builder.full(float("nan"), "f32") is builder.full(float("nan"), "f32")
