"""A model's answer, and its answer without each of its heads; computed once and shared by all sessions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from core.interpret.evidence import (
    Baseline,
    Effect,
    Question,
    ablate_heads,
    answering_rows,
    head_sets,
    largest_effects,
)
from core.interpret.trace import AttentionTrace, Kind, head_name, to_numpy
from core.pretrained import ModelInputs, PretrainedError, Reading
from core.pretrained.answers import cosines, embedding
from core.pretrained.generate import SearchSettings, decode_text, generate
from dashboard.server.cache import cached, shared
from dashboard.ui.models import ModelRef, baseline_of, load_model, reading_of, without_model
from dashboard.ui.threads import one_thread

AT_ONCE = 1e11  # multiplications, a few seconds, that need no press of a button
SMALL = 1e9  # of one pass, up to which one thread is the faster
PROBE = 0.03  # seconds in which another run is timed
MOST_SENTENCES = 12

Effects = Mapping[tuple[Kind, int, int], Effect]


@dataclass(frozen=True, eq=False)
class Answer:
    """A question's answer, and the maps of the kind that answers.

    `work` is the multiplications of switching off each head: counted, so that a busy machine does not change the page.
    """

    baseline: Baseline
    trace: AttentionTrace
    heads: int
    work: float


@dataclass(frozen=True)
class Head:
    """A head of a trace (`index` of its map there), the row that answers, and its effect if it is known.

    `before` is the number of heads that change the answer more; `number` is the model's own number of the layer.
    """

    index: int
    layer: int
    number: int
    head: int
    row: int
    effect: Effect | None
    before: int = 0

    @property
    def name(self) -> str:
        return head_name(self.number, self.head)


def answer_question(ref: ModelRef, question: Question) -> Answer:
    """The model's answer; PretrainedError if this model cannot answer the question."""
    return replace(shared(_answer, ref, question), baseline=baseline_of(ref, question))


def _answer(ref: ModelRef, question: Question) -> Answer:
    reading = reading_of(ref, question.inputs)
    trace = reading.trace.of(reading.trace.kinds[-1])
    heads = sum(len(item.weights) for item in trace.maps)
    work = float((len(reading.source) + len(reading.target or ())) * _maps(load_model(ref).model))
    with one_thread(work < SMALL):
        return Answer(without_model(baseline_of(ref, question)), trace, heads, heads * work)


def _maps(model: Any) -> int:
    """The numbers of a model that every token is multiplied by: all but its tables of embeddings."""
    tables = {id(part.weight) for part in model.modules() if isinstance(part, torch.nn.Embedding)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in tables)


def seconds(answer: Answer) -> float:
    """The seconds that switching off each head takes here, by the quickest of a few runs, as a busy machine only ever
    adds to them."""
    least, probe_start = float("inf"), time.perf_counter()
    while time.perf_counter() - probe_start < PROBE or least == float("inf"):
        start = time.perf_counter()
        answer.baseline.rerun()
        least = min(least, time.perf_counter() - start)
    return answer.heads * least


def effects(ref: ModelRef, question: Question) -> Effects:
    """The answer without each single head of the kind of attention that answers."""
    return shared(_effects, ref, question)


def _effects(ref: ModelRef, question: Question) -> Effects:
    answer = answer_question(ref, question)
    alone = [off for off in head_sets(answer.trace) if all(head is not None for *_, head in off)]
    with one_thread(answer.work / answer.heads < SMALL):
        return {next(iter(off)): ablate_heads(answer.baseline, off) for off in alone}  # type: ignore[misc]


def default_head(answer: Answer, known: Effects | None) -> Head:
    """The head without which the answer changes most; if that is not known, the one with the largest weight."""
    if known:
        (_, layer, head), _ = largest_effects(known, 1)[0]
        index = next(i for i, item in enumerate(answer.trace.maps) if item.layer == layer)
        return head_at(answer, known, index, head)
    hidden, row = np.asarray(answer.baseline.source.special), _answering(answer)
    best = (-1.0, 0, 0)
    for i, item in enumerate(answer.trace.maps):
        weights = np.where(hidden, 0.0, item.weights[:, row, : len(hidden)])
        sharpest = int(weights.max(1).argmax())
        best = max(best, (float(weights[sharpest].max()), i, sharpest))
    return head_at(answer, known, *best[1:])


def head_at(answer: Answer, known: Effects | None, index: int, head: int) -> Head:
    """The head of that map, with its effect where effects are known."""
    item = answer.trace.maps[index]
    row = _row(answer, index, head)
    if not known:
        return Head(index, item.layer, item.layer_number, head, row, None)
    effect = known[item.kind, item.layer, head]
    before = sum(abs(other.change) > abs(effect.change) for other in known.values())
    return Head(index, item.layer, item.layer_number, head, row, effect, before)


def _answering(answer: Answer) -> int:
    return int(answering_rows(answer.baseline, answer.trace.kinds[0]).argmax())


def _row(answer: Answer, index: int, head: int) -> int:
    """The row that answers; for an embedding, to which all rows add, the word with the largest weight on another."""
    row = _answering(answer)
    if answer.baseline.answer.kind != "embedding":
        return row
    weights = answer.trace.maps[index].weights[head].copy()
    hidden = np.asarray(answer.baseline.source.special)
    if hidden.all() or len(hidden) < 2:
        return row
    weights[hidden], weights[:, hidden] = -1.0, -1.0
    np.fill_diagonal(weights, -1.0)
    return int(weights.max(1).argmax())


def similarity_matrix(ref: ModelRef, every: tuple[ModelInputs, ...]) -> np.ndarray:
    """The cosines of all pairs, (N, N); the answer may be changed."""
    return cached(_similarity_matrix, ref, every)


def _similarity_matrix(ref: ModelRef, every: tuple[ModelInputs, ...]) -> np.ndarray:
    return to_numpy(cosines([shared(_embedding, ref, inputs) for inputs in every]))


def _embedding(ref: ModelRef, inputs: ModelInputs) -> torch.Tensor:
    with one_thread():  # sentences are short
        return embedding(load_model(ref), inputs)


def sentences(first: str, more: str) -> tuple[str, ...]:
    """The sentence that was chosen and a line each of the others, once each; PretrainedError for too many."""
    lines = tuple(
        dict.fromkeys(line.strip() for line in (first, *more.splitlines()) if line.strip())
    )
    if len(lines) > MOST_SENTENCES:
        raise PretrainedError(
            f"There are {len(lines)} sentences; at most {MOST_SENTENCES} are compared at once. "
            f"Take {len(lines) - MOST_SENTENCES} out."
        )
    return lines


def continuation_text(ref: ModelRef, inputs: ModelInputs) -> str:
    """The model's own continuation, always its likeliest token."""
    return cached(_continuation_text, ref, inputs)


def _continuation_text(ref: ModelRef, inputs: ModelInputs) -> str:
    pretrained = load_model(ref)
    return decode_text(
        pretrained, generate(pretrained, inputs, SearchSettings(longest=12)).hypotheses[0].tokens
    )


def first_crossing(reading: Reading, words: list[int]) -> int:
    """The first of the produced words that attends further left in the source than the word before it, or 0."""
    weights = reading.trace.of("cross").maps[-1].weights.mean(0)[words]
    targets = weights[:, : len(reading.source)].argmax(1)
    tokens = reading.produced.tokens if reading.produced else ()
    return next(
        (
            i
            for i in range(1, len(words))
            if targets[i] < targets[i - 1] and tokens[words[i]].isalpha()
        ),
        0,
    )
