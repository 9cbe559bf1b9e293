"""Bodies of entries with reductions, which tests of several schedules share."""

from __future__ import annotations

from ingot.hal.spec import dtype

__all__ = ["layer_norm", "softmax", "spread"]

F32 = dtype("f32")


def spread(b, x, shape):
    """A reduced value for every element of its rows."""
    return b.op("broadcast", x, shape=shape, dimensions=tuple(range(len(shape) - 1)))


def softmax(shape):
    last = len(shape) - 1

    def body(b, x):
        top = b.op("reduce", x, axes=(last,), kind="max")
        power = b.op("exp", b.op("sub", x, spread(b, top, shape)))
        total = b.op("reduce", power, axes=(last,), kind="add")
        return b.op("div", power, spread(b, total, shape))

    return body


def layer_norm(shape, residual=False):
    last = len(shape) - 1

    def body(b, x, gain, *more):
        x = b.op("add", x, more[0]) if residual else x
        count = b.full(1.0 / 48, F32, shape[:-1])
        mean = b.op("mul", b.op("reduce", x, axes=(last,), kind="add"), count)
        centred = b.op("sub", x, spread(b, mean, shape))
        square = b.op("reduce", b.op("mul", centred, centred), axes=(last,), kind="add")
        scale = b.op(
            "rsqrt", b.op("add", b.op("mul", square, count), b.full(1e-5, F32, shape[:-1]))
        )
        wide = b.op("broadcast", gain, shape=shape, dimensions=(last,))
        return b.op("mul", b.op("mul", centred, spread(b, scale, shape)), wide)

    return body
