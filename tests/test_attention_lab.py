"""The public name: every name is there and documented, the import is light, and a wrong call says the right one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import attention_lab
from attention_lab import (
    Attention,
    AttentionConfig,
    attend,
    load_lab_model,
    preset,
    read,
    show,
    train,
)
from core.attention.checks import check_heads, check_inputs
from core.provenance import lab_version
from tests.cases import each

ROOT = Path(__file__).resolve().parents[1]


def python(code: str, path: Path, folder: Path) -> subprocess.CompletedProcess:
    """What Python prints in a folder, with `path` before all others and the lab after it."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)])}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, encoding="utf-8"
    )


def test_every_public_name_is_there_and_documented():
    text = (ROOT / "docs" / "library.md").read_text("utf-8")
    assert [one for one in dir(attention_lab) if f"`{one}" not in text] == []
    assert all(getattr(attention_lab, one) is not None for one in dir(attention_lab))
    assert attention_lab.__version__ == lab_version()
    pytest.raises(AttributeError, getattr, attention_lab, "atend").match("no atend; it has attend,")


def test_import_waits_for_no_pytorch(tmp_path):
    code = (
        "import sys, attention_lab as lab; lab.__version__, dir(lab)\n"
        "print('torch' in sys.modules); from core.attention import attend"
    )
    done = python(code, tmp_path, tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


@each("file", ["package/core/__init__.py", "module/core.py"])
def test_another_core_is_named(file, tmp_path):
    path = tmp_path / Path(file).parts[0]
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("", encoding="utf-8")
    done = python("import attention_lab", path, tmp_path)
    said = done.stderr.splitlines()[-1]
    assert said.startswith("ImportError: attention_lab needs its own package core") and file in said


X: Any = torch.ones(1, 2, 3, 4)
WORD: Any = "x"


@each(
    ("call", "words"),
    [
        (lambda: Attention(64, 4), "Expected Attention(AttentionConfig(d_model=64, num_heads=4))"),
        (lambda: Attention(d_model=64, num_heads=4), "Expected Attention(AttentionConfig(d_model="),
        (lambda: Attention(preset("mistral")), "in place of the AttentionConfig"),
        (
            lambda: check_inputs(AttentionConfig(), WORD, *[None] * 3),
            "Expected x of (batch, length, d_model = 64)",
        ),
        (lambda: AttentionConfig(position=lambda i, j: i), "Attention(config, position=…)"),
        (
            lambda: check_heads(X.numpy(), X, X, None),
            "Expected attend(q, k, v) of (batch, heads, length",
        ),
        (lambda: attend(X, X, X, True), "Expected a mask of bool; got True"),
        (lambda: read("a model", "a text"), "Expected read(load_minilm(), 'A text.')"),
        (lambda: read(load_lab_model("induction"), 3), "or read(model, 'A text.'); got 3"),
        (lambda: next(train("reverse")), "Expected train(RunConfig(TaskConfig.of('reverse'), "),
        (lambda: show(X), "Expected show(trace), or show_maps({'name': weights}, "),
    ],
)
def test_a_wrong_argument_is_answered_with_the_right_call(call, words):
    with pytest.raises(ValueError) as refused:
        call()
    assert words in str(refused.value) and "\n" not in str(refused.value)
