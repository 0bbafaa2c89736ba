from dataclasses import replace

import numpy as np
import pytest

from core.interpret.corpus import (
    SAVED,
    CorpusConfig,
    corpora_folder,
    create,
    read_measurement,
    work,
)
from core.runs.runs import Run, list_runs
from dashboard.server import jobs
from pages import corpus
from tests.pages.app import Case, assert_says, csv_rows, open_at, page_cases, query_value

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


test_what_it_says = page_cases(
    "corpus",
    {
        "pictures": Case(
            {"inside:model": "digits", "corpus:y": "OV copying"},
            [
                "the mean over 300 pictures",
                "300 pictures, measured on",
                "OV copying has no values: this model reads and writes no tokens",
            ],
            ["300 texts", "a text's"],
        ),
        "no text": Case(
            {**LINK, "corpus:data": ""},
            ["There is no text yet; paste it or choose a file.", "Measure (disabled)"],
        ),
        "no character of a text": Case(
            {**LINK, "corpus:data": "a\x00b"},
            ["holds the control character U+0000", "Measure (disabled)"],
        ),
    },
)


def test_own_texts_wait_for_a_press_and_then_for_a_worker(no_workers):
    app = open_at("corpus", **LINK)
    app.button(key="corpus:start").click().run()
    [run] = list_runs(corpora_folder())
    assert query_value(app, "corpus:run") == run.id and not list_runs()
    for one in (app, open_at("corpus", **LINK, **{"corpus:run": run.id})):
        assert "number 1 in the queue" in one.get("progress")[0].proto.text
    assert_says(open_at("corpus", **LINK), "These texts were not measured with this model yet.")
    jobs.stop(run)


def test_a_stopped_measurement_shows_what_it_has_goes_on_and_is_found_by_its_texts(no_workers):
    run = create(OWN, corpora_folder() / "20260101-000000-abcdef")
    assert corpus.find_measurement(OWN, None) is None
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
    run.set_status(*work(run, lambda: False))
    others = replace(OWN, count=2), replace(OWN, ablation=True)
    for linked in (None, run.id):
        assert [corpus.find_measurement(one, linked) for one in (OWN, *others)] == [run, None, None]
    assert corpus.find_measurement(CorpusConfig(), "../../etc") == Run(SAVED / "minilm")
    assert_says(
        open_at("corpus", **LINK, **{"corpus:x": "Ablation effect"}),
        "induction, causal self-attention, 3 texts",
        "Ablation effect was not measured here. Turn on “Switch heads off”",
    )


def test_the_table_has_every_measure_of_every_head():
    measurement = read_measurement(Run(SAVED / "induction"))
    lines = csv_rows(corpus.to_csv(measurement))
    assert {line["head"] for line in lines} == set(measurement.heads)
    assert len(measurement.heads) == 8
    one = next(line for line in lines if (line["head"], line["measure"]) == ("L1·H2", "induction"))
    assert float(one["mean"]) == pytest.approx(
        np.nanmean(measurement.corpus.values_of("induction", (1, 2))), abs=1e-5
    )
    assert (one["texts"], one["role"]) == ("300", "induction")
