"""Reset: a page's values leave session and link, those of other pages stay."""

from dashboard.ui.links import PENDING, keys_of
from tests.pages.app import open_at


def test_the_keys_of_a_page_are_those_of_its_name_and_of_its_link():
    session = ["masks:rule", "masks_old", "heads:d_model", "inside:model", "one:score"]
    assert keys_of("masks", session, ["inside:model"]) == ["masks:rule", "inside:model"]
    assert keys_of("one_query", session, []) == ["one:score"]


def test_a_reset_page_opens_as_at_first():
    app = open_at("mechanisms", "mechanisms:", axis="Kernels")
    app.session_state["masks:other"] = "stays"
    assert app.button_group(key="mechanisms:axis").value == "kernel"
    app.session_state[PENDING] = ("mechanisms", ["mechanisms:axis"], {})
    assert not app.run().button_group  # the widgets leave the browser
    app.run()
    assert app.button_group(key="mechanisms:axis").value == "position"
    assert app.session_state["masks:other"] == "stays" and PENDING not in app.session_state
    assert "mechanisms:axis" not in app.query_params
