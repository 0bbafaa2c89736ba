"""One measured sentence for each stage, the conditions under which it holds, and the sentence on √D."""

from __future__ import annotations

import math

import numpy as np

from core.attention import AttentionConfig, entry
from core.attention.positions import entries_of
from dashboard.draw.formats import number
from dashboard.draw.step_view import MAP_CELLS, Reading
from dashboard.views.one_query.compute import KEYS, Scaling

Parts = list[list[str]]  # [text, style]; style "", "pick" or "strong"
_MARKS = {
    ".": "the full stop",
    ",": "the comma",
    "?": "the question mark",
    "!": "the exclamation mark",
    ";": "the semicolon",
    ":": "the colon",
}
MIN_COST = 5e-3  # a smaller difference, which two decimals would not show, is not written
_REASONS = {
    "padding": "is padding, so ",
    "too far": "is too far, so ",
    "comes later": "comes later, so ",
}


def token_name(token: str) -> str:
    return _MARKS.get(token, token)


def fact(
    reading: Reading, config: AttentionConfig, stage: int, whys: dict[int, str], head: int = 0
) -> Parts:
    """The sentence of the stage, or of an output that is not finite or a query that sees no key."""
    if not np.isfinite(reading.out[reading.query]).all():
        return [
            [reading.name, "pick"],
            [" has an output that is not a number: the sizes are beyond float32.", ""],
        ]
    if not reading.sees:
        return [
            [reading.name, "pick"],
            [" may attend to no key: every weight is 0 and its output is 0.", ""],
        ]
    if stage == 1:
        return project(reading, config, head)
    return (score, scale, mask, normalize, weighted_sum)[stage - 2](reading, config, whys)


def project(reading: Reading, config: AttentionConfig, head: int) -> Parts:
    dims, i = reading.q.shape[1], reading.query
    size = number(float(np.linalg.norm(reading.q[i])))
    numbers = f"{dims} numbers" if dims > 1 else "1 number"
    if reading.queries != reading.keys:
        return [
            [reading.name, "pick"],
            [f" is a query of {numbers} with length ", ""],
            [size, "strong"],
            [f". It is compared with {len(reading.keys)} keys.", ""],
        ]
    key, value = (number(float(np.linalg.norm(part[i]))) for part in (reading.k, reading.v))
    text = (
        f", a key with length {key} and a value with length {value}. They come from one vector x and differ, "
        "because each has its own matrix."
    )
    if np.array_equal(reading.k[i], reading.v[i]):
        text = f" and a key with length {key}, which is also its value."
    return [
        [reading.name, "pick"],
        [f" has a query of {numbers} with length ", ""],
        [size, "strong"],
        [text + sharing(config, head), ""],
    ]


def sharing(config: AttentionConfig, head: int) -> str:
    """Which heads share the picked head's keys and values, where there are fewer of these."""
    group = config.num_heads // config.kv_heads
    if group <= 1:
        return ""
    first = head // group * group
    others = [str(n) for n in range(first, first + group) if n != head]
    named = (
        f"head {others[0]}"
        if len(others) == 1
        else f"heads {', '.join(others[:-1])} and {others[-1]}"
    )
    return (
        f" Head {head} shares key and value head {head // group} of {config.kv_heads} with {named}."
    )


def score(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    raw = reading.raw[reading.query]
    top = int(raw.argmax())
    rest = (
        f". The mean of its {raw.size} scores is {number(raw.mean())}."
        if raw.size > 1
        else ". It is the only key."
    )
    return [
        [reading.name, "pick"],
        [f" has its highest score with {token_name(reading.keys[top])}, ", ""],
        [number(raw[top]), "strong"],
        [rest, ""],
    ]


def scale(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    raw, scores = reading.raw[reading.query], reading.scores[reading.query]
    changes = []
    if reading.scale != 1:
        factor = reading.scale if reading.scale > 1 else 1 / reading.scale
        changes.append(f"{'multiplying' if reading.scale > 1 else 'dividing'} by {number(factor)}")
    if reading.bias is not None:
        changes.append(f"the bias of {position(config)}")
    if reading.adjusted:
        changes.append(f"the rule of {position(config)}")
    if not changes:
        return [
            ["Nothing is divided and nothing is added: the highest and the lowest score of ", ""],
            [reading.name, "pick"],
            [f" still differ by {number(np.ptp(raw))}.", ""],
        ]
    subject = " and ".join(changes)
    verb = "change" if len(changes) > 1 else "changes"
    return [
        [
            f"{subject[0].upper()}{subject[1:]} {verb} the difference between the highest and the lowest score of ",
            "",
        ],
        [reading.name, "pick"],
        [f" from {number(np.ptp(raw))} to ", ""],
        [number(np.ptp(scores)), "strong"],
        [".", ""],
    ]


def position(config: AttentionConfig) -> str:
    return " and ".join(item.name for item in entries_of(config.position))


def mask(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    hidden = len(reading.keys) - reading.sees
    if not hidden:
        allowed = f"all {len(reading.keys)} keys" if len(reading.keys) > 1 else "the only key"
        return [
            [reading.name, "pick"],
            [f" may attend to {allowed}, so the mask removes nothing.", ""],
        ]
    parts = [
        ["The mask removes ", ""],
        [f"{hidden} of {len(reading.keys)}", "strong"],
        [" keys for ", ""],
        [reading.name, "pick"],
    ]
    if not config.has("normalizer", "softmax"):
        return [*parts, [".", ""]]
    scores = reading.scores[reading.query] / float(config.normalizer["temperature"])
    softmax = np.exp(scores - scores.max())
    lost = float(softmax[list(whys)].sum() / softmax.sum())
    return [*parts, [f"; without the mask they would get {number(lost)} of the weight.", ""]]


def normalize(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    i, best = reading.query, reading.best
    top = int(reading.raw[i].argmax())
    target = (
        "itself"
        if best == i and reading.queries == reading.keys
        else token_name(reading.keys[best])
    )
    parts = [
        [reading.name, "pick"],
        [" gives ", ""],
        [number(reading.weights[i, best]), "strong"],
        [f" to {target}" + ("." if not target.endswith(".") else ""), ""],
    ]
    if reading.folded:
        first, *rest = (number(each[i, best]) for each in reading.normalized)
        return [
            *parts,
            [
                f" The first map gives it {first}, the second {', '.join(rest)}. Its row sums to "
                f"{number(reading.sum)}.",
                "",
            ],
        ]
    if not reading.sums_to_one:
        before = (
            f"; before the mask’s factor it was {number(float(reading.normalized[0][i].sum()))}"
        )
        return [
            *parts,
            [f" Its row sums to {number(reading.sum)}{before * reading.reweighed}.", ""],
        ]
    named = token_name(reading.keys[top])
    named = (
        named.capitalize() if reading.keys[top] in _MARKS else named
    )  # a token stays as it was typed
    high = number(reading.raw[i, top])
    if top == best:
        even = (
            f" Equal weights would be {number(1 / reading.sees)} for each of {reading.sees} keys."
        )
        return [*parts, [even if reading.sees > 1 else " It may attend to no other key.", ""]]
    if top in whys:
        why = _REASONS.get(whys[top], "")
        return [
            *parts,
            [f" {named} has the highest score, {high}, but {why}the mask removes it.", ""],
        ]
    cost = float(reading.raw[i, top] * reading.scale - reading.scores[i, top])
    if cost < MIN_COST:  # equal scores, split by rounding
        return parts
    return [
        *parts,
        [
            f" {named} has the highest score, {high}, but {position(config)} subtracts {number(cost)}.",
            "",
        ],
    ]


def weighted_sum(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    i, best = reading.query, reading.best
    size = float(np.linalg.norm(reading.out[i]))
    share = float(reading.weights[i, best])
    lengths = np.abs(reading.weights[i]) * np.linalg.norm(reading.v, axis=1)
    most = int(lengths.argmax())
    end = (
        f"The longest weighted value, weight × length of the value, is that of {token_name(reading.keys[most])}: "
        f"{number(float(lengths[most]))}."
    )
    if reading.position_values is not None:
        added = float(np.linalg.norm(reading.position_values[i]))
        end = f"What {position(config)} adds to the values has length {number(added)}."
    return [
        ["The output of ", ""],
        [reading.name, "pick"],
        [" has length ", ""],
        [number(size), "strong"],
        [
            f". The largest weight in it, {number(share)}, is that of {token_name(reading.keys[best])}. {end}",
            "",
        ],
    ]


def projection_note(reading: Reading) -> str:
    """How the drawn x, matrix and result of step 1 go together."""
    return (
        f"x is the vector of {reading.name}, a row that is drawn from top to bottom: each of its numbers stands "
        "beside the row of W that it multiplies. The products in a column add up to one number of q, k or v."
    )


def caption(seed: int, typed: bool, notes: tuple[str, ...]) -> str:
    """The conditions, and notes on what was cut or which steps are drawn."""
    first = (
        "Q, K and V are the typed ones, so every number can be checked by hand."
        if typed
        else (
            f"Word vectors and matrices are random (seed {seed}). Every number is computed, and rounded only where it "
            "is drawn, but which word gets more weight has no meaning before training."
        )
    )
    return " ".join(filter(None, [first, *notes]))


def window(reading: Reading) -> list[str]:
    """Notes on the tokens and dimensions that the small maps cannot hold."""
    tokens, dims = max(len(reading.queries), len(reading.keys)), reading.q.shape[1]
    notes = []
    if tokens > MAP_CELLS:
        notes.append(f"The maps show {MAP_CELLS} of {tokens} tokens, those around the query.")
    if dims > MAP_CELLS:
        notes.append(
            f"The first {MAP_CELLS} of {dims} dimensions are drawn; all of them are in every number."
        )
    return notes


def kernel_note(config: AttentionConfig) -> str:
    """Which kernel's steps are drawn, where another was picked."""
    item = entry("kernel", config.kernel.key)
    if item.key == "exact":
        return ""
    if "same" in item.traits:
        return f"The steps of the exact kernel are shown; kernel = {item.key} gives the same output without them."
    return (
        f"The steps of the exact kernel are shown; kernel = {item.key} computes other weights. "
        "The page Cost and speed shows them."
    )


def largest_fact(points: tuple[Scaling, ...]) -> str:
    """The largest weight of a query at the largest D, with and without √D."""
    last = points[-1]
    return (
        f"At D = {last.dims} one of {KEYS} keys gets **{number(last.largest)}** of the weight on average. After "
        f"÷ √{last.dims} it gets **{number(last.scaled_largest)}**."
    )


def scaling_fact(points: tuple[Scaling, ...]) -> str:
    """Variance and entropy at the largest D, with and without √D."""
    last, even = points[-1], math.log(KEYS)
    return (
        f"At D = {last.dims} the scores have variance {number(last.variance)}, and the entropy of the weights is "
        f"{number(last.entropy / even)} of that of uniform weights. After ÷ √{last.dims} the scores have variance "
        f"{number(last.scaled_variance)}, and the entropy is {number(last.scaled_entropy / even)}."
    )
