"""Kernels against exact, and against the packages and papers' own code they are known by; gradients too."""

from typing import Any

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

B, H, T, S, D, E = 2, 3, 37, 29, 7, 5
FORWARD, GRADIENT = dict[str, Any](rtol=1e-5, atol=1e-5), dict[str, Any](rtol=1.25e-5, atol=1.25e-5)
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
    shapes = (B, H, queries, D), (B, H, keys, D), (B, H, keys, value)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)


def same(ours, theirs, inputs, others=None):
    """One output and one gradient; `others` are the inputs of theirs where it has its own."""
    torch.testing.assert_close(ours, theirs, **FORWARD)
    weight = torch.randn_like(ours)
    mine = torch.autograd.grad((ours * weight).sum(), inputs, retain_graph=True)
    peers = torch.autograd.grad((theirs * weight).sum(), others or inputs, retain_graph=True)
    for a, b in zip(mine, peers, strict=True):
        torch.testing.assert_close(
            a, b, rtol=GRADIENT["rtol"], atol=GRADIENT["atol"] * max(1.0, float(b.abs().max()))
        )


@each("kernel", BLOCKS)
@each("mask", MASKS)
@each("keys", [None, S])
def test_blocks_of_the_matrix_give_what_the_whole_gives(kernel, mask, keys):
    """In float64, over blocks that do not divide the lengths, with padding at the end, to the parameters too."""
    config = AttentionConfig(H * D, H, mask=MASKS[mask], kernel=kernel)
    layer = Attention(config).double()
    exact = Attention(config.with_(kernel="exact")).double()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(B, T, H * D, dtype=torch.float64, requires_grad=True)
    context = torch.randn(B, keys, H * D, dtype=torch.float64) if keys else None
    real = torch.arange(keys or T) < torch.tensor([[11], [26]]) if "padding" in mask else None
    ours = layer(x, context, key_mask=real, record=False)
    assert ours.weights is None
    theirs = exact(x, context, key_mask=real)
    same(ours.merged, theirs.merged, [x, *layer.parameters()], [x, *exact.parameters()])


@each("position", ["alibi", "t5", "transformer_xl", "forgetting", "deberta"])
@each("kernel", BLOCKS)
def test_a_learned_bias_is_made_block_by_block(kernel, position):
    config = AttentionConfig(24, 3, mask=LOCAL, kernel=kernel, position=position)
    layer, exact = Attention(config).double(), Attention(config.with_(kernel="exact")).double()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(B, T, 24, dtype=torch.float64, requires_grad=True)
    same(
        layer(x, record=False).merged,
        exact(x).merged,
        [x, *layer.parameters()],
        [x, *exact.parameters()],
    )


@each(
    "axes",
    [
        {"normalizer": "sink", "mask": "causal_local"},
        {"normalizer": "softcap", "mask": "causal_local"},
        {"normalizer": "sigmoid"},
        {"normalizer": "sparsemax"},
        {"normalizer": "top_k"},
        {"score": "additive"},
        {"position": "shaw"},
        {"projection": "differential"},
        {"projection": "grouped_query"},
        {"mask": "local_p"},
    ],
)
@each("kernel", BLOCKS[1:])
def test_a_band_of_any_mechanism_is_that_of_exact(kernel, axes):
    """gpt-oss's sinks and Gemma's caps in a window, and whatever else looks at one row at a time."""
    config = AttentionConfig(24, 2, **{"mask": LOCAL, **axes}, kernel=kernel)
    layer, exact = Attention(config).double(), Attention(config.with_(kernel="exact")).double()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(B, T, 24, dtype=torch.float64, requires_grad=True)
    learned = [name for name, weight in layer.named_parameters() if weight.requires_grad]
    ours, theirs = layer(x, record=False).merged, exact(x).merged
    used = [
        n
        for n, g in zip(
            learned,
            torch.autograd.grad(
                theirs.sum(),
                [exact.get_parameter(n) for n in learned],
                retain_graph=True,
                allow_unused=True,
            ),
            strict=True,
        )
        if g is not None
    ]
    same(ours, theirs, [x, *map(layer.get_parameter, used)], [x, *map(exact.get_parameter, used)])


@each("kernel", ["chunked", "local", "block_sparse"])
def test_attend_takes_any_mask_and_bias(kernel):
    q, k, v = heads(dtype=torch.float64)
    mask, bias = (
        torch.rand(B, 1, T, S) < 0.4,
        torch.randn(H, T, S, dtype=torch.float64, requires_grad=True),
    )
    mask[0, :, 3] = False  # a query that sees nothing
    ours, theirs = (
        attend(q, k, v, mask, bias=bias, temperature=0.7, kernel=which).out
        for which in (kernel, "exact")
    )
    assert not ours[0, :, 3].any()
    same(ours, theirs, [q, k, v, bias])


def test_the_derivative_of_chunked_is_that_of_the_formula():
    q, k, v = (x.detach()[:1, :1, :5, :2].requires_grad_() for x in heads(dtype=torch.float64))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[3] = False
    config = AttentionConfig(2, 1, kernel=Choice.of("chunked", block=3), score="general")
    layer = Attention(config).double()
    weight = layer.score.weight

    def output(q, k, v, weight):
        return layer.kernel(layer.kernel_inputs(q, k, v, mask=mask)).out

    assert torch.autograd.gradcheck(output, (q, k, v, weight))


def test_chunked_drops_the_same_weights_forward_and_backward():
    """The output is linear in v, so that its gradient shows which weights were kept, and how many."""
    q, k, v = heads(dtype=torch.float64)
    torch.manual_seed(3)
    out = attend(q, k, v, dropout=0.3, kernel="chunked").out
    (felt,) = torch.autograd.grad(out.sum(), v, retain_graph=True)
    torch.testing.assert_close((felt * v).sum(), out.sum())
    with torch.no_grad():
        many = torch.stack([attend(q, k, v, dropout=0.3, kernel="chunked").out for _ in range(100)])
        torch.testing.assert_close(many.mean(0), attend(q, k, v).out, rtol=0, atol=0.3)
    assert many.std(0).max() > 0.1


@each("causal", [False, True])
def test_local_against_local_attention(causal):
    window, mask = (
        6,
        Choice.of("causal_local", lookback=6) if causal else Choice.of("local", window=6),
    )
    config = AttentionConfig(H * D, H, "identity", mask=mask, kernel=Choice.of("local", block=5))
    layer = Attention(config)
    peer = LocalAttention(
        window, causal=causal, exact_windowsize=True, autopad=True, use_rotary_pos_emb=False
    )
    q, k, v = heads(T, T, D)
    real = torch.arange(T) < torch.tensor([[T], [23]])
    ours = layer.kernel(layer.kernel_inputs(q, k, v, key_mask=real)).out
    theirs = peer(q, k, v, mask=real)
    seen = torch.ones(B, 1, T, 1, dtype=torch.bool)
    seen[1, :, 23 + window :] = (
        False  # it gives the mean of padding where a query sees no key; we give zeros
    )
    same(ours * seen, theirs * seen, [q, k, v])


def test_linear_against_performer_pytorch_and_the_quadratic_form():
    q, k, v = heads(T, T)
    fq, fk = elu_features(q), elu_features(k)
    same(ours_linear(fq, fk, v), linear_attention(fq, fk, v), [q, k, v])
    weights = fq @ fk.mT
    same(ours_linear(fq, fk, v), weights / weights.sum(-1, keepdim=True) @ v, [q, k, v])


@each("chunk", [1, 8, 37, 64])
def test_causal_linear_against_performer_pytorch_and_the_quadratic_form(chunk):
    q, k, v = heads(T, T)
    fq, fk = elu_features(q), elu_features(k)
    ours, state = ours_causal(fq, fk, v, chunk)
    same(ours, causal_linear_attention_noncuda(fq, fk, v, chunk_size=T, eps=0.0), [q, k, v])
    weights = (fq @ fk.mT).tril()
    same(ours, weights / weights.sum(-1, keepdim=True) @ v, [q, k, v])
    torch.testing.assert_close(state, fk.mT @ torch.cat((v, torch.ones(B, H, T, 1)), -1))


@each(("queries", "keys", "offset"), [(5, 29, 24), (5, 29, 3), (29, 5, 0), (1, 9, 8)])
def test_causal_linear_takes_a_cache_and_a_context(queries, keys, offset):
    q, k, v = heads(queries, keys)
    fq, fk = elu_features(q), elu_features(k)
    weights = (fq @ fk.mT).masked_fill(
        torch.arange(offset, offset + queries)[:, None] < torch.arange(keys), 0.0
    )
    same(
        ours_causal(fq, fk, v, 8, offset)[0], weights / weights.sum(-1, keepdim=True) @ v, [q, k, v]
    )


def features(q, k, layer):
    how = {"projection_matrix": layer.kernel.directions, "eps": EPSILON}
    return softmax_kernel(q, is_query=True, **how), softmax_kernel(k, is_query=False, **how)


def test_performer_against_performer_pytorch():
    """With the same directions; its own are none too random, since QR alone leaves each first number below zero.

    Its gradient leaves out the stabiliser, which does not cancel beside ε: test_precision.py has ours.
    """
    config = AttentionConfig(
        H * D, H, "identity", kernel=Choice.of("performer", features=23, seed=5)
    )
    layer, (q, k, v) = Attention(config), heads()
    theirs = linear_attention(*features(q, k, layer), v)
    same(layer.kernel(layer.kernel_inputs(q, k, v)).out, theirs, [v])


def test_causal_performer_against_performer_pytorch():
    config = AttentionConfig(
        H * D, H, "identity", mask="causal", kernel=Choice.of("performer", features=23, chunk=8)
    )
    layer, (q, k, v) = Attention(config), heads(T, T)
    directions, root = (
        layer.kernel.directions,
        D**-0.25,
    )  # its own features look ahead for a stabiliser
    fq, fk = query_features(q * root, directions), key_features(k * root, directions, None, True)
    theirs = causal_linear_attention_noncuda(fq, fk, v, chunk_size=T, eps=0.0)
    same(layer.kernel(layer.kernel_inputs(q, k, v)).out, theirs, [q, k, v])


def test_linformer_against_linformer():
    longest, rank = 31, 5
    config = AttentionConfig(
        H * D,
        H,
        Choice.of("multi_head", bias=False),
        kernel=Choice.of("linformer", rank=rank, max_len=longest),
    )
    layer, peer = Attention(config), LinformerSelfAttention(H * D, longest, k=rank, heads=H)
    maps, kernel = layer.projection, layer.kernel
    pairs = [
        (maps.query.weight, peer.to_q.weight),
        (maps.key.weight, peer.to_k.weight),
        (maps.value.weight, peer.to_v.weight),
        (maps.output.weight, peer.to_out.weight),
        (kernel.to_key, peer.proj_k),
        (kernel.to_value, peer.proj_v),
    ]
    with torch.no_grad():
        peer.to_out.bias.zero_()
        for ours, theirs in pairs:
            ours.copy_(theirs)
    x = torch.randn(B, S, H * D, requires_grad=True)
    same(
        layer(x, record=False).merged,
        peer(x),
        [x, *(a for a, _ in pairs)],
        [x, *(b for _, b in pairs)],
    )


def test_nystrom_against_transformers():
    """Their segments need a length that the landmarks divide, and their first guess is one for the whole batch."""
    length, landmarks = 35, 7
    peer = NystromformerSelfAttention(
        NystromformerConfig(
            hidden_size=H * D,
            num_attention_heads=H,
            num_landmarks=landmarks,
            segment_means_seq_len=length,
            attention_probs_dropout_prob=0.0,
        )
    )
    peer.conv_kernel_size = None  # the convolution over v is no attention
    peer.init_option = (
        "exact"  # ours: each matrix has its own first guess, so that a batch does not mix
    )
    layer = Attention(
        AttentionConfig(H * D, H, kernel=Choice.of("nystrom", landmarks=landmarks, rounds=6))
    )
    maps = layer.projection
    pairs = [(maps.query, peer.query), (maps.key, peer.key), (maps.value, peer.value)]
    for ours, theirs in pairs:
        ours.load_state_dict(theirs.state_dict())
    x = torch.randn(B, length, H * D, requires_grad=True)
    ours = layer(x, record=False).out.transpose(1, 2).flatten(2)
    same(ours, peer(x)[0], [x, *(a.weight for a, _ in pairs)], [x, *(b.weight for _, b in pairs)])


@each("chunk", [1, 8, 37, 64])
def test_retention_in_chunks_is_the_recurrence(chunk):
    """state ← γ · state + k vᵀ, out = q · state: one token at a time, as the paper's equation 6."""
    (q, k, v), slopes = heads(T, T, dtype=torch.float64), 8 * retnet_slopes(H)[:, None, None]
    state, outs = torch.zeros(B, H, D, E, dtype=torch.float64), []
    for i in range(T):
        state = state * torch.exp(-slopes) + k[:, :, i, :, None] * v[:, :, i, None, :]
        outs.append(q[:, :, i, None] @ state)
    ours, last = retain(q, k, v, slopes, chunk)
    same(ours, torch.cat(outs, 2), [q, k, v])
    same(last, state, [k, v])
    _, half = retain(q[:, :, :9], k[:, :, :9], v[:, :, :9], slopes, chunk)
    same(
        retain(q[:, :, 9:], k[:, :, 9:], v[:, :, 9:], slopes, chunk, past=half)[0],
        torch.cat(outs[9:], 2),
        [q, k, v],
    )


def test_retention_against_minimax():
    """Its lightning attention, with the activation, norm and gate around it."""
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
    config = AttentionConfig(
        width, H, "identity", "dot", kernel=Choice.of("retention", decay="lightning", chunk=5)
    )
    layer, x = Attention(config), torch.randn(B, T, width, requires_grad=True)
    slopes = lightning_slopes(H)[:, None, None].float()
    torch.testing.assert_close(slopes, peer.slope_rate, rtol=2e-5, atol=0)  # theirs × 1.00001
    q, k, v = (
        peer.act_fn(peer.qkv_proj(x)).reshape(B, T, H, 3 * size).transpose(1, 2).split(size, dim=-1)
    )
    merged = layer.kernel(layer.kernel_inputs(q, k, v)).out.transpose(1, 2).flatten(2)
    ours = peer.out_proj(torch.sigmoid(peer.output_gate(x)) * peer.norm(merged))
    same(ours, peer(x, None, None)[0], [x])


def test_the_rates_of_decay_are_the_papers():
    torch.testing.assert_close(
        torch.exp(-retnet_slopes(3)).tolist(), [1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128]
    )
    torch.testing.assert_close(lightning_slopes(4).tolist(), [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])
