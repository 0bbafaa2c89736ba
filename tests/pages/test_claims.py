"""The page Claims, driven without a browser: the index, a claim with its guess, and a run of the reader's own."""

import base64
import io
import json
import re
import zipfile
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from pypdf import PdfReader

from core.claims import run as claim_runs
from core.claims.base import CellResult, Claim, ClaimResult, Pick, Sketch, verdict
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.entries.cost import EXACT, LONG_CACHE as CACHE
from core.claims.entries.scores import GRADIENT, UNSCALED
from core.claims.run import CELLS, find_group, ship
from core.entries import Param
from dashboard.draw import claims as draw
from dashboard.server import queue
from pages import claims
from tests.cases import instance
from tests.claims.test_claims import TINY, World, results, scaling as world
from tests.pages.app import (
    Case,
    assert_case,
    assert_says,
    csv_rows,
    html_text,
    open_at,
    page_text,
    pictures_of,
    query_value,
)
from tests.pages.picture_programs import run_here

CLAIM = claim_of("scaling")
MADE_UP = results(world(0.02, 0.5), 0.01)
WEIGHT_ON = re.compile("[Ww]eight (of .* )?on ")
RIGHT = ("pills", "claims:scaling:predict", instance(CLAIM.guess, Pick).options[2])


@pytest.fixture
def shipped_results(tmp_path, monkeypatch):
    """A made-up result of the first claim in place of the shipped ones."""
    save(CLAIM, MADE_UP.cells, tmp_path)
    monkeypatch.setattr("core.claims.run.FOLDER", tmp_path)


def save(claim, cells, folder, **settings):
    ship(claim, claim.settle(settings), cells, {"device": "abacus"}, "the command").save(
        folder / f"{claim.key}.json"
    )


@pytest.fixture
def with_a_line(shipped_results):
    """The first claim with a line to draw in place of its question."""
    place = CLAIMS.index(CLAIM)
    question = Sketch("How much gradient is left?", GRADIENT, UNSCALED, 0.0, 0.5)
    CLAIMS[place] = Claim(**{**vars(CLAIM), "guess": question})
    yield
    CLAIMS[place] = CLAIM


def open_claims(**link):
    app = open_at("claims", **link)
    assert not [*app.warning, *app.error]
    return app


def test_index_leads_to_every_claim_and_tells_verdicts(shipped_results):
    app = open_claims()
    assert {f"claim={claim.key}" for claim in CLAIMS} <= {
        link.proto.query_string for link in app.get("page_link")
    }
    assert_case(
        app, Case(says=["<b style='font-weight:600'>1</b> holds (✔)", ">✔<", "data:image/svg+xml"])
    )


def test_seed_that_lacks_condition_does_not_answer_guess(shipped_results, tmp_path):
    claim, draw = claim_of("hybrid"), (0.9, 0.88, 0.4, 0.95, 0.9)
    conditions = claim.conditions({})
    cells = [
        CellResult(condition, seed, 1.0, ((EXACT, value, None), (CACHE, 10.0 * value, None)))
        for seed in (0, 1, 2)
        for condition, value in zip(conditions[: None if seed < 2 else 1], draw, strict=False)
    ]
    save(claim, cells, tmp_path, seeds=3)
    open_claims(claim="hybrid", **{"claims:hybrid:predict": "Show me"})


def test_a_claim_shows_its_verdict_after_the_guess(shipped_results):
    app = open_claims(claim=CLAIM.key)
    assert "abacus" not in page_text(app)
    assert_case(app, Case(do=[RIGHT], says=["Right.", "abacus", "5 hold"]))
    assert html_text(app).count("it must be") >= len(CLAIM.parts)


def test_a_drawn_line_is_compared_with_the_measured_one(with_a_line):
    bad = ("0.2_0.2", "0.2_0.2_0.2_0.2_0.2_0.2_0.2_9", "0.2_0.2_0.2_0.2_0.2_0.2_0.2_x")
    for link in ({}, *({"scaling:sketch": line} for line in bad)):
        assert_case(
            open_claims(claim=CLAIM.key, **link), Case(says=["Draw it first."], never=["abacus"])
        )
    # what the made-up world has, but for 0.4 at the last of 8 sizes
    app = open_claims(
        claim=CLAIM.key, **{"scaling:sketch": "0.2_0.02_0.02_0.02_0.02_0.02_0.02_0.42"}
    )
    assert_says(app, "abacus", "at head size D 512: you drew 0.42, measured 0.020", "your guess")
    assert re.search(r"on average 0\.05\d? from", page_text(app).replace("*", ""))
    again = [("button", "claims:scaling:sketch:again", None)]
    assert_case(app, Case(do=again, never=["abacus"], query={"scaling:sketch": None}))


def test_a_run_is_stopped_continued_and_told_why_it_failed(shipped_results, monkeypatch):
    monkeypatch.setattr(queue, "max_workers", lambda: 2)
    monkeypatch.setattr(queue, "_watch", lambda folder: None)
    app = open_claims(claim=CLAIM.key)
    assert_case(
        app, Case(do=[("slider", "claims:scaling:seeds", 2), ("button", "claims:start", None)])
    )
    group = find_group(query_value(app, "claims:run"))
    assert group.config.settings["seeds"] == 2
    first, second = group.runs
    lines = [json.dumps(one.to_json()) + "\n" for one in results(world(0.02, 0.5), 0.01, 2).cells]
    (first.path / CELLS).write_text(lines[0], encoding="utf-8")
    app = open_claims(claim=CLAIM.key, **{"claims:run": group.id})
    assert "1 of 4 measurements, about" in app.get("progress")[0].proto.text
    app.button(key="claims:stop").click().run()
    assert all(run.stop_request() == "stop" for run in group.runs)
    first.set_status("stopped", "Stopped after 1 of 2 parts.")
    second.set_status("failed", "MemoryError: no room for a model.")
    assert_says(app.run(), "MemoryError: no room for a model.", "made 1 of 4 measurements")
    assert len(app.error) == 1
    app.button(key="claims:continue").click().run()
    assert all(run.status().state in ("queued", "starting") for run in group.runs)
    for run in group.runs:
        run.set_status("finished", "Measured 2 parts.")
    (first.path / CELLS).write_text("".join(lines), encoding="utf-8")
    mine = "Your run: the claim cannot be told here"
    assert_case(app, Case(do=[RIGHT], says=[mine], never=["s measurement: the claim holds"]))
    says = [mine, "2 seeds of the 5 that a verdict needs", "s measurement: the claim holds"]
    says += ["not divided (yours)", "not divided (the lab"]
    assert_case(app, Case(do=[("segmented_control", "claims:results", "both")], says=says))


# The files of a claim, opened by other programs: CSV, JSON, SVG, PDF, LaTeX and BibTeX.


def test_every_file_of_a_claim_opens(monkeypatch):
    monkeypatch.setattr("dashboard.page.render", run_here)
    settings = CLAIM.settle({"steps": 50})
    result = ship(
        CLAIM, settings, MADE_UP.cells, {"device": "ábacus"}, claim_runs.command(CLAIM, settings)
    )
    files = zipfile.ZipFile(io.BytesIO(claims.archive(result)))
    folder = {name.removeprefix("claim-scaling/"): files.read(name) for name in files.namelist()}
    figures = [name for name in folder if name.endswith((".svg", ".pdf"))]
    assert len(figures) == 2 * len(CLAIM.figures)
    assert "python -m core.claims run scaling --set steps=50\n" in folder["README.txt"].decode()
    assert json.loads(folder["config.json"]) == {"claim": "scaling", "settings": settings}
    assert folder["config.json"].decode().splitlines()[2] == ' "settings": {'
    assert re.findall(r"\n (.*10\.2|.*\{\n  .*á.*)", folder["measured.json"].decode()) == [
        '"seconds of one core": 10.2',
        '"machine": {\n  "device": "ábacus"',
    ]
    assert [
        float(row["value"])
        for row in csv_rows(folder["results.csv"])
        if (row["condition"], row["measure"], row["x"]) == (UNSCALED, GRADIENT, "512")
    ] == result.results.values(UNSCALED, GRADIENT, 512.0)
    svg = ElementTree.fromstring(folder["figure-2-gradient-of-the-softmax.svg"])
    assert {CLAIM.figures[1].title, UNSCALED, CLAIM.figures[1].x, "512"} <= {
        node.text for node in svg.iter("{http://www.w3.org/2000/svg}text")
    }
    (page,) = PdfReader(io.BytesIO(folder["figure-2-gradient-of-the-softmax.pdf"])).pages
    assert UNSCALED in page.extract_text()
    assert float(page.mediabox.width) <= 170 / 25.4 * 72, "no wider than a page"
    fast = Param("fast", "Fast", default=False, meaning="skips half")
    claim, run = (
        replace(CLAIM, settings=(*CLAIM.settings, fast)),
        "python -m core.claims run scaling",
    )
    for changed, options in (
        ({}, ""),
        ({"seeds": 3, "fast": True}, " --set seeds=3 --set fast=true"),
    ):
        assert claim_runs.command(claim, claim.settle(changed)) == run + options


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_a_claim_draws_a_picture_before_its_answer(claim):
    app = open_claims(claim=claim.key)
    assert "measurement: the claim" not in page_text(app)
    if isinstance(claim.guess, Sketch):
        assert "Draw it first." in page_text(app)
        return
    spec, figure = (
        pictures_of(app)[f"claims:figure:{claim.figures[0].measure}"].spec,
        claim.figures[0],
    )
    shown = [row for layer in spec["layer"] for row in layer["data"]["values"]]
    ends = {row["x"] for row in shown}
    if figure.x:
        assert max(ends) < spec["layer"][0]["encoding"]["x"]["scale"]["domain"][1]
    else:
        conditions = instance(claim_runs.shipped(claim), ClaimResult).conditions
        assert not {row["name"] for row in shown} & {*conditions}
        assert not spec["layer"][0]["encoding"]["x"]["axis"]["labels"]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_the_words_of_a_claim_say_takes_from(claim):
    words = [claim.statement, claim.guess.question, *(part.name for part in claim.parts)]
    assert not [
        one
        for one in (*words, *(figure.title for figure in claim.figures))
        if WEIGHT_ON.search(one)
    ]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_latex_and_bibtex_are_well_formed(claim):
    table = claim_runs.latex_table(claim, verdict(claim, claim.settle(), results({})))
    lines = [line for line in table.splitlines() if line.endswith("\\\\")]
    assert [len(re.findall(r"(?<!\\)&", line)) for line in lines] == [4] * (len(claim.parts) + 1)
    for text in (table, claim.source.bibtex, claim_runs.citation(claim, "2026-11-23")):
        bare = re.sub(r"\\[\\{}]", "", text)
        assert bare.count("{") == bare.count("}") and not re.search(r"[√×²≥≤−→]", text)
    assert claim_runs.latex("√d_k − 3 % & {x}") == r"$\surd$d\_k $-$ 3 \% \& \{x\}"


WORLD: World = {("a", "m", None): 1.0, ("b", "m", None): 3.0}


def measured(seeds: int, spread: float = 0.1) -> ClaimResult:
    return ClaimResult(TINY, TINY.settle({"seeds": seeds}), results(WORLD, spread, seeds))


def test_thumbnail_has_mark_for_each_seed_of_each_condition():
    html = draw.card(TINY, measured(5), "light")
    (source,) = re.findall(r'base64,([^"]+)"', html)
    marks = list(ElementTree.fromstring(base64.b64decode(source)))
    places = [float(mark.get("d").removeprefix("M").split()[0]) for mark in marks]
    assert len(marks) == 10 and max(places[:5]) < min(places[5:]), "b is more than a in each seed"
    assert ">✔<" in html and "of 1 parts" not in html and "m, 0.84 to 3.22: a, b" in html
    assert draw.card(TINY, measured(5), "light", hidden=True) == draw.card(
        TINY, None, "light", True
    )
    assert "Not measured yet" in draw.card(TINY, None, "dark")


def test_results_have_the_colours_of_their_conditions():
    spec = draw.results_figure(
        TINY.figures[0], {"yours": measured(3), "the lab's": measured(5)}, "light"
    )
    points = [layer for layer in spec["layer"] if layer["mark"]["type"] == "point"]
    assert [(one["data"]["values"][0]["name"], len(one["data"]["values"])) for one in points] == [
        ("a (yours)", 3),
        ("b (yours)", 3),
        ("a (the lab's)", 5),
        ("b (the lab's)", 5),
    ]
    colours = [layer["mark"]["color"] for layer in points]
    assert colours[:2] == colours[2:] and colours[0] != colours[1] and "title" not in spec
    spec = draw.results_figure(
        replace(TINY.figures[0], log="y"), {"yours": measured(2, 0.2)}, "light"
    )
    rules = [layer for layer in spec["layer"] if layer["mark"]["type"] == "rule"]
    assert {layer["encoding"]["x"]["scale"]["type"] for layer in rules} == {"log"}
    assert min(row["low"] for layer in rules for row in layer["data"]["values"]) > 0


@pytest.mark.parametrize(
    "text, numbers",
    [
        ("22.03 ± 0.08", {"": 22.03, " ±": 0.08}),
        ("−0.15", {"": -0.15}),
        ("5,158.07", {"": 5158.07}),
        ("73.6 %", {", %": 73.6}),
        ("up to 20 %", None),
        ("0.40, 0.38", None),
        ("", None),
    ],
)
def test_a_printed_figure_is_exported_as_its_number(text, numbers):
    assert (
        getattr(draw.published(text), "numbers", None) == numbers and draw.published(text) == text
    )
