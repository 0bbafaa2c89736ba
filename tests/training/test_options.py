"""What a run may be asked for: each option does what it says, on the real loop."""

import itertools
import math
import sys

import pytest
import torch
import torch.nn.functional as F

from core.attention import ConfigError
from core.models import ModelConfig
from core.training import prepare, train
from core.training.evaluate import objective
from core.training.loop import learning_rate, make_optimizer, one_step
from tests.cases import each
from tests.training.small import record_numbers, small_run


def test_the_rate_of_vaswani_peaks_after_the_warm_up():
    """d^-0.5 · min(n^-0.5, n · w^-1.5) is its peak d^-0.5 · w^-0.5 times min(√(w/n), n/w)."""
    config = small_run(steps=1000, warmup=99, learning_rate=0.02, schedule="inverse_sqrt")
    for step in (1, 40, 100, 400, 1000):
        published = min(step**-0.5, step * 100**-1.5)
        assert learning_rate(config, step) == pytest.approx(0.02 * published / 100**-0.5)


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
    for _ in range(3):
        _step(expected, torchs, x)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch._dynamo", None)  # whoever imports it fails
        made = make_optimizer(config, ours)
        for _ in range(3):
            _step(made, ours, x)
            made.load_state_dict(made.state_dict())
    assert (
        isinstance(made, kind)
        and torch.equal(ours.weight, torchs.weight)
        and torch.equal(ours.bias, torchs.bias)
    )
    losses = [
        r.loss
        for r in train(
            small_run(
                optimizer=name, steps=40, record_every=40, learning_rate=0.01, finish_early=False
            )
        )
    ]
    assert losses[-1] < losses[0]


def _step(optimizer: torch.optim.Optimizer, model: torch.nn.Module, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


def test_smoothing_is_shared_among_all_classes():
    session = prepare(small_run())
    batch = session.task.batch(3, session.data)
    logits = session.model(batch.source, batch.source_mask, batch.target_in).logits
    eps, classes = 0.1, logits.shape[-1]
    plain_numbers = batch.target_out != 0
    log = F.log_softmax(logits[plain_numbers], -1)
    expected = F.one_hot(batch.target_out[plain_numbers], classes) * (1 - eps) + eps / classes
    by_hand = -(expected * log).sum(-1).mean()
    torch.testing.assert_close(objective(session.task).loss(logits, batch, eps), by_hand)


def test_the_gradient_is_clipped_and_told_as_it_was():
    loose, tight = (prepare(small_run(clip=clip, optimizer="sgd")) for clip in (1e9, 0.01))
    before = {name: w.detach().clone() for name, w in tight.model.named_parameters()}
    first, second = one_step(loose, 1), one_step(tight, 1)
    assert first.gradient == pytest.approx(second.gradient) and first.gradient > 0.01
    norm = math.sqrt(
        sum(float(w.grad.square().sum()) for w in tight.model.parameters() if w.grad is not None)
    )
    assert norm == pytest.approx(0.01, rel=1e-3)
    assert any(not torch.equal(before[name], w) for name, w in tight.model.named_parameters())


def test_patience_ends_a_run_that_no_longer_gets_better():
    config = small_run(
        steps=400,
        patience=2,
        learning_rate=1e-6,
        warmup=0,
        weight_decay=0.0,
        optimizer="sgd",
        finish_early=False,
    )
    flat = small_run(
        steps=40,
        patience=0,
        learning_rate=1e-6,
        optimizer="sgd",
        finish_early=False,
        record_every=10,
    )
    session = prepare(config)
    for weight in session.model.parameters():
        weight.requires_grad_(False)
    frozen = torch.nn.Parameter(torch.zeros(1))
    session.model.register_parameter("still", frozen)
    session.model.get_parameter("output.bias").requires_grad_(True)
    session.optimizer = torch.optim.SGD([frozen], lr=0.0)
    records = list(train(config, session))
    assert [r.step for r in records] == [0, 2, 4, 6, 6], (
        "the first is the best, two more do not better it"
    )
    assert records[-1].final
    assert len(list(train(flat))) == 40 // 10 + 2


def test_equal_training_time_is_a_cap_of_its_own():
    records = list(train(small_run(steps=20_000, trained=0.5, record_every=50, finish_early=False)))
    assert (
        records[-1].final
        and 0.5 <= records[-1].trained < 1.5
        and records[-1].elapsed > records[-1].trained
    )


def test_bfloat16_computes_in_bfloat16_and_still_learns():
    seen = []
    session = prepare(
        small_run(
            precision="bf16", steps=30, record_every=30, learning_rate=0.01, finish_early=False
        )
    )
    output = session.model.get_submodule("output")
    output.register_forward_hook(
        lambda module, given, out: seen.append((out.dtype, module.training))
    )
    records = list(train(session.config, session))
    assert {dtype for dtype, training in seen if training} == {torch.bfloat16}
    assert records[-1].loss < records[0].loss
    assert all(w.dtype == torch.float32 for w in session.model.parameters())


def test_computing_layers_again_gives_the_same_numbers():
    plain_numbers, again = (
        list(itertools.islice(train(small_run(steps=6, checkpointing=on)), 4))
        for on in (False, True)
    )
    assert [record_numbers(r) for r in plain_numbers] == [record_numbers(r) for r in again]


@each(
    "change, word",
    [
        ({"precision": "int4"}, "fp32, bf16"),
        ({"label_smoothing": 0.9}, "0 to 0.5"),
        ({"weight_decay": -1.0}, "0 to 1"),
        ({"patience": 1.5}, "whole number"),
        ({"checkpointing": 1}, "true or false"),
        (
            {"checkpointing": True, "model": ModelConfig.recurrent(8)},
            "kind = recurrent has no layers",
        ),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(change, word):
    with pytest.raises(ConfigError, match=word):
        small_run(**change)


def test_a_record_says_where_the_time_and_the_gradient_went():
    records = list(train(small_run()))
    assert records[0].gradients == {} and records[0].rate is None and records[0].data_share is None
    parts = {
        "source",
        "source_places",
        "encoder.layers.0",
        "target",
        "target_places",
        "layers.0",
        "output",
    }
    assert set(records[1].gradients) == parts
    assert all(0 < norm < 10 for norm in records[1].gradients.values())
    assert 0 < records[1].data_share < 1 and records[1].rate == learning_rate(small_run(), 2)
