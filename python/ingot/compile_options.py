"""What the options of `ingot compile` say beyond plain values: sources, hot values, state."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ingot.hal.errors import InvalidArgument

if TYPE_CHECKING:
    from ingot.compiler.state import State

__all__ = [
    "is_size",
    "parse_length",
    "parse_lora",
    "parse_scope",
    "parse_sources",
    "parse_specialize",
    "parse_state",
]


_LENGTH = re.compile(r"(?P<number>\d{1,15}(\.\d{1,9})?) ?((?P<unit>[KMGkmg])(?P<binary>i)?)?[Bb]?")


def parse_sources(texts: Sequence[str]) -> str | dict[str, str]:
    """One path, or "prefill=a.onnx", "decode=b.onnx" as paths by the names of functions."""
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    sources: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not name or not path or name in sources:
            raise InvalidArgument(
                f"{text}: for a module of several functions write NAME=FILE for each, with "
                "different names, such as prefill=a.onnx decode=b.onnx"
            )
        sources[name] = path
    return sources


def parse_length(text: str) -> int:
    """ "64MB", "1.5GiB" or "4096" as bytes. ArgumentTypeError: it is none of these."""
    match = _LENGTH.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no length in bytes, such as 64MB, 1.5GiB or 4096"
        )
    step = 1024 if match["binary"] else 1000
    return int(float(match["number"]) * step ** " KMG".index((match["unit"] or " ").upper()))


def is_size(text: str) -> bool:
    """Whether it is the size of a dim, which 64 bits hold."""
    return text.isdecimal() and len(text) <= 18


def parse_specialize(texts: Sequence[str]) -> dict[str, list[int]] | None:
    """ "s=1,128" as values by dim; None without any."""
    values: dict[str, list[int]] = {}
    for text in texts:
        name, _, numbers = text.partition("=")
        if not name or not all(map(is_size, numbers.split(","))):
            raise InvalidArgument(
                f"--specialize {text}: write NAME=SIZE,..., such as --specialize s=1,128"
            )
        values.setdefault(name, []).extend(int(each) for each in numbers.split(","))
    return values or None


def parse_lora(texts: Sequence[str]) -> int | list[str] | None:
    """ "16", or the paths of adapters; None without any."""
    if len(texts) == 1 and re.fullmatch(r"\d{1,9}", texts[0], re.ASCII):
        return int(texts[0])
    return list(texts) or None


def parse_scope(texts: Sequence[str]) -> dict[str, str] | str:
    """ "base", or "encoder=base" by source."""
    pairs = [text.rpartition("=") for text in texts]
    if len(texts) < 2 and not any(source for source, _, _ in pairs):
        return "".join(texts)
    if not all(source for source, _, _ in pairs):
        raise InvalidArgument(
            f"--scope {' --scope '.join(texts)}: write one NAME, or SOURCE=NAME for each source"
        )
    return {source: name for source, _, name in pairs}


def parse_state(
    texts: Sequence[str], capacity: int | None, dims: Mapping[str, int]
) -> State | None:
    """ "past_present", "carried:cache", "carried:cache:result.0", or any number of
    "hidden_out=hidden_in" (result and argument); None without any, whose `capacity` is not that
    of state."""
    from ingot.compiler import state

    if not texts:
        if dims:
            raise InvalidArgument("--state-dim says how --state is kept; give it too")
        return None
    kind, *names = texts[0].split(":")
    pairs = dict(text.partition("=")[::2] for text in texts)
    if len(texts) == 1 and kind == "past_present" and not names:
        return state.past_present(capacity=capacity, dims=dims)
    if len(texts) == 1 and kind == "carried" and len(names) in (1, 2):
        return state.carried(*names, capacity=capacity, dims=dims)
    if len(pairs) == len(texts) and all(pairs) and all(pairs.values()):
        return state.named(pairs, capacity=capacity, dims=dims)
    raise InvalidArgument(
        f"--state {' '.join(texts)}: write past_present, carried:ARGUMENT, "
        "carried:ARGUMENT:RESULT, or RESULT=ARGUMENT as often as there is state"
    )
