"""How tokens are chosen; the module does it (`compiler/frontends/gguf/sampling.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from ingot.hal.errors import InvalidArgument
from ingot.hal.options import check_options

__all__ = ["Sampling"]


@dataclass(frozen=True)
class Sampling:
    """Numbers by which a token is chosen. InvalidArgument: there is no such choice."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_options(type(self), vars(self), InvalidArgument)
        rules = {
            "temperature": (self.temperature >= 0, "at least 0"),
            "top_k": (0 <= self.top_k < 1 << 31, "at least 0"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
            "min_p": (0 <= self.min_p <= 1, "0 to 1"),
            "repetition_penalty": (self.repetition_penalty > 0, "above 0"),
            "seed": (-(1 << 63) <= self.seed < 1 << 63, "64 bits"),
        }
        for name, (is_right, wanted) in rules.items():
            if not (is_right and isfinite(getattr(self, name))):
                raise InvalidArgument(f"{name} is {getattr(self, name)}, expected {wanted}")
