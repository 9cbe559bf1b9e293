"""Language models from GGUF files beside llama.cpp: time of a token, of a prompt, and until ready.

    python benchmarks/language.py [TYPE ...] [--size 1B] [--threads N] [--sequences 4 8]

Writes a Llama of 135M parameters (the shape of SmolLM), or of 1B (Llama 3.2), with random blocks
of each type, Q4_0, Q8_0 and Q4_K_M without any. Engines take turns, rounds are kept by their least
time of the processor or of the clock (`--clock`), which on a machine that others use too tells
less. Ingot runs with both precisions, llama.cpp if llama-cpp-python is installed; the precision
that is farthest behind it in anything comes first. `--sequences`: instead, tokens a second of so
many texts together, beside one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf
import numpy as np

import ingot

CAPACITY, PROMPT, TOKENS, ROUNDS = 1024, 512, 32, 4
SCALES = {
    "Q4_0": (4.6, (0,)), "Q8_0": (73, (0,)), "Q4_1": (4.6, (0,)), "Q5_0": (9, (0,)),
    "Q4_K": (200, (0, 2)), "Q6_K": (1350, (208,)), "IQ4_XS": (2000, (0,)),
    "Q2_K": (20, (80, 82)), "Q3_K": (70, (108,)), "Q5_K": (400, (0, 2)),
}  # fmt: skip
"""The deviation of random codes, and where scales of f16 lie in a block."""


@dataclass(frozen=True)
class Size:
    """The shape of a model."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed: int
    vocabulary: int

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The matrices."""
        keys, width, feed = self.kv_heads * self.width // self.heads, self.width, self.feed
        yield "token_embd", (self.vocabulary, width)
        for layer in range(self.layers):
            for name, rows, columns in (
                ("attn_q", width, width),
                ("attn_k", keys, width),
                ("attn_v", keys, width),
                ("attn_output", width, width),
                ("ffn_gate", feed, width),
                ("ffn_up", feed, width),
                ("ffn_down", width, feed),
            ):
                yield f"blk.{layer}.{name}", (rows, columns)

    def type(self, mix: str, name: str, columns: int) -> str:
        """What llama.cpp makes of a matrix in a file of such a mix."""
        if mix != "Q4_K_M":
            return mix
        layer = int(name.split(".")[1]) if name.startswith("blk.") else 0
        eighth = self.layers // 8
        more = layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2
        is_six = name == "token_embd" or (name.endswith(("attn_v", "ffn_down")) and more)
        if columns % 256:
            return "Q8_0" if is_six else "Q5_0"
        return "Q6_K" if is_six else "Q4_K"


SIZES = {
    "135M": Size(30, 576, 9, 3, 1536, 49152),
    "1B": Size(16, 2048, 32, 8, 8192, 128256),
}


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


def write(path: Path, mix: str, size: Size) -> None:
    """A model with random weights, and a tokenizer that says nothing."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(size.width)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.feed)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size.width // size.heads)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(size.vocabulary)
    random = np.random.default_rng(0)
    for name, shape in size.tensors():
        type = size.type(mix, name, shape[-1])
        kind = gguf.GGMLQuantizationType[type]
        writer.add_tensor(f"{name}.weight", blocks(type, shape, random), raw_dtype=kind)
    norms = [f"blk.{layer}.{name}_norm" for layer in range(size.layers) for name in ("attn", "ffn")]
    for name in (*norms, "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(size.width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Ingot:
    """One file, compiled and loaded."""

    name, precision = "ingot", "f32"

    def __init__(self, path: Path, threads: int) -> None:
        module = ingot.compile(path, capacity=CAPACITY, precision=self.precision)
        self.model = ingot.load(module, parameters=path, threads=threads)

    def begin(self, ids: Any) -> None:
        self.model.reset()
        self.model.prefill(ids)

    def step(self, id: Any) -> None:
        self.model.decode(id)


class Rounding(Ingot):
    """With activations of 8 bits, as llama.cpp's."""

    name, precision = "ingot int8", "int8"


class LlamaCpp:
    """The same file in llama.cpp, in a thread of its own: it takes tiles (AMX) to be as it has left
    them, while others give them back."""

    name = "llama.cpp"

    def __init__(self, path: Path, threads: int) -> None:
        import llama_cpp

        self.model = llama_cpp.Llama(
            str(path), n_ctx=CAPACITY, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.thread = ThreadPoolExecutor(1)

    def begin(self, ids: Any) -> None:
        self.model.reset()
        self._eval(ids.tolist())

    def step(self, id: Any) -> None:
        self._eval([int(id)])

    def _eval(self, ids: list[int]) -> None:
        self.thread.submit(self.model.eval, ids).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", default=["Q4_0", "Q8_0", "Q4_K_M"])
    parser.add_argument("--size", choices=SIZES, default="135M")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", action="store_true", help="time of the clock")
    parser.add_argument("--sequences", type=int, nargs="+", default=[])
    options = parser.parse_args()
    now = time.perf_counter if options.clock else time.process_time
    makers: list[Any] = [Ingot, Rounding, *([LlamaCpp] if find_spec("llama_cpp") else [])]
    for type in options.types:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            size = SIZES[options.size]
            write(path, type, size)
            if options.sequences:
                measure_together(type, path, size, options.sequences, options.threads, now)
            else:
                measure(type, path, size, makers, options.threads, now)


def measure(
    type: str,
    path: Path,
    size: Size,
    makers: list[Any],
    threads: int,
    now: Callable[[], float],
) -> None:
    """Print a line for each engine: times, and how many times llama.cpp's speed that is."""
    ids = np.random.default_rng(0).integers(0, size.vocabulary, PROMPT).astype(np.int32)
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
    peer = rows.get(LlamaCpp.name, [np.nan] * 3)
    ratios = {name: np.array(peer) / times for name, times in rows.items()}
    for name in sorted(rows, key=lambda name: (name == LlamaCpp.name, min(ratios[name]))):
        told = zip(("ready", f"{PROMPT} tokens", "a token"), rows[name], ratios[name], strict=True)
        line = ", ".join(f"{what} {time:7.4f} s {ratio:5.2f}" for what, time, ratio in told)
        print(f"{type:6} {name:10} {line}")


def measure_together(
    type: str,
    path: Path,
    size: Size,
    counts: list[int],
    threads: int,
    now: Callable[[], float],
) -> None:
    """Print tokens a second of one text in a cache of its own, and of several in one."""
    alone = Rounding(path, threads)
    module = ingot.compile(path, capacity=CAPACITY, precision="int8", sequences=max(counts))
    together = ingot.load(module, parameters=path, threads=threads)
    ids = np.random.default_rng(0).integers(0, size.vocabulary, PROMPT).astype(np.int32)
    best = dict.fromkeys((0, *counts), np.inf)
    for _ in range(ROUNDS):
        alone.begin(ids[:32])
        columns, most = CAPACITY // 64, max(counts)
        for slot in range(most):
            pages = np.zeros(columns, np.int32)
            pages[:2] = 2 * slot, 2 * slot + 1
            together.place(slot, 0, pages)
        lengths = 32 + np.arange(most)
        together.prefill(np.arange(most), lengths, np.concatenate([ids[:n] for n in lengths]))
        for count in best:
            slots = np.arange(count)
            for _ in range(TOKENS // 4):
                start = now()
                if count:
                    together.decode(slots, ids[:count])
                else:
                    alone.step(ids[0])
                best[count] = min(best[count], now() - start)
    rates = {count or 1: (count or 1) / seconds for count, seconds in best.items()}
    print(type, ", ".join(f"{count} texts: {rate:.0f} tokens/s" for count, rate in rates.items()))


if __name__ == "__main__":
    main()
