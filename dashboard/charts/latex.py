"""Fragments of LaTeX that several pages share."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.charts.numbers import latex

LONGEST_NAME = 12  # signs; a longer token is written as its index
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'’-")


def signed(value: float) -> str:
    """A number that follows an operator, in brackets when it is negative."""
    return f"({latex(value)})" if latex(value).startswith("-") else latex(value)


def added(value: float) -> str:
    """A number with its own sign as operator."""
    return f" - {latex(-value)}" if value < 0 else f" + {latex(value)}"


def name(token: str, index: int) -> str:
    """A token inside LaTeX: as it is when it is a short word, else its index."""
    return (
        rf"\text{{{token}}}"
        if len(token) <= LONGEST_NAME and set(token) <= SAFE and token
        else str(index)
    )


def listed(values: Sequence[float], most: int = 4) -> str:
    """The first numbers of a row, with an ellipsis when there are more."""
    terms = [latex(float(value)) for value in values[:most]]
    return r",\ ".join([*terms, r"\ldots"] if len(values) > most else terms)


def coloured(text: str, colour: str) -> str:
    """LaTeX in a colour, which marks what was picked."""
    return rf"\textcolor{{{colour}}}{{{text}}}"
