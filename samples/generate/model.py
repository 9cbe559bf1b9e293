"""Trains a small GPT-2 on Ingot's own documentation and writes the files of this sample.

Run once, results committed: `weights.npz`, and three StableHLO artifacts by jax.export:
`prefill` and `decode`, which hand a key-value cache on from call to call, and `generate`,
which has the whole loop inside. Needs jax; the other programs of the sample do not.

The network is GPT-2 as it is, only smaller: characters for words, learned positions, two
layers of four heads, layer norm first, tanh GELU, the embedding again for the logits. Its
matrices are stored as i8 with one scale per column.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export, lax
from jax import numpy as jnp

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
CHARACTERS, POSITIONS, WIDTH, HEADS, LAYERS = 128, 256, 64, 4, 2
COUNT = 200  # tokens that `generate` makes
STEPS, BATCH = 1500, 8

Weights = dict[str, Any]
Cache = list[dict[str, Any]]


def initial_weights(seed: int = 0) -> Weights:
    """f32 matrices from a seed, in the scales of GPT-2."""
    random = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 0.02) -> Any:
        return jnp.asarray(random.normal(0, scale, shape), jnp.float32)

    weights = {"embedding": normal(CHARACTERS, WIDTH), "position": normal(POSITIONS, WIDTH)}
    last = 0.02 / (2 * LAYERS) ** 0.5
    for layer in range(LAYERS):
        weights[f"qkv{layer}"] = normal(WIDTH, 3 * WIDTH)
        weights[f"project{layer}"] = normal(WIDTH, WIDTH, scale=last)
        weights[f"up{layer}"] = normal(WIDTH, 4 * WIDTH)
        weights[f"down{layer}"] = normal(4 * WIDTH, WIDTH, scale=last)
        for name, width in (("qkv", 3), ("project", 1), ("up", 4), ("down", 1)):
            weights[f"{name}{layer}.bias"] = jnp.zeros(width * WIDTH)
        for name in ("before_attention", "before_dense"):
            weights[f"{name}{layer}"] = jnp.stack([jnp.ones(WIDTH), jnp.zeros(WIDTH)])
    weights["last"] = jnp.stack([jnp.ones(WIDTH), jnp.zeros(WIDTH)])
    return weights


# The network. All functions take one sequence: [s, width] and per head [heads, s, width / heads].


def normalize(x: Any, scale_and_shift: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    variance = (centered * centered).mean(-1, keepdims=True)
    return centered * lax.rsqrt(variance + 1e-5) * scale_and_shift[0] + scale_and_shift[1]


def split_heads(x: Any) -> Any:
    return x.reshape(x.shape[0], HEADS, WIDTH // HEADS).transpose(1, 0, 2)


def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attention of q to the keys that the mask allows."""
    scores = jnp.einsum("hmd,hnd->hmn", q, k) * (WIDTH // HEADS) ** -0.5
    weights = jax.nn.softmax(scores if mask is None else jnp.where(mask, scores, -1e30))
    return jnp.einsum("hmn,hnd->hmd", weights, v)


def layer(weights: Weights, number: int, x: Any, remember: Any, mask: Any) -> Any:
    """One layer; `remember(number, k, v)` gives all keys and values there are."""
    normal = normalize(x, weights[f"before_attention{number}"])
    qkv = normal @ weights[f"qkv{number}"] + weights[f"qkv{number}.bias"]
    q, k, v = (split_heads(each) for each in jnp.split(qkv, 3, axis=-1))
    heads = attend(q, *remember(number, k, v), mask)
    joined = heads.transpose(1, 0, 2).reshape(x.shape)
    x = x + joined @ weights[f"project{number}"] + weights[f"project{number}.bias"]
    normal = normalize(x, weights[f"before_dense{number}"])
    up = jax.nn.gelu(normal @ weights[f"up{number}"] + weights[f"up{number}.bias"])
    return x + up @ weights[f"down{number}"] + weights[f"down{number}.bias"]


def logits(weights: Weights, ids: Any, positions: Any, remember: Any, mask: Any) -> Any:
    """f32[s, characters]"""
    x = weights["embedding"][ids] + jnp.take(weights["position"], positions, 0, mode="clip")
    for number in range(LAYERS):
        x = layer(weights, number, x, remember, mask)
    return normalize(x, weights["last"]) @ weights["embedding"].T


def best(scores: Any) -> Any:
    """The most likely character: i32[]"""
    return jnp.argmax(scores).astype(jnp.int32)


def causal(count: Any) -> Any:
    places = jnp.arange(count)
    return places[None, :] <= places[:, None]


# What is exported.


def prefill(weights: Weights, ids: Any) -> tuple[Cache, Any]:
    """ids: i32[s] -> the cache of s positions, and the next character."""
    cache: Cache = []

    def remember(number: int, k: Any, v: Any) -> Any:
        cache.append({"k": k, "v": v})
        return k, v

    count = ids.shape[0]
    scores = logits(weights, ids, jnp.arange(count), remember, causal(count))
    return cache, best(scores[-1])


def decode(weights: Weights, cache: Cache, id: Any) -> tuple[Cache, Any]:
    """A cache of n positions and one character -> that of n + 1, and the next character."""
    following: Cache = []

    def remember(number: int, k: Any, v: Any) -> Any:
        old = cache[number]
        following.append(
            {"k": jnp.concatenate([old["k"], k], 1), "v": jnp.concatenate([old["v"], v], 1)}
        )
        return following[-1]["k"], following[-1]["v"]

    position = jnp.full((1,), cache[0]["k"].shape[1])
    scores = logits(weights, id[None], position, remember, None)
    return following, best(scores[-1])


def generate(weights: Weights, ids: Any) -> Any:
    """ids: i32[s] -> the next `COUNT` characters: the loop of `prefill` and `decode`."""
    short, first = prefill(weights, ids)
    room = jnp.zeros((HEADS, POSITIONS, WIDTH // HEADS))
    start = jnp.int32(0)
    cache = jax.tree.map(lambda x: lax.dynamic_update_slice(room, x, (start, start, start)), short)
    result = jnp.zeros(COUNT, jnp.int32).at[0].set(first)

    def step(number: Any, carried: Any) -> Any:
        cache, result = carried
        position = ids.shape[0] + number - 1
        following: Cache = []

        def remember(place: int, k: Any, v: Any) -> Any:
            where = (start, position, start)
            new = {"k": k, "v": v}
            following.append(
                {n: lax.dynamic_update_slice(cache[place][n], new[n], where) for n in new}
            )
            return following[-1]["k"], following[-1]["v"]

        mask = jnp.arange(POSITIONS)[None, :] <= position
        scores = logits(weights, result[number - 1][None], position[None], remember, mask)
        return following, result.at[number].set(best(scores[-1]))

    return lax.fori_loop(1, COUNT, step, (cache, result))[1]


# Training.


def corpus() -> Any:
    """The characters of the documentation."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(np.int32)


def loss(weights: Weights, batch: Any) -> Any:
    def one(ids: Any) -> Any:
        count = POSITIONS
        keep = lambda number, k, v: (k, v)  # noqa: E731 - nothing is remembered
        scores = logits(weights, ids[:-1], jnp.arange(count), keep, causal(count))
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), ids[1:, None], 1).mean()

    return jax.vmap(one)(batch).mean()


@jax.jit
def improve(weights: Weights, moments: Any, batch: Any, number: Any) -> Any:
    """One step of Adam."""
    value, slopes = jax.value_and_grad(loss)(weights, batch)
    rate = 3e-3 * jnp.minimum(number / 50, 1) * (1 - number / STEPS) + 1e-5
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], slopes)
    second = jax.tree.map(lambda m, g: 0.98 * m + 0.02 * g * g, moments[1], slopes)

    def move(w: Any, m: Any, v: Any) -> Any:
        m, v = m / (1 - 0.9**number), v / (1 - 0.98**number)
        return w - rate * m / (jnp.sqrt(v) + 1e-8)

    return jax.tree.map(move, weights, first, second), (first, second), value


def train() -> Weights:
    text, random = corpus(), np.random.default_rng(0)
    weights = initial_weights()
    zeros = jax.tree.map(jnp.zeros_like, weights)
    moments = (zeros, zeros)
    for number in range(1, STEPS + 1):
        starts = random.integers(0, len(text) - POSITIONS - 1, BATCH)
        batch = np.stack([text[start : start + POSITIONS + 1] for start in starts])
        weights, moments, value = improve(weights, moments, batch, jnp.float32(number))
        if number % 100 == 0:
            print(f"step {number}: loss {float(value):.3f}", flush=True)
    return weights


def pack(weights: Weights) -> dict[str, Any]:
    """The matrices as i8 with a scale per column, as they are stored."""
    packed: dict[str, Any] = {}
    for name, value in weights.items():
        array = np.asarray(value)
        if array.ndim < 2 or array.shape[0] == 2:
            packed[name] = array
            continue
        scale = np.abs(array).max(0) / 127
        packed[name] = np.round(array / scale).astype(np.int8)
        packed[f"{name}.scale"] = scale.astype(np.float32)
    return packed


def unpack(packed: dict[str, Any]) -> Weights:
    """The f32 matrices of what `pack` made."""
    return {
        name: value * packed[f"{name}.scale"] if f"{name}.scale" in packed else value
        for name, value in packed.items()
        if not name.endswith(".scale")
    }


# Export.


def save(name: str, function: Any, *arguments: Any) -> None:
    """Export a function; its parameters name the arguments."""
    # file names in locations, without the folders of this machine
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    exported = export.export(jax.jit(function))(*arguments)
    (FOLDER / f"{name}.stablehlo").write_bytes(exported.mlir_module_serialized)


def main() -> int:
    if "--export" not in sys.argv:
        np.savez_compressed(FOLDER / "weights.npz", **pack(train()))
    packed = dict(np.load(FOLDER / "weights.npz"))

    def weights() -> Weights:  # called inside, so that the artifacts hold the i8 matrices
        return unpack({name: jnp.asarray(each) for name, each in packed.items()})

    (s,) = export.symbolic_shape("s", constraints=[f"s <= {POSITIONS}"])
    save("prefill", lambda ids: prefill(weights(), ids), jax.ShapeDtypeStruct((s,), np.int32))
    (n,) = export.symbolic_shape("n")
    side = jax.ShapeDtypeStruct((HEADS, n, WIDTH // HEADS), np.float32)
    cache = [{"k": side, "v": side} for _ in range(LAYERS)]
    character = jax.ShapeDtypeStruct((), np.int32)
    save("decode", lambda cache, id: decode(weights(), cache, id), cache, character)
    (s,) = export.symbolic_shape("s", constraints=[f"s <= {POSITIONS - COUNT}"])
    save("generate", lambda ids: generate(weights(), ids), jax.ShapeDtypeStruct((s,), np.int32))
    return 0


if __name__ == "__main__":
    sys.exit(main())
