"""samples/ray with Ray Data and Ray Serve; run by `make test-peers`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray.data")

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "ray"


def _run(*command: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_workers_classify_nearly_twice_as_fast(tmp_path: Path) -> None:
    is_quiet = (os.cpu_count() or 1) >= 3 and os.getloadavg()[0] <= 1
    fewer = [] if is_quiet else ["--rows", 4 * 8192]
    figures = tmp_path / "figures.json"
    _run(SAMPLE / "batch.py", "--workers", 1, 2, "--json", figures, *fewer)  # compares labels
    one, two = json.loads(figures.read_text())
    assert (one["workers"], two["workers"]) == (1, 2)
    if not is_quiet:
        pytest.skip("labels are right; times need a quiet machine with a core for Ray's own work")
    assert one["working"] / two["working"] > 1.8


def test_replicas_answer(tmp_path: Path) -> None:
    printed = _run(SAMPLE / "serve.py", "--replicas", 2, "--measure", 400)  # compares a label
    rates = [int(rate) for rate in re.findall(r"at once: (\d+) requests a second", printed)]
    assert len(rates) == 2
    assert rates[1] > rates[0]  # batches pay
