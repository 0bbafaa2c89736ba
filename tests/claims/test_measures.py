"""What the claims measure, against plain arithmetic."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from core.attention import Attention, AttentionConfig
from core.attention.cost import attention_cost, parameters
from core.attention.positions.relative import sinusoids
from core.claims.base import SeedValues
from core.claims.entries import (
    cost,
    heads,
    meaning,
    positions,
    scores,
    training,
    why_attention as why,
)
from core.claims.experiment import Trained, session_of
from core.entries import Choice
from core.models import ModelConfig, build_model
from core.models.base import Shape
from core.models.transformer import Residual
from core.tasks import Batch, TaskConfig, make_task
from core.training.config import RunConfig
from core.training.loop import prepare
from tests.claims.test_rules import costs, path

LINE = Shape(11, 11, 12, one_vocabulary=True)
SOURCE = torch.randint(4, 11, (3, 12), generator=torch.Generator().manual_seed(0))


def decoder(*sizes, seed=0, **more) -> Any:
    """A new decoder that reads LINE, in eval mode."""
    torch.manual_seed(seed)
    return build_model(ModelConfig.transformer(*sizes, kind="decoder", **more), LINE).eval()


def test_the_tutorials_model_is_counted_by_hand_and_a_step_takes_time():
    attention, feed_forward, norms = 4 * 64 * 64 + 4 * 64, 2 * 64 * 256 + 256 + 64, 4 * 64
    both = 2 * (attention + feed_forward + norms)
    by_hand = (4 * 64 + 64) + both + (64 * 32 + 32) + (32 * 3 + 3)
    assert why.tutorial_parameters() == by_hand == 102_467
    model = ModelConfig.transformer(8, 1, position="sinusoidal")
    run = RunConfig(TaskConfig.of("reverse", length=4), model, batch_size=2)
    assert why.step_seconds(session_of(run, 0)) > 0


def test_the_parts_of_training_by_hand():
    assert (
        training.padding_change(0, masked=True) == pytest.approx(0, abs=1e-6)
        and training.padding_change(0, masked=False) > 1e-3
    )
    task: Any = make_task(TaskConfig.of("topics", length=32))
    tokens = [task.source_vocab.encode([token])[0] for token in "etxt"]
    task.ids = torch.tensor(tokens)  # e once, x once, t twice, and every token once more
    task.corpus = SimpleNamespace(held_out=("t", "e"))
    total = 4 + len(task.source_vocab)
    bits = -(math.log2(3 / total) + math.log2(2 / total)) / 2
    assert training.frequency_bits(task) == pytest.approx(bits, rel=1e-5)
    outputs, targets = [("a", "b"), ("c",)], [("a", "x", "y"), ("c",)]
    assert training.token_accuracy(outputs, targets) == 0.5


def test_gradients_are_of_each_layer_and_residuals_can_go():
    model = ModelConfig.transformer(8, 2, 2, kind="decoder", norm="pre")
    session = prepare(RunConfig(TaskConfig.of("copy"), model))
    norms = training.layer_gradients(session)
    assert (
        len(norms) == 2
        and min(norms) > 0
        and all(weight.grad is None for weight in session.model.parameters())
    )
    training.remove_residuals(session.model)
    around = [module for module in session.model.modules() if isinstance(module, Residual)]
    x = torch.randn(1, 3, 8)
    assert len(around) == 4 and all(torch.equal(one.leave(x, -x), -x) for one in around)


def test_the_exponent_is_that_of_the_curve_and_each_condition_fits_the_layer():
    seed = SeedValues(dict(costs((2.0, 1.0, 1.5), 0.5, 0.0)))
    assert cost._exponent(cost.LOCAL, seed) == pytest.approx(1.5)
    kernels = [
        AttentionConfig(128, 4, **cost.choices(condition)).kernel.key
        for condition in cost.COST.conditions({})
    ]
    assert kernels == ["exact", "fused", "linear", "local"]


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [(cost.MULTI_HEAD, 256), (cost.GROUPED, 64), (cost.MULTI_QUERY, 32)],
)
def test_the_cache_holds_keys_and_values_of_each_layer(condition, numbers):
    """2 layers · 2 (key and value) · heads of keys · 8 dimensions."""
    model = decoder(64, 8, 2, position="rope", projection=cost.PROJECTIONS[condition])
    batch = SimpleNamespace(source=SOURCE[:1], source_mask=SOURCE[:1] > 0)
    task: Any = SimpleNamespace(held_out=lambda n: None, collate=lambda examples: batch)
    assert cost.cached_numbers(Trained(model, task, ())) == numbers


def test_a_window_caches_two_tokens_and_one_layer_of_four_sees_all():
    """64 numbers for the key and 64 for the value of each token."""
    sizes = {name: cost.cached(cost.stack(layers), 10) for name, layers in cost.PATTERNS.items()}
    assert sizes == {
        cost.HYBRID_FULL: 4 * 10 * 128,
        cost.HYBRID_STACK: (10 + 3 * 2) * 128,
        cost.HYBRID_LOCAL: 4 * 2 * 128,
        cost.SIX_FULL: 6 * 10 * 128,
        cost.ONE_IN_SIX: (10 + 5 * 2) * 128,
    }
    model = build_model(cost.stack(cost.PATTERNS[cost.HYBRID_STACK]), LINE).eval()
    maps = model(SOURCE[:1, :9], SOURCE[:1, :9] > 0, record=True).maps["causal"]
    assert [int((steps.weights[0, 0, -1] > 0).sum()) for steps in maps] == [2, 2, 2, 9]


def test_a_head_without_its_columns_adds_nothing():
    model = decoder(8, 2, 1, norm="pre")
    full = model(SOURCE, SOURCE > 0, record=True)
    projection = model.layers[0].causal.projection
    copy: Any = heads.without(model, [(0, 1)])
    out = full.maps["causal"][0].out  # (B, H, T, D)
    alone = torch.nn.functional.linear(
        out[:, 0], projection.output.weight[:, :4], projection.output.bias
    )
    pruned = copy.layers[0].causal.projection.merge(out, out[:, 0].repeat(1, 1, 2))
    torch.testing.assert_close(pruned, alone)
    assert bool((projection.output.weight != 0).all())  # the model itself is as it was


def test_crossings_agreement_and_the_score_that_is_left_by_hand():
    curve = {0.0: 0.0, 10.0: 0.2, 20.0: 1.0}
    assert [heads.crossing(curve, level) for level in (0.6, 0.1, 2.0)] == pytest.approx(
        [15, 5, 20]
    ) and heads.at(curve, 15.0) == pytest.approx(0.6)
    first = np.array([[[0.1, 0.2], [0.3, 0.8]], [[0.6, 0.1], [0.2, 0.3]]])
    assert heads.mean_agreement(first, first**2) == pytest.approx(1) and heads.score_left(
        first, first / 2
    ) == pytest.approx(0.5)
    second = first.copy()
    second[0] = second[0].max() - second[0]
    assert heads.mean_agreement(first, second) == pytest.approx(0) and heads.score_left(
        first, second
    ) == pytest.approx((0.0 / 0.8 + 0.6 / 0.6) / 2)


def test_even_attention_scores_its_share():
    """Without scores each output attends evenly to all it sees; the words to repeat are 2 to 5 places on."""
    task = make_task(TaskConfig.of("induction", length=8, vocab=16, said=2))
    model = build_model(ModelConfig.transformer(16, 2, kind="decoder"), task.shape).eval()
    for name, weight in model.named_parameters():
        if "query" in name or name.startswith("output"):
            weight.data.zero_()
    expected = (task.baseline_loss, (1 / 11 + 1 / 12) / 2)
    assert heads.on_repeated(model, task) == pytest.approx(expected)


@pytest.mark.parametrize("condition", meaning.CHOICES)
def test_a_hidden_first_token_gets_weight_from_itself_alone(condition):
    plain = ModelConfig.transformer(16, 4, 2, kind="decoder", position="rope")
    torch.manual_seed(0)
    model = build_model(meaning.variant(plain, condition), LINE).eval()
    batch = Batch(SOURCE, SOURCE > 0, None, SOURCE)
    assert meaning.weight_on_first(model, batch) > 0
    hidden = meaning.without_first(model)
    for steps in hidden(batch.source, batch.source_mask, record=True).maps["causal"]:
        assert (
            not steps.weights[:, :, 1:, 0].any()
            and (steps.weights[:, :, 0, 0] > 0).all()
            and not steps.weights.triu(1).any()
        )
    assert meaning.weight_on_first(hidden, batch) == 0 and meaning.loss(
        hidden, batch
    ) != meaning.loss(model, batch)


@pytest.fixture
def words():
    """Five words of up to eight letters, one of them shorter."""
    source = torch.randint(4, 9, (5, 8), generator=torch.Generator().manual_seed(3))
    source[1, 6:] = 0
    return Batch(source, source > 0, None, torch.zeros(5, dtype=torch.long))


def reader(context=False):
    task: Any = SimpleNamespace(shape=Shape(9, 3, 8, output="label"))
    torch.manual_seed(1)
    return meaning.Reader(task, context).eval().requires_grad_(False)


def test_distances_by_hand():
    same, first, second = torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]], [[0.0, 1.0]]])
    assert (float(meaning.distance(first, second)), float(meaning.distance(same, first))) == (
        1,
        0.5,
    )
    apart = [float(meaning.divergence(*pair)) for pair in ((same, same), (first, second))]
    assert apart == pytest.approx([0, math.log(2)], abs=1e-6)


def test_ablation_renormalizes_the_weights_and_the_gradient_holds_them_fixed(words):
    model = reader()
    states = model.letters(words.source)
    weights = model.weights(states, words.source_mask)
    left = weights.clone()
    left[:, 2] = 0
    expected = meaning.distance(
        model.classify(states, left / left.sum(-1, keepdim=True)).softmax(-1),
        model.classify(states, weights).softmax(-1),
    )
    assert (
        torch.allclose(meaning.by_ablation(model, words)[:, 2], expected, atol=1e-6)
        and not meaning.by_ablation(model, words)[1, 6:].any()
    )
    model = reader()
    states = model.letters(words.source)
    weights = model.weights(states, words.source_mask)
    grown = states.clone()
    grown[0, 3] *= 1.001
    p, q = (model.classify(each, weights).softmax(-1)[0] for each in (states, grown))
    slope = float((q - p)[int(p.argmax())]) / 0.001
    assert float(meaning.by_gradient(model, words)[0, 3]) == pytest.approx(abs(slope), rel=0.05)


@pytest.mark.parametrize("context", [False, True])
def test_weights_agree_with_themselves_and_do_not_matter_to_a_constant(context, words):
    model = reader(context)
    weights = meaning.own_weights(
        model, model.states(model.letters(words.source), words.source_mask), words
    )
    assert (
        meaning.agreement(model, words, weights) == pytest.approx(1)
        and meaning.agreement(model, words, -weights) == pytest.approx(-1)
        and meaning.by_permutation(model, words, 0) > 0
    )
    model.output.weight.zero_()
    assert meaning.by_permutation(model, words, 0) == 0
    # One letter of eight, against even weights, is 0.5 away.
    assert meaning.other_weights(model, words) > 0.45


def test_a_layer_without_positions_sees_no_order_and_a_running_mean_passes_all_gradient():
    none, rope = (positions.order_change(Choice(key), 0) for key in ("none", "rope"))
    assert none < 1e-5 < 0.1 < rope
    measured = positions.measure(positions.NONE, 0, {}, lambda: False)
    assert [number[0] for number in measured] == [positions.ORDER] and positions.shift(3) < 1e-5
    # sin i, cos i: a turn by one radian a position
    table = sinusoids(torch.arange(8, dtype=torch.float64), 2)
    turned = math.cos(3.0) * table[2, 0] + math.sin(3.0) * table[2, 1]
    assert float(turned) == pytest.approx(float(table[5, 0]), abs=1e-6)
    norms = positions.gradients(lambda x: x.cumsum(1), 0)
    assert norms == pytest.approx(dict.fromkeys(positions.DISTANCES, 1.0))


@pytest.mark.parametrize(
    ("at", "expected"),
    [(96.0, 96.0), (1.0, positions.PATH_LENGTHS[0]), (1e9, positions.PATH_LENGTHS[-1])],
)
def test_the_crossing_of_a_line_and_a_square(at, expected):
    seed = SeedValues(dict(path(1.0, 1.0, at, 1.0)))
    assert positions.crossing(seed, positions.SECONDS) == pytest.approx(expected)


def test_flops_are_those_of_the_layer_and_cross_at_the_width():
    attention, cells, size = positions.ATTENTION, positions.RECURRENT, positions.SIZE
    assert positions.flops(attention, 64, 64) == positions.flops(cells, 64, 64)
    config = AttentionConfig(size, 4, mask="causal")
    # Each weight once a token, without biases.
    products = 2 * 16 * (sum(parameters(config).values()) - 4 * size)
    expected = attention_cost(config, 16, 16).flops + products
    assert positions.flops(attention, 16, size) == expected
    weights = sum(weight.numel() for weight in torch.nn.GRU(size, size, bias=False).parameters())
    assert positions.flops(cells, 16, size) == 2 * 16 * weights


def test_the_jacobian_is_autograds_and_answer_and_noise_are_shares_of_a_row():
    drawn = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = [torch.autograd.functional.jacobian(lambda row: row.softmax(-1), row) for row in drawn]
    expected = float(torch.stack([row.norm() for row in rows]).mean())
    assert scores.jacobian_norm(drawn.softmax(-1)) == pytest.approx(expected)
    weights = torch.zeros(1, 2 * scores.PAIRS + 3)
    weights[0, 3], weights[0, 2] = 0.5, 0.1  # the answer, and the key of its pair
    weights[0, 6], weights[0, 9] = -0.2, 0.1  # other pairs
    weights[0, -1] = 0.1
    shares = scores.answer_and_noise(weights, torch.tensor([3]))
    assert shares == pytest.approx((0.5, 0.3))


def test_both_models_have_as_many_weights():
    """Differential attention has four more vectors a layer, which make λ."""
    plain, differential = (
        sum(weight.numel() for weight in build_model(scores.model_of(name), LINE).parameters())
        for name in (scores.SOFTMAX, scores.DIFFERENTIAL)
    )
    assert differential - plain == 2 * 4 * 32


@pytest.mark.parametrize("condition", [scores.LARGEST, scores.INDEXER, scores.LATEST])
def test_each_query_keeps_as_many_keys_as_said(condition):
    lightning = Choice.of("lightning", keys=scores.WINDOW)
    model = decoder(16, 2, 2, norm="pre", position="rope", mask=lightning)
    before = model(SOURCE, SOURCE > 0).logits
    for count in (1, 5, scores.WINDOW):
        output = scores.keep(model, condition, count)(SOURCE, SOURCE > 0, record=True)
        for steps in output.maps["causal"]:
            seen = (steps.weights > 0).sum(-1)
            assert torch.equal(seen, torch.arange(1, 13).clamp(max=count).expand_as(seen))
        assert count < scores.WINDOW or torch.allclose(output.logits, before, atol=1e-5)
    layers = [layer for layer in model.modules() if isinstance(layer, Attention)]
    assert layers and all(layer.indexer.keys == scores.WINDOW for layer in layers)
    (latest, _) = scores.keep(model, scores.LATEST, 2)(SOURCE, SOURCE > 0, record=True).maps[
        "causal"
    ]
    assert torch.equal(latest.weights[0, 0] > 0, torch.ones(12, 12).tril().triu(-1).bool())
