"""The value of one cell of a table: a number with a decimal point or comma, a date, or nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

MISSING = frozenset(
    ("", "NA", "na", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "?", "-")
)
MONTH_FIRST = "month/day/year"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPACE = re.compile("(?<=\\d)[ \u00a0\u202f](?=\\d{3}(?!\\d))")  # between thousands
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_TIME = r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?:Z|[+-]00:?00)?)?"
_YEAR_FIRST = re.compile(r"(\d{4})[-/](\d\d?)[-/](\d\d?)" + _TIME)
_YEAR_LAST = re.compile(r"(\d\d?)([./-])(\d\d?)\2(\d{4})" + _TIME)


def missing(cell: str) -> bool:
    """Whether a cell is empty, or one of the usual marks for that."""
    return cell in MISSING


def number(cell: str, comma: bool, thousands: bool = True) -> float | None:
    """The number in a cell, with a decimal comma or else a decimal point; None where it is none, or too large. With
    `thousands` the other sign or a space may separate thousands."""
    if thousands:
        cell = _SPACE.sub("", cell)
    if comma:
        cell = cell.translate({ord(","): ".", ord("."): ","})
    if thousands and _THOUSANDS.fullmatch(cell):
        cell = cell.replace(",", "")
    value = float(cell) if _NUMBER.fullmatch(cell) else math.inf
    return value if math.isfinite(value) else None


def decimal_comma(cells: Sequence[str], usual: bool) -> bool:
    """Whether more of these cells are numbers with a decimal comma than with a point; `usual` for as many."""
    point, comma = (sum(number(cell, sign) is not None for cell in cells) for sign in (False, True))
    return usual if point == comma else comma > point


def date_order(cells: Sequence[str]) -> str:
    """The order of 3/4/2020 among these dates: "month/day/year" only where some second part is over 12 and no first
    one is, else "day/month/year"; "" where no date has slashes."""
    parts = [
        (int(match[1]), int(match[3]))
        for cell in cells
        if (match := _YEAR_LAST.fullmatch(cell)) and match[2] == "/"
    ]
    if not parts:
        return ""
    months = any(second > 12 for _, second in parts) and not any(first > 12 for first, _ in parts)
    return MONTH_FIRST if months else "day/month/year"


def date(cell: str, order: str = "") -> float | None:
    """Days since 1970-01-01 of a date (2020-03-31, 31.3.2020, 31/3/2020, with or without a time), or None."""
    if match := _YEAR_FIRST.fullmatch(cell):
        year, month, day, *clock = match.groups()
    elif match := _YEAR_LAST.fullmatch(cell):
        first, mark, second, year, *clock = match.groups()
        day, month = (second, first) if mark == "/" and order == MONTH_FIRST else (first, second)
    else:
        return None
    try:
        hour, minute, second = (int(part or 0) for part in clock)
        moment = datetime(int(year), int(month), int(day), hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return (moment - EPOCH) / timedelta(days=1)


def date_text(days: float) -> str:
    """The date that many days after 1970-01-01, with its time unless that is midnight."""
    moment = EPOCH + timedelta(seconds=round(days * 86_400))
    return f"{moment:%Y-%m-%d %H:%M:%S}".removesuffix(" 00:00:00")
