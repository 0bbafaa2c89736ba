"""A score split by what wrote its query and its key: parts add up, and are what plain formulas give."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as drawn, strategies

from core.interpret.evidence import break_down_weight, layer_attentions
from core.interpret.score_sources import (
    CONSTANT,
    Removal,
    ScoreSources,
    Side,
    Source,
    explain_score,
    random_removal,
    removal_correlation,
    remove_source,
    split_cost,
)
from core.pretrained import ModelInputs, PretrainedError, encode
from tests.cases import each
from tests.interpret.test_evidence import run_and_read, through
from tests.pretrained.test_attention_recorder import GIVEN, built
from tests.tiny_models import HEADS, given, plain, tiny, uneven

FAMILIES = (
    "gpt2", "llama", "gemma2", "gemma3_text", "qwen3", "deepseek_v3", "bert", "t5", "qwen3_next", "granite",
    "gpt_neox", "olmo2", "falcon_h1", "mixtral", "modernbert", "vit", "whisper", "opt", "bloom", "albert", "cohere",
    "chameleon", "zamba", "mlcd", "bamba", "jamba",
)  # fmt: skip


def seen_cell(attention):
    # A query and an earlier key that it sees.
    rows, keys = attention.q.shape[1], attention.k.shape[1]
    query = min(6, rows - 1)
    seen = torch.ones(1, rows, keys) if attention.allowed is None else attention.allowed
    return query, int(seen[-1, min(query, seen.shape[1] - 1)].nonzero()[0])


@each("model_type", FAMILIES)
def test_parts_add_up_to_the_models_own_score(model_type):
    pretrained = built(model_type)
    uneven(pretrained.model)
    layers = layer_attentions(pretrained, GIVEN)
    for kind, layer in {kind: (kind, layer) for kind, layer in layers}.values():
        attention = layers[kind, layer]
        query, key = seen_cell(attention)
        head = len(attention.q) - 1
        own = break_down_weight(attention, head, query, key)
        split = explain_score(pretrained, GIVEN, layer, head, query, key, kind)
        largest = max(1e-3, float(np.abs(split.parts).max()))
        score = own.dot * own.scale + (own.bias or 0)
        assert split.score == pytest.approx(score, abs=1e-5 * largest)
        assert split.scores[key] == pytest.approx(score, abs=1e-5 * largest)
        final = split.score if split.capped is None else split.capped
        assert final == pytest.approx(own.score, abs=1e-5 * largest)
        assert split.weight == pytest.approx(own.weight, abs=1e-6)
        assert split.moved_shares.sum() == pytest.approx(1)
        assert {"head", "state layer"} & {one.part for one in split.q_sources}
        assert len({one.name for one in split.q_sources}) == len(split.q_sources)
        sides: list[tuple[Side, Any, Any]] = [
            ("query", split.q_sources, split.parts.sum(1)),
            ("key", split.k_sources, split.parts.sum(0)),
        ]
        for side, sources, sums in sides:
            for source, part in zip(sources, sums, strict=True):
                if (read := split.read.get((side, source))) is not None:
                    assert read.sum() == pytest.approx(part, abs=1e-4 * largest)


@each(
    ("model_type", "heads"),
    [("qwen3_next", 4), ("bamba", 8), ("falcon_h1", 8), ("zamba", 0), ("jamba", 0)],
)
def test_a_state_layer_is_split_by_head_where_it_has_heads(model_type, heads):
    pretrained = built(model_type)
    uneven(pretrained.model)
    (kind, layer), attention = list(layer_attentions(pretrained, GIVEN).items())[-1]
    query, key = seen_cell(attention)
    split = explain_score(pretrained, GIVEN, layer, 0, query, key, kind)
    states = [one for one in split.q_sources if one.part == "state layer" and one.key[1] == 0]
    assert [one.head for one in states] == ([*range(heads)] if heads else [None])
    for one in states:
        read = split.read.get(("query", one))
        assert (read is not None) == bool(heads) and one.modules
        if heads:  # a state reads the past alone
            assert read[query] and not read[query + 1 :].any()


@each("model_type", FAMILIES)
def test_without_biases_nothing_is_left_to_them(model_type):
    pretrained = built(model_type)
    uneven(pretrained.model)
    for name, weight in pretrained.model.named_parameters():
        if name.endswith("bias"):
            weight.data.zero_()
    (kind, layer), attention = list(layer_attentions(pretrained, GIVEN).items())[-1]
    query, key = seen_cell(attention)
    split = explain_score(pretrained, GIVEN, layer, 0, query, key, kind)
    constant = [place for place, one in enumerate(split.q_sources) if one.part in CONSTANT]
    assert not split.q_parts[constant].any()


def named(split, side="query"):
    sources, parts = (
        (split.q_sources, split.q_parts) if side == "query" else (split.k_sources, split.k_parts)
    )
    return {one.name: part for one, part in zip(sources, parts, strict=True)}


def test_the_parts_of_a_query_are_plain_algebra_in_gpt2():
    pretrained, model, inputs = tiny("gpt2"), plain("gpt2").transformer, given("gpt2")
    batch, *_ = encode(pretrained, inputs)
    split = explain_score(pretrained, inputs, 1, 2, 7, 4)
    read = run_and_read(model, batch, ("h.0.attn.c_proj", "h.0.mlp", "h.1.ln_1"))
    size = 24 // HEADS
    first, second = model.h[0].attn, model.h[1].attn
    for side, row, start in (("query", 7, 0), ("key", 4, 24)):
        columns = slice(start + 2 * size, start + 3 * size)
        heads = read["h.0.attn.c_proj"][0][row].split(size)
        writes = {
            "embedding": model.wte.weight[batch["input_ids"][0, row]],
            "position": model.wpe.weight[row],
            "L0 feed-forward": read["h.0.mlp"][1][row],
            **{f"L0·H{h}": heads[h] @ first.c_proj.weight.split(size)[h] for h in range(HEADS)},
        }
        into, norm = read["h.1.ln_1"][0][row], model.h[1].ln_1
        matrix = second.c_attn.weight[:, columns]
        expected = {name: through(norm, one, into) @ matrix for name, one in writes.items()}
        expected["biases"] = (through(norm, first.c_proj.bias, into) + norm.bias) @ matrix
        expected["projection bias"] = second.c_attn.bias[columns]
        assert set(expected) == set(named(split, side))
        for name, part in named(split, side).items():
            np.testing.assert_allclose(part, expected[name].detach(), rtol=1e-4, atol=1e-5)


def test_the_parts_of_a_key_are_turned_in_llama():
    pretrained, model, inputs = tiny("llama"), plain("llama").model, given("llama")
    batch, *_ = encode(pretrained, inputs)
    split = explain_score(pretrained, inputs, 1, 4, 7, 3)  # of 6 heads on 2 keys: the second
    read = run_and_read(
        model, batch, ("layers.0.self_attn.o_proj", "layers.0.mlp", "layers.1.input_layernorm")
    )
    norm, into = model.layers[1].input_layernorm, read["layers.1.input_layernorm"][0][3]
    matrix = model.layers[1].self_attn.k_proj.weight[8:16]
    rates = 10_000.0 ** (-torch.arange(0, 8, 2) / 8)

    def turned(write):
        k = matrix @ (write * norm.weight / (into.square().mean() + norm.variance_epsilon).sqrt())
        (a, b), cos, sin = k.split(4), (3 * rates).cos(), (3 * rates).sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin]).detach()

    heads = read["layers.0.self_attn.o_proj"][0][3].split(8)
    o = model.layers[0].self_attn.o_proj.weight
    expected = {
        "embedding": turned(model.embed_tokens.weight[batch["input_ids"][0, 3]]),
        "L0 feed-forward": turned(read["layers.0.mlp"][1][3]),
        **{f"L0·H{h}": turned(o[:, 8 * h : 8 * h + 8] @ heads[h]) for h in range(6)},
    }
    assert set(expected) == set(named(split, "key"))
    for name, part in named(split, "key").items():
        np.testing.assert_allclose(part, expected[name], rtol=1e-4, atol=1e-5)


def test_the_value_is_split_and_goes_through_w_o():
    pretrained, inputs = tiny("gpt2"), given("gpt2")
    split = explain_score(pretrained, inputs, 1, 2, 7, 4)
    own = break_down_weight(layer_attentions(pretrained, inputs)["causal", 1], 2, 7, 4)
    matrix = plain("gpt2").transformer.h[1].attn.c_proj.weight.split(24 // HEADS)[2]
    expected = torch.from_numpy(own.contribution) @ matrix
    np.testing.assert_allclose(split.moved.sum(0), expected.detach(), rtol=1e-4, atol=1e-5)


def test_a_head_reads_what_its_weights_give():
    pretrained, inputs = tiny("gpt2"), given("gpt2")
    split = explain_score(pretrained, inputs, 1, 0, 7, 4)
    source = next(one for one in split.q_sources if one.name == "L0·H1")
    model = plain("gpt2").transformer
    batch, *_ = encode(pretrained, inputs)
    attention = layer_attentions(pretrained, inputs)["causal", 0]
    into = run_and_read(model, batch, ("h.1.ln_1",))["h.1.ln_1"][0][7]
    matrix = model.h[0].attn.c_proj.weight.split(8)[1]
    for token in (0, 5):
        write = torch.from_numpy(break_down_weight(attention, 1, 7, token).contribution) @ matrix
        q = through(model.h[1].ln_1, write, into) @ model.h[1].attn.c_attn.weight[:, :8]
        expected = split.scale * float(q.detach() @ torch.from_numpy(split.k_parts.sum(0)))
        assert split.read["query", source][token] == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert split.read.get(("query", split.q_sources[0])) is None


def test_scores_of_several_queries_are_summed():
    pretrained, inputs = tiny("bloom"), given("bloom")
    both = explain_score(pretrained, inputs, 1, 2, (5, 8), 4)
    single = [explain_score(pretrained, inputs, 1, 2, query, 4) for query in (5, 8)]
    for read in (lambda one: one.score, lambda one: one.bias, lambda one: one.weight):
        assert read(both) == pytest.approx(sum(map(read, single)), rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(both.parts, sum(one.parts for one in single), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(both.moved, sum(one.moved for one in single), rtol=1e-3, atol=1e-5)


NUMBERS = strategies.integers(-9, 9)
NAMED = [Source("head", f"L0·H{head}", 0, head) for head in range(5)] + [Source("biases", "biases")]


def split_of(numbers, keys) -> ScoreSources:
    # Six sources at the query and six at key 1, of two dimensions; the last is the biases.
    q, k = np.float32(numbers).reshape(2, 6, 2)
    rows = np.float32(keys).reshape(-1, 2)
    rows[1] = k.sum(0)
    scores = rows @ q.sum(0)
    return ScoreSources(
        ("causal", 1), 0, (3,), 1, tuple(NAMED), tuple(NAMED), (), q, k, np.zeros((0, 1), np.float32), {},
        1.0, 0.0, scores, rows, 0.5,
    )  # fmt: skip


@drawn(
    strategies.lists(NUMBERS, min_size=24, max_size=24),
    strategies.lists(NUMBERS, min_size=8, max_size=8),
)
def test_no_smaller_set_lets_another_key_win(numbers, keys):
    split = split_of(numbers, keys)
    for side in ("query", "key"):
        wins = None
        for count in range(6):
            for some in combinations(range(5), count):
                q, rows = split.q_parts.sum(0), split.keys.copy()
                if side == "query":
                    q = q - split.q_parts[list(some)].sum(0)
                else:
                    rows[1] -= split.k_parts[list(some)].sum(0)
                scores = rows @ q
                if wins is None and np.delete(scores, 1).max() > scores[1]:
                    wins = count
        fewest = split.fewest_removals(side)
        assert (None if fewest is None else len(fewest[0])) == wins
        if fewest is not None:
            assert fewest[1] != 1 and not {one.part for one in fewest[0]} & {*CONSTANT}


def test_without_a_source_the_model_runs_on():
    pretrained, model, inputs = tiny("gpt2"), plain("gpt2").transformer, given("gpt2")
    batch, *_ = encode(pretrained, inputs)
    split = explain_score(pretrained, inputs, 1, 2, 7, 4)
    sources = {one.name: one for one in split.q_sources}

    def erase(module, inputs, output):
        output = output.clone()
        output[0, 7] = 0
        return output

    def erase_head(module, inputs):
        states = inputs[0].clone()
        states[0, 7, 8:16] = 0
        return (states,)

    for name, module, hook in (
        ("L0 feed-forward", model.h[0].mlp, "register_forward_hook"),
        ("L0·H1", model.h[0].attn.c_proj, "register_forward_pre_hook"),
    ):
        handle = getattr(module, hook)(erase if name.endswith("forward") else erase_head)
        read = run_and_read(model, batch, ("h.1.attn.c_attn",))["h.1.attn.c_attn"][1]
        handle.remove()
        expected = float(read[7, 16:24] @ read[4, 24 + 16 : 24 + 24]) * split.scale
        removal = remove_source(pretrained, inputs, split, "query", sources[name])
        assert split.score + removal.actual == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert removal.actual != pytest.approx(0, abs=1e-5)
    with pytest.raises(PretrainedError, match="No one module writes biases"):
        remove_source(pretrained, inputs, split, "query", sources["biases"])


@each(
    "model_type",
    ["opt", "whisper", "t5", "qwen3_next", "mixtral", "bert", "vit", "falcon_h1", "bamba"],
)
def test_each_source_that_a_module_writes_is_removed(model_type):
    pretrained = built(model_type)
    uneven(pretrained.model)
    (kind, layer), attention = list(layer_attentions(pretrained, GIVEN).items())[-1]
    query, key = seen_cell(attention)
    split = explain_score(pretrained, GIVEN, layer, 0, query, key, kind)
    sides: list[tuple[Side, Any]] = [("query", split.q_sources), ("key", split.k_sources)]
    for side, sources in sides:
        written = [one for one in sources if one.modules]
        assert "head" in {one.part for one in written}
        for source in written:
            actual = remove_source(pretrained, GIVEN, split, side, source).actual
            assert np.isfinite(actual) and abs(actual) > 1e-7 * abs(split.score), source


def test_removals_are_random_and_their_agreement_has_an_interval():
    pretrained, inputs = tiny("gpt2"), given("gpt2")
    removals = [random_removal(pretrained, inputs, 1, 2, seed=seed) for seed in range(6)]
    assert removals[5] == random_removal(pretrained, inputs, 1, 2, seed=5) != removals[4]
    assert all(one.query > one.key and one.source.modules for one in removals)
    one = removals[0]
    split = explain_score(pretrained, inputs, 1, 2, one.query, one.key)
    parts = named(split, one.side)[one.source.name]
    other = (split.k_parts if one.side == "query" else split.q_parts).sum(0)
    assert one.predicted == pytest.approx(-split.scale * float(parts @ other), rel=1e-4, abs=1e-6)
    r, low, high = removal_correlation(removals)
    assert -1 <= low <= r + 1e-9 and r <= high + 1e-9 <= 1 + 1e-6
    exact = [replace(one, actual=one.predicted) for one in removals]
    assert removal_correlation(exact) == pytest.approx((1, 1, 1))
    assert removal_correlation(exact[:2]) is None
    still = Removal(5, 1, "key", NAMED[0], 0.5, 0.0)
    assert removal_correlation([still] * 4) is None


@each(
    ("model_type", "asked", "why"),
    [
        ("gpt2", (1, 1, 3, 6), "does not see key 6"),
        ("gpt2", (1, 9, 6, 3), "is not in this layer"),
        ("gpt2", (1, 1, 6, 300), "is not in this layer"),
        ("gpt2", (7, 1, 6, 3), "has no queries and keys, or does not exist"),
        ("qwen3_next", (0, 1, 6, 3), "has no queries and keys"),
        ("gemma3n_text", (1, 1, 6, 3), "no sum of what its embeddings"),
        ("xlnet", (1, 1, 6, 3), "no sum of what its embeddings"),
        ("fsmt", (1, 1, 6, 3), "no sum of what its embeddings"),
        ("diffllama", (1, 1, 6, 3), "what each writes is unknown"),
    ],
)
def test_what_has_no_split_says_why(model_type, asked, why):
    with pytest.raises(PretrainedError, match=why):
        explain_score(built(model_type), GIVEN, *asked)


def test_a_longer_text_costs_more():
    short, long = (
        split_cost(tiny("gpt2"), ModelInputs(text)) for text in ("a boat", "a boat " * 20)
    )
    assert short[0] < long[0] and 0 < short[1] < long[1]
