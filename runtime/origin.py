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
from ingot.hal.file_kind import HEAD_LENGTH
from ingot.hal.whole_file import open_regular
from ingot.runtime.parameters import Sources, flat
from ingot.runtime.program import Program, named_sources

__all__ = ["Origin", "origin_of", "remember", "shared_program"]

_programs: WeakValueDictionary[Origin, Program] = WeakValueDictionary()
_lock = Lock()


@dataclass(frozen=True)
class Origin:
    """The arguments of `ingot.load`, as another process can use them."""

    # By name, "" for one without: an absolute path with a hash of the beginning of the file, or the
    # module.
    sources: tuple[tuple[str, str | bytes, str], ...]
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
    sources = tuple((name, *_found(each)) for name, each in named_sources(source).items())
    return Origin(sources, weights, given)


def _found(source: Any) -> tuple[str | bytes, str]:
    if not isinstance(source, (str, os.PathLike)):
        return bytes(source), ""
    path = os.path.abspath(os.fsdecode(source))
    return path, _head(path)


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
            for _, source, head in origin.sources:
                if isinstance(source, str) and _head(source) != head:
                    raise FailedPrecondition(
                        f"the module '{source}' is not the one that the pickled model was loaded "
                        "from; load the model anew and pickle that"
                    )
            named = {name: source for name, source, _ in origin.sources}
            program = load(named.get("", named), origin.parameters, **dict(origin.options))
            _programs[origin] = program
        return program


def _head(path: str) -> str:
    with open_regular(path) as file:
        return sha256(file.read(HEAD_LENGTH)).hexdigest()
