"""The page Head roles, without a browser."""

import io

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.roles import (
    ROLES,
    UNIFORM,
    RoleInputs,
    RoleScores,
    read_all,
    role_inputs,
    score_roles,
)
from core.pretrained import ModelInputs, load_lab_model
from dashboard.draw import head_roles as charts
from dashboard.draw.formats import number
from pages import head_roles as page
from pages.head_roles import FIELDS, HEAD, MAX_LETTERS, MAX_SENTENCES, ROLE, read_sentences
from tests.pages.app import app_at, csv_rows, figures, html_text
from tests.tiny_models import save


@pytest.fixture
def app() -> AppTest:
    return app_at("head_roles")


@pytest.fixture(scope="module")
def inputs() -> RoleInputs:
    return role_inputs(load_lab_model("induction"))


@pytest.fixture(scope="module")
def scores(inputs) -> RoleScores:
    return score_roles(read_all(load_lab_model("induction"), inputs), "causal")


def conditions(app: AppTest) -> str:
    return app.caption[-1].value.replace("\\", "")


def place(key: str) -> int:
    return [role.key for role in ROLES].index(key)


def test_first_sight_shows_minilm_s_previous_token_head_with_nothing_pressed(app):
    app.run()
    assert (app.selectbox(key=ROLE).value, app.selectbox(key=HEAD).value) == ("previous", "L0·H2")
    assert "L0·H2</b></span> puts <b style='font-weight:600'>0.99" in html_text(app)
    assert "shuffled, the same weights would put 0.055 ± 0.0" in html_text(app)
    assert "measured on 30 example sentences" in conditions(app)
    assert len(figures(app)) == 3


def test_the_induction_model_opens_with_its_induction_head(app):
    app.query_params["inside:model"] = "induction"
    app.run()
    assert app.selectbox(key=ROLE).value == "induction" and app.selectbox(
        key=HEAD
    ).value.startswith("L1")
    assert "the token that followed the same token before" in html_text(app)


def test_another_role_brings_its_best_head(app):
    app.run()
    app.selectbox(key=HEAD).set_value("L2·H11").run()
    assert "L2·H11</b></span> puts" in html_text(app)
    app.selectbox(key=ROLE).set_value("same").run()
    assert app.selectbox(key=HEAD).value == "L2·H9" and "the same word elsewhere" in html_text(app)


def test_another_model_begins_with_what_is_clearest_in_it(app):
    app.run()
    app.selectbox(key=HEAD).set_value("L2·H11").run()
    app.selectbox(key="inside:model").set_value("induction").run()
    assert app.selectbox(key=ROLE).value == "induction" and app.selectbox(
        key=HEAD
    ).value.startswith("L1")


def test_a_head_that_was_picked_in_a_grid_is_looked_at(app):
    app.run()
    app.session_state["head_roles:head:picked"] = "L3·H11"
    app.run()
    assert app.selectbox(key=HEAD).value == "L3·H11"
    assert "Its role is delimiter; 4 of 72 heads have the role previous token." in html_text(app)


def test_an_encoder_decoder_is_measured_in_both_its_halves(app):
    app.query_params["inside:model"] = "numbers"
    app.run()
    assert "16 example lines of numbers" in conditions(app)
    assert "Next token" in app.selectbox(key=ROLE).options
    app.selectbox(key=FIELDS.key("kind")).set_value("causal").run()
    assert "causal self-attention" in conditions(app)
    assert "Next token" not in app.selectbox(key=ROLE).options  # a decoder cannot look ahead


def test_pictures_have_places_but_no_words(app):
    app.query_params["inside:model"] = "digits"
    app.run()
    assert "30 handwritten digits" in conditions(app) and "In this picture" in html_text(app)
    assert "Same word" not in app.selectbox(key=ROLE).options


def test_sentences_of_one_s_own_are_measured_and_the_unknown_are_told(app):
    app.query_params["inside:model"] = "induction"
    app.run()
    app.text_area(key=FIELDS.key("own")).set_value(
        "the red fox saw the red fox\nQwertz uiop asdf\nthe old dog and the old cat"
    ).run()
    assert "measured on 2 sentences of your own" in conditions(app)
    assert "1 of your sentences is left out" in conditions(app)


def test_an_empty_text_asks_for_one_and_breaks_nothing(app):
    app.run()
    app.text_input(key="inside:text").set_value(" ").run()
    assert "write a sentence" in app.info[0].value


@pytest.mark.parametrize(
    "link", [{"head_roles:role": "<b>"}, {"head_roles:head": "L9·H99"}, {"head_roles:head": "7"}]
)
def test_a_broken_link_shows_the_usual_head(app, link):
    for name, value in link.items():
        app.query_params[name] = value
    app.run()
    assert app.selectbox(key=HEAD).value == "L0·H2"


def test_lines_are_read_once_each_and_what_is_left_out_is_said():
    assert read_sentences("a b\n\n  a   b \nc") == (("a b", "c"), None)
    taken, trouble = read_sentences(
        "\n".join(map(str, range(MAX_SENTENCES + 5))) + "\n" + "x" * (MAX_LETTERS + 1)
    )
    assert len(taken) == MAX_SENTENCES
    assert "first 60" in trouble and "1 of the lines" in trouble


def test_the_csv_holds_every_head_in_every_role_that_could_be_measured(scores):
    rows = csv_rows(page.roles_csv(scores))
    able = [role.key for role, count in zip(ROLES, scores.rows, strict=True) if count]
    assert len(rows) == len(able) * scores.score.shape[1] * scores.score.shape[2]
    own = {
        (int(row["layer"]), int(row["head"])): row["role"]
        for row in rows
        if row["is_its_role"] == "1"
    }
    assert own == {head: ROLES[at].key for head, at in scores.head_roles.items()}
    one = next(
        row for row in rows if (row["layer"], row["head"], row["role"]) == ("1", "2", "induction")
    )
    assert float(one["score"]) == pytest.approx(scores.score[place("induction"), 1, 2], abs=1e-6)


def test_every_head_is_a_cell_of_its_role_and_the_picked_one_is_ringed(scores):
    spec = charts.role_grid(scores, (1, 0), "light")
    cells = {(row["layer"], row["head"]): row for row in spec["layer"][0]["data"]["values"]}
    assert set(cells) == set(np.ndindex(scores.score.shape[1:]))
    for head, row in cells.items():
        role = scores.head_roles.get(head)
        assert row["mark"] == ("" if role is None else ROLES[role].mark)
    ringed = spec["layer"][1]["data"]["values"]
    assert [(row["layer"], row["head"]) for row in ringed] == [(1, 0)]


def test_the_equation_says_what_was_measured(scores, inputs):
    best = scores.best(place("induction"))
    score, above, share = page.role_equation(scores, best, place("induction"))
    assert (
        f"= {number(scores.score[place('induction')][best])}" in score
        and ">" in above
        and r"\ge" in share
    )
    other = scores.best(place("previous"))
    assert r"\le" in page.role_equation(scores, other, place("induction"))[1]
    assert "Its role is previous token" in page.role_fact(scores, other, place("induction"), inputs)


def test_an_even_head_is_said_not_to_have_chosen():
    score, chance, std = (
        np.full((len(ROLES), 1, 1), value) for value in (UNIFORM + 0.05, 0.7, 0.01)
    )
    even = RoleScores("self", score, chance, std, rows=np.full(len(ROLES), 9), numbers=(0,))
    even.score[:-1] = 0.1
    fact = page.role_fact(
        even, (0, 0), place("broad"), RoleInputs((ModelInputs("a"),), "example sentences")
    )
    assert "its weights are nearly even" in fact and "1 example sentence;" in fact


def test_arrays_alone_are_measured_on_themselves(app):
    """One layer of two heads over a text that comes again: one looks one back, the other at what followed before."""
    tokens = np.array("<s> dog sun tree ship hand dog sun tree ship hand".split())
    size = len(tokens)
    back = np.eye(size)[np.maximum(np.arange(size) - 1, 0)]
    again = np.eye(size)[np.where(np.arange(size) > 5, np.arange(size) - 4, 0)]
    out = io.BytesIO()
    np.savez(out, layer_0=np.stack([back, again]).astype(np.float32), tokens=tokens)
    app.run()
    app.selectbox(key="inside:model").set_value("Your own arrays…").run()
    app.file_uploader(key="inside:array-file").set_value(("mine.npz", out.getvalue(), "")).run()
    assert "measured on only the input above" in conditions(app) and "In this array" in html_text(
        app
    )
    assert app.selectbox(
        key=HEAD
    ).value == "L0·H0" and "1 of 2 heads has the role previous token" in html_text(app)
    app.selectbox(key=ROLE).set_value("induction").run()
    assert app.selectbox(
        key=HEAD
    ).value == "L0·H1" and "1 of 2 heads has the role induction" in html_text(app)


def test_a_model_that_hears_is_measured_on_its_sound(app, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(save("whisper", tmp_path / "whisper"))
    app.run()
    assert "measured on only the input above" in conditions(app) and "In this sound" in html_text(
        app
    )
    assert not app.get("text_area")
