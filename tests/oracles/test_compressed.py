"""Kernels of compressed keys: DeepSeek-V4's attention in transformers, and a loop over blocks from its formulas."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import rms_norm
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as hf

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.kernels.compressed import Compressed
from core.attention.masks.content import rotate_first
from tests.cases import each, instance
from tests.oracles.agreement import agree, put

B, H, D, C, S = 2, 3, 8, 24, 21
TYPES = {"hca": "heavily_compressed_attention", "csa": "compressed_sparse_attention"}
SPARSE = {"blocks": 2, "heads": 5, "dim": 8}


def layer_of(key, kv_heads=1, size=3, window=4, position="none", normalizer="softmax", **more):
    """A layer whose kernel has no weight that does nothing."""
    own = (SPARSE if key == "csa" else {}) | {"size": size, "window": window} | more
    layer = Attention(
        AttentionConfig(
            C,
            H,
            Choice.of("grouped_query", kv_heads=kv_heads, bias=False),
            position=position,
            mask="causal",
            normalizer=normalizer,
            kernel=Choice.of(key, **own),
        )
    ).double()
    for weight in [*layer.kernel.parameters(), *layer.normalizer.parameters()]:
        nn.init.normal_(weight, std=0.7)
    return layer, instance(layer.kernel, Compressed)


def placed(weight, dim=D):
    """Rows of each head as theirs are: the rotated ones, which ours have in front, come last."""
    return weight.unflatten(0, (-1, dim)).roll(dim // 2, 1).flatten(0, 1)


def put_compressor(peer, own):
    """Our weights of a compressor into theirs."""
    put(
        (peer.kv_proj.weight, placed(own.value.weight)),
        (peer.gate_proj.weight, placed(own.gate.weight)),
        (peer.position_bias, placed(own.bias.T).T),
        (peer.kv_norm.weight, placed(own.norm.weight)),
    )


def peer_of(layer, kernel, size, window):
    """Their layer without its low ranks and norms, which are no part of the kernel, and with our weights."""
    config = hf.DeepseekV4Config(
        hidden_size=C,
        num_attention_heads=H,
        head_dim=D,
        q_lora_rank=C,
        o_groups=1,
        o_lora_rank=C,
        partial_rotary_factor=0.5,
        num_hidden_layers=1,
        layer_types=[TYPES[kernel.key]],
        mlp_layer_types=["moe"],
        compress_rates={TYPES[kernel.key]: size},
        compress_rope_theta=10000.0,
        sliding_window=window,
        index_n_heads=SPARSE["heads"],
        index_head_dim=SPARSE["dim"],
        index_topk=SPARSE["blocks"],
        attn_implementation="eager",
    )
    peer: Any = hf.DeepseekV4Attention(config, 0).double()
    for name in ("q_a_proj", "q_a_norm", "q_b_norm", "kv_norm", "o_a_proj"):
        setattr(peer, name, nn.Identity())
    projection = layer.projection
    put(
        (peer.q_b_proj.weight, placed(projection.query.weight)),
        (peer.kv_proj.weight, placed(projection.key.weight)),
        (projection.value.weight, projection.key.weight),
        (peer.o_b_proj.weight, placed(projection.output.weight.T).T),
        (peer.sinks, layer.normalizer.sink),
    )
    put_compressor(peer.compressor, kernel.compressor)
    if kernel.indexer is not None:
        theirs = peer.compressor.indexer
        put_compressor(theirs, kernel.indexer.compressor)
        put(
            (theirs.q_b_proj.weight, placed(kernel.indexer.query.weight)),
            (theirs.scorer.weights_proj.weight, kernel.indexer.weight.weight),
        )
    return peer, hf.DeepseekV4RotaryEmbedding(config)


ROPE = Choice.of("rope", layout="interleaved", share=0.5)


@each(
    ("key", "size", "window"),
    [("hca", 3, 4), ("hca", 4, 1), ("hca", 5, 30), ("csa", 3, 4), ("csa", 2, 6)],
)
def test_the_layer_is_deepseeks(key, size, window):
    # Keys are values, and there are sinks.
    layer, kernel = layer_of(key, 1, size, window, ROPE, "sink")
    peer, rotary = peer_of(layer, kernel, size, window)
    x = torch.randn(B, S, C, dtype=torch.float64, requires_grad=True)
    places = torch.arange(S)
    seen = (places <= places[:, None]) & (places > places[:, None] - window)
    mask = torch.zeros(B, 1, S, S, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    turns = {
        "compress": rotary(x, places[None].expand(B, -1), layer_type="compress"),
    }
    out, _ = peer(x, turns, places[None].expand(B, -1), mask)
    learned = [
        (kernel.compressor.norm.weight, peer.compressor.kv_norm.weight, lambda w: placed(w)),
        (kernel.compressor.bias, peer.compressor.position_bias, lambda w: placed(w.T).T),
        (layer.projection.query.weight, peer.q_b_proj.weight, placed),
        (layer.normalizer.sink, peer.sinks, lambda w: w),
    ]
    ours = layer(x).merged
    agree(ours, out, (x,), rel=1e-6)
    way = torch.randn_like(ours)
    for mine, theirs, moved in learned:
        one = torch.autograd.grad((ours * way).sum(), mine, retain_graph=True)[0]
        other = torch.autograd.grad((out * way).sum(), theirs, retain_graph=True)[0]
        assert other.any()
        torch.testing.assert_close(moved(one), other.to(one), rtol=1e-5, atol=1e-6)


def compress(own, x, blocks):
    """Each block's vector and the shares of its tokens, block by block."""
    vectors = []
    for n, js in enumerate(blocks):
        terms = [(own.value(x[j]), own.gate(x[j]) + own.bias[at]) for at, j in enumerate(js)]
        tokens = list(js)
        if own.overlap:
            terms = [(c[own.dim :], z[own.dim :]) for c, z in terms]
            if n:
                before = list(enumerate(blocks[n - 1]))
                tokens = [j for _, j in before] + tokens
                first = [
                    (own.value(x[j])[: own.dim], (own.gate(x[j]) + own.bias[at])[: own.dim])
                    for at, j in before
                ]
                terms = first + terms
        shares = torch.stack([z for _, z in terms]).softmax(0)
        mean = (shares * torch.stack([c for c, _ in terms])).sum(0)
        vectors.append(
            (
                rms_norm(mean, (own.dim,), own.norm.weight, 1e-6),
                dict(zip(tokens, shares, strict=True)),
            )
        )
    return vectors


def by_loop(kernel, steps, x, real, offset, size, window):
    """Outputs and drawn weights of one text, without positions: one query after the other."""
    at = real.nonzero()[:, 0].tolist()
    blocks = [at[n : n + size] for n in range(0, len(at) - size + 1, size)]
    entries = compress(kernel.compressor, x, blocks)
    q, k, v = steps
    outs, drawn = [], torch.zeros(H, q.shape[1], len(x), dtype=torch.float64)
    for t in range(q.shape[1]):
        i = t + offset
        full = [n for n, js in enumerate(blocks) if js[-1] <= i]
        if kernel.indexer is not None and full:
            own = kernel.indexer
            keys = [key for key, _ in compress(own.compressor, x, blocks)]
            queries = rotate_first(
                own.query(x[i]).view(own.heads, 1, -1), torch.tensor([i]), 0.5, "interleaved"
            )[:, 0]
            scores = {}
            for n in full:
                place = torch.tensor([blocks[n][0]])
                key = rotate_first(keys[n][None], place, 0.5, "interleaved")[0]
                products = (queries @ key).relu() * own.weight(x[i])
                scores[n] = float(products.sum().detach())
            full = sorted(full, key=lambda n: -scores[n])[: kernel.blocks]
        near = [j for j in at if i - window < j <= i]
        for h in range(H):
            pairs = [(entries[n][0], entries[n][0]) for n in full] + [
                (k[h, j], v[h, j]) for j in near
            ]
            if not pairs:
                outs.append((h, t, torch.zeros(D, dtype=torch.float64)))
                continue
            weights = torch.stack([q[h, t] @ key for key, _ in pairs]).mul(D**-0.5).softmax(0)
            outs.append(
                (h, t, sum(w * value for w, (_, value) in zip(weights, pairs, strict=True)))
            )
            for w, n in zip(weights, full, strict=False):
                for j, share in entries[n][1].items():
                    drawn[h, t, j] += (w * share.mean()).detach()
            for w, j in zip(weights[len(full) :], near, strict=True):
                drawn[h, t, j] += w.detach()
    rows = torch.stack([out for _, _, out in sorted(outs, key=lambda row: row[:2])])
    return rows.view(H, -1, D), drawn


@each(
    ("key", "kv_heads", "size", "window", "offset"),
    [("hca", 3, 3, 4, 0), ("hca", 1, 2, 1, 5), ("csa", 3, 3, 2, 0), ("csa", 1, 4, 5, 4)],
)
def test_each_query_attends_to_blocks_and_a_window(key, kv_heads, size, window, offset):
    layer, kernel = layer_of(key, kv_heads, size, window)
    context = torch.randn(B, 15, C, dtype=torch.float64, requires_grad=True)
    x, real = context[:, offset : offset + 9], torch.rand(B, 15) < 0.8
    steps = layer(x, context, key_mask=real, offset=offset)
    texts = zip(steps.q, steps.k, steps.v, context, real, strict=True)
    want = [by_loop(kernel, one[:3], *one[3:], offset, size, window) for one in texts]
    learned = [layer.projection.key.weight, *kernel.compressor.parameters()]
    agree(steps.out, torch.stack([out for out, _ in want]), (context, *learned))
    torch.testing.assert_close(steps.weights, torch.stack([drawn for _, drawn in want]))


@each("key", TYPES)
def test_steps_are_the_whole(key):
    layer, _ = layer_of(key, position=ROPE)
    x, real = torch.randn(B, S, C, dtype=torch.float64), torch.rand(B, S) < 0.8
    whole, cache, outs = layer(x, key_mask=real).merged, None, []
    for first, last in ((0, 7), (7, 8), (8, 12), *((n, n + 1) for n in range(12, S))):
        steps, cache = layer.step(x[:, first:last], cache, key_mask=real[:, first:last])
        outs.append(steps.merged)
    torch.testing.assert_close(torch.cat(outs, 1)[real], whole[real])


def test_blocks_by_hand():
    # Blocks of two, a window of one, all scores 0, shares of 1/2. Token 4 sees the blocks 0 1 and 2 3 and itself.
    layer = Attention(
        AttentionConfig(1, 1, "identity", kernel=Choice.of("hca", size=2, window=1, turned=False))
    )
    own = instance(layer.kernel, Compressed).compressor
    put((own.value.weight, 1.0), (own.gate.weight, 0.0))
    zeros, x = torch.zeros(1, 1, 5, 1), torch.tensor([4.0, 2, -1, -5, 6]).view(1, 5, 1)
    steps = layer.attend_heads(zeros, zeros, x[:, None], x, x)
    # The norm of one number leaves its sign: the blocks are 1 and −1.
    torch.testing.assert_close(steps.out[0, 0, 4].item(), (1 - 1 + 6) / 3)
    torch.testing.assert_close(
        steps.weights[0, 0],
        torch.tensor(
            [[1, 0, 0, 0, 0], [1, 3, 0, 0, 0], [1, 1, 2, 0, 0], [1, 1, 1, 3, 0], [1, 1, 1, 1, 2]]
        )
        / torch.tensor([1.0, 4, 4, 6, 6])[:, None],
    )


def test_the_loss_reaches_the_indexer_alone_and_teaches_it():
    torch.manual_seed(3)
    layer, kernel = layer_of("csa", blocks=1, window=1)
    for weight in (layer.projection.query.weight, kernel.compressor.value.weight):
        weight.data *= 2
    x = torch.randn(4, S, C, dtype=torch.float64, requires_grad=True)
    layer(x).indexer_loss.backward()
    assert x.grad is None
    assert kernel.indexer is not None
    own = {id(weight) for weight in kernel.indexer.parameters()}
    assert all((weight.grad is not None) == (id(weight) in own) for weight in layer.parameters())
    optimizer = torch.optim.Adam(kernel.indexer.parameters(), 0.05)
    losses = []
    for _ in range(12):
        loss = layer(x.detach()).indexer_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_what_does_not_fit():
    with pytest.raises(ConfigError, match="values too, and projection = latent"):
        AttentionConfig(C, H, "latent", mask="causal", kernel="hca")
    with pytest.raises(ConfigError, match="which position = grid_rope cannot do"):
        AttentionConfig(C, H, position="grid_rope", kernel="csa")
    with pytest.raises(ConfigError, match="not normalizer = sparsemax; take normalizer = sink"):
        AttentionConfig(C, H, normalizer="sparsemax", kernel="hca")
