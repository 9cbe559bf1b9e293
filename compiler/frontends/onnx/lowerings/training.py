"""One step of an optimiser: Adagrad, Adam and Momentum of ai.onnx.preview.training.

The inputs are the rate, the count of steps before, and then lists: tensors, their gradients,
and what the optimiser keeps of each.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value

__all__: list[str] = []

_DOMAIN = "ai.onnx.preview.training"


def _lists(node: Node, count: int) -> list[tuple[Value, ...]]:
    """The inputs behind the first two as `count` lists, element by element."""
    given = [node.input(place) for place in range(2, len(node.inputs))]
    if not given or len(given) % count:
        raise UnsupportedNode(f"it has {len(given)} tensors for {count} lists: fix the model")
    number = len(given) // count
    return [tuple(given[place::number]) for place in range(number)]


def _steps(
    node: Node, count: int, step: Callable[[tuple[Value, ...]], tuple[Value, ...]]
) -> tuple[Value, ...]:
    """The results of a step for each tensor, as lists one behind the other."""
    columns = [step(each) for each in _lists(node, count)]
    return tuple(value for row in zip(*columns, strict=True) for value in row)


def _spread(node: Node, number: Value, like: Value) -> Value:
    """A rate or count in the shape and dtype of a tensor."""
    scalar = node.convert(node.reshape(number, ()), type_of(like).dtype)
    return node.broadcast_to(scalar, shape_of(like))


def _regular(node: Node, x: Value, gradient: Value) -> Value:
    """The gradient with what the norm of x adds to it."""
    return node.op("add", node.op("mul", x, node.number("norm_coefficient", 0.0)), gradient)


@lowering("Adagrad", domain=_DOMAIN)
def adagrad(node: Node) -> tuple[Value, ...]:
    def step(lists: tuple[Value, ...]) -> tuple[Value, ...]:
        x, gradient, squares = lists
        gradient = _regular(node, x, gradient)
        squares = node.op("add", squares, node.op("mul", gradient, gradient))
        size = node.op("sqrt", squares)
        size = node.op("add", size, node.number("epsilon", 1e-6))
        decay = node.op("mul", _spread(node, node.input(1), x), node.number("decay_factor", 0.0))
        rate = _spread(node, node.input(0), x)
        rate = node.op("div", rate, node.op("add", decay, 1))
        moved = node.op("div", node.op("mul", rate, gradient), size)
        return node.op("sub", x, moved), squares

    return _steps(node, 3, step)


@lowering("Adam", domain=_DOMAIN)
def adam(node: Node) -> tuple[Value, ...]:
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)

    def step(lists: tuple[Value, ...]) -> tuple[Value, ...]:
        x, gradient, mean, squares = lists
        gradient = _regular(node, x, gradient)
        mean = node.op("add", node.op("mul", mean, alpha), node.op("mul", gradient, 1 - alpha))
        square = node.op("mul", node.op("mul", gradient, gradient), 1 - beta)
        squares = node.op("add", node.op("mul", squares, beta), square)
        size = node.op("sqrt", squares)
        size = node.op("add", size, node.number("epsilon", 1e-6))
        rate, count = (_spread(node, node.input(place), x) for place in (0, 1))
        one = node.fill(1, like=x)
        rest = [node.op("sub", one, node.op("pow", each, count)) for each in (alpha, beta)]
        adjusted = node.op("div", node.op("mul", rate, node.op("sqrt", rest[1])), rest[0])
        begun = node.compare("gt", count, 0)
        rate = node.op("select", begun, adjusted, rate)
        moved = node.op("div", node.op("mul", rate, mean), size)
        shrink = 1 - node.number("norm_coefficient_post", 0.0)
        return node.op("mul", node.op("sub", x, moved), shrink), mean, squares

    return _steps(node, 4, step)


@lowering("Momentum", domain=_DOMAIN)
def momentum(node: Node) -> tuple[Value, ...]:
    alpha, mode = node.number("alpha", 0.9), node.text("mode", "standard")
    if mode not in ("standard", "nesterov"):
        raise UnsupportedNode(f"mode '{mode}' is not known: use standard or nesterov")

    def step(lists: tuple[Value, ...]) -> tuple[Value, ...]:
        x, gradient, velocity = lists
        gradient = _regular(node, x, gradient)
        count = _spread(node, node.input(1), x)
        begun = node.compare("gt", count, 0)
        factor = node.fill(node.number("beta", 1.0), like=x)
        factor = node.op("select", begun, factor, 1)
        added = node.op("mul", factor, gradient)
        velocity = node.op("add", node.op("mul", velocity, alpha), added)
        along = velocity
        if mode == "nesterov":
            along = node.op("add", gradient, node.op("mul", velocity, alpha))
        moved = node.op("mul", _spread(node, node.input(0), x), along)
        return node.op("sub", x, moved), velocity

    return _steps(node, 3, step)


@lowering("Gradient", domain=_DOMAIN)
def gradient(node: Node) -> Value:
    raise UnsupportedNode("it computes gradients: export what the model does in inference")
