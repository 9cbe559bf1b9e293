"""Rotary embedding: by which angles features of a head turn, as keys of a file tell it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ingot.compiler.ir.dataclass import dataclass

__all__ = ["Rope", "read_rope"]

_KINDS = ("none", "default", "linear", "llama3", "longrope", "proportional", "yarn")


class _Keys(Protocol):
    problems: list[str]

    def size(self, key: str, default: int | None = None) -> int: ...

    def number(self, key: str, default: float | None = None) -> float: ...

    def text(self, key: str) -> str: ...

    def flag(self, key: str, default: bool) -> bool: ...

    def numbers(self, key: str, length: int) -> Sequence[float] | None: ...


@dataclass(frozen=True)
class Rope:
    """`factors` divide the frequencies; none: 1. Those of `long` are for more positions than the
    `original` ones."""

    base: float
    length: int  # features of a head that are rotated
    divisor: float = 1.0  # of all positions
    scale: float = 1.0  # of sines and cosines
    original: int = 0
    factors: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    magnitude: float = 1.0  # by which yarn multiplies queries and keys of latents
    is_plain: bool = False  # factors that a file has as a tensor are for others


def read_rope(keys: _Keys, length: int, context: int, log_unit: float) -> Rope:
    """What keys below rope. say of a model of so many positions. `log_unit`: of
    yarn_log_multiplier."""
    base, kind = keys.number("rope.freq_base", 10000.0), keys.text("rope.scaling.type")
    original = keys.size("rope.scaling.original_context_length", context)
    scale = keys.number("rope.scaling.attn_factor", 1.0)
    if kind not in _KINDS:
        keys.problems.append(
            f"positions are scaled as {kind!r}, expected linear, llama3, longrope, "
            "proportional or yarn"
        )
    if base <= 1:
        keys.problems.append(f"the base of rotations is {base}, expected more than 1")
        base = 2.0
    if length % 2:
        keys.problems.append(f"{length} features of a head are rotated, expected an even number")
        length = 2
    if kind == "linear":
        return Rope(base, length, keys.number("rope.scaling.factor"), scale, original)
    frequencies = base ** (-np.arange(0, length, 2) / length)
    if kind == "yarn":
        factor = keys.number("rope.scaling.factor")
        scale *= keys.number("rope.scaling.yarn_attn_factor", 1.0) * (0.1 * math.log(factor) + 1)
        log = keys.number("rope.scaling.yarn_log_multiplier", 0.0) / log_unit
        magnitude = 0.1 * log * math.log(factor) + 1
        factors = _yarn(keys, frequencies, factor, base, original)
        return Rope(base, length, 1.0, scale / magnitude, original, factors, (), magnitude)
    if kind == "llama3":
        return Rope(base, length, 1.0, scale, original, _llama3(keys, frequencies, original))
    if kind == "longrope":
        short, long = (
            tuple(keys.numbers(f"rope.scaling.{name}_factor", length // 2) or ())
            for name in ("short", "long")
        )
        return Rope(base, length, 1.0, scale, original, short, long)
    if kind == "proportional":
        return Rope(base, length, 1.0, scale, original, _first(keys, length))
    return Rope(base, length, 1.0, scale, original)


def _first(keys: _Keys, length: int) -> tuple[float, ...]:
    """Only a share of the pairs, those in front, turn."""
    turned = int(min(keys.number("rope.scaling.share", 1.0), 1.0) * length // 2)
    return (1.0,) * turned + (math.inf,) * (length // 2 - turned)


def _yarn(
    keys: _Keys, frequencies: Any, factor: float, base: float, original: int
) -> tuple[float, ...]:
    """Frequencies that turn often in the original context stay, slow ones are divided by `factor`,
    those between change over from one to the other (YaRN, eq. 23)."""
    length = 2 * len(frequencies)
    fast, slow = (
        length * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (keys.number("rope.scaling.yarn_beta_fast", 32.0),
                      keys.number("rope.scaling.yarn_beta_slow", 1.0))
    )  # fmt: skip
    if keys.flag("rope.scaling.truncate", True):
        fast, slow = math.floor(fast), math.ceil(slow)
    low, high = max(fast, 0), min(slow, length - 1)
    places = np.arange(len(frequencies))
    slowness = np.clip((places - low) / max(high - low, 1e-3), 0, 1)
    return tuple((1 / (slowness / factor + 1 - slowness)).tolist())


def _llama3(keys: _Keys, frequencies: Any, original: int) -> tuple[float, ...]:
    """As `_yarn`, over wave lengths."""
    factor = keys.number("rope.scaling.factor")
    low, high = (keys.number(f"rope.scaling.{name}_freq_factor") for name in ("low", "high"))
    turns = original * frequencies / (2 * math.pi)
    share = np.clip((turns - low) / max(high - low, 1e-6), 0, 1)
    return tuple((1 / ((1 - share) / factor + share)).tolist())
