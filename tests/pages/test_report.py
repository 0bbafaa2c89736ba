"""The page Report without a browser: views in order, texts that are saved, files that hold them, and what is empty."""

import json
from dataclasses import replace

import numpy as np
from streamlit.testing.v1 import AppTest

from dashboard.ui.export import Report, new_id, read_report, save
from dashboard.ui.run_data import EXAMPLE_RUNS
from pages import report
from tests.dashboard.test_reports import VIEW
from tests.draw.test_components import data_of
from tests.pages.app import open_at, page_text, query_value

TABLE = replace(VIEW, id="b", title="Costs", page="efficient", svg="", query={})


def stored(*views) -> Report:
    report = Report(new_id(), "", views)
    save(report)
    return report


def open_page(report: Report) -> AppTest:
    return open_at("report", report=report.id)


def test_first_sight_shows_a_view_of_an_example_run():
    app = open_at("report")
    text, view, run = page_text(app), report.example(), EXAMPLE_RUNS[0]
    assert (
        "Your report is empty" in text and view.title in text and "report" not in app.query_params
    )
    last = [record for record in run.records() if record.step in run.frame_steps()][-1]
    weights = run.frame(last.step)["0:cross"][0, 0]
    shown = [row[-1] for row in view.rows if row[0] == f"Step {last.step:,}"]
    np.testing.assert_allclose(np.reshape(shown, weights.shape), weights, atol=1e-6)
    assert f"{last.expected[0][0]:.2f}" in view.sentence and f"{last.even:.2f}" in view.sentence


def test_the_views_of_a_link_are_shown_in_order_with_their_texts():
    app = open_page(report := stored(VIEW, TABLE))
    assert query_value(app, "report") == report.id
    assert [field.value for field in app.text_input] == ["", "Heads <b>", "Costs"]
    assert [field.value for field in app.text_area] == ["It has 0.5.", "My note"] * 2
    assert "2 of at most 50 views" in page_text(app)
    assert (
        app.button(key="report:a:up").proto.disabled
        and app.button(key="report:b:down").proto.disabled
    )


def test_what_is_typed_and_moved_is_saved_at_once():
    app = open_page(report := stored(VIEW, TABLE))
    app.text_area(key="report:a:note").set_value(" Another ").run()
    app.text_input(key="report:title").set_value("Mine").run()
    app.button(key="report:a:down").click().run()
    now = read_report(report.id)
    assert now.title == "Mine" and [(view.id, view.note) for view in now.views] == [
        ("b", "My note"),
        ("a", "Another"),
    ]
    app.button(key="report:b:remove").click().run()
    assert [view.id for view in read_report(report.id).views] == ["a"]
    app.button(key="report:a:remove").click().run()
    assert "Your report is empty" in page_text(app)


def test_a_new_report_leaves_the_old_one_under_its_link():
    app = open_page(report := stored(VIEW))
    app.button(key="report:new").click().run()
    assert "Your report is empty" in page_text(app) and "report" not in app.query_params
    assert read_report(report.id) == report


def test_a_link_to_no_report_says_so():
    assert "The report of this link is not on this server" in page_text(
        open_at("report", report="0" * 16)
    )


def test_the_html_file_has_live_parts_drawings_tables_and_links():
    live = replace(
        VIEW, id="c", part=["tree_view", "tv", {"svg": "<svg></svg>", "fact": "", "follow": False}]
    )
    html = report.html_file(Report("x", "A <title>", (VIEW, TABLE, live)), "http://host").decode()
    parts = data_of(html)["parts"]
    assert [part["name"] for part in parts] == ["", "", "tree_view"]
    assert (
        "first" in parts[0]["html"]
        and 'id="v0-c"' in parts[0]["html"]
        and "<td>0.50</td>" in parts[1]["html"]
    )
    assert (
        'href="http://host/heads?heads%3Atext=the+cat"' in parts[0]["below"]
        and "My note" in parts[0]["below"]
    )
    assert "A &lt;title&gt;" in html and json.dumps("tree_view") in html


def test_a_long_table_is_cut_on_the_page_and_whole_in_the_file():
    long = replace(TABLE, rows=[[f"row {at}", at] for at in range(60)])
    text = page_text(open_page(stored(long)))
    assert "row 49" in text and "row 50" not in text and "The first 50 of 60 rows" in text
    assert b"row 59" in report.html_file(Report("x", "", (long,)), "")


def test_a_page_that_is_the_first_has_no_name_in_its_link():
    assert (
        report.address(replace(VIEW, page="start", query={}), "http://host/app/")
        == "http://host/app/"
    )
