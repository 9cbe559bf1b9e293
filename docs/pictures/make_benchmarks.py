"""Makes the picture of the benchmarks in the README, from recorded results: `make pictures`.

`python benchmarks/compare.py --json benchmarks/results.json MODEL...` records them. Models in which
Ingot is slower than another engine stand first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from table import format_seconds  # noqa: E402

WIDTH, LEFT, RIGHT = 760, 190, 120  # pixels: of all, of names, of numbers
BAR, GAP, TOP = 15, 16, 62
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.small { font-size: 11px; fill: #59636e; }
.name { font-weight: 600; }
.bar { fill: #9aa4af; }
.ingot { fill: #b4501e; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .small { fill: #9198a1; }
  .bar { fill: #59636e; }
  .ingot { fill: #f08a4b; }
}
"""


def picture(recorded: dict[str, Any]) -> str:
    """The results as SVG: for each model a bar per engine, as long as its shortest call takes,
    relative to that of the fastest other engine."""
    models: dict[str, dict[str, float]] = {}
    for each in recorded["results"]:
        models.setdefault(each["model"], {})[each["engine"]] = each["minimum"]
    ratios = {
        name: times["ingot"] / min(other for engine, other in times.items() if engine != "ingot")
        for name, times in models.items()
    }
    names = sorted(models, key=lambda name: -ratios[name])
    longest = max(
        time * ratios[name] / models[name]["ingot"]
        for name in names
        for time in models[name].values()
    )
    unit = (WIDTH - LEFT - RIGHT) / longest
    lines: list[str] = []
    y = TOP
    for name in names:
        times = models[name]
        best = times["ingot"] / ratios[name]
        lines.append(f'<text class="name" x="0" y="{y + 12}">{escape(name)}</text>')
        lines.append(
            f'<text class="small" x="0" y="{y + 28}">{ratios[name]:.2f} of the best other</text>'
        )
        for engine, time in times.items():
            kind = "ingot" if engine == "ingot" else "bar"
            length = round(unit * time / best, 1)
            text = f"{engine} {format_seconds(time)}"
            lines += [
                f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{length}" height="{BAR - 2}"/>',
                f'<text class="small" x="{LEFT + length + 6:.1f}" y="{y + 10}">{text}</text>',
            ]
            y += BAR
        y += GAP
    return _framed(lines, y, recorded)


def _framed(lines: list[str], height: int, recorded: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in recorded["versions"].items())
    threads = "one thread" if recorded["threads"] == 1 else f"{recorded['threads']} threads"
    title = f"Time of a call, {threads}: shorter is better"
    where = (
        f"{recorded['machine']}, {recorded['date']}, shortest calls of one run in turns; {versions}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">',
            f"<style>{STYLE}</style>",
            f'<text class="name" x="0" y="16">{escape(title)}</text>',
            f'<text class="small" x="0" y="34">{escape(where)}</text>',
            *lines,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    Path(__file__).with_name("benchmarks.svg").write_text(picture(results), encoding="utf-8")
