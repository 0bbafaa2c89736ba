"""Token ids, patches and stretches of sound as lines of readable tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.pretrained.base import Line

STARTS_WORD = ("Ġ", "▁")
CONTINUES = "##"


def text_line(tokenizer: Any, ids: Sequence[int], encoding: Any = None) -> Line:
    """The ids as readable tokens; which word and which sentence each belongs to where the encoding says so."""
    pieces = pieces_of(tokenizer, ids)
    names = {str(name) for name in tokenizer.all_special_tokens}
    special = tuple(piece in names for piece in pieces)
    told = encoding is not None and getattr(encoding, "is_fast", False)
    word = tuple(encoding.word_ids(0)) if told else words_of(pieces, special)
    segment = tuple(int(one or 0) for one in encoding.sequence_ids(0)) if told else (0,) * len(pieces)
    word = tuple(None if hidden else one for one, hidden in zip(_across(word, segment), special, strict=True))
    first = [index == 0 or word[index] != word[index - 1] for index in range(len(pieces))]
    tokens = tuple(piece if hidden else readable(tokenizer, piece, begins)
                   for piece, hidden, begins in zip(pieces, special, first, strict=True))
    return Line(tuple(int(one) for one in ids), tokens, special, word, segment)


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The ids as the vocabulary spells them. A model may answer with more ids than it has: those are told by number."""
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    return [f"[{one}]" if piece is None else piece for one, piece in zip(ids, pieces, strict=True)]


def named(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Each token by itself as a person reads it; ## where it goes on with a word, in vocabularies that tell."""
    special, marked = set(tokenizer.all_special_tokens), marks_words(tokenizer)
    return tuple(piece if piece in special else readable(tokenizer, piece, not marked or piece.startswith(STARTS_WORD))
                 for piece in pieces_of(tokenizer, ids))


def marks_words(tokenizer: Any) -> bool:
    """Whether a vocabulary marks the tokens that begin a word, as GPT-2's and SentencePiece's do."""
    sample = tokenizer.convert_ids_to_tokens(range(min(len(tokenizer), 400)))
    return any(str(piece).startswith(STARTS_WORD) for piece in sample)


def _across(word: tuple[int | None, ...], segment: tuple[int, ...]) -> tuple[int | None, ...]:
    """Word numbers that begin again in sentence B, counted on."""
    first = [one for one, part in zip(word, segment, strict=True) if one is not None and part == 0]
    on = max(first, default=-1) + 1
    return tuple(None if one is None else one + on * part for one, part in zip(word, segment, strict=True))


def words_of(pieces: Sequence[str], special: Sequence[bool]) -> tuple[int | None, ...]:
    """Which word each piece belongs to, by the marks of the vocabulary: ## continues one, Ġ and ▁ begin one."""
    marked = any(piece.startswith(STARTS_WORD) for piece in pieces)
    found: list[int | None] = []
    count = -1
    for index, (piece, hidden) in enumerate(zip(pieces, special, strict=True)):
        continues = not piece.startswith(STARTS_WORD) if marked else piece.startswith(CONTINUES)
        if not hidden and (not continues or index == 0 or special[index - 1]):
            count += 1
        found.append(None if hidden else max(count, 0))
    return tuple(found)


def readable(tokenizer: Any, piece: str, begins: bool) -> str:
    """A piece as a person writes it; one that continues a word keeps ## before it."""
    if piece.startswith(CONTINUES) and len(piece) > len(CONTINUES):
        return piece
    text = str(tokenizer.convert_tokens_to_string([piece]))
    shown = text.strip() or {"": piece, "\n": "⏎", " ": "␣"}.get(text, repr(text)[1:-1])
    return shown if begins or not shown.isalnum() else f"{CONTINUES}{shown}"


def mark(line: Line, last_is_special: bool) -> Line:
    """The line with its last token counted as special."""
    if not last_is_special:
        return line
    return replace(line, special=(*line.special[:-1], True), word=(*line.word[:-1], None))


def picture_line(model: Any, size: tuple[int, int]) -> Line:
    """The patches of a picture by row and column, after the class token and whatever else stands before them."""
    patch = model.config.patch_size
    high, wide = (patch, patch) if isinstance(patch, int) else patch
    rows, columns = size[0] // high, size[1] // wide
    before = _before_patches(model)
    tokens = (*before, *(f"{i},{j}" for i in range(rows) for j in range(columns)))
    special = (*(True for _ in before), *(False for _ in range(rows * columns)))
    word = (*(None for _ in before), *range(rows * columns))
    return Line((0,) * len(tokens), tokens, special, word, (0,) * len(tokens), (rows, columns))


def _before_patches(model: Any) -> list[str]:
    """The learned tokens that a vision model puts before its patches, by the names of its own weights."""
    shapes = {name.rsplit(".", 1)[-1]: weight.shape for name, weight in model.named_parameters()}
    found = ["[class]"] if shapes.keys() & {"cls_token", "class_embedding"} else []
    found += ["[distilled]"] * ("distillation_token" in shapes)
    return found + [f"[register {i}]" for i in range(shapes.get("register_tokens", (1, 0))[1])]


def sound_line(places: int, seconds: float) -> Line:
    """The stretches into which an encoder cuts its sound, by the second at which each begins."""
    tokens = tuple(f"{place * seconds / places:.2f} s" for place in range(places))
    return Line((0,) * places, tokens, (False,) * places, tuple(range(places)), (0,) * places)
