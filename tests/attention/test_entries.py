"""Every entry of every axis, and every pair across axes: what it says of itself, and that it runs or says why not."""

import copy
import io
import itertools
import json
import pickle
import subprocess
import sys
from functools import partial

import pytest
import torch
from hypothesis import given, strategies as st

from core.attention import (
    AXES,
    PRESETS,
    Attention,
    AttentionConfig,
    Choice,
    ConfigError,
    Steps,
    attend,
    entry,
    why_not_fused,
)
from core.attention.config import example_config
from tests.attention import drawing
from tests.attention.drawing import ENTRIES, B, C, H, T, configs, plain, run
from tests.cases import each


def finite(x, context, steps):
    assert isinstance(steps, Steps)
    assert steps.merged.shape == (B, T, C)
    assert steps.merged.isfinite().all()
    steps.merged.sum().backward()
    grads = [one.grad for one in (x, context) if one is not None and one.grad is not None]
    assert grads and all(grad.isfinite().all() for grad in grads)


def test_every_pair_is_built_or_refused_by_name():
    wrong = [
        reason
        for (one, other), reason in drawing.pairs().items()
        if reason and not (one[1] in reason and other[1] in reason and "take" in reason)
    ]
    assert not wrong


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
    """The same without the choices that refuse two sequences alone: they would hide the others of their row."""

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
    layer, x = Attention(config, add_positions=True).to(dtype), torch.randn(B, T, C, dtype=dtype)
    for record in (True, False):
        steps = layer(x, key_mask=torch.ones(B, T, dtype=torch.bool), record=record)
        tensors = [t for t in vars(steps).values() if isinstance(t, torch.Tensor)]
        assert {t.dtype for t in tensors} - {torch.bool} == {dtype}


@each(("axis", "key"), ENTRIES)
def test_every_entry_computes_in_bfloat16(axis, key):
    """As a run with precision = bf16 calls it: linear maps give halves, and what is added to them may be float32."""
    layer, x = (
        Attention(AttentionConfig(C, H, **{axis: plain(axis, key)})),
        torch.randn(B, T, C, requires_grad=True),
    )
    with torch.autocast("cpu", torch.bfloat16):
        merged = layer(
            x, key_mask=torch.arange(T) < torch.tensor([4, 3])[:, None], record=False
        ).merged
    merged.float().sum().backward()
    assert merged.isfinite().all() and x.grad.isfinite().all()


POSITIONS = [AttentionConfig(C, H, position=plain("position", e.key)) for e in AXES["position"]]


@each("shape", [(1, 1), (1, 7), (7, 1)])
@each("config", [*(preset.config(C, H) for preset in PRESETS), *POSITIONS])
def test_presets_and_positions_at_every_edge(config, shape):
    queries, keys = shape
    layer = Attention(config, add_positions=True)
    try:
        steps = layer(torch.randn(1, queries, C), torch.randn(1, keys, C))
    except ConfigError as refusal:
        assert (queries != keys or layer.config.projection.key == "short_conv") and "take" in str(
            refusal
        )
        return
    assert steps.merged.shape == (1, queries, C) and steps.merged.isfinite().all()


@each(("axis", "key"), ENTRIES)
def test_an_entry_says_everything(axis, key):
    item = entry(axis, key)
    assert (
        item.name
        and item.latex
        and len(item.meaning) > 20
        and 2014 <= item.year <= 2030
        and (not item.url or item.url.startswith("https://"))
    )
    for param in item.params:
        assert param.meaning and param.name
        assert param.check(param.default, key) == param.default
        if not param.choices and not isinstance(param.default, bool | str):
            assert param.low <= param.default <= param.high and param.step
            for beyond in (param.low - 1, param.high + 1, float("nan"), "x", None):
                with pytest.raises(ConfigError):
                    param.check(beyond, key)


def test_keys_are_unique():
    for axis, entries in AXES.items():
        assert len({e.key for e in entries}) == len(entries), axis


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


def test_a_refusal_carries_its_axes_and_alternatives_as_data():
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
        assert not felt[:, i + 1 :].any()


@given(configs(position=Choice("none"), mask=Choice("none")), st.permutations(range(T)))
def test_without_positions_order_is_invisible(config, order):
    """Permuting the inputs permutes the outputs, for all that has no places of its own."""
    if config.has("projection", "own positions") or config.has("kernel", "own positions"):
        return
    layer, x = Attention(config).eval(), torch.randn(B, T, C)
    torch.testing.assert_close(
        layer(x[:, order]).merged, layer(x).merged[:, order], rtol=1e-4, atol=1e-5
    )


@each("position", [e.key for e in AXES["position"] if e.key != "none"])
def test_with_positions_order_is_seen(position):
    layer, x = (
        Attention(AttentionConfig(C, H, position=position), add_positions=True).eval(),
        torch.randn(B, T, C),
    )
    for weight in layer.position.parameters():  # tables start small, or at zero
        torch.nn.init.normal_(weight)
    order = torch.tensor([1, 0, 2, 3, 4])
    assert (layer(x[:, order]).merged - layer(x).merged[:, order]).abs().max() > 1e-3


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
    largest = max(
        1.0, y.grad.abs().max().item()
    )  # a temperature near zero makes gradients that are hundreds large
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
