"""The files of a claim, opened by other programs, and its figures without x: a row a condition, each seed a mark."""

import base64
import csv
import io
import json
import re
import zipfile
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from pypdf import PdfReader

from core.claims import shipped
from core.claims.base import verdict
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.entries.scores import GRADIENT, UNSCALED
from core.claims.shipped import ship
from core.entries import Param
from core.studies.claims import ClaimResult
from pages import claims
from tests.claims.made_up import World, results
from tests.claims.test_rules import scaling as world
from tests.claims.test_run import TINY

# The files of a claim, opened by other programs: CSV, JSON, SVG, PDF, LaTeX and BibTeX.


CLAIM = claim_of("scaling")


def test_every_file_of_a_claim_opens():
    settings = CLAIM.settle({"steps": 50})
    measured = ClaimResult(CLAIM, settings, results(world(0.02, 0.5), 0.01))
    result = ship(
        CLAIM,
        settings,
        measured.results.cells,
        {"device": "abacus"},
        shipped.command(CLAIM, settings),
    )
    files = zipfile.ZipFile(io.BytesIO(claims.archive(result, measured)))
    folder = {name.removeprefix("claim-scaling/"): files.read(name) for name in files.namelist()}
    assert len([name for name in folder if name.endswith((".svg", ".pdf"))]) == 2 * len(
        CLAIM.figures
    )
    assert "python -m core.claims run scaling --set steps=50\n" in folder["README.txt"].decode()
    assert json.loads(folder["config.json"]) == {"claim": "scaling", "settings": settings}
    assert json.loads(folder["measured.json"])["machine"] == {"device": "abacus"}
    rows = list(csv.DictReader(io.StringIO(folder["results.csv"].decode())))
    read = [
        float(row["value"])
        for row in rows
        if (row["condition"], row["measure"], row["x"]) == (UNSCALED, GRADIENT, "512")
    ]
    assert read == measured.results.values(UNSCALED, GRADIENT, 512.0)
    svg = ElementTree.fromstring(folder["figure-2-gradient-of-the-softmax.svg"])
    texts = [node.text for node in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {CLAIM.figures[1].title, UNSCALED, "d_k", "512"} <= set(texts)
    (page,) = PdfReader(io.BytesIO(folder["figure-2-gradient-of-the-softmax.pdf"])).pages
    assert UNSCALED in page.extract_text()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_latex_and_bibtex_are_well_formed(claim):
    table = shipped.latex_table(claim, verdict(claim, claim.settle(), results({})))
    lines = [line for line in table.splitlines() if line.endswith("\\\\")]
    assert len(lines) == len(claim.parts) + 1
    assert all(len(re.findall(r"(?<!\\)&", line)) == 4 for line in lines)
    for text in (table, claim.source.bibtex, shipped.citation(claim, "2026-11-23")):
        bare = re.sub(r"\\[\\{}]", "", text)
        assert bare.count("{") == bare.count("}") and not re.search(r"[√×²≥≤−→]", text)
    assert shipped.latex("√d_k − 3 % & {x}") == r"$\surd$d\_k $-$ 3 \% \& \{x\}"


def test_the_command_has_what_was_changed():
    two = Param("fast", "Fast", False, meaning="skips half")
    claim = replace(CLAIM, settings=(*CLAIM.settings, two))
    assert shipped.command(claim, claim.settle()) == "python -m core.claims run scaling"
    changed = shipped.command(claim, claim.settle({"seeds": 3, "fast": True}))
    assert changed.endswith("run scaling --set seeds=3 --set fast=true")


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
