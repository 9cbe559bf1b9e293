"""A folder of compiled objects and packed weights, found by the hash of all that went into them.

The folder is `$INGOT_CACHE`, else `ingot` in the XDG cache folder. It is private (0700);
files appear by rename, so readers never see half of one; an entry carries the hash of its key and
content, files that are mapped have an entry with how they begin, and what does not match is
ignored. Trimming also removes what processes that were ended have not finished. Where nothing can
be written, nothing is cached and nothing fails. What the OpenCL driver keeps is in the same folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["WEIGHTS", "Cache", "CachedFile", "default_cache"]

WEIGHTS = "weights-"
"""How names of packed weights begin: files of gigabytes, with a limit of their own."""

_DIGEST_LENGTH = 32
_HEAD_LENGTH = 4096
_ENTRY = "entry-"  # files that begin with a hash; others have checks of their own
_FINISHED = re.compile(rf"(entry-|opencl-|{WEIGHTS})?[0-9a-f]{{64}}")
_UNFINISHED = re.compile(r"\.new-\w+|opencl-[0-9a-f]{64}\.\w{6}|\.[0-9a-f]{16}\.ingot")
"""Of `Cache._put`, of C and of `write_whole`."""
_LONGEST_WRITE = 3600.0
"""Seconds behind the last change of a file after which nobody is writing it any more."""


class CachedFile(NamedTuple):
    """A file of the cache: its bytes, and when it was used, in seconds since 1970."""

    path: Path
    length: int
    used: float


class Cache:
    """Bytes by key. `folder` None: remembers nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def read(self, key: str) -> bytes | None:
        """What was written for the key, or None."""
        if self.folder is None:
            return None
        path = self.folder / f"{_ENTRY}{key}"
        try:
            if not path.is_file():  # a pipe never ends
                return None
            data = path.read_bytes()
        except (MemoryError, OSError):
            return None
        _mark_used(path)
        digest, content = data[:_DIGEST_LENGTH], data[_DIGEST_LENGTH:]
        return content if _digest(key, content) == digest else None

    def write(self, key: str, content: bytes) -> None:
        """Keep the content for the key, if the folder can be written."""
        self._put(f"{_ENTRY}{key}", _digest(key, content) + content)

    def file(self, key: str) -> Path | None:
        """The file that `write_file` or `bind` made for the key, or None."""
        if self.folder is None:
            return None
        path = self.folder / key
        head = _head(path)
        if head is None or self.read(_bound(key)) != head:
            return None
        _mark_used(path)
        return path

    def bind(self, key: str) -> None:
        """Remember how the file of that name begins, which tells it from others."""
        head = None if self.folder is None else _head(self.folder / key)
        if head is not None:
            self.write(_bound(key), head)

    def write_file(self, key: str, content: bytes) -> None:
        """As `write`, of content with checks of its own, which is read from the file itself."""
        self._put(key, content)
        self.bind(key)

    def _put(self, name: str, content: bytes) -> None:
        if self.folder is None:
            return
        fresh = ""
        try:
            handle, fresh = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(fresh, self.folder / name)
        except OSError:
            if fresh:
                with suppress(OSError):
                    Path(fresh).unlink()

    def files(self) -> list[CachedFile]:
        """What is in it, what was not used for longest first."""
        found: list[CachedFile] = []
        if self.folder is None:
            return found
        with suppress(OSError):  # the folder is gone
            for path in self.folder.iterdir():
                is_finished = _FINISHED.fullmatch(path.name)
                if not is_finished and not _UNFINISHED.fullmatch(path.name):
                    continue
                with suppress(OSError):  # another process removed it
                    status = path.stat()
                    used = max(status.st_atime, status.st_mtime)
                    if is_finished or time.time() - status.st_mtime > _LONGEST_WRITE:
                        found.append(CachedFile(path, status.st_size, used))
        return sorted(found, key=lambda file: file.used)

    def trim(self, length: int, *, weights: bool | None = None) -> None:
        """Remove what was not used for longest, until the rest has at most `length` bytes: of
        packed weights, of all but them, or (None) of everything."""
        files = [
            file for file in self.files() if weights in (None, file.path.name.startswith(WEIGHTS))
        ]
        rest = sum(file.length for file in files)
        for file in files:
            if rest <= length:
                return
            with suppress(OSError):
                file.path.unlink()
            rest -= file.length


def _mark_used(path: Path) -> None:
    """So that `trim` knows. The time of the last writing stays, also of a file that replaces this
    one just now: who reads it takes another one for a writer."""
    with suppress(OSError), path.open("rb") as file:
        written = os.fstat(file.fileno()).st_mtime_ns
        target = file.fileno() if os.utime in os.supports_fd else path
        os.utime(target, ns=(time.time_ns(), written))


def _bound(key: str) -> str:
    return hashlib.sha256(f"head of {key}".encode()).hexdigest()


def _head(path: Path) -> bytes | None:
    """How a file begins: modules and packed weights with checksums of all the rest."""
    try:
        if not path.is_file():  # a pipe never ends
            return None
        with path.open("rb") as file:
            return file.read(_HEAD_LENGTH)
    except OSError:
        return None


def _digest(key: str, content: bytes) -> bytes:
    found = hashlib.sha256(key.encode())
    found.update(content)
    return found.digest()


def default_cache() -> Cache:
    """The user's cache; one that remembers nothing where its folder is not private."""
    folder = os.environ.get("INGOT_CACHE")
    if folder:
        path = Path(folder)
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        try:
            path = (Path(base) if base else Path.home() / ".cache") / "ingot"
        except RuntimeError:  # no home folder
            return Cache(None)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError:
        return Cache(None)
    private = not hasattr(os, "getuid") or (  # on Windows a user's folders are
        status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
    return Cache(path if private and os.access(path, os.W_OK) else None)
