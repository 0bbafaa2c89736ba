"""Scores: every way in which a query can meet a key, on the same queries and keys."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st
import torch

import dashboard.page as lab
from core.attention import AXES, Choice, entry
from core.attention.properties import (
    PROBE_DIMS,
    PROBE_TOKENS,
    ScoreProperties,
    randomized_score,
    score_properties,
)
from core.studies import scores as study
from core.tokens import SENTENCE, labels, tokenize

# The page's controls: the sentence, the size of a head, the queries' length, and what the cells show.


SEED = 126
STRETCHES = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
BASELINE = "scaled_dot"


key = "scores:{}".format  # a widget's key, which is also its name in the link


class Controls(lab.Fields, page="scores"):
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
    equation = lab.Select[str](
        "Equation of",
        lambda values: {name: entry("score", name).name for name in values.choices},
        BASELINE,
        also=lambda _: {"width": lab.room(200)},
        help="The score whose equation is written here, with the numbers of the pinned cell",
    )


# What the page computes as Python.


def script(controls: lab.Values, maps: Sequence[study.ScoreMaps]) -> lab.Script:
    shown = "weights" if controls.show == "weights" else "scores"
    properties = [
        lab.cached(score_properties, type(choice)(choice.key), SEED) for choice in controls.choices
    ]
    return lab.Script(
        (
            lab.Cell(
                "Every score on the same queries and keys.",
                f"""
from core.attention import Choice
from core.studies.scores import score_maps

tokens = {lab.source_of(controls.tokens)}
choices = {lab.source_of(list(controls.choices))}
maps = {{choice.key: score_maps(choice, tokens, {controls.dims}, {SEED}, {controls.stretch}) for choice in choices}}
""",
                f"""
from dashboard.show import show_maps
from core.tokens import labels

show_maps({{key: each.{shown} for key, each in maps.items()}}, labels(tokens), labels(tokens))
""",
                "scores:maps0",
            ),
            lab.Cell(
                "What each score can express, and its saved time and memory (`make scores` measures them again).",
                f"""
import json

from core.attention.properties import score_properties

properties = [score_properties(Choice(choice.key), {SEED}) for choice in choices]
ranks, doubling = [each.rank for each in properties], [each.doubling for each in properties]
times = json.loads(lab_path("core/studies/data/scores.json").read_text("utf-8"))["measured"]
for choice, each in zip(choices, properties):
    print(choice.key, each, times.get(choice.key))
""",
            ),
        ),
        {
            "[each.scores for each in maps.values()]": np.stack([each.scores for each in maps]),
            "[each.weights for each in maps.values()]": np.stack([each.weights for each in maps]),
            "ranks": np.array([each.rank for each in properties]),
            "doubling": np.array([each.doubling for each in properties]),
            "[each['seconds'] for each in times.values()]": np.array(
                [each.seconds for each in lab.cached(study.load_measurement).measured.values()]
            ),
        },
    )


# Sentences, equations and table cells of the page Scores.


MAX_TERMS = 3
HEAD = (
    "score",
    "rule",
    "parameters",
    "time",
    "× dot",
    "memory",
    "rank",
    "symmetric",
    "query × 2",
    "rotated",
)


def favourite(scores: Sequence[study.ScoreMaps], query: int) -> int:
    """The key on which most scores put most of the query's weight."""
    tops = [int(each.weights[query].argmax()) for each in scores]
    return max(set(tops), key=tops.count)


def fact_text(
    scores: Sequence[study.ScoreMaps], tokens: Sequence[str], query: int, stretch: float
) -> str:
    column = favourite(scores, query)
    agree = sum(int(each.weights[query].argmax()) == column for each in scores)
    high = max(scores, key=lambda each: float(each.weights[query, column]))
    low = min(scores, key=lambda each: float(each.weights[query, column]))
    sentence = (
        f"For the query :primary[{lab.plain(tokens[query])}], {agree} of {len(scores)} scores put most weight on "
        f"{lab.plain(tokens[column])}: {lower(high)} gives **{lab.share_text(high.weights[query, column])}**, "
        f"{lower(low)} ({lab.plain(rule(low))}) **{lab.share_text(low.weights[query, column])}**. "
        f"Uniform weights would be {lab.number(1 / len(tokens))}."
    )
    return sentence if stretch == 1.0 else f"{sentence} Each query is multiplied by {stretch:g}."


def snippet(choice: Choice, dims: int) -> str:
    return (
        "import torch\nfrom core.attention import Attention, AttentionConfig, Choice\n\n"
        f"config = AttentionConfig({dims}, 1, score={lab.source_of(choice)})\n"
        f"steps = Attention(config)(torch.randn(1, 6, {dims}))\n"
        "print(steps.scores, steps.weights)\n"
    )


def lower(each: study.ScoreMaps) -> str:
    text = entry("score", each.key).name
    return lab.plain(text if text[:2].isupper() else text[0].lower() + text[1:])


def equation(
    each: study.ScoreMaps, tokens: Sequence[str], i: int, j: int, colour: str
) -> tuple[str, ...]:
    left = lab.coloured(
        rf"s_{{{lab.latex_name(tokens[i], i)},\,{lab.latex_name(tokens[j], j)}}}", colour
    )
    result = lab.coloured(rf"\mathbf{{{lab.latex(each.scores[i, j])}}}", colour)
    rule_latex = "s_{ij} = " + entry("score", each.key).latex
    if each.factors is None:
        return rule_latex, f"{left} = {result}"
    first, second = (part[i, j] for part in each.factors)
    terms = " + ".join(
        rf"{lab.latex_signed(a)} \cdot {lab.latex_signed(b)}"
        for a, b in zip(first[:MAX_TERMS], second, strict=False)
    )
    terms += r" + \cdots" if len(first) > MAX_TERMS else ""
    return rule_latex, rf"{left} = {terms} = {result}" if each.scale == 1.0 else (
        rf"{left} = {lab.latex(each.scale)} \cdot ({terms}) = {result}"
    )


def rows(
    scores: Sequence[study.ScoreMaps],
    properties: Sequence[ScoreProperties],
    timings: Sequence[study.Timing | None],
) -> list[list[str]]:
    dot = next(
        (time for each, time in zip(scores, timings, strict=True) if each.key == BASELINE),
        timings[0],
    )
    return [
        [
            entry("score", each.key).name,
            rule(each),
            lab.whole(each.parameters),
            *(
                (
                    lab.duration(time.seconds),
                    lab.written(
                        f"{lab.number(time.seconds / dot.seconds)} ×", time.seconds / dot.seconds
                    ),
                    lab.byte_size(time.bytes),
                )
                if time and dot
                else ("–",) * 3
            ),
            str(can.rank),
            "yes" if can.symmetric else "no",
            lab.written(f"× {lab.number(can.doubling)}", can.doubling),
            lab.written(
                f"± {lab.number(can.rotation)}" if can.rotation else "no change", can.rotation
            ),
        ]
        for each, can, time in zip(scores, properties, timings, strict=True)
    ]


def rule(each: study.ScoreMaps) -> str:
    short = entry("score", each.key).short
    return short if each.scale == 1.0 else f"{short} × {lab.number(each.scale)}"


# The page: maps of every score on the same q and k, one score's equation, the table of costs, and the sources.


def page() -> None:
    lab.title(
        "Scores",
        "A score says how well a query and a key match. Here every rule scores the same queries and keys.",
    )
    lab.take_built("scores", adopt, axes=("score",))
    explore()


def adopt(built: lab.Built) -> None:
    """Write the equation of the score that was built elsewhere."""
    choice = built.get("score", Choice(BASELINE))
    st.session_state.update(
        {key("equation"): choice.key, **lab.choice_state(key("params"), choice)}
    )


@lab.fragment
def explore() -> None:
    values = Controls.draw("tokens", "dims", "stretch", "show")
    cut, picture = tokenize(values.tokens, 64), st.container()
    # under the maps, and before them in this run, as it has what they are drawn from
    with lab.settings_panel("Settings that only some scores have"):
        lab.params_panel("score", key=key("params"))
    choices = [
        Choice.of(item.key, **lab.params_in_session(item, key=key("params")))
        for item in AXES["score"]
    ]
    # Plug-ins that fail are left out; a note says which, and why.
    same = cut.tokens or ("a",), values.dims, SEED, values.stretch
    why = {choice: lab.cached(study.failure, choice, *same) for choice in choices}
    controls = lab.Values(
        values,
        tokens=cut.tokens,
        names=labels(cut.tokens),
        choices=tuple(choice for choice in why if not why[choice]),
        notes=(*cut.notes, *filter(None, why.values())),
    )
    if not controls.tokens:
        st.warning(
            "There is no token here. Type a word, or a sentence: each word becomes one token."
        )
    else:
        with picture:
            show(controls)
    # Draw what each score learns, costs and can express: times as saved, or of this machine on
    # request
    st.markdown("## What each score costs and what it can express")
    repetition, saved = st.session_state.get(key("again"), 0), lab.cached(study.load_measurement)
    plain_choices = tuple(Choice(choice.key) for choice in controls.choices)
    scores = [
        lab.shared(study.score_maps, choice, ("a",), controls.dims, SEED, 1.0)
        for choice in plain_choices
    ]
    properties = [lab.cached(score_properties, choice, SEED) for choice in plain_choices]
    times = tuple(saved.measured.get(choice.key) for choice in plain_choices)
    indices = range(len(scores))
    widest = max(indices, key=lambda at: properties[at].rank)
    seconds = [0.0 if time is None else time.seconds for time in times]
    slowest = max(indices, key=seconds.__getitem__)
    dot = next((at for at in indices if scores[at].key == BASELINE), 0)
    lab.fact(
        f"{lab.plain(entry('score', scores[slowest].key).name)} takes **{lab.number(seconds[slowest] / seconds[dot])} "
        f"×** as long as "
        f"{lower(scores[dot])} (measured on {saved.date}). With {PROBE_DIMS} dimensions its matrix of "
        f"scores has rank {properties[slowest].rank}. The highest rank is **{properties[widest].rank}** "
        f"({lower(scores[widest])}); {lower(scores[dot])} reaches {properties[dot].rank}."
    )
    if repetition:
        with st.spinner("Measuring each score, about a second", show_time=False):
            times = lab.cached(study.timings, plain_choices, repetition)
    lab.table(
        HEAD,
        rows(scores, properties, times),
        caption="Cost and properties of each score",
        left=2,
    )
    size = study.TIMED_WIDTH // study.TIMED_HEADS
    where = (
        f"measured on this machine, {lab.plural(torch.get_num_threads(), 'thread')}"
        if repetition
        else f"saved on {saved.date}, {saved.machine}"
    )
    lab.caption(
        f"Parameters: learned numbers of the score at head size D = {controls.dims}. Time: of a forward and a backward "
        f"pass, {study.TIMED_HEADS} heads of size {size}, {study.TIMED_TOKENS} tokens, processor time of the "
        f"fastest round; {where}. × dot: the time divided by that of scaled dot product. Memory: the most in "
        "use at once. The last four columns are computed from each "
        f"score with random parameters, on {PROBE_TOKENS} random queries and keys of D = "
        f"{PROBE_DIMS}: the rank of the matrix of scores; whether s(a, b) = s(b, a); the factor by which a "
        "score grows when the query is doubled; the mean change of a score, in standard deviations, when queries "
        "and keys are rotated by the same rotation.",
    )
    st.button(
        "Measure on this machine",
        key=key("measure"),
        icon=":material/timer:",
        help="Replaces the saved times in the table by times of this machine; the sentence above it keeps the "
        "saved ones.",
        on_click=lambda: st.session_state.update({key("again"): repetition + 1}),
    )
    compute_stretches(controls)
    sources = partial(
        lab.equation_sources,
        Controls,
        "score",
        controls.choices,
        partial(randomized_score, seed=SEED),
        partial(snippet, dims=controls.dims),
    )
    lab.details("Equations, papers and the code that just ran", sources, key("sources"))


def show(controls: lab.Values) -> None:
    if not lab.reruns_alone():
        compute_stretches(controls)
    scores = score_maps(controls)
    lab.add_script(partial(script, controls, scores))
    cell = maps(scores, controls, most_different_query(scores))
    lab.fact(fact_text(scores, controls.names, cell[0], controls.stretch))
    lab.draw_equation(
        Controls,
        "score",
        dict(zip(controls.choices, scores, strict=True)),
        lambda each: equation(each, controls.names, *cell, lab.Ink.of(lab.theme()).pick),
    )
    equal = [
        f"{entry('score', one.key).name} and {lower(other)} give the same numbers here."
        for at, one in enumerate(scores)
        for other in scores[at + 1 :]
        if np.abs(one.scores - other.scores).max()
        < 1e-5 * max(1.0, float(np.abs(one.scores).max()))  # single precision
    ]
    lab.caption(
        " ".join(
            [
                f"One head of D = {controls.dims}; {len(controls.tokens)} tokens, no mask, softmax. "
                f"Words and weights are random (seed {SEED}), "
                "so the numbers show how the rules differ, not what a trained model attends to. A press on a cell sets "
                "the query of the sentence and the cell of the equation; pointing changes the maps alone. A weight below "
                "10⁻¹² is written as 0.",
                *equal,
                *controls.notes,
            ]
        ),
    )


def score_maps(controls: lab.Values, stored: Callable[..., Any] = lab.shared) -> list[Any]:
    """The maps of every score; with `remembered`, whether each is known."""
    same = controls.tokens, controls.dims, SEED, controls.stretch
    return [stored(study.score_maps, choice, *same) for choice in controls.choices]


def stretches(controls: lab.Values) -> list[lab.Values]:
    """The controls at every length of the queries; none without tokens or with a plug-in, which may fail at one."""
    if not controls.tokens or any(entry("score", choice.key).source for choice in controls.choices):
        return []
    return [lab.Values(controls, stretch=stretch) for stretch in STRETCHES]


def compute_stretches(controls: lab.Values) -> None:
    for each in stretches(controls):
        score_maps(each)


def frames(controls: lab.Values) -> list[list[lab.Tile]]:
    """The tiles at every length of the queries, for weights; none until all are computed."""
    others = stretches(controls)
    if controls.show != "weights" or not all(
        known for other in others for known in score_maps(other, lab.remembered)
    ):
        return []
    return [
        [tile(each, index, "weights", 1.0) for index, each in enumerate(score_maps(other))]
        for other in others
    ]


def most_different_query(scores: Sequence[study.ScoreMaps]) -> int:
    return int(np.ptp(np.stack([each.weights for each in scores]), axis=0).sum(1).argmax())


def maps(scores: Sequence[study.ScoreMaps], controls: lab.Values, query: int) -> tuple[int, int]:
    """Draw a map for each score under one crosshair; returns the pinned cell, or else the query's favourite key."""
    column, shape = favourite(scores, query), (len(controls.tokens),) * 2
    pin = lab.read_linked("scores", key("cell"), shape)
    largest = max(float(np.abs(each.scores).max()) for each in scores)
    noun = "weight" if controls.show == "weights" else "score"
    tiles = [tile(each, index, controls.show, largest) for index, each in enumerate(scores)]
    others = frames(controls)
    for first in range(0, len(scores), lab.MAX_TILES):
        part = slice(first, first + lab.MAX_TILES)
        moved = lab.Frames(
            key("stretch"), STRETCHES.index(controls.stretch), [row[part] for row in others]
        )
        pin = lab.multiples(
            tiles[part],
            controls.names,
            key=key(f"maps{first}"),
            query=query,
            frames=moved if others else None,
            column=column,
            height=108,  # so that the sentence below is in the same screen
            signed=noun == "score",
            noun=noun,
            link=key("maps"),
            pin=pin,
            fact=fact_text(scores, controls.names, query, controls.stretch).replace("*", ""),
        )
    return lab.write_linked("scores", key("cell"), pin) or (query, column)


def tile(each: study.ScoreMaps, marker: int, show: str, largest: float) -> lab.Tile:
    """One score's map: its weights, or its scores on the common scale ± `largest` or on its own."""
    name, note = entry("score", each.key).name, rule(each)
    if show == "weights":
        return lab.Tile(name, note, each.weights, marker=marker)
    if show == "own":
        largest = float(np.abs(each.scores).max())
        note = f"± {lab.number(largest)}"
    return lab.Tile(
        name, note, each.scores, marker=marker, span=(-(largest or 1.0), largest or 1.0)
    )
