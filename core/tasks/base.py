"""What every task is made of: a vocabulary, examples, padded batches, and a split that keeps held-out items apart."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from core.entries import ConfigError, Param, Value, quote, quote_name
from core.models.base import Shape
from core.tasks.metrics import majority_class

Form = Literal["pairs", "text", "label", "series"]

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SAMPLE = 500  # of an endless stream of examples
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
        return [self.tokens[i] for i in takewhile(lambda i: i != EOS, map(int, ids)) if i not in (PAD, BOS)]


class Example(NamedTuple):
    """What is read and what should be said: tokens, or numbers where the task's input or form has numbers."""

    source: tuple[Any, ...]
    target: tuple[Any, ...]


@dataclass(frozen=True)
class Batch:
    """What a model reads and what it must say.

    | form | source | target_in | target_out |
    | --- | --- | --- | --- |
    | pairs | as the task's input | ids, from BOS (B, T) | ids, up to EOS: step t reads in[t] and must say out[t] |
    | text | ids (B, S) | None | the next token of each (B, S); PAD where none is asked |
    | label | as the task's input | None | the class (B,) |
    | series | numbers (B, S, D) | None | numbers (B, N) |
    """

    source: Tensor
    source_mask: Bool[Tensor, "B S"]  # True = a real token
    target_in: Int[Tensor, "B T"] | None
    target_out: Tensor

    def to(self, device: torch.device | str) -> Batch:
        moved = {name: tensor.to(device) for name, tensor in vars(self).items() if tensor is not None}
        return replace(self, **moved)

    @property
    def tokens(self) -> int:
        """What is read and what is said, without padding, counted for tokens a second."""
        target = self.target_out
        return int(self.source_mask.sum()) + (int((target != PAD).sum()) if self.target_in is not None else 0)


def pad(rows: Sequence[Sequence[int]]) -> Int[Tensor, "B L"]:
    """Rows of ids, filled with PAD up to the longest."""
    longest = max(map(len, rows))
    return torch.tensor([list(row) + [PAD] * (longest - len(row)) for row in rows], dtype=torch.long)


def is_held_out(item: str) -> bool:
    """Whether an item is in the held-out tenth: its checksum alone decides, so the split depends on no seed."""
    return zlib.crc32(item.encode()) % 10 == 0


@dataclass(frozen=True)
class TaskConfig:
    """One task, its parameters and its seed; checked when made (ConfigError), and to and from JSON."""

    key: str = "reverse"
    params: tuple[tuple[str, Value], ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        from core.tasks import task_entry

        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**31:
            raise ConfigError(f"task = {quote_name(self.key)}: seed = {quote(self.seed)}; expected a whole number "
                              "from 0 to 2147483647.")
        entry, params = task_entry(self.key), dict(self.params)
        known = {param.key: param for param in entry.params}
        if extra := sorted(params.keys() - known.keys()):
            raise ConfigError(f"task = {self.key} has no {quote_name(extra[0])}; it takes "
                              f"{', '.join(known) or 'no parameters'}.")
        filled = {key: param.check(params.get(key, param.default), f"task = {self.key}")
                  for key, param in known.items()}
        object.__setattr__(self, "params", tuple(sorted(filled.items())))
        entry.check(**filled)

    @classmethod
    def of(cls, key: str, seed: int = 0, **params: Value) -> TaskConfig:
        return cls(key, tuple(sorted(params.items())), seed)

    def __getitem__(self, name: str) -> Value:
        return dict(self.params)[name]

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "params": dict(self.params), "seed": self.seed}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskConfig:
        """The config of a run, which may be older than some of its parameters (Param.before); ConfigError for none."""
        from core.tasks import task_entry

        if not isinstance(data, Mapping) or not isinstance(data.get("key"), str):
            raise ConfigError(f"A task is an object with a key; got {quote(data)}.")
        if not isinstance(data.get("params", {}), Mapping):
            raise ConfigError(f"task = {quote_name(data['key'])}: params is an object of names and "
                              f"values; got {quote(data['params'])}.")
        before = {param.key: param.before for param in task_entry(data["key"]).params if param.before is not None}
        return cls(data["key"], tuple(sorted({**before, **data.get("params", {})}.items())), data.get("seed", 0))


@dataclass(frozen=True)
class TaskEntry:
    """One task as a menu shows it: `look` says in one sentence what its attention should look like."""

    key: str
    name: str
    meaning: str
    look: str
    build: Callable[[TaskConfig], Task]
    params: tuple[Param, ...] = ()
    check: Callable[..., None] = lambda **params: None


@dataclass(frozen=True)
class Recipe:
    """Settings known to learn a task: a ModelConfig in JSON, and how to train it.

    Steps alone bound it, so that it gives the same on a slow machine. The rate rises over `warmup` steps, then falls as
    a cosine; two held-out passes of `stop_at` exact match may end it.
    """

    model: Mapping[str, Any]
    steps: int
    batch_size: int
    learning_rate: float
    optimizer: str = "adamw"
    warmup: int = 50
    schedule: str = "cosine"
    stop_at: float = 0.99
    weight_decay: float = 0.01
    patience: int = 0
    keep_best: bool = False


class Task:
    """A stream of training batches and a held-out set that shares no item with it; a task overrides what differs.

    `form` says what is asked: pairs (a source to a target), text (the next token of everything read), label (one
    class), series (numbers ahead); `input` what a source is made of, as in core.models.Shape. `recommended` maps each
    kind of model that makes sense (ModelConfig.kind) to its Recipe, the best first.
    """

    form: Form = "pairs"
    input = "tokens"
    separator = ""
    unit, whole = "word", "sentences"  # what one token and what whole outputs are called
    classes: tuple[str, ...] = ()  # of a label
    finite = False  # whether its held-out items are all there are, so that they must not say when training ends
    notes: tuple[str, ...] = ()  # what a person should know of how their data was read
    metrics: tuple[str, ...] = ("exact",)
    source_vocab: Vocabulary
    target_vocab: Vocabulary
    max_source: int
    max_target: int  # without EOS
    recommended: Mapping[str, Recipe]

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.config, self.key, self.name, self.look = config, entry.key, entry.name, entry.look

    @property
    def shape(self) -> Shape:
        """What a model is built for."""
        longest = max(self.max_source, self.max_target) + 1  # the end mark
        return Shape(len(self.source_vocab), len(self.target_vocab), longest,
                     one_vocabulary=self.source_vocab is self.target_vocab)

    @property
    def baseline_loss(self) -> float:
        """The loss to beat: cross-entropy, in nats a token, of guessing every target token alike.

        Of a finite table or text with labels, of predicting the frequencies of its classes.
        """
        return math.log(len(self.target_vocab))

    def naive(self, values: Sequence[float]) -> list[float]:
        """A series' last season again: what a forecast must beat."""
        raise NotImplementedError

    def majority(self, n: int) -> tuple[str, float] | None:
        """The majority class of what is trained on, by name, and the share of the first n held-out items that are of
        it; None where no class is told."""
        if self.form != "label":
            return None
        sides = [[example.target[0] for example in side] for side in (self.trained(), self.held_out(n))]
        commonest, share = majority_class(*sides)
        return self.classes[commonest] if isinstance(commonest, int) else commonest, share

    def trained(self) -> tuple[Example, ...]:
        """What is trained on: all of it where the task is finite, else a sample."""
        generator = torch.Generator().manual_seed(self.config.seed)
        return tuple(self.draw(generator, held_out=False) for _ in range(SAMPLE))

    def baseline(self) -> tuple[str, float] | None:
        """A plain method that knows nothing of attention, by name, and its exact match on the held-out items."""
        return None

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Source and target as words: names beside the maps, and what examples are told with."""
        return example.source, example.target

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        """One fresh example from the training or from the held-out side of the split."""
        raise NotImplementedError

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        """A training batch of fresh examples, the same for the same generator state."""
        return self.collate([self.draw(generator, held_out=False) for _ in range(batch_size)])

    def held_out(self, n: int) -> tuple[Example, ...]:
        """n different held-out examples, the same for the same config; a larger n only adds to them.

        A task of few items (a table) overrides this and gives all it holds out, be they fewer.
        """
        generator = torch.Generator().manual_seed(self.config.seed + 2**31)
        examples: dict[Example, None] = {}
        for _ in range(5 * n + 100):
            if len(examples) == n:
                return tuple(examples)
            examples[self.draw(generator, held_out=True)] = None
        raise ValueError(f"task = {self.key} has too few different held-out items for n = {n}; found {len(examples)}.")

    def words_of(self, tokens: Sequence[str]) -> list[str]:
        """The words of an output, which BLEU counts."""
        return list(tokens)

    def tokens(self, text: str) -> list[str]:
        """The source tokens of what a person typed."""
        return text.split() if self.separator else list(text.strip())

    def example(self, text: str) -> Example:
        """What a person typed, as a source with an empty target; ValueError when it is empty or too long to read."""
        tokens = tuple(self.tokens(text))
        if not tokens:
            raise ValueError("The source is empty; type at least one token.")
        if len(tokens) > self.max_source:
            raise ValueError(f"The source has {len(tokens)} tokens; this task reads at most {self.max_source}.")
        return Example(tokens, ())

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Examples as one padded batch; ValueError for none or for an empty source."""
        if not examples or not all(example.source for example in examples):
            raise ValueError("A batch needs at least one example, and every source at least one token.")
        source = pad([self.source_vocab.encode(example.source) for example in examples])
        targets = [self.target_vocab.encode(example.target) for example in examples]
        target_in, target_out = pad([[BOS, *ids] for ids in targets]), pad([[*ids, EOS] for ids in targets])
        return Batch(source, source != PAD, target_in, target_out)

    def expected(self, example: Example) -> tuple[int, ...] | None:
        """For each target token the index of the source token it should look at, −1 where there is none; None where
        no single one is right."""
        return None

    def places(self, example: Example) -> tuple[tuple[int, ...], ...] | None:
        """All places that each output may well look at: the expected one, or several where a task overrides this."""
        one = self.expected(example)
        return None if one is None else tuple((place,) if place >= 0 else () for place in one)


def choose(generator: torch.Generator, high: int) -> int:
    """A whole number from 0 to high − 1."""
    return int(torch.randint(high, (), generator=generator))
