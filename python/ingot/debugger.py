"""The debugger of the VM: `ingot run --break FUNCTION:LINE`.

It stops before instructions and reads commands from standard input, to its end: then the call goes
on, and what --print names is shown wherever it stops.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.command_line import say
from ingot.compiler.vm.contents import FunctionContents, ModuleContents
from ingot.debug_views import Place, Views, parse_place
from ingot.explorer.facts import read_debug
from ingot.hal.errors import Cancelled, Error, InvalidArgument, NotFound
from ingot.runtime.debugging import Stop
from ingot.runtime.function import Function
from ingot.runtime.model import Model

__all__ = ["DebugOptions", "debug_call"]

_AROUND = 5  # lines that `list` shows on both sides
_SHOWN = 8  # names in a message
_NO_DEBUG = "the module has no debug section: make one with `ingot compile --debug`"
_HELP = """\
step [N]        s   run N instructions (1)
next            n   run to the next dispatch
continue        c   run to the next breakpoint
break PLACE     b   stop at FUNCTION:LINE, at LINE of this function, or FUNCTION:LAYER
delete PLACE    d   no longer
print WHAT      p   i0, f0, r0, r0+i1:i2 f32[2,3], or b0: binding 0 of the dispatch
bindings            what the dispatch here reads and writes
registers           all that are not 0
where           bt  the function, the instruction and its source layer
list            l   the instructions around
kernel              the schedule and source of the dispatch's kernel
trace on|off        show every instruction with what it wrote
quit            q   end the call"""


@dataclass(frozen=True)
class DebugOptions:
    """What the command line asks for."""

    breaks: Sequence[str] = ()
    prints: Sequence[str] = ()
    step: bool = False
    trace: bool = False


def debug_call(
    model: Model,
    function: Function,
    contents: ModuleContents,
    inputs: Mapping[str, Any],
    options: DebugOptions,
    **limits: Any,
) -> dict[str, Any] | None:
    """The results of a call under the debugger, by name; None: it was ended. InvalidArgument,
    NotFound: a breakpoint or place does not exist."""
    console = _Console(model, function, contents, inputs, options)
    try:
        with console.debugger:
            results: dict[str, Any] = function.call(as_dict=True, **inputs, **limits)
    except Cancelled:
        if not console.is_ended:
            raise
        return None
    console.finish_trace()
    return results


class _Console:
    def __init__(
        self,
        model: Model,
        function: Function,
        contents: ModuleContents,
        inputs: Mapping[str, Any],
        options: DebugOptions,
    ) -> None:
        target = model.device.partition(":")[0]
        self.functions = {each.name: each for each in contents.functions if each.target == target}
        self.function: FunctionContents = self.functions[function.signature.name]
        shapes = [np.shape(inputs.get(each.name, ())) for each in self.function.arguments]
        self.kernels: Mapping[str, Any] = {}
        document = read_debug(contents)
        with suppress(AttributeError, KeyError, TypeError):
            self.kernels = document["targets"][target]["kernels"]
        constants = {name: each.get("constants", []) for name, each in self.kernels.items()}
        self.views = Views(contents, self.function, shapes, constants)
        self.debugger = model.debug(len(self.function.code.words) // 2, self.stopped)
        self.places = [parse_place(each) for each in options.prints]
        for place in self.places:
            self.views.check(place)
        self.breaks: set[int] = set()
        for each in options.breaks:
            self._break(each)
        self.steps_left = int(options.step)  # instructions until it stops
        self.to_dispatch = False
        self.is_tracing = options.trace
        self.is_ended = False
        self.is_read = False  # standard input is at its end
        self.before: tuple[int, str] | None = None  # count and text of what ran last
        self.dispatch: str | None = None  # that bindings are of
        self.commands: Mapping[str, Callable[[Stop, str], bool | None]] = {
            "step": self._step,
            "next": self._next,
            "continue": self._continue,
            "break": lambda _, text: self._break(text),
            "delete": lambda _, text: self._break(text, False),
            "print": self._print,
            "bindings": self._bindings,
            "registers": self._registers,
            "where": self._where,
            "list": self._list,
            "kernel": self._kernel,
            "trace": self._trace,
            "quit": self._quit,
            "help": lambda _stop, _text: say(_HELP),
        }
        self._update()

    # Where it stops.

    def stopped(self, stop: Stop) -> bool:
        text = self.views.code[stop.word]
        self._traced(stop)
        is_next = self.before is not None and self.before[0] + 1 == stop.count
        behind = self.before[1] if is_next and self.before is not None else ""
        is_dispatch = text.startswith("dispatch")
        self.dispatch = text if is_dispatch else behind if behind.startswith("dispatch") else None
        self.before = stop.count, text
        is_here = stop.word in self.breaks or (self.to_dispatch and is_dispatch)
        if self.steps_left:
            self.steps_left -= 1
            is_here |= self.steps_left == 0
        if not is_here:
            self._update()
            return True
        self.steps_left, self.to_dispatch = 0, False
        self._where(stop)
        for place in self.places:
            self._shown(stop, place)
        goes_on = self._read_commands(stop)
        self._update()
        return goes_on

    def _update(self) -> None:
        """C is to stop everywhere while something depends on each instruction."""
        at_dispatch = self.before is not None and self.before[1].startswith("dispatch")
        self.debugger.steps = bool(
            self.steps_left or self.to_dispatch or self.is_tracing or at_dispatch
        )

    def _read_commands(self, stop: Stop) -> bool:
        """Runs commands until one lets the call go on; whether it does."""
        while not self.is_read:
            try:
                line = _read_line()
            except EOFError:
                self.is_read = True
                break
            name, _, rest = line.partition("#")[0].strip().partition(" ")
            if not name:
                continue
            try:
                answer = self._command(name)(stop, rest.strip())
            except Error as error:
                say(f"{name}: {error}")
                continue
            if answer is not None:
                return answer
        return True

    def _command(self, name: str) -> Callable[[Stop, str], bool | None]:
        short = {"bt": "where", "h": "help", "b": "break", "l": "list", "s": "step", "n": "next"}
        short |= {"c": "continue", "d": "delete", "p": "print", "q": "quit"}
        found = self.commands.get(short.get(name, name))
        if found is None:
            raise InvalidArgument(f"no such command; the commands are: {', '.join(self.commands)}")
        return found

    # Commands; those that give a bool let the call go on, or end it.

    def _step(self, _stop: Stop, text: str) -> bool:
        if text and not (text.isdecimal() and 0 < len(text) < 16 and int(text)):
            raise InvalidArgument(f"{text!r} is no count of instructions, such as 10")
        self.steps_left = int(text or 1)
        return True

    def _next(self, _stop: Stop, _text: str) -> bool:
        self.to_dispatch = True
        return True

    def _continue(self, _stop: Stop, _text: str) -> bool:
        return True

    def _quit(self, _stop: Stop, _text: str) -> bool:
        self.is_ended = True
        return False

    def _print(self, stop: Stop, text: str) -> None:
        place = parse_place(text)
        say(self.views.text(stop, place, self.dispatch))

    def _bindings(self, stop: Stop, _text: str) -> None:
        if self.dispatch is None:
            raise InvalidArgument("there is no dispatch here; `next` goes to one")
        say("\n".join(self.views.bindings(stop, self.dispatch)))

    def _registers(self, stop: Stop, _text: str) -> None:
        for kind in ("i", "f"):
            for register in range(stop.counts[kind]):
                if number := stop.number(kind, register):
                    say(f"{kind}{register} = {number!r}")
        for register in range(stop.counts["r"]):
            if stop.length(register) is not None:
                say(self.views.text(stop, Place(f"r{register}", "r", register), None))

    def _where(self, stop: Stop, _text: str = "") -> None:
        layer = ": ".join(filter(None, (stop.layer, stop.operations))) or "of no layer"
        where = f"{self.function.name}:{stop.word}"
        say(f"#0 {where} ({layer}), instruction {stop.count} of the call")
        say(f"  {stop.word:5}  {self.views.code[stop.word]}")

    def _list(self, stop: Stop, _text: str) -> None:
        words = list(self.views.code)
        at = words.index(stop.word)
        for word in words[max(at - _AROUND, 0) : at + _AROUND + 1]:
            mark = ">" if word == stop.word else "*" if word in self.breaks else " "
            say(f"{mark} {word:5}  {self.views.code[word]}")

    def _kernel(self, _stop: Stop, _text: str) -> None:
        entry = self.views.entry(self.dispatch) if self.dispatch else None
        if entry is None:
            raise InvalidArgument("there is no dispatch here; `next` goes to one")
        say(entry.region or "the module was stripped: the graph of its kernels is not in it")
        if entry.name not in self.kernels:
            say(_NO_DEBUG)
            return
        kernel = self.kernels[entry.name]
        for name, variant in kernel["variants"].items():
            fields = ", ".join(f"{key}={value}" for key, value in variant["schedule"][1:])
            say(f"{name}: {variant['schedule'][0]}({fields})")
        say("its loop IR and source are in the page that `ingot explore` makes")

    def _trace(self, _stop: Stop, text: str) -> None:
        if text not in ("on", "off"):
            raise InvalidArgument(f"trace is on or off, not {text!r}")
        self.is_tracing = text == "on"

    def _shown(self, stop: Stop, place: Place) -> None:
        try:
            say(self.views.text(stop, place, self.dispatch))
        except Error as error:
            say(f"{place.text}: {error}")

    # Breakpoints.

    def _break(self, text: str, is_on: bool = True) -> None:
        words = self._words(text)
        for word in words:
            self.debugger.set_stop(word, is_on)
        self.breaks = self.breaks | words if is_on else self.breaks - words

    def _words(self, text: str) -> set[int]:
        """The places of a breakpoint: FUNCTION:LINE, LINE, or FUNCTION:LAYER."""
        name, colon, line = text.partition(":")
        if not colon and name.isdecimal():
            name, line = self.function.name, name
        if name not in self.functions:
            raise NotFound(
                f"breakpoint {text!r}: there is no function {name!r}; the functions are: "
                f"{', '.join(each for each, f in self.functions.items() if f.exported)}"
            )
        if name != self.function.name:
            why = "init runs when the module is loaded"
            if self.functions[name].exported:
                why = f"the other one is called with --function {name}"
            raise InvalidArgument(
                f"breakpoint {text!r}: the call is one of {self.function.name!r}; {why}"
            )
        locations = self.function.code.locations
        words = {each.word for each in locations if line and each.layer == line}
        if line.isdecimal() and len(line) < 16 and int(line) in self.views.code:
            words = {int(line)}
        if words:
            return words
        if line.isdecimal() and len(line) < 16:
            near = sorted(self.views.code, key=lambda word: abs(word - int(line)))[:3]
            what = f"no instruction at {line}; the nearest are at {_list_of(sorted(near))}"
            raise NotFound(f"breakpoint {text!r}: {name} has {what}; `ingot dis` lists all")
        layers = dict.fromkeys(each.layer for each in locations if each.layer)
        raise NotFound(
            f"breakpoint {text!r}: {name} has no layer {line!r}; its layers are: "
            f"{_list_of(list(layers)) or 'none'}; or give the number of an instruction"
        )

    # The trace of instructions.

    def _traced(self, stop: Stop) -> None:
        """Shows what ran last, with the registers that it wrote."""
        if not self.is_tracing or self.before is None or self.before[0] + 1 != stop.count:
            return
        text = self.before[1]
        written = text.partition(" = ")[0].split(", ") if " = " in text else []
        numbers = [
            f"{each} = {stop.number(each[0], int(each[1:]))!r}"
            for each in written
            if each[0] in "if"
        ]
        say(f"  {text}" + (f"  # {', '.join(numbers)}" if numbers else ""))

    def finish_trace(self) -> None:
        """The last instruction of the call has run."""
        if self.is_tracing and self.before is not None:
            say(f"  {self.before[1]}")


def _list_of(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:_SHOWN])) + ", ..." * (len(names) > _SHOWN)


def _read_line() -> str:
    """A command. EOFError: there are no more."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  input() uses it
        return input("(ingot) ")
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    say(f"(ingot) {line.rstrip()}")
    return line
