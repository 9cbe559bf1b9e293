"""The subcommands that call modules: run, bench."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ingot.command_line import (
    add_command,
    add_dim,
    add_json,
    add_parameters,
    count,
    parse_dims,
    parse_parameters,
    say,
    seconds,
)
from ingot.hal.errors import InvalidArgument
from ingot.native_file import add_natives, read_natives

if TYPE_CHECKING:
    from ingot.compiler.vm.contents import ModuleContents
    from ingot.runtime.function import Function
    from ingot.runtime.model import Model

__all__ = [
    "add_bench",
    "add_debug_options",
    "add_model_options",
    "add_run",
    "debug_function",
    "is_debugged",
    "load_function",
]


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What says which function of which module is called, and where."""
    parser.add_argument("module", metavar="MODULE", help="a file made by `ingot compile`")
    parser.add_argument("--function", default="main", help="the function to call (%(default)s)")
    parser.add_argument("--device", default="cpu", help="where to run it (%(default)s)")
    parser.add_argument("--threads", type=count, help="threads of the CPU (all that it may use)")
    add_parameters(parser)
    add_natives(parser)


def load_function(
    options: argparse.Namespace, timeout: float | None = None
) -> tuple[Model, Function]:
    """The model and the function that these options say."""
    import ingot

    model = ingot.load(
        options.module,
        device=options.device,
        threads=options.threads,
        parameters=parse_parameters(options.parameters),
        timeout=timeout,
        natives=read_natives(options.natives).functions,
    )
    if options.function not in model.functions:
        raise InvalidArgument(
            f"there is no function {options.function!r} in {options.module}; "
            f"its functions are: {', '.join(model.functions)}"
        )
    return model, model.functions[options.function]


def add_run(commands: Any) -> None:
    parser = add_command(commands, "run", _run_run, "run a module on inputs from files or text")
    add_model_options(parser)
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument: x=@x.npy, or x=[1,2,3]; xs=@a.npy,@b.npy is a sequence, y=none what an "
        "optional lacks; @all.npz gives all of them",
    )
    parser.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="where a result goes: y.npy in the order of the results, y=y.npy by name, or "
        "all.npz; without it the results are printed",
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="how long loading and running may take"
    )
    add_debug_options(parser)


def _run_run(options: argparse.Namespace) -> None:
    from ingot.inputs import read_inputs, write_outputs

    begin = time.monotonic()
    model, function = load_function(options, options.timeout)
    inputs = read_inputs(options.input, function.signature)
    rest = None
    if options.timeout is not None:
        rest = max(options.timeout - (time.monotonic() - begin), 1e-9)
    if not is_debugged(options):
        results = function.call(as_dict=True, timeout=rest, **inputs)
    else:
        from ingot.inspection import read_file

        _, contents = read_file(options.module)
        debugged = debug_function(options, contents, model, function, inputs, timeout=rest)
        if debugged is None:
            say("the call was ended")
            return
        results = debugged
    if options.output:
        write_outputs(options.output, results)
        return
    for name, array in results.items():
        say(f"{name} = {array}")


def add_debug_options(parser: argparse.ArgumentParser) -> None:
    """Those of the debugger."""
    group = parser.add_argument_group(
        "debugger", "commands are read from standard input; `help` lists them (docs/debugging.md)"
    )
    group.add_argument(
        "--break",
        dest="breakpoints",
        action="append",
        default=[],
        metavar="FUNCTION:LINE",
        help="stop there; LINE is the number of an instruction as `ingot dis` shows it, or a layer",
    )
    group.add_argument(
        "--print",
        dest="prints",
        action="append",
        default=[],
        metavar="REG",
        help="show it wherever the call stops: i0, f0, r0, r0+i1:i2 f32, or b0, a dispatch's "
        "binding 0",
    )
    group.add_argument("--step", action="store_true", help="stop before the first instruction")
    group.add_argument(
        "--trace-instructions",
        action="store_true",
        help="show every instruction and the numbers that it wrote",
    )


def is_debugged(options: argparse.Namespace) -> bool:
    """Whether the options ask for the debugger."""
    return bool(options.breakpoints or options.prints or options.step or options.trace_instructions)


def debug_function(
    options: argparse.Namespace,
    contents: ModuleContents,
    model: Model,
    function: Function,
    inputs: Mapping[str, Any],
    **limits: Any,
) -> dict[str, Any] | None:
    """The results of a call under the debugger; None if it was ended there."""
    from ingot.debugger import DebugOptions, debug_call

    asked = DebugOptions(
        options.breakpoints, options.prints, options.step, options.trace_instructions
    )
    return debug_call(model, function, contents, inputs, asked, **limits)


def add_bench(commands: Any) -> None:
    parser = add_command(commands, "bench", _run_bench, "measure the time of a call")
    add_model_options(parser)
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE", help="as in `ingot run`"
    )
    add_dim(parser, "the size of a dim that the module leaves open (1)")
    parser.add_argument(
        "--seconds", type=seconds, default=2.0, help="how long to measure (%(default)s)"
    )
    parser.add_argument(
        "--profile", action="store_true", help="show the time of every kernel, slowest first"
    )
    parser.add_argument(
        "--trace",
        metavar="FILE.json",
        help="write what some calls did, as a timeline that ui.perfetto.dev opens",
    )
    add_json(parser)


def _run_bench(options: argparse.Namespace) -> None:
    from ingot.inputs import random_inputs, read_inputs, sizes_of
    from ingot.timing import memory_line, profile_calls, profile_lines, time_calls, trace_calls

    model, function = load_function(options)
    signature = function.signature
    inputs = random_inputs(model, signature, parse_dims(options.dim))
    inputs |= read_inputs(options.input, signature)
    dims = sizes_of(signature, inputs)
    times = time_calls(function, inputs, options.seconds)
    is_traced = options.profile or options.trace is not None
    trace = trace_calls(model, function, inputs) if is_traced else None
    profile = profile_calls(trace) if trace is not None and options.profile else None
    if trace is not None and options.trace is not None:
        trace.save(options.trace)
    if options.json:
        from ingot.reports import bench_report, to_json

        fields = bench_report(options.module, model, function, dims, times, profile)
        print(to_json("bench", fields))
        return
    at = ", ".join(f"{name}={size}" for name, size in dims.items())
    say(f"{signature} at {at}" if at else signature)
    say(f"median {times.median_text}, minimum {times.minimum_text}, {times.count} calls")
    say(memory_line(model.statistics(program=True)))
    if profile is not None:
        say("\n".join(profile_lines(profile)))
