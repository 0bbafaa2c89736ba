"""Numbers of a sweep as text: their unit, their places, and lists of names."""

from __future__ import annotations

from dashboard.draw.formats import number, score

NARROW = "\u00a0"
SHARES = ("exact", "letters")  # shown in percent


def scaled(value: float, measure: str) -> float:
    return 100 * value if measure in SHARES else value


def places(measure: str, mean: float, width: float | None) -> int:
    """Decimal places that a number of this size and uncertainty can carry."""
    if measure in (*SHARES, "bleu", "chrf", "trained"):
        return 1 if width is None or width < 9.95 else 0
    return 3 if abs(mean) < 0.1 or (width is not None and width < 0.01) else 2


def plain_number(value: float, measure: str, percent: bool = False) -> str:
    """One value: a loss or a weight by the rule of all pages, the others to the tenth in which runs differ.

    With `percent` a share is given as 0 to 100, as the figures draw it.
    """
    if measure in (*SHARES, "bleu", "chrf", "trained"):
        return score(value if percent else scaled(value, measure))
    return number(value)


def join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
