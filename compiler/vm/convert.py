"""Converts planned stream IR to vm ops.

A tensor becomes a reference and a byte offset; a dim or a scalar becomes a register. Arguments
are checked first; then the queue's work follows in order; branches and loops become blocks
(`control.py`). `init` reads parameters,
allocates one arena for all that it makes, and leaves it as a program global.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial

from ingot.compiler.dispatch.ops import SLOT_OPS, Guard, Rows
from ingot.compiler.graph.init_functions import init_functions
from ingot.compiler.graph.ops import Size, defined_symbols
from ingot.compiler.ir import Block, Function, Module, Op, Region, TensorType, Value, tensor_type
from ingot.compiler.ir.attributes import NO_ATTRIBUTES
from ingot.compiler.ir.dims import Dim
from ingot.compiler.stream.ops import (
    Dispatch,
    GlobalBytes,
    InSlab,
    KernelCall,
    ParameterOrdinal,
    Place,
    Placed,
    PlannedFunction,
    PlannedNative,
    SharedBytes,
    VariableOrdinal,
)
from ingot.compiler.stream.plan_memory import byte_length
from ingot.compiler.vm.check_arguments import check_arguments
from ingot.compiler.vm.check_layers import LayerChecks
from ingot.compiler.vm.code import F64, CodeBuilder
from ingot.compiler.vm.control import Bytes, write_control, write_first_that_holds
from ingot.compiler.vm.lists import write_results, write_slot_op
from ingot.compiler.vm.scalars import write_scalar_op
from ingot.compiler.vm.sizes import Sizes
from ingot.hal.spec import status

__all__ = ["convert"]


def convert(module: Module) -> Module:
    """The vm level of a planned stream module; functions keep their names and order."""
    result = Module(attributes=dict(module.attributes))
    arenas = {each.name: arena for arena, each in enumerate(init_functions(module))}
    for name, function in module.functions.items():
        result.add(_Converter(function, arenas.get(name)).convert())
    return result


class _Converter:
    def __init__(self, function: Function, arena: int | None) -> None:
        self.function = function
        self.arena = arena  # the number of that which it makes; None: it is no init function
        self.code = CodeBuilder(Block())
        self.sizes = Sizes(self.code)
        self.places: dict[Value, Bytes] = {}
        self.scalars: dict[Value, Value] = {}
        self.carried: dict[int, Bytes] = {}
        self.checks = LayerChecks(PlannedFunction.of(function).checks, self.code, self.sizes)

    def convert(self) -> Function:
        function = self.function
        if self.arena is None:
            check_arguments(function, self.code, self.sizes)
            self.checks.make()
        for ordinal, argument in enumerate(function.arguments):
            if not isinstance(argument.type, TensorType):
                continue  # `slot.argument` reads it
            at = self.code.op("argument.buffer", immediates=(ordinal,))
            self.places[argument] = Bytes(*at)
        self._open_first_slab()
        for op in function.block.ops:
            self.op(op)
        return replace(function, body=Region(self.code.finish()), attributes=NO_ATTRIBUTES)

    def _open_first_slab(self) -> None:
        if self._slab_lengths()[0] == 0:
            return
        reference, offset = self._slab("slab" if self.arena is None else "arena")
        if self.arena is not None:
            # A global is a buffer without an offset, and `main` counts from its start.
            at_start = self.code.op("eq.i64", offset, self.code.constant(0))[0]
            message = "the arena starts at byte {} of its buffer, expected 0"
            self.code.check(at_start, status("Internal").code, message, offset)
            self.code.op("global.store", reference, immediates=(self.arena,))

    def _slab_lengths(self) -> tuple[Dim, ...]:
        """Per scope of the plan, the length of the slab up to its end."""
        planned = PlannedFunction.of(self.function)
        return planned.slab_scopes or (planned.slab_length,)

    def op(self, op: Op) -> None:
        """The instructions of one op."""
        self.code.location = op.location
        self.code.operations = Dispatch.of(op).operations if op.name == "stream.dispatch" else ""
        match op.name:
            case "stream.constant":
                self.places[op.result] = self._in_shared("constants", (), SharedBytes.of(op).offset)
            case "stream.global":
                at = GlobalBytes.of(op)
                self.places[op.result] = self._in_shared("global.load", (at.arena,), at.offset)
            case "stream.parameter":
                ordinal = ParameterOrdinal.of(op).ordinal
                self.places[op.result] = Bytes(*self.code.op("parameter", immediates=(ordinal,)))
            case "stream.alias":
                self.places[op.result] = self.places[op.operands[0]]
            case "stream.dispatch":
                self._dispatch(op)
            case "stream.native":
                self._native(op)
            case "stream.copy":
                source = self.places[op.operands[0]]
                self._place_results(op)
                length = self.sizes.value(byte_length(op.result))
                self.code.op("copy", *source, *self.places[op.result], length)
            case "view":
                self.places[op.result] = self._behind(self.places[op.operands[0]], op)
            case "update":
                self._place_results(op)
                source = self.places[op.operands[1]]
                target = self._behind(self.places[op.result], op)
                length = self.sizes.value(byte_length(op.operands[1]))
                self.code.op("copy", *source, *target, length)
            case "stream.size":
                self._size(op)
            case "slot.result":
                write_results(op, self.function, self.code, self.sizes)
            case name if name in SLOT_OPS:
                write_slot_op(op, self.function, self.code, self.sizes, self.places)
                self.checks.make()
            case "variable.load":
                ordinal = VariableOrdinal.of(op).variable
                if VariableOrdinal.of(op).grows:
                    room = self.length(op.result)
                    made = self.code.op("variable.grow", room, immediates=(ordinal,))
                    self.places[op.result] = Bytes(*made)
                else:
                    self.places[op.result] = self._variable("variable.read", ordinal)
            case "if" | "case" | "while":
                write_control(op, self)
            case "yield":
                pass  # what it yields is written by the op around it
            case "return":
                self.code.op("return", counts=(0, 0, 0))
            case _:
                self._scalar_op(op)

    def _behind(self, place: Bytes, op: Op) -> Bytes:
        """The place that lies the op's `offset` behind another one."""
        offset = self.sizes.value(Rows.of(op).offset)
        return Bytes(place.reference, self.code.op("add.size", place.offset, offset)[0])

    # Scalars.

    def _scalar_op(self, op: Op) -> None:
        match op.name:
            case "scalar.read":
                self.scalars[op.result] = self._read(op.operands[0])
            case "scalar.write":
                self._place_results(op)
                scalar = self.scalars[op.operands[0]]
                name = "write.f64" if scalar.type == F64 else "write.i64"
                element = tensor_type(op.result).dtype.code
                self.code.op(name, *self.places[op.result], scalar, immediates=(element,))
            case "scalar.symbol":
                (name,) = defined_symbols(op)
                self.sizes.define(name, self.scalars[op.operands[0]])
            case _:
                operands = [self.scalars[operand] for operand in op.operands]
                self.scalars[op.result] = write_scalar_op(op, operands, self.code, self.sizes)

    def _read(self, tensor: Value) -> Value:
        """The register that gets an element of memory, when the queue has made it."""
        dtype = tensor_type(tensor).dtype
        name = "read.f64" if dtype.is_float else "read.i64"
        return self.code.op(name, *self.places[tensor], immediates=(dtype.code,))[0]

    def _size(self, op: Op) -> None:
        """Check a number, which is read back unless a register has it, and let it be the symbol."""
        code = self.code
        (x,) = op.operands
        value = self.scalars[x] if x in self.scalars else self._read(x)
        size = Size.of(op)
        least, greatest = self.sizes.value(size.low), self.sizes.value(size.high)
        above = code.op("le.i64", least, value)[0]
        below = code.op("le.i64", value, greatest)[0]
        inside = code.op("and.i64", above, below)[0]
        layer = f"layer '{op.location}': " if op.location else ""
        message = f"{layer}{size.what} is {{}}, expected {{}} to {{}}"
        refused = status(size.status).code
        code.check(inside, refused, message, value, least, greatest)
        (name,) = defined_symbols(op)
        self.sizes.define(name, value)
        self.checks.make()

    # Memory.

    def _in_shared(self, name: str, immediates: tuple[int, ...], offset: Dim) -> Bytes:
        """A place in the constants, or in an arena, to which there is one reference."""
        key = (name, *immediates)
        made = self.code.once(key, 0, lambda: self.code.op(name, immediates=immediates)[0])
        assert isinstance(made, Value)
        return Bytes(made, self.sizes.value(offset))

    def _place_results(self, op: Op) -> None:
        for result, place in zip(op.results, self.places_of(op), strict=True):
            if place is not None:
                self.places[result] = place

    def length(self, value: Value) -> Value:
        """The register with the bytes of a tensor."""
        return self.sizes.value(byte_length(value))

    def places_of(self, op: Op) -> list[Bytes | None]:
        """Where the results of an op lie; None for scalars."""
        return [None if place is None else self.place(place) for place in Placed.of(op).places]

    def place(self, place: Place) -> Bytes:
        """The buffer and offset of a place as the plan names it."""
        if isinstance(place, InSlab):
            return self._in_slab(place)
        match place.kind:
            case "carried":
                return self.carried[place.ordinal]
            case "result":
                return self._result_buffer(place.ordinal)
            case "variable":
                return self._variable("variable.write", place.ordinal)

    def _in_slab(self, place: InSlab) -> Bytes:
        slab = self._slab(place.kind, place.scope)
        if place.offset == 0:
            return slab
        level = max(self.sizes.level(place.offset), self._slab_level(place.scope))

        def offset() -> Value:
            return self.code.op("add.i64", slab.offset, self.sizes.value(place.offset))[0]

        made = self.code.once(place, level, offset)
        assert isinstance(made, Value)
        return Bytes(slab.reference, made)

    def _slab_level(self, scope: int) -> int:
        return self.sizes.level(self._slab_lengths()[scope])

    def _slab(self, instruction: str, scope: int = 0) -> Bytes:
        """Buffer and start of the slab, or the arena, of a scope."""
        length = self._slab_lengths()[scope]

        def make() -> Bytes:
            return Bytes(*self.code.op(instruction, self.sizes.value(length)))

        return self._once((instruction, scope), self._slab_level(scope), make)

    def _once(self, key: Hashable, level: int, make: Callable[[], Bytes]) -> Bytes:
        made = self.code.once(key, level, make)
        assert isinstance(made, Bytes)
        return made

    def _variable(self, instruction: str, ordinal: int) -> Bytes:
        """A variable's buffer. It counts as being changed from `variable.write` on, so that
        comes no earlier than the first write."""

        def make() -> Bytes:
            return Bytes(*self.code.op(instruction, immediates=(ordinal,)))

        return self._once((instruction, ordinal), self.code.level, make)

    def _result_buffer(self, ordinal: int) -> Bytes:
        type = self.function.block.terminator.operands[ordinal].typed(TensorType)

        def make() -> Bytes:
            dims = [self.sizes.value(dim) for dim in type.shape]
            counts = (len(dims),)
            return Bytes(
                *self.code.op("result.buffer", *dims, immediates=(ordinal,), counts=counts)
            )

        return self._once(("result", ordinal), 0, make)

    def _dispatch(self, op: Op) -> None:
        """The kernel, or the first of its alternatives whose guards hold."""
        self._place_results(op)
        dispatch = Dispatch.of(op)
        if not dispatch.alternatives:
            self._queue(op, dispatch.call)
            return
        conditions = [self._holds(each.guards) for each in dispatch.alternatives]
        calls = (*(each.call for each in dispatch.alternatives), dispatch.call)
        write_first_that_holds(
            conditions, [partial(self._queue, op, call) for call in calls], self.code
        )

    def _native(self, op: Op) -> None:
        """The call of a native function; what it decides is read from slots behind it."""
        self._place_results(op)
        call = PlannedNative.of(op)
        operands = [self.sizes.value(dim) for dim in call.dims]
        bindings = [*op.operands, *op.results]
        for value in bindings:
            operands += [*self.places[value], self.sizes.value(byte_length(value))]
        immediates = (call.native, call.slot, call.details)
        counts = (len(call.dims), len(bindings))
        self.code.op("native.call", *operands, immediates=immediates, counts=counts)

    def _holds(self, guards: tuple[Guard, ...]) -> Value:
        """The register that is 1 where every dim has its value; each test is made once."""
        first, *others = guards

        def make() -> Value:
            number = self.code.constant(first.value)
            equal = self.code.op("eq.i64", self.sizes.value(first.dim), number)[0]
            if not others:
                return equal
            return self.code.op("and.i64", equal, self._holds(tuple(others)))[0]

        level = max(self.sizes.level(each.dim) for each in guards)
        made = self.code.once(("holds", guards), level, make)
        assert isinstance(made, Value)
        return made

    def _queue(self, op: Op, call: KernelCall) -> None:
        """Queue a kernel, with the operands and results of `op`."""
        numbers = (*call.workload, call.flops, call.bytes, *call.constants)
        operands = [self.sizes.value(number) for number in numbers]
        bindings = [*op.operands, *op.results]
        for value in bindings:
            operands += [*self.places[value], self.sizes.value(byte_length(value))]
        counts = (len(call.constants), len(bindings))
        self.code.op("dispatch", *operands, immediates=(call.kernel,), counts=counts)
