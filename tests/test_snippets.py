"""The Python in docs/ runs as it stands, and prints what its comments promise."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from core.attention import AXES
from tests.cases import each

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


def test_there_are_four_snippets():
    assert len(BLOCKS) == 4


def test_the_formula(tmp_path, monkeypatch, capsys):
    assert "[2, 10, 64]) torch.Size([2, 4, 10, 10]" in run(BLOCKS[0], tmp_path, monkeypatch, capsys)


def test_attention(tmp_path, monkeypatch, capsys):
    output = run(BLOCKS[1], tmp_path, monkeypatch, capsys)
    for number in ("0.140", "0.284", "0.576", "0.355", "0.617"):
        assert any(
            abs(float(value) - float(number)) < 6e-4 for value in re.findall(r"\d\.\d+", output)
        ), output
    assert "[2, 10, 64]" in output and "[2, 4, 10, 10]" in output


def test_a_pretrained_model(tmp_path, monkeypatch, capsys):
    output = run(BLOCKS[2], tmp_path, monkeypatch, capsys)
    assert output.startswith("(16, 16) ('[CLS]', 'the', 'animal'") and "[(0, 2), " in output


def test_training(tmp_path, monkeypatch, capsys):
    output = run(BLOCKS[3], tmp_path, monkeypatch, capsys)
    assert len(output.splitlines()) >= 3 and output.startswith("0 ")


def test_a_trace_of_ones_own_is_drawn(tmp_path, monkeypatch, capsys):
    (block,) = snippets("export.md")
    run(block, tmp_path, monkeypatch, capsys)
    assert 1_000 < (tmp_path / "heads.html").stat().st_size < 2_000_000


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


def test_the_mechanism_that_it_adds():
    """The recipe as it stands, put into the axis: it can be chosen, and its rows are what its equation says."""
    from core.attention import Attention, AttentionConfig
    from core.attention.basics import Normalizer
    from core.attention.normalizers import TEMPERATURE
    from core.entries import Entry

    (block,) = snippets("add-a-mechanism.md")
    names: dict[str, Any] = {"Normalizer": Normalizer, "Entry": Entry, "TEMPERATURE": TEMPERATURE}
    exec(compile(block, "add-a-mechanism.md", "exec"), names)
    AXES["normalizer"].entries.append(names["RELU"])
    try:
        layer = Attention(AttentionConfig(12, 3, normalizer="relu", mask="causal"))
    finally:
        AXES["normalizer"].entries.remove(names["RELU"])
    steps = layer(torch.randn(2, 5, 12))
    seen = torch.arange(1.0, 6.0)[:, None]
    torch.testing.assert_close(steps.weights, steps.scores.relu().tril() / seen)


def test_what_it_says_about_a_refusal():
    from core.attention import AttentionConfig, ConfigError

    with pytest.raises(ConfigError, match="(?s)fused.*additive"):
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
    from dashboard.navigation import STEPS

    text = (DOCS / "pages.md").read_text(encoding="utf-8")
    bold = ", ".join(re.findall(r"\*\*(.+?)\*\*", text))
    assert not [step.title for step in STEPS if step.title not in bold]


def test_the_plug_in_that_it_writes_is_the_one_in_its_folder(tmp_path, monkeypatch, capsys):
    """The whole file and the layer without one run as they stand; the file is the worked example but for a name."""
    from core.attention import Attention, AttentionConfig
    from core.claims.base import Results, verdict
    from core.claims.catalogue import CLAIMS, claim_of
    from core.claims.experiment import cells, measure_cell

    plug_in, claim, direct = snippets("write-a-plugin.md")
    worked = (DOCS / "plugins" / "cosine_power.py").read_text(encoding="utf-8")
    assert plug_in.split("register(")[1] == worked.split("register(")[1]
    entries = AXES["score"].entries
    before = list(entries)
    try:
        run(plug_in, tmp_path, monkeypatch, capsys)
        steps = Attention(AttentionConfig(12, 3, score="cosine_power"))(torch.randn(2, 5, 12))
        assert steps.raw.abs().max() <= 8.0
    finally:
        entries[:] = before
    claims = list(CLAIMS)
    try:
        run(claim, tmp_path, monkeypatch, capsys)
        diluted, settings = claim_of("diluted"), {"seeds": 5, "d_k": 8}
        measured = [measure_cell(diluted, cell, settings) for cell in cells(diluted, settings)]
        results = Results.of(cell for cell in measured if cell is not None)
        assert verdict(diluted, settings, results).state == "holds"
    finally:
        CLAIMS[:] = claims
    weights = run(direct, tmp_path, monkeypatch, capsys)
    assert weights.count("0.0000") >= 7 and weights.startswith("tensor([0.0000")
