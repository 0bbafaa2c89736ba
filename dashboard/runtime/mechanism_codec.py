"""A mechanism as a short text for a link, and back: only choices other than the default attention's are written.

    d=16 h=2 position=alibi mask=and(causal,local(window=3)) normalizer=softmax(temperature=0.5)

The attentions of a pattern of layers stand between semicolons.

A value with other characters than letters, digits and . _ - + is in single quotes, with backslashes before quotes and
backslashes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from core.attention import AXES, AttentionConfig, Choice, ConfigError
from core.entries import Value, complete

MAX_LENGTH = 8192  # signs of one mechanism in a link
MAX_DEPTH = 8  # masks made of masks made of masks
SIZES = {"d": "d_model", "h": "num_heads", "dropout": "dropout"}
PLAIN = AttentionConfig()
NEXT, DEFAULT = (
    ";",
    "kernel=exact",
)  # between the attentions of a pattern; the text of one with the default choices

_BARE = re.compile(r"[A-Za-z0-9._+-]+")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def to_text(config: AttentionConfig, sizes: bool = True) -> str:
    """The config as text: sizes, unless left out, and each choice that is not the default."""
    words = [f"d={config.d_model}", f"h={config.num_heads}"] if sizes else []
    if config.dropout:
        words.append(f"dropout={_value(config.dropout)}")
    for axis in AXES:
        choice = getattr(config, axis)
        if choice != getattr(PLAIN, axis):
            words.append(f"{axis}={choice_text(choice, axis)}")
    return " ".join(words)


def from_text(text: str, sizes: tuple[int, int] | None = None) -> AttentionConfig:
    """The config of such a text, with `sizes` (d_model, heads) for one without any; ConfigError for an invalid one."""
    reader = _Reader(text)
    config = _config(reader, sizes)
    if not reader.ended:
        raise reader.error("expected an axis or the end")
    return config


def pattern_to_text(configs: Iterable[AttentionConfig]) -> str:
    """Several configs without their sizes, between semicolons."""
    return NEXT.join(to_text(config, sizes=False) or DEFAULT for config in configs)


def pattern_from_text(text: str, sizes: tuple[int, int]) -> tuple[AttentionConfig, ...]:
    """The configs of such a text; ConfigError for an invalid one."""
    reader = _Reader(text)
    configs = [_config(reader, sizes)]
    while not reader.ended:
        reader.take(NEXT)
        reader.skip()
        configs.append(_config(reader, sizes))
    return tuple(configs)


def _config(reader: _Reader, sizes: tuple[int, int] | None) -> AttentionConfig:
    """The config from where the reader is to the next semicolon or the end."""
    values: dict[str, Any] = {}
    defaults = {} if sizes is None else dict(zip(("d_model", "num_heads"), sizes, strict=True))
    while not reader.ended and not reader.peek(NEXT):
        name = reader.word("d, h or an axis")
        reader.take("=")
        if name in values or (name not in SIZES and name not in AXES):
            expected = ", ".join([*SIZES, *AXES])
            raise reader.error(
                f"{name} occurs twice" if name in values else f"{name}: expected one of {expected}"
            )
        values[name] = reader.value() if name in SIZES else reader.choice()
    return AttentionConfig(
        **{**defaults, **{SIZES.get(name, name): value for name, value in values.items()}}
    )


def choice_text(choice: Choice, axis: str) -> str:
    """A choice with the parameters that are not at their entry's default, and its parts."""
    defaults = dict(complete(Choice(choice.key), AXES[axis], axis).params)
    inside = [choice_text(part, axis) for part in choice.parts]
    inside += [
        f"{name}={_value(value)}" for name, value in choice.params if defaults.get(name) != value
    ]
    return f"{choice.key}({','.join(inside)})" if inside else choice.key


def choice_from_text(text: str, axis: str) -> Choice:
    """The choice of such a text, completed and validated; ConfigError for an invalid one."""
    reader = _Reader(text)
    choice = reader.choice()
    if not reader.ended:
        raise reader.error("expected the end")
    return complete(choice, AXES[axis], axis)


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if _BARE.fullmatch(value) and value not in ("true", "false") and not _NUMBER.fullmatch(value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass
class _Reader:
    """A parser from left to right; its errors name the position and what was expected."""

    text: str
    at: int = 0

    def __post_init__(self) -> None:
        if len(self.text) > MAX_LENGTH:
            raise ConfigError(
                f"A mechanism in a link has at most {MAX_LENGTH:,} signs; "
                f"this one has {len(self.text):,}."
            )
        self.skip()

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    def error(self, why: str) -> ConfigError:
        nearby = self.text[max(0, self.at - 12) : self.at + 12]
        return ConfigError(
            f"A mechanism cannot be read at character {self.at + 1}, near {nearby!r}: {why}."
        )

    def skip(self) -> None:
        while not self.ended and self.text[self.at].isspace():
            self.at += 1

    def take(self, sign: str) -> None:
        if not self.peek(sign):
            raise self.error(f"expected {sign}")
        self.at += 1

    def peek(self, sign: str) -> bool:
        return not self.ended and self.text[self.at] == sign

    def word(self, expected: str) -> str:
        match = _BARE.match(self.text, self.at)
        if match is None:
            raise self.error(f"expected {expected}")
        self.at = match.end()
        return match.group()

    def choice(self, depth: int = 0) -> Choice:
        if depth > MAX_DEPTH:
            raise self.error(f"choices are nested more than {MAX_DEPTH} deep")
        key = self.word("a choice's key")
        parts: list[Choice] = []
        params: dict[str, Value] = {}
        if self.peek("("):
            self.at += 1
            while not self.peek(")"):
                self.argument(parts, params, depth)
                if not self.peek(")"):
                    self.take(",")
            self.at += 1
        if not depth:
            self.skip()
        return Choice.of(key, *parts, **params)

    def argument(self, parts: list[Choice], params: dict[str, Value], depth: int) -> None:
        """Either name=value, or a part."""
        start, name = self.at, self.word("a parameter or a part")
        if self.peek("="):
            self.at += 1
            if name in params:
                raise self.error(f"{name} occurs twice")
            params[name] = self.value()
            return
        self.at = start
        parts.append(self.choice(depth + 1))

    def value(self) -> Value:
        if self.peek("'"):
            return self.quoted()
        word = self.word("a value")
        self.skip()
        if word in ("true", "false"):
            return word == "true"
        if _NUMBER.fullmatch(word):
            number = float(word)
            return (
                int(word)
                if re.fullmatch(r"[+-]?\d+", word) and len(word) < 20
                else _finite(number, word)
            )
        return word

    def quoted(self) -> str:
        out, self.at = [], self.at + 1
        while not self.peek("'"):
            if self.peek("\\"):
                self.at += 1
            if self.ended:
                raise self.error("expected a closing quote")
            out.append(self.text[self.at])
            self.at += 1
        self.at += 1
        return "".join(out)


def _finite(number: float, word: str) -> float:
    if not math.isfinite(number):
        raise ConfigError(f"{word[:40]} is too large a number.")
    return number
