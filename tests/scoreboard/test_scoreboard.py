"""The scoreboard: its settings, equal sizes, what a cell is, and that a board that was killed goes on to the same numbers."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from typing import Any

import pytest
from scipy.stats import beta, fisher_exact

from core.entries import ConfigError
from core.runs.executor import start_process
from core.scoreboard import run as runs
from core.scoreboard.__main__ import main
from core.scoreboard.base import (
    Cell,
    CellResult,
    Score,
    best_rate,
    differs,
    parameters,
    plain,
    read_board,
)
from core.studies import scoreboard as study
from core.tasks import task_of
from tests.cases import each

BOARD = read_board()


def tiny(**changes):
    """A board of two mechanisms and a skill of a few steps."""
    task = {"key": "mqar", "params": {"length": 16, "pairs": 2, "vocab": 16}, "seed": 0}
    skill = replace(BOARD.skill("recall"), task=task, steps=40, passes=0.3)
    rows = BOARD.mechanism("softmax"), BOARD.mechanism("linear")
    usual = dict(rates=(0.003, 0.01), seeds=(0, 1, 2), mechanisms=rows, skills=(skill,))
    return replace(BOARD, **(usual | changes))


def result(value, rate=0.003, seed=0, steps=100, **more):
    given: Any = dict(
        mechanism="softmax", skill="recall", id="", board=BOARD.hash, seconds=1.0, curve=()
    )
    return CellResult(**given, rate=rate, seed=seed, value=value, steps=steps, **more)


@each("row", BOARD.mechanisms)
def test_every_mechanism_trains_every_skill_with_as_many_parameters(row):
    for skill in BOARD.skills:
        first, own = (
            BOARD.run(Cell(key, skill.key, BOARD.rates[0], 0))
            for key in (BOARD.mechanisms[0].key, row.key)
        )
        sizes = [parameters(one.model, task_of(one.task).shape) for one in (first, own)]
        assert sizes[1] == pytest.approx(sizes[0], rel=0.005)
        assert own.steps == skill.steps and own.task == skill.config


def test_a_row_without_convolution_is_the_same_but_for_it():
    rows = [row for row in BOARD.mechanisms if row.without]
    assert len(rows) >= 3
    for row in rows:
        other = BOARD.mechanism(row.without).attention
        assert row.attention.replace("short_conv", "short_conv(width=1)") == other


def test_first_the_rates_then_the_seeds_at_the_best_one():
    cells: dict[Cell, CellResult] = {}
    board = tiny()
    first = board.pending("softmax", "recall", cells)
    assert [(cell.rate, cell.seed) for cell in first] == [(0.003, 100), (0.01, 100)]
    cells |= {cell: result(0.2 + cell.rate, cell.rate, cell.seed) for cell in first}
    assert board.score("softmax", "recall", {}) is None
    then = board.pending("softmax", "recall", cells)
    assert [(cell.rate, cell.seed) for cell in then] == [(0.01, 0), (0.01, 1), (0.01, 2)]
    cells |= {
        cell: result(value, 0.01, cell.seed)
        for cell, value in zip(then, (0.1, 0.4, 0.9), strict=True)
    }
    assert board.pending("softmax", "recall", cells) == []
    score = board.score("softmax", "recall", cells)
    assert (score.rate, score.passed, score.median, score.best) == (0.01, 2, 0.4, 0.9)
    assert score.rates == (), "no rate reached the criterion on the seed that chose it"
    low, high = beta.ppf(0.025, 2, 2), beta.ppf(0.975, 3, 1)
    assert (score.share.low, score.share.high) == pytest.approx((low, high))


def test_of_equal_rates_the_faster_one():
    tried = [
        result(1.0, 0.001, steps=900),
        result(1.0, 0.003, steps=300),
        result(0.9, 0.01, steps=90),
    ]
    assert best_rate(tried) == 0.003


def test_a_difference_beyond_chance_is_fishers():
    def score(passed, count=8):
        values = [1.0] * passed + [0.0] * (count - passed)
        return Score(0.003, tuple(result(value) for value in values), 0.95, ())

    for one, other, comparisons in ((8, 0, 15), (8, 1, 15), (7, 1, 15), (8, 4, 1)):
        p = fisher_exact([[one, 8 - one], [other, 8 - other]]).pvalue
        assert differs(score(one), score(other), comparisons) == (p < 0.05 / comparisons)
    assert differs(score(8), score(0), 15) and not differs(score(8), score(7), 1)


def test_what_costs_more_and_learns_less_is_not_on_the_front():
    points = {"a": (1.0, 0.5), "b": (2.0, 0.5), "c": (2.0, 1.0), "d": (3.0, 1.0), "e": (0.5, 0.0)}
    assert study.front(points) == ["a", "c", "e"]


def test_a_board_that_was_killed_goes_on_to_the_same_numbers():
    board = tiny(seeds=(0, 1))
    (whole,) = runs.create(board)
    assert start_process(whole).wait() == 0
    expected = {cell: one.value for cell, one in runs.results(board, shipped=False).items()}
    assert len(expected) == 8
    (whole.path / runs.CELLS).unlink()
    killed = 0
    while len(runs.results(board, shipped=False)) < len(expected):
        one, other = runs.create(board, 2)
        processes = [start_process(one), start_process(other)]
        before = len(runs.results(board, shipped=False))
        while killed < 3 and len(runs.results(board, shipped=False)) == before:
            time.sleep(0.05)
        if killed < 3:
            killed += 1
            for process in processes:
                process.send_signal(signal.SIGKILL)
        for process in processes:
            process.wait()
    assert killed == 3
    again = {cell: one.value for cell, one in runs.results(board, shipped=False).items()}
    assert again == pytest.approx(expected, rel=1e-4)


def test_a_file_of_results_is_checked_and_pooled(monkeypatch):
    monkeypatch.setattr(study, "read_shipped", lambda: iter(()))
    cell = Cell("softmax", "recall", 0.003, 100)
    one = replace(result(0.7, seed=100), id=BOARD.id(cell))
    text = json.dumps(plain(one))
    study.take_in(text.encode())
    assert runs.results(BOARD, shipped=False)[cell].value == 0.7
    for wrong, words in (
        (text.replace(BOARD.hash, "0" * 16), "other settings"),
        (text.replace(one.id, "0" * 16), "another training"),
        (text.replace("softmax", "nosuch"), "mechanism = 'nosuch'"),
        ("", "no results"),
        (text.replace('"value"', '"values"'), "A cell"),
    ):
        with pytest.raises(ConfigError, match=words):
            study.take_in(wrong.encode())
    assert len(runs.results(BOARD, shipped=False)) == 1


def test_other_settings_are_another_board():
    steps = replace(BOARD.skills[0], steps=7)
    other = replace(BOARD, skills=(steps,))
    cell = Cell("softmax", "recall", 0.003, 0)
    assert other.hash == BOARD.hash and other.id(cell) != BOARD.id(cell)
    assert replace(BOARD, rates=(0.1,)).hash != BOARD.hash
    pytest.raises(ConfigError, replace, BOARD, seeds=(100,)).match("give rate_seeds others")
    pytest.raises(ConfigError, BOARD.only, ["nosuch"]).match("expected one of softmax")
    assert BOARD.only(skills=["parity"]).skills == (BOARD.skill("parity"),)


def test_what_ships_is_of_these_settings():
    shipped = [*runs.read_shipped()]
    assert all(one.board == BOARD.hash for one in shipped)
    assert all(one.id == BOARD.id(one.cell) for one in shipped)


MINE = """
from attention_lab import register


def capped(score, b, h, q_idx, kv_idx):
    \"\"\"Scores lose a tenth with each token of distance.\"\"\"
    return score - 0.1 * (q_idx - kv_idx).abs()


register(capped)
"""


def test_a_file_of_ones_own_is_a_row(tmp_path, capsys, monkeypatch):
    file = tmp_path / "plugins" / "mine.py"
    file.parent.mkdir()
    file.write_text(MINE, encoding="utf-8")
    settings = tmp_path / "settings.json"
    board = tiny(seeds=(0,), rates=(0.003,))
    settings.write_text(json.dumps(asdict(board)), encoding="utf-8")
    monkeypatch.delenv("ATTENTION_LAB_PLUGINS", raising=False)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "core.scoreboard",
            "--mechanisms",
            str(file),
            "softmax",
            "--settings",
            str(settings),
            "--workers",
            "1",
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (
        "recall capped rate 0.003 seed 100:" in done.stdout
        and "finished: Measured 4 cells." in done.stdout
    )
    assert main(["--mechanisms", str(tmp_path / "none.py")]) == 1
    assert "There is no file" in capsys.readouterr().err
