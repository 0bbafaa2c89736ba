import io
import re
from functools import partial

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.evidence import Question, ablate_heads, ask, head_sets, single_heads
from core.pretrained import ModelInputs
from dashboard.draw.grids import short
from dashboard.ui import progress
from dashboard.ui.models import ModelRef, load_model, reading_of
from pages import evidence
from pages.evidence import Controls, heads_csv, moves
from tests.pages.app import captions, html_text, open_at, page_text, query_value
from tests.tiny_models import save

opened = partial(open_at, "evidence", "inside:")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    # A busy machine measures slowly, and what is tested is measured
    monkeypatch.setattr(progress, "AT_ONCE", 60.0)


def fact_text(app: AppTest) -> str:
    return re.sub(r"<[^>]+>", "", html_text(app))


def numbers(pattern: str, text: str) -> list[float]:
    """What stands in the groups of the pattern, as numbers."""
    match = re.search(pattern, text)
    assert match, text
    return [float(group.replace("−", "-")) for group in match.groups()]


def test_first_sight_measures_every_head_with_nothing_pressed():
    app = opened()
    text = fact_text(app)
    ranks = r"with ρ = ([+−]\d\.\d+); those by gradient estimate and by change with ([+−]\d\.\d+)"
    agree, foreseen = numbers(ranks, text)
    assert agree < 0.2 < 0.5 < foreseen
    *_, told, _ = (one.value for one in app.markdown)
    gives = r"gives (0\.\d+) instead of (0\.\d+); switched off it gives (0\.\d+)"
    even, whole, off = numbers(gives, told)
    # MiniLM's strongest head writes much the same wherever it looks.
    assert abs(even - whole) < 0.25 * abs(off - whole)
    weight, length, both = numbers(
        r"= (\d\.\d+) \\times (\d+\.\d+) = (\d+\.\d+)", app.latex[0].value
    )
    assert weight * length == pytest.approx(both, rel=0.02)


def test_the_induction_model_needs_its_induction_head():
    text = page_text(opened(model="induction"))
    before, after = numbers(r"answer river falls from (0\.\d+) to (0\.\d+)", text)
    assert before > 0.5 and after < 0.5 * before
    assert "this head contributes by where it attends" in text
    assert re.search(r"Hiding (river|dark) changes the answer most, by −0\.[4-9]", text)


def test_another_place_is_another_question():
    app = opened(model="numbers")
    field(app, "Answer at position").set_value(2).run()
    assert "the logit of the answer drei" in fact_text(app) and query_value(app, "at") == "2"
    app.text_input(key="inside:text").set_value("seven hundred").run()
    assert "at" not in app.query_params and "the logit of the answer hundert" in fact_text(app)


def test_heads_and_layers_can_be_switched_off_together():
    app = opened(model="induction")
    alone = fact_text(app)
    app.multiselect[0].set_value(["all of L0", "all of L1"]).run()
    assert fact_text(app) == alone  # the sentence of one head stays
    changes = r"the answer by ([−+]\d\.\d+); one at a time, their changes sum to ([−+]\d\.\d+)"
    together, added = numbers(changes, page_text(app))
    assert abs(added) > abs(together) > 0.5


def test_a_masked_model_is_asked_for_a_word(tmp_path):
    folder = str(save("bert", tmp_path))
    app = opened(model=folder)
    box, first = field(app, "Masked word"), fact_text(app)
    box.set_value(box.options.index("animal")).run()
    text, at = fact_text(app), query_value(app, "at")
    assert text != first and "the probability of the answer" in text
    assert fact_text(open_at("evidence", **{"inside:model": folder, "at": at})) == text
    app.text_input(key="inside:text").set_value("The [MASK] saw the street.").run()
    assert field(app, "Masked word") is None and "the probability of the answer" in fact_text(app)


def test_any_text_is_measured_and_an_empty_one_asks_for_a_sentence(tmp_path):
    app = opened(model=str(save("bert_encoder", tmp_path)))
    assert "Gradient" in fact_text(app)
    for text in ("a", "🙂🙂", "<script>alert(1)</script> **x** $y$", "too too too"):
        app.text_input(key="inside:text").set_value(text).run()
        assert "Without L" in fact_text(app) and "Hiding" in fact_text(app)
        assert not any("<script" in element.proto.body for element in app.get("html"))
    # Without another sentence an embedding is held against itself.
    app.text_input(key="evidence:against").set_value("").run()
    text = fact_text(app)
    assert "the similarity with itself falls from 1.00" in text
    assert "gradient estimate" not in text and "Gradient" not in text
    app.text_input(key="inside:text").set_value("  ").run()
    assert "write a sentence" in app.info[0].value


def test_arrays_alone_show_what_follows_from_weights():
    out, even = io.BytesIO(), np.full((2, 3, 3), 1 / 3)
    np.savez(out, layer_0=even, layer_1=even, tokens=np.array(["a", "b", "c"]))
    app = opened()
    app.selectbox(key="inside:model").set_value("Your own arrays…").run()
    app.file_uploader(key="inside:array-file").set_value(("mine.npz", out.getvalue(), "")).run()
    text = page_text(app)
    assert "Only the weights are known here" in text and "as uploaded" in text
    assert "forward pass" not in text, "no model was asked"
    paths = "Over all paths through attention and residuals, 0.67 of a"
    assert f"In L0·H0, a puts 0.33 of its weight on a. {paths}" in text
    field(app, "Head").set_value("L1·H1").run()
    assert "In L1·H1, a puts 0.33" in fact_text(app)


def test_maps_too_large_to_stand_side_by_side_show_a_row(monkeypatch):
    monkeypatch.setattr(evidence, "MAX_DRAWN", 8)
    text = page_text(opened(model="induction"))
    says = "17 × 17 cells are too many to show side by side, so only row 16 is shown"
    assert says in text and re.search(r"In L\d·H\d, dark puts", text)


def test_long_work_waits_for_a_press_and_says_how_long(monkeypatch):
    monkeypatch.setattr(progress, "AT_ONCE", 0.0)
    own: dict = {}  # what other tests have measured would be there at once
    monkeypatch.setattr(progress, "measurements", lambda *about: own.setdefault(repr(about), {}))
    app = opened(model="digits")
    assert "3 of 10 heads and layers measured; the rest takes about 1 s." in captions(app)
    assert "Without L" not in fact_text(app)
    table = "The {} heads that the answer needs most{}, as a table".format
    assert table(3, " of the 3 measured so far, out of 8") in [one.label for one in app.expander]
    next(one for one in app.button if one.label == "Measure 7 heads and layers").click().run()
    assert "the largest change of 8 heads" in fact_text(app)
    assert table(6, "") in [one.label for one in app.expander]


def test_stop_keeps_what_is_there(monkeypatch):
    # Stop pressed after the fifth of nine: a page that runs again shows five and offers the rest

    def script():
        import streamlit as st

        from dashboard.ui import progress

        def one(item):
            if item == 5 and not st.session_state.get("pressed"):
                st.session_state["pressed"] = True
                st.session_state["evidence:test"]["going"] = False
                st.rerun()
            return item * item

        st.code(
            repr(
                dict(
                    progress.measure_with_progress(
                        "evidence:test", "about", range(9), one, "squares"
                    )
                )
            )
        )

    app = AppTest.from_function(script, default_timeout=60).run()
    assert app.code[0].value == repr({item: item * item for item in range(5)})
    assert "5 of 9 squares measured" in captions(app)
    app.button[0].click().run()
    assert app.code[0].value == repr({item: item * item for item in range(9)})


def test_what_has_nothing_to_measure_is_a_fragment():
    # Stop cannot interrupt a fragment: the run that measures, and the one after it, draw without one

    def script():
        import streamlit as st

        from dashboard.ui import progress

        def view():
            items = range(int(st.session_state.get("count", 3)))
            progress.measure_with_progress(
                "evidence:fragment", "about", items, lambda item: item, "squares"
            )
            st.code(str(progress._in_fragment.get()))

        progress.fragment_unless_measuring(view)

    app = AppTest.from_function(script, default_timeout=60)
    assert [app.run().code[0].value for _ in range(3)] == ["False", "False", "True"]
    app.session_state["count"] = 4
    assert [app.run().code[0].value for _ in range(3)] == ["False", "False", "True"]


@pytest.mark.parametrize("quiet, bars", [(0.5, 0), (0.0, 1)])
def test_quick_work_shows_no_progress(quiet, bars, monkeypatch):
    def script():
        from dashboard.ui import progress

        progress.measure_with_progress(
            "evidence:quick", progress.QUIET, range(9), lambda item: item, "squares"
        )

    drawn, empty = list[str](), progress.st.empty

    def bar(share: float, words: str):
        drawn.append(words)
        return empty()

    monkeypatch.setattr(progress, "QUIET", quiet)
    monkeypatch.setattr(progress.st, "progress", bar)
    app = AppTest.from_function(script, default_timeout=60).run()
    assert not app.exception and drawn == ["1 of 9 squares"] * bars and not app.button


def test_what_one_session_measured_another_one_has(monkeypatch):
    assert "Kendall" in captions(opened())
    for name in ("ablate_heads", "hide_token"):
        monkeypatch.setattr(
            f"core.interpret.evidence.{name}", lambda *_: pytest.fail("measured again")
        )
    again = opened()
    assert not again.exception and "Kendall" in captions(again)


def test_what_is_written_alike_is_told_by_its_change():
    assert moves(0.7, 0.6) == "falls from **0.70** to **0.60**"
    assert moves(0.701, 0.7041) == "rises by **0.003** from **0.70**"
    assert short(-0.0123, 0.05) == "−.012" and short(0.001, 0.05) == ""


def test_the_heads_are_told_as_csv():
    ref, given = ModelRef("lab", "induction"), ModelInputs("the old king walked to the old")
    baseline = ask(load_model(ref), Question(given))
    setup = Controls(ref, reading_of(ref, given), Question(given), baseline)
    every = {off: ablate_heads(baseline, off) for off in head_sets(setup.reading.trace)}
    effects = {(layer, head): one for (_, layer, head), one in single_heads(every).items()}
    lines = heads_csv(setup, effects).splitlines()
    assert lines[0].startswith("kind,layer,head,answer,") and len(lines) == 9
    *head, answer, change = lines[3].split(",")[:5]
    assert head == ["causal", "0", "2"]
    assert float(answer) == pytest.approx(effects[0, 2].value, rel=1e-6)
    assert float(answer) - baseline.value == pytest.approx(float(change), abs=1e-6)


def test_where_memory_is_short_the_gradient_is_left_out_and_said_to_be(monkeypatch):
    monkeypatch.setattr("core.interpret.evidence.free_bytes", lambda: 10_000)
    app = opened(model="induction", text="the dark river . the dark")
    assert "The gradient is left out" in captions(app)
    assert "Gradient" not in fact_text(app) and "Written" in fact_text(app)


def field(app: AppTest, label: str):
    return next((one for one in app.selectbox if one.label == label), None)
