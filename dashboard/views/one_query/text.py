"""Labels of the picture: a stage's rule, the head of its numbers, and why a key is masked."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from core.attention import AttentionConfig, Choice, entry
from core.attention.positions import enters
from dashboard.draw.step_view import Reading, StageTexts

FRACTIONS = {0.5: "½", 0.25: "¼", 0.125: "⅛", 0.75: "¾"}
MAX_HEAD = 8  # a longer rule does not fit over a column, so "score" stands there
LINEAR_TOLERANCE = 1e-4  # within which a bias counts as linear in the distance


def stage_words(
    config: AttentionConfig, reading: Reading, real: int | None, typed: bool
) -> tuple[StageTexts, ...]:
    """Title, short name, rule and column head of the six stages."""
    source = "Q, K, V given" if typed else rule("projection", config.projection)
    places = enters(config.position)
    position = ", x + position" if "x" in places else ", rotated" if "q, k" in places else ""
    score = rule("score", config.score)
    head = score if len(score) <= MAX_HEAD else "score"
    name = entry("normalizer", config.normalizer.key).name.lower()
    folded = f", {rule('projection', config.projection)}" if reading.folded else ""
    factor = ", × factor" if reading.reweighed else ""
    return (
        StageTexts("Project", "q", source + position, "k"),
        StageTexts("Score", head, score, head),
        StageTexts("Scale + bias", *scale_words(reading)),
        StageTexts("Mask", "mask", *mask_words(config, reading, real)),
        StageTexts(
            "Normalize", name, name + changed(config.normalizer) + factor + folded, "weight"
        ),
        StageTexts(
            "Weigh values",
            "out",
            "Σ w·v" + (" + positions" if reading.position_values is not None else ""),
            "weight × v",
        ),
    )


def rule(axis: str, choice: Choice, **values: Any) -> str:
    """A choice's rule in plain signs with its parameters and further values; a composed one by its parts."""
    if choice.parts:
        parts = [rule(axis, part, **values) for part in choice.parts]
        return (
            f"not ({parts[0]})"
            if choice.key == "not"
            else {"and": ", ", "or": " or "}[choice.key].join(parts)
        )
    item = entry(axis, choice.key)
    return (item.short or item.name).format(**dict(choice.params), **values)


def changed(choice: Choice) -> str:
    """The parameters of a normalizer that are not at their default."""
    params = {param.key: param for param in entry("normalizer", choice.key).params}
    return "".join(
        f", {params[name].name.lower()} {value if isinstance(value, bool | str) else short_number(float(value))}"
        for name, value in choice.params
        if value != params[name].default
    )


def short_number(value: float) -> str:
    if value in FRACTIONS:
        return FRACTIONS[value]
    if 0 < value < 1 and (1 / value).is_integer() and 1 / value <= 4096:
        return f"1/{1 / value:.0f}"
    return f"{value:.4g}".replace("-", "−")


def scale_words(reading: Reading) -> tuple[str, str, str]:
    """Short name, rule, column head."""
    factor, head = scale_rule(reading)
    effects = ["+ bias"] * (reading.bias is not None) + ["adjusted"] * reading.adjusted
    if reading.bias is not None:
        slope = slope_of(reading)
        head = (
            f"{head} {'+ bias' if slope is None else f'− {short_number(slope)}·distance'}".strip()
        )
    if reading.adjusted:
        head = f"{head}, adjusted" if head else "adjusted"
    words = ", ".join([factor] * bool(factor) + effects) or "unchanged"
    return effects[-1] if effects else "scale", words, head or "unchanged"


def scale_rule(reading: Reading) -> tuple[str, str]:
    """What the raw score is multiplied by, as a rule (÷ √D where it is that) and as a number."""
    dims = reading.q.shape[1]
    if reading.scale == 1:
        return "", ""
    if is_root(reading):
        return f"÷ √{dims}", f"÷{short_number(round(math.sqrt(dims), 2))}"
    return f"× {short_number(reading.scale)}", f"×{short_number(reading.scale)}"


def is_root(reading: Reading) -> bool:
    return math.isclose(reading.scale, reading.q.shape[1] ** -0.5, rel_tol=1e-6)


def slope_of(reading: Reading) -> float | None:
    """What one step of distance takes from this query's scores, read from the bias; None where it is not linear."""
    if reading.bias is None:
        return None
    row = reading.bias[reading.query]
    distance = np.abs(np.arange(len(row)) - reading.query)
    if not distance.any():
        return 0.0
    slope = round(-float(row[distance.argmax()]) / float(distance.max()), 9)
    return (
        slope if np.allclose(row, -slope * distance, atol=LINEAR_TOLERANCE) and slope >= 0 else None
    )


def mask_words(config: AttentionConfig, reading: Reading, real: int | None) -> tuple[str, str]:
    """Rule, and the question put to each key."""
    text = rule("mask", config.mask, length=real)
    if config.mask.key == "none":
        return text, text
    return f"allow {text}", re.sub(r"\bi\b", str(reading.query), text) + " ?"


def reasons(reading: Reading, real: int | None) -> dict[int, str]:
    """Why each masked key of the picked query is masked, as far as the row itself shows it."""
    allowed = reading.allowed[reading.query]
    visible = np.flatnonzero(allowed)
    return {int(j): _reason(int(j), reading.query, visible, real) for j in np.flatnonzero(~allowed)}


def _reason(j: int, i: int, visible: np.ndarray, real: int | None) -> str:
    """Padding; later, where no later key is visible; too far, where visible keys end nearer; else masked."""
    if real is not None and j >= real:
        return "padding"
    if j > i and not (visible > i).any():
        return "comes later"
    near = i in visible and abs(j - i) > max(
        (abs(int(n) - i) for n in visible if (n - i) * (j - i) >= 0), default=0
    )
    return "too far" if near else "masked"
