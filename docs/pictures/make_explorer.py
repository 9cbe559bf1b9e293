"""Makes the picture of the explorer in the README: `make pictures`.

It compiles the sample model of sentence embeddings with the weights that the package of its name
brings, measures some calls, and takes a picture of the page in Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import ingot

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.models import graphs  # noqa: E402
from tests.support.browser import Browser  # noqa: E402
from tests.support.devices import best_variant  # noqa: E402


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, page, trace = (Path(folder) / f"minilm.{end}" for end in ("ingot", "html", "json"))
        model = graphs.load("minilm", seed=0)
        ingot.compile(model, debug=True, variants=[best_variant()]).save(path)
        loaded = ingot.load(path)
        inputs = graphs.sample("minilm", 0, batch=1, sequence=128)
        with loaded.trace() as calls:
            for _ in range(20):
                loaded(*map(np.ascontiguousarray, inputs.values()))
        calls.save(trace)
        ingot.explore(path, page, trace=trace, dims={"batch": 1, "sequence": 128})
        with Browser(1100, 660) as browser:
            browser.open(page)
            browser.evaluate(
                "explorer.panes[0].select(explorer.panes[0].model.work.find("
                "(each) => each.layer.includes('layer.0.attention.output.dense')))"
            )
            browser.screenshot(Path(__file__).with_name("explorer.png"))


if __name__ == "__main__":
    main()
