"""Configs as Python that makes them again, and scripts and notebooks of the same cells."""

import json

import nbformat
import numpy as np
import pytest
from hypothesis import given, strategies as st

from core.attention import AXES, AttentionConfig, Choice
from core.attention.presets import PRESETS
from core.models import ModelConfig
from core.models.decoding import SearchSettings
from core.tasks import TASKS, TaskConfig
from core.training import RunConfig
from dashboard.draw.scripts import WIDTH, Cell, Script, source_of

NAMES = {
    "AttentionConfig": AttentionConfig,
    "Choice": Choice,
    "ModelConfig": ModelConfig,
    "RunConfig": RunConfig,
    "SearchSettings": SearchSettings,
    "TaskConfig": TaskConfig,
}


def made_again(value: object) -> object:
    text = source_of(value)
    assert max(map(len, text.splitlines())) <= WIDTH
    return eval(text, dict(NAMES))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.key)
def test_a_preset_comes_back(preset):
    config = preset.config()
    assert made_again(config) == config


@pytest.mark.parametrize(
    "entry", [entry for axis in AXES.values() for entry in axis], ids=lambda entry: entry.key
)
def test_a_choice_comes_back(entry):
    axis = next(name for name, entries in AXES.items() if entry in entries)
    choice = Choice.of(entry.key, **{param.key: param.default for param in entry.params})
    assert source_of(choice) == f"Choice.of({entry.key!r})" and axis


def test_what_is_not_a_default_is_written():
    window = Choice.of("or", Choice.of("causal_local", lookback=5), Choice("padding"))
    config = AttentionConfig(16, 2, mask=window, position=Choice.of("rope", base=50.0))
    assert source_of(config) == (
        "AttentionConfig(\n    d_model=16,\n    num_heads=2,\n    position=Choice.of('rope', base=50.0),\n"
        "    mask=Choice.of('or', Choice.of('causal_local', lookback=5), Choice.of('padding')),\n)"
    )
    assert made_again(config) == config


@pytest.mark.parametrize("entry", TASKS, ids=lambda entry: entry.key)
def test_a_task_comes_back(entry):
    config = TaskConfig.of(entry.key, seed=7)
    assert made_again(config) == config


def test_a_run_comes_back():
    config = RunConfig(
        TaskConfig.of("reverse", length=5), ModelConfig.transformer(position="alibi"), steps=30
    )
    assert made_again(config) == config


@given(
    st.recursive(
        st.integers() | st.text() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_plain_values_come_back(value):
    assert eval(source_of(value)) == value


SCRIPT = Script(
    (
        Cell("Two numbers.\nAnd a sum.", "a = 1\nb = 2"),
        Cell("Their sum.", "total = a + b", "total", "sum"),
    ),
    {"total": np.array(3)},
)


def test_a_script_has_words_as_comments_and_nothing_to_draw():
    first, needs, rest = SCRIPT.text("Masks · 2026-11-23").split("\n", 2)
    assert first == "# Masks · 2026-11-23" and needs.startswith("# Needs Attention Lab ")
    assert rest == ("\n# Two numbers.\n# And a sum.\na = 1\nb = 2\n\n# Their sum.\ntotal = a + b\n")


def test_a_notebook_is_valid_and_opens_with_its_pictures():
    text = SCRIPT.notebook("Masks", {"sum": "<svg/>"})
    nbformat.validate(json.loads(text))
    cells = json.loads(text)["cells"]
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    assert code == ["a = 1\nb = 2", "total = a + b", "total"]
    assert (
        cells[-1]["outputs"][0]["data"] == {"image/svg+xml": "<svg/>"} and not cells[-2]["outputs"]
    )


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0c", "\x00", "\u2028", "\x85"])
def test_a_line_break_in_a_typed_text_does_not_end_the_comment(end):
    names: dict[str, object] = {}
    exec(SCRIPT.text(f"Pretrained · the old king{end}broken = True"), names)
    assert "broken" not in names and names["total"] == 3
