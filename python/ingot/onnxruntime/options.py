"""Options of sessions and runs, and the providers: what onnxruntime calls its devices."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

from ingot.hal.device import devices
from ingot.onnxruntime.adapters import LoraAdapter
from ingot.onnxruntime.capi import onnxruntime_pybind11_state as state
from ingot.onnxruntime.types import NamedNumber

__all__ = [
    "CPU",
    "OPENCL",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "RunOptions",
    "SessionOptions",
    "choose_providers",
    "get_all_providers",
    "get_available_providers",
    "is_cpu",
    "logger",
]

logger = logging.getLogger("ingot.onnxruntime")

CPU, OPENCL = "CPUExecutionProvider", "OpenCLExecutionProvider"
_GPUS = (
    "CUDAExecutionProvider",
    "TensorrtExecutionProvider",
    "NvTensorRTRTXExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "DmlExecutionProvider",
    "WebGpuExecutionProvider",
)


class GraphOptimizationLevel(NamedNumber):
    """A program may ask for one; Ingot always does all that it can."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(NamedNumber):
    """A program may ask for one; kernels run one after another, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(NamedNumber):
    """A program may ask for one; the compiler chooses what needs least memory."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Options:
    """Fields with the names and types of onnxruntime's. AttributeError, TypeError: of others."""

    def __setattr__(self, name: str, value: Any) -> None:
        own = type(self)
        if not hasattr(own, name) and name not in own.__annotations__:
            raise AttributeError(f"{own.__name__!r} object has no attribute {name!r}")
        default = getattr(own, name, None)
        if isinstance(default, (int, str)) and not name.startswith("_"):
            value = _taken(f"{own.__name__}.{name}", value, default)
        super().__setattr__(name, value)


def _taken(what: str, value: Any, default: int | str) -> Any:
    """A value as a field has it whose default is given."""
    kind = type(default)
    if isinstance(value, kind) and kind is not int:
        return value
    if kind is bool and (value is None or hasattr(value, "__bool__")):
        return bool(value)
    if kind is int and hasattr(value, "__index__") and -(1 << 31) <= int(value) < 1 << 31:
        return int(value)
    if kind is str and isinstance(value, (bytes, os.PathLike)):
        return os.fsdecode(value)
    raise TypeError(f"{what} is {value!r:.60}, expected {kind.__name__}")


class SessionOptions(_Options):
    """Options of a session. `intra_op_num_threads` (0: all processors), overrides of free
    dimensions, initializers, `enable_profiling` and `optimized_model_filepath` have a meaning
    here; the others are kept, for programs to read."""

    intra_op_num_threads = 0
    inter_op_num_threads = 0
    graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode = ExecutionMode.ORT_SEQUENTIAL
    execution_order = ExecutionOrder.DEFAULT
    enable_profiling = False
    profile_file_prefix = "onnxruntime_profile_"
    optimized_model_filepath = ""
    enable_mem_pattern = True
    enable_mem_reuse = True
    enable_cpu_mem_arena = True
    use_deterministic_compute = False
    use_per_session_threads = True
    log_severity_level = -1
    log_verbosity_level = 0
    logid = ""
    free_dimensions: dict[str, int]
    initializers: dict[str, Any]
    files: dict[str, bytes]  # with external data, by their names
    providers: list[tuple[str, dict[str, str]]]
    policy: Any
    _entries: dict[str, str]

    def __init__(self) -> None:
        self.free_dimensions, self.initializers, self.files = {}, {}, {}
        self.providers, self.policy, self._entries = [], None, {}

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """The dim `name` is this number: kernels are made for it, and the inputs show it."""
        self.free_dimensions[name] = index(value)

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> None:
        raise state.NotImplemented(
            "dims are overridden by name here: use add_free_dimension_override_by_name"
        )

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Kept, and not looked at."""
        self._entries[key] = _taken(f"the entry {key!r}", value, "")

    def get_session_config_entry(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

    def register_custom_ops_library(self, path: str) -> None:
        raise state.NotImplemented(
            f"libraries of custom ops such as {path} are made for onnxruntime: give the ops "
            "lowerings with @ingot.lowering, or compile the model with ingot.compile(path, "
            "natives=...), which names functions of your own"
        )

    def add_initializer(self, name: str, value: Any) -> None:
        """An OrtValue in place of the model's initializer of this name."""
        if not hasattr(value, "data_ptr"):
            raise TypeError(f"the initializer {name!r} is {type(value).__name__}, not OrtValue")
        self.initializers[name] = value.numpy()

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """As `add_initializer`, of several, whose files need not be there."""
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """What is in files of these names, where the model has external data."""
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            self.files[name] = bytes(memoryview(buffer).cast("B")[:length])

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """A provider of sessions that are given none, behind those that are added already."""
        self.providers.append((name, dict(options)))

    def add_provider_for_devices(self, devices: Sequence[Any], options: Mapping[str, str]) -> None:
        """As `add_provider`, of devices that `get_ep_devices` names."""
        for each in devices:
            self.add_provider(each.ep_name, {**each.ep_options, **options})

    def set_provider_selection_policy(self, policy: Any) -> None:
        """The device of sessions that are given no provider: see `choose_devices`."""
        self.policy = policy

    set_provider_selection_policy_delegate = set_provider_selection_policy

    def has_providers(self) -> bool:
        return bool(self.providers) or self.policy is not None

    def set_load_cancellation_flag(self, value: bool) -> None:
        """A session that is being made is not cancelled."""


class RunOptions(_Options):
    """Options of a run. Setting `terminate` ends the runs that have them, from any thread."""

    log_severity_level = -1
    log_verbosity_level = 0
    logid = ""
    only_execute_path_to_fetches = False
    _terminate: bool
    _running: list[Any]
    _entries: dict[str, str]
    _adapters: list[LoraAdapter]

    def __init__(self) -> None:
        self._terminate, self._running, self._entries, self._adapters = False, [], {}, []

    @property
    def terminate(self) -> bool:
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminate = _taken("RunOptions.terminate", value, False)
        for model in list(self._running) if value else ():
            model.cancel()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Kept, and not looked at."""
        self._entries[key] = _taken(f"the entry {key!r}", value, "")

    def get_run_config_entry(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self._entries[key]

    def add_active_adapter(self, adapter: LoraAdapter) -> None:
        """The parameters of `adapter` are inputs of runs, in place of those that runs are given."""
        if not isinstance(adapter, LoraAdapter):
            raise TypeError(f"the adapter is {type(adapter).__name__}, not LoraAdapter")
        self._adapters.append(adapter)

    def active_parameters(self) -> dict[str, Any]:
        """Those of all active adapters, of one name the first."""
        found: dict[str, Any] = {}
        for each in reversed(self._adapters):
            found |= each.parameters
        return found

    def begin(self, model: Any) -> None:
        """A run on `model` begins. Fail: `terminate` is set."""
        self._running.append(model)
        if self._terminate:
            self._running.remove(model)
            raise state.Fail("Exiting due to terminate flag being set to true.")

    def end(self, model: Any) -> None:
        self._running.remove(model)


def _opencl_devices() -> list[Any]:
    return [each for each in devices() if not each.is_host]


def get_available_providers() -> list[str]:
    """The providers of this machine, the fastest first."""
    return [*([OPENCL] if _opencl_devices() else []), CPU]


def get_all_providers() -> list[str]:
    """The providers that there may be."""
    return [OPENCL, CPU]


def choose_providers(
    providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None
) -> tuple[str, dict[str, dict[str, str]]]:
    """The URI of the device, and the providers with their options, the CPU last.

    Providers of GPUs run on an OpenCL device, where there is one that is no CPU; the log tells.
    Unknown ones are warned of and left out, as onnxruntime does.
    """
    if providers is not None and isinstance(providers, str):
        providers = [providers]
    if options is not None and not isinstance(options, Sequence):
        raise ValueError("'provider_options' should be a sequence.")
    if options is not None and len(options) != len(providers or ()):
        raise ValueError("'providers' and 'provider_options' should be the same length if both "
                         "are given.")  # fmt: skip
    chosen: dict[str, dict[str, str]] = {}
    uri = "cpu"
    for place, each in enumerate(providers or ()):
        pair = each if isinstance(each, tuple) else (each, options[place] if options else {})
        name, own = pair if len(pair) == 2 else (None, None)
        if not isinstance(name, str) or not isinstance(own, Mapping):
            raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
        found = _device_of(name, own)
        if found is None:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names."
                f"Available providers: '{', '.join(get_available_providers())}'",
                UserWarning,
                stacklevel=3,
            )
            continue
        if not chosen:
            uri = found
        chosen[name] = {str(key): str(value) for key, value in own.items()}
    chosen.setdefault(CPU, {})
    return uri, chosen


def _device_of(name: str, options: Mapping[str, Any]) -> str | None:
    """The URI of the device of a provider; None: there is none."""
    if name == CPU:
        return "cpu"
    if name not in (OPENCL, *_GPUS):
        return None
    found = [each for each in _opencl_devices() if name == OPENCL or not is_cpu(each)]
    number = int(options.get("device_id", 0))
    if not 0 <= number < len(found):
        return None
    if name != OPENCL:
        logger.warning("%s: runs on %s (%s)", name, found[number].uri, found[number].description)
    return str(found[number].uri)


def is_cpu(device: Any) -> bool:
    """Whether an OpenCL device is this machine's CPU, which runs faster without."""
    return "Portable Computing Language" in device.description
