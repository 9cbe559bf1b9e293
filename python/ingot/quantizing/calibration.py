"""What layers read in calls with calibration data, and statistics of it.

A copy of the program gives the inputs of its layers as further results. It runs over the samples
twice: to find how far the numbers go, and to count them. Of each input some rows are kept - those
that its layer's weight is multiplied with - by which the layer's error is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ingot.compiler import compile, ir
from ingot.compiler.graph.ops import parse_layout
from ingot.compiler.graph.ops.contraction import Convolution, DotGeneral
from ingot.compiler.graph.quantizing.layers import Layer, find_layers
from ingot.compiler.ir.dims import Dim
from ingot.compiler.read_source import copy_module
from ingot.hal.errors import InvalidArgument
from ingot.quantizing.ranges import Histogram
from ingot.quantizing.samples import Sample
from ingot.runtime.model import Model, load

__all__ = ["Calibration", "Inputs", "calibrate", "results_of"]

_Array = np.ndarray[Any, Any]

_KEPT = 512
"""Rows of a layer's input by which its error is measured."""

_COUNTED = 4096
"""Rows of a sample that go into the Hessian of a layer."""


@dataclass(eq=False)
class Inputs:
    """What a layer read. `rows`: f32[rows, groups, k], some of them, or None where these are none
    or zeros, by which no error is seen; `hessian`: the sum of x x^T
    over more of them, [k, k], where it was asked for; `histogram`: of all elements."""

    histogram: Histogram = field(default_factory=Histogram)
    parts: list[_Array] = field(default_factory=list)
    hessian: _Array | None = None

    @property
    def rows(self) -> _Array | None:
        rows = np.concatenate(self.parts) if self.parts else None
        return rows if rows is not None and rows.any() else None


@dataclass(frozen=True)
class Calibration:
    """What the layers read, by name, and the results of the float program for every sample."""

    inputs: Mapping[str, Inputs]
    results: Sequence[Sequence[_Array]]


def calibrate(
    module: ir.Module,
    layers: Sequence[Layer],
    samples: Sequence[Sample],
    *,
    has_hessians: bool,
    has_histograms: bool,
    progress: Callable[[str], None],
) -> Calibration:
    """Runs a prepared program over the samples. InvalidArgument: a layer reads NaN or infinity,
    or a sample does not fit."""
    model, places = _observed(module, layers, progress)
    inputs = {layer.name: Inputs() for layer in layers}
    generator = np.random.default_rng(0)
    results: list[Sequence[_Array]] = []
    count = len(module.functions["main"].result_types)
    for place, sample in enumerate(samples):
        progress(f"calibrate: sample {place + 1} of {len(samples)}")
        arrays = results_of(model, sample)
        results.append(arrays[:count])
        for layer in layers:
            array = _finite(arrays[places[layer.name]], layer, place)
            mine = inputs[layer.name]
            mine.histogram.widen(array)
            _keep_rows(mine, layer, array, -(-_KEPT // len(samples)), generator, has_hessians)
    if has_histograms:
        for place, sample in enumerate(samples):
            progress(f"count: sample {place + 1} of {len(samples)}")
            arrays = results_of(model, sample)
            for layer in layers:
                inputs[layer.name].histogram.add(arrays[places[layer.name]].astype(np.float32))
    return Calibration(inputs, results)


def results_of(model: Model, sample: Sample) -> list[_Array]:
    """The results of a call as arrays; f32 for floats that NumPy lacks."""
    results = model(*(sample[value.name] for value in model.signature.arguments))
    made = results if isinstance(results, tuple) else (results,)
    return [each.numpy() if each.dtype.is_numpy else each.astype("f32").numpy() for each in made]


def _observed(
    module: ir.Module, layers: Sequence[Layer], progress: Callable[[str], None]
) -> tuple[Model, dict[str, int]]:
    """The program with what layers read behind its results, and where each finds its own."""
    copy = copy_module(module)
    main = copy.functions["main"]
    found, returned = find_layers(copy), main.block.terminator.operands
    values = dict.fromkeys(found[layer.name].input for layer in layers)
    first = len(returned)
    places = {value: first + place for place, value in enumerate(values)}
    returned += values
    main.result_names = [f"result{place}" for place in range(len(returned))]
    main.docs = {}
    model = load(compile(copy, progress=progress))
    return model, {layer.name: places[found[layer.name].input] for layer in layers}


def _finite(array: _Array, layer: Layer, sample: int) -> _Array:
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise InvalidArgument(
            f"layer '{layer.name}' reads NaN or infinity in calibration sample {sample}: leave the "
            "sample out"
        )
    return array


# Rows: what the columns of a weight are multiplied with.


def _keep_rows(
    inputs: Inputs,
    layer: Layer,
    array: _Array,
    count: int,
    generator: np.random.Generator,
    has_hessian: bool,
) -> None:
    rows = _rows_of(layer, array, generator)
    if rows is None:
        return
    inputs.parts.append(rows(count))
    if has_hessian and layer.groups == 1:
        x = rows(_COUNTED)[:, 0]
        product = x.T @ x
        inputs.hessian = product if inputs.hessian is None else inputs.hessian + product


def _rows_of(
    layer: Layer, array: _Array, generator: np.random.Generator
) -> Callable[[int], _Array] | None:
    """Gives up to so many rows [rows, groups, k] of a layer's input, drawn without order."""
    if layer.kind == "table":
        return None
    if layer.kind == "product":
        dot = DotGeneral.of(layer.op)
        summed = dot.contract("lhs" if layer.side else "rhs")
        free = [axis for axis in range(array.ndim) if axis not in summed]
        flat = np.transpose(array, (*free, *summed)).reshape(-1, 1, layer.inputs)
        return lambda count: flat[_drawn(len(flat), count, generator)]
    windows = _Windows.of(layer, array)
    if windows is None:
        return None
    return lambda count: windows.rows(_drawn(windows.count, count, generator))


def _drawn(total: int, count: int, generator: np.random.Generator) -> _Array:
    if total <= count:
        return np.arange(total)
    return np.sort(generator.choice(total, count, replace=False))


@dataclass(frozen=True, eq=False)
class _Windows:
    """The windows of a convolution over `array` [batch, spatial..., features], with its padding."""

    array: _Array
    window: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]  # between elements of a window
    groups: int
    order: tuple[int, ...]  # of window and features, as the weight sums them

    @staticmethod
    def of(layer: Layer, array: _Array) -> _Windows | None:
        convolution = Convolution.of(layer.op)
        axes = parse_layout(convolution.layout)
        strides, steps = _numbers(convolution.strides), _numbers(convolution.rhs_dilation)
        padding = _numbers(each for pair in convolution.padding for each in pair)
        if strides is None or steps is None or padding is None or min(padding, default=0) < 0:
            return None
        if any(step != 1 for step in convolution.lhs_dilation):
            return None
        edges = [(0, 0), *zip(padding[::2], padding[1::2], strict=True), (0, 0)]
        moved = np.transpose(array, (axes.batch, *axes.spatial, axes.feature))
        padded = np.pad(moved, edges)
        window = tuple(layer.weight_shape[axis] for axis in axes.weight_spatial)
        places = (*axes.weight_spatial, axes.weight_input)
        order = tuple(places.index(axis) for axis in layer.summed)
        return _Windows(padded, window, strides, steps, layer.groups, order)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many windows there are along each axis in front of the features."""
        sizes = zip(self.array.shape[1:-1], self.window, self.strides, self.steps, strict=True)
        spatial = [max((size - (w - 1) * step - 1) // s + 1, 0) for size, w, s, step in sizes]
        return (self.array.shape[0], *spatial)

    @property
    def count(self) -> int:
        return prod(self.sizes)

    def rows(self, places: _Array) -> _Array:
        """The windows with these numbers, [rows, groups, k]."""
        batch, *starts = np.unravel_index(places, self.sizes)
        taps = len(self.window)
        index: list[_Array] = [batch.reshape(-1, *(1,) * taps)]
        for axis, start in enumerate(starts):
            inside = np.arange(self.window[axis]) * self.steps[axis]
            shape = [1] * (taps + 1)
            shape[axis + 1] = -1
            corner = (start * self.strides[axis]).reshape(-1, *(1,) * taps)
            index.append(corner + inside.reshape(shape))
        found = self.array[tuple(index)]  # [rows, window..., features]
        found = found.reshape(*found.shape[:-1], self.groups, -1)
        found = np.moveaxis(found, -2, 1)
        order = (0, 1, *(2 + place for place in self.order))
        return np.ascontiguousarray(np.transpose(found, order)).reshape(
            len(places), self.groups, -1
        )


def _numbers(dims: Iterable[Dim]) -> tuple[int, ...] | None:
    """Dims that are numbers; None if one depends on the call."""
    found = tuple(dims)
    numbers = tuple(dim for dim in found if isinstance(dim, int))
    return numbers if len(numbers) == len(found) else None
