"""The checks at the start of an exported function: what arguments must agree on.

Rank, dtype and static dims are in the signature, and the runtime compares them. Here
symbols get their values from the dims of the arguments, and every other place where they
stand is compared with that, before any work.
"""

from __future__ import annotations

from ingot.compiler.ir import Function, TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr, linear_in, symbol, symbols_of
from ingot.compiler.vm.code import CodeBuilder
from ingot.compiler.vm.sizes import Sizes
from ingot.hal.errors import CompileError
from ingot.hal.spec import status

__all__ = ["check_arguments"]

_INVALID = status("InvalidArgument").code


@dataclass(frozen=True)
class _Place:
    """A dim of an argument that is no plain number."""

    argument: int
    name: str
    axis: int
    dim: Expr

    def __str__(self) -> str:
        return f"argument {self.argument} '{self.name}': dim {self.axis} ('{self.dim}')"


def check_arguments(function: Function, code: CodeBuilder, sizes: Sizes) -> None:
    """Define the symbols of `function` and check its arguments."""
    _Checker(function, code, sizes).run()


class _Checker:
    def __init__(self, function: Function, code: CodeBuilder, sizes: Sizes) -> None:
        self.function = function
        self.code = code
        self.sizes = sizes
        self.sources: dict[str, _Place] = {}

    def run(self) -> None:
        pending = self._places()
        while pending:
            left = [place for place in pending if not self._settle(place)]
            if len(left) == len(pending):
                names = ", ".join(map(str, left))
                raise CompileError(
                    f"function '{self.function.name}': {names} cannot be solved for its symbols: "
                    "give each symbol one dim that is the symbol itself, or a multiple of it"
                )
            pending = left
        missing = [name for name in self.function.symbols if name not in self.sources]
        if missing:
            raise CompileError(
                f"function '{self.function.name}' has dims that no argument tells: "
                + ", ".join(missing)
            )

    def _places(self) -> list[_Place]:
        """All symbolic dims, plain symbols first."""
        names = self.function.argument_names
        places = [
            _Place(ordinal, names[ordinal], axis, dim)
            for ordinal, argument in enumerate(self.function.arguments)
            if isinstance(argument.type, TensorType)
            for axis, dim in enumerate(argument.type.shape)
            if isinstance(dim, Expr)
        ]
        return sorted(places, key=lambda place: _symbol_name(place.dim) is None)

    def _settle(self, place: _Place) -> bool:
        """Check the place, or learn a symbol from it; False if too much is unknown."""
        unknown = self.sizes.unknown(place.dim)
        if not unknown:
            self._compare(place, self._read(place))
            return True
        linear = linear_in(place.dim, next(iter(unknown))) if len(unknown) == 1 else None
        if linear is None or linear[0] < 1:
            return False
        (name,) = unknown
        self._learn(place, self._solve(place, *linear), name)
        return True

    def _read(self, place: _Place) -> Value:
        return self.code.op("argument.dim", immediates=(place.argument, place.axis))[0]

    def _compare(self, place: _Place, size: Value) -> None:
        expected = self.sizes.value(place.dim)
        equal = self.code.op("eq.i64", size, expected)[0]
        name = _symbol_name(place.dim)
        if name is not None:
            source = self.sources[name]
            message = (
                f"{place} is {{}}, but argument {source.argument} '{source.name}' has {name} = {{}}"
            )
        else:
            message = f"{place} is {{}}, expected {{}}"
        self.code.check(equal, _INVALID, message, size, expected)

    def _solve(self, place: _Place, factor: int, offset: Dim) -> Value:
        """The symbol's value where the dim is factor * symbol + offset."""
        code = self.code
        size = self._read(place)
        rest = size if offset == 0 else code.op("sub.size", size, self.sizes.value(offset))[0]
        if factor == 1:
            return rest
        divisor, zero = code.constant(factor), code.constant(0)
        remainder = code.op("mod.size", rest, divisor)[0]
        exact = code.op("eq.i64", remainder, zero)[0]
        code.check(exact, _INVALID, f"{place} is {{}}, which is not of the form {place.dim}", size)
        return code.op("floordiv.size", rest, divisor)[0]

    def _learn(self, place: _Place, value: Value, name: str) -> None:
        self.sizes.define(name, value)
        self.sources[name] = place
        low, high = self.function.symbols.get(name, (0, None))
        direct = _symbol_name(place.dim) is not None
        subject = str(place) if direct else f"{place}: {name}"
        if low > 0 or not direct:
            enough = self.code.op("le.i64", self.code.constant(low), value)[0]
            message = f"{subject} is {{}}, expected at least {low}"
            self.code.check(enough, _INVALID, message, value)
        if high is not None:
            within = self.code.op("le.i64", value, self.code.constant(high))[0]
            self.code.check(within, _INVALID, f"{subject} is {{}}, expected at most {high}", value)


def _symbol_name(dim: Expr) -> str | None:
    """The symbol that `dim` is, or None."""
    names = symbols_of(dim)
    return next((name for name in names if dim == symbol(name)), None)
