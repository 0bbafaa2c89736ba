"""Reset: a page's values leave session and link, those of other pages stay."""

from pathlib import Path

from streamlit.testing.v1 import AppTest

from dashboard.runtime.page_reset import PENDING, keys_of
from tests.pages.app import assert_no_exception

APP = str(Path(__file__).resolve().parents[2] / "dashboard" / "app.py")


def test_the_keys_of_a_page_are_those_of_its_name_and_of_its_link():
    session = ["masks:rule", "masks_old", "heads:d_model", "inside:model", "one:score"]
    assert keys_of("masks", session, ["inside:model"]) == ["masks:rule", "inside:model"]
    assert keys_of("one_query", session, []) == ["one:score"]


def test_a_reset_page_opens_as_at_first():
    app = AppTest.from_file(APP, default_timeout=30)
    app.query_params["mechanisms:axis"] = "Kernels"
    app.switch_page("../pages/mechanisms.py")
    app.run()
    app.session_state["masks:other"] = "stays"
    assert app.button_group(key="mechanisms:axis").value == "kernel"
    app.session_state[PENDING] = ("mechanisms", ["mechanisms:axis"])
    assert not assert_no_exception(app.run()).button_group  # the widgets leave the browser
    assert_no_exception(app.run())
    assert app.button_group(key="mechanisms:axis").value == "position"
    assert app.session_state["masks:other"] == "stays" and PENDING not in app.session_state
    assert "mechanisms:axis" not in app.query_params
