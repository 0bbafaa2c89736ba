"""Every head of a pretrained model on what the reader gives it: the grid, one head, and its measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import get_args

import numpy as np
import streamlit as st

from core.interpret import map_transform, trace as analysis
from core.interpret.map_transform import MapTransform, Sentences, token_transform, transform_trace
from core.interpret.trace import AttentionMap, AttentionTrace, Kind
from core.pretrained import Line, ModelInputs, Reading
from core.pretrained.maps import sink_line
from core.studies.pretrained import (
    COREFERENCE,
    Order,
    Pair,
    TraceView,
    default_row,
    even,
    first_head,
    in_order,
    maps_of_kind,
    shown_pins,
)
from dashboard.draw.attention_view import Patches, ViewState, attention_view
from dashboard.draw.formats import number
from dashboard.draw.page_pictures import add_script
from dashboard.draw.scripts import Cell, Script
from dashboard.server.cache import shared
from dashboard.ui.heads import HeadRoles, role_line, roles_are_cached, roles_of, weight_link
from dashboard.ui.links import (
    BOUND,
    fragment,
    read_pair,
    read_pairs,
    write_link,
    write_pair,
    write_pairs,
)
from dashboard.ui.model_picker import (
    KIND_HELP,
    KINDS,
    ModelChoice,
    choose_head,
    choose_model,
    current_head_of,
)
from dashboard.ui.models import EMBEDDED, ModelRef, import_block, model_cell, reading_of
from dashboard.ui.panels import caption, details, fact, next_page, plain, source_panel, title
from dashboard.ui.rendering import reruns_alone

# The controls of tokens, order and colours of the maps.


SENTENCES: dict[Sentences, str] = {
    "all": "All",
    "ab": "A → B",
    "ba": "B → A",
    "aa": "within A",
    "bb": "within B",
}
ORDERS: dict[Order, str] = {
    "text": "As in the text",
    "keys": "Keys by weight",
    "queries": "Queries by weight",
    "both": "Both by weight",
}
SHOW = "pretrained:show"
SHOWS = {"both": "Matrix and lines", "matrix": "Matrix", "lines": "Lines"}
SCALES = {
    "auto": "As fits the length",
    "unit": "0 to 1",
    "largest": "0 to the largest here",
    "p99.5": "0 to the 99.5th percentile",
}
POOLS = {"mean": "Mean", "max": "Largest"}
POOLED_FROM = 256  # tokens, from which a pixel or a cell may pool several
UNIT_TO = 64  # tokens: in longer texts hardly a weight comes near 1, and a map from 0 to 1 is blank


@dataclass(frozen=True)
class Controls:
    """The values of the controls; `kind` is one that the reading has."""

    kind: Kind
    words: bool = False
    special: bool = False
    sinks: bool = False
    sentences: Sentences = "all"
    order: Order = "text"
    show: str = "both"
    scale: str = "unit"
    pool: str = "mean"
    threshold: float = 0.0


def draw_controls(reading: Reading) -> Controls:
    """Draw the controls that this reading has a use for."""
    with st.container(horizontal=True, vertical_alignment="center"):
        kind = _kind(reading)
        rows, columns = reading.lines(kind)
        picture = rows.grid is not None
        shows = SHOWS | ({"both": "Matrix and picture"} if picture else {})
        show = st.segmented_control(
            "Show",
            list(shows),
            default="both",
            format_func=shows.__getitem__,
            key=SHOW,
            label_visibility="collapsed",
            required=True,
            **BOUND,
            help="How the picked head is drawn.",
        )
        with st.popover(
            "Tokens", icon=":material/segment:", help="Which tokens are drawn, and in which order"
        ):
            words, special, sinks = _tokens(rows, columns)
            sentences = _sentences(rows, columns)
            order = st.radio(
                "Order of rows and columns",
                list(ORDERS),
                format_func=ORDERS.__getitem__,
                key="pretrained:order",
                **BOUND,
                help="With a pinned cell: by the weights of its row or column. Otherwise: keys by the "
                "average weight that they receive, queries by their largest weight.",
            )
        with st.popover("Colour", icon=":material/palette:"):
            scale, pool, threshold = _colour(max(len(rows), len(columns)))
    return Controls(
        kind, words, special, sinks, sentences, order, show or "both", scale, pool, threshold
    )


def _kind(reading: Reading) -> Kind:
    kinds = reading.trace.kinds
    if len(kinds) < 2:
        return kinds[0]
    names = [kind for kind in get_args(Kind) if kind in kinds]
    first = "cross" if "cross" in kinds else kinds[0]
    return (
        st.segmented_control(
            "Attention",
            names,
            default=first,
            format_func=KINDS.__getitem__,
            key="pretrained:kind",
            label_visibility="collapsed",
            required=True,
            help=KIND_HELP,
            **BOUND,
        )
        or first
    )


def _tokens(rows: Line, columns: Line) -> tuple[bool, bool, bool]:
    pieces = any(
        len(set(indices)) < len(indices)
        for indices in (
            [word for word in line.word if word is not None] for line in (rows, columns)
        )
    )
    words = pieces and st.toggle(
        "Merge pieces into words",
        key="pretrained:words",
        **BOUND,
        help="The weights of a word's pieces are summed over keys and averaged over queries.",
    )
    hidable = any(rows.special + columns.special) and not (
        all(rows.special) or all(columns.special)
    )
    special = hidable and st.toggle(
        "Hide special tokens",
        key="pretrained:special",
        **BOUND,
        help="Leaves out tokens such as [CLS]. Each row is then divided by what is left of it.",
    )
    sinks = st.toggle(
        "Hide sinks",
        key="pretrained:sinks",
        **BOUND,
        help="A sink is a key that gets more than 0.3 of the weight of every query that may attend to "
        "it, averaged over all heads. Each row is then divided by what is left of it.",
    )
    return bool(words), bool(special), sinks


def _sentences(rows: Line, columns: Line) -> Sentences:
    if not (any(rows.segment) and any(columns.segment)):
        return "all"
    return (
        st.radio(
            "Sentences",
            list(SENTENCES),
            format_func=SENTENCES.__getitem__,
            key="pretrained:sentences",
            horizontal=True,
            **BOUND,
            help="Which sentence attends to which: in A → B the queries are in A and the keys in B.",
        )
        or "all"
    )


def _colour(tokens: int) -> tuple[str, str, float]:
    scale = st.radio(
        "Scale of one head",
        list(SCALES),
        format_func=SCALES.__getitem__,
        key="pretrained:scale",
        **BOUND,
        help="The weights that the colours cover. As fits the length: 0 to 1 up to "
        f"{UNIT_TO} tokens, 0 to the 99.5th percentile for longer texts.",
    )
    pool = "mean"
    if tokens > POOLED_FROM:
        pool = (
            st.radio(
                "Several cells in one pixel",
                list(POOLS),
                format_func=POOLS.__getitem__,
                key="pretrained:pool",
                horizontal=True,
                **BOUND,
                help="A map of this length has more cells than pixels.",
            )
            or "mean"
        )
    threshold = st.slider(
        "Draw weights from",
        0.0,
        0.5,
        0.0,
        0.01,
        key="pretrained:from",
        **BOUND,
        help="Smaller weights are left blank; the pointer still reads them.",
    )
    if scale == "auto":
        scale = "unit" if tokens <= UNIT_TO else "p99.5"
    return scale or "unit", pool, threshold


def _maps_of_kind(ref: ModelRef, inputs: ModelInputs, kind: Kind) -> AttentionTrace:
    return maps_of_kind(reading_of(ref, inputs), kind)


def _transformed(
    ref: ModelRef, inputs: ModelInputs, kind: Kind, transform: MapTransform
) -> AttentionTrace:
    return transform_trace(maps_of_kind(reading_of(ref, inputs), kind), transform)


def trace_view(ref: ModelRef, inputs: ModelInputs, controls: Controls) -> TraceView:
    """The maps of a reading as the controls transform them; shared, since they are as large as the maps."""
    reading, kind = reading_of(ref, inputs), controls.kind
    rows, columns = reading.lines(kind)
    columns = sink_line(columns) if reading.sinks else columns
    # Where nothing changes, the reading's own trace: the same object each time, as caches hash it
    own = reading.trace.kinds == (kind,) and not reading.sinks
    trace = reading.trace if own else shared(_maps_of_kind, ref, inputs, kind)
    transform = transform_of(trace, rows, columns, controls)
    if transform.changes(trace.maps[0]):
        trace = shared(_transformed, ref, inputs, kind, transform)
    return TraceView(trace, transform, rows, columns)


def transform_of(
    trace: AttentionTrace, rows: Line, columns: Line, controls: Controls
) -> MapTransform:
    """The map transform of the controls."""
    return token_transform(
        trace,
        rows,
        columns,
        words=controls.words,
        special=controls.special,
        sinks=controls.sinks,
        sentences=controls.sentences,
    )


def patches_of(view: TraceView, inputs: ModelInputs) -> Patches | None:
    """The picture and its patches, where all of these are tokens of the map, in order."""
    grid = view.rows.grid
    if grid is None or inputs.picture is None:
        return None
    patches = map_transform.single_tokens(len(view.rows))[-grid[0] * grid[1] :]
    if (
        view.transform.rows[-len(patches) :] != patches
        or view.transform.columns[-len(patches) :] != patches
    ):
        return None
    if len(view.transform.rows) != len(view.transform.columns):
        return None
    return Patches(inputs.picture.numpy(), *grid, first=len(view.transform.rows) - len(patches))


# What the page computes as Python.


MAPS = "The weights of every head; the head that attends most to the previous token."
HEAD = "One head, and the largest weights of one query."


def script(
    chosen: ModelChoice,
    controls: Controls,
    view: TraceView,
    ordered: TraceView,
    head: Pair,
    row: int,
    pin: Pair | None,
) -> Script:
    """All heads of the model on these inputs, the transform of tokens, and the picked head in its order."""
    layer, index = head
    sorts = _order(controls, head, pin)
    imports = (
        "from core.interpret.map_transform import received_weight\n\n"
        if "received_weight" in sorts
        else ""
    )
    one = f"""
{imports}name = trace.label({layer}, {index})
item = trace.map({layer})
weights = item.weights[{index}]  # (T, S)
queries, keys = item.queries, item.keys{sorts}
row = weights[{row}]
for key in (-row).argsort()[:3]:
    print(f"{{name}}: {{queries[{row}]}} -> {{keys[key]}} {{row[key]:.3f}}")
"""
    draw = f"""
from core.show import show{", show_maps" if sorts else ""}

{
        f"show_maps({{name: weights}}, queries, keys, row={row})"
        if sorts
        else f"show(trace, layer={layer}, head={index}, query={row})"
    }
"""
    grid = (
        ""
        if not sorts
        else f"from core.show import show\n\nshow(trace, layer={layer}, head={index})"
    )
    cells = (
        model_cell(chosen.ref, chosen.inputs if chosen.pretrained else None),
        Cell(MAPS, _maps(chosen, controls, view), grid, "pretrained:grid" if sorts else ""),
        Cell(HEAD, one, draw, "pretrained:head" if sorts else "pretrained:grid"),
    )
    maps = [item.weights for item in view.trace.maps]
    results = {
        "np.concatenate(heads)": np.concatenate(maps),
        "weights": ordered.trace.head(*head),
        "strongest(trace, previous_token)": np.array(
            analysis.strongest(view.trace, analysis.previous_token)
        ),
    }
    return Script(cells, results)


def _maps(chosen: ModelChoice, controls: Controls, view: TraceView) -> str:
    """The trace of one kind of attention, with a learned sink's column, transformed as the controls say."""
    imports = {
        "import numpy as np",
        "from core.interpret.trace import previous_token",
        "from core.interpret.trace import strongest",
    }
    lines = [f"trace = reading.trace.of({controls.kind!r})"]
    if chosen.reading.sinks:
        imports |= {"from core.pretrained.maps import with_sink"}
        lines.append("trace = with_sink(trace)  # one more key, the learned sink")
    options = {name: getattr(controls, name) for name in ("words", "special", "sinks", "sentences")}
    options = {name: value for name, value in options.items() if value and value != "all"}
    if options:
        imports |= {
            "from core.interpret.map_transform import transform_trace",
            "from core.interpret.map_transform import token_transform",
        }
        lines.append(f"rows, columns = reading.lines({controls.kind!r})  # the tokens")
        if chosen.reading.sinks:
            imports |= {"from core.pretrained.maps import sink_line"}
            lines.append("columns = sink_line(columns)")
        named = ", ".join(f"{name}={value!r}" for name, value in options.items())
        lines.append(
            f"transform = token_transform(trace, rows, columns, {named})\n"
            "trace = transform_trace(trace, transform)"
        )
    lines += [
        "heads = [item.weights for item in trace.maps]  # (H, T, S) for each layer",
        "layer, head, weight = strongest(trace, previous_token)",
        'print(trace.label(layer, head), "gives the previous token", weight)',
    ]
    return f"{import_block(imports)}\n\n" + "\n".join(lines)


def _order(controls: Controls, head: Pair, pin: Pair | None) -> str:
    """Lines that sort the rows and columns of the head as the controls say."""
    keys = f"weights[{pin[0]}]" if pin else f"received_weight(item)[{head[1]}]"
    queries = f"weights[:, {pin[1]}]" if pin else "weights.max(-1)"
    lines = []
    if controls.order in ("keys", "both"):
        lines.append(f'across = (-{keys}).argsort(kind="stable")  # keys by weight')
    if controls.order in ("queries", "both"):
        lines.append(f'down = (-{queries}).argsort(kind="stable")  # queries by weight')
    if controls.order in ("keys", "both"):
        lines.append("weights, keys = weights[:, across], [keys[key] for key in across]")
    if controls.order in ("queries", "both"):
        lines.append("weights, queries = weights[down], [queries[query] for query in down]")
    return "".join(f"\n{line}" for line in lines)


# The page Pretrained models: the grid of heads, one head, and the measures of both.


PATCHES = " A patch is named by its row and its column, from 0: 2,1 is in row 2, column 1."

LINK = "pretrained"
GRID, SMALLEST, LARGEST = 400, 34, 68  # pixels: the grid's width, and of a thumbnail
SKELETON_HEIGHT = 56  # pixels: about the height of the line of roles


def page() -> None:
    """Draw the page from top to bottom; the roles are measured last, after the figures."""
    title(
        "Pretrained models",
        "See where every head of a trained model attends in your own sentence. Pick a head, then a word.",
    )
    chosen = choose_model()
    measure = None if chosen is None else _view(chosen)
    next_page("pretrained")
    if measure is not None:
        measure()


@fragment
def _view(chosen: ModelChoice) -> Callable[[], None] | None:
    """Draw the controls and all that they change, which reruns alone; returns what measures the roles, if unknown."""
    controls = draw_controls(chosen.reading)
    request = chosen.ref, chosen.inputs, controls.kind
    roles = (
        roles_of(*request) if roles_are_cached(*request) else None
    )  # measuring them would delay the figures
    view, skeleton = _figures(chosen, controls, roles)
    fact(all_heads_fact(view))
    caption(conditions(chosen.reading, view, controls))
    details("Where these numbers come from", _sources)
    if skeleton is None:
        return None
    if reruns_alone():  # nothing else is left to draw
        _measure_roles(skeleton, request)
    return partial(_measure_roles, skeleton, request)


def _measure_roles(
    skeleton: st.delta_generator.DeltaGenerator, request: tuple[ModelRef, ModelInputs, Kind]
) -> None:
    with skeleton, st.spinner("Measuring the roles of the heads, only the first time"):
        roles_of(*request)
        st.rerun()


def _figures(
    chosen: ModelChoice, controls: Controls, roles: HeadRoles | None
) -> tuple[TraceView, st.delta_generator.DeltaGenerator | None]:
    """Draw the grid, one head and its facts; returns the maps, and a skeleton until the roles are measured."""
    # Remove the link's head and pins, which belong to one model and one kind of map, when another is chosen
    now = (repr(chosen.ref), controls.kind)
    if st.session_state.setdefault("pretrained:of", now) != now:
        for name in ("head", "pin"):
            write_link(name, None)
        st.session_state["pretrained:of"] = now
    view = trace_view(chosen.ref, chosen.inputs, controls)
    first, pins = _first_head_and_pins(view, chosen.ref)
    left, right = st.columns([1.05, 1], gap="large")
    with left:
        layers, heads = view.trace.shape
        of = (
            f" of {KINDS[view.trace.map(0).kind].lower()} attention"
            if len(chosen.reading.trace.kinds) > 1
            else ""
        )
        thumb = max(SMALLEST, min(LARGEST, GRID // heads))
        picked = attention_view(
            view.trace,
            key="pretrained:grid",
            layout="grid",
            layer=first[0],
            head=first[1],
            thumb=thumb,
            roles=roles or {},
            link=LINK,
            fact=f"{layers} layers of {heads} heads{of}",
        )
    ranked, one = _one_head(view, picked, pins, controls, chosen.inputs)
    if roles is not None:  # else the page runs again with the same link
        _save_picks(chosen.ref, ranked, one, first, pins, controls)
    item = ranked.trace.map(one.layer)
    row, key = one.pin or (default_row(ranked, one.layer, one.head)[0], None)
    add_script(
        partial(
            script,
            chosen,
            controls,
            view,
            ranked,
            (one.layer, one.head),
            row,
            next(reversed(shown_pins(view, pins)), None),
        )
    )
    with right:
        fact(head_fact(ranked.trace, one.layer, one.head, row, key))
        if sentence := pins_fact(item, one.head, one.pins):
            st.caption(sentence)
        column = int(item.weights[one.head, row].argmax()) if key is None else key
        weight_link(
            chosen,
            controls.kind,
            (one.layer, one.head),
            ranked.transform.source_cell((row, column)),
        )
        if roles:
            role_line(roles, sum(len(layer.weights) for layer in view.trace.maps))
        skeleton = st.skeleton(height=SKELETON_HEIGHT) if roles is None else None
    return view, skeleton


def _first_head_and_pins(trace_view: TraceView, ref: ModelRef) -> tuple[Pair, list[Pair]]:
    """The head of the link, or of another page, or the default, and the link's pins; warns of errors in the link."""
    linked, bad_head = read_pair("head", trace_view.trace.shape)
    pins, bad_pin = read_pairs("pin", (len(trace_view.rows), len(trace_view.columns)))
    for sentence in filter(None, (bad_head, bad_pin)):
        st.warning(sentence)
    kind = trace_view.trace.map(0).kind
    picked = linked or current_head_of(ref, kind, trace_view.trace.shape)
    if picked:
        choose_head(ref, kind, picked)
        write_pair("head", picked)
    return picked or first_head(trace_view, COREFERENCE if ref == EMBEDDED else None), pins


def _one_head(
    trace_view: TraceView,
    picked: ViewState,
    pins: list[Pair],
    controls: Controls,
    inputs: ModelInputs,
) -> tuple[TraceView, ViewState]:
    """Draw one head in the chosen order; returns its maps in this order and the picks."""
    before = shown_pins(trace_view, pins)
    ranked = in_order(
        trace_view, picked.layer, picked.head, controls.order, before[-1] if before else None
    )
    row, _ = default_row(ranked, picked.layer, picked.head)
    item = ranked.trace.map(picked.layer)
    view = attention_view(
        ranked.trace,
        key="pretrained:head",
        layer=picked.layer,
        head=picked.head,
        query=row,
        link=LINK,
        pins=shown_pins(ranked, pins),
        show=controls.show,  # type: ignore[arg-type]
        scale=controls.scale,  # type: ignore[arg-type]
        pool=controls.pool,  # type: ignore[arg-type]
        show_choice=(SHOW, tuple(SHOWS)),
        threshold=controls.threshold,
        patches=patches_of(ranked, inputs),
        fact=f"Head {ranked.trace.label(picked.layer, picked.head)}; the picked row is {item.queries[row]}",
    )
    return ranked, view


def _save_picks(
    ref: ModelRef,
    ranked: TraceView,
    view: ViewState,
    first: Pair,
    pins: list[Pair],
    controls: Controls,
) -> None:
    """Write the picked head and the pins, by the model's own tokens, into the link and the session."""
    head = (view.layer, view.head)
    if head != first:
        choose_head(ref, ranked.trace.map(0).kind, head)
    write_pair("head", head if head != first or "head" in st.query_params else None)
    hidden = [pin for pin in pins if ranked.transform.shown_cell(pin) is None]
    own = [pin for pin in pins if ranked.transform.shown_cell(pin) in view.pins]
    fresh = [
        ranked.transform.source_cell(cell)
        for cell in view.pins
        if cell not in [ranked.transform.shown_cell(pin) for pin in own]
    ]
    write_pairs("pin", [*hidden, *own, *fresh])
    if fresh and controls.order != "text":
        st.rerun()  # the order follows the pin


def _sources() -> None:
    st.markdown(
        "Each map holds the weights that the model computed, in fp32, before dropout. These functions merge "
        "and hide tokens and compute the numbers above:"
    )
    source_panel(map_transform.transform_map)
    source_panel(analysis.previous_token)


# Sentences about one row, all heads, and the conditions.


def called(tokens: tuple[str, ...], index: int) -> str:
    """A token's name, with its position where another has the same name."""
    return plain(
        tokens[index] if tokens.count(tokens[index]) == 1 else f"{tokens[index]} ({index})"
    )


def head_fact(
    trace: AttentionTrace, layer: int, head: int, row: int, pinned: int | None = None
) -> str:
    """What the head does with one query: its largest weight (or the pinned one), and the heads that do it too."""
    item = trace.map(layer)
    weights, keys = item.weights[head, row], item.keys
    order = [int(j) for j in np.argsort(-weights, kind="stable")]
    first = order[0] if pinned is None else pinned
    also = "".join(
        f" and {number(weights[j])} on {called(keys, j)}"
        for j in [j for j in order if j != first][:1]
    )
    text = (
        f"In head **{trace.label(layer, head)}**, :primary[**{called(item.queries, row)}**] puts "
        f"**{number(weights[first])}** of its weight on **{called(keys, first)}**{also}; "
        f"uniform attention would give each key {number(even(item, row, head))}."
    )
    return f"{text} {_rivals(trace, layer, head, row, first)}"


def _rivals(trace: AttentionTrace, layer: int, head: int, row: int, key: int) -> str:
    """How many other heads put as much weight on the same cell, and which puts most."""
    mine = trace.head(layer, head)[row, key]
    others = [
        (float(item.weights[h, row, key]), index, h)
        for index, item in enumerate(trace.maps)
        for h in range(len(item.weights))
        if (index, h) != (layer, head)
    ]
    if not others:
        return "The model has no other head."
    value, best_layer, best_head = max(others)
    stronger = sum(other >= mine for other, _, _ in others)
    best = f"{trace.label(best_layer, best_head)} with {number(value)}"
    if mine < 0.005:
        return f"The head with the largest weight there is {best}."
    if stronger:
        put = "puts" if stronger == 1 else "put"
        heads = "head" if len(others) == 1 else "heads"
        return f"{stronger} of {len(others)} other {heads} {put} at least as much there; the largest is {best}."
    return f"None of the other {len(others)} heads puts as much there; the next largest is {best}."


def pins_fact(item: AttentionMap, head: int, pins: tuple[tuple[int, int], ...]) -> str:
    """The pins before the newest, in words; nothing where there is one alone."""
    if len(pins) < 2:
        return ""
    text = "; ".join(
        f"{called(item.queries, i)} → {called(item.keys, j)} **{number(item.weights[head, i, j])}**"
        for i, j in reversed(pins[:-1])
    )
    return f"Also pinned: {text}."


def all_heads_fact(view_: TraceView) -> str:
    """The head with most weight on the previous token, or, without an order, the sharpest one."""
    item = view_.trace.map(0)
    if (
        item.kind != "cross"
        and view_.rows.grid is None
        and len(item.queries) == len(item.keys) >= 3
    ):
        layer, head, value = analysis.strongest(view_.trace, analysis.previous_token)
        share = float(np.mean([even(item, row) for row in range(1, len(item.queries))]))
        return (
            f"Of all heads, {view_.trace.label(layer, head)} attends most to the previous token, with "
            f"{number(value)} of its weight; uniform attention would give it {number(share)}."
        )
    if len(item.keys) < 2:
        return "With a single key, every weight is 1."
    layer, head, value = analysis.strongest(
        view_.trace, lambda weights: 1 - analysis.breadth(weights)
    )
    count = float(np.exp(analysis.entropy(view_.trace.map(layer).weights[head : head + 1]).mean()))
    return (
        f"Of all heads, {view_.trace.label(layer, head)} is the most focused: its rows use about "
        f"{number(count)} of {len(item.keys)} keys (e^entropy); uniform attention uses all."
    )


def conditions(reading: Reading, view_: TraceView, controls: Controls) -> str:
    """Under which conditions the page's numbers hold."""
    text = f"{plain(reading.trace.source)}, {_counts(view_)}."
    if controls.words:
        text += " Pieces of a word are merged: summed over keys, averaged over queries."
    if controls.sentences != "all":
        text += f" Sentences: {SENTENCES[controls.sentences]} only."
    if controls.sinks:
        hidden = len(view_.columns) - sum(map(len, view_.transform.columns))
        text += " Sinks are hidden." if hidden else " No key is a sink here."
    if controls.special:
        text += " Special tokens are hidden."
    if view_.hides:
        text += " Each row is divided by what is left of it, so the weights shown are larger than the model's own."
    if reading.note:
        text += f" {plain(reading.note)}"
    if view_.rows.grid:
        text += PATCHES
    return (
        f"{text} A weight shows where a head attends, not what the head does with the value there."
    )


def _counts(view_: TraceView) -> str:
    if view_.rows is view_.columns:
        return view_.rows.count
    return f"rows: {view_.rows.count}; columns: {view_.columns.count}"
