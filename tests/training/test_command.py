"""The shell's command: a recipe to a file, a file to a run, a run further; mistakes end in one sentence."""

import errno
import json
import os

import pytest

from core.runs.runs import find_run, list_runs
from core.training import RunConfig
from core.training.__main__ import main
from tests.training.small import small_run

FRUIT = "size;colour;kind\n" + "\n".join(
    f"{3 + i % 7},5;{'red' if i % 2 else 'green'};{'apple' if i % 2 else 'lime'}" for i in range(60)
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "ATTENTION_LAB_LIMITS", "memory_mb=100000"
    )  # the tests' own process holds more than a worker would
    return tmp_path


def trained(folder, config) -> str:
    file = folder / "asked.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    assert main(["train", str(file)]) == 0
    return list_runs()[-1].id


def test_a_strangers_table_becomes_a_run(folder, capsys):
    (folder / "fruit.csv").write_text(FRUIT, encoding="utf-8")
    assert (
        main(["recipe", "own_table", "--data", str(folder / "fruit.csv"), "--set", "label=kind"])
        == 0
    )
    config = json.loads(capsys.readouterr().out)
    assert (
        config["task"]["params"]["data"].startswith("size;colour;kind")
        and config["model"]["kind"] == "classifier"
    )
    run = find_run(trained(folder, config | {"steps": 60, "record_every": 30}))
    assert run.status().state == "finished" and run.records()[-1].sequence_accuracy == 1.0, (
        "the colour gives the kind away"
    )
    output = capsys.readouterr().out
    assert (
        f"?run={run.id}" in output
        and "step 60/60" in output
        and "sequence accuracy 1.000" in output
    )


def test_a_run_is_trained_longer_and_listed(folder, capsys):
    name = trained(folder, small_run(steps=4).to_json())
    assert main(["resume", name, "--steps", "8"]) == 0
    run = find_run(name)
    assert run.config().steps == 8 and run.records()[-1].step == 8
    capsys.readouterr()
    assert main(["list"]) == 0
    assert capsys.readouterr().out.split("\t")[:3] == [name, "finished", "step 8"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["recipe", "reverse", "--data", "{folder}/fruit.csv"], "generates its data"),
        (
            ["recipe", "own_table", "--data", "{folder}/fruit.csv", "--set", "label=price"],
            "no such column",
        ),
        (["recipe", "own_table", "--data", "{folder}/broken.csv"], "Line 2 is not UTF-8"),
        (["recipe", "own_table", "--data", "{folder}/nothing.csv"], os.strerror(errno.ENOENT)),
        (["recipe", "iris", "transformer"], "take one of classifier, one_token"),
        (["recipe", "reverse", "--set", "length=900"], "length"),
        (["train", "{folder}/fruit.csv"], "Expecting value"),
        (["resume", "20260101-000000-abcdef"], "There is no run"),
    ],
)
def test_mistakes_end_in_a_sentence(folder, capsys, arguments, words):
    (folder / "fruit.csv").write_text(FRUIT, encoding="utf-8")
    (folder / "broken.csv").write_bytes(b"a,b\n\xff\xe9,1\n")
    assert main([argument.format(folder=folder) for argument in arguments]) == 1
    output = capsys.readouterr().err
    assert words in output and "Traceback" not in output


def test_a_table_in_windows_1252_with_columns_put_back(folder, capsys):
    rows = "".join(f"{3 * i};{i % 5},5;Höhe;{1 + i % 28}.3.2020;{'ab'[i % 2]}\n" for i in range(40))
    (folder / "old.csv").write_bytes(f"id;Größe;Maß;Tag;Art\n{rows}".encode("cp1252"))
    arguments = [
        "recipe",
        "own_table",
        "--data",
        str(folder / "old.csv"),
        "--set",
        "columns=Größe,1,Tag",
    ]
    arguments += ["--set", "label=5", "--set", "dates=numbers"]
    assert main(arguments) == 1
    assert "encoding cp1252" in capsys.readouterr().err
    assert main([*arguments, "--encoding", "cp1252"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["task"]["params"]["columns"] == "Größe,1,Tag"
    assert (
        "Left out: Maß (not chosen)." in output.err and "With decimal commas: Größe." in output.err
    )


def test_a_published_model_in_small_is_a_recipe(capsys):
    assert main(["card", "gpt_oss"]) == 0
    config = RunConfig.from_json(json.loads(capsys.readouterr().out))
    assert config.model.layer_names == ("causal local", "causal") and config.task.key == "recall"
