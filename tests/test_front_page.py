"""What a visitor sees first: the README in one screen, its moving picture, and the pictures of the gallery."""

import re
from pathlib import Path
from xml.etree import ElementTree

from PIL import Image, ImageChops

from dashboard.draw.pictures import MapsPicture
from docs.site import gallery

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_one_screen():
    lines = README.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 120
    assert [line.split("#")[0].strip() for line in lines[2:4]] == ["make run", "make test"]
    assert len(re.findall(r"^- ", README, re.MULTILINE)) == 5
    assert ".venv/bin/streamlit run" in README


def test_the_picture_of_the_readme_moves_and_is_small():
    name, still = re.findall(r'(?:src|srcset)="(docs/[^"]+)"', README)[::-1]
    picture = ROOT / name
    assert picture.stat().st_size <= 2_000_000
    with Image.open(picture) as film, Image.open(ROOT / still) as first:
        assert frames_of(film) >= 30 and first.size == film.size
        frames = []
        for number in range(0, frames_of(film), 5):
            film.seek(number)
            frames.append(film.convert("RGB"))
    changes = [
        ImageChops.difference(one, other).getbbox()
        for one, other in zip(frames, frames[1:], strict=False)
    ]
    assert all(changes)


def frames_of(film: Image.Image) -> int:
    return getattr(film, "n_frames", 1)


def test_the_gallery_has_the_pictures_of_its_list():
    names = {path.stem for path in gallery.FOLDER.glob("*.svg")}
    assert names == set(gallery.PICTURES)
    for name in names:
        path = gallery.FOLDER / f"{name}.svg"
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg") and path.stat().st_size <= gallery.MAX_BYTES
        assert f"gallery/{name}.svg" in gallery.markdown()


def test_a_picture_of_the_gallery_is_what_its_page_draws_today():
    """Its title, maps and tokens; layout and colors may have changed since `make gallery`."""
    picture = gallery.picture_of("masks")
    assert isinstance(picture, MapsPicture)
    texts = {
        node.text for node in ElementTree.parse(gallery.FOLDER / "masks.svg").iter() if node.text
    }
    assert {picture.title, *(item.name for item in picture.maps), *picture.maps[0].rows} <= texts
