"""In the place of onnxruntime: `import ingot.onnxruntime as ort` runs existing programs.

A session compiles its model on first use, and finds the module in the cache later. What differs
is in docs/onnx.md.
"""

from __future__ import annotations

import logging

from ingot.onnxruntime import capi
from ingot.onnxruntime.capi import onnxruntime_pybind11_state
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
from ingot.onnxruntime.session import InferenceSession
from ingot.onnxruntime.types import ModelMetadata, NodeArg
from ingot.onnxruntime.values import IOBinding, OrtValue

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "capi",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "onnxruntime_pybind11_state",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
]

__version__ = "1.20.0"  # of onnxruntime, whose interface this is

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
