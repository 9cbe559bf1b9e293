"""Puts a module together: signatures, bytecode, kernels and data become `ModuleContents`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from ingot.compiler.dispatch.kernel import Kernel
from ingot.compiler.ir import Function, Module, TensorType, Value, walk
from ingot.compiler.ir.printer import to_text
from ingot.compiler.stream.convert import StreamProgram
from ingot.compiler.vm.allocate_registers import allocate_registers
from ingot.compiler.vm.assemble import assemble
from ingot.compiler.vm.contents import (
    Entry,
    Executable,
    FunctionContents,
    ModuleContents,
    ValueContents,
    VariableContents,
    Variant,
)
from ingot.compiler.vm.strings import StringTable
from ingot.compiler.vm.write_module import write_module

__all__ = ["build_module"]

TARGET = "cpu"


class VariantInfo(Protocol):
    """What the module file says of a variant."""

    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def feature_bits(self) -> int: ...


def build_module(
    entries: Module,
    program: StreamProgram,
    code: Module,
    kernels: Mapping[str, Kernel],
    variants: Sequence[VariantInfo],
    objects: Sequence[bytes],
    metadata: Mapping[str, Any],
) -> bytes:
    """The module file. `entries` has the entry functions, `code` the vm functions."""
    strings = StringTable()
    functions = tuple(
        _function(program.module.functions[name], function, strings)
        for name, function in code.functions.items()
    )
    executables: tuple[Executable, ...] = ()
    if kernels:
        rows = tuple(_entry(entries.functions[name], each) for name, each in kernels.items())
        built = tuple(
            Variant(variant.name, variant.format, variant.feature_bits, data)
            for variant, data in zip(variants, objects, strict=True)
        )
        executables = (Executable("kernels", TARGET, rows, built),)
    uses_arena = any(
        op.name in ("global.load", "global.store")
        for function in code.functions.values()
        for op in walk(function)
    )
    contents = ModuleContents(
        functions,
        bytes(strings),
        program.constants,
        program.parameters,
        executables,
        int(uses_arena),
        dict(metadata),
        tuple(
            VariableContents(each.name, each.dtype, each.shape, each.offset, each.length)
            for each in program.variables
        ),
    )
    return write_module(contents)


def _function(source: Function, function: Function, strings: StringTable) -> FunctionContents:
    registers = allocate_registers(function)
    init = function.name == "init"
    exported = function.exported and not init
    arguments: tuple[ValueContents, ...] = ()
    results: tuple[ValueContents, ...] = ()
    if exported:
        arguments = _values(source, source.argument_names, source.arguments)
        results = _values(source, source.result_names, source.block.terminator.operands)
    return FunctionContents(
        function.name,
        TARGET,
        assemble(function, registers.of, strings),
        registers.i64_count,
        registers.f64_count,
        registers.ref_count,
        arguments,
        results,
        exported,
        init,
        function.docs.get("", ""),
    )


def _values(
    function: Function, names: Sequence[str], values: Sequence[Value]
) -> tuple[ValueContents, ...]:
    types = [cast(TensorType, value.type) for value in values]
    return tuple(
        ValueContents(name, type.dtype, type.shape, function.docs.get(name, ""))
        for name, type in zip(names, types, strict=True)
    )


def _entry(function: Function, kernel: Kernel) -> Entry:
    count = len(kernel.bindings)
    written = sum(1 << place for place in range(count - kernel.result_count, count))
    return Entry(
        kernel.name,
        str(function.attributes.get("layer", "")),
        count,
        len(kernel.constants),
        written,
        to_text(function),
    )
