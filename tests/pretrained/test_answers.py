"""Answers as a person reads them: the likeliest words, a word masked in its place, and what is said when none is."""

import pytest
import torch

from core.interpret.evidence import Question, ask
from core.pretrained import ModelInputs, PretrainedError, encode, load_lab_model, load_minilm
from core.pretrained.answers import (
    MODEL_TASKS,
    answer,
    answer_of,
    display_names,
    mask_word,
    mean_state,
    most_similar,
    similarities,
    task_of,
    top_candidates,
)
from core.pretrained.generate import prepare_generation
from tests.cases import each
from tests.pretrained.test_architectures import built
from tests.tiny_models import SENTENCE, asking, given, tiny


@each("family", ["bert", "gpt2", "bert_classifier", "t5"])
def test_the_likeliest_words_of_an_answer(family):
    baseline = ask(tiny(family), Question(asking(family)))
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
        mean_state(states, torch.tensor([[1, 1, 0]])), torch.tensor([3.0, 1.0]) / 10**0.5
    )
    model = tiny("bert_encoder")
    result = answer(model, given("bert_encoder"))
    assert top_candidates(model, result) == () and float(result.vector.norm()) == pytest.approx(1.0)


def test_an_answer_that_is_none_of_these_is_said():
    class Output:
        logits = torch.zeros(1, 3, 2)

    with pytest.raises(PretrainedError, match="not a token, a class or an embedding"):
        answer_of(tiny("bert_encoder"), {}, Output())


# Which job each family of models does, and how alike two embeddings are.


@each(
    ("family", "key"),
    [
        ("bert", "fill"),
        ("roberta", "fill"),
        ("bert_classifier", "classify"),
        ("bert_encoder", "embed"),
        ("gpt2", "next"),
        ("llama", "next"),
        ("bert_decoder", "next"),
        ("t5", "translate"),
        ("marian", "translate"),
        ("whisper", "translate"),
        ("vit", "picture"),
    ],
)
def test_the_job_is_that_of_the_last_layer(family, key):
    assert task_of(tiny(family)).key == key


@each(
    ("model_type", "head"),
    [
        ("xlnet", "none"),
        ("bert", "none"),
        ("xlm", "masked"),
        ("cpmant", "none"),
        ("gpt2", "next"),
        ("qwen2_vl", "next"),
        ("qwen2_audio", "next"),
        ("t5gemma", "seq2seq"),
    ],
)
def test_what_sees_the_tokens_that_follow_does_not_predict_them(model_type, head):
    model = built(model_type)
    assert model.head == head
    if head == "none":
        with pytest.raises(PretrainedError, match="sees the tokens that follow"):
            prepare_generation(model, ModelInputs("A dog."))


def test_every_job_names_models_that_do_it():
    assert len({job.key for job in MODEL_TASKS}) == len(MODEL_TASKS)
    for job in MODEL_TASKS:
        assert job.hub.count("/") == 1
        if job.lab_model:
            model = load_minilm() if job.key == "embed" else load_lab_model(job.lab_model)
            assert task_of(model) == job


def test_likeness_is_the_cosine_of_the_mean_states():
    model = tiny("bert_encoder")
    texts = ["The animal was tired.", "Nine green boats wait.", "The animal was tired."]
    table = similarities(model, [ModelInputs(text) for text in texts])
    states = []
    for text in texts:
        batch = model.tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states.append(model.model(**batch).last_hidden_state[0].mean(0))
    expected = torch.nn.functional.cosine_similarity(states[0], states[1], dim=0)
    assert table[0, 1] == pytest.approx(float(expected), abs=1e-5)
    assert torch.allclose(table, table.T) and torch.allclose(table.diagonal(), torch.ones(3))
    assert table[0, 2] == pytest.approx(1, abs=1e-5)
    assert most_similar(table) == (0, 2)
    assert most_similar(table, 1)[0] == 1
    assert answer(model, ModelInputs(texts[0])).vector.norm() == pytest.approx(1, abs=1e-5)


def test_minilm_finds_the_sentence_that_means_the_same():
    texts = [
        "The animal didn't cross the street because it was too tired.",
        "The bank raised its interest rates.",
        "The dog was too exhausted to walk over the road.",
    ]
    table = similarities(load_minilm(), [ModelInputs(text) for text in texts])
    assert most_similar(table, 0) == (0, 2)
    assert table[0, 2] > 0.6 > 0.3 > table[0, 1]


def test_a_model_without_embeddings_and_a_sentence_alone_are_told():
    with pytest.raises(PretrainedError, match="gives no embedding"):
        similarities(tiny("gpt2"), [ModelInputs("The animal"), ModelInputs("was tired")])
    with pytest.raises(ValueError, match="two or more"):
        most_similar(torch.ones(1, 1))


def test_a_model_that_hears_writes_down_what_it_hears():
    heard = task_of(tiny("whisper"))
    assert (heard.key, heard.name) == ("translate", "Transcribe speech")
