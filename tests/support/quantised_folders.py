"""Folders of quantised weights: float weights rounded and packed as each method's documentation
says, and the numbers that stand for them, both in NumPy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Array = Any
Written = tuple[dict[str, Array], Array]
"""The tensors of a weight by the ends of their names, and its numbers [n, k]."""


def words(codes: Array, bits: int) -> Array:
    """Codes [..., count] one behind another in words i32[..., count * bits / 32]."""
    spread = (codes[..., None] >> np.arange(bits)) & 1
    flat = spread.reshape(*codes.shape[:-1], -1, 32).astype(np.uint64)
    return (flat << np.arange(32, dtype=np.uint64)).sum(-1).astype(np.uint32).view(np.int32)


def rounded(w: Array, group: int, bits: int, symmetric: bool, groups: Array) -> Any:
    """Codes [n, k] without sign, zeros and scales [n, groups]; `groups` tells that of a step."""
    n, k = w.shape
    count = k // group
    scales = np.empty((n, count), np.float32)
    zeros = np.full((n, count), 1 << (bits - 1))
    top = (1 << bits) - 1
    for each in range(count):
        part = w[:, groups == each]
        if symmetric:
            scales[:, each] = 2 * np.abs(part).max(1) / top
        else:
            low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
            scales[:, each] = (high - low) / top
            zeros[:, each] = np.clip(np.rint(-low / scales[:, each]), 1, top)
    scales = scales.astype(np.float16).astype(np.float32)
    codes = np.rint(w / scales[:, groups]).astype(int) + zeros[:, groups]
    return np.clip(codes, 0, top), zeros, scales


def numbers(codes: Array, zeros: Array, scales: Array, groups: Array) -> Array:
    return ((codes - zeros[:, groups]) * scales[:, groups]).astype(np.float32)


def _groups(k: int, group: int, order: bool) -> Array:
    groups = np.arange(k) // group
    return np.random.default_rng(k).permutation(groups) if order else groups


def gptq(
    w: Array,
    bits: int = 4,
    group: int = 32,
    sym: bool = True,
    order: bool = False,
    v2: bool = False,
) -> Written:
    group = w.shape[1] if group == -1 else group
    groups = _groups(w.shape[1], group, order)
    codes, zeros, scales = rounded(w, group, bits, sym, groups)
    stored = zeros if v2 else zeros - 1
    parts = {
        "qweight": words(codes, bits).T,
        "qzeros": words(stored.T, bits),
        "scales": scales.T.astype(np.float16),
        "g_idx": groups.astype(np.int32),
    }
    return parts, numbers(codes, zeros, scales, groups)


_NIBBLES = [0, 2, 4, 6, 1, 3, 5, 7]
"""The column in each half of a byte of a word of AWQ."""


def awq(w: Array, group: int = 32, zero_point: bool = True) -> Written:
    groups = _groups(w.shape[1], group, False)
    codes, zeros, scales = rounded(w, group, 4, not zero_point, groups)

    def packed(x: Array) -> Array:
        return words(x.reshape(len(x), -1, 8)[..., _NIBBLES].reshape(len(x), -1), 4)

    parts = {
        "qweight": packed(codes.T),
        "qzeros": packed(zeros.T),
        "scales": scales.T.astype(np.float16),
    }
    return parts, numbers(codes, zeros, scales, groups)


def packed(
    w: Array, bits: int = 4, group: int = 32, symmetric: bool = True, order: bool = False
) -> Written:
    """pack-quantized of compressed-tensors; with scales of bf16."""
    n, k = w.shape
    group = k if group == -1 else group
    groups = _groups(k, group, order)
    codes, zeros, scales = rounded(w, group, bits, symmetric, groups)
    scales = scales.astype(ml_dtypes.bfloat16)
    missing = -n % 32
    parts = {
        "weight_packed": words(codes, bits),
        "weight_scale": scales,
        "weight_shape": np.array([n, k]),
    }
    if not symmetric:
        whole = np.pad(zeros.T, ((0, 0), (0, missing)))
        parts["weight_zero_point"] = words(whole, bits)[:, : -(-n * bits // 32)].T
    if order:
        parts["weight_g_idx"] = groups.astype(np.int32)
    return parts, numbers(codes, zeros, scales.astype(np.float32), groups)


def integers(w: Array, per: str = "channel", asymmetric: bool = False) -> Written:
    """int-quantized of compressed-tensors, a scale for each row or one."""
    axis = 1 if per == "channel" else None
    scales = np.abs(w).max(axis, keepdims=True).reshape(-1, 1) / 127
    zeros = np.full(scales.shape, 3 if asymmetric else 0)
    codes = np.clip(np.rint(w / scales) + zeros, -128, 127).astype(np.int8)
    scales = scales.astype(np.float32)
    parts = {"weight": codes, "weight_scale": scales if axis else scales.reshape(1)}
    if asymmetric:
        parts["weight_zero_point"] = zeros.astype(np.int8)
    return parts, ((codes - zeros) * scales).astype(np.float32)


def floats(w: Array, block: tuple[int, int] | None = None, name: str = "weight_scale") -> Written:
    """f8e4m3fn with a scale for each block, each row ((1, 0)) or all (None)."""
    n, k = w.shape
    rows, columns = (n, k) if block is None else (block[0], block[1] or k)
    scales = np.empty((-(-n // rows), -(-k // columns)), np.float32)
    codes = np.empty((n, k), ml_dtypes.float8_e4m3fn)
    plain = np.empty((n, k), np.float32)
    for i, j in np.ndindex(*scales.shape):
        place = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
        scales[i, j] = np.abs(w[place]).max() / 448
        codes[place] = (w[place] / scales[i, j]).astype(ml_dtypes.float8_e4m3fn)
        plain[place] = codes[place].astype(np.float32) * scales[i, j]
    return {"weight": codes, name: scales.reshape(-1) if block is None else scales}, plain


def torchao(w: Array, bits: int = 4, group: int = 32, symmetric: bool = True) -> Written:
    """Codes in bytes of their own, and zeros, both signed."""
    k = w.shape[1]
    group = k if group == -1 else group
    groups, middle = _groups(k, group, False), 1 << (bits - 1)
    codes, zeros, scales = rounded(w, group, bits, symmetric, groups)
    parts = {
        "_weight_qdata": (codes - middle).astype(np.int8),
        "_weight_scale": scales,
        "_weight_zero_point": (zeros - middle).astype(np.int8),
    }
    return parts, numbers(codes, zeros, scales, groups)


def torchao_floats(w: Array) -> Written:
    parts, plain = floats(w, (1, 0))
    return {"_weight_qdata": parts["weight"], "_weight_scale": parts["weight_scale"]}, plain


def llm_int8(w: Array) -> Written:
    """bitsandbytes' int8."""
    most = np.abs(w).max(1).astype(np.float32)
    codes = np.rint(w * 127 / most[:, None]).astype(np.int8)
    parts = {"weight": codes, "SCB": most, "weight_format": np.array(0, np.uint8)}
    return parts, (codes * (most / 127)[:, None]).astype(np.float32)


def ternary(w: Array, divides: bool = False) -> Written:
    """Those of BitNet: a quarter of the rows in each two bits of bytes."""
    scale = np.abs(w).mean().astype(np.float32)
    codes = np.clip(np.rint(w / scale), -1, 1).astype(np.uint8) + np.uint8(1)
    quarters = codes.reshape(4, -1, w.shape[1])
    bytes = (quarters << np.array([0, 2, 4, 6], np.uint8)[:, None, None]).sum(0).astype(np.uint8)
    told = np.array([1 / scale if divides else scale], np.float32)
    numbers = (codes.astype(np.float32) - 1) * np.float32(1 / told[0] if divides else told[0])
    return {"weight": bytes, "weight_scale": told}, numbers


def four_bits(w: Array, kind: str = "nf4", nested: bool = False, block: int = 64) -> Written:
    """bitsandbytes' nf4 and fp4, perhaps with scales that are codes themselves."""
    table = np.array(_TABLES[kind], np.float32)
    flat = np.pad(w.reshape(-1), (0, -w.size % block)).reshape(-1, block)
    most = np.abs(flat).max(1).astype(np.float32)
    codes = np.abs(flat[..., None] / most[:, None, None] - table).argmin(-1).astype(np.uint8)
    told = {"quant_type": kind, "blocksize": block, "dtype": "float16", "shape": list(w.shape)}
    parts = {"weight.quant_map": table, "weight.absmax": most}
    if nested:
        map = np.linspace(-1, 1, 256, dtype=np.float32)
        offset, groups = float(most.mean()), np.arange(len(most)) // 256
        rest = most - np.float32(offset)
        factors = np.array([np.abs(rest[groups == g]).max() for g in set(groups)], np.float32)
        places = np.abs((rest / factors[groups])[:, None] - map).argmin(-1).astype(np.uint8)
        most = map[places] * factors[groups] + np.float32(offset)
        told |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
        parts |= {"weight.absmax": places, "weight.nested_absmax": factors,
                  "weight.nested_quant_map": map}  # fmt: skip
    pairs = codes.reshape(-1)[: w.size].reshape(-1, 2)
    parts["weight"] = (pairs[:, :1] << 4 | pairs[:, 1:]).astype(np.uint8)
    text = json.dumps(told).encode()
    parts[f"weight.quant_state.bitsandbytes__{kind}"] = np.frombuffer(text, np.uint8)
    return parts, (table[codes] * most[:, None]).reshape(-1)[: w.size].reshape(w.shape)


_TABLES = {
    "nf4": [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    "fp4": [
        *(0.0, 0.0052083333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25),
        *(-0.0, -0.0052083333, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25),
    ],
}
_F4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(w: Array) -> Written:
    """Blocks of f4e2m1fn, the exponent of whose greatest number is 2, of w[..., n, k]."""
    groups = w.reshape(*w.shape[:-1], -1, 32)
    _, exponents = np.frexp(np.abs(groups).max(-1))
    exponents = exponents - 3
    shares = groups / 2.0 ** exponents[..., None]
    places = np.abs(np.abs(shares)[..., None] - _F4).argmin(-1)
    codes = (places + 8 * (shares < 0)).astype(np.uint8)
    numbers = np.where(codes < 8, 1, -1) * _F4[codes % 8] * 2.0 ** exponents[..., None]
    parts = {
        "blocks": codes[..., ::2] | codes[..., 1::2] << 4,
        "scales": (exponents + 127).astype(np.uint8),
    }
    return parts, numbers.reshape(w.shape).astype(np.float32)


def write_gpt_oss(folder: Path, config: Any, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Write a folder of gpt-oss as it was published, whose experts are MXFP4, rows of each; gives
    the numbers of all its weights."""
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    text = json.dumps({**config, "quantization_config": quantization})
    (folder / "config.json").write_text(text)
    tensors, plain = {}, {}
    for name, value in weights.items():
        if value.ndim != 3:
            tensors[name], plain[name] = value, value
            continue
        parts, numbers = mxfp4(value.swapaxes(1, 2))
        plain[name] = np.ascontiguousarray(numbers.swapaxes(1, 2))
        tensors |= {f"{name}_{part}": np.ascontiguousarray(each) for part, each in parts.items()}
    save_file(tensors, folder / "model.safetensors")
    return plain


def write_quantised(
    folder: Path,
    config: Mapping[str, Any],
    weights: Mapping[str, Array],
    quantization: Mapping[str, Any],
    write: Any,
    left: tuple[str, ...] = ("lm_head",),
) -> dict[str, Array]:
    """Write a folder whose products have quantised weights but for modules whose names end as one
    of `left`; gives the numbers of all its weights."""
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(
        json.dumps({**config, "quantization_config": dict(quantization)})
    )
    tensors, plain = {}, {}
    for name, value in weights.items():
        module = name.removesuffix(".weight")
        is_float = value.ndim == 1 or "embed" in name or module.endswith((*left, "mlp.gate"))
        if is_float or not name.endswith(".weight"):
            tensors[name], plain[name] = value, value
            continue
        parts, plain[name] = write(value)
        for part, each in parts.items():
            tensors[f"{module}.{part}"] = np.ascontiguousarray(each)
    save_file(tensors, folder / "model.safetensors")
    return plain
