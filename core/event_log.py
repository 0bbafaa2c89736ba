"""The log of a server and its workers: one line an event, without anything that a person typed.

`install` puts every record of Python's logging, of any library, through one filter. A message stays only where it is a
literal of the source that logs it, without what is filled in; an error stays as its type, its place and a reference,
since its message may quote a text, a name or a formula. Without `install` nothing changes.
"""

import json
import logging
import secrets
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from core.files import hosted
from core.settings import settings

ROOT = Path(__file__).resolve().parents[1]
STYLES = ("json", "text")

Value = str | int | float
_logger = logging.getLogger("attention_lab")


def style() -> str:
    """`ATTENTION_LAB_LOG`: json or text; json in hosted mode, else empty, which leaves every log as it was.

    Raises ValueError for anything else.
    """
    text = settings().log or ("json" if hosted() else "")
    if text and text not in STYLES:
        raise ValueError(f"ATTENTION_LAB_LOG is {text!r}; take json or text.")
    return text


def log(event: str, level: int = logging.INFO, **fields: Value) -> None:
    """Log an event; nothing is written before `install`. No field may hold what a person typed."""
    if _logger.handlers:
        _logger.log(level, {"event": event, **fields})


def log_error(error: BaseException) -> None:
    """Log an error: its type, place and reference; before `install`, Python's own traceback.

    A log on a full disk keeps nothing, and nothing from going on.
    """
    if _logger.handlers:
        _logger.error({"event": "error"}, exc_info=error)
    else:
        with suppress(OSError):
            traceback.print_exception(error)


def reference(error: BaseException) -> str:
    """Eight characters that name this error in the log and for a reader; the same however often it is read."""
    if not hasattr(error, "reference"):
        error.reference = secrets.token_hex(4)  # type: ignore[attr-defined]
    return str(error.reference)  # type: ignore[attr-defined]


def place(error: BaseException) -> str:
    """Where it was raised: the innermost line of the lab, or of a library where none of ours took part."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame
        for frame in frames
        if (file := Path(frame.filename)).is_relative_to(ROOT)
        and "site-packages" not in file.relative_to(ROOT).parts  # of an environment in the checkout
    ]
    if not frames:
        return ""
    frame = (ours or frames)[-1]
    path = Path(frame.filename)
    name = (
        path.relative_to(ROOT).as_posix()
        if ours
        else path.as_posix().rpartition("site-packages/")[2]
    )
    return f"{name}:{frame.lineno}"


def install(style: str, context: Callable[[], Mapping[str, Value]] = dict) -> None:
    """Write every record as one line of JSON or text on standard error; `context` adds fields, as page and session."""

    def record(
        name: str,
        level: int,
        path: str,
        line: int,
        message: object,
        _args: object,
        error: Any,
        function: str | None = None,
        _stack: str | None = None,
        **_: object,
    ) -> logging.LogRecord:
        own = (
            message  # what our own calls log: only names and values that the code chose
            if name == _logger.name and isinstance(message, dict)
            else {
                "event": "log",
                "logger": name,
                "at": f"{Path(path).name}:{line}",
                "message": _literal(message, path, function),
            }
        )
        failure: dict[str, Value] = {}
        if isinstance(error, tuple) and error[1] is not None:
            failure = {
                "error": type(error[1]).__name__,
                "place": place(error[1]),
                "reference": reference(error[1]),
            }
        fields = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": logging.getLevelName(level).lower(),
            **own,
            **context(),
            **failure,
        }
        # a value as it is where it is one word, else in quotes and on one line
        plain = {key: str(value) for key, value in fields.items()}
        words = (
            f"{key}={word if word.isprintable() and word and ' ' not in word else json.dumps(fields[key])}"
            for key, word in plain.items()
        )
        text = json.dumps(fields) if style == "json" else " ".join(words)
        return logging.LogRecord(name, level, path, line, text, (), None, function)

    logging.setLogRecordFactory(record)
    logging.captureWarnings(True)
    _logger.addHandler(logging.StreamHandler())
    _logger.setLevel(logging.INFO)
    _logger.propagate = False

    # What Python would print as a traceback is logged.
    def uncaught(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            sys.__excepthook__(type(error), error, error.__traceback__)
        else:
            log_error(error)

    sys.excepthook = uncaught
    threading.excepthook = lambda args: log_error(args.exc_value) if args.exc_value else None
    sys.unraisablehook = lambda args: log_error(args.exc_value) if args.exc_value else None


def _literal(message: object, path: str, function: str | None) -> str:
    """The message where it is a constant of the function that logs it; what was put together there may be typed."""
    frame = sys._getframe()
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != (
        path,
        function,
    ):
        frame = frame.f_back  # type: ignore[assignment]
    return (
        message
        if frame is not None and isinstance(message, str) and message in frame.f_code.co_consts
        else ""
    )
