"""The short words around the picture: a stage's rule, the head of its numbers, and why a key is masked."""

from __future__ import annotations

import math
import re

from core.attention import AttentionConfig, Choice, entry
from dashboard.step_view import Reading, StageWords, number

_FRACTIONS = {0.5: "½", 0.25: "¼", 0.125: "⅛", 0.75: "¾"}
HEAD = 8  # a longer rule does not fit over a column, so the score's key stands there


def stage_words(config: AttentionConfig, reading: Reading, real: int | None, given: bool) -> tuple[StageWords, ...]:
    """Title, short name, rule and column head of the six stages."""
    rule = entry("score", config.score.key).short or config.score.key
    head = rule if len(rule) <= HEAD else config.score.key
    temperature = float(config.normalizer["temperature"])
    sharp = "" if temperature == 1 else f", τ = {plain(temperature)}"
    return (
        StageWords("Project", "q", project_rule(config, given), "k"),
        StageWords("Score", head, rule, head),
        StageWords("Scale + bias", *scale_words(config, reading)),
        StageWords("Mask", "mask", *mask_words(config, reading, real)),
        StageWords("Normalize", "softmax", "softmax" + sharp, "weight"),
        StageWords("Weigh values", "out", "Σ w·v", "weight × v"),
    )


def plain(value: float) -> str:
    if value in _FRACTIONS:
        return _FRACTIONS[value]
    if 0 < value < 1 and (1 / value).is_integer() and 1 / value <= 4096:
        return f"1/{1 / value:.0f}"
    return f"{value:.4g}".replace("-", "−")


def project_rule(config: AttentionConfig, given: bool) -> str:
    item = entry("projection", config.projection.key)
    source = "q given" if given else item.short or item.name
    return source + {"q, k": ", turned", "x": ", x + place"}.get(entry("position", config.position.key).enters, "")


def scale_words(config: AttentionConfig, reading: Reading) -> tuple[str, str, str]:
    """Short name, rule, column head."""
    rule, head = scale_rule(reading)
    if reading.bias is not None:
        rule = f"{rule}, + bias" if rule else "+ bias"
        slope = f"− {plain(slope_of(reading))}·distance" if config.position.key == "alibi" else "+ bias"
        head = f"{head} {slope}".strip()
    return "scale" if reading.bias is None else "+ bias", rule or "unchanged", head or "unchanged"


def scale_rule(reading: Reading) -> tuple[str, str]:
    """What the raw score is multiplied by, as a rule and with its number; √D is said where it is √D."""
    dims = reading.q.shape[1]
    if reading.scale == 1:
        return "", ""
    if is_root(reading):
        return f"÷ √{dims}", f"÷{plain(round(math.sqrt(dims), 2))}"
    return f"× {plain(reading.scale)}", f"×{plain(reading.scale)}"


def is_root(reading: Reading) -> bool:
    return math.isclose(reading.scale, reading.q.shape[1] ** -0.5)


def slope_of(reading: Reading) -> float:
    """What one step of distance costs this head, read from the bias itself."""
    at = np_argmax_distance(reading)
    distance = abs(at - reading.query)
    return 0.0 if distance == 0 else round(-float(reading.bias[reading.query, at]) / distance, 9)


def np_argmax_distance(reading: Reading) -> int:
    return max(range(len(reading.keys)), key=lambda j: abs(j - reading.query))


def mask_words(config: AttentionConfig, reading: Reading, real: int | None) -> tuple[str, str]:
    """Rule, and the question put to each key."""
    rule = mask_rule(config.mask, real)
    if config.mask.key == "none":
        return rule, rule
    return f"keep {rule}", re.sub(r"\bi\b", str(reading.query), rule) + " ?"


def mask_rule(mask: Choice, real: int | None) -> str:
    """A mask's rule in plain signs, with its own numbers; a composed one by its parts."""
    if mask.parts:
        parts = [mask_rule(part, real) for part in mask.parts]
        return f"not {parts[0]}" if mask.key == "not" else {"and": ", ", "or": " or "}[mask.key].join(parts)
    item = entry("mask", mask.key)
    return (item.short or item.name).format(**dict(mask.params), length=real)


def reasons(reading: Reading, config: AttentionConfig, real: int | None) -> dict[int, str]:
    """Why each masked key of the chosen query is masked."""
    return {j: reason(j, reading.query, config.mask, real) for j in range(len(reading.keys))
            if not reading.allowed[reading.query, j]}


def reason(j: int, i: int, mask: Choice, real: int | None) -> str:
    keys = {mask.key, *(part.key for part in mask.parts)}
    if real is not None and j >= real:
        return "padding"
    if "causal" in keys and j > i:
        return "comes later"
    return "too far" if "local" in keys else "masked"


__all__ = ["number", "reasons", "stage_words"]
