"""A day as English, German and French speakers write it: the forms of Unicode's CLDR for four locales."""

from __future__ import annotations

import re
from datetime import date

ENGLISH = (
    (
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ),
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)
BRITISH = (ENGLISH[0], (*ENGLISH[1][:8], "Sept", *ENGLISH[1][9:]), ENGLISH[2])
GERMAN = (
    (
        "Januar",
        "Februar",
        "März",
        "April",
        "Mai",
        "Juni",
        "Juli",
        "August",
        "September",
        "Oktober",
        "November",
        "Dezember",
    ),
    (
        "Jan.",
        "Feb.",
        "März",
        "Apr.",
        "Mai",
        "Juni",
        "Juli",
        "Aug.",
        "Sept.",
        "Okt.",
        "Nov.",
        "Dez.",
    ),
    ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"),
)
FRENCH = (
    (
        "janvier",
        "février",
        "mars",
        "avril",
        "mai",
        "juin",
        "juillet",
        "août",
        "septembre",
        "octobre",
        "novembre",
        "décembre",
    ),
    (
        "janv.",
        "févr.",
        "mars",
        "avr.",
        "mai",
        "juin",
        "juil.",
        "août",
        "sept.",
        "oct.",
        "nov.",
        "déc.",
    ),
    ("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"),
)

FORMATS = ("short", "medium", "long", "full")
LOCALES = {  # the names of months, their short ones and the days; then the four formats
    "en_US": (
        ENGLISH,
        ("{m}/{d}/{yy:02}", "{mon} {d}, {y}", "{month} {d}, {y}", "{weekday}, {month} {d}, {y}"),
    ),
    "en_GB": (
        BRITISH,
        ("{d:02}/{m:02}/{y}", "{d} {mon} {y}", "{d} {month} {y}", "{weekday}, {d} {month} {y}"),
    ),
    "de_DE": (
        GERMAN,
        (
            "{d:02}.{m:02}.{yy:02}",
            "{d:02}.{m:02}.{y}",
            "{d}. {month} {y}",
            "{weekday}, {d}. {month} {y}",
        ),
    ),
    "fr_FR": (
        FRENCH,
        ("{d:02}/{m:02}/{y}", "{d} {mon} {y}", "{d} {month} {y}", "{weekday} {d} {month} {y}"),
    ),
}


def format_day(day: date, locale: str, form: str) -> str:
    """A day in a locale's short, medium, long or full form."""
    (months, short, weekdays), forms = LOCALES[locale]
    return forms[FORMATS.index(form)].format(
        d=day.day,
        m=day.month,
        y=day.year,
        yy=day.year % 100,
        month=months[day.month - 1],
        mon=short[day.month - 1],
        weekday=weekdays[day.weekday()],
    )


def date_parts(text: str) -> tuple[range, range, range]:
    """The positions of year, month and day in a text of `format_day`; empty where it is none."""
    numbers, names = (
        [range(*m.span()) for m in re.finditer(part, text)] for part in (r"\d+", r"[^\W\d_]+")
    )
    if len(numbers) < 2 or (not names and len(numbers) < 3):
        return range(0), range(0), range(0)
    year, day = numbers[-1], numbers[0]
    if names:  # a weekday may stand before the month
        return year, names[-1], day
    # Of the short forms only the American one says the month first: slashes, and a year of two digits.
    first, second = numbers[:2]
    return (year, first, second) if "/" in text and len(year) == 2 else (year, second, first)
