"""Labels of the picture: a stage's rule, the head of its numbers, and why a key is masked."""

from __future__ import annotations

import math
import re

import numpy as np

from core.attention import AttentionConfig, Choice, entry
from dashboard.components.step_view import Reading, StageTexts
from dashboard.views.one_query.choices import rule as rule_of

_FRACTIONS = {0.5: "½", 0.25: "¼", 0.125: "⅛", 0.75: "¾"}
HEAD = 8  # a longer rule does not fit over a column, so the score's name stands there
STRAIGHT = 1e-4  # how far a bias may be from a straight line of the distance and still be called one


def stage_words(config: AttentionConfig, reading: Reading, real: int | None, typed: bool) -> tuple[StageTexts, ...]:
    """Title, short name, rule and column head of the six stages."""
    rule = rule_of("score", config.score)
    head = rule if len(rule) <= HEAD else "score"
    name = entry("normalizer", config.normalizer.key).name.lower()
    folded = f", {rule_of('projection', config.projection)}" if reading.folded else ""
    factor = ", × factor" if reading.reweighed else ""
    return (
        StageTexts("Project", "q", project_rule(config, typed), "k"),
        StageTexts("Score", head, rule, head),
        StageTexts("Scale + bias", *scale_words(config, reading)),
        StageTexts("Mask", "mask", *mask_words(config, reading, real)),
        StageTexts("Normalize", name, name + changed(config.normalizer) + factor + folded, "weight"),
        StageTexts("Weigh values", "out", "Σ w·v" + (" + places" if reading.position_values is not None else ""),
                   "weight × v"),
    )


def changed(choice: Choice) -> str:
    """The parameters of a normalizer that are not at their usual value."""
    params = {param.key: param for param in entry("normalizer", choice.key).params}
    parts = [f", {params[name].name.lower()} {value_of(value)}" for name, value in choice.params
            if value != params[name].default]
    return "".join(parts)


def value_of(value: object) -> str:
    return plain(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def plain(value: float) -> str:
    if value in _FRACTIONS:
        return _FRACTIONS[value]
    if 0 < value < 1 and (1 / value).is_integer() and 1 / value <= 4096:
        return f"1/{1 / value:.0f}"
    return f"{value:.4g}".replace("-", "−")


def project_rule(config: AttentionConfig, typed: bool) -> str:
    source = "q given" if typed else rule_of("projection", config.projection)
    return source + {"q, k": ", turned", "x": ", x + place"}.get(entry("position", config.position.key).enters, "")


def scale_words(config: AttentionConfig, reading: Reading) -> tuple[str, str, str]:
    """Short name, rule, column head."""
    rule, head = scale_rule(reading)
    added = [word for word, there in (("+ bias", reading.bias is not None), ("adjusted", reading.adjusted)) if there]
    rule = ", ".join([rule] * bool(rule) + added)
    if reading.bias is not None:
        slope = slope_of(reading)
        head = f"{head} {'+ bias' if slope is None else f'− {plain(slope)}·distance'}".strip()
    if reading.adjusted:
        head = f"{head}, adjusted" if head else "adjusted"
    return added[-1] if added else "scale", rule or "unchanged", head or "unchanged"


def scale_rule(reading: Reading) -> tuple[str, str]:
    """What the raw score is multiplied by, as a rule and with its number; √D is said where it is √D."""
    dims = reading.q.shape[1]
    if reading.scale == 1:
        return "", ""
    if is_root(reading):
        return f"÷ √{dims}", f"÷{plain(round(math.sqrt(dims), 2))}"
    return f"× {plain(reading.scale)}", f"×{plain(reading.scale)}"


def is_root(reading: Reading) -> bool:
    return math.isclose(reading.scale, reading.q.shape[1] ** -0.5, rel_tol=1e-6)


def slope_of(reading: Reading) -> float | None:
    """What one step of distance costs this query, read from the bias itself; None where it is no straight line."""
    if reading.bias is None:
        return None
    row = reading.bias[reading.query]
    distance = np.abs(np.arange(len(row)) - reading.query)
    if not distance.any():
        return 0.0
    slope = round(-float(row[distance.argmax()]) / float(distance.max()), 9)
    return slope if np.allclose(row, -slope * distance, atol=STRAIGHT) and slope >= 0 else None


def mask_words(config: AttentionConfig, reading: Reading, real: int | None) -> tuple[str, str]:
    """Rule, and the question put to each key."""
    rule = rule_of("mask", config.mask, length=real)
    if config.mask.key == "none":
        return rule, rule
    return f"keep {rule}", re.sub(r"\bi\b", str(reading.query), rule) + " ?"


def reasons(reading: Reading, real: int | None) -> dict[int, str]:
    """Why each masked key of the chosen query is masked, as far as the row itself shows it."""
    allowed = reading.allowed[reading.query]
    visible = np.flatnonzero(allowed)
    return {j: reason(j, reading.query, visible, real) for j in range(len(allowed)) if not allowed[j]}


def reason(j: int, i: int, visible: np.ndarray, real: int | None) -> str:
    """Padding; later, where no later key is visible; too far, where visible keys end nearer; else masked."""
    if real is not None and j >= real:
        return "padding"
    if j > i and not (visible > i).any():
        return "comes later"
    near = i in visible and abs(j - i) > max((abs(int(n) - i) for n in visible if (n - i) * (j - i) >= 0), default=0)
    return "too far" if near else "masked"

