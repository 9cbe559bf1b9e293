"""What a lowered dispatch is: its loop IR and the numbers that a caller must know.

`Kernel` is the product of every kernel class (map, row, contraction, ...) and the input
of every printer. `TargetInfo` is all that a kernel class may know of the machine.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from ingot.compiler.graph.relations import Relation
from ingot.compiler.ir import Function, TensorType, walk
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.loop import dtype_of
from ingot.compiler.kernels.table import Ordinal
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["Kernel", "OwnSchedule", "TargetInfo", "checked_name"]

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class TargetInfo:
    """What a variant of a target can do, as far as schedules depend on it."""

    variant: str  # a name for people: "x86-64-v4", "opencl-c", ...
    vector_length: int  # bytes of one vector register
    register_count: int  # vector registers
    fma: bool  # has a fused multiply-add
    dot4: bool = False  # has an instruction for `loop.dot4` of u8 and i8
    dot2: bool = False  # has one for `loop.dot2`, of bf16
    half2: bool = False  # has those for `loop.fma2` and `loop.sum2`, of f16
    tiles: bool = False  # has those for `loop.dot_tiles`, of bytes and of bf16
    group_size: int = 1  # work items of one group that a schedule should aim at
    local_memory: int = 0  # bytes that the work items of a group can share
    has_items: bool = False  # workgroups are groups of work items, if only of one
    polls: bool = False  # a workgroup may ask whether its call is to end
    is_fallback: bool = False  # the host runs it for a device that lacks or fails a kernel
    language: str = "C"  # of kernels that users write

    def lanes(self, *dtypes: DType) -> int:
        """How many elements of the widest of `dtypes` one register holds, at least 4.

        f16 and bf16 are computed in f32 and i1 beside anything, so they count as such.
        """
        widest = max((register_bytes(dtype) for dtype in dtypes), default=4)
        return max(self.vector_length // widest, 4)


@dataclass(frozen=True)
class OwnSchedule:
    """A kernel as text: the function `entry` of `source` takes the bindings number `places`, with
    the operands first, then the numbers `symbols`, then its position on the first `axes` axes."""

    source: str
    entry: str
    places: tuple[int, ...]
    symbols: tuple[Dim, ...]
    axes: int
    operand_count: int


def register_bytes(dtype: DType) -> int:
    """Bytes of one lane of `dtype` in a vector register."""
    if dtype.is_boolean:
        return 1
    return max(dtype.bytes, 4) if dtype.is_float else dtype.bytes


def checked_name(name: str) -> str:
    """A name that is about to stand in the text of a kernel. CompileError: it could end up as
    code, for it is no plain identifier."""
    if not _NAME.fullmatch(name):
        raise CompileError(f"the kernel name {name[:80]!r} is no identifier: please report it")
    return name


@dataclass(frozen=True, eq=False, kw_only=True)
class Kernel:
    """One entry of an executable.

    Bindings are the operands of the dispatch, then its results, then its workspaces: memory
    of arbitrary content that it may use while it runs. Each is dense row-major. Dims are
    over the symbols of the entry function. The grid is ceil(workload / tile).

    `host` says why there is no kernel for the target's device: this one is the fallback's.
    """

    name: str
    loops: Function
    bindings: tuple[DType, ...]
    result_count: int  # the last bindings, which are written: results and workspaces
    constants: tuple[Dim, ...]  # the i64 constants to pass, `loop.dim` by ordinal
    workload: tuple[Dim, Dim, Dim]
    tile: tuple[int, int, int]
    flops: Dim
    bytes: Dim
    scratch_length: int = 0
    local_size: tuple[int, int, int] = (1, 1, 1)  # work items of a workgroup
    local_length: int = 0  # bytes of memory that they share
    workspaces: tuple[TensorType, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()  # (operand, result) that may share memory
    untouched: Dim = 0  # how many of `bytes` are not touched where they do
    schedule: Any = field(default=None)  # a frozen record, printed with the kernel
    host: str = ""
    contract: tuple[Relation, ...] = ()  # what a caller's numbers must satisfy: contract.py

    @property
    def own(self) -> OwnSchedule | None:
        """What a user has written, in place of loops."""
        return self.schedule if isinstance(self.schedule, OwnSchedule) else None

    @property
    def alignments(self) -> list[int]:
        """The bytes of what the kernel reads from each binding at once, which may be wider than an
        element of the tensor: codes are read in words."""
        lengths = [dtype.bytes for dtype in self.bindings]
        for op in walk(self.loops):
            if op.name == "loop.binding":
                ordinal = Ordinal.of(op).ordinal
                lengths[ordinal] = max(lengths[ordinal], dtype_of(op.result).bytes)
        return lengths

    @property
    def written(self) -> int:
        """Bit b is set where binding b is written."""
        count = len(self.bindings)
        return (1 << count) - (1 << (count - self.result_count))
