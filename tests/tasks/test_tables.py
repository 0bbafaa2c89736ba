"""A person's own tables and pairs, and Iris: read from CSV or TSV, split without leaks, learned, stored, or refused."""

import csv
import io
import json
import math
import os
import random
import shutil
import time
from collections import Counter
from dataclasses import replace
from datetime import date as calendar
from unittest.mock import Mock

import pytest
import sacrebleu
import torch
from hypothesis import given, settings, strategies as st

from benchmarks.tasks import TARGETS, Figures, Row, Target, figures
from core import memory
from core.entries import ConfigError
from core.models import ModelConfig, build_model
from core.pretrained.finetune import parse as parse_labelled
from core.runs.archive import pack, unpack
from core.runs.runs import Run, create_run, duplicate, prune
from core.runs.worker import work
from core.tasks import PAD, Example, TaskConfig, make_task, reading, recipes, tables
from core.tasks.base import UNK, score, split_sides
from core.tasks.own import OwnPairs, characters, column_names, parse_pairs, roman
from core.tasks.reading import MAX_COLUMNS, MAX_SIGNS, decode_text, read_rows, row_notes
from core.tasks.recipes import MAX_STEPS, for_data
from core.tasks.tables import (
    IRIS,
    Column,
    Table,
    TableTask,
    Texts,
    date,
    date_order,
    decimal_comma,
    number,
    parse_table,
)
from core.training import Record, loop, prepare, recommended, train
from core.training.__main__ import main
from core.training.evaluate import measure_teacher_forced
from core.training.sweeps import SweepConfig
from tests.cases import each, instance

ROWS = [
    (f"{i / 2}", "red" if i % 3 else "blue", f"id {i}", "same", "yes" if i % 2 else "no")
    for i in range(40)
]


def table_of(data: str, header="auto", label="", text="", **named: str) -> Table:
    return instance(parse_table(data, header, label, text, **named), Table)


def csv_of(rows=ROWS, head="size,colour,name,unit,answer", mark=","):
    return "\n".join([head.replace(",", mark), *(mark.join(row) for row in rows)])


def changed(row, count=40):
    return csv_of([row(i, *cells) for i, cells in enumerate(ROWS[:count])])


MANY = "\n".join(f"id {i},{'ab'[i % 2]}" for i in range(1001))


IDENTIFIERS = "id,answer\n" + "\n".join(f"{i * i},{'ab'[i % 2]}" for i in range(30))
DATED = [
    (f"{100 + 7 * i}", f"{i % 9},5", f"{1 + i % 28:02}.03.2020", "DE", "yes" if i % 2 else "no")
    for i in range(40)
]
DATED_HEAD = "id,price,day,country,answer"
COMMAS = csv_of(DATED, DATED_HEAD, ";")
BARE = csv_of().split("\n", 1)[1]
MISSING = [
    ("" if i == 3 else a, "NA" if i == 5 else b, c, d, "?" if i in (7, 9) else e)
    for i, (a, b, c, d, e) in enumerate(ROWS)
]
THOUSANDS = "\n".join(f"{1 + i % 7}.500;{'ab'[i % 2]}" for i in range(40))


def named(*columns, **more):
    return {"names": columns, **more}


@each(
    ("data", "params", "expected"),
    [
        # Columns are numbers, categories or left out.
        (
            csv_of(),
            {},
            named(
                "size",
                "colour",
                categories={"size": (), "colour": ("blue", "red")},
                classes=("no", "yes"),
                rows=((0.0, 1.0), (0.5, 2.0)),
                labels=(0, 1, 0),
                said="The first line names the columns; answer is the class of each of 40 rows. "
                "Left out: name (identifiers or text, all 40 different), unit (always same). "
                "Numbers: size. Categories: colour (2 kinds).",
            ),
        ),
        (
            changed(lambda i, size, *row: (str(7 + i), *row)),
            {},
            named("colour", said="size (counts the rows)"),
        ),
        # The class is named by name or number.
        *(
            (csv_of(), {"label": label}, named("size", "answer", classes=("blue", "red")))
            for label in ("colour", "Colour ", "2")
        ),
        # Without names the first line is a row.
        *(
            (BARE, {"header": header, "label": "column 5"}, named("column 1", "column 2", count=40))
            for header in ("auto", "no")
        ),
        (BARE, {"header": "yes"}, {"count": 39}),
        (
            csv_of(MISSING),
            {},
            {
                "count": 38,
                "rows": ((0.0, 1.0), (0.5, 2.0), (1.0, 2.0), (None, 1.0), (2.0, 2.0), (2.5, None)),
                "said": "Lines 9, 11 have no answer and are left out.",
            },
        ),
        (csv_of(MISSING), {}, {"said": "2 of 76 cells are empty and masked."}),
        (
            csv_of([(a.replace(".", ","), *rest) for a, *rest in ROWS], mark=";"),
            {},
            {"rows": ((0.0, 1.0), (0.5, 2.0), (1.0, 2.0), (1.5, 1.0))},
        ),
        (changed(lambda i, *row: (*row[:4], str(8 + i % 3))), {}, {"classes": ("8", "9", "10")}),
        # Decimal commas stay numbers whatever separates and whatever dates have.
        *(
            (
                csv_of(DATED, DATED_HEAD, mark),
                {},
                named(
                    "price",
                    categories={"price": ()},
                    rows=((0.5,), (1.5,), (2.5,)),
                    said="Left out: id (identifiers, 40 different whole numbers), day (dates), country (always DE). "
                    "Numbers: price. With decimal commas: price.",
                ),
            )
            for mark in (";", "\t", "|")
        ),
        (
            "\n".join(f'"{i % 7},25",{"ab"[i % 2]}' for i in range(40)),
            {"header": "no"},
            {"rows": ((0.25,), (1.25,), (2.25,), (3.25,))},
        ),
        (THOUSANDS, {"header": "no"}, {"rows": ((1.5,),)}),
        (THOUSANDS.replace(".", ","), {"header": "no"}, {"rows": ((1.5,),)}),
        (THOUSANDS, {"header": "no", "decimal": "comma"}, {"rows": ((1500.0,),)}),
        (
            COMMAS,
            {"dates": "numbers"},
            named("price", "day", rows=((0.5, 18322.0),), said="Dates as numbers, in days: day."),
        ),
        # What was left out can be put back, and more can be left out.
        (COMMAS, {"columns": "id, country"}, named("id", "country")),
        (COMMAS, {"columns": "1,day"}, named("id", "day")),
        (
            COMMAS,
            {"columns": "day"},
            {"said": "Left out: id (not chosen), price (not chosen), country (not chosen)."},
        ),
        # At most a quarter as many categories as rows, unless they are wanted.
        (changed(lambda i, a, b, *rest: (a, f"c{i % 10}", *rest)), {}, named("size", "colour")),
        (changed(lambda i, a, b, *rest: (a, f"c{i % 11}", *rest)), {}, named("size")),
        (csv_of(), {"columns": "name"}, {"kinds": 40}),
        (IDENTIFIERS, {"columns": "id"}, {"rows": ((0.0,), (1.0,), (4.0,), (9.0,))}),
        (csv_of(ROWS[:20]), {}, {"count": 20}),
        # As many classes, kinds of few rows and kinds that are chosen as there may be, and rare classes.
        *(
            (csv_of(head="size,,name,unit,answer"), {"header": header}, named("size", "column 2"))
            for header in ("auto", "yes")
        ),
        (changed(lambda i, a, *row: (f"−{a}", *row)), {}, {"rows": ((0.0, 1.0), (-0.5, 2.0))}),
        ("\n".join(f"{i * i % 97},c{i % 30}" for i in range(90)), {}, {"count": 90}),
        (changed(lambda i, a, b, *rest: (a, f"c{i % 8}", *rest), 20), {}, named("size", "colour")),
        (changed(lambda i, a, b, *rest: (a, f"c{i % 9}", *rest), 20), {}, named("size")),
        (MANY.rsplit("\n", 1)[0], {"columns": "1"}, {"kinds": 1000}),
        (
            "\n".join(f"{i % 9},{cell}" for i, cell in enumerate("a" * 20 + "bbbccd")),
            {},
            {"said": "Classes with too few rows for a held-out row: c, d."},
        ),
        (
            changed(lambda i, *row: (*row[:4], "?" if i in (7, 9, 11) else row[4])),
            {},
            {"said": "Lines 9, 11, 13 have no answer and are left out."},
        ),
    ],
)
def test_a_table_is_read(data, params, expected):
    table = table_of(data, **params)
    categories = {column.name: column.categories for column in table.columns}
    found = vars(table) | {
        "categories": categories,
        "count": len(table.rows),
        "names": tuple(categories),
        "kinds": len(table.columns[0].categories),
    }
    assert expected.get("said", "") in " ".join(table.notes)
    for part in expected.keys() - {"said"}:
        first = slice(len(expected[part])) if part in ("rows", "labels") else None
        assert (found[part][first] if first else found[part]) == expected[part], part


def test_dates_are_typed_as_dates():
    task = make_task(TaskConfig.of("own_table", dates="numbers", data=COMMAS))
    day = instance(task, TableTask).table.columns[1]
    assert day.date and day.word(18322.0) == "2020-03-01"
    assert task.example("2.5,2020-03-02").source == (2.5, 18323.0)
    pytest.raises(ValueError, task.example, "2.5,soon").match(
        "day = 'soon'; expected a date such as 2020-03-31"
    )


LINES = [f"number {n}\tno {n}" for n in range(60)]
DATA = "\n".join(LINES)


@each(
    ("data", "more", "words"),
    [
        (csv_of(ROWS[:19]), {}, "has 19 rows with a value of answer; at least 20 are needed"),
        (
            changed(lambda i, *row: (*row[:4], str(i))),
            {},
            "answer has 40 different values; at most 30",
        ),
        (changed(lambda i, *row: (*row[:4], "yes")), {}, "answer is always 'yes'"),
        (changed(lambda i, *row: (*row[:4], f"{i // 2}")), {}, "need three rows or more"),
        (
            changed(lambda i, *row: ("big" if i == 30 else row[0], *row[1:])),
            {},
            "size holds numbers, but line 32 has 'big'",
        ),
        (
            changed(lambda i, *row: ("big" if i == 3 else row[0], *row[1:]), 20),
            {},
            "line 5 has 'big'",
        ),
        (
            "\n".join(f"{'x' if 1 < i < 6 else i / 2},{'ab'[i % 2]}" for i in range(100)),
            {},
            "line 3 has 'x', line 4 has 'x', line 5 has 'x'. Correct",
        ),
        (MANY, {"columns": "1"}, "1,001 different texts; at most 1,000"),
        (
            "review,mood\n" + "\n".join(f"{'like ' * (i > 0)},{'ab'[i % 2]}" for i in range(20)),
            {"text": "review"},
            "review has 19 texts; at least 20",
        ),
        (
            changed(lambda i, *row: ("1e999" if i == 30 else row[0], *row[1:])),
            {},
            "line 32 has '1e999'",
        ),
        (
            changed(lambda i, *row: ("5", "red", "", str(i % 2), "yes" if i % 2 else "no")),
            {},
            "three different rows",
        ),
        (
            csv_of(
                [
                    (str(i % 2), ("red", "blue")[i % 2], ("yes", "no")[i // 2 % 2])
                    for i in range(24)
                ],
                "size,colour,answer",
            ),
            {},
            "No class has three different rows",
        ),
        *(
            (
                csv_of(head="size,size,name,unit,answer"),
                {"header": header},
                "Line 1 names two columns 'size'",
            )
            for header in ("auto", "yes")
        ),
        # What counts as an empty cell is told where it is why.
        (
            changed(lambda i, *row: (*row[:4], ("NA", "0", "1")[i % 3]), 27),
            {},
            "18 rows with a value of answer; .* answer: 'NA' counts as an empty cell",
        ),
        (csv_of(), {"missing": "no"}, "always 'yes'; .* answer: 'no' counts as an empty cell"),
        (
            changed(lambda i, *row: (*row[:2], "?" if i % 3 else row[2], *row[3:])),
            {"text": "name"},
            "name has 14 texts; .* name: '\\?' counts as an empty cell",
        ),
        (
            changed(lambda i, *row: ("5", "red", "", "same", row[4])),
            {},
            "No column is left to learn answer from",
        ),
        (IDENTIFIERS, {}, r"id \(identifiers, 30 different whole numbers\). Name columns under"),
        (
            csv_of(),
            {"label": "anser"},
            "label = 'anser': the table has no such column. It has size, colour, name",
        ),
        (csv_of(), {"text": "answer"}, "is the column of the class"),
        (csv_of(), {"columns": "answer"}, "which is the class"),
        (csv_of(), {"columns": "ages"}, "no such column"),
        (csv_of(), {"columns": ",".join("1" * 65)}, "columns has 65 names"),
        *(
            (data, {"unit": "words"}, words)
            for data, words in (
                ("\n".join(LINES[:9]), "9 different pairs; at least 30 are needed"),
                (DATA + "\n\tonly a target", "Line 61 has an empty source"),
                (DATA + "\nonly a source\t", "Line 61 has an empty target"),
                (
                    DATA + "\n" + "x " * 129 + "\ty",
                    "Line 61 has a source of 129 words; at most 128",
                ),
                ("\n".join(f"same\tno {n}" for n in range(40)), "1 different sources"),
                (DATA + "\nbare", "line 1 has 2 cells, line 61 has 1"),
            )
        ),
    ],
)
def test_what_will_not_do_is_said(data, more, words):
    pytest.raises(
        ConfigError,
        TaskConfig.of,
        "own_pairs" if "unit" in more else "own_table",
        data=data,
        **more,
    ).match(words)


def test_a_text_column_is_read_word_by_word():
    expected = [f"I {'like' if i % 2 else 'hate'} thing {i}" for i in range(40)]
    data = "review,mood\n" + "\n".join(
        f"{text},{'good' if i % 2 else 'bad'}" for i, text in enumerate(expected)
    )
    beside = "id,text,answer\n" + "\n".join(f"{i * i},word {i},{'ab'[i % 2]}" for i in range(30))
    for only in (data, beside):
        assert isinstance(parse_table(only, "auto", "", ""), Texts), "nothing but a text to read"
    task = make_task(TaskConfig.of("own_table", data=data))
    assert (task.shape.input, task.shape.output, task.classes) == (
        "tokens",
        "label",
        ("bad", "good"),
    )
    batch = task.collate(task.held_out(8))
    drawn = task.batch(6, torch.Generator().manual_seed(0))
    assert drawn.source.shape == (6, 4) and drawn.source_mask.all()
    assert batch.source.shape == (8, 4) and set(batch.target_out.tolist()) <= {0, 1}
    assert task.display_tokens(task.held_out(1)[0])[0][1] in ("like", "hate")
    assert not {e.source for e in task.held_out(99)} & {e.source for e in task.trained()}
    assert task.baseline()[1] == 1.0, "a word tells it, and word counts find the word"
    assert task.example("I hate it").source == ("i", "hate", "it")
    some = parse_table("\n".join([*data.split("\n")[:21], ",good"]), "auto", "", "review")
    assert (len(some.labels), some.notes[1]) == (20, "Line 22: no review, left out.")
    long = data.replace("thing 0", "x " * 126).replace("thing 1,", f"{'x ' * 127},")
    assert make_task(TaskConfig.of("own_table", data=long)).notes[-1].startswith("1 texts are cut")


def test_the_table_that_stands_in_has_gaps():
    task = instance(make_task(TaskConfig.of("own_table")), TableTask)
    assert {bool(column.categories) for column in task.table.columns} == {True, False}
    assert any(value is None for row in task.table.rows for value in row) and all(
        int(code) // 16 == int(column)
        for code, column, *_ in (line.split(",") for line in characters().splitlines()[1:])
    )
    assert column_names(csv_of()) == ("size", "colour", "name", "unit", "answer")
    by_name = make_task(TaskConfig.of("own_table", text="name"))
    assert by_name.shape.input == "tokens" and "capital" in by_name.source_vocab.tokens


CELL = st.sampled_from(["1", "2.5", "-3", "x", "y", "", "NA", "a b", "1e400", "nan", "1_0", "é"])


@settings(max_examples=80, deadline=None)
@given(
    st.integers(2, 4).flatmap(
        lambda width: st.lists(
            st.lists(CELL, min_size=width, max_size=width), min_size=20, max_size=30
        )
    ),
    st.sampled_from([",", ";", "\t"]),
)
def test_any_table_makes_finite_batches_or_is_refused(cells, mark):
    try:
        task = make_task(
            TaskConfig.of("own_table", data="\n".join(mark.join(row) for row in cells))
        )
    except ConfigError as error:
        assert str(error).endswith(".")
        return
    held, batch = task.held_out(1000), task.batch(8, torch.Generator().manual_seed(0))
    assert held and math.isfinite(float(batch.source.sum()))
    assert (task.shape.input == "tokens") or (batch.source[~batch.source_mask] == 0).all()
    assert not {e.source for e in held} & {e.source for e in task.trained()}
    assert int(batch.target_out.max()) < len(task.classes)


# Rows of a table: split by class, scaled by what is trained on, missing cells out of attention's sight.


GAPS = Table(
    (Column("size"), Column("colour", ("blue", "red"))),
    tuple(
        (float(i), 1.0 + i % 2) if i % 5 else (None, 2.0) if i % 2 else (float(i), None)
        for i in range(40)
    ),
    tuple(i % 2 for i in range(40)),
    ("no", "yes"),
)


def gaps():
    return TableTask(TaskConfig.of("iris"), IRIS, GAPS)


def test_a_fifth_of_each_class_is_held_out():
    task = make_task(TaskConfig.of("iris"))
    held, trained = task.held_out(1000), task.trained()
    assert len(held) + len(trained) == 150 and task.held_out(5) == held[:5]
    assert Counter(e.target for e in held) == {(name,): 10 for name in task.classes}
    assert (
        not {e.source for e in held} & {e.source for e in trained}
        and make_task(TaskConfig.of("iris", seed=1)).held_out(1000) != held
    )
    source = task.collate(trained).source
    torch.testing.assert_close(
        (source.mean(0), source.std(0, correction=0)),
        (torch.zeros(4), torch.ones(4)),
        atol=1e-5,
        rtol=0,
    )
    assert task.collate(held).source.mean(0).abs().max() > 1e-3
    name, share = task.baseline()
    assert name == "logistic regression" and 0.85 <= share <= 1


def test_equal_rows_stand_on_one_side():
    rows = [i // 2 for i in range(40)]
    split = split_sides(rows, [0] * 20 + [1] * 20, seed=3)
    assert (
        not {rows[i] for i in split[True]} & {rows[i] for i in split[False]}
        and sorted((*split[True], *split[False])) == list(range(40))
        and len(split[True]) == 8
    )


@each("kind", ["classifier", "one_token"])
def test_what_stands_in_a_missing_cell_changes_nothing(kind):
    task = gaps()
    batch = task.collate([e for e in (*task.trained(), *task.held_out(99)) if None in e.source])
    assert (~batch.source_mask).any(0).all(), "both a number and a category are missing somewhere"
    torch.manual_seed(0)
    model = build_model(ModelConfig.transformer(8, 2, kind=kind), task.shape).eval()
    other = torch.where(batch.source_mask, batch.source, 1.0)
    torch.testing.assert_close(
        model(batch.source, batch.source_mask).logits, model(other, batch.source_mask).logits
    )
    assert not torch.equal(batch.source, other)


def test_words_of_a_row_and_rows_that_are_typed():
    task = gaps()
    row = next(e for e in task.trained() if e.source == (1.0, 2.0))
    assert task.display_tokens(row) == (("size 1", "colour red"), ("yes",))
    assert task.example("3.5, blue").source == (3.5, 1.0) and task.example(",red").source == (
        None,
        2.0,
    )
    for typed, words in (
        ("3.5", "1 cells; this table has 2"),
        ("a,red", "size = 'a'; expected a number"),
        ("1,green", "colour = 'green'; expected one of blue, red"),
    ):
        pytest.raises(ValueError, task.example, typed).match(words)
    assert task.shape.columns == (0, 3) and (task.centre[1], task.scale[1]) == (0, 1)
    assert task.flat([row])[0, 1:].tolist() == [0, 0, 1], "missing, blue, red"


def test_iris_is_learned_and_the_petals_are_looked_at(monkeypatch):
    monkeypatch.setattr(loop, "FINAL", 1000)
    records = list(
        train(recommended(make_task(TaskConfig.of("iris")), record_every=1000, steps=150))
    )
    assert records[-1].sequence_accuracy >= 0.85 and records[-1].held_out == 30
    assert records[-1].maps["0:self"].shape == (1, 4, 5, 5)
    assert records[-1].even == pytest.approx(2 / 5) and max(records[-1].expected[0]) > 0.5
    assert len([r for r in records if r.final]) == 1, "a small held-out set never ends the training"


# Cells of a table as numbers and dates, against hand-made ones and against Python's own calendar.


@each(("cell", "point", "comma"), [
    ("1.5", 1.5, None), ("1,5", None, 1.5), ("1.234,5", None, 1234.5), ("1,234.5", 1234.5, None), ("-,5", None, -0.5),
    ("1.234", 1.234, 1234.0), ("1,234", 1234.0, 1.234), ("1 234 567", 1234567.0, 1234567.0), ("12", 12.0, 12.0),
    ("1\u202f234,5", None, 1234.5), ("1.2.2020", None, None), ("1e3", 1000.0, 1000.0), ("1e999", None, None),
    ("1 2", None, None), ("1.23.456", None, None), ("", None, None), ("x", None, None),
])  # fmt: skip
def test_a_number_with_a_point_or_a_comma(cell, point, comma):
    assert (number(cell, False), number(cell, True)) == (point, comma)


def test_a_column_has_commas():
    assert decimal_comma(["1,5", "2,25", "3"], usual=False) and not decimal_comma(
        ["1.5", "2.25", "3"], usual=True
    )
    assert decimal_comma(["1.234", "2"], usual=True) and not decimal_comma(
        ["1.234", "2"], usual=False
    )


DAY = Column("day", date=True)


@given(st.dates(min_value=calendar(1000, 1, 1)))
def test_dates_are_days_since_1970(day):
    days = (day - calendar(1970, 1, 1)).days
    ways = [f"{day:%Y-%m-%d}", f"{day.day}.{day.month}.{day.year}", f"{day:%d/%m/%Y}"]
    assert [date(way) for way in ways] == [days] * 3 and DAY.word(days) == day.isoformat()
    assert date(f"{day:%m/%d/%Y}", "month/day/year") == days


def test_times_orders_and_what_is_no_date():
    assert date("1970-01-02T06:00:00Z") == 1.25 and DAY.word(1.25) == "1970-01-02 06:00:00"
    assert date_order(["3/4/2020", "12/31/2020"]) == "month/day/year"
    assert date_order(["3/4/2020", "31/5/2020"]) == date_order(["3/12/2020"]) == "day/month/year"
    assert (
        date_order(["2020-03-04"]),
        [date(cell) for cell in ("31.2.2020", "2020", "1.2.20", "1/2-2020", "2020-13-01", "soon")],
    ) == ("", [None] * 6)


# A person's own pairs: read from TSV or CSV, split by source, and learned like any translation.


@each(
    ("data", "header", "note"),
    [
        (DATA, "auto", ""),
        ("source\ttarget\n" + DATA, "auto", ""),
        ("number 98\tno 98\n" + DATA, "yes", ""),
        (DATA.replace("\t", ","), "auto", ""),
        (
            DATA.replace("\n", "\tCC-BY\n") + "\tCC-BY",
            "auto",
            "The first two of 3 columns are read.",
        ),
        (
            "source\ttarget\tlicence\n" + DATA.replace("\n", "\tCC-BY\n") + "\tCC-BY",
            "auto",
            "The first line names the columns.",
        ),
        (DATA + "\n" + LINES[3], "no", "1 pair occurs more than once and counts once."),
    ],
)
def test_pairs_are_read_with_and_without_a_header(data, header, note):
    pairs = parse_pairs(data, header, "words", seed=0)
    both = (*pairs.trained, *pairs.held_out)
    assert len(both) == len(set(both)) == 60 and len(pairs.held_out) == 6
    assert {pair.source[0] for pair in both} == {"number"} and note in " ".join(pairs.notes)


def test_no_source_is_on_both_sides_and_split_is_seeds():
    data = DATA + "\n" + "\n".join(f"number {n}\tanother {n}" for n in range(60))
    for seed in (0, 1):
        task = instance(
            make_task(TaskConfig.of("own_pairs", data=data, unit="words", seed=seed)), OwnPairs
        )
        trained = {pair.source for pair in task.pool}
        assert len(task.held_out(1000)) == 12 and not trained & {
            pair.source for pair in task.held_out(1000)
        }
        batch = task.batch(16, torch.Generator().manual_seed(0))
        sources = map(task.source_vocab.decode, batch.source.tolist())
        targets = map(task.target_vocab.decode, batch.target_out.tolist())
        drawn = [Example(tuple(s), tuple(t)) for s, t in zip(sources, targets, strict=True)]
        assert set(drawn) <= set(task.pool)
        again = task.collate(drawn)
        assert all(
            torch.equal(a, b)
            for a, b in zip(vars(batch).values(), vars(again).values(), strict=True)
        )
    assert "no model can get those right" in task.notes[-1], "each number is one word"


def test_roman_numerals_stand_in_and_are_right():
    values = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}
    for numeral in (4, 9, 14, 49, 1994, 888):
        digits = [values[sign] for sign in roman(numeral)]
        assert numeral == sum(
            -a if a < b else a for a, b in zip(digits, [*digits[1:], 0], strict=True)
        )
    task = instance(make_task(TaskConfig.of("own_pairs")), OwnPairs)
    assert (len(task.pool) + len(task.held_out(1000)), task.example("MMX").source) == (
        1999,
        ("M", "M", "X"),
    )


@each("kind", ["recurrent", "transformer", "decoder", "hybrid"])
def test_every_recommended_model_trains_on_them(kind):
    task = make_task(TaskConfig.of("own_pairs"))
    records = list(
        train(recommended(task, kind, steps=12, record_every=12, held_out=20, batch_size=16))
    )
    assert (
        records[1].loss < records[0].loss
        and records[-1].held_out == 20
        and records[-1].sequence_accuracy is not None
        and records[-1].chrf is not None
    )


SPACED = "\n".join(
    f"the {a} dog saw {n} cats .\tder {a} hund sah {n} katzen ."
    for a in "abcdef"
    for n in range(10)
)


@each(
    ("data", "unit", "metrics"),
    [
        (SPACED, "words", ("sequence_accuracy", "bleu")),
        (SPACED.replace("\n", "\tx\n") + "\tx", "words", ("sequence_accuracy", "bleu")),
        (
            "\n".join(f"{n} a\tb {n}\n{n}\tc{n}" for n in range(30)),
            "characters",
            ("sequence_accuracy", "bleu", "chrf"),
        ),
        (
            "\n".join(f"{n}\t{roman(n)}" for n in range(1, 60)),
            "characters",
            ("sequence_accuracy", "chrf"),
        ),
        (
            "\n".join(f"{n} May\t2001-05-{n}" for n in range(1, 60)),
            "characters",
            ("sequence_accuracy", "chrf"),
        ),
        (
            "\n".join(f"{n}\tthe number {n}" for n in range(1, 60)),
            "characters",
            ("sequence_accuracy", "bleu", "chrf"),
        ),
    ],
)
def test_words_are_the_tokens_where_both_sides_have_spaces(data, unit, metrics):
    task = instance(make_task(TaskConfig.of("own_pairs", data=data)), OwnPairs)
    assert (task.pairs.unit, task.metrics) == (unit, metrics)
    best = recommended(task)
    assert best.model.kind == ("transformer" if unit == "words" else "recurrent")
    assert best.keep_best and best.patience > 0


def test_twenty_nine_thousand_pairs_fit_and_train():
    # As many, as long and of as many words as the captions of Multi30k; some held-out words are rare or new.
    chance = random.Random(0)
    lines = [
        " ".join(f"w{int(chance.paretovariate(1)) % 4000}" for _ in range(15))
        for _ in range(58_000)
    ]
    data = "\n".join(f"{n} {lines[n]}\t{lines[-1 - n]}" for n in range(29_000))
    assert 2_500_000 < len(data) <= MAX_SIGNS
    task = instance(make_task(TaskConfig.of("own_pairs", data=data)), OwnPairs)
    assert len(task.pool) == 26_100 and len(task.held_out(10_000)) == 2_900
    small = ModelConfig.transformer(16, num_heads=2, position="sinusoidal")
    records = list(
        train(recommended(task, model=small, steps=3, record_every=3, held_out=20, batch_size=16))
    )
    assert records[1].loss < records[0].loss and records[-1].held_out == 20


def test_unknown_words_are_told_apart_from_the_loss():
    lines = [f"the dog {n} runs\tder hund {n} läuft" for n in range(70)]  # each number stands once
    task = make_task(TaskConfig.of("own_pairs", data="\n".join(lines), unit="words"))
    given = measure_teacher_forced(
        prepare(recommended(task, steps=1)).model.eval(), task, task.held_out(99), "cpu"
    )
    batch = task.collate(task.held_out(99))
    count, total = int((batch.target_out == UNK).sum()), int((batch.target_out != PAD).sum())
    assert count > 0 and given["unknown"] == pytest.approx(count / total)
    model = prepare(recommended(task, steps=1)).model.eval()
    loss = torch.nn.functional.cross_entropy(
        model(batch.source, batch.source_mask, batch.target_in).logits.flatten(0, 1),
        batch.target_out.masked_fill(batch.target_out == UNK, PAD).flatten(),
        ignore_index=PAD,
    )
    assert (
        given["known_loss"] == pytest.approx(loss.item(), rel=1e-4)
        and given["known_loss"] != given["loss"]
    )


@each("unit", ["words", "characters"])
def test_bleu_is_over_words_whatever_the_tokens_are(unit):
    task = make_task(TaskConfig.of("own_pairs", data=SPACED, unit=unit))
    lines = [
        "der a hund sah 3 katzen .",
        "der hund sah 4 katzen .",
        "der kater sah 4 katzen und den hund .",
    ]
    wrong = [
        "der a hund sah 4 katzen .",
        "der hund sieht 4 hunde .",
        "der kater sah 4 katzen . den hund .",
    ]
    scores = score(
        task, [task.tokens(line) for line in wrong], [task.tokens(line) for line in lines]
    )
    assert scores["bleu"] == pytest.approx(
        sacrebleu.corpus_bleu(wrong, [lines], tokenize="none").score
    )
    if unit == "characters":
        assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(wrong, [lines]).score)
        assert (
            scores["bleu"] + 20
            < sacrebleu.corpus_bleu(
                [" ".join(line) for line in wrong],
                [[" ".join(line) for line in lines]],
                tokenize="none",
            ).score
        )
    else:
        assert "chrf" not in scores


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(alphabet=st.sampled_from('ab\t, "\n'), max_size=12), min_size=30, max_size=40)
)
def test_any_list_is_pairs_or_refused(lines):
    try:
        pairs = parse_pairs("\n".join(lines), "auto", "characters", seed=0)
    except ConfigError as error:
        assert str(error).endswith((".", "?"))
    else:
        assert pairs.held_out and all(
            pair.source and pair.target for pair in (*pairs.trained, *pairs.held_out)
        )


def test_steps_follow_from_the_number_of_pairs():
    # Ten passes over many pairs, the recipe's own steps over few, and a limit to both.
    data = ("\n".join(f"{n}\t{n}" for n in range(count)) for count in (100, 9_000))
    few, many = (
        instance(make_task(TaskConfig.of("own_pairs", data=each)), OwnPairs) for each in data
    )
    assert few.recommended["recurrent"].steps == 1_000
    steps = many.recommended["recurrent"].steps
    assert (steps - 1) * 64 < 10 * len(many.pairs.trained) <= steps * 64
    assert many.recommended["transformer"].steps == 1_500, "its own steps are more than ten passes"
    assert for_data(many.recommended, 10**6, 10)["transformer"].steps == MAX_STEPS
    long = "".join(map(str, range(60_000)))  # of 260,001 characters to learn two passes
    one = make_task(TaskConfig.of("own_text", data=long, length=16)).recommended["decoder"]
    assert (one.steps, one.model["dropout"]) == (1016, 0.0)


@each(
    ("make", "steps"),
    [
        (recipes.table, {106: 200, 107: 200, 108: 202, 1066: 1998, 1067: 2000, 1068: 2000}),
        (lambda rows: recipes.sentences(rows, False), {213: 200, 215: 201, 1600: 1500, 1603: 1500}),
        (
            lambda tokens: recipes.text(1, tokens),
            {79: 150, 81: 151, 533: 999, 534: 1000, 550: 1000},
        ),
    ],
)
def test_passes_over_data_have_bounds(make, steps):
    assert {size: next(iter(make(size).values())).steps for size in steps} == steps


def test_a_batch_has_the_sources_that_are_as_long_or_nearly():
    lines = "\n".join(f"{'a' * n}\t{n}" for n in range(1, 41))
    task = make_task(TaskConfig.of("own_pairs", data=lines, unit="characters"))
    lengths = [len(pair.source) for pair in instance(task, OwnPairs).pool]
    drawn = {
        tuple(
            sorted(task.batch(9, torch.Generator().manual_seed(seed)).source_mask.sum(1).tolist())
        )
        for seed in range(400)
    }
    assert drawn == {tuple(lengths[start : start + 9]) for start in range(len(lengths) - 8)}


# Long data: stored once by its checksum, referred to by settings, and whole in every run's folder.


STORED = "".join(f"the dog {n} runs .\tder hund {n} läuft .\n" for n in range(400))
SMALL = dict(steps=2, record_every=1, batch_size=4, held_out=6, num_examples=1)


@pytest.fixture
def runs(monkeypatch, tmp_path):
    monkeypatch.setattr("core.training.loop.FINAL", 6)
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    reading._run_files.clear()
    reading._read.cache_clear()
    return tmp_path / "runs"


@pytest.fixture
def task(runs):
    return TaskConfig.of("own_pairs", data=reading.put(STORED))


def forget(folder):
    # The store as another machine has it: empty.
    shutil.rmtree(folder / ".data")
    reading._run_files.clear()
    reading._read.cache_clear()


def test_reference_is_text_and_same_text_has_same_one(task):
    reference = reading.put(STORED)
    assert reference == task["data"] and reading.read(reference) == STORED
    by_reference, inline = (
        instance(make_task(config), OwnPairs)
        for config in (task, TaskConfig.of("own_pairs", data=STORED))
    )
    assert by_reference.pairs == inline.pairs and by_reference.notes == inline.notes


def test_what_is_stored_is_refused_in_words(task, runs):
    pytest.raises(ConfigError, TaskConfig.of, "own_text", data="sha256:" + "0" * 64).match(
        "not on this machine"
    )
    short = TaskConfig.of("own_text", data=reading.put("abc " * 9))  # it is read with the task
    pytest.raises(ConfigError, make_task, short).match("too few for a window")
    reading._read.cache_clear()
    reading.path_of(str(task["data"])).write_text("something else", encoding="utf-8")
    pytest.raises(ConfigError, make_task, replace(task, seed=1)).match("was changed")


def test_a_run_is_whole_without_the_store(task, runs):
    run = create_run(recommended(make_task(task), "transformer", **SMALL))
    assert (run.path / "run.json").stat().st_size < 5_000
    forget(runs)
    assert work(run.path) == "finished", run.status().message
    copied = duplicate(run, "copy")
    came, config = unpack(pack(run), runs), run.config()
    shutil.rmtree(run.path)
    reading._run_files.clear()
    reading._read.cache_clear()
    for other in (copied, came):
        assert other.config() == config and instance(other.model()[1], OwnPairs).pairs.trained
        assert reading.read(str(other.config().task["data"])) == STORED


def test_a_zip_whose_data_is_not_what_it_says_is_refused(task, runs):
    run = create_run(recommended(make_task(task), "transformer", **SMALL))
    work(run.path)
    path = next((run.path / "data").glob("*.txt"))
    path.unlink()
    path.write_text(STORED + "one more\tline\n", encoding="utf-8")
    zipped = pack(run)
    forget(runs)
    shutil.rmtree(run.path)
    pytest.raises(ValueError, unpack, zipped, runs).match("was changed")


def test_text_too_long_for_a_setting_is_stored(monkeypatch, runs):
    monkeypatch.setattr(reading, "INLINE", 1_000)
    config = recommended(make_task(TaskConfig.of("own_pairs", data=STORED)), "transformer", **SMALL)
    run = create_run(config)
    assert reading.put_if_long("x" * 1_000) == "x" * 1_000
    assert (
        reading.is_reference(run.config().task["data"])
        and reading.read(str(run.config().task["data"])) == STORED == config.task["data"]
    )


def test_old_runs_with_their_data_inline_are_read(runs):
    config = recommended(
        make_task(TaskConfig.of("own_pairs", data=STORED, unit="words")), "transformer", **SMALL
    )
    run = create_run(config)
    assert (
        json.loads((run.path / "run.json").read_text(encoding="utf-8"))["config"]["task"]["params"][
            "data"
        ]
        == STORED
    )
    assert run.config() == config and not (run.path / "data").exists()


def test_a_sweep_and_the_shell_refer_to_it(monkeypatch, runs, tmp_path, capsys):
    monkeypatch.setattr(reading, "INLINE", 1_000)
    (tmp_path / "my.tsv").write_text(STORED, encoding="utf-8")
    assert main(["recipe", "own_pairs", "--data", str(tmp_path / "my.tsv")]) == 0
    printed = capsys.readouterr().out
    assert len(printed) < 5_000
    (tmp_path / "mine.json").write_text(json.dumps(json.loads(printed) | SMALL), encoding="utf-8")
    assert main(["train", str(tmp_path / "mine.json"), str(tmp_path / "run")]) == 0
    run = Run(tmp_path / "run")
    sweep = SweepConfig(run.config(), "score", ("scaled_dot", "additive"), seeds=(0, 1))
    assert len(json.dumps(sweep.to_json())) < 8_000
    cell = create_run(SweepConfig.from_json(sweep.to_json()).run(1, 1))
    forget(runs)
    assert reading.read(str(cell.config().task["data"])) == STORED


def test_data_that_no_run_has_goes_after_a_day(task, runs):
    used = create_run(recommended(make_task(task), "transformer", **SMALL))
    unused = reading.path_of(reading.put("unused"))
    fresh = reading.path_of(reading.put("fresh"))
    past = time.time() - 2 * reading.UNUSED
    for path in (reading._stored(str(task["data"])), unused):
        os.utime(path, (past, past))
    prune()
    assert (
        fresh.exists()
        and not unused.exists()
        and reading._stored(str(task["data"])).exists()
        and used.exists()
    )


# Files and pasted tables are read whole, or what is wrong is said with its line; nothing else ever happens.


@each("coding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_text_comes_back_from_its_bytes(coding):
    assert decode_text("Größe;µ\nπ".encode(coding)) == "Größe;µ\nπ"


def test_a_text_may_be_as_long_as_is_said():
    text = "\N{GRINNING FACE}" * MAX_SIGNS  # of four bytes each
    assert reading.validate_text(decode_text(text.encode())) == text


@each(
    ("data", "words"),
    [
        (
            "a,b\nGrün,1\n".encode("latin-1"),
            "Line 2 is not UTF-8: its byte 3 is 0xFC .in Windows-1252 'ü'",
        ),
        *((bytes([97, n]), r"'\).  *Save the file") for n in (0x81, 0x8D, 0x8F, 0x90, 0x9D)),
        (b"PK\x03\x04rest", "Excel workbook"),
        (b"%PDF-1.7", "a PDF"),
        (b"\xff\xfea\x00b", "UTF-16, but breaks off at byte"),
        (b"x" * (4 * MAX_SIGNS + 1), "16,000,001 bytes"),
    ],
)
def test_bytes_that_are_no_text_are_named(data, words):
    pytest.raises(ConfigError, decode_text, data).match(words)


@each(
    ("text", "words"),
    [
        (" \n\t ", "no table yet"),
        (";;\n;;\n", "All cells"),
        ("ab\ncd\x00e\n", "Line 2 holds the control character U.0000"),
        ("ab\ud800", "Line 1 holds the control character U.D800"),
        ("x" * (MAX_SIGNS + 1), "4,000,001 characters; at most 4,000,000"),
        ("only one column\nof words\n", "single column: .* separates 'only one column'"),
        ("\nab\ncd\x00e\n", "Line 3 holds the control character U.0000"),
        ('a,b;c\na,b\na,b\nd,"e";f\n', "Semicolons separate"),
        ("a\tb\n" + "1\n" * 3, r"line 3 has 1; line 4 has 1\. Tabs separate"),
        (
            "a,b\n1,2\n\n3,4,5\n6\n",
            "line 1 has 2 cells, line 4 has 3; line 5 has 1. Commas separate",
        ),
        ("a\tb\n" + "1\n" * 5, "line 2 has 1; line 3 has 1; line 4 has 1; and 2 more"),
        (
            'a,b\n1,"two\nlines"\n"open,2\n3,4\n',
            "Line 4 opens a quotation mark that is never closed",
        ),
        ('a,b\n1,"x"y\n', "Line 2: a cell in quotation marks continues"),
        (",".join("x" * 80) + "\n", f"80 columns; at most {MAX_COLUMNS}"),
        ("a,b\n" + "x" * 140_000 + ",1\n", "Line 2 begins a cell of more than 131,072"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_line(text, words):
    pytest.raises(ConfigError, read_rows, text).match(words)


def test_lines_are_counted_over_quoted_line_ends():
    rows, mark = read_rows('name,said\r\n\r\nann,"a\r\nb"\r\nbob,"c, ""d"""\r\n')
    assert (mark, [tuple(row) for row in rows]) == (
        ",",
        [
            (1, ("name", "said")),
            (3, ("ann", "a\nb")),
            (5, ("bob", 'c, "d"')),
        ],
    )


@each(
    ("text", "mark", "cells"),
    [
        ("1,5;2,5\n3,5;4,5\n", ";", ("1,5", "2,5")),
        ("a, b\tc\nd, e\tf\n", "\t", ("a, b", "c")),
        ("a|b\nc|d\n", "|", ("a", "b")),
        (",".join("x" * MAX_COLUMNS), ",", ("x",) * MAX_COLUMNS),
        ("Hello; you,Salut\nBye,Adieu\n", ",", ("Hello; you", "Salut")),
        ('"Hi," she said\tfirst\nBye "now\tlast\n', "\t", ('"Hi," she said', "first")),
    ],
)
def test_the_separator_is_found(text, mark, cells):
    rows, separator = read_rows(text)
    assert (separator, rows[0].cells) == (mark, cells)


QUOTED = st.text(alphabet=st.sampled_from('ab1,;"\n é'), max_size=8).map(str.strip)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 4).flatmap(
        lambda width: st.lists(
            st.lists(QUOTED.filter(bool), min_size=width, max_size=width), min_size=1, max_size=6
        )
    ),
    st.sampled_from("\t,;"),
)
def test_what_was_written_is_read_back(table, mark):
    out = io.StringIO()
    csv.writer(out, delimiter=mark, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(table)
    rows, separator = read_rows(out.getvalue())
    if separator == mark:  # cells full of another mark may be cut at that one, as a person would
        assert [list(row.cells) for row in rows] == table


# The table of targets: every kind of model of every task made here has one, and a miss is told as a miss.

GOOD = Figures(steps=200, seconds=4.0, exact=99.5, bleu=float("nan"), mass=0.93, even=0.1, data=3.0)


def test_every_recipe_of_sequence_or_translation_has_target():
    targets = {(target.task, target.model) for target in TARGETS if not target.card}
    assert len({(target.task, target.model, target.card) for target in TARGETS}) == len(TARGETS)
    for key in (
        "copy",
        "reverse",
        "sort",
        "recall",
        "induction",
        "addition",
        "dates",
        "numbers",
        "language",
    ):
        assert {(key, kind) for kind in make_task(TaskConfig.of(key)).recommended} <= targets


TWO = [replace(GOOD, exact=60.0, bleu=96.0), replace(GOOD, exact=70.0, bleu=98.0)]


@each(
    ("target", "found", "end"),
    [
        *(
            (
                Target("recall", "decoder", 10, mass=0.9),
                [replace(GOOD, **missed)],
                "| yes |" if met else "| no |",
            )
            for missed, met in (
                ({}, True),
                ({"exact": 98.9}, False),
                ({"mass": 0.89}, False),
                ({"seconds": 10.1}, False),
            )
        ),
        # A target in BLEU asks no exact match, and several seeds tell their spread.
        (
            Target("numbers", "recurrent", 10, bleu=96.5),
            TWO,
            "| numbers | recurrent | 200 ± 0 | 4.0 ± 0.0 | 65.0 ± 7.1 | 97.0 ± 1.4 | 0.93 ± 0.00 | "
            "0.10 ± 0.00 | 3.0 ± 0.0 | BLEU ≥ 96.5, ≤ 10 s | yes |",
        ),
        # What a record does not say is a dash.
        (
            Target("language", "classifier", 10),
            [figures(Record(step=3, sequence_accuracy=1.0), 2.0)],
            "| language | classifier | 3 | 2.0 | 100.0 | – | – | – | – | exact ≥ 99, ≤ 10 s | yes |",
        ),
    ],
)
def test_all_parts_of_a_target_must_be_met(target, found, end):
    assert Row(target, found).markdown().endswith(end)


class Left(BaseException):
    """What a server raises in a page that was left."""


@pytest.mark.parametrize(
    "read",
    [
        lambda: read_rows("a,b\n1,2"),
        lambda: parse_pairs("a,b\n" * 40, "no", "words", seed=77),
        lambda: parse_table("a,b\n1,2", "no", "", ""),
    ],
)
def test_a_reader_of_rows_ends_where_its_page_was_left(read, monkeypatch):
    monkeypatch.setattr(memory, "pauses", [Mock(side_effect=Left)])
    pytest.raises(Left, read)


# Lines that are no row, first lines, and cells that count as empty.


@pytest.mark.parametrize(
    ("text", "lines", "said"),
    [
        ('a\tb\n"x\t1\ny"\t2\nz\t3', [1, 2, 3, 4], ""),  # plain quotation marks: no line is lost
        ('a\tb\n1\t"x\n2\ty"\n3\tz', [1, 2, 3, 4], ""),
        ('a\tb\n5" pipe\t1\n6"\t2', [1, 2, 3], ""),
        ('a\tb\n"x\ny"\t2\nz\t3', [1, 2, 4], "line 3"),  # one cell over two lines
        ('a,b\n"x,1\ny",2\nz,3', [1, 2, 4], "line 3"),
        ('a,b\n"x, and ""y""",2\nz,3', [1, 2, 3], ""),
        ("a,b\n,\n1,2\n , \n3,4", [1, 3, 5], "lines 2, 4"),
        ("sep=;\na,x;b\n1,5;2\n2,5;3", [2, 3, 4], ""),
        ('"sep=,"\na,b;c\n1,2;3', [2, 3], ""),
        ("SEP=\t\na,b\tc\n1,2\t3", [2, 3], ""),
        ("\ufeffa,b\r\n1,x\u2028y\r\n3,4", [1, 2, 3], ""),
        ("a,b\r1,2\r3,4", [1, 2, 3], ""),
    ],
)
def test_no_line_is_lost_in_silence(text, lines, said):
    rows, _ = read_rows(text)
    assert [row.line for row in rows] == lines
    assert {len(row.cells) for row in rows} == {2}
    notes = row_notes(text, rows)
    assert said in " ".join(notes) and bool(notes) == bool(said)


def of_classes(*classes: str, column: str = "country") -> str:
    cells = [f"{i / 7:.2f},{classes[i % len(classes)]}" for i in range(40)]
    return "\n".join((f"size,{column}", *cells))


@pytest.mark.parametrize(
    ("classes", "missing", "read"),
    [
        (("+", "-"), "", ("+", "-")),
        (("+", "+", "+", "-"), "", ("+", "-")),
        (("−", "+"), "", ("+", "−")),
        (("None", "mild", "severe"), "", ("None", "mild", "severe")),
        (("NA", "DE", "FR", "IT"), "", ("DE", "FR", "IT", "NA")),
        (("a", "b") * 9 + ("?", "a"), "", ("a", "b")),  # rare: a mark
        (("NA", "DE", "FR", "IT"), "NA", ("DE", "FR", "IT")),
        (("NA", "DE", "FR", "IT"), "*", ("DE", "FR", "IT")),
        (("1", "2", "NA"), "", ("1", "2")),  # among numbers
        (("x", "1", "NA", "y"), "-", ("1", "NA", "x", "y")),
    ],
)
def test_what_counts_as_missing_is_told_and_can_be_set(classes, missing, read):
    table = parse_table(of_classes(*classes), "auto", "", "", missing=missing)
    assert table.classes == read
    marks = {mark for mark in classes if mark in tables.MISSING}
    for mark in marks:
        verb = "value" if mark in read else "empty cell"
        assert any(f"'{mark}'" in note and verb in note for note in table.notes), table.notes


@pytest.mark.parametrize(
    ("first", "answers", "header", "swapped"),
    [
        (("text", "label"), ("ham", "spam"), True, False),
        (("Nachricht", "Klasse"), ("ham", "spam"), True, False),
        (("Klasse", "Nachricht"), ("ham", "spam"), True, True),
        (("label", "sentence"), ("ham", "spam"), True, True),
        (None, ("ham", "spam"), False, False),
        (None, ("ham", "spam"), False, True),
        (("stars", "review"), ("1", "5"), True, True),
    ],
)
def test_fine_tuning_finds_first_line_and_column_of_labels(first, answers, header, swapped):
    rows = [(f"this is message number {i}", answers[i % 2]) for i in range(24)]
    lines = [
        *([",".join(first)] if first else []),
        *(",".join(row[::-1] if swapped else row) for row in rows),
    ]
    read = parse_labelled("classify", "\n".join(lines))
    assert set(read.labels) == set(answers)
    assert {(pair.text, pair.answer) for pair in (*read.learned, *read.held_out)} == set(rows)
    assert ("names the columns" if header else "row itself") in read.notes[-1]
    assert f"label in the {'first' if swapped else 'second'}" in read.notes[-1]


@pytest.mark.parametrize(
    ("first", "rows"),
    [
        (("Deutsch", "Englisch"), [(f"das ist die {i}", f"this is the {i}") for i in range(40)]),
        (("Zahl", "Ziffern"), [(f"die {'x' * (i + 1)}", str(i)) for i in range(40)]),
        (("source", "target"), [("x" * (i + 1), "y" * (i + 1)) for i in range(40)]),
    ],
)
def test_first_line_of_other_words_names_columns_of_pairs(first, rows):
    text = "\n".join("\t".join(row) for row in (first, *rows))
    assert (
        len(parse_labelled("pairs", text).learned) + len(parse_labelled("pairs", text).held_out)
        == 40
    )
    assert len(parse_labelled("pairs", text, header="no").learned) > len(
        parse_labelled("pairs", text).learned
    )
    assert parse_labelled("pairs", text, answers="first").learned[0].answer in dict(rows)
    pairs = parse_pairs(text, "auto", "words")
    assert len(pairs.trained) + len(pairs.held_out) == 40
    without = "\n".join("\t".join(row) for row in rows)
    assert len(parse_pairs(without, "auto", "words").trained) == len(pairs.trained)
