"""Vega-Lite figures and SVG drawings as SVG, PDF and PNG, for a paper or a slide.

vl-convert brings a JavaScript engine that keeps 66 MB of memory, so it runs in a process of its own, half a second.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboard.charts.outlines import outlined
from dashboard.charts.vega import Spec

WIDTH = 640  # pixels of a figure with the names at the ends of its curves
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0


def figure_files(figures: Mapping[str, Spec]) -> dict[str, bytes]:
    """NAME.svg and NAME.pdf of each figure, on white; CalledProcessError for a spec that is none."""
    specs = {
        name: {"spec": on_white(spec), "formats": ["svg", "pdf"]} for name, spec in figures.items()
    }
    return _run(specs)


def figure_svgs(specs: Mapping[str, Spec]) -> dict[str, str]:
    """Figures on white by name; CalledProcessError for a spec that is none."""
    files = (
        _run({name: {"spec": on_white(spec), "formats": ["svg"]} for name, spec in specs.items()})
        if specs
        else {}
    )
    return {name.removesuffix(".svg"): data.decode() for name, data in files.items()}


def drawing_file(svg: str, file_format: str, scale: float = 1.0) -> bytes:
    """An SVG as "pdf" or, enlarged by `scale`, "png"; CalledProcessError for what is no SVG."""
    return _run({"drawing": {"svg": svg, "formats": [file_format], "scale": scale}})[
        f"drawing.{file_format}"
    ]


def drawing_files(svgs: Mapping[str, str], file_format: str) -> dict[str, bytes]:
    """NAME.format of each SVG in one process; CalledProcessError for what is no SVG."""
    return _run({name: {"svg": svg, "formats": [file_format]} for name, svg in svgs.items()})


def with_own_ids(svg: str, start: str) -> str:
    """An SVG whose ids begin with `start`, so that it can stand beside another one."""
    return re.sub(r"""(\bid="|url\(#|href="#)""", rf"\g<1>{start}", svg)


def on_white(spec: Spec) -> Spec:
    """A spec of a fixed width with a white background."""
    config = {**spec.get("config", {}), "background": "white"}
    if "width" in spec and spec["width"] != "container":
        return {**spec, "config": config}
    return {**spec, "width": WIDTH, "config": config}


def paper_files(drawing: Mapping[str, Any], millimetres: float, file_format: str) -> bytes:
    """A drawing (`spec`, or `svg` of any width) as wide as this: "svg" with its text as outlines, or "pdf".

    CalledProcessError for what is neither.
    """
    job = {**drawing, "formats": [file_format], "millimetres": millimetres}
    return _run({"paper": job})[f"paper.{file_format}"]


def _run(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "dashboard.charts.figure_files"],
        input=json.dumps(jobs).encode(),
        capture_output=True,
        check=True,
        cwd=ROOT,
        timeout=SECONDS,
    )
    return {name: b64decode(text) for name, text in json.loads(done.stdout).items()}


def convert(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The files of each job as base64, converted in this process."""
    import vl_convert

    files: dict[str, bytes] = {}
    for name, job in jobs.items():
        svg = job["svg"] if "svg" in job else vl_convert.vegalite_to_svg(job["spec"])
        if "millimetres" in job and job["formats"] == ["svg"]:
            svg = outlined(as_wide_as(svg, job["millimetres"], "mm"), vl_convert.svg_to_pdf)
        elif "millimetres" in job:  # of a pixel of an SVG, a PDF makes a point
            svg = as_wide_as(svg, job["millimetres"] / 25.4 * 72, "")
        files |= {
            f"{name}.{kind}": _convert(vl_convert, svg, kind, job.get("scale", 1.0))
            for kind in job["formats"]
        }
    return {name: b64encode(data).decode() for name, data in files.items()}


def _convert(vl_convert: Any, svg: str, kind: str, scale: float) -> bytes:
    if kind == "svg":
        return svg.encode()
    made: bytes = (
        vl_convert.svg_to_pdf(svg) if kind == "pdf" else vl_convert.svg_to_png(svg, scale=scale)
    )
    return made


def as_wide_as(svg: str, most: float, unit: str) -> str:
    """An SVG of another width, and of the height that follows; its own pixels become its units."""
    width, height = size_of(svg)
    head = re.sub(
        r'\s(?:width|height|viewBox)="[^"]*"',
        "",
        svg[svg.index("<svg") : svg.index(">", svg.index("<svg"))],
    )
    return (
        f'{head} width="{most:g}{unit}" height="{height / width * most:.3f}{unit}" '
        f'viewBox="0 0 {width:g} {height:g}"' + svg[svg.index(">", svg.index("<svg")) :]
    )


def size_of(svg: str) -> tuple[float, float]:
    """The width and height of an SVG in pixels."""
    head = svg[svg.index("<svg") : svg.index(">", svg.index("<svg")) + 1]
    width, height = (re.search(rf'\b{name}="([\d.]+)', head) for name in ("width", "height"))
    assert width and height, head
    return float(width[1]), float(height[1])


if __name__ == "__main__":
    json.dump(convert(json.load(sys.stdin)), sys.stdout)
