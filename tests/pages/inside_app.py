"""What the tests of the chooser of Look inside share: the page that has it alone, and what it says."""

from pathlib import Path

from streamlit.testing.v1 import AppTest

DEMO = Path(__file__).parent / "inside_demo.py"


def code_text(app: AppTest) -> str:
    return app.code[0].value


def message_text(app: AppTest) -> str:
    """What the page says beside the controls, without the signs that keep Markdown off."""
    parts = [*app.info, *app.error, *app.warning, *app.markdown, *app.caption]
    return " ".join(part.value for part in parts).replace("\\", "")


def button(app: AppTest, label: str):
    return next(one for one in app.button if label in one.label)
