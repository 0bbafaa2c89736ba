"""Positions: how order enters attention, one encoding and one idea at a time."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import (
    AXES,
    AttentionConfig,
    Choice,
    ConfigError,
    Entry,
    entry,
    heads_that_divide,
    properties,
    properties as measure,
)
from core.attention.positions.rotary import Position
from core.seeding import seeded_layer
from core.studies import positions, positions as compute
from core.studies.positions import GUIDE_SHIFT
from core.tokens import SENTENCE, labels, tokenize
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.formats import latex, listed, number, plain
from dashboard.draw.multiples import Tile, difference_map, multiples
from dashboard.draw.page_pictures import add_script
from dashboard.draw.page_views import dials, sample_pairs, wavelength_text
from dashboard.draw.palette import Ink
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.server.cache import cached
from dashboard.ui.export import begin_before_title
from dashboard.ui.links import (
    BOUND,
    KEEP,
    between,
    fragment,
    link_value,
    one_of,
    read_linked,
    write_linked,
)
from dashboard.ui.mechanism import (
    D_MODELS,
    is_text,
    keep_heads,
    note_heads,
    param_widget,
    params_in_session,
    params_of,
    parts_from,
    parts_in_session,
)
from dashboard.ui.panels import (
    Move,
    Question,
    caption,
    details,
    entries_panel,
    fact,
    next_page,
    picture as in_picture,
    predict,
    source_panel,
    theme,
    title,
    try_this,
)
from dashboard.ui.presentation import draw_chart
from dashboard.ui.threads import one_thread
from dashboard.ui.train_with import train_with

# The page's controls: an encoding with its parameters, an idea, and the words or positions it is drawn for.


IDEAS = {
    "shuffle": "Shuffle the words",
    "encoding": "The encoding",
    "distance": "By distance",
    "shift": "Shift",
}
ENTRIES = {item.key: item for item in AXES["position"]}
NAMES = {item.key: f"{item.name} · {item.year}" for item in ENTRIES.values()}
START = {"position": "sinusoidal", "idea": "shuffle"}
SIZES = [size for size in D_MODELS if 4 <= size <= 128]
D_MODEL, HEADS, SEED, POSITIONS, SHIFT = 64, 4, 126, 24, 5
MAX_POSITIONS, MAX_SHIFT, MAX_TOKENS, LARGEST_SEED = 64, 32, 48, 999_999
EXAMPLE_WIDTH = 220  # pixels
MAX_IN_ROW = 2  # parameters that stand in the row of controls; more go into the popover


@dataclass(frozen=True)
class Controls:
    """The values of the controls; `config` is None where the choices do not go together, and `problem` says why."""

    item: Entry
    idea: str
    config: AttentionConfig | None
    seed: int
    tokens: tuple[str, ...]
    notes: tuple[str, ...]
    order: int  # how often the words were shuffled
    positions: int
    shift: int
    problem: str = ""


key = "positions:{}".format  # a widget's key, which is also its name in the link


def read_controls() -> Controls:
    """Read the controls from the session, which also works before they are drawn."""
    item = entry("position", st.session_state.get(key("position"), START["position"]))
    choice = Choice.of(
        item.key,
        *parts_in_session("position", item, key=key("position")),
        **params_in_session(item, key=key("position")),
    )
    d_model = st.session_state.get(key("d_model"), D_MODEL)
    cut = tokenize(st.session_state.get(key("tokens"), SENTENCE) or "")
    notes = cut.notes
    if len(cut.tokens) > MAX_TOKENS:
        notes += (f"The first {MAX_TOKENS} of {len(cut.tokens)} words are shown.",)
    config, problem = None, ""
    try:  # no mask: a causal one would itself tell the order
        config = AttentionConfig(
            d_model,
            st.session_state.get(key(f"heads:{d_model}"), default_heads(d_model)),
            position=choice,
        )
    except ConfigError as error:
        problem = str(error)
    return Controls(
        item,
        st.session_state.get(key("idea")) or START["idea"],
        config,
        int(st.session_state.get(key("seed"), SEED)),
        labels(cut.tokens[:MAX_TOKENS]),
        notes,
        st.session_state.get(key("order"), 1),
        st.session_state.get(key("places"), POSITIONS),
        st.session_state.get(key("shift"), SHIFT),
        problem,
    )


def _draw_sizes(corner: DeltaGenerator) -> DeltaGenerator:
    """Draw sizes and seed in a popover; returns the place for more parameters."""
    with corner.popover("Sizes", icon=":material/tune:", help="Sizes, seed and more parameters"):
        d_model = st.select_slider(
            "d_model",
            SIZES,
            D_MODEL,
            key=key("d_model"),
            **BOUND,
            **keep_heads(key("d_model"), lambda width: key(f"heads:{width}"), heads_that_divide),
            help="How many numbers the vector of each word has",
        )
        link_value(
            key(f"heads:{d_model}"), default_heads(d_model), one_of(heads_that_divide(d_model))
        )
        note_heads(
            key("d_model"),
            d_model,
            st.select_slider(
                "Heads",
                heads_that_divide(d_model),
                default_heads(d_model),
                key=key(f"heads:{d_model}"),
                **KEEP,
                help="How many heads share these numbers",
            ),
        )
        st.number_input(
            "Seed",
            0,
            LARGEST_SEED,
            SEED,
            1,
            key=key("seed"),
            **BOUND,
            help="Another seed gives other random weights and word vectors.",
        )
        return st.container()


def default_heads(d_model: int) -> int:
    """The most heads up to the usual number that divide d_model."""
    return max(heads for heads in heads_that_divide(d_model) if heads <= HEADS)


def shuffle() -> None:
    st.session_state[key("order")] = st.session_state.get(key("order"), 1) + 1


# What the pictures of the page Positions share: the type of an equation, the chart, and a mean by distance.


Equation = tuple[str, str]  # the symbols, and the live numbers


def ink() -> Ink:
    return Ink.of(theme())


def chart(spec: dict, name: str, alt: str) -> None:
    draw_chart(st, spec, theme=None, key=key(name), alt=alt, width="stretch")


def mean_by_distance(cells: np.ndarray, distance: int) -> float:
    """The mean over all cells whose key is that many positions after their query (before it when negative)."""
    return float(np.diagonal(cells, distance, -2, -1).mean())


# Encodings that are added to the input: the table, the similarity of two positions, and a shift as a linear map.


CURVE_COUNT = 4  # curves
HANDS, SLOWEST = (
    4,
    8,
)  # pairs that are drawn as hands; times the positions: a slower hand would not seem to move
EXAMPLE = 3  # the position in the equation
TALL = 380  # pixels of a map
CLOSE = 0.05  # of the largest cosine
SAME = 1e-3  # of a vector's length; a map that misses by less is the map


def encoding(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw what is added as a map of positions and dimensions, and some dimensions as curves."""
    table = cached(compute.table_of, config, controls.seed, controls.positions)
    positions, dims = table.shape
    example = min(EXAMPLE, positions - 1)
    pin = read_linked("positions", key("cell"), (positions, dims), "table")
    write_linked(
        "positions",
        key("cell"),
        multiples(
            [Tile("What is added", f"{positions} positions × {dims} dimensions", table.numpy())],
            [str(i) for i in range(positions)],
            [str(m) for m in range(dims)],
            key=key("table"),
            signed=True,
            pin=pin,
            noun="number added",
            reads="position (row) · dimension (column)",
            height=TALL,
        ),
    )
    indices = sorted(
        {round(step * (dims - 2) / (CURVE_COUNT - 1) / 2) * 2 for step in range(CURVE_COUNT)}
    )
    series = [
        Curve(f"dimension {m}", [(i, float(v)) for i, v in enumerate(table[:, m])]) for m in indices
    ]
    chart(
        line_chart("Some dimensions at each position", "position", series, ink()),
        "curves",
        "Dimensions over positions",
    )
    similarity = measure.cosines(table).numpy()
    fact(
        f"The vectors of neighbouring positions have a cosine of **{number(mean_by_distance(similarity, 1))}**, those "
        f"of the first and last of these {positions} positions {number(float(similarity[0, -1]))}."
    )
    return (controls.item.latex, rf"P_{{{example}}} = ({listed(table[example].tolist())})")


def distance(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the cosine of two positions' vectors against their distance, mean and range."""
    similarity = measure.cosines(
        cached(compute.table_of, config, controls.seed, controls.positions)
    ).numpy()
    rows = [np.diagonal(similarity, d) for d in range(len(similarity))]
    mean = [(d, float(row.mean())) for d, row in enumerate(rows)]
    band = [(float(row.min()), float(row.max())) for row in rows]
    far = min(5, len(rows) - 1)
    variation = max(high - low for low, high in band)
    series = [Curve("mean, range", mean, band)]
    chart(
        line_chart("Cosine of the vectors of two positions", "distance", series, ink()),
        "alike",
        "Similarity against distance",
    )
    alone = (
        "It depends only on the distance"
        if variation < 0.01
        else "It does not depend only on the distance"
    )
    fact(
        f"The vectors of two positions {far} apart have a cosine of **{number(mean[far][1])}**, those of neighbours "
        f"{number(mean[min(1, far)][1])}. {alone}: at equal distance it varies by at most {number(variation)}."
    )
    return (
        r"\frac{P_i^\top P_j}{\|P_i\|\,\|P_j\|}",
        rf"\text{{mean at }} |i - j| = {far}:\ {latex(mean[far][1])}",
    )


def shift(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw P(i + k) as a linear map of P(i): the rotation, the least-squares map, and the residual of each."""
    maps = cached(compute.linear_maps, config, controls.seed, controls.shift)
    k, closed, fit, unseen, still = next(row for row in maps.rows if row[0] == controls.shift)
    names = [str(m) for m in range(config.d_model)]
    pin = read_linked("positions", key("cell"), (config.d_model, config.d_model), "linear")
    write_linked(
        "positions",
        key("cell"),
        multiples(
            [
                Tile("Closed form", f"rotations, from P({k})", maps.closed),
                Tile("Least squares", "fitted to seven eighths of the table", maps.fitted),
            ],
            names,
            key=key("linear"),
            signed=True,
            noun="entry of M",
            height=280,
            pin=pin,
            reads="dimension of P(i + k) (row) · of P(i) (column)",
        ),
    )
    lines = ("closed form", "fit", "fit, held out", "P(i) itself")
    series = [
        Curve(name, [(row[0], row[n]) for row in maps.rows]) for n, name in enumerate(lines, 1)
    ]
    spec = line_chart(
        "Error of the map, as a share of the length", "shift k", series, ink(), log=True, rule=k
    )
    chart(spec, "misses", "Residual of the linear map against the shift")
    verb = "is" if closed < SAME else "is not"
    fact(
        f"The vector {k} positions later {verb} a rotation of this one: the error of the closed form is "
        f"**{number(closed)}** of its length, that of P(i) itself {number(still)}. A map fitted by least squares has "
        f"an error of {number(fit)}, and of {number(unseen)} on held-out positions."
    )
    return (
        r"P_{i+k} = M_k P_i,\quad M_k = \begin{pmatrix}\cos k\theta_m & \sin k\theta_m\\ "
        r"-\sin k\theta_m & \cos k\theta_m\end{pmatrix}_m",
        rf"\frac{{\|M_{{{k}}}P_i - P_{{i+{k}}}\|}}{{\|P_{{i+{k}}}\|}} = {latex(closed)}",
    )


# Encodings that change the scores: maps of the change, and its mean by distance.


MAX_HEADS = 4  # maps and curves at once
MAP = 230  # pixels
BACK = 8  # positions, of the example in the sentence


def bias_encoding(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the change of each score, a map a head, all on one scale."""
    changes = cached(positions.score_changes, config, controls.seed, controls.positions)
    heads = range(min(MAX_HEADS, len(changes)))
    row = min(BACK, controls.positions - 1)
    span = float(np.abs(changes[: len(heads)]).max()) or 1.0
    tiles = [
        Tile(
            f"Head {h}", f"mean {number(float(changes[h].mean()))}", changes[h], span=(-span, span)
        )
        for h in heads
    ]
    pin = read_linked("positions", key("cell"), (controls.positions, controls.positions), "bias")
    write_linked(
        "positions",
        key("cell"),
        multiples(
            tiles,
            [str(index) for index in range(controls.positions)],
            key=key("bias"),
            signed=True,
            pin=pin,
            noun="change of the score",
            query=row,
            column=0,
            height=MAP,
        ),
    )
    means = [mean_by_distance(change, -row) for change in changes]
    most, least = int(np.argmax(np.abs(means))), int(np.argmin(np.abs(means)))
    std = cached(positions.score_std, config, controls.seed, controls.positions)
    others = f" and by {number(means[least])} in head {least}" if most != least else ""
    fact(
        f"The score of a key {row} positions before the query changes by **{number(means[most])}** in head {most}"
        f"{others}. Without the encoding the standard deviation of the scores is {number(std)}."
    )
    return (
        positions.latex_of(config, controls.seed),
        rf"\Delta s_{{{row},\,{row - 2}}} = {latex(changes[0, row, row - 2])}\ \text{{in head }} 0",
    )


def bias_distance(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the mean change of a score against the distance of the key, a curve a head."""
    changes = cached(positions.score_changes, config, controls.seed, controls.positions)
    last = controls.positions - 1
    series, widest = [], 0.0
    for h, change in enumerate(changes[:MAX_HEADS]):
        rows = [(d, np.diagonal(change, d)) for d in range(-last, last + 1)]
        widest = max(widest, *(float(np.ptp(row)) for _, row in rows))
        series.append(
            Curve(
                f"head {h}",
                [(d, float(row.mean())) for d, row in rows],
                [(float(row.min()), float(row.max())) for _, row in rows],
            )
        )
    row = min(BACK, last)
    near, far = mean_by_distance(changes[0], -1), mean_by_distance(changes[0], -row)
    spec = line_chart(
        "Change of the score by distance",
        "position of the key minus position of the query",
        series,
        ink(),
        rule=0,
    )
    chart(spec, "cost", "Change of the score against distance")
    alone = (
        f"It depends only on the distance, to within {number(widest)}."
        if widest < 1e-3
        else f"It does not depend only on the distance: at equal distance it varies by up to {number(widest)}."
    )
    fact(
        f"In head 0 the score of the key just before the query changes by **{number(near)}**, that of a key {row} "
        f"positions before by **{number(far)}**. {alone}"
    )
    return (
        positions.latex_of(config, controls.seed),
        rf"\overline{{\Delta s}}(j - i = -{row}) = {latex(far)}\ \text{{in head }} 0",
    )


# The same words in another order, and some positions later: what becomes of weights, scores and outputs.


SHUFFLE_HEIGHT, SHIFT_HEIGHT = 240, 230  # pixels of a map
FIRST_NUMBERS = (
    12  # of each vector, in the picture of a sum: more cells leave no room for the words
)
NONE = ENTRIES["none"].name
WORD = "display:inline-block;padding:2px 8px 2px 0;text-align:center"
ROUNDING = 1e-5  # of weights and scores in fp32
SAME_OUTPUT, SAME_SCORE = (
    1e-4,
    1e-3,
)  # below it two outputs (a share of the length) or scores are the same


def added_vectors(controls: Controls, config: AttentionConfig) -> None:
    """Draw the vector of each word, the vector of its position, and their sum."""
    words, places = (
        vectors[:, :FIRST_NUMBERS]
        for vectors in cached(positions.added_vectors, config, controls.tokens, controls.seed)
    )
    shown = words.shape[1]
    multiples(
        [
            Tile("Word vectors", f"the first {shown} of {config.d_model} numbers", words),
            Tile(
                "+ position vectors",
                f"the largest is {number(float(np.abs(places).max()))}",
                places,
            ),
            Tile("= what attention reads", "word and position in one", words + places),
        ],
        controls.tokens,
        [str(m) for m in range(shown)],
        key=key("sum"),
        signed=True,
        noun="number",
        reads="word (row) · dimension (column)",
        height=SHUFFLE_HEIGHT,
        link=key("added"),
    )


def weights(names: Sequence[str], effect: positions.ShuffleEffect, row: int) -> None:
    """Draw one head's weights in order, shuffled with rows and columns restored, and their difference."""
    maps_with_difference(
        "maps",
        Tile("In order", _short(names), effect.ordered[0]),
        Tile(
            "Sorted back",
            "from " + _short([names[index] for index in effect.order]),
            effect.restored[0],
        ),
        names,
        fact=f"Largest change {number(effect.largest)}",
        query=row,
        height=SHUFFLE_HEIGHT,
        link=key("shuffled"),
    )


def _short(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 34 else text[:33] + "…"


def sentence(names: tuple[str, ...], row: int, effect: positions.ShuffleEffect) -> str:
    change = float(effect.change[row])
    if len(names) < 2:
        return "A single word has no order: type a second one."
    without = (
        "Without positions, shuffling changes no output: the largest difference is "
        f"{number(effect.baseline)}, which is rounding."
    )
    if change < SAME_OUTPUT:
        return without
    return (
        f"{without} With positions, the output of :primary[{plain(names[row])}] changes by **{number(change)}** of "
        "its length."
    )


def sentence_rows(names: Sequence[str], effect: positions.ShuffleEffect, encoding: str) -> str:
    """The words in order and shuffled, each with the change of its output without positions and with them: HTML."""

    def row(label: str, order: Sequence[int], change: np.ndarray | None) -> str:
        words = []
        for index in order:
            below = (
                ""
                if change is None
                else "same"
                if change[index] < SAME_OUTPUT
                else number(float(change[index]))
            )
            small = (
                "" if change is None else f'<small style="display:block;opacity:.7">{below}</small>'
            )
            words.append(
                f'<span role="listitem" style="{WORD}">{escape(names[index])}{small}</span>'
            )
        return (
            f'<div style="margin-bottom:10px"><div style="font-size:14px;font-weight:600">{escape(label)}</div>'
            f"<div role='list' aria-label='{escape(label)}'>{''.join(words)}</div></div>"
        )

    rows = [
        row("In order", range(len(names)), None),
        row(
            "Shuffled, without positions: change of each word’s output",
            effect.order,
            effect.baseline_change,
        ),
    ]
    if encoding != NONE:
        rows.append(
            row(
                f"Shuffled, with {encoding}: change of each word’s output, as a share of its vector’s length",
                effect.order,
                effect.change,
            )
        )
    return "".join(rows)


def order_shift(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the scores of the same words at the start and some positions later."""
    effect = cached(positions.shift_effect, config, controls.tokens, controls.seed, controls.shift)
    same = "=" if effect.largest < SAME_SCORE else r"\neq"
    maps_with_difference(
        "moved",
        Tile("At the start", "scores of head 0", effect.first[0]),
        Tile(f"{controls.shift} positions later", "after other words", effect.later[0]),
        controls.tokens,
        signed=True,
        noun="score",
        height=SHIFT_HEIGHT,
        link=key("shifted"),
        query=len(controls.tokens) - 1,
    )
    low, high = (number(float(end)) for end in (effect.first[0].min(), effect.first[0].max()))
    verdict = "have the same scores" if effect.largest < SAME_SCORE else "have other scores"
    fact(
        f"{controls.shift} positions later the same words {verdict}: the largest change in any head "
        f"is **{number(effect.largest)}**. The scores drawn, those of head 0, lie between {low} and {high}. With "
        f"sinusoids added to the input the largest change is {number(effect.sinusoidal)}."
    )
    return (
        rf"s_{{i+k,\,j+k}} {same} s_{{ij}}",
        rf"\max\,|s_{{i+{controls.shift},\,j+{controls.shift}}} - s_{{ij}}| = "
        rf"{latex(effect.largest)}",
    )


def maps_with_difference(
    name: str,
    before: Tile,
    after: Tile,
    tokens: Sequence[str],
    signed: bool = False,
    fact: str = "",
    **options: Any,
) -> None:
    """Two maps, and the second minus the first; `after` equals `before` wherever they differ by rounding alone."""
    after = replace(after, weights=without_rounding(after.weights, before.weights))
    pin = read_linked("positions", key("cell"), (len(tokens), len(tokens)), name)
    left, right = st.columns([3, 1], gap="small")
    with left:
        drawn = multiples(
            [before, after], tokens, key=key(name), signed=signed, fact=fact, pin=pin, **options
        )
    with right:
        if np.array_equal(after.weights, before.weights):
            st.caption("Both maps are the same up to rounding.")
        else:
            drawn = difference_map(after, before, tokens, key=key("difference"), pin=pin, **options)
    write_linked("positions", key("cell"), drawn)


def without_rounding(changed: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The changed map, equal to the one before wherever they differ by rounding alone, which no picture should show."""
    return np.where(np.abs(changed - before) < ROUNDING, before, changed)


# Encodings that rotate queries and keys: each pair of dimensions as a dial, and the score by distance.


def rotation_encoding(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw each pair of dimensions as a hand that rotates from position to position."""
    rotations = cached(positions.rotations_of, config, controls.seed, controls.positions)[
        : row_length(config)
    ]
    pairs = measure.rotation_pairs(rotations)
    examples, plain = sample_pairs(pairs), positions.unscaled(config)
    unscaled = (
        ()
        if plain is None
        else measure.rotation_pairs(
            cached(positions.rotations_of, plain, controls.seed, controls.positions)
        )
    )
    dials(
        examples,
        len(rotations),
        ink(),
        key=key("dials"),
        before=unscaled,
        label=f"{len(examples)} pairs of dimensions rotating over {len(rotations)} positions",
    )
    between = (
        f" ({len(pairs) - len(examples)} more pairs lie between)"
        if len(pairs) > len(examples)
        else ""
    )
    still = config.qk_dim - 2 * len(pairs)
    rest = f" {still} of {config.qk_dim} dimensions do not rotate." if still else ""
    if still and row_length(config):
        rest = f" These are the columns of one row. The other {still} dimensions rotate from row to row."
    slowest = max((pair.wavelength for pair in unscaled), default=None)
    instead = (
        f", instead of {wavelength_text(slowest)} with a factor of 1 (faint)" if slowest else ""
    )
    fastest, slowest_text = (
        wavelength_text(pair.wavelength) for pair in (examples[0], examples[-1])
    )
    caption(pairing(examples[0].first, examples[0].second, controls))
    fact(
        f"The fastest pair completes a circle in **{fastest}** positions, the slowest in "
        f"**{slowest_text}**{instead}{between}.{rest}"
    )
    return (
        controls.item.latex,
        rf"\theta = ({listed([abs(p.angle) for p in examples])})\ \text{{rad per position}}",
    )


def row_length(config: AttentionConfig) -> int | None:
    """How many positions lie in one row, of a rotation by rows and columns; None where all lie in one line."""
    columns = dict(config.position.params).get("columns")
    return None if columns is None else int(columns)


def pairing(first: int, second: int, controls: Controls) -> str:
    """What the name of a pair means, and where the layout takes its two numbers from."""
    layouts = {
        "halves": "a number of the first half and one of the second half",
        "interleaved": "two neighbours",
    }
    layout = str(dict(controls.config.position.params).get("layout", "")) if controls.config else ""
    why = f" Each pair has {layouts[layout]} (Layout: {layout})." if layout in layouts else ""
    return f"“{first}, {second}” are the numbers {first} and {second} of a query or key, which rotate together.{why}"


def rotation_distance(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the score of a vector with itself, rotated apart: mean over all directions, and two single pairs."""
    rotations = cached(positions.rotations_of, config, controls.seed, controls.positions)[
        : row_length(config)
    ]
    similarity = measure.alignment(rotations).numpy()
    rows = [np.diagonal(similarity, d) for d in range(len(similarity))]
    variation = max(float(np.ptp(row)) for row in rows)
    examples = sample_pairs(measure.rotation_pairs(rotations))
    series = [Curve("all directions", [(d, float(row.mean())) for d, row in enumerate(rows)])]
    series += [
        Curve(
            f"pair {p.first}, {p.second}",
            [(d, float(np.cos(d * p.angle))) for d in range(len(rows))],
        )
        for p in dict.fromkeys((examples[0], examples[-1]))
    ]
    far = min(5, len(rows) - 1)
    unit = "columns" if row_length(config) else "positions"
    chart(
        line_chart(
            "Score of a unit vector and itself, rotated apart", f"distance in {unit}", series, ink()
        ),
        "alike",
        "Similarity against distance",
    )
    fact(
        f"A query and an equal key, both of length 1 and {far} {unit} apart, have a mean score of "
        f"**{number(float(rows[far].mean()))}** over all directions; at the same position it is "
        f"{number(float(rows[0].mean()))}. The score depends only on the distance: at equal distance it varies by at "
        f"most {number(variation)}."
    )
    return (
        r"\overline{(R_i u)^\top (R_j u)} = \tfrac{1}{D}\,\mathrm{tr}(R_i^\top R_j)",
        rf"|i - j| = {far}:\ {latex(float(rows[far].mean()))}",
    )


# What the page computes as Python: of each idea, for the stage of the formula at which the encoding enters.


LAYER = "A layer with seeded weights and this position encoding."
TEXT = {
    "shuffle": "The same words in another order: how much each word's output changes, as a share of its length.",
    "added": "What attention reads: the vector of each word plus that of its position.",
    "table": "What is added at each position, and the cosine of the vectors of two positions by their distance.",
    "rotations": "The rotation of a query or key at each position, and the mean score of a vector and itself, rotated.",
    "changes": "What the encoding changes each score by.",
    "linear": "P(i + k) as a linear map of P(i): the rotation in closed form, and a least-squares fit.",
    "moved": "The scores of the words at the start, and after other words.",
}
CODE = {
    "shuffle": """
x = embed(tokens, {d_model}, seed={seed})  # (1, T, C)
order = {order}
ordered, shuffled = layer(x), layer(x[:, order])
back = torch.tensor(order).argsort()
weights, restored = ordered.weights[0], shuffled.weights[0][:, back][:, :, back]  # (H, T, T)
change = (shuffled.merged[0, back] - ordered.merged[0]).norm(dim=-1) / ordered.merged[0].norm(dim=-1)
print(dict(zip(tokens, change.tolist())))
""",
    "added": """
from core.attention.properties import additive_table

words, places = x[0], additive_table(layer.position, len(tokens), {d_model})  # (T, C)
""",
    "table": """
from core.attention.properties import additive_table, cosines

table = additive_table(layer.position, {rows}, {d_model})  # (T, C)
similarity = cosines(table)  # (T, T)
by_distance = [float(similarity.diagonal(distance).mean()) for distance in range(len(table))]
print(by_distance)
""",
    "rotations": """
from core.attention.properties import alignment, rotation_matrices, rotation_pairs

rotations = rotation_matrices(layer.position, {positions}, config.qk_dim){cut}  # (T, D, D)
pairs = rotation_pairs(rotations)
wavelengths = [pair.wavelength for pair in pairs]  # positions for each full turn
similarity = alignment(rotations)  # (T, T)
by_distance = [float(similarity.diagonal(distance).mean()) for distance in range(len(rotations))]
print(wavelengths, by_distance)
""",
    "changes": """
steps = layer(embed(tuple(f"word {{index}}" for index in range({positions})), {d_model}, seed={seed}))
changes = (steps.scores - steps.raw * steps.scale)[0]  # (H, T, T)
distances = range(1 - {positions}, {positions})  # of the key from the query
by_distance = [[float(change.diagonal(distance).mean()) for distance in distances] for change in changes]
print("mean change in each head", [each[0] for each in by_distance], "of the farthest key")
""",
    "linear": """
from core.attention.properties import additive_table, fit_shift, shift_error, sinusoid_shift

table, shift = additive_table(layer.position, {table_rows}, {d_model}), {shift}  # (T, C)
fit_length = {fit_length}  # the other positions are held out
closed, fitted = sinusoid_shift(table[shift]), fit_shift(table[:fit_length], shift)  # (C, C)
errors = [shift_error(closed, table, shift), shift_error(fitted, table[:fit_length], shift),
          shift_error(fitted, table[fit_length:], shift)]
print("error as a share of the length: closed form, fit, fit on held-out positions", errors)
""",
    "moved": """
before = tuple(f"before {{index}}" for index in range({shift}))
first = layer(embed(tokens, {d_model}, seed={seed})).scores[0]  # (H, T, T)
later = layer(embed((*before, *tokens), {d_model}, seed={seed})).scores[0, :, {shift}:, {shift}:]
print("largest change of a score", float((later - first).abs().max()))
""",
}
MAPS = """
from core.show import show_maps

show_maps({}, {}, {})
"""
CHART = """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame({})).mark_line().encode(x="distance", y="mean"{})
"""
BY_DISTANCE = CHART.format('{"distance": range(len(by_distance)), "mean": by_distance}', "")
CHANGES = CHART.format(
    '[{"head": head, "distance": distance, "mean": mean} for head, row in enumerate(by_distance)\n'
    "                        for distance, mean in zip(distances, row)]",
    ', color="head:N"',
)
WAVES = """
import altair as alt
import pandas as pd

pairs = pd.DataFrame({"pair": range(len(wavelengths)), "wavelength": wavelengths})
alt.Chart(pairs).mark_point().encode(x="pair", y=alt.Y("wavelength", scale=alt.Scale(type="log")))
"""
SUM = f"""
from core.show import show_maps

shown = words[:, :{FIRST_NUMBERS}], places[:, :{FIRST_NUMBERS}]  # of each vector
maps = dict(zip(("Word vectors", "+ position vectors", "= what attention reads"), (*shown, sum(shown))))
show_maps(maps, tokens, [str(m) for m in range(shown[0].shape[1])])
"""
# By the idea and the stage: the parts, the picture, and what draws it.
PAGES: dict[tuple[str, str], tuple[tuple[str, ...], str, str]] = {
    ("shuffle", "x"): (("shuffle", "added"), "sum", SUM),
    ("encoding", "x"): (
        ("table",),
        "table",
        MAPS.format(
            '{"What is added": table}',
            "[str(i) for i in range(len(table))]",
            "[str(m) for m in range(table.shape[1])]",
        ),
    ),
    ("distance", "x"): (("table",), "alike", BY_DISTANCE),
    ("shift", "x"): (
        ("linear",),
        "linear",
        MAPS.format(
            '{"Closed form": closed, "Least squares": fitted}',
            *["[str(m) for m in range(len(closed))]"] * 2,
        ),
    ),
    ("encoding", "q, k"): (("rotations",), "dials", WAVES),
    ("distance", "q, k"): (("rotations",), "alike", BY_DISTANCE),
    ("encoding", "scores"): (
        ("changes",),
        "bias",
        MAPS.format(
            '{f"Head {head}": change for head, change in enumerate(changes[:4])}',
            *["[str(i) for i in range(changes.shape[1])]"] * 2,
        ),
    ),
    ("distance", "scores"): (("changes",), "cost", CHANGES),
}
SHUFFLE = (
    ("shuffle",),
    "maps",
    MAPS.format('{"In order": weights[0], "Sorted back": restored[0]}', "tokens", "tokens"),
)
MOVED = (
    ("moved",),
    "moved",
    MAPS.format('{"At the start": first[0], "Later": later[0]}', "tokens", "tokens"),
)


def script(controls: Controls, config: AttentionConfig) -> Script:
    """The picture of the picked idea, and its numbers."""
    parts, picture, draw = PAGES.get(
        (controls.idea, controls.item.enters), SHUFFLE if controls.idea == "shuffle" else MOVED
    )
    # What the templates are filled with
    row = row_length(config)
    table, table_rows = (
        len(cached(compute.table_of, config, controls.seed, positions))
        if controls.item.enters == "x"
        else 0
        for positions in (controls.positions, compute.TABLE_POSITIONS)
    )
    order = compute.shuffle(len(controls.tokens), controls.seed, controls.order).tolist()
    values = {
        "d_model": config.d_model,
        "seed": controls.seed,
        "order": order,
        "positions": controls.positions,
        "shift": controls.shift,
        "cut": f"[:{row}]" if row else "",
        "rows": table,
        "table_rows": table_rows,
        "fit_length": compute.fit_length(table_rows),
    }
    results: dict[str, np.ndarray] = {}
    for part in parts:
        results |= RESULTS[part](controls, config)
    cells = [Cell(TEXT[part], CODE[part].format(**values)) for part in parts]
    cells[-1] = replace(cells[-1], draw=draw, picture=f"positions:{picture}")
    made, words = (
        source_of(config),
        f"tokens = {source_of(controls.tokens)}\n" * (parts[0] in ("shuffle", "moved")),
    )
    embed = "from core.tokens import embed\n" * any("embed(" in cell.code for cell in cells)
    layer = f"""
import torch

{attention_import(made)}
from core.seeding import seeded_layer
{embed}
{words}config = {made}
layer = seeded_layer(config, {controls.seed})
"""
    return Script((Cell(LAYER, layer), *cells), results)


def _shuffle(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    effect = cached(compute.shuffle_effect, config, controls.tokens, controls.seed, controls.order)
    return {
        "weights": effect.ordered,
        "restored": effect.restored,
        "change": effect.change,
        "restored - weights": effect.restored - effect.ordered,
    }


def _added(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    words, places = cached(compute.added_vectors, config, controls.tokens, controls.seed)
    return {"words": words, "places": places, "words + places": words + places}


def _table(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    table = cached(compute.table_of, config, controls.seed, controls.positions)
    return {"table": table.numpy(), "by_distance": _by_distance(properties.cosines(table).numpy())}


def _rotations(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    rotations = cached(compute.rotations_of, config, controls.seed, controls.positions)[
        : row_length(config)
    ]
    return {
        "wavelengths": np.array([pair.wavelength for pair in properties.rotation_pairs(rotations)]),
        "by_distance": _by_distance(properties.alignment(rotations).numpy()),
    }


def _changes(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    changes = cached(compute.score_changes, config, controls.seed, controls.positions)
    return {
        "changes": changes,
        "by_distance": np.stack([_by_distance(change, 1 - len(change)) for change in changes]),
    }


def _linear(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    maps = cached(compute.linear_maps, config, controls.seed, controls.shift)
    return {
        "closed": maps.closed,
        "fitted": maps.fitted,
        "errors": np.array(next(row for row in maps.rows if row[0] == controls.shift)[1:4]),
    }


def _moved(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    effect = cached(compute.shift_effect, config, controls.tokens, controls.seed, controls.shift)
    return {"first": effect.first, "later": effect.later}


def _by_distance(cells: np.ndarray, first: int = 0) -> np.ndarray:
    return np.array([np.diagonal(cells, distance).mean() for distance in range(first, len(cells))])


RESULTS = {
    "shuffle": _shuffle,
    "added": _added,
    "table": _table,
    "rotations": _rotations,
    "changes": _changes,
    "linear": _linear,
    "moved": _moved,
}


# The page: controls, the picture of one idea, the guide, the equation, and the sources.


OPTIONS = {
    "sinusoidal": "Sinusoidal, added to the input",
    "learned": "Learned, added to the input",
    "rope": "RoPE, which rotates q and k",
}
WHY = {
    "sinusoidal": "The sinusoids are added to the words before $W_q$ and $W_k$, so the absolute position enters "
    "each score.",
    "learned": "Each position has its own learned vector, so the absolute position enters each score.",
    "rope": "Query and key are rotated by angles that grow with the position, so only their distance is left in the "
    "score.",
}

GUIDE_CONFIG, GUIDE_TOKENS = AttentionConfig(D_MODEL, HEADS), 12  # of the question
PICTURES = {
    "x": {"encoding": encoding, "distance": distance, "shift": shift},
    "q, k": {"encoding": rotation_encoding, "distance": rotation_distance, "shift": order_shift},
    "scores": {"encoding": bias_encoding, "distance": bias_distance, "shift": order_shift},
}


def page() -> None:
    """Draw the page from top to bottom."""
    # Before the first widget takes its value from the link.
    errors = []
    for name, names in (("position", NAMES), ("idea", IDEAS)):
        value = st.query_params.get(key(name))
        if value and value not in names.values() and key(name) not in st.session_state:
            errors.append(
                f"The link says {name} = {plain(value[:40])}; expected one of "
                f"{plain(' | '.join(names.values()))}. {plain(names[START[name]])} is shown."
            )
    for sentence in errors:
        st.warning(sentence)
    explore()
    sources()
    next_page("positions")


@fragment
def explore() -> None:
    """Draw title, controls, picture and sentence, which rerun alone."""
    begin_before_title()
    link_value(key("order"), 1, between(1, 9999))  # how often the words were shuffled
    controls = header()
    with in_picture("positions"):
        parts = show(controls)
    if controls.tokens:
        few = controls.tokens[:GUIDE_TOKENS]
        predict(
            "positions", question(cached(positions.shift_changes, GUIDE_CONFIG, few, controls.seed))
        )
    try_this("positions", MOVES)
    if parts is not None:
        st.markdown(f"## What it means\n\n{controls.item.meaning}")
        if (
            controls.idea == "shuffle"
            and controls.item.key == "sinusoidal"
            and controls.config is not None
        ):
            # Draw some pairs of sine and cosine as hands of a clock, and what one pair and all
            # pairs say of two positions
            table = cached(compute.table_of, controls.config, controls.seed, controls.positions)
            pairs = measure.sinusoid_pairs(table)
            st.markdown("## Why waves of many lengths")
            moving = [
                pair for pair in pairs if pair.wavelength <= SLOWEST * controls.positions
            ] or pairs[:1]
            hands = sample_pairs(moving, HANDS)
            dials(
                hands,
                controls.positions,
                ink(),
                key=key("hands"),
                label=f"{len(hands)} of {len(pairs)} pairs of sine and cosine over {controls.positions} positions",
            )
            example = min(EXAMPLE, controls.positions - 1)
            alone = np.cos(pairs[0].angle * (np.arange(controls.positions) - example))
            alone[example] = -1.0
            close = np.flatnonzero(alone >= alone.max() - CLOSE)
            twin = int(
                close[np.abs(close - example).argmin()]
            )  # the nearest, which a phone shows too
            together = float(measure.cosines(table)[example, twin])
            fact(
                f"Each pair of the numbers that are added rotates like the hand of a clock. By the fastest hand alone, "
                f"position {example} looks like position {twin} (cosine **{number(float(alone[twin]))}**). The slower hands "
                f"tell them apart: with all {len(pairs)} the cosine is **{number(together)}**."
            )
            parts = (controls.item.latex, rf"P_{{{example}}} = ({listed(table[example].tolist())})")
        # One element of two parts, which a narrow page breaks between.
        st.markdown(
            " $\\quad$ ".join(rf"$\displaystyle {part}$" for part in parts), text_alignment="center"
        )
        if controls.item.latex in parts:
            caption(SYMBOLS.get(controls.item.key, ""))
    st.session_state[key("controls")] = controls


def header() -> Controls:
    """Draw the title with the controls below it; returns the controls."""
    title(
        "Positions",
        "Attention ignores the order of words; a position encoding adds it.",
        first=False,
    )
    row = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with row.cell(column_span=2):
        name = st.selectbox(
            "Position encoding",
            list(NAMES),
            list(NAMES).index(START["position"]),
            format_func=NAMES.__getitem__,
            key=key("position"),
            **BOUND,
            help="How the order of the words enters the layer",
        )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        idea = (
            st.segmented_control(
                "Picture",
                list(IDEAS),
                default=START["idea"],
                required=True,
                wrap=True,
                **BOUND,
                format_func=IDEAS.__getitem__,
                key=key("idea"),
                help="What the picture shows",
            )
            or START["idea"]
        )
        example = st.container(width=EXAMPLE_WIDTH)
        corner = st.container(horizontal_alignment="right")
    item = entry("position", name)
    rest = _draw_sizes(corner)
    with row:
        parts_from("position", item, Choice(item.key), key("position"), BOUND)
    first = item.params[:MAX_IN_ROW]
    for param in first:
        with row.cell(column_span=2 if is_text(param) else 1):
            param_widget(param, key=f"{key('position')}:{item.key}:{param.key}")
    with rest:
        params_of(item, key=key("position"), exclude=tuple(param.key for param in first))
    # Draw the controls of the idea's example: words and their order, a number of positions, or a shift
    if idea == "shuffle" or (idea == "shift" and item.enters != "x"):
        with row.cell(column_span=2):
            st.text_input(
                "Sentence",
                SENTENCE,
                key=key("tokens"),
                help="Each word becomes one token.",
                **BOUND,
            )
    with example:
        if idea == "shuffle":
            st.button(
                "Shuffle again",
                icon=":material/shuffle:",
                key=key("again"),
                on_click=shuffle,
                help="Puts the words in another random order",
            )
        elif idea == "shift":
            st.slider(
                "Shift k",
                1,
                MAX_SHIFT,
                SHIFT,
                1,
                key=key("shift"),
                help="How many positions later",
                **BOUND,
            )
        else:
            st.slider(
                "Positions",
                8,
                MAX_POSITIONS,
                POSITIONS,
                1,
                key=key("places"),
                **BOUND,
                help="How many positions are drawn",
            )
    return read_controls()


def show(controls: Controls) -> Equation | None:
    """Draw picture, sentence and conditions, or the error; returns the equation."""
    if controls.config is None:
        st.error(plain(controls.problem))
        return None
    try:
        with one_thread():
            parts = picture(controls, controls.config)
        if parts is not None:
            add_script(partial(script, controls, controls.config))
    except ValueError as error:  # ConfigError too
        st.error(plain(str(error)))
        return None
    caption(
        " ".join([f"Layer and word vectors are random (seed {controls.seed}).", *controls.notes])
    )
    return parts


def picture(controls: Controls, config: AttentionConfig) -> Equation | None:
    """Draw the idea for the stage of the formula at which the encoding enters."""
    needs_words = controls.idea == "shuffle" or (
        controls.idea == "shift" and controls.item.enters != "x"
    )
    if needs_words and not controls.tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return None
    if controls.idea == "shuffle":
        # Draw what shuffling changes in each word's output, what an added encoding adds, and one
        # head's weights
        names = controls.tokens
        effect = cached(positions.shuffle_effect, config, names, controls.seed, controls.order)
        row = int(effect.change.argmax())
        st.html(sentence_rows(names, effect, controls.item.name))
        fact(sentence(names, row, effect))
        if controls.item.enters == "x":
            added_vectors(controls, config)
            if key("cell") in st.query_params:
                st.session_state.setdefault(key("weights"), True)
            details(
                "The weights in both orders", partial(weights, names, effect, row), key("weights")
            )
        else:
            weights(names, effect, row)
        same = "=" if effect.change[row] < SAME_OUTPUT else r"\neq"
        return (
            rf"\text{{outputs of the shuffled words}} {same} \text{{shuffled outputs}}",
            rf"\text{{largest difference}} = {latex(effect.largest)}",
        )
    if controls.item.enters in PICTURES:
        return PICTURES[controls.item.enters][controls.idea](controls, config)
    st.info(
        f"{controls.item.name} changes nothing, so there is nothing to draw here. Shuffle the words, or pick "
        "another encoding.",
        icon=":material/straighten:",
    )
    return None


def sources() -> None:
    """Draw the way to train with the encoding, and on request where it is from."""
    controls: Controls | None = st.session_state.get(key("controls"))
    if controls is None:
        return
    if controls.config is not None:
        train_with("position", controls.config.position, key=key("train"))
    details("Equation, paper and code of the encoding", partial(source, controls), key("source"))


def source(controls: Controls) -> None:
    """Draw equation, meaning and paper, and the class that just ran."""
    entries_panel([controls.item])
    if controls.config is not None:
        # The number of learned parameters, and why there is no mask
        layer = seeded_layer(controls.config, controls.seed)
        count = sum(weight.numel() for weight in layer.position.parameters())
        others = sum(weight.numel() for weight in layer.parameters()) - count
        learned = f"has {count:,} parameters" if count else "has no parameters"
        note = " Its parameters are random here, not trained."
        caption(
            f"{controls.item.name} {learned}; the rest of the layer has {others:,} (d_model {controls.config.d_model}, "
            f"{controls.config.num_heads} heads). There is no mask: a causal mask would also tell the order."
            f"{note * bool(count)}"
        )
        built = type(seeded_layer(controls.config, controls.seed).position)
        source_panel(built)
        base = inspect.getmro(built)[1]
        if base is not Position and base.__module__ == built.__module__:
            source_panel(base)


# What a reader predicts and tries on Positions.


def question(changes: Mapping[str, float]) -> Question:
    """Which encoding keeps the scores of a sentence that comes later; `changes` are the largest changes of a score."""
    keys = list(OPTIONS)
    right = min(keys, key=lambda key: changes[key])
    answer = (
        f" With {OPTIONS[right].partition(',')[0]} it is {number(changes[right])}: {WHY[right]}"
    )
    reasons = tuple(
        f"Measured on this sentence, the largest change of a score is {number(changes[key])}. {WHY[key]}"
        f"{answer if key != right else ''}"
        for key in keys
    )
    return Question(
        f"Sinusoidal adds waves of fixed lengths to the words, Learned a vector that training finds for "
        "each position. RoPE adds nothing: it rotates queries and keys, by an angle that grows with the "
        f"position. Now {GUIDE_SHIFT} other words stand before the sentence. With which encoding do the "
        "scores between its own words stay the same?",
        tuple(OPTIONS.values()),
        keys.index(right),
        reasons,
    )


SYMBOLS = {
    "sinusoidal": "i is the position, C the count of numbers in a word's vector, and b the base. m counts the pairs of "
    "sine and cosine from 0.",
    "learned": "i is the position, x_i the vector of its word, and P_i the learned vector of the position.",
    "rope": "i and j are the positions of query and key. R_i rotates each pair of numbers by i times the pair's angle.",
    "alibi": "i and j are the positions of query and key. m_h is the slope of head h, counted from 0; H is the count "
    "of heads.",
}


MOVES = (
    Move(
        "Remove the positions",
        {"positions:position": "none", "positions:idea": "shuffle"},
        "Each word keeps its output when the sentence is shuffled. Without positions, attention reads a sentence as a "
        "set of words.",
    ),
    Move(
        "Rotate with RoPE",
        {"positions:position": "rope", "positions:idea": "encoding"},
        "Each pair of dimensions is a hand that rotates by the same angle at each position: the first pair fast, the "
        "last one slowly.",
    ),
    Move(
        "Move the sentence",
        {"positions:position": "rope", "positions:idea": "shift", "positions:shift": 5},
        "The same words have the same scores five positions later. Pick Sinusoidal above and they change.",
    ),
    Move(
        "Prefer near words",
        {"positions:position": "alibi", "positions:idea": "distance"},
        "ALiBi lowers a score in proportion to the distance. Each head has its own slope, so some heads read far and "
        "some near.",
    ),
)
