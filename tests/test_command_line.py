"""The one command, attention-lab: all that it has, --set, and mistakes that end in a sentence."""

import errno
import json
import os
import subprocess
import sys

import pytest

import dashboard.__main__ as command
from core.entries import ConfigError
from core.runs.runs import list_runs
from core.runs.sweeps import Sweep
from core.training import RunConfig
from core.training.sweeps import SweepConfig
from tests.cases import each
from tests.training.small import small_run

COMMANDS = (
    "recipe",
    "card",
    "train",
    "resume",
    "list",
    "pack",
    "unpack",
    "tensorboard",
    "wandb",
    "sweep",
    "claims",
    "finetune",
    "corpus",
    "export",
    "model-card",
)


def lab(monkeypatch, *words: object) -> int:
    """What `attention-lab words` ends with, in this process."""
    monkeypatch.setattr(sys, "argv", ["attention-lab", *map(str, words)])
    return command.main()


def test_help_lists_every_command(monkeypatch, capsys):
    assert lab(monkeypatch, "--help") == 0
    lines = capsys.readouterr().out.partition("Commands:")[2].splitlines()
    assert {line.split()[0] for line in lines if line.strip()} == {"run", *COMMANDS}


@each("name", COMMANDS)
def test_each_has_its_help_and_knows_no_other_words(name, monkeypatch, capsys):
    assert lab(monkeypatch, name, "--help") == 0 and "Usage:" in capsys.readouterr().out
    assert lab(monkeypatch, name, "--nothing") == 2 and "--nothing" in capsys.readouterr().err


def test_claims_are_its_own(monkeypatch, capsys):
    assert (
        lab(monkeypatch, "claims", "list", "--names") == 0
        and "scaling" in capsys.readouterr().out.split()
    )


@each(
    "words, options",
    [
        ([], []),
        (["run"], []),
        (["run", "--server.port", "1"], ["--server.port", "1"]),
        (["--server.port", "1"], ["--server.port", "1"]),
    ],
)
def test_the_dashboard_is_what_it_opens_else(words, options, monkeypatch):
    monkeypatch.setattr(command, "dashboard", lambda given: 0 if given == options else 1)
    assert lab(monkeypatch, *words) == 0


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "ATTENTION_LAB_LIMITS", "memory_mb=100000"
    )  # the tests' own process holds more than a worker would
    path = tmp_path / "run.json"
    path.write_text(json.dumps(small_run().to_json()), encoding="utf-8")
    return path


def test_set_changes_what_is_trained(file, monkeypatch):
    changes = ("steps=2", "record_every=1", "d_model=4", "score=additive", "task.length=5")
    assert (
        lab(monkeypatch, "train", file, *(word for one in changes for word in ("--set", one))) == 0
    )
    run = list_runs()[-1]
    config = run.config()
    attention = config.model.attention
    assert (config.steps, config.record_every, config.model.d_model, attention.d_model) == (
        2,
        1,
        4,
        4,
    )
    assert attention.score.key == "additive" and dict(config.task.params)["length"] == 5
    assert run.status().state == "finished" and run.records()[-1].step == 2


def test_set_changes_the_run_that_a_sweep_varies(file, tmp_path, monkeypatch):
    monkeypatch.setattr("core.runs.sweeps.run_sweep", lambda sweep, workers: True)
    to = tmp_path / "sweep.json"
    assert (
        lab(
            monkeypatch,
            "sweep",
            file,
            "--axis",
            "d_model",
            "--values",
            "4",
            "8",
            "--seeds",
            "3",
            "5",
            "--to",
            to,
            "--set",
            "steps=2",
        )
        == 0
    )
    config = Sweep(to).config()
    assert isinstance(config, SweepConfig) and config.base == RunConfig.from_json(
        small_run(steps=2).to_json()
    )
    assert (config.values, config.seeds) == ((4, 8), (3, 5))


@each(
    "words, sentence",
    [
        (["train", "{file}", "--set", "depth=2"], "take one of"),
        (["train", "{file}", "--set", "steps"], "NAME=VALUE"),
        (["train", "{file}", "--set", "steps=0"], "steps"),
        (["train", "{file}", "--set", "score=nothing"], "score"),
        (["train", "{file}x"], os.strerror(errno.ENOENT)),
        (["card", "nothing"], "take one of"),
        (["recipe", "nothing"], "expected one of"),
        (["finetune", "pairs", "{file}.run", "--set", "depth=2"], "depth"),
        (["corpus", "{file}.run", "--kind", "x"], "kind"),
        (["export", "nothing", "{file}.run"], "There is no run"),
    ],
)
def test_a_mistake_ends_in_a_sentence(words, sentence, file, monkeypatch, capsys):
    assert lab(monkeypatch, *(word.format(file=file) for word in words)) == 1
    said = capsys.readouterr().err
    assert sentence in said and "Traceback" not in said and len(said.splitlines()) == 1, said


def test_without_the_packages_it_says_how_to_install_them():
    """In a process that finds no package at all."""
    code = (
        "import sys, importlib.util as util; util.find_spec = lambda name: None; "
        "from dashboard.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=command.ROOT, capture_output=True, encoding="utf-8"
    )
    assert (
        done.returncode == 1
        and "pip install -r requirements.txt" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_setting_without_a_value_is_refused():
    from core.command_line import settings

    with pytest.raises(ConfigError, match="NAME=VALUE"):
        settings(["steps"])
    assert settings(["a=1", "b=x", "c=1"], texts=["c"]) == {"a": 1, "b": "x", "c": "1"}
