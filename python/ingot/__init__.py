"""Ingot: compile a machine-learning model once into a small module and run it anywhere.

    import ingot
    ingot.compile("model.onnx").save("model.ingot")
    model = ingot.load("model.ingot")
    y = model(x)

Everything is imported on first use: `import ingot` alone costs nothing, and running a
module never imports the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingot import ops
    from ingot.bundling import bundle
    from ingot.compiler import Module, compile, state
    from ingot.compiler.chain import chain
    from ingot.compiler.frontends.natives import Native
    from ingot.compiler.frontends.own_ops import lowering
    from ingot.compiler.frontends.program.tracing import Program, Spec, program, spec, trace
    from ingot.compiler.own_kernels import Kernel
    from ingot.explorer import explore
    from ingot.hal.array import Array
    from ingot.hal.device import Device, devices, open_device
    from ingot.hal.errors import (
        Cancelled,
        CompileError,
        DataLoss,
        DeadlineExceeded,
        DeviceLost,
        Error,
        FailedPrecondition,
        Incompatible,
        Internal,
        InvalidArgument,
        NotFound,
        OutOfMemory,
        OutOfRange,
        PermissionDenied,
        Unsupported,
    )
    from ingot.hal.reference import Reference
    from ingot.language.adapters import lora
    from ingot.language.batch import LanguageBatch
    from ingot.language.embedding import EmbeddingModel
    from ingot.language.model import LanguageModel, generate
    from ingot.language.reranking import Reranker
    from ingot.quantizing import QuantizedModule, quantize
    from ingot.runtime.fence import Fence
    from ingot.runtime.function import Function
    from ingot.runtime.model import Model, load
    from ingot.runtime.natives import should_stop
    from ingot.runtime.recorded_call import RecordedCall, read_call
    from ingot.runtime.signature import Signature, Value

    __version__: str

__all__ = [
    "Array",
    "Cancelled",
    "CompileError",
    "DataLoss",
    "DeadlineExceeded",
    "Device",
    "DeviceLost",
    "EmbeddingModel",
    "Error",
    "FailedPrecondition",
    "Fence",
    "Function",
    "Incompatible",
    "Internal",
    "InvalidArgument",
    "Kernel",
    "LanguageBatch",
    "LanguageModel",
    "Model",
    "Module",
    "Native",
    "NotFound",
    "OutOfMemory",
    "OutOfRange",
    "PermissionDenied",
    "Program",
    "QuantizedModule",
    "RecordedCall",
    "Reference",
    "Reranker",
    "Signature",
    "Spec",
    "Unsupported",
    "Value",
    "__version__",
    "bundle",
    "chain",
    "compile",
    "devices",
    "explore",
    "generate",
    "load",
    "lora",
    "lowering",
    "open_device",
    "ops",
    "program",
    "quantize",
    "read_call",
    "should_stop",
    "spec",
    "state",
    "trace",
]

_TRACING = "ingot.compiler.frontends.program.tracing"

_HOMES = {
    "Array": "ingot.hal.array",
    "Device": "ingot.hal.device",
    "EmbeddingModel": "ingot.language.embedding",
    "Fence": "ingot.runtime.fence",
    "Function": "ingot.runtime.function",
    "Kernel": "ingot.compiler.own_kernels",
    "LanguageBatch": "ingot.language.batch",
    "LanguageModel": "ingot.language.model",
    "Model": "ingot.runtime.model",
    "Module": "ingot.compiler",
    "Native": "ingot.compiler.frontends.natives",
    "Program": _TRACING,
    "QuantizedModule": "ingot.quantizing",
    "RecordedCall": "ingot.runtime.recorded_call",
    "Reference": "ingot.hal.reference",
    "Reranker": "ingot.language.reranking",
    "Signature": "ingot.runtime.signature",
    "Spec": _TRACING,
    "Value": "ingot.runtime.signature",
    "bundle": "ingot.bundling",
    "chain": "ingot.compiler.chain",
    "compile": "ingot.compiling",
    "devices": "ingot.hal.device",
    "explore": "ingot.explorer",
    "generate": "ingot.language.model",
    "load": "ingot.runtime.model",
    "lora": "ingot.language.adapters",
    "lowering": "ingot.compiler.frontends.own_ops",
    "open_device": "ingot.hal.device",
    "program": _TRACING,
    "quantize": "ingot.quantizing",
    "read_call": "ingot.runtime.recorded_call",
    "should_stop": "ingot.runtime.natives",
    "spec": _TRACING,
    "trace": _TRACING,
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        header = import_module("ingot.hal.header")
        value: Any = header.constants(header.read("ingot.h"))["INGOT_VERSION"].decode()
    elif name == "state":
        value = import_module("ingot.compiler.state")
    elif name == "ops":
        value = import_module("ingot.ops")
    elif name in __all__:
        value = getattr(import_module(_HOMES.get(name, "ingot.hal.errors")), name)
    else:
        raise AttributeError(f"module 'ingot' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
