"""What a preset is: a published mechanism as six choices, and what it changed against the Transformer of 2017."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from core.attention.config import AXES, AttentionConfig, entry
from core.entries import Choice, Value

Choices = dict[str, Any]  # of an AttentionConfig: axis → choice or key
AXIS_NAMES = {
    "projection": "Projections",
    "score": "Scores",
    "position": "Positions",
    "mask": "Masks",
    "normalizer": "Normalizer",
    "kernel": "Kernel",
}
VASWANI: Choices = {"projection": "multi_head", "score": "scaled_dot", "position": "sinusoidal"}
JOINED = {"and": " and ", "or": " or "}


@dataclass(frozen=True)
class Preset:
    """A published mechanism: its six choices at any size, where it is from, and what it is for.

    `choices` says what differs from AttentionConfig's own; `fit(d_model, num_heads)` adds those whose numbers follow
    from the sizes. `heads` is how many it has unless told otherwise.
    """

    key: str
    name: str
    _: KW_ONLY
    paper: str
    year: int
    url: str
    choices: tuple[tuple[str, str | Choice], ...]
    meaning: str
    heads: int = 4
    fit: Callable[[int, int], Choices] = lambda d_model, num_heads: {}

    def config(self, d_model: int = 64, num_heads: int | None = None) -> AttentionConfig:
        """The preset at that size; ConfigError when the heads do not divide d_model, or a head is of no use to it."""
        heads = self.heads if num_heads is None else num_heads
        return AttentionConfig(d_model, heads, **Choices(self.choices) | self.fit(d_model, heads))

    def changed(self, d_model: int = 64, num_heads: int | None = None) -> tuple[str, ...]:
        """A sentence for each axis on which it differs from Vaswani 2017, and its own; nothing for that one itself."""
        own = self.config(d_model, num_heads)
        usual = AttentionConfig(own.d_model, own.num_heads, **VASWANI)
        sentences = {
            axis: sentence(axis, getattr(own, axis), getattr(usual, axis))
            for axis in AXES
            if getattr(own, axis) != getattr(usual, axis)
        }
        for axis in ("kernel", "projection"):
            if own.has(axis, "own positions") and (
                axis == "projection" or own.position.key == "none"
            ):
                sentences["position"] = (
                    f"{AXIS_NAMES['position']}: only those of {name(axis, getattr(own, axis))}."
                )
        return (*sentences.values(), self.meaning) if sentences else ()


def sentence(axis: str, own: Choice, usual: Choice) -> str:
    """How the choice on an axis differs from the usual one, and what it does, from the entries alone."""
    if own.key == usual.key and not own.parts:
        before, now = dict(usual.params), dict(own.params)
        changes = [
            words(axis, own.key, key, now[key], before[key])
            for key in now
            if now[key] != before[key]
        ]
        return f"{AXIS_NAMES[axis]}: {name(axis, own)}, {', '.join(changes)}."
    meaning = (
        entry(axis, own.key).meaning
        if not own.parts
        else " ".join(entry(axis, part.key).meaning for part in own.parts)
    )
    instead = "" if usual.key == "none" else f" instead of {name(axis, usual)}"
    return f"{AXIS_NAMES[axis]}: {name(axis, own, full=True)}{instead}. {meaning}"


def name(axis: str, choice: Choice, full: bool = False) -> str:
    """What a choice is called; in full with the parameters that its rule speaks of, or that are not the entry's own."""
    item = entry(axis, choice.key)
    if choice.parts:
        parts = [name(axis, part, full) for part in choice.parts]
        return f"not {parts[0]}" if choice.key == "not" else JOINED[choice.key].join(parts)
    values = dict(choice.params)
    own = [
        words(axis, choice.key, param.key, values[param.key])
        for param in item.params
        if param.key in values
        and (values[param.key] != param.default or f"{{{param.key}}}" in item.short)
    ]
    return f"{item.name} ({', '.join(own)})" if own and full else item.name


def words(axis: str, key: str, param: str, value: Value, before: Value | None = None) -> str:
    """A parameter and its value in words."""
    item = {item.key: item for item in entry(axis, key).params}[param]
    label = item.name[:1].lower() + item.name[1:]
    if isinstance(value, bool):
        return f"{'with' if value else 'without'} {label}"
    numbers = [
        item.label(one)
        if isinstance(one, str)
        else f"{one:,.0f}"
        if float(one).is_integer()
        else f"{one:g}"
        for one in (value, before)
        if one is not None
    ]
    return f"{label} {' instead of '.join(numbers)}"


def share_heads(
    queries: int, projection: str = "grouped_query", **more: Value
) -> Callable[[int, int], Choices]:
    """Key heads which serve that many queries each, or the nearest number that divides, in grouped-query heads or
    another projection that shares them."""

    def fit(d_model: int, num_heads: int) -> Choices:
        groups = max(1, num_heads // queries)
        fits = max(number for number in range(1, groups + 1) if num_heads % number == 0)
        return {"projection": Choice.of(projection, kv_heads=fits, **more)}

    return fit
