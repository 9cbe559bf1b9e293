"""The subcommands that keep a call and make it again elsewhere: record, replay."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ingot.call_commands import (
    add_debug_options,
    add_model_options,
    debug_function,
    is_debugged,
    load_function,
)
from ingot.command_line import (
    add_command,
    add_parameters,
    count,
    parse_parameters,
    say,
    seconds,
)
from ingot.hal.errors import Error, InvalidArgument
from ingot.hal.printable import size_text
from ingot.native_file import add_natives, read_natives

if TYPE_CHECKING:
    from ingot.runtime.model import Model
    from ingot.runtime.recorded_call import Outcome, RecordedCall
    from ingot.runtime.signature import Value

__all__ = ["add_record", "add_replay"]


def add_record(commands: Any) -> None:
    parser = add_command(
        commands, "record", _run_record, "keep one call in a file, for `ingot replay`"
    )
    add_model_options(parser)
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE", help="as in `ingot run`"
    )
    parser.add_argument(
        "--state", metavar="FILE", help="the state before the call: a file of save_state, or .npz"
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="how long the call may take"
    )
    parser.add_argument(
        "--with-weights",
        action="store_true",
        help="put weights, and modules of any size, into the file; else it has their paths and "
        "hashes",
    )
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the file")


def _run_record(options: argparse.Namespace) -> None:
    from ingot.inputs import read_inputs

    model, function = load_function(options)
    inputs = read_inputs(options.input, function.signature)
    if options.state is not None:
        model.load_state(options.state)
    recording = model.record(options.output, with_weights=options.with_weights)
    recording.is_watched = True
    failure = None
    try:
        function.call(timeout=options.timeout, **inputs)
    except Error as error:
        if not recording.is_over:
            raise
        failure = error
    if recording.error is not None:
        raise recording.error
    what = "a call" if failure is None else f"a call that failed ({failure})"
    say(f"{options.output}: {what} of {function.signature}")


def add_replay(commands: Any) -> None:
    parser = add_command(
        commands, "replay", _run_replay, "make a recorded call again, and compare what it gives"
    )
    parser.add_argument("call", metavar="CALL", help="a file of `ingot record` or model.record")
    parser.add_argument("--device", help="where to run it (where it ran)")
    parser.add_argument("--threads", type=count, help="threads of the CPU (all that it may use)")
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="a module in the place of the one that was called, such as one compiled anew",
    )
    add_parameters(parser)
    add_natives(parser)
    parser.add_argument(
        "--repeat", type=count, default=1, metavar="N", help="calls, each from the state before it"
    )
    parser.add_argument(
        "--check", action="store_true", help="fail if it gives something else than it did"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        help="largest difference allowed, relative to the largest element (1e-4 for f32, 0 for "
        "integers)",
    )
    parser.add_argument(
        "--profile", action="store_true", help="show the time of every kernel, slowest first"
    )
    parser.add_argument("--trace", metavar="FILE.json", help="write a timeline of the calls")
    add_debug_options(parser)


def _run_replay(options: argparse.Namespace) -> None:
    from ingot.checking import Mismatch
    from ingot.runtime.recorded_call import read_call

    call = read_call(options.call)
    say("\n".join(_facts(call)))
    modules = _parse_modules(options.module)
    model = call.load(
        device=options.device,
        threads=options.threads,
        modules=modules,
        parameters=parse_parameters(options.parameters),
        natives=read_natives(options.natives).functions,
    )
    say(f"now on {_device(model)}")
    if is_debugged(options):
        _debug(options, call, model, modules)
        return
    outcomes = _call_again(options, call, model)
    rows = list(_compare(call, model, outcomes[0], options.tolerance))
    say("\n".join(line for line, _ in rows))
    say(_times(call, [each.seconds for each in outcomes]))
    wrong = [line for line, is_same in rows if not is_same]
    if options.check and wrong:
        raise Mismatch(f"the call does not give what it gave: {wrong[0]}")


def _parse_modules(texts: list[str]) -> dict[str, str]:
    parts = (text.partition("=") for text in texts)
    named = (
        (*each,) if each[0].isidentifier() and each[1] else ("", "", "".join(each))
        for each in parts
    )
    return {name: path for name, _, path in named}


def _facts(call: RecordedCall) -> Iterator[str]:
    facts = call.facts
    yield f"{call.path}: recorded {facts['time']} by Ingot {facts['ingot']}"
    yield facts["signature"]
    for row in facts["arguments"]:
        yield f"  {row['name']}: {_shape(call.arguments[row['name']], row['dtype'])}"
    if call.state is not None:
        yield f"  state of {size_text(len(call.state))}"
    for row in (*facts["modules"], *facts["weights"]):
        inside = row.get("file") or row.get("files")
        size = f" of {size_text(row['length'])}" if "length" in row else ""
        kind = "module" if "length" in row else "weights"
        yield f"  {kind}{size} {'in the file' if inside else 'at ' + str(row['path'])}"
    if facts["natives"]:
        yield f"  native functions (--natives): {', '.join(facts['natives'])}"
    device, machine = facts["device"], facts["machine"]
    yield f"then on {device['uri']}: {device['description']}, {machine['system']}"


def _shape(value: Any, dtype: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"[{', '.join(_shape(each, dtype) for each in value)}]"
    return f"{dtype}[{','.join(map(str, value.shape))}]"


def _device(model: Model) -> str:
    from ingot.hal.device import open_device

    return f"{model.device}: {open_device(model.device).description}"


def _debug(
    options: argparse.Namespace, call: RecordedCall, model: Model, modules: Mapping[str, str]
) -> None:
    from ingot.compiler.vm.read_module import read_module
    from ingot.inspection import read_file

    sources = call.modules(modules)
    if list(sources) != [""]:
        raise InvalidArgument("the debugger is for calls of one module; this one is of several")
    source = sources[""]
    contents = read_module(source) if isinstance(source, bytes) else read_file(source)[1]
    function = model.functions[call.function].tensors
    results = debug_function(options, contents, model, function, call.arguments)
    if results is None:
        say("the call was ended")
        return
    for name, array in results.items():
        say(f"{name} = {array}")


def _call_again(options: argparse.Namespace, call: RecordedCall, model: Model) -> list[Outcome]:
    from ingot.timing import profile_calls, profile_lines

    is_traced = options.profile or options.trace is not None
    trace = model.trace() if is_traced else None
    outcomes = []
    with nullcontext() if trace is None else trace:
        for _ in range(options.repeat):
            call.restore(model)
            outcomes.append(call.run(model))
    if trace is not None and options.trace is not None:
        trace.save(options.trace)
    if trace is not None and options.profile:
        say("\n".join(profile_lines(profile_calls(trace))))
    return outcomes


def _compare(
    call: RecordedCall, model: Model, now: Outcome, tolerance: float | None
) -> Iterator[tuple[str, bool]]:
    """A line for every result, or for the error, and whether it is the same."""
    then = call.outcome
    if then.error is not None or now.error is not None:
        before, after = (": ".join(each.error) if each.error else "" for each in (then, now))
        if before == after:
            yield f"fails as it did: {after}", True
            return
        is_same = then.error is not None and now.error is not None and then.error[0] == now.error[0]
        yield f"then {before or 'it succeeded'}; now {after or 'it succeeds'}", is_same
    elif then.results is None or now.results is None:
        yield "what it gave was not recorded", True
    else:
        for value in model.functions[call.function].signature.results:
            if value.name in then.results:
                before, after = then.results[value.name], now.results[value.name]
                yield _difference(value, before, after, tolerance)
            else:
                yield f"{value.name}: it had no such result", False


def _difference(value: Value, then: Any, now: Any, tolerance: float | None) -> tuple[str, bool]:
    from ingot.checked_run import relative_error
    from ingot.hal.decode import decode, storage_dtype
    from ingot.runtime.recording import stored

    shapes = [_shape(each, value.dtype) for each in (then, now)]
    if shapes[0] != shapes[1]:
        return f"{value.name}: {shapes[1]}, but it was {shapes[0]}", False
    parts = [
        [stored(each, value.dtype, value.name) for each in _parts(whole)] for whole in (then, now)
    ]
    if all(a.tobytes() == b.tobytes() for a, b in zip(*parts, strict=True)):
        return f"{value.name}: the same bits", True
    numbers = (
        [decode(each.view(storage_dtype(value.dtype)), value.dtype) for each in pair]
        for pair in zip(*parts, strict=True)
    )
    error = max(relative_error(b, a) for a, b in numbers)
    allowed = value.dtype.tolerance if tolerance is None else tolerance
    of = "of the largest element"
    return f"{value.name}: differs by {error:.2g} {of}, {allowed:.2g} is allowed", error <= allowed


def _parts(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _times(call: RecordedCall, times: list[float]) -> str:
    from ingot.timing import duration

    line = f"{duration(call.outcome.seconds)} then, {duration(times[0])} now"
    if len(times) == 1:
        return line
    median, minimum = statistics.median(times), min(times)
    return f"{line}; {len(times)} calls: median {duration(median)}, minimum {duration(minimum)}"
