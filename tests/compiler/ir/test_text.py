"""The text form: what is printed parses back to the same text, and errors name their place."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ingot.compiler.dispatch.ops import Check, CheckedControl, CheckedFunction, Entry
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.ops import Constant
from ingot.compiler.ir import (
    Block,
    Function,
    Literal,
    Module,
    Op,
    Region,
    ScalarType,
    TensorType,
    parse,
    parse_type,
    to_text,
    verify,
)
from ingot.compiler.ir import attributes as ir_attributes
from ingot.compiler.ir.attributes import (
    NO_ATTRIBUTES,
    Attributes,
    RuleError,
    attributes_of,
    declare,
)
from ingot.compiler.ir.dims import broadcast, ceildiv, minimum, symbol
from ingot.compiler.stream.ops import InSlab, Placed
from ingot.compiler.vm.code import Instruction
from ingot.hal.errors import CompileError
from ingot.hal.spec import DTYPES, dtype

F32 = dtype("f32")


def module_of(block: Block, **fields: object) -> Module:
    module = Module()
    module.add(Function("main", Region([block]), **fields))  # type: ignore[arg-type]
    return module


def test_every_part_of_a_module_survives() -> None:
    batch = symbol("b")
    block = Block([TensorType(F32, (batch, 4)), TensorType(F32, (4,))])
    x, y = block.arguments
    x.name, y.name = "x", "y"
    builder = Builder(block, 'layer/"quoted"\n\u00e9')
    z = builder.op("add", x, builder.broadcast_to(y, (batch, 4)))
    z.name = "x"  # taken: the printer makes it unique
    body = Block([ScalarType(F32), ScalarType(F32)])
    inner = Builder(body)
    inner.yield_(inner.op("compare", *body.arguments, direction="gt"))
    s = builder.op("sort", z, axis=1, regions=[Region([body])])
    builder.return_(s, z)
    module = module_of(
        block,
        argument_names=["x", "y"],
        result_names=["out", "sum"],
        symbols={"b": (1, 512), "c": (0, None)},
        docs={"x": 'an "input"\nin two lines'},
        attributes=Entry(layer="l"),
    )
    module.attributes["producer"] = "ingot"
    text = to_text(module)
    again = parse(text)
    assert to_text(again) == text
    verify(again, GRAPH)
    function = again.functions["main"]
    assert function.symbols == {"b": (1, 512), "c": (0, None)}
    assert function.docs == {"x": 'an "input"\nin two lines'}
    assert function.argument_names == ["x", "y"]
    assert function.result_names == ["out", "sum"]
    assert function.attributes == Entry(layer="l")
    assert again.attributes == {"producer": "ingot"}
    assert function.block.ops[0].location == 'layer/"quoted"\n\u00e9'


@pytest.mark.parametrize(
    "value",
    [
        0, -5, 2**63, 1.5, -0.0, 1e-300, float("inf"), float("-inf"), "text \\ \" \n", "", True,
        False, None, (), (1, (2.5, "a")), dtype("bf16"), symbol("n"),
        broadcast(symbol("a"), symbol("b")) * 2 + 1,
        minimum(symbol("a") - 3, ceildiv(symbol("b"), 7)),
        TensorType(F32, (symbol("n"), 4)), ScalarType(F32), parse_type("vector<16xf32>"),
        parse_type("memory<u8>"), parse_type("ref"),
    ],
    ids=str,
)  # fmt: skip
def test_attributes_survive(value: object) -> None:
    module = Module(attributes={"value": value})  # type: ignore[dict-item]
    back = parse(to_text(module)).attributes["value"]
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_literals_of_every_dtype_survive_bit_by_bit(name: str) -> None:
    element = DTYPES[name]
    rng = np.random.default_rng(0)
    for shape in ((), (0,), (3,), (2, 3), (40,), (2, 0, 3)):
        raw = rng.integers(0, 256, (*shape, element.bytes), np.uint8)
        if element.is_boolean:
            raw &= 1
        elif element.bits < 8:
            raw &= (1 << element.bits) - 1
        count = int(np.prod(shape))
        array = np.frombuffer(raw.tobytes(), element.numpy, count).reshape(shape)
        if element.is_integer and element.bits < 8:
            array = array.astype(np.int8).astype(element.numpy)
        block = Block()
        Builder(block).constant(Literal(array, element))
        block.append(Op("return"))
        text = to_text(module_of(block))
        again = Constant.of(parse(text).functions["main"].block.ops[0]).value
        assert again == Literal(array, element)
        assert to_text(parse(text)) == text


def test_special_floats_and_splats_survive() -> None:
    block = Block()
    builder = Builder(block)
    builder.constant(np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4028235e38], np.float32))
    builder.constant(np.full((100, 3), -0.0, np.float32))
    payload = np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    builder.constant(payload)
    block.append(Op("return"))
    text = to_text(module_of(block))
    assert "dense<f32[100,3] -0.0>" in text
    values = [Constant.of(op).value for op in parse(text).functions["main"].block.ops[:-1]]
    for old, new in zip(block.ops, values, strict=False):
        assert Constant.of(old).value == new


def test_elided_text_is_short_and_refused() -> None:
    block = Block()
    Builder(block).constant(np.arange(1000))
    block.append(Op("return"))
    text = to_text(module_of(block), elide=True)
    assert "dense<i64[1000] ...>" in text
    with pytest.raises(CompileError, match="elided"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected 'module'"),
        ("module {} {", "the text ends here|expected 'func'"),
        ("module {} { func @f() { return(%0) } }", "%0 is used before it is defined"),
        ("module {} {\n  func @f(%0: f33) { return() } }", "line 2, column 15: expected a type"),
        ("module {} { func @f(%0: f32, %0: f32) { return() } }", "%0 is defined twice"),
        ("module {} { func @f() { return() } func @f() { return() } }", "'@f' is defined twice"),
        ("module {} { func @f(%0: f32[n*]) { return() } }", "dim expression"),
        ("module {} { func @f() { %0, %1 = a() : f32 return() } }", "2 results, but 1 types"),
        ("module {a=1, a=2} {}", "'a' is given twice"),
        ("module {a=dense<f32[2] [1.0]>} {}", "expected 2 elements, got 1"),
        ('module {a=dense<f32[2] "AAAA">} {}', "expected 8 bytes, got 3"),
        ("module {a=dense<u8[1] [300]>} {}", "literal of type u8"),
        ("module {a=`} {}", "unreadable"),
        ("module {} { func @f(%0: f32[2]) -> (f32[3]) { return(%0) } }", "but declares"),
        ("module {} {} x", "expected the end"),
    ],
)
def test_wrong_text_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        parse(text)
    assert "IR text, line" in str(caught.value)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("transpose(%x)", "'transpose': needs the attribute 'permutation', a tuple of integers"),
        ("neg(%x) {color=1}", "'neg': has no attribute 'color'; its attributes are: none"),
        ("reverse(%x) {axis=1}", "'reverse': has no attribute 'axis'; its attributes are: axes"),
        ("reverse(%x) {axes=1}", "'axes' must be a tuple of integers, not 1"),
        ("reverse(%x) {axes=[true]}", r"'axes' must be a tuple of integers, not \(True,\)"),
        ("reshape(%x) {shape=[1.5]}", r"'shape' must be a tuple of dims, not \(1.5,\)"),
        ("convert(%x) {dtype=\"f32\"}", "'dtype' must be a dtype, not 'f32'"),
        ("reduce(%x) {axes=[], kind=\"mean\"}", "'kind' must be one of: add, .*xor, not 'mean'"),
        ("top_k(%x) {k=1, axis=0, largest=1, dtype=i32}", "'largest' must be true or false, not 1"),
        ("reduce_window(%x) {kind=\"add\", window=[1], padding=[[1]]}",
         r"'padding' must be a tuple of pairs of dims, not \(\(1,\),\)"),
        ("stream.copy(%x) {places=[{kind=\"moon\", ordinal=1}]}", "'places' must be a tuple of "),
        ("stream.dispatch(%x) {call={kernel=0}}",
         "'stream.dispatch': attribute 'call' needs the attribute 'workload'"),
        ("stream.dispatch(%x) {call=3}", "'call' must be {kernel, workload, .*}, not 3"),
        ("nonsense(%x) {a=1}", "'nonsense': is no op of any level"),
    ],
)  # fmt: skip
def test_a_wrong_attribute_is_named_with_what_it_must_be(op: str, message: str) -> None:
    with pytest.raises(CompileError, match=f"IR text, line 1, .*: op .*{message}"):
        parse(f"module {{}} {{ func @main(%x: f32[2]) {{ %0 = {op} : f32[2] return(%0) }} }}")


def test_attributes_with_a_default_may_be_left_out_of_a_text() -> None:
    head = "module {} { func @main(%x: f32[2,3]) -> (f32[1,2]) { %0 = slice(%x) "
    module = parse(f"{head}{{start=[0, 1], limit=[1, 3]}} : f32[1,2] return(%0) }} }}")
    assert "stride=[1, 1]" in to_text(module)
    verify(module, GRAPH)


def test_records_and_what_a_deeper_level_adds_survive() -> None:
    text = """module {} {
  func @main(%p: i1, %x: f32[2]) -> (f32[2]) attributes {checks=[{kind="le", a=<n>, b=9}]} {
    %0 = if(%p) {symbols=[], checks=[[{kind="le", a=<n>, b=9, layer="l"}], []]} : f32[2] ({
    ^():
      yield(%x)
    }, {
    ^():
      yield(%x)
    })
    %1 = stream.copy(%0) {places=[{kind="slab", offset=<4*n>, scope=1}]} : f32[2]
    %2 = stream.copy(%1) {places=[{kind="result", ordinal=0}]} : f32[2]
    return(%2)
  }
}
"""
    module = parse(text)
    assert to_text(module) == text
    checked = CheckedFunction.of(module.functions["main"])
    assert checked.checks == (Check("le", symbol("n"), 9),)
    branch, copy, _, _ = module.functions["main"].block.ops
    assert CheckedControl.of(branch).checks == ((Check("le", symbol("n"), 9, "l"),), ())
    assert Placed.of(copy).places == (InSlab("slab", symbol("n") * 4, 1),)


@pytest.mark.parametrize("levels", [(NO_ATTRIBUTES, Placed()), (Placed(), NO_ATTRIBUTES)])
def test_the_shallow_level_is_read_whichever_was_declared_first(
    levels: tuple[Attributes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ir_attributes, "_DECLARED", {})
    for each in levels:
        declare(type(each), "made.up")
    assert attributes_of("made.up", {}) == NO_ATTRIBUTES
    assert attributes_of("made.up", {"places": ()}) == Placed()
    with pytest.raises(RuleError, match="no attribute 'wrong'; its attributes are: none"):
        attributes_of("made.up", {"wrong": 1})


def test_comments_and_spacing_do_not_matter() -> None:
    module = parse("// head\nmodule{}{func@f(%x:f32[2]){// inside\nreturn(%x)}}\n// end\n")
    assert module.functions["f"].result_types == [parse_type("f32[2]")]


def test_several_blocks_survive() -> None:
    text = (
        "module {} {\n  func private @f(%0: i64) {\n    branch(%0) {targets=[1]}\n"
        "  ^(%1: i64):\n    return(%1)\n  }\n}\n"
    )
    module = parse(text)
    assert len(module.functions["f"].body.blocks) == 2
    assert Instruction.of(module.functions["f"].block.ops[0]).targets == (1,)
    assert to_text(parse(to_text(module))) == to_text(module)


def test_a_module_of_5000_ops_prints_and_parses_in_under_a_second() -> None:
    block = Block([TensorType(F32, (symbol("b"), 4))])
    builder = Builder(block, "layer")
    x = block.arguments[0]
    for _ in range(5000):
        x = builder.op("add", x, x)
    builder.return_(x)
    start = time.process_time()
    parse(to_text(module_of(block)))
    assert time.process_time() - start < 1
