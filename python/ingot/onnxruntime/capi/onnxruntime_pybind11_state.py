"""The exceptions of onnxruntime, each with the code that its messages begin with; names of the
package are found here, too."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

__all__ = [
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "OrtError",
    "RuntimeException",
]


class OrtError(Exception):
    """What these have in common: a message in onnxruntime's form."""

    status: ClassVar[str] = ""

    def __init__(self, message: str) -> None:
        super().__init__(f"[ONNXRuntimeError] : {self.status} : {message}")


class Fail(OrtError):
    """The model cannot be compiled, or a call failed for no other reason of these."""

    status = "1 : FAIL"


class InvalidArgument(OrtError):
    """A name, dtype, rank or dim of an input or output is wrong, or the model is."""

    status = "2 : INVALID_ARGUMENT"


class NoSuchFile(OrtError):
    """There is no file of this name."""

    status = "3 : NO_SUCHFILE"


class NoModel(OrtError):
    """There is no model."""

    status = "4 : NO_MODEL"


class EngineError(OrtError):
    """The device failed."""

    status = "5 : ENGINE_ERROR"


class RuntimeException(OrtError):
    """A call failed while it ran."""

    status = "6 : RUNTIME_EXCEPTION"


class InvalidProtobuf(OrtError):
    """The file is no ONNX model."""

    status = "7 : INVALID_PROTOBUF"


class ModelLoaded(OrtError):
    """There is a model already."""

    status = "8 : MODEL_LOADED"


class NotImplemented(OrtError):
    """It is not supported."""

    status = "9 : NOT_IMPLEMENTED"


class InvalidGraph(OrtError):
    """The graph breaks the standard."""

    status = "10 : INVALID_GRAPH"


class EPFail(OrtError):
    """The provider failed."""

    status = "11 : EP_FAIL"


class ModelLoadCanceled(OrtError):
    """A program stopped the load."""

    status = "12 : MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(OrtError):
    """The model is to be compiled before."""

    status = "13 : MODEL_REQUIRES_COMPILATION"


class NotFound(OrtError):
    """There is nothing of this name."""

    status = "14 : NOT_FOUND"


def __getattr__(name: str) -> Any:
    package = import_module("ingot.onnxruntime")
    if name in package.__all__:
        return getattr(package, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
