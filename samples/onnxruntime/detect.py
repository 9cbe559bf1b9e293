"""Object detection: python detect.py detector.onnx finds bright squares of 8 by 8 pixels."""

import sys

import numpy as np

import ingot.onnxruntime as ort


def picture() -> np.ndarray:
    """[1, 1, 48, 64] with three squares."""
    pixels = np.random.default_rng(0).random((1, 1, 48, 64), np.float32) * 0.2
    for y, x in ((4, 8), (20, 40), (36, 12)):
        pixels[..., y : y + 8, x : x + 8] += 0.8
    return pixels


def main(model: str) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {"pixels": picture(), "threshold": np.array([0.7], np.float32)}
    kept, boxes, scores = session.run(["kept", "boxes", "scores"], feed)
    places = kept[:, 2]
    return {"boxes": boxes[0, places], "scores": scores[0, 0, places]}


if __name__ == "__main__":
    found = main(*sys.argv[1:])
    for box, score in zip(found["boxes"], found["scores"], strict=True):
        print(box.astype(int), round(float(score), 3))
