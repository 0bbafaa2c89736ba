"""Positions: its sentences of numbers, equations, curves, and the rows of words in two orders."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from core.attention import AttentionConfig, Entry
from core.attention.properties import Pair
from core.studies import positions as study
from dashboard.draw.components import Cell
from dashboard.draw.curves import Curve
from dashboard.draw.formats import latex, listed, number, percent, plain, share_text
from dashboard.draw.page_views import sample_pairs, wavelength_text

Equation = tuple[str, str]  # the symbols, and the live numbers
Words = tuple[str, Equation]  # the sentence, too

CURVE_COUNT = 4  # dimensions of a table
EXAMPLE = 3  # the position in an equation
BACK = 8  # positions, of the example in a sentence
MAX_HEADS = 4  # maps and curves at once
SAME = 1e-3  # of a vector's length; a map that misses by less is the map
SAME_OUTPUT, SAME_SCORE = 1e-4, 1e-3  # of a share of the length, and of a score: rounding

SYMBOLS = {
    "sinusoidal": "i is the position, C the count of numbers in a word's vector, b the base; m counts the pairs.",
    "learned": "i is the position, x_i the vector of its word, and P_i the learned vector of the position.",
    "rope": "i and j are the positions of query and key. R_i rotates each pair of numbers by i times the pair's angle.",
    "alibi": "i and j are the positions of query and key. m_h is the slope of head h, counted from 0; H is the count "
    "of heads.",
}
CHART = """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame({})).mark_line().encode(x="distance", y="mean"{})
"""
PAIRS_CODE = """
import altair as alt
import pandas as pd

pairs = pd.DataFrame({"pair": range(len(rotations.wavelengths)), "wavelength": rotations.wavelengths})
alt.Chart(pairs).mark_point().encode(x="pair", y=alt.Y("wavelength", scale=alt.Scale(type="log")))
"""
HAND_CODE = """
import altair as alt
import pandas as pd

hand = pd.DataFrame({"sine": table[:, 0].tolist(), "cosine": table[:, 1].tolist()}).reset_index()
alt.Chart(hand).mark_line(point=True).encode(x="sine", y="cosine", order="index")
"""


def distance_code(name: str) -> str:
    mean = f"{name}.by_distance[:, 0]"
    return CHART.format(f'{{"distance": range(len({mean})), "mean": {mean}}}', "")


def heads_code(positions: int) -> str:
    """Code that draws the changes of scores by distance, a curve a head."""
    rows = f"""[{{"head": head, "distance": distance, "mean": mean}}
                        for head, row in enumerate(effect.by_distance[..., 0].tolist())
                        for distance, mean in zip(range({1 - positions}, {positions}), row)]"""
    return CHART.format(rows, ', color="head:N"')


def sum_code(tokens: Sequence[str], count: int) -> str:
    """Code that draws the first numbers of the vectors of words and positions, and of their sums."""
    return f"""
from dashboard.show import show_maps

parts = {{"Word vectors": added.words, "+ position vectors": added.places, "= what attention reads": added.total}}
maps = {{name: part[:, :{count}] for name, part in parts.items()}}
show_maps(maps, {list(tokens)}, [str(m) for m in range(maps["Word vectors"].shape[1])])
"""


# Encodings that are added to the input.


def row_latex(item: Entry, table: np.ndarray) -> Equation:
    example = min(EXAMPLE, len(table) - 1)
    return item.latex, rf"P_{{{example}}} = ({listed(table[example].tolist())})"


def table_curves(table: np.ndarray) -> list[Curve]:
    last = table.shape[1] - 2
    dims = {round(step * last / (CURVE_COUNT - 1) / 2) * 2 for step in range(CURVE_COUNT)}
    return [Curve(f"dimension {m}", list(enumerate(table[:, m].tolist()))) for m in sorted(dims)]


def of_distance(what: str, variation: float) -> tuple[str, str]:
    """Whether `what` depends on the distance alone, and " on average" where it does not.

    `variation` is how far it varies between pairs at equal distance, at most.
    """
    if variation < SAME:
        return f"{what} depends only on the distance.", ""
    return f"At equal distance it varies by up to {number(variation)}.", " on average"


def table_fact(added: study.Added) -> str:
    mean, low, high = added.by_distance.T
    average = of_distance("", float((high - low)[1]))[1]
    return (
        f"The vectors of neighbouring positions have a cosine of **{number(mean[1])}**{average}, "
        f"those of the first and last of these {len(mean)} positions {number(mean[-1])}."
    )


def similarity_curve(added: study.Added) -> Curve:
    mean, low, high = added.by_distance.T
    name = "mean" if (high - low).max() < SAME else "mean, range"
    return Curve(name, list(enumerate(mean.tolist())), np.stack([low, high], 1).tolist())


def similarity_words(added: study.Added) -> Words:
    mean, low, high = added.by_distance.T
    far, variation = min(5, len(mean) - 1), float((high - low).max())
    alone, average = of_distance("This cosine of two position vectors", variation)
    return (
        f"The vectors of two positions {far} apart have a cosine of **{number(mean[far])}**{average}, those of "
        f"neighbours {number(mean[min(1, far)])}. {alone}"
    ), (
        r"\frac{P_i^\top P_j}{\|P_i\|\,\|P_j\|}",
        rf"\text{{mean at }} |i - j| = {far}:\ {latex(mean[far])}",
    )


def miss_curves(linear: study.LinearMaps) -> list[Curve]:
    return [
        Curve(name, [(row[0], row[n]) for row in linear.rows])
        for n, name in enumerate(("closed form", "fit", "fit, held out", "P(i) itself"), 1)
    ]


def shift_words(linear: study.LinearMaps, k: int) -> Words:
    closed, _, unseen, still = linear.misses
    rotation = (
        "is a rotation of this one"
        if closed < SAME
        else f"is not a rotation of this one: the closest one misses it by **{number(closed)}** of its length"
    )
    return (
        f"The vector {k} positions later {rotation}. Without any change, this one misses it by **{number(still)}** of "
        f"its length; a map fitted by least squares misses it by {number(unseen)} at held-out positions."
    ), (
        r"P_{i+k} = M_k P_i,\quad M_k = \begin{pmatrix}\cos k\theta_m & \sin k\theta_m\\ "
        r"-\sin k\theta_m & \cos k\theta_m\end{pmatrix}_m",
        rf"\frac{{\|M_{{{k}}}P_i - P_{{i+{k}}}\|}}{{\|P_{{i+{k}}}\|}} = {latex(closed)}",
    )


def pairs_text(drawn: Sequence[Pair], count: int) -> str:
    """Which pairs of so many are drawn."""
    i, j = drawn[0].first, drawn[0].second
    return f"{len(drawn)} of {count} pairs; “{i}, {j}” are numbers {i} and {j} of a vector."


def hands_text(pairs: Sequence[Pair], positions: int) -> str:
    """How far the fastest and the slowest of the drawn hands turn until the fastest is nearest to its start."""
    twin = 1 + int(np.cos(pairs[0].angle * np.arange(1, positions)).argmax())
    each = " and by ".join(
        f"**{np.degrees(np.arccos(np.cos(pair.angle * twin))):.0f}°** in pair {pair.first}, {pair.second}"
        for pair in dict.fromkeys((pairs[0], pairs[-1]))
    )
    return f"Positions 0 and {twin} differ by {each}."


# Encodings that change the scores.


def change_words(effect: study.ScoreChanges, symbols: str) -> Words:
    row = min(BACK, effect.changes.shape[1] - 1)
    changes = np.diagonal(effect.changes[:MAX_HEADS], -row, 1, 2)  # of the heads that are drawn
    means, average = changes.mean(1), of_distance("", float(np.ptp(changes, 1).max()))[1]
    most, least = int(np.abs(means).argmax()), int(np.abs(means).argmin())
    others = f" and by {number(means[least])} in head {least}" if most != least else ""
    change = latex(effect.changes[0, row, row - 2])
    return (
        f"The score of a key {row} positions before the query changes by **{number(means[most])}** in head {most}"
        f"{others}{average}. Without the encoding the standard deviation of the scores is {number(effect.std)}."
    ), (symbols, rf"\Delta s_{{{row},\,{row - 2}}} = {change}\ \text{{in head }} 0")


def change_curves(effect: study.ScoreChanges) -> list[Curve]:
    last = effect.changes.shape[1] - 1
    return [
        Curve(
            f"head {head}",
            list(zip(range(-last, last + 1), rows[:, 0].tolist(), strict=True)),
            rows[:, 1:].tolist(),
        )
        for head, rows in enumerate(effect.by_distance[:MAX_HEADS])
    ]


def distance_words(effect: study.ScoreChanges, symbols: str) -> Words:
    last, rows = effect.changes.shape[1] - 1, effect.by_distance[:MAX_HEADS]
    row, widest = min(BACK, last), float((rows[..., 2] - rows[..., 1]).max())
    near, far = rows[0, last - 1, 0], rows[0, last - row, 0]
    alone, average = of_distance("The change", widest)
    return (
        f"In head 0 the score of the key just before the query changes by **{number(near)}**{average}, that of a key "
        f"{row} positions before by **{number(far)}**. {alone}"
    ), (symbols, rf"\overline{{\Delta s}}(j - i = -{row}) = {latex(far)}\ \text{{in head }} 0")


# Encodings that rotate queries and keys.


def pair_text(first: Pair, config: AttentionConfig) -> str:
    """Which numbers rotate together, and why these."""
    layouts = {
        "halves": "a number of the first half and one of the second half",
        "interleaved": "two neighbours",
    }
    layout = str(dict(config.position.params).get("layout"))
    why = f" Each pair has {layouts[layout]} (Layout: {layout})." if layout in layouts else ""
    if config.scored_dim > config.qk_dim:
        why = (
            f" Number {first.first} as it was is the length of the pair, and numbers {first.first} and {first.second} "
            "are where its arrow ends."
        )
    return (
        f"“{first.first}, {first.second}” are the numbers {first.first} and {first.second} of a query or key, which "
        f"rotate together.{why}"
    )


def rotation_fact(pairs: Sequence[Pair], before: Sequence[Pair], config: AttentionConfig) -> str:
    """The fastest and the slowest pair, the slowest of `before` with a factor of 1, and what does not rotate."""
    examples = sample_pairs(pairs)
    hidden, still = len(pairs) - len(examples), config.scored_dim - 2 * len(pairs)
    rest = f" {still} of {config.qk_dim} dimensions do not rotate." if still else ""
    if still and study.row_length(config):
        rest = f" These are the columns of one row. The other {still} dimensions rotate from row to row."
    instead = more = ""
    if before:
        slowest = wavelength_text(max(pair.wavelength for pair in before))
        instead = f", instead of {slowest} with a factor of 1 (faint)"
    if hidden > 0:
        more = f" ({hidden} more pairs lie between)"
    if len(pairs) == 1:
        return f"The pair completes a circle in **{wavelength_text(pairs[0].wavelength)}** positions{instead}.{rest}"
    return (
        f"The fastest pair completes a circle in **{wavelength_text(examples[0].wavelength)}** positions, the slowest in "
        f"**{wavelength_text(examples[-1].wavelength)}**{instead}{more}.{rest}"
    )


def turned_fact(rotations: study.Rotations, query: int, apart: int) -> str:
    """The angle between the hands of a query and a key, and their score, which follow from their distance alone."""
    pair = sample_pairs(rotations.pairs)[0]
    turn = np.degrees(np.arccos(np.cos(pair.angle * apart)))
    return (
        f"The query at :primary[{query}] and the key at {query - apart} turn by their positions. The angle between them, "
        f"**{turn:.0f}°** for pair {pair.first}, {pair.second}, and their score, "
        f"**{number(rotations.scores[query, query - apart])}**, depend on the distance {apart} alone."
    )


TURNING = (
    "**How the hands turn.** A head's query and key are cut into pairs of numbers. Each pair is a hand that turns with the "
    "position, each at its own speed."
)
TURNED = (
    "“distance” is the query's hand minus the key's. The score is that of a query and an equal key of length 1, the mean "
    "over all directions."
)


def turned_cell(query: int, apart: int, score: float) -> Cell:
    return Cell(
        "The score of a query and an equal key, here and wherever they are as far apart.",
        f"score = rotations.scores[{query}, {query - apart}]\n"
        f"print(score, rotations.scores.diagonal(-{apart}))",
        results={"score": score},
    )


def rotation_latex(item: Entry, pairs: Sequence[Pair]) -> Equation:
    angles = listed([abs(pair.angle) for pair in sample_pairs(pairs)])
    return item.latex, rf"\theta = ({angles})\ \text{{rad per position}}"


def rotation_curves(rotations: study.Rotations) -> list[Curve]:
    mean, examples = rotations.by_distance[:, 0], sample_pairs(rotations.pairs)
    curves = [Curve("all directions", list(enumerate(mean.tolist())))]
    return curves + [
        Curve(
            f"pair {p.first}, {p.second}",
            [(d, float(np.cos(d * p.angle))) for d in range(len(mean))],
        )
        for p in dict.fromkeys((examples[0], examples[-1]))
    ]


def rotation_words(rotations: study.Rotations, unit: str) -> Words:
    mean, low, high = rotations.by_distance.T
    far = min(5, len(mean) - 1)
    alone, _ = of_distance("The score", float((high - low).max()))
    return (
        f"A query and an equal key, both of length 1 and {far} {unit} apart, have a mean score of "
        f"**{number(mean[far])}** over all directions; at the same position it is {number(mean[0])}. {alone}"
    ), (
        r"\overline{(R_i u)^\top (R_j u)} = \tfrac{1}{D}\,\mathrm{tr}(R_i^\top R_j)",
        rf"|i - j| = {far}:\ {latex(mean[far])}",
    )


# The same words in another order, and some positions later.


def shuffle_fact(effect: study.ShuffleEffect) -> str:
    if len(effect.names) < 2:
        return "A single word has no order: type a second one."
    text, row = (
        "Without positions, shuffling changes no output.",
        int(effect.change.argmax()),
    )
    if effect.change[row] >= SAME_OUTPUT:
        why = "it stayed, others moved" if effect.order[row] == row else "it moved"
        text += (
            f" With them, that of :primary[{plain(effect.names[row])}] changes by "
            f"**{percent(float(effect.change[row]))}**: {why}."
        )
        stayed = np.where(np.arange(len(effect.names)) == effect.order, effect.change, 0)
        other = int(stayed.argmax())
        if other != row and stayed[other] >= SAME_OUTPUT:
            text += (
                f" “{plain(effect.names[other])}” stayed and changes by {percent(float(stayed[other]))}: each word takes "
                "from all, and others moved."
            )
    return text


def shuffle_latex(effect: study.ShuffleEffect) -> Equation:
    same = "=" if effect.change.max() < SAME_OUTPUT else r"\neq"
    return (
        rf"\text{{outputs of the shuffled words}} {same} \text{{shuffled outputs}}",
        rf"\text{{largest difference}} = {latex(effect.largest)}",
    )


def sentence_rows(effect: study.ShuffleEffect, item: Entry) -> str:
    """The words in order and shuffled, each with the change of its output without positions and with them: HTML."""
    names = effect.names
    rows: list[tuple[str, Sequence[int], np.ndarray | None]] = [
        ("In order", range(len(names)), None),
        ("Shuffled, without positions", effect.order, effect.baseline_change),
    ]
    if item.key != "none":
        rows.append((f"Shuffled, with {item.name}", effect.order, effect.change))

    basis = min(70 * len(names), 300)  # three words stand beside their label also on a phone

    def word(index: int, change: np.ndarray | None) -> str:
        text = f'<span role="listitem" style="flex:1 1 0;min-width:min(84px, 16vw);max-width:280px">{escape(names[index])}'
        if change is not None:
            share = float(change[index])
            below = "same" if share < SAME_OUTPUT else f"changed {percent(share)}"
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


def moved_words(effect: study.ShiftEffect, k: int) -> Words:
    verdict, sign = "**the same** scores", "="
    if effect.difference.any():
        changed = f"they change by up to **{number(effect.largest)}**, in head {effect.head}"
        verdict, sign = f"other scores: {changed}", r"\neq"
    return (
        f"{k} positions later the same words have {verdict}. With sinusoids added to the input, they change by up "
        f"to {number(effect.sinusoidal)}."
    ), (
        rf"s_{{i+k,\,j+k}} {sign} s_{{ij}}",
        rf"\max\,|s_{{i+{k},\,j+{k}}} - s_{{ij}}| = {latex(effect.largest)}",
    )


def parameters_text(item: Entry, count: int, others: int, d_model: int, heads: int) -> str:
    learned = f"has {count:,} parameters" if count else "has no parameters"
    random = " Its parameters are random here, not trained." if count else ""
    return (
        f"{item.name} {learned}; the rest of the layer has {others:,} (d_model {d_model}, "
        f"{heads} heads). There is no mask: a causal mask would also tell the order.{random}"
    )


def shift_reason(changes: Mapping[str, float]) -> str:
    """How much a score changes by at most when a sentence comes later, by encoding."""
    added, learned, rotated = (
        share_text(changes[key]) for key in ("sinusoidal", "learned", "rope")
    )
    return (
        f"Measured on this sentence, a score changes by up to {added}: the sinusoids are added to the words before $W_q$ "
        f"and $W_k$, so the absolute position enters each score. With learned vectors it is {learned}. RoPE rotates query "
        f"and key instead, so that only their distance is left: {rotated}."
    )
