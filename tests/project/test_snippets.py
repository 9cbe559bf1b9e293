"""The snippets of the documentation run: Python, shell and C of the README and of all guides.

The snippets of a page run in their order in one folder, which has what their reader has: a model,
an input, a checkout. Those of Python share their names. `<!-- not run: why -->` stands above one
that cannot run here. The outputs that pages show stand in fences without a language. Commands of
the README have a process each, as their reader's have; on other pages they are called: a process of
each would take most of a second for imports.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import ingot
from ingot.command import main
from ingot.compiler.frontends import own_ops
from tests.support.devices import best_variant, opencl_uri
from tests.support.language import write_model
from tests.support.language_shapes import Shape
from tests.support.tflite_models import one_op

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"(ingot|make|cc|gcc|pip|python|cmake|import|from|\./\w+|#include)\b")
COMMANDS = re.compile(r"(ingot [^|&;<>$`\\\n]+\n)+")
"""Lines of `ingot` in which a shell does no more than take quotes and comments away."""
OPENCL = ("opencl.md", "wrong-results.md", "onnx.md")

MODEL = """
<ir_version: 10, opset_import: ["": 20]>
model (float[batch, 4] x) => (float[batch, 3] y)
<float[4, 3] weight, float[3] bias> {
  hidden = MatMul(x, weight)
  sum = Add(hidden, bias)
  y = Relu(sum)
}
"""
SAMPLER = """
<ir_version: 10, opset_import: ["": 20]>
sampler () => (float[4] y) { y = RandomNormal<shape = [4]>() }
"""
COUNTER = """
<ir_version: 10, opset_import: ["": 20]>
counter (float[4] x, float[4] total) => (float[4] y, float[4] next) {
  next = Add(total, x)
  y = Neg(x)
}
"""


@dataclass(frozen=True)
class Snippet:
    language: str
    text: str
    reason: str | None  # why it does not run


def snippets(page: Path) -> list[Snippet]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Snippet(each["language"], each["text"], each["reason"]) for each in found]


def runs(page: Path, *languages: str) -> list[Snippet]:
    return [each for each in snippets(page) if each.language in languages and not each.reason]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_looks_like_a_command_or_a_program_has_its_language(page: Path) -> None:
    plain = [each.text for each in snippets(page) if not each.language]
    assert not [text for text in plain if COMMAND.match(text)]
    assert {each.language for each in snippets(page)} <= {"", "python", "sh", "c", "cmake", "js"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has, made once for all pages."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("csrc", "samples", "docs"):
        (folder / name).symlink_to(ROOT / name)
    source = onnx.parser.parse_model(MODEL)
    generator = np.random.default_rng(0)
    weights = {
        "weight": generator.standard_normal((4, 3), np.float32),
        "bias": generator.standard_normal(3, np.float32),
    }
    source.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    onnx.save(source, folder / "model.onnx")
    np.save(folder / "x.npy", np.ones((2, 4), np.float32))
    (folder / "program.py").write_text(
        "import ingot, numpy\nmodel = ingot.load('model.ingot')\nmodel(numpy.load('x.npy'))\n"
    )
    digits = ROOT / "samples" / "digits" / "digits.stablehlo"
    for name in ("model.mlirbc", "other.stablehlo"):
        shutil.copy(digits, folder / name)
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file(weights, folder / "weights.safetensors")
    variants = [best_variant()]
    ingot.compile(source, variants=variants).save(folder / "model.ingot")
    shutil.copy(folder / "model.ingot", folder / "other.ingot")
    sampler = onnx.parser.parse_model(SAMPLER)
    ingot.compile(sampler, variants=variants).save(folder / "sampler.ingot")
    counter = onnx.parser.parse_model(COUNTER)
    ingot.compile(counter, variants=variants, state={"next": "total"}).save(
        folder / "counter.ingot"
    )
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    keys = {"model": "llama", "tokens": tokens, "scores": [0.0] * 259, "eos_token_id": 2}
    keys |= {"bos_token_id": 1, "token_type": [2, 3, 3] + [6] * 256}
    tokenizer = {f"ggml.{key}": value for key, value in keys.items()}
    tokenizer["chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
    sizes = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "feed": 48, "context": 256}
    shape = Shape(**sizes, vocabulary=259, tied=True)
    write_model(folder / "model.gguf", shape, tokenizer=tokenizer)
    (folder / "model.tflite").write_bytes(tanh())
    sources = {n: ROOT / "samples/generate" / f"{n}.stablehlo" for n in ("prefill", "decode")}
    state = ingot.state.carried("cache", capacity=256)
    ingot.compile(sources, state=state, variants=variants).save(folder / "generate.ingot")
    return folder


def tanh() -> bytes:
    """A TFLite model."""
    data, _ = one_op("TANH", [np.zeros(4, np.float32)], [("float32", (4,))])
    return data


@pytest.fixture
def folder(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which the test is."""
    monkeypatch.setattr(own_ops, "_own", {})  # what a page registers is its own
    copy = tmp_path / "here"
    shutil.copytree(models, copy, symlinks=True)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("PYOPENCL_CTX", "0")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return copy


def _needs_opencl(page: Path) -> None:
    if page.name in OPENCL and opencl_uri() is None:
        pytest.skip("needs an OpenCL device")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if runs(page, "python", "sh")], ids=lambda page: page.name
)
def test_python_and_shell_run(page: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _needs_opencl(page)
    model = ingot.load(folder / "model.ingot")
    names: dict[str, Any] = {
        "model": model,
        "x": np.ones((2, 4), np.float32),
        "ids": np.arange(8, dtype=np.int32),
    }
    for snippet in runs(page, "python", "sh"):
        if snippet.language == "python":
            exec(compile(snippet.text, page.name, "exec"), names)
            _check_comments(snippet.text, capfd.readouterr().out)
        elif page.name != "README.md" and COMMANDS.fullmatch(snippet.text):
            for line in snippet.text.splitlines():
                assert main(shlex.split(line, comments=True)[1:]) == 0, capfd.readouterr()
        else:
            done = subprocess.run(
                ["sh", "-euc", snippet.text],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=1200,
            )
            assert done.returncode == 0, f"{snippet.text}\n{done.stdout}\n{done.stderr}"


def _check_comments(text: str, output: str) -> None:
    """What `print(...)  # output` promises is what was printed."""
    for promised in re.findall(r"^ *print\(.*\)  # (\w+\(.*|argument .*)$", text, re.MULTILINE):
        assert promised.removesuffix(" ...") in output


HARNESS = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "ingot/ingot.h"
#include "ingot/opencl.h"
static void check(ingot_status_t status) {
  if (!status) return;
  fprintf(stderr, "%s\\n", ingot_status_message(status));
  exit(1);
}
static char arena[4096];
static uint32_t queue_length(void *queue) { return queue != NULL; }
static bool queue_push(void *queue, void (*function)(void *), void *argument) {
  return queue != NULL && function != NULL && argument != NULL;
}
static int used;
static void use(ingot_buffer_view_t *view) { used += ingot_buffer_view_layout(view)->rank == 1; }
@include
@debugging.0
@embedding.7
static ingot_status_t opencl(void) {
  ingot_instance_t *instance = NULL;
  ingot_device_t *device = NULL;
  @embedding.0
  ingot_device_release(device);
  ingot_instance_release(instance);
  return status;
}
int main(void) {
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_module_t *module;
  ingot_program_t *program;
  ingot_session_t *session;
  float x[4] = {1, 2, 3, 4}, total[4] = {0};
  int64_t dim = 4;
  uint32_t function, count = 2;
  ingot_buffer_view_t *arguments[1], *tensors[2];
  void *saved[1] = {total};
  size_t lengths[1] = {sizeof(total)};
  ingot_status_free(opencl());
  check(ingot_instance_create(NULL, &instance));
  check(ingot_device_create(instance, "cpu", NULL, &device));
  check(ingot_module_load_file(instance, "counter.ingot", 0, &module));
  check(ingot_program_create(device, &module, 1, NULL, NULL, &program));
  check(ingot_program_find_function(program, "main", &function));
  check(ingot_session_create(program, NULL, &session));
  check(ingot_buffer_view_wrap(device, x, sizeof(x), INGOT_DTYPE_F32, 1, &dim, NULL, NULL,
                               &arguments[0]));
  tensors[0] = tensors[1] = arguments[0];
  {
    @debugging.1
    @embedding.1
    ingot_buffer_view_release(results[0]);
  }
  {
    ingot_status_t status;
    ingot_buffer_view_t *results[1];
    check(ingot_buffer_view_create_list(device, tensors, count, &results[0]));
    @embedding.2
    check(status);
    ingot_buffer_view_release(results[0]);
    ingot_buffer_view_release(arguments[0]);
  }
  {
    @embedding.3
  }
  {
    ingot_session_t *own;
    @embedding.4
    ingot_session_release(own);
    ingot_buffer_release(options.slab);
  }
  {
    ingot_device_t *device;
    void *queue = NULL;
    @embedding.5
    ingot_device_release(device);
  }
  {
    ingot_buffer_view_t *arguments[1] = {tensors[0]}, *results[1] = {NULL};
    int pipes[2];
    @embedding.6
    ingot_buffer_view_release(results[0]);
    if (pipe(pipes) == 0) wake_loop(&pipes[1], NULL);
  }
  {
    ingot_status_t status = NULL;
    @embedding.8
    check(status);
  }
  ingot_buffer_view_release(tensors[0]);
  ingot_session_release(session);
  ingot_program_release(program);
  ingot_module_release(module);
  ingot_device_release(device);
  ingot_instance_release(instance);
  printf("%d %g\\n", used, (double)total[3]);
  return 0;
}
"""


def test_c_is_compiled_as_one_program_and_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {
        f"@{page.stem}.{place}": snippet.text
        for page in PAGES
        for place, snippet in enumerate(runs(page, "c"))
    }
    assert sorted(parts) == sorted(re.findall(r"@\w+\.\d", HARNESS))
    includes = re.findall(r"^#include.*$", "".join(parts.values()), re.MULTILINE)
    source = HARNESS.replace("@include", "\n".join(includes))
    for name, part in parts.items():
        source = source.replace(name, re.sub(r"^#include.*\n", "", part, flags=re.MULTILINE))
    Path("snippets.c").write_text(source)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    flags += ["-DINGOT_OPENCL", "-Icsrc/include", "-Icsrc"]
    subprocess.run(
        ["cc", *flags, "snippets.c", "csrc/ingot.c", "-lpthread", "-ldl", "-o", "snippets"],
        check=True,
    )
    monkeypatch.setenv("INGOT_TRACE", "trace.json")
    done = subprocess.run(["./snippets"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("word 0 ")
    assert done.stdout.endswith("\n2 4\n")
    assert Path("trace.json").read_text().startswith("[")
