"""Makes `programs.npz`: python tests/models/torch_export/make_programs.py

It needs torch 2.8 or newer, torchvision and torchao.

For each theme of `cases.py` and for two models: the archive as torch.export.save writes it, as
exported and after run_decompositions() (".core"), with inputs and what eager torch gives.
`layers.pt2` is one archive as a file.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from cases import CASES, Program, pool
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torchao import quantization as torchao

HERE = Path(__file__).parent


class Block(torch.nn.Module):
    """A transformer layer over a cache that it writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.qkv = torch.nn.Linear(8, 24)
        self.out = torch.nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(1, 2, 16, 4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, position: Any) -> dict[str, Any]:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        self.cache[:, :, position] = k[:1]
        self.calls += 1
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        y = F.scaled_dot_product_attention(q, k, v, mask)
        y = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return {"y": y, "cached": self.cache.sum(), "size": length * batch}


class Layers(torch.nn.Module):
    """A small network of convolutions with a branch that depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.nn.BatchNorm2d(4)
        )
        self.head = torch.nn.Linear(4, 5)

    def forward(self, image: Any) -> tuple[Any, Any]:
        x = F.max_pool2d(F.relu(self.stem(image)), 2).mean((2, 3))
        y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        return self.head(y).softmax(-1), y


class Scans(torch.nn.Module):
    """Loops over the rows of an argument."""

    def forward(self, x: Any) -> dict[str, Any]:
        total = x.sum()
        last, rows = scan(lambda c, row: (c + row, c * row + total), x[0], x)
        mapped = torch._higher_order_ops.map(lambda row, t: row * 2 + t, x, total)
        product = associative_scan(torch.mul, x, 0, combine_mode="pointwise")
        return {"last": last, "rows": rows, "mapped": mapped, "product": product}


class Draws(torch.nn.Module):
    """Random numbers, none of which are torch's."""

    def forward(self, x: Any) -> dict[str, Any]:
        return {
            "uniform": torch.rand(50, 40) + torch.zeros_like(x).uniform_(2, 3).mean(),
            "normal": torch.randn_like(x) * 2,
            "integers": torch.randint(3, 9, (1000,)),
            "order": torch.randperm(100),
            "hits": torch.bernoulli(torch.full_like(x, 0.25)),
        }


class Wrapped(torch.nn.Module):
    """Layers whose weights torchao keeps as codes and scales."""

    def __init__(self) -> None:
        super().__init__()
        for name, config in {
            "int8": torchao.Int8WeightOnlyConfig(),
            "int4": torchao.IntxWeightOnlyConfig(torch.int4, torchao.PerGroup(16)),
            "float8": torchao.Float8WeightOnlyConfig(),
            "int8_rows": torchao.Int8DynamicActivationInt8WeightConfig(),
            "int4_rows": torchao.Int8DynamicActivationIntxWeightConfig(
                torch.int4, torchao.PerGroup(16)
            ),
        }.items():
            layer = torch.nn.Linear(32, 4)
            torchao.quantize_(layer, config)
            self.add_module(name, layer)

    def forward(self, x: Any) -> dict[str, Any]:
        return {name: layer(x) for name, layer in self.named_children()}


def main() -> None:
    torch.manual_seed(0)
    arrays: dict[str, Any] = {}
    for theme, cases in CASES.items():
        program = Program(cases)
        _add(arrays, theme, torch.export.export(program, (pool(),)), pool(), program)
    batch, length = torch.export.Dim("batch", max=64), torch.export.Dim("length", min=2, max=16)
    inputs = {"x": torch.randn(2, 3, 8), "position": torch.tensor([4, 0, 9])}
    shapes = {"x": {0: batch, 1: length}, "position": {0: length}}
    block = Block().eval()
    exported = torch.export.export(block, (), inputs, dynamic_shapes=shapes)
    _add(arrays, "block", exported, inputs, block)
    layers = Layers().eval()
    layers.stem[1].running_mean.copy_(torch.randn(4))
    image = {"image": torch.randn(2, 3, 6, 8)}
    exported = torch.export.export(layers, (), image, dynamic_shapes={"image": {0: batch}})
    _add(arrays, "layers", exported, image, layers)
    rows = {"x": torch.rand(5, 3)}
    dynamic = {"x": {0: torch.export.Dim("rows", min=2, max=9)}}
    exported = torch.export.export(Scans(), (), rows, dynamic_shapes=dynamic)
    _add(arrays, "scans", exported, rows, _scanned)
    draws = {"x": torch.ones(40, 50)}
    _add(arrays, "draws", torch.export.export(Draws(), (), draws), draws, Draws())
    _add_wrapped(arrays)
    (HERE / "layers.pt2").write_bytes(arrays["layers:program"].tobytes())
    np.savez_compressed(HERE / "programs.npz", **arrays)


def _add_wrapped(arrays: dict[str, Any]) -> None:
    rows, wrapped = {"x": torch.randn(3, 32)}, Wrapped().eval()
    _add(arrays, "wrapped", torch.export.export(wrapped, (), rows), rows, wrapped)


def _scanned(x: Any) -> dict[str, Any]:
    """As `Scans`, whose associative scan eager torch runs on a GPU only."""
    before = torch.cat([x[:1], x]).cumsum(0)
    rows = before[:-1] * x + x.sum()
    return {"last": before[-1], "rows": rows, "mapped": x * 2 + x.sum(), "product": x.cumprod(0)}


def _add(arrays: dict[str, Any], name: str, exported: Any, inputs: Any, model: Any) -> None:
    for kind, program in (("", exported), (".core", exported.run_decompositions())):
        data = io.BytesIO()
        torch.export.save(program, data)
        arrays[f"{name}{kind}:program"] = np.frombuffer(_without_paths(data), np.uint8)
    for key, value in inputs.items():
        arrays[f"{name}:input:{key}"] = value.numpy()
    # behind the export, which has the buffers as they were before the first call
    results = model(inputs) if isinstance(model, Program) else model(**inputs)
    if isinstance(results, tuple):
        results = {f"result.{place}": each for place, each in enumerate(results)}
    for key, value in results.items():
        arrays[f"{name}:expected:{key}"] = np.asarray(
            value.detach().numpy() if isinstance(value, torch.Tensor) else np.int64(value)
        )


def _without_paths(data: io.BytesIO) -> bytes:
    """The archive without the folders of this machine in its stack traces."""
    result = io.BytesIO()
    with zipfile.ZipFile(data) as archive, zipfile.ZipFile(result, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            for folder, shown in ((HERE, "models"), (Path(torch.__file__).parents[1], "/lib")):
                content = content.replace(str(folder).encode(), shown.encode())
            copy.writestr(name, content)
    return result.getvalue()


if __name__ == "__main__":
    main()
