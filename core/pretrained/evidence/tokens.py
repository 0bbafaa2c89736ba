"""Every measure as one number a token: how much the answer is said to owe to it, to be held against what it loses."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from core.flow import flow, graph, rollout, total
from core.pretrained.evidence.contributions import Contributions
from core.pretrained.evidence.question import Baseline
from core.trace import AttentionTrace, Kind, to_numpy

MOST_FLOW = 10**8  # edges looked at, all once for each row and each token: about 3 s on one core


def answering_rows(asked: Baseline, kind: Kind) -> Float[np.ndarray, " T"]:
    """How much each row of a map has to do with the answer, summing to one.

    The place that answers, alone; for an embedding all real tokens alike; for a class the class token, or the last
    token of a model that looks back.
    """
    line = asked.target if asked.target is not None and kind != "self" else asked.source
    rows = np.zeros(len(line))
    if asked.answer.kind == "embedding":
        mask = asked.batch.get("attention_mask")
        rows[:] = 1.0 if mask is None else to_numpy(mask[0])
    elif asked.answer.kind == "class":
        rows[0 if kind == "self" else -1] = 1.0
    else:
        rows[asked.answer.place] = 1.0
    return rows / rows.sum()


def token_scores(asked: Baseline, trace: AttentionTrace, measured: Contributions) -> dict[str, Float[np.ndarray, " S"]]:
    """What each measure says that the answer owes to each token of the source, not normalised.

    "weights" and "written" are means over the layers and heads at the rows that answer, "gradient" sums α·∂answer/∂α
    over all that looks at the token, "rollout" and "flow" go through the whole graph. What cannot be had is left out.
    """
    kind = trace.kinds[-1]
    maps = trace.of(kind).maps
    size, rows = len(asked.source), answering_rows(asked, kind)
    found = {"weights": _mean([rows @ np.abs(item.weights[:, :, :size]) for item in maps])}
    written = [measured.written(item.kind, item.layer, item.weights) for item in maps]
    if all(one is not None for one in written):
        found["written"] = _mean([rows @ _shares(one[:, :, :size]) for one in written if one is not None])
    if measured.slopes:
        found["gradient"] = _owed(asked, measured, size)
    through = graph(trace, kind, maps[-1].layer)
    found["rollout"] = rows @ rollout(through)[:, :size]
    answering = np.flatnonzero(rows).tolist()
    if total(through.steps) * len(answering) * size <= MOST_FLOW:
        found["flow"] = np.sum([rows[row] * flow(through, row) for row in answering], 0)[:size]
    return found


def _owed(asked: Baseline, measured: Contributions, size: int) -> Float[np.ndarray, " S"]:
    """The slopes of every weight on each token of the source, from wherever it is looked at, without their sign."""
    looks = [one for (kind, _), one in measured.slopes.items() if asked.target is None or kind != "causal"]
    return np.abs(np.sum([one.sum((0, 1))[:size] for one in looks], 0))


def _mean(layers: list[np.ndarray]) -> Float[np.ndarray, " S"]:
    return np.mean([one.mean(0) for one in layers], 0)


def _shares(written: Float[np.ndarray, "H T S"]) -> Float[np.ndarray, "H T S"]:
    """Each row as shares of its sum."""
    return written / np.maximum(written.sum(-1, keepdims=True), 1e-12)
