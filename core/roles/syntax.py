"""Which word each head attends to most, over parsed sentences, and how often it is the one that syntax asks for.

Clark et al. 2019, "What does BERT look at?", section 4: https://arxiv.org/abs/1906.04341
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np
from jaxtyping import Bool, Float, Int

from core.interpret.trace import AttentionMap, AttentionTrace, Head, Kind, NumberedHeads
from core.pretrained.base import Line, ModelInputs, Pretrained, PretrainedError, Reading
from core.pretrained.reading import read, tokenized, tokenizer_of
from core.roles.conllu import Parse
from core.roles.inputs import MOST_UNKNOWN, unknown_share
from core.roles.relations import Relation
from core.roles.scores import stack_layers

FEWEST_SENTENCES = 10  # that a model must know
FEWEST_QUERIES = 10  # of a relation
Z = 1.96  # of a 95 % interval


@dataclass(frozen=True, eq=False)
class ParsedReading:
    """A sentence, its tokens by word, and the word that each head (L, H) attends to most from each word; −1 for none."""

    parse: Parse
    tokens: tuple[tuple[int, ...], ...]
    top: Int[np.ndarray, "L H W"]


@dataclass(frozen=True, eq=False)
class SyntaxReadings(NumberedHeads):
    """The measured sentences; `left_out` of those given were not, as the model knows too few of their words.

    `numbers` are the model's own numbers of the layers, `heads` the heads of each.
    """

    kind: Kind
    sentences: tuple[ParsedReading, ...]
    left_out: int
    numbers: tuple[int, ...]
    heads: tuple[int, ...]


def read_parses(
    pretrained: Pretrained, parses: Sequence[Parse], kind: Kind = "self"
) -> SyntaxReadings:
    """Read every sentence of which the model knows four words in five, and reduce each to its heads' top words.

    PretrainedError as in `known_parses`, and where no sentence could be divided into its words.
    """
    known = known_parses(pretrained, parses)
    parts = [reduce_parse(pretrained, parse, kind) for parse in known]
    return join_readings(pretrained, parts, len(parses) - len(known))


def known_parses(pretrained: Pretrained, parses: Sequence[Parse]) -> tuple[Parse, ...]:
    """The sentences of which the model knows four words in five.

    PretrainedError for a model that reads no text, whose tokenizer does not say which characters a token stands for, or
    that knows fewer than ten of the sentences.
    """
    if not pretrained.reads_text:
        raise PretrainedError(f"{pretrained.name} reads no text, so it has no syntax to show.")
    if not getattr(tokenizer_of(pretrained), "is_fast", False):
        raise PretrainedError(
            f"The tokenizer of {pretrained.name} does not say which characters a token stands for. "
            "Take a model with a fast tokenizer (tokenizer.json)."
        )
    known = tuple(
        parse for parse in parses if unknown_share(pretrained, parse.text) <= MOST_UNKNOWN
    )
    if len(known) < min(FEWEST_SENTENCES, len(parses)):
        raise PretrainedError(
            f"{pretrained.name} knows the words of {len(known)} of the {len(parses)} sentences; "
            f"syntax needs {min(FEWEST_SENTENCES, len(parses))}. Take a model of English, or a "
            "CoNLL-U file in the model's own language."
        )
    return known


def reduce_parse(pretrained: Pretrained, parse: Parse, kind: Kind) -> SyntaxReadings | None:
    """One sentence, reduced to its heads' top words; None where its tokens cannot be divided into its words."""
    reading = read_parse(pretrained, parse)
    tokens, maps = word_tokens(pretrained, parse, reading, kind), reading.trace.of(kind).maps
    if tokens is None or not maps:
        return None
    numbers = tuple(item.layer_number for item in maps)
    return SyntaxReadings(
        kind,
        (ParsedReading(parse, tokens, _top_words(maps, tokens, kind)),),
        0,
        numbers,
        tuple(len(item.weights) for item in maps),
    )


def join_readings(
    pretrained: Pretrained, parts: Sequence[SyntaxReadings | None], left_out: int
) -> SyntaxReadings:
    """The sentences of all parts; `left_out` more were not read. PretrainedError where no part has one."""
    read = [part for part in parts if part is not None]
    if not read:
        raise PretrainedError(
            f"No sentence of {pretrained.name} could be divided into the words of the file."
        )
    sentences = tuple(one for part in read for one in part.sentences)
    return replace(read[-1], sentences=sentences, left_out=left_out + len(parts) - len(read))


def read_parse(pretrained: Pretrained, parse: Parse) -> Reading:
    """The model's reading of a sentence; an encoder–decoder's decoder is given the sentence too."""
    return read(
        pretrained,
        ModelInputs(parse.text, target=parse.text if pretrained.reads == "pair" else None),
    )


def word_tokens(pretrained: Pretrained, parse: Parse, reading: Reading,
                kind: Kind) -> tuple[tuple[int, ...], ...] | None:  # fmt: skip
    """The tokens of each word: a token belongs to the word with which it shares most characters.

    None where the line's tokens are not those of the sentence, as in a text that was cut. A word with an unknown token
    has none.
    """
    line: Line = reading.lines(kind)[0]
    as_target = pretrained.reads == "pair" and kind == "causal"
    given = {"text_target": parse.text} if as_target else {"text": parse.text}
    encoding = tokenized(pretrained, **given, add_special_tokens=False, return_offsets_mapping=True)
    unknown = line.unknown or (False,) * len(line)
    ordinary = [index for index in range(len(line)) if not line.special[index] or unknown[index]]
    if [line.ids[index] for index in ordinary] != list(encoding["input_ids"]):
        return None
    words: list[list[int]] = [[] for _ in parse.words]
    for index, (start, end) in zip(ordinary, encoding["offset_mapping"], strict=True):
        shares = [
            0 if word.span is None else min(end, word.span[1]) - max(start, word.span[0])
            for word in parse.words
        ]
        if max(shares) > 0:
            words[int(np.argmax(shares))].append(index)
    return tuple(() if any(unknown[index] for index in word) else tuple(word) for word in words)


def word_weights(weights: Float[np.ndarray, "H T T"],
                 tokens: Sequence[Sequence[int]]) -> Float[np.ndarray, "H W W"]:  # fmt: skip
    """Attention between words: the sum over the tokens of the key's word, the mean over those of the query's.

    Clark et al. 2019, section 4.1. Special tokens belong to no word, so a row may sum to less than 1.
    """
    member = np.zeros((len(tokens), weights.shape[-1]), weights.dtype)
    for word, indices in enumerate(tokens):
        member[word, list(indices)] = 1
    mean = member / np.maximum(member.sum(-1, keepdims=True), 1)
    return np.asarray(mean @ weights @ member.T)


def word_trace(
    reading: Reading, parse: Parse, tokens: Sequence[Sequence[int]], kind: Kind
) -> AttentionTrace:
    """The maps of a reading with words for tokens."""
    forms = tuple(word.form for word in parse.words)
    maps = tuple(
        AttentionMap(
            kind, item.layer, word_weights(item.weights, tokens), forms, forms, None, item.number
        )
        for item in reading.trace.of(kind).maps
    )
    return AttentionTrace(maps, reading.trace.source)


def _top_words(
    maps: Sequence[AttentionMap], tokens: Sequence[Sequence[int]], kind: Kind
) -> Int[np.ndarray, "L H W"]:
    """The other word with most weight, by layer, head and word; −1 where no other word has any."""
    hidden = np.eye(len(tokens), dtype=bool) | (
        np.triu(np.ones((len(tokens),) * 2, bool)) & (kind == "causal")
    )
    others = [np.where(hidden, 0, word_weights(item.weights, tokens)) for item in maps]
    return stack_layers(
        [np.where(one.max(-1) > 0, one.argmax(-1), -1).astype(np.int16) for one in others], -1
    )


@dataclass(frozen=True, eq=False)
class RelationScore:
    """One relation in one direction: hits of every head and of every fixed offset, by query.

    `hits` is (L, H, N): whether the head's top word is a target. `offsets` are the distances from a query to a word,
    `offset_hits` (O, N) whether the word there is a target. `sentence` is the sentence of each query.
    """

    relation: Relation
    reverse: bool
    hits: Bool[np.ndarray, "L H N"]
    offsets: Int[np.ndarray, " O"]
    offset_hits: Bool[np.ndarray, "O N"]
    sentence: Int[np.ndarray, " N"]
    query: Int[np.ndarray, " N"]

    @property
    def count(self) -> int:
        return len(self.query)

    @cached_property
    def accuracy(self) -> Float[np.ndarray, "L H"]:
        """The share of queries whose top word is a target, of every head, over all sentences."""
        return np.asarray(self.hits.mean(-1))

    @property
    def best(self) -> Head:
        """The head with the highest accuracy over all sentences, which picks and measures on the same queries."""
        layer, head = np.unravel_index(self.accuracy.argmax(), self.accuracy.shape)
        return int(layer), int(head)

    @property
    def best_offset(self) -> int:
        """The offset with the highest accuracy over all sentences, as Clark et al. pick it."""
        return int(self.offsets[self.offset_hits.mean(-1).argmax()])

    @cached_property
    def held_out(self) -> tuple[tuple[Head, Head], Bool[np.ndarray, " N"]]:
        """The heads picked on either half of the sentences, and their hits on the other half."""
        flat, picked = _cross_fit(self.hits.reshape(-1, self.count), self.sentence % 2)
        heads = [tuple(map(int, np.unravel_index(one, self.accuracy.shape))) for one in picked]
        return (heads[0], heads[1]), flat  # type: ignore[return-value]

    @cached_property
    def offset_held_out(self) -> Bool[np.ndarray, " N"]:
        """The hits of the offset that was picked on the other half of the sentences."""
        return _cross_fit(self.offset_hits, self.sentence % 2)[0]


def score_relation(
    readings: SyntaxReadings, relation: Relation, reverse: bool = False
) -> RelationScore | None:
    """Score every head and offset in one direction of a relation; None with fewer than ten queries.

    A query is a word with a target. In a causal model only targets before it count, and only offsets back.
    """
    causal = readings.kind == "causal"
    rows = [
        (
            index,
            query,
            {key for key in targets if each.tokens[key] and not (causal and key > query)},
        )
        for index, each in enumerate(readings.sentences)
        for query, targets in relation.targets(each.parse, reverse).items()
        if each.tokens[query]
    ]
    rows = [row for row in rows if row[2]]
    if len(rows) < FEWEST_QUERIES:
        return None
    hits = np.stack(
        [
            np.isin(readings.sentences[index].top[:, :, query], list(targets))
            for index, query, targets in rows
        ],
        -1,
    )
    offsets = np.asarray(sorted({key - query for _, query, targets in rows for key in targets}))
    offset_hits = np.asarray(
        [[query + int(offset) in targets for _, query, targets in rows] for offset in offsets]
    )
    return RelationScore(
        relation,
        reverse,
        hits,
        offsets,
        offset_hits,
        np.asarray([row[0] for row in rows]),
        np.asarray([row[1] for row in rows]),
    )


def _cross_fit(
    hits: Bool[np.ndarray, "C N"], half: Int[np.ndarray, " N"]
) -> tuple[np.ndarray, list[int]]:
    """Hits of the candidate that is best on the other half, and the candidate of each half (0, 1)."""
    out, picked = np.zeros(hits.shape[1], dtype=bool), []
    for part in (0, 1):
        picked.append(int(hits[:, half == part].sum(-1).argmax()))
        out[half != part] = hits[picked[-1], half != part]
    return out, picked


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927); ValueError without a trial."""
    if count < 1:
        raise ValueError("an interval needs one trial or more")
    share, z2 = hits / count, Z * Z / count
    centre, half = share + z2 / 2, Z * sqrt(share * (1 - share) / count + z2 / (4 * count))
    return max(0.0, (centre - half) / (1 + z2)), min(1.0, (centre + half) / (1 + z2))
