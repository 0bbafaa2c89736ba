"""Sentences with a syntactic tree, read from CoNLL-U (Universal Dependencies, version 2); errors name the line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from core.entries import ConfigError, quote

COLUMNS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
MOST_WORDS = 200  # of one sentence
MOST_CHARACTERS = 2_000_000
OWN = Path(__file__).with_name("syntax.conllu")

Span = tuple[int, int]


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
    """The words of a sentence and its text; `line` is where it begins in the file."""

    words: tuple[Word, ...]
    text: str
    line: int

    def __len__(self) -> int:
        return len(self.words)


@dataclass
class _Block:
    """The lines of one sentence, by number, and what is read of them."""

    line: int
    words: list[tuple[int, list[str]]] = field(default_factory=list)
    joined: list[tuple[int, int, int, list[str]]] = field(default_factory=list)


def own_parses() -> tuple[Parse, ...]:
    """The sentences of this project, annotated by hand."""
    return parse_conllu(OWN.read_text("utf-8"))


def parse_conllu(text: str) -> tuple[Parse, ...]:
    """The sentences of a CoNLL-U text; ConfigError names the line where it is malformed or a sentence is no tree.

    Lemmas, features, enhanced dependencies and empty nodes are skipped. The text of a sentence is made of its words
    and SpaceAfter=No. Antecedent=n in MISC names the word that a pronoun refers to.
    """
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"The file has {len(text):,} characters; at most {MOST_CHARACTERS:,} are read."
        )
    parses, block = [], None
    for number, line in enumerate([*text.removeprefix("\ufeff").splitlines(), ""], 1):
        if not line.strip():
            if block is not None and block.words:
                parses.append(_parse(block))
            block = None
        elif not line.startswith("#"):
            block = block or _Block(number)
            _take(block, number, line)
    if not parses:
        raise ConfigError(
            "There is no sentence in this file; CoNLL-U has a line of ten tab-separated columns a word."
        )
    return tuple(parses)


def _take(block: _Block, number: int, line: str) -> None:
    """Add a line of ten columns to the sentence."""
    cells = line.split("\t")
    if len(cells) != len(COLUMNS):
        raise ConfigError(
            f"Line {number} has {len(cells)} columns; CoNLL-U has ten, separated by tabs: "
            f"{' '.join(COLUMNS)}."
        )
    name = cells[0]
    if "." in name:  # an empty node of enhanced dependencies
        return
    if "-" in name:
        first, last = (_whole(part, number, "ID") for part in name.split("-", 1))
        if first != len(block.words) + 1 or last <= first:
            raise ConfigError(
                f"Line {number}: the range {quote(name)} does not begin at the next word."
            )
        block.joined.append((number, first, last, cells))
        return
    if _whole(name, number, "ID") != len(block.words) + 1:
        raise ConfigError(
            f"Line {number}: its ID is {quote(name)}; the next word of this sentence is "
            f"{len(block.words) + 1}."
        )
    if not cells[1].strip():
        raise ConfigError(f"Line {number} has no word in its second column, FORM.")
    block.words.append((number, cells))
    if len(block.words) > MOST_WORDS:
        raise ConfigError(
            f"The sentence of line {block.line} has more than {MOST_WORDS} words; split or remove it."
        )


def _parse(block: _Block) -> Parse:
    """The sentence of the block; ConfigError unless its heads make a tree."""
    size = len(block.words)
    heads = [_index(cells[6], number, "HEAD", size) for number, cells in block.words]
    _validate_tree(block, heads)
    text, spans = _text(block)
    words = []
    for index, (number, cells) in enumerate(block.words):
        antecedent = _misc(cells).get("Antecedent")
        refers = None if antecedent is None else _index(antecedent, number, "Antecedent", size)
        if refers in (-1, index):
            raise ConfigError(
                f"Line {number}: the antecedent of {quote(cells[1])} must be another word, 1 to {size}."
            )
        words.append(Word(cells[1], cells[3], heads[index], cells[7], refers, spans[index]))
    return Parse(tuple(words), text, block.line)


def _validate_tree(block: _Block, heads: list[int]) -> None:
    """ConfigError unless one word is the root and every other one leads to it."""
    roots = [number for (number, _), head in zip(block.words, heads, strict=True) if head < 0]
    if len(roots) != 1:
        what = (
            f"lines {', '.join(map(str, roots[:4]))} are all roots"
            if roots
            else "none of its words is the root"
        )
        raise ConfigError(f"The sentence of line {block.line} needs one root (HEAD 0): {what}.")
    for index, (number, cells) in enumerate(block.words):
        seen, node = set(), index
        while node >= 0:
            if node in seen:
                raise ConfigError(
                    f"Line {number}: {quote(cells[1])} does not lead to the root; its heads run in a "
                    "circle."
                )
            seen.add(node)
            node = heads[node]


def _text(block: _Block) -> tuple[str, list[Span | None]]:
    """The text of the sentence, and the characters of each word; None within a contraction that does not add up."""
    text, spans, index = "", [], 0
    joined = {first: (number, last, cells) for number, first, last, cells in block.joined}
    while index < len(block.words):
        _, cells = block.words[index]
        forms = [cells[1]]
        if (index + 1) in joined:
            number, last, cells = joined[index + 1]
            if last > len(block.words):
                raise ConfigError(
                    f"Line {number}: the range ends at word {last}, and there are {len(block.words)}."
                )
            forms = [row[1] for _, row in block.words[index:last]]
        start = len(text)
        text += cells[1]
        for form in forms:
            spans.append((start, start + len(form)) if "".join(forms) == cells[1] else None)
            start += len(form)
        index += len(forms)
        if _misc(cells).get("SpaceAfter") != "No" and index < len(block.words):
            text += " "
    return text, spans


def _misc(cells: list[str]) -> dict[str, str]:
    return dict(part.split("=", 1) for part in cells[9].split("|") if "=" in part)


def _index(text: str, number: int, column: str, size: int) -> int:
    """The index of a word from its number; −1 for 0."""
    value = _whole(text, number, column)
    if value > size:
        raise ConfigError(
            f"Line {number}: its {column} is {value}, and the sentence has {size} words."
        )
    return value - 1


def _whole(text: str, number: int, column: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise ConfigError(f"Line {number}: its {column} is {quote(text)}; expected a whole number.")
    return int(text)
