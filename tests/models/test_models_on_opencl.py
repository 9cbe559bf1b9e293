"""Whole models on OpenCL beside the CPU, from one module: images of 64 x 64, short sequences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ingot
from tests.models import graphs
from tests.support.devices import load_everywhere, opencl_uri  # noqa: F401  in a condition

TOLERANCE = 5e-6

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("opencl_uri() is None", reason="no OpenCL device"),
]


@pytest.fixture(scope="module", autouse=True)
def _optimised() -> Iterator[None]:
    """Kernels here are built as users have them; elsewhere tests leave LLVM's optimiser out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("POCL_EXTRA_BUILD_FLAGS", raising=False)
        yield


def small(name: str) -> onnx.ModelProto:
    """A filled graph whose images have 64 x 64 pixels."""
    model = graphs.load(name, seed=0)
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for axis in (2, 3) if len(dims) == 4 else ():
            dims[axis].dim_value = 64
    del model.graph.value_info[:]
    return model


def images(model: ingot.Model) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        value.name: random.standard_normal(value.shape).astype(np.float32)  # type: ignore[arg-type]
        for value in model.signature.arguments
    }


def check(models: dict[str, ingot.Model], arguments: dict[str, Any]) -> None:
    expected, got = (np.asarray(model(**arguments)) for model in models.values())
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize(
    "name", ["mlp", "mobilenetv2", pytest.param("resnet50", marks=pytest.mark.long)]
)
def test_networks_of_images(name: str) -> None:
    models = load_everywhere(small(name))
    assert models["opencl"].host_kernels == ()
    check(models, images(models["cpu"]))


def test_one_dynamic_module_serves_both_devices() -> None:
    models = load_everywhere(graphs.load("minilm", seed=0))
    assert models["opencl"].host_kernels == ()
    for batch, sequence in ((1, 1), (2, 17), (1, 64)):
        check(models, graphs.sample("minilm", 7, batch=batch, sequence=sequence))


def test_a_decoder_with_its_cache_continues_alike(project_root: Path) -> None:
    """The sample `generate`, a call for each character."""
    folder = project_root / "samples" / "generate"
    sources = {name: folder / f"{name}.stablehlo" for name in ("prefill", "decode")}
    models = load_everywhere(sources, state=ingot.state.carried("cache", capacity=256))
    ids = np.frombuffer(b"The compiler ", np.uint8).astype(np.int32)
    texts = []
    for model in models.values():
        id = model.prefill(ids)
        text = [int(id)]
        while len(text) < 24:
            id = model.decode(id)
            text.append(int(id))
        texts.append(text)
    assert texts[0] == texts[1]
