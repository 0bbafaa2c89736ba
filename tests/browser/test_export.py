"""Export in a browser: the dialog lists the page's pictures, and its files are what the page shows."""

import csv
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, expect
from pypdf import PdfReader

from tests.browser.helpers import PICTURE, open_page, reload, wait_picture, wait_ready
from tests.browser.test_pages import assert_accessible


def take(page: Page, label: str, folder: Path) -> Path:
    """The file that a button gives, of the dialog where it is open."""
    dialog = page.get_by_role("dialog")
    scope = dialog if dialog.count() else page
    with page.expect_download() as download:
        scope.get_by_role("button", name=label, exact=True).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_the_numbers_of_a_picture_are_read_as_a_table_by_keyboard_alone(page):
    open_page(page, "why", PICTURE)
    page.get_by_role("button", name="Export").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    switch = dialog.get_by_role("switch", name="Show them as a table")
    expect(switch).to_be_attached()
    wait_ready(page)
    for _ in range(20):
        page.keyboard.press("Tab")
        if switch.evaluate("node => node === document.activeElement"):
            break
    expect(switch).to_be_focused()
    page.keyboard.press("Space")
    expect(dialog.get_by_role("columnheader").first).to_be_visible()
    expect(switch).to_be_focused()
    table = dialog.get_by_role("table")
    columns = table.get_by_role("columnheader").all_inner_texts()
    assert {"model", "words in the source", "Exact match, %"} <= set(columns), columns
    rows = table.get_by_role("row").all_inner_texts()[1:]
    assert len(rows) == 3 and all("1–10" in row for row in rows), (
        "a point a model, and no place of a word"
    )
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def read_clipboard(page: Page) -> dict[str, list[int]]:
    """What the clipboard holds: bytes by type."""
    return page.evaluate("""async () => {
        const [item] = await navigator.clipboard.read(), all = {};
        for (const type of item.types) {
            all[type] = [...new Uint8Array(await (await item.getType(type)).arrayBuffer())];
        }
        return all;
    }""")


def test_a_picture_its_numbers_and_the_page_are_taken_away_and_copied(page, tmp_path):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, "masks", PICTURE)
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Picture", exact=True).first).to_be_visible()
    wait_ready(page)
    cells = list(csv.reader(take(page, "CSV", tmp_path).open(encoding="utf-8")))
    assert cells[1][1:4] == ["1.0", "0.0", "0.0"]  # the board of the causal mask
    numbers = json.loads(take(page, "JSON", tmp_path).read_text("utf-8"))
    assert numbers["numbers"]["Causal"][0][:2] == [1.0, 0.0] and numbers["page"] == "Masks"
    assert take(page, "PDF", tmp_path).read_bytes().startswith(b"%PDF")
    copied = {}
    for name, kind in (
        ("Table", "text/plain"),
        ("Picture", "image/png"),
        ("LaTeX table", "text/plain"),
    ):
        click(dialog.get_by_role("button", name=name, exact=True), f"Copied: {name}.")
        copied[name] = bytes(read_clipboard(page)[kind])
    assert copied["Table"].decode().split("\n")[1].split("\t")[1:4] == ["1.0", "0.0", "0.0"]
    image = Image.open(io.BytesIO(copied["Picture"]))
    grey = np.asarray(image.convert("L"))
    assert image.width > 600 and grey.min() < 60 and grey.max() == 255
    assert rb"\begin{tabular}" in copied["LaTeX table"]
    dialog.get_by_role("tab", name="Python").click()
    click(dialog.get_by_role("button", name="Copy as Python"), "Copied: Python.")
    compile(bytes(read_clipboard(page)["text/plain"]).decode(), "masks.py", "exec")
    dialog.get_by_role("tab", name="Whole page").click()
    whole = take(page, "HTML", tmp_path)
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    page.goto(whole.as_uri())
    expect(page.locator("h1")).to_have_text("Masks · Attention Lab")
    expect(page.locator(".view")).to_have_count(2)


def test_where_there_is_no_clipboard_the_dialog_says_so(page):
    page.add_init_script("Object.defineProperty(window, 'isSecureContext', { value: false })")
    open_page(page, "masks", PICTURE)
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("copies only from https or localhost").first).to_be_visible()
    expect(dialog.get_by_role("button", name="LaTeX table", exact=True)).to_be_disabled()


# A report in a browser: views of several pages, in the reader's order, found again after a reload, as two files.


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


def test_views_of_two_pages_become_one_file(page, tmp_path):
    sentence = add_view(page, "/masks?masks:mask=causal_local", "of the mask")
    expect(page.get_by_text("Added to your report, which has 1 view.")).to_be_visible()
    add_view(
        page, "/decode", "of the tree"
    )  # a new session: the browser's cookie leads to the report
    open_page(page, "report")
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
    reload(page)
    expect(page.get_by_role("textbox", name="Note", exact=True).first).to_have_value("Changed")
    assert headings(page) == [second, first]
    pdf = PdfReader(io.BytesIO(take(page, "PDF", tmp_path).read_bytes()))
    words = " ".join(sheet.extract_text() for sheet in pdf.pages)
    assert "Changed" in words and "of the mask" in words and second in words
    html = take(page, "HTML", tmp_path)
    link = page.get_by_role("link", name="Open it live on Masks")
    expect(link).to_have_attribute("href", "masks?masks%3Amask=causal_local")
    page.goto(html.as_uri())
    expect(page.locator("section h2")).to_have_text([second, first])
    expect(page.locator(".view")).to_have_count(2)
    page.locator("a").nth(1).click()
    wait_ready(page)
    assert "/masks?" in page.url and "causal_local" in page.url
