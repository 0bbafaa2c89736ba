"""What a head can do: its OV and QK circuits and its composition with earlier heads, from the weights alone."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret import circuits as study, paths as study_paths
from core.interpret.evidence import Baseline, Question
from core.interpret.paths import Paths
from core.interpret.trace import STREAMS, Head
from core.pretrained import ModelInputs, PretrainedError
from dashboard.draw import circuits as draw

MEASURED = (
    "circuits:measured"  # the attentions that were measured, by their index, for all sessions
)
USUAL = lab.ModelRef("lab", "only-attention")
WEIGHTS = (study.head_weights,)  # what studies of a model's heads get beside the model


def choose(controls: "Controls") -> None:
    """Store the head of the field for other pages, too."""
    row, head = controls.circuits.names[Controls.read("head", circuits=controls.circuits).head]
    one = controls.circuits.heads[row]
    lab.choose_head(controls.ref, one.kind, (one.layer, head))


class Controls(lab.Fields, page="circuits"):
    ref: lab.ModelRef
    circuits: study.Circuits
    word: str  # the usual token
    kind = lab.Segmented[study.CompositionKind](
        "Composition",
        lambda c: {one: f"{one}: {draw.PARTS[one]}" for one in c.circuits.pairs},
        help="What a head reads of the output of an earlier one: as its queries (Q), its keys (K) or its values (V).",
    ).optional(lambda c: c.circuits.pairs)
    edges = lab.Number[int](
        "Strongest edges",
        8,
        1,
        60,
        slider=True,
        also=lambda c: {"width": lab.room(200)},
        help="How many pairs of heads the graph connects at most: those that compose most, and none that random "
        "matrices would reach.",
    )
    head = lab.Select[str](
        "Head to open",
        lambda c: list(c.circuits.names),
        lambda c: c.circuits.name(study.default_head(c.circuits)),
        hidden=True,
        also=lambda c: {"width": lab.room(160), "on_change": partial(choose, c)},
        help="Layer and head, counted from 0. You can also click a head in the graph or in a grid.",
    )
    token = lab.Text(
        "Example token",
        also=lambda c: {"placeholder": c.word},
        help="Any word that the model has as a token; of a longer one its first token is taken. The head is shown what "
        "it does at this token, as a key and as a query.",
    )
    of = lab.SessionValue[lab.ModelRef | None](None)  # the model that the head belongs to
    baseline: Baseline
    drawn: tuple[str, ...]  # the names of the edges that were measured
    first: str
    text_a = lab.Text(
        "Text A",
        lambda c: draw.texts(c.ref.name)[0],
        key=lambda c: f"text_a:{c.ref.name}",
        help="Its answer is followed: how far it leads the answer to text B.",
    )
    text_b = lab.Text(
        "Text B",
        lambda c: draw.texts(c.ref.name)[1],
        key=lambda c: f"text_b:{c.ref.name}",
        help="What a part makes of this text takes the place of what it makes of text A. Both have equally many tokens.",
    )
    answer_a = lab.OutputField("Answer of text A", part="answer:A")
    answer_b = lab.OutputField("Answer of text B", part="answer:B")
    paths = lab.Number[int](
        "Edges",
        12,
        1,
        60,
        slider=True,
        also=lambda c: {"width": lab.room(200)},
        help="How many edges are drawn: of those that were measured, the ones with the largest effects.",
    )
    edge = lab.Select[str](
        "Edge to read",
        lambda c: c.drawn,
        lambda c: c.first,
        also=lambda c: {"width": lab.room(240)},
        help="You can also click an edge in the graph.",
    )


class Picked(NamedTuple):
    """The head, and the token that is followed with its word."""

    head: Head
    token: int
    word: str


def page() -> None:
    lab.title(
        "What a head can do",
        "Where a head takes from a word, it makes some words likelier to come next.",
    )
    choice = lab.choose_model(("model", "qkv"), usual=USUAL, has_inputs=False)
    if choice is not None:
        lab.fragment_unless_measuring(partial(explore, choice.ref))


def measure(ref: lab.ModelRef) -> study.Circuits | None:
    """The circuits of all heads, measured with progress; None where that was stopped."""
    with st.spinner("Reading the weights of every head, once per model"):
        weights = lab.study_of(study.head_weights, ref)
    composer = study.Composer(weights.heads)  # which keeps what the next ones need
    measured = lab.measure_with_progress(
        MEASURED,
        ref,
        range(len(weights.heads)),
        partial(study.measure_attention, weights, composer),
        "layers",
        lab.UNASKED,
    )
    if len(measured) < len(weights.heads):
        return None
    circuits = study.Circuits(weights.heads, weights.vocabularies, tuple(measured.values()))
    return lab.recorded(study.measure_circuits, (weights,), circuits)


@lab.input_errors()
def explore(ref: lab.ModelRef) -> None:
    if (circuits := measure(ref)) is None:
        return
    controls, picked = draw_controls(ref, circuits)
    if missing := draw.missing_layers(circuits):
        st.caption(missing)
    head, has_tokens = picked.head, circuits.has_tokens(picked.head[0])
    values = lab.study_of(study.singular_values, ref, head, given=WEIGHTS)
    results: dict[str, Any] = {"singular": values}
    if has_tokens:
        results["moves"] = of_token(controls, picked, "OV")
    else:
        every_head(controls, head, draw.measure_grids(circuits))
    lab.fact(draw.head_fact(circuits, head))
    if has_tokens and "QK" in values:
        results["seeks"] = of_token(controls, picked, "QK")
    with lab.settings_panel("Which heads it reads, and its strongest directions"):
        lab.paragraph(draw.reads_text(circuits, head))
        if has_tokens:  # the first stands beside what it does
            every_head(controls, head, draw.measure_grids(circuits)[1:])
        for column, name in zip(st.columns(2, gap="medium"), values, strict=False):
            with column:
                lab.draw_chart(
                    st,
                    draw.singular_bars(values[name], lab.theme()),
                    key=f"circuits:{name}",
                    alt=f"The singular values of the {name} circuit, largest first",
                    heading=f"Singular values of its {name} circuit",
                )
                if has_tokens:
                    directions(ref, head, name)
    st.markdown("## Which heads read from which")
    with st.container(horizontal=True, vertical_alignment="top"):
        controls = controls.draw_more("kind", "edges", into=lab.HERE)
    if (kind := controls.kind) is None:
        st.caption(
            "No head comes after another here, or none reads by one matrix, so there is no composition to draw."
        )
    else:
        compositions(controls, kind, head)
    if (paths := paths_section(ref)) is not None:
        results["paths"] = paths
    with lab.settings_panel("Equations, and what is left out"):
        for line in draw.equations(circuits, head, circuits.best_into(head)):
            st.latex(line, width="content")
        lab.caption(draw.conditions(circuits, ref.name, head[0]))
    if ref.source == "lab" and ref.name in study.PAIRED_MODELS:
        circuit = results["circuit"] = lab.study_of(study.induction_circuit, ref)
        keys = lab.study_of(study_paths.key_shares, ref, circuit.patched[1])
        lab.paragraph(
            draw.twice(circuits, circuit, keys, lab.study_of(study_paths.random_effect, ref))
        )
    if ref == lab.ModelRef("lab", "names"):
        carriers = results["carriers"] = lab.study_of(study.carriers, ref)
        lab.paragraph(draw.carriers_text(circuits, carriers))
    results = {name: one for name, one in results.items() if one is not None}
    stories = [STORIES[name] for name in STORIES if name in results]
    if kind is not None:
        stories.append(
            lab.Cell("The strongest pairs of heads.", PAIRS.format(kind, controls.edges))
        )
    draws = {"circuits:rank": RANK_CODE}
    lab.as_python(measures=circuits.measures, **results, draw=draws, also=stories)
    lab.details(
        "Papers and source",
        partial(
            lab.sources,
            "Circuits, copying score and composition: "
            "[Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html). "
            "Effective rank: [Roy and Vetterli 2007](https://infoscience.epfl.ch/record/110188). "
            "Path patching: [Wang et al. 2023](https://arxiv.org/abs/2211.00593), "
            "[Goldowsky-Dill et al. 2023](https://arxiv.org/abs/2304.05969). "
            "EAP-IG: [Hanna et al. 2024](https://arxiv.org/abs/2403.17806).",
            study.read_heads,
            study.fold_gain,
            study.thin_svd,
            study.Composer,
            study.copying_scores,
            study.effective_rank,
            study_paths.measure_edges,
            study_paths.estimate_edges,
        ),
        "circuits:source",
    )


def every_head(
    controls: Controls, head: Head, measures: Sequence[tuple[str, dict[Head, float], str, bool]]
) -> None:
    for column, (name, of_heads, unit, has_sign) in zip(
        st.columns(len(measures), gap="medium"), measures, strict=True
    ):
        lab.chart_title(name, column)
        chart = draw.measure_chart(controls.circuits, of_heads, unit, has_sign, head, lab.theme())
        alt = f"{name}, layers by heads"
        pickable(column, chart, f"circuits:{unit.split()[0]}", controls, alt)


STORIES = {
    "moves": lab.Cell(
        "The tokens that attending to it raises most.",
        "print('raises', *(token for token, _ in moves.most))\n",
    ),
    "seeks": lab.Cell(
        "The keys that its query matches most.",
        "print('matches', *(token for token, _ in seeks.most))\n",
    ),
    "paths": lab.Cell(
        "The edges that change the answer's lead most, measured.",
        "for edge, effect in paths.measured.items():\n    print(f'{edge.name}: {-effect:+.2f}')\n",
    ),
}
PAIRS = """
for edge in circuits.edges({0!r})[:{1}]:
    print(f"{0}: {{edge.source}} -> {{edge.target}} {{edge.score:+.3f}}")
"""
RANK_CODE = """
import altair as alt
import pandas as pd

cells = [{"layer": layer, "head": head, "rank": float(value)}
         for layer, one in enumerate(measures) for head, value in enumerate(one.ranks)]
alt.Chart(pd.DataFrame(cells)).mark_rect().encode(x="head:O", y="layer:O", color="rank:Q")
"""


def draw_controls(ref: lab.ModelRef, circuits: study.Circuits) -> tuple[Controls, Picked]:
    """Draw the head and the token in one row."""
    usual = study.default_head(circuits)
    with st.container(horizontal=True, vertical_alignment="top", key="circuits:row"):
        if Controls.of.value != ref:
            # The head that was picked on another page
            stored = lab.current_head(ref)
            named = (
                name
                for name, (row, head) in circuits.names.items()
                if stored == (circuits.heads[row].kind, (circuits.heads[row].layer, head))
            )
            Controls.set(head=next(named, circuits.name(usual)))
        Controls.of.value = ref
        controls = Controls.draw("head", into=lab.HERE, ref=ref, circuits=circuits, word="")
        head = circuits.names[controls.head]
        if not circuits.has_tokens(head[0]):
            return controls, Picked(head, 0, "")
        # whose word the others of its stream get, too
        same = circuits.heads[usual[0]].reads == circuits.heads[head[0]].reads
        token, word = lab.study_of(study.default_token, ref, usual if same else head, given=WEIGHTS)
        with st.container(width=lab.room(180)):
            typed = controls.draw_more("token", into=lab.HERE, word=word).token.strip()
            try:
                if typed:
                    (token, pieces), word = study.token_of(lab.load_model(ref), typed), typed
                    if pieces > 1:
                        st.caption(
                            lab.plain(f"“{word[:40]}” is {pieces} tokens; the first is taken.")
                        )
            except PretrainedError as error:  # the usual token is followed
                lab.field_error(error)
    return controls, Picked(head, token, word)


def compositions(controls: Controls, kind: study.CompositionKind, head: Head) -> None:
    """Draw the graph of one kind; Export has the composition of every pair of heads."""
    circuits = controls.circuits
    lab.chart_title(f"From which earlier heads the {draw.PARTS[kind]} of a head read")
    columns = lab.table_columns(dict(zip(("kind", "from", "to", "score"), draw.PAIRS, strict=True)))
    pickable(
        st,
        draw.graph(circuits, circuits.edges(kind)[: controls.edges], head, lab.theme()) | columns,
        "circuits:graph",
        controls,
        "Heads by layer, connected where a later one reads what an earlier one writes",
    )
    rows = tuple(
        (edge.kind, *map(circuits.name, (edge.source, edge.target)), edge.score)
        for edges in circuits.pairs.values()
        for edge in edges
    )
    title = "Composition of every pair of heads"
    lab.add("circuits:pairs", lambda: lab.TablePicture(title, draw.PAIRS, rows))
    lab.fact(draw.edges_fact(circuits, kind, head))
    lab.caption(draw.drawn_lines(circuits, kind, controls.edges))


def paths_section(ref: lab.ModelRef) -> Paths | None:
    """Draw which edges carry the difference between two texts; None where that is not known, or not yet."""
    st.markdown("## Which path an answer takes")
    model = lab.load_model(ref)
    if not model.reads_text or model.head in ("none", "seq2seq"):
        lab.caption(
            "Paths are followed in a model that reads a text and writes. Take one such as writer or GPT-2."
        )
        return None
    with lab.input_errors():
        with st.container(horizontal=True):
            controls = Controls.draw("text_a", "text_b", into=lab.HERE, ref=ref)
        texts = ModelInputs(controls.text_a), ModelInputs(controls.text_b)
        row = st.container(horizontal=True, vertical_alignment="bottom")
        with row:
            first, second = (
                Controls.draw(
                    name, into=lab.HERE, ref=ref, baseline=lab.baseline_of(ref, Question(one))
                )[name]
                for name, one in zip(("answer_a", "answer_b"), texts, strict=True)
            )
            count = Controls.draw("paths", into=lab.HERE).paths
        answers = first, second
        about = ref, *texts, answers
        listed = lab.study_of(study_paths.list_edges, *about)
        change = cache(lambda: study_paths.change_texts(model, *texts, answers))
        steps = lab.measure_with_progress(
            "circuits:gradients",
            about,
            range(1, study_paths.STEPS + 1),
            lambda step: study_paths.estimate_step(change(), step),
            "gradients",
        )
        if len(steps) < study_paths.STEPS:
            return None
        paths = replace(listed, estimates=np.mean([*steps.values()], 0))
        exact = lab.measure_with_progress(
            "circuits:exact",
            about,
            list(paths.strongest(max(count, study_paths.EXACT))),
            lambda edge: study_paths.measure_edges(change(), [edge])[0],
            "edges",
        )
        if not exact:
            return None
        paths = replace(paths, exact=np.array([*exact.values()]))
        draw_paths(paths, count, row)
        return lab.recorded(study_paths.find_paths, (*about, len(exact)), paths)
    return None


def draw_paths(paths: Paths, count: int, row: lab.Place) -> None:
    """Draw the graph of the edges with the largest measured effects, and what the one that is picked in the row carries."""
    names = {edge.name: edge for edge in list(paths.measured)[:count]}
    first = next(
        (edge.name for edge in paths.between_heads if edge.name in names), next(iter(names))
    )

    def pick() -> None:
        if point := lab.pressed_point("circuits:paths_graph"):
            Controls.set(edge=point["name"])

    picked = names[Controls.draw("edge", into=row, drawn=tuple(names), first=first).edge]
    lab.draw_chart(
        st,
        draw.path_graph(paths, count, picked, lab.theme()),
        key="circuits:paths_graph",
        alt="The parts of the model by layer, connected where one carries the difference between two texts to another",
        heading="From which part to which the difference between the texts runs",
        selection_mode=[lab.PICKED],
        on_select=pick,
    )
    lab.fact(draw.path_fact(paths, picked))
    lab.paragraph(draw.between_heads_text(paths))
    lab.caption(draw.paths_text(paths))
    measured = lab.lazy_panel(
        f"The {len(paths.exact)} edges that were measured", "circuits:measured_edges"
    )
    if measured.open:
        with measured:
            columns = ["edge", "change of the lead", "share of the whole", "estimate"]
            caption = "Measured edges, the largest first"
            lab.table(columns, draw.path_rows(paths), caption=caption, markers=False)
            lab.caption(draw.agreement_text(paths))


def pickable(
    place: lab.Place | ModuleType, spec: lab.Spec, key: str, controls: Controls, alt: str
) -> None:
    def pick() -> None:
        point = lab.pressed_point(key)
        if point and (name := f"{point['layer']}·H{point['head']}") in controls.circuits.names:
            Controls.set(head=name)
            choose(controls)

    lab.draw_chart(place, spec, key=key, alt=alt, selection_mode=[lab.PICKED], on_select=pick)


def of_token(controls: Controls, picked: Picked, circuit: str) -> study.Extremes | None:
    """What a circuit of the head makes of the token; None where its stream has none."""
    head, word, moves = picked.head, picked.word, circuit == "OV"
    shown = lab.study_of(study.extremes, controls.ref, head, circuit, picked.token, given=WEIGHTS)
    one = controls.circuits.heads[head[0]]
    if shown is None:
        stream = STREAMS[one.reads if moves else one.writes]
        st.caption(
            f"The {stream} has no embedding of “{lab.plain(word)}”. Type a word that it reads."
        )
        return None
    if moves:
        fact = draw.moves_fact(shown, controls.circuits.name(head), word)
        heading, unit = "What it adds to the score of each next word", "change of the logit"
    else:
        fact = draw.seeks_fact(shown, word)
        heading, unit = f"How well each key matches the query “{word}”", "score"
    lab.fact(fact)  # a phone shows it before the bars
    left, right = st.columns([0.56, 0.44], gap="medium")
    if moves:
        with right:
            every_head(controls, head, draw.measure_grids(controls.circuits)[:1])
    lab.draw_chart(
        left,
        draw.extremes_chart(shown, unit, lab.theme()),
        key=f"circuits:{'moves' if moves else 'seeks'}",
        alt=f"{heading}: the largest and the smallest of {shown.count} tokens",
        heading=lab.plain(heading),
    )
    return shown


def directions(ref: lab.ModelRef, head: Head, name: str) -> None:
    ends = ("reads", "writes") if name == "OV" else ("queries", "keys")
    largest = lab.study_of(study.directions, ref, head, name, given=WEIGHTS)
    lab.chart_title(f"Its largest directions, by the tokens at both ends: {ends[0]} → {ends[1]}")
    lab.table(
        ["value", *ends],
        [[lab.number(value), ", ".join(one), ", ".join(other)] for value, one, other in largest],
        markers=False,
        left=(1, 2),
        wrap=True,
        caption=f"Largest singular directions of the {name} circuit",
    )
