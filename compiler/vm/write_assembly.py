"""A whole module as text, for `ingot dis`: what `read_assembly.py` makes the same module of.

A statement starts at the left edge, and what belongs to it follows, indented. Names stand as they
are or, like all other texts, as strings of JSON; `#` begins a comment. Weights and machine code
come last: as base64, or as the hash of bytes that another file has.

    module globals 1
    metadata {"producer": ...}
    parameter "" encoder.weight: f32[16,8]
    variable cache: f32[4,2] initial 64, 32
    native acme.resize "(f32[h,w]) -> (f32[8,8])"
    executable kernels target cpu
      kernel main_add bindings 3 constants 1 written 0x4 layer "layer/add"
        "func private @main_add ...\\n"
      variant x86-64-v4 format elf-x86_64 features 0x2
    func main(x: f32[b,4]) -> (y: f32[b]) target cpu registers 3 i64, 0 f64, 2 ref exported
      doc 0 "what is added up"
      layer "layer/add", "Add"
          0  r0, i0 = argument.buffer 0
    constants
      base64 "..."
    object
      sha256 "..."
    debug
      base64 "..."

There is one `object` per variant, in their order. The word offset in front of an instruction is
for readers alone. Lists of bytes, if they are empty, are left out but for objects.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator

from ingot.compiler.stream.data import Bytes
from ingot.compiler.vm.contents import Executable, ModuleContents
from ingot.compiler.vm.disassemble import (
    function_text,
    name_text,
    native_text,
    quoted_dim,
    value_text,
)

__all__ = ["assembly_text", "blobs", "hash_of"]

_LINE_LENGTH = 3000  # bytes of base64 in a line
_SHORT = 96  # bytes that stand in the text in any case


def assembly_text(contents: ModuleContents, *, embed: bool = True) -> str:
    """The text of a module. Without `embed` long weights and machine code are told by their hash.
    DataLoss: the code is no valid instruction stream."""
    lines = [
        f"module globals {contents.global_count}",
        f"metadata {json.dumps(contents.metadata, sort_keys=True)}",
    ]
    for each in contents.parameters:
        dims = ",".join(map(str, each.shape))
        key = name_text(each.key)
        lines.append(f"parameter {json.dumps(each.scope)} {key}: {each.dtype}[{dims}]")
    for variable in contents.variables:
        initial = f" initial {variable.offset}, {variable.length}"
        lines.append(f"variable {value_text(variable, quoted_dim)}{initial}")
        if variable.doc:
            lines.append(f"  doc {json.dumps(variable.doc)}")
    lines += map(native_text, contents.natives)
    lines += (f"version {json.dumps(name)} {number}" for name, number in contents.versions)
    for executable in contents.executables:
        lines += ["", *_executable_lines(executable)]
    for function in contents.functions:
        lines += ["", function_text(contents, function).rstrip("\n")]
    for name, data in blobs(contents):
        if data or name == "object":
            lines += ["", name, *_bytes_lines(data, embed)]
    return "\n".join(lines) + "\n"


def blobs(contents: ModuleContents) -> Iterator[tuple[str, Bytes]]:
    """The bytes that a module file has beside its tables, with the statements for them."""
    for chunk in contents.constants.chunks:  # one, as `read_module` gives them
        yield from (("constants", part) for part in chunk.parts())
    for executable in contents.executables:
        for variant in executable.variants:
            yield "object", variant.object
    yield "debug", contents.debug


def hash_of(data: Bytes) -> str:
    """What tells such bytes from others."""
    return hashlib.sha256(data).hexdigest()


def _executable_lines(executable: Executable) -> Iterator[str]:
    yield f"executable {name_text(executable.name)} target {name_text(executable.target)}"
    for entry in executable.entries:
        yield (
            f"  kernel {name_text(entry.name)} bindings {entry.binding_count} "
            f"constants {entry.constant_count} written {entry.written:#x} "
            f"layer {json.dumps(entry.layer)}"
        )
        yield from (f"    {json.dumps(line)}" for line in entry.region.splitlines(keepends=True))
    for variant in executable.variants:
        yield (
            f"  variant {name_text(variant.name)} format {name_text(variant.format)} "
            f"features {variant.features:#x}"
        )


def _bytes_lines(data: Bytes, embed: bool) -> Iterator[str]:
    if not embed and len(data) > _SHORT:
        yield f'  sha256 "{hash_of(data)}"  # {len(data)} bytes'
        return
    for begin in range(0, len(data), _LINE_LENGTH):
        yield f'  base64 "{base64.b64encode(data[begin : begin + _LINE_LENGTH]).decode()}"'
