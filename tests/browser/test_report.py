"""A report in a browser: views of several pages, in the reader's order, found again after a reload, as two files."""

import io
from pathlib import Path

from playwright.sync_api import Page, expect
from pypdf import PdfReader

from tests.browser.helpers import wait_picture, wait_ready
from tests.browser.test_pages import assert_accessible


def add_view(page: Page, path: str, note: str) -> str:
    """Open a page anew and add its first picture to the report; returns the page's sentence."""
    page.goto(path)
    wait_ready(page)
    wait_picture(page)
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("tab", name="Report").click()
    dialog.get_by_role("textbox", name="Your note").fill(note)
    sentence = page.locator("[data-testid=stMain] p[style*='Source Serif']").last.inner_text()
    dialog.get_by_role("button", name="Add to report").click()
    expect(dialog).to_have_count(0)
    wait_ready(page)
    return sentence


def headings(page: Page) -> list[str]:
    return [field.input_value() for field in page.get_by_role("textbox", name="Heading").all()]


def download(page: Page, name: str, folder: Path) -> Path:
    with page.expect_download() as file:
        page.get_by_role("button", name=name, exact=True).click()
    path = folder / file.value.suggested_filename
    file.value.save_as(path)
    return path


def test_views_of_two_pages_become_one_file(page, tmp_path):
    sentence = add_view(page, "/masks?masks:mask=causal_local", "of the mask")
    expect(page.get_by_text("Added to your report, which has 1 view.")).to_be_visible()
    add_view(
        page, "/decode", "of the tree"
    )  # a new session: the browser's cookie leads to the report
    page.goto("/report")
    wait_ready(page)
    expect(page.get_by_role("textbox", name="Heading")).to_have_count(2)
    first, second = headings(page)
    expect(page.get_by_role("textbox", name="Sentence").first).to_have_value(sentence)
    assert_accessible(page)
    assert second == "Tree of candidates" and "report=" in page.url
    page.get_by_role("button", name="Up", exact=True).nth(1).click()
    expect(page.get_by_role("textbox", name="Heading").first).to_have_value(second)
    note = page.get_by_role("textbox", name="Note", exact=True).first
    note.fill("Changed")
    note.blur()
    wait_ready(page)
    page.reload()
    wait_ready(page)
    expect(page.get_by_role("textbox", name="Note", exact=True).first).to_have_value("Changed")
    assert headings(page) == [second, first]
    pdf = PdfReader(io.BytesIO(download(page, "PDF", tmp_path).read_bytes()))
    words = " ".join(sheet.extract_text() for sheet in pdf.pages)
    assert "Changed" in words and "of the mask" in words and second in words
    html = download(page, "HTML", tmp_path)
    link = page.get_by_role("link", name="Open it live on Masks")
    expect(link).to_have_attribute("href", "masks?masks%3Amask=causal_local")
    page.goto(html.as_uri())
    expect(page.locator("section h2")).to_have_text([second, first])
    expect(page.locator(".view")).to_have_count(2)
    page.locator("a").nth(1).click()
    wait_ready(page)
    assert "/masks?" in page.url and "causal_local" in page.url
