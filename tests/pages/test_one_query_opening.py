"""What One query opens on: a projection, its question and its moves; earlier links; every control in the link."""

import pytest

from core.tokens import SENTENCE
from dashboard.draw.formats import number
from tests.cases import each
from tests.pages.app import live, query_value
from tests.pages.test_one_query import drawn, open_page, put


def test_opens_on_three_words_one_head_and_the_projection():
    at = open_page()
    made = drawn(at)["projection"]
    assert drawn(at)["stage"] == 1
    assert made["rows"] == ["The", "animal", "slept"]
    assert [part["sign"] for part in made["parts"]] == ["q", "k", "v"]
    assert [len(part["w"]) for part in made["parts"]] == [4, 4, 4]
    assert (at.selectbox(key="one:mask").value, at.selectbox(key="one:position").value) == (
        "none",
        "none",
    )
    assert not at.warning
    assert not at.error
    assert "one:start" not in at.query_params
    q = made["parts"][0]
    assert sum(
        float(x["text"].replace("−", "-")) * float(row[0]["text"].replace("−", "-"))
        for x, row in zip(made["x"], q["w"], strict=True)
    ) == pytest.approx(0.61, abs=0.02)
    assert r"= \mathbf{0.61}" in live(at)


@each(
    ("link", "named"),
    [
        ({"stage": "5 Normalize"}, {}),
        ({"stage": "6 Weigh values", "head": "2"}, {}),
        ({"mask": "none"}, {}),
        ({"d_model": "9"}, {"heads": "3"}),
        ({"tokens": "red green blue", "query": "green"}, {}),
        ({"source": "Matrices Q, K, V"}, {"position": "none", "mask": "none"}),
    ],
)
def test_a_link_of_before_the_simple_start_shows_the_numbers_of_then(link, named):
    """It is the link that names every value with which the page opened then."""
    then = {
        "tokens": SENTENCE,
        "d_model": "16",
        "heads": "4",
        "position": "alibi",
        "mask": "causal",
        "stage": "5 Normalize",
    }
    at, full = open_page(**link), open_page(**(then | named | link), start="simple")
    assert drawn(at) == drawn(full) and live(at) == live(full)
    assert query_value(at, "one:start") == "layer"
    again = open_page(
        **(
            {"start": "layer"}
            | {name: text for name, text in link.items() if then.get(name) != text}
        )
    )
    assert drawn(again) == drawn(
        at
    )  # as after a reload: the browser leaves out what the page opened with then


def test_every_control_is_in_the_link():
    at = open_page()
    changes = [
        ("text_input", "tokens", "red green blue"),
        ("select_slider", "d_model", 8),
        ("select_slider", "heads", 2),
        ("pills", "head", 1),
        ("pills", "query", "green"),
        ("selectbox", "score", "additive"),
        ("selectbox", "position", "alibi"),
        ("selectbox", "mask", "padding"),
        ("number_input", "real", 2),
        ("selectbox", "normalizer", "sparsemax"),
        ("number_input", "seed", 5),
        ("segmented_control", "stage", 3),
        ("pills", "predict", "another word"),
    ]
    for change in changes:
        at = put(at, *change)
    bound = {
        "tokens": "red green blue",
        "d_model": "8",
        "heads": "2",
        "head": "1",
        "query": "green",
        "real": "2",
        "seed": "5",
        "stage": "3 Scale + bias",
        "predict": "another word",
    }  # a browser writes these
    written = {name.removeprefix("one:"): query_value(at, name) for name in at.query_params}
    assert written.pop("start") == "simple"
    again = open_page(**(written | bound), start="simple")
    assert not again.warning
    for kind, name, value in changes:
        assert getattr(again, kind)(key=f"one:{name}").value == value, name
    assert live(again) == live(at)


def test_the_question_is_answered_by_the_weights_on_the_page():
    at = open_page()
    weights = {key["label"]: key["weight"]["value"] for key in drawn(at)["keys"]}
    right = "the word itself" if max(weights, key=weights.get) == "slept" else "another word"
    for option in ("the word itself", "another word"):
        at = put(at, "pills", "predict", option)
        assert any(m.value.startswith(":green[Right.]") for m in at.markdown) == (option == right)


def test_every_thing_to_try_changes_the_picture():
    for index in range(4):
        at = open_page()
        before = drawn(at)
        at = at.button(key=f"one:try:{index}").click().run()
        assert drawn(at) != before and not at.error
        assert any(m.value.startswith("**Notice:**") for m in at.markdown)


def test_six_words_have_a_query_for_which_each_head_attends_to_another_word():
    at = open_page().button(key="one:try:1").click().run().button(key="one:try:3").click().run()
    best = [
        max(
            drawn(put(at, "button_group", "head", head))["keys"],
            key=lambda key: key["weight"]["value"],
        )["label"]
        for head in range(4)
    ]
    assert len(set(best)) > 1


def test_leaving_out_the_division_keeps_the_word_and_says_both_weights():
    at = open_page(query="animal", start="simple", stage="5 Normalize")
    with_division = max(key["weight"]["value"] for key in drawn(at)["keys"])
    at = open_page(query="animal", start="simple").button(key="one:try:2").click().run()
    without = max(key["weight"]["value"] for key in drawn(at)["keys"])
    notice = next(m.value for m in at.markdown if m.value.startswith("**Notice:**"))
    assert (
        drawn(at)["query"] == "animal"
        and f"gives {number(without)} to" in notice
        and without > with_division
    )
    assert f"divided by √4 it would give {number(with_division)}." in notice
    at = at.button(key="one:try:1").click().run()
    assert at.session_state["one:score"] == "scaled_dot", (
        "each move sets all that its notice relies on"
    )
