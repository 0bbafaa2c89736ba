"""Runs in a real browser: trained, followed, stopped, named, taken away and brought back, and what they live through."""

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from core.runs.runs import Run, create_run, duplicate, find_run, list_runs
from dashboard.draw.formats import number
from dashboard.ui.run_data import EXAMPLE_RUNS
from tests.browser.conftest import start_server
from tests.browser.helpers import (
    PICTURE,
    assert_no_exception,
    box_of,
    choose,
    click,
    enter,
    open_page,
    reload,
    resize,
    sees,
    stop_button,
    wait_for,
    wait_picture,
    wait_ready,
)
from tests.training.small import small_run


@pytest.fixture
def own(server):
    """Two runs of one's own; what the other tests trained on the server of all of them is gone before."""
    for run in list_runs(server.runs):
        shutil.rmtree(run.path, ignore_errors=True)
    names = ("fast one", "slow one")
    return [
        duplicate(run, name, server.runs) for run, name in zip(EXAMPLE_RUNS, names, strict=True)
    ]


def button(page: Page, key: str):
    return page.locator(
        f".st-key-runs-{key} button"
    ).first  # a second one is hidden behind its help


def test_a_run_is_named_taken_away_deleted_and_brought_back_and_rows_are_picked(page, server, own):
    run = own[0]
    open_page(page, f"runs?run={run.id}", PICTURE)
    field = page.get_by_role("textbox", name="Name")
    expect(field).to_have_value("fast one")
    enter(field, "the best of all")
    expect(page.get_by_text("the best of all").last).to_be_visible()
    assert run.name == "the best of all"
    with page.expect_download() as download:
        click(page.get_by_test_id("stDownloadButton").get_by_role("button"))
    packed = download.value.path()
    click(page.get_by_role("button", name="Delete", exact=True))
    click(button(page, "delete-go"), "Deleted the best of all.")
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
    box = box_of(page.locator("[data-testid='stDataFrame']"))
    row = [run.id for run in reversed(list_runs(server.runs))].index(own[1].id)
    page.mouse.click(box["x"] + 16, box["y"] + 38 + 35 * row + 17)  # the box before the other run
    expect(page).to_have_url(re.compile(rf"run=.*{own[1].id}"))
    expect(page.get_by_role("link", name="Compare", exact=True).last).to_have_attribute(
        "href", re.compile("runs=")
    )
    click(button(page, "upload"))
    page.locator("input[type=file]").set_input_files(
        {"name": "run.zip", "mimeType": "application/zip", "buffer": b"nonsense"}
    )
    expect(page.get_by_text("The zip cannot be read")).to_be_visible()
    assert len(list_runs(server.runs)) == 3


def test_a_fork_trains_on_from_the_kept_step(page, server, own):
    open_page(page, f"runs?run={own[0].id}", PICTURE)
    click(button(page, "fork"))
    enter(page.get_by_role("spinbutton", name="To step"), "250")
    wait_ready(page)
    button(page, "fork-go").click()
    expect(page).to_have_url(re.compile(r"/train\?.*run="))
    (forked,) = [other for other in list_runs(server.runs) if other not in own]
    assert forked.metadata()["parent"]["step"] == EXAMPLE_RUNS[0].records()[-1].step
    expect(page.get_by_text("Finished after 250 steps")).to_be_visible(timeout=60_000)
    assert forked.records()[-1].step == 250


def test_a_run_under_way_is_followed_and_stays_picked(page, server, own):
    run = create_run(small_run(steps=60, record_every=10), server.runs)
    open_page(page, f"runs?run={run.id}", PICTURE)
    expect(page.get_by_text("Finished after 60 steps")).to_be_visible(timeout=60_000)
    expect(page).to_have_url(re.compile(f"run={run.id}$"))
    expect(page.get_by_text("after 60 steps,")).to_be_visible()


# What a run lives through: a reload, a second tab, a restarted server, a killed worker. And a sweep made by hand.


STEP = re.compile(r"Step [1-9][\d,]* of")
DOWN = float(os.environ.get("ATTENTION_LAB_DOWN") or 0)  # seconds
LONG = dict(steps=20_000, max_seconds=300.0, batch_size=32, finish_early=False, record_every=50)


def queue_run(folder, **changes) -> Run:
    """A run in the queue, as a page leaves it; whichever server looks first begins it."""
    return create_run(small_run(**LONG | changes), root=folder)


def stop(run: Run) -> None:
    run.request_stop()
    wait_for(lambda: run.status().ended)


@contextmanager
def held_still(*runs: Run) -> Iterator[None]:
    """Halts the workers, alive as they are: beside a page that loads they would only take the processor."""
    workers = [run.status().pid for run in runs if run.status().state == "running"]
    try:
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        yield
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)


def test_a_killed_worker_is_told_the_run_goes_on_and_a_reload_and_a_second_tab_find_it(
    page, server
):
    run = queue_run(server.runs)
    more = f"train:more:{run.id}=10000"  # else a hundred steps, which end before a busy machine has drawn Stop
    open_page(page, f"train?run={run.id}&{more}")
    expect(page.get_by_text(STEP)).to_be_visible(timeout=60_000)
    wait_for(run.checkpoint_steps)  # Train longer needs one
    os.kill(run.status().pid, signal.SIGKILL)
    expect(page.get_by_text("ended without a message").first).to_be_visible(timeout=60_000)
    assert run.status().state == "failed" and "is saved" in run.status().message
    click(page.get_by_role("button", name="Train longer"))
    click(page.get_by_role("button", name="Continue training"))
    expect(stop_button(page)).to_be_visible(timeout=60_000)
    wait_for(lambda: run.status().state == "running" and run.alive())
    wait_for(
        lambda: any(record.step for record in run.records())
    )  # the checkpoint may be that of step 0
    with held_still(run):
        reload(page)
        expect(page.get_by_text(STEP)).to_be_visible(timeout=60_000)
        second = page.context.new_page()
        second.emulate_media(reduced_motion="reduce")
        open_page(second, f"train?run={run.id}")
        expect(second.get_by_text(STEP)).to_be_visible(timeout=60_000)
    click(stop_button(second))
    sees(page, "is saved", timeout=60_000)  # the first tab learns of it by itself
    assert run.status().state == "stopped" and len(list_runs(server.runs)) >= 1
    assert_no_exception(second)
    steps = [record.step for record in run.records() if not record.final]
    assert steps == sorted(set(steps)), (
        "what came after the last checkpoint was made again, not twice"
    )


def shown_step(page: Page) -> int:
    text = page.get_by_text(STEP).inner_text()
    return int(re.search(r"Step ([\d,]+) of", text)[1].replace(",", ""))


def test_a_page_whose_connection_drops_follows_its_run_again(page, server):
    """For two hundred steps; `make faults` has it down for half a minute."""
    ends: list[WebSocketRoute] = []
    down: list[bool] = []

    def connect(socket: WebSocketRoute) -> None:
        if down:
            socket.close()
        else:
            ends.extend((socket.connect_to_server(), socket))

    page.route_web_socket(re.compile("_stcore/stream"), connect)
    run = queue_run(server.runs, batch_size=512 if DOWN else 32)  # so that it trains for minutes
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
        expect(page.get_by_label("Seed", exact=True)).to_have_value("7")
        assert run.status().state == "running"
        assert_no_exception(page)
    finally:
        stop(run)


def test_a_restarted_server_finds_the_run_still_training_and_the_next_in_its_queue(
    tmp_path, browser: Browser
):
    first, before = start_server(tmp_path)
    runs = [queue_run(before.runs) for _ in range(3)]  # more than train at once on a small machine
    context = browser.new_context(base_url=before.url, reduced_motion="reduce")
    try:
        page = open_page(context.new_page(), f"train?run={runs[0].id}")
        expect(page.get_by_text(STEP)).to_be_visible(timeout=60_000)
        worker = runs[0].status().pid
        first.kill()  # no chance to tidy up
        first.wait()
        step = runs[0].records()[-1].step
        wait_for(lambda: runs[0].records()[-1].step > step)
        with held_still(*runs):
            again, after = start_server(tmp_path)
        try:
            with held_still(*runs):
                open_page(page, f"{after.url}/train?run={runs[0].id}")
                expect(page.get_by_text(STEP)).to_be_visible(timeout=60_000)
            assert runs[0].status().pid == worker and runs[0].alive(), (
                "the same worker, never begun twice"
            )
            click(stop_button(page), "is saved", timeout=60_000)
            page.close()  # nobody looks any more, yet the queue moves
            wait_for(lambda: all(run.status().state == "running" for run in runs[1:]))
        finally:
            for run in runs:
                stop(run)
            again.kill()
            again.wait()
    finally:
        first.kill()
        context.close()


# The Sweeps page in a real browser: its values stay open while they are picked, and outlive a reload.


def test_first_sight_is_a_measured_sweep_and_values_are_picked_and_outlive_a_reload(page):
    open_page(page, "sweeps?sweeps:axis=Mask", PICTURE)
    expect(page.get_by_text("The seeds of")).to_be_visible()
    expect(page.get_by_text("TypeError")).to_have_count(0)
    expect(
        page.locator("[data-testid='stVegaLiteChart'] canvas, [data-testid='stVegaLiteChart'] svg")
    ).to_have_count(2)
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


def test_a_sweep_trains_and_is_found_after_a_reload(page, server):
    base = create_run(small_run(steps=40, record_every=10), root=server.runs, name="tiny")
    base.set_status("finished", "Never begun.")
    open_page(page, "sweeps?sweeps:axis=Place+of+the+norm&sweeps:seeds=2")
    vary = page.get_by_role("combobox", name=re.compile("Vary"))
    expect(vary).to_have_value("Norm position")
    choose(page, re.compile("Base"), "tiny", exact=False)
    expect(vary).to_have_value("Norm position")
    click(page.get_by_role("button", name="Start sweep"))
    expect(page).to_have_url(re.compile("sweep="), timeout=60_000)
    sweep_id = re.search(r"sweep=([\w-]+)", page.url)[1]
    reload(page)
    expect(page.get_by_text("All 4 runs have finished")).to_be_visible(timeout=120_000)
    wait_picture(page)
    expect(page.get_by_text(re.compile("reaches"))).to_be_visible()
    states = [
        run.status().state
        for run in list_runs(server.runs)
        if run.metadata().get("sweep", {}).get("id") == sweep_id
    ]
    assert states == ["finished"] * 4


# Train in a real browser: reverse learns before one's eyes, Stop stops, a link and a reload find the run again.


RUN = re.compile(r"run=([0-9]{8}-[0-9]{6}-[0-9a-f]{6})")


def press(page: Page, name: str):
    return page.locator(
        f".st-key-train-{name} button"
    ).first  # a button with help stands in another one


def the_run(page: Page, server):
    return find_run(RUN.search(page.url)[1], server.runs)


def test_reverse_is_learned_found_again_and_trained_longer(page, server):
    open_page(
        page, "train?train:reverse:length=5&train:reverse:vocab=12", PICTURE
    )  # learned sooner than ten letters of 26
    page.locator(".st-key-train-reverse-length").get_by_role("slider").press("ArrowLeft")
    click(press(page, "train"), re.compile(r"Step [\d,]+ of"), "Finished after", timeout=120_000)
    expect(press(page, "train")).to_be_visible()
    run = the_run(page, server)
    last = run.records()[-1]
    assert run.config().task["length"] == 4
    assert last.final and last.sequence_accuracy >= 0.99
    heads = run.frame(last.step)["0:cross"][
        0
    ]  # (H, T, S); the four letters' rows come before that of the end mark
    on = max(sum(weights[t, 3 - t] for t in range(4)) / 4 for weights in heads)
    assert on > 0.6, "the anti-diagonal holds far more than uniform attention would give it"
    reload(page)
    expect(page.get_by_text("Finished after")).to_be_visible()
    assert the_run(page, server) == run
    click(press(page, "longer"))
    enter(page.get_by_label("More steps", exact=True), "40")
    wait_ready(page)
    click(press(page, "go-on"), f"Finished after {last.step + 40:,} steps", timeout=120_000)
    assert run.config().steps == last.step + 40


def test_first_sight_is_a_learned_run_whose_examples_follow_the_step_and_back_and_forward(page):
    open_page(page, "train", PICTURE)
    seed, step = page.locator(".st-key-train-seed input"), page.get_by_text("Examples at step")
    expect(step).to_contain_text(re.compile(r"\d"))
    last = step.text_content()
    page.locator(".st-key-train-seed").get_by_test_id("stNumberInputStepUp").click()
    page.wait_for_url("**train%3Aseed=1**")
    wait_ready(page)
    slider = page.get_by_role("slider", name=re.compile("step", re.I)).last
    slider.press("ArrowLeft")
    page.wait_for_url("**train%3Astep**")
    expect(step).not_to_have_text(last)
    for move, value in ((page.go_back, "1"), (page.go_back, "0"), (page.go_forward, "1")):
        wait_ready(page)
        move()
        expect(seed).to_have_value(value)
        expect(step).to_have_text(last)
    wait_ready(page)
    for _ in range(5):
        slider.press("ArrowLeft")
    expect(step).not_to_have_text(last)
    click(page.get_by_role("button", name="Play the frames"))
    expect(step).to_have_text(last, timeout=60_000)


def test_pause_and_continue_and_stop_and_the_run_is_there_when_one_comes_back(page, server):
    open_page(
        page,
        "train?train:reverse:transformer:finish_early=False&train:reverse:transformer:steps=2000",
        PICTURE,
    )
    click(press(page, "train"), STEP, timeout=60_000)
    click(press(page, "pause"), "Paused at step", timeout=60_000)
    run = the_run(page, server)
    paused = run.records()[-1].step
    assert run.status().state == "paused" and 0 < paused < run.config().steps
    click(press(page, "continue"), STEP, timeout=60_000)
    expect(page.get_by_text(STEP)).not_to_contain_text(f"Step {paused:,} of", timeout=60_000)
    click(press(page, "stop"), "is saved", timeout=60_000)
    expect(press(page, "train")).to_be_visible()
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
    expect(page.get_by_text("is saved").first).to_be_visible()
    assert parse_qs(urlsplit(page.url).query) == before


def test_a_strangers_table_trains_and_a_ragged_one_says_its_line(page, server):
    open_page(page, "train", PICTURE)
    page.get_by_label("Task", exact=True).click()
    page.get_by_role("option", name="Your own table").click()
    wait_ready(page)
    field = page.locator("input[type=file]")
    field.set_input_files(
        {"name": "bad.csv", "mimeType": "text/csv", "buffer": b"size,kind\n1,x\n2,y,z\n3,x\n"}
    )
    expect(page.get_by_text(re.compile("[Ll]ine 3")).first).to_be_visible()
    expect(press(page, "train")).to_be_disabled()
    rows = "".join(
        f"{n},{'small' if n < 50 else 'large'}\n" for n in (37 * i % 101 for i in range(120))
    )
    field.set_input_files(
        {"name": "mine.csv", "mimeType": "text/csv", "buffer": f"size,kind\n{rows}".encode()}
    )
    expect(page.get_by_text("kind is the class")).to_be_visible()
    click(press(page, "train"))
    page.wait_for_url(RUN)
    run = the_run(page, server)
    assert run.config().task["data"].startswith("size,kind\n0,small\n37,small")
    run.request_stop()


# A hierarchical model in a real browser: trained while one waits, both levels drawn at the picked step.


def test_a_document_is_classified_by_its_deciding_sentence(page, server):
    open_page(page, "train?train:task=documents", PICTURE)
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
    weight = table.locator("tbody tr").first.locator("td").nth(1)
    expect(weight).to_have_text(number(run.frame(last.step)["0:sentences"][0, 0, 0, 0]))
    page.get_by_role("slider", name=re.compile("step", re.I)).last.press("Home")
    expect(page.get_by_text("Document at step 0")).to_be_visible()
    expect(weight).to_have_text(number(run.frame(0)["0:sentences"][0, 0, 0, 0]))
    resize(page, 390, "dark")


# A pretrained model is fine-tuned in a real browser: started, stopped, read before and after, and found in Runs.


def test_pairs_are_learned_and_any_step_is_looked_at(page: Page):
    page.goto("/fine_tune")
    expect(page.get_by_text(re.compile("accuracy is .* held-out texts"))).to_be_visible()
    choose(page, "Task", "Pairs of sequences", exact=False)
    expect(page.get_by_text(re.compile("accuracy is .* held-out sources"))).to_be_visible()
    expect(page.locator(".mu canvas").first).to_be_visible()
    click(page.get_by_role("button", name="Fine-tune", exact=True))
    expect(stop_button(page)).to_be_visible()
    expect(page.get_by_text(re.compile(r"Step [\d,]+ of 570"))).to_be_visible(timeout=60_000)
    click(
        stop_button(page), re.compile(r"Stopped; everything up to step [\d,]+ is "), timeout=60_000
    )
    assert "run=" in page.url
    page.goto(f"/runs?{page.url.split('?')[1]}")
    expect(page.get_by_role("textbox", name="Name")).to_have_attribute(
        "placeholder", "numbers, fine-tuned on pairs"
    )
