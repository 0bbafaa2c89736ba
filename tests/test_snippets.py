"""The Python in README.md runs as it stands, and says what its comments promise."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def run(block, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    exec(compile(block, "README.md", "exec"), {})
    return capsys.readouterr().out


def test_there_are_two_snippets():
    assert len(BLOCKS) == 2


def test_attention(tmp_path, monkeypatch, capsys):
    said = run(BLOCKS[0], tmp_path, monkeypatch, capsys)
    for number in ("0.140", "0.284", "0.576", "0.355", "0.617"):
        assert any(abs(float(found) - float(number)) < 6e-4 for found in re.findall(r"\d\.\d+", said)), said
    assert "[2, 10, 64]" in said and "[2, 4, 10, 10]" in said


def test_training(tmp_path, monkeypatch, capsys):
    said = run(BLOCKS[1], tmp_path, monkeypatch, capsys)
    assert len(said.splitlines()) >= 2 and (tmp_path / "reverse.json").exists()


def test_what_it_says_about_a_refusal():
    from core.attention import AttentionConfig, ConfigError

    with pytest.raises(ConfigError, match="(?s)fused.*additive"):
        AttentionConfig(score="additive", kernel="fused")


def test_the_files_it_names_are_there():
    for name in re.findall(r"\]\((?!http)([^)]+)\)", TEXT):
        assert (ROOT / name).exists(), name
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z]+)", TEXT):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
