"""Scores: every way in which a query can meet a key, on the same queries and keys."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import streamlit as st
import torch

import dashboard.page as lab
from core.attention import Choice, entry, properties as probe
from core.studies import scores as study
from core.tokens import SENTENCE, Cut, labels, tokenize
from dashboard.draw import scores as draw

SEED, ROW = 126, 28  # pixels of a row
STRETCHES = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
Inputs = tuple[tuple[str, ...], int, int, float]  # of every score: tokens, dims, seed and stretch


class Controls(lab.Fields, page="scores"):
    choices: tuple[Choice, ...]  # those that can be drawn

    tokens = lab.Text("Sentence", SENTENCE, span=2, help="Each word becomes one token.")
    dims = lab.SelectSlider(
        "Head size D",
        [2, 4, 8, 16, 32, 64, 128],
        16,
        help="How many numbers a query and a key have",
    )
    stretch = lab.SelectSlider(
        "Query length ×",
        STRETCHES,
        1.0,
        help="Each query is multiplied by this number before it is scored.",
    )
    show = lab.Select(
        "Cells show",
        {"weights": "Weights", "scores": "Scores", "own": "Own scales"},
        help="Weights after the softmax, or scores before it: all maps on one scale, or each on its own",
    )
    params = lab.ParamsField("Parameters", axis="score")
    equation = lab.Select[str](
        "Equation of",
        lambda c: {choice.key: entry("score", choice.key).name for choice in c.choices},
        draw.BASELINE,
        also=lambda _: {"width": lab.room(200)},
        help="The score whose equation is written here, with the numbers of the pinned cell",
    )
    cell = lab.CellField()
    again = lab.SessionValue(0)  # how often this machine was asked for its times

    @property
    def cut(self) -> Cut:
        return tokenize(self.tokens, 64)

    def inputs(self, stretch: float) -> Inputs:
        return self.cut.tokens or ("a",), self.dims, SEED, stretch


def page() -> None:
    lab.title(
        "Scores",
        "Does it matter how a query is compared with the keys? A row is one rule.",
    )
    lab.take_built("scores", adopt, axes=("score",))
    explore()


def adopt(built: lab.Built) -> None:
    choice = built.get("score", Choice(draw.BASELINE))
    Controls.set(equation=choice.key, params=(choice,))


@lab.fragment
def explore() -> None:
    controls, picture = Controls.draw("tokens", "dims", "stretch"), st.container()
    linked = Controls.show.key_of(controls) in st.query_params
    whole = lab.settings_panel("All queries: the whole map of each rule", opened=linked)
    # under the picture, and before it in this run, as they have what it is drawn from
    controls = controls.draw_more("show", into=whole).draw_more(
        "params", into=lab.settings_panel("Settings that only some scores have")
    )
    # Plug-ins that fail are left out; a note says which, and why.
    inputs = controls.inputs(controls.stretch)
    why = {choice: lab.cached(study.failure, choice, *inputs) for choice in controls.params}
    controls.choices = tuple(choice for choice in why if not why[choice])
    maps, query = list[study.ScoreMaps](), 0
    if not controls.cut.tokens:
        st.warning(
            "There is no token here. Type a word, or a sentence: each word becomes one token."
        )
    else:
        with picture:
            maps, query = show(controls, whole, [*controls.cut.notes, *filter(None, why.values())])
    st.markdown("## What each score costs and what it can express")
    saved = lab.cached(study.load_measurement)
    plain_choices = [Choice(choice.key) for choice in controls.choices]
    properties = [lab.cached(probe.score_properties, one, SEED) for one in plain_choices]
    costs(controls, plain_choices, properties, saved)
    if maps:
        compute_stretches(controls)
        row = lab.computed(study.query_rows, maps, query)
        lab.as_python(maps=maps, row=row, properties=properties, saved=saved)
    sources = partial(
        lab.equation_sources,
        Controls,
        "score",
        controls.choices,
        partial(probe.randomized_score, seed=SEED),
        partial(draw.snippet, dims=controls.dims),
    )
    lab.details("Equations, papers and the code that just ran", sources, "scores:sources")


def maps_at(controls: Controls, stretch: float) -> list[study.ScoreMaps]:
    return [
        lab.shared(study.score_maps, choice, *controls.inputs(stretch))
        for choice in controls.choices
    ]


def compute_stretches(controls: Controls) -> None:
    """Compute the maps at every length of the queries, but not with a plug-in, which may fail at one."""
    if not any(entry("score", choice.key).source for choice in controls.choices):
        for stretch in STRETCHES:
            maps_at(controls, stretch)


def frames(
    controls: Controls, tiles: Callable[[Sequence[study.ScoreMaps]], list[lab.Tile]]
) -> lab.Frames | None:
    """The `tiles` of weights at every length of the queries; None until all are computed."""
    if not all(
        lab.remembered(study.score_maps, choice, *controls.inputs(stretch))
        for stretch in STRETCHES
        for choice in controls.choices
    ):
        return None
    moved = [tiles(maps_at(controls, stretch)) for stretch in STRETCHES]
    return lab.Frames(Controls.stretch.key_of(controls), STRETCHES.index(controls.stretch), moved)


def show(
    controls: Controls, whole: lab.Place, notes: Sequence[str]
) -> tuple[list[study.ScoreMaps], int]:
    """Draw one query by every rule, the `whole` maps, and one score's equation; returns the maps and the query."""
    if not lab.reruns_alone():
        compute_stretches(controls)
    maps, names = maps_at(controls, controls.stretch), labels(controls.cut.tokens)
    with whole:
        cell = draw_maps(controls, maps, names)
    lab.fact(draw.fact_text(maps, names, cell[0], controls.stretch))
    rows = partial(draw.query_tile, query=cell[0], name=names[cell[0]])
    lab.multiples(
        rows(maps),
        [entry("score", each.key).name for each in maps],
        names,
        key="scores:row",
        query=next((at for at, each in enumerate(maps) if each.key == draw.BASELINE), 0),
        column=cell[1],
        reads="",
        frames=frames(controls, rows),
        height=ROW * len(maps),
        legend=False,
        fact=draw.fact_text(maps, names, cell[0], controls.stretch).replace("*", ""),
    )
    lab.caption(
        " ".join(
            [
                f"Words and weights are random (seed {SEED}): the rows show how the rules differ, not what a trained "
                "model takes from.",
                *draw.equal_texts(maps),
                *notes,
            ]
        ),
    )
    linked = Controls.equation.key_of(controls) in st.query_params
    with lab.settings_panel("The equation of one rule, with its numbers", opened=linked):
        lab.draw_equation(
            Controls,
            "score",
            dict(zip(controls.choices, maps, strict=True)),
            lambda each: draw.score_latex(each, names, *cell, lab.Ink.of(lab.theme()).pick),
        )
        lab.caption(
            f"Of the pressed cell. One head of D = {controls.dims}; {len(names)} tokens, no mask, softmax. A weight "
            "below 10⁻¹² is written as 0."
        )
    return maps, cell[0]


def map_tiles(maps: Sequence[study.ScoreMaps], part: slice) -> list[lab.Tile]:
    return [draw.tile(each, at, "weights", 1.0) for at, each in enumerate(maps)][part]


def draw_maps(
    controls: Controls, maps: Sequence[study.ScoreMaps], names: Sequence[str]
) -> tuple[int, int]:
    """Draw a map for each score under one crosshair; returns the pinned cell, or else a telling one."""
    query = study.most_different_query(maps)
    column, pin = study.favourite(maps, query), Controls.cell.pinned((len(names), len(names)))
    largest = max(float(np.abs(each.scores).max()) for each in maps)
    noun = "weight" if controls.show == "weights" else "score"
    tiles = [draw.tile(each, at, controls.show, largest) for at, each in enumerate(maps)]
    lab.caption("A press on a cell sets the query of the picture above.")
    for first in range(0, len(maps), lab.MAX_TILES):
        part = slice(first, first + lab.MAX_TILES)
        moved = partial(map_tiles, part=part)
        pin = lab.multiples(
            tiles[part],
            names,
            key=f"scores:maps{first}",
            query=query,
            frames=frames(controls, moved) if noun == "weight" else None,
            column=column,
            height=160,
            signed=noun == "score",
            noun=noun,
            link="scores:maps",
            pin=pin,
            fact=draw.fact_text(maps, names, query, controls.stretch).replace("*", ""),
        )
    return Controls.cell.pin(pin) or (query, column)


def costs(
    controls: Controls,
    choices: Sequence[Choice],
    properties: Sequence[probe.ScoreProperties],
    saved: study.Saved[dict[str, study.Timing]],
) -> None:
    """Draw what each score learns, costs and can express: times as saved, or of this machine on request."""
    times: Sequence[study.Timing | None] = [saved.measured.get(one.key) for one in choices]
    keys = [choice.key for choice in choices]
    lab.fact(draw.cost_text(dict(zip(keys, properties, strict=True)), saved))
    repetition = Controls.again.value
    where = f"saved on {saved.date}, {saved.machine}"
    if repetition:
        with st.spinner("Measuring each score, about a second", show_time=False):
            times = lab.cached(study.timings, tuple(choices), repetition)
        where = f"measured on this machine, {lab.plural(torch.get_num_threads(), 'thread')}"
    maps = [
        lab.shared(study.score_maps, choice, ("a",), controls.dims, SEED, 1.0) for choice in choices
    ]
    lab.table(
        draw.HEAD,
        draw.rows(maps, properties, times),
        caption="Cost and properties of each score",
        left=2,
    )
    size = study.TIMED_WIDTH // study.TIMED_HEADS
    lab.caption(
        f"Parameters: learned numbers of the score at head size D = {controls.dims}. Time: of a forward and a backward "
        f"pass, {study.TIMED_HEADS} heads of size {size}, {study.TIMED_TOKENS} tokens, processor time of the "
        f"fastest round; {where}. × dot: the time divided by that of scaled dot product. Memory: the most in "
        "use at once. The last four columns are computed from each "
        f"score with random parameters, on {probe.PROBE_TOKENS} random queries and keys of D = "
        f"{probe.PROBE_DIMS}: the rank of the matrix of scores; whether s(a, b) = s(b, a); the factor by which a "
        "score grows when the query is doubled; the mean change of a score, in standard deviations, when queries "
        "and keys are rotated by the same rotation.",
    )

    def measure() -> None:
        Controls.again.value = repetition + 1

    st.button(
        "Measure on this machine",
        key="scores:measure",
        icon=":material/timer:",
        help="Replaces the saved times in the table by times of this machine; the sentence above it keeps the "
        "saved ones.",
        on_click=measure,
    )
