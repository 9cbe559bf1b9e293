"""Few layers that stand for all of a model: one of each kind, and the last.

Layers of a kind have tensors of the same names, types and shapes, and do the same with them, so a
model with one of each, and with the last one behind, has the kernels of the whole. It is read in a
fraction of the time, and C compilers work on its kernels while the whole is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.hal.gguf import GgufTensor

__all__ = ["sketched"]

_SHARE = 4
"""A sketch has at most one of so many layers: else it takes more time than it saves."""


def sketched(c: Configuration, tensors: Mapping[str, GgufTensor]) -> Configuration:
    """The model with one layer of each kind, and the last one; with all, if that is no sketch."""
    parts: dict[str, list[object]] = {}
    for name in sorted(tensors):
        if name.startswith("blk."):
            _, number, part = name.split(".", 2)
            tensor = tensors[name]
            parts.setdefault(number, []).append((part, tensor.type.name, tensor.shape))
    kinds: dict[object, int] = {}
    for layer in range(c.layers):
        own = (c.windows[layer], c.rotated[layer], c.sources[layer] == layer)
        kind = (*own, *c.thresholds[layer : layer + 1], *parts.get(str(layer), ()))
        kinds.setdefault(kind, layer)
    some = {*kinds.values(), c.layers - 1}
    chosen = tuple(sorted(some | {c.sources[layer] for layer in some}))
    return replace(c, sketched=chosen if len(chosen) * _SHARE <= c.layers else ())
