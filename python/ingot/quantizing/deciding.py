"""What becomes of each layer: which codes, which range of its input, or why it stays float."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ingot.compiler import ir
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.graph.forms.round_factors import HALVES
from ingot.compiler.graph.ops import code_steps
from ingot.compiler.graph.quantizing.codes import Halves
from ingot.compiler.graph.quantizing.insert_codes import Change, Range
from ingot.compiler.graph.quantizing.layers import Layer
from ingot.compiler.graph.weight_arrays import WeightArrays
from ingot.hal.errors import InvalidArgument
from ingot.hal.spec import dtype
from ingot.quantizing.calibration import Inputs
from ingot.quantizing.ranges import METHODS, range_of
from ingot.quantizing.weights import BITS, Grid, compensated, rounded, sum_of_squares

__all__ = [
    "GIVEN",
    "Decision",
    "Scheme",
    "check_groups",
    "decide",
    "kept_layers",
    "settled",
    "weight_length",
]

_Array = np.ndarray[Any, Any]

GIVEN = "its weight is given when the module is loaded"
_NO_RANGE = "all that it reads in the calibration data is 0, which tells no range"

_ACTIVATIONS = ("int8", "dynamic")
_GROUP = 32
_GROUPS = range(16, 4097, 16)
_NARROW = np.finfo(np.float16)


@dataclass(frozen=True)
class Scheme:
    """What is asked for, as `quantize` takes it. InvalidArgument: it cannot be done."""

    weights: str = "int8"
    activations: str | None = None
    group: int | None = None
    method: str = "mse"
    compensate: bool = False
    max_error: float | None = None

    def __post_init__(self) -> None:
        _check_one_of("weights", self.weights, BITS)
        others = (self.activations, self.group, self.compensate)
        if self.has_halves and others != (None, None, False):
            raise InvalidArgument(
                f"weights={self.weights!r} has neither codes nor scales, and rounds activations, "
                "too: leave activations, group and compensate out"
            )
        if self.activations is not None:
            _check_one_of("activations", self.activations, _ACTIVATIONS)
            if self.bits != 8:
                raise InvalidArgument(
                    f"activations={self.activations!r} multiplies bytes with bytes, so weights "
                    f"must be 'int8', not {self.weights!r}: leave activations out"
                )
            if self.group is not None:
                raise InvalidArgument(
                    "a product of bytes has one scale for each output: leave group out, or "
                    "activations"
                )
        _check_one_of("method", self.method, METHODS)
        if self.group is not None and self.group not in _GROUPS:
            raise InvalidArgument(f"group is {self.group}, expected a multiple of 16 up to 4096")
        if self.max_error is not None and not 0 < self.max_error < float("inf"):
            raise InvalidArgument(
                f"max_error is {self.max_error}, expected a relative error such as 0.05"
            )

    @property
    def bits(self) -> int:
        return BITS[self.weights]

    @property
    def has_halves(self) -> bool:
        """Whether both factors of products become bf16 or f16."""
        return self.weights in HALVES

    def bits_of(self, layer: Layer) -> int:
        """Bits of a layer's codes: only products take those of 3, others read parts of bytes."""
        return 4 if self.bits == 3 and layer.kind != "product" else self.bits

    @property
    def needs_data(self) -> str:
        """The option that needs calibration data, "" if none does."""
        if self.activations == "int8":
            return "activations='int8'"
        return "compensate" if self.compensate else ""

    def makes_bytes(self, layer: Layer) -> bool:
        """Whether the layer shall multiply bytes."""
        return self.activations is not None and not layer.obstacle


def _check_one_of(what: str, given: object, known: Collection[str]) -> None:
    if given not in known:
        raise InvalidArgument(f"{what} is {given!r}, expected one of {', '.join(known)}")


@dataclass(frozen=True, eq=False)
class Decision:
    """`change` is None for a layer that stays float, for `reason`; one that is changed may have a
    reason why its input is float. Of what the layer gives, or without data of its weight, `error`
    is the l2 norm of the difference relative to that of the float one, and `cosine` that of the
    angle between them; None where nothing is known."""

    layer: Layer
    change: Change | None
    reason: str = ""
    error: float | None = None
    cosine: float | None = None
    is_measured: bool = False  # with data


def kept_layers(keep: Sequence[str], layers: Mapping[str, Layer]) -> set[str]:
    """The names of layers that stay float. `keep`: names or patterns such as "encoder/*".
    InvalidArgument: one fits none."""
    kept: set[str] = set()
    for pattern in keep:
        found = [name for name in layers if name == pattern or fnmatchcase(name, pattern)]
        if not found:
            near = get_close_matches(pattern, layers, 3, 0.3) or list(layers)[:3]
            raise InvalidArgument(
                f"no layer is called {pattern!r}; of {len(layers)} layers the nearest are: "
                f"{', '.join(map(repr, near))}"
            )
        kept.update(found)
    return kept


def check_groups(layers: Iterable[Layer], scheme: Scheme) -> None:
    """InvalidArgument: the group does not divide the rows of a layer."""
    for layer in layers:
        if not scheme.has_halves:
            _group(layer, scheme)


def decide(
    module: ir.Module,
    layers: Mapping[str, Layer],
    kept: Collection[str],
    scheme: Scheme,
    inputs: Mapping[str, Inputs],
) -> Iterator[Decision]:
    """A decision for each layer. `inputs`: what layers read in calibration; empty without data."""
    for name, function in module.functions.items():
        arrays = WeightArrays(function)
        for layer in layers.values():
            if layer.function != name:
                continue
            if layer.name in kept:
                yield Decision(layer, None, "kept as asked")
                continue
            weight = arrays.of(layer.weight)
            if weight is None:
                yield Decision(layer, None, GIVEN)
            elif not np.isfinite(matrix := layer.matrix(weight)).all():
                yield Decision(layer, None, "its weight has NaN or infinite elements")
            else:
                decide = _in_halves if scheme.has_halves else _decided
                yield _unless_too_far(
                    decide(layer, matrix, scheme, inputs.get(layer.name)), scheme.max_error
                )


def _decided(layer: Layer, weight: _Array, scheme: Scheme, inputs: Inputs | None) -> Decision:
    is_static = scheme.makes_bytes(layer)
    range = None
    if is_static and scheme.activations == "int8":
        assert inputs is not None
        if inputs.histogram.low == inputs.histogram.high:
            return Decision(layer, None, _NO_RANGE)
        range = range_of(inputs.histogram, scheme.method)
    codes, grid = rounded(weight, _grid(layer, weight, scheme), scheme.bits < 8)
    if scheme.compensate and inputs is not None and inputs.hessian is not None:
        codes = compensated(weight, grid, inputs.hessian)
    change = Change(codes, range, is_static and range is None)
    reason = ""
    if scheme.activations is not None and not is_static and layer.kind != "table":
        reason = f"its input stays float: {layer.obstacle}"
    rows = None if inputs is None else inputs.rows
    if rows is None:
        return Decision(layer, change, reason, *_errors(weight, codes.numbers()))
    return _with_data(layer, weight, change, reason, rows)


def _in_halves(layer: Layer, weight: _Array, scheme: Scheme, inputs: Inputs | None) -> Decision:
    def rounded(x: _Array) -> _Array:
        with np.errstate(over="ignore"):
            return x.astype(dtype(scheme.weights).numpy)

    halves = Halves(rounded(weight))
    if not np.isfinite(halves.numbers()).all():
        return Decision(layer, None, f"its weight has elements beyond {scheme.weights}")
    found, rows = halves.numbers(), None if inputs is None else inputs.rows
    if rows is not None:
        rounded_rows = rounded(rows).astype(np.float32)
        found, weight = _multiplied(rounded_rows, found), _multiplied(rows, weight)
    return Decision(layer, Change(halves), "", *_errors(weight, found), rows is not None)


def settled(decisions: Sequence[Decision], in_halves: Collection[str]) -> list[Decision]:
    """The decisions for bf16 or f16, where only these layers became it."""
    why = "it is small, odd or a lookup, or has fewer products by Winograd's way"
    return [
        replace(each, change=None, reason=why)
        if each.change is not None and each.layer.name not in in_halves
        else each
        for each in decisions
    ]


def _unless_too_far(decision: Decision, limit: float | None) -> Decision:
    """The decision, or that the layer stays float."""
    layer = decision.layer
    if limit is not None and decision.error is not None and decision.error > limit:
        why = f"its relative error would be {decision.error:.2g}, more than {limit:.2g}"
        return Decision(layer, None, why, decision.error, decision.cosine, decision.is_measured)
    return decision


def _with_data(layer: Layer, weight: _Array, change: Change, reason: str, rows: _Array) -> Decision:
    """The decision with what data tells: the error of the results, less their mean error."""
    expected = _multiplied(rows, weight)
    quantised = rows
    if change.range is not None:
        quantised = change.range.rounded(rows)
    elif change.is_dynamic:
        low, high = min(float(rows.min()), 0.0), max(float(rows.max()), 0.0)
        scale = (high - low) / 255 or 1.0
        quantised = Range(scale, round(-low / scale)).rounded(rows)
    found = _multiplied(quantised, change.weight.numbers())
    shift = _mean_beyond_chance(expected - found)
    errors = _errors(expected, found + shift)
    return Decision(layer, replace(change, shift=shift), reason, *errors, True)


def _mean_beyond_chance(x: _Array) -> _Array:
    """The means of columns, each the smaller the more of it may be chance: so many rows only."""
    count, mean = len(x), x.mean(axis=0)
    variance = x.var(axis=0, ddof=1) / count if count > 1 else np.full_like(mean, np.inf)
    square = mean * mean
    shrunk = mean * np.divide(square, square + variance, np.zeros_like(mean), where=square > 0)
    return np.asarray(shrunk.astype(np.float32))


def _multiplied(rows: _Array, weight: _Array) -> _Array:
    """Rows [rows, groups, k] times a weight [outputs, k], whose outputs groups share: f32[rows,
    outputs]."""
    count, groups, k = rows.shape
    parts = weight.reshape(groups, -1, k)
    made = np.matmul(rows.transpose(1, 0, 2), parts.transpose(0, 2, 1))
    return np.asarray(made.transpose(1, 0, 2).reshape(count, -1))


def _errors(expected: _Array, found: _Array) -> tuple[float | None, float | None]:
    """The relative l2 error, and the cosine."""
    length = sum_of_squares(expected)
    if not length:
        return None, None
    error = (sum_of_squares(found - expected) / length) ** 0.5
    both = (length * sum_of_squares(found)) ** 0.5
    dot = float(np.dot(expected.reshape(-1), found.reshape(-1)))
    return error, min(dot / both, 1.0) if both else None


def _grid(layer: Layer, weight: _Array, scheme: Scheme) -> Grid:
    """How the weight is rounded. Scales are f16 where a product reads them packed."""
    group, bits = _group(layer, scheme), scheme.bits_of(layer)
    is_grouped = group != layer.inputs or bits < 8
    peaks = np.abs(weight.reshape(-1, group)).max(axis=1)
    scales = peaks[peaks > 0] / (1 << bits)
    fits = bool(scales.size) and scales.min() > _NARROW.tiny and scales.max() < _NARROW.max
    return Grid(bits, group, scheme.method == "mse", is_narrow=is_grouped and fits)


def _group(layer: Layer, scheme: Scheme) -> int:
    """How many weights of a row share a scale."""
    k, asked, bits = layer.inputs, scheme.group, scheme.bits_of(layer)
    if asked is None and bits == 8:
        return k
    if layer.kind in ("product", "table"):
        if asked is not None and k % asked and asked < k:
            raise InvalidArgument(
                f"layer '{layer.name}' has rows of {k} weights, which groups of {asked} do not "
                f"divide: choose another group, or keep={layer.name!r}"
            )
        steps = code_steps(bits)  # a group is whole words, or all
        fitting = [each for each in range(steps, (asked or _GROUP) + 1, steps) if k % each == 0]
        return fitting[-1] if fitting else k
    return max(each for each in range(1, min(asked or _GROUP, k) + 1) if k % each == 0)


def weight_length(layer: Layer) -> int:
    """Bytes of the float weight."""
    return layer.outputs * layer.inputs * tensor_type(layer.weight).dtype.bytes
