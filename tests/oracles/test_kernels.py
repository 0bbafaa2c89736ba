"""Kernels against exact, and against the packages and papers' own code they are known by; gradients too."""

import math
from collections.abc import Callable
from dataclasses import replace
from inspect import unwrap
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from linformer import LinformerSelfAttention
from local_attention import LocalAttention
from performer_pytorch.performer_pytorch import (
    causal_linear_attention_noncuda,
    linear_attention,
    softmax_kernel,
)
from transformers import (
    KimiLinearConfig,
    Mamba2Config,
    MiniMaxConfig,
    NystromformerConfig,
    OlmoHybridConfig,
    Qwen3NextConfig,
)
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer, mamba2_chunk_scan
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention
from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention
from transformers.models.olmo_hybrid.modeling_olmo_hybrid import OlmoHybridGatedDeltaNet
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

from core.attention import Attention, AttentionConfig, Choice, attend
from core.attention.kernels.approximate import EPSILON, key_features, query_features
from core.attention.kernels.delta import (
    STRONGEST,
    Delta,
    GatedLinear,
    KimiDelta,
    LogLinear,
    StateSpace,
    by_halves,
    decay_products,
    tree_levels,
    unit,
)
from core.attention.kernels.implied import (
    by_chunks,
    causal_linear_attention as ours_causal,
    elu_features,
    lightning_slopes,
    linear_attention as ours_linear,
    retain,
    retnet_slopes,
)
from core.pretrained.load import avoid_kernels
from tests.cases import each
from tests.oracles.agreement import agree, by_name, fla, put, twin

B, H, T, S, D, E = 2, 3, 37, 29, 7, 5
LOCAL = Choice.of("local", window=4)
BLOCKS = [
    Choice.of("chunked", block=8),
    Choice.of("local", block=5),
    Choice.of("block_sparse", block=8),
]


def heads(queries=T, keys=S, value=E, dtype=torch.float32):
    return tuple(
        torch.randn(shape, dtype=dtype, requires_grad=True)
        for shape in ((B, H, queries, D), (B, H, keys, D), (B, H, keys, value))
    )


BIASES = [{"position": key} for key in ("alibi", "t5", "transformer_xl", "forgetting", "deberta")]


@each(
    ("kernel", "axes"),
    [
        (kernel, axes)
        for kernel in BLOCKS
        for axes in BIASES
        + [
            {"normalizer": "sink", "mask": "causal_local"},
            {"normalizer": "softcap", "mask": "causal_local"},
            {"normalizer": "sigmoid"},
            {"normalizer": "sparsemax"},
            {"normalizer": "top_k"},
            {"normalizer": "scalable_softmax", "mask": "causal_local"},
            {"normalizer": "softpick", "mask": "causal_local"},
            {"normalizer": "talking_heads"},
            {"score": "additive"},
            {"position": "shaw"},
            {"projection": "differential"},
            {"projection": "grouped_query"},
            {"mask": "local_p"},
        ]
        * (kernel != BLOCKS[0])
    ]
    + [
        (Choice("fused"), axes)
        for axes in (
            {"score": "cosine", "position": "alibi"},
            {"projection": "latent", "mask": "causal"},
            {"position": "t5", "normalizer": Choice.of("softmax", temperature=0.3)},
            {"normalizer": Choice.of("softmax", temperature=3.0), "mask": "causal"},
        )
    ],
)
def test_blocks_of_any_mechanism_are_those_of_exact(kernel, axes):
    # gpt-oss's sinks and Gemma's caps in a window, biases that are learned, and whatever else looks at one row alone.
    heads = 3 if axes in BIASES else 2
    layer = Attention(AttentionConfig(24, heads, **{"mask": LOCAL, **axes}, kernel=kernel)).double()
    exact = twin(layer, kernel="exact")
    x = torch.randn(B, T, 24, dtype=torch.float64, requires_grad=True)
    ours, theirs = layer(x, record=False).merged, exact(x).merged
    learned = [name for name, weight in exact.named_parameters() if weight.requires_grad]
    weights = [exact.get_parameter(name) for name in learned]
    grads = torch.autograd.grad(theirs.sum(), weights, retain_graph=True, allow_unused=True)
    used = [name for name, grad in zip(learned, grads, strict=True) if grad is not None]
    inputs, others = ([x, *map(one.get_parameter, used)] for one in (layer, exact))
    agree(ours, theirs, inputs, others, felt=False)


@each("kernel", ["chunked", "local", "block_sparse"])
def test_attend_takes_any_mask_and_bias(kernel):
    q, k, v = heads(dtype=torch.float64)
    bias, mask = (
        torch.randn(H, T, S, dtype=torch.float64).requires_grad_(),
        torch.rand(B, 1, T, S) < 0.4,
    )
    mask[0, :, 3] = False  # a query that sees nothing
    ours, theirs = (
        attend(q, k, v, mask, bias=bias, temperature=0.7, kernel=which).out
        for which in (kernel, "exact")
    )
    assert not ours[0, :, 3].any()
    agree(ours, theirs, [q, k, v, bias])


def test_the_derivative_of_chunked_is_that_of_the_formula():
    q, k, v = (x.detach()[:1, :1, :5, :2].requires_grad_() for x in heads(dtype=torch.float64))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[3] = False
    layer = Attention(
        AttentionConfig(2, 1, kernel=Choice.of("chunked", block=3), score="general")
    ).double()

    def output(q, k, v, weight):
        return layer.kernel(layer.kernel_inputs(q, k, v, mask=mask)).out

    assert torch.autograd.gradcheck(output, (q, k, v, layer.score.weight))


def test_chunked_drops_same_weights_forward_and_backward():
    # The output is linear in v, so that its gradient shows which weights were kept, and how many.
    q, k, v = heads(dtype=torch.float64)
    out = attend(q, k, v, dropout=0.3, kernel="chunked").out
    (felt,) = torch.autograd.grad(out.sum(), v)
    torch.testing.assert_close((felt * v).sum(), out.sum())
    with torch.no_grad():
        many = torch.stack([attend(q, k, v, dropout=0.3, kernel="chunked").out for _ in range(100)])
        torch.testing.assert_close(many.mean(0), attend(q, k, v).out, rtol=0, atol=0.3)
    assert many.std(0).max() > 0.1


def called(config, q, k, v, **given):
    layer = Attention(config)
    return layer.kernel(layer.kernel_inputs(q, k, v, **given)).out


@each("causal", [False, True])
def test_local_against_local_attention(causal):
    # It gives the mean of padding where a query sees no key; we give zeros.
    mask = Choice.of("causal_local", lookback=6) if causal else Choice.of("local", window=6)
    peer = LocalAttention(
        6, causal=causal, exact_windowsize=True, autopad=True, use_rotary_pos_emb=False
    )
    q, k, v = heads(T, T, D)
    real = torch.arange(T) < torch.tensor([[T], [23]])
    config = AttentionConfig(H * D, H, "identity", mask=mask, kernel=Choice.of("local", block=5))
    seen = torch.ones(B, 1, T, 1, dtype=torch.bool)
    seen[1, :, 23 + 6 :] = False
    agree(called(config, q, k, v, key_mask=real) * seen, peer(q, k, v, mask=real) * seen, [q, k, v])


def quadratic(fq, fk, v, seen=None):
    weights = fq @ fk.mT if seen is None else (fq @ fk.mT).masked_fill(~seen, 0.0)
    return weights / weights.sum(-1, keepdim=True) @ v


@each("chunk", [None, 1, 8, 37, 64])
def test_linear_against_performer_pytorch(chunk):
    q, k, v = heads(T, T)
    fq, fk = elu_features(q), elu_features(k)
    if chunk is None:
        ours, peer, seen = ours_linear(fq, fk, v), linear_attention(fq, fk, v), None
    else:
        ours, state = ours_causal(fq, fk, v, chunk)
        peer = causal_linear_attention_noncuda(fq, fk, v, chunk_size=T, eps=0.0)
        seen = torch.ones(T, T, dtype=torch.bool).tril()
        torch.testing.assert_close(state, fk.mT @ torch.cat((v, torch.ones(B, H, T, 1)), -1))
    for theirs in (peer, quadratic(fq, fk, v, seen)):
        agree(ours, theirs, [q, k, v])


@each(("queries", "keys", "offset"), [(5, 29, 24), (5, 29, 3), (29, 5, 0), (1, 9, 8)])
def test_causal_linear_takes_a_cache_and_a_context(queries, keys, offset):
    q, k, v = heads(queries, keys)
    fq, fk = elu_features(q), elu_features(k)
    seen = torch.arange(offset, offset + queries)[:, None] >= torch.arange(keys)
    agree(ours_causal(fq, fk, v, 8, offset)[0], quadratic(fq, fk, v, seen), [q, k, v])


def test_performer_against_performer_pytorch():
    # With the same directions; its own are none too random, since QR alone leaves each first number below zero.
    # Its gradient leaves out the stabiliser, which does not cancel beside ε: tests/attention/test_padding.py has ours.
    config, (q, k, v) = (
        AttentionConfig(H * D, H, "identity", kernel=Choice.of("performer", features=23, seed=5)),
        heads(),
    )
    how = {"projection_matrix": Attention(config).kernel.directions, "eps": EPSILON}
    agree(
        called(config, q, k, v),
        linear_attention(
            *(softmax_kernel(q, is_query=True, **how), softmax_kernel(k, is_query=False, **how)), v
        ),
        [v],
    )


def test_causal_performer_against_performer_pytorch():
    # Its own features look ahead for a stabiliser.
    config = AttentionConfig(
        H * D, H, "identity", mask="causal", kernel=Choice.of("performer", features=23, chunk=8)
    )
    (q, k, v), directions = heads(T, T), Attention(config).kernel.directions
    fq = query_features(q * D**-0.25, directions)
    fk = key_features(k * D**-0.25, directions, None, True)
    agree(
        called(config, q, k, v),
        causal_linear_attention_noncuda(fq, fk, v, chunk_size=T, eps=0.0),
        [q, k, v],
    )


def test_linformer_against_linformer():
    peer = LinformerSelfAttention(H * D, 31, k=5, heads=H)
    kernel = Choice.of("linformer", rank=5, max_len=31)
    layer = Attention(AttentionConfig(H * D, H, Choice.of("multi_head", bias=False), kernel=kernel))
    put((peer.to_out.bias, 0.0))
    names = by_name(layer, "to_q", "to_k", "to_v", "to_out") | {
        "proj_k": layer.kernel.to_key,
        "proj_v": layer.kernel.to_value,
    }
    x = torch.randn(B, S, H * D, requires_grad=True)
    agree(
        layer(x, record=False).merged,
        torch.func.functional_call(peer, names, x),
        [x, *layer.parameters()],
    )


def test_nystrom_against_transformers():
    # Their segments need a length that the landmarks divide; a convolution over v is no attention, and "exact" is ours:
    # each matrix has its own first guess, so that a batch does not mix.
    length, landmarks = 44, 11
    peer = NystromformerSelfAttention(
        NystromformerConfig(
            hidden_size=H * D,
            num_attention_heads=H,
            num_landmarks=landmarks,
            segment_means_seq_len=length,
            attention_probs_dropout_prob=0.0,
        )
    )
    peer.conv_kernel_size, peer.init_option = None, "exact"
    kernel = Choice.of("nystrom", landmarks=landmarks, rounds=6)
    layer, x = Attention(AttentionConfig(H * D, H, kernel=kernel)), torch.randn(B, length, H * D)
    names = by_name(layer, "query", "key", "value", "")
    (theirs,) = torch.func.functional_call(peer, names, x.requires_grad_())[:1]
    agree(
        layer(x, record=False).out.transpose(1, 2).flatten(2),
        theirs,
        [x, *(weight for name, weight in names.items() if "weight" in name)],
    )


@each("chunk", [1, 8, 37, 64])
def test_retention_in_chunks_is_the_recurrence(chunk):
    # state ← γ · state + k vᵀ, out = q · state: one token at a time, as the paper's equation 6.
    (q, k, v), slopes = heads(T, T, dtype=torch.float64), 8 * retnet_slopes(H)[:, None, None]
    state, outs = torch.zeros(B, H, D, E, dtype=torch.float64), []
    for i in range(T):
        state = state * torch.exp(-slopes) + k[:, :, i, :, None] * v[:, :, i, None, :]
        outs.append(q[:, :, i, None] @ state)
    ours, last = retain(q, k, v, slopes, chunk)
    agree(ours, torch.cat(outs, 2), [q, k, v])
    agree(last, state, [k, v])
    half = retain(q[:, :, :9], k[:, :, :9], v[:, :, :9], slopes, chunk)[1]
    rest, _ = retain(q[:, :, 9:], k[:, :, 9:], v[:, :, 9:], slopes, chunk, past=half)
    agree(rest, torch.cat(outs[9:], 2), [q, k, v])


def test_retention_against_minimax():
    # Its lightning attention, with the activation, norm and gate around it.
    size, width = 6, H * 6  # its config wants an even size
    peer = MiniMaxLightningAttention(
        MiniMaxConfig(
            hidden_size=width,
            num_attention_heads=H,
            head_dim=size,
            num_hidden_layers=4,
            block_size=8,
            layer_types=["linear_attention"] * 4,
        ),
        layer_idx=0,
    )
    kernel = Choice.of("retention", decay="lightning", chunk=5)
    x = torch.randn(B, T, width, requires_grad=True)
    slopes = lightning_slopes(H)[:, None, None].float()
    torch.testing.assert_close(slopes, peer.slope_rate, rtol=2e-5, atol=0)  # theirs × 1.00001
    mixed = peer.act_fn(peer.qkv_proj(x)).reshape(B, T, H, 3 * size).transpose(1, 2)
    own = AttentionConfig(width, H, "identity", "dot", kernel=kernel)
    merged = called(own, *mixed.split(size, dim=-1)).transpose(1, 2).flatten(2)
    agree(
        peer.out_proj(torch.sigmoid(peer.output_gate(x)) * peer.norm(merged)),
        peer(x, None, None)[0],
        [x],
    )


def test_the_rates_of_decay_are_the_papers():
    torch.testing.assert_close(
        (torch.exp(-retnet_slopes(3)).tolist(), lightning_slopes(4).tolist()),
        ([1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128], [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]),
    )


# Kernels that pass a state on, against the papers' recurrences, their matrices, and transformers; gradients too.


LEVELS = 5  # fewer than T has: the last two are one


RULES: dict[str, Callable] = {
    "gla": GatedLinear.rule,
    "kda": KimiDelta.rule,
    "ssd": StateSpace.rule,
    "delta": Delta.rule,
    "gated_delta": Delta.rule,
    "log_linear": LogLinear.rule,
}
FORMS = ("gla", "kda", "ssd", "delta")
DELTAS = ("kda", "delta", "gated_delta")


def ruled(key, q, k, v, *gates, chunk, offset=0, past=None, segment=0):
    """Output and last state of a rule by chunks; that of "delta" never decays, and log-linear's last gate is of queries."""
    gates = (torch.zeros_like(gates[0]), *gates) if key == "delta" else gates
    gates = tuple(gate if gate.dim() == 4 else gate[..., None] for gate in gates)
    return by_chunks(RULES[key], q, k, v, gates[:2], chunk, offset, past, gates[2:], segment)


def drawn(key, queries=T, keys=T, dtype=torch.float64):
    """q, k and v, log α of a state that keeps all, some or nothing (e^(−60) is 0 beside 1), and how much is written: up
    to two by the delta rules."""
    decay = torch.rand(B, H, keys, *[D] * (key in ("gla", "kda")), dtype=dtype).pow(6) * -60
    write = torch.rand(B, H, keys, dtype=dtype) * (1 + (key in DELTAS))
    gates = [decay] * (key != "delta") + [write] * (key != "gla")
    if key == "log_linear":  # and how much a query reads of each level
        gates.append(torch.rand(B, H, queries, LEVELS, dtype=dtype))
    q, k, v = heads(queries, keys, dtype=dtype)
    return q, k, v, *(gate.requires_grad_() for gate in gates)


def recurrence(key, q, k, v, *gates):
    """S ← (I − β k kᵀ) Diag(α) S + β k vᵀ, out = Sᵀ q, one token at a time; only the delta rules take β k kᵀ away."""
    if key == "log_linear":
        return tree_recurrence(q, k, v, *gates)
    decay = torch.zeros_like(k) if key == "delta" else gates[0]
    decay = decay if decay.dim() == 4 else decay[..., None]
    write = torch.ones_like(k[..., 0]) if key == "gla" else gates[-1]
    state, outs = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]), []
    for t in range(q.shape[2]):
        if t < k.shape[2]:
            row, share = k[:, :, t, :, None], write[:, :, t, None, None]
            erased = torch.eye(k.shape[-1], dtype=k.dtype) - (key in DELTAS) * share * row @ row.mT
            state = (
                erased @ (decay[:, :, t, :, None].exp() * state) + share * row @ v[:, :, t, None]
            )
        outs.append(q[:, :, t, None] @ state)
    return torch.cat(outs, 2)


def tree_recurrence(q, k, v, decay, step, weights):
    """All states fade; the token's own is new; then, as in a binary counter, full stretches move up a level."""
    states: dict[int, Any] = {}
    outs = []
    for t in range(q.shape[2]):
        if t < k.shape[2]:
            faded = decay[:, :, t, None, None].exp()
            states = {level: faded * state for level, state in states.items()}
            states[0] = step[:, :, t, None, None] * k[:, :, t, :, None] * v[:, :, t, None]
        shares = weights[:, :, t, :, None, None]
        read = [
            shares[:, :, min(n, LEVELS - 1)] * (q[:, :, t, None] @ s) for n, s in states.items()
        ]
        outs.append(sum(read))
        lowest = ((t + 1) & -(t + 1)).bit_length()  # where t + 1 has its lowest bit
        full = [states.pop(level) for level in range(lowest) if level in states]
        if full:
            states[lowest] = sum(full)
    return torch.cat(outs, 2)


@each(
    ("key", "chunk"),
    [
        *((key, chunk) for key in RULES for chunk in (1, 8, 64)),
        ("gated_delta", 37),
        ("log_linear", 2),
    ],
)
@each("keys", [T, S])
def test_in_chunks_it_is_the_recurrence(key, chunk, keys):
    q, k, v, *gates = given = drawn(key, T, keys)
    ours, _ = ruled(key, q, unit(k), v, *gates, chunk=chunk)
    agree(ours, recurrence(key, q, unit(k), v, *gates), given)


@each("key", RULES)
@each(("queries", "offset"), [(5, 24), (5, 3), (1, 28), (11, 24)])
def test_it_takes_a_cache(key, queries, offset):
    q, k, v, *gates = given = drawn(key, offset + queries, S)
    late = [gate[:, :, offset:] if gate.shape[-1] == LEVELS else gate for gate in gates]
    ours, _ = ruled(key, q[:, :, offset:], unit(k), v, *late, chunk=8, offset=offset)
    agree(ours, recurrence(key, q, unit(k), v, *gates)[:, :, offset:], given, felt=False)


@each("key", [key for key in RULES if key != "log_linear"])
@each(("chunk", "cut"), [(1, 5), (8, 1), (8, 5), (8, 24)])
def test_state_that_is_handed_on_stands_for_keys_before(key, chunk, cut):
    q, k, v, *gates = given = drawn(key)
    tensors = (q, unit(k), v, *gates)
    first, rest = zip(*(x.split((cut, T - cut), dim=2) for x in tensors), strict=True)
    out, state = ruled(key, *first, chunk=chunk)
    later, _ = ruled(key, *rest, chunk=chunk, past=state)
    agree(torch.cat((out, later), 2), recurrence(key, *tensors), given)


def test_kda_in_segments_is_kda_at_once():
    q, k, v, decay, write = given = drawn("kda")
    past = torch.randn(B, H, D, 5, dtype=torch.float64)
    results = []
    for segment in (64, 16):
        out, state = ruled("kda", q, k, v, decay, write, chunk=8, past=past, segment=segment)
        results.append((out, state, *torch.autograd.grad(out.square().sum() + state.sum(), given)))
    torch.testing.assert_close(*results)


@each("strongest", [0.1, STRONGEST / 8])
def test_one_product_is_what_halves_give_where_little_fades(strongest):
    # In fp64, at decays up to e^(−STRONGEST) over a chunk of eight; gradients too.
    rows, keys, gate = torch.randn(3, B, H, 3, 8, D, dtype=torch.float64, requires_grad=True)
    decay = -strongest * gate.sigmoid()
    ours, theirs = (
        torch.cat([x.flatten() for x in (*weights, *faded, *rest)])
        for weights, faded, *rest in (
            decay_products([rows], keys, decay),
            by_halves([rows], keys, decay.exp()),
        )
    )
    agree(ours, theirs, [rows, keys, gate])


def between(decay):
    """Σ_d-free decay from j to i, (B, H, T, T) or (B, H, T, T, D), as the product of α_{j+1} … α_i itself."""
    length, alpha = decay.shape[2], decay.exp()
    out = torch.zeros(*decay.shape[:2], length, length, *decay.shape[3:], dtype=decay.dtype)
    for i in range(length):
        for j in range(i + 1):
            out[:, :, i, j] = alpha[:, :, j + 1 : i + 1].prod(2)
    return out


def implied_matrix(key, q, k, *own):
    """The weights of each paper's parallel form: GLA's, SSD's L ∘ Q Kᵀ, the delta rules' UT transform, and Q Kᵀ ∘ M^S ∘
    M^H, with the level of every pair by its definition."""
    if key == "gla":
        return torch.einsum("bhid,bhjd,bhijd->bhij", q, k, between(own[0]))
    if key in ("ssd", "log_linear"):
        weights = (q @ k.mT) * between(own[0]) * own[1][:, :, None]
        if key == "ssd":
            return weights
        places = range(q.shape[2])
        levels = [[min((i ^ j).bit_length(), LEVELS - 1) for j in places] for i in places]
        return weights * own[2].gather(-1, torch.tensor(levels).expand(*q.shape[:3], -1))
    fade = between(own[0] if key == "kda" else torch.zeros_like(k))
    reads, meets = (torch.einsum("bhid,bhjd,bhijd->bhij", rows, k, fade) for rows in (q, k))
    return (
        reads
        @ torch.linalg.inv(
            torch.eye(k.shape[2], dtype=torch.float64) + (own[-1][..., None] * meets).tril(-1)
        )
        * own[-1][:, :, None]
    )


@each("key", [*FORMS, "log_linear"])
def test_the_matrix_of_the_paper_times_v_is_the_output(key):
    q, k, v, *own = (x.detach() for x in drawn(key))
    torch.testing.assert_close(
        ruled(key, q, unit(k), v, *own, chunk=16)[0], implied_matrix(key, q, unit(k), *own) @ v
    )


@each("key", FORMS)
def test_the_weights_that_a_layer_shows_are_that_matrix(key):
    # With the layer's own gates, and what it hides in the middle of a text left out of the state.
    layer, x = (
        Attention(AttentionConfig(H * D, H, score="dot", kernel=Choice.of(key, chunk=8))).double(),
        torch.randn(B, T, H * D, dtype=torch.float64),
    )
    real = torch.rand(B, T) < 0.7
    steps = layer(x, key_mask=real)
    for text in range(B):
        seen = x[text : text + 1, real[text]]
        alone, gates = layer(seen), layer.kernel.gates(seen)
        own = [gate.squeeze(-1) for gate in gates]  # of one number where it is one a head
        q, k = layer.kernel.prepare(alone.q, alone.k)
        theirs = implied_matrix(key, q, k, *(own[1:] if key == "delta" else own))
        within = steps.weights[text : text + 1, :, real[text]][..., real[text]]
        for weights in (alone.weights, within):
            torch.testing.assert_close(weights, theirs)


def test_the_weights_that_log_linear_shows_are_that_matrix():
    layer = Attention(
        AttentionConfig(
            H * D, H, score="dot", kernel=Choice.of("log_linear", chunk=8, levels=LEVELS)
        )
    ).double()
    torch.nn.init.normal_(layer.kernel.level_rate)
    x = torch.randn(B, T, H * D, dtype=torch.float64)
    steps, own = layer(x), layer.kernel
    levels = own.level_rate * own.level(x).unflatten(2, (H, LEVELS)).transpose(1, 2)
    torch.testing.assert_close(
        steps.weights,
        implied_matrix(
            "log_linear", steps.q, steps.k, *(g[..., 0] for g in own.gates(x)), F.softplus(levels)
        ),
    )


def steps_of(kernel, q, k, v, x=None, **weights):
    """The steps of a kernel with all its weights zero but these, in one head with plain dot products."""
    layer = Attention(AttentionConfig(q.shape[-1], 1, "identity", "dot", kernel=kernel))
    put(*((weight, 0.0) for weight in layer.kernel.parameters()))
    put(*((layer.kernel.get_parameter(name), value) for name, value in weights.items()))
    return layer.kernel(
        replace(
            layer.kernel_inputs(q, k, v, x, torch.zeros(1, k.shape[2], q.shape[-1])), record=True
        )
    )


def test_gla_by_hand():
    # α = (1/2, 3/4): the second query weighs the first key (1, 2) by 1 · 1/2 + 2 · 3/4 = 2, its own (3, 0) by 3.
    k, v = torch.tensor([[[[1.0, 2], [3, 0]]]]), torch.tensor([[[[4.0], [5]]]])
    bias = {"forget.up.bias": [0.0, math.log(3)]}  # σ(log 3) = 3/4
    steps = steps_of(Choice.of("gla", tau=1.0), torch.ones(1, 1, 2, 2), k, v, **bias)
    assert steps.out.flatten().tolist() == pytest.approx([12.0, 23])
    torch.testing.assert_close(steps.weights[0, 0], torch.tensor([[3.0, 0], [2, 3]]))


def test_kimi_delta_by_hand():
    # α = (1/2, 3/4), β = 1/2. S is (2, 0), then fades to (1, 0), of which the key (0.6, 0.8) reads 0.6. Half of 5.6 −
    # 0.6 is written on it: S = (1, 0) + 2.5 · (0.6, 0.8) = (2.5, 2).
    q, k = torch.ones(1, 1, 2, 2), torch.tensor([[[[1.0, 0], [0.6, 0.8]]]])
    decay = torch.tensor([0.5, 0.75]).log().expand(1, 1, 2, 2)
    out, _ = ruled(
        "kda", q, k, torch.tensor([[[[4.0], [5.6]]]]), decay, torch.full((1, 1, 2), 0.5), chunk=4
    )
    assert out.flatten().tolist() == pytest.approx([2.0, 4.5])


def test_log_linear_by_hand():
    # Δ = log 2, a = 1/2, λ = 1 but 10 for level 2: query 2 sees itself by 1, and keys 1 and 0 by 10/2 and 10/4.
    rates = torch.tensor([1.0, 1, 10]).expm1().log()  # the inverse of softplus
    ones, weights = torch.ones(1, 1, 3, 1), {"level.weight": 1.0, "level_rate": rates}
    steps = steps_of(
        Choice.of("log_linear", levels=3), ones, ones, ones, torch.ones(1, 3, 1), **weights
    )
    torch.testing.assert_close(
        steps.weights[0, 0], math.log(2) * torch.tensor([[1, 0, 0], [0.5, 1, 0], [2.5, 5, 1]])
    )


@each("key", ["gla", "kda", "ssd"])
def test_a_state_that_forgets_all_leaves_the_token_itself(key):
    # Where α is 0 no product of decays overflows, nor its gradient: each query weighs its own key alone.
    q, k, v, decay, *write = drawn(key, dtype=torch.float32)
    forgets = torch.full_like(decay, -1e4).requires_grad_()
    out, _ = ruled(key, q, unit(k), v, forgets, *write, chunk=8)
    share = write[0][..., None] if write else 1.0
    torch.testing.assert_close(out, (q * unit(k)).sum(-1, keepdim=True) * share * v)
    assert all(
        grad.isfinite().all()
        for grad in torch.autograd.grad(out.square().sum(), [q, k, v, forgets])
    )


KDA = {"initial_state": None, "output_final_state": False}


@each(
    ("key", "peer", "more"),
    [
        ("gated_delta", unwrap(qwen.torch_chunk_gated_delta_rule), {}),
        ("gated_delta", unwrap(qwen.torch_recurrent_gated_delta_rule), {}),
        ("kda", unwrap(kimi.chunk_kimi_delta_attention), KDA),
        ("kda", unwrap(kimi.recurrent_kimi_delta_attention), KDA),
    ],
)
def test_the_delta_rules_against_transformers(key, peer, more):
    # Theirs divides queries by √D, as the scaled product does. What it wraps are its own functions of PyTorch.
    q, k, v, *own = given = drawn(key, dtype=torch.float32)
    turned = [x.transpose(1, 2) for x in given]
    agree(
        ruled(key, unit(q) * D**-0.5, unit(k), v, *own, chunk=8)[0],
        peer(*turned, use_qk_l2norm_in_kernel=True, **more)[0].transpose(1, 2),
        given,
    )


def test_state_space_against_transformers():
    # Theirs computes the step and the decay itself, from Δ before its softplus and from A.
    (q, k, v), raw, rate = heads(T, T), torch.randn(B, H, T, requires_grad=True), torch.rand(H) * 5
    x, dt, b, c = (x.transpose(1, 2) for x in (v, raw, k, q))
    theirs = unwrap(mamba2_chunk_scan)(
        x, dt, -rate, b, c, chunk_size=8, dt_softplus=True
    ).transpose(1, 2)
    step = F.softplus(raw)
    agree(ruled("ssd", q, k, v, -rate[:, None] * step, step, chunk=8)[0], theirs, [q, k, v, raw])


# Their whole layers with the gates of our kernel, and with the convolution, norm and gate around the rule.


def convolved(peer, mixed):
    """Each number over the last four tokens."""
    return F.silu(peer.conv1d(mixed.mT)[..., :T]).mT


def within(layer, q, k, v, x):
    """The output of a layer's kernel, (B, T, H, D)."""
    return layer.kernel(layer.kernel_inputs(q, k, v, x, x)).out.transpose(1, 2)


def by_head(*parts):
    return (part.unflatten(2, (H, -1)).transpose(1, 2) for part in parts)


def test_the_gated_delta_layer_against_qwen3_next():
    size, value, width = 6, 5, H * 7
    peer = qwen.Qwen3NextGatedDeltaNet(
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
    avoid_kernels(peer)
    layer = Attention(AttentionConfig(width, H, kernel=Choice.of("gated_delta", chunk=5)))
    own, x = layer.kernel, torch.randn(B, T, width, requires_grad=True)
    both = torch.stack((own.write.weight, own.forget.weight), 1).flatten(0, 1)
    names = {"in_proj_ba.weight": both, "dt_bias": own.forget.bias, "A_log": own.log_rate}
    layer.score.scale = size**-0.5  # of its own sizes, which are not width / H
    *qkv, gate, _, _ = peer.fix_query_key_value_ordering(peer.in_proj_qkvz(x), peer.in_proj_ba(x))
    mixed = convolved(peer, torch.cat([part.flatten(2) for part in qkv], -1))
    out = within(layer, *by_head(*mixed.split([H * size, H * size, H * value], -1)), x)
    normed = peer.norm(out.flatten(0, 2), gate.flatten(0, 2)).view(B, T, H * value)
    agree(peer.out_proj(normed), torch.func.functional_call(peer, names, x), [x, *own.parameters()])


def test_gated_delta_with_larger_beta_against_olmo_hybrid():
    # Theirs doubles β, so that it lies between 0 and 2.
    size, value, width = 6, 5, H * 7
    peer = OlmoHybridGatedDeltaNet(
        OlmoHybridConfig(
            hidden_size=width,
            num_attention_heads=H,
            linear_key_head_dim=size,
            linear_value_head_dim=value,
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
        ),
        layer_idx=0,
    )
    avoid_kernels(peer)
    kernel = Choice.of("gated_delta", chunk=5, beta_max=2.0)
    layer, x = Attention(AttentionConfig(width, H, kernel=kernel)), torch.randn(B, T, width)
    own, x = layer.kernel, x.requires_grad_()
    layer.score.scale = size**-0.5
    names = {
        "a_proj.weight": own.forget.weight,
        "b_proj.weight": own.write.weight,
        "dt_bias": own.forget.bias,
        "A_log": own.log_rate,
    }
    mixed = convolved(peer, torch.cat([peer.q_proj(x), peer.k_proj(x), peer.v_proj(x)], -1))
    out = within(layer, *by_head(*mixed.split([H * size, H * size, H * value], -1)), x)
    normed = peer.o_norm(out, peer.g_proj(x).unflatten(2, (H, value))).flatten(2)
    agree(peer.o_proj(normed), torch.func.functional_call(peer, names, x), [x, *own.parameters()])


@each("largest", [1.0, 2.0])
def test_the_delta_rule_against_flash_linear_attention(largest):
    q, k, v, write = given = [x.float().detach().requires_grad_() for x in drawn("delta")]
    write.detach().mul_(largest / 2)
    theirs, state = fla("delta_rule", "delta_rule_recurrence")(q, unit(k), v, write)
    out, last = ruled("delta", q * D**-0.5, unit(k), v, write, chunk=8)
    agree(out, theirs, given)
    torch.testing.assert_close(last, state, rtol=1e-4, atol=1e-5)


def test_only_a_beta_above_one_counts_modulo_two():
    # Each one of a text turns the state that its first token wrote, and each zero leaves it. Trained on eight tokens, the
    # sign of what is read is the parity of sixty-four; with β up to 1 it can only shrink.
    right = {}
    for largest in (1.0, 2.0):
        torch.manual_seed(0)
        gate = torch.nn.Parameter(torch.zeros(2))
        learner = torch.optim.Adam([gate], 0.3)
        for length in [8] * 60 + [64]:
            bits = torch.randint(2, (64, 1, length))
            key, value = torch.ones(64, 1, length, 1), F.one_hot(torch.tensor(0), length).float()
            write = largest * gate.sigmoid()[bits].masked_fill(value.bool(), 1.0)
            out, _ = ruled("delta", key, key, value.expand(64, 1, -1)[..., None], write, chunk=16)
            sign = 1.0 - 2.0 * ((bits.cumsum(-1) - bits[..., :1]) % 2)
            loss = (out[..., 0] - sign).square().mean()
            learner.zero_grad()
            loss.backward()
            learner.step()
        right[largest] = (out[..., 0].sign() == sign).float().mean().item()
    assert right[2.0] == 1.0 and right[1.0] < 0.6


def test_the_kimi_delta_layer_against_transformers():
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
    avoid_kernels(peer)
    layer = Attention(AttentionConfig(width, H, kernel=Choice.of("kda", chunk=8)))
    own, x = layer.kernel, torch.randn(B, T, width, requires_grad=True)
    put((own.log_rate, torch.randn(H)), (own.forget.up.bias, torch.randn(width)))
    names = {
        "b_proj.weight": own.write.weight,
        "forget_gate.f_a_proj.weight": own.forget.down.weight,
        "forget_gate.f_b_proj.weight": own.forget.up.weight,
        "forget_gate.dt_bias": own.forget.up.bias,
        "forget_gate.A_log": own.log_rate.view_as(peer.forget_gate.A_log),
    }
    mixed = convolved(peer, torch.cat([peer.q_proj(x), peer.k_proj(x), peer.v_proj(x)], -1))
    out, after = (
        within(layer, *by_head(*mixed.split(width, -1)), x),
        peer.g_b_proj(peer.g_a_proj(x)),
    )
    agree(
        peer.o_proj(peer.o_norm(out, after.unflatten(2, (H, D))).flatten(2)),
        torch.func.functional_call(peer, names, x),
        [x, *own.parameters()],
    )


def test_the_state_space_layer_against_mamba2():
    # B and C are one head for all, and D is zero.
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
    avoid_kernels(peer)
    layer = Attention(AttentionConfig(width * 2, 4, score="dot", kernel=Choice.of("ssd", chunk=8)))
    own, x = layer.kernel, torch.randn(B, T, width, requires_grad=True)
    own.step = torch.nn.Linear(width, 4)
    names = {
        "in_proj.weight": torch.cat((peer.in_proj.weight[:-4], own.step.weight)),
        "dt_bias": own.step.bias,
        "A_log": own.log_rate,
        "D": torch.zeros(4),
    }
    gate, mixed, _ = peer.in_proj(x).split([44, 44 + 2 * state, 4], -1)
    v, k, q = convolved(peer, mixed).split([44, state, state], -1)
    v = v.unflatten(2, (4, size)).transpose(1, 2)
    out = within(layer, q[:, None].expand(-1, 4, -1, -1), k[:, None], v, x).flatten(2)
    agree(
        peer.out_proj(peer.norm(out, gate)),
        torch.func.functional_call(peer, names, x),
        [x, *own.parameters()],
    )


def test_with_one_level_log_linear_is_mamba2():
    layer = Attention(AttentionConfig(H * D, H, kernel=Choice.of("log_linear", levels=1)))
    torch.nn.init.zeros_(layer.kernel.level.weight)
    peer, x = Attention(layer.config.with_(kernel="ssd")), torch.randn(B, T, H * D)
    peer.load_state_dict({n: w for n, w in layer.state_dict().items() if "level" not in n})
    torch.testing.assert_close(layer(x).out, math.log(2) * peer(x).out)  # softplus(0)


def test_levels_double():
    assert (
        tree_levels(8, 9, torch.device("cpu"))[7].tolist(),
        tree_levels(8, 3, torch.device("cpu"))[4].tolist(),
    ) == ([3, 3, 3, 3, 2, 2, 1, 0], [2, 2, 2, 2, 0, 1, 2, 2])
