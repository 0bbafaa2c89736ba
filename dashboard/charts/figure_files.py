"""Vega-Lite figures as SVG and PDF, for a paper.

vl-convert brings a JavaScript engine that keeps 66 MB of memory, so it runs in a process of its own, half a second.
"""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path

from dashboard.charts.vega import Spec

WIDTH = 640  # pixels of a figure with the names at the ends of its curves
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0


def figure_files(figures: Mapping[str, Spec]) -> dict[str, bytes]:
    """NAME.svg and NAME.pdf of each figure, on white; CalledProcessError for a spec that is none."""
    specs = {name: {**spec, "width": WIDTH, "config": {**spec.get("config", {}), "background": "white"}}
             for name, spec in figures.items()}
    done = subprocess.run([sys.executable, "-m", "dashboard.charts.figure_files"], input=json.dumps(specs).encode(),
                          capture_output=True, check=True, cwd=ROOT, timeout=SECONDS)
    return {name: b64decode(text) for name, text in json.loads(done.stdout).items()}


def convert(specs: Mapping[str, Spec]) -> dict[str, str]:
    """The files of each spec as base64, converted in this process."""
    import vl_convert

    files: dict[str, bytes] = {}
    for name, spec in specs.items():
        svg = vl_convert.vegalite_to_svg(spec)
        files |= {f"{name}.svg": svg.encode(), f"{name}.pdf": vl_convert.svg_to_pdf(svg)}
    return {name: b64encode(data).decode() for name, data in files.items()}


if __name__ == "__main__":
    json.dump(convert(json.load(sys.stdin)), sys.stdout)
