"""Compare runs without a browser: what stands side by side, what is told of it, and what cannot be."""

import re

import numpy as np
from streamlit.testing.v1 import AppTest

from core.models import ModelConfig
from core.runs.runs import Run, create_run
from core.studies import compare_runs as compute
from core.studies.compare_runs import expected, latest
from core.tasks import TaskConfig, make_task
from core.training import Record
from core.training.record import Prediction
from dashboard.draw.formats import duration
from dashboard.ui.run_data import EXAMPLE_RUNS, list_summaries, summarize
from pages import compare_runs
from pages.compare_runs import names, runs_to_compare, sides
from tests.pages.app import open_at, page_text, query_value
from tests.training.small import small_run


def made(
    name: str, speed: float = 1.0, kinds: dict[str, np.ndarray] | None = None, **changes
) -> Run:
    """A run of three records, at 0, 2 and 4 steps, that takes `speed` seconds a step."""
    config = small_run(**changes)
    run, task = create_run(config, name=name), make_task(config.task)
    predictions = tuple(
        Prediction(*task.display_tokens(example), ()) for example in task.held_out(2)
    )
    for step in (0, 2, 4):
        weights = np.full((1, config.model.num_heads, 7, 6), (step + 1) / 10)
        maps = {
            f"{i}:{kind}": value
            for kind, value in (kinds or {"cross": weights}).items()
            for i in range(2)
        }
        run.append(
            Record(
                step,
                loss=4.0 - step,
                token_accuracy=0.9,
                sequence_accuracy=step / 4,
                train_seconds=speed * step,
                held_out=11,
                expected=((0.1, 0.2 + step / 10),),
                even=0.17,
                examples=predictions,
                maps=maps,
            )
        )
    run.set_status("finished", "Finished.")
    return run


def open_page(*runs: str, **link: str) -> AppTest:
    return open_at("compare_runs", **({"runs": ",".join(runs)} if runs else {}), **link)


def test_first_sight_compares_the_two_examples():
    app = open_page()
    assert not app.warning
    page = page_text(app)
    step = int(re.search(r"At step (\d+), sequence accuracy: \d+\u00a0% for Transformer", page)[1])
    assert step in {r.step for r in EXAMPLE_RUNS[0].records()}
    assert f"After {duration(EXAMPLE_RUNS[0].records()[-1].train_seconds)} of" in page
    assert "attention.score" in page and "57,822" in page and len(app.get("vega_lite_chart")) == 2


def test_runs_are_compared_at_equal_steps_and_at_equal_seconds_and_others_can_be_chosen():
    fast, slow, third = made("fast", 1.0), made("slow", 2.0), made("third")
    app = open_page(fast.id, slow.id)
    page = page_text(app)
    assert "At step 4, sequence accuracy: 100\u00a0% for fast, 100\u00a0% for slow" in page
    assert "After 4\u00a0s of training, it is 100\u00a0% and 50\u00a0%" in page
    assert "All settings are equal." in page
    app.selectbox(key="compare_runs:2").set_value(third.id).run()
    assert query_value(app, "runs") == ",".join((fast.id, slow.id, third.id))
    assert "for third" in page_text(app)


def test_measure_and_step_are_told_and_in_the_link():
    ids = made("a").id, made("b").id
    app = open_page(*ids, **{"step": "2", "compare_runs:measure": "Loss"})
    assert "At step 2, validation loss: 2.00 for a, 2.00 for b" in page_text(app)
    app = open_page(*ids, **{"step": "../3", "compare_runs:measure": "nothing"})
    assert "At step 4, sequence accuracy" in page_text(app)
    app.button_group(key="compare_runs:measure").set_value("loss").run()
    assert "validation loss: 0.00 for a, 0.00 for b" in page_text(app)
    slider = next(item for item in app.select_slider if item.label == "Training step")
    slider.set_value(2).run()
    assert "At step 2, validation loss: 2.00 for a" in page_text(app)


def test_of_five_runs_four_are_compared_and_one_that_is_not_here_is_told():
    runs = [made(name).id for name in "abcde"]
    page = page_text(open_page(*runs))
    assert "At most 4 runs" in page and "for d" in page and "for e" not in page
    page = page_text(open_page("../../etc/passwd", runs[0]))
    assert "1 of the runs in the link is not on this machine" in page


def test_runs_without_maps_or_measurements_say_so():
    other = made("copier", task=TaskConfig.of("copy", length=6, vocab=12))
    page = page_text(open_page(made("a").id, made("b").id, other.id))
    assert "No map of copier" in page and "for copier" in page, "another task has curves alone"
    kinds = {"none": np.zeros((1, 1, 1, 1))}
    runs = [made(name, kinds=kinds, model=ModelConfig.recurrent(8, None)) for name in "ab"]
    for run in runs:
        for step in run.frame_steps():
            run.frame_path(step).unlink()
    app = open_page(*(run.id for run in runs))
    assert "None of these runs has saved attention maps" in page_text(app)
    runs = [create_run(small_run(seed=seed)) for seed in (1, 2)]
    for run in runs:
        run.set_status("stopped")
    app = open_page(*(run.id for run in runs))
    assert "None of these runs has measured anything yet" in page_text(app)


def test_a_decoders_look_at_its_source_stands_beside_cross_attention():
    both = np.zeros(
        (1, 2, 13, 13), np.float32
    )  # six letters, the start mark and six letters in one line
    both[:, :, 6:, :6] = np.arange(42, dtype=np.float32).reshape(7, 6) / 50
    decoder = made(
        "one line",
        kinds={"causal": both},
        model=ModelConfig.transformer(8, 2, 1, 16, kind="decoder", position="learned"),
    )
    both_sides = sides([summarize(made("cross")), summarize(decoder)])
    read = [compute.source_at(side, 4, 0)[1] for side in both_sides]
    assert read[0].weights.shape == read[1].weights.shape == (1, 2, 7, 6)
    np.testing.assert_allclose(read[1].weights[0, 0], both[0, 0, 6:, :6], atol=1e-3)
    maps, rows, columns, other = compute.maps_at(both_sides, 4, 0, ((0, 0), (0, 1)))
    assert [one.run.index for one in maps] == [0, 1] and not other
    assert (len(rows), len(columns)) == (7, 6)
    side = both_sides[0]  # a run shows what it saved at the step or last before
    assert [compute.source_at(side, step, 0)[0] for step in (0, 3, 4, 99)] == [0, 2, 4, 4]
    np.testing.assert_allclose(compute.source_at(side, 3, 1)[1].weights, 0.3, atol=1e-3)
    assert compute.heads(side) == [(0, 1), (0, 0)], (
        "the head that looks best where the output comes from stands first"
    )


def test_settings_that_differ_are_named_once():
    runs = [made("a"), made("b", learning_rate=1e-2, model=ModelConfig.recurrent(8, "additive"))]
    rows, equal = compare_runs.differences(sides(list(map(summarize, runs))))
    values = {row[0]: row[1:] for row in rows}
    assert values["learning_rate"] == ["0.003", "0.01"]
    assert values["kind"] == ["transformer", "recurrent"]
    assert values["attention.score"] == ["scaled_dot", "additive"]
    names = set().union(*(compare_runs.settings(run.config().to_json()) for run in runs))
    assert "attention.num_heads" not in values and equal == len(names) - len(rows) - 3


def test_names_leave_out_what_all_share_and_differ():
    items = [summarize(made("a")), summarize(made("a")), summarize(made("x" * 99))]
    assert names(items) == ["a", "a (2)", "x" * 29 + "…"]
    examples, _ = runs_to_compare(list_summaries())
    assert [item.run for item in examples] == list(EXAMPLE_RUNS), "the first choice"
    assert names(examples) == ["Transformer", "Recurrent, dot product"]


def test_latest_takes_the_last_measured():
    records = (
        Record(0, sequence_accuracy=0.1, train_seconds=0.0),
        Record(2, sequence_accuracy=None, train_seconds=1.0),
        Record(4, sequence_accuracy=0.9, train_seconds=2.0),
    )
    assert latest(records, lambda r: r.sequence_accuracy, lambda r: r.train_seconds <= 1.5) == 0.1
    assert latest(records, lambda r: r.bleu, lambda r: True) is None
    assert (
        expected(Record(0, expected=((0.1, 0.4), (0.3, 0.2)))) == 0.4
        and expected(Record(0)) is None
    )
