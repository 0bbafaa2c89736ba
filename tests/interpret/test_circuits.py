"""Circuits of heads by their weights, against plain matrix algebra on the matrices that each family names itself."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from core.interpret.circuits import (
    KINDS,
    Composer,
    HeadMatrices,
    Vocabularies,
    compositions,
    copying_scores,
    effective_rank,
    norm_gain,
    ov_factors,
    qk_factors,
    random_composition,
    read_heads,
    read_vocabularies,
)
from core.interpret.patching import pair_of, patch, ranked
from core.pretrained import ModelInputs, PretrainedError, load_lab_model, read
from tests.cases import each
from tests.tiny_models import given, tiny

CLOSE: dict[str, Any] = dict(rtol=1e-4, atol=1e-5)


def by_head(matrix, heads):
    """(H, C, D) of a matrix (H·D, C), whose rows are the outputs."""
    return matrix.T.unflatten(1, (heads, -1)).permute(1, 0, 2)


def folded(matrix, gain, centers):
    size = len(gain)
    project = torch.eye(size) - (torch.full((size, size), 1 / size) if centers else 0)
    return project @ torch.diag(gain) @ matrix


def named(family):
    """W_Q, W_K, W_V (H, C, D) and W_O (H, D, C) of the last layer, by the family's own names, norms folded in."""
    model = tiny(family).model
    if family == "llama":
        layer = model.model.layers[1]
        heads = layer.self_attn.config.num_attention_heads
        maps = [
            by_head(getattr(layer.self_attn, f"{name}_proj").weight, count)
            for name, count in (("q", heads), ("k", 2), ("v", 2))
        ]
        maps = [maps[0], *(each_map.repeat_interleave(heads // 2, 0) for each_map in maps[1:])]
        gain, centers, out = layer.input_layernorm.weight, False, layer.self_attn.o_proj.weight.T
    elif family == "gpt2":
        layer = model.transformer.h[1]
        maps = [by_head(part.T, 3) for part in layer.attn.c_attn.weight.chunk(3, 1)]
        gain, centers, out = layer.ln_1.weight, True, layer.attn.c_proj.weight
    elif family == "bert":
        before, layer = model.bert.encoder.layer
        maps = [
            by_head(getattr(layer.attention.self, name).weight, 3)
            for name in ("query", "key", "value")
        ]
        gain, centers, out = (
            before.output.LayerNorm.weight,
            True,
            layer.attention.output.dense.weight.T,
        )
    else:
        layer = model.decoder.block[1].layer[0]
        maps = [by_head(getattr(layer.SelfAttention, name).weight, 3) for name in "qkv"]
        gain, centers, out = layer.layer_norm.weight, False, layer.SelfAttention.o.weight.T
    return [folded(each_map.detach(), gain.detach(), centers) for each_map in maps] + [
        out.detach().unflatten(0, (len(maps[0]), -1))
    ]


@each(("family", "index"), [("llama", 1), ("gpt2", 1), ("bert", 1), ("t5", 4)])
def test_the_matrices_are_those_that_the_family_names(family, index):
    heads = read_heads(tiny(family))[index]
    assert (heads.kind, heads.layer) == ("self" if family == "bert" else "causal", 1)
    for mine, theirs in zip(
        (heads.w_q, heads.w_k, heads.w_v, heads.w_o), named(family), strict=True
    ):
        torch.testing.assert_close(mine, theirs, **CLOSE)


def test_a_norm_after_w_o_is_folded_in_too():
    layer = tiny("gemma2").model.model.layers[0]
    own = layer.self_attn.o_proj.weight.T.unflatten(0, (6, -1)) * (
        1 + layer.post_attention_layernorm.weight
    )
    torch.testing.assert_close(read_heads(tiny("gemma2"))[0].w_o, own.detach(), **CLOSE)


@each("norm", [nn.LayerNorm(7), nn.LayerNorm(6), nn.RMSNorm(7)])
def test_a_norms_gain_is_read_off_what_it_does(norm):
    nn.init.normal_(norm.weight)
    gain, centers = norm_gain(norm, norm.weight.numel())
    torch.testing.assert_close(gain, norm.weight.detach(), **CLOSE)
    assert centers == isinstance(norm, nn.LayerNorm)


def test_full_products_give_the_same_singular_values_composition_and_copying():
    pretrained = tiny("llama")
    first, second = read_heads(pretrained)
    for (u, s, vh), left, right in (
        (ov_factors(first), first.w_v, first.w_o),
        (qk_factors(second), second.w_q, second.w_k.mT),
    ):
        torch.testing.assert_close(s, torch.linalg.svdvals(left @ right)[:, :8], **CLOSE)
        torch.testing.assert_close(u * s[:, None] @ vh, left @ right, **CLOSE)
    ov, qk = first.w_v[3] @ first.w_o[3], second.w_q[4] @ second.w_k[4].T
    later = second.w_v[4] @ second.w_o[4]
    composed, level = Composer([first, second]).into(1), random_composition(first.w_o.shape[-1])
    for kind, reads, product in (
        ("Q", qk, ov @ qk),
        ("K", qk, ov @ qk.T),
        ("V", later, ov @ later),
    ):
        expected = product.norm() / (ov.norm() * reads.norm())
        score = composed.scores[kind, 0][3, 4]  # type: ignore[index]
        torch.testing.assert_close(score + level, expected, **CLOSE)
    tables, model = read_vocabularies(pretrained), pretrained.model
    embedded = model.model.embed_tokens.weight.detach()
    whole = embedded @ ov @ torch.diag(model.model.norm.weight) @ model.lm_head.weight.T
    values = torch.linalg.eigvals(whole.detach().double())
    score = copying_scores(first, tables)[3].double()
    torch.testing.assert_close(score, values.real.sum() / values.abs().sum(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(tables.written(first, 3, 5), whole[5].detach(), **CLOSE)
    matches = (embedded @ qk @ embedded.T)[5] / math.sqrt(8)
    torch.testing.assert_close(tables.attended(second, 4, 5), matches, **CLOSE)
    # The table between embedding and unembedding is made once
    between = tables.between("causal", "causal")
    assert tables.between("causal", "causal") is between
    torch.testing.assert_close(between, tables.unembeddings["causal"] @ tables.embeddings["causal"])


@each("sign", [1, -1])
def test_a_head_that_copies_scores_one_and_ranks_count_equal_values(sign):
    units = torch.linalg.qr(torch.randn(9, 9))[0]
    w_v, w_o = units[None, :, :4], sign * units[:, :4].T[None]
    tables = Vocabularies({"self": units}, {"self": units.T}, frozenset())
    score = copying_scores(HeadMatrices("self", 0, w_v, w_v, w_v, w_o, 1, 0), tables)
    ranks = effective_rank(torch.tensor([[2.0, 2, 2, 2], [5, 0, 0, 0]]))
    assert [*score.tolist(), *ranks.tolist()] == pytest.approx([sign, 4, 1])


def random_layers(heads, size, rank, layers=2):
    """Attentions of random matrices, none of which has to do with another."""
    chance = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, heads, size, rank, generator=chance)
    return [
        HeadMatrices("self", layer, draw(), draw(), draw(), draw().mT, heads, layer)
        for layer in range(layers)
    ]


def test_of_random_heads_hardly_one_composes_above_chance_and_a_planted_pair_does():
    """The closed form is what random matrices compose by on average."""
    many = Composer(random_layers(heads=40, size=31, rank=5)).into(1)
    assert abs(float(many.scores["V", 0].mean())) < 0.02 * random_composition(31)
    layers = random_layers(heads=7, size=31, rank=5, layers=4)
    composer = Composer(layers)
    results = [composer.into(later) for later in range(4)]
    assert results[0].scores == {} and results[0].highest == {}
    for kind in KINDS:
        highest = max(one.highest[kind] for one in results[1:])
        scores = torch.stack(
            [score for one in results for (of, _), score in one.scores.items() if of == kind]
        )
        assert scores.numel() == 6 * 49
        assert sum(one.pairs[kind] for one in results[1:]) == 4 * 6 * 49  # 1,000 or more
        assert (scores > highest).sum() <= 2 and abs(float(scores.mean())) < 0.01 < highest < 0.2
    reads = layers[0].w_o.mT
    planted = HeadMatrices("self", 4, reads, reads, layers[1].w_v, layers[1].w_o, 7, 4)
    result = Composer([*layers, planted]).into(4)
    best, highest = result.scores["K", 0], result.highest["K"]
    assert torch.equal(best.argmax(1), torch.arange(7)) and (best.diagonal() > highest).all()
    assert (result.scores["K", 2] > highest).sum() <= 1


def test_random_directions_are_the_same_each_time_and_keep_the_singular_values():
    layers = random_layers(heads=3, size=11, rank=2)
    first, again = (Composer(layers).into(1) for _ in range(2))
    assert first.highest == again.highest and first.pairs["K"] >= 1000
    written, turned = Composer(layers)._writer(0)
    sizes = torch.linalg.svdvals(layers[0].w_v @ layers[0].w_o)[:, :2]
    torch.testing.assert_close(
        torch.linalg.svdvals(turned)[-3:], sizes / sizes.norm(dim=-1, keepdim=True), **CLOSE
    )
    torch.testing.assert_close(written.norm(dim=(1, 2)), torch.ones(3), **CLOSE)


def test_in_an_encoder_decoder_cross_attention_composes_with_both_sides():
    heads = read_heads(tiny("t5"))
    kinds = [each_one.kind for each_one in heads]
    assert kinds == ["self", "self", "causal", "cross", "causal", "cross"]
    pairs = {(kind, kinds[a], kinds[b]) for kind, a, b in compositions(heads)}
    assert {("K", "self", "cross"), ("Q", "causal", "cross"), ("V", "cross", "causal")} <= pairs
    assert not {("Q", "self", "cross"), ("K", "causal", "cross"), ("K", "self", "causal")} & pairs


@each(
    ("family", "words"),
    [("deepseek_v3", "more than one matrix"), ("diffllama", "subtracts the weights")],
)
def test_what_has_no_such_matrices_is_refused_in_words(family, words):
    with pytest.raises(PretrainedError, match=words):
        read_heads(tiny(family))


def test_normalized_queries_leave_the_values_and_the_model_is_left_as_it_was():
    pretrained = tiny("qwen3")
    before = read(pretrained, given("qwen3")).trace.maps[1].weights
    heads = read_heads(pretrained)
    assert (
        heads[0].w_q is None and qk_factors(heads[0]) is None and heads[0].w_v.shape == (6, 18, 8)
    )
    assert {kind for kind, *_ in compositions(heads)} == {"V"}
    assert (read(pretrained, given("qwen3")).trace.maps[1].weights == before).all()
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in pretrained.model.modules()
    )


def test_pictures_have_matrices_and_no_tokens():
    heads, tables = read_heads(tiny("vit")), read_vocabularies(tiny("vit"))
    assert heads[0].w_v.shape == (3, 24, 8) and copying_scores(heads[0], tables) is None


@each(("name", "least"), [("only-attention", 0.7), ("induction", 0.6)])
def test_the_induction_circuit_is_found_by_patching_by_composition_and_by_attention(name, least):
    """Two phrases swap what follows: which word stood before another is all that differs between the texts."""
    pretrained = load_lab_model(name)
    clean, corrupted = (
        ModelInputs(f"the {a} river and the {b} house . we saw the dark")
        for a, b in (("dark", "cold"), ("cold", "dark"))
    )
    best = ranked(patch(pair_of(pretrained, clean, corrupted)), "denoise")
    previous, induction = (
        next(head for (_, layer), head, _ in best if layer == number) for number in (0, 1)
    )
    composed = compositions(read_heads(pretrained))
    scores = composed["K", 0, 1]
    assert divmod(int(scores.argmax()), scores.shape[1]) == (previous, induction)
    others = max(float(one.max()) for (kind, *_), one in composed.items() if kind != "K")
    assert scores.max() > max(0.1, others)
    reading = read(pretrained, clean)
    first, second = (item.weights for item in reading.trace.maps)
    back = first.diagonal(-1, 1, 2).mean(-1)
    assert back.argmax() == previous and back[previous] > least
    assert second[induction, -1, reading.source.tokens.index("river")] > 0.8
