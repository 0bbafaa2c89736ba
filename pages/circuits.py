"""What a head can do: its OV and QK circuits and its composition with earlier heads, from the weights alone."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret.circuits import (
    PAIR,
    PAIRED_MODELS,
    Circuits,
    Composer,
    CompositionKind,
    Edge,
    InductionCircuit,
    carriers,
    copying_scores,
    default_head,
    default_token,
    directions,
    effective_rank,
    extremes,
    fold_gain,
    head_weights,
    induction_circuit,
    measure_attention,
    read_heads,
    singular_values,
    thin_svd,
    token_of,
)
from core.interpret.trace import STREAMS, Head, to_numpy
from core.pretrained import PretrainedError

# The attentions that were measured, by their index, for all sessions.
MEASURED = "circuits:measured"

# Composition as a graph over layers × heads, grids of measures, and singular values: arrays to Vega-Lite.


ROW, LEAST = 48, 200  # pixels of a layer in the graph, and of the whole graph
THIN, WIDE = 1.0, 7.0  # pixels of the weakest edge that is drawn, and of the strongest


PICK = {"type": "point", "fields": ["layer", "head"], "on": "click", "toggle": False}


def graph(circuits: Circuits, edges: Sequence[Edge], picked: Head, theme: lab.Theme) -> lab.Spec:
    """Heads as points, the first layer below, and edges, strongest first, wider where stronger; a click picks a head.

    Edges of the picked head are drawn in the accent. There may be no edges.
    """
    ink, scores = lab.Ink.of(theme), [edge.score for edge in edges] or [0.0]
    most, least = scores[0], scores[-1]
    nodes: list[lab.Spec] = [
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
                **lab.axis_style(ink),
                "values": list(range(len(labels))),
                "labelExpr": f"[{','.join(map(lab.quoted, labels))}][datum.value]",
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
            "by": f"{edge.kind} {lab.signed(edge.score)}",
            "from": circuits.name(edge.source),
            "to": circuits.name(edge.target),
            "kind": edge.kind,
            "score": edge.score,
        }
        for edge in edges
    ]
    return lab.figure(
        [
            lab.layer(
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
            lab.layer(
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
    ) | {"params": [{"name": lab.PICKED, "views": ["cells"], "select": PICK}]}


def singular_bars(values: np.ndarray, theme: lab.Theme) -> lab.Spec:
    style = lab.axis_style(lab.Ink.of(theme))
    return lab.figure(
        [
            lab.layer(
                "bar",
                [
                    {"rank": rank, "value": float(value), "text": lab.number(float(value))}
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
                color=lab.Ink.of(theme).series[0],
                cornerRadius=1,
            )
        ],
        110,
    )


# The controls: the kind of composition, the number of edges, the head, and the token that is followed.


HEAD = "circuits:head"
OF = "circuits:of"  # the model that the head belongs to
MATRICES = {"OV": "W_V W_O", "QK": "W_Q W_K transposed"}  # of which a circuit is
PARTS: dict[CompositionKind, str] = {"Q": "queries", "K": "keys", "V": "values"}


class Controls(lab.Fields, page="circuits"):
    kind = lab.Segmented(
        "Composition",
        lambda values: {one: f"{one}: {PARTS[one]}" for one in values.circuits.pairs},
        help="What a head reads of the output of an earlier one: as its queries (Q), its keys (K) or its values (V).",
    ).optional(lambda values: values.circuits.pairs)
    edges = lab.Number(
        "Strongest edges",
        8,
        1,
        60,
        slider=True,
        also=lambda values: {"width": lab.room(200)},
        help="How many pairs of heads the graph connects at most: those that compose most, and none that random "
        "matrices would reach.",
    )
    head = lab.Select[str](
        "Head to open",
        lambda values: list(values.circuits.names),
        lambda values: values.circuits.name(default_head(values.circuits)),
        hidden=True,
        also=lambda values: {
            "width": lab.room(160),
            "on_change": _choose,
            "args": (values.ref, values.circuits),
        },
        help="Layer and head, counted from 0. You can also click a head in the graph or in a grid.",
    )
    token = lab.Text(
        "Example token",
        also=lambda values: {"placeholder": values.word},
        help="Any word that the model has as a token; of a longer one its first token is taken. The head is shown what "
        "it does at this token, as a key and as a query.",
    )


def _choose(ref: lab.ModelRef, circuits: Circuits) -> None:
    row, head = circuits.names[st.session_state[HEAD]]
    lab.choose_head(ref, circuits.heads[row].kind, (circuits.heads[row].layer, head))


def draw_controls(ref: lab.ModelRef, circuits: Circuits) -> lab.Values:
    """Draw the controls in one row; returns the model, a head, and a token with its word."""
    names, state = circuits.names, st.session_state
    with st.container(horizontal=True, vertical_alignment="top", key="circuits:row"):
        if state.setdefault(OF, ref) != ref or state.get(HEAD) not in names:
            # The head that was picked on another page
            stored = lab.current_head(ref)
            state[HEAD] = next(
                (
                    name
                    for name, (row, head) in names.items()
                    if stored == (circuits.heads[row].kind, (circuits.heads[row].layer, head))
                ),
                circuits.name(default_head(circuits)),
            )
        state[OF] = ref
        head = names[Controls.draw("head", into=lab.HERE, ref=ref, circuits=circuits).head]
        # The token that is followed; the usual one where nothing was typed, and after an error, which is written below
        token, word = 0, ""
        if circuits.has_tokens(head[0]):
            copies = default_head(circuits)  # whose word the others of its stream get, too
            if circuits.heads[copies[0]].reads != circuits.heads[head[0]].reads:
                copies = head
            token, word = lab.study_of(default_token, ref, copies, given=WEIGHTS)
            with st.container(width=lab.room(180)):
                typed = Controls.draw("token", into=lab.HERE, word=word).token.strip()
                try:
                    if typed:
                        (token, pieces), word = token_of(lab.load_model(ref), typed), typed
                        if pieces > 1:
                            st.caption(
                                lab.plain(f"“{word[:40]}” is {pieces} tokens; the first is taken.")
                            )
                except PretrainedError as error:
                    lab.field_error(error)
    return lab.Values(ref=ref, head=head, token=token, word=word)


# What the page computes as Python.


def script(controls: lab.Values, circuits: Circuits) -> lab.Script:
    ranks, copying = (
        [getattr(one, name) for one in circuits.measures] for name in ("ranks", "copying")
    )
    measures = {"[one.tolist() for one in ranks]": [one.tolist() for one in ranks]}
    imports, more = "", ""
    if copying[0] is not None:
        imports = "copying_scores, "
        more = "\ncopying = [copying_scores(one, vocabularies) for one in heads]  # -1 to 1"
        measures["[one.tolist() for one in copying]"] = [one.tolist() for one in copying]
    cells = [
        lab.model_cell(controls.ref),
        lab.Cell(
            "The matrices of every head, with the norms' gains folded in, and two measures of each.",
            f"""
from core.interpret.circuits import {imports}effective_rank, ov_factors, qk_factors
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
            measures,
        ),
    ]
    if controls.kind is not None:
        pairs = circuits.pairs[controls.kind]
        cells.append(
            lab.Cell(
                "Composition of each head with the heads before it, less the level of random matrices.",
                f"""
from core.interpret.circuits import compositions

scores = compositions(heads)  # by kind (Q, K, V), earlier and later layer: (heads, heads)
pairs = sorted(((float(score), (earlier, a), (later, b)) for (kind, earlier, later), one in scores.items()
                if kind == {controls.kind!r} for a, row in enumerate(one) for b, score in enumerate(row)), reverse=True)
for score, source, target in pairs[:{controls.edges}]:
    print(f"{controls.kind}: {{source}} -> {{target}} {{score:+.3f}}")
""",
                results={"[score for score, *_ in pairs]": [edge.score for edge in pairs]},
            )
        )
    row, head = controls.head
    one, tables, token = circuits.heads[row], circuits.vocabularies, controls.token
    singular = lab.study_of(singular_values, controls.ref, controls.head, given=WEIGHTS)
    results: dict[str, Any] = {name.lower(): values for name, values in singular.items()}
    lines = [
        f"{name.lower()} = {name.lower()}_factors(heads[{row}])[1][{head}]  # singular values of {MATRICES[name]}"
        for name in singular
    ]
    if circuits.has_tokens(row):
        lines[:0] = ["from core.pretrained.generate import token_names", ""]
        lines.append(f"token = {token}  # {controls.word!r}")
        for name, verb, meaning in (
            ("written", "raises", "what attending to it adds to each logit"),
            ("attended", "matches", "the score of its query with each key"),
        ):
            if (values := getattr(tables, name)(one, head, token)) is not None:
                lines += [
                    f"{name} = vocabularies.{name}(heads[{row}], {head}, token)  # (V,) {meaning}",
                    f'print("{verb}", *token_names(model, {name}.topk(8).indices).values())',
                ]
                results[name] = to_numpy(values)
    cells.append(
        lab.Cell(
            "One head: the singular values of its circuits, and what they make of one token.",
            "\n".join(lines),
            results=results,
        )
    )
    if (circuit := _induction(controls.ref)) is not None:
        clean, swapped = (lab.source_of(one.text) for one in PAIR)
        cells.append(
            lab.Cell(
                "The same circuit by patching: the heads of each layer that bring back most of the difference of two texts.",
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
                results={"shares": circuit.effects},
            )
        )
    return lab.Script(tuple(cells))


# The page's sentences and equations.


def edges_fact(circuits: Circuits, kind: CompositionKind) -> str:
    first, (most, _) = circuits.pairs[kind][0], circuits.chance(kind)
    target, source = (lab.plain(circuits.name(head)) for head in (first.target, first.source))
    if first.score <= most:
        return (
            f"No head takes its {PARTS[kind]} from an earlier one more than random matrices would: the highest "
            f"{kind}-composition, {source} → {target}, is **{lab.signed(first.score)}** beside the mean of random "
            f"matrices, and one of these reaches {lab.signed(most)}."
        )
    return (
        f"The {PARTS[kind]} of **{target}** take most from **{source}**: their {kind}-composition is "
        f"**{lab.number(first.score + circuits.random_level)}**, where random matrices have "
        f"{lab.number(circuits.random_level)} on average."
    )


def twice(circuits: Circuits, circuit: InductionCircuit) -> str:
    first, second = (lab.plain(circuits.name(head)) for head in circuit.patched)
    gained, regained = (lab.percent(effect) for effect in circuit.effects)
    word, best = lab.plain(circuit.word), circuits.pairs["K"][0]
    composed = best.source, best.target
    pair = " → ".join(lab.plain(circuits.name(head)) for head in composed)
    names = (
        f"The strongest K-composition is another pair, {pair} ({lab.signed(best.score)}): several "
        "heads share the work."
    )
    if composed == circuit.patched:
        names = (
            "The weights alone name the same two: the strongest K-composition of the model is "
            f"{pair} ({lab.signed(best.score)})."
        )
    return (
        f"**The circuit, found twice.** After “{lab.plain(PAIR[0].text)}” the model predicts “{word}”; with “dark” and "
        f"“cold” swapped, it predicts another word. Put back one at a time, **{first}** brings back {gained} of the "
        f"difference, the most in layer 0, and **{second}** {regained}, the most in layer 1. {names} {first} puts "
        f"{lab.number(circuit.previous)} of its weight on the token before, and the last query of {second} puts "
        f"{lab.number(circuit.answer)} on “{word}”."
    )


def head_fact(circuits: Circuits, head: Head) -> str:
    row, index = head
    measures, size = circuits.measures[row], circuits.heads[row].w_v.shape[-1]
    text = f"Head :primary[**{lab.plain(circuits.name(head))}**]"
    if measures.copying is not None:
        score = float(measures.copying[index])
        does = (
            "copies: over all tokens, attending to one raises that one"
            if score > 0.5
            else "does the opposite of copying: over all tokens, attending to one lowers that one"
            if score < -0.5
            else "neither copies nor removes what it attends to"
        )
        text += f" {does}, with a copying score of **{lab.number(score)}**. Its OV circuit"
    text += f" has an effective rank of {lab.number(float(measures.ranks[index]))} of {size}."
    best = circuits.best_into(head)
    parts = [
        f"its {PARTS[kind]} from **{lab.plain(circuits.name(edge.source))}** ({lab.signed(edge.score)})"
        for kind, edge in best.items()
        if edge.score > circuits.chance(kind)[0]
    ]
    takes = "No head that it reads comes before it, so it composes with none."
    if best:
        takes = "It composes with no earlier head more than random matrices do."
    if parts:
        takes = f"It takes {' and '.join(parts)} more than random matrices would."
    return f"{text} {takes}"


def drawn_lines(circuits: Circuits, kind: CompositionKind, at_most: int) -> str:
    edges = circuits.edges(kind)
    drawn = edges[:at_most]
    (most, count), pairs, above = circuits.chance(kind), len(circuits.pairs[kind]), len(edges)
    text = f"Of {pairs:,} pairs of heads {above:,} {'is' if above == 1 else 'are'} above it"
    if not drawn:
        text = f"Neither is any of the {pairs:,} pairs of heads"
    elif above > 1:
        text += "; all are" if len(drawn) == above else f"; the {len(drawn):,} strongest are"
        text += f" drawn, the thinnest with {lab.signed(drawn[-1].score)}"
    return (
        f"A line is drawn only above {lab.signed(most)}, the most that random matrices reach: of {count:,} pairs in "
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
        rf"{lab.latex(float(copying[head[1]]))}, \qquad \lambda = "
        rf"\text{{eigenvalues of }} W_E\, M_{{OV}}\, W_U",
        edge
        and r"\text{K-composition} = \frac{\lVert M_{OV}^{A}\,(M_{QK}^{B})^\top\rVert}"
        r"{\lVert M_{OV}^{A}\rVert\,\lVert M_{QK}^{B}\rVert} = "
        rf"{lab.latex(edge.score + level)}, \qquad \text{{at random }} "
        rf"\frac{{1}}{{\sqrt C}} = {lab.latex(level)}",
    )
    return tuple(line for line in lines if line)


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
            f"{lab.plain(name)}: from the weights alone; no text was read. The gain of the norm before each matrix is "
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


# The page What a head can do: composition as a graph, three measures of every head, and the circuits of one.


USUAL = lab.ModelRef("lab", "only-attention")
WEIGHTS = (head_weights,)  # what studies of a model's heads get beside the model


def page() -> None:
    lab.title(
        "What a head can do",
        "Where a head attends to a word, it makes some words likelier to come next.",
    )
    choice = lab.choose_model(("model", "qkv"), usual=USUAL, has_inputs=False)
    if choice is not None:
        if choice.ref == USUAL:
            lab.caption(
                f"The page opens with {USUAL.name}: no feed-forward layers stand between a head "
                "and the output. Choose another above, such as all-MiniLM-L6-v2; the other pages "
                "then have it, too."
            )
        lab.fragment_unless_measuring(partial(_circuits, choice.ref))


def _induction(ref: lab.ModelRef) -> InductionCircuit | None:
    return (
        lab.study_of(induction_circuit, ref)
        if ref.source == "lab" and ref.name in PAIRED_MODELS
        else None
    )


@lab.input_errors()
def _circuits(ref: lab.ModelRef) -> None:
    with st.spinner("Reading the weights of every head, once per model"):
        weights = lab.study_of(head_weights, ref)
    composer = Composer(weights.heads)  # which keeps what the next ones need
    measured = lab.measure_with_progress(
        MEASURED,
        ref,
        range(len(weights.heads)),
        partial(measure_attention, weights, composer),
        "layers",
        lab.UNASKED,
    )
    if len(measured) < len(weights.heads):
        return
    circuits = Circuits(weights.heads, weights.vocabularies, tuple(measured.values()))
    controls = draw_controls(ref, circuits)
    row, has_tokens = controls.head[0], circuits.has_tokens(controls.head[0])
    if has_tokens:
        _of_token(controls, circuits, "OV")
    st.markdown("## Every head")
    _grids(controls, circuits)
    lab.fact(head_fact(circuits, controls.head))
    if has_tokens and "QK" in lab.study_of(singular_values, ref, controls.head, given=WEIGHTS):
        _of_token(controls, circuits, "QK")
    _page_head(controls, circuits)
    st.markdown("## Which heads read from which")
    with st.container(horizontal=True, vertical_alignment="top"):
        drawn = Controls.draw("kind", "edges", into=lab.HERE, circuits=circuits)
    controls = lab.Values(**controls, kind=drawn.kind, edges=drawn.edges)
    lab.add_script(partial(script, controls, circuits))
    if (kind := controls.kind) is None:
        st.caption(
            "No head comes after another here, or none reads by one matrix, so there is no composition to draw."
        )
    else:
        lab.chart_title(f"From which earlier heads the {PARTS[kind]} of a head read")
        _pickable(
            st,
            graph(circuits, circuits.edges(kind)[: controls.edges], controls.head, lab.theme())
            | lab.table_columns(dict(zip(("kind", "from", "to", "score"), PAIRS, strict=True))),
            "circuits:graph",
            controls,
            circuits,
            "Heads by layer, connected where a later one reads what an earlier one writes",
        )
        _note_pairs(circuits)
        lab.fact(edges_fact(circuits, kind))
        lab.caption(drawn_lines(circuits, kind, controls.edges))
    for line in equations(circuits, controls.head, circuits.best_into(controls.head)):
        st.latex(line, width="content")
    lab.caption(conditions(circuits, ref.name, row))
    if (circuit := _induction(ref)) is not None:
        lab.paragraph(twice(circuits, circuit))
    if ref == lab.ModelRef("lab", "names"):
        lines = ["**A head for each answer, by patching.**"]
        for one in lab.study_of(carriers, ref):
            answers = (
                f"the logit of “{lab.plain(one.answer)}” minus that of “{lab.plain(one.other)}”"
            )
            lines.append(
                f"After “{lab.plain(one.texts[0])}” the model predicts “{lab.plain(one.answer)}”, after "
                f"“{lab.plain(one.texts[1])}” it predicts “{lab.plain(one.other)}”. Put back alone, "
                f"**{lab.plain(circuits.name(one.head))}** brings back {lab.percent(one.effect)} of the difference. It "
                f"puts {lab.share_text(one.weight)} of its weight on “{lab.plain(one.key)}”, and directly adds "
                f"{lab.signed(one.adds[0])} to {answers}; in the second text it adds {lab.signed(one.adds[1])}."
            )
        lab.paragraph(" ".join(lines))
    lab.details(
        "Papers and source",
        partial(
            lab.sources,
            "Circuits, copying score and composition: "
            "[Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html). "
            "Effective rank: [Roy and Vetterli 2007](https://infoscience.epfl.ch/record/110188).",
            read_heads,
            fold_gain,
            thin_svd,
            Composer,
            copying_scores,
            effective_rank,
        ),
        "circuits:source",
    )


def _grids(controls: lab.Values, circuits: Circuits) -> None:
    copying, ranks = (
        {
            (row, head): float(value)
            for row, one in enumerate(circuits.measures)
            if (values := getattr(one, name)) is not None
            for head, value in enumerate(values)
        }
        for name in ("copying", "ranks")
    )
    grids = (
        ("Copying score", copying, "copying", True),
        ("Effective rank of OV", ranks, "rank", False),
        (
            "Best composition",
            {
                head: max(edge.score for edge in edges.values())
                for head in circuits.all()
                if (edges := circuits.best_into(head))
            },
            "above random",
            True,
        ),
    )
    shown = [one for one in grids if one[1]]
    layers, heads = circuits.layer_names, circuits.head_names
    for column, (name, values, unit, has_sign) in zip(
        st.columns(len(shown), gap="medium"), shown, strict=True
    ):
        lab.chart_title(name, column)
        _pickable(
            column,
            lab.effect_grid(
                [
                    {
                        "layer": layers[row],
                        "head": heads[head],
                        "change": value,
                        "name": circuits.name((row, head)),
                        "by": lab.signed(value) if has_sign else lab.number(value),
                    }
                    for (row, head), value in values.items()
                ],
                layers,
                heads,
                (layers[controls.head[0]], heads[controls.head[1]]),
                lab.theme(),
                title=unit,
                tips=(("name", "head"), ("by", unit)),
                has_sign=has_sign,
            ),
            f"circuits:{unit.split()[0]}",
            controls,
            circuits,
            f"{name} of every head, layers by heads",
        )


PAIRS = ("composition", "from head", "to head", "above random")


def _note_pairs(circuits: Circuits) -> None:
    """Have Export offer the composition of every pair of heads, of which the graph draws the strongest of one kind."""
    rows = tuple(
        (edge.kind, *map(circuits.name, (edge.source, edge.target)), edge.score)
        for edges in circuits.pairs.values()
        for edge in edges
    )
    lab.add(
        "circuits:pairs",
        lambda: lab.TablePicture("Composition of every pair of heads", PAIRS, rows),
    )


def _pickable(
    place: Any, spec: lab.Spec, key: str, controls: lab.Values, circuits: Circuits, alt: str
) -> None:
    def pick() -> None:
        point = lab.pressed_point(key)
        if point and (name := f"{point['layer']}·H{point['head']}") in circuits.names:
            st.session_state[HEAD] = name
            _choose(controls.ref, circuits)

    lab.draw_chart(place, spec, key=key, alt=alt, selection_mode=[lab.PICKED], on_select=pick)


def _of_token(controls: lab.Values, circuits: Circuits, circuit: str) -> None:
    """What a circuit of the head makes of the token."""
    head, word = controls.head, controls.word
    one = circuits.heads[head[0]]
    moves = circuit == "OV"
    st.markdown(f"## {'What it moves' if moves else 'What it looks for'}")
    shown = lab.study_of(extremes, controls.ref, head, circuit, controls.token, given=WEIGHTS)
    if shown is None:
        stream = STREAMS[one.reads if moves else one.writes]
        st.caption(
            f"The {stream} has no embedding of “{lab.plain(word)}”. Type a word that it reads."
        )
        return
    first, score = shown.most[0]
    if moves:
        (second, lower), *_ = shown.most[1:]
        place = (
            f"**{lab.plain(word)}** itself most, by {lab.signed(score)}; **{lab.plain(second)}** is next, "
            f"with {lab.signed(lower)}"
        )
        if shown.rank > 1:
            place = (
                f"**{lab.plain(first)}** most, and **{lab.plain(word)}** itself more than "
                f"{shown.count - shown.rank:,} of {shown.count:,} tokens"
            )
        says = (
            f"Where {lab.plain(circuits.name(head))} attends to :primary[**{lab.plain(word)}**], it raises the "
            f"logit of {place}."
        )
        columns = ("raises", "logit by", "lowers", "logit by")
        meaning = f"Tokens that attending to {word} raises and lowers"
    else:
        says = (
            f"By content alone, the query of :primary[**{lab.plain(word)}**] matches the key "
            f"**{lab.plain(first)}** most, with a score of {lab.signed(score)}."
        )
        columns = ("matches most", "score", "matches least", "score")
        meaning = f"Keys that the query of {word} matches most and least"
    left, right = st.columns([0.56, 0.44], gap="medium")
    with right:
        lab.fact(says)
    with left:
        rows = [
            [up, lab.signed(high), down, lab.signed(low)]
            for (up, high), (down, low) in zip(shown.most, shown.least, strict=True)
        ]
        both = lab.TablePicture(meaning, ("token", columns[1]), (*shown.most, *shown.least[::-1]))
        lab.table(columns, rows, markers=False, left=(0, 2), caption=meaning, exported=both)


def _page_head(controls: lab.Values, circuits: Circuits) -> None:
    head, study = controls.head, partial(lab.study_of, given=WEIGHTS)
    values = study(singular_values, controls.ref, head)
    with lab.settings_panel("Its strongest directions"):
        for column, name in zip(st.columns(2, gap="medium"), values, strict=False):
            with column:
                lab.draw_chart(
                    st,
                    singular_bars(values[name], lab.theme()),
                    key=f"circuits:{name}",
                    alt=f"The singular values of the {name} circuit, largest first",
                    heading=f"Singular values of its {name} circuit",
                )
                if not circuits.has_tokens(head[0]):
                    continue
                ends = ("reads", "writes") if name == "OV" else ("queries", "keys")
                rows = [
                    [lab.number(value), ", ".join(first), ", ".join(second)]
                    for value, first, second in study(directions, controls.ref, head, name)
                ]
                lab.chart_title(
                    f"Its largest directions, by the tokens at both ends: {ends[0]} → {ends[1]}"
                )
                lab.table(
                    ["value", *ends],
                    rows,
                    markers=False,
                    left=(1, 2),
                    wrap=True,
                    caption=f"Largest singular directions of the {name} circuit",
                )
