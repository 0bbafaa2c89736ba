"""Lessons: a page with a teacher's text and questions round it; the code to hand in."""

import datetime
import json
import math
import re
import unicodedata
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b, pbkdf2_hmac
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from core.files import runs_folder, shared_files, text_of, write_atomically
from dashboard.navigation import STEPS

TYPES = {
    "choice": "Choice",
    "numbers": "Number or matrix",
    "text": "Short text",
    "mask": "Mask formula",
    "score": "Score formula",
}
HELP = {
    "choice": "",
    "numbers": "A number, or all numbers of a matrix row by row. Brackets are ignored.",
    "text": "Case, spaces and punctuation do not count.",
    "mask": "A formula over i (query), j (key), h, T and S; true where a query may attend.",
    "score": "A formula over score, i (query), j (key), h, T and S: the new score.",
}
MAX_OPTIONS, MAX_RIGHT, MAX_NUMBERS, MAX_ANSWER, MAX_TEXT, MAX_HINT = (
    6,
    40,
    64,
    2000,
    600,
    300,
)
ROUNDS = 5_000  # of the hash
LARGEST = 1e15
SIZES = (3, 6, 8)  # rows and columns of the matrices on which formulas are compared


class LessonError(ValueError):
    """A lesson, an answer or a code that cannot be read; its text says what would fit."""


def _refuse_if(wrong: object, why: str) -> None:
    if wrong:
        raise LessonError(why)


@dataclass(frozen=True)
class Question:
    """A question and the hashes of its right answers; `offsets` and `width` are the grid of each number."""

    type: str
    text: str
    right: tuple[str, ...]
    options: tuple[str, ...] = ()
    hint: str = ""
    offsets: tuple[float, ...] = ()
    width: float = 0.0

    def __post_init__(self) -> None:
        of_type = {
            "choice": 2 <= len(set(self.options)) == len(self.options) <= MAX_OPTIONS,
            "numbers": 0 < len(self.offsets) <= MAX_NUMBERS
            and 0 < self.width < LARGEST
            and all(abs(offset) < LARGEST for offset in self.offsets),
        }
        _refuse_if(
            not (
                self.type in TYPES
                and of_type.get(self.type, True)
                and 0 < len(self.text) <= MAX_TEXT
                and len(self.hint) <= MAX_HINT
                and 0 < len(self.right) <= MAX_RIGHT
                and all(re.fullmatch("[0-9a-f]{16}", one) for one in self.right)
            ),
            "A question of this lesson is incomplete.",
        )

    def check(self, answer: str) -> bool:
        """Whether an answer is right; LessonError for one that cannot be read."""
        answer = text_of(answer, MAX_ANSWER + 1)
        _refuse_if(
            not answer.strip() or len(answer) > MAX_ANSWER,
            "Give an answer first." if not answer.strip() else "This answer is too long.",
        )
        if self.type != "numbers":
            return _digest(VALUES[self.type](answer), self.text) in self.right
        numbers: list[float] = []
        with suppress(LessonError):
            numbers = parse_numbers(answer)
        _refuse_if(
            len(numbers) != len(self.offsets),
            "Type one number, such as 2.5."
            if len(self.offsets) == 1
            else f"Type {len(self.offsets)} numbers, row by row; here {'is' if len(numbers) == 1 else 'are'} "
            f"{len(numbers) or 'none'}.",
        )
        return _digest(_cells(numbers, self.offsets, self.width), self.text) in self.right


def make_question(
    type_: str,
    text: str,
    answer: str,
    *,
    options: tuple[str, ...] = (),
    tolerance: float = 0.0,
    hint: str = "",
) -> Question:
    """A question with its right answer, for a text one of each line; LessonError where they do not go together."""
    text, hint = text.strip(), hint.strip()
    _refuse_if(not text, "it has no text.")
    _refuse_if(not answer.strip(), "it has no right answer.")
    _refuse_if(
        len(answer) > MAX_ANSWER, f"its right answer has more than {MAX_ANSWER:,} characters."
    )
    if type_ == "choice":
        _refuse_if(
            not 2 <= len(set(options)) == len(options) <= MAX_OPTIONS,
            f"a choice has 2 to {MAX_OPTIONS} different options, one on each line.",
        )
        _refuse_if(answer.strip() not in options, "its right answer is none of the options.")
    offsets: tuple[float, ...] = ()
    width = 0.0
    if type_ == "numbers":
        numbers = parse_numbers(answer)
        half = max(tolerance * 1.002, 1e-9 * max(1.0, *map(abs, numbers)))
        width = float(f"{2 * half:.9g}")
        offsets = tuple(
            round((number - half) % width, 4 - math.floor(math.log10(width))) for number in numbers
        )
        values = [_cells(numbers, offsets, width)]
    else:
        answers = [*filter(str.strip, answer.splitlines())] if type_ == "text" else [answer]
        _refuse_if(len(answers) > MAX_RIGHT, f"it has more than {MAX_RIGHT} right answers.")
        values = [VALUES[type_](answer) for answer in answers]
    return Question(
        type_,
        text,
        tuple(dict.fromkeys(_digest(value, text) for value in values)),
        options if type_ == "choice" else (),
        hint,
        offsets,
        width,
    )


def parse_numbers(text: str) -> list[float]:
    """The numbers of a text such as 0,68 or 16,640 or [[1, 2], [3, 4]]; LessonError without any."""
    text = text.strip().replace("−", "-").removesuffix("%").strip()
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    elif re.fullmatch(r"[-+]?\d*,\d+", text):
        text = text.replace(",", ".")
    numbers = [
        float(part) for part in re.findall(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?", text)
    ]
    _refuse_if(
        not 0 < len(numbers) <= MAX_NUMBERS
        or not all(abs(number) <= LARGEST for number in numbers),
        f"Expected a number such as 0.25, or at most {MAX_NUMBERS} numbers of a matrix.",
    )
    return numbers


def _cells(numbers: list[float], offsets: tuple[float, ...], width: float) -> str:
    return " ".join(
        str(math.floor((number - offset) / width))
        for number, offset in zip(numbers, offsets, strict=True)
    )


def _plain_text(answer: str) -> str:
    folded = unicodedata.normalize("NFKC", answer).casefold()
    return "".join(sign for sign in folded if sign.isalnum()) or folded.strip()


def _formula_values(kind: Any, answer: str) -> str:
    """The values of a formula on seeded scores of two heads, or its truth values; LessonError where it has none."""
    import torch

    from core.attention.base import ScoreBlock
    from core.attention.formula import FormulaError, parse

    values: list[float] = []
    try:
        formula = parse(answer.strip(), kind)
        for size in SIZES:
            score = torch.randn(
                1, 2, size, size, generator=torch.Generator().manual_seed(size), dtype=torch.float64
            )
            result = formula(
                ScoreBlock.whole(size, size, num_heads=2), None if kind == "mask" else score
            )
            values += (
                result.double().expand(2, size, size).flatten().tolist()
                if kind == "mask"
                else (result.flatten().tolist())
            )
    except FormulaError as error:
        raise LessonError(str(error)) from error
    return " ".join(f"{round(value, 6) + 0.0:g}" for value in values)


VALUES: dict[str, Callable[[str], str]] = {
    "choice": str.strip,
    "text": _plain_text,
    "mask": lambda answer: _formula_values("mask", answer),
    "score": lambda answer: _formula_values("score", answer),
}


@lru_cache(maxsize=256)
def _digest(value: str, text: str) -> str:
    """The hash of a value, salted by the text of its question; slow, so that guessing many takes long."""
    return pbkdf2_hmac(
        "sha256", value.encode(), blake2b(text.encode(), digest_size=16).digest(), ROUNDS, 8
    ).hex()


# A lesson as a link's parameter or a file, and back: all that a link or a file brings is validated.


FORMAT = "attention-lab-lesson-1"
FOLDER = Path(__file__).parent  # of the lessons that ship, each under its key
STORED = (
    "lessons"  # the folder of those that a server stores, within that of runs, each under its id
)
ID = re.compile("[0-9a-f]{6}")
LEVELS_AND_GOALS = {
    "first_steps": ("Beginner", "Compute an output"),
    "first_masks": ("Beginner", "Count what remains"),
    "patterns": ("Intermediate", "Find heads"),
    "variants": ("Intermediate", "Tell scores apart"),
    "positions": ("Intermediate", "Tell encodings apart"),
    "attention": ("Advanced", "Program it"),
    "efficient": ("Advanced", "Predict the cost"),
}
KEYS = tuple(LEVELS_AND_GOALS)
# characters of the link's parameter, and of the lesson's JSON
MAX_LINK, MAX_FILE = 8_000, 100_000
MAX_TITLE, MAX_LESSON_TEXT, MAX_QUESTIONS, MAX_HIDE, MAX_QUERY = 80, 3_000, 10, 60, 4_000
MAX_PARTS, MAX_ALL = 6, 30  # pages of a lesson, and questions on all of them
# of a link, that are no control of a page
PARAMETERS = "lesson", "lesson-code", "embed", "embed_options"
PAGES = tuple(step.key for step in STEPS if step.key != "lessons")


@dataclass(frozen=True)
class Lesson:
    """A page with its controls (`query`, the parameters of its link), the controls to hide, a text and questions.

    `hide_guide` also hides the questions and moves that the page brings itself. `more` are the pages that follow.
    """

    title: str
    text: str
    page: str
    query: tuple[tuple[str, str], ...] = ()
    hide: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    hide_guide: bool = False
    more: tuple["Lesson", ...] = ()

    def __post_init__(self) -> None:
        rules = (
            (
                not self.title.strip() or len(self.title) > MAX_TITLE,
                f"A lesson has a title of at most {MAX_TITLE} characters.",
            ),
            (
                len(self.text) > MAX_LESSON_TEXT or len(self.questions) > MAX_QUESTIONS,
                f"A lesson has a text of at most {MAX_LESSON_TEXT:,} characters and at most {MAX_QUESTIONS} "
                "questions.",
            ),
            (
                self.page not in PAGES,
                f"No lesson can be about the page {self.page[:40]!r}: the lab does not have it, or it is "
                "this one.",
            ),
            (
                any(name in PARAMETERS for name, _ in self.query),
                f"No control of a page is called {', '.join(PARAMETERS)}.",
            ),
            (
                sum(len(name) + len(value) for name, value in self.query) > MAX_QUERY,
                f"The page's link has more than {MAX_QUERY:,} characters.",
            ),
            (
                len(self.hide) > MAX_HIDE
                or not all(re.fullmatch(r"[\w:.\- ]{1,80}", name) for name in self.hide),
                f"A lesson hides at most {MAX_HIDE} controls, each by its name in the link.",
            ),
            (
                any(part.more for part in self.more)
                or len(self.parts) > MAX_PARTS
                or len(self.all_questions) > MAX_ALL,
                f"A lesson has at most {MAX_PARTS} pages and {MAX_ALL} questions on all of them.",
            ),
        )
        for wrong, why in rules:
            _refuse_if(wrong, why)

    @cached_property
    def id(self) -> str:
        """Six signs that another lesson, or a changed one, hardly shares."""
        return blake2b(to_json(self).encode(), digest_size=3).hexdigest()

    @property
    def parts(self) -> tuple["Lesson", ...]:
        """Its pages: itself, then those that follow."""
        return self, *self.more

    @property
    def all_questions(self) -> tuple[Question, ...]:
        return tuple(question for part in self.parts for question in part.questions)

    @property
    def parameters(self) -> dict[str, list[str]]:
        return grouped(self.query)


def grouped(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return values


def to_json(lesson: Lesson, indent: int | None = None) -> str:
    """The lesson as JSON, without what is empty; the same lesson always gives the same text."""
    return json.dumps(
        {"format": FORMAT, **_fields(lesson)},
        ensure_ascii=False,
        indent=indent,
        separators=None if indent else (",", ":"),
    )


def _fields(lesson: Lesson) -> dict[str, Any]:
    both: list[Any] = [lesson, *lesson.questions]
    whole, *questions = (  # without False, too
        {name: value for name, value in asdict(one).items() if value not in ("", (), 0.0)}
        for one in both
    )
    more = {"more": [{"text": "", **_fields(part)} for part in lesson.more]} if lesson.more else {}
    return {**whole, "questions": questions, **more}


def from_json(text: str) -> Lesson:
    """The lesson of a file; LessonError for any other text."""
    _refuse_if(len(text) > MAX_FILE, f"A lesson has at most {MAX_FILE:,} characters.")
    try:
        whole = json.loads(text)
        _refuse_if(whole["format"] != FORMAT, "This lesson is of another version of the lab.")
        lesson = msgspec.convert({"text": "", **whole}, Lesson)
        to_json(lesson).encode()  # JSON can hold characters that no text has
        return lesson
    except LessonError:
        raise
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error.__cause__, LessonError):  # of the lesson or a question
            raise error.__cause__ from None
        raise LessonError("This is no lesson of Attention Lab, or a broken one.") from error


def encode(lesson: Lesson) -> str:
    return urlsafe_b64encode(zlib.compress(to_json(lesson).encode(), 9)).decode().rstrip("=")


def decode(text: str) -> Lesson:
    """The lesson of a link's parameter; LessonError for any other text.

    The parameter is the lesson itself, the key of one that ships, or the id of one that this server stores. After a dot
    it says which of its pages is open.
    """
    text = text.partition(".")[0]
    if ID.fullmatch(text) is None:
        return _unpack(text)
    lesson = stored(text)
    if lesson is None:
        raise LessonError(
            f"This server does not have the lesson {text}, or no longer. Ask your teacher for its long link."
        )
    return lesson


def part_at(text: str) -> int:
    """Which of the lesson's pages the link's parameter says, counted from 0."""
    number = text.partition(".")[2]
    return min(int(number) - 1, len(decode(text).more)) if re.fullmatch("[1-9]", number) else 0


def part_of(text: str) -> Lesson:
    return decode(text).parts[part_at(text)]


def stored(name: str) -> Lesson | None:
    """The lesson of an id that this server stores, of anybody; of two with one id the older."""
    paths = shared_files(f"{STORED}/{name}.json")
    return from_json(paths[0].read_text("utf-8")) if paths else None


def store(lesson: Lesson) -> None:
    write_atomically(runs_folder() / STORED / f"{lesson.id}.json", to_json(lesson).encode())


@lru_cache(maxsize=64)
def _unpack(text: str) -> Lesson:
    if text in KEYS:
        return from_json((FOLDER / f"{text}.json").read_text("utf-8"))
    _refuse_if(len(text) > MAX_FILE, "This link is too long for a lesson.")
    try:
        unpack = zlib.decompressobj()
        data = unpack.decompress(
            urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)), MAX_FILE
        ).decode()
        if not unpack.eof:
            raise ValueError
    except (ValueError, zlib.error) as error:
        raise LessonError(
            "This link holds no whole lesson: a part of it was lost. Copy it again."
        ) from error
    return from_json(data)


def parse_link(link: str) -> tuple[str, dict[str, list[str]]]:
    """The page and the parameters of a link of the lab; LessonError where there is no such page."""
    try:
        parts = urlsplit(link.strip())
        pairs = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=200)
    except ValueError as error:
        raise LessonError("This is no link of a page.") from error
    page = parts.path.rstrip("/").rpartition("/")[2] or "start"
    _refuse_if(
        page not in {step.key for step in STEPS},
        f"The link leads to {page[:40]!r}, which is no page of the lab. Press Copy link beside the "
        "title of a page.",
    )
    return page, grouped(pairs)


def page_query(parameters: Mapping[str, list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, value)
        for name, values in parameters.items()
        if name not in PARAMETERS
        for value in values
    )


# The code that a student hands in: which questions were answered rightly, after how many tries, and when.


CODE = re.compile(
    "([0-9a-f]{6})([0-9a-f]{4})([0-9a-f]{0,30})(w(?:[0-9a-f]{2}){0,30})?([0-9a-f]{6})"
)  # id, day, results, wrong options where there are any, checksum
SAME = str.maketrans("oil", "011")  # letters that are taken for digits
START = datetime.date(2025, 1, 1)
MAX_TRIES = 7
MAX_NAME = 60


class Result(NamedTuple):
    """Whether a question was answered rightly, and after how many tries; 7 also stands for more.

    `wrong` has a bit for each option of a choice that was picked and is not right.
    """

    right: bool
    tries: int
    wrong: int = 0


@dataclass(frozen=True)
class Code:
    name: str
    lesson: str  # its id
    results: tuple[Result, ...]
    day: datetime.date


def make_code(code: Code) -> str:
    """The code without the name, in groups of four hexadecimal digits."""
    days = min(max((code.day - START).days, 0), 0xFFFF)
    digits = f"{code.lesson}{days:04x}" + "".join(
        f"{8 * right + min(tries, MAX_TRIES):x}" for right, tries, _ in code.results
    )
    if any(result.wrong for result in code.results):
        digits += "w" + "".join(f"{result.wrong:02x}" for result in code.results)
    return "-".join(re.findall(".{1,4}", (digits + _checksum(digits, code.name)).upper()))


def read_code(line: str) -> Code:
    """The code of a line, after the name; LessonError where there is none, or the name is not its own."""
    name, _, text = (
        unicodedata.normalize("NFKC", text_of(line)).strip().replace("\t", " ").rpartition(" ")
    )
    match = CODE.fullmatch(text.lower().replace("-", "").translate(SAME))
    if match is None:
        raise LessonError("There is no code at the end of this line, or a part of it is missing.")
    lesson, day, digits, picked, checksum = match.groups("")
    wrong = bytes.fromhex(picked[1:]) or bytes(len(digits))
    _refuse_if(
        _checksum(lesson + day + digits + picked, name) != checksum or len(wrong) != len(digits),
        f"The name {clean_name(name)!r} does not belong to this code. Either the code was made for "
        "another name, or one of the two was mistyped.",
    )
    return Code(
        clean_name(name),
        lesson,
        tuple(
            Result(int(digit, 16) >= 8, int(digit, 16) % 8, picks)
            for digit, picks in zip(digits, wrong, strict=True)
        ),
        START + datetime.timedelta(int(day, 16)),
    )


def clean_name(name: str) -> str:
    """The name with single spaces, without signs around it, and of bounded length."""
    # Cut first: to put the accents of a letter in order takes the square of their number.
    folded = unicodedata.normalize("NFKC", text_of(name))
    return " ".join(folded.split())[:MAX_NAME].strip(" :;,|")


def _checksum(digits: str, name: str) -> str:
    return blake2b(f"{digits} {clean_name(name).casefold()}".encode(), digest_size=3).hexdigest()
