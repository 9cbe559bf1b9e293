"""What all subcommands of `ingot` share: how they are added, and how they print."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from ingot.hal.errors import InvalidArgument
from ingot.hal.printable import printable

__all__ = [
    "add_command",
    "add_dim",
    "add_json",
    "add_parameters",
    "count",
    "is_size",
    "parse_dims",
    "parse_parameters",
    "say",
    "seconds",
]


def say(text: object, file: TextIO | None = None) -> None:
    """Prints lines of text in which no name from a source or file acts on the terminal."""
    print("\n".join(map(printable, str(text).split("\n"))), file=file)


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], summary: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + "."
    )
    parser.set_defaults(run=run)
    return parser


def add_json(parser: argparse.ArgumentParser, what: str = "print everything") -> None:
    parser.add_argument("--json", action="store_true", help=f"{what} as JSON (docs/reports.md)")


def add_dim(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help=f"{what}, such as batch=8; once for every dim",
    )


def add_parameters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parameters",
        action="append",
        metavar="[SCOPE=]FILE",
        help="weights: a safetensors file or index.json, a GGUF or npz file, a model's folder, a "
        "zarr archive, or what `ingot pack` wrote; of several the first that has a tensor gives it",
    )


def parse_dims(texts: Sequence[str], option: str = "--dim") -> dict[str, int]:
    """The texts of an option, such as "batch=8", as sizes by name."""
    sizes = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not is_size(size):
            raise InvalidArgument(f"{option} {text}: write NAME=SIZE, such as {option} batch=8")
        sizes[name] = int(size)
    return sizes


def is_size(text: str) -> bool:
    """Whether it is the size of a dim, which 64 bits hold."""
    return text.isdecimal() and len(text) <= 18


def parse_parameters(texts: list[str] | None) -> Any:
    """What `ingot.load` takes, of the texts of --parameters."""
    parsed: list[Any] = []
    for text in texts or ():
        scope, equals, path = text.partition("=")
        is_scoped = equals and re.fullmatch(r"\w+", scope) and not os.path.exists(text)
        parsed.append({scope: path} if is_scoped else text)
    return parsed[0] if len(parsed) == 1 else parsed or None


def count(text: str) -> int:
    """For the type of an option."""
    if not re.fullmatch(r"0*[1-9]\d{0,17}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no count, such as 8")
    return int(text)


def seconds(text: str) -> float:
    """For the type of an option."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds, such as 0.5")
    return number
