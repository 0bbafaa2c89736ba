"""Every entry of every axis, and every pair across axes: what it says of itself, and that it runs or says why not."""

import copy
import io
import itertools
import json
import pickle
import random
import subprocess
import sys
from functools import partial
from typing import get_args

import pytest
import torch
from hypothesis import given, strategies as st

from core.attention import (
    AXES,
    PRESETS,
    Attention,
    AttentionConfig,
    Cache,
    Choice,
    ConfigError,
    Steps,
    attend,
    entry,
    why_not_fused,
)
from core.attention.config import example_config
from core.attention.kernels.exact import STATELESS, why_no_state
from core.attention.normalizers import Softmax
from core.attention.projections.multi_head import Latent
from core.entries import TRAITS, Trait
from core.models.transformer import causal_config
from tests.attention import drawing
from tests.attention.drawing import (
    ENTRIES,
    B,
    C,
    H,
    T,
    config_of,
    configs,
    perturbed,
    plain,
    read_in_parts,
    run,
)
from tests.cases import each
from tests.oracles.agreement import agree


def finite(x, context, steps):
    assert isinstance(steps, Steps)
    assert steps.merged.shape == (B, T, C) and steps.merged.isfinite().all()
    steps.merged.sum().backward()
    grads = [one.grad for one in (x, context) if one is not None and one.grad is not None]
    assert grads and all(grad.isfinite().all() for grad in grads)


def test_each_trait_is_explained_and_some_entry_has_it():
    had = {
        (axis, trait) for axis, entries in AXES.items() for one in entries for trait in one.traits
    }
    assert had == {(axis, trait) for axis, traits in TRAITS.items() for trait in traits}
    assert {trait for _, trait in had} == {*get_args(Trait)}


def test_every_pair_is_built_or_refused_by_name():
    assert not [
        reason
        for (one, other), reason in drawing.pairs().items()
        if reason and not (one[1] in reason and other[1] in reason and "take" in reason)
    ]


def failures(rows, **how):
    """The rows whose output or gradient is not finite, and why; what is made for one sequence may refuse two."""
    for row in rows:
        try:
            finite(*run(drawing.build(row), add_positions=True, **how))
        except ConfigError as refusal:
            if not how.get("cross") or "take" not in str(refusal):
                yield row, str(refusal)
            elif len(row) > 2:  # not lost: two by two
                yield from failures(itertools.combinations(row, 2), **how)
        except Exception as error:
            yield row, repr(error)


def test_every_pair_runs_on_one_sequence():
    rows = drawing.rows()
    assert not [*failures(rows), *failures(rows, record=False)]


def test_every_pair_runs_across_two_sequences():
    # The same without the choices that refuse two sequences alone: they would hide the others of their row.

    def refuses(item):
        try:
            run(drawing.build([item]), cross=True, add_positions=True)
        except ConfigError as refusal:
            return "take" in str(refusal)
        return False

    alone = [item for item in ENTRIES if drawing.builds([item]) and refuses(item)]
    assert not list(failures(drawing.rows(without=alone), cross=True))


@each("dtype", [torch.float64, torch.bfloat16])
@each(("axis", "key"), ENTRIES)
def test_the_dtype_is_kept(axis, key, dtype):
    config = AttentionConfig(C, H, **{axis: plain(axis, key)})
    layer = Attention(config, add_positions=True).to(dtype)
    x = torch.randn(B, T, C, dtype=dtype, requires_grad=True)
    for record in (True, False):
        steps = layer(x, key_mask=torch.ones(B, T, dtype=torch.bool), record=record)
        assert {
            t.dtype for t in [t for t in vars(steps).values() if isinstance(t, torch.Tensor)]
        } - {torch.bool} == {dtype}
        steps.merged.sum().backward()  # some functions of torch have no bfloat16 there


@each("shape", [(1, 1), (1, 7), (7, 1)])
@each(
    "config",
    [
        *(preset.config(C, H) for preset in PRESETS),
        *[AttentionConfig(C, H, position=plain("position", e.key)) for e in AXES["position"]],
    ],
)
def test_presets_and_positions_at_every_edge(config, shape):
    queries, keys = shape
    layer = Attention(config, add_positions=True)
    try:
        steps = layer(torch.randn(1, queries, C), torch.randn(1, keys, C))
    except ConfigError as refusal:
        assert (
            queries != keys
            or layer.config.projection.key in ("short_conv", "compressed", "dynamic_conv")
        ) and "take" in str(refusal)
        return
    assert steps.merged.shape == (1, queries, C) and steps.merged.isfinite().all()


@each(("axis", "key"), ENTRIES)
def test_an_entry_says_everything_and_has_its_key_alone(axis, key):
    item = entry(axis, key)
    assert [one.key for one in AXES[axis]].count(key) == 1
    assert (
        item.name
        and item.latex
        and len(item.meaning) > 20
        and 2014 <= item.year <= 2030
        and (not item.url or item.url.startswith("https://"))
    )
    for param in item.params:
        assert param.meaning and param.name and param.check(param.default, key) == param.default
        if not param.choices and not isinstance(param.default, bool | str):
            assert param.low <= param.default <= param.high and param.step
            for beyond in (param.low - 1, param.high + 1, float("nan"), "x", None):
                pytest.raises(ConfigError, param.check, beyond, key)


# No queries, no keys, no texts: zeros of the right shape, and zero gradients, from every choice.


SIZES = each(("batch", "queries", "keys"), [(2, 0, 5), (2, 3, 0), (0, 3, 5), (2, 0, 0)])


@SIZES
@each(("axis", "key"), ENTRIES)
def test_zero_lengths_give_zeros(axis, key, batch, queries, keys):
    layer = Attention(example_config(axis, key, C), add_positions=True)
    x, context = (torch.randn(batch, n, C, requires_grad=True) for n in (queries, keys))
    for real in (None, torch.ones(batch, keys, dtype=torch.bool)):
        for record in (True, False):
            if real is None and key == "padding":
                continue
            steps = layer(x, context, key_mask=real, record=record)
            assert steps.merged.shape == x.shape
            assert keys or not steps.out.any()
            steps.merged.sum().backward()
            assert all(grad is None or grad.isfinite().all() for grad in (x.grad, context.grad))


@SIZES
@each("kernel", ["exact", "fused", "chunked", "local", "block_sparse", "linear", "nystrom"])
def test_attend_on_nothing(kernel, batch, queries, keys):
    q, k, v = (torch.randn(batch, 2, n, 4) for n in (queries, keys, keys))
    mask = None if kernel in ("linear", "nystrom") else torch.ones(queries, keys, dtype=torch.bool)
    out = attend(q, k, v, mask, kernel=kernel).out
    assert out.shape == q.shape and (keys or not out.any())


# What goes with what is found by asking, and both sides of a refusal name each other.


def test_refusal_carries_its_axes_and_alternatives_as_data():
    with pytest.raises(ConfigError) as error:
        AttentionConfig(64, 4, kernel="fused", score="additive")
    assert (error.value.axes, error.value.take) == (
        ("kernel", "score"),
        {"score": ("scaled_dot",), "kernel": ("exact",)},
    )
    assert str(error.value).endswith("take score = scaled_dot, or kernel = exact.")


# A layer goes to another process and into a file: torch.save, pickle and deepcopy, for every choice and preset.


CONFIGS = {
    f"{axis}-{item.key}": example_config(axis, item.key, C) for axis in AXES for item in AXES[axis]
} | {f"preset-{p.key}": p.config() for p in PRESETS}


def saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@each("name", CONFIGS)
def test_a_layer_comes_back_as_it_was(name):
    layer = Attention(CONFIGS[name]).eval()
    x = torch.randn(B, T, CONFIGS[name].d_model)
    real = torch.tensor([[True] * T, [True, True, False, True, True]])
    want = layer(
        x, key_mask=real, record=False
    ).merged  # what a call leaves on the layer must not stand in the way
    for again in (saved(layer), pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert torch.equal(again(x, key_mask=real, record=False).merged, want)


def test_another_process_reads_a_layer_of_every_mask(tmp_path):
    layers = {
        name: Attention(config).eval()
        for name, config in CONFIGS.items()
        if name.startswith("mask")
    }
    x, real = torch.randn(B, T, C), torch.ones(B, T, dtype=torch.bool)
    torch.save((layers, x, real), tmp_path / "layers.pt")
    read = (
        "import sys, torch; layers, x, real = torch.load(sys.argv[1], weights_only=False); "
        "torch.save({n: layer(x, key_mask=real).merged for n, layer in layers.items()}, sys.argv[2])"
    )
    subprocess.run(
        [sys.executable, "-c", read, tmp_path / "layers.pt", tmp_path / "out.pt"], check=True
    )
    for name, out in torch.load(tmp_path / "out.pt").items():
        torch.testing.assert_close(out, layers[name](x, key_mask=real).merged, msg=name)


# What must hold whatever is chosen: drawn at random from the entries themselves, so that a new entry is tested too.

EXACT = Choice("exact")
# kernels whose decays choose the products
CHOOSING = ("gla", "kda", "gdn2", "rwkv7", "hgrn2", "rwkv6")


@given(configs())
def test_json_round_trip(config):
    again = AttentionConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert again == config and hash(again) == hash(config)


@given(configs(kernel=EXACT), st.booleans())
def test_rows_sum_to_what_the_normalizer_promises(config, cross):
    try:
        _, _, steps = run(config, cross)
    except ConfigError:
        assert cross, "what was built runs on one sequence"
        return
    weights = steps.weights if steps.normalized is None else steps.normalized
    allowed = (
        torch.ones_like(weights, dtype=torch.bool)
        if steps.mask is None
        else steps.mask.expand_as(weights)
    )
    rows, sees = weights.sum(-1), allowed.any(-1).float()
    if config.has("normalizer", "sums to one"):
        torch.testing.assert_close(rows, sees, rtol=1e-4, atol=1e-4)
    elif config.has("normalizer", "at most one"):
        assert (rows <= 1 + 1e-5).all() and not rows[sees == 0].any()
    assert (weights >= 0).all() and not weights[~allowed].any()


@given(configs(), st.booleans(), st.booleans())
def test_no_nan_in_any_output_or_gradient(config, cross, record):
    try:
        finite(*run(config, cross, record))
    except ConfigError:
        assert cross, "what was built runs on one sequence"


@given(configs(mask=Choice("causal")), st.booleans())
def test_causal_by_gradient(config, record):
    x, _, steps = run(config, record=record)
    for i in range(T - 1):
        (felt,) = torch.autograd.grad(steps.merged[:, i].sum(), x, retain_graph=True)
        rounding = 1e-6 if config.kernel.key in CHOOSING else 0.0  # by whole chunks
        assert (felt[:, i + 1 :].abs() <= rounding).all()


@given(configs(position=Choice("none"), mask=Choice("none")), st.permutations(range(T)))
def test_without_positions_order_is_invisible(config, order):
    # Permuting the inputs permutes the outputs, for all that has no places of its own.
    if any(config.has(axis, "own positions") for axis in ("projection", "kernel")):
        return
    layer, x = Attention(config).eval(), torch.randn(B, T, C)
    if layer.projection.reads_key_mask or config.has("normalizer", "reads order"):
        return
    torch.testing.assert_close(
        layer(x[:, order]).merged, layer(x).merged[:, order], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("key", [e.key for e in AXES["kernel"] if "same" in e.traits])
@given(data=st.data())
def test_kernels_of_the_same_weights_agree_with_exact(key, data):
    config = data.draw(configs(kernel=Choice(key)))
    torch.manual_seed(7)
    x, _, fast = run(config, record=False)
    torch.manual_seed(7)
    y, _, exact = run(config.with_(kernel=EXACT))
    torch.testing.assert_close(fast.merged, exact.merged, rtol=1e-4, atol=2e-5)
    fast.merged.square().sum().backward()
    exact.merged.square().sum().backward()
    # a temperature near zero makes gradients that are hundreds large
    largest = max(1.0, y.grad.abs().max().item())
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=2e-4 * largest)


@given(configs(kernel=EXACT))
def test_what_nobody_looks_at_is_fused_where_it_can_be(config):
    assert (Attention(config).fast_kernel is Attention(config).kernel) == (
        why_not_fused(config) is not None
    )


@each("axis", [axis for axis in AXES if axis != "mask"])
def test_every_choice_decodes_by_steps_as_it_reads_at_once(axis):
    for item in AXES[axis]:
        try:
            config = AttentionConfig(C, H, mask="causal", **{axis: plain(axis, item.key)})
        except ConfigError as refusal:
            assert "causal" in str(refusal)
            continue
        if config.has("position", "other rows") or config.has("projection", "one sequence"):
            continue  # it decodes by Attention.step alone
        layer, x = Attention(config).eval(), torch.randn(1, T, C)
        whole = layer(x).merged
        steps = [layer(x[:, t : t + 1], x[:, : t + 1], offset=t).merged for t in range(T)]
        torch.testing.assert_close(
            torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5, msg=partial("{}: {}".format, item.key)
        )


# A layer that reads a text in parts, with a cache, gives what it gives for the whole text, and stores what it says.


TEXTS, LENGTH, WIDTH, HEADS = 2, 11, 24, 3
STATES = [
    item.key for item in AXES["kernel"] if "state" in item.traits and not item.source
]  # in chunks


# the second text begins after three of padding
LEFT = torch.arange(LENGTH) >= torch.tensor([[0], [3]])


@each(("padded", "record"), [(False, False), (True, False), (True, True)])
@each(("axis", "key"), ENTRIES)
def test_parts_give_what_the_whole_texts_give(axis, key, padded, record):
    config, real = causal_config(config_of(axis, key)), LEFT if padded else None
    layer = perturbed(Attention(config, add_positions=True).eval())
    x = torch.randn(TEXTS, LENGTH, WIDTH)
    in_parts, cache = read_in_parts(layer, x, key_mask=real, record=record)
    whole, seen = layer(x, key_mask=real, record=record).merged, LEFT | (not padded)
    torch.testing.assert_close(in_parts[seen], whole[seen], rtol=1e-4, atol=2e-5)
    assert cache.length == LENGTH and (
        torch.equal(cache.real, LEFT) if padded else cache.real is None
    )
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
def test_state_gives_what_whole_text_gives_in_any_parts(key, beside):
    if (key, beside.get("position")) == ("delta_product", "rope"):
        return  # refused, as its further keys would not turn
    # Random parts of 1 to 13 of 37 tokens, chunks of 8: the state is all that is stored, and its size stays.
    config = AttentionConfig(WIDTH, HEADS, kernel=Choice.of(key, chunk=8), mask="causal", **beside)
    layer, x = Attention(config, add_positions=True).eval(), torch.randn(TEXTS, 37, WIDTH)
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
def test_a_state_grows_with_nothing(key):
    layer = Attention(AttentionConfig(WIDTH, HEADS, kernel=key, mask="causal")).eval()
    # features × (value and 1), the last key and value beside those before, else key × value
    width = {"linear": 8 * 9, "performer": 128 * 9, "trapezoid": 9 * 9}.get(key, 8 * 8)
    assert [layer.step(torch.randn(1, length, WIDTH))[1].numbers for length in (1, 7, 300)] == [
        HEADS * width
    ] * 3
    _, cache = layer.step(torch.randn(TEXTS, 5, WIDTH))
    _, same = layer.step(torch.randn(TEXTS, 0, WIDTH), cache)
    assert same.length == 5 and torch.equal(same.state, cache.state)


def test_each_kernel_carries_a_state_or_says_why_not():
    reasons = {
        item.key: why_no_state(
            example_config("kernel", item.key, WIDTH, 3).with_(mask=Choice("causal"))
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
    # NTK rotates them again as the text grows; without a causal mask a token sees later ones.
    x = torch.randn(TEXTS, LENGTH, WIDTH)
    ntk = Choice.of("ntk_rope", original=32)
    for other, word in ({"position": ntk, "mask": "causal"}, "rotates"), ({}, "later ones"):
        config = AttentionConfig(WIDTH, HEADS, kernel="linear").with_(**other)
        cache = read_in_parts(Attention(config), x)[1]
        assert (
            word in why_no_state(config)
            and cache.state is None
            and cache.heads[0].shape[-2] == LENGTH
        )


def test_recorded_steps_keep_the_keys():
    layer, x = (
        Attention(AttentionConfig(WIDTH, HEADS, kernel="gated_delta", mask="causal")).eval(),
        torch.randn(TEXTS, LENGTH, WIDTH),
    )
    first, cache = layer.step(x[:, :6], record=True)
    later, _ = layer.step(x[:, 6:], cache, record=True)
    torch.testing.assert_close(
        (later.weights, layer.step(x[:, 6:], cache)[0].merged),
        (layer(x).weights[:, :, 6:], later.merged),
    )
    pytest.raises(ValueError, layer.step, x[:, 6:], layer.step(x[:, :6])[1], record=True).match(
        "record from the first"
    )


def test_a_linear_state_by_hand():
    # elu + 1 of keys 1 and 2 is 2 and 3: the state is 2·1 + 3·2 = 8 of values and 2 + 3 = 5 of weights.
    layer = Attention(
        AttentionConfig(1, 1, projection="identity", score="dot", kernel="linear", mask="causal")
    )
    _, cache = layer.step(torch.tensor([[[1.0]]]))
    second, cache = layer.step(torch.tensor([[[2.0]]]), cache)
    assert cache.state.flatten().tolist() == [8.0, 5.0] and second.merged.item() == pytest.approx(
        8 / 5
    )


@pytest.mark.parametrize("query_latent", [0, 10])
def test_absorbed_latents_give_the_output(query_latent):
    # Latents of 5 numbers, smaller than a head of 8, in fp64: W_uk moves to the query, W_uv to the output.
    projection = Choice.of("latent", latent=5, rope=4, query_latent=query_latent)
    layer = Attention(AttentionConfig(WIDTH, HEADS, projection=projection, mask="causal")).double()
    x = torch.randn(TEXTS, LENGTH, WIDTH, dtype=torch.float64)
    assert isinstance(layer.projection, Latent) and layer.projection.absorbs
    steps, _ = layer.step(x)
    assert steps.v.shape == (TEXTS, HEADS, LENGTH, 5 + 4), (
        "every head reads what is stored, the latents with their shared key"
    )
    agree(read_in_parts(layer, x)[0], layer(x).merged, list(layer.parameters()))


def test_latents_are_expanded_for_what_reads_heads():
    for other in ({"score": "cosine"}, {"position": "shaw"}):
        assert not Attention(
            AttentionConfig(WIDTH, HEADS, projection="latent").with_(**other)
        ).projection.absorbs


@each("score", ["scaled_dot", "qk_norm"])
def test_keys_are_stored_as_they_are_once_rotated(score):
    x, ntk = torch.randn(TEXTS, LENGTH, WIDTH), Choice.of("ntk_rope", original=32)
    for position, rotated in (("rope", True), (ntk, False)):
        layer = Attention(
            AttentionConfig(WIDTH, HEADS, score=score, position=position, mask="causal")
        ).eval()
        stored, whole = read_in_parts(layer, x)[1].heads[0], layer(x)
        torch.testing.assert_close(
            stored, whole.k if rotated else layer.projection(x, x)[1], rtol=1e-4, atol=1e-5
        )


def test_a_layer_that_takes_keys_takes_them_normed():
    # As the shared keys of Gemma 3n; it has no norm for keys of its own, and a token alone gives the same.
    config = AttentionConfig(WIDTH, HEADS, score="qk_norm", position="rope", mask="causal")
    source, taker, x = (
        Attention(config),
        Attention(config, takes_kv=True),
        torch.randn(TEXTS, LENGTH, WIDTH),
    )
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
def test_one_token_reads_the_heads_of_keys(kv_heads):
    layer = Attention(
        AttentionConfig(
            WIDTH, 6, Choice.of("grouped_query", kv_heads=kv_heads), position="rope", mask="causal"
        )
    ).eval()
    x = torch.randn(TEXTS, LENGTH, WIDTH)
    steps, _ = layer.step(x[:, -1:], layer.step(x[:, :-1])[1])
    assert steps.k.shape == (TEXTS, kv_heads, LENGTH, WIDTH // 6) and steps.mask is None
    torch.testing.assert_close(steps.merged, layer(x).merged[:, -1:], rtol=1e-4, atol=1e-5)


def test_two_tokens_by_hand():
    # x itself as q, k and v: the second token weighs 1 and 2 by e^(1/√1·2·1) and e^(2·2).
    layer = Attention(AttentionConfig(1, 1, projection="identity", mask="causal"))
    first, cache = layer.step(torch.tensor([[[1.0]]]))
    second, cache = layer.step(torch.tensor([[[2.0]]]), cache)
    assert (first.merged.item(), second.merged.item()) == (
        1.0,
        pytest.approx((1 * 7.389056 + 2 * 54.59815) / (7.389056 + 54.59815), abs=1e-6),
    )
    assert isinstance(cache, Cache) and cache.heads[0].flatten().tolist() == [1.0, 2.0]


def test_the_last_token_sees_all_keys_of_a_causal_mask():
    x = torch.randn(TEXTS, LENGTH, WIDTH)
    for mask, plain_rows in (("causal", True), (Choice.of("causal_local", lookback=3), False)):
        layer = Attention(AttentionConfig(WIDTH, HEADS, mask=mask, projection="multi_query")).eval()
        steps, _ = layer.step(x[:, -1:], layer.step(x[:, :-1])[1])
        assert (steps.mask is None) == plain_rows
        torch.testing.assert_close(steps.merged, layer(x).merged[:, -1:], rtol=1e-4, atol=1e-6)


UNUSED = {
    "context": torch.ones(TEXTS, LENGTH, WIDTH),
    "mask": torch.ones(1, LENGTH, dtype=torch.bool),
    "offset": 3,
}


@each("record", [True, False])
@each("key", [item.key for item in AXES["kernel"] if item.key not in ("linformer", "nystrom")])
@each("name", UNUSED)
def test_what_a_step_would_not_use_is_refused(name, key, record):
    layer = Attention(example_config("kernel", key, WIDTH, 3).with_(mask=Choice("causal"))).eval()
    x = torch.randn(TEXTS, LENGTH, WIDTH)
    for cache in (Cache(), layer.step(x, record=record)[1]):
        with pytest.raises(ValueError, match=name):
            layer(x, cache=cache, record=record, **{name: UNUSED[name]})  # type: ignore[arg-type]
    layer(x, cache=cache, record=record, offset=LENGTH)


@each("change", [{"position": "selective"}, {"kernel": "linear"}])
def test_keys_that_a_step_would_not_use_are_refused(change):
    layer = Attention(AttentionConfig(WIDTH, HEADS, mask="causal", **change))
    pytest.raises(
        ValueError,
        layer.step,
        torch.randn(TEXTS, LENGTH, WIDTH),
        kv=(torch.randn(TEXTS, HEADS, LENGTH, WIDTH // HEADS),) * 2,
    ).match("kv")


ARGUMENTS = {
    "mask": torch.arange(LENGTH) < 4,
    "scale": 2.0,
    "temperature": 3.0,
    "bias": torch.randn(HEADS, LENGTH, LENGTH),
    "dropout": 0.5,
    "normalizer": Softmax(2.0),
}


@each("beside", [{}, {"temperature": 2.0}, {"normalizer": Softmax()}])
@each("kernel", [item.key for item in AXES["kernel"]])
@each("name", ARGUMENTS)
def test_each_argument_of_attend_counts_or_is_refused(name, kernel, beside):
    q, k, v = torch.randn(3, TEXTS, HEADS, LENGTH, 8)
    try:
        with_it = attend(q, k, v, kernel=kernel, **beside | {name: ARGUMENTS[name]}).out
        without = attend(
            q, k, v, kernel=kernel, **{key: value for key, value in beside.items() if key != name}
        ).out
    except ConfigError:
        return
    assert not torch.allclose(with_it, without)
