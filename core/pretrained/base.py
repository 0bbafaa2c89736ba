"""The types of the package: a pretrained model, its inputs, token lines, and the reading of an input."""

import hashlib
import math
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any, Literal, NamedTuple, Self
from unicodedata import category

import numpy as np

from core.entries import Cost
from core.files import text_of
from core.interpret.trace import AttentionTrace, Kind
from core.memory import why_too_much
from core.tokens import CONTINUES, bare_piece, name_bytes, token_text, words_in

Head = Literal["masked", "next", "seq2seq", "classify", "label", "span", "none"]
Reads = Literal["text", "pair", "picture", "sound"]
LONGEST_LINE = 160  # letters of another's error that are quoted


# Families that can be read layer by layer and may write, and have no weights to draw, and why.
WITHOUT_WEIGHTS: dict[str, str] = {
    "fnet": "it combines tokens by a Fourier transform and has no attention weights",
}


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

    `head` says what its last layer answers: a masked token, the next token, a target sequence, a class, a class
    of each token (label), the first and last token of an answer in its text (span), or nothing (its states are the
    answer). `reads` says what it takes. `not_recorded` is why `attention_recorder` does not record its
    attention, as what the model does; empty where it does. `kernels` are the packages whose kernels for a GPU its code
    would run, and on a CPU does not.
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
    not_recorded: str = ""
    kernels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    all_cores: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def reads_text(self) -> bool:
        return self.reads in ("text", "pair")

    @property
    def recordable(self) -> bool:
        return not self.not_recorded

    @property
    def has_weights(self) -> bool:
        """Whether it has attention weights, so that `read` has maps to give."""
        return self.model.config.model_type not in WITHOUT_WEIGHTS


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
ENDS_WORD = "</w>"  # of CLIP, XLM, FSMT
SPLITS_WORD = "@@"  # of CTRL, PhoBERT: the word goes on with the next token
SCANNED = 2_048  # ids of a vocabulary in which its marks are looked for; some begin with 1,000 special ones
MAX_PATCHES = 5_000
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


@cache
def _byte_of() -> dict[str, int]:
    """The byte of each letter of byte-level BPE."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {letter: byte for byte, letter in bytes_to_unicode().items()}


class Spelling(NamedTuple):
    """How a vocabulary spells text: whether the letters of a piece are bytes, and what tells where spaces are.

    `letters` is "gpt2" for byte-level BPE, "latin" for ByT5's single bytes, "" elsewhere. `spaces` is "own" where the
    pieces hold them (Ġ, ▁, or a token for a space), "</w>" where that ends a word, "@@" where that says that a word
    goes on, "##" where every piece without it begins a word, and "" where nothing tells. `added` are tokens that were
    added to the vocabulary, which are spelled as they are.
    """

    letters: str
    spaces: str
    added: frozenset[str] = frozenset()

    @classmethod
    def of_pieces(cls, pieces: Sequence[str], letters: str = "") -> Self:
        """By the marks of some pieces."""
        if not letters and any(piece.startswith("Ġ") for piece in pieces):
            letters = "gpt2"
        if any(piece.endswith(ENDS_WORD) for piece in pieces):
            return cls(letters, ENDS_WORD)
        if letters or any(piece.startswith((*STARTS_WORD, " ")) for piece in pieces):
            return cls(letters, "own")
        if any(piece.endswith(SPLITS_WORD) for piece in pieces):
            return cls(letters, SPLITS_WORD)
        continues = any(piece != bare_piece(piece) for piece in pieces)
        return cls(letters, CONTINUES if continues else "")

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """By a tokenizer's parts, and the first ids of its vocabulary."""
        fast = getattr(tokenizer, "backend_tokenizer", None)
        parts = repr((getattr(fast, "pre_tokenizer", ""), getattr(fast, "decoder", "")))
        letters = "gpt2" if "ByteLevel" in parts else ""
        if fast is None and str(tokenizer.convert_tokens_to_string([chr(0xE7)])) in ("", "\ufffd"):
            letters = "latin"  # a byte that is no whole character
        # A vocabulary of all characters, as CANINE's, has the letter Ġ too.
        pieces = [one for one in _first_pieces(tokenizer) if one != "Ġ"]
        spelling = cls.of_pieces(pieces, letters)
        if type(getattr(fast, "model", None)).__name__ == "WordPiece":
            spelling = spelling._replace(spaces=CONTINUES)  # Chinese BERT has its first at 13,500
        return spelling._replace(added=frozenset(tokenizer.get_added_vocab()))

    def spell(self, piece: str, before: str | None = None, spaced: bool | None = None) -> bytes:
        """The UTF-8 of a piece, with the spaces that its marks and those of the piece before stand for.

        `spaced` says whether a space stands before it, where the text itself is known.
        """
        if byte := _BYTE.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        text = piece
        if self.spaces == CONTINUES:
            text = bare_piece(piece)
        elif self.spaces in (ENDS_WORD, SPLITS_WORD):
            text = piece.removesuffix(self.spaces) or piece
        if self.letters == "gpt2" and piece not in self.added and set(text) <= _byte_of().keys():
            data = bytes(_byte_of()[letter] for letter in text)
        elif self.letters == "latin" and len(text) == 1 and ord(text) < 256:
            data = text.encode("latin-1")
        else:
            data = text.replace("▁", " ").encode("utf-8", "replace")
        if spaced is None and before is not None:
            spaced = {
                "own": False,
                ENDS_WORD: before.endswith(ENDS_WORD),
                SPLITS_WORD: not before.endswith(SPLITS_WORD),
            }.get(self.spaces, text == piece)
        return b" " + data if spaced and not data[:1].isspace() else data


def text_line(
    tokenizer: Any, ids: Sequence[int], encoding: Any = None, texts: Sequence[str] = ()
) -> Line:
    """The ids as readable tokens, with the word (`words_in`) and sentence of each.

    `encoding` is the tokenizer's of `texts`: with it the spaces of a text are known where its tokens do not hold them.
    """
    pieces = pieces_of(tokenizer, ids)
    names = {str(name) for name in tokenizer.all_special_tokens}
    special, segment = tuple(piece in names for piece in pieces), (0,) * len(pieces)
    spaced: list[bool] | None = None
    if encoding is not None and encoding.is_fast:
        segment = tuple(int(one or 0) for one in encoding.sequence_ids(0))
        spaced = _spaces_before(encoding.encodings[0].offsets, segment, texts) if texts else None
    # A token for unknown words may have another use, as in GPT-2.
    missing = getattr(tokenizer, "unk_token", None)
    marks = [
        getattr(tokenizer, f"{name}_token", None)
        for name in ("bos", "eos", "pad", "cls", "sep", "mask")
    ]
    known = missing is None or str(missing) in map(str, marks)
    return replace(
        spelled_line(pieces, special, Spelling.of(tokenizer), tokenizer, spaced),
        ids=tuple(map(int, ids)),
        segment=segment,
        unknown=tuple(not known and piece == str(missing) for piece in pieces),
    )


def _spaces_before(
    offsets: Sequence[tuple[int, int]], segment: Sequence[int], texts: Sequence[str]
) -> list[bool]:
    """Whether a space of its text, a sign that no token has, or the other text stands before each token."""
    spaced, ends, last = [], [0] * len(texts), 0
    for (start, end), which in zip(offsets, segment, strict=True):
        text, before = texts[which], texts[which][ends[which] : start]
        # Marks and invisible signs, as those that join Persian letters, divide no word.
        apart = any(one.isspace() or category(one)[0] not in "CM" for one in before)
        blank = len(text[start:end]) > len(text[start:end].lstrip()) > 0
        spaced.append(which != last or apart or blank and start >= ends[which])
        ends[which], last = max(ends[which], end), which
    return spaced


def spelled_line(
    pieces: Sequence[str],
    special: Sequence[bool],
    spelling: Spelling,
    tokenizer: Any = None,
    spaced: Sequence[bool] | None = None,
) -> Line:
    """Pieces of a vocabulary as a line: their bytes make characters, and these make words; `spaced` as `spell` has it."""
    data = [b""] * len(pieces)
    for at, (piece, hidden) in enumerate(zip(pieces, special, strict=True)):
        before = None if at == 0 or special[at - 1] else pieces[at - 1]
        # A special token ends the text before it.
        data[at] = (
            b"\n" if hidden else spelling.spell(piece, before, spaced[at] if spaced else None)
        )
    text = b"".join(data).decode("utf-8", "surrogateescape")
    places = [at for at, one in enumerate(text) for _ in one.encode("utf-8", "surrogateescape")]
    numbers, words, tokens = words_in(text), list[int | None](), list[str]()
    # The last word of `words_in` that the token before covers, and whether only spaces of it have come.
    count, last, blank, byte = -1, -1, False, 0
    for piece, one, hidden in zip(pieces, data, special, strict=True):
        inside = places[byte : byte + len(one)]
        letters = [at for at in inside if text[at] == "\n" or not text[at].isspace()]
        covers = letters or (inside[:1] if spelling.spaces == "own" else [])
        joins = bool(covers) and numbers[covers[0]] == last
        count += not joins and not hidden
        last = numbers[covers[-1]] if covers else -1
        words.append(None if hidden else count)
        shown = piece if hidden else readable(tokenizer, piece, not joins or blank, spelling)
        tokens.append(shown + _part_of(text, places, byte, letters or inside))
        blank, byte = not letters, byte + len(one)
    return Line((0,) * len(pieces), tuple(tokens), tuple(special), tuple(words), (0,) * len(pieces))


def _part_of(text: str, places: Sequence[int], byte: int, letters: Sequence[int]) -> str:
    """Which bytes of a character a token is, as " 1 of 3 of 猫"; "" where it is no part of one character.

    `letters` are the places in the text of its bytes, without those of spaces where it has others, and `byte` is the
    first byte of the token.
    """
    if len(set(letters)) != 1 or "\udc80" <= (sign := text[letters[0]]) <= "\udcff":
        return ""
    size, start = len(sign.encode()), places.index(letters[0])
    if len(letters) == size:
        return ""
    first = max(byte - start, 0) + 1
    return f" {first}{f'–{first + len(letters) - 1}' if len(letters) > 1 else ''} of {size} of {token_text(sign)}"


def words_of(pieces: Sequence[str], special: Sequence[bool]) -> tuple[int | None, ...]:
    """Which word each piece belongs to, by the marks of the pieces themselves: ##, Ġ, ▁, </w> or @@."""
    return spelled_line(pieces, special, Spelling.of_pieces(pieces)).word


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The ids as the vocabulary spells them; an id beyond the vocabulary as its number."""
    pieces = zip(ids, tokenizer.convert_ids_to_tokens(list(ids)), strict=True)
    return [f"[{one}]" if piece is None else str(piece) for one, piece in pieces]


def display_tokens(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """The display text of each token; ## continues a word, in vocabularies that mark word beginnings."""
    special, marked = set(tokenizer.all_special_tokens), marks_words(tokenizer)
    spelling = Spelling.of(tokenizer)
    begins = STARTS_WORD if marked else "" if spelling.spaces != CONTINUES else ()
    return tuple(
        piece
        if piece in special
        else readable(tokenizer, piece, piece.startswith(begins), spelling)
        for piece in pieces_of(tokenizer, ids)
    )


def marks_words(tokenizer: Any) -> bool:
    """Whether a vocabulary marks the tokens that begin a word, as GPT-2's and SentencePiece's do."""
    return any(piece.startswith(STARTS_WORD) for piece in _first_pieces(tokenizer))


def _first_pieces(tokenizer: Any) -> list[str]:
    return pieces_of(tokenizer, range(min(len(tokenizer), SCANNED)))


def readable(tokenizer: Any, piece: str, begins: bool, spelling: Spelling | None = None) -> str:
    """A piece as plain text; ## before it if it continues a word, and a byte of a character as <0xE7>."""
    spelling = spelling or Spelling.of(tokenizer)
    if spelling.spaces or tokenizer is None:
        text = name_bytes(spelling.spell(piece).decode("utf-8", "surrogateescape"))
    else:
        text = str(tokenizer.convert_tokens_to_string([piece]))
    if text.strip() and text.startswith(" "):
        text = text[1:]  # the space that stands before a word
    spelled = token_text(text or piece)
    marked = piece != bare_piece(piece) if spelling.spaces == CONTINUES else spelled.isalnum()
    return spelled if begins or not marked else f"{CONTINUES}{spelled}"


def picture_line(model: Any, size: tuple[int, int]) -> Line:
    """The patches of a picture by row and column, with the learned tokens before and after them.

    PretrainedError where the config names no one size of patches.
    """
    patch = patch_size(model.config)
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


def patch_size(config: Any) -> tuple[int, int] | None:
    """The height and width of a model's patches, where its config names one size."""
    parts = ("vision_config", "encoder", "backbone_config")
    for part in (config, *(getattr(config, name, None) for name in parts)):
        # Pix2Struct's has the numbers of a patch alone: side · side · 3.
        side = math.isqrt(getattr(part, "patch_embed_hidden_size", 0) // 3)
        patch = getattr(part, "patch_size", None) or side
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
    "cls_register_token": "class or register",  # of RADIO, both in one table
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
