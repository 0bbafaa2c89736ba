"""A head that is picked on one page of Look inside is the one that the next page shows."""

import pytest
from streamlit.testing.v1 import AppTest

from pages import inside_weight as weight
from pages.head_roles import HEAD, ROLE
from tests.pages.app import APP, html_text


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_file(APP, default_timeout=60)


def open_page(app: AppTest, page: str, **query: str) -> AppTest:
    """Another page of the same visit, as the sidebar opens it: without the link of the page before."""
    app.query_params.clear()
    for name, value in query.items():
        app.query_params[name] = value
    return app.switch_page(f"../pages/{page}.py").run()


def test_a_head_goes_from_page_to_page(app):
    open_page(app, "pretrained", head="2.8")
    assert "L2·H8</b>" in html_text(open_page(app, "inside_weight"))
    assert app.query_params["head"] in ("2.8", ["2.8"]), "the link of this page names it, too"
    app.selectbox(key=weight.HEAD).set_value("L1·H8").run()
    assert "L1·H8</b>" in html_text(open_page(app, "evidence"))
    assert "L1·H8</b>" in html_text(open_page(app, "two_models"))
    assert "L1·H8</b>" in html_text(open_page(app, "pretrained"))
    open_page(app, "head_roles")
    assert app.selectbox(key=HEAD).value == "L1·H8" and app.selectbox(key=ROLE).value == "next"
    assert app.query_params[HEAD] in ("L1·H8", ["L1·H8"]), "the link of this page names it, too"


def test_another_role_begins_with_its_own_head_although_one_was_picked(app):
    open_page(app, "pretrained", head="1.8")
    open_page(app, "head_roles")
    app.selectbox(key=ROLE).set_value("same").run().run()
    assert app.selectbox(key=HEAD).value == "L2·H9"
    assert "L1·H8</b>" in html_text(open_page(app, "pretrained")), (
        "nobody picked the head that the role began with"
    )


def test_a_head_that_nobody_picked_stays_where_it_is(app):
    open_page(app, "evidence")
    open_page(app, "head_roles")
    assert "L3·H1</b>" in html_text(open_page(app, "pretrained"))


def test_another_model_and_another_kind_have_other_heads(app):
    def visit() -> None:
        import streamlit as st

        from dashboard.ui.model_picker import choose_head, current_head_of
        from dashboard.ui.models import EMBEDDED, ModelRef

        choose_head(EMBEDDED, "self", (4, 7))
        st.write(
            [
                current_head_of(EMBEDDED, "self", (6, 12)),
                current_head_of(EMBEDDED, "cross", (6, 12)),
                current_head_of(EMBEDDED, "self", (6, 7)),
                current_head_of(ModelRef("lab", "numbers"), "self", (6, 12)),
            ]
        )

    ran = AppTest.from_function(visit, default_timeout=60).run()
    assert ran.json[0].value.replace(" ", "").replace("\n", "") == "[[4,7],null,null,null]"
