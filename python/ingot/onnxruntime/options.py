"""Options of sessions and runs, and the providers: what onnxruntime calls its devices."""

from __future__ import annotations

import enum
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ingot.hal.device import devices
from ingot.onnxruntime.capi import onnxruntime_pybind11_state as state

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


class GraphOptimizationLevel(enum.IntEnum):
    """A program may ask for one; Ingot always does all that it can."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """A program may ask for one; kernels run one after another, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """A program may ask for one; the compiler chooses what needs least memory."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class SessionOptions:
    """Options of a session. `intra_op_num_threads` (0: all processors), overrides of free
    dimensions, initializers, `enable_profiling` and `optimized_model_filepath` have a meaning
    here; the others are kept, for programs to read."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.enable_profiling = False
        self.profile_file_prefix = "onnxruntime_profile_"
        self.optimized_model_filepath = ""
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_cpu_mem_arena = True
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.free_dimensions: dict[str, int] = {}
        self.initializers: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}  # with external data, by their names
        self.providers: list[tuple[str, dict[str, str]]] = []
        self.policy: Any = None
        self._entries: dict[str, str] = {}

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """The dim `name` is this number: kernels are made for it, and the inputs show it."""
        self.free_dimensions[name] = int(value)

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> None:
        raise state.NotImplemented(
            "dims are overridden by name here: use add_free_dimension_override_by_name"
        )

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Kept, and not looked at."""
        self._entries[key] = value

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


class RunOptions:
    """Options of a run. Setting `terminate` ends the runs that have them, from any thread."""

    def __init__(self) -> None:
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self._terminate = False
        self._running: list[Any] = []
        self._entries: dict[str, str] = {}

    @property
    def terminate(self) -> bool:
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminate = value
        for model in list(self._running) if value else ():
            model.cancel()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Kept, and not looked at."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self._entries[key]

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
    if options is not None and len(options) != len(providers or ()):
        raise ValueError("'providers' and 'provider_options' should be the same length if both "
                         "are given.")  # fmt: skip
    chosen: dict[str, dict[str, str]] = {}
    uri = "cpu"
    for place, each in enumerate(providers or ()):
        name, own = each if isinstance(each, tuple) else (each, options[place] if options else {})
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
