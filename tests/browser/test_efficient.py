"""Cost and speed in a real browser: a link with its settings, both figures, a race with its bar, Stop, and a phone."""

from playwright.sync_api import expect

from tests.browser.helpers import assert_no_exception, click, resize, stop_button, wait_ready

CHARTS = "[data-testid='stVegaLiteChart'] canvas, [data-testid='stVegaLiteChart'] svg"


def test_a_race_runs_and_stops_and_a_phone_shows_the_links_settings(page):
    # The longest race there is, so that it does not end before Stop.
    page.goto(
        "/efficient?efficient:longest=8,192+tokens&efficient:backward=and+backward&efficient:few=6"
    )
    wait_ready(page)
    expect(page.get_by_text("Nyström with 6 landmarks")).to_be_visible()
    expect(page.get_by_role("combobox", name="Longest text")).to_have_value("8,192 tokens")
    assert page.locator(CHARTS).count() >= 2
    measure = page.get_by_role("button", name="Measure", exact=True)
    click(measure)
    expect(page.get_by_role("progressbar").first).to_be_visible()
    click(stop_button(page))
    expect(measure).to_be_enabled()
    wait_ready(page)
    assert_no_exception(page)
    resize(page, 390, "dark")
    assert_no_exception(page)
