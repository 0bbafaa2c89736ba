"""The attention maps that a run saved, one head of one example at a time, and their tokens."""

from __future__ import annotations

import numpy as np
from safetensors import SafetensorError, safe_open

from core.interpret.trace import AttentionMap, AttentionTrace, Kind
from core.models import map_tokens, sentence_spans
from core.runs.runs import Run
from core.training.evaluate import KINDS, axis_tokens, watched_examples
from dashboard.ui.run_data import RunData

NAMES = {
    "cross": "Cross-attention",
    "causal": "Decoder self-attention",
    "self": "Encoder self-attention",
    "sentences": "Sentences of the document",
    "words": "Words of each sentence",
}
MAX_CELLS = 600_000  # of all frames sent at once: about a megabyte
MIN_FRAMES = 8


def _shapes(run: Run, step: int) -> dict[str, list[int]]:
    """The shapes of the maps at a step by example and kind; none where the file cannot be read."""
    try:
        with safe_open(run.frame_path(step), "numpy") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return {}


def sizes(run: Run, step: int, example: int) -> dict[Kind, tuple[int, int]]:
    """Layers and heads of the maps of an example at a step, by kind; none where the file cannot be read."""
    shapes = _shapes(run, step)
    shape_of = {kind: shapes.get(f"{example}:{kind}", []) for kind in KINDS}
    return {kind: (shape[0], shape[1]) for kind, shape in shape_of.items() if len(shape) == 4}


def count_examples(run: Run, step: int) -> int:
    """How many examples have maps at a step."""
    return len({name.partition(":")[0] for name in _shapes(run, step)})


def head_over_time(
    run: Run,
    steps: list[int],
    example: int,
    kind: str,
    layer: int,
    head: int,
    must: int | None = None,
) -> list[tuple[int, np.ndarray]]:
    """(step, weights (T, S)) of one head, oldest first; of large maps only some, with `must` and the last."""
    last = _head(run, steps[-1], example, kind, layer, head)
    if last is None:
        return []
    stride = -(-len(steps) // max(MIN_FRAMES, MAX_CELLS // last.size))
    chosen = [step for i, step in enumerate(steps) if i % stride == 0 or step in (must, steps[-1])]
    frames = [(step, _head(run, step, example, kind, layer, head)) for step in chosen]
    return [
        (step, weights)
        for step, weights in frames
        if weights is not None and weights.shape == last.shape
    ]


def _head(run: Run, step: int, example: int, kind: str, layer: int, head: int) -> np.ndarray | None:
    try:
        with safe_open(run.frame_path(step), "numpy") as file:
            weights = file.get_slice(f"{example}:{kind}")[layer, head].astype(np.float32)
            return (
                weights
                if weights.ndim == 2 and weights.size and np.isfinite(weights).all()
                else None
            )
    except (OSError, SafetensorError, IndexError):
        return None


def tokens(data: RunData, example: int, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens of a map's rows and columns."""
    assert data.config is not None
    example_tokens = axis_tokens(
        data.task(), watched_examples(data.config.task, data.config.num_examples)[example]
    )
    return map_tokens(data.config.model, kind, *example_tokens)


def head_trace(
    data: RunData, example: int, kind: Kind, layer: int, weights: np.ndarray, heads: int
) -> AttentionTrace:
    """One head of a map (T, S) as a trace of `heads` equal heads."""
    rows, columns = tokens(data, example, kind)
    rows, columns = rows[: weights.shape[0]], columns[: weights.shape[1]]
    mask = None  # which cells may have weight; None where all may
    if kind == "causal":  # what comes later is hidden
        mask = np.tri(*weights.shape, dtype=np.bool_)
    elif kind == "words":  # as are the other sentences
        mask = np.array(
            [
                [column in span for column in range(weights.shape[1])]
                for span in sentence_spans(columns)
            ]
        )
    each = np.broadcast_to(weights, (heads, *weights.shape))
    maps = tuple(AttentionMap(kind, i, each, rows, columns, mask) for i in range(layer + 1))
    return AttentionTrace(maps, source=f"run {data.run.id}")
