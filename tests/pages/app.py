"""What AppTest shows of a page, as text."""

import re

from streamlit.testing.v1 import AppTest


def assert_no_exception(app: AppTest) -> AppTest:
    assert not app.exception, [element.value for element in app.exception]
    return app


def html_text(app: AppTest) -> str:
    """The facts, tables and other HTML of the page, with their tags."""
    return " ".join(element.proto.body for element in assert_no_exception(app).get("html"))


def page_text(app: AppTest) -> str:
    """All sentences of the page without tags, and without the backslashes that keep Markdown off."""
    parts = [*assert_no_exception(app).markdown, *app.caption, *app.warning, *app.error, *app.info]
    texts = [str(element.value) for element in parts] + [element.proto.body for element in app.get("html")]
    return re.sub(r"<[^>]+>|\\", "", "\n".join(texts))
