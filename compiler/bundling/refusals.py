"""What a bundle cannot have, told when it is made: with the layer, or the value of a function."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ingot.compiler.ir.dims import symbols_of
from ingot.compiler.targets.target import LINKED_TARGET
from ingot.compiler.vm.contents import FunctionContents, ModuleContents, ValueContents
from ingot.compiler.vm.disassemble import function_code
from ingot.hal.errors import Unsupported
from ingot.hal.spec import Opcode, opcode_of_code

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
    return [
        f"function '{function.name}', value '{each.name}' is a {each.kind}, and typed C functions "
        "pass tensors"
        for each in (*function.arguments, *function.results)
        if each.kind != "tensor"
    ]


def _of_code(contents: ModuleContents, function: FunctionContents) -> list[str]:
    """Instructions for lists, for functions of the application, and for results whose sizes only
    the code knows, by layer."""
    known = {name for each in function.arguments for name in _symbols(each)}
    problems = []
    for word, code, text in _instructions(contents, function):
        why = ""
        if code.name.startswith("list."):
            why = "keeps tensors whose sizes follow from data"
        elif code.name == "native.call":
            why = "calls a native function, for which a bundle has no code"
        elif code.name == "result.buffer":
            value = function.results[int(text.partition(code.name)[2].partition(",")[0])]
            dims = ",".join(map(str, value.shape))
            if _symbols(value) - known:
                why = (
                    f"makes result '{value.name}' of shape [{dims}], which follows from data: the "
                    "caller, who gives its memory, cannot know how much"
                )
        if why:
            problems.append(f"function '{function.name}', {_place(function, word)} {why}")
    return problems


def _place(function: FunctionContents, word: int) -> str:
    before = [each.layer for each in function.code.locations if each.word <= word and each.layer]
    return f"layer '{before[-1]}'" if before else f"word {word}"


def _symbols(value: ValueContents) -> set[str]:
    return {name for dim in value.shape if dim is not None for name in symbols_of(dim)}


def opcodes(contents: ModuleContents) -> set[int]:
    """The codes of all instructions of the module."""
    functions = contents.functions
    return {code.code for each in functions for _, code, _ in _instructions(contents, each)}


def _instructions(
    contents: ModuleContents, function: FunctionContents
) -> Iterator[tuple[int, Opcode, str]]:
    """The words where they start, with their texts."""
    words = struct.unpack(f"<{len(function.code.words) // 2}H", function.code.words)
    for at, text in function_code(contents, function).items():
        code = opcode_of_code(words[at])
        assert code is not None  # it has a text
        yield at, code, text
