"""A scikit-learn pipeline that skl2onnx wrote: python pipeline.py flowers.onnx"""

import sys

import numpy as np

import ingot.onnxruntime as ort


def main(model: str) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(1).random((30, 4), np.float32)
    label, probabilities = (each.name for each in session.get_outputs())
    labels, scores = session.run([label, probabilities], {session.get_inputs()[0].name: rows})
    return {"labels": labels, "scores": scores}


if __name__ == "__main__":
    print(main(*sys.argv[1:])["labels"])
