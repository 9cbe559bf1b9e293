"""The module file: what is written reads back, the same bytes each time, damage is named."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ingot.compiler.ir import Block, Function, Op, Region, Value
from ingot.compiler.ir.dims import symbol
from ingot.compiler.stream.data import Chunk, Constants, Parameter
from ingot.compiler.vm.allocate_registers import allocate_registers
from ingot.compiler.vm.assemble import assemble
from ingot.compiler.vm.code import CodeBuilder, Instruction
from ingot.compiler.vm.contents import (
    Entry,
    Executable,
    FunctionContents,
    ModuleContents,
    ValueContents,
    VariableContents,
    Variant,
)
from ingot.compiler.vm.disassemble import disassemble
from ingot.compiler.vm.read_module import read_dim, read_module, read_text
from ingot.compiler.vm.sections import table_sections
from ingot.compiler.vm.strings import StringTable
from ingot.compiler.vm.write_module import strip_module, write_module
from ingot.hal.errors import DataLoss, Incompatible, Unsupported
from ingot.hal.lz4 import compress
from ingot.hal.spec import dtype
from tests.support.assembly import assert_assembles


def hand_written_function() -> Function:
    """main(x: f32[b]): copies x to its result after checking b >= 1."""
    block = Block()
    code = CodeBuilder(block)
    b = code.op("argument.dim", immediates=(0, 0))[0]
    condition = code.op("le.i64", code.constant(1), b)[0]
    code.check(condition, 1, "b is {}, expected at least 1", b)
    length = code.op("mul.size", b, code.constant(4))[0]
    source, offset = code.op("argument.buffer", immediates=(0,))
    target, target_offset = code.op("result.buffer", b, immediates=(0,), counts=(1,))
    code.location, code.operations = "layer/copy", "Identity"
    code.op("copy", source, offset, target, target_offset, length)
    code.op("return", counts=(0, 0, 0))
    return Function("main", Region([block]))


def hand_written_contents() -> ModuleContents:
    function = hand_written_function()
    registers = allocate_registers(function)
    strings = StringTable()
    code = assemble(function, registers.of, strings)
    f32 = dtype("f32")
    value = FunctionContents(
        "main",
        "cpu",
        code,
        registers.i64_count,
        registers.f64_count,
        registers.ref_count,
        (ValueContents("x", f32, (symbol("b"),), "the input"),),
        (ValueContents("y", f32, (symbol("b"),)),),
        exported=True,
    )
    return ModuleContents(
        (value,),
        bytes(strings),
        Constants(80, (Chunk(0, b"abc"), Chunk(64, memoryview(bytes(range(10)))))),
        (Parameter("", "weight", f32, (2, 3)),),
        (
            Executable(
                "kernels",
                "cpu",
                (Entry("main_add", "layer/add", 3, 1, 4, "add"), Entry("main_mul", "", 2, 0, 2)),
                (Variant("x86-64-v4", "elf-x86_64", 2, b"\x7fELF4"), Variant("v3", "e", 1, b"3")),
            ),
        ),
        1,
        {"producer": "a test"},
        (
            VariableContents("cache", f32, (4, 2), doc="what was seen"),
            VariableContents("count", dtype("i64"), (), 64, 8),
        ),
    )


def test_contents_read_back_as_written() -> None:
    contents = hand_written_contents()
    read = read_module(write_module(contents))
    assert read.functions == contents.functions
    assert read.parameters == contents.parameters
    assert read.variables == contents.variables
    assert read.executables == contents.executables
    assert (read.global_count, read.metadata) == (contents.global_count, contents.metadata)
    constants = bytes(read.constants.chunks[0].data)
    assert constants == b"abc" + bytes(61) + bytes(range(10)) + bytes(6)


def test_code_and_graph_text_are_compressed_where_that_is_shorter() -> None:
    contents = hand_written_contents()
    (executable,) = contents.executables
    entries = tuple(replace(each, region="add, then mul; " * 50) for each in executable.entries)
    variants = (replace(executable.variants[0], object=b"\x7fELF" * 500), executable.variants[1])
    executables = (replace(executable, entries=entries, variants=variants),)
    contents = replace(contents, executables=executables)
    data = write_module(contents, compresses_tables=False)
    assert len(data) < len(write_module(hand_written_contents(), False)) + 200
    assert b"lz4:elf-x86_64\0" in data
    assert b"lz4:e\0" not in data
    assert_assembles(write_module(contents))
    for each in (data, write_module(contents)):
        (read,) = read_module(each).executables
        assert (read.entries, read.variants) == (entries, variants)
        stripped = strip_module(each)
        assert len(stripped) < len(each)
        assert [one.region for one in read_module(stripped).executables[0].entries] == ["", ""]


def test_objects_repeat_those_of_variants_in_front_of_them() -> None:
    draw = random.Random(5)
    a, b, far = draw.randbytes(3000), draw.randbytes(3000), draw.randbytes(70_000)
    objects = [("elf-a", a), ("elf-a", a + b), ("elf-a", b + a), ("elf-b", a), ("elf-b", b)]
    objects += [("elf-b", far), ("elf-b", far)]  # of another machine, others, and out of reach
    variants = tuple(Variant(f"v{i}", name, 0, data) for i, (name, data) in enumerate(objects))
    contents = hand_written_contents()
    contents = replace(contents, executables=(replace(contents.executables[0], variants=variants),))
    data = write_module(contents, compresses_tables=False)
    assert data[8] == 3
    assert b"lz4+:elf-a\0" in data
    assert b"lz4+:elf-b\0" not in data
    stored = 4 * 3000 + 2 * 70_000
    assert stored < len(data) < stored + 3000
    assert read_module(data).executables == contents.executables
    assert_assembles(write_module(contents))


def test_tables_are_compressed() -> None:
    contents = hand_written_contents()
    data, plain = write_module(contents), write_module(contents, compresses_tables=False)
    assert (data[8], plain[8]) == (3, 1)
    assert len(data) < len(plain) * 0.6
    assert b"kernels" in plain
    assert b"layer/add" not in data
    read, same = read_module(data), read_module(plain)
    assert replace(read, constants=same.constants) == same
    with pytest.raises(DataLoss, match="compressed tables of the module file are damaged"):
        list(table_sections(compress(bytes([9]) + bytes(99)) or b""))


def test_texts_that_are_no_utf_8_are_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = hand_written_contents()
    (executable,) = contents.executables
    entries = tuple(replace(each, region="add, then mul; " * 50) for each in executable.entries)
    monkeypatch.setattr(
        "ingot.compiler.vm.write_module.compress",
        lambda data: compress(bytes(data).replace(b"add", b"ad\xff")),
    )
    data = write_module(replace(contents, executables=(replace(executable, entries=entries),)))
    with pytest.raises(DataLoss, match="text that is no UTF-8: invalid start byte"):
        read_module(data)
    with pytest.raises(DataLoss, match="text that is no UTF-8: unexpected end of data"):
        read_text(b"a\xc3\0", 0)


def test_same_contents_give_the_same_bytes() -> None:
    assert write_module(hand_written_contents()) == write_module(hand_written_contents())


def test_the_text_of_a_module_gives_its_bytes() -> None:
    assert_assembles(write_module(hand_written_contents()))


def test_every_section_starts_on_64_bytes() -> None:
    from ingot.hal import spec

    data = write_module(hand_written_contents(), compresses_tables=False)
    layout = spec.layout()
    header = layout.unpack("ingot_layout_header_t", data[: layout.size("ingot_layout_header_t")])[0]
    start = layout.size("ingot_layout_header_t")
    end = start + header["section_count"] * layout.size("ingot_layout_section_t")
    sections = layout.unpack("ingot_layout_section_t", data[start:end])
    assert len(sections) == 15
    assert all(section["offset"] % 64 == 0 for section in sections)
    assert header["file_length"] == len(data)


@pytest.mark.parametrize("at", [0, 20, 100, 500, -1])
def test_a_flipped_byte_is_refused(at: int) -> None:
    data = bytearray(write_module(hand_written_contents(), compresses_tables=False))
    data[at] ^= 1
    with pytest.raises(DataLoss):
        read_module(bytes(data))


def test_truncated_and_newer_files_are_named() -> None:
    data = bytearray(write_module(hand_written_contents()))
    with pytest.raises(DataLoss, match="expected"):
        read_module(bytes(data[:-1]))
    with pytest.raises(DataLoss, match="no Ingot module"):
        read_module(b"")
    data[8] = 4
    with pytest.raises(Incompatible, match="format version 4, this Ingot reads versions 1 to 3"):
        read_module(bytes(data))


def test_a_size_that_is_no_dim_is_damage() -> None:
    assert read_dim("2*b") == symbol("b") * 2
    for text in ("b+", "b*" * 200 + "b"):
        with pytest.raises(DataLoss, match="the module has a size that is none: dim expression"):
            read_dim(text)


def test_disassembly_names_instructions_layers_and_texts() -> None:
    text = disassemble(hand_written_contents())
    assert text.startswith("variable 0 cache: f32[4,2]\nvariable 1 count: i64[]\n")
    assert "func main(x: f32[b]) -> (y: f32[b]) target cpu" in text
    assert "= argument.dim 0, 0" in text
    assert 'assert i2, 1, "b is {}, expected at least 1", [i0]' in text
    assert 'layer "layer/copy", "Identity"' in text
    assert text.rstrip().endswith("return [], [], []")


def test_branches_point_at_the_start_of_their_block() -> None:
    blocks = [Block(), Block()]
    blocks[0].append(Op("branch", attributes=Instruction(targets=(1,))))
    CodeBuilder(blocks[1]).op("return", counts=(0, 0, 0))
    code = assemble(Function("loop", Region(blocks)), {}, StringTable())
    assert code.words == bytes([0x01, 0, 3, 0, 0, 0, 0x03, 0, 0, 0, 0, 0, 0, 0])


def test_an_instruction_with_wrong_operands_is_refused() -> None:
    block = Block()
    value = CodeBuilder(block).constant(1)
    block.append(Op("move.i64", [value, value], [value.type], Instruction()))
    with pytest.raises(ValueError, match="too many"):
        assemble(Function("f", Region([block])), {value: 0, block.ops[-1].result: 1}, StringTable())
    block.ops[-1] = Op("add.i64", [value], [value.type], Instruction())
    with pytest.raises(ValueError, match="too few"):
        assemble(Function("f", Region([block])), {value: 0, block.ops[-1].result: 1}, StringTable())


def test_registers_are_reused_after_the_last_use() -> None:
    block = Block()
    code = CodeBuilder(block)
    value: Value = code.constant(0)
    for number in range(1, 100):
        value = code.op("add.i64", value, code.constant(number))[0]
    code.op("return", counts=(0, 0, 0))
    assert allocate_registers(Function("f", Region([block]))).i64_count == 3


@pytest.mark.slow
def test_too_many_live_values_are_reported() -> None:
    block = Block()
    code = CodeBuilder(block)
    values = [code.constant(number) for number in range((1 << 16) + 1)]
    code.op("return", *values, counts=(len(values), 0, 0))
    with pytest.raises(Unsupported, match="65537 i64 registers"):
        allocate_registers(Function("f", Region([block])))
