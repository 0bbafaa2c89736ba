"""One score a token from each measure of importance, to be compared with the effect of hiding it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from core.flow import flow, graph, rollout, total
from core.pretrained.evidence.contributions import Contributions
from core.pretrained.evidence.question import Baseline
from core.trace import AttentionTrace, Kind, to_numpy

MOST_FLOW = 10**8  # edges × rows × tokens: about 3 s on one core


def answering_rows(baseline: Baseline, kind: Kind) -> Float[np.ndarray, " T"]:
    """The weight of each row of a map in the answer, summing to 1.

    The answering position alone; for an embedding all tokens that are not padding; for a class the class token, or the
    last token of a causal model.
    """
    line = baseline.target if baseline.target is not None and kind != "self" else baseline.source
    rows = np.zeros(len(line))
    if baseline.answer.kind == "embedding":
        mask = baseline.batch.get("attention_mask")  # of the source
        rows[:] = 1.0 if mask is None or line is baseline.target else to_numpy(mask[0])
    elif baseline.answer.kind == "class":
        rows[0 if kind == "self" else -1] = 1.0
    else:
        rows[baseline.answer.position] = 1.0
    return rows / rows.sum()


def token_scores(
    baseline: Baseline, trace: AttentionTrace, contributions: Contributions
) -> dict[str, Float[np.ndarray, " S"]]:
    """The score of each source token by each measure, not normalized.

    "weights" and "written" are means over the layers and heads at the rows that answer, "gradient" sums α·∂answer/∂α
    over all rows that attend to the token, "rollout" and "flow" use the whole graph. Unavailable measures are left out.
    """
    kind = trace.kinds[-1]
    maps = trace.of(kind).maps
    size, rows = len(baseline.source), answering_rows(baseline, kind)
    scores = {"weights": _mean([rows @ np.abs(item.weights[:, :, :size]) for item in maps])}
    norms = [contributions.norm_map(item.kind, item.layer, item.weights) for item in maps]
    if all(one is not None for one in norms):
        shares = [
            one[:, :, :size] / np.maximum(one[:, :, :size].sum(-1, keepdims=True), 1e-12)
            for one in norms
            if one is not None
        ]
        scores["written"] = _mean([rows @ share for share in shares])
    if contributions.gradients:
        gradients = [
            one
            for (kind, _), one in contributions.gradients.items()
            if baseline.target is None or kind != "causal"
        ]
        scores["gradient"] = np.abs(np.sum([one.sum((0, 1))[:size] for one in gradients], 0))
    through = graph(trace, kind, maps[-1].layer)
    scores["rollout"] = rows @ rollout(through)[:, :size]
    answering = np.flatnonzero(rows).tolist()
    if total(through.steps) * len(answering) * size <= MOST_FLOW:
        scores["flow"] = np.sum([rows[row] * flow(through, row) for row in answering], 0)[:size]
    return scores


def _mean(layers: list[np.ndarray]) -> Float[np.ndarray, " S"]:
    return np.mean([one.mean(0) for one in layers], 0)
