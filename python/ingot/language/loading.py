"""A GGUF file or a folder as a loaded module with its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ingot.hal.device import open_device
from ingot.hal.errors import InvalidArgument, OutOfRange
from ingot.hal.gguf import Gguf
from ingot.language.adapters import lora as adapter_parameters
from ingot.language.folder import FolderTokenizer
from ingot.language.tokenizer import FileTokenizer, Tokenizer

__all__ = ["TYPES", "check_prompt", "load_language_model"]

TYPES = {"top_k": np.int32, "seed": np.int64}
"""Dtypes of what chooses tokens; f32 for the others."""


def load_language_model(
    path: str | os.PathLike[str],
    layout: Mapping[str, Any],
    *,
    cache: str = "f32",
    weights: str | None = None,
    precision: str = "f32",
    device: Any = "cpu",
    threads: int | None = None,
    lora: Any = None,
    share_weights: bool = False,
    progress: Any = None,
) -> tuple[Tokenizer, Any]:
    """The tokenizer and the model. `layout` and the options are those of `ingot.compile` and
    `ingot.load`; raises what these raise, NotFound and Unsupported for tokenizers."""
    import ingot

    is_folder = os.path.isdir(path)
    tokenizer = FolderTokenizer(path) if is_folder else FileTokenizer(Gguf(path).metadata)
    uri = device if isinstance(device, str) else open_device(device).uri
    adapters = _adapters(lora)
    room = lora if isinstance(lora, int) else [_path(each) for each in adapters] or None
    module = ingot.compile(
        path,
        cache=cache,
        weights=weights,
        lora=room,
        precision=precision,
        target=uri.partition(":")[0],
        progress=progress,
        **layout,
    )
    parameters: list[Any] = [path]
    if room is not None:
        parameters.append({"lora": adapter_parameters(module, *adapters)})
    model = ingot.load(
        module,
        parameters=parameters,
        device=device,
        threads=threads,
        share_weights="" if share_weights else False,  # adapters are exchanged
    )
    return tokenizer, model


def check_prompt(ids: Sequence[int], capacity: int) -> None:
    """InvalidArgument, OutOfRange: nothing can be written behind these tokens."""
    if not ids:
        raise InvalidArgument("the prompt has no tokens: write something to go on from")
    if len(ids) > capacity:
        raise OutOfRange(
            f"the prompt has {len(ids)} tokens, but the cache has room for {capacity}: "
            "compile with more capacity="
        )


def _adapters(lora: Any) -> list[Any]:
    """The adapters of the option `lora`."""
    if lora is None or isinstance(lora, int):
        return []
    return lora if isinstance(lora, list) else [lora]


def _path(adapter: Any) -> Any:
    return adapter[0] if isinstance(adapter, tuple) else adapter
