"""Positions that read what is there: CoPE, forgetting, formulas, selective and multi-token attention, temperature."""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention
from transformers.models.llama4 import modeling_llama4 as llama4
from x_transformers.attend import Attend, selective_attn
from x_transformers.x_transformers import CoPE, DataDependentAlibi

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.positions.contextual import (
    Cope,
    Forgetting,
    MultiToken,
    PositionTemperature,
    Selective,
    Typed,
)
from tests.attention.drawing import perturbed
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, by_name, cells, layer_of, put, same_layer, twin

B, H, T, D = 2, 3, 11, 5
AHEAD = torch.ones(T, T, dtype=torch.bool).triu(1)
LEAST = -torch.finfo(torch.float32).max


def some(dtype=torch.float32):
    return torch.randn(2, B, H, T, D, dtype=dtype, requires_grad=True)


def scores_of(dtype=torch.float32):
    return torch.randn(B, H, T, T, dtype=dtype).mul(2).requires_grad_()


@each("places", [4, 64])
def test_cope_against_x_transformers(places):
    """With 4 places the count runs over the table's end; theirs reads scores whose future is masked already."""
    ours, peer, (q, k), scores = Cope(D, places), CoPE(D, H, places), some(), scores_of()
    put((ours.table, torch.randn_like(ours.table)))
    masked = scores.masked_fill(AHEAD, LEAST)
    theirs = torch.func.functional_call(peer, {"pos_emb": ours.table}, (q, masked))
    mine = ours.adjust(scores, cells(q, k)).masked_fill(AHEAD, -torch.inf)
    agree(mine.softmax(-1), (masked + theirs).softmax(-1), [q, scores, ours.table])


def test_cope_by_hand():
    """Scores of 0 open each gate by half: two keys count 1, three 1.5, between the vectors of places 1 and 2."""
    position, q = Cope(1, 3), torch.ones(1, 1, 3, 1)
    put((position.table, [[0.0], [10.0], [30.0]]))
    added = position.adjust(torch.zeros(1, 1, 3, 3), cells(q, q))[0, 0]
    torch.testing.assert_close(added, torch.tensor([[5.0, 0, 0], [10, 5, 0], [20, 10, 5]]))


def test_cope_counts_no_padding():
    position, q = Cope(1, 8), torch.ones(1, 1, 4, 1)
    put((position.table, torch.arange(8.0)[:, None]))
    padded = cells(q, q, key_mask=torch.tensor([[True, False, True, True]]))
    added = position.adjust(torch.zeros(1, 1, 4, 4), padded)[0, 0, 3]
    torch.testing.assert_close(added, torch.tensor([1.5, 1.0, 1.0, 0.5]))


def test_forgetting_against_x_transformers():
    """Their causal half: theirs leaves growing numbers after the query, which a causal mask takes away."""
    ours, peer = perturbed(Forgetting(12, H, 0.0)), DataDependentAlibi(12, H, causal=True)
    names = {f"to_forget_gates.0.{name}": w for name, w in ours.gate.named_parameters()}
    (q, k), x = some(), torch.randn(B, T, 12, requires_grad=True)
    mine = ours.bias(cells(q, k, x=x, context=x)).tril()
    agree(mine, torch.func.functional_call(peer, names, x).tril(), (x, *ours.parameters()))


def test_forgetting_is_its_recurrence():
    """What a query has kept of a key is its own gate times what the query before had kept; of itself it keeps all, and of
    what comes later it has forgotten as much."""
    position, x = Forgetting(12, H, 1.0).double(), torch.randn(B, T, 12, dtype=torch.float64)
    gates = position.gate(x).sigmoid().mT  # (B, H, T)
    decay = torch.eye(T, dtype=torch.float64).repeat(B, H, 1, 1)
    for i in range(1, T):
        decay[:, :, i] += gates[:, :, i, None] * decay[:, :, i - 1]
    bias = position.bias(cells(*some(torch.float64), x=x, context=x))
    torch.testing.assert_close(bias.exp().tril(), decay)
    torch.testing.assert_close(bias, bias.mT)


def test_forgetting_by_hand_and_what_it_needs():
    """Gates of ½ and equal scores: a causal row is 1, ⅓ ⅔, 1/7 2/7 4/7."""
    layer = layer_of("forgetting", 6, 1, mask="causal")
    put((layer.position.gate.weight, 0.0), (layer.projection.query.weight, 0.0))
    weights = layer(torch.randn(1, 3, 6)).weights[0, 0]
    want = torch.tensor([[1.0, 0, 0], [1 / 3, 2 / 3, 0], [1 / 7, 2 / 7, 4 / 7]])
    torch.testing.assert_close(weights, want)
    with pytest.raises(ConfigError, match="forgetting reads context.*alibi"):
        layer.position.bias(cells(*some()))


def test_a_formula_can_be_alibi():
    """Press's slopes for 8 heads, typed."""
    typed = layer_of("formula", 16, 8, formula="score - 2 ** -(h + 1) * abs(i - j)")
    alibi, x = twin(typed, position="alibi"), torch.randn(B, T, 16)
    (_, *ours), (_, *theirs) = ([x, *one.projection.parameters()] for one in (typed, alibi))
    agree(typed(x).merged, alibi(x).merged, ours, theirs)


def test_a_formula_against_flex_attention():
    """PyTorch's own way to say it: a function of the score and its place."""

    def rule(score, b, h, i, j):
        return torch.where(j > i, score * 0.5, torch.tanh(score) - (i - j) / (h + 1))

    (q, k), v = (x.detach() for x in some()), torch.randn(B, H, T, 7)
    typed = Typed("where(j > i, score * 0.5, tanh(score) - (i - j) / (h + 1))")
    scores = typed.adjust(q @ k.mT * D**-0.5, cells(q, k))
    theirs = flex_attention(q, k, v, score_mod=rule)
    torch.testing.assert_close(scores.softmax(-1) @ v, theirs, rtol=1e-5, atol=1e-5)


def test_a_formula_by_hand():
    layer = layer_of("formula", 4, 2, formula="0 * score + h + i - 10 * j + T")
    scores = layer(torch.randn(1, 2, 4), torch.randn(1, 3, 4), offset=5).scores[0]
    torch.testing.assert_close(scores[1], torch.tensor([[13.0, 3, -7], [14, 4, -6]]))


# Selective attention against x_transformers, and against a loop over the paper's sum under random key masks.


@each("keep_first", [True, False])
def test_selective_scores_are_x_transformers(keep_first):
    """Their function on causal scores; ours is given the scores before the mask."""
    scores = scores_of()
    theirs = selective_attn(scores.masked_fill(AHEAD, LEAST), no_mask_sos=keep_first)
    ours = Selective(keep_first).adjust(scores, cells(*some()))
    agree(ours.masked_fill(AHEAD, 0.0), theirs.masked_fill(AHEAD, 0.0), (scores,))


@each("padded", [False, True])
def test_a_whole_selective_layer_is_x_transformers(padded):
    """Attend with selective; padding at the end, of which theirs hides the keys."""
    layer = layer_of("selective", H * D, H, mask="causal")
    x = torch.randn(B, T, H * D, requires_grad=True)
    real = torch.arange(T) < torch.tensor([[T], [6 if padded else T]])
    q, k, v = layer.projection(x, x)
    out, _ = Attend(heads=H, causal=True, selective=True)(q, k, v, mask=real[:, None, None])
    rows = real[:, None, :, None]
    agree(layer.attend_heads(q, k, v, x, x, key_mask=real).out * rows, out * rows, (x,))


@each("keep_first", [True, False])
def test_random_padding_selects_nothing(keep_first):
    """The paper's sum, cell by cell; a query that is padding selects nothing."""
    scores, real = scores_of(torch.float64), torch.rand(B, T) > 0.4
    theirs = scores.clone()
    for b, i, j in ((b, i, j) for b in range(B) for i in range(T) for j in range(keep_first, T)):
        for m in (m for m in range(j + 1, i) if real[b, m]):
            theirs[b, :, i, j] = theirs[b, :, i, j] - scores[b, 0, m, j].clamp(min=0)
    ours = Selective(keep_first).adjust(scores, cells(*some(), key_mask=real))
    agree(ours, theirs, (scores,))


def test_selective_by_hand():
    """Key 1 is selected by query 2 with 3, and by query 3 with 1; the first head's own scores are lowered too."""
    rows = [[0.0, 0, 0, 0, 0], [9, 0, 0, 0, 0], [9, 3, 7, 0, 0], [9, 1, -2, 0, 0], [9, 5, 2, 6, 1]]
    both = torch.stack((torch.tensor(rows), torch.zeros(5, 5)))[None]
    where, lower = cells(*torch.zeros(2, 1, 2, 5, 1)), torch.zeros(5, 5)
    lower[3, 1], lower[4, 1] = 3, 3 + 1
    torch.testing.assert_close(Selective(True).adjust(both, where), both - lower)
    lower[2:, 0] = torch.tensor([9.0, 18, 27])
    torch.testing.assert_close(Selective(False).adjust(both, where), both - lower)


def test_a_selective_layer_decodes_with_the_votes_of_all_earlier_tokens():
    layer, x = layer_of("selective", H * D, H, mask="causal"), torch.randn(B, T, H * D)
    whole, (first, cache) = layer(x), layer.step(x[:, :6], record=True)
    rest, cache = layer.step(x[:, 6:], cache, record=True)
    torch.testing.assert_close(first.merged, whole.merged[:, :6])
    for name in ("merged", "out", "scores", "weights", "q"):
        assert_close(getattr(rest, name), getattr(whole, name)[..., 6:, :])
    assert cache.length == T and rest.mask.shape[-2] == T - 6


# Multi-token attention against a loop over the paper's sum under random key masks, and by hand.


def mixed(scores, theta, real):
    """The paper's sum, cell by cell, with θ of the query itself in its last row; a = 0 is that query."""
    queries, keys = theta.shape[2:]
    out, steps = torch.zeros_like(scores), [(a, c) for a in range(queries) for c in range(keys)]
    for b, i, j in ((b, i, j) for b in range(B) for i in range(T) for j in range(T)):
        for a, c in steps:
            query, key = i - a, j + c - keys // 2
            if query >= 0 and 0 <= key <= query and real[b, query] and real[b, key]:
                share = theta[:, 0, queries - 1 - a, c]
                out[b, :, i, j] = out[b, :, i, j] + share * scores[b, :, query, key]
    return out


@each(("queries", "keys"), [(1, 1), (3, 5), (6, 1), (1, 3), (12, 21)])
@each("padded", [False, True])
def test_mixed_scores_are_the_papers_sum(queries, keys, padded):
    scores, position = scores_of(torch.float64), MultiToken(H, queries, keys, 0.5).double()
    torch.nn.init.normal_(position.theta)
    real = torch.rand(B, T) > 0.4 if padded else torch.ones(B, T, dtype=torch.bool)
    ours = position.adjust(scores, cells(*some(), key_mask=real if padded else None))
    agree(ours, mixed(scores, position.theta, real), (scores, position.theta))


def test_mixed_scores_by_hand():
    """Two queries and three keys: the third query takes 10 times its own scores and once the row before, one key on."""
    position = MultiToken(1, 2, 3, 0.0)
    put((position.theta, [[0.0, 0, 1], [0, 10, 0]]))
    scores = torch.tensor([[1.0, 9, 9], [2, 3, 9], [4, 5, 6]])[None, None]
    got = position.adjust(scores, cells(*torch.zeros(2, 1, 1, 3, 1)))[0, 0]
    torch.testing.assert_close(got, torch.tensor([[10.0, 0, 0], [20, 30, 0], [40 + 3, 50, 60]]))


@each("keys", [1, 5])
def test_without_mixing_nothing_changes_and_a_share_of_the_mean_else(keys):
    scores = scores_of().tril()
    same = MultiToken(H, 4, keys, 0.0).adjust(scores, cells(*some()))
    torch.testing.assert_close(same, scores)
    shares = MultiToken(H, 4, keys, 0.3).theta.sum((2, 3)).flatten()
    assert shares.tolist() == pytest.approx([1.0] * H)


@each("beside", [(), (Choice("rope"),)])
def test_no_token_sees_a_later_one_and_a_cache_gives_the_whole(beside):
    own = Choice.of("multi_token", queries=3, keys=5)
    position = Choice.of("and", *beside, own) if beside else own
    layer = perturbed(Attention(AttentionConfig(24, H, position=position, mask="causal")).eval())
    x = torch.randn(B, T, 24, requires_grad=True)
    whole = layer(x)
    for i in range(T - 1):
        (felt,) = torch.autograd.grad(whole.merged[:, i].sum(), x, retain_graph=True)
        assert felt[:, i].any() and not felt[:, i + 1 :].any()
    first, cache = layer.step(x[:, :4])
    rest, _ = layer.step(x[:, 4:], cache, record=True)
    assert_close(torch.cat((first.merged, rest.merged), 1), whole.merged)
    assert_close(rest.weights, whole.weights[:, :, 4:])


# The temperature by position against the layers of Llama 4 without rotation, and by hand.


@each(("growth", "step"), [(0.1, 1), (0.7, 4), (0.1, 8192)])
def test_a_whole_layer_of_temperature_is_llama_4s(growth, step):
    """Three heads of keys and values; a random mask, in which every query sees its own token."""
    config = llama4.Llama4TextConfig(
        hidden_size=60,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=10,
        num_hidden_layers=1,
        no_rope_layers=[0],
        attn_temperature_tuning=True,
        floor_scale=step,
        attn_scale=growth,
        attention_bias=False,
        attn_implementation="eager",
    )
    peer = llama4.Llama4TextAttention(config, layer_idx=0).eval()
    assert not peer.use_rope
    position = Choice.of("position_temperature", growth=growth, step=step)
    projection = Choice.of("grouped_query", kv_heads=3, bias=False)
    layer = perturbed(Attention(AttentionConfig(60, 6, projection, position=position)).eval())
    mask = (torch.rand(B, 1, T, T) > 0.4) | torch.eye(T, dtype=torch.bool)
    added = torch.zeros(mask.shape).masked_fill(~mask, LEAST)
    same_layer(layer, peer, by_name(layer), torch.randn(B, T, 60), None, added, mask=mask)


def test_temperature_by_hand():
    """a = 1/2, n = 2: queries 0, 1 … 4 have 0, 1, 1, 2 and 2 whole steps behind them and their own position."""
    where = cells(torch.zeros(1, 1, 5, 1), torch.zeros(1, 1, 3, 1))
    factors = [1 + math.log(1 + steps) / 2 for steps in (0, 1, 1, 2, 2)]
    result = PositionTemperature(0.5, 2).adjust(torch.ones(1, 1, 5, 3), where)
    torch.testing.assert_close(result[0, 0], torch.tensor(factors)[:, None].expand(5, 3))
