"""What a sweep varies and what it refuses, its file and its shell; what a run will take; means, intervals and bands."""

import ast
import json
import math
import re
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st
from scipy import stats
from scipy.special import expit, logit
from scipy.stats import ttest_ind, ttest_rel

from core.attention import AttentionConfig, Choice, ConfigError, preset
from core.files import runs_folder
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
from core.studies.runs import SweepData
from core.tasks import TaskConfig, make_task, task_of
from core.threads import num_threads
from core.training import (
    Record,
    RunConfig,
    devices,
    diagnosis as estimating,
    recommended,
    train,
)
from core.training.__main__ import main
from core.training.config import resolve_device
from core.training.seed_stats import (
    LEVEL,
    UNITS,
    SeedStats,
    compare,
    line,
    mean_interval,
    seed_stats,
)
from core.training.sweeps import (
    FIELDS,
    SweepConfig,
    buildable,
    name_of,
    value_text,
    vary,
    with_settings,
)
from dashboard.draw import sweeps as draw
from tests.cases import each
from tests.training.small import small_run


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
    many = sweep_config(axis="layers", values=(1, 2, 3, 4, 5, 6, 7), seeds=tuple(range(10)))
    assert len(many.cells) == 70
    one, other = config.run(0, 1), config.run(1, 1)
    assert one == replace(
        config.base,
        model=one.model,
        seed=1,
        finish_early=False,
        num_examples=1,
        max_seconds=3_600,
        max_train_seconds=3_600,
    )
    assert [run.model.attention.score.key for run in (one, other)] == ["dot", "general"]
    assert replace(one, model=other.model) == other
    run = sweep_config(base=small_run(patience=3), equal="seconds", seconds=3.0).run(0, 0)
    ends = run.max_train_seconds, run.steps, run.schedule, run.patience, run.record_every
    assert ends == (3.0, 20_000, "constant", 0, 20)
    level = sweep_config(base=small_run(min_rate=0.0), equal="seconds")
    assert level.run(0, 0).min_rate == 0.1, "a constant rate has no least one"
    swept = sweep_config(equal="seconds", axis="schedule", values=("cosine", "constant"))
    assert swept.run(0, 0).schedule == "cosine", "what is varied is varied"


TWO: dict[str, Any] = {"second": "learning_rate", "second_values": (1e-3, 3e-2)}


def test_two_axes_are_every_combination_or_one_for_each():
    def rates(config):
        runs = [config.run(index, 0) for index in range(len(config.names))]
        return [(run.model.attention.score.key, run.learning_rate) for run in runs]

    every = sweep_config(**TWO)
    assert rates(every) == [("dot", 1e-3), ("dot", 3e-2), ("general", 1e-3), ("general", 3e-2)]
    assert len(every.cells) == 8 and every.names[1] == "Dot product, 0.03"
    each_its_own = sweep_config(**TWO, paired=True)
    assert rates(each_its_own) == [("dot", 1e-3), ("general", 3e-2)]
    for config in (every, each_its_own):
        assert SweepConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    for alone in ({"paired": True}, {"second_values": (1e-3, 3e-2)}):
        with pytest.raises(ConfigError, match="are of a second setting"):
            sweep_config(**alone)
    kinds = sweep_config(axis="learning_rate", values=(1e-3, 2e-3), second="kind",
                         second_values=("transformer", "decoder"))  # fmt: skip
    assert kinds.run(3, 0).learning_rate == 2e-3, "a kind's own recipe does not replace it"


def test_a_sweep_may_stop_early():
    ends = [
        (run.finish_early, run.patience)
        for early, patience in ((False, 3), (True, 3), (True, 0))
        for run in [sweep_config(base=small_run(patience=patience), early=early).run(0, 0)]
    ]
    assert ends == [(False, 0), (True, 3), (True, 10)]


def test_of_two_axes_the_best_of_each_are_compared():
    config = sweep_config(**TWO, seeds=(0, 1, 2))
    losses = [(0.9, 0.8, 0.7), (0.3, 0.2, 0.25), (0.5, 0.55, 0.45), (0.6, 0.9, 0.7)]
    outcomes = {
        (index, seed): Outcome("finished", "", (4,), (1.0,), {"loss": (loss,)})
        for index, of in enumerate(losses)
        for seed, loss in enumerate(of)
    }
    assert sweeps.best_of_each(config, outcomes, "loss") == [1, 2]
    assert sweeps.best_of_each(config, {}, "loss") == [0, 2]
    (pair,) = sweeps.sweep_comparisons(config, outcomes, "loss")
    assert {pair.first, pair.second} == {1, 2}
    data = SweepData(Sweep(Path("x.json")), config, outcomes)
    head, rows = draw.table_text(data, "loss")
    assert head == ["Score × Learning rate", "0.001", "0.03"]
    assert [row[0] for row in rows] == ["Dot product", "General"]
    assert rows[0][2].startswith("0.25") and rows[1][1].startswith("0.5")
    end = sweeps.at_the_end(config, outcomes, "loss")
    assert "Dot product, 0.03; General, 0.001. One beyond it" in end
    assert end in draw.caption_text(data, "loss", "steps")
    assert not sweeps.at_the_end(config, {}, "loss")
    claim = sweeps.SweepClaim(config, 1, 2, "loss", 0.1)
    (text,) = re.findall(r"SWEEP = SweepConfig.from_json\(json.loads\((.*)\)\)", claim.file())
    written = SweepConfig.from_json(json.loads(ast.literal_eval(text)))
    assert written.names == ["Dot product, 0.03", "General, 0.001"]
    assert written.run(0, 5) == config.run(1, 5)


def test_steps_are_timed_on_as_many_threads_as_a_run_has(monkeypatch):
    threads, step = [], estimating.one_step

    def timed(*given):
        threads.append(torch.get_num_threads())
        return step(*given)

    monkeypatch.setattr(estimating, "one_step", timed)
    with num_threads(2):
        estimating.pace(small_run(), task_of(small_run().task))
        assert torch.get_num_threads() == 2
    assert {*threads} == {1}


def test_a_sweep_says_how_long_it_takes(monkeypatch):
    monkeypatch.setattr(estimating, "estimate", lambda run: 1000 * run.learning_rate)
    config = sweep_config(**TWO)
    assert estimating.sweep_seconds(config, workers=2) == pytest.approx(2 * (1 + 30) * 2 / 2)
    assert estimating.sweep_seconds(config, timed=1) == pytest.approx(1 * 8)
    seconds = sweep_config(equal="seconds", seconds=5.0)
    assert estimating.sweep_seconds(seconds) == 5.0 * 4


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
        ("d_ff", 0, lambda run: vary(run, "d_model", 4).model.d_ff, 0),
        ("d_ff", 3, lambda run: vary(run, "d_model", 2).model.d_ff, 1),
        ("learning_rate", 1e-4, lambda run: run.learning_rate, 1e-4),
        ("task.length", 7, lambda run: run.task["length"], 7),
        ("kind", "recurrent", lambda run: (run.model.kind, run.steps), ("recurrent", 4)),
    ],
)
def test_what_a_value_changes(axis, value, read, expected):
    run = vary(small_run(), axis, value)
    assert read(run) == expected
    buildable(run)


def test_whole_mechanism_takes_models_sizes_and_none_is_one():
    base = small_run(model=ModelConfig.recurrent(8))
    changed = vary(base, "attention", preset("luong_general").config(64, 1)).model.attention
    assert (changed.score.key, changed.d_model) == ("general", 8) and vary(
        base, "attention", None
    ).model.attention is None


REFUSED: list = [
    *(
        (lambda changes=changes: sweep_config(**changes), words)
        for changes, words in (
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
            ({"second": "score", "second_values": ("dot", "cosine")}, "two settings .* differ"),
            ({"second": "learning_rate", "second_values": (1e-3,)}, "2 to 8 second values"),
            ({"second": "colour", "second_values": (1, 2)}, "axis = 'colour'"),
            (
                {"second": "learning_rate", "second_values": (1e-3, 50.0)},
                "Score and Learning rate = Dot product, 50 is not possible",
            ),
            (
                {"second": "learning_rate", "second_values": (1e-3,), "paired": True},
                "With “One for each value”, 2 values need 2 of Learning rate; there are 1",
            ),
        )
    ),
    *(
        (
            lambda name=name: with_settings(small_run(), {name: 1}),
            f"setting = '{name}'; take one of steps",
        )
        for name in ("task", "model")
    ),
    *(
        (partial(Outcome.from_json, {"state": "finished", **data}), words)
        for data, words in (
            ({"state": "good"}, "no state 'good'"),
            ({"steps": [0]}, "columns of different lengths"),
            ({"steps": [0], "train_seconds": [0], "measures": {"loss": []}}, "different lengths"),
            ({"steps": [0], "train_seconds": [0], "measures": {"x": [0.5]}}, "no such 'x'"),
            ({"steps": [0], "train_seconds": [0], "measures": {"loss": [-0.5]}}, "no such 'loss'"),
            (
                {"steps": [0], "train_seconds": [0], "measures": {"expected": [2]}},
                "no such 'expected'",
            ),
        )
    ),
    *(
        (partial(SweepConfig.from_json, data), r"\w")
        for data in list[Any](
            (
                3,
                {},
                {"base": {}},
                {"base": {}, "axis": "score", "values": "dot"},
                {**sweep_config().to_json(), "more": 1},
            )
        )
    ),
    *(
        (partial(RunConfig.from_json, data), words)
        for data, words in (
            (None, "object"),
            ([], "object"),
            ({}, "model and task"),
            ({"task": {}, "model": {}, "speed": 1}, "speed"),
        )
    ),
]


@each(("ask", "words"), REFUSED)
def test_what_cannot_be_swept_or_read_is_refused_in_words(ask, words):
    pytest.raises(ConfigError, ask).match(words)


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


def test_values_in_words():
    window = sweep_config(axis="mask", values=("local", {"key": "local", "window": 3})).values
    luong = preset("luong_dot")
    for axis, value, text in (
        ("score", None, "No attention"),
        ("tied", True, "yes"),
        ("tied", False, "no"),
        ("learning_rate", 1e-4, "0.0001"),
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
    pytest.raises(ConfigError, vary, base, "pattern", "gpt9").match(
        "pattern = 'gpt9'; take same or one of"
    )


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
    assert first == Outcome(
        "finished",
        "Said.",
        steps=(0, 4),
        train_seconds=(0.0, 2.0),
        measures={
            "sequence_accuracy": (0.0, 0.25),
            "loss": (2.0, 2.0),
            "expected": (0.7, 0.7),
        },
        held_out=1000,
        even=0.2,
        elapsed=4.0,
    )
    assert Outcome.of(create_run(small_run())) == Outcome("queued")
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
    assert sweep.pending() == [sweep.runs()[cell].id for cell in (cells[1], cells[2])]


def test_a_deleted_run_is_lost_until_it_is_begun_anew(tmp_path):
    config = sweep_config()
    broken = Sweep(tmp_path / "broken.json")
    broken.path.write_text("{", encoding="utf-8")
    pytest.raises(ConfigError, broken.config)
    assert broken.outcomes() == {} and broken.pending() == []
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
    assert [path.name for path in runs_folder().iterdir()] == ["sweeps"], "no store is told"


def train_sweep(folder: Path, workers: int) -> int:
    """What the shell ends with that trains two values from two seeds."""
    file = folder / "run.json"
    file.write_text(json.dumps(small_run().to_json()), encoding="utf-8")
    words = f"--axis d_model --values 8 16 --seeds 0 1 --workers {workers} --to".split()
    return main(["sweep", str(file), *words, str(folder / "sweep.json")])


def test_a_shell_trains_a_sweep_and_goes_on_with_it(folder, capsys, monkeypatch):
    turn, saved = threading.Lock(), folder / "sweep.json"

    def work_here(run: Run) -> SimpleNamespace:
        with turn:  # a seed is that of all threads
            worker.work(run.path)
        return SimpleNamespace(wait=lambda: None)

    monkeypatch.setattr(sweeps, "executor", lambda: SimpleNamespace(start=work_here))
    assert train_sweep(folder, 2) == 0
    output, sweep = capsys.readouterr().out, Sweep(saved)
    assert "4 runs to train" in output and output.count("2 of 2 seeds") == 2
    first = sweep.outcomes()
    assert {outcome.state for outcome in first.values()} == {"finished"} and sweep.missing() == []
    data = sweep.data()
    del data["outcomes"]["1:1"], data["runs"]["1:1"]
    saved.write_text(json.dumps(data), encoding="utf-8")
    assert (
        main(["sweep", str(saved)]) == 0
        and "1 runs to train, 1 at a time" in capsys.readouterr().out
    )
    assert sweep.outcomes()[1, 1].measures == first[1, 1].measures, (
        "the same seed, the same numbers"
    )
    with pytest.raises(ConfigError, match="goes on as it is: leave out seeds, steps, to"):
        sweeps.start(str(saved), {"seeds": [0, 1, 2]}, folder / "other.json", {"steps": 5})
    lines = summary(sweep)
    assert lines[0].startswith("8:  2 of 2 seeds  ") and "  loss " in lines[0]
    assert lines[-1].startswith("8 - 16: ") and "  n 2  " in lines[-1]


def test_an_interrupted_sweep_stops_its_workers(tmp_path, monkeypatch):
    worker = Mock(**{"wait.side_effect": KeyboardInterrupt})
    monkeypatch.setattr(sweeps, "executor", lambda: Mock(**{"start.return_value": worker}))
    assert train_sweep(tmp_path, 1) != 0
    worker.terminate.assert_called_once_with()


@each(
    "change, word",
    [
        ({"steps": 0}, "steps = 0"),
        ({"steps": 100_001}, "100001"),
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
        (
            {"optimizer": "sgd", "beta2": 0.9},
            "optimizer = sgd does not read beta2; leave it at 0.999",
        ),
        (
            {"schedule": "constant", "min_rate": 0.0},
            "schedule = constant does not read min_rate",
        ),
        (
            {"initialization": "gpt2", "model": ModelConfig.recurrent(8)},
            "kind = recurrent does not read initialization",
        ),
    ],
)
def test_what_cannot_run_is_refused_in_words(change, word):
    pytest.raises(ConfigError, small_run, **change).match(word)


def test_only_devices_that_are_there(monkeypatch):
    assert devices()[:2] == ("auto", "cpu")
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert resolve_device("auto") == device and ("cuda" in devices()) == there
    pytest.raises(ConfigError, resolve_device, "cuda").match("cuda")


# The shell's command: a recipe to a file, a file to a run, a run further; mistakes end in one sentence.


FRUIT = "size;colour;kind\n" + "\n".join(
    f"{3 + i % 7},5;{'red' if i % 2 else 'green'};{'apple' if i % 2 else 'lime'}" for i in range(60)
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    # the tests' own process holds more than a worker would
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "memory_mb=100000")
    return tmp_path


def trained(folder, config) -> str:
    file = folder / "asked.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    assert main(["train", str(file)]) == 0
    return list_runs()[-1].id


def test_strangers_table_becomes_run_that_is_trained_longer(folder, capsys):
    (folder / "fruit.csv").write_text(FRUIT, encoding="utf-8")
    words = ["--data", str(folder / "fruit.csv"), "--set", "label=kind"]
    assert main(["recipe", "own_table", *words]) == 0
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
    assert f"?run={run.id}" in output and "step 60/60" in output and "About " in output
    assert "sequence accuracy 1.000" in output and main(["resume", run.id, "--steps", "64"]) == 0
    assert run.config().steps == run.records()[-1].step == 64
    capsys.readouterr()
    assert main(["list"]) == 0
    line = capsys.readouterr().out.split("\t")
    assert line[:3] == [run.id, "finished", "own_table"] and "step 64" in line


def test_a_table_in_windows_1252(folder, capsys):
    rows = "".join(f"{3 * i};{i % 5},5;Höhe;{1 + i % 28}.3.2020;{'ab'[i % 2]}\n" for i in range(40))
    (folder / "old.csv").write_bytes(f"id;Größe;Maß;Tag;Art\n{rows}".encode("cp1252"))
    arguments = ["recipe", "own_table", "--data", str(folder / "old.csv")]
    for one in ("columns=Größe,1,Tag", "label=5", "dates=numbers"):
        arguments += ["--set", one]
    assert main(arguments) == 1 and "encoding cp1252" in capsys.readouterr().err
    assert main([*arguments, "--encoding", "cp1252"]) == 0
    output = capsys.readouterr()
    assert (
        '\n   "columns": "Größe,1,Tag"' in output.out
        and "Left out: Maß (not chosen)." in output.err
    )
    assert "With decimal commas: Größe." in output.err and main(["card", "gpt_oss"]) == 0
    printed = capsys.readouterr().out
    config = RunConfig.from_json(json.loads(printed))
    assert config.model.layer_names == ("causal local", "causal") and config.task.key == "recall"
    assert printed == json.dumps(config.to_json(), indent=1) + "\n"


def findings_of(config: RunConfig) -> dict[str, str]:
    records: list[Record] = []
    with suppress(FloatingPointError):
        records.extend(train(config))
    findings = estimating.diagnose(records, config, make_task(config.task).baseline_loss, "")
    return {one.key: f"{one.text} {one.advice}" for one in findings}


def falling(count: int = 12, start: float = 3.0) -> list[Record]:
    return [
        Record(
            10 * i,
            train_loss=start * 0.8**i,
            loss=start * 0.8**i,
            gradient=0.5,
            gradients={"a": 0.3, "b": 0.4},
            data_share=0.02,
        )
        for i in range(count)
    ]


BASE = small_run(steps=200)


def keys(records: list[Record], config: RunConfig = BASE, failed: str = "") -> set[str]:
    return {one.key for one in estimating.diagnose(records, config, 3.0, failed)}


def test_a_run_that_learns_hears_nothing():
    assert findings_of(small_run(steps=120, record_every=10, learning_rate=5e-3)).keys() <= {
        "starving"
    }
    assert all(keys(falling(n)) == set() for n in range(13))


@each(
    ("key", "words", "changes"),
    [
        (
            "rate_dead",
            "1e-06 is small for AdamW",
            dict(steps=80, record_every=8, learning_rate=1e-6),
        ),
        # At 24 steps the loss of five seeds was 5.6 to 9.3 and guessing costs 2.8; later it falls to guessing.
        (
            "rate_high",
            "large for AdamW",
            dict(steps=24, record_every=3, learning_rate=1.0, schedule="constant"),
        ),
    ],
)
def test_a_learning_rate_that_is_too_small_or_too_large(key, words, changes):
    findings = findings_of(small_run(**changes))
    assert words in findings[key] and (key != "rate_dead" or set(findings) == {key})


def test_a_lost_loss_and_overfitting():
    wild = dict(learning_rate=1.0, optimizer="sgd", clip=1e9, schedule="constant")
    findings = findings_of(small_run(steps=80, record_every=2, **wild))
    assert {"diverged", "exploding", "rate_high"} & findings.keys()
    (lost,) = estimating.diagnose(falling(3), BASE, 3.0, "The loss is no longer a number at step 3")
    assert lost.text == "The loss is no longer a number; the last one measured was 1.92 at step 20."
    iris = recommended(make_task(TaskConfig.of("iris")), "classifier", learning_rate=1e-2)
    assert "memorizes its examples" in findings_of(iris)["overfitting"]


def changed(*steps: int, **values: Any) -> list[Record]:
    return [replace(r, **values) if i in steps or not steps else r for i, r in enumerate(falling())]


def lossy(*losses: float) -> list[Record]:
    # Records whose training loss falls.
    return [Record(10 * i, loss=one, train_loss=9 - i / 9) for i, one in enumerate(losses)]


SLOW = [replace(r, loss=2.9 - 0.05 * i) for i, r in enumerate(falling())]
STILL = [replace(r, loss=3.0) for r in falling()]
WORSE = [replace(r, loss=3.0 + (r.step > 0)) for r in STILL]
OVERFITS = falling(6) + [
    Record(60 + 10 * i, train_loss=0.5 - 0.1 * i, loss=1.5 + 0.1 * i, gradient=0.5)
    for i in range(3)
]


@each(
    ("records", "expected", "config"),
    [
        *(
            (*row, BASE)
            for row in (
                (changed(9, gradient=80.0), {"exploding"}),
                (changed(9, gradient=3.0), set()),
                # Above thirty times the usual 0.5, and above the clip of 1; not before there is a usual one.
                (changed(9, gradient=20.0), {"exploding"}),
                (changed(9, gradient=15.0), set()),
                (changed(3, gradient=80.0), set()),
                (changed(4, gradient=80.0), {"exploding"}),
                (
                    [replace(r, gradient=5.0 if r.step == 90 else 0.01) for r in falling()],
                    {"exploding"},
                ),
                ([replace(r, gradient=1.0 if r.step == 90 else 0.01) for r in falling()], set()),
                ([replace(r, gradient=1e-5) for r in SLOW], {"vanishing"}),
                ([replace(r, gradient=1.1e-5) for r in SLOW], set()),
                ([replace(r, gradient=1e-7 if r.step > 80 else 0.5) for r in SLOW], {"vanishing"}),
                ([replace(r, gradient=1e-7 if r.step > 90 else 0.5) for r in SLOW], set()),
                ([replace(r, gradient=1e-7) for r in lossy(3, 2.5, 2, 1.5, 1, 0.3)], set()),
                (
                    [replace(r, gradient=1e-7) for r in lossy(3, 2.5, 2, 1.5, 1, 0.31)],
                    {"vanishing"},
                ),
                # Three records in a row, of which one may not name the part.
                ([replace(r, gradients={"first": 9e-4, "last": 0.5}) for r in SLOW], set()),
                (
                    [
                        replace(
                            r, gradients={"last": 0.5} | ({"first": 1e-6} if r.step != 100 else {})
                        )
                        for r in SLOW
                    ],
                    {"fading"},
                ),
                *(
                    (
                        [
                            replace(
                                r, gradients={"first": 1e-6 if r.step > step else 0.3, "last": 0.5}
                            )
                            for r in SLOW
                        ],
                        told,
                    )
                    for step, told in ((80, {"fading"}), (90, set()))
                ),
                ([replace(r, gradients={"first": 1e-6, "last": 0.5}) for r in SLOW], {"fading"}),
                # A learned task may have no gradient left.
                (
                    changed(
                        *range(1, 12), loss=0.01, gradient=1e-7, gradients={"a": 1e-9, "b": 1e-7}
                    ),
                    set(),
                ),
                (changed(data_share=0.2), {"starving"}),
                (changed(9, 10, 11, data_share=0.5), {"starving"}),
                (changed(0, 1, 10, 11, data_share=0.5), set()),
                ([replace(r, gradients={"first": 5e-4, "last": 0.5}) for r in SLOW], {"fading"}),
                (OVERFITS, {"overfitting"}),
                # A tenth and 0.03 above the smallest loss, three records in a row, while the training loss falls.
                (lossy(3, 2.99, 2, 2.24, 2.24, 2.24), {"overfitting"}),
                (lossy(3, 2.99, 2, 2.1, 2.1, 2.24, 2.25), {"overfitting"}),
                (lossy(3, 2.99, 2, *[1.1 * 2 + 0.03] * 3), {"overfitting"}),
                (lossy(3, 2.99, 2, 2.22, 2.22, 2.22), set()),
                (lossy(3, 2.99, 2.5, 2, 2.3, 2.3), set()),
                (
                    [
                        *lossy(3, 2.99, 2.5, 2, 2.3, 2.3),
                        Record(60, loss=9.0, train_loss=0.1, final=True),
                    ],
                    set(),
                ),
                (
                    [
                        replace(r, train_loss=0.5 if r.step > 20 else 1.0)
                        for r in lossy(3, 2.99, 2, 2.24, 2.24, 2.24)
                    ],
                    {"overfitting"},
                ),
                (
                    [
                        replace(r, train_loss=max(1.0, 3.0 - r.step / 10))
                        for r in lossy(3, 2.99, 2, 2.24, 2.24, 2.24)
                    ],
                    set(),
                ),
                (lossy(1, 2, 2, 2, 2, 2), {"still"}),
                (lossy(3, 2.99, 2.91, 3.3, 3.3, 3.3), {"overfitting", "rate_high"}),
                (lossy(3, 2.99, 2.92, 3.3, 3.3, 3.3), {"rate_high"}),
                # A hundredth below the three records before, or three hundredths below the start and guessing.
                (lossy(3, 3, 3, 3, 3, 3, 2.975, 2.975, 2.975), {"still"}),
                (lossy(3, 3, 3, 3, 3, 3, 2.965, 2.965, 2.965), set()),
                (lossy(*[2.95] * 11, 3, 3, 2.99, 2.96, 2.96), set()),
                (lossy(200, *[100] * 5, 99, 99, 99), {"still"}),
                (lossy(3, *[2.92] * 8), {"still"}),
                (lossy(3, *[0.97 * 3] * 8), {"still"}),
                (lossy(3, *[2.9] * 8), set()),
                (lossy(5, *[2.92] * 8), {"still"}),
                (lossy(3, *[math.inf] * 8), set()),
                (STILL, {"still"}),
                # Too soon.
                *(
                    ([replace(r, gradient=1e9, loss=50.0) for r in falling(n)], set())
                    for n in (0, 1, 5)
                ),
            )
        ),
        *(
            (STILL, {key}, replace(BASE, **changes))
            for key, changes in (
                ("rate_high", {"learning_rate": 1e-2}),
                ("still", {"learning_rate": 9e-3}),
                ("rate_dead", {"learning_rate": 2e-4}),
                ("still", {"learning_rate": 3e-4}),
                ("rate_dead", {"learning_rate": 1e-2, "optimizer": "sgd"}),
                ("still", {"warmup": 89}),
            )
        ),
        (STILL, set(), replace(BASE, warmup=90)),  # a tenth of the run after its warm-up
        (WORSE, {"rate_high"}, replace(BASE, learning_rate=3e-4, optimizer="sgd")),
        (WORSE, {"rate_dead"}, replace(BASE, learning_rate=2e-4)),
    ],
)
def test_what_is_told_of_records(records, expected, config):
    assert keys(records, config) == expected


def test_words_name_the_part():
    fading = [replace(r, gradients={"first": 1e-6, "last": 0.5}) for r in SLOW]
    (one,) = estimating.diagnose(fading, BASE, 3.0)
    assert "first gets 2e-06" in one.text
    rises = [Record(60 + 10 * i, train_loss=2.0 + i, loss=2.0 + i, gradient=0.5) for i in range(4)]
    assert "overfitting" not in keys(falling(6) + rises)


def test_a_run_is_its_steps_its_records_and_its_end():
    task = make_task(TaskConfig.of("reverse", length=6, vocab=12))
    config = recommended(task, steps=100, record_every=10, decode_every=5)
    assert estimating.Pace(0.5, 0.01, 0.1).seconds(config, held_out=20, final=40) == pytest.approx(
        100 * 0.5 + 11 * 20 * 0.01 + 3 * 20 * 0.1 + 40 * 0.11
    )


@each(
    ("task", "kind"),
    [("own_pairs", "recurrent"), ("own_text", "decoder"), ("own_table", "classifier")],
)
def test_own_data_is_timed_and_nothing_random_moves(task, kind):
    made = make_task(TaskConfig.of(task))
    config = recommended(made, kind, batch_size=8)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    measurement = estimating.pace(config, made)
    assert torch.equal(before, torch.get_rng_state())
    assert measurement.step > 0 and measurement.teacher_forced > 0
    assert (measurement.free_running > 0) == (made.form == "pairs")
    assert estimating.estimate(config) > config.steps * 1e-5


def test_pace_is_fastest_of_each_as_moment_may_be_busy(monkeypatch):
    steps, others = iter(range(24, 0, -1)), iter((9.0, 5.0, 3.0, 3.5))

    def timed(run, repeat, number):
        return [number * seconds - i for seconds in [next(others)] for i in range(repeat)]

    monkeypatch.setattr(estimating, "timeit", lambda run, number: number * next(steps))
    monkeypatch.setattr(estimating, "repeat", timed)
    expected = estimating.Pace(4.5, 8 / 50, (2 + 0.5 / 10 * (6 + 1 - 2) + 4) / 50)
    assert estimating.pace(small_run(), make_task(small_run().task)) == expected


def test_a_model_that_is_too_large_to_be_timed_is_not_built(monkeypatch):
    config = recommended(make_task(TaskConfig.of("own_text")), "decoder")
    wide = AttentionConfig(512, 64, Choice.of("multi_head", head_dim=1024))
    sizes = {"d_model": 512, "num_heads": 64, "layers": 12}
    large = replace(config, model=config.model.with_attentions(lambda _: wide, **sizes))
    monkeypatch.setattr(estimating, "build_model", lambda *_: pytest.fail("it takes 50 GB"))
    assert "not measured. Timing this model would take about" in estimating.time_needed(large)


def test_a_page_times_again_what_is_a_minute_old(monkeypatch):
    own, other = (
        recommended(make_task(TaskConfig.of(task)), batch_size=8)
        for task in ("own_pairs", "reverse")
    )
    paced = Mock(return_value=estimating.Pace(60, 600, 6000))
    monkeypatch.setattr(estimating, "pace", paced)
    estimating._pace.cache_clear()
    for now, batch, times in ((1000.0, 8, 1), (1001.0, 8, 1), (1100.0, 8, 2), (1100.0, 9, 3)):
        monkeypatch.setattr(estimating.time, "monotonic", lambda now=now: now)
        assert "About 514.2 h for 50 steps" in estimating.time_needed(
            replace(own, batch_size=batch, steps=50, held_out=20)
        )
        assert paced.call_count == times
    assert not estimating.time_needed(other) and paced.call_count == 3
    estimating._pace.cache_clear()


def test_words_name_the_cap_that_would_end_it():
    config = recommended(make_task(TaskConfig.of("own_pairs")), steps=1000, max_seconds=100.0)
    about = "About {} for 1,000 steps, measured from a few steps on this machine.".format
    capped = (
        " The time limit of 2 min would end it near step {}: allow more seconds, or take a smaller model."
    ).format
    assert [
        estimating.in_words(replace(config, patience=waits), seconds)
        for waits, seconds in ((0, 80.0), (0, 100.0), (0, 400.0), (0, 1e9), (3, 80.0))
    ] == [
        about("80 s"),
        about("2 min"),
        about("7 min") + capped(250),
        about("277777.8 h") + capped(1),
        about("80 s") + " It stops earlier if 3 records in a row bring no smaller validation loss.",
    ]
    durations = [estimating.duration(seconds) for seconds in (0.2, 89, 90, 5_400)]
    assert durations == ["1 s", "89 s", "2 min", "1.5 h"]


# Means, deviations, intervals and bands by hand.


SIMULATED = 400  # families of tests; the rule of two standard errors claimed something in 18 to 62 % of them


def groups_of(values: np.ndarray) -> list[dict[int, float]]:
    return [dict(enumerate(row)) for row in values.tolist()]


@each(("seeds", "groups"), [(2, 2), (3, 2), (10, 2), (6, 3)])
def test_shared_seeds_are_paired_as_scipy_pairs_them(seeds, groups):
    values = np.random.default_rng(seeds).normal(size=(groups, seeds))
    comparison, *others = compare(groups_of(values))
    theirs, pairs = ttest_rel(*values[:2]), 1 + len(others)
    assert comparison.paired and comparison.count == seeds and pairs == groups * (groups - 1) / 2
    assert comparison.p == pytest.approx(min(1.0, pairs * theirs.pvalue))
    assert comparison.difference == pytest.approx(values[0].mean() - values[1].mean())
    interval = theirs.confidence_interval(1 - LEVEL / pairs)
    assert (comparison.low, comparison.high) == pytest.approx(tuple(interval))
    swapped = comparison.swapped()
    assert (swapped.low, swapped.difference) == (-comparison.high, -comparison.difference)


def test_where_no_seed_is_shared_the_test_is_welchs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=4), rng.normal(1, 3, size=7)
    (comparison,) = compare([dict(enumerate(a)), dict(enumerate(b, 100))])
    theirs = ttest_ind(a, b, equal_var=False)
    assert not comparison.paired and comparison.count == 4
    assert comparison.p == pytest.approx(theirs.pvalue)
    assert (comparison.low, comparison.high) == pytest.approx(
        tuple(theirs.confidence_interval(1 - LEVEL))
    )


def test_only_shared_seeds_count_and_one_is_too_few():
    a, b = {0: 1.0, 1: 2.0, 2: 4.0, 9: 1e9}, {0: 0.5, 1: 1.0, 2: 2.0, 7: -1e9}
    (comparison,) = compare([a, b])
    theirs = ttest_rel([1.0, 2.0, 4.0], [0.5, 1.0, 2.0])
    assert comparison.count == 3 and comparison.p == pytest.approx(theirs.pvalue)
    for few in ([{0: 1.0, 1: 2.0}, {1: 1.0, 2: 2.0}], [{0: 1.0}, {1: 1.0}]):
        assert compare(few) == []


FLOATS = {
    "number": st.floats(-1e3, 1e3),
    "share": st.floats(0, 1),
    "score": st.floats(0, 100),
    "positive": st.floats(1e-6, 1e3),
    "times": st.floats(1e-6, 1e3),
}


@each("unit", sorted(FLOATS))
@given(data=st.data())
def test_an_interval_never_contradicts_its_p(unit, data):
    # In every unit, for groups that share all seeds, some, or none; also where all differences are equal.
    group = st.dictionaries(st.integers(0, 8), FLOATS[unit], max_size=6)
    groups = data.draw(st.lists(group, min_size=2, max_size=4))
    for pair in compare(groups, unit, data.draw(st.sampled_from([0.0, 0.01]))):
        none = 1.0 if pair.unit == "times" else 0.0
        assume(abs(pair.p - LEVEL) > 1e-9)
        assert pair.significant == (not pair.low <= none <= pair.high), pair
        bounds = UNITS[pair.unit]
        assert bounds.low <= pair.low <= pair.difference <= pair.high <= bounds.high
        other = pair.swapped()
        assert other.p == pair.p and other.low <= other.difference <= other.high


def test_a_ratio_is_that_of_the_geometric_means():
    a, b = {0: 2.0, 1: 8.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 2.0}
    (one,), (other,) = compare([a, b], "positive"), compare([b, a], "positive")
    assert one.difference == pytest.approx(16 ** (1 / 3)) and one.sign == "÷"
    assert not replace(one, p=LEVEL).significant
    inverse = (1 / one.difference, 1 / one.high, 1 / one.low)
    for back in (other, one.swapped()):
        assert (back.difference, back.low, back.high) == pytest.approx(inverse)
    theirs = ttest_rel(np.log([2.0, 8.0, 4.0]), np.log([1.0, 2.0, 2.0]))
    assert one.p == pytest.approx(theirs.pvalue)
    assert compare([{**a, 3: 0.0}, {**b, 3: 1.0}], "positive") == [one], "0 has no logarithm"


def test_equal_differences_are_tested_by_step_of_measure():
    same, far, one_item = (dict.fromkeys(range(3), value) for value in (1.0, 0.0, 0.999))
    assert [comparison.p for comparison in compare([same, same])] == [1.0]
    assert [comparison.p for comparison in compare([same, far])] == [1.0], "no error to test by"
    # A share at its bound counts as half a step inside: 0.9995, of −1 to 1.
    p = 2 * stats.t.sf(math.log(1.9995 / 5e-4) / (1 / 1.9995 + 1 / 5e-4) / (1e-3 / 3**0.5), 2)
    assert [
        compare(pair, "share", 1e-3)[0].p for pair in ([same, far], [far, same])
    ] == pytest.approx([p, p])
    assert not compare([same, one_item], "share", 1e-3)[0].significant
    seed = np.array([0.0, 10.0, 20.0, 30.0])  # a spread that seeds share
    (comparison,) = compare(groups_of(np.array([seed, seed + [1.0, 1.1, 0.9, 1.0]])))
    assert comparison.significant and comparison.difference == pytest.approx(-1.0)


def normal(values: int, seeds: int) -> np.ndarray:
    rng = np.random.default_rng(values * 10 + seeds)
    return rng.normal(size=(SIMULATED, values, seeds)) + rng.normal(size=(SIMULATED, 1, seeds))


# Shares of 50 held-out items near the top, where many runs agree to the item.
STEPS = np.random.default_rng(1).binomial(50, 0.99, size=(SIMULATED, 4, 3)) / 50


@each(
    ("draws", "given", "most"),
    [
        *(
            (normal(*sizes), (), LEVEL + 3 * (LEVEL * (1 - LEVEL) / SIMULATED) ** 0.5)
            for sizes in [(6, 3), (4, 3), (3, 5), (2, 2)]
        ),
        (STEPS, ("share", 1 / 50), LEVEL),
    ],
)
def test_false_differences_are_five_percent_at_most(draws, given, most):
    claims = sum(
        any(pair.significant for pair in compare(groups_of(draw), *given)) for draw in draws
    )
    assert claims / SIMULATED <= most


def test_a_spread_and_its_interval_by_hand():
    spread = seed_stats([2.0, None, 4.0, 9.0])
    assert spread.values == (2.0, 4.0, 9.0) and (spread.low, spread.high) == (2.0, 9.0)
    assert spread.mean == 5.0 and spread.std == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert seed_stats([1.0, 3.0]).std == pytest.approx(2**0.5)
    assert seed_stats([0.5, 0.25], "share").in_percent() == SeedStats((50.0, 25.0), "score")
    # Student's table
    for values, half in (([1.0, 2.0, 3.0], 4.303 / 3**0.5), ([1.0, 3.0], 12.706)):
        ends = 2 - half, 2 + half
        assert seed_stats(values).interval == pytest.approx(ends, rel=1e-3)
    assert seed_stats([3.0]).interval is seed_stats([3.0]).std is seed_stats([None, None]) is None
    assert seed_stats([0.5, 1.7], "share").interval is None
    assert (
        seed_stats([2.0, 3.0, 7.0], "times").interval
        == seed_stats([2.0, 3.0, 7.0], "positive").interval
    ), "of the mean itself"


@each("unit", sorted(UNITS))
@given(data=st.data())
def test_no_interval_leaves_bounds_of_its_unit_or_its_mean(unit, data):
    scale = UNITS[unit]
    numbers = (
        st.sampled_from([0.0, 1.0])
        if unit == "seeds"
        else st.floats(max(scale.low, -1e6), min(scale.high, 1e6))
    )
    values = data.draw(st.lists(numbers, min_size=2, max_size=10))
    steps, levels = st.sampled_from([0.0, 0.01]), st.sampled_from([0.05, 0.005])
    measured = mean_interval(values, unit, data.draw(levels), data.draw(steps))
    if measured is None:
        assert unit == "times" and min(values) == 0  # a ratio of nothing
        return
    mean, low, high = measured
    near = 1e-9 * (1 + abs(mean))
    assert scale.low <= low <= mean + near and mean - near <= high <= scale.high


def test_intervals_by_other_peoples_code():
    values = [0.3, 0.5, 0.1, 0.45, 0.2]
    mean, low, high = mean_interval(values)
    assert (low, high) == pytest.approx(
        stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    )
    logs = np.log(values)
    assert UNITS["times"].back(1e3) == UNITS["times"].back(700.0) == math.exp(700)
    ends = stats.t.interval(0.95, 4, logs.mean(), stats.sem(logs))
    assert mean_interval(values, "times")[1:] == pytest.approx(np.exp(ends))
    half = stats.t.ppf(0.975, 4) * stats.sem(values) / (mean * (1 - mean))  # the delta method
    ends = expit(logit(mean) - half), expit(logit(mean) + half)
    assert mean_interval(values, "share")[1:] == pytest.approx(ends)
    assert mean_interval([-1e-6, 0.4, 1 + 1e-6], "share") == mean_interval([0.0, 0.4, 1.0], "share")
    half = stats.t.ppf(0.975, 2) * 0.02 / 3**0.5 / (0.01 * 0.99)  # of the step of the measure
    assert [mean_interval([value] * 3, "share", resolution=0.02) for value in (0.0, 1.0)] == [
        pytest.approx((0.0, 0.0, expit(logit(0.01) + half))),
        pytest.approx((1.0, expit(logit(0.99) - half), 1.0)),
    ]
    for held in range(6):
        theirs = stats.binomtest(held, 5).proportion_ci(0.95, "exact")
        assert mean_interval([1.0] * held + [0.0] * (5 - held), "seeds") == pytest.approx(
            (held / 5, theirs.low, theirs.high)
        )


@each(
    ("unit", "draw"),
    [
        ("number", lambda rng: rng.normal(size=5)),
        ("gain", lambda rng: rng.normal(0, 0.2, 5).clip(-1, 1)),
        ("times", lambda rng: np.exp(rng.normal(0, 0.5, 5))),
        ("correlation", lambda rng: np.tanh(rng.normal(0, 0.4, 5))),
    ],
)
def test_intervals_miss_five_percent_at_most(unit, draw):
    # Each draw comes from two equal conditions, whose difference is 0 and whose ratio is 1.
    rng, none, count = np.random.default_rng(7), float(unit == "times"), 2000
    measured = [mean_interval(draw(rng).tolist(), unit) for _ in range(count)]
    missed = sum(not low <= none <= high for _, low, high in measured)
    assert missed / count <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / count) ** 0.5


def test_lines_over_steps_meet_where_all_have_a_point():
    band = line([[(0, 0.0), (10, 1.0), (20, 4.0)], [(0, 2.0), (10, 5.0)]], shared=True)
    assert band.x == (0, 10) and band.mean == (1.0, 3.0)
    assert band.low == (0.0, 1.0) and band.high == (2.0, 5.0)
    band = line([[(0, 0.0), (4, 8.0)], [(0, 0.0), (1, 1.0), (2, 6.0)]], shared=False)
    assert band.x[0] == 0 and band.x[-1] == 2, "they end with the first run"
    assert band.mean[-1] == pytest.approx((4.0 + 6.0) / 2)  # half way to 8, and the other's end
    assert band.in_percent().high[-1] == pytest.approx(100 * 6.0)
    assert band.low[-1] == pytest.approx(4.0) and band.high[-1] == pytest.approx(6.0)
    assert line([[], []], shared=True) is line([[(0, 1.0)], [(5, 1.0)]], shared=True) is None
