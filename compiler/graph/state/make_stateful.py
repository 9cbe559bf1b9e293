"""Turns arguments and results of functions into variables of the module.

An argument becomes a load at the start, a result a store. A cache is read through a slice up
to its length, a symbol that the function defines from the variable that counts. What a
function appends is written behind that length into the cache's own memory; where the
program concatenates, that takes the place of the concatenation. A length beyond the capacity
is OutOfRange before anything is written.

Where the variables come from is `plan_state.py`; how users say it is `compiler/state.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import AlongAxis, defined_symbols
from ingot.compiler.graph.state.plan_state import Cache, Link, StatePlan, Use, plan_state
from ingot.compiler.graph.symbols import inner_symbols, substitute_symbols
from ingot.compiler.ir import (
    Function,
    Literal,
    Module,
    Op,
    ReferenceType,
    TensorType,
    Value,
    Variable,
    walk,
)
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import (
    Dim,
    Expr,
    known_dim,
    maximum,
    prove_le,
    symbol,
    symbols_of,
)
from ingot.compiler.ir.literals import literal_from_bytes, literal_from_numbers
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["make_stateful"]

_LENGTH = TensorType(dtype("i64"))
_MOST = 1 << 40  # elements of a cache without a capacity


def make_stateful(
    module: Module,
    links: Mapping[str, Sequence[Link]],
    *,
    capacity: int | None = None,
    initial: Mapping[str, Literal] | None = None,
) -> Module:
    """Make variables of what `links` names, per function; returns the module.

    `capacity` is the room of the caches along the axis in which they grow, None: as much as they
    come to need. `initial` are
    values that variables start from, by variable; the others start as zeros, and a cache for
    which a value is given starts as full as that is.
    """
    plan = plan_state(module, links, capacity)
    _add_variables(module, plan, initial or {})
    for name, uses in plan.uses.items():
        _Rewriter(module.functions[name], uses, plan).run()
    return module


# The variables


def _add_variables(module: Module, plan: StatePlan, initial: Mapping[str, Literal]) -> None:
    lengths: dict[str, int] = {}
    for name, type in plan.types.items():
        literal = initial.get(name)
        cache = plan.caches.get(name)
        if cache is not None and literal is not None:
            if cache.grows:
                raise CompileError(
                    f"'{name}' grows, and cannot start from initial=: give its room by capacity="
                )
            literal = _padded(name, literal, type, cache, lengths)
        _add_variable(module, name, type, literal)
    for cache in plan.caches.values():
        count = lengths.get(cache.length, 0)
        if cache.length not in module.variables:
            literal = literal_from_numbers([count], (), _LENGTH.dtype)
            _add_variable(module, cache.length, _LENGTH, literal)


def _add_variable(module: Module, name: str, type: TensorType, initial: Literal | None) -> None:
    if name in module.variables:
        raise CompileError(f"the program has a variable '{name}' already; rename the argument")
    if isinstance(type, ReferenceType):
        raise CompileError(
            f"state: '{name}' is {type}, a reference, which ends with its call: pass it to each"
        )
    if initial is None:
        initial = literal_from_bytes(bytes(type.dtype.bytes), (), type.dtype)
    elif initial.dtype is not type.dtype or initial.shape not in ((), type.shape):
        shape = ",".join(map(str, initial.shape))
        raise CompileError(
            f"the initial value of '{name}' is {initial.dtype.name}[{shape}], expected {type}"
        )
    module.variables[name] = Variable(type, initial)


def _padded(
    name: str, literal: Literal, type: TensorType, cache: Cache, lengths: dict[str, int]
) -> Literal:
    """What a cache starts from, with the rest of its capacity behind it."""
    array = literal.array
    room = known_dim(type.shape[cache.axis])
    if array.ndim != type.rank or array.shape[cache.axis] > room:
        raise CompileError(
            f"the initial value of '{name}' has the shape {array.shape}, which does not fit {type}"
        )
    count = array.shape[cache.axis]
    if lengths.setdefault(cache.length, count) != count:
        raise CompileError(
            f"the initial value of '{name}' has {count} elements along axis {cache.axis}, but "
            f"another with the same length has {lengths[cache.length]}"
        )
    padded = np.zeros([int(dim) for dim in type.shape if isinstance(dim, int)], array.dtype)
    padded[(slice(None),) * cache.axis + (slice(0, count),)] = array
    return Literal(padded, literal.dtype)


# The functions


@dataclass(frozen=True)
class _Count:
    """How many elements caches with one length hold before and after a call; None: unread,
    unwritten. `is_bound`: the arguments that stay tell `before` as well."""

    before: Dim | None
    after: Dim | None
    is_bound: bool = False

    @property
    def growth(self) -> Dim:
        """By how much the length grows, whatever it was; 0 if that is not so simple."""
        if self.before is None or self.after is None:
            return 0
        growth = self.after - self.before
        return 0 if symbols_of(growth) & symbols_of(self.before) else growth

    @property
    def is_append(self) -> bool:
        return self.before is not None and self.after == self.before + self.growth


class _Rewriter:
    """Writes one function anew: loads, slices, updates and stores."""

    def __init__(self, function: Function, uses: Sequence[Use], plan: StatePlan) -> None:
        self.function = function
        self.uses = uses
        self.plan = plan
        self.front: list[Op] = []
        self.buffers: dict[str, Value] = {}
        self.replaced: dict[Value, Value] = {}
        self.stored: dict[str, Dim] = {}  # per length that changes, what it becomes

    def run(self) -> None:
        function = self.function
        counts = {length: self._count(uses) for length, uses in self._groups().items()}
        builder = Builder(self.front, "state")
        for length, count in counts.items():
            self._check_group(length, count)
            self._check_length(length, count, builder)
        for use in self.uses:
            self._load(use, counts, builder)
        appends = {op: use for use in self.uses if (op := self._append_of(use, counts)) is not None}
        ops = list(self.front)
        for op in function.block.ops[:-1]:
            if op in appends:
                self._append(op, appends[op], counts, Builder(ops, op.location))
            else:
                self._use_replaced(op)
                ops.append(op)
        terminator = function.block.terminator
        self._use_replaced(terminator)
        builder = Builder(ops, "state")
        for use in self.uses:
            if use.result is not None and use not in appends.values():
                self._store(use, counts, builder)
        for length, after in self.stored.items():
            builder.append("variable.store", (_number(after, builder),), (), {"name": length})
        self._drop_ends([*ops, terminator])

    # Lengths

    def _groups(self) -> dict[str, list[Use]]:
        """The uses of caches by the variable that holds their length."""
        groups: dict[str, list[Use]] = {}
        for use in self.uses:
            if use.variable in self.plan.caches:
                groups.setdefault(self.plan.caches[use.variable].length, []).append(use)
        return groups

    def _axis(self, use: Use) -> int:
        return self.plan.caches[use.variable].axis

    def _count(self, uses: Sequence[Use]) -> _Count:
        """The lengths before and after, once the symbols that must be one are one."""
        before: Dim | None = None
        for use in uses:
            if use.argument is not None:
                dim = tensor_type(use.argument).shape[self._axis(use)]
                before = dim if before is None else self._unify(before, dim, use)
        is_bound = False
        if before is not None and isinstance(before, Expr):
            before, is_bound = self._bind(before)
        after: Dim | None = None
        for use in uses:
            returned = use.returned()
            if returned is None:
                continue
            dim = tensor_type(returned).shape[self._axis(use)]
            if after is not None and dim != after:
                raise CompileError(
                    f"{use.describe(returned)} has {dim} elements along axis {self._axis(use)}, "
                    f"but another cache with the same length has {after}: they must grow alike"
                )
            after = dim
        return _Count(before, after, is_bound)

    def _unify(self, a: Dim, b: Dim, use: Use) -> Dim:
        """Make two dims of caches with one length equal, and give that dim."""
        if a == b:
            return a
        name, dim = (_name_of(b), a) if _name_of(b) else (_name_of(a), b)
        if name is None:
            raise CompileError(
                f"{use.describe(use.argument)} has {b} elements along axis {self._axis(use)}, "
                f"but another cache with the same length has {a}"
            )
        self._substitute(name, dim)
        return dim

    def _substitute(self, name: str, dim: Dim) -> None:
        substitute_symbols(self.function, {name: dim})
        self.function.symbols.pop(name, None)

    def _bind(self, before: Expr) -> tuple[Dim, bool]:
        """The length before the call, and whether the arguments that stay tell it."""
        name = _name_of(before)
        if name is None:
            raise CompileError(
                f"a cache of '{self.function.name}' has the length {before}: its dim must be a "
                "symbol of its own"
            )
        taken = {use.argument for use in self.uses}
        dims = [
            dim
            for value in self.function.arguments
            if value not in taken and isinstance(value.type, TensorType)
            for dim in value.type.shape
            if name in symbols_of(dim)
        ]
        if not dims or before in dims:
            return before, bool(dims)
        rest = dims[0] - before
        if name in symbols_of(rest):
            raise CompileError(
                f"an argument of '{self.function.name}' has the dim '{dims[0]}', from which the "
                f"length '{name}' of its state cannot be told"
            )
        total = self._fresh(f"{name}_total")
        self._substitute(name, symbol(total) - rest)
        self.function.symbols[total] = (0, None)
        return symbol(total) - rest, True

    def _fresh(self, name: str) -> str:
        """A symbol name that the function does not have."""
        taken = set(self.function.symbols) | inner_symbols(self.function)
        taken |= {each for op in self.front for each in defined_symbols(op)}
        while name in taken:
            name += "_"
        return name

    def _check_group(self, length: str, count: _Count) -> None:
        """A length may change only together with all caches that have it."""
        if count.after in (None, count.before):
            return
        here = {use.variable for use in self.uses if use.result is not None}
        for name, cache in self.plan.caches.items():
            if cache.length == length and name not in here:
                raise CompileError(
                    f"'{self.function.name}' changes the length of caches but not '{name}', "
                    "which has the same length: return that as well"
                )

    def _check_length(self, length: str, count: _Count, builder: Builder) -> None:
        """Define the symbol that is the length, and refuse what the capacity cannot hold."""
        room = self._room(length)
        what = f"the length of the state '{length}'"
        if room < _MOST:
            what += f" (capacity {room})"
            self._limit(count.growth if count.is_append else count.after, room)
        given: Dim = 0
        if count.before is not None:
            high = room - count.growth
            given = self._define(length, count, high, f"{what} before the call", builder)
        if count.after is None or count.after == count.before:
            return
        after = count.after
        proven = count.is_append or prove_le(after, room, self.function.symbols)
        if isinstance(after, Expr) and not proven:
            name = self._fresh(f"{length}_after")
            _size(_number(after, builder), name, 0, room, f"{what} after the call", builder)
            after = symbol(name)
        self.stored[length] = after + given

    def _limit(self, dim: Dim | None, room: int) -> None:
        """Where a dim of the arguments alone is all that comes in, the signature says how much."""
        name = None if dim is None else _name_of(dim)
        if name is not None and name in self.function.symbols:
            low, high = self.function.symbols[name]
            self.function.symbols[name] = (low, room if high is None else min(high, room))

    def _define(self, length: str, count: _Count, high: Dim, what: str, builder: Builder) -> Dim:
        """Let the length be the symbol `before`; where arguments tell that, compare them.

        Gives what to add to the length that is stored: 0, but made from the symbols that the
        comparison defines, without which it would be dead code.
        """
        assert count.before is not None
        now = _load(length, _LENGTH, builder)
        name = None if count.is_bound else _name_of(count.before)
        if name is not None:
            low, _ = self.function.symbols.pop(name, (0, None))
            _size(now, name, low, high, what, builder)
            return 0
        if count.after in (None, count.before):
            raise CompileError(
                f"'{self.function.name}' reads state of the length '{count.before}' and does not "
                "change it, so that nothing would compare the length with the arguments: give "
                "the dim that the arguments have another name"
            )
        in_range, equal = self._fresh(f"{length}_before"), self._fresh(f"{length}_given")
        _size(now, in_range, 0, high, what, builder)
        _size(now, equal, count.before, count.before, what, builder)
        return symbol(in_range) + symbol(equal) - count.before * 2

    def _room(self, length: str) -> int:
        for name, cache in self.plan.caches.items():
            if cache.length == length:
                return _MOST if cache.grows else known_dim(self.plan.types[name].shape[cache.axis])
        raise KeyError(length)

    # Values

    def _load(self, use: Use, counts: Mapping[str, _Count], builder: Builder) -> None:
        """The variable's value now, as the argument saw it."""
        type = self.plan.types[use.variable]
        cache = self.plan.caches.get(use.variable)
        if use.argument is None and cache is None:
            return
        if cache is not None and cache.grows:  # all room is made before anything is written
            count = counts[cache.length]
            rows = maximum(count.before or 0, count.after or 0)
            type = TensorType(type.dtype, (rows, *type.shape[1:]))
        value = self.buffers[use.variable] = _load(use.variable, type, builder)
        if use.argument is not None:
            if cache is not None:
                before = counts[cache.length].before
                assert before is not None
                value = _first(_placed(value, cache, builder), cache.axis, before, builder)
            value.name = use.argument.name
            self.replaced[use.argument] = value

    def _append_of(self, use: Use, counts: Mapping[str, _Count]) -> Op | None:
        """The concatenation that only appends to what the cache held."""
        cache, returned = self.plan.caches.get(use.variable), use.returned()
        if cache is None or returned is None or use.argument is None:
            return None
        op = returned.owner
        if not isinstance(op, Op):
            return None
        appends = (
            op.name == "concatenate"
            and op in self.function.block.ops
            and AlongAxis.of(op).axis == cache.axis
            and len(op.operands) > 1
            and op.operands[0] is use.argument
        )
        return op if appends and counts[cache.length].is_append else None

    def _append(self, op: Op, use: Use, counts: Mapping[str, _Count], builder: Builder) -> None:
        """Write what is concatenated behind the length, and read the whole through a slice."""
        self._use_replaced(op)
        cache = self.plan.caches[use.variable]
        count = counts[cache.length]
        assert count.before is not None
        assert count.after is not None
        added = op.operands[1]
        if len(op.operands) > 2:
            added = builder.value("concatenate", *op.operands[1:], axis=cache.axis)
        buffer = self._write(use, added, count.before, builder)
        self.replaced[op.result] = _first(buffer, cache.axis, count.after, builder)

    def _store(self, use: Use, counts: Mapping[str, _Count], builder: Builder) -> None:
        """Make a result the variable's next value."""
        assert use.result is not None
        value = self.function.block.terminator.operands[use.result]
        if use.argument is not None and value is self.replaced[use.argument]:
            return
        if use.variable in self.plan.caches:
            self._write(use, value, 0, builder)
        else:
            builder.append("variable.store", (value,), (), {"name": use.variable})

    def _write(self, use: Use, value: Value, start: Dim, builder: Builder) -> Value:
        """The cache with `value` from `start` on, which the variable becomes."""
        cache = self.plan.caches[use.variable]
        zero = builder.constant(0, "i64")
        starts = [zero] * tensor_type(value).rank
        starts[0 if cache.grows else cache.axis] = _number(start, builder)
        if cache.grows and cache.axis:
            value = builder.value("transpose", value, permutation=_axis_first(cache, value))
        buffer = builder.value("dynamic_update_slice", self.buffers[use.variable], value, *starts)
        builder.append("variable.store", (buffer,), (), {"name": use.variable})
        return _placed(buffer, cache, builder)

    def _use_replaced(self, op: Op) -> None:
        for inner in walk(op):
            inner.operands = [self.replaced.get(each, each) for each in inner.operands]

    def _drop_ends(self, ops: list[Op]) -> None:
        """Take the arguments and results that are state out of the signature."""
        function = self.function
        taken = {use.argument for use in self.uses}
        written = {use.result for use in self.uses}
        pairs = zip(function.arguments, function.argument_names, strict=True)
        kept = [(value, name) for value, name in pairs if value not in taken]
        function.argument_names = [name for _, name in kept]
        function.block.arguments = [value for value, _ in kept]
        terminator = ops[-1]
        results = [
            (value, name)
            for place, (value, name) in enumerate(
                zip(terminator.operands, function.result_names, strict=True)
            )
            if place not in written
        ]
        function.result_names = [name for _, name in results]
        terminator.operands = [value for value, _ in results]
        function.block.ops = ops


def _name_of(dim: Dim) -> str | None:
    """The symbol that the dim is, or None."""
    names = symbols_of(dim)
    return next(iter(names)) if len(names) == 1 and dim == symbol(*names) else None


def _load(name: str, type: TensorType, builder: Builder) -> Value:
    attributes = {"name": name, "dtype": type.dtype, "shape": type.shape}
    return builder.append("variable.load", (), (), attributes).result


def _axis_first(cache: Cache, value: Value) -> tuple[int, ...]:
    """The axes of a value with the one along which it grows in front."""
    axes = range(tensor_type(value).rank)
    return (cache.axis, *(axis for axis in axes if axis != cache.axis))


def _placed(buffer: Value, cache: Cache, builder: Builder) -> Value:
    """The variable's value with all axes in their places."""
    if not (cache.grows and cache.axis):
        return buffer
    order = _axis_first(cache, buffer)
    places = tuple(order.index(axis) for axis in range(len(order)))
    return builder.value("transpose", buffer, permutation=places)


def _number(dim: Dim, builder: Builder) -> Value:
    """A dim as a value."""
    if isinstance(dim, int):
        return builder.constant(dim, "i64")
    return builder.value("dim", value=dim, dtype=dtype("i64"))


def _size(x: Value, name: str, low: Dim, high: Dim, what: str, builder: Builder) -> None:
    """Define a symbol as the number x, which must lie in low ... high."""
    attributes = {"symbols": (name,), "low": low, "high": high, "what": what}
    builder.append("size", (x,), (), {**attributes, "status": "OutOfRange"})


def _first(x: Value, axis: int, count: Dim, builder: Builder) -> Value:
    """The first `count` elements of x along the axis."""
    shape = tensor_type(x).shape
    limit = tuple(count if place == axis else dim for place, dim in enumerate(shape))
    ones = (1,) * len(shape)
    return builder.value("slice", x, start=(0,) * len(shape), limit=limit, stride=ones)
