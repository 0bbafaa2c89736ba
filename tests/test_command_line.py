"""The one command, attention-lab: all that it has, --set, and mistakes that end in a sentence."""

import errno
import json
import os
import subprocess
import sys

import pytest

import dashboard.__main__ as command
from core.attention import AttentionConfig
from core.command_line import settings
from core.files import read_checked, read_lines, with_checksum
from core.runs.executor import spawn_worker
from core.runs.runs import create_run, list_runs
from core.runs.sweeps import Sweep
from core.training import RunConfig
from core.training.sweeps import SweepConfig
from tests.cases import each, instance
from tests.training.small import small_run

COMMANDS = (
    "scoreboard",
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
    "pairs",
    "export",
    "model-card",
    "writing",
    "record",
)


def lab(monkeypatch, *words: object) -> int:
    """What `attention-lab words` ends with, in this process."""
    monkeypatch.setattr(sys, "argv", ["attention-lab", *map(str, words)])
    return command.main()


@each("name", COMMANDS)
def test_each_has_its_help_and_knows_no_other_words(name, monkeypatch, capsys):
    assert lab(monkeypatch, name, "--help") == 0 and "Usage:" in capsys.readouterr().out
    assert lab(monkeypatch, name, "--nothing") == 2 and "--nothing" in capsys.readouterr().err


def test_help_lists_every_command(monkeypatch, capsys):
    assert lab(monkeypatch, "--help") == 0
    lines = capsys.readouterr().out.partition("Commands:")[2].splitlines()
    assert {line.split()[0] for line in lines if line.strip()} == {"run", *COMMANDS}
    assert lab(monkeypatch, "claims") == 2
    said = capsys.readouterr().err
    assert "Commands:" in said and "--install-completion" not in said
    assert lab(monkeypatch, "claims", "list", "--names") == 0, "claims are its own"
    assert "scaling" in capsys.readouterr().out.split()


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
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "memory_mb=100000")  # these tests hold more
    (tmp_path / "fruit.csv").write_text(
        "size;kind\n" + "3,5;apple\n4,5;lime\n" * 30, encoding="utf-8"
    )
    (tmp_path / "ids.csv").write_text(
        "id,colour,kind\n" + "".join(f"{n},red,apple\n{n}0,green,lime\n" for n in range(101, 150)),
        encoding="utf-8",
    )
    (tmp_path / "broken.csv").write_bytes(b"a,b\n\xff\xe9,1\n")
    path = tmp_path / "run.json"
    path.write_text(json.dumps(small_run().to_json()), encoding="utf-8")
    return path


def test_set_changes_what_is_trained(file, monkeypatch):
    assert settings(["a=1", "b=x", "c=1"], texts=["c"]) == {"a": 1, "b": "x", "c": "1"}
    changes = ("steps=2", "record_every=1", "d_model=4", "score=additive", "task.length=5")
    words = [word for one in changes for word in ("--set", one)]
    assert lab(monkeypatch, "train", file, *words) == 0
    run = list_runs()[-1]
    config, attention = run.config(), run.config().model.attention
    assert (config.steps, config.record_every, config.model.d_model) == (2, 1, 4)
    assert (attention.d_model, attention.score.key) == (4, "additive")
    assert dict(config.task.params)["length"] == 5
    assert run.status().state == "finished" and run.records()[-1].step == 2


def test_recipe_counts_what_it_reads(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} is {n * n}. " for n in range(400)), encoding="utf-8")
    for words, unit in ((["--nanogpt"], "characters"), (["--set", "unit=words"], "words")):
        assert lab(monkeypatch, "recipe", "own_text", "--data", text, *words) == 0
        assert f" {unit}; the last" in capsys.readouterr().err


def test_set_changes_the_run_that_a_sweep_varies(file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("core.runs.sweeps.run_sweep", lambda sweep, workers: True)
    words = "--axis d_model --values 4 8 --seeds 3 5 --set steps=2 --to".split()
    assert lab(monkeypatch, "sweep", file, *words, tmp_path / "sweep.json") == 0
    assert "4 runs to train, 1 at a time" in capsys.readouterr().out
    config = instance(Sweep(tmp_path / "sweep.json").config(), SweepConfig)
    assert config.base == RunConfig.from_json(small_run(steps=2).to_json())
    assert (config.values, config.seeds) == ((4, 8), (3, 5))


def test_the_list_says_what_each_run_learns_with_what(monkeypatch, capsys):
    run = create_run(small_run(seed=3), name="mine")
    run.update_metadata(config={})
    create_run(small_run(seed=4))
    assert lab(monkeypatch, "list") == 0
    broken, whole = capsys.readouterr().out.splitlines()
    assert broken.endswith("not begun\tmine")
    assert whole.endswith("reverse\tposition=learned\trate 0.003\tseed 4\tnot begun")


def test_a_sweep_takes_a_task_a_text_and_parameters(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("core.runs.sweeps.run_sweep", lambda sweep, workers: True)
    text, file = tmp_path / "my.txt", tmp_path / "sweep.json"
    text.write_text(" ".join(map(str, range(5000))), encoding="utf-8")
    words = ["--set", "steps=2", "--set", "normalizer.temperature=2", "--set", "position=none"]
    words += [
        "--axis",
        "normalizer",
        "--values",
        "softmax(temperature=3)",
        "sparsemax",
        "--to",
        file,
    ]
    assert lab(monkeypatch, "sweep", "own_text", "--data", text, *words) == 0
    config = instance(Sweep(file).config(), SweepConfig)
    attention = instance(config.base.model.attention, AttentionConfig)
    assert (config.base.task.key, attention.normalizer["temperature"]) == ("own_text", 2)
    assert [value.params[0][1] for value in config.values[:1]] == [3]
    assert "/sweeps?sweep=" in capsys.readouterr().out
    words = [
        "--axis",
        "attention",
        "--values",
        "vaswani",
        "normalizer=sparsemax",
        "--to",
        tmp_path / "two.json",
    ]
    assert lab(monkeypatch, "sweep", "reverse", *words) == 0
    keys = [value.normalizer.key for value in Sweep(tmp_path / "two.json").config().values]
    assert keys == ["softmax", "sparsemax"]
    assert lab(monkeypatch, "sweep", file, "--data", text) == 1
    assert "--data goes with a task's name" in capsys.readouterr().err


@each(
    "words, sentence",
    [
        ("train {0}/run.json --set depth=2", "take one of"),
        ("train {0}/run.json --set steps", "NAME=VALUE"),
        ("train {0}/run.json --set steps=0", "steps"),
        ("train {0}/run.json --set score=nothing", "score"),
        ("train {0}/none.json", os.strerror(errno.ENOENT)),
        ("train {0}/fruit.csv", "Expecting value"),
        ("resume 20260101-000000-abcdef", "There is no run"),
        ("card nothing", "take one of"),
        ("recipe nothing", "expected one of"),
        ("recipe reverse --set length=900", "length"),
        ("recipe reverse --data {0}/fruit.csv", "generates its data"),
        ("recipe own_text decoder --nanogpt", "leave out decoder"),
        ("recipe iris transformer", "take one of classifier, one_token"),
        ("recipe own_table --data {0}/fruit.csv --set label=price", "no such column"),
        ("recipe own_table --data {0}/ids.csv --set label=kind", "Left out: id (identifiers"),
        ("recipe own_table --data {0}/broken.csv", "Line 2 is not UTF-8"),
        ("recipe own_table --data {0}/none.csv", os.strerror(errno.ENOENT)),
        ("finetune pairs {0}/none --set depth=2", "depth"),
        ("corpus {0}/none --kind x", "kind"),
        ("export nothing {0}/none", "There is no run"),
    ],
)
def test_a_mistake_ends_in_a_sentence(words, sentence, file, monkeypatch, capsys):
    assert lab(monkeypatch, *(word.format(file.parent) for word in words.split())) == 1
    said = capsys.readouterr().err
    assert sentence in said and "Traceback" not in said and len(said.splitlines()) == 1, said


def test_without_the_packages_it_says_how_to_install_them(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert lab(monkeypatch) == 1 and "pip install -r requirements.txt" in capsys.readouterr().err


# The checksum at the end of a line: any changed bit is noticed, and lines without one are read as before.


VALUE = {
    "step": 12,
    "loss": 0.25,
    "examples": [{"source": ["é", '"}'], "cut": False}],
    "rate": None,
}

LINE = with_checksum(json.dumps(VALUE, ensure_ascii=False))


def test_a_line_is_json_and_comes_back():
    assert json.loads(LINE).keys() - VALUE.keys() == {"crc32"}
    assert (
        read_checked(LINE)
        == read_checked(LINE + b"  ")
        == read_checked(json.dumps(VALUE).encode())
        == VALUE
    )


def test_every_changed_bit_is_noticed():
    end = LINE.index(b', "crc32')
    for at in range(8 * len(LINE)):
        line = bytearray(LINE)
        line[at // 8] ^= 1 << at % 8
        try:
            value = read_checked(bytes(line))
        except ValueError:
            continue
        assert at // 8 > end and value.keys() - VALUE.keys(), (
            "only the name of the checksum, which is a field too many"
        )


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"3", b"{", b"\xff{}", b'{"a": 1, "crc32": "0000000g"}', b'{"crc32": "00000000"}'],
)
def test_what_is_no_object_is_refused(text):
    pytest.raises(ValueError, read_checked, text)


def test_damaged_lines_stand_among_the_others(tmp_path):
    (tmp_path / "lines").write_bytes(
        LINE + b"\n" + LINE.replace(b"12", b"13") + b"\n\n" + LINE + b"\n" + LINE
    )
    assert [value for _, value in read_lines(tmp_path / "lines", dict)] == [VALUE, None, VALUE]
    assert read_lines(tmp_path / "none", dict) == []


# Text is read and written as UTF-8 wherever the lab runs, not in the encoding of the machine.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}


def test_command_speaks_to_terminal_that_knows_ascii_alone():
    done = subprocess.run(
        [sys.executable, "-m", "core.claims", "list"],
        cwd=command.ROOT,
        env=os.environ | ASCII,
        capture_output=True,
        encoding="ascii",
    )
    assert done.returncode == 0 and "\\u221a" in done.stdout, done.stderr


def test_a_worker_writes_utf_8_in_every_language(tmp_path, monkeypatch):
    for variable, value in ASCII.items():
        monkeypatch.setenv(variable, value)
    folder = tmp_path / ("run" if sys.getfilesystemencoding() == "ascii" else "läuft")
    folder.mkdir()
    (folder / "run.json").write_text('{"config": {"tâche": 1}}', encoding="utf-8")
    spawn_worker([str(folder)], log=tmp_path / "log").wait()
    text = (tmp_path / "log").read_text("utf-8")
    assert "failed: " in text and "tâche" in text and "Unicode" not in text


def test_record_writes_activations(tmp_path, monkeypatch, capsys):
    from safetensors import safe_open

    words = ["record", "writer", "--text", "The dog saw", "--activations", "resid,q"]
    out = tmp_path / "some.safetensors"
    options = ["--layers", "0,3", "--heads", "1", "--out", out]
    assert lab(monkeypatch, *words, *options) == 0
    assert "tokens: about" in capsys.readouterr().out
    with safe_open(out, "pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in [*file.keys()]}
        tokens, model = (file.metadata()[name] for name in ("tokens", "model"))
    length, (_, width) = len(json.loads(tokens)), shapes["resid_0"]
    streams = {f"resid_{layer}": [length, width] for layer in (0, 3)}
    queries = {f"causal_{layer}_q": [1, length, shapes["causal_0_q"][2]] for layer in (0, 3)}
    assert (shapes, model) == (streams | queries, "writer")
    for wrong, says in (
        (["--layers", "0;3"], "--layers 0;3: write numbers, as 0,3."),
        (["--layers", "9"], "writer has the layers"),
        (["--activations", "scores"], "There are no activations scores"),
        (["--activations", ""], "with --activations name a model"),
    ):
        assert lab(monkeypatch, *words, "--out", out, *wrong) == 1
        assert says in capsys.readouterr().err
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Disk", (), {"free": 10}))
    assert lab(monkeypatch, *words, "--out", out) == 1
    assert "has 0 kB free" in capsys.readouterr().err
