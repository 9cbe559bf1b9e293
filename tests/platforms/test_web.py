"""The npm package: the runtime as WebAssembly and its JavaScript, in node and in a page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot import ops
from tests.support.browser import ISOLATED, Browser, find_chromium, serve
from tests.support.emulators import need_tool
from tests.support.mutations import mutate, sections_of, with_checksums

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples" / "digits"
WASM = "wasm32-simd128"
PAGE = "<!doctype html><link rel=icon href='data:,'>"
CHROMIUM = pytest.mark.skipif(
    find_chromium() is None and not os.environ.get("INGOT_REQUIRE_CHROMIUM"),
    reason="there is no Chromium (Debian: apt install chromium)",
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_tool("node")
    folder = tmp_path_factory.mktemp("package") / "ingot-runtime"
    subprocess.run([sys.executable, "web/build.py", str(folder)], cwd=ROOT, check=True)
    return folder


@ingot.program(ingot.spec("f32[4]"), ingot.spec("f32[n,4]"))
def add(total: Any, x: Any) -> Any:
    new_total = total + ops.sum(x, axis=0)
    return {"sums": new_total * 1, "new_total": new_total}


@ingot.program(ingot.spec("i64[n]"), ingot.spec("i1[n]"), ingot.spec("f16[n]"), ingot.spec("i32[]"))
def kinds(ids: Any, flags: Any, halves: Any, count: Any) -> Any:
    return ids + 1, ~flags, halves * 2, count * count


@ingot.program(ingot.spec("i64[]"))
def turns(count: Any) -> Any:
    return ops.while_loop(lambda i: i < count, lambda i: i + 1, np.int64(0))


def _sequences() -> onnx.ModelProto:
    """An input in parts, and a sequence in one."""
    of = helper.make_tensor_sequence_value_info
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0, keepdims=1),
        helper.make_node("ConcatFromSequence", ["more"], ["whole"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "sequences",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            of("more", TensorProto.FLOAT, [None]),
        ],
        [
            of("parts", TensorProto.FLOAT, [None]),
            helper.make_tensor_value_info("whole", TensorProto.FLOAT, [None]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _product() -> onnx.ModelProto:
    """x times w, plus b."""
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    values = {
        "w": np.asarray([[1, 2, 3], [4, 5, 6]], np.float32),
        "b": np.asarray([2, 2, 2], np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [onnx.numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _write_damaged(folder: Path, data: bytes) -> None:
    """Cut, with other bytes in the code of kernels, and with other numbers everywhere else."""
    for place in range(0, len(data), len(data) // 20):
        (folder / f"damaged-cut-{place}").write_bytes(data[:place])
    (objects,) = (each for each in sections_of(data) if each["kind"] == 11)
    rng = np.random.default_rng(4)
    for place in rng.integers(0, objects["length"], 60):
        changed = bytearray(data)
        changed[objects["offset"] + place] ^= int(1 << rng.integers(8))
        (folder / f"damaged-code-{place}").write_bytes(with_checksums(changed))
    for seed in range(100):
        (folder / f"damaged-{seed}").write_bytes(mutate(data, seed))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    digits = ingot.compile(DIGITS / "digits.onnx", variants=[WASM, "x86-64"])
    digits.save(folder / "digits.ingot")
    images = np.load(DIGITS / "images.npy")[:5, None].astype(np.float32)
    logits = np.asarray(ingot.load(digits)(images))  # the same file, by its other variant
    both = {"images": images.ravel().tolist(), "logits": logits.ravel().tolist()}
    (folder / "digits.json").write_text(json.dumps(both))
    (folder / "native.ingot").write_bytes(
        bytes(ingot.compile(DIGITS / "digits.onnx", variants=["x86-64"]))
    )
    functions = {"add": add, "kinds": kinds, "turns": turns}
    ingot.compile(functions, state={"new_total": "total"}, variants=[WASM]).save(
        folder / "state.ingot"
    )
    ingot.compile(_sequences(), variants=[WASM]).save(folder / "sequences.ingot")
    product = ingot.compile(_product(), parameters="external", variants=[WASM])
    product.save(folder / "external.ingot")
    from safetensors.numpy import save_file

    weights = {each.name: onnx.numpy_helper.to_array(each) for each in _product().graph.initializer}
    save_file(weights, folder / "weights.safetensors")
    _write_damaged(folder, bytes(ingot.compile(DIGITS / "digits.onnx", variants=[WASM])))
    return folder


def test_folders_of_something_else_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    for script in ("web/build.py", "samples/web/build.py"):
        command = [sys.executable, str(ROOT / script)]
        done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 1
        assert "of something else: name a folder that is empty" in done.stderr
        done = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0
        assert "usage:" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_in_node(package: Path, modules: Path) -> None:
    done = subprocess.run(
        ["node", "--test", "--test-reporter=spec", "tests/platforms/web_tests.mjs"],
        cwd=ROOT,
        env={**os.environ, "INGOT_PACKAGE": str(package), "INGOT_MODULES": str(modules)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@CHROMIUM
def test_in_a_page(package: Path, modules: Path) -> None:
    wanted = json.loads((modules / "digits.json").read_text())
    call = """(async (options) => {
      const { Ingot } = await import("/ingot-runtime/index.js");
      const model = await Ingot.load("digits.ingot", options);
      const images = Float32Array.from((await (await fetch("digits.json")).json()).images);
      const [y] = await model.call({ images });
      const wrong = await Ingot.load("native.ingot", options).catch((error) => error);
      return [model.device, Array.from(y.data), wrong.name, wrong.code, wrong.message];
    })"""
    (modules / "ingot-runtime").symlink_to(package)
    (modules / "index.html").write_text(PAGE)
    with serve(modules, ISOLATED) as url, Browser() as browser:
        browser.open(f"{url}/index.html", "document.readyState === 'complete'")
        for options, threads in (
            ("{}", "1 thread"),
            ("{ worker: true }", "1 thread"),
            ("{ threads: 2 }", "2 threads"),
        ):
            device, logits, *error = browser.evaluate(f"{call}({options})")
            assert device == f"wasm32 simd128 relaxed-simd, {threads}"
            np.testing.assert_allclose(logits, wanted["logits"], rtol=1e-4, atol=1e-4)
            assert error[:2] == ["IngotError", "Unsupported"]
            assert "--variants wasm32" in error[2]
        assert browser.problems == []


@CHROMIUM
def test_what_a_page_does_not_allow_is_said(package: Path, tmp_path: Path) -> None:
    shutil.copytree(package, tmp_path / "ingot-runtime")
    (tmp_path / "index.html").write_text(PAGE)
    call = """(async (options) => {
      const { Ingot } = await import("/ingot-runtime/index.js");
      const wrong = await Ingot.load(new Uint8Array(9), options).catch((error) => error);
      return [wrong.code, wrong.message];
    })"""
    policy = {"Content-Security-Policy": "script-src 'self'"}
    with serve(tmp_path, policy) as url, Browser() as browser:
        browser.open(f"{url}/index.html", "document.readyState === 'complete'")
        for options, said in (
            ("{ threads: 2 }", "Cross-Origin-Opener-Policy: same-origin"),
            ("{}", "'wasm-unsafe-eval'"),
        ):
            code, message = browser.evaluate(f"{call}({options})")
            assert code == "Unsupported"
            assert said in message


def test_the_runtime_is_small(package: Path) -> None:
    for name in ("ingot.wasm", "ingot-threads.wasm"):
        assert (package / name).stat().st_size < 150_000


def test_npm_takes_all_files(package: Path) -> None:
    about = json.loads((package / "package.json").read_text())
    always = {"package.json", "README.md", "LICENSE"}
    names = {path.name for path in package.iterdir()} - always
    assert "thread.js" in names
    assert {
        name for name in names if not any(fnmatch(name, each) for each in about["files"])
    } == set()
    assert about["version"] == ingot.__version__
