"""The layer against the formula as a textbook writes it: outputs, weights and gradients."""

import torch

from core.attention import Attention, AttentionConfig, Choice, attend
from core.attention.positions.relative import alibi_slopes
from core.attention.reference import attention, rotate
from tests.cases import each

B, T, S, H, D = 3, 5, 7, 2, 6  # distinct, so that a matrix turned round does not fit


def tensors(bias):
    torch.manual_seed(0)
    config = AttentionConfig(
        H * D,
        H,
        projection=Choice.of("multi_head", bias=bias),
        position=Choice("rope"),
        mask=Choice("causal"),
    )
    layer = Attention(config).double()
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    x, context = (
        torch.randn(B, length, H * D, dtype=torch.float64, requires_grad=True) for length in (T, S)
    )
    key_mask = torch.arange(S)[None] < torch.tensor([S, 4, 1])[:, None]
    return layer, x, context, key_mask


def textbook(layer, x, context, mask, **more):
    maps = layer.projection
    return attention(x, context, maps.query, maps.key, maps.value, maps.output, H, mask, **more)


@each("bias", [True, False])
@each("record", [True, False])
def test_rotary_causal_attention_with_padding_is_the_textbooks(bias, record):
    layer, x, context, key_mask = tensors(bias)
    mask = (torch.arange(S)[None, :] <= torch.arange(T)[:, None]) & key_mask[:, None, None, :]
    out, weights = textbook(layer, x, context, mask)
    steps = layer(x, context, key_mask=key_mask, record=record)
    torch.testing.assert_close(steps.merged, out)
    if record:
        torch.testing.assert_close(steps.weights, weights)
    inputs, direction = (
        [x, context, *layer.parameters()],
        torch.randn(B, T, H * D, dtype=torch.float64),
    )
    ours, theirs = (
        torch.autograd.grad((each * direction).sum(), inputs) for each in (steps.merged, out)
    )
    for got, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, expected)


@each("record", [True, False])
def test_a_bias_on_the_scores_is_added_after_the_scale(record):
    layer, x, context, _ = tensors(True)
    alibi = Attention(layer.config.with_(position=Choice("alibi"))).double()
    alibi.load_state_dict(layer.state_dict())
    i, j = torch.arange(T)[:, None], torch.arange(S)[None, :]
    bias = -alibi_slopes(H)[:, None, None].double() * (i - j).abs()
    out, _ = textbook(layer, x, context, j <= i, bias=bias, rotary_base=None)
    torch.testing.assert_close(alibi(x, context, record=record).merged, out)


def test_attend_on_rotated_heads_is_the_same_formula():
    layer, x, context, key_mask = tensors(False)
    q, k, v = layer.projection(x, context)
    out, _ = textbook(layer, x, context, key_mask[:, None, None, :])
    steps = attend(rotate(q, 10000.0), rotate(k, 10000.0), v, key_mask[:, None, None, :])
    torch.testing.assert_close(layer.projection.merge(steps.out, x), out)
