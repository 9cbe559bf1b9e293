"""Exceptions of others, as those of Ingot: what programs that nobody thought of do to the code
that reads them. Messages for what people do wrong are made where it is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ingot.hal.errors import CompileError, Error, Internal, OutOfMemory

__all__ = ["own_errors"]


@contextmanager
def own_errors(doing: str) -> Iterator[None]:
    """Only `Error` leaves, with the other exception as its cause; interrupts pass."""
    try:
        yield
    except Error:
        raise
    except RecursionError as error:
        raise CompileError(f"{doing}: the program is nested too deep; make it flatter") from error
    except MemoryError as error:
        text = f": {error}" if str(error) else ""
        raise OutOfMemory(f"{doing}: memory ran out{text}") from error
    except Exception as error:
        raise Internal(
            f"{doing} failed with {type(error).__name__}: {str(error)[:500]}; the program may "
            "break the rules of its format, else please report it"
        ) from error
