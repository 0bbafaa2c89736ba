"""The blocks of the diagram: what each part is, its numbers, and the first example's vectors and maps in it."""

from __future__ import annotations

import numpy as np

from core.models.model_summary import Part
from core.trace import Kind
from dashboard.charts.numbers import operations, percent
from dashboard.components.block_diagram import Block, paths_of, stacks_of
from dashboard.components.model_diagram.cells import is_attention, kind_and_layer
from dashboard.views.transformer import text
from dashboard.views.transformer.compute import Measurements


def blocks(whole: Part, result: Measurements | None, pre_norm: bool) -> dict[str, Block]:
    """A block for every part of the diagram, by its path; with pre-norm, "…+" is the sum after a sublayer.

    Without a result they have no vectors and no maps yet.
    """
    made, shown = {}, paths_of(stacks_of(whole))
    for part in whole.walk():
        if part.path not in shown:
            continue
        last = part.path.rpartition(".")[2]
        if last.startswith("around_") and pre_norm:
            made[f"{part.path}+"] = Block("Add", text.ABOUT["add"])
            made[part.path] = Block("Norm", text.ABOUT["norm"], _numbers(part, whole), *_vectors(result, part.path))
            continue
        tokens, vectors = _vectors(result, part.path)
        maps = None
        if result and is_attention(part.path):
            kind, layer = kind_and_layer(part.path)
            maps = result.trace.of(kind).map(layer).weights
        lines = text.predictions(result) if result and part.path == "output" else ()
        made[part.path] = Block(part.title, text.about(part), _numbers(part, whole), tokens, vectors,
                                maps, lines)
    return made


def _vectors(result: Measurements | None, path: str) -> tuple[tuple[str, ...], np.ndarray | None]:
    """The tokens and vectors (T, C) of the first example after a part; of a norm around a sublayer, the norm's."""
    vectors = result.outputs.get(path, result.outputs.get(f"{path}.norm")) if result else None
    if result is None or vectors is None or vectors.ndim != 2:
        return (), None
    kind: Kind = "self" if path.startswith(("source", "encoder", "places")) else "causal"
    tokens = result.tokens.get(kind) or next(iter(result.tokens.values()))
    return (tokens if len(tokens) == len(vectors) else ()), vectors


def _numbers(part: Part, whole: Part) -> tuple[tuple[str, str], ...]:
    """Shape, parameters and FLOPs of a part, with its shares of the model's."""
    rows = []
    if part.shape is not None:
        axes = {2: "examples × numbers", 3: "examples × tokens × numbers"}.get(len(part.shape), "the batch first")
        rows.append((f"output, {axes}", " × ".join(map(str, part.shape))))
    if part.parameters:
        rows.append(("parameters", f"{part.parameters:,} ({percent(part.parameters / whole.parameters)})"))
    if part.flops:
        rows.append(("FLOPs", f"{operations(part.flops)} ({percent(part.flops / whole.flops)})"))
    return tuple(rows)
