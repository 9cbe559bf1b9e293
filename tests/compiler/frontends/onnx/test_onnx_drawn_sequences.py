"""Drawn ONNX models of tensors and sequences in branches and loops, against onnxruntime.

What is sought is an element that is read after it has changed, and a flow of sequences through
branches and loops that loses or repeats one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.support.drawn import examples
from tests.support.onnx_models import make_value
from tests.support.onnx_sequences import BOOL, INT64, Case, Node, X, body, rows, sequence, tensor


class Drawn:
    """Draws nodes on matrices [?, 3] and sequences of them, which never get empty."""

    def __init__(
        self, random: np.random.Generator, names: Iterator[int], tensors: list[str], depth: int
    ) -> None:
        self.random = random
        self.names = names
        self.tensors = tensors
        self.sequences: list[str] = []
        self.depth = depth
        self.nodes: list[onnx.NodeProto] = []

    def add(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"v{next(self.names)}"
        self.nodes.append(Node(op, inputs, [name], **attributes))
        return name

    def pick(self, names: Sequence[str]) -> str:
        return names[int(self.random.integers(max(0, len(names) - 4), len(names)))]

    def tensor(self) -> str:
        return self.pick(self.tensors)

    def short(self) -> str:
        """A tensor of at most six rows: what is carried must not grow without end."""
        return self.add("Slice", [self.tensor(), "zero", "six"])

    def draw(self, count: int) -> Drawn:
        if not self.sequences:
            self.sequences.append(self.add("SequenceConstruct", [self.tensor(), self.tensor()]))
        steps = [self.join, self.compute, self.insert, self.turn, self.read, self.all, self.split]
        steps += [self.loop, self.loop, self.branch] if self.depth else []
        for _ in range(count):
            steps[int(self.random.integers(len(steps)))]()
        return self

    def join(self) -> None:
        self.tensors.append(self.add("Concat", [self.tensor(), self.tensor()], axis=0))

    def compute(self) -> None:
        self.tensors.append(self.add("Add", [self.tensor(), "one"]))

    def insert(self) -> None:
        inputs = [self.pick(self.sequences), self.short()]
        if self.random.random() < 0.5:
            inputs.append("n0")
        self.sequences.append(self.add("SequenceInsert", inputs))

    def turn(self) -> None:
        longer = self.add("SequenceInsert", [self.pick(self.sequences), self.short()])
        self.sequences.append(self.add("SequenceErase", [longer, "n0"]))

    def read(self) -> None:
        position = ["n0", "n-1"][int(self.random.integers(2))]
        self.tensors.append(self.add("SequenceAt", [self.pick(self.sequences), position]))

    def all(self) -> None:
        joined = self.add("ConcatFromSequence", [self.pick(self.sequences)], axis=0)
        self.tensors.append(self.add("Slice", [joined, "zero", "six"]))

    def split(self) -> None:
        longer = self.add("Concat", [self.tensor(), "row"], axis=0)
        self.sequences.append(self.add("SplitToSequence", [longer, "n2"], axis=0))

    def inner(self, tensors: Sequence[str], sequences: Sequence[str]) -> Drawn:
        inner = Drawn(self.random, self.names, [*self.tensors, *tensors], self.depth - 1)
        inner.sequences = [*self.sequences, *sequences]
        return inner.draw(int(self.random.integers(1, 4)))

    def given(self, inner: Drawn) -> list[onnx.ValueInfoProto]:
        """A tensor and a sequence as outputs of a body, which makes them itself."""
        x = inner.short()
        s = inner.add("Identity", [inner.pick(inner.sequences)])
        return [make_value(x), sequence(s)]

    def loop(self) -> None:
        names = [f"{kind}{next(self.names)}" for kind in ("i", "go", "x", "s")]
        index, go, x, s = names
        inner = self.inner([x], [s])
        given = self.given(inner)
        on = inner.add("Identity", [go])
        inputs = [tensor(index, element=INT64), tensor(go, element=BOOL)]
        inputs += [tensor(x, f"{x}_0", 3), sequence(s)]
        graph = body(inner.nodes, inputs, [tensor(on, element=BOOL), *given])
        trips = ["n0", "n1", "n3", "trips"][int(self.random.integers(4))]
        outputs = [f"v{next(self.names)}" for _ in range(2)]
        carried = [self.tensor(), self.pick(self.sequences)]
        self.nodes.append(Node("Loop", [trips, "", *carried], outputs, body=graph))
        self.tensors.append(outputs[0])
        self.sequences.append(outputs[1])

    def branch(self) -> None:
        graphs = []
        for _ in range(2):
            inner = self.inner([], [])
            given = self.given(inner)
            graphs.append(body(inner.nodes, [], given))
        outputs = [f"v{next(self.names)}" for _ in range(2)]
        branches = {"then_branch": graphs[0], "else_branch": graphs[1]}
        self.nodes.append(Node("If", ["flag"], outputs, **branches))
        self.tensors.append(outputs[0])
        self.sequences.append(outputs[1])


def drawn_case(seed: int) -> Case:
    random = np.random.default_rng(seed)
    drawn = Drawn(random, iter(range(10000)), ["x", "y"], 2).draw(6)
    drawn.all()
    constants = {
        "zero": np.array([0]),
        "six": np.array([6]),
        "one": np.float32(1),
        "row": np.full((1, 3), 7, np.float32),
    }
    inputs = [X, tensor("y", "b", 3), tensor("trips", element=INT64), tensor("flag", element=BOOL)]
    results = [make_value(name) for name in dict.fromkeys(drawn.tensors[-3:])]
    outputs = [value for value in results if value.name not in ("x", "y")]
    return Case(drawn.nodes, inputs, *outputs, constants=constants)


def check_drawn(seed: int) -> None:
    case = drawn_case(seed)
    for a, b, trips, flag in ((1, 2, 2, True), (3, 0, 0, False), (0, 1, 4, True)):
        inputs = {"x": rows(a), "y": rows(b, first=50), "trips": trips, "flag": flag}
        case.check(**inputs)


@pytest.mark.slow
@examples(10, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 20))
def test_drawn_models(seed: int) -> None:
    check_drawn(seed)
