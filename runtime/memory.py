"""What a model holds of memory, and what a call of it would need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ingot.hal.errors import InvalidArgument
from ingot.hal.native import check, ffi, lib
from ingot.runtime.signature import Signature, Value

__all__ = [
    "MEMORY_KINDS",
    "CallSize",
    "MemoryStatistics",
    "Usage",
    "measure_call",
    "read_statistics",
]


@dataclass(frozen=True)
class Usage:
    """Bytes now, and the most that there were at one time."""

    current: int
    peak: int


@dataclass(frozen=True)
class MemoryStatistics:
    """Bytes of buffers by what they are for."""

    total: Usage
    constants: Usage  # of the module
    parameters: Usage  # weights as they were given, while the model was loaded
    weights: Usage  # as calls use them
    state: Usage
    slabs: Usage  # working memory of calls
    lists: Usage
    results: Usage  # arrays that calls made and that are still there


MEMORY_KINDS = tuple(field.name for field in fields(MemoryStatistics))[1:]


@dataclass(frozen=True)
class CallSize:
    """What a call needs. `slab` is at least that much if `is_exact` is false, as the program takes
    sizes from data; `results` are shapes, with None for what data decides."""

    slab: int
    is_exact: bool
    results: tuple[tuple[int | None, ...], ...]


def read_statistics(statistics: Any) -> MemoryStatistics:
    """Of what ingot_session_statistics or ingot_program_statistics gave."""
    usages = (getattr(statistics, field.name) for field in fields(MemoryStatistics))
    return MemoryStatistics(*(Usage(each.current, each.peak) for each in usages))


def measure_call(
    session: Any, ordinal: int, signature: Signature, shapes: Sequence[Sequence[int]]
) -> CallSize:
    """Asks the C session."""
    tensors, results = _tensors(signature.arguments), _tensors(signature.results)
    ranks = [len(each.shape) for each in tensors]
    if [len(each) for each in shapes] != ranks:
        raise InvalidArgument(
            f"shapes of ranks {[len(each) for each in shapes]} for {signature}, whose tensors have "
            f"ranks {ranks}"
        )
    dims = ffi.new("int64_t[]", [size for shape in shapes for size in shape])
    out_dims = ffi.new("int64_t[]", sum(len(each.shape) for each in results))
    out = ffi.new("ingot_measure_t *")
    check(lib.ingot_session_measure(session, ordinal, dims, len(dims), out_dims, out))
    sizes = iter([None if size < 0 else size for size in out_dims])
    known = tuple(tuple(next(sizes) for _ in each.shape) for each in results)
    return CallSize(out.slab_length, out.is_exact, known)


def _tensors(values: Sequence[Value]) -> list[Value]:
    return [each for each in values if each.kind == "tensor"]
