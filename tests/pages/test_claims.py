"""The page Claims, driven without a browser: the index, a claim with its guess, and a run of the reader's own."""

import base64
import csv
import io
import json
import re
import zipfile
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import pytest
from pypdf import PdfReader

from core.claims import shipped
from core.claims.base import CellResult, Claim, ClaimResult, Pick, Sketch, verdict
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.entries.cost import EXACT, LONG_CACHE as CACHE
from core.claims.entries.scores import GRADIENT, UNSCALED
from core.claims.run import CELLS, find_group
from core.claims.shipped import ship
from core.entries import Param
from dashboard.server import jobs
from pages import claims
from tests.cases import instance
from tests.claims.test_claims import TINY, World, results, scaling as world
from tests.pages.app import html_text, open_at, page_text, query_value

CLAIM = claim_of("scaling")


@pytest.fixture
def shipped_results(tmp_path, monkeypatch):
    """A made-up result of the first claim in place of the shipped ones."""
    made_up = results(world(0.02, 0.5), 0.01)
    result = ship(
        CLAIM, CLAIM.settle(), made_up.cells, {"device": "abacus", "threads": 1}, "the command"
    )
    result.save(tmp_path / f"{CLAIM.key}.json")
    monkeypatch.setattr("core.claims.shipped.FOLDER", tmp_path)


@pytest.fixture
def with_a_line(shipped_results):
    """The first claim with a line to draw in place of its question."""
    place, question = (
        CLAIMS.index(CLAIM),
        Sketch("How much gradient is left?", GRADIENT, UNSCALED, 0.0, 0.5),
    )
    CLAIMS[place] = Claim(**{**vars(CLAIM), "guess": question})
    yield
    CLAIMS[place] = CLAIM


def complaints(app):
    return [*app.warning, *app.error, *app.exception]


def test_the_index_has_every_claim_with_its_verdict(shipped_results):
    app = open_at("claims")
    words, links = (
        unescape(page_text(app)),
        {link.proto.query_string for link in app.get("page_link")},
    )
    assert (
        not complaints(app)
        and all(claim.statement in words for claim in CLAIMS)
        and {f"claim={claim.key}" for claim in CLAIMS} <= links
    )
    assert "1 holds" in words and "✓ holds" in words and "data:image/svg+xml" in html_text(app)
    app.toggle(key="claims:hide").set_value(True).run()
    words = page_text(app)
    assert CLAIM.source.text in words and "✓" not in words and "1 holds" not in words


def test_a_seed_that_lacks_a_condition_does_not_answer_the_guess(shipped_results, tmp_path):
    claim, draw = claim_of("hybrid"), (0.9, 0.88, 0.4, 0.95, 0.9)
    cells = [
        CellResult(condition, seed, 1.0, ((EXACT, value, None), (CACHE, 10.0 * value, None)))
        for seed in (0, 1)
        for condition, value in zip(claim.conditions({}), draw, strict=True)
    ]
    cells.append(
        CellResult(claim.conditions({})[0], 2, 1.0, ((EXACT, 0.9, None), (CACHE, 9.0, None)))
    )
    ship(claim, claim.settle({"seeds": 3}), cells, {"device": "abacus"}, "run").save(
        tmp_path / "hybrid.json"
    )
    assert not complaints(
        open_at("claims", claim="hybrid", **{f"claims:{claim.key}:predict": "Show me"})
    )


def test_a_claim_shows_its_verdict_after_the_guess(shipped_results):
    app = open_at("claims", claim=CLAIM.key)
    assert not complaints(app) and "abacus" not in page_text(app)
    app.pills(key=f"claims:{CLAIM.key}:predict").set_value(
        instance(CLAIM.guess, Pick).options[2]
    ).run()
    words = page_text(app)
    assert not complaints(app) and "Right." in words and "abacus" in words and "5 hold" in words
    assert html_text(app).count("it must be") >= len(CLAIM.parts)


def test_a_drawn_line_is_compared_with_the_measured_one(with_a_line):
    app = open_at("claims", claim=CLAIM.key)
    assert (
        not complaints(app)
        and "Draw it first." in page_text(app)
        and "abacus" not in page_text(app)
    )
    for refused in ("0.2_0.2", "0.2_0.2_0.2_0.2_0.2_0.2_0.2_9", "0.2_0.2_0.2_0.2_0.2_0.2_0.2_x"):
        app = open_at("claims", claim=CLAIM.key, **{"scaling:sketch": refused})
        assert "abacus" not in page_text(app), refused
    line = "0.2_0.02_0.02_0.02_0.02_0.02_0.02_0.42"  # what the made-up world has, but for 0.4 at the last of 8 sizes
    app = open_at("claims", claim=CLAIM.key, **{"scaling:sketch": line})
    words = page_text(app)
    assert (
        "abacus" in words
        and re.search(r"on average 0\.05\d? from", words.replace("*", ""))
        and "at d_k 512: you drew 0.42, measured 0.020" in words
        and "your guess" in words
    )
    app.button(key="claims:scaling:sketch:again").click().run()
    assert (
        not complaints(app)
        and "abacus" not in page_text(app)
        and "scaling:sketch" not in app.query_params
    )


def test_a_run_is_stopped_continued_and_told_why_it_failed(shipped_results, monkeypatch):
    monkeypatch.setattr(jobs, "max_workers", lambda: 2)
    monkeypatch.setattr(jobs, "_watch", lambda folder: None)
    app = open_at("claims", claim=CLAIM.key)
    app.slider(key="claims:scaling:seeds").set_value(2).run()
    app.button(key="claims:start").click().run()
    group = find_group(query_value(app, "claims:run"))
    assert group.config.settings["seeds"] == 2 and not complaints(app)
    cells = results(world(0.02, 0.5), 0.01, 2).cells
    (group.runs[0].path / CELLS).write_text(json.dumps(cells[0].to_json()) + "\n", encoding="utf-8")
    again = open_at("claims", claim=CLAIM.key, **{"claims:run": group.id})
    assert "1 of 4 measurements, about" in again.get("progress")[0].proto.text
    again.button(key="claims:stop").click().run()
    assert all(run.stop_request() == "stop" for run in group.runs)
    group.runs[0].set_status("stopped", "Stopped after 1 of 2 parts.")
    group.runs[1].set_status("failed", "MemoryError: no room for a model.")
    again.run()
    assert (
        len(again.error) == 1
        and "MemoryError: no room for a model." in page_text(again)
        and "made 1 of 4 measurements" in page_text(again)
    )
    again.button(key="claims:continue").click().run()
    assert all(run.status().state in ("queued", "starting") for run in group.runs)
    for run in group.runs:
        run.set_status("finished", "Measured 2 parts.")
    lines = "".join(json.dumps(cell.to_json()) + "\n" for cell in cells)
    (group.runs[0].path / CELLS).write_text(lines, encoding="utf-8")
    again.pills(key=f"claims:{CLAIM.key}:predict").set_value(
        instance(CLAIM.guess, Pick).options[2]
    ).run()
    words = page_text(again)
    assert (
        "Your run: the claim cannot be told here" in words and "The lab's measurement" not in words
    )
    again.segmented_control(key="claims:results").set_value("both").run()
    words = unescape(page_text(again))
    assert (
        "Your run: the claim cannot be told here" in words
        and "2 seeds of the 5 that a verdict needs" in words
        and "The lab's measurement: the claim holds" in words
    )
    assert "not divided (yours)" in words and "not divided (the lab's)" in words


# The files of a claim, opened by other programs, and its figures without x: a row a condition, each seed a mark.


# The files of a claim, opened by other programs: CSV, JSON, SVG, PDF, LaTeX and BibTeX.


def test_every_file_of_a_claim_opens_and_its_command_has_what_was_changed():
    settings = CLAIM.settle({"steps": 50})
    result = ship(
        CLAIM,
        settings,
        results(world(0.02, 0.5), 0.01).cells,
        {"device": "abacus"},
        shipped.command(CLAIM, settings),
    )
    files = zipfile.ZipFile(io.BytesIO(claims.archive(result)))
    folder = {name.removeprefix("claim-scaling/"): files.read(name) for name in files.namelist()}
    assert len([name for name in folder if name.endswith((".svg", ".pdf"))]) == 2 * len(
        CLAIM.figures
    )
    assert "python -m core.claims run scaling --set steps=50\n" in folder[
        "README.txt"
    ].decode() and json.loads(folder["config.json"]) == {"claim": "scaling", "settings": settings}
    assert json.loads(folder["measured.json"])["machine"] == {"device": "abacus"}
    rows = list(csv.DictReader(io.StringIO(folder["results.csv"].decode())))
    read = [
        float(row["value"])
        for row in rows
        if (row["condition"], row["measure"], row["x"]) == (UNSCALED, GRADIENT, "512")
    ]
    assert read == result.results.values(UNSCALED, GRADIENT, 512.0)
    svg = ElementTree.fromstring(folder["figure-2-gradient-of-the-softmax.svg"])
    texts = [node.text for node in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {CLAIM.figures[1].title, UNSCALED, "d_k", "512"} <= set(texts)
    (page,) = PdfReader(io.BytesIO(folder["figure-2-gradient-of-the-softmax.pdf"])).pages
    assert UNSCALED in page.extract_text()
    two = Param("fast", "Fast", False, meaning="skips half")
    claim = replace(CLAIM, settings=(*CLAIM.settings, two))
    assert shipped.command(claim, claim.settle()) == "python -m core.claims run scaling"
    changed = shipped.command(claim, claim.settle({"seeds": 3, "fast": True}))
    assert changed.endswith("run scaling --set seeds=3 --set fast=true")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_latex_and_bibtex_are_well_formed(claim):
    table = shipped.latex_table(claim, verdict(claim, claim.settle(), results({})))
    lines = [line for line in table.splitlines() if line.endswith("\\\\")]
    assert len(lines) == len(claim.parts) + 1 and all(
        len(re.findall(r"(?<!\\)&", line)) == 4 for line in lines
    )
    for text in (table, claim.source.bibtex, shipped.citation(claim, "2026-11-23")):
        bare = re.sub(r"\\[\\{}]", "", text)
        assert bare.count("{") == bare.count("}") and not re.search(r"[√×²≥≤−→]", text)
    assert shipped.latex("√d_k − 3 % & {x}") == r"$\surd$d\_k $-$ 3 \% \& \{x\}"


WORLD: World = {("a", "m", None): 1.0, ("b", "m", None): 3.0}


def measured(seeds: int) -> ClaimResult:
    return ClaimResult(TINY, TINY.settle({"seeds": seeds}), results(WORLD, 0.1, seeds))


def test_a_thumbnail_has_a_mark_for_each_seed_of_each_condition():
    html = claims.card(TINY, measured(5), "light")
    (source,) = re.findall(r'base64,([^"]+)"', html)
    marks = list(ElementTree.fromstring(base64.b64decode(source)))
    places = [float(mark.get("d").removeprefix("M").split()[0]) for mark in marks]
    assert len(marks) == 10 and max(places[:5]) < min(places[5:]), "b is more than a in each seed"
    assert (
        "✓ holds" in html
        and "of 1 parts" not in html
        and "●" in html
        and "✓" not in claims.card(TINY, measured(5), "light", hidden=True)
    )
    assert "Not measured yet" in claims.card(TINY, None, "dark")


def test_results_in_one_figure_have_the_colours_of_their_conditions_and_intervals_above_zero():
    spec = claims.results_figure(
        TINY.figures[0], {"yours": measured(3), "the lab's": measured(5)}, "light"
    )
    points = [layer for layer in spec["layer"] if layer["mark"]["type"] == "point"]
    names = [layer["data"]["values"][0]["name"] for layer in points]
    colours = [layer["mark"]["color"] for layer in points]
    assert names == ["a (yours)", "b (yours)", "a (the lab's)", "b (the lab's)"] and [
        len(layer["data"]["values"]) for layer in points
    ] == [3, 3, 5, 5]
    assert colours[:2] == colours[2:] and colours[0] != colours[1] and "title" not in spec
    spec = claims.results_figure(
        replace(TINY.figures[0], log="y"),
        {"yours": ClaimResult(TINY, TINY.settle({"seeds": 2}), results(WORLD, 0.2, 2))},
        "light",
    )
    rules = [layer for layer in spec["layer"] if layer["mark"]["type"] == "rule"]
    assert (
        all(layer["encoding"]["x"]["scale"]["type"] == "log" for layer in rules)
        and min(row["low"] for layer in rules for row in layer["data"]["values"]) > 0
    )
