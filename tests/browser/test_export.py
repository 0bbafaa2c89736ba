"""What is handed out in a real browser: pictures, numbers and pages by Export, reports, and lessons with their codes."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, expect
from pypdf import PdfReader

from dashboard.ui.lessons import Lesson, encode, parse_link
from tests.browser.helpers import (
    PICTURE,
    assert_no_exception,
    click,
    enter,
    open_page,
    press_keys,
    reload,
    wait_no_sideways_scrolling,
    wait_ready,
)
from tests.browser.test_pages import assert_accessible
from tests.pages.test_lessons import FORMS


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
    open_page(page, path, PICTURE)
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
    sentence = add_view(page, "masks?masks:mask=causal_local", "of the mask")
    expect(page.get_by_text("Added to your report, which has 1 view.")).to_be_visible()
    # a new session: the browser's cookie leads to the report
    add_view(page, "decode", "of the tree")
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


# A teacher makes a lesson on a page with a popover; a student works through it in a course page; the code is read.


def fill(page: Page, label: str, text: str) -> None:
    field = page.get_by_label(label, exact=True)
    field.fill(text)
    field.blur()
    wait_ready(page)


def hide(page: Page, name: str) -> None:
    page.get_by_role("combobox", name="Controls to hide").fill(name)
    press_keys(page, "Enter", "Escape")
    wait_ready(page)


def test_a_teacher_makes_a_lesson_and_a_student_hands_in_a_code(page, server):
    open_page(page, "lessons?lessons:part=Make+a+lesson", "text=Give the lesson a title.")
    fill(page, "Title", "Sizes")
    fill(page, "Link of the page", f"{server.url}/positions?positions:position=RoPE+%C2%B7+2021")
    fill(page, "Text above the page", "<img src=x onerror='document.title=1'> Read the **sizes**.")
    hide(page, "positions:seed")
    page.get_by_role("link", name="Open Positions to list").click()
    expect(page.locator(".st-key-positions-position")).to_be_visible()
    wait_ready(page)
    page.go_back()
    expect(page.get_by_label("Title", exact=True)).to_have_value("Sizes")
    page.go_forward()
    page.get_by_role("link", name="Back to the draft").click()
    for name in ("d_model", "Position encoding"):
        hide(page, name)
    expect(page.get_by_text("Open Positions to list")).to_have_count(0)
    expect(page.get_by_label("Title", exact=True)).to_have_value("Sizes")
    fill(page, "Question 1", "What is 3 + 4?")
    page.locator(".st-key-lessons-q1-type input").click()
    page.get_by_role("option", name="Number or matrix").click()
    wait_ready(page)  # the field of a choice has gone
    fill(page, "Right answer", "7")
    link = page.locator("[data-testid=stCode]").first.inner_text().strip()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the file").click()
    file = download.value.path()
    draft = page.url
    page.goto("about:blank")
    page.goto(draft)
    expect(page.locator("[data-testid=stCode]").first).to_have_text(re.compile(re.escape(link)))

    page.evaluate("localStorage.clear()")  # the teacher's: the student's browser is another one
    student = page.context.new_page()
    student.set_viewport_size({"width": 390, "height": 900})
    student.emulate_media(reduced_motion="reduce")
    student.goto(f"{link}&embed=true")
    expect(student.get_by_text("Lesson: Sizes")).to_be_visible(timeout=20_000)
    wait_ready(student)
    assert "embed=true" in student.url and student.title() != "1"
    expect(student.locator("[data-testid=stSidebar]")).to_have_count(0)
    expect(student.locator(".st-key-positions-idea")).to_be_visible()
    expect(student.locator(".st-key-positions-position")).to_be_hidden()
    student.get_by_role("button", name="Sizes").click()
    expect(student.locator("[class*=st-key-positions-heads]")).to_be_visible()
    expect(student.locator(".st-key-positions-seed")).to_be_hidden()
    expect(student.locator(".st-key-positions-d_model")).to_be_hidden()
    student.keyboard.press("Escape")
    answer = student.get_by_label("Your number", exact=True)
    for number, verdict in (("8", "Not yet."), ("7", "after 2 tries")):
        enter(answer, number, verdict)
    student.locator(".st-key-positions-idea").get_by_text("By distance").click()
    expect(student).to_have_url(re.compile("By.distance"))
    student.get_by_role("button", name="Reset", exact=True).click()
    expect(student).not_to_have_url(re.compile("By.distance"))
    wait_ready(student)  # the page comes back without its widgets first
    expect(student.get_by_text("after 2 tries")).to_be_visible()
    assert "RoPE" in student.url and "lesson=" in student.url
    fill(student, "Your name", "Ada Lovelace")
    code = student.locator("[data-testid=stCode]").last
    expect(code).to_contain_text("Ada Lovelace")
    line = code.inner_text().strip()
    wait_no_sideways_scrolling(student)
    student.reload()
    expect(student.get_by_text("after 2 tries")).to_be_visible(timeout=20_000)
    expect(student.get_by_label("Your name", exact=True)).to_have_value("Ada Lovelace")
    assert_no_exception(student)
    student.close()

    page.goto("/lessons?lessons:part=Read+codes")
    fill(page, "Codes, one on each line", line)
    expect(page.get_by_text("belongs to another lesson")).to_be_visible()
    page.locator("input[type=file]").set_input_files(
        {"name": "lesson.json", "mimeType": "application/json", "buffer": file.read_bytes()}
    )
    expect(page.get_by_role("row", name="Ada Lovelace")).to_contain_text("1 of 1")


def test_back_from_another_page_keeps_the_settings_of_a_lesson_and_its_link(page, server):
    """Streamlit leaves an entry without parameters behind when a page is left by the sidebar."""
    lesson = Lesson("Local", "Look.", "masks", (("masks:first", "Causal local"),), (), ())
    open_page(page, f"lessons?lesson={encode(lesson)}", "text=33 of 144")
    link = parse_link(page.url)
    page.get_by_test_id("stSidebar").get_by_role("link", name="Heads", exact=True).click()
    expect(page.get_by_role("link", name="Back to Masks")).to_be_visible()
    wait_ready(page)
    page.go_back()
    expect(page.get_by_text("33 of 144").first).to_be_visible()
    wait_ready(page)
    assert parse_link(page.url) == link


def test_a_lesson_asks_no_other_host_for_anything(page, server):
    """Whatever form an image has; where one were asked for, the policy of the page would block it and fail the test."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    lesson = Lesson("Pictures", "\n\n".join([*FORMS[:15], *FORMS[-2:], *FORMS[15:]]), "masks")
    open_page(page, f"lessons?lesson={encode(lesson)}", "text=Lesson: Pictures")
    expect(page.locator("[data-testid=stMarkdown] img")).to_have_count(0)
    expect(page.get_by_test_id("stMermaidChart")).to_have_count(0)
    assert asked and not [
        url for url in asked if not url.startswith((server.url, "data:", "blob:"))
    ]
