"""A trace as a file of its own, opened without a network: its heads are picked, read and pinned, in both themes."""

import pytest
from playwright.sync_api import Browser, expect

from dashboard.charts.numbers import number
from dashboard.components.standalone import trace_html
from tests.components.test_standalone import trace

TRACE = trace(2, 3, 5, 4, mask=True)


@pytest.fixture
def alone(browser: Browser, tmp_path):
    """The file in a browser that has no network."""
    path = tmp_path / "heads.html"
    path.write_text(trace_html(TRACE, title="Heads", source="a model", head=1, query=3), encoding="utf-8")
    context = browser.new_context(offline=True, color_scheme="light", viewport={"width": 1280, "height": 900})
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert not faults


def test_a_head_is_picked_in_the_grid_read_by_keys_and_pinned(alone):
    grid, one = alone.locator(".view.av").nth(0), alone.locator(".view.av").nth(1)
    expect(one.locator(".title")).to_have_text("L0·H1")
    one.get_by_role("button", name="Table").click()
    expect(one.locator("table")).to_contain_text("q3 → key")
    one.get_by_role("button", name="Table").click()
    stage = grid.locator("[tabindex='0']").first
    stage.focus()
    for name in ("ArrowDown", "Enter"):
        stage.press(name)
    expect(one.locator(".title")).to_have_text("L1·H1")
    reader = one.locator("[tabindex='0']").first
    reader.focus()
    reader.press("]")
    expect(one.locator(".title")).to_have_text("L1·H2")
    for name in ("ArrowUp", "Enter"):
        reader.press(name)
    weight = number(float(TRACE.maps[1].weights[2][2, 0]))
    expect(one).to_contain_text(f"pinned q2 → {TRACE.maps[1].keys[0]}, {weight}")
    alone.get_by_role("button", name="Dark").click()
    expect(alone.locator("html")).to_have_attribute("data-theme", "dark")
    expect(one.locator(".title")).to_have_text("L1·H2")
    expect(alone.locator("footer")).to_have_text("a model")
