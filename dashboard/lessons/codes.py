"""The code that a student hands in: which questions were answered rightly, after how many tries, and when.

It begins with the lesson's id and ends with a checksum over all of it and the name, so that a code of another
lesson is told, and one that was mistyped or handed in under another name. It is no proof: who reads this file can make
one.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from core.files import text_of
from dashboard.lessons.questions import LessonError

CODE = re.compile(
    "([0-9a-f]{6})([0-9a-f]{4})([0-9a-f]{0,10})([0-9a-f]{6})"
)  # id, day, results, checksum
SAME = str.maketrans("oil", "011")  # letters that are taken for digits
START = datetime.date(2025, 1, 1)
MOST_TRIES = 7
MOST_NAME = 60


class Result(NamedTuple):
    """Whether a question was answered rightly, and after how many tries; 7 also stands for more."""

    right: bool
    tries: int


@dataclass(frozen=True)
class Code:
    """What a code says."""

    name: str
    lesson: str  # its id
    results: tuple[Result, ...]
    day: datetime.date


def make_code(code: Code) -> str:
    """The code without the name, in groups of four hexadecimal digits."""
    days = min(max((code.day - START).days, 0), 0xFFFF)
    digits = f"{code.lesson}{days:04x}" + "".join(
        f"{8 * right + min(tries, MOST_TRIES):x}" for right, tries in code.results
    )
    return "-".join(re.findall(".{1,4}", (digits + _checksum(digits, code.name)).upper()))


def read_code(line: str) -> Code:
    """The code of a line, after the name; LessonError where there is none, or the name is not its own."""
    name, _, text = (
        unicodedata.normalize("NFKC", text_of(line)).strip().replace("\t", " ").rpartition(" ")
    )
    match = CODE.fullmatch(text.lower().replace("-", "").translate(SAME))
    if match is None:
        raise LessonError("There is no code at the end of this line, or a part of it is missing.")
    lesson, day, digits, checksum = match.groups()
    if _checksum(lesson + day + digits, name) != checksum:
        raise LessonError(
            f"The name {clean_name(name)!r} does not belong to this code. Either the code was made for "
            "another name, or one of the two was mistyped."
        )
    results = tuple(Result(int(digit, 16) >= 8, int(digit, 16) % 8) for digit in digits)
    return Code(clean_name(name), lesson, results, START + datetime.timedelta(int(day, 16)))


def clean_name(name: str) -> str:
    """The name with single spaces, without signs around it, and of bounded length."""
    return " ".join(unicodedata.normalize("NFKC", name).split())[:MOST_NAME].strip(" :;,|")


def _checksum(digits: str, name: str) -> str:
    return blake2b(f"{digits} {clean_name(name).casefold()}".encode(), digest_size=3).hexdigest()
