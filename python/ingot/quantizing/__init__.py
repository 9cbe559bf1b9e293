"""`ingot.quantize`: a module whose weights, and perhaps activations, are small integers.

It works on graph IR, so it takes what `ingot.compile` takes. Layers are found (`compiler.graph.
quantizing`), what they read is watched where there is data (`calibration`), each gets codes or
stays float (`deciding`), and the changed program is compiled, measured beside the float one, and
told of (`report`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingot.compiler import Module
from ingot.compiler.graph.quantizing.layers import prepare
from ingot.compiler.pipeline import compile, read_program
from ingot.hal.errors import InvalidArgument
from ingot.hal.options import check_options, checked_options
from ingot.quantizing.deciding import Scheme
from ingot.quantizing.report import QuantizationReport
from ingot.quantizing.work import Work

__all__ = ["QuantizedModule", "quantize"]

_READING = ("outputs", "parameter_names", "capacity", "example_inputs", "dynamic_shapes")


class QuantizedModule(Module):
    """A compiled module; `quantization` tells what became of each layer."""

    def __init__(self, module: Module, quantization: QuantizationReport) -> None:
        super().__init__(module.contents, module.report)
        self.quantization = quantization


@checked_options(InvalidArgument)
def quantize(
    source: Any,
    *,
    weights: str = "int8",
    activations: str | None = None,
    data: Any = None,
    keep: Sequence[str] = (),
    group: int | None = None,
    method: str = "mse",
    compensate: bool = False,
    max_error: float | None = None,
    precision: str = "f32",
    measure: bool = True,
    dims: Mapping[str, int] | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> QuantizedModule:
    """The module of a source program, as `compile` makes it, with quantised layers.

    `source`: as of `compile`.
    `weights`: "int8", "int4", "int3" or "int2", for products, convolutions and tables; or "bf16"
    or "f16" for both factors of large products and convolutions, as `compile` with that precision.
    `activations`: "int8" makes inputs of layers bytes, by ranges that `data` shows, or "dynamic"
    by ranges that each call finds; then bytes are multiplied with bytes. Without it weights are
    packed, and multiplied with floats.
    `data`: calibration samples: the path of an .npz file or a dict, whose arrays hold all samples
    of an argument along one more axis in front, or as more rows; or an iterable of samples, each a
    dict by name, a tuple of arguments, or the one argument.
    `keep`: layers that stay float, by names or patterns such as "encoder/*".
    `group`: weights of a row that share a scale: all of int8, 32 below.
    `method`: how ranges are chosen: all numbers (minmax), the least squared error (mse), which
    holds for scales of weights too, or the least divergence (entropy).
    `compensate`: errors of a weight are made up for by the weights behind it, by `data` (GPTQ).
    `max_error`: the greatest relative l2 error of a layer's result; layers above it stay float.
    `precision`: as of `compile`: "int8" rounds what meets weights in groups.
    `measure`: layers that are slower than float ones on this machine's processor stay float, and
    the report has times. Without it the module depends on its source and data alone.
    `dims`: sizes of open dims with which to measure where there is no data.
    `options`: those of `compile`. Weights stand in the module; external ones stay float.

    CompileError: the program cannot be compiled, or has no layer to quantise. InvalidArgument:
    data, a layer's name or an option is wrong; the message says which.
    """
    check_options(compile, options, InvalidArgument)
    scheme = Scheme(weights, activations, group, method, compensate, max_error)
    reading = {name: options.pop(name) for name in _READING if name in options}
    if options.get("parameters", "embedded") != "embedded":
        raise InvalidArgument(
            "codes are made of the weights, so they stand in the module: leave parameters out"
        )
    if scheme.needs_data and data is None:
        ranges = "activations='dynamic' for ranges that each call finds"
        other = ranges if activations == "int8" else "leave it out"
        raise InvalidArgument(f"{scheme.needs_data} needs calibration data: give data=, or {other}")
    say = progress or (lambda step: None)
    program = read_program(source, state=options.pop("state", None), progress=say, **reading)
    work = Work(prepare(program), scheme, keep, precision, options, say)
    return QuantizedModule(*work.run(data, measure, dims or {}))
