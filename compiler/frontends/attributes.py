"""Attributes of modules by which front ends tell the file what loaders have to know."""

from __future__ import annotations

__all__ = ["ADAPTERS"]

ADAPTERS = "lora"
"""What adapters a language model has room for: the greatest rank; "gguf" or "checkpoint" with the
architecture; and per kind of product the heads whose rows GGUF files have in another order, as of
`Weights.linear`."""
