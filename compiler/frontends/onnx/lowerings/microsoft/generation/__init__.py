"""Generation: whole decoders with their search as one op."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.microsoft.generation import search

__all__ = ["search"]
