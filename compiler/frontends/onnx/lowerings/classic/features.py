"""What prepares features: Scaler, Normalizer, Binarizer, Imputer and kin."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import CLASSIC, lowering
from ingot.compiler.ir import Value, dims

__all__: list[str] = []


def _per_feature(node: Node, values: Sequence[float], x: Value, what: str) -> Value:
    """One number for all features, or one for each, in the shape and dtype of x."""
    if len(values) == 1:
        return node.fill(values[0], like=x)
    shape = shape_of(x)
    unsupported(
        not 1 <= len(shape) <= 2 or not values,
        f"its {what} has {len(values)} elements for {x.type}: fix the model",
    )
    row = node.agree(node.constant(values, type_of(x).dtype), shape[-1:])
    return node.broadcast_to(row, shape)


@lowering("Scaler", domain=CLASSIC)
def scaler(node: Node) -> Value:
    """(x - offset) * scale, in f32."""
    x = node.input(0)
    if type_of(x).dtype.name != "f64":
        x = node.convert(x, "f32")
    for op, name in (("sub", "offset"), ("mul", "scale")):
        x = node.op(op, x, _per_feature(node, node.numbers(name) or (), x, name))
    return node.convert(x, "f32")


@lowering("Normalizer", domain=CLASSIC)
def normalizer(node: Node) -> Value:
    """Each row divided by its norm, unless that is 0; in f32."""
    x = node.convert(node.input(0), "f32")
    shape, kind = shape_of(x), node.text("norm", "MAX")
    unsupported(kind not in ("MAX", "L1", "L2"), f"its norm '{kind}' is not known")
    unsupported(len(shape) not in (1, 2), f"its input is {x.type}: use rank 1 or 2")
    axes = [len(shape) - 1]
    if kind == "MAX":
        norm = node.reduce(x, axes, "max")
    elif kind == "L1":
        norm = node.reduce(node.op("abs", x), axes, "add")
    else:
        norm = node.op("sqrt", node.reduce(node.op("mul", x, x), axes, "add"))
    is_zero = node.compare("eq", norm, 0)
    norm = node.op("select", is_zero, 1, norm)
    return node.op("div", x, node.broadcast_back(norm, shape, axes))


@lowering("Binarizer", domain=CLASSIC)
def binarizer(node: Node) -> Value:
    x = node.input(0)
    threshold = node.fill(node.number("threshold", 0.0), like=x)
    return node.convert(node.compare("gt", x, threshold), type_of(x).dtype)


@lowering("Imputer", domain=CLASSIC)
def imputer(node: Node) -> Value:
    """x with values in the place of those that are missing."""
    x = node.input(0)
    kind = "float" if type_of(x).dtype.is_float else "int64"
    values = node.numbers("imputed_value_floats") or node.integers("imputed_value_int64s") or ()
    replaced = node.number if kind == "float" else node.integer
    missing = replaced(f"replaced_value_{kind}", 0)
    is_missing = node.op("is_nan", x) if math.isnan(missing) else node.compare("eq", x, missing)
    return node.op("select", is_missing, _per_feature(node, values, x, "imputed values"), x)


@lowering("ArrayFeatureExtractor", domain=CLASSIC)
def array_feature_extractor(node: Node) -> Value:
    """Elements of the last axis, -1 the last, which skl2onnx reads for what it then leaves out; of
    a tensor of rank 1 one row."""
    x, indices = node.input(0), node.input(1)
    flat = node.flat(indices)
    x = x if type_of(x).rank > 1 else node.reshape(x, (1, *shape_of(x)))
    return node.op("take", x, flat, axis=type_of(x).rank - 1, mode="wrap_check")


@lowering("FeatureVectorizer", domain=CLASSIC)
def feature_vectorizer(node: Node) -> Value:
    """Features beside each other, in f32, cut or filled with zeros to their count."""
    parts = [_features(node, x) for x in node.present()]
    sizes = node.integers("inputdimensions") or [shape_of(x)[1] for x in parts]
    unsupported(
        len(sizes) != len(parts) or not parts,
        f"it has {len(sizes)} inputdimensions for {len(parts)} inputs: fix the model",
    )
    rows = shape_of(parts[0])[0]
    fitted = []
    for x, size in zip(parts, sizes, strict=True):
        x = node.agree_on(x, 0, rows)
        fitted.append(node.padded(x, (0, 0), (0, size - shape_of(x)[1])))
    return fitted[0] if len(fitted) == 1 else node.op("concatenate", *fitted, axis=1)


def _features(node: Node, x: Value) -> Value:
    """f32[n, features]; a tensor of rank 1 is one row."""
    shape = shape_of(x)
    unsupported(not shape, f"an input is {x.type}: use rank 1 or more")
    rows = 1 if len(shape) == 1 else shape[0]
    count = dims.product(shape if len(shape) == 1 else shape[1:])
    return node.convert(node.reshape(x, (rows, count)), "f32")
