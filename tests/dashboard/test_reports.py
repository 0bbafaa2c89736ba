"""A report is one small file: its views in order, never larger than its bound, and found by its id alone."""

import gzip
import io
import os
from dataclasses import replace

import pytest
from pypdf import PdfReader

from dashboard.draw.picture_files import Entry, report_pdf
from dashboard.draw.pictures import with_own_ids
from dashboard.ui import export
from dashboard.ui.export import Report, ReportFull, ReportView, new_id, read_report, save
from tests.cases import each

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


def order(report: Report) -> str:
    return "".join(view.id for view in report.views)


def test_a_report_is_read_as_it_was_saved():
    report = report_of("a", "b")
    save(report)
    assert read_report(report.id) == report and 0 < export.size_of(report) < 2_000


def test_views_are_moved_changed_and_removed():
    report = report_of(*"abc")
    assert [
        order(report.move(name, by))
        for name, by in (("a", 1), ("c", -1), ("a", -1), ("c", 1), ("a", 2))
    ] == ["bac", "acb", "abc", "abc", "bca"]
    changed = report.change("b", note="Other", title="T")
    assert [view.note for view in changed.views] == [
        "My note",
        "Other",
        "My note",
    ] and changed.views[1].title == "T"
    assert order(report.without("b")) == "ac"


def test_a_full_report_says_what_would_fit_and_stays(monkeypatch):
    report = report_of("a")
    save(report)
    monkeypatch.setattr(export, "MAX_BYTES", export.size_of(report) + 50)
    noise = "".join(map(chr, range(200, 3_000)))
    with pytest.raises(ReportFull, match=r"would take [\d.]+\skB; it holds at most \d+\sbytes"):
        save(report.with_view(replace(VIEW, id="b", note=noise)))
    assert read_report(report.id) == report
    monkeypatch.setattr(export, "MAX_VIEWS", 1)
    with pytest.raises(ReportFull, match="at most 1 views"):
        save(report.with_view(replace(VIEW, id="b")))


def test_the_oldest_reports_go_first(monkeypatch):
    monkeypatch.setattr(export, "MAX_REPORTS", 2)
    made = [report_of("a") for _ in range(3)]
    for age, report in enumerate(made):
        save(report)
        path = export._path(report.id)
        os.utime(path, (age, age))
    assert [read_report(report.id) is not None for report in made] == [False, True, True]


@each("name", ["", "..", "0" * 15, "../" * 5 + "0", "g" * 16, "0" * 16])
def test_what_is_no_report_is_none(name):
    assert read_report(name) is None


@each(
    "data",
    [
        b"",
        b"no gzip",
        gzip.compress(b"[]"),
        gzip.compress(b'{"title": 1}'),
        gzip.compress(b'{"title": "", "views": [{"id": 1}]}'),
    ],
)
def test_a_damaged_file_is_no_report(data):
    report = report_of("a")
    save(report)
    export._path(report.id).write_bytes(data)
    assert read_report(report.id) is None


def test_a_view_of_a_page_that_is_no_more_is_left_out():
    report = report_of("a", "b").change("a", page="long_gone")
    save(report)
    assert order(read_report(report.id)) == "b"


def entry(word: str, width: int = 200, height: int = 100, **texts: str) -> Entry:
    made = Entry(
        f"Title of {word}",
        SVG.format(w=width, h=height, word=word),
        ["a"],
        [["1"]],
        "One & two.",
        "A note\nin two lines",
        "Source",
        f"http://host/{word}?a=b%20c",
    )
    return replace(made, **texts)


def test_a_pdf_holds_every_view_its_words_and_its_link():
    data = report_pdf(
        "My report",
        "today",
        [entry("first"), entry("second"), entry("wide", 3_000, 2_000), entry("table", svg="")],
    )
    pdf = PdfReader(io.BytesIO(data))
    words = " ".join(page.extract_text() for page in pdf.pages)
    assert all(
        text in words
        for text in (
            "My report",
            "today",
            "Title of second",
            "second",
            "wide",
            "One & two.",
            "in two lines",
            "Title of table",
            "Open this view live",
        )
    )
    links = [
        note.get_object()["/A"]["/URI"] for page in pdf.pages for note in page.get("/Annots", ())
    ]
    assert links == [f"http://host/{word}?a=b%20c" for word in ("first", "second", "wide", "table")]
    assert pdf.metadata.title == "My report" and len(pdf.pages) == 2, "small views share a sheet"


def test_a_long_note_begins_a_sheet_and_stays_on_it():
    pdf = PdfReader(
        io.BytesIO(
            report_pdf("T", "", [entry("a", 600, 700), entry("b", 600, 700, note="word " * 190)])
        )
    )
    assert ["Title of b" in page.extract_text() for page in pdf.pages] == [False, True]
    assert pdf.pages[1].extract_text().count("word") == 190


def test_drawings_keep_their_ids_apart():
    assert with_own_ids(SVG.format(w=1, h=1, word="x"), "v1-").count("v1-c") == 2
