"""Packages that only those need who ask for texts."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ingot.hal.errors import NotFound

__all__ = ["package"]


def package(name: str) -> Any:
    """The module of this name. NotFound: its package is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise NotFound(
            f"texts of language models need the package {name.partition('.')[0]}, which is not "
            f"installed: pip install 'ingot[llm]' ({error})"
        ) from None
