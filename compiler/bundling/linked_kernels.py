"""The kernels of a module as C for any variant, made again of the graph text that it keeps."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.dispatch.ops import Entry as EntryAttributes
from ingot.compiler.ir import Module
from ingot.compiler.ir.parser import parse_function
from ingot.compiler.kernels.classes import lower_entries
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.targets.target import VARIANTS, Variant
from ingot.compiler.vm.contents import ModuleContents
from ingot.hal.errors import CompileError

__all__ = ["linked_kernels"]


def linked_kernels(contents: ModuleContents, variants: Sequence[Variant]) -> list[list[Kernel]]:
    """Per variant the kernels of all entries, in their order.

    CompileError: the module was stripped, or was compiled for machines whose kernels are called in
    another way.
    """
    module = Module()
    entries = [entry for each in contents.executables for entry in each.entries]
    for entry in entries:
        if not entry.region:
            raise CompileError(
                f"the module has no graph text of kernel '{entry.name}' (layer '{entry.layer}'): "
                "it was stripped; make the bundle of the module before `ingot strip`, or of the "
                "model"
            )
        function = parse_function(entry.region)
        function.attributes = EntryAttributes(layer=entry.layer)
        module.functions[function.name] = function
    known = list(dict.fromkeys([*_made_for(contents), *variants]))
    lowered = list(lower_entries(module, [each.target for each in known]).values())
    for entry, kernels in zip(entries, lowered, strict=True):
        found = (len(kernels[0].bindings), len(kernels[0].constants), kernels[0].written)
        if found != (entry.binding_count, entry.constant_count, entry.written):
            names = ", ".join(each.name for each in variants)
            raise CompileError(
                f"kernel '{entry.name}' (layer '{entry.layer}') of the module is called in another "
                f"way than that for {names}: compile the model for these variants too, or make the "
                "bundle of the model"
            )
    return [[kernels[known.index(variant)] for kernels in lowered] for variant in variants]


def _made_for(contents: ModuleContents) -> list[Variant]:
    """The variants that the module was compiled for, on which the calls of its kernels depend: one
    may have no code of its own."""
    targets = contents.metadata.get("targets", {})
    names = [name for each in targets.values() for name in each["variants"]]
    return [VARIANTS[name] for name in names if name in VARIANTS]
