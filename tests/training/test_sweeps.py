"""What a sweep varies and what it refuses, its file, and the shell that trains it."""

import json
import math
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from core.attention import Choice, ConfigError, preset
from core.models import ModelConfig
from core.runs import sweeps, worker
from core.runs.runs import Run, create_run, find_run, list_runs
from core.runs.sweeps import (
    Outcome,
    Sweep,
    create_sweep,
    delete_sweep,
    find_sweep,
    list_sweeps,
    summary,
)
from core.tasks import TaskConfig, make_task
from core.training import Record, RunConfig, devices, loop, recommended
from core.training.__main__ import main
from core.training.config import resolve_device
from core.training.sweeps import (
    FIELDS,
    SweepConfig,
    buildable,
    name_of,
    value_text,
    vary,
    with_settings,
)
from tests.cases import each
from tests.training.small import FINAL, small_run


def sweep_config(**changes) -> SweepConfig:
    return SweepConfig(
        **{
            **dict(base=small_run(), axis="score", values=("dot", "general"), seeds=(0, 1)),
            **changes,
        }
    )


def test_equal_steps_change_the_value_and_the_seed_alone():
    config = sweep_config()
    assert config.cells == ((0, 0), (1, 0), (0, 1), (1, 1)), "seed by seed"
    one, other = config.run(0, 1), config.run(1, 1)
    assert one.steps == other.steps == config.base.steps and one.seed == 1 and not one.finish_early
    assert [run.model.attention.score.key for run in (one, other)] == ["dot", "general"]
    assert replace(one, model=other.model) == other
    run = sweep_config(equal="seconds", seconds=3.0).run(0, 0)
    assert (run.max_train_seconds, run.steps, run.schedule) == (3.0, 20_000, "constant")
    swept = sweep_config(equal="seconds", axis="schedule", values=("cosine", "constant"))
    assert swept.run(0, 0).schedule == "cosine", "what is varied is varied"


@each(
    ("axis", "value", "read", "expected"),
    [
        (
            "d_model",
            16,
            lambda run: (run.model.d_model, run.model.attention.d_model, run.model.d_ff),
            (16, 16, 32),
        ),
        ("num_heads", 4, lambda run: (run.model.num_heads, run.model.attention.num_heads), (4, 4)),
        ("dropout", 0.2, lambda run: (run.model.dropout, run.model.attention.dropout), (0.2, 0.2)),
        ("layers", 2, lambda run: (run.model.layers, run.model.d_ff), (2, 16)),
        ("learning_rate", 1e-4, lambda run: run.learning_rate, 1e-4),
        ("task.length", 7, lambda run: run.task["length"], 7),
        ("kind", "recurrent", lambda run: (run.model.kind, run.steps), ("recurrent", 4)),
    ],
)
def test_what_a_value_changes(axis, value, read, expected):
    run = vary(small_run(), axis, value)
    assert read(run) == expected
    buildable(run)


def test_a_whole_mechanism_takes_the_models_sizes_and_none_is_one():
    base = small_run(model=ModelConfig.recurrent(8))
    changed = vary(base, "attention", preset("luong_general").config(64, 1)).model.attention
    assert (changed.score.key, changed.d_model) == ("general", 8)
    assert vary(base, "attention", None).model.attention is None


@each(
    ("changes", "words"),
    [
        ({"values": ("dot",)}, "2 to 8 values"),
        ({"values": ("dot", "dot")}, "twice"),
        ({"seeds": (3,)}, "2 to 10 seeds"),
        ({"seeds": (3, 3)}, "twice"),
        ({"values": ("dot", "nonsense")}, "nonsense"),
        ({"axis": "colour"}, "axis = 'colour'"),
        ({"axis": "task.colour"}, "task.length"),
        ({"axis": "num_heads", "values": (2, 3)}, "Heads = 3 is not possible"),
        ({"axis": "d_model", "values": (8, {"x": 1})}, "expected a number"),
        ({"axis": "learning_rate", "values": (1e-3, 50.0)}, "from 1e-06 to 1"),
        ({"equal": "luck"}, "seconds, steps"),
        ({"seeds": (0, "one")}, r"seeds\[1\] = .one.; expected a whole number"),
        ({"axis": "layers", "values": (1, 2, 3, 4, 5, 6, 7), "seeds": tuple(range(10))}, "70 runs"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_words(changes, words):
    with pytest.raises(ConfigError, match=words):
        sweep_config(**changes)


def test_sixty_runs_are_a_sweep_and_no_setting_is_a_whole_task_or_model():
    most = sweep_config(axis="layers", values=(1, 2, 3, 4, 5, 6), seeds=tuple(range(10)))
    assert len(most.cells) == 60
    for name in ("task", "model"):
        with pytest.raises(ConfigError, match=f"axis = '{name}'"):
            with_settings(small_run(), {name: 1})


@each(
    "config",
    [
        small_run(learning_rate=np.float64(0.01)),
        sweep_config(),
        sweep_config(values=(Choice.of("dot"), "additive")),
        sweep_config(axis="d_model", values=(8, 16)),
        SweepConfig(
            small_run(model=ModelConfig.recurrent(8)),
            "attention",
            (None, preset("luong_dot").config(8, 1)),
        ),
        small_run(seed=7, schedule="constant", learning_rate=2e-3),
    ],
)
def test_to_json_and_back(config):
    assert type(config).from_json(json.loads(json.dumps(config.to_json()))) == config


@each(
    ("kind", "data", "word"),
    [
        (SweepConfig, 3, r"\w"),
        (SweepConfig, {}, r"\w"),
        (SweepConfig, {"base": {}}, r"\w"),
        (SweepConfig, {"base": {}, "axis": "score", "values": "dot"}, r"\w"),
        (SweepConfig, {**sweep_config().to_json(), "more": 1}, r"\w"),
        (RunConfig, None, "object"),
        (RunConfig, [], "object"),
        (RunConfig, {}, "model and task"),
        (RunConfig, {"task": {}, "model": {}, "speed": 1}, "speed"),
    ],
)
def test_what_is_no_config_says_why(kind, data, word):
    with pytest.raises(ConfigError, match=word):
        kind.from_json(data)


def test_values_in_words():
    window = sweep_config(axis="mask", values=("local", {"key": "local", "window": 3})).values
    luong = preset("luong_dot")
    for axis, value, text in (
        ("score", None, "No attention"),
        ("tied", True, "yes"),
        ("d_model", 16, "16"),
        ("position", Choice("rope"), "RoPE"),
        ("schedule", "inverse_sqrt", "inverse sqrt"),
        ("attention", luong.config(8, 1), luong.name),
        ("mask", window[0], "Local window"),
        ("mask", window[1], "Local window (window 3)"),
    ):
        assert value_text(axis, value) == text
    assert (
        name_of("task.length", small_run().task) == "Length" and name_of("score") in FIELDS.values()
    )


def test_a_pattern_is_a_setting_of_a_decoder():
    base = recommended(make_task(TaskConfig.of("recall")), "decoder")
    models = [vary(base, "pattern", key).model for key in ("same", "gpt_oss", "minimax")]
    assert [len(set(model.pattern)) for model in models] == [1, 2, 2]
    assert len(models[2].pattern) == 8 and value_text("pattern", "gpt_oss").startswith("gpt-oss")
    two = replace(base, model=models[1])
    masked = vary(two, "score", Choice("cosine")).model.pattern
    assert [one.score.key for one in masked] == ["cosine"] * 2 and len(set(masked)) == 2
    assert len(vary(two, "attention", models[0].attention).model.pattern) == 1
    with pytest.raises(ConfigError, match="pattern = 'gpt9'; take same or one of"):
        vary(base, "pattern", "gpt9")


def recorded(config: SweepConfig, cell, state="finished") -> Run:
    """A run of that cell as a worker leaves it: two records, the last twice, once over more items."""
    run = create_run(config.run(*cell))
    for step, exact, final in ((0, 0.0, False), (4, 0.5, False), (4, 0.25 * (1 + cell[1]), True)):
        run.append(
            Record(
                step,
                loss=2.0,
                sequence_accuracy=exact,
                expected=((0.1, 0.7),),
                even=0.2,
                train_seconds=step / 2,
                held_out=1000 if final else 11,
                final=final,
                elapsed=step,
            )
        )
    run.set_status(state, "Said.")
    return run


def test_outcomes_come_from_the_runs_and_outlive_them(tmp_path):
    config = sweep_config()
    sweep, runs = create_sweep(config), {cell: recorded(config, cell) for cell in config.cells[:2]}
    sweep.add_runs(runs)
    outcomes = sweep.outcomes()
    first = outcomes[0, 0]
    assert Outcome.from_json(json.loads(json.dumps(vars(first)))) == first
    assert first.last("sequence_accuracy") == 0.25, "the final record, not the one before it"
    assert (first.last("expected"), first.steps, first.held_out) == (0.7, (0, 4), 1000)
    for run in runs.values():
        (run.path / "run.json").unlink()
    assert Sweep(sweep.path).outcomes() == outcomes and not sweep.runs()


def test_what_has_not_finished_tells_no_end_and_is_missing():
    config = sweep_config()
    sweep, cells = create_sweep(config), config.cells
    states = dict(zip(cells, ("finished", "running", "stopped", "failed"), strict=True))
    sweep.add_runs({cell: recorded(config, cell, state) for cell, state in states.items()})
    outcomes = sweep.outcomes()
    for cell, state in states.items():
        assert (outcomes[cell].last("sequence_accuracy") is None) == (state != "finished")
    assert outcomes[cells[1]].points("sequence_accuracy") and not outcomes[cells[1]].ended
    assert sweep.missing() == [cells[2], cells[3]]


def test_a_deleted_run_is_lost_until_it_is_begun_anew_and_a_broken_file_is_told(tmp_path):
    config = sweep_config()
    broken = Sweep(tmp_path / "broken.json")
    broken.path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError):
        broken.config()
    assert broken.outcomes() == {}
    sweep = create_sweep(config)
    sweep.add_runs({config.cells[0]: Run(Path("/nowhere/20200101-000000-abcdef"))})
    assert sweep.outcomes()[config.cells[0]].state == "lost" and sweep.missing() == list(
        config.cells
    )
    sweep.add_runs({config.cells[0]: recorded(config, config.cells[0])})
    assert sweep.outcomes()[config.cells[0]].state == "finished"


def test_sweeps_are_found_by_name_and_few_are_kept(monkeypatch, tmp_path):
    sweeps = [create_sweep(sweep_config()) for _ in range(3)]
    assert find_sweep(sweeps[0].id) == sweeps[0] and sorted(s.id for s in sweeps) == [
        s.id for s in list_sweeps()
    ]
    for name in (None, "../../etc/passwd", "20200101-000000-abcdef", "x"):
        assert find_sweep(name) is None
    delete_sweep(sweeps[0])
    assert find_sweep(sweeps[0].id) is None and len(list_sweeps()) == 2
    monkeypatch.setattr("core.runs.sweeps.MAX_SWEEPS", 2)
    assert create_sweep(sweep_config()) in list_sweeps() and len(list_sweeps()) == 2


def sweep_words(folder: Path) -> list[str]:
    (folder / "run.json").write_text(json.dumps(small_run().to_json()), encoding="utf-8")
    words = "--axis d_model --values 8 16 --seeds 0 1 --to".split()
    return ["sweep", str(folder / "run.json"), *words, str(folder / "sweep.json")]


def test_a_shell_trains_a_sweep_and_goes_on_with_it(folder, capsys, monkeypatch):
    """Two values from two seeds; a run that is lost is all that the second call trains, in a process of its own."""
    monkeypatch.setattr(loop, "FINAL", FINAL)  # as that process has it
    turn, saved = threading.Lock(), folder / "sweep.json"

    def work_here(run: Run) -> SimpleNamespace:
        with turn:  # a seed is that of all threads
            worker.work(run.path)
        return SimpleNamespace(wait=lambda: None)

    with monkeypatch.context() as patch:
        patch.setattr(sweeps, "executor", lambda: SimpleNamespace(start=work_here))
        assert main([*sweep_words(folder), "--workers", "2"]) == 0
    output, sweep = capsys.readouterr().out, Sweep(saved)
    assert "4 runs to train" in output and output.count("2 of 2 seeds") == 2
    first = sweep.outcomes()
    assert {outcome.state for outcome in first.values()} == {"finished"} and sweep.missing() == []
    data = sweep.data()
    del data["outcomes"]["1:1"], data["runs"]["1:1"]
    saved.write_text(json.dumps(data), encoding="utf-8")
    assert main(["sweep", str(saved)]) == 0 and "1 runs to train" in capsys.readouterr().out
    assert sweep.outcomes()[1, 1].measures == first[1, 1].measures, (
        "the same seed, the same numbers"
    )
    lines = summary(sweep)
    assert lines[0].startswith("8:  2 of 2 seeds  ") and "  loss " in lines[0]
    assert lines[-1].startswith("8 - 16: ") and "  n 2  " in lines[-1]


def test_an_interrupted_sweep_stops_its_workers_and_is_no_success(tmp_path, monkeypatch):
    stopped = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    def start(run: Run) -> SimpleNamespace:
        return SimpleNamespace(wait=interrupted, terminate=lambda: stopped.append(run.id))

    monkeypatch.setattr(sweeps, "executor", lambda: SimpleNamespace(start=start))
    assert main([*sweep_words(tmp_path), "--workers", "1"]) != 0 and len(stopped) == 1


@each(
    "change, word",
    [
        ({"steps": 0}, "steps = 0"),
        ({"steps": 20_001}, "20001"),
        ({"steps": 2.5}, "whole number"),
        ({"steps": True}, "whole number"),
        ({"learning_rate": math.nan}, "learning_rate = nan"),
        ({"learning_rate": "fast"}, "'fast'"),
        ({"max_seconds": 1e9}, "max_seconds"),
        ({"device": "abacus"}, "auto, cpu, cuda, mps"),
        ({"optimizer": "prayer"}, "adamw"),
        ({"schedule": "steep"}, "cosine"),
        ({"finish_early": "yes"}, "finish_early = 'yes'; expected true or false"),
        ({"precision": "int4"}, "bf16, fp32"),
        ({"label_smoothing": 0.9}, "0 to 0.5"),
        ({"weight_decay": -1.0}, "0 to 1"),
        ({"patience": 1.5}, "whole number"),
        ({"checkpointing": 1}, "true or false"),
        (
            {"checkpointing": True, "model": ModelConfig.recurrent(8)},
            "kind = recurrent has no layers",
        ),
    ],
)
def test_what_cannot_run_is_refused_in_words(change, word):
    with pytest.raises(ConfigError, match=word):
        small_run(**change)


def test_only_devices_that_are_there_and_automatic_is_cuda_where_it_is(monkeypatch):
    assert devices()[:2] == ("auto", "cpu")
    for missing in {"cuda", "mps"} - set(devices()):
        with pytest.raises(ConfigError, match=missing):
            resolve_device(missing)
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert resolve_device("auto") == device and ("cuda" in devices()) == there


# The shell's command: a recipe to a file, a file to a run, a run further; mistakes end in one sentence.


FRUIT = "size;colour;kind\n" + "\n".join(
    f"{3 + i % 7},5;{'red' if i % 2 else 'green'};{'apple' if i % 2 else 'lime'}" for i in range(60)
)


@pytest.fixture
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


def test_a_strangers_table_becomes_a_run_that_is_trained_longer_and_listed(folder, capsys):
    (folder / "fruit.csv").write_text(FRUIT, encoding="utf-8")
    words = ["--data", str(folder / "fruit.csv"), "--set", "label=kind"]
    assert main(["recipe", "own_table", *words]) == 0
    config = json.loads(capsys.readouterr().out)
    assert config["task"]["params"]["data"].startswith("size;colour;kind")
    assert config["model"]["kind"] == "classifier"
    run = find_run(trained(folder, config | {"steps": 60, "record_every": 30}))
    assert run.status().state == "finished" and run.records()[-1].sequence_accuracy == 1.0, (
        "the colour gives the kind away"
    )
    output = capsys.readouterr().out
    assert f"?run={run.id}" in output and "step 60/60" in output and "About " in output
    assert "sequence accuracy 1.000" in output
    assert main(["resume", run.id, "--steps", "64"]) == 0
    assert run.config().steps == run.records()[-1].step == 64
    capsys.readouterr()
    assert main(["list"]) == 0
    assert capsys.readouterr().out.split("\t")[:3] == [run.id, "finished", "step 64"]


def test_a_table_in_windows_1252_with_columns_put_back(folder, capsys):
    rows = "".join(f"{3 * i};{i % 5},5;Höhe;{1 + i % 28}.3.2020;{'ab'[i % 2]}\n" for i in range(40))
    (folder / "old.csv").write_bytes(f"id;Größe;Maß;Tag;Art\n{rows}".encode("cp1252"))
    arguments = ["recipe", "own_table", "--data", str(folder / "old.csv")]
    for one in ("columns=Größe,1,Tag", "label=5", "dates=numbers"):
        arguments += ["--set", one]
    assert main(arguments) == 1 and "encoding cp1252" in capsys.readouterr().err
    assert main([*arguments, "--encoding", "cp1252"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["task"]["params"]["columns"] == "Größe,1,Tag"
    for words in ("Left out: Maß (not chosen).", "With decimal commas: Größe."):
        assert words in output.err


def test_a_published_model_in_small_is_a_recipe(capsys):
    assert main(["card", "gpt_oss"]) == 0
    config = RunConfig.from_json(json.loads(capsys.readouterr().out))
    assert config.model.layer_names == ("causal local", "causal") and config.task.key == "recall"
