"""A figure of a paper is as wide as its column, has type of 8 points, titles of its axes, and nothing around it."""

import io
import re
from base64 import b64decode
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from pypdf import PdfReader

from dashboard.draw.curves import Curve, step_chart
from dashboard.draw.maps import PictureMap
from dashboard.draw.palette import LIGHT_INK
from dashboard.draw.picture_files import (
    POINTS,
    WIDTHS,
    NotForPaper,
    paper_drawing,
    paper_file,
    why_not,
)
from dashboard.draw.pictures import (
    ChartPicture,
    DrawnPicture,
    MapsPicture,
    Picture,
    convert,
    outlined,
)
from dashboard.draw.vega import layer, split_data, titled_figure

READS = "query (row) attends to → key (column)"
WORDS = (
    "The",
    "animal",
    "didn't",
    "cross",
    "the",
    "street",
    "because",
    "it",
    "was",
    "too",
    "tired",
    ".",
)
RNG = np.random.default_rng(0)


def maps(count: int) -> tuple[PictureMap, ...]:
    mask = np.tril(np.ones((12, 12), bool))
    return tuple(
        PictureMap(
            f"L{at // 12}·H{at % 12}",
            RNG.random((12, 12)) * mask,
            WORDS,
            WORDS,
            "",
            mask,
            noun="weight",
        )
        for at in range(count)
    )


def curves(*names: str) -> ChartPicture:
    lines = [Curve(name, [(step, 1 / (1 + step)) for step in range(0, 200, 10)]) for name in names]
    spec, rows = split_data(step_chart(lines, ink=LIGHT_INK, last_x=200))
    return ChartPicture("Validation loss over training", spec, rows)


def words() -> ChartPicture:
    rows = [
        {"word": f"{at} {word}", "layer": f"L{of}", "text": word}
        for at, word in enumerate(WORDS)
        for of in range(2)
    ]
    encoding = {
        "x": {"field": "word", "type": "ordinal"},
        "y": {"field": "layer", "type": "nominal"},
    }
    layers = [
        layer("rect", rows, encoding),
        layer("text", rows, encoding | {"text": {"field": "text"}}, fontSize=5),
    ]
    return ChartPicture("Words", titled_figure("The likeliest words", layers, 120, LIGHT_INK))


def mixed() -> tuple[PictureMap, ...]:
    """Six maps of as many scales, each with a legend."""
    return tuple(replace(item, high=1.0 + at, noun="score") for at, item in enumerate(maps(6)))


PICTURES: dict[str, Picture] = {
    "curves": curves("validation", "training"),
    "words in cells": words(),
    "six scales": MapsPicture("Six maps", mixed(), 2, READS),
    "a map": MapsPicture("A head", maps(1), 2, READS),
    "two maps": MapsPicture("Two heads", maps(2), 2, READS),
    "twelve maps": MapsPicture("Twelve heads", maps(12), 2, READS),
    "a board": MapsPicture("All heads", maps(72), 2, READS, across=12),
    "a drawing": DrawnPicture(
        "Boxes",
        (),
        (),
        '<svg xmlns="http://www.w3.org/2000/svg" width="300" height="40">'
        '<g font-size="12"><text x="9" y="20">encoder</text></g></svg>',
    ),
}
AXES = {
    "curves": {"step"},
    "words in cells": {"word", "layer"},
    "a map": {"query", "key"},
    "two maps": {"query", "key"},
    "twelve maps": {"query", "key"},
}


def file_of(picture: Picture, millimetres: float, kind: str) -> bytes:
    """The file as a process of its own makes it, made in this one."""
    job = {**paper_drawing(picture, millimetres), "formats": [kind], "millimetres": millimetres}
    return b64decode(convert({"paper": job})[f"paper.{kind}"])


def types(pdf: bytes) -> dict[str, float]:
    """Each text of a PDF with the points of its type."""
    sizes: dict[str, float] = {}

    def visit(text: str, cm: list[float], tm: list[float], font: object, size: float) -> None:
        if text.strip():
            sizes[text.strip()] = size * np.hypot(tm[0], tm[1]) * np.hypot(cm[0], cm[1])

    PdfReader(io.BytesIO(pdf)).pages[0].extract_text(visitor_text=visit)
    return sizes


@pytest.mark.parametrize("millimetres", WIDTHS.values())
@pytest.mark.parametrize("name", PICTURES)
def test_a_figure_has_the_width_and_the_type_of_a_paper(name, millimetres):
    picture = PICTURES[name]
    svg = file_of(picture, millimetres, "svg").decode()
    root = ElementTree.fromstring(svg)
    tags = {node.tag.rpartition("}")[2] for node in root.iter()}
    assert (
        root.get("width") == f"{millimetres:g}mm"
        and "text" not in tags
        and "tspan" not in tags
        and "path" in tags
    )
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    assert float(root.attrib["height"].removesuffix("mm")) == pytest.approx(
        height / width * millimetres, rel=1e-3
    )
    assert float(root.attrib["height"].removesuffix("mm")) < 250, "it is no taller than a page"

    pdf = file_of(picture, millimetres, "pdf")
    page = PdfReader(io.BytesIO(pdf)).pages[0]
    assert float(page.mediabox.width) == pytest.approx(millimetres / 25.4 * 72, abs=0.5)
    text = page.extract_text()
    assert (
        picture.title not in text and "Attention Lab" not in text and "likeliest words" not in text
    )
    sizes = types(pdf)
    assert sizes and min(sizes.values()) == pytest.approx(POINTS, rel=0.02), sizes
    assert AXES.get(name, set()) <= set(re.split(r"\s+", text)), text


def test_a_legend_takes_more_lines_where_its_names_are_long():
    names = [f"a run with a long name {at}" for at in range(6)]
    page = PdfReader(io.BytesIO(file_of(curves(*names), 85.0, "pdf"))).pages[0]
    ends: dict[str, float] = {}

    def visit(text: str, cm: list[float], tm: list[float], font: object, size: float) -> None:
        if text.strip():
            ends[text.strip()] = cm[0] * tm[4] + cm[4]

    page.extract_text(visitor_text=visit)
    assert ends and max(ends.values()) < float(page.mediabox.width)


def test_the_outlines_are_where_the_text_is():
    import vl_convert

    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="60"><g font-size="20" text-anchor="middle" '
        'font-family="Liberation Sans"><text transform="translate(100 40)" fill="#123456">Ab<tspan dy="-5">2</tspan>'
        '</text><text x="0" y="0"> </text></g></svg>'
    )
    paths = outlined(svg, vl_convert.svg_to_pdf)
    assert "<text" not in paths and 'fill="#123456"' in paths
    pictures = [np.asarray(_pixels(vl_convert.svg_to_png(one)), float) for one in (svg, paths)]
    assert np.abs(pictures[0] - pictures[1]).mean() < 1 and pictures[0].max() > 0


def _pixels(png: bytes):
    from PIL import Image

    return Image.open(io.BytesIO(png)).getchannel("A")


def test_a_drawing_that_would_be_too_small_says_so():
    wide = DrawnPicture(
        "Wide",
        (),
        (),
        '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="40" '
        'font-size="12"><text>a</text></svg>',
    )
    for millimetres in WIDTHS.values():
        assert re.search(r"would have \d\.\d points; a paper needs 8\.", why_not(wide, millimetres))
        with pytest.raises(NotForPaper):
            paper_file(wide, millimetres, "pdf")
    assert not any(why_not(picture, 170.0) for picture in PICTURES.values())


def test_the_file_is_made_in_a_process_of_its_own():
    assert paper_file(PICTURES["a map"], 85.0, "svg").startswith(b"<svg")
