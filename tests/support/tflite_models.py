"""Writes TFLite models for tests, and runs them in LiteRT and in Ingot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ai_edge_litert.interpreter as litert
import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from ingot.compiler.read_source import read_source
from tests.support.node_tests import interpreted

__all__ = ["Model", "Quant", "check", "one_op", "run_interpreted", "run_litert"]

Array = np.ndarray[Any, Any]
Quant = tuple[Any, Any] | tuple[Any, Any, int]
"""Scales, zero points, and the axis that they are along."""

_TYPES = {
    "float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "str": 5, "bool": 6, "int16": 7,
    "complex64": 8, "int8": 9, "float64": 10, "resource": 13, "uint64": 12, "uint32": 15,
    "uint16": 16, "int4": 17,
}  # fmt: skip

_VERSIONS = {"BROADCAST_TO": 2}  # ops whose first version LiteRT lacks


def _type_name(array: Array) -> str:
    return "str" if array.dtype.kind == "U" else array.dtype.name


class Graph:
    """A subgraph; tensors are known by their places."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self.graph = schema.SubGraphT()
        self.graph.name = name
        self.graph.tensors, self.graph.operators = [], []

    def tensor(
        self,
        type: str,
        shape: Sequence[int],
        quant: Quant | None = None,
        *,
        data: Any = None,
        name: str = "",
        variable: bool = False,
    ) -> int:
        """A tensor; a dim of -1 is open. A constant has data."""
        tensor = schema.TensorT()
        tensor.name = name or f"t{len(self.graph.tensors)}"
        tensor.type, tensor.isVariable = _TYPES[type], variable
        tensor.shape = [1 if dim == -1 else dim for dim in shape]
        if -1 in shape:
            tensor.shapeSignature = list(shape)
        tensor.buffer = 0 if data is None else self._model.buffer(np.asarray(data), type)
        if quant is not None:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = np.atleast_1d(quant[0]).tolist()
            tensor.quantization.zeroPoint = np.atleast_1d(quant[1]).tolist()
            tensor.quantization.quantizedDimension = quant[2] if len(quant) > 2 else 0
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, array: Any, quant: Quant | None = None, type: str = "") -> int:
        array = np.asarray(array)
        return self.tensor(type or _type_name(array), array.shape, quant, data=array)

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        kind: str = "",
        **options: Any,
    ) -> None:
        """`kind` is the table of its options, such as Conv2DOptions; those of a name that is no
        builtin op are a map."""
        operator = schema.OperatorT()
        operator.opcodeIndex = self._model.code(name)
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if not hasattr(schema.BuiltinOperator, name):
            operator.customOptions = np.frombuffer(flexbuffers.Dumps(options), np.uint8)
        elif kind:
            made = getattr(schema, f"{kind}T")()
            for key, value in options.items():
                assert hasattr(made, key), key
                setattr(made, key, value)
            if hasattr(schema.BuiltinOptions, kind):
                operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
                operator.builtinOptions = made
            else:
                operator.builtinOptions2Type = getattr(schema.BuiltinOptions2, kind)
                operator.builtinOptions2 = made
        self.graph.operators.append(operator)

    def ends(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)


class Model:
    """A model that is being written; `main` is its first subgraph."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version, self.model.description = 3, "tests"
        self.model.operatorCodes, self.model.subgraphs = [], []
        self.model.buffers = [schema.BufferT()]
        self._codes: dict[str, int] = {}
        self.main = self.graph("main")

    def graph(self, name: str) -> Graph:
        graph = Graph(self, name)
        self.model.subgraphs.append(graph.graph)
        return graph

    def buffer(self, array: Array, type: str) -> int:
        buffer = schema.BufferT()
        data = array.reshape(-1)
        if type == "str":
            texts = [each.encode() for each in data.tolist()]
            ends = np.cumsum([4 * (len(texts) + 2), *map(len, texts)])
            head = np.array([len(texts), *ends], "<i4").tobytes()
            data = np.frombuffer(head + b"".join(texts), np.uint8)
        elif type == "int4":
            codes = np.append(data, np.zeros(data.size % 2)).astype(np.uint8) & 15
            data = (codes[0::2] | codes[1::2] << 4).astype(np.uint8)
        else:
            data = data.astype(np.dtype(type))
        buffer.data = np.frombuffer(data.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        return len(self.model.buffers) - 1

    def code(self, name: str) -> int:
        if name not in self._codes:
            code = schema.OperatorCodeT()
            code.builtinCode = getattr(schema.BuiltinOperator, name, schema.BuiltinOperator.CUSTOM)
            if code.builtinCode == schema.BuiltinOperator.CUSTOM:
                code.customCode = name
            code.deprecatedBuiltinCode, code.version = (
                min(code.builtinCode, 127),
                _VERSIONS.get(name, 1),
            )
            self._codes[name] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(code)
        return self._codes[name]

    def signature(
        self, name: str, place: int, inputs: dict[str, int], outputs: dict[str, int]
    ) -> None:
        made = schema.SignatureDefT()
        made.signatureKey, made.subgraphIndex = name, place
        for target, given in (("inputs", inputs), ("outputs", outputs)):
            maps = []
            for key, tensor in given.items():
                entry = schema.TensorMapT()
                entry.name, entry.tensorIndex = key, tensor
                maps.append(entry)
            setattr(made, target, maps)
        self.model.signatureDefs = [*(self.model.signatureDefs or []), made]

    def __bytes__(self) -> bytes:
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def one_op(
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    kind: str = "",
    constants: Sequence[int] = (),
    **options: Any,
) -> tuple[bytes, list[Array]]:
    """A model of one op, and its arguments. Inputs are arrays, or pairs of an array and its
    quantisation, None for one that is left out; those at the places `constants` are constants.
    Outputs are (type, shape) or (type, shape, quantisation)."""
    model, arguments, places, given = Model(), [], [], []
    graph = model.main
    for place, each in enumerate(inputs):
        array, quant = each if isinstance(each, tuple) else (each, None)
        if array is None:
            places.append(-1)
            continue
        array = np.asarray(array)
        if place in constants:
            places.append(graph.constant(array, quant))
            continue
        places.append(graph.tensor(_type_name(array), array.shape, quant))
        given.append(places[-1])
        arguments.append(array)
    results = [graph.tensor(*each) for each in outputs]
    graph.op(name, places, results, kind, **options)
    graph.ends(given, results)
    return bytes(model), arguments


def run_litert(model: bytes, *calls: Sequence[Array]) -> list[list[Array]]:
    """The results of each call, by LiteRT's own kernels."""
    made = litert.Interpreter(
        model_content=model,
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    inputs = [each["index"] for each in made.get_input_details()]
    outputs = [each["index"] for each in made.get_output_details()]
    for index, array in zip(inputs, calls[0], strict=True):
        made.resize_tensor_input(index, array.shape)
    made.allocate_tensors()
    results = []
    for call in calls:
        for index, array in zip(inputs, call, strict=True):
            made.set_tensor(index, array)
        made.invoke()
        results.append([np.copy(made.get_tensor(index)) for index in outputs])
    return results


def run_interpreted(model: bytes, *calls: Sequence[Array]) -> list[list[Array]]:
    """The results of each call, by the references of the graph that Ingot reads."""
    run = interpreted(read_source(model), {})
    return [list(run(list(call))) for call in calls]


def check(model: bytes, *calls: Sequence[Array], codes: int = 1, tolerance: float = 1e-5) -> None:
    """Results of what Ingot reads are those of LiteRT: integers within so many codes."""
    wanted, found = run_litert(model, *calls), run_interpreted(model, *calls)
    for expected, got in zip(wanted, found, strict=True):
        assert len(expected) == len(got)
        for a, b in zip(expected, got, strict=True):
            if a.dtype.kind in "OS":
                a = np.array([each.decode() for each in a.flat], object).reshape(a.shape)
                assert a.tolist() == b.tolist()
                continue
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            if a.dtype.kind in "iu":
                np.testing.assert_allclose(b.astype(np.int64), a.astype(np.int64), atol=codes)
            else:
                np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)
