"""The chooser of Look inside in a real browser: a model of a hub from its name to its heads, and uploaded arrays."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import running
from tests.browser.helpers import click, shot, stop_button, wait_ready
from tests.pretrained.fake_hub import COMMIT, Repo, bert_files, serving


@pytest.fixture(scope="module")
def hub():
    repos = {"lab/bert": Repo(bert_files(), seconds_a_step=0.1),
             "lab/pickle": Repo({"config.json": b"{}", "pytorch_model.bin": b"x"})}  # fmt: skip
    with serving(repos) as there:
        yield there


@pytest.fixture(scope="module")
def url(hub, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.address)
        patch.setenv("HF_HOME", str(folder / "home"))
        with running(folder, Path(__file__).parent / "hub_app.py") as server:
            yield server.url


def test_a_model_of_the_hub_from_its_name_to_its_heads_and_on_every_page(page: Page, url: str):
    page.goto(f"{url}/pretrained")
    wait_ready(page, 60_000)
    model = page.get_by_test_id("stMain").get_by_role("combobox").first
    model.click()
    model.fill("lab/pickle")
    model.press("Enter")
    expect(page.get_by_text("a pickle, which could run code")).to_be_visible()
    click(model)
    page.get_by_text("Another model…").click()
    name = page.get_by_label("Name on the hub, or the path of a folder", exact=True)
    name.fill("lab/bert")
    name.press("Enter")
    expect(page.get_by_text(re.compile("lab/bert is a bert model: .* to download"))).to_be_visible()
    shot(page, "inside_offer")
    click(page.get_by_role("button", name="Load"))
    expect(page.get_by_text(re.compile(r"Downloading lab/bert: .* of"))).to_be_visible()
    expect(stop_button(page)).to_be_visible()
    expect(page.locator(".av[data-ready='1']")).to_have_count(2, timeout=60_000)
    assert COMMIT in page.url
    click(page.get_by_test_id("stSidebar").get_by_role("link", name="Generate"))
    wait_ready(page)
    expect(page.get_by_text("generates no text")).to_be_visible()
    expect(page.get_by_role("button", name="Use induction")).to_be_visible()


def test_uploaded_arrays_are_drawn_like_any_model(page: Page):
    out = io.BytesIO()
    weights = np.tril(np.ones((2, 3, 5, 5), np.float32))
    np.savez(
        out, attention=weights / weights.sum(-1, keepdims=True), tokens=np.array(list("abcde"))
    )
    page.goto("/pretrained?inside:model=Your+own+arrays…")
    wait_ready(page, 60_000)
    expect(page.get_by_text("at most 200 MB")).to_be_visible()
    page.locator("input[type=file]").set_input_files(
        {"name": "mine.npz", "mimeType": "application/zip", "buffer": out.getvalue()}
    )
    expect(page.locator(".av[data-ready='1']")).to_have_count(2, timeout=60_000)
    expect(page.get_by_text("2 layers of 3 heads, 5 tokens")).to_be_visible()
    shot(page, "inside_arrays")
