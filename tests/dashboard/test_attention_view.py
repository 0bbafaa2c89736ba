"""What travels to the canvas is what numpy says, small enough, and what a person picks comes back."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.trace import AttentionMap, AttentionTrace
from dashboard.draw import attention_view as payload
from dashboard.draw.attention_view import (
    Blocks,
    Patches,
    ViewState,
    attention_view,
    parse_message,
    settle,
)
from dashboard.draw.palette import colour_scale, for_browser
from tests.cases import each

RNG = np.random.default_rng(86)


def a_map(heads=3, rows=5, cols=7, layer=0, mask=None) -> AttentionMap:
    values = RNG.random((heads, rows, cols)).astype(np.float32)
    values /= values.sum(-1, keepdims=True)
    return AttentionMap(
        "cross", layer, values, tuple(map(str, range(rows))), tuple(map(str, range(cols))), mask
    )


def decoded(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


@each(("rows", "cols"), [(5, 7), (68, 68), (69, 131), (512, 200)])
def test_pool_is_the_mean_of_blocks(rows, cols):
    values = RNG.random((2, rows, cols)).astype(np.float32)
    small = payload.pool(values)
    assert small.shape == (2, min(rows, 68), min(cols, 68))
    down = payload.edges(0, rows, payload.THUMB_PIXELS)
    across = payload.edges(0, cols, payload.THUMB_PIXELS)
    for i, j in [(0, 0), (1, 3), (min(rows, 68) - 1, min(cols, 68) - 1)]:
        block = values[:, down[i] : down[i + 1], across[j] : across[j + 1]]
        np.testing.assert_allclose(small[:, i, j], block.mean((1, 2)), rtol=1e-5)


def test_thumbnails_hold_each_head_in_order():
    maps = [a_map(layer=k) for k in range(2)]
    sent = payload.thumbnails(maps)
    assert sent["shapes"] == [[3, 5, 7], [3, 5, 7]]
    assert (sent["low"], sent["high"], sent["pooled"]) == (0.0, 1.0, False)
    cells = decoded(sent["bytes"], "u1").reshape(2, 3, 5, 7)
    np.testing.assert_allclose(
        cells / 254, np.stack([one.weights for one in maps]), atol=0.51 / 254
    )


@each("shape", [(5, 7), (1, 5, 7), (3, 5, 7), (1, 1, 7)])
def test_masked_cells_have_their_own_byte_and_bit(shape):
    mask = RNG.random(shape) > 0.4
    one = a_map(mask=mask)
    full = np.broadcast_to(mask, (3, 5, 7))
    cells = decoded(payload.thumbnails([one])["bytes"], "u1").reshape(3, 5, 7)
    np.testing.assert_array_equal(cells == payload.MASKED, ~full)
    sent = payload.one_map(one, 1)["mask"]
    bits = np.unpackbits(decoded(sent["bytes"], "u1"))[: sent["planes"] * 35].reshape(
        sent["planes"], 5, 7
    )
    np.testing.assert_array_equal(np.broadcast_to(bits.astype(bool), (3, 5, 7)), full)


def test_a_mask_that_hides_nothing_is_not_sent():
    assert payload.one_map(a_map(mask=np.ones((1, 5, 7), dtype=bool)), 0)["mask"] is None


def test_a_pooled_block_is_masked_only_when_all_of_it_is():
    mask = np.tri(136, dtype=bool)
    cells = decoded(payload.thumbnails([a_map(1, 136, 136, mask=mask)])["bytes"], "u1").reshape(
        68, 68
    )
    np.testing.assert_array_equal(cells == payload.MASKED, ~np.tri(68, dtype=bool))


def test_small_layers_travel_whole_and_exact():
    one = a_map()
    sent = payload.one_map(one, 2)
    assert sent["heads"] == [0, 1, 2]
    assert sent["values"]["type"] == "f4"
    np.testing.assert_array_equal(
        decoded(sent["values"]["bytes"], "<f4").reshape(3, 5, 7), one.weights
    )


def test_a_large_layer_sends_the_picked_head_to_three_decimals():
    one = a_map(4, 300, 311)
    sent = payload.one_map(one, 2)
    assert sent["heads"] == [2]
    values = sent["values"]
    assert values["type"] == "u2"
    read = values["low"] + values["step"] * decoded(values["bytes"], "<u2").reshape(300, 311)
    np.testing.assert_allclose(read, one.weights[2], atol=1e-5)


def test_signed_numbers_keep_their_sign_when_packed():
    values = RNG.normal(size=(300, 300)).astype(np.float32) * 9
    sent = payload.packed(values, exact=False)
    read = sent["low"] + sent["step"] * decoded(sent["bytes"], "<u2").reshape(300, 300)
    np.testing.assert_allclose(read, values, atol=1e-3)
    assert payload.span(values, signed=True) == (
        -float(np.abs(values).max()),
        float(np.abs(values).max()),
    )


def test_numbers_that_are_not_finite_travel_as_zero():
    values = np.array([[np.nan, -np.inf, 0.5]], dtype=np.float32)
    np.testing.assert_array_equal(
        decoded(payload.packed(values, True)["bytes"], "<f4"), [0, 0, 0.5]
    )


@each("size", [64, 512])
def test_twelve_by_twelve_heads_are_less_than_two_megabytes(size):
    weights = RNG.random((12, size, size), dtype=np.float32)
    names = tuple("x" * size)
    maps = [
        AttentionMap("self", k, weights, names, names, np.tri(size, dtype=bool)) for k in range(12)
    ]
    sent = json.dumps(payload.thumbnails(maps)) + json.dumps(payload.one_map(maps[3], 1))
    assert len(sent) < 2_000_000


def test_a_pick_holds_until_the_page_wishes_something_new():
    store: dict[str, Any] = {}
    assert settle(store, "a", "pick", (0, 0)) == (0, 0)
    store["pick"] = (3, 1)
    assert settle(store, "a", "pick", (0, 0)) == (3, 1)
    assert settle(store, "b", "pick", (0, 0)) == (3, 1), "a linked view joins the pick"
    assert settle(store, "a", "pick", (2, 2)) == (2, 2)
    assert settle(store, "a", "pick", (0, 0)) == (0, 0), "the first wish again is new, too"


def test_a_page_that_echoes_the_last_pick_does_not_undo_the_next():
    store: dict[str, Any] = {}
    assert settle(store, "a", "pick", (0, 0)) == (0, 0)
    for pick, echoed in [((3, 1), (0, 0)), ((3, 2), (3, 1)), ((3, 3), (3, 2))]:
        store["pick"] = pick
        assert settle(store, "a", "pick", echoed) == pick


def test_messages_of_the_browser_are_read():
    assert parse_message("pick", {"value": [3, 1], "turn": 1}) == (3, 1)
    assert parse_message("pin", {"value": None, "turn": 2}) is None
    assert parse_message("frame", {"value": 300.0, "turn": 2}) == 300
    with pytest.raises(ValueError, match="unpack"):
        parse_message("pin", {"value": [1, 2, 3]})


def test_colour_scales_have_their_stops():
    assert len(colour_scale("light")) == 10
    assert len(colour_scale("dark", signed=True)) == 11
    assert colour_scale("dark", signed=True)[5] == colour_scale("dark")[0], (
        "zero is the page's grey in both"
    )
    assert json.dumps(for_browser())
    wrong: Any = "sepia"
    with pytest.raises(ValueError, match=wrong):
        colour_scale(wrong)


@each(
    ("wish", "words"),
    [({"layer": 2}, "layer 2"), ({"head": 3}, "3 heads"), ({"layout": "frames"}, "frames")],
)
def test_a_wish_that_cannot_be_met_is_named(wish, words):
    trace = AttentionTrace((a_map(), a_map(layer=1)), "test")
    with pytest.raises(ValueError, match=words):
        attention_view(trace, key="k", **wish)


def test_a_trace_without_maps_is_refused():
    with pytest.raises(ValueError, match="at least one map"):
        attention_view(AttentionTrace((), "test"), key="k")


def script():
    import numpy as np
    import streamlit as st

    from core.interpret.trace import AttentionMap, AttentionTrace
    from dashboard.draw.attention_view import attention_view

    weights = np.full((2, 3, 5), 0.2, dtype=np.float32)
    names = tuple("abcde")
    trace = AttentionTrace(
        tuple(AttentionMap("cross", k, weights, names[:3], names) for k in range(2)), "test"
    )
    frames = [(step, weights[0]) for step in (0, 50, 100)]
    st.session_state.grid = attention_view(
        trace, key="g", layout="grid", roles={(1, 0): 2}, link="both"
    )
    st.session_state.one = attention_view(trace, key="o", head=1, pin=(1, 2), link="both")
    st.session_state.film = attention_view(trace, key="f", layout="frames", frames=frames, frame=50)


def test_the_three_layouts_run_in_a_page_and_links_hold():
    app = AppTest.from_function(script, default_timeout=60).run()
    assert not app.exception
    assert app.session_state.grid == ViewState(0, 0)
    assert app.session_state.one == ViewState(0, 0, pin=(1, 2))
    assert app.session_state.film == ViewState(0, 0, frame=50)
    app.session_state["both:link"]["pick"] = (1, 1)
    app.session_state["o:view"]["pin"] = (9, 9)
    app.run()
    assert not app.exception
    assert app.session_state.grid == ViewState(1, 1)
    assert app.session_state.one == ViewState(1, 1), "a pin outside the map is dropped"


@each("pool", ["mean", "max"])
@each(
    ("shape", "window"), [((513, 700), None), ((7, 11), (2, 5, 1, 9)), ((1100, 9), (3, 900, 0, 9))]
)
def test_blocks_hold_what_their_tokens_hold(shape, window, pool):
    values = RNG.random((1, *shape)).astype(np.float32)
    mask = RNG.random(shape) > 0.3
    blocks = Blocks.of(shape, window)
    pooled = blocks.weights(values, mask, pool)[0]
    assert max(pooled.shape) <= 512
    for i, j in [
        (0, 0),
        (pooled.shape[0] - 1, pooled.shape[1] - 1),
        (pooled.shape[0] // 2, pooled.shape[1] // 3),
    ]:
        part = (slice(*blocks.rows[i : i + 2]), slice(*blocks.columns[j : j + 2]))
        seen = values[0][part][mask[part]]
        expected = (seen.mean() if pool == "mean" else seen.max()) if seen.size else 0.0
        assert pooled[i, j] == pytest.approx(expected, abs=1e-6)
        assert blocks.pool_mask(mask)[i, j] == bool(seen.size)
    top, bottom, left, right = window or (0, shape[0], 0, shape[1])
    assert (blocks.rows[0], blocks.rows[-1], blocks.columns[0], blocks.columns[-1]) == (
        top,
        bottom,
        left,
        right,
    )


def test_what_fits_is_not_cut_into_blocks():
    assert Blocks.of((512, 512), None) is None
    assert not Blocks.of((2000, 2000), (0, 512, 7, 300)).pooled


def test_a_grid_is_pooled_once_for_its_trace():
    trace = AttentionTrace((a_map(),), "test")
    assert payload.grid(trace) is payload.grid(trace)
    assert payload.grid(trace) == payload.thumbnails(trace.maps)


def test_a_large_picture_is_thinned_and_grey_gets_three_colours():
    sent = Patches(np.linspace(0, 1, 800 * 100).reshape(800, 100), 4, 2, first=1).payload()
    assert (sent["wide"], sent["high"], sent["rows"], sent["cols"], sent["first"]) == (
        34,
        267,
        4,
        2,
        1,
    )
    pixels = decoded(sent["bytes"], "u1").reshape(267, 34, 3)
    assert pixels[0, 0].tolist() == [0, 0, 0] and pixels[-1, -1].min() > 250


def pinned_script():
    import numpy as np
    import streamlit as st

    from core.interpret.trace import AttentionMap, AttentionTrace
    from dashboard.draw.attention_view import attention_view

    names = tuple(map(str, range(st.session_state.get("size", 9))))
    weights = np.ones((1, len(names), len(names)), np.float32)
    trace = AttentionTrace((AttentionMap("self", 0, weights, names, names),), "test")
    st.session_state.shown = attention_view(trace, key="v", pins=[(1, 2), (8, 8)])


def test_pins_outside_a_shorter_text_are_dropped():
    app = AppTest.from_function(pinned_script, default_timeout=60).run()
    assert app.session_state.shown == ViewState(0, 0, pin=(8, 8), pins=((1, 2), (8, 8)))
    app.session_state["size"] = 5
    app.run()
    assert not app.exception
    assert app.session_state.shown == ViewState(0, 0, pin=(1, 2), pins=((1, 2),))


def test_pins_and_windows_of_the_browser_are_read():
    assert parse_message("pins", {"value": [[1, 2.0], [3, 4]], "turn": 1}) == ((1, 2), (3, 4))
    assert parse_message("pins", {"value": None}) == ()
    assert parse_message("window", {"value": [0, 5, 2, 9]}) == (0, 5, 2, 9)
