"""Weights that are prepared once for all processes: packed files in the user's cache, by content.

What a module makes of its parameters follows from the module, the parameters and the device's
kernels, so the hash of these names the file. The first process makes it while others wait, and all
map it. A file that is damaged is removed, and nothing is shared then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from ingot.hal.device import Device
from ingot.hal.errors import DataLoss, Error, InvalidArgument, NotFound
from ingot.hal.file_cache import WEIGHTS, Cache, default_cache
from ingot.hal.file_kind import HEAD_LENGTH
from ingot.hal.module_bytes import ModuleBytes
from ingot.hal.whole_file import open_regular, write_whole
from ingot.runtime.parameters import Sources, files_of, flat, times_of
from ingot.runtime.program import Program, module_source
from ingot.runtime.tensors import bits_of_parameter

__all__ = ["digest_of", "facts_of", "load_shared"]

_MOST = 32 << 30
"""Bytes of the files together, unless the last one has more; what was not used for longest goes."""

Make = Callable[[Any], Program]


def load_shared(
    source: Any, device: Device, parameters: Any, scope: str | None, make: Make
) -> Program:
    """The program that `make` gives of its parameters, with what it makes of those of `scope`
    (None: of all) in a file that other processes map, too. Raises as `make`."""
    if isinstance(source, Mapping):
        raise InvalidArgument("share_weights is for one module; of several load packed weights")
    cache, sources = default_cache(), flat(() if parameters is None else parameters)
    if cache.folder is None:
        return make(parameters)
    times = times_of(sources)
    name = WEIGHTS + _key(source, device, sources, scope, cache)
    found = cache.file(name)
    if found is None:
        with _alone(cache.folder):
            found = cache.file(name)  # another process may have made it meanwhile
            if found is None:
                program = make(parameters)
                if times_of(sources) != times:  # the name is that of other weights
                    return program
                try:
                    write_whole(cache.folder / name, lambda file: program.save_weights(file, scope))
                except NotFound:
                    if cache.folder.is_dir():  # there is no such scope
                        raise
                    return program
                except (Error, OSError):  # the disk is full
                    return program
                found = cache.folder / name
                cache.bind(name)
                with suppress(OSError):  # another process has removed it
                    cache.trim(max(_MOST, found.stat().st_size), weights=True)
    try:
        return make(Sources(((None, found), *sources)))
    except (DataLoss, InvalidArgument, NotFound):  # NotFound: another process has just removed it
        with suppress(OSError):
            found.unlink()
        return make(parameters)


def _key(source: Any, device: Device, sources: Sources, scope: str | None, cache: Cache) -> str:
    found = sha256(_line(f"{device.uri} {device.description} {scope}"))
    if isinstance(source, (str, os.PathLike)):
        with open_regular(source) as file:
            found.update(file.read(HEAD_LENGTH))
    else:
        data = module_source(source)
        found.update(data.view[:HEAD_LENGTH] if isinstance(data, ModuleBytes) else b"")
    for own, each in sources:
        if own is None or scope is None or own == scope:
            found.update(f"\n{own} ".encode())
            is_arrays = isinstance(each, Mapping)
            found.update(_of_arrays(each) if is_arrays else digest_of(Path(each), cache))
    return found.hexdigest()


def _of_arrays(arrays: Mapping[str, Any]) -> bytes:
    found = sha256()
    for key in sorted(arrays, key=str):
        bits, dtype = bits_of_parameter(arrays[key], f"parameter '{key}'")
        found.update(_line(f"{key} {dtype} {bits.shape}"))
        found.update(bits.reshape(-1).view("u1").data)
    return found.digest()


def digest_of(path: Path, cache: Cache) -> bytes:
    """The hash of what `files_of` gives. Raises as `open_regular`."""
    files = files_of(path)
    if files == [path]:
        return _of_file(path, cache)
    found = sha256()
    for each in files:
        found.update(_line(os.path.relpath(each, path)))
        found.update(_of_file(each, cache))
    return found.digest()


def facts_of(status: os.stat_result) -> tuple[int, ...]:
    """What changes when somebody writes a file; the times that programs set are not enough."""
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, *times


def _line(text: str) -> bytes:
    return f"{text}\n".encode("utf-8", "backslashreplace")


def _of_file(path: Path, cache: Cache) -> bytes:
    """The hash of a file's bytes, remembered as long as nobody has changed the file."""
    with open_regular(path) as file:
        facts = os.fstat(file.fileno())
        known = (path.resolve(), *facts_of(facts))
        key = sha256(f"content {known}".encode()).hexdigest()
        digest = cache.read(key)
        if digest is None:
            found = sha256()
            while piece := file.read(1 << 20):
                found.update(piece)
            digest = found.digest()
            cache.write(key, digest)
    return digest


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other process is here, where the system, and the folder's, know locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with ExitStack() as stack:
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            # not by closing alone: a process that forks meanwhile has it open, too
            stack.callback(fcntl.flock, lock, fcntl.LOCK_UN)
        yield
