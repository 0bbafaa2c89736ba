"""Side by side: two to six mechanisms on the same tokens, with one crosshair, their differences and their costs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import streamlit as st
import torch

import dashboard.page as lab
from core.attention import (
    AXES,
    AttentionConfig,
    ConfigError,
    entry,
    exact,
    heads_that_divide,
)
from core.attention.cost import ClosedFormCost, Measurement, closed_form_cost
from core.models.cards import CARDS, card
from core.pretrained import PretrainedError
from core.studies import compare as study
from dashboard.draw import compare as draw

Mechanisms = tuple[AttentionConfig, ...]

# The controls, in the session: where queries and keys come from, which mechanisms in which order, and whose difference.


CHANGE, UP, DOWN, TWICE, REMOVE = "Change", "Move before", "Move after", "Duplicate", "Remove"
MOVES: dict[str, study.Moved] = {UP: "before", DOWN: "after", TWICE: "twice", REMOVE: "removed"}
OF_PAGE = {"bind": None}  # the link has names of its own, of several values each
WIDTHS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)


class Controls(lab.Fields, page="compare"):
    now: study.Comparison  # what the page last showed
    names: Sequence[str]  # of its mechanisms

    setup = lab.SessionValue(study.default_controls())
    written = lab.SessionValue[study.Link]({})  # the link as this page wrote it
    editing = lab.SessionValue[int | None](None)  # the mechanism to change
    edits = lab.SessionValue(0)  # a new editor starts from its mechanism
    refusal = lab.SessionValue("")
    # what was compared before one's own mechanism came, and with it
    before_yours = lab.SessionValue[tuple[Mechanisms, Mechanisms]](((), ()))
    measure = lab.SessionValue(False)  # the state of the button, which goes with its page
    visited = lab.SessionValue(False)  # the session has seen the first measurements
    loaded = lab.SessionValue(False)  # the model
    pin = lab.CellField("pin")

    source = lab.Select(
        "Queries and keys from",
        {
            study.SEEDED: "A seeded layer",
            **{name: "MiniLM, layer {}, head {}".format(*name.split(".")) for name in study.MINILM},
        },
        also=OF_PAGE,
        help="A head of the model MiniLM, or a layer with random parameters.",
    )
    minuend = lab.Select[int](
        "Difference",
        lambda c: dict(enumerate(c.names)),
        lambda c: c.now.minus[0],
        also=OF_PAGE,
        help="The difference is this mechanism's map minus the other one's: green where it gives the key more weight, "
        "purple where it gives less.",
    )
    subtrahend = lab.Select[int](
        "minus",
        lambda c: dict(enumerate(c.names)),
        lambda c: c.now.minus[1],
        also=OF_PAGE,
        help="The mechanism whose map is subtracted.",
    )
    text = lab.Text(
        "Sentence",
        lines=True,
        also=OF_PAGE | {"height": 100, "max_chars": 20_000},  # as many as are read
        help="The text that every mechanism reads. It is split into tokens.",
    )
    seed = lab.Number(
        "Seed",
        0,
        0,
        study.LAST_SEED,
        also=OF_PAGE,
        help="Fixes the random numbers of all parameters that are not trained.",
    )
    d_model = lab.SelectSlider[int](
        "d_model",
        lambda c: sorted({*WIDTHS, c.now.d_model}),
        lambda c: c.now.d_model,
        also=OF_PAGE
        | lab.keep_heads(
            "compare:d_model",
            "compare:heads:{}".format,
            partial(heads_that_divide, max_heads=study.MAX_HEADS),
        ),
        help="How many numbers the vector of each token has.",
    )
    num_heads = lab.Select[int](
        "Heads",
        lambda c: heads_that_divide(c.d_model, study.MAX_HEADS),
        lambda c: heads_that_divide(c.d_model, c.now.num_heads)[-1],
        key=lambda c: f"heads:{c.d_model}",
        also=OF_PAGE,
        help="How many heads the layer has; the number divides d_model.",
    )
    head = lab.Select[int](
        "Head drawn",
        lambda c: range(c.num_heads),
        lambda c: min(c.now.head, c.num_heads - 1),
        key=lambda c: f"head:{c.num_heads}",
        also=OF_PAGE,
        help="The head whose maps are drawn.",
    )
    length = lab.Select(
        "Length T",
        study.LENGTHS,
        text="T = {}".format,
        also=lambda _: OF_PAGE | {"width": lab.room(110)},
        help="The number of tokens at which time, memory and FLOPs are given.",
    )

    add = lab.Menu(
        "Add a mechanism",
        study.addable(),
        take=lambda option: add(option),
        also=lambda c: {
            "disabled": len(c.names) >= study.MAX_MECHANISMS,
            "placeholder": f"At most {study.MAX_MECHANISMS} mechanisms"
            if len(c.names) >= study.MAX_MECHANISMS
            else "A preset, or one choice",
        },
        help="A published mechanism, or dot-product attention with one part changed.",
    )
    layers = lab.Menu(
        "Compare the layers of a model",
        {one.key: one.name for one in CARDS if one.pattern > 1 and not one.untrained},
        take=lambda model: take_layers(model),
        also={"placeholder": "A model with unlike layers"},
        help="Replace the list by the different attentions of a published model's layers, in small.",
    )

    @property
    def comparison(self) -> study.Comparison:
        return replace(
            self.now,
            minus=(self.minuend, self.subtrahend),
            source=self.source,
            text=self.text,
            seed=self.seed,
            d_model=self.d_model,
            num_heads=self.num_heads,
            head=self.head,
            length=self.length,
        )


def load_controls() -> list[str]:
    """Take the link's controls where the link is not what this page wrote; returns what it says wrong.

    So the Back button takes a choice back. Coming from another page, which empties the link, takes nothing back.
    """
    linked = link_query()
    known = linked == Controls.written.value or not (linked or Controls.measure.is_set)
    if Controls.setup.is_set and known:
        return []
    comparison, refused = study.from_query(linked)
    store_controls(comparison)
    return [lab.plain(sentence) for sentence in refused]


def link_query() -> study.Link:
    return {
        name: st.query_params.get_all(name) if name == "m" else st.query_params[name]
        for name in study.PARAMETERS
        if name in st.query_params
    }


def write_controls(comparison: study.Comparison) -> None:
    """Save the comparison in the session and in the link, which is written only where it changes."""
    query, linked = study.to_query(comparison), link_query()
    for name in linked.keys() - query.keys():
        del st.query_params[name]
    for name, value in query.items():
        if linked.get(name) != value:
            st.query_params[name] = value
    Controls.setup.value, Controls.written.value = comparison, query


def store_controls(comparison: study.Comparison) -> None:
    """Store the comparison and set every widget to it; for a callback, or before the widgets are drawn."""
    comparison = study.clamped(comparison)
    Controls.setup.value = comparison
    Controls.set(
        source=comparison.source,
        text=comparison.text,
        seed=comparison.seed,
        d_model=comparison.d_model,
        num_heads=comparison.num_heads,
        head=comparison.head,
        minuend=comparison.minus[0],
        subtrahend=comparison.minus[1],
        length=comparison.length,
    )


def tokens_panel(comparison: study.Comparison) -> None:
    Controls.draw("text", "seed", into=lab.HERE)
    if comparison.seeded:
        sizes = Controls.draw("d_model", "num_heads", "head", into=lab.HERE, now=comparison)
        lab.note_heads("compare:d_model", sizes.d_model, sizes.num_heads)


def mechanisms_panel(names: Sequence[str]) -> None:
    count, full = len(names), len(names) >= study.MAX_MECHANISMS
    for index, name in enumerate(names):
        possible = {
            CHANGE: True,
            UP: index > 0,
            DOWN: index < count - 1,
            TWICE: not full,
            REMOVE: count > study.MIN_MECHANISMS,
        }
        st.menu_button(
            lab.plain(name),
            [action for action, can in possible.items() if can],
            key=f"compare:line:{index}",
            width="stretch",
            on_click=lab.guarded(f"compare:line:{index}", act),
            args=(index,),
        )
    Controls.draw("layers", into=lab.HERE)


def act(index: int) -> None:
    """Change a mechanism, or its place."""
    action = lab.SessionValue[str | None](None, f"compare:line:{index}").value
    if action == CHANGE:
        Controls.editing.value, Controls.edits.value = index, Controls.edits.value + 1
    elif action is not None:
        store_controls(Controls.setup.value.moved(index, MOVES[action]))


def add(option: str) -> None:
    comparison = Controls.setup.value
    try:
        new = study.mechanism_of(option, comparison.sizes)
    except ConfigError as error:
        Controls.refusal.value = f"{study.addable()[option]} is not added. {error}"
        return
    lab.set_built("compare", {axis: getattr(new, axis) for axis in AXES})
    store_controls(replace(comparison, mechanisms=(*comparison.mechanisms, new)))


def take_layers(model: str) -> None:
    comparison = Controls.setup.value
    try:
        small = tuple(dict.fromkeys(card(model).small(*comparison.sizes)))
    except ConfigError as error:
        Controls.refusal.value = f"The layers of {card(model).name} are not compared. {error}"
        return
    store_controls(replace(comparison, mechanisms=small, minus=(1, 0)))


def adopt(built: lab.Built) -> None:
    """Compare what was built elsewhere with the first mechanism; of none, what was compared before."""
    comparison, choices = Controls.setup.value, lab.AxisChoices(built)
    before, changed = Controls.before_yours.pop()
    if comparison.mechanisms == changed:
        comparison = replace(comparison, mechanisms=before, minus=(1, 0))
    try:
        config = AttentionConfig(*comparison.sizes, **choices)
    except ConfigError as error:
        Controls.refusal.value = f"Your mechanism is not compared. {lab.plain(str(error))}"
        built = {}
    if built and not comparison.seeded and study.source_error(config):
        # it makes queries and keys of its own, which only the seeded layer leaves to it
        comparison = replace(comparison, source=study.SEEDED)
    first, *rest = old = comparison.mechanisms
    if built and config not in old:
        # four maps stand in one row
        new = (first, config, *rest)[: max(len(old), 4)]
        Controls.before_yours.value = old, new
        # The first query head of a seeded layer has the same keys as without sharing; the second has not
        head = 1 if draw.sharing(config, "") else comparison.head
        comparison = replace(comparison, mechanisms=new, minus=(1, 0), head=head)
    store_controls(comparison)


@st.dialog("Change a mechanism", width="large")
def _dialog(comparison: study.Comparison, index: int) -> None:
    start = comparison.mechanisms[index]
    st.markdown(f"It starts as **{lab.plain(draw.name_of(start))}**. Change any of the six axes.")
    try:
        start = comparison.sized(start)
    except ConfigError as error:
        st.warning(lab.plain(str(error)))
        start = AttentionConfig(*comparison.sizes)
    config = lab.mechanism(
        f"compare:edit:{Controls.edits.value}",
        start,
        axes=tuple(axis for axis in AXES if comparison.seeded or axis != "projection"),
    )

    def put(new: AttentionConfig) -> None:
        before = Controls.setup.value
        lab.set_built("compare", {axis: getattr(new, axis) for axis in AXES})
        mechanisms = (*before.mechanisms[:index], new, *before.mechanisms[index + 1 :])
        store_controls(replace(before, mechanisms=mechanisms))

    if st.button(
        "Compare this",
        type="primary",
        disabled=config is None,
        key="compare:take",
        on_click=put,
        args=(config,),
    ):
        st.rerun()


# The page as one fragment: title, controls, maps, difference, fact, table of costs.


@lab.fragment
def page() -> None:
    head = st.container()  # over what is said of a mechanism that comes from another page
    errors = load_controls()
    lab.take_built("compare", adopt, linked=bool(link_query()))
    names = draw.names_of(Controls.setup.value.mechanisms)
    # with the values of all widgets, also of those in a closed popover and further down the page
    comparison = Controls.read(names=names, now=Controls.setup.value).comparison
    write_controls(comparison)
    errors += filter(None, [Controls.refusal.pop()])
    with head:
        shared = "tokens and shared parameters." if comparison.seeded else "queries and keys."
        lab.title("Side by side", f"How do mechanisms differ on the same {shared[:-1]}?")
    for sentence in errors:
        st.warning(sentence)
    with st.grid(3, min_column_width=200, vertical_alignment="bottom"):
        Controls.draw("source", "add", into=lab.HERE, now=comparison, names=names)
    maps, measure = compute_maps(comparison), None
    if maps is None:
        draw_details(comparison, names)
    else:
        measure = draw_result(comparison, names, maps)
    index = Controls.editing.pop()
    if index is not None and index < len(comparison.mechanisms):
        _dialog(comparison, index)
    if measure is not None:
        measure()  # a second or two, for which nothing else has to wait


def compute_maps(comparison: study.Comparison) -> study.Maps | None:
    shown = replace(comparison, minus=(1, 0), length=study.LENGTHS[0])  # on which no map depends
    try:
        if comparison.seeded:
            maps = lab.shared(study.compare, shown)
        else:
            new = not Controls.loaded.value
            with (
                st.spinner("Loading the model, 91 MB, first time only") if new else nullcontext(),
                st.skeleton(height=380) if new else nullcontext(),
            ):
                maps = lab.study_of(study.compare_pretrained, lab.EMBEDDED, shown)
            Controls.loaded.value = True
    except PretrainedError as error:
        st.info(str(error), icon=":material/edit:")
        return None
    if not maps[0].names:
        st.info(
            "There is no token here. Open Tokens and type a word, or a sentence.",
            icon=":material/edit:",
        )
        return None
    return maps


def draw_result(
    comparison: study.Comparison, names: Sequence[str], maps: study.Maps
) -> Callable[[], None] | None:
    tokens, results = maps
    tiles = draw.tiles(comparison, names, results)
    errors = {name: each.error for name, each in zip(names, results, strict=True) if each.error}
    room_of_maps, rest = (
        st.columns([len(tiles), 1], gap="medium")
        if errors and tiles
        else (st.container(), st.container())
    )
    with rest:
        for name, error in errors.items():
            st.error(f"**{lab.plain(name)}** has no map here. {lab.plain(error)}")
        if errors and not comparison.seeded:  # MiniLM's queries and keys are the reason
            st.button(
                "Use the seeded layer",
                key="compare:seeded",
                on_click=lambda: store_controls(replace(Controls.setup.value, source=study.SEEDED)),
                help="A layer with random parameters, which every mechanism can change.",
            )
    if not tiles:
        draw_details(comparison, names)
        return None
    # The maps under one crosshair; its pinned cell, else the default one
    drawn, size = list(tiles.values()), len(tokens.names)
    row, column = cell = study.default_cell(drawn[0].weights, tokens.special)
    with room_of_maps:
        pinned = lab.linked_maps(
            Controls.pin,
            "maps",
            drawn,
            tokens.names,
            query=row,
            column=column,
            link="compare",
            fact=f"{len(tiles)} maps of {size} tokens; the picked query is {tokens.names[row]}",
        )
    cell = pinned or cell
    difference(comparison, names, maps, cell, tiles)
    costs = [
        None if config is None else lab.cached(closed_form_cost, config, comparison.length)
        for config in study.sized_configs(comparison)
    ]
    lab.as_python(
        maps=maps,
        costs=[cost for cost in costs if cost],
        also=draw.script_cells(comparison, maps[1], tiles),
    )
    measure = cost_table(comparison, names, results, costs)
    lab.caption(
        draw.caption_text(
            comparison, tokens, [results[at] for at in tiles], [names[at] for at in tiles]
        )
    )
    for index in tiles:
        linear = comparison.mechanisms[index].kernel.key == "linear"
        if linear and (text := draw.flat_text(names[index], results[index])):
            lab.caption(text)
    a, b = comparison.minus
    if a != b and a in tiles and b in tiles:
        lab.paragraph(draw.pair_text(comparison, names, results))
    lab.details(
        "Equations with their numbers, papers and the code that just ran",
        partial(sources, comparison, names, maps, cell),
        "compare:sources",
    )
    return measure


def draw_details(comparison: study.Comparison, names: Sequence[str]) -> None:
    """The mechanisms and what they read: below the maps, which stay in sight while these change."""
    with lab.settings_panel("Change or remove a mechanism", "compare:change"):
        mechanisms_panel(names)
    lab.details("Tokens", partial(tokens_panel, comparison), "compare:tokens")


def difference(
    comparison: study.Comparison,
    names: Sequence[str],
    maps: study.Maps,
    cell: study.Pair,
    tiles: Mapping[int, lab.Tile],
) -> None:
    (tokens, results), (a, b) = maps, comparison.minus
    both = a != b and a in tiles and b in tiles
    left, right = st.columns([0.58, 0.42], gap="medium")  # a phone shows the sentence first
    with right:
        if both:
            lab.difference_map(
                tiles[a],
                tiles[b],
                tokens.names,
                key="compare:apart",
                query=cell[0],
                column=cell[1],
                pin=None,
                link="compare",
                fact=draw.difference_text((names[a], names[b]), results[a], results[b], cell),
            )
        else:
            st.caption(
                "Choose two different mechanisms to see the difference of their maps."
                if a == b
                else "A mechanism without a map has no difference."
            )
        Controls.draw(
            "minuend",
            "subtrahend",
            into=st.grid(2, min_column_width=120, vertical_alignment="bottom"),
            names=names,
            now=comparison,
        )
    with left:
        if both:
            lab.fact(draw.fact_text(comparison, names, results, tokens, cell))
        draw_details(comparison, names)


def cost_table(
    comparison: study.Comparison,
    names: Sequence[str],
    results: Sequence[study.MapResult],
    costs: Sequence[ClosedFormCost | None],
) -> Callable[[], None] | None:
    """Draw the table; what no session has measured yet waits for a press, except on the first visit.

    Returns what measures and fills the table, for the page to call when all else is drawn; None with nothing to do.
    """
    done: study.Measurements = lab.measurements("compare")
    configs, length = study.sized_configs(comparison), comparison.length
    possible = [config for config in configs if config is not None]
    first = next((cost.parameters for cost in costs if cost), 0)
    table_slot, progress_slot = st.empty(), st.empty()

    def measured() -> list[Measurement | None]:
        return [done.get((config, length)) if config else None for config in configs]

    def fill() -> None:
        rows = zip(names, results, costs, range(len(names)), measured(), strict=True)
        with table_slot.container():
            lab.table(
                draw.HEAD,
                [draw.table_row(*each, first) for each in rows],
                caption="Entropy, distance, time, memory, FLOPs and parameters of each mechanism",
            )

    def measure() -> None:
        bar = progress_slot.progress(0.0, "Measuring time and memory on this machine")
        for fraction in study.measure_costs(possible, length, done):
            bar.progress(fraction, "Measuring time and memory on this machine")
        progress_slot.empty()
        Controls.visited.value = True
        fill()

    fill()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        Controls.draw("length", into=lab.HERE)
        pressed = st.button(
            "Measure",
            icon=":material/speed:",
            key=Controls.measure.key,
            help="Runs every mechanism on this machine, which takes a second or two.",
        )
    notes = [
        f"{lab.plain(name)}: {lab.plain(each.skipped)}"
        for name, each in zip(names, measured(), strict=True)
        if each and each.skipped
    ]
    if any(cost.dense for cost in costs if cost):
        notes.insert(
            0, "¹ This kernel computes all scores and then masks some, so it saves no time."
        )
    waiting = any((config, length) not in done for config in possible)
    new = waiting and not Controls.visited.value
    missing = waiting and not new and not pressed
    lab.caption(" ".join([draw.conditions(comparison, torch.get_num_threads(), missing), *notes]))
    if not new:
        Controls.visited.value = True
    return measure if pressed or new else None


def sources(
    comparison: study.Comparison, names: Sequence[str], maps: study.Maps, cell: study.Pair
) -> None:
    """Each mechanism's equation with its numbers and its paper, and the code that ran."""
    tokens, results = maps
    query, key = (lab.latex_name(tokens.names[index], index) for index in cell)
    for config, label, each in zip(comparison.mechanisms, names, results, strict=True):
        st.markdown(f"### {lab.plain(label)}")
        if not each.error:
            st.latex(draw.weight_latex(each, query, key, cell), width="content")
        axes = draw.changed_axes(config) or ["score", "normalizer"]
        choices = [(axis, getattr(config, axis)) for axis in axes]
        parts = [(axis, part) for axis, one in choices for part in one.parts or (one,)]
        lab.entries_panel([entry(axis, part.key) for axis, part in parts])
    st.markdown("### The code that just ran")
    lab.source_panel(exact)
