"""The page that a browser loads first: Streamlit's own, with a script, a style and preloads in its head."""

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit import config
from streamlit.file_util import get_static_dir

from dashboard.navigation import STEPS
from dashboard.server.http_guard import FONTS, MODULES, SIDEBAR_STYLE, index_page, routes

STATIC = Path(get_static_dir())


def test_streamlits_page_is_whole_and_what_hides_moving_elements_stands_in_its_head():
    page, original = index_page(embedded=False), (STATIC / "index.html").read_text("utf-8")
    head, body = original.split("</head>")
    assert page.startswith(head) and page.endswith(f"</head>{body}")
    assert (
        "\nhideWhatWaits();" in page
        and SIDEBAR_STYLE in page
        and SIDEBAR_STYLE not in index_page(embedded=True)
    )


def test_every_preload_is_a_file_of_this_streamlit():
    """A new version that renames one of them must be seen here."""
    head = (STATIC / "index.html").read_text("utf-8").split("</head>")[0]
    added = index_page(embedded=True).split("</head>")[0].removeprefix(head)
    files = re.findall(r'href="\./([^"]+)"', added)
    assert len(files) == len(MODULES) + len(FONTS) and all(
        (STATIC / file).is_file() for file in files
    )


@pytest.mark.parametrize("base", ["", "lab/two"])
def test_every_page_answers_with_it_and_an_embedded_one_waits_for_no_sidebar(base, monkeypatch):
    monkeypatch.setattr(config, "get_option", {"server.baseUrlPath": base}.__getitem__)
    client = TestClient(Starlette(routes=routes()))
    prefix = f"/{base}/" if base else "/"
    for step in STEPS:
        assert SIDEBAR_STYLE in client.get(prefix + ("" if step.default else step.key)).text
    assert SIDEBAR_STYLE not in client.get(f"{prefix}why?embed=true&embed_options=light_theme").text
    assert client.get(f"{prefix}no_such_page").status_code == 404  # left to Streamlit
