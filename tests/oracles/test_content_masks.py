"""MoBA against a loop from the paper, the lightning indexer against transformers' DeepSeek-V3.2, and their kernels."""

from typing import Any

import pytest
import torch
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as hf

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.basics import ScoreBlock
from core.attention.masks import build_mask
from core.attention.masks.content import Selection, indexer_loss, selection, top_cells
from tests.cases import each
from tests.oracles.agreement import same_result

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


@each(("size", "blocks"), [(1, 3), (3, 2), (4, 3), (5, 1), (7, 64), (20, 2)])
@each("offset", [0, 6])
def test_moba_is_the_papers_loop(size, blocks, offset):
    config = AttentionConfig(
        H * D, H, "multi_head", position="none", mask=Choice.of("moba", size=size, blocks=blocks)
    )
    layer, context = Attention(config), torch.randn(B, T, C)
    x = context[:, offset : offset + 11]
    real = torch.rand(B, T) < 0.7
    steps = layer(x, context, key_mask=real, offset=offset)
    want = torch.stack(
        [
            torch.stack(
                [
                    moba(steps.q[b, h], steps.k[b, h], real[b], size, blocks, offset)
                    for h in range(H)
                ]
            )
            for b in range(B)
        ]
    )
    assert torch.equal(steps.mask, want & real[:, None, None])


def test_moba_through_attention_has_the_gradients_of_the_loops_mask():
    layer = Attention(AttentionConfig(H * D, H, mask=MOBA)).double()
    x = torch.randn(B, T, C, dtype=torch.float64, requires_grad=True)
    steps = layer(x)
    same = torch.stack(
        [
            torch.stack([moba(steps.q[b, h], steps.k[b, h], [True] * T, 3, 3, 0) for h in range(H)])
            for b in range(B)
        ]
    )
    plain = Attention(AttentionConfig(H * D, H)).double()
    plain.load_state_dict(layer.state_dict())
    want = plain(x, mask=same).merged
    same_result(steps.merged, want, (x,), rtol=1e-11, atol=1e-12)


def test_moba_by_hand():
    """Blocks of two with means 1, −1 and 2 in one dimension; the query of token 7 is 1, so it takes block 2, then 0."""
    k = torch.tensor([0.5, 1.5, -3.0, 1.0, 2.5, 1.5, 9.0, 9.0])[None, None, :, None]
    q = torch.tensor([1.0] * 7 + [1.0])[None, None, :, None]

    def row(sign, blocks):
        mask = Attention(AttentionConfig(1, 1, mask=Choice.of("moba", size=2, blocks=blocks))).mask
        block = ScoreBlock.whole(8, 8, q=sign * q, k=k)
        return "".join(".#"[cell] for cell in mask(block)[0, 0, 7].int().tolist())

    assert row(1, 1) == "......##" and row(1, 2) == "....####" and row(1, 3) == "##..####"
    assert row(-1, 2) == "..##..##", "the other way round the block of mean −1 is best"


def indexer(layer, size, heads, rope, keys):
    """DeepSeek's own indexer with our weights; its queries come from a latent, here from x itself."""
    config = hf.DeepseekV32Config(
        hidden_size=C,
        q_lora_rank=C,
        index_n_heads=heads,
        index_head_dim=size,
        index_topk=keys,
        qk_rope_head_dim=rope,
        head_dim=rope,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        num_attention_heads=H,
    )
    theirs, mask = hf.DeepseekV32Indexer(config, 0), layer.mask
    with torch.no_grad():
        for one, two in (
            (theirs.wq_b, mask.query),
            (theirs.wk, mask.key),
            (theirs.weights_proj, mask.weight),
            (theirs.k_norm, mask.norm),
        ):
            one.load_state_dict(two.state_dict())
    return theirs, hf.DeepseekV32RotaryEmbedding(config)


@each("keys", [1, 4, 16])
@each(("size", "heads", "share"), [(8, 1, 1.0), (10, 3, 0.4), (7, 5, 0.6)])
def test_the_indexer_is_deepseeks(size, heads, share, keys):
    choice = Choice.of("lightning", keys=keys, heads=heads, size=size, share=share)
    layer = Attention(AttentionConfig(C, H, mask=choice))
    own: Any = layer.mask
    for weight in own.norm.parameters():
        torch.nn.init.uniform_(weight, 0.5, 1.5)
    theirs, rotary = indexer(layer, size, heads, layer.mask.rotated, keys)
    x, real = torch.randn(B, T, C), torch.rand(B, T) < 0.8
    real[:, 0] = True
    allowed = real[:, None] & torch.ones(T, T, dtype=torch.bool).tril()
    positions = torch.arange(T)[None]
    indices = theirs(x, x, rotary(x, positions), allowed, positions).long()
    chosen = torch.zeros(B, T, T, dtype=torch.bool).scatter(-1, indices, True) & allowed
    mask = layer(x, key_mask=real).mask[:, 0]
    positive = own.index_scores(ScoreBlock.whole(T, T, x=x, context=x)) != 0
    # Where every head's ReLU is 0 the scores are equal, and torch.topk takes any of them.
    ties = ((~positive & allowed).sum(-1) > 1) & (allowed.sum(-1) > keys)
    assert torch.equal(mask[~ties], chosen[~ties]) and (~ties).sum() > B * keys
    assert torch.equal(mask.sum(-1), chosen.sum(-1))


def test_index_scores_are_the_reports_sum_with_its_gradients():
    """I_ts = Σ_h w_th ReLU(q_th · k_s), one pair of tokens at a time, without a rotation."""
    layer = Attention(
        AttentionConfig(C, H, mask=Choice.of("lightning", heads=2, size=4, share=0.0))
    ).double()
    mask: Any = layer.mask
    x = torch.randn(1, 7, C, dtype=torch.float64)
    keys = torch.randn(1, 11, C, dtype=torch.float64, requires_grad=True)
    ours = mask.index_scores(ScoreBlock.whole(7, 11, x=x, context=keys))[0]
    rows = []
    for t in range(7):
        q, w = mask.query(x[0, t]).view(2, 4), mask.weight(x[0, t])
        k = [torch.nn.functional.layer_norm(mask.key(one), (4,), eps=1e-6) for one in keys[0]]
        rows.append(
            torch.stack(
                [sum(w[h] * torch.relu(q[h] @ one) for h in range(2)) * 8**-0.5 for one in k]
            )
        )
    theirs = torch.stack(rows)
    weights = (keys, mask.query.weight, mask.key.weight, mask.weight.weight)
    same_result(ours, theirs, weights, rtol=1e-9, atol=1e-11, felt=True)


def test_the_attention_gives_the_indexer_no_gradient():
    layer = Attention(AttentionConfig(C, H, mask=LIGHTNING))
    layer(torch.randn(B, T, C)).merged.square().sum().backward()
    assert all(weight.grad is None for weight in layer.mask.parameters())
    assert layer.projection.query.weight.grad.abs().sum() > 0


@BOTH
@each("block", [1, 4, 7, 64])
def test_block_sparse_computes_the_same(choice, block):
    exact = Attention(AttentionConfig(C, H, mask=choice, position="rope" if D % 2 == 0 else "none"))
    sparse = Attention(exact.config.with_(kernel=Choice.of("block_sparse", block=block)))
    sparse.load_state_dict(exact.state_dict())
    real = torch.rand(B, T) < 0.7
    x = torch.randn(B, T, C, requires_grad=True)
    for key_mask in (None, real):
        want, got = exact(x, key_mask=key_mask).out, sparse(x, key_mask=key_mask, record=False).out
        same_result(got, want, (x,), rtol=1e-5, gradient=(1e-4, 1e-5))


@BOTH
def test_block_sparse_plans_each_call_anew(choice):
    """The plan of one text is not that of the next, though both are as long."""
    layer = Attention(AttentionConfig(C, H, mask=choice, kernel=Choice.of("block_sparse", block=2)))
    for _ in range(3):
        x = torch.randn(1, T, C)
        torch.testing.assert_close(layer(x, record=False).out, layer(x).out, rtol=1e-5, atol=1e-5)


@BOTH
@each("kernel", ["chunked", "local"])
def test_a_kernel_that_has_some_of_the_keys_is_refused(choice, kernel):
    with pytest.raises(
        ConfigError, match=f"kernel = {kernel} .*{choice.key} compares all.*block_sparse"
    ):
        AttentionConfig(C, H, mask=choice, kernel=kernel)


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
    config = AttentionConfig(C, H, mask=choice)
    with pytest.raises(ConfigError, match="take Attention"):
        build_mask(config.mask, 3, 3)


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
    allowed = torch.tensor([[True, True, False]])
    loss = indexer_loss(torch.zeros(1, 1, 3), weights, allowed)
    p = torch.tensor([0.75, 0.25])
    assert loss.item() == pytest.approx((p * (p / 0.5).log()).sum().item())
    assert indexer_loss(
        torch.tensor([[[3.0, 1.0, 9.0]]]).log(), weights, allowed
    ).item() == pytest.approx(0, abs=1e-6)


def test_the_papers_loss_trains_the_indexer_to_choose_better():
    """The warm-up of DeepSeek-V3.2: the attention is full and frozen, and only the indexer learns."""
    torch.manual_seed(5)
    choice = Choice.of("lightning", keys=4, heads=4, size=8)
    layer, full = (
        Attention(AttentionConfig(C, H, mask=choice)),
        Attention(AttentionConfig(C, H, mask="causal")),
    )
    full.load_state_dict(layer.state_dict(), strict=False)
    for weight in (full.projection.query.weight, full.projection.key.weight):
        weight.data *= 3  # weights that differ from key to key
    indexer: Any = layer.mask
    optimizer = torch.optim.Adam(indexer.parameters(), 0.01)
    causal = torch.ones(T, T, dtype=torch.bool).tril()

    def share(x):
        block = ScoreBlock.whole(T, T, x=x, context=x)
        return selection(layer.mask(block), full(x).weights.detach(), 4).weight

    held_out = torch.randn(64, T, C)
    before = share(held_out)
    for _ in range(150):
        x = torch.randn(16, T, C)
        scores = indexer.index_scores(ScoreBlock.whole(T, T, x=x, context=x))
        loss = indexer_loss(scores, full(x).weights, causal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert share(held_out) > before + 0.1
