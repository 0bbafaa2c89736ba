"""Kernels that pass a state on, against the papers' recurrences, their matrices, and transformers; gradients too."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import KimiLinearConfig, Mamba2Config, Qwen3NextConfig
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer, mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import (
    Qwen3NextGatedDeltaNet,
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.cost import attention_cost
from core.attention.kernels import delta
from core.attention.kernels.delta import (
    STRONGEST,
    by_halves,
    decay_products,
    delta_rule,
    gated_linear,
    kimi_delta,
    log_linear,
    state_space,
    tree_levels,
    unit,
)
from tests.cases import each
from tests.drawn_costs import Case, taken
from tests.oracles.test_kernels import B, D, H, S, T, heads, same

# The gated delta rule, and KDA in segments, against the paper's recurrence and Qwen3-Next; gradients too.


def gates(keys=T, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """log α and β, (B, H, S), of a state that keeps all, some or nothing."""
    decay = -torch.rand(B, H, keys, dtype=dtype).pow(4).mul(20)
    return decay.requires_grad_(), torch.rand(B, H, keys, dtype=dtype).requires_grad_()


def delta_recurrence(q, k, v, decay, write):
    """The rule as the paper writes it, one token at a time: S ← α S (I − β k kᵀ) + β v kᵀ, out = S q."""
    state, outs = torch.zeros(B, H, v.shape[-1], D, dtype=v.dtype), []
    for t in range(q.shape[2]):
        if t < k.shape[2]:
            key, share = k[:, :, t, :, None], write[:, :, t, None, None]
            erased = torch.eye(D, dtype=k.dtype) - share * key @ key.mT
            state = (
                decay[:, :, t, None, None].exp() * state @ erased
                + share * v[:, :, t, :, None] @ key.mT
            )
        outs.append((state @ q[:, :, t, :, None]).squeeze(-1))
    return torch.stack(outs, 2)


@each("peer", [torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule])
def test_the_gated_delta_rule_against_transformers(peer):
    """Theirs divides queries by √D, as the scaled product does."""
    (q, k, v), both = heads(T, T), gates()
    turned = [x.transpose(1, 2) for x in (q, k, v, *both)]
    theirs = peer(
        turned[0], turned[1], turned[2], g=turned[3], beta=turned[4], use_qk_l2norm_in_kernel=True
    )[0]
    same(
        delta_rule(unit(q) * D**-0.5, unit(k), v, *both, 8)[0],
        theirs.transpose(1, 2),
        [q, k, v, *both],
    )


def test_the_gated_delta_layer_against_qwen3_next():
    """Its whole layer, with the convolution, norm and gate around the rule; our kernel has the same gates in it."""
    size, value, width = 6, 5, H * 7
    peer = Qwen3NextGatedDeltaNet(
        Qwen3NextConfig(
            hidden_size=width,
            linear_num_key_heads=H,
            linear_num_value_heads=H,
            linear_key_head_dim=size,
            linear_value_head_dim=value,
            num_hidden_layers=1,
            layer_types=["linear_attention"],
        ),
        layer_idx=0,
    )
    layer = Attention(AttentionConfig(width, H, kernel=Choice.of("gated_delta", chunk=5)))
    with torch.no_grad():
        both = peer.in_proj_ba.weight.unflatten(0, (H, 2))
        layer.kernel.write.weight.copy_(both[:, 0])
        layer.kernel.forget.weight.copy_(both[:, 1])
        layer.kernel.forget.bias.copy_(peer.dt_bias)
        layer.kernel.log_rate.copy_(peer.A_log)
    layer.score.scale = size**-0.5  # of its own sizes, which are not width / H
    x = torch.randn(B, T, width, requires_grad=True)
    *qkv, gate, _, _ = peer.fix_query_key_value_ordering(peer.in_proj_qkvz(x), peer.in_proj_ba(x))
    mixed = torch.cat([part.flatten(2) for part in qkv], -1).mT
    mixed = torch.nn.functional.silu(
        peer.conv1d(mixed)[..., :T]
    ).mT  # each number over the last four tokens
    q, k, v = (
        part.unflatten(2, (H, -1)).transpose(1, 2)
        for part in mixed.split([H * size, H * size, H * value], -1)
    )
    out = layer.kernel(layer.kernel_inputs(q, k, v, x, x)).out.transpose(1, 2)
    ours = peer.out_proj(
        peer.norm(out.flatten(0, 2), gate.flatten(0, 2)).unflatten(0, (B, T, H)).flatten(2)
    )
    mine = [x, layer.kernel.log_rate, layer.kernel.forget.bias]
    same(ours, peer(x), mine, [x, peer.A_log, peer.dt_bias])


def test_kda_in_segments_is_kda_at_once(monkeypatch):
    """37 tokens after a state, in segments of 16: outputs, the last state and all gradients."""
    q, k, v = (
        torch.randn(2, 3, 37, size, dtype=torch.float64, requires_grad=True) for size in (6, 6, 5)
    )
    decay, write = (
        -torch.rand(2, 3, 37, 6, dtype=torch.float64),
        torch.rand(2, 3, 37, dtype=torch.float64),
    )
    past, results = torch.randn(2, 3, 6, 5, dtype=torch.float64), []
    for segment in (64, 16):
        monkeypatch.setattr(delta, "SEGMENT", segment)
        out, state = delta.kimi_delta(q, k, v, decay, write, 8, past=past)
        grads = torch.autograd.grad(out.square().sum() + state.sum(), (q, k, v))
        results.append((out, state, *grads))
    torch.testing.assert_close(*results)


def log_decays(*shape, dtype=torch.float64):
    """log α of a state that keeps all, some or nothing: e^(−60) is 0 beside 1."""
    return torch.rand(B, H, *shape, dtype=dtype).pow(6).mul(-60).requires_grad_()


def shares(*shape, dtype=torch.float64):
    return torch.rand(B, H, *shape, dtype=dtype).requires_grad_()


def gla_recurrence(q, k, v, decay):
    """S ← Diag(α) S + k vᵀ, out = Sᵀ q, one token at a time."""
    state, outs = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1], dtype=v.dtype), []
    for t in range(q.shape[2]):
        if t < k.shape[2]:
            state = (
                decay[:, :, t].exp().diag_embed() @ state + k[:, :, t, :, None] @ v[:, :, t, None]
            )
        outs.append(q[:, :, t, None] @ state)
    return torch.cat(outs, 2)


def kda_recurrence(q, k, v, decay, write):
    """S ← (I − β k kᵀ) Diag(α) S + β k vᵀ, out = Sᵀ q, one token at a time."""
    state, outs = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1], dtype=v.dtype), []
    for t in range(q.shape[2]):
        if t < k.shape[2]:
            key, share = k[:, :, t, :, None], write[:, :, t, None, None]
            erased = torch.eye(k.shape[-1], dtype=k.dtype) - share * key @ key.mT
            state = (
                erased @ decay[:, :, t].exp().diag_embed() @ state + share * key @ v[:, :, t, None]
            )
        outs.append(q[:, :, t, None] @ state)
    return torch.cat(outs, 2)


def ssd_recurrence(q, k, v, decay, step):
    """S ← a S + Δ k vᵀ, out = Sᵀ q: GLA with one gate for all channels."""
    return gla_recurrence(q, k * step[..., None], v, decay[..., None].expand_as(k))


def zero_decay_rule(q, k, v, write, *where, **past):
    return delta_rule(q, k, v, torch.zeros_like(write), write, *where, **past)


def zero_decay_recurrence(q, k, v, write):
    return delta_recurrence(q, k, v, torch.zeros_like(write), write)


def gates_of(key, keys):
    return {
        "gla": lambda: (log_decays(keys, D),),
        "kda": lambda: (log_decays(keys, D), shares(keys)),
        "ssd": lambda: (log_decays(keys), shares(keys)),
        "delta": lambda: (shares(keys),),
        "gated_delta": lambda: gates(keys, torch.float64),
    }[key]()


FORMS: dict[str, tuple[Callable, Callable]] = {
    "gla": (gated_linear, gla_recurrence),
    "kda": (kimi_delta, kda_recurrence),
    "ssd": (state_space, ssd_recurrence),
    "delta": (zero_decay_rule, zero_decay_recurrence),
}
RULES = FORMS | {"gated_delta": (delta_rule, delta_recurrence)}


@each(
    ("key", "chunk"),
    [*((key, chunk) for key in RULES for chunk in (1, 8, 64)), ("gated_delta", 37)],
)
@each("keys", [T, S])
def test_in_chunks_it_is_the_recurrence(key, chunk, keys):
    """Gradients, too, to every gate; queries past the last key read the last state."""
    (q, k, v), own, (chunked, recurrence) = (
        heads(T, keys, dtype=torch.float64),
        gates_of(key, keys),
        RULES[key],
    )
    same(chunked(q, unit(k), v, *own, chunk)[0], recurrence(q, unit(k), v, *own), [q, k, v, *own])


@each("key", RULES)
@each(("queries", "offset"), [(5, 24), (5, 3), (1, 28), (11, 24)])
def test_it_takes_a_cache(key, queries, offset):
    (_, k, v), own, (chunked, recurrence) = (
        heads(1, S, dtype=torch.float64),
        gates_of(key, S),
        RULES[key],
    )
    q = torch.randn(B, H, offset + queries, D, requires_grad=True, dtype=torch.float64)
    theirs = recurrence(q, unit(k), v, *own)[:, :, offset:]
    same(chunked(q[:, :, offset:], unit(k), v, *own, 8, offset)[0], theirs, [q, k, v, *own])


@each("key", RULES)
@each(("chunk", "cut"), [(1, 5), (8, 1), (8, 5), (8, 24)])
def test_a_state_that_is_handed_on_stands_for_the_keys_before(key, chunk, cut):
    (q, k, v), own, (chunked, recurrence) = (
        heads(T, T, dtype=torch.float64),
        gates_of(key, T),
        RULES[key],
    )
    parts = zip(*(x.split((cut, T - cut), dim=2) for x in (q, unit(k), v, *own)), strict=True)
    out, state = chunked(*next(parts), chunk)
    later, _ = chunked(*next(parts), chunk, past=state)
    same(torch.cat((out, later), 2), recurrence(q, unit(k), v, *own), [q, k, v, *own])


@each("strongest", [0.1, STRONGEST / 8])
def test_one_product_is_what_halves_give_where_little_fades(strongest):
    """In fp64, at decays up to e^(−STRONGEST) over a chunk of eight; gradients too."""
    rows, keys, gate = (
        torch.randn(B, H, 3, 8, D, dtype=torch.float64, requires_grad=True) for _ in range(3)
    )
    decay = -strongest * gate.sigmoid()
    ours, theirs = (
        torch.cat([x.flatten() for x in (*weights, *faded, *rest)])
        for weights, faded, *rest in (
            decay_products([rows], keys, decay),
            by_halves([rows], keys, decay.exp()),
        )
    )
    same(ours, theirs, [rows, keys, gate])


def between(decay):
    """Σ_d-free decay from j to i, (B, H, T, T) or (B, H, T, T, D), as the product of α_{j+1} … α_i itself."""
    length, alpha = decay.shape[2], decay.exp()
    out = torch.zeros(*decay.shape[:2], length, length, *decay.shape[3:], dtype=decay.dtype)
    for i in range(length):
        for j in range(i + 1):
            out[:, :, i, j] = alpha[:, :, j + 1 : i + 1].prod(2)
    return out


def implied_matrix(key, q, k, own):
    """The weights of each paper's parallel form: GLA's, SSD's L ∘ Q Kᵀ, and the delta rules' UT transform."""
    if key == "gla":
        return torch.einsum("bhid,bhjd,bhijd->bhij", q, k, between(own[0]))
    if key == "ssd":
        return (q @ k.mT) * between(own[0]) * own[1][:, :, None]
    fade = between(own[0] if key == "kda" else torch.zeros_like(k))
    reads, meets = (torch.einsum("bhid,bhjd,bhijd->bhij", rows, k, fade) for rows in (q, k))
    system = torch.eye(k.shape[2], dtype=torch.float64) + (own[-1][..., None] * meets).tril(-1)
    return reads @ torch.linalg.inv(system) * own[-1][:, :, None]


@each("key", FORMS)
def test_the_matrix_of_the_paper_times_v_is_the_output(key):
    (q, k, v), own = heads(T, T, dtype=torch.float64), gates_of(key, T)
    with torch.no_grad():
        theirs = implied_matrix(key, q, unit(k), own)
        torch.testing.assert_close(FORMS[key][0](q, unit(k), v, *own, 16)[0], theirs @ v)


@each("key", FORMS)
def test_the_weights_that_a_layer_shows_are_that_matrix(key):
    """With the layer's own gates, and what it hides in the middle of a text left out of the state."""
    layer = Attention(
        AttentionConfig(H * D, H, score="dot", kernel=Choice.of(key, chunk=8))
    ).double()
    x, real = torch.randn(B, T, H * D, dtype=torch.float64), torch.rand(B, T) < 0.7
    steps = layer(x, key_mask=real)
    for text in range(B):
        seen = x[text : text + 1, real[text]]
        alone = layer(seen)
        q, k, own = alone.q, alone.k, layer.kernel.gates(seen)
        q, k = layer.kernel.prepare(q, k)
        theirs = implied_matrix(key, q, k, own[1:] if key == "delta" else own)
        torch.testing.assert_close(alone.weights, theirs)
        torch.testing.assert_close(
            steps.weights[text : text + 1, :, real[text]][..., real[text]], theirs
        )


def test_gla_worked_by_hand():
    """α = (1/2, 3/4): the second query weighs the first key (1, 2) by 1 · 1/2 + 2 · 3/4 = 2, its own (3, 0) by 3."""
    layer = Attention(AttentionConfig(2, 1, "identity", "dot", kernel=Choice.of("gla", tau=1.0)))
    with torch.no_grad():
        for weight in layer.kernel.parameters():
            weight.zero_()
        layer.kernel.forget.up.bias[1] = math.log(3)  # σ(log 3) = 3/4
    q, k, v = (
        torch.ones(1, 1, 2, 2),
        torch.tensor([[[[1.0, 2], [3, 0]]]]),
        torch.tensor([[[[4.0], [5]]]]),
    )
    steps = layer.kernel(
        replace(layer.kernel_inputs(q, k, v, context=torch.zeros(1, 2, 2)), record=True)
    )
    torch.testing.assert_close(steps.out.flatten(), torch.tensor([12.0, 23]))
    torch.testing.assert_close(steps.weights[0, 0], torch.tensor([[3.0, 0], [2, 3]]))


def test_kimi_delta_worked_by_hand():
    """α = (1/2, 3/4), β = 1/2. S is (2, 0), then fades to (1, 0), of which the key (0.6, 0.8) reads 0.6. Half of
    5.6 − 0.6 is written on it: S = (1, 0) + 2.5 · (0.6, 0.8) = (2.5, 2)."""
    q, k = torch.ones(1, 1, 2, 2), torch.tensor([[[[1.0, 0], [0.6, 0.8]]]])
    decay = torch.tensor([0.5, 0.75]).log().expand(1, 1, 2, 2)
    out, _ = kimi_delta(
        q, k, torch.tensor([[[[4.0], [5.6]]]]), decay, torch.full((1, 1, 2), 0.5), 4
    )
    torch.testing.assert_close(out.flatten(), torch.tensor([2.0, 4.5]))


@each("key", ["gla", "kda", "ssd"])
def test_a_state_that_forgets_all_leaves_the_token_itself(key):
    """Where α is 0 no product of decays overflows, nor its gradient: each query weighs its own key alone."""
    (q, k, v), own = heads(T, T), gates_of(key, T)
    forgets = torch.full_like(own[0], -1e4).float().requires_grad_()
    write = own[1].float() if len(own) > 1 else torch.ones(B, H, T)
    out, _ = FORMS[key][0](q, unit(k), v, forgets, *([] if key == "gla" else [write]), 8)
    torch.testing.assert_close(out, (q * unit(k)).sum(-1, keepdim=True) * write[..., None] * v)
    assert all(
        grad.isfinite().all()
        for grad in torch.autograd.grad(out.square().sum(), [q, k, v, forgets])
    )


@each(
    ("key", "chunk", "queries", "keys", "real"),
    [
        (key, chunk, *sizes)
        for key in FORMS
        for chunk in (5, 32)
        for sizes in ((90, 90, None), (70, 110, 60))
    ]
    + [
        ("kda", 32, 1200, 1200, None),
        ("log_linear", 5, 90, 90, None),
        ("log_linear", 32, 70, 110, 60),
        ("log_linear", 64, 300, 300, None),
    ],
)
def test_the_cost_is_what_pytorch_counts_and_allocates(key, chunk, queries, keys, real):
    config = AttentionConfig(96, 4, kernel=Choice.of(key, chunk=chunk))
    flops, held = taken(Case(config, queries, keys, real))
    cost = attention_cost(config, queries, keys, real)
    assert cost.flops == flops and cost.bytes == pytest.approx(held, rel=0.2)


@each("peer", [kimi.chunk_kimi_delta_attention, kimi.recurrent_kimi_delta_attention])
def test_kimi_delta_against_transformers(peer):
    """Theirs divides queries by √D, as the scaled product does."""
    (q, k, v), own = (
        heads(T, T),
        (log_decays(T, D, dtype=torch.float32), shares(T, dtype=torch.float32)),
    )
    turned = [x.transpose(1, 2) for x in (q, k, v, *own)]
    theirs = peer(
        *turned, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=True
    )[0]
    same(
        kimi_delta(unit(q) * D**-0.5, unit(k), v, *own, 8)[0],
        theirs.transpose(1, 2),
        [q, k, v, *own],
    )


def test_the_kimi_delta_layer_against_transformers():
    """Its whole layer, with the convolution, norm and gate around the rule; our kernel has the same gates in it."""
    width = H * D
    peer = kimi.KimiLinearDeltaAttention(
        KimiLinearConfig(
            hidden_size=width,
            linear_num_heads=H,
            linear_head_dim=D,
            num_hidden_layers=1,
            num_attention_heads=H,
            layer_types=["linear_attention"],
        ),
        layer_idx=0,
    )
    layer = Attention(AttentionConfig(width, H, kernel=Choice.of("kda", chunk=8)))
    gate = peer.forget_gate
    with torch.no_grad():
        for weight in (gate.dt_bias, gate.A_log):
            weight.copy_(torch.randn_like(weight))
        layer.kernel.write.weight.copy_(peer.b_proj.weight)
        layer.kernel.forget.down.weight.copy_(gate.f_a_proj.weight)
        layer.kernel.forget.up.weight.copy_(gate.f_b_proj.weight)
        layer.kernel.forget.up.bias.copy_(gate.dt_bias)
        layer.kernel.log_rate.copy_(gate.A_log.flatten())
    x = torch.randn(B, T, width, requires_grad=True)
    mixed = torch.cat([peer.q_proj(x), peer.k_proj(x), peer.v_proj(x)], -1).mT
    mixed = F.silu(peer.conv1d(mixed)[..., :T]).mT
    q, k, v = (part.unflatten(2, (H, D)).transpose(1, 2) for part in mixed.split(width, -1))
    out = layer.kernel(layer.kernel_inputs(q, k, v, x, x)).out.transpose(1, 2)
    after = peer.g_b_proj(peer.g_a_proj(x)).unflatten(2, (H, D))
    ours = peer.o_proj(peer.o_norm(out, after).flatten(2))
    same(ours, peer(x), [x])
    mine = torch.autograd.grad(
        ours.square().sum(), [layer.kernel.log_rate, layer.kernel.forget.up.bias]
    )
    theirs = torch.autograd.grad(peer(x).square().sum(), [gate.A_log, gate.dt_bias])
    torch.testing.assert_close(mine, (theirs[0].flatten(), theirs[1]), rtol=1e-4, atol=1e-4)


def test_state_space_against_transformers():
    """Theirs computes the step and the decay itself, from Δ before its softplus and from A."""
    (q, k, v), raw, rate = heads(T, T), torch.randn(B, H, T, requires_grad=True), torch.rand(H) * 5
    turned = [x.transpose(1, 2) for x in (v, raw, k, q)]
    theirs = mamba2_chunk_scan(
        turned[0], turned[1], -rate, turned[2], turned[3], chunk_size=8, dt_softplus=True
    )
    step = F.softplus(raw)
    same(
        state_space(q, k, v, -rate[:, None] * step, step, 8)[0],
        theirs.transpose(1, 2),
        [q, k, v, raw],
    )


def test_the_state_space_layer_against_mamba2():
    """Its whole mixer, with the convolution, norm and gate around it; B and C are one head for all, and D is zero."""
    width, size, state = 22, 11, 6
    peer = Mamba2Mixer(
        Mamba2Config(
            hidden_size=width,
            num_heads=4,
            head_dim=size,
            state_size=state,
            n_groups=1,
            expand=2,
            chunk_size=8,
            num_hidden_layers=1,
        ),
        layer_idx=0,
    ).eval()
    layer = Attention(AttentionConfig(width * 2, 4, score="dot", kernel=Choice.of("ssd", chunk=8)))
    layer.kernel.step = torch.nn.Linear(width, 4)
    with torch.no_grad():
        peer.D.zero_()
        layer.kernel.step.weight.copy_(peer.in_proj.weight[-4:])
        layer.kernel.step.bias.copy_(peer.dt_bias)
        layer.kernel.log_rate.copy_(peer.A_log)
    x = torch.randn(B, T, width, requires_grad=True)
    gate, mixed, _ = peer.in_proj(x).split([44, 44 + 2 * state, 4], -1)
    mixed = F.silu(peer.conv1d(mixed.mT)[..., :T]).mT
    v, k, q = mixed.split([44, state, state], -1)
    v, k, q = (
        v.unflatten(2, (4, size)).transpose(1, 2),
        k[:, None],
        q[:, None].expand(-1, 4, -1, -1),
    )
    out = layer.kernel(layer.kernel_inputs(q, k, v, x, x)).out.transpose(1, 2).flatten(2)
    ours = peer.out_proj(peer.norm(out, gate))
    mine = [x, layer.kernel.log_rate, layer.kernel.step.bias]
    same(ours, peer(x), mine, [x, peer.A_log, peer.dt_bias])


# Log-linear attention against the states of a Fenwick tree, one token at a time, and the paper's matrix.


LEVELS = 5  # fewer than T has: the last two are one


def tree_recurrence(q, k, v, decay, step, weights):
    """All states fade; the token's own is new; then, as in a binary counter, full stretches move up a level."""
    states: dict[int, Any] = {}
    outs = []
    for t in range(q.shape[2]):
        if t < k.shape[2]:
            states = {
                level: decay[:, :, t, None, None].exp() * state for level, state in states.items()
            }
            states[0] = step[:, :, t, None, None] * k[:, :, t, :, None] * v[:, :, t, None]
        outs.append(
            sum(
                weights[:, :, t, min(level, weights.shape[-1] - 1), None, None]
                * (q[:, :, t, None] @ state)
                for level, state in states.items()
            )
        )
        lowest = ((t + 1) & -(t + 1)).bit_length()  # where t + 1 has its lowest bit
        full = [states.pop(level) for level in range(lowest) if level in states]
        if full:
            states[lowest] = sum(full)
    return torch.cat(outs, 2)


def inputs(queries, keys):
    gates = (
        log_decays(keys),
        shares(keys),
        torch.rand(B, H, queries, LEVELS, dtype=torch.float64, requires_grad=True),
    )
    return *heads(queries, keys, dtype=torch.float64), *gates


@each("chunk", [1, 2, 8, 64])
@each("keys", [T, S])
def test_log_linear_in_chunks_is_the_recurrence(chunk, keys):
    given = inputs(T, keys)
    same(log_linear(*given, chunk)[0], tree_recurrence(*given), given)


@each(("queries", "offset"), [(5, 24), (5, 3), (1, 28), (11, 24)])
def test_log_linear_takes_a_cache(queries, offset):
    q, k, v, decay, step, weights = inputs(offset + queries, S)
    ours, _ = log_linear(q[:, :, offset:], k, v, decay, step, weights[:, :, offset:], 4, offset)
    theirs = tree_recurrence(q, k, v, decay, step, weights)[:, :, offset:]
    same(ours, theirs, [q, k, v, decay, step, weights])


def tree_matrix(q, k, decay, step, weights):
    """Q Kᵀ ∘ M^S ∘ M^H of the paper, with the level of every pair by its definition."""
    levels = [
        [min((i ^ j).bit_length(), weights.shape[-1] - 1) for j in range(k.shape[2])]
        for i in range(q.shape[2])
    ]
    return (
        (q @ k.mT)
        * between(decay)
        * step[:, :, None]
        * weights.gather(-1, torch.tensor(levels).expand(*q.shape[:3], -1))
    )


def test_the_matrix_of_log_linear_times_v_is_the_output():
    q, k, v, decay, step, weights = (x.detach() for x in inputs(T, T))
    torch.testing.assert_close(
        log_linear(q, k, v, decay, step, weights, 16)[0],
        tree_matrix(q, k, decay, step, weights) @ v,
    )


def test_the_weights_that_log_linear_shows_are_that_matrix():
    config = AttentionConfig(
        H * D, H, score="dot", kernel=Choice.of("log_linear", chunk=8, levels=LEVELS)
    )
    layer, x = Attention(config).double(), torch.randn(B, T, H * D, dtype=torch.float64)
    torch.nn.init.normal_(layer.kernel.level_rate)
    steps, kernel = layer(x), layer.kernel
    weights = kernel.level(x).unflatten(2, (H, LEVELS)).transpose(1, 2)
    weights = F.softplus(kernel.level_rate * weights)
    torch.testing.assert_close(
        steps.weights, tree_matrix(steps.q, steps.k, *kernel.gates(x), weights)
    )


def test_with_one_level_it_is_mamba2():
    layer = Attention(AttentionConfig(H * D, H, kernel=Choice.of("log_linear", levels=1)))
    peer = Attention(AttentionConfig(H * D, H, kernel="ssd"))
    peer.load_state_dict(
        {name: weight for name, weight in layer.state_dict().items() if "level" not in name}
    )
    torch.nn.init.zeros_(layer.kernel.level.weight)
    x = torch.randn(B, T, H * D)
    torch.testing.assert_close(layer(x).out, math.log(2) * peer(x).out)  # softplus(0)


def test_worked_by_hand():
    """Δ = log 2, a = 1/2, λ = 1 but 10 for level 2: query 2 sees itself by 1, and keys 1 and 0 by 10/2 and 10/4."""
    layer = Attention(
        AttentionConfig(1, 1, "identity", "dot", kernel=Choice.of("log_linear", levels=3))
    )
    with torch.no_grad():
        for weight in layer.kernel.parameters():
            weight.zero_()
        layer.kernel.level.weight.fill_(1.0)
        layer.kernel.level_rate.copy_(
            torch.tensor([1.0, 1, 10]).expm1().log()
        )  # the inverse of softplus
    ones, x = torch.ones(1, 1, 3, 1), torch.ones(1, 3, 1)
    steps = layer.kernel(
        replace(layer.kernel_inputs(ones, ones, ones, x, torch.zeros_like(x)), record=True)
    )
    want = math.log(2) * torch.tensor([[1, 0, 0], [0.5, 1, 0], [2.5, 5, 1]])
    torch.testing.assert_close(steps.weights[0, 0], want)


def test_levels_double():
    assert tree_levels(8, 9, torch.device("cpu"))[7].tolist() == [3, 3, 3, 3, 2, 2, 1, 0]
    assert tree_levels(8, 3, torch.device("cpu"))[4].tolist() == [2, 2, 2, 2, 0, 1, 2, 2]


def test_it_needs_the_x_of_the_queries():
    layer = Attention(AttentionConfig(H * D, H, kernel="log_linear"))
    with pytest.raises(ConfigError, match="log_linear reads x, which is not given here"):
        q, k, v = torch.randn(3, B, H, T, D)
        layer.kernel(layer.kernel_inputs(q, k, v, context=torch.randn(B, T, H * D)))
