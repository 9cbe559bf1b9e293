"""Initializers of an ONNX model: constants of the program, or parameters that are given later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.onnx.external import Files
from ingot.compiler.frontends.onnx.fingerprint import fingerprint
from ingot.compiler.frontends.onnx.notes import Notes
from ingot.compiler.frontends.onnx.scope import UNKNOWN, Result
from ingot.compiler.frontends.onnx.tensors import (
    dtype_of,
    element_type_name,
    is_external,
    literal_of,
    texts_of,
)
from ingot.compiler.frontends.strings import constant_strings
from ingot.compiler.frontends.survey import Survey
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Literal
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError

__all__ = ["ImportOptions", "Initializers"]


@dataclass(frozen=True)
class ImportOptions:
    """How initializers become values: see `import_onnx`."""

    external_parameters: bool
    parameter_names: Mapping[str, str]
    outputs: Sequence[str] | None = None
    survey: Survey | None = None


class Initializers:
    """Makes values of initializers; `weights` are fingerprints of parameters by key."""

    def __init__(self, files: Files, options: ImportOptions, notes: Notes) -> None:
        self._files = files
        self._options = options
        self._notes = notes
        self.weights: dict[str, str] = {}
        self._literals: dict[int, tuple[onnx.TensorProto, Literal]] = {}

    def make(self, tensor: onnx.TensorProto, builder: Builder) -> Result:
        """The value of an initializer; unknown, and a note, if there can be none."""
        element = dtype_of(tensor.data_type)
        if tensor.data_type == onnx.TensorProto.STRING:
            try:
                return constant_strings(Emitter(builder), texts_of(tensor), tuple(tensor.dims))
            except CompileError as error:
                self._notes.note(str(error))
                return UNKNOWN
        if element is None:
            kind = element_type_name(tensor.data_type)
            self._notes.note(
                f"initializer '{tensor.name}' has element type {kind}, expected a numeric one",
                ("initializer", kind),
                tensor.name,
            )
            return UNKNOWN
        if self._options.external_parameters and (
            is_external(tensor) or (element.is_float and tensor.dims)
        ):
            key = self._options.parameter_names.get(tensor.name, tensor.name)
            self._note_weights(key, tensor)
            result = builder.value(
                "parameter", scope="", key=key, dtype=element, shape=tuple(tensor.dims)
            )
        else:
            try:
                result = builder.constant(self._literal(tensor))
            except CompileError as error:
                self._notes.note_weight(tensor, error)
                return UNKNOWN
        result.name = tensor.name
        return result

    def _literal(self, tensor: onnx.TensorProto) -> Literal:
        """The elements, once for all lowerings of a body that reads them."""
        if id(tensor) not in self._literals:
            self._literals[id(tensor)] = tensor, literal_of(tensor, self._files)
        return self._literals[id(tensor)][1]

    def _note_weights(self, key: str, tensor: onnx.TensorProto) -> None:
        """Remember which weights the external parameter `key` is, which must be one tensor."""
        try:
            found = fingerprint(tensor, self._files)
        except CompileError as error:
            self._notes.note_weight(tensor, error)
            return
        if self.weights.setdefault(key, found) != found:
            self._notes.note(
                f"initializer '{tensor.name}' has the key '{key}' of other weights: give it "
                "another one with parameter_names="
            )
