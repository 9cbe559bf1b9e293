"""What training for bytes leaves in a program of torch, against eager torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.read_source import read_source
from tests.support.torch_calls import Calls, check, drawn, torch

tensor = torch.tensor
SCALES = tensor([0.02, 0.05, 0.3, 0.11])
ZEROS = tensor([0, 7, -3, 100], dtype=torch.int32)
FAKE: dict[str, Any] = {
    "tensor": lambda x: [
        torch.fake_quantize_per_tensor_affine(x, 0.11, *limits)
        for limits in ((7, 0, 255), (-5, -128, 127), (0, -7, 7), (3, 0, 4095))
    ],
    "numbers": lambda x: torch.fake_quantize_per_tensor_affine(
        x, tensor(0.11), tensor(7, dtype=torch.int32), 0, 127
    ),
    "ties": lambda x: torch.fake_quantize_per_tensor_affine(
        (torch.arange(-300, 300) + 0.5) * 0.18337547, 0.18337547019972034, -65, -128, 127
    ),
    "points of floats": lambda x: [
        torch.fake_quantize_per_tensor_affine(x, tensor(0.11), tensor(7.6), 0, 127),
        torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS + 0.4, 1, -128, 127),
    ],
    "channels": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, -128, 127),
    "mask": lambda x: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.01, 7, 0, 255),
    "enabled": lambda x: [
        torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
            x, tensor(0.01), tensor(7, dtype=torch.int32), on, 0, 255
        )
        for on in (tensor([1]), tensor([0]), (x[:1, 0] > 0).long())
    ],
}


@pytest.mark.parametrize("name", FAKE)
def test_fake_quantisation_agrees(name: str) -> None:
    check(FAKE[name], 3 * drawn(6, 4), near=1e-6)


def test_codes_that_no_integer_of_16_bits_holds_are_refused() -> None:
    function = Calls(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -40000, 40000))
    program = torch.export.export(function, (drawn(2),), strict=False)
    with pytest.raises(ingot.CompileError, match="its codes go from -40000 to 40000"):
        read_source(program)


def test_a_network_between_fake_quantisations_multiplies_bytes() -> None:
    through = torch.fake_quantize_per_tensor_affine
    w, v = drawn(8, 4, 3, 3) / 5, drawn(5, 8) / 4

    def network(x: Any) -> Any:
        coded = torch.fake_quantize_per_channel_affine(
            w, w.abs().amax((1, 2, 3)) / 127, torch.zeros(8, dtype=torch.int32), 0, -127, 127
        )
        x = torch.conv2d(through(x, 0.031, 10, 0, 255), coded).relu()
        x = through(through(x, 0.017, 0, 0, 255).mean((2, 3)), 0.011, 0, -128, 127)
        return through(x @ through(v, 0.013, 0, -128, 127).T, 0.053, 3, -128, 127)

    x = drawn(2, 4, 6, 6)
    module = ingot.compile(
        torch.export.export(Calls(network), (x,), strict=False), variants=["x86-64"]
    )
    assert module.report.in_integers == ("conv2d", "matmul")
    found = ingot.load(module)(x.numpy()).numpy()
    assert np.abs(found - network(x).numpy()).max() < 1e-6
