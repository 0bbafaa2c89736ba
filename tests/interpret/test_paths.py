"""Paths against formulas by hand, in models that are linear, and in trained and untrained ones."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from core.interpret.circuits import PAIR, PAIRED_MODELS, induction_circuit
from core.interpret.paths import (
    ANSWER,
    LOGITS,
    STEPS,
    Change,
    Node,
    PathEdge,
    change_texts,
    estimate_edges,
    estimate_step,
    find_paths,
    key_shares,
    measure_edges,
    random_effect,
)
from core.pretrained import ModelInputs, PretrainedError, load_lab_model, read
from core.pretrained.load import untrained
from tests.cases import each
from tests.tiny_models import tiny

CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4}
TEXTS = ModelInputs("the animal was tired"), ModelInputs("the street was tired")


def all_edges(change: Change) -> list[PathEdge]:
    stream = change.stream
    return [
        PathEdge(sender, receiver, by)
        for receiver, by in stream.receivers
        for sender in stream.senders[: stream.count(receiver)]
    ]


def lead_by_hand(model, ids, other_ids, edge: PathEdge | None, answers) -> float:
    # A decoder of attention alone, written out: RMSNorm, rotation of halves, softmax, and what each head adds.
    layers, size = model.model.layers, model.config.head_dim
    half, length = size // 2, len(ids)
    turns = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)

    def norm(x, module):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * module.weight

    def rotated(x):
        a, b = x[:, :half], x[:, half:]
        return torch.cat([a * turns.cos() - b * turns.sin(), b * turns.cos() + a * turns.sin()], -1)

    def head(number, index, streams):
        attention, rows = layers[number].self_attn, slice(index * size, (index + 1) * size)
        q, k, v = (
            norm(x, layers[number].input_layernorm) @ one.weight[rows].T + one.bias[rows]
            for x, one in zip(
                streams, (attention.q_proj, attention.k_proj, attention.v_proj), strict=True
            )
        )
        scores = rotated(q) @ rotated(k).T / size**0.5
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        return scores.softmax(-1) @ v @ attention.o_proj.weight[:, rows].T

    def run(tokens, replaced):
        stream = model.model.embed_tokens.weight[tokens]
        writes, streams = {Node("embedding"): stream}, [stream]
        for number, layer in enumerate(layers):
            for index in range(model.config.num_attention_heads):
                one = Node("head", number, index)
                writes[one] = replaced.get(one, head(number, index, [streams[-1]] * 3))
            now = [writes[one] for one in writes if one.layer == number]
            streams.append(streams[-1] + sum(now) + layer.self_attn.o_proj.bias)
        return writes, streams

    def lead(stream):
        logits = model.lm_head(norm(stream, model.model.norm))[-1]
        return float(logits[answers[0]] - logits[answers[1]])

    with torch.no_grad():
        writes, streams = run(ids, {})
        if edge is None:
            return lead(streams[-1])
        own = writes[edge.sender]
        other = torch.zeros_like(own) if other_ids is None else run(other_ids, {})[0][edge.sender]
        if edge.receiver == ANSWER:
            return lead(streams[-1] + other - own)
        assert edge.receiver.layer is not None
        clean = streams[edge.receiver.layer]
        changed = [clean + (other - own) * (by == edge.by) for by in "QKV"]
        new = head(edge.receiver.layer, edge.receiver.head, changed)
        return lead(run(ids, {edge.receiver: new})[1][-1])


def test_exact_patching_is_the_formula():
    pretrained = load_lab_model("only-attention")
    change = change_texts(pretrained, *PAIR)
    clean = change.stream.baseline
    model, answers = pretrained.model, (clean.id, clean.contrast)
    ids, other_ids = (
        pretrained.tokenizer(one.text, return_tensors="pt").input_ids[0] for one in PAIR
    )
    edges = all_edges(change)
    assert len(edges) == 4 * 3 * (1 + 5) + 9
    whole = lead_by_hand(model, ids, None, None, answers)
    assert clean.value == pytest.approx(whole, rel=1e-4)
    for way, other in (
        (change, other_ids),
        (change_texts(pretrained, PAIR[0], None, answers), None),
    ):
        expected = [whole - lead_by_hand(model, ids, other, edge, answers) for edge in edges]
        np.testing.assert_allclose(measure_edges(way, edges), expected, **CLOSE)


@each(
    "family", ["gpt2", "gpt_neox", "llama", "qwen3", "gpt_oss", "deepseek_v3", "gemma2", "gemma3"]
)
def test_near_texts_have_the_effects_that_gradients_say(family):
    # The other text is moved to 1 % of the way from the clean one, where effects are linear.
    change = change_texts(tiny(family), *TEXTS, (5, 9))
    near = replace(change, shift=change.shift * 1e-2)
    edges, estimates = all_edges(near), estimate_edges(near, 1)
    expected = estimates.T[np.isfinite(estimates.T)]
    measured = np.array(measure_edges(near, edges))
    assert np.abs(measured - expected).max() < 0.05 * np.abs(expected).max()
    last = estimate_step(change, STEPS)  # the gradient of the clean run, as above
    np.testing.assert_allclose(
        last, 100 * estimates, rtol=1e-3, atol=1e-4 * np.nanmax(np.abs(last))
    )
    assert not any(one._forward_pre_hooks for one in tiny(family).model.modules())


@each("name", PAIRED_MODELS)
def test_the_edges_of_the_embedding_add_up_to_the_whole_difference(name):
    # Integrated gradients are complete (Sundararajan et al. 2017), and all that differs between the texts is embedded.
    change = change_texts(load_lab_model(name), *PAIR)
    whole, coarse = (np.nansum(estimate_edges(change, steps)[0]) for steps in (100, 1))
    assert whole == pytest.approx(change.gap, rel=0.03)
    assert abs(coarse - change.gap) > 0.1 * change.gap


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 99), steps=st.integers(1, 4), zero=st.booleans())
def test_a_linear_model_has_exact_estimates_that_add_up(seed, steps, zero):
    # Without norms, and with equal weights for all tokens, the answer is a linear map of every write.
    pretrained = untrained(load_lab_model("only-attention"), seed)
    for layer in pretrained.model.model.layers:
        for one in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            one.weight.data.zero_()
        for one in (layer.self_attn.v_proj, layer.self_attn.o_proj):
            one.weight.data.mul_(10)
        layer.input_layernorm.forward = lambda x: x
    pretrained.model.model.norm.forward = lambda x: x
    clean, other = (ModelInputs(f"the {word} house saw the dark") for word in ("cold", "old"))
    change = change_texts(pretrained, clean, None if zero else other, (20, 30))
    estimates, edges = estimate_edges(change, steps), all_edges(change)
    scale = np.nanmax(np.abs(estimates))
    expected = estimates.T[np.isfinite(estimates.T)]
    np.testing.assert_allclose(measure_edges(change, edges), expected, rtol=1e-3, atol=1e-3 * scale)
    by_scores = [
        value for edge, value in zip(edges, expected, strict=True) if edge.by in ("Q", "K")
    ]
    assert np.abs(by_scores).max() <= 1e-4 * scale
    assert estimates[:, -1].sum() == pytest.approx(change.gap, rel=1e-3), "biases are 0"


@each("name", PAIRED_MODELS)
def test_the_induction_circuit_is_the_strongest_path_between_heads(name):
    model = load_lab_model(name)
    paths, previous = find_paths(model, *PAIR), induction_circuit(model).patched[0]
    best, effect = next(iter(paths.between_heads.items()))
    strongest = paths.strongest(len(paths.exact))
    assert best == next(edge for edge in strongest if edge in paths.between_heads), "both ways"
    drawn, left_out = np.split(np.abs([*paths.measured.values()]), [12])
    assert drawn.min() >= left_out.max(), "the graph has the largest that were measured"
    # From the head of the token before, into the keys of one that looks for it
    assert best.by == "K" and (best.sender.layer, best.sender.head) == previous
    reading = read(model, PAIR[0])
    first, second = (item.weights for item in reading.trace.maps)
    assert first.diagonal(-1, 1, 2).mean(-1).argmax() == best.sender.head
    assert second[best.receiver.head, -1, reading.source.tokens.index("river")] > 0.7
    assert effect > 0.2 * paths.gap and effect > 2 * paths.least
    rho, signs = paths.agreement
    assert rho is not None and rho > 0.6 and signs > 0.9


@each("name", PAIRED_MODELS)
def test_no_path_stands_out_in_random_models(name):
    assert 0 < random_effect(load_lab_model(name)) < 0.2 < LOGITS


@each(("name", "apart"), [("only-attention", True), ("induction", False)])
def test_keys_that_several_heads_write_need_all_of_them(name, apart):
    model = load_lab_model(name)
    layer, head = induction_circuit(model).patched[1]
    alone, every = key_shares(model, (layer, head))
    paths = find_paths(model, *PAIR, exact=110)
    share = paths.measured[PathEdge(Node("head", 0, 2), Node("head", layer, head), "K")] / paths.gap
    assert alone["L0·H2"] == pytest.approx(share, abs=1e-3)
    assert (max(alone.values()) > every / 2) == apart and every > 0.25


def test_two_heads_carry_who_gives_in_the_writer():
    texts = (
        f"When Mary and John went to the shop, {name} gave a book to" for name in ("John", "Mary")
    )
    clean, corrupted = map(ModelInputs, texts)
    paths = find_paths(load_lab_model("writer"), clean, corrupted)
    assert paths.words == ("Mary", "John") and paths.count == 2188
    names = [edge.name for edge, effect in paths.between_heads.items() if effect > paths.least]
    assert names == ["L0·H0 → V of L3·H2", "L0·H2 → V of L3·H2"]
    assert paths.measured[PathEdge(Node("head", 3, 2), ANSWER)] > 0.4 * paths.gap


@each(
    ("family", "why"),
    [
        ("bert_decoder", "norm right before"),
        *((family, "code of its own") for family in ("gpt_neo", "bloom", "falcon", "mpt")),
        ("t5", "more than one stream"),
    ],
)
def test_other_streams_are_refused(family, why):
    with pytest.raises(PretrainedError, match=f"{why}.*Take a decoder with"):
        change_texts(tiny(family), *TEXTS, (5, 9))


def test_few_rows_run_at_once(monkeypatch):
    change = change_texts(load_lab_model("induction"), *PAIR)
    edges = all_edges(change)[::7]
    whole = measure_edges(change, edges)
    monkeypatch.setattr("core.interpret.paths.ROWS", 3)
    np.testing.assert_allclose(measure_edges(change, edges), whole, **CLOSE)


def test_more_than_there_is_memory_for_is_refused(monkeypatch):
    monkeypatch.setattr("core.interpret.paths.COPIES", 10**12)
    with pytest.raises(PretrainedError, match="What 9 parts write to 13 tokens .*shorter texts"):
        find_paths(load_lab_model("only-attention"), *PAIR)
