"""Runs and Compare runs in a real browser: pick, name, download, delete, bring back, upload, fork, compare."""

import re
import shutil

import pytest
from playwright.sync_api import Page, expect

from core.runs.runs import create_run, duplicate, find_run, list_runs
from dashboard.draw.formats import duration
from dashboard.ui.run_data import EXAMPLE_RUNS
from tests.browser.helpers import box_of, click, resize, shot, wait_picture, wait_ready
from tests.training.small import small_run

LAST = EXAMPLE_RUNS[0].records()[-1]
TRAINED = duration(LAST.train_seconds).replace("\u00a0", " ")


def open_page(page: Page, link: str) -> Page:
    page.goto(link)
    wait_ready(page)
    wait_picture(page)
    return page


@pytest.fixture(autouse=True)
def nobody_else_trained(server):
    """The server is that of all browser tests: what the others trained is gone before each of these."""
    for run in list_runs(server.runs):
        shutil.rmtree(run.path, ignore_errors=True)


@pytest.fixture
def own(server):
    """Two runs of one's own."""
    names = ("fast one", "slow one")
    return [
        duplicate(run, name, server.runs) for run, name in zip(EXAMPLE_RUNS, names, strict=True)
    ]


def button(page: Page, key: str):
    return page.locator(
        f".st-key-runs-{key} button"
    ).first  # a second one is hidden behind its help


def test_first_sight_shows_runs_that_learned(page):
    open_page(page, "/runs")
    expect(page.get_by_text(f"after {LAST.step} steps, {TRAINED} of training")).to_be_visible()
    expect(page.locator("[data-testid='stDataFrame'] canvas").first).to_be_visible()
    resize(page, 390, "dark")


def test_a_run_is_named_taken_away_deleted_and_brought_back(page, server, own):
    run = own[0]
    open_page(page, f"/runs?run={run.id}")
    field = page.get_by_role("textbox", name="Name")
    expect(field).to_have_value("fast one")
    field.fill("the best of all")
    field.press("Enter")
    expect(page.get_by_text("the best of all").last).to_be_visible()
    assert run.name == "the best of all"
    with page.expect_download() as download:
        click(page.get_by_test_id("stDownloadButton").get_by_role("button"))
    packed = download.value.path()
    click(page.get_by_role("button", name="Delete", exact=True))
    click(button(page, "delete-go"))
    expect(page.get_by_text("Deleted the best of all.")).to_be_visible()
    assert find_run(run.id, server.runs) is None
    expect(button(page, "delete-go")).to_be_hidden()
    click(button(page, "undo"))
    expect(page.get_by_text("Deleted the best of all.")).to_be_hidden()
    assert find_run(run.id, server.runs) == run
    click(button(page, "upload"))
    page.locator("input[type=file]").set_input_files(
        {"name": "run.zip", "mimeType": "application/zip", "buffer": packed.read_bytes()}
    )
    expect(page).to_have_url(re.compile(r"run=(?!" + run.id + ")"))
    wait_ready(page)
    (there,) = [other for other in list_runs(server.runs) if other not in own]
    assert there.records() == run.records() and there.name == run.name


def test_a_row_is_picked_by_a_click_and_a_bad_upload_says_why_where_one_looks(page, server, own):
    open_page(page, f"/runs?run={own[0].id}")
    box = box_of(page.locator("[data-testid='stDataFrame']"))
    row = [run.id for run in reversed(list_runs(server.runs))].index(own[1].id)
    page.mouse.click(box["x"] + 16, box["y"] + 38 + 35 * row + 17)  # the box before the other run
    expect(page).to_have_url(re.compile(rf"run=({own[0].id}|{own[1].id})(%2C|,)"))
    expect(page.get_by_role("link", name="Compare", exact=True).last).to_have_attribute(
        "href", re.compile("runs=")
    )
    click(button(page, "upload"))
    page.locator("input[type=file]").set_input_files(
        {"name": "run.zip", "mimeType": "application/zip", "buffer": b"nonsense"}
    )
    expect(page.get_by_text("The zip cannot be read")).to_be_visible()
    assert len(list_runs(server.runs)) == 2


def test_a_fork_trains_on_from_the_kept_step(page, server, own):
    open_page(page, f"/runs?run={own[0].id}")
    click(button(page, "fork"))
    page.get_by_role("spinbutton", name="To step").fill("250")
    page.get_by_role("spinbutton", name="To step").press("Enter")
    wait_ready(page)
    button(page, "fork-go").click()
    expect(page).to_have_url(re.compile(r"/train\?.*run="))
    (forked,) = [other for other in list_runs(server.runs) if other not in own]
    assert forked.metadata()["parent"]["step"] == LAST.step
    expect(page.get_by_text("Finished after 250 steps")).to_be_visible(timeout=60_000)
    assert forked.records()[-1].step == 250


def test_a_run_under_way_is_followed_and_stays_picked(page, server, own):
    run = create_run(small_run(steps=60, record_every=10), server.runs)
    open_page(page, f"/runs?run={run.id}")
    expect(page.get_by_text("Finished after 60 steps")).to_be_visible(timeout=60_000)
    expect(page).to_have_url(re.compile(f"run={run.id}$"))
    expect(page.get_by_text("after 60 steps,")).to_be_visible()


def test_two_runs_stand_side_by_side(page):
    open_page(page, "/compare_runs")
    expect(page.get_by_text(f"After {TRAINED} of training")).to_be_visible()
    expect(page.locator(".mu canvas").first).to_be_visible()
    resize(page, 390, "dark")
    slider = page.get_by_role("slider").first
    slider.focus()
    slider.press("Home")
    expect(page.get_by_text(re.compile("At step 0, sequence accuracy"))).to_be_visible()
    shot(page, "compare-runs-at-0")
