"""Loop IR: the code of one workgroup, as ops of the one IR, and the builder for it.

Values are indices, scalars and vectors of a fixed number of lanes, and typed memory. What
ops there are says `table.py`, and for people docs/loops.md. An *index* counts loops, work
items, dims and elements; a device may give it 32 bits. What comes from memory or from an
element-wise op is *data*: a scalar of i64 with all its bits, and so is what is made of it.
An index may stand wherever an i64 scalar may; the arithmetic that led to an index which is
taken as data (stored, converted, an operand of an element-wise op) becomes i64 with it.

Work items (a kernel with a local size beyond (1, 1, 1)) run the same ops, each with its own
local ids. Either all items of a group reach a barrier or none: it stands in no `for` or `if`
whose bounds or condition depend on a local id or on loaded elements that may differ between
items, and nothing may end one item before it. So in a kernel with a barrier a fault only
takes note of the index, and the item goes on: the class must clamp an index that it has
checked before it reads or writes there. Without a barrier a fault ends the work item.

This file says nothing of schedules (the kernel classes) nor of text (the printers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ingot.compiler.graph.ops import Bitcast, Convert, Direction, ReduceKind
from ingot.compiler.ir import (
    Attribute,
    Block,
    Function,
    IndexType,
    MemoryType,
    Op,
    Region,
    ScalarType,
    Type,
    Value,
    VectorType,
    defined_by,
    walk,
)
from ingot.compiler.ir.attributes import NO_ATTRIBUTES, Attributes, attributes_of
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.table import (
    ARITHMETIC,
    INDEX_CHOICES,
    Access,
    Axis,
    Code,
    Constant,
    Dot4,
    Fault,
    Fma,
    For,
    Lane,
    Offset,
    Ordinal,
    Prefetch,
    Reduce,
    Shuffle,
    Table4,
    has_effect,
)
from ingot.hal.spec import DType, dtype

__all__ = ["ForLoop", "Index", "LoopBuilder", "dtype_of", "lanes_of"]

I1 = dtype("i1")
I64 = dtype("i64")

INDEX = IndexType()
_DATA = ScalarType(I64)

Index = int | Value
"""An index: known when the kernel is made, or a value; an i64 scalar will do as well."""

_LESS_THAN_INDEX = 2**31  # what every device can count

_PREDICATES = {"compare", "is_nan", "is_inf", "is_finite"}


def dtype_of(value: Value) -> DType:
    """The element type of a scalar or vector, or of what memory gives; that of an index is i64."""
    if isinstance(value.type, IndexType):
        return I64
    if isinstance(value.type, MemoryType):
        return value.type.element
    assert isinstance(value.type, (ScalarType, VectorType))
    return value.type.dtype


def lanes_of(value: Value) -> int:
    """Lanes of a vector, 1 for a scalar."""
    return value.type.lanes if isinstance(value.type, VectorType) else 1


def element_type(element: DType, lanes: int) -> Type:
    """A scalar for one lane, else a vector."""
    return ScalarType(element) if lanes == 1 else VectorType(element, lanes)


@dataclass
class ForLoop:
    """A `loop.for` under construction: `index` and `carried` inside, `results` after."""

    index: Value
    carried: list[Value]
    results: list[Value]
    next: list[Value] | None = None

    def yield_(self, *values: Value) -> None:
        """The carried values of the next round; needed once if there are any."""
        self.next = list(values)


@dataclass
class LoopBuilder:
    """Appends loop ops to `block`; index arithmetic is written once, and folded away where
    the numbers are known."""

    block: Block = field(default_factory=Block)
    constants: list[Dim] = field(default_factory=list)

    # Leaves. They are placed at the top of the kernel, once each.

    def __post_init__(self) -> None:
        self._top = self.block
        self._leaf_count = 0
        self._leaves: dict[tuple[object, ...], Value] = {}
        self._scopes: list[dict[tuple[str, Value, Value], Value]] = [{}]  # sums that are known
        self._loops: dict[Block, Op] = {}  # by their bodies
        self._become_data: set[Value] = set()  # they were indices at first
        self._taken_as_data: set[Value] = set()

    def _leaf(self, name: str, type: Type, attributes: Attributes = NO_ATTRIBUTES) -> Value:
        # As text: tells -0.0 from 0.0, and finds NaN.
        key = (name, type, *map(repr, vars(attributes).values()))
        if key not in self._leaves:
            op = Op(name, (), [type], attributes)
            self._top.ops.insert(self._leaf_count, op)
            self._leaf_count += 1
            self._leaves[key] = op.result
        return self._leaves[key]

    def constant(self, value: bool | int | float, element: DType, lanes: int = 1) -> Value:
        """`value` in every lane."""
        kind = "f" if element.is_float else element.kind
        typed = {"f": float, "b": bool}.get(kind, int)(value)
        return self._leaf("loop.constant", element_type(element, lanes), Constant(typed))

    def dim(self, dim: Dim | Value) -> Index:
        """A dim over the entry's symbols: itself if known, else a constant of the dispatch. An
        index is one already."""
        if isinstance(dim, (int, Value)):
            return dim
        if dim not in self.constants:
            self.constants.append(dim)
        return self._leaf("loop.dim", INDEX, Ordinal(self.constants.index(dim)))

    def binding(self, ordinal: int, element: DType) -> Value:
        """The memory of operand or result `ordinal`; of integers below 8 bits, packed ones."""
        return self._leaf("loop.binding", MemoryType(element), Ordinal(ordinal))

    def scratch(self, offset: int, element: DType) -> Value:
        """The workgroup's scratch memory from byte `offset` on (a multiple of 64)."""
        return self._leaf("loop.scratch", MemoryType(element), Offset(offset))

    def local(self, offset: int, element: DType) -> Value:
        """The memory that the group's work items share, from byte `offset` on (a multiple of
        64); of any content at first (OpenCL)."""
        return self._leaf("loop.local", MemoryType(element), Offset(offset))

    def workgroup(self, axis: int) -> Value:
        """The workgroup's position in the grid."""
        return self._leaf("loop.workgroup", INDEX, Axis(axis))

    def workload(self, axis: int) -> Value:
        """The dispatch's workload."""
        return self._leaf("loop.workload", INDEX, Axis(axis))

    def lanes(self, lanes: int) -> Value:
        """The i64 vector 0, 1, 2, ..."""
        return self._leaf("loop.lanes", VectorType(I64, lanes))

    def local_id(self, axis: int) -> Value:
        """The work item's position in its group (OpenCL)."""
        return self._leaf("loop.local_id", INDEX, Axis(axis))

    def barrier(self) -> None:
        """Wait for all work items of the group (OpenCL)."""
        self.append("loop.barrier", (), None)

    # Index arithmetic.

    def value(self, index: Index) -> Value:
        """The index as a value."""
        if not isinstance(index, int):
            return index
        if abs(index) >= _LESS_THAN_INDEX:
            return self.constant(index, I64)
        return self._leaf("loop.constant", INDEX, Constant(index))

    def data(self, index: Index) -> Value:
        """The index as an i64 scalar: what a loop must start with that carries data."""
        if isinstance(index, int):
            return self.constant(index, I64)
        value = self._widen(index)
        return self._one("convert", (value,), _DATA, Convert(I64)) if value.type == INDEX else value

    def _widen(self, value: Value) -> Value:
        """The value, which is about to be taken as data: if it is an index, it and the
        arithmetic that led to it get 64 bits, but for what every device can count anyway."""
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if each.type not in (INDEX, _DATA) or each in self._taken_as_data:
                continue
            sources = self._sources(each)
            if sources is not None:
                if each.type == INDEX:
                    each.type = _DATA
                    self._become_data.add(each)
                self._taken_as_data.add(each)
                waiting += sources
        return value

    def _sources(self, value: Value) -> list[Value] | None:
        """The values that an i64 scalar or an index is made of, without a loss of bits; None for
        data of other origin, and for an index that all devices can count."""
        owner = value.owner
        if isinstance(owner, Block):
            return self._carried(owner, owner.arguments.index(value) - 1)
        if owner.name == "loop.for":
            return self._carried(owner.regions[0].block, owner.results.index(value))
        if owner.name == "loop.if":
            place = owner.results.index(value)
            return [region.block.terminator.operands[place] for region in owner.regions]
        if owner.name in ("loop.dim", "loop.workload"):
            return []
        return owner.operands if owner.name in (*ARITHMETIC, *INDEX_CHOICES) else None

    def _carried(self, body: Block, place: int) -> list[Value] | None:
        """All that a value which a loop carries is, and is made of."""
        if place < 0:
            return None
        op = self._loops[body]
        values = [body.arguments[1 + place], op.operands[3 + place], op.results[place]]
        if body.ops and body.ops[-1].name == "yield":
            values.append(body.terminator.operands[place])
        return values

    def _is_data(self, value: Value) -> bool:
        """Whether the scalar came from memory or an op of the graph, and is no index."""
        return value.type == _DATA and value not in self._become_data

    def add(self, a: Index, b: Index) -> Index:
        """a + b of indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self._index("loop.add", a, b)

    def sub(self, a: Index, b: Index) -> Index:
        """a - b of indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self._index("loop.sub", a, b)

    def mul(self, a: Index, b: Index) -> Index:
        """a * b of indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self._index("loop.mul", a, b)

    def div(self, a: Index, b: Index) -> Index:
        """a / b of indices, a >= 0, b > 0."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        return a if b == 1 else self._index("loop.div", a, b)

    def rem(self, a: Index, b: Index) -> Index:
        """a % b of indices, a >= 0, b > 0."""
        if isinstance(a, int) and isinstance(b, int):
            return a % b
        return 0 if b == 1 else self._index("loop.rem", a, b)

    def min(self, a: Index, b: Index) -> Index:
        """The smaller index."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self._index("loop.min", a, b)

    def max(self, a: Index, b: Index) -> Index:
        """The larger index."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self._index("loop.max", a, b)

    def compare(self, direction: Direction, a: Index, b: Index) -> Value:
        """i1: the comparison of two indices."""
        return self.op("compare", self.value(a), self.value(b), direction=direction)

    def _index(self, name: str, a: Index, b: Index) -> Value:
        key = (name, self.value(a), self.value(b))
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        self._scopes[-1][key] = self._one(name, key[1:], self._type_of(key[1:]))
        return self._scopes[-1][key]

    def _type_of(self, values: Sequence[Value]) -> Type:
        """The type of what is made of indices: an index, unless there is data among them."""
        return _DATA if any(map(self._is_data, values)) else INDEX

    # Control.

    @contextmanager
    def for_(
        self,
        lower: Index,
        upper: Index,
        step: Index = 1,
        initial: Sequence[Value] = (),
        unroll: bool = False,
    ) -> Iterator[ForLoop]:
        """`with b.for_(0, n, 1, [zero]) as loop: ...; loop.yield_(...)`; then loop.results."""
        bounds = [self.value(lower), self.value(upper), self.value(step)]
        types = [value.type for value in initial]
        body = Block([self._type_of(bounds), *types])
        op = Op("loop.for", [*bounds, *initial], types, For(unroll), [Region([body])])
        self._loops[body] = op
        loop = ForLoop(body.arguments[0], body.arguments[1:], op.results)
        with self._inside(body):
            yield loop
            if loop.next is None and initial:
                raise ValueError("a loop with carried values needs yield_")
            pairs = zip(loop.next or (), loop.carried, strict=True)
            values = [self._fitting(value, carried) for value, carried in pairs]
            self.block.append(Op("yield", values))
        if isinstance(lower, int) and isinstance(upper, int) and lower >= upper:
            loop.results = list(initial)  # no step runs
            return
        self.block.append(op)

    def _fitting(self, value: Value, carried: Value) -> Value:
        """The next value of what a loop carries: an index stands where an i64 scalar may."""
        if carried.type == INDEX != value.type:
            if self._is_data(value):
                raise TypeError("what a loop carries starts as an index and goes on as data")
            self._widen(carried)
        return self._widen(value) if carried.type == _DATA else value

    def if_(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] = lambda: None,
    ) -> list[Value]:
        """Run one of two callbacks' code; both give values of the same types."""
        blocks, values = [], []
        for callback in (then, otherwise):
            block = Block()
            with self._inside(block):
                values.append(list(callback() or ()))
                block.append(Op("yield", values[-1]))
            blocks.append(block)
        types = [self._common_type(*pair) for pair in zip(*values, strict=True)]
        regions = [Region([block]) for block in blocks]
        return self.block.append(Op("loop.if", [condition], types, regions=regions)).results

    def _common_type(self, a: Value, b: Value) -> Type:
        """The type of a value that is one of two: an index stands where an i64 scalar may."""
        if {a.type, b.type} == {INDEX, _DATA}:
            self._widen(a)
            self._widen(b)
            return _DATA
        if a.type != b.type:
            raise TypeError(f"branches give different types: {a} and {b}")
        return a.type

    @contextmanager
    def _inside(self, block: Block) -> Iterator[None]:
        outer, self.block = self.block, block
        self._scopes.append({})
        try:
            yield
        finally:
            self.block = outer
            self._scopes.pop()

    # Memory.

    def load(
        self,
        memory: Value,
        index: Index,
        lanes: int = 1,
        count: Index | None = None,
        aligned: bool = False,
    ) -> Value:
        """The element at `index`, or `lanes` elements from there; `aligned`: the vector lies on
        a multiple of its length, which only memory of the kernel's own can promise."""
        operands = [memory, self.value(index), *([] if count is None else [self.value(count)])]
        type = element_type(dtype_of(memory), lanes)
        return self._one("loop.load", operands, type, Access(aligned))

    def store(
        self,
        memory: Value,
        index: Index,
        value: Value,
        count: Index | None = None,
        aligned: bool = False,
    ) -> None:
        """Write a scalar or the lanes of a vector from `index` on; `aligned` as for `load`."""
        if dtype_of(memory) != dtype_of(value):
            raise TypeError(f"store of {value.type} into {memory.type}")
        operands = [memory, self.value(index), self._widen(value)]
        if count is not None:
            operands.append(self.value(count))
        self.append("loop.store", operands, None, Access(aligned))

    def prefetch(self, memory: Value, index: Index, *, soon: bool = False) -> None:
        """Ask for the cache line of an element, which need not be there; `soon`: into L1."""
        self.append("loop.prefetch", [memory, self.value(index)], None, Prefetch(soon))

    def gather(self, memory: Value, indices: Value) -> Value:
        """The elements at a vector of indices: i64, or u8 of a table of 256 bytes."""
        return self._one(
            "loop.gather", (memory, indices), VectorType(dtype_of(memory), lanes_of(indices))
        )

    def same(self, a: Value, b: Value) -> Value:
        """i1: whether two bindings are the same memory, as a result that takes an operand's."""
        return self._one("loop.same", (a, b), ScalarType(I1))

    def fault(self, condition: Value, index: Value, bound: Index, operand: int) -> None:
        """End the workgroup if a lane of the condition is true: index of operand is wrong."""
        self.append("loop.fault", (condition, index, self.value(bound)), None, Fault(operand))

    # Values.

    def broadcast(self, value: Value, lanes: int) -> Value:
        """A vector of equal lanes; a vector stays."""
        if lanes_of(value) == lanes:
            return value
        known = defined_by(value, "loop.constant")
        if known is not None and isinstance(value.type, ScalarType) and dtype_of(value).is_integer:
            return self.constant(Constant.of(known).value, dtype_of(value), lanes)
        type = VectorType(dtype_of(value), lanes)
        return self._one("loop.broadcast", (self._widen(value),), type)

    def extract(self, vector: Value, lane: int) -> Value:
        """One lane."""
        return self._one("loop.extract", (vector,), ScalarType(dtype_of(vector)), Lane(lane))

    def insert(self, vector: Value, scalar: Value, lane: int) -> Value:
        """The vector with one lane replaced."""
        return self._one("loop.insert", (vector, self._widen(scalar)), vector.type, Lane(lane))

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lane i of the result is lane lanes[i] of a followed by b."""
        type = element_type(dtype_of(a), len(lanes))
        return self._one("loop.shuffle", (a, b), type, Shuffle(tuple(lanes)))

    def reduce(self, vector: Value, kind: ReduceKind) -> Value:
        """All lanes combined: "add", "mul", "max", "min", "and", "or", "xor"."""
        return self._one("loop.reduce", (vector,), ScalarType(dtype_of(vector)), Reduce(kind))

    def any(self, vector: Value) -> Value:
        """i1: one lane is true; a scalar stays."""
        return vector if lanes_of(vector) == 1 else self._one("loop.any", (vector,), ScalarType(I1))

    def fma(self, a: Value, b: Value, c: Value, exact: bool = False) -> Value:
        """a * b + c; `exact`: what the product has behind its last bit counts on all targets."""
        a, b, c = self._same_lanes([a, b, c])
        return self._one("loop.fma", (a, b, c), c.type, Fma(exact))

    def dot_words(self, a: Value, b: Value, c: Value, parts: tuple[DType, DType]) -> Value:
        """c + the products of the parts of each word of a and b: four i8 or u8, or two bf16."""
        a, b, c = self._same_lanes([a, b, c])
        if parts[0].is_integer:
            return self._one("loop.dot4", (a, b, c), c.type, Dot4(*parts))
        return self._one("loop.dot2", (a, b, c), c.type)

    def half2(self, name: str, *operands: Value) -> Value:
        """`loop.fma2` or `loop.sum2`, of words of two f16."""
        return self._one(f"loop.{name}", operands, operands[-1].type)

    def code(self, words: Value, code: Code) -> Value:
        """The numbers of such codes in words, as f32."""
        return self._one("loop.code", (words,), element_type(dtype("f32"), lanes_of(words)), code)

    def table4(self, words: Value, table: Sequence[int]) -> Value:
        """The bytes of words, 0 to 15, as those of a table of 16."""
        return self._one("loop.table4", (words,), words.type, Table4(tuple(table)))

    def part(self, name: str, *values: Value) -> Value:
        """What is of the first operand's type: `loop.pick`, and parts of math functions."""
        return self._one(name, values, values[0].type)

    def convert(self, value: Value, element: DType) -> Value:
        """The value in another dtype, by the rules of the graph op."""
        return value if dtype_of(value) == element else self.op("convert", value, dtype=element)

    def op(
        self,
        name: str,
        *operands: Value,
        attributes: Attributes = NO_ATTRIBUTES,
        **given: Attribute,
    ) -> Value:
        """A graph op on scalars or vectors; scalars beside vectors are broadcast. Its attributes
        may be given one by one."""
        if given:
            attributes = attributes_of(name, given)
        values = self._same_lanes(operands)
        chosen = values[1:] if name == "select" else values
        known = self._become_data
        if name in INDEX_CHOICES and any(value.type == INDEX or value in known for value in chosen):
            return self._one(name, values, self._type_of(chosen), attributes)
        if name not in INDEX_CHOICES and (name != "compare" or any(map(self._is_data, values))):
            for value in values:
                self._widen(value)
        element = dtype_of(values[-1])
        if name in _PREDICATES:
            element = I1
        elif isinstance(attributes, (Convert, Bitcast)):
            element = attributes.dtype
        return self._one(name, values, element_type(element, lanes_of(values[0])), attributes)

    def _same_lanes(self, operands: Sequence[Value]) -> list[Value]:
        lanes = max(lanes_of(value) for value in operands)
        return [self.broadcast(value, lanes) for value in operands]

    def append(
        self,
        name: str,
        operands: Sequence[Value],
        type: Type | None,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> Op:
        """An op at the end of the block."""
        types = [] if type is None else [type]
        return self.block.append(Op(name, operands, types, attributes))

    def _one(
        self,
        name: str,
        operands: Sequence[Value],
        type: Type,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> Value:
        return self.append(name, operands, type, attributes).result

    def finish(self, name: str, *values: Value) -> Function:
        """End the kernel, or a function that gives values: its loop IR."""
        self._top.append(Op("return", values))
        _drop_unused(self._top, set())
        return Function(name, Region([self._top]))


def _drop_unused(block: Block, used: set[Value]) -> None:
    """Remove ops without effect whose results nobody needs; `used` learns all operands."""
    kept = []
    for op in reversed(block.ops):
        inside = set(used) if op.regions else used
        for region in op.regions:
            _drop_unused(region.block, inside)
        effect = has_effect(op.name) or any(
            has_effect(inner.name) and inner.name != "yield"
            for region in op.regions
            for inner in walk(region)
        )
        if effect or any(result in used for result in op.results):
            used |= inside
            used.update(op.operands)
            kept.append(op)
    block.ops = kept[::-1]
