"""The canvas components: what travels to the browser, picks, and the code that is joined."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.interpret.trace import AttentionMap, AttentionTrace
from dashboard.draw import attention_view as payload, picture_files
from dashboard.draw.attention_view import (
    MAX_FRAME_CELLS,
    Blocks,
    Frames,
    Patches,
    Tile,
    ViewState,
    attention_view,
    difference_span,
    multiples,
    pack,
    parse_message,
    settle,
    settle_pin,
    settled,
    telling_column,
)
from dashboard.draw.components import bundle, bundle_all
from dashboard.draw.figures import MARKS, colour_scale, for_browser, mark_html
from dashboard.draw.picture_files import Part, page_html, trace_html, trace_part
from dashboard.show import show, show_maps
from tests.cases import each

# What travels to the canvas is what numpy says, small enough, and what a person picks comes back.


RNG = np.random.default_rng(86)


def a_map(heads=3, rows=5, cols=7, layer=0, mask=None) -> AttentionMap:
    values = RNG.random((heads, rows, cols)).astype(np.float32)
    values /= values.sum(-1, keepdims=True)
    return AttentionMap(
        "cross", layer, values, tuple(map(str, range(rows))), tuple(map(str, range(cols))), mask
    )


def decoded(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


def unpacked(sent: dict[str, Any], *shape: int) -> np.ndarray:
    """The numbers of a packed array, as the browser reads them."""
    return sent["low"] + sent["step"] * decoded(
        sent["bytes"], ("<f4" if sent["type"] == "f4" else "<u2")
    ).reshape(shape)


def thumbs(*maps: AttentionMap) -> np.ndarray:
    """The bytes of the thumbnails, one shape for all."""
    sent = payload.thumbnails(maps)
    return decoded(sent["bytes"], "u1").reshape(len(maps), *sent["shapes"][0])


def test_thumbnails_hold_each_head_in_order():
    trace = AttentionTrace((a_map(), a_map(layer=1)), "test")
    sent = payload.grid(trace)
    assert sent is payload.grid(trace) and sent["shapes"] == [[3, 5, 7], [3, 5, 7]]
    assert (sent["low"], sent["high"], sent["pooled"]) == (0.0, 1.0, False)
    np.testing.assert_allclose(
        thumbs(*trace.maps) / 254, [one.weights for one in trace.maps], atol=0.51 / 254
    )


def test_a_layer_with_negative_weights_has_a_signed_scale_of_its_own():
    plain, state = a_map(), replace(a_map(layer=1), state="a gated delta rule", number=2)
    state.weights[1, 2, 3] = -2.0
    above = replace(a_map(layer=2), weights=plain.weights * 3)
    trace = AttentionTrace((plain, state, above), "test")
    sent, most = payload.thumbnails(trace.maps), float(above.weights.max())
    assert sent["ends"] == [None, (-2.0, 2.0), (0.0, most)] and sent["high"] == 1.0
    cells = thumbs(*trace.maps).astype(float)
    np.testing.assert_allclose(cells[0] / 254, plain.weights, atol=0.51 / 254)
    np.testing.assert_allclose(cells[1] / 254 * 4 - 2, state.weights, atol=0.51 / 63.5)
    assert payload.state_lines(trace) == ["L2: a gated delta rule"]
    assert [payload.is_signed(item) for item in trace.maps] == [False, True, False]
    one = payload.picture_of(trace, payload.ViewState(1, 1), "one", False, None, None, "").maps[0]
    assert (one.low, one.high, one.signed, one.noun) == (-2.0, 2.0, True, "weight")
    grid = payload.picture_of(trace, payload.ViewState(1, 1), "grid", False, None, None, "").maps
    assert [item.signed for item in grid] == [False] * 3 + [True] * 3 + [False] * 3
    part = trace_part(trace, "heads")
    assert [one["negative"] for one in part.data["layers"]] == [False, True, False]
    blocks = payload.Blocks(np.array([0, 5]), np.array([0, 7]))
    assert blocks.weights(state.weights, None, "max")[1, 0, 0] == -2.0  # the largest by size


@each("shape", [(5, 7), (1, 5, 7), (3, 5, 7), (1, 1, 7)])
def test_masked_cells_have_their_own_byte_and_bit(shape):
    mask = RNG.permutation(np.arange(np.prod(shape)) % 3 > 0).reshape(shape)
    one, full = a_map(mask=mask), np.broadcast_to(mask, (3, 5, 7))
    np.testing.assert_array_equal(thumbs(one)[0] == payload.MASKED, ~full)
    sent = payload.one_map(one, 1)["mask"]
    bits = np.unpackbits(decoded(sent["bytes"], "u1"))[: sent["planes"] * 35]
    np.testing.assert_array_equal(
        np.broadcast_to(bits.reshape(sent["planes"], 5, 7).astype(bool), (3, 5, 7)), full
    )


def test_a_mask_that_hides_nothing_is_not_sent():
    assert payload.one_map(a_map(mask=np.ones((1, 5, 7), dtype=bool)), 0)["mask"] is None
    cells = thumbs(a_map(1, 136, 136, mask=np.tri(136, dtype=bool)))[0, 0]
    np.testing.assert_array_equal(cells == payload.MASKED, ~np.tri(68, dtype=bool))


def test_a_small_layer_travels_whole():
    small, large = a_map(), a_map(4, 300, 311)
    whole, head = payload.one_map(small, 2), payload.one_map(large, 2)
    assert (whole["heads"], head["heads"]) == ([0, 1, 2], [2])
    np.testing.assert_array_equal(unpacked(whole["values"], 3, 5, 7), small.weights)
    np.testing.assert_allclose(unpacked(head["values"], 300, 311), large.weights[2], atol=1e-5)
    values = RNG.normal(size=(300, 300)).astype(np.float32) * 9
    np.testing.assert_allclose(unpacked(payload.packed(values, False), 300, 300), values, atol=1e-3)
    largest = float(np.abs(values).max())
    assert payload.span(values, signed=True) == (-largest, largest)
    odd = payload.packed(np.array([np.nan, -np.inf, 0.5], dtype=np.float32), True)
    np.testing.assert_array_equal(unpacked(odd, 3), [0, 0, 0.5])


@each("size", [64, 512])
def test_twelve_by_twelve_heads_are_less_than_two_megabytes(size):
    maps = [a_map(12, size, size, layer, np.tri(size, dtype=bool)) for layer in range(12)]
    assert len(json.dumps((payload.thumbnails(maps), payload.one_map(maps[3], 1)))) < 2_000_000


def test_a_pick_holds_until_the_page_wishes_something_new():
    store: dict[str, Any] = {}
    for view, picked, wish, expected in (
        ("a", None, (0, 0), (0, 0)),
        ("a", (3, 1), (0, 0), (3, 1)),
        ("b", None, (0, 0), (3, 1)),  # a linked view joins the pick
        ("a", None, (2, 2), (2, 2)),
        ("a", None, (0, 0), (0, 0)),  # the first wish again is new, too
        ("a", (3, 1), (0, 0), (3, 1)),
        ("a", (3, 2), (3, 1), (3, 2)),  # the page returns the last pick
        ("a", (3, 3), (3, 2), (3, 3)),
    ):
        store |= {"pick": picked} if picked else {}
        assert settle(store, view, "pick", wish) == expected


@each(
    ("field", "message", "value"),
    [
        ("pick", {"value": [3, 1], "turn": 1}, (3, 1)),
        ("pin", {"value": None, "turn": 2}, None),
        ("frame", {"value": 300.0, "turn": 2}, 300),
        ("pins", {"value": [[1, 2.0], [3, 4]], "turn": 1}, ((1, 2), (3, 4))),
        ("pins", {"value": None}, ()),
        ("window", {"value": [0, 5, 2, 9]}, (0, 5, 2, 9)),
    ],
)
def test_messages_of_the_browser_are_read(field, message, value):
    assert parse_message(field, message) == value


def test_colour_scales_have_their_stops():
    dark = colour_scale("dark", signed=True)
    assert (len(colour_scale("light")), len(dark)) == (10, 11) and json.dumps(for_browser())
    assert dark[5] == colour_scale("dark")[0], "zero is the page's grey in both"
    assert len(set(MARKS)) == len(MARKS) == 8
    marks = [mark_html(index, "light") for index in range(8)]
    assert all(mark in html for mark, html in zip(MARKS, marks, strict=True))
    assert all(re.search(r"background:#[0-9A-F]{6};", html) for html in marks)


def test_linked_views_share_a_head():
    trace = AttentionTrace((a_map(2, 3, 5), a_map(2, 3, 5, 1)), "test")
    both: dict[str, Any] = {}
    own: dict[str, Any] = {}

    def views() -> list[ViewState]:
        return [
            settled(trace, "g", both, {}, (0, 0), None),
            settled(trace, "o", both, own, (0, 1), (1, 2)),
        ]

    assert views() == [ViewState(0, 0), ViewState(0, 0, pin=(1, 2))]
    both["pick"], own["pin"] = (1, 1), (9, 9)
    assert views() == [ViewState(1, 1)] * 2, "a pin outside the map is dropped"
    assert settled(trace, "f", {}, {}, (0, 0), None, frame=50) == ViewState(0, 0, frame=50)
    own.clear()
    for size, pins in ((9, ((1, 2), (8, 8))), (5, ((1, 2),))):
        text = AttentionTrace((a_map(1, size, size),), "test")
        assert settled(text, "v", {}, own, (0, 0), None, [(1, 2), (8, 8)]) == ViewState(
            0, 0, pin=pins[-1], pins=pins
        )
    for wish, pin in (((1, 0), (1, 0)), ((5, 0), None)):
        assert settle_pin(own, "m", wish, (2, 2)) == pin


@each("pool", ["mean", "max"])
@each(
    ("shape", "window"), [((513, 700), None), ((7, 11), (2, 5, 1, 9)), ((1100, 9), (3, 900, 0, 9))]
)
def test_blocks_hold_what_their_tokens_hold(shape, window, pool):
    values = RNG.random((1, *shape)).astype(np.float32)
    mask, blocks = RNG.random(shape) > 0.3, Blocks.of(shape, window)
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
    assert tuple(axis[at] for axis in (blocks.rows, blocks.columns) for at in (0, -1)) == (
        window or (0, shape[0], 0, shape[1])
    )
    assert Blocks.of((512, 512), None) is None  # which fits
    assert not Blocks.of((2000, 2000), (0, 512, 7, 300)).pooled


def test_a_large_picture_is_thinned():
    sent = Patches(np.linspace(0, 1, 800 * 100).reshape(800, 100), 4, 2, first=1).payload()
    assert [sent[name] for name in ("wide", "high", "rows", "cols", "first")] == [34, 267, 4, 2, 1]
    pixels = decoded(sent["bytes"], "u1").reshape(267, 34, 3)
    assert pixels[0, 0].tolist() == [0, 0, 0] and pixels[-1, -1].min() > 250


# What travels to the small multiples is what numpy says, on one scale, and a pin comes back.


def a_tile(name="a", rows=5, cols=7, **more) -> Tile:
    values = RNG.random((rows, cols)).astype(np.float32)
    return Tile(name, "note", values / values.sum(-1, keepdims=True), **more)


def test_every_map_travels_whole_with_its_mask_and_marker():
    mask = RNG.random((5, 7)) > 0.4
    maps = [a_tile("a"), a_tile("b", mask=mask), a_tile("c", marker=5)]
    sent = pack(maps, (1, 0), False)
    for tile, one in zip(maps, sent["tiles"], strict=True):
        np.testing.assert_array_equal(unpacked(one["values"], 5, 7), tile.weights)
    bits = np.unpackbits(decoded(sent["tiles"][1]["mask"]["bytes"], "u1"))[:35]
    np.testing.assert_array_equal(bits.reshape(5, 7).astype(bool), mask)
    assert sent["tiles"][0]["mask"] is None and sent["difference"] == [1, 0]
    assert [one["marker"] for one in sent["tiles"]] == [0, 1, 5]


def test_few_maps_of_a_control_travel():
    frames = [[a_tile(f"a{k}"), a_tile(f"b{k}", 3, 2)] for k in range(4)]
    sent = Frames("page:step", 2, frames).payload(frames[2])
    names = [("a3", "note"), ("b3", "note")]
    assert (sent["control"], sent["at"], sent["names"][3]) == ("page:step", 2, names)
    for column, packed in enumerate(sent["values"]):
        expected = np.stack([row[column].weights for row in frames])
        np.testing.assert_allclose(unpacked(packed, *expected.shape), expected, atol=1e-5)
    listed = Frames("list", 0, frames, "wxyz").payload(frames[2])
    assert (sent["options"], listed["options"]) == (None, [*"wxyz"])
    assert Frames("page:step", 0, [*frames, [a_tile(), a_tile()]]).payload(frames[0]) is None
    first, many = frames[0][:1], MAX_FRAME_CELLS // 35
    sizes = [Frames("page:step", 0, [first] * count).payload(first) for count in (many, many + 1)]
    assert sizes[0] is not None and sizes[1] is None


@each(
    ("maps", "signed", "scales"),
    [
        ([np.eye(2)] * 2, False, [(False, 0.0, 1.0)] * 2),
        # more than 1 only where a weight is more
        ([np.eye(2), np.full((5, 7), 3.5)], False, [(False, 0.0, 3.5)] * 2),
        # a negative weight makes its own map signed and no other
        (
            [np.eye(2), np.array([[0.5, -0.25], [1.0, 0.0]])],
            False,
            [(False, 0.0, 1.0), (True, -1.0, 1.0)],
        ),
        # signed numbers share the largest both ways unless a map says its own
        (
            [np.array([[1.0, -4.0]]), np.array([[2.0, 0.0]]), 9.0],
            True,
            [(True, -4.0, 4.0)] * 2 + [(True, -9.0, 9.0)],
        ),
        # what is not finite breaks no scale
        ([np.array([[np.nan, -np.inf, 0.5]])], True, [(True, -0.5, 0.5)]),
    ],
)
def test_maps_share_a_scale(maps, signed, scales):
    tiles = [
        Tile("a", "", one)
        if isinstance(one, np.ndarray)
        else Tile("b", "", np.array([[one, 0.0]]), span=(-one, one))
        for one in maps
    ]
    assert [
        (one["signed"], one["low"], one["high"]) for one in pack(tiles, None, signed)["tiles"]
    ] == scales


@each(("apart", "end"), [(0.55, 0.6), (0.6, 0.6), (0.061, 0.07), (0.93, 1.0), (0.0, 1.0)])
def test_a_difference_ends_at_its_largest_cell_rounded_up(apart, end):
    first, second = np.zeros((2, 3)), np.zeros((2, 3))
    second[1, 2] = apart
    assert difference_span(Tile("a", "", first), Tile("b", "", second)) == pytest.approx(end)


def test_the_telling_key_of_a_row_is_its_largest():
    tile = Tile("a", "", np.array([[0.9, 0.1], [np.nan, 0.2]]))
    assert [telling_column(tile, row) for row in (0, 1)] == [0, 1]


# The modules of a component become one script: in order, each once, and nothing that cannot be joined passes.


COMPONENTS = Path(__file__).resolve().parents[2] / "dashboard" / "draw" / "components"


def write(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return folder / "main.js"


def test_module_stands_once_and_before_those_that_import_it(tmp_path):
    script = bundle(write(
        tmp_path, b="export const ONE = 1;\n",
        a='import { ONE } from "./b.js";\n\nexport function twice(x) { return ONE + x; }\n',
        main='import { twice } from "./a.js";\nimport { ONE as one } from "./b.js";\n\nexport default twice(one);\n',
    ))  # fmt: skip
    assert script.count("const ONE = 1;") == 1
    assert script.index("const ONE = 1;") < script.index("function twice")
    assert "const { ONE: one } = __module0;\n" in script
    assert script.endswith("export default twice(one);\n")


@pytest.mark.parametrize(("modules", "message"), [
    ({"main": 'import { a } from "./a.js";\n', "a": 'import { b } from "./main.js";\n'}, "main.js → a.js → main.js"),
    ({"main": 'import { a } from "./a.js";\n', "a": "const a = 1;\n"}, "a.js, which does not export it"),
    ({"main": 'import * as a from "./a.js";\n'}, "cannot join the line 'import \\* as a"),
    ({"main": "export let a = 1;\n"}, "cannot join the line 'export let a"),
    ({"main": 'import { a } from "./a.js";\n', "a": "export const a = 1;\nexport default a;\n"}, "only an entry may"),
])  # fmt: skip
def test_what_cannot_be_joined_is_refused(tmp_path, modules, message):
    pytest.raises(ValueError, bundle, write(tmp_path, **modules)).match(message)


def test_each_component_is_one_script():
    entries = {file.parent.name: file for file in COMPONENTS.glob("*/main.js")}
    for entry in entries.values():
        [line] = re.findall(r"^(?:export|import)\b.*", bundle(entry), re.M)
        assert line.startswith("export default (component) => mount(component, {")
    script = bundle_all(entries)
    assert not re.findall(r"^(?:export|import)\b.*", script, re.M)
    modules = re.findall(r"^const __module\d+ = .*// (.*)$", script, re.M)
    assert len(modules) == len(set(modules)) > 20
    assert len(re.findall(r"^return \(component\) => mount", script, re.M)) == len(entries)
    hits = len((COMPONENTS / "page_list" / "hits.js").read_text("utf-8"))  # one component's data
    assert len(script) - hits < (sum(len(bundle(file)) for file in entries.values()) - hits) / 2


def test_the_palette_stands_in_python_alone():
    script = "".join(file.read_text(encoding="utf-8") for file in COMPONENTS.glob("*/*.js"))
    # white and black on any color
    assert set(re.findall(r"#[0-9a-fA-F]{6}\b", script)) == {
        "#FFFFFF",
        "#000000",
    }


def trace(layers: int, heads: int, rows: int, columns: int, mask: bool = False) -> AttentionTrace:
    allowed = np.tril(np.ones((rows, columns), bool)) if mask else None
    keys = tuple(f"</script>{j}" for j in range(columns))
    maps = (a_map(heads, rows, columns, layer, allowed) for layer in range(layers))
    return AttentionTrace(tuple(replace(one, keys=keys) for one in maps), "a model")


def data_of(html: str) -> dict:
    return json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', html, re.DOTALL)[1])


def test_a_file_holds_every_weight_and_asks_nobody():
    made = trace(2, 3, 5, 7, mask=True)
    html = trace_html(made, title="<T>", source="S")
    for item, layer in zip(made.maps, data_of(html)["parts"][0]["data"]["layers"], strict=True):
        np.testing.assert_allclose(
            unpacked(layer["values"], *item.weights.shape), item.weights, atol=1e-5
        )
        assert (layer["queries"], layer["keys"]) == (list(item.queries), list(item.keys))
    assert "&lt;T&gt;" in html and "<T>" not in html
    assert not re.search(r"""(src|href)=["']|@import url|fetch\(|https?://(?!www\.w3\.org)""", html)
    assert len(trace_html(trace(12, 12, 64, 64), title="T").encode()) <= 2_000_000


def drawn(layers: int, **wish: Any) -> Callable[[], object]:
    return lambda: attention_view(trace(layers, 3, 5, 7), key="k", **wish)


@each(
    ("draw", "words"),
    [
        (drawn(2, layer=2), r"\(2, 0\)"),
        (drawn(2, head=3), r"\[3, 3\]"),
        (drawn(2, layout="frames"), "frames"),
        (drawn(0), "not in this trace"),
        (lambda: multiples([a_tile()], "xy", key="m"), r"\(2 queries, 2 keys\)"),
        (lambda: pack([a_tile()] * 13, None, False), "at most 12 maps; got 13"),
        (lambda: pack([a_tile()], (0, 1), False), "two of the maps, 0 to 0"),
        (lambda: parse_message("pin", {"value": [1, 2, 3]}), "length"),
        (lambda: colour_scale("sepia"), "sepia"),  # type: ignore[arg-type]
        (lambda: trace_html(AttentionTrace((), "none"), title="T"), "at least one map"),
        (lambda: trace_html(trace(1, 3, 5, 7), title="T"), "105 weights; a file holds 104"),
    ],
)
def test_what_cannot_be_drawn_or_read_is_refused_in_words(draw, words, monkeypatch):
    monkeypatch.setattr(picture_files, "MAX_CELLS", 104)
    pytest.raises(ValueError, draw).match(words)


def test_a_component_is_in_a_file_once():
    part = Part("Tree", "tree_view", "tv", {"svg": "<svg></svg>", "fact": "", "follow": False})
    html = page_html([part, part, Part("Table", html="<table></table>")], title="T")
    assert html.count("tree_view: (() => {") == 1
    assert [one["title"] for one in data_of(html)["parts"]] == ["Tree", "Tree", "Table"]


def test_a_notebook_shows_the_same_page_in_a_frame(tmp_path):
    shown = show(trace(1, 2, 3, 3))
    assert re.match("<iframe srcdoc=(?!.*</script>)", shown._repr_html_(), re.DOTALL)
    assert shown.save(tmp_path / "a.html").read_text("utf-8") == shown.html


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (np.nan, "holds 1 number that is not finite"),
        (np.inf, "not finite"),
        (-0.01, "signed=True"),
        (1.01, "0 to 1"),
    ],
)
def test_numbers_that_are_no_weights_are_refused(number, words):
    # What is drawn as 0 would be believed to be 0.
    made = trace(2, 2, 3, 3, mask=True)
    made.maps[1].weights[1, 0, 2] = number  # masked: hatched, whatever it holds
    show(made)
    made.maps[1].weights[1, 2, 0] = number
    pytest.raises(ValueError, show, made).match(f"Layer L1 .*{words}")
    maps = {"weights": made.maps[1].weights[1]}
    if np.isfinite(number):
        made.maps[1].weights[1, 0, 2] = 0
        low = ">0.00<" if number > 0 else f">−{np.abs(maps['weights']).max():.2f}<"
        svg = show_maps(maps, "abc", "abc").svg
        assert show(made, signed=True).html and low in svg
        return
    pytest.raises(ValueError, show_maps, maps, "abc", "abc").match("weights holds .*not finite")


def test_tensors_of_8_bits_and_sparse_ones_are_drawn():
    for one in (torch.eye(3).to(torch.float8_e4m3fn), torch.eye(3).to_sparse()):
        assert (
            show_maps({"w": one}, "abc", "abc").svg == show_maps({"w": np.eye(3)}, "abc", "abc").svg
        )


@pytest.mark.parametrize(
    "kind", [torch.float32, torch.bfloat16, torch.float16, torch.float64, list]
)
def test_tensors_and_lists_are_drawn_as_arrays_are(kind):
    made = trace(1, 2, 3, 3)
    rounded = torch.tensor(made.maps[0].weights).to(torch.bfloat16).float()
    given: Any = rounded.tolist() if kind is list else rounded.to(kind).clone().requires_grad_()
    item = replace(made.maps[0], weights=rounded.numpy())
    same, drawn = (
        replace(made, maps=(replace(item, weights=one),)) for one in (rounded.numpy(), given)
    )
    assert show(drawn).html == show(same).html
    assert (
        show_maps({"w": given[0]}, "abc", "abc").svg
        == show_maps({"w": rounded.numpy()[0]}, "abc", "abc").svg
    )
