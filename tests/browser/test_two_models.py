"""Two texts in a real browser: a word is changed, a head is pressed, and what the model learned is taken away."""

from playwright.sync_api import Page, expect


def test_a_word_a_head_and_the_untrained_model(page: Page):
    page.goto("/two_models")
    expect(page.get_by_text("16 of 16 rows are in both")).to_be_visible(timeout=30_000)
    expect(page.locator(".mu canvas.base")).to_have_count(3)
    page.get_by_role("textbox", name="Text B").fill("The dog didn't cross the wide street because it was too tired.")
    page.get_by_role("textbox", name="Text B").press("Enter")
    expect(page.get_by_text("16 of 17 rows are in both")).to_be_visible()
    expect(page.get_by_text("wide is not there.")).to_be_visible()
    first = page.locator(".mu .name span").first
    before = first.inner_text()
    assert before.startswith("Text A, L")
    grid = page.locator("[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg").first
    box = grid.bounding_box()
    grid.click(position={"x": box["width"] * 0.3, "y": box["height"] * 0.3})  # within the first layers
    expect(first).not_to_have_text(before)
    assert first.inner_text().startswith(("Text A, L0", "Text A, L1", "Text A, L2"))
    page.get_by_text("Trained and untrained", exact=True).click()
    expect(page.get_by_text("in the untrained model")).to_be_visible(timeout=30_000)
