"""The Sweeps page in a real browser: its values stay open while they are picked, and outlive a reload."""

from playwright.sync_api import expect

from tests.browser.helpers import assert_no_exception, wait_ready


def test_values_are_picked_one_after_the_other_and_outlive_a_reload(server, page):
    page.goto(f"{server.url}/sweeps?sweeps:axis=Mask")
    wait_ready(page)
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
