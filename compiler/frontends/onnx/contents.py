"""What the import of an ONNX model keeps of values: their elements, and what was made of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ingot.compiler.frontends.amounts import Amounts
from ingot.compiler.frontends.symbols import Names, Restart, Symbols
from ingot.compiler.ir import ListType, Op, Value

__all__ = ["Contents"]


class Contents(Amounts):
    """`symbols` are the dims of the arguments, `entry` the ops outside of all bodies."""

    def __init__(self, symbols: Symbols, entry: list[Op]) -> None:
        super().__init__(symbols)
        self.entry = entry
        self.names = Names()
        self.remembered: dict[Hashable, Any] = {}  # what was made for a value and a use of it

    def learn_rank(self, list: Value, rank: int) -> None:
        """The elements of the list have this rank. Restart: it comes from a graph input that
        leaves it open."""
        element = list.typed(ListType).dtype.name
        while isinstance(list.owner, Op) and list.owner.name.startswith("list."):
            list = list.owner.operands[0]
        self.learn_open_rank(element, rank, list.name)

    def learn_open_rank(self, element: str, rank: int, name: str = "") -> None:
        """Elements of that dtype have this rank. Restart: the graph input of that name leaves it
        open, or, as inside of loops names are not known, only one input does."""
        ranks = self.symbols.ranks
        same = [each for each, known in ranks.items() if known == (element, None)]
        if name in same or len(same) == 1:
            ranks[name if name in same else same[0]] = (element, rank)
            raise Restart
