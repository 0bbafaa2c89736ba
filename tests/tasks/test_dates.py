"""Days in words and numbers against Babel, which reads Unicode's CLDR."""

from datetime import date, timedelta
from itertools import product

from babel.dates import format_date

from core.tasks.translation import FORMATS, LOCALES, format_day


def test_every_form_of_days_of_every_month_weekday_and_length_is_babels():
    days = [date(1950, 1, 1) + timedelta(n) for n in range(0, 36_525, 29)]
    assert {(day.month, day.weekday()) for day in days} == set(product(range(1, 13), range(7)))
    assert {day.day for day in days} == set(range(1, 32))
    for locale, form in product(LOCALES, FORMATS):
        for day in days[FORMATS.index(form) % 3 :: 1 if form == "full" else 3]:
            assert format_day(day, locale, form) == " ".join(
                format_date(day, form, locale=locale).split()
            )
