"""Measures over texts against NumPy on all maps at once, and against heads that plain hooks switch off."""

import json
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import stats

from core.entries import ConfigError
from core.interpret import corpus as analysis, patching
from core.interpret.circuits import copying_scores, read_heads, read_vocabularies
from core.interpret.corpus import (
    BY_KEY,
    DECILES,
    INDEX,
    INPUTS,
    LONGEST,
    MAX_TOKENS,
    MEASURES,
    Corpus,
    CorpusConfig,
    copying,
    decile_texts,
    has_training_data,
    head_changes,
    head_plane,
    head_vectors,
    inputs_of,
    joint_map,
    load,
    measure_texts,
    own_texts,
    ranked,
    read_text,
    shorten,
    split_texts,
    text_vectors,
    to_json,
    work,
)
from core.interpret.evidence import Question, ablate_heads, ask
from core.interpret.roles import score_roles
from core.interpret.trace import Kind
from core.pretrained import (
    ModelInputs,
    Pretrained,
    PretrainedError,
    encode,
    forward,
    load_lab_model,
    load_minilm,
)
from core.runs import worker
from core.runs.runs import Run, list_runs
from dashboard.server import queue
from tests.tiny_models import SENTENCE, asking, given, save, tiny
from tests.training.small import run_command

COUNT = 5


@pytest.fixture(scope="module")
def model() -> Pretrained:
    return load_lab_model("induction")


@pytest.fixture(scope="module")
def inputs() -> tuple[ModelInputs, ...]:
    texts, _ = inputs_of(CorpusConfig("lab:induction", "training", kind="causal", count=COUNT))
    return tuple(
        ModelInputs(" ".join(one.text.split()[: 12 + 9 * number]))
        for number, one in enumerate(texts)
    )


@pytest.fixture(scope="module")
def corpus(model, inputs) -> Corpus:
    *_, corpus = measure_texts(model, inputs, "causal")
    return corpus


def test_a_mean_leaves_out_texts_without_the_measure():
    values = np.random.default_rng(3).normal(2, 3, (40, 1, 1, 6))
    values[7:30, ..., 2] = values[..., 3] = values[1:, ..., 4] = values[2:, ..., 5] = np.nan
    corpus = Corpus(texts=40, values=list(values), measures=["own"])
    mean, half = corpus.mean("own")[0], corpus.interval("own")[0]
    for column in (0, 2, 5):
        valid = values[~np.isnan(values[..., column]), column]
        low, high = stats.t.interval(0.95, len(valid) - 1, valid.mean(), stats.sem(valid))
        assert mean[column] == pytest.approx(valid.mean(), abs=1e-12)
        assert 2 * half[column] == pytest.approx(high - low, abs=1e-12)
    assert corpus.texts_of("own").tolist() == [[40, 40, 17, 0, 1, 2]]
    assert np.isnan(half[3:5]).all() and np.isnan(mean[3])


def test_the_statistics_are_those_of_all_maps_at_once(model, inputs, corpus):
    # And the roles are those of all readings.
    readings = [read_text(model, item, "causal") for item in inputs]
    expected: dict[str, list[np.ndarray]] = {"entropy": [], "distance": [], "sink": []}
    for one in readings:
        special = np.array(one.source.special)
        weights = np.stack([item.weights for item in one.trace.maps])[:, :, ~special].astype(float)
        places = np.arange(weights.shape[-1])
        logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
        expected["entropy"].append(-(weights * logs).sum(-1).mean(-1))
        apart = abs(np.subtract.outer(places[~special], places))
        expected["distance"].append(np.einsum("lhts,ts->lht", weights, apart).mean(-1))
        expected["sink"].append(weights[..., special | (places == 0)].sum(-1).mean(-1))
    for key, values in expected.items():
        half = stats.t.ppf(0.975, COUNT - 1) * stats.sem(np.stack(values), axis=0)
        measured = corpus.mean(key), corpus.interval(key)
        assert np.allclose(measured, (np.mean(values, 0), half), atol=1e-6)
    whole, running = score_roles(readings, "causal"), corpus.roles.scores("causal", corpus.numbers)
    for name in ("score", "chance", "std"):
        assert np.allclose(getattr(running, name), getattr(whole, name), atol=1e-12, equal_nan=True)
    assert running.head_roles == whole.head_roles and running.numbers == whole.numbers
    # Nobody looks ahead, and heads are not switched off
    assert all(np.isnan(corpus.mean(key)).all() for key in ("next", "ablation"))
    alone = [score_roles([one], "causal").score[0] for one in readings]
    assert np.allclose(corpus.mean("previous"), np.mean(alone, 0), atol=1e-9)


def test_ablation_reaches_both_halves_of_differential_attention():
    # They were nan without a word: the zero of a head was of the first half alone
    made, item = tiny("diffllama"), asking("diffllama")
    changes = head_changes(made, item, read_text(made, item, "causal"), "causal")
    drop = ablate_heads(
        ask(made, Question(item, quantity="logit")), frozenset({("causal", 1, 3)})
    ).drop
    assert changes[1, 1, 3] == pytest.approx(-drop, rel=1e-4, abs=1e-6) and abs(drop) > 1e-3


@pytest.mark.parametrize("name", ["induction", "minilm"])
def test_a_saved_ablation_has_the_sign_of_every_other(name):
    saved = Run(SAVED / name)
    corpus, config = load(saved), CorpusConfig.of(saved)
    short = analysis.shorten(load_minilm() if name == "minilm" else load_lab_model(name))
    ways: Any = (("ablation", "probability"), ("ablation_logit", "logit"))
    for key, quantity in ways if name == "induction" else [("ablation", None)]:
        baseline = ask(short, Question(analysis.load_inputs(saved)[0], quantity=quantity))
        for layer, head in ((0, 1), (1, 2)):
            drop = ablate_heads(baseline, frozenset({(config.kind, layer, head)})).drop
            value = float(corpus.values_of(key, (layer, head))[0])
            assert value == pytest.approx(drop, rel=1e-3, abs=1e-5)


def test_ablation_is_change_of_answer_without_each_head(model, inputs):
    # Of an embedding 1 less the cosine
    minilm, sentence = load_minilm(), ModelInputs("The cat slept.")
    cases: list[tuple[Pretrained, ModelInputs, Kind]] = [
        (model, inputs[1], "causal"),
        (minilm, sentence, "self"),
    ]
    for one, item, kind in cases:
        changes = head_changes(one, item, read_text(one, item, kind), kind)
        for row, quantity in enumerate(("probability", "logit") if one is model else (None,)):
            baseline = ask(one, Question(item, quantity=quantity))  # type: ignore[arg-type]
            for layer, head in ((0, 1), (1, 2), (1, 3)):
                change = -ablate_heads(baseline, frozenset({(kind, layer, head)})).drop
                change = change if one is model else abs(change)
                assert changes[row, layer, head] == pytest.approx(change, rel=1e-4, abs=1e-6)
        # Some heads support the likeliest answer; an embedding is only so far from itself, and has no logit
        assert changes.shape[1:] == ((2, 4) if one is model else (6, 12))
        assert (changes[0].min() < 0) == (one is model) == bool(np.isfinite(changes[1]).all())


@pytest.mark.parametrize(
    ("cells", "rows"), [(1, 8 * [1]), (2 * 13 * 13 - 1, 8 * [1]), (3 * 13 * 13, [3, 3, 2])]
)
def test_as_many_heads_are_off_at_once_as_fit(model, inputs, cells, rows, monkeypatch):
    monkeypatch.setattr(patching, "forward", spy := Mock(wraps=forward))
    monkeypatch.setattr(analysis, "CELLS", cells)
    assert np.isfinite(
        head_changes(model, inputs[0], read_text(model, inputs[0], "causal"), "causal")
    ).all()
    assert [len(call.args[1]["input_ids"]) for call in spy.call_args_list] == rows


def test_a_text_that_cannot_be_read_is_left_out(model):
    texts = " ", "the old man", "the king", " ".join(["old man"] * MAX_TOKENS)
    *_, corpus = measure_texts(model, [*map(ModelInputs, texts)], "causal")
    assert (corpus.texts, corpus.read, corpus.failed, corpus.cut) == (4, 3, [0], 1)
    assert (
        corpus.error.startswith("There is nothing to read yet")
        and corpus.mean("distance").max() < MAX_TOKENS
    )
    most = [shorten(replace(model, max_tokens=count)).max_tokens for count in (9, 512)]
    assert most == [9, MAX_TOKENS]


def test_texts_by_value_and_at_each_decile():
    # Every measure has its place.
    values = np.array([np.nan, *np.arange(100, 0, -1) / 100])
    assert ranked(values)[:2].tolist() == [1, 2] and len(ranked(values)) == 100
    assert [decile_texts(values)[0], *decile_texts(np.array([0.5, np.nan]))] == [
        (0.1, (np.abs(values - np.quantile(values[1:], 0.1))[1:].argmin() + 1)),
        (0.1, 0),
    ]
    assert decile_texts(values[:1]) == [] and [share for share, _ in decile_texts(values)] == list(
        DECILES
    )
    assert (list(INDEX), [*INDEX, "copying"]) == ([one.key for one in MEASURES], list(BY_KEY))


def test_queries_and_keys_in_one_plane_keep_every_weight(model, inputs):
    vectors = head_vectors(model, inputs, "causal", max_tokens=30)
    q, k = vectors.head(1, 3)
    assert vectors.texts.max() == 1 and len(q) == len(k) == len(vectors.tokens) == 13 + 22
    assert len(head_vectors(model, inputs, "causal", max_tokens=13).tokens) == 13
    first = read_text(model, inputs[0], "causal").trace.of("causal").maps[1].weights[3]
    scores = np.where(np.tri(13, dtype=bool), q[:13] @ k[:13].T / np.sqrt(q.shape[-1]), -np.inf)
    assert np.allclose(np.exp(scores) / np.exp(scores).sum(-1, keepdims=True), first, atol=1e-5)
    points = joint_map(q, k)
    moved_q, moved_k = q * points.scale, k / points.scale
    moved_k = moved_k - moved_k.mean(0) + moved_q.mean(0)
    assert moved_q.std(0).mean() == pytest.approx(moved_k.std(0).mean(), rel=1e-4)
    sizes = np.sort(np.linalg.eigvalsh(np.cov(np.concatenate([moved_q, moved_k]).T)))[::-1]
    assert points.share == pytest.approx(sizes[:2] / sizes.sum(), rel=1e-4)
    pairs = [
        (-((points.q[i] - points.k[j]) ** 2).sum(), q[i] @ k[j])
        for i in range(35)
        for j in range(35)
        if (i < 13) == (j < 13)
    ]
    plane = head_plane(vectors, 1, 3)
    assert plane.near == pytest.approx(np.corrcoef(np.transpose(pairs))[0, 1], abs=1e-6)
    assert np.array_equal(plane.points.k, points.k)
    both, moved = np.concatenate([points.q, points.k]), np.concatenate([moved_q, moved_k])
    assert (np.linalg.lstsq(moved - moved.mean(0), both)[0].sum(0) > 0).all(), (
        "one sign of each axis"
    )
    still = joint_map(np.ones((3, 2)), np.ones((3, 2)))
    assert (still.scale, still.share) == (1, (0, 0)) and both.mean(0) == pytest.approx(
        [0, 0], abs=1e-9
    )
    assert np.allclose(np.cov(both.T), np.diag(sizes[:2]), rtol=1e-4, atol=1e-9)


def test_a_key_head_is_met_by_all_queries_that_share_it():
    grouped = head_vectors(tiny("llama"), [given("llama")] * 2, "causal", max_tokens=99)
    model, text = tiny("t5"), given("t5")
    assert np.array_equal(grouped.head(1, 4)[1], grouped.k[1][1]) and len(grouped.k[1]) == 2
    assert grouped.positions.tolist() == [*range(len(grouped.tokens) // 2)] * 2
    assert text_vectors(model, text, "causal").tokens == encode(model, text)[2].tokens
    scores, tables = copying(model, "causal", (3, 5)).mean, read_vocabularies(model)
    own = [copying_scores(one, tables) for one in read_heads(model) if one.kind == "causal"]
    assert np.allclose(scores[:2, :3], np.stack(own)) and np.isnan(scores).sum() == 15 - 6


# A measurement as a folder: what stop and a killed worker leave, how it continues, and its texts.


TEXTS = (
    "the old man\nthe king and the queen\nthe man and the old king\nthe queen the queen the queen"
)
CONFIG = CorpusConfig("lab:induction", "texts", TEXTS, kind="causal")
SAVED = Path(__file__).resolve().parents[2] / "core" / "studies" / "data" / "corpora"


@pytest.fixture
def whole(tmp_path) -> Run:
    finished = CONFIG.create(tmp_path / "whole")
    assert work(finished, lambda: False) == ("finished", "Measured 4 texts.")
    return finished


def after(texts: int):
    # A stop that is requested once so many texts were measured.
    left = iter([False] * (texts - 1))
    return lambda: next(left, True)


def test_what_is_measured_is_saved_as_often_as_clock_says(tmp_path, monkeypatch):
    # A clock that goes on by a second as it is read: it begins at 0, and each text reads it twice, or thrice if saved.
    monkeypatch.setattr(analysis, "time", SimpleNamespace(monotonic=count().__next__))
    monkeypatch.setattr(analysis, "SAVE_SECONDS", 4.5)
    timed, saved = CONFIG.create(tmp_path / "timed"), list[int]()
    for stop in (after(1), lambda: False):
        work(timed, stop, lambda corpus: saved.append(load(timed).texts))
    assert saved == [0, 1, 2, 2] and load(timed).seconds == (9 - 3) / 3


def numbers(measured: Run) -> list:
    corpus = load(measured)
    values = [corpus.values_of(one.key, (1, 2)) for one in MEASURES]
    means, rows = (
        np.nan_to_num([corpus.mean(one.key) for one in MEASURES]).ravel(),
        corpus.roles.rows.ravel(),
    )
    return [corpus.texts, *means, *rows, *np.nan_to_num(values).ravel()]


def test_stop_leaves_what_was_measured(tmp_path, whole):
    stopped = CONFIG.create(tmp_path / "stopped")
    assert work(stopped, after(2)) == ("stopped", "Stopped after 2 of 4 texts, which are saved.")
    corpus = load(stopped)
    assert corpus.texts == 2 and len(corpus.values_of("entropy", (0, 0))) == 2
    read: list[Corpus] = []
    assert work(stopped, lambda: False, read.append)[0] == "finished" and len(read) == 2
    assert numbers(stopped) == pytest.approx(numbers(whole))


def test_a_killed_worker_continues_without_a_text_twice(tmp_path, whole, monkeypatch):
    # The values of the second text are there, its statistics are not.
    broken, save = CONFIG.create(tmp_path / "broken"), analysis.save_statistics
    saves = iter(range(9))

    def save_once(measured, corpus):
        if next(saves):
            raise KeyboardInterrupt
        save(measured, corpus)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(analysis, "SAVE_SECONDS", 0.0)
        patch.setattr(analysis, "save_statistics", save_once)
        work(broken, lambda: False)
    assert (
        load(broken).texts == 1
        and work(broken, lambda: False)[0] == "finished"
        and numbers(broken) == pytest.approx(numbers(whole))
    )


def test_two_sessions_measure_apart(monkeypatch):
    # Outside the list of runs, and with what it left.
    monkeypatch.setattr(queue, "max_workers", lambda: 0)
    first, second = queue.measure(CONFIG), queue.measure(CONFIG)
    assert (
        first.id != second.id
        and not list_runs()
        and [one.id for one in queue.queue()[0]] == [first.id, second.id]
    )
    queue.stop(first)
    assert first.status().state == "stopped" and queue.place(second).number == 1
    work(second, after(3))
    second.set_status("running", pid=999_999)
    queue.tick()
    assert (second.status().state, second.status().message) == (
        "failed",
        "The worker ended without a message; everything up to text 3 is saved.",
    )


def test_the_worker_measures_a_corpus(tmp_path, worker_here):
    good = CONFIG.create(tmp_path / "good")
    assert worker.main([str(good.path)]) == 0 and load(good).texts == 4
    wrong = CorpusConfig("lab:induction", "texts", TEXTS, kind="self").create(tmp_path / "wrong")
    assert (
        worker.main([str(wrong.path)]) == 1
        and wrong.status().message == "induction has no attention of kind 'self'; it has causal."
    )
    pytest.raises(PretrainedError, CorpusConfig("/gone").create, tmp_path / "gone").match(
        "There is no model at /gone"
    )


@pytest.mark.parametrize(
    ("family", "kind"), [("llama", "causal"), ("t5", "self"), ("t5", "causal")]
)
def test_a_model_in_a_folder_is_measured(tmp_path, family, kind):
    folder = str(save(family, tmp_path / family))
    config = CorpusConfig(folder, "texts", SENTENCE, kind=kind, ablation=True)
    measured = config.create(tmp_path / "run")
    assert work(measured, lambda: False)[0] == "finished"
    corpus = load(measured)
    assert np.isfinite(corpus.mean("entropy")).all() and (corpus.mean("ablation") != 0).all()
    assert np.isfinite(corpus.mean("ablation_logit")).all()


def test_the_command_measures_a_file(tmp_path, worker_here, capsys):
    (tmp_path / "texts.txt").write_text(TEXTS, encoding="utf-8")
    more = "--model induction --kind causal --source texts --data".split()
    path = str(tmp_path / "run")
    more.append(str(tmp_path / "texts.txt"))
    assert (
        run_command("dashboard", "corpus", path, *more) == 0
        and "finished: Measured 4 texts." in capsys.readouterr().out
    )
    assert run_command("dashboard", "corpus", f"{path} 2", *more, "--kind", "self") == 1


def test_older_measurement_lacks_measures_that_were_added(whole):
    first, *others = whole.metadata()["measures"]
    whole.update_metadata(measures=[first, "gone", *others[:-1]])
    corpus = load(whole)
    assert corpus.texts_of("entropy").max() == 4 and not corpus.texts_of(MEASURES[-1].key).any()
    assert np.isnan(corpus.values_of(MEASURES[-1].key, (0, 0))).tolist() == [True] * 4
    # The ablation of before is without a sign, and so is no ablation of now
    assert "ablation" in others and not corpus.texts_of("ablation").any()


def test_texts_are_lines_or_paragraphs_once_each():
    lines = "one line\nnext  line\n\nnext line\nnext line"
    texts, notes = split_texts(f"{lines}\n{'long ' * 300}\n{'x' * LONGEST}", "lines")
    assert [len(text) for text in texts] == [8, 9, LONGEST, LONGEST] and texts[1] == "next line"
    assert notes == [
        "1 of the texts is longer than 1,000 characters; the rest of them is left out.",
        "2 of the texts are there already and left out.",
    ]
    assert split_texts("a\nb\n \nc", "paragraphs")[0] == ["a b", "c"]
    inputs, left_out = inputs_of(CorpusConfig(source="texts", data=TEXTS, count=2))
    assert len(inputs) == 2 and left_out == ("There are 4 texts; the first 2 are measured.",)
    assert inputs_of(CorpusConfig(count=3))[1] == inputs_of(replace(CONFIG, count=4))[1] == ()
    for wrong in ("", " \n "):
        pytest.raises(ConfigError, split_texts, wrong, "lines").match("There is no text yet")


def test_the_lab_has_three_hundred_texts_of_its_own():
    assert len(own_texts()) == len(set(own_texts())) == 300 and max(map(len, own_texts())) < LONGEST
    for name in ("induction", "numbers", "digits"):
        inputs, _ = inputs_of(CorpusConfig(f"lab:{name}", "training", count=3))
        again = [analysis.from_json(analysis.to_json(one)) for one in inputs]
        assert [(one.text, one.target) for one in again] == [
            (one.text, one.target) for one in inputs
        ]
        assert all(one.text or one.picture is not None for one in inputs) and len(inputs) == 3
        assert all((one.target is None) == (name != "numbers") for one in inputs)
    assert [*map(has_training_data, ("lab:digits", "lab:gone", "minilm"))] == [True, False, False]
    pytest.raises(ConfigError, inputs_of, CorpusConfig(source="training")).match(
        "The training data of minilm is not here"
    )


@pytest.mark.parametrize("name", sorted(path.name for path in SAVED.iterdir()))
def test_what_the_page_shows_first_is_whole(name):
    saved = Run(SAVED / name)
    corpus = load(saved)
    assert corpus.texts == saved.metadata()["texts"] == 300 and not corpus.failed
    assert (saved.path / INPUTS).read_text("utf-8").splitlines() == [
        *map(to_json, inputs_of(CorpusConfig.of(saved))[0])
    ]
    assert (
        corpus.values_of("entropy", (0, 1)).mean()
        == pytest.approx(corpus.mean("entropy")[0, 1], abs=1e-4)
        and np.isfinite(corpus.mean("ablation")).all()
    )


@pytest.mark.parametrize(
    "change", [{"source": "web"}, {"count": 0}, {"count": 1_001}, {"kind": "cross"}, {"name": 1}]
)
def test_a_config_that_cannot_be_measured_is_refused(change):
    pytest.raises(ConfigError, CorpusConfig.from_json, {**asdict(CorpusConfig()), **change})
    assert CorpusConfig.from_json(json.loads(json.dumps(asdict(CONFIG)))) == CONFIG
