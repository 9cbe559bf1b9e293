"""Classic models as scikit-learn has them: `predict`, `predict_proba` and `transform` of a module.

model = ingot.sklearn.Estimator(pipeline, rows)      # fitted; written by skl2onnx
model = ingot.sklearn.Estimator("pipeline.onnx")     # or what it wrote before
labels = model.predict(rows)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import ingot
from ingot.hal.errors import InvalidArgument, NotFound
from ingot.hal.masks import unmasked
from ingot.runtime.signature import Value
from ingot.runtime.texts import Texts

__all__ = ["Estimator"]

Array = np.ndarray[Any, Any]


class Estimator:
    """A compiled model with the methods of scikit-learn.

    `source`: a fitted estimator or pipeline, with `rows` of what it takes (one is enough), or an
    ONNX model as `ingot.compile` takes it. `options` go to `ingot.load`. Of an estimator
    `classes_` are the labels; of an ONNX model they are what it gives.

    It takes arrays and lists [rows, features] and, where the model has an input for each column,
    data frames and dicts of columns. Numbers become the dtype of the input, mostly f32.

    `model` is the loaded module. Raises as `ingot.compile` and `ingot.load`; NotFound: skl2onnx,
    which writes an estimator, is not installed.
    """

    def __init__(self, source: Any, rows: Any = None, **options: Any) -> None:
        self.classes_: Array | None = None
        if not _is_onnx(source):
            self.classes_ = getattr(source, "classes_", None)
            source = _written(source, rows)
        elif rows is not None:
            raise InvalidArgument("rows tell what an estimator takes; an ONNX model says it itself")
        self.model = ingot.load(ingot.compile(source), **options)
        signature = self.model.signature
        self._texts = Texts(signature)
        self._columns = [
            each for each in signature.arguments if each.name in self._texts.argument_names
        ]
        results = [each for each in signature.results if each.name in self._texts.result_names]
        self._labels = _first(results, lambda each: not each.dtype.is_float)
        self._numbers = _first(results, lambda each: each.dtype.is_float)

    @property
    def n_features_in_(self) -> int:
        """How many columns it takes."""
        return sum(map(_width, self._columns))

    def predict(self, rows: Any) -> Array:
        """The label or the number of each row: [rows], or [rows, outputs] of several numbers."""
        results = self._call(rows)
        if self._labels is None:
            return _flat(results[self._name(self._numbers)])
        labels = _flat(results[self._labels])
        if self.classes_ is None or labels.dtype.kind not in "iub":
            return labels
        return np.asarray(self.classes_)[labels.astype(np.intp)]

    @property
    def predict_proba(self) -> Callable[[Any], Array]:
        """predict_proba(rows): the probability of each class, [rows, classes]. AttributeError: the
        model has no labels, or only those."""
        return self._numbers_of("predict_proba", self._labels is not None)

    @property
    def predict_log_proba(self) -> Callable[[Any], Array]:
        """predict_log_proba(rows): the logarithm of `predict_proba`."""
        found = self._numbers_of("predict_log_proba", self._labels is not None)
        return lambda rows: np.log(found(rows))

    @property
    def transform(self) -> Callable[[Any], Array]:
        """transform(rows): what the model makes of each row, [rows, features]; of clusters the
        distances. AttributeError: it gives no numbers, or is a classifier."""
        return self._numbers_of("transform", self.classes_ is None)

    def score(self, rows: Any, expected: Any) -> float:
        """The share of right labels, or R^2 of numbers."""
        found, wanted = self.predict(rows), np.asarray(expected)
        if self._labels is not None:
            return float(np.mean(found == wanted))
        rest = np.sum((wanted - found) ** 2, dtype=np.float64)
        return float(1 - rest / np.sum((wanted - wanted.mean(axis=0)) ** 2, dtype=np.float64))

    def __repr__(self) -> str:
        return f"<ingot.sklearn.Estimator: {self.model.signature}>"

    def _numbers_of(self, method: str, has_it: bool) -> Callable[[Any], Array]:
        if not has_it or self._numbers is None:
            raise AttributeError(f"{self!r} has no {method}: its results are other ones")
        name = self._numbers
        return lambda rows: _numbers(self._call(rows)[name])

    def _name(self, name: str | None) -> str:
        if name is None:
            raise AttributeError(f"{self!r} gives neither labels nor numbers")
        return name

    def _call(self, rows: Any) -> dict[str, Any]:
        columns = self._columns
        if len(columns) == 1 and not isinstance(rows, Mapping):
            taken = {columns[0].name: _matrix(rows, columns[0], self._dtype(columns[0]))}
        else:
            taken = {each.name: _column(rows, each.name, self._dtype(each)) for each in columns}
        results: dict[str, Any] = self.model.call(as_dict=True, **taken)
        return results

    def _dtype(self, argument: Value) -> np.dtype[Any]:
        is_text = argument.name in self._texts.string_names
        return np.dtype(object) if is_text else argument.dtype.numpy


def _is_onnx(source: Any) -> bool:
    package = type(source).__module__.partition(".")[0]
    return isinstance(source, (str, bytes, os.PathLike)) or package in ("onnx", "onnx_ir")


def _written(estimator: Any, rows: Any) -> Any:
    """The ONNX model of an estimator; its labels are places in `classes_`."""
    if rows is None:
        raise InvalidArgument(
            f"a {type(estimator).__name__} does not say what it takes: pass rows, as to predict"
        )
    try:
        import skl2onnx
    except ImportError as error:
        raise NotFound(
            "skl2onnx, which writes estimators as ONNX, is not installed: pip install "
            f"'ingot[sklearn]', or pass an ONNX model ({error})"
        ) from None
    if not hasattr(rows, "columns"):
        rows = np.asarray(rows)
        rows = rows.astype(np.float32) if rows.dtype.kind in "fiub" else rows
    options = {"zipmap": False, "nocl": True} if hasattr(estimator, "classes_") else None
    return skl2onnx.to_onnx(estimator, rows[:1], options=options)


def _first(results: Sequence[Value], fits: Callable[[Value], bool]) -> str | None:
    return next((each.name for each in results if fits(each)), None)


def _width(argument: Value) -> int:
    last = argument.shape[-1] if argument.shape else 1
    return last if isinstance(last, int) else 1


def _numbers(found: Any) -> Array:
    """Numbers by row; of what ZipMap gives without the keys."""
    if isinstance(found, list):
        return np.asarray([list(each.values()) for each in found], np.float32)
    return np.asarray(found)


def _matrix(rows: Any, argument: Value, dtype: np.dtype[Any]) -> Array:
    """Rows as the one input takes them. InvalidArgument: they are no matrix of its width."""
    array = np.asarray(unmasked(rows), dtype)
    if array.ndim != 2:
        raise InvalidArgument(
            f"expected rows and columns, got an array of rank {array.ndim}: reshape one row with "
            ".reshape(1, -1), one column with .reshape(-1, 1)"
        )
    width = argument.shape[-1]
    if isinstance(width, int) and array.shape[1] != width:
        raise InvalidArgument(f"X has {array.shape[1]} features, but {width} are expected")
    return np.ascontiguousarray(array)


def _column(rows: Any, name: str, dtype: np.dtype[Any]) -> Array:
    """The column that an input takes, by its name. InvalidArgument: there is none."""
    try:
        column = rows[name]
    except (KeyError, IndexError, TypeError, ValueError):
        raise InvalidArgument(
            f"the model takes a column '{name}': pass a data frame or a dict with it"
        ) from None
    return np.asarray(unmasked(column), dtype).reshape(-1, 1)


def _flat(values: Any) -> Array:
    array = np.asarray(values)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
