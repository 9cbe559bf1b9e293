"""samples/serve with MLServer, over REST and gRPC; run by `make test-peers`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot

pytest.importorskip("mlserver")

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
sys.path.append(str(SAMPLES / "serve"))

from client import Client, load  # noqa: E402

PORT = 8470
MAX_WAITING = 64
IMAGES = np.load(SAMPLES / "digits" / "images.npy")[:32, None].astype(np.float32)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "digits.ingot"
    ingot.compile(SAMPLES / "digits" / "digits.onnx").save(path)
    return path


@pytest.fixture(scope="module")
def server(module: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, SAMPLES / "serve" / "serve.py", module, "--port", PORT]
    limit = ["--max-waiting", MAX_WAITING]
    process = subprocess.Popen([*map(str, command), *map(str, limit)])
    try:
        for _ in range(300):
            time.sleep(0.2)
            assert process.poll() is None
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v2/models/digits/ready")
                break
            except OSError:
                continue
        yield process
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def client(server: subprocess.Popen[bytes]) -> Client:
    return Client(f"http://127.0.0.1:{PORT}", "digits")


def _metric(name: str) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{PORT + 2}/metrics/").read().decode()
    found = re.search(rf'^{name}{{model="digits"}} (\S+)', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _resident(process: subprocess.Popen[bytes]) -> int:
    """Bytes of memory that the process has."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]


def test_requests_are_joined_and_answered_right(client: Client, module: Path) -> None:
    expected = np.asarray(ingot.load(module)(IMAGES))
    calls = _metric("ingot_calls_total")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda image: client(images=image[None])["logits"], IMAGES))
    np.testing.assert_allclose(np.concatenate(answers), expected, rtol=1e-5, atol=1e-5)
    assert _metric("ingot_calls_total") - calls < len(IMAGES)


def test_a_wrong_request_fails_alone(client: Client) -> None:
    messages = []

    def ask(place: int) -> int:
        image = IMAGES[:1] if place % 4 else np.zeros((1, 1, 8, 9), np.float32)
        try:
            client(images=image)
        except urllib.error.HTTPError as error:
            messages.append(error.read().decode())
            return error.code
        return 200

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(64)))
    assert answers == [200 if place % 4 else 400 for place in range(64)]
    assert all("dim 3 is 9, expected 8" in message for message in messages)


def test_what_the_model_does_not_take_is_named(client: Client) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        client(pictures=IMAGES[:1])
    assert "the inputs are pictures; the model takes main(images" in refused.value.read().decode()


@pytest.mark.parametrize("change", [{"shape": [2, 1, 8, 8]}, {"data": ["x"] * 64}, {"data": [1]}])
def test_elements_that_are_not_of_the_shape_or_type_are_refused(
    client: Client, change: dict[str, Any]
) -> None:
    given = {"name": "images", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}
    request = urllib.request.Request(
        f"{client.url}/infer",
        json.dumps({"inputs": [given | change]}).encode(),
        {"Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 400
    assert "an input is not what it says of itself" in refused.value.read().decode()


def test_more_than_it_holds_is_refused_and_memory_stays(
    client: Client, server: subprocess.Popen[bytes]
) -> None:
    rows = np.repeat(IMAGES[:1], MAX_WAITING + 1, axis=0)
    with pytest.raises(urllib.error.HTTPError) as refused:
        client(images=rows)
    assert refused.value.code == 429
    assert "64 rows wait already" in refused.value.read().decode()
    load(client, 300, 32)
    before = _resident(server)
    found = load(client, 600, 32)
    assert set(found["answers"]) <= {200, 429}
    assert _resident(server) - before < 20e6


def test_grpc_gives_the_same(client: Client, module: Path) -> None:
    import grpc
    from mlserver.grpc import converters
    from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub
    from mlserver.types import InferenceRequest, RequestInput

    request = InferenceRequest(
        inputs=[
            RequestInput(
                name="images", shape=[1, 1, 8, 8], datatype="FP32", data=IMAGES[0].ravel().tolist()
            )
        ]
    )
    message: Any = converters.ModelInferRequestConverter.from_types(request, model_name="digits")
    with grpc.insecure_channel(f"127.0.0.1:{PORT + 1}") as channel:
        answer = GRPCInferenceServiceStub(channel).ModelInfer(message)
    (output,) = converters.ModelInferResponseConverter.to_types(answer).outputs
    expected = np.asarray(ingot.load(module)(IMAGES[:1]))
    np.testing.assert_allclose(np.array(list(output.data)), expected.ravel(), rtol=1e-5, atol=1e-5)
