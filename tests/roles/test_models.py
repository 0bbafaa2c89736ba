"""Roles of real models: the embedded one, the lab's own, and models before training."""

from collections import Counter

import numpy as np
import pytest
import torch

from core.interpret.roles import (
    ROLES,
    SENTENCES,
    RoleInputs,
    RoleScores,
    own_lines,
    read_all,
    role_inputs,
    score_roles,
    unknown_share,
)
from core.pretrained import load_lab_model, load_minilm, read
from core.pretrained.load import prepare_model
from tests.cases import each
from tests.tiny_models import given, tiny


def at(key: str) -> int:
    return [role.key for role in ROLES].index(key)


@pytest.fixture(scope="module")
def minilm():
    return load_minilm()


@pytest.fixture(scope="module")
def on_sentences(minilm) -> RoleScores:
    return score_roles(read_all(minilm, role_inputs(minilm)))


def names(scores: RoleScores) -> dict[tuple[int, int], str]:
    return {head: ROLES[place].key for head, place in scores.head_roles.items()}


def test_minilm_comes_out_with_its_previous_token_heads(on_sentences):
    roles = names(on_sentences)
    assert {(0, 2), (2, 11)} <= {head for head, role in roles.items() if role == "previous"}
    assert on_sentences.score[at("previous"), 0, 2] > 0.98
    assert on_sentences.chance[at("previous"), 0, 2] < 0.06
    assert (roles[1, 8], roles[2, 9], roles[3, 11]) == ("next", "same", "delimiter")
    assert (
        "induction" not in roles.values()
    )  # it reads both ways and was never asked for a next word


def test_the_lab_s_language_model_comes_out_with_induction_heads():
    pretrained = load_lab_model("induction")
    inputs = role_inputs(pretrained)
    assert inputs.what == "example sentences" and len(inputs.givens) >= 15
    scores = score_roles(read_all(pretrained, inputs), "causal")
    count = Counter(names(scores).values())
    assert count["induction"] >= 1 and count["previous"] >= 1
    layers = {
        role: [layer for (layer, _), name in names(scores).items() if name == role]
        for role in ("previous", "induction")
    }
    assert min(layers["previous"]) < min(
        layers["induction"]
    )  # induction is built on a layer that looks one back
    layer, head = scores.best(at("induction"))
    assert (
        scores.score[at("induction"), layer, head]
        > 0.5
        > 5 * scores.chance[at("induction"), layer, head]
    )


def test_before_training_no_head_has_a_role(minilm):
    """The same class, config and tokenizer with random weights: every score is near its chance, every row near even."""
    torch.manual_seed(5)
    untrained = prepare_model(
        type(minilm.model)(minilm.model.config), minilm.tokenizer, "untrained"
    )
    scores = score_roles(read_all(untrained, role_inputs(untrained)))
    assert scores.head_roles == {}
    assert np.nanmax(scores.share[:-1]) < 0.05


def test_each_model_is_measured_on_what_it_can_read():
    numbers = role_inputs(load_lab_model("numbers"))
    assert numbers.what == "example lines of numbers" and len(numbers.givens) == 16
    digits = role_inputs(load_lab_model("digits"))
    assert digits.what == "handwritten digits" and digits.givens[0].picture is not None
    assert role_inputs(tiny("whisper")).givens == ()


def test_an_encoder_is_read_without_its_decoder_s_text_and_sees_the_same():
    pretrained = tiny("bart")
    assert (
        len(role_inputs(pretrained).givens) == 30
        and len(role_inputs(pretrained, kind="causal").givens) == 10
    )
    few = RoleInputs(role_inputs(pretrained).givens[:2], "example sentences")
    given_a_text, writing_its_own = (read_all(pretrained, few, kind) for kind in ("self", "causal"))
    assert len(writing_its_own[0].target) != len(given_a_text[0].target)
    for one, other in zip(given_a_text, writing_its_own, strict=True):
        for mine, theirs in zip(
            one.trace.of("self").maps, other.trace.of("self").maps, strict=True
        ):
            np.testing.assert_array_equal(mine.weights, theirs.weights)


def test_the_sentences_of_a_person_go_first_unless_no_word_is_known(minilm):
    own = role_inputs(minilm, ("Two words.", "And three more."))
    assert own.what == "sentences of your own" and [one.text for one in own.givens] == [
        "Two words.",
        "And three more.",
    ]
    assert (
        role_inputs(load_lab_model("numbers"), ("Qwertz uiop.",)).what == "example lines of numbers"
    )


def test_lines_of_a_model_s_own_words_are_known_to_it_and_come_again():
    pretrained = tiny("bert")
    lines = own_lines(pretrained.tokenizer)
    assert lines == own_lines(pretrained.tokenizer) and len(set(lines)) == len(lines)
    assert all(unknown_share(pretrained, text) == 0 for text in lines)
    words = lines[1].split()
    assert words[: len(words) // 2] == words[len(words) // 2 :]


def test_patches_of_a_picture_have_neighbours_but_no_words():
    scores = score_roles([read(tiny("vit"), given("vit"))])
    measured = {role.key for role, rows in zip(ROLES, scores.rows, strict=True) if rows}
    assert measured == {"previous", "next", "first", "self", "broad"}


@each("family", ["bert", "gpt2", "llama", "t5", "bart", "gpt_oss", "bloom", "deberta_v2"])
def test_every_family_can_be_measured(family):
    pretrained = tiny(family)
    readings = [read(pretrained, one) for one in role_inputs(pretrained).givens[:2]]
    for kind in readings[0].trace.kinds:
        if kind != "cross":
            scores = score_roles(readings, kind)
            assert scores.rows[at("self")] > 0 and np.isfinite(scores.score[at("self")]).all()


def test_the_kept_sentences_are_different_and_some_of_them_repeat(on_sentences):
    assert len(set(SENTENCES)) == len(SENTENCES) == 30
    assert (on_sentences.rows >= 100).all()  # every role has been looked for in many places
