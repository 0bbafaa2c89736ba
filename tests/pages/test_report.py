"""The pages Report, Questions and Glossary without a browser: views and files, answers with numbers, terms."""

import gzip
import io
import os
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest
import torch
from pypdf import PdfReader
from streamlit.testing.v1 import AppTest

from dashboard.draw.glossary import TERMS
from dashboard.draw.picture_files import ReportView, report_pdf
from dashboard.draw.questions import ANSWERS
from dashboard.navigation import STEPS
from dashboard.ui import export
from dashboard.ui.export import Report, new_id, read_report, save
from dashboard.ui.runs import EXAMPLE_RUNS
from pages import report
from tests.draw.test_components import data_of
from tests.pages.app import (
    Case,
    assert_case,
    assert_says,
    open_at,
    page_cases,
    page_text,
    set_control,
    without_terms,
)

# A report is one small file: its views in order, never larger than its bound, and found by its id alone.


SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}"><defs><clipPath id="c">'
    '<rect width="{w}" height="{h}"/></clipPath></defs><text x="2" y="20" clip-path="url(#c)">{word}</text></svg>'
)
VIEW = ReportView(
    "a",
    "Heads <b>",
    "heads",
    {"heads:text": ["the cat"]},
    "It has 0.5.",
    "My note",
    "Attention Lab",
    SVG.format(w=200, h=100, word="first"),
    ["x", "y"],
    [["it", 0.5], ["cat", None]],
)


def report_of(*names: str) -> Report:
    return Report(new_id(), "My report", tuple(replace(VIEW, id=name) for name in names))


def stored(*views: ReportView) -> Report:
    report = Report(new_id(), "", views)
    save(report)
    return report


def order(report: Report) -> str:
    return "".join(view.id for view in report.views)


def test_a_report_is_read_as_it_was_saved():
    report = report_of("a", "b")
    save(report)
    assert read_report(report.id) == report and 0 < export.size_of(report) < 2_000
    save(report.change("a", page="long_gone"))
    assert order(read_report(report.id)) == "b"


def test_views_are_moved_changed_and_removed():
    report = report_of(*"abc")
    assert [
        order(report.move(*move)) for move in (("a", 1), ("c", -1), ("a", -1), ("c", 1), ("a", 2))
    ] == ["bac", "acb", "abc", "abc", "bca"]
    changed = report.change("b", note="Other", title="T").views
    assert [(view.title, view.note) for view in changed] == [
        ("Heads <b>", "My note"),
        ("T", "Other"),
        ("Heads <b>", "My note"),
    ]
    assert order(report.without("b")) == "ac"


def test_a_full_report_says_what_would_fit_and_stays(monkeypatch):
    report = stored(VIEW)
    monkeypatch.setattr(export, "MAX_BYTES", export.size_of(report) + 50)
    noise = "".join(map(chr, range(200, 3_000)))
    pytest.raises(
        ValueError, save, replace(report, views=(VIEW, replace(VIEW, id="b", note=noise)))
    ).match(r"would take [\d.]+\skB; it holds at most \d+\sbytes")
    monkeypatch.setattr(export, "MAX_VIEWS", 1)
    pytest.raises(ValueError, save, replace(report, views=(VIEW, replace(VIEW, id="b")))).match(
        "at most 1 views"
    )
    assert read_report(report.id) == report


def test_the_oldest_reports_go_first(monkeypatch):
    monkeypatch.setattr(export, "MAX_REPORTS", 2)
    made = [report_of("a") for _ in range(3)]
    for age, one in enumerate(made):
        save(one)
        os.utime(export._path(one.id), (age, age))
    assert [read_report(report.id) is not None for report in made] == [False, True, True]


def test_what_is_no_report_or_damaged_is_none():
    assert not any(map(read_report, ["", "..", "0" * 15, "../" * 5 + "0", "g" * 16, "0" * 16]))
    report = stored(VIEW)
    damaged = b"[]", b'{"title": 1}', b'{"title": "", "views": [{"id": 1}]}'
    for data in (b"", b"no gzip", *map(gzip.compress, damaged)):
        export._path(report.id).write_bytes(data)
        assert read_report(report.id) is None


def view_of(word: str, width: int = 200, height: int = 100, **texts: Any) -> ReportView:
    given = {"svg": SVG.format(w=width, h=height, word=word), "note": "A note\nin two lines"}
    return replace(VIEW, id=word, title=f"Title of {word}", **(given | texts))


def pdf_of(*views: ReportView) -> PdfReader:
    return PdfReader(
        io.BytesIO(report_pdf("My report", "today", views, "http://host/{0.id}?a=b%20c".format))
    )


def test_a_pdf_holds_every_view_its_words_and_its_link():
    names = ("first", "second", "wide", "table")
    pdf = pdf_of(*map(view_of, names[:2]), view_of("wide", 3_000, 2_000), view_of("table", svg=""))
    words = " ".join(page.extract_text() for page in pdf.pages)
    parts = ["My report", "today", "second", "wide", "It has 0.5.", "in two lines"]
    parts += [*(f"Title of {name}" for name in names), "Open this view live"]
    assert [part for part in parts if part not in words] == []
    notes = [note.get_object() for page in pdf.pages for note in page.get("/Annots", ())]
    assert [note["/A"]["/URI"] for note in notes] == [f"http://host/{n}?a=b%20c" for n in names]
    assert pdf.metadata.title == "My report" and len(pdf.pages) == 2, "small views share a sheet"
    assert [float(one) for one in pdf.pages[0].mediabox[2:]] == pytest.approx([595, 842], abs=1), (
        "A4"
    )
    long = view_of("a", 600, 700), view_of("b", 600, 700, note="word " * 190)
    first, second = (page.extract_text() for page in pdf_of(*long).pages)
    assert "Title of b" not in first and "Title of b" in second and second.count("word") == 190


TABLE = replace(VIEW, id="b", title="Costs", page="efficient", svg="", query={})


def open_page(report: Report) -> AppTest:
    return open_at("report", report=report.id)


def in_sidebar(app: AppTest) -> bool:
    (pages,) = [one.proto.json for one in app.get("bidi_component") if '"groups"' in one.proto.json]
    return '"Report"' in pages


def test_first_sight_shows_a_view_of_an_example_run():
    view, run = report.example(), EXAMPLE_RUNS[0]
    assert_says(app := open_at("report"), "Your report is empty", f"Example: {view.title}")
    assert f"1. {view.title}" not in page_text(app)
    last = run.records()[-1]
    weights = run.frame(last.step)["0:cross"][0, 0]
    shown = [row[-1] for row in view.rows if row[0] == f"Step {last.step:,}"]
    np.testing.assert_allclose(np.reshape(shown, weights.shape), weights, atol=1e-6)
    assert f"{last.expected[0][0]:.2f}" in view.sentence and f"{last.even:.2f}" in view.sentence


def test_views_are_shown_in_order_and_what_is_typed():
    app = open_page(report := stored(VIEW, TABLE))
    assert [in_sidebar(app), in_sidebar(app.run())] == [False, True], "once it is this session's"
    fields = [field.value for field in (*app.text_input, *app.text_area)]
    assert fields == ["", "Heads <b>", "Costs", *["It has 0.5.", "My note"] * 2]
    assert app.button(key="report:a:up").disabled and app.button(key="report:b:down").disabled
    assert_says(app, "2 of at most 50 views")
    assert_case(
        app,
        Case(
            do=[
                ("text_area", "report:a:note", " Another "),
                ("text_input", "report:title", "Mine"),
                ("button", "report:a:down", None),
            ]
        ),
    )
    now = read_report(report.id)
    notes = [(view.id, view.note) for view in now.views]
    assert (now.title, notes) == ("Mine", [("b", "My note"), ("a", "Another")])
    app.button(key="report:new").click().run()  # leaves the old one under its link
    assert_says(app, "Your report is empty")
    assert "report" not in app.query_params and read_report(report.id) == now
    app = open_page(report).button(key="report:b:remove").click().run()
    assert order(read_report(report.id)) == "a"
    assert_says(app.button(key="report:a:remove").click().run(), "Your report is empty")
    assert not in_sidebar(app)


test_a_report_that_is_not_here = page_cases(
    "report",
    {"in a link": Case({"report": "0" * 16}, ["The report of this link is not on this server"])},
)


def test_html_file_has_live_parts_drawings_tables_and_links():
    live = replace(
        VIEW, id="c", part=["tree_view", "tv", {"svg": "<svg></svg>", "fact": "", "follow": False}]
    )
    html = report.html_file(Report("x", "A <title>", (VIEW, TABLE, live)), "http://host").decode()
    drawing, table, tree = data_of(html)["parts"]
    assert [part["name"] for part in (drawing, table, tree)] == ["", "", "tree_view"]
    assert "first" in drawing["html"] and drawing["html"].count("v0-c") == 2
    assert 'href="http://host/heads?heads%3Atext=the+cat"' in drawing["below"]
    assert "My note" in drawing["below"] and "<td>0.50</td>" in table["html"]
    assert "A &lt;title&gt;" in html
    first = replace(VIEW, page="start", query={})  # the first page has no name in its link
    assert report.address(first, "http://host/app/") == "http://host/app/"


def test_long_table_is_cut_on_page_and_whole_in_file():
    long = replace(TABLE, rows=[[f"row {at}", at] for at in range(60)])
    app = open_page(stored(long))
    assert_says(app, "row 49", "The first 50 of 60 rows")
    assert "row 50" not in page_text(app)
    assert b"row 59" in report.html_file(Report("x", "", (long,)), "")


# The page Questions: every answer opens, its numbers are right, and its links lead to pages.


def test_every_answer_opens_with_its_links():
    app = open_at("questions", "questions:", question=ANSWERS["padding"].question)
    assert app.radio(key="questions:question").value == "padding"
    for key, answer in ANSWERS.items():
        set_control("questions:", app, "radio", "question", key)
        assert answer.text in unescape(without_terms(" ".join(item.value for item in app.markdown)))
        assert {page for page, _ in answer.pages} <= {step.key for step in STEPS}


def test_the_tables_of_scores_masks_views_and_families():
    tables = {key: one.study() for key, one in ANSWERS.items() if one.study}
    sentences = {key: ANSWERS[key].sentence(rows) for key, rows in tables.items()}
    cells = {
        key: [[write(row) for write in ANSWERS[key].columns.values()] for row in rows]
        for key, rows in tables.items()
    }
    for d, std, *_ in cells["scaling"]:
        assert float(std) == pytest.approx(int(d) ** 0.5, rel=0.15)
    assert float(cells["scaling"][-1][2]) > 0.9 > 0.5 > float(cells["scaling"][-1][3])
    assert "5 of the 5" in sentences["masks"] and "mask 0 do" in sentences["masks"]
    x = torch.arange(3).repeat_interleave(4).view(1, 3, 4)
    wrong = (x.view(1, 2, 3, 2) != x.view(1, 3, 2, 2).transpose(1, 2)).any(-1).sum()
    assert f"the wrong token into {wrong} of 6" in sentences["reshaping"]
    changes = [[float(cell) for cell in row[1:]] for row in cells["padding"]]
    assert changes[0][0] > 0.01 and changes[1][0] < 1e-6 and changes[2][1] == 0
    families = [row[1:] for row in cells["families"]]
    assert families == [["2", "0", "0"], ["0", "2", "0"], ["2", "2", "2"]]


# Glossary: every term with a link to its page, found by a typed text, which the link holds.


def test_every_term_is_on_page_with_link_and_link_finds_one():
    links = {"": {}, "some": {"find": "softmax"}, "none": {"find": "xyzzy"}}
    find = {name: open_at("glossary", "glossary:", **link) for name, link in links.items()}
    counts = {name: len(app.get("page_link")) for name, app in find.items()}
    assert counts[""] == len(TERMS) + 4 > counts["some"] > 1
    assert_says(find["none"], "xyzzy")
