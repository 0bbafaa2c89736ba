"""A teacher makes a lesson on a page with a popover; a student works through it in a course page; the code is read."""

import re

from playwright.sync_api import Page, expect

from dashboard.ui.lessons import Lesson, encode, parse_link
from tests.browser.helpers import (
    assert_no_exception,
    enter,
    press_keys,
    wait_no_sideways_scrolling,
    wait_ready,
)
from tests.pages.test_lessons import FORMS

OTHER = "Give the lesson a title."


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
    page.goto("/lessons?lessons:part=Make+a+lesson")
    expect(page.get_by_text(OTHER)).to_be_visible()
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
    page.goto(f"/lessons?lesson={encode(lesson)}")
    expect(page.get_by_text("33 of 144").first).to_be_visible()
    wait_ready(page)
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
    page.goto(f"/lessons?lesson={encode(lesson)}")
    expect(page.get_by_text("Lesson: Pictures").first).to_be_visible()
    wait_ready(page)
    expect(page.locator("[data-testid=stMarkdown] img")).to_have_count(0)
    expect(page.get_by_test_id("stMermaidChart")).to_have_count(0)
    assert asked and not [
        url for url in asked if not url.startswith((server.url, "data:", "blob:"))
    ]
