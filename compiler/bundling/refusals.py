"""What a bundle cannot have, told when it is made: with the layer, or the value of a function."""

from __future__ import annotations

import struct

from ingot.compiler.ir.dims import symbols_of
from ingot.compiler.targets.target import LINKED_TARGET
from ingot.compiler.vm.contents import FunctionContents, ModuleContents, ValueContents
from ingot.compiler.vm.disassemble import function_code
from ingot.hal.errors import Unsupported
from ingot.hal.spec import opcode_of_code

__all__ = ["check_contents", "opcodes"]


def check_contents(contents: ModuleContents) -> None:
    """Unsupported: the module needs what the runtime of a bundle does not have; all of it is
    listed."""
    problems = [
        f"function '{each.name}' is compiled for target '{each.target}'; a bundle is of the target "
        f"'{LINKED_TARGET}' alone"
        for each in contents.functions
        if each.target != LINKED_TARGET
    ]
    problems += [
        f"parameter '{each.key}' is external, and a bundle reads no files: compile the model with "
        "embedded parameters"
        for each in contents.parameters
    ]
    if not any(each.exported for each in contents.functions):
        problems.append("no function of it can be called")
    for function in contents.functions:
        problems += _of_values(function)
        problems += _of_code(contents, function)
    if problems:
        lines = "\n".join(f"  {each}" for each in dict.fromkeys(problems))
        raise Unsupported(f"the module cannot be a static bundle:\n{lines}")


def _of_values(function: FunctionContents) -> list[str]:
    known = {name for each in function.arguments for name in _symbols(each)}
    problems = []
    for value in (*function.arguments, *function.results):
        where = f"function '{function.name}', value '{value.name}'"
        if value.kind != "tensor":
            problems.append(f"{where} is a {value.kind}, and typed C functions pass tensors")
            continue
        if _symbols(value) - known:
            dims = ",".join(map(str, value.shape))
            problems.append(
                f"{where} has the shape [{dims}], which follows from data: the caller, who gives "
                "the memory, cannot know its size"
            )
    return problems


def _of_code(contents: ModuleContents, function: FunctionContents) -> list[str]:
    """Instructions for lists, and for functions of the application, by layer."""
    problems = []
    for word, name in _instructions(contents, function):
        if name.startswith("list."):
            why = "keeps tensors whose sizes follow from data"
        elif name == "native.call":
            why = "calls a native function"
        else:
            continue
        before = [each for each in function.code.locations if each.word <= word]
        layer = next((each.layer for each in reversed(before) if each.layer), "")
        named = f"layer '{layer}'" if layer else f"word {word}"
        problems.append(f"function '{function.name}', {named} {why}: no bundle has code for that")
    return problems


def _symbols(value: ValueContents) -> set[str]:
    return {name for dim in value.shape if dim is not None for name in symbols_of(dim)}


def opcodes(contents: ModuleContents) -> set[int]:
    """The codes of all instructions of the module."""
    words = {
        each: struct.unpack(f"<{len(each.code.words) // 2}H", each.code.words)
        for each in contents.functions
    }
    return {codes[at] for each, codes in words.items() for at in function_code(contents, each)}


def _instructions(contents: ModuleContents, function: FunctionContents) -> list[tuple[int, str]]:
    words = struct.unpack(f"<{len(function.code.words) // 2}H", function.code.words)
    found = []
    for at in function_code(contents, function):
        code = opcode_of_code(words[at])
        found.append((at, code.name if code else ""))
    return found
