"""ModelCompiler: a model written anew, and compiled for the sessions of what was written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from copy import copy
from enum import IntFlag
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ingot.onnxruntime.capi import onnxruntime_pybind11_state as state
from ingot.onnxruntime.initializers import with_initializers, write_model
from ingot.onnxruntime.options import GraphOptimizationLevel, SessionOptions
from ingot.onnxruntime.session import InferenceSession

__all__ = ["ModelCompiler", "OrtCompileApiFlags"]

_CHUNK = 1 << 16  # bytes that `compile_to_stream` gives at once, as onnxruntime does


class OrtCompileApiFlags(IntFlag):
    """When a ModelCompiler is to fail. Ingot compiles every node, or fails."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class ModelCompiler:
    """Writes a model as it was given, in one file or with its data in another, and puts its module
    into the cache, where sessions of what was written find it.

    The module is in the cache whether or not it is to be embedded, and optimised at every level.
    InvalidArgument, InvalidProtobuf: there is no model, or it is damaged. Fail: it cannot be
    compiled, and nothing was written.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | bytes | os.PathLike[str],
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Callable[..., Any] | None = None,
    ) -> None:
        given = input_model_path_or_bytes
        if not isinstance(given, (str, bytes, os.PathLike)):
            raise TypeError(f"Unable to load from type '{type(given)}'")
        if not given:
            raise ValueError("Input model path or bytes array is empty")
        if get_initializer_location_func is not None:
            raise state.NotImplemented(
                "get_initializer_location_func: name one file for all initializers with "
                "external_initializers_file_path"
            )
        self._source = given if isinstance(given, bytes) else Path(given)
        if isinstance(self._source, Path) and not self._source.is_file():
            raise state.InvalidArgument(f'Input model path does not exist: "{self._source}"')
        self._external = os.fspath(external_initializers_file_path or "")
        if os.path.basename(self._external) != self._external:
            raise state.InvalidArgument(
                f"external_initializers_file_path is '{self._external}', expected the name of a "
                "file, which is written beside the model"
            )
        self._threshold, self._flags = external_initializers_size_threshold, flags
        self._options = sess_options

    def compile_to_file(self, output_model_path: str | os.PathLike[str]) -> None:
        """Write the model to a file, and its data beside it."""
        path = Path(output_model_path)
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and path.exists():
            raise state.Fail(f'Failed to generate a model since the file "{path}" exists already.')
        if not path.parent.is_dir():
            raise state.InvalidArgument(f'"{path.parent}", where the model is to be, is no folder')
        if self._external == path.name:
            raise state.InvalidArgument(f'"{path}" is to hold both the model and its initializers')
        with TemporaryDirectory(dir=path.parent) as folder:
            self._compile(Path(folder) / path.name)
            for name in os.listdir(folder):
                os.replace(os.path.join(folder, name), path.parent / name)

    def compile_to_bytes(self) -> bytes:
        """The model as bytes; data that is to be outside is written to the working folder."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{self._external}.onnx"
            self._compile(path)
            for name in {*os.listdir(folder)} - {path.name}:
                if name != self._external:
                    raise state.Fail(
                        "it is too long for bytes: set external_initializers_file_path"
                    )
                shutil.move(os.path.join(folder, name), name)
            return path.read_bytes()

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """As `compile_to_bytes`, in parts, one behind the other."""
        data = self.compile_to_bytes()
        for start in range(0, len(data), _CHUNK):
            write_function(data[start : start + _CHUNK])

    def _compile(self, path: Path) -> None:
        """Write the model to a file of a folder that has no others, and compile it there."""
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from onnx.checker import ValidationError

        options = copy(self._options)
        try:
            source = with_initializers(self._source, options.initializers, options.files)
            write_model(source, path, self._external, self._threshold)
        except DecodeError as error:
            message = f"Failed to load model because protobuf parsing failed: {error}"
            raise state.InvalidProtobuf(message) from None
        except (OSError, ValueError, ValidationError) as error:
            raise state.Fail(str(error)) from error
        options.initializers, options.files = {}, {}
        options.optimized_model_filepath, options.enable_profiling = "", False
        InferenceSession(path, options)
