"""Loop ops for traced nodes: scalar where a value is the same in all lanes, else vectors.

An `Emitter` knows where the iteration axes stand (loop indices) and which of them runs
along the lanes. A load is contiguous, one scalar, or a gather, as its index says. Values
are memoised per scope; `hoist` computes what does not depend on the inner axes in front
of their loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce

from ingot.compiler.ir import Value, dims
from ingot.compiler.kernels import loop, trace
from ingot.compiler.kernels.indexing import Axis, Index, Quotient, Remainder, Term
from ingot.compiler.kernels.kernel import register_bytes
from ingot.compiler.kernels.loop import I64, LoopBuilder, dtype_of, lanes_of
from ingot.compiler.kernels.trace import (
    Apply,
    Checked,
    Choose,
    Constant,
    Fetched,
    Given,
    IndexValue,
    InRange,
    Load,
    Node,
    axes_of_index,
)
from ingot.hal.spec import DType, dtype

__all__ = ["Emitter", "is_shuffled"]

_U64 = dtype("u64")
_LONGEST_STRIDE = 8
_SMALL_VECTOR = 16  # bytes: of these all machines shuffle bytes


def is_shuffled(stride: int, element: DType, lanes: int) -> bool:
    """Whether elements that lie apart are shuffled out of whole vectors, not read one by one."""
    length = register_bytes(element)
    can = not element.is_boolean and (length >= 4 or length * lanes <= _SMALL_VECTOR)
    return can and 1 < stride <= _LONGEST_STRIDE


class Emitter:
    """Appends the code of nodes to a builder.

    `places` gives each axis its loop index. `vector` is the axis along the lanes: its place
    is that of lane 0, and with a `count` only the lanes below it are live. `given` are the
    values of Given nodes, `known` those of conditions; `falling` are nodes that are never above
    0. In a kernel with barriers set `clamps`: a fault does not end it, so an index that was
    checked is moved inside.
    """

    def __init__(
        self,
        builder: LoopBuilder,
        places: Mapping[Axis, loop.Index],
        given: Mapping[Value, Value] | None = None,
    ) -> None:
        self.builder = builder
        self.places = dict(places)
        self.given = dict(given or {})
        self.known: dict[Node, bool] = {}
        self.falling: frozenset[Node] = frozenset()
        self.reciprocals: dict[Node, tuple[Value, Value | None]] = {}  # of quotients
        self.is_plain = False  # of quotients: divided
        self.vector: Axis | None = None
        self.lanes = 1
        self.count: loop.Index | None = None
        self.aligned = False
        self.guard: Value | None = None  # lanes that may be touched
        self.near: dict[Load, tuple[Value, Value]] = {}  # from where, and which lanes
        self.clamps = False
        self.scopes: list[dict[object, Value]] = [{}]

    def fork(self) -> Emitter:
        """Another one that stands where this one does, and knows what it knows and is given."""
        other = Emitter(self.builder, self.places)
        other.given, other.known, other.falling = self.given, self.known, self.falling
        other.vector, other.lanes, other.count = self.vector, self.lanes, self.count
        other.aligned, other.guard, other.clamps = self.aligned, self.guard, self.clamps
        other.scopes = [*self.scopes, {}]
        return other

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside is not known outside: for the body of a loop or branch."""
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    @contextmanager
    def along(
        self,
        axis: Axis,
        place: loop.Index,
        lanes: int,
        count: loop.Index | None = None,
        aligned: bool = False,
    ) -> Iterator[None]:
        """Inside, `axis` runs along the lanes from `place`, a multiple of lanes if aligned."""
        before = (self.vector, self.lanes, self.count, self.aligned)
        self.vector, self.lanes, self.count = (axis if lanes > 1 else None), lanes, count
        self.aligned = aligned
        self.places[axis] = place
        with self.scope():
            yield
        self.vector, self.lanes, self.count, self.aligned = before

    def remember(self, node: Node, value: Value) -> None:
        """In this scope the node has this value."""
        self.scopes[-1][node] = value

    def emit(self, node: Node) -> Value:
        """The node's value: a scalar, or a vector if it depends on the vector axis."""
        for scope in reversed(self.scopes):
            if node in scope:
                return scope[node]
        value = self._emit(node)
        self.remember(node, value)
        return value

    def emit_vector(self, node: Node) -> Value:
        """The node's value with `lanes` lanes."""
        return self.builder.broadcast(self.emit(node), self.lanes)

    def hoist(self, roots: Sequence[Node], available: frozenset[Axis]) -> None:
        """Compute what below `roots` depends on the available axes only, unless a choice
        guards it."""
        seen: set[Node] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in seen or isinstance(node, Constant):
                continue
            seen.add(node)
            if node.axes <= available and not _has_given(node, self):
                self.emit(node)
                continue
            stack += node.conditions if isinstance(node, Choose) else node.operands()
            stack += [
                term.node
                for index in node.indices()
                for term in index.all_terms()
                if isinstance(term, Fetched)
            ]

    def _emit(self, node: Node) -> Value:
        b = self.builder
        if isinstance(node, Constant):
            return b.constant(node.value, node.dtype)
        if isinstance(node, Apply):
            if self._is_small(node):
                return b.part("loop.exp_nonpositive", self.emit(node.arguments[0]))
            if node.name == "div" and node.dtype.name == "f32" and self.vector is not None:
                return self._divide(node)
            if node.dtype.bits == 8 and node.name in ("shift_left", "shift_right_logical"):
                return self._shift_bytes(node)
            return b.op(node.name, *map(self.emit, node.arguments), attributes=node.attributes)
        if isinstance(node, Load):
            return self._load(node)
        if isinstance(node, Given):
            return self.given[node.value]
        if isinstance(node, IndexValue):
            return b.convert(self._index_value(node.index), node.dtype)
        if isinstance(node, InRange):
            return self._in_range(node)
        if isinstance(node, Choose):
            return self._choose(node)
        assert isinstance(node, Checked)
        return self._checked(node)

    def _is_small(self, node: Node) -> bool:
        """Whether the node is e to a power that is never above 0, in f32."""
        is_exp = isinstance(node, Apply) and node.name == "exp" and node.dtype.name == "f32"
        return is_exp and node.operands()[0] in self.falling

    def _shift_bytes(self, node: Apply) -> Value:
        """Bytes shifted by numbers that may differ: no machine has an instruction for these, all
        have those for a number and for a choice."""
        b, (value, by) = self.builder, map(self.emit, node.arguments)
        lanes = max(lanes_of(value), lanes_of(by))
        if lanes == 1 or isinstance(node.arguments[1], Constant):
            return b.op(node.name, value, by)
        value, by = b.broadcast(value, lanes), b.broadcast(by, lanes)
        zero = b.constant(0, node.dtype, lanes)
        for step in (1, 2, 4):
            number = b.constant(step, node.dtype, lanes)
            is_set = b.op("compare", b.op("and", by, number), zero, direction="ne")
            value = b.op("select", is_set, b.op(node.name, value, number), value)
        others = b.op(
            "and", by, b.constant(248 if node.dtype.name == "u8" else -8, node.dtype, lanes)
        )
        return b.op("select", b.op("compare", others, zero, direction="eq"), value, zero)

    def _divide(self, node: Apply) -> Value:
        """A quotient in f32. By a divisor that all lanes share: a product with what
        `_reciprocal` gives, corrected by its remainder."""
        b = self.builder
        a, by = map(self.emit, node.arguments)
        if lanes_of(by) > 1 or lanes_of(a) == 1 or self.is_plain:
            return b.op("div", a, by)
        known = self.reciprocals.get(node)
        if known is not None:
            return self._multiply(a, by, known)

        def fast() -> list[Value]:
            return [self._multiply(a, by, self._reciprocal(node, by))]

        return b.if_(self._ordinary(node, by), fast, lambda: [b.op("div", a, by)])[0]

    def prepare(self, nodes: Sequence[Node], axes: frozenset[Axis]) -> list[Value]:
        """Reciprocals of what is the same along `axes` and divides f32 that is not: i1 of each, for
        all of which to hold before such quotients are emitted, or all of them are plain."""
        ordinary = []
        for node in trace.walk_nodes(nodes):
            if not isinstance(node, Apply) or node.name != "div" or node.dtype.name != "f32":
                continue
            if node.arguments[0].axes & axes and not node.arguments[1].axes & axes:
                by = self.emit(node.arguments[1])
                ordinary.append(self._ordinary(node, by))
                self.reciprocals[node] = self._reciprocal(node, by)
        return ordinary

    def _ordinary(self, node: Apply, by: Value) -> Value:
        """Whether the divisor has a reciprocal that is no subnormal number."""
        b = self.builder
        size = by if self._is_small(node.arguments[0]) else b.op("abs", by)
        low, high = (b.constant(each, dtype_of(by)) for each in (2.0**-100, 2.0**100))
        above, below = b.compare("gt", size, low), b.compare("lt", size, high)
        return b.op("and", above, below)

    def _reciprocal(self, node: Apply, by: Value) -> tuple[Value, Value | None]:
        """1 / by; where the dividend is e to a power that is never above 0, in two parts."""
        b = self.builder
        one = b.constant(1.0, dtype_of(by))
        reciprocal = b.op("div", one, by)
        if not self._is_small(node.arguments[0]):
            return reciprocal, None
        return reciprocal, b.op("mul", b.fma(b.op("neg", reciprocal), by, one), reciprocal)

    def _multiply(self, a: Value, by: Value, reciprocal: tuple[Value, Value | None]) -> Value:
        """a / by, three times as fast, rounded the same where |a| > 2^-100; with a reciprocal in
        two parts off by no more than .5001 ulp."""
        b, (high, low) = self.builder, reciprocal
        if low is not None:
            return b.fma(a, high, b.op("mul", a, low))
        quotient = b.op("mul", a, high)
        rest = b.fma(b.op("neg", quotient), by, a)
        better = b.fma(rest, high, quotient)
        # Not of infinities, nor of a zero, whose sign it would lose.
        zero = b.constant(0.0, dtype_of(by))
        is_number = b.op("compare", b.op("abs", better), zero, direction="gt")
        return b.op("select", is_number, better, quotient)

    # Indices.

    def _varies(self, index: Index) -> bool:
        return self.vector is not None and self.vector in axes_of_index(index)

    def index(self, index: Index) -> loop.Index:
        """An index as a scalar; along the lanes it is that of lane 0."""
        total = self.builder.dim(index.offset)
        for term, coefficient in index.terms:
            place = self._term(term)
            total = self.builder.add(total, self.builder.mul(place, self.builder.dim(coefficient)))
        return total

    def _term(self, term: Term) -> loop.Index:
        b = self.builder
        if isinstance(term, Axis):
            return self.places[term]
        if isinstance(term, Quotient):
            return b.div(self.index(term.index), b.dim(term.divisor))
        if isinstance(term, Remainder):
            return b.rem(self.index(term.index), b.dim(term.divisor))
        assert isinstance(term, Fetched)
        return self.emit(term.node)

    def index_vector(self, index: Index) -> Value:
        """An index as an i64 vector; lanes that are not live repeat the last one that is."""
        b = self.builder
        uniform = Index((), index.offset)
        total: Value | None = None
        for term, coefficient in index.terms:
            if not self._varies(Index.of(term)):
                uniform = uniform + Index(((term, coefficient),))
                continue
            part = self._term_vector(term)
            if coefficient != 1:
                part = b.op("mul", part, b.value(b.dim(coefficient)))
            total = part if total is None else b.op("add", total, part)
        base = b.value(self.index(uniform))
        if total is None:
            return b.broadcast(base, self.lanes)
        return total if base is b.value(0) else b.op("add", total, base)

    def _term_vector(self, term: Term) -> Value:
        b = self.builder
        if isinstance(term, Axis):
            lanes = b.lanes(self.lanes)
            if self.count is not None:
                last = b.value(b.max(b.sub(self.count, 1), 0))
                lanes = b.op("min", lanes, last)
            return b.op("add", lanes, b.value(self.places[term]))
        if isinstance(term, (Quotient, Remainder)):
            name = "div" if isinstance(term, Quotient) else "rem"
            return b.op(name, self.index_vector(term.index), b.value(b.dim(term.divisor)))
        assert isinstance(term, Fetched)
        return self.emit(term.node)

    def _index_value(self, index: Index) -> Value:
        return (
            self.index_vector(index)
            if self._varies(index)
            else self.builder.value(self.index(index))
        )

    def pick_of(self, node: Load) -> Fetched | None:
        """What alone tells which elements of a row the lanes take; None: there is more, or less, or
        it is read only where a choice wants it."""
        varying = [each for each in node.index.terms if self._varies(Index.of(each[0]))]
        if len(varying) != 1 or varying[0][1] != 1 or not isinstance(varying[0][0], Fetched):
            return None
        return varying[0][0] if _known(varying[0][0].node, self) else None

    def look_near(self, loads: Sequence[Load]) -> Value:
        """i1: whether of each of these loads, which an index alone moves along the lanes, all lanes
        lie in one vector. While `near` holds what this notes, they are picked out of it."""
        b, found = self.builder, dict[Fetched, tuple[Value, Value, Value]]()
        for load in loads:
            term = self.pick_of(load)
            assert term is not None
            assert isinstance(term.node, Checked)
            if term not in found:
                indices, bound = self.emit(term.node), b.dim(term.node.bound)
                ends = (b.extract(indices, lane) for lane in (0, self.lanes - 1))
                start = b.value(b.max(b.min(b.min(*ends), b.sub(bound, self.lanes)), 0))
                places = b.op("sub", indices, start)
                count = b.broadcast(b.value(self.lanes), self.lanes)
                parts = (b.op("bitcast", each, dtype=_U64) for each in (places, count))
                outside = b.any(b.op("compare", *parts, direction="ge"))
                is_long = b.compare("ge", bound, self.lanes)  # else a vector is more than there is
                found[term] = start, places, b.op("and", is_long, b.op("not", outside))
            start, places, _ = found[term]
            width = register_bytes(load.dtype)
            if width < 8:
                places = b.convert(places, dtype("i32"))  # bytes of i64 would go lane by lane
            places = b.convert(places, dtype(f"i{8 * width}"))
            self.near[load] = start, places
        return reduce(lambda a, c: b.op("and", a, c), (near for _, _, near in found.values()))

    # Nodes.

    def _load(self, node: Load) -> Value:
        b = self.builder
        memory = b.binding(node.ordinal, node.stored)
        if not self._varies(node.index):
            return b.load(memory, self.index(node.index))
        assert self.vector is not None
        rest = Index(tuple(each for each in node.index.terms if each[0] is not self.vector))
        stride = 0 if self._varies(rest) else node.index.coefficient(self.vector)
        if stride == 1 and self.guard is None:
            return b.load(memory, self.index(node.index), self.lanes, self.count)
        is_whole = self.guard is None and self.count is None
        if is_whole and isinstance(stride, int) and is_shuffled(stride, node.stored, self.lanes):
            return self._every(stride, memory, self.index(node.index))
        if node in self.near and self.guard is None and (term := self.pick_of(node)) is not None:
            start, places = self.near[node]
            first = b.add(self.index(node.index + Index.of(term).scale(-1)), start)
            return b.part("loop.pick", b.load(memory, first, self.lanes), places)
        if node.stored.name == "u8" and self.guard is None and (place := _byte_of(node.index)):
            return b.gather(memory, self.emit_vector(place))
        indices = self.index_vector(node.index)
        if self.guard is not None:
            indices = b.op("select", self.guard, indices, b.value(0))
        return b.gather(memory, indices)

    def _every(self, stride: int, memory: Value, first: loop.Index) -> Value:
        """The elements at `first`, `first` + stride, ...; none behind the last is touched."""
        b, lanes = self.builder, self.lanes
        last = stride * (lanes - 1) + 1 - lanes
        vector = b.load(memory, first, lanes)
        for part in range(1, stride):
            start, begin = min(part * lanes, last), part * lanes
            places = []
            for lane in range(lanes):
                at = stride * lane
                before = at if part == 1 else lane  # what earlier parts gave stays
                places.append(lanes + at - start if begin <= at < begin + lanes else before % lanes)
            vector = b.shuffle(vector, b.load(memory, b.add(first, start), lanes), places)
        return vector

    def _in_range(self, node: InRange) -> Value:
        b = self.builder
        if not self._varies(node.index) or self._uniform(node):
            place = self.index(node.index)
            value = b.compare("lt", place, b.dim(node.high))
            if node.low is not None and not self._never_negative(node):
                value = b.op("and", b.compare("ge", place, b.dim(node.low)), value)
            if node.step != 1:
                even = b.compare("eq", b.rem(b.max(place, 0), b.dim(node.step)), 0)
                value = b.op("and", value, even)
            return value
        place_vector = self.index_vector(node.index)
        low, high = b.value(b.dim(node.low)), b.value(b.dim(node.high))
        value = b.op(
            "and",
            b.op("compare", place_vector, low, direction="ge"),
            b.op("compare", place_vector, high, direction="lt"),
        )
        if node.step != 1:
            rest = b.op("rem", place_vector, b.value(b.dim(node.step)))
            value = b.op("and", value, b.op("compare", rest, b.value(0), direction="eq"))
        return value

    def _never_negative(self, node: InRange) -> bool:
        values = [node.index.offset, *(value for _, value in node.index.terms)]
        return node.low == 0 and all(isinstance(each, int) and each >= 0 for each in values)

    def _uniform(self, node: InRange) -> bool:
        """Whether all lanes give the same answer: the limits lie between vectors."""
        if not self.aligned or node.step != 1 or not node.index.is_affine():
            return False
        assert self.vector is not None
        if node.index.coefficient(self.vector) != 1:
            return False
        others = [value for axis, value in node.index.terms if axis is not self.vector]
        values = [*others, node.high + node.index.offset * -1, node.low + node.index.offset * -1]
        return all(dims.modulo(value, self.lanes) == 0 for value in values)

    def _choose(self, node: Choose) -> Value:
        b = self.builder
        if any(self.known.get(each) is False for each in node.conditions):
            return self.emit(node.otherwise)
        conditions = [each for each in node.conditions if each not in self.known]
        if not conditions:
            return self.emit(node.then)
        condition = self.emit(conditions[0])
        for each in conditions[1:]:
            condition = b.op("and", condition, self.emit(each))
        lanes = max(lanes_of(condition), self._lanes(node.then), self._lanes(node.otherwise))
        if lanes_of(condition) == 1:
            return b.if_(
                condition,
                lambda: [self._branch(node.then, lanes, None)],
                lambda: [self._branch(node.otherwise, lanes, None)],
            )[0]
        inverse = b.op("not", condition)
        then, otherwise = (
            self._where(mask, branch, lanes)
            for mask, branch in ((condition, node.then), (inverse, node.otherwise))
        )
        return b.op("select", condition, then, otherwise)

    def _lanes(self, node: Node) -> int:
        return self.lanes if self.vector is not None and self.vector in node.axes else 1

    def _branch(self, node: Node, lanes: int, guard: Value | None) -> Value:
        before, self.guard = self.guard, guard or self.guard
        with self.scope():
            value = self.builder.broadcast(self.emit(node), lanes)
        self.guard = before
        return value

    def _where(self, mask: Value, node: Node, lanes: int) -> Value:
        """The node in lanes of the mask, zero if there is none."""
        b = self.builder
        if isinstance(node, Constant):
            return b.constant(node.value, node.dtype, lanes)
        guard = mask if self.guard is None else b.op("and", mask, self.guard)
        zero = b.constant(0, node.dtype, lanes)
        return b.if_(b.any(guard), lambda: [self._branch(node, lanes, guard)], lambda: [zero])[0]

    def _checked(self, node: Checked) -> Value:
        b = self.builder
        value = b.convert(self.emit(node.value), I64)
        bound, zero = b.value(b.dim(node.bound)), b.value(0)
        if node.mode == "clamp":
            return b.op("max", b.op("min", value, b.value(b.sub(b.dim(node.bound), 1))), zero)
        index = value
        if node.mode == "wrap_check":
            negative = b.op("compare", value, zero, direction="lt")
            index = b.op("select", negative, b.op("add", value, bound), value)
        is_vector = lanes_of(index) > 1
        if is_vector:  # one comparison where scalars have two, which compilers make one
            whole = b.op("bitcast", index, dtype=_U64)
            limit = b.op("bitcast", b.broadcast(bound, self.lanes), dtype=_U64)
            outside = b.op("compare", whole, limit, direction="ge")
        else:
            outside = b.op(
                "or",
                b.op("compare", index, zero, direction="lt"),
                b.op("compare", index, bound, direction="ge"),
            )
        if is_vector and self.count is not None:
            live = b.op("compare", b.lanes(self.lanes), b.value(self.count), direction="lt")
            outside = b.op("and", outside, live)
        if is_vector and self.guard is not None:
            outside = b.op("and", outside, self.guard)
        b.fault(outside, value, b.dim(node.bound), node.ordinal)
        some = is_vector and (self.count is not None or self.guard is not None)
        if some or self.clamps:  # lanes that are not live read element 0
            index = b.op("select", outside, zero, index)
            index = b.op("max", b.op("min", index, b.value(b.sub(b.dim(node.bound), 1))), zero)
        return index


def _byte_of(index: Index) -> Node | None:
    """The byte that an index into a table of 256 elements is."""
    if len(index.terms) != 1 or index.offset != 0:
        return None
    (term, step), *_ = index.terms
    node = term.node if isinstance(term, Fetched) and step == 1 else None
    if not isinstance(node, Checked) or node.bound != 256 or node.value.dtype.name != "u8":
        return None
    return node.value


def _has_given(node: Node, emitter: Emitter) -> bool:
    """Whether the node needs a value that is not there yet."""
    return any(
        isinstance(each, Given) and each.value not in emitter.given and not _known(each, emitter)
        for each in trace.walk_nodes([node])
    )


def _known(node: Node, emitter: Emitter) -> bool:
    return any(node in scope for scope in emitter.scopes)
