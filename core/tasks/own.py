"""A person's own text, sentence pairs or table: the parameter `data` is the text or, if long, a reference to it
(core.tasks.data_store). A task's `notes` say how the data was read; ConfigError names lines that cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from core.entries import ConfigError, Param
from core.tasks import samples
from core.tasks.base import Task, TaskConfig, TaskEntry
from core.tasks.data_store import is_reference, path_of, read
from core.tasks.labelled import split_sides
from core.tasks.pairs import OwnPairs, Pairs, parse_pairs
from core.tasks.reading import MOST_SIGNS, validate_text
from core.tasks.recipes import for_data
from core.tasks.sentences import SentenceTask, words
from core.tasks.tables import ALL, Texts, find_column, parse_table, sheet_of
from core.tasks.tabular import Table, TableTask
from core.tasks.text import FEWEST_WORDS, LENGTH, UNIT, Corpus, TextTask, unseen

HEADER = Param(
    "header",
    "First line",
    "auto",
    choices=("auto", "yes", "no"),
    labels=("automatic", "names of columns", "data"),
    meaning="content of the first line of the file",
)
OWN_UNIT = replace(
    UNIT, default="auto", choices=("auto", *UNIT.choices), labels=("automatic", *UNIT.choices)
)
PASSES = 2  # over a long text
LONGEST_COLUMNS = 4_000  # characters of the names of columns


def _data(name: str, default: str, meaning: str) -> Param:
    return Param("data", name, default, meaning=meaning, parse=_check_data, longest=MOST_SIGNS)


def _check_data(value: str) -> None:
    if is_reference(value):
        path_of(
            value
        )  # stored data was checked before, and is checked again when a task is made of it
    else:
        validate_text(value)


class OwnText(TextTask):
    """Windows of a person's own text, its last tenth held out."""

    finite = True

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        data, unit = str(config["data"]), str(config["unit"])
        _check_text(data, unit, int(config["length"]))
        super().__init__(config, entry, own_corpus(data, unit))
        corpus = self.corpus
        self.recommended = for_data(self.recommended, len(corpus.trained) // self.length, PASSES)
        self.notes = (
            f"Training uses {len(corpus.trained):,} {corpus.unit}; the last {len(corpus.held_out):,} are "
            f"held out. {len(corpus.vocab) - 4:,} of them are different.",
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
        unit = "words" if text.count(" ") >= FEWEST_WORDS else "characters"
    cut = len(text) - len(text) // 10
    line = text.rfind("\n", cut - len(text) // 20, cut)
    cut = line + 1 if line > 0 else cut
    return Corpus.of(text[:cut], text[cut:], unit)


@lru_cache(maxsize=4)
def own_pairs(data: str, header: str, unit: str, seed: int) -> Pairs:
    return parse_pairs(read(data), header, unit, seed)


@lru_cache(maxsize=8)
def own_table(
    data: str, header: str, label: str, text: str, columns: str, dates: str, decimal: str
) -> Table | Texts:
    return parse_table(read(data), header, label, text, columns, dates, decimal)


@lru_cache(maxsize=8)
def column_names(data: str, header: str = "auto", decimal: str = "auto") -> tuple[str, ...]:
    """The columns of a table, to choose the class from; ConfigError when it cannot be read."""
    return sheet_of(read(data), header, decimal).names


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
        table = own_table(**{**params, "columns": columns})
    except ConfigError:
        table = None
    used = tuple(column.name for column in table.columns) if isinstance(table, Table) else ()
    return names[:target] + names[target + 1 :], used


def make_table_task(config: TaskConfig) -> Task:
    """A classifier of rows, or of texts."""
    table = own_table(**{name: str(value) for name, value in config.params})
    return (
        SentenceTask(config, OWN_TABLE, table)
        if isinstance(table, Texts)
        else TableTask(config, OWN_TABLE, table)
    )


# Stored data is read when a task is made of it, not with every config: a list of runs has many configs.
def check_text(data: str, unit: str, length: int) -> None:
    if not is_reference(data):
        _check_text(data, unit, length)


@lru_cache(maxsize=8)
def _check_text(data: str, unit: str, length: int) -> None:
    """ConfigError unless windows fit into both parts of the text, and one of the held-out part is new."""
    corpus = own_corpus(data, unit)
    if len(corpus.held_out) < length + 2:
        count = len(corpus.trained) + len(corpus.held_out)
        raise ConfigError(
            f"The text has {count:,} {corpus.unit}, of which a tenth is held out: too few for a window "
            f"of {length}. Take shorter windows or a longer text."
        )
    if next(unseen(corpus, length, 0), None) is None:
        raise ConfigError(
            "The held-out end of the text also occurs word for word in the training text; take a text "
            "with fewer repetitions."
        )


@lru_cache(maxsize=8)
def check_pairs(data: str, header: str, unit: str) -> None:
    if not is_reference(data):
        own_pairs(data, header, unit, 0)


@lru_cache(maxsize=8)
def check_table(**params: str) -> None:
    if is_reference(params["data"]):
        return
    table = own_table(**params)
    rows = [tuple(words(each)) for each in table.texts] if isinstance(table, Texts) else table.rows
    split_sides(rows, table.labels, seed=0)


OWN_TEXT: TaskEntry = TaskEntry(
    "own_text",
    "Your own text",
    "Predict each next character or word of your text.",
    "Each token attends to the tokens just before it, most to the nearest. Where the text repeats, it attends to the "
    "token that came next the last time.",
    lambda config: OwnText(config, OWN_TEXT),
    (
        _data(
            "Text",
            samples.SONNETS,
            "any text in UTF-8; until you give one, sonnets of Shakespeare are used",
        ),
        Param("length", "Window", 32, LENGTH.low, LENGTH.high, LENGTH.step, meaning=LENGTH.meaning),
        OWN_UNIT,
    ),
    check_text,
)
OWN_PAIRS: TaskEntry = TaskEntry(
    "own_pairs",
    "Your own pairs",
    "Write the right side of each pair from its left side.",
    "Each output attends to the part of the source that determines it.",
    lambda config: OwnPairs(
        config,
        OWN_PAIRS,
        own_pairs(str(config["data"]), str(config["header"]), str(config["unit"]), config.seed),
    ),
    (
        _data(
            "Pairs",
            samples.roman_pairs(),
            "TSV or CSV with one pair in each line: source, then target; until you "
            "give some, Roman numerals are used",
        ),
        HEADER,
        OWN_UNIT,
    ),
    check_pairs,
)
OWN_TABLE: TaskEntry = TaskEntry(
    "own_table",
    "Your own table",
    "Predict the class in one column of a table from the other columns.",
    "The class attends to the columns, or words, that determine it.",
    make_table_task,
    (
        _data(
            "Table",
            samples.characters(),
            "CSV with one row in each line, one column of which is the class; until you "
            "give one, properties of Unicode characters are used",
        ),
        HEADER,
        Param(
            "label",
            "Class",
            "",
            meaning="column to predict, by name or number; empty: the last one",
        ),
        Param(
            "text",
            "Text",
            "",
            meaning="column to read word by word, instead of all columns; empty: none",
        ),
        Param(
            "dates",
            "Dates",
            "out",
            choices=("out", "numbers", "categories"),
            before="categories",
            labels=("left out", "as numbers, in days", "as other words"),
            meaning="how columns of dates are used",
        ),
        Param(
            "decimal",
            "Decimals",
            "auto",
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
            "columns",
            "Columns",
            "",
            meaning="columns to learn from, by name or number, with commas between; empty: "
            "all but dates, constant columns and identifiers; *: also identifiers",
            longest=LONGEST_COLUMNS,
            before=ALL,
        ),
    ),
    check_table,
)
