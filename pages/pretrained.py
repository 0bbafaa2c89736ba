"""Every head of a pretrained model on what the reader gives it: the grid, one head, and its measures."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret import map_transform, trace as analysis
from core.pretrained import ModelInputs, Reading

# The controls of tokens, order and colours of the maps.


SENTENCES: dict[map_transform.Sentences, str] = {
    "all": "All",
    "ab": "A → B",
    "ba": "B → A",
    "aa": "within A",
    "bb": "within B",
}
SHOWS = {"both": "Matrix and lines", "matrix": "Matrix", "lines": "Lines"}
TOKENS = ("words", "special", "sinks", "sentences")  # the options of `view_of`
UNIT_TO = 64  # tokens: in longer texts hardly a weight comes near 1, and a map from 0 to 1 is blank


class Controls(lab.Fields, page="pretrained"):
    kind = lab.Segmented(
        "Attention",
        lambda values: {
            kind: lab.KINDS[kind]
            for kind in get_args(analysis.Kind)
            if kind in values.reading.trace.kinds
        },
        lambda values: (
            "cross" if "cross" in values.reading.trace.kinds else values.reading.trace.kinds[0]
        ),
        help=lab.KIND_HELP,
        also={"label_visibility": "collapsed"},
    ).optional(lambda values: len(values.reading.trace.kinds) > 1)
    show = lab.Segmented[str](
        "Show",
        lambda values: SHOWS | {"both": "Matrix and picture"} if values.lines[0].grid else SHOWS,
        help="How the picked head is drawn.",
        also={"label_visibility": "collapsed"},
    )
    words = lab.Toggle(
        "Merge pieces into words",
        help="The weights of a word's pieces are summed over keys and averaged over queries. A word is what stands "
        "between spaces, without the punctuation at its edges; a character where a script has no spaces.",
    ).optional(
        lambda values: any(
            a is not None and a == b for line in values.lines for a, b in pairwise(line.word)
        )
    )
    special = lab.Toggle(
        "Hide special tokens",
        # where something is left without them
        help="Leaves out tokens such as [CLS]. Each row is then divided by what is left of it.",
    ).optional(
        lambda values: (
            any(any(line.special) for line in values.lines)
            and not any(all(line.special) for line in values.lines)
        )
    )
    sinks = lab.Toggle(
        "Hide sinks",
        help="A sink is a key that gets more than 0.3 of the weight of every query that may attend to "
        "it, averaged over all heads. Each row is then divided by what is left of it.",
    )
    sentences = lab.Select(
        "Sentences",
        SENTENCES,
        radio=True,
        help="Which sentence attends to which: in A → B the queries are in A and the keys in B.",
        also={"horizontal": True},
    ).optional(lambda values: all(any(line.segment) for line in values.lines))
    order = lab.Select(
        "Order of rows and columns",
        {
            "text": "As in the text",
            "keys": "Keys by weight",
            "queries": "Queries by weight",
            "both": "Both by weight",
        },
        radio=True,
        help="With a pinned cell: by the weights of its row or column. Otherwise: keys by the "
        "average weight that they receive, queries by their largest weight.",
    )
    scale = lab.Select(
        "Scale of one head",
        {
            "auto": "As fits the length",
            "unit": "0 to 1",
            "largest": "0 to the largest here",
            "p99.5": "0 to the 99.5th percentile",
        },
        radio=True,
        help="The weights that the colours cover. As fits the length: 0 to 1 up to "
        f"{UNIT_TO} tokens, 0 to the 99.5th percentile for longer texts.",
    )
    pool = lab.Select(
        "Several cells in one pixel",
        {"mean": "Mean", "max": "Largest"},
        radio=True,
        # else a pixel pools no cells
        help="A map of this length has more cells than pixels.",
        also={"horizontal": True},
    ).optional(lambda values: max(map(len, values.lines)) > 256)
    threshold = lab.Number(
        "Draw weights from",
        0.0,
        0.0,
        0.5,
        0.01,
        slider=True,
        key="from",
        help="Smaller weights are left blank; the pointer still reads them.",
    )


def draw_controls(reading: Reading) -> lab.Values:
    """Draw the controls that this reading has a use for; `options` are those of the tokens, for `view_of`."""
    with st.container(horizontal=True, vertical_alignment="center"):
        kind = Controls.draw("kind", into=lab.HERE, reading=reading).kind or reading.trace.kinds[0]
        given = lab.Values(reading=reading, lines=reading.lines(kind))
        values = Controls.draw("show", into=lab.HERE, **given)
        with st.popover(
            "Tokens", icon=":material/segment:", help="Which tokens are drawn, and in which order"
        ):
            tokens = Controls.draw(*TOKENS, "order", into=lab.HERE, **given)
        with st.popover("Colour", icon=":material/palette:"):
            colour = Controls.draw("scale", "pool", "threshold", into=lab.HERE, **given)
    scale = colour.scale
    if scale == "auto":
        scale = "unit" if max(map(len, given.lines)) <= UNIT_TO else "p99.5"
    return lab.Values(
        {**values, **tokens, **colour, "scale": scale},
        kind=kind,
        options={name: tokens[name] for name in TOKENS if tokens[name] not in (None, False, "all")},
    )


def _view_of(
    ref: lab.ModelRef,
    inputs: ModelInputs,
    kind: analysis.Kind,
    options: tuple[tuple[str, Any], ...],
) -> map_transform.TraceView:
    return map_transform.view_of(lab.reading_of(ref, inputs), kind, **dict(options))


def patches_of(view: map_transform.TraceView, inputs: ModelInputs) -> lab.Patches | None:
    """The picture and its patches, where all of these are tokens of the map, in order."""
    grid, (rows, columns) = view.rows.grid, (view.transform.rows, view.transform.columns)
    if grid is None or inputs.picture is None or len(rows) != len(columns):
        return None
    patches = map_transform.single_tokens(len(view.rows))[-grid[0] * grid[1] :]
    first = len(rows) - len(patches)
    if not rows[first:] == columns[first:] == patches:
        return None
    return lab.Patches(inputs.picture.numpy(), *grid, first=first)


# What the page computes as Python.


def script(
    chosen: lab.ModelChoice,
    values: lab.Values,
    view: map_transform.TraceView,
    ordered: map_transform.TraceView,
    head: map_transform.Pair,
    row: int,
    pin: map_transform.Pair | None,
) -> lab.Script:
    layer, index = head
    options = "".join(f", {name}={value!r}" for name, value in values.options.items())
    show, grid = "from dashboard.show import show", ("", "")
    draw = f"{show}\n\nshow(trace, layer={layer}, head={index}, query={row})"
    picture = "pretrained:grid"
    if values.order != "text":
        grid = f"{show}\n\nshow(view.trace, layer={layer}, head={index})", picture
        draw = f"{show}_maps\n\nshow_maps({{name: weights}}, item.queries, item.keys, row={row})"
        picture = "pretrained:head"
    return lab.Script(
        (
            lab.model_cell(chosen.ref, chosen.inputs if chosen.pretrained else None),
            lab.Cell(
                "The weights of every head; the head that attends most to the previous token.",
                f"""
import numpy as np

from core.interpret.map_transform import in_order, view_of
from core.interpret.trace import previous_token, strongest

view = view_of(reading, {values.kind!r}{options})
heads = [item.weights for item in view.trace.maps]  # (H, T, S) for each layer
layer, head, weight = strongest(view.trace, previous_token)
print(view.trace.name((layer, head)), "gives the previous token", weight)
""",
                *grid,
            ),
            lab.Cell(
                "One head, and the largest weights of one query.",
                f"""
trace = in_order(view, {layer}, {index}, {values.order!r}, {pin}).trace
name, item = trace.name(({layer}, {index})), trace.map({layer})
weights = item.weights[{index}]  # (T, S)
row = weights[{row}]
for key in (-row).argsort()[:3]:
    print(f"{{name}}: {{item.queries[{row}]}} -> {{item.keys[key]}} {{row[key]:.3f}}")
""",
                draw,
                picture,
            ),
        ),
        {
            "np.concatenate(heads)": np.concatenate([item.weights for item in view.trace.maps]),
            "weights": ordered.trace.head(*head),
            "strongest(view.trace, previous_token)": np.array(
                analysis.strongest(view.trace, analysis.previous_token)
            ),
        },
    )


# The page Pretrained models: the grid of heads, one head, and the measures of both.


LINK = "pretrained"
GRID, SMALLEST, LARGEST = 400, 34, 68  # pixels: the grid's width, and of a thumbnail


def page() -> None:
    lab.title(
        "Pretrained models",
        "See where each head of a trained model looks. Pick a head, then a word.",
    )
    chosen = lab.choose_model()
    measure = None if chosen is None else _view(chosen)
    if measure is not None:
        measure()


@lab.fragment
def _view(chosen: lab.ModelChoice) -> Callable[[], None] | None:
    """Draw the controls and all that they change, which reruns alone; returns what measures the roles, if unknown."""
    controls = draw_controls(chosen.reading)
    request = chosen.ref, chosen.inputs, controls.kind
    # Measuring them would delay the figures; the session has them where the cache has no room
    of, roles = st.session_state.get("pretrained:roles", (None, None))
    if of != request:
        roles = lab.roles_of(*request) if lab.roles_are_cached(*request) else None
    view, skeleton = _figures(chosen, controls, roles)
    lab.fact(all_heads_fact(view))
    lab.caption(conditions(chosen.reading, view, controls))
    lab.details(
        "Where these numbers come from",
        partial(
            lab.sources,
            "Each map holds the weights that the model computed, in fp32, before dropout. These functions merge "
            "and hide tokens and compute the numbers above:",
            map_transform.transform_map,
            analysis.previous_token,
        ),
    )

    if skeleton is None:
        return None

    def measure() -> None:
        with skeleton, st.spinner("Measuring the roles of the heads, only the first time"):
            st.session_state["pretrained:roles"] = request, lab.roles_of(*request)
            st.rerun()

    if lab.reruns_alone():  # nothing else is left to draw
        measure()
    return measure


def _figures(
    chosen: lab.ModelChoice, controls: lab.Values, roles: lab.HeadRoles | None
) -> tuple[map_transform.TraceView, st.delta_generator.DeltaGenerator | None]:
    """Draw the grid, one head and its facts; returns the maps, and a skeleton where the roles are not measured."""
    # The link's head and pins belong to one model and one kind of map
    now = (chosen.ref, controls.kind)
    if st.session_state.get("pretrained:of", now) != now:
        lab.write_pair("pin", None)
    # The maps as the controls transform them; shared, since they are as large as the maps
    if chosen.reading.trace.kinds != (controls.kind,) or chosen.reading.sinks or controls.options:
        view = lab.shared(
            _view_of, chosen.ref, chosen.inputs, controls.kind, tuple(controls.options.items())
        )
    else:  # the reading's own trace: the same object each time, as caches hash it
        view = map_transform.view_of(chosen.reading, controls.kind)
    first = lab.link_head(
        "pretrained",
        now,
        chosen.ref,
        {head: (controls.kind, head) for head in np.ndindex(*view.trace.shape)},
        map_transform.first_head(
            view, analysis.COREFERENCE if chosen.ref == lab.EMBEDDED else None
        ),
    )
    pins, bad_pin = lab.read_pairs("pin", (len(view.rows), len(view.columns)))
    if bad_pin:
        st.warning(bad_pin)
    left, right = st.columns([1.05, 1], gap="large")
    with left:
        layers, count = view.trace.shape
        of = f" of {lab.KINDS[controls.kind].lower()} attention"
        picked = lab.attention_view(
            view.trace,
            key="pretrained:grid",
            layout="grid",
            layer=first[0],
            head=first[1],
            thumb=max(SMALLEST, min(LARGEST, GRID // count)),
            roles=roles or {},
            link=LINK,
            fact=f"{layers} layers of {count} heads{of if len(chosen.reading.trace.kinds) > 1 else ''}",
        )
    # One head in the chosen order, by the last pin
    pin = next(reversed(map_transform.shown_pins(view, pins)), None)
    ranked = map_transform.in_order(view, picked.layer, picked.head, controls.order, pin)
    row, _ = map_transform.default_row(ranked, picked.layer, picked.head)
    item = ranked.trace.map(picked.layer)
    one = lab.attention_view(
        ranked.trace,
        key="pretrained:head",
        layer=picked.layer,
        head=picked.head,
        query=row,
        link=LINK,
        pins=map_transform.shown_pins(ranked, pins),
        show=controls.show,
        scale=controls.scale,
        pool=controls.pool or "mean",
        show_choice=("pretrained:show", tuple(SHOWS)),
        threshold=controls.threshold,
        patches=patches_of(ranked, chosen.inputs),
        fact=f"Head {ranked.trace.name((picked.layer, picked.head))}; the picked row is {item.queries[row]}",
    )
    if roles is not None:  # else the page runs again with the same link
        _save_picks(chosen.ref, ranked, one, first, pins, controls)
    head, item = (one.layer, one.head), ranked.trace.map(one.layer)
    row, key = one.pin or (map_transform.default_row(ranked, *head)[0], None)
    lab.add_script(partial(script, chosen, controls, view, ranked, head, row, pin))
    with right:
        lab.fact(head_fact(ranked.trace, *head, row, key))
        if sentence := pins_fact(item, one.head, one.pins):
            st.caption(sentence)
        lab.weight_link(
            chosen,
            controls.kind,
            head,
            ranked.transform.source_cell(
                (row, (int(item.weights[one.head, row].argmax()) if key is None else key))
            ),
        )
        if roles:
            lab.role_line(roles, sum(len(layer.weights) for layer in view.trace.maps))
        skeleton = st.skeleton(height=56) if roles is None else None  # the line of roles
    lab.caption(rivals_text(ranked.trace, *head, row, key))
    return view, skeleton


def _save_picks(
    ref: lab.ModelRef,
    ranked: map_transform.TraceView,
    view: lab.ViewState,
    first: map_transform.Pair,
    pins: list[map_transform.Pair],
    controls: lab.Values,
) -> None:
    """Write the picked head and the pins, by the model's own tokens, into the link and the session."""
    head, cells = (view.layer, view.head), [ranked.transform.shown_cell(pin) for pin in pins]
    if head != first:
        lab.choose_head(ref, controls.kind, head)
    lab.write_pair("head", head if head != first or "head" in st.query_params else None)
    fresh = [ranked.transform.source_cell(cell) for cell in view.pins if cell not in cells]
    lab.write_pair(
        "pin",
        *[pin for pin, cell in zip(pins, cells, strict=True) if cell is None],
        *[pin for pin, cell in zip(pins, cells, strict=True) if cell in view.pins],
        *fresh,
    )
    if fresh and controls.order != "text":
        st.rerun()  # the order follows the pin


# Sentences about one row, all heads, and the conditions.


def called(tokens: tuple[str, ...], index: int) -> str:
    return lab.plain(
        tokens[index] if tokens.count(tokens[index]) == 1 else f"{tokens[index]} ({index})"
    )


def head_fact(
    trace: analysis.AttentionTrace, layer: int, head: int, row: int, pinned: int | None = None
) -> str:
    item = trace.map(layer)
    weights, keys = item.weights[head, row], item.keys
    order = [int(j) for j in np.argsort(-weights, kind="stable")]
    first = order[0] if pinned is None else pinned
    also = "".join(
        f" and {lab.share_text(weights[j])} on {called(keys, j)}"
        for j in [j for j in order if j != first][:1]
    )
    return (
        f"In head **{trace.name((layer, head))}**, :primary[**{called(item.queries, row)}**] puts "
        f"**{lab.share_text(weights[first])}** of its weight on **{called(keys, first)}**{also}; "
        f"uniform attention would give each key {lab.number(map_transform.even(item, row, head))}."
    )


def rivals_text(
    trace: analysis.AttentionTrace, layer: int, head: int, row: int, pinned: int | None = None
) -> str:
    """How many other heads put as much weight on the cell of `head_fact`, and which puts most."""
    weights = trace.map(layer).weights[head, row]
    first = int(weights.argmax()) if pinned is None else pinned
    others = [
        (float(other.weights[h, row, first]), index, h)
        for index, other in enumerate(trace.maps)
        for h in range(len(other.weights))
        if (index, h) != (layer, head)
    ]
    if not others:
        return "The model has no other head."
    value, *best = max(others)
    best_head, count = f"{trace.name((best[0], best[1]))} with {lab.number(value)}", len(others)
    stronger = sum(other >= float(weights[first]) for other, *_ in others)
    if weights[first] < 0.005:
        return f"The head with the largest weight there is {best_head}."
    if stronger:
        return (
            f"{stronger} of {count} other head{'s' * (count != 1)} put{'s' * (stronger == 1)} at least as much there; "
            f"the largest is {best_head}."
        )
    return f"None of the other {count} heads puts as much there; the next largest is {best_head}."


def pins_fact(item: analysis.AttentionMap, head: int, pins: tuple[tuple[int, int], ...]) -> str:
    if len(pins) < 2:
        return ""
    text = "; ".join(
        f"{called(item.queries, i)} → {called(item.keys, j)} **{lab.share_text(item.weights[head, i, j])}**"
        for i, j in reversed(pins[:-1])
    )
    return f"Also pinned: {text}."


def all_heads_fact(view_: map_transform.TraceView) -> str:
    """The head with most weight on the previous token, or, without an order, the sharpest one."""
    item = view_.trace.map(0)
    if (
        item.kind != "cross"
        and view_.rows.grid is None
        and len(item.queries) == len(item.keys) >= 3
    ):
        layer, head, value = analysis.strongest(view_.trace, analysis.previous_token)
        share = float(
            np.mean([map_transform.even(item, row) for row in range(1, len(item.queries))])
        )
        return (
            f"Of all heads, {view_.trace.name((layer, head))} attends most to the previous token, with "
            f"{lab.share_text(value)} of its weight; uniform attention would give it {lab.share_text(share)}."
        )
    if len(item.keys) < 2:
        return "With a single key, every weight is 1."
    layer, head, value = analysis.strongest(
        view_.trace, lambda weights: 1 - analysis.breadth(weights)
    )
    count = float(np.exp(analysis.entropy(view_.trace.map(layer).weights[head : head + 1]).mean()))
    return (
        f"Of all heads, {view_.trace.name((layer, head))} is the most focused: its rows use about "
        f"{lab.number(count)} of {len(item.keys)} keys (e^entropy); uniform attention uses all."
    )


def conditions(reading: Reading, view_: map_transform.TraceView, values: lab.Values) -> str:
    counts = view_.rows.count
    if view_.rows is not view_.columns:
        counts = f"rows: {counts}; columns: {view_.columns.count}"
    hidden, options = len(view_.columns) - sum(map(len, view_.transform.columns)), values.options
    return " ".join(
        filter(
            None,
            [
                f"{lab.plain(reading.trace.source)}, {counts}.",
                "Pieces of a word are merged: summed over keys, averaged over queries."
                if "words" in options
                else "",
                f"Sentences: {SENTENCES[values.sentences]} only." if "sentences" in options else "",
                ("Sinks are hidden." if hidden else "No key is a sink here.")
                * ("sinks" in options),
                "Special tokens are hidden." if "special" in options else "",
                "Each row is divided by what is left of it, so the weights shown are larger than the model's own."
                if view_.hides
                else "",
                lab.plain(reading.note or ""),
                "A patch is named by its row and its column, from 0: 2,1 is in row 2, column 1."
                if view_.rows.grid
                else "",
                "A weight shows where a head attends, not what the head does with the value there.",
            ],
        )
    )
