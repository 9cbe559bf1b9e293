"""InferenceSession: an ONNX model, compiled on first use, with onnxruntime's calls and errors."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingot.hal.array import Array
from ingot.hal.errors import (
    Cancelled,
    CompileError,
    Error,
    NotFound,
    OutOfRange,
    Unsupported,
)
from ingot.hal.errors import InvalidArgument as WrongArgument
from ingot.hal.masks import unmasked
from ingot.onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    NoSuchFile,
    RuntimeException,
)
from ingot.onnxruntime.compiled import Loaded, loaded_model
from ingot.onnxruntime.initializers import with_arguments, with_initializers, write_model
from ingot.onnxruntime.options import RunOptions, SessionOptions, choose_providers, logger
from ingot.onnxruntime.places import OrtEpDevice, OrtMemoryInfo, choose_devices, get_ep_devices
from ingot.onnxruntime.profile import write_profile
from ingot.onnxruntime.sparse import SparseTensor
from ingot.onnxruntime.types import ModelMetadata, NodeArg, dtype_of_text, onnx_code, type_text
from ingot.onnxruntime.values import IOBinding, OrtValue
from ingot.runtime.signature import Signature, Value
from ingot.runtime.texts import Texts, has_texts
from ingot.runtime.trace import Trace

__all__ = ["InferenceSession"]


class InferenceSession:
    """A model that is ready to run.

    `path_or_bytes`: an ONNX file or its bytes. It is compiled once, and found in the cache later.
    `providers`: names, or pairs of a name and a dict of options: see `choose_providers`.
    NoSuchFile, InvalidProtobuf, InvalidArgument: there is no model, or it is damaged. Fail: it
    cannot be compiled; the message lists why.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **_: Any,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options is {type(sess_options).__name__}, not SessionOptions")
        if not isinstance(path_or_bytes, (str, bytes, os.PathLike)):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        self._options = sess_options or SessionOptions()
        self._given = path_or_bytes
        self._model_path = None if isinstance(path_or_bytes, bytes) else os.fspath(path_or_bytes)
        if providers is None:
            providers = self._options.providers or choose_devices(self._options.policy)
        uri, self._providers = choose_providers(providers, provider_options)
        source = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(path_or_bytes)
        source = with_initializers(source, self._options.initializers, self._options.files)
        threads = self._options.intra_op_num_threads
        self._loaded = _loaded(
            source,
            uri,
            threads if threads > 0 and uri == "cpu" else None,
            self._options.free_dimensions,
        )
        self._model = self._loaded.model
        self._main = self._model.functions["main"]
        self._arguments = self._model.signature.arguments
        self._has_texts = has_texts(self._model.signature)
        self._results = Texts(self._model.signature).result_names
        self._made = _made(self._model.signature) if uri == "cpu" else None
        self._expected = {each.name: _Expected(each) for each in self._loaded.inputs}
        self._needed = {each.name for each in self._loaded.inputs
                        if not each.type.startswith("optional")}  # fmt: skip
        self._outputs = [each.name for each in self._loaded.outputs]
        self._overridable = {each.name for each in self._loaded.overridable}
        self._source = source if self._overridable else b""
        self._overridden: dict[frozenset[str], InferenceSession] = {}
        if self._options.optimized_model_filepath:
            path = self._options.optimized_model_filepath
            logger.warning("%s is the model as it was given: optimised is its module", path)
            write_model(source, Path(path))
        self._trace: Trace | None = None
        self._profiled = time.monotonic_ns() if self._options.enable_profiling else 0
        if self._options.enable_profiling:
            self._trace = self._model.trace().__enter__()

    # ---- what it is

    def get_inputs(self) -> list[NodeArg]:
        return list(self._loaded.inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._loaded.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that may be left out. Feeding one compiles the model with it as an argument."""
        return list(self._loaded.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        return self._loaded.metadata

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_providers(self) -> list[str]:
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: dict(options) for name, options in self._providers.items()}

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Be a session on other providers."""
        vars(self).update(
            vars(InferenceSession(self._given, self._options, providers, provider_options))
        )

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        return [OrtMemoryInfo("Cpu")] * len(self._loaded.inputs)

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        return [OrtMemoryInfo("Cpu")] * len(self._loaded.outputs)

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """Of each input the device that takes it."""
        first = next(iter(self._providers))
        found = [each for each in get_ep_devices() if each.ep_name == first]
        return found[:1] * len(self._loaded.inputs)

    def get_tuning_results(self) -> list[Any]:
        """None: kernels are chosen when the model is compiled."""
        return []

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        """Nothing depends on them."""

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Kept by nobody: devices have no such options."""

    def disable_fallback(self) -> None:
        """There is none: a session that was made runs where it was made for."""

    def enable_fallback(self) -> None:
        """There is none: a session that was made runs where it was made for."""

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, by the clock of `time.monotonic_ns`; 0: it did not."""
        return self._profiled

    def end_profiling(self) -> str:
        """The name of a file with what all runs did, which `enable_profiling` asks for: slices of
        time as onnxruntime writes them, for programs and for Perfetto. "" if nothing was asked
        for, which the log tells."""
        if self._trace is None:
            logger.error("profiling is off: set SessionOptions.enable_profiling")
            return ""
        trace, self._trace = self._trace, None
        trace.__exit__(None, None, None)
        name = f"{self._options.profile_file_prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        write_profile(trace, Path(name), self._profiled)
        return name

    # ---- runs

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The outputs of these names, all of them for None, as NumPy arrays.

        ValueError: an input is missing. InvalidArgument: a name, dtype, rank or dim is wrong.
        RuntimeException: the call failed. Fail: it was terminated.
        """
        names = self._output_names(output_names)
        if not self._needed <= input_feed.keys():
            missing = [each.name for each in self._loaded.inputs
                       if each.name in self._needed - input_feed.keys()]  # fmt: skip
            raise ValueError(
                f"Required inputs ({missing}) are missing from input feed ({list(input_feed)})."
            )
        feed = _with_adapters(input_feed, run_options)
        return [_shown(each) for each in self._run(names, feed, run_options, {})]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, with values that stay on the device."""
        given = _with_adapters(input_dict_ort_values, run_options)
        feed = {name: each._value for name, each in given.items()}
        names = self._output_names(output_names)
        return [OrtValue(each) for each in self._run(names, feed, run_options, {})]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in another thread, which then calls callback(results, user_data, error), where the
        error is "" or what went wrong."""
        if not callable(callback):
            raise TypeError(f"callback is {type(callback).__name__}, expected a function")

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as problem:
                results, error = [], str(problem)
            callback(results, user_data, error)

        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs to memory, for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on what is bound, without active adapters. Raises as `run`."""
        if run_options is not None and run_options.active_parameters():
            logger.warning("adapters have no effect on runs of a binding: bind their parameters")
        iobinding.run(run_options)

    def _output_names(self, names: Sequence[str] | None) -> list[str]:
        if isinstance(names, str):
            raise TypeError(f"output_names is the text {names!r}, expected a list of names")
        return list(names) if names else self._outputs

    def _run(
        self,
        names: Sequence[str],
        feed: Mapping[str, Any],
        options: RunOptions | None,
        memory: Mapping[str, Any],
    ) -> list[Any]:
        """The outputs as arrays of the device, or the memory that they were written to."""
        if self._overridable and (given := self._overridable.intersection(feed)):
            return self._with_arguments(frozenset(given))._run(names, feed, options, memory)
        if names is not self._outputs:
            for name in names:
                if name not in self._results:
                    raise InvalidArgument(f"Invalid output name:{name}")
        arguments: dict[str, Any] = {}
        for name, value in feed.items():
            if name not in self._expected:
                raise InvalidArgument(f"Invalid input name: {name}")
            if value is None and name in self._needed:
                raise InvalidArgument(f"Missing Input: {name}")
            arguments[name] = self._expected[name].taken(value)
        if options is not None:
            if not isinstance(options, RunOptions):
                raise TypeError(f"run_options is {type(options).__name__}, not RunOptions")
            options.begin(self._model)
        try:
            results = self._call(arguments, memory)
        except Cancelled as error:
            raise Fail(f"Exiting due to terminate flag being set to true: {error}") from None
        except (WrongArgument, OutOfRange) as error:
            raise InvalidArgument(str(error)) from None
        except Error as error:
            raise RuntimeException(str(error)) from None
        finally:
            if options is not None:
                options.end(self._model)
        return [results[name] for name in names]

    def _with_arguments(self, names: frozenset[str]) -> InferenceSession:
        """The session of the model that takes these initializers."""
        if names not in self._overridden:
            options = copy(self._options)
            options.initializers, options.optimized_model_filepath = {}, ""
            options.files = {}
            options.enable_profiling = False
            self._overridden[names] = InferenceSession(
                with_arguments(self._source, names), options, list(self._providers.items())
            )
        return self._overridden[names]

    def _call(self, given: Mapping[str, Any], memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The results by name. Strings have no memory that is given."""
        if self._has_texts:
            optionals = dict.fromkeys(self._expected.keys() - self._needed)
            texts: dict[str, Any] = self._main.call(as_dict=True, **(optionals | {**given}))
            return texts
        written: list[Any] | None = None
        if memory:
            written = [memory.get(name) for name in self._results]
        elif self._made is not None:
            written = [each.new(given) for each in self._made]
        found = self._main(*[_argument(each, given) for each in self._arguments], out=written)
        if len(self._results) == 1:
            return {self._results[0]: found}
        return dict(zip(self._results, found, strict=True))


def _with_adapters(feed: Mapping[str, Any], options: RunOptions | None) -> Mapping[str, Any]:
    """The inputs and the parameters of active adapters."""
    added = options.active_parameters() if isinstance(options, RunOptions) else {}
    return {**feed, **added} if added else feed


@dataclass(frozen=True)
class _Made:
    """A result whose memory is made before the call: dims are numbers, or those of inputs."""

    dtype: np.dtype[Any]
    dims: Sequence[int | tuple[str, int]]

    def new(self, given: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        shape = [dim if isinstance(dim, int) else given[dim[0]].shape[dim[1]] for dim in self.dims]
        return np.empty(shape, self.dtype)


def _made(signature: Signature) -> list[_Made] | None:
    """All results in this way, which takes less time than asking for them; None if one has other
    dims, or is no array of NumPy's own."""
    places: dict[int | str, int | tuple[str, int]] = {}
    for value in signature.arguments:
        if value.kind == "tensor":
            places |= {dim: (value.name, axis) for axis, dim in enumerate(value.shape)}
    places |= {dim: dim for each in signature.results for dim in each.shape if isinstance(dim, int)}
    if not all(each.kind == "tensor" and each.dtype.is_numpy and places.keys() >= {*each.shape}
               for each in signature.results):  # fmt: skip
        return None
    return [_Made(each.dtype.numpy, [places[dim] for dim in each.shape])
            for each in signature.results]  # fmt: skip


def _argument(expected: Value, given: Mapping[str, Any]) -> Any:
    """What the module takes; None for an optional that is left out."""
    value = given.get(expected.name)
    if value is None and expected.name not in given and not expected.kind.startswith("optional"):
        raise InvalidArgument(f"Missing Input: {expected.name}")
    return value


def _loaded(source: Path | bytes, uri: str, threads: int | None, dims: Mapping[str, int]) -> Loaded:
    """As `loaded_model`, with onnxruntime's exceptions."""
    try:
        if not isinstance(source, bytes) and not source.is_file():
            raise NotFound(f"Load model {source} failed. File doesn't exist")
        if source == b"" or (isinstance(source, Path) and not source.stat().st_size):
            raise InvalidArgument("No graph was found in the protobuf.")
        return loaded_model(source, uri, threads, dims)
    except NotFound as error:
        raise NoSuchFile(f"Load model from {source!s:.300} failed:{error}") from None
    except (CompileError, Unsupported) as error:
        raise Fail(str(error)) from None
    except Exception as error:
        if type(error).__name__ == "DecodeError":
            raise InvalidProtobuf(
                f"Failed to load model because protobuf parsing failed: {error}"
            ) from None
        raise


class _Expected:
    """What an input takes, and onnxruntime's words for what it does not."""

    def __init__(self, node: NodeArg) -> None:
        self._node = node
        self._is_tensor = node.type.startswith("tensor(")
        self._dtype = dtype_of_text(node.type) if self._is_tensor else None
        self._rank = len(node.shape)
        self._dims = [(axis, dim) for axis, dim in enumerate(node.shape) if isinstance(dim, int)]

    def taken(self, value: Any) -> Any:
        """The input as the model takes it: of a tensor an array, also of a list of numbers.
        InvalidArgument: its dtype, rank or a dim is wrong."""
        if type(value) is np.ndarray and value.dtype is self._dtype:
            self._check_shape(value.shape)
            return value
        if isinstance(value, OrtValue):
            return self.taken(value._value)
        if isinstance(value, SparseTensor):
            return self.taken(np.asarray(value))
        if not self._is_tensor or value is None:
            return value
        if isinstance(value, (list, tuple)):
            value = np.asarray(unmasked(value), self._dtype)
        if not isinstance(value, (np.ndarray, np.generic, Array)):
            raise RuntimeError(f"Unable to handle object of type {type(value)}")
        self._check(value.dtype if isinstance(value.dtype, np.dtype) else value.dtype.numpy,
                    value.shape)  # fmt: skip
        return value

    def _check(self, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
        node = self._node
        if dtype != self._dtype and (found := _type_text(dtype)) != node.type:
            raise InvalidArgument(
                f"Unexpected input data type. Actual: ({found}) , expected: ({node.type}) for "
                f"input: {node.name}"
            )
        self._check_shape(shape)

    def _check_shape(self, shape: Sequence[int]) -> None:
        if len(shape) == self._rank:
            for axis, dim in self._dims:
                if shape[axis] != dim:
                    break
            else:
                return
        node, advice = self._node, "Please fix either the inputs/outputs or the model."
        if len(shape) != self._rank:
            raise InvalidArgument(
                f"Invalid rank for input: {node.name} Got: {len(shape)} Expected: "
                f"{len(node.shape)} {advice}"
            )
        wrong = [f" index: {axis} Got: {shape[axis]} Expected: {dim}"
                 for axis, dim in self._dims if shape[axis] != dim]  # fmt: skip
        if wrong:
            lines = "\n".join(wrong)
            raise InvalidArgument(
                f"Got invalid dimensions for input: {node.name} for the following indices\n"
                f"{lines}\n {advice}"
            )


def _type_text(dtype: np.dtype[Any]) -> str:
    try:
        return type_text(onnx_code(dtype))
    except KeyError:
        return f"tensor({dtype})"


def _shown(value: Any) -> Any:
    """A result as NumPy has it."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, Array):
        return value.numpy()
    return [_shown(each) for each in value] if isinstance(value, list) else value
