"""A function of a language model's module while it is built."""

from __future__ import annotations

from ingot.compiler.frontends.spans import Spans
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbol

__all__ = ["FunctionBuilder"]


class FunctionBuilder:
    """A function that is being built. Variables are loaded once, and stored where told."""

    def __init__(self, module: Module, arguments: dict[str, TensorType]) -> None:
        block = Block(list(arguments.values()))
        self.module, self.b, self.arguments = module, Builder(block), block.arguments
        self.function = Function("", Region([block]), list(arguments), [])
        self.loaded: dict[str, Value] = {}
        self.sizes = 0

    def load(self, name: str) -> Value:
        """The variable as it was when the function began."""
        if name not in self.loaded:
            type = self.module.variables[name].type
            attributes = {"name": name, "dtype": type.dtype, "shape": type.shape}
            self.loaded[name] = self.b.append("variable.load", (), (), attributes).result
        return self.loaded[name]

    def store(self, name: str, value: Value) -> None:
        self.b.append("variable.store", (value,), (), {"name": name})

    def size(self, value: Value, high: Dim, what: str, low: Dim = 0) -> Dim:
        """A number of `low` to `high` as a dim. Another one ends the call."""
        self.sizes += 1
        name = f"size{self.sizes}"
        limits = {"low": low, "high": high, "what": what, "status": "OutOfRange"}
        self.b.append("size", (value,), (), {"symbols": (name,), **limits})
        return symbol(name)

    def end(self, name: str, **results: Value) -> None:
        """It gives these, and is a function of the module, of this name."""
        self.b.return_(*results.values())
        self.function.name, self.function.result_names = name, list(results)
        self.module.add(self.function)

    def spans(self, counts: Value, total: Dim, most: Dim | None = None) -> Spans:
        """The texts of `total` ids, `counts` of each, at most `most`. Counts that do not fit these
        end the call."""
        b = self.b
        least, longest, sum = (
            b.value("reduce", counts, axes=(0,), kind=kind) for kind in ("min", "max", "add")
        )
        # A check, since only one number fits.
        least = b.value("min", least, b.constant(1, "i64"))
        self.size(least, 1, "the least of 'counts'", low=1)
        high = total if most is None else most
        end = self.size(longest, high, "the greatest of 'counts'")
        self.size(sum, total, "the sum of 'counts', for so many 'ids',", low=total)
        return Spans(b, counts, total, end)
