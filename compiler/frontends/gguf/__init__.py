"""Language models from GGUF files: functions over one cache, which is state of the module.

`prefill(ids: i32[s])` and `decode(id: i32[])` put tokens behind those before and give the logits of
the next one. The file stays where it is: its tensors are external parameters, and what the kernels
need of them `init` makes when the module is loaded. `docs/design/0014-language-models.md`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ingot.compiler.frontends.gguf.configuration import Configuration, read_configuration
from ingot.compiler.frontends.gguf.transformer import Caches, Position, Transformer
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Literal, Module, Region, TensorType, Value, Variable
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.ir.literals import literal_from_numbers
from ingot.hal.errors import CompileError, DataLoss
from ingot.hal.gguf import Gguf
from ingot.hal.spec import dtype

__all__ = ["DEFAULT_CAPACITY", "import_gguf"]

DEFAULT_CAPACITY = 4096
"""Positions of the cache, where the model has so many and nobody asks for others."""

_LENGTH = "length"
_INDEX = TensorType(dtype("i64"))
_ID = dtype("i32")


def import_gguf(path: str | os.PathLike[str], *, capacity: int | None = None) -> Module:
    """The module of a GGUF file. `capacity`: the positions of the cache.

    CompileError: the file is damaged, or its model cannot be compiled; the message says why.
    """
    try:
        file = Gguf(path)
    except DataLoss as error:
        raise CompileError(str(error)) from None
    configuration = read_configuration(file)
    capacity = _checked(capacity, configuration)
    return _Importer(file, configuration, capacity).run()


def _checked(capacity: int | None, configuration: Configuration) -> int:
    if capacity is None:
        return min(configuration.context, DEFAULT_CAPACITY)
    if not 1 <= capacity <= configuration.context:
        raise CompileError(
            f"the capacity is {capacity}, but the model has {configuration.context} positions: "
            "expected at least 1 and at most so many"
        )
    return capacity


class _Importer:
    def __init__(self, file: Gguf, configuration: Configuration, capacity: int) -> None:
        self.file, self.c, self.capacity = file, configuration, capacity
        self.weights = Weights(file, capacity > configuration.original_context)
        self.module = Module(attributes={"producer": f"gguf {configuration.name}"})
        heads = configuration.kv_heads
        lengths = {"k": configuration.key_length, "v": configuration.value_length}
        self.caches = {
            f"cache.{layer}.{part}": TensorType(dtype("f32"), (heads, capacity, length))
            for layer in range(configuration.layers)
            for part, length in lengths.items()
        }

    def run(self) -> Module:
        for name, type in ((_LENGTH, _INDEX), *self.caches.items()):
            literal: Literal = literal_from_numbers([0], (), type.dtype)
            self.module.variables[name] = Variable(type, literal)
        self._add("prefill", "ids", (symbol("s"),), lambda ids, builder: ids)
        self._add("decode", "id", (), lambda id, builder: builder.value("reshape", id, shape=(1,)))
        self.weights.check(self.c.name)
        return self.module

    def _add(
        self, name: str, argument: str, shape: tuple[Dim, ...],
        tokens: Callable[[Value, Builder], Value],
    ) -> None:  # fmt: skip
        """A function that puts tokens behind those before, and gives the next one's logits."""
        block = Block([TensorType(_ID, shape)])
        builder = Builder(block)
        count = shape[0] if shape else 1
        at = self._position(builder, count)
        caches = [self._load(each, builder) for each in self.caches]
        network = Transformer(self.c, self.weights, builder)
        logits, caches = network.logits(tokens(block.arguments[0], builder), at, caches)
        self._store(caches, at, builder)
        builder.return_(logits)
        function = Function(name, Region([block]), [argument], ["logits"])
        if shape:
            function.symbols["s"] = (1, self.capacity)
        self.module.add(function)

    def _position(self, builder: Builder, count: Dim) -> Position:
        """Behind what is cached. A call that does not fit ends here."""
        index = self._load(_LENGTH, builder)
        what = f"the length of the state '{_LENGTH}' (capacity {self.capacity}) before the call"
        limits = {"low": 0, "high": self.capacity - count, "what": what, "status": "OutOfRange"}
        builder.append("size", (index,), (), {"symbols": ("before",), **limits})
        return Position(index, symbol("before"), count)

    def _load(self, name: str, builder: Builder) -> Value:
        type = self.module.variables[name].type
        attributes = {"name": name, "dtype": type.dtype, "shape": type.shape}
        return builder.append("variable.load", (), (), attributes).result

    def _store(self, caches: Caches, at: Position, builder: Builder) -> None:
        for name, value in zip(self.caches, caches, strict=True):
            builder.append("variable.store", (value,), (), {"name": name})
        after = builder.number(at.end, "i64")
        builder.append("variable.store", (after,), (), {"name": _LENGTH})
