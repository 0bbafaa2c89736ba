"""What the link says once controls rest."""

import re

from tests.browser.helpers import open_page

# What the server wrote before a press reaches the browser after it: the link is replaced by one without the press.
LATE = """() => {
  const replace = history.replaceState;
  history.replaceState = function (state, title, url) {
    const late = window.location.href;
    replace.call(this, state, title, url);
    if (String(url).includes("d_model")) { history.replaceState = replace; history.pushState(state, "", late); }
  };
}"""


def slider_of(page):
    return (
        page.locator('[data-testid="stSlider"]')
        .filter(has_text=re.compile("^d_model"))
        .get_by_role("slider")
    )


def press(page, key):
    slider_of(page).focus()
    slider_of(page).press(key)


def test_a_value_that_the_link_has_lost_is_written_again(page):
    open_page(page, "positions", **{"positions:d_model": "64"})
    page.get_by_role("button", name="Sizes").click()
    press(page, "ArrowRight")
    page.wait_for_url("**d_model=96*")
    page.evaluate(LATE)
    press(page, "ArrowRight")
    page.wait_for_url("**d_model=128*")
    assert slider_of(page).get_attribute("aria-valuetext") == "128"
