"""Rows of ops whose result dims depend on data, and of `assert`, which relates dims.

`size` and `nonzero` define a fresh symbol: before them nobody knows it, so no op that uses
it may stand in front. A symbol names one number per run of its op. What the types of a
program do not prove of its dims is said by `assert`; the ops behind it rely on that.
"""

from __future__ import annotations

from typing import Literal

from ingot.compiler.graph.ops.table import OpRow, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.attributes import Attributes, Names
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.spec import dtype

__all__ = ["COUNT_BLOCKS", "GREATEST_SIZE", "Assert", "LocateTrue", "Nonzero", "Size"]

GREATEST_SIZE = 1 << 40
"""Elements: a dim from data above this is taken for a mistake, and no memory is asked for."""

COUNT_BLOCKS = 64
"""Into how many runs of elements `count_true` and `locate_true` cut their operand."""

_I64 = dtype("i64")


@dataclass(frozen=True)
class Size(Attributes):
    """Defines its symbol as the number x (rank 0), which must lie in low ... high; `what` names it
    in the message of an error, which is a `status`. Where low is high the op is a check, and stays
    though nobody uses the symbol."""

    symbols: Names
    low: Dim = 0
    high: Dim = 1099511627776
    what: str = "a size"
    status: Literal["InvalidArgument", "OutOfRange"] = "InvalidArgument"

    def result(self, x: TensorType) -> tuple[TensorType, ...]:
        require(x.rank == 0, f"a size is a value of rank 0, not {x}")
        require(len(self.symbols) == 1, f"a size defines one symbol, not {len(self.symbols)}")
        return ()


@dataclass(frozen=True)
class Nonzero(Attributes):
    """The places where x is not 0 in row-major order: one row per axis. Their count is a fresh
    symbol."""

    symbols: Names

    def result(self, x: TensorType) -> TensorType:
        require(
            len(self.symbols) == 1, f"the count of places is one symbol, not {len(self.symbols)}"
        )
        require(x.rank >= 1, f"{x} has no axes to give places on: reshape it to rank 1")
        return TensorType(_I64, (x.rank, symbol(self.symbols[0])))


@dataclass(frozen=True, kw_only=True)
class Assert(Attributes):
    """Ends the call unless the dims are a = b (`equal`) or a <= b (`le`)."""

    kind: Literal["equal", "le"] = "equal"
    a: Dim
    b: Dim

    def result(self) -> tuple[TensorType, ...]:
        return ()


def _count_true(x: TensorType) -> TensorType:
    require(x.rank >= 1, f"{x} has no axes")
    return TensorType(_I64, (COUNT_BLOCKS,))


@dataclass(frozen=True)
class LocateTrue(Attributes):
    """The first `size` places where x is true, as `nonzero`; `counts` is its `count_true`."""

    size: Dim

    def result(self, x: TensorType, counts: TensorType) -> TensorType:
        wanted = TensorType(_I64, (COUNT_BLOCKS,))
        require(counts == wanted, f"counts are {counts}, expected {wanted} of 'count_true'")
        return TensorType(_I64, (x.rank, self.size))


for _row in (
    OpRow("size", "sizing", ("x: integer",), Size),
    OpRow("assert", "sizing", (), Assert),
    OpRow("nonzero", "sizing", ("x",), Nonzero),
    OpRow(
        "count_true",
        "sizing",
        ("x: i1",),
        _count_true,
        f"How often x is true in each of {COUNT_BLOCKS} runs of ceil(count / {COUNT_BLOCKS}) "
        "elements in row-major order.",
    ),
    OpRow("locate_true", "sizing", ("x: i1", "counts: integer"), LocateTrue),
):
    register(_row)
