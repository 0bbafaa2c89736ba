"""The guides are true: their code prints what its comments say, and the pages that they open say what they quote."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from core.attention import AXES
from dashboard.navigation import STEPS
from tests.cases import each
from tests.pages.app import html_text, open_at, page_text

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "guides"
GUIDES = ("student", "teacher", "engineer", "author")
COMMENT = re.compile(r"\s{2,}# (.+)$", re.MULTILINE)


def text_of(guide: str) -> str:
    return (FOLDER / f"{guide}.md").read_text(encoding="utf-8")


def opened(guide: str) -> list[tuple[str, list[str]]]:
    """Each address in a guide, and what it quotes of that page before the next one."""
    pages: list[tuple[str, list[str]]] = []
    for line in text_of(guide).splitlines():
        if address := re.match(r" {4}(/\S+)$|\| [\d–]+ \| `(/[^`]+)`", line):
            pages.append((address[1] or address[2], []))
        elif line.startswith("> "):
            pages[-1][1].append(line[2:])
    return pages


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>|[*\\]", "", text.replace("&nbsp;", " ")))


def test_there_is_a_guide_for_each_kind_of_reader():
    assert {path.stem for path in FOLDER.glob("*.md")} == set(GUIDES)


@pytest.fixture
def without_new_entries():
    before = {axis: list(entries) for axis, entries in AXES.items()}
    yield
    for axis, entries in before.items():
        AXES[axis].entries[:] = entries


@pytest.mark.parametrize("guide", GUIDES)  # two of them train for ten seconds
def test_its_code_prints_what_its_comments_say(guide, tmp_path, monkeypatch, without_new_entries):
    blocks = re.findall(r"```python\n(.*?)```", text_of(guide), re.DOTALL)
    names: dict[str, object] = {"__name__": "guide"}
    folder = tmp_path / guide
    folder.mkdir()
    (folder / "core").symlink_to(FOLDER.parents[1] / "core")
    monkeypatch.chdir(folder)
    assert blocks
    for block in blocks:
        expected = [
            comment
            for line in block.splitlines()
            if line.lstrip().startswith(("print(", "#"))
            for comment in COMMENT.findall(f"  {line}")
        ]
        output = StringIO()
        with redirect_stdout(output):
            exec(compile(block, guide, "exec"), names)
        assert output.getvalue().splitlines() == expected


@each("guide", GUIDES)
def test_the_pages_that_it_opens_say_what_it_quotes(guide):
    pages = opened(guide)
    assert pages
    for address, quotes in pages:
        parts = urlsplit(address)
        page = parts.path.strip("/")
        assert page in {step.key for step in STEPS}
        app = open_at(page, **dict(parse_qsl(parts.query)))
        assert not app.exception, address
        shown = plain(page_text(app)) + plain(html_text(app))
        for quote in quotes:
            assert plain(quote) in shown, (address, quote)


def test_a_sentence_that_no_page_says_is_noticed():
    app = open_at("masks")
    assert "The mask leaves 79 of 144 cells" not in plain(page_text(app))
    assert "The mask leaves 78 of 144 cells" in plain(page_text(app))
