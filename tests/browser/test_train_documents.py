"""A hierarchical model in a real browser: trained while one waits, both levels drawn at the picked step."""

import re

from playwright.sync_api import expect

from core.models import sentence_spans
from core.runs.runs import find_run
from core.tasks import make_task
from core.tasks.documents import Documents
from dashboard.draw.formats import number
from tests.browser.helpers import click, resize, shot, wait_for, wait_picture, wait_ready
from tests.cases import instance

RUN = re.compile(r"run=([0-9]{8}-[0-9]{6}-[0-9a-f]{6})")


def test_a_document_is_classified_by_its_deciding_sentence(page, server):
    page.goto("/train?train:task=documents")
    wait_ready(page)
    wait_picture(page)
    click(page.locator(".st-key-train-train button").first)
    page.wait_for_url(RUN)
    wait_ready(page)
    link, run = page.url, find_run(RUN.search(page.url)[1], server.runs)
    page.goto("about:blank")  # a page that follows would draw each record
    wait_for(lambda: run.status().ended, seconds=180)
    page.goto(link)
    expect(page.get_by_text("Finished after")).to_be_visible(timeout=60_000)
    last = run.records()[-1]
    assert run.config().model.kind == "hierarchical"
    assert last.final and last.sequence_accuracy >= 0.99 and last.expected[0][0] > 2 * last.even
    table = page.get_by_label("Weights of sentences and words")
    expect(page.get_by_text(f"Document at step {last.step}")).to_be_visible()
    task, rows = instance(make_task(run.config().task), Documents), table.locator("tbody tr")
    example = task.held_out(1)[0]
    spans, (deciding, _) = sentence_spans(example.source), task.deciding(example)
    expect(rows).to_have_count(len(spans))
    weights = run.frame(last.step)["0:sentences"][0, 0, 0]
    for index, span in enumerate(spans):
        expect(rows.nth(index).locator("td").nth(1)).to_have_text(number(weights[index]))
        expect(rows.nth(index).locator("span")).to_have_text(example.source[span.start : span.stop])
        assert rows.nth(index).get_by_text("decides").count() == (span == deciding)
    page.get_by_role("slider", name=re.compile("step", re.I)).last.press("Home")
    expect(page.get_by_text("Document at step 0")).to_be_visible()
    expect(rows.first.locator("td").nth(1)).to_have_text(
        number(run.frame(0)["0:sentences"][0, 0, 0, 0])
    )
    resize(page, 390, "dark")
    shot(page, "train-documents-phone")
