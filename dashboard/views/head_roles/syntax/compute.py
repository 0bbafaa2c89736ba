"""The heads of a model over parsed sentences, by relation; and one sentence with the weights between its words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from core.interpret.syntax import (
    RELATIONS,
    Parse,
    Relation,
    RelationScore,
    SyntaxReadings,
    join_readings,
    known_parses,
    own_parses,
    parse_conllu,
    reduce_parse,
    score_relation,
    wilson_interval,
    word_trace,
)
from core.interpret.trace import AttentionTrace, Head, Kind
from core.pretrained import ModelInputs
from core.tasks import reading
from dashboard.server.cache import measurements, shared
from dashboard.ui.models import ModelRef, is_small, load_model, reading_of
from dashboard.ui.threads import one_thread

MOST_SENTENCES = 500
READ = "head_roles:read"  # the sentences that were read, by their index, for all sessions
CHOICES: tuple[tuple[Relation, bool], ...] = tuple(
    (each, reverse) for each in RELATIONS for reverse in (False, True)
)
NAMES = tuple(relation.name(reverse) for relation, reverse in CHOICES)


@dataclass(frozen=True, eq=False)
class SyntaxResult:
    """The readings, and the score of each of CHOICES; None where it cannot be measured."""

    readings: SyntaxReadings
    scores: tuple[RelationScore | None, ...]

    def heads(self) -> Iterator[Head]:
        """All heads (layer, head) of the model."""
        for layer, heads in enumerate(self.readings.heads):
            yield from ((layer, head) for head in range(heads))

    def default(self) -> int:
        """The choice whose best head is furthest above the best offset, both on sentences that did not pick them."""
        gains = [
            -2.0 if one is None else float(one.held_out[1].mean() - one.offset_held_out.mean())
            for one in self.scores
        ]
        return int(np.argmax(gains))


@dataclass(frozen=True)
class Interval:
    """A share of `count` with its 95 % interval."""

    share: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, hits: np.ndarray) -> Interval:
        return cls(float(hits.mean()), *wilson_interval(int(hits.sum()), len(hits)), len(hits))


@dataclass(frozen=True)
class Query:
    """A word, the words that the relation asks for, and the head's top word; −1 for none."""

    word: int
    targets: tuple[int, ...]
    top: int

    @property
    def right(self) -> bool:
        return self.top in self.targets


def parses_of(reference: str) -> tuple[Parse, ...]:
    """The project's own sentences, or those of stored data, at most 500; ConfigError where these are malformed."""
    return shared(_parses, reference)


def _parses(reference: str) -> tuple[Parse, ...]:
    return (parse_conllu(reading.read(reference)) if reference else own_parses())[:MOST_SENTENCES]


def known_sentences(ref: ModelRef, reference: str) -> tuple[Parse, ...]:
    """The own sentences, or the stored ones, that the model knows. PretrainedError as in `known_parses`."""
    return shared(_known, ref, reference)


def _known(ref: ModelRef, reference: str) -> tuple[Parse, ...]:
    return known_parses(load_model(ref), parses_of(reference))


def read_sentence(ref: ModelRef, reference: str, kind: Kind, index: int) -> SyntaxReadings | None:
    """One of the known sentences, reduced to its heads' top words."""
    pretrained = load_model(ref)
    with one_thread(is_small(pretrained)):
        return reduce_parse(pretrained, known_sentences(ref, reference)[index], kind)


def score_syntax(ref: ModelRef, reference: str, kind: Kind) -> SyntaxResult:
    """The scores over the sentences that were read so far; computed once for each number of them."""
    return shared(_score, ref, reference, kind, len(measurements(READ, (ref, reference, kind))))


def _score(ref: ModelRef, reference: str, kind: Kind, count: int) -> SyntaxResult:
    read = sorted(measurements(READ, (ref, reference, kind)).items())[:count]
    unknown = len(parses_of(reference)) - len(known_sentences(ref, reference))
    readings = join_readings(load_model(ref), [one for _, one in read], unknown)
    return SyntaxResult(readings, tuple(score_relation(readings, *choice) for choice in CHOICES))


def ranked_heads(result: SyntaxResult, score: RelationScore) -> list[Head]:
    """All heads, the one with the highest accuracy first."""
    return sorted(result.heads(), key=lambda head: -score.accuracy[head])


def queries_by_sentence(
    result: SyntaxResult, score: RelationScore, head: Head
) -> dict[int, tuple[Query, ...]]:
    """The queries of each sentence that has some, those with a wrong answer first, each group in the file's order."""
    out: dict[int, list[Query]] = {}
    for sentence, word in zip(score.sentence.tolist(), score.query.tolist(), strict=True):
        one = result.readings.sentences[sentence]
        targets = tuple(sorted(score.relation.targets(one.parse, score.reverse)[word]))
        out.setdefault(sentence, []).append(Query(word, targets, int(one.top[*head, word])))
    ranked = sorted(out.items(), key=lambda item: all(query.right for query in item[1]))
    return {sentence: tuple(queries) for sentence, queries in ranked}


def words_of(ref: ModelRef, result: SyntaxResult, sentence: int) -> AttentionTrace:
    """The weights between the words of a sentence, in every head."""
    one, pair = result.readings.sentences[sentence], load_model(ref).reads == "pair"
    reading = reading_of(ref, ModelInputs(one.parse.text, target=one.parse.text if pair else None))
    return word_trace(reading, one.parse, one.tokens, result.readings.kind)
