"""A lesson as a link's parameter or a file, and back: all that a link or a file brings is validated."""

from __future__ import annotations

import json
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dashboard.lessons.questions import LessonError, Question
from dashboard.navigation import STEPS

FORMAT = "attention-lab-lesson-1"
FOLDER = Path(__file__).parent  # of the lessons that ship, each under its key
KEYS = ("attention", "patterns", "variants", "positions", "efficient")
MOST_LINK, MOST_FILE = (
    8_000,
    100_000,
)  # characters of the link's parameter, and of the lesson's JSON
MOST_TITLE, MOST_TEXT, MOST_QUESTIONS, MOST_HIDE, MOST_QUERY = 80, 3_000, 10, 60, 4_000
PARAMETERS = (
    "lesson",
    "lesson-code",
    "embed",
    "embed_options",
)  # of a link, that are no control of a page
CONTROL = re.compile(r"[\w:.\- ]{1,80}")
PAGES = tuple(step.key for step in STEPS if step.key != "lessons")


@dataclass(frozen=True)
class Lesson:
    """A page with its controls (`query`, the parameters of its link), the controls to hide, a text and questions.

    `hide_guide` also hides the questions and moves that the page brings itself.
    """

    title: str
    text: str
    page: str
    query: tuple[tuple[str, str], ...] = ()
    hide: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    hide_guide: bool = False

    def __post_init__(self) -> None:
        if not self.title.strip() or len(self.title) > MOST_TITLE:
            raise LessonError(f"A lesson has a title of at most {MOST_TITLE} characters.")
        if len(self.text) > MOST_TEXT or len(self.questions) > MOST_QUESTIONS:
            raise LessonError(
                f"A lesson has a text of at most {MOST_TEXT:,} characters and at most {MOST_QUESTIONS} "
                "questions."
            )
        if self.page not in PAGES:
            raise LessonError(
                f"No lesson can be about the page {self.page[:40]!r}: the lab does not have it, or it is "
                "this one."
            )
        if any(name in PARAMETERS for name, _ in self.query):
            raise LessonError(f"No control of a page is called {', '.join(PARAMETERS)}.")
        if sum(len(name) + len(value) for name, value in self.query) > MOST_QUERY:
            raise LessonError(f"The page's link has more than {MOST_QUERY:,} characters.")
        if len(self.hide) > MOST_HIDE or not all(CONTROL.fullmatch(name) for name in self.hide):
            raise LessonError(
                f"A lesson hides at most {MOST_HIDE} controls, each by its name in the link."
            )

    @cached_property
    def id(self) -> str:
        """Six signs that another lesson, or a changed one, hardly shares."""
        return blake2b(to_json(self).encode(), digest_size=3).hexdigest()

    @property
    def parameters(self) -> dict[str, list[str]]:
        """The parameters of the page's link."""
        return {
            name: [value for other, value in self.query if other == name] for name, _ in self.query
        }


def to_json(lesson: Lesson, indent: int | None = None) -> str:
    """The lesson as JSON, without what is empty; the same lesson always gives the same text."""

    def filled(values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value for name, value in values.items() if value not in ("", (), 0.0)
        }  # also False

    whole = {
        "format": FORMAT,
        **filled(asdict(lesson)),
        "questions": [filled(asdict(q)) for q in lesson.questions],
    }
    return json.dumps(
        whole, ensure_ascii=False, indent=indent, separators=None if indent else (",", ":")
    )


def from_json(text: str) -> Lesson:
    """The lesson of a file; LessonError for any other text."""
    if len(text) > MOST_FILE:
        raise LessonError(f"A lesson has at most {MOST_FILE:,} characters.")
    try:
        whole = json.loads(text)
        if whole["format"] != FORMAT:
            raise LessonError("This lesson is of another version of the lab.")
        questions = tuple(
            Question(
                str(item["type"]),
                str(item["text"]),
                _texts(item["right"]),
                _texts(item.get("options", ())),
                str(item.get("hint", "")),
                tuple(map(float, item.get("offsets", ()))),
                float(item.get("width", 0)),
            )
            for item in whole["questions"]
        )
        query = tuple((str(name), str(value)) for name, value in whole.get("query", ()))
        lesson = Lesson(
            str(whole["title"]),
            str(whole.get("text", "")),
            str(whole["page"]),
            query,
            _texts(whole.get("hide", ())),
            questions,
            whole.get("hide_guide") is True,
        )
        to_json(lesson).encode()  # JSON can hold characters that no text has
        return lesson
    except LessonError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise LessonError("This is no lesson of Attention Lab, or a broken one.") from error


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(str, values))


def encode(lesson: Lesson) -> str:
    """The lesson as one parameter of a link."""
    return urlsafe_b64encode(zlib.compress(to_json(lesson).encode(), 9)).decode().rstrip("=")


@lru_cache(maxsize=64)
def decode(text: str) -> Lesson:
    """The lesson of a link's parameter, or of the key of one that ships; LessonError for any other text."""
    if text in KEYS:
        return from_json((FOLDER / f"{text}.json").read_text("utf-8"))
    if len(text) > MOST_FILE:
        raise LessonError("This link is too long for a lesson.")
    try:
        unpack = zlib.decompressobj()
        data = unpack.decompress(
            urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)), MOST_FILE
        )
        if not unpack.eof:
            raise ValueError
        return from_json(data.decode())
    except LessonError:
        raise
    except (ValueError, zlib.error) as error:
        raise LessonError(
            "This link holds no whole lesson: a part of it was lost. Copy it again."
        ) from error


def parse_link(link: str) -> tuple[str, dict[str, list[str]]]:
    """The page and the parameters of a link of the lab; LessonError where there is no such page."""
    try:
        parts = urlsplit(link.strip())
        pairs = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=200)
    except ValueError as error:
        raise LessonError("This is no link of a page.") from error
    page = parts.path.rstrip("/").rpartition("/")[2] or "start"
    if page not in {step.key for step in STEPS}:
        raise LessonError(
            f"The link leads to {page[:40]!r}, which is no page of the lab. Press Copy link beside the "
            "title of a page."
        )
    parameters: dict[str, list[str]] = {}
    for name, value in pairs:
        parameters.setdefault(name, []).append(value)
    return page, parameters


def page_query(parameters: Mapping[str, list[str]]) -> tuple[tuple[str, str], ...]:
    """The parameters that belong to the page's controls, in order."""
    return tuple(
        (name, value)
        for name, values in parameters.items()
        if name not in PARAMETERS
        for value in values
    )
