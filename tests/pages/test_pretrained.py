"""The Pretrained page's logic, without a browser."""

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.app import app_at, captions, html_text
from tests.tiny_models import save


@pytest.fixture
def app() -> AppTest:
    return app_at("pretrained")


def test_first_sight_measures_something_with_nothing_pressed(app):
    app.run()
    assert "L3·H1" in html_text(app) and "0.68" in html_text(app)
    assert "L0·H2 attends most to the previous token, with 0.9999" in html_text(app)
    assert "Previous token" in html_text(app), "the roles' table stands once they are measured"


def test_a_link_opens_its_head_and_its_cells(app):
    app.query_params["head"] = "0.2"
    app.query_params["pin"] = "6.8_10.9"
    app.run()
    assert "L0·H2</b>" in html_text(app) and "because</b>" in html_text(app)
    assert "cross → street" in captions(app)


@pytest.mark.parametrize(
    ("name", "value"), [("head", "6.0"), ("head", "a.b"), ("pin", "999.0"), ("pin", "<b>")]
)
def test_a_broken_link_is_said_and_nothing_breaks(app, name, value):
    app.query_params[name] = value
    app.run()
    assert "The link says" in app.warning[0].value
    assert "L3·H1" in html_text(app)


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_text_asks_for_one(app, text):
    app.run()
    app.text_input(key="inside:text").set_value(text).run()
    assert "write a sentence" in app.info[0].value


@pytest.mark.parametrize(
    "text", ["a", "🙂🙂", "שלום עולם", "<script>alert(1)</script> **x** $y$", "word " * 600]
)
def test_any_text_gives_a_picture_and_a_fact(app, text):
    app.run()
    app.text_input(key="inside:text").set_value(text).run()
    assert "puts" in html_text(app) and "<script>" not in html_text(app)
    assert bool(app.warning) == (len(text) > 2000)


def switch(app: AppTest, name: str, value: bool = True) -> None:
    app.toggle(key=f"pretrained:{name}").set_value(value).run()


def test_special_tokens_can_be_hidden_and_the_page_says_what_that_does(app):
    app.run()
    switch(app, "special")
    assert "Special tokens are hidden" in captions(app) and "divided by what is left" in captions(
        app
    )
    assert "CLS" not in html_text(app)


def test_pieces_are_merged_where_a_word_has_several(app):
    app.run()
    assert "pretrained:words" not in [one.key for one in app.toggle], (
        "this sentence has one piece a word"
    )
    app.text_input(key="inside:text").set_value("Tokenization of unbelievable things.").run()
    app.query_params["pin"] = "1.2"
    switch(app, "words")
    assert "Pieces of a word are merged" in captions(app)
    assert "tokenization" in html_text(app)


def test_the_order_follows_the_weights(app):
    app.query_params["pin"] = "10.2"
    app.run()
    before = html_text(app)
    app.radio(key="pretrained:order").set_value("both").run()
    assert (
        "puts <b style='font-weight:600'>0.68" in before
        and "puts <b style='font-weight:600'>0.68" in html_text(app)
    )
    assert app.session_state["pretrained:head:view"]["pins"][-1][1] == 0, (
        "the key of the pin comes first"
    )


@pytest.mark.parametrize("model", ["numbers", "induction", "only-attention", "digits"])
def test_each_of_the_labs_models_is_read_with_nothing_pressed(app, model):
    app.query_params["inside:model"] = model
    app.run()
    assert not app.warning
    assert "puts" in html_text(app) and model in captions(app)


def test_another_model_forgets_the_head_and_the_pins_of_the_last(app):
    app.query_params["head"] = "5.11"
    app.query_params["pin"] = "15.15"
    app.run()
    app.selectbox(key="inside:model").set_value("induction").run()
    assert not app.warning
    assert "head" not in app.query_params and "pin" not in app.query_params


def test_what_must_be_known_of_the_maps_is_said_once(app, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    (folder := tmp_path / "diffllama").mkdir()
    app.query_params["inside:model"] = str(save("diffllama", folder))
    app.run()
    assert captions(app).count("the model subtracts a learned share") == 1


def test_the_numbers_of_a_patch_are_explained(app):
    app.query_params["inside:model"] = "digits"
    app.run()
    assert "2,1 is in row 2, column 1" in captions(app)
