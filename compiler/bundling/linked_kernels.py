"""The kernels of a module as C for any variant, made again of the graph text that it keeps."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.dispatch.ops import Entry as EntryAttributes
from ingot.compiler.ir import Module
from ingot.compiler.ir.parser import parse_function
from ingot.compiler.kernels.classes import lower_entries
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.targets.target import VARIANTS, Variant
from ingot.compiler.vm.contents import Executable
from ingot.hal.errors import CompileError

__all__ = ["linked_kernels"]


def linked_kernels(executable: Executable, variants: Sequence[Variant]) -> list[list[Kernel]]:
    """Per variant the kernels of the entries, in their order.

    CompileError: the module was stripped, or was compiled for machines whose kernels are called in
    another way.
    """
    module = Module()
    for entry in executable.entries:
        if not entry.region:
            raise CompileError(
                f"the module has no graph text of kernel '{entry.name}' (layer '{entry.layer}'): "
                "it was stripped; make the bundle of the module before `ingot strip`, or of the "
                "model"
            )
        function = parse_function(entry.region)
        function.attributes = EntryAttributes(layer=entry.layer)
        module.functions[function.name] = function
    before = [VARIANTS[each.name] for each in executable.variants if each.name in VARIANTS]
    known = list(dict.fromkeys([*before, *variants]))
    lowered = list(lower_entries(module, [each.target for each in known]).values())
    for entry, kernels in zip(executable.entries, lowered, strict=True):
        found = (len(kernels[0].bindings), len(kernels[0].constants), kernels[0].written)
        if found != (entry.binding_count, entry.constant_count, entry.written):
            names = ", ".join(each.name for each in variants)
            raise CompileError(
                f"kernel '{entry.name}' (layer '{entry.layer}') of the module is called in another "
                f"way than that for {names}: compile the model for these variants too, or make the "
                "bundle of the model"
            )
    return [[kernels[known.index(variant)] for kernels in lowered] for variant in variants]
