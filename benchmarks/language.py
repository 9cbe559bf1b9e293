"""Language models from GGUF files beside llama.cpp: time of a token, of a prompt, and until ready.

    python benchmarks/language.py [TYPE ...] [--threads N]

Writes a Llama of 135M parameters (the shape of SmolLM) with random blocks of each type, Q4_0 and
Q8_0 without any. Engines take turns, rounds are kept by their least time of the processor or of
the clock (`--clock`), which on a machine that others use too tells less. llama.cpp runs if
llama-cpp-python is installed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf
import numpy as np

import ingot

LAYERS, WIDTH, HEADS, KV_HEADS, FEED, VOCABULARY = 30, 576, 9, 3, 1536, 49152
CAPACITY, PROMPT, TOKENS, ROUNDS = 1024, 512, 32, 4
SCALES = {"Q4_0": (4.6, (0,)), "Q8_0": (73, (0,)), "Q4_1": (4.6, (0,)), "Q5_0": (9, (0,))}
"""The deviation of random codes, and where scales of f16 lie in a block."""


def tensors() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The matrices of the model."""
    keys = KV_HEADS * WIDTH // HEADS
    yield "token_embd", (VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", keys, WIDTH),
            ("attn_v", keys, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", FEED, WIDTH),
            ("ffn_up", FEED, WIDTH),
            ("ffn_down", WIDTH, FEED),
        ):
            yield f"blk.{layer}.{name}", (rows, columns)


def blocks(type: str, shape: tuple[int, ...], random: np.random.Generator) -> Any:
    """Random elements of this type, of the size that weights have."""
    size = shape[-1] ** -0.5
    if type in ("F32", "F16"):
        return random.normal(0, size, shape).astype("f4" if type == "F32" else "f2")
    count, length = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type]]
    deviation, places = SCALES[type]
    data = random.integers(0, 256, (int(np.prod(shape)) // count, length), np.uint8)
    for place in places:
        data[:, place : place + 2] = np.array([size / deviation], np.float16).view(np.uint8)
    return data.reshape(*shape[:-1], -1)


def write(path: Path, type: str) -> None:
    """A model with random weights, and a tokenizer that says nothing."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(VOCABULARY)
    random = np.random.default_rng(0)
    kind = gguf.GGMLQuantizationType[type]
    for name, shape in tensors():
        writer.add_tensor(f"{name}.weight", blocks(type, shape, random), raw_dtype=kind)
    norms = [f"blk.{layer}.{name}_norm" for layer in range(LAYERS) for name in ("attn", "ffn")]
    for name in (*norms, "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Ingot:
    """One file, compiled and loaded."""

    name = "ingot"

    def __init__(self, path: Path, threads: int) -> None:
        module = ingot.compile(path, capacity=CAPACITY)
        self.model = ingot.load(module, parameters=path, threads=threads)

    def begin(self, ids: Any) -> None:
        self.model.reset()
        self.model.prefill(ids)

    def step(self, id: Any) -> None:
        self.model.decode(id)


class LlamaCpp:
    """The same file in llama.cpp."""

    name = "llama.cpp"

    def __init__(self, path: Path, threads: int) -> None:
        import llama_cpp

        self.model = llama_cpp.Llama(
            str(path), n_ctx=CAPACITY, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def begin(self, ids: Any) -> None:
        self.model.reset()
        self.model.eval(ids.tolist())

    def step(self, id: Any) -> None:
        self.model.eval([int(id)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", default=["Q4_0", "Q8_0"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", action="store_true", help="time of the clock")
    options = parser.parse_args()
    now = time.perf_counter if options.clock else time.process_time
    makers: list[Any] = [Ingot, *([LlamaCpp] if find_spec("llama_cpp") else [])]
    for type in options.types:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            write(path, type)
            measure(type, path, makers, options.threads, now)


def measure(
    type: str, path: Path, makers: list[Any], threads: int, now: Callable[[], float]
) -> None:
    """Print a line for each engine."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, PROMPT).astype(np.int32)
    engines, rows = [], {}
    for maker in makers:
        start = now()
        engines.append(maker(path, threads))
        rows[maker.name] = [now() - start, np.inf, np.inf]
    for _ in range(ROUNDS):
        for engine in engines:
            start = now()
            engine.begin(ids)
            rows[engine.name][1] = min(rows[engine.name][1], now() - start)
            engine.begin(ids[:32])
            for id in ids[:TOKENS]:
                start = now()
                engine.step(id)
                rows[engine.name][2] = min(rows[engine.name][2], now() - start)
    for name, (ready, prompt, token) in rows.items():
        print(
            f"{type:5} {name:10} ready {ready:6.2f} s, {PROMPT} tokens {prompt:6.3f} s, "
            f"a token {1e3 * token:6.2f} ms"
        )


if __name__ == "__main__":
    main()
