"""Two strangers in two browsers on one public copy."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from core.files import PEOPLE
from tests.browser.conftest import Server, running
from tests.browser.helpers import (
    assert_no_exception,
    click,
    open_page,
    sees,
    stop_button,
)
from tests.cases import wait_for


@pytest.fixture
def hosted(tmp_path, monkeypatch) -> Iterator[Server]:
    """A server with the switch on, which lets a network have two pages open."""
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "address_sessions=2")
    with running(tmp_path) as server:
        yield server


@contextmanager
def stranger(browser: Browser, server: Server) -> Iterator[Page]:
    context = browser.new_context(base_url=server.url, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    page = context.new_page()
    yield page
    assert_no_exception(page)
    context.close()


def test_two_strangers_have_their_own_runs_and_a_page_too_many_opens_once_there_is_room(
    browser, hosted
):
    with stranger(browser, hosted) as anna, stranger(browser, hosted) as ben:
        open_page(anna, "train")
        (cookie,) = [one for one in anna.context.cookies() if one["name"] == "attention_lab_person"]
        assert cookie["httpOnly"] and cookie["sameSite"] == "Lax" and len(cookie["value"]) == 32
        assert "attention_lab_person" not in anna.evaluate("document.cookie")
        click(anna.get_by_role("button", name="Train", exact=True))
        wait_for(lambda: any(hosted.runs.glob(f"{PEOPLE}/*/*/run.json")))
        (run,) = [path.parent for path in hosted.runs.glob(f"{PEOPLE}/*/*/run.json")]
        anna.wait_for_url(f"**run={run.name}*")
        click(stop_button(anna), "is saved", timeout=60_000)
        log = hosted.log.read_text(encoding="utf-8")
        assert cookie["value"] not in anna.url and cookie["value"] not in log

        # Ben has no list with it; by its link he may look at it, and change nothing.
        open_page(ben, "train", run=run.name)
        sees(ben, "belongs to another person")
        open_page(ben, "runs", run=run.name)
        sees(ben, "not on this machine")

        # A page too many says so, and opens once there is room.
        third = ben.context.new_page()
        third.goto("/masks")
        sees(third, "Your network has 2 pages open here", timeout=60_000)
        ben.goto("about:blank")
        expect(third.get_by_role("heading", name="Masks")).to_be_visible(timeout=60_000)
