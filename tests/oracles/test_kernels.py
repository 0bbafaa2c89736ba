"""Kernels against exact, and against the packages and papers' own code they are known by; gradients too."""

import torch
from linformer import LinformerSelfAttention
from local_attention import LocalAttention
from performer_pytorch.performer_pytorch import (
    causal_linear_attention_noncuda,
    linear_attention,
    softmax_kernel,
)
from transformers import MiniMaxConfig, NystromformerConfig
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention
from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

from core.attention import Attention, AttentionConfig, Choice, attend
from core.attention.kernels.approximate import EPSILON, key_features, query_features
from core.attention.kernels.implied import (
    causal_linear_attention as ours_causal,
    elu_features,
    lightning_slopes,
    linear_attention as ours_linear,
    retain,
    retnet_slopes,
)
from tests.cases import each
from tests.oracles.agreement import agree, by_name, put, twin

B, H, T, S, D, E = 2, 3, 37, 29, 7, 5
CAUSAL, PADDING, LOCAL = Choice("causal"), Choice("padding"), Choice.of("local", window=4)
MASKS = {
    "none": Choice("none"),
    "causal": CAUSAL,
    "local": LOCAL,
    "causal local": Choice.of("causal_local", lookback=6),
    "dilated": Choice.of("dilated", window=2, dilation=3),
    "block": Choice.of("block", size=6),
    "padding": PADDING,
    "local and padding": Choice.of("and", LOCAL, PADDING),
    "not causal": Choice.of("not", CAUSAL),
    "strided": Choice.of("strided", lookback=2, stride=5),
    "longformer": Choice.of("global_window", window=2, globals=1),
    "bigbird": Choice.of("bigbird", block=2, window=1, globals=1, random=1, seed=3),
}
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


@each("kernel", BLOCKS)
@each("mask", MASKS)
@each("keys", [None, S])
def test_blocks_of_the_matrix_give_what_the_whole_gives(kernel, mask, keys):
    layer = Attention(AttentionConfig(H * D, H, mask=MASKS[mask], kernel=kernel)).double()
    x = torch.randn(B, T, H * D, dtype=torch.float64, requires_grad=True)
    context = torch.randn(B, keys, H * D, dtype=torch.float64) if keys else None
    real = torch.arange(keys or T) < torch.tensor([[11], [26]]) if "padding" in mask else None
    ours, exact = layer(x, context, key_mask=real, record=False), twin(layer, kernel="exact")
    assert ours.weights is None
    agree(
        ours.merged,
        exact(x, context, key_mask=real).merged,
        [x, *layer.parameters()],
        [x, *exact.parameters()],
        felt=False,
    )


BANDS = [
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
BIASES = [{"position": key} for key in ("alibi", "t5", "transformer_xl", "forgetting", "deberta")]


@each(
    ("kernel", "axes"),
    [(kernel, axes) for kernel in BLOCKS for axes in BIASES + BANDS * (kernel != BLOCKS[0])],
)
def test_blocks_of_any_mechanism_are_those_of_exact(kernel, axes):
    """gpt-oss's sinks and Gemma's caps in a window, biases that are learned, and whatever else looks at one row alone."""
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
    config = AttentionConfig(2, 1, kernel=Choice.of("chunked", block=3), score="general")
    layer = Attention(config).double()

    def output(q, k, v, weight):
        return layer.kernel(layer.kernel_inputs(q, k, v, mask=mask)).out

    assert torch.autograd.gradcheck(output, (q, k, v, layer.score.weight))


def test_chunked_drops_the_same_weights_forward_and_backward():
    """The output is linear in v, so that its gradient shows which weights were kept, and how many."""
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
    """It gives the mean of padding where a query sees no key; we give zeros."""
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
def test_linear_against_performer_pytorch_and_the_quadratic_form(chunk):
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
    """With the same directions; its own are none too random, since QR alone leaves each first number below zero.

    Its gradient leaves out the stabiliser, which does not cancel beside ε: tests/attention/test_padding.py has ours.
    """
    kernel = Choice.of("performer", features=23, seed=5)
    config, (q, k, v) = AttentionConfig(H * D, H, "identity", kernel=kernel), heads()
    how = {"projection_matrix": Attention(config).kernel.directions, "eps": EPSILON}
    agree(
        called(config, q, k, v),
        linear_attention(
            *(softmax_kernel(q, is_query=True, **how), softmax_kernel(k, is_query=False, **how)), v
        ),
        [v],
    )


def test_causal_performer_against_performer_pytorch():
    """Its own features look ahead for a stabiliser."""
    kernel = Choice.of("performer", features=23, chunk=8)
    config = AttentionConfig(H * D, H, "identity", mask="causal", kernel=kernel)
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
    own = {"proj_k": layer.kernel.to_key, "proj_v": layer.kernel.to_value}
    names = by_name(layer, "to_q", "to_k", "to_v", "to_out") | own
    x = torch.randn(B, S, H * D, requires_grad=True)
    agree(
        layer(x, record=False).merged,
        torch.func.functional_call(peer, names, x),
        [x, *layer.parameters()],
    )


def test_nystrom_against_transformers():
    """Their segments need a length that the landmarks divide; a convolution over v is no attention, and "exact" is ours:
    each matrix has its own first guess, so that a batch does not mix."""
    length, landmarks = 35, 7
    config = NystromformerConfig(
        hidden_size=H * D,
        num_attention_heads=H,
        num_landmarks=landmarks,
        segment_means_seq_len=length,
        attention_probs_dropout_prob=0.0,
    )
    peer = NystromformerSelfAttention(config)
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
    """state ← γ · state + k vᵀ, out = q · state: one token at a time, as the paper's equation 6."""
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
    """Its lightning attention, with the activation, norm and gate around it."""
    size, width = 6, H * 6  # its config wants an even size
    config = MiniMaxConfig(
        hidden_size=width,
        num_attention_heads=H,
        head_dim=size,
        num_hidden_layers=4,
        block_size=8,
        layer_types=["linear_attention"] * 4,
    )
    peer = MiniMaxLightningAttention(config, layer_idx=0)
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
