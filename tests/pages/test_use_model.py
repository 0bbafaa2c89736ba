import json
from functools import partial

import numpy as np
import pytest
import torch

from core.interpret.evidence import Effect, Question
from core.pretrained import ModelInputs, PretrainedError, load_lab_model
from core.pretrained.answers import Candidate, answer
from core.studies import use_model as study
from dashboard.draw.formats import distinct
from dashboard.draw.grids import bars
from dashboard.draw.palette import LIGHT_INK
from dashboard.ui.models import EMBEDDED, ModelRef, reading_of
from pages import use_model
from tests.cases import each
from tests.pages.app import Case, app_at, html_text, open_at, page_cases
from tests.tiny_models import BERT, build, save

opened = partial(open_at, "use_model", "inside:")


def test_a_pair_is_one_input_among_the_sentences():
    app = opened()
    text = html_text(app)
    app.text_input(key="inside:second").set_value("Interest rates rose at every bank.").run()
    assert html_text(app) != text


FIRST = ("button_group", "use_model:word:nine thousand three hundred and twelve ; forty-seven:", 0)
test_another_answer_has_other_words = page_cases(
    "use_model",
    {
        "picked": Case(
            {"inside:model": "numbers"},
            ["neun</b></span>, head", "of its weight on <b style='font-weight:600'>nine"],
            do=[FIRST],
            query={"use_model:word": "0"},
        ),
        "and left by another text": Case(
            {"inside:model": "numbers"},
            do=[
                FIRST,
                ("text_input", "inside:text", "seven hundred"),
            ],
            query={"use_model:word": None},
        ),
    },
)


def test_the_masked_word_can_be_picked(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app = opened(model=str(save("bert", tmp_path)))
    first = next(one.value for one in app.markdown if "cross the street" in one.value)
    assert first.startswith("The animal") and "tired" not in first, "the last long word is masked"
    app.button_group[0].set_value(0).run()
    filled = next(one.value for one in app.markdown if "cross the street" in one.value)
    assert filled.startswith("**") and "tired" in filled
    app.text_input(key="inside:text").set_value("The [MASK] was tired.").run()
    assert not app.button_group and "The masked word is" in html_text(app)
    app.text_input(key="inside:text").set_value("The animal was tired and " * 10).run()
    assert not app.button_group, "a long text has a list of words"
    box = next(box for box in app.selectbox if box.label == "Masked word")
    assert len(box.options) == 50 == len(set(box.options))
    app.text_input(key="inside:text").set_value("The animal was tired.")
    alone = html_text(app.run())
    app.text_input(key="inside:second").set_value("Nine green boats wait.").run()
    words = next(one for one in app.button_group if one.label == "Masked word")
    assert "boats" not in words.options and html_text(app) != alone, "the model reads both"


def test_other_jobs_lead_to_models_that_do_them():
    app = app_at("use_model")
    app.session_state["use_model:others"] = True
    app.run()
    names = [button.label for button in app.button]
    assert "numbers" in names and "induction" in names and "digits" in names
    assert any(name.startswith("bert-base-uncased, ") for name in names)
    assert "all-MiniLM-L6-v2" not in names, "its own job is no other job"
    app.button(key="use_model:use:translate").click().run()
    assert "The model writes" in html_text(app)


def test_ten_thousand_words_are_cut_and_told_shortly():
    app = opened(text="word " * 10_000)
    assert "512 tokens" in app.warning[0].value and len(html_text(app)) < 2000
    assert app.button(key="use_model:measure").label.startswith(
        "Switch off each of 72 heads, about"
    )


def test_pictures_are_compared_where_a_model_gives_their_embedding(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    config = {**BERT, "image_size": 12, "patch_size": 4, "num_channels": 1}
    build("ViTModel", config).save_pretrained(tmp_path)
    options = {"size": {"height": 12, "width": 12}, "image_mean": [0.4], "image_std": [0.2]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(options), "utf-8")
    text = html_text(opened(model=str(tmp_path)))
    parts = ("This picture", "is most similar to", "cosine of its vector with the original one")
    assert all(part in text for part in parts)


# The parts of Use a model: its sentences, its figures, and the head that an answer hangs on.


INDUCTION = ModelRef("lab", "induction")
QUESTION = Question(
    ModelInputs("the old king walked to the red house . the old king walked to the red")
)


def test_the_head_that_the_answer_hangs_on_is_found_by_asking_without_each():
    result = use_model.answer_question(INDUCTION, QUESTION)
    known = use_model.effects(INDUCTION, QUESTION)
    assert len(known) == result.heads == 8
    head = study.default_head(result, known)
    assert head.effect == min(known.values(), key=lambda effect: effect.value)
    off = frozenset({("causal", head.index, head.head)})
    alone = answer(load_lab_model("induction"), QUESTION.inputs, off=off).probabilities
    assert head.effect.value == pytest.approx(float(alone[result.baseline.id]), abs=1e-6)
    assert head.row == len(result.baseline.source) - 1
    candidates = [Candidate(1, "house", 0.9), Candidate(2, "a", 0.05)]
    fact = use_model.answer_fact(result, candidates, head)
    assert f"**{head.name}** attends most to **house**" in fact
    assert "none of 8 heads changes it more" in fact
    # another head that is taken has its own effect and rank
    heads = [study.head_at(result, known, place, head) for place in (0, 1) for head in range(4)]
    assert sorted(head.before for head in heads) == list(range(8))
    last = max(heads, key=lambda head: head.before)
    assert last.effect == min(known.values(), key=lambda effect: abs(effect.change))
    assert "7 of 8 heads change it more" in use_model.head_fact(result, last, "house")


def test_without_measuring_it_is_the_sharpest_look_of_the_answering_row():
    result = use_model.answer_question(INDUCTION, QUESTION)
    head = study.default_head(result, None)
    special = np.asarray(result.baseline.source.special)
    rows = np.stack([item.weights[:, -1] for item in result.trace.maps])  # (L, H, S)
    rows[..., special] = 0
    assert rows[head.index, head.head].max() == rows.max()
    assert "not measured yet" in use_model.head_fact(result, head, "mat")
    assert "No head was switched off" in use_model.conditions(result, head)
    # heads are switched off unasked where that is little work
    model = load_lab_model("induction").model
    numbers = (
        sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
    )
    assert result.work == 8 * len(result.baseline.source) * numbers < use_model.AT_ONCE / 100
    pair = Question(ModelInputs("The animal didn't cross the street."), against="Nobody came.")
    minilm = use_model.answer_question(EMBEDDED, pair)
    assert use_model.AT_ONCE / 30 < minilm.work < use_model.AT_ONCE


def test_a_head_that_changes_nothing_is_not_praised():
    result = use_model.answer_question(INDUCTION, QUESTION)
    effect = Effect(result.baseline.value + 1e-5, 1e-5, 3)
    head, other = (study.Head(1, 1, 0, 3, effect, before) for before in (0, 1))
    assert "without any one of the 8 heads" in use_model.head_fact(result, head, "mat")
    fact = use_model.head_fact(result, other, "mat")
    assert "stays at" in fact and "1 of 8 heads changes it more" in fact


def test_the_first_word_of_another_order_is_shown_first():
    reading = reading_of(ModelRef("lab", "numbers"), ModelInputs("forty-seven"))
    spoken = [place for place, special in enumerate(reading.produced.special) if not special]
    assert [reading.produced.tokens[i] for i in spoken] == ["sieben", "und", "vier", "zig"]
    single = reading_of(ModelRef("lab", "numbers"), ModelInputs("seven"))
    assert study.first_crossing(reading, spoken) in (1, 2)
    assert study.first_crossing(single, [0]) == 0


def test_sentences_are_lines_once_each():
    assert study.sentences(" One. ", "Two.\n\nOne.\n Three. ") == ("One.", "Two.", "Three.")
    with pytest.raises(PretrainedError, match="Take 3 out"):
        study.sentences("0", "\n".join(map(str, range(1, 15))))


def test_tokens_that_read_alike_get_bars_and_buttons_of_their_own():
    names = distinct(["a", "b", "a", "a"])
    assert len(set(names)) == 4 and [name.strip("\u200b") for name in names] == ["a", "b", "a", "a"]
    spec = bars({"model": torch.tensor([0.6, 0.3])}, ["a", "a"], 0, LIGHT_INK)
    rows = spec["layer"][0]["data"]["values"]
    assert [row["picked"] for row in rows] == [True, False]
    assert len({row["token"] for row in rows}) == 2
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
