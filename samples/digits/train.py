"""Trains the digits network and writes the files of this sample: run once, results committed.

A small CNN learns scikit-learn's bundled handwritten digits (1797 images of 8 x 8 pixels); every
fifth image is held back. The same weights go into an ONNX file, by torch.onnx.export, and into a
StableHLO artifact, by jax.export, both with a symbolic batch. Needs torch, onnxscript, jax and
scikit-learn; the other programs of the sample do not.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import torch
from jax import numpy as jnp
from sklearn.datasets import load_digits
from torch import Tensor, nn

FOLDER = Path(__file__).resolve().parent
EPOCHS = 40
BATCH = 64
SCOPES = "pkg.torch.onnx.name_scopes"


class Digits(nn.Module):
    """Two convolutions and a dense layer: f32[batch, 1, 8, 8], pixels 0 to 16 -> f32[batch, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(32)
        self.pool = nn.MaxPool2d(2)
        self.dense = nn.Linear(32 * 2 * 2, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = images / 16
        x = self.pool(torch.relu(self.norm1(self.conv1(x))))
        x = self.pool(torch.relu(self.norm2(self.conv2(x))))
        return self.dense(torch.flatten(x, 1))


def main() -> int:
    digits = load_digits()
    images = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    held_back = np.arange(len(images)) % 5 == 0
    np.save(FOLDER / "images.npy", images[held_back])
    np.save(FOLDER / "labels.npy", labels[held_back])

    network = train(images[~held_back], labels[~held_back])
    with torch.no_grad():
        logits = network(as_input(images[held_back])).numpy()
    accuracy = (logits.argmax(1) == labels[held_back]).mean()
    print(f"accuracy on {held_back.sum()} held-back images: {100 * accuracy:.2f} %")

    (FOLDER / "digits.onnx").write_bytes(export_onnx(network))
    (FOLDER / "digits.stablehlo").write_bytes(export_stablehlo(network))
    return 0


def as_input(images: np.ndarray[Any, Any]) -> Tensor:
    return torch.from_numpy(images.astype(np.float32)[:, None])


def train(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Digits:
    """The trained network, in inference mode."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = Digits()
    inputs, targets = as_input(images), torch.from_numpy(labels.astype(np.int64))
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = EPOCHS * -(-len(inputs) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(inputs)).split(BATCH):
            # a shift of up to one pixel each way makes the most of few images
            shift = torch.randint(-1, 2, (2,)).tolist()
            shifted = torch.roll(inputs[batch], shift, (2, 3))
            loss = nn.functional.cross_entropy(
                network(shifted), targets[batch], label_smoothing=0.05
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def export_onnx(network: Digits) -> bytes:
    """The ONNX file, with layer names but without traces of this machine."""
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        network,
        (torch.zeros(2, 1, 8, 8),),
        dynamo=True,
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: batch},),
        verbose=False,
    )
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    for node in model.graph.node:
        scopes = [entry.value for entry in node.metadata_props if entry.key == SCOPES]
        del node.metadata_props[:]
        if scopes:
            node.metadata_props.add(key=SCOPES, value=repr(ast.literal_eval(scopes[0])[-2:]))
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.graph.value_info[:]
    model.graph.name = "digits"
    model.graph.input[0].doc_string = "gray 8 x 8 images, pixels from 0 (white) to 16 (black)"
    model.graph.output[0].doc_string = "one score per digit, the greatest is the answer"
    return model.SerializeToString(deterministic=True)


def export_stablehlo(network: Digits) -> bytes:
    """A StableHLO portable artifact of the same function with the same weights."""
    weights = {name: jnp.asarray(value.numpy()) for name, value in network.state_dict().items()}

    def convolve(x: jax.Array, layer: int) -> jax.Array:
        kernel, bias = weights[f"conv{layer}.weight"], weights[f"conv{layer}.bias"]
        y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME") + bias[:, None, None]
        scale, mean = weights[f"norm{layer}.weight"], weights[f"norm{layer}.running_mean"]
        factor = scale / jnp.sqrt(weights[f"norm{layer}.running_var"] + 1e-5)
        shift = weights[f"norm{layer}.bias"] - mean * factor
        return jax.nn.relu(y * factor[:, None, None] + shift[:, None, None])

    def pool(x: jax.Array) -> jax.Array:
        window = (1, 1, 2, 2)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")

    def forward(images: jax.Array) -> jax.Array:
        x = pool(convolve(images / 16, 1))
        x = pool(convolve(x, 2))
        x = x.reshape(x.shape[0], -1)
        return x @ weights["dense.weight"].T + weights["dense.bias"]

    # file names in locations, without the folders of this machine
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    (batch,) = jax.export.symbolic_shape("batch")
    argument = jax.ShapeDtypeStruct((batch, 1, 8, 8), jnp.float32)
    exported = jax.export.export(jax.jit(forward), platforms=["cpu"])(argument)
    return bytes(exported.mlir_module_serialized)


if __name__ == "__main__":
    sys.exit(main())
