"""`make gallery`: pictures of the pages at first sight, as Export writes them, and the page that shows them.

python -m docs.site.gallery          into docs/gallery/
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

from dashboard.draw.picture_files import Source, picture_file
from dashboard.draw.pictures import Picture
from dashboard.navigation import STEPS, step_of

FOLDER = Path(__file__).resolve().parents[1] / "gallery"
MAX_BYTES = 120_000
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


def files() -> Iterator[tuple[str, bytes]]:
    """Each picture's file and what is in it; ValueError for one that is too large for a site."""
    for page in PICTURES:
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


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, data in files():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
