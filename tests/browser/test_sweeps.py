"""The Sweeps page in a real browser: its values stay open while they are picked, and outlive a reload."""

from playwright.sync_api import expect

from tests.browser.helpers import assert_no_exception, wait_picture, wait_ready


def test_first_sight_is_a_measured_sweep_and_values_are_picked_and_outlive_a_reload(page):
    page.goto("/sweeps?sweeps:axis=Mask")
    wait_ready(page)
    wait_picture(page)
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
    page.reload()
    wait_ready(page)
    expect(chosen).to_contain_text("Dilated window, Strided")
    assert_no_exception(page)
