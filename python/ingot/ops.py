"""The functions of traced programs, by the names of the array API standard: see `ingot.trace`.

    from ingot import ops

    @ingot.program(ingot.spec("u8[height,width,3]"))
    def prepare(image):
        return ops.resize(image, (224, 224), axes=(0, 1)) / 255

Which names of the standard are missing is told in docs/programs.md.
"""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.program import namespace as _namespace

__array_api_version__ = _namespace.__array_api_version__
__all__ = _namespace.__all__


def __getattr__(name: str) -> Any:
    return getattr(_namespace, name)


def __dir__() -> list[str]:
    return sorted(__all__)
