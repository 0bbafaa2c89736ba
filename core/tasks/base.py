"""Task: fresh training batches by a seed, and held-out examples that never occur among them; rows, and classes."""

import math
import string
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Int

from core.entries import refuse_if
from core.models.base import Shape
from core.tasks.config import TaskConfig, TaskEntry, task_entry
from core.tasks.recipes import Recipes

Form = Literal["pairs", "text", "label", "series", "marked"]

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SAMPLE = 500  # examples that stand for an endless stream
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")


class Vocabulary:
    """Tokens and their ids; the first four ids are PAD, BOS, EOS and UNK in every vocabulary."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens: tuple[str, ...] = SPECIALS + tuple(sorted(set(tokens) - set(SPECIALS)))
        self._ids = {token: i for i, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of tokens; an unknown token becomes UNK."""
        return [self._ids.get(token, UNK) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Tokens of ids up to the first EOS, without PAD and BOS."""
        return [
            self.tokens[i]
            for i in takewhile(lambda i: i != EOS, map(int, ids))
            if i not in (PAD, BOS)
        ]


NO_WORDS = Vocabulary(())  # of sources that are numbers or pictures


class Example(NamedTuple):
    """A source and its target: tokens, or numbers where the task's input or form has numbers."""

    source: tuple[Any, ...]
    target: tuple[Any, ...]


@dataclass(frozen=True)
class Batch:
    """What a model reads and the target of its loss.

    | form | source | target_in | target_out |
    | --- | --- | --- | --- |
    | pairs | as the task's input | ids, from BOS (B, T) | ids, up to EOS: step t reads in[t] and predicts out[t] |
    | text | ids (B, S) | None | the next token of each (B, S); PAD where there is none |
    | label | as the task's input | None | the class (B,) |
    | series | numbers (B, S, D) | None | numbers (B, N) |
    | marked | ids (B, S) | None | the answer at each place (B, S); PAD where none is asked |
    """

    source: torch.Tensor
    source_mask: Bool[torch.Tensor, "B S"]  # True = a real token
    target_in: Int[torch.Tensor, "B T"] | None
    target_out: torch.Tensor

    def to(self, device: torch.device | str) -> "Batch":
        tensors = (each for each in vars(self).items() if each[1] is not None)
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors})

    @property
    def tokens(self) -> int:
        """The number of source and target tokens, without padding, for tokens a second."""
        return int(self.source_mask.sum()) + (
            0 if self.target_in is None else int((self.target_out != PAD).sum())
        )


def pad(rows: Sequence[Sequence[int]]) -> Int[torch.Tensor, "B L"]:
    """Rows of ids, padded to the longest."""
    longest = max(map(len, rows))
    return torch.tensor(
        [list(row) + [PAD] * (longest - len(row)) for row in rows], dtype=torch.long
    )


def is_held_out(item: str) -> bool:
    """Whether an item is in the held-out tenth; its checksum decides, so the split does not depend on the seed."""
    return zlib.crc32(item.encode()) % 10 == 0


class Task:
    """A stream of training batches and a held-out set that shares no item with it; a task overrides what differs.

    `form` is the type of target: pairs (a sequence), text (the next token of everything read), label (one class),
    series (numbers ahead), marked (answers at some places of the source); `input` is the type of source, as in
    core.models.Shape. `recommended` maps each kind of model that makes sense (ModelConfig.kind) to its Recipe, the best
    first.
    """

    form: Form = "pairs"
    input = "tokens"
    separator = ""
    unit, whole = "word", "sentences"  # names of one token and of whole outputs
    # of all that `places` names, where the target is no sequence
    expected_name = "the expected position"
    classes: tuple[str, ...] = ()  # of a label
    sentence_end = 0  # as in core.models.Shape
    finite = False  # whether the held-out items are all there are, and so must not decide when training ends
    notes: tuple[str, ...] = ()  # how a person's data was read
    metrics: tuple[str, ...] = ("sequence_accuracy",)
    longest_trained = 0  # tokens of a source; held-out ones that are longer are measured apart

    def __init__(
        self,
        config: TaskConfig,
        entry: TaskEntry,
        recommended: Recipes,
        longest: tuple[int, int],
        source: Vocabulary = NO_WORDS,
        target: Vocabulary | None = None,
    ) -> None:
        """`longest`: the most tokens of a source and, without EOS, of a target; without `target` both share `source`."""
        self.config, self.key, self.name, self.look = config, entry.key, entry.name, entry.look
        self.source_vocab, self.target_vocab = source, target or source
        self.max_source, self.max_target = longest
        self.recommended, self.own_metrics = recommended, entry.metrics

    @property
    def shape(self) -> Shape:
        """The sizes that a model is built for."""
        longest = max(self.max_source, self.max_target) + 1  # with the end mark
        return Shape(
            len(self.source_vocab),
            len(self.classes or self.target_vocab),
            longest,
            output="label" if self.form == "label" else "tokens",
            one_vocabulary=self.source_vocab is self.target_vocab,
            sentence_end=self.sentence_end,
        )

    @property
    def baseline_loss(self) -> float:
        """The loss to beat: the cross-entropy, in nats a token, of a uniform guess. For a finite set with labels, that
        of predicting the frequencies of the classes."""
        return math.log(len(self.classes or self.target_vocab))

    def naive(self, values: Sequence[float]) -> list[float]:
        """A series' last season, repeated: the forecast to beat."""
        raise NotImplementedError

    def majority(self, n: int) -> tuple[str, float] | None:
        """The majority class of the training items, by name, and its share of the first n held-out items; None unless
        the target is a label."""
        if self.form != "label":
            return None
        majority, share = majority_class(
            *(
                [self.label(example) for example in items]
                for items in (self.trained(), self.held_out(n))
            )
        )
        return self.classes[majority], share

    def trained(self) -> tuple[Example, ...]:
        """The training items: all of a finite task, else a sample."""
        generator = torch.Generator().manual_seed(self.config.seed)
        return tuple(self.draw(generator, held_out=False) for _ in range(SAMPLE))

    def baseline(self) -> tuple[str, float] | None:
        """A plain method without attention, by name, and its exact match on the held-out items."""
        return None

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Source and target as words, for the axes of maps and for examples; a text has no target beside it, and that of
        a marked source are its answers."""
        if self.form == "marked":
            return example.source, tuple(one for one in example.target if one != SPECIALS[PAD])
        return example.source, () if self.form == "text" else example.target

    def shown(self, token: str) -> str:
        """A token of the vocabulary as it is written on a page."""
        return token

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        """One fresh example from the training or from the held-out side of the split."""
        raise NotImplementedError

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        """A training batch of fresh examples, the same for the same generator state."""
        return self.collate([self.draw(generator, held_out=False) for _ in range(batch_size)])

    def held_out(self, n: int) -> tuple[Example, ...]:
        """n different held-out examples, the same for the same config; a larger n only adds to them. A finite task
        gives at most all of its held-out items."""
        generator = torch.Generator().manual_seed(self.config.seed | 2**31)
        examples: dict[Example, None] = {}
        for _ in range(5 * n + 100):
            if len(examples) == n:
                return tuple(examples)
            examples[self.draw(generator, held_out=True)] = None
        raise ValueError(
            f"task = {self.key} has too few different held-out items for n = {n}; found {len(examples)}."
        )

    def words_of(self, tokens: Sequence[str]) -> list[str]:
        """The words of an output, for BLEU."""
        return list(tokens)

    def tokens(self, text: str) -> list[str]:
        """The source tokens of a typed text."""
        return text.split() if self.separator else list(text.strip())

    def text_of(self, tokens: Sequence[str]) -> str:
        """The text that has these source tokens."""
        return self.separator.join(tokens)

    def tokenizer(self) -> Any | None:
        """A tokenizer of the library `tokenizers` that splits a text as the task does, with the ids of its vocabulary;
        None where its tokens are words or letters."""
        return None

    def example(self, text: str) -> Example:
        """A typed source with an empty target; ValueError when it is empty or too long."""
        tokens = tuple(self.tokens(text))
        refuse_if(not tokens, "The source is empty; type at least one token.")
        refuse_if(
            len(tokens) > self.max_source,
            f"The source has {len(tokens)} tokens; this task reads at most {self.max_source}.",
        )
        return Example(tokens, ())

    def label(self, example: Example) -> int:
        """The index of an example's class; 0 for a typed example, which has none."""
        return self.classes.index(example.target[0]) if example.target else 0

    def encode(self, examples: Sequence[Example]) -> tuple[torch.Tensor, Bool[torch.Tensor, "B S"]]:
        """The padded sources and which of their places are real; ValueError for no example or an empty source."""
        refuse_if(
            not examples or not all(example.source for example in examples),
            "A batch needs at least one example, and every source at least one token.",
        )
        source = pad([self.source_vocab.encode(example.source) for example in examples])
        return source, source != PAD

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Examples as one padded batch; ValueError as `encode`."""
        source, mask = self.encode(examples)
        if self.form == "label":
            return Batch(source, mask, None, torch.tensor(list(map(self.label, examples))))
        if self.form in ("text", "marked"):
            ids = [self.target_vocab.encode(self.answers(example)) for example in examples]
            return Batch(source, mask, None, pad(ids))
        targets = [self.target_vocab.encode(example.target) for example in examples]
        return Batch(
            source,
            mask,
            pad([[BOS, *ids] for ids in targets]),
            pad([[*ids, EOS] for ids in targets]),
        )

    def answers(self, example: Example) -> tuple[str, ...]:
        """Of a text or a marked source what each place should give, the padding mark where nothing is asked. A typed text
        has no token after its last one; the last place of a typed marked source asks for what nobody knows."""
        nothing = (SPECIALS[PAD],) * (len(example.source) - 1)
        typed = (
            (*example.source[1:], SPECIALS[PAD])
            if self.form == "text"
            else (*nothing, SPECIALS[UNK])
        )
        return example.target or typed

    def places(self, example: Example) -> tuple[tuple[int, ...], ...] | None:
        """For each target token all source positions that it may well attend to, none where no one is right; None where
        the task expects nothing."""
        return None

    def deciding(self, example: Example) -> tuple[range, tuple[int, ...]] | None:
        """The positions of the sentence that decides a document's class, and of the words in it that do; None where
        unknown."""
        return None


def make_task(config: TaskConfig) -> Task:
    task: Task = task_entry(config.key).build(config)
    return task


@lru_cache(maxsize=8)
def task_of(config: TaskConfig) -> Task:
    """The task of a config, shared by all who ask; never change it."""
    return make_task(config)


def choose(generator: torch.Generator, high: int) -> int:
    """A random whole number from 0 to high − 1."""
    return int(torch.randint(high, (), generator=generator))


LETTERS = string.ascii_lowercase + string.ascii_uppercase
MIN_SOURCES = 20_000  # different sources, so that a tenth is enough
_ODD, _MIX = 0x9E3779B97F4A7C15, -0x40A7B892E31B1A47


class RowTask(Task):
    """A task whose `rows` draws sources and targets; everything else follows from it."""

    unit, whole = "letter", "sequences"

    def rows(
        self, count: int, generator: torch.Generator
    ) -> tuple[Int[torch.Tensor, "N S"], Int[torch.Tensor, "N T"]]:
        """Sources and targets as ids of the vocabularies."""
        raise NotImplementedError

    def sized(self, generator: torch.Generator, held_out: bool) -> Callable[..., Any]:
        """What draws the rows of one batch, all of one length."""
        return self.rows

    def item(self, source: Int[torch.Tensor, "N S"]) -> Int[torch.Tensor, "N K"]:
        """The part of a source that decides its side of the split: by default all of it."""
        return source

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        source, target = self._side(
            batch_size, batch_size + batch_size // 4 + 8, generator, held_out=False
        )
        mask = torch.ones_like(source, dtype=torch.bool)
        if self.form in ("text", "marked"):
            return Batch(source, mask, None, target)
        begin, end = (torch.full((batch_size, 1), mark) for mark in (BOS, EOS))
        return Batch(source, mask, torch.cat((begin, target), 1), torch.cat((target, end), 1))

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        source, target = self._side(1, 16, generator, held_out)
        return Example(
            tuple(self.source_vocab.tokens[i] for i in source[0].tolist()),
            tuple(self.target_vocab.tokens[i] for i in target[0].tolist()),
        )

    def _side(
        self, size: int, batch: int, generator: torch.Generator, held_out: bool
    ) -> tuple[Int[torch.Tensor, "N S"], Int[torch.Tensor, "N T"]]:
        sources, targets, count = list[torch.Tensor](), list[torch.Tensor](), 0
        rows = self.sized(generator, held_out)
        while count < size:
            refuse_if(
                len(sources) == SAMPLE,
                f"task = {self.key} has too few different sources to hold some out.",
            )
            source, target = rows(batch, generator)
            on_side = in_held_out(self.item(source)) == held_out
            sources.append(source[on_side])
            targets.append(target[on_side])
            count += len(sources[-1])
        return torch.cat(sources)[:size], torch.cat(targets)[:size]


def in_held_out(rows: Int[torch.Tensor, "N K"]) -> Bool[torch.Tensor, " N"]:
    """Whether rows are in the held-out tenth; a hash of their ids decides, so the split does not depend on the seed."""
    # A polynomial in the ids modulo 2^64 (int64 wraps around), its high bits then mixed into the low ones.
    powers = [pow(_ODD, i + 1, 2**64) for i in range(rows.shape[1])]
    mixed = (rows * torch.tensor(powers, dtype=torch.uint64).view(torch.int64)).sum(1) * _MIX
    return (mixed >> 32) % 10 == 0


HELD_OUT = 0.2
# items × numbers × classes that a baseline is fitted to, which takes a second or two
FITTED = 5_000_000


class LabelledTask(Task):
    """Tell the class of an item; a fifth of each class is held out, equal items on one side together."""

    form: Form = "label"
    finite = True
    baseline_name = "logistic regression"

    def __init__(
        self,
        config: TaskConfig,
        entry: TaskEntry,
        sources: Sequence[tuple[Any, ...]],
        labels: Sequence[int],
        classes: tuple[str, ...],
    ) -> None:
        longest = max(map(len, sources)), 1
        super().__init__(config, entry, {}, longest, target=Vocabulary(classes))
        self.sources, self.labels, self.classes = sources, labels, classes
        self.sides = split_sides(sources, labels, config.seed)

    def item(self, i: int) -> Example:
        """Item number i with its class."""
        return Example(self.sources[i], (self.classes[self.labels[i]],))

    def flat(self, examples: Sequence[Example]) -> Any:
        """Sources as plain numbers, (N, D), for models of scikit-learn."""
        raise NotImplementedError

    @property
    def baseline_loss(self) -> float:
        return entropy([self.labels[i] for i in self.sides[False]])

    @cached_property
    def _trained(self) -> Batch:
        return self.collate(self.trained())

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        return self.select(
            torch.randint(len(self.sides[False]), (batch_size,), generator=generator)
        )

    def select(self, rows: torch.Tensor) -> Batch:
        """A batch of those training items."""
        whole = self._trained
        return Batch(whole.source[rows], whole.source_mask[rows], None, whole.target_out[rows])

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        side = self.sides[held_out]
        return self.item(side[choose(generator, len(side))])

    def held_out(self, n: int) -> tuple[Example, ...]:
        return tuple(map(self.item, self.sides[True][:n]))

    def trained(self) -> tuple[Example, ...]:
        return tuple(map(self.item, self.sides[False]))

    def baseline(self) -> tuple[str, float]:
        """The name of logistic regression and its accuracy on the same split, of a large one on some of its items."""
        from sklearn.linear_model import LogisticRegression

        most = max(100, FITTED // (self.flat(self.held_out(1)).shape[-1] * len(self.classes)))
        # Items stand by class: each so-manieth keeps their shares.
        train, test = (
            [self.item(i) for i in side[:: math.ceil(len(side) / most)]]
            for side in (self.sides[False], self.sides[True])
        )
        model = LogisticRegression(max_iter=1000)
        model.fit(self.flat(train), list(map(self.label, train)))
        score = model.score(self.flat(test), list(map(self.label, test)))
        some = len(train) < len(self.sides[False])
        name = f"{self.baseline_name} on {len(train):,} items" if some else self.baseline_name
        return name, float(score)


def split_sides(
    items: Sequence[object], labels: Sequence[int], seed: int = 0, notes: Sequence[str] = ()
) -> Mapping[bool, tuple[int, ...]]:
    """Indexes of the training items (False) and of the held-out items (True), a fifth of each class.

    Equal items count as one, of the class of the first, so that they stand on one side. ConfigError when no class has
    three different ones, with the notes on how they were read.
    """
    groups: dict[object, list[int]] = {}
    for i, item in enumerate(items):
        groups.setdefault(item, []).append(i)
    by_class: dict[int, list[list[int]]] = {}
    for group in groups.values():
        by_class.setdefault(labels[group[0]], []).append(group)
    generator = torch.Generator().manual_seed(seed)
    split: dict[bool, list[int]] = {False: [], True: []}
    for label in sorted(by_class):
        of_class = by_class[label]
        held_out_count = round(HELD_OUT * len(of_class))  # none of one or two
        for rank, j in enumerate(torch.randperm(len(of_class), generator=generator).tolist()):
            split[rank < held_out_count] += of_class[j]
    refuse_if(
        not split[True],
        " ".join(
            (
                "No class has three different rows, so none can be held out; add different rows.",
                *notes,
            )
        ),
    )
    order = torch.randperm(len(split[True]), generator=generator).tolist()
    return {False: tuple(split[False]), True: tuple(split[True][i] for i in order)}


# Metrics of predictions: exact match, BLEU, chrF; balanced accuracy, majority class and entropy.


Tokens = Sequence[str]


def exact_match(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> float:
    """The share, 0 to 1, of predictions equal to their target; ValueError when counts differ or are 0."""
    check(predictions, targets)
    return sum(list(p) == list(t) for p, t in zip(predictions, targets, strict=True)) / len(targets)


def bleu(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> float:
    """Corpus BLEU, 0 to 100, on words as they are (Papineni 2002; with the exponential smoothing of sacrebleu).

    Orders longer than every target are left out, so that short targets can reach 100. ValueError as exact_match.
    """
    check(predictions, targets)
    counts = [
        _matches(predictions, targets, n)
        for n in range(1, max(1, min(4, max(map(len, targets)))) + 1)
    ]
    if not any(match for _, _, match in counts) or not all(length for length, _, _ in counts):
        return 0.0
    smooth, logs = 1.0, 0.0
    for length, _, match in counts:
        smooth *= 1 if match else 2
        logs += math.log((match or 1 / smooth) / length)
    (length, of_targets, _), orders = counts[0], len(counts)
    return 100 * math.exp(min(0.0, 1 - of_targets / length) + logs / orders)


def _matches(
    predictions: Sequence[Tokens], targets: Sequence[Tokens], n: int
) -> tuple[int, int, int]:
    """How many n-grams the predictions have, the targets, and both, each counted as often as it is in both."""
    pairs = [
        [Counter(zip(*(row[i:] for i in range(n)), strict=False)) for row in pair]
        for pair in zip(predictions, targets, strict=True)
    ]
    return (
        sum(one.total() for one, _ in pairs),
        sum(other.total() for _, other in pairs),
        sum((one & other).total() for one, other in pairs),
    )


def balanced_accuracy(confusion: Sequence[Sequence[int]]) -> float:
    """The mean recall of the classes, 0 to 1 (Brodersen 2010), as sklearn.metrics.balanced_accuracy_score.

    `confusion` counts items by class (row) and prediction (column); classes without items are left out. ValueError when
    it counts none.
    """
    recalls = [row[i] / sum(row) for i, row in enumerate(confusion) if sum(row)]
    refuse_if(not recalls, "An empty confusion matrix has no accuracy.")
    return sum(recalls) / len(recalls)


def majority_class(train: Sequence[Any], test: Sequence[Any]) -> tuple[Any, float]:
    """The most frequent class of the training items, and its share of the test items."""
    majority = Counter(train).most_common()[0][0]
    return majority, sum(item == majority for item in test) / len(test)


def entropy(classes: Sequence[Hashable]) -> float:
    """The entropy of the classes' frequencies, in nats: the loss of predicting these frequencies for every item."""
    return -sum(
        count / len(classes) * math.log(count / len(classes)) for count in Counter(classes).values()
    )


def chrf(predictions: Sequence[str], targets: Sequence[str]) -> float:
    """chrF, 0 to 100: F2 of character n-grams up to 6 (Popović 2015, as sacrebleu); ValueError as exact_match."""
    check(predictions, targets)
    guesses, answers = (["".join(text.split()) for text in side] for side in (predictions, targets))
    shares = [
        (match / length, match / of_targets)
        for n in range(1, 7)
        # A prediction whose target is shorter than n counts nothing.
        for length, of_targets, match in [
            _matches(
                [
                    guess if len(answer) >= n else ""
                    for guess, answer in zip(guesses, answers, strict=True)
                ],
                answers,
                n,
            )
        ]
        if length and of_targets
    ]
    precision, recall = (
        (sum(part) / len(shares) for part in zip(*shares, strict=True)) if shares else (0.0, 0.0)
    )
    return 500 * precision * recall / (4 * precision + recall) if precision + recall else 0.0


def score(task: Task, predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> dict[str, float]:
    """The task's metrics by name: "sequence_accuracy" of its tokens, "bleu" of its words, "chrf" of its text."""
    scores = {"sequence_accuracy": exact_match(predictions, targets)}
    if "bleu" in task.metrics:
        scores["bleu"] = bleu(
            *([task.words_of(row) for row in rows] for rows in (predictions, targets))
        )
    if "chrf" in task.metrics:
        scores["chrf"] = chrf(
            *([task.separator.join(row) for row in rows] for rows in (predictions, targets))
        )
    return scores


def check(predictions: Sequence[Tokens], targets: Sequence[Tokens]) -> None:
    refuse_if(
        len(predictions) != len(targets) or not targets,
        f"Predictions and targets are compared one by one; got {len(predictions)} and {len(targets)}.",
    )
