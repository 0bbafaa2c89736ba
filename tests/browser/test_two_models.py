"""Two texts in a real browser: a word is changed, a head is pressed, and what the model learned is taken away."""

from functools import partial

from playwright.sync_api import Page, expect

from tests.browser.helpers import HOLD, LET_GO, box_of, click, wait_ready, wait_until

# What is written on a canvas since it was last cleared: text, where, and how.
RECORDER = """() => {
  const width = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, "width");
  Object.defineProperty(HTMLCanvasElement.prototype, "width", { ...width, set(value) {
    this.written = [];
    width.set.call(this, value);
  } });
  const fillText = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
    const ratio = window.devicePixelRatio, transform = this.getTransform(), at = transform.transformPoint({ x, y });
    const turned = Math.abs(transform.b) > 0.5, row = this.textAlign === "right";
    (this.canvas.written ??= []).push({ text, turned, row, x: at.x / ratio, y: at.y / ratio });
    return fillText.call(this, text, x, y, ...more);
  };
}"""
LONG = (
    "the old king walked to the dark river and the young queen walked to the red house because it was too late for "
    "him . but she did not care"
)


def names_on(page: Page, canvas: int) -> tuple[list[dict], list[dict]]:
    """The names of rows and of columns on a map's upper canvas, sorted by where they stand."""
    written = page.locator(".mu canvas.over").nth(canvas).evaluate("canvas => canvas.written")
    return (
        sorted((one for one in written if one["row"]), key=lambda one: one["y"]),
        sorted((one for one in written if one["turned"]), key=lambda one: one["x"]),
    )


def is_named(page: Page, middle: float) -> bool:
    """Whether the first map names the row with this middle."""
    return any(abs(one["y"] - middle) < 1 for one in names_on(page, 0)[0])


def test_names_of_34_tokens_do_not_meet_and_the_row_under_the_pointer_has_its_own(page: Page):
    page.goto(f"/two_models?inside:text={LONG.replace(' ', '+')}")
    expect(page.locator(".mu canvas.base")).to_have_count(3, timeout=60_000)
    page.evaluate(RECORDER)
    page.get_by_role("textbox", name="Text B").fill(LONG)
    page.get_by_role("textbox", name="Text B").press("Enter")
    expect(page.get_by_text("32 of 32 rows are in both")).to_be_visible(timeout=60_000)
    x, y, wide, high = map(
        float, page.locator(".mu [data-map]").first.get_attribute("data-map").split(",")
    )
    assert 11 <= high < 13, "the cells for which names have to be thinned"
    for names, along in zip(names_on(page, 0), "yx", strict=True):
        assert (
            len(names) > 12
            and min(b[along] - a[along] for a, b in zip(names, names[1:], strict=False)) >= 13
        )
    wait_ready(page)
    over = page.locator(".mu canvas.over").first
    over.scroll_into_view_if_needed()
    for row in (6, 7):
        over.hover(position={"x": x + 2.5 * wide, "y": y + (row + 0.5) * high})
        middle = y + (row + 0.5) * high
        named = partial(is_named, page, middle)
        wait_until(page, named, "the row under the pointer is named")
        rows, _ = names_on(page, 0)
        assert min(b["y"] - a["y"] for a, b in zip(rows, rows[1:], strict=False)) >= 13


def test_a_word_a_head_and_the_untrained_model(page: Page):
    page.goto("/two_models")
    expect(page.get_by_text("16 of 16 rows are in both")).to_be_visible(timeout=30_000)
    expect(page.locator(".mu canvas.base")).to_have_count(3)
    page.get_by_role("textbox", name="Text B").fill(
        "The dog didn't cross the wide street because it was too tired."
    )
    page.get_by_role("textbox", name="Text B").press("Enter")
    expect(page.get_by_text("16 of 17 rows are in both")).to_be_visible()
    expect(page.get_by_text("wide is absent.")).to_be_visible()
    first = page.locator(".mu .name span").first
    before = first.text_content()
    assert before.startswith("Text A, L")
    wait_ready(page)
    grid = page.locator(
        "[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg"
    ).first
    box = box_of(grid)
    grid.click(
        position={"x": box["width"] * 0.3, "y": box["height"] * 0.3}
    )  # within the first layers
    expect(first).not_to_have_text(before)
    assert first.inner_text().startswith(("Text A, L0", "Text A, L1", "Text A, L2"))
    field = page.get_by_role("combobox", name="Head")
    expect(field).to_have_value(first.inner_text().removeprefix("Text A, "))
    field.focus()
    page.evaluate(HOLD)
    page.keyboard.type("L4·H2")
    page.keyboard.press("Enter")
    expect(first).to_have_text("Text A, L4·H2")  # the maps do not wait for the server
    grid_fact = page.locator("[data-testid='stHtml'] p", has_text="L4·H2")
    expect(grid_fact).to_have_count(0)
    page.evaluate(LET_GO)
    expect(grid_fact.first).to_be_visible()
    expect(first).to_have_text("Text A, L4·H2")
    expect(field).to_be_focused()
    click(page.get_by_text("Trained and untrained", exact=True))
    expect(page.get_by_text("in the untrained model")).to_be_visible(timeout=30_000)
