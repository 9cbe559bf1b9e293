"""The node tests of the ONNX standard, as cases of tensors, and how they are read and judged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import onnx

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import ListType, Module, PassedType
from ingot.hal.errors import CompileError
from ingot.runtime.signature import Signature, Value
from ingot.runtime.texts import Texts, has_texts

__all__ = [
    "Import",
    "Run",
    "check",
    "interpreted",
    "node_tests",
    "one_per_op",
    "read",
    "read_dynamic",
]

Run = Callable[[list[Any]], Sequence[Any]]
Import = Callable[[Any], Module]


def node_tests() -> list[Any]:
    """All of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return [_Case(case) for case in collect_testcases(None)]


class _Case:
    """A case with what its model takes and gives as callers pass it: arrays, tuples of arrays for
    sequences, None for what an optional lacks."""

    def __init__(self, case: Any) -> None:
        self.name, self.model = case.name, case.model
        graph = case.model.graph
        self.data_sets = [
            (list(map(_passed, graph.input, given)), list(map(_passed, graph.output, wanted)))
            for given, wanted in case.data_sets
        ]


def _passed(value: Any, given: Any) -> Any:
    return _of_type(value.type, given)


def _of_type(type: Any, given: Any) -> Any:
    kind = type.WhichOneof("value")
    if kind == "optional_type":
        if given is None or (isinstance(given, list) and any(x is None for x in given)):
            return None
        type = type.optional_type.elem_type
        if type.WhichOneof("value") == "tensor_type" and isinstance(given, list):
            (given,) = given
        return _of_type(type, given)
    if kind == "sequence_type":
        return tuple(np.asarray(_array(each)) for each in given)
    return _array(given)


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def read(case: Any) -> Module:
    """The module; no input is constant."""
    return import_onnx(case.model)


def one_per_op(cases: list[Any]) -> Iterator[Any]:
    """The first case of each op that can be imported."""
    seen: set[str] = set()
    for case in cases:
        op = case.model.graph.node[-1].op_type
        if op not in seen:
            with suppress(CompileError):
                read(case)
                seen.add(op)
                yield case


def read_dynamic(case: Any) -> Module:
    """The module with a symbol for every dim, but how many sizes an input lists; no input is
    constant."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for place, value in enumerate(model.graph.input):
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = value.type.tensor_type
        if len(tensor.shape.dim) == 1 and tensor.shape.dim[0].dim_value < 12 and place > 0:
            continue
        for axis, dim in enumerate(tensor.shape.dim):
            dim.dim_param = f"d{place}_{axis}"
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return import_onnx(model)


def interpreted(module: Module, state: dict[str, Any] | None = None) -> Run:
    """Its function `main`, which takes and gives strings as a loaded module does."""
    main = module.functions["main"]
    ends = [
        (main.argument_names, [each.type for each in main.arguments]),
        (main.result_names, main.result_types),
    ]
    arguments, results = (
        tuple(
            Value(
                name,
                type.dtype,
                _dims(type),
                main.docs.get(name, ""),
                kind=type.kind if isinstance(type, PassedType) else "tensor",
            )
            for name, type in zip(names, types, strict=True)
        )
        for names, types in ends
    )
    signature = Signature("main", arguments, results)
    if not has_texts(signature):
        return partial(interpret, module, "main", state=state)
    texts = Texts(signature)

    def run(given: list[Any]) -> Sequence[Any]:
        values, named = texts.bind(tuple(given), {})
        values = values or tuple(named[each.name] for each in arguments)
        made = texts.unpack(interpret(module, "main", values, state=state))
        return made if isinstance(made, tuple) else [made]

    return run


def _dims(type: Any) -> tuple[int | str, ...]:
    """As a signature has them."""
    type = type.list if isinstance(type, PassedType) else type
    dims = ("*",) if isinstance(type, ListType) and type.any_rank else type.shape
    return tuple(dim if isinstance(dim, int) else str(dim or "?") for dim in dims)


def _comparable(array: Any) -> Any:
    """Floats as f64, so that ml_dtypes arrays compare."""
    return array.astype(np.float64) if array.dtype.kind in "fV" else array


def _is_drawn(case: Any) -> bool:
    """Whether the results are random: the standard says their types, not their numbers."""
    dropout = case.name.startswith("test_training_dropout") and "zero_ratio" not in case.name
    return dropout or case.name.startswith("test_bernoulli")


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    """The arrays, with the length in front of each sequence, and what says that there is none."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from (np.asarray(len(value)), *map(np.asarray, value))
        else:
            yield np.asarray("nothing") if value is None else np.asarray(value)


def check(case: Any, run: Run) -> None:
    """Compare what `run` gives with what the standard says."""
    for inputs, outputs in case.data_sets:
        for result, expected in zip(_flat(run(inputs)), _flat(outputs), strict=False):
            assert result.dtype == expected.dtype
            assert result.shape == expected.shape
            if _is_drawn(case):
                continue
            if expected.dtype == object:
                np.testing.assert_array_equal(result, expected)
                continue
            relative = 1e-3 if expected.dtype.itemsize > 2 else 2e-2
            np.testing.assert_allclose(
                _comparable(result), _comparable(expected), rtol=relative, atol=1e-6
            )
