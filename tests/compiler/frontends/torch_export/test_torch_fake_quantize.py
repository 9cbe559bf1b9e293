"""What training for bytes leaves in a program of torch, against eager torch."""

from __future__ import annotations

import io
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


@pytest.mark.filterwarnings("ignore:No complete tensor", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*reduce_range", "ignore:.*non-tuple")
def test_a_network_that_prepare_qat_made_multiplies_bytes_behind_its_observers() -> None:
    quantization = pytest.importorskip("torch.ao.quantization")
    layers = torch.nn.Sequential(
        quantization.QuantStub(), torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32, 5),
    ).train()  # fmt: skip
    layers.qconfig = quantization.get_default_qat_qconfig("x86")
    quantization.fuse_modules_qat(layers, ["1", "2", "3"], inplace=True)
    quantization.prepare_qat(layers, inplace=True)
    x = drawn(4, 3, 4, 4)
    layers(x)
    layers.eval()
    program = torch.export.export(layers, (x,))
    with pytest.raises(ingot.CompileError, match=r"observer makes a new range.*disable_observer"):
        read_source(program)
    layers.apply(quantization.disable_observer)
    program, saved = torch.export.export(layers, (x,)), io.BytesIO()
    torch.export.save(program, saved)
    for source in (program, saved.getvalue()):
        module = ingot.compile(source, variants=["x86-64"])
        assert [name.partition("/")[0] for name in module.report.in_integers] == ["1", "5"]
        np.testing.assert_allclose(
            ingot.load(module)(x.numpy()), layers(x).detach().numpy(), 1e-6, 1e-6
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
def test_modules_of_quantised_tensors_are_refused_with_what_to_do() -> None:
    quantization = pytest.importorskip("torch.ao.quantization")
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval()
    layers = quantization.quantize_dynamic(layers, {torch.nn.Linear})
    with pytest.raises(ingot.CompileError, match=r"prepare_pt2e and convert_pt2e"):
        ingot.compile(layers, example_inputs=(drawn(2, 4),))


def test_layers_of_which_one_operand_is_quantised_are_told() -> None:
    through = torch.fake_quantize_per_tensor_affine
    w, x = drawn(8, 4), drawn(3, 4)

    def layers(x: Any) -> Any:
        return through(x, 0.02, 3, 0, 255) @ w.T, x @ through(w, 0.02, 0, -127, 127).T

    program = torch.export.export(Calls(layers), (x,), strict=False)
    report = ingot.compile(program, variants=["x86-64"]).report
    assert [reason for _, reason in report.left_in_float] == [
        "its weight is not quantised",
        "its input is not quantised",
    ]
