"""Tests of heads: repeated random tokens, successors, and grammar, by annotated sentences in CoNLL-U and their relations."""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from core.entries import quote, refuse_if
from core.interpret.circuits import HeadMatrices, HeadWeights, Vocabularies, head_weights
from core.interpret.roles import (
    MAX_UNKNOWN,
    OLSSON,
    VOITA,
    ranked_heads,
    stack_layers,
    unknown_share,
)
from core.interpret.trace import (
    AttentionMap,
    AttentionTrace,
    Head,
    Kind,
    NumberedHeads,
    to_numpy,
)
from core.pretrained import (
    Line,
    ModelInputs,
    Pretrained,
    Reading,
    read,
    read_ids,
    reject_if,
    tokenized,
    tokenizer_of,
)
from core.tasks import reading as stored

# The standard tests of heads on random tokens that repeat: induction, duplicate token, previous token.


LENGTH = 25  # tokens before they repeat (Olsson et al. 2022, appendix)
MIN_TOKENS = 4
LINES = 8
SEED = 86

Pairs = tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]


@dataclass(frozen=True)
class RepeatTest:
    """A test: from each token of the repetition, the weight on the token at this offset from its first occurrence.

    Without an `offset`, the weight of every token on the one before it.
    """

    key: str
    name: str
    offset: int | None
    attends_to: str
    source: str

    def cells(self, special: Sequence[bool]) -> Pairs:
        """The queries and keys of the test in a line whose tokens repeat once, between special ones."""
        start, length = special.index(False), special.count(False) // 2
        first = start + (1 if self.offset is None else length)
        queries = np.arange(first, start + 2 * length)
        return queries, queries - first + start + (self.offset or 0)


TESTS: tuple[RepeatTest, ...] = (
    RepeatTest(
        "induction",
        "Induction",
        1,
        "the token after the first occurrence of the same token",
        OLSSON,
    ),
    RepeatTest(
        "duplicate",
        "Duplicate token",
        0,
        "the first occurrence of the same token",
        "[Wang et al. 2022](https://arxiv.org/abs/2211.00593)",
    ),
    RepeatTest("previous", "Previous token", None, "the token before", VOITA),
)


EFFECT = 2  # times the score of uniform attention


@dataclass(frozen=True, eq=False)
class RepeatScores(NumberedHeads):
    """Scores of tests × layers × heads, their 95 % interval (±) over the lines, and that of uniform attention.

    The interval is Student's, and holds for all heads at once (Bonferroni): of many heads one would else pass by luck.
    nan where a layer has fewer heads. `numbers` are the model's own numbers of the layers; `example` is the reading of
    one line, of `length` random tokens twice.
    """

    kind: Kind
    score: Float[np.ndarray, "R L H"]
    margin: Float[np.ndarray, "R L H"]
    uniform: Float[np.ndarray, " R"]
    numbers: tuple[int, ...]
    length: int
    lines: int
    example: Reading

    def ranked(self, test: int) -> list[Head]:
        """All heads (layer, head), the one with the highest score first."""
        return ranked_heads(self.score[test])

    @property
    def passes(self) -> Bool[np.ndarray, "R L H"]:
        """Whether the interval of a head lies above twice the score of uniform attention.

        Random weights are uniform but for a little, the same on each line, so any head differs from it for certain.
        """
        return self.score - self.margin > EFFECT * self.uniform[:, None, None]


def default_test(scores: RepeatScores) -> int:
    """The first test in which a head has half of its weight on the keys of the test, else that of the top score."""
    best = [float(np.nanmax(each)) for each in scores.score]
    return next((index for index, score in enumerate(best) if score >= 0.5), best.index(max(best)))


def score_repeats(pretrained: Pretrained, kind: Kind | None = None) -> RepeatScores:
    """The score of every head in every test: its mean weight on the test's keys, over eight lines of random tokens.

    `kind` is the first of the model's own where it is None. PretrainedError for a model without tokens, or with a
    vocabulary or a length of fewer than four tokens a half.
    """
    lines = [read_line(pretrained, kind, tokens) for tokens in random_lines(pretrained)]
    kind = kind or lines[0].trace.kinds[0]
    return join_lines(kind, lines[0], [line_scores(line, kind) for line in lines])


def random_lines(pretrained: Pretrained) -> list[list[int]]:
    """The ids of different random tokens, a list for each line. PretrainedError as in `score_repeats`."""
    reject_if(
        not pretrained.reads_text,
        f"{pretrained.name} reads no text, so it has no tokens to repeat.",
    )
    pieces = ordinary_tokens(tokenizer_of(pretrained))
    # beside four special tokens
    length = min(LENGTH, len(pieces), (pretrained.max_tokens - 4) // 2)
    reject_if(
        length < MIN_TOKENS,
        f"{pretrained.name} has too few tokens for this test: it needs {MIN_TOKENS} different "
        "ones, twice.",
    )
    draw = random.Random(SEED)
    return [draw.sample(pieces, length) for _ in range(LINES)]


def read_line(pretrained: Pretrained, kind: Kind | None, tokens: Sequence[int]) -> Reading:
    """These tokens twice in a row. PretrainedError where the model has no attention of this kind."""
    reading = read_ids(pretrained, [*tokens, *tokens])
    maps = reading.trace.of(kind).maps if kind else reading.trace.maps
    reject_if(not maps, f"{pretrained.name} has no attention of this type.")
    return reading


def line_scores(reading: Reading, kind: Kind) -> Float[np.ndarray, "R L H"]:
    """The score of every head in every test on one line."""
    maps, special = reading.trace.of(kind).maps, reading.lines(kind)[0].special
    return np.stack(
        [
            stack_layers([item.shares[:, *each].mean(-1).astype(float) for item in maps])
            for each in [test.cells(special) for test in TESTS]
        ]
    )


def join_lines(
    kind: Kind, example: Reading, scores: Sequence[Float[np.ndarray, "R L H"]]
) -> RepeatScores:
    """The means over two lines or more, with their intervals."""
    from scipy.special import stdtrit

    trace, special, values = (
        example.trace.of(kind),
        example.lines(kind)[0].special,
        np.stack(scores),
    )
    visible, (count, *_) = trace.maps[0].visible[0], values.shape
    # Of one side of the interval of one head, where all of them hold together in 95 of 100 measurements
    outside = 0.05 / 2 / max(1, np.isfinite(values[0]).sum())
    even = visible / np.maximum(visible.sum(-1, keepdims=True), 1)
    return RepeatScores(
        kind,
        values.mean(0),
        stdtrit(count - 1, 1 - outside) * values.std(0, ddof=1) / np.sqrt(count),
        np.asarray([even[test.cells(special)].mean() for test in TESTS]),
        trace.numbers,
        special.count(False) // 2,
        len(values),
        example,
    )


def ordinary_tokens(tokenizer: Any) -> list[int]:
    """Ids of the vocabulary that stand for letters or digits, in a fixed random order, at most 2,000."""
    special = set(tokenizer.all_special_ids)
    ids = sorted(
        index
        for piece, index in tokenizer.get_vocab().items()
        if index not in special and not piece.startswith(("[unused", "<extra_id"))
    )
    random.Random(SEED).shuffle(ids)
    return [index for index in ids[:4000] if str(tokenizer.decode([index])).strip().isalnum()][
        :2000
    ]


MIN_ITEMS = 10  # items with a successor
GOULD = "[Gould et al. 2023](https://arxiv.org/abs/2312.09230)"

ORDERS: dict[str, tuple[str, ...]] = {
    "numbers": tuple(str(number) for number in range(1, 21)),
    "number words": tuple(
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen twenty".split()
    ),
    "ordinals": tuple("first second third fourth fifth sixth seventh eighth ninth tenth".split()),
    "days": tuple("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()),
    "months": tuple(
        "January February March April May June July August September October November December".split()
    ),
    "letters": tuple("abcdefghijklmnopqrstuvwxyz"),
}


@dataclass(frozen=True)
class Order:
    """The items of an ordered set that are single tokens of a model, and their ids; at least four."""

    name: str
    items: tuple[str, ...]
    ids: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(item, successor), as indices, for each item whose successor is a token too."""
        return [
            (item, successor)
            for item, place in enumerate(self.places)
            for successor, other in enumerate(self.places)
            if other == place + 1
        ]


@dataclass(frozen=True, eq=False)
class SuccessorScores(NumberedHeads):
    """The share of items whose successor each head ranks highest of its order, (L, H); nan where there is no head.

    `count` is the number of items, `chance` the share that random ranks would have. `logits` are, for each order, what
    a head (L, H) adds to the logit of each item (column) where it attends to an item (row). With `by_embedding` the
    model has no unembedding, and the transposed embedding stands for it.
    """

    score: Float[np.ndarray, "L H"]
    count: int
    chance: float
    orders: tuple[Order, ...]
    logits: tuple[Float[np.ndarray, "L H N N"], ...]
    numbers: tuple[int, ...]
    by_embedding: bool

    def ranked(self) -> list[Head]:
        """All heads (layer, head), the one with the highest score first."""
        return ranked_heads(self.score)

    def trace(self, order: int, source: str) -> AttentionTrace:
        """What each head adds to the logits of an order's items, as maps: from the item that it attends to, to each."""
        items, values = self.orders[order].items, np.nan_to_num(self.logits[order])
        maps = zip(self.numbers, values, strict=True)
        return AttentionTrace(
            tuple(
                AttentionMap("self", layer, one, items, items, None, number)
                for layer, (number, one) in enumerate(maps)
            ),
            source,
        )

    def hits(self, head: Head) -> int:
        """The number of items whose successor the head ranks highest."""
        return round(float(self.score[head]) * self.count)

    def interval(self, head: Head) -> tuple[float, float]:
        """The 95 % interval of a head's score, Wilson's."""
        return wilson_interval(self.hits(head), self.count)


def score_successors(
    pretrained: Pretrained, weights: HeadWeights | None = None, kind: Kind | None = None
) -> SuccessorScores:
    """Rank the items of each order by W_E W_V W_O W_U of every head, from each of its items.

    The paper puts the first feed-forward network behind the embedding; it is left out here. `weights` are those of the
    model where they are known. PretrainedError for a model without tokens, without such matrices between them, or where
    fewer than ten items and their successors are single tokens.
    """
    reject_if(
        not pretrained.reads_text, f"{pretrained.name} reads no text, so it has no ordered tokens."
    )
    orders = token_orders(pretrained)
    reject_if(
        (count := sum(len(order.pairs) for order in orders)) < MIN_ITEMS,
        f"The vocabulary of {pretrained.name} has {count} numbers, days, months or letters "
        f"with their successor; the test needs {MIN_ITEMS}.",
    )
    weights = weights or head_weights(pretrained)
    vocabularies = weights.vocabularies
    layers = [
        one
        for one in weights.heads
        if one.kind == (kind or weights.heads[0].kind) and vocabularies.serves(one)
    ]
    reject_if(
        not layers, "The model has no heads between an embedding and an unembedding of one size."
    )
    all_logits, hits = [], np.zeros(())
    for order in orders:
        logits = stack_layers([item_logits(one, vocabularies, order) for one in layers])
        rows, successors = np.array(order.pairs, dtype=int).reshape(-1, 2).T
        top = np.nan_to_num(logits, nan=-np.inf)[:, :, rows].argmax(-1)
        # The items whose successor is the highest of the order; nan where there is no head.
        hits = hits + np.where(np.isnan(logits).any((2, 3)), np.nan, (top == successors).sum(-1))
        all_logits.append(logits)
    return SuccessorScores(
        hits / count,
        count,
        sum(len(order.pairs) / len(order.ids) / count for order in orders),
        orders,
        tuple(all_logits),
        tuple(one.number for one in layers),
        layers[0].writes in vocabularies.by_embedding,
    )


def token_orders(pretrained: Pretrained) -> tuple[Order, ...]:
    """The orders with at least four items that are single, different tokens, with or without a space before them."""
    orders, unknown = [], tokenizer_of(pretrained).unk_token_id
    for name, items in ORDERS.items():
        first = {  # the best token that an item is alone, by its place
            place: ids[0]
            for place, item in enumerate(items)
            for text in (item, f" {item}")
            for ids in [tokenized(pretrained, text, add_special_tokens=False)["input_ids"]]
            if len(ids) == 1 and ids[0] != unknown
        }
        counts = Counter(first.values())
        known = {place: token for place, token in first.items() if counts[token] == 1}
        if len(known) >= 4:
            words = tuple(items[place] for place in known)
            orders.append(Order(name, words, tuple(known.values()), tuple(known)))
    return tuple(orders)


def item_logits(
    heads: HeadMatrices, vocabularies: Vocabularies, order: Order
) -> Float[np.ndarray, "H N N"]:
    """What each head adds to the logit of every item (column) where it attends to an item (row)."""
    ids = list(order.ids)
    read = vocabularies.embeddings[heads.reads][ids] @ heads.w_v
    return to_numpy(read @ (heads.w_o @ vocabularies.unembeddings[heads.writes][:, ids]))


# Sentences with a syntactic tree, read from CoNLL-U (Universal Dependencies, version 2); errors name the line.


COLUMNS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
MAX_WORDS = 200  # of one sentence
MAX_CHARACTERS = 2_000_000
OWN = Path(__file__).with_name("syntax.conllu")

Span = tuple[int, int]
Row = tuple[int, list[str]]  # a word's line and its cells
TEXT_LINE = re.compile(r"#\s{0,9}text\s{0,9}=")
PAIR = "pair"  # the name of a label without one


@dataclass(frozen=True)
class Word:
    """A word of a sentence: its governor `head` (an index; −1 for the root) by `relation`, and its antecedent if any.

    `span` are its characters in the sentence's text, None where it shares them with other words.
    """

    form: str
    upos: str
    head: int
    relation: str
    antecedent: int | None = None
    span: Span | None = None


@dataclass(frozen=True)
class Parse:
    """The words of a sentence and its text; `line` is where it begins in the file.

    `pairs` are a person's own labels: the name, and the indices of two words.
    """

    words: tuple[Word, ...]
    text: str
    line: int
    pairs: tuple[tuple[str, int, int], ...] = ()


def parse_conllu(text: str) -> tuple[Parse, ...]:
    """The sentences of a CoNLL-U text; ConfigError names the line where it is malformed or a sentence is no tree.

    Lemmas, features, enhanced dependencies and empty nodes are skipped. The text of a sentence is made of its words
    and SpaceAfter=No. Antecedent=n in MISC names the word that a pronoun refers to. Under a comment "# text = …" there may
    be labels of a person's own instead: two columns, the numbers of two words of the text, and a third with their name.
    """
    refuse_if(
        len(text) > MAX_CHARACTERS,
        f"The file has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read.",
    )
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    numbered = enumerate(lines, 1)  # a word may hold the other signs at which `splitlines` splits
    parses = tuple(
        parse
        for filled, rows in groupby(numbered, key=lambda row: bool(row[1].strip()))
        if filled
        for parse in _parse(list(rows))
    )
    refuse_if(
        not parses,
        "There is no sentence in this file; CoNLL-U has a line of ten tab-separated columns a word.",
    )
    return parses


def _parse(lines: Sequence[tuple[int, str]]) -> list[Parse]:
    """The sentence of these lines, none where they have no word; ConfigError unless its heads make a tree."""
    text = next((row[1].partition("=")[2] for row in lines if TEXT_LINE.match(row[1])), "").strip()
    lines = [row for row in lines if not row[1].startswith("#")]
    if text and lines and all(2 <= len(line.split()) <= 3 for _, line in lines):
        return [_labelled(text, lines)]
    start, words = next((number for number, _ in lines), 0), list[Row]()
    joined: dict[int, tuple[int, int, list[str]]] = {}  # by the first word, with line and last
    for number, line in lines:
        cells, following = line.split("\t"), len(words) + 1
        refuse_if(
            len(cells) != len(COLUMNS),
            f"Line {number} has {len(cells)} columns; CoNLL-U has ten, separated by tabs: {' '.join(COLUMNS)}.",
        )
        name = cells[0]
        if "." in name:  # an empty node of enhanced dependencies
            continue
        first, *last = (_whole(part, number, "ID") for part in name.split("-", 1))
        if last:
            refuse_if(
                first != following or last[0] <= first,
                f"Line {number}: the range {quote(name)} does not begin at the next word.",
            )
            refuse_if(
                any(first <= end for _, end, _ in joined.values()),
                f"Line {number}: the range {quote(name)} overlaps the one before.",
            )
            joined[first] = number, last[0], cells
            continue
        refuse_if(
            first != following,
            f"Line {number}: its ID is {quote(name)}; the next word of this sentence is {following}.",
        )
        refuse_if(not cells[1].strip(), f"Line {number} has no word in its second column, FORM.")
        refuse_if(
            following > MAX_WORDS,
            f"The sentence of line {start} has more than {MAX_WORDS} words; split or remove it.",
        )
        words.append((number, cells))
    if not words:
        return []
    heads = [_index(cells[6], number, "HEAD", len(words)) for number, cells in words]
    # One word is the root, and every other one leads to it
    roots = [str(number) for (number, _), head in zip(words, heads, strict=True) if head < 0]
    what = (
        f"lines {', '.join(roots[:4])} are all roots" if roots else "none of its words is the root"
    )
    refuse_if(len(roots) != 1, f"The sentence of line {start} needs one root (HEAD 0): {what}.")
    for index, (number, cells) in enumerate(words):
        for _ in words:  # so many steps at most lead to the root
            index = heads[index] if index >= 0 else index
        refuse_if(
            index >= 0,
            f"Line {number}: {quote(cells[1])} does not lead to the root; its heads run in a circle.",
        )
    text, spans = _text(words, joined)
    read: list[Word] = []
    for (number, cells), head, span in zip(words, heads, spans, strict=True):
        named = _misc(cells).get("Antecedent")
        refers = None if named is None else _index(named, number, "Antecedent", len(words))
        refuse_if(
            refers in (-1, len(read)),
            f"Line {number}: the antecedent of {quote(cells[1])} must be another word, 1 to {len(words)}.",
        )
        read.append(Word(cells[1], cells[3], head, cells[7], refers, span))
    return [Parse(tuple(read), text, start)]


def _labelled(text: str, lines: Sequence[tuple[int, str]]) -> Parse:
    """A sentence with labels of a person's own: its words are those between spaces."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    refuse_if(
        len(spans) > MAX_WORDS,
        f"The sentence of line {lines[0][0]} has more than {MAX_WORDS} words; split or remove it.",
    )
    pairs = []
    for number, line in lines:
        *places, name = (line if len(line.split()) > 2 else f"{line} {PAIR}").split()
        first, second = (_index(place, number, "number of a word", len(spans)) for place in places)
        refuse_if(
            min(first, second) < 0 or first == second,
            f"Line {number}: a label joins two different words, 1 to {len(spans)}.",
        )
        pairs.append((name, first, second))
    words = tuple(Word(text[start:end], "X", -1, "", None, (start, end)) for start, end in spans)
    return Parse(words, text, lines[0][0], tuple(pairs))


def _text(
    words: Sequence[Row], joined: Mapping[int, tuple[int, int, list[str]]]
) -> tuple[str, list[Span | None]]:
    """The text of the sentence, and the characters of each word; None within a contraction that does not add up."""
    text, spans = "", list[Span | None]()
    while (index := len(spans)) < len(words):
        number, cells = words[index]
        number, last, cells = joined.get(index + 1, (number, index + 1, cells))
        refuse_if(
            last > len(words),
            f"Line {number}: the range ends at word {last}, and there are {len(words)}.",
        )
        forms = [row[1] for _, row in words[index:last]]
        ends = accumulate(map(len, forms), initial=len(text))
        spans += [span if "".join(forms) == cells[1] else None for span in pairwise(ends)]
        text += cells[1]
        if _misc(cells).get("SpaceAfter") != "No" and len(spans) < len(words):
            text += " "
    return text, spans


def _misc(cells: list[str]) -> dict[str, str]:
    return dict(part.split("=", 1) for part in cells[9].strip().split("|") if "=" in part)


def _index(text: str, number: int, column: str, size: int) -> int:
    """The index of a word from its number; −1 for 0."""
    value = _whole(text, number, column)
    refuse_if(
        value > size, f"Line {number}: its {column} is {value}, and the sentence has {size} words."
    )
    return value - 1


def _whole(text: str, number: int, column: str) -> int:
    refuse_if(
        not (text.isascii() and text.isdigit() and len(text) < 6),
        f"Line {number}: its {column} is {quote(text)}; expected a whole number.",
    )
    return int(text)


# The syntactic relations whose heads are looked for: pairs of words of a parsed sentence.


@dataclass(frozen=True)
class Relation:
    """Pairs of words, from a `source` to a `target`.

    They are the governor and the dependent of `deprel` (`from_dependent`: the other way round), where the governor's
    part of speech is one of `governors`, if there are some; without `deprel` a pronoun and its antecedent, or the words
    that a person's own `label` joins.
    """

    key: str
    source: str
    target: str
    deprel: str
    governors: tuple[str, ...] = ()
    from_dependent: bool = False
    label: str = ""

    def ends(self, reverse: bool = False) -> tuple[str, str]:
        """The words from and to which it goes in this direction."""
        return (self.target, self.source) if reverse else (self.source, self.target)

    def name(self, reverse: bool = False) -> str:
        """The relation as "Verb → subject", or reversed; a person's own label as "capital: first → second"."""
        if self.label:
            return f"{self.label}: {'second → first' if reverse else 'first → second'}"
        first, last = self.ends(reverse)
        return f"{first[0].upper()}{first[1:]} → {last}"

    def pairs(self, parse: Parse) -> list[tuple[int, int]]:
        """(source, target) of every instance in the sentence."""
        words = parse.words
        if self.label:
            return [(first, second) for name, first, second in parse.pairs if name == self.label]
        if not self.deprel:
            return [
                (index, word.antecedent)
                for index, word in enumerate(words)
                if word.antecedent is not None
            ]
        return [
            (index, word.head) if self.from_dependent else (word.head, index)
            for index, word in enumerate(words)
            if word.relation == self.deprel
            and word.head >= 0
            and (not self.governors or words[word.head].upos in self.governors)
        ]

    def targets(self, parse: Parse, reverse: bool = False) -> dict[int, set[int]]:
        """The words that answer the relation, for each word that asks for one: all adjectives of a noun, say."""
        answers: dict[int, set[int]] = {}
        for source, target in self.pairs(parse):
            first, last = (target, source) if reverse else (source, target)
            answers.setdefault(first, set()).add(last)
        return answers


NOUNS = ("NOUN", "PROPN")

RELATIONS: tuple[Relation, ...] = (
    Relation("subject", "verb", "subject", "nsubj", ("VERB",)),
    Relation("object", "verb", "object", "obj", ("VERB",)),
    Relation("determiner", "noun", "determiner", "det", NOUNS),
    Relation("adjective", "adjective", "noun", "amod", NOUNS, from_dependent=True),
    Relation("antecedent", "pronoun", "antecedent", ""),
    Relation("passive", "passive verb", "auxiliary", "aux:pass", ("VERB",)),
)


def relations_in(parses: Sequence[Parse]) -> tuple[Relation, ...]:
    """RELATIONS, and each relation and label of these sentences as it is called there, the most frequent first."""
    named = Counter(word.relation for parse in parses for word in parse.words if word.head >= 0)
    labels = Counter(name for parse in parses for name, _, _ in parse.pairs)
    return (
        *RELATIONS,
        *(Relation(name, "governor", name, name) for name, _ in named.most_common()),
        *(
            Relation(
                f"label {name}", f"first word of {name}", f"second word of {name}", "", label=name
            )
            for name, _ in labels.most_common()
        ),
    )


MIN_SENTENCES = 10  # that a model must know
MIN_QUERIES = 10  # of a relation
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
    pretrained: Pretrained, parses: Sequence[Parse], kind: Kind | None = None
) -> SyntaxReadings:
    """Read every sentence of which the model knows four words in five, and reduce each to its heads' top words.

    `kind` is the first of the model's own where it is None. PretrainedError as in `known_parses`, and where no sentence
    could be divided into its words.
    """
    known = known_parses(pretrained, parses)
    return join_readings(
        pretrained,
        [reduce_parse(pretrained, parse, kind) for parse in known],
        len(parses) - len(known),
    )


def known_parses(pretrained: Pretrained, parses: Sequence[Parse]) -> tuple[Parse, ...]:
    """The sentences of which the model knows four words in five.

    PretrainedError for a model that reads no text, whose tokenizer does not say which characters a token stands for, or
    that knows fewer than ten of the sentences.
    """
    reject_if(
        not pretrained.reads_text, f"{pretrained.name} reads no text, so it has no syntax to show."
    )
    reject_if(not parses, "There are no sentences; give it those of a CoNLL-U file.")
    reject_if(
        not getattr(tokenizer_of(pretrained), "is_fast", False),
        f"The tokenizer of {pretrained.name} does not say which characters a token stands for. "
        "Take a model with a fast tokenizer (tokenizer.json).",
    )
    known = tuple(parse for parse in parses if unknown_share(pretrained, parse.text) <= MAX_UNKNOWN)
    reject_if(
        len(known) < (fewest := min(MIN_SENTENCES, len(parses))),
        f"{pretrained.name} knows the words of {len(known)} of the {len(parses)} sentences; "
        f"syntax needs {fewest}. Take a model of English, or a CoNLL-U file in the model's own language.",
    )
    return known


def reduce_parse(pretrained: Pretrained, parse: Parse, kind: Kind | None) -> SyntaxReadings | None:
    """One sentence, reduced to its heads' top words; None where its tokens cannot be divided into its words."""
    reading = read_parse(pretrained, parse)
    kind = kind or reading.trace.kinds[0]
    reject_if(
        kind not in reading.trace.kinds,
        f"{pretrained.name} has no {kind} attention; it has {', '.join(reading.trace.kinds)}.",
    )
    tokens, maps = word_tokens(pretrained, parse, reading, kind), reading.trace.of(kind).maps
    if tokens is None:
        return None
    hidden = np.eye(len(tokens), dtype=bool) if kind == "self" else np.tri(len(tokens)).T > 0
    others = [np.where(hidden, 0, word_weights(item.shares, tokens)) for item in maps]
    top = [np.where(one.max(-1) > 0, one.argmax(-1), -1).astype(np.int16) for one in others]
    return SyntaxReadings(
        kind,
        (ParsedReading(parse, tokens, stack_layers(top, -1)),),
        0,
        tuple(item.layer_number for item in maps),
        tuple(map(len, top)),
    )


def join_readings(
    pretrained: Pretrained, parts: Sequence[SyntaxReadings | None], left_out: int
) -> SyntaxReadings:
    """The sentences of all parts; `left_out` more were not read. PretrainedError where no part has one."""
    read = [part for part in parts if part is not None]
    reject_if(
        not read, f"No sentence of {pretrained.name} could be divided into the words of the file."
    )
    return replace(
        read[-1],
        sentences=tuple(one for part in read for one in part.sentences),
        left_out=left_out + len(parts) - len(read),
    )


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
    name = "text_target" if pretrained.reads == "pair" and kind == "causal" else "text"
    encoding = tokenized(
        pretrained, **{name: parse.text}, add_special_tokens=False, return_offsets_mapping=True
    )
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
    return np.asarray((member / np.maximum(member.sum(-1, keepdims=True), 1)) @ weights @ member.T)


def word_trace(
    reading: Reading, parse: Parse, tokens: Sequence[Sequence[int]], kind: Kind
) -> AttentionTrace:
    """The maps of a reading with words for tokens."""
    forms, trace = tuple(word.form for word in parse.words), reading.trace.of(kind)
    return replace(
        trace,
        maps=tuple(
            replace(
                item,
                weights=word_weights(item.weights, tokens),
                queries=forms,
                keys=forms,
                mask=None,
            )
            for item in trace.maps
        ),
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

    @cached_property
    def held_out(self) -> tuple[tuple[Head, Head], Bool[np.ndarray, " N"]]:
        """The heads picked on either half of the sentences, and their hits on the other half."""
        flat, picked = _cross_fit(self.hits.reshape(-1, self.count), self.sentence % 2)
        heads = [tuple(map(int, np.unravel_index(one, self.accuracy.shape))) for one in picked]
        return (heads[0], heads[1]), flat  # type: ignore[return-value]

    @property
    def held_out_share(self) -> tuple[float, float, float]:
        """The share of these hits, with the ends of its 95 % interval."""
        hits = self.held_out[1]
        return float(hits.mean()), *wilson_interval(int(hits.sum()), self.count)

    @cached_property
    def offset_held_out(self) -> tuple[list[int], Bool[np.ndarray, " N"]]:
        """The offsets picked on either half of the sentences, as the heads are, and their hits on the other half."""
        flat, picked = _cross_fit(self.offset_hits, self.sentence % 2)
        return self.offsets[picked].tolist(), flat


def _queries(
    readings: SyntaxReadings, relation: Relation, reverse: bool
) -> list[tuple[int, int, set[int]]]:
    """The sentence, the word and its targets of each query."""
    causal = readings.kind == "causal"
    return [
        (index, query, keys)
        for index, each in enumerate(readings.sentences)
        for query, targets in relation.targets(each.parse, reverse).items()
        if each.tokens[query]
        and (keys := {key for key in targets if each.tokens[key] and not (causal and key > query)})
    ]


def score_relation(
    readings: SyntaxReadings, relation: Relation, reverse: bool = False
) -> RelationScore | None:
    """Score every head and offset in one direction of a relation; None with fewer than ten queries.

    A query is a word with a target. In a causal model only targets before it count, and only offsets back.
    """
    rows = _queries(readings, relation, reverse)
    if len(rows) < MIN_QUERIES:
        return None
    offsets = np.asarray(sorted({key - query for _, query, keys in rows for key in keys}))
    return RelationScore(
        relation,
        reverse,
        np.stack(
            [
                np.isin(readings.sentences[index].top[:, :, query], list(keys))
                for index, query, keys in rows
            ],
            -1,
        ),
        offsets,
        np.asarray([[query + int(one) in keys for _, query, keys in rows] for one in offsets]),
        np.asarray([row[0] for row in rows]),
        np.asarray([row[1] for row in rows]),
    )


def _cross_fit(
    hits: Bool[np.ndarray, "C N"], half: Int[np.ndarray, " N"]
) -> tuple[np.ndarray, list[int]]:
    """Hits of the candidate that is best on the other half, and the candidate of each half (0, 1)."""
    picked = [int(hits[:, half == part].sum(-1).argmax()) for part in (0, 1)]
    return np.where(half == 1, *hits[picked]), picked


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927); ValueError without a trial."""
    if count < 1:
        raise ValueError("an interval needs one trial or more")
    share, z2 = hits / count, Z * Z / count
    centre, half = share + z2 / 2, Z * sqrt(share * (1 - share) / count + z2 / (4 * count))
    return max(0.0, (centre - half) / (1 + z2)), min(1.0, (centre + half) / (1 + z2))


# Every relation in both directions over the sentences of a file, and the words that a head finds in one.


MAX_PARSES = 500
CHOICES: tuple[tuple[Relation, bool], ...] = tuple(
    (each, reverse) for each in RELATIONS for reverse in (False, True)
)


@dataclass(frozen=True, eq=False)
class SyntaxResult:
    """The readings, and the score of each of `choices`; None where it cannot be measured."""

    readings: SyntaxReadings
    scores: tuple[RelationScore | None, ...]
    choices: tuple[tuple[Relation, bool], ...] = CHOICES

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(relation.name(reverse) for relation, reverse in self.choices)

    @cached_property
    def counts(self) -> dict[tuple[Relation, bool], int]:
        """The instances of every relation of the sentences, in both directions, where there are some."""
        relations = relations_in([each.parse for each in self.readings.sentences])
        choices = [(relation, reverse) for relation in relations for reverse in (False, True)]
        counts = {choice: len(_queries(self.readings, *choice)) for choice in choices}
        return {choice: count for choice, count in counts.items() if count}

    def heads(self) -> list[Head]:
        """All heads (layer, head) of the model."""
        return [(layer, head) for layer, of in enumerate(self.readings.heads) for head in range(of)]

    def default(self) -> int:
        """The choice whose best head is furthest above the best offset, both on sentences that did not pick them."""
        return int(
            np.argmax(
                [
                    -2.0 if one is None else one.held_out[1].mean() - one.offset_held_out[1].mean()
                    for one in self.scores
                ]
            )
        )


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
    """The project's own sentences, annotated by hand, for "", or those of stored data; ConfigError if they are malformed."""
    return parse_conllu(stored.read(reference) if reference else OWN.read_text("utf-8"))


def known_sentences(pretrained: Pretrained, reference: str) -> tuple[Parse, ...]:
    """Those of the first MAX_PARSES of `parses` that the model knows. PretrainedError as in `known_parses`."""
    return known_parses(pretrained, parses(reference)[:MAX_PARSES])


def score_syntax(readings: SyntaxReadings) -> SyntaxResult:
    """The scores of all relations over sentences that were read."""
    return SyntaxResult(readings, tuple(score_relation(readings, *choice) for choice in CHOICES))


def measure_syntax(pretrained: Pretrained, reference: str, kind: Kind) -> SyntaxResult:
    """How often the word to which a head attends most is the one that a syntactic relation asks for."""
    return score_syntax(read_parses(pretrained, parses(reference)[:MAX_PARSES], kind))


def with_relation(result: SyntaxResult, name: str) -> SyntaxResult:
    """The result with the relation of this name and direction, one of its `counts`, measured."""
    choice = next(each for each in result.counts if each[0].name(each[1]) == name)
    if choice in result.choices:
        return result
    score = score_relation(result.readings, *choice)
    return replace(result, scores=(*result.scores, score), choices=(*result.choices, choice))


def sentence_trace(reading: Reading, result: SyntaxResult, sentence: int) -> AttentionTrace:
    """The maps of one sentence of a result, between words."""
    one = result.readings.sentences[sentence]
    return word_trace(reading, one.parse, one.tokens, result.readings.kind)


def queries_by_sentence(
    result: SyntaxResult, score: RelationScore, head: Head
) -> dict[int, tuple[Query, ...]]:
    """The queries of each sentence that has some: one without a wrong answer, all with one, and the others."""
    out: dict[int, tuple[Query, ...]] = {}
    for sentence, word in zip(score.sentence.tolist(), score.query.tolist(), strict=True):
        one = result.readings.sentences[sentence]
        targets = tuple(sorted(score.relation.targets(one.parse, score.reverse)[word]))
        query = Query(word, targets, int(one.top[*head, word]))
        out[sentence] = (*out.get(sentence, ()), query)
    right = [sentence for sentence, each in out.items() if all(query.right for query in each)]
    wrong = [sentence for sentence in out if sentence not in right]
    return {sentence: out[sentence] for sentence in (*right[:1], *wrong, *right[1:])}
