"""A decoder whose cache stays with the session: python decode.py decoder.onnx"""

import sys

import numpy as np

import ingot.onnxruntime as ort


def main(model: str, count: int = 12) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    past = next(each for each in session.get_inputs() if each.name == "past")
    empty = np.zeros((2, 0, past.shape[2]), np.float32)
    cache = ort.OrtValue.ortvalue_from_numpy(empty, "cpu", 0)
    binding = session.io_binding()
    ids, token = [3], np.array([3], np.int64)
    for _ in range(count):
        binding.bind_cpu_input("ids", token)
        binding.bind_ortvalue_input("past", cache)
        binding.bind_output("logits", "cpu")
        binding.bind_output("present", "cpu")
        session.run_with_iobinding(binding)
        logits, cache = binding.get_outputs()
        token = logits.numpy()[-1:].argmax(axis=-1)
        ids.append(int(token[0]))
    return {"ids": np.array(ids), "cache": cache.numpy()}


if __name__ == "__main__":
    print(main(*sys.argv[1:])["ids"])
