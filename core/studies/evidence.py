"""What an answer depends on: measures of heads, cells and tokens, how they agree, and the answer without heads.

A head is here the index of its layer among the maps of all kinds, and its own in the layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.interpret.evidence import (
    Baseline,
    Contributions,
    Effect,
    answering_rows,
    quantity_values,
)
from core.interpret.trace import AttentionMap, AttentionTrace, Head, flow, flows, graph, rollout
from core.pretrained.answers import top_candidates
from core.pretrained.attention_recorder import HeadSet
from core.ranks import spearman

MAX_ANSWERS, MAX_OTHERS = 4, 2  # likeliest answers of the whole model, and without some heads
WAYS = ("on", "uniform", "off")  # what may become of heads
Flow = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True, eq=False)
class HeadMaps:
    """One head's map (T, S) by each measure that is available.

    `lengths` (T, S) are ‖v·W_O‖; `known` (T, S) are the cells of the flow that were computed (None: all).
    """

    maps: dict[str, np.ndarray]
    lengths: np.ndarray | None
    known: np.ndarray | None


def flow_map(trace: AttentionTrace, row: int, query: int | None = None) -> Flow:
    """Flow up to and with a layer (T, S), to every query or to one, and which cells were computed (None: all)."""
    item = trace.maps[row]
    layer_graph = graph(trace, item.kind, item.layer)
    if query is None:
        return flows(layer_graph), None
    values = np.zeros((len(item.queries), len(item.keys)))
    known = np.zeros(values.shape, bool)
    values[query], known[query] = flow(layer_graph, query), True
    return values, known


def written_share(item: AttentionMap, head: int, contributions: Contributions) -> np.ndarray | None:
    """What a head writes at each cell (T, S), as a share of its row; None where its values are unknown."""
    norms = contributions.norm_map(item.kind, item.layer, item.weights)
    return (
        None
        if norms is None
        else norms[head] / np.maximum(norms[head].sum(-1, keepdims=True), 1e-12)
    )


def head_maps(
    trace: AttentionTrace,
    item: AttentionMap,
    head: int,
    contributions: Contributions,
    flowing: Flow | None,
) -> HeadMaps:
    """Every measure of one head; rollout and flow are of all heads, up to and with its layer.

    `item` is the layer's map, with a column more than that of `trace` where there is a learned sink.
    """
    keys = item.weights.shape[-1]
    maps, lengths = {"weights": item.weights[head]}, None
    written = written_share(item, head, contributions)
    if written is not None:
        maps["written"] = written
        lengths = contributions.norms[item.kind, item.layer][head]
        lengths = np.broadcast_to(lengths, (len(item.queries), lengths.shape[-1]))
    gradients = contributions.gradients.get((item.kind, item.layer))
    if gradients is not None:
        maps["gradient"] = gradients[head]
    maps["rollout"] = rollout(graph(trace, item.kind, item.layer))
    if flowing is not None:
        maps["flow"] = flowing[0]
    wide = {
        name: np.pad(values, ((0, 0), (0, keys - values.shape[1]))) for name, values in maps.items()
    }
    return HeadMaps(wide, lengths, None if flowing is None else flowing[1])


def default_cell(
    item: AttentionMap, head: int, contributions: Contributions, baseline: Baseline | None
) -> tuple[int, int]:
    """The largest weight of the row that answers; of several such rows, the cell whose weight differs most from what
    is written."""
    weights = item.weights[head]
    if baseline is not None and (item.kind != "self" or baseline.target is None):
        rows = answering_rows(baseline, item.kind)
        if rows.max() == 1:
            return int(rows.argmax()), int(weights[rows.argmax()].argmax())
    written = written_share(item, head, contributions)
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


def sharpness(maps: Sequence[AttentionMap]) -> dict[Head, float]:
    """The largest weight of each head's rows, the mean over the rows. Voita et al. 2019 call it confidence."""
    # The first row of a causal head has a single key.
    return {
        (row, head): float(
            weights[1 if item.kind == "causal" and len(weights) > 1 else 0 :].max(-1).mean()
        )
        for row, item in enumerate(maps)
        for head, weights in enumerate(item.weights)
    }


def gradient_estimates(
    maps: Sequence[AttentionMap], contributions: Contributions
) -> dict[Head, float]:
    """The change of the answer without a head, to first order; empty where the answer has no gradient."""
    return {
        (row, head): -float(gradients[head].sum())
        for row, item in enumerate(maps)
        if (gradients := contributions.gradients.get((item.kind, item.layer))) is not None
        for head in range(len(item.weights))
    }


def rank_agreement(
    changes: Mapping[Head, Effect], sharp: Mapping[Head, float], estimates: Mapping[Head, float]
) -> tuple[float | None, float | None]:
    """Spearman's ρ of the measured changes with the heads' sharpness, and with the gradient's estimates."""
    sizes = np.array([abs(effect.change) for effect in changes.values()])
    return (
        spearman(np.array([sharp[head] for head in changes]), sizes),
        spearman(np.array([abs(estimates[head]) for head in changes]), sizes)
        if estimates
        else None,
    )


def answers_without(baseline: Baseline, off: HeadSet) -> dict[int | None, dict[str, float]]:
    """The value of each of the likeliest answers (their ids) by WAYS; of an embedding (None), its similarity."""
    answers = dict(
        zip(
            WAYS,
            (baseline.answer, baseline.rerun(uniform=off), baseline.rerun(off=off)),
            strict=True,
        )
    )
    if baseline.id is None:
        return {None: {way: float(baseline.target_value(one)) for way, one in answers.items()}}
    candidates = [
        *top_candidates(baseline.pretrained, baseline.answer, MAX_ANSWERS),
        *top_candidates(baseline.pretrained, answers["off"], MAX_OTHERS),
    ]
    ids = [*(one.id for one in candidates), baseline.id, baseline.contrast]
    values = {way: quantity_values(answer, baseline.quantity) for way, answer in answers.items()}
    return {
        id: {way: float(of_way[id]) for way, of_way in values.items()}
        for id in dict.fromkeys(ids)
        if id is not None
    }
