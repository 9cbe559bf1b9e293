"""One process per engine, pinned to the same cores, measured in turns.

Separate processes keep the engines' threads, allocators and instruction-set choices apart; turns
spread the drift of a shared machine over all of them. A worker that fails reports its error and
takes no further part.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engines import ENGINES, Engine

__all__ = ["Measurement", "measure", "time_calls"]

PAUSE = 0.01  # seconds between turns, so that the threads of the last engine go to sleep


@dataclass
class Measurement:
    """What one engine did: seconds per call, seconds to prepare, results or an error."""

    engine: str
    seconds: list[float] = field(default_factory=list)
    prepare_seconds: float = 0.0
    results: list[Any] = field(default_factory=list)
    error: str = ""


def measure(
    engines: Sequence[Engine],
    model: Path,
    inputs: dict[str, Any],
    *,
    threads: int,
    rounds: int,
    seconds_per_turn: float,
) -> list[Measurement]:
    """Measures all engines on one model in one interleaved run."""
    context = multiprocessing.get_context("spawn")
    cores = sorted(os.sched_getaffinity(0))[:threads]
    measurements = [Measurement(engine.name) for engine in engines]
    ends: list[Connection] = []
    for engine in engines:
        near, far = context.Pipe()
        arguments = (far, engine.name, model, inputs, threads, cores)
        context.Process(target=_work, args=arguments, daemon=True).start()
        ends.append(near)
        _receive(near, measurements[len(ends) - 1])
    for turn in range(rounds):
        for place in range(len(engines)):
            at = (place + turn) % len(engines)
            if not measurements[at].error:
                time.sleep(PAUSE)
                ends[at].send(seconds_per_turn)
                _receive(ends[at], measurements[at])
    for end in ends:
        end.close()
    return measurements


def _receive(end: Connection, measurement: Measurement) -> None:
    """Adds what a worker says to its measurement."""
    try:
        message = end.recv()
    except EOFError:
        measurement.error = "the process ended"
        return
    if isinstance(message, str):
        measurement.error = message
    elif isinstance(message, tuple):
        measurement.prepare_seconds, measurement.results = message
    else:
        measurement.seconds += message


def _work(
    end: Connection,
    name: str,
    model: Path,
    inputs: dict[str, Any],
    threads: int,
    cores: Sequence[int],
) -> None:
    """Prepares the model, then measures for as long as each message says."""
    os.sched_setaffinity(0, cores)
    try:
        (engine,) = (each for each in ENGINES if each.name == name)
        start = time.perf_counter()
        run = engine.prepare(model, threads)
        prepare_seconds = time.perf_counter() - start
        results = [_to_numpy(result) for result in run(inputs)]
        run(inputs)
        end.send((prepare_seconds, results))
        while True:
            end.send(time_calls(run, inputs, end.recv()))
    except EOFError:
        return
    except Exception:
        end.send(traceback.format_exc().strip().splitlines()[-1])


def _to_numpy(result: Any) -> Any:
    import numpy

    return numpy.array(result)


def time_calls(run: Any, inputs: dict[str, Any], length: float) -> list[float]:
    """Seconds of each call, for `length` seconds but at least three calls."""
    seconds: list[float] = []
    begin = time.perf_counter()
    while len(seconds) < 3 or time.perf_counter() - begin < length:
        start = time.perf_counter()
        run(inputs)
        seconds.append(time.perf_counter() - start)
    return seconds
