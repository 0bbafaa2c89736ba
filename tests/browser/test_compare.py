"""Side by side in a real browser: the crosshair over all maps, a pin in the link, the list, the dialog, a phone."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.helpers import cell, resize, wait_ready

SEEDED = "/compare?source=seeded&text=The+animal+was+too+tired+.&length=128"


@pytest.fixture
def maps(page: Page) -> Locator:
    page.goto(SEEDED)
    page.locator(".mu[data-ready='1']").first.wait_for()
    wait_ready(page)
    return page.locator(".mu").first


def names(page: Page) -> list[str]:
    return page.locator(".mu").first.locator(".tile .name").all_inner_texts()


def test_all_maps_follow_the_numbers_add_up_and_a_reload_finds_a_pin_and_a_phone_all_of_it(
    maps, page
):
    apart = page.locator(".mu").last
    page.mouse.move(*cell(maps.locator(".tile").nth(1), 4, 2))
    expect(apart).to_have_attribute("data-hover", "4,2")
    dot, alibi = (float(maps.locator(".tile").nth(at).get_attribute("data-value")) for at in (0, 1))
    assert float(apart.locator(".tile").get_attribute("data-value")) == pytest.approx(
        alibi - dot, abs=2e-6
    )
    assert maps.locator(".tile").nth(3).locator(".note").inner_text().startswith("implied")
    page.mouse.click(*cell(maps.locator(".tile").nth(0), 1, 3))
    page.wait_for_url("**pin=1.3**")
    sentence = page.locator("p", has_text="weight within two")
    expect(sentence).to_contain_text("animal")
    page.reload()
    page.locator(".mu[data-pin='1,3']").first.wait_for()
    expect(sentence).to_contain_text("animal")
    for scheme in ("light", "dark"):
        resize(page, 390, scheme)
        expect(maps).to_have_attribute("data-theme", scheme)
    expect(maps.locator(".tile:visible")).to_have_count(1)


def test_the_list_moves_and_the_dialog_changes_a_mechanism(maps, page):
    page.get_by_role("button", name="Mechanisms").click()
    page.get_by_role("button", name="Dot product", exact=True).click()
    page.get_by_role("menuitem", name="Move after").click()
    expect(page.locator(".mu").first.locator(".name").first).to_have_text("ALiBi")
    wait_ready(page)
    page.get_by_role("button", name="Dot product", exact=True).click()
    page.get_by_role("menuitem", name="Change").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("It starts as Dot product")).to_be_visible()
    expect(page.get_by_role("combobox", name="Add a mechanism")).to_have_count(
        0
    )  # the list does not lie over it
    dialog.get_by_role("combobox", name="Normalizer").click()
    page.keyboard.type("sparsemax")
    page.keyboard.press("Enter")
    wait_ready(page)
    dialog.get_by_role("button", name="Compare this").click()
    expect(page.locator(".mu").first.locator(".name").nth(1)).to_have_text("Sparsemax")
    wait_ready(page)
    assert "normalizer%3Dsparsemax" in page.url
    page.reload()
    page.locator(".mu[data-ready='1']").first.wait_for()
    assert names(page) == ["ALiBi", "Sparsemax", "Local window", "Linear"]


def test_the_back_button_takes_a_choice_back_and_another_page_does_not(maps, page):
    apart = page.locator(".mu").last.locator(".name")
    expect(apart).to_have_text("ALiBi − Dot product")
    page.get_by_role("combobox", name="Difference").click()
    page.get_by_role("option", name="Linear", exact=True).click()
    expect(apart).to_have_text("Linear − Dot product")
    wait_ready(page)
    page.go_back()
    expect(apart).to_have_text("ALiBi − Dot product")
    page.go_forward()
    expect(apart).to_have_text("Linear − Dot product")
    wait_ready(page)
    page.get_by_role("link", name="Masks").first.click()
    page.wait_for_url("**/masks**")
    wait_ready(page)
    page.get_by_role("link", name="Side by side").first.click()
    page.wait_for_url("**/compare?**minus=3.0**")
    wait_ready(page)
    expect(apart).to_have_text("Linear − Dot product")
