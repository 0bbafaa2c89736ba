"""The documents are true: their code runs, their links lead somewhere, their claims and sources are those of the lab."""

import ast
import functools
import os
import re
import runpy
import shlex
import subprocess
import sys
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

import pytest
import torch
import typer
from PIL import Image, ImageChops, ImageSequence

from core import command_line, plugins, provenance
from core.attention import AXES, PRESETS, Attention, AttentionConfig, ConfigError, Entry
from core.attention.base import Normalizer
from core.attention.cost import attention_cost
from core.attention.normalizers import TEMPERATURE
from core.attention.probes import check
from core.claims.base import verdict
from core.claims.catalogue import CLAIMS
from core.claims.run import shipped
from core.models.cards import CARDS
from core.provenance import MissingPlugin, lab_commit, lab_version, needed_plugins, require_plugins
from core.tasks import TASKS
from core.training.__main__ import LISTS
from dashboard.__main__ import app
from dashboard.draw.components import Cell, Script
from dashboard.draw.formats import operations
from dashboard.draw.glossary import TERMS
from dashboard.draw.pictures import MapsPicture
from dashboard.navigation import STEPS
from docs.site import catalogue, gallery, measured
from tests.cases import each
from tests.pages.app import html_text, open_at, page_text

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
ALL_TEXT = "\n".join(path.read_text("utf-8") for path in DOCUMENTS)


def snippets(name: str) -> list[str]:
    """The blocks of Python in a document, by its path from docs/."""
    return re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)


def run(block, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    exec(compile(block, "docs", "exec"), {})
    return capsys.readouterr().out


@each(
    ("block", "words"),
    zip(
        snippets("library.md"),
        [
            r"\[2, 10, 64\]\) torch\.Size\(\[2, 4, 10, 10\]",
            r"0\.140.*0\.284.*0\.576.*0\.35[45].*0\.617.*\[2, 10, 64\].*\[2, 4, 10, 10\]",
            r"^\(16, 16\) \('\[CLS\]', 'the', 'animal'.*\[\(0, 2\), ",
            r"^\('Mary', 'John'\) 12\.\d+ 27\.\d+\nL0·H0 → V of L3·H2 7\.",
            r"^0 put the .*\n0\.5 put the ",
            r"^0 .*\n.*\n",
        ],
        strict=True,
    ),
)
def test_a_snippet_prints(block, words, tmp_path, monkeypatch, capsys):
    assert re.search(f"(?s){words}", run(block, tmp_path, monkeypatch, capsys))


def test_activations_are_read_back(tmp_path, monkeypatch, capsys):
    *_, block = snippets("models.md")
    printed = run(block, tmp_path, monkeypatch, capsys)
    assert re.search(r"\[8, 384\]\) torch\.Size\(\[12, 8, 32\]\)$", printed.strip())


def test_a_module_is_read(tmp_path, monkeypatch, capsys):
    short, block, _ = snippets(
        "read-your-model.md"
    )  # the last names a function of the reader's own
    names = {
        "model": torch.nn.TransformerEncoderLayer(8, 2, batch_first=True),
        "inputs": torch.ones(1, 3, 8),
    }
    exec(compile(short, "docs", "exec"), names)
    assert names["weights"].shape == (2, 3, 3)  # type: ignore[attr-defined]
    printed = run(block, tmp_path, monkeypatch, capsys)
    assert re.search(
        r"(?s)^layers.0.self_attn nn.MultiheadAttention \(1, 4, 10, 10\) .*\{\}\n$", printed
    )


def test_the_readme_draws_two_maps(tmp_path, monkeypatch, capsys):
    (block,) = snippets("../README.md")
    run(block, tmp_path, monkeypatch, capsys)
    texts = {node.text for node in ElementTree.parse(tmp_path / "maps.svg").iter() if node.text}
    assert {"plain", "causal", "animal"} <= texts


def test_a_trace_of_ones_own_is_drawn(tmp_path, monkeypatch, capsys):
    (block,) = snippets("export.md")
    run(block, tmp_path, monkeypatch, capsys)
    assert 1_000 < (tmp_path / "heads.html").stat().st_size < 2_000_000


def test_every_command_of_the_shell_is_one():
    # Each line of the documents has the words that its command takes; nothing is run.
    lines = re.findall(r"^ {4}\.venv/bin/attention-lab ([^>#\n]*)", ALL_TEXT, re.MULTILINE)
    assert {parsed(shlex.split(line)) for line in lines} >= {
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
    command: Any = typer.main.get_command(app())
    name = words[0]
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context(name, command_line.spread(words, LISTS))
    return name


def test_the_mechanism_that_it_adds(without_new_entries):
    # The recipe as it stands, put into the axis: it can be chosen, and its rows are what its equation says.
    (block,) = snippets("add-a-mechanism.md")
    names: dict[str, Any] = {"Normalizer": Normalizer, "Entry": Entry, "TEMPERATURE": TEMPERATURE}
    exec(compile(block, "add-a-mechanism.md", "exec"), names)
    AXES["normalizer"].append(names["RELU"])
    steps = Attention(AttentionConfig(12, 3, normalizer="relu", mask="causal"))(
        torch.randn(2, 5, 12)
    )
    seen = torch.arange(1.0, 6.0)[:, None]
    torch.testing.assert_close(steps.weights, steps.scores.relu().tril() / seen)
    # What it says about a refusal
    pytest.raises(ConfigError, AttentionConfig, score="additive", kernel="fused").match(
        "(?s)fused.*additive"
    )


@each("document", DOCUMENTS)
def test_the_files_it_names_are_there(document):
    text = document.read_text(encoding="utf-8")
    for name in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (document.parent / name).exists(), name
    for name in re.findall(r"`((?:core|dashboard|pages|tests|benchmarks|docs)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name


def test_the_targets_of_make_are_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", ALL_TEXT, re.M)) <= targets


def test_every_page_has_its_words():
    bold = ", ".join(re.findall(r"\*\*(.+?)\*\*", (DOCS / "pages.md").read_text(encoding="utf-8")))
    assert not [step.title for step in STEPS if step.title not in bold]


def check_state(config):
    """The contract of a state kernel: a loop over the text, T ≠ S, padding, and steps that carry the state alone."""
    layer, x = Attention(config).eval(), torch.randn(2, 7, 12)
    real = torch.tensor([[True] * 7, [False, False, True, True, False, True, True]])
    for queries, offset, given in ((7, 0, None), (2, 5, real), (9, 0, None), (3, 0, real)):
        later = torch.randn(2, queries, 12)
        steps = layer(later, x, offset=offset, key_mask=given)
        q, k = steps.q.softmax(-1), steps.k.softmax(-1)
        seen = torch.arange(7) <= offset + torch.arange(queries)[:, None]
        seen = seen if given is None else seen & given[:, None, None]
        cells = (q @ k.mT) * seen
        want = cells / cells.sum(-1, keepdim=True).clamp(min=1e-6)
        torch.testing.assert_close(steps.weights, want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(steps.out, want @ steps.v, rtol=1e-4, atol=1e-5)
    whole, cache = layer(x, record=False).merged, None
    for part in x.split((3, 1, 2, 1), dim=1):
        steps, cache = layer.step(part, cache)
        end = cache.length
        torch.testing.assert_close(
            steps.merged, whole[:, end - part.shape[1] : end], rtol=1e-4, atol=1e-5
        )
        assert cache.numbers == 3 * 4 * 5, "one state, whatever the length"
    assert not check(config).faults


def test_plug_in_that_it_writes_is_one_in_its_folder(
    tmp_path, monkeypatch, capsys, without_new_entries
):
    # The whole file and the layer without one run as they stand; the file is the worked example but for a name.
    mod, plug_in, state, task, _, direct = snippets("write-a-plugin.md")
    run(mod, tmp_path, monkeypatch, capsys)
    config = AttentionConfig(12, 3, position="capped")
    assert Attention(config)(torch.randn(2, 5, 12)).scores.abs().max() <= 20
    worked = (DOCS / "plugins" / "cosine_power.py").read_text(encoding="utf-8")
    assert plug_in.split("register(")[1] == worked.split("register(")[1]
    kernel = (DOCS / "plugins" / "running_sums.py").read_text(encoding="utf-8")
    assert kernel.endswith(state)
    assert task == (DOCS / "plugins" / "doubled.py").read_text(encoding="utf-8")
    run(task, tmp_path, monkeypatch, capsys)
    run(plug_in, tmp_path, monkeypatch, capsys)
    run(state, tmp_path, monkeypatch, capsys)
    check_state(AttentionConfig(12, 3, kernel="running_sums"))
    steps = Attention(AttentionConfig(12, 3, score="cosine_power"))(torch.randn(2, 5, 12))
    assert steps.raw.abs().max() <= 8.0
    weights = run(direct, tmp_path, monkeypatch, capsys)
    assert weights.count("0.0000") >= 7 and weights.startswith("tensor([0.0000")


# The guides are true: their code prints what its comments say, and the pages that they open say what they quote.


GUIDES = ("student", "teacher", "engineer", "author")


def opened(guide: str) -> list[tuple[str, list[str]]]:
    """Each address in a guide, and what it quotes of that page before the next one."""
    pages: list[tuple[str, list[str]]] = []
    for line in (DOCS / "guides" / f"{guide}.md").read_text(encoding="utf-8").splitlines():
        if address := re.match(r" {4}(/\S+)$|\| [\d–]+ \| `(/[^`]+)`", line):
            pages.append((address[1] or address[2], []))
        elif line.startswith("> "):
            pages[-1][1].append(line[2:])
    return pages


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>|[*\\]", "", text.replace("&nbsp;", " ")))


def test_there_is_a_guide_for_each_kind_of_reader():
    assert {path.stem for path in (DOCS / "guides").glob("*.md")} == set(GUIDES)


@pytest.mark.first
@pytest.mark.parametrize("guide", GUIDES)  # two of them train for ten seconds
def test_its_code_prints_what_its_comments_say(
    guide, tmp_path, monkeypatch, capsys, without_new_entries
):
    names: dict[str, object] = {"__name__": "guide"}
    monkeypatch.chdir(tmp_path)
    blocks = snippets(f"guides/{guide}.md")
    assert blocks
    for block in blocks:
        exec(compile(block, guide, "exec"), names)
        expected = re.findall(r"^ *(?:print\(.*  )?# (.+)$", block, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == expected


@each("guide", GUIDES)
def test_the_pages_that_it_opens_say_what_it_quotes(guide):
    pages = opened(guide)
    assert pages
    for address, quotes in pages:
        parts = urlsplit(address)
        assert (page := parts.path.strip("/")) in {step.key for step in STEPS}
        app = open_at(page, **dict(parse_qsl(parts.query)))
        assert not app.exception, address
        shown = plain(page_text(app)) + plain(html_text(app))
        assert not [quote for quote in quotes if plain(quote) not in shown], address


# What a visitor sees first: the README in one screen, its moving picture, and the pictures of the gallery.


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_one_screen():
    lines = README.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 120
    assert [line.split("#")[0].strip() for line in lines[2:4]] == ["make run", "make test"]
    assert len(re.findall(r"^- ", README, re.MULTILINE)) == 5
    assert ".venv/bin/streamlit run" in README


def test_the_way_to_ones_own_model_starts_where_it_is_looked_for():
    assert (
        "pip install -r requirements.txt -e ." in README
    )  # else `import attention_lab` is not found elsewhere
    for text in (
        README,
        *(
            (DOCS / name).read_text("utf-8")
            for name in ("read-your-model.md", "guides/engineer.md")
        ),
    ):
        assert "models.md#your-own-model" in text.partition("## 1")[0]


def test_the_picture_of_the_readme_moves_and_is_small():
    name, still = re.findall(r'(?:src|srcset)="(docs/[^"]+)"', README)[::-1]
    assert (ROOT / name).stat().st_size <= 2_000_000
    with Image.open(ROOT / name) as film, Image.open(ROOT / still) as first:
        frames = [
            frame.convert("RGB") for frame in islice(ImageSequence.Iterator(film), 0, None, 5)
        ]
        assert len(frames) >= 6 and first.size == film.size
    assert all(ImageChops.difference(*pair).getbbox() for pair in pairwise(frames))


def test_the_gallery_has_the_pictures_of_its_list():
    paths = [*gallery.FOLDER.glob("*.svg")]
    assert {path.stem for path in paths} == set(gallery.PICTURES)
    for path in paths:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert path.stat().st_size <= gallery.MAX_BYTES
        assert f"gallery/{path.name}" in gallery.markdown()


def test_picture_of_gallery_is_what_its_page_draws_today():
    # Its title, maps and tokens; layout and colors may have changed since it was drawn.
    picture = gallery.picture_of("masks")
    assert isinstance(picture, MapsPicture)
    texts = {
        node.text for node in ElementTree.parse(gallery.FOLDER / "masks.svg").iter() if node.text
    }
    assert {picture.title, *(item.name for item in picture.maps), *picture.maps[0].rows} <= texts


# A script names the version, the commit and the plug-ins that it needs, and says at its start which are missing.


WORKED = sorted((DOCS / "plugins").glob("*.py"))


@pytest.fixture
def keys(without_new_entries) -> dict[str, str]:
    """The key of each plug-in of docs/plugins, by its file; registered for one test."""
    for file in WORKED:
        runpy.run_path(str(file))
    entries: list[Any] = [*chain.from_iterable(AXES.values()), *TASKS]
    sources = [entry for entry in entries if entry.source]
    return {Path(entry.source).name: entry.key for entry in sources}


def script_of(key: str) -> Script:
    return Script(
        (
            Cell(
                "Words", f"name = {key!r}\nfile = lab_path('README.md')\nprint(name, file.exists())"
            ),
        )
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


def test_a_script_names_the_commit(tmp_path, monkeypatch):
    def commit(*words: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        if words:
            subprocess.run(["git", "-C", tmp_path, *name, *words], check=True, capture_output=True)
        return lab_commit.__wrapped__()

    monkeypatch.setattr(provenance, "LAB", tmp_path)
    (file := tmp_path / "a").write_text("1", encoding="utf-8")
    assert commit() == commit("init") == commit("add", "a") == ""
    assert re.fullmatch("[0-9a-f]{40}", first := commit("commit", "-m", "first"))
    file.write_text("2", encoding="utf-8")
    assert commit() == f"{first}+"


def test_a_plug_in_that_is_missing_or_changed_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(plugins.claim_files, "own_claim", str(WORKED[0]))
    assert [*needed_plugins("claim_of('own_claim')")] == [WORKED[0].name]
    monkeypatch.setenv(plugins.VARIABLE, str(tmp_path))
    pytest.raises(MissingPlugin, require_plugins, {"own.py": "00"}).match("it is not in")
    (tmp_path / "own.py").write_text("", "utf-8")
    pytest.raises(MissingPlugin, require_plugins, {"own.py": "00"}).match("another version of it")


def test_a_script_runs_in_any_folder_where_its_plug_ins_are(keys, tmp_path, monkeypatch):
    text = script_of(keys[WORKED[0].name]).text("Page")
    (tmp_path / "script.py").write_text(text, "utf-8")
    monkeypatch.delenv(plugins.VARIABLE, raising=False)
    pytest.raises(MissingPlugin, exec, text, {}).match(
        f"{WORKED[0].name}.*{plugins.VARIABLE} is not set"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), plugins.VARIABLE: str(DOCS / "plugins")}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, encoding="utf-8"
    )
    assert done.stdout.split() == [keys[WORKED[0].name], "True"], done.stderr


# The catalogue of the documentation has every choice, preset and term, with what its entry says and what it costs.


catalogue_pages = functools.cache(catalogue.pages)


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
    shown = sections(catalogue_pages()[f"catalogue/{axis}.md"])
    assert shown.keys() == {item.key for item in AXES[axis]}
    for item in AXES[axis]:
        text = shown[item.key]
        assert item.latex in text and str(item.year) in text and item.url in text
        assert all(f"`{param.key}`" in text for param in item.params)


def test_the_presets_and_terms_are_all_there():
    assert f"\n{catalogue.terms()}".count("\n| ") == len(TERMS) + 2
    shown = sections(catalogue_pages()["catalogue/presets.md"])
    assert list(shown) == [item.key for item in PRESETS]
    assert "Grouped-query" in shown["mistral"] and "2310.06825" in shown["mistral"]


def test_costs_are_those_of_the_layer():
    config = AttentionConfig(64, 4, kernel="linear")
    cells = row(catalogue_pages()["catalogue/kernel.md"], "linear")
    assert cells[4] == operations(attention_cost(config, 512, 512).flops) and cells[6] == "× 2.0"
    learned = sum(weight.numel() for weight in Attention(AttentionConfig(64, 4)).parameters())
    assert row(catalogue_pages()["catalogue/presets.md"], "self_attention")[2] == f"{learned:,}"
    assert row(catalogue_pages()["catalogue/score.md"], "scaled_dot")[2:5] == [
        "0",
        "128",
        "67.1\u00a0M",
    ]


def test_signs_of_markdown_in_a_name_are_text():
    assert catalogue.plain("a*b_c|d$") == r"a\*b\_c\|d\$"


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
    assert f"\n{measured.cards()}".count("\n| [") == len(CARDS)
    assert re.search(
        "GPT-2.*\\| 2019 \\| 12 \\| 124\u00a0M \\| 124\u00a0M \\| 37.7\u00a0MB", measured.cards()
    )
