"""Any class or token of an answer, as a probability, a logit or a difference of two: against the model's own logits."""

from copy import deepcopy

import pytest
import torch

from core.interpret.evidence import (
    Question,
    ablate_heads,
    ask,
    default_quantity,
    hide_token,
    make_heads_uniform,
    measure_contributions,
)
from core.pretrained import PretrainedError, forward
from core.pretrained.answers import Answer, output_id, output_name
from core.pretrained.attention_recorder import _is_transposed
from tests.cases import each
from tests.tiny_models import SENTENCE, given, tiny

KINDS = (
    "bert",
    "gpt2",
    "bart",
    "bert_classifier",
    "vit",
)  # a masked token, a next one, of a decoder, two of classes
OUTPUT, CONTRAST = 2, 1


def baseline_of(family: str, **followed):
    model = tiny(family)
    text = (
        SENTENCE.replace("street", model.tokenizer.mask_token)
        if model.head == "masked"
        else SENTENCE
    )
    return ask(model, Question(given(family, text), **followed))


def by_hand(logits: torch.Tensor, quantity: str) -> torch.Tensor:
    if quantity == "probability":
        return logits[OUTPUT].exp() / logits.exp().sum()
    return logits[OUTPUT] - logits[CONTRAST] if quantity == "difference" else logits[OUTPUT]


def logits_of(baseline, model, batch) -> torch.Tensor:
    """The row of the model's own output that answers."""
    logits = model(**batch).logits[0]
    return logits if baseline.answer.kind == "class" else logits[baseline.answer.position]


def without_columns(baseline, seen, head: int, by: float = 0.0):
    """A copy of the model in which the columns of W_O that a head goes through are multiplied."""
    copy = deepcopy(baseline.pretrained.model).double()
    names = {id(module): name for name, module in baseline.pretrained.model.named_modules()}
    layer = copy.get_submodule(names[id(seen.output)])
    with torch.no_grad():
        columns = layer.weight if _is_transposed(layer) else layer.weight.T
        columns.unflatten(0, (seen.weights.shape[1], -1))[head] *= by
    return copy, {
        name: one.double() if one.is_floating_point() else one
        for name, one in baseline.batch.items()
    }


@each("family", KINDS)
@each("quantity", ["probability", "logit", "difference"])
def test_each_quantity_of_any_output_is_the_models_own(family, quantity):
    contrast = CONTRAST if quantity == "difference" else None
    baseline = baseline_of(family, output=OUTPUT, quantity=quantity, contrast=contrast)
    with torch.no_grad():
        own = by_hand(logits_of(baseline, baseline.pretrained.model, baseline.batch), quantity)
    assert baseline.value == pytest.approx(float(own), abs=1e-5)
    seen = forward(baseline.pretrained, baseline.batch, with_qkv=True)[1].calls[-1]
    place = frozenset({(seen.kind, seen.layer, 1)})
    with torch.no_grad():
        without = by_hand(logits_of(baseline, *without_columns(baseline, seen, 1)), quantity)
    effect = ablate_heads(baseline, place)
    assert effect.value == pytest.approx(float(without), abs=2e-5)
    assert (
        effect.change == pytest.approx(float(without - own), abs=3e-5) and abs(effect.change) > 1e-6
    )
    assert make_heads_uniform(baseline, place).value != effect.value != baseline.value
    assert abs(hide_token(baseline, 2).change) > 1e-6


@each("family", ["bert", "gpt2", "bart", "bert_classifier"])
@each("quantity", ["logit", "difference"])
def test_slopes_follow_the_chosen_quantity(family, quantity):
    """Σ α·∂y/∂α is how y moves as the head is turned up, y by hand in float64."""
    contrast = CONTRAST if quantity == "difference" else None
    baseline = baseline_of(family, output=OUTPUT, quantity=quantity, contrast=contrast)
    seen = forward(baseline.pretrained, baseline.batch, with_qkv=True)[1].calls[-1]
    slope, step = measure_contributions(baseline).gradients[seen.kind, seen.layer][1].sum(), 1e-3
    with torch.no_grad():
        up, down = (
            by_hand(
                logits_of(baseline, *without_columns(baseline, seen, 1, 1 + sign * step)), quantity
            )
            for sign in (1, -1)
        )
    assert slope == pytest.approx(float(up - down) / (2 * step), rel=5e-3, abs=1e-5)


def test_what_is_left_open_is_the_likeliest_its_runner_up_and_a_logit_only_where_it_is_sure():
    baseline = baseline_of("gpt2")
    first, second = baseline.answer.logits.topk(2).indices.tolist()
    assert (baseline.id, baseline.quantity, baseline.contrast, baseline.is_top) == (
        first,
        "probability",
        None,
        True,
    )
    assert baseline_of("gpt2", quantity="difference").contrast == second
    other = baseline_of("gpt2", output=second, quantity="difference")
    assert other.contrast == first and not other.is_top and other.value < 0
    for top, quantity in (
        (2.9, "probability"),
        (3.0, "logit"),
    ):  # e**2.9 is 18.2 times, e**3.0 20.1 times the other
        assert default_quantity(Answer("class", torch.tensor([0.0, top]))) == quantity


def test_what_cannot_be_followed_is_refused():
    size = len(baseline_of("vit").answer.logits)
    for followed, why in (
        ({"output": size}, f"no class #{size}"),
        ({"output": -1}, "no class #-1"),
        ({"output": 2, "quantity": "difference", "contrast": 2}, "always 0"),
    ):
        with pytest.raises(PretrainedError, match=why):
            baseline_of("vit", **followed)
    with pytest.raises(PretrainedError, match="only its cosine"):
        ask(tiny("bert_encoder"), Question(given("bert_encoder"), quantity="logit"))


@each("family", ["bert", "gpt2", "t5", "bart", "vit", "whisper"])
def test_every_output_is_found_by_its_name(family):
    baseline = baseline_of(family)
    every = range(len(baseline.answer.logits))
    assert [
        output_id(
            baseline.pretrained,
            baseline.answer,
            output_name(baseline.pretrained, baseline.answer, one),
        )
        for one in every
    ] == list(every)


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


def test_a_class_is_found_in_any_case_and_a_word_as_it_stands_in_a_text():
    vit, gpt2 = baseline_of("vit"), baseline_of("gpt2")
    assert output_id(vit.pretrained, vit.answer, " label_3 ") == 3
    street = output_id(gpt2.pretrained, gpt2.answer, "street")
    assert gpt2.pretrained.tokenizer.decode([street]) == " street"
