"""The image files of a picture, opened with programs that had no part in them: cairo, pypdf and Pillow."""

import io
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from pypdf import PdfReader

from dashboard.draw.pictures import (
    MANY,
    MAX_LETTERS,
    ChartPicture,
    MapsPicture,
    Picture,
    convert,
    drawing_file,
    size_of,
)

WORD = re.compile(r"\w+")
MAX_NAMED = 32  # rows or columns, all of which are named


def run_here(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """`pictures.render` in this process: one of its own for each of eighty pictures takes half a second."""
    return {name: b64decode(data) for name, data in convert(jobs).items()}


def words_of(picture: Picture, line: str) -> set[str]:
    """Words that the file has to show: title, source, names of rows and columns of maps, and names of curves."""
    texts = [picture.title, line]
    if isinstance(picture, MapsPicture) and len(picture.maps) <= MANY:
        texts += [
            name
            for item in picture.maps
            if max(item.values.shape) <= MAX_NAMED
            for name in (*item.rows, *item.columns)
            if len(name) < MAX_LETTERS
        ]
    if isinstance(picture, ChartPicture):
        texts += [name for name, *_ in picture.spec.get("usermeta", {}).get("names", ())]
    return {word for text in texts for word in WORD.findall(text)}


def assert_svg_has(svg: str, words: set[str]) -> None:
    nodes = ElementTree.fromstring(svg).iter()
    shown = {
        word
        for node in nodes
        if node.tag.endswith("}text")
        for word in WORD.findall("".join(node.itertext()))
    }
    assert words <= shown, words - shown


def assert_pdf_has(svg: str, words: set[str]) -> None:
    """One page of the picture's shape, whose words can be selected."""
    (page,) = PdfReader(io.BytesIO(drawing_file(svg, "pdf"))).pages
    width, height = size_of(svg)
    assert float(page.mediabox.height / page.mediabox.width) == pytest.approx(
        height / width, rel=0.01
    )
    shown = set(WORD.findall(page.extract_text()))
    assert words <= shown, words - shown


def assert_drawn(png: bytes, svg: str, scale: float) -> None:
    """An image of that size on white, with something else on it."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    assert np.abs(np.subtract(image.size, np.multiply(size_of(svg), scale))).max() <= 2
    pixels = np.asarray(image)
    assert (pixels[0, 0] == 255).all() and (pixels < 200).any(-1).mean() > 1e-4
