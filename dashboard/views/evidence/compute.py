"""Numbers of a reading and its question: measures of heads, cells and tokens, and how they agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from core.interpret.evidence import (
    Baseline,
    Contributions,
    Effect,
    Question,
    answering_rows,
    make_heads_uniform,
    measure_contributions,
    quantity_values,
    token_scores,
)
from core.interpret.trace import flow, flows, graph, rollout
from core.pretrained import ModelInputs
from core.pretrained.answers import display_names, top_candidates
from core.pretrained.attention_recorder import HeadSet
from core.ranks import spearman
from dashboard.draw.formats import distinct
from dashboard.server.cache import measurements, shared
from dashboard.ui.models import ModelRef, baseline_of, reading_of
from dashboard.views.evidence.controls import Controls, Head

T = TypeVar("T")
WITHOUT_HEADS, WITHOUT_TOKENS = "evidence:heads", "evidence:tokens"  # names of measurements
WHOLE_FLOW = (
    48  # tokens up to which the flow to every row is computed; beyond, to the picked row alone
)
MAX_FLOW = 160
SHORT = 128  # tokens up to which a second thread costs a forward pass more than it saves
MAX_ANSWERS, MAX_OTHERS = (
    4,
    2,
)  # likeliest answers of the whole model, and of the model without some heads
WAYS = ("on", "uniform", "off")  # what may become of heads


@dataclass(frozen=True, eq=False)
class HeadMaps:
    """One head's map (T, S) by each measure that is available.

    `lengths` (T, S) are ‖v·W_O‖; `known` (T, S) are the cells of the flow that were computed (None: all).
    """

    maps: dict[str, np.ndarray]
    lengths: np.ndarray | None
    known: np.ndarray | None


def contributions_of(controls: Controls) -> Contributions:
    """Norms and gradients of the question; shared by all sessions."""
    if controls.baseline is None:
        return Contributions({}, {}, False)
    return shared(_contributions, controls.ref, controls.question)


def _contributions(ref: ModelRef, question: Question) -> Contributions:
    return measure_contributions(baseline_of(ref, question))


def scores(controls: Controls) -> dict[str, np.ndarray]:
    """The score of each token of the source by each measure."""
    return shared(_scores, controls.ref, controls.question)


def _scores(ref: ModelRef, question: Question) -> dict[str, np.ndarray]:
    trace = reading_of(ref, question.inputs).trace
    return token_scores(baseline_of(ref, question), trace, _contributions(ref, question))


def flow_map(
    controls: Controls, row: int, query: int
) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Flow up to and with a layer (T, S), and which cells were computed (None: all); None when the text is too long."""
    item, inputs = controls.maps[row], controls.question.inputs
    longest = max(len(item.queries), len(item.keys))
    if longest > MAX_FLOW:
        return None
    if longest <= WHOLE_FLOW:
        return shared(_flow, controls.ref, inputs, row, None), None
    values = np.zeros((len(item.queries), len(item.keys)))
    known = np.zeros(values.shape, bool)
    values[query], known[query] = shared(_flow, controls.ref, inputs, row, query), True
    return values, known


def _flow(ref: ModelRef, inputs: ModelInputs, row: int, query: int | None) -> np.ndarray:
    """The flow to one query (S,), or to all (T, S)."""
    trace = reading_of(ref, inputs).trace
    layer_graph = graph(trace, trace.maps[row].kind, trace.maps[row].layer)
    return flows(layer_graph) if query is None else flow(layer_graph, query)


def written_share(controls: Controls, head: Head) -> np.ndarray | None:
    """What a head writes at each cell (T, S), as a share of its row; None where its values are unknown."""
    item = controls.maps[head[0]]
    norms = contributions_of(controls).norm_map(item.kind, item.layer, item.weights)
    return (
        None
        if norms is None
        else norms[head[1]] / np.maximum(norms[head[1]].sum(-1, keepdims=True), 1e-12)
    )


def head_maps(controls: Controls, head: Head, query: int) -> HeadMaps:
    """Every measure of one head; rollout and flow are of all heads, up to and with its layer."""
    item, contributions = controls.maps[head[0]], contributions_of(controls)
    keys = item.weights.shape[-1]
    maps, lengths = {"weights": item.weights[head[1]]}, None
    written = written_share(controls, head)
    if written is not None:
        maps["written"] = written
        lengths = contributions.norms[item.kind, item.layer][head[1]]
        lengths = np.broadcast_to(lengths, (len(item.queries), lengths.shape[-1]))
    gradients = contributions.gradient_map(item.kind, item.layer, keys)
    if gradients is not None:
        maps["gradient"] = gradients[head[1]]
    maps["rollout"] = rollout(graph(controls.reading.trace, item.kind, item.layer))
    flowing = flow_map(controls, head[0], query)
    if flowing is not None:
        maps["flow"] = flowing[0]
    wide = {
        name: np.pad(values, ((0, 0), (0, keys - values.shape[1]))) for name, values in maps.items()
    }
    return HeadMaps(wide, lengths, None if flowing is None else flowing[1])


def default_cell(controls: Controls, head: Head) -> tuple[int, int]:
    """The largest weight of the row that answers; of several such rows, the cell whose weight differs most from what
    is written."""
    item = controls.maps[head[0]]
    weights = item.weights[head[1]]
    if controls.baseline is not None and (item.kind != "self" or controls.baseline.target is None):
        rows = answering_rows(controls.baseline, item.kind)
        if rows.max() == 1:
            return int(rows.argmax()), int(weights[rows.argmax()].argmax())
    written = written_share(controls, head)
    apart = weights if written is None else np.abs(weights - written)
    row, column = np.unravel_index(int(apart.argmax()), apart.shape)
    return int(row), int(column)


def key_agreement(measures: HeadMaps, first: str, second: str) -> float | None:
    """Spearman's ρ of two measures in the order of the keys, the mean over the rows; None where no row has an order."""
    known = (
        slice(None)
        if measures.known is None or "flow" not in (first, second)
        else measures.known.any(-1)
    )
    rows = zip(
        np.abs(measures.maps[first][known]), np.abs(measures.maps[second][known]), strict=True
    )
    # A key that no measure sees (a masked one) would agree with itself.
    pairs = [(a[visible], b[visible]) for a, b in rows for visible in [(a > 0) | (b > 0)]]
    values = [rho for a, b in pairs if (rho := spearman(a, b)) is not None]
    return float(np.mean(values)) if values else None


def sharpness(controls: Controls) -> dict[Head, float]:
    """The largest weight of each head's rows, the mean over the rows. Voita et al. 2019 call it confidence."""
    # The first row of a causal head has a single key.
    return {
        (row, head): float(
            weights[1 if item.kind == "causal" and len(weights) > 1 else 0 :].max(-1).mean()
        )
        for row, item in enumerate(controls.maps)
        for head, weights in enumerate(item.weights)
    }


def gradient_estimates(controls: Controls) -> dict[Head, float]:
    """The change of the answer without a head, to first order; empty where the answer has no gradient."""
    gradients = contributions_of(controls).gradients
    return {
        head: -float(gradients[kind, layer][index].sum())
        for head in controls.heads()
        for kind, layer, index in [controls.head_id(head)]
        if (kind, layer) in gradients
    }


def rank_agreement(
    controls: Controls, changes: Mapping[Head, Effect]
) -> tuple[float | None, float | None]:
    """Spearman's ρ of the measured changes with the heads' sharpness, and with the gradient's estimates."""
    sizes = np.array([abs(effect.change) for effect in changes.values()])
    sharp, estimates = sharpness(controls), gradient_estimates(controls)
    return (
        spearman(np.array([sharp[head] for head in changes]), sizes),
        spearman(np.array([abs(estimates[head]) for head in changes]), sizes)
        if estimates
        else None,
    )


def uniform_effect(controls: Controls, baseline: Baseline, heads: HeadSet) -> Effect:
    """The effect of uniform weights in these heads; measured once for all sessions."""
    return _once("uniform", controls, heads, lambda: make_heads_uniform(baseline, heads))


def answers_without(
    controls: Controls, baseline: Baseline, off: HeadSet
) -> dict[str, dict[str, float]]:
    """The value of each of the likeliest answers by WAYS; of an embedding, its similarity. Never change it."""
    return _once("without", controls, off, lambda: _answers_without(baseline, off))


def _once(name: str, controls: Controls, heads: HeadSet, measure: Callable[[], T]) -> T:
    values: dict[HeadSet, T] = measurements(f"evidence:{name}", controls.key)
    if heads not in values:
        values[heads] = measure()
    return values[heads]


def _answers_without(baseline: Baseline, off: HeadSet) -> dict[str, dict[str, float]]:
    answers = dict(
        zip(
            WAYS,
            (baseline.answer, baseline.rerun(uniform=off), baseline.rerun(off=off)),
            strict=True,
        )
    )
    if baseline.id is None:
        return {
            "similarity": {
                way: float(baseline.target_value(answer)) for way, answer in answers.items()
            }
        }
    candidates = [
        *top_candidates(baseline.pretrained, baseline.answer, MAX_ANSWERS),
        *top_candidates(baseline.pretrained, answers["off"], MAX_OTHERS),
    ]
    ids = list(
        dict.fromkeys(
            [
                *(candidate.id for candidate in candidates),
                baseline.id,
                *([] if baseline.contrast is None else [baseline.contrast]),
            ]
        )
    )
    values = {way: quantity_values(answer, baseline.quantity) for way, answer in answers.items()}
    names = distinct(display_names(baseline.pretrained, baseline.answer, ids))
    return {
        name: {way: float(of_way[id]) for way, of_way in values.items()}
        for id, name in zip(ids, names, strict=True)
    }
