"""A run of every form and input, trained for two steps, drawn whole: maps, examples as what they are, and the fact."""

import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.runs.runs import Run, create_run
from core.runs.worker import work
from core.tasks import Task, TaskConfig, make_task
from core.training import loop, recommended
from dashboard.draw.formats import percent
from tests.pages.app import assert_script

DATA = {
    "own_text": "So it goes on, and on it goes, as before; and so on.\n" * 30
    + "At last it ends. Or not. " * 9,
    "own_pairs": "".join(f"{n}\t{n:b}\n" for n in range(80)),
    "own_table": "size,shape,kind\n"
    + "".join(f"{n % 7},{'ab'[n % 2]},{'xy'[n % 2]}\n" for n in range(60)),
}
# One row in twelve is rare, and nothing but chance tells which.
LOPSIDED = "a,b,kind\n" + "".join(
    f"{n * 37 % 101},{n * 53 % 97},{'rare' if n % 12 == 0 else 'common'}\n" for n in range(240)
)
FORMS = [
    ("recall", "decoder"),
    ("sort", "hybrid"),
    ("language", "classifier"),
    ("iris", "classifier"),
    ("documents", "hierarchical"),
    ("documents", "classifier"),
    ("iris", "one_token"),
    ("digits", "classifier"),
    ("pictures", "transformer"),
    ("series", "forecaster"),
    ("own_text", "decoder"),
    ("own_pairs", "transformer"),
    ("own_table", "classifier"),
]
KINDS = {
    "transformer": ["cross", "causal", "self"],
    "hybrid": ["cross", "self"],
    "hierarchical": ["sentences", "words"],
}


def script():
    import streamlit as st

    from core.runs.runs import find_run
    from dashboard.ui.run_data import load_run
    from pages.train import draw

    draw(load_run(find_run(st.session_state["id"])))


def drawn(config: TaskConfig, kind: str | None = None, **changes: Any) -> tuple[Task, Run, AppTest]:
    """A task, its run of two steps, and the figures of that run."""
    task = make_task(config)
    changes = {"steps": 2, "record_every": 1, "batch_size": 4, **changes}
    run = create_run(recommended(task, kind, **changes))
    assert work(run.path) == "finished", run.status().message
    app = AppTest.from_function(script, default_timeout=60)
    app.session_state["id"] = run.id
    app.run()
    assert not app.error and not app.exception
    return task, run, app


@pytest.mark.parametrize("task, kind", FORMS)
def test_a_run_is_drawn_as_what_it_is(task, kind):
    given: dict[str, Any] = {"data": DATA[task]} if task in DATA else {}
    made, run, app = drawn(TaskConfig.of(task, **given), kind, held_out=12, num_examples=3)
    assert_script(app)
    html = " ".join(element.proto.body for element in app.get("html"))
    assert "At step" in re.sub("<[^>]+>", "", html)
    assert app.selectbox(key="train:example").options
    if made.input == "patches":
        assert html.count("data:image/png") >= 3
    if kind in KINDS:
        picker = app.selectbox(key=f"train:kind:{run.id}")
        assert len(picker.options) == len(KINDS[kind])
        for other in KINDS[kind]:
            app.selectbox(key=f"train:kind:{run.id}").set_value(other).run()
            assert_script(app)


@pytest.mark.parametrize(
    "task, data", [("own_table", LOPSIDED), ("iris", ""), ("digits", ""), ("language", "")]
)
def test_a_class_is_told_beside_the_majority_class(task, data, monkeypatch):
    monkeypatch.setattr(loop, "FINAL", 60)
    config = TaskConfig.of(task, **({"data": data} if data else {}))
    made, run, app = drawn(config, held_out=60, num_examples=1)
    last = run.records()[-1]
    held_out = made.held_out(60)
    confusion = last.confusion
    rows = [sum(row) for row in confusion]
    assert sum(rows) == len(held_out) == last.held_out and len(rows) == len(made.classes)
    assert sum(row[i] for i, row in enumerate(confusion)) / sum(rows) == pytest.approx(
        last.token_accuracy
    )
    name, share = made.majority(60)
    assert share == rows[made.classes.index(name)] / sum(rows)
    html = " ".join(element.proto.body for element in app.get("html"))
    text = re.sub("<[^>]+>|\\\\", "", html)
    assert "guessing" not in text and html.count('aria-label="Confusion matrix"') == 1
    assert f"the majority class “{name}” reaches {percent(share)}" in text
    assert f"balanced accuracy {percent(last.balanced)}" in text
    if task == "own_table":
        assert (name, round(share, 2)) == ("common", 0.92) and "logistic regression reaches" in text
        assert made.baseline_loss == pytest.approx(0.287, abs=0.01), "not log 2 = 0.693"
