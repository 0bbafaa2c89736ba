"""Evidence, lens, patching and circuits against their definitions: plain algebra, differences, plain hooks."""

import math
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, get_args
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from core import ranks
from core.interpret.circuits import (
    KINDS,
    Composer,
    HeadMatrices,
    Vocabularies,
    copying_scores,
    effective_rank,
    norm_gain,
    ov_factors,
    qk_factors,
    random_composition,
    read_heads,
    read_vocabularies,
)
from core.interpret.evidence import (
    Question,
    ablate_heads,
    answering_rows,
    ask,
    break_down_weight,
    default_quantity,
    head_sets,
    hide_token,
    layer_attentions,
    make_heads_uniform,
    measure_contributions,
    output_matrix,
    single_heads,
    token_scores,
)
from core.interpret.lens import (
    PASSES,
    Stream,
    Trajectories,
    attribute_logit,
    attribute_passes,
    count_parts,
    first_likeliest,
    follow_tokens,
    layers_of,
    read_lens,
    read_stream,
)
from core.interpret.patching import (
    Direction,
    agreement,
    blocks_of,
    estimate_heads,
    pair_of,
    patch,
    patch_source,
    ranked,
)
from core.interpret.trace import flow, graph
from core.models.base import hooked as hooked_while
from core.pretrained import (
    ModelInputs,
    PretrainedError,
    encode,
    forward,
    load_lab_model,
    load_minilm,
    read,
)
from core.pretrained.attention_recorder import is_transposed
from core.pretrained.generate import Answer, answer_of, output_id, output_name
from core.tasks import TaskConfig, make_task
from core.tasks.text import NAMES
from tests.cases import each
from tests.tiny_models import HEADS, READABLE, SENTENCE, asking, given, plain, tiny

OUTPUT, CONTRAST = 2, 1
CLEAN, CORRUPTED = "the animal was tired", "the street was tired"
SOME = ("bert", "bert_encoder", "gpt2", "llama", "t5", "vit", "bert_classifier")


def baseline_of(family: str, **asked):
    # A question that the family answers; an embedding is held against another sentence's.
    return ask(tiny(family), Question(asking(family), **{"against": "Nine boats wait."} | asked))


def scaled_copy(baseline, seen, heads: list[int], by: float, dtype):
    # A copy of the model in which the rows of W_O of those heads are multiplied, and its batch.
    copy = deepcopy(baseline.pretrained.model).to(dtype)
    names = {id(module): name for name, module in baseline.pretrained.model.named_modules()}
    layer = copy.get_submodule(names[id(seen.output)])
    rows = layer.weight if is_transposed(layer) else layer.weight.T
    with torch.no_grad():
        rows.unflatten(0, (seen.weights.shape[1], -1))[heads] *= by
    return copy, {
        name: one.to(dtype) if one.is_floating_point() else one
        for name, one in baseline.batch.items()
    }


def scaled(baseline, seen, heads: list[int], by: float, dtype=torch.float32):
    # The model's own answer after the rows of W_O of those heads are multiplied.
    copy, batch = scaled_copy(baseline, seen, heads, by, dtype)
    with torch.no_grad():
        output = answer_of(baseline.pretrained, batch, copy(**batch))
    reference = baseline.reference
    if reference is not None:
        baseline = replace(baseline, reference=reference.to(output.vector))
    return float(baseline.target_value(output))


def seen_of(family: str) -> list:
    baseline = baseline_of(family)
    return forward(baseline.pretrained, baseline.batch, with_qkv=True)[1].calls


def trace_of(baseline):
    return read(baseline.pretrained, baseline.question.inputs).trace


@each(
    ("family", "asked"),
    [
        *((name if name != "t5" else "bart", {}) for name in SOME),  # T5's ReLU has no derivative
        *(
            (name, {"output": OUTPUT, **quantity})
            for name in ("bert", "gpt2", "bart", "bert_classifier")
            for quantity in (
                {"quantity": "logit"},
                {"quantity": "difference", "contrast": CONTRAST},
            )
        ),
    ],
)
def test_slopes_of_a_head_sum_to_the_answers_derivative(family, asked):
    # A head's output is linear in its weights, so Σ α·∂y/∂α is how y moves as the head is turned up.
    baseline, every = baseline_of(family, **asked), seen_of(family)
    measured, step = measure_contributions(baseline), 1e-3
    for seen in (every[0], every[-1]):
        for head in (0, seen.weights.shape[1] - 1):
            slope = measured.gradients[seen.kind, seen.layer][head].sum()
            up, down = (
                scaled(baseline, seen, [head], 1 + sign * step, torch.float64) for sign in (1, -1)
            )
            assert slope == pytest.approx((up - down) / (2 * step), rel=5e-3, abs=3e-6)


@each(
    ("family", "norms", "gradients"),
    [
        # Differential attention subtracts one half of the heads from the other before W_O.
        ("diffllama", False, True),
        ("bert_encoder", True, True),
        ("bloom", True, True),
        ("deberta_v2", True, True),
        ("longformer", False, False),
    ],
)
def test_what_is_unknown_is_left_out(family, norms, gradients):
    measured = measure_contributions(baseline_of(family))
    assert (bool(measured.norms), bool(measured.gradients)) == (norms, gradients)
    if family == "diffllama":
        assert output_matrix(seen_of(family)[0]) is None
    if not norms and not gradients:
        pytest.raises(
            PretrainedError, ablate_heads, baseline_of(family), frozenset({("self", 0, 0)})
        ).match("cannot be switched off")


def test_a_hidden_token_is_seen_by_no_head():
    model = tiny("bert_encoder")
    baseline = ask(model, Question(given("bert_encoder")))
    assert baseline.value == pytest.approx(1.0, abs=1e-5)  # held against itself, so without a slope
    assert measure_contributions(baseline).gradients == {}
    mask = baseline.batch["attention_mask"].clone()
    mask[0, 4] = 0
    batch = baseline.batch | {"attention_mask": mask}
    others = model.model(**batch).last_hidden_state[0][mask[0].bool()]
    expected = torch.nn.functional.cosine_similarity(others.mean(0), baseline.reference, 0)
    _, recorder = forward(model, batch)
    assert all(float(seen.weights[..., 4].max()) == 0 for seen in recorder.calls)
    effect = hide_token(baseline, 4)
    assert effect.value == pytest.approx(float(expected), abs=1e-5) and effect.drop > 1e-3
    assert effect.id is baseline.word is baseline.other is None and not baseline.is_top


@each("family", ["gpt2", "llama", "bert_decoder"])
def test_what_comes_after_the_answer_changes_nothing(family):
    baseline = baseline_of(family, position=5)
    assert (
        abs(hide_token(baseline, 9).drop) < 1e-6
        and max(abs(hide_token(baseline, token).drop) for token in range(5)) > 1e-5
    )


def test_a_hidden_patch_is_painted_even():
    baseline = baseline_of("vit")
    # Three by three of them stand after the class token
    for token, row, column in ((1, 0, 0), (6, 4, 8)):
        pixels = baseline.batch["pixel_values"].clone()
        pixels[..., row : row + 4, column : column + 4] = pixels.mean((-2, -1), keepdim=True)
        painted = baseline.target_value(baseline.rerun({"pixel_values": pixels}))
        hidden = hide_token(baseline, token)
        assert hidden.value == pytest.approx(float(painted), abs=1e-6) and abs(hidden.drop) > 1e-5
    assert hide_token(baseline, 0).drop == 0


@each(("family", "row"), [("gpt2", -1), ("bert_classifier", 0), ("vit", 0), ("t5", -1)])
def test_the_rows_that_answer(family, row):
    baseline = baseline_of(family)
    answers = answering_rows(baseline, trace_of(baseline).kinds[-1])
    assert answers[row] == answers.sum() == answers.max() == 1


@each("family", SOME)
def test_every_measure_says_something_of_every_token(family):
    baseline = baseline_of(family)
    trace, measured = trace_of(baseline), measure_contributions(baseline)
    scores = token_scores(baseline, trace, measured)
    assert list(scores) == ["weights", "written", "gradient", "rollout", "flow"]
    for score in scores.values():
        assert score.shape == (len(baseline.source),) and (score >= 0).all() and np.ptp(score) > 0
    slopes = [
        one.sum((0, 1))
        for (kind, _), one in measured.gradients.items()
        if (family, kind) != ("t5", "causal")
    ]
    np.testing.assert_allclose(scores["gradient"], np.abs(np.sum(slopes, 0)), rtol=1e-5)
    if family == "gpt2":
        place = baseline.answer.position
        rows = [item.weights[:, place] for item in trace.maps]
        np.testing.assert_allclose(scores["weights"], np.mean(rows, axis=(0, 1)), atol=1e-6)
        rows = [measured.norms["causal", layer][:, 0] * row for layer, row in enumerate(rows)]
        shares = np.mean([row / row.sum(-1, keepdims=True) for row in rows], axis=(0, 1))
        np.testing.assert_allclose(scores["written"], shares, atol=1e-6)
        np.testing.assert_allclose(scores["flow"], flow(graph(trace, "causal", 1), place))


# Of an embedding every row answers: the work grows as T to the 4th.
@each(("words", "there"), [(40, True), (100, False)])
def test_flow_is_left_out_where_a_page_would_wait_for_it(words, there, monkeypatch):
    monkeypatch.setattr("core.interpret.evidence.flow", lambda through, row: np.zeros(99))
    baseline = ask(load_minilm(), Question(ModelInputs("green " * words), against=SENTENCE))
    assert (
        "flow" in token_scores(baseline, trace_of(baseline), measure_contributions(baseline))
    ) == there


def test_minilm_answers_by_other_heads():
    # The page's first sight: sharp heads are not those that matter, and slopes foresee what does.
    question = Question(
        ModelInputs("The animal didn't cross the street because it was too tired."),
        against="The exhausted cat stayed on its side of the road.",
    )
    baseline = ask(load_minilm(), question)
    slopes: Any = measure_contributions(baseline).gradients
    trace = trace_of(baseline)
    every = head_sets(trace)
    effects = single_heads({off: ablate_heads(baseline, off) for off in every[:73]})
    assert len(effects) == 72 and len(set(every)) == len(every) == 72 + 6, "and whole layers"
    sizes, sharp, steep = np.array(
        [
            (
                abs(effect.drop),
                trace.head(layer, head).max(-1).mean(),
                abs(slopes[kind, layer][head].sum()),
            )
            for (kind, layer, head), effect in effects.items()
        ]
    ).T
    assert ranks.spearman(sharp, sizes) < 0.1 < 0.5 < ranks.spearman(
        steep, sizes
    ) and baseline.value == pytest.approx(0.617, abs=0.005)


@each("family", ["bert", "llama", "bart"])
def test_an_even_head_is_one_whose_queries_are_zero(family):
    # Without W_Q (and its bias) every score is the same, so the softmax is even over what may be seen.
    baseline, seen = baseline_of(family), seen_of(family)[-1]
    copy, changes, size = deepcopy(baseline.pretrained.model), [], seen.q.shape[-1]
    module = copy.get_submodule(
        {module: name for name, module in baseline.pretrained.model.named_modules()}[seen.module]
    )
    queries = next(getattr(module, name) for name in ("query", "q_proj") if hasattr(module, name))

    def even(heads):
        return make_heads_uniform(
            baseline, frozenset((seen.kind, seen.layer, one) for one in heads)
        )

    with torch.no_grad():
        for head in (1, 0):
            for parameter in queries.parameters():
                parameter[head * size : (head + 1) * size] = 0
            effect = even(range(head, 2))
            output = answer_of(baseline.pretrained, baseline.batch, copy(**baseline.batch))
            assert effect.value == pytest.approx(float(baseline.target_value(output)), abs=1e-6)
            changes.append(abs(effect.drop))
    every = even(range(seen.weights.shape[1])).value
    assert max(changes) > 1e-5 and even([None]).value == pytest.approx(every, abs=1e-7)


def test_a_learned_sink_keeps_its_share():
    baseline, seen = baseline_of("gpt_oss"), seen_of("gpt_oss")[0]
    even = frozenset({("causal", 0, 3)})
    with torch.no_grad():
        _, recorder = forward(baseline.pretrained, baseline.batch, with_qkv=True, uniform=even)
    row, keys = seen.weights[0, 3, 2], seen.v[0, 1, :3]
    assert float(row.sum()) < 0.99
    torch.testing.assert_close(
        recorder.calls[0].out[0, 2, 3], keys.mean(0) * row.sum(), atol=1e-6, rtol=1e-4
    )


# Any class or token of an answer, as a probability, a logit or a difference of two: against the model's own logits.


def by_hand(logits: torch.Tensor, quantity: str) -> torch.Tensor:
    if quantity == "probability":
        return logits[OUTPUT].exp() / logits.exp().sum()
    return logits[OUTPUT] - logits[CONTRAST] if quantity == "difference" else logits[OUTPUT]


def logits_of(baseline, model, batch) -> torch.Tensor:
    # The row of the model's own output that answers.
    logits = model(**batch).logits[0]
    return logits if baseline.answer.kind == "class" else logits[baseline.answer.position]


# A masked token, a next one, of a decoder, two of classes
@each("family", ["bert", "gpt2", "bart", "bert_classifier", "vit"])
@each(("quantity", "contrast"), [("probability", None), ("logit", None), ("difference", CONTRAST)])
@torch.no_grad()
def test_each_quantity_of_any_output_is_the_models_own(family, quantity, contrast):
    baseline = baseline_of(family, output=OUTPUT, quantity=quantity, contrast=contrast)
    own = float(by_hand(logits_of(baseline, baseline.pretrained.model, baseline.batch), quantity))
    assert baseline.value == pytest.approx(own, abs=1e-5)
    seen = forward(baseline.pretrained, baseline.batch, with_qkv=True)[1].calls[-1]
    for off, heads in (((None,), range(seen.weights.shape[1])), ((0, 2), [0, 2]), ((1,), [1])):
        place = frozenset((seen.kind, seen.layer, one) for one in off)
        copied = logits_of(baseline, *scaled_copy(baseline, seen, list(heads), 0.0, torch.float64))
        without, effect = float(by_hand(copied, quantity)), ablate_heads(baseline, place)
        assert effect.value == pytest.approx(without, abs=2e-5) and abs(effect.drop) > 1e-6
        assert (
            effect.drop == pytest.approx(own - without, abs=3e-5) and effect.id == copied.argmax()
        )
    assert (
        make_heads_uniform(baseline, place).value != effect.value != baseline.value
        and abs(hide_token(baseline, 2).drop) > 1e-6
    )


def test_what_is_left_open_is_the_likeliest():
    baseline = baseline_of("gpt2")
    first, second = baseline.answer.logits.topk(2).indices.tolist()
    asked = baseline.id, baseline.quantity, baseline.contrast, baseline.is_top
    assert (
        asked == (first, "probability", None, True)
        and baseline_of("gpt2", quantity="difference").contrast == second
    )
    assert ask(tiny("gpt2"), Question(asking("gpt2"))).has_gradient
    other = baseline_of("gpt2", output=second, quantity="difference")
    assert other.contrast == first and not other.is_top and other.value < 0
    # e**2.9 is 18.2 times, e**3.0 20.1 times the other.
    tops = [default_quantity(Answer("class", torch.tensor([0.0, top]))) for top in (2.9, 3.0)]
    assert tops == ["probability", "logit"]


@each("family", ["bert", "gpt2", "t5", "bart", "vit", "whisper"])
def test_every_output_is_found_by_its_name(family):
    baseline = baseline_of(family)
    made, answer = baseline.pretrained, baseline.answer
    every = list(range(len(answer.logits)))
    assert [output_id(made, answer, output_name(made, answer, one)) for one in every] == every
    # A class is found in any case, and a word as it stands in a text.
    if family == "vit":
        assert output_id(made, answer, " label_3 ") == 3
    elif family == "gpt2":
        assert made.tokenizer.decode([output_id(made, answer, "street")]) == " street"


@each(
    ("family", "text", "why"),
    [
        ("bert", "unbelievable", "cuts it into 12"),
        ("gpt2", "#9999", "the numbers are 0 to 327"),
        ("gpt2", " ", "Type a token"),
        ("vit", "cat", "has no class “cat”"),
        ("vit", "x" * 900, "x" * 40 + "”"),
        ("vit", "", "Type a class"),
    ],
)
def test_a_name_that_is_none_is_answered_in_a_sentence(family, text, why):
    baseline = baseline_of(family)
    with pytest.raises(PretrainedError, match=why) as error:
        output_id(baseline.pretrained, baseline.answer, text)
    assert len(str(error.value)) < 240


# One weight, taken apart, is the model's own; what stands before the rotation is what the model rotated.


@each("family", READABLE)
def test_each_step_leads_to_next_and_last_is_model_s_own(family):
    if not tiny(family).recordable:
        return
    layers = layer_attentions(tiny(family), given(family))
    for item in read(tiny(family), given(family)).trace.maps:
        layer = layers[item.kind, item.layer]
        rows, columns = layer.q.shape[1], layer.k.shape[1]
        one = break_down_weight(layer, 1, rows - 1, columns // 3)
        np.testing.assert_allclose(one.weights, item.weights[1, rows - 1, :columns], atol=1e-6)
        assert one.dot == pytest.approx(float(one.q @ one.k), abs=1e-5)
        value = one.dot * one.scale + (one.bias or 0.0)
        if layer.softcap is not None:
            value = layer.softcap * np.tanh(value / layer.softcap)
            assert one.capped == pytest.approx(value, abs=1e-5)
        assert one.score == (pytest.approx(value, abs=1e-5) if one.allowed else -np.inf)
        above = np.exp(one.scores - one.scores.max())
        below = above.sum() + (0 if one.sink is None else np.exp(one.sink - one.scores.max()))
        np.testing.assert_allclose(one.weights, above / below, atol=1e-6)
        np.testing.assert_allclose(one.contribution, one.value * one.weight, atol=1e-7)
        assert one.weight == one.weights[columns // 3]


@each(
    "family",
    "llama mistral qwen3 gemma2 gemma3 gpt_oss gpt_neox diffllama modernbert".split(),
)
def test_before_rotation_is_what_the_layer_s_own_maps_made(family):
    # The states before the first layer, through its norm and its own W_Q and W_K: no rotation anywhere.
    (layer, *_), model = layer_attentions(tiny(family), given(family)).values(), plain(family)
    batch, *_ = encode(tiny(family), given(family))
    with torch.no_grad():
        q, k = _projected(family, model, model(**batch, output_hidden_states=True).hidden_states[0])
    torch.testing.assert_close(layer.unrotated_q, q, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(layer.unrotated_k, k, atol=2e-5, rtol=1e-5)
    assert not torch.allclose(layer.unrotated_q[:, 1:], layer.q[:, 1:], atol=1e-3)
    lengths = layer.unrotated_q.norm(dim=-1) / layer.q.norm(dim=-1)
    torch.testing.assert_close(lengths, lengths[0, 0].expand_as(lengths))


def _projected(family, model, x):
    if family == "gpt_neox":
        block = model.gpt_neox.layers[0]
        made = block.attention.query_key_value(block.input_layernorm(x))[0]
        q, k, _ = made.unflatten(-1, (-1, 24)).chunk(3, -1)
        return q.transpose(0, 1), k.transpose(0, 1)
    if family == "modernbert":
        made = model.model.layers[0].attn.Wqkv(x)[0].unflatten(-1, (3, -1, 8))
        return made[:, 0].transpose(0, 1), made[:, 1].transpose(0, 1)
    block = model.model.layers[0]
    attention, x = block.self_attn, block.input_layernorm(x)[0]
    return [
        getattr(attention, f"{name}_norm", nn.Identity())(
            getattr(attention, f"{name}_proj")(x).unflatten(-1, (-1, 8))
        ).transpose(0, 1)
        for name in "qk"
    ]


@each("family", ["bert", "gpt2", "t5", "marian"])
def test_what_is_not_rotated_shows_none(family):
    layers = layer_attentions(tiny(family), given(family))
    assert all(layer.unrotated_q is None for layer in layers.values())
    if family == "t5":  # whose bias belongs to the distance
        cells = (5, 4), (9, 8), (9, 2)
        near, far, other = (break_down_weight(layers["self", 0], 1, *cell).bias for cell in cells)
        assert near == far != other


def test_shared_heads_are_named():
    layer = layer_attentions(tiny("llama"), given("llama"))["causal", 0]
    assert layer.kv_group(1) == (0, [0, 1, 2]) and layer.kv_group(5) == (1, [3, 4, 5])
    first, second, third = (break_down_weight(layer, head, 9, 4) for head in (1, 2, 3))
    assert (
        np.array_equal(first.k, second.k)
        and not np.array_equal(first.q, second.q)
        and not np.array_equal(first.k, third.k)
    )


def hide(family, **asked):
    return lambda: hide_token(baseline_of(family, **asked), 3)


def attribute(family):
    asked = baseline_of(family)
    attribute_logit(asked, asked.id)


def compare(corrupted, *answers):
    return lambda: pair_of(tiny("gpt2"), ModelInputs(CLEAN), ModelInputs(corrupted), *answers)


@each(
    ("why", "do"),
    [
        ("no class #10", hide("vit", output=10)),
        ("no class #-1", hide("vit", output=-1)),
        ("always 0", hide("vit", output=2, quantity="difference", contrast=2)),
        ("only its cosine", hide("bert_encoder", quantity="logit")),
        ("no position 13", hide("gpt2", position=13)),
        ("no position -14", hide("gpt2", position=-14)),
        ("no position 6; its 6", hide("t5", position=6)),
        ("sound are not masked", hide("whisper")),
        ("not opened", lambda: layer_attentions(tiny("longformer"), given("longformer"))),
        (
            "not one numbered list",
            lambda: layers_of(replace(tiny("gpt2"), model=torch.nn.Linear(1, 1))),
        ),
        ("not a token", lambda: read_lens(baseline_of("vit"))),
        ("not a token", lambda: read_lens(baseline_of("bert_encoder"))),
        ("no sum", partial(attribute, "gemma2")),
        ("No one matrix", partial(attribute, "diffllama")),
        ("within windows", partial(attribute, "longformer")),
        ("write texts of equal length", compare("the", 0, 2)),
        ("gives the same answer to both texts", compare(CLEAN)),
        ("same difference between the two answers", compare(CLEAN, 0, 2)),
        ("subtracts the weights", lambda: read_heads(tiny("diffllama"))),
        *(
            (
                "3 heads, 20 queries and 20 keys",
                lambda cell=cell: break_down_weight(
                    layer_attentions(tiny("bert"), given("bert"))["self", 0], *cell
                ),
            )
            for cell in ((3, 0, 0), (0, 20, 0), (0, 0, 20), (-1, 0, 0))
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(why, do):
    pytest.raises((PretrainedError, ValueError), do).match(why)


# The lens, logit attribution, patching and circuits, against plain matrix algebra on the weights.


def layer_norm(x, norm, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred**2).mean(-1, keepdim=True) + eps).sqrt() * norm.weight + norm.bias


def rms_norm(x, norm, eps):
    return x / ((x**2).mean(-1, keepdim=True) + eps).sqrt() * norm.weight


def bert_head(model, x):
    head = model.cls.predictions
    x = torch.nn.functional.gelu(x @ head.transform.dense.weight.T + head.transform.dense.bias)
    return (
        layer_norm(x, head.transform.LayerNorm, model.config.layer_norm_eps) @ head.decoder.weight.T
        + head.bias
    )


BY_HAND = {
    "gpt2": lambda model, x: (
        layer_norm(x, model.transformer.ln_f, 1e-5) @ model.transformer.wte.weight.T
    ),
    "llama": lambda model, x: (
        rms_norm(x, model.model.norm, model.config.rms_norm_eps) @ model.lm_head.weight.T
    ),
    "bert": bert_head,
    "t5": lambda model, x: (
        rms_norm(x, model.decoder.final_layer_norm, model.config.layer_norm_epsilon)
        * model.config.d_model**-0.5
        @ model.shared.weight.T
    ),
}


@each("family", BY_HAND)
@torch.no_grad()
def test_every_state_is_read_as_plain_algebra_reads_it(family):
    asked = baseline_of(family)
    position, lens, tokens = asked.answer.position, read_lens(asked), [asked.id, 7]
    output = plain(family)(**asked.batch, output_hidden_states=True)
    hidden = output.decoder_hidden_states if family == "t5" else output.hidden_states
    before = torch.stack([BY_HAND[family](plain(family), one[0]) for one in hidden[:-1]])
    logits = torch.cat([before, output.logits])  # the last hidden state has its norm already
    probabilities = logits.softmax(-1)
    best = probabilities.topk(5)
    assert torch.equal(lens.top, best.indices)
    torch.testing.assert_close(lens.probabilities, best.values, atol=1e-5, rtol=0)
    bits = -(probabilities * probabilities.log2()).sum(-1)
    torch.testing.assert_close(lens.entropy, bits, atol=1e-5, rtol=1e-5)
    followed = follow_tokens(asked, lens, position, tokens)
    torch.testing.assert_close(
        followed.probabilities, probabilities[:, position][:, tokens], atol=1e-5, rtol=0
    )
    ranks = logits[:, position].argsort(-1, descending=True).argsort(-1)[:, tokens] + 1
    assert torch.equal(followed.ranks, ranks)


def test_long_inputs_are_read_in_parts(monkeypatch):
    asked = baseline_of("gpt2")
    whole, stream = read_lens(asked), read_stream(asked)
    assert count_parts(asked, stream) == 1 and len(stream.states) == 3
    for cells, passes in (
        (2 * stream.logits.numel(), 2),
        (2 * stream.logits.numel() - 1, 3),
        (1, 3),
    ):
        monkeypatch.setattr("core.interpret.lens.CELLS", cells)
        assert count_parts(asked, stream) == passes
    parts = read_lens(asked)
    assert torch.equal(whole.top, parts.top)
    torch.testing.assert_close(whole.probabilities, parts.probabilities)
    window = read_lens(asked, 3, 8)
    assert torch.equal(window.top, whole.top[:, 3:8])
    assert torch.equal(*(follow_tokens(asked, lens, 5, [7]).ranks for lens in (window, whole)))


def test_a_layer_that_is_read_otherwise_is_refused(monkeypatch):
    asked = baseline_of("gpt2")
    logits = plain("gpt2")(**asked.batch).logits[0].detach()
    other = Stream(0, torch.zeros_like(read_lens(asked).states), logits)
    monkeypatch.setattr("core.interpret.lens.read_stream", lambda *asked: other)
    pytest.raises(PretrainedError, read_lens, asked).match("cannot be read in the same way")


@each(
    ("ranks", "leads"),
    {(9, 1, 2, 1, 1): (1, 3), (1, 1): (0, 0), (1, 2): (0, None), (3, 2): (None, None)}.items(),
)
def test_when_a_token_leads_first_and_for_good(ranks, leads):
    zeros = torch.zeros(len(ranks), 1)
    assert first_likeliest(Trajectories(zeros, torch.tensor(ranks)[:, None])) == leads


def hooked(model) -> bool:
    return any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


# That the parts sum to the logit is shown of every architecture.
@each(
    ("family", "layers", "embedded"),
    [
        ("gpt2", 2, {"token", "position"}),
        ("bert", 2, {"token", "position", "segment"}),
        ("t5", 2, {"token"}),
        ("modernbert", 4, {"token"}),
    ],
)
def test_the_parts_of_a_logit_are_of_every_role_and_layer(family, layers, embedded):
    asked = baseline_of(family)
    *before, parts = attribute_passes(asked, asked.id)
    assert before == [None] * (PASSES - 1) and not hooked(tiny(family).model)
    assert parts.logit == pytest.approx(float(asked.answer.logits[asked.id]), rel=1e-5)
    assert [part.key[1] for part in parts.parts if part.role == "feed-forward"] == [
        *range(layers)
    ] and "head" in {part.role for part in parts.parts}
    assert {part.name for part in parts.parts if part.role == "embedding"} == embedded


def run_and_read(model, batch, names):
    # The input and the output (T, C) of modules in one pass.
    read: dict[str, Any] = {}

    def hooks():
        for name in names:

            def keep(module, inputs, output, name=name):
                read[name] = inputs[0][0].detach(), output[0].detach()

            yield model.get_submodule(name).register_forward_hook(keep)

    with hooked_while(hooks()):
        model(**batch)
    return read


def through(norm, part, into):
    # A part of a layer norm's input in its output, with the scale of the whole input.
    return (part - part.mean()) / (into.var(unbiased=False) + norm.eps).sqrt() * norm.weight


def parts_of(asked, *answers) -> dict[tuple, float]:
    # The parts of a logit by role, layer, head and name.
    parts = attribute_logit(asked, *(answers or (asked.id,))).parts
    return {(part.role, part.key, part.head, part.name): part.value for part in parts}


def test_heads_and_embeddings_are_what_plain_algebra_gives():
    asked = baseline_of("gpt2")
    model, position = plain("gpt2").transformer, asked.answer.position
    read = run_and_read(model, asked.batch, ("h.1.attn.c_proj", "h.0.mlp", "ln_f"))
    unembedding = plain("gpt2").lm_head.weight[asked.id]
    heads = read["h.1.attn.c_proj"][0][position].split(24 // HEADS)
    matrices = model.h[1].attn.c_proj.weight.split(24 // HEADS)
    token = int(asked.batch["input_ids"][0, position])
    vectors = {
        ("head", ("causal", 1), head, ""): heads[head] @ matrices[head] for head in range(HEADS)
    } | {
        ("feed-forward", ("causal", 0), None, ""): read["h.0.mlp"][1][position],
        ("embedding", None, None, "token"): model.wte.weight[token],
        ("embedding", None, None, "position"): model.wpe.weight[position],
    }
    parts = parts_of(asked)
    for part, vector in vectors.items():
        value = through(model.ln_f, vector, read["ln_f"][0][position]) @ unembedding
        assert parts[part] == pytest.approx(float(value.detach()), abs=1e-5), part
    bias = float((model.ln_f.bias @ unembedding).detach())
    assert parts["norm", None, None, ""] == pytest.approx(bias, abs=1e-5)


def test_in_post_norm_model_part_passes_every_later_norm():
    asked = ask(load_lab_model("numbers"), Question(ModelInputs("nine hundred"), 1))
    model, place = asked.pretrained.model, "model.decoder.layers.1"
    layer, later = model.model.decoder.layers[1], ("encoder_attn_layer_norm", "final_layer_norm")
    with torch.no_grad():
        read = run_and_read(model, asked.batch, [f"{place}.{name}" for name in later])
        part = layer.encoder_attn.out_proj.bias
        for name in later:
            part = through(layer.get_submodule(name), part, read[f"{place}.{name}"][0][1])
        value = float(part @ model.lm_head.weight[asked.id])
    parts, constant = parts_of(asked), float(model.final_logits_bias[0, asked.id])
    assert parts["bias", ("cross", 1), None, ""] == pytest.approx(value, abs=1e-5)
    assert parts["unembedding", None, None, ""] == pytest.approx(constant, abs=1e-6)


def test_a_difference_is_the_difference_of_two_attributions():
    asked = baseline_of("bart")
    first, second, both = (parts_of(asked, *ids) for ids in ((asked.id,), (9,), (asked.id, 9)))
    for part in set(both) - {("unembedding", None, None, "")}:
        assert both[part] == pytest.approx(first[part] - second[part], abs=1e-5)


def test_the_gate_of_the_last_activation_is_held():
    asked, model = baseline_of("bert"), plain("bert")
    last, head, position = (
        "bert.encoder.layer.1.output",
        "cls.predictions.transform",
        asked.answer.position,
    )
    names = [f"{last}.dense", f"{last}.LayerNorm", f"{head}.dense", f"{head}.LayerNorm"]
    read = run_and_read(model, asked.batch, names)
    dense, norm, matrix, last_norm = (
        model.get_submodule(name) for name in names[2:] + names[2:0:-1]
    )
    written = read[names[0]][1][position]
    part = through(last_norm, written, read[names[1]][0][position]) @ dense.weight.T
    gates = torch.special.ndtr(read[names[2]][1][position])  # gelu(z) = z Φ(z)
    unembedding, parts = model.cls.predictions.decoder.weight[asked.id], parts_of(asked)
    for key, vector in (
        (("feed-forward", ("self", 1), None, ""), part),
        (("transform", None, None, ""), dense.bias),
    ):
        value = through(norm, vector * gates, read[names[3]][0][position]) @ unembedding
        assert parts[key] == pytest.approx(float(value.detach()), abs=1e-5)


# Activation patching: equal to replacing outputs by hand with plain hooks, on scales that the two runs set.


# By family the modules of a layer's W_O, of its feed-forward network, and the layer itself.
MODULES = {
    "gpt2": ("transformer.h.{}.attn.c_proj", "transformer.h.{}.mlp", "transformer.h.{}"),
    "llama": ("model.layers.{}.self_attn.o_proj", "model.layers.{}.mlp", "model.layers.{}"),
    "bert_classifier": (
        "bert.encoder.layer.{}.attention.output.dense",
        "bert.encoder.layer.{}.output.dense",
        "bert.encoder.layer.{}",
    ),
}


def pair(family: str):
    return pair_of(tiny(family), ModelInputs(CLEAN), ModelInputs(CORRUPTED), output=0, contrast=2)


def patched_by_hand(family: str, module: str, part: Any, before: bool = False) -> float:
    # The difference of logits of the corrupted text with a part of one module's input or output of the clean one.
    model, kept = plain(family), dict[str, torch.Tensor]()

    def hook(module, inputs, output=None):
        whole = inputs if before else output
        states = (whole[0] if isinstance(whole, tuple) else whole).clone()
        if not kept:
            kept["clean"] = states
            return None
        states[part] = kept["clean"][part]
        return (states, *whole[1:]) if isinstance(whole, tuple) else states

    place = model.get_submodule(module)
    register = place.register_forward_pre_hook if before else place.register_forward_hook
    with hooked_while(iter([register(hook)])), torch.no_grad():
        for text in (CLEAN, CORRUPTED):
            logits = model(**encode(tiny(family), ModelInputs(text))[0]).logits
    logits = logits[0] if logits.ndim == 2 else logits[0, -1]
    return float(logits[0] - logits[2])


@each("family", MODULES)
def test_every_part_is_what_plain_hooks_give(family):
    texts, effects = pair(family), patch(pair(family))
    assert texts.recovered(texts.clean.value) == 1 and texts.recovered(texts.corrupted.value) == 0
    for (_, layer), effect in effects.items():
        output, inner, whole = (module.format(layer) for module in MODULES[family])
        size = plain(family).get_submodule(output).weight.shape[-1] // len(effect.heads)
        expected: dict[str, Any] = {
            "attention": (effect.attention, output, ..., True),
            "feed-forward": (effect.feed_forward, inner, ..., False),
        }
        for head, value in enumerate(effect.heads):
            part = ..., slice(head * size, (head + 1) * size)
            expected[f"head {head}"] = value, output, part, True
        for token, value in enumerate(effect.residual):
            expected[f"token {token}"] = value, whole, (slice(None), token), False
        assert len(expected) == 2 + len(effect.heads) + len(texts.clean.source)
        for name, (value, *how) in expected.items():
            assert value == pytest.approx(
                texts.recovered(patched_by_hand(family, *how)), abs=2e-4
            ), name


def test_all_states_after_the_last_layer_are_the_other_run():
    texts = pair("gpt2")
    clean, corrupted = (patch(texts, way)["causal", 1].residual for way in ("denoise", "noise"))
    assert clean == pytest.approx([0] * (len(clean) - 1) + [1], abs=1e-4), "the last is read alone"
    assert corrupted[-1] == pytest.approx(0, abs=1e-4) and not hooked(texts.clean.pretrained.model)
    _, recorder = forward(texts.clean.pretrained, texts.clean.batch, with_qkv=True)
    blocks = blocks_of(texts.clean.pretrained.model, recorder.calls)
    assert [name for name, _ in blocks.values()] == ["transformer.h.0", "transformer.h.1"]


def test_estimates_are_effects_where_change_is_small():
    # Texts that are nearly the same to the model: its embeddings of the two words are moved together.
    texts = pair("gpt2")
    table = texts.clean.pretrained.model.transformer.wte.weight
    first, second = (one.batch["input_ids"][0] for one in (texts.clean, texts.corrupted))
    before, moved = table.detach().clone(), first != second
    with torch.no_grad():
        table[second[moved]] = table[first[moved]].lerp(table[second[moved]], 1e-2)
        try:
            near = pair("gpt2")
            for way in get_args(Direction)[::-1]:
                effects = patch(near, way)
                with torch.enable_grad():
                    estimates = estimate_heads(patch_source(near, way))
                for key, exact in effects.items():
                    np.testing.assert_allclose(estimates[key], exact.heads, rtol=0.05, atol=0.02)
                assert agreement(effects, estimates) > 0.99
            assert agreement(effects, {key: np.ones(HEADS) for key in effects}) is None
        finally:
            table.copy_(before)


@each(
    ("numbers", "expected"), [(1, [1] * 10), (2 * 5 * 5 - 1, [1] * 10), (3 * 5 * 5, [3, 3, 3, 1])]
)
def test_as_many_parts_are_patched_at_once_as_fit(numbers, expected, monkeypatch):
    source, spy = patch_source(pair("gpt2")), Mock(wraps=forward)
    monkeypatch.setattr("core.interpret.patching.forward", spy)
    monkeypatch.setattr("core.interpret.patching.NUMBERS", numbers)
    assert (
        len(source.effect(("causal", 0)).residual) == 5
        and [len(call.args[1]["input_ids"]) for call in spy.call_args_list] == expected
    )


def test_two_texts_of_a_translator_are_compared():
    # Siebenundvierzig and siebenundfünfzig
    texts = ModelInputs("forty-seven"), ModelInputs("fifty-seven")
    first = pair_of(load_lab_model("numbers"), *texts).clean
    assert (first.word, first.other, first.question.position) == ("vier", "fünf", 2)


@each("family", ["t5", "albert"])
def test_cross_attention_has_no_states(family):
    made = tiny(family)
    target = "nine boats" if made.model.config.is_encoder_decoder else None
    mask = "[MASK]" if made.head == "masked" else "tired"
    clean, corrupted = (
        ModelInputs(text.replace("tired", mask), target=target) for text in (CLEAN, CORRUPTED)
    )
    for (kind, _), one in patch(pair_of(made, clean, corrupted, output=5, contrast=9)).items():
        # The layers of ALBERT are one module.
        assert (len(one.residual) > 0) == (family != "albert" and kind != "cross")


def test_one_head_of_the_last_layer_carries_a_name():
    # It attends to the name that acts, and lowers it beside the other one; the heads before it raise both.
    model, effects, weights, writes = load_lab_model("names"), [], [], []
    for example in make_task(TaskConfig.of("names", sentences="names")).held_out(12):
        *words, answer = example.source[1:]
        acts = max(index for index, word in enumerate(words) if word in NAMES)
        other = [*words[:acts], answer, *words[acts + 1 :]]  # the other name acts
        clean, corrupted = (ModelInputs(" ".join(line)) for line in (words, other))
        texts = pair_of(model, clean, corrupted)
        assert texts.clean.word == answer
        effects.append([patch(texts, way)["causal", 1].heads for way in ("denoise", "noise")])
        reading = read(model, clean)
        acts = max(index for index, token in enumerate(reading.source.tokens) if token in NAMES)
        weights.append(reading.trace.maps[1].weights[0, -1, acts])
        writes.append(
            [
                parts_of(one, one.id, one.contrast)["head", ("causal", 1), 0, ""]
                for one in (texts.clean, texts.corrupted)
            ]
        )
    brought_back, taken_away = np.mean(effects, 0)
    assert brought_back[0] > 0.9 and abs(brought_back[1]) < 0.1
    assert taken_away[0] < 0.1 and taken_away[1] > 0.9 and np.mean(weights) > 0.8
    assert np.mean(writes, 0)[0] > 1 and np.mean(writes, 0)[1] < -1
    heads, tables = read_heads(model)[0], read_vocabularies(model)
    ids = model.tokenizer.convert_tokens_to_ids(list(NAMES))
    for head in (0, 1):
        assert np.mean([float(tables.written(heads, head, one)[one]) for one in ids]) > 5


@each(
    ("clean", "corrupted", "subject"),
    [
        ("the dogs near the tree", "the dog near the tree", "dogs"),
        ("the dog near the trees", "the dogs near the trees", "dog"),
        (
            "the tall teachers behind the small red car",
            "the tall teacher behind the small red car",
            "teachers",
        ),
    ],
)
def test_one_head_of_first_layer_carries_number_of_subject(clean, corrupted, subject):
    texts = pair_of(load_lab_model("names"), ModelInputs(clean), ModelInputs(corrupted))
    assert {texts.clean.word, texts.clean.other} == {"is", "are"}
    (key, head, most), (_, _, next_most), *_ = ranked(patch(texts), "denoise")
    assert (key, head) == (("causal", 0), 1) and most > 0.8 and next_most < 0.2
    reading = read(load_lab_model("names"), ModelInputs(clean))
    assert reading.trace.maps[0].weights[1, -1, reading.source.tokens.index(subject)] > 0.9


# Circuits of heads by their weights, on the matrices that each family names itself.


CLOSE: dict[str, Any] = dict(rtol=1e-4, atol=1e-5)


def by_head(matrix, heads):
    # (H, C, D) of a matrix (H·D, C), whose rows are the outputs.
    return matrix.T.unflatten(1, (heads, -1)).permute(1, 0, 2)


def folded(matrix, gain, centers):
    size = len(gain)
    project = torch.eye(size) - (torch.full((size, size), 1 / size) if centers else 0)
    return project @ torch.diag(gain) @ matrix


# The last layer, its W_Q, W_K, W_V and W_O, and the norm before it, which centers or does not, by the family's own names.
NAMED = {
    "llama": ("model.layers.1.self_attn", "q_proj k_proj v_proj o_proj", "model.layers.1.input_layernorm", False),
    "gpt2": ("transformer.h.1.attn", "c_attn c_attn c_attn c_proj", "transformer.h.1.ln_1", True),
    "bert": ("bert.encoder.layer.1.attention", "self.query self.key self.value output.dense",
             "bert.encoder.layer.0.output.LayerNorm", True),
    "t5": ("decoder.block.1.layer.0", "SelfAttention.q SelfAttention.k SelfAttention.v SelfAttention.o",
           "decoder.block.1.layer.0.layer_norm", False),
}  # fmt: skip


def named(family, heads):
    # W_Q, W_K, W_V (H, C, D) and W_O (H, D, C), the norm folded in.
    place, names, norm, centers = NAMED[family]
    model = tiny(family).model
    *maps, out = (model.get_submodule(f"{place}.{name}").weight.detach() for name in names.split())
    if family == "gpt2":  # whose maps are one matrix, the other way round
        maps, out = [part.T for part in maps[0].chunk(3, 1)], out.T
    gain = model.get_submodule(norm).weight.detach()
    parts = [by_head(one, heads * len(one) // len(maps[0])) for one in maps]
    parts = [folded(one.repeat_interleave(heads // len(one), 0), gain, centers) for one in parts]
    return [*parts, out.T.unflatten(0, (heads, -1))]


@each(("family", "index"), [("llama", 1), ("gpt2", 1), ("bert", 1), ("t5", 4)])
def test_the_matrices_are_those_that_the_family_names(family, index):
    heads = read_heads(tiny(family))[index]
    assert (heads.kind, heads.layer) == ("self" if family == "bert" else "causal", 1)
    for mine, theirs in zip(
        (heads.w_q, heads.w_k, heads.w_v, heads.w_o), named(family, len(heads.w_o)), strict=True
    ):
        torch.testing.assert_close(mine, theirs, **CLOSE)


def test_a_norm_after_w_o_is_folded_in_too():
    layer = tiny("gemma2").model.model.layers[0]
    own = layer.self_attn.o_proj.weight.T.unflatten(0, (6, -1)) * (
        1 + layer.post_attention_layernorm.weight
    )
    heads = read_heads(tiny("gemma2"))[0]
    torch.testing.assert_close(heads.w_o, own.detach(), **CLOSE)
    assert heads.scale == pytest.approx(7**-0.5)


@each("norm", [nn.LayerNorm(7), nn.LayerNorm(6), nn.RMSNorm(7)])
def test_a_norms_gain_is_read_off_what_it_does(norm):
    nn.init.normal_(norm.weight)
    gain, centers = norm_gain(norm, norm.weight.shape)
    torch.testing.assert_close(gain, norm.weight.detach(), **CLOSE)
    assert centers == isinstance(norm, nn.LayerNorm)


def test_full_products_give_the_same_singular_values():
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
def test_a_head_that_copies_scores_one(sign):
    units = torch.linalg.qr(torch.randn(9, 9))[0]
    w_v, w_o = units[None, :, :4], sign * units[:, :4].T[None]
    tables = Vocabularies({"self": units}, {"self": units.T}, frozenset())
    heads = HeadMatrices("self", 0, w_v, w_v, w_v, w_o, 1, 0)
    score, queries = copying_scores(heads, tables), units @ w_v[0]
    torch.testing.assert_close(tables.attended(heads, 0, 2), queries @ queries[2] / 2, **CLOSE)
    assert tables.attended(replace(heads, w_k=None), 0, 2) is None
    ranks = effective_rank(torch.tensor([[2.0, 2, 2, 2], [5, 0, 0, 0]]))
    assert [*score.tolist(), *ranks.tolist()] == pytest.approx([sign, 4, 1])


def random_layers(heads, size, rank, layers=2):
    # Attentions of random matrices, none of which has to do with another.
    draw = partial(torch.randn, heads, size, rank, generator=torch.Generator().manual_seed(0))
    return [
        HeadMatrices("self", layer, draw(), draw(), draw(), draw().mT, heads, layer)
        for layer in range(layers)
    ]


def test_a_planted_pair_composes_above_chance():
    # The closed form is what random matrices compose by on average.
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
        assert (scores > highest).sum() <= 2 and abs(float(scores.mean())) < 0.01 < highest < 0.15
    reads = layers[0].w_o.mT
    planted = HeadMatrices("self", 4, reads, reads, layers[1].w_v, layers[1].w_o, 7, 4)
    result = Composer([*layers, planted]).into(4)
    best, highest = result.scores["K", 0], result.highest["K"]
    assert torch.equal(best.argmax(1), torch.arange(7)) and (best.diagonal() > highest).all()
    assert (result.scores["K", 2] > highest).sum() <= 1


def test_random_directions_are_the_same_each_time(monkeypatch):
    layers = random_layers(heads=3, size=11, rank=2)
    first, again = (Composer(layers).into(1) for _ in range(2))
    assert first.highest == again.highest and first.pairs["K"] == 112 * 3 * 3
    written, turned = Composer(layers)._writer(0)
    sizes = torch.linalg.svdvals(layers[0].w_v @ layers[0].w_o)[:, :2]
    torch.testing.assert_close(
        torch.linalg.svdvals(turned)[-3:], sizes / sizes.norm(dim=-1, keepdim=True), **CLOSE
    )
    torch.testing.assert_close(written.norm(dim=(1, 2)), torch.ones(3), **CLOSE)
    # As many copies as there is room for
    for numbers, copies in ((1, 1), (2 * written.numel(), 2), (2 * written.numel() - 1, 1)):
        monkeypatch.setattr("core.interpret.circuits.MAX_NUMBERS", numbers)
        assert Composer(layers).into(1).pairs["K"] == copies * 9


def compositions(heads):
    """By kind and by the indices of the earlier and the later attention."""
    composer = Composer(heads)
    return {
        (kind, earlier, later): score
        for later in range(len(heads))
        for (kind, earlier), score in composer.into(later).scores.items()
    }


def test_cross_attention_composes_with_both_sides():
    heads = read_heads(tiny("t5"))
    kinds = [each_one.kind for each_one in heads]
    assert kinds == ["self", "self", "causal", "cross", "causal", "cross"]
    pairs = {(kind, kinds[a], kinds[b]) for kind, a, b in compositions(heads)}
    assert {("K", "self", "cross"), ("Q", "causal", "cross"), ("V", "cross", "causal")} <= pairs
    assert not {("Q", "self", "cross"), ("K", "causal", "cross"), ("K", "self", "causal")} & pairs
    assert read_vocabularies(tiny("t5")).by_embedding == {"self"}


@each("family", ["qwen3", "gemma3"])
def test_normalized_queries_have_a_circuit(family):
    pretrained = tiny(family)
    heads = read_heads(pretrained)
    assert all(one.normalized and one.w_q is not None for one in heads)
    assert {kind for kind, *_ in compositions(heads)} == {"Q", "K", "V"}
    assert qk_factors(heads[0]) is not None and not hooked(pretrained.model)
    # W_Q between the gains of the norm before it and of that after it; Gemma stores them less 1
    layer, shift = pretrained.model.model.layers[0], float(family == "gemma3")
    attention = layer.self_attn
    for matrix, linear, norm in (
        (heads[0].w_q, attention.q_proj, attention.q_norm),
        (heads[0].w_k, attention.k_proj, attention.k_norm),
    ):
        own = linear.weight.T.unflatten(1, (-1, len(norm.weight))) * (shift + norm.weight)
        own = (shift + layer.input_layernorm.weight)[:, None, None] * own
        shared = own.repeat_interleave(len(matrix) // own.shape[1], 1).transpose(0, 1)
        torch.testing.assert_close(matrix, shared.detach(), **CLOSE)


def test_a_key_that_is_normalized_in_part_has_no_qk_circuit():
    one, *_ = read_heads(tiny("deepseek_v3"))
    assert one.normalized and one.w_q is None and qk_factors(one) is None


@each(("name", "least"), [("only-attention", 0.7), ("induction", 0.6)])
def test_the_induction_circuit_is_found_by_patching(name, least):
    # Two phrases swap what follows: which word stood before another is all that differs between the texts.
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
    assert (
        back.argmax() == previous
        and back[previous] > least
        and second[induction, -1, reading.source.tokens.index("river")] > 0.8
    )
