"""Every family, opened as a folder on the page that draws all heads."""

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.pretrained import read
from tests.pages.app import app_at, assert_script, captions, open_at
from tests.tiny_models import given, save, tiny


@pytest.fixture
def app(monkeypatch) -> AppTest:
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    return app_at("pretrained")


def open_family(app: AppTest, folder: Path, family: str) -> str:
    """What the page says of the family."""
    folder = folder / family
    folder.mkdir()
    app.query_params["inside:model"] = str(save(family, folder))
    app.run()
    return re.sub(
        r"<[^>]+>", "", " ".join(element.proto.body for element in app.get("html"))
    ) + captions(app)


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        ("deepseek_v3", "deepseek\\_v3, 13 tokens"),
        ("longformer_classifier", "15 tokens (2 special)"),
        ("bloom", "13 tokens"),
        ("diffllama", "the model subtracts a learned share"),
        ("t5", "columns: 17 tokens"),
        ("vit", "10 tokens (1 special)"),
        ("whisper", "columns: 50 tokens"),
        ("gpt_oss", "columns: 14 tokens (1 special). A learned sink"),
    ],
)
def test_a_family_shows_its_heads_with_nothing_pressed(app, tmp_path, family, sentence):
    text = open_family(app, tmp_path, family)
    kind = "cross" if family in ("t5", "whisper") else None
    maps = [
        item for item in read(tiny(family), given(family)).trace.maps if kind in (None, item.kind)
    ]
    layer, head = map(int, re.search(r"In head L(\d+)·H(\d+)", text).groups())
    assert layer < len(maps) and head < len(maps[layer].weights) and sentence in text
    assert_script(app)


@pytest.mark.parametrize(
    ("family", "pages"),
    [
        ("bert", ("evidence", "lens", "use_model")),
        ("gpt_oss", ("evidence", "lens", "circuits", "head_roles")),
        ("whisper", ("lens", "circuits")),
        ("vit", ("evidence", "two_models", "use_model")),
        ("bart", ("inside_weight", "generate")),
    ],
)
def test_the_scripts_of_a_family_compute_what_its_pages_show(app, tmp_path, family, pages):
    folder = tmp_path / family
    folder.mkdir()
    save(family, folder)
    for page in pages:
        assert_script(open_at(page, **{"inside:model": str(folder)}))


@pytest.mark.parametrize(
    ("family", "reason"), [("mamba", "no attention weights"), ("big_bird_sparse", "original")]
)
def test_a_family_without_maps_says_why(app, tmp_path, family, reason):
    open_family(app, tmp_path, family)
    assert (
        reason in app.info[0].value
        and "Take" in app.info[0].value
        or "open that folder" in app.info[0].value
    )
