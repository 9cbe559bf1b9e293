"""In the place of onnxruntime: `import ingot.onnxruntime as ort` runs existing programs.

A session compiles its model on first use, and finds the module in the cache later. What differs
is in docs/onnx.md.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ingot.onnxruntime import capi
from ingot.onnxruntime.adapters import AdapterFormat, LoraAdapter
from ingot.onnxruntime.capi import onnxruntime_pybind11_state
from ingot.onnxruntime.model_compiler import ModelCompiler, OrtCompileApiFlags
from ingot.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    get_all_providers,
    get_available_providers,
    logger,
)
from ingot.onnxruntime.places import (
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDevice,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtEpDevice,
    OrtExecutionProviderDevicePolicy,
    OrtHardwareDevice,
    OrtHardwareDeviceType,
    OrtMemoryInfo,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    get_ep_devices,
)
from ingot.onnxruntime.session import InferenceSession
from ingot.onnxruntime.sparse import OrtSparseFormat, SparseTensor
from ingot.onnxruntime.types import ModelMetadata, NodeArg
from ingot.onnxruntime.values import IOBinding, OrtValue, copy_tensors

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "capi",
    "copy_tensors",
    "create_and_register_allocator",
    "cuda_version",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "install",
    "onnxruntime_pybind11_state",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "version",
]

__version__ = version = "1.20.0"  # of onnxruntime, whose interface this is
package_name, cuda_version = "onnxruntime", ""
SessionIOBinding = IOBinding

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_device() -> str:
    """Where sessions run that ask for no provider."""
    return "CPU"


def get_version_string() -> str:
    """The version of the interface."""
    return __version__


def get_build_info() -> str:
    """Which Ingot this is."""
    import ingot

    return f"Ingot {ingot.__version__}"


def set_default_logger_severity(severity: int) -> None:
    """0 tells all, 4 only what is fatal: the level of the logger "ingot.onnxruntime"."""
    logger.setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Nothing depends on it."""


def enable_telemetry_events() -> None:
    """There are none."""


def disable_telemetry_events() -> None:
    """There are none."""


def install() -> None:
    """Libraries that import onnxruntime get this package, from now on in this process."""
    names = ("capi", "capi.onnxruntime_pybind11_state", "capi._pybind_state",
             "capi.onnxruntime_inference_collection", "backend")  # fmt: skip
    sys.modules["onnxruntime"] = sys.modules[__name__]
    for name in names:
        sys.modules[f"onnxruntime.{name}"] = import_module(f"{__name__}.{name}")


class _Told(logging.Handler):
    """Hands messages to a function, as onnxruntime does."""

    def __init__(self, callback: Callable[[int, str, str, str, str], None]) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        severity = min(max(record.levelno // 10 - 1, 0), len(_LEVELS) - 1)
        place = f"{record.filename}:{record.lineno} {record.funcName}"
        self._callback(severity, record.name, "", place, record.getMessage())


def set_default_logger_callback(callback: Any, severity: int = 2) -> None:
    """What the log tells goes to callback(severity, category, id, place, message); None ends it."""
    for each in [each for each in logger.handlers if isinstance(each, _Told)]:
        logger.removeHandler(each)
    logger.propagate = callback is None
    if callback is not None:
        logger.addHandler(_Told(callback))
        set_default_logger_severity(severity)


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Sessions have threads of their own: nothing depends on it."""


def set_seed(seed: int) -> None:
    """Random ops have the seeds that the model gives them: nothing depends on it."""


def create_and_register_allocator(info: OrtMemoryInfo, arena: OrtArenaCfg | None) -> None:
    """Memory is planned before a call: nothing depends on it."""


def has_collective_ops() -> bool:
    """Programs run on one device."""
    return False


def preload_dlls(**_: Any) -> None:
    """There are none."""


def print_debug_info() -> None:
    """What runs here."""
    print(get_build_info())
    for each in get_ep_devices():
        print(each.ep_name, each.device.metadata["description"])
