"""The documents are true: their code runs, their links lead somewhere, their claims and sources are those of the lab."""

import ast
import os
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image, ImageChops

from core import plugins
from core.attention import AXES, PRESETS, Attention, AttentionConfig
from core.attention.cost import attention_cost
from core.claims.base import verdict
from core.claims.catalogue import CLAIMS
from core.claims.shipped import shipped
from core.files import lab_path
from core.models.cards import CARDS
from core.provenance import MissingPlugin, lab_commit, lab_version, needed_plugins, require_plugins
from dashboard.draw.formats import operations
from dashboard.draw.glossary import TERMS
from dashboard.draw.page_exports import Cell, Script
from dashboard.draw.pictures import MapsPicture
from dashboard.navigation import STEPS
from docs.site import catalogue, gallery, measured
from tests.cases import each
from tests.pages.app import html_text, open_at, page_text

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def snippets(name: str) -> list[str]:
    """The blocks of Python in a document of docs/."""
    return re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)


BLOCKS = snippets("library.md")


def run(block, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    exec(compile(block, "docs", "exec"), {})
    return capsys.readouterr().out


@each(
    ("number", "words"),
    [
        (0, r"\[2, 10, 64\]\) torch\.Size\(\[2, 4, 10, 10\]"),
        (2, r"^\(16, 16\) \('\[CLS\]', 'the', 'animal'.*\[\(0, 2\), "),
        (3, r"^0 .*\n.*\n"),
    ],
)
def test_a_snippet_prints(number, words, tmp_path, monkeypatch, capsys):
    assert len(BLOCKS) == 4
    assert re.search(f"(?s){words}", run(BLOCKS[number], tmp_path, monkeypatch, capsys))


def test_a_trace_of_ones_own_is_drawn(tmp_path, monkeypatch, capsys):
    (block,) = snippets("export.md")
    run(block, tmp_path, monkeypatch, capsys)
    assert 1_000 < (tmp_path / "heads.html").stat().st_size < 2_000_000


def test_attention(tmp_path, monkeypatch, capsys):
    output = run(BLOCKS[1], tmp_path, monkeypatch, capsys)
    numbers = [float(value) for value in re.findall(r"\d\.\d+", output)]
    for number in (0.140, 0.284, 0.576, 0.355, 0.617):
        assert any(abs(value - number) < 6e-4 for value in numbers), output
    assert "[2, 10, 64]" in output and "[2, 4, 10, 10]" in output


COMMAND = re.compile(r"^ {4}\.venv/bin/attention-lab (.*)$", re.MULTILINE)


def test_every_command_of_the_shell_is_one():
    """Each line of the documents has the words that its command takes; nothing is run."""
    lines = [
        re.split(r"[>#]", line)[0]
        for one in DOCUMENTS
        for line in COMMAND.findall(one.read_text("utf-8"))
    ]
    names = {parsed(shlex.split(line)) for line in lines}
    assert names >= {
        "recipe",
        "card",
        "train",
        "resume",
        "sweep",
        "pack",
        "tensorboard",
        "wandb",
        "list",
        "finetune",
        "export",
    }


def parsed(words: list[str]) -> str:
    """The name of the command, once its words are read."""
    import typer

    from core import command_line
    from core.training.__main__ import LISTS
    from dashboard.__main__ import app

    command: Any = typer.main.get_command(app())
    name = words[0]
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context(name, command_line.spread(words, LISTS))
    return name


def test_the_mechanism_that_it_adds(without_new_entries):
    """The recipe as it stands, put into the axis: it can be chosen, and its rows are what its equation says."""
    from core.attention.basics import Normalizer
    from core.attention.normalizers import TEMPERATURE
    from core.entries import ConfigError, Entry

    (block,) = snippets("add-a-mechanism.md")
    names: dict[str, Any] = {"Normalizer": Normalizer, "Entry": Entry, "TEMPERATURE": TEMPERATURE}
    exec(compile(block, "add-a-mechanism.md", "exec"), names)
    AXES["normalizer"].append(names["RELU"])
    steps = Attention(AttentionConfig(12, 3, normalizer="relu", mask="causal"))(
        torch.randn(2, 5, 12)
    )
    seen = torch.arange(1.0, 6.0)[:, None]
    torch.testing.assert_close(steps.weights, steps.scores.relu().tril() / seen)
    with pytest.raises(ConfigError, match="(?s)fused.*additive"):  # what it says about a refusal
        AttentionConfig(score="additive", kernel="fused")


@each("document", DOCUMENTS)
def test_the_files_it_names_are_there(document):
    text = document.read_text(encoding="utf-8")
    for name in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (document.parent / name).exists(), name
    for name in re.findall(r"`((?:core|dashboard|pages|tests|benchmarks|docs)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z]+)`", text) + re.findall(
        r"^ {4}make ([a-z]+)", text, re.MULTILINE
    ):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_page_has_its_words():
    bold = ", ".join(re.findall(r"\*\*(.+?)\*\*", (DOCS / "pages.md").read_text(encoding="utf-8")))
    assert not [step.title for step in STEPS if step.title not in bold]


def test_the_plug_in_that_it_writes_is_the_one_in_its_folder(
    tmp_path, monkeypatch, capsys, without_new_entries
):
    """The whole file and the layer without one run as they stand; the file is the worked example but for a name."""
    from core.claims.base import Results
    from core.claims.catalogue import claim_of
    from core.claims.experiment import measure_cell
    from core.claims.run import ClaimConfig

    plug_in, claim, direct = snippets("write-a-plugin.md")
    worked = (DOCS / "plugins" / "cosine_power.py").read_text(encoding="utf-8")
    assert plug_in.split("register(")[1] == worked.split("register(")[1]
    run(plug_in, tmp_path, monkeypatch, capsys)
    steps = Attention(AttentionConfig(12, 3, score="cosine_power"))(torch.randn(2, 5, 12))
    assert steps.raw.abs().max() <= 8.0
    run(claim, tmp_path, monkeypatch, capsys)
    diluted, settings = claim_of("diluted"), {"seeds": 5, "d_k": 8}
    measured = [
        measure_cell(diluted, cell, settings) for cell in ClaimConfig("diluted", settings).cells
    ]
    results = Results(tuple(cell for cell in measured if cell is not None))
    assert verdict(diluted, settings, results).state == "holds"
    weights = run(direct, tmp_path, monkeypatch, capsys)
    assert weights.count("0.0000") >= 7 and weights.startswith("tensor([0.0000")


# The guides are true: their code prints what its comments say, and the pages that they open say what they quote.


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
    """What is registered goes with the test."""
    before = {axis: list(entries) for axis, entries in AXES.items()}
    claims = list(CLAIMS)
    yield
    for axis, entries in before.items():
        AXES[axis][:] = entries
    CLAIMS[:] = claims


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


# What a visitor sees first: the README in one screen, its moving picture, and the pictures of the gallery.


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


# A script names the version, the commit and the plug-ins that it needs, and says at its start which are missing.


WORKED = sorted(lab_path("docs/plugins").glob("*.py"))


@pytest.fixture
def keys(without_new_entries) -> dict[str, str]:
    """The key of each plug-in of docs/plugins, by its file; registered for one test."""
    for file in WORKED:
        runpy.run_path(str(file))
    sources = [entry for axis in AXES.values() for entry in axis if entry.source]
    return {Path(entry.source).name: entry.key for entry in sources}


def script_of(key: str) -> Script:
    return Script(
        (
            Cell(
                "Words", f"name = {key!r}\nfile = lab_path('README.md')\nprint(name, file.exists())"
            ),
        )
    )


def provenance_run(
    text: str, folder: Path, plugins_folder: str = ""
) -> subprocess.CompletedProcess:
    (folder / "script.py").write_text(text, "utf-8")
    env = {**os.environ, "PYTHONPATH": str(lab_path("")), "PYTHONIOENCODING": "utf-8"}
    env |= {plugins.VARIABLE: plugins_folder} if plugins_folder else {}
    return subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=env, capture_output=True, encoding="utf-8"
    )


def test_a_script_names_what_it_needs(keys):
    assert len(keys) == len(WORKED)
    for file, key in keys.items():
        script = script_of(key)
        assert [*needed_plugins(script.cells[0].code)] == [file]
        for text in (script.text("Page\nsource"), script.notebook("Page")):
            assert lab_version() in text and lab_commit() in text and file in text
        ast.parse(script.text("Page\nsource"))
    assert "plug-in" not in script_of("softmax").text("Page") and not needed_plugins(
        "entry = softmax"
    )


def test_a_plug_in_that_is_missing_or_changed_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(plugins.claim_files, "own_claim", str(WORKED[0]))
    assert [*needed_plugins("claim_of('own_claim')")] == [WORKED[0].name]
    monkeypatch.setenv(plugins.VARIABLE, str(tmp_path))
    with pytest.raises(MissingPlugin, match="it is not in"):
        require_plugins({"own.py": "00"})
    (tmp_path / "own.py").write_text("", "utf-8")
    with pytest.raises(MissingPlugin, match="another version of it"):
        require_plugins({"own.py": "00"})


def test_a_script_runs_in_any_folder_where_its_plug_ins_are(keys, tmp_path):
    key = keys[WORKED[0].name]
    text = script_of(key).text("Page")
    done = provenance_run(text, tmp_path, str(lab_path("docs/plugins")))
    assert done.returncode == 0 and done.stdout.split() == [key, "True"], done.stderr
    done = provenance_run(text, tmp_path)
    assert done.returncode and f"This needs the plug-in {WORKED[0].name}" in done.stderr
    assert f"{plugins.VARIABLE} is not set" in done.stderr and not done.stdout


# The catalogue of the documentation has every choice, preset and term, with what its entry says and what it costs.


PAGES = catalogue.pages()


def sections(page: str) -> dict[str, str]:
    """The sections of a page by the key in their heading."""
    parts = re.split(r"^## .* \{ #(\w+) \}$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def row(page: str, key: str) -> list[str]:
    """The cells of a choice or preset in the table at the top."""
    line = next(line for line in page.splitlines() if f"](#{key}) |" in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


@each("axis", list(AXES))
def test_an_axis_has_every_choice(axis):
    shown = sections(PAGES[f"catalogue/{axis}.md"])
    assert shown.keys() == {item.key for item in AXES[axis]}
    for item in AXES[axis]:
        text = shown[item.key]
        assert item.latex in text and str(item.year) in text and item.url in text
        assert all(f"`{param.key}`" in text for param in item.params)


def test_the_presets_are_all_there():
    shown = sections(PAGES["catalogue/presets.md"])
    assert list(shown) == [item.key for item in PRESETS]
    assert "Grouped-query" in shown["mistral"] and "2310.06825" in shown["mistral"]


def test_costs_are_those_of_the_layer():
    config = AttentionConfig(64, 4, kernel="linear")
    cells = row(PAGES["catalogue/kernel.md"], "linear")
    assert cells[4] == operations(attention_cost(config, 512, 512).flops) and cells[6] == "× 2.0"
    learned = sum(weight.numel() for weight in Attention(AttentionConfig(64, 4)).parameters())
    assert row(PAGES["catalogue/presets.md"], "self_attention")[2] == f"{learned:,}"
    assert row(PAGES["catalogue/score.md"], "scaled_dot")[2:5] == ["0", "128", "67.1\u00a0M"]


def test_signs_of_markdown_in_a_name_are_text():
    assert catalogue.plain("a*b_c|d$") == r"a\*b\_c\|d\$"


def test_every_term_is_listed():
    rows = [line for line in catalogue.terms().splitlines() if line.startswith("| ")]
    assert len(rows) == len(TERMS) + 2


def test_every_claim_has_its_verdict_and_every_part_a_row():
    parts = sections(measured.claims())
    assert list(parts) == [claim.key for claim in CLAIMS]
    for claim in CLAIMS:
        result = shipped(claim)
        assert result is not None
        state = verdict(claim, result.settings, result.results).state
        assert f"Verdict: {state}, over " in parts[claim.key]
        assert parts[claim.key].count("\n| ") == len(claim.parts) + 2


def test_every_card_has_its_numbers():
    rows = [line for line in measured.cards().splitlines() if line.startswith("| [")]
    assert len(rows) == len(CARDS)
    gpt2 = next(line for line in rows if "GPT-2" in line)
    assert "| 2019 | 12 | 124\u00a0M | 124\u00a0M | 37.7\u00a0MB |" in gpt2
