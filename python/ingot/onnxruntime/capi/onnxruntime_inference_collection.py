"""Sessions and values, where some programs look for them."""

from __future__ import annotations

from ingot.onnxruntime.adapters import AdapterFormat
from ingot.onnxruntime.model_compiler import ModelCompiler
from ingot.onnxruntime.session import InferenceSession
from ingot.onnxruntime.values import IOBinding, OrtValue, copy_tensors

__all__ = [
    "AdapterFormat",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtValue",
    "Session",
    "copy_tensors",
]

Session = InferenceSession
