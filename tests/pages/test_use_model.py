"""The page Use a model without a browser: every kind of model at its job, and what is said when it cannot do it."""

import json

import pytest

from tests.pages.app import app_at, html_text
from tests.tiny_models import BERT, build, save


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    return app_at("use_model")


def filled(app):
    return next(one.value for one in app.markdown if "cross the street" in one.value)


def shown(app, model):
    app.query_params["inside:model"] = model
    return app.run()


def test_first_sight_compares_sentences(app):
    app.run()
    text = html_text(app)
    assert "is most similar to" in text and "exhausted" in text
    assert "none of 72 heads changes it more" in text
    assert len(app.get("vega_lite_chart")) == 1
    assert "= 0.77" in app.latex[0].value


def test_other_sentences_are_the_readers_own(app):
    app.run()
    app.text_area(key="use_model:more").set_value(
        "A tired animal stayed on its side of the street.\n\n"
    ).run()
    assert "stayed on its side" in html_text(app)
    assert "all 1 pairs" in html_text(app)
    app.text_area(key="use_model:more").set_value(
        "\n".join(f"Sentence {i}." for i in range(30))
    ).run()
    assert "at most 12" in app.info[0].value
    app.text_area(key="use_model:more").set_value(" ").run()
    assert "nothing to compare with" in app.info[0].value


def test_the_translator_writes_and_each_word_can_be_picked(app):
    shown(app, "numbers")
    assert "sieben und vier zig" in html_text(app)
    words = app.get("button_group")[0]
    words.set_value(0).run()
    assert "neun</b></span>, head" in html_text(app)
    assert "of its weight on <b style='font-weight:600'>nine" in html_text(app)


def test_a_target_that_is_given_is_read_and_not_said_to_be_written(app):
    app.query_params["inside:target"] = "neun und"
    app.query_params["inside:text"] = "forty-seven"
    shown(app, "numbers")
    assert "The model reads your target" in html_text(app) and "neun und" in html_text(app)
    app.get("button_group")[0].set_value(0).run()
    assert "For <span style='color:#B8430F'><b style='font-weight:600'>sieben" in html_text(app)


def test_a_pair_is_one_input_among_the_sentences(app):
    app.run()
    alone = html_text(app)
    app.text_input(key="inside:second").set_value("Interest rates rose at every bank.").run()
    assert html_text(app) != alone


def test_the_language_model_goes_on(app):
    shown(app, "induction")
    assert "river</b></span> with" in html_text(app)
    assert any("**river" in one.value for one in app.markdown)
    assert "none of 8 heads changes it more" in html_text(app)


def test_a_digit_is_read(app):
    shown(app, "digits")
    assert "The class is" in html_text(app) and ">3</b>" in html_text(app)
    assert "the patch in row" in html_text(app)
    app.selectbox(key="inside:picture").set_value("Digit 7").run()
    assert ">7</b>" in html_text(app)


@pytest.mark.parametrize(
    "family",
    [
        "bert",
        "roberta",
        "bert_classifier",
        "bert_encoder",
        "gpt2",
        "gpt_oss",
        "t5",
        "whisper",
        "vit",
        "longformer",
        "deberta_v2",
        "bloom",
        "bart",
    ],
)
def test_every_kind_of_model_does_its_job(app, family, tmp_path):
    folder = tmp_path / family
    folder.mkdir()
    shown(app, str(save(family, folder)))
    text = html_text(app)
    assert not app.info, [one.value for one in app.info]
    assert any(
        words in text
        for words in (
            "masked word",
            "next token",
            "The class",
            "The model writes",
            "is most similar to",
        )
    )


def test_the_masked_word_can_be_picked(app, tmp_path):
    shown(app, str(save("bert", tmp_path)))
    assert filled(app).startswith("The animal") and "tired" not in filled(app), (
        "the last long word is masked first"
    )
    app.get("button_group")[0].set_value(0).run()
    assert filled(app).startswith("**") and "tired" in filled(app)
    app.text_input(key="inside:text").set_value("The [MASK] was tired.").run()
    assert not app.get("button_group")
    assert "The masked word is" in html_text(app)


def test_a_word_of_the_first_sentence_of_a_pair_is_masked_and_the_second_stays(app, tmp_path):
    app.query_params["inside:second"] = "Nine green boats wait."
    shown(app, str(save("bert", tmp_path)))
    words = next(one for one in app.get("button_group") if one.label == "Masked word")
    assert "boats" not in words.options
    alone = html_text(app)
    app.text_input(key="inside:second").set_value("").run()
    assert html_text(app) != alone, "the model reads both sentences"


@pytest.mark.parametrize("page", ["use_model", "evidence"])
def test_a_text_without_words_to_mask_asks_for_one(app, tmp_path, page):
    app.switch_page(f"../pages/{page}.py")
    app.query_params["inside:text"] = "[SEP]"
    shown(app, str(save("bert", tmp_path)))
    assert any("no word that could be masked" in one.value for one in app.info)


def test_other_jobs_lead_to_models_that_do_them(app):
    app.session_state["use_model:others"] = True
    app.run()
    names = [button.label for button in app.button]
    assert "numbers" in names and "induction" in names and "digits" in names
    assert any(name.startswith("bert-base-uncased, ") for name in names)
    assert "all-MiniLM-L6-v2" not in names, "its own job is no other job"
    app.button(key="use_model:use:translate").click().run()
    assert "The model writes" in html_text(app)


def test_a_long_text_has_a_list_of_words_instead_of_buttons(app, tmp_path):
    app.query_params["inside:text"] = "The animal was tired and " * 10
    shown(app, str(save("bert", tmp_path)))
    assert not app.get("button_group")
    box = next(box for box in app.selectbox if box.label == "Masked word")
    assert len(box.options) == 50 == len(set(box.options))
    assert "The masked word is" in html_text(app)


def test_ten_thousand_words_are_cut_and_told_shortly(app):
    app.query_params["inside:text"] = "word " * 10_000
    app.run()
    assert "512 tokens" in app.warning[0].value
    assert len(html_text(app)) < 2000
    assert any(
        button.label.startswith("Switch off each of 72 heads, about") for button in app.button
    )


def test_nothing_to_read_is_told(app):
    app.run()
    app.text_input(key="inside:text").set_value("  ").run()
    assert "nothing to read" in app.info[0].value


def test_pictures_are_compared_where_a_model_gives_their_embedding(app, tmp_path):
    config = {**BERT, "image_size": 12, "patch_size": 4, "num_channels": 1}
    build("ViTModel", config).save_pretrained(tmp_path)
    options = {"size": {"height": 12, "width": 12}, "image_mean": [0.4], "image_std": [0.2]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(options), "utf-8")
    shown(app, str(tmp_path))
    text = html_text(app)
    assert "This picture" in text and "is most similar to" in text
    assert "cosine of its vector with the original one" in text


def test_a_link_opens_the_word_that_was_picked(app):
    shown(app, "numbers")
    app.get("button_group")[0].set_value(0).run()
    assert app.query_params["use_model:word"] in ("0", ["0"])
    app.text_input(key="inside:text").set_value("seven hundred").run()
    assert "use_model:word" not in app.query_params, "another answer has other words"


@pytest.mark.parametrize(("word", "token"), [("1", "tausend"), ("77777", "und"), ("x", "und")])
def test_a_link_with_a_word_opens_it_or_the_usual_one(app, word, token):
    app.query_params["use_model:word"] = word
    shown(app, "numbers")
    assert f"{token}</b></span>, head" in html_text(app)
