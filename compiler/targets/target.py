"""What a program can be compiled for: targets with their variants, and how objects are made.

A target is a kind of device, and has VM code of its own. Its variants are objects with the
same kernels for different machines: they take the same calls and read the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ingot.compiler.ir import Module, clear_region
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.classes import Lowered, lower_entries
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.trial import Trial
from ingot.compiler.targets.cpu.headers import HEADER_FOLDER as KERNEL_HEADERS
from ingot.compiler.targets.cpu.linked import compile_linked, linked_sources, linked_variants
from ingot.compiler.targets.cpu.own_printer import print_kernel
from ingot.compiler.targets.cpu.toolchain import (
    Build,
    building_executables,
    choose_fallback,
    choose_variants,
    without_objects,
)
from ingot.compiler.targets.cpu.variants import VARIANTS, Variant
from ingot.compiler.targets.grouping import KernelGroup, group_by_code, one_group
from ingot.compiler.targets.opencl import opencl_printer
from ingot.compiler.targets.opencl.object import build_object
from ingot.compiler.targets.opencl.variant import OPENCL_VARIANTS, OpenclVariant
from ingot.hal.errors import CompileError, InvalidArgument, Unsupported

__all__ = [
    "KERNEL_HEADERS",
    "LINKED_TARGET",
    "TARGETS",
    "VARIANTS",
    "Building",
    "Objects",
    "Target",
    "Variant",
    "building_objects",
    "choose_targets",
    "compile_linked",
    "hosted_kernels",
    "kernel_source",
    "language_of",
    "linked_sources",
    "linked_variants",
    "without_objects",
]

TARGETS = ("cpu", "opencl")
"""The names of all targets."""

LINKED_TARGET = "cpu"
"""The one whose kernels can be linked into a program."""


def language_of(target: str) -> str:
    """The language of kernels that users write for a target."""
    return (OPENCL_VARIANTS[0].target if target == "opencl" else VARIANTS["x86-64"].target).language


@dataclass(frozen=True)
class Target:
    """A kind of device, and its variants, best first."""

    name: str
    variants: tuple[Variant | OpenclVariant, ...]
    executable: str  # the name of the first one in a module file; linked kernels are "kernels"
    runs_behind: bool  # work is queued, and done when the host has gone on
    is_tried: bool  # its driver compiles the kernels, and is tested with trials


@dataclass(frozen=True)
class Objects:
    """What was built of a target's kernels, in the order of its groups.

    `host` are those that the fallback runs because there is no other code for them, with the
    reason of each.
    """

    data: tuple[tuple[bytes, ...], ...]  # per group, and in it per variant
    host: Mapping[str, str]


def choose_targets(
    names: str | Sequence[str],
    variants: str | Sequence[str] | None,
    fallback: bool,
    products: Collection[str] = (),
) -> tuple[Target, ...]:
    """The targets of these names. `variants` are those of the CPU target, without it what suits a
    program with these `products` in words ("i8", "bf16"); without `fallback` no other target
    carries plain C beside its own kernels.

    Unsupported: there is no such target. InvalidArgument: `variants` fits none of them.
    CompileError: there is no variant for this machine.
    """
    wanted = list(dict.fromkeys([names] if isinstance(names, str) else names))
    unknown = [name for name in wanted if name not in TARGETS]
    if unknown or not wanted:
        raise Unsupported(
            f"target {unknown[0] if unknown else ''!r} is not known; the targets are: "
            + ", ".join(TARGETS)
        )
    if variants is not None and "cpu" not in wanted:
        raise InvalidArgument(
            f"variants={variants!r} are of the target 'cpu', and the module is for "
            f"{', '.join(wanted)}: leave them out, or add the target"
        )
    return tuple(_choose_target(name, variants, fallback, products) for name in wanted)


def _choose_target(
    name: str, variants: str | Sequence[str] | None, fallback: bool, products: Collection[str]
) -> Target:
    if name == "cpu":
        chosen = choose_variants(variants, products)
        return Target(name, chosen, "kernels", runs_behind=False, is_tried=False)
    all_variants = (*OPENCL_VARIANTS, *([choose_fallback(name)] if fallback else ()))
    return Target(name, all_variants, "opencl_kernels", runs_behind=True, is_tried=True)


@contextmanager
def building_objects(keeps_loops: bool = False) -> Iterator[Callable[[Target], Building]]:
    """Inside, C compilers run beside the caller; it takes targets. Kernels that are printed have
    no more loops, unless it `keeps_loops`."""
    lowered: dict[Target, Lowered] = {}
    with building_executables() as build:
        yield lambda target: Building(
            target, build, lowered.setdefault(target, {}), keeps_loops or target.is_tried
        )


@dataclass(frozen=True)
class Building:
    """What makes the objects of a target's kernels."""

    target: Target
    build: Build
    lowered: Lowered  # kernels that were made for the target so far
    keeps_loops: bool  # of kernels that are printed

    def lower(self, module: Module) -> dict[str, tuple[Kernel, ...]]:
        """The kernels of a module's entries, which compilers begin with as `begin` says.
        CompileError: also as of `lower_entries`."""
        targets = [variant.target for variant in self.target.variants]
        return lower_entries(module, targets, self.begin, self.lowered)

    def begin(self, kernels: Sequence[Kernel]) -> None:
        """Begin with an entry's kernels, one for each variant, that are too long to wait for
        others. CompileError: no C compiler."""
        for variant, kernel in zip(self.target.variants, kernels, strict=True):
            if isinstance(variant, Variant):
                self.build.begin(variant, kernel)
        for kernel in kernels:
            if self.build.is_printed(kernel) and not self.keeps_loops:
                clear_region(kernel.loops.body)

    def begin_all(self, kernels: Mapping[str, Sequence[Kernel]]) -> None:
        """Begin with all kernels of a program, as far as they are known. CompileError: as
        `begin`."""
        self.build.begin_files(_native(self.group(kernels)))

    def group(self, kernels: Mapping[str, Sequence[Kernel]]) -> list[KernelGroup]:
        """The executables of a program's kernels, which are per entry one for each variant."""
        native = [each for each in self.target.variants if isinstance(each, Variant)]
        is_printed = all(
            self.build.is_printed(each) for column in kernels.values() for each in column
        )
        if is_printed and len(native) == len(self.target.variants):
            return group_by_code(self.build, native, kernels)
        return one_group(self.target.variants, kernels)

    def objects(
        self, groups: Sequence[KernelGroup], trials: Mapping[str, Trial]
    ) -> Callable[[Callable[[int, int], None]], Objects]:
        """What gives the objects of all variants. `trials`: the runs that compare kernels of a
        device with those of the fallback. It tells its argument how many of how many kernels are
        compiled.

        CompileError: a compiler failed, or a kernel needs the fallback and there is none.
        """
        native = _native(groups)
        finish = self.build.executable(native)

        def objects(progress: Callable[[int, int], None]) -> Objects:
            built = iter(finish(progress))
            host: dict[str, str] = {}
            data: list[tuple[bytes, ...]] = []
            for group in groups:
                found: list[bytes] = []
                for variant, column in group.columns.items():
                    if isinstance(variant, Variant):
                        found.append(next(built))
                        continue
                    made = build_object(column, trials)
                    found.append(made.data)
                    host |= made.host
                data.append(tuple(found))
            if host and not native:
                raise CompileError(_refusal(self.target.name, host))
            return Objects(tuple(data), host)

        return objects


def _native(groups: Sequence[KernelGroup]) -> list[tuple[Variant, Sequence[Kernel]]]:
    """The columns of variants in C, in the order of the groups."""
    return [
        (variant, column)
        for group in groups
        for variant, column in group.columns.items()
        if isinstance(variant, Variant)
    ]


def hosted_kernels(target: Target, kernels: Sequence[Kernel]) -> Mapping[str, str]:
    """The kernels of the target's own variants that its fallback must run, with the reason of each.
    No C compiler runs."""
    native = all(isinstance(variant, Variant) for variant in target.variants)
    return {} if native else build_object(kernels).host


def kernel_source(variant: Variant | OpenclVariant, kernel: Kernel) -> str:
    """The C or OpenCL C of a kernel's function. CompileError: the variant has none of it."""
    if isinstance(variant, Variant):
        return print_kernel(kernel).text
    if kernel.host:
        raise CompileError(kernel.host)
    return opencl_printer.print_kernel(kernel).text


def _refusal(target: str, host: Mapping[str, str]) -> str:
    lines = [f"  {name}: {reason}" for name, reason in host.items()]
    return "\n".join(
        [
            f"{len(host)} kernels cannot be made for {target}, and there is no fallback:",
            *lines,
            "compile with a fallback, which runs them on the host",
        ]
    )
