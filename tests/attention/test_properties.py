"""What must hold whatever is chosen: drawn at random from the entries themselves, so that a new entry is tested too."""

import itertools
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.attention import AXES, PRESETS, Attention, AttentionConfig, Choice, ConfigError, Steps, entry

B, T, S, C, H = 2, 5, 7, 24, 3


def plain(axis, key):
    """A choice with its defaults; a composed mask gets parts."""
    causal, local = Choice("causal"), Choice.of("local", window=1)
    return {"not": Choice.of("not", causal), "and": Choice.of("and", causal, local),
            "or": Choice.of("or", causal, local)}.get(key, Choice(key)) if axis == "mask" else Choice(key)


def run(config, cross=False, **how):
    x = torch.randn(B, T, C, requires_grad=True)
    context = torch.randn(B, S, C, requires_grad=True) if cross else None
    keys = torch.arange(S if cross else T) < torch.tensor([4, 3])[:, None]
    key_mask = keys if "padding" in str(config.mask) else None
    return x, context, Attention(config, **how)(x, context, key_mask=key_mask)


PAIRS = [
    (one, a.key, other, b.key)
    for one, other in itertools.combinations(AXES, 2) for a in AXES[one] for b in AXES[other]
]


@pytest.mark.parametrize(("one", "a", "other", "b"), PAIRS, ids=lambda value: value)
def test_every_pair_runs_or_is_refused_by_name(one, a, other, b):
    """Whatever the two axes, the pair computes something finite, or ConfigError names both and a way out."""
    try:
        config = AttentionConfig(C, H, **{one: plain(one, a), other: plain(other, b)})
    except ConfigError as refusal:
        said = str(refusal)
        assert a in said and b in said and "take" in said, said
        return
    for cross in (False, True):
        x, context, steps = run(config, cross, add_positions=True)
        assert isinstance(steps, Steps)
        assert steps.merged.shape == (B, T, C)
        assert steps.merged.isfinite().all()
        steps.merged.sum().backward()
        assert x.grad.isfinite().all() and (context is None or context.grad.isfinite().all())


def masks():
    leaves = st.sampled_from([Choice("none"), Choice("causal"), Choice("padding")]) | st.integers(0, 4).map(
        lambda w: Choice.of("local", window=w))
    return st.recursive(leaves, lambda part: st.one_of(
        part.map(lambda p: Choice.of("not", p)),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(part, min_size=1, max_size=3)).map(
            lambda pair: Choice.of(pair[0], *pair[1]))), max_leaves=4)


def drawn(axis, value):
    """A choice of the axis with parameters inside their bounds."""
    def fill(param):
        if param.choices:
            return st.sampled_from(param.choices)
        if isinstance(param.default, bool):
            return st.booleans()
        if isinstance(param.default, int):
            return st.integers(max(int(param.low), S), int(param.high)) if param.key == "max_len" else st.integers(
                int(param.low), min(int(param.high), 64))
        return st.floats(max(param.low, 0.05), min(param.high, 1e4))
    found = st.fixed_dictionaries({p.key: fill(p) for p in value.params})
    return found.map(lambda params: Choice.of(value.key, **params))


@st.composite
def configs(draw, **fixed):
    heads = draw(st.sampled_from([1, 2, 3, 4, 6, 12]))
    chosen = {axis: draw(st.sampled_from(entries).flatmap(lambda e, axis=axis: drawn(axis, e)))
              for axis, entries in AXES.items() if axis != "mask"}
    chosen |= {"mask": draw(masks())} | fixed
    if chosen["score"].key not in ("dot", "scaled_dot"):
        chosen["kernel"] = Choice("exact")
    return AttentionConfig(C, heads, **chosen)


@given(configs())
def test_json_round_trip(config):
    again = AttentionConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert again == config and hash(again) == hash(config)


@given(configs(kernel=Choice("exact")), st.booleans())
def test_rows_sum_to_one_or_to_nothing(config, cross):
    _, _, steps = run(config, cross)
    allowed = torch.ones_like(steps.weights, dtype=torch.bool) if steps.mask is None else steps.mask
    allowed = allowed.expand_as(steps.weights)
    torch.testing.assert_close(steps.weights.sum(-1), allowed.any(-1).float(), rtol=1e-5, atol=1e-5)
    assert (steps.weights >= 0).all()
    assert not steps.weights[~allowed].any()


@given(configs(), st.booleans())
def test_no_nan_in_any_output_or_gradient(config, cross):
    x, context, steps = run(config, cross)
    assert steps.merged.isfinite().all()
    steps.merged.sum().backward()
    assert x.grad.isfinite().all() and (context is None or context.grad.isfinite().all())


@given(configs(kernel=Choice("exact")))
def test_a_query_feels_exactly_what_its_mask_allows(config):
    """By gradient, so whatever the mask's inside is: row i moves with value j only where (i, j) is allowed."""
    _, _, steps = run(config)
    v = steps.v.detach().requires_grad_()
    allowed = torch.ones(1, 1, T, T, dtype=torch.bool) if steps.mask is None else steps.mask
    allowed = allowed.expand(B, steps.out.shape[1], T, T)
    out = steps.weights.detach() @ v
    for i in range(T):
        felt, = torch.autograd.grad(out[:, :, i].sum(), v, retain_graph=True)
        assert not (felt.abs().sum(-1) > 0)[~allowed[:, :, i]].any()


@given(configs(mask=Choice("causal")))
def test_causal_by_gradient(config):
    """The output at i does not change with any input after i."""
    x, _, steps = run(config)
    for i in range(T - 1):
        felt, = torch.autograd.grad(steps.merged[:, i].sum(), x, retain_graph=True)
        assert not felt[:, i + 1:].any()


@given(configs(position=Choice("none"), mask=Choice("none")), st.permutations(range(T)))
def test_without_positions_order_is_invisible(config, order):
    """Permuting the inputs permutes the outputs, for each score and kernel."""
    layer, x = Attention(config).eval(), torch.randn(B, T, C)
    torch.testing.assert_close(layer(x[:, order]).merged, layer(x).merged[:, order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("position", [e.key for e in AXES["position"] if e.key != "none"])
def test_with_positions_order_is_seen(position):
    layer, x = Attention(AttentionConfig(C, H, position=position), add_positions=True).eval(), torch.randn(B, T, C)
    order = torch.tensor([1, 0, 2, 3, 4])
    if position == "learned":
        torch.nn.init.normal_(layer.position.table.weight)
    assert (layer(x[:, order]).merged - layer(x).merged[:, order]).abs().max() > 1e-3


@given(configs(kernel=Choice("fused"), score=Choice("scaled_dot")), st.booleans())
def test_fused_is_exact(config, cross):
    """Two ways to the same output and the same gradient."""
    torch.manual_seed(7)
    x, _, fused = run(config, cross)
    torch.manual_seed(7)
    y, _, exact = run(config.with_(kernel=Choice("exact")), cross)
    torch.testing.assert_close(fused.merged, exact.merged, rtol=1e-4, atol=2e-5)
    fused.merged.square().sum().backward()
    exact.merged.square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("axis", "key"), [(a, e.key) for a, entries in AXES.items() for e in entries])
def test_the_dtype_is_kept(axis, key, dtype):
    config = AttentionConfig(C, H, **{axis: plain(axis, key)})
    layer, x = Attention(config, add_positions=True).to(dtype), torch.randn(B, T, C, dtype=dtype)
    steps = layer(x, key_mask=torch.ones(B, T, dtype=torch.bool))
    found = {name: t.dtype for name in ("q", "k", "v", "raw", "scores", "masked", "weights", "out", "merged")
             if (t := getattr(steps, name)) is not None}
    assert set(found.values()) == {dtype}, found


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1)])
@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.key)
def test_presets_at_every_edge(preset, shape):
    queries, keys = shape
    layer = Attention(preset.config(C, H if preset.key == "vaswani" else 1), add_positions=True)
    steps = layer(torch.randn(1, queries, C), torch.randn(1, keys, C))
    assert steps.merged.shape == (1, queries, C) and steps.merged.isfinite().all()


@pytest.mark.parametrize(("axis", "key"), [(a, e.key) for a, entries in AXES.items() for e in entries])
def test_an_entry_says_everything(axis, key):
    said = entry(axis, key)
    assert said.name and said.latex and len(said.meaning) > 20
    assert 2014 <= said.year <= 2030 and (not said.url or said.url.startswith("https://"))
    for param in said.params:
        assert param.meaning and param.name
        assert param.check(param.default, key) == param.default
        if not param.choices and not isinstance(param.default, bool):
            assert param.low <= param.default <= param.high and param.step
            for beyond in (param.low - 1, param.high + 1, float("nan"), "x", None):
                with pytest.raises(ConfigError):
                    param.check(beyond, key)


def test_keys_are_unique():
    for axis, entries in AXES.items():
        assert len({e.key for e in entries}) == len(entries), axis
