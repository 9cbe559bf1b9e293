"""A GGUF file or a folder as a loaded module with its tokenizer.

The module is one of the cache, and compiled when it is not there yet. It is found by what the
compiler reads: of a GGUF file all but the tensors' elements, of folders and adapters the names,
sizes and times of files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from ingot.hal.device import open_device
from ingot.hal.errors import DataLoss, Incompatible, InvalidArgument, NotFound, OutOfRange
from ingot.hal.file_cache import default_cache
from ingot.hal.gguf import Gguf
from ingot.language.adapters import lora as adapter_parameters
from ingot.language.folder import FolderTokenizer
from ingot.language.tokenizer import FileTokenizer, Tokenizer
from ingot.module_cache import digest, installed_compiler, processor

__all__ = ["TYPES", "check_kind", "check_prompt", "load_language_model"]

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

    weights_of_model: Any = path
    file = None if os.path.isdir(path) else Gguf(path)
    if file is not None and not share_weights:  # which looks at the file
        weights_of_model = file.parameters()
    uri = device if isinstance(device, str) else open_device(device).uri
    adapters = _adapters(lora)
    room = lora if isinstance(lora, int) else [_path(each) for each in adapters] or None
    options = {
        "cache": cache, "weights": weights, "precision": precision,
        "target": uri.partition(":")[0], **layout,
    }  # fmt: skip
    chosen = [options, isinstance(room, int) and room]
    key = partial(_key, path, chosen=chosen, adapters=room if isinstance(room, list) else [])

    def load(module: Any) -> Any:
        parameters = [weights_of_model]
        if room is not None:
            parameters.append({"lora": adapter_parameters(module, *adapters)})
        return ingot.load(
            module,
            parameters=parameters,
            device=device,
            threads=threads,
            share_weights="" if share_weights else False,  # adapters are exchanged
        )

    kept, before = default_cache(), key(file)
    found = kept.file(before)
    if found is None:
        tokenizer = _tokenizer(path, file)
    else:
        with ThreadPoolExecutor(1) as other:  # weights are packed while strings are read
            loading = None if _is_lone() else other.submit(load, found)
            tokenizer, file = _tokenizer(path, file), None
            loading = loading or other.submit(load, found)
        with suppress(DataLoss, Incompatible, NotFound):  # it was damaged or removed
            return tokenizer, loading.result()
    module = ingot.compile(path, lora=room, progress=progress, **options)
    again = None if os.path.isdir(path) else Gguf(path)
    if key(again) == before:  # what was compiled is what was told
        kept.write_file(before, bytes(module))
    return tokenizer, load(module)


def _is_lone() -> bool:
    """Whether there is one processor for this process: it packs weights when the tokenizer is made,
    so that what only the making takes is not held beside all of them."""
    usable = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() if usable is None else len(usable(0))) == 1


def _tokenizer(path: str | os.PathLike[str], file: Gguf | None) -> Tokenizer:
    """Of a GGUF file, or of a folder, whose file is None."""
    if file is None:
        return FolderTokenizer(path)
    tokenizer = FileTokenizer(file.metadata)
    if "token_embd.weight" in file.tensors:
        tokenizer.check_rows(file.tensors["token_embd.weight"].shape[0])
    return tokenizer


def _key(
    path: str | os.PathLike[str], file: Gguf | None, chosen: Any, adapters: Sequence[Any]
) -> str:
    """Where the cache has what is made of a GGUF file, or of a folder, whose file is None."""
    own: Iterable[str] = _files(path)
    if file is not None:
        own = os.path.basename(path), hashlib.sha256(file.head).hexdigest()
    options = json.dumps(chosen, sort_keys=True, default=str)
    read = [line for each in adapters for line in _files(each)]
    return digest("language", installed_compiler(), processor(), *own, options, *read)


def _files(path: str | os.PathLike[str]) -> Iterator[str]:
    """The names, sizes and times of a file, or of those of a folder, with where it lies."""
    yield os.path.realpath(path)
    names = sorted(os.listdir(path)) if os.path.isdir(path) else [""]
    names += [os.path.join(name, "config.json") for name in names if name == "1_Pooling"]
    for name in names:
        with suppress(OSError):  # the compiler tells
            status = os.stat(os.path.join(path, name) if name else path)
            yield f"{name} {status.st_size} {status.st_mtime_ns}"


_CLASSES = {
    "generate": ("writes texts", "LanguageModel"),
    **dict.fromkeys(("embed", "embed_tokens"), ("makes vectors of texts", "EmbeddingModel")),
    "rank": ("ranks texts", "Reranker"),
}


def check_kind(path: str | os.PathLike[str], model: Any, *wanted: str) -> None:
    """InvalidArgument: a loaded model has none of the functions `wanted`, so another class is for
    it."""
    if any(name in model.functions for name in wanted):
        return
    does, name = next(each for kind, each in _CLASSES.items() if kind in model.functions)
    raise InvalidArgument(f"'{path}' is a model that {does}: make an ingot.{name} of it")


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
    path = adapter[0] if isinstance(adapter, tuple) and adapter else adapter
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidArgument(f"lora has {adapter!r:.60}, expected a path, or a path and a scale")
    return path
