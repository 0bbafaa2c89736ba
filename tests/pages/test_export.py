"""Export on every page: each picture it shows is listed by its name and gives its numbers in every format."""

import csv
import io
import json

import numpy as np
import pytest

from dashboard.charts.picture_files import NUMBERS, Source, framed_svg, has_image, picture_file
from dashboard.charts.pictures import ChartPicture, Picture
from dashboard.navigation import STEPS
from tests.pages.app import open_at

SOURCE = Source("Page", "2026-11-23", {}, {})
WITHOUT = ("cards", "claims", "glossary", "lessons", "questions")  # pages of words, strips and links


def assert_numbers_come_back(picture: Picture) -> None:
    files = {name: picture_file(picture, name, SOURCE) for name in NUMBERS}
    head, rows = picture.table()
    cells = list(csv.reader(io.StringIO(files["CSV"].decode())))
    assert len(cells) == 1 + len(rows) and len(cells[0]) == len(head)
    for line, row in zip(cells[1:], rows, strict=True):
        numbers = [(float(text), value) for text, value in zip(line, row, strict=True) if isinstance(value, float)]
        assert all(read == value or np.isnan(value) for read, value in numbers)
    numbers = json.loads(files["JSON"])["numbers"]
    for name, array in picture.arrays().items():
        if array.dtype.kind == "f":
            np.testing.assert_array_equal(np.array(numbers[name], dtype=float), np.where(np.isfinite(array), array,
                                                                                         np.nan))
    assert len(np.load(io.BytesIO(files["NPZ"])).files) > 0
    assert files["LaTeX"].count(b"{") == files["LaTeX"].count(b"}")


@pytest.mark.parametrize("key", [step.key for step in STEPS])
def test_every_picture_of_a_page_is_there_by_name_with_its_numbers(key):
    app = open_at(key)
    pictures = app.session_state["page_pictures"]
    titles = [picture.title for picture in pictures.values()]
    assert (titles or key in WITHOUT) and len(set(titles)) == len(titles) and all(titles)
    for picture in pictures.values():
        assert_numbers_come_back(picture)
        if has_image(picture) and not isinstance(picture, ChartPicture):  # charts are drawn by vl-convert, elsewhere
            assert framed_svg(picture, SOURCE).startswith("<svg")
