"""Packages that only those need who ask for texts, and what they raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ingot.hal.errors import DataLoss, Error, NotFound

__all__ = ["package", "whole"]


def package(name: str) -> Any:
    """The module of this name. NotFound: its package is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise NotFound(
            f"texts of language models need the package {name.partition('.')[0]}, which is not "
            f"installed: pip install 'ingot[llm]' ({error})"
        ) from None


@contextmanager
def whole(what: str) -> Iterator[None]:
    """DataLoss: the package tokenizers raises an error, or panics, over what a file says."""
    try:
        yield
    except Error:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DataLoss(f"{what} is damaged: {error}") from None
        raise
