"""Greedy decoding: batched as alone, ending at EOS, capped, and refusing what does not fit."""

from typing import Any

import pytest
import torch

from core.models import ModelConfig, Shape, build_model
from core.models.decoding import greedy
from tests.cases import each

MODELS = {
    "transformer": ModelConfig.transformer(12, 3, position="rope"),
    "gru": ModelConfig.recurrent(10, "dot"),
    "none": ModelConfig.recurrent(10, None, cell="lstm"),
}
BOS, EOS, PAD = 1, 2, 0


def made(config):
    torch.manual_seed(3)
    model: Any = build_model(config, Shape(13, 11, 40))
    torch.nn.init.normal_(
        model.output.weight, std=2.0
    )  # decided enough for argmax to be the same however batched
    mask = torch.arange(6) < torch.tensor([6, 1, 4])[:, None]
    return model, torch.randint(4, 13, (3, 6)).masked_fill(~mask, PAD), mask


@each("config", MODELS.values())
def test_greedy_is_the_argmax_of_each_prefix(config):
    model, source, mask = made(config)
    output = greedy(model, source, mask)
    assert output.shape[1] <= 2 * 6 + 2
    ended = torch.zeros(3, dtype=torch.bool)
    fed = torch.full((3, 1), BOS)
    for t in range(output.shape[1]):
        best = model.eval()(source, mask, fed).logits[:, -1].argmax(-1)
        assert torch.equal(output[:, t], best.masked_fill(ended, PAD))
        ended |= (output[:, t] == EOS) | (t + 1 >= 2 * mask.sum(1) + 2)
        fed = torch.cat((fed, output[:, t : t + 1]), dim=1)


@each("config", MODELS.values())
def test_a_row_is_decoded_as_if_alone(config):
    model, source, mask = made(config)
    together = greedy(model, source, mask, max_length=9)
    for row, n in enumerate((6, 1, 4)):
        alone = greedy(model, source[row : row + 1, :n], mask[row : row + 1, :n], max_length=9)[0]
        assert torch.equal(alone, together[row, : len(alone)])
        assert (together[row, len(alone) :] == PAD).all()


def test_all_rows_that_end_stop_at_once():
    model, source, mask = made(MODELS["gru"])
    torch.nn.init.zeros_(model.output.weight)
    with torch.no_grad():
        model.output.bias.copy_(torch.eye(11)[EOS])
    assert greedy(model, source, mask).tolist() == [[EOS]] * 3


def test_the_cap_holds_and_training_mode_comes_back():
    model, source, mask = made(ModelConfig.recurrent(10, "dot", dropout=0.5))
    with torch.no_grad():
        model.output.bias[EOS] = -1e4
    model.train()
    first, second = greedy(model, source, mask), greedy(model, source, mask)
    assert first.shape == (3, 14)
    assert (first != PAD).sum(1).tolist() == [14, 4, 10], "twice its own source and two more"
    assert torch.equal(first, second), "no dropout while decoding"
    assert model.training
    assert greedy(model, source, mask, max_length=5).shape == (3, 5)


def test_sizes_that_do_not_fit_are_said():
    model, source, mask = made(MODELS["gru"])
    with pytest.raises(ValueError, match="both"):
        greedy(model, source, mask[:, :5])
    with pytest.raises(ValueError, match="max_length = 0"):
        greedy(model, source, mask, max_length=0)


def test_a_target_much_longer_than_its_source_is_not_cut():
    model, source, mask = made(MODELS["gru"])
    with torch.no_grad():
        model.output.bias[EOS] = -1e4  # it never ends
    long = greedy(model, source, mask, max_length=30)
    assert long.shape == (3, 30) and (long != PAD).all(), "the cap alone, not twice the source"
