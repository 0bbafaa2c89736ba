"""Figures of claims without x: a row a condition, each seed a mark, on the page and as a thumbnail on the card."""

import base64
import re
from dataclasses import replace
from xml.etree import ElementTree

from core.studies.claims import ClaimResult
from pages import claims
from tests.claims.made_up import World, results
from tests.claims.test_run import TINY

WORLD: World = {("a", "m", None): 1.0, ("b", "m", None): 3.0}


def measured(seeds: int) -> ClaimResult:
    return ClaimResult(TINY, TINY.settle({"seeds": seeds}), results(WORLD, 0.1, seeds))


def test_a_thumbnail_has_a_mark_for_each_seed_of_each_condition():
    html = claims.card(TINY, measured(5), "light")
    (source,) = re.findall(r'base64,([^"]+)"', html)
    marks = list(ElementTree.fromstring(base64.b64decode(source)))
    places = [float(mark.get("d").removeprefix("M").split()[0]) for mark in marks]
    assert len(marks) == 10 and max(places[:5]) < min(places[5:]), "b is more than a in each seed"
    assert "✓ holds" in html and "of 1 parts" not in html and "●" in html
    assert "✓" not in claims.card(TINY, measured(5), "light", hidden=True)
    assert "Not measured yet" in claims.card(TINY, None, "dark")


def test_two_results_stand_in_one_figure_in_the_colours_of_their_conditions():
    spec = claims.results_figure(
        TINY.figures[0], {"yours": measured(3), "the lab's": measured(5)}, "light"
    )
    points = [layer for layer in spec["layer"] if layer["mark"]["type"] == "point"]
    names = [layer["data"]["values"][0]["name"] for layer in points]
    colours = [layer["mark"]["color"] for layer in points]
    assert names == ["a (yours)", "b (yours)", "a (the lab's)", "b (the lab's)"]
    assert [len(layer["data"]["values"]) for layer in points] == [3, 3, 5, 5]
    assert colours[:2] == colours[2:] and colours[0] != colours[1] and "title" not in spec


def test_an_interval_that_reaches_below_zero_is_cut_on_a_logarithmic_axis():
    figure = replace(TINY.figures[0], log="y")
    spec = claims.results_figure(
        figure,
        {"yours": ClaimResult(TINY, TINY.settle({"seeds": 2}), results(WORLD, 0.2, 2))},
        "light",
    )
    rules = [layer for layer in spec["layer"] if layer["mark"]["type"] == "rule"]
    assert all(layer["encoding"]["x"]["scale"]["type"] == "log" for layer in rules)
    assert min(row["low"] for layer in rules for row in layer["data"]["values"]) > 0
