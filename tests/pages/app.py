"""A page of the dashboard in AppTest, and what it shows as text."""

import csv
import io
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.draw.components import Script, join
from dashboard.draw.picture_files import Source, page_file
from tests.close import assert_close

ROOT = Path(__file__).resolve().parents[2]
APP = str(ROOT / "dashboard" / "app.py")
# Times, rates and memory, which differ at each run
TIMES = re.compile(r"[\d.,]+( ?(?:ms|µs|s|min|GB|MB|kB|steps per second)(?![a-z]))")
WIDGETS = (
    "selectbox",
    "select_slider",
    "slider",
    "number_input",
    "toggle",
    "multiselect",
    "text_input",
    "text_area",
)


def app_at(page: str, prefix: str = "", **link: str | list[str]) -> AppTest:
    """The app at that page, not run yet, opened by a link; `prefix` is that of its parameters' names."""
    app = AppTest.from_file(APP, default_timeout=60)
    for name, value in link.items():
        app.query_params[prefix + name] = value
    return app.switch_page(f"../pages/{page}.py")


def open_at(page: str, prefix: str = "", /, **link: str | list[str]) -> AppTest:
    return app_at(page, prefix, **link).run()


def set_control(prefix: str, app: AppTest, kind: str, name: str, value: object) -> AppTest:
    getattr(app, kind)(key=prefix + name).set_value(value)
    return app.run()


def set_state(app: AppTest, key: str, value: object = True) -> AppTest:
    """The page after a value of its session changed, as where a popover opens."""
    app.session_state[key] = value
    return app.run()


def html_text(app: AppTest) -> str:
    """The facts, tables and other HTML of the page, with their tags, but the styles and the tags of the glossary."""
    bodies = " ".join(element.proto.body for element in app.get("html"))
    return without_terms(re.sub(r"<style>.*?</style>", "", bodies, flags=re.DOTALL))


def without_terms(text: str) -> str:
    """The text without the tags that explain its terms."""
    return re.sub(r"</?abbr[^>]*>", "", text)


def page_text(app: AppTest) -> str:
    """All sentences of the page without tags, and without the backslashes that keep Markdown off."""
    texts = [
        str(element.value)
        for element in [*app.markdown, *app.caption, *app.warning, *app.error, *app.info]
    ] + [element.proto.body for element in app.get("html")]
    return re.sub(r"<[^>]+>|\\", "", "\n".join(texts))


def assert_says(app: AppTest, *sentences: str) -> None:
    """The page runs, and says each of these."""
    text = page_text(app)
    assert not app.exception and [one for one in sentences if one not in text] == []


def pictures_of(app: AppTest) -> dict[str, Any]:
    """What Export offers on the page, by key."""
    return {key: make() for key, make in app.session_state["page_pictures"].pictures.items()}


def page_html(app: AppTest, page: str) -> bytes:
    return page_file(
        Source(page, "2026-11-23", {}, {}),
        pictures_of(app),
        app.session_state["page_pictures"].drawn,
    )


def script_of(app: AppTest) -> Script:
    return join(make() for make in app.session_state["page_pictures"].scripts.values())


def assert_script(app: AppTest) -> None:
    """Run the page's script, which computes the page's numbers."""
    script, names = script_of(app), dict[str, Any]()
    exec(script.text(""), names)
    for cell in script.cells:
        exec(cell.draw.strip(), names)
    assert_results(
        {expression: np.asarray(eval(expression, names)) for expression in script.results}, script
    )


def own_paths(app: AppTest) -> list[str]:
    """The paths of this machine, of the lab, the home folder or temporary files, that a page, its link, its script or its
    notebook has."""
    script = script_of(app) if app.session_state["page_pictures"].scripts else Script(())
    labels = [getattr(one, "options", one.value) for one in elements(app).values()]
    texts = [everything(app), *shown(app), str(labels), str(dict(app.query_params))]
    places = (ROOT, Path.home(), Path(tempfile.gettempdir()))
    known = "|".join(re.escape(str(one)) for one in places if one != Path(one.root))
    whole = "\n".join([*texts, script.text(""), script.notebook("")])
    return re.findall(rf"(?<![\w.~])(?:{known})[/\\][^\s'\"]*", whole)


def assert_results(computed: Mapping[str, np.ndarray], script: Script) -> None:
    for expression, value in script.results.items():
        assert_close(computed[expression], np.asarray(value), where=expression)


def captions(app: AppTest) -> str:
    return without_terms(" ".join(caption.value for caption in app.caption))


def live(app: AppTest) -> str:
    """The equations that hold the page's own numbers."""
    return " ".join(element.value for element in app.markdown if "displaystyle" in element.value)


def tree(app: AppTest) -> str:
    """What the picture of a search was given, as JSON."""
    return next(e.proto.json for e in app.get("bidi_component") if "data-place" in e.proto.json)


def contrast(*colors: Sequence[float]) -> float:
    """The contrast of two colors, whose red, green and blue are 0 to 255 (WCAG 2.2)."""
    shares = np.array(colors) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    low, high = np.sort(linear @ (0.2126, 0.7152, 0.0722))
    return float((high + 0.05) / (low + 0.05))


def figures(app: AppTest) -> Sequence:
    return app.get("arrow_vega_lite_chart") or app.get("vega_lite_chart")


def csv_rows(data: bytes) -> list[dict[str, str]]:
    """The rows of a file by the names of its columns."""
    return list(csv.DictReader(io.StringIO(data.decode())))


def query_value(app: AppTest, name: str) -> str:
    value = app.query_params[name]
    return value if isinstance(value, str) else value[0]


def open_page(page: str, link: Mapping[str, Any], state: Mapping[str, Any] = {}) -> AppTest:
    app = app_at(page)
    for name, text in link.items():
        app.query_params[name] = text
    for key, value in state.items():
        app.session_state[key] = value
    return app.run()


def elements(app: AppTest) -> dict[str, Any]:
    """The controls of a page that can be set, by key."""
    drawn: list[Any] = [one for kind in (*WIDGETS, "button_group") for one in app.get(kind)]
    return {one.key: one for one in drawn if one.key and not one.disabled}


def controls_of(app: AppTest) -> dict[str, Any]:
    return {key: one.value for key, one in elements(app).items()}


def shown(app: AppTest) -> list[str]:
    """All that the page says and draws, but what was measured here and now."""
    texts = [str(each.value) for each in (*app.markdown, *app.caption, *app.latex)]
    texts += [each.proto.body for each in app.get("html")] + [f.proto.spec for f in figures(app)]
    texts += [f.proto.data.data.hex() for f in figures(app)]
    texts += [each.proto.json for each in app.get("bidi_component")]
    return [TIMES.sub(r"?\1", text) for text in texts]


@dataclass(frozen=True)
class Case:
    """A page opened by a link, what is done there in turn, and what holds then."""

    link: Mapping[str, Any] = field(default_factory=dict)
    says: Sequence[str] = ()
    never: Sequence[str] = ()  # what it does not say
    do: Sequence[
        tuple[str, str, Any]
    ] = ()  # ("slider", its key, a value), ("button", its key, None)
    controls: Mapping[str, Any] = field(default_factory=dict)  # values by key, afterwards
    query: Mapping[str, Any] = field(default_factory=dict)  # of the link, afterwards; None: absent


def everything(app: AppTest) -> str:
    """What the page says without tags, with them, and without the marks of bold and accent, and its labels."""
    text = page_text(app)
    parts = [text, html_text(app), re.sub(r":primary\[|[]*]", "", text)]
    parts += [one.label + " (disabled)" * one.disabled for one in app.button]
    parts += [one.label for one in app.expander] + [one.value for one in (*app.latex, *app.code)]
    parts += [one.proto.text for one in app.get("progress")]
    parts += [one.value for one in app.toast]
    return "\n".join([*parts, *(f"{one.label} {one.value}" for one in app.metric)])


def assert_case(app: AppTest, case: Case, prefix: str = "") -> None:
    """Do what the case does on its page, which then says what it is to say."""
    for kind, key, value in case.do:
        if kind in ("session_state", "query_params"):
            getattr(app, kind)[prefix + key] = value
            app.run()
        else:
            widget = getattr(app, kind)(key=prefix + key)
            (widget.click() if kind == "button" else widget.set_value(value)).run()
    text, components = (
        everything(app),
        " ".join(one.proto.json for one in app.get("bidi_component")),
    )
    assert [one for one in case.says if one not in text + components] == []
    assert [one for one in case.never if one in text] == []
    assert {key: app.session_state[prefix + key] for key in case.controls} == case.controls
    query = app.query_params
    assert {
        name: query_value(app, name) if name in query else None for name in case.query
    } == case.query


def page_cases(page: str, cases: Mapping[str, Case], prefix: str = "") -> Callable[[Case], None]:
    """A test of what a page says in each of these cases; `prefix` is that of the names of its link and its keys."""

    @pytest.mark.parametrize("case", cases.values(), ids=cases.keys())
    def test(case: Case) -> None:
        assert_case(open_at(page, prefix, **case.link), case, prefix)

    return test


def visit_cases(
    cases: Mapping[str, Sequence[tuple[str, Case]]], state: Mapping[str, Any] = {}
) -> Callable[[Sequence[tuple[str, Case]]], None]:
    """A test of pages that are visited in turn in one session, as the sidebar opens them, which leaves the link behind.

    Each visit is a page, "" for the one that is open, with a link of its own, what is done there, and what holds then.
    `state` are values of the session that AppTest, unlike a browser, drops when the page is another one.
    """

    @pytest.mark.parametrize("visits", cases.values(), ids=cases.keys())
    def test(visits: Sequence[tuple[str, Case]]) -> None:
        app = AppTest.from_file(APP, default_timeout=60)
        for page, case in visits:
            if page:
                app.query_params.clear()
                for name, value in case.link.items():
                    app.query_params[name] = value
                for name, value in state.items():
                    app.session_state[name] = value
                app.switch_page(f"../pages/{page}.py").run()
            assert_case(app, case)

    return test
