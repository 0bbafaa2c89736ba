"""Which job each family of models does, and how alike two embeddings are."""

import pytest
import torch

from core.pretrained import ModelInputs, PretrainedError, answer, load_lab_model, load_minilm
from core.pretrained.answers import MODEL_TASKS, most_similar, similarities, task_of
from core.pretrained.generate import prepare_generation
from tests.cases import each
from tests.pretrained.test_architectures import built
from tests.tiny_models import tiny


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
