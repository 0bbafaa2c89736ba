"""Use a model in a real browser: the first sight, a word that is picked, a link, another job's model."""

import re

from playwright.sync_api import expect

from tests.browser.helpers import click, open_page, resize, wait_ready

DRAWN = ".av canvas"


def test_a_model_does_its_job_beside_the_head_that_it_hangs_on(page):
    open_page(page, "use_model", DRAWN)
    expect(page.get_by_text("Similarity of each pair")).to_be_visible()
    expect(page.get_by_text(re.compile("is most similar to"))).to_be_visible()
    click(page.get_by_text("Other tasks and source"))
    click(page.get_by_role("button", name="numbers", exact=True))
    expect(page.get_by_text(re.compile("The model writes"))).to_be_visible(timeout=30_000)
    before = page.get_by_text(re.compile("The model writes")).inner_text()
    click(page.get_by_role("radio", name="neun").first)
    expect(page.get_by_text(re.compile("For neun"))).to_be_visible()
    assert page.get_by_text(re.compile("The model writes")).inner_text() != before
    expect(page.get_by_text(re.compile("on which .neun. depends most"))).to_be_visible()
    wait_ready(page)
    page.locator(".av .stage").focus()
    page.keyboard.press("[")
    expect(
        page.get_by_text(re.compile("Without it the (logit|probability) of neun"))
    ).to_be_visible()
    page.goto("about:blank")
    open_page(page, "use_model?inside:model=digits", DRAWN)
    expect(page.get_by_text(re.compile("The class is 3"))).to_be_visible()
    resize(page, 390, "light")
