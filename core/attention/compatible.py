"""Which choices go together, found by constructing every pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.attention.config import AXES, AttentionConfig, entry
from core.entries import Choice, ConfigError

_LOCAL = Choice("causal"), Choice.of("local", window=2)
EXAMPLE_PARTS = {"and": _LOCAL, "or": _LOCAL, "not": (Choice("causal"),)}


@dataclass(frozen=True)
class Refusal:
    """A choice on another axis that does not go with the first, and the reason."""

    axis: str
    key: str
    reason: str


def example(axis: str, key: str, **params: Any) -> Choice:
    """The choice of that key with those parameters; a composed mask gets parts to compose."""
    return Choice.of(key, *(EXAMPLE_PARTS.get(key, ()) if axis == "mask" else ()), **params)


def config_with(choices: dict[str, Any], d_model: int = 64, num_heads: int = 4) -> AttentionConfig:
    """The default config with those choices, axis → Choice or key; ConfigError where they do not fit."""
    return AttentionConfig(d_model, num_heads, **choices)


def refusals(axis: str, key: str, d_model: int = 64, num_heads: int = 4) -> tuple[Refusal, ...]:
    """The choices on other axes, with default parameters, that do not go with this one at those sizes."""
    refused = []
    for other, entries in AXES.items():
        if other == axis:
            continue
        for item in entries:
            try:
                config_with(
                    {axis: example(axis, key), other: example(other, item.key)}, d_model, num_heads
                )
            except ConfigError as reason:
                refused.append(Refusal(other, item.key, str(reason)))
    return tuple(refused)


def needs(axis: str, key: str) -> dict[str, str]:
    """What a choice needs where the default config does not fit: axis → the first key that does."""
    try:
        config_with({axis: example(axis, key)})
        return {}
    except ConfigError:
        pass
    for other, entries in AXES.items():
        for item in entries if other != axis else ():
            try:
                config_with({axis: example(axis, key), other: example(other, item.key)})
                return {other: item.key}
            except ConfigError:
                continue
    raise ConfigError(
        f"{axis} = {key} ({entry(axis, key).name}) goes with nothing; its refuse is too strict."
    )
