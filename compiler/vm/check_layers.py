"""The checks of relations between dims that ops of the program rely on.

Each is made as soon as its symbols are known: at the start of a function, or behind the op
that reads a size from data.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.compiler.dispatch.ops import Check
from ingot.compiler.vm.code import CodeBuilder
from ingot.compiler.vm.sizes import Sizes
from ingot.hal.spec import status

__all__ = ["LayerChecks"]

_INVALID = status("InvalidArgument").code


class LayerChecks:
    """The checks of a function that are still to be made."""

    def __init__(self, checks: Iterable[Check], code: CodeBuilder, sizes: Sizes) -> None:
        self._code = code
        self._sizes = sizes
        self._pending = list(checks)

    def add(self, checks: Iterable[Check]) -> None:
        """Make checks of a body that begins here."""
        self._pending += checks
        self.make()

    def make(self) -> None:
        """Write the checks whose symbols are known by now."""
        sizes, pending = self._sizes, self._pending
        ready = [each for each in pending if sizes.is_known(each.a) and sizes.is_known(each.b)]
        self._pending = [check for check in pending if check not in ready]
        for check in ready:
            self._make(check)

    def _make(self, check: Check) -> None:
        code, a, b = self._code, check.a, check.b
        left, right = self._sizes.value(a), self._sizes.value(b)
        prefix = f"layer '{check.layer}': " if check.layer else ""
        if check.kind == "le":
            holds = code.op("le.i64", left, right)[0]
            if isinstance(a, int):
                code.check(holds, _INVALID, f"{prefix}{b} is {{}}, expected at least {a}", right)
                return
            message = f"{prefix}{a} is {{}}, expected at most {b} = {{}}"
        elif check.kind == "equal":
            holds = code.op("eq.i64", left, right)[0]
            message = f"{prefix}{a} is {{}}, expected {b} = {{}}"
        else:
            one = code.op("eq.i64", left, code.constant(1))[0]
            equal = code.op("eq.i64", left, right)[0]
            holds = code.op("or.i64", one, equal)[0]
            message = f"{prefix}{a} is {{}}, expected 1 or {b} = {{}}"
        code.check(holds, _INVALID, message, left, right)
