"""Values whose dims change in a loop, and lists of tensors, against the interpreter.

What is sought is memory that is read after it has changed, or that is too small: values
that grow, shrink, change places, and are carried through nested loops and branches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, while_loop
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import ListType, Module, TensorType, Value, parse, to_text
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.vm.disassemble import disassemble
from ingot.compiler.vm.read_module import read_module
from ingot.hal.spec import dtype
from tests.support.compiled_programs import build
from tests.support.devices import best_variant, load_best
from tests.support.drawn import examples

F32, I64 = dtype("f32"), dtype("i64")
GREATEST = 40  # rows of a drawn value


class Drawn:
    """Draws ops on matrices f32[?, 3] and lists of them into a builder.

    `names` gives fresh symbols. All values are integers in f32, so results are exact.
    """

    def __init__(
        self,
        random: np.random.Generator,
        names: Iterator[str],
        b: Builder,
        values: Sequence[Value],
        depth: int,
    ) -> None:
        self.random = random
        self.names = names
        self.b = b
        self.values = list(values)
        self.depth = depth

    def draw(self, count: int) -> Drawn:
        steps = [self.join, self.cut, self.compute, self.insert, self.read, self.erase]
        steps += [self.loop, self.loop, self.branch] if self.depth else []
        for _ in range(count):
            self.values += steps[self.random.integers(len(steps))]()
        return self

    def pick(self, kind: type = TensorType) -> Value:
        found = [value for value in self.values if isinstance(value.type, kind)]
        first = max(0, len(found) - 3) if self.random.random() < 0.7 else 0
        return found[self.random.integers(first, len(found))]

    def rows(self, value: Value) -> Dim:
        assert isinstance(value.type, TensorType)
        return value.type.shape[0]

    def short(self, x: Value) -> Value:
        """The first rows of x, GREATEST at most: values must not grow without end."""
        size = self.b.value("dim", value=self.rows(x), dtype=I64)
        least = self.b.value("min", size, self.b.constant(GREATEST, "i64"))
        name = next(self.names)
        self.b.append("size", (least,), (), {"symbols": (name,)})
        limit = (symbol(name), 3)
        return self.b.value("slice", x, start=(0, 0), limit=limit, stride=(1, 1))

    def join(self) -> list[Value]:
        return [self.b.value("concatenate", self.pick(), self.pick(), axis=0)]

    def cut(self) -> list[Value]:
        return [self.short(self.pick())]

    def compute(self) -> list[Value]:
        x = self.pick()
        return [self.b.value("add", x, self.b.full(1.0, F32, (self.rows(x), 3)))]

    def length(self, list: Value) -> Dim:
        name = next(self.names)
        self.b.append("list.length", (list,), (), {"symbols": (name,)})
        return symbol(name)

    def insert(self) -> list[Value]:
        list, x = self.pick(ListType), self.short(self.pick())
        index = 0 if self.random.random() < 0.5 else self.length(list)
        return [self.b.value("list.insert", list, x, index=index)]

    def has_elements(self, list: Value) -> Value:
        size = self.b.value("dim", value=self.length(list), dtype=I64)
        return self.b.value("compare", size, self.b.constant(0, "i64"), direction="gt")

    def read(self) -> list[Value]:
        list, other = self.pick(ListType), self.pick()

        def first(b: Builder) -> list[Value]:
            name = next(self.names)
            shape = (symbol(name), 3)
            return [b.value("list.get", list, index=0, shape=shape, symbols=(name,))]

        builds = [first, lambda b: [other]]
        return branches(self.b, "if", self.has_elements(list), builds, self.names)

    def erase(self) -> list[Value]:
        list = self.pick(ListType)
        builds = [lambda b: [b.value("list.erase", list, index=0)], lambda b: [list]]
        return branches(self.b, "if", self.has_elements(list), builds, self.names)

    def inner(self, b: Builder, more: Sequence[Value] = ()) -> Drawn:
        inner = Drawn(self.random, self.names, b, [*self.values, *more], self.depth - 1)
        return inner.draw(int(self.random.integers(1, 5)))

    def kinds(self) -> list[type]:
        return [[TensorType, ListType][k] for k in self.random.integers(0, 2, 2)] + [TensorType]

    def loop(self) -> list[Value]:
        kinds = self.kinds()
        initial = [self.b.constant(0, "i64"), *map(self.pick, kinds)]
        symbols = [next(self.names) if kind is TensorType else "" for kind in kinds]
        types = [initial[0].type] + [
            TensorType(F32, (symbol(name), 3)) if name else value.type
            for name, value in zip(symbols, initial[1:], strict=True)
        ]
        trips = self.b.constant(int(self.random.integers(0, 4)), "i64")

        def condition(b: Builder, values: Sequence[Value]) -> Value:
            return b.value("compare", values[0], trips, direction="lt")

        def body(b: Builder, values: Sequence[Value]) -> list[Value]:
            drawn = self.inner(b, values[1:])
            following = b.value("add", values[0], b.constant(1, "i64"))
            given = [drawn.pick(kind) for kind in kinds]
            return [following, *(drawn.short(x) if is_tensor(x) else x for x in given)]

        used = [name for name in symbols if name]
        return while_loop(self.b, initial, condition, body, types, used)[1:]

    def branch(self) -> list[Value]:
        kinds = self.kinds()
        flag = self.b.value("compare", self.count(), self.b.constant(6, "i64"), direction="lt")

        def builds(b: Builder) -> list[Value]:
            return [*map(self.inner(b).pick, kinds)]

        return branches(self.b, "if", flag, [builds, builds], self.names)

    def count(self) -> Value:
        return self.b.value("dim", value=self.rows(self.pick()), dtype=I64)


def is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def fresh() -> Iterator[str]:
    number = 0
    while True:
        yield f"f{number}"
        number += 1


def program(seed: int) -> Module:
    random = np.random.default_rng(seed)

    def make(b: Builder, x: Value, y: Value) -> list[Value]:
        empty = b.append("list.empty", (), (), {"dtype": F32, "shape": (-1, 3)}).result
        names = fresh()
        drawn = Drawn(random, names, b, [x, y, empty], 3).draw(8)
        return [value for value in drawn.values if is_tensor(value)][-3:]

    return build(make, ("f32", (symbol("a"), 3)), ("f32", (2, 3)), symbols={"a": (0, None)})


def check(seed: int) -> None:
    reference = program(seed)
    assert to_text(parse(to_text(reference))) == to_text(reference)
    model = load_best(program(seed))
    for rows in (0, 1, 5):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        y = -np.arange(6, dtype=np.float32).reshape(2, 3) - 1
        wanted = interpret(reference, "main", [x, y])
        got = model.call(x, y)
        for each, expected in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(each.numpy(), expected)
            assert each.shape == expected.shape


@examples(8, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 20))
def test_drawn_programs(seed: int) -> None:
    check(seed)


def grown(b: Builder, x: Value, rows: Value, trips: Value) -> list[Value]:
    """x with `rows` rows of ones behind it, `trips` times over."""
    b.append("size", (rows,), (), {"symbols": ("r",)})

    def condition(inner: Builder, values: Sequence[Value]) -> Value:
        return inner.value("compare", values[0], trips, direction="lt")

    def body(inner: Builder, values: Sequence[Value]) -> list[Value]:
        ones = inner.full(1.0, F32, (symbol("r"), 3))
        longer = inner.value("concatenate", values[1], ones, axis=0)
        return [inner.value("add", values[0], inner.constant(1, "i64")), longer]

    zero = b.constant(0, "i64")
    types = [zero.type, TensorType(F32, (symbol("m"), 3))]
    return while_loop(b, [zero, x], condition, body, types, ["m"])[1:]


def test_a_value_that_grows_is_copied_once_and_asks_for_memory_seldom() -> None:
    module = build(grown, ("f32", (symbol("a"), 3)), ("i64", ()), ("i64", ()))
    compiled = ingot.compile(module, variants=[best_variant()])
    model = ingot.load(compiled)
    assert disassemble(read_module(bytes(compiled))).count("list.get") == 1  # behind the loop
    x = np.zeros((1, 3), np.float32)
    with model.trace() as events:
        result = model(x, np.int64(1), np.int64(1000))
    copied = [event.length for event in events if event.kernel == "copy"]
    np.testing.assert_array_equal(result.numpy()[1:], np.ones((1000, 3)))
    assert sum(length > 12 for length in copied) <= 8  # doublings, and the result
    assert sum(copied) <= 4 * 12 * 1001


def test_memory_that_does_not_exist_is_not_asked_for() -> None:
    module = build(grown, ("f32", (symbol("a"), 3)), ("i64", ()), ("i64", ()))
    model = load_best(module)
    x = np.zeros((1, 3), np.float32)
    for rows, error in ((1 << 40, ingot.OutOfMemory), (1 << 62, ingot.InvalidArgument)):
        with pytest.raises(error):
            model(x, np.int64(rows), np.int64(2))
    assert model(x, np.int64(2), np.int64(2)).shape == (5, 3)
    with pytest.raises(ingot.Error, match="limit of 5000 steps"):
        model.call(x, np.int64(0), np.int64(1 << 60), max_steps=5000)
