"""All files of a bundle, as bytes by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ingot.compiler.bundling.archive import write_archive
from ingot.compiler.bundling.example import board_files, build_files, example_source
from ingot.compiler.bundling.interface import interface_of, safe_name
from ingot.compiler.bundling.linked_kernels import linked_kernels
from ingot.compiler.bundling.refusals import opcodes
from ingot.compiler.bundling.runtime_source import (
    configuration,
    expand,
    public_header,
    runtime_source,
)
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.targets.target import (
    Variant,
    compile_linked,
    linked_sources,
    linked_variants,
)
from ingot.compiler.vm.contents import ModuleContents
from ingot.compiler.vm.read_module import read_module
from ingot.compiler.vm.write_module import write_module
from ingot.hal.spec import layout

__all__ = ["CONFIGURATION", "BundleOptions", "bundle_files", "linked_module"]

CONFIGURATION = "ingot_config.h"
"""A file that every bundle has."""

_RESERVED = ("example", "board", "ingot", "kernels", "main")


@dataclass(frozen=True)
class BundleOptions:
    """`sources`: kernels as C; else objects, for which a compiler is needed."""

    name: str
    platform: str | None = None
    sources: bool = False
    strip_messages: bool = False


def linked_module(contents: ModuleContents, strip_messages: bool) -> bytes:
    """The module file without native code and what only tools read, and with one executable, whose
    kernels are linked; with `strip_messages` without what only messages say."""
    functions = contents.functions
    if strip_messages:
        functions = tuple(
            replace(each, doc="", code=replace(each.code, locations=())) for each in functions
        )
    entries = tuple(
        replace(entry, region="") for each in contents.executables for entry in each.entries
    )
    executables = tuple(
        replace(each, variants=(), entries=entries) for each in contents.executables[:1]
    )
    return write_module(
        replace(contents, functions=functions, executables=executables, metadata={}, debug=b""),
        compresses_tables=False,
    )


def bundle_files(
    data: bytes, options: BundleOptions, inputs: Mapping[str, Any]
) -> dict[str, bytes]:
    """The files of a bundle of a module file that `check_contents` has passed; `inputs` are the
    example's, by arguments of the first function. CompileError: its kernels cannot be made, or C
    has no type for a value."""
    contents = read_module(data)
    variants = linked_variants(options.platform, options.sources)
    name = safe_name(options.name, _RESERVED)
    interface = interface_of(contents, name)
    module = linked_module(contents, options.strip_messages)
    linked = _kernel_files(contents, variants, name, options.sources)
    is_board = bool(variants[0].triple)
    crc = layout().unpack("ingot_layout_header_t", module[: layout().size("ingot_layout_header_t")])
    texts = {
        f"{name}.h": interface.header(),
        f"{name}.c": interface.source(),
        f"{name}_module.c": _module_source(name, module),
        "ingot.c": runtime_source(),
        "ingot.h": public_header(),
        CONFIGURATION: configuration(crc[0]["crc"], opcodes(contents), options.strip_messages),
        "example.c": example_source(interface, inputs, is_board),
        **build_files(name, variants, {each: _linked(files) for each, files in linked.items()}),
        **(board_files() if is_board else {}),
    }
    found = {path: text.encode() for path, text in texts.items()}
    return found | {path: each for files in linked.values() for path, each in files.items()}


def _kernel_files(
    contents: ModuleContents, variants: Sequence[Variant], name: str, sources: bool
) -> dict[str, dict[str, bytes]]:
    """By variant its files: C, or objects and the library of them."""
    query = f"{name}_kernels"
    columns = linked_kernels(contents, variants)
    found = {}
    for variant, kernels in zip(variants, columns, strict=True):
        texts = [expand(text, set()) for text in linked_sources(kernels, query)]
        folder = f"kernels/{variant.name}"
        if sources:
            made = {f"{folder}/kernels_{i}.c": text.encode() for i, text in enumerate(texts)}
        else:
            objects = compile_linked(variant, texts)
            members = {f"kernels_{i}.o": each for i, each in enumerate(objects)}
            made = {f"{folder}/{member}": each for member, each in members.items()}
            defined = re.compile(rf"^({query}\w*)\([^;{{]*\) {{$", re.M)
            symbols = {f"kernels_{i}.o": defined.findall(text) for i, text in enumerate(texts)}
            made[f"{folder}/lib{query}.a"] = write_archive(members, symbols)
        found[variant.name] = made
    return found


def _linked(files: Mapping[str, bytes]) -> list[str]:
    """What the linker is given: the library, if there is one."""
    return [path for path in files if path.endswith(".a")] or list(files)


_OCTAL = [f"\\{byte:03o}" for byte in range(256)]


def _module_source(name: str, data: bytes) -> str:
    """NAME_module.c: the bytes as a text of C, which compilers read much faster than numbers."""
    lines = [f'#include "{name}.h"', ""]
    lines.append(f"extern const unsigned char {name}_module[];")
    lines.append(f"extern const size_t {name}_module_length;")
    lines.append(f"const size_t {name}_module_length = {len(data)};")
    lines.append(f"_Alignas(64) const unsigned char {name}_module[] =")
    for start in range(0, max(len(data), 1), 24):
        piece = "".join(map(_OCTAL.__getitem__, data[start : start + 24]))
        lines.append(f'    "{piece}"')
    return "\n".join(lines) + ";\n"
