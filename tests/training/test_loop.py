"""The training loop: its records, what ends it, its best weights, its indexers, and each option of a run."""

import itertools
import json
import math
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from core.attention import Attention, AttentionConfig, Choice
from core.attention.basics import ScoreBlock
from core.attention.masks.content import indexer_loss, selection
from core.models import ModelConfig
from core.models.decoding import EOS
from core.runs import archive
from core.runs.runs import Run, create_run
from core.runs.worker import train_run, work
from core.tasks import TaskConfig, make_task
from core.tasks.tables import TableTask
from core.training import evaluate, loop, prepare, recommended, train
from core.training.config import RunConfig
from core.training.record import Prediction, Record
from dashboard.ui.run_data import load_run, summarize
from tests.cases import each, instance
from tests.training.small import FINAL, record_numbers, records_of, small_run


def test_a_run_is_its_records():
    """A test takes three; the last one measures more; each says where the time and the gradient went."""
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
    """Between records and however it ends, while every step and measurement has one thread."""
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


def test_the_final_record_tells_long_sources_from_short_ones():
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


def test_the_expected_weight_is_what_the_maps_say():
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
    assert evaluate.best_head(None) == evaluate.best_head(Record(0)) == (0, 0)
    heads = Record(0, expected=((0.1, 0.3), (0.2, 0.3)))
    assert evaluate.best_head(heads) == (0, 1), "the first of the best"
    record = next(train(small_run(model=ModelConfig.recurrent(d_model=8, score=None))))
    assert record.maps == {} and record.expected is None and record.even is None


def test_the_weights_of_outputs_on_their_source_by_kind_of_map():
    """Of two outputs of a source of three positions; a classifier's are one row, its class."""
    weights, rows = np.arange(25.0).reshape(5, 5), ("a", "b", "c", "d", "e")

    def read(kind, config="decoder", rows=rows, **more):
        model: Any = SimpleNamespace(kind=config, **more)
        found = evaluate.source_weights(model, kind, weights, rows, 3)
        return found and (found[0], found[1].tolist())

    both = (("d", "e"), weights[3:, :3].tolist())
    assert read("causal") == read("self", "forecaster") == both
    assert read("self") is read("causal", rows=rows[:3]) is read("words") is None
    assert read("cross") == (rows, weights.tolist()) and read("sentences")[0] == ("class",)
    first = read("self", "classifier", pool="first"), read("self", "classifier", pool="mean")
    assert first == ((("class",), [[1, 2, 3, 4]]), (("class",), [weights.mean(0).tolist()]))


def test_a_hierarchical_models_words_and_sentences_are_multiplied():
    task = make_task(TaskConfig.of("documents", sentences=3, courts=3))
    example, config = task.held_out(1)[0], ModelConfig.recurrent(8, kind="hierarchical")
    words = np.random.default_rng(0).random((1, 1, 2, len(example.source)))
    frame = {"0:sentences": np.full((1, 1, 1, 2), 0.5), "0:words": words}
    maps = instance(evaluate.source_maps(config, task, frame, example, 0), evaluate.SourceMaps)
    np.testing.assert_allclose(maps.weights[0, 0, 0], words[0, 0].mean(0))
    assert (maps.rows, maps.columns) == (("class",), example.source)
    assert evaluate.source_maps(config, task, frame, example, 1) is None


def test_a_cap_on_seconds_ends_with_a_final_record_and_a_stop_without():
    calls = itertools.count()
    records = list(train(small_run(steps=100), stop=lambda: next(calls) > 3))
    assert not any(r.final for r in records) and len(records) <= 2
    long = dict(steps=20_000, finish_early=False)
    records = list(train(small_run(**long, max_seconds=1, record_every=5_000)))
    assert records[-1].final and 0 < records[-1].step < 20_000
    assert records[-1].capped and not any(record.capped for record in records[:-1])
    *_, last = train(small_run(**long, max_train_seconds=0.5, record_every=50))
    assert last.final and 0.5 <= last.train_seconds < 1.5 and last.elapsed > last.train_seconds


def test_two_passes_in_a_row_that_many_items_confirm_finish_early(monkeypatch):
    refused = 0.98
    seen = [0.0, 0.995, 0.5, 0.99, 1.0, refused, 0.99, 1.0, 0.995]
    scores = iter(seen)
    monkeypatch.setattr(evaluate.Objective, "score", lambda *_: {"sequence_accuracy": next(scores)})
    records = list(train(small_run(steps=50)))
    assert [r.sequence_accuracy for r in records] == [one for one in seen if one != refused]
    assert records[-1].step == 12 and records[-1].final


def test_learning_rate_rises_then_falls_by_its_schedule():
    """Vaswani's d^-0.5 · min(n^-0.5, n · w^-1.5) is its peak d^-0.5 · w^-0.5 times min(√(w/n), n/w)."""
    config = small_run(steps=100, warmup=9, learning_rate=1.0)
    assert loop.learning_rate(config, 5) == pytest.approx(0.5, abs=0.01)
    assert loop.learning_rate(config, 100) == pytest.approx(0.1)
    assert loop.learning_rate(small_run(schedule="constant", learning_rate=1.0), 4) == 1.0
    config = small_run(steps=1000, warmup=99, learning_rate=0.02, schedule="inverse_sqrt")
    for step in (1, 40, 100, 400, 1000):
        published = min(step**-0.5, step * 100**-1.5)
        assert loop.learning_rate(config, step) == pytest.approx(0.02 * published / 100**-0.5)


def test_reverse_is_learned(monkeypatch):
    config = recommended(
        make_task(TaskConfig.of("reverse")), "transformer", max_seconds=120, record_every=20
    )
    monkeypatch.setattr(loop, "FINAL", FINAL)
    last = list(train(config))[-1]
    assert last.sequence_accuracy >= 0.99 and last.held_out == 1000
    assert max(map(max, last.expected)) > 5 * last.even


def test_a_step_fetches_nothing_from_the_device(monkeypatch):
    """Each fetch of a number would wait for the device; the loop itself fetches all at once, at a record."""
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


@each("stopped", [False, True])
def test_a_number_that_is_lost_between_two_records_names_its_step(stopped, monkeypatch):
    session, usual = prepare(small_run(steps=9, record_every=9)), loop.one_step

    def lost(session, step):
        made = usual(session, step)
        return made._replace(gradient=made.gradient * float("nan")) if step == 4 else made

    with (
        monkeypatch.context() as patch,
        pytest.raises(FloatingPointError, match="gradient .* step 4;"),
    ):
        patch.setattr(loop, "one_step", lost)
        list(train(session.config, session, stop=lambda: stopped and session.progress.step == 6))
    session = prepare(small_run())
    next(iter(session.model.parameters())).data.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="loss .* smaller learning rate"):
        list(train(session.config, session))


def test_a_checkpoint_holds_the_generator_of_the_gpu(tmp_path, monkeypatch):
    """No GPU is here: its generator is made up, and the session says that it trains there."""
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


def test_the_final_record_measures_the_best_weights_and_the_session_keeps_its_last(scripted):
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


def test_a_run_keeps_its_best_checkpoint_and_its_model_is_that_one(scripted, tmp_path):
    run = create_run(small_run(steps=20, keep_best=True, patience=3), path=tmp_path / "run")
    assert work(run.path) == "finished" and "smallest at step 4" in run.status().message
    assert {4, 10} <= set(run.checkpoint_steps()) and run.default_step() == 4
    for step, measured in ((None, 2), (10, 5)):
        assert same(run.model(step)[0].state_dict(), scripted[measured])
    copied = archive.unpack(archive.pack(run), tmp_path)
    assert copied.default_step() == 4 and copied.records()[-1].best == 4
    scripted.clear()
    run = create_run(small_run(steps=6, keep_best=True), path=tmp_path / "paused")
    work(run.path)
    run.update_metadata(config=replace(run.config(), steps=10).to_json())
    run.requeue()
    del scripted[5:]
    assert work(run.path) == "finished" and run.default_step() == run.records()[-1].best == 4


def test_the_final_items_did_not_choose_the_weights_as_long_as_there_are_as_many():
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


@pytest.fixture
def decoded(monkeypatch) -> list[int]:
    counts: list[int] = []

    def measured(model, task, examples, *rest):
        counts.append(len(examples))
        return evaluate.measure_free(model, task, examples, *rest)

    monkeypatch.setattr(loop, "measure_free", measured)
    return counts


@each(("decode_every", "counts", "steps"), [(2, [11, 20], {4}), (1, [11, 11, 11, 20], {0, 2, 4})])
def test_an_untrained_model_is_not_decoded_where_decodes_are_few(
    decoded, decode_every, counts, steps
):
    """And a text is continued for the watched examples alone."""
    decoded.clear()
    records = list(train(small_run(decode_every=decode_every, finish_early=False)))
    assert {r.step for r in records if r.sequence_accuracy is not None and r.examples} == steps
    assert decoded == counts
    text = make_task(TaskConfig.of("own_text", length=16))
    record = next(train(recommended(text, held_out=20, num_examples=3, steps=1)))
    assert decoded[len(counts) :] == [3] and len(record.examples) == 3
    assert record.token_accuracy is not None


def test_long_targets_of_short_sources_are_read_to_their_end_and_cuts_are_counted():
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

    for ends in (True, False):
        scores = evaluate.objective(task).score(
            task, evaluate.measure_free(Knows(ends), task, examples, "cpu")
        )
        assert (scores["sequence_accuracy"], scores["cut"]) == (
            (1.0, 0) if ends else (0.0, len(examples))
        )


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
    """Of the same weights under a causal mask, forward and by steps; no gradient reaches anything but the indexer."""
    layer = Attention(AttentionConfig(C, H, **{"mask": LIGHTNING} | beside))
    full = Attention(layer.config.with_(mask="causal", kernel="exact"))
    full.load_state_dict(layer.state_dict(), strict=False)
    x, indexer = torch.randn(B, T, C, requires_grad=True), layer.indexer
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


def test_padding_is_no_key_that_is_predicted_and_only_training_computes_it():
    layer, real = (
        Attention(AttentionConfig(C, H, mask=LIGHTNING)),
        torch.arange(T) < torch.tensor([[T], [7], [4]]),
    )
    full, x = Attention(layer.config.with_(mask="causal")), torch.randn(B, T, C)
    full.load_state_dict(layer.state_dict(), strict=False)
    indexer: Any = layer.mask
    scores = indexer.index_scores(ScoreBlock.whole(T, T, x=x, context=x))
    allowed = torch.ones(T, T, dtype=torch.bool).tril() & real[:, None]
    torch.testing.assert_close(
        layer(x, key_mask=real).indexer_loss,
        indexer_loss(scores, full(x, key_mask=real).weights, allowed),
    )
    with torch.no_grad():
        assert layer(x).indexer_loss is None
    assert layer.eval()(x).indexer_loss is None and full(x).indexer_loss is None


@each(("mask", "losses"), [(LIGHTNING, 2), (Choice("causal"), 0)])
def test_records_have_the_loss_where_there_is_an_indexer_and_none_keeps_a_hook(mask, losses):
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
    session = prepare(run_config(LIGHTNING, steps=100))
    before = recalls(session)
    for step in range(1, 101):
        loop.one_step(session, step)
    after = recalls(session)
    assert max(after) > max(before) + 0.1 and min(after) > min(before) + 0.02, (before, after)


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
    """It takes torch's own steps, to the last bit, without torch.compile."""
    config = small_run(optimizer=name, weight_decay=0.03, learning_rate=0.004)
    ours, torchs = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    torchs.load_state_dict(ours.state_dict())
    expected = kind(
        torchs.parameters(),
        lr=0.004,
        weight_decay=0.03,
        **({"momentum": 0.9} if name == "sgd" else {}),
    )
    x = torch.randn(7, 5)

    def step(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()

    step(expected, torchs)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch._dynamo", None)  # whoever imports it fails
        made = loop.make_optimizer(config, ours)
        step(made, ours)
        made.load_state_dict(made.state_dict())
    assert isinstance(made, kind)
    torch.testing.assert_close(ours.state_dict(), torchs.state_dict(), rtol=0, atol=0)
    learns = dict(steps=40, record_every=40, learning_rate=0.01, finish_early=False)
    first, *_, last = train(small_run(optimizer=name, **learns))
    assert last.loss < first.loss


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
    norm = math.sqrt(
        sum(float(w.grad.square().sum()) for w in tight.model.parameters() if w.grad is not None)
    )
    assert norm == pytest.approx(0.01, rel=1e-3)
    assert any(not torch.equal(before[name], w) for name, w in tight.model.named_parameters())


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
    again = [record_numbers(r) for r in train(small_run(checkpointing=True))]
    assert again == [record_numbers(r) for r in records_of()]


# A run of a table that is older than the choice of its columns: it makes the table that its weights belong to.


YOUNGER = ("columns", "dates", "decimal")
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


def older(data: str) -> TaskConfig:
    """The config of a run.json that names none of the younger parameters."""
    plain = TaskConfig.of("own_table", data=data).to_json()
    return TaskConfig.from_json(
        {
            **plain,
            "params": {
                name: value for name, value in plain["params"].items() if name not in YOUNGER
            },
        }
    )


def columns(config: TaskConfig) -> list[tuple[str, int]]:
    return [
        (column.name, len(column.categories))
        for column in instance(make_task(config), TableTask).table.columns
    ]


def test_identifiers_and_dates_stay_as_they_were_then():
    """Values of the code of then: whole numbers are left out only where they count, dates are categories."""
    assert columns(older(DATA)) == [("id", 0), ("price", 9), ("day", 5)], (
        "a date's points count as decimal ones"
    )
    assert instance(make_task(older(DATA)), TableTask).table.rows[3] == (121.0, 4.0, 4.0)
    assert columns(TaskConfig.of("own_table", data=DATA)) == [("price", 0)]


def test_one_decimal_sign_is_read_in_all_columns():
    """Between semicolons with a point nowhere it is a comma, else a point; nothing stood between thousands."""
    plain = DATA.replace(".03.2020", ".")
    assert columns(older(plain.replace(".;", ";"))) == [("id", 0), ("price", 0), ("day", 0)]
    spaced = plain.replace(".;", ";").replace(";DE;", ";1 000;", 9).replace(";DE;", ";2 000;")
    assert columns(older(spaced)) == [("id", 0), ("price", 0), ("day", 0), ("country", 2)]


@pytest.fixture
def run(tmp_path) -> Run:
    """A run whose checkpoint has a weight for the column of identifiers, and whose run.json is of then."""
    config = recommended(
        make_task(older(DATA)), steps=2, batch_size=8, record_every=1, held_out=8, num_examples=1
    )
    run = create_run(config, path=tmp_path / "run")
    train_run(run, lambda: False, lambda record: None)
    metadata = run.metadata()
    for name in YOUNGER:
        del metadata["config"]["task"]["params"][name]
    (run.path / "run.json").write_text(json.dumps(metadata), encoding="utf-8")
    return Run(run.path)


def test_its_checkpoint_fits_and_it_goes_on(run):
    shown = load_run(run)
    named = [name for name, _ in columns(shown.required_config.task)]
    assert not shown.trouble and named == ["id", "price", "day"]
    assert summarize(run).config is not None
    run.update_metadata(config={**run.config().to_json(), "steps": 4})
    state, words = train_run(run, lambda: False, lambda record: None)
    assert state == "finished" and "4 steps" in words
