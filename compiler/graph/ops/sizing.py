"""Rows of ops whose result dims depend on data, and of `assert`, which relates dims.

`size` and `nonzero` define a fresh symbol: before them nobody knows it, so no op that uses
it may stand in front. A symbol names one number per run of its op. What the types of a
program do not prove of its dims is said by `assert`; the ops behind it rely on that.
"""

from __future__ import annotations

from ingot.compiler.graph.ops.table import OpRow, attribute, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.spec import dtype

__all__ = ["COUNT_BLOCKS", "GREATEST_SIZE"]

GREATEST_SIZE = 1 << 40
"""Elements: a dim from data above this is taken for a mistake, and no memory is asked for."""

COUNT_BLOCKS = 64
"""Into how many runs of elements `count_true` and `locate_true` cut their operand."""

_I64 = dtype("i64")


def _size(
    x: TensorType, *, symbols: tuple[str, ...], low: Dim, high: Dim, what: str, status: str
) -> tuple[TensorType, ...]:
    require(x.rank == 0, f"a size is a value of rank 0, not {x}")
    require(len(symbols) == 1, f"a size defines one symbol, not {len(symbols)}")
    return ()


def _nonzero(x: TensorType, *, symbols: tuple[str, ...]) -> TensorType:
    require(len(symbols) == 1, f"the count of places is one symbol, not {len(symbols)}")
    require(x.rank >= 1, f"{x} has no axes to give places on: reshape it to rank 1")
    return TensorType(_I64, (x.rank, symbol(symbols[0])))


def _assert(*, kind: str, a: Dim, b: Dim) -> tuple[TensorType, ...]:
    return ()


def _count_true(x: TensorType) -> TensorType:
    require(x.rank >= 1, f"{x} has no axes")
    return TensorType(_I64, (COUNT_BLOCKS,))


def _locate_true(x: TensorType, counts: TensorType, *, size: Dim) -> TensorType:
    wanted = TensorType(_I64, (COUNT_BLOCKS,))
    require(counts == wanted, f"counts are {counts}, expected {wanted} of 'count_true'")
    return TensorType(_I64, (x.rank, size))


for _row in (
    OpRow(
        "size",
        "sizing",
        ("x: integer",),
        _size,
        "Defines its symbol as the number x (rank 0), which must lie in low ... high; `what` "
        "names it in the message of an error, which is a `status`. Where low is high the op is a "
        "check, and stays though nobody uses the symbol.",
        {
            "symbols": attribute("strings"),
            "low": attribute("dim", 0),
            "high": attribute("dim", GREATEST_SIZE),
            "what": attribute("string", "a size"),
            "status": attribute("string", "InvalidArgument", ("InvalidArgument", "OutOfRange")),
        },
    ),
    OpRow(
        "assert",
        "sizing",
        (),
        _assert,
        "Ends the call unless the dims are a = b (`equal`) or a <= b (`le`).",
        {
            "kind": attribute("string", "equal", ("equal", "le")),
            "a": attribute("dim"),
            "b": attribute("dim"),
        },
    ),
    OpRow(
        "nonzero",
        "sizing",
        ("x",),
        _nonzero,
        "The places where x is not 0 in row-major order: one row per axis. Their count is a "
        "fresh symbol.",
        {"symbols": attribute("strings")},
    ),
    OpRow(
        "count_true",
        "sizing",
        ("x: i1",),
        _count_true,
        f"How often x is true in each of {COUNT_BLOCKS} runs of ceil(count / {COUNT_BLOCKS}) "
        "elements in row-major order.",
    ),
    OpRow(
        "locate_true",
        "sizing",
        ("x: i1", "counts: integer"),
        _locate_true,
        "The first `size` places where x is true, as `nonzero`; `counts` is its `count_true`.",
        {"size": attribute("dim")},
    ),
):
    register(_row)
