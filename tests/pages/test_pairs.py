"""The page Many pairs: its first sight, pairs that cannot be measured, and a run that a worker takes up."""

from dataclasses import replace

import numpy as np
import pytest

from core.interpret.corpus import corpora_folder
from core.interpret.interventions import BY_KEY
from core.interpret.pairs import (
    OWN,
    SAVED,
    PairsConfig,
    measure_pairs,
    pairs_of_template,
    read_measurement,
    to_csv,
    work,
)
from core.pretrained import load_lab_model
from core.runs.runs import Run, list_runs
from dashboard.draw import pairs as draw
from dashboard.draw.grids import effect_grid
from dashboard.server import queue
from tests.close import assert_close
from tests.pages.app import Case, assert_says, open_at, page_cases, page_text

PAIRS = tuple(replace(one, words=()) for one in pairs_of_template(*OWN["names"]))
FILE = {"inside:model": "names", "pairs:source": "A file"}
BAD = to_csv(PAIRS[:3]) + "when ann,when ben went,ann,ben\n"

test_what_it_says = page_cases(
    "pairs",
    {
        "names": Case(
            {"inside:model": "names", "pairs:way": "resampled"},
            [
                "L1·H0 helps the answer by +10.82 ± 0.72 (resampled), the most of 4 heads",
                "the answer leads the other by",
                "corrupted: “when ann and ben went to the shop , ann gave",
                "helps most by what it writes at token 14, to: +",
                "by leaving out one word at a time: the 24 pairs share 4 × 3 words",
            ],
        ),
        "another head": Case(
            {"inside:model": "names", "head": "0.1"}, ["L1·H0 helps", "L0·H1: +2.42 ± 1.17."]
        ),
        "no slot": Case(
            {"pairs:clean_text:writer": "One", "pairs:corrupted_text:writer": "Two"},
            ["The template has no slot; write [A] and [B]", "Measure (disabled)"],
        ),
        "one list": Case(
            {"pairs:words_for_b:writer": " , "}, ["Two lists of different words are needed"]
        ),
        "no file": Case(FILE, ["There is no list of pairs yet", "Measure (disabled)"]),
        "a column is not there": Case(
            {**FILE, "pairs:data": "clean,corrupted,answer\na,b,c\n"},
            ["There is no column other.", "Measure (disabled)"],
        ),
        "a file": Case(
            {**FILE, "pairs:data": to_csv(PAIRS[:3])}, ["3 pairs were not measured in this way yet"]
        ),
        "an embedding": Case(
            {"inside:model": "all-MiniLM-L6-v2"}, ["answers no text with one token or class"]
        ),
        "a picture": Case({"inside:model": "digits"}, ["answers no text with one token or class"]),
    },
)


def test_pairs_of_one_s_own_wait_for_a_press_and_bad_rows_are_told(monkeypatch):
    monkeypatch.setattr(queue, "max_workers", lambda: 0)
    link = {**FILE, "pairs:data": BAD, "pairs:positions": "false"}
    app = open_at("pairs", **link)
    app.button(key="pairs:start").click().run()
    (run,) = list_runs(corpora_folder())
    assert "number 1 in the queue" in app.get("progress")[0].proto.text
    assert draw.progress(read_measurement(run)) == (0.0, "Loading the model")
    stop = iter([False, True]).__next__
    run.set_status(*work(run, stop))
    assert draw.progress(read_measurement(run)) == (2 / 3, "2 of 3 pairs")
    assert queue.end_message(run).endswith("everything up to pair 2 is saved.")
    linked = link | {"pairs:run": run.id}
    app = open_at("pairs", **linked)
    assert_says(app, "Stopped after 2 of 3 pairs, which are saved.", "Over 2 pairs")
    app.button(key="pairs:continue").click().run()
    assert run.status().state == "queued"
    run.set_status(*work(run, lambda: False))
    app = open_at("pairs", **linked)
    assert_says(
        app,
        "Over 3 pairs, L",
        "Not measured. Row 5: the texts have 3 and 4 tokens.",
        "write texts of equal length",
        "n = 3",
    )
    assert "Head by token" not in page_text(app)
    # A link without the run's id finds it, too, once it is finished
    assert "Over 3 pairs" in page_text(open_at("pairs", **link))


@pytest.mark.parametrize("name", list(OWN))
def test_what_ships_is_what_is_measured(name):
    saved = read_measurement(Run(SAVED / name))
    assert saved.config == PairsConfig(f"lab:{name}", positions=True) and saved.count == 24
    effects = saved.effects
    two = measure_pairs(load_lab_model(name), saved.config.pairs[:2], ["zero", "patched", "direct"])
    for way, values in two.effects.items():
        assert_close(effects.effects[way][:2], values)
    assert not effects.refused and np.isfinite(effects.half("mean")).all()
    assert effects.positions.shape[:2] == effects.effects["zero"].shape


def test_ways_picked_in_another_order_are_the_same_measurement():
    app = open_at("pairs", **{"inside:model": "names"})
    app.multiselect(key="pairs:ways").set_value([*BY_KEY][::-1]).run()
    assert "Over 24 pairs" in page_text(app)
    app.multiselect(key="pairs:ways").set_value(["zero"]).run()
    assert_says(app, "24 pairs were not measured in this way yet.")
    app.multiselect(key="pairs:ways").set_value([]).run()
    assert_says(app, "take ways = one of zero")


def test_a_template_belongs_to_its_model():
    answer = "pairs:answer:writer"
    app = open_at("pairs", **{answer: "[B]"})
    assert app.text_input(key=answer).value == "[B]"
    assert "pairs were not measured in this way yet" in page_text(app)
    app.selectbox(key="inside:model").set_value("names").run()
    assert app.text_input(key="pairs:answer:names").value == "[A]"
    assert "Over 24 pairs" in page_text(app)


def test_tokens_are_turned_where_they_have_no_room():
    for across, angle in (("token", {"expr": "width < 112 ? -90 : 0"}), ("head", 0)):
        tokens, cell = ["0 When", "1 Mary …"], {"layer": "L0", "head": "0 When", "change": 1.0}
        spec = effect_grid([cell], ["L0"], tokens, ("L0", tokens[0]), "light", across=across)
        assert spec["layer"][0]["encoding"]["x"]["axis"]["labelAngle"] == angle


def test_one_pair_has_no_interval():
    effects = measure_pairs(load_lab_model("names"), PAIRS[:1], ["zero"])
    assert draw.sure_text(effects, "zero") == "One pair has no interval; give more of them."
    assert "±" not in draw.fact_text(effects, "zero", 0, "kl")
    assert all(row["half"] is None for row in draw.grid_rows(effects, "zero"))
    few = draw.table(effects, 3)[1]
    assert len(few) == 4 and draw.strongest(effects, 3)[0] == np.abs(effects.mean("zero")).argmax()
