"""A pretrained model is fine-tuned in a real browser: started, stopped, read before and after, and found in Runs."""

import re

from playwright.sync_api import Page, expect

from tests.browser.helpers import click, stop_button


def test_pairs_are_learned_and_any_step_is_looked_at(page: Page):
    page.goto("/fine_tune")
    expect(page.get_by_text(re.compile("accuracy is .* held-out texts"))).to_be_visible()
    click(page.get_by_role("combobox", name="Task"))
    page.get_by_role("option", name="Pairs of sequences").click()
    expect(page.get_by_text(re.compile("accuracy is .* held-out sources"))).to_be_visible()
    expect(page.locator(".mu canvas").first).to_be_visible()
    click(page.get_by_role("button", name="Fine-tune", exact=True))
    expect(stop_button(page)).to_be_visible()
    expect(page.get_by_text(re.compile(r"Step [\d,]+ of 570"))).to_be_visible(timeout=60_000)
    click(stop_button(page))
    expect(
        page.get_by_text(re.compile(r"Stopped; everything up to step [\d,]+ is "))
    ).to_be_visible(timeout=60_000)
    assert "run=" in page.url
    page.goto(f"/runs?{page.url.split('?')[1]}")
    expect(page.get_by_role("textbox", name="Name")).to_have_attribute(
        "placeholder", "numbers, fine-tuned on pairs"
    )
