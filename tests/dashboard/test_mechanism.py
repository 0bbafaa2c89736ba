"""What pages share: the editor of a mechanism, its link and fields; facts and terms, links, panels, the search."""

import json
import re
from contextlib import suppress
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as some
from streamlit.testing.v1 import AppTest

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, entry, preset
from core.attention.presets import preset_of
from core.attention.text import from_text, to_text
from dashboard.draw.formats import plain, spoken
from dashboard.draw.glossary import TERMS, explain, explain_markdown, matching
from dashboard.fields.axis import dated
from dashboard.fields.base import Fields, Number, Select, Toggle
from dashboard.fields.link import as_text
from dashboard.fields.mechanism import clashes, repairs
from dashboard.navigation import STEPS, following
from dashboard.search import PICKED, collect, hits
from dashboard.ui.panels import _as_html
from tests.cases import each
from tests.pages.app import open_at, page_text


def _page():
    import streamlit as st

    from core.attention import AttentionConfig
    from core.attention.text import to_text
    from dashboard.fields.mechanism import mechanism

    config = mechanism("demo", st.session_state.get("start", AttentionConfig(16, 2)))
    st.text(to_text(config) if config else "nothing")


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_function(_page, default_timeout=20)


def shown_text(app: AppTest) -> str:
    assert not app.exception, app.exception[0].message
    return app.text[0].value


def select(app: AppTest, name: str, value) -> AppTest:
    return app.selectbox(key=f"demo:{name}").set_value(value).run()


def test_it_starts_from_what_page_says_and_follows_new_wish(app):
    assert shown_text(app.run()) == "d=16 h=2"
    app.session_state["start"] = AttentionConfig(24, 3, position=Choice("alibi"))
    assert shown_text(app.run()) == "d=24 h=3 position=alibi"
    assert app.selectbox(key="demo:position").value == "alibi"


def test_every_entry_can_be_chosen_or_is_refused(app):
    app.run()
    for axis, entries in AXES.items():
        for item in entries:
            select(app, axis, item.key)
            assert shown_text(app) != "nothing" or app.error, (
                f"{axis} = {item.key}: neither a mechanism nor a reason"
            )
            if shown_text(app) != "nothing":
                assert getattr(from_text(shown_text(app)), axis).key == item.key
        select(app, axis, getattr(AttentionConfig(), axis).key)


def test_free_text_is_a_field(app):
    select(app.run(), "mask", "formula")
    field = app.text_input(key="demo:mask:formula:text")
    assert field.value == entry("mask", "formula").params[0].default and not app.code
    field.set_value("j <= k").run()
    assert (shown_text(app), app.code[0].value) == ("nothing", "j <= k\n     ^")
    assert any("k is not known" in words.value for words in app.markdown)


TURNED = Choice.of("not", Choice.of("local", window=2))
JOINED = [
    ("selectbox", "mask", "and"),
    ("selectbox", "mask:and:part1", "not"),
    ("selectbox", "mask:and:part1:not:part0", "local"),
]
THREE: list[tuple[str, str, Any]] = [*JOINED, ("number_input", "mask:and:parts", 3)]
FORMULA = "position:and:part1:formula:formula"


@each(
    ("moves", "axis", "choice"),
    [
        (
            [("number_input", "normalizer:softmax:temperature", 0.5)],
            "normalizer",
            Choice.of("softmax", temperature=0.5),
        ),
        (JOINED, "mask", Choice.of("and", Choice("causal"), TURNED)),
        (THREE, "mask", Choice.of("and", Choice("causal"), TURNED, TURNED.parts[0])),
        ([*THREE, ("selectbox", "mask", "causal")], "mask", Choice("causal")),
        (
            [("selectbox", "position", "and"), ("text_input", FORMULA, "score * 2")],
            "position",
            Choice.of("and", Choice("rope"), Choice.of("formula", formula="score * 2")),
        ),
    ],
)
def test_controls_are_parameters_and_choices_are_joined(moves, axis, choice):
    app = AppTest.from_function(_page, default_timeout=20).run()
    for kind, key, value in moves:
        getattr(app, kind)(key=f"demo:{key}").set_value(value).run()
    assert from_text(shown_text(app)) == AttentionConfig(16, 2, **{axis: choice})


@each(
    "axis, choice",
    [
        ("mask", Choice.of("or", Choice("causal"), Choice.of("not", Choice("causal")))),
        ("mask", Choice.of("not", Choice.of("or", Choice("causal"), Choice.of("local", window=4)))),
        (
            "mask",
            Choice.of(
                "or",
                Choice.of("and", Choice("causal"), Choice("local")),
                Choice.of("local", window=9),
            ),
        ),
        ("mask", Choice.of("and", *[Choice.of("local", window=w) for w in range(1, 6)])),
        ("position", Choice.of("and", Choice("alibi"), Choice.of("rope", base=500.0))),
    ],
)
def test_any_composition_passes_through_the_editor_unharmed(app, axis, choice):
    config = AttentionConfig(16, 2, **{axis: choice})
    app.session_state["start"] = config
    assert from_text(shown_text(app.run())) == config


def test_a_preset_sets_every_axis(app):
    app.run()
    app.selectbox(key="demo:preset").set_value("causal").run()
    assert from_text(shown_text(app)) == preset("causal").config(16, 2)
    assert app.selectbox(key="demo:preset").value == "causal"
    assert plain(preset("causal").changed(16, 2)[0]) in app.caption[0].value, (
        "what it changed against Vaswani 2017"
    )
    select(app, "score", "dot")
    assert app.selectbox(key="demo:preset").value == "own" and not app.caption


@each("item", PRESETS)
def test_every_preset_is_known_again_and_survives_its_link(item):
    config = item.config()
    assert preset(preset_of(config)).config() == config == from_text(to_text(config))


def test_what_cannot_go_together_is_said_beside_the_control(app):
    select(app.run(), "score", "additive")
    select(app, "kernel", "fused")
    assert shown_text(app) == "nothing" and "additive" in app.error[0].value
    words = [button.label for button in app.button]
    assert "Use kernel = exact" in words and "Use score = scaled_dot" in words
    app.button(key="demo:repair:kernel:exact").click().run()
    assert shown_text(app) == "d=16 h=2 score=additive" and not app.error
    assert app.selectbox(key="demo:kernel").value == "exact"


def test_the_editor_lists_what_does_not_go_with_the_rest():
    additive = AttentionConfig(16, 2, score=Choice("additive"))
    pairs = {(axis, item.key) for axis, item, _ in clashes(additive)}
    assert ("kernel", "fused") in pairs and ("score", "dot") not in pairs
    fields = {name: getattr(additive, name) for name in ("d_model", "num_heads", "dropout", *AXES)}
    error = ConfigError("no", kernel=("fused", "exact"), score="concat")
    assert repairs(fields | {"kernel": Choice("fused")}, error) == [("kernel", Choice("exact"))]


# Fields: a control declared once is drawn, linked, hidden and refused by its declaration.


START = {
    "sentence": "a b", "mask": "none", "width": 8, "heads": 4, "length": 16,
    "causal": False, "kinds": ["b"], "weights": "random", "seed": 3,
}  # fmt: skip
OTHER = {
    "sentence": "c", "mask": "causal", "width": 12, "heads": 6, "length": 9,
    "causal": True, "kinds": ["a", "c"], "weights": "trained", "seed": 5, "reach": 2,
}  # fmt: skip

LINK: dict[str, Any] = {
    "sentence": "c", "mask": "Causal", "width": "12", "heads:12": "6", "length": "9",
    "causal": "true", "kinds": ["a", "c"], "weights": "Trained", "seed": "5", "reach": "2",
}  # fmt: skip


def page():
    import streamlit as st

    from dashboard.fields.base import (
        Fields,
        MultiSelect,
        Number,
        Segmented,
        Select,
        SelectSlider,
        Text,
        Toggle,
    )

    class Controls(Fields, page="page"):
        sentence = Text("Sentence", "a b", span=2)
        mask = Select("Mask", {"none": "No mask", "causal": "Causal"})
        reach = Number("Reach", 1, 0, 4).optional(lambda c: c.mask == "causal")
        width = SelectSlider("d_model", [4, 8, 12], 8)
        heads = SelectSlider[int](
            "Heads",
            lambda c: [n for n in range(1, 9) if c.width % n == 0],
            lambda c: c.width // 2,
            key=lambda c: f"heads:{c.width}",
        )
        length = Number[int]("Length", lambda c: 2 * c.width, 1, 64, slider=True)
        causal = Toggle("Causal")
        kinds = MultiSelect("Kinds", "abc", ["b"], max_options=2)
        weights = Segmented("Weights", {"random": "Random", "trained": "Trained"})
        seed = Number("Seed", 3, 0, 9, hidden=True)

    shown = [
        name for name in Controls.declared if name != "seed" or not st.session_state.get("closed")
    ]
    values = Controls.draw(*shown)
    st.session_state["values"] = {**values, **Controls.read("seed")}


def open_fields(closed: bool = False, **link: Any) -> AppTest:
    app = AppTest.from_function(page)
    app.session_state["closed"] = closed
    for name, text in link.items():
        app.query_params[f"page:{name}"] = text
    app.run()
    assert not app.exception
    return app


def test_fields_start_where_they_say():
    app = open_fields()
    assert app.session_state["values"] == {**START, "reach": None}
    assert app.selectbox(key="page:mask").options == ["No mask", "Causal"] and not app.query_params
    app.select_slider(key="page:width").set_value(4).run()
    assert app.select_slider(key="page:heads:4").value == 2


def test_link_brings_every_value_also_of_what_is_hidden_now():
    assert open_fields(**LINK).session_state["values"] == OTHER
    closed = open_fields(closed=True, **LINK)
    assert closed.session_state["values"] == OTHER
    assert [number.key for number in closed.number_input] == ["page:reach"]
    assert closed.query_params["page:seed"] == "5"


def test_what_is_hidden_is_written_into_the_link():
    app = open_fields()
    app.number_input(key="page:seed").set_value(5).run()
    assert app.query_params["page:seed"] == "5"
    app.number_input(key="page:seed").set_value(3).run()
    assert "page:seed" not in app.query_params


def test_a_refused_text_says_what_would_fit():
    app = open_fields(
        mask="diagonal", length="99", causal="yes", kinds="d", weights="Trained", seed="10"
    )
    assert [toast.value for toast in app.toast] == [
        "The link says mask = diagonal; expected one of No mask, Causal.",
        "The link says length = 99; expected a number from 1 to 64.",
        "The link says causal = yes; expected true or false.",
        "The link says kinds = d; expected one of a, b, c.",
        "The link says seed = 10; expected a number from 0 to 9.",
    ]
    assert app.session_state["values"] == {**START, "reach": None, "weights": "trained"}


def fits(field, text):
    with suppress(ValueError, KeyError):
        return field.value_of(text, Fields()) is not None
    return False


ANY = some.one_of(some.integers(), some.booleans(), some.text())


@given(some.lists(ANY, min_size=1, unique=True))  # 0 and False are one key of a dict
def test_a_select_reads_what_it_offers_and_nothing_else(options):
    field = Select("Any", options)
    assert field.start(Fields()) == options[0]
    for option in options:
        assert fits(field, as_text(option)) and field.allowed(option, Fields())
    assert not fits(field, "".join(map(as_text, options)) + "?")


@given(some.integers(-50, 50), some.integers(-50, 50), some.integers(-60, 60))
def test_a_number_reads_what_is_between_its_bounds(one, other, value):
    low, high = sorted((one, other))
    field = Number("Any", low, low, high)
    assert fits(field, str(value)) == field.allowed(value, Fields()) == (low <= value <= high)
    assert not fits(field, "many") and not fits(Toggle("Any"), str(value))


# The parts that every page has: facts and terms, links and panels, and the search of the sidebar.


@each("token", ["<script>alert(1)</script>", "**bold**", ":primary[x]", "a]b", "\\", "$x$", "`"])
def test_a_token_comes_through_as_it_was_typed(token):
    assert (
        _as_html(f"**{plain(token)}**", "#000") == f"<b style='font-weight:600'>{escape(token)}</b>"
    )
    fact = f":primary[{plain(token)}] has **0.5**, **{plain(token)}** [CLS]"
    assert spoken(fact) == f"{token} has 0.5, {token} [CLS]", "a screen reader says no signs"


def test_accent_and_bold():
    assert _as_html(":primary[it] has **0.5**", "#abc") == (
        "<span style='color:#abc'>it</span> has <b style='font-weight:600'>0.5</b>"
    )


def test_the_pages_of_the_list_are_files():
    seen, key = [], STEPS[0].key
    for _ in STEPS:
        seen.append(key)
        key = following(key).key
    assert (
        sorted(seen) == sorted(step.key for step in STEPS)
        and key == STEPS[0].key
        and all(find_spec(f"pages.{step.key}") for step in STEPS)
    )
    assert max(len(step.invite) for step in STEPS) <= 47  # letters after "Next: " at 390 pixels
    assert {path.stem for path in (Path(__file__).parents[2] / "pages").glob("*.py")} == {
        step.key for step in STEPS
    }


def _of_runs():
    import streamlit as st

    from dashboard.fields.link import forget_other_runs

    forget_other_runs("train", "20261124-100000-00000b")
    st.write("drawn")


def test_a_link_says_nothing_of_runs_that_are_not_shown():
    app = AppTest.from_function(_of_runs)
    kept = {
        "train:step:20261124-100000-00000b": "3",
        "train:head:example_run:cross": "0.1",
        "train:seed": "2",
        "decode:step:20261124-100000-00000a": "3",
    }
    for name, value in (
        kept
        | {
            "train:head:20261124-100000-00000a:cross": "0.1",
            "train:more:20261124-100000-00000c": "9",
        }
    ).items():
        app.query_params[name] = value
    assert set(app.run().query_params) == set(kept)


# The glossary: no term twice, each on a page that exists, and the first use of one in a sentence is explained.


def test_terms_stand_once_in_short_sentences():
    forms = [form.lower() for term in TERMS for form in (term.name, *term.forms)]
    assert (
        len(TERMS) >= 60
        and not {form for form in forms if forms.count(form) > 1}
        and {term.page for term in TERMS} <= {step.key for step in STEPS}
    )
    assert not [
        term.name
        for term in TERMS
        if not term.text.endswith(".")
        or not 1 <= len(re.findall(r"[.:](?:\s|$)", term.text)) <= 3
        or len(term.text) > 170
    ]
    within = "tokenizer, a keynote, mid-beam, the value of a head"
    assert explain(within, set()) == within


def test_the_first_use_of_a_term_is_explained():
    html = explain("Softmax <b> of a query; softmax again, and queries", set())
    assert (
        re.findall(r"<abbr[^>]*>([^<]*)</abbr>", html) == ["Softmax", "query"]
        and re.sub(r"</?abbr[^>]*>", "", html)
        == "Softmax &lt;b&gt; of a query; softmax again, and queries"
    )
    [title] = [term.text for term in TERMS if term.name == "softmax"]
    assert f'aria-description="{title}"' in html and 'tabindex="0"' in html
    tag = "<img src=x onerror=alert(1)>"
    for text in (tag, f'a [b](http://x" {tag})', f"$1 {tag}$", f":small[{tag}]", f"``{tag}"):
        assert "<img" not in explain_markdown(text)
    assert explain_markdown("`a<b` $a<b$") == r"`a<b` $a\lt b$"


def test_a_typed_text_finds_terms_by_name():
    assert (
        [matching(typed)[0].name for typed in (" SOFTMAX ", "logit", "self attention")]
        == ["softmax", "logit", "self-attention"]
        and len(matching("softmax")) > 2
        and len(matching("")) == len(TERMS)
        and matching("xyzzy") == []
    )


# The search of the sidebar: its saved list is what the lab has, and what is picked opens.


def test_the_saved_list_is_what_the_lab_has():
    saved = [*hits().values()]  # no two have the same title and line
    assert saved == json.loads(json.dumps(collect())), "run make generated"


def test_a_picker_offers_rope_first():
    # Streamlit puts what begins with the typed text first, and of these the shortest.
    for offered, key in ((AXES["position"], "rope"), (PRESETS, "roformer")):
        names = {dated(item): item.key for item in offered if item.name.startswith("RoPE")}
        assert names[min(names, key=len)] == key


def test_export_is_of_the_page_that_is_open():
    app = open_at("start")
    app.session_state[PICKED.key] = next(one for one in hits() if one.startswith("Export ("))
    app.run()
    assert app.selectbox(key="export:picture").value and "# Start here" in page_text(app)


def test_what_is_picked_opens_also_on_its_own_page():
    app = open_at("start")
    for typed, key, value in [
        ("sliding window", "mechanisms:mask", "local"),
        ("Nyström", "mechanisms:kernel", "nystrom"),
        ("Your own text", "train:task", "own_text"),
        ("Why divide by", "questions:question", "scaling"),
        ("softmax · term, seen on Normalizers", "glossary:find", "softmax"),
        ("perplexity", "glossary:find", "perplexity"),
        ("Temperature · Turn", "one:temperature", 1.0),
        ("RoPE (its rotations)", "positions:position", "rope"),
        ("Sinusoidal (its", "positions:position", "sinusoidal"),
        ("One vector", "claims:choice", "bottleneck"),
        ("Llama 3.1", "cards:model", "llama3"),
        ("induction · model", "inside:model", "induction"),
        ("Your own PyTorch model", "inside:model", "Your own model…"),
    ]:
        app.session_state[PICKED.key] = next(one for one in hits() if typed in one)
        app.run()
        assert {
            one.key: one.value
            for one in (*app.selectbox, *app.text_input, *app.select_slider, *app.radio)
        }[key] == value and not app.exception
