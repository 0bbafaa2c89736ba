"""What chooses keys by content: MoBA and NSA against loops from their papers, the indexer against DeepSeek-V3.2's."""

import itertools
import math
from typing import Any

import pytest
import torch
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as hf

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from core.attention.basics import ScoreBlock
from core.attention.masks import build_mask
from core.attention.masks.content import (
    LightningIndexer,
    Selection,
    indexer_loss,
    selection,
    top_cells,
)
from tests.cases import each, instance
from tests.oracles.agreement import agree, put, twin

B, H, D, C, T = 2, 3, 5, 15, 17
MOBA = Choice.of("moba", size=3, blocks=3)
LIGHTNING = Choice.of("lightning", keys=5, heads=3, size=6, share=0.7)
BOTH = each("choice", [MOBA, LIGHTNING])


def moba(q, k, real, size, blocks, offset):
    """Which keys each query of one head sees: block by block, in plain Python. Lu 2025, equations 4 to 7."""
    seen = torch.zeros(len(q), len(k), dtype=torch.bool)
    for t in range(len(q)):
        i, scores = t + offset, {}
        for block in range(i // size):
            keys = [j for j in range(block * size, (block + 1) * size) if real[j]]
            if keys:
                scores[block] = float(
                    q[t].detach() @ torch.stack([k[j].detach() for j in keys]).mean(0)
                )
        best = sorted(scores, key=scores.get, reverse=True)[: blocks - 1]
        for block in [*best, i // size]:
            for j in range(block * size, min((block + 1) * size, i + 1, len(k))):
                seen[t, j] = True
    return seen


def moba_of(steps, real, size, blocks, offset=0):
    """The same for every head of every text."""
    rows = [
        [moba(q, k, seen, size, blocks, offset) for q, k in zip(*text, strict=True)]
        for *text, seen in zip(steps.q, steps.k, real, strict=True)
    ]
    return torch.stack([torch.stack(heads) for heads in rows])


@each(("size", "blocks"), [(1, 3), (3, 2), (4, 3), (5, 1), (7, 64), (20, 2)])
@each("offset", [0, 6])
def test_moba_is_the_papers_loop(size, blocks, offset):
    layer = Attention(AttentionConfig(C, H, mask=Choice.of("moba", size=size, blocks=blocks)))
    context, real = torch.randn(B, T, C), torch.rand(B, T) < 0.7
    steps = layer(context[:, offset : offset + 11], context, key_mask=real, offset=offset)
    want = moba_of(steps, real, size, blocks, offset)
    assert torch.equal(steps.mask, want & real[:, None, None])


def test_moba_through_attention_has_the_gradients_of_the_loops_mask():
    layer = Attention(AttentionConfig(C, H, mask=MOBA)).double()
    x = torch.randn(B, T, C, dtype=torch.float64, requires_grad=True)
    steps = layer(x)
    seen = moba_of(steps, torch.ones(B, T), 3, 3)
    agree(steps.merged, twin(layer, mask="none")(x, mask=seen).merged, (x,))


def test_moba_by_hand():
    """Blocks of two with means 1, −1 and 2 in one dimension; the query of token 7 is 1, so it takes block 2, then 0."""
    k = torch.tensor([0.5, 1.5, -3.0, 1.0, 2.5, 1.5, 9.0, 9.0])[None, None, :, None]

    def row(sign, blocks):
        mask = Attention(AttentionConfig(1, 1, mask=Choice.of("moba", size=2, blocks=blocks))).mask
        block = ScoreBlock.whole(8, 8, q=torch.full((1, 1, 8, 1), sign), k=k)
        return "".join(".#"[cell] for cell in mask(block)[0, 0, 7].int().tolist())

    assert row(1.0, 1) == "......##" and row(1.0, 2) == "....####" and row(1.0, 3) == "##..####"
    assert row(-1.0, 2) == "..##..##", "the other way round the block of mean −1 is best"


@each("keys", [1, 4, 16])
@each(("size", "heads", "share"), [(8, 1, 1.0), (10, 3, 0.4), (7, 5, 0.6)])
def test_the_indexer_is_deepseeks(size, heads, share, keys):
    """DeepSeek's own with our weights; its queries come from a latent, here from x itself."""
    choice = Choice.of("lightning", keys=keys, heads=heads, size=size, share=share)
    layer = Attention(AttentionConfig(C, H, mask=choice))
    own: Any = layer.mask
    for weight in own.norm.parameters():
        torch.nn.init.uniform_(weight, 0.5, 1.5)
    config = hf.DeepseekV32Config(
        hidden_size=C,
        q_lora_rank=C,
        index_n_heads=heads,
        index_head_dim=size,
        index_topk=keys,
        qk_rope_head_dim=own.rotated,
        head_dim=own.rotated,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        num_attention_heads=H,
    )
    parts = {"wq_b": own.query, "wk": own.key, "weights_proj": own.weight, "k_norm": own.norm}
    names = {f"{n}.{k}": v for n, part in parts.items() for k, v in part.state_dict().items()}
    x, real, positions = torch.randn(B, T, C), torch.rand(B, T) < 0.8, torch.arange(T)[None]
    real[:, 0] = True
    allowed = real[:, None] & torch.ones(T, T, dtype=torch.bool).tril()
    turns = hf.DeepseekV32RotaryEmbedding(config)(x, positions)
    peer, given = hf.DeepseekV32Indexer(config, 0), (x, x, turns, allowed, positions)
    indices = torch.func.functional_call(peer, names, given).long()
    chosen = torch.zeros(B, T, T, dtype=torch.bool).scatter(-1, indices, True) & allowed
    mask = layer(x, key_mask=real).mask[:, 0]
    positive = own.index_scores(ScoreBlock.whole(T, T, x=x, context=x)) != 0
    # Where every head's ReLU is 0 the scores are equal, and torch.topk takes any of them.
    ties = ((~positive & allowed).sum(-1) > 1) & (allowed.sum(-1) > keys)
    assert torch.equal(mask[~ties], chosen[~ties]) and (~ties).sum() > B * keys
    assert torch.equal(mask.sum(-1), chosen.sum(-1))


def test_index_scores_are_the_reports_sum_with_its_gradients():
    """I_ts = Σ_h w_th ReLU(q_th · k_s), one pair of tokens at a time, without a rotation."""
    choice = Choice.of("lightning", heads=2, size=4, share=0.0)
    mask: Any = Attention(AttentionConfig(C, H, mask=choice)).double().mask
    x = torch.randn(1, 7, C, dtype=torch.float64)
    keys = torch.randn(1, 11, C, dtype=torch.float64, requires_grad=True)
    k = [torch.nn.functional.layer_norm(mask.key(one), (4,), eps=1e-6) for one in keys[0]]
    rows = []
    for token in x[0]:
        q, w = mask.query(token).view(2, 4), mask.weight(token)
        sums = [sum(w[h] * torch.relu(q[h] @ one) for h in range(2)) * 8**-0.5 for one in k]
        rows.append(torch.stack(sums))
    ours = mask.index_scores(ScoreBlock.whole(7, 11, x=x, context=keys))[0]
    weights = (keys, mask.query.weight, mask.key.weight, mask.weight.weight)
    agree(ours, torch.stack(rows), weights)


def test_the_attention_gives_the_indexer_no_gradient():
    layer = Attention(AttentionConfig(C, H, mask=LIGHTNING))
    layer(torch.randn(B, T, C)).merged.square().sum().backward()
    assert all(weight.grad is None for weight in layer.mask.parameters())
    assert layer.projection.query.weight.grad.abs().sum() > 0


@BOTH
@each("block", [1, 2, 4, 7, 64])
def test_block_sparse_computes_the_same(choice, block):
    """The plan of one text is not that of the next, though both are as long."""
    exact = Attention(AttentionConfig(C, H, mask=choice))
    sparse = twin(exact, kernel=Choice.of("block_sparse", block=block))
    for real in (None, torch.rand(B, T) < 0.7):
        x = torch.randn(B, T, C, requires_grad=True)
        got = sparse(x, key_mask=real, record=False).out
        agree(got, exact(x, key_mask=real).out, (x,))


@BOTH
def test_any_rectangle_agrees_with_the_whole(choice):
    layer, x = Attention(AttentionConfig(C, H, mask=choice)), torch.randn(B, T, C)
    real = torch.rand(B, T) < 0.7
    q, k, v = layer.projection(x, x)
    whole, mask = layer.kernel_inputs(q, k, v, x, x, key_mask=real).block, layer.mask
    rows, columns = slice(4, 11), slice(3, 9)
    assert torch.equal(mask(whole.part(rows, columns)), mask(whole)[:, :, rows, columns])


@BOTH
def test_a_query_alone_chooses_what_it_chooses_among_all(choice):
    layer, x = Attention(AttentionConfig(C, H, mask=choice)).eval(), torch.randn(B, T, C)
    rows = [layer(x[:, t : t + 1], x[:, : t + 1], offset=t).merged for t in range(T)]
    torch.testing.assert_close(torch.cat(rows, 1), layer(x).merged, rtol=1e-5, atol=1e-5)


@BOTH
def test_without_content_there_is_no_mask(choice):
    with pytest.raises(ConfigError, match="take Attention"):
        build_mask(AttentionConfig(C, H, mask=choice).mask, 3, 3)


def test_top_cells_takes_the_earlier_of_equals_and_all_where_there_are_few():
    scores = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0], [3.0, 1.0, torch.nan, 2.0, 5.0]])
    candidates = torch.tensor([[True] * 5, [True, True, False, False, False]])
    assert top_cells(scores, candidates, 2).int().tolist() == [[0, 1, 1, 0, 0], [1, 1, 0, 0, 0]]


def test_what_was_chosen_in_numbers():
    """Of two rows, one with both of its two best keys and 0.9 of the weight, one with one of two and 0.5."""
    full = torch.tensor([[0.6, 0.3, 0.1, 0.0], [0.1, 0.5, 0.0, 0.4], [0.0] * 4])[None, None]
    allowed = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]).bool()
    got = selection(allowed, full, 2)
    assert got.keys == 2 and got.recall == pytest.approx(0.75) and got.weight == pytest.approx(0.7)
    assert selection(allowed, torch.zeros(1, 1, 3, 4), 2) == Selection(0.0, 0.0, 0.0)
    everything = selection(torch.ones(3, 4).bool(), full, 2)
    assert (everything.keys, everything.recall) == (4, 1) and everything.weight == pytest.approx(1)


def test_the_papers_loss_is_the_divergence_and_zero_at_its_target():
    """Two heads give key 0 the weights 1/2 and 1, key 1 the other 1/2: p = (3/4, 1/4); I = 0 predicts (1/2, 1/2)."""
    weights = torch.tensor([[[0.5, 0.5, 0.0]], [[1.0, 0.0, 0.0]]])[None]
    allowed, target = torch.tensor([[True, True, False]]), torch.tensor([[[3.0, 1.0, 9.0]]]).log()
    divergence = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    for scores, loss in ((torch.zeros(1, 1, 3), divergence), (target, 0.0)):
        assert indexer_loss(scores, weights, allowed).item() == pytest.approx(loss, abs=1e-6)


def test_the_papers_loss_trains_the_indexer_to_choose_better():
    """The warm-up of DeepSeek-V3.2: the attention is full and frozen, and only the indexer learns."""
    torch.manual_seed(5)
    choice = Choice.of("lightning", keys=4, heads=4, size=8)
    layer, causal = Attention(AttentionConfig(C, H, mask=choice)), torch.ones(T, T).tril().bool()
    full, indexer = twin(layer, strict=False, mask="causal"), instance(layer.mask, LightningIndexer)
    for weight in (full.projection.query.weight, full.projection.key.weight):
        weight.data *= 3  # weights that differ from key to key
    optimizer = torch.optim.Adam(indexer.parameters(), 0.01)

    def share(x):
        block = ScoreBlock.whole(T, T, x=x, context=x)
        return selection(indexer(block), full(x).weights.detach(), 4).weight

    held_out = torch.randn(64, T, C)
    before = share(held_out)
    for _ in range(150):
        x = torch.randn(16, T, C)
        scores = indexer.index_scores(ScoreBlock.whole(T, T, x=x, context=x))
        optimizer.zero_grad()
        indexer_loss(scores, full(x).weights, causal).backward()
        optimizer.step()
    assert share(held_out) > before + 0.1


# Native sparse attention: three branches, each weighed by a gate.


def sparse_layer(size, blocks, window, heads=3, kv_heads=3):
    kernel = Choice.of("nsa", size=size, blocks=blocks, window=window)
    projection = Choice.of("grouped_query", kv_heads=kv_heads)
    return Attention(AttentionConfig(heads * D, heads, projection, kernel=kernel)).double()


def softmax_of(q, pairs):
    """The weights over some keys, and their sum of values; nothing for no key."""
    if not pairs:
        return [], torch.zeros(D, dtype=torch.float64)
    weights = torch.stack([q @ k for k, _ in pairs]).mul(D**-0.5).softmax(0)
    return weights, sum(w * v for w, (_, v) in zip(weights, pairs, strict=True))


def native_sparse(gates, q, k, v, real, size, blocks, window, shared, offset):
    """Yuan 2025, section 3.3: compression by means, selection by its weights summed over a group, and a window."""
    rows = {}
    for first, t in itertools.product(range(0, len(q), shared), range(q.shape[1])):
        i, group = t + offset, range(first, first + shared)
        starts = range(0, i + 2 - size, size)
        keys = [[j for j in range(start, start + size) if real[j]] for start in starts]
        whole = {n: js for n, js in enumerate(keys) if js}
        means = {g: [(k[g, js].mean(0), v[g, js].mean(0)) for js in whole.values()] for g in group}
        compressed = {g: softmax_of(q[g, t], means[g]) for g in group}
        importance = {
            n: sum(float(weights[at].detach()) for weights, _ in compressed.values())
            for at, n in enumerate(whole)
            if n < i // size
        }
        best = [*sorted(importance, key=importance.get, reverse=True)[: blocks - 1], i // size]
        selected = [j for j in range(i + 1) if real[j] and j // size in best]
        near = [j for j in range(max(0, i - window + 1), i + 1) if real[j]]
        for g in group:
            exact = [
                softmax_of(q[g, t], [(k[g, j], v[g, j]) for j in js])[1] for js in (selected, near)
            ]
            branches = (compressed[g][1], *exact)
            rows[g, t] = sum(gates[t, c, g] * branch for c, branch in enumerate(branches))
    return torch.stack([rows[place] for place in sorted(rows)]).view(len(q), -1, D)


SIZES = [(1, 2, 1), (3, 2, 4), (4, 3, 2), (5, 1, 7), (7, 64, 30)]
HEADS = [(3, 3), (4, 2), (3, 1)]
# Each size with each grouping, and each of either at both offsets in turn: the loop takes 0.2 s a case.
CASES = [
    (*size, *heads, 8 * ((i + j) % 2))
    for i, size in enumerate(SIZES)
    for j, heads in enumerate(HEADS)
]


@each(("size", "blocks", "window", "heads", "kv_heads", "offset"), CASES)
def test_each_query_of_nsa_is_the_papers(size, blocks, window, heads, kv_heads, offset):
    layer = sparse_layer(size, blocks, window, heads, kv_heads)
    context = torch.randn(B, T, heads * D, dtype=torch.float64, requires_grad=True)
    x, real = context[:, offset : offset + 9], torch.rand(B, T) < 0.8
    steps = layer(x, context, key_mask=real, offset=offset)
    gates = layer.kernel.gate(x).sigmoid().view(B, -1, 3, heads)
    texts = zip(gates, steps.q, steps.k, steps.v, real, strict=True)
    how = (size, blocks, window, heads // kv_heads, offset)
    want = torch.stack([native_sparse(*text, *how) for text in texts])
    torch.testing.assert_close(steps.weights @ steps.v, want, rtol=1e-10, atol=1e-11)
    agree(steps.out, want, (context, layer.kernel.gate.weight, layer.projection.key.weight))


def test_all_blocks_and_a_window_of_all_are_causal_attention_twice():
    """With every gate at 1/2 and blocks of one token, the three branches are one causal attention each."""
    layer, x = sparse_layer(1, 64, 4096), torch.randn(B, T, 3 * D, dtype=torch.float64)
    put((layer.kernel.gate.weight, 0.0), (layer.kernel.gate.bias, 0.0))
    plain, steps = twin(layer, strict=False, kernel="exact", mask="causal")(x), layer(x)
    torch.testing.assert_close(steps.out, 1.5 * plain.out)
    torch.testing.assert_close(steps.weights, 1.5 * plain.weights)


def test_a_row_of_nsa_by_hand():
    """Blocks of two, all scores 0, gates 1/2. The query at 4 sees means of 0, 1 and 2, 3, then 0, 1 and 4, then 4; for
    the query at 0 no block is whole yet, so two branches of 1/2."""
    kernel = Choice.of("nsa", size=2, blocks=2, window=1)
    layer = Attention(AttentionConfig(1, 1, "identity", kernel=kernel))
    put((layer.kernel.gate.weight, 0.0), (layer.kernel.gate.bias, 0.0))
    zeros, v = torch.zeros(1, 1, 5, 1), torch.arange(1.0, 6.0).view(1, 1, 5, 1)
    steps = layer.attend_heads(zeros, zeros, v, zeros[0], zeros[0])
    row = torch.tensor([1 / 4 + 1 / 3, 1 / 4 + 1 / 3, 1 / 4, 1 / 4, 1 / 3 + 1]) / 2
    torch.testing.assert_close(steps.weights[0, 0, 4], row)
    assert steps.out[0, 0, 4].item() == pytest.approx((row * torch.arange(1.0, 6.0)).sum().item())
    assert steps.weights[0, 0, 0].tolist() == [1.0, 0, 0, 0, 0]


def test_nsa_needs_the_layer_and_the_queries_x():
    q = torch.randn(1, 3, T, D)
    with pytest.raises(ConfigError, match="nsa has weights or sizes of its own; take Attention"):
        attend(q, q, q, kernel="nsa")
    with pytest.raises(ConfigError, match="nsa reads x, which is not given"):
        sparse_layer(2, 2, 2).attend_heads(*(x.double() for x in (q, q, q)))
