"""Loads and stores of variables in a block: when a load may be a view, and a store in place.

A load is a view of the variable while nothing is stored between it and its uses; else what
it loads is copied at once. A branch or loop counts as a load or store where its bodies have
one. Loads are known by the attribute `variable`, the variable's ordinal.
"""

from __future__ import annotations

from ingot.compiler.ir import Block, Op, Value, walk
from ingot.compiler.stream.homes import Uses
from ingot.compiler.stream.ops import Placed, VariableOrdinal

__all__ = ["VariableAccess"]


class VariableAccess:
    """What a block does with variables. Loads that cannot be views get their copies first."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._loads: list[tuple[int, int, Op]] = []  # ordinal, place, op
        self._stores: list[tuple[int, int, Op]] = []
        self._find()
        uses = Uses(block)
        changed = [load for load in self._loads if self._is_changed(*load, uses)]
        for _, _, load in changed:
            self._copy(load)
        if changed:
            self._find()

    def _find(self) -> None:
        self._loads, self._stores = [], []
        for place, op in enumerate(self.block.ops):
            for each in walk(op):
                if each.name == "variable.load":
                    self._loads.append((self.ordinal(each), place, op))
                elif each.name == "variable.store":
                    self._stores.append((self.ordinal(each), place, op))

    @staticmethod
    def ordinal(op: Op) -> int:
        """The ordinal of the variable that the op loads or stores."""
        return VariableOrdinal.of(op).variable

    @property
    def stores(self) -> list[tuple[int, Op]]:
        """The stores of the block itself, in order."""
        return [(ordinal, op) for ordinal, _, op in self._stores if op.name == "variable.store"]

    def _is_changed(self, ordinal: int, place: int, load: Op, uses: Uses) -> bool:
        """Whether the variable changes before the last use of what was loaded."""
        if load.name != "variable.load":
            return False
        last = uses.last_use(load.result)
        # A store itself may take what was loaded; a loop that stores may not.
        return any(
            last > at or (last == at and op.name != "variable.store")
            for changed, at, op in self._stores
            if changed == ordinal and at > place
        )

    def _copy(self, load: Op) -> None:
        types = [load.result.type]
        copy = Op("stream.copy", [load.result], types, Placed(), location=load.location)
        for op in walk(self.block):
            op.operands = [copy.result if x is load.result else x for x in op.operands]
        self.block.ops.insert(self.block.ops.index(load) + 1, copy)

    def views(self, ordinal: int, store: Op) -> list[Value]:
        """The results of the block's loads of the variable before `store`."""
        end = self.block.ops.index(store)
        return [
            load.result
            for loaded, place, load in self._loads
            if loaded == ordinal and place < end and load.name == "variable.load"
        ]

    def may_begin_early(self, ordinal: int, first: object, store: Op, uses: Uses) -> bool:
        """Whether nobody would notice that op `first` begins to change the variable, instead
        of `store`."""
        assert isinstance(first, Op)
        begin, end = uses.place[first], uses.place[store]
        events = [*self._loads, *self._stores]
        return not any(at == ordinal and begin <= place < end for at, place, _ in events)

    def is_overwritten(self, ordinal: int, store: Op, last_use: int) -> bool:
        """Whether the variable changes again before the last use of what `store` stores."""
        place = self.block.ops.index(store)
        return any(at == ordinal and place < other <= last_use for at, other, _ in self._stores)
