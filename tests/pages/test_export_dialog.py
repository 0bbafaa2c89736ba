"""The Export dialog lists the pictures and the script of the page, also after the page has run again."""

import pytest

from dashboard.draw.picture_files import FORMATS, WIDTHS
from dashboard.ui.export import REQUESTED
from tests.pages.app import open_at, pictures_of


@pytest.mark.parametrize(
    "page", ["heads", "positions", "compare", "masks"]
)  # the first three draw before the title
def test_the_dialog_lists_the_same_after_the_page_has_run_again(page):
    app = open_at(page)
    titles = [picture.title for picture in pictures_of(app).values()]
    app.run()
    app.session_state[REQUESTED] = True
    app.run()
    assert titles and app.selectbox(key="export:picture").options == titles
    assert any(code.value.startswith("# Attention Lab") for code in app.code)
    assert [picture.title for picture in pictures_of(app.run()).values()] == titles


def test_the_dialog_has_a_figure_for_a_paper_of_each_width():
    app = open_at("masks")
    app.session_state[REQUESTED] = True
    app.run()
    assert app.selectbox(key="export:paper").options == [*WIDTHS]
    labels = [button.proto.label for button in app.get("download_button")]
    assert set(FORMATS) <= set(labels)


def test_a_page_without_a_picture_has_its_script():
    app = open_at("claims")
    app.session_state[REQUESTED] = True
    app.run()
    assert not pictures_of(app) and any(
        code.value.startswith("# Attention Lab") for code in app.code
    )
