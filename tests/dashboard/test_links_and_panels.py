"""Every link leads to a page of the app, and no panel closes because its own content changed its label."""

import ast
from pathlib import Path

from streamlit.testing.v1 import AppTest

from dashboard.navigation import STEPS
from tests.cases import each

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "dashboard").rglob("*.py"), *(ROOT / "pages").glob("*.py")])
KEYS = {step.key for step in STEPS}


def calls(path: Path, *names: str) -> list[ast.Call]:
    """The calls of methods or functions of these names in a file."""
    text = path.read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(text)) if any(name in text for name in names) else ()
    return [
        node
        for node in nodes
        if isinstance(node, ast.Call)
        and (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        in names
    ]


def test_the_pages_in_the_list_are_the_files_there_are():
    assert {path.stem for path in (ROOT / "pages").glob("*.py")} == KEYS


@each("path", FILES)
def test_links_are_made_from_the_list_of_pages(path):
    """A page is no file that is run: only the list knows it."""
    for call in calls(path, "page_link", "switch_page"):
        target = call.args[0]
        assert not isinstance(target, ast.Constant | ast.JoinedStr), (
            f"line {call.lineno}: take it from navigation"
        )
        keys = {
            node.args[0].value
            for node in ast.walk(target)
            if isinstance(node, ast.Call)
            and ast.unparse(node.func) == "step_of"
            and isinstance(node.args[0], ast.Constant)
        }
        assert keys <= KEYS, f"line {call.lineno}: {keys - KEYS} is no page"


@each("path", FILES)
def test_a_panel_with_state_has_a_label_that_stays(path):
    """Streamlit makes the label a part of a panel's identity, key or not: another label is another panel, closed."""
    for call in calls(path, "popover", "expander"):
        if call.args and any(word.arg == "on_change" for word in call.keywords):
            assert not isinstance(call.args[0], ast.JoinedStr | ast.IfExp), (
                f"line {call.lineno}: its label changes"
            )


def _of_runs():
    import streamlit as st

    from dashboard.ui.links import forget_other_runs

    forget_other_runs("train", "20261124-100000-00000b")
    st.write("drawn")


def test_a_link_says_nothing_of_runs_that_are_not_shown():
    app = AppTest.from_function(_of_runs)
    kept = {
        "train:step:20261124-100000-00000b": "3",
        "train:head:example_run:cross": "0.1",
        "train:seed": "2",
        "decode:step:20261124-100000-00000a": "3",
    }
    for name, value in (
        kept
        | {
            "train:head:20261124-100000-00000a:cross": "0.1",
            "train:more:20261124-100000-00000c": "9",
        }
    ).items():
        app.query_params[name] = value
    assert set(app.run().query_params) == set(kept)
