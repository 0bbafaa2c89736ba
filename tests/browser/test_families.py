"""Several families in a real browser: a folder each, its grid and one head drawn with the tokens it read."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.helpers import cell, shot, wait_ready
from tests.tiny_models import save

# Rows and columns of a head that is drawn with nothing pressed.
SHOWN = {"roberta": (15, 15), "gpt_oss": (13, 14), "longformer": (15, 15), "vit": (10, 10)}


@pytest.mark.parametrize("family", SHOWN)
def test_a_folder_of_the_family_is_drawn(page: Page, tmp_path, family):
    (folder := tmp_path / family).mkdir()
    page.goto(f"/pretrained?inside%3Amodel={save(family, folder)}")
    wait_ready(page, 60_000)
    views = page.locator(".av[data-ready='1']")
    expect(views).to_have_count(2, timeout=60_000)
    rows, columns = SHOWN[family]
    head = views.nth(1)
    page.mouse.move(*cell(head, rows - 1, columns - 1))
    expect(head).to_have_attribute("data-hover", f"{rows - 1},{columns - 1}")
    assert 0 <= float(head.get_attribute("data-value")) <= 1
    shot(page, f"family_{family}")
