"""The types of the package: a pretrained model, its inputs, token lines, and the reading of an input."""

import hashlib
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, Self

import numpy as np

from core.entries import Cost
from core.files import text_of
from core.interpret.trace import AttentionTrace, Kind
from core.memory import why_too_much
from core.tokens import token_text

Head = Literal["masked", "next", "seq2seq", "classify", "none"]
Reads = Literal["text", "pair", "picture", "sound"]
LONGEST_LINE = 160  # letters of another's error that are quoted


class PretrainedError(RuntimeError):
    """A model that cannot be loaded or read; the message says what was found and what would help."""


def refuse_too_much(cost: Cost, what: str, remedy: str) -> None:
    """PretrainedError where a model would take more than there is, as core.memory says."""
    if why := why_too_much(cost, what, remedy):
        raise PretrainedError(why)


def reject_if(wrong: object, why: str) -> None:
    """PretrainedError of this sentence where something is wrong."""
    if wrong:
        raise PretrainedError(why)


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
def wrap_errors(what: str, then: str = "") -> Iterator[None]:
    """Turn any error inside the block into a PretrainedError that begins with `what` and ends with `then`.

    A panic of the library's compiled parts is no Exception; it is recognized by its class name.
    """
    try:
        yield
    except PretrainedError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise PretrainedError(f"{what}: {first_line(error)}{then}") from error


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A Hugging Face model in eval mode, fp32, with its tokenizer or processor; shared by sessions, so never changed.

    `head` says what its last layer answers: a masked token, the next token, a target sequence, a class, or nothing (its
    states are the answer). `reads` says what it takes. `recordable` is whether its attention goes through
    `attention_recorder`. `kernels` are the packages whose kernels for a GPU its code would run, and on a CPU does not.
    `notes` are sentences on what of its files is not used, made up, or merged.
    `all_cores` says that a pass takes all of them, in a process that computes on one thread. `lock` is held for every
    forward pass.
    """

    name: str
    model: Any
    tokenizer: Any
    max_tokens: int
    head: Head = "none"
    reads: Reads = "text"
    recordable: bool = False
    kernels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    all_cores: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def reads_text(self) -> bool:
        return self.reads in ("text", "pair")


@dataclass(frozen=True)
class Array:
    """An array that compares and hashes by its content, so that it can be part of a cache key.

    `note` says what of the file that it was read from is not in it.
    """

    shape: tuple[int, ...]
    dtype: str
    data: bytes = field(repr=False)
    digest: str = ""
    note: str = ""

    @classmethod
    def of(cls, values: np.ndarray, note: str = "") -> Self:
        data = np.ascontiguousarray(values).tobytes()
        return cls(values.shape, values.dtype.str, data, hashlib.sha256(data).hexdigest(), note)

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

    def lines(self, kind: Kind) -> tuple[Line, Line]:
        """What the rows and what the columns of that kind of map stand for."""
        if self.target is None or self.produced is None or kind == "self":
            return self.source, self.source
        return (self.produced, self.source) if kind == "cross" else (self.target, self.target)


STARTS_WORD = ("Ġ", "▁")
CONTINUES = "##"
MAX_PATCHES = 5_000


def text_line(tokenizer: Any, ids: Sequence[int], encoding: Any = None) -> Line:
    """The ids as readable tokens, with the word and sentence of each where the encoding has them."""
    pieces = pieces_of(tokenizer, ids)
    names = {str(name) for name in tokenizer.all_special_tokens}
    special = tuple(piece in names for piece in pieces)
    word, segment = words_of(pieces, special), (0,) * len(pieces)
    if encoding is not None and encoding.is_fast:
        segment = tuple(int(one or 0) for one in encoding.sequence_ids(0))
        word = encoding.word_ids(0)
        # The words of sentence B are numbered on from those of sentence A.
        first = max(
            (one for one, part in zip(word, segment, strict=True) if one is not None and not part),
            default=-1,
        )
        word = tuple(
            None if one is None or hidden else one + (first + 1) * part
            for one, part, hidden in zip(word, segment, special, strict=True)
        )
    # A token for unknown words may have another use, as in GPT-2.
    missing = getattr(tokenizer, "unk_token", None)
    marks = [
        getattr(tokenizer, f"{name}_token", None)
        for name in ("bos", "eos", "pad", "cls", "sep", "mask")
    ]
    known = missing is None or str(missing) in map(str, marks)
    return Line(
        ids=tuple(map(int, ids)),
        tokens=tuple(
            piece
            if special[index]
            else readable(tokenizer, piece, not index or word[index] != word[index - 1])
            for index, piece in enumerate(pieces)
        ),
        special=special,
        word=word,
        segment=segment,
        unknown=tuple(not known and piece == str(missing) for piece in pieces),
    )


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The ids as the vocabulary spells them; an id beyond the vocabulary as its number."""
    pieces = zip(ids, tokenizer.convert_ids_to_tokens(list(ids)), strict=True)
    return [f"[{one}]" if piece is None else piece for one, piece in pieces]


def display_tokens(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """The display text of each token; ## continues a word, in vocabularies that mark word beginnings."""
    special, marked = set(tokenizer.all_special_tokens), marks_words(tokenizer)
    return tuple(
        piece
        if piece in special
        else readable(tokenizer, piece, not marked or piece.startswith(STARTS_WORD))
        for piece in pieces_of(tokenizer, ids)
    )


def marks_words(tokenizer: Any) -> bool:
    """Whether a vocabulary marks the tokens that begin a word, as GPT-2's and SentencePiece's do."""
    return any(
        str(piece).startswith(STARTS_WORD)
        for piece in tokenizer.convert_ids_to_tokens(range(min(len(tokenizer), 400)))
    )


def words_of(pieces: Sequence[str], special: Sequence[bool]) -> tuple[int | None, ...]:
    """Which word each piece belongs to, by the marks of the vocabulary: ## continues one, Ġ and ▁ begin one."""
    marked = any(piece.startswith(STARTS_WORD) for piece in pieces)
    words: list[int | None] = []
    count = -1
    for index, (piece, hidden) in enumerate(zip(pieces, special, strict=True)):
        continues = not piece.startswith(STARTS_WORD) if marked else piece.startswith(CONTINUES)
        if not hidden and (not continues or index == 0 or special[index - 1]):
            count += 1
        words.append(None if hidden else count)
    return tuple(words)


def readable(tokenizer: Any, piece: str, begins: bool) -> str:
    """A piece as plain text; ## before it if it continues a word."""
    if piece.startswith(CONTINUES):
        return piece
    text = str(tokenizer.convert_tokens_to_string([piece]))
    if text.strip() and text.startswith(" "):
        text = text[1:]  # the space that stands before a word
    spelled = token_text(text or piece)
    return spelled if begins or not spelled.isalnum() else f"{CONTINUES}{spelled}"


def picture_line(model: Any, size: tuple[int, int]) -> Line:
    """The patches of a picture by row and column, with the learned tokens before and after them.

    PretrainedError where the config names no one size of patches.
    """
    patch = _patch_size(model.config)
    if patch is None:
        raise PretrainedError(
            f"A {model.config.model_type} has no single patch size in its config, so the part of "
            "the picture of each position is not known. Take a ViT, DeiT, DINOv2 or CLIP vision "
            "model."
        )
    rows, columns = size[0] // patch[0], size[1] // patch[1]
    reject_if(
        rows * columns > MAX_PATCHES,
        f"The model cuts a picture into {rows:,} × {columns:,} patches; at most "
        f"{MAX_PATCHES:,} are drawn. Take a model with larger patches.",
    )
    learned = _learned_tokens(model)
    after = learned.pop("detection", [])
    before = [*learned.pop("class", []), *chain(*learned.values())]
    tokens = (*before, *(f"{i},{j}" for i in range(rows) for j in range(columns)), *after)
    word = (*(None for _ in before), *range(rows * columns), *(None for _ in after))
    return Line(
        (0,) * len(tokens),
        tokens,
        tuple(one is None for one in word),
        word,
        (0,) * len(tokens),
        (rows, columns),
    )


def _patch_size(config: Any) -> tuple[int, int] | None:
    parts = ("vision_config", "encoder", "backbone_config")
    for part in (config, *(getattr(config, name, None) for name in parts)):
        patch = getattr(part, "patch_size", None)
        sizes = [patch, patch] if isinstance(patch, int) else patch
        if isinstance(sizes, list | tuple) and len(sizes) == 2 and min(sizes) > 0:
            return int(sizes[0]), int(sizes[1])
    return None


# The embedding weights of learned tokens, by their names in the library.
LEARNED = {
    "cls_token": "class",
    "class_embedding": "class",
    "distillation_token": "distilled",
    "register_tokens": "register",
    "detection_tokens": "detection",
}


def _learned_tokens(model: Any) -> dict[str, list[str]]:
    """The learned tokens of a vision model beside the patches, by their type."""
    tokens: dict[str, list[str]] = defaultdict(list)
    for name, weight in model.named_parameters():
        *path, last = name.split(".")
        if last in LEARNED and path and "embed" in path[-1] and weight.ndim <= 3:
            what, count = LEARNED[last], weight.shape[-2] if weight.ndim > 1 else 1
            tokens[what] += [f"[{what}]"] if count == 1 else [f"[{what} {i}]" for i in range(count)]
    return tokens


def sound_line(count: int, seconds: float) -> Line:
    """The frames of an encoder's sound input, named by their start in seconds."""
    return Line(
        ids=(0,) * count,
        tokens=tuple(f"{index * seconds / count:.2f} s" for index in range(count)),
        special=(False,) * count,
        word=tuple(range(count)),
        segment=(0,) * count,
    )
