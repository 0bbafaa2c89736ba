"""What travels to the small multiples is what numpy says, on one scale, and a pin comes back."""

import base64
import re

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.draw.multiples import (
    MARKS,
    MOST_FRAME_CELLS,
    Frames,
    Tile,
    difference_span,
    mark_html,
    pack,
    telling_column,
)
from tests.cases import each

RNG = np.random.default_rng(86)


def a_tile(name="a", rows=5, cols=7, **more) -> Tile:
    values = RNG.random((rows, cols)).astype(np.float32)
    return Tile(name, "note", values / values.sum(-1, keepdims=True), **more)


def numbers(sent: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(sent["values"]["bytes"]), "<f4").reshape(
        sent["rows"], sent["cols"]
    )


def test_every_map_travels_whole_with_its_mask_and_marker():
    mask = RNG.random((5, 7)) > 0.4
    maps = [a_tile("a"), a_tile("b", mask=mask), a_tile("c", marker=5)]
    sent = pack(maps, (1, 0), False)
    for tile, one in zip(maps, sent["tiles"], strict=True):
        np.testing.assert_array_equal(numbers(one), tile.weights)
    bits = np.unpackbits(np.frombuffer(base64.b64decode(sent["tiles"][1]["mask"]["bytes"]), "u1"))[
        :35
    ]
    np.testing.assert_array_equal(bits.reshape(5, 7).astype(bool), mask)
    assert sent["tiles"][0]["mask"] is None
    assert [one["marker"] for one in sent["tiles"]] == [0, 1, 5]
    assert sent["difference"] == [1, 0]


def test_the_maps_at_each_value_of_a_control_travel_unless_they_are_too_many_or_of_another_shape():
    frames = [[a_tile(f"a{k}"), a_tile(f"b{k}", 3, 2)] for k in range(4)]
    sent = Frames("page:step", 2, frames).payload(frames[2])
    assert (sent["control"], sent["at"], sent["names"][3]) == (
        "page:step",
        2,
        [("a3", "note"), ("b3", "note")],
    )
    assert sent["options"] is None and Frames("list", 0, frames, "wxyz").payload(frames[2])[
        "options"
    ] == [*"wxyz"]
    for column, packed in enumerate(sent["values"]):
        steps = (
            np.frombuffer(base64.b64decode(packed["bytes"]), "<u2") * packed["step"] + packed["low"]
        )
        expected = np.stack([row[column].weights for row in frames])
        np.testing.assert_allclose(steps.reshape(expected.shape), expected, atol=1e-5)
    assert Frames("page:step", 0, [*frames, [a_tile(), a_tile()]]).payload(frames[0]) is None
    many = MOST_FRAME_CELLS // 35
    assert Frames("page:step", 0, [frames[0][:1]] * many).payload(frames[0][:1]) is not None
    assert Frames("page:step", 0, [frames[0][:1]] * (many + 1)).payload(frames[0][:1]) is None


def test_weights_share_0_to_1_and_more_only_where_a_weight_is_more():
    below = pack([a_tile(), a_tile()], None, False)
    assert {(one["low"], one["high"], one["signed"]) for one in below["tiles"]} == {
        (0.0, 1.0, False)
    }
    above = pack([a_tile(), Tile("relu", "", np.full((5, 7), 3.5))], None, False)
    assert {(one["low"], one["high"]) for one in above["tiles"]} == {(0.0, 3.5)}


def test_a_negative_weight_makes_its_own_map_signed_and_no_other():
    negative = Tile("differential", "", np.array([[0.5, -0.25], [1.0, 0.0]]))
    sent = pack([Tile("softmax", "", np.eye(2)), negative], None, False)["tiles"]
    assert [(one["signed"], one["low"], one["high"]) for one in sent] == [
        (False, 0.0, 1.0),
        (True, -1.0, 1.0),
    ]


def test_signed_numbers_share_the_largest_both_ways_unless_a_map_says_its_own():
    maps = [
        Tile("a", "", np.array([[1.0, -4.0]])),
        Tile("b", "", np.array([[2.0, 0.0]])),
        Tile("c", "", np.array([[9.0, 0.0]]), span=(-9.0, 9.0)),
    ]
    sent = pack(maps, None, True)["tiles"]
    assert [(one["low"], one["high"]) for one in sent] == [(-4.0, 4.0), (-4.0, 4.0), (-9.0, 9.0)]


def test_what_is_not_finite_breaks_no_scale():
    sent = pack([Tile("a", "", np.array([[np.nan, -np.inf, 0.5]]))], None, True)["tiles"][0]
    assert (sent["low"], sent["high"]) == (-0.5, 0.5)


@each(("apart", "end"), [(0.55, 0.6), (0.6, 0.6), (0.061, 0.07), (0.93, 1.0), (0.0, 1.0)])
def test_a_difference_ends_at_its_largest_cell_rounded_up(apart, end):
    first, second = np.zeros((2, 3)), np.zeros((2, 3))
    second[1, 2] = apart
    assert difference_span(Tile("a", "", first), Tile("b", "", second)) == pytest.approx(end)


def test_the_telling_key_of_a_row_is_its_largest():
    assert telling_column(Tile("a", "", np.array([[0.9, 0.1], [np.nan, 0.2]])), 0) == 0
    assert telling_column(Tile("a", "", np.array([[0.9, 0.1], [np.nan, 0.2]])), 1) == 1


@each(
    ("maps", "difference", "words"),
    [
        ([a_tile()] * 13, None, "at most 12 maps; got 13"),
        ([a_tile()], (0, 1), "two of the maps, 0 to 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(maps, difference, words):
    with pytest.raises(ValueError, match=words):
        pack(maps, difference, False)


def test_each_series_has_a_shape_of_its_own():
    assert len(set(MARKS)) == len(MARKS) == 8
    for index in range(8):
        mark = mark_html(index, "light")
        assert MARKS[index] in mark and re.search(r"background:#[0-9A-F]{6};", mark)


def _page():
    import numpy as np
    import streamlit as st

    from dashboard.draw.multiples import Tile, multiples

    shape = tuple(st.session_state.get("shape", (2, 2)))
    pinned = multiples(
        [Tile("a", "", np.full(shape, 0.5))], ["x", "y"], key="m", pin=st.session_state.get("wish")
    )
    st.write(f"pin {pinned}")


def test_a_wish_is_pinned_and_one_outside_the_map_is_dropped():
    app = AppTest.from_function(_page, default_timeout=60)
    app.session_state["wish"] = (1, 0)
    assert "pin (1, 0)" in app.run().markdown[0].value
    app.session_state["wish"] = (5, 0)
    assert "pin None" in app.run().markdown[0].value


def test_a_map_that_does_not_fit_its_tokens_is_refused_in_words():
    app = AppTest.from_function(_page, default_timeout=60)
    app.session_state["shape"] = (3, 2)
    app.run()
    assert "expected (2 queries, 2 keys)" in app.exception[0].message
