"""Measures a GPU: Ingot on OpenCL beside PyTorch on CUDA, where that is installed.

    python benchmarks/gpu.py                     # the first GPU
    python benchmarks/gpu.py --device opencl://0 --small

Single ops are held against what the device can do: a product against cuBLAS, rows of 4096
over 256 MB against the copy bandwidth that was measured first. Then whole models, one step of a
GPT-2 with its cache in the model, and the time of a dispatch. Weights and arguments lie on the
device; "call" is the time of a whole call, "kernels" what the device says of its own work.
`--small` takes sizes at which PoCL on a CPU is done in a minute.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import gpu_models  # noqa: E402
from table import format_seconds, print_table  # noqa: E402

import ingot  # noqa: E402
from ingot.hal.device import open_device  # noqa: E402
from tests.models import graphs  # noqa: E402

_HEAD = ("", "call", "kernels", "", "PyTorch", "wanted")
_CHAIN = 100


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    matmul: int
    rows: int  # of 4096 floats
    batches: tuple[int, ...]  # of ResNet-50
    sequence: int
    decoder: gpu_models.Decoder
    seconds: float  # for one figure


_LARGE = Sizes(4096, 16384, (1, 32), 128, gpu_models.Decoder(768, 12, 12, 50257, 1024), 2.0)
_SMALL = Sizes(256, 64, (1,), 16, gpu_models.Decoder(64, 4, 2, 128, 32), 0.2)


@dataclass(frozen=True)
class Times:
    """Seconds: of a call, the median, and the sum of its kernels, the least of some calls."""

    call: float
    kernels: float


class Bench:
    """Compiles, loads and measures on one device."""

    def __init__(self, device: str, sizes: Sizes, torch: Any) -> None:
        self.device, self.sizes, self.torch = device, sizes, torch
        self.target = device.partition(":")[0]
        self.bandwidth = 0.0  # bytes per second of a copy, read and written

    def load(self, source: Any, **options: Any) -> ingot.Model:
        return ingot.load(ingot.compile(source, target=self.target, **options), device=self.device)

    def arguments(self, function: Any) -> list[Any]:
        """Random arguments on the device."""
        random = np.random.default_rng(0)
        arrays = []
        for value in function.signature.arguments:
            shape = tuple(int(dim) for dim in value.shape)
            if value.dtype.is_float:
                array = random.standard_normal(shape, np.float32)
            else:
                array = np.ones(shape, value.dtype.numpy)
            arrays.append(ingot.Array.from_numpy(array, self.device))
        return arrays

    def measure(self, model: ingot.Model, arguments: Sequence[Any] | None = None) -> Times:
        """Times of `model(*arguments)`, its results written in place."""
        given = self.arguments(model.main) if arguments is None else arguments
        out = model(*given)
        call = median(lambda: model(*given, out=out), self.sizes.seconds)
        kernels = []
        for _ in range(5):
            with model.trace() as events:
                model(*given, out=out)
            kernels.append(sum(event.end - event.begin for event in events) / 1e9)
        return Times(call, min(kernels))

    def torch_seconds(self, run: Callable[[], Any]) -> float | None:
        """Seconds of a call on CUDA; None without PyTorch or a GPU that it knows."""
        if self.torch is None:
            return None

        def synchronized() -> None:
            run()
            self.torch.cuda.synchronize()

        with self.torch.inference_mode():
            return median(synchronized, self.sizes.seconds)

    def tensor(self, *shape: int) -> Any:
        """Random numbers on CUDA; None without PyTorch."""
        return None if self.torch is None else self.torch.randn(*shape, device="cuda")


def median(run: Callable[[], Any], seconds: float) -> float:
    """Seconds of a call, the median of as many as fit."""
    for _ in range(3):
        run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


Row = Sequence[str]


def row(name: str, times: Times, rate: str, other: float | None, wanted: str = "") -> Row:
    beside = "-" if other is None else format_seconds(other)
    return (name, format_seconds(times.call), format_seconds(times.kernels), rate, beside, wanted)


def measure_matmul(bench: Bench) -> Iterator[Row]:
    size = bench.sizes.matmul
    times = bench.measure(bench.load(gpu_models.matmul(size)))
    x, y = bench.tensor(size, size), bench.tensor(size, size)
    other = bench.torch_seconds(lambda: x @ y)
    rate = f"{2 * size**3 / times.kernels / 1e12:.2f} TFLOP/s"
    if other is not None:
        rate += f", {other / times.call:.0%} of cuBLAS"
    yield row(f"matmul {size}", times, rate, other, "70 % of cuBLAS")


def measure_rows(bench: Bench) -> Iterator[Row]:
    count, width = bench.sizes.rows, 4096
    length = 4 * count * width
    torch = bench.torch
    runs: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
        "copy": (2, lambda x, y: x.clone()),
        "add": (3, lambda x, y: x + y),
        "softmax": (2, lambda x, y: torch.softmax(x, -1)),
        "layer norm": (2, lambda x, y: torch.nn.functional.layer_norm(x, (width,))),
    }
    for kind, (passes, run) in runs.items():
        times = bench.measure(bench.load(gpu_models.rows(kind, count, width)))
        x, y = bench.tensor(count, width), bench.tensor(count, width)
        other = bench.torch_seconds(lambda run=run, x=x, y=y: run(x, y))  # type: ignore[misc]
        speed = passes * length / times.kernels
        rate = f"{speed / 1e9:.1f} GB/s"
        if kind == "copy":
            bench.bandwidth = speed
        else:
            rate += f", {speed / bench.bandwidth:.0%} of copy"
        name = f"{kind} of {count} rows of {width}"
        yield row(name, times, rate, other, "" if kind == "copy" else "80 % of copy")


def measure_models(bench: Bench) -> Iterator[Row]:
    for batch in bench.sizes.batches:
        model = bench.load(gpu_models.with_batch(graphs.load("resnet50", seed=0), batch))
        yield row(f"ResNet-50, batch {batch}", bench.measure(model), "", resnet(bench, batch))
    inputs = graphs.sample("minilm", 0, batch=1, sequence=bench.sizes.sequence)
    model = bench.load(graphs.load("minilm", seed=0))
    given = [
        ingot.Array.from_numpy(inputs[value.name], bench.device)
        for value in model.signature.arguments
    ]
    times = bench.measure(model, given)
    yield row(f"MiniLM, 1 x {bench.sizes.sequence}", times, "", minilm(bench, inputs))


def resnet(bench: Bench, batch: int) -> float | None:
    if bench.torch is None:
        return None
    from tests.models.definitions import ResNet50

    network, x = ResNet50().eval().cuda(), bench.tensor(batch, 3, 224, 224)
    return bench.torch_seconds(lambda: network(x))


def minilm(bench: Bench, inputs: dict[str, Any]) -> float | None:
    if bench.torch is None:
        return None
    from tests.models.definitions import MiniLM

    network = MiniLM().eval().cuda()
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = [bench.torch.from_numpy(inputs[name]).cuda() for name in names]
    return bench.torch_seconds(lambda: network(*given))


def measure_decoder(bench: Bench) -> Iterator[Row]:
    """The median step over the first half of the cache."""
    sizes = bench.sizes.decoder
    steps = sizes.capacity // 2
    state = ingot.state.past_present(capacity=sizes.capacity)
    model = bench.load(gpu_models.decoder(sizes), state=state)
    id = ingot.Array.from_numpy(np.zeros((1, 1), np.int64), bench.device)

    def seconds(step: Callable[[int], Any]) -> float:
        times = []
        for position in range(steps):
            begin = time.perf_counter()
            step(position)
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    call = seconds(lambda position: model(id))
    with model.trace() as events:
        model(id)
    times = Times(call, sum(event.end - event.begin for event in events) / 1e9)
    other = None
    if bench.torch is not None:
        step = gpu_models.torch_decoder(bench.torch, sizes, "cuda")

        def synchronized(position: int) -> None:
            step(position)
            bench.torch.cuda.synchronize()

        with bench.torch.inference_mode():
            other = seconds(synchronized)
    name = f"GPT-2 step, {sizes.layers} layers of {sizes.width}"
    yield row(name, times, f"{1 / call:.0f} tokens/s", other)


def measure_dispatches(bench: Bench) -> Iterator[Row]:
    model = bench.load(gpu_models.chain(_CHAIN, 16))
    times = bench.measure(model)
    rate = f"{times.call / _CHAIN * 1e6:.2f} us a dispatch"
    yield row(f"{_CHAIN} dispatches", times, rate, None, "5 us a dispatch")


_MEASURES = {
    "matmul": measure_matmul,
    "rows": measure_rows,
    "models": measure_models,
    "decoder": measure_decoder,
    "dispatches": measure_dispatches,
}


def main(arguments: Sequence[str] | None = None) -> int | str:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="opencl://gpu", help="%(default)s")
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    parser.add_argument(
        "--only", choices=tuple(_MEASURES), action="append", help="which of the measurements"
    )
    options = parser.parse_args(arguments)
    torch = import_torch()
    bench = Bench(options.device, _SMALL if options.small else _LARGE, torch)
    try:
        print(*describe(options.device, torch), sep="\n")
    except ingot.Error as error:
        return f"gpu.py: {error}; choose one with --device URI, and --small if it is no GPU"
    rows: list[Row] = []
    for name, measure in _MEASURES.items():
        if options.only and name not in options.only:
            continue
        for each in measure(bench):
            print(f"  {each[0]}: {each[1]}", flush=True)
            rows.append(each)
    print()
    print_table(_HEAD, rows)
    return 0


def import_torch() -> Any:
    """PyTorch in plain f32, if it is installed and has a GPU; else None."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


def describe(device: str, torch: Any) -> Iterator[str]:
    yield f"ingot {ingot.__version__} on {device}: {open_device(device).description}"
    if torch is None:
        yield "PyTorch with CUDA is not installed: its column stays empty"
    else:
        yield f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}"


if __name__ == "__main__":
    sys.exit(main())
