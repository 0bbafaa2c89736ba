"""Masks that choose blocks by an indexer: those of MiniMax-M3, Qwen4 and GLM-5 in transformers, and loops from them;
and DeepSeek-V4's kernels of compressed keys."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import layer_norm, rms_norm
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as hf
from transformers.models.glm5_next import modeling_glm5_next as glm53
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as glm5
from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as m3
from transformers.models.qwen4_exp import modeling_qwen4_exp as qwen4

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.base import ScoreBlock
from core.attention.kernels import compressed
from core.attention.kernels.compressed import Compressed
from core.attention.masks.content import RealBlocks, rotate_first
from tests.attention.drawing import read_in_parts
from tests.cases import descend, each, instance
from tests.oracles.agreement import agree, put, twin
from tests.oracles.test_masks import LIGHTNING, MOBA

B, H, C, S = 3, 4, 12, 19
SIZES = {"size": 3, "blocks": 2, "dim": 6}
ALL = [
    Choice.of("block_max", **SIZES, share=0.7),
    Choice.of("block_mean", **SIZES, heads=3, share=0.7),
    Choice.of("block_gated", **SIZES, heads=3),
]


def layer_of(mask, kv_heads=2, **axes):
    """A layer whose indexer has no weight that does nothing."""
    layer = Attention(
        AttentionConfig(C, H, Choice.of("grouped_query", kv_heads=kv_heads), mask=mask, **axes)
    )
    for weight in layer.mask.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return layer


def texts(left=0.8):
    """Inputs, and which of their tokens are real: some of a text, all of the next."""
    real = torch.rand(B, S) < left
    real[0] = True
    return torch.randn(B, S, C), real


def turns(positions, dims):
    """cos and sin as transformers' models pass them, in halves."""
    angles = positions[..., None] * 10000.0 ** (-torch.arange(0, dims, 2) / dims)
    return tuple(torch.cat((wave, wave), -1) for wave in (angles.cos(), angles.sin()))


def ambiguous(layer, x, real):
    """Rows in which several candidates have the score 0, of which topk takes any."""
    block = ScoreBlock.whole(S, S, num_heads=H, x=x, context=x, key_mask=real)
    layout = RealBlocks.of(block, layer.mask.size)
    zeros = (layer.mask.block_scores(block, layout) == 0) & layout.indices.lt(
        layout.seen // layer.mask.size
    )
    return (zeros.sum(-1) > 1).any(1)  # (B, T)


def gains(norm):
    """The weight of a norm of ours as those have it that add 1."""
    return norm.weight.detach() - 1


@each(
    ("size", "blocks", "local", "kv_heads"),
    [(3, 2, 1, 2), (4, 3, 2, 1), (1, 5, 0, 4), (5, 64, 1, 2)],
)
def test_block_maxima_are_minimaxs(size, blocks, local, kv_heads):
    # Theirs counts blocks from the first slot, so each text is given to it without its padding, at its positions.
    mask = Choice.of("block_max", size=size, blocks=blocks, local=local, dim=6, share=0.7)
    layer, (x, real) = layer_of(mask, kv_heads), texts()
    own: Any = layer.mask
    config = m3.MiniMaxM3VLTextConfig(
        hidden_size=C,
        num_attention_heads=H,
        num_key_value_heads=kv_heads,
        index_n_heads=kv_heads,
        index_head_dim=6,
        index_block_size=size,
        index_topk_blocks=blocks,
        index_local_blocks=local,
        num_hidden_layers=1,
    )
    peer = m3.MiniMaxM3VLIndexer(config, 0)
    put(
        (peer.q_proj.weight, own.query.weight),
        (peer.k_proj.weight, own.key.weight),
        (peer.q_norm.weight, gains(own.query_norm)),
        (peer.k_norm.weight, gains(own.key_norm)),
    )
    for text, rows, cells in zip(x, real, layer(x, key_mask=real).mask, strict=True):
        at = rows.nonzero()[:, 0]
        places = torch.arange(len(at))[None]
        indices = peer(text[None, at], turns(at[None], 4), None, places)
        bias = peer.build_block_mask(
            indices, None, len(at), torch.float32, torch.device("cpu"), places
        )
        assert torch.equal(cells.expand(H, -1, -1)[:, at][:, :, at], bias[0] == 0)


@each(
    ("size", "blocks", "heads", "share"),
    [(3, 2, 3, 0.7), (4, 1, 1, 1.0), (1, 4, 5, 0.4), (5, 9, 2, 0.7)],
)
def test_block_means_are_qwens(size, blocks, heads, share):
    mask = Choice.of("block_mean", size=size, blocks=blocks, heads=heads, dim=6, share=share)
    layer, (x, real) = layer_of(mask), texts()
    own: Any = layer.mask
    config = qwen4.Qwen4ExpTextConfig(
        hidden_size=C,
        indexer_n_heads=heads,
        indexer_kv_heads=1,
        indexer_head_dim=6,
        indexer_budget=size * blocks,
        indexer_compress_ratio=size,
        head_dim=6,
    )
    peer = qwen4.Qwen4ExpTextQSAIndexer(config, 0)
    put(
        (peer.index_qk_proj.weight, torch.cat((own.query.weight, own.key.weight))),
        (peer.q_layernorm.weight, gains(own.query_norm)),
        (peer.k_layernorm.weight, gains(own.key_norm)),
    )
    allowed = real[:, None, None] & torch.ones(S, S, dtype=torch.bool).tril()
    want = peer(x, turns(torch.arange(S).expand(B, -1), 2 * int(6 * share / 2)), allowed, None)
    clear, shown = ~ambiguous(layer, x, real), layer(x, key_mask=real).mask
    assert clear.sum() > B * S / 2
    assert torch.equal(shown[:, 0][clear], (want & allowed)[:, 0][clear])
    assert torch.equal(shown.sum(-1), (want & allowed).sum(-1))


@each(("size", "blocks", "heads"), [(3, 2, 3), (4, 1, 1), (1, 4, 5), (5, 9, 2)])
def test_gated_blocks_are_glms(size, blocks, heads):
    # Theirs leaves out every pool with a hole, so each text is given to it without its padding.
    layer = layer_of(Choice.of("block_gated", size=size, blocks=blocks, heads=heads, dim=6))
    own: Any = layer.mask
    x, real = texts()
    config = glm53.Glm5NextTextConfig(
        hidden_size=C,
        q_lora_rank=C,
        index_n_heads=heads,
        index_head_dim=6,
        index_topk=size * blocks,
        index_kpool=size,
        num_attention_heads=H,
        num_key_value_heads=H,
    )
    peer = glm53.Glm5NextTextIndexer(config, 0)
    put(
        (peer.wq_b.weight, own.query.weight),
        (peer.wk.weight, own.key.weight),
        (peer.k_norm.weight, own.norm.weight),
        (peer.k_norm.bias, own.norm.bias),
        (peer.weights_proj.weight, own.weight.weight),
        (peer.index_kpool_compress_gate, own.gate.weight),
        (peer.index_kpool_compress_ape, own.bias),
    )
    shown, clear = layer(x, key_mask=real).mask[:, 0], ~ambiguous(layer, x, real)
    assert clear.sum() > B * S / 2
    for text, rows, cells, sure in zip(x, real, shown, clear, strict=True):
        at = rows.nonzero()[:, 0]
        chosen = peer(text[None, at], text[None, at], torch.ones(1, len(at)).bool(), None)[0].long()
        want = torch.zeros(len(at), len(at) + 1, dtype=torch.bool).scatter(
            -1, chosen % (len(at) + 1), True
        )
        ours, theirs = cells[at][:, at], want[:, :-1]
        assert torch.equal(ours[sure[at]], theirs[sure[at]])


def test_the_lightning_indexer_is_glms_with_its_dimensions():
    # GLM-5 rotates pairs side by side, of which ours are the halves.
    layer, (x, real) = layer_of(Choice.of("lightning", keys=4, heads=3, size=6, share=0.7)), texts()
    own: Any = layer.mask
    config = glm5.GlmMoeDsaConfig(
        hidden_size=C,
        q_lora_rank=C,
        index_n_heads=3,
        index_head_dim=6,
        index_topk=4,
        qk_rope_head_dim=4,
    )
    peer, order = glm5.GlmMoeDsaIndexer(config, 0), [0, 2, 1, 3, 4, 5]
    put(
        (peer.wq_b.weight, own.query.weight.unflatten(0, (3, 6))[:, order].flatten(0, 1)),
        (peer.wk.weight, own.key.weight[order]),
        (peer.weights_proj.weight, own.weight.weight),
        (peer.k_norm.weight, own.norm.weight[order]),
        (peer.k_norm.bias, own.norm.bias[order]),
    )
    allowed = real[:, None] & torch.ones(S, S, dtype=torch.bool).tril()
    at = torch.arange(S)[None]
    indices = peer(x, x, turns(at, 4), allowed, at).long()
    want = torch.zeros(B, S, S, dtype=torch.bool).scatter(-1, indices, True) & allowed
    clear = ((own.index_scores(ScoreBlock.whole(S, S, x=x, context=x)) == 0) & allowed).sum(-1) <= 1
    assert torch.equal(layer(x, key_mask=real).mask[:, 0][clear], want[clear])


def score_by_loop(key, own, x, i, js):
    """The score of one query and one block, per choice of the indexer: the keys js of the block that are not later."""
    dim, heads = own.key.out_features, own.heads

    def turned(vector, at):
        share = getattr(own, "share", 0.0)
        return rotate_first(vector[None], torch.tensor([at]), share)[0]

    q = own.query(x[i]).view(heads, dim)
    k = {j: own.key(x[j]) for j in js}
    if key == "block_max":
        q = [turned(rms_norm(one, (dim,), own.query_norm.weight, 1e-6), i) for one in q]
        keys = [turned(rms_norm(k[j], (dim,), own.key_norm.weight, 1e-6), j) for j in js if j <= i]
        return [max(one @ other for other in keys) * dim**-0.5 for one in q]
    if key == "block_mean":
        q = [turned(rms_norm(one, (dim,), own.query_norm.weight, 1e-6), i) for one in q]
        mean = torch.stack([k[j] for j in js]).mean(0)
        mean = turned(rms_norm(mean, (dim,), own.key_norm.weight, 1e-6), js[0])
        return [sum(torch.relu(one @ mean) for one in q) * dim**-0.5]
    z = torch.stack([own.gate(x[j]) + own.bias[n] for n, j in enumerate(js)]).softmax(0)
    normed = [layer_norm(k[j], (dim,), own.norm.weight, own.norm.bias, 1e-6) for j in js]
    mean = (z * torch.stack(normed)).sum(0)
    weights = own.weight(x[i]) * (dim * heads) ** -0.5
    return [sum(w * torch.relu(one @ mean) for w, one in zip(weights, q, strict=True))]


@each("mask", ALL)
def test_the_loss_of_blocks_is_the_loops_with_its_gradients(mask):
    # For each query Σ_b p_b log(p_b / softmax(I)_b), p the weight that all heads of a choice give to the block.
    layer, (x, real) = layer_of(mask).double(), texts(0.7)
    x, own = x[:2].double(), layer.mask
    full, losses = twin(layer, strict=False, mask="causal"), []
    for text, rows, heads in zip(
        x, real, full(x, key_mask=real[:2]).weights.detach(), strict=False
    ):
        at = rows.nonzero()[:, 0].tolist()
        blocks = [at[n : n + own.size] for n in range(0, len(at), own.size)]
        for i in at:
            seen = [b for b in blocks if b[0] <= i]
            if mask.key != "block_max":
                seen = [b for b in seen if len(b) == own.size and b[-1] <= i]
            for group, some in enumerate(heads.chunk(own.groups)):
                if not seen:
                    losses.append(torch.zeros((), dtype=torch.float64))
                    continue
                target = torch.stack([some[:, i, b].sum() for b in seen])
                target = target / target.sum().clamp(min=1e-300)
                scores = torch.stack(
                    [torch.as_tensor(score_by_loop(mask.key, own, text, i, b)[group]) for b in seen]
                )
                terms = target * (target.clamp(min=1e-300).log() - scores.log_softmax(0))
                losses.append(terms.sum())
    agree(
        layer(x, key_mask=real[:2]).indexer_loss, torch.stack(losses).mean(), list(own.parameters())
    )


def mean_loss(layer, texts):
    """The indexer's loss of each text alone, averaged over all their queries."""
    losses = torch.stack([layer(text[None]).indexer_loss for text in texts])
    return (
        losses
        @ torch.tensor([len(text) for text in texts], dtype=losses.dtype)
        / len(torch.cat(texts))
    )


def with_indexer(choice):
    if choice.key == "csa":
        return compressing(**dict(choice.params), key="csa")[0]
    return layer_of(choice, position="alibi")


INDEXERS = [*ALL, LIGHTNING, Choice("csa")]


@each("left", [False, True])
@each("choice", INDEXERS)
def test_padding_adds_nothing_to_the_indexers_loss(choice, left):
    # As a batch of texts of other lengths, and by steps after a cache, each query counts as it does alone.
    layer, lengths = with_indexer(choice).double(), (S, 6, 1)
    x = torch.randn(3, S, layer.config.d_model, dtype=torch.float64)
    spans = [slice(S - n, S) if left else slice(n) for n in lengths]
    real = torch.stack([torch.isin(torch.arange(S), torch.arange(S)[span]) for span in spans])
    alone = mean_loss(layer, [text[span] for text, span in zip(x, spans, strict=True)])
    own = getattr(layer.indexer, "indexer", layer.indexer)  # a kernel has one inside
    agree(layer(x, key_mask=real).indexer_loss, alone, list(own.parameters()))
    if choice.key != "csa":  # which reads all rows again
        last, cut = layer.step(x, key_mask=real)[0].indexer_loss, 7
        assert torch.isclose(last, alone)
        _, cache = layer.step(x[:, :cut], key_mask=real[:, :cut])
        after = layer.step(x[:, cut:], cache, key_mask=real[:, cut:])[0].indexer_loss
        before = layer(x[:, :cut], key_mask=real[:, :cut]).indexer_loss
        shares = real[:, :cut].sum(), real[:, cut:].sum()
        assert torch.isclose((before * shares[0] + after * shares[1]) / real.sum(), alone)


@each("given", ["and", "mask", "mask of a text", "mask of a head"])
@each("choice", [*ALL, LIGHTNING])
def test_the_indexers_loss_obeys_every_mask(choice, given):
    # Two texts in one row, each of whole blocks: as each alone, whoever says that they do not see each other.
    texts, sizes = torch.randn(2, 18, C, dtype=torch.float64), (6, 12)
    both = (
        choice
        if given != "and"
        else Choice.of("and", choice, Choice.of("document", lengths="6, 12"))
    )
    layer, alone = with_indexer(both).double(), with_indexer(choice).double()
    alone.load_state_dict(
        {name.replace("parts.0.", ""): one for name, one in layer.state_dict().items()}
    )
    same = torch.block_diag(*(torch.ones(n, n) for n in sizes)).bool()
    masks = {
        "mask": same,
        "mask of a text": same.expand(2, 1, -1, -1),
        "mask of a head": same.expand(1, H, -1, -1),
    }
    expected = mean_loss(alone, [one for text in texts for one in text.split(sizes)])
    steps = layer(texts, mask=masks.get(given))
    own, others = (list(one.indexer.parameters()) for one in (layer, alone))
    agree(steps.indexer_loss, expected, own, others)


def test_query_without_key_adds_nothing_to_indexers_loss():
    layer, x = with_indexer(LIGHTNING), torch.randn(1, S, C)
    mask = torch.ones(S, S).tril().bool()
    mask[5:9] = False
    real = torch.ones(1, S, dtype=torch.bool)  # whose queries may begin anywhere
    assert layer(x, key_mask=real, offset=3).indexer_loss >= 0
    assert layer(x[:, :4], x, key_mask=real, offset=17).indexer_loss >= 0
    some = layer(x[:, :9], mask=mask[:9, :9]).indexer_loss
    assert torch.isclose(some, layer(x[:, :5]).indexer_loss)
    assert layer(x, mask=torch.zeros(S, S).bool()).indexer_loss == 0


@each("mask", [*ALL, MOBA, LIGHTNING])
def test_any_rectangle_agrees_with_the_whole(mask):
    layer, (x, real) = layer_of(mask), texts(0.7)
    q, k, v = layer.projection(x, x)
    whole = layer.kernel_inputs(q, k, v, x, x, key_mask=real).block
    rows, columns = slice(4, 11), slice(3, 9)
    assert torch.equal(
        layer.mask(whole.part(rows, columns)), layer.mask(whole)[:, :, rows, columns]
    )


@each("mask", ALL)
def test_the_output_has_the_gradients_of_the_mask_given(mask):
    layer, (x, real) = layer_of(mask).double(), texts()
    x = x.double().requires_grad_()
    steps = layer(x, key_mask=real)
    agree(steps.merged, twin(layer, strict=False, mask="none")(x, mask=steps.mask).merged, (x,))


def row_of(mask, keys, *pairs, **weights):
    """Which keys the last of eight queries sees; x is a number, one real key is left out where it is None."""
    layer = Attention(AttentionConfig(1, 1, "identity", mask=mask))
    put(*((weight, 1.0) for weight in layer.mask.parameters()))
    put(*((getattr(layer.mask, name), number) for name, number in weights.items()))
    real = torch.tensor([[key is not None for key in keys]])
    x = torch.tensor([[float(key or 0) for key in keys]])[..., None]
    heads = x[:, None]
    shown = layer.attend_heads(heads, heads, heads, x, x, key_mask=real).mask
    assert shown is not None
    return "".join(".#"[cell] for cell in shown[0, 0, -1].int().tolist())


def test_block_indexers_by_hand():
    # Norms of one number leave its sign. Maxima of blocks of two, the query is −1: the best block is the one with a −.
    maxima = Choice.of("block_max", size=2, blocks=2, dim=1, share=0.0)
    assert row_of(maxima, [1, 1, 1, -1, 1, 1, 1, -1]) == "..##..##"
    assert row_of(maxima, [1, 1, None, 1, -1, 1, 1, 1, -1]) == "...##..##", "padding is in no block"
    # Means of blocks of three: 1 and −1, then two keys that are in no full block, with a query of 1.
    means = Choice.of("block_mean", size=3, blocks=1, heads=1, dim=1, share=0.0)
    assert row_of(means, [3, -1, -1, 1, 1, -3, 2, 2]) == "###...##"
    assert row_of(means, [-3, -1, -1, 1, 1, 3, -2, 2]) == "...#####"


PARTS = (7, 1, 4)


@each("mask", ALL)
def test_steps_are_the_whole(mask):
    layer, (x, real) = layer_of(mask, position="alibi"), texts()
    stepped, _ = read_in_parts(layer, x, PARTS + (1,) * 7, real)
    torch.testing.assert_close(stepped[real], layer(x, key_mask=real).merged[real])


TEXTS, HEADS, D, WIDTH, TOKENS = 2, 3, 8, 24, 21
TYPES = {"hca": "heavily_compressed_attention", "csa": "compressed_sparse_attention"}
SPARSE = {"blocks": 2, "heads": 5, "dim": 8}


def compressing(
    key,
    kv_heads=1,
    size=3,
    window=4,
    position="none",
    normalizer="softmax",
    score="scaled_dot",
    **more,
):
    """A layer whose kernel has no weight that does nothing."""
    own = (SPARSE if key == "csa" else {}) | {"size": size, "window": window} | more
    layer = Attention(
        AttentionConfig(
            WIDTH,
            HEADS,
            Choice.of("grouped_query", kv_heads=kv_heads, bias=False),
            position=position,
            mask="causal",
            score=score,
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


def compressor_names(at, own):
    """Our weights of a compressor by the names that they have in theirs."""
    return {
        f"{at}.kv_proj.weight": placed(own.value.weight),
        f"{at}.gate_proj.weight": placed(own.gate.weight),
        f"{at}.position_bias": placed(own.bias.T).T,
        f"{at}.kv_norm.weight": placed(own.norm.weight),
    }


def peer_of(layer, kernel, size, window):
    """Their layer without its low ranks and norms, which are no part of the kernel, its turns, and our weights in it."""
    config = hf.DeepseekV4Config(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        head_dim=D,
        q_lora_rank=WIDTH,
        o_groups=1,
        o_lora_rank=WIDTH,
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
    names = {
        "q_b_proj.weight": placed(projection.query.weight),
        "kv_proj.weight": placed(projection.key.weight),
        "o_b_proj.weight": placed(projection.output.weight.T).T,
        "sinks": layer.normalizer.sink,
    } | compressor_names("compressor", kernel.compressor)
    if kernel.indexer is not None:
        at, own = "compressor.indexer", kernel.indexer
        names |= compressor_names(at, own.compressor) | {
            f"{at}.q_b_proj.weight": placed(own.query.weight),
            f"{at}.scorer.weights_proj.weight": own.weight.weight,
        }
    return peer, hf.DeepseekV4RotaryEmbedding(config), names


ROPE = Choice.of("rope", layout="interleaved", share=0.5)


@each(
    ("key", "size", "window"),
    [("hca", 3, 4), ("hca", 4, 1), ("hca", 5, 30), ("csa", 3, 4), ("csa", 2, 6)],
)
def test_the_layer_is_deepseeks(key, size, window):
    # Keys are values, and there are sinks.
    layer, kernel = compressing(key, 1, size, window, ROPE, "sink")
    peer, rotary, names = peer_of(layer, kernel, size, window)
    put((layer.projection.value.weight, layer.projection.key.weight))
    x = torch.randn(TEXTS, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    places = torch.arange(TOKENS)
    seen = (places <= places[:, None]) & (places > places[:, None] - window)
    mask = torch.zeros(TEXTS, 1, TOKENS, TOKENS, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    at = places[None].expand(TEXTS, -1)
    out, _ = torch.func.functional_call(
        peer, names, (x, {"compress": rotary(x, at, layer_type="compress")}, at, mask)
    )
    learned = (*kernel.compressor.parameters(), layer.projection.query.weight)
    agree(layer(x).merged, out, (x, *learned, layer.normalizer.sink), rel=1e-6, gradient=1e-5)


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
    outs, drawn = [], torch.zeros(HEADS, q.shape[1], len(x), dtype=torch.float64)
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
        for h in range(HEADS):
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
    return torch.stack([out for _, _, out in sorted(outs, key=lambda row: row[:2])]).view(
        HEADS, -1, D
    ), drawn


PATHS = [
    {},
    {"position": "rope", "normalizer": "sink", "blocks": 1, "size": 2},
    {"position": "rope", "score": "qk_norm", "normalizer": "softmax_one", "turned": False},
    {"score": "general", "blocks": 30},
    {"score": "unit_vectors", "size": 1, "blocks": 5},  # whose heads have keys of their own
]


@each("choices", PATHS)
@each(
    ("queries", "keys", "offset"),
    [(TOKENS, TOKENS, 0), (9, TOKENS, 12), (TOKENS, 13, 0), (6, 13, 9)],
)
@each("holes", [False, True])
def test_gathered_keys_give_what_masked_ones_do(monkeypatch, choices, queries, keys, offset, holes):
    # Whatever is chosen, where scores of zero are equal, and in parts of few queries.
    layer, kernel = compressing("csa", **choices)
    x, context = (
        torch.randn(TEXTS, n, WIDTH, dtype=torch.float64, requires_grad=True)
        for n in (queries, keys)
    )
    real = torch.rand(TEXTS, keys) < (0.7 if holes else 1)
    nn.init.zeros_(kernel.indexer.weight.weight[0])
    outs = []
    monkeypatch.setattr(compressed, "ROWS", 5)
    for gathers in (True, False):
        monkeypatch.setattr(compressed, "worth_gathering", lambda *_, gathers=gathers: gathers)
        outs.append(layer(x, context, key_mask=real, offset=offset, record=False).merged)
    learned = [one for name, one in layer.named_parameters() if "indexer" not in name]
    first, second = outs
    agree(first, second, [x, context, *learned], felt=False)


@each(
    ("key", "kv_heads", "size", "window", "offset"),
    [("hca", 3, 3, 4, 0), ("hca", 1, 2, 1, 5), ("csa", 3, 3, 2, 0), ("csa", 1, 4, 5, 4)],
)
def test_each_query_attends_to_blocks_and_a_window(key, kv_heads, size, window, offset):
    layer, kernel = compressing(key, kv_heads, size, window)
    context = torch.randn(TEXTS, 15, WIDTH, dtype=torch.float64, requires_grad=True)
    x, real = context[:, offset : offset + 9], torch.rand(TEXTS, 15) < 0.8
    steps = layer(x, context, key_mask=real, offset=offset)
    texts = zip(steps.q, steps.k, steps.v, context, real, strict=True)
    want = [by_loop(kernel, one[:3], *one[3:], offset, size, window) for one in texts]
    learned = [layer.projection.key.weight, *kernel.compressor.parameters()]
    agree(steps.out, torch.stack([out for out, _ in want]), (context, *learned))
    torch.testing.assert_close(steps.weights, torch.stack([drawn for _, drawn in want]))


@each("key", TYPES)
def test_steps_of_blocks_are_the_whole(key):
    layer, _ = compressing(key, position=ROPE)
    x = torch.randn(TEXTS, TOKENS, WIDTH, dtype=torch.float64)
    real = torch.rand(TEXTS, TOKENS) < 0.8
    stepped, _ = read_in_parts(layer, x, PARTS + (1,) * 9, real)
    torch.testing.assert_close(stepped[real], layer(x, key_mask=real).merged[real])


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
    layer, kernel = compressing("csa", blocks=1, window=1)
    for weight in (layer.projection.query.weight, kernel.compressor.value.weight):
        weight.data *= 2
    x = torch.randn(4, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    first = layer(x).indexer_loss
    first.backward()
    assert x.grad is None and kernel.indexer is not None
    own = {id(weight) for weight in kernel.indexer.parameters()}
    assert all((weight.grad is not None) == (id(weight) in own) for weight in layer.parameters())
    optimizer = torch.optim.Adam(kernel.indexer.parameters(), 0.05)
    last = descend(optimizer, lambda: layer(x.detach()).indexer_loss, 12, clip=torch.inf)
    assert last < 0.8 * first


@each(
    ("words", "axes"),
    {
        "values too, and projection = latent": {"projection": "latent", "kernel": "hca"},
        "which position = grid_rope cannot do": {"position": "grid_rope", "kernel": "csa"},
        "not normalizer = sparsemax; take normalizer = sink": {
            "normalizer": "sparsemax",
            "kernel": "hca",
        },
    }.items(),
)
def test_what_does_not_fit(words, axes):
    pytest.raises(ConfigError, AttentionConfig, WIDTH, HEADS, **axes).match(words)
