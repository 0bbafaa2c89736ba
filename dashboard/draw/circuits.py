"""What a head can do: the graph of compositions, grids of measures, sentences and equations."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core.interpret.circuits import (
    PAIR,
    Carrier,
    Circuits,
    CompositionKind,
    Edge,
    Extremes,
    InductionCircuit,
)
from core.interpret.trace import Head
from dashboard.draw.figures import (
    PICKED,
    Ink,
    Spec,
    Theme,
    axis_style,
    colour_scale,
    figure,
    layer,
    quoted,
    table_columns,
    text_tip,
)
from dashboard.draw.formats import latex, number, percent, plain, share_text, signed
from dashboard.draw.grids import bar_figure, effect_grid

PARTS: dict[CompositionKind, str] = {"Q": "queries", "K": "keys", "V": "values"}
PAIRS = ("composition", "from head", "to head", "above random")
ROW, LEAST = 48, 200  # pixels of a layer in the graph, and of the whole graph
THIN, WIDE = 1.0, 7.0  # pixels of the weakest edge that is drawn, and of the strongest
PICK = {"type": "point", "fields": ["layer", "head"], "on": "click", "toggle": False}


def graph(circuits: Circuits, edges: Sequence[Edge], picked: Head, theme: Theme) -> Spec:
    """Heads as points, the first layer below, and edges, strongest first, wider where stronger; a click picks a head.

    Edges of the picked head are drawn in the accent. There may be no edges.
    """
    ink, scores = Ink.of(theme), [edge.score for edge in edges] or [0.0]
    most, least = scores[0], scores[-1]
    nodes: list[Spec] = [
        {
            "x": head,
            "y": row,
            "layer": circuits.layer_names[row],
            "head": str(head),
            "name": circuits.name((row, head)),
            "own": (row, head) == picked,
            "linked": any((row, head) in (edge.source, edge.target) for edge in edges),
        }
        for row, head in circuits.all()
    ]
    # Whole numbers with a name each
    at = {
        name: {
            "field": name,
            "type": "quantitative",
            "title": title,
            "scale": {"domain": [-0.5, len(labels) - 0.5], "nice": False, "zero": False},
            "axis": {
                **axis_style(ink),
                "values": list(range(len(labels))),
                "labelExpr": f"[{','.join(map(quoted, labels))}][datum.value]",
                "grid": False,
            },
        }
        for name, title, labels in (
            ("x", "head", circuits.head_names),
            ("y", None, circuits.layer_names),
        )
    }
    colour = {"condition": {"test": "datum.own", "value": ink.pick}, "value": ink.series[0]}
    lines = [
        {
            "x": edge.source[1],
            "y": edge.source[0],
            "x2": edge.target[1],
            "y2": edge.target[0],
            "own": picked in (edge.source, edge.target),
            "wide": THIN + (WIDE - THIN) * (edge.score - least) / (most - least or 1.0),
            "name": f"{circuits.name(edge.source)} → {circuits.name(edge.target)}",
            "by": f"{edge.kind} {number(edge.score + circuits.random_level)}",
            "from": circuits.name(edge.source),
            "to": circuits.name(edge.target),
            "kind": edge.kind,
            "score": edge.score,
        }
        for edge in edges
    ]
    return figure(
        [
            layer(
                "rule",
                lines,
                {
                    **at,
                    "x2": {"field": "x2"},
                    "y2": {"field": "y2"},
                    "color": colour,
                    "tooltip": [
                        {"field": "name", "title": "heads"},
                        {"field": "by", "title": "composition"},
                    ],
                    "strokeWidth": {"field": "wide", "type": "quantitative", "scale": None},
                    "opacity": {"condition": {"test": "datum.own", "value": 0.95}, "value": 0.45},
                },
                strokeCap="round",
            ),
            layer(
                "circle",
                nodes,
                {
                    **at,
                    "color": colour,
                    "tooltip": [{"field": "name", "title": "head"}],
                    "opacity": {
                        "condition": {"test": "datum.own || datum.linked", "value": 1},
                        "value": 0.35,
                    },
                    "size": {"condition": {"test": "datum.own", "value": 260}, "value": 130},
                },
                cursor="pointer",
            )
            | {"name": "cells"},
        ],
        max(LEAST, ROW * len(circuits.heads)),
    ) | {"params": [{"name": PICKED, "views": ["cells"], "select": PICK}]}


def extremes_chart(shown: Extremes, unit: str, theme: Theme) -> Spec:
    """A bar a token: those that a circuit raises most, from the largest, then those that it lowers most."""
    low, high = (colour_scale(theme, signed=True)[at] for at in (2, -3))
    rows: list[dict[str, Any]] = [
        {"token": token, "value": value, "end": max(value, 0.0), "text": signed(value)}
        for token, value in (*shown.most, *shown.least[::-1])
    ]
    values = [0.0, *(row["value"] for row in rows)]
    return bar_figure(
        rows,
        "token",
        list(dict.fromkeys(row["token"] for row in rows)),
        "value",
        Ink.of(theme),
        domain=[min(values), 1.2 * max(values)],
        height=20 * len(rows),
        colour={"condition": {"test": "datum.value < 0", "value": low}, "value": high},
        tips=[text_tip("text", unit)],
    ) | table_columns({"token": "token", "value": unit})


def singular_bars(values: np.ndarray, theme: Theme) -> Spec:
    style = axis_style(Ink.of(theme))
    return figure(
        [
            layer(
                "bar",
                [
                    {"rank": rank, "value": float(value), "text": number(float(value))}
                    for rank, value in enumerate(values, 1)
                ],
                {
                    "x": {
                        "field": "rank",
                        "type": "ordinal",
                        "title": None,
                        "axis": {**style, "labelAngle": 0, "labelOverlap": True, "grid": False},
                    },
                    "y": {
                        "field": "value",
                        "type": "quantitative",
                        "title": None,
                        "axis": {**style, "tickCount": 3, "grid": False},
                    },
                    "tooltip": [
                        {"field": "rank", "title": "direction"},
                        {"field": "text", "title": "singular value"},
                    ],
                },
                color=Ink.of(theme).series[0],
                cornerRadius=1,
            )
        ],
        110,
    )


# Sentences and equations.


def edges_fact(circuits: Circuits, kind: CompositionKind) -> str:
    first, (most, _) = circuits.pairs[kind][0], circuits.chance(kind)
    target, source = (plain(circuits.name(head)) for head in (first.target, first.source))
    if first.score <= most:
        return (
            f"No head takes its {PARTS[kind]} from an earlier one more than random matrices would: the highest "
            f"{kind}-composition, {source} → {target}, is **{number(first.score + circuits.random_level)}**, and "
            f"random ones reach {number(most + circuits.random_level)}."
        )
    return (
        f"The {PARTS[kind]} of **{target}** take most from **{source}**: their {kind}-composition is "
        f"**{number(first.score + circuits.random_level)}**, where random matrices have "
        f"{number(circuits.random_level)} on average."
    )


def twice(circuits: Circuits, circuit: InductionCircuit) -> str:
    first, second = (plain(circuits.name(head)) for head in circuit.patched)
    gained, regained = (percent(effect) for effect in circuit.effects)
    word, best = plain(circuit.word), circuits.pairs["K"][0]
    composed = best.source, best.target
    pair = " → ".join(plain(circuits.name(head)) for head in composed)
    composition = number(best.score + circuits.random_level)
    names = (
        f"The strongest K-composition is another pair, {pair} ({composition}): several "
        "heads share the work."
    )
    if composed == circuit.patched:
        names = (
            "The weights alone name the same two: the strongest K-composition of the model is "
            f"{pair} ({composition})."
        )
    return (
        f"**The circuit, found twice.** After “{plain(PAIR[0].text)}” the model predicts “{word}”; with “dark” and "
        f"“cold” swapped, it predicts another word. Put back one at a time, **{first}** brings back {gained} of the "
        f"difference, the most in layer 0, and **{second}** {regained}, the most in layer 1. {names} {first} takes "
        f"{number(circuit.previous)} from the token before, and the last query of {second} takes "
        f"{number(circuit.answer)} from “{word}”."
    )


def head_fact(circuits: Circuits, head: Head) -> str:
    """Whether a head copies, or of one without tokens how many dimensions it uses."""
    row, index = head
    copying = circuits.measures[row].copying
    text = f"Head :primary[**{plain(circuits.name(head))}**]"
    if copying is None:
        return f"{text} uses {rank_text(circuits, head)} dimensions."
    score = float(copying[index])
    does = (
        "copies: over all tokens, attending to one raises that one"
        if score > 0.5
        else "does the opposite of copying: over all tokens, attending to one lowers that one"
        if score < -0.5
        else "neither copies nor removes what it attends to"
    )
    return f"{text} {does}, with a copying score of **{number(score)}**."


def rank_text(circuits: Circuits, head: Head) -> str:
    row, index = head
    size = circuits.heads[row].w_v.shape[-1]
    return f"{number(float(circuits.measures[row].ranks[index]))} of {size}"


def reads_text(circuits: Circuits, head: Head) -> str:
    """The effective rank of a head, and from which earlier heads it takes its queries, keys and values."""
    best = circuits.best_into(head)
    parts = [
        f"its {PARTS[kind]} from **{plain(circuits.name(edge.source))}** "
        f"({number(edge.score + circuits.random_level)})"
        for kind, edge in best.items()
        if edge.score > circuits.chance(kind)[0]
    ]
    takes = "No head that it reads comes before it, so it composes with none."
    if best:
        takes = "It composes with no earlier head more than random matrices do."
    if parts:
        takes = f"It takes {' and '.join(parts)}; random matrices would have {number(circuits.random_level)}."
    return f"Its OV circuit has an effective rank of {rank_text(circuits, head)}. {takes}"


def drawn_lines(circuits: Circuits, kind: CompositionKind, at_most: int) -> str:
    edges = circuits.edges(kind)
    drawn = edges[:at_most]
    (most, count), pairs, above = circuits.chance(kind), len(circuits.pairs[kind]), len(edges)
    level = circuits.random_level
    text = f"Of {pairs:,} pairs of heads {above:,} {'is' if above == 1 else 'are'} above it"
    if not drawn:
        text = f"Neither is any of the {pairs:,} pairs of heads"
    elif above > 1:
        text += "; all are" if len(drawn) == above else f"; the {len(drawn):,} strongest are"
        text += f" drawn, the thinnest with {number(drawn[-1].score + level)}"
    return (
        f"A line is drawn only above {number(most + level)}, the most that random matrices reach: of {count:,} pairs in "
        f"which the earlier head has its own singular values and random directions, none is above it. {text}."
    )


def equations(
    circuits: Circuits, head: Head, best: Mapping[CompositionKind, Edge]
) -> tuple[str, ...]:
    copying, edge = circuits.measures[head[0]].copying, best.get("K")
    level = circuits.random_level
    lines = (
        r"M_{OV} = W_V W_O, \qquad M_{QK} = W_Q W_K^\top",
        copying is not None
        and rf"\text{{copying}} = \frac{{\sum_i \lambda_i}}{{\sum_i |\lambda_i|}} = "
        rf"{latex(float(copying[head[1]]))}, \qquad \lambda = "
        rf"\text{{eigenvalues of }} W_E\, M_{{OV}}\, W_U",
        edge
        and r"\text{K-composition} = \frac{\lVert M_{OV}^{A}\,(M_{QK}^{B})^\top\rVert}"
        r"{\lVert M_{OV}^{A}\rVert\,\lVert M_{QK}^{B}\rVert} = "
        rf"{latex(edge.score + level)}, \qquad \text{{at random }} "
        rf"\frac{{1}}{{\sqrt C}} = {latex(level)}",
    )
    return tuple(line for line in lines if line)


def missing_layers(circuits: Circuits) -> str:
    """Which layers below the last attention have no such matrices, in a sentence; empty where all have them."""
    numbers = {one.number for one in circuits.heads}
    missing = [f"L{one}" for one in range(max(numbers)) if one not in numbers]
    return (
        f"Not here: {', '.join(missing)}. They have no softmax of queries and keys, whose matrices this page reads."
        if missing
        else ""
    )


def conditions(circuits: Circuits, name: str, row: int) -> str:
    one, tables, has_tokens = circuits.heads[row], circuits.vocabularies, circuits.has_tokens(row)
    unread = (
        "Its tokens have embeddings of another width or vocabulary"
        if tables.embeddings
        else "It reads no tokens"
    )
    parts = [
        (
            True,
            f"{plain(name)}: from the weights alone; no text was read. The gain of the norm before each matrix is "
            "folded into it, and the centering of a LayerNorm; biases, positions and the changing scale of the norms "
            "are left out, and so is what feed-forward layers do in between.",
        ),
        (
            one.kv_heads < len(one.w_v),
            f"{len(one.w_v)} query heads share {one.kv_heads} heads of keys and values.",
        ),
        (
            one.w_q is None,
            "No one matrix compares its queries and keys, not even up to a scale for each token: there is no QK circuit.",
        ),
        (
            one.normalized,
            "This family normalizes queries, keys or values after their matrices: the gain is folded in, and the scale, "
            "one positive number for each token and head, is left out.",
        ),
        (
            one.gated,
            "The query's token gates what the head writes, by numbers of its own for each dimension or head; "
            "the circuits are those of a gate of 1.",
        ),
        (has_tokens, "Special tokens are left out of the lists."),
        (not has_tokens, f"{unread}, so its circuits cannot be read as words."),
        (
            has_tokens and one.writes in tables.by_embedding,
            "There is no unembedding here, so what is written is read through the embedding of the tokens.",
        ),
    ]
    return " ".join(sentence for holds, sentence in parts if holds)


def measure_grids(circuits: Circuits) -> list[tuple[str, dict[Head, float], str, bool]]:
    """Of each measure that there is its title, the values of heads, their unit, and whether they have a sign."""
    copying, ranks = (
        {
            (row, head): float(value)
            for row, one in enumerate(circuits.measures)
            if (values := getattr(one, name)) is not None
            for head, value in enumerate(values)
        }
        for name in ("copying", "ranks")
    )
    best = {
        head: max(edge.score for edge in edges.values())
        for head in circuits.all()
        if (edges := circuits.best_into(head))
    }
    grids = [
        ("Every head: 1 copies what it takes from, −1 lowers it", copying, "copying", True),
        ("Effective rank of OV: how many dimensions it uses", ranks, "rank", False),
        ("Best composition with an earlier head, above random", best, "above random", True),
    ]
    return [one for one in grids if one[1]]


def measure_chart(
    circuits: Circuits,
    values: Mapping[Head, float],
    unit: str,
    has_sign: bool,
    picked: Head,
    theme: Theme,
) -> Spec:
    layers, heads = circuits.layer_names, circuits.head_names
    return effect_grid(
        [
            {
                "layer": layers[row],
                "head": heads[head],
                "change": value,
                "name": circuits.name((row, head)),
                "by": signed(value) if has_sign else number(value),
            }
            for (row, head), value in values.items()
        ],
        layers,
        heads,
        (layers[picked[0]], heads[picked[1]]),
        theme,
        title=unit,
        tips=(("name", "head"), ("by", unit)),
        has_sign=has_sign,
    )


def moves_fact(shown: Extremes, name: str, word: str) -> str:
    """Which logits a head raises most where it attends to a word."""
    (first, score), *_ = shown.most
    copies = shown.rank == 1
    return (
        f"Where {plain(name)} takes from :primary[**{plain(word)}**], it makes "
        f"**{'the same word' if copies else plain(first)}** likelier to come next: its score before the softmax (logit) "
        f"rises by **{number(score)}**, the most of {shown.count:,} tokens."
        + ("" if copies else f" {plain(word)} itself has rank {shown.rank:,}.")
    )


def seeks_fact(shown: Extremes, word: str) -> str:
    """Which key the query of a word matches most."""
    first, score = shown.most[0]
    return (
        f"By content alone, the query of :primary[**{plain(word)}**] matches the key "
        f"**{plain(first)}** most, with a score of {signed(score)}."
    )


def carriers_text(circuits: Circuits, heads: Sequence[Carrier]) -> str:
    lines = ["**A head for each answer, by patching.**"]
    for one in heads:
        answers = f"the logit of “{plain(one.answer)}” minus that of “{plain(one.other)}”"
        lines.append(
            f"After “{plain(one.texts[0])}” the model predicts “{plain(one.answer)}”, after "
            f"“{plain(one.texts[1])}” it predicts “{plain(one.other)}”. Put back alone, "
            f"**{plain(circuits.name(one.head))}** brings back {percent(one.effect)} of the difference. It "
            f"takes {share_text(one.weight)} from “{plain(one.key)}”, and directly adds "
            f"{signed(one.adds[0])} to {answers}; in the second text it adds {signed(one.adds[1])}."
        )
    return " ".join(lines)
