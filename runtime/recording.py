"""One call of an application in a file: `model.record`, and the file of INGOT_RECORD.

The file is a zip archive without compression: `call.json` has the facts and names the tensors,
which are .npy files; the state before the call, modules and weights lie beside it as their own
formats have them. `recorded_call.py` reads it; docs/design/0025-recording.md has the reasons.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from ingot.hal.array import Array
from ingot.hal.decode import storage_dtype
from ingot.hal.errors import FailedPrecondition, InvalidArgument, NotFound, Unsupported
from ingot.hal.file_cache import default_cache
from ingot.hal.module_bytes import ModuleBytes
from ingot.hal.native import lib, text
from ingot.hal.spec import DType
from ingot.hal.whole_file import c_text, write_whole
from ingot.runtime.origin import Origin, head_of
from ingot.runtime.parameters import files_of
from ingot.runtime.program import Program
from ingot.runtime.shared_weights import digest_of
from ingot.runtime.signature import Signature, Value
from ingot.runtime.state import stream_state
from ingot.runtime.submission import Submission, why_not_wait
from ingot.runtime.tensors import bits_of_input
from ingot.runtime.texts import has_texts

if TYPE_CHECKING:
    from ingot.runtime.session import Session

__all__ = [
    "FACTS",
    "STATE",
    "VERSION",
    "RecordedFacts",
    "Recording",
    "environment_recording",
    "stored",
    "stored_dtype",
]

VERSION = 1
FACTS = "call.json"
STATE = "state"
_SMALL = 16 << 20
"""Bytes of a module that goes into the file without being asked for."""


class Recording:
    """What `model.record` gives. `is_over`: a call is in the file, or will not be. `error`: why
    one that should be is not."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        slower_than: float | None = None,
        with_weights: bool = False,
    ) -> None:
        """NotFound: the folder is not there. InvalidArgument: `slower_than` is no time."""
        self.path = os.path.abspath(os.fsdecode(c_text("path", path)))
        if not os.path.isdir(os.path.dirname(self.path)):
            raise NotFound(f"there is no folder for the recording '{self.path}'")
        if slower_than is not None and not (_is_number(slower_than) and slower_than >= 0):
            raise InvalidArgument(
                f"slower_than is {slower_than!r}, but must be seconds, such as 0.05, or inf for "
                "calls that fail"
            )
        self.slower_than = slower_than
        self.with_weights = with_weights
        self.is_over = False
        self.is_watched = False  # somebody looks at `error`, which is not logged then
        self.error: BaseException | None = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """No call is recorded from now on."""
        self.is_over = True

    def call(self, session: Session, call: RecordedFacts, run: Callable[[], Any]) -> Any:
        """Makes a call by `run`, and records it. Raises what `run` does, and nothing else."""
        with self._turn(session) as pointer:
            if pointer is None:
                return run()
            try:
                call.begin(pointer)
                try:
                    results = run()
                except Exception as error:
                    self._end(call, error)
                    raise
                self._end(call, None, results)
            finally:
                self._rearm(session)
            return results

    def submit(
        self, session: Session, call: RecordedFacts, submit: Callable[..., Submission]
    ) -> Submission:
        """The same of a call that `submit` queues, behind those before it: they end first."""

        def end(results: Any, failure: BaseException | None) -> None:
            self._end(call, failure, None if has_texts(call.signature) else results)
            self._rearm(session)

        if session.pending and why_not_wait():
            return submit()
        with self._turn(session) as pointer:
            if pointer is None:
                return submit()
            try:
                call.begin(pointer)
                return submit(ended=end)
            except BaseException:
                self._rearm(session)
                raise

    @contextmanager
    def _turn(self, session: Session) -> Iterator[Any]:
        """The C session, which has no recording meanwhile; None: another call was recorded."""
        with session.use() as pointer:
            is_mine = session.recording is self
            if is_mine:
                session.recording = None
            yield pointer if is_mine and not self.is_over else None

    def _rearm(self, session: Session) -> None:
        if not self.is_over and session.recording is None:
            session.recording = self

    def _end(self, call: RecordedFacts, failure: BaseException | None, results: Any = None) -> None:
        call.seconds = time.perf_counter() - call.start
        if self.is_over:  # another one was recorded, or nobody wants it any more
            return
        limit = self.slower_than
        if call.obstacle is not None:
            if failure is None:  # else the call fails for the same reason
                self._refuse(call.obstacle)
        elif limit is None or failure is not None or call.seconds > limit:
            self.is_over = True
            try:
                call.end(failure, results)
                path = self.path.replace("%p", str(os.getpid()))
                write_whole(path, lambda file: call.write(file, self.with_weights))
            except Exception as error:  # the disk is full, or a file is gone
                self._refuse(error)

    def _refuse(self, error: BaseException) -> None:
        self.is_over, self.error = True, error
        if self.is_watched:
            return
        logging.getLogger("ingot").warning("a call is not recorded in '%s': %s", self.path, error)


@dataclass
class RecordedFacts:
    """What there is to know of a call of a program; arrays are copies."""

    program: Program
    signature: Signature
    given: Sequence[Any]  # its arguments
    outputs: Sequence[Any]  # what was in `out=`
    limits: tuple[int | None, float | None] | None
    obstacle: Exception | None = None  # why it cannot be recorded
    start: float = 0.0
    seconds: float = 0.0

    def begin(self, session: Any) -> None:
        """Reads what the call gets, which it is about to."""
        self.time = time.gmtime()
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self.state = BytesIO()
        try:
            self.arguments = self._named("argument", self.signature.arguments, self.given)
            self.out = [
                None if each is None else {"dtype": value.dtype.name, "shape": list(np.shape(each))}
                for value, each in zip(self.signature.results, self.outputs, strict=True)
            ]
            if self.program.variables:
                stream_state(session, self.state)
        except Exception as error:
            self.obstacle = error
        self.start = time.perf_counter()

    def end(self, failure: BaseException | None, results: Any) -> None:
        """Reads what it gave; `results` None: that is not known."""
        self.error = self.results = None
        values = self.signature.results
        if failure is not None:
            self.error = {"kind": type(failure).__name__, "message": str(failure)}
        elif results is not None or not values:
            made = results if len(values) > 1 else [results][: len(values)]
            self.results = self._named("result", values, made)

    def _named(self, what: str, values: Sequence[Value], given: Sequence[Any]) -> list[Any]:
        """For each value its name, dtype, and the entries of its arrays."""
        rows = []
        for place, (value, each) in enumerate(zip(values, given, strict=True)):
            entry: Any = f"{what}.{place}.npy"
            if value.kind == "reference":
                raise Unsupported(
                    f"{what} '{value.name}' is a reference to an object, which no file holds"
                )
            if each is None:
                entry = None
            elif value.kind.endswith("sequence"):
                entry = [f"{what}.{place}.{number}.npy" for number in range(len(each))]
                bits = [stored(part, value.dtype, f"element of {value.name}") for part in each]
                self.arrays |= dict(zip(entry, bits, strict=True))
            else:
                self.arrays[entry] = stored(each, value.dtype, value.name)
            rows.append({"name": value.name, "dtype": value.dtype.name, "tensor": entry})
        return rows

    def write(self, file: BinaryIO, with_weights: bool) -> None:
        """The file. FailedPrecondition: its module cannot be told."""
        origin = self.program.origin
        if isinstance(origin, str):
            raise FailedPrecondition(f"the module of the call is not known: {origin}")
        with zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
            facts = {
                "version": VERSION,
                "ingot": text(lib.ingot_version()),
                "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", self.time),
                "machine": _machine(),
                "device": {
                    "uri": self.program.device.uri,
                    "description": self.program.device.description,
                },
                "function": self.signature.name,
                "signature": str(self.signature),
                "arguments": self.arguments,
                "out": self.out,
                "limits": dict(
                    zip(("max_steps", "timeout"), self.limits or (None, None), strict=True)
                ),
                "results": self.results,
                "error": self.error,
                "seconds": self.seconds,
                "options": {
                    "memory_limit": dict(origin.options)["memory_limit"],
                    "zero_memory": bool(dict(origin.options)["zero_memory"]),
                },
                "natives": sorted(self.program.natives),
                "modules": list(_modules(archive, origin, with_weights)),
                **self._weights(archive, origin, with_weights),
            }
            if self.state.tell():
                archive.writestr(STATE, self.state.getvalue())
            for name, array in self.arrays.items():
                with archive.open(name, "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
            archive.writestr(FACTS, json.dumps(facts, indent=1))

    def _weights(
        self, archive: zipfile.ZipFile, origin: Origin, with_weights: bool
    ) -> Mapping[str, Any]:
        """The parameters: their files and hashes, or why there are none."""
        rows: list[dict[str, Any]] = []
        if origin.weights_obstacle and with_weights:
            with archive.open("weights.0/packed", "w", force_zip64=True) as entry:
                self.program.save_weights(cast("BinaryIO", entry), None)
            rows.append({"scope": None, "path": "", "source": "packed", "files": ["packed"]})
            return {"weights": rows, "obstacle": ""}
        for place, (scope, path) in enumerate(origin.parameters or ()):
            row: dict[str, Any] = {"scope": scope, "path": path}
            row["sha256"] = digest_of(Path(path), default_cache()).hex()
            if with_weights:
                base = path if os.path.isdir(path) else os.path.dirname(path)
                names = {_entry(each, base): each for each in files_of(Path(path))}
                for name, each in names.items():
                    archive.write(each, f"weights.{place}/{name}")
                row["source"] = _entry(path, base)
                row["files"] = list(names)
            rows.append(row)
        return {"weights": rows, "obstacle": origin.weights_obstacle}


def _entry(path: str | os.PathLike[str], base: str) -> str:
    """How an archive calls a file below `base`."""
    return Path(os.path.relpath(path, base)).as_posix()


def _modules(
    archive: zipfile.ZipFile, origin: Origin, with_weights: bool
) -> Iterator[dict[str, Any]]:
    for place, (name, source, head) in enumerate(origin.sources):
        row: dict[str, Any] = {"name": name, "path": None}
        if isinstance(source, ModuleBytes):
            row |= {"length": len(source), "sha256": sha256(source.view).hexdigest()}
        elif head_of(source) != head:
            raise FailedPrecondition(f"the module '{source}' was replaced since it was loaded")
        else:
            row |= {"path": source, "length": os.path.getsize(source)}
            row["sha256"] = digest_of(Path(source), default_cache()).hex()
        if with_weights or row["length"] <= _SMALL:
            row["file"] = entry = f"module.{place}.ingot"
            if isinstance(source, ModuleBytes):
                archive.writestr(entry, bytes(source))
            else:
                archive.write(source, entry)
        yield row


def stored_dtype(dtype: DType) -> np.dtype[Any]:
    """What .npy files have for a dtype: mere bytes for those that NumPy lacks."""
    return dtype.numpy if dtype.is_numpy else np.dtype(f"V{dtype.bytes}")


def stored(value: Any, dtype: DType, what: str) -> npt.NDArray[Any]:
    """A copy of a tensor as it is stored. InvalidArgument: it is of another dtype."""
    if type(value) is Array and value.dtype is dtype:
        bits = value._storage(storage_dtype(dtype))
    else:
        is_pyopencl = hasattr(value, "with_queue")
        bits = bits_of_input(value.get() if is_pyopencl else value, dtype, what)
    return np.array(bits, order="C").view(stored_dtype(dtype))


def _machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "environment": {
            name: value for name, value in os.environ.items() if name.startswith("INGOT_")
        },
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@lru_cache(maxsize=1)
def environment_recording() -> Recording | None:
    """What INGOT_RECORD=FILE asks for, for all models of the process together: the first call, or
    with INGOT_RECORD_SLOWER_THAN=SECONDS the first that takes longer or fails."""
    path, limit = (os.environ.get(f"INGOT_RECORD{each}") for each in ("", "_SLOWER_THAN"))
    if not path:
        return None
    try:
        return Recording(path, float(limit) if limit else None)
    except (InvalidArgument, NotFound, ValueError) as error:
        logging.getLogger("ingot").warning("INGOT_RECORD=%s is not used: %s", path, error)
        return None
