"""Where a program finds its weights: files, folders, archives and arrays, in order and by scope."""

from __future__ import annotations

import mmap
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ingot.hal.checkpoint import INDEX, Checkpoint, files_of_index
from ingot.hal.device import instance
from ingot.hal.errors import DataLoss, Error, InvalidArgument, NotFound
from ingot.hal.file_kind import START_LENGTH
from ingot.hal.gguf import MAGIC, Gguf
from ingot.hal.native import check, ffi, keep_error, lib, text
from ingot.hal.spec import status
from ingot.hal.whole_file import c_text, open_regular
from ingot.runtime.frame import bytes_of
from ingot.runtime.signature import read_parameters
from ingot.runtime.tensors import bits_of_parameter

__all__ = ["Sources", "files_of", "flat", "is_zarr", "open_parameters", "times_of"]

_PACKED_MAGIC = b"INGOTPW\x1a"
_ZARR = frozenset({"zarr.json", ".zgroup"})  # of a group, of either version
_NOT_FOUND, _CANCELLED = status("NotFound").code, status("Cancelled").code
_SHOWN = 5  # names in a message
_EXPECTED = (
    "the path of a safetensors, GGUF, npz or packed file, of a model's folder or a zarr archive, a "
    "dict of arrays, a list of such sources, or a dict of them by scope"
)

Find = Callable[[str, str, Any], Any]
"""Fills the C span of a scope and key; gives a C status."""


class Sources(tuple[tuple["str | None", Any], ...]):
    """Sources in their order, each with the scope that it answers; None: all of them."""


def flat(parameters: Any) -> Sources:
    """What `ingot.load` takes as `parameters`, one after another. InvalidArgument: it is nothing
    that weights could come from."""
    try:
        return parameters if isinstance(parameters, Sources) else Sources(_flat(None, parameters))
    except RecursionError:
        raise InvalidArgument("parameters= has lists or dicts that hold themselves") from None


def _flat(scope: str | None, source: Any) -> Iterator[tuple[str | None, Any]]:
    if isinstance(source, (str, os.PathLike)):
        yield scope, source
    elif isinstance(source, Mapping) and source and all(map(_is_source, source.values())):
        for name, each in source.items():
            if not isinstance(name, str):
                raise InvalidArgument(f"a scope of parameters= is {name!r}, but must be a string")
            yield from _flat(name, each)
    elif isinstance(source, Mapping):
        yield scope, source
    elif isinstance(source, Sequence) and not isinstance(source, (bytes, bytearray)):
        for each in source:
            yield from _flat(scope, each)
    else:
        raise InvalidArgument(f"parameters is {type(source).__name__}, but must be {_EXPECTED}")


def _is_source(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_source, value))
    return isinstance(value, (str, os.PathLike, Mapping))


@contextmanager
def open_parameters(modules: Sequence[Any], parameters: Any) -> Iterator[tuple[Any, list[Any]]]:
    """The C table of parameters and the paths of packed files as C texts, for as long as a program
    is being made. NotFound that is raised inside tells what the sources have."""
    if parameters is None:
        keys = [each.key for module in modules for each in read_parameters(module)]
        if keys:
            raise NotFound(
                f"the module needs {len(keys)} parameters ({_some(keys)}); pass parameters= with "
                "a safetensors or GGUF file, a model's folder or a dict of arrays"
            )
        yield ffi.NULL, []
        return
    with ExitStack() as stack:
        finder = _Finder()
        packed, sources = [], flat(parameters)
        times = times_of(sources)
        for scope, source in sources:
            if not isinstance(source, Mapping) and _start(source).startswith(_PACKED_MAGIC):
                packed.append(ffi.new("char[]", c_text("path", source)))
            else:
                finder.add(scope, *_open(source, stack))
        handle = ffi.new_handle(finder)
        table = {"user": handle, "find": lib.ingot_python_find_parameter}
        try:
            yield ffi.new("ingot_parameters_t *", table), packed
        except NotFound as error:
            if not finder.has_missed:
                raise
            raise NotFound(
                f"{error}; parameters= has {_some(finder.names()) or 'nothing'}"
            ) from None
        for path, now in times_of(sources).items():
            if times.get(path, now) != now:
                raise DataLoss(
                    f"'{path}' was written to while it was read, so weights may be of the old and "
                    "the new one: read it again when it is whole. A file that replaces another "
                    "one by renaming does no harm"
                )


def times_of(sources: Sources) -> dict[Path, tuple[int, ...]]:
    """By the files of sources what changes when they are written. Chunks of zarr archives, which
    are checked, are left out, and what cannot be read, which reading it tells."""
    found: dict[Path, tuple[int, ...]] = {}
    for _, source in sources:
        with suppress(Error, OSError, ValueError):  # of a path with a zero byte
            for each in [] if isinstance(source, Mapping) or is_zarr(source) else _tensors(source):
                status = os.stat(each)
                found[each] = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _tensors(source: str | os.PathLike[str]) -> list[Path]:
    path = Path(source)
    kinds = (".safetensors", ".json")  # a folder may have others, which nobody reads
    return [each for each in files_of(path) if each == path or each.suffix in kinds]


def files_of(path: Path) -> list[Path]:
    """The files of a source of weights: itself, an index with those beside it that it names, or
    those in a folder; in a zarr archive in its folders, too."""
    if path.is_dir():
        inside = path.rglob("*") if is_zarr(path) else path.iterdir()
        return [each for each in sorted(inside) if each.is_file()]
    return [path, *files_of_index(path)] if path.suffix == ".json" else [path]


class _Finder:
    """Asks sources in turn. What spans point into lives as long as this."""

    def __init__(self) -> None:
        self.sources: list[tuple[str | None, Find, Iterable[str]]] = []
        self.keep: list[Any] = []
        self.has_missed = False

    def add(self, scope: str | None, find: Find | Mapping[str, Any], names: Iterable[str]) -> None:
        if isinstance(find, Mapping):
            find = self._in_arrays(find)
        self.sources.append((scope, find, names))

    def find(self, scope: str, key: str, span: Any) -> Any:
        for own, find, _ in self.sources:
            if own not in (None, scope):
                continue
            found = find(scope, key, span)
            if lib.ingot_status_code(found) != _NOT_FOUND:
                return found
            lib.ingot_status_free(found)
        self.has_missed = True
        return _missing()

    def names(self) -> list[str]:
        return [name for _, _, names in self.sources for name in names]

    def _in_arrays(self, arrays: Mapping[str, Any]) -> Find:
        keep = self.keep  # not `self`: in a circle the arrays would stay until it is collected

        def find(_scope: str, key: str, span: Any) -> Any:
            if key not in arrays:
                return _missing()
            bits, dtype = bits_of_parameter(arrays[key], f"parameter '{key}'")
            data, dims = ffi.from_buffer(bytes_of(bits)), ffi.new("int64_t[]", bits.shape)
            span.data, span.length, span.dims = data, bits.nbytes, dims
            span.dtype, span.rank, span.is_mapped = dtype.code, bits.ndim, _is_mapped(bits)
            keep.extend((data, dims))
            return ffi.NULL

        return find


def _is_mapped(array: Any) -> bool:
    """Whether an array is a part of a file as `Gguf` and `Checkpoint` map it: to be read only."""
    while isinstance(array, np.ndarray):
        array = array.base
    mapped = array.obj if isinstance(array, memoryview) else None
    return isinstance(mapped, mmap.mmap) and memoryview(mapped).readonly  # the mapping, not a view


def _missing() -> Any:
    return lib.ingot_status_make(_NOT_FOUND, b"")


@ffi.def_extern(name="ingot_python_find_parameter")  # type: ignore[untyped-decorator]
def _find_parameter(user: Any, scope: Any, key: Any, span: Any) -> Any:
    try:
        return ffi.from_handle(user).find(text(scope), text(key), span)
    except BaseException as error:  # raised again when C has returned
        keep_error(type(error), error, None)
        return lib.ingot_status_make(_CANCELLED, b"")


# Kinds of sources.


def _open(source: Any, stack: ExitStack) -> tuple[Any, Iterable[str]]:
    """How the source finds a tensor, a function or a mapping of arrays, and its names."""
    if isinstance(source, Mapping):
        return source, source
    arrays = _arrays_of(source, stack)
    if arrays is not None:
        return arrays, arrays
    index = os.path.join(source, INDEX)
    path = index if os.path.isdir(source) else source
    out = ffi.new("ingot_safetensors_t **")
    check(lib.ingot_safetensors_open(instance().pointer, c_text("path", path), out))
    stack.callback(lib.ingot_safetensors_close, out[0])
    table = lib.ingot_safetensors_parameters(out[0])

    def find(scope: str, key: str, span: Any) -> Any:
        return table.find(table.user, scope.encode(), key.encode(), span)

    return find, ()


def _arrays_of(path: str | os.PathLike[str], stack: ExitStack) -> Mapping[str, Any] | None:
    """The tensors of a GGUF file, an npz file, a zarr archive or a model's folder; None: it is
    another file."""
    if os.path.isdir(path):
        if is_zarr(path):
            return _zarr_arrays(path, stack)
        is_model = os.path.isfile(os.path.join(path, "config.json"))
        return Checkpoint(path).parameters() if is_model else None
    start = _start(path)
    if start.startswith(MAGIC):
        return Gguf(path).parameters()
    if not start.startswith(b"PK") or not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            has_zarr = not _ZARR.isdisjoint(archive.namelist())
        return _zarr_arrays(path, stack) if has_zarr else _npz_arrays(path, stack)
    except Error:
        raise
    except Exception as error:  # whatever zipfile and NumPy raise of damaged bytes
        raise DataLoss(f"'{path}' cannot be read as an npz archive: {error}") from None


def is_zarr(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a zarr archive."""
    return any(os.path.exists(os.path.join(folder, name)) for name in _ZARR)


class _LazyArrays(Mapping[str, Any]):
    """Arrays of an archive, each read when it is asked for. DataLoss: it cannot be."""

    def __init__(
        self, path: str | os.PathLike[str], names: Iterable[str], read: Callable[[str], Any]
    ) -> None:
        self.path, self.names, self.read = path, list(names), read

    def __getitem__(self, key: str) -> Any:
        try:
            return self.read(key)
        except Exception as error:  # whatever the archive's package raises of damaged bytes
            raise DataLoss(f"array '{key}' of '{self.path}' cannot be read: {error}") from None

    def __contains__(self, key: object) -> bool:
        return key in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _npz_arrays(path: str | os.PathLike[str], stack: ExitStack) -> Mapping[str, Any]:
    archive = stack.enter_context(np.load(path, allow_pickle=False))
    return _LazyArrays(path, archive.files, archive.__getitem__)


def _zarr_arrays(path: str | os.PathLike[str], stack: ExitStack) -> Mapping[str, Any]:
    """The arrays of a group, and under their paths those of groups in it."""
    try:
        import zarr
    except ImportError as error:
        raise NotFound(
            f"'{path}' is a zarr archive, for which the package zarr is missing: pip install zarr "
            f"({error})"
        ) from None
    try:
        name = os.fspath(path)
        store = name if os.path.isdir(name) else zarr.storage.ZipStore(name, mode="r")
        group: Any = zarr.open_group(store, mode="r")
        members = group.members(max_depth=None)
        arrays = {name: each for name, each in members if isinstance(each, zarr.Array)}
    except Exception as error:
        raise DataLoss(f"'{path}' cannot be read as a zarr archive: {error}") from None
    stack.callback(group.store.close)

    def read(name: str) -> Any:
        array = arrays[name]
        codecs = (*array.filters, *array.compressors)
        if any(getattr(each, "codec_id", "") == "pickle" for each in codecs):
            raise ValueError("it is pickled, and a pickle may run any code")
        return np.asarray(array[...])

    return _LazyArrays(path, arrays, read)


def _start(path: str | os.PathLike[str]) -> bytes:
    """The first bytes of a file; none where it cannot be read, which its reader says."""
    try:
        with open_regular(path) as file:
            return file.read(START_LENGTH)
    except (Error, OSError):
        return b""


def _some(names: Iterable[str]) -> str:
    """The first of them, for a message."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown + (", ..." if len(names) > _SHOWN else "")
