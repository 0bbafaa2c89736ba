"""The gallery: pictures of the pages at first sight, as Export writes them, and the page that shows them.

`python -m docs.site.gallery`, which `make generated` runs, writes those that look otherwise into docs/gallery/: of the
pages that are named, or all.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection, Iterator
from datetime import date
from pathlib import Path

import numpy as np

from dashboard.draw.picture_files import Source, picture_file
from dashboard.draw.pictures import Picture
from dashboard.navigation import STEPS, step_of

FOLDER = Path(__file__).resolve().parents[1] / "gallery"
MAX_BYTES = 120_000
NUMBER = rb"\d+(?:\.\d+)?(?:e-?\d+)?"
PICTURES = {  # page → what Export calls the picture
    "start": "start:translation",
    "one_query": "one:view",
    "heads": "heads:chosen",
    "positions": "positions:hands",
    "masks": "masks:maps",
    "transformer": "transformer:stacks",
    "train": "train:loss",
    "scores": "scores:maps0",
    "mechanisms": "mechanisms:difference",
    "cache": "cache:sizes",
    "sweeps": "sweeps:lines",
    "decode": "decode:tree",
    "compare": "compare:apart",
    "efficient": "efficient:ms",
    "cards": "cards:sizes",
    "pretrained": "pretrained:head",
    "inside_weight": "inside_weight:meeting",
    "why_key": "why_key:pairs",
    "evidence": "evidence:grid",
    "lens": "lens:grid",
    "circuits": "circuits:graph",
    "head_roles": "head_roles:roles",
    "corpus": "corpus:scatter",
    "generate": "generate:tree",
    "two_models": "two_models:maps:causal",
    "fine_tune": "fine_tune:maps:self",
}


def picture_of(page: str) -> Picture:
    """The gallery's picture of a page, from the page itself."""
    from tests.pages.app import open_at, pictures_of

    return pictures_of(open_at(page))[PICTURES[page]]


def files(pages: Collection[str] = PICTURES) -> Iterator[tuple[str, bytes]]:
    """Each picture's file and what is in it; ValueError for one that is too large for a site."""
    for page in (one for one in PICTURES if one in pages):
        picture = picture_of(page)
        data = picture_file(
            picture, "SVG", Source(step_of(page).title, date.today().isoformat(), picture.about, {})
        )
        if len(data) > MAX_BYTES:
            raise ValueError(
                f"{page}: {len(data):,} bytes; a picture of the gallery has at most {MAX_BYTES:,}."
            )
        yield f"{page}.svg", data


def markdown() -> str:
    """The page of the site: every picture under the name of its page."""
    parts = [
        f"## {step.title}\n\n{step.invite}\n\n![A picture of the page {step.title}](gallery/{step.key}.svg)\n"
        for step in STEPS
        if step.key in PICTURES
    ]
    return "\n".join(
        [
            "# Gallery\n",
            "What the pages show at first sight, as *Export* beside their titles writes it.\n",
            *parts,
        ]
    )


def words_and_numbers(data: bytes) -> tuple[list[bytes], list[float]]:
    """The words of a picture and its numbers, without the day."""
    plain = re.sub(rb"\d{4}-\d\d-\d\d", b"", data)
    return re.split(NUMBER, plain), [float(number) for number in re.findall(NUMBER, plain)]


def main(pages: Collection[str]) -> None:
    logging.disable(logging.WARNING)  # Streamlit's, once a page, that it runs without a browser
    for name, data in files(pages or PICTURES):
        file = FOLDER / name
        if file.exists():
            (words, numbers), (before, those_before) = map(
                words_and_numbers, (data, file.read_bytes())
            )
            if words == before and np.allclose(numbers, those_before, rtol=1e-3, atol=0.01):
                continue  # another processor rounds otherwise
        file.write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
