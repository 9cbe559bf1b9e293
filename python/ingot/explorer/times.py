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

__all__ = ["add_times"]

_DEVICE = 1000  # what the row of a thread's device is above the thread's: timeline.h
_ROUNDING = 0.002  # microseconds
_NAME = 150  # characters that tell layers apart: a timeline cuts long names
_COPIES = ("copy", "fill")

Event = dict[str, Any]


@dataclass
class _Call:
    """A call of a function: its slice, and what ran in it."""

    function: str
    begin: float
    end: float
    events: list[Event] = field(default_factory=list)


def add_times(path: str, facts: dict[str, Any]) -> None:
    """Adds `times` to the functions that were called: per command the least nanoseconds of all
    its runs in a call, how many there were, and their bytes; and `call`, the least of a call.

    NotFound: there is no such file. InvalidArgument: it is no timeline, or that of another module.
    """
    calls = _calls(path)
    is_device = any(event["cat"] == "device" for call in calls for event in call.events)
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
            wrong = wrong or f"function '{call.function}'"
            continue
        times, stranger = _match(call, row["commands"])
        if stranger:
            wrong = wrong or f"kernel '{stranger}'"
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
        kernel = event["args"]["kernel"]
        layer = "" if event["name"] == kernel else event["name"]
        key = (kernel, layer[:_NAME])
        if key not in places:
            if kernel in _COPIES:
                continue
            return {}, kernel
        command = places[key][turns[key] % len(places[key])]
        turns[key] += 1
        row = times.setdefault(command, [0.0, 0, 0])
        for place, number in enumerate((event["dur"], 1, event["args"]["bytes"])):
            row[place] += number
    if commands and not times:
        return {}, call.events[0]["args"]["kernel"] if call.events else "none at all"
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
    events = [each for each in _events(path) if each.get("ph") == "X"]
    try:
        events.sort(key=lambda each: each["ts"])
        for event in events:
            if event["cat"] == "call":
                end = event["ts"] + event["dur"] + _ROUNDING
                call = _Call(event["args"]["kernel"], event["ts"] - _ROUNDING, end)
                rows[event["tid"]].append(call)
        for event in events:
            if event["cat"] in ("host", "device"):
                thread = event["tid"] - _DEVICE * (event["cat"] == "device")
                at = bisect_right(rows[thread], event["ts"], key=lambda call: call.begin)
                if at and event["ts"] <= rows[thread][at - 1].end:
                    rows[thread][at - 1].events.append(event)
    except (KeyError, TypeError):
        raise _no_timeline(path) from None
    return [call for calls in rows.values() for call in calls]


def _events(path: str) -> list[Event]:
    """The events of a timeline, also of one that was never closed."""
    if not Path(path).is_file():
        raise NotFound(f"there is no file {path}")
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    try:
        found = json.loads(text)
    except ValueError:
        lines = (line.strip().rstrip(",") for line in text.splitlines())
        try:
            found = [json.loads(line) for line in lines if line.startswith("{")]
        except ValueError:
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
