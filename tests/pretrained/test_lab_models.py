"""The lab's own models, as they are kept: small, made by a run that is told, readable, good at what they learned."""

import json
import re
from pathlib import Path

import pytest
import torch

from core.pretrained import Array, ModelInputs, answer, load_lab_model, read
from core.pretrained.load import LAB_MODELS
from core.tasks import TaskConfig, make_task
from core.training import RunConfig

NAMES = ("numbers", "induction", "only-attention", "names", "digits")
REPEATING = ("induction", "only-attention")
FILES = {"config.json", "model.safetensors", "run.json"}


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def numbers():
    return load_lab_model("numbers"), task_of("numbers")


@pytest.fixture(scope="module", params=REPEATING)
def induction(request):
    return load_lab_model(request.param), task_of(request.param)


def run_metadata(name):
    return json.loads((LAB_MODELS / name / "run.json").read_text("utf-8"))


def task_of(name):
    return make_task(TaskConfig.from_json(run_metadata(name)["config"]["task"]))


def test_all_of_them_stay_small():
    files = [path for path in LAB_MODELS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == set(NAMES)
    assert sum(path.stat().st_size for path in files) < 5_000_000
    assert not [path for path in files if path.suffix not in (".json", ".safetensors", ".md")]


def test_each_tells_the_run_that_made_it_and_make_models_runs_it_again(name):
    RunConfig.from_json(run_metadata(name)["config"])
    assert {path.name for path in (LAB_MODELS / name).iterdir()} >= FILES
    # Of a repeating line's words half stand there for the first time; of a sentence's most are drawn at random.
    target = {"names": 0.45}.get(name, 0.5 if name in REPEATING else 0.95)
    assert run_metadata(name)["reached"]["token_accuracy"] >= target
    makefile = (Path(__file__).parents[2] / "Makefile").read_text("utf-8")
    assert re.search(rf"^LAB_MODELS := .*\b{name}\b", makefile, re.M)


def test_the_translator_gets_numbers_right_that_it_never_saw(numbers):
    pretrained, task = numbers
    held = task.held_out(150)
    batch = pretrained.tokenizer(
        [" ".join(e.source) for e in held], padding=True, return_tensors="pt"
    )
    made = pretrained.model.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        max_new_tokens=30,
        do_sample=False,
    )
    texts = pretrained.tokenizer.batch_decode(made, skip_special_tokens=True)
    assert sum(a == " ".join(e.target) for a, e in zip(texts, held, strict=True)) >= 0.95 * len(
        held
    )


def test_the_translators_alignment_can_be_seen(numbers):
    pretrained, _ = numbers
    reading = read(pretrained, "two hundred and forty-five")
    assert reading.source.tokens == ("two", "hundred", "and", "forty", "five")
    assert reading.produced.tokens[:-1] == ("zwei", "hundert", "fünf", "und", "vier", "zig")
    weights = torch.from_numpy(
        reading.trace.of("cross").maps[1].weights
    )  # of the last layer (H, T, S)
    pairs = {"zwei": "two", "hundert": "hundred", "fünf": "five", "vier": "forty"}
    for row, word in enumerate(reading.produced.tokens):
        if word in pairs:
            mass = weights[:, row, reading.source.tokens.index(pairs[word])].max()
            assert mass > 2 / len(reading.source.tokens), (word, mass)


def test_the_language_model_says_a_passage_again(induction):
    pretrained, task = induction
    held = task.held_out(100)
    batch, expected = task.collate(held), [task.places(example) for example in held]
    with torch.no_grad():
        guessed = pretrained.model(input_ids=batch.source).logits.argmax(-1) == batch.target_out
    known = torch.tensor([[bool(place) for place in row] for row in expected])
    assert known.sum() > 1000
    assert guessed[known].float().mean() >= 0.95
    assert guessed[~known].float().mean() < 0.1, "nothing tells a word that is drawn at random"


def test_the_language_model_has_heads_that_look_behind_the_earlier_place_and_heads_that_look_one_back(
    induction,
):
    pretrained, task = induction
    example = task.held_out(1)[0]
    reading = read(pretrained, " ".join(example.source[1:]))
    assert reading.source.tokens == example.source
    places, even = task.places(example), []
    scores = torch.zeros(reading.trace.shape)
    for row, keys in enumerate(places):
        if keys:
            for layer, item in enumerate(reading.trace.maps):
                scores[layer] += torch.from_numpy(item.weights[:, row, list(keys)]).sum(-1)
            even.append(len(keys) / (row + 1))
    scores /= len(even)
    assert scores[1].max() > 0.7 > 0.2 > scores[0].max(), (scores, even)
    assert sum(even) / len(even) < 0.1
    back = torch.from_numpy(reading.trace.maps[0].weights).diagonal(-1, 1, 2).mean(-1)  # (H,)
    assert back.max() > 0.5


def test_a_person_can_type_a_sentence(induction):
    pretrained, _ = induction
    result = answer(pretrained, ModelInputs("The cat sat on the mat. The cat"))
    assert pretrained.tokenizer.convert_ids_to_tokens(int(result.probabilities.argmax())) == "sat"
    assert result.probabilities.max() > 0.5
    before = answer(pretrained, ModelInputs("The cat"))
    assert before.probabilities.max() < 0.2


def test_the_digits_are_told_apart():
    pretrained, task = load_lab_model("digits"), task_of("digits")
    held = task.held_out(120)
    patches = task.collate(held).source.unflatten(1, (4, 4)).unflatten(3, (2, 2))
    pixels = patches.permute(0, 1, 3, 2, 4).reshape(-1, 8, 8)
    right = 0
    for picture, example in zip(pixels, held, strict=True):
        probabilities = answer(
            pretrained, ModelInputs(picture=Array.of(picture.numpy()))
        ).probabilities
        right += pretrained.model.config.id2label[int(probabilities.argmax())] == example.target[0]
    assert right >= 0.95 * len(held)
