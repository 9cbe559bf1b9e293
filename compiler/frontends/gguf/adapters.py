"""Low-rank adapters (LoRA) beside products: x W' + x down' up', with factors that are parameters of
the scope "lora" and are exchanged alone.

The module has room for factors of a rank. How much of it is in use is read once per call, for each
kind of product (all `attn_q`, ...), and is a symbol: rows behind it are not touched, and without an
adapter nothing is multiplied. Several adapters stand one behind another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from os import PathLike
from typing import Any

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.adapter import Adapter, read_adapter
from ingot.hal.errors import CompileError, Error
from ingot.hal.spec import dtype
from ingot.hal.tensor_names import kind_of

__all__ = ["SCOPE", "Adapters", "Lora", "open_adapters"]

SCOPE = "lora"

Lora = int | str | PathLike[str] | Sequence[Any] | None
"""The greatest rank of all adapters together; or the path of one that is to fit, or several."""

_USUAL = re.compile(r"blk\.\d+\.(attn_(q|k|v|qkv|output)|ffn_(gate|up|down))")
_MOST = 1024  # of ranks
_F32, _I64 = dtype("f32"), dtype("i64")


class Adapters:
    """What adapters change: the products of these names, by factors of the rank at most."""

    def __init__(self, rank: int, targets: Collection[str] | None) -> None:
        self.rank, self.targets = rank, targets
        self.kinds: dict[str, tuple[int, int]] = {}
        self.names: dict[str, None] = {}
        self.symbols: dict[str, Dim] = {}

    def open(self, builder: Builder, tensors: Collection[str]) -> None:
        """Read, where a function begins, how much of the rank is in use for the model's tensors."""
        names = (name.removesuffix(".weight") for name in tensors)
        kinds = dict.fromkeys(kind_of(name) for name in names if name in self)
        self.symbols = {}
        for kind in kinds:
            key = f"{kind}.rank"
            used = builder.value("parameter", scope=SCOPE, key=key, dtype=_I64, shape=())
            name = f"rank_{re.sub(r'[^0-9A-Za-z]', '_', kind)}"
            limits = {"low": 0, "high": self.rank, "what": f"the parameter '{SCOPE}/{key}'"}
            builder.append("size", (used,), (), {"symbols": (name,), **limits})
            self.symbols[kind] = symbol(name)

    def __contains__(self, name: str) -> bool:
        return bool(_USUAL.fullmatch(name)) if self.targets is None else name in self.targets

    def added(self, y: Value, x: Value, name: str, heads: tuple[int, int], b: Builder) -> Value:
        """y[s, length], and what the adapters make of x[s, k]."""
        shape = (tensor_type(y).shape[-1], tensor_type(x).shape[-1])
        down, up = self.factors(name, shape, heads, b)
        inner = _times_rows(x, down, b)
        change = b.value("dot_general", inner, up, lhs_contract=(1,), rhs_contract=(0,))
        return b.value("add", y, change)

    def factors(
        self, name: str, shape: tuple[Dim, Dim], heads: tuple[int, int], b: Builder
    ) -> tuple[Value, Value]:
        """What is in use for a weight of this shape: down f32[used, k] and up f32[used, length]."""
        self.names[name] = None
        self.kinds.setdefault(kind_of(name), heads)
        used, (length, k) = self.symbols[kind_of(name)], shape
        down = self._factor(f"{name}.lora_a", k, used, b)
        return down, self._factor(f"{name}.lora_b", length, used, b)

    def _factor(self, key: str, length: Dim, used: Dim, b: Builder) -> Value:
        """The rows in use, f32[used, length]."""
        shape = (self.rank, length)
        rows = b.value("parameter", scope=SCOPE, key=key, dtype=_F32, shape=shape)
        first = b.constant(0, "i64")
        return b.value("dynamic_slice", rows, first, first, sizes=(used, length))

    def attribute(self, producer: str) -> tuple[Any, ...]:
        """For ADAPTERS, of a model that was read from `producer`."""
        return self.rank, producer, tuple((kind, *heads) for kind, heads in self.kinds.items())

    def check(self, title: str) -> None:
        """CompileError: the adapters change what the model does not have."""
        missing = [name for name in self.targets or () if name not in self.names]
        if missing:
            raise CompileError(
                f"the adapter changes '{missing[0]}', which {title} does not multiply by: it "
                "belongs to another model"
            )


def _times_rows(x: Value, down: Value, b: Builder) -> Value:
    """x[s, k] times each row of down[used, k]: [s, used]. Of one x, sums of the products read the
    rows as they lie; a contraction has its lanes in different rows."""
    (count, k), (used, _) = tensor_type(x).shape, tensor_type(down).shape
    if count != 1:
        return b.value("dot_general", x, down, lhs_contract=(1,), rhs_contract=(1,))
    wide = b.value("broadcast", x, shape=(1, used, k), dimensions=(0, 2))
    rows = b.value("broadcast", down, shape=(1, used, k), dimensions=(1, 2))
    return b.value("reduce", b.value("mul", wide, rows), axes=(2,), kind="add")


def open_adapters(lora: Lora) -> Adapters | None:
    """What a module is to have room for; None: nothing. CompileError: an adapter cannot be read."""
    if lora is None:
        return None
    if isinstance(lora, int):
        if not 1 <= lora <= _MOST:
            raise CompileError(f"lora is {lora}, expected a rank from 1 to {_MOST}, or adapters")
        return Adapters(lora, None)
    paths = [lora] if isinstance(lora, (str, PathLike)) else list(lora)
    try:
        adapters: list[Adapter] = [read_adapter(path) for path in paths]
    except (Error, OSError) as error:
        raise CompileError(str(error)) from None
    if not adapters:
        raise CompileError("lora is an empty list, expected a rank, or adapters")
    names = {name for each in adapters for name in each.products()}
    return Adapters(sum(each.rank for each in adapters), names)
