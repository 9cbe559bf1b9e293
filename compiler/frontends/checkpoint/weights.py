"""The tensors of a folder under the names of GGUF files, and as their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ingot.compiler.frontends.checkpoint.configuration import text_config
from ingot.compiler.frontends.checkpoint.quantised import CodedTensor, is_unused
from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.pieces import over_rows, times
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import known_dim
from ingot.hal.checkpoint import Checkpoint
from ingot.hal.errors import CompileError
from ingot.hal.gguf import GgufTensor
from ingot.hal.spec import dtype
from ingot.hal.tensor_names import (
    BARE,
    LAYER,
    OF_LAYER,
    WHOLE,
    half_name,
    kind_of,
    name_of_half,
    plain_name,
)

__all__ = ["CheckpointWeights", "Renamed"]

F32, F16, U8, I8 = (dtype(name) for name in ("f32", "f16", "u8", "i8"))
_GROUP = 32  # weights of a row that share a scale

_NORMS_BEHIND = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_NORMS_OF_GLM = {"post_self_attn_layernorm": "post_attention_norm"}
_NORMS_OF_GLM |= {"post_mlp_layernorm": "post_ffw_norm"}
_OTHERWISE = {
    **dict.fromkeys(("gemma2", "gemma3_text", "olmo2", "olmo3", "exaone4"), _NORMS_BEHIND),
    **dict.fromkeys(("flex_olmo", "gemma3n_text", "gemma4_text", "vaultgemma"), _NORMS_BEHIND),
    "glm4": _NORMS_OF_GLM,
    "openai-gpt": {"ln_1": "attn_output_norm", "ln_2": "layer_output_norm"},
    "afmoe": {
        "post_attention_layernorm": "post_attention_norm",
        "pre_mlp_layernorm": "ffn_norm",
        "post_mlp_layernorm": "post_ffw_norm",
    },
}
"""What models have otherwise."""

_HEADS = (
    *("pooler.", "bert.pooler.", "roberta.pooler.", "cls.", "head.", "decoder.", "lm_head."),
    "embeddings.position_ids",
)
"""And those that make other things than vectors."""
_SCORES = {
    **dict.fromkeys(("bert.pooler.dense", "classifier.dense", "head.dense"), "cls"),
    "head.norm": "cls.norm",
    **dict.fromkeys(("classifier", "classifier.out_proj", "score"), "cls.output"),
}
"""Those of models that rank texts which make scores of vectors."""
_OTHER_PARTS = ("vision", "visual", "multi_modal_projector", "embed_vision", "audio", "embed_audio")
"""How names of tensors begin that make tokens of images and sounds."""


_SHARED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""The table of embeddings again, which both halves of a model have."""


class Renamed:
    """The tensors of a folder by the names of GGUF files; what has none keeps its own."""

    def __init__(
        self, folder: Checkpoint, tensors: Mapping[str, GgufTensor], c: Configuration
    ) -> None:
        self.folder = folder
        self.is_gemma = c.name.startswith("gemma")
        self.is_less_one = c.architecture.is_less_one
        self.lies_in_columns = c.architecture.has_products_in_columns
        a = c.architecture
        self.has_columns = a.has_paired_gates or a.has_experts_in_columns
        self.layer = LAYER | _OTHERWISE.get(c.name, {})
        self.whole = WHOLE if c.head is None else WHOLE | _SCORES
        self.tensors: dict[str, GgufTensor] = {}
        self.own: dict[str, str] = {}
        config, has_parts = text_config(folder), "text_config" in folder.config
        self.has_halves = a.has_halves
        tied = bool(config.get("tie_word_embeddings", self.is_gemma or c.name.startswith("cohere")))
        for name, tensor in tensors.items():
            if self.has_halves:
                if name not in _SHARED:
                    self._add(name, tensor)
                continue
            plain = plain_name(name)
            is_score = c.head is not None and plain.rpartition(".")[0] in _SCORES
            if c.pooling and plain.startswith(_HEADS) and not is_score:
                continue
            if is_unused(name) or (tied and plain in ("lm_head.weight", "embed_out.weight")):
                continue
            if has_parts and name.removeprefix("model.").startswith(_OTHER_PARTS):
                continue
            if c.architecture.recurrence and name.startswith("mtp."):  # guesses further tokens
                continue
            self._add(name, tensor)

    def _add(self, name: str, tensor: GgufTensor) -> None:
        self.own[self._of(name)] = name
        self.tensors[self._of(name)] = tensor

    @property
    def title(self) -> str:
        return f"the model in '{self.folder.path}'"

    def name_of(self, name: str) -> str:
        """The name in the folder, also of what is missing there."""
        if name in self.own:
            return self.own[name]
        part, _, last = name.rpartition(".")
        if self.has_halves:
            return f"{name_of_half(part)}.{last}"
        for own, other in self.whole.items():
            if other == part:
                return f"{own}.{last}"
        _, number, part = [*part.split(".", 2), "", ""][:3]
        for own, other in BARE.items():
            if other == f"{part}.{last}" and self.has_columns:
                return f"model.layers.{number}.{own}"
        own = next((own for own, other in self.layer.items() if other == part), part)
        return f"model.layers.{number}.{own}.{last}"

    def _of(self, name: str) -> str:
        if self.has_halves:
            part, _, last = name.rpartition(".")
            return f"{half_name(part)}.{last}"
        name = plain_name(name)
        if match := OF_LAYER.fullmatch(name):
            number, rest = match.groups()
            if rest in BARE:
                return f"blk.{number}.{BARE[rest]}"
            part, _, last = rest.rpartition(".")
            is_known = part in self.layer and last in ("weight", "bias")
            return f"blk.{number}.{self.layer[part]}.{last}" if is_known else name
        part, _, last = name.rpartition(".")
        return f"{self.whole[part]}.{last}" if part in self.whole else name


class CheckpointWeights(Weights):
    """Weights of a folder; those of products may become `codes`, int8 or int4, in groups of 32 with
    a scale, as the types Q8_0 and Q4_0 of GGUF have them."""

    def __init__(self, file: Renamed, codes: str | None) -> None:
        super().__init__(file)
        self.factors: Mapping[str, Any] = {}  # of products of layers, by their kinds
        self.is_less_one, self.codes = file.is_less_one, codes
        self.has_columns = file.has_columns  # of experts, where others have rows
        self.lies_in_columns = file.lies_in_columns  # all products

    def linear(self, x: Value, name: str, length: int, heads: tuple[int, int] = (1, 0)) -> Value:
        y, factor = super().linear(x, name, length, heads), self.factors.get(kind_of(name), 1.0)
        if isinstance(factor, np.ndarray):
            factors = self.builder.constant(factor)
            wide = self.builder.broadcast_to(factors, tensor_type(y).shape)
            return self.builder.value("mul", y, wide)
        return y if factor == 1 else times(y, factor, self.builder)

    def rows(self, name: str) -> int:
        tensor = self.file.tensors.get(name)
        is_turned = self.lies_in_columns and tensor is not None and len(tensor.shape) == 2
        return tensor.shape[0] if is_turned and tensor is not None else super().rows(name)

    def vector(self, name: str, length: int) -> Value:
        tensor = self.file.tensors.get(name)
        if tensor is not None and tensor.shape == () and length == 1:
            return self.builder.value("reshape", self._numbers(name, ()), shape=(1,))
        if tensor is not None and tensor.shape == (1, length):
            return self.builder.value("reshape", self._numbers(name, (1, length)), shape=(length,))
        numbers = super().vector(name, length)
        is_less_one = self.is_less_one and not name.endswith("ssm_norm.weight")
        if is_less_one and name.endswith("norm.weight"):
            return self.builder.value("add", numbers, self.builder.full(1.0, F32, (length,)))
        return numbers

    def _numbers(self, name: str, shape: tuple[int, ...], heads: tuple[int, int] = (1, 0)) -> Value:
        tensor = self.file.tensors.get(name)
        if isinstance(tensor, CodedTensor):
            return self._of_codes(tensor, name, shape)
        if self._lies_in_columns(name, shape):
            *outer, length, k = shape
            order = (*range(len(outer)), len(outer) + 1, len(outer))
            numbers = super()._numbers(name, (*outer, k, length), heads)
            numbers = self.builder.value("transpose", numbers, permutation=order)
        else:
            numbers = super()._numbers(name, shape, heads)
        is_router = name.endswith(("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight"))
        if self.codes is None or len(shape) < 2 or shape[-1] % _GROUP or is_router:
            return numbers
        made = _of_bytes if self.codes == "int8" else _of_halves
        b = self.builder
        groups = b.value("reshape", numbers, shape=(*shape[:-1], shape[-1] // _GROUP, _GROUP))
        return b.value("reshape", made(groups, b), shape=shape)

    def _lies_in_columns(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether a weight lies as [..., k, length]."""
        if len(shape) == 2:
            return self.lies_in_columns and name.startswith("blk.")
        if len(shape) != 3 or self.has_columns:
            return len(shape) == 3
        tensor, own = self.file.tensors.get(name), self.file.name_of(name)
        if tensor is None or tensor.shape != (shape[0], shape[2], shape[1]):
            return False
        if tensor.shape == shape and own.endswith("_proj"):
            text = f"has the shape {list(shape)}, which does not tell rows from columns"
            self.problems[f"tensor '{own}' {text}"] = None
        return tensor.shape != shape

    def _of_codes(self, tensor: CodedTensor, name: str, shape: tuple[int, ...]) -> Value:
        """A weight that is quantised already."""
        if self._found(name, shape) is None:
            return self.builder.full(0.0, F32, shape)
        b, reads = self.builder, tensor.reads(self.builder)
        return self.of_kind(tensor.kind, reads, lambda: tensor.numbers(reads, b))

    def is_known(self, tensor: GgufTensor) -> bool:
        return isinstance(tensor, CodedTensor) or super().is_known(tensor)

    def rows_for(self, x: Value, name: str) -> Value:
        tensor = self.file.tensors.get(f"{name}.weight")
        order = tensor.order(self.builder) if isinstance(tensor, CodedTensor) else None
        if order is None:
            return x
        return self.builder.value("take", x, order, axis=1, mode="clamp")

    def columns_of(self, y: Value, name: str, heads: tuple[int, int]) -> Value:
        count, paired = heads
        if not paired or not isinstance(self.file.tensors.get(f"{name}.weight"), CodedTensor):
            return y
        places = np.arange(known_dim(tensor_type(y).shape[1])).reshape(count, -1)
        pairs = places[:, :paired].reshape(count, -1, 2)
        turned = pairs.swapaxes(1, 2).reshape(count, paired)
        order = np.concatenate([turned, places[:, paired:]], axis=1).reshape(-1)
        return self.builder.value("take", y, self.builder.constant(order), axis=1, mode="clamp")

    def embedding(self, ids: Value, width: int) -> Value:
        tensor = self.file.tensors.get("token_embd.weight")
        if isinstance(tensor, CodedTensor) and tensor.order(self.builder) is not None:
            raise CompileError(
                f"{self.file.title}: the table of embeddings has an order of its columns "
                "(desc_act, actorder), which only products can have: quantise it without"
            )
        return super().embedding(ids, width)


def _of_bytes(x: Value, b: Builder) -> Value:
    """x [..., groups, 32] by codes -127 ... 127."""
    greatest = _reduced(b.value("abs", x), "max", b)
    scale = b.value("div", greatest, b.full(127.0, F32, tensor_type(greatest).shape))
    codes = b.value("convert", b.value("round_even", _divided(x, scale, b)), dtype=I8)
    return _scaled(b.value("convert", codes, dtype=F32), scale, b)


def _of_halves(x: Value, b: Builder) -> Value:
    """x [..., groups, 32] by codes -8 ... 7; what is farthest from 0 is -8."""
    shape = tensor_type(x).shape
    low, high = (_reduced(x, kind, b) for kind in ("min", "max"))
    is_low = b.value("compare", b.value("neg", low), high, direction="gt")
    farthest = b.value("select", is_low, low, high)
    scale = b.value("div", farthest, b.full(-8.0, F32, tensor_type(low).shape))
    codes = b.value("floor", b.value("add", _divided(x, scale, b), b.full(8.5, F32, shape)))
    codes = b.value("clamp", b.full(0.0, F32, shape), codes, b.full(15.0, F32, shape))
    codes = b.value("convert", codes, dtype=U8)
    codes = b.value("and", codes, b.full(15, U8, shape))
    numbers = b.value("sub", b.value("convert", codes, dtype=F32), b.full(8.0, F32, shape))
    return _scaled(numbers, scale, b)


def _reduced(x: Value, kind: str, b: Builder) -> Value:
    return b.value("reduce", x, axes=(tensor_type(x).rank - 1,), kind=kind)


def _divided(x: Value, scale: Value, b: Builder) -> Value:
    """x over its group's scale; 0 where that is 0."""
    shape = tensor_type(scale).shape
    zero = b.full(0.0, F32, shape)
    inverse = b.value("div", b.full(1.0, F32, shape), scale)
    is_zero = b.value("compare", scale, zero, direction="eq")
    return over_rows("mul", x, b.value("select", is_zero, zero, inverse), b)


def _scaled(x: Value, scale: Value, b: Builder) -> Value:
    """Codes times their group's scale, which is kept in f16."""
    scale = b.value("convert", b.value("convert", scale, dtype=F16), dtype=F32)
    return over_rows("mul", x, scale, b)
