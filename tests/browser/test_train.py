"""Train in a real browser: reverse learns before one's eyes, Stop stops, a link and a reload find the run again."""

import re
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from core.runs.runs import find_run
from dashboard.draw.formats import number
from tests.browser.helpers import (
    PICTURE,
    choose,
    click,
    enter,
    open_page,
    reload,
    resize,
    stop_button,
    wait_for,
    wait_ready,
)

STEP = re.compile(r"Step [1-9][\d,]* of")
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
    expect(page.get_by_text("uniform attention gives")).to_be_visible()
    expect(press(page, "train")).to_be_visible()
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
