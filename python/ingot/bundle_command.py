"""The subcommand `ingot bundle`."""

from __future__ import annotations

import argparse
from typing import Any

from ingot.command_line import add_command, say
from ingot.compile_options import (
    add_outputs,
    add_shape_options,
    add_weight_options,
    compile_arguments,
    parse_sources,
)
from ingot.hal.printable import size_text

__all__ = ["add_bundle"]


def add_bundle(commands: Any) -> None:
    parser = add_command(
        commands, "bundle", _run_bundle, "write a model as C that a program is linked with"
    )
    parser.add_argument(
        "model", nargs="+", help="a file made by `ingot compile`, or as of `ingot compile`"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the bundle's folder")
    parser.add_argument(
        "--platform",
        metavar="NAME",
        help="android, ios, raspberry-pi or server, a variant such as aarch64, or a board: "
        "cortex-m3, cortex-m4, cortex-m7 (this machine)",
    )
    parser.add_argument(
        "--sources", action="store_true", help="the kernels as C, which the program compiles"
    )
    parser.add_argument("--name", help="what names in C begin with (the name of the model's file)")
    parser.add_argument(
        "--strip-messages",
        action="store_true",
        help="failures have a code only, which makes programs smaller",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the example: as in `ingot run`",
    )
    add_outputs(parser)
    add_weight_options(parser)
    add_shape_options(parser)


def _run_bundle(options: argparse.Namespace) -> None:
    import ingot
    from ingot.progress import show_progress

    usual = (None, "", "f32", "embedded")
    given = {name: each for name, each in compile_arguments(options).items() if each not in usual}
    with show_progress(f"bundling {' '.join(options.model)}") as progress:
        files = ingot.bundle(
            parse_sources(options.model),
            options.output,
            name=options.name,
            platform=options.platform,
            sources=options.sources,
            strip_messages=options.strip_messages,
            inputs=options.input,
            progress=progress,
            **given,
        )
    length = size_text(sum(files.values()))
    say(f"{options.output}: {len(files)} files, {length}; `make` builds an example")
