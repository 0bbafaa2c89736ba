"""One weight, taken apart, is the model's own; what stands before the rotation is what the model rotated."""

import numpy as np
import pytest
import torch

from core.interpret.weight_breakdown import break_down_weight, find_layer, layer_attentions
from core.pretrained import PretrainedError, encode, read
from tests.cases import each
from tests.tiny_models import READABLE, given, plain, tiny

OPENED = tuple(name for name in READABLE if tiny(name).recordable)
ROTATED = (
    "llama",
    "mistral",
    "qwen3",
    "gemma2",
    "gemma3",
    "gpt_oss",
    "gpt_neox",
    "diffllama",
    "modernbert",
)


@each("family", OPENED)
def test_every_weight_that_is_made_is_the_model_s_own(family):
    layers = layer_attentions(tiny(family), given(family))
    trace = read(tiny(family), given(family)).trace
    assert len(layers) == len(trace.maps)
    for item in trace.maps:
        layer = find_layer(layers, item.kind, item.layer)
        for head, weights in enumerate(item.weights):
            for query in (0, len(weights) // 2, len(weights) - 1):
                made = break_down_weight(layer, head, query, query // 2)
                np.testing.assert_allclose(made.weights, weights[query], atol=1e-6)
                assert made.weight == pytest.approx(weights[query, query // 2], abs=1e-6)


@each("family", OPENED)
def test_each_step_leads_to_the_next(family):
    for layer in layer_attentions(tiny(family), given(family)):
        rows, columns = layer.q.shape[1], layer.k.shape[1]
        one = break_down_weight(layer, 1, rows - 1, columns // 3)
        assert one.dot == pytest.approx(float(one.q @ one.k), abs=1e-5)
        value = one.dot * one.scale + (one.bias or 0.0)
        if layer.softcap is not None:
            value = layer.softcap * np.tanh(value / layer.softcap)
            assert one.capped == pytest.approx(value, abs=1e-5)
        assert one.score == (pytest.approx(value, abs=1e-5) if one.allowed else -np.inf)
        above = np.exp(one.scores - one.scores.max())
        below = above.sum() + (0 if one.sink is None else np.exp(one.sink - one.scores.max()))
        np.testing.assert_allclose(one.weights, above / below, atol=1e-6)
        np.testing.assert_allclose(one.contribution, one.value * one.weight, atol=1e-7)


@each("family", ROTATED)
def test_before_rotation_is_what_the_layer_s_own_maps_made(family):
    """The states before the first layer, through its norm and its own W_Q and W_K: no rotation anywhere."""
    layer = layer_attentions(tiny(family), given(family))[0]
    batch, *_ = encode(tiny(family), given(family))
    model = plain(family)
    with torch.no_grad():
        x = model(**batch, output_hidden_states=True).hidden_states[0]
        q, k = _projected(family, model, x)
    torch.testing.assert_close(layer.unrotated_q, q, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(layer.unrotated_k, k, atol=2e-5, rtol=1e-5)
    assert not torch.allclose(layer.unrotated_q[:, 1:], layer.q[:, 1:], atol=1e-3)
    torch.testing.assert_close(
        layer.unrotated_q.norm(dim=-1) / layer.q.norm(dim=-1),
        torch.full(layer.q.shape[:2], float(layer.unrotated_q[0, 0].norm() / layer.q[0, 0].norm())),
    )


def _projected(family, model, x):
    def heads(values):
        return values[0].unflatten(-1, (-1, 8)).transpose(0, 1)

    if family == "gpt_neox":
        block = model.gpt_neox.layers[0]
        q, k, _ = (
            block.attention.query_key_value(block.input_layernorm(x))[0]
            .unflatten(-1, (-1, 24))
            .chunk(3, -1)
        )
        return q.transpose(0, 1), k.transpose(0, 1)
    if family == "modernbert":
        q, k, _ = model.model.layers[0].attn.Wqkv(x)[0].unflatten(-1, (3, -1, 8)).unbind(1)
        return q.transpose(0, 1), k.transpose(0, 1)
    block = model.model.layers[0]
    attention, x = block.self_attn, block.input_layernorm(x)
    q, k = heads(attention.q_proj(x)), heads(attention.k_proj(x))
    return (attention.q_norm(q), attention.k_norm(k)) if hasattr(attention, "q_norm") else (q, k)


@each("family", ["bert", "gpt2", "t5", "marian", "deepseek_v3"])
def test_what_is_not_rotated_or_only_in_part_shows_none(family):
    assert all(layer.unrotated_q is None for layer in layer_attentions(tiny(family), given(family)))


def test_shared_heads_are_named():
    layer = layer_attentions(tiny("llama"), given("llama"))[0]
    assert layer.kv_group(1) == (0, [0, 1, 2]) and layer.kv_group(5) == (1, [3, 4, 5])
    first, other = break_down_weight(layer, 1, 9, 4), break_down_weight(layer, 2, 9, 4)
    np.testing.assert_array_equal(first.k, other.k)
    assert not np.array_equal(first.q, other.q) and not np.array_equal(
        first.k, break_down_weight(layer, 3, 9, 4).k
    )


def test_a_position_bias_belongs_to_the_distance():
    first = layer_attentions(tiny("t5"), given("t5"))[0]
    near, far = break_down_weight(first, 1, 5, 4).bias, break_down_weight(first, 1, 9, 8).bias
    assert near == far != break_down_weight(first, 1, 9, 2).bias


def test_no_such_cell_is_said():
    layer = layer_attentions(tiny("bert"), given("bert"))[0]
    for head, query, key in ((3, 0, 0), (0, 20, 0), (0, 0, 20), (-1, 0, 0)):
        with pytest.raises(ValueError, match="3 heads, 20 queries and 20 keys"):
            break_down_weight(layer, head, query, key)


def test_a_family_that_cannot_be_opened_is_said():
    with pytest.raises(PretrainedError, match="not opened"):
        layer_attentions(tiny("bloom"), given("bloom"))
