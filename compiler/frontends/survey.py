"""What a front end meets on its way through a source: every op, and what becomes of it.

A front end that is given a `Survey` goes on where an import would end: it notes problems instead
of raising them, and takes what it cannot make as an argument of the type that the source declares.
"""

from __future__ import annotations

from dataclasses import field

from ingot.compiler.ir.dataclass import dataclass

__all__ = ["Survey", "Use"]


@dataclass(frozen=True)
class Use:
    """An op of the source. `problem` says why it is not taken, "" if it is; `is_seen` is False
    where that cannot be told, since nothing is known of its operands."""

    op: str
    types: tuple[str, ...]  # of its operands: "f32[b,4]"
    layer: str
    problem: str = ""
    is_seen: bool = True


@dataclass
class Survey:
    """All uses, and the problems of the source, a line per cause."""

    uses: list[Use] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def start(self) -> None:
        """The front end begins anew."""
        self.uses.clear()
        self.problems.clear()
