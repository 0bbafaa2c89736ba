"""Every control of the pages of Look inside is in their links: set each, open the link anew, compare."""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.roles import SENTENCES
from tests.pages.app import html_text, open_at, page_text, query_value

CONTROLS: dict[str, tuple[str, dict[str, str], list[tuple[str, str, Any, str]]]] = {
    "pretrained": (
        "all-MiniLM-L6-v2",
        {},
        [
            ("segmented_control", "pretrained:show", "matrix", "Matrix"),
            ("toggle", "pretrained:special", True, "true"),
            ("toggle", "pretrained:sinks", True, "true"),
            ("radio", "pretrained:order", "keys", "Keys by weight"),
            ("radio", "pretrained:scale", "largest", "0 to the largest here"),
            ("slider", "pretrained:from", 0.1, "0.1"),
            ("text_input", "inside:text", "Rain falls.", "Rain falls."),
            ("text_input", "inside:second", "It is wet.", "It is wet."),
        ],
    ),
    "inside_weight": (
        "numbers",
        {},
        [
            ("selectbox", "inside_weight:kind", "causal", "Decoder"),
            ("segmented_control", "inside_weight:order", "largest", "Largest first"),
            ("text_input", "inside:target", "neun", "neun"),
        ],
    ),
    "evidence": (
        "induction",
        {},
        [
            ("selectbox", "evidence:quantity", "logit", "logit"),
            ("multiselect", "evidence:off:induction", ["all of L0"], "all of L0"),
        ],
    ),
    "lens": (
        "induction",
        {},
        [
            ("segmented_control", "lens:view", "who", "Who wrote it"),
            ("selectbox", "lens:output:induction", "wolf", "wolf"),
            ("selectbox", "lens:contrast:induction", "river", "river"),
        ],
    ),
    "head_roles": (
        "induction",
        {},
        [
            (
                "text_area",
                "head_roles:own",
                "the old dog and the old cat\nthe red fox saw the red fox",
                "the old dog and the old cat\nthe red fox saw the red fox",
            ),
            ("selectbox", "head_roles:role", "previous", "Previous token"),
            ("selectbox", "head_roles:head", "L0·H1", "L0·H1"),
            ("segmented_control", "head_roles:where", "set", "Clearest example"),
        ],
    ),
    "corpus": (
        "induction",
        {},
        [
            ("selectbox", "corpus:x", "sink", "Sink share"),
            ("selectbox", "corpus:y", "ablation", "Ablation effect"),
            ("selectbox", "corpus:head", "L0·H1", "L0·H1"),
            ("selectbox", "corpus:measure", "entropy", "Entropy"),
            ("segmented_control", "corpus:view", "map", "Queries and keys"),
            ("segmented_control", "corpus:colour", "position", "Position"),
        ],
    ),
    "generate": (
        "induction",
        {},
        [
            ("segmented_control", "generate:strategy", "Beam", "Beam"),
            ("slider", "generate:width", 2, "2"),
            ("slider", "generate:penalty", 0.5, "0.5"),
            ("slider", "generate:longest", 5, "5"),
            ("number_input", "generate:no_repeat", 2, "2"),
        ],
    ),
    "two_models": (
        "numbers",
        {},
        [
            ("segmented_control", "two_models:mode", "models", "Two models"),
            ("toggle", "two_models:nearest", True, "true"),
        ],
    ),
    "use_model": (
        "all-MiniLM-L6-v2",
        {},
        [
            (
                "text_area",
                "use_model:more",
                "Nobody came.\nAn umbrella.",
                "Nobody came.\nAn umbrella.",
            )
        ],
    ),
}


def control(app: AppTest, kind: str, key: str):
    return getattr(app, kind)(key=key)


@pytest.mark.parametrize("page", CONTROLS)
def test_a_link_opens_every_control_as_it_was(page):
    model, more, controls = CONTROLS[page]
    link = {"inside:model": model} | more
    app = open_at(page, **link)
    for kind, key, value, text in controls:
        control(app, kind, key).set_value(value).run()
        assert control(app, kind, key).proto.query_param_key == key
        link[key] = text
    again = open_at(page, **link)
    assert {key: control(again, kind, key).value for kind, key, *_ in controls} == {
        key: value for _, key, value, _ in controls
    }


def test_sampling_is_in_the_link_too():
    link = {
        "strategy": "Sampling",
        "temperature": "0.5",
        "top_k": "3",
        "top_p": "0.5",
        "samples": "2",
        "seed": "7",
    }
    app = open_at("generate", "generate:", **link)
    now = app.session_state["generate:going"].controls.settings
    assert (now.temperature, now.top_k, now.top_p, now.samples, now.seed) == (0.5, 3, 0.5, 2, 7)


@pytest.mark.parametrize(("page", "name", "store"), [
    ("head_roles", "pin", "head_roles:map:view"), ("generate", "pin", "generate:map:causal:view"),
    ("evidence", "pin", "evidence:maps:view"), ("two_models", "pin", "two_models:pin:link"),
    ("use_model", "pin", "use_model:head:view"), ("transformer", "transformer:cell", "transformer:map:cross:view"),
    ("masks", "masks:reach", "masks:stack:view"), ("masks", "masks:padded", "masks:batch:view"),
    ("scores", "scores:cell", "scores:maps:link"), ("mechanisms", "mechanisms:pin", "mechanisms:maps:link"),
    ("efficient", "efficient:pin", "efficient:maps:view"),
    ("positions", "positions:cell", "positions:shuffled:link")])  # fmt: skip
def test_a_pinned_cell_is_in_the_link_until_it_is_unpinned(page, name, store):
    app = open_at(
        page,
        **{
            "inside:model": "induction",
            "transformer:depth": "2",
            "masks:first": "Causal local",
            name: "3.2",
        },
    )
    assert app.session_state[store]["pin"] == (3, 2) and query_value(app, name) == "3.2"
    app.session_state[store] = app.session_state[store] | {"pin": (4, 1)}
    assert query_value(app.run(), name) == "4.1"
    app.session_state[store] = app.session_state[store] | {"pin": None}
    app.run()
    assert name not in app.query_params and app.session_state[store]["pin"] is None


def test_a_pinned_cell_belongs_to_its_text():
    app = open_at("evidence", **{"inside:model": "induction", "pin": "3.2"})
    app.text_input(key="inside:text").set_value("the old king walked to the old").run()
    assert "pin" not in app.query_params


def test_a_picked_head_is_in_the_link_of_use_a_model():
    app = open_at("use_model", **{"inside:model": "induction", "head": "1.1"})
    assert "L1·H1</b>" in html_text(app) and query_value(app, "head") == "1.1"
    app.text_input(key="inside:text").set_value("the old king walked to the old").run()
    assert "head" not in app.query_params, "another answer depends on other heads"


def test_links_with_earlier_names_open_what_they_did():
    app = open_at("generate", **{"inside:model": "numbers", "generate:kind": "What was said"})
    assert app.segmented_control(key="generate:kind").value == "causal"
    name, link = (
        "two_models:model:induction",
        {"inside:model": "induction", "two_models:mode": "Two models"},
    )
    other = open_at("two_models", **link, **{name: "Fine-tuned: numbers, kept"})
    assert other.selectbox(key=name).value == "Fine-tuned: numbers, example"
    assert "attends in the text before it" in str([e.proto.json for e in app.get("bidi_component")])


def test_sentences_of_a_link_are_measured():
    app = open_at("head_roles", **{"head_roles:own": "\n".join(SENTENCES[:3])})
    assert "measured on 3 sentences of your own" in page_text(app)
