"""Decode without a page: where candidates stand, what the picture says of them, and sentences with their numbers."""

import math
import re
from typing import Any

import torch

from core.models import ModelConfig, Shape, build_model
from core.models.decoding import Candidate, Prompt, SearchSettings, Tree, beam
from core.studies.decode import Score
from dashboard.draw import drawings
from dashboard.draw.formats import number, shorten
from dashboard.draw.grids import bars
from dashboard.draw.palette import Ink
from pages import decode
from tests.cases import each

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
    spots = drawings.spots(tree, path)
    places = {spot.place for spot in spots}
    assert set(path) <= places and len(places) < len(tree.candidates)
    for spot in spots:
        one = tree.candidates[spot.place]
        assert one.step == spot.step
        assert one.fate == "dropped" or one.parent in (*places, -1)
    for step in range(9):
        ranks = [spot for spot in spots if spot.step == step]
        totals = [
            tree.candidates[spot.place].total for spot in sorted(ranks, key=lambda spot: spot.rank)
        ]
        assert totals == sorted(totals, reverse=True) and len(ranks) >= 1
        best = max(one.total for one in tree.candidates if one.step == step)
        assert totals[0] == best or len(ranks) > drawings.RANKS


@each("theme", ["light", "dark"])
def test_the_picture_has_a_box_with_its_probability_for_each_spot(theme):
    tree = grown(width=3)
    path = tree.path(tree.hypotheses[0].leaf)
    svg = drawings.picture(tree, NAMES, path, theme)
    boxes = re.findall(r'<g data-place="(\d+)" data-parent="(-?\d+)".*?</g>', svg)
    assert [int(place) for place, _ in boxes] == [spot.place for spot in drawings.spots(tree, path)]
    for place, parent in boxes:
        assert tree.candidates[int(place)].parent == int(parent)
        chance = math.exp(tree.candidates[int(place)].logp)
        assert re.search(rf'data-place="{place}".*?>{number(chance)}</text></g>', svg)
    assert svg.count('class="') == len(boxes) and svg.count(" picked") == 1


def test_words_in_the_picture_are_escaped_and_cut():
    tree = Tree([Candidate(0, -1, 0, -0.1, -0.1, "ended")])
    tree.finish(0, -0.1)
    svg = drawings.picture(tree, ["<script>alert(1)</script>"], [0], "light")
    assert "<script>" not in svg and "&lt;script" in svg and "…" in svg


def test_equations_have_the_paths_own_numbers():
    tree = grown(width=3)
    path = tree.path(tree.hypotheses[0].leaf)
    total = tree.candidates[path[-1]].total
    beam_search = SearchSettings("beam", length_penalty=0.7)
    assert number(total / ((5 + len(path)) / 6) ** 0.7) in decode.equation(beam_search, tree, path)
    own = number(math.exp(tree.candidates[path[-1]].logp))
    assert f"p = {own}" in decode.equation(SearchSettings("greedy"), tree, path)
    tree.candidates[path[-1]].chance = 0.4321
    equation = decode.equation(SearchSettings("sampling", temperature=0.5, top_k=7), tree, path)
    assert equation.endswith(r"\to 0.43") and "top-k 7" in equation and "T = 0.5" in equation


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
    rows = (made if "data" in made else made["layer"][0])["data"]["values"]
    assert [row["token"] for row in rows if row["picked"]] == ["t19"]
    assert len(rows) == 8


def test_a_long_text_is_cut_between_its_words_and_anywhere_where_it_has_none():
    words = " ".join(["word"] * 40)
    start, _, end = shorten(words).partition(" … ")
    assert words.startswith(f"{start} ") and words.endswith(f" {end}") and len(shorten(words)) <= 80
    assert shorten("short") == "short" and 70 < len(shorten("x" * 200)) <= 81
