"""The types of the package: a pretrained model, its inputs, token lines, and the reading of an input."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from core.files import text_of
from core.trace import AttentionTrace, Kind

Head = Literal["masked", "next", "seq2seq", "classify", "none"]
Reads = Literal["text", "pair", "picture", "sound"]
LONGEST_LINE = 160  # letters of another's error that are quoted


class PretrainedError(RuntimeError):
    """A model that cannot be loaded or read; the message says what was found and what would help."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, shortened; its repr where there is no message.

    A line that ends with a colon goes on with the next ones.
    """
    lines = [*filter(None, map(str.strip, text_of(str(error)).splitlines()))]
    line = (" ".join(lines) if lines and lines[0].endswith(":") else "".join(lines[:1])) or repr(
        error
    )
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def text_config(model: Any) -> Any:
    """The text part of a model's config: the decoder's where the encoder has its own."""
    try:
        return model.config.get_text_config()
    except ValueError:  # two parts of text, as in MusicGen
        return model.config.get_text_config(decoder=True)


def format_count(number: int) -> str:
    """A count in a sentence: 1,024, or more than 10^18 where a file from outside says so."""
    return f"{number:,}" if abs(number) <= 10**18 else "more than 10^18"


@contextmanager
def wrap_errors(what: str) -> Iterator[None]:
    """Turn any error inside the block into a PretrainedError that begins with `what`.

    A panic of the library's compiled parts is no Exception; it is recognized by its class name.
    """
    try:
        yield
    except PretrainedError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise PretrainedError(f"{what}: {first_line(error)}") from error


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A Hugging Face model in eval mode, fp32, with its tokenizer or processor; shared by sessions, so never changed.

    `head` says what its last layer answers: a masked token, the next token, a target sequence, a class, or nothing (its
    states are the answer). `reads` says what it takes. `recordable` is whether its attention goes through
    `attention_recorder`. `lock` is held for every forward pass.
    """

    name: str
    model: Any
    tokenizer: Any
    max_tokens: int
    head: Head = "none"
    reads: Reads = "text"
    recordable: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def reads_text(self) -> bool:
        return self.reads in ("text", "pair")


@dataclass(frozen=True)
class Array:
    """An array that compares and hashes by its content, so that it can be part of a cache key."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes = field(repr=False)
    digest: str = ""

    @classmethod
    def of(cls, values: np.ndarray) -> Array:
        data = np.ascontiguousarray(values).tobytes()
        return cls(values.shape, values.dtype.str, data, hashlib.sha256(data).hexdigest())

    def numpy(self) -> np.ndarray:
        """The numbers; read-only."""
        return np.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of a model, by type; a model uses those it reads and ignores the others.

    `second` is the sentence B of a pair, for an encoder. `target` is the text of an encoder–decoder's decoder; with
    None the model decodes it itself, greedily. `picture` is (H, W) or (H, W, 3), uint8 or 0 to 1. `sound` is one
    channel at the model's own sampling rate.
    """

    text: str = ""
    second: str | None = None
    target: str | None = None
    picture: Array | None = None
    sound: Array | None = None


@dataclass(frozen=True)
class Line:
    """One token sequence as a model read it.

    `tokens` are for reading. `word` is the place of the word that a piece belongs to, None for special tokens;
    `segment` is 0 for sentence A and 1 for B. `grid` is (rows, columns) of a picture's patches, which are the last
    tokens of the line. `unknown` says which of the special tokens stand for a word that the vocabulary lacks; empty
    where that is not known.
    """

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    word: tuple[int | None, ...]
    segment: tuple[int, ...]
    grid: tuple[int, int] | None = None
    unknown: tuple[bool, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def count(self) -> str:
        """How many tokens there are, and of those how many are special and how many unknown, in words."""
        unknown = sum(self.unknown)
        kinds = {"special": sum(self.special) - unknown, "unknown": unknown}
        parts = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
        return f"{len(self)} token{'s' * (len(self) != 1)}" + (f" ({parts})" if parts else "")


@dataclass(frozen=True, eq=False)
class Reading:
    """A model's reading of its inputs: the attention trace, its token lines, and a sentence when something was cut.

    `note` says what must be known of the maps before they are read, where there is something; `sinks` whether their
    rows sum to less than 1 because a learned sink takes the rest (`maps.with_sink` adds it as a column).

    An encoder–decoder has two lines more: `target`, what its decoder read, and `produced`, the same one place on: what
    each of those places answered. None elsewhere.
    """

    trace: AttentionTrace
    source: Line
    target: Line | None = None
    produced: Line | None = None
    cut: str | None = None
    note: str | None = None
    sinks: bool = False

    @property
    def special(self) -> tuple[bool, ...]:
        return self.source.special

    def lines(self, kind: Kind) -> tuple[Line, Line]:
        """What the rows and what the columns of that kind of map stand for."""
        if self.target is None or self.produced is None or kind == "self":
            return self.source, self.source
        return (self.produced, self.source) if kind == "cross" else (self.target, self.target)
