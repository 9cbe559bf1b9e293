"""Modules written by hand, instruction by instruction, for tests of the runtime.

They need no kernels and no C compiler: they copy, count and check.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.stream.data import Chunk, Constants, Parameter
from ingot.compiler.vm.contents import (
    Code,
    FunctionContents,
    ModuleContents,
    ValueContents,
    VariableContents,
)
from ingot.compiler.vm.write_module import write_module
from ingot.hal.spec import dtype, opcode, status

Instruction = tuple[Any, ...]
REGISTERS = 16  # of each file, in every function here


class Assembler:
    """Collects functions; registers and numbers are plain integers, labels are strings."""

    def __init__(self) -> None:
        self._strings = bytearray(b"\0")
        self._functions: list[FunctionContents] = []
        self._variables: list[VariableContents] = []
        self._constants = bytearray()

    def function(
        self,
        name: str,
        arguments: Sequence[ValueContents],
        results: Sequence[ValueContents],
        code: Sequence[Instruction],
        **options: Any,
    ) -> None:
        """Adds a function; ("label", NAME) marks where branches to NAME go."""
        words: list[int] = []
        labels: dict[str, int] = {}
        targets: list[tuple[int, str]] = []
        for instruction in code:
            if instruction[0] == "label":
                labels[instruction[1]] = len(words)
            else:
                self._write(instruction, words, targets)
        for word, label in targets:
            words[word : word + 2] = _halves(labels[label])
        registers = (REGISTERS, REGISTERS, REGISTERS)
        exported = not options.get("init", False)
        self._functions.append(
            FunctionContents(
                name,
                "cpu",
                Code(struct.pack(f"<{len(words)}H", *words)),
                *registers,
                tuple(arguments),
                tuple(results),
                exported=exported,
                **options,
            )
        )

    def variable(
        self, name: str, dtype_name: str, *shape: Dim, initial: bytes = b"", doc: str = ""
    ) -> int:
        """Adds a variable that starts as `initial`, or zeros; returns its ordinal."""
        span = (len(self._constants), len(initial))
        self._constants += initial
        variable = VariableContents(name, dtype(dtype_name), shape, *span, doc)
        self._variables.append(variable)
        return len(self._variables) - 1

    def module(self, parameters: Sequence[Parameter] = (), global_count: int = 0) -> bytes:
        """The bytes of the module file."""
        return write_module(
            ModuleContents(
                tuple(self._functions),
                bytes(self._strings),
                Constants(len(self._constants), (Chunk(0, bytes(self._constants)),)),
                parameters=tuple(parameters),
                global_count=global_count,
                metadata={"producer": "a test"},
                variables=tuple(self._variables),
            )
        )

    def _string(self, text: str) -> int:
        offset = len(self._strings)
        self._strings += text.encode() + b"\0"
        return offset

    def _write(
        self, instruction: Instruction, words: list[int], targets: list[tuple[int, str]]
    ) -> None:
        operation = opcode(instruction[0])
        words.append(operation.code)
        for kind, operand in zip(operation.operand_kinds, instruction[1:], strict=True):
            if kind[0] in "kx":
                bits = struct.pack("<q" if kind == "k" else "<d", operand)
                words += struct.unpack("<4H", bits)
            elif kind == "s":
                words += _halves(self._string(operand))
            elif kind == "t":
                targets.append((len(words), operand))
                words += [0, 0]
            elif kind.endswith("*"):
                words += [len(operand), *operand]
            else:
                words.append(operand)


def _halves(number: int) -> list[int]:
    return [number & 0xFFFF, number >> 16]


def tensor(name: str, dtype_name: str, *shape: int | str, doc: str = "") -> ValueContents:
    """An argument or result; dims that are text are symbols."""
    dims = tuple(symbol(dim) if isinstance(dim, str) else dim for dim in shape)
    return ValueContents(name, dtype(dtype_name), dims, doc)


def copy_module(dtype_name: str = "f32", rank: int = 1) -> bytes:
    """main(x: DTYPE[d0,d1,...]) -> (y: the same): a copy."""
    assembler = Assembler()
    add_copy(assembler, "main", dtype_name, rank)
    return assembler.module()


def add_copy(assembler: Assembler, name: str, dtype_name: str = "f32", rank: int = 1) -> None:
    """Adds a function that copies its argument `x`."""
    shape = [f"d{index}" for index in range(rank)]
    x, y = tensor("x", dtype_name, *shape, doc="what is copied"), tensor("y", dtype_name, *shape)
    code: list[Instruction] = [("const.i64", 15, dtype(dtype_name).bytes)]
    for index in range(rank):
        code += [("argument.dim", index, 0, index), ("mul.size", 15, 15, index)]
    code += copy_argument(0, 0, list(range(rank)), length=15)
    assembler.function(name, [x], [y], [*code, ("return", [], [], [])], doc=f"Copies x ({name}).")


def copy_argument(argument: int, result: int, dims: list[int], length: int) -> list[Instruction]:
    """Copies an argument to a result whose dims are in these registers; uses 10 and 11."""
    return [
        ("argument.buffer", 0, 10, argument),
        ("result.buffer", 1, 11, result, dims),
        ("copy", 0, 10, 1, 11, length),
    ]


def pair_module() -> bytes:
    """main(a: f32[n], b: i32[]) -> (first: f32[n], second: i32[]): copies of both."""
    assembler = Assembler()
    code = [
        ("argument.dim", 0, 0, 0),
        ("const.i64", 1, 4),
        ("mul.size", 2, 0, 1),
        *copy_argument(0, 0, [0], length=2),
        *copy_argument(1, 1, [], length=1),
        ("return", [], [], []),
    ]
    assembler.function(
        "main",
        [tensor("a", "f32", "n"), tensor("b", "i32")],
        [tensor("first", "f32", "n"), tensor("second", "i32")],
        code,
    )
    return assembler.module()


def count_module() -> bytes:
    """count(steps: i64[]) -> (): turns a loop that many times, then fails if it is negative."""
    assembler = Assembler()
    code: list[Instruction] = [
        ("argument.buffer", 0, 0, 0),
        ("read.i64", 1, 0, 0, dtype("i64").code),
        ("const.i64", 2, 0),
        ("const.i64", 3, 1),
        ("le.i64", 5, 2, 1),
        ("assert", 5, status("OutOfRange").code, "steps is {}, but must not be negative", [1]),
        ("branch", "test"),
        ("label", "test"),
        ("lt.i64", 4, 2, 1),
        ("branch.if", 4, "body", "end"),
        ("label", "body"),
        ("add.i64", 2, 2, 3),
        ("branch", "test"),
        ("label", "end"),
        ("return", [], [], []),
    ]
    assembler.function("count", [tensor("steps", "i64")], [], code)
    return assembler.module()


def parameter_module() -> bytes:
    """main() -> (y: f32[2,3]): the parameters "weight" and "bias", f32[3] each."""
    assembler = Assembler()
    load: list[Instruction] = [("const.i64", 1, 24), ("const.i64", 2, 12), ("const.i64", 3, 0)]
    load.append(("arena", 0, 4, 1))
    for ordinal, offset in ((0, 3), (1, 2)):
        load += [("parameter", 1, 5, ordinal), ("copy", 1, 5, 0, offset, 2)]
    load += [("global.store", 0, 0), ("return", [], [], [])]
    assembler.function("init", [], [], load, init=True)
    code = [
        ("const.i64", 0, 2),
        ("const.i64", 1, 3),
        ("const.i64", 2, 24),
        ("const.i64", 3, 0),
        ("global.load", 0, 0),
        ("result.buffer", 1, 4, 0, [0, 1]),
        ("copy", 0, 3, 1, 4, 2),
        ("return", [], [], []),
    ]
    assembler.function("main", [], [tensor("y", "f32", 2, 3)], code)
    f32 = dtype("f32")
    parameters = [Parameter("", "weight", f32, (3,)), Parameter("", "bias", f32, (3,))]
    return assembler.module(parameters, global_count=1)


def total_module() -> bytes:
    """main(x: i64[]) -> (y: i64[]): adds x to "total", which starts at 100, and gives it; has
    "last" f32[2,3] too. It fails if x is negative: below -9 before it changes anything."""
    assembler = Assembler()
    total = assembler.variable("total", "i64", initial=struct.pack("<q", 100), doc="all of x")
    i64 = dtype("i64").code

    def check(number: int, register: int) -> list[Instruction]:
        return [
            ("const.i64", register, number),
            ("le.i64", 9, register, 1),
            ("assert", 9, status("OutOfRange").code, "x is {}", [1]),
        ]

    code: list[Instruction] = [
        ("argument.buffer", 0, 0, 0),
        ("read.i64", 1, 0, 0, i64),
        *check(-9, 8),
        ("variable.read", 1, 2, total),
        ("read.i64", 3, 1, 2, i64),
        ("add.i64", 3, 3, 1),
        ("variable.write", 2, 2, total),
        ("write.i64", 2, 2, 3, i64),
        *check(0, 8),
        ("result.buffer", 3, 4, 0, []),
        ("write.i64", 3, 4, 3, i64),
        ("return", [], [], []),
    ]
    assembler.function("main", [tensor("x", "i64")], [tensor("y", "i64")], code)
    assembler.variable("last", "f32", 2, 3)
    return assembler.module()


def state_module(dtype_name: str) -> bytes:
    """main() -> () with a variable "v" DTYPE[2,3] of zeros."""
    assembler = Assembler()
    assembler.variable("v", dtype_name, 2, 3)
    assembler.function("main", [], [], [("return", [], [], [])])
    return assembler.module()
