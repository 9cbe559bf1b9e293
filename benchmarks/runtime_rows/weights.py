"""Weights of a language model, the shape of SmolLM-135M in Q4_0: loads with and without packed
weights, what processes hold together, a token with and without adapters, and swaps of them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from language import SIZES, write
from runtime_rows.row import Row

import ingot

RANK = 16
PROCESS = """
import sys
import numpy as np
import ingot
module, *parameters = sys.argv[1:]
sources = [*parameters, {"lora": ingot.lora(module)}]
model = ingot.load(module, parameters=sources, threads=1)
model.decode(np.int32(1))
print("ready", flush=True)
sys.stdin.readline()
facts = dict(line.split(":", 1) for line in open("/proc/self/smaps_rollup") if ":" in line)
print(int(facts["Pss"].split()[0]), flush=True)
sys.stdin.readline()
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, adapter = folder / "base.gguf", folder / "adapter.gguf"
        write(base, "Q4_0", SIZES["135M"])
        _write_adapter(adapter)
        plain = ingot.compile(base, capacity=64)
        module = ingot.compile(base, capacity=64, lora=RANK)
        module.save(folder / "module.ingot")
        without = {"lora": ingot.lora(module)}
        model = ingot.load(module, parameters=[base, without], threads=1)
        packed = folder / "packed"
        model.save_weights(packed, scope="")
        facts = {"MB of the file": _megabytes(base), "MB packed": _megabytes(packed)}
        yield Row(
            "load",
            {
                "from the file": lambda: _load(module, base, without),
                "packed": lambda: _load(module, packed, without),
            },
            facts=facts,
        )
        yield Row("resident MB of processes", facts=dict(_resident(folder, base, packed)))
        models = {
            "without room": ingot.load(plain, parameters=base, threads=1),
            "with room, none": model,
            "rank 16": _load(module, base, {"lora": ingot.lora(module, adapter)}),
            "without room, packed": _packed(plain, base, folder / "plain"),
        }
        yield Row("a token", {side: _decoder(each) for side, each in models.items()})
        made = ingot.lora(module, adapter)
        yield Row(
            "swap of an adapter",
            {
                "read": lambda: ingot.lora(model, adapter),
                "swap": lambda: model.swap_parameters(made, scope="lora"),
            },
            facts={"MB": f"{adapter.stat().st_size / 1e6:.1f}"},
        )


def _load(module: Any, *parameters: Any) -> ingot.Model:
    return ingot.load(module, parameters=list(parameters), threads=1)


def _packed(module: ingot.Module, base: Path, path: Path) -> ingot.Model:
    _load(module, base).save_weights(path)
    return _load(module, path)


def _decoder(model: ingot.Model) -> Any:
    """A token behind a few, always at the same place."""
    model.reset()
    model.prefill(np.arange(8, dtype=np.int32))

    def step() -> None:
        model.decode(np.int32(1))
        model.rewind(np.int64(8))

    return step


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.0f}"


def _resident(folder: Path, base: Path, packed: Path) -> Iterator[tuple[str, str]]:
    """The proportional set size of all, which counts a shared page once."""
    for name, weights in (("the file", base), ("packed", packed)):
        for count in (1, 4):
            command = [sys.executable, "-c", PROCESS, str(folder / "module.ingot"), str(weights)]
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            running: list[Any] = [subprocess.Popen(command, **pipes) for _ in range(count)]
            for each in running:
                each.stdout.readline()  # it is ready, as the others soon are
            sizes = []
            for each in running:
                each.stdin.write("\n")
                each.stdin.flush()
                sizes.append(int(each.stdout.readline()))
            for each in running:
                each.communicate("\n")
            yield f"{count} of {name}", f"{sum(sizes) / 1024:.0f}"


def _write_adapter(path: Path) -> None:
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", RANK)
    for name, (length, k) in SIZES["135M"].tensors():
        if name.startswith("blk."):
            for part, shape in (("a", (RANK, k)), ("b", (length, RANK))):
                factor = random.normal(0, 0.01, shape).astype(np.float32)
                writer.add_tensor(f"{name}.weight.lora_{part}", factor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
