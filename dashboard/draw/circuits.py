"""What a head can do: the graph of compositions, grids of measures, sentences and equations."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core.interpret.circuits import (
    PAIR,
    PAIRED_MODELS,
    Carrier,
    Circuits,
    CompositionKind,
    Edge,
    Extremes,
    InductionCircuit,
)
from core.interpret.paths import ANSWER, LOGITS, STEPS, Node, PathEdge, Paths
from core.interpret.trace import Head
from core.pretrained.model_inputs import text_of
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
from dashboard.draw.two_models import SECOND

PARTS: dict[CompositionKind, str] = {"Q": "queries", "K": "keys", "V": "values"}
PAIRS = ("composition", "from head", "to head", "above random")
ROW, LEAST = 48, 200  # pixels of a layer in the graph, and of the whole graph
WIDEST = 240  # pixels of a head at most: on a wide screen its lines would be almost level
FEED = "feed-forward"
THIN, WIDE = 1.0, 7.0  # pixels of the weakest edge that is drawn, and of the strongest


def graph(circuits: Circuits, edges: Sequence[Edge], picked: Head, theme: Theme) -> Spec:
    """Heads as points, the first layer below, and edges, strongest first, wider where stronger; a click picks a head.

    Edges of the picked head are drawn in the accent. There may be no edges.
    """
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
    lines = [
        {
            "x": edge.source[1],
            "y": edge.source[0],
            "x2": edge.target[1],
            "y2": edge.target[0],
            "own": picked in (edge.source, edge.target),
            "size": edge.score,
            "name": f"{circuits.name(edge.source)} → {circuits.name(edge.target)}",
            "by": f"{edge.kind} {number(edge.score + circuits.random_level)}",
            "from": circuits.name(edge.source),
            "to": circuits.name(edge.target),
            "kind": edge.kind,
            "score": edge.score,
        }
        for edge in edges
    ]
    tips = (("name", "heads"), ("by", "composition"))
    names = circuits.head_names, circuits.layer_names
    return _network(nodes, lines, names, tips, theme, "cells", ["layer", "head"])


def _network(nodes: Sequence[Spec], lines: Sequence[Spec], names: tuple[Sequence[str], Sequence[str]],
             tips: Sequence[tuple[str, str]], theme: Theme, clicked: str, fields: Sequence[str]) -> Spec:  # fmt: skip
    """Points at x and y, and lines between them, wider where their `size` is larger; both are `own` or not.

    `names` are those of the whole numbers of x and of y; a click on what is `clicked` selects its `fields`.
    """
    ink, sizes = Ink.of(theme), [line["size"] for line in lines] or [0.0]
    most, least = max(sizes), min(sizes)
    widest = {"range": [0, {"expr": f"min(width, {WIDEST * len(names[0])})"}]}
    at = {
        name: {
            "field": name,
            "type": "quantitative",
            "title": title,
            "scale": {"domain": [-0.5, len(labels) - 0.5], "nice": False, "zero": False, **limit},
            "axis": {
                **axis_style(ink),
                "values": list(range(len(labels))),
                "labelExpr": f"[{','.join(map(quoted, labels))}][datum.value]",
                "grid": False,
            },
        }
        for name, title, labels, limit in zip(
            "xy", ("head", None), names, (widest, {}), strict=True
        )
    }
    colour = {"condition": {"test": "datum.own", "value": ink.pick}, "value": ink.series[0]}
    wide = [
        line | {"wide": THIN + (WIDE - THIN) * (line["size"] - least) / (most - least or 1.0)}
        for line in lines
    ]
    labels = [  # nearer to the later end, where fewer lines meet
        line | {one: 0.3 * line[one] + 0.7 * line[f"{one}2"] for one in "xy"}
        for line in lines
        if line.get("label")
    ]
    return figure(
        [
            layer(
                "rule",
                wide,
                {
                    **at,
                    "x2": {"field": "x2"},
                    "y2": {"field": "y2"},
                    "color": colour,
                    "tooltip": [{"field": name, "title": title} for name, title in tips],
                    "strokeWidth": {"field": "wide", "type": "quantitative", "scale": None},
                    "opacity": {"condition": {"test": "datum.own", "value": 0.95}, "value": 0.45},
                },
                strokeCap="round",
                cursor="pointer" if clicked == "edges" else "default",
            )
            | {"name": "edges"},
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
                cursor="pointer" if clicked == "cells" else "default",
            )
            | {"name": "cells"},
            layer(
                "text",
                labels,
                {**at, "text": {"field": "label"}, "color": colour},
                fontSize=12,
                dx=8,
            ),
        ],
        max(LEAST, ROW * len(names[1])),
    ) | {
        "params": [
            {
                "name": PICKED,
                "views": [clicked],
                "select": {"type": "point", "fields": fields, "on": "click", "toggle": False},
            }
        ]
    }


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


# Paths between two texts: their graph and its sentences.


def texts(name: str) -> tuple[str, str]:
    """The two texts that a model is first shown: one that asks for its heads, else for a name (Wang et al. 2023)."""
    own = PAIR if name in PAIRED_MODELS else None
    return (
        (own[0].text, own[1].text)
        if own
        else (text_of(name if name in SECOND else "writer"), SECOND.get(name, SECOND["writer"]))
    )


def path_graph(paths: Paths, count: int, picked: PathEdge, theme: Theme) -> Spec:
    """The parts of a model, the embedding below and the answer above, and the `count` strongest edges; a click picks one."""
    effects = dict(list(paths.measured.items())[:count])
    heads = 1 + max(one.head or 0 for one in paths.senders)
    layers = list(dict.fromkeys(one.layer for one in paths.senders if one.layer is not None))
    columns = [*map(str, range(heads)), *["FF"] * any(one.part == FEED for one in paths.senders)]
    rows = ["embedding", *(f"L{one}" for one in layers), "answer"]

    def place(one: Node) -> tuple[float, float]:
        if one.layer is None:
            return heads // 2 - 0.5, rows.index(one.part)  # between two columns
        row = 1 + layers.index(one.layer)
        return (
            (heads, row + 0.4) if one.head is None else (one.head, row)
        )  # a network follows its heads

    nodes = [
        {
            "x": place(one)[0],
            "y": place(one)[1],
            "name": one.name,
            "own": one in (picked.sender, picked.receiver),
            "linked": any(one in (edge.sender, edge.receiver) for edge in effects),
        }
        for one in (*paths.senders, ANSWER)
    ]
    estimates = paths.strongest(len(paths.exact))
    lines = [
        {
            **dict(zip(("x", "y"), place(edge.sender), strict=True)),
            **dict(zip(("x2", "y2"), place(edge.receiver), strict=True)),
            "own": edge == picked,
            "size": abs(effect),
            "label": edge.by,
            "name": edge.name,
            "by": signed(-effect),
            "effect": effect,
            "estimate": estimates[edge],
        }
        for edge, effect in effects.items()
    ]
    tips = (("name", "edge"), ("by", "change of the lead"))
    columns_of = {"name": "edge", "effect": "the lead falls by", "estimate": "estimated"}
    return _network(nodes, lines, (columns, rows), tips, theme, "edges", ["name"]) | table_columns(
        columns_of
    )


def path_fact(paths: Paths, edge: PathEdge) -> str:
    """What one edge carries, measured, beside what the whole text does."""
    answer, other = map(plain, paths.words)
    return (
        f"Text B along :primary[**{plain(edge.name)}**] alone changes the lead of **{answer}** over **{other}** by "
        f"**{signed(-paths.measured[edge])}**, from {signed(paths.lead)}; the whole of text B by {signed(-paths.gap)}."
    )


def between_heads_text(paths: Paths) -> str:
    """The strongest edge from one head to another, and whether it stands out."""
    rule = f"It takes {number(paths.least)} to stand out: a tenth of the whole, and no less than {number(LOGITS)} logits."
    if not (edges := paths.between_heads):
        return f"None of the {len(paths.exact)} strongest edges is from one head to another. {rule}"
    best, effect = next(iter(edges.items()))
    name, moves = plain(best.name), number(abs(effect))
    if out := sum(abs(one) >= paths.least for one in edges.values()):
        return (
            f"Between two heads, **{name}** moves the lead most, by {moves}, {percent(effect / paths.gap)} of the whole; "
            f"of the {len(paths.exact)} edges that were measured {out} such {'stands' if out == 1 else 'stand'} out. {rule}"
        )
    return f"No edge between two heads stands out: {name} moves the lead most, by {moves}. {rule}"


def paths_text(paths: Paths) -> str:
    """What an edge is, how many there are, and how many were measured."""
    return (
        f"Along an edge, one part alone reads another’s output of text B; all else is held at text A, and what the part "
        f"then gives is put into a clean run. All {paths.count:,} edges are estimated (EAP-IG, {STEPS} steps), and "
        f"the {len(paths.exact)} strongest measured. A line is wider where the lead moves more. FF: feed-forward network."
    )


def agreement_text(paths: Paths) -> str:
    """How well the estimates of the measured edges say their effects."""
    rho, signs = paths.agreement
    ranks = "" if rho is None else f", and Spearman’s ρ of both is {number(rho)}"
    return f"{percent(signs)} of the estimates have the sign that was measured{ranks}."


def path_rows(paths: Paths) -> list[list[str]]:
    """Every measured edge with its effect, its share of the whole, and its estimate."""
    estimates = paths.strongest(len(paths.exact))
    return [
        [edge.name, signed(-effect), percent(effect / paths.gap), signed(-estimates[edge])]
        for edge, effect in paths.measured.items()
    ]


# Sentences and equations.


def edges_fact(circuits: Circuits, kind: CompositionKind, picked: Head) -> str:
    """The strongest edge of the picked head, which the graph has in colour, and that of all."""
    first, (most, _) = circuits.pairs[kind][0], circuits.chance(kind)
    target, source = (plain(circuits.name(head)) for head in (first.target, first.source))
    level = circuits.random_level
    if first.score <= most:
        return (
            f"No head takes its {PARTS[kind]} from an earlier one more than random matrices would: the highest "
            f"{kind}-composition, {source} → {target}, is **{number(first.score + level)}**, and "
            f"random ones reach {number(most + level)}."
        )
    edges = circuits.edges(kind)
    own = next((edge for edge in edges if picked in (edge.source, edge.target)), first)
    to, by = (
        f":primary[**{name}**]" if head == picked else f"**{name}**"
        for head in (own.target, own.source)
        for name in [plain(circuits.name(head))]
    )
    beside = f"; of all pairs {source} → {target} has most, {number(first.score + level)}"
    return (
        f"The {PARTS[kind]} of {to} take{'' if own.source == picked else ' most'} from {by}: their {kind}-composition is "
        f"**{number(own.score + level)}**, where random matrices have {number(level)} on average"
        f"{'' if own == first else beside}."
    )


def twice(
    circuits: Circuits,
    circuit: InductionCircuit,
    keys: tuple[dict[str, float], float],
    least: float,
) -> str:
    """The circuit by patching and by weights, what its second head reads by its keys (`key_shares`), and `random_effect`."""
    first, second = (plain(circuits.name(head)) for head in circuit.patched)
    gained, regained = (percent(effect) for effect in circuit.effects)
    word, best = plain(circuit.word), circuits.pairs["K"][0]
    composed = best.source, best.target
    pair = " → ".join(plain(circuits.name(head)) for head in composed)
    composition = number(best.score + circuits.random_level)
    names = f"The strongest K-composition is another pair, {pair} ({composition})."
    if composed == circuit.patched:
        names = (
            "The weights alone name the same two: the strongest K-composition of the model is "
            f"{pair} ({composition})."
        )
    alone, every = keys
    most = max(alone, key=lambda name: alone[name])
    others = ": the other heads make up for it, so no one path into it shows what it carries"
    return (
        f"**The circuit, found twice.** After “{plain(PAIR[0].text)}” the model predicts “{word}”; with “dark” and "
        f"“cold” swapped, it predicts another word. Put back one at a time, **{first}** brings back {gained} of the "
        f"difference, the most in layer 0, and **{second}** {regained}, the most in layer 1. {names} {first} takes "
        f"{number(circuit.previous)} from the token before, and the last query of {second} takes "
        f"{number(circuit.answer)} from “{word}”. With text B in the keys of {second} from all earlier heads at once, "
        f"{percent(every)} of the difference goes; from {most} alone, the most of one head, {percent(alone[most])}"
        f"{others if alone[most] < every / 2 else ''}. In three models of these sizes with random weights, no measured path "
        f"moves the lead by more than {number(least)} logits."
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
    text = f"Neither is any of the {pairs:,} pairs of heads"
    if drawn:
        text = (
            f"Of {pairs:,} pairs of heads {above:,} {'is' if above == 1 else 'are'} above it, up to "
            f"{number(drawn[0].score + level)}; the graph has {len(drawn):,}, down to {number(drawn[-1].score + level)}"
        )
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
        f"Left out: {', '.join(missing)}, which have no softmax of queries and keys, whose matrices this page reads."
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
