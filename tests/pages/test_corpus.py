import re
from dataclasses import replace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.circuits import copying_scores, read_heads, read_vocabularies
from core.interpret.corpus import BY_KEY, COPYING, CorpusConfig
from core.interpret.corpus_run import corpora_folder, create, load, work
from core.pretrained import load_lab_model
from core.runs.runs import Run, list_runs
from core.studies.corpus import SAVED, read_measurement
from dashboard.draw.formats import number
from dashboard.server import jobs
from dashboard.ui.models import EMBEDDED, ModelRef
from pages import corpus
from pages.corpus import axis_of, find_measurement
from tests.pages.app import assert_says, csv_rows, figures, open_at, page_text, query_value

TEXTS = (
    "the old man and the old king\nthe king and the queen\nthe man and the old man and the old man"
)
OWN = CorpusConfig("lab:induction", "texts", TEXTS, kind="causal")
LINK = {
    "inside:model": "induction",
    "corpus:source:training": "Your own texts",
    "corpus:data": TEXTS,
}


@pytest.fixture
def no_workers(monkeypatch):
    monkeypatch.setattr(jobs, "max_workers", lambda: 0)


def rows(app: AppTest) -> list[str]:
    """The lines of the table of texts, without tags."""
    table = next(
        body
        for body in (element.proto.body for element in app.get("html"))
        if "Texts of this head" in body
    )
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in table.split("<tr>")[2:]]


def test_first_sight_is_a_whole_measurement_of_minilm_with_nothing_pressed():
    app, corpus = open_at("corpus"), load(Run(SAVED / "minilm"))
    mean, half = (number(values("same")[2, 9]) for values in (corpus.mean, corpus.interval))
    assert_says(
        app, f"its weight on the same word elsewhere is {mean} ± {half}, the mean over 190 texts"
    )
    values = [float(row.split()[0]) for row in rows(app)]
    assert len(values) == 5 and values == sorted(values)[::-1] and len(figures(app)) == 2


def test_a_model_of_pictures_has_pictures():
    app = open_at("corpus", **{"inside:model": "digits", "corpus:y": "OV copying"})
    assert_says(
        app,
        "the mean over 300 pictures",
        "300 pictures, measured on",
        "OV copying has no values: this model reads and writes no tokens",
    )
    assert re.match(r"\d\.\d+ .*picture \d+: ", rows(app)[0])
    assert figures(app)[0].proto.spec.count('"pictures"') == 2
    assert not re.search(r"\d texts|a text's", page_text(app))


def test_own_texts_wait_for_a_press_and_then_for_a_worker(no_workers):
    app = open_at("corpus", **LINK)
    assert_says(app, "These texts were not measured with this model yet.")
    app.button(key="corpus:start").click().run()
    [run] = list_runs(corpora_folder())
    assert query_value(app, "corpus:run") == run.id and not list_runs()
    for one in (app, open_at("corpus", **LINK, **{"corpus:run": run.id})):
        [bar] = one.get("progress")
        assert "number 1 in the queue" in bar.proto.text
    assert_says(open_at("corpus", **LINK), "not measured with this model yet")
    jobs.stop(run)


def test_a_stopped_measurement_shows_what_it_has_and_can_continue(no_workers):
    run = create(OWN, corpora_folder() / "20260101-000000-abcdef")
    assert corpus.progress(read_measurement(run)) == (0.0, "Loading the model")
    left = iter([False, True])
    run.set_status(*work(run, lambda: next(left)))
    measurement = read_measurement(run)
    assert measurement.corpus.seconds > 0
    measurement.corpus.seconds = 2.4
    assert corpus.progress(measurement) == (2 / 3, "2 of 3 texts; about 3 s left")
    app = open_at("corpus", **LINK, **{"corpus:run": run.id})
    assert_says(
        app,
        "Stopped after 2 of 3 texts, which are saved.",
        "induction, causal self-attention, 2 texts, measured on",
    )
    app.button(key="corpus:continue").click().run()
    assert run.status().state == "queued"


def test_what_was_measured_once_needs_no_second_press():
    run = create(OWN, corpora_folder() / "20260101-000000-abcdef")
    assert find_measurement(OWN, None) is None
    run.set_status(*work(run, lambda: False))
    others = replace(OWN, count=2), replace(OWN, ablation=True)
    assert [find_measurement(one, None) for one in (OWN, *others)] == [run, None, None]
    assert find_measurement(CorpusConfig(), "../../etc") == Run(SAVED / "minilm")
    assert_says(
        open_at("corpus", **LINK, **{"corpus:x": "Ablation effect"}),
        "induction, causal self-attention, 3 texts",
        "Ablation effect was not measured here. Turn on “Switch heads off”",
    )
    assert_says(
        open_at("corpus", **LINK, **{"corpus:count": "2"}), "not measured with this model yet"
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("", "There is no text yet; paste it or choose a file."),
        ("a\x00b", "holds the control character U+0000"),
    ],
)
def test_texts_that_are_none_are_refused_in_words(data, says):
    app = open_at("corpus", **{**LINK, "corpus:data": data})
    assert_says(app, says)
    assert app.button(key="corpus:start").disabled


def test_the_scatter_has_every_head_at_its_means_with_both_intervals():
    measurement = read_measurement(Run(SAVED / "minilm"))
    across, up = (axis_of(measurement, EMBEDDED, BY_KEY[key]) for key in ("distance", "ablation"))
    points = corpus.scatter_rows(measurement, across, up, "light")
    by_name = {point["name"]: point for point in points}
    assert len(points) == len(by_name) == 72
    one, measured = by_name["L0·H2"], measurement.corpus
    assert one["x"] == measured.mean("distance")[0, 2] == pytest.approx(1, abs=0.01)
    assert one["role"] == "Previous token"
    assert one["y1"] - one["y0"] == pytest.approx(2 * measured.interval("ablation")[0, 2])


def test_ov_copying_is_read_from_the_weights_and_has_no_interval():
    measurement, model = read_measurement(Run(SAVED / "induction")), load_lab_model("induction")
    axis = axis_of(measurement, ModelRef("lab", "induction"), COPYING)
    layer = next(heads for heads in read_heads(model) if heads.layer == 1)
    scores = copying_scores(layer, read_vocabularies(model)).numpy()
    assert axis.mean[1] == pytest.approx(scores, abs=1e-5)
    points = corpus.scatter_rows(measurement, axis, axis, "dark")
    point, value = next(one for one in points if one["name"] == "L1·H3"), axis.mean[1, 3]
    assert point["xs"] == f"OV copying {number(value)}"
    assert point["x0"] == point["x1"] == value


def test_the_table_has_every_measure_of_every_head():
    measurement = read_measurement(Run(SAVED / "induction"))
    lines = csv_rows(corpus.to_csv(measurement))
    assert {line["head"] for line in lines} == set(measurement.heads)
    assert len(measurement.heads) == 8
    one = next(line for line in lines if (line["head"], line["measure"]) == ("L1·H2", "induction"))
    values = measurement.values(BY_KEY["induction"], (1, 2))
    assert float(one["mean"]) == pytest.approx(np.nanmean(values), abs=1e-5)
    assert (one["texts"], one["role"]) == ("300", "induction")
