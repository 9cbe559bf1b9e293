"""What keys of a file say of a model's two halves, and of scores by distances."""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.gguf.architectures import Architecture
from ingot.compiler.frontends.gguf.keys import Keys
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["Decoder", "Relative", "read_halves"]

_MOST_BUCKETS = 1 << 12
_START, _SCALED = "decoder_start_token_id", "scale_decoder_outputs"


@dataclass(frozen=True)
class Relative:
    """Scores that follow from how far a key is (`relative.py`): by so many buckets of distances, of
    which all from the farthest on are in one."""

    buckets: int
    farthest: int


@dataclass(frozen=True)
class Decoder:
    """The second half of a model: so many layers, which begin with this token. `is_scaled`: what
    makes logits is divided by the root of the width; None: where the table of embeddings does."""

    layers: int
    start: int
    is_scaled: bool | None


def read_halves(keys: Keys, architecture: Architecture, layers: int) -> dict[str, Any]:
    """What models with an encoder have."""
    if not architecture.has_halves:
        return {"relative": None, "decoder": None}
    buckets = keys.size("attention.relative_buckets_count")
    relative = Relative(buckets, keys.size("attention.relative_farthest", 128))
    if not (4 <= buckets <= _MOST_BUCKETS and buckets < relative.farthest <= _MOST_BUCKETS):
        keys.problems.append(
            f"distances up to {relative.farthest} are in {buckets} buckets, expected 4 to "
            f"{_MOST_BUCKETS}, and greater distances"
        )
    if architecture.is_encoder:
        return {"relative": relative, "decoder": None}
    is_scaled = keys.flag(_SCALED, False) if keys.has(_SCALED) else None
    count = keys.size("decoder_block_count", layers)
    return {"relative": relative, "decoder": Decoder(count, keys.size(_START, 0), is_scaled)}
