"""Answers as a person reads them: the likeliest words, a word masked in its place, and what is said when none is."""

import pytest
import torch

from core.interpret.evidence import Question, ask
from core.pretrained import ModelInputs, PretrainedError, encode
from core.pretrained.answers import (
    answer,
    answer_of,
    display_names,
    embedding,
    mask_word,
    top_candidates,
)
from tests.cases import each
from tests.tiny_models import SENTENCE, given, tiny


@each("family", ["bert", "gpt2", "bert_classifier", "t5"])
def test_the_likeliest_words_of_an_answer(family):
    model = tiny(family)
    text = (
        SENTENCE.replace("street", model.tokenizer.mask_token)
        if model.head == "masked"
        else SENTENCE
    )
    baseline = ask(model, Question(given(family, text)))
    best = top_candidates(baseline.pretrained, baseline.answer, 3)
    probabilities = answer(baseline.pretrained, baseline.question.inputs).probabilities
    assert [one.id for one in best] == probabilities.topk(3).indices.tolist()
    assert best[0].probability == pytest.approx(baseline.value) and best[0].word == baseline.word
    assert all(one.word.strip() for one in best)


def test_a_model_of_masks_asks_for_one():
    batch, *_ = encode(tiny("bert"), ModelInputs(SENTENCE))
    with pytest.raises(PretrainedError, match=r"write \[MASK\]"):
        ask(tiny("bert"), Question(ModelInputs(SENTENCE)))
    assert "input_ids" in batch


@each("family", ["bert", "roberta"])
def test_a_word_is_masked_where_it_stands(family):
    model = tiny(family)
    text = "The animal, tired, saw the street."
    words = ["The", "animal", ",", "tired", ",", "saw", "the", "street", "."]
    masked = mask_word(model, text, words.index("tired"))
    assert masked == text.replace("tired", model.tokenizer.mask_token)
    place = ask(model, Question(ModelInputs(masked))).answer.position
    assert encode(model, ModelInputs(masked))[1].ids[place] == model.tokenizer.mask_token_id
    with pytest.raises(PretrainedError, match="no word 99"):
        mask_word(model, text, 99)
    with pytest.raises(PretrainedError, match="cannot fill masks"):
        mask_word(tiny("gpt2"), text, 1)


def test_classes_have_their_names_and_tokens_are_words():
    model = tiny("bert_classifier")
    result = answer(model, given("bert_classifier"))
    assert display_names(model, result, [2, 0]) == ("LABEL_2", "LABEL_0")
    model = tiny("gpt2")
    result = answer(model, given("gpt2"))
    ids = model.tokenizer("The animal was tired")["input_ids"]
    assert (
        "".join(word.removeprefix("##") for word in display_names(model, result, ids)).lower()
        == "theanimalwastired"
    )


def test_an_embedding_has_no_words_and_counts_real_tokens_alone():
    states = torch.tensor([[[3.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    torch.testing.assert_close(
        embedding(states, torch.tensor([[1, 1, 0]])), torch.tensor([3.0, 1.0]) / 10**0.5
    )
    model = tiny("bert_encoder")
    result = answer(model, given("bert_encoder"))
    assert top_candidates(model, result) == () and float(result.vector.norm()) == pytest.approx(1.0)


def test_an_answer_that_is_none_of_these_is_said():
    class Output:
        logits = torch.zeros(1, 3, 2)

    with pytest.raises(PretrainedError, match="not a token, a class or an embedding"):
        answer_of(tiny("bert_encoder"), {}, Output())
