"""Tables: their cells, rows as tokens, and a stranger's CSV: what is left out and why, what is wrong in which line."""

import math
from collections import Counter
from datetime import date as calendar

import pytest
import torch
from hypothesis import given, settings, strategies as st

from core.entries import ConfigError
from core.models import ModelConfig, build_model
from core.tasks import TaskConfig, make_task
from core.tasks.base import split_sides
from core.tasks.own import column_names
from core.tasks.tables import (
    IRIS,
    Column,
    Table,
    TableTask,
    Texts,
    date,
    date_order,
    decimal_comma,
    iris,
    number,
    parse_table,
)
from core.training import loop, recommended, train
from tests.cases import each, instance

ROWS = [
    (f"{i / 2}", "red" if i % 3 else "blue", f"id {i}", "same", "yes" if i % 2 else "no")
    for i in range(40)
]
HEAD = "size,colour,name,unit,answer"


def table_of(*given: str, **named: str) -> Table:
    return instance(parse_table(*given, **named), Table)


def csv_of(rows=ROWS, head=HEAD, mark=","):
    return "\n".join([head.replace(",", mark), *(mark.join(row) for row in rows)])


def test_columns_are_numbers_categories_or_left_out_and_all_is_said():
    table = parse_table(csv_of(), "auto", "", "")
    assert isinstance(table, Table)
    assert [(c.name, c.categories) for c in table.columns] == [
        ("size", ()),
        ("colour", ("blue", "red")),
    ]
    assert table.rows[:2] == ((0.0, 1.0), (0.5, 2.0))
    assert table.classes == ("no", "yes") and table.labels[:3] == (0, 1, 0)
    assert " ".join(table.notes) == (
        "The first line names the columns; answer is the class of each of 40 rows. "
        "Left out: name (identifiers or text, all 40 different), unit (always same). Numbers: size. "
        "Categories: colour (2 kinds)."
    )


def test_a_column_that_counts_the_rows_is_left_out():
    rows = [(str(7 + i), *row[1:]) for i, row in enumerate(ROWS)]
    table = table_of(csv_of(rows), "auto", "", "")
    assert [column.name for column in table.columns] == [
        "colour"
    ] and "size (counts the rows)" in table.notes[1]


@each("label", ["colour", "Colour ", "2"])
def test_the_class_is_named_by_name_or_number(label):
    table = table_of(csv_of(), "auto", label, "")
    assert table.classes == ("blue", "red")
    assert [column.name for column in table.columns] == ["size", "answer"]


def test_without_names_the_first_line_is_a_row():
    bare = csv_of().split("\n", 1)[1]
    for header in ("auto", "no"):
        table = table_of(bare, header, "column 5", "")
        assert len(table.rows) == 40 and table.columns[0].name == "column 1"
    assert len(table_of(bare, "yes", "", "").rows) == 39
    assert column_names(csv_of()) == ("size", "colour", "name", "unit", "answer")


def test_missing_cells_and_missing_classes():
    rows = [
        ("" if i == 3 else a, "NA" if i == 5 else b, c, d, "?" if i in (7, 9) else e)
        for i, (a, b, c, d, e) in enumerate(ROWS)
    ]
    table = table_of(csv_of(rows), "auto", "", "")
    assert table.rows[3][0] is None and table.rows[5][1] is None and len(table.rows) == 38
    assert "Lines 9, 11 have no answer and are left out." in table.notes
    assert "2 of 76 cells are empty and masked." in table.notes


def test_a_decimal_comma_is_read_between_semicolons():
    rows = [(a.replace(".", ","), *rest) for a, *rest in ROWS]
    assert table_of(csv_of(rows, mark=";"), "auto", "", "").rows[3][0] == 1.5


def test_numbers_are_sorted_as_numbers_where_they_are_classes():
    rows = [(a, b, c, d, str(8 + i % 3)) for i, (a, b, c, d, _) in enumerate(ROWS)]
    assert parse_table(csv_of(rows), "auto", "", "").classes == ("8", "9", "10")


def changed(row):
    """The table with each row changed by a function of its number and cells."""
    return csv_of([row(i, *cells) for i, cells in enumerate(ROWS)])


IDENTIFIERS = "id,answer\n" + "\n".join(f"{i * i},{'ab'[i % 2]}" for i in range(30))
PAIRED = [(str(i % 2), ("red", "blue")[i % 2], ("yes", "no")[i // 2 % 2]) for i in range(24)]


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
            changed(lambda i, *row: ("1e999" if i == 30 else row[0], *row[1:])),
            {},
            "line 32 has '1e999'",
        ),
        (
            changed(lambda i, *row: ("5", "red", "", str(i % 2), "yes" if i % 2 else "no")),
            {},
            "three different rows",
        ),
        (csv_of(PAIRED, "size,colour,answer"), {}, "No class has three different rows"),
        (
            csv_of(head="size,size,name,unit,answer"),
            {"header": "yes"},
            "Line 1 names two columns 'size'",
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
    ],
)
def test_what_will_not_do_is_said(data, more, words):
    with pytest.raises(ConfigError, match=words):
        TaskConfig.of("own_table", data=data, **more)


def test_a_text_column_is_read_word_by_word():
    expected = [f"I {'like' if i % 2 else 'hate'} thing {i}" for i in range(40)]
    data = "review,mood\n" + "\n".join(
        f"{text},{'good' if i % 2 else 'bad'}" for i, text in enumerate(expected)
    )
    read = parse_table(data, "auto", "", "")
    assert isinstance(read, Texts), "nothing but a text to read"
    task = make_task(TaskConfig.of("own_table", data=data))
    assert (
        task.shape.input == "tokens"
        and task.shape.output == "label"
        and task.classes == ("bad", "good")
    )
    batch = task.collate(task.held_out(8))
    drawn = task.batch(6, torch.Generator().manual_seed(0))
    assert drawn.source.shape == (6, 4) and drawn.source_mask.all()
    assert batch.source.shape == (8, 4) and set(batch.target_out.tolist()) <= {0, 1}
    assert task.display_tokens(task.held_out(1)[0])[0][1] in ("like", "hate")
    assert not {e.source for e in task.held_out(99)} & {e.source for e in task.trained()}
    assert task.baseline()[1] == 1.0, "a word tells it, and word counts find the word"
    assert task.example("I hate it").source == ("i", "hate", "it")


def test_the_table_that_stands_in_has_numbers_categories_gaps_and_a_text():
    task = instance(make_task(TaskConfig.of("own_table")), TableTask)
    assert {bool(column.categories) for column in task.table.columns} == {True, False}
    assert any(value is None for row in task.table.rows for value in row)
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


DATED = [
    (f"{100 + 7 * i}", f"{i % 9},5", f"{1 + i % 28:02}.03.2020", "DE", "yes" if i % 2 else "no")
    for i in range(40)
]
DATED_HEAD = "id;price;day;country;answer"


def dated(mark=";", **params):
    return parse_table(
        "\n".join([DATED_HEAD.replace(";", mark), *(mark.join(row) for row in DATED)]),
        "auto",
        "",
        "",
        **params,
    )


@each("mark", [";", "\t", "|"])
def test_decimal_commas_stay_numbers_whatever_separates_and_whatever_dates_have(mark):
    table = dated(mark)
    assert [(c.name, c.categories) for c in table.columns] == [("price", ())]
    assert [row[0] for row in table.rows[:3]] == [0.5, 1.5, 2.5]
    assert "With decimal commas: price." in table.notes
    assert table.notes[1] == (
        "Left out: id (identifiers, 40 different whole numbers), day (dates), country (always DE)."
    )


def test_quoted_decimal_commas_between_commas_and_the_sign_can_be_named():
    rows = "\n".join(f'"{i % 7},25",{"ab"[i % 2]}' for i in range(40))
    assert table_of(rows, "no", "", "").rows[3] == (3.25,)
    thousands = "\n".join(f"{1 + i % 7}.500;{'ab'[i % 2]}" for i in range(40))
    assert table_of(thousands, "no", "", "").rows[0] == (1.5,)
    assert table_of(thousands, "no", "", "", decimal="comma").rows[0] == (1500.0,)


def test_dates_are_numbers_where_that_is_wanted():
    table = dated(dates="numbers")
    day = table.columns[1]
    assert (day.name, day.date, table.rows[0][1]) == ("day", True, 18322.0)
    assert day.word(18322.0) == "2020-03-01" and "Dates as numbers, in days: day." in table.notes
    task = make_task(
        TaskConfig.of(
            "own_table",
            dates="numbers",
            data="\n".join([DATED_HEAD, *(";".join(row) for row in DATED)]),
        )
    )
    assert task.example("2.5,2020-03-02").source == (2.5, 18323.0)
    with pytest.raises(ValueError, match="day = 'soon'; expected a date such as 2020-03-31"):
        task.example("2.5,soon")


def test_what_was_left_out_can_be_put_back_and_more_can_be_left_out():
    assert [column.name for column in dated(columns="id, country").columns] == ["id", "country"]
    assert [column.name for column in dated(columns="1,day").columns] == ["id", "day"]
    assert (
        "Left out: id (not chosen), price (not chosen), country (not chosen)."
        in dated(columns="day").notes
    )
    texts = table_of(csv_of(), "auto", "", "", columns="name")
    assert len(texts.columns[0].categories) == 40, "all different, and yet wanted"


def test_identifiers_can_be_chosen_and_are_not_learned_instead_of_a_text():
    assert table_of(IDENTIFIERS, "auto", "", "", columns="id").rows[3] == (9.0,)
    beside = "id,text,answer\n" + "\n".join(f"{i * i},word {i},{'ab'[i % 2]}" for i in range(30))
    assert isinstance(parse_table(beside, "auto", "", ""), Texts)


def test_twenty_rows_are_enough():
    assert len(table_of(csv_of(ROWS[:20]), "auto", "", "").rows) == 20


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


def test_iris_is_scikit_learns():
    from sklearn.datasets import load_iris

    split, table = load_iris(), iris()
    assert [list(row) for row in table.rows] == split.data.tolist()
    assert (
        list(table.labels) == split.target.tolist()
        and list(table.classes) == split.target_names.tolist()
    )


def test_a_fifth_of_each_class_is_held_out_and_no_row_is_on_both_sides():
    task = make_task(TaskConfig.of("iris"))
    held, trained = task.held_out(1000), task.trained()
    assert len(held) + len(trained) == 150 and task.held_out(5) == held[:5]
    assert Counter(e.target for e in held) == {(name,): 10 for name in task.classes}
    assert not {e.source for e in held} & {e.source for e in trained}
    assert make_task(TaskConfig.of("iris", seed=1)).held_out(1000) != held


def test_equal_rows_stand_on_one_side():
    rows = [i // 2 for i in range(40)]
    split = split_sides(rows, [0] * 20 + [1] * 20, seed=3)
    assert not {rows[i] for i in split[True]} & {rows[i] for i in split[False]}
    assert sorted((*split[True], *split[False])) == list(range(40)) and len(split[True]) == 8


def test_numbers_are_scaled_by_what_is_trained_on_alone():
    task = make_task(TaskConfig.of("iris"))
    source = task.collate(task.trained()).source
    torch.testing.assert_close(source.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(source.std(0, correction=0), torch.ones(4), atol=1e-5, rtol=0)
    assert task.collate(task.held_out(30)).source.mean(0).abs().max() > 1e-3


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
        with pytest.raises(ValueError, match=words):
            task.example(typed)
    assert task.shape.columns == (0, 3)


def test_iris_is_learned_and_the_petals_are_looked_at(monkeypatch):
    monkeypatch.setattr(loop, "FINAL", 1000)
    records = list(
        train(recommended(make_task(TaskConfig.of("iris")), record_every=1000, steps=150))
    )
    assert records[-1].sequence_accuracy >= 0.85 and records[-1].held_out == 30
    assert records[-1].maps["0:self"].shape == (1, 4, 5, 5)
    assert records[-1].even == pytest.approx(2 / 5) and max(records[-1].expected[0]) > 0.5
    assert len([r for r in records if r.final]) == 1, "a small held-out set never ends the training"


def test_logistic_regression_stands_beside_it():
    name, share = make_task(TaskConfig.of("iris")).baseline()
    assert name == "logistic regression" and 0.85 <= share <= 1


# Cells of a table as numbers and dates, against hand-made ones and against Python's own calendar.


@each(("cell", "point", "comma"), [
    ("1.5", 1.5, None), ("1,5", None, 1.5), ("1.234,5", None, 1234.5), ("1,234.5", 1234.5, None), ("-,5", None, -0.5),
    ("1.234", 1.234, 1234.0), ("1,234", 1234.0, 1.234), ("1 234 567", 1234567.0, 1234567.0), ("12", 12.0, 12.0),
    ("1\u202f234,5", None, 1234.5), ("1.2.2020", None, None), ("1e3", 1000.0, 1000.0), ("1e999", None, None),
    ("1 2", None, None), ("1.23.456", None, None), ("", None, None), ("x", None, None),
])  # fmt: skip
def test_a_number_with_a_point_or_a_comma(cell, point, comma):
    assert (number(cell, False), number(cell, True)) == (point, comma)


def test_a_column_has_commas_where_that_makes_more_numbers_of_it():
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
    assert date_order(["3/4/2020", "5/31/2020"]) == "month/day/year"
    assert date_order(["3/4/2020", "31/5/2020"]) == date_order(["3/4/2020"]) == "day/month/year"
    assert date_order(["2020-03-04"]) == ""
    assert [
        date(cell) for cell in ("31.2.2020", "2020", "1.2.20", "1/2-2020", "2020-13-01", "soon")
    ] == [None] * 6
