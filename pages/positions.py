"""Positions: how order enters attention, one encoding and one idea at a time."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import (
    AXES,
    AttentionConfig,
    Choice,
    ConfigError,
    heads_that_divide,
    properties as measure,
)
from core.attention.base import Position
from core.seeding import seeded_layer
from core.studies import order as study
from core.tokens import SENTENCE, labels, tokenize

# The page's controls: an encoding with its parameters, an idea, and the words or positions it is drawn for.

IDEAS = {
    "shuffle": "Shuffle the words",
    "encoding": "The encoding",
    "distance": "By distance",
    "shift": "Shift",
}
ENTRIES = {item.key: item for item in AXES["position"]}
D_MODEL, HEADS, SEED, MAX_TOKENS = 64, 4, 126, 48
STARTS = {
    "dog": "dog bites man",
    "animal": SENTENCE,
}  # what a link leaves out, and what older links do
PARAMS, ORDER = "positions:position", "positions:order"  # how often the words were shuffled


def needs_words(values: lab.Values) -> bool:
    return values.idea == "shuffle" or (
        values.idea == "shift" and ENTRIES[values.position].enters != "x"
    )


class Controls(lab.Fields, page="positions"):
    position = lab.Select(
        "Position encoding",
        {key: f"{item.name} · {item.year}" for key, item in ENTRIES.items()},
        "sinusoidal",
        span=2,
        help="How the order of the words enters the layer",
    )
    idea = lab.Segmented("What to see", IDEAS, help="What the picture shows", also={"wrap": True})
    d_model = lab.SelectSlider(
        "d_model",
        [size for size in lab.D_MODELS if 4 <= size <= 128],
        D_MODEL,
        help="How many numbers the vector of each word has",
        also=lab.keep_heads("positions:d_model", "positions:heads:{}".format, heads_that_divide),
    )
    heads = lab.SelectSlider[int](
        "Heads",
        lambda values: heads_that_divide(values.d_model),
        lambda values: max(n for n in heads_that_divide(values.d_model) if n <= HEADS),
        key=lambda values: f"heads:{values.d_model}",
        hidden=True,
        help="How many heads share these numbers",
    )
    seed = lab.Number(
        "Seed",
        SEED,
        0,
        999_999,
        help="Another seed gives other random weights and word vectors.",
    )
    text = lab.Text(
        "Sentence",
        lambda _: STARTS[st.session_state["positions:start"]],
        key="tokens",
        span=2,
        help="Each word becomes one token.",
    ).optional(needs_words)
    shift = lab.Number(
        "Shift k",
        5,
        1,
        32,
        slider=True,
        help="How many positions later",
    ).optional(lambda values: values.idea == "shift")
    places = lab.Number(
        "Positions",
        24,
        8,
        64,
        slider=True,
        help="How many positions are drawn",
    ).optional(lambda values: values.idea in ("encoding", "distance"))


def draw_controls(settings: Any) -> lab.Values:
    """Draw the controls, rare ones in the grid `settings`; returns their values with the tokens, notes and the config.

    The config is None where the choices do not go together, and `problem` says why.
    """
    row = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    values = Controls.draw("position", into=row)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        values = Controls.draw("idea", into=lab.HERE, **values)
        example = st.container(width=220)
    item = ENTRIES[values.position]
    with row:
        parts = lab.draw_parts("position", item.key, Choice(item.key), key=PARAMS, keep=lab.BOUND)
    params = {}
    for param in item.params[:2]:
        # What the picture of two orders does not need stands below it.
        place = settings if values.idea == "shuffle" and not lab.is_text(param) else row
        with place.cell(column_span=2 if lab.is_text(param) else 1):
            params[param.key] = lab.param_widget(param, key=f"{PARAMS}:{item.key}:{param.key}")
    values = Controls.draw("d_model", "heads", "seed", into=settings, **values)
    with settings:
        params |= lab.params_of(item, key=PARAMS, exclude=tuple(params))
        lab.note_heads("positions:d_model", values.d_model, values.heads)
    values = Controls.draw("text", into=row, **values)
    with example:
        values = Controls.draw("shift", "places", into=lab.HERE, **values)
        if values.idea == "shuffle":
            st.button(
                "Shuffle again",
                icon=":material/shuffle:",
                key="positions:again",
                on_click=partial(shuffle, lab.Values(vars(values))),
                help="Puts the words in another random order",
            )
    cut, config, problem = tokenize(values.text or "", MAX_TOKENS), None, ""
    try:  # no mask: a causal one would itself tell the order
        config = AttentionConfig(
            values.d_model, values.heads, position=Choice.of(item.key, *parts, **params)
        )
    except ConfigError as error:
        problem = str(error)
    return lab.Values(
        **values,
        item=item,
        tokens=labels(cut.tokens),
        notes=cut.notes,
        order=st.session_state.get(ORDER, 1),
        config=config,
        problem=problem,
    )


def shuffle(values: lab.Values) -> None:
    """Take the next order that differs from the one on the page, where there is one."""
    now, count = st.session_state.get(ORDER, 1), len(tokenize(values.text, MAX_TOKENS).tokens)
    orders = {n: study.shuffle(count, values.seed, n).tolist() for n in range(now, now + 20)}
    st.session_state[ORDER] = next((n for n in orders if orders[n] != orders[now]), now + 1)


# What the pictures share: the type of an equation, maps with a pinned cell, a chart, and the picture as Python.


Equation = tuple[str, str]  # the symbols, and the live numbers


def maps(
    name: str, tiles: Sequence[lab.Tile], rows: Sequence[str], columns: Any, **of: Any
) -> None:
    """Draw maps with one pinned cell, which is in the link."""
    drawn = lab.multiples(
        tiles,
        rows,
        columns,
        key=f"positions:{name}",
        pin=lab.read_linked("positions", "positions:cell", tiles[0].weights.shape, name),  # type: ignore[arg-type]
        **of,
    )
    lab.write_linked("positions", "positions:cell", drawn)


def chart(
    name: str, alt: str, heading: str, x: str, curves: Sequence[lab.Curve], **options: Any
) -> None:
    lab.draw_chart(
        st,
        lab.line_chart(heading, x, curves, lab.Ink.of(lab.theme()), **options),
        theme=None,
        key=f"positions:{name}",
        alt=alt,
        width="stretch",
    )


def note(values: lab.Values, *cells: lab.Cell, results: Mapping[str, Any]) -> None:
    """Note cells, and what they compute, as the page's Python."""
    code = lab.source_of(values.config)
    words = f"tokens = {lab.source_of(values.tokens)}\n" if values.tokens else ""
    first = lab.Cell(
        "The page's layer: a position encoding, and weights from a seed.",
        f"{lab.attention_import(code)}\n\n{words}config, seed = {code}, {values.seed}\n",
    )
    lab.add_script(
        lambda: lab.Script(
            (first, *cells), {name: np.asarray(value) for name, value in results.items()}
        )
    )


def called(
    text: str, call: str, after: str = "", draw: str = "", picture: str = "", more: str = ""
) -> lab.Cell:
    """A study and its call with the page's values; `more` are further imports."""
    imported = call.partition(" = ")[2].partition("(")[0]
    return lab.Cell(
        text,
        f"from core.studies.order import {imported}{more}\n\n{call}\n{after}",
        draw,
        picture and f"positions:{picture}",
    )


SHOW_MAPS = """
from dashboard.show import show_maps

show_maps({}, {}, {})
"""
CHART = """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame({})).mark_line().encode(x="distance", y="mean"{})
"""
BY_DISTANCE = "by_distance = by_distance({})  # mean, least and largest of each distance\nprint(by_distance[:, 0])"
DRAW_BY_DISTANCE = CHART.format(
    '{"distance": range(len(by_distance)), "mean": by_distance[:, 0]}', ""
)


# Encodings that are added to the input: the table, the similarity of two positions, and a shift as a linear map.


CURVE_COUNT = 4
HANDS, SLOWEST = 4, 8  # pairs drawn as hands; times the positions: a slower hand seems not to move
SPEEDS, CLOCKS = ("fast", "middle", "slow"), 7  # hands and positions beside the shuffled words
EXAMPLE = 3  # the position in the equation
SAME = 1e-3  # of a vector's length; a map that misses by less is the map


def table_of(values: lab.Values, picture: str, draw: str) -> tuple[np.ndarray, np.ndarray]:
    """The table of the encoding and the cosines of its positions, noted as Python with what draws the picture."""
    table = lab.cached(study.table_of, values.config, values.seed, values.places)
    similarity = measure.cosines(table).numpy()
    note(
        values,
        called(
            "What is added at each position, and the cosine of the vectors of two positions by their distance.",
            f"table = table_of(config, seed, {values.places})  # (T, C)",
            BY_DISTANCE.format("cosines(table).numpy()"),
            draw,
            picture,
            ", by_distance\nfrom core.attention.properties import cosines",
        ),
        results={"table": table, "by_distance": study.by_distance(similarity)},
    )
    return table.numpy(), similarity


def encoding(values: lab.Values) -> Equation:
    table, similarity = table_of(
        values,
        "table",
        SHOW_MAPS.format(
            '{"What is added": table}',
            *(f"[str(i) for i in range(table.shape[{n}])]" for n in (0, 1)),
        ),
    )
    positions, dims = table.shape
    maps(
        "table",
        [lab.Tile("What is added", f"{positions} positions × {dims} dimensions", table)],
        list(map(str, range(positions))),
        list(map(str, range(dims))),
        signed=True,
        noun="number added",
        reads="position (row) · dimension (column)",
        height=380,
    )
    indices = {round(step * (dims - 2) / (CURVE_COUNT - 1) / 2) * 2 for step in range(CURVE_COUNT)}
    chart(
        "curves",
        "Dimensions over positions",
        "Some dimensions at each position",
        "position",
        [
            lab.Curve(f"dimension {m}", list(enumerate(table[:, m].tolist())))
            for m in sorted(indices)
        ],
    )
    if values.position == "sinusoidal":
        hands(values, values.places, HANDS)
    lab.fact(
        f"The vectors of neighbouring positions have a cosine of **{lab.number(np.diagonal(similarity, 1).mean())}**, "
        f"those of the first and last of these {positions} positions {lab.number(similarity[0, -1])}."
    )
    return example_row(values, table)


def example_row(values: lab.Values, table: np.ndarray) -> Equation:
    example = min(EXAMPLE, len(table) - 1)
    return values.item.latex, rf"P_{{{example}}} = ({lab.listed(table[example].tolist())})"


def distance(values: lab.Values) -> Equation:
    _, similarity = table_of(values, "alike", DRAW_BY_DISTANCE)
    mean, low, high = study.by_distance(similarity).T
    far, variation = min(5, len(mean) - 1), float((high - low).max())
    chart(
        "alike",
        "Similarity against distance",
        "Cosine of the vectors of two positions",
        "distance",
        [
            lab.Curve(
                "mean" if variation < SAME else "mean, range",
                list(enumerate(mean.tolist())),
                np.stack([low, high], 1).tolist(),
            )
        ],
    )
    lab.fact(
        f"The vectors of two positions {far} apart have a cosine of **{lab.number(mean[far])}**, those of neighbours "
        f"{lab.number(mean[min(1, far)])}. "
        + (
            "This cosine of two position vectors depends only on the distance."
            if variation < SAME
            else f"At equal distance it varies by up to {lab.number(variation)}."
        )
    )
    return (
        r"\frac{P_i^\top P_j}{\|P_i\|\,\|P_j\|}",
        rf"\text{{mean at }} |i - j| = {far}:\ {lab.latex(mean[far])}",
    )


def shift(values: lab.Values) -> Equation:
    linear = lab.cached(study.linear_maps, values.config, values.seed, values.shift)
    k, closed, fit, unseen, still = next(row for row in linear.rows if row[0] == values.shift)
    dims = list(map(str, range(len(linear.closed))))
    note(
        values,
        called(
            "P(i + k) as a linear map of P(i): the rotation in closed form, and a least-squares fit.",
            f"maps = linear_maps(config, seed, {k})  # of one shift",
            f"""errors = next(row for row in maps.rows if row[0] == {k})[1:4]
print("error as a share of the length: closed form, fit, fit on held-out positions", errors)""",
            SHOW_MAPS.format(
                '{"Closed form": maps.closed, "Least squares": maps.fitted}',
                *["[str(m) for m in range(len(maps.closed))]"] * 2,
            ),
            "linear",
        ),
        results={
            "maps.closed": linear.closed,
            "maps.fitted": linear.fitted,
            "errors": (closed, fit, unseen),
        },
    )
    maps(
        "linear",
        [
            lab.Tile("Closed form", f"rotations, from P({k})", linear.closed),
            lab.Tile("Least squares", "fitted to seven eighths of the table", linear.fitted),
        ],
        dims,
        dims,
        signed=True,
        noun="entry of M",
        height=280,
        reads="dimension of P(i + k) (row) · of P(i) (column)",
    )
    chart(
        "misses",
        "Residual of the linear map against the shift",
        "Error of the map, as a share of the length",
        "shift k",
        [
            lab.Curve(name, [(row[0], row[n]) for row in linear.rows])
            for n, name in enumerate(("closed form", "fit", "fit, held out", "P(i) itself"), 1)
        ],
        log=True,
        rule=k,
    )
    rotation = (
        "is a rotation of this one"
        if closed < SAME
        else f"is not a rotation of this one: the closest one misses it by **{lab.number(closed)}** of its length"
    )
    lab.fact(
        f"The vector {k} positions later {rotation}. Without any change, this one misses it by **{lab.number(still)}** of "
        f"its length; a map fitted by least squares misses it by {lab.number(unseen)} at held-out positions."
    )
    return (
        r"P_{i+k} = M_k P_i,\quad M_k = \begin{pmatrix}\cos k\theta_m & \sin k\theta_m\\ "
        r"-\sin k\theta_m & \cos k\theta_m\end{pmatrix}_m",
        rf"\frac{{\|M_{{{k}}}P_i - P_{{i+{k}}}\|}}{{\|P_{{i+{k}}}\|}} = {lab.latex(closed)}",
    )


# Encodings that change the scores: maps of the change, and its mean by distance.


MAX_HEADS = 4  # maps and curves at once
BACK = 8  # positions, of the example in the sentence


def changes_of(values: lab.Values, picture: str, draw: str) -> np.ndarray:
    """What the encoding changes each score by, (H, T, T), noted as Python with what draws the picture."""
    changes = lab.cached(study.score_changes, values.config, values.seed, values.places)
    first = 1 - values.places
    note(
        values,
        called(
            "What the encoding changes each score by.",
            f"changes = score_changes(config, seed, {values.places})  # (H, T, T)",
            f"""distances = range({first}, {values.places})  # of the key from the query
by_distance = [by_distance(change, {first})[:, 0].tolist() for change in changes]
print("mean change in each head", [each[0] for each in by_distance], "of the farthest key")""",
            draw,
            picture,
            ", by_distance",
        ),
        results={
            "changes": changes,
            "by_distance": np.stack([study.by_distance(change, first)[:, 0] for change in changes]),
        },
    )
    return changes


def bias_encoding(values: lab.Values) -> Equation:
    changes = changes_of(
        values,
        "bias",
        SHOW_MAPS.format(
            '{f"Head {head}": change for head, change in enumerate(changes[:4])}',
            *["[str(i) for i in range(changes.shape[1])]"] * 2,
        ),
    )
    row = min(BACK, values.places - 1)
    span = float(np.abs(changes[:MAX_HEADS]).max()) or 1.0
    maps(
        "bias",
        [
            lab.Tile(f"Head {h}", f"mean {lab.number(change.mean())}", change, span=(-span, span))
            for h, change in enumerate(changes[:MAX_HEADS])
        ],
        list(map(str, range(values.places))),
        None,
        signed=True,
        noun="change of the score",
        query=row,
        column=0,
        height=230,
    )
    means = np.diagonal(changes, -row, 1, 2).mean(1)
    most, least = int(np.abs(means).argmax()), int(np.abs(means).argmin())
    std = lab.number(lab.cached(study.score_std, values.config, values.seed, values.places))
    others = f" and by {lab.number(means[least])} in head {least}" if most != least else ""
    lab.fact(
        f"The score of a key {row} positions before the query changes by **{lab.number(means[most])}** in head {most}"
        f"{others}. Without the encoding the standard deviation of the scores is {std}."
    )
    return (
        study.latex_of(values.config, values.seed),
        rf"\Delta s_{{{row},\,{row - 2}}} = {lab.latex(changes[0, row, row - 2])}\ \text{{in head }} 0",
    )


def bias_distance(values: lab.Values) -> Equation:
    changes = changes_of(
        values,
        "cost",
        CHART.format(
            '[{"head": head, "distance": distance, "mean": mean} for head, row in enumerate(by_distance)\n'
            "                        for distance, mean in zip(distances, row)]",
            ', color="head:N"',
        ),
    )
    last, curves, widest = values.places - 1, [], 0.0
    for h, change in enumerate(changes[:MAX_HEADS]):
        mean, low, high = study.by_distance(change, -last).T
        widest = max(widest, float((high - low).max()))
        curves.append(
            lab.Curve(
                f"head {h}",
                list(zip(range(-last, last + 1), mean.tolist(), strict=True)),
                np.stack([low, high], 1).tolist(),
            )
        )
    row = min(BACK, last)
    near, far = (np.diagonal(changes[0], -back).mean() for back in (1, row))
    chart(
        "cost",
        "Change of the score against distance",
        "Change of the score by distance",
        "position of the key minus position of the query",
        curves,
        rule=0,
    )
    alone = (
        f"It depends only on the distance, to within {lab.number(widest)}."
        if widest < 1e-3
        else f"It does not depend only on the distance: at equal distance it varies by up to {lab.number(widest)}."
    )
    lab.fact(
        f"In head 0 the score of the key just before the query changes by **{lab.number(near)}**, that of a key {row} "
        f"positions before by **{lab.number(far)}**. {alone}"
    )
    return (
        study.latex_of(values.config, values.seed),
        rf"\overline{{\Delta s}}(j - i = -{row}) = {lab.latex(far)}\ \text{{in head }} 0",
    )


# The same words in another order, and some positions later: what becomes of weights, scores and outputs.


FIRST_NUMBERS = 12  # of each vector, in the picture of a sum: more leave no room for the words
SAME_OUTPUT, SAME_SCORE = 1e-4, 1e-3  # of a share of the length, and of a score: rounding


DRAW_ORDERS = SHOW_MAPS.format(
    '{"In order": effect.ordered[0], "Sorted back": effect.restored[0]}', "tokens", "tokens"
)
DRAW_SUM = f"""
from dashboard.show import show_maps

shown = words[:, :{FIRST_NUMBERS}], places[:, :{FIRST_NUMBERS}]  # of each vector
maps = dict(zip(("Word vectors", "+ position vectors", "= what attention reads"), (*shown, sum(shown))))
show_maps(maps, tokens, [str(m) for m in range(shown[0].shape[1])])
"""
DRAW_HAND = """
import altair as alt
import pandas as pd

hand = pd.DataFrame({"sine": table[:, 0].tolist(), "cosine": table[:, 1].tolist()}).reset_index()
alt.Chart(hand).mark_line(point=True).encode(x="sine", y="cosine", order="index")
"""
BOTH = "positions:weights"  # the panel of the vectors and the weights in both orders


def shuffled(values: lab.Values) -> Equation:
    tokens, config = values.tokens, values.config
    effect = lab.cached(study.shuffle_effect, config, tokens, values.seed, values.order)
    row, added = int(effect.change.argmax()), values.item.enters == "x"
    if "positions:cell" in st.query_params:
        st.session_state.setdefault(BOTH, True)
    seen = bool(st.session_state.get(BOTH))  # what is drawn in the panel
    cells = [
        called(
            "The same words in another order: how much each word's output changes, as a share of its length.",
            f"effect = shuffle_effect(config, tokens, seed, {values.order})  # weights (H, T, T)",
            "print(dict(zip(tokens, effect.change.tolist())))",
            *(DRAW_ORDERS, "maps") if seen and not added else ("", ""),
        )
    ]
    results: dict[str, Any] = {
        "effect.ordered": effect.ordered,
        "effect.restored": effect.restored,
        "effect.change": effect.change,
        "effect.restored - effect.ordered": effect.restored - effect.ordered,
    }
    # on a wide screen the clocks, or the sentence, stand beside the words
    clocks = values.position == "sinusoidal"
    with st.container(horizontal=True, gap="medium"):
        left, right = st.container(width=lab.room(1000)), st.container(width=lab.room(1000))
    with left:
        st.html(sentence_rows(tokens, effect, values.item.name))
    with left if clocks else right:
        lab.fact(sentence(tokens, row, effect))
    if added:
        cells.append(
            called(
                "What attention reads: the vector of each word plus that of its position.",
                "words, places = added_vectors(config, tokens, seed)  # (T, C)",
                "",
                DRAW_SUM if seen else "",
                "sum" if seen else "",
            )
        )
        words, places = lab.cached(study.added_vectors, config, tokens, values.seed)
        results |= {"words": words, "places": places, "words + places": words + places}
    same = "=" if effect.change[row] < SAME_OUTPUT else r"\neq"
    parts = (
        rf"\text{{outputs of the shuffled words}} {same} \text{{shuffled outputs}}",
        rf"\text{{largest difference}} = {lab.latex(effect.largest)}",
    )
    if clocks:
        with right:
            table, parts = waves(values)
        results["table"] = table
        cells.append(
            called(
                "What is added at each position; its first two numbers are the hand.",
                f"table = table_of(config, seed, {len(table)})  # (T, C)",
                "",
                DRAW_HAND,
                "hands",
            )
        )
    note(values, *cells, results=results)
    return parts


def both_orders(values: lab.Values) -> None:
    tokens, config = values.tokens, values.config
    effect = lab.cached(study.shuffle_effect, config, tokens, values.seed, values.order)
    if values.item.enters == "x":
        words, places = lab.cached(study.added_vectors, config, tokens, values.seed)
        shown = [each[:, :FIRST_NUMBERS] for each in (words, places, words + places)]
        first, largest = shown[0].shape[1], lab.number(np.abs(shown[1]).max())
        lab.multiples(
            [
                lab.Tile(
                    "Word vectors", f"the first {first} of {values.d_model} numbers", shown[0]
                ),
                lab.Tile("+ position vectors", f"the largest is {largest}", shown[1]),
                lab.Tile("= what attention reads", "word and position in one", shown[2]),
            ],
            tokens,
            list(map(str, range(first))),
            key="positions:sum",
            signed=True,
            noun="number",
            reads="word (row) · dimension (column)",
            height=240,
            link="positions:added",
        )
    ordered, mixed = " ".join(tokens), " ".join(tokens[index] for index in effect.order)
    short = [lab.cut(text, 34) for text in (ordered, f"from {mixed}")]
    maps_with_difference(
        "maps",
        lab.Tile("In order", short[0], effect.ordered[0]),
        lab.Tile("Sorted back", short[1], effect.restored[0]),
        tokens,
        fact=f"Largest change {lab.number(effect.largest)}",
        query=int(effect.change.argmax()),
        height=240,
        link="positions:shuffled",
    )
    lab.caption(
        "Without positions the outputs in both orders are the same, up to the rounding of float32.",
    )


def sentence(names: tuple[str, ...], row: int, effect: study.ShuffleEffect) -> str:
    if len(names) < 2:
        return "A single word has no order: type a second one."
    change = float(effect.change[row])
    with_them = (
        f" With them, that of :primary[{lab.plain(names[row])}] changes by **{lab.percent(change)}**: "
        "it or its neighbours moved."
    )
    return "Without positions, shuffling changes no word's output." + with_them * (
        change >= SAME_OUTPUT
    )


def sentence_rows(names: Sequence[str], effect: study.ShuffleEffect, encoding: str) -> str:
    """The words in order and shuffled, each with the change of its output without positions and with them: HTML."""
    rows: list[tuple[str, Sequence[int], np.ndarray | None]] = [
        ("In order", range(len(names)), None),
        ("Shuffled, without positions", effect.order, effect.baseline_change),
    ]
    if encoding != ENTRIES["none"].name:
        rows.append((f"Shuffled, with {encoding}", effect.order, effect.change))

    basis = min(70 * len(names), 300)  # three words stand beside their label also on a phone

    def word(index: int, change: np.ndarray | None) -> str:
        text = f'<span role="listitem" style="flex:1 1 0;min-width:min(84px, 16vw);max-width:280px">{escape(names[index])}'
        if change is not None:
            share = float(change[index])
            below = "same" if share < SAME_OUTPUT else f"changed {lab.percent(share)}"
            text += f'<small style="display:block;font-size:14px;line-height:18px;opacity:.7">{below}</small>'
        return f"{text}</span>"

    return "".join(
        '<div style="display:flex;flex-wrap:wrap;gap:0 24px;margin-bottom:8px">'
        f'<span style="flex:1 0 min(212px, 28vw);font-size:14px;font-weight:600;line-height:20px">{escape(label)}</span>'
        f'<div role="list" aria-label="{escape(label)}: change of each output" style="flex:99 1 {basis}px;display:flex;'
        f'flex-wrap:wrap;gap:8px min(12px, 2vw);font-size:clamp(16px, 4.5vw, 22px);line-height:26px">'
        f"{''.join(word(i, change) for i in order)}"
        "</div></div>"
        for label, order, change in rows
    )


def order_shift(values: lab.Values) -> Equation:
    k, tokens = values.shift, values.tokens
    effect = lab.cached(study.shift_effect, values.config, tokens, values.seed, k)
    note(
        values,
        called(
            "The scores of the words at the start, and after other words.",
            f"effect = shift_effect(config, tokens, seed, {k})  # scores (H, T, T)",
            'print("largest change of a score", effect.largest)',
            SHOW_MAPS.format(
                '{"At the start": effect.first[0], "Later": effect.later[0]}', "tokens", "tokens"
            ),
            "moved",
        ),
        results={"effect.first": effect.first, "effect.later": effect.later},
    )
    maps_with_difference(
        "moved",
        lab.Tile("At the start", "scores of head 0", effect.first[0]),
        lab.Tile(f"{k} positions later", "after other words", effect.later[0]),
        tokens,
        signed=True,
        noun="score",
        height=230,
        link="positions:shifted",
        query=len(tokens) - 1,
    )
    verdict, sign = "**the same** scores", "="
    if effect.largest >= SAME_SCORE:
        verdict, sign = f"other scores: one changes by **{lab.number(effect.largest)}**", r"\neq"
    lab.fact(
        f"{k} positions later the same words have {verdict}. With sinusoids added to the input, one changes by "
        f"{lab.number(effect.sinusoidal)}."
    )
    return (
        rf"s_{{i+k,\,j+k}} {sign} s_{{ij}}",
        rf"\max\,|s_{{i+{k},\,j+{k}}} - s_{{ij}}| = {lab.latex(effect.largest)}",
    )


def maps_with_difference(
    name: str,
    before: lab.Tile,
    after: lab.Tile,
    tokens: Sequence[str],
    signed: bool = False,
    fact: str = "",
    **options: Any,
) -> None:
    """Two maps, and the second minus the first; no picture shows where they differ by rounding alone."""
    rounding = np.abs(after.weights - before.weights) < 1e-5
    after = replace(after, weights=np.where(rounding, before.weights, after.weights))
    options["pin"] = lab.read_linked("positions", "positions:cell", after.weights.shape, name)  # type: ignore[arg-type]
    left, right = st.columns([3, 1], gap="small")
    with left:
        drawn = lab.multiples(
            [before, after], tokens, key=f"positions:{name}", signed=signed, fact=fact, **options
        )
    with right:
        if rounding.all():
            st.caption("Both maps are the same up to rounding.")
        else:
            drawn = lab.difference_map(after, before, tokens, key="positions:difference", **options)
    lab.write_linked("positions", "positions:cell", drawn)


# Encodings that rotate queries and keys: each pair of dimensions as a dial, and the score by distance.


def rotations_of(
    values: lab.Values, picture: str, draw: str
) -> tuple[Sequence[measure.Pair], np.ndarray]:
    """The pairs of dimensions that rotate, and the mean score of a vector with itself, noted as Python."""
    rotations = lab.cached(study.rotations_of, values.config, values.seed, values.places)
    pairs, similarity = measure.rotation_pairs(rotations), measure.alignment(rotations).numpy()
    note(
        values,
        called(
            "The rotation of a query or key at each position, and the mean score of a vector and itself, rotated.",
            f"rotations = rotations_of(config, seed, {values.places})  # (T, D, D)",
            "wavelengths = [pair.wavelength for pair in rotation_pairs(rotations)]  # positions for each full turn\n"
            + BY_DISTANCE.format("alignment(rotations).numpy()"),
            draw,
            picture,
            ", by_distance\nfrom core.attention.properties import alignment, rotation_pairs",
        ),
        results={
            "wavelengths": [pair.wavelength for pair in pairs],
            "by_distance": study.by_distance(similarity),
        },
    )
    return pairs, similarity


def rotation_encoding(values: lab.Values) -> Equation:
    config = values.config
    pairs, similarity = rotations_of(
        values,
        "dials",
        """
import altair as alt
import pandas as pd

pairs = pd.DataFrame({"pair": range(len(wavelengths)), "wavelength": wavelengths})
alt.Chart(pairs).mark_point().encode(x="pair", y=alt.Y("wavelength", scale=alt.Scale(type="log")))
""",
    )
    examples, unscaled = lab.sample_pairs(pairs), study.unscaled(config)
    before: Sequence[measure.Pair] = (
        measure.rotation_pairs(lab.cached(study.rotations_of, unscaled, values.seed, values.places))
        if unscaled
        else ()
    )
    lab.dials(
        examples,
        len(similarity),
        lab.Ink.of(lab.theme()),
        key="positions:dials",
        before=before,
        label=f"{len(examples)} pairs of dimensions rotating over {len(similarity)} positions",
    )
    hidden, still = len(pairs) - len(examples), config.scored_dim - 2 * len(pairs)
    rest = f" {still} of {config.qk_dim} dimensions do not rotate." if still else ""
    if still and study.row_length(config):
        rest = f" These are the columns of one row. The other {still} dimensions rotate from row to row."
    slowest = lab.wavelength_text(max((pair.wavelength for pair in before), default=0.0))
    instead = f", instead of {slowest} with a factor of 1 (faint)" if before else ""
    layouts = {
        "halves": "a number of the first half and one of the second half",
        "interleaved": "two neighbours",
    }
    first, last, layout = examples[0], examples[-1], dict(config.position.params).get("layout")
    why = f" Each pair has {layouts[layout]} (Layout: {layout})." if layout in layouts else ""  # type: ignore[index]
    if config.scored_dim > config.qk_dim:
        why = (
            f" Number {first.first} as it was is the length of the pair, and numbers {first.first} and {first.second} "
            "are where its arrow ends."
        )
    lab.caption(
        f"“{first.first}, {first.second}” are the numbers {first.first} and {first.second} of a query or key, which "
        f"rotate together.{why}",
    )
    lab.fact(
        f"The fastest pair completes a circle in **{lab.wavelength_text(first.wavelength)}** positions, the slowest in "
        f"**{lab.wavelength_text(last.wavelength)}**{instead}"
        f"{f' ({hidden} more pairs lie between)' if hidden > 0 else ''}.{rest}"
    )
    return (
        values.item.latex,
        rf"\theta = ({lab.listed([abs(p.angle) for p in examples])})\ \text{{rad per position}}",
    )


def rotation_distance(values: lab.Values) -> Equation:
    pairs, similarity = rotations_of(values, "alike", DRAW_BY_DISTANCE)
    mean, low, high = study.by_distance(similarity).T
    examples = lab.sample_pairs(pairs)
    curves = [lab.Curve("all directions", list(enumerate(mean.tolist())))]
    curves += [
        lab.Curve(
            f"pair {p.first}, {p.second}",
            [(d, float(np.cos(d * p.angle))) for d in range(len(mean))],
        )
        for p in dict.fromkeys((examples[0], examples[-1]))
    ]
    far = min(5, len(mean) - 1)
    unit = "columns" if study.row_length(values.config) else "positions"
    chart(
        "alike",
        "Similarity against distance",
        "Score of a unit vector and itself, rotated apart",
        f"distance in {unit}",
        curves,
    )
    lab.fact(
        f"A query and an equal key, both of length 1 and {far} {unit} apart, have a mean score of "
        f"**{lab.number(mean[far])}** over all directions; at the same position it is {lab.number(mean[0])}. The score "
        "depends only on the distance: at equal distance it varies by at most "
        f"{lab.number((high - low).max())}."
    )
    return (
        r"\overline{(R_i u)^\top (R_j u)} = \tfrac{1}{D}\,\mathrm{tr}(R_i^\top R_j)",
        rf"|i - j| = {far}:\ {lab.latex(mean[far])}",
    )


# The page: controls, the picture of one idea, the guide, the equation, and the sources.


OPTIONS = ("Yes: their distances are the same", "No: their positions are others")
GUIDE_CONFIG, GUIDE_TOKENS = AttentionConfig(D_MODEL, HEADS), 12  # of the question
PICTURES: dict[str, dict[str, Callable[[lab.Values], Equation]]] = {
    "x": {"encoding": encoding, "distance": distance, "shift": shift},
    "q, k": {"encoding": rotation_encoding, "distance": rotation_distance, "shift": order_shift},
    "scores": {"encoding": bias_encoding, "distance": bias_distance, "shift": order_shift},
}


SYMBOLS = {
    "sinusoidal": "i is the position, C the count of numbers in a word's vector, and b the base. m counts the pairs of "
    "sine and cosine from 0.",
    "learned": "i is the position, x_i the vector of its word, and P_i the learned vector of the position.",
    "rope": "i and j are the positions of query and key. R_i rotates each pair of numbers by i times the pair's angle.",
    "alibi": "i and j are the positions of query and key. m_h is the slope of head h, counted from 0; H is the count "
    "of heads.",
}


def page() -> None:
    lab.read_start("positions", "dog", "animal")
    for sentence in Controls.refused():  # before the first widget takes its value from the link
        st.warning(sentence)
    explore()


@lab.fragment
def explore() -> None:
    lab.export.begin_before_title()
    lab.link_value(ORDER, 1, lab.between(1, 9999))
    lab.title(
        "Positions",
        "Does attention notice the order of words? Shuffle them and see.",
        first=False,
    )
    controls, picture = st.container(), lab.picture("positions")
    settings = lab.settings_panel("All settings", "positions:settings").grid(
        6, min_column_width=120
    )
    with controls:
        values = draw_controls(settings)
    with picture:
        parts = show(values)
    if values.tokens:
        lab.predict(
            "positions",
            question(
                lab.cached(
                    study.shift_changes, GUIDE_CONFIG, values.tokens[:GUIDE_TOKENS], values.seed
                )
            ),
        )
    lab.try_this(
        "positions",
        (
            lab.Move(
                "Remove the positions",
                {"positions:position": "none", "positions:idea": "shuffle"},
                "Each word keeps its output when the sentence is shuffled. Without positions, attention reads a "
                "sentence as a set of words.",
            ),
            lab.Move(
                "Rotate with RoPE",
                {"positions:position": "rope", "positions:idea": "encoding"},
                "Each pair of dimensions is a hand that rotates by the same angle at each position: the first pair "
                "fast, the last one slowly.",
            ),
            lab.Move(
                "Move the sentence",
                {"positions:position": "rope", "positions:idea": "shift", "positions:shift": 5},
                "The same words have the same scores five positions later. Pick Sinusoidal above and they change.",
            ),
            lab.Move(
                "Prefer near words",
                {"positions:position": "alibi", "positions:idea": "distance"},
                "ALiBi lowers a score in proportion to the distance. Each head has its own slope, so some heads read "
                "far and some near.",
            ),
        ),
    )
    if parts is not None:
        st.markdown(f"## What it means\n\n{values.item.meaning}")
        # One element of two parts, which a narrow page breaks between.
        st.markdown(
            " $\\quad$ ".join(rf"$\displaystyle {part}$" for part in parts), text_alignment="center"
        )
        if values.item.latex in parts:
            lab.caption(SYMBOLS.get(values.position, ""))
        if values.idea == "shuffle":
            lab.details(
                "The vectors and the weights in both orders",
                partial(both_orders, values),
                BOTH,
            )
    lab.write_start("positions")
    if values.config is not None:
        lab.train_with("position", values.config.position, key="positions:train")
    lab.details(
        "Equation, paper and code of the encoding", partial(source, values), "positions:source"
    )


def hands(
    values: lab.Values,
    count: int,
    max_pairs: int,
    names: tuple[str, ...] = (),
    words: Sequence[str] = (),
) -> tuple[Any, list[measure.Pair]]:
    """Draw pairs of sine and cosine, from the fastest, as hands of a clock; returns the table, and the pairs drawn."""
    table = lab.cached(study.table_of, values.config, values.seed, count)
    pairs = measure.sinusoid_pairs(table)
    moving = [pair for pair in pairs if pair.wavelength <= SLOWEST * count]
    drawn = lab.sample_pairs(moving or pairs[:1], max_pairs)
    lab.dials(
        drawn,
        count,
        lab.Ink.of(lab.theme()),
        key="positions:hands",
        label=f"{len(drawn)} of {len(pairs)} pairs of sine and cosine over {count} positions",
        names=names[: len(drawn) - 1] + names[-1:] if len(drawn) > 1 else names[:1],
        words=words,
    )
    return table, drawn


def waves(values: lab.Values) -> tuple[Any, Equation]:
    lab.paragraph(
        "**How a vector tells a position.** Each pair of its numbers is the hand of a clock: every word turns it "
        "further. Fast and slow hands together tell all positions apart."
    )
    table, pairs = hands(values, CLOCKS, len(SPEEDS), SPEEDS, values.tokens[:CLOCKS])
    fast = np.cos(pairs[0].angle * np.arange(1, CLOCKS))
    twin = 1 + int(fast.argmax())  # where the fast hand is nearest to its start

    def turn(pair: measure.Pair) -> str:
        return f"**{np.degrees(np.arccos(np.cos(pair.angle * twin))):.0f}°**"

    slow = f", the slow one by {turn(pairs[-1])}" if len(pairs) > 1 else ""
    lab.caption(f"At positions 0 and {twin} the fast hand differs by {turn(pairs[0])}{slow}.")
    return table, example_row(values, table.numpy())


@lab.shown_errors(ValueError)
def show(values: lab.Values) -> Equation | None:
    """Draw picture, sentence and conditions, or why there are none; returns the equation."""
    if values.config is None:
        st.error(lab.plain(values.problem))
        return None
    parts = None
    if needs_words(values) and not values.tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
    elif values.idea != "shuffle" and values.item.enters not in PICTURES:
        st.info(
            f"{values.item.name} changes nothing, so there is nothing to draw here. Shuffle the words, or pick "
            "another encoding.",
            icon=":material/straighten:",
        )
    else:
        draw = shuffled if values.idea == "shuffle" else PICTURES[values.item.enters][values.idea]
        parts = draw(values)
    change = "A change is the length of the difference, as a share of the output's length. "
    lab.caption(
        change * (values.idea == "shuffle")
        + " ".join([f"Layer and word vectors are random (seed {values.seed}).", *values.notes])
    )
    return parts


def source(values: lab.Values) -> None:
    lab.entries_panel([values.item])
    if values.config is None:
        return
    # The number of learned parameters, and why there is no mask
    layer = seeded_layer(values.config, values.seed)
    count = sum(weight.numel() for weight in layer.position.parameters())
    others = sum(weight.numel() for weight in layer.parameters()) - count
    learned = f"has {count:,} parameters" if count else "has no parameters"
    lab.caption(
        f"{values.item.name} {learned}; the rest of the layer has {others:,} (d_model {values.d_model}, "
        f"{values.heads} heads). There is no mask: a causal mask would also tell the order."
        f"{' Its parameters are random here, not trained.' * bool(count)}",
    )
    own, *bases = inspect.getmro(type(layer.position))
    near = (base for base in bases[:1] if base.__module__ == own.__module__)
    lab.source_panel(own, *(base for base in near if base is not Position))


# What a reader predicts and tries on Positions.


def question(changes: Mapping[str, float]) -> lab.Question:
    """Whether sinusoids keep the scores of a sentence that comes later; `changes` are the largest changes of a score."""
    added, learned, rotated = (
        lab.share_text(changes[key]) for key in ("sinusoidal", "learned", "rope")
    )
    reason = (
        f"Measured on this sentence, a score changes by up to {added}: the sinusoids are added to the words before $W_q$ "
        f"and $W_k$, so the absolute position enters each score. With learned vectors it is {learned}. RoPE rotates query "
        f"and key instead, so that only their distance is left: {rotated}."
    )
    return lab.Question(
        f"Sinusoids add to each word a vector of its position. Now {study.GUIDE_SHIFT} other words stand before the "
        "sentence. Do the scores between its own words stay the same?",
        OPTIONS,
        int(changes["sinusoidal"] >= SAME_SCORE),
        (reason,) * len(OPTIONS),
    )
