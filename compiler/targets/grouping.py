"""Which kernels of a program share an executable: those that have code of their own for the same
variants.

A kernel that the next variant has alike, of which a machine runs all that the first asks for,
stands in an executable without the first: the runtime takes the best variant that an executable
has, so that this machine runs the same code, which is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.targets.cpu.toolchain import Build
from ingot.compiler.targets.cpu.variants import Variant
from ingot.compiler.targets.opencl.variant import OpenclVariant

__all__ = ["KernelGroup", "group_by_code", "one_group"]

_LEAST_LENGTH = 12_000
"""Characters of kernels that need not be stored, for each variant that has code, from which an
executable more saves more than its headers take."""


@dataclass(frozen=True)
class KernelGroup:
    """The kernels of an executable: names of entries, and per variant, best first, theirs."""

    entries: tuple[str, ...]
    columns: Mapping[Variant | OpenclVariant, Sequence[Kernel]]


def one_group(
    variants: Sequence[Variant | OpenclVariant], kernels: Mapping[str, Sequence[Kernel]]
) -> list[KernelGroup]:
    """All kernels, for all variants; nothing without kernels. `kernels`: per entry one for each
    variant."""
    return [_group(variants, list(kernels), variants, kernels)] if kernels else []


def group_by_code(
    build: Build, variants: Sequence[Variant], kernels: Mapping[str, Sequence[Kernel]]
) -> list[KernelGroup]:
    """The same in an executable for each set of variants that much code is for, those of more
    variants first. The kernels were printed."""
    owners = {name: tuple(_owners(build, variants, column)) for name, column in kernels.items()}
    saved: dict[tuple[Variant, ...], int] = {}
    for name, found in owners.items():
        for variant, kernel in zip(variants, kernels[name], strict=True):
            length = 0 if variant in found else build.text_length(kernel)
            saved[found] = saved.get(found, 0) + length
    whole = tuple(variants)
    worth = [found for found, length in saved.items() if length >= _LEAST_LENGTH * len(found)]
    sets = sorted({whole, *worth}, key=lambda each: (-len(each), list(map(whole.index, each))))
    entries: dict[tuple[Variant, ...], list[str]] = {each: [] for each in sets}
    for name, found in owners.items():
        # the last one of those that have these variants is among the smallest
        entries[[each for each in sets if set(found) <= set(each)][-1]].append(name)
    return [_group(each, names, variants, kernels) for each, names in entries.items() if names]


def _owners(
    build: Build, variants: Sequence[Variant], column: Sequence[Kernel]
) -> Iterator[Variant]:
    """The variants that have code of their own. Of one machine the next variant is the next that
    the runtime tries."""
    for place, variant in enumerate(variants):
        later = range(place + 1, len(variants))
        after = next((i for i in later if variants[i].format == variant.format), None)
        if (
            after is None
            or variants[after].feature_bits & ~variant.feature_bits
            or build.code_of(variant, column[place])
            != build.code_of(variants[after], column[after])
        ):
            yield variant


def _group(
    chosen: Sequence[Variant | OpenclVariant],
    names: Sequence[str],
    variants: Sequence[Variant | OpenclVariant],
    kernels: Mapping[str, Sequence[Kernel]],
) -> KernelGroup:
    places = {variant: place for place, variant in enumerate(variants)}
    columns = {each: [kernels[name][places[each]] for name in names] for each in chosen}
    return KernelGroup(tuple(names), columns)
