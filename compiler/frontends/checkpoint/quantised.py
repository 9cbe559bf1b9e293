"""Folders whose weights are quantised already: which tensors are those of a product's weight, by
what config.json says of the method and by what tensors there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ingot.compiler.frontends.automata import Automaton, compile_pattern, takes
from ingot.compiler.frontends.checkpoint.codes import (
    ORDER,
    Awq,
    Floats,
    Form,
    FourBits,
    Gptq,
    Integers,
    Mxfp4,
    Packed,
    Ternary,
    WrongPartsError,
    permutation,
)
from ingot.compiler.frontends.checkpoint.torchao import forms_of
from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.gguf.blocks import parameter
from ingot.compiler.frontends.gguf.fields import Fields
from ingot.compiler.frontends.gguf.keys import shown
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value
from ingot.hal.checkpoint import Checkpoint
from ingot.hal.errors import CompileError
from ingot.hal.gguf import BlockType, GgufTensor

__all__ = ["METHODS", "CodedTensor", "is_unused", "tensors_of"]

_INSTEAD = "pass the folder of the float model, with weights='int4' or 'int8', or a GGUF file"
_SHOWN = 5  # problems in a message
Config = Mapping[str, Any]


class CodedTensor(GgufTensor):
    """A weight that lies as several tensors: its `data` are the parts whose bytes count."""

    form: Form

    @staticmethod
    def of(name: str, form: Form, parts: Mapping[str, GgufTensor]) -> CodedTensor:
        """WrongPartsError: the parts do not fit together."""
        main, *_ = form.needed
        if len(parts[main].shape) < 2 or 0 in parts[main].shape:
            found = list(parts[main].shape)
            raise WrongPartsError(f"its {main} has the shape {found}, expected rows and columns")
        form = form.settled(parts)
        shape = form.shape(parts)
        used = {part: parts[part] for part in form.used(parts)}
        made = CodedTensor(name, BlockType(form.title, 2, 1), shape, used)
        object.__setattr__(made, "form", form)
        return made

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    def kind(self) -> object:
        """Equal for weights whose numbers are made by the same ops."""
        parts = ((name, each.type.name, each.row_shape) for name, each in self.data.items())
        return (self.form, *parts)

    def reads(self, builder: Builder) -> list[Value]:
        """Its parts."""
        return [parameter(each, builder) for each in self.data.values()]

    def order(self, builder: Builder) -> Value | None:
        """In which order the numbers have the steps of K, i64[k]; None: as the weight."""
        name = self.form.order(self.data)
        if name is None:
            return None
        return permutation(parameter(self.data[name], builder), Fields(builder))

    def numbers(self, reads: Sequence[Value], builder: Builder) -> Value:
        """f32[..., n, k] of what `reads` gave."""
        values, f = dict(zip(self.data, reads, strict=True)), Fields(builder)
        name = self.form.order(self.data)
        if name:
            values[ORDER] = permutation(values[name], f)
        return self.form.numbers(values, self.data, f)


def tensors_of(folder: Checkpoint) -> Mapping[str, GgufTensor]:
    """The tensors of a folder, those of a quantised weight as one under the name of the float
    weight. CompileError: it is quantised in a way that cannot be read, or has other dtypes."""
    what, found = f"the model in '{folder.path}'", dict(folder.tensors)
    rest: dict[str, str] = {name: each.type.name for name, each in folder.coded.items()}
    rest |= folder.others
    config = _config_of(folder.config)
    if config is not None:
        method = config.get("quant_method")
        if not isinstance(method, str) or method not in METHODS:
            raise CompileError(
                f"{what} has weights that are quantised by {shown(method)}, which cannot be read "
                f"from a folder; methods that can be are: {', '.join(METHODS)}; {_INSTEAD}"
            )
        try:
            _Reader(folder, METHODS[method](config), found, rest).read(f"{what}, {method}")
        except WrongPartsError as error:
            raise CompileError(f"{what} has weights quantised by {method}: {error}") from None
    for name, kind in rest.items():
        if is_unused(name):
            continue
        raise CompileError(
            f"{what}: tensor '{name}' has the dtype {kind}; those that can be compiled are "
            "F32, F16 and BF16"
            + ("" if config is None else f", and those of weights quantised by {method}")
        )
    return found


_UNUSED = (
    *(".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"),
    *(".attention.bias", ".attention.masked_bias"),
)


def is_unused(tensor: str) -> bool:
    """Whether older versions wrote the tensor, which follows from config.json."""
    return tensor.endswith(_UNUSED)


def _config_of(config: Config) -> Config | None:
    found = config.get("quantization_config", config.get("compression_config"))
    return found if isinstance(found, Mapping) else None if found is None else {}


Choose = Callable[[str], Form | None]
"""The form of a module's weight by the module's name."""
_Forms = Mapping[type[Form], Choose]


class _Reader:
    """Takes the tensors of quantised weights together."""

    def __init__(
        self,
        folder: Checkpoint,
        forms: _Forms,
        found: dict[str, GgufTensor],
        rest: dict[str, str],
    ) -> None:
        self.all = {**folder.tensors, **folder.coded}
        self.forms, self.found, self.rest = forms, found, rest

    def read(self, what: str) -> None:
        """CompileError: parts do not fit together."""
        problems: list[str] = []
        for kind, choose in self.forms.items():
            main, *_ = kind.needed
            end = f"{kind.mark}{main}"
            for name in [each for each in self.rest if each.endswith(end)]:
                module = name.removesuffix(end)
                parts = dict(self._parts(kind, module))
                if any(part not in parts for part in kind.needed):
                    continue
                form = choose(module)
                if form is None:
                    continue
                for part in (*kind.needed, *kind.optional, *kind.unread):
                    self.found.pop(f"{module}{kind.mark}{part}", None)
                    self.rest.pop(f"{module}{kind.mark}{part}", None)
                weight = f"{module}{kind.weight}"
                try:
                    self.found[weight] = CodedTensor.of(weight, form, parts)
                except WrongPartsError as error:
                    problems.append(f"'{module}': {error}")
        if problems:
            more = [f"... and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
            lines = [f"{what}: weights cannot be read:", *problems[:_SHOWN], *more]
            raise CompileError("\n  ".join(lines))

    def _parts(self, kind: type[Form], module: str) -> Iterator[tuple[str, GgufTensor]]:
        for part, types in {**kind.optional, **kind.needed}.items():
            tensor = self.all.get(f"{module}{kind.mark}{part}")
            if tensor is not None and tensor.type.name in types:
                yield part, tensor


def _number(config: Config, key: str, allowed: Sequence[int], default: int | None = None) -> int:
    found = config.get(key, default)
    if type(found) is not int or found not in allowed:
        expected = ", ".join(map(str, allowed))
        raise WrongPartsError(f"'{key}' is {shown(found)}; those that can be read are: {expected}")
    return found


def _text(config: Config, key: str, allowed: Sequence[str], default: str) -> str:
    found = str(config.get(key) or default).lower()
    if found not in allowed:
        expected = ", ".join(allowed)
        raise WrongPartsError(f"'{key}' is {shown(found)}; those that can be read are: {expected}")
    return found


_BITS = (2, 3, 4, 8)


def _gptq(config: Config) -> _Forms:
    version = _text(config, "checkpoint_format", ("gptq", "gptq_v2"), "gptq")
    dynamic = config.get("dynamic")
    rules = dynamic if isinstance(dynamic, Mapping) else {}

    def choose(module: str) -> Form:
        own = dict(config)
        for pattern, changes in rules.items():
            if isinstance(changes, Mapping) and takes(
                _automaton(str(pattern).removeprefix("+:")), module
            ):
                own |= changes
                break
        bits = _number(own, "bits", _BITS)
        has_order = own.get("desc_act") is True
        return Gptq(bits, own.get("sym", True) is True, has_order, version == "gptq")

    return {Gptq: choose}


@cache
def _automaton(pattern: str, behind: str = "(?s:.*)") -> Automaton:
    """Of texts that begin with a match, or go on behind it so. WrongPartsError: the pattern is
    none."""
    try:
        return compile_pattern(f"(?:{pattern}){behind}")
    except (UnsupportedNode, UnicodeEncodeError):
        raise WrongPartsError(f"it has the pattern {shown(pattern)}, which is not read") from None


def _awq(config: Config) -> _Forms:
    _number(config, "bits" if "bits" in config else "w_bit", (4,))
    _text(config, "version", ("gemm",), "gemm")
    form = Awq(config.get("zero_point", True) is not False)
    return {Awq: lambda module: form}


def _auto_round(config: Config) -> _Forms:
    packing = str(config.get("packing_format", "auto_round:auto_gptq")).lower()
    if "awq" in packing:
        return _awq({**config, "version": "gemm", "zero_point": True})
    if "gptq" not in packing:
        raise WrongPartsError(
            f"'packing_format' is {shown(packing)}; those that can be read are: "
            "auto_round:auto_gptq, auto_round:auto_awq"
        )
    return _gptq({**config, "checkpoint_format": "gptq", "desc_act": False})


def _compressed(config: Config) -> _Forms:
    _text(config, "format", _FORMATS, "dense")
    groups = config.get("config_groups")
    listed = list(groups.values()) if isinstance(groups, Mapping) else []
    schemes = [each for each in listed if isinstance(each, Mapping)]

    def scheme(module: str) -> Config:
        chosen = [each for each in schemes if _is_target(each.get("targets"), module)]
        of_classes = [each for each in schemes if _has_class(each.get("targets"))]
        found = next(iter([*chosen, *of_classes, *schemes]), {}).get("weights")
        return found if isinstance(found, Mapping) else {}

    def packed(module: str) -> Form:
        own = scheme(module)
        return Packed(
            _number(own, "num_bits", _BITS),
            own.get("symmetric", True) is False,
            own.get("actorder") in ("group", "dynamic", True),
        )

    def floats(module: str) -> Form:
        return Floats(_block(scheme(module).get("block_structure")))

    integers = Integers("weight_scale")
    return {Packed: packed, Integers: lambda module: integers, Floats: floats}


def _fp8(config: Config) -> _Forms:
    form = Floats(_block(config.get("weight_block_size")))
    return {Floats: lambda module: form}


def _block(given: Any) -> tuple[int, int]:
    """The rows and columns of a block with one scale."""
    if given is None:
        return _BLOCK
    is_pair = isinstance(given, list) and len(given) == 2
    if not is_pair or not all(type(each) is int and each > 0 for each in given):
        raise WrongPartsError(f"blocks with one scale are {shown(given)}, expected two lengths")
    return given[0], given[1]


_BLOCK = (128, 128)


_FORMATS = (
    *("pack-quantized", "int-quantized", "float-quantized", "naive-quantized"),
    *("mixed-precision", "dense"),
)


def _is_target(targets: Any, module: str) -> bool:
    """Whether a scheme is for the module by its name."""
    for each in targets if isinstance(targets, list) else []:
        pattern = str(each)
        if pattern.startswith("re:") and takes(_automaton(pattern.removeprefix("re:")), module):
            return True
        if module == pattern:
            return True
    return False


def _has_class(targets: Any) -> bool:
    """Whether a scheme is for all modules of a class, as "Linear", that no other is for by name."""
    return isinstance(targets, list) and any(str(each)[:1].isupper() for each in targets)


def _bitsandbytes(config: Config) -> _Forms:
    if config.get("load_in_4bit") or config.get("_load_in_4bit"):
        pairs = FourBits()
        return {FourBits: lambda module: pairs}
    integers = Integers("SCB", 127)
    return {Integers: lambda module: integers}


def _torchao(config: Config) -> _Forms:
    return forms_of(config, lambda pattern, name: takes(_automaton(pattern, ""), name))


def _mxfp4(config: Config) -> _Forms:
    form = Mxfp4()
    return {Mxfp4: lambda module: form}


def _bitnet(config: Config) -> _Forms:
    kind = _text(config, "linear_class", ("bitlinear", "autobitlinear"), "bitlinear")
    _text(config, "quantization_mode", ("offline",), "offline")
    if config.get("use_rms_norm"):
        raise WrongPartsError("'use_rms_norm' is true, which is not read")
    form = Ternary(kind == "bitlinear")
    return {Ternary: lambda module: form}


METHODS: Mapping[str, Callable[[Config], _Forms]] = {
    "gptq": _gptq,
    "awq": _awq,
    "auto-round": _auto_round,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "torchao": _torchao,
    "bitnet": _bitnet,
}
"""Methods that can be read, by their `quant_method`."""
