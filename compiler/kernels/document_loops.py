"""Writes `docs/loops.md` from the table: `python -m ingot.compiler.kernels.document_loops`."""

from __future__ import annotations

import sys
from pathlib import Path

from ingot.compiler.ir.attributes import rows_of
from ingot.compiler.kernels.math.functions import MATH_FUNCTIONS
from ingot.compiler.kernels.table import LOOP_OPS, LoopRow

__all__ = ["loops_markdown"]

_HEAD = """# Ops of the loop level

Generated from the table by `python -m ingot.compiler.kernels.document_loops docs/loops.md`; do not
edit. The table is `compiler/kernels/table.py`, the meaning of ops on registers as NumPy code is
`compiler/kernels/references.py`, `compiler/kernels/level.py` verifies a kernel.

Loop IR is the code of one workgroup of a kernel. Values are scalars (`f32`) and vectors
(`vector<8xf32>`) of registers, typed memory (`memory<f32>`), and `index`: an integer that counts
loops, work items and elements, to which a device may give 32 bits. An index stands wherever an i64
scalar may; where an i64 scalar stands in index arithmetic, the result may be one, too, and has all
its bits. Memory is only what leaves give: it is not carried by loops or chosen by branches.

Operands are written `name: kind`; `?` may be left out, `*` is any number. "indices" and "mask" are
one of an index, or an i1, per lane; "value" is a scalar, an index or a vector. Element-wise
[graph ops](ops.md) work on values as well, with all operands of one number of lanes: `select`,
`min` and `max` of indices give an index.

A kernel stores into its results, its workspaces, scratch and local memory, never into an operand.
What work items store, others of the group see behind a barrier; a barrier stands in no loop and no
branch that the items of a group may take differently.
"""


_FUNCTIONS = """
## Math functions

What these ops are says `compiler/kernels/math`, as functions of loop IR: their arguments are the
operands, `return` gives the result, and ops in them may be math functions, too. A kernel has the op
alone; printers print its function once per number of lanes, the interpreter runs it.

{names}
"""


def loops_markdown() -> str:
    """The page as Markdown."""
    parts, family = [_HEAD], ""
    for row in LOOP_OPS.values():
        if row.family != family:
            family = row.family
            parts.append(f"\n## {family}\n\n")
        parts.append(_entry(row))
    names = ", ".join(f"`{name}`" for name in sorted(MATH_FUNCTIONS) if "." not in name)
    return "".join([*parts, _FUNCTIONS.format(names=names)])


def _entry(row: LoopRow) -> str:
    attributes = []
    for name, each in rows_of(row.attributes).items():
        kind = each.kind.name.replace("|", "\\|")
        attributes.append(f"{name}: {kind}{'' if each.is_required else ' = ...'}")
    text = f"- **`{row.name}({', '.join(row.operands)})`**"
    if attributes:
        text += f" {{{', '.join(attributes)}}}"
    if row.results:
        text += f" gives {row.results}"
    text += f" - {row.doc}"
    if row.effect:
        text += f" *{row.effect}*"
    return text + "\n"


def main() -> None:
    """Write the page to the path that is the only argument."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m ingot.compiler.kernels.document_loops docs/loops.md")
    Path(sys.argv[1]).write_text(loops_markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
