"""Spectra of `com.microsoft`, whose last axis holds real and imaginary parts: transforms of real
signals, back, and products."""

from __future__ import annotations

from ingot.compiler.frontends.fourier import over_axes, to_real
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.frontends.sampling import filled
from ingot.compiler.ir import Value, dims

__all__: list[str] = []


def _axes(node: Node, rank: int) -> range:
    """The axes of a signal, which are the last ones."""
    count = node.integer("signal_ndim", 1)
    unsupported(not 1 <= count <= 3, f"its signal_ndim is {count}, expected 1 to 3: fix the model")
    unsupported(count > rank, f"its input is {node.input(0).type}, with {count} axes of a signal")
    whole = node.integer("onesided", 1) and not node.integer("normalized", 0)
    unsupported(not whole, "only transforms of one side without a factor are defined")
    return range(rank - count, rank)


def _paired(node: Node, real: Value, imaginary: Value) -> Value:
    columns = [node.reshape(each, (*shape_of(each), 1)) for each in (real, imaginary)]
    return node.op("concatenate", *columns, axis=type_of(real).rank)


def _parts(node: Node, x: Value) -> tuple[Value, Value]:
    """The real and the imaginary parts of [..., 2]."""
    x = node.agree_on(widen(node, x), type_of(x).rank - 1, 2)
    outer = shape_of(x)[:-1]
    first, second = (node.reshape(node.sliced(x, -1, at, at + 1), outer) for at in range(2))
    return first, second


@lowering("Rfft", domain=MICROSOFT)
def real_to_spectrum(node: Node) -> Value:
    x = widen(node, node.input(0))
    axes = _axes(node, type_of(x).rank)
    pair = over_axes(node, (x, None), axes, one_sided=True)
    return narrow(node, _paired(node, *pair), node.input(0))


@lowering("Irfft", domain=MICROSOFT)
def spectrum_to_real(node: Node) -> Value:
    """Rfft back, for an even length."""
    pair = _parts(node, node.input(0))
    axes = _axes(node, type_of(pair[0]).rank)
    length = (shape_of(pair[0])[-1] - 1) * 2
    result = to_real(node, pair, axes, length)
    points = dims.product(shape_of(result)[axis] for axis in axes)
    result = node.op("div", result, filled(node, points, result))
    return narrow(node, result, node.input(0))


@lowering("ComplexMul", "ComplexMulConj", domain=MICROSOFT)
def product_of_spectra(node: Node) -> Value:
    """A times B, or times the conjugate of B."""
    (a, b), (c, d) = (_parts(node, node.input(place)) for place in range(2))
    if node.proto.op_type == "ComplexMulConj":
        d = node.op("neg", d)
    a, b, c, d = node.broadcast(a, b, c, d)

    def joined(name: str, left: tuple[Value, Value], right: tuple[Value, Value]) -> Value:
        return node.op(name, node.op("mul", *left), node.op("mul", *right))

    real, imaginary = joined("sub", (a, c), (b, d)), joined("add", (a, d), (b, c))
    return narrow(node, _paired(node, real, imaginary), node.input(0))
