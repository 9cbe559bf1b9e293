"""The kernel classes, and which one makes the kernel of an entry.

The class follows from the root op of the entry. An entry without a class is not an
internal error: `lower_entries` names every such op with its layer, dtype and shape in one
CompileError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module

from ingot.compiler.dispatch.group import INDEX_OPS, is_elementwise
from ingot.compiler.dispatch.ops import Entry, entries_of
from ingot.compiler.dispatch.outline import region_key
from ingot.compiler.ir import Function, Module, Op, clone_region, walk
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.contract import with_contract
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.place_polls import place_polls
from ingot.compiler.kernels.table import Ordinal
from ingot.hal.errors import CompileError

__all__ = [
    "KERNEL_CLASSES",
    "KernelClass",
    "Lowered",
    "kernel_class",
    "lower_entries",
    "lower_entry",
]

Lower = Callable[[Function, TargetInfo], Kernel]
Lowered = dict[object, tuple[Kernel, ...]]
"""Kernels of entries, one per variant, by what these are."""


@dataclass(frozen=True)
class KernelClass:
    """What entries of some kind become: `lower_<name>` of the file of this name in `lanes` is the
    schedule for vector lanes, the one in `items` that for work items.

    A schedule raises ValueError where it cannot make an entry.
    """

    name: str
    roots: tuple[str, ...] = ()  # ops, each of which makes an entry one of this class
    one_schedule: bool = False  # whose loops are the same for one item and for many, in no room
    in_words: bool = False  # it asks what products of words a target has

    def lower(self, function: Function, target: TargetInfo) -> Kernel:
        """The kernel of an entry for one variant. A program needs few of the schedules, which are
        imported when they are."""
        room = "" if self.one_schedule else "items." if target.has_items else "lanes."
        schedule = import_module(f"ingot.compiler.kernels.{room}{self.name}")
        lower: Lower = getattr(schedule, f"lower_{self.name}")
        return lower(function, target)


KERNEL_CLASSES = (
    KernelClass("map"),
    KernelClass("row", ("reduce", "arg_max", "arg_min")),
    KernelClass("contraction", ("dot_packed", "dot_coded", "dot_general"), in_words=True),
    KernelClass("convolution", ("conv_packed",), in_words=True),
    KernelClass("planar", ("conv_planar",), one_schedule=True),
    KernelClass("winograd", ("conv_winograd",)),
    KernelClass("depthwise", ("depthwise",), in_words=True),
    KernelClass("attention", ("attention", "attention_paged")),
    KernelClass("window", ("reduce_window",)),
    KernelClass("cumulative", ("cumulative",)),
    KernelClass("sort", ("sort",)),
    KernelClass("top_k", ("top_k",)),
    KernelClass("scatter", ("scatter",)),
    KernelClass("compaction", ("count_true", "locate_true")),
    KernelClass("dynamic_update_slice", ("dynamic_update_slice",), one_schedule=True),
    KernelClass("suppress", ("suppress",), one_schedule=True),
    KernelClass("scaled", ("dot_scaled",), one_schedule=True, in_words=True),
    KernelClass("own", ("kernel_call",), one_schedule=True),
)
"""In no order: an entry has one root at most, and without one it is of the class "map"."""

_BY_ROOT = {root: each for each in KERNEL_CLASSES for root in each.roots}
_MAP = next(each for each in KERNEL_CLASSES if not each.roots)
_LEAVES = frozenset({"constant", "dim", "iota"})


def kernel_class(function: Function) -> KernelClass | None:
    """The class of an entry, or None if there is none."""
    found = _MAP
    for op in function.block.ops:
        if op.name in _BY_ROOT:
            found = _BY_ROOT[op.name]
        elif op.name not in (*_LEAVES, *INDEX_OPS, "return") and not is_elementwise(op):
            return None
    return found


def lower_entry(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry for one variant. CompileError: no class can make it."""
    found = kernel_class(function)
    if found is None:
        raise CompileError(_refusal([function]))
    try:
        kernel = found.lower(function, target)
    except ValueError as error:
        layer = _layer_of(function) or function.name
        raise CompileError(f"no kernel for layer '{layer}': {error}") from error
    return place_polls(kernel, function.symbols) if target.polls else kernel


def _layer_of(entry: Function) -> str:
    return entry.attributes.layer if isinstance(entry.attributes, Entry) else ""


def lower_entries(
    module: Module,
    targets: Sequence[TargetInfo],
    tell: Callable[[Sequence[Kernel]], None] = lambda kernels: None,
    known: Lowered | None = None,
) -> dict[str, tuple[Kernel, ...]]:
    """Per entry, in order, one kernel per variant; what the caller passes is the same for all.
    `tell` is told those of an entry when they are made, products in words first: most are long.
    `known` has what was made before for the same targets, and learns these.

    Where a class cannot make the kernel of a variant beside which there is a fallback, the
    fallback's takes its place, and says why in `host`.
    CompileError lists every op that no kernel class can make.
    """
    entries = entries_of(module)
    classes = {entry.name: kernel_class(entry) for entry in entries}
    refused = [entry for entry in entries if classes[entry.name] is None]
    if refused:
        raise CompileError(_refusal(refused))
    in_words = {name for name, found in classes.items() if found is not None and found.in_words}
    made: dict[str, tuple[Kernel, ...]] = {}
    known = {} if known is None else known
    for entry in sorted(entries, key=lambda entry: entry.name not in in_words):
        key = (entry.name, tuple(entry.symbols.items()), region_key(entry.body))
        if key not in known:
            known[key] = _agree(entry, _lower_variants(entry, targets))
        made[entry.name] = known[key]
        tell(made[entry.name])
    return {entry.name: made[entry.name] for entry in entries}


def _lower_variants(entry: Function, targets: Sequence[TargetInfo]) -> list[Kernel]:
    """Kernels that do not multiply words are the same for targets that differ in nothing else."""
    found = kernel_class(entry)
    fallback = next((target for target in targets if target.is_fallback), None)
    known: dict[TargetInfo, Kernel] = {}
    kernels = []
    for target in targets:
        plain = target
        if found is not None and not found.in_words:
            plain = replace(target, variant="", dot4=False, dot2=False, half2=False, tiles=False)
        try:
            if plain not in known:
                known[plain] = lower_entry(entry, target)
            kernels.append(known[plain])
        except CompileError as error:
            if fallback is None or target is fallback:
                raise
            kernels.append(replace(lower_entry(entry, fallback), host=str(error)))
    return kernels


def _agree(entry: Function, kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The kernels with the same constants in the same order, the same in-place pairs, and
    contracts."""
    first = kernels[0]
    constants = tuple(dict.fromkeys(dim for kernel in kernels for dim in kernel.constants))
    in_place = tuple(
        pair for pair in first.in_place if all(pair in kernel.in_place for kernel in kernels)
    )
    for kernel in kernels:
        if kernel.workload != first.workload:
            raise CompileError(
                f"kernel '{kernel.name}' has workload {kernel.workload} in one variant and "
                f"{first.workload} in another: please report it"
            )
        if (kernel.bindings, kernel.workspaces) != (first.bindings, first.workspaces):
            raise CompileError(
                f"kernel '{kernel.name}' has other bindings in one variant than in another: "
                "please report it"
            )
    ordinals = {dim: ordinal for ordinal, dim in enumerate(constants)}
    agreeing = {
        kernel: with_contract(
            replace(
                _renumber(kernel, ordinals),
                constants=constants,
                in_place=in_place,
                flops=first.flops,
                bytes=first.bytes,
            ),
            entry,
        )
        for kernel in dict.fromkeys(kernels)
    }
    return tuple(agreeing[kernel] for kernel in kernels)


def _renumber(kernel: Kernel, ordinals: Mapping[Dim, int]) -> Kernel:
    if all(ordinals[dim] == place for place, dim in enumerate(kernel.constants)):
        return kernel
    loops = replace(kernel.loops, body=clone_region(kernel.loops.body, {}))
    for op in walk(loops):
        if op.name == "loop.dim":
            op.attributes = Ordinal(ordinals[kernel.constants[Ordinal.of(op).ordinal]])
    return replace(kernel, loops=loops)


def _refusal(entries: Sequence[Function]) -> str:
    lines = ["these operations have no kernel yet:"]
    for entry in entries:
        layer = _layer_of(entry) or "unnamed layer"
        for op in entry.block.ops:
            if not _has_class(op):
                types = ", ".join(str(operand.type) for operand in op.operands)
                lines.append(f"  {op.name}({types}) at '{op.location or layer}'")
    lines.append("replace them in the source model, or run that part outside of Ingot")
    return "\n".join(lines)


def _has_class(op: Op) -> bool:
    known = op.name in _BY_ROOT or op.name in (*_LEAVES, *INDEX_OPS, "return")
    return known or is_elementwise(op)
