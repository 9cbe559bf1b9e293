"""Measured times of dispatches, from a timeline: `ingot bench --trace`, INGOT_TRACE.

A timeline names kernels and layers. Within a call the events of one kernel and layer belong to
the dispatches with this kernel and layer in turn; in a loop they come round again.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingot.hal.errors import InvalidArgument, NotFound
from ingot.hal.printable import printable

__all__ = ["add_times"]

_DEVICE = 1000  # what the row of a thread's device is above the thread's: timeline.h
_ROUNDING = 0.002  # microseconds
_NAME = 150  # characters that tell layers apart: a timeline cuts long names
_COPIES = ("copy", "fill")
_KINDS = ("call", "host", "device")
_GREATEST = 1 << 53  # microseconds or bytes


@dataclass(frozen=True)
class _Event:
    """A slice of a timeline, in microseconds."""

    kind: str
    name: str
    kernel: str
    thread: int
    begin: float
    duration: float
    length: int

    def __post_init__(self) -> None:
        """TypeError: it is none that Ingot wrote."""
        numbers = (self.thread, self.begin, self.duration, self.length)
        if not (
            isinstance(self.name, str)
            and isinstance(self.kernel, str)
            and all(type(each) in (int, float) and 0 <= each < _GREATEST for each in numbers)
        ):
            raise TypeError


@dataclass
class _Call:
    """A call of a function: its slice, and what ran in it."""

    function: str
    begin: float
    end: float
    events: list[_Event] = field(default_factory=list)


def add_times(path: str, facts: dict[str, Any]) -> None:
    """Adds `times` to the functions that were called: per command the least nanoseconds of all
    its runs in a call, how many there were, and their bytes; and `call`, the least of a call.

    NotFound: there is no such file. InvalidArgument: it is no timeline, or that of another module.
    """
    calls = _calls(path)
    is_device = any(event.kind == "device" for call in calls for event in call.events)
    functions = {
        row["name"]: row
        for row in sorted(facts["functions"], key=lambda row: (row["target"] == "cpu") != is_device)
        if row["exported"]
    }
    found = defaultdict(list)
    wrong = ""
    for call in calls:
        row = functions.get(call.function)
        if row is None:
            wrong = wrong or f"function '{printable(call.function, _NAME)}'"
            continue
        times, stranger = _match(call, row["commands"])
        if stranger:
            wrong = wrong or f"kernel '{printable(stranger, _NAME)}'"
        else:
            found[call.function].append((call.end - call.begin, times))
    if not found:
        reason = f"has {wrong}, which '{facts['name']}' has not" if wrong else "holds no call"
        raise InvalidArgument(
            f"'{path}' {reason}: it is the trace of another module; make one with "
            f"`ingot bench {facts['module']} --trace {path}`"
        )
    for name, measured in found.items():
        functions[name]["call"] = round(min(length for length, _ in measured) * 1e3)
        functions[name]["times"] = _least([times for _, times in measured])


def _least(calls: Sequence[Mapping[int, list[float]]]) -> dict[int, list[int]]:
    """Per command nanoseconds, runs and bytes, of the call in which it took the least."""
    least: dict[int, list[int]] = {}
    for times in calls:
        for command, (duration, count, length) in times.items():
            row = [round(duration * 1e3), round(count), round(length)]
            if command not in least or row < least[command]:
                least[command] = row
    return least


def _match(call: _Call, commands: Sequence[dict[str, Any]]) -> tuple[dict[int, list[float]], str]:
    """Per command microseconds, runs and bytes in a call, or a kernel that is none of it."""
    places = defaultdict(list)
    for command in _all(commands):
        kernels = [command["kernel"]] if "kernel" in command else list(_COPIES)
        kernels += [each["kernel"] for each in command.get("alternatives", ())]
        for kernel in kernels:
            places[kernel, command["layer"][:_NAME]].append(command["id"])
    turns: dict[tuple[str, str], int] = defaultdict(int)
    times: dict[int, list[float]] = {}
    for event in call.events:
        layer = "" if event.name == event.kernel else event.name
        key = (event.kernel, layer[:_NAME])
        if key not in places:
            if event.kernel in _COPIES:
                continue
            return {}, event.kernel
        command = places[key][turns[key] % len(places[key])]
        turns[key] += 1
        row = times.setdefault(command, [0.0, 0, 0])
        for place, number in enumerate((event.duration, 1, event.length)):
            row[place] += number
    if commands and not times:
        return {}, call.events[0].kernel if call.events else "none at all"
    return times, ""


def _all(commands: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for command in commands:
        yield command
        for body in command.get("bodies", ()):
            yield from _all(body)


def _calls(path: str) -> list[_Call]:
    """The calls of a timeline, with their kernels and copies in order. A thread makes one call at
    a time."""
    rows: dict[int, list[_Call]] = defaultdict(list)
    try:
        events = [_event(each) for each in _objects(path) if _is_slice(each)]
    except (KeyError, TypeError):
        raise _no_timeline(path) from None
    events.sort(key=lambda each: each.begin)
    for event in events:
        if event.kind == "call":
            end = event.begin + event.duration + _ROUNDING
            rows[event.thread].append(_Call(event.kernel, event.begin - _ROUNDING, end))
    for event in events:
        if event.kind != "call":
            calls = rows[event.thread - _DEVICE * (event.kind == "device")]
            at = bisect_right(calls, event.begin, key=lambda call: call.begin)
            if at and event.begin <= calls[at - 1].end:
                calls[at - 1].events.append(event)
    return [call for calls in rows.values() for call in calls]


def _is_slice(found: dict[str, Any]) -> bool:
    return found.get("ph") == "X" and found["cat"] in _KINDS


def _event(found: dict[str, Any]) -> _Event:
    return _Event(
        found["cat"],
        found["name"],
        found["args"]["kernel"],
        found["tid"],
        found["ts"],
        found["dur"],
        found["args"]["bytes"],
    )


def _objects(path: str) -> list[dict[str, Any]]:
    """The objects in a timeline, also in one that was never closed."""
    if not Path(path).is_file():
        raise NotFound(f"there is no file {path}")
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        lines = (line.strip().rstrip(",") for line in text.splitlines())
        try:
            found = [json.loads(line) for line in lines if line.startswith("{")]
        except (ValueError, RecursionError):
            raise _no_timeline(path) from None
    if isinstance(found, dict):  # as other tools write it again
        found = found.get("traceEvents")
    if not isinstance(found, list) or not found or not all(isinstance(e, dict) for e in found):
        raise _no_timeline(path)
    return found


def _no_timeline(path: str) -> InvalidArgument:
    return InvalidArgument(
        f"'{path}' is no timeline: make one with `ingot bench MODULE --trace {path}`"
    )
