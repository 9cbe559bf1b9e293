"""Writes `docs/ops.md` from the op table: `python -m ingot.compiler.graph.document_ops`."""

from __future__ import annotations

import sys
from pathlib import Path

from ingot.compiler.graph.ops import OPS, OpRow
from ingot.compiler.ir.attributes import rows_of

__all__ = ["ops_markdown"]

_HEAD = """# Ops of the graph level

Generated from the op table by `python -m ingot.compiler.graph.document_ops docs/ops.md`; do not
edit. The table is `compiler/graph/ops/`, the meaning of each op as NumPy code is
`compiler/graph/references/`.

Operands are written `name: class of dtype`; `*` takes any number, `?` may be left out. Attributes
with `=` have a default. "ulp" is the greatest error against the exact result, in units of the last
place; without it the result is exact. Element-wise ops take operands of one shape: broadcasting is
explicit. f16, bf16 and f8 ops compute in f32 and round once.

Complex numbers are pairs of real ones in front of this level. `log`, `log_plus_one` and `sqrt` of
them have errors below 4 ulp of the size |result|, over the whole range, and the special values of
C's `clog` and `csqrt`; the real part of a logarithm near |z| = 1 may have few right digits.

Modes that check an index do so where an element is read or written with it: ops whose result has no
elements read none, and refuse none.
"""

_FAMILIES = {
    "leaves": "Leaves and terminators",
    "elementwise": "Element-wise",
    "shape": "Shape",
    "indexed": "Indexed",
    "reduction": "Reductions",
    "contraction": "Contractions",
    "control": "Control and state",
    "sizing": "Sizes from data",
    "lists": "Lists",
    "natives": "Native functions and kernels of users",
}


def ops_markdown() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    for family, title in _FAMILIES.items():
        parts.append(f"\n## {title}\n\n")
        parts.extend(_entry(row) for row in OPS.values() if row.family == family)
    return "".join(parts)


def _entry(row: OpRow) -> str:
    attributes: list[str] = []
    for name, each in rows_of(row.attributes).items():
        kind = each.kind.name.replace("|", "\\|")
        attributes.append(f"{name}: {kind}{'' if each.is_required else ' = ...'}")
    signature = f"{row.name}({', '.join(row.operands)})"
    text = f"- **`{signature}`**"
    if attributes:
        text += f" {{{', '.join(attributes)}}}"
    text += f" - {row.text}"
    if row.ulp:
        text += f" *{row.ulp:g} ulp*"
    return text + "\n"


def main() -> None:
    """Write the page to the path that is the only argument."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m ingot.compiler.graph.document_ops docs/ops.md")
    Path(sys.argv[1]).write_text(ops_markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
