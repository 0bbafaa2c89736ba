"""The page Start here and the tour, driven without a browser: numbers, links, the path, and what is not loaded."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from core.attention import attend
from core.pretrained import load_lab_model, read
from core.studies import start as example, why
from core.studies.start import look_up
from core.studies.why import by_length, models
from dashboard.navigation import PATH, STEPS, following
from dashboard.ui import bars
from pages import start
from tests.pages.app import html_text, open_at, page_text, query_value

open_page = partial(open_at, "start")


@pytest.fixture(autouse=True)
def own_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))


def test_the_app_opens_here_with_both_look_ups_of_the_worked_example():
    app = open_page()
    shown = page_text(app)
    assert (
        all(sentence in shown for sentence in start.SENTENCES) and example.load()["date"] in shown
    )
    weights = attend(
        *(
            torch.tensor(rows)[None, None]
            for rows in ([[1.0, 2.0]], [[1.0, 0], [0, 1], [1, 1]], [[10.0], [20], [30]])
        )
    )
    assert (
        f"Soft look-up: {float(weights.out):.2f}" in shown.replace("*", "")
        and "Hard look-up: nothing" in shown
        and "for key C, 1 · 1 + 2 · 1 = 3.00" in shown
    )
    assert html_text(app).count("<img") == len(start.PATH_STOPS)


def test_a_key_that_equals_the_query_is_found_and_links_and_moves_set_the_numbers():
    app = open_page()
    app.button(key="start:try:2").click().run()
    assert app.number_input(key="start:q1").value == 0 and "Soft look-up: 20.00" in page_text(app)
    app = open_page()
    for name in ("q1", "q2"):
        app.number_input(key=f"start:{name}").set_value(1.0)
    app.number_input(key="start:vC").set_value(7.0).run()
    assert "Hard look-up: 7." in page_text(app)
    names = [widget.key for widget in app.number_input]
    again = open_page(**{name: str(place) for place, name in enumerate(names, 3)})
    assert (
        [widget.value for widget in again.number_input] == list(range(3, 3 + len(names)))
        and len(names) == 11
        and look_up((1.0, 1.0), start.KEYS, start.VALUES).equal == 2
    )
    assert look_up(start.QUERY, start.KEYS, start.VALUES).equal is None


@pytest.mark.parametrize("link", [{"why:d_model": "32 numbers"}, {"runs": "a.b"}])
def test_an_old_link_of_the_first_page_goes_on_to_why_attention(link):
    app = open_page(**link)
    assert "# Why attention" in page_text(app)
    assert {name: query_value(app, name) for name in link} == link
    if "runs" not in link:
        assert app.selectbox(key="why:d_model").value == 32


def test_visited_pages_have_a_tick_here_and_in_the_link():
    app = open_page()
    assert "0 of 6 stops" in page_text(app)
    for page in ("positions", "masks"):
        app.switch_page(f"../pages/{page}.py").run()
        app.query_params.clear()
        app.switch_page("../pages/start.py").run()
    assert "1 of 6 stops" in page_text(app), "Order has two pages"
    link = query_value(app, "start:visited")
    assert link == "positions.masks"
    other = open_page(**{"start:visited": f"{link}.why.nothing"})
    assert (
        "2 of 6 stops" in page_text(other)
        and query_value(other, "start:visited") == "why.positions.masks"
    )


def test_next_leads_along_the_path_and_the_tour_stops_at_each_page_and_says_what_is_there():
    assert tuple(page for pages, *_ in start.PATH_STOPS for page in pages) == PATH
    keys, at = [], "start"
    for _ in PATH:
        keys.append(at := following(at).key)
    assert (
        tuple(keys) == PATH
        and STEPS[0].key == "start"
        and tuple(stop.page for stop in bars.STOPS) == PATH
    )
    exact = {
        model: lengths["1–10"].mean
        for model in models(why.load().learned)
        for lengths in [by_length(why.load().learned, model, "sequence_accuracy")]
    }
    assert min(exact.values()) > 90


def test_the_picked_output_word_and_the_stop_of_the_tour_are_in_the_link():
    app = open_page(**{"start:word": "3"})
    assert (
        app.session_state["start:word"] == 3 and open_page(**{"start:word": "x"}).query_params == {}
    )
    app = open_at("masks", tour="4")
    assert f"Tour, 5 of {len(bars.STOPS)}" in page_text(app)
    app.button(key="tour:skip").click().run()
    assert "Tour, 5" not in page_text(app) and "tour" not in app.query_params


def test_the_tour_sets_the_controls_of_each_page_and_ends():
    app = open_page()
    app.button(key="start:tour").click().run()
    assert app.button(key="tour:back").disabled
    for index, stop in enumerate(bars.STOPS):
        assert stop.sentence in "\n".join(element.value for element in app.markdown), stop.page
        assert f"Tour, {index + 1} of {len(bars.STOPS)}" in page_text(app) and not app.warning
        for name, value in stop.query.items():  # the link leaves a default out
            assert app.query_params.get(name, [value]) in (value, [value]), (stop.page, name)
        app.button(key="tour:next").click().run()
    assert "# Start here" in page_text(app) and "Tour, " not in page_text(app)
    assert "0 of 6 stops visited, without the tour" in page_text(app)


def test_a_stop_of_the_tour_starts_its_page_again_and_then_puts_the_readers_controls_back():
    app = open_page()
    app.switch_page("../pages/masks.py").run()
    app.selectbox(key="masks:first").set_value("local").run()
    before = app.text_input(key="masks:tokens").value
    app.switch_page("../pages/start.py").run()
    app.button(key="start:tour").click().run()
    for _ in range(4):
        app.button(key="tour:next").click().run()
    assert (
        app.selectbox(key="masks:first").value == "causal"
        and app.text_input(key="masks:tokens").value == bars.TOUR_SENTENCE
    )
    app.button(key="tour:next").click().run()
    app.button(key="tour:back").click().run()
    assert app.selectbox(key="masks:first").value == "causal"
    app.switch_page("../pages/masks.py")  # AppTest has not seen that the tour went there
    app.button(key="tour:skip").click().run()
    app.run()  # as the browser does when the widgets have left it
    assert app.selectbox(key="masks:first").value == "local", "the reader's, before the tour"
    assert app.text_input(key="masks:tokens").value == before and "Tour, " not in page_text(app)


def test_the_tour_puts_back_the_controls_that_it_set():
    app = open_page()
    app.switch_page("../pages/heads.py").run()
    app.session_state["heads:weights"] = "random"
    app.run()
    app.switch_page("../pages/start.py").run()
    app.button(key="start:tour").click().run()
    app.button(key="tour:next").click().run()
    assert query_value(app, "one:query") == "cat"
    app.button(key="tour:next").click().run()
    app.button(key="tour:skip").click().run()
    app.switch_page("../pages/one_query.py").run()
    assert "one:query" not in app.query_params and app.session_state["one:stage"] == 1
    app.switch_page("../pages/heads.py").run()
    assert query_value(app, "heads:weights") == "Random"


def test_the_saved_numbers_are_those_of_core():
    saved = example.load()
    model = load_lab_model(saved["model"])
    for item, sentence in zip(saved["translations"], example.SENTENCES, strict=True):
        found = read(model, sentence).trace.of("cross").map(saved["layer"])
        assert (list(found.queries), list(found.keys)) == (item["target"], item["source"])
        np.testing.assert_allclose(found.weights[saved["head"]], item["weights"], atol=2e-3)
    fresh = {
        "why": example.bottleneck(),
        "one_query": example.worked_weights(),
        "order": example.order(),
        "transformer": example.parameters(),
        "train": example.losses(),
    }
    assert json.loads(json.dumps(fresh)) == {name: saved["thumbnails"][name] for name in fresh}


def test_the_first_part_of_the_page_loads_neither_torch_nor_transformers():
    code = (
        "import sys; import dashboard.navigation, pages.start, dashboard.ui.bars; "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout.strip() == "[]"
