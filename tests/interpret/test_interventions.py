"""Each way to take a head's information away, against the model run again with hooks that are written here."""

from dataclasses import replace
from functools import cache
from typing import Any, cast

import pytest
import torch

from core.interpret.evidence import Question, ablate_heads, ask, make_heads_uniform
from core.interpret.interventions import (
    BY_KEY,
    WAYS,
    agreement,
    head_effects,
    mean_outputs,
    output_sums,
)
from core.interpret.lens import attribute_logit, direct_logits
from core.pretrained import ModelInputs, PretrainedError, encode
from tests.cases import each
from tests.tiny_models import HEADS, asking, plain, tiny

A, B, LONG = "the animal was tired", "the street was green", "nine dogs saw the street was green"
HEADS_OF = [("causal", layer, head) for layer in range(2) for head in range(HEADS)]
QUANTITIES = ("difference", "log-probability", "kl", "probability")


def baseline_of(text: str, quantity="difference"):
    output = None if quantity == "kl" else 5
    contrast = 9 if quantity == "difference" else None
    return ask(
        tiny("gpt2"),
        Question(ModelInputs(text), output=output, quantity=quantity, contrast=contrast),
    )


def run_with_hooks(text: str, change=None):
    """The last logits of plain GPT-2, and the inputs of W_O (T, C) by layer; `change` gives another input."""
    model, inputs, handles = plain("gpt2"), dict[int, torch.Tensor](), []

    def hook(layer):
        def run(module, given):
            new = given[0].clone() if change is None else change(layer, given[0].clone())
            inputs[layer] = new[0]
            return (new,)

        return run

    for layer, block in enumerate(model.transformer.h):
        handles.append(block.attn.c_proj.register_forward_pre_hook(hook(layer)))
    try:
        with torch.no_grad():
            logits = model(**encode(tiny("gpt2"), ModelInputs(text))[0]).logits[0, -1]
    finally:
        for handle in handles:
            handle.remove()
    return logits, inputs


unchanged = cache(run_with_hooks)


def value(logits, quantity, full):
    if quantity == "kl":
        return -float((full.softmax(-1) * (full.log_softmax(-1) - logits.log_softmax(-1))).sum())
    of = {"log-probability": logits.log_softmax(-1), "probability": logits.softmax(-1)}
    return float(logits[5] - logits[9] if quantity == "difference" else of[quantity][5])


def by_hand(way, _, layer, head, quantity, text=B):
    size = plain("gpt2").config.hidden_size // HEADS
    (full, own), (theirs, other) = unchanged(A), unchanged(text)
    mean = torch.cat([unchanged(one)[1][layer] for one in (A, LONG)]).mean(0)
    rows = torch.arange(len(own[layer])) - len(own[layer]) + len(other[layer])
    written = {"zero": 0 * mean, "mean": mean, "patched": own[layer]}
    written["resampled"] = other[layer][rows]

    def change(at, given):
        part = slice(head * size, (head + 1) * size)
        if at == layer:
            given[0, :, part] = written[way][..., part]
        return given

    changed, _ = run_with_hooks(B if way == "patched" else A, change)
    if way == "patched":
        return value(changed, quantity, full) - value(theirs, quantity, full)
    return value(full, quantity, full) - value(changed, quantity, full)


@each("quantity", QUANTITIES)
@each("way", ("zero", "mean", "resampled", "patched"))
def test_a_way_is_a_rerun_with_plain_hooks(way, quantity):
    means = mean_outputs(tiny("gpt2"), [ModelInputs(A), ModelInputs(LONG)])
    effects = head_effects(
        baseline_of(A, quantity), way, means=means, other=baseline_of(B, quantity)
    )
    assert list(effects) == HEADS_OF
    for head, effect in effects.items():
        assert effect == pytest.approx(by_hand(way, *head, quantity), rel=1e-4, abs=2e-5)


def test_texts_of_other_lengths_meet_at_the_answer():
    effects = head_effects(baseline_of(A), "resampled", HEADS_OF[:2], other=baseline_of(LONG))
    expected = [by_hand("resampled", *head, "difference", LONG) for head in HEADS_OF[:2]]
    assert [*effects.values()] == pytest.approx(expected, rel=1e-4, abs=2e-5)


def test_signs_are_those_of_a_loss():
    baseline = baseline_of(A)
    zero, uniform = (head_effects(baseline, way) for way in ("zero", "uniform"))
    for head in HEADS_OF:
        one = frozenset({head})
        assert zero[head] == pytest.approx(
            baseline.value - ablate_heads(baseline, one).value, abs=1e-5
        )
        even = make_heads_uniform(baseline, one).value
        assert uniform[head] == pytest.approx(baseline.value - even, abs=1e-5)
    direct = head_effects(baseline, "direct")
    for part in attribute_logit(baseline, 5, 9).parts:
        if part.key and part.head is not None:
            assert direct[*part.key, part.head] == pytest.approx(part.value, abs=1e-5)
    assert agreement(zero, {head: 2 * effect for head, effect in zero.items()}) == pytest.approx(1)
    assert agreement(zero, {head: -effect for head, effect in zero.items()}) == pytest.approx(-1)


def test_what_is_replaced_by_itself_changes_nothing():
    (baseline, single) = (baseline_of(A), baseline_of("t"))
    same = head_effects(baseline, "resampled", other=baseline)
    mean = head_effects(single, "mean", means=mean_outputs(tiny("gpt2"), [ModelInputs("t")]))
    for effects in (same, mean):
        assert [*effects.values()] == pytest.approx([0] * len(HEADS_OF), abs=1e-5)


def test_every_token_of_a_corpus_counts_once():
    sums = [output_sums(tiny("gpt2"), ModelInputs(text)) for text in (A, LONG)]
    together = torch.cat([run_with_hooks(text)[1][1] for text in (A, LONG)]).mean(0)
    means = mean_outputs(tiny("gpt2"), [ModelInputs(A), ModelInputs(LONG)])
    assert sum(one["causal", 1][1] for one in sums) > 8
    torch.testing.assert_close(means["causal", 1].flatten(), together, rtol=1e-4, atol=1e-5)


@each("family", ("bert", "t5", "llama", "bert_encoder", "mamba", "diffllama"))
def test_ways_reach_every_family(family):
    baseline = ask(tiny(family), Question(asking(family), against="Nine boats wait."))
    zero = head_effects(baseline, "zero")
    for head in [*zero][:: len(zero) - 1]:
        assert zero[head] == pytest.approx(ablate_heads(baseline, frozenset({head})).drop, abs=1e-5)
    same = head_effects(baseline, "patched", [*zero][:2], other=baseline)
    assert [*same.values()] == pytest.approx([0, 0], abs=1e-5)


@each(
    ("why", "way", "given"),
    [
        ("no way 'none'; take one of zero, uniform", "none", {}),
        ("needs a mean: means=", "mean", {}),
        ("needs a second text: other=", "patched", {}),
        ("a head is \\(kind, layer, head\\)", "zero", {"heads": [("self", 0, 0)]}),
        ("hold no layer", "mean", {"means": {}}),
    ],
)
def test_what_a_way_lacks_is_said(why, way, given):
    with pytest.raises(PretrainedError, match=why):
        head_effects(baseline_of(A), way, **given)


@each("family", ("gpt2", "bert", "llama", "t5"))
def test_direct_terms_are_of_every_logit(family):
    # In post-norm BERT a term passes every later norm, and in T5 it is of the decoder alone
    baseline = ask(tiny(family), Question(asking(family), output=5, quantity="log-probability"))
    effects, towards = head_effects(baseline, "direct"), dict(direct_logits(baseline))
    for output in (5, 9):
        for part in attribute_logit(baseline, output).parts:
            if part.key and part.head is not None:
                own = towards[*part.key, part.head][output]
                assert float(own) == pytest.approx(part.value, rel=1e-4, abs=2e-5)
    full = baseline.answer.logits
    for head, values in towards.items():
        lost = full.log_softmax(-1)[5] - (full - values).log_softmax(-1)[5]
        assert effects[head] == pytest.approx(float(lost), rel=1e-4, abs=2e-5)
    assert any(effects.values()) and all(
        not effects[head] for head in effects.keys() - towards.keys()
    )


def test_what_has_no_direct_term_is_refused():
    embedding = ask(tiny("bert_encoder"), Question(asking("bert_encoder")))
    with pytest.raises(PretrainedError, match="no token but an embedding"):
        head_effects(embedding, "direct")
    with pytest.raises(PretrainedError, match="no quantity 'loss'"):
        ask(tiny("gpt2"), Question(ModelInputs(A), quantity=cast(Any, "loss")))


def test_a_way_says_what_it_asks():
    assert [*BY_KEY] == ["zero", "uniform", "mean", "resampled", "patched", "direct"]
    assert all("?" in way.asks and replace(way) == way for way in WAYS)
