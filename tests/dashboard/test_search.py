"""The search of the sidebar: its saved list is what the lab has, and what is picked opens."""

import json

import pytest

from dashboard.search import FILE, collect, hits
from tests.pages.app import open_at


def test_the_saved_list_is_what_the_lab_has():
    saved = json.loads(FILE.read_text("utf-8"))
    assert saved == json.loads(json.dumps(collect())), "run make search"
    assert len(hits()) == len(saved)  # no two stand in the list alike


@pytest.mark.parametrize("start", ["start", "mechanisms", "glossary", "claims", "cards"])
def test_what_is_picked_opens(start):
    app = open_at(start)
    for typed, key, value in [
        ("sliding window", "mechanisms:mask", "local"),
        ("Nyström", "mechanisms:kernel", "nystrom"),
        ("perplexity", "glossary:find", "perplexity"),
        ("One vector", "claims:choice", "bottleneck"),
        ("Llama 3.1", "cards:model", "llama3"),
    ]:
        search = next(one for one in app.sidebar.selectbox if one.label == "Search the lab")
        search.select(next(one for one in hits() if typed in one)).run()
        assert {one.key: one.value for one in (*app.selectbox, *app.text_input)}[key] == value
        assert not app.exception
