"""Models of two halves: an encoder reads a text, and a decoder writes what follows from it.

Each half is a network as any other, with tensors of its own; the decoder's layers attend to what
the encoder has made, too. `encode(ids: i32[s])` keeps keys and values of that for each layer of the
decoder, and lets its text begin anew; `start()` gives the token with which it begins.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from ingot.compiler.frontends.cached_tokens import Grid, Tokens, one_page
from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.function_builder import FunctionBuilder
from ingot.compiler.frontends.gguf.seen import NOWHERE
from ingot.compiler.frontends.gguf.weights import Tensors, Weights
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Module, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.gguf import GgufTensor
from ingot.hal.spec import dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DECODER", "ENCODER", "Source", "SourceTokens", "half"]

ENCODER, DECODER = "enc.", "dec."
_OTHERWISE = {"attn_o": "attn_output", "cross_attn_o": "cross_attn_output"}
_SOURCE = "source"
I32, I64 = dtype("i32"), dtype("i64")


class _Half:
    """The tensors of one half under the names that they have where there is no other."""

    def __init__(self, file: Tensors, which: str) -> None:
        self.file, self.title = file, file.title
        other = DECODER if which == ENCODER else ENCODER
        left = (other, "output.") if which == ENCODER else (other,)
        self.own = {
            _plain(name.removeprefix(which)): name
            for name in file.tensors
            if not name.startswith(left)
        }
        self.which = which
        self.tensors: Mapping[str, GgufTensor] = {
            name: file.tensors[own] for name, own in self.own.items()
        }

    def name_of(self, name: str) -> str:
        """The file's own name, also of what is missing there."""
        is_shared = name.startswith(("token_embd.", "output."))
        return self.file.name_of(self.own.get(name, name if is_shared else f"{self.which}{name}"))


def _plain(name: str) -> str:
    rest, _, last = name.rpartition(".")
    front, _, part = rest.rpartition(".")
    return f"{front}.{_OTHERWISE[part]}.{last}" if part in _OTHERWISE else name


def half(weights: Weights, c: Configuration, which: str) -> tuple[Weights, Configuration]:
    """The weights and the sizes of one half of a model."""
    own = copy(weights)
    own.file, own.read, own.problems = _Half(weights.file, which), set(), {}
    if which == ENCODER or c.decoder is None:
        return own, replace(c, decoder=None, is_causal=False)
    count = c.decoder.layers
    is_scaled = c.decoder.is_scaled
    is_scaled = "output.weight" not in own if is_scaled is None else is_scaled
    scale = c.width**-0.5 if is_scaled else 1.0
    none = (False,) * count
    return own, replace(
        c,
        layers=count,
        sources=tuple(range(count)),
        attention=c.attention[:1] * count,
        windows=none,
        rotated=none,
        convolved=none,
        networks=none,
        logit_scale=scale,
    )


class Source:
    """What a decoder of these sizes keeps of what an encoder has read: keys and values of each
    layer, [heads, capacity, length], and the count of tokens."""

    def __init__(self, c: Configuration, capacity: int, cache: str) -> None:
        self.c, self.capacity = c, capacity
        self.variables = {_SOURCE: TensorType(I64)}
        for layer, heads in enumerate(c.attention):
            for part, length in (("k", heads.key_length), ("v", heads.value_length)):
                shape = (heads.count, capacity, length)
                self.variables[f"{_SOURCE}.{layer}.{part}"] = TensorType(dtype(cache), shape)

    def load(self, b: Builder) -> SourceTokens:
        """It as it is where a function begins. A call without a text that was read ends there."""
        values = {
            name: b.append(
                "variable.load", (), (), {"name": name, "dtype": type.dtype, "shape": type.shape}
            ).result
            for name, type in self.variables.items()
        }
        what = f"the state '{_SOURCE}', the tokens that `encode` has read,"
        limits = {"low": 1, "high": self.capacity, "what": what, "status": "OutOfRange"}
        b.append("size", (values[_SOURCE],), (), {"symbols": (_SOURCE,), **limits})
        return SourceTokens(self.c, values, symbol(_SOURCE))

    def add_functions(
        self, module: Module, read: Weights, encoded: Value, f: FunctionBuilder
    ) -> None:
        """`encode`, which `f` builds, of what the encoder has made, f32[s, width]; and `start`.
        `read`: the decoder's weights."""
        read.builder, (count, _) = f.b, tensor_type(encoded).shape
        zero = f.b.constant(0, "i64")
        for layer, heads in enumerate(self.c.attention):
            for part, length in (("k", heads.key_length), ("v", heads.value_length)):
                name = f"{_SOURCE}.{layer}.{part}"
                x = read.linear(encoded, f"blk.{layer}.cross_attn_{part}", heads.count * length)
                x = f.b.value("reshape", x, shape=(count, heads.count, length))
                x = f.b.value("transpose", x, permutation=(1, 0, 2))
                x = f.b.value("convert", x, dtype=self.variables[name].dtype)
                kept = f.b.value("dynamic_update_slice", f.load(name), x, zero, zero, zero)
                f.store(name, kept)
        f.store(_SOURCE, f.b.number(count, I64))
        f.store("length", zero)
        f.store("seen", f.b.full(NOWHERE, I32, module.variables["seen"].type.shape))
        f.end("encode")
        assert self.c.decoder is not None
        f = FunctionBuilder(module, {})
        f.end("start", id=f.b.constant(self.c.decoder.start, "i32"))


class SourceTokens:
    """The `length` tokens that an encoder has read, `values` of them by names of variables."""

    def __init__(self, c: Configuration, values: Mapping[str, Value], length: Dim) -> None:
        self.c, self.values, self.length = c, values, length

    def attend(self, b: Builder, q: Value, layer: int) -> Value:
        """What tokens with q[count, heads, d] make of all that was read, [count, heads * e]."""
        (count, _, _) = tensor_type(q).shape
        places = b.number(self.length - 1, I64, (count,))
        tokens = Tokens(b, Grid(b, 1, count), places, one_page(b))
        k, v = (
            b.value("reshape", x, shape=(1, *tensor_type(x).shape))
            for x in (self.values[f"{_SOURCE}.{layer}.{part}"] for part in "kv")
        )
        return tokens.attend(q, k, v, scale=self.c.scale, window=0, cap=0.0)
