"""Tests of the plain JSON values in the fields of a run's files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Test = Callable[[Any], bool]
LARGEST = 1e300


def number(value: Any) -> bool:
    """A finite number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def any_number(value: Any) -> bool:
    """A number, NaN or infinity: the values of a run that diverged."""
    return number(value) or (isinstance(value, float) and not math.isfinite(value))


def count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**9


def text(value: Any) -> bool:
    """A text that UTF-8 can write."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def words(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(word, str) for word in value)
        and text("".join(value))
    )


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def maybe(test: Test) -> Test:
    return lambda value: value is None or test(value)


def table(test: Test) -> Test:
    """Rows of such values, all of one length above 0."""
    return lambda value: (
        isinstance(value, list)
        and all(isinstance(row, list) and row and all(map(test, row)) for row in value)
        and len(set(map(len, value))) == 1
    )


def list_of(test: Test) -> Test:
    return lambda value: isinstance(value, list) and all(map(test, value))


def counts(value: Any) -> bool:
    """A square table of counts, not all 0."""
    return table(count)(value) and len(value) == len(value[0]) and any(map(any, value))


def objects_with(fields: dict[str, Test], optional: dict[str, Test] | None = None) -> Test:
    """A list of objects with these fields, the optional ones, and no other."""
    known = fields | (optional or {})
    return lambda value: (
        isinstance(value, list)
        and all(
            isinstance(item, dict)
            and fields.keys() <= item.keys() <= known.keys()
            and all(known[name](part) for name, part in item.items())
            for item in value
        )
    )


def record_fields(number: Test) -> dict[str, Test]:
    """The tests of a Record's fields, by a test of numbers."""
    optional = maybe(number)
    return {
        **dict.fromkeys(
            (
                "train_loss",
                "loss",
                "known_loss",
                "letters",
                "exact",
                "bleu",
                "chrf",
                "unknown",
                "even",
                "error",
                "indexer_loss",
                "gradient",
                "rate",
                "tokens_per_second",
                "data_share",
            ),
            optional,
        ),
        **dict.fromkeys(("elapsed", "trained"), number),
        **dict.fromkeys(("step", "held_out"), count),
        "expected": maybe(table(number)),
        "confusion": maybe(counts),
        "gradients": lambda value: (
            isinstance(value, dict) and len(value) <= 500 and all(map(optional, value.values()))
        ),
        **dict.fromkeys(("final", "capped"), flag),
        **dict.fromkeys(("cut", "best"), maybe(count)),
        "examples": objects_with(
            {"source": words, "target": words, "predicted": words}, {"cut": flag}
        ),
        "buckets": objects_with(
            {"lengths": text, "count": count, "exact": number, "bleu": optional}, {"chrf": optional}
        ),
    }


FIELDS = record_fields(number)  # of a record in an uploaded zip
LOOSE_FIELDS = record_fields(any_number)  # of a record on this machine, which may have diverged


def fits(data: Mapping[str, Any], fields: Mapping[str, Test]) -> bool:
    """Whether every value passes its field's test; fields may be missing, unknown ones fail."""
    return all(name in fields and fields[name](value) for name, value in data.items())
