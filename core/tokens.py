"""How a token is written where a person reads it: by its name, with white space as signs that can be seen."""

from __future__ import annotations

SIGNS = {"\n": "↵", "\t": "⇥"}
SPACE, EMPTY = "␣", "∅"


def token_text(token: str) -> str:
    """The token with its line ends, its tabs and the spaces around it as signs; spaces between words stay.

    A token of signs alone that no font draws is written by their numbers.
    """
    if not token:
        return EMPTY
    if not any(sign.isprintable() or sign.isspace() for sign in token):
        return "".join(f"U+{ord(sign):04X}" for sign in token)
    first = len(token) - len(token.lstrip())
    last = len(token.rstrip())
    return "".join(SIGNS.get(sign, SPACE if sign.isspace() and not first <= at < last else sign)
                   for at, sign in enumerate(token))
