"""What the kernels promise beside their oracles: worked cases, implied matrices, padding, causality, words, memory."""

import math
from operator import attrgetter

import pytest
import torch

from core.attention import AXES, Attention, AttentionConfig, Choice, ConfigError, attend, entry
from core.attention.cost import attention_cost, peak_bytes
from core.attention.kernels.approximate import orthogonal_gaussian
from core.attention.kernels.delta import Delta
from core.attention.kernels.implied import by_chunks
from core.attention.kernels.softmax import (
    blocks_seen,
    reach,
    touched_blocks,
)
from core.attention.masks import build_mask
from core.entries import Area
from tests.attention.drawing import builds
from tests.cases import each

B, H, T, C = 2, 3, 37, 24
IMPLIED = [e.key for e in AXES["kernel"] if "implied" in e.traits]
HALVED = ("gla", "kda", "gdn2", "rwkv7", "hgrn2", "rwkv6")  # whose decays choose the products
POOLED = [e.key for e in AXES["kernel"] if "pooled" in e.traits]
FLOAT = 4


def small(key):
    return Choice.of(key, **{"linformer": {"rank": 5}, "nystrom": {"landmarks": 6}}.get(key, {}))


def masks(key):
    return [
        mask for mask in ("none", "padding", "causal") if builds([("kernel", key), ("mask", mask)])
    ]


def test_the_worked_example_in_blocks_of_one():
    # The same weights [.140, .284, .576] as exact, whichever way the three keys are cut.
    q, k = torch.tensor([[[[1.0, 2]]]]), torch.tensor([[[[1.0, 0], [0, 1], [1, 1]]]])
    v, want = torch.tensor([[[[0.5, 0.3], [0.8, 0.2], [0.1, 0.9]]]]), torch.tensor([0.355, 0.617])
    for key in ("chunked", "local", "block_sparse"):
        layer = Attention(AttentionConfig(2, 1, "identity", kernel=Choice.of(key, block=1)))
        torch.testing.assert_close(
            layer.kernel(layer.kernel_inputs(q, k, v)).out.flatten(), want, rtol=0, atol=5e-4
        )


HALF = math.exp(0.5)


@each(
    ("kernel", "weights", "q", "k", "v", "want"),
    [
        # φ(x) = elu(x) + 1, so q = 1 → 2, k = 0, 1 → 1, 2: the weights are 1/3 and 2/3
        ("linear", {}, [1.0], [0.0, 1], [3.0, 9], [3 / 3 + 9 * 2 / 3]),
        # with one direction w = 1, D = 1: φ(x) = e^(x − x²/2), so keys 0 and 1 weigh 1 and e^(1/2)
        (
            Choice.of("performer", features=1),
            {"directions": 1.0},
            [0.3],
            [0.0, 1],
            [0.0, 1],
            [HALF / (1 + HALF)],
        ),
        # E mixes both keys into their sum 1, F both values into their mean 2: one mixed key takes all the weight
        (
            Choice.of("linformer", rank=1, max_len=2),
            {"to_key": 1.0, "to_value": 0.5},
            [5.0],
            [0.0, 1],
            [1.0, 3],
            [2.0],
        ),
        # γ = 1 − 1/32: with all scores 1, the second output is v₂ + γ v₁
        ("retention", {}, [1.0, 1], [1.0, 1], [4.0, 3], [4.0, 3 + 4 * 31 / 32]),
        # all keys alike, β = 1/2: the state goes 0 → 2 → 4.5, as 2 is read, and half of 7 − 2 is written on it
        ("delta", {"write.weight": 0.0}, [1.0, -3], [2.0, 5], [4.0, 7], [2.0, -4.5]),
        # with β = 1 the state goes 0 → 4 → 7: what it held is replaced
        (
            Choice.of("delta", beta_max=2.0),
            {"write.weight": 0.0},
            [1.0, -3],
            [2.0, 5],
            [4.0, 7],
            [4.0, -7.0],
        ),
        # α = β = 1/2: the state goes 0 → 2 → 4, as 1/2 · 2 is read, and half of 7 − 1 is written on it
        (
            "gated_delta",
            {"write.weight": 0.0, "forget.weight": 0.0, "forget.bias": 0.0, "log_rate": 0.0},
            [1.0, -3],
            [2.0, 5],
            [4.0, 7],
            [2.0, -4.0],
        ),
        # Δ = log 2 and a = 1/2: the second output is log 2 · (1/2 · 4 + 6)
        # one head's slope is 2^(−8)
        (
            Choice.of("retention", decay="lightning"),
            {},
            [1.0, 1],
            [1.0, 1],
            [4.0, 3],
            [4.0, 3 + 4 * math.exp(-(2**-8))],
        ),
        # with τ = 2 the root of σ(0) = 1/2 is kept of the first value
        (
            Choice.of("gla", tau=2.0),
            {"forget.up.weight": 0.0, "forget.up.bias": 0.0},
            [1.0, 1],
            [1.0, 1],
            [4.0, 3],
            [4.0, 3 + 4 / math.sqrt(2)],
        ),
        # as gated_delta
        (
            "kda",
            {"write.weight": 0.0, "forget.up.weight": 0.0, "forget.up.bias": 0.0, "log_rate": 0.0},
            [1.0, -3],
            [2.0, 5],
            [4.0, 7],
            [2.0, -4.0],
        ),
        (
            "ssd",
            {"step.weight": 0.0, "step.bias": 0.0, "log_rate": 0.0},
            [1.0, 1],
            [2.0, 3],
            [2.0, 2],
            [4 * math.log(2), 8 * math.log(2)],
        ),
    ],
)
def test_worked_by_hand(kernel, weights, q, k, v, want):
    # One head of one dimension, without a scale (score = dot).
    layer = Attention(AttentionConfig(1, 1, "identity", "dot", kernel=kernel))
    for name, value in weights.items():
        attrgetter(name)(layer.kernel).detach().fill_(value)
    q, k, v = (torch.tensor(x).reshape(1, 1, -1, 1) for x in (q, k, v))
    out = layer.kernel(layer.kernel_inputs(q, k, v, context=torch.zeros(1, k.shape[2], 1))).out
    torch.testing.assert_close(out.flatten(), torch.tensor(want), rtol=1e-4, atol=1e-5)


def test_nystrom_of_constant_stretches_is_exact():
    # Landmarks that equal their stretches lose nothing: the low-rank form is the softmax itself.
    layer = Attention(
        AttentionConfig(4, 1, "identity", kernel=Choice.of("nystrom", landmarks=2, rounds=30))
    )
    two = torch.tensor([[[[1.0, 0, 2, 0], [0, 1.0, 0, -1]]]]).repeat_interleave(3, dim=2)
    v = torch.randn(1, 1, 6, 4)
    torch.testing.assert_close(
        layer.kernel(layer.kernel_inputs(two, two, v)).out, attend(two, two, v).out
    )


def test_the_gated_delta_rule_overwrites_what_its_key_held():
    # With α = β = 1 a key written twice holds its second value alone, and another key's value stays.
    k, v = torch.eye(2)[[0, 1, 0]][None, None], torch.tensor([4.0, 3.0, 9.0]).reshape(1, 1, 3, 1)
    out, _ = by_chunks(
        Delta.rule,
        torch.eye(2)[[0, 0, 0, 1]][None, None],
        k,
        v,
        (torch.zeros(1, 1, 3, 1), torch.ones(1, 1, 3, 1)),
        2,
    )
    assert out.flatten().tolist() == [4, 4, 9, 3]


@each("key", [e.key for e in AXES["kernel"] if "layer only" in e.traits])
def test_kernel_with_weights_needs_layer_and_what_it_reads(key):
    (q, k, v), context = torch.randn(3, 1, H, T, C // H), torch.randn(1, T, C)
    pytest.raises(ConfigError, attend, q, k, v, kernel=key).match(
        f"kernel = {key} has .* of its own; take Attention"
    )
    if key in ("performer", "linformer", "retention"):
        return  # they read nothing but q, k and v
    layer, late = (
        Attention(AttentionConfig(C, H, kernel=key)),
        key in ("nsa", "log_linear", *POOLED),
    )
    pytest.raises(
        ConfigError, layer.kernel, layer.kernel_inputs(q, k, v, context=context if late else None)
    ).match(f"{key} reads {'x' if late else 'context'}, which is not given here")


def test_a_hidden_key_leaves_the_state_as_it_is():
    layer = Attention(AttentionConfig(C, H, kernel="gated_delta"))
    x, real = torch.randn(1, T, C), torch.ones(1, T, dtype=torch.bool)
    real[:, 9:14] = False
    alone = layer(x[real][None]).merged
    together = layer(x, x.masked_fill(~real[..., None], torch.nan), key_mask=real).merged
    torch.testing.assert_close(together[real][None], alone, rtol=1e-4, atol=1e-5)
    together.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in layer.kernel.parameters())


@each(
    ("key", "mask"),
    [
        (key, mask)
        for key in IMPLIED
        for mask in (*masks(key), Choice.of("and", *map(Choice, masks(key))))
    ],
)
def test_the_implied_matrix_is_what_the_output_amounts_to(key, mask):
    layer = Attention(AttentionConfig(C, H, mask=mask, kernel=small(key))).double()
    x, real = (
        torch.randn(B, T, C, dtype=torch.float64),
        torch.arange(T) < torch.tensor([[11], [30]]),
    )
    steps = layer(x, key_mask=real)
    assert steps.implied and steps.weights.shape == (B, H, T, T)
    torch.testing.assert_close(steps.weights @ steps.v, steps.out)
    torch.testing.assert_close(steps.out[1:, :, :30], layer(x[1:, :30], key_mask=real[1:, :30]).out)
    assert (
        not steps.weights.masked_select(~steps.mask).any()
        and layer(x, key_mask=real, record=False).weights is None
    )


@each("key", [key for key in [*IMPLIED, *POOLED] if "causal" in masks(key)])
def test_a_later_input_changes_no_earlier_output(key):
    layer, x = (
        Attention(AttentionConfig(C, H, mask="causal", kernel=small(key))),
        torch.randn(1, T, C),
    )
    other = x.clone()
    other[:, 20:] = 30 * torch.randn(1, T - 20, C)
    rounding = {"rtol": 1e-4, "atol": 1e-5} if key in HALVED else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(layer(other).merged[:, :20], layer(x).merged[:, :20], **rounding)


def test_more_random_features_come_closer():
    # The error of the weights falls as 1/√R: 64 × the features, about an eighth of it (8 draws each).
    x = torch.randn(1, 50, 64) * 0.3

    def error(features):
        wrong = []
        for seed in range(8):
            config = AttentionConfig(
                64, 4, "identity", kernel=Choice.of("performer", features=features, seed=seed)
            )
            wrong.append(
                Attention(config)(x).weights - Attention(config.with_(kernel="exact"))(x).weights
            )
        return torch.stack(wrong).square().mean().sqrt().item()

    assert 5 < error(32) / error(2048) < 11


def test_the_random_directions_are_orthogonal():
    drawn = orthogonal_gaussian(4000, 8, seed=1)
    squares = drawn[:8] @ drawn[:8].T
    torch.testing.assert_close(squares, squares.diagonal().diag(), rtol=0, atol=1e-5)
    # χ² with 8 degrees of freedom: mean 8, spread 4
    assert drawn.square().sum(1).mean() == pytest.approx(8, rel=0.05)
    assert drawn.square().sum(1).std() == pytest.approx(4, rel=0.1)
    assert torch.equal(drawn, orthogonal_gaussian(4000, 8, seed=1))


@each("key", IMPLIED)
@each(
    "axes",
    [
        {"normalizer": "sparsemax"},
        {"score": "additive"},
        {"position": "alibi"},
        {"mask": "local"},
        {"projection": "differential"},
        {"dropout": 0.1},
    ],
)
def test_what_a_matrix_is_needed_for_is_refused_in_words(key, axes):
    axis, value = next(iter(axes.items()))
    with pytest.raises(ConfigError) as error:
        AttentionConfig(C, 2, kernel=key, **axes)
    text = str(error.value)
    assert f"kernel = {key}" in text and f"{axis} = {value}" in text and "take" in text


@each("key", IMPLIED)
@each("hides", [(T, T), (1, H, 1, T), (1, 1, T, T)])
def test_what_comes_with_a_call_is_honoured_or_refused(key, hides):
    layer, x = Attention(AttentionConfig(C, H, kernel=small(key))), torch.randn(1, T, C)
    pytest.raises(ConfigError, layer, x, mask=torch.ones(hides, dtype=torch.bool)).match(
        f"kernel = {key} computes no scores"
    )
    keys = torch.arange(T)[None] < 20
    torch.testing.assert_close(layer(x, mask=keys[:, None, None]).out, layer(x, key_mask=keys).out)


def test_linformer_says_how_long_it_is():
    layer = Attention(AttentionConfig(C, H, kernel=Choice.of("linformer", max_len=8)))
    pytest.raises(ConfigError, layer, torch.randn(1, 9, C)).match(
        "max_len = 8, but there are 9 keys; take max_len ≥ 9"
    )


def test_the_reach_of_a_composed_mask():
    local, back = Choice.of("local", window=3), Choice.of("causal_local", lookback=5)
    assert (
        reach(Choice.of("and", local, Choice("causal"))),
        reach(Choice.of("or", local, back)),
    ) == ((3, 0), (5, 3))
    assert reach(Choice.of("not", local)) == reach(Choice("padding")) == (math.inf, math.inf)
    assert reach(Choice.of("dilated", window=2, dilation=4)) == (8, 8)


def test_block_sparse_computes_blocks_that_mask_touches():
    # 16 tokens in blocks of 4: a band of ±1 touches the neighbours' corners, 4 + 2·3 blocks of 16 cells.

    def band(rows):
        return (torch.arange(16)[rows, None] - torch.arange(16)).abs() <= 1

    plan = touched_blocks(16, 16, 4, band)
    assert (plan[1], sum(4 * (part.stop - part.start) for keys in plan for part in keys)) == (
        (slice(0, 12),),
        10 * 16,
    )


@each(
    "mask", [Choice("causal"), Choice.of("local", window=3), Choice.of("causal_local", lookback=5)]
)
@each(("queries", "keys", "real"), [(37, 37, 37), (37, 20, 13), (20, 37, 30)])
def test_plan_that_follows_from_reach_is_that_of_mask(mask, queries, keys, real):
    allowed = build_mask(mask, queries, keys, key_mask=torch.arange(keys)[None] < real)[0, 0]
    for size in (1, 4, 16, 64):
        config = AttentionConfig(mask=mask, kernel=Choice.of("chunked", block=size))
        assert blocks_seen(
            config, Area.whole(queries, keys, masked=True, real=real)
        ) == touched_blocks(queries, keys, size, lambda rows: allowed[rows])


@each("mask", ["none", "causal"])
def test_a_bias_a_head_leaves_pytorchs_kernel_fused(mask):
    layer, x = (
        Attention(AttentionConfig(C, H, position="alibi", mask=mask, kernel="fused")),
        torch.randn(B, T, C),
    )
    with torch.no_grad(), torch.profiler.profile() as profile:
        layer(x, record=False)
    called = {event.key for event in profile.key_averages()}
    assert (
        "aten::_scaled_dot_product_flash_attention_for_cpu" in called
        and "aten::_scaled_dot_product_attention_math" not in called
    )


@each("backward", [False, True])
def test_chunked_never_holds_a_matrix(backward):
    # What it holds beyond output and gradients is the same at T and 4·T; exact holds matrices of T².
    config = AttentionConfig(
        32, 2, "identity", mask="causal", kernel=Choice.of("chunked", block=64)
    )
    beyond = []
    for length in (256, 1024):
        layer, heads = (
            Attention(config),
            [torch.randn(1, 2, length, 16, requires_grad=backward) for _ in range(3)],
        )

        def work(layer=layer, heads=heads):
            with torch.set_grad_enabled(backward):
                out = layer.kernel(layer.kernel_inputs(*heads)).out
                return torch.autograd.grad(out.sum(), heads) if backward else out

        # out, its gradient, and three of them twice
        linear = 2 * length * 16 * FLOAT * (7 if backward else 1.1)
        beyond.append(peak_bytes(work) - linear)
    assert beyond[1] < 1.5 * beyond[0] and beyond[1] < 2 * 1024 * 1024 * FLOAT / 4


@each("key", ["local", "block_sparse"])
def test_a_band_is_linear_in_length_in_cells_and_memory(key):
    config = AttentionConfig(
        32, 2, "identity", mask=Choice.of("local", window=16), kernel=Choice.of(key, block=32)
    )
    flops, held = [], []
    for length in (512, 2048):
        layer, heads = (
            Attention(config),
            [torch.randn(1, 2, length, 16, requires_grad=True) for _ in range(3)],
        )
        flops.append(attention_cost(config, length, length).flops)

        def work(layer=layer, heads=heads):
            return torch.autograd.grad(layer.kernel(layer.kernel_inputs(*heads)).out.sum(), heads)

        held.append(peak_bytes(work))
    assert (flops[1] / flops[0], held[1] / held[0]) == (
        pytest.approx(4, rel=0.05),
        pytest.approx(4, rel=0.05),
    )


# What every normalizer promises, drawn from the entries, and one case of each worked by hand.

ROWS, S = 5, 11
KEYS = [e.key for e in AXES["normalizer"]]
SIZES = each("keys", [S, 67])  # short rows may be computed in another way than long ones


def normalizer(key, **params):
    return entry("normalizer", key).build(
        AttentionConfig(C, H, normalizer=Choice.of(key, **params))
    )


def drawn(keys=S, spread=2.0):
    torch.manual_seed(4)
    scores = (torch.randn(B, H, ROWS, keys) * spread).requires_grad_()
    mask = torch.rand(B, 1, ROWS, keys) > 0.4
    mask[:, :, 1] = False
    return scores, mask


@SIZES
@each("key", KEYS)
def test_masked_cells_are_zero_and_empty_rows_teach_nothing(key, keys):
    scores, mask = drawn(keys)
    own = normalizer(key)
    weights = own(scores, mask)
    assert (
        not weights[~mask.expand_as(weights)].any()
        and (weights >= 0).all()
        and weights[:, :, 0].any()
    )
    weights[:, :, 1].sum().backward()
    assert not scores.grad.any() and all(
        p.grad is None or not p.grad.any() for p in own.parameters()
    )


@SIZES
@each("key", KEYS)
def test_what_is_masked_cannot_be_felt(key, keys):
    scores, mask = drawn(keys)
    own, broken = normalizer(key), scores.detach().clone()
    at = (~mask).expand_as(broken).nonzero()
    for place, value in zip(
        at, [float("nan"), float("inf"), -float("inf"), 1e30] * len(at), strict=False
    ):
        broken[tuple(place)] = value
    broken.requires_grad_()
    torch.testing.assert_close(own(broken, mask), own(scores, mask))
    seed = torch.randn(scores.shape)
    (own(broken, mask) * seed).sum().backward()
    (own(scores, mask) * seed).sum().backward()
    torch.testing.assert_close(broken.grad, scores.grad)


@SIZES
@each("key", KEYS)
def test_removing_masked_keys_changes_nothing(key, keys):
    # So a row depends neither on padding nor on the keys to come, and a kernel may leave out what is masked.
    scores, _ = drawn(keys)
    for mask in (torch.arange(keys) % 3 > 0, torch.arange(keys) == 3):
        whole = normalizer(key)(scores, mask.expand(B, 1, ROWS, keys))[..., mask]
        torch.testing.assert_close(
            whole, normalizer(key)(scores[..., mask], None), rtol=1e-5, atol=1e-6
        )


@SIZES
@each("spread", [0.0, 1e-3, 3.0, 1e4])
@each("key", KEYS)
def test_rows_sum_to_what_the_entry_says(key, spread, keys):
    scores, mask = drawn(keys, spread)
    sums = normalizer(key)(scores, mask).sum(-1)[:, :, [0, 2, 3, 4]]
    traits = entry("normalizer", key).traits
    if "sums to one" in traits:
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=1e-5, atol=1e-5)
    elif "at most one" in traits:
        whole = spread > 10 or ("reads order" in traits and keys > S)  # nothing is left for no key
        assert (sums <= 1 + 1e-6).all() and (
            whole or (sums < 1 - 1e-4).any() or entry("normalizer", key).source
        )
    elif "mixes heads" not in traits and not entry("normalizer", key).source:
        assert spread < 1 or (sums > 1.1).any()


@each("dtype", [torch.float16, torch.bfloat16])
@each("key", KEYS)
def test_half_precision_is_computed_in_full(key, dtype):
    scores, mask = drawn(67)
    half = scores.detach().to(dtype)
    own = normalizer(key).to(dtype)  # which rounds what is learned, too
    weights = own(half, mask)
    assert weights.dtype == dtype
    torch.testing.assert_close(weights, own.float()(half.float(), mask).to(dtype), rtol=0, atol=0)


@SIZES
@each(
    "key",
    [
        e.key
        for e in AXES["normalizer"]
        if e.key != "softcap"  # there it divides the capped scores
        and any(param.key == "temperature" for param in e.params)
    ],
)
def test_temperature_divides_the_scores(key, keys):
    scores, mask = drawn(keys)
    torch.testing.assert_close(
        normalizer(key, temperature=0.25)(scores, mask),
        normalizer(key)(scores * 4, mask),
        rtol=1e-4,
        atol=1e-6,
    )


@each("key", KEYS)
def test_a_strided_view_is_read_right(key):
    scores, _ = drawn(67)
    flat = scores.detach()
    torch.testing.assert_close(
        normalizer(key)(flat.transpose(0, 2)[:, :, :1].expand(5, 3, 4, 67), None),
        normalizer(key)(flat.transpose(0, 2)[:, :, :1].expand(5, 3, 4, 67).contiguous(), None),
    )


@each("key", ["sparsemax", "entmax15"])
def test_a_broken_row_breaks_no_other(key):
    scores, _ = drawn(67)
    broken = scores.detach().clone()
    broken[0, 0, 0, 3] = float("nan")
    weights, whole = normalizer(key)(broken, None), normalizer(key)(scores.detach(), None)
    assert weights[0, 0, 0].isnan().all()
    torch.testing.assert_close(weights[0, 0, 1:], whole[0, 0, 1:])


E = math.e
WEIGHTS_BY_HAND = [
    ("softmax", {}, [0.0, 1.0], [1 / (1 + E), E / (1 + E)]),
    ("softmax", {"temperature": 0.5}, [0.0, 1.0], [1 / (1 + E**2), E**2 / (1 + E**2)]),
    # tanh(1/2)·2 = 0.9242 instead of 1
    ("softcap", {"cap": 2.0}, [0.0, 1.0], [1 / (1 + E**0.92423431), 1 - 1 / (1 + E**0.92423431)]),
    (
        "softcap",
        {"cap": 2.0, "temperature": 0.5},
        [0.0, 1.0],
        [1 / (1 + E**1.84846862), 1 - 1 / (1 + E**1.84846862)],
    ),
    # two keys: e^(0.5·log 2) = √2
    ("scalable_softmax", {"start": 0.5}, [0.0, 1.0], [1 / (1 + 2**0.5), 2**0.5 / (1 + 2**0.5)]),
    ("scalable_softmax", {"start": 0.0, "shift": True}, [0.0, 1.0], [1 / (1 + E), E / (1 + E)]),
    ("scalable_softmax", {"start": 1.0, "temperature": 0.5}, [0.0, 1.0], [1 / 5, 4 / 5]),
    # e^s − 1 is 2, −1/2 and 0
    ("softpick", {}, [math.log(3), -math.log(2), 0.0], [0.8, 0.0, 0.0]),
    ("softpick", {}, [-1.0, -2.0], [0.0, 0.0]),
    # σ is 1/4, 3/4 and 1/2: the last key takes a half, the one before 3/4 of the other half
    ("stick_breaking", {}, [-math.log(3), math.log(3), 0.0], [1 / 32, 3 / 8, 1 / 2]),
    ("taylor", {}, [0.0, 1.0, -1.0], [1 / 4, 5 / 8, 1 / 8]),
    ("softmax_one", {}, [0.0, 1.0], [1 / (2 + E), E / (2 + E)]),
    ("sink", {"start": 1.0}, [0.0, 1.0], [1 / (1 + 2 * E), E / (1 + 2 * E)]),
    # two keys: σ(s − log 2) = e^s / (e^s + 2)
    ("query_sink", {}, [0.0, 1.0], [1 / (2 + E), E / (2 + E)]),  # beside no token: that of x = 0
    ("sigmoid", {}, [0.0, 1.0], [1 / 3, E / (E + 2)]),
    ("sigmoid", {"by_length": False, "bias": -1.0}, [0.0, 1.0], [1 / (1 + E), 0.5]),
    # Martins 2016: with a gap t < 1 between two, the weights are (1 ± t)/2
    ("sparsemax", {}, [0.0, 0.4], [0.3, 0.7]),
    ("sparsemax", {}, [3.0, 1.0, 2.5], [0.75, 0.0, 0.25]),
    # p² + (p + 1/4)² = 1 where p = √w of the lower: p = (−1/4 + √(31)/4)/2, since 2p² + p/2 − 15/16 = 0
    ("entmax15", {}, [0.0, 0.5], [((31**0.5 - 1) / 8) ** 2, ((31**0.5 + 1) / 8) ** 2]),
    ("entmax15", {}, [2.0, 0.0], [1.0, 0.0]),
    ("entmax", {"alpha": 2.0}, [0.0, 0.4], [0.3, 0.7]),
    ("entmax", {"alpha": 1.5}, [0.0, 0.5], [((31**0.5 - 1) / 8) ** 2, ((31**0.5 + 1) / 8) ** 2]),
    # power 3: (3p² + 3p·d + d²)·… with d = 0: two equal scores share, whatever α is
    ("entmax", {"alpha": 4 / 3}, [1.0, 1.0], [0.5, 0.5]),
    ("top_k", {"k": 2}, [1.0, -5.0, 0.0], [E / (1 + E), 0.0, 1 / (1 + E)]),
    ("top_k", {"k": 1}, [1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
    ("talking_heads", {}, [0.0, 1.0], [1 / (1 + E), E / (1 + E)]),  # heads that are alike
    ("hard", {}, [0.0, 3.0, 2.9], [0.0, 1.0, 0.0]),
    ("hard", {}, [3.0, 0.0, 3.0], [0.5, 0.0, 0.5]),
]


@each(("key", "params", "scores", "weights"), WEIGHTS_BY_HAND)
def test_by_hand(key, params, scores, weights):
    result = normalizer(key, **params)(torch.tensor(scores).expand(1, H, 1, -1), None)
    torch.testing.assert_close(result[0, 1, 0], torch.tensor(weights), rtol=1e-5, atol=1e-6)


def test_each_is_worked_by_hand():
    assert {case[0] for case in WEIGHTS_BY_HAND} == set(KEYS)


def test_entmax_goes_from_softmax_to_sparsemax():
    scores, mask = drawn(67, 0.5)
    soft = normalizer("softmax")(scores, mask)
    away = [
        (normalizer("entmax", alpha=a)(scores, mask) - soft).abs().max().item()
        for a in (1.05, 1.3, 1.7, 2.0)
    ]
    assert away == sorted(away) and away[0] < 0.05 < 0.2 < away[-1]
    torch.testing.assert_close(
        normalizer("entmax", alpha=2.0)(scores, mask), normalizer("sparsemax")(scores, mask)
    )


def test_hard_without_a_gradient_has_none():
    assert not normalizer("hard", gradient="none")(*drawn()).requires_grad
