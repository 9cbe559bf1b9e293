"""What builds and runs a bundle: an example program, its start on a board, a Makefile and CMake."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ingot.compiler.bundling.interface import C_TYPES, TEMPLATES, Interface, Typed
from ingot.compiler.ir.dims import Dim, evaluate, product, symbols_of
from ingot.compiler.targets.target import KERNEL_HEADERS, Variant
from ingot.compiler.vm.contents import ValueContents

__all__ = ["board_files", "build_files", "example_source"]

Array = np.ndarray[Any, Any]

_OVERHEAD = 1 << 16
"""Bytes of the runtime's own objects, of small modules."""


def example_source(interface: Interface, inputs: Mapping[str, Array], is_board: bool) -> str:
    """example.c: calls the first function and prints its results. `inputs` by argument's name are
    constants of the program; an argument without one is zeros, a size without one 1."""
    typed = interface.functions[0]
    sizes = _sizes(typed, inputs)
    name = interface.name
    lines = [f'#include "{name}.h"', "", *_OUTPUT[is_board].splitlines(), ""]
    peak = interface.peak(typed)
    unknown = dict.fromkeys(symbols_of(peak), 1)  # what only the code knows
    memory = evaluate(peak, unknown | sizes) + _OVERHEAD
    lines += [f"static _Alignas(64) unsigned char memory[{memory}];"]
    count = len(typed.function.arguments)
    values = (*typed.function.arguments, *typed.function.results)
    passed: list[str] = ["session"]
    for place, value in enumerate(values):
        length = evaluate(product(_shape(value)), sizes)
        kind = C_TYPES[value.dtype.name]
        array = inputs.get(value.name) if place < count else None
        if place >= count:
            lines.append(f"static {kind} result_{place - count}[{max(length, 1)}];")
        else:
            body = "0" if array is None else _elements(array)
            lines.append(f"static const {kind} argument_{place}[{max(length, 1)}] = {{{body}}};")
        passed.append(f"argument_{place}" if place < count else f"result_{place - count}")
        for symbol in typed.sizes_behind(place):
            passed.append(str(sizes[symbol]))
    lines += ["", _PRINT, "int main(void) {", f"  {name}_session_t *session = NULL;"]
    lines.append(f"  ingot_status_t status = {name}_create(memory, sizeof(memory), &session);")
    lines.append(f"  if (!status) status = {typed.name}({', '.join(passed)});")
    lines += ["  if (status) {", "    print(ingot_status_message(status));", '    print("\\n");']
    lines += ["    ingot_status_free(status);", "    return 1;", "  }"]
    for place, value in enumerate(typed.function.results):
        length = evaluate(product(_shape(value)), sizes)
        lines.append(f'  print("{typed.values[count + place]}");')
        lines.append(f"  print_elements(result_{place}, {length}, sizeof(*result_{place}));")
    lines += ["  return 0;", "}"]
    return "\n".join(lines) + "\n"


def _shape(value: ValueContents) -> list[Dim]:
    return [dim for dim in value.shape if dim is not None]


def _sizes(typed: Typed, inputs: Mapping[str, Array]) -> dict[str, int]:
    sizes = dict.fromkeys(typed.symbols, 1)
    for value in typed.function.arguments:
        if value.name in inputs:
            for dim, size in zip(value.shape, inputs[value.name].shape, strict=True):
                if str(dim) in sizes:
                    sizes[str(dim)] = size
    return sizes


def _elements(array: Array) -> str:
    """The elements as constants of C; floats in hexadecimal, which is exact."""
    flat = array.reshape(-1)
    if array.dtype.kind == "f" and array.dtype.itemsize >= 4:
        texts = [_float_text(float(each)) for each in flat]
    else:
        bits = array.itemsize if array.dtype.kind in "iub" else 2
        kind = array.dtype.kind if array.dtype.kind in "iu" else "u"
        suffix = "u" * (kind == "u")
        texts = [f"{each}{suffix}" for each in flat.view(f"{kind}{bits}").tolist()]
        texts = [text.replace(f"-{1 << 63}", "INT64_MIN") for text in texts]
    return ", ".join(texts)


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return {"inf": "1e999", "-inf": "-1e999"}.get(str(value), "0 * 1e999")
    return value.hex()


_OUTPUT = {
    False: """#include <stdio.h>

static void print(const char *text) { (void)fputs(text, stdout); }
""",
    True: "void print(const char *text); /* board.c */\n",
}

_PRINT = """/* The bytes of each element, as one hexadecimal number. */
static void print_elements(const void *data, size_t count, size_t length) {
  const unsigned char *bytes = data;
  for (size_t i = 0; i < count; ++i) {
    char text[20] = " ";
    for (size_t k = 0; k < length; ++k) {
      const unsigned char byte = bytes[i * length + length - 1 - k];
      text[1 + 2 * k] = "0123456789abcdef"[byte >> 4];
      text[2 + 2 * k] = "0123456789abcdef"[byte & 15];
    }
    print(text);
  }
  print("\\n");
}
"""


def build_files(
    name: str, variants: Sequence[Variant], linked: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Makefile and CMakeLists.txt; `linked` are by variant the files of its kernels."""
    first = variants[0]
    is_board = bool(first.triple)
    settings = {f"KERNELS_{each}": files for each, files in linked.items()}
    settings |= {f"ARCH_{each.name}": each.flags for each in variants}
    values = {
        "NAME": name,
        "VARIANT": first.name,
        "VARIABLES": "\n".join(f"{name} = {' '.join(each)}" for name, each in settings.items()),
        "SETTINGS": "\n".join(f'set({name} "{" ".join(each)}")' for name, each in settings.items()),
        "BOARD": " board.o" * is_board,
        "BOARD_SOURCE": " board.c" * is_board,
        "LDFLAGS": "-Wl,--gc-sections" + " -nostartfiles -T board.ld -Wl,-e,reset" * is_board,
        "LDLIBS": "-nostdlib -lgcc" * is_board,
        "CC": "arm-none-eabi-gcc" if is_board else "cc",
    }
    files = {each: _template(each) for each in ("Makefile", "CMakeLists.txt")}
    for key, value in values.items():
        files = {each: text.replace(f"@{key}@", value) for each, text in files.items()}
    return files


def board_files() -> dict[str, str]:
    """What starts a program on a board, and its memory."""
    memory = (KERNEL_HEADERS / "kernel_memory.h").read_text(encoding="utf-8")
    memory = memory.replace('#include "kernel_arm.h"\n', "")
    return {"board.c": _template("board.c") + memory, "board.ld": _template("board.ld")}


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
