import itertools
import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from core.models import ModelConfig
from core.runs import archive
from core.runs.runs import create_run
from core.tasks import TaskConfig, make_task
from core.training import loop, prepare, train
from core.training.config import devices, resolve_device
from core.training.evaluate import buckets, expected_keys, measure_teacher_forced
from core.training.loop import FINAL, learning_rate
from core.training.record import Prediction, Record
from tests.cases import each
from tests.training.small import record_numbers, small_run


def test_a_test_takes_three():
    records = list(itertools.islice(train(small_run()), 3))
    assert [r.step for r in records] == [0, 2, 4]
    assert records[0].train_loss is None and records[1].train_loss > 0
    assert all(len(r.examples) == 2 and r.held_out == 11 for r in records)


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


def test_the_final_record_measures_more():
    last = list(train(small_run()))[-1]
    assert last.final and last.held_out == loop.FINAL == 20 < FINAL == 1000 and last.step == 4
    assert last.gradient > 0 and last.tokens_per_second > 0


def test_pairs_that_are_made_once_are_no_time_of_training():
    session = prepare(small_run(task=TaskConfig.of("numbers", train_pairs=1000)))
    next(train(session.config, session))
    assert session.progress.step == 0 and "_pool_batch" in vars(session.task)


def test_same_seed_same_numbers():
    def numbers(seed):
        return [record_numbers(r) for r in train(small_run(seed=seed))]

    assert numbers(3) == numbers(3)
    assert numbers(3) != numbers(4)


def test_maps_are_rows_of_weights():
    record = next(train(small_run()))
    assert set(record.maps) == {f"{i}:{kind}" for i in "01" for kind in ("self", "causal", "cross")}
    weights = record.maps["0:cross"]
    assert weights.shape == (1, 2, 7, 6)  # layers, heads, six letters and the end, six letters
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_the_final_record_tells_long_sources_from_short_ones():
    def prediction(source: int, right: bool) -> Prediction:
        words = tuple(f"w{i}" for i in range(4))
        return Prediction(("a",) * source, words, words if right else ("x",) * 4)

    numbers = make_task(TaskConfig.of("numbers"))
    ranges = buckets(
        numbers,
        [prediction(3, True), prediction(10, False), prediction(11, True), prediction(25, False)],
    )
    assert [(b.lengths, b.count, b.exact) for b in ranges] == [
        ("1–10", 2, 0.5),
        ("11–20", 1, 1.0),
        ("21–30", 1, 0.0),
    ]
    assert ranges[1].bleu == pytest.approx(100) and ranges[2].bleu == 0
    assert buckets(numbers, [prediction(3, True), prediction(4, True)]) == ()
    record = Record(step=1, buckets=ranges)
    assert Record.from_json(record.to_json()) == record


def test_the_expected_weight_is_what_the_maps_say():
    config = small_run(held_out=2)
    record = next(train(config))
    by_hand = [
        [
            np.mean([record.maps[f"{e}:cross"][0, h, t, 5 - t] for e in "01" for t in range(6)])
            for h in range(2)
        ]
    ]
    np.testing.assert_allclose(record.expected, by_hand, rtol=1e-5)
    assert record.even == pytest.approx(1 / 6)


def test_uniform_attention_earns_what_even_says():
    session = prepare(small_run())
    with torch.no_grad():
        for p in session.model.parameters():
            p.zero_()
    given = measure_teacher_forced(session.model.eval(), session.task, session.held_out, "cpu")
    np.testing.assert_allclose(given.expected, given.even, rtol=1e-5)


def test_expected_keys_by_hand():
    task = make_task(small_run().task)
    examples = task.held_out(2)
    assert expected_keys(task, examples, 7, "cpu")[..., 0].tolist() == [[5, 4, 3, 2, 1, 0, -1]] * 2


def test_no_attention_has_no_maps():
    record = next(train(small_run(model=ModelConfig.recurrent(d_model=8, score=None))))
    assert record.maps == {} and record.expected is None and record.even is None


def test_stop_ends_without_a_final_record():
    calls = itertools.count()
    records = list(train(small_run(steps=100), stop=lambda: next(calls) > 3))
    assert not any(r.final for r in records) and len(records) <= 2


def test_the_cap_on_seconds_ends_with_a_final_record():
    records = list(
        train(small_run(steps=20_000, seconds=1, record_every=5_000, finish_early=False))
    )
    assert records[-1].final and 0 < records[-1].step < 20_000
    assert records[-1].capped and not any(record.capped for record in records[:-1])
    assert not list(train(small_run()))[-1].capped


def test_a_loss_that_is_no_number_says_so():
    with pytest.raises(FloatingPointError, match="smaller learning rate"):
        session = prepare(small_run())
        with torch.no_grad():
            next(iter(session.model.parameters())).fill_(float("nan"))
        list(train(session.config, session))


def test_two_passes_in_a_row_that_many_items_confirm_finish_early(monkeypatch):
    from core.training.evaluate import Objective

    refused, confirmed = 0.98, 0.995
    scores = iter([0.0, 0.995, 0.5, 0.99, 1.0, refused, 0.99, 1.0, confirmed])
    monkeypatch.setattr(Objective, "score", lambda *_: {"exact": next(scores)})
    records = list(train(small_run(steps=50)))
    assert [r.exact for r in records] == [0.0, 0.995, 0.5, 0.99, 1.0, 0.99, 1.0, confirmed]
    assert records[-1].step == 12 and records[-1].final


def test_learning_rate_rises_then_falls_to_a_tenth():
    config = small_run(steps=100, warmup=9, learning_rate=1.0)
    assert learning_rate(config, 5) == pytest.approx(0.5, abs=0.01)
    assert learning_rate(config, 100) == pytest.approx(0.1)
    assert learning_rate(small_run(schedule="constant", learning_rate=1.0), 4) == 1.0


def test_reverse_is_learned(monkeypatch):
    """The recommended settings, to 99 % of 1,000 held-out sequences, and the weight stands on the anti-diagonal."""
    from core.tasks import TaskConfig
    from core.training import RunConfig

    task = TaskConfig.of("reverse")
    recipe = make_task(task).recommended["transformer"]
    config = RunConfig(
        task,
        ModelConfig.from_json(recipe.model),
        steps=400,
        batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        seconds=120,
    )
    monkeypatch.setattr(loop, "FINAL", FINAL)
    last = list(train(config))[-1]
    assert last.exact >= 0.99 and last.held_out == 1000
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
def test_a_number_that_is_lost_between_two_records_names_its_step(stopped):
    session, usual = prepare(small_run(steps=9, record_every=9)), loop.one_step

    def lost(session, step):
        made = usual(session, step)
        return replace(made, gradient=made.gradient * float("nan")) if step == 4 else made

    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(FloatingPointError, match="gradient .* step 4;"),
    ):
        patch.setattr(loop, "one_step", lost)
        list(train(session.config, session, stop=lambda: stopped and session.progress.step == 6))


def test_automatic_takes_cuda_where_it_is_there(monkeypatch):
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert resolve_device("auto") == ("cuda" if there else "cpu")
        assert ("cuda" in devices()) == there


def test_a_checkpoint_holds_the_generator_of_the_gpu(tmp_path, monkeypatch):
    """No GPU is here: its generator is made up, and the session says that it trains there."""
    state, given = torch.arange(16, dtype=torch.uint8), list[torch.Tensor]()
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", given.append)
    run = create_run(small_run(), path=tmp_path / "run")
    session = prepare(run.config())
    assert "generator.cuda" not in session.state()[0]
    session.device = "cuda"
    run.save_checkpoint(session, run.config())
    archive.checkpoints(run, run.config())
    again = prepare(run.config())
    again.restore(*run.checkpoint(0))
    assert given == [], "a CPU has no use for it"
    again.device = "cuda"
    again.restore(*run.checkpoint(0))
    assert len(given) == 1 and torch.equal(given[0], state)
