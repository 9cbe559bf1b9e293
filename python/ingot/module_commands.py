"""The subcommands that look into module files: inspect, explore, strip."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ingot.command_line import add_command, add_dim, add_json, say

__all__ = ["add_explore", "add_inspect", "add_strip"]


def add_inspect(commands: Any) -> None:
    parser = add_command(commands, "inspect", _run_inspect, "show what is in a module file")
    parser.add_argument("module", metavar="MODULE", help="a file made by `ingot compile`")
    parser.add_argument("--code", action="store_true", help="show the instructions too")
    parser.add_argument(
        "--verify", action="store_true", help="check all checksums and instructions"
    )
    add_dim(parser, "a size at which to show the peak memory")
    add_json(parser)


def _run_inspect(options: argparse.Namespace) -> None:
    from ingot.inputs import parse_dims
    from ingot.inspection import describe_module, inspect_report
    from ingot.reports import to_json

    dims = parse_dims(options.dim) or None
    if options.json:
        fields = inspect_report(options.module, code=options.code, verify=options.verify, dims=dims)
        print(to_json("inspect", fields))
        return
    say(describe_module(options.module, code=options.code, verify=options.verify, dims=dims))


def add_explore(commands: Any) -> None:
    parser = add_command(
        commands, "explore", _run_explore, "make a page that shows what a module does, as one file"
    )
    parser.add_argument("module", metavar="MODULE", help="made by `ingot compile --debug`")
    parser.add_argument(
        "--trace", metavar="FILE.json", help="times of its calls, from `ingot bench --trace`"
    )
    parser.add_argument("--against", metavar="MODULE", help="another module, to be shown beside it")
    add_dim(parser, "a size with which the page begins")
    parser.add_argument(
        "-o", "--output", default="explorer.html", metavar="PAGE", help="the page (%(default)s)"
    )


def _run_explore(options: argparse.Namespace) -> None:
    import ingot
    from ingot.inputs import parse_dims

    ingot.explore(
        options.module,
        options.output,
        trace=options.trace,
        against=options.against,
        dims=parse_dims(options.dim),
    )
    say(f"{options.output}: {Path(options.output).stat().st_size / 1e3:.1f} KB, for a browser")


def add_strip(commands: Any) -> None:
    parser = add_command(commands, "strip", _run_strip, "take out of a module what only tools read")
    parser.add_argument("module", metavar="MODULE", help="a file made by `ingot compile`")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the smaller module")


def _run_strip(options: argparse.Namespace) -> None:
    from ingot.compiler.vm.write_module import strip_module
    from ingot.hal.whole_file import write_whole
    from ingot.inspection import read_file

    data, _ = read_file(options.module, verify=True)
    stripped = strip_module(data)
    write_whole(options.output, lambda file: file.write(stripped))
    say(f"{options.output}: {len(stripped) / 1e3:.1f} KB of {len(data) / 1e3:.1f} KB")
