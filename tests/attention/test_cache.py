"""A layer that reads a text in parts, with a cache, gives what it gives for the whole text, and stores what it says."""

import pytest
import torch

from core.attention import AXES, Attention, AttentionConfig, Cache, Choice
from core.attention.compatible import config_with, needs
from core.attention.projections import Latent
from core.models.blocks import causal_config
from tests.attention.drawing import plain
from tests.cases import each

B, T, C, H = 2, 11, 24, 3
PARTS = (4, 1, 3, 1, 2)  # a prefill, and tokens that come alone or together
STORED = {"identity": C, "multi_head": 2 * C, "multi_query": 2 * C // H, "gated": 2 * C, "latent": 32 + 8}


def read_in_parts(layer, x):
    cache, outs = None, []
    for part in x.split(PARTS, dim=1):
        steps, cache = layer.step(part, cache)
        outs.append(steps.merged)
    return torch.cat(outs, 1), cache


@each(("axis", "key"), [(axis, item.key) for axis, entries in AXES.items() for item in entries])
def test_parts_give_what_the_whole_text_gives(axis, key):
    config = causal_config(config_with({axis: plain(axis, key)} | needs(axis, key), C, 3))
    layer = Attention(config, add_positions=True).eval()
    x = torch.randn(B, T, C)
    in_parts, cache = read_in_parts(layer, x)
    torch.testing.assert_close(in_parts, layer(x, record=False).merged, rtol=1e-4, atol=2e-5)
    assert cache.length == T


@each("key", STORED)
def test_the_cache_holds_the_numbers_of_its_projection(key):
    config = AttentionConfig(C, H, projection=key, mask="causal")
    _, cache = read_in_parts(Attention(config), torch.randn(B, T, C))
    assert cache.numbers == T * STORED[key] == T * config.sizes.cache


def test_a_position_that_reads_the_tokens_stores_them_too():
    config = AttentionConfig(C, H, position="forgetting", mask="causal")
    assert read_in_parts(Attention(config), torch.randn(B, T, C))[1].inputs.shape == (B, T, C)


@pytest.mark.parametrize("query_latent", [0, 10])
def test_absorbed_latents_give_the_output_and_the_gradients_of_the_expanded_ones(query_latent):
    """Latents of 5 numbers, smaller than a head of 8, in fp64: W_uk moves to the query, W_uv to the output."""
    projection = Choice.of("latent", latent=5, rope=4, query_latent=query_latent)
    layer = Attention(AttentionConfig(C, H, projection=projection, mask="causal")).double()
    x = torch.randn(B, T, C, dtype=torch.float64)
    assert isinstance(layer.projection, Latent) and layer.projection.absorbs
    steps, _ = layer.step(x)
    assert steps.v.shape == (B, H, T, 5), "every head reads the latents themselves"
    results = []
    for out in (read_in_parts(layer, x)[0], layer(x).merged):
        layer.zero_grad()
        out.square().sum().backward()
        results.append([out, *(weight.grad.clone() for weight in layer.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_latents_are_expanded_where_the_score_or_the_position_reads_heads():
    for other in ({"score": "cosine"}, {"position": "shaw"}):
        assert not Attention(AttentionConfig(C, H, projection="latent", **other)).projection.absorbs


def test_two_tokens_by_hand():
    """x itself as q, k and v: the second token weighs 1 and 2 by e^(1/√1·2·1) and e^(2·2)."""
    layer = Attention(AttentionConfig(1, 1, projection="identity", mask="causal"))
    first, cache = layer.step(torch.tensor([[[1.0]]]))
    second, cache = layer.step(torch.tensor([[[2.0]]]), cache)
    assert first.merged.item() == 1.0
    assert second.merged.item() == pytest.approx((1 * 7.389056 + 2 * 54.59815) / (7.389056 + 54.59815), abs=1e-6)
    assert isinstance(cache, Cache) and cache.heads[0].flatten().tolist() == [1.0, 2.0]
