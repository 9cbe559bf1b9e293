"""The subcommands that look into module files: inspect, explore, strip, dis, asm."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ingot.command_line import (
    add_command,
    add_dim,
    add_json,
    add_parameters,
    parse_dims,
    parse_parameters,
    say,
)
from ingot.hal.printable import size_text

__all__ = ["add_asm", "add_dis", "add_explore", "add_inspect", "add_pack", "add_strip"]


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

    ingot.explore(
        options.module,
        options.output,
        trace=options.trace,
        against=options.against,
        dims=parse_dims(options.dim),
    )
    say(f"{options.output}: {size_text(Path(options.output).stat().st_size)}, for a browser")


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
    say(f"{options.output}: {size_text(len(stripped))} of {size_text(len(data))}")


def add_pack(commands: Any) -> None:
    parser = add_command(
        commands,
        "pack",
        _run_pack,
        "prepare the weights of a module once, in a file that all processes share",
    )
    parser.add_argument("module", metavar="MODULE", help="a file made by `ingot compile`")
    parser.add_argument("--device", default="cpu", help="whose kernels prepare them (%(default)s)")
    add_parameters(parser)
    parser.add_argument("--scope", metavar="NAME", help="only the parameters of this scope")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="for `ingot run --parameters FILE`"
    )


def _run_pack(options: argparse.Namespace) -> None:
    import ingot

    parameters = parse_parameters(options.parameters)
    model = ingot.load(options.module, device=options.device, parameters=parameters)
    model.save_weights(options.output, scope=options.scope)
    say(f"{options.output}: {size_text(Path(options.output).stat().st_size)}")


def add_dis(commands: Any) -> None:
    parser = add_command(commands, "dis", _run_dis, "write a module as text, for `ingot asm`")
    parser.add_argument("module", metavar="MODULE", help="a file made by `ingot compile`")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where the text goes, with weights and machine code in it; without it the text is "
        "printed, with their hashes in their place",
    )
    parser.add_argument(
        "--hashes",
        action="store_true",
        help="write hashes into FILE too, for `ingot asm --from MODULE`",
    )


def _run_dis(options: argparse.Namespace) -> None:
    from ingot.compiler.vm.write_assembly import assembly_text
    from ingot.hal.whole_file import write_whole
    from ingot.inspection import read_file

    data, contents = read_file(options.module, verify=True)
    text = assembly_text(contents, embed=options.output is not None and not options.hashes)
    if options.output is None:
        print(text, end="")
        return
    write_whole(options.output, lambda file: file.write(text.encode()))
    say(f"{options.output}: {size_text(len(text))} of text for {size_text(len(data))}")


def add_asm(commands: Any) -> None:
    parser = add_command(commands, "asm", _run_asm, "make a module of what `ingot dis` wrote")
    parser.add_argument("text", metavar="FILE", help="the text of a module (docs/debugging.md)")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the module file")
    parser.add_argument(
        "--from",
        dest="origin",
        metavar="MODULE",
        help="the module that has the bytes whose hashes stand in FILE",
    )


def _run_asm(options: argparse.Namespace) -> None:
    from ingot.assembling import assemble_file
    from ingot.hal.whole_file import write_whole

    module = assemble_file(options.text, options.origin)
    write_whole(options.output, lambda file: file.write(module))
    say(f"{options.output}: {size_text(len(module))}")
