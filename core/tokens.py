"""Tokens as readable text, with visible signs for white space."""

from __future__ import annotations

SIGNS = {"\n": "↵", "\t": "⇥"}
SPACE, EMPTY = "␣", "∅"


def token_text(token: str) -> str:
    """The token with signs for line ends, tabs and outer spaces; spaces between words stay.

    A token of unprintable characters alone is written as code points.
    """
    if not token:
        return EMPTY
    if not any(sign.isprintable() or sign.isspace() for sign in token):
        return "".join(f"U+{ord(sign):04X}" for sign in token)
    first = len(token) - len(token.lstrip())
    last = len(token.rstrip())
    return "".join(
        SIGNS.get(sign, SPACE if sign.isspace() and not first <= index < last else sign)
        for index, sign in enumerate(token)
    )
