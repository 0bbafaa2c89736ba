"""Cells of a table as numbers and dates, against hand-made ones and against Python's own calendar."""

from datetime import date as calendar

from hypothesis import given, strategies as st

from core.tasks.tables import date, date_order, date_text, decimal_comma, number
from tests.cases import each


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


@given(st.dates(min_value=calendar(1000, 1, 1)))
def test_dates_are_days_since_1970(day):
    days = (day - calendar(1970, 1, 1)).days
    ways = [f"{day:%Y-%m-%d}", f"{day.day}.{day.month}.{day.year}", f"{day:%d/%m/%Y}"]
    assert [date(way) for way in ways] == [days] * 3 and date_text(days) == day.isoformat()
    assert date(f"{day:%m/%d/%Y}", "month/day/year") == days


def test_times_orders_and_what_is_no_date():
    assert date("1970-01-02T06:00:00Z") == 1.25 and date_text(1.25) == "1970-01-02 06:00:00"
    assert date_order(["3/4/2020", "5/31/2020"]) == "month/day/year"
    assert date_order(["3/4/2020", "31/5/2020"]) == date_order(["3/4/2020"]) == "day/month/year"
    assert date_order(["2020-03-04"]) == ""
    assert [
        date(cell) for cell in ("31.2.2020", "2020", "1.2.20", "1/2-2020", "2020-13-01", "soon")
    ] == [None] * 6
