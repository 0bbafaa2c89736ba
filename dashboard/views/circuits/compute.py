"""Circuits of all heads of a model and its strongest compositions; cached by the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from core.interpret.circuits import (
    Composer,
    CompositionKind,
    Compositions,
    HeadMatrices,
    Vocabularies,
    copying_scores,
    effective_rank,
    ov_factors,
    qk_factors,
    random_composition,
)
from core.interpret.trace import to_numpy
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import measurements, shared
from dashboard.ui.heads import weights_of
from dashboard.widgets.model_picker import ModelRef, load_model
from dashboard.widgets.model_picker.models import is_small

Head = tuple[int, int]  # (index of its attention in the order in which they run, head)
STREAMS = {"self": "encoder", "causal": "decoder", "cross": "cross"}
MEASURED = (
    "circuits:measured"  # the attentions that were measured, by their index, for all sessions
)


@dataclass(frozen=True)
class Edge:
    """A composition of two heads, less the mean of random matrices."""

    kind: CompositionKind
    source: Head
    target: Head
    score: float


@dataclass(frozen=True, eq=False)
class AttentionMeasures:
    """The measures of the heads of one attention: copying (None without tokens) and effective rank, arrays (H,)."""

    copying: np.ndarray | None
    ranks: np.ndarray
    compositions: Compositions


@dataclass(frozen=True, eq=False)
class Circuits:
    """The matrices of all heads and the measures of each attention."""

    heads: tuple[HeadMatrices, ...]
    vocabularies: Vocabularies
    measures: tuple[AttentionMeasures, ...]
    _pairs: dict[CompositionKind, list[Edge]] = field(default_factory=dict, repr=False)

    def all(self) -> Iterator[Head]:
        return ((row, head) for row, one in enumerate(self.heads) for head in range(len(one.w_v)))

    def layer_name(self, row: int) -> str:
        one = self.heads[row]
        several = len({each.kind for each in self.heads}) > 1
        return f"{STREAMS[one.kind]} L{one.number}" if several else f"L{one.number}"

    def name(self, head: Head) -> str:
        return f"{self.layer_name(head[0])}·H{head[1]}"

    def has_tokens(self, row: int) -> bool:
        return self.vocabularies.serves(self.heads[row])

    @property
    def random_level(self) -> float:
        return random_composition(self.heads[0].w_o.shape[-1])

    @cached_property
    def kinds(self) -> list[CompositionKind]:
        """The kinds of which there is a composition, K first."""
        present = {kind for one in self.measures for kind in one.compositions.highest}
        return [kind for kind in ("K", "Q", "V") if kind in present]

    def chance(self, kind: CompositionKind) -> tuple[float, int]:
        """The most that random matrices reach, and in how many pairs."""
        parts = [one.compositions for one in self.measures if kind in one.compositions.highest]
        return max(one.highest[kind] for one in parts), sum(one.pairs[kind] for one in parts)

    def pairs(self, kind: CompositionKind) -> list[Edge]:
        """All compositions of a kind, the strongest first."""
        if kind not in self._pairs:
            edges = [
                Edge(kind, (earlier, a), (later, b), float(score))
                for later, one in enumerate(self.measures)
                for (of, earlier), scores in one.compositions.scores.items()
                if of == kind
                for (a, b), score in np.ndenumerate(to_numpy(scores))
            ]
            self._pairs[kind] = sorted(edges, key=lambda edge: -edge.score)
        return self._pairs[kind]

    def edges(self, kind: CompositionKind) -> list[Edge]:
        """Those that are above all random ones."""
        most, _ = self.chance(kind)
        return [edge for edge in self.pairs(kind) if edge.score > most]

    def best_into(self, head: Head) -> dict[CompositionKind, Edge]:
        """Of each kind the strongest composition of a head with an earlier one."""
        best: dict[CompositionKind, Edge] = {}
        for (kind, earlier), scores in self.measures[head[0]].compositions.scores.items():
            source = int(scores[:, head[1]].argmax())
            edge = Edge(kind, (earlier, source), head, float(scores[source, head[1]]))
            best[kind] = max(best.get(kind, edge), edge, key=lambda one: one.score)
        return best


def measures_of(ref: ModelRef) -> Callable[[int], AttentionMeasures]:
    """A function that measures one attention, by its index, and keeps what the next ones need of it."""
    weights, model = weights_of(ref), load_model(ref)
    composer = Composer(weights.heads)

    def measure(row: int) -> AttentionMeasures:
        with one_thread(is_small(model)), torch.no_grad():
            one = weights.heads[row]
            score = copying_scores(one, weights.vocabularies)
            return AttentionMeasures(
                None if score is None else to_numpy(score),
                to_numpy(effective_rank(ov_factors(one)[1])),
                composer.into(row),
            )

    return measure


def circuits_of(ref: ModelRef) -> Circuits:
    """The circuits of a model; what was not measured yet is measured now. PretrainedError as in `read_heads`."""
    weights, values, measure = weights_of(ref), measurements(MEASURED, ref), measures_of(ref)
    for row in range(len(weights.heads)):
        if row not in values:
            values[row] = measure(row)
    return Circuits(
        weights.heads, weights.vocabularies, tuple(values[row] for row in range(len(weights.heads)))
    )


def default_head(circuits: Circuits) -> Head:
    """The later head of the strongest composition; the first head where there is none."""
    return circuits.pairs(circuits.kinds[0])[0].target if circuits.kinds else (0, 0)


def singular_values(ref: ModelRef, head: Head) -> dict[str, np.ndarray]:
    """Those of W_V W_O, and of W_Q W_Kᵀ where there is one."""
    return shared(_singular_values, ref, head)


def _singular_values(ref: ModelRef, head: Head) -> dict[str, np.ndarray]:
    one = weights_of(ref).heads[head[0]]
    with one_thread(is_small(load_model(ref))):
        factors = {"OV": ov_factors(one), "QK": qk_factors(one)}
    return {name: to_numpy(each[1][head[1]]) for name, each in factors.items() if each is not None}
