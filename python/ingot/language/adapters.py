"""LoRA adapters for a compiled language model: the parameters of its scope "lora".

    model = ingot.load(module, parameters=["model.gguf", {"lora": ingot.lora(module)}])
    model.swap_parameters(ingot.lora(model, "adapter.gguf", ("other/", 0.5)), scope="lora")

A module has room for a rank; several adapters stand one behind another in it, each with its scale.
Without any, nothing is multiplied.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from ingot.hal.adapter import Adapter, Factors, floats, read_adapter
from ingot.hal.errors import InvalidArgument
from ingot.hal.tensor_names import INTERLEAVED, kind_of
from ingot.runtime.model import Model
from ingot.runtime.program import load_module, read_metadata
from ingot.runtime.signature import read_parameters

__all__ = ["Room", "lora", "parse_adapter"]

_SHOWN = 3  # names in a message

Path = str | os.PathLike[str]


def lora(model: Any, *adapters: Path | tuple[Path, float]) -> dict[str, Any]:
    """The parameters of the scope "lora" of a language model that was compiled with `lora=`, loaded
    or as `ingot.load` takes it: these adapters together, each a GGUF file or a folder of PEFT,
    alone or with a scale beside its own (alpha / rank). Without any it is as if it had no room.

    InvalidArgument: the model has no room for them, or they belong to another one. Raises what
    reading them raises: NotFound, DataLoss, Unsupported.
    """
    room = Room(*_written(model))
    opened = []
    for each in adapters:
        path, scale = each if isinstance(each, tuple) else (each, 1.0)
        if not isinstance(scale, (int, float)) or not isfinite(scale):
            raise InvalidArgument(f"the scale of '{path}' is {scale!r}, expected a number")
        opened.append((read_adapter(path), float(scale)))
    for adapter, scale in opened:
        room.add(adapter, scale)
    return room.arrays


def parse_adapter(text: str) -> Path | tuple[Path, float]:
    """ "adapter.gguf", or "adapter.gguf:0.5" with a scale."""
    path, colon, number = text.rpartition(":")
    if not colon or os.path.exists(text):
        return text
    try:
        return path, float(number)
    except ValueError:
        return text


def _written(model: Any) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """What the compiler wrote of the room for adapters, and the shapes of its parameters."""
    handle = None if isinstance(model, Model) else load_module(model, verify=False)
    modules = model._program.modules if handle is None else [handle.pointer]
    for module in modules:
        if "lora" in (metadata := read_metadata(module)):
            parameters = (each for each in read_parameters(module) if each.scope == "lora")
            return metadata["lora"], {each.key: each.shape for each in parameters}
    return None, {}


class Room:
    """The arrays of the scope "lora", with what is in use of them so far."""

    def __init__(self, written: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
        if written is None:
            raise InvalidArgument(
                "the model has no room for adapters: compile it with lora= and a rank, or adapters"
            )
        self.rank, self.producer, kinds = written
        self.kinds = {kind: (heads, paired) for kind, heads, paired in kinds}
        self.used = dict.fromkeys(self.kinds, 0)
        self.arrays: dict[str, Any] = {
            key: np.zeros(shape, np.float32 if shape else np.int64) for key, shape in shapes.items()
        }

    def add(self, adapter: Adapter, scale: float) -> None:
        """Put the adapter behind those before."""
        self._check(adapter)
        kind_of_model, _, architecture = self.producer.partition(" ")
        products = adapter.products()
        lengths: dict[str, int] = {}
        for name, factors in products.items():
            kind = kind_of(name)
            lengths[kind] = max(lengths.get(kind, 0), factors.rank)
        for kind, length in lengths.items():
            if self.used[kind] + length > self.rank:
                raise InvalidArgument(
                    f"adapter '{adapter.path}' has the rank {length}, and {self.used[kind]} of "
                    f"{self.rank} are in use: compile the model with a greater lora="
                )
        for name, factors in products.items():
            start = self.used[kind_of(name)]
            rows = slice(start, start + factors.rank)
            down = floats(factors.down)
            with np.errstate(all="ignore"):
                up = floats(factors.up) * np.float32(scale * factors.scale)
            if not (np.isfinite(down).all() and np.isfinite(up).all()):
                raise InvalidArgument(
                    f"adapter '{adapter.path}': '{name}' has elements that are no numbers (NaN or "
                    f"infinite), with its scale of {scale * factors.scale:g}"
                )
            if not adapter.is_peft or kind_of_model == "checkpoint" or architecture in INTERLEAVED:
                up = _turned(up, *self.kinds[kind_of(name)])
            self.arrays[f"{name}.lora_a"][rows] = down
            self.arrays[f"{name}.lora_b"][rows] = up.T
        for kind, length in lengths.items():
            self.used[kind] += length
            self.arrays[f"{kind}.rank"] = np.array(self.used[kind], np.int64)

    def _check(self, adapter: Adapter) -> None:
        what = f"adapter '{adapter.path}'"
        kind, _, architecture = self.producer.partition(" ")
        if not adapter.is_peft and kind != "gguf":
            raise InvalidArgument(
                f"{what} is a GGUF file, whose rows have the order of a GGUF model: for a model "
                "from a folder give the folder of PEFT"
            )
        if adapter.architecture not in ("", architecture):
            raise InvalidArgument(
                f"{what} belongs to a {adapter.architecture} model, not to this {architecture}"
            )
        for name, factors in adapter.products().items():
            self._check_product(what, name, factors)

    def _check_product(self, what: str, name: str, factors: Factors) -> None:
        if f"{name}.lora_a" not in self.arrays:
            known = ", ".join(list(self.kinds)[:_SHOWN])
            raise InvalidArgument(
                f"{what} changes '{name}', for which the model has no room: it belongs to another "
                f"model, or this one was compiled for adapters of {known}, ... only"
            )
        shape = (self.arrays[f"{name}.lora_b"].shape[1], self.arrays[f"{name}.lora_a"].shape[1])
        found = (factors.up.shape[0], factors.down.shape[1])
        if found != shape:
            raise InvalidArgument(
                f"{what} belongs to another model: '{name}' is {list(found)} there, expected "
                f"{list(shape)}"
            )


def _turned(up: Any, heads: int, paired: int) -> Any:
    """Rows of heads with the first `paired` of each, which are pairs of neighbours in GGUF files,
    in the order of the network: all first ones in front of all second ones."""
    if not paired:
        return up
    rows = up.reshape(heads, -1, up.shape[1])
    pairs = rows[:, :paired].reshape(heads, paired // 2, 2, -1).transpose(0, 2, 1, 3)
    turned = np.concatenate([pairs.reshape(heads, paired, -1), rows[:, paired:]], axis=1)
    return turned.reshape(up.shape)
