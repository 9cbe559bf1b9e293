"""What keys say of single layers: of which kind each is, and numbers of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.frontends.gguf.architectures import Architecture
from ingot.compiler.frontends.gguf.keys import GREATEST, Keys, shown

__all__ = [
    "TAPS",
    "feeds_of_layers",
    "has_states_only",
    "heads_of_keys",
    "kinds_of_layers",
    "numbers_of_layers",
]

TAPS = ("shortconv.l_cache", "ssm.conv_kernel")
"""Keys that say how many tokens a convolution sees."""


def kinds_of_layers(
    keys: Keys,
    architecture: Architecture,
    layers: int,
    layer_types: Sequence[bool] | None,
    convolved: Sequence[bool] | None,
    rotated: Sequence[bool] | None,
    networks: Sequence[bool] | None,
) -> tuple[tuple[bool, ...], ...]:
    """Which layers have windows, are rotated, are convolutions, and networks alone; see
    `read_keys`."""
    if layer_types is None:
        layer_types = _patterned(keys, architecture, layers)
    if convolved is None and architecture.recurrence.startswith("delta"):
        period = keys.size("full_attention_interval", 4)
        convolved = [(layer + 1) % period > 0 for layer in range(layers)]
    elif architecture.has_both or has_states_only(keys, architecture):
        convolved = [True] * layers
    elif convolved is None:
        convolved = [each == 0 for each in heads_of_keys(keys, layers)]
    if networks is None:
        feeds = feeds_of_layers(keys, layers) if architecture.has_single_parts else [0] * layers
        networks = [is_left and feed > 0 for is_left, feed in zip(convolved, feeds, strict=True)]
    convolved = [each and not n for each, n in zip(convolved, networks, strict=True)]
    if architecture.is_shifted or any(keys.size(key, 0) for key in TAPS):
        windows = (False,) * layers if architecture.has_both else tuple(convolved)
        is_still = architecture.still_period == 1
        rotated = rotated or [not (each or is_still) for each in windows]
    else:
        window = keys.size("attention.sliding_window", 0)
        windows = tuple(window > 0 and each for each in layer_types)
    if rotated is None:
        still, only = architecture.still_period, architecture.rotates_windows_only and any(windows)
        rotated = [
            (is_local or not only) and (not still or (layer + 1) % still > 0)
            for layer, is_local in enumerate(windows)
        ]
    if keys.has("attention.rope_pattern"):
        rotated = _flags(keys, "attention.rope_pattern", layers)
    if architecture.sloped_layers in (-1, layers):
        rotated = [False] * layers
    if architecture.tells_rotation and not keys.flag("rope.scaling.finetuned", True):
        rotated = [False] * layers
    return windows, tuple(rotated), tuple(convolved), tuple(networks)


def _flags(keys: Keys, key: str, layers: int) -> list[bool]:
    """Whether something holds for each layer."""
    given = keys.value(key, None)
    if isinstance(given, np.ndarray) and given.dtype == bool and len(given) == layers:
        return [bool(each) for each in given]
    keys.problems.append(
        f"the key '{keys.name_of(key)}' is {shown(given)}, expected true or false for each layer"
    )
    return [False] * layers


def has_states_only(keys: Keys, architecture: Architecture) -> bool:
    heads = keys.value("attention.head_count", None)
    is_none = type(heads) is int and heads == 0
    return architecture.is_shifted or (architecture.recurrence != "" and is_none)


def heads_of_keys(keys: Keys, layers: int) -> Sequence[int]:
    """The heads of keys of each layer: 0 for convolutions, -1 where nothing is said."""
    key = "attention.head_count_kv"
    given = keys.value(key, None)
    if not isinstance(given, np.ndarray):
        heads = 0 if given is None else keys.size(key)
        return [heads or -1] * layers
    counts = [int(each) for each in given] if given.dtype.kind in "iu" else []
    if len(counts) != layers or min(counts) < 0 or not 0 < max(counts) <= GREATEST:
        keys.problems.append(
            f"the key '{keys.name_of(key)}' is {shown(given)}, expected a count of heads, or 0 "
            f"for convolutions, of each of {layers} layers"
        )
        return [1] * layers
    return counts


def feeds_of_layers(keys: Keys, layers: int) -> Sequence[int]:
    """The features of each layer's network."""
    key = "feed_forward_length"
    given = keys.value(key, 0)
    if not isinstance(given, np.ndarray):
        return [keys.size(key, 0)] * layers
    is_list = len(given) == layers and given.dtype.kind in "iu"
    if is_list and all(0 <= each <= GREATEST for each in given):
        return [int(each) for each in given]
    keys.problems.append(
        f"the key '{keys.name_of(key)}' is {shown(given)}, expected a length for each layer"
    )
    return [0] * layers


def _patterned(keys: Keys, architecture: Architecture, layers: int) -> Sequence[bool]:
    """Which layers have windows: as a file tells it of each, or by a period."""
    key, period = "attention.sliding_window_pattern", architecture.window_period
    given = keys.value(key, period)
    if isinstance(given, np.ndarray) and given.dtype == bool and len(given) == layers:
        return [bool(each) for each in given]
    if type(given) is not int:
        keys.problems.append(
            f"the key '{keys.name_of(key)}' is {shown(given)}, expected a period, or whether each "
            "layer has a window"
        )
        return [False] * layers
    far = 0 if architecture.looks_far_first else given - 1
    return [given < 0 or (given > 0 and each % given != far) for each in range(layers)]


def numbers_of_layers(keys: Keys, key: str, layers: int) -> tuple[float, ...]:
    """A number for each layer, which may be -inf; none where nothing is said."""
    given = keys.value(key, None)
    if given is None:
        return ()
    if isinstance(given, float) and abs(given) < 10:
        return (given,) * layers
    is_list = isinstance(given, np.ndarray) and given.dtype.kind == "f" and len(given) == layers
    if is_list and not np.isnan(given).any() and (given < 10).all():
        return tuple(float(each) for each in given)
    keys.problems.append(
        f"the key '{keys.name_of(key)}' is {shown(given)}, expected a number for each layer"
    )
    return ()
