"""Language models: windows of a text, each token to be told from those before it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import torch

from core.entries import Param
from core.tasks.base import UNK, Batch, Example, Form, Recipe, Task, TaskConfig, TaskEntry, Vocabulary, is_held_out, pad

NEWLINE = "↵"  # a line's end as a sign that can be seen
MOST_WORDS = 5_000
PASSES = 60
FEWEST_WORDS = 20_000  # of a text whose words are learned; of a shorter one most words occur once or twice
UNIT = Param("unit", "Tokens", "characters", choices=("characters", "words"), meaning="what is told one by one")


def split(text: str, unit: str) -> list[str]:
    """The tokens of a text: its characters, or its words and punctuation marks; line ends are tokens too."""
    text = text.replace("\n", NEWLINE)
    return list(text) if unit == "characters" else re.findall(rf"\w+|[^\w\s{NEWLINE}]|{NEWLINE}", text)


@dataclass(frozen=True)
class Corpus:
    """A text in tokens, cut in what is learned and what is held out."""

    unit: str
    trained: tuple[str, ...]
    held_out: tuple[str, ...]
    vocab: Vocabulary

    @classmethod
    def of(cls, trained: str, held_out: str, unit: str) -> Corpus:
        """The vocabulary is that of what is learned, the MOST_WORDS most frequent of it."""
        first, second = split(trained, unit), split(held_out, unit)
        known = [token for token, _ in Counter(first).most_common(MOST_WORDS)]
        return cls(unit, tuple(first), tuple(second), Vocabulary(known))

    @property
    def unknown(self) -> float:
        """The share of held-out tokens that are not in the vocabulary."""
        return self.vocab.encode(self.held_out).count(UNK) / max(1, len(self.held_out))


def unseen(corpus: Corpus, length: int, seed: int) -> Iterator[int]:
    """Where windows begin in the held-out text, in an order by the seed; none that stands in what is learned."""
    between = "" if corpus.unit == "characters" else " "
    learned, tokens = between.join(corpus.trained), corpus.held_out
    starts = torch.randperm(len(tokens) - length, generator=torch.Generator().manual_seed(seed + 2**31)).tolist()
    return (start for start in starts if between.join(tokens[start : start + length]) not in learned)


class TextTask(Task):
    """Windows of `length` tokens; the vocabulary is the corpus's, so a model meets windows of any length."""

    form: Form = "text"
    metrics = ()

    def __init__(self, config: TaskConfig, entry: TaskEntry, corpus: Corpus) -> None:
        super().__init__(config, entry)
        self.corpus, self.length = corpus, int(config["length"])
        self.source_vocab = self.target_vocab = corpus.vocab
        self.max_source = self.max_target = self.length
        self.unit, self.whole = corpus.unit.removesuffix("s"), "continuations"
        self.ids = {side: torch.tensor(corpus.vocab.encode(tokens)) for side, tokens in
                    ((False, corpus.trained), (True, corpus.held_out))}
        self.recommended = recipes(self.length, self.ids[False].numel())

    def tokens(self, text: str) -> list[str]:
        return split(text, self.corpus.unit)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        tokens = self.corpus.held_out if held_out else self.corpus.trained
        start = int(torch.randint(len(tokens) - self.length, (), generator=generator))
        return self._window(tokens, start)

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        ids = self.ids[False]
        starts = torch.randint(len(ids) - self.length, (batch_size, 1), generator=generator)
        windows = ids[starts + torch.arange(self.length + 1)]  # (B, S + 1)
        source, target = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
        return Batch(source, torch.ones_like(source, dtype=torch.bool), None, target)

    def held_out(self, n: int) -> tuple[Example, ...]:
        """Up to n windows of the held-out text, none of which stands anywhere in what is learned."""
        starts = islice(unseen(self.corpus, self.length, self.config.seed), n)
        return tuple(self._window(self.corpus.held_out, start) for start in starts)

    def _window(self, tokens: Sequence[str], start: int) -> Example:
        return Example(tuple(tokens[start : start + self.length]), tuple(tokens[start + 1 : start + self.length + 1]))

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A window has nothing beside it: what is told is its own next token."""
        return example.source, ()

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Windows with their next tokens; a window that a person typed has none but its own."""
        if not examples or not all(example.source for example in examples):
            raise ValueError("A batch needs at least one window, and every window at least one token.")
        source = pad([self.source_vocab.encode(example.source) for example in examples])
        target = torch.zeros_like(source)
        for row, example in zip(target, examples, strict=True):
            ids = self.target_vocab.encode(example.target or example.source[1:])
            row[: len(ids)] = torch.tensor(ids, dtype=torch.long)
        return Batch(source, source != 0, None, target)


def recipes(length: int, tokens: int) -> Mapping[str, Recipe]:
    """A decoder of two layers with ALiBi, which goes on to lengths that it never saw (Press 2022).

    At most PASSES over the text: a short one is soon known by heart.
    """
    from core.models.config import ModelConfig

    steps = max(150, min(1000, PASSES * tokens // (32 * length)))
    model = ModelConfig.transformer(64, num_heads=4, layers=2, d_ff=256, kind="decoder", norm="pre", activation="gelu",
                                    position="alibi", dropout=0.0 if steps == 1000 else 0.1)
    return {"decoder": Recipe(model.to_json(), steps, 32, 3e-3)}


@lru_cache(maxsize=2)
def topics(unit: str) -> Corpus:
    """The language reference that comes with every CPython; a held-out tenth of its topics is never trained on."""
    from pydoc_data.topics import topics as found

    sides: dict[bool, list[str]] = {False: [], True: []}
    for name, text in sorted(found.items()):
        sides[is_held_out(name)].append(text.strip())
    trained, held_out = ("\n\n".join(sides[side]) for side in (False, True))
    return Corpus.of(trained, held_out, unit)


LENGTH = Param("length", "Window", 64, 16, 256, 8, meaning="tokens that are read at once")
TOPICS = TaskEntry(
    "topics", "Language model", "Tell each next character of Python's own language reference.",
    "Each character looks at those just before it, most at the nearest, and in a later layer at where the same few "
    "stood before.",
    lambda config: TextTask(config, TOPICS, topics(str(config["unit"]))), (LENGTH, UNIT))
