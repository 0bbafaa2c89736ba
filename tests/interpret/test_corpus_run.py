"""A measurement as a folder: what stop and a killed worker leave, how it continues, and its texts."""

import json
from pathlib import Path

import numpy as np
import pytest

from core.entries import ConfigError
from core.interpret import corpus_run
from core.interpret.corpus import MEASURES, CorpusConfig
from core.interpret.corpus_run import (
    LONGEST,
    create,
    inputs_of,
    load,
    load_inputs,
    own_texts,
    split_texts,
    values_of,
    work,
)
from core.pretrained import PretrainedError
from core.runs import worker
from core.runs.runs import Run, list_runs
from dashboard.server import jobs
from tests.tiny_models import SENTENCE, save
from tests.training.small import run_command

TEXTS = (
    "the old man\nthe king and the queen\nthe man and the old king\nthe queen the queen the queen"
)
CONFIG = CorpusConfig("lab:induction", "texts", TEXTS, kind="causal")
SAVED = Path(__file__).resolve().parents[2] / "core" / "studies" / "data" / "corpora"


@pytest.fixture
def whole(tmp_path) -> Run:
    finished = create(CONFIG, tmp_path / "whole")
    assert work(finished, lambda: False) == ("finished", "Measured 4 texts.")
    return finished


def after(count: int):
    """A stop that is requested once so many texts were measured."""
    left = iter([False] * (count - 1))
    return lambda: next(left, True)


def numbers(measured: Run) -> list:
    corpus = load(measured)
    values = [values_of(measured, corpus, one.key, (1, 2)) for one in MEASURES]
    return [
        corpus.texts,
        *np.nan_to_num(corpus.means.mean).ravel(),
        *corpus.roles.rows.ravel(),
        *np.nan_to_num(values).ravel(),
    ]


def test_stop_leaves_what_was_measured_and_it_continues_to_the_same_numbers(tmp_path, whole):
    stopped = create(CONFIG, tmp_path / "stopped")
    assert work(stopped, after(2)) == ("stopped", "Stopped after 2 of 4 texts, which are saved.")
    corpus = load(stopped)
    assert corpus.texts == 2 and len(values_of(stopped, corpus, "entropy", (0, 0))) == 2
    assert work(stopped, lambda: False)[0] == "finished" and numbers(stopped) == pytest.approx(
        numbers(whole)
    )


def test_the_saved_values_are_those_of_the_means(whole):
    corpus = load(whole)
    values = values_of(whole, corpus, "distance", (1, 2))
    assert (
        values.mean() == pytest.approx(corpus.mean("distance")[1, 2], abs=1e-5) and values.std() > 0
    )


def test_a_killed_worker_continues_without_a_text_twice(tmp_path, whole, monkeypatch):
    broken = create(CONFIG, tmp_path / "broken")
    saves = iter(range(9))

    def save_once(measured, corpus):
        if next(saves):
            raise KeyboardInterrupt
        save(measured, corpus)

    save = corpus_run.save_statistics
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(corpus_run, "SAVE_SECONDS", 0.0)
        patch.setattr(corpus_run, "save_statistics", save_once)
        work(broken, lambda: False)
    assert load(broken).texts == 1, (
        "the values of the second text are there, its statistics are not"
    )
    assert work(broken, lambda: False)[0] == "finished" and numbers(broken) == pytest.approx(
        numbers(whole)
    )


def test_a_worker_that_died_is_reported_with_what_it_left(monkeypatch):
    monkeypatch.setattr(jobs, "max_workers", lambda: 0)
    measured = jobs.measure(CONFIG)
    work(measured, after(3))
    measured.set_status("running", pid=999_999)
    jobs.tick()
    assert measured.status().state == "failed"
    assert measured.status().message == (
        "The worker ended without a message; everything up to text 3 is saved."
    )


def test_two_sessions_measure_apart_and_outside_the_list_of_runs(monkeypatch):
    monkeypatch.setattr(jobs, "max_workers", lambda: 0)
    first, second = jobs.measure(CONFIG), jobs.measure(CONFIG)
    assert (
        first.id != second.id
        and not list_runs()
        and [one.id for one in jobs.queue()[0]] == [first.id, second.id]
    )
    jobs.stop(first)
    assert first.status().state == "stopped" and jobs.place(second).number == 1
    jobs.stop(second)


def test_the_worker_measures_a_corpus_and_says_what_is_wrong_with_one(tmp_path, worker_here):
    good = create(CONFIG, tmp_path / "good")
    assert worker.main([str(good.path)]) == 0 and load(good).texts == 4
    wrong = create(CorpusConfig("lab:induction", "texts", TEXTS, kind="self"), tmp_path / "wrong")
    assert worker.main([str(wrong.path)]) == 1
    assert wrong.status().message == "induction has no attention of kind 'self'; it has causal."
    with pytest.raises(PretrainedError, match="There is no model at /gone"):
        create(CorpusConfig("/gone"), tmp_path / "gone")


@pytest.mark.parametrize(
    ("family", "kind"), [("llama", "causal"), ("t5", "self"), ("t5", "causal")]
)
def test_a_model_in_a_folder_is_measured_with_its_heads_switched_off(tmp_path, family, kind):
    folder = str(save(family, tmp_path / family))
    measured = create(
        CorpusConfig(folder, "texts", SENTENCE, kind=kind, ablation=True), tmp_path / "run"
    )
    assert work(measured, lambda: False)[0] == "finished"
    corpus = load(measured)
    assert np.isfinite(corpus.mean("entropy")).all() and (corpus.mean("ablation") > 0).all()


def test_the_command_measures_a_file(tmp_path, worker_here, capsys):
    (tmp_path / "texts.txt").write_text(TEXTS, encoding="utf-8")
    command = [
        "core.interpret.corpus_command",
        str(tmp_path / "run"),
        "--model",
        "induction",
        "--kind",
        "causal",
    ]
    assert run_command(*command, "--source", "texts", "--data", str(tmp_path / "texts.txt")) == 0
    assert "finished: Measured 4 texts." in capsys.readouterr().out


def test_an_older_measurement_lacks_the_measures_that_were_added_since(whole):
    data = whole.metadata()
    order = [data["measures"][0], "gone", *data["measures"][1:-1]]
    whole.update_metadata(measures=order)
    corpus = load(whole)
    assert corpus.texts_of("entropy").max() == 4 and not corpus.texts_of(MEASURES[-1].key).any()


def test_texts_are_lines_or_paragraphs_once_each_and_not_too_long():
    data = f"one line\nnext  line\n\nnext line\n{'long ' * 300}"
    texts, notes = split_texts(data, "lines")
    assert [len(text) for text in texts] == [8, 9, LONGEST] and texts[1] == "next line"
    assert notes == [
        "1 of the texts is longer than 1,000 characters; the rest of them is left out.",
        "1 of the texts is there already and left out.",
    ]
    assert split_texts("a\nb\n \nc", "paragraphs")[0] == ["a b", "c"]
    inputs, left_out = inputs_of(CorpusConfig(source="texts", data=TEXTS, count=2))
    assert len(inputs) == 2 and left_out == ("There are 4 texts; the first 2 are measured.",)
    for wrong in ("", " \n "):
        with pytest.raises(ConfigError, match="There is no text yet"):
            split_texts(wrong, "lines")


def test_the_lab_has_three_hundred_texts_of_its_own_and_those_its_models_learned():
    assert len(own_texts()) == len(set(own_texts())) == 300 and max(map(len, own_texts())) < LONGEST
    for name in ("induction", "numbers", "digits"):
        inputs, _ = inputs_of(CorpusConfig(f"lab:{name}", "training", count=3))
        again = [corpus_run.from_json(corpus_run.to_json(one)) for one in inputs]
        assert [(one.text, one.target) for one in again] == [
            (one.text, one.target) for one in inputs
        ]
        assert all(one.text or one.picture is not None for one in inputs) and len(inputs) == 3
    with pytest.raises(ConfigError, match="The training data of minilm is not here"):
        inputs_of(CorpusConfig(source="training"))


@pytest.mark.parametrize("name", sorted(path.name for path in SAVED.iterdir()))
def test_what_the_page_shows_first_is_whole(name):
    saved = Run(SAVED / name)
    corpus = load(saved)
    assert (
        corpus.texts == len(load_inputs(saved)) == saved.metadata()["texts"] == 300
        and not corpus.failed
    )
    values = values_of(saved, corpus, "entropy", (0, 1))
    assert values.mean() == pytest.approx(corpus.mean("entropy")[0, 1], abs=1e-4)
    assert np.isfinite(corpus.mean("ablation")).all()


@pytest.mark.parametrize(
    "change", [{"source": "web"}, {"count": 0}, {"count": 1_001}, {"kind": "cross"}, {"name": 1}]
)
def test_a_config_that_cannot_be_measured_is_refused(change):
    with pytest.raises(ConfigError):
        CorpusConfig.from_json({**CorpusConfig().to_json(), **change})
    assert CorpusConfig.from_json(json.loads(json.dumps(CONFIG.to_json()))) == CONFIG
