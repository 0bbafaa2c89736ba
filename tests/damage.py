"""Files as they come from outside or from a worn disk: bits turned, and values of JSON put wrong, lost or doubled."""

import copy
import random
from pathlib import Path
from typing import Any

# What stands where something else should: other types, no numbers, too large, too long, too deep, no letters.
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**40,
    2**64,
    -(2**64),
    1e300,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "0x1",
    "1abc",
    "a:b",
    "x" * 5000,
    "\x00",
    "\ud800",
    [],
    [[]],
    [1, "a"],
    {},
    {"key": 1},
    {"key": "none", "key ": 2},
    {"cls": 1},
    [None] * 3,
)
HOSTILE_NAMES = ("key", "seed", "cls", "self", "", "x" * 5000, "a:b", "1:x", "\ud800", "__class__")


def deep(levels: int, name: str = "parts") -> Any:
    """Objects within lists within objects, that many levels deep."""
    value: Any = {"key": "causal"}
    for _ in range(levels):
        value = {"key": "not", name: [value]}
    return value


def damaged(data: Any, rng: random.Random, changes: int = 1) -> Any:
    """A copy of JSON data with a few places changed: a value replaced, taken out, renamed, or put beside another."""
    data = copy.deepcopy(data)
    for _ in range(changes):
        spots = list(_spots(data))
        holder, name = rng.choice(spots)
        how = rng.random()
        if how < 0.6:
            holder[name] = (
                copy.deepcopy(rng.choice(HOSTILE))
                if rng.random() < 0.97
                else deep(rng.choice((20, 200)))
            )
        elif how < 0.75:
            del holder[name]
        elif isinstance(holder, dict):
            holder[rng.choice(HOSTILE_NAMES)] = (
                holder.pop(name) if how < 0.85 else copy.deepcopy(rng.choice(HOSTILE))
            )
        else:
            holder.append(copy.deepcopy(rng.choice(HOSTILE)))
        if not list(_spots(data)):
            break
    return data


def _spots(data: Any) -> Any:
    """Every (holder, name or index) within nested lists and dicts."""
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for name, value in items:
        yield data, name
        yield from _spots(value)


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """A file's bytes cut, changed in a few places, doubled, replaced by JSON that is too deep, or gone."""
    how = rng.randrange(5)
    if how == 0:
        return data[: rng.randrange(len(data) + 1)]
    if how == 1:
        return b"[" * 100_000
    if how == 2:
        return rng.choice((b"", b"\xff\xfe{", b"[]", b"null", b'"\\ud800"', b"1" * 5000))
    if how == 3:
        return data + data
    changed = bytearray(data or b"0")
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


# What somebody types or pastes where a few words are expected.
PIECES = (
    "'",
    '"',
    "\\",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ";",
    ",",
    ".",
    ":",
    "=",
    "|",
    "/",
    "../",
    "%00",
    "\x00",
    "\n",
    "\r",
    "\t",
    " ",
    "-",
    "+",
    "*",
    "**",
    "1e999",
    "nan",
    "-1",
    "0",
    "9" * 30,
    "²",
    "１",
    "é",
    "🙂",
    "\u202e",
    "\ud800",
    "None",
    "true",
    "__class__",
    "__import__('os')",
    "eval(1)",
    "<script>",
    "$x$",
    "file:///etc/passwd",
    "~",
    "a" * 500,
)


def damaged_text(text: str, rng: random.Random) -> str:
    """A text with a few parts taken out, doubled, swapped or replaced by what does not belong there."""
    for _ in range(rng.randint(1, 4)):
        at, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        end = min(end, at + 12)
        part = rng.choice(PIECES)
        text = (
            text[:at]
            + rng.choice(("", part, part, part + text[at:end], text[at:end] * 3))
            + text[end:]
        )
    return text


def flip(path: Path, rng: random.Random, most: int = 4) -> None:
    """Turn up to so many bits of a file."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, most)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
