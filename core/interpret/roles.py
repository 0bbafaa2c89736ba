"""Roles of heads: what they are, which tokens they look for, and how well every head of a model fits each."""

import random
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from core.entries import quote
from core.interpret.trace import Head, Kind, NumberedHeads, to_numpy
from core.pretrained import (
    Array,
    Line,
    ModelInputs,
    Pretrained,
    Reading,
    read,
    tokenized,
    tokenizer_of,
)
from core.tokens import bare_piece, is_sign, join_pieces

# The sentences on which roles are measured, written for this project.


# Mostly common words, for models of a small vocabulary; one word in each is rarer than the others.
SENTENCES: tuple[str, ...] = (
    "The animal didn't cross the street because it was too tired.",
    "The old man opened the door, and the cold wind came into the house.",
    "A queen of silver and gold sat by the window; the king stood under a chandelier.",
    "She read the letter again, but there was no name in it.",
    "The cat slept on the chair, and the dog slept under the chair.",
    "When the rain came, the children ran to the barn.",
    "He asked for bread, milk, cheese and marmalade.",
    "The boat left the town at night. In the morning it was far out on the sea.",
    "If you walk over the hill, you see the lake where the heron lives.",
    "My friend told me the story of a bear and a mouse in the forest.",
    "The teacher wrote one word on the blackboard, then another word, and then she waited.",
    "They played in the garden until the sun was down.",
    "Was it you who took the small box, or was it your brother?",
    "The train to the city was late; the train from the city never came.",
    "All the windows of the old school were dark, but one was open.",
    "The fisherman sold three fish, gave one away, and ate the last one himself.",
    "In winter the snow lies white on the roofs, and the river is still.",
    "A boy gave the girl an apple, and the girl gave the boy a book.",
    "The moon was up, the stars were out, and the wolf was near.",
    "Before we could speak, the orchestra played.",
    "The long road goes from the mountain to the sea, through field and forest.",
    "I thought of the green hat, of the blue coat, and of the person who wore them.",
    "The horse fell in the river, stood up and walked on.",
    "There are two clocks in this room; the clock on the wall is never right.",
    # Repetitions, which show induction.
    "The old man saw the red fox by the river, and the old man saw the red fox by the river.",
    "A cup of tea and a little cake, a cup of tea and a little cake.",
    "dog tree gold hand ship milk king fire dog tree gold hand ship milk king fire",
    "the bird flew over the dark lake . we heard the bird flew over the dark lake .",
    "water stone apple night horse letter bread snow moon water stone apple night horse letter bread snow moon",
    "She lost her blue coat in the town, so he found her blue coat in the town.",
)

# For a model of number words alone; every second line repeats itself.
NUMBERS: tuple[str, ...] = (
    "three hundred and forty two",
    "seven thousand one hundred and nineteen ; seven thousand one hundred and nineteen",
    "fifty six ; nine hundred and four ; twelve",
    "eight thousand and thirty ; eight thousand and thirty ; two",
    "one thousand four hundred and ninety three",
    "six hundred and eleven ; six hundred and eleven",
    "two ; twenty two ; two hundred and twenty two",
    "five thousand nine hundred and sixty ; five thousand nine hundred and sixty",
    "eighty seven ; three thousand and fifteen",
    "four hundred and seventy eight ; one ; four hundred and seventy eight",
    "nine thousand two hundred and thirteen ; forty",
    "thirty five ; six thousand and seventeen ; thirty five ; six thousand and seventeen",
    "eighteen ; eight hundred and eighty ; ten",
    "two thousand and sixty four ; two thousand and sixty four",
    "seven hundred and fifty one ; nine thousand",
    "one hundred and twenty nine ; fourteen ; one hundred and twenty nine ; fourteen",
)


# The target keys of each role: for each query of a line, from its tokens alone.


Targets = Bool[np.ndarray, "T T"]
Rule = Callable[["Text"], Targets]

UNKNOWN = "<unk>", "[unk]"
LETTERS = 3  # a shorter piece, such as the t of "didn't", is not a word


@dataclass(frozen=True, eq=False)
class Text:
    """A line with its ordinary tokens, the word of each token, and distances."""

    line: Line

    @cached_property
    def ordinary(self) -> Bool[np.ndarray, " T"]:
        """The known tokens of the text itself: the rows on which roles are measured."""
        return ~np.asarray(
            [
                hidden or piece in UNKNOWN
                for hidden, piece in zip(self.line.special, self.pieces, strict=True)
            ],
            dtype=bool,
        )

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        return tuple(token.lower() for token in self.line.tokens)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The word of each token, in lower case and without outer punctuation; "" for a sign."""
        parts: dict[int, list[str]] = {}
        for index, token in zip(self.line.word, self.line.tokens, strict=True):
            if index is not None:
                parts.setdefault(index, []).append(token)
        by_word = {
            index: _without_signs(join_pieces(word).lower()) for index, word in parts.items()
        }
        return tuple(
            "" if index is None or piece in UNKNOWN else by_word[index]
            for index, piece in zip(self.line.word, self.pieces, strict=True)
        )

    @cached_property
    def distance(self) -> np.ndarray:
        """j − i for each query i and key j."""
        return np.arange(len(self.line)) - np.arange(len(self.line))[:, None]


def at_distance(distance: int) -> Rule:
    """The token so far after this one, unless it is special, or the first, to which heads attend for other reasons."""

    def targets(text: Text) -> Targets:
        return (text.distance == distance) & text.ordinary & (np.arange(len(text.line)) > 0)

    return targets


def first(text: Text) -> Targets:
    """The first token, special or not, from the third token on: for the second it is also the one before."""
    return (np.arange(len(text.line)) == 0) & (text.distance < -1)


def delimiter(text: Text) -> Targets:
    """Punctuation and end marks, except for the first token."""
    keys = np.array(
        [
            index > 0
            and (
                piece.strip("<[|]>") not in ("unk", "pad")
                if special
                else is_sign(bare_piece(piece))
            )
            for index, (piece, special) in enumerate(
                zip(text.pieces, text.line.special, strict=True)
            )
        ],
        dtype=bool,
    )
    return keys[None, :] & (text.distance != 0) & ~keys[:, None]


def same_word(text: Text) -> Targets:
    """The same word elsewhere, unless adjacent."""
    words = np.asarray(text.words, dtype=object)
    word_index = np.asarray([-1 if index is None else index for index in text.line.word])
    return (
        (words[:, None] == words[None, :])
        & (words[:, None] != "")
        & (word_index[:, None] != word_index[None, :])
        & text.ordinary[None, :]
        & (np.abs(text.distance) > 1)
    )


def rare_word(text: Text) -> Targets:
    """The rarest word of the sentence, for all its other words; none where two are equally rare."""
    ranks = np.asarray(
        [rank(word) if word.isalpha() and len(word) >= LETTERS else -1 for word in text.words]
    )
    rarest = {
        text.words[index]
        for index in np.flatnonzero((ranks == ranks.max(initial=-1)) & (ranks >= 0))
    }
    words = np.asarray([word in rarest and len(rarest) == 1 for word in text.words], dtype=bool)
    return words[None, :] & ~words[:, None]


def induction(text: Text) -> Targets:
    """The token after an earlier (without a mask: any other) occurrence of this token, if the continuation matches.

    Elhage et al. 2021; Olsson et al. 2022: "… A B … A" attends to B. The last token has no continuation and counts too.
    """
    pieces, known = np.asarray(text.pieces, dtype=object), text.ordinary
    earlier = (pieces[:, None] == pieces[None, :-1]) & known[:, None] & known[None, :-1]
    next_same = pieces[1:, None] == pieces[None, :]
    follows = np.pad(earlier, ((0, 0), (1, 0)))
    continues = np.pad(next_same, ((0, 1), (0, 0)), constant_values=True)
    return follows & continues & known[None, :] & (np.abs(text.distance) > 1)


@cache
def _ranks() -> dict[str, int]:
    """The order of BERT's vocabulary, the commonest words first (Devlin et al. 2019: Wikipedia and BooksCorpus)."""
    from core.pretrained.load import minilm_folder

    lines = (minilm_folder() / "vocab.txt").read_text("utf-8").splitlines()
    return {word: index for index, word in enumerate(lines) if word.isalpha() and len(word) > 1} | {
        "a": 0,
        "i": 0,
    }


def rank(word: str) -> int:
    """The word's rank by frequency in English, 0 the commonest; a word outside BERT's 30,000 comes last."""
    return _ranks().get(word.lower(), 30_522)


def _without_signs(word: str) -> str:
    return word.strip("".join(filter(is_sign, word)))


# The nine roles, in the order of their colours: the targets of each, in words and as a rule over tokens.


@dataclass(frozen=True)
class Role:
    """A role of a head: its target keys as a rule (None for Broad) and in words, and its source.

    `acts` is False for First token and Broad, the roles of heads at rest.
    """

    key: str
    name: str
    _: KW_ONLY
    mark: str
    targets: Rule | None
    attends_to: str
    source: str

    @property
    def meaning(self) -> str:
        return (
            f"weight on {self.attends_to}"
            if self.targets
            else "share of its keys that a row attends to, e^entropy / keys"
        )

    @property
    def acts(self) -> bool:
        return self.key not in ("first", "broad")


CLARK = "[Clark et al. 2019](https://arxiv.org/abs/1906.04341)"
VOITA = "[Voita et al. 2019](https://arxiv.org/abs/1905.09418)"
XIAO = "[Xiao et al. 2024](https://arxiv.org/abs/2309.17453)"
OLSSON = "[Olsson et al. 2022](https://arxiv.org/abs/2209.11895)"

ROLES: tuple[Role, ...] = (
    Role(
        "previous",
        "Previous token",
        mark="prev",
        targets=at_distance(-1),
        attends_to="the token before",
        source=VOITA,
    ),
    Role(
        "next",
        "Next token",
        mark="next",
        targets=at_distance(1),
        attends_to="the token after",
        source=VOITA,
    ),
    Role(
        "first", "First token", mark="1st", targets=first, attends_to="the first token", source=XIAO
    ),
    Role(
        "self",
        "Itself",
        mark="self",
        targets=at_distance(0),
        attends_to="the token itself",
        source=CLARK,
    ),
    Role(
        "delimiter",
        "Delimiter",
        mark="end",
        targets=delimiter,
        attends_to="punctuation and end marks",
        source=CLARK,
    ),
    Role(
        "same",
        "Same word",
        mark="same",
        targets=same_word,
        attends_to="the same word elsewhere",
        source=CLARK,
    ),
    Role(
        "rare",
        "Rare word",
        mark="rare",
        targets=rare_word,
        attends_to="the sentence's rarest word",
        source=VOITA,
    ),
    Role(
        "induction",
        "Induction",
        mark="ind",
        targets=induction,
        attends_to="the token that followed the same token before, where the text repeats",
        source=OLSSON,
    ),
    Role(
        "broad",
        "Broad",
        mark="all",
        targets=None,
        attends_to="all keys that it may attend to, evenly",
        source=CLARK,
    ),
)
ACTS = np.asarray([role.acts for role in ROLES])


# The inputs on which roles are measured: the example sentences where the model knows their words, else others.


MAX_UNKNOWN = 0.2  # of a sentence's tokens
MIN_SENTENCES = 5  # sentences that a model must know
LINES, LENGTH = 16, 8
PICTURES = 30
DECODED = 10  # sentences for which a decoder writes its own text, about: each takes seconds
SEED = 86


@dataclass(frozen=True)
class RoleInputs:
    """The inputs, and what they are: "example sentences", "example lines of numbers", …"""

    givens: tuple[ModelInputs, ...]
    what: str

    @property
    def name(self) -> str:
        """With their number: "30 example sentences", "the input above"."""
        if (count := len(self.givens)) != 1:
            return f"{count} {self.what}"
        one = self.what.replace("sentences", "sentence").replace("lines", "line")
        return f"{'the' if one == 'input above' else '1'} {one}"


def role_inputs(
    pretrained: Pretrained, own_sentences: Sequence[str] = (), kind: Kind = "self"
) -> RoleInputs:
    """The inputs on which a model's roles are measured.

    They are `own_sentences`, else the example ones, else lines of numbers or of the model's own words.
    Of each list only sentences of which the model knows four words in five, and the first list with at least five of
    them (of own sentences: one). A decoder that generates its text gets every third of a long list. A model of pictures
    gets handwritten digits; one of sounds gets none.
    """
    if pretrained.reads == "picture":
        from core.tasks.translation import digits

        pictures, _ = digits()
        return RoleInputs(
            tuple(
                ModelInputs(picture=Array.of(to_numpy(picture))) for picture in pictures[:PICTURES]
            ),
            "handwritten digits",
        )
    if pretrained.reads == "sound":
        return RoleInputs((), "")
    for what, sentences, fewest in (
        ("sentences of your own", own_sentences, 1),
        ("example sentences", SENTENCES, MIN_SENTENCES),
        ("example lines of numbers", NUMBERS, MIN_SENTENCES),
        ("lines of random words of the model's vocabulary", own_lines(tokenizer_of(pretrained)), 1),
    ):
        known = tuple(
            ModelInputs(text)
            for text in sentences
            if unknown_share(pretrained, text) <= MAX_UNKNOWN
        )
        if len(known) >= fewest:
            step = (
                len(known) // DECODED or 1 if pretrained.reads == "pair" and kind == "causal" else 1
            )
            return RoleInputs(known[::step], what)
    return RoleInputs((), "")


def unknown_share(pretrained: Pretrained, text: str) -> float:
    """The share of a text's tokens that are unknown to the model; 1 where there is no token."""
    unknown = tokenizer_of(pretrained).unk_token_id
    ids = tokenized(pretrained, text, add_special_tokens=False)["input_ids"]
    return sum(token == unknown for token in ids) / len(ids) if ids else 1.0


def own_lines(tokenizer: Any) -> tuple[str, ...]:
    """Lines of random words of the model's vocabulary, by a fixed seed; every second line repeats its words."""
    special, draw = set(tokenizer.all_special_ids), random.Random(SEED)
    pieces = sorted(index for index in tokenizer.get_vocab().values() if index not in special)
    draw.shuffle(pieces)
    words = [
        word
        for index in pieces[: 20 * LENGTH]
        if (word := str(tokenizer.decode([index])).strip()).isalnum()
    ]
    lines = [[draw.choice(words) for _ in range(LENGTH)] for _ in range(LINES)] if words else []
    return tuple(" ".join(line * (1 + index % 2)) for index, line in enumerate(lines))


def read_text(pretrained: Pretrained, inputs: ModelInputs, kind: Kind) -> Reading:
    """The model's reading of a text; for an encoder alone, its decoder reads the same text instead of writing one."""
    if pretrained.reads == "pair" and kind == "self" and inputs.target is None:
        inputs = replace(inputs, target=inputs.text)
    return read(pretrained, inputs)


def read_all(
    pretrained: Pretrained, inputs: RoleInputs, kind: Kind = "self"
) -> tuple[Reading, ...]:
    """The model's reading of each input; PretrainedError when it cannot read one."""
    return tuple(read_text(pretrained, item, kind) for item in inputs.givens)


# The score of every head in every role over a set of readings, with the chance level of shuffled attention.


Scores = Float[np.ndarray, "R L H"]
Rows = Float[np.ndarray, "H N"]

MIN_SHARE = 0.2  # of the weight that chance leaves over
MIN_STDS = 3.0
UNIFORM = 0.9  # heads from here on are uniform, as all are before training
MIN_KEYS = 4  # a row of fewer is always broad
MIN_ROWS = 3
DRAWS = 400


@dataclass(frozen=True, eq=False)
class RoleScores(NumberedHeads):
    """Scores of roles × layers × heads; nan where no row of the set could show the role.

    `chance` and `std` are the mean and the standard deviation of the same score when the keys of each text are
    shuffled among those that a row may see (for Broad: when scores are random). `rows` counts the rows on which a role
    was measured. `numbers` are the model's own numbers of the layers.
    """

    kind: Kind
    score: Scores
    chance: Scores
    std: Scores
    rows: Int[np.ndarray, " R"]
    numbers: tuple[int, ...]

    @cached_property
    def heads(self) -> list[Head]:
        """The heads (layer, head) that exist: layers may have fewer than the widest one."""
        return [(int(a), int(b)) for a, b in np.argwhere(~np.isnan(self.score).all(0))]

    @property
    def share(self) -> Scores:
        """The score rescaled so that chance is 0 and the maximum is 1."""
        return (self.score - self.chance) / (1 - self.chance)

    @property
    def counts(self) -> Bool[np.ndarray, "R L H"]:
        """Where a score is significant: 3 standard deviations above chance, and a share of at least 0.2."""
        with np.errstate(invalid="ignore"):
            above = (self.score > self.chance + MIN_STDS * self.std) & (self.share >= MIN_SHARE)
        broad = np.asarray([role.targets is None for role in ROLES])[:, None, None]
        return above & (self.rows >= MIN_ROWS)[:, None, None] & ~(broad & (self.score >= UNIFORM))

    @property
    def head_roles(self) -> dict[Head, int]:
        """The role of each head (layer, head) as an index into ROLES: the significant one with the largest share.

        First token and Broad count only where no other role is significant, since many heads rest on most tokens
        (Kobayashi et al. 2020). Heads without a significant role are left out.
        """
        rank = np.where(self.counts, self.share + ACTS[:, None, None], -1.0)
        best = rank.argmax(0)
        return {
            (int(layer), int(head)): int(best[layer, head])
            for layer, head in np.argwhere(rank.max(0) >= 0)
        }

    def ranked(self, role: int) -> list[Head]:
        """The heads that have a score in a role, those furthest above chance first."""
        return ranked_heads(self.share[role])

    def best(self, role: int) -> Head | None:
        """The head in which a role's score is furthest above chance; None where it cannot be measured."""
        return next(iter(self.ranked(role)), None)


def default_role(scores: RoleScores) -> int:
    """The index of the role with the largest share above chance, of the active roles that some head has; else of all."""
    preferred = np.where(ACTS & scores.counts.any((1, 2)), 2.0, 0.0)
    return int((np.nan_to_num(scores.share, nan=-1.0).max((1, 2)) + preferred).argmax())


def ranked_heads(score: Float[np.ndarray, "L H"]) -> list[Head]:
    """The heads that have a score (not nan), the one with the highest first."""
    return sorted(
        ((int(layer), int(head)) for layer, head in np.argwhere(~np.isnan(score))),
        key=lambda head: -score[head],
    )


def stack_layers(
    layers: Sequence[Num[np.ndarray, "_ ..."]], empty: float = np.nan
) -> Num[np.ndarray, "L H ..."]:
    """The values of all layers in one array; `empty` for the heads that a layer has fewer than the widest one."""
    out = np.full(
        (len(layers), max(map(len, layers)), *layers[0].shape[1:]), empty, layers[0].dtype
    )
    for row, layer in zip(out, layers, strict=True):
        row[: len(layer)] = layer
    return out


Sums = tuple[Float[np.ndarray, " H"], Float[np.ndarray, " H"], Float[np.ndarray, " H"], int]


@dataclass(frozen=True, eq=False)
class RoleSums:
    """Sums over the rows of one reading or of several: the score, and its mean and variance under chance.

    `rows` counts the rows of each role and layer. Heads that a layer lacks are nan.
    """

    score: Scores
    chance: Scores
    variance: Scores
    rows: Int[np.ndarray, "R L"]

    def __add__(self, other: "RoleSums") -> "RoleSums":
        return RoleSums(
            self.score + other.score,
            self.chance + other.chance,
            self.variance + other.variance,
            self.rows + other.rows,
        )

    def scores(self, kind: Kind, numbers: tuple[int, ...]) -> RoleScores:
        """The scores of the model's layers of these numbers; nan where there is no row."""
        with np.errstate(invalid="ignore", divide="ignore"):
            rows = self.rows[..., None]
            return RoleScores(
                kind,
                self.score / rows,
                self.chance / rows,
                np.sqrt(self.variance) / rows,
                self.rows.max(1),
                numbers,
            )


def score_roles(readings: Sequence[Reading], kind: Kind | None = None) -> RoleScores:
    """The score of every head in every role, over readings of one model.

    A score is the mean weight on the role's target keys, over the rows that have such keys.
    ValueError for cross-attention, or when there is no map of that kind.
    """
    if not readings:
        raise ValueError("There is no reading to measure.")
    kind = kind or readings[0].trace.kinds[0]
    return reduce(add, (role_sums(reading, kind) for reading in readings)).scores(
        kind, readings[0].trace.of(kind).numbers
    )


def role_sums(reading: Reading, kind: Kind) -> RoleSums:
    """The sums of one reading for every role, layer and head; ValueError as in `score_roles`."""
    if kind == "cross":
        raise ValueError(
            "Roles use the tokens before and after, which exist only within one sequence."
        )
    trace, text = reading.trace.of(kind), Text(reading.lines(kind)[0])
    if not trace.maps:
        raise ValueError(f"There is no map of kind {quote(kind)} to measure.")
    layers = [(item.shares, np.asarray(item.visible.any(0))) for item in trace.maps]
    sums = [
        [
            _broad(weights, visible, text)
            if keys is None
            else weight_on_targets(weights, visible, text, keys & visible)
            for weights, visible in layers
        ]
        for keys in (None if role.targets is None else role.targets(text) for role in ROLES)
    ]
    score, chance, variance = (
        np.stack([stack_layers([layer[:3][part] for layer in role]) for role in sums])
        for part in (0, 1, 2)
    )
    return RoleSums(
        score, chance, variance, np.array([[layer[3] for layer in role] for role in sums])
    )


def weight_on_targets(
    weights: Float[np.ndarray, "H T T"], visible: Targets, text: Text, expected: Targets
) -> Sums:
    """The weight on the expected keys, and its mean and variance when keys are shuffled, in closed form; and the rows.

    All rows of a text are shuffled alike, as maps have vertical stripes. For rows i, i' that see the same n keys, with
    their weights and expected keys centred, the covariance is (w·w')(m·m') / (n − 1): Hoeffding 1951, theorem 2. Where
    a mask lets rows see different numbers of keys, n − 1 is the geometric mean of both.
    """
    rows = np.flatnonzero(expected.any(-1) & text.ordinary & (visible.sum(-1) > 1))
    w, keys, right = weights[:, rows].astype(np.float64), visible[rows], expected[rows]
    n, m = keys.sum(-1, keepdims=True), right.sum(-1, keepdims=True)
    mean = (w * keys).sum(-1, keepdims=True) / n
    apart = (w - mean) * keys
    targets = (right - m / n) * keys / np.sqrt(n - 1)
    covariance = (apart @ apart.swapaxes(-1, -2)) * (targets @ targets.T)
    return (w * right).sum((1, 2)), (mean * m).sum((1, 2)), covariance.sum((1, 2)), len(rows)


def _broad(weights: Float[np.ndarray, "H T T"], visible: Targets, text: Text) -> Sums:
    """The share of its keys that a row uses, and its chance level for random scores."""
    n = visible.sum(-1)
    rows = np.flatnonzero(text.ordinary & (n >= MIN_KEYS))
    used = share_used(weights[:, rows].astype(np.float64), n[rows])
    means, variances = np.array([random_rows(int(keys)) for keys in n[rows]]).reshape(-1, 2).T
    heads = np.ones(len(weights))
    return used.sum(-1), heads * means.sum(), heads * variances.sum(), len(rows)


def share_used(
    rows: Float[np.ndarray, "... T S"], keys: Int[np.ndarray, " T"]
) -> Float[np.ndarray, "... T"]:
    """The effective share of keys of each row, e^entropy / keys: 1 when uniform, 1 / keys on a single key."""
    rows = rows / np.maximum(rows.sum(-1, keepdims=True), 1e-12)
    return np.exp(-(rows * np.log(np.where(rows > 0, rows, 1.0))).sum(-1)) / keys


@cache
def random_rows(keys: int) -> tuple[float, float]:
    """Mean and variance of e^entropy / n over rows whose scores are drawn from N(0, 1), as q·k/√D of random q and k."""
    weights = np.exp(np.random.default_rng(keys).standard_normal((DRAWS, keys)))
    used = share_used(weights, np.full(DRAWS, keys))
    return float(used.mean()), float(used.var())


@dataclass(frozen=True)
class Example:
    """A row of a reading, and `value`: the weight on its `expected` target keys (Broad: the share of keys used).

    `key` is the target with most weight, `uniform` the weight of uniform attention on all of them.
    """

    reading: int
    query: int
    key: int
    value: float
    expected: int
    uniform: float


NEARLY = 0.95  # of the clearest row: as clear to the eye


def role_example(readings: Sequence[Reading], kind: Kind, role: str, head: Head) -> Example | None:
    """Where a head shows a role, named by its key, most clearly; see `clearest_example`."""
    return clearest_example(readings, kind, next(one for one in ROLES if one.key == role), *head)


def clearest_example(
    readings: Sequence[Reading], kind: Kind, role: Role, layer: int, head: int
) -> Example | None:
    """The row of all readings with the most weight on the role's targets; None where no row has targets.

    Among rows within 5 % of the best, the one with the longest words is taken.
    """
    candidates: list[tuple[int, Example]] = []  # with the letters of its query and key
    for index, reading in enumerate(readings):
        item, text = reading.trace.of(kind).maps[layer], Text(reading.lines(kind)[0])
        weights, visible = item.shares[head], item.visible[head]
        expected = visible if role.targets is None else role.targets(text) & visible
        rows = np.flatnonzero(expected.any(-1) & text.ordinary & (visible.sum(-1) >= MIN_KEYS))
        on_expected, seen = (weights * expected)[rows], visible[rows].sum(-1)
        values = share_used(weights[rows], seen) if role.targets is None else on_expected.sum(-1)
        counts = expected[rows].sum(-1)
        # The length of a whole word, at most 8; 0 for a piece, a sign or a special token.
        letters = [
            min(len(word), 8) if word == piece else 0
            for word, piece in zip(text.words, text.pieces, strict=True)
        ]
        columns = (rows, on_expected.argmax(-1), values, counts, counts / seen)
        candidates += [
            (letters[query] + letters[key], Example(index, query, key, *rest))
            for query, key, *rest in zip(*(column.tolist() for column in columns), strict=True)
        ]
    most = max((example.value for _, example in candidates), default=0.0)
    near = (pair for pair in candidates if pair[1].value >= NEARLY * most)
    return max(near, key=lambda pair: pair[0], default=(0, None))[1]
