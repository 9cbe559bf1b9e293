"""One module file for several machines: under an emulator the runtime takes the best variant that
the processor runs, and gives what it gives here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from tests.support.emulators import EMULATED, need_emulator, run_module
from tests.support.products import error_of

Array = np.ndarray[Any, Any]
MACHINES = [name for name in EMULATED if not name.startswith("wasm32") and "bf16" not in name]
HERE = "x86-64-v3"
RANDOM = np.random.default_rng(8)
WEIGHTS = RANDOM.standard_normal((3, 16, 16)).astype(np.float32)


@ingot.program(ingot.spec("f32[n,16]"))
def attention(x: Any) -> Any:
    """Two heads behind three projections, a residual and a norm."""
    query, key, value = (
        ops.permute_dims(ops.reshape(ops.matmul(x, w), (x.shape[0], 2, 8)), (1, 0, 2))
        for w in WEIGHTS
    )
    scores = ops.softmax(ops.matmul(query, ops.permute_dims(key, (0, 2, 1))) / 8**0.5, axis=-1)
    joined = ops.reshape(ops.permute_dims(ops.matmul(scores, value), (1, 0, 2)), x.shape)
    y = x + joined
    return y * ops.rsqrt(ops.mean(y * y, axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory, project_root: Path) -> dict[str, Any]:
    """By name a module file for all machines, its arguments, and what it gives here."""
    samples, folder = project_root / "samples", tmp_path_factory.mktemp("modules")
    images = np.load(samples / "digits" / "images.npy")[:64, None].astype(np.float32)
    digits = samples / "digits" / "digits.onnx"
    variants = [*MACHINES, HERE]
    small = images[:5]
    made = {
        "hello": (
            ingot.compile(samples / "hello" / "hello.onnx", variants=variants),
            RANDOM.random(4),
        ),
        "digits": (ingot.compile(digits, variants=variants), small),
        "digits of int8": (
            ingot.quantize(
                digits, activations="int8", data=images, measure=False, variants=variants
            ),
            small,
        ),
        "attention": (ingot.compile(attention, variants=variants), RANDOM.random((19, 16))),
    }
    found = {}
    for place, (name, (module, given)) in enumerate(made.items()):
        path = folder / f"{place}.ingot"
        module.save(path)
        argument = np.asarray(given, np.float32)
        found[name] = (path, argument, np.asarray(ingot.load(path)(argument)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("variant", MACHINES)
def test_models_give_on_other_machines_what_they_give_here(
    variant: str, modules: dict[str, Any]
) -> None:
    need_emulator(variant)
    for name, (path, argument, wanted) in modules.items():
        (found,) = run_module(variant, path, [argument], 1)
        np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=3e-6, err_msg=name)


@pytest.mark.slow
def test_factors_of_bf16_give_the_same_with_an_instruction_and_without(tmp_path: Path) -> None:
    weight = RANDOM.standard_normal((64, 96)).astype(np.float32)

    @ingot.program(ingot.spec("f32[n,64]"))
    def projection(x: Any) -> Any:
        return ops.matmul(x, weight)

    path, variants = tmp_path / "bf16.ingot", ["aarch64-bf16", "aarch64", HERE]
    ingot.compile(projection, precision="bf16", variants=variants).save(path)
    x = RANDOM.standard_normal((7, 64)).astype(np.float32)
    wanted = np.asarray(ingot.load(path)(x))
    assert np.abs(wanted - x @ weight).max() > 1e-3
    for variant in variants[:2]:
        need_emulator(variant)
        (found,) = run_module(variant, path, [x], 1)
        assert error_of(found, wanted) <= 1e-6
