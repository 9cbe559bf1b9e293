"""What the module format asks of a program, whatever front end read it: names and ranks that the
runtime takes.

Names of functions are what callers write, so they are identifiers. Names of arguments and
results, which only stand in the signature, may hold any text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ingot.compiler.graph.ops import NativeCall, Parameter
from ingot.compiler.ir import Function, Module, PassedType, Type, walk
from ingot.compiler.vm.strings import encoded
from ingot.hal.errors import CompileError
from ingot.hal.header import constants, read
from ingot.hal.spec import layout

__all__ = ["check_function_name", "check_program"]

_GREATEST_LENGTH = 255  # characters of a function's name
_GREATEST_SIZE = (1 << 63) - 1
_OF_THE_COMPILER = frozenset({"call", "global"})  # they belong to `init`, which it makes


def check_function_name(name: object) -> None:
    """CompileError: a function of a module cannot have this name."""
    if not isinstance(name, str) or not name.isidentifier() or len(name) > _GREATEST_LENGTH:
        shown = f"{name!r}" if len(str(name)) < 80 else f"{str(name)[:80]!r}..."
        raise CompileError(
            f"{shown} cannot name a function: use an identifier of at most {_GREATEST_LENGTH} "
            "characters, such as main; or give the program as a dict with the name as key"
        )
    if name == "init":
        raise CompileError(
            "'init' cannot name a function, for it is what prepares the weights when a module is "
            "loaded: use an identifier other than 'init'"
        )


def check_program(module: Module) -> None:
    """CompileError that lists what no module file can say."""
    problems: list[str] = []
    for function in module.functions.values():
        check_function_name(function.name)
        problems += _types(function)
    for name, variable in module.variables.items():
        problems += _name("variable", name)
        problems += _type(f"the variable '{name}'", variable.type)
    if problems:
        raise CompileError("\n  ".join(["the program cannot be compiled:", *problems]))


def _types(function: Function) -> Iterator[str]:
    names = function.argument_names or [value.name for value in function.arguments]
    for name, value in zip(names, function.arguments, strict=False):
        yield from _type(f"the argument '{name}' of '{function.name}'", value.type)
    for place, type in enumerate(function.result_types):
        names = function.result_names
        name = names[place] if place < len(names) else str(place)
        yield from _type(f"the result '{name}' of '{function.name}'", type)
    for op in walk(function):
        if op.name == "parameter":
            yield from _name("external weight", Parameter.of(op).key)
            yield from _name("scope", Parameter.of(op).scope)
        elif op.name == "native_call":
            native = NativeCall.of(op)
            yield from _name("native function", native.name)
            yield from _name("signature of the native function", native.signature)
        elif op.name in _OF_THE_COMPILER:
            yield f"op '{op.name}' of '{function.name}' is one that only the compiler makes"
        layer = f"layer '{op.location}'" if op.location else f"an op of '{function.name}'"
        for result in op.results:
            yield from _type(f"{layer}: the result of {op.name}", result.type)


def _name(kind: str, name: str) -> Iterator[str]:
    greatest = layout().constants["INGOT_MODULE_MAX_NAME"] - 1
    if (length := len(encoded(name))) > greatest:
        yield (
            f"the name of the {kind} '{name[:80]}...' has {length} bytes, at most {greatest} are "
            "possible: use a shorter one"
        )


@cache
def _greatest_rank() -> int:
    return int(constants(read("ingot.h"))["INGOT_MAX_RANK"])


def _type(what: str, type: Type) -> Iterator[str]:
    greatest = _greatest_rank()
    shape = getattr(type.list if isinstance(type, PassedType) else type, "shape", ())
    if len(shape) > greatest:
        yield f"{what} has rank {len(shape)}, at most {greatest} is possible: join some of its dims"
    length = 1
    for dim in shape:
        length *= dim if isinstance(dim, int) and dim > 0 else 1
    if length > _GREATEST_SIZE >> 4:  # elements, of 16 bytes at most
        yield f"{what} has the type {type}, of which no machine has the memory"
