"""Kernels with a state of 2025 and 2026 against flash-linear-attention's plain loops, or a loop of the paper's rule."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from core.attention import Attention, AttentionConfig, Choice
from core.attention.kernels.delta import GatedLinear, KimiDelta, unit
from core.attention.kernels.implied import by_chunks
from core.attention.kernels.states import (
    AnotherKey,
    Bonus,
    Comba,
    DeltaProduct,
    EraseAndWrite,
    ForgottenKeys,
    Trapezoid,
)
from tests.attention.drawing import read_in_parts
from tests.cases import each
from tests.oracles.agreement import agree, fla, put

B, H, T, S, D, E, N, P = 2, 3, 37, 29, 6, 5, 3, 2
RULES: dict[str, Callable] = {
    "delta_product": DeltaProduct.rule,
    "gdn2": EraseAndWrite.rule,
    "trapezoid": Trapezoid.rule,
    "rwkv7": AnotherKey.rule,
    "comba": Comba.rule,
    "hgrn2": ForgottenKeys.rule,
    "rwkv6": Bonus.rule,
}
OWN_WEIGHTS: dict[str, dict[str, Any]] = {
    "delta_product": {"steps": N},
    "trapezoid": {"share": 0.75},
    "rwkv7": {"rank": 3},
    "hgrn2": {"least": 0.3},
    "rwkv6": {"rank": 3},
}
SIGNS = torch.tensor([-0.6, 1, 1]).reshape(3, 1, 1, 1, 1)


def drawn(key, queries=T, keys=T, dtype=torch.float64):
    """q, k, v of length 1 and the gates of a rule, some of which forget all."""
    q, k, v = (
        torch.randn(B, H, length, size, dtype=dtype)
        for length, size in ((queries, D), (keys, D), (keys, E))
    )
    gate = torch.rand(5, B, H, keys, 1, dtype=dtype)
    decay = gate[0].pow(6) * -60
    if key == "delta_product":
        more = unit(torch.randn(B, H, keys, N - 1, D, dtype=dtype)).flatten(3)
        gates = [decay, 2 * torch.rand(B, H, keys, N, dtype=dtype), more]
    elif key == "gdn2":
        gates = [
            torch.rand(B, H, keys, D, dtype=dtype).pow(6) * -60,
            2 * torch.rand(B, H, keys, D, dtype=dtype),
        ]
    elif key == "rwkv7":
        k = torch.cat((3 * k, unit(torch.randn_like(k))), -1)
        gates = list(torch.rand(3, B, H, keys, D, dtype=dtype) * SIGNS)
    elif key == "comba":
        gates = [decay, 2 * gate[1], gate[2], gate[3]]
    elif key == "hgrn2":
        gates = [gate[1]]
    elif key == "rwkv6":
        gates = [torch.rand(B, H, keys, D, dtype=dtype).pow(6) * -60]
        gates.append(torch.randn(1, H, 1, D, dtype=dtype).expand_as(gates[0]))
    else:
        gates = [decay, gate[1], gate[2], 3 * torch.randn(B, H, keys, P, dtype=dtype)]
    k = k if key in ("rwkv7", "hgrn2", "rwkv6") else unit(k)
    return [x.detach().requires_grad_() for x in (unit(q), k, v, *gates)]


def ruled(key, q, k, v, *gates, chunk, offset=0, past=None):
    more = [torch.ones_like(gates[0][:, :1])] if key == "trapezoid" else []
    k = torch.cat((k, k), -1) if key == "comba" else k
    return by_chunks(RULES[key], q, k, v, [*gates, *more], chunk, offset, past)


def loop(key, q, k, v, *own):
    """The output and the last state, token by token; queries after the last key read the state as it is."""
    length, late, gates = q.shape[2], q.shape[2] - k.shape[2], list(own)
    if late < 0:
        q = F.pad(q, (0, 0, 0, -late))
    if key == "trapezoid":
        return trapezoid_loop(q, k, v, *gates)[:, :, :length], None
    if late > 0:  # tokens that write nothing
        k, v, *gates = (
            torch.cat((x, x.new_zeros(*x.shape[:2], late, x.shape[-1])), 2) for x in (k, v, *gates)
        )
    if key == "rwkv7":
        (decay, rate, gain), (k, erased) = gates, k.chunk(2, -1)
        run = fla("generalized_delta_rule/dplr", "dplr_recurrence")
        out, state = run(q * D**0.5, gain * k, v, (-erased).float(), rate * erased, decay)
        return out[:, :, :length], state
    # here the bonus may differ from token to token; the layer's is theirs, below
    if key == "rwkv6":
        run, none = fla("rwkv6", "naive_recurrent_rwkv6", "recurrent_naive"), torch.zeros(H, D)
        out, state = run(q, k, v, gates[0], none, 1.0, output_final_state=True)
        return (out + (q * gates[1] * k).sum(-1, keepdim=True) * v)[:, :, :length], state
    q, k, v, *gates = (x.transpose(1, 2) for x in (q, k, v, *gates))
    if key == "gdn2":
        run = fla("gdn2", "naive_recurrent_gdn2")
        ones = torch.ones_like(v)
        out, state = run(q, k, v, *gates, ones, scale=1.0, output_final_state=True)
    elif key == "comba":
        # its naive_recurrent_comba decays before it erases, unlike the paper and the kernel in use
        decay, write, erase, correct = gates
        run, shared = fla("comba", "naive_chunk_comba"), (decay.squeeze(-1), write.squeeze(-1))
        out, state = run(q - correct * k, k, v, erase * k, *shared, 8, 1.0, output_final_state=True)
    elif key == "hgrn2":
        keys, run = gates[0] * torch.sigmoid(-k), fla("gla", "naive_recurrent_gla")
        out, state = run(q * D**0.5, keys, v, (1 - keys).log(), output_final_state=True)
    else:
        decay, write, more = gates
        keys = torch.cat((k, more), -1).unflatten(-1, (N, D)).transpose(2, 3).flatten(1, 2)
        run = fla("gated_delta_product", "naive_recurrent_gated_delta_product")
        shares, decay = write.transpose(2, 3).flatten(1, 2), decay.squeeze(-1)
        out, state = run(q, keys, v.repeat_interleave(N, 1), decay, shares, 1.0, num_householder=N)
    return out.transpose(1, 2)[:, :, :length], state


def trapezoid_loop(q, k, v, decay, now, later, turn):
    """Lahoti et al. 2026: pairs of channels are complex numbers, and a token's frame turns with it."""

    def pairs(x):
        rest = torch.complex(x[..., 2 * P :], torch.zeros_like(x[..., 2 * P :]))
        return torch.cat((torch.view_as_complex(x[..., : 2 * P].unflatten(-1, (P, 2))), rest), -1)

    q, k = pairs(q), pairs(k)
    state, outs, before = (
        torch.zeros(B, H, q.shape[-1], v.shape[-1], dtype=torch.complex128),
        [],
        0.0,
    )
    for t in range(q.shape[2]):
        if t < k.shape[2]:
            own = k[:, :, t, :, None] * v[:, :, t, None]
            angle = torch.cat((turn[:, :, t], turn.new_zeros(B, H, D - 2 * P)), -1)
            fade = torch.polar(decay[:, :, t].exp().expand_as(angle), -angle)[..., None]
            state = fade * (state + later[:, :, t, :, None] * before) + now[:, :, t, :, None] * own
            before = own
        outs.append((q[:, :, t, None].conj() @ state).real)
    return torch.cat(outs, 2)


def as_fp32(key, given):
    """The same numbers in the precision of the loop."""
    return given if key == "trapezoid" else [x.detach().float().requires_grad_() for x in given]


@each(("key", "chunk"), [(key, chunk) for key in RULES for chunk in (1, 8)])
@each("keys", [T, S])
def test_in_chunks_it_is_the_recurrence(key, chunk, keys):
    given = as_fp32(key, drawn(key, T, keys))
    ours, _ = ruled(key, *given, chunk=chunk)
    agree(ours, loop(key, *given)[0], given)


@each("key", RULES)
@each(("chunk", "cut"), [(1, 5), (8, 24)])
def test_state_that_is_handed_on_stands_for_keys_before(key, chunk, cut):
    given = as_fp32(key, drawn(key))
    first, rest = zip(*(x.split((cut, T - cut), dim=2) for x in given), strict=True)
    out, state = ruled(key, *first, chunk=chunk)
    later, last = ruled(key, *rest, chunk=chunk, past=state)
    theirs, end = loop(key, *given)
    agree(torch.cat((out, later), 2), theirs, given)
    if end is not None:
        torch.testing.assert_close(last, end, rtol=1e-4, atol=1e-5)


@each("key", RULES)
@each(("queries", "offset"), [(5, 3), (11, 24)])
def test_it_takes_a_cache_of_keys(key, queries, offset):
    q, *rest = given = as_fp32(key, drawn(key, offset + queries, S))
    ours, _ = ruled(key, q[:, :, offset:], *rest, chunk=8, offset=offset)
    agree(ours, loop(key, *given)[0][:, :, offset:], given, felt=False)


def layer_of(key, **choices):
    config = AttentionConfig(
        H * D, H, mask="causal", kernel=Choice.of(key, chunk=8, **OWN_WEIGHTS.get(key, {}))
    )
    layer = Attention(config.with_(**choices)).double().eval()
    put(*((weight, weight + 0.4 * torch.randn_like(weight)) for weight in layer.parameters()))
    return layer


@each("key", RULES)
def test_a_layer_is_the_loop_of_its_own_gates(key):
    layer, x = layer_of(key), torch.randn(B, T, H * D, dtype=torch.float64, requires_grad=True)
    steps = layer(x)
    q, k = layer.kernel.prepare(steps.q, steps.k, layer.score.scale)
    gates = layer.kernel.gates(x)
    if key == "comba":  # whose second half is scaled as queries are
        scale = layer.score.scale
        q, k = q / scale, k.chunk(2, -1)[0]
        theirs = scale * loop(key, q, k, steps.v, *gates)[0]
        agree(steps.out, theirs.double(), [x], rel=1e-5, gradient=1e-4)
        return
    theirs, _ = loop(key, q, k, steps.v, *(gates[:4] if key == "trapezoid" else gates))
    agree(steps.out, theirs.double(), [x], rel=1e-5, gradient=1e-4)
    torch.testing.assert_close(steps.weights @ steps.v, steps.out)


def test_the_bonus_is_that_of_rwkv6():
    layer, x = layer_of("rwkv6"), torch.randn(B, T, H * D, dtype=torch.float64, requires_grad=True)
    steps, run = layer(x), fla("rwkv6", "naive_recurrent_rwkv6", "recurrent_naive")
    own, (decay, _) = layer.kernel, layer.kernel.gates(x)
    theirs, _ = run(steps.q, steps.k, steps.v, decay, own.bonus[:, 0], layer.score.scale)
    agree(steps.out, theirs.double(), [x, own.bonus], rel=1e-5, gradient=1e-4)


def test_a_token_is_read_by_its_bonus_and_fades():
    # w = 1/2, u = 3, k = q = 1: 3 v_0, then v_0 + 3 v_1, then v_0 / 2 + v_1 + 3 v_2.
    one = torch.ones(1, 1, 3, 1)
    v = torch.tensor([1.0, 10, 100]).view(1, 1, 3, 1)
    out, state = by_chunks(Bonus.rule, one, one, v, [one * math.log(0.5), 3 * one], 1, 0, None)
    assert out.flatten().tolist() == pytest.approx([3, 31, 310.5])
    assert state.item() == pytest.approx(0.25 + 5 + 100)


@each("key", RULES)
@each("record", [True, False])
def test_hidden_tokens_are_not_there(key, record):
    # Before, between and after real ones, in one call and in steps: what is left is the text without them.
    layer, x = layer_of(key), torch.randn(B, T, H * D, dtype=torch.float64)
    real = torch.rand(B, T) < 0.6
    real[0, :5], real[0, 20:] = False, False
    steps, (stepped, _) = (
        layer(x, key_mask=real, record=record),
        read_in_parts(layer, x, (4, 1, 14, 5, T - 24), real),
    )
    for text in range(B):
        alone = layer(x[text : text + 1, real[text]]).merged[0]
        torch.testing.assert_close(steps.merged[text, real[text]], alone)
        torch.testing.assert_close(stepped[text, real[text]], alone)


LOG2 = math.log(2)


@each(
    ("key", "gates"),
    [
        ("delta_product", [-LOG2, 1, 0]),
        ("gdn2", [-LOG2, 0.5]),
        ("trapezoid", [-(LOG2**2), LOG2 / 2, LOG2 / 2, 0, 1]),
        ("rwkv7", [-math.exp(-0.5) / 2, 0.5, 1]),
        ("comba", [-LOG2, 0.5, 0.5, 0]),
        ("hgrn2", [0.7]),
        ("rwkv6", [-1, 0]),
    ],
)
def test_the_gates_of_weights_of_zero_by_hand(key, gates):
    # σ(0) is 1/2 and softplus(0) is log 2, for every token, head and channel.
    kernel = layer_of(key).kernel
    put(*((weight, torch.zeros_like(weight)) for weight in kernel.parameters()))
    assert [gate.unique().tolist() for gate in kernel.gates(torch.randn(B, T, H * D).double())] == [
        [pytest.approx(gate)] for gate in gates
    ]


def test_two_reflections_are_a_quarter_turn():
    # Along (1, 0), then along (1, 1)/√2, both with β = 2: (1, 0) → (−1, 0) → (0, 1), and four tokens turn it back.
    k, more = torch.tensor([1.0, 0]), torch.tensor([1.0, 1]) / math.sqrt(2)
    rows = [x.expand(1, 1, 4, -1) for x in (torch.zeros(1), torch.full((2,), 2.0), more)]
    past, v = torch.tensor([[[[1.0], [0]]]]), torch.zeros(1, 1, 4, 1)
    out, state = by_chunks(
        DeltaProduct.rule,
        torch.tensor([0.0, 1]).expand(1, 1, 4, 2),
        k.expand(1, 1, 4, 2),
        v,
        rows,
        4,
        0,
        past,
    )
    torch.testing.assert_close(out.flatten(), torch.tensor([1.0, 0, -1, 0]))
    torch.testing.assert_close(state, past)


def test_erase_and_write_by_hand():
    # α = (1/2, 1), b = (1, 0): of the faded state (2, 1) the key (0.6, 0.8) reads 1.2, so 2.6 − 1.2 is written.
    q, k = torch.ones(1, 1, 1, 2), torch.tensor([[[[0.6, 0.8]]]])
    decay, erase = torch.tensor([[[[0.5, 1.0]]]]).log(), torch.tensor([[[[1.0, 0]]]])
    past, v = torch.tensor([[[[4.0], [1]]]]), torch.tensor([[[[2.6]]]])
    out, state = by_chunks(EraseAndWrite.rule, q, k, v, [decay, erase], 1, 0, past)
    assert state.flatten().tolist() == pytest.approx([2.84, 2.12]) and out.item() == pytest.approx(
        4.96
    )


def test_trapezoid_by_hand():
    # Δ = 1, a = λ = 1/2, and a quarter turn a token. A token enters by half, then by its other half: the third query sees
    # itself by 1/2, the second not at all, as it stands across, and the first by −1/4, as it stands opposite.
    q = torch.tensor([1.0, 0]).expand(1, 1, 3, 2)
    half, v = torch.full((1, 1, 3, 1), 0.5), torch.tensor([4.0, 6, 8]).reshape(1, 1, 3, 1)
    gates = [half.log(), half, half, torch.full((1, 1, 3, 1), math.pi / 2), torch.ones(1, 1, 3, 1)]
    out, _ = by_chunks(Trapezoid.rule, q, q, v, gates, 2)
    torch.testing.assert_close(out.flatten(), torch.tensor([2.0, 3, 4 - 1]))


def test_another_key_by_hand():
    # w = (1/2, 1), a = (1, 1/2), κ̂ = (0.6, 0.8): of (4, 1), before it fades, 3.2 is read, and (0.6, 0.4) · 3.2 leaves
    # the faded (2, 1); v = 2 is written under (1, 0).
    q, k = torch.ones(1, 1, 1, 2), torch.tensor([[[[1.0, 0, 0.6, 0.8]]]])
    gates = [torch.tensor([[[row]]]) for row in ([math.log(0.5), 0.0], [1.0, 0.5], [1.0, 1.0])]
    past, v = torch.tensor([[[[4.0], [1]]]]), torch.tensor([[[[2.0]]]])
    out, state = by_chunks(AnotherKey.rule, q, k, v, gates, 1, 0, past)
    assert state.flatten().tolist() == pytest.approx([2.08, -0.28]) and out.item() == pytest.approx(
        1.8
    )


def test_comba_by_hand():
    # α = β = σ(b) = d = 1/2: of the 4 under the key 2 is read, half of v = 7 less 2 is added to the faded 2, and half the
    # query is its key. fla's naive_recurrent_comba reads 1, as it decays first; the paper's transition is α − σ(b) β k kᵀ,
    # and so is that of the kernel that fla ships (fused_recurrent_comba: v −= hᵀp, then h *= e^g).
    one = torch.ones(1, 1, 1, 1)
    gates = [math.log(0.5) * one, one / 2, one / 2, one / 2]
    k = torch.tensor([[[[1.0, 1.0]]]])
    out, state = by_chunks(Comba.rule, one, k, 7 * one, gates, 1, 0, 4 * one)
    assert state.item() == pytest.approx(4.5) and out.item() == pytest.approx(2.25)


def test_forgotten_keys_by_hand():
    # Both gates are 1/2, as σ(0), of which the least gate 1/2 keeps half of the rest: α = 3/4, k = 1/4.
    ones = torch.ones(1, 1, 2, 1)
    v = torch.tensor([4.0, 8]).reshape(1, 1, 2, 1)
    out, _ = by_chunks(ForgottenKeys.rule, ones, 0 * ones, v, [ones / 2], 2)
    assert out.flatten().tolist() == pytest.approx([1.0, 2.75])


def test_with_one_gate_erase_and_write_is_kimi_delta():
    q, k, v, decay, _ = drawn("gdn2")
    write = 2 * torch.rand(B, H, T, 1, dtype=torch.float64)
    ours = ruled("gdn2", q, k, write * v, decay, write.expand(-1, -1, -1, D), chunk=8)[0]
    torch.testing.assert_close(ours, by_chunks(KimiDelta.rule, q, k, v, [decay, write], 8)[0])


def test_a_plain_trapezoid_is_a_state_space():
    q, k, v, decay, step, *_ = drawn("trapezoid")
    still = torch.zeros(B, H, T, P, dtype=torch.float64)
    ours = ruled("trapezoid", q, k, v, decay, step, torch.zeros_like(step), still, chunk=8)[0]
    torch.testing.assert_close(
        ours, by_chunks(GatedLinear.rule, q, k * step, v, [decay.expand(-1, -1, -1, D)], 8)[0]
    )


@each("chunk", [16, 40])
def test_delta_products_in_segments_are_those_at_once(chunk, monkeypatch):
    # A segment holds whole chunks: with 40 tokens each, 80 of 100.
    layer, x = (
        Attention(AttentionConfig(12, 2, kernel=Choice.of("delta_product", chunk=chunk))).double(),
        torch.randn(2, 190, 12),
    )
    x, real = x.double().requires_grad_(), torch.rand(2, 190) < 0.8
    whole = layer(x, key_mask=real, record=False).out
    monkeypatch.setattr(layer.kernel, "segment", 100)
    agree(layer(x, key_mask=real, record=False).out, whole, (x, *layer.kernel.parameters()))
