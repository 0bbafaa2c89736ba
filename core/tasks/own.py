"""A person's own text, sentence pairs or table: the parameter `data` is the text or, if long, a reference to it
(core.tasks.reading). A task's `notes` say how the data was read; ConfigError names lines that cannot be. Samples of
such data are the defaults."""

import csv
import io
import sys
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain

import torch

from core.entries import ConfigError, Param, refuse_if
from core.memory import with_pauses
from core.tasks import recipes
from core.tasks.base import Example, Task, Vocabulary, choose, split_sides
from core.tasks.config import TaskConfig, TaskEntry
from core.tasks.reading import (
    MAX_SIGNS,
    Row,
    is_reference,
    names_columns,
    path_of,
    read,
    read_rows,
    row_notes,
    validate_text,
)
from core.tasks.tables import ALL, Table, TableTask, Texts, find_column, parse_table, sheet_of
from core.tasks.text import (
    LENGTH,
    MAX_WORDS,
    MIN_WORDS,
    UNIT,
    Corpus,
    SentenceTask,
    TextTask,
    split,
    unseen,
    words,
)
from core.tasks.translation import PairTask

MIN_PAIRS, MAX_TOKENS = 30, 128
HELD_OUT = 0.1
PASSES = 10  # over many pairs; the recipe's own steps are more for few
# Words in a first line that names the columns.
NAMES = frozenset(
    """source target input output src tgt from to question answer text translation word words roman digits
english german french spanish italian dutch en de fr es it nl pt left right original sentence1 sentence2""".split()
)


@dataclass(frozen=True)
class Pairs:
    """Training and held-out pairs, which share no source, and notes on how they were read."""

    trained: tuple[Example, ...]
    held_out: tuple[Example, ...]
    unit: str
    notes: tuple[str, ...]


def vocabularies(trained: Sequence[Example]) -> tuple[Vocabulary, Vocabulary]:
    """The MAX_WORDS most frequent tokens of the sources and of the targets."""
    counts = (Counter(chain.from_iterable(sides)) for sides in zip(*trained, strict=True))
    source, target = ([token for token, _ in count.most_common(MAX_WORDS)] for count in counts)
    return Vocabulary(source), Vocabulary(target)


class OwnPairs(PairTask):
    """A person's pairs; a batch has sources of like length, and the vocabularies are those of the training pairs."""

    finite = True

    def __init__(self, config: TaskConfig, entry: TaskEntry, pairs: Pairs) -> None:
        self.pairs, self.notes = pairs, pairs.notes
        self.unit, self.whole = pairs.unit.removesuffix("s"), "targets"
        self.separator = " " if pairs.unit == "words" else ""
        both = (*pairs.trained, *pairs.held_out)
        # BLEU counts words, so it is left out where no target has two; characters are scored by chrF.
        has_words = self.separator or any(" " in pair.target for pair in both)
        self.metrics = (
            "sequence_accuracy",
            *(["bleu"] if has_words else []),
            *([] if self.separator else ["chrf"]),
        )
        by_kind = recipes.translation()
        # The best first, as measured: see recipes.translation.
        first = "transformer" if pairs.unit == "words" else "recurrent"
        by_kind = {first: by_kind[first], **by_kind}
        longest = max(len(pair.source) for pair in both), max(len(pair.target) for pair in both)
        super().__init__(
            config,
            entry,
            recipes.for_data(by_kind, len(pairs.trained), PASSES),
            longest,
            *vocabularies(pairs.trained),
        )

    @cached_property
    def pool(self) -> list[Example]:
        return sorted(self.pairs.trained, key=lambda pair: len(pair.source))

    def words_of(self, tokens: Sequence[str]) -> list[str]:
        return list(tokens) if self.separator else split("".join(tokens), "words")

    def tokens(self, text: str) -> list[str]:
        return split(text.strip(), self.pairs.unit)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        side = self.pairs.held_out if held_out else self.pairs.trained
        return side[choose(generator, len(side))]

    def held_out(self, n: int) -> tuple[Example, ...]:
        return self.pairs.held_out[:n]


@lru_cache(maxsize=4)
def parse_pairs(data: str, header: str, unit: str, seed: int = 0) -> Pairs:
    """Pairs from the first two columns of a TSV or CSV, or of a reference to one; a tenth of the sources, by the seed,
    is held out. ConfigError names the lines of pairs with an empty side or too many tokens, and says when they are too
    few."""
    rows, _ = read_rows(read(data), "list of pairs")
    lines = row_notes(read(data), rows)
    has_header = names_columns(rows, header, NAMES)
    rows = rows[1:] if has_header else rows
    notes = [
        f"The first line {'names the columns' if has_header else 'is a pair itself'}.",
        *lines,
    ]
    if rows and len(rows[0].cells) > 2:
        notes.append(f"The first two of {len(rows[0].cells)} columns are read.")
    if unit == "auto":  # words where most pairs have a space on both sides
        spaced = sum(all(" " in cell for cell in row.cells[:2]) for row in rows)
        unit = "words" if 2 * spaced > len(rows) else "characters"
    pairs = dict.fromkeys(_pair(row, unit) for row in with_pauses(rows))
    if copies := len(rows) - len(pairs):
        notes.append(
            f"{copies:,} {'pair occurs' if copies == 1 else 'pairs occur'} more than once and "
            f"{'counts' if copies == 1 else 'count'} once."
        )
    refuse_if(
        len(pairs) < MIN_PAIRS,
        f"There are {len(pairs)} different pairs; at least {MIN_PAIRS} are needed, as a tenth is "
        "held out.",
    )
    trained, held_out = _sides(tuple(pairs), seed)
    notes.append(
        f"Training uses {len(trained):,} pairs; {len(held_out):,} are held out. No source is in both parts."
    )
    unknown = {
        token
        for vocab, sides in zip(vocabularies(trained), zip(*held_out, strict=True), strict=True)
        for token in {token for side in sides for token in side} - set(vocab.tokens)
    }
    if unknown:
        notes.append(
            f"{len(unknown):,} {unit} of the held-out pairs, such as {min(unknown)!r}, are in no training "
            "pair; no model can get those right."
        )
    return Pairs(trained, held_out, unit, tuple(notes))


def _pair(row: Row, unit: str) -> Example:
    # each word is in memory once
    sides = [tuple(map(sys.intern, split(cell, unit))) for cell in row.cells[:2]]
    for name, side in zip(("source", "target"), sides, strict=True):
        refuse_if(
            not side, f"Line {row.line} has an empty {name}; fill it in or take the line out."
        )
        refuse_if(
            len(side) > MAX_TOKENS,
            f"Line {row.line} has a {name} of {len(side)} {unit}; at most {MAX_TOKENS} are taken. "
            "Cut the line in two, or take it out.",
        )
    return Example(*sides)


def _sides(pairs: Sequence[Example], seed: int) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    sources = list(dict.fromkeys(pair.source for pair in pairs))
    refuse_if(
        len(sources) < MIN_PAIRS,
        f"There are {len(sources)} different sources; at least {MIN_PAIRS} are needed.",
    )
    order = torch.randperm(len(sources), generator=torch.Generator().manual_seed(seed)).tolist()
    rank = {sources[i]: j for j, i in enumerate(order[: round(HELD_OUT * len(sources))])}
    held_out = sorted(
        (pair for pair in pairs if pair.source in rank), key=lambda pair: rank[pair.source]
    )
    return tuple(pair for pair in pairs if pair.source not in rank), tuple(held_out)


SONNETS = """\
Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date:
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance, or nature's changing course, untrimm'd;
But thy eternal summer shall not fade
Nor lose possession of that fair thou ow'st;
Nor shall Death brag thou wander'st in his shade,
When in eternal lines to time thou grow'st;
So long as men can breathe or eyes can see,
So long lives this, and this gives life to thee.

When, in disgrace with fortune and men's eyes,
I all alone beweep my outcast state
And trouble deaf heaven with my bootless cries
And look upon myself and curse my fate,
Wishing me like to one more rich in hope,
Featured like him, like him with friends possess'd,
Desiring this man's art and that man's scope,
With what I most enjoy contented least;
Yet in these thoughts myself almost despising,
Haply I think on thee, and then my state,
Like to the lark at break of day arising
From sullen earth, sings hymns at heaven's gate;
For thy sweet love remember'd such wealth brings
That then I scorn to change my state with kings.

When to the sessions of sweet silent thought
I summon up remembrance of things past,
I sigh the lack of many a thing I sought,
And with old woes new wail my dear time's waste:
Then can I drown an eye, unused to flow,
For precious friends hid in death's dateless night,
And weep afresh love's long since cancell'd woe,
And moan the expense of many a vanish'd sight:
Then can I grieve at grievances foregone,
And heavily from woe to woe tell o'er
The sad account of fore-bemoaned moan,
Which I new pay as if not paid before.
But if the while I think on thee, dear friend,
All losses are restored and sorrows end.

That time of year thou mayst in me behold
When yellow leaves, or none, or few, do hang
Upon those boughs which shake against the cold,
Bare ruin'd choirs, where late the sweet birds sang.
In me thou see'st the twilight of such day
As after sunset fadeth in the west,
Which by and by black night doth take away,
Death's second self, that seals up all in rest.
In me thou see'st the glowing of such fire
That on the ashes of his youth doth lie,
As the death-bed whereon it must expire
Consumed with that which it was nourish'd by.
This thou perceivest, which makes thy love more strong,
To love that well which thou must leave ere long.

Let me not to the marriage of true minds
Admit impediments. Love is not love
Which alters when it alteration finds,
Or bends with the remover to remove:
O no! it is an ever-fixed mark
That looks on tempests and is never shaken;
It is the star to every wandering bark,
Whose worth's unknown, although his height be taken.
Love's not Time's fool, though rosy lips and cheeks
Within his bending sickle's compass come:
Love alters not with his brief hours and weeks,
But bears it out even to the edge of doom.
If this be error and upon me proved,
I never writ, nor no man ever loved.

My mistress' eyes are nothing like the sun;
Coral is far more red than her lips' red;
If snow be white, why then her breasts are dun;
If hairs be wires, black wires grow on her head.
I have seen roses damask'd, red and white,
But no such roses see I in her cheeks;
And in some perfumes is there more delight
Than in the breath that from my mistress reeks.
I love to hear her speak, yet well I know
That music hath a far more pleasing sound;
I grant I never saw a goddess go;
My mistress, when she walks, treads on the ground:
And yet, by heaven, I think my love as rare
As any she belied with false compare.
"""
_ROMAN = (
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
)
# Latin, Greek and Cyrillic letters, digits and signs: blocks that no longer change between versions of Unicode.
_BLOCKS = (
    (0x20, 0x7E),
    (0xA1, 0xAC),
    (0xAE, 0x17F),
    (0x391, 0x3CE),
    (0x400, 0x45F),
    (0x2460, 0x2487),
)
_KINDS = {
    "Lu": "capital letter",
    "Ll": "small letter",
    "Nd": "number",
    "No": "number",
    "Sm": "sign",
    "Po": "sign",
    "Sc": "sign",
    "So": "sign",
    "Sk": "sign",
    "Ps": "sign",
    "Pe": "sign",
    "Pd": "sign",
    "Pc": "sign",
    "Pi": "sign",
    "Pf": "sign",
    "Zs": "sign",
    "Lo": "small letter",
    "Lt": "capital letter",
}


def roman(number: int) -> str:
    """1994 as MCMXCIV."""
    text = ""
    for value, sign in _ROMAN:
        text += sign * (number // value)
        number %= value
    return text


def roman_pairs() -> str:
    """Roman numerals and their digits, 1 to 1999, one pair a line, a tab between."""
    return "roman\tdigits\n" + "".join(f"{roman(n)}\t{n}\n" for n in range(1, 2000))


def characters() -> str:
    """Properties of some Unicode characters as CSV: the code, its column of 16 in the code chart, numbers, categories,
    missing cells, a text, and last the class."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(
        (
            "code",
            "chart column",
            "value",
            "width",
            "decomposes",
            "has capital",
            "has small",
            "name",
            "kind",
        )
    )
    codes = (code for low, high in _BLOCKS for code in range(low, high + 1))
    for code, sign in ((code, chr(code)) for code in codes if unicodedata.name(chr(code), "")):
        value = unicodedata.numeric(sign, None)
        table.writerow(
            (
                code,
                code // 16,
                "" if value is None else f"{value:g}",
                unicodedata.east_asian_width(sign),
                *(
                    "yes" if holds else "no"
                    for holds in (
                        unicodedata.decomposition(sign),
                        sign != sign.upper(),
                        sign != sign.lower(),
                    )
                ),
                unicodedata.name(sign).lower(),
                _KINDS[unicodedata.category(sign)],
            )
        )
    return out.getvalue()


HEADER = Param(
    "header",
    "First line",
    default="auto",
    choices=("auto", "yes", "no"),
    labels=("automatic", "names of columns", "data"),
    meaning="content of the first line of the file",
)
OWN_UNIT = replace(
    UNIT, default="auto", choices=("auto", *UNIT.choices), labels=("automatic", *UNIT.choices)
)


def _data(name: str, default: str, meaning: str) -> Param:
    # Stored data was checked before, and is checked again when a task is made of it.
    def parse(value: str) -> object:
        return path_of(value) if is_reference(value) else validate_text(value)

    return Param("data", name, default=default, meaning=meaning, parse=parse, longest=MAX_SIGNS)


class OwnText(TextTask):
    """Windows of a person's own text, its last tenth held out."""

    finite = True

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        data, unit = str(config["data"]), str(config["unit"])
        check_text(data, unit, int(config["length"]), stored=True)
        super().__init__(config, entry, own_corpus(data, unit))
        corpus = self.corpus
        self.recommended = recipes.for_data(
            self.recommended, len(corpus.trained) // self.length, passes=2
        )
        self.notes = (
            f"Training uses {len(corpus.trained):,} {corpus.unit}; the last {len(corpus.held_out):,} are "
            f"held out. The text has {len(corpus.vocab) - 4:,} different {corpus.unit}.",
        )
        if corpus.unknown:
            self.notes += (
                f"{corpus.unknown:.1%} of the held-out {corpus.unit} do not occur in the training text.",
            )


@lru_cache(maxsize=2)
def own_corpus(data: str, unit: str) -> Corpus:
    """A text with its last tenth held out, cut at the end of a line if one is near."""
    text = validate_text(read(data)).strip()
    if unit == "auto":
        unit = "words" if text.count(" ") >= MIN_WORDS else "characters"
    cut = len(text) - len(text) // 10
    line = text.rfind("\n", cut - len(text) // 20, cut)
    cut = line + 1 or cut
    return Corpus.of(text[:cut], text[cut:], unit)


@lru_cache(maxsize=8)
def column_names(data: str, header: str = "auto", decimal: str = "auto") -> tuple[str, ...]:
    """The columns of a table, to choose the class from; ConfigError when it cannot be read."""
    return sheet_of(data, header, decimal).names


def column_choice(
    params: Mapping[str, str], columns: str = ""
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a table without the class, and those that are learned from with these `columns` (none where none
    is left, or a text is read); ConfigError as sheet_of and find_column."""
    names = column_names(params["data"], params["header"], params["decimal"])
    target = (
        find_column(names, params["label"], "label") if params["label"].strip() else len(names) - 1
    )
    try:
        table = parse_table(**{**params, "columns": columns})
    except ConfigError:
        table = None
    used = tuple(column.name for column in table.columns) if isinstance(table, Table) else ()
    return names[:target] + names[target + 1 :], used


def make_table_task(config: TaskConfig) -> Task:
    """A classifier of rows, or of texts."""
    table = parse_table(**{name: str(value) for name, value in config.params})
    return (
        SentenceTask(config, OWN_TABLE, table)
        if isinstance(table, Texts)
        else TableTask(config, OWN_TABLE, table)
    )


# Stored data is read when a task is made of it, not with every config: a list of runs has many configs.
@lru_cache(maxsize=8)
def check_text(data: str, unit: str, length: int, stored: bool = False) -> None:
    """ConfigError unless windows fit into both parts of the text, and one of the held-out part is new."""
    if is_reference(data) and not stored:
        return
    corpus = own_corpus(data, unit)
    if len(corpus.held_out) < length + 2:
        count = len(corpus.trained) + len(corpus.held_out)
        raise ConfigError(
            f"The text has {count:,} {corpus.unit}, of which a tenth is held out: too few for a window "
            f"of {length}. Take shorter windows or a longer text."
        )
    refuse_if(
        next(unseen(corpus, length, 0), None) is None,
        "The held-out end of the text also occurs word for word in the training text; take a text "
        "with fewer repetitions.",
    )


@lru_cache(maxsize=8)
def check_pairs(data: str, header: str, unit: str) -> None:
    if not is_reference(data):
        parse_pairs(data, header, unit)


@lru_cache(maxsize=8)
def check_table(**params: str) -> None:
    if is_reference(params["data"]):
        return
    table = parse_table(**params)
    rows = [tuple(words(each)) for each in table.texts] if isinstance(table, Texts) else table.rows
    split_sides(rows, table.labels, notes=table.notes)


OWN_TEXT: TaskEntry = TaskEntry(
    "own_text",
    "Your own text",
    meaning="Predict each next character or word of your text.",
    look="Each token attends to the tokens just before it, most to the nearest. Where the text repeats, it attends to the "
    "token that came next the last time.",
    build=lambda config: OwnText(config, OWN_TEXT),
    params=(
        _data(
            "Text",
            SONNETS,
            "any text in UTF-8; until you give one, sonnets of Shakespeare are used",
        ),
        Param(
            "length",
            "Window",
            default=32,
            low=LENGTH.low,
            high=LENGTH.high,
            step=LENGTH.step,
            meaning=LENGTH.meaning,
        ),
        OWN_UNIT,
    ),
    check=check_text,
)
OWN_PAIRS: TaskEntry = TaskEntry(
    "own_pairs",
    "Your own pairs",
    meaning="Write the right side of each pair from its left side.",
    look="Each output attends to the part of the source that determines it.",
    build=lambda config: OwnPairs(
        config,
        OWN_PAIRS,
        parse_pairs(str(config["data"]), str(config["header"]), str(config["unit"]), config.seed),
    ),
    params=(
        _data(
            "Pairs",
            roman_pairs(),
            "TSV or CSV with one pair in each line: source, then target; until you "
            "give some, Roman numerals are used",
        ),
        HEADER,
        OWN_UNIT,
    ),
    check=check_pairs,
)
OWN_TABLE: TaskEntry = TaskEntry(
    "own_table",
    "Your own table",
    meaning="Predict the class in one column of a table from the other columns.",
    look="The class attends to the columns, or words, that determine it.",
    build=make_table_task,
    params=(
        _data(
            "Table",
            characters(),
            "CSV with one row in each line, one column of which is the class; until you "
            "give one, properties of Unicode characters are used",
        ),
        HEADER,
        Param(
            "label",
            "Class",
            default="",
            meaning="column to predict, by name or number; empty: the last one",
        ),
        Param(
            "text",
            "Text",
            default="",
            meaning="column to read word by word, instead of all columns; empty: none",
        ),
        Param(
            "dates",
            "Dates",
            default="out",
            choices=("out", "numbers", "categories"),
            before="categories",
            labels=("left out", "as numbers, in days", "as other words"),
            meaning="how columns of dates are used",
        ),
        Param(
            "decimal",
            "Decimals",
            default="auto",
            choices=("auto", "point", "comma", "table"),
            before="table",
            labels=(
                "automatic",
                "1.5: a point",
                "1,5: a comma",
                "automatic, one sign for all columns",
            ),
            meaning="sign before the decimals",
        ),
        Param(
            "missing",
            "Missing",
            default="",
            meaning="cells that count as empty, with commas between; empty: NA, -, ? and the like, unless they are as "
            "frequent as a column's words; *: these in every column",
            longest=200,
            before=ALL,
        ),
        Param(
            "columns",
            "Columns",
            default="",
            meaning="columns to learn from, by name or number, with commas between; empty: "
            "all but dates, constant columns and identifiers; *: also identifiers",
            longest=4_000,
            before=ALL,
        ),
    ),
    check=check_table,
)
