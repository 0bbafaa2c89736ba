"""What a head can do: its OV and QK circuits and its composition with earlier heads, from the weights alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import streamlit as st

from core.interpret import circuits as core_circuits
from core.interpret.circuits import Composer, CompositionKind, HeadMatrices, fold_gain, thin_svd
from core.interpret.trace import Kind, to_numpy
from core.pretrained import PretrainedError
from core.studies.circuits import (
    PAIR,
    PAIRED_MODELS,
    STREAMS,
    AttentionMeasures,
    Circuits,
    Edge,
    Extremes,
    Head,
    InductionCircuit,
    carriers,
    default_head,
    default_token,
    directions,
    extremes,
    head_weights,
    induction_circuit,
    measure_attention,
    singular_values,
    token_of,
)
from dashboard.draw.formats import latex, number, percent, plain, signed
from dashboard.draw.grids import effect_grid
from dashboard.draw.page_exports import Cell, Script, add_script, source_of
from dashboard.draw.palette import Ink, Theme
from dashboard.draw.vega import PICKED, Spec, axis_style, figure, layer
from dashboard.server.cache import measurements
from dashboard.ui.fields import HERE, Fields, Number, Segmented, Select, Text, Values
from dashboard.ui.links import fragment
from dashboard.ui.model_picker import choose_head, choose_weights, current_head, input_errors
from dashboard.ui.models import ModelRef, is_small, load_model, model_cell, one_thread, study_of
from dashboard.ui.panels import (
    caption,
    chart_title,
    details,
    draw_chart,
    fact,
    field_error,
    next_page,
    paragraph,
    pressed_point,
    room,
    sources,
    table,
    theme,
    title,
)
from dashboard.ui.progress import UNASKED, measure_with_progress

# The attentions that were measured, by their index, for all sessions.
MEASURED = "circuits:measured"

# Composition as a graph over layers × heads, grids of measures, and singular values: arrays to Vega-Lite.


ROW, LEAST = 48, 200  # pixels of a layer in the graph, and of the whole graph
THIN, WIDE = 1.0, 7.0  # pixels of the weakest edge that is drawn, and of the strongest


def graph(circuits: Circuits, edges: Sequence[Edge], picked: Head, theme: Theme) -> Spec:
    """Heads as points, the first layer below, and edges, strongest first, wider where stronger; a click picks a head.

    Edges of the picked head are drawn in the accent. There may be no edges.
    """
    ink, scores = Ink.of(theme), [edge.score for edge in edges] or [0.0]
    most, least = scores[0], scores[-1]
    lines = [
        {
            "x": edge.source[1],
            "y": edge.source[0],
            "x2": edge.target[1],
            "y2": edge.target[0],
            "own": picked in (edge.source, edge.target),
            "wide": THIN + (WIDE - THIN) * (edge.score - least) / (most - least or 1.0),
            "name": f"{circuits.name(edge.source)} → {circuits.name(edge.target)}",
            "by": f"{edge.kind} {signed(edge.score)}",
        }
        for edge in edges
    ]
    nodes: list[Spec] = [
        {
            "x": head,
            "y": row,
            "layer": circuits.layer_name(row),
            "head": str(head),
            "name": circuits.name((row, head)),
            "own": (row, head) == picked,
            "linked": any((row, head) in (edge.source, edge.target) for edge in edges),
        }
        for row, head in circuits.all()
    ]
    at = {
        "x": _axis(
            "x", "head", [str(head) for head in range(max(node["x"] for node in nodes) + 1)], ink
        ),
        "y": _axis(
            "y", None, [circuits.layer_name(row) for row in range(len(circuits.heads))], ink
        ),
    }
    colour = {"condition": {"test": "datum.own", "value": ink.pick}, "value": ink.series[0]}
    tips = [{"field": "name", "title": "heads"}, {"field": "by", "title": "composition"}]
    strokes = layer(
        "rule",
        lines,
        {
            **at,
            "x2": {"field": "x2"},
            "y2": {"field": "y2"},
            "color": colour,
            "tooltip": tips,
            "strokeWidth": {"field": "wide", "type": "quantitative", "scale": None},
            "opacity": {"condition": {"test": "datum.own", "value": 0.95}, "value": 0.45},
        },
        strokeCap="round",
    )
    dots = layer(
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
    select = {"type": "point", "fields": ["layer", "head"], "on": "click", "toggle": False}
    return figure([strokes, dots | {"name": "cells"}], max(LEAST, ROW * len(circuits.heads))) | {
        "params": [{"name": PICKED, "views": ["cells"], "select": select}]
    }


def _axis(name: str, title: str | None, labels: Sequence[str], ink: Ink) -> Spec:
    """Whole numbers with a name each."""
    named = "[" + ",".join(f"'{label}'" for label in labels) + "][datum.value]"
    return {
        "field": name,
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [-0.5, len(labels) - 0.5], "nice": False, "zero": False},
        "axis": {
            **axis_style(ink),
            "values": list(range(len(labels))),
            "labelExpr": named,
            "grid": False,
        },
    }


def singular_bars(values: np.ndarray, theme: Theme) -> Spec:
    """A bar for each singular value, largest first."""
    ink = Ink.of(theme)
    rows = [
        {"rank": index + 1, "value": float(value), "text": number(float(value))}
        for index, value in enumerate(values)
    ]
    at = {
        "x": {
            "field": "rank",
            "type": "ordinal",
            "title": None,
            "axis": {**axis_style(ink), "labelAngle": 0, "labelOverlap": True, "grid": False},
        },
        "y": {
            "field": "value",
            "type": "quantitative",
            "title": None,
            "axis": {**axis_style(ink), "tickCount": 3, "grid": False},
        },
        "tooltip": [
            {"field": "rank", "title": "direction"},
            {"field": "text", "title": "singular value"},
        ],
    }
    return figure([layer("bar", rows, at, color=ink.series[0], cornerRadius=1)], 110)


# The controls: the kind of composition, the number of edges, the head, and the token that is followed.


KIND, EDGES, HEAD, TOKEN = (f"circuits:{name}" for name in ("kind", "edges", "head", "token"))
OF = "circuits:of"  # the model that the head belongs to
READS = {"Q": "its queries", "K": "its keys", "V": "its values"}
MAX_EDGES = 60


FIELDS = Fields(
    "circuits",
    kind=Segmented(
        "Composition",
        lambda values: {one: f"{one}: {READS[one][4:]}" for one in values.circuits.kinds},
        when=lambda values: values.circuits.kinds,
        help="What a head reads of the output of an earlier one: as its queries (Q), its keys (K) or its values (V).",
    ),
    edges=Number(
        "Strongest edges",
        8,
        1,
        MAX_EDGES,
        slider=True,
        also=lambda values: {"width": room(200)},
        help="How many pairs of heads the graph connects at most: those that compose most, and none that random "
        "matrices would reach.",
    ),
    head=Select(
        "Head to open",
        lambda values: list(values.names),
        lambda values: values.circuits.name(default_head(values.circuits)),
        hidden=True,
        also=lambda values: {
            "width": room(170),
            "on_change": _choose,
            "args": (values.ref, values.circuits),
        },
        help="Layer and head, counted from 0. You can also click a head in the graph or in a grid.",
    ),
    token=Text(
        "Example token",
        also=lambda values: {"placeholder": values.word},
        help="Any word that the model has as a token; of a longer one its first token is taken. The head is shown what "
        "it does at this token, as a key and as a query.",
    ),
)


def _chosen(ref: ModelRef, circuits: Circuits) -> Head | None:
    """The head that was picked on another page."""
    if (stored := current_head(ref)) is None:
        return None
    kind, (layer, head) = stored
    return next(
        (
            (row, head)
            for row, one in enumerate(circuits.heads)
            if (one.kind, one.layer) == (kind, layer) and head < len(one.w_v)
        ),
        None,
    )


def names_of(circuits: Circuits) -> dict[str, Head]:
    return {circuits.name(head): head for head in circuits.all()}


def _choose(ref: ModelRef, circuits: Circuits) -> None:
    row, head = names_of(circuits)[st.session_state[HEAD]]
    choose_head(ref, circuits.heads[row].kind, (circuits.heads[row].layer, head))


def pick_from(key: str, ref: ModelRef, circuits: Circuits) -> None:
    """Open the head that was pressed in a figure; for a callback."""
    point = pressed_point(key)
    if point and (name := f"{point['layer']}·H{point['head']}") in names_of(circuits):
        st.session_state[HEAD] = name
        _choose(ref, circuits)


def draw_controls(ref: ModelRef, circuits: Circuits) -> Values:
    """Draw the controls in one row; returns the model, the kind of composition (None where heads compose in none), how
    many edges, a head, and a token with its word."""
    names, state = names_of(circuits), st.session_state
    with st.container(horizontal=True, vertical_alignment="top", key="circuits:row"):
        drawn = FIELDS.draw("kind", "edges", into=HERE, circuits=circuits)
        if state.setdefault(OF, ref) != ref or state.get(HEAD) not in names:
            state[HEAD] = circuits.name(_chosen(ref, circuits) or default_head(circuits))
        state[OF] = ref
        given = {"ref": ref, "circuits": circuits, "names": names}
        head = names[FIELDS.draw("head", into=HERE, **given).head]
        token, word = _token_field(ref, circuits, head)
    return Values(ref=ref, kind=drawn.kind, edges=drawn.edges, head=head, token=token, word=word)


def _token_field(ref: ModelRef, circuits: Circuits, head: Head) -> tuple[int, str]:
    """The token that is followed; the usual one where nothing was typed, and after an error, which is written below."""
    if not circuits.has_tokens(head[0]):
        return 0, ""
    token, word = study_of(default_token, ref, circuits.heads[head[0]].reads, given=WEIGHTS)
    with st.container(width=room(190)):
        typed = FIELDS.draw("token", into=HERE, word=word).token
        try:
            if typed.strip():
                token, pieces = token_of(load_model(ref), typed)
                word = typed.strip()
                if pieces > 1:
                    st.caption(plain(f"“{word[:40]}” is {pieces} tokens; the first is taken."))
        except PretrainedError as error:
            field_error(error)
    return token, word


# What the page computes as Python.


HEADS = "The matrices of every head, with the norms' gains folded in, and two measures of each."
SCRIPT_EDGES = (
    "Composition of each head with the heads before it, less the level of random matrices."
)
SCRIPT_HEAD = "One head: the singular values of its circuits, and what they make of one token."
PATCHED = "The same circuit by patching: the heads of each layer that bring back most of the difference of two texts."


def script(controls: Values, circuits: Circuits) -> Script:
    """The measures of every head, compositions of the chosen kind, and the circuits of the open head."""
    copying = [one.copying for one in circuits.measures]
    results = {
        "[one.tolist() for one in ranks]": np.array(
            [one.ranks.tolist() for one in circuits.measures]
        )
    }
    tokens = copying[0] is not None
    more = (
        "\ncopying = [copying_scores(one, vocabularies) for one in heads]  # -1 to 1"
        if tokens
        else ""
    )
    cells = [
        model_cell(controls.ref),
        Cell(
            HEADS,
            f"""
from core.interpret.circuits import {"copying_scores, " if tokens else ""}effective_rank, ov_factors, qk_factors
from core.interpret.circuits import read_heads, read_vocabularies

heads = read_heads(model)  # of each layer W_Q, W_K, W_V (H, C, D) and W_O (H, D, C)
vocabularies = read_vocabularies(model){more}
ranks = [effective_rank(ov_factors(one)[1]) for one in heads]  # of W_V W_O, by its singular values
""",
            """
import altair as alt
import pandas as pd

cells = [{"layer": layer, "head": head, "rank": float(value)}
         for layer, one in enumerate(ranks) for head, value in enumerate(one)]
alt.Chart(pd.DataFrame(cells)).mark_rect().encode(x="head:O", y="layer:O", color="rank:Q")
""",
            "circuits:rank",
        ),
    ]
    if tokens:
        results["[one.tolist() for one in copying]"] = np.array(
            [one.tolist() for one in copying if one is not None]
        )
    if controls.kind is not None:
        pairs = circuits.pairs(controls.kind)
        cells.append(
            Cell(
                SCRIPT_EDGES,
                f"""
from core.interpret.circuits import compositions

scores = compositions(heads)  # by kind (Q, K, V), earlier and later layer: (heads, heads)
pairs = sorted(((float(score), (earlier, a), (later, b)) for (kind, earlier, later), one in scores.items()
                if kind == {controls.kind!r} for a, row in enumerate(one) for b, score in enumerate(row)), reverse=True)
for score, source, target in pairs[:{controls.edges}]:
    print(f"{controls.kind}: {{source}} -> {{target}} {{score:+.3f}}")
""",
            )
        )
        results["[score for score, *_ in pairs]"] = np.array([edge.score for edge in pairs])
    more, values = _head(controls, circuits)
    cells.append(Cell(SCRIPT_HEAD, more))
    if (circuit := _induction(controls.ref, circuits)) is not None:
        clean, swapped = (source_of(one.text) for one in PAIR)
        cells.append(
            Cell(
                PATCHED,
                f"""
from core.pretrained import ModelInputs
from core.interpret.patching import pair_of, patch, ranked

clean = ModelInputs({clean})
swapped = ModelInputs({swapped})
pair = pair_of(model, clean, swapped)
best = ranked(patch(pair), "denoise")  # ((kind, layer), head, share of the difference), the largest first
shares = [next(share for (_, layer), head, share in best if layer == number) for number in (0, 1)]
print(best[:5])
""",
            )
        )
        results["shares"] = np.array(circuit.effects)
    return Script(tuple(cells), results | values)


def _head(controls: Values, circuits: Circuits) -> tuple[str, dict[str, np.ndarray]]:
    row, head = controls.head
    one, tables = circuits.heads[row], circuits.vocabularies
    singular = study_of(singular_values, controls.ref, controls.head, given=WEIGHTS)
    lines = [f"ov = ov_factors(heads[{row}])[1][{head}]  # singular values of W_V W_O"]
    results = {"ov": singular["OV"]}
    if "QK" in singular:
        lines.append(f"qk = qk_factors(heads[{row}])[1][{head}]  # of W_Q W_K transposed")
        results["qk"] = singular["QK"]
    if circuits.has_tokens(row):
        lines[:0] = ["from core.pretrained.generate import token_names", ""]
        lines += [
            f"token = {controls.token}  # {controls.word!r}",
            f"written = vocabularies.written(heads[{row}], {head}, token)  # (V,) what attending to it adds to "
            "each logit",
            'print("raises", *token_names(model, written.topk(8).indices).values())',
        ]
        results["written"] = to_numpy(tables.written(one, head, controls.token))
        attended = tables.attended(one, head, controls.token)
        if attended is not None:
            lines += [
                f"attended = vocabularies.attended(heads[{row}], {head}, token)  # (V,) the score of its query "
                "with each key",
                'print("matches", *token_names(model, attended.topk(8).indices).values())',
            ]
            results["attended"] = to_numpy(attended)
    return "\n".join(lines), results


# The page's sentences and equations.


PAPER = (
    "[Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)",
    "[Roy and Vetterli 2007](https://infoscience.epfl.ch/record/110188)",
)
PARTS: dict[CompositionKind, str] = {"Q": "queries", "K": "keys", "V": "values"}


def edges_fact(circuits: Circuits, kind: CompositionKind) -> str:
    """The strongest composition of a kind, beside that of random matrices."""
    first, (most, _) = circuits.pairs(kind)[0], circuits.chance(kind)
    names = [plain(circuits.name(head)) for head in (first.target, first.source)]
    if first.score <= most:
        return (
            f"No head takes its {PARTS[kind]} from an earlier one more than random matrices would: the highest "
            f"{kind}-composition, {names[1]} → {names[0]}, is **{signed(first.score)}** beside the mean of random "
            f"matrices, and one of these reaches {signed(most)}."
        )
    return (
        f"The {PARTS[kind]} of **{names[0]}** take most from **{names[1]}**: their {kind}-composition is "
        f"**{number(first.score + circuits.random_level)}**, {signed(first.score)} above the "
        f"{number(circuits.random_level)} that random matrices have on average."
    )


def drawn_text(circuits: Circuits, kind: CompositionKind, above: int, edges: Sequence[Edge]) -> str:
    """Which compositions are lines, and what random matrices reach."""
    most, count = circuits.chance(kind)
    pairs = len(circuits.pairs(kind))
    text = (
        f"A line is drawn only above {signed(most)}, the most that random matrices reach: of {count:,} pairs in "
        "which the earlier head has its own singular values and random directions, none is above it. "
    )
    if not edges:
        return f"{text}Neither is any of the {pairs:,} pairs of heads."
    text += f"Of {pairs:,} pairs of heads {above:,} {'is' if above == 1 else 'are'}"
    if above > 1:
        text += (
            "; all are drawn"
            if len(edges) == above
            else f"; the {len(edges):,} strongest are drawn"
        )
        text += f", the thinnest with {signed(edges[-1].score)}"
    return f"{text}."


def twice(circuits: Circuits, circuit: InductionCircuit) -> str:
    """The circuit by patching, by composition and by where the heads attend."""
    first, second = (plain(circuits.name(head)) for head in circuit.patched)
    gained, regained = (percent(effect) for effect in circuit.effects)
    word = plain(circuit.word)
    text = (
        f"**The circuit, found twice.** After “{plain(PAIR[0].text)}” the model predicts “{word}”, with “dark” and "
        f"“cold” swapped another word. Put back one at a time, **{first}** brings back {gained} of the difference, "
        f"the most in layer 0, and **{second}** {regained}, the most in layer 1. "
    )
    composed = (circuit.composed.source, circuit.composed.target)
    if composed == circuit.patched:
        text += (
            f"The weights alone name the same two: the strongest K-composition of the model is "
            f"{first} → {second} ({signed(circuit.composed.score)}). "
        )
    else:
        other = " → ".join(plain(circuits.name(head)) for head in composed)
        text += (
            f"The strongest K-composition is another pair, {other} ({signed(circuit.composed.score)}): several "
            "heads share the work. "
        )
    return text + (
        f"{first} puts {number(circuit.previous)} of its weight on the token before, and the last query of "
        f"{second} puts {number(circuit.answer)} on “{word}”."
    )


def head_fact(circuits: Circuits, head: Head) -> str:
    """A head's copying score, its effective rank, and the earlier heads that it takes most from."""
    row, index = head
    name, size = plain(circuits.name(head)), circuits.heads[row].w_v.shape[-1]
    text = f"Head :primary[**{name}**]"
    copying = circuits.measures[row].copying
    if copying is not None:
        score = float(copying[index])
        does = (
            "copies: attending to a token raises that token"
            if score > 0.5
            else "does the opposite of copying: attending to a token lowers that token"
            if score < -0.5
            else "neither copies nor removes what it attends to"
        )
        text += f" {does}, with a copying score of **{number(score)}**. Its OV circuit"
    text += (
        f" has an effective rank of {number(float(circuits.measures[row].ranks[index]))} of {size}."
    )
    best = circuits.best_into(head)
    if not best:
        return f"{text} No head that it reads comes before it, so it composes with none."
    parts = [
        f"its {PARTS[kind]} from **{plain(circuits.name(edge.source))}** ({signed(edge.score)})"
        for kind, edge in best.items()
        if edge.score > circuits.chance(kind)[0]
    ]
    if not parts:
        return f"{text} It composes with no earlier head more than random matrices do."
    return f"{text} It takes {' and '.join(parts)} more than random matrices would."


def no_embedding(word: str, stream: Kind) -> str:
    """Why a token has no effect: a vocabulary that two languages share has words that one side lacks."""
    return f"The {STREAMS[stream]} has no embedding of “{plain(word)}”. Type a word that it reads."


def extreme_rows(values: Extremes) -> list[list[str]]:
    return [
        [up, signed(high), down, signed(low)]
        for (up, high), (down, low) in zip(values.most, values.least, strict=True)
    ]


def equations(
    circuits: Circuits, head: Head, best: Mapping[CompositionKind, Edge]
) -> tuple[str, ...]:
    """The two circuits, the copying score and the composition, with the numbers of this head where it has them."""
    lines = [r"M_{OV} = W_V W_O, \qquad M_{QK} = W_Q W_K^\top"]
    copying = circuits.measures[head[0]].copying
    if copying is not None:
        lines.append(
            rf"\text{{copying}} = \frac{{\sum_i \lambda_i}}{{\sum_i |\lambda_i|}} = "
            rf"{latex(float(copying[head[1]]))}, \qquad \lambda = "
            rf"\text{{eigenvalues of }} W_E\, M_{{OV}}\, W_U"
        )
    if edge := best.get("K"):
        lines.append(
            r"\text{K-composition} = \frac{\lVert M_{OV}^{A}\,(M_{QK}^{B})^\top\rVert}"
            r"{\lVert M_{OV}^{A}\rVert\,\lVert M_{QK}^{B}\rVert} = "
            rf"{latex(edge.score + circuits.random_level)}, \qquad \text{{at random }} "
            rf"\frac{{1}}{{\sqrt C}} = {latex(circuits.random_level)}"
        )
    return tuple(lines)


def conditions(circuits: Circuits, name: str, row: int) -> str:
    """What was folded in, left out and read through what."""
    one, tables = circuits.heads[row], circuits.vocabularies
    parts = [
        f"{plain(name)}: from the weights alone; no text was read.",
        "The gain of the norm before each matrix is folded into it, and the centering of a LayerNorm; biases, "
        "positions and the changing scale of the norms are left out, and so is what feed-forward layers do in "
        "between.",
    ]
    if one.kv_heads < len(one.w_v):
        parts.append(f"{len(one.w_v)} query heads share {one.kv_heads} heads of keys and values.")
    if one.w_q is None:
        parts.append(
            "This family normalizes queries and keys, so no one matrix compares them: there is no QK circuit."
        )
    if one.gated:
        parts.append(
            "The query's token gates what the head writes, by numbers of its own for each dimension or head; "
            "the circuits are those of a gate of 1."
        )
    if not circuits.has_tokens(row):
        parts.append(_no_tokens(one, circuits))
    else:
        parts.append("Special tokens are left out of the lists.")
    if circuits.has_tokens(row) and one.writes in tables.by_embedding:
        parts.append(
            "There is no unembedding here, so what is written is read through the embedding of the tokens."
        )
    return " ".join(parts)


def _no_tokens(one: HeadMatrices, circuits: Circuits) -> str:
    if not circuits.vocabularies.embeddings:
        return "It reads no tokens, so its circuits cannot be read as words."
    return "Its tokens have embeddings of another width or vocabulary, so its circuits cannot be read as words."


# The page What a head can do: composition as a graph, three measures of every head, and the circuits of one.


WEIGHTS = (head_weights,)  # what studies of a model's heads get beside the model
FIRST = ModelRef("lab", "only-attention")
SOURCES = (
    core_circuits.read_heads,
    fold_gain,
    thin_svd,
    core_circuits.Composer,
    core_circuits.copying_scores,
    core_circuits.effective_rank,
)


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "What a head can do",
        "A head’s weights say what it can move and where it can look, before any text is read.",
    )
    choice = choose_weights(FIRST, ("model", "qkv"))
    if choice is not None:
        with input_errors():
            _measured(choice[0])
    next_page("circuits")


def _measured(ref: ModelRef) -> None:
    with st.spinner("Reading the weights of every head, once per model"):
        rows = range(len(study_of(head_weights, ref).heads))
    measured = measure_with_progress(MEASURED, ref, rows, measures_of(ref), "layers", UNASKED)
    if len(measured) < len(rows):
        return
    _circuits(ref)  # Stop cannot interrupt a fragment


def measures_of(ref: ModelRef) -> Callable[[int], AttentionMeasures]:
    """A function that measures one attention, by its index, and keeps what the next ones need of it."""
    weights, small = study_of(head_weights, ref), is_small(load_model(ref))
    composer = Composer(weights.heads)

    def measure(row: int) -> AttentionMeasures:
        with one_thread(small):
            return measure_attention(weights, composer, row)

    return measure


def circuits_of(ref: ModelRef) -> Circuits:
    """The circuits of a model; what was not measured yet is measured now. PretrainedError as in `read_heads`."""
    weights, values, measure = (
        study_of(head_weights, ref),
        measurements(MEASURED, ref),
        measures_of(ref),
    )
    rows = range(len(weights.heads))
    for row in rows:
        if row not in values:
            values[row] = measure(row)
    return Circuits(weights.heads, weights.vocabularies, tuple(values[row] for row in rows))


def _induction(ref: ModelRef, circuits: Circuits) -> InductionCircuit | None:
    """The induction circuit of the lab's repeating models; None for other models."""
    if ref.source != "lab" or ref.name not in PAIRED_MODELS:
        return None
    return study_of(induction_circuit, ref, circuits.pairs("K")[0])


@fragment
def _circuits(ref: ModelRef) -> None:
    """Draw the controls and all that they change, which reruns alone."""
    with input_errors():
        _draw(ref)


def _draw(ref: ModelRef) -> None:
    circuits = circuits_of(ref)
    controls = draw_controls(ref, circuits)
    add_script(partial(script, controls, circuits))
    _graph(controls, circuits)
    if (circuit := _induction(ref, circuits)) is not None:
        paragraph(twice(circuits, circuit))
    if ref == ModelRef("lab", "names"):
        lines = ["**A head for each answer, by patching.**"]
        for one in study_of(carriers, ref):
            answers = f"the logit of “{plain(one.answer)}” minus that of “{plain(one.other)}”"
            lines.append(
                f"After “{plain(one.texts[0])}” the model predicts “{plain(one.answer)}”, after "
                f"“{plain(one.texts[1])}” it predicts “{plain(one.other)}”. Put back alone, "
                f"**{plain(circuits.name(one.head))}** brings back {percent(one.effect)} of the difference. It "
                f"puts {number(one.weight)} of its weight on “{plain(one.key)}”, and directly adds "
                f"{signed(one.adds[0])} to {answers}; in the second text it adds {signed(one.adds[1])}."
            )
        paragraph(" ".join(lines))
    _grids(controls, circuits)
    fact(head_fact(circuits, controls.head))
    _page_head(controls, circuits)
    for line in equations(circuits, controls.head, circuits.best_into(controls.head)):
        st.latex(line)
    caption(conditions(circuits, ref.name, controls.head[0]))
    papers = f"Circuits, copying score and composition: {PAPER[0]}. Effective rank: {PAPER[1]}."
    details("Papers and source", partial(sources, papers, *SOURCES), "circuits:source")


def _graph(controls: Values, circuits: Circuits) -> None:
    if controls.kind is None:
        st.caption(
            "No head comes after another here, or none reads by one matrix, so there is no composition to draw."
        )
        return
    edges = circuits.edges(controls.kind)
    drawn = edges[: controls.edges]
    chart_title(f"Composition: from which earlier heads the {PARTS[controls.kind]} of a head read")
    _pickable(
        graph(circuits, drawn, controls.head, theme()),
        "circuits:graph",
        controls,
        circuits,
        "Heads by layer, connected where a later one reads what an earlier one writes",
    )
    fact(edges_fact(circuits, controls.kind))
    caption(drawn_text(circuits, controls.kind, len(edges), drawn))


def _grids(controls: Values, circuits: Circuits) -> None:
    """Draw copying, effective rank and the best composition of every head."""
    copying = {
        (row, head): float(one.copying[head])
        for row, one in enumerate(circuits.measures)
        if one.copying is not None
        for head in range(len(one.copying))
    }
    ranks = {
        (row, head): float(value)
        for row, one in enumerate(circuits.measures)
        for head, value in enumerate(one.ranks)
    }
    best = {
        head: max(edge.score for edge in edges.values())
        for head in circuits.all()
        if (edges := circuits.best_into(head))
    }
    grids = (
        ("Copying score", copying, "copying", True),
        ("Effective rank of OV", ranks, "rank", False),
        ("Best composition", best, "above random", True),
    )
    shown = [one for one in grids if one[1]]
    for column, (name, values, unit, has_sign) in zip(
        st.columns(len(shown), gap="medium"), shown, strict=True
    ):
        with column:
            chart_title(name)
            rows = [
                {
                    "layer": circuits.layer_name(row),
                    "head": str(head),
                    "change": value,
                    "name": circuits.name((row, head)),
                    "by": signed(value) if has_sign else number(value),
                }
                for (row, head), value in values.items()
            ]
            heads = max(len(one.w_v) for one in circuits.heads)
            layers = [circuits.layer_name(row) for row in range(len(circuits.heads))]
            _pickable(
                effect_grid(
                    rows,
                    layers,
                    [str(head) for head in range(heads)],
                    (layers[controls.head[0]], str(controls.head[1])),
                    theme(),
                    title=unit,
                    tips=(("name", "head"), ("by", unit)),
                    has_sign=has_sign,
                ),
                f"circuits:{unit.split()[0]}",
                controls,
                circuits,
                f"{name} of every head, layers by heads",
            )


def _pickable(spec: Spec, key: str, controls: Values, circuits: Circuits, alt: str) -> None:
    draw_chart(
        st,
        spec,
        key=key,
        alt=alt,
        selection_mode=[PICKED],
        on_select=lambda: pick_from(key, controls.ref, circuits),
    )


def _page_head(controls: Values, circuits: Circuits) -> None:
    """Draw what the head writes and what it looks for: singular values, one token, and the largest directions."""
    values = study_of(singular_values, controls.ref, controls.head, given=WEIGHTS)
    titles = {"OV": "What it moves", "QK": "What it looks for"}
    for column, name in zip(st.columns(2, gap="medium"), values, strict=False):
        with column:
            st.markdown(f"## {titles[name]}")
            chart_title(f"Singular values of its {name} circuit")
            draw_chart(
                st,
                singular_bars(values[name], theme()),
                key=f"circuits:{name}",
                alt=f"The singular values of the {name} circuit, largest first",
            )
            if circuits.has_tokens(controls.head[0]):
                (_moves if name == "OV" else _matches)(controls, circuits)
                ends = ("reads", "writes") if name == "OV" else ("queries", "keys")
                moved = study_of(directions, controls.ref, controls.head, name, given=WEIGHTS)
                rows = [
                    [number(one.value), ", ".join(one.first), ", ".join(one.second)]
                    for one in moved
                ]
                chart_title(
                    f"Its largest directions, by the tokens at both ends: {ends[0]} → {ends[1]}"
                )
                table(
                    ["value", *ends],
                    rows,
                    markers=False,
                    left=(1, 2),
                    wrap=True,
                    caption=f"Largest singular directions of the {name} circuit",
                )


def _moves(controls: Values, circuits: Circuits) -> None:
    """Draw the tokens that attending to the token raises and lowers."""
    written = study_of(extremes, controls.ref, controls.head, "OV", controls.token, given=WEIGHTS)
    if written is None:
        st.caption(no_embedding(controls.word, circuits.heads[controls.head[0]].reads))
        return
    place = (
        "itself most"
        if written.rank == 1
        else f"**{plain(written.most[0][0])}** most, and itself as number {written.rank:,} of {written.count:,}"
    )
    paragraph(
        f"Where {plain(circuits.name(controls.head))} attends to :primary[**{plain(controls.word)}**], it raises {place}."
    )
    table(
        ["raises", "logit", "lowers", "logit"],
        extreme_rows(written),
        markers=False,
        left=(0, 2),
        caption=f"Tokens that attending to {controls.word} raises and lowers",
    )


def _matches(controls: Values, circuits: Circuits) -> None:
    """Draw the keys that the token's query matches most and least."""
    scores = study_of(extremes, controls.ref, controls.head, "QK", controls.token, given=WEIGHTS)
    if scores is None:
        st.caption(no_embedding(controls.word, circuits.heads[controls.head[0]].writes))
        return
    key, score = scores.most[0]
    paragraph(
        f"By content alone, the query of :primary[**{plain(controls.word)}**] matches the key **{plain(key)}** most, "
        f"with a score of {signed(score)}."
    )
    table(
        ["key", "score", "key", "score"],
        extreme_rows(scores),
        markers=False,
        left=(0, 2),
        caption=f"Keys that the query of {controls.word} matches most and least",
    )
