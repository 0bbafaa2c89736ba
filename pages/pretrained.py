"""Every head of a pretrained model on what the reader gives it: the grid, one head, and its measures."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Literal, get_args

import streamlit as st

import dashboard.page as lab
from core.interpret import map_transform, trace as analysis
from core.interpret.activations import PARTS, Part, activation_bytes, activations_file
from core.interpret.evidence import telling_cell
from core.pretrained import Line, Reading, read
from dashboard.draw import pretrained as draw

SHOWS = {"both": "Matrix and lines", "matrix": "Matrix", "lines": "Lines"}
TOKENS = ("words", "special", "sinks", "sentences")  # the options of `view_of`
UNIT_TO = 64  # tokens: in longer texts hardly a weight comes near 1, and a map from 0 to 1 is blank


class Controls(lab.JoinedQueries, page="pretrained"):
    reading: Reading
    kind = lab.Segmented[analysis.Kind](
        "Attention",
        lambda c: {
            kind: lab.KINDS[kind]
            for kind in get_args(analysis.Kind)
            if kind in c.reading.trace.kinds
        },
        lambda c: "cross" if "cross" in c.reading.trace.kinds else c.reading.trace.kinds[0],
        help=lab.KIND_HELP,
        also={"label_visibility": "collapsed"},
    ).when(lambda c: len(c.reading.trace.kinds) > 1)
    show = lab.Segmented[Literal["both", "matrix", "lines"]](
        "Show",
        lambda c: (
            SHOWS | {"both": "Matrix and picture"} if any(line.grid for line in c.lines) else SHOWS
        ),
        help="How the picked head is drawn.",
        also={"label_visibility": "collapsed"},
    )
    words = lab.Toggle(
        "Merge pieces into words",
        help="The weights of a word's pieces are summed over keys and averaged over queries. A word is what stands "
        "between spaces, without the punctuation at its edges; a character where a script has no spaces.",
    ).when(
        lambda c: any(a is not None and a == b for line in c.lines for a, b in pairwise(line.word))
    )
    special = lab.Toggle(
        "Hide special tokens",
        # where something is left without them
        help="Leaves out tokens such as [CLS]. Each row is then divided by what is left of it.",
    ).when(
        lambda c: (
            any(any(line.special) for line in c.lines)
            and not any(all(line.special) for line in c.lines)
        )
    )
    sinks = lab.Toggle(
        "Hide sinks",
        help="A sink is a key that gets more than 0.3 of the weight of every query that may attend to "
        "it, averaged over all heads. Each row is then divided by what is left of it.",
    )
    sentences = lab.Select(
        "Sentences",
        draw.SENTENCES,
        radio=True,
        help="Which sentence attends to which: in A → B the queries are in A and the keys in B.",
        also={"horizontal": True},
    ).when(lambda c: all(any(line.segment) for line in c.lines))
    order = lab.Select[map_transform.Order](
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
    scale = lab.Select[Literal["auto", "unit", "largest", "p99.5"]](
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
    pool = lab.Select[Literal["mean", "max"]](
        "Several cells in one pixel",
        {"mean": "Mean", "max": "Largest"},
        radio=True,
        # else a pixel pools no cells
        help="A map of this length has more cells than pixels.",
        also={"horizontal": True},
    ).when(lambda c: max(map(len, c.lines)) > 256)
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
    head = lab.HeadField(None)
    parts = lab.MultiSelect[Part](
        "Activations",
        draw.PARTS,
        PARTS,
        help="The states between the layers, and what each head computes with. resid: the residual stream after a layer; "
        "out: what the output projection gets of each head.",
    )
    layers = lab.MultiSelect[int](
        "Of these layers",
        lambda c: {item.number: f"L{item.number}" for item in c.reading.trace.maps},
        help="None picked: all layers.",
        also={"placeholder": "all"},
    )
    heads = lab.MultiSelect[int](
        "Of these heads",
        lambda c: {
            at: f"H{at}" for at in range(min(len(one.weights) for one in c.reading.trace.maps))
        },
        help="None picked: all heads. A head comes with the keys and values that it shares.",
        also={"placeholder": "all"},
    )
    # of the heads, and what was asked for them
    roles = lab.SessionValue[tuple[object, lab.HeadRoles | None]]((None, None))

    @property
    def lines(self) -> tuple[Line, Line]:
        return self.reading.lines(self.kind)

    @property
    def options(self) -> dict[str, bool | str]:
        """Those of `view_of` that change the maps."""
        return {name: self[name] for name in TOKENS if self[name] not in (False, "all")}

    @property
    def colours(self) -> Literal["unit", "largest", "p99.5"]:
        """The weights that the colours cover, by the scale of `attention_view`."""
        if self.scale != "auto":
            return self.scale
        return "unit" if max(map(len, self.lines)) <= UNIT_TO else "p99.5"


ACTIVATIONS, FILE = ("parts", "layers", "heads"), "pretrained:activations"
GRID, SMALLEST, LARGEST = 400, 34, 68  # pixels: the grid's width, and of a thumbnail
SIMILAR, SIMILAR_WIDTH = 5, 104  # heads that are most like one, and pixels of each


def page() -> None:
    lab.title(
        "Pretrained models",
        "See from which words each head of a trained model takes. Pick a head, then a word.",
    )
    chosen = lab.choose_model()
    measure = None if chosen is None else explore(chosen)
    if measure is not None:
        measure()


def draw_controls(reading: Reading) -> Controls:
    with st.container(horizontal=True, vertical_alignment="center"):
        controls = Controls.draw("kind", "show", into=lab.HERE, reading=reading)
        with st.popover(
            "Tokens", icon=":material/segment:", help="Which tokens are drawn, and in which order"
        ):
            controls = controls.draw_more(*TOKENS, "order", into=lab.HERE)
        with st.popover("Colour", icon=":material/palette:"):
            return controls.draw_more("scale", "pool", "threshold", into=lab.HERE)


@lab.fragment
def explore(chosen: lab.ModelChoice) -> Callable[[], None] | None:
    """Draw the controls and all that they change, which reruns alone; returns what measures the roles, if unknown."""
    controls = draw_controls(chosen.reading)
    request = chosen.ref, chosen.inputs, controls.kind
    # Measuring them would delay the figures; the session has them where the cache has no room
    of, roles = Controls.roles.value
    if of != request:
        roles = lab.roles_of(*request) if lab.roles_are_cached(*request) else None
    view, skeleton = figures(chosen, controls, roles)
    lab.fact(draw.all_heads_fact(view))
    lab.caption(draw.conditions(controls.reading, view, controls.options))
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
    if chosen.pretrained is not None:
        linked = any(f"pretrained:{name}" in st.query_params for name in ACTIVATIONS)
        lab.details("Activations as a file", partial(activations, chosen), FILE, opened=linked)
    if skeleton is None:
        return None

    def measure() -> None:
        with skeleton, st.spinner("Measuring the roles of the heads, only the first time"):
            Controls.roles.value = request, lab.roles_of(*request)
            st.rerun()

    if lab.reruns_alone():  # nothing else is left to draw
        measure()
    return measure


def activations(chosen: lab.ModelChoice) -> None:
    """Draw what is written of which layers and heads, how large the file is, and the button that makes it."""
    controls = Controls.draw(*ACTIVATIONS, into=lab.HERE, reading=chosen.reading)
    arguments = controls.parts, controls.layers or None, controls.heads or None
    length = len(chosen.reading.source) + len(chosen.reading.target or ())
    revision = chosen.ref.revision if chosen.ref.source == "hub" else ""
    with lab.input_errors():
        size = activation_bytes(chosen.model, length, *arguments)
        st.download_button(
            f"safetensors, about {lab.byte_size(size)}",
            partial(activations_file, chosen.model, chosen.inputs, *arguments, revision),
            f"{chosen.model.name}.safetensors",
            icon=":material/download:",
            on_click="ignore",
        )
        lab.caption(draw.ACTIVATIONS)
        st.code(
            draw.activations_code(
                chosen.model.name,
                controls.parts,
                layers=controls.layers,
                heads=controls.heads,
                revision=revision,
            ),
            language="python",
        )


def view_of(chosen: lab.ModelChoice, controls: Controls) -> map_transform.TraceView:
    """The maps as the controls transform them; shared, since they are as large as the maps."""
    reading, kind = controls.reading, controls.kind
    if reading.trace.kinds == (kind,) and not reading.sinks and not controls.options:
        # the reading's own trace: the same object each time, as caches hash it
        return lab.computed(map_transform.view_of, reading, kind)
    options = [controls[name] for name in TOKENS]
    made = lab.Call(read, (chosen.ref, chosen.inputs))
    return lab.study_of(map_transform.view_of, made, kind, *options)


def figures(
    chosen: lab.ModelChoice, controls: Controls, roles: lab.HeadRoles | None
) -> tuple[map_transform.TraceView, st.delta_generator.DeltaGenerator | None]:
    """Draw the grid, one head and its facts; returns the maps, and a skeleton where the roles are not measured."""
    # The link's head and pins belong to one model and one kind of map
    now = (chosen.ref, controls.kind)
    if Controls.head.value not in (None, now):
        lab.write_pair("pin", None)
    view = view_of(chosen, controls)
    trace = view.trace
    heads: dict[lab.Pair, tuple[analysis.Kind, lab.Pair]] = {  # layers may differ in their number
        (layer, head): (controls.kind, (layer, head))
        for layer, item in enumerate(trace.maps)
        for head in range(len(item.weights))
    }
    usual, _ = telling_cell(controls.reading, controls.kind).at
    first = Controls.head.shown(now, chosen.ref, heads, usual)
    pins, bad_pin = lab.read_pairs("pin", (len(view.rows), len(view.columns)))
    if bad_pin:
        st.warning(bad_pin)
    left, right = st.columns([1.05, 1], gap="large")
    with left:
        layers, count = trace.shape
        if roles:  # a key that a phone shows before the grid
            measured = lab.inputs_of(chosen.ref, chosen.inputs, controls.kind).name
            lab.role_line(roles, len(heads), measured)
        skeleton = st.skeleton(height=56) if roles is None else None  # the line of roles
        several = len(controls.reading.trace.kinds) > 1
        of = f" of {lab.KINDS[controls.kind].lower()} attention" if several else ""
        picked = lab.attention_view(
            trace,
            key="pretrained:grid",
            layout="grid",
            layer=first[0],
            head=first[1],
            thumb=max(SMALLEST, min(LARGEST, GRID // count)),
            roles=roles or {},
            link="pretrained",
            fact=f"{layers} layers of {count} heads{of}"
            if len(heads) == layers * count
            else f"{layers} layers, {len(heads)} heads{of}",
        )
    # One head in the chosen order, by the last pin
    pin = next(reversed(map_transform.shown_pins(view, pins)), None)
    ranked = lab.computed(
        map_transform.in_order, view, picked.layer, picked.head, controls.order, pin
    )

    def telling(head: lab.Pair) -> lab.Pair:
        """The head's most telling row, as on the pages of one weight, or the first where that is hidden, and its key."""
        query = telling_cell(controls.reading, controls.kind, head).query
        rows = enumerate(ranked.transform.rows)
        row = next((index for index, group in rows if query in group), 0)
        return row, int(ranked.trace.maps[head[0]].shares[head[1], row].argmax())

    row, _ = telling((picked.layer, picked.head))
    item = ranked.trace.map(picked.layer)
    one = lab.attention_view(
        ranked.trace,
        key="pretrained:head",
        layer=picked.layer,
        head=picked.head,
        query=row,
        link="pretrained",
        pins=map_transform.shown_pins(ranked, pins),
        show=controls.show,
        scale=controls.colours,
        pool=controls.pool,
        show_choice=("pretrained:show", tuple(SHOWS)),
        threshold=controls.threshold,
        patches=draw.patches_of(ranked, chosen.inputs),
        fact=f"Head {ranked.trace.name((picked.layer, picked.head))}; the picked row is {item.queries[row]}",
    )
    if roles is not None:  # else the page runs again with the same link
        save_picks(chosen.ref, ranked, one, first, pins, controls)
    head, item = (one.layer, one.head), ranked.trace.map(one.layer)
    row, key = one.pin or telling(head)
    others = lab.computed(analysis.similar_heads, trace, head)
    as_python(view, ranked, head, row, others)
    with right:
        lab.fact(draw.head_fact(ranked.trace, *head, row, key))
        if sentence := draw.pins_fact(item, one.head, one.pins):
            st.caption(sentence)
        lab.weight_link(chosen, controls.kind, head, ranked.transform.source_cell((row, key)))
        whole = controls.reading.trace.of(controls.kind).map(head[0])  # hidden keys included
        if whole.state:
            st.caption(draw.layer_text(whole))
    lab.caption(draw.rivals_text(ranked.trace, *head, row, key))
    if others:
        lab.caption(draw.similar_text(trace, head, others))
        similar(chosen.ref, controls.kind, trace, others[:SIMILAR])
    whole = trace.map(head[0])
    with lab.settings_panel(
        "Several words together", opened="pretrained:joined" in st.query_params
    ):
        names = [trace.name((head[0], at)) for at in range(len(whole.weights))]
        code = f"trace.map({head[0]}).weights"
        lab.joined_map(controls, whole, names, head[1], code)
    return view, skeleton


def similar(
    ref: lab.ModelRef, kind: analysis.Kind, trace: analysis.AttentionTrace, others: analysis.Similar
) -> None:
    """Draw the heads whose maps are most like the picked one's; a press opens one."""

    def open_head(other: lab.Pair) -> None:
        lab.choose_head(ref, kind, other)
        lab.write_pair("head", other)

    with st.container(horizontal=True):
        for other, share in others:
            with st.container(width=SIMILAR_WIDTH, gap="xsmall"):
                image = draw.thumbnail(trace.head(*other), lab.theme())
                name = trace.name(other)
                st.image(image, width=SIMILAR_WIDTH, alt=f"Map of {name}")
                st.button(
                    f"{name}: {lab.number(share)}",
                    key=f"pretrained:similar:{name}",
                    on_click=open_head,
                    args=(other,),
                    width="stretch",
                )


def as_python(
    view: map_transform.TraceView,
    ranked: map_transform.TraceView,
    head: lab.Pair,
    row: int,
    others: analysis.Similar,
) -> None:
    layer, index = head
    results, trace = dict[str, Any](trace=view.trace), "trace"
    if ranked is not view:
        results["ordered"], trace = ranked.trace, "ordered"
    one = f"show({trace}, layer={layer}, head={index}, query={row})"
    size = "abs(row)" if ranked.trace.map(layer).state else "row"
    story = f"""
name, item = {trace}.name(({layer}, {index})), {trace}.map({layer})
row = item.weights[{index}, {row}]
for key in (-{size}).argsort()[:3]:
    print(f"{{name}}: {{item.queries[{row}]}} -> {{item.keys[key]}} {{row[key]:.3f}}")
"""
    most = lab.computed(analysis.strongest, view.trace, analysis.previous_token)
    lab.as_python(
        **results,
        most=most,
        draw={
            "pretrained:grid": f"from dashboard.show import show\n\nshow(trace, layer={layer}, head={index})"
        },
        also=[
            lab.Cell(
                "One head, and the largest weights of one query.", story, one, "pretrained:head"
            ),
            draw.similar_cell(head, others),
        ],
    )


def save_picks(
    ref: lab.ModelRef,
    ranked: map_transform.TraceView,
    view: lab.ViewState,
    first: map_transform.Pair,
    pins: list[map_transform.Pair],
    controls: Controls,
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
