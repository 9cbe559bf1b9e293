"""Image classification: python classify.py digits.onnx images.npy"""

import sys

import numpy as np

import ingot.onnxruntime as ort


def main(model: str, images: str) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    pixels = np.load(images)[:20].astype(np.float32).reshape(-1, *image.shape[1:])
    (logits,) = session.run(None, {image.name: pixels})
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return {"classes": logits.argmax(axis=1), "scores": powers / powers.sum(axis=1, keepdims=True)}


if __name__ == "__main__":
    print(main(*sys.argv[1:])["classes"])
