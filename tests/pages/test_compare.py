"""Side by side, without a browser: first sight, adding, moving, editing, the link, and what cannot be drawn."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from core.studies import compare as study
from tests.pages.app import app_at, captions, html_text, pictures_of

TIME = r"<td>[\d.]+\u00a0[mµ]?s"
SEEDED = {"source": "seeded", "text": "The animal was too tired .", "length": "128"}


@pytest.fixture
def app() -> AppTest:
    return app_at("compare")


def open_page(app: AppTest, **query) -> AppTest:
    for name, value in (SEEDED | query).items():
        app.query_params[name] = value
    return app.run()


def order(app: AppTest) -> list[str]:
    return app.selectbox(key="compare:minuend").options


def press(app: AppTest, what: str, place: int) -> None:
    with_list(app)
    app.menu_button(key=f"compare:line:{place}").click(what).run()


def with_list(app: AppTest) -> AppTest:
    app.session_state["compare:list"] = True
    return app.run()


def test_first_sight_measures_something_with_nothing_pressed(app):
    app.run()
    assert order(app) == ["Dot product", "ALiBi", "Local window", "Linear"]
    assert "0.52</b> of its weight within two tokens" in html_text(app)
    assert "591,360" in html_text(app)
    assert len(re.findall(TIME, html_text(app))) == 4
    assert len(re.findall(r"<td>[\d.]+\u00a0[kM]B", html_text(app))) == 4
    assert len(re.findall(r"<td>[\d.]+\u00a0[mµ]s¹", html_text(app))) == 1, (
        "the window is computed dense and masked"
    )
    assert "implied weights" in captions(app)
    assert not app.query_params and not app.warning and not app.error


def test_the_list_adds_moves_duplicates_and_removes(app):
    open_page(app)
    press(app, "Move after", 0)
    assert order(app) == ["ALiBi", "Dot product", "Local window", "Linear"]
    assert (
        app.selectbox(key="compare:minuend").value,
        app.selectbox(key="compare:subtrahend").value,
    ) == (0, 1), "the difference stays with its two"
    press(app, "Duplicate", 2)
    assert order(app)[2:4] == ["Local window", "Local window 2"]
    press(app, "Remove", 0)
    assert order(app)[0] == "Dot product"
    with_list(app)
    app.selectbox(key="compare:add").set_value("score=cosine").run()
    assert len(order(app)) == 5 and "score=cosine" in app.query_params["m"]
    assert with_list(app).selectbox(key="compare:add").value is None
    press(app, "Duplicate", 0)
    with_list(app)
    assert app.selectbox(key="compare:add").disabled
    assert "Duplicate" not in app.menu_button(key="compare:line:0").options


def test_sentence_sizes_head_and_seed_are_shared_by_all(app):
    open_page(app)
    for kind, name, value in (
        ("text_area", "text", "one two three"),
        ("number_input", "seed", 5),
        ("select_slider", "d_model", 24),
        ("selectbox", "heads:24", 3),
        ("selectbox", "head:3", 2),
    ):
        app.session_state["compare:tokens"] = True
        app.run()
        getattr(app, kind)(key=f"compare:{name}").set_value(value).run()
    assert "3 tokens, d_model 24, head 2 of 3" in captions(app)
    assert app.query_params["sizes"] == "24.3.2" and app.query_params["seed"] == "5"
    assert "2,400" in html_text(app), "four maps of 24 × 24 with their biases"
    app.run()
    assert app.query_params["text"] == "one two three", "a closed popover forgets nothing"


def test_at_least_two_stay(app):
    with_list(open_page(app, m=["", "position=alibi"]))
    assert app.menu_button(key="compare:line:0").options == ["Change", "Move after", "Duplicate"]


def test_the_dialog_changes_one_mechanism(app):
    open_page(app)
    press(app, "Change", 1)
    for _ in range(
        2
    ):  # a test reruns the whole page, which shuts a dialog; a browser only the dialog
        app.session_state["compare:editing"] = 1
        app.selectbox(key="compare:edit:1:position").set_value("rope").run()
    app.session_state["compare:editing"] = 1
    app.button(key="compare:take").click().run()
    assert order(app)[1] == "RoPE"
    assert "position=rope" in app.query_params["m"]


def test_the_link_brings_all_of_it(app):
    open_page(
        app,
        m=["score=dot", "mask=and(causal,local(window=1))", "normalizer=softmax(temperature=0.5)"],
        minus="2.1",
        sizes="24.3.2",
        seed="7",
        pin="4.1",
    )
    assert order(app) == ["Dot product", "Causal and local window", "Softmax"]
    assert app.selectbox(key="compare:minuend").value == 2
    caption = captions(app)
    assert "d_model 24, head 2 of 3" in caption and "seed 7" in caption
    assert ">tired</b></span>" in html_text(app), "the pinned query is spoken of"


def test_a_pin_that_a_shorter_sentence_loses_is_dropped_without_a_word(app):
    open_page(app, pin="4.1")
    app.session_state["compare:text"] = "one two three"
    app.run()
    assert not app.warning and "pin" not in app.query_params


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("m", ["score=warp", ""]),
        ("source", "<b>"),
        ("minus", "7.7"),
        ("sizes", "16.5.0"),
        ("pin", "99.0"),
        ("seed", "x"),
        ("length", "3"),
        ("text", ""),
    ],
)
def test_a_broken_link_is_said_and_nothing_breaks(app, name, value):
    open_page(app, **{name: value})
    assert app.warning or app.info
    assert (
        name == "text"
        or "of its weight within two tokens" in html_text(app)
        or "both put" in html_text(app)
    )


def test_what_changes_is_measured_on_a_press(app):
    open_page(app)
    assert len(re.findall(TIME, html_text(app))) == 4
    with_list(app).selectbox(key="compare:add").set_value("score=cosine").run()
    assert len(re.findall(TIME, html_text(app))) == 4
    app.button(key="compare:measure").click().run()
    assert len(re.findall(TIME, html_text(app))) == 5
    app.selectbox(key="compare:length").set_value(256).run()
    assert not re.search(TIME, html_text(app)) and app.query_params["length"] == "256"
    assert "T = 256, d_model 16, 2 heads" in captions(app)


def test_what_one_session_measured_another_one_has(app, monkeypatch):
    first = re.findall(TIME, html_text(open_page(app)))
    monkeypatch.setattr(study, "measure_costs", lambda *_: pytest.fail("measured again"))
    again = open_page(app_at("compare"))
    assert not again.exception and re.findall(TIME, html_text(again)) == first and len(first) == 4


def test_what_minilm_cannot_have_is_said_with_a_way_out(app):
    app.query_params["m"] = ["", "projection=differential"]
    app.run()
    assert "Differential" in app.error[0].value and "MiniLM" in app.error[0].value
    app.button(key="compare:seeded").click().run()
    assert not app.error and app.query_params["source"] == "seeded"


def test_the_difference_of_a_mechanism_and_itself_is_refused_in_words(app):
    open_page(app)
    app.selectbox(key="compare:minuend").set_value(0).run()
    assert "Choose two different mechanisms" in captions(app)


@pytest.mark.parametrize(
    "text", ["a", "🙂🙂", "שלום עולם", "<script>alert(1)</script> **x** $y$", "word " * 600]
)
@pytest.mark.parametrize("source", ["seeded", "3.1"])
def test_any_sentence_gives_a_picture_and_a_fact(app, text, source):
    open_page(app, text=text, source=source)
    assert "tokens" in html_text(app) and "<script>" not in html_text(app)
    if len(text) > 2000:
        assert "the first 256 are compared" in captions(app)


def test_equations_papers_and_weights_are_there_on_request(app):
    open_page(app, m=["", "score=additive", "projection=gated"])
    app.session_state["compare:sources"] = True
    app.run()
    assert "Bahdanau et al. 2014" in " ".join(each.value for each in app.markdown)
    assert "Only one mechanism has these parameters: Additive: score" in captions(app)
    assert len([each for each in app.latex if "quad" in each.value and "w =" in each.value]) == 3
    maps = pictures_of(app)["compare:maps"].maps
    assert [item.name for item in maps] == ["Dot product", "Additive", "Gated output"]


def test_the_unlike_layers_of_a_model_stand_side_by_side(app):
    with_list(open_page(app)).selectbox(key="compare:layers").set_value("gpt_oss").run()
    assert len(order(app)) == 2 and not app.exception and not app.error
    assert all("causal" in text for text in app.query_params["m"]) and "causal_local" in "".join(
        app.query_params["m"]
    )
