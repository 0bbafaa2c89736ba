"""Runs in a real browser: trained, followed, stopped, taken away and brought back, and what they live through."""

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, WebSocketRoute, expect

from core.files import PEOPLE
from core.runs.executor import start_process
from core.runs.runs import Run, create_run, duplicate, find_run, list_runs
from dashboard.ui.runs import EXAMPLE_RUNS
from tests.browser.conftest import Server, running
from tests.browser.helpers import (
    PICTURE,
    assert_no_exception,
    box_of,
    click,
    open_page,
    reload,
    sees,
    stop_button,
    wait_ready,
)
from tests.cases import wait_for
from tests.training.small import small_run


def press(page: Page, key: str) -> Locator:
    """The first, since a second button is hidden behind its help."""
    return page.locator(f".st-key-{key} button").first


def test_a_run_is_taken_away_and_brought_back(page, server):
    for run in list_runs(server.runs):  # of other tests
        shutil.rmtree(run.path, ignore_errors=True)
    first, second = [
        duplicate(run, name, server.runs)
        for run, name in zip(EXAMPLE_RUNS, ("fast one", "slow one"), strict=True)
    ]
    open_page(page, f"runs?run={first.id}", PICTURE)
    with page.expect_download() as download:
        click(page.get_by_test_id("stDownloadButton").get_by_role("button"))
    packed = download.value.path()
    click(press(page, "runs-upload"))
    page.locator("input[type=file]").set_input_files(
        {"name": "run.zip", "mimeType": "application/zip", "buffer": packed.read_bytes()}
    )
    expect(page).to_have_url(re.compile(r"run=(?!" + first.id + ")"))
    wait_ready(page)
    (there,) = [other for other in list_runs(server.runs) if other not in (first, second)]
    assert there.records() == first.records() and there.name == first.name
    box = box_of(page.locator("[data-testid='stDataFrame']"))
    row = [run.id for run in reversed(list_runs(server.runs))].index(second.id)
    page.mouse.click(box["x"] + 16, box["y"] + 38 + 35 * row + 17)  # the box before the other run
    expect(page).to_have_url(re.compile(rf"run=.*{second.id}"))
    expect(page.get_by_role("link", name="Compare", exact=True).last).to_have_attribute(
        "href", re.compile("runs=")
    )


# What a run lives through: another server, a killed worker, a reload, a second tab.


STEP = re.compile(r"Step [1-9][\d,]* of")
DOWN = float(os.environ.get("ATTENTION_LAB_DOWN") or 0)  # seconds


def queue_run(folder, batch_size: int = 32) -> Run:
    """A run in the queue, as a page leaves it; whichever server looks first begins it."""
    config = small_run(
        steps=20_000,
        max_seconds=300.0,
        batch_size=batch_size,
        finish_early=False,
        record_every=50,
    )
    return create_run(config, root=folder)


@contextmanager
def held_still(run: Run) -> Iterator[None]:
    """Halts the worker, alive as it is: beside a page that loads it would only take the processor."""
    worker = run.status().pid
    try:
        os.kill(worker, signal.SIGSTOP)
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def has_trained(run: Run) -> bool:
    return any(record.step for record in run.records())


def test_the_run_of_an_earlier_server_goes_on(page, server):
    run = queue_run(server.runs)
    run.set_status("starting")
    before = get_context("spawn").Process(target=start_process, args=(run,))
    before.start()
    before.join()  # it has ended, as that server
    wait_for(run.checkpoint_steps)  # Train longer needs one
    wait_for(partial(has_trained, run))
    worker = run.status().pid
    more = f"train:more:{run.id}=10000"  # else a hundred steps, which end before a busy machine has drawn Stop
    with held_still(run):
        open_page(page, f"train?run={run.id}&{more}")
        expect(page.get_by_text(STEP)).to_be_visible(timeout=60_000)
    assert run.status().pid == worker, "the same worker, never begun twice"
    os.kill(worker, signal.SIGKILL)
    sees(page, "ended without a message", timeout=60_000)
    assert run.status().state == "failed" and "is saved" in run.status().message
    click(page.get_by_role("button", name="Train longer"))
    click(page.get_by_role("button", name="Continue training"))
    expect(stop_button(page)).to_be_visible(timeout=60_000)
    wait_for(lambda: run.status().state == "running" and run.alive())
    wait_for(partial(has_trained, run))  # the checkpoint may be that of step 0
    with held_still(run):
        reload(page)
        expect(page.get_by_text(STEP)).to_be_visible(timeout=60_000)
        second = page.context.new_page()
        second.emulate_media(reduced_motion="reduce")
        open_page(second, f"train?run={run.id}")
        expect(second.get_by_text(STEP)).to_be_visible(timeout=60_000)
    click(stop_button(second))
    sees(page, "is saved", timeout=60_000)  # the first tab learns of it by itself
    assert run.status().state == "stopped"
    assert_no_exception(second)
    steps = [record.step for record in run.records() if not record.final]
    assert steps == sorted(set(steps)), (
        "what came after the last checkpoint was made again, not twice"
    )


def shown_step(page: Page) -> int:
    return int(
        re.search(r"Step ([\d,]+) of", page.get_by_text(STEP).inner_text())[1].replace(",", "")
    )


def test_page_whose_connection_drops_follows_its_run_again(page, server):
    # For two hundred steps; `make faults` has it down for half a minute.
    ends: list[WebSocketRoute] = []
    down: list[bool] = []

    def connect(socket: WebSocketRoute) -> None:
        if down:
            socket.close()
        else:
            ends.extend((socket.connect_to_server(), socket))

    page.route_web_socket(re.compile("_stcore/stream"), connect)
    run = queue_run(server.runs, 512 if DOWN else 32)  # so that it trains for minutes
    try:
        open_page(page, f"train?run={run.id}&train:seed=7")
        expect(page.get_by_text(STEP)).to_be_visible(timeout=60_000)
        down.append(True)
        for end in ends:
            end.close()
        time.sleep(DOWN)
        wait_for(lambda: run.records()[-1].step > shown_step(page) + 200)
        down.clear()
        step, back = run.records()[-1].step, time.perf_counter()
        wait_for(lambda: shown_step(page) > step)
        print(
            f"After {DOWN:g} s without a connection the page follows its run within "
            f"{time.perf_counter() - back:.1f} s."
        )
        click(page.get_by_role("button", name="All settings"))
        expect(page.get_by_label("Seed", exact=True)).to_have_value("7")
        assert run.status().state == "running"
        assert_no_exception(page)
    finally:
        run.request_stop()
        wait_for(lambda: run.status().ended)


def test_values_of_a_sweep_are_picked_one_after_the_other(page):
    open_page(page, "sweeps?sweeps:axis=Mask", PICTURE)
    toolbars = page.get_by_test_id("stElementToolbar")  # Export has each picture
    expect(toolbars.filter(visible=True)).to_have_count(0)
    page.get_by_role("button", name="Values").click()
    panel = page.get_by_test_id("stPopoverBody")
    for name in ("Dilated", "Strided"):
        panel.get_by_role("combobox").click()
        panel.get_by_role("combobox").fill(name)
        page.get_by_role("option", name=name).first.click()
        wait_ready(page)
        expect(panel).to_be_visible()
    chosen = page.get_by_text("6 values:")
    expect(chosen).to_contain_text("Dilated window, Strided")
    reload(page)
    expect(chosen).to_contain_text("Dilated window, Strided")


# Train in a real browser: reverse is learned, Stop stops, a link and a reload find the run again.


def the_run(page: Page, server) -> Run:
    return find_run(re.search(r"run=([0-9]{8}-[0-9]{6}-[0-9a-f]{6})", page.url)[1], server.runs)


def test_reverse_is_learned_followed_on_runs(page, server):
    # learned sooner than ten letters of 26
    open_page(page, "train?train:reverse:length=5&train:reverse:vocab=12", PICTURE)
    click(page.get_by_role("button", name="All settings"))
    page.locator(".st-key-train-reverse-length").get_by_role("slider").press("ArrowLeft")
    page.keyboard.press("Escape")
    click(press(page, "train-train"), STEP, timeout=60_000)
    link, run = page.url, the_run(page, server)
    open_page(page, "runs", PICTURE, run=run.id)  # this page follows it, too
    sees(page, "Finished after", timeout=120_000)
    expect(page).to_have_url(re.compile(f"run={run.id}$"))
    open_page(page, link)
    sees(page, "Finished after")
    expect(press(page, "train-train")).to_be_visible()
    last = run.records()[-1]
    assert run.config().task["length"] == 4
    assert last.final and last.sequence_accuracy >= 0.99
    # (H, T, S); the four letters' rows come before that of the end mark
    heads = run.frame(last.step)["0:cross"][0]
    assert max(sum(weights[t, 3 - t] for t in range(4)) / 4 for weights in heads) > 0.6, (
        "the anti-diagonal holds far more than uniform attention would give it"
    )


def test_first_sight_is_a_learned_run(page):
    open_page(page, "train", PICTURE)
    seed, step = page.locator(".st-key-train-seed input"), page.get_by_text("At step")
    expect(step).to_contain_text(re.compile(r"\d"))
    last, settings = step.text_content(), page.get_by_role("button", name="All settings")
    click(settings)
    page.locator(".st-key-train-seed").get_by_test_id("stNumberInputStepUp").click()
    page.wait_for_url("**train%3Aseed=1**")
    wait_ready(page)
    page.keyboard.press("Escape")
    slider = page.get_by_role("slider", name=re.compile("step", re.I)).last
    slider.press("ArrowLeft")
    page.wait_for_url("**train%3Astep**")
    expect(step).not_to_have_text(last)
    for move, value in ((page.go_back, "1"), (page.go_back, "0"), (page.go_forward, "1")):
        wait_ready(page)
        move()
        expect(step).to_have_text(last)
        click(settings)
        expect(seed).to_have_value(value)
        page.keyboard.press("Escape")
    wait_ready(page)
    for _ in range(5):
        slider.press("ArrowLeft")
    expect(step).not_to_have_text(last)
    click(page.get_by_role("button", name="Play the frames"))
    expect(step).to_have_text(last, timeout=60_000)


def test_pause_and_continue_and_stop(page, server):
    open_page(
        page,
        "train?train:reverse:transformer:finish_early=False&train:reverse:transformer:steps=2000",
        PICTURE,
    )
    click(press(page, "train-train"), STEP, timeout=60_000)
    click(press(page, "train-pause"), "Paused at step", timeout=60_000)
    run = the_run(page, server)
    paused = run.records()[-1].step
    assert run.status().state == "paused" and 0 < paused < run.config().steps
    click(press(page, "train-continue"), STEP, timeout=60_000)
    expect(page.get_by_text(STEP)).not_to_contain_text(f"Step {paused:,} of", timeout=60_000)
    click(press(page, "train-stop"), "is saved", timeout=60_000)
    expect(press(page, "train-train")).to_be_visible()
    steps = [record.step for record in run.records()]
    assert run.status().state == "stopped"
    assert steps[-1] > paused and len(set(steps)) >= len(steps) - 1, (
        "it went on where it was: no step is told twice"
    )
    before = parse_qs(urlsplit(page.url).query)
    for name, path in (("One query, step by step", "/one_query"), ("Train and watch", "/train")):
        page.get_by_role("link", name=name).first.click()
        page.wait_for_url(f"**{path}**")
        wait_ready(page)
    sees(page, "is saved")
    assert parse_qs(urlsplit(page.url).query) == before


# Two strangers in two browsers on one public copy.


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
    context.set_default_timeout(60_000)
    page = context.new_page()
    yield page
    assert_no_exception(page)
    context.close()


def test_two_strangers_have_their_own_runs(browser, hosted):
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
