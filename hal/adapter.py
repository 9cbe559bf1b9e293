"""Low-rank adapters (LoRA) of language models: GGUF files as llama.cpp's convert_lora_to_gguf
writes them, and folders as PEFT does. What they change is named as the file names it.

An adapter is data from anywhere: what is wrong with it is told, with the name of the tensor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sys import float_info
from typing import Any

import numpy as np

from ingot.hal.checkpoint import read_json, read_tensors
from ingot.hal.errors import DataLoss, InvalidArgument, Unsupported
from ingot.hal.gguf import Gguf, GgufTensor
from ingot.hal.tensor_names import product_name

__all__ = ["Adapter", "Factors", "floats", "read_adapter"]

_PEFT = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")


@dataclass(frozen=True)
class Factors:
    """What a weight [length, k] is changed by: `scale` * up [length, rank] @ down [rank, k]. Both
    are of F32, F16 or BF16."""

    down: GgufTensor
    up: GgufTensor
    scale: float

    @property
    def rank(self) -> int:
        return self.down.shape[0]


@dataclass(frozen=True)
class Adapter:
    """`factors` by the name of the product that they change: "blk.0.attn_q" in a GGUF file,
    "model.layers.0.self_attn.q_proj" in a folder of PEFT."""

    path: Path
    is_peft: bool
    architecture: str  # of the model that it belongs to; "" if it does not say
    factors: Mapping[str, Factors]

    def products(self) -> dict[str, Factors]:
        """The factors by the names that GGUF files have for products."""
        if not self.is_peft:
            return dict(self.factors)
        return {product_name(name): each for name, each in self.factors.items()}

    @property
    def rank(self) -> int:
        """The greatest of all its factors."""
        return max(each.rank for each in self.factors.values())


def read_adapter(path: str | os.PathLike[str]) -> Adapter:
    """An open adapter. NotFound: there is none. DataLoss: it is damaged. InvalidArgument: it is
    something else. Unsupported: a kind of adapter that is not known."""
    found = _read_folder(Path(path)) if os.path.isdir(path) else _read_file(path)
    if not found.factors:
        raise DataLoss(f"adapter '{path}' has no factors (lora_a and lora_b)")
    return found


def _read_file(path: str | os.PathLike[str]) -> Adapter:
    file = Gguf(path)
    what = f"GGUF file '{path}'"
    if file.metadata.get("general.type") != "adapter":
        raise InvalidArgument(f"{what} is no adapter: its general.type is not 'adapter'")
    kind, alpha = file.metadata.get("adapter.type"), file.metadata.get("adapter.lora.alpha")
    if kind != "lora":
        raise Unsupported(f"{what} is an adapter of the type {kind!r}, expected 'lora'")
    pairs: dict[str, dict[str, GgufTensor]] = {}
    for name, tensor in file.tensors.items():
        match = re.fullmatch(r"(.+)\.weight\.lora_([ab])", name)
        if match is None:
            raise Unsupported(f"{what} changes '{name}', which no LoRA of products does")
        pairs.setdefault(match[1], {})[match[2]] = tensor
    alpha = _number(alpha, 0.0, f"{what}: adapter.lora.alpha")

    def scale(_name: str, rank: int) -> float:
        return alpha / rank if alpha else 1.0  # as llama.cpp has it

    architecture = str(file.metadata.get("general.architecture", ""))
    return Adapter(Path(path), False, architecture, dict(_joined(pairs, scale, what)))


def _read_folder(path: Path) -> Adapter:
    what = f"adapter '{path}'"
    config = read_json(path / "adapter_config.json")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise Unsupported(f"{what}: its peft_type is {kind!r}, expected 'LORA'")
    for key, plain in (("use_dora", False), ("bias", "none"), ("modules_to_save", None),
                       ("fan_in_fan_out", False), ("lora_bias", False)):  # fmt: skip
        if (config.get(key) or plain) != plain:
            raise Unsupported(f"{what}: {key} is {config[key]!r}, which is not supported")
    alpha = _number(config.get("lora_alpha"), 0.0, f"{what}: lora_alpha")
    patterns = config.get("alpha_pattern") or {}
    if not isinstance(patterns, dict):
        raise DataLoss(f"{what}: alpha_pattern is {patterns!r}, expected numbers by name")

    def scale(name: str, rank: int) -> float:
        own = next((patterns[each] for each in patterns if _is_end(each, name)), alpha)
        own = _number(own, alpha, f"{what}: alpha_pattern")
        return own / (rank**0.5 if config.get("use_rslora") else rank)

    pairs: dict[str, dict[str, GgufTensor]] = {}
    for name, tensor in read_tensors(path / "adapter_model.safetensors"):
        match = _PEFT.fullmatch(name)
        if match is None or isinstance(tensor, str):
            kinds = "F32, F16 or BF16 of lora_A and lora_B"
            raise Unsupported(f"{what}: tensor '{name}' cannot be used, expected {kinds}")
        pairs.setdefault(match[1], {})[match[2].lower()] = tensor
    return Adapter(path, True, "", dict(_joined(pairs, scale, what)))


def _is_end(pattern: str, name: str) -> bool:
    """Whether a module's name ends so. PEFT takes regular expressions; names are what there is."""
    if not re.fullmatch(r"[\w.]+", pattern):
        raise Unsupported(f"alpha_pattern has '{pattern}', expected the end of a module's name")
    return f".{name}".endswith(f".{pattern}")


def _joined(
    pairs: Mapping[str, Mapping[str, GgufTensor]], scale: Any, what: str
) -> Iterator[tuple[str, Factors]]:
    for name, each in pairs.items():
        if len(each) < 2:
            (there,) = each
            missing = "b" if there == "a" else "a"
            raise DataLoss(f"{what}: '{name}' has lora_{there}, but no lora_{missing}")
        down, up = each["a"], each["b"]
        kinds = {tensor.type.name for tensor in (down, up)}
        if not kinds <= {"F32", "F16", "BF16"}:
            raise Unsupported(f"{what}: '{name}' is of {', '.join(sorted(kinds))}, expected floats")
        shapes = f"lora_a {list(down.shape)} and lora_b {list(up.shape)}"
        is_matrix = len(down.shape) == 2 == len(up.shape)
        if not is_matrix or down.shape[0] != up.shape[1] or not down.shape[0]:
            raise DataLoss(f"{what}: '{name}' has {shapes}, which do not belong together")
        yield name, Factors(down, up, scale(name, down.shape[0]))


def _number(value: Any, default: float, what: str) -> float:
    if value is None:
        return default
    if not isinstance(value, (int, float)) or not abs(value) <= float_info.max:
        raise DataLoss(f"{what} is {value!r}, expected a number")
    return float(value)


def floats(tensor: GgufTensor) -> Any:
    """The numbers of a tensor of F32, F16 or BF16, f32 of its shape."""
    rows = tensor.rows
    if tensor.type.name == "BF16":
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32)
