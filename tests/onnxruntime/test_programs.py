"""Programs for onnxruntime give the same with both imports, and nothing else is changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "samples" / "onnxruntime"
DIGITS = ROOT / "samples" / "digits"


def definitions(name: str, engine: str) -> dict[str, Any]:
    """What a program defines, with this engine behind its import."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    changed, count = re.subn(r"^import ingot\.onnxruntime as ort$", f"import {engine} as ort", text,
                             flags=re.MULTILINE)  # fmt: skip
    assert count == 1
    assert text.count("ingot") == 1
    names: dict[str, Any] = {"__name__": name}
    exec(compile(changed, name, "exec"), names)
    return names


def flowers(path: Path) -> None:
    """A pipeline as skl2onnx writes it."""
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = np.random.default_rng(0).random((60, 4), np.float32)
    kinds = (rows.sum(axis=1) * 2).astype(int) % 3
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, kinds)
    model = skl2onnx.to_onnx(pipeline, rows[:1], options={"zipmap": False})
    onnx.save(model, path)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    names: dict[str, Any] = {"__name__": "models"}
    exec(compile((FOLDER / "models.py").read_text(encoding="utf-8"), "models", "exec"), names)
    names["main"](str(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("classify", ""),
        ("detect", "detector.onnx"),
        ("embed", "encoder.onnx"),
        ("decode", "decoder.onnx"),
        pytest.param("pipeline", "flowers.onnx", marks=pytest.mark.slow),
    ],
)
def test_programs_give_the_same(name: str, model: str, models: Path) -> None:
    if model == "flowers.onnx":
        flowers(models / model)
    arguments = [str(models / model)] if model else [
        str(DIGITS / "digits.onnx"), str(DIGITS / "images.npy")
    ]  # fmt: skip
    pytest.importorskip("onnxruntime")
    expected = definitions(name, "onnxruntime")["main"](*arguments)
    found = definitions(name, "ingot.onnxruntime")["main"](*arguments)
    assert list(found) == list(expected)
    for key, array in expected.items():
        assert found[key].dtype == array.dtype, key
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-5, err_msg=key)
