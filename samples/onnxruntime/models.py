"""Writes the models of these programs that stand nowhere else: python models.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx.numpy_helper import from_array

DETECTOR = """
<ir_version: 10, opset_import: ["": 20]>
detector (float[1, 1, height, width] pixels, float[1] threshold)
  => (int64[found, 3] kept, float[1, n, 4] boxes, float[1, 1, n] scores) {
  means = AveragePool <kernel_shape = [8, 8], strides = [2, 2]> (pixels)
  flat = Constant <value = int64[3] {1, 1, -1}> ()
  scores = Reshape(means, flat)
  shape = Shape(means)
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  two = Constant <value_int = 2> ()
  three = Constant <value_int = 3> ()
  rows = Gather(shape, two)
  columns = Gather(shape, three)
  count = Mul(rows, columns)
  places = Range(zero, count, one)
  row = Div(places, columns)
  column = Mod(places, columns)
  y = Mul(row, two)
  x = Mul(column, two)
  size = Constant <value_int = 8> ()
  bottom = Add(y, size)
  right = Add(x, size)
  axis = Constant <value_ints = [1]> ()
  a = Unsqueeze(y, axis)
  b = Unsqueeze(x, axis)
  c = Unsqueeze(bottom, axis)
  d = Unsqueeze(right, axis)
  corners = Concat <axis = 1> (a, b, c, d)
  front = Constant <value_ints = [0]> ()
  batch = Unsqueeze(corners, front)
  boxes = Cast <to = 1> (batch)
  most = Constant <value_ints = [10]> ()
  overlap = Constant <value_floats = [0.1]> ()
  kept = NonMaxSuppression(boxes, scores, most, overlap, threshold)
}
"""

DECODER = """
<ir_version: 10, opset_import: ["": 20]>
decoder (int64[s] ids, float[2, p, 16] past) => (float[s, 32] logits, float[2, t, 16] present) {
  x = Gather(table, ids)
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  v = MatMul(x, wv)
  front = Constant <value_ints = [0]> ()
  k1 = Unsqueeze(k, front)
  v1 = Unsqueeze(v, front)
  new = Concat <axis = 0> (k1, v1)
  present = Concat <axis = 1> (past, new)
  keys, values = Split <axis = 0, num_outputs = 2> (present)
  turned = Transpose <perm = [0, 2, 1]> (keys)
  products = MatMul(q, turned)
  scale = Constant <value_float = 0.25> ()
  scaled = Mul(products, scale)
  weights = Softmax(scaled)
  mixed = MatMul(weights, values)
  flat = Constant <value_ints = [-1, 16]> ()
  hidden = Reshape(mixed, flat)
  added = Add(hidden, x)
  logits = MatMul(added, head)
}
"""

ENCODER = """
<ir_version: 10, opset_import: ["": 20]>
encoder (int64[batch, words] input_ids, int64[batch, words] attention_mask)
  => (float[batch, 16] embeddings) {
  x = Gather(table, input_ids)
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  v = MatMul(x, wv)
  turned = Transpose <perm = [0, 2, 1]> (k)
  products = MatMul(q, turned)
  mask = Cast <to = 1> (attention_mask)
  one = Constant <value_float = 1.0> ()
  far = Constant <value_float = -10000.0> ()
  missing = Sub(one, mask)
  front = Constant <value_ints = [1]> ()
  back = Constant <value_ints = [2]> ()
  row = Unsqueeze(missing, front)
  distance = Mul(row, far)
  masked = Add(products, distance)
  weights = Softmax(masked)
  mixed = MatMul(weights, v)
  sum = Add(mixed, x)
  normal = LayerNormalization(sum, scale)
  column = Unsqueeze(mask, back)
  kept = Mul(normal, column)
  total = ReduceSum <keepdims = 0> (kept, front)
  embeddings = LpNormalization(total)
}
"""


def detector() -> onnx.ModelProto:
    """Means of windows are scores, their places boxes; overlapping ones are suppressed."""
    return onnx.parser.parse_model(DETECTOR)


def decoder() -> onnx.ModelProto:
    """One layer of attention over 32 tokens, with the keys and values of all tokens before."""
    weights = {"wq": (16, 16), "wk": (16, 16), "wv": (16, 16)}
    return _with_weights(DECODER, {"table": (32, 16), **weights, "head": (16, 32)})


def encoder() -> onnx.ModelProto:
    """One layer of attention over 64 words, and the mean of what it gives."""
    weights = {"wq": (16, 16), "wk": (16, 16), "wv": (16, 16)}
    return _with_weights(ENCODER, {"table": (64, 16), **weights, "scale": (16,)})


def _with_weights(text: str, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    """The model with weights that were never trained."""
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    model.graph.initializer.extend(
        from_array(generator.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    )
    return model


def main(folder: str) -> None:
    for make in (detector, decoder, encoder):
        onnx.save(make(), Path(folder) / f"{make.__name__}.onnx")


if __name__ == "__main__":
    main(*sys.argv[1:])
