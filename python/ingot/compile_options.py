"""The options of `ingot compile` and `ingot bundle` for a source, and what they say beyond plain
values: sources, hot values, state."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ingot.command_line import count, is_size, parse_dims
from ingot.hal.errors import InvalidArgument

if TYPE_CHECKING:
    from ingot.compiler.state import State

__all__ = [
    "add_outputs",
    "add_precision",
    "add_shape_options",
    "add_weight_options",
    "compile_arguments",
    "parse_length",
    "parse_lora",
    "parse_scope",
    "parse_sources",
    "parse_specialize",
    "parse_state",
]


_LENGTH = re.compile(r"(?P<number>\d{1,15}(\.\d{1,9})?) ?((?P<unit>[KMGkmg])(?P<binary>i)?)?[Bb]?")


def add_weight_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parameters",
        choices=("embedded", "external"),
        default="embedded",
        help="weights go into the module, or are given when it is loaded (%(default)s)",
    )
    parser.add_argument(
        "--scope",
        action="append",
        default=[],
        metavar="[SOURCE=]NAME",
        help="what these parameters are of, of a source or of all; each scope has its own files",
    )
    parser.add_argument(
        "--lora",
        action="append",
        default=[],
        metavar="RANK|ADAPTER",
        help="room for adapters (LoRA) of a language model: a rank, or those that are to fit",
    )
    add_precision(parser)


def add_precision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precision",
        default="f32",
        metavar="NAME",
        help="of what meets weights: f32 as it is; int8, rounded to 8 bits where weights are "
        "quantised in groups; bf16 or f16, as are the weights then, in half the bytes; or f32 made "
        "of three or six products of bf16 where processors multiply tiles of these: bf16x3, bf16x6 "
        "(%(default)s)",
    )


def add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--outputs",
        type=lambda text: text.split(","),
        metavar="NAMES",
        help="values of an ONNX graph that are the results, such as logits,hidden; what these do "
        "not need is left out",
    )


def add_shape_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--specialize",
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="sizes of a dim, such as s=1,128, for which to add kernels of their own",
    )
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="what the model keeps from call to call: past_present, carried:ARGUMENT, "
        "carried:ARGUMENT:RESULT, or RESULT=ARGUMENT as often as there is state",
    )
    parser.add_argument(
        "--capacity",
        type=count,
        help="room of caches that are state, or of a language model's cache, in steps",
    )
    parser.add_argument(
        "--cache",
        default="f32",
        metavar="TYPE",
        help="of a language model: f32, or f16 (%(default)s)",
    )
    parser.add_argument(
        "--weights",
        metavar="TYPE",
        help="int8 or int4: what weights of a folder with config.json become when they are loaded",
    )
    parser.add_argument(
        "--state-dim",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="the size of a dim that state has, such as batch=1",
    )


def compile_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """What these options are to `ingot.compile`."""
    state_dims = parse_dims(options.state_dim, "--state-dim")
    return {
        "outputs": options.outputs,
        "state": parse_state(options.state, options.capacity, state_dims),
        "capacity": None if options.state else options.capacity,
        "cache": options.cache,
        "weights": options.weights,
        "specialize": parse_specialize(options.specialize),
        "precision": options.precision,
        "parameters": options.parameters,
        "scope": parse_scope(options.scope),
        "lora": parse_lora(options.lora),
    }


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
