"""The short words around the picture: a stage's rule, the head of its numbers, and why a key is masked."""

from __future__ import annotations

import math

from core.attention import AttentionConfig
from dashboard.step_view import Reading, StageWords, number

_FRACTIONS = {0.5: "½", 0.25: "¼", 0.125: "⅛", 0.75: "¾"}
_SCORES = {"dot": "q·k", "scaled_dot": "q·k", "general": "q W k", "concat": "v tanh W[q; k]",
           "additive": "v tanh(W₁k + W₂q)"}
_SHORT = {"general": "q W k", "concat": "concat", "additive": "additive"}


def stage_words(config: AttentionConfig, reading: Reading, real: int | None, given: bool) -> tuple[StageWords, ...]:
    """Title, short name, rule and column head of the six stages."""
    score = config.score.key
    temperature = float(config.normalizer["temperature"])
    sharp = "" if temperature == 1 else f", τ = {plain(temperature)}"
    return (
        StageWords("Project", "q", project_rule(config, given), "k"),
        StageWords("Score", _SHORT.get(score, "q·k"), _SCORES[score], _SHORT.get(score, "q·k")),
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
    source = "q given" if given else "q = x" if config.projection.key == "identity" else "q = x W_q"
    if config.position.key == "rope":
        return source + ", turned"
    return source + (", x + place" if config.position.key in ("sinusoidal", "learned") else "")


def scale_words(config: AttentionConfig, reading: Reading) -> tuple[str, str, str]:
    """Short name, rule, column head."""
    dims = reading.q.shape[1]
    scaled, biased = reading.scale != 1, reading.bias is not None
    root = math.sqrt(dims)
    divided = f"÷{plain(round(root, 2))}" if scaled else ""
    rule = f"÷ √{dims}" if scaled else ""
    slope = slope_of(reading) if biased else 0.0
    if biased:
        rule = (rule + ", " if rule else "") + "+ bias"
        divided = f"{divided} − {plain(slope)}·distance".strip()
    return "+ bias" if biased else "scale", rule or "unchanged", divided or "unchanged"


def slope_of(reading: Reading) -> float:
    """What one step of distance costs this head, read from the bias itself."""
    at = np_argmax_distance(reading)
    distance = abs(at - reading.query)
    return 0.0 if distance == 0 else round(-float(reading.bias[reading.query, at]) / distance, 9)


def np_argmax_distance(reading: Reading) -> int:
    return max(range(len(reading.keys)), key=lambda j: abs(j - reading.query))


def mask_words(config: AttentionConfig, reading: Reading, real: int | None) -> tuple[str, str]:
    """Rule, and the question put to each key."""
    i, key = reading.query, config.mask.key
    if key == "causal":
        return "keep j ≤ i", f"j ≤ {i} ?"
    if key == "padding":
        return f"keep j < {real}", f"j < {real} ?"
    if key == "local":
        window = config.mask["window"]
        return f"keep |i − j| ≤ {window}", f"|{i} − j| ≤ {window} ?"
    if key == "and":
        window = config.mask.parts[1]["window"]
        return f"keep i − {window} ≤ j ≤ i", f"{i - window} ≤ j ≤ {i} ?".replace("-", "−")
    return "all keys", "all keys"


def reasons(reading: Reading, config: AttentionConfig, real: int | None) -> dict[int, str]:
    """Why each masked key of the chosen query is masked."""
    return {j: reason(j, reading.query, config.mask.key, real) for j in range(len(reading.keys))
            if not reading.allowed[reading.query, j]}


def reason(j: int, i: int, mask: str, real: int | None) -> str:
    if real is not None and j >= real:
        return "padding"
    return "comes later" if mask in ("causal", "and") and j > i else "too far"


__all__ = ["number", "reasons", "stage_words"]
