"""Kernels that are linked into a program: for which machines, as C, and as objects."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.targets.cpu.compilers import find_compiler
from ingot.compiler.targets.cpu.toolchain import choose_variants, kernel_files, run
from ingot.compiler.targets.cpu.variants import BOARDS, PLATFORMS, VARIANTS, Variant
from ingot.hal.errors import InvalidArgument, Unsupported
from ingot.hal.header import INCLUDE_FOLDER

__all__ = ["compile_linked", "linked_sources", "linked_variants"]


def linked_variants(platform: str | None, sources: bool) -> tuple[Variant, ...]:
    """The kernels of a platform: of each architecture those that all of its devices run, as linked
    kernels are not chosen at run time. InvalidArgument: there is no such platform. Unsupported:
    it has no static programs, or takes no objects of this format, or only a loader may run it."""
    if platform in BOARDS:
        return (BOARDS[platform],)
    if platform is not None and platform not in (*VARIANTS, *PLATFORMS):
        known = ", ".join([*PLATFORMS, *BOARDS, *VARIANTS])
        raise InvalidArgument(f"no platform is called {platform!r}; the platforms are: {known}")
    found = choose_variants(None if platform is None else [platform])
    last = {each.machine: each for each in found}
    if any(each.target.tiles for each in last.values()):
        raise Unsupported(
            f"kernels of {platform} cannot be linked into a program: a system lets them run only "
            "when a module's loader asks for it; take x86-64-v4-vnni"
        )
    if "wasm32" in last:
        raise Unsupported(
            "WebAssembly has no static bundles: a page loads the module, whose variants "
            "browser compiles"
        )
    if platform == "ios" and not sources:
        raise Unsupported("objects for ios are Xcode's to make: take the kernels as --sources")
    return tuple(last.values())


def linked_sources(kernels: Sequence[Kernel], query: str) -> list[str]:
    """The texts of C files that are linked into a program: one defines the function `query`, a
    C identifier, which all their other names begin with."""
    return [file.text for file in kernel_files(kernels, query)]


def compile_linked(variant: Variant, texts: Sequence[str]) -> list[bytes]:
    """The objects of such files, each of which stands alone. CompileError: no compiler, or it
    failed."""
    compiler = find_compiler(variant)
    flags = ["-ffunction-sections", "-fdata-sections", *["-fno-pic"] * bool(variant.triple)]
    objects = []
    with tempfile.TemporaryDirectory(prefix="ingot-build-") as folder:
        path = Path(folder) / "kernels.c"
        for text in texts:
            path.write_text(text, encoding="utf-8")
            command = [*compiler.compile_command(variant), *flags, f"-I{INCLUDE_FOLDER}"]
            run([*command, "-c", path.name, "-o", "kernels.o"], path.parent)
            objects.append(path.with_suffix(".o").read_bytes())
    return objects
