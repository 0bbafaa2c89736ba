"""The pages Decode and Generate, driven without a browser: every strategy, setting and kind of run, and refusals."""

import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import streamlit as st
import torch

from core.models import ModelConfig, Shape, build_model
from core.models.decoding import Candidate, Hypothesis, Prompt, Tree, beam, penalty
from core.pretrained import ModelInputs, load_lab_model
from core.pretrained.generate import (
    SearchSettings,
    decode_text,
    generate as generate_text,
    generate_steps,
    prepare_generation,
)
from core.runs.runs import create_run
from core.studies import generate
from core.studies.decode import Score, longest_of
from core.studies.generate import Search, picked_path, run
from core.tasks import TaskConfig, make_task
from core.training import RunConfig, prepare, recommended
from dashboard.draw import decode, generate as generate_draw
from dashboard.draw.figures import CATEGORIES, WEIGHTS, Ink, contrast, shade, text_on
from dashboard.draw.formats import number, share_text, shorten
from dashboard.draw.grids import bars
from dashboard.draw.page_views import RANKS, tree_spots, tree_svg
from dashboard.ui import progress
from dashboard.ui.decoding import search_equation
from pages.generate import Controls
from tests.cases import each
from tests.pages.app import (
    Case,
    app_at,
    assert_case,
    assert_says,
    captions,
    html_text,
    open_at,
    page_cases,
    query_value,
    set_control,
    set_state,
    tree,
)
from tests.tiny_models import tiny

open_decode, open_generate = (partial(open_at, page) for page in ("decode", "generate"))


def made(task: str, kind: str, **changes):
    """A run that was never trained, but has kept its weights: all that this page needs."""
    config = recommended(make_task(TaskConfig.of(task)), kind, steps=2, held_out=2, **changes)
    run = create_run(config)
    run.save_checkpoint(prepare(config), config)
    run.set_status("finished")
    return run


@pytest.mark.parametrize(
    "page, strategy, kind, key, value",
    [
        ("decode", "Sampling", "select_slider", "temperature", 2.0),
        ("decode", "Sampling", "number_input", "top_k", 3),
        ("decode", "Sampling", "slider", "top_p", 0.5),
        ("decode", "Sampling", "slider", "samples", 7),
        ("decode", "Sampling", "number_input", "seed", 3),
        ("generate", "Beam", "slider", "width", 2),
        ("generate", "Beam", "slider", "penalty", 0.0),
        ("generate", "Sampling", "select_slider", "temperature", 3.0),
        ("generate", "Sampling", "number_input", "top_k", 2),
        ("generate", "Sampling", "slider", "top_p", 0.1),
        ("generate", "Sampling", "slider", "samples", 2),
        ("generate", "Sampling", "number_input", "seed", 7),
        ("generate", "Greedy", "number_input", "no_repeat", 2),
        ("generate", "Greedy", "slider", "longest", 3),
    ],
)
def test_every_setting_changes_what_is_found(page, strategy, kind, key, value):
    text = {"inside:text": "the dog saw a"} if page == "generate" else {}
    at = open_at(page, **{f"{page}:strategy": strategy}, **text)
    before = tree(at) + html_text(at)
    set_control(f"{page}:", at, kind, key, value)
    assert tree(at) + html_text(at) != before


test_what_decode_says_of_a_source = page_cases(
    "decode",
    {
        "none": Case(says=["type at least one token"], do=[("text_input", "source", "")]),
        "long": Case(says=["at most 20"], do=[("text_input", "source", "one " * 30)]),
    },
    prefix="decode:",
)


def test_a_text_goes_on_while_the_model_has_positions():
    text, reverse = (make_task(TaskConfig.of(key)) for key in ("names", "reverse"))
    (line,), (word,) = text.held_out(1), reverse.held_out(1)
    most = SearchSettings(longest=1000)
    assert longest_of(text, line, most) == 2 * text.shape.longest - len(line.source)
    assert longest_of(reverse, word, most) == reverse.max_target + 1
    assert longest_of(text, line, SearchSettings(longest=3)) == 3


def test_another_source_and_one_that_is_typed():
    at = open_decode()
    first = at.text_input(key="decode:source").value
    at.button(key="decode:another").click().run()
    assert at.text_input(key="decode:source").value != first
    set_control("decode:", at, "text_input", "source", "seven ; banana")
    assert "Not in the vocabulary, read as <unk>: banana" in captions(at).replace("\\", "")
    assert "which is" not in html_text(at), "nobody knows what is right for it"


def test_measuring_compares_with_greedy_over_same_sources(monkeypatch):
    monkeypatch.setattr("core.studies.decode.SOURCES", 12)
    monkeypatch.setattr("core.studies.decode.SECONDS", 600)
    body = html_text(open_decode().button(key="decode:measure").click().run())
    match = re.search(r"log-probability −([\d.]+) and −([\d.]+)", body)
    assert match and float(match[1]) < float(match[2])
    assert "Greedy" in body and "Beam of 4, α 0" in body and "12 held-out sources" in body, body


@pytest.mark.parametrize(
    ("key", "kind", "changes", "says"),
    [
        ("reverse", "decoder", {}, ()),
        ("reverse", "hybrid", {}, ()),
        ("topics", "decoder", {}, ()),
        ("pictures", "transformer", {}, ["<figure"]),
        ("dates", "recurrent", {"model": ModelConfig.recurrent(16, None)}, ["no attention"]),
        (
            "dates",
            "recurrent",
            {"model": ModelConfig.recurrent(16, "additive", feeding="bahdanau")},
            (),
        ),
    ],
)
def test_any_run_with_a_decoder_can_be_decoded(key, kind, changes, says):
    run = made(key, kind, **changes)
    at = open_decode(run=run.id)
    assert not at.warning
    assert_case(at, Case(controls={"decode:run": run.id}))
    for strategy in ("Sampling", "Greedy"):
        set_control("decode:", at, "segmented_control", "strategy", strategy)
        assert not at.error and "data-place" in tree(at)
    assert_case(at, Case(says=says))


def test_a_run_that_says_no_tokens_is_not_offered():
    run = made("iris", "classifier")
    at = open_decode(run=run.id)
    assert_says(at, "writes no outputs")
    assert run.id not in at.selectbox(key="decode:run").options and "data-place" in tree(at)


def test_the_run_trained_last_is_the_one_that_is_shown():
    config = RunConfig(
        TaskConfig.of("reverse", length=6, vocab=12), ModelConfig.transformer(8, 2), steps=10
    )
    run, session = create_run(config), prepare(config)
    for step in (0, 10):
        session.progress = replace(session.progress, step=step)
        run.save_checkpoint(session, config)
        with torch.no_grad():
            dict(session.model.named_parameters())["output.bias"][5] += 3.0
    run.set_status("finished")
    at = app_at("decode")
    assert_case(
        set_state(at, "train:last", run.id), Case(says=["step 10"], controls={"decode:run": run.id})
    )
    assert len(at.text_input(key="decode:source").value) == 6
    before, first = tree(at), [("selectbox", f"decode:step:{run.id}", 0)]
    assert_case(at, Case(do=first, says=["step 0"]))
    assert tree(at) != before


# Decode and Generate without a page: trees of candidates, strips of tokens, and sentences with their numbers.


ALPHA = SearchSettings("beam", length_penalty=0.5)


def grown(width=16) -> Tree:
    torch.manual_seed(5)
    model: Any = build_model(ModelConfig.transformer(12, 3, position="rope"), Shape(11, 11, 30))
    torch.nn.init.normal_(model.eval().output.weight, std=1.0)
    source = torch.randint(4, 11, (1, 6))
    return beam(model, Prompt(source, torch.ones_like(source).bool()), width=width, max_length=9)


def test_a_step_shows_its_best():
    tree = grown()
    path = tree.path(tree.hypotheses[-1].leaf)
    spots = tree_spots(tree, path)
    places = sorted(spots, key=lambda place: spots[place][1])
    assert {*path} <= {*places} and len(places) < len(tree.candidates)
    by_step: dict[int, list[float]] = {step: [] for step in range(9)}
    for place in places:
        one = tree.candidates[place]
        assert one.step == spots[place][0] and (
            one.fate == "dropped" or one.parent in (*places, -1)
        )
        by_step[one.step].append(one.total)
    for step, totals in by_step.items():
        best = max(one.total for one in tree.candidates if one.step == step)
        assert totals == sorted(totals, reverse=True)
        assert totals[0] == best or len(totals) > RANKS


@each("theme", ["light", "dark"])
def test_picture_has_box_with_its_probability_for_each_spot(theme):
    tree = grown(width=3)
    path = tree.path(tree.hypotheses[0].leaf)
    svg = tree_svg(tree, [f"w{i}" for i in range(11)], path, theme)
    boxes = re.findall(r'<g data-place="(\d+)" data-parent="(-?\d+)".*?>([^<>]*)</text></g>', svg)
    places = tree_spots(tree, path)
    candidates = [tree.candidates[place] for place in places]
    assert boxes == [
        (str(place), str(one.parent), share_text(math.exp(one.logp)))
        for place, one in zip(places, candidates, strict=True)
    ]
    assert svg.count('class="') == len(boxes) and svg.count(" picked") == 1


def test_words_in_the_picture_are_escaped_and_cut():
    tree = Tree([Candidate(0, -1, 0, -0.1, -0.1, "ended")])
    tree.finish(0, -0.1)
    svg = tree_svg(tree, ["<script>alert(1)</script>"], [0], "light")
    assert "<script>" not in svg and "&lt;script" in svg and "…" in svg


@each(
    ("exact", "logp", "says"),
    [
        (
            0.6,
            -1.0,
            "more probable than those of greedy decoding (log-probability −1.00 and −2.00). Their accuracy is 10",
        ),
        (0.5, -1.0, "accuracy is the same"),
        (0.4, -2.0, "no more probable"),
    ],
)
def test_likelier_is_not_called_better(exact, logp, says):
    fact = decode.scores_fact(Score(0.5, -2.0, 7), Score(exact, logp, 6))
    assert says in fact
    assert ("higher" in fact) == (exact > 0.5) and ("lower" in fact) == (exact < 0.5)


def test_bars_have_picked_token_even_where_it_is_unlikely():
    shares = torch.linspace(1, 0, 20).softmax(0)
    made = bars({"model": shares}, [f"t{i}" for i in range(20)], 19, Ink.of("light"))
    rows = made["layer"][0]["data"]["values"]
    assert [row["token"] for row in rows if row["picked"]] == ["t19"] and len(rows) == 8


def test_a_long_text_is_cut_between_its_words():
    words = " ".join(["word"] * 40)
    start, _, end = shorten(words).partition(" … ")
    assert words.startswith(f"{start} ") and words.endswith(f" {end}") and len(shorten(words)) <= 80
    assert shorten("short") == "short" and 70 < len(shorten("x" * 200)) <= 81


# Generate without a page: the strip of tokens, the sentences, what is looked at, and a search that goes on.


@each("theme", ["light", "dark"])
def test_ink_runs_from_page_to_strongest_and_can_be_read(theme):
    assert [shade(place, theme) for place in (0, 1 / 9, 1)] == [
        WEIGHTS[theme][at] for at in (0, 1, -1)
    ]
    fills = [*CATEGORIES[theme], *(shade(place / 200, theme) for place in range(201))]
    assert all(contrast(fill, text_on(fill, theme)) >= 4.5 for fill in fills)
    # The second is the grey that is known to pass on white.
    assert contrast("#FFFFFF", "#000000") == pytest.approx(21)
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)


def test_a_strip_shows_weights():
    tokens, weights = ("<b>", "a", "b", "c"), (0.9, 0.001, None, None)
    drawn = generate_draw.strip(tokens, weights, "light", label='x"y', now=2, chance=0.25)
    styles, *shown = zip(
        *re.findall(r'<span style="(.*?)">(.*?)<small>(.*?)</small>', drawn), strict=True
    )
    assert shown == [("&lt;b&gt;", "a", "b", "c"), ("0.90", "", "0.25", "")]
    assert Ink.of("light").pick in styles[2] and "background" not in styles[2]
    assert "opacity" in styles[3] and 'aria-label="x&quot;y"' in drawn
    # Of very many tokens those with weight are shown.
    many = [0.4 if place in (3, 300) else 0.001 for place in range(400)]
    drawn = generate_draw.strip([f"t{place}" for place in range(400)], many, "dark", label="")
    assert re.findall(r">([^<>]+)<(?:small|/span)", drawn) == ["…", "t3", "…", "t300", "…"]


def small_tree():
    candidates = [
        Candidate(token, parent, step, -1.0, -1.0 * (step + 1), fate)
        for token, parent, step, fate in (
            (4, -1, 0, "kept"),
            (5, -1, 0, "kept"),
            (6, 0, 1, "ended"),
            (7, 1, 1, "cut"),
            (8, 1, 1, "dropped"),
        )
    ]
    tree = Tree(candidates)
    tree.finish(2, -1.0)
    tree.finish(3, -1.5)
    return tree


@each(
    ("pick", "shown"),
    [
        (None, ([0, 2], 0)),
        ((2, 1), ([0, 2], 1)),
        ((2, 9), ([0, 2], 1)),
        ((1, 0), ([1, 3], 0)),  # a beginning that was picked goes on to its output
        ((4, 1), ([1, 4], 1)),
        ((4, 0), ([1, 4], 0)),
    ],
)
def test_a_step_or_a_dropped_candidate_is_looked_at(pick, shown):
    tree = small_tree()
    assert picked_path(tree, tree.hypotheses, pick) == shown


def search(**settings):
    model, chosen = tiny("gpt2"), SearchSettings(**{"longest": 6, **settings})
    started = prepare_generation(model, ModelInputs("the street"))
    return Search(chosen, started, generate_steps(model, started, chosen))


def test_a_search_goes_on_where_it_was_left(monkeypatch):
    for name in ("PATIENCE", "BETWEEN", "SHARE"):
        monkeypatch.setattr(generate, name, 0)
    now, whole = (search(strategy="beam", width=3) for _ in range(2))
    seen: list[int] = []

    def leave(now):
        seen.append(now.tree.length)
        if len(seen) == 2:
            raise KeyboardInterrupt  # as a widget that is used while the page runs

    pytest.raises(KeyboardInterrupt, run, now, leave)
    assert now.tree.length == 2 and not now.done and len(now.outputs()) == 3
    run(now, leave)
    run(whole, lambda now: None)
    assert now.done and now.seconds > 0 and seen == [1, 2, 3, 4, 5, 6, 6]  # the outputs at the end
    assert [one.tokens for one in now.outputs()] == [one.tokens for one in whole.tree.hypotheses]
    stopped = search()
    stopped.stopped = True
    run(stopped, leave)
    assert stopped.tree.length == 0 and not stopped.outputs()


def drawn_strip(at):
    return " ".join(e.proto.body for e in at.get("html") if 'class="lab-strip"' in e.proto.body)


def test_an_answer_that_is_begun_is_gone_on_with():
    link = {"inside:model": "numbers", "inside:text": "forty-seven", "inside:target": "acht"}
    at, model = open_generate(**link), load_lab_model("numbers")
    given = ModelInputs("forty-seven", target="acht")
    tokens = generate_text(model, given, SearchSettings()).hypotheses[0].tokens
    assert ">acht<" in drawn_strip(at)
    text = decode_text(model, tokens)
    assert_says(at, text)
    assert text in [code.value for code in at.code], "the whole text, to be copied"
    assert "acht" not in decode_text(model, tokens[:1])


def test_what_one_session_searched_all_others_have():
    link = {"inside:text": "the king saw the dog . the king", "generate:strategy": "Sampling"}
    first, again = open_generate(**link), open_generate(**link)
    assert going(again).tree is going(first).tree
    assert [" steps per second" in captions(at) for at in (first, again)] == [True, False]
    assert drawn_strip(again) == drawn_strip(first)


def test_the_timeline_moves_the_token_that_is_said():
    at = open_generate()
    before = drawn_strip(at)
    slide(at, 5)
    assert_says(at, "At step 5 the model gives")
    assert drawn_strip(at) != before
    place = f"{going(at).tree.hypotheses[0].leaf}.4"
    assert query_value(at, "at") == place
    assert_says(open_generate(at=place), "At step 5 the model gives")


def slide(at, step):
    next(e for e in at.slider if e.key.startswith("generate:step")).set_value(step)
    at.run()


def going(at, value=Controls.going):
    *_, search = at.session_state[value.key].values()
    return search


def test_another_output_is_looked_at_where_it_parts():
    at = open_generate(**{"generate:strategy": "Beam"})
    tree = going(at).tree
    best, other = (tree.path(tree.hypotheses[place].leaf) for place in (0, 2))
    parts = next(
        step for step, (one, two) in enumerate(zip(best, other, strict=False)) if one != two
    )
    picked = [("selectbox", "generate:output", tree.hypotheses[2].leaf)]
    says, link = f"At step {parts + 1} the model", {"at": f"{other[-1]}.{parts}"}
    assert_case(at, Case(do=picked, says=[says], query=link))
    slide(at, 1)
    # Still on that output, though the best begins alike.
    assert_case(at, Case(query={"at": f"{other[-1]}.0"}))


def test_a_search_that_is_stopped_shows_what_it_has(monkeypatch):
    # As a slow model does: it is drawn while it goes on, and Stop holds it between two steps.
    drawn = []

    def stop_after_three(now, draw, run=generate.run):
        def watched(now):
            draw(now)
            drawn.append(now.tree.length)
            now.stopped = now.stopped or len(drawn) == 3

        run(now, watched)

    for name, value in (("PATIENCE", -1), ("BETWEEN", -1), ("SHARE", 0), ("run", stop_after_three)):
        monkeypatch.setattr(generate, name, value)
    at = open_generate(
        **{"inside:model": "induction", "inside:text": "the young queen sees the river . the young"}
    )
    assert drawn == [1, 2, 3] and "Stopped after 3 tokens." in [m.value for m in at.markdown]
    first = going(at).tree
    assert_case(at, Case(do=[("button", "generate:go-on", None)], never=["Stopped"]))
    assert going(at).tree is first and going(at).done
    assert len(first.hypotheses[0]) == 20 and drawn[-1] == 20


def test_sentences_tell_choices_with_their_numbers():
    names, own = {0: "zero", 1: "one", 2: "two*"}, torch.tensor([0.7, 0.2, 0.1])
    assert generate_draw.token_fact(own, own, 0, names, 2) == (
        "At step 3 the model gives **zero** 0.70; the next most likely, “one”, has 0.20."
    )
    assert generate_draw.token_fact(torch.tensor([0.5, 0.3, 0.2]), own, 2, names, 0) == (
        "At step 1 the search gives **two\\*** 0.20, its third choice; its first is “zero”, with 0.50. "
        "At temperature 1 and with every token allowed: 0.10."
    )
    assert [
        generate_draw.ordinal(rank) for rank in (2, 3, 4, 11, 21, 22, 103, 112, 1001)
    ] == "second third 4th 11th 21st 22nd 103rd 112th 1,001st".split()


@each(
    ("strategy", "order", "words"),
    [
        ("beam", (1, 0), "another output is more likely (log-probability −2.00, here −3.00)"),
        ("beam", (0, 1), "ranks the most likely of its 2"),
        ("greedy", (0,), ""),
    ],
)
def test_a_beam_that_prefers_the_longer_says_so(strategy, order, words):
    both = Hypothesis(0, (1,), -2.0, -2.0), Hypothesis(1, (1, 2, 3), -3.0, -1.0)
    settings, texts = SearchSettings(strategy, width=2), ["a", "a b c"]
    said = generate_draw.outputs_fact(
        settings, [both[at] for at in order], [texts[at] for at in order]
    )
    assert words in said and bool(words) == bool(said)


@each(
    "settings, at, more, says, end",
    [
        (ALPHA, 0, ("1",), [r"\frac{−2.00}{2^{0.5}} = −1.41"], ""),
        (
            ALPHA,
            -1,
            ("t", r"\left(\frac{{5 + {}}}{{6}}\right)", penalty),
            [r"\frac{−2.00}{\left(\frac{5 + 2}{6}\right)^{0.5}}"],
            number(-2 / (7 / 6) ** 0.5),
        ),
        (SearchSettings(), 1, ("t",), ["p = 0.37"], ""),
        (
            SearchSettings("sampling", temperature=0.5, top_k=3),
            1,
            ("t",),
            ["kept by top-k 3", "T = 0.5"],
            r"0.37 \to 0.25",
        ),
    ],
)
def test_equations_hold_the_path_s_numbers(settings, at, more, says, end):
    tree = small_tree()
    tree.candidates[2].chance = 0.25
    equation = search_equation(settings, tree, [0, 2], at, *more)
    assert [one for one in says if one not in equation] == [] and equation.endswith(end)


def test_steering_moves_what_is_written_next():
    app = open_generate(**{"generate:strength": "0.5", "generate:longest": "6"})
    assert_says(app, "With 0.50 × the direction after L4, bought gets 0.19 as the next token")
    sides = [
        one.value for one in app.markdown if one.value.startswith(("**Without it", "**With it"))
    ]
    assert len(sides) == 2 and sides[0].split("**")[2] != sides[1].split("**")[2]
    app.slider(key="generate:strength").set_value(0.0).run()
    assert_says(app, "0 of 6 tokens of the text change")
    app.text_area(key="generate:away").set_value("").run()
    assert_says(app, "A direction needs a text on each side.")


def test_steering_is_stopped_and_goes_on(monkeypatch):
    # Drawn while it goes on, outside a fragment, so that a press interrupts it; Stop holds both texts.
    drawn = []

    def stop_after_two(now, show, run=generate.run):
        def watched(now):
            show(now)
            drawn.append(progress._in_fragment.get())
            if len(drawn) == 2:
                for one in st.session_state[Controls.steering.key].values():
                    one.stopped = True

        run(now, watched if now.settings == SearchSettings(longest=4) else show)

    for name, value in (("PATIENCE", -1), ("BETWEEN", -1), ("SHARE", 0), ("run", stop_after_two)):
        monkeypatch.setattr(generate, name, value)
    at = open_generate(**{"generate:strength": "0.625", "generate:longest": "4"})
    assert drawn == [False, False]
    assert_says(at, "Stopped after 3 tokens.", "Without it", "With it")
    stopped = list(at.session_state[Controls.steering.key].values())
    assert_case(at, Case(do=[("button", "generate:steered:go-on", None)], never=["Stopped after"]))
    assert len(drawn) > 2 and not any(drawn)
    assert all(one.done for one in stopped)
    assert list(at.session_state[Controls.steering.key].values()) == stopped


def test_steering_says_what_it_cannot_steer():
    app = open_generate(**{"generate:strength": "1.0", "inside:model": "numbers"})
    assert_says(app, "numbers reads with one part and writes with another")
