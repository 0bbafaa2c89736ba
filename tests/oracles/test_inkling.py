"""What Inkling 1 and 2 choose in attention, against their modules in transformers and by hand."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.models.inkling import modeling_inkling as first
from transformers.models.inkling2 import modeling_inkling2 as second

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from core.attention.positions.relative import RelativeLogits
from tests.attention.drawing import perturbed, read_in_parts
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, by_name, cells, put, same_layer

B, T, S, C, H, R = 2, 7, 11, 24, 3, 5


# Relative logits: a bias from the query's token and the distance.


@each("distance", [1, 4, 64])
@each("offset", [0, 4])
@each("clip", [0.0, 1.5])
def test_relative_logits_are_inklings(clip, offset, distance):
    # Keys after their queries, in reach, and too far; a clip that shortens some of the mixing vectors and not others.
    position = perturbed(RelativeLogits(C, H, R, distance, clip)).double()
    x, memory = (torch.randn(B, n, C, dtype=torch.float64, requires_grad=True) for n in (T, S))
    q, k = torch.zeros(B, H, T, 1, dtype=torch.float64), torch.zeros(B, H, S, 1)
    i, j = torch.arange(offset, offset + T), torch.arange(S)
    if clip:
        config = second.Inkling2TextConfig(
            hidden_size=C, d_rel=R, rel_l2_clip_threshold=clip * math.sqrt(R)
        )
        peer = second.Inkling2RelativePositionBias(config, H, distance, log_scaling=False).double()
        names = {
            "linear.weight": position.mix.weight,
            "proj": position.profiles,
            "norm.scale": position.gain[:, 0],
        }
        given = (x, i[:, None] - j, i[None])
        lengths = (position.mix(x).unflatten(-1, (H, R)) * position.gain[:, 0]).norm(dim=-1)
        assert (lengths > clip * math.sqrt(R)).any() and (lengths < clip * math.sqrt(R)).any()
    else:
        peer = first.InklingRelativeLogits(R, distance).double()
        names = {"proj": position.profiles}
        given = (position.mix(x).unflatten(-1, (H, R)), i, j)
    theirs = torch.func.functional_call(peer, names, given)
    ours = position.bias(cells(q, k, offset, x=x, context=memory))
    agree(ours, theirs, (x, *position.parameters()), rel=1e-6)  # theirs clips in fp32


def test_relative_logits_by_hand():
    # Profiles (1, 2, 3) and (10, 20, 30) over the distances 0, 1, 2; token i mixes them as (i, 1); 0 from
    # distance 3 on. Clipped to 1, (3, 4) of length 5 becomes (3, 4) · √2 / 5.
    position = RelativeLogits(2, 1, 2, 3, 0.0)
    put((position.mix.weight, torch.eye(2)), (position.profiles, [[1.0, 2, 3], [10, 20, 30]]))
    x = torch.tensor([[[i, 1.0] for i in range(4)]])
    q = torch.zeros(1, 1, 4, 1)
    expected = torch.tensor([[10.0, 0, 0, 0], [22, 11, 0, 0], [36, 24, 12, 0], [0, 39, 26, 13]])
    assert_close(position.bias(cells(q, q, x=x, context=x))[0, 0], expected)
    clipped = RelativeLogits(2, 1, 2, 1, 1.0)
    put((clipped.mix.weight, torch.eye(2)), (clipped.profiles, [[1.0], [0.0]]))
    (states,) = clipped.tables(cells(q, q, x=torch.tensor([[[3.0, 4.0], [0.6, 0.8]]])))
    assert_close(
        states[0, 0], torch.tensor([[3.0, 4.0], [3.0, 4.0]]) * torch.tensor([[2**0.5 / 5], [0.2]])
    )


def test_relative_logits_store_no_token():
    # Only the query's own token is read, which a step is given: the cache is that of keys and values.
    layer = Attention(AttentionConfig(C, H, position="relative_logits", mask="causal"))
    _, cache = layer.step(torch.randn(B, T, C))
    assert cache.inputs is None and cache.numbers == T * 2 * C


# A sink that each query computes, and clipped queries and keys.


@each("record", [True, False])
def test_a_query_sink_is_inkling_2s(record):
    layer = perturbed(Attention(AttentionConfig(C, H, normalizer="query_sink"))).double()
    x, context = (torch.randn(B, n, C, dtype=torch.float64, requires_grad=True) for n in (T, S))
    real = torch.arange(S) < torch.tensor([[8], [5]])
    q, k, v = layer.projection(x, context)
    hidden = torch.zeros(B, 1, T, S, dtype=torch.float64).masked_fill(
        ~real[:, None, None], torch.finfo(torch.float64).min
    )
    module = SimpleNamespace(num_key_value_groups=1, training=False)
    sinks = layer.normalizer.level(x).mT.unsqueeze(-1)
    out, weights = second.eager_attention_forward(
        module, q, k, v, hidden, scaling=(C // H) ** -0.5, sinks=sinks
    )
    steps = layer(x, context, key_mask=real, record=record)
    if record:
        assert_close(steps.weights, weights, 1e-6)
    learned = (x, context, layer.normalizer.level.weight, layer.projection.value.weight)
    theirs = layer.projection.output(out.flatten(2))
    agree(steps.merged, theirs, learned, rel=1e-6)  # theirs normalizes in fp32


def test_a_query_sink_by_hand():
    # Two equal scores of 0 beside a sink of log 2 are e^0 / (2 + 2) = 1/4; beside one of log 6 they are 1/8.
    layer = Attention(AttentionConfig(2, 1, normalizer="query_sink", mask="causal"))
    p = layer.projection
    put((p.query.weight, 0.0), (p.key.weight, 0.0), (layer.normalizer.level.weight, [[1.0, 0.0]]))
    steps = layer(torch.tensor([[[0.0, 0.0], [math.log(2), 0.0], [math.log(6), 1.0]]]))
    third = 1 / 9
    expected = [[0.5, 0, 0], [0.25, 0.25, 0], [third, third, third]]
    assert_close(steps.weights[0, 0], torch.tensor(expected))
    with pytest.raises(ConfigError, match="query_sink reads x.*take.*normalizer = sink"):
        attend(steps.q, steps.k, steps.v, normalizer=layer.normalizer)


@each("largest", [0.5, 2.0])
def test_clipped_queries_and_keys_are_inkling_2s(largest):
    # Some vectors shorter than the bound, some longer.
    layer = perturbed(Attention(AttentionConfig(C, H, score=Choice.of("clipped", largest=largest))))
    layer, threshold = layer.double(), largest * math.sqrt(C // H)
    x, context = (
        torch.linspace(0.01, 3, n)[:, None] * torch.randn(B, n, C, dtype=torch.float64)
        for n in (T, S)
    )
    q, k, _ = layer.projection(x.requires_grad_(), context.requires_grad_())
    queries, keys = (
        second.Inkling2ScaledL2Clip(H, C // H, threshold),
        second.Inkling2L2Clip(threshold),
    )
    gains = {"scale": layer.score.gain[:, 0]}
    q = torch.func.functional_call(queries, gains, (q.transpose(1, 2),)).transpose(1, 2)
    assert (k.norm(dim=-1) > threshold).any() and (k.norm(dim=-1) < threshold).any()
    theirs = q @ keys(k).mT / math.sqrt(C // H)
    agree(layer(x, context).scores, theirs, (x, context, layer.score.gain), rel=1e-6)


# Convolutions of keys and values, then whole layers of Inkling 1 and 2.


CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "first": ("dynamic_conv", {"taps": "fixed", "scaled": False, "gate": False}),
    "window": ("dynamic_conv", {"taps": "fixed"}),
    "full": ("dynamic_conv", {}),
}
HEADS, GROUPS, SIZE, WINDOW = 6, 2, 4, 3


def layer_of(kind, **axes):
    """A layer of Inkling 1 with a window, or of Inkling 2 with one or to the whole text."""
    key, params = CHOICES[kind]
    first_one, mask = kind == "first", Choice.of("causal_local", lookback=WINDOW - 1)
    place = Choice.of("relative_logits", size=R, distance=4, clip=0.0 if first_one else 1.5)
    growth = Choice.of("position_temperature", growth=0.5, step=2, rule="smooth")
    config = AttentionConfig(
        C,
        HEADS,
        Choice.of(key, kv_heads=GROUPS, head_dim=SIZE, **params),
        "qk_norm" if first_one else Choice.of("clipped", largest=1.0),
        Choice.of("and", place, growth) if kind == "full" else place,
        "causal" if kind == "full" else mask,
        "softmax" if first_one else "query_sink",
    )
    return perturbed(Attention(config.with_(**axes)).eval())


def names_in(layer, kind):
    """Our weights by the names that they have in Inkling's layer."""
    p, rows = layer.projection, GROUPS * SIZE
    bias = layer.position.parts[0] if kind == "full" else layer.position
    taps = dict(zip("kv", p.taps.split(rows, dim=1), strict=True))
    flipped = {
        one: tap.flip(0).T[:, None] for one, tap in taps.items()
    }  # theirs begins with the oldest
    if kind == "first":
        return {
            **by_name(layer),
            "r_proj.weight": bias.mix.weight,
            "rel_logits_proj.proj": bias.profiles,
            "k_sconv.conv1d.weight": flipped["k"],
            "v_sconv.conv1d.weight": flipped["v"],
            "q_norm.weight": layer.score.query.weight * math.sqrt(SIZE),  # theirs divides by D
            "k_norm.weight": layer.score.key.weight,
        }
    names = by_name(layer, *(f"{one}_proj.linear" for one in "qkvo")) | {
        "o_proj.gate_proj.weight": p.gate.weight,
        "sink_proj.weight": layer.normalizer.level.weight,
        "q_proj.norm.scale": layer.score.gain[:, 0],
        "relative_position_bias.linear.weight": bias.mix.weight,
        "relative_position_bias.norm.scale": bias.gain[:, 0],
        "relative_position_bias.proj": bias.profiles,
    }
    if kind == "window":
        return names | {f"{one}_proj.sconv.conv1d.weight": flipped[one] for one in "kv"}
    mixes = dict(zip("kv", p.mix.weight.chunk(2), strict=True))
    return (
        names
        | {f"{one}_proj.sconv.static_weight": taps[one] for one in "kv"}
        | {f"{one}_proj.sconv.weight_proj.weight": mixes[one] for one in "kv"}
    )


@each("kind", CHOICES)
def test_a_layer_is_inklings(kind):
    # Grouped heads, a window, distances in reach and beyond, both clips, and the growth of scores from position 2 on.
    layer, module = layer_of(kind), first if kind == "first" else second
    sizes = {
        f"{prefix}{name}": value
        for prefix in ("", "swa_")
        for name, value in {
            "num_attention_heads": HEADS,
            "num_key_value_heads": GROUPS,
            "head_dim": SIZE,
        }.items()
    }
    given = (
        {}
        if kind == "first"
        else {
            "qk_l2_clip_threshold": math.sqrt(SIZE),
            "rel_l2_clip_threshold": 1.5 * math.sqrt(R),
            "log_scaling_n_floor": 2,
            "log_scaling_alpha": 0.5,
        }
    )
    config = getattr(module, "InklingTextConfig" if kind == "first" else "Inkling2TextConfig")(
        hidden_size=C,
        num_hidden_layers=1,
        d_rel=R,
        rel_extent=4,
        sliding_window_size=4,
        layer_types=["hybrid" if kind == "full" else "hybrid_sliding"],
        attn_implementation="eager",
        **sizes,
        **given,
    )
    kinds = {
        "first": "InklingAttention",
        "window": "Inkling2SlidingAttention",
        "full": "Inkling2FullAttention",
    }
    peer, x = getattr(module, kinds[kind])(config, 0).eval(), torch.randn(B, T, C)
    i = torch.arange(T)
    near = (i[:, None] >= i) & ((i[:, None] - i < WINDOW) | (kind == "full"))
    hidden = torch.zeros(1, 1, T, T).masked_fill(~near, torch.finfo(torch.float32).min)
    how: dict[str, Any] = {"attention_mask": hidden}
    if kind != "first":
        how |= {"position_ids": i[None], "relative_distance": i[:, None] - i}
    more = (x, x) if kind == "full" else ()
    same_layer(layer, peer, names_in(layer, kind), x, *more, **how)


def test_a_dynamic_convolution_by_hand():
    # One head of one number, x = (1, 2): the second key is 2 + (c₀ + d)·2 + (c₁ + d')·1 with c = (3, 4), d = 5x and
    # d' = 6x, thus 2 + 13·2 + 16·1 = 44; the first 1 + 8·1 = 9. Scaled, both are over √5, and values are 1.
    for scaled in (False, True):
        choice = Choice.of("dynamic_conv", width=2, scaled=scaled, gate=False)
        layer = Attention(AttentionConfig(1, 1, choice))
        p = layer.projection
        put((p.key.weight, 1.0), (p.value.weight, 1.0), (p.taps, [[3.0, 3.0], [4.0, 4.0]]))
        put((p.mix.weight, [[5.0], [6.0], [5.0], [6.0]]))
        steps = layer(torch.tensor([[[1.0], [2.0]]]))
        expected = torch.tensor([9.0, 44.0])
        assert_close(steps.k.flatten(), expected / math.sqrt(5 if scaled else 1))
        assert_close(steps.v.flatten(), torch.ones(2) if scaled else expected)


@each("kind", CHOICES)
def test_a_text_in_parts_is_the_whole_text(kind):
    # A prefill, then tokens one by one and together, with padding before one of the texts.
    layer, x = layer_of(kind), torch.randn(B, S, C)
    real = torch.arange(S) >= torch.tensor([[0], [3]])
    for key_mask in (None, real):
        out, cache = read_in_parts(layer, x, key_mask=key_mask)
        seen = real if key_mask is not None else real | True
        assert_close(out[seen], layer(x, key_mask=key_mask).merged[seen])
        held = 3 * 2 * GROUPS * SIZE  # the last rows of the convolution
        assert cache.numbers == S * layer.config.sizes.cache + held
