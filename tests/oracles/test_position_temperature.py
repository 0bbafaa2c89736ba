"""The temperature by position against the layers of Llama 4 without rotation, whole, and by hand."""

import math

import torch
from transformers import Llama4TextConfig
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention

from core.attention import Attention, AttentionConfig, Choice
from core.attention.positions.contextual import PositionTemperature
from tests.cases import each
from tests.oracles.places import agree, cells, share

B, T, H, G, D = 2, 13, 6, 3, 10
C = H * D


@each(("growth", "step"), [(0.1, 1), (0.7, 4), (0.1, 8192)])
def test_a_whole_layer_is_llama_4s(growth, step):
    """Three heads of keys and values; a random mask, in which every query sees its own token."""
    config = Llama4TextConfig(
        hidden_size=C,
        num_attention_heads=H,
        num_key_value_heads=G,
        head_dim=D,
        num_hidden_layers=1,
        no_rope_layers=[0],
        attn_temperature_tuning=True,
        floor_scale=step,
        attn_scale=growth,
        attention_bias=False,
        attn_implementation="eager",
    )
    theirs = Llama4TextAttention(config, layer_idx=0).eval()
    assert not theirs.use_rope
    layer = Attention(
        AttentionConfig(
            C,
            H,
            Choice.of("grouped_query", kv_heads=G, bias=False),
            position=Choice.of("position_temperature", growth=growth, step=step),
        )
    ).eval()
    names = (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "o_proj"))
    pairs = [
        (getattr(layer.projection, one).weight, getattr(theirs, other).weight)
        for one, other in names
    ]
    share(*pairs)
    x, mask = (
        torch.randn(B, T, C, requires_grad=True),
        (torch.rand(B, 1, T, T) > 0.4) | torch.eye(T, dtype=torch.bool),
    )
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    out, weights = theirs(x, None, added)
    steps = layer(x, mask=mask)
    torch.testing.assert_close(steps.weights, weights, rtol=1e-4, atol=1e-5)
    agree(steps.merged, out, (x, x), *pairs)


def test_by_hand():
    """a = 1/2, n = 2: queries 0, 1 … 4 have 0, 1, 1, 2 and 2 whole steps behind them and their own position."""
    scores = torch.ones(1, 1, 5, 3)
    q, k = torch.zeros(1, 1, 5, 1), torch.zeros(1, 1, 3, 1)
    factors = [1 + math.log(1 + steps) / 2 for steps in (0, 1, 1, 2, 2)]
    result = PositionTemperature(0.5, 2).adjust(scores, cells(q, k))
    torch.testing.assert_close(result[0, 0], torch.tensor(factors)[:, None].expand(5, 3))
