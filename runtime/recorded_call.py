"""A recorded call, read again and made again: `ingot.read_call`, `ingot replay`."""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath, PureWindowsPath
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.hal.device import Device, open_device
from ingot.hal.errors import Error, FailedPrecondition, Incompatible, NotFound
from ingot.hal.file_cache import default_cache
from ingot.hal.spec import dtype as dtype_called
from ingot.hal.whole_file import data_loss, open_regular
from ingot.runtime.model import Model, load
from ingot.runtime.parameters import Sources
from ingot.runtime.recording import FACTS, STATE, VERSION, stored_dtype
from ingot.runtime.shared_weights import digest_of
from ingot.runtime.state import restore_state

__all__ = ["Outcome", "RecordedCall", "read_call"]

_VALUE = {"name": str, "dtype": str, "tensor": (str, [str], None)}
# What call.json holds: types, lists and dicts of them, and tuples of what may be.
_FORM: dict[str, Any] = {
    "ingot": str,
    "time": str,
    "machine": {"system": str, "processors": (int, None), "environment": dict},
    "device": {"uri": str, "description": str},
    "function": str,
    "signature": str,
    "arguments": [_VALUE],
    "out": [({"dtype": str, "shape": [int]}, None)],
    "limits": {"max_steps": (int, None), "timeout": (int, float, None)},
    "results": ([_VALUE], None),
    "error": ({"kind": str, "message": str}, None),
    "seconds": (int, float),
    "options": {"memory_limit": (int, None), "zero_memory": bool},
    "natives": [str],
    "modules": [
        {"name": str, "path": (str, None), "sha256": str, "length": int, "file": (str, None)}
    ],
    "weights": [
        {
            "scope": (str, None),
            "path": str,
            "sha256": (str, None),
            "source": (str, None),
            "files": ([str], None),
        }
    ],
    "obstacle": str,
}


@dataclass(frozen=True)
class Outcome:
    """What a call gave: its results by name, or kind and message of its error, and its seconds.
    Neither, if results were not recorded."""

    results: Mapping[str, Any] | None
    error: tuple[str, str] | None
    seconds: float


class RecordedCall:
    """What `read_call` gives. Tensors are NumPy arrays; elements that NumPy lacks are mere bytes
    (`V2` for bf16), which calls take as they are."""

    def __init__(self, path: str, archive: zipfile.ZipFile) -> None:
        facts = json.loads(archive.read(FACTS))
        version = facts["version"]
        if version != VERSION:
            raise Incompatible(
                f"'{path}' was recorded in version {version!r} of the format, but this Ingot reads "
                f"{VERSION}; replay it with Ingot {facts.get('ingot')!r}"
            )
        for name, form in _FORM.items():
            if not _fits(facts.get(name), form):
                raise ValueError(f"{FACTS} has no {name!r} of the right form")
        self.path = path
        self.facts: Mapping[str, Any] = facts  # all of call.json
        self.function: str = facts["function"]
        self.arguments = _tensors(archive, facts["arguments"])
        results, error = facts["results"], facts["error"]
        self.outcome = Outcome(
            None if results is None else _tensors(archive, results),
            None if error is None else (error["kind"], error["message"]),
            float(facts["seconds"]),
        )
        # As Model.save_state writes it; None: the model has none.
        self.state = archive.read(STATE) if STATE in archive.namelist() else None
        self._out = [
            None
            if each is None
            else np.zeros(each["shape"], stored_dtype(dtype_called(each["dtype"])))
            for each in facts["out"]
        ]

    def load(
        self,
        *,
        device: Any = None,
        threads: int | None = None,
        modules: Mapping[str, Any] | None = None,
        parameters: Any = None,
        natives: Mapping[str, Any] | None = None,
    ) -> Model:
        """The model of the call, in the state before it, on the recorded device unless another one
        is named. `modules` by name ("" for one without) and `parameters` stand for what was
        recorded, whatever that was; `natives` are functions of the application, as for
        `ingot.load`.

        NotFound, FailedPrecondition: the module or its weights are neither in the file nor, as they
        were, where they were. Else raises as `ingot.load`.
        """
        if device is None:
            device = self._device()
        sources = self.modules(modules)
        options = self.facts["options"]
        with TemporaryDirectory() as folder:
            if parameters is None:
                parameters = self._weights(Path(folder))
            model = load(
                sources.get("", sources),
                device=device,
                threads=threads,
                parameters=parameters,
                natives=natives,
                memory_limit=options["memory_limit"],
                zero_memory=options["zero_memory"],
            )
        if self.function not in model.functions:
            raise NotFound(
                f"the module has no function {self.function!r}, which was called; its functions "
                f"are: {', '.join(model.functions)}"
            )
        self.restore(model)
        return model

    def modules(self, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The modules by name; of those in `given` what is there. Raises as `load`."""
        given = given or {}
        rows = {row["name"]: row for row in self.facts["modules"]}
        if unknown := given.keys() - rows.keys():
            names = ", ".join(rows) or "one without a name"
            raise NotFound(f"the call has no module {min(unknown)!r}; it has: {names}")
        with _opened(self.path) as archive:
            own = {name: _module(archive, row) for name, row in rows.items() if name not in given}
        return {name: own[name] if name in own else given[name] for name in rows}

    def restore(self, model: Model) -> None:
        """Puts a model of the module into the state before the call. Raises as
        `Model.load_state`."""
        if self.state is not None:
            with model._session.use() as pointer:
                restore_state(pointer, BytesIO(self.state), self.path)

    def run(self, model: Model) -> Outcome:
        """Makes the call, with its limits. What it raises is an outcome."""
        function = model.functions[self.function].tensors
        values = function.signature.results
        out = self._out if any(each is not None for each in self._out) else None
        begin = time.perf_counter()
        try:
            results = function.call(*self.arguments.values(), out=out, **self.facts["limits"])
        except Exception as error:  # of native functions, too
            return Outcome(None, (type(error).__name__, str(error)), time.perf_counter() - begin)
        passed = time.perf_counter() - begin
        made = results if len(values) > 1 else [results][: len(values)]
        return Outcome(dict(zip([x.name for x in values], made, strict=True)), None, passed)

    def _device(self) -> Device:
        uri = self.facts["device"]["uri"]
        try:
            return open_device(uri)
        except Error as error:
            raise type(error)(
                f"{error}; the call was made on {uri!r}: name another device"
            ) from None

    def _weights(self, folder: Path) -> Sources | None:
        """The sources of the parameters; those in the file are put into the folder."""
        if why := self.facts["obstacle"]:
            raise NotFound(
                f"the weights of the call are not in '{self.path}': {why}; pass them as parameters"
            )
        sources: list[tuple[str | None, str]] = []
        with _opened(self.path) as archive:
            for place, row in enumerate(self.facts["weights"]):
                if row.get("files") is None:
                    _check_file("the file of weights", row, "parameters")
                    sources.append((row["scope"], row["path"]))
                    continue
                inside = folder / str(place)
                for name in row["files"]:
                    target = inside / _relative(name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(f"weights.{place}/{name}") as data, target.open("wb") as file:
                        copyfileobj(data, file, 1 << 20)
                sources.append((row["scope"], str(inside / _relative(row["source"]))))
        return Sources(sources) if sources else None


def read_call(path: str | os.PathLike[str]) -> RecordedCall:
    """The call in a file of `Model.record` or `ingot record`. DataLoss: it is none, or damaged.
    Incompatible: it is of another version. Else raises as `open_regular`.

    Its module is code: `load` one from someone whom you trust.
    """
    with _opened(path) as archive:
        return RecordedCall(os.fsdecode(path), archive)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    said = (
        "is no recorded call, or is damaged: {}; copy it again, or make one with `ingot record` or "
        "model.record"
    )
    with open_regular(path) as file, data_loss(file, said), zipfile.ZipFile(file) as archive:
        if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
            raise ValueError("it is compressed, as no recording is")
        yield archive


def _module(archive: zipfile.ZipFile, row: Mapping[str, Any]) -> bytes | str:
    """The bytes of a module, or the path of one that is not in the file."""
    if row.get("file") is not None:
        return archive.read(row["file"])
    if row["path"] is None:
        raise NotFound(f"the module ({row['length']} bytes) is not in the file; pass it as modules")
    _check_file("the module", row, "modules")
    return str(row["path"])


def _check_file(what: str, row: Mapping[str, Any], instead: str) -> None:
    """NotFound, FailedPrecondition: another file, or none, is where the call had one."""
    path = row["path"]
    try:
        found = digest_of(Path(path), default_cache()).hex()
    except (Error, OSError):
        raise NotFound(
            f"{what} of the call is not in the file, and no longer at '{path}'; pass it as "
            f"{instead}, or record with weights"
        ) from None
    if found != row.get("sha256"):
        raise FailedPrecondition(
            f"{what} at '{path}' is not that of the call; pass it as {instead}"
        )


def _relative(name: str | None) -> PurePosixPath:
    """A path that stays inside its folder, on Windows too."""
    path = PurePosixPath(name or ".")
    windows = PureWindowsPath(path)
    if path.is_absolute() or windows.anchor or ".." in windows.parts:
        raise ValueError(f"a file of weights is called {name!r}")
    return path


def _fits(value: Any, form: Any) -> bool:
    if isinstance(form, tuple):
        return any(_fits(value, each) for each in form)
    if isinstance(form, dict):
        fits = (_fits(value.get(name), each) for name, each in form.items())
        return isinstance(value, dict) and all(fits)
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(each, form[0]) for each in value)
    return value is None if form is None else isinstance(value, form)


def _tensors(archive: zipfile.ZipFile, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Arrays by the names of values; lists of them for sequences, None for what was not there."""
    found: dict[str, Any] = {}
    for row in rows:
        entry, dtype = row["tensor"], stored_dtype(dtype_called(row["dtype"]))
        if isinstance(entry, list):
            found[row["name"]] = [_array(archive, each, dtype) for each in entry]
        else:
            found[row["name"]] = None if entry is None else _array(archive, entry, dtype)
    return found


def _array(archive: zipfile.ZipFile, entry: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.lib.format.read_array(
        BytesIO(archive.read(entry)), allow_pickle=False
    )
    if array.dtype != dtype:
        raise ValueError(f"{entry} is of {array.dtype}, but must be of {dtype}")
    return array
