"""The parts of Use a model: its sentences, its figures, and the head that an answer hangs on."""

import numpy as np
import pytest

from core.interpret.evidence import Effect, Question
from core.pretrained import ModelInputs, PretrainedError, load_lab_model
from core.pretrained.answers import Candidate, answer
from core.studies import use_model as study
from dashboard.draw.formats import distinct
from dashboard.draw.palette import LIGHT_INK
from dashboard.ui.models import EMBEDDED, ModelRef, reading_of
from pages import use_model
from tests.cases import each

INDUCTION = ModelRef("lab", "induction")
QUESTION = Question(
    ModelInputs("the old king walked to the red house . the old king walked to the red")
)


def test_the_head_that_the_answer_hangs_on_is_found_by_asking_without_each():
    result, known = (
        use_model.answer_question(INDUCTION, QUESTION),
        use_model.effects(INDUCTION, QUESTION),
    )
    assert len(known) == result.heads == 8
    head = study.default_head(result, known)
    assert head.effect == min(known.values(), key=lambda effect: effect.value)
    off = frozenset({("causal", head.layer, head.head)})
    alone = answer(load_lab_model("induction"), QUESTION.inputs, off=off).probabilities[
        result.baseline.id
    ]
    assert head.effect.value == pytest.approx(float(alone), abs=1e-6)
    assert head.row == len(result.baseline.source) - 1
    fact = use_model.answer_fact(
        result, [Candidate(1, "house", 0.9), Candidate(2, "a", 0.05)], head
    )
    assert (
        f"**{head.name}** attends most to **house**" in fact
        and "none of 8 heads changes it more" in fact
    )


def test_without_measuring_it_is_the_sharpest_look_of_the_answering_row():
    result = use_model.answer_question(INDUCTION, QUESTION)
    head = study.default_head(result, None)
    special = np.asarray(result.baseline.source.special)
    rows = np.stack([item.weights[:, -1] for item in result.trace.maps])  # (L, H, S)
    rows[..., special] = 0
    assert rows[head.index, head.head].max() == rows.max()
    assert "not measured yet" in use_model.head_fact(result, head, "mat")
    assert "No head was switched off" in use_model.conditions(result, head)


def test_another_head_that_is_taken_has_its_own_effect_and_rank():
    result, known = (
        use_model.answer_question(INDUCTION, QUESTION),
        use_model.effects(INDUCTION, QUESTION),
    )
    ranks = [
        study.head_at(result, known, place, head).before for place in (0, 1) for head in range(4)
    ]
    assert sorted(ranks) == list(range(8))
    last = next(
        study.head_at(result, known, i // 4, i % 4) for i, rank in enumerate(ranks) if rank == 7
    )
    assert last.effect == min(known.values(), key=lambda effect: abs(effect.change))
    fact = use_model.head_fact(result, last, "house")
    assert "7 of 8 heads change it more" in fact


def test_heads_are_switched_off_unasked_where_that_is_little_work():
    result = use_model.answer_question(INDUCTION, QUESTION)
    model = load_lab_model("induction").model
    numbers = (
        sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
    )
    assert result.work == 8 * len(result.baseline.source) * numbers < use_model.AT_ONCE / 100
    minilm = use_model.answer_question(
        EMBEDDED,
        Question(ModelInputs("The animal didn't cross the street."), against="Nobody came."),
    )
    assert use_model.AT_ONCE / 30 < minilm.work < use_model.AT_ONCE


def test_a_head_that_changes_nothing_is_not_praised():
    result = use_model.answer_question(INDUCTION, QUESTION)
    head = study.Head(1, 1, 1, 0, 3, Effect(result.baseline.value + 1e-5, 1e-5, 3))
    assert "without any one of the 8 heads" in use_model.head_fact(result, head, "mat")
    other = study.Head(1, 1, 1, 0, 3, Effect(result.baseline.value + 1e-5, 1e-5, 3), before=1)
    assert "stays at" in use_model.head_fact(result, other, "mat")
    assert "1 of 8 heads changes it more" in use_model.head_fact(result, other, "mat")


def test_the_first_word_of_another_order_is_shown_first():
    reading = reading_of(ModelRef("lab", "numbers"), ModelInputs("forty-seven"))
    spoken = [place for place, special in enumerate(reading.produced.special) if not special]
    assert [reading.produced.tokens[i] for i in spoken] == ["sieben", "und", "vier", "zig"]
    assert study.first_crossing(reading, spoken) in (1, 2)
    assert (
        study.first_crossing(reading_of(ModelRef("lab", "numbers"), ModelInputs("seven")), [0]) == 0
    )


def test_sentences_are_lines_once_each():
    assert study.sentences(" One. ", "Two.\n\nOne.\n Three. ") == ("One.", "Two.", "Three.")
    with pytest.raises(PretrainedError, match="Take 3 out"):
        study.sentences("0", "\n".join(map(str, range(1, 15))))


def test_tokens_that_read_alike_get_bars_and_buttons_of_their_own():
    names = distinct(["a", "b", "a", "a"])
    assert len(set(names)) == 4 and [name.strip("\u200b") for name in names] == ["a", "b", "a", "a"]
    spec = use_model.bars([Candidate(1, "a", 0.6), Candidate(2, "a", 0.3)], LIGHT_INK)
    rows = spec["layer"][0]["data"]["values"]
    assert [row["first"] for row in rows] == [True, False]
    assert len({row["word"] for row in rows}) == 2
    assert [row["text"] for row in rows] == ["0.60", "0.30"]


@each("theme", ["light", "dark"])
def test_the_matrix_shows_every_pair_and_outlines_the_picked_one(theme):
    table = np.array([[1.0, 0.7, -0.2], [0.7, 1.0, 0.1], [-0.2, 0.1, 1.0]])
    names = ["It's one", "two", "a \\ very long sentence that goes on and on"]
    spec = use_model.similarity_chart(table, names, (0, 1), theme)
    cells, pair, _, words = (layer["data"]["values"] for layer in spec["layer"])
    assert len(cells) == 9 and len(pair) == 2
    assert {cell["value"] for cell in pair} == {0.7}
    assert [word["name"] for word in words[:2]] == ["0  It's one", "1  two"]
    assert words[2]["name"].startswith("2  a \\ very") and words[2]["name"].endswith("…")
    assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == [-1, 1]
