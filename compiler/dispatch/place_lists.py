"""Decides in which slot of the VM each list lies, and turns ops on lists into work on slots.

A slot is a list of the session that instructions name by number (`csrc/vm/list.h`). A list is
changed where it lies if nobody reads it any more, else a copy is. What a loop carries has one
slot for all steps, and the results of branches one for all branches; lists that end up
elsewhere change places with it, which costs nothing. From here on lists are no values:

    slot.clear{slot}              slot.copy{slot, source}       slot.swap{slot, other}
    slot.set(x){slot}             slot.extend(x){slot}          slot.insert(x){slot, index}
    slot.erase{slot, index}       slot.length{slot, symbols}
    slot.get{slot, index, symbols}: the element, where it lies
    slot.argument(argument){slot, symbols}    slot.result{slot, given}: the result

They keep their order, as loads and stores of variables do. What a native function gives whose
dims it decides is the only element of a slot, from where it is read: its calls become

    native.call(operands){..., slot, slots}: the results whose dims are known
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ingot.compiler.dispatch.ops import (
    Native,
    Slot,
    SlotAt,
    SlotCopy,
    SlotGet,
    SlotResult,
    SlotSwap,
    SlotSymbols,
)
from ingot.compiler.graph.ops import (
    CONTROL,
    LIST_OPS,
    Assert,
    ListArgument,
    ListEmpty,
    ListErase,
    ListGet,
    ListInsert,
    ListLength,
    ListOf,
    ListResult,
    ListWiden,
    NativeCall,
)
from ingot.compiler.graph.relations import relations_of
from ingot.compiler.ir import Block, Function, ListType, Module, Op, Value, tensor_type, walk
from ingot.compiler.ir.dims import Dim, symbol

__all__ = ["place_lists"]


def place_lists(module: Module) -> Module:
    """Give every list of the module a slot; returns the module."""
    for function in module.functions.values():
        if any(op.name in LIST_OPS or op.name == "native_call" for op in walk(function)):
            _Function(function).run()
    return module


class _Function:
    """The slots of one function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.slots: dict[Value, int] = {}
        self.held: list[list[Value]] = []  # the lists that a slot holds at some time

    def run(self) -> None:
        _Block(self, self.function.block, set(), ()).write()

    def new(self) -> int:
        """A slot that no list has."""
        self.held.append([])
        return len(self.held) - 1

    def hold(self, list: Value, slot: int) -> int:
        """Let the list lie in the slot."""
        self.slots[list] = slot
        self.held[slot].append(list)
        return slot


class _Block:
    """One block. `owned` are slots that it may change, `homes` those of what it yields."""

    def __init__(
        self, parent: _Function, block: Block, owned: Iterable[int], homes: Sequence[int]
    ) -> None:
        self.parent = parent
        self.slots = parent.slots
        self.block = block
        self.owned = set(owned)
        self.homes = homes
        self.ops: list[Op] = []
        self.place = {op: place for place, op in enumerate(block.ops)}
        self.last: dict[Value, int] = {}  # the place of the last op that reads a list
        for place, op in enumerate(block.ops):
            for each in walk(op):
                self.last.update((operand, place) for operand in each.operands if _is_list(operand))

    def write(self) -> None:
        """Replace the ops on lists."""
        for op in self.block.ops[:-1]:
            if op.name in LIST_OPS:
                self._list_op(op)
            elif op.name == "native_call":
                self._native_call(op)
            elif op.name in CONTROL:
                self._control(op)
            else:
                self.ops.append(op)
        terminator = self.block.terminator
        lists = [value for value in terminator.operands if _is_list(value)]
        self._bring_home([self.slots[value] for value in lists], terminator)
        terminator.operands = [value for value in terminator.operands if not _is_list(value)]
        self.block.ops = [*self.ops, terminator]
        self.block.arguments = [value for value in self.block.arguments if not _is_list(value)]

    def _add(self, name: str, place: Op, slot: Slot, operands: Sequence[Value] = ()) -> Op:
        """Append work on a slot, with the source layer of the op `place`."""
        self.ops.append(Op(f"slot.{name}", operands, (), slot, location=place.location))
        return self.ops[-1]

    # Ops on lists.

    def _list_op(self, op: Op) -> None:
        lists = [value for value in op.operands if _is_list(value)]
        tensors = [value for value in op.operands if not _is_list(value)]
        match op.attributes:
            case ListEmpty():
                self._add("clear", op, Slot(self._new(op.result)))
            case ListWiden():
                self._slot_to_change(op, lists[0])
            case ListOf():
                self._add("set", op, Slot(self._slot_of_first(op)), tensors)
            case ListArgument(symbols=symbols):
                self._add("argument", op, SlotSymbols(self._new(op.result), symbols), tensors)
            case ListGet(index=index, symbols=symbols):
                self._give("get", op, SlotGet(self.slots[lists[0]], index, symbols))
            case ListResult(given=given):
                self._give("result", op, SlotResult(self.slots[lists[0]], given))
            case ListLength(symbols=symbols):
                self._add("length", op, SlotSymbols(self.slots[lists[0]], symbols))
            case ListInsert(index=index):
                at = SlotAt(self._slot_to_change(op, lists[0]), index)
                self._add("insert", op, at, tensors)
            case ListErase(index=index):
                self._add("erase", op, SlotAt(self._slot_to_change(op, lists[0]), index))
            case _:
                self._add("extend", op, Slot(self._slot_to_change(op, lists[0])), tensors)

    def _give(self, name: str, op: Op, slot: Slot) -> None:
        """Append work on a slot that has the result of `op`."""
        made = self._add(name, op, slot)
        made.results = op.results
        made.result.owner = made

    def _new(self, list: Value) -> int:
        slot = self.parent.new()
        self.owned.add(slot)
        return self.parent.hold(list, slot)

    def _slot_of_first(self, op: Op) -> int:
        """The slot for a list that begins with an element: the home where it is to end, if
        nobody reads what that holds any more."""
        terminator = self.block.terminator
        lists = [value for value in terminator.operands if _is_list(value)]
        if lists.count(op.result) == 1 and self.homes:
            home = self.homes[lists.index(op.result)]
            if home in self.owned and self._last_read(home) < self.place[op]:
                return self.parent.hold(op.result, home)
        return self._new(op.result)

    def _slot_to_change(self, op: Op, list: Value) -> int:
        """The slot that holds the list and becomes the result: its own if that is free."""
        slot = self.slots[list]
        if slot in self.owned and self._last_read(slot) <= self.place[op]:
            return self.parent.hold(op.result, slot)
        changed = self._new(op.result)
        self._add("copy", op, SlotCopy(changed, slot))
        return changed

    def _last_read(self, slot: int) -> int:
        """The place of the last op that reads a list in the slot; -1 if none does."""
        return max((self.last.get(value, -1) for value in self.parent.held[slot]), default=-1)

    # Native functions.

    def _native_call(self, op: Op) -> None:
        """A call, and behind it the elements that it has put into slots of its own. What it relies
        on is said in front of it."""
        call = NativeCall.of(op)
        types = call.types
        for _, a, b in relations_of(op):
            self.ops.append(Op("assert", (), (), Assert(a=a, b=b), location=op.location))
        codes: dict[Dim, Dim] = {symbol(name): -1 - k for k, name in enumerate(call.symbols)}
        values = (*op.operands, *op.results)
        dims = tuple(codes.get(dim, dim) for each in values for dim in tensor_type(each).shape)
        decided = [each for place, each in enumerate(op.results) if types.decides(place)]
        slots = [self.parent.new() for _ in decided]
        self.owned.update(slots)
        attributes = Native(
            call.name,
            str(types),
            call.details,
            dims,
            slots[0] if slots else 0,
            len(slots),
            call.optional,
        )
        made = Op("native.call", op.operands, (), attributes, location=op.location)
        made.results = [each for each in op.results if each not in decided]
        for result in made.results:
            result.owner = made
        self.ops.append(made)
        known: set[str] = set()
        for slot, result in zip(slots, decided, strict=True):
            shape = tensor_type(result).shape
            names = tuple(
                name for name in call.symbols if symbol(name) in shape and name not in known
            )
            known.update(names)
            element = Op("slot.get", (), (), SlotGet(slot, 0, names), location=op.location)
            element.results = [result]
            result.owner = element
            self.ops.append(element)

    # Branches and loops.

    def _control(self, op: Op) -> None:
        if op.name == "while":
            self._loop(op)
        else:
            self._branch(op)
        op.operands = [value for value in op.operands if not _is_list(value)]
        op.results = [value for value in op.results if not _is_list(value)]
        self.ops.append(op)

    def _loop(self, op: Op) -> None:
        """The lists that are carried have their homes from the first step on."""
        homes: list[int] = []
        for place, (operand, result) in enumerate(zip(op.operands, op.results, strict=True)):
            if not _is_list(operand):
                continue
            slot = self.slots[operand]
            if slot in homes or not self._may_take(op, slot) or self._is_captured(op, slot):
                slot = self._new(result)
                self._add("copy", op, SlotCopy(slot, self.slots[operand]))
            homes.append(slot)
            for value in (result, *(region.block.arguments[place] for region in op.regions)):
                self.parent.hold(value, slot)
        condition, body = op.regions
        _Block(self.parent, condition.block, (), ()).write()
        _Block(self.parent, body.block, homes, homes).write()

    def _may_take(self, op: Op, slot: int) -> bool:
        """Whether a branch or loop may change the slot: nobody reads it afterwards."""
        return slot in self.owned and self._last_read(slot) <= self.place[op]

    def _is_captured(self, op: Op, slot: int) -> bool:
        """Whether the bodies of a loop read a list in the slot that they do not carry."""
        return any(self.slots[value] == slot for value in _captured(op, self.slots))

    def _branch(self, op: Op) -> None:
        """The results have slots of their own, or those of lists that only the branches read."""
        results = [result for result in op.results if _is_list(result)]
        dying = [
            slot
            for slot in dict.fromkeys(self.slots[value] for value in _captured(op, self.slots))
            if self._may_take(op, slot)
        ]
        homes: list[int] = []
        for result in results:
            if len(homes) < len(dying):
                homes.append(self.parent.hold(result, dying[len(homes)]))
            else:
                homes.append(self._new(result))
        for region in op.regions:
            _Block(self.parent, region.block, {*homes, *dying}, homes).write()

    def _bring_home(self, slots: Sequence[int], terminator: Op) -> None:
        """Let what lies in `slots` end in the homes: by copies of what others need too, then by
        changing places."""
        if not self.homes:
            return
        at: list[int] = []
        for slot in slots:
            if slot in self.owned and slot not in at:
                at.append(slot)
                continue
            copy = self.parent.new()
            self._add("copy", terminator, SlotCopy(copy, slot))
            at.append(copy)
        for place, home in enumerate(self.homes):
            slot = at[place]
            if slot == home:
                continue
            self._add("swap", terminator, SlotSwap(home, slot))
            at = [slot if each == home else each for each in at]
            at[place] = home


def _captured(op: Op, slots: dict[Value, int]) -> list[Value]:
    """The lists from outside that the bodies of a branch or loop read."""
    ops = (each for region in op.regions for each in walk(region))
    inner = (operand for each in ops for operand in each.operands)
    return [value for value in dict.fromkeys(inner) if _is_list(value) and value in slots]


def _is_list(value: Value) -> bool:
    return isinstance(value.type, ListType)
