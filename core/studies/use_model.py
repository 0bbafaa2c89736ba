"""A model's ordinary answer beside its attention: its answer without each head, and the head it depends on most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.interpret.evidence import (
    Baseline,
    Effect,
    answering_rows,
)
from core.interpret.trace import AttentionTrace, Kind, to_numpy
from core.pretrained import ModelInputs, Pretrained, Reading, reject_if
from core.pretrained.generate import SearchSettings, cosines, decode_text, generate
from core.pretrained.reading import embedding

MAX_SENTENCES = 12

Effects = Mapping[tuple[Kind, int, int], Effect]


@dataclass(frozen=True, eq=False)
class Answer:
    """A question's answer, the maps of the kind that answers, and what it is without each of their heads, if measured."""

    baseline: Baseline
    trace: AttentionTrace
    effects: Effects = field(default_factory=dict)

    @property
    def heads(self) -> list[tuple[Kind, int, int]]:
        """Kind, layer and number of each head."""
        return [
            (item.kind, item.layer, head)
            for item in self.trace.maps
            for head in range(len(item.weights))
        ]


@dataclass(frozen=True)
class Head:
    """A head of a trace (`index` of its map there), the row that answers, and its effect if it is known.

    `before` is the number of heads that change the answer more.
    """

    index: int
    name: str
    head: int
    row: int
    effect: Effect | None
    before: int = 0


def answer_with_maps(baseline: Baseline, reading: Reading) -> Answer:
    """The answer with the maps of the reading of the same inputs, of the kind of attention that answers."""
    return Answer(baseline, reading.trace.of(reading.trace.kinds[-1]))


def default_head(answer: Answer) -> Head:
    """The head without which the answer changes most; if that is not known, the one with the largest weight."""
    maps, effects = answer.trace.maps, answer.effects
    if effects:
        _, layer, head = max(effects, key=lambda one: abs(effects[one].drop))
        return head_at(answer, [item.layer for item in maps].index(layer), head)
    hidden, row = np.asarray(answer.baseline.source.special), _answering(answer)
    # (H) of each map
    largest = [np.where(hidden, 0.0, item.weights[:, row, : len(hidden)]).max(1) for item in maps]
    index = max(range(len(maps)), key=lambda i: largest[i].max())
    return head_at(answer, index, int(largest[index].argmax()))


def head_at(answer: Answer, index: int, head: int) -> Head:
    """The head of that map, with its effect where effects are known."""
    item, effect, before = answer.trace.maps[index], None, 0
    if answer.effects:
        effect = answer.effects[item.kind, item.layer, head]
        before = sum(abs(other.drop) > abs(effect.drop) for other in answer.effects.values())
    name = answer.trace.name((index, head))
    return Head(index, name, head, _row(answer, index, head), effect, before)


def _answering(answer: Answer) -> int:
    return int(answering_rows(answer.baseline, answer.trace.kinds[0]).argmax())


def _row(answer: Answer, index: int, head: int) -> int:
    """The row that answers; for an embedding, to which all rows add, the word with the largest weight on another."""
    hidden = np.asarray(answer.baseline.source.special)
    if answer.baseline.answer.kind != "embedding" or hidden.all() or len(hidden) < 2:
        return _answering(answer)
    weights = answer.trace.maps[index].weights[head].copy()
    weights[hidden], weights[:, hidden] = -1.0, -1.0
    np.fill_diagonal(weights, -1.0)
    return int(weights.max(1).argmax())


def sentences(first: str, more: str) -> tuple[str, ...]:
    """The sentence that was chosen and a line each of the others, once each; PretrainedError for too many."""
    lines = tuple(
        dict.fromkeys(line.strip() for line in (first, *more.splitlines()) if line.strip())
    )
    reject_if(
        len(lines) > MAX_SENTENCES,
        f"There are {len(lines)} sentences; at most {MAX_SENTENCES} are compared at once. "
        f"Take {len(lines) - MAX_SENTENCES} out.",
    )
    return lines


def similarities(pretrained: Pretrained, inputs: Sequence[ModelInputs]) -> np.ndarray:
    """The cosine of the embeddings of each pair of inputs, (N, N)."""
    return to_numpy(cosines([embedding(pretrained, one) for one in inputs]))


def continuation_text(pretrained: Pretrained, inputs: ModelInputs) -> str:
    """The model's own continuation, always its likeliest token."""
    return decode_text(
        pretrained, generate(pretrained, inputs, SearchSettings(longest=12)).hypotheses[0].tokens
    )


def first_crossing(reading: Reading, words: list[int]) -> int:
    """The first of the produced words that attends further left in the source than the word before it, or 0."""
    weights = reading.trace.of("cross").maps[-1].weights[..., : len(reading.source)]
    targets = weights.mean(0)[words].argmax(1)
    tokens = reading.produced.tokens if reading.produced else ()
    return next(
        (
            i
            for i in range(1, len(words))
            if targets[i] < targets[i - 1] and tokens[words[i]].isalpha()
        ),
        0,
    )
