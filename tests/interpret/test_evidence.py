"""Evidence against its definitions: heads off against W_O without their rows, slopes against differences, hiding."""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from core import ranks
from core.interpret.evidence import (
    Question,
    ablate_heads,
    answering_rows,
    ask,
    break_down_weight,
    default_quantity,
    find_layer,
    head_sets,
    hide_token,
    layer_attentions,
    make_heads_uniform,
    measure_contributions,
    output_matrix,
    single_heads,
    token_scores,
)
from core.pretrained import ModelInputs, PretrainedError, encode, forward, load_minilm, read
from core.pretrained.answers import Answer, answer_of, output_id, output_name
from core.pretrained.attention_recorder import _is_transposed
from tests.cases import each
from tests.tiny_models import READABLE, SENTENCE, asking, given, plain, tiny

OPENED = [name for name in READABLE if tiny(name).recordable]
OUTPUT, CONTRAST = 2, 1
SOME = ("bert", "bert_encoder", "gpt2", "llama", "t5", "vit", "bert_classifier")


def baseline_of(family: str, **asked):
    # A question that the family answers; an embedding is held against another sentence's.
    return ask(tiny(family), Question(asking(family), **{"against": "Nine boats wait."} | asked))


def scaled_copy(baseline, seen, heads: list[int], by: float, dtype):
    # A copy of the model in which the rows of W_O of those heads are multiplied, and its batch.
    copy = deepcopy(baseline.pretrained.model).to(dtype)
    names = {id(module): name for name, module in baseline.pretrained.model.named_modules()}
    layer = copy.get_submodule(names[id(seen.output)])
    rows = layer.weight if _is_transposed(layer) else layer.weight.T
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


@each("family", [name for name in OPENED if name not in ("diffllama", "albert")])
def test_a_head_off_is_w_o_without_its_rows(family):
    baseline, every = baseline_of(family), seen_of(family)
    changes = []
    for seen in (every[0], every[-1]):
        whole = list(range(seen.weights.shape[1]))
        for off, heads in (
            ((whole[-1],), whole[-1:]),
            ((0, whole[-1]), [0, whole[-1]]),
            ((None,), whole),
        ):
            effect = ablate_heads(baseline, frozenset((seen.kind, seen.layer, one) for one in off))
            assert effect.value == pytest.approx(scaled(baseline, seen, heads, 0.0), abs=1e-5)
            assert effect.change == pytest.approx(effect.value - baseline.value, abs=1e-7)
            changes.append(abs(effect.change))
    assert max(changes) > 1e-5, "nothing changed, so nothing was tested"


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
        ("bloom", False, False),
        ("deberta_v2", False, False),
    ],
)
def test_what_is_unknown_is_left_out(family, norms, gradients):
    measured = measure_contributions(baseline_of(family))
    assert (bool(measured.norms), bool(measured.gradients)) == (norms, gradients)
    if family == "diffllama":
        assert output_matrix(seen_of(family)[0]) is None
    if not norms and not gradients:
        with pytest.raises(PretrainedError, match="cannot be switched off"):
            ablate_heads(baseline_of(family), frozenset({("self", 0, 0)}))


def test_a_hidden_token_is_seen_by_no_head_and_counts_in_no_mean():
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
    assert effect.value == pytest.approx(float(expected), abs=1e-5) and effect.change < -1e-3


@each("family", ["gpt2", "llama", "bert_decoder"])
def test_what_comes_after_the_answer_changes_nothing_when_hidden(family):
    baseline = baseline_of(family, position=5)
    assert abs(hide_token(baseline, 9).change) < 1e-6
    assert max(abs(hide_token(baseline, token).change) for token in range(5)) > 1e-5


def test_a_hidden_patch_is_painted_even():
    baseline = baseline_of("vit")
    first = hide_token(baseline, 1)  # the upper left corner stands after the class token
    pixels = baseline.batch["pixel_values"].clone()
    pixels[..., :4, :4] = pixels.mean((-2, -1), keepdim=True)
    painted = baseline.target_value(baseline.rerun({"pixel_values": pixels}))
    assert first.value == pytest.approx(float(painted), abs=1e-6)
    assert abs(first.change) > 1e-5 and hide_token(baseline, 0).change == 0


def test_every_head_and_every_layer_is_asked_once_and_the_greatest_come_first():
    baseline = baseline_of("bert")
    every = head_sets(trace_of(baseline))
    assert len(every) == len(set(every)) == 2 * 3 + 2
    effects = {off: ablate_heads(baseline, off) for off in every}
    heads = {("self", layer, head) for layer in range(2) for head in range(3)}
    assert set(single_heads(effects)) == heads


@each(("family", "row"), [("gpt2", -1), ("bert_classifier", 0), ("vit", 0), ("t5", -1)])
def test_the_rows_that_answer(family, row):
    baseline = baseline_of(family)
    answers = answering_rows(baseline, trace_of(baseline).kinds[-1])
    assert answers[row] == answers.sum() == answers.max() == 1


@each("family", SOME)
def test_every_measure_says_something_of_every_token(family):
    baseline = baseline_of(family)
    trace = trace_of(baseline)
    scores = token_scores(baseline, trace, measure_contributions(baseline))
    assert list(scores) == ["weights", "written", "gradient", "rollout", "flow"]
    for score in scores.values():
        assert score.shape == (len(baseline.source),) and (score >= 0).all() and np.ptp(score) > 0
    if family == "gpt2":
        rows = [item.weights[:, baseline.answer.position] for item in trace.maps]
        np.testing.assert_allclose(scores["weights"], np.mean(rows, axis=(0, 1)), atol=1e-6)


# Of an embedding every row answers: the work grows as T to the 4th.
@each(("words", "there"), [(40, True), (100, False)])
def test_flow_is_left_out_where_a_page_would_wait_for_it(words, there):
    baseline = ask(load_minilm(), Question(ModelInputs("green " * words), against=SENTENCE))
    scores = token_scores(baseline, trace_of(baseline), measure_contributions(baseline))
    assert ("flow" in scores) == there


def test_minilm_answers_by_other_heads_than_those_that_look_hardest():
    # The page's first sight: sharp heads are not those that matter, and slopes foresee what does.
    question = Question(
        ModelInputs("The animal didn't cross the street because it was too tired."),
        against="The exhausted cat stayed on its side of the road.",
    )
    baseline = ask(load_minilm(), question)
    slopes: Any = measure_contributions(baseline).gradients
    trace = trace_of(baseline)
    effects = single_heads({off: ablate_heads(baseline, off) for off in head_sets(trace)[:72]})
    sizes, sharp, steep = np.array(
        [
            (
                abs(effect.change),
                trace.head(layer, head).max(-1).mean(),
                abs(slopes[kind, layer][head].sum()),
            )
            for (kind, layer, head), effect in effects.items()
        ]
    ).T
    assert ranks.spearman(sharp, sizes) < 0.1 < 0.5 < ranks.spearman(steep, sizes)
    assert baseline.value == pytest.approx(0.617, abs=0.005)


@each("family", ["bert", "llama", "bart"])
def test_a_head_that_looks_evenly_is_one_whose_queries_are_zero(family):
    # Without W_Q (and its bias) every score is the same, so the softmax is even over what may be seen.
    baseline, seen = baseline_of(family), seen_of(family)[-1]
    copy, changes, size = deepcopy(baseline.pretrained.model), [], seen.q.shape[-1]
    names = {module: name for name, module in baseline.pretrained.model.named_modules()}
    module = copy.get_submodule(names[seen.module])
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
            changes.append(abs(effect.change))
    every = even(range(seen.weights.shape[1])).value
    assert max(changes) > 1e-5 and even([None]).value == pytest.approx(every, abs=1e-7)


def test_a_learned_sink_keeps_its_share_when_a_head_looks_evenly():
    baseline, seen = baseline_of("gpt_oss"), seen_of("gpt_oss")[0]
    even = frozenset({("causal", 0, 3)})
    with torch.no_grad():
        _, recorder = forward(baseline.pretrained, baseline.batch, with_qkv=True, uniform=even)
    row, keys = seen.weights[0, 3, 2], seen.v[0, 1, :3]
    assert float(row.sum()) < 0.99
    expected = keys.mean(0) * row.sum()
    torch.testing.assert_close(recorder.calls[0].out[0, 2, 3], expected, atol=1e-6, rtol=1e-4)


def test_what_is_asked_in_one_thread_is_not_felt_in_another_and_nothing_stays():
    # Sessions share a model: heads off, slopes and hidden tokens of one leave the other's answers as they were.
    baseline, model = baseline_of("llama"), tiny("llama").model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    plainly, off = baseline.rerun().probabilities, frozenset({("causal", 0, None)})
    assert not torch.equal(baseline.rerun(off=off).probabilities, plainly)

    def one(turn: int) -> bool:
        (measure_contributions if turn % 3 else lambda it: hide_token(it, 2))(baseline)
        answer = baseline.rerun(off=off) if turn % 2 else baseline.rerun()
        return torch.equal(answer.probabilities, plainly)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(24))) == [True, False] * 12
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert not any(weight.requires_grad or weight.grad is not None for weight in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


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
    place = frozenset({(seen.kind, seen.layer, 1)})
    copied = logits_of(baseline, *scaled_copy(baseline, seen, [1], 0.0, torch.float64))
    without, effect = float(by_hand(copied, quantity)), ablate_heads(baseline, place)
    assert effect.value == pytest.approx(without, abs=2e-5) and abs(effect.change) > 1e-6
    assert effect.change == pytest.approx(without - own, abs=3e-5)
    assert make_heads_uniform(baseline, place).value != effect.value != baseline.value
    assert abs(hide_token(baseline, 2).change) > 1e-6


def test_what_is_left_open_is_the_likeliest_its_runner_up_and_a_logit_only_where_it_is_sure():
    baseline = baseline_of("gpt2")
    first, second = baseline.answer.logits.topk(2).indices.tolist()
    asked = baseline.id, baseline.quantity, baseline.contrast, baseline.is_top
    assert asked == (first, "probability", None, True)
    assert baseline_of("gpt2", quantity="difference").contrast == second
    assert ask(tiny("gpt2"), Question(asking("gpt2"))).has_gradient
    other = baseline_of("gpt2", output=second, quantity="difference")
    assert other.contrast == first and not other.is_top and other.value < 0
    # e**2.9 is 18.2 times, e**3.0 20.1 times the other.
    tops = [default_quantity(Answer("class", torch.tensor([0.0, top]))) for top in (2.9, 3.0)]
    assert tops == ["probability", "logit"]


@each(
    ("family", "followed", "why"),
    [
        ("vit", {"output": 10}, "no class #10"),
        ("vit", {"output": -1}, "no class #-1"),
        ("vit", {"output": 2, "quantity": "difference", "contrast": 2}, "always 0"),
        ("bert_encoder", {"quantity": "logit"}, "only its cosine"),
        ("gpt2", {"position": 99}, "no position 99"),
        ("whisper", {}, "sound are not masked"),
    ],
)
def test_what_cannot_be_followed_is_refused(family, followed, why):
    with pytest.raises(PretrainedError, match=why):
        hide_token(baseline_of(family, **followed), 3)


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


@each("family", OPENED)
def test_each_step_leads_to_the_next_and_the_last_is_the_model_s_own(family):
    layers = layer_attentions(tiny(family), given(family))
    for item in read(tiny(family), given(family)).trace.maps:
        layer = find_layer(layers, item.kind, item.layer)
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
    layer, model = layer_attentions(tiny(family), given(family))[0], plain(family)
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
    elif family == "modernbert":
        q, k, _ = model.model.layers[0].attn.Wqkv(x)[0].unflatten(-1, (3, -1, 8)).unbind(1)
    else:
        block = model.model.layers[0]
        attention, x = block.self_attn, block.input_layernorm(x)[0]
        q, k = (one(x).unflatten(-1, (-1, 8)) for one in (attention.q_proj, attention.k_proj))
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm(q), attention.k_norm(k)
    return q.transpose(0, 1), k.transpose(0, 1)


@each("family", ["bert", "gpt2", "t5", "marian", "deepseek_v3"])
def test_what_is_not_rotated_or_only_in_part_shows_none(family):
    layers = layer_attentions(tiny(family), given(family))
    assert all(layer.unrotated_q is None for layer in layers)
    if family == "t5":  # whose bias belongs to the distance
        cells = (5, 4), (9, 8), (9, 2)
        near, far, other = (break_down_weight(layers[0], 1, *cell).bias for cell in cells)
        assert near == far != other


def test_shared_heads_are_named():
    layer = layer_attentions(tiny("llama"), given("llama"))[0]
    assert layer.kv_group(1) == (0, [0, 1, 2]) and layer.kv_group(5) == (1, [3, 4, 5])
    first, second, third = (break_down_weight(layer, head, 9, 4) for head in (1, 2, 3))
    assert np.array_equal(first.k, second.k) and not np.array_equal(first.q, second.q)
    assert not np.array_equal(first.k, third.k)


@each("cell", [(3, 0, 0), (0, 20, 0), (0, 0, 20), (-1, 0, 0)])
def test_no_such_cell_is_said(cell):
    layer = layer_attentions(tiny("bert"), given("bert"))[0]
    with pytest.raises(ValueError, match="3 heads, 20 queries and 20 keys"):
        break_down_weight(layer, *cell)
    with pytest.raises(PretrainedError, match="not opened"):
        layer_attentions(tiny("bloom"), given("bloom"))
