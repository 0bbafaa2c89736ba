"""A layer that reads a text in parts, with a cache, gives what it gives for the whole text, and stores what it says."""

import random

import pytest
import torch

from core.attention import AXES, Attention, AttentionConfig, Cache, Choice, ConfigError, attend
from core.attention.basics import Softmax
from core.attention.config import example_config
from core.attention.kernels.exact import STATELESS, why_no_state
from core.attention.projections.low_rank import Latent
from core.models.transformer import causal_config
from tests.attention.drawing import ENTRIES, config_of, perturbed, read_in_parts
from tests.cases import each

B, T, C, H = 2, 11, 24, 3
STATES = [item.key for item in AXES["kernel"] if "state" in item.traits]


def decoder_layer(axis, key):
    return perturbed(Attention(causal_config(config_of(axis, key)), add_positions=True).eval())


LEFT = torch.arange(T) >= torch.tensor([[0], [3]])  # the second text begins after three of padding


@each(("padded", "record"), [(False, False), (True, False), (True, True)])
@each(("axis", "key"), ENTRIES)
def test_parts_give_what_the_whole_texts_give(axis, key, padded, record):
    layer, x, real = decoder_layer(axis, key), torch.randn(B, T, C), LEFT if padded else None
    in_parts, cache = read_in_parts(layer, x, key_mask=real, record=record)
    whole, seen = layer(x, key_mask=real, record=record).merged, LEFT | (not padded)
    torch.testing.assert_close(in_parts[seen], whole[seen], rtol=1e-4, atol=2e-5)
    assert cache.length == T and (torch.equal(cache.real, LEFT) if padded else cache.real is None)
    if padded:
        x[~seen] = torch.nan
        torch.testing.assert_close(
            read_in_parts(layer, x, key_mask=real, record=record)[0][seen],
            whole[seen],
            rtol=1e-4,
            atol=2e-5,
        )


@each("key", STATES)
@each(
    "beside",
    [
        {},
        {"position": "rope"},
        {"projection": "latent"},
        {"projection": "gated", "position": "learned"},
        {"projection": Choice.of("grouped_query", kv_heads=1)},
        {"score": "cosine"},
    ],
)
def test_a_state_gives_what_the_whole_text_gives_in_any_parts(key, beside):
    """Random parts of 1 to 13 of 37 tokens, chunks of 8: the state is all that is stored, and its size stays."""
    config = AttentionConfig(C, H, kernel=Choice.of(key, chunk=8), mask="causal", **beside)
    layer, x = Attention(config, add_positions=True).eval(), torch.randn(B, 37, C)
    lots = random.Random(key)
    whole, numbers = layer(x, record=False).merged, layer.step(x[:, :1])[1].numbers
    for _ in range(4):
        parts = [37]
        while parts[0] > 13:
            parts[:1] = (parts[0] - (last := lots.randint(1, 13)), last)
        in_parts, cache = read_in_parts(layer, x, parts)
        torch.testing.assert_close(in_parts, whole, rtol=1e-4, atol=2e-5)
        assert (
            cache.heads == ()
            and cache.inputs is None
            and cache.numbers == numbers == cache.state[0].numel()
        )


@each("key", STATES)
def test_a_state_grows_with_nothing_and_takes_no_step_without_a_token(key):
    layer = Attention(AttentionConfig(C, H, kernel=key, mask="causal")).eval()
    width = {"linear": 8 * 9, "performer": 128 * 9}.get(
        key, 8 * 8
    )  # features × (value and 1), else key × value
    sizes = [layer.step(torch.randn(1, length, C))[1].numbers for length in (1, 7, 300)]
    assert sizes == [H * width] * 3
    _, cache = layer.step(torch.randn(B, 5, C))
    _, same = layer.step(torch.randn(B, 0, C), cache)
    assert same.length == 5 and torch.equal(same.state, cache.state)


def test_each_kernel_carries_a_state_or_says_why_not():
    reasons = {
        item.key: why_no_state(
            example_config("kernel", item.key, C, 3).with_(mask=Choice("causal"))
        )
        for item in AXES["kernel"]
        if item.key not in ("linformer", "nystrom")
    }
    assert (sorted(key for key, reason in reasons.items() if reason is None), set(STATELESS)) == (
        sorted(STATES),
        {item.key for item in AXES["kernel"] if not item.traits & {"state", "same"}},
    )
    assert "grows" in reasons["log_linear"] and "each key by itself" in reasons["exact"]


def test_a_state_is_not_carried_where_its_keys_may_change():
    """NTK rotates them again as the text grows; without a causal mask a token sees later ones."""
    x = torch.randn(B, T, C)
    ntk = Choice.of("ntk_rope", original=32)
    for other, word in ({"position": ntk, "mask": "causal"}, "rotates"), ({}, "later ones"):
        config = AttentionConfig(C, H, kernel="linear").with_(**other)
        cache = read_in_parts(Attention(config), x)[1]
        assert (
            word in why_no_state(config) and cache.state is None and cache.heads[0].shape[-2] == T
        )


def test_recorded_steps_keep_the_keys_and_a_state_cannot_be_recorded_after():
    layer, x = (
        Attention(AttentionConfig(C, H, kernel="gated_delta", mask="causal")).eval(),
        torch.randn(B, T, C),
    )
    first, cache = layer.step(x[:, :6], record=True)
    later, _ = layer.step(x[:, 6:], cache, record=True)
    torch.testing.assert_close(
        (later.weights, layer.step(x[:, 6:], cache)[0].merged),
        (layer(x).weights[:, :, 6:], later.merged),
    )
    with pytest.raises(ValueError, match="record from the first"):
        layer.step(x[:, 6:], layer.step(x[:, :6])[1], record=True)


def test_a_linear_state_by_hand():
    """elu + 1 of keys 1 and 2 is 2 and 3: the state is 2·1 + 3·2 = 8 of values and 2 + 3 = 5 of weights."""
    layer = Attention(
        AttentionConfig(1, 1, projection="identity", score="dot", kernel="linear", mask="causal")
    )
    _, cache = layer.step(torch.tensor([[[1.0]]]))
    second, cache = layer.step(torch.tensor([[[2.0]]]), cache)
    assert cache.state.flatten().tolist() == [8.0, 5.0] and second.merged.item() == pytest.approx(
        8 / 5
    )


@pytest.mark.parametrize("query_latent", [0, 10])
def test_absorbed_latents_give_the_output_and_the_gradients_of_the_expanded_ones(query_latent):
    """Latents of 5 numbers, smaller than a head of 8, in fp64: W_uk moves to the query, W_uv to the output."""
    projection = Choice.of("latent", latent=5, rope=4, query_latent=query_latent)
    layer = Attention(AttentionConfig(C, H, projection=projection, mask="causal")).double()
    x = torch.randn(B, T, C, dtype=torch.float64)
    assert isinstance(layer.projection, Latent) and layer.projection.absorbs
    steps, _ = layer.step(x)
    assert steps.v.shape == (B, H, T, 5 + 4), (
        "every head reads what is stored, the latents with their shared key"
    )
    results = []
    for out in (read_in_parts(layer, x)[0], layer(x).merged):
        layer.zero_grad()
        out.square().sum().backward()
        results.append([out, *(weight.grad.clone() for weight in layer.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_latents_are_expanded_where_the_score_or_the_position_reads_heads():
    for other in ({"score": "cosine"}, {"position": "shaw"}):
        assert not Attention(
            AttentionConfig(C, H, projection="latent").with_(**other)
        ).projection.absorbs


@each("score", ["scaled_dot", "qk_norm"])
def test_keys_are_stored_as_they_are_once_rotated_unless_their_angles_change(score):
    x, ntk = torch.randn(B, T, C), Choice.of("ntk_rope", original=32)
    for position, rotated in (("rope", True), (ntk, False)):
        layer = Attention(
            AttentionConfig(C, H, score=score, position=position, mask="causal")
        ).eval()
        stored, whole = read_in_parts(layer, x)[1].heads[0], layer(x)
        torch.testing.assert_close(
            stored, whole.k if rotated else layer.projection(x, x)[1], rtol=1e-4, atol=1e-5
        )


def test_a_layer_that_takes_keys_takes_them_normed_and_rotated():
    """As the shared keys of Gemma 3n; it has no norm for keys of its own, and a token alone gives the same."""
    config = AttentionConfig(C, H, score="qk_norm", position="rope", mask="causal")
    source, taker, x = Attention(config), Attention(config, takes_kv=True), torch.randn(B, T, C)
    torch.nn.init.uniform_(source.score.key.weight, 0.5, 1.5)
    assert not any("key" in name for name, _ in taker.named_parameters())
    _, cache = source.step(x)
    steps, own = taker.step(x, record=True, kv=cache.heads)
    torch.testing.assert_close(steps.k, source(x).k)
    last, _ = taker.step(
        x[:, -1:], taker.step(x[:, :-1], kv=source.step(x[:, :-1])[1].heads)[1], kv=cache.heads
    )
    torch.testing.assert_close(last.merged, steps.merged[:, -1:])
    assert own.heads == ()


@each("kv_heads", [1, 2, 3, 6])
def test_one_token_reads_the_heads_of_keys_without_repeating_them(kv_heads):
    layer = Attention(
        AttentionConfig(
            C, 6, Choice.of("grouped_query", kv_heads=kv_heads), position="rope", mask="causal"
        )
    ).eval()
    x = torch.randn(B, T, C)
    steps, _ = layer.step(x[:, -1:], layer.step(x[:, :-1])[1])
    assert steps.k.shape == (B, kv_heads, T, C // 6) and steps.mask is None
    torch.testing.assert_close(steps.merged, layer(x).merged[:, -1:], rtol=1e-4, atol=1e-5)


def test_two_tokens_by_hand():
    """x itself as q, k and v: the second token weighs 1 and 2 by e^(1/√1·2·1) and e^(2·2)."""
    layer = Attention(AttentionConfig(1, 1, projection="identity", mask="causal"))
    first, cache = layer.step(torch.tensor([[[1.0]]]))
    second, cache = layer.step(torch.tensor([[[2.0]]]), cache)
    assert (first.merged.item(), second.merged.item()) == (
        1.0,
        pytest.approx((1 * 7.389056 + 2 * 54.59815) / (7.389056 + 54.59815), abs=1e-6),
    )
    assert isinstance(cache, Cache) and cache.heads[0].flatten().tolist() == [1.0, 2.0]


def test_the_last_token_sees_all_keys_of_a_causal_mask_without_a_mask_and_not_those_of_a_window():
    x = torch.randn(B, T, C)
    for mask, plain_rows in (("causal", True), (Choice.of("causal_local", lookback=3), False)):
        layer = Attention(AttentionConfig(C, H, mask=mask, projection="multi_query")).eval()
        steps, _ = layer.step(x[:, -1:], layer.step(x[:, :-1])[1])
        assert (steps.mask is None) == plain_rows
        torch.testing.assert_close(steps.merged, layer(x).merged[:, -1:], rtol=1e-4, atol=1e-6)


WHOLE = torch.ones(B, T, dtype=torch.bool)
UNUSED = {"context": torch.ones(B, T, C), "mask": WHOLE[:1], "offset": 3}


@each("record", [True, False])
@each("key", [item.key for item in AXES["kernel"] if item.key not in ("linformer", "nystrom")])
@each("name", UNUSED)
def test_what_a_step_would_not_use_is_refused(name, key, record):
    layer = Attention(example_config("kernel", key, C, 3).with_(mask=Choice("causal"))).eval()
    x = torch.randn(B, T, C)
    for cache in (Cache(), layer.step(x, record=record)[1]):
        with pytest.raises(ValueError, match=name):
            layer(x, cache=cache, record=record, **{name: UNUSED[name]})  # type: ignore[call-overload]
    layer(x, cache=cache, record=record, offset=T)


@each("change", [{"position": "selective"}, {"kernel": "linear"}])
def test_keys_that_a_step_would_not_use_are_refused(change):
    layer = Attention(AttentionConfig(C, H, mask="causal", **change))
    with pytest.raises(ValueError, match="kv"):
        layer.step(torch.randn(B, T, C), kv=(torch.randn(B, H, T, C // H),) * 2)


ARGUMENTS = {
    "mask": torch.arange(T) < 4,
    "scale": 2.0,
    "temperature": 3.0,
    "bias": torch.randn(H, T, T),
    "dropout": 0.5,
    "normalizer": Softmax(2.0),
}


@each("beside", [{}, {"temperature": 2.0}, {"normalizer": Softmax()}])
@each("kernel", [item.key for item in AXES["kernel"]])
@each("name", ARGUMENTS)
def test_each_argument_of_attend_counts_or_is_refused(name, kernel, beside):
    q, k, v = torch.randn(3, B, H, T, 8)
    try:
        with_it = attend(q, k, v, kernel=kernel, **beside | {name: ARGUMENTS[name]}).out
        without = attend(
            q, k, v, kernel=kernel, **{key: value for key, value in beside.items() if key != name}
        ).out
    except ConfigError:
        return
    assert not torch.allclose(with_it, without)
