"""What each head of a model attends to: its scores in roles, in syntactic relations, and in standard tests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.interpret.head_tests import RepeatScores
from core.interpret.roles import ROLES, RoleScores
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
    score_relation,
)
from core.interpret.trace import Head
from core.pretrained import Pretrained
from core.tasks import reading

MAX_PARSES = 500
CHOICES: tuple[tuple[Relation, bool], ...] = tuple(
    (each, reverse) for each in RELATIONS for reverse in (False, True)
)
NAMES = tuple(relation.name(reverse) for relation, reverse in CHOICES)


def default_role(scores: RoleScores) -> int:
    """The index of the role with the largest share above chance, of the active roles that some head has; else of all."""
    best = np.nanmax(np.where(np.isnan(scores.share), -1.0, scores.share), (1, 2))
    acts = np.asarray([role.acts for role in ROLES])
    return int((best + np.where(acts & scores.counts.any((1, 2)), 2.0, 0.0)).argmax())


def default_test(scores: RepeatScores) -> int:
    """The first test in which a head has half of its weight on the keys of the test, else that of the top score."""
    best = [float(np.nanmax(each)) for each in scores.score]
    return next((index for index, score in enumerate(best) if score >= 0.5), best.index(max(best)))


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
class Query:
    """A word, the words that the relation asks for, and the head's top word; −1 for none."""

    word: int
    targets: tuple[int, ...]
    top: int

    @property
    def right(self) -> bool:
        return self.top in self.targets


def parses(reference: str) -> tuple[Parse, ...]:
    """The project's own sentences for "", or those of stored data, at most 500; ConfigError if they are malformed."""
    return (parse_conllu(reading.read(reference)) if reference else own_parses())[:MAX_PARSES]


def known_sentences(pretrained: Pretrained, reference: str) -> tuple[Parse, ...]:
    """Those of `parses` that the model knows. PretrainedError as in `known_parses`."""
    return known_parses(pretrained, parses(reference))


def score_syntax(
    pretrained: Pretrained, read: Sequence[SyntaxReadings | None], unknown: int
) -> SyntaxResult:
    """The scores over sentences that were read by `reduce_parse`; `unknown` is the count of those left out."""
    readings = join_readings(pretrained, list(read), unknown)
    return SyntaxResult(readings, tuple(score_relation(readings, *choice) for choice in CHOICES))


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
