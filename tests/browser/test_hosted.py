"""Two strangers in two browsers on one public copy, who try to harm each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    wait_for,
    wait_ready,
)


@pytest.fixture(scope="module")
def hosted(tmp_path_factory) -> Iterator[Server]:
    """A server with the switch on, which lets a person have three runs at once, and a network three pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTENTION_LAB_HOSTED", "1")
        patch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "under_way=3,address_sessions=3")
        with running(tmp_path_factory.mktemp("hosted")) as server:
            yield server


@contextmanager
def stranger(browser: Browser, server: Server) -> Iterator[Page]:
    context = browser.new_context(
        base_url=server.url, viewport={"width": 1280, "height": 900}, reduced_motion="reduce"
    )
    context.set_default_timeout(20_000)
    page = context.new_page()
    yield page
    assert_no_exception(page)
    context.close()


def train(page: Page, server: Server) -> Path:
    """Press Train; the folder of the run that the link then has."""
    before = set(server.runs.glob(f"{PEOPLE}/*/*/run.json"))
    click(page.get_by_role("button", name="Train", exact=True))
    wait_for(lambda: set(server.runs.glob(f"{PEOPLE}/*/*/run.json")) - before)
    (made,) = set(server.runs.glob(f"{PEOPLE}/*/*/run.json")) - before
    page.wait_for_url(f"**run={made.parent.name}*")
    return made.parent


def test_two_strangers_cannot_harm_each_other(browser, hosted):
    with stranger(browser, hosted) as anna, stranger(browser, hosted) as ben:
        open_page(anna, "train")
        (cookie,) = [one for one in anna.context.cookies() if one["name"] == "attention_lab_person"]
        assert cookie["httpOnly"] and cookie["sameSite"] == "Lax" and len(cookie["value"]) == 32
        assert "attention_lab_person" not in anna.evaluate("document.cookie")
        expect(anna.get_by_text("a run may take 2,000 steps and 120 s")).to_be_visible()
        hers = train(anna, hosted)
        run = hers.name
        assert cookie["value"] not in anna.url and cookie["value"] not in hosted.log.read_text(
            encoding="utf-8"
        )
        expect(stop_button(anna)).to_be_visible()

        # Ben has no list with it; by its link he may look at it, and change nothing.
        open_page(ben, "runs", run=run)
        sees(ben, "not on this machine", "No runs of your own yet")
        open_page(ben, "train", run=run)
        expect(ben.get_by_text("belongs to another person")).to_be_visible()
        assert (
            not stop_button(ben).count() and not ben.get_by_role("button", name="Continue").count()
        )

        # He trains from there and stops it: what ends is his own.
        his = train(ben, hosted)
        click(stop_button(ben))
        expect(ben.get_by_role("button", name="Train", exact=True)).to_be_visible()
        wait_for(lambda: '"stopped"' in (his / "status.json").read_text(encoding="utf-8"))
        assert not (hers / "stop").exists() and his.parent != hers.parent

        # He takes her folder's name for her id, which it is not.
        ben.context.add_cookies(
            [{"name": "attention_lab_person", "value": hers.parent.name, "url": hosted.url}]
        )
        open_page(ben, "runs")
        sees(ben, "No runs of your own yet")

        # All of his is deleted by his own button; hers is as it was, and a reload finds it again.
        open_page(anna, "runs")
        expect(anna.get_by_text("1 run of your own")).to_be_visible()
        click(ben.get_by_role("button", name="Delete everything of mine"))
        click(ben.get_by_role("button", name="Delete everything", exact=True))
        wait_ready(ben)
        assert hers.exists() and run in anna.url + anna.content()

        # A sweep of more runs than three is refused in words; a page too many says so, and opens once there is room.
        with stranger(browser, hosted) as carl, stranger(browser, hosted) as dora:
            open_page(carl, "sweeps")
            expect(carl.get_by_role("button", name="Start sweep")).to_be_disabled()
            expect(carl.get_by_text("that a person may have here").first).to_be_visible()
            assert str(hosted.runs) not in carl.content()
            dora.goto("/masks")
            expect(dora.get_by_text("Your network has 3 pages open here")).to_be_visible(
                timeout=60_000
            )
            carl.goto("about:blank")
            expect(dora.get_by_role("heading", name="Masks")).to_be_visible(timeout=60_000)
