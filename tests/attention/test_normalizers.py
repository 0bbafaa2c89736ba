"""What every normalizer promises, drawn from the entries, and one case of each worked by hand."""

import math

import torch

from core.attention import AXES, AttentionConfig, Choice, entry
from tests.cases import each

B, T, S, H, C = 2, 5, 11, 3, 21
KEYS = [e.key for e in AXES["normalizer"]]
SIZES = each("keys", [S, 67])  # short rows may be computed in another way than long ones


def normalizer(key, **params):
    return entry("normalizer", key).build(
        AttentionConfig(C, H, normalizer=Choice.of(key, **params))
    )


def drawn(keys=S, spread=2.0):
    torch.manual_seed(4)
    scores = (torch.randn(B, H, T, keys) * spread).requires_grad_()
    mask = torch.rand(B, 1, T, keys) > 0.4
    mask[:, :, 1] = False
    return scores, mask


@SIZES
@each("key", KEYS)
def test_masked_cells_are_zero_and_empty_rows_teach_nothing(key, keys):
    scores, mask = drawn(keys)
    own = normalizer(key)
    weights = own(scores, mask)
    assert not weights[~mask.expand_as(weights)].any()
    assert (weights >= 0).all() and weights[:, :, 0].any()
    weights[:, :, 1].sum().backward()
    assert not scores.grad.any()
    assert all(p.grad is None or not p.grad.any() for p in own.parameters())


@SIZES
@each("key", KEYS)
def test_what_is_masked_cannot_be_felt(key, keys):
    """Neither its value, nor its NaN, nor its infinity: the rows are those of the same scores without it."""
    scores, mask = drawn(keys)
    own = normalizer(key)
    broken = scores.detach().clone()
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
    """So a row depends neither on padding nor on the keys to come, and a kernel may leave out what is masked."""
    scores, _ = drawn(keys)
    mask = torch.arange(keys) % 3 > 0
    whole = normalizer(key)(scores, mask.expand(B, 1, T, keys))[..., mask]
    small = normalizer(key)(scores[..., mask], None)
    torch.testing.assert_close(whole, small, rtol=1e-5, atol=1e-6)


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
        assert (sums <= 1 + 1e-6).all() and (
            spread > 10 or (sums < 1 - 1e-4).any() or entry("normalizer", key).source
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
    cool = normalizer(key, temperature=0.25)(scores, mask)
    torch.testing.assert_close(cool, normalizer(key)(scores * 4, mask), rtol=1e-4, atol=1e-6)


@each("key", KEYS)
@each("shape", [(1, H, 1, 1), (1, H, 4, 0), (0, H, 4, 5)])
def test_edges(key, shape):
    assert normalizer(key)(torch.zeros(shape), None).shape == shape


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
BY_HAND = [
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
    ("scalable_softmax", {"start": 1.0, "temperature": 0.5}, [0.0, 1.0], [1 / 5, 4 / 5]),
    # e^s − 1 is 2, −1/2 and 0
    ("softpick", {}, [math.log(3), -math.log(2), 0.0], [0.8, 0.0, 0.0]),
    ("softpick", {}, [-1.0, -2.0], [0.0, 0.0]),
    ("softmax_one", {}, [0.0, 1.0], [1 / (2 + E), E / (2 + E)]),
    ("sink", {"start": 1.0}, [0.0, 1.0], [1 / (1 + 2 * E), E / (1 + 2 * E)]),
    # two keys: σ(s − log 2) = e^s / (e^s + 2)
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


@each(("key", "params", "scores", "weights"), BY_HAND)
def test_by_hand(key, params, scores, weights):
    result = normalizer(key, **params)(torch.tensor(scores).expand(1, H, 1, -1), None)
    torch.testing.assert_close(result[0, 1, 0], torch.tensor(weights), rtol=1e-5, atol=1e-6)


def test_each_is_worked_by_hand():
    assert {case[0] for case in BY_HAND} == set(KEYS)


def test_entmax_goes_from_softmax_to_sparsemax():
    """As α grows the weights leave those of softmax, and at 2 they are sparsemax's."""
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


def test_hard_learns_by_softmax_or_not_at_all():
    scores, mask = drawn()
    seed = torch.randn(scores.shape)
    for gradient, target in (
        ("straight_through", normalizer("softmax")(scores, mask)),
        ("none", None),
    ):
        weights = normalizer("hard", gradient=gradient)(scores, mask)
        if target is None:
            assert not weights.requires_grad
            continue
        (mine,) = torch.autograd.grad((weights * seed).sum(), scores)
        (theirs,) = torch.autograd.grad((target * seed).sum(), scores)
        torch.testing.assert_close(mine, theirs)
