"""A change of d_model keeps the heads that were chosen wherever they divide it, on every page with both controls."""

import pytest

from tests.pages.app import open_at

# page: its link, what opens the panel of sizes, the key of d_model, and that of the heads at a width
PAGES = {
    "heads": ({"heads:weights": "Random"}, None, "heads:d_model", "heads:heads:False:{}"),
    "one_query": ({"one:d_model": "64"}, None, "one:d_model", "one:heads"),
    "positions": ({}, None, "positions:d_model", "positions:heads:{}"),
    "compare": (
        {"source": "seeded", "sizes": "64.8.0"},
        "compare:tokens",
        "compare:d_model",
        "compare:heads:{}",
    ),
    "transformer": (
        {"transformer:start": "random"},
        None,
        "transformer:d_model",
        "transformer:heads",
    ),
    "train": (
        {},
        "train:reverse:transformer:sizes",
        "train:reverse:transformer:d_model",
        "train:reverse:transformer:heads:{}",
    ),
}


@pytest.mark.parametrize("page", PAGES)
def test_heads_are_kept(page):
    link, panel, d_model, heads = PAGES[page]
    app = open_at(page, "", **link)

    def control(key):
        if panel:
            app.session_state[panel] = True
            app.run()
        return next(
            control for control in [*app.select_slider, *app.selectbox] if control.key == key
        )

    def widths():
        return [int(option) for option in control(d_model).options]

    control(d_model).set_value(64).run()
    control(heads.format(64)).set_value(8).run()
    for width in (w for w in (16, 48, 12, 64, 6, 96, 5, 128, 64) if w in widths()):
        control(d_model).set_value(width).run()
        assert control(heads.format(width)).value == max(n for n in range(1, 9) if width % n == 0)
    control(heads.format(64)).set_value(2).run()
    control(d_model).set_value(128).run()
    assert control(heads.format(128)).value == 2
