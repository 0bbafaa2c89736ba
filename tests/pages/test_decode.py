"""The page Decode, driven without a browser: the kept example, every strategy and kind of run, links and refusals."""

import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from core.models import ModelConfig, Shape, build_model
from core.models.decoding import Candidate, Hypothesis, Prompt, SearchSettings, Tree, beam, penalty
from core.pretrained import ModelInputs
from core.pretrained.generate import generate_steps, prepare_generation
from core.runs.runs import create_run
from core.studies.decode import Score
from core.tasks import Task, TaskConfig, make_task
from core.training import RunConfig, prepare, recommended
from dashboard.draw.formats import number, shorten
from dashboard.draw.grids import bars
from dashboard.draw.page_views import RANKS, tree_spots, tree_svg
from dashboard.draw.palette import CATEGORIES, WEIGHTS, Ink, contrast, shade, text_on
from dashboard.ui.decoding import search_equation
from dashboard.ui.models import EMBEDDED
from pages import decode, generate
from pages.decode import HALF_TRAINED
from pages.generate import Controls, Search, picked_path, run, strip
from tests.cases import each
from tests.pages.app import app_at, html_text, open_at, tree
from tests.tiny_models import tiny

open_page = partial(open_at, "decode")


def made(task: TaskConfig, kind: str, **changes):
    """A run that was never trained, but has kept its weights: all that this page needs."""
    config = recommended(make_task(task), kind, steps=2, held_out=2, **changes)
    run = create_run(config)
    run.save_checkpoint(prepare(config), config)
    run.set_status("finished")
    return run


def test_at_first_sight_a_beam_is_right_where_greedy_is_wrong():
    at = open_page()
    assert not at.error and not at.warning
    checkpoint: tuple[Any, Task] = HALF_TRAINED.model()
    model, task = checkpoint
    typed = at.text_input(key="decode:source").value
    batch = task.collate([task.example(typed)])
    prompt, longest = Prompt(batch.source, batch.source_mask), task.max_target + 1
    one, four = (
        beam(model, prompt, width=width, max_length=longest).hypotheses[0] for width in (1, 4)
    )
    target = next(e.target for e in task.held_out(40) if e.source == tuple(typed.split()))
    written = [tuple(task.target_vocab.decode(output.tokens)) for output in (one, four)]
    assert written[1] == target != written[0]
    body = html_text(at)
    assert f"{' '.join(target)}</b>, which is correct" in body and "which is wrong" in body
    assert number(four.logp) in body and f"probability {number(math.exp(four.logp))}" in body
    assert any(number(four.logp) in e.value for e in at.latex)


def test_every_setting_changes_the_tree_and_a_link_brings_it():
    at = open_page(**{"decode:strategy": "Sampling"})
    assert "of 20 samples" in html_text(at)
    for kind, name, value in (
        ("select_slider", "temperature", 2.0),
        ("number_input", "top_k", 3),
        ("slider", "top_p", 0.5),
        ("slider", "samples", 7),
        ("number_input", "seed", 3),
    ):
        before = tree(at)
        getattr(at, kind)(key=f"decode:{name}").set_value(value)
        at.run()
        assert tree(at) != before, name
    at = open_page(**{"decode:width": "2", "decode:penalty": "1.0"})
    assert at.slider(key="decode:width").value == 2 and html_text(at).count('<th scope="row"') == 2


def test_another_source_and_one_that_is_typed():
    at = open_page()
    first = at.text_input(key="decode:source").value
    at.button(key="decode:another").click().run()
    assert at.text_input(key="decode:source").value != first
    at.text_input(key="decode:source").set_value("seven ; banana").run()
    assert "Not in the vocabulary, read as <unk>: banana" in at.caption[0].value.replace("\\", "")
    assert "which is" not in html_text(at), "nobody knows what is right for it"
    for typed, words in (("", "type at least one token"), ("one " * 30, "at most 20")):
        at.text_input(key="decode:source").set_value(typed).run()
        assert words in at.error[0].value


def test_measuring_compares_with_greedy_over_the_same_sources():
    body = html_text(open_page().button(key="decode:measure").click().run())
    match = re.search(r"log-probability −([\d.]+) and −([\d.]+)", body)
    assert match and float(match[1]) < float(match[2])
    assert "Greedy" in body and "Beam of 4, α 0" in body


@pytest.mark.parametrize(
    ("key", "kind", "changes"),
    [
        ("reverse", "decoder", {}),
        ("reverse", "hybrid", {}),
        ("topics", "decoder", {}),
        ("pictures", "transformer", {}),
        ("dates", "recurrent", {"model": ModelConfig.recurrent(16, None)}),
        (
            "dates",
            "recurrent",
            {"model": ModelConfig.recurrent(16, "additive", feeding="bahdanau")},
        ),
    ],
)
def test_any_run_with_a_decoder_can_be_decoded(key, kind, changes):
    run = made(TaskConfig.of(key), kind, **changes)
    at = open_page(run=run.id)
    assert not at.error and not at.warning and at.selectbox(key="decode:run").value == run.id
    for strategy in ("Sampling", "Greedy"):
        at.segmented_control(key="decode:strategy").set_value(strategy).run()
        assert not at.error and "data-place" in tree(at)
    if changes and changes["model"].attention is None:
        assert any("no attention" in c.value for c in at.caption)
    if key == "pictures":
        assert html_text(at).count("<figure") > 0


def test_a_run_that_says_no_tokens_is_not_offered():
    run = made(TaskConfig.of("iris"), "classifier")
    at = open_page(run=run.id)
    assert "has no decoder" in at.warning[0].value.replace("\\", "")
    assert run.id not in at.selectbox(key="decode:run").options and "data-place" in tree(at)


def test_the_run_trained_last_is_the_one_that_is_shown():
    run = made(TaskConfig.of("copy", length=6), "transformer")
    at = app_at("decode")
    at.session_state["train:last"] = run.id
    at.run()
    assert at.selectbox(key="decode:run").value == run.id
    assert len(at.text_input(key="decode:source").value) == 6


def test_a_kept_step_can_be_chosen():
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
    at = open_page(run=run.id)
    assert "step 10" in at.caption[0].value
    before = tree(at)
    at.selectbox(key=f"decode:step:{run.id}").set_value(0).run()
    assert "step 0" in at.caption[0].value and tree(at) != before


# Decode and Generate without a page: trees of candidates, strips of tokens, and sentences with their numbers.


NAMES = [f"w{i}" for i in range(11)]


def grown(width=16, longest=9) -> Tree:
    torch.manual_seed(5)
    model: Any = build_model(
        ModelConfig.transformer(12, 3, position="rope"), Shape(11, 11, 30)
    ).eval()
    torch.nn.init.normal_(model.output.weight, std=1.0)
    source = torch.randint(4, 11, (1, 6))
    return beam(
        model, Prompt(source, torch.ones_like(source).bool()), width=width, max_length=longest
    )


def test_a_step_shows_its_best_and_all_that_leads_to_what_is_shown():
    tree = grown()
    path = tree.path(tree.hypotheses[-1].leaf)
    spots = tree_spots(tree, path)
    places = {spot.place for spot in spots}
    assert set(path) <= places and len(places) < len(tree.candidates)
    by_step: dict[int, list[float]] = {}
    for spot in sorted(spots, key=lambda spot: spot.rank):
        one = tree.candidates[spot.place]
        assert one.step == spot.step and (one.fate == "dropped" or one.parent in (*places, -1))
        by_step.setdefault(one.step, []).append(one.total)
    assert sorted(by_step) == list(range(9))
    for step, totals in by_step.items():
        best = max(one.total for one in tree.candidates if one.step == step)
        assert totals == sorted(totals, reverse=True)
        assert totals[0] == best or len(totals) > RANKS


@each("theme", ["light", "dark"])
def test_the_picture_has_a_box_with_its_probability_for_each_spot(theme):
    tree = grown(width=3)
    path = tree.path(tree.hypotheses[0].leaf)
    svg = tree_svg(tree, NAMES, path, theme)
    boxes = re.findall(r'<g data-place="(\d+)" data-parent="(-?\d+)".*?</g>', svg)
    assert [int(place) for place, _ in boxes] == [spot.place for spot in tree_spots(tree, path)]
    for place, parent in boxes:
        assert tree.candidates[int(place)].parent == int(parent)
        chance = math.exp(tree.candidates[int(place)].logp)
        assert re.search(rf'data-place="{place}".*?>{number(chance)}</text></g>', svg)
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


def test_bars_have_the_picked_token_even_where_it_is_unlikely():
    shares = torch.linspace(1, 0, 20).softmax(0)
    made = bars({"model": shares}, [f"t{i}" for i in range(20)], 19, Ink.of("light"))
    rows = made["layer"][0]["data"]["values"]
    assert [row["token"] for row in rows if row["picked"]] == ["t19"] and len(rows) == 8


def test_a_long_text_is_cut_between_its_words_and_anywhere_where_it_has_none():
    words = " ".join(["word"] * 40)
    start, _, end = shorten(words).partition(" … ")
    assert words.startswith(f"{start} ") and words.endswith(f" {end}") and len(shorten(words)) <= 80
    assert shorten("short") == "short" and 70 < len(shorten("x" * 200)) <= 81


# Generate without a page: the strip of tokens, the sentences, what is looked at, and a search that goes on.


@each("theme", ["light", "dark"])
def test_ink_runs_from_the_page_to_the_strongest_and_can_be_read(theme):
    stops = [shade(place, theme) for place in (0, 1 / 9, 1)]
    assert stops == [WEIGHTS[theme][at] for at in (0, 1, -1)]
    fills = [*CATEGORIES[theme], *(shade(place / 200, theme) for place in range(201))]
    assert all(contrast(fill, text_on(fill, theme)) >= 4.5 for fill in fills)
    # The second is the grey that is known to pass on white.
    assert contrast("#FFFFFF", "#000000") == pytest.approx(21)
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)


def test_a_strip_shows_weights_before_the_token_that_is_said_and_nothing_after_it():
    tokens, weights = ("<b>", "a", "b", "c"), (0.9, 0.001, None, None)
    drawn = strip(tokens, weights, "light", label='x"y', now=2, chance=0.25)
    spans = re.findall(r'<span style="(.*?)">(.*?)<small>(.*?)</small>', drawn)
    shown = [(token, number) for _, token, number in spans]
    assert shown == [("&lt;b&gt;", "0.90"), ("a", ""), ("b", "0.25"), ("c", "")]
    new, later = spans[2][0], spans[3][0]
    assert Ink.of("light").pick in new and "background" not in new and "opacity" in later
    assert 'aria-label="x&quot;y"' in drawn
    # Of very many tokens those with weight are shown.
    many = [0.4 if place in (3, 300) else 0.001 for place in range(400)]
    drawn = strip([f"t{place}" for place in range(400)], many, "dark", label="")
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
def test_what_is_looked_at_is_an_output_s_step_or_the_dropped_candidate(pick, shown):
    tree = small_tree()
    assert picked_path(tree, tree.hypotheses, pick) == shown


def search(**settings):
    model, chosen = tiny("gpt2"), SearchSettings(**{"longest": 6, **settings})
    started = prepare_generation(model, ModelInputs("the street"))
    controls = Controls(EMBEDDED, ModelInputs("the street"), chosen)
    return Search(controls, started, generate_steps(model, started, chosen))


def test_a_search_goes_on_where_it_was_left(monkeypatch):
    for name in ("PATIENCE", "BETWEEN", "SHARE"):
        monkeypatch.setattr(f"pages.generate.{name}", 0)
    now, whole, seen = search(strategy="beam", width=3), search(strategy="beam", width=3), []

    def leave(now):
        seen.append(now.length)
        if len(seen) == 2:
            raise KeyboardInterrupt  # as a widget that is used while the page runs

    with pytest.raises(KeyboardInterrupt):
        run(now, leave)
    assert now.length == 2 and not now.done and len(now.outputs()) == 3
    run(now, leave)
    run(whole, lambda now: None)
    assert now.done and now.seconds > 0 and seen == [1, 2, 3, 4, 5, 6, 6]  # the outputs at the end
    assert [one.tokens for one in now.outputs()] == [one.tokens for one in whole.tree.hypotheses]
    stopped = search()
    stopped.stopped = True
    run(stopped, leave)
    assert stopped.length == 0 and not stopped.outputs()


def test_sentences_tell_first_and_other_choices_with_their_numbers():
    names, logits = {0: "zero", 1: "one", 2: "two*"}, torch.tensor([0.7, 0.2, 0.1]).log()
    assert generate.token_fact(logits, 0, names, 2) == (
        "At step 3 the model gives **zero** 0.70; the next most likely, “one”, has 0.20."
    )
    assert generate.token_fact(logits, 2, names, 0) == (
        "At step 1 the model gives **two\\*** 0.10, its third choice; its first is “zero”, with 0.70."
    )
    ranks = [generate.ordinal(rank) for rank in (2, 3, 4, 11, 21, 22, 103, 112, 1001)]
    assert ranks == "second third 4th 11th 21st 22nd 103rd 112th 1,001st".split()


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
    said = generate.outputs_fact(settings, [both[at] for at in order], [texts[at] for at in order])
    assert words in said and bool(words) == bool(said)


def test_equations_hold_the_path_s_numbers():
    tree, beam_search = small_tree(), SearchSettings("beam", length_penalty=0.5)
    assert r"\frac{−2.00}{2^{0.5}} = −1.41" in search_equation(beam_search, tree, [0, 2], 0, "1")
    base = r"\left(\frac{{5 + {}}}{{6}}\right)"
    wu = search_equation(beam_search, tree, [0, 2], -1, "t", base, penalty)
    assert r"\frac{−2.00}{\left(\frac{5 + 2}{6}\right)^{0.5}}" in wu
    assert wu.endswith(number(-2 / (7 / 6) ** 0.5))
    assert "p = 0.37" in search_equation(SearchSettings(), tree, [0, 2], 1, "t")
    tree.candidates[2].chance = 0.25
    sampling = SearchSettings("sampling", temperature=0.5, top_k=3)
    sampled = search_equation(sampling, tree, [0, 2], 1, "t")
    assert (
        sampled.endswith(r"0.37 \to 0.25") and "kept by top-k 3" in sampled and "T = 0.5" in sampled
    )
