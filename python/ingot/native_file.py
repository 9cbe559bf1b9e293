"""`--natives FILE.py`: ops of the user's own for the commands, as Python says them.

The file has `NATIVES`, a dict of `ingot.Native` with the function of each, and perhaps `KERNELS`, a
dict of `ingot.Kernel`; a name in both is a kernel with its reference. The file is run like any
script of the user's.
"""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ingot.hal.errors import InvalidArgument, NotFound

__all__ = ["OwnFile", "add_natives", "read_natives"]


@dataclass(frozen=True)
class OwnFile:
    """What such a file says."""

    natives: Mapping[str, Any] = field(default_factory=dict)
    kernels: Mapping[str, Any] = field(default_factory=dict)

    @property
    def declared(self) -> dict[str, Any]:
        """The natives for `ingot.compile`, without their functions. What has a kernel is compared
        with the function alone."""
        return {
            name: replace(native, function=None)
            for name, native in self.natives.items()
            if name not in self.kernels
        }

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """The natives for `ingot.load`."""
        given = self.natives.items()
        return {name: native.function for name, native in given if native.function is not None}


def add_natives(parser: argparse.ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--natives",
        metavar="FILE.py",
        help="ops of your own: a Python file with NATIVES = {name: ingot.Native(signature, "
        "function=f)}, and KERNELS of ingot.Kernel",
    )


def read_natives(path: str | None) -> OwnFile:
    """What the file says; nothing without one. NotFound, InvalidArgument: it is none."""
    from ingot.compiler.frontends.natives import Native

    if path is None:
        return OwnFile()
    try:
        names = runpy.run_path(path)
    except OSError as error:
        raise NotFound(f"'{path}' cannot be read: {error.strerror}") from None
    natives, kernels = (names.get(each, {}) for each in ("NATIVES", "KERNELS"))
    fits = isinstance(natives, dict) and isinstance(kernels, dict) and (natives or kernels)
    if not fits or not all(isinstance(each, Native) for each in natives.values()):
        raise InvalidArgument(
            f"'{path}' must have NATIVES, a dict of ingot.Native by the names of ops, or KERNELS, "
            "one of ingot.Kernel"
        )
    return OwnFile(natives, kernels)
