"""Compares Ingot with every other engine that is installed, on networks of torchvision and torch.

    python benchmarks/torch_models.py [--threads 1] [--rounds 6] [--turn 0.3] [--dynamic] [NAME ...]

As compare.py, in f32 with weights that are drawn; each engine reads one ONNX file, which with
--dynamic leaves all dims but those of features to the call. Rows where Ingot takes longest beside
the fastest other engine come first. This is no part of `make bench`: it needs
`pip install torchvision onnx`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torchvision.models as vision
from engines import installed_engines
from table import format_seconds, print_table
from workers import Measurement, measure

TOLERANCE = 1e-4  # of the first result, as max |d| / max |torch's|
NAMES = (
    "efficientnet_b0", "efficientnet_v2_s", "densenet121", "regnet_y_800mf", "shufflenet_v2_x1_0",
    "mobilenet_v3_large", "mnasnet1_0", "convnext_tiny", "swin_t", "resnext50_32x4d",
    "resnet18",
)  # fmt: skip


class _Lstm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.LSTM(128, 256, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)[0]
        return result


class _DeepLab(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        make = vision.segmentation.deeplabv3_mobilenet_v3_large
        self.network = make(weights=None, weights_backbone=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.network(x)["out"]
        return result


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "lstm": (_Lstm, (1, 64, 128)),
    "deeplabv3": (_DeepLab, (1, 3, 256, 256)),
    **{name: (getattr(vision, name), (1, 3, 224, 224)) for name in NAMES},
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compares engines on networks of torchvision.")
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--turn", type=float, default=0.3, help="seconds per engine and round")
    parser.add_argument("--dynamic", action="store_true", help="sizes are known only at the call")
    options = parser.parse_args(arguments)
    rows: list[tuple[float, list[str]]] = []
    failed = False
    for name in options.models or MODELS:
        turns = options.threads, options.rounds, options.turn
        found, expected = run_model(name, *turns, options.dynamic)
        for each in found:
            failed |= each.engine == "ingot" and bool(each.error)
            failed |= bool(each.results) and _error(each, expected) > TOLERANCE
        rows.append(_row(name, found))
    engines = [each.name for each in installed_engines()]
    sizes = "any sizes" if options.dynamic else "known sizes"
    print(f"{options.threads} thread(s), f32, {sizes}, least call")
    ordered = [row for _, row in sorted(rows, key=lambda each: -each[0])]
    print_table(("model", *engines, "ratio to the fastest other"), ordered)
    return int(failed)


def run_model(
    name: str, threads: int, rounds: int, turn: float, dynamic: bool
) -> tuple[list[Measurement], np.ndarray[Any, Any]]:
    """All engines on one model, and torch's result."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make().eval(), torch.randn(shape)
    with TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / f"{name}.onnx"
        features = 1 if len(shape) == 4 else len(shape) - 1
        open_dims = {axis: f"d{axis}" for axis in range(len(shape)) if dynamic and axis != features}
        torch.onnx.export(
            model, (x,), path, input_names=["x"], dynamic_axes={"x": open_dims},
            dynamo=False, opset_version=17,
        )  # fmt: skip
        found = measure(
            installed_engines(), path, {"x": x.numpy()},
            threads=threads, rounds=rounds, seconds_per_turn=turn,
        )  # fmt: skip
        return found, model(x).numpy()


def _error(measurement: Measurement, expected: np.ndarray[Any, Any]) -> float:
    return float(np.abs(measurement.results[0] - expected).max() / np.abs(expected).max())


def _row(name: str, found: Sequence[Measurement]) -> tuple[float, list[str]]:
    """Ingot's time to that of the fastest other engine, and the row."""
    least = {each.engine: min(each.seconds) for each in found if each.seconds}
    others = [seconds for engine, seconds in least.items() if engine != "ingot"]
    ratio = least["ingot"] / min(others) if "ingot" in least and others else float("inf")
    texts = [format_seconds(least[each.engine]) if each.seconds else each.error for each in found]
    return ratio, [name, *texts, f"{ratio:.2f}"]


if __name__ == "__main__":
    sys.exit(main())
