"""What tells a compiled module in the cache from others: the compiler as it is installed, the
processor, and hashes."""

from __future__ import annotations

import hashlib
import os
from functools import cache

from ingot.hal.device import open_device

__all__ = ["digest", "installed_compiler", "processor"]


def digest(*parts: str) -> str:
    """The key of what these parts tell."""
    text = "\0".join(parts)  # names of files need not be UTF-8
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def installed_compiler() -> str:
    """The compiler as it is installed: names, sizes and times of its files."""
    from ingot import compiler
    from ingot.hal import header

    found = []
    for folder in (os.path.dirname(compiler.__file__), os.path.dirname(header.__file__)):
        for place, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                if name.endswith((".py", ".h", ".cl", ".def")):
                    status = os.stat(os.path.join(place, name))
                    at = place.removeprefix(folder)
                    found.append(f"{at} {name} {status.st_size} {status.st_mtime_ns}")
    return digest(*found)


def processor() -> str:
    """What kernels of this machine may use."""
    return open_device().description.rpartition(",")[0]
