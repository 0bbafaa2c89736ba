"""The codes that a class handed in: read line by line, and what was solved as rows."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dashboard.draw.formats import percent
from dashboard.draw.picture_files import csv_file
from dashboard.ui.lessons import Code, Lesson, LessonError, Question, Result, read_code

MAX_LINES = 500  # codes
Handed = tuple[Code, Lesson]


def read_lines(typed: str, lessons: Mapping[str, Lesson]) -> tuple[list[Handed], list[str]]:
    """The latest code of each student for each known lesson, and a sentence for every other line."""
    handed: dict[tuple[str, str], Handed] = {}
    errors = []
    lines = [(number, line) for number, line in enumerate(typed.splitlines(), 1) if line.strip()]
    for number, line in lines[:MAX_LINES]:
        try:
            code = read_code(line)
            lesson = lessons.get(code.lesson)
            if lesson is None or len(lesson.all_questions) != len(code.results):
                raise LessonError(
                    f"The code of {code.name or 'no name'} belongs to another lesson, or to one that was "
                    "changed since. Give its link above."
                )
        except LessonError as error:
            errors.append(f"Line {number}: {error}")
            continue
        student = code.name.casefold(), code.lesson
        if student not in handed or handed[student][0].day <= code.day:
            handed[student] = code, lesson
    if len(lines) > MAX_LINES:
        errors.append(f"The first {MAX_LINES} of {len(lines)} codes are read.")
    return list(handed.values()), errors


def row_of(code: Code, lesson: Lesson) -> list[str]:
    right = [str(index) for index, result in enumerate(code.results, 1) if result.right]
    return [
        code.name or "–",
        lesson.title,
        f"{len(right)} of {len(code.results)}",
        ", ".join(right) or "–",
        ", ".join(str(result.tries or "–") for result in code.results),
        code.day.isoformat(),
    ]


def wrong_options(question: Question, result: Result) -> list[str]:
    return [option for at, option in enumerate(question.options) if result.wrong >> at & 1]


def by_question(handed: Sequence[Handed]) -> list[list[str]]:
    """For each question of each lesson, the share of students who solved it, and how many picked each wrong option."""
    rows = []
    for lesson in {lesson.id: lesson for _, lesson in handed}.values():
        codes = [code for code, other in handed if other.id == lesson.id]
        for at, question in enumerate(lesson.all_questions):
            results = [code.results[at] for code in codes]
            rows.append(
                [
                    f"{lesson.title}, {at + 1}. {question.text}",
                    percent(sum(one.right for one in results) / len(codes)),
                    "; ".join(
                        f"{option} ({count})"
                        for option, count in Counter(
                            option for one in results for option in wrong_options(question, one)
                        ).most_common()
                    )
                    or "–",
                ]
            )
    return rows


def class_csv(handed: Sequence[Handed]) -> bytes:
    return csv_file(
        ("name", "lesson", "date", "question", "right", "tries", "wrong options"),
        [
            [
                *(code.name, lesson.title, code.day, at, int(one.right), one.tries),
                "; ".join(wrong_options(question, one)),
            ]
            for code, lesson in handed
            for at, (question, one) in enumerate(
                zip(lesson.all_questions, code.results, strict=True), 1
            )
        ],
    )
