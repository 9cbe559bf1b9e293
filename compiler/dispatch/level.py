"""The dispatch level for the verifier, after `outline`: which ops are legal, and where.

Tensors are computed by entry functions only. In the functions that call them stay leaves,
aliases, control flow, rows that need no kernel, and numbers of one element, which the VM
computes in its registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.compiler.dispatch.ops import DISPATCH_OPS, SLOT_OPS, Call, entries_of
from ingot.compiler.dispatch.scalar_ops import FLOAT_OPS, INTEGER_OPS
from ingot.compiler.graph.ops import OPS
from ingot.compiler.ir import Level, Module, Op, TensorType, walk

__all__ = ["CALLER_OPS", "DISPATCH"]

_LEAVES = ("constant", "parameter", "global", "dim")
_CONTROL = ("if", "case", "while", "yield", "return")
_EFFECTS = ("variable.load", "variable.store", "size", "native.call")
_ROWS = ("view", "update")
_BYTES = ("reshape", "reinterpret")
_SCALARS = ("scalar.read", "scalar.write", "scalar.symbol")

CALLER_OPS = frozenset(
    {*_LEAVES, *_CONTROL, *_EFFECTS, *_ROWS, *_SCALARS, *SLOT_OPS, *_BYTES, "broadcast"}
)
"""What may stand beside the calls; `broadcast` and the scalar ops on one element only."""


def _is_one_element(op: Op) -> bool:
    tensors = [result.type for result in op.results if isinstance(result.type, TensorType)]
    return all(dim == 1 for type in tensors for dim in type.shape)


def _check_module(module: Module) -> Iterator[str]:
    """Calls fit their entries; no tensor is computed outside of an entry."""
    entries = {each.name for each in entries_of(module)}
    for name, function in module.functions.items():
        if name in entries:
            continue
        for op in walk(function):
            if op.name == "dispatch.call":
                yield from _check_call(module, op, entries)
            elif op.name not in CALLER_OPS or op.name == "broadcast":
                scalar = op.name in INTEGER_OPS | FLOAT_OPS or op.name == "broadcast"
                if not scalar or not _is_one_element(op):
                    yield f"'@{name}': op '{op.name}' computes a tensor outside of any entry"


def _check_call(module: Module, op: Op, entries: set[str]) -> Iterator[str]:
    call = Call.of(op)
    if call.entry not in entries:
        yield f"a call names the entry '{call.entry}', which the module does not have"
        return
    entry = module.functions[call.entry]
    counts = (len(op.operands), len(op.results), len(call.dims))
    wanted = (len(entry.arguments), len(entry.result_types), len(entry.symbols))
    if counts != wanted:
        yield (
            f"a call of '@{call.entry}' has {counts} operands, results and dims, but the entry "
            f"has {wanted}"
        )


DISPATCH = Level(
    "dispatch",
    dict.fromkeys([*OPS, *DISPATCH_OPS]),
    check_module=_check_module,
)
"""Graph ops inside entries, calls outside."""
