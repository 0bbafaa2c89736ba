"""Generate without a page: the strip of tokens, the sentences, what is looked at, and a search that goes on."""

import re

import pytest
import torch

from core.models.decoding import Candidate, Hypothesis, Tree
from core.pretrained import ModelInputs
from core.pretrained.generate import SearchSettings, generate_steps, prepare_generation
from dashboard.draw.palette import CATEGORIES, WEIGHTS, Ink, contrast, shade, text_on
from dashboard.ui.models import EMBEDDED
from pages import generate
from pages.generate import Controls, Search, picked_path, run, strip
from tests.cases import each
from tests.tiny_models import tiny


@each("theme", ["light", "dark"])
def test_ink_runs_from_the_page_to_the_strongest_and_can_be_read(theme):
    assert shade(0, theme) == WEIGHTS[theme][0] and shade(1, theme) == WEIGHTS[theme][-1]
    assert shade(1 / 9, theme) == WEIGHTS[theme][1]
    fills = [*CATEGORIES[theme], *(shade(place / 200, theme) for place in range(201))]
    assert all(contrast(fill, text_on(fill, theme)) >= 4.5 for fill in fills)
    assert contrast("#FFFFFF", "#000000") == pytest.approx(21) and contrast(
        "#767676", "#FFFFFF"
    ) == pytest.approx(4.54, abs=0.01), "the grey that is known to pass on white"


def test_a_strip_shows_weights_before_the_token_that_is_said_and_nothing_after_it():
    drawn = strip(
        ("<b>", "a", "b", "c"), (0.9, 0.001, None, None), "light", label='x"y', now=2, chance=0.25
    )
    spans = re.findall(r'<span style="(.*?)">(.*?)<small>(.*?)</small>', drawn)
    assert [(token, number) for _, token, number in spans] == [
        ("&lt;b&gt;", "0.90"),
        ("a", ""),
        ("b", "0.25"),
        ("c", ""),
    ]
    assert (
        Ink.of("light").pick in spans[2][0]
        and "opacity" in spans[3][0]
        and "background" not in spans[2][0]
    )
    assert 'aria-label="x&quot;y"' in drawn


def test_of_very_many_tokens_those_with_weight_are_shown():
    weights = [0.4 if place in (3, 300) else 0.001 for place in range(400)]
    drawn = strip([f"t{place}" for place in range(400)], weights, "dark", label="")
    assert re.findall(r">([^<>]+)<(?:small|/span)", drawn) == ["…", "t3", "…", "t300", "…"]


def grown():
    tree = Tree()
    for token, parent, step, fate in (
        (4, -1, 0, "kept"),
        (5, -1, 0, "kept"),
        (6, 0, 1, "ended"),
        (7, 1, 1, "cut"),
        (8, 1, 1, "dropped"),
    ):
        tree.add(Candidate(token, parent, step, -1.0, -1.0 * (step + 1), fate))
    tree.finish(2, -1.0)
    tree.finish(3, -1.5)
    return tree


def test_what_is_looked_at_is_an_output_s_step_or_the_dropped_candidate():
    tree = grown()
    hypotheses = tree.hypotheses
    assert picked_path(tree, hypotheses, None) == ([0, 2], 0)
    assert picked_path(tree, hypotheses, (2, 1)) == ([0, 2], 1) and picked_path(
        tree, hypotheses, (2, 9)
    ) == ([0, 2], 1)
    assert picked_path(tree, hypotheses, (1, 0)) == ([1, 3], 0), (
        "a beginning that was picked goes on to its output"
    )
    assert picked_path(tree, hypotheses, (4, 1)) == ([1, 4], 1) and picked_path(
        tree, hypotheses, (4, 0)
    ) == ([1, 4], 0)


def search(**settings):
    model, chosen = tiny("gpt2"), SearchSettings(**{"longest": 6, **settings})
    started = prepare_generation(model, ModelInputs("the street"))
    controls = Controls(EMBEDDED, ModelInputs("the street"), chosen)
    return Search(controls, started, generate_steps(model, started, chosen))


def test_a_search_goes_on_where_it_was_left(monkeypatch):
    monkeypatch.setattr("pages.generate.PATIENCE", -1)
    monkeypatch.setattr("pages.generate.BETWEEN", -1)
    now, seen = search(strategy="beam", width=3), []

    def leave(now):
        seen.append((now.length, [one.tokens for one in now.outputs()]))
        if now.length == 2:
            raise KeyboardInterrupt  # as a widget that is used while the page runs

    with pytest.raises(KeyboardInterrupt):
        run(now, leave)
    assert now.length == 2 and not now.done and len(now.outputs()) == 3
    run(now, lambda now: seen.append((now.length, None)))
    assert now.done and now.seconds > 0
    assert [length for length, _ in seen] == [1, 2, 3, 4, 5, 6, 6], (
        "each step once, and the outputs at the end"
    )
    whole = search(strategy="beam", width=3)
    run(whole, lambda now: None)
    assert [one.tokens for one in now.outputs()] == [one.tokens for one in whole.tree.hypotheses]


def test_a_stopped_search_takes_no_step():
    now = search()
    now.stopped = True
    run(now, lambda now: None)
    assert now.length == 0 and not now.outputs()


def test_sentences_tell_first_and_other_choices_with_their_numbers():
    names = {0: "zero", 1: "one", 2: "two*"}
    logits = torch.tensor([0.7, 0.2, 0.1]).log()
    assert generate.token_fact(logits, 0, names, 2) == (
        "At step 3 the model gives **zero** 0.70; the next most likely, “one”, has 0.20."
    )
    assert generate.token_fact(logits, 2, names, 0) == (
        "At step 1 the model gives **two\\*** 0.10, its third choice; its first is “zero”, with 0.70."
    )
    assert [generate.ordinal(rank) for rank in (2, 3, 4, 11, 21, 22, 103, 112, 1001)] == [
        "second",
        "third",
        "4th",
        "11th",
        "21st",
        "22nd",
        "103rd",
        "112th",
        "1,001st",
    ]


def test_a_beam_that_prefers_the_longer_says_so():
    settings = SearchSettings("beam", width=2)
    long, short = Hypothesis(1, (1, 2, 3), -3.0, -1.0), Hypothesis(0, (1,), -2.0, -2.0)
    assert (
        "although another output is more likely (log-probability −2.00, here −3.00)"
        in generate.outputs_fact(settings, [long, short], ["a b c", "a"])
    )
    assert "ranks the most likely of its 2" in generate.outputs_fact(
        settings, [short, long], ["a", "a b c"]
    )
    assert generate.outputs_fact(SearchSettings(), [short], ["a"]) == ""


def test_equations_hold_the_path_s_numbers():
    tree = grown()
    assert r"\frac{−2.00}{2^{0.5}} = −1.41" in generate.equation(
        SearchSettings("beam", length_penalty=0.5), tree, [0, 2], 0
    )
    assert "p = 0.37" in generate.equation(SearchSettings(), tree, [0, 2], 1)
    tree.candidates[2].chance = 0.25
    sampled = generate.equation(
        SearchSettings("sampling", temperature=0.5, top_k=3), tree, [0, 2], 1
    )
    assert r"0.37 \to 0.25" in sampled and "kept by top-k 3" in sampled and "T = 0.5" in sampled
