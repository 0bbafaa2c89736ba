"""A mechanism as a short text for a link, and back: only choices other than the default attention's are written."""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from core.attention.config import AXES, AttentionConfig
from core.entries import Choice, ConfigError, Value, complete, refuse_if

MAX_LENGTH = 8192  # signs of one mechanism in a link
MAX_DEPTH = 8  # masks made of masks made of masks
SIZES = {"d": "d_model", "h": "num_heads", "dropout": "dropout"}
PLAIN = AttentionConfig()
# between the attentions of a pattern; the text of one with the default choices
NEXT, DEFAULT = (";", "kernel=exact")

_WORD = re.compile(r"[A-Za-z0-9._+-]+")
_TOKEN = re.compile(rf"\s*('(?:[^'\\]|\\.)*+'?|{_WORD.pattern}|.|$)", re.DOTALL)
_VALUE = re.compile(rf"'(?:[^'\\]|\\.)*+'|{_WORD.pattern}", re.DOTALL)
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
    config, *more = pattern_from_text(text, sizes)
    refuse_if(more, "A mechanism cannot be read past its semicolon: expected an axis or the end.")
    return config


def pattern_to_text(configs: Iterable[AttentionConfig]) -> str:
    return NEXT.join(to_text(config, sizes=False) or DEFAULT for config in configs)


def pattern_from_text(text: str, sizes: tuple[int, int] | None) -> tuple[AttentionConfig, ...]:
    reader = _Reader(text)
    configs = [reader.config(sizes)]
    while reader.accept(NEXT):
        configs.append(reader.config(sizes))
    return tuple(configs)


def choice_text(choice: Choice, axis: str) -> str:
    """A choice with the parameters that are not at their entry's default, and its parts."""
    defaults = dict(complete(Choice(choice.key), AXES[axis], axis).params)
    inside = [
        *(choice_text(part, axis) for part in choice.parts),
        *(f"{name}={_value(one)}" for name, one in choice.params if defaults.get(name) != one),
    ]
    return f"{choice.key}({','.join(inside)})" if inside else choice.key


def choice_from_text(text: str, axis: str) -> Choice:
    """The choice of such a text, completed and validated; ConfigError for an invalid one."""
    reader = _Reader(text)
    choice = reader.choice()
    if reader.next:
        raise reader.error("expected the end")
    return complete(choice, AXES[axis], axis)


def _value(value: Value) -> str:
    if not isinstance(value, str):
        return repr(value).lower()
    if _WORD.fullmatch(value) and value not in ("true", "false") and not _NUMBER.fullmatch(value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


class _Reader:
    """A parser from left to right; its errors name the position and what was expected."""

    def __init__(self, text: str) -> None:
        refuse_if(
            len(text) > MAX_LENGTH,
            f"A mechanism in a link has at most {MAX_LENGTH:,} signs; this one has {len(text):,}.",
        )
        self.text = text
        self.move(0)

    def move(self, at: int) -> None:
        """Go on from a character: `next` is the next word, quoted text or sign, empty at the end."""
        token = next(_TOKEN.finditer(self.text, at))
        self.at, self.end, self.next = token.start(1), token.end(), token[1]

    def error(self, why: str) -> ConfigError:
        return ConfigError(
            f"A mechanism cannot be read at character {self.at + 1}, near "
            f"{self.text[max(0, self.at - 12) : self.at + 12]!r}: {why}."
        )

    def accept(self, sign: str) -> bool:
        fits = self.next == sign
        if fits:
            self.move(self.end)
        return fits

    def take(self, expected: str, fits: Callable[[str], object] = _WORD.fullmatch) -> str:
        token = self.next
        if not fits(token):
            raise self.error(f"expected {expected}")
        self.move(self.end)
        return token

    def config(self, sizes: tuple[int, int] | None) -> AttentionConfig:
        values: dict[str, Any] = {}
        while self.next not in ("", NEXT):
            name = self.take("d, h or an axis")
            if not self.accept("="):
                raise self.error("expected =")
            if name in values or name not in (*SIZES, *AXES):
                why = f"expected one of {', '.join([*SIZES, *AXES])}"
                raise self.error(f"{name} occurs twice" if name in values else f"{name}: {why}")
            values[name] = self.value() if name in SIZES else self.choice()
        d_model, num_heads = sizes or (PLAIN.d_model, PLAIN.num_heads)
        return AttentionConfig(
            **{
                "d_model": d_model,
                "num_heads": num_heads,
                **{SIZES.get(name, name): value for name, value in values.items()},
            }
        )

    def choice(self, depth: int = 0) -> Choice:
        """A choice with its arguments, each either name=value, or a part."""
        if depth > MAX_DEPTH:
            raise self.error(f"choices are nested more than {MAX_DEPTH} deep")
        key, parts, params = self.take("a choice's key"), list[Choice](), dict[str, Value]()
        if self.accept("("):
            while not self.accept(")"):
                start, name = self.at, self.take("a parameter or a part")
                if name in params:
                    raise self.error(f"{name} occurs twice")
                if self.accept("="):
                    params[name] = self.value()
                else:
                    self.move(start)
                    parts.append(self.choice(depth + 1))
                if self.next != ")" and not self.accept(","):
                    raise self.error("expected ,")
        return Choice.of(key, *parts, **params)

    def value(self) -> Value:
        word = self.take(
            "a closing quote" if self.next.startswith("'") else "a value", _VALUE.fullmatch
        )
        if word.startswith("'"):
            return re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL)
        if word in ("true", "false"):
            return word == "true"
        if not _NUMBER.fullmatch(word):
            return word
        if len(word) < 20 and word.lstrip("+-").isdigit():
            return int(word)
        refuse_if(math.isinf(float(word)), f"{word[:40]} is too large a number.")
        return float(word)
