"""All mechanisms: every choice of every axis is drawn, said and explained by the page, with nothing told of it."""

import numpy as np
import pytest

from core.attention import AXES, entry
from core.studies import mechanisms
from dashboard.draw.formats import number
from pages import mechanisms as page
from tests.pages.app import app_at


def open_page(**query):
    return app_at("mechanisms", "mechanisms:", **query).run()


@pytest.mark.parametrize(
    ("axis", "key"), [(axis, e.key) for axis, entries in AXES.items() for e in entries]
)
def test_every_choice_can_be_drawn_and_said(axis, key):
    item, comparison = entry(axis, key), mechanisms.compare(page.config_of(axis, key, {}))
    before, after, mask = comparison.before, comparison.after, comparison.mask
    assert after.shape == before.shape and np.isfinite(after).all()
    assert mask is None or not after[~mask].any()
    row, column = mechanisms.most_changed(before, after)
    sentence = page.entry_sentence(item, before, after, row, column)
    assert f"**{number(after[row, column])}**" in sentence and item.name in sentence.replace(
        "\\", ""
    )


@pytest.mark.parametrize("axis", list(AXES))
def test_each_axis_opens_with_its_table(axis):
    at = open_page(axis=page.NAMES[axis])
    assert not at.warning and not at.error
    assert len(at.dataframe[0].value) == len(AXES[axis])
    assert at.selectbox(key=f"mechanisms:{axis}").options == [
        f"{e.name} · {e.year}" for e in AXES[axis]
    ]


def test_a_link_to_what_is_not_there_is_refused_in_words():
    at = open_page(axis="Flavours", score="Bilinear · 1999")
    assert "Flavours" in at.warning[0].value and "Bilinear" in at.warning[1].value


def test_what_it_goes_with_is_asked_of_every_pair():
    at = open_page(axis="Kernels", kernel="Fused · 2022")
    at.session_state["mechanisms:fits"] = True
    at.run()
    page = " ".join(m.value for m in at.markdown)
    assert "and not with these" in page and "take" in page
