"""Where a program came from: what a pickled model carries instead of its weights.

A process that unpickles several models of one origin loads the program once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from ingot.hal.device import Device
from ingot.hal.errors import FailedPrecondition
from ingot.hal.whole_file import open_regular
from ingot.runtime.parameters import Sources, flat
from ingot.runtime.program import Program

__all__ = ["Origin", "origin_of", "remember", "shared_program"]

_HEAD_LENGTH = 4096  # bytes with which a module begins: the checksums of all sections
_programs: WeakValueDictionary[Origin, Program] = WeakValueDictionary()
_lock = Lock()


@dataclass(frozen=True)
class Origin:
    """The arguments of `ingot.load`, as another process can use them."""

    source: str | bytes  # an absolute path, or the module
    head: str  # a hash of the beginning of the file at the path
    parameters: Sources | None  # absolute paths
    options: tuple[tuple[str, Any], ...]


def origin_of(source: Any, parameters: Any, options: Mapping[str, Any]) -> Origin | str:
    """Of what `ingot.load` took, or why another process could not take it."""
    weights = None if parameters is None else flat(parameters)
    if any(isinstance(source, Mapping) for _, source in weights or ()):
        return "its parameters were given as arrays, which nobody keeps; give the path of a file"
    device = options["device"]
    if isinstance(device, Device) and not device.is_borrowed:
        device = device.uri
    if not isinstance(device, str):
        return "its device is of pyopencl, and of this process; give a URI"
    if weights is not None:
        weights = Sources((scope, os.path.abspath(os.fsdecode(path))) for scope, path in weights)
    natives = tuple(dict(options["natives"] or {}).items())
    given = tuple(sorted({**options, "device": device, "natives": natives}.items()))
    if not isinstance(source, (str, os.PathLike)):
        return Origin(bytes(source), "", weights, given)
    path = os.path.abspath(os.fsdecode(source))
    return Origin(path, _head(path), weights, given)


def remember(origin: Origin, program: Program) -> None:
    """Let models that are unpickled in this process use `program`."""
    with _lock:
        _programs.setdefault(origin, program)


def shared_program(origin: Origin, load: Callable[..., Program]) -> Program:
    """The program of that origin, loaded if no model of this process has it. FailedPrecondition:
    there is another module at its path by now; else raises as `load`."""
    with _lock:
        program = _programs.get(origin)
        if program is None:
            if isinstance(origin.source, str) and _head(origin.source) != origin.head:
                raise FailedPrecondition(
                    f"the module '{origin.source}' is not the one that the pickled model was "
                    "loaded from; load the model anew and pickle that"
                )
            program = load(origin.source, origin.parameters, **dict(origin.options))
            _programs[origin] = program
        return program


def _head(path: str) -> str:
    with open_regular(path) as file:
        return sha256(file.read(_HEAD_LENGTH)).hexdigest()
