"""Embeddings of sentences: python embed.py encoder.onnx"""

import sys

import numpy as np

import ingot.onnxruntime as ort

SENTENCES = ("a cat sits on the mat", "a cat sleeps on the mat", "banks lend money")


def tokens(sentences: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Ids of words, padded with 0, and where there is a word: [sentences, words] both."""
    words = [sentence.split() for sentence in sentences]
    ids = np.zeros((len(words), max(map(len, words))), np.int64)
    for row, each in zip(ids, words, strict=True):
        row[: len(each)] = [sum(word.encode()) % 63 + 1 for word in each]
    return ids, (ids != 0).astype(np.int64)


def main(model: str) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    feed = dict(zip([each.name for each in session.get_inputs()], tokens(SENTENCES), strict=True))
    (embeddings,) = session.run(["embeddings"], feed)
    return {"embeddings": embeddings, "likeness": embeddings @ embeddings.T}


if __name__ == "__main__":
    print(main(*sys.argv[1:])["likeness"].round(3))
