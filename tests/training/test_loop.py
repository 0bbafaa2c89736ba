"""Training: its records, what ends it, its best weights, each option of a run; and the worker that does it as a process."""

import gc
import io
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.base import ScoreBlock
from core.attention.masks.content import LightningIndexer, indexer_loss, selection
from core.models import ModelConfig, build_model
from core.models.decoding import EOS
from core.runs import archive, executor, machine, worker
from core.runs.runs import Run, create_run, find_run
from core.tasks import Example, TaskConfig, make_task
from core.tasks.tables import TableTask
from core.training import (
    Prediction,
    Record,
    RunConfig,
    evaluate,
    loop,
    nanogpt,
    prepare,
    recommended,
    train,
)
from core.training.__main__ import progress
from core.training.config import NEW_FIELDS
from dashboard.draw import train as train_words
from dashboard.server import queue
from dashboard.ui import runs
from pages import runs as runs_words
from tests.cases import descend, each, instance, wait_for
from tests.training.small import (
    FINAL,
    SAME_LAST_BIT,
    forked,
    record_numbers,
    records_of,
    run_command,
    small_run,
    trained,
)


def test_a_run_is_its_records():
    first, second, third = itertools.islice(train(small_run()), 3)
    *_, last = records = records_of()
    assert [r.step for r in (first, second, third)] == [0, 2, 4]
    assert record_numbers(third) == record_numbers(records[2]), "the same seed, the same numbers"
    assert record_numbers(second) != record_numbers(records_of(seed=4)[1])
    assert all(len(r.examples) == 2 and r.held_out == 11 for r in records[:3])
    assert last.final and last.held_out == loop.FINAL == 20 < FINAL == 1000 and last.step == 4
    assert last.gradient > 0 and last.tokens_per_second > 0 and not last.capped
    assert 0 < last.train_seconds < last.elapsed < time.perf_counter()
    session = prepare(small_run())
    steps = [loop.one_step(session, step) for step in (1, 2)]
    means = [sum(float(getattr(one, name)) for one in steps) / 2 for name in ("loss", "gradient")]
    assert [second.train_loss, second.gradient] == pytest.approx(means)
    session.steps = [replace(one, busy=30.0, data=10.0, indexer=torch.tensor(3.0)) for one in steps]
    record = loop.measure(session)
    assert [record.data_share, record.indexer_loss] == pytest.approx([1 / 3, 3.0], rel=0.1)
    tokens = 2 * 8 * (6 + 7)  # steps, examples, letters and those to say with the end mark
    assert second.tokens_per_second == pytest.approx(tokens / second.train_seconds)
    assert first.train_loss is first.rate is first.data_share is None and first.gradients == {}
    parts = loop.parts_of(model := prepare(small_run()).model)
    encoder = ["source", "source_places", "encoder.layers.0"]
    assert list(second.gradients) == list(parts)
    assert [*parts] == [*encoder, "target", "target_places", "layers.0", "output"]
    assert sum(map(len, parts.values())) == len(list(model.parameters()))
    assert all(0 < norm < 10 for norm in second.gradients.values()) and second.train_loss > 0
    assert 0 < second.data_share < 1 and second.rate == loop.learning_rate(small_run(), 2)


@each("end", ["finished", "closed", "raised", "dropped"])
def test_the_caller_keeps_its_threads(end):
    torch.set_num_threads(2)
    seen = []

    def stop() -> bool:
        seen.append(torch.get_num_threads())
        return end == "raised" and bool(1 // 0)

    records = train(small_run(), stop=stop)
    with pytest.raises(ZeroDivisionError) if end == "raised" else nullcontext():
        for _ in records:
            assert torch.get_num_threads() == 2
            if end in ("closed", "dropped"):
                break
    if end == "closed":
        records.close()  # type: ignore[attr-defined]
    del records
    prepare(small_run())
    assert torch.get_num_threads() == 2 and set(seen) <= {1}


def test_pairs_that_are_made_once_are_no_time_of_training():
    session = prepare(small_run(task=TaskConfig.of("numbers", train_pairs=1000)))
    next(train(session.config, session))
    assert session.progress.step == 0 and "_pool_batch" in vars(session.task)


def test_final_record_tells_long_sources_from_short_ones():
    def prediction(source: int, right: bool) -> Prediction:
        words = tuple(f"w{i}" for i in range(4))
        return Prediction(("a",) * source, words, words if right else ("x",) * 4)

    numbers = make_task(TaskConfig.of("numbers"))
    ranges = evaluate.buckets(
        numbers,
        [prediction(3, True), prediction(10, False), prediction(11, True), prediction(25, False)],
    )
    assert [(b.lengths, b.count, b.sequence_accuracy) for b in ranges] == [
        ("1–10", 2, 0.5),
        ("11–20", 1, 1.0),
        ("21–30", 1, 0.0),
    ]
    assert ranges[1].bleu == pytest.approx(100) and ranges[2].bleu == 0
    assert evaluate.buckets(numbers, [prediction(3, True), prediction(4, True)]) == ()
    assert len(evaluate.buckets(numbers, [prediction(10, True), prediction(11, True)])) == 2
    record = Record(step=1, buckets=ranges)
    assert Record.from_json(record.to_json()) == record


def test_the_expected_weight_is_what_the_maps_say(monkeypatch):
    record, task = records_of(held_out=2)[0], make_task(small_run().task)
    assert set(record.maps) == {f"{i}:{kind}" for i in "01" for kind in ("self", "causal", "cross")}
    weights = record.maps["0:cross"]
    assert weights.shape == (1, 2, 7, 6)  # layers, heads, six letters and the end, six letters
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    keys = evaluate.expected_keys(task, task.held_out(2), 7, "cpu")
    assert keys[..., 0].tolist() == [[5, 4, 3, 2, 1, 0, -1]] * 2
    both = [record.maps[f"{e}:cross"][0] for e in "01"]
    by_hand = [[np.mean([one[h, t, 5 - t] for one in both for t in range(6)]) for h in range(2)]]
    np.testing.assert_allclose(record.expected, by_hand, rtol=1e-5)
    assert record.even == pytest.approx(1 / 6)
    session = prepare(small_run())
    with torch.no_grad():
        for weight in session.model.parameters():
            weight.zero_()
    model, held = session.model.eval(), session.held_out
    given = evaluate.measure_teacher_forced(model, session.task, held, "cpu")
    np.testing.assert_allclose(given["expected"], given["even"], rtol=1e-5)  # of even attention
    for numbers_at_most, examples in ((507, 1), (508, 2), (762, 3)):  # 254 of each example
        monkeypatch.setattr(evaluate, "FRAME_NUMBERS", numbers_at_most)
        found = evaluate.frames(model, session.config.model, session.task, held, "cpu")
        assert len(found) == 3 * examples
    assert evaluate.best_head(None) == evaluate.best_head(Record(0)) == (0, 0)
    heads = Record(0, expected=((0.1, 0.3), (0.2, 0.3)))
    assert evaluate.best_head(heads) == (0, 1), "the first of the best"
    record = next(train(small_run(model=ModelConfig.recurrent(d_model=8, score=None))))
    assert record.maps == {} and record.expected is None and record.even is None


def test_weights_of_outputs_on_their_source_by_kind_of_map():
    # Of two outputs of a source of three positions; a classifier's are one row, its class.
    weights, rows = np.arange(25.0).reshape(5, 5), ("a", "b", "c", "d", "e")

    def read(kind, config="decoder", rows=rows, pool=""):
        model: Any = SimpleNamespace(kind=config, pool=pool)
        found = evaluate.source_weights(model, kind, weights, rows, 3)
        return found and (found[0], found[1].tolist())

    both = (("d", "e"), weights[3:, :3].tolist())
    assert read("causal") == read("self", "forecaster") == both
    assert read("self") is read("causal", rows=rows[:3]) is read("words") is None
    assert read("cross") == (rows, weights.tolist()) and read("sentences")[0] == ("class",)
    first = read("self", "classifier", pool="first"), read("self", "classifier", pool="mean")
    assert first == ((("class",), [[1, 2, 3, 4]]), (("class",), [weights.mean(0).tolist()]))


def test_words_and_sentences_are_multiplied():
    task = make_task(TaskConfig.of("documents", sentences=3, courts=3))
    example, config = task.held_out(1)[0], ModelConfig.recurrent(8, kind="hierarchical")
    words = np.random.default_rng(0).random((1, 1, 2, len(example.source)))
    frame = {"0:sentences": np.full((1, 1, 1, 2), 0.5), "0:words": words}
    maps = instance(evaluate.source_maps(config, task, frame, example, 0), evaluate.SourceMaps)
    np.testing.assert_allclose(maps.weights[0, 0, 0], words[0, 0].mean(0))
    assert (maps.rows, maps.columns) == (("class",), example.source)
    assert evaluate.source_maps(config, task, frame, example, 1) is None


def test_a_cap_on_seconds_ends_with_a_final_record():
    calls = itertools.count()
    records = list(train(small_run(steps=100), stop=lambda: next(calls) > 3))
    assert not any(r.final for r in records) and len(records) <= 2
    long = dict(steps=20_000, finish_early=False)
    records = list(train(small_run(**long, max_seconds=1, record_every=5_000)))
    assert records[-1].final and 0 < records[-1].step < 20_000
    assert records[-1].capped and not any(record.capped for record in records[:-1])
    *_, last = train(small_run(**long, max_train_seconds=0.5, record_every=50))
    assert last.final and 0.5 <= last.train_seconds < 1.5 and last.elapsed > last.train_seconds


def test_two_confirmed_passes_finish_early(monkeypatch):
    refused = 0.98
    seen = [0.0, 0.995, 0.5, 0.99, 1.0, refused, 0.99, 1.0, 0.995]
    scores = iter(seen)
    monkeypatch.setattr(evaluate.Objective, "score", lambda *_: {"sequence_accuracy": next(scores)})
    records = list(train(small_run(steps=50)))
    assert [r.sequence_accuracy for r in records] == [one for one in seen if one != refused]
    assert records[-1].step == 12 and records[-1].final


@each(
    ("changes", "step", "rate"),
    [
        (dict(steps=100, warmup=9, learning_rate=1.0), 5, pytest.approx(0.5, abs=0.01)),
        (dict(steps=100, warmup=9, learning_rate=1.0), 100, pytest.approx(0.1)),
        ({"schedule": "constant", "learning_rate": 1.0}, 4, 1.0),
        (dict(learning_rate=1.0, min_rate=0.0), 4, pytest.approx(0.0)),
        (dict(learning_rate=1.0, min_rate=0.3), 4, pytest.approx(0.3)),
        # Vaswani's d^-0.5 · min(n^-0.5, n · w^-1.5) is its peak d^-0.5 · w^-0.5 times min(√(w/n), n/w).
        *(
            (
                dict(steps=1000, warmup=99, learning_rate=0.02, schedule="inverse_sqrt"),
                step,
                pytest.approx(0.02 * min(step**-0.5, step * 100**-1.5) / 100**-0.5),
            )
            for step in (1, 40, 100, 400, 1000)
        ),
    ],
)
def test_learning_rate_rises_then_falls_by_its_schedule(changes, step, rate):
    assert loop.learning_rate(small_run(**changes), step) == rate


def test_reverse_is_learned(monkeypatch):
    config = recommended(
        make_task(TaskConfig.of("reverse")), "transformer", max_seconds=120, record_every=20
    )
    monkeypatch.setattr(loop, "FINAL", FINAL)
    last = list(train(config))[-1]
    assert last.sequence_accuracy >= 0.99 and last.held_out == 1000
    assert max(map(max, last.expected)) > 5 * last.even


def test_a_step_fetches_nothing_from_the_device(monkeypatch):
    # Each fetch of a number would wait for the device; the loop itself fetches all at once, at a record.
    session, calls = prepare(small_run(steps=6, record_every=3)), []
    for name in ("item", "tolist", "__float__", "__bool__", "__int__", "cpu"):
        usual = getattr(torch.Tensor, name)

        def counted(self, *args, usual=usual, name=name, **named):
            place = sys._getframe(1).f_code
            if place.co_filename == loop.__file__:
                calls.append((place.co_name, name))
            return usual(self, *args, **named)

        monkeypatch.setattr(torch.Tensor, name, counted)
    list(train(session.config, session))
    assert [call for call in calls if call[0] == "one_step"] == []
    assert calls.count(("collect", "tolist")) == 2, "one at each record after the first step"


def test_a_lost_number_names_its_step(monkeypatch):
    usual = loop.one_step

    def lost(session, step):
        made = usual(session, step)
        return replace(made, gradient=made.gradient * float("nan")) if step == 4 else made

    for last in (6, 9):  # a stop, or the end
        session = prepare(small_run(steps=9, record_every=9))
        with (
            monkeypatch.context() as patch,
            pytest.raises(FloatingPointError, match="gradient .* step 4;"),
        ):
            patch.setattr(loop, "one_step", lost)
            list(train(session.config, session, stop=lambda: session.progress.step == last))  # noqa: B023
    session = prepare(small_run())
    next(iter(session.model.parameters())).data.fill_(float("nan"))
    pytest.raises(FloatingPointError, list, train(session.config, session)).match(
        "loss .* smaller learning rate"
    )


def test_a_checkpoint_holds_the_generator_of_the_gpu(tmp_path, monkeypatch):
    # No GPU is here: its generator is made up, and the session says that it trains there.
    state, given = torch.arange(16, dtype=torch.uint8), list[torch.Tensor]()
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", given.append)
    run = create_run(small_run(), path=tmp_path / "run")
    session, again = prepare(run.config()), prepare(run.config())
    assert "generator.cuda" not in session.state()[0]
    session.device = "cuda"
    run.save_checkpoint(session, run.config())
    archive.checkpoints(run, run.config())
    for device, count in (("cpu", 0), ("cuda", 1)):  # a CPU has no use for it
        again.device = device
        again.restore(*run.checkpoint(0))
        assert len(given) == count
    assert torch.equal(given[0], state)


# The best weights: kept beside the last ones, measured at the end, and what a run's pages take.


LOSSES = [3.0, 2.0, 1.0, 1.5, 1.7, 1.6, 9.0, 9.0]  # of steps 0, 2, 4, …


@pytest.fixture
def scripted(monkeypatch):
    """Held-out losses that fall to step 4 and then rise, and the weights that each was measured with."""
    measured: list[dict[str, torch.Tensor]] = []

    def given(model, *rest):
        measured.append({name: value.clone() for name, value in model.state_dict().items()})
        return {**evaluate.measure_teacher_forced(model, *rest), "loss": LOSSES[len(measured) - 1]}

    monkeypatch.setattr(loop, "measure_teacher_forced", given)
    return measured


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_the_final_record_measures_the_best_weights(scripted):
    config = small_run(steps=20, keep_best=True, patience=3)
    session = prepare(config)
    records = list(train(config, session))
    assert [r.step for r in records] == [0, 2, 4, 6, 8, 10, 10], (
        "three records without a smaller loss end it"
    )
    assert records[-1].final and records[-1].best == 4
    assert same(scripted[-1], scripted[2]) and not same(scripted[2], scripted[5])
    assert same(session.model.state_dict(), scripted[5]), "it could go on from where it was"
    scripted.clear()
    last = list(train(small_run(steps=20, patience=3)))[-1]
    assert last.best is None and same(scripted[-1], scripted[5]), "else the last weights count"


def test_a_run_keeps_its_best_checkpoint(scripted, tmp_path):
    run = create_run(small_run(steps=20, keep_best=True, patience=3), path=tmp_path / "run")
    assert worker.work(run.path) == "finished" and "smallest at step 4" in run.status().message
    assert {4, 10} <= set(run.checkpoint_steps()) and run.default_step() == 4
    for step, measured in ((None, 2), (10, 5)):
        assert same(run.model(step)[0].state_dict(), scripted[measured])
    copied = archive.unpack(archive.pack(run), tmp_path)
    assert copied.default_step() == 4 and copied.records()[-1].best == 4
    scripted.clear()
    run = create_run(small_run(steps=6, keep_best=True), path=tmp_path / "paused")
    train_here(run)
    run.update_metadata(config=replace(run.config(), steps=10).to_json())
    del scripted[5:]
    assert train_here(run) == "finished" and run.default_step() == run.records()[-1].best == 4


def test_the_final_items_did_not_choose_the_weights():
    session = prepare(small_run(keep_best=True))
    chose = set(session.held_out)
    assert chose and not chose & set(loop.final_examples(session))
    assert chose <= set(loop.final_examples(prepare(small_run())))
    for there, others in ((8, [4, 5, 6, 7]), (7, [*range(7)])):  # three others are too few
        few: Any = SimpleNamespace(
            task=SimpleNamespace(held_out=lambda n, there=there: tuple(range(min(n, there)))),
            held_out=range(4),
            config=SimpleNamespace(keep_best=True),
        )
        assert list(loop.final_examples(few)) == others


# What a record waits for: free-running decodes come when they say something, and no more of them than are judged.


@each(("decode_every", "counts", "steps"), [(2, [11, 20], {4}), (1, [11, 11, 11, 20], {0, 2, 4})])
def test_an_untrained_model_is_not_decoded(monkeypatch, decode_every, counts, steps):
    decode = Mock(side_effect=evaluate.measure_free)
    monkeypatch.setattr(loop, "measure_free", decode)
    records = list(train(small_run(decode_every=decode_every, finish_early=False)))
    assert {r.step for r in records if r.sequence_accuracy is not None and r.examples} == steps
    text = make_task(TaskConfig.of("own_text", length=16))
    record = next(train(recommended(text, held_out=20, num_examples=3, steps=1)))
    assert [len(call.args[2]) for call in decode.call_args_list] == [*counts, 3]
    assert (
        len(record.examples) == 3
        and record.token_accuracy is not None
        and [
            recommended(make_task(TaskConfig.of("reverse", length=tokens))).decode_every
            for tokens in (24, 25)
        ]
        == [1, 5]
    ), "more rarely where outputs are long"


def test_a_text_goes_on_from_the_last_word_of_each_half():
    task = make_task(TaskConfig.of("names"))
    model = prepare(recommended(task, steps=1)).model.eval()
    examples = [*task.held_out(4), Example(("<bos>", "the", "dog"), ())]
    shown = evaluate.measure_free(model, task, examples, "cpu")
    assert [len(one.source) for one in shown] == [9, 4, 9, 4, 2]
    assert max(len(one.predicted) for one in shown) == 9, "half of the first"
    for one, example in zip(shown, examples, strict=True):
        assert one.source + one.target == example.source
        ids = torch.tensor([task.source_vocab.encode(one.source)])
        first = model(ids, ids > 0).logits[0, -1:].argmax(-1)
        assert one.predicted[:1] == tuple(task.target_vocab.decode(first))


def test_long_targets_of_short_sources_are_read():
    lines = [f"{n}\t" + "ab" * (1 + n % 6) for n in range(100, 160)]
    task = make_task(TaskConfig.of("own_pairs", data="\n".join(lines), unit="characters"))
    examples = task.held_out(1000)
    assert max(len(e.target) for e in examples) > 2 * 3 + 2, "longer than twice the source and two"

    class Knows:
        """Says the target of each source, which it has by heart; `ends` whether it also says the end mark."""

        training = one_length = False

        def __init__(self, ends: bool):
            self.answers = {
                e.source: task.target_vocab.encode(e.target) + [EOS if ends else 5] * 50
                for e in examples
            }

        def train(self, mode=True):
            return self

        eval = train

        def encode(self, source, mask):
            return [self.answers[tuple(task.source_vocab.decode(row))] for row in source.tolist()]

        def start(self, memory):
            return 0

        def step(self, memory, state, tokens):
            output = torch.tensor([row[state] for row in memory])
            return (
                torch.nn.functional.one_hot(output, len(task.target_vocab)).float(),
                state + 1,
                None,
            )

    for ends, right, cut in ((True, 1.0, 0), (False, 0.0, len(examples))):
        said = evaluate.measure_free(Knows(ends), task, examples, "cpu")
        scores = evaluate.objective(task).score(task, said)
        assert (scores["sequence_accuracy"], scores["cut"]) == (right, cut)


# The loss of a lightning indexer: what it is, that it alone trains the indexer, and that it chooses better keys.


B, T, C, H, KEYS = 3, 11, 24, 3, 3
LIGHTNING = Choice.of("lightning", keys=KEYS, heads=2, size=8)


def run_config(mask, **changes):
    """A decoder like DeepSeek-V3.2's on the recall task, in small: latents and an indexer."""
    model = ModelConfig.transformer(
        32,
        4,
        2,
        64,
        kind="decoder",
        norm="pre",
        mask=mask,
        projection=Choice.of("latent", latent=32, rope=4),
    )
    return RunConfig(task=TaskConfig.of("recall"), model=model, learning_rate=3e-3, **changes)


@each(
    "beside",
    [
        {},
        {"position": "alibi"},
        {"projection": "latent"},
        {"kernel": "block_sparse"},
        {"mask": Choice.of("and", Choice("causal"), LIGHTNING)},
    ],
)
def test_the_loss_is_the_divergence_from_full_attention(beside):
    # Of the same weights under a causal mask, forward and by steps; no gradient reaches anything but the indexer.
    layer = Attention(AttentionConfig(C, H, **{"mask": LIGHTNING} | beside))
    full = Attention(layer.config.with_(mask="causal", kernel="exact"))
    full.load_state_dict(layer.state_dict(), strict=False)
    x, indexer = torch.randn(B, T, C, requires_grad=True), layer.indexer
    assert isinstance(indexer, LightningIndexer)
    scores = indexer.index_scores(ScoreBlock.whole(T, T, x=x, context=x))
    expected = indexer_loss(scores, full(x).weights, torch.ones(T, T, dtype=torch.bool).tril())
    for steps in (layer(x), layer(x, record=False), layer.step(x)[0]):
        torch.testing.assert_close(steps.indexer_loss, expected)
    layer.zero_grad()
    layer(x, record=False).indexer_loss.backward()
    own = {id(weight) for weight in indexer.parameters()}
    assert x.grad is None and all(
        (weight.grad is not None) == (id(weight) in own) for weight in layer.parameters()
    )


def test_padding_is_no_key_that_is_predicted():
    layer = Attention(AttentionConfig(C, H, mask=LIGHTNING))
    real = torch.arange(T) < torch.tensor([[T], [7], [4]])
    full, x = Attention(layer.config.with_(mask="causal")), torch.randn(B, T, C)
    full.load_state_dict(layer.state_dict(), strict=False)
    indexer: Any = layer.mask
    scores = indexer.index_scores(ScoreBlock.whole(T, T, x=x, context=x))
    allowed = torch.ones(T, T, dtype=torch.bool).tril() & real[:, None]
    torch.testing.assert_close(
        layer(x, key_mask=real).indexer_loss,
        indexer_loss(scores, full(x, key_mask=real).weights, allowed, real),
    )
    with torch.no_grad():
        assert layer(x).indexer_loss is None
    assert layer.eval()(x).indexer_loss is None and full(x).indexer_loss is None


@each(("mask", "losses"), [(LIGHTNING, 2), (Choice("causal"), 0)])
def test_records_have_the_loss_where_there_is_an_indexer(mask, losses):
    session = prepare(run_config(mask))
    batch = session.task.batch(4, session.data)
    with loop.indexer_losses(session.model) as collected:
        session.model(batch.source, batch.source_mask, batch.target_in)
    assert len(collected) == losses
    assert not any(module._forward_hooks for module in session.model.modules())
    assert (float(loop.one_step(session, 1).indexer) > 0) == (losses > 0)
    config = run_config(mask, steps=4, record_every=2, held_out=10, decode_every=100)
    first, *others, _ = train(config)
    assert first.indexer_loss is None
    assert all((record.indexer_loss is not None) == (losses > 0) for record in others)


def recalls(session):
    """The recall of each layer's choice, of the keys that full attention weighs most, on held-out texts."""
    batch, results = session.task.collate(session.held_out[:32]), []

    def look(layer, given, steps):
        inputs = layer.kernel_inputs(steps.q, steps.k, steps.v, *given[:1] * 2)
        full = torch.softmax(
            (steps.q @ steps.k.mT * steps.scale).masked_fill(
                inputs.block.j > inputs.block.i, -torch.inf
            ),
            -1,
        )
        results.append(selection(layer.mask.parts[1](inputs.block), full, KEYS).recall)

    layers = [module for module in session.model.modules() if isinstance(module, Attention)]
    hooks = [layer.register_forward_hook(look) for layer in layers]
    with torch.no_grad():
        session.model.eval()(batch.source, batch.source_mask, batch.target_in, record=True)
    for hook in hooks:
        hook.remove()
    return results


def test_the_recall_of_the_indexer_rises_in_training():
    session = prepare(run_config(LIGHTNING, steps=40))
    before = recalls(session)
    for step in range(1, 41):
        loop.one_step(session, step)
    after = recalls(session)
    assert max(after) > max(before) + 0.06 and min(after) > min(before) + 0.02, (before, after)


@each(
    "name, kind",
    [
        ("adamw", torch.optim.AdamW),
        ("adam", torch.optim.Adam),
        ("rmsprop", torch.optim.RMSprop),
        ("sgd", torch.optim.SGD),
    ],
)
def test_the_optimizer_that_was_asked_for(name, kind, monkeypatch):
    # It takes torch's own steps, to the last bit, without torch.compile.
    config = small_run(optimizer=name, weight_decay=0.03, learning_rate=0.004)
    ours, torchs = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    torchs.load_state_dict(ours.state_dict())
    more = {"momentum": 0.9} if name == "sgd" else {}
    expected = kind(torchs.parameters(), lr=0.004, weight_decay=0.03, **more)
    x = torch.randn(7, 5)
    descend(expected, lambda: torchs(x).square().sum(), 3, clip=torch.inf)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch._dynamo", None)  # whoever imports it fails
        made = instance(loop.make_optimizer(config, ours), kind)
        descend(made, lambda: ours(x).square().sum(), 3, clip=torch.inf)
        made.load_state_dict(made.state_dict())
    torch.testing.assert_close(ours.state_dict(), torchs.state_dict(), rtol=0, atol=0)


def test_usual_options_train_as_before():
    # what a run of an older version has not is left out of its file, and changes no bit
    config = small_run(steps=7, learning_rate=0.013)
    assert not NEW_FIELDS & config.to_json().keys()
    for step in range(1, 8):
        share = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / 7)))
        assert loop.learning_rate(config, step) == 0.013 * share
    torch.manual_seed(0)
    model = build_model(config.model, make_task(config.task).shape)
    torch.testing.assert_close(
        prepare(config).model.state_dict(), model.state_dict(), rtol=0, atol=0
    )


def test_betas_and_decay_of_matrices_alone():
    config = small_run(
        beta1=0.8, beta2=0.99, decayed="matrices", weight_decay=0.5, learning_rate=0.01
    )
    ours, torchs = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    torchs.load_state_dict(ours.state_dict())
    groups: list[dict[str, Any]] = [
        {"params": [torchs.weight]},
        {"params": [torchs.bias], "weight_decay": 0.0},
    ]
    expected = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.5, betas=(0.8, 0.99))
    x = torch.randn(7, 5)

    def squares(layer: torch.nn.Linear) -> torch.Tensor:
        return layer(x).square().sum()

    for made, layer in ((expected, torchs), (loop.make_optimizer(config, ours), ours)):
        descend(made, partial(squares, layer), 3, clip=torch.inf)
    torch.testing.assert_close(ours.state_dict(), torchs.state_dict(), rtol=0, atol=0)


def test_first_weights_of_gpt2():
    model = ModelConfig.transformer(64, 2, 3, 128, norm="pre")
    weights = prepare(small_run(model=model, initialization="gpt2")).start
    spread = {name: float(weight.std()) for name, weight in weights.items() if weight.dim() > 1}
    adding = {
        name for name in spread if name.endswith(("projection.output.weight", "outer.weight"))
    }
    assert len(adding) == 3 * 2 + 3 * 3, "of three layers of the encoder and of the decoder"
    for name, std in spread.items():
        assert std == pytest.approx(0.02 * (len(adding) ** -0.5 if name in adding else 1), rel=0.1)
    assert all(
        not weight.any() for name, weight in weights.items() if name.endswith(".bias")
    ) and all(
        bool((weight == 1).all()) for name, weight in weights.items() if "norm.weight" in name
    )


def test_nanogpts_recipe_is_that_of_its_readme():
    config = nanogpt(TaskConfig.of("own_text"))
    model = config.model
    assert (config.task["length"], config.task["unit"]) == (64, "characters")
    assert (model.d_model, model.num_heads, model.layers, model.d_ff, model.tied) == (
        128, 4, 4, 512, True,
    )  # fmt: skip
    assert (config.steps, config.batch_size, config.learning_rate, config.warmup) == (
        2000, 12, 1e-3, 100,
    )  # fmt: skip
    built: Any = prepare(config).model
    assert not model.scaled_embedding and built.target.scale == 1.0
    assert config.learning_rate * config.min_rate == pytest.approx(1e-4)
    assert (config.beta1, config.beta2, config.weight_decay) == (0.9, 0.99, 0.1)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    first = next(train(replace(config, held_out=9)))
    assert first.loss == pytest.approx(math.log(55), abs=0.5), (
        "it begins as a guess among the signs"
    )
    pytest.raises(ConfigError, nanogpt, TaskConfig.of("copy")).match("own_text or topics")


def test_smoothing_is_shared_among_all_classes():
    session = prepare(small_run())
    batch = session.task.batch(3, session.data)
    logits = session.model(batch.source, batch.source_mask, batch.target_in).logits
    eps, classes = 0.1, logits.shape[-1]
    plain_numbers = batch.target_out != 0
    log = F.log_softmax(logits[plain_numbers], -1)
    expected = F.one_hot(batch.target_out[plain_numbers], classes) * (1 - eps) + eps / classes
    by_hand = -(expected * log).sum(-1).mean()
    torch.testing.assert_close(evaluate.objective(session.task).loss(logits, batch, eps), by_hand)


def test_the_gradient_is_clipped_and_told_as_it_was():
    loose, tight = (prepare(small_run(clip=clip, optimizer="sgd")) for clip in (1e9, 0.01))
    before = {name: w.detach().clone() for name, w in tight.model.named_parameters()}
    first, second = loop.one_step(loose, 1), loop.one_step(tight, 1)
    assert first.gradient == pytest.approx(second.gradient) and first.gradient > 0.01
    squares = [w.grad.square().sum() for w in tight.model.parameters() if w.grad is not None]
    assert float(sum(squares)) == pytest.approx(0.01**2, rel=2e-3)
    assert any(not torch.equal(before[name], w) for name, w in tight.model.named_parameters())


@each("key", ["repeats", "names", "topics", "stories"])
def test_what_is_never_wholly_right_stops_by_its_loss(key):
    config = recommended(make_task(TaskConfig.of(key)))
    assert (config.patience, config.keep_best) == (10, True)
    assert recommended(make_task(TaskConfig.of("reverse"))).patience == 0, "it ends at 99 %"


def test_patience_ends_a_run_that_no_longer_gets_better():
    session = prepare(small_run(steps=400, patience=2, finish_early=False))
    frozen = torch.nn.Parameter(torch.zeros(1))
    session.model.requires_grad_(False).register_parameter("still", frozen)
    session.model.get_parameter("output.bias").requires_grad_(True)
    session.optimizer = torch.optim.SGD([frozen], lr=0.0)
    records = list(train(session.config, session))
    assert [r.step for r in records] == [0, 2, 4, 6, 6] and records[-1].final, (
        "the first is the best, two more do not better it"
    )
    flat = small_run(
        steps=40, learning_rate=1e-6, optimizer="sgd", finish_early=False, record_every=10
    )
    assert len(list(train(flat))) == 40 // 10 + 2


def test_bfloat16_computes_in_bfloat16_and_still_learns():
    learns = dict(steps=30, record_every=30, learning_rate=0.01, finish_early=False)
    seen, session = [], prepare(small_run(precision="bf16", **learns))
    session.model.get_submodule("output").register_forward_hook(
        lambda module, given, out: seen.append((out.dtype, module.training))
    )
    records = list(train(session.config, session))
    assert {dtype for dtype, training in seen if training} == {torch.bfloat16}
    assert records[-1].loss < records[0].loss
    assert all(w.dtype == torch.float32 for w in session.model.parameters())


def test_computing_layers_again_gives_the_same_numbers():
    assert numbers(list(train(small_run(checkpointing=True)))) == numbers(records_of())


# A run of a table that is older than the choice of its columns: it makes the table that its weights belong to.


ROWS = [
    (
        f"{100 + 7 * i}",
        f"{i % 9},5",
        f"{1 + i % 5:02}.03.2020",
        "DE",
        f"{i}",
        "yes" if i % 2 else "no",
    )
    for i in range(40)
]
DATA = "\n".join(["id;price;day;country;row;answer", *(";".join(row) for row in ROWS)])


def of_then(data: str) -> dict:
    """The task of a run.json that names none of the younger parameters."""
    plain = TaskConfig.of("own_table", data=data).to_json()
    params = {
        name: value
        for name, value in plain["params"].items()
        if name not in ("columns", "dates", "decimal")
    }
    return plain | {"params": params}


def older(data: str) -> TaskConfig:
    return TaskConfig.from_json(of_then(data))


def columns(config: TaskConfig) -> list[tuple[str, int]]:
    return [
        (column.name, len(column.categories))
        for column in instance(make_task(config), TableTask).table.columns
    ]


PLAIN = DATA.replace(".03.2020", ".")


@each(
    ("config", "expected"),
    [
        # Values of the code of then: whole numbers are left out only where they count, dates are categories, whose
        # points count as decimal ones.
        (older(DATA), [("id", 0), ("price", 9), ("day", 5)]),
        (TaskConfig.of("own_table", data=DATA), [("price", 0)]),
        # Between semicolons with a point nowhere it is a comma, else a point; nothing stood between thousands.
        (older(PLAIN.replace(".;", ";")), [("id", 0), ("price", 0), ("day", 0)]),
        (
            older(
                PLAIN.replace(".;", ";").replace(";DE;", ";1 000;", 9).replace(";DE;", ";2 000;")
            ),
            [("id", 0), ("price", 0), ("day", 0), ("country", 2)],
        ),
    ],
)
def test_its_columns_are_those_of_then(config, expected):
    assert columns(config) == expected


def test_its_checkpoint_fits_and_it_goes_on(tmp_path):
    small: dict[str, Any] = dict(steps=2, batch_size=8, record_every=1, held_out=8, num_examples=1)
    task = instance(make_task(older(DATA)), TableTask)
    assert task.table.rows[3] == (121.0, 4.0, 4.0)
    config = recommended(task, **small)
    train_here(create_run(config, path=tmp_path / "run"))
    run = Run(tmp_path / "run")
    run.update_metadata(config=config.to_json() | {"task": of_then(DATA)})
    shown = runs.load_run(run)
    named = [name for name, _ in columns(shown.required_config.task)]
    assert not shown.trouble and named == ["id", "price", "day"]
    assert runs.summarize(run).config is not None
    run.update_metadata(config={**run.config().to_json(), "steps": 4})
    assert train_here(run) == "finished" and run.records()[-1].step == 4


ROOT = Path(__file__).resolve().parents[2]
LONG = dict(steps=20_000, max_seconds=300, record_every=20, finish_early=False)


@pytest.fixture
def run(tmp_path) -> Run:
    return create_run(small_run(seed=3), root=tmp_path)


@SAME_LAST_BIT
def test_command_line_spare_and_loop_give_the_same_numbers(
    run, tmp_path, monkeypatch, worker_here, capsys
):
    monkeypatch.setattr(loop, "FINAL", FINAL)  # as the other processes have it
    # As in a notebook: the snippet of docs/library.md trains on one thread all the same.
    torch.set_num_threads(2)
    here = numbers(list(train(run.config())))
    assert torch.get_num_threads() == 2
    file = tmp_path / "asked.json"
    file.write_text(json.dumps(run.config().to_json()), encoding="utf-8")
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    assert run_command("core.training", "train", str(file)) == 0
    spare = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "core.runs.worker", "--spare"],
        cwd=ROOT,
        encoding="utf-8",
        input=f"{run.path}\n",
        capture_output=True,
    )
    link = re.search(r"\?run=(\S+)", capsys.readouterr().out)
    by_command = find_run(link[1], tmp_path / "runs")  # the page finds it by this link
    assert by_command is not None and by_command.status().state == "finished"
    assert numbers(run) == here == numbers(by_command) and spare.stdout.startswith("ready\n")
    assert run.status().state == "finished" and "4 steps" in run.status().message
    assert "import time" in (run.path / "worker.log").read_text("utf-8")  # from standard error
    assert run.checkpoint_steps()[-1] == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_signal_stops_process_and_keeps_what_was_reached(tmp_path):
    # A server answers before its worker goes on; where memory runs out, the worker is ended first.
    run = create_run(small_run(**LONG), root=tmp_path)
    child = forked(run)
    wait_for(lambda: len(run.records()) >= 2)
    assert run.alive() and run.status().pid == child
    if sys.platform == "linux":
        score = "/proc/{}/oom_score_adj".format
        its, own = (int(Path(score(one)).read_text("utf-8")) for one in (child, "self"))
        assert its == 1000 > own and os.getpriority(os.PRIO_PROCESS, child) >= 10
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    assert run.status().state == "stopped" and "is saved" in run.status().message
    assert not run.alive() and run.checkpoint_steps()


@pytest.mark.parametrize(
    "ask",
    [Run.request_stop, lambda run: signal.raise_signal(signal.SIGINT)],
    ids=["file", "Ctrl-C"],
)
def test_stop_keeps_what_was_reached(tmp_path, ask, worker_here):
    run = create_run(small_run(**LONG), root=tmp_path)
    worker.work(run.path, on_record=lambda record: ask(run) if record.step == 20 else None)
    assert run.status().state == "stopped" and "is saved" in run.status().message
    assert len(run.records()) == 2 and not run.alive() and run.checkpoint_steps()


def test_a_spare_ends_with_whoever_started_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # at its end, as when its pipe is closed
    assert worker.main(["--spare"]) == 0 and capsys.readouterr().out == "ready\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_too_much_memory_ends_in_words(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "memory_mb=20")
    run = create_run(small_run(**LONG), root=tmp_path)
    os.waitpid(forked(run), 0)
    assert run.status().state == "failed" and "20 MB" in run.status().message


def test_what_ends_a_run_is_told_and_costs_this_run_alone(run, monkeypatch, worker_here):
    with monkeypatch.context() as patch:
        patch.setattr(worker, "prepare", lambda config: 1 / 0)
        assert worker.work(run.path) == "failed"
    assert "ZeroDivisionError" in run.status().message
    (run.path / "run.json").write_text('{"config": {"steps": 3}}', encoding="utf-8")
    run.requeue()
    assert worker.main([str(run.path)]) == 1
    assert "A run needs model and task" in run.status().message


def test_a_run_killed_at_its_beginning_measures_it_once(run, monkeypatch, worker_here, capsys):
    session = worker.prepare(run.config())
    run.append(next(train(run.config(), session)))
    run.save_checkpoint(session, run.config())
    assert run.checkpoint_steps() == [0]
    logs, set_status = {}, Run.set_status

    def noted(self, state, *words, **more):
        logs[state] = capsys.readouterr().out
        set_status(self, state, *words, **more)

    monkeypatch.setattr(Run, "set_status", noted)
    assert worker.work(run.path) == "finished"
    assert [record.step for record in run.records() if not record.final] == [0, 2, 4]
    assert logs["finished"] == f"finished: {run.status().message}\n"


# A worker killed at any place goes on to the numbers of a run that was never killed.


class Killed(BaseException):
    """The end of a process, as far as a test can have it: nothing of the worker's own runs after it."""


def train_here(run: Run, stop=lambda: False) -> str:
    return worker.train_run(run, stop, lambda record: None)[0]


def numbers(run: Run | list[Record]) -> list[tuple]:
    records = run.records() if isinstance(run, Run) else run
    return [(record_numbers(record), record.final) for record in records]


def kill(monkeypatch, method: str, at: int, late: bool) -> None:
    """The call number `at` of a method of Run ends the worker, before what it does or, `late`, after."""
    whole, calls = getattr(Run, method), itertools.count()

    def call(self, *args):
        last = next(calls) == at
        if late or not last:
            whole(self, *args)
        if last:
            raise Killed

    monkeypatch.setattr(Run, method, call)


@pytest.mark.parametrize("method", ["append", "save_checkpoint"])
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("late", [False, True])
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, method, at, late):
    broken = create_run(small_run(steps=4), path=tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill(patch, method, at, late)
        train_here(broken)
    assert train_here(broken) == "finished" and numbers(broken) == numbers(records_of(steps=4))
    assert broken.checkpoint_steps()[-1] == 4


@pytest.mark.parametrize("asks", [3, 4, 5, 6, 8])
def test_a_run_stopped_at_any_step_goes_on(tmp_path, asks):
    # Between two records the mean training loss of both parts counts; only the last gradients are not kept.
    sizes = dict(steps=7, record_every=3)
    broken = create_run(small_run(**sizes), path=tmp_path)
    left = iter(range(asks))
    assert train_here(broken, lambda: next(left, None) is None) == "stopped"
    assert train_here(broken) == "finished"
    assert [(r.step, r.final, r.loss, r.train_loss, r.gradient) for r in broken.records()] == [
        (r.step, r.final, r.loss, r.train_loss, r.gradient) for r in records_of(**sizes)
    ]


def test_longer_is_more_steps_of_the_same_run(tmp_path):
    config = small_run(steps=4, schedule="constant")
    run = create_run(config, path=tmp_path / "run")
    train_here(run)
    before = numbers(run)
    assert train_here(run) == "finished" and numbers(run) == before
    run.update_metadata(config=replace(config, steps=8).to_json())
    assert train_here(run) == "finished"
    ours, whole = numbers(run), numbers(records_of(steps=8, schedule="constant"))
    assert [one for one in ours if not one[1]][:3] == whole[:3] and ours[-1] == whole[-1]
    assert run.records()[-1].step == 8


def test_a_run_that_waited_long_enough_ends(tmp_path, monkeypatch):
    waits = dict(steps=40, patience=1, learning_rate=1e-6, weight_decay=0.0, optimizer="sgd")
    broken = create_run(small_run(**waits), path=tmp_path)
    steps = [record.step for record in records_of(**waits)]
    assert records_of(**waits)[-1].final
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill(patch, "append", len(steps) - 1, late=False)
        train_here(broken)
    train_here(broken)
    assert [record.step for record in broken.records()] == steps


@pytest.mark.parametrize(
    ("optimizer", "model"),
    zip(
        ("adamw", "adam", "rmsprop", "sgd"),
        [
            ModelConfig.transformer(8, 2, dropout=0.2),
            ModelConfig.recurrent(8, layers=2, dropout=0.2, cell="lstm"),
        ]
        * 2,
        strict=True,
    ),
)
def test_stopped_and_gone_on_is_as_never_stopped(tmp_path, optimizer, model):
    config = small_run(steps=8, optimizer=optimizer, model=model)
    broken = create_run(config, path=tmp_path / "broken")
    session = prepare(config)
    for record in train(config, session):
        broken.append(record)
        broken.save_checkpoint(session, config)
        if record.step == 4:  # as a killed worker leaves it: the last checkpoint stands at a record
            break
    assert broken.checkpoint_steps()[-1] == 4 and train_here(broken) == "finished"
    whole = create_run(config, path=tmp_path / "whole")
    assert train_here(whole) == "finished" and numbers(broken) == numbers(whole)
    torch.testing.assert_close(
        broken.model()[0].state_dict(), whole.model()[0].state_dict(), rtol=0, atol=0
    )


@pytest.mark.parametrize("at", range(9))
def test_stopped_anywhere_and_gone_on_is_as_never_stopped(tmp_path, at):
    # After a step, after one whose record is due, and while that is measured.
    calls, broken = itertools.count(), create_run(small_run(steps=6), path=tmp_path)
    assert train_here(broken, lambda: next(calls) == at) == "stopped"
    assert train_here(broken) == "finished" and numbers(broken) == numbers(records_of(steps=6))


def test_checkpoints_are_few_and_the_last_is_there(tmp_path):
    sizes = dict(record_every=1, held_out=2, num_examples=1)
    run = create_run(small_run(steps=60, **sizes), path=tmp_path / "run")
    pytest.raises(ValueError, run.model).match("saved no weights")
    train_here(run)
    steps = run.checkpoint_steps()
    assert steps[-1] == 60 and 8 <= len(steps) <= 12
    model, task = run.model(steps[3])
    assert model.training is False and task.key == "reverse"
    run.update_metadata(config=small_run(model=ModelConfig.transformer(16, 2)).to_json())
    run.checkpoint_path(steps[3]).write_bytes(b"nothing of the kind")
    for use, words in (
        (run.model, "do not fit"),
        (lambda: train_here(run), "do not fit"),
        (lambda: run.checkpoint(steps[3]), f"step {steps[3]} cannot be read"),
    ):
        pytest.raises(ValueError, use).match(words)


# Opening runs and working on them gives back what it takes: memory maps, open files and threads.


LINUX = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts what Linux lists")
FEW = 8  # maps that the allocator may add or give back meanwhile: of more calls each would show if it left one


@pytest.fixture(scope="module", autouse=True)
def _collect_own():
    """Ten collections go through what these tests made, and not each through what all others have left."""
    gc.collect()
    gc.freeze()


def counts() -> np.ndarray:
    gc.collect()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").count("\n")
    return np.array([maps, len(os.listdir("/proc/self/fd")), threading.active_count()])


def assert_given_back(action: Callable[[], object], times: int) -> None:
    action()
    before = counts()
    for _ in range(times):
        action()
    # A thread that another test left may open a file or end meanwhile; a leak would show once for each call.
    assert (counts() - before < (FEW + 1, times, times)).all(), f"{before} became {counts()}"


@LINUX
def test_openings_of_a_run_leave_nothing_behind(tmp_path):
    run = trained(tmp_path)
    step = run.checkpoint_steps()[-1]

    def look() -> None:
        assert run.status().ended and run.frame(step) and not run.alive()
        assert runs.head_counts(run, step)[0] and runs.head_over_time(run, [step], 0, "cross", 0, 0)

    assert_given_back(look, 20)
    assert_given_back(lambda: run.model(step), 12)
    assert_given_back(lambda: run.checkpoint(step), 12)


@LINUX
@pytest.mark.parametrize("fails", [False, True])
def test_runs_one_after_the_other_leave_no_watcher_behind(fails, tmp_path, monkeypatch):
    ends: dict = {"side_effect": ValueError("no")} if fails else {"return_value": ("finished", "")}
    monkeypatch.setattr(worker, "train_run", Mock(**ends))
    queued = create_run(small_run(), tmp_path)

    def work() -> None:
        queued.set_status("queued")
        assert worker.work(queued.path) == ("failed" if fails else "finished")

    assert_given_back(work, 3)


# A run names what its numbers depend on: threads, PyTorch, processor; and whether seconds ended it, not steps.


OTHER = {
    "threads": 4,
    "torch": "2.1.0+cpu",
    "device": "Another CPU",
    "capability": "NO AVX",
    "libraries": "MKL on",
}


def test_a_run_records_where_it_trained_and_shows_it(tmp_path):
    torch.set_num_threads(1)
    run, here = create_run(small_run(), path=tmp_path / "run"), machine.machine("cpu")
    train_here(run)
    assert run.metadata()["machines"] == [here] and here["torch"] == str(torch.__version__)
    words = machine.line([here])
    version = torch.__version__.partition("+")[0]
    assert words == f"{here['device']} ({here['capability']}), 1 thread, PyTorch {version}"
    assert words in runs_words.about_text(runs.summarize(run))
    assert "1 thread, PyTorch" in train_words.pace(run.records()[-1], words)
    run.update_metadata(machines=[OTHER], config=small_run(steps=6).to_json())
    train_here(run)
    assert run.metadata()["machines"] == [OTHER, here]
    both = machine.line(run.metadata()["machines"])
    assert both.startswith("Another CPU (NO AVX), 4 threads, PyTorch 2.1.0; then ")
    assert archive.unpack(archive.pack(run), tmp_path / "there").metadata()["machines"] == [
        OTHER,
        here,
    ]


def test_it_records_its_gpu_and_how_its_libraries_are_set(monkeypatch):
    # What moves the last bit of a sum, and so a run: another way of MKL's, or oneDNN left out.
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("ONEDNN_X", "x" * 300)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    libraries = machine.machine("cpu")["libraries"]
    assert re.match("MKL (on|off), oneDNN off, (.*, )?MKL_CBWR=COMPATIBLE(, |$)", libraries)
    assert len(libraries) == 300
    with monkeypatch.context() as patch:  # a system that does not name its processor
        patch.setattr(Path, "read_text", lambda *_, **more: "")
        patch.setattr("platform.processor", lambda: "")
        patch.setattr("platform.machine", lambda: "abacus")
        assert machine.machine("cpu")["device"] == "abacus"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert machine.line([machine.machine("cuda")]).startswith("NVIDIA A100 (8.0), ")
    before = {key: value for key, value in OTHER.items() if key != "libraries"}
    assert machine.valid([before]) == [{**OTHER, "libraries": ""}], "a run of an older version"


@each(
    "data", [None, "x", [3], [{}], [{**OTHER, "threads": "4"}], [{**OTHER, "torch": 1}], {"a": 1}]
)
def test_what_is_no_machine_is_left_out(data):
    assert machine.valid(data) == [] and machine.line(data) == ""
    long: dict = {**OTHER, "device": "x" * 101, "libraries": "y" * 301}
    assert machine.valid([long]) == [{**OTHER, "device": "x" * 100, "libraries": "y" * 300}]


def test_a_cap_on_seconds_that_ended_a_run_is_named(tmp_path):
    config = small_run(steps=20_000, max_seconds=1, record_every=50, finish_early=False)
    run, whole = create_run(config, path=tmp_path / "run"), create_run(small_run(), tmp_path)
    (_, words), (_, others) = (
        worker.train_run(one, lambda: False, lambda record: None) for one in (run, whole)
    )
    last, ended = run.records()[-1], replace(whole.records()[-1], elapsed=1e4)
    assert last.capped and "The time limit of 1 s ended it before step 20,000" in words
    assert "ended by the limit of 1 s" in progress(last, config)
    whole_line = progress(
        Record(1, loss=2.0, known_loss=1.5, unknown=0.25, best=4, cut=3, expected=((0.1, 0.7),)),
        small_run(),
    )
    assert whole_line == (
        "step 1/4  0.0 s  loss 2.000  without the 25.0% unknown: loss 1.500  weights of step 4  3 outputs without an end  "
        "weight on the expected position 0.70"
    )
    assert not ended.capped and "cap" not in others + progress(ended, whole.config()), (
        "it made all of its steps, however long that took"
    )


# How runs share GPUs, with numbers and memories that this machine does not have; no GPU is used.


@pytest.fixture
def two(monkeypatch):
    """One GPU of 16 GB and one of 24 GB, of which a run has 8."""
    monkeypatch.setattr(machine, "gpus", lambda: (16_400.0, 24_600.0))


admit = executor.Executor().admit


def test_gpu_with_most_room_comes_first_until_both_are_full(two):
    busy: list[Run] = []
    for expected in (1, 0, 1, 0, 1):
        run = create_run(small_run(device="cuda" if expected else "auto"))
        assert admit(run, busy) and machine.number_of(run) == expected
        busy.append(run)
    waits, on_cpu = (create_run(small_run(device=device)) for device in ("auto", "cpu"))
    assert not admit(waits, busy) and machine.number_of(waits) is None
    assert admit(on_cpu, busy) and machine.number_of(on_cpu) is None
    assert admit(waits, busy[1:]) and machine.number_of(waits) == 1, "that of the ended run"


def test_a_small_gpu_takes_one_run_of_its_share(monkeypatch, tmp_path):
    first, second = create_run(small_run()), create_run(small_run())
    before = (first.path / "run.json").read_bytes()
    assert admit(first, []) and (first.path / "run.json").read_bytes() == before
    first.update_metadata(gpu=1)  # by another machine
    assert machine.number_of(first) is None
    monkeypatch.setattr(machine, "gpus", lambda: (6_000.0,))
    assert not admit(Run(tmp_path / "gone"), []), "it was deleted"
    assert admit(first, []) and not admit(second, [first])
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "gpu_mb=3000")
    assert admit(second, [first])


@pytest.mark.parametrize(
    ("visible", "number", "expected"),
    [("", 1, "1"), ("2,3", 1, "3"), ("7", 1, "1"), ("GPU-a, GPU-b", 0, "GPU-a"), ("", None, None)],
)
def test_a_worker_sees_its_gpu_alone(two, monkeypatch, visible, number, expected):
    monkeypatch.setenv(machine.VISIBLE, visible)
    assert machine.environment(number).get(machine.VISIBLE) == expected
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, env, **more: started.append(env | more))
    executor.start_process(create_run(small_run(), gpu=number))
    assert started[0].get(machine.VISIBLE) == (visible if expected is None else expected)
    assert started[0]["start_new_session"] and started[0]["stdin"] == subprocess.DEVNULL


def test_run_that_waits_for_gpu_lets_one_on_cpu_go_first(two, monkeypatch):
    given: list[Run] = []
    monkeypatch.setattr(queue, "max_workers", lambda: 9)
    monkeypatch.setattr(queue, "_watch", lambda folder: None)
    monkeypatch.setattr(queue, "_give", given.append)
    runs = queue.start_all(
        [(small_run(seed=seed, device="auto" if seed < 6 else "cpu"), {}) for seed in range(7)]
    )
    assert given == [*runs[:5], runs[6]] and runs[5].status().state == "queued"
    runs[2].set_status("finished")
    queue.tick()
    assert given[-1] == runs[5] and machine.number_of(runs[5]) == 1


# How many runs this machine takes at once: no more than its container has cores for.


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("400000 100000", 4),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("9900000 100000", 12),
        ("max 100000", 12),
        ("nonsense", 12),
        (None, 12),
    ],
)
def test_a_container_with_fewer_cores_takes_fewer_runs(limit, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", {0: range(12)}.get, raising=False)
    file = tmp_path / "cpu.max"
    if limit:
        file.write_text(f"{limit}\n", encoding="utf-8")
    assert machine.cores(file) == cores
    monkeypatch.setattr(machine, "cores", lambda: cores)
    monkeypatch.setattr(executor, "total_bytes", lambda: float("inf"))
    assert executor.Executor().slots() == max(2, cores - 1)


@pytest.mark.parametrize(
    ("megabytes", "slots"), [(500, 1), (1_000, 1), (1_200, 2), (1_600, 4), (9_000, 11)]
)
def test_a_machine_with_less_memory_takes_fewer_runs(megabytes, slots, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 12)
    monkeypatch.setattr(executor, "total_bytes", lambda: megabytes * 1e6)
    assert executor.Executor().slots() == slots
