"""Puts a module together: signatures, bytecode, kernels and data become `ModuleContents`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from ingot.compiler.dispatch import ops as dispatch
from ingot.compiler.graph.init_functions import is_init
from ingot.compiler.graph.native_signature import parse_signature
from ingot.compiler.ir import Function, Module, PassedType, ReferenceType, TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.printer import to_text
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.stream.data import ProgramData
from ingot.compiler.vm.allocate_registers import allocate_registers
from ingot.compiler.vm.assemble import assemble
from ingot.compiler.vm.contents import (
    Entry,
    Executable,
    FunctionContents,
    ModuleContents,
    NativeContents,
    ValueContents,
    VariableContents,
    Variant,
)
from ingot.compiler.vm.strings import StringTable
from ingot.compiler.vm.write_module import module_bytes
from ingot.hal.module_bytes import ModuleBytes

__all__ = ["ExecutableCode", "TargetCode", "build_module", "native_contents"]


class VariantInfo(Protocol):
    """What the module file says of a variant."""

    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def feature_bits(self) -> int: ...


@dataclass(frozen=True)
class ExecutableCode:
    """The code of some of a target's kernels: an object for each of these variants."""

    name: str
    entries: Sequence[str]
    variants: Sequence[VariantInfo]
    objects: Sequence[bytes]


@dataclass(frozen=True)
class TargetCode:
    """The program for one target.

    `entries` has the entry functions of `kernels`; `planned` is stream IR, `code` the same
    functions as vm IR; `executables` have the kernels in their order, none without kernels;
    `variants` are those that it was made for, best first.
    """

    target: str
    entries: Module
    planned: Module
    code: Module
    kernels: Mapping[str, Kernel]
    variants: Sequence[VariantInfo]
    executables: Sequence[ExecutableCode]


def build_module(
    targets: Sequence[TargetCode],
    data: ProgramData,
    metadata: Mapping[str, Any],
    debug: bytes = b"",
    versions: Mapping[str, int] = {},
) -> ModuleBytes:
    """The module file. Kernels are numbered through all targets, in their order; `debug` is the
    section for tools, `versions` as in `ModuleContents`."""
    strings = StringTable()
    functions = tuple(
        _function(each.target, each.planned.functions[name], function, strings)
        for each in targets
        for name, function in each.code.functions.items()
    )
    global_count = max(sum(map(is_init, each.code.functions)) for each in targets)
    contents = ModuleContents(
        functions,
        bytes(strings),
        data.pool.finish(),
        data.parameters,
        tuple(_executable(each, part) for each in targets for part in each.executables),
        global_count,
        dict(metadata),
        tuple(
            VariableContents(each.name, each.dtype, each.shape, each.offset, each.length)
            for each in data.variables.values()
        ),
        debug,
        tuple(
            native_contents(name, signature, name not in data.required)
            for name, signature in data.natives.items()
        ),
        tuple(versions.items()),
    )
    return module_bytes(contents)


def native_contents(name: str, signature: str, optional: bool = False) -> NativeContents:
    """What a module says of a native function. InvalidArgument: it is no signature."""
    types = parse_signature(signature)
    arguments, results = (
        tuple(_value("", type, "") for type in part) for part in (types.arguments, types.results)
    )
    decided = sum(types.decides(place) << place for place in range(len(results)))
    return NativeContents(name, str(types), arguments, results, decided, optional)


def _executable(code: TargetCode, part: ExecutableCode) -> Executable:
    rows = tuple(
        _entry(code.entries.functions[entry], code.kernels[entry]) for entry in part.entries
    )
    variants = tuple(
        Variant(variant.name, variant.format, variant.feature_bits, data)
        for variant, data in zip(part.variants, part.objects, strict=True)
    )
    return Executable(part.name, code.target, rows, variants)


def _function(
    target: str, source: Function, function: Function, strings: StringTable
) -> FunctionContents:
    registers = allocate_registers(function)
    init = is_init(function.name)
    exported = function.exported and not init
    arguments: tuple[ValueContents, ...] = ()
    results: tuple[ValueContents, ...] = ()
    if exported:
        arguments = _values(source, source.argument_names, source.arguments)
        results = _values(source, source.result_names, source.block.terminator.operands)
    return FunctionContents(
        function.name,
        target,
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
    types = [cast("TensorType | PassedType", value.type) for value in values]
    return tuple(
        _value(name, type, function.docs.get(name, ""))
        for name, type in zip(names, types, strict=True)
    )


def _value(name: str, type: TensorType | PassedType, doc: str) -> ValueContents:
    if isinstance(type, ReferenceType):
        return ValueContents(name, type.dtype, (), doc, "reference", reference=type.name)
    if isinstance(type, TensorType):
        return ValueContents(name, type.dtype, type.shape, doc)
    return ValueContents(name, type.dtype, type.list.shape, doc, type.kind, type.list.any_rank)


def _entry(function: Function, kernel: Kernel) -> Entry:
    return Entry(
        kernel.name,
        dispatch.Entry.of(function).layer,
        len(kernel.bindings),
        len(kernel.constants),
        kernel.written,
        to_text(function),
    )
