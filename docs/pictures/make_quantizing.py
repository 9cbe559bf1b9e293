"""Draws quantizing.png: the page of `ingot quantize --report` for the MobileNetV2 of the tests.

    python docs/pictures/make_quantizing.py

It wants Chromium, and a machine that does nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import ingot  # noqa: E402
from ingot.quantizing.page import make_page  # noqa: E402
from tests.models import graphs  # noqa: E402
from tests.support.browser import Browser  # noqa: E402


def main() -> None:
    model = graphs.load("mobilenetv2", seed=0).SerializeToString()
    data = [graphs.sample("mobilenetv2", seed) for seed in range(4)]
    module = ingot.quantize(
        model, activations="int8", data=data, keep=["features.1/*"], max_error=0.009
    )
    with TemporaryDirectory() as folder, Browser(1320, 900) as browser:
        path = Path(folder) / "page.html"
        path.write_text(make_page(module.quantization, "mobilenetv2.onnx"), encoding="utf-8")
        browser.open(path, "document.readyState === 'complete'")
        browser.screenshot(Path(__file__).parent / "quantizing.png")


if __name__ == "__main__":
    main()
