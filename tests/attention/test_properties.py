"""What must hold whatever is chosen: drawn at random from the entries themselves, so that a new entry is tested too."""

import json
from functools import partial

import pytest
import torch
from hypothesis import given, strategies as st

from core.attention import AXES, Attention, AttentionConfig, Choice, ConfigError, why_not_fused
from tests.attention.drawing import B, C, H, T, configs, plain, run
from tests.cases import each

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
    assert (weights >= 0).all()
    assert not weights[~allowed].any()


@given(configs(), st.booleans(), st.booleans())
def test_no_nan_in_any_output_or_gradient(config, cross, record):
    try:
        x, context, steps = run(config, cross, record)
    except ConfigError:
        assert cross, "what was built runs on one sequence"
        return
    assert steps.merged.isfinite().all()
    steps.merged.sum().backward()
    grads = [
        inputs.grad for inputs in (x, context) if inputs is not None and inputs.grad is not None
    ]
    assert grads and all(grad.isfinite().all() for grad in grads)


@each("key", [e.key for e in AXES["normalizer"]])
def test_a_row_that_sees_nothing_gives_zeros_and_no_gradient(key):
    layer = Attention(AttentionConfig(C, H, normalizer=key))
    x, mask = torch.randn(B, T, C, requires_grad=True), torch.ones(T, T, dtype=torch.bool)
    mask[2] = False
    steps = layer(x, mask=mask)
    assert not steps.weights[:, :, 2].any() and not steps.out[:, :, 2].any()
    (felt,) = torch.autograd.grad(steps.out[:, :, 2].sum(), x, retain_graph=True)
    assert not felt.any()
    steps.merged.sum().backward()
    assert x.grad.isfinite().all()


@given(configs(kernel=EXACT))
def test_a_query_feels_exactly_what_its_mask_allows(config):
    """By gradient, so whatever the mask's inside is: row i moves with value j only where (i, j) is allowed."""
    _, _, steps = run(config)
    v = steps.v.detach().requires_grad_()
    allowed = torch.ones(1, 1, T, T, dtype=torch.bool) if steps.mask is None else steps.mask
    if allowed.shape[1] not in (1, steps.out.shape[1]):
        return  # folded heads have masks of two heads each
    allowed = allowed.expand(B, steps.out.shape[1], T, T)
    out = steps.weights.detach() @ v
    for i in range(T):
        (felt,) = torch.autograd.grad(out[:, :, i].sum(), v, retain_graph=True)
        assert not (felt.abs().sum(-1) > 0)[~allowed[:, :, i]].any()


@given(configs(mask=Choice("causal")), st.booleans())
def test_causal_by_gradient(config, record):
    """The output at i does not change with any input after i."""
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
    """Two ways to the same output and the same gradient."""
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
    """A model that trains gets the same output as the one whose steps are drawn."""
    assert (Attention(config).fast_kernel is Attention(config).kernel) == (
        why_not_fused(config) is not None
    )


@each("axis", [axis for axis in AXES if axis != "mask"])
def test_every_choice_decodes_by_steps_as_it_reads_at_once(axis):
    """Queries asked one at a time, at their place among the keys so far, get what they get together."""
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
