"""Draws ONNX models full of shape arithmetic, for tests that compare engines on them.

Each model takes x: f32[b,s,4], y: f32[s,3] and n: i64[1], and works on values whose shapes
follow from those of x and y and from n, by ops that exporters use to compute shapes. A draw
depends on its seed only. The generator knows no engine; whether a model runs at some sizes is
for the caller to find out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["draw_model", "inputs_of"]


def inputs_of(b: int, s: int, n: int) -> dict[str, np.ndarray[Any, Any]]:
    """Arguments: many different small numbers, some of them zero; eighths, whose sums of products
    are exact, so that engines agree on which of them are zero."""
    random = np.random.default_rng(100 * b + 10 * s + n)
    return {
        "x": np.round(random.standard_normal((b, s, 4)).astype(np.float32) * 8) / 8,
        "y": np.round(random.standard_normal((s, 3)).astype(np.float32) * 8) / 8,
        "n": np.array([n], np.int64),
    }


def draw_model(seed: int, steps: int) -> onnx.ModelProto:
    """A model of about so many steps; its outputs are all values that nothing else reads."""
    return _Draw(seed, steps).model()


class _Draw:
    def __init__(self, seed: int, steps: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.values: dict[str, int] = {"x": 3, "y": 2}  # rank of each tensor of floats
        self.used: set[str] = set()
        for _ in range(steps):
            rules: list[Callable[[], None]] = [
                getattr(self, name) for name in dir(self) if name.startswith("step_")
            ]
            rules[self.random.integers(len(rules))]()

    def model(self) -> onnx.ModelProto:
        last = [name for name in self.values if name not in self.used and name not in "xy"]
        outputs = [onnx.ValueInfoProto(name=name) for name in last or ["x"]]
        inputs = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s", 4]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["s", 3]),
            helper.make_tensor_value_info("n", TensorProto.INT64, [1]),
        ]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "drawn", inputs, outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    # Pieces.

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        self.used.update(inputs)
        return name

    def ints(self, *numbers: int) -> str:
        name = f"c{'_'.join(map(str, numbers))}".replace("-", "m")
        self.constants[name] = np.array(numbers, np.int64)
        return name

    def pick(self, least: int = 1) -> str:
        names = [name for name, rank in self.values.items() if rank >= least]
        return str(self.random.choice(names[-4:]))

    def axis(self, name: str) -> int:
        return int(self.random.integers(self.values[name]))

    def keep(self, name: str, rank: int) -> None:
        self.values[name] = rank

    def dim(self, name: str, axis: int) -> str:
        """i64[1]: a dim of a value, taken from its shape."""
        shape = self.op("Shape", name)
        if self.random.integers(2):
            return self.op("Slice", shape, self.ints(axis), self.ints(axis + 1))
        return self.op("Gather", shape, self.ints(axis))

    def size(self, name: str, axis: int) -> str:
        """i64[1]: a number that is at most the dim, computed in some way."""
        dim = self.dim(name, axis)
        match self.random.integers(5):
            case 0:
                return self.op("Div", dim, self.ints(2))
            case 1:
                return self.op("Min", dim, "n")
            case 2:
                return self.op("Max", self.op("Sub", dim, self.ints(1)), self.ints(0))
            case 3:
                return self.op("Div", self.op("Add", dim, self.ints(1)), self.ints(2))
        return dim

    # Steps. Each makes one value, or several.

    def step_flatten(self) -> None:
        x = self.pick(2)
        self.keep(self.op("Reshape", x, self.ints(0, -1)), 2)

    def step_merge(self) -> None:
        x = self.pick(2)
        merged = self.op("Mul", self.dim(x, 0), self.dim(x, 1))
        rest = [self.dim(x, axis) for axis in range(2, self.values[x])]
        shape = self.op("Concat", merged, *rest, axis=0) if rest else merged
        self.keep(self.op("Reshape", x, shape, allowzero=1), self.values[x] - 1)

    def step_split_off(self) -> None:
        x = self.pick()
        if self.values[x] < 4:
            ones = self.op("Concat", self.ints(1), self.dim(x, 0), self.ints(-1), axis=0)
            self.keep(self.op("Reshape", x, ones, allowzero=1), 3)

    def step_transpose(self) -> None:
        x = self.pick(2)
        order = [int(axis) for axis in self.random.permutation(self.values[x])]
        self.keep(self.op("Transpose", x, perm=order), self.values[x])

    def step_slice(self) -> None:
        x = self.pick()
        axis = self.axis(x)
        end = self.size(x, axis)
        begin = self.ints(0) if self.random.integers(2) else self.op("Div", end, self.ints(2))
        step = self.ints(int(self.random.choice([1, 1, 2])))
        self.keep(self.op("Slice", x, begin, end, self.ints(axis), step), self.values[x])

    def step_backwards(self) -> None:
        x = self.pick()
        axis = self.ints(self.axis(x))
        ends = self.ints(-1), self.ints(-(2**62))
        self.keep(self.op("Slice", x, *ends, axis, self.ints(-1)), self.values[x])

    def step_concatenate(self) -> None:
        x = self.pick()
        axis = self.axis(x)
        part = self.op("Slice", x, self.ints(0), self.size(x, axis), self.ints(axis))
        self.keep(self.op("Concat", x, part, axis=axis), self.values[x])

    def step_pad(self) -> None:
        x = self.pick()
        rank = self.values[x]
        axis = self.axis(x)
        zero = self.ints(0)
        amounts = [zero] * (2 * rank)
        amounts[axis] = "n"
        amounts[rank + axis] = self.size(x, axis)
        self.keep(self.op("Pad", x, self.op("Concat", *amounts, axis=0)), rank)

    def step_tile(self) -> None:
        x = self.pick()
        rank = self.values[x]
        repeats = [self.ints(1)] * rank
        repeats[self.axis(x)] = "n"
        self.keep(self.op("Tile", x, self.op("Concat", *repeats, axis=0)), rank)

    def step_expand(self) -> None:
        x = self.pick()
        if self.values[x] < 4:
            wide = self.op("Unsqueeze", x, self.ints(0))
            rest = [self.dim(x, axis) for axis in range(self.values[x])]
            shape = self.op("Concat", self.size(x, 0), *rest, axis=0)
            self.keep(self.op("Expand", wide, shape), self.values[x] + 1)

    def step_take(self) -> None:
        x = self.pick()
        axis = self.axis(x)
        end = self.op("Squeeze", self.size(x, axis), self.ints(0))
        zero, one = (self.op("Squeeze", self.ints(each), self.ints(0)) for each in (0, 1))
        places = self.op("Range", zero, end, one)
        self.keep(self.op("Gather", x, places, axis=axis), self.values[x])

    def step_top(self) -> None:
        x = self.pick()
        axis = self.axis(x)
        name = f"top_{len(self.nodes)}"
        k = self.size(x, axis)
        self.nodes.append(helper.make_node("TopK", [x, k], [name, f"{name}_i"], name, axis=axis))
        self.used.update((x, k))
        self.keep(name, self.values[x])

    def step_parts(self) -> None:
        x = self.pick()
        axis = self.axis(x)
        first = self.size(x, axis)
        sizes = self.op("Concat", first, self.op("Sub", self.dim(x, axis), first), axis=0)
        names = [f"part_{len(self.nodes)}_{place}" for place in range(2)]
        self.nodes.append(helper.make_node("Split", [x, sizes], names, names[0], axis=axis))
        self.used.update((x, sizes))
        for name in names:
            self.keep(name, self.values[x])

    def step_fill(self) -> None:
        x = self.pick()
        zeros = self.op("ConstantOfShape", self.op("Shape", x))
        self.keep(self.op("Add", zeros, x), self.values[x])

    def step_positive(self) -> None:
        x = self.pick()
        flat = self.op("Reshape", x, self.ints(-1))
        mask = self.op("Greater", flat, self.op("Sub", flat, flat))
        self.keep(self.op("Compress", flat, mask, axis=0), 1)

    def step_product(self) -> None:
        x = self.pick(2)
        rank = self.values[x]
        order = [*range(rank - 2), rank - 1, rank - 2]
        self.keep(self.op("MatMul", x, self.op("Transpose", x, perm=order)), rank)

    def step_reduce(self) -> None:
        x = self.pick(2)
        axes = self.ints(self.axis(x))
        mean = self.op("ReduceMax", x, axes, keepdims=1)
        self.keep(self.op("Sub", x, mean), self.values[x])

    def step_softmax(self) -> None:
        x = self.pick()
        self.keep(self.op("Softmax", x, axis=self.axis(x)), self.values[x])

    def step_twice(self) -> None:
        x = self.pick()
        self.keep(self.op("Add", x, self.op("Neg", self.op("Abs", x))), self.values[x])
