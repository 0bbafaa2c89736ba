"""The page Scoreboard: the picked cell and its link, a reader's own row, results of others, and the study behind it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from core.entries import ConfigError
from core.files import append_line, with_checksum
from core.runs.runs import Run, list_runs
from core.scoreboard import run as runs
from core.scoreboard.base import Cell, CellResult, Mechanism, plain, read_board
from core.studies import scoreboard as study
from dashboard.draw import scoreboard as draw
from dashboard.draw.figures import Ink
from pages import scoreboard as page
from tests.cases import each
from tests.pages.app import (
    assert_says,
    open_at,
    pictures_of,
    set_state,
)

BOARD = read_board()
RECALL = BOARD.skill("recall")
NAMES = {one.key: one.name for one in BOARD.mechanisms} | {
    one.key: one.name for one in BOARD.skills
}
RATE = BOARD.rates[-1]  # the best one of these results
OWN_TEXT = "kernel=gla mask=causal"


def result(cell: Cell, value: float, board=BOARD, **more) -> CellResult:
    steps, curve = RECALL.steps, ((0, 0.1), (100, value))
    given: Any = dict(id=board.id(cell), board=board.hash, value=value, steps=steps, seconds=15.0)
    return CellResult(**cell._asdict(), **given, curve=curve, **more)


def cells(mechanism: str, passed: int, board=BOARD, seeds: int = 8) -> list[CellResult]:
    """Trainings of recall in which so many seeds learned it, at the last one of the rates."""
    tried = [
        result(Cell(mechanism, "recall", rate, 100), 0.96 if rate == RATE else 0.2, board)
        for rate in board.rates
    ]
    return tried + [
        result(Cell(mechanism, "recall", RATE, seed), 1.0 if seed < passed else 0.3, board)
        for seed in board.seeds[:seeds]
    ]


def save(results, board=BOARD) -> Run:
    (run,) = runs.create(board)
    for one in results:
        append_line(run.path / runs.CELLS, with_checksum(json.dumps(plain(one))))
    run.set_status("finished")
    return run


def lines(results) -> bytes:
    return b"".join(with_checksum(json.dumps(plain(one))) + b"\n" for one in results)


@pytest.fixture(autouse=True)
def _nothing_ships(monkeypatch):
    monkeypatch.setattr(study, "read_shipped", lambda: iter(()))
    study._read.cache_clear()
    yield
    study._read.cache_clear()


@pytest.fixture
def measured():
    rows = {"softmax": 8, "linear": 0, "linear_conv": 7, "ssd": 0}
    return save([one for row, passed in rows.items() for one in cells(row, passed)])


def open_cell(mechanism: str):
    return open_at("scoreboard", "scoreboard:", mechanism=NAMES[mechanism], skill=NAMES["recall"])


def test_the_picked_cell_is_in_the_link_and_says_its_numbers(measured):
    first, row, skill = (NAMES[key] for key in ("softmax", "linear_conv", "recall"))
    assert_says(
        open_cell("linear_conv"),
        f"{row} learned {skill} in 7 of 8 seeds, {first} in 8 of 8. That may be chance.",
        "7 of 8 seeds (47\u00a0% to 99.7\u00a0%)",
        f"Rates that worked, of {', '.join(map(str, BOARD.rates))}: {RATE:g}.",
        "Without its convolution: 0 of 8 seeds.",
        "4 of 128 cells are measured, by 44 trainings.",
    )
    assert_says(open_cell("linear"), "0 of 8 seeds", "The difference is beyond chance.")
    assert_says(open_cell("mamba3"), f"{NAMES['mamba3']} was not measured on {skill} yet.")


@each("name", ["mechanism", "skill", "cost"])
def test_nonsense_in_the_link_is_named(measured, name):
    (toast,) = open_at("scoreboard", **{f"scoreboard:{name}": "zz"}).toast
    assert f"The link says {name} = zz; expected one of " in toast.value


def test_a_press_on_a_cell_picks_it(measured, monkeypatch):
    point = {"layer": NAMES["linear_conv"], "head": NAMES["noisy"]}
    picked = []
    monkeypatch.setattr("dashboard.ui.panels.sent", lambda *_: {"picked": [point]})
    monkeypatch.setattr(page.Controls, "set", lambda **values: picked.append(values))
    page._press()
    assert picked == [{"mechanism": "linear_conv", "skill": "noisy"}]
    ring = pictures_of(open_cell("linear"))["scoreboard:matrix"].spec["layer"][-1]
    assert ring["data"]["values"] == [{"layer": NAMES["linear"], "head": NAMES["recall"]}]


def matrix_rows(app) -> list[dict[str, str]]:
    head, rows = pictures_of(app)["scoreboard:matrix"].table()
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_the_matrix_marks_what_differs_and_strikes_what_is_not_measured(measured):
    app = open_at("scoreboard")
    every = matrix_rows(app)
    rows = {row["mechanism"]: row for row in every if row["share of seeds"] is not None}
    assert len(every) == 128 and {row["skill"] for row in every[:8]} == set(page.SKILLS.values())
    marks = {"softmax": "", "linear": "≠", "linear_conv": "", "ssd": "≠"}
    assert {name: row["≠"] for name, row in rows.items()} == {
        NAMES[key]: mark for key, mark in marks.items()
    }
    assert rows[NAMES["linear_conv"]]["share of seeds"] == 7 / 8
    cells_of = pictures_of(app)["scoreboard:matrix"].spec["layer"][0]["data"]["values"]
    assert len(cells_of) == 128 and sum(one["says"] == "not measured" for one in cells_of) == 124
    order = {}
    for best in (False, True):
        app = open_at("scoreboard", **{"scoreboard:best_first": str(best).lower()})
        order[best] = pictures_of(app)["scoreboard:matrix"].spec["layer"][0]["encoding"]["y"]
    names = [one.name for one in BOARD.mechanisms]
    assert order[False]["scale"]["domain"] == names
    assert order[True]["scale"]["domain"][:3] == [
        NAMES[key] for key in ("softmax", "linear_conv", "linear")
    ]


def test_the_table_and_the_scatter_have_the_measured_numbers(measured):
    pictures = pictures_of(open_cell("linear"))
    head, rows = pictures[f"table:{NAMES['recall']}, by mechanism"].table()
    first = dict(zip(head, rows[1], strict=True))
    assert first["mechanism"] == NAMES["linear_conv"]
    assert (first["learned in, seeds"], first["learned in, of"]) == (7, 8)
    assert first["rate"] == RATE and first["without its convolution"] == 0
    head, rows = pictures["scoreboard:scatter"].table()
    costs = {row[0]: row[1] for row in rows}
    # two layers, keys and values of 64 numbers for each of 32 tokens, 4 bytes a number
    assert costs[NAMES["softmax"]] == 2 * 2 * 64 * 32 * 4
    # two layers of two heads, a state of 32 × 32 each and its sum
    assert costs[NAMES["linear"]] == 2 * 2 * (32 * 32 + 32) * 4
    curves = pictures["scoreboard:curves"]
    assert len({row[0] for row in curves.table()[1]}) == 8 + 3 + 1


def test_before_anything_is_measured_the_page_says_so():
    says = (
        f"was not measured on {BOARD.skills[0].name} yet.",
        "0 of 128 cells",
        "No mechanism was measured on this",
    )
    assert_says(open_at("scoreboard"), *says)


def test_train_here_is_a_run_of_the_cell(measured):
    app = open_cell("linear_conv")
    app.button(key="scoreboard:again").click().run()
    (run,) = list_runs()
    assert run.config() == BOARD.run(Cell("linear_conv", "recall", RATE, 0))
    assert run.name == f"{NAMES['linear_conv']}, {NAMES['recall']}"


def test_a_mechanism_of_ones_own_is_measured_stopped_and_a_row():
    app = set_state(open_at("scoreboard", **{"scoreboard:attention": OWN_TEXT}), page.OWN)
    assert_says(app, "At most", "Stop keeps what there is; Continue goes on.")
    app.button(key="scoreboard:start").click().run()
    made = study.board_runs()
    assert {run.status().state for run in made} <= {"queued", "starting"}
    board = runs.board_of(made[0])
    row = study.own_row(OWN_TEXT)
    assert board.mechanisms == (BOARD.mechanisms[0], row) and board.skills == (RECALL,)
    # as large as the others, and so of the same cells as on the whole board
    whole, cell = replace(BOARD, mechanisms=(*BOARD.mechanisms, row)), Cell(row.key, "recall", RATE, 0)  # fmt: skip
    assert board.id(cell) == whole.id(cell)
    app = set_state(open_at("scoreboard"), page.OWN)
    assert app.button(key="scoreboard:start").disabled
    app.button(key=f"{page.OWN}:stop").click().run()
    assert {run.stop_request() for run in study.board_runs()} == {"stop"}
    save(cells(row.key, 5, whole)[:4], whole)
    app = set_state(open_at("scoreboard", **{"scoreboard:attention": OWN_TEXT}), page.OWN)
    assert app.button(key="scoreboard:start").label == "Continue"
    save(cells(row.key, 5, whole), whole)
    assert_says(
        open_at("scoreboard", **{"scoreboard:mechanism": OWN_TEXT}),
        f"{OWN_TEXT} learned {NAMES['recall']} in 5 of 8 seeds.",
    )


@each(
    "text, says",
    [
        ("", "Write a mechanism, such as kernel=gla mask=causal."),
        ("kernel=nosuch", "kernel = 'nosuch'; expected one of "),
        ("projection=multi_head(head_dim=1024) mask=causal", "parameters; all others have"),
    ],
)
def test_what_cannot_be_a_row_is_refused(text, says):
    app = set_state(open_at("scoreboard", **{"scoreboard:attention": text}), page.OWN)
    assert says in app.info[0].value.replace("\\", "") and not app.error
    assert not study.board_runs()


def test_a_row_without_skills_is_refused():
    pytest.raises(ConfigError, study.own_board, OWN_TEXT, []).match("at least one skill")


def upload(data: bytes):
    app = set_state(open_at("scoreboard"), "scoreboard:others")
    return app.file_uploader(key="scoreboard:file").set_value(("cells.jsonl", data, "")).run()


def test_results_of_others_are_taken_once(measured):
    app = upload(lines([*cells("linear", 3), *cells("nope", 8)]))
    assert "Taken: 11 trainings; 11 trainings stood here already" in app.toast[0].value
    assert_says(app.run().run(), "5 of 128 cells are measured, by 55 trainings.")
    assert len(study.board_runs()) == 2, "a file is taken once"
    assert_says(open_cell("linear"), "0 of 8 seeds")
    assert [*study.to_lines(study.read_matrix()).splitlines()] == [
        *lines(study.read_matrix().cells.values()).splitlines()
    ]


@each(
    "change, says",
    [
        (
            lambda text: text.replace(b'"value": 1.0', b'"value": 0.9'),
            "it was changed after it was written",
        ),
        (lambda text: b"nonsense", "Line 1 is no result"),
        (lambda text: b"[" * 100_000, "Line 1 is no result"),
        (lambda text: b"\n", "The file has no results"),
    ],
)
def test_a_file_that_is_none_is_refused(change, says):
    app = upload(change(lines(cells("nope", 8))))
    (warning,) = app.warning
    assert "The file was not taken" in warning.value and says in warning.value
    assert not study.board_runs()


def test_a_result_of_another_plan_is_refused():
    for cell in (Cell("nope", "recall", 0.5, 0), Cell("nope", "recall", RATE, 50)):
        data = lines([result(cell, 0.7)])
        pytest.raises(ConfigError, study.take_in, data).match("another training than")


def test_a_row_that_somebody_else_typed_is_pooled():
    row = study.own_row(OWN_TEXT)
    whole = replace(BOARD, mechanisms=(*BOARD.mechanisms, row))
    assert study.take_in(lines(cells(row.key, 2, whole))) == (11, 0)
    matrix = study.read_matrix()
    assert matrix.board.mechanisms[-1] == row and matrix.scores[row.key, "recall"].passed == 2


def test_a_row_that_cannot_be_built_here_is_named(measured):
    gone = Mechanism("gone", "Gone", "kernel=gone mask=causal")
    save([], replace(BOARD, mechanisms=(BOARD.mechanisms[0], gone)))
    assert_says(open_at("scoreboard"), "are left out: kernel = 'gone'", "4 of 128 cells")
    twin = Mechanism("twin", NAMES["linear"], OWN_TEXT)
    save([], replace(BOARD, mechanisms=(BOARD.mechanisms[0], twin)))
    assert study.read_matrix().board.mechanisms[-1].name == f"{NAMES['linear']} (twin)"


def test_what_is_left_of_an_own_row(measured):
    row, one = study.own_row(OWN_TEXT), BOARD.skill("recall")
    board = study.own_board(OWN_TEXT, ["recall"])
    run = save(cells(row.key, 8, replace(BOARD, mechanisms=(*BOARD.mechanisms, row)))[:6], board)
    # the first row is measured whole; 15 seconds each, as those that were measured
    assert study.progress(study.read_matrix(), run) == (11 + 6, 22)
    assert study.seconds_left(OWN_TEXT, ["recall"], 17) == pytest.approx(5 * 15.0)
    assert study.read_matrix().step_seconds("softmax", "recall") == pytest.approx(15.0 / one.steps)


def test_a_new_training_is_seen_at_once():
    run = save(cells("softmax", 8, seeds=2))
    score = study.read_matrix().scores["softmax", "recall"]
    assert study.read_matrix() is study.read_matrix() and len(score.results) == 2
    append_line(run.path / runs.CELLS, lines(cells("softmax", 8)[-1:]).rstrip())
    assert len(study.read_matrix().scores["softmax", "recall"].results) == 3


def test_a_training_without_numbers_is_said():
    every = cells("softmax", 4)
    save([*every[:-1], replace(every[-1], value=0.0, curve=(), note="the loss is nan")])
    matrix = study.read_matrix()
    text = draw.cell_text(matrix, BOARD.mechanisms[0], RECALL)
    assert "1 training ended early: the loss was no number." in text
    spec = draw.curves_figure(matrix, BOARD.mechanisms[0], RECALL, Ink.of("light"))
    names = [name for name, *_ in spec["usermeta"]["names"]]
    assert len(names) == 7 + 3 + 1 and {"learned", "seed 0", f"rate {RATE:g}"} <= {*names}
