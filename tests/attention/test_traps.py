"""Each trap was seen in a well-known code base; here is the proof that it is not in this one."""

import json

import pytest
import torch
import torch.nn.functional as F

from core.attention import (
    AXES,
    PRESETS,
    Attention,
    AttentionConfig,
    Choice,
    ConfigError,
    attend,
    entry,
    preset,
)
from core.attention.masks import build_mask
from core.attention.presets.base import AXIS_NAMES, name, sentence
from tests.cases import each

B, H, T, S, D = 2, 3, 5, 7, 11
KERNELS = each("kernel", ["exact", "fused"])


def heads(dtype=torch.float32):
    return tuple(torch.randn(B, H, n, D, dtype=dtype, requires_grad=True) for n in (T, S, S))


def causal(rows, columns, diagonal=0):
    return torch.ones(rows, columns, dtype=torch.bool).tril(diagonal)


@KERNELS
@each("bias", [False, True])
@each("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_fully_masked_row_is_zeros_and_so_are_its_gradients(dtype, bias, kernel):
    # −∞ would give NaN forward and backward, −1e9 the mean of V.
    q, k, v = heads(dtype)
    mask = causal(T, S)
    mask[2] = False
    added = torch.randn(H, T, S, dtype=dtype, requires_grad=True) if bias else None
    steps = attend(q, k, v, mask, bias=added, kernel=kernel)
    assert torch.equal(steps.out[:, :, 2], torch.zeros(B, H, D, dtype=dtype))
    if steps.weights is not None:
        assert torch.equal(steps.weights[:, :, 2], torch.zeros(B, H, S, dtype=dtype))
    steps.out.float().square().sum().backward()
    for tensor in (q, k, v, *([added] if bias else [])):
        assert tensor.grad.isfinite().all()
    assert torch.equal(q.grad[:, :, 2], torch.zeros(B, H, D, dtype=dtype))


@each("poison", [float("nan"), float("inf"), -float("inf")])
def test_what_may_not_be_seen_does_not_leak_through_v(poison):
    q, k, v = (t.detach() for t in heads())
    mask = causal(T, S)
    clean, broken = attend(q, k, v, mask).out, v.clone()
    broken[:, :, T:] = poison  # no row sees these keys
    torch.testing.assert_close(attend(q, k, broken, mask).out, clean)
    broken[:, :, 3] = poison  # rows 3 and 4 see this one
    out = attend(q, k, broken, mask).out
    torch.testing.assert_close(out[:, :, :3], clean[:, :, :3])
    assert not out[:, :, 3:].isfinite().any()


@each("shape", [(S,), (1, S), (B, 1, 1, S)])
@each("kernel", ["exact", "fused", "chunked", "local", "block_sparse", "linear", "nystrom"])
def test_a_key_hidden_from_all_may_hold_anything(kernel, shape):
    # In k and in v, forward and backward; fused says in its docstring that other masks hide no NaN.
    q, k, v = heads()
    mask = (torch.arange(S) < T).expand(shape)
    clean = attend(q, k, v, mask, kernel=kernel).out
    k, v = (
        x.detach().index_fill(2, torch.arange(T, S), float("nan")).requires_grad_() for x in (k, v)
    )
    out = attend(q, k, v, mask, kernel=kernel).out
    torch.testing.assert_close(out, clean)
    out.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


def test_a_key_hidden_from_some_heads_keeps_large_values():
    # Padding of 10,000 and more is cleared, but this key is real for the second head.
    q, k, v = (x.detach() * 1e5 for x in heads())
    mask = torch.ones(B, H, 1, S, dtype=torch.bool)
    mask[:, 0, 0, 3] = False
    torch.testing.assert_close(
        attend(q, k, v, mask, scale=0.0).out[:, 1], v[:, 1].mean(1, keepdim=True).expand(B, T, D)
    )


@each("mask", [torch.ones(T, S), torch.ones(T, S, dtype=torch.long)])
def test_a_mask_of_numbers_is_refused(mask):
    q, k, v = heads()
    pytest.raises((ValueError, TypeError), attend, q, k, v, mask)


@each("kernel", [item.key for item in AXES["kernel"]])
def test_a_mask_of_three_dimensions_is_refused_in_words(kernel):
    # One a text, or one a head: where both are as many it was one a head, elsewhere an error of PyTorch's.
    mask, words = torch.ones(2, 3, 3, dtype=torch.bool), r"mask is \(2, 3, 3\); .* mask\[:, None\]"
    layer = Attention(AttentionConfig(8, 2, kernel=kernel))
    pytest.raises(ValueError, layer, torch.randn(2, 3, 8), mask=mask).match(words)
    pytest.raises(ValueError, attend, *torch.randn(3, 2, 2, 3, 4), mask).match(words)  # type: ignore[call-overload]


UNFIT = [
    (3, 5),
    (2, 5),
    (4,),
    (2, 3, 5, 7),
    (3, 4, 5, 7),
    (2, 1, 4, 7),
    (2, 1, 5, 6),
    (1, 1, 1, 5, 7),
]


@each("kernel", [item.key for item in AXES["kernel"]])
@each("shape", UNFIT)
def test_a_mask_that_fits_nothing_is_refused_in_words(kernel, shape):
    # 2 texts, 4 heads, 5 queries, 7 keys.
    mask, words = torch.ones(shape, dtype=torch.bool), r"mask is \(.*\); expected \(queries, keys\)"
    layer = Attention(AttentionConfig(8, 4, kernel=kernel))
    pytest.raises(ValueError, layer, torch.randn(2, 5, 8), torch.randn(2, 7, 8), mask=mask).match(
        words + r".* = \(5, 7\) or .* = \(2, 4, 5, 7\)"
    )
    q, (k, v) = torch.randn(2, 4, 5, 2), torch.randn(2, 2, 2, 7, 2)
    pytest.raises(ValueError, lambda: attend(q, k, v, mask)).match(words)
    pytest.raises(ValueError, lambda: attend(q, k, v, bias=mask.float())).match("bias is ")


@each("shape", [(5, 7), (7,), (1, 7), (5, 1), (2, 1, 5, 7), (1, 4, 1, 7), (2, 1, 1, 1)])
def test_a_mask_that_broadcasts_is_that_of_the_whole(shape):
    mask = torch.rand(shape) < 0.7
    layer, x, y = Attention(AttentionConfig(8, 4)), torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    whole = torch.broadcast_to(mask, (2, 4, 5, 7))
    torch.testing.assert_close(layer(x, y, mask=mask).merged, layer(x, y, mask=whole).merged)


def test_causal_alignment_by_eye():
    assert (
        build_mask(Choice("causal"), 2, 4).int().tolist(),
        build_mask(Choice("causal"), 2, 4, offset=2).int().tolist(),
    ) == (
        [[1, 0, 0, 0], [1, 1, 0, 0]],
        [
            [1, 1, 1, 0],
            [1, 1, 1, 1],
        ],
    )


def test_the_weights_drawn_are_those_before_dropout():
    steps = Attention(AttentionConfig(33, H, dropout=0.5))(torch.randn(B, T, 33))
    torch.testing.assert_close(steps.weights.sum(-1), torch.ones(B, H, T))
    assert not torch.allclose(steps.out, steps.weights @ steps.v)


@KERNELS
def test_eval_mode_drops_nothing(kernel):
    layer = Attention(AttentionConfig(33, H, dropout=0.9, kernel=kernel)).eval()
    x = torch.randn(B, T, 33)
    steps = layer(x)
    torch.testing.assert_close(
        steps.out, attend(steps.q, steps.k, steps.v).out, rtol=1e-5, atol=1e-5
    )
    assert torch.equal(layer(x).merged, layer(x).merged)


@KERNELS
def test_dropout_keeps_the_mean(kernel):
    q, k, v = (t.detach() for t in heads())
    drawn = torch.stack([attend(q, k, v, dropout=0.25, kernel=kernel).out for _ in range(600)])
    assert drawn.std(0).mean() > 0.05
    torch.testing.assert_close(drawn.mean(0), attend(q, k, v).out, rtol=0, atol=0.15)


@each("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_finite_and_sums_in_fp32(dtype):
    # −1e9 overflows fp16, and a softmax of 1000 keys in bf16 loses its last digits.
    q, k, v = torch.randn(3, 1, 1, 1009, 16).to(dtype)
    steps = attend(q, k, v, causal(1009, 1009))
    assert steps.out.isfinite().all()
    torch.testing.assert_close(
        steps.weights.float(),
        attend(q.float(), k.float(), v.float(), causal(1009, 1009)).weights,
        rtol=6e-2,
        atol=1e-3,
    )
    assert (steps.weights.float().sum(-1) - 1).abs().max() < 0.02


def test_large_scores_do_not_overflow():
    q = torch.tensor([[[[300.0, 300.0]]]])
    torch.testing.assert_close(
        attend(q, torch.cat((q, -q), dim=2), torch.eye(2)[None, None], scale=1.0).out.flatten(),
        torch.tensor([1.0, 0.0]),
    )


@KERNELS
@each("width", [2, D])
def test_values_may_be_wider_or_narrower_than_keys(kernel, width):
    q, k, v = (torch.randn(B, H, d, n).mT for d, n in ((D, T), (D, S), (width, S)))
    torch.testing.assert_close(
        attend(q, k, v, kernel=kernel).out,
        F.scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous()),
    )


def test_shapes_that_do_not_meet_are_said():
    q, k, v = heads()
    for wrong in (
        (q[0], k[0], v[0]),
        (q[..., :-1], k, v),
        (q, k, v[:, :, :-1]),
        (q, k[:1], v[:1]),
        (q[:, :1], k, v),
    ):
        with pytest.raises(Exception, match="q|hint|Type"):
            attend(*wrong)


BAD_CHOICES = [
    {"d_model": 10, "num_heads": 3},
    {"d_model": 0},
    {"num_heads": 0},
    {"d_model": 2.5},
    {"num_heads": True},
    {"dropout": 1.0},
    {"dropout": -0.1},
    {"dropout": float("nan")},
    {"score": "cosmic"},
    {"mask": "causel"},
    {"normalizer": Choice.of("softmax", temperature=0)},
    {"normalizer": Choice.of("softmax", temperature=float("nan"))},
    {"normalizer": Choice.of("softmax", temperature=float("inf"))},
    {"mask": Choice.of("local", window=-1)},
    {"mask": Choice.of("local", window=1.5)},
    {"mask": Choice.of("causal", window=1)},
    {"mask": Choice("and")},
    {"position": Choice.of("rope", layout="spiral")},
    {"d_model": 9, "num_heads": 3, "position": "rope"},
    {"kernel": "fused", "score": "additive"},
    {"d_model": "64"},
    {"dropout": "much"},
]
BROKEN_FILES = [
    {"nonsense": 1},
    {"score": 3},
    {"score": {"key": 3}},
    {"score": None},
    {"mask": {"key": "and", "parts": 3}},
    {"normalizer": {"key": "softmax", "temperature": None}},
    {"normalizer": {"key": "softmax", "temperature": [1]}},
    {"d_model": None},
    {"dropout": None},
    {"mask": {"key": "and", "parts": [3]}},
    [],
    "softmax",
    None,
]


@each(
    ("make", "given"),
    [
        *((lambda given: AttentionConfig(**given), given) for given in BAD_CHOICES),
        *((AttentionConfig.from_json, text) for text in BROKEN_FILES),
    ],
)
def test_bad_choices_and_broken_files_are_refused_in_words(make, given):
    with pytest.raises(ConfigError) as refusal:
        make(given)
    assert len(str(refusal.value).split()) >= 4


def joined(*parts):
    return {"position": Choice.of("and", *parts)}


ROPE = Choice.of("rope", base=700.0)
MOBA, LIGHTNING = (
    Choice.of("moba", size=3, blocks=3),
    Choice.of("lightning", keys=5, heads=3, size=6),
)
ALL_SCORES = {
    "selective": ("fused", "chunked", "local", "block_sparse", "linear", "retention"),
    "multi_token": ("fused", "chunked", "block_sparse", "linear"),
}


@each(
    ("words", "axes"),
    [
        (
            "grouped_query.*kv_heads = 4.*num_heads = 6; take kv_heads = one of 1, 2, 3, 6",
            {"projection": Choice.of("grouped_query", kv_heads=4)},
        ),
        (
            "gated.*kv_heads = 4 does not divide num_heads = 6; take kv_heads = 0",
            {"projection": Choice.of("gated", kv_heads=4)},
        ),
        (
            "keys_as_values.*kv_heads = 4 does not divide num_heads = 6; take",
            {"projection": Choice.of("keys_as_values", kv_heads=4)},
        ),
        ("kv_heads = 4 does not divide", {"projection": Choice.of("grouped_tied", kv_heads=4)}),
        (
            "grouped_tied.*position = rope.*take position = none",
            {"projection": "grouped_tied", "position": "rope"},
        ),
        (
            "latent.*position = rope.*take position = none",
            {"projection": "latent", "position": "rope"},
        ),
        ("rope = 3 is odd; take rope = 2 or 4", {"projection": Choice.of("latent", rope=3)}),
        (
            "groups = 4 does not divide num_heads = 6; take groups = 1",
            {"projection": Choice.of("latent", groups=4)},
        ),
        ("groups = 3 does not divide latent = 32", {"projection": Choice.of("latent", groups=3)}),
        (
            "differential.*odd head size = 5; take an even one",
            {"projection": "differential", "d_model": 15, "num_heads": 3},
        ),
        (
            "buckets = 64.*max_distance = 16.*take max_distance ≥ 17",
            {"position": Choice.of("t5", buckets=64, max_distance=16)},
        ),
        (
            "buckets = 64.*max_distance = 32.*take max_distance ≥ 33",
            {"position": Choice.of("t5", buckets=64, max_distance=32, bidirectional=False)},
        ),
        ("character 9", {"position": Choice.of("formula", formula="score + x")}),
        ("keys = 4 is even; take keys = 3 or 5", {"position": Choice.of("multi_token", keys=4)}),
        ("joins two or more positions; got 1; take two", joined(ROPE)),
        ("take the parts of the inner one", joined(ROPE, Choice("and"))),
        (
            "position = sinusoidal is added to x; take position = rope",
            joined(ROPE, Choice("sinusoidal")),
        ),
        ("score -", joined(ROPE, Choice.of("formula", formula="score -"))),
        ("position = rope takes no parts; got 1", {"position": Choice.of("rope", Choice("alibi"))}),
        ("odd size, 7; take an even one", {"position": "and", "d_model": 21, "num_heads": 3}),
        ("odd size, 7; take", {"position": "grid_rope", "d_model": 21, "num_heads": 3}),
        (
            "odd size, 1; take",
            {"position": Choice.of("rope", share=0.5), "d_model": 3, "num_heads": 3},
        ),
        (
            "projection = latent has rotary positions already",
            {"position": "and", "projection": "latent"},
        ),
        (
            "kernel = fused supports only positions that add a bias",
            {"position": "and", "kernel": "fused"},
        ),
        *(
            (
                f"position = {key} .* kernel = {kernel} .* take kernel = exact",
                {"position": key, "mask": "causal", "kernel": kernel},
            )
            for key, kernels in ALL_SCORES.items()
            for kernel in kernels
        ),
        *(
            (
                f"kernel = {kernel} .*{mask.key} compares all.*block_sparse",
                {"mask": mask, "kernel": kernel},
            )
            for mask in (MOBA, LIGHTNING)
            for kernel in ("chunked", "local")
        ),
    ],
)
def test_choices_that_do_not_go_together_are_refused(words, axes):
    pytest.raises(ConfigError, AttentionConfig, **{"d_model": 48, "num_heads": 6} | axes).match(
        words
    )


def test_unsupported_mask_raises_instead_of_being_ignored():
    layer = Attention(AttentionConfig(33, H, mask="padding"))
    pytest.raises(ConfigError, layer, torch.randn(B, T, 33)).match("key_mask")
    pytest.raises(
        ValueError, layer, torch.randn(B, T, 33), key_mask=torch.ones(B, T + 1, dtype=torch.bool)
    ).match("key_mask")


# Presets: each builds at many sizes, runs, survives JSON, stands in order of year, and says what it changed.

EACH = each("item", PRESETS)
USUAL = preset("vaswani").config()


@EACH
@each(("size", "heads"), [(24, 1), (60, 5)])
def test_builds_runs_and_survives_json(item, size, heads):
    config = item.config(size, heads)
    assert AttentionConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    merged = Attention(config, add_positions=True)(torch.randn(2, 7, size), record=False).merged
    assert merged.shape == (2, 7, size) and merged.isfinite().all()


def test_in_order_of_year_and_no_two_are_the_same():
    years = [item.year for item in PRESETS]
    assert (
        years == sorted(years)
        and years[0] == 2014
        and len({item.key for item in PRESETS})
        == len({item.name for item in PRESETS})
        == len({item.config(64, 8) for item in PRESETS})
        == len(PRESETS)
    )


@EACH
def test_says_what_it_changed_and_only_that(item):
    config, sentences = item.config(), item.changed()
    usual = USUAL.with_(num_heads=config.num_heads)
    axes = [axis for axis in AXES if getattr(config, axis) != getattr(usual, axis)]
    assert bool(sentences) == (item.key != "vaswani")
    if not sentences:
        return
    own_places = any(config.has(axis, "own positions") for axis in ("projection", "kernel"))
    *changes, own = sentences
    assert own == item.meaning and own.endswith(".")
    assert [change.split(":")[0] for change in changes] == [AXIS_NAMES[axis] for axis in axes]
    for axis, change in zip(axes, changes, strict=True):
        assert (
            name(axis, getattr(config, axis)) in change or axis == "position" and own_places
        ) and change.endswith(".")


def test_own_places_are_said():
    # Order is not invisible to it, though the axis of positions has none.
    for key, owner in (
        ("gated_deltanet", "Gated delta rule"),
        ("minimax", "Retention"),
        ("deepseek_v2", "Latent"),
    ):
        sentence = next(
            sentence for sentence in preset(key).changed() if sentence.startswith("Positions")
        )
        assert sentence.startswith(f"Positions: only those of {owner}")
    assert "RoPE" in preset("retnet").changed()[1]


def test_the_sentences_come_from_the_entries():
    sentences = preset("alibi").changed()
    assert (sentences[0], sentences[1]) == (
        f"Positions: ALiBi instead of Sinusoidal. {entry('position', 'alibi').meaning}",
        f"Masks: Causal. {entry('mask', 'causal').meaning}",
    )


def test_parameters_are_said_where_they_differ():
    plain = USUAL.with_(projection=Choice.of("multi_head", bias=False)).projection
    assert sentence("projection", USUAL.projection, plain) == "Projections: Multi-head, with bias."
    yarn = preset("gpt_oss").config().position
    assert (
        name("position", yarn, full=True) == "YaRN (factor 32, original length 4,096, base 150,000)"
    )
    both = Choice.of("and", Choice("causal"), Choice.of("local", window=5))
    assert name("mask", both, full=True) == "Causal and Local window (window 5)"


def test_numbers_follow_the_sizes():
    assert [preset("llama3").config(64, heads).kv_heads for heads in (1, 2, 4, 8, 16)] == [
        1,
        1,
        1,
        2,
        4,
    ]
    assert (
        preset("mistral").config(60, 6).kv_heads == 1
        and preset("gemma2").config(60, 6).kv_heads == 3
    )
    latent = preset("deepseek_v2").config(64, 8).projection
    assert (latent["latent"], latent["rope"]) == (32, 4)
    pytest.raises(ConfigError, preset("llama3").config, 64, 5).match(
        "num_heads = 5 does not divide d_model = 64"
    )


def test_an_unknown_key_lists_those_there_are():
    pytest.raises(ConfigError, preset, "nobody").match(
        "preset = 'nobody'; expected one of bahdanau, .*gpt_oss"
    )
