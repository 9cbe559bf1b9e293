"""Language models from folders as Hugging Face's libraries write them, by the network of
`frontends.gguf`: a table gives each tensor the name that GGUF files have for it, another each key
of config.json. Weights are used as they are, or rounded to codes when they are loaded; those that
are quantised already keep their codes.
"""

from __future__ import annotations

import os

from ingot.compiler.frontends.checkpoint.configuration import read_config, text_config
from ingot.compiler.frontends.checkpoint.of_layers import factors_of
from ingot.compiler.frontends.checkpoint.quantised import tensors_of
from ingot.compiler.frontends.checkpoint.weights import CheckpointWeights, Renamed
from ingot.compiler.frontends.gguf import Layout, build_model
from ingot.compiler.frontends.gguf.adapters import Lora, open_adapters
from ingot.compiler.ir import Module
from ingot.hal.checkpoint import Checkpoint
from ingot.hal.errors import CompileError, DataLoss, NotFound

__all__ = ["import_checkpoint"]

CODES = ("int8", "int4")


def import_checkpoint(
    path: str | os.PathLike[str],
    *,
    capacity: int | None = None,
    cache: str = "f32",
    weights: str | None = None,
    verify: bool = False,
    lora: Lora = None,
    sequences: int | None = None,
    cache_tokens: int | None = None,
    sketch: bool = False,
) -> Module:
    """The module of a folder. `weights`: the codes that weights of products become, with a scale
    for 32 of them; None: they stay. The others as of `import_gguf`.

    CompileError: the folder is damaged or incomplete, or its model cannot be compiled.
    """
    if weights not in (None, *CODES):
        raise CompileError(f"weights is {weights!r}, expected {' or '.join(map(repr, CODES))}")
    try:
        folder = Checkpoint(path)
    except (DataLoss, NotFound) as error:
        raise CompileError(str(error)) from None
    tensors = tensors_of(folder)
    configuration = read_config(folder)
    renamed = Renamed(folder, tensors, configuration)
    made = CheckpointWeights(renamed, weights)
    made.factors = factors_of(text_config(folder), configuration.recurrence)
    made.adapters = open_adapters(lora)
    producer = f"checkpoint {configuration.name}"
    layout = Layout(capacity, cache, verify, sequences, cache_tokens, sketch)
    return build_model(made, configuration, layout, producer)
