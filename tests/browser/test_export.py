"""What is handed out in a real browser: pictures, numbers and pages by Export, reports, and lessons with their codes."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from dashboard.ui.lessons import Lesson, encode, make_question, parse_link
from tests.browser.helpers import (
    PICTURE,
    click,
    enter,
    open_page,
    reload,
    sees,
    wait_no_sideways_scrolling,
    wait_ready,
)
from tests.browser.test_pages import assert_accessible
from tests.pages.test_lessons import FORMS


def take(page: Page, label: str, folder: Path) -> Path:
    dialog = page.get_by_role("dialog")
    scope = dialog if dialog.count() else page
    with page.expect_download() as download:
        scope.get_by_role("button", name=label, exact=True).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_the_numbers_of_a_picture_are_read_as_a_table(page):
    open_page(page, "why", PICTURE)
    page.get_by_role("button", name="Export").press("Enter")
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
    assert len(rows) == 2 and all("1–10" in row for row in rows), (
        "a point a model, and no place of a word"
    )
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def read_clipboard(page: Page) -> dict[str, list[int]]:
    return page.evaluate("""async () => {
        const [item] = await navigator.clipboard.read(), all = {};
        for (const type of item.types) {
            all[type] = [...new Uint8Array(await (await item.getType(type)).arrayBuffer())];
        }
        return all;
    }""")


def test_a_picture_its_numbers_and_the_page_are_taken_away(page, tmp_path):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, "masks", PICTURE)
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Picture", exact=True).first).to_be_visible()
    wait_ready(page)
    cells = list(csv.reader(take(page, "CSV", tmp_path).open(encoding="utf-8")))
    assert cells[1][1:4] == ["1.0", "0.0", "0.0"]  # the board of the causal mask
    copied = {}
    for name, kind in (("Table", "text/plain"), ("Picture", "image/png")):
        click(dialog.get_by_role("button", name=name, exact=True), f"Copied: {name}.")
        copied[name] = bytes(read_clipboard(page)[kind])
    assert copied["Table"].decode().split("\n")[1].split("\t")[1:4] == ["1.0", "0.0", "0.0"]
    image = Image.open(io.BytesIO(copied["Picture"]))
    grey = np.asarray(image.convert("L"))
    assert image.width > 600 and grey.min() < 60 and grey.max() == 255
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


# A report in a browser: views of several pages are found again by its cookie, and become one file.


def add_view(page: Page, path: str) -> None:
    open_page(page, path, PICTURE)
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("tab", name="Report").click()
    dialog.get_by_role("button", name="Add to report").click()
    expect(dialog).to_have_count(0)
    wait_ready(page)


def test_a_page_with_tables_says_what_was_added(page):
    add_view(page, "cards")  # the styles of its tables come after the dialog
    sees(page, "Added to your report, which has 1 view.")


def test_views_of_two_pages_become_one_file(page, tmp_path):
    add_view(page, "masks?masks:mask=causal_local")
    sees(page, "Added to your report, which has 1 view.")
    # a new session: the browser's cookie leads to the report
    add_view(page, "decode")
    open_page(page, "report")
    fields = page.get_by_role("textbox", name="Heading")
    expect(fields).to_have_count(2)
    expect(fields.nth(1)).to_have_value("Tree of candidates")
    assert_accessible(page)
    page.get_by_role("button", name="Up", exact=True).nth(1).click()
    expect(fields.first).to_have_value("Tree of candidates")
    wait_ready(page)
    headings = [field.input_value() for field in fields.all()]
    html = take(page, "HTML", tmp_path)
    page.goto(html.as_uri())
    expect(page.locator("section h2")).to_have_text(headings)
    expect(page.locator(".view")).to_have_count(2)
    page.locator("a").nth(1).click()
    wait_ready(page)
    assert "/masks?" in page.url and "causal_local" in page.url


# A student works through a lesson in a course page.


@pytest.mark.parametrize("width", [390])
def test_student_answers_in_course_page_and_hands_in_code(page, width):
    lesson = Lesson(
        "Sizes",
        "<img src=x onerror='document.title=1'> Read the **sizes**.",
        "positions",
        (("positions:position", "RoPE · 2021"),),
        ("positions:seed", "positions:d_model", "positions:position"),
        (make_question("numbers", "What is 3 + 4?", "7"),),
    )
    open_page(page, f"lessons?lesson={encode(lesson)}&embed=true", "text=Lesson: Sizes")
    assert "embed=true" in page.url and page.title() != "1"
    expect(page.locator("[data-testid=stSidebar]")).to_have_count(0)
    expect(page.locator(".st-key-positions-idea")).to_be_visible()
    expect(page.locator(".st-key-positions-position")).to_be_hidden()
    page.get_by_text("All settings", exact=True).click()
    expect(page.locator("[class*=st-key-positions-heads]")).to_be_visible()
    expect(page.locator(".st-key-positions-seed")).to_be_hidden()
    expect(page.locator(".st-key-positions-d_model")).to_be_hidden()
    answer = page.get_by_label("Your number", exact=True)
    for number, verdict in (("8", "Not yet."), ("7", "after 2 tries")):
        enter(answer, number, verdict)
    page.locator(".st-key-positions-idea").get_by_text("By distance").click()
    expect(page).to_have_url(re.compile("By.distance"))
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(page).not_to_have_url(re.compile("By.distance"))
    wait_ready(page)  # the page comes back without its widgets first
    sees(page, "after 2 tries")
    assert "RoPE" in page.url and "lesson=" in page.url
    name = page.get_by_label("Your name", exact=True)
    enter(name, "Ada Lovelace")
    expect(page.locator("[data-testid=stCode]").last).to_contain_text("Ada Lovelace")
    wait_no_sideways_scrolling(page)
    reload(page)
    sees(page, "after 2 tries")
    expect(name).to_have_value("Ada Lovelace")


def test_questions_stand_beside_the_page(page):
    # Also to the same page with other controls, which is drawn without its widgets between.
    one, two = (make_question("text", text, "yes") for text in ("First?", "Second?"))
    words = Lesson("Both", "Then two.", "masks", (("masks:tokens", "four five"),), (), (two,))
    lesson = Lesson("Both", "At first.", "masks", questions=(one,), more=(words,))
    open_page(page, f"lessons?lesson={encode(lesson)}", "text=At first.")
    for button, sentence in (("Next page", "Then two."), ("Back", "At first.")):
        expect(page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "true")
        page.wait_for_function(
            """() => { const [questions, body] = ["questions", "body"].map((one) =>
            document.querySelector(`.st-key-lesson-${one}`).getBoundingClientRect());
            return questions.right < body.left && questions.top < 500 }"""
        )
        page.get_by_role("button", name=button, exact=True).click()
        sees(page, sentence)
        wait_ready(page)
    enter(page.get_by_label("Your answer", exact=True), "yes", "after 1 try")
    page.get_by_role("button", name="Next page", exact=True).click()
    expect(page.get_by_label("Sentence", exact=True)).to_have_value("four five")
    sees(page, "Right answers: 1 of 2")


def test_a_short_link_has_a_picture_that_a_phone_reads(page):
    draft = "lessons:part=Make+a+lesson&lessons:title=Mine&lessons:count=0&lessons:page_link=/masks"
    open_page(page, f"lessons?{draft}", "text=Hand it out")
    page.get_by_role("button", name="Make a short link").click()
    picture = page.get_by_role("img", name="QR code of the short link")
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.naturalWidth == one.width && one.width > 140")


def test_back_from_another_page_keeps_settings_of_lesson(page, server):
    # Streamlit leaves an entry without parameters behind when a page is left by the sidebar.
    lesson = Lesson("Local", "Look.", "masks", (("masks:first", "Causal local"),), (), ())
    open_page(page, f"lessons?lesson={encode(lesson)}", "text=33 of 144")
    link = parse_link(page.url)
    page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_test_id("stSidebar").get_by_role("link", name="Heads", exact=True).click()
    expect(page.get_by_role("link", name="Back to Masks")).to_be_visible()
    wait_ready(page)
    page.go_back()
    expect(page.get_by_text("33 of 144").first).to_be_visible()
    wait_ready(page)
    assert parse_link(page.url) == link


def test_a_lesson_asks_no_other_host_for_anything(page, server):
    # Whatever form an image has; where one were asked for, the policy of the page would block it and fail the test.
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    lesson = Lesson("Pictures", "\n\n".join([*FORMS[:15], *FORMS[-2:], *FORMS[15:]]), "masks")
    open_page(page, f"lessons?lesson={encode(lesson)}", "text=Lesson: Pictures")
    expect(page.locator("[data-testid=stMarkdown] img")).to_have_count(0)
    expect(page.get_by_test_id("stMermaidChart")).to_have_count(0)
    assert asked and not [
        url for url in asked if not url.startswith((server.url, "data:", "blob:"))
    ]
