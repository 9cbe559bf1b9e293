"""The `ingot` command: compile, run, measure and look into models.

Here are its options and what it prints; the work is done elsewhere.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ingot.bundle_command import add_bundle
from ingot.call_commands import add_bench, add_run
from ingot.command_line import (
    add_command,
    add_dim,
    add_json,
    add_parameters,
    parse_dims,
    parse_parameters,
    say,
)
from ingot.compile_options import (
    add_outputs,
    add_precision,
    add_shape_options,
    add_weight_options,
    parse_length,
)
from ingot.hal.errors import CompileError, Error, InvalidArgument
from ingot.hal.printable import json_escape, printable, size_text
from ingot.hal.whole_file import write_whole
from ingot.language.chat import add_chat
from ingot.module_commands import add_asm, add_dis, add_explore, add_inspect, add_pack, add_strip
from ingot.native_file import add_natives, read_natives
from ingot.quantize_command import add_quantize
from ingot.record_commands import add_record, add_replay

if TYPE_CHECKING:
    from ingot.checked_run import Comparison
    from ingot.compiler.module import Module

__all__ = ["main", "make_parser"]

_SOURCES = (
    "an .onnx, .pt2, .tflite or .gguf file, StableHLO as an artifact or text, a language model's "
    "folder, or Ingot IR text"
)
_EXIT_FAILED = 1
_EXIT_WRONG_USE = 2
_EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed before this process began
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    parser = make_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.prog += f" {options.command}"  # whose help lists what there is
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    with suppress(ValueError):  # this is not the main thread
        # what is left ends what it has begun, such as C compilers
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        options.run(options)
        sys.stdout.flush()
    except (Error, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our output has seen enough; nothing more can be written.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        say(f"ingot {options.command}: {_told(error)}", file=sys.stderr)
        return _EXIT_FAILED
    except KeyboardInterrupt:
        print(f"ingot {options.command}: interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED
    return 0


def _told(error: Error | OSError) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f"'{error.filename}'" if error.filename else "the output"
        return f"cannot write {where}: the disk is full; make room, or write to another one"
    kind = "" if isinstance(error, (CompileError, OSError)) else f"{type(error).__name__}: "
    return f"{kind}{error}"


class _Parser(argparse.ArgumentParser):
    """Answers wrong use with one line that says what to do. Options have one spelling."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        text = f"{self.prog}: {message}; `{self.prog} --help` shows how"
        print(printable(text), file=sys.stderr)
        sys.exit(_EXIT_WRONG_USE)


class _Version(argparse.Action):
    """Reads the version only if it is asked for."""

    def __call__(self, *_: object) -> NoReturn:
        import ingot

        print(f"ingot {ingot.__version__}")
        sys.exit(0)


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ingot",
        description="Compile a machine-learning model once into a small module, "
        "and run it anywhere.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        _add_compile,
        add_quantize,
        add_bundle,
        add_run,
        add_bench,
        add_record,
        add_replay,
        add_chat,
        add_inspect,
        add_explore,
        add_strip,
        add_pack,
        add_dis,
        add_asm,
        _add_check,
        _add_bisect,
        _add_coverage,
        _add_opt,
    ):
        add(commands)
    _add_cache(commands)
    add_json(add_command(commands, "devices", _run_devices, "list the devices of this machine"))
    return parser


def _add_compile(commands: Any) -> None:
    parser = add_command(commands, "compile", _run_compile, "compile a model into a module file")
    parser.add_argument(
        "model",
        nargs="+",
        help=f"{_SOURCES}; NAME=FILE of each for a module of several functions",
    )
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the module file")
    _add_machines(parser)
    add_outputs(parser)
    add_weight_options(parser)
    add_shape_options(parser)
    parser.add_argument(
        "--debug",
        action="store_true",
        help="keep what the module was made of in it, for `ingot explore`",
    )
    parser.add_argument("--dump-ir", metavar="DIR", help="write the IR after every pass there")
    parser.add_argument("--report", action="store_true", help="say what was made, and how long")
    add_json(parser, "print the report")
    parser.add_argument(
        "--memory",
        type=parse_length,
        metavar="LENGTH",
        help="fail if a call may need more working memory, such as 64MB, and say what holds it",
    )
    add_dim(parser, "a size at which to report, and for which --memory is enough")
    add_natives(parser)
    parser.add_argument(
        "--module-version",
        type=int,
        default=0,
        metavar="NUMBER",
        help="the version of this module, for modules that call it (%(default)s)",
    )
    parser.add_argument(
        "--requires",
        action="append",
        default=[],
        metavar="MODULE=NUMBER",
        help="the least version of a module that this one calls",
    )


def _add_machines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        default="cpu",
        metavar="NAMES",
        help="devices to compile for: cpu, opencl, or cpu,opencl (%(default)s)",
    )
    parser.add_argument(
        "--no-fallback",
        action="store_true",
        help="leave out the plain C beside OpenCL kernels, which runs where a device lacks or "
        "fails one",
    )
    parser.add_argument(
        "--variants",
        metavar="NAMES",
        help="machines to make native code for, best first: variants such as x86-64-v4,aarch64, "
        "and platforms, which are sets of them: android, ios, raspberry-pi, browser, server "
        "(what suits this machine)",
    )


def _run_compile(options: argparse.Namespace) -> None:
    import ingot
    from ingot.compile_options import compile_arguments, parse_sources
    from ingot.progress import show_progress

    begin = time.perf_counter()
    dims = parse_dims(options.dim)
    own = read_natives(options.natives)
    with show_progress(f"compiling {' '.join(options.model)}") as progress:
        module = ingot.compile(
            parse_sources(options.model),
            **compile_arguments(options),
            target=options.target.split(","),
            variants=options.variants.split(",") if options.variants else None,
            fallback=not options.no_fallback,
            natives=own.declared,
            kernels=own.kernels,
            version=options.module_version,
            requires=parse_dims(options.requires, "--requires"),
            debug=options.debug,
            dump_ir=options.dump_ir,
            progress=progress,
        )
        module.report.known_sizes(dims)
        if options.memory is not None:
            module.report.check_memory(options.memory, dims)
        module.save(options.output)
    _say_compiled(options, module, time.perf_counter() - begin, dims)


def _say_compiled(
    options: argparse.Namespace, module: Module, seconds: float, dims: Mapping[str, int]
) -> None:
    if options.json:
        from ingot.reports import compile_report, to_json

        fields = compile_report(options.output, len(module), seconds, module.report, dims)
        print(to_json("compile", fields))
        return
    say(f"{options.output}: {_made(module)}, in {seconds:.1f} s")
    if options.report:
        say(module.report.text(dims))
        return
    for name, report in module.report.targets.items():
        for line in report.host_lines():
            say(f"{name}: {line}")


def _made(module: Module) -> str:
    """`12.3 KB for cpu (x86-64-v4, x86-64-v3) and opencl (opencl-c, generic)`"""
    targets = []
    for name, report in module.report.targets.items():
        variants = f" ({', '.join(report.object_lengths)})" if report.object_lengths else ""
        targets.append(name + variants)
    return f"{size_text(len(module))} for {' and '.join(targets)}"


def _add_check(commands: Any) -> None:
    parser = add_command(
        commands, "check", _run_check, "compare a compiled model with its reference"
    )
    _add_comparison(parser)
    parser.add_argument(
        "--case", metavar="FOLDER", help="where the first wrong dispatch goes, as a small program"
    )
    add_json(parser)


def _add_comparison(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help=_SOURCES)
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE", help="as in `ingot run`"
    )
    add_outputs(parser)
    add_precision(parser)
    add_dim(parser, "the size of a dim that the model leaves open (1)")
    parser.add_argument(
        "--tolerance",
        type=_number,
        help="largest error allowed, relative to the largest value (of a dispatch what the op "
        "table says, of a result 1e-4 for f32, .001 with --precision bf16x3, .05 where it rounds)",
    )
    add_parameters(parser)
    parser.add_argument("--device", default="cpu", help="whose kernels to check (%(default)s)")
    add_natives(parser)


def _number(text: str) -> float:
    number = float(text)
    if number != number:
        raise ValueError("nan is no tolerance: nothing is more than it")
    return number


def _comparison(options: argparse.Namespace, progress: Callable[[str], None]) -> Comparison:
    from ingot.checked_run import Comparison

    return Comparison(
        options.model,
        options.input,
        parse_dims(options.dim),
        options.tolerance,
        progress,
        parse_parameters(options.parameters),
        options.device,
        options.outputs,
        read_natives(options.natives),
        options.precision,
    )


def _run_check(options: argparse.Namespace) -> None:
    from ingot.checking import Mismatch, compare_model
    from ingot.progress import show_progress
    from ingot.reports import check_report, to_json

    with show_progress(f"checking {options.model}") as progress:
        report = compare_model(_comparison(options, progress), options.case)
    if options.json:
        print(to_json("check", check_report(options.model, options.device, report)))
    if report.problem:
        raise Mismatch(report.problem if options.json else report.failure)
    if not options.json:
        say("\n".join(report.lines()))


def _add_bisect(commands: Any) -> None:
    parser = add_command(commands, "bisect", _run_bisect, "say the error of every layer of a model")
    _add_comparison(parser)
    parser.add_argument(
        "--against",
        default="reference",
        metavar="WHAT",
        help="reference, onnxruntime (of an .onnx file), jax (of a StableHLO artifact), or another "
        "device, such as opencl (%(default)s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="where a picture of the errors goes, and the first wrong dispatch as a small program",
    )
    add_json(parser)


def _run_bisect(options: argparse.Namespace) -> None:
    from ingot.bisecting import bisect_model
    from ingot.checking import Mismatch
    from ingot.error_picture import write_picture
    from ingot.progress import show_progress
    from ingot.reports import bisect_report, to_json

    with show_progress(f"comparing {options.model}") as progress:
        found = bisect_model(_comparison(options, progress), options.against, options.output)
    if options.output:
        write_picture(options.output, found, options.model)
    if options.json:
        print(to_json("bisect", bisect_report(options.model, options.device, found)))
    else:
        say("\n".join(found.lines()))
    if found.first_wrong is not None:
        raise Mismatch(found.summary)


def _add_coverage(commands: Any) -> None:
    parser = add_command(
        commands, "coverage", _run_coverage, "say which ops of a model each target takes"
    )
    parser.add_argument("model", nargs="+", help=_SOURCES)
    parser.add_argument(
        "--target",
        default="cpu,opencl",
        metavar="NAMES",
        help="devices to look at: cpu, opencl, or cpu,opencl (%(default)s)",
    )
    add_json(parser)


def _run_coverage(options: argparse.Namespace) -> None:
    from ingot.compiler.coverage import survey_source
    from ingot.coverage import coverage_lines
    from ingot.progress import show_progress
    from ingot.reports import coverage_report, to_json

    found = {}
    for path in options.model:
        with show_progress(f"looking at {path}") as progress:
            found[path] = survey_source(path, options.target.split(","), progress)
    if options.json:
        print(to_json("coverage", coverage_report(found)))
    else:
        say("\n\n".join("\n".join(coverage_lines(*pair)) for pair in found.items()))
    if wrong := [path for path, each in found.items() if each.problems]:
        raise CompileError(f"{', '.join(wrong)}: not everything can be compiled, as listed")


def _add_opt(commands: Any) -> None:
    parser = add_command(commands, "opt", _run_opt, "run single passes of the compiler, as text")
    parser.add_argument("model", help="Ingot IR text, or any model that can be compiled")
    parser.add_argument(
        "--pass",
        action="append",
        default=[],
        dest="passes",
        metavar="NAME",
        help="a pass to run; several run in their order. Without any the model is only read",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where the text goes")


def _run_opt(options: argparse.Namespace) -> None:
    from ingot.compiler.graph.passes import GRAPH_PASSES
    from ingot.compiler.ir import to_text
    from ingot.compiler.pipeline import DISPATCH_PASSES, QUEUE_PASSES
    from ingot.compiler.read_source import read_source

    known = (*GRAPH_PASSES, *QUEUE_PASSES, *DISPATCH_PASSES)
    passes = {each.__name__: each for each in known}
    unknown = [name for name in options.passes if name not in passes]
    if unknown:
        raise InvalidArgument(f"no pass is called {unknown[0]!r}; the passes are: {_list(passes)}")
    module = read_source(options.model)
    for name in options.passes:
        module = passes[name](module)
    text = to_text(module)
    if options.output:
        write_whole(options.output, lambda file: file.write(text.encode()))
    else:
        # The text stays what it was: what cannot be printed stands in its strings only.
        print("\n".join(printable(line, escape=json_escape) for line in text.split("\n")), end="")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def _add_cache(commands: Any) -> None:
    parser = add_command(
        commands,
        "cache",
        _run_cache,
        "show the folder of kernels and shared weights, or make it smaller",
    )
    parser.add_argument(
        "--trim",
        type=parse_length,
        metavar="LENGTH",
        help="remove what was not used for longest until no more is left, such as 100MB, or 0 for "
        "all of it",
    )
    add_json(parser)


def _run_cache(options: argparse.Namespace) -> None:
    from ingot.hal.file_cache import default_cache
    from ingot.reports import cache_report, to_json

    cache = default_cache()
    if options.trim is not None:
        cache.trim(options.trim)
    report = cache_report(cache)
    if options.json:
        print(to_json("cache", report))
    elif cache.folder is None:
        say("there is no folder that only you can write; set INGOT_CACHE to one")
    else:
        count, length = report["files"], size_text(report["length"])
        say(f"{cache.folder}: {count} file{'' if count == 1 else 's'}, {length}")


def _run_devices(options: argparse.Namespace) -> None:
    import ingot

    if options.json:
        from ingot.reports import devices_report, to_json

        print(to_json("devices", devices_report(ingot.devices())))
        return
    from ingot.machine import variants_of

    for device in ingot.devices():
        say(f"{device.uri:<12} {device.description}")
        if variants := variants_of(device):
            say(f"{'':<12} runs, best first: {', '.join(variants)}")
