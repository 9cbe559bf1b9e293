"""Where a program came from: what a pickled model carries instead of its weights.

A process that unpickles several models of one origin loads the program once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from ingot.hal.device import Device
from ingot.hal.errors import Error, FailedPrecondition
from ingot.hal.file_kind import HEAD_LENGTH
from ingot.hal.module_bytes import ModuleBytes
from ingot.hal.whole_file import open_regular
from ingot.runtime.parameters import Sources, files_of, flat
from ingot.runtime.program import Program, module_source, named_sources
from ingot.runtime.shared_weights import facts_of

__all__ = ["Origin", "head_of", "origin_of", "remember", "shared_program"]

_programs: WeakValueDictionary[Origin, Program] = WeakValueDictionary()
_lock = Lock()


@dataclass(frozen=True)
class Origin:
    """The arguments of `ingot.load`, as another process can use them."""

    # By name, "" for one without: an absolute path with a hash of the beginning of the file, or the
    # module.
    sources: tuple[tuple[str, str | ModuleBytes, str], ...]
    parameters: Sources | None  # absolute paths
    options: tuple[tuple[str, Any], ...]
    facts: tuple[Any, ...]  # of the files with parameters, in this process
    weights_obstacle: str = ""  # why the parameters are others
    device_obstacle: str = ""  # why another process cannot have the device

    @property
    def obstacle(self) -> str:
        """Why another process cannot make the program."""
        return self.weights_obstacle or self.device_obstacle


def origin_of(source: Any, parameters: Any, options: Mapping[str, Any]) -> Origin:
    """Of what `ingot.load` took."""
    weights = None if parameters is None else flat(parameters)
    obstacles = ["", ""]
    if any(isinstance(source, Mapping) for _, source in weights or ()):
        obstacles[0] = (
            "its parameters were given as arrays, which nobody keeps; give the path of a file"
        )
        weights = None
    device = options["device"]
    if isinstance(device, Device) and not device.is_borrowed:
        device = device.uri
    if not isinstance(device, str):
        obstacles[1] = "its device is of pyopencl, and of this process; give a URI"
        device = ""
    if weights is not None:
        weights = Sources((scope, os.path.abspath(os.fsdecode(path))) for scope, path in weights)
    natives = tuple(dict(options["natives"] or {}).items())
    given = tuple(sorted({**options, "device": device, "natives": natives}.items()))
    sources = tuple((name, *_found(each)) for name, each in named_sources(source).items())
    return Origin(sources, weights, given, _facts(weights), *obstacles)


def _facts(weights: Sources | None) -> tuple[Any, ...]:
    """Others where other parameters lie at the same paths by now."""
    with suppress(Error, OSError):  # which loading tells
        files = [each for _, path in weights or () for each in files_of(Path(path))]
        return tuple(facts_of(os.stat(each)) for each in files)
    return ()


def _found(source: Any) -> tuple[str | ModuleBytes, str]:
    if not isinstance(source, (str, os.PathLike)):
        return module_source(source), ""
    path = os.path.abspath(os.fsdecode(source))
    return path, head_of(path)


def remember(origin: Origin, program: Program) -> None:
    """Let models that are unpickled in this process use `program`."""
    with _lock:
        _programs.setdefault(origin, program)


def shared_program(origin: Origin, load: Callable[..., Program]) -> Program:
    """The program of that origin, loaded if no model of this process has it. FailedPrecondition:
    there is another module at its path by now; else raises as `load`."""
    origin = replace(origin, facts=_facts(origin.parameters))
    with _lock:
        program = _programs.get(origin)
        if program is None:
            for _, source, head in origin.sources:
                if isinstance(source, str) and head_of(source) != head:
                    raise FailedPrecondition(
                        f"the module '{source}' is not the one that the pickled model was loaded "
                        "from; load the model anew and pickle that"
                    )
            named = {name: source for name, source, _ in origin.sources}
            program = load(named.get("", named), origin.parameters, **dict(origin.options))
            _programs[origin] = program
        return program


def head_of(path: str) -> str:
    """The hash of the beginning of a module's file, which tells it from others."""
    with open_regular(path) as file:
        return sha256(file.read(HEAD_LENGTH)).hexdigest()
