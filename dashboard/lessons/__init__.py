"""Lessons: a page with a teacher's text and questions round it; the code to hand in."""

from dashboard.lessons.codes import Code, Result, make_code, read_code
from dashboard.lessons.lesson import Lesson, LessonError, decode, encode, parse_link
from dashboard.lessons.questions import TYPES, Question, make_question

__all__ = [
    "TYPES",
    "Code",
    "Lesson",
    "LessonError",
    "Question",
    "Result",
    "decode",
    "encode",
    "make_code",
    "make_question",
    "parse_link",
    "read_code",
]
