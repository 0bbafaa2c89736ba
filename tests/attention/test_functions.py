"""A layer takes a function or a module for an axis: the same numbers as the lab's own choice, and errors in words."""

import math
import pickle
from typing import assert_type

import pytest
import torch
from torch import Tensor, nn

from core.attention import Attention, AttentionConfig, ConfigError, LayerSteps, Steps
from core.attention.basics import MultiHead, Softmax
from core.attention.positions.relative import alibi_slopes
from tests.cases import each

B, T, S, C, H = 2, 5, 7, 33, 3


def scaled_dot(q, k):
    return q @ k.mT / math.sqrt(q.shape[-1])


def causal(i, j):
    return j <= i


def alibi(i, j):
    return -alibi_slopes(H)[:, None, None] * (i - j).abs()


def softmax(scores, mask):
    return scores.softmax(-1)


def layer(seed=7, config=None, **given):
    torch.manual_seed(seed)
    return Attention(config or AttentionConfig(C, H), **given)


def results(layer, record):
    """The output and the gradients on a random key mask, in which one sequence of the batch is all padding."""
    torch.manual_seed(3)
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    real = torch.rand(B, S) < 0.6
    real[1] = False
    steps = layer(x, context, key_mask=real, record=record)
    steps.merged.square().sum().backward()
    return steps.merged, x.grad, context.grad, *(weight.grad for weight in layer.parameters())


@each("record", [True, False])
@each(
    ("axis", "function", "own"),
    [
        ("score", scaled_dot, "scaled_dot"),
        ("mask", causal, "causal"),
        ("position", alibi, "alibi"),
        ("normalizer", softmax, "softmax"),
    ],
)
def test_a_function_gives_what_the_labs_own_choice_gives(axis, function, own, record):
    theirs = results(layer(config=AttentionConfig(C, H, **{axis: own})), record)
    for one, other in zip(results(layer(**{axis: function}), record), theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


def test_a_score_worked_by_hand():
    """q = k = 1 and 2, score q + k: e^3 and e^4 for the second query."""
    attention = Attention(AttentionConfig(1, 1, projection="identity"), score=lambda q, k: q + k.mT)
    weights = attention(torch.tensor([[[1.0], [2.0]]])).weights[0, 0, 1]
    assert weights.tolist() == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)], abs=1e-6)


class Bilinear(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ self.weight @ k.mT


def test_a_module_is_trained_and_stored_with_the_layer():
    attention = layer(score=Bilinear(C // H))
    results(attention, True)
    assert attention.score.function.weight.grad.abs().sum() > 0
    assert "score.function.weight" in attention.state_dict()
    again = pickle.loads(pickle.dumps(attention))
    x = torch.randn(B, T, C)
    assert torch.equal(again(x).merged, attention(x).merged)


def test_modules_of_the_lab_are_taken_as_they_are():
    projection, normalizer = MultiHead(C, H, bias=False), Softmax(temperature=0.5)
    attention = layer(projection=projection, normalizer=normalizer)
    assert attention.projection is projection and attention.normalizer is normalizer


def test_a_normalizer_may_use_half_precision_and_never_weighs_what_is_masked():
    def thirds(scores, mask):
        assert scores.dtype == torch.float32
        return torch.full_like(scores, 1 / 3)

    attention = layer(normalizer=thirds, mask=causal).bfloat16()
    weights = attention(torch.randn(B, T, C, dtype=torch.bfloat16)).weights
    assert (
        weights.dtype == torch.bfloat16 and not weights.triu(1).any() and weights.tril().sum() > 0
    )


def test_it_decodes_token_by_token_as_it_reads_at_once():
    attention, x = layer(mask=causal, position=alibi, score=scaled_dot), torch.randn(B, T, C)
    cache, parts = None, []
    for t in range(T):
        steps, cache = attention.step(x[:, t : t + 1], cache)
        parts.append(steps.merged)
    torch.testing.assert_close(torch.cat(parts, 1), attention(x).merged)


@each(
    ("given", "words"),
    [
        ({"scores": scaled_dot}, "Attention has no scores; it takes projection, score, position"),
        (
            {"score": "dot"},
            r"score = 'dot' is a key; name it in the config: AttentionConfig\(score='dot'\)",
        ),
        ({"score": 3}, r"score = 3; expected a function of \(q, k\) or an instance of Score"),
        ({"score": Bilinear}, r"score = Bilinear is a class; .*call it, Bilinear\(…\)"),
        ({"score": lambda q: q}, r"takes \(q\); expected a function of \(q, k\)"),
        (
            {"projection": nn.Linear(C, C)},
            "projection = Linear; expected an instance of Projection",
        ),
    ],
)
def test_what_is_no_choice_is_refused_in_words(given, words):
    with pytest.raises(ConfigError, match=words):
        layer(**given)


@each(
    ("given", "words"),
    [
        (
            {"score": lambda q, k: q},
            r"returned a tensor \(2, 3, 5, 11\); expected \(B, H, T, S\) = \(2, 3, 5, 7\)",
        ),
        ({"score": lambda q, k: None}, "returned None; expected a tensor"),
        (
            {"mask": lambda i, j: i - j},
            "returned torch.int64; expected torch.bool with True = may attend",
        ),
        (
            {"mask": lambda i, j: j.new_ones(5, 6, dtype=torch.bool)},
            r"\(5, 6\); expected broadcastable to",
        ),
        (
            {"position": lambda i, j: torch.zeros(4, 1, 1)},
            r"\(4, 1, 1\); expected broadcastable to \(H, T, S\)",
        ),
        (
            {"normalizer": lambda scores, mask: scores.sum(-1)},
            r"\(2, 3, 5\); expected \(B, H, T, S\)",
        ),
    ],
)
def test_what_a_function_returns_is_checked_when_it_runs(given, words):
    attention = layer(**given)
    with pytest.raises(ConfigError, match=words):
        attention(torch.randn(B, T, C), torch.randn(B, S, C))


def test_one_axis_has_one_choice():
    with pytest.raises(
        ConfigError, match="mask = causal is given, and the config has mask = padding"
    ):
        layer(config=AttentionConfig(C, H, mask="padding"), mask=causal)
    with pytest.raises(ConfigError, match="kernel = fused knows no score .*take kernel = exact"):
        layer(config=AttentionConfig(C, H, kernel="fused"), score=scaled_dot)


def test_a_layer_returns_steps_to_a_type_checker():
    """`make check` holds the first line; this test holds that it is so."""
    steps = assert_type(Attention(AttentionConfig(C, H))(torch.randn(B, T, C)), LayerSteps)
    assert isinstance(steps, Steps)
