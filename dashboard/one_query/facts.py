"""What is seen, in words: one measured sentence a stage, and the conditions under which it holds."""

from __future__ import annotations

import numpy as np

from dashboard.step_view import Reading, number
from dashboard.step_view.payload import MAP_CELLS

Parts = list[list[str]]  # [text, style]; style "", "pick" or "strong"
_MARKS = {".": "the full stop", ",": "the comma", "?": "the question mark", "!": "the exclamation mark",
          ";": "the semicolon", ":": "the colon"}


def say(token: str) -> str:
    return _MARKS.get(token, token)


def capital(text: str, token: str) -> str:
    """A mark's name opens a sentence with a capital; a token stays as it was typed."""
    return text[0].upper() + text[1:] if token in _MARKS else text


def fact(reading: Reading, stage: int, whys: dict[int, str]) -> Parts:
    """The sentence of the stage; where no key may be seen, that."""
    if not np.isfinite(reading.out[reading.query]).all():
        return [[reading.name, "pick"], [" has an output that is not a number: the sizes are beyond float32.", ""]]
    if not reading.sees:
        return [[reading.name, "pick"], [" sees no key: every weight is 0 and its output is 0.", ""]]
    return (project, score, scale, mask, normalize, weigh)[stage - 1](reading, whys)


def project(reading: Reading, whys: dict[int, str]) -> Parts:
    lengths = np.linalg.norm(reading.k, axis=1)
    longest = int(lengths.argmax())
    size = float(np.linalg.norm(reading.q[reading.query]))
    text = (f" asks with {reading.q.shape[1]} numbers of length {number(size)}; "
            f"the longest key is {say(reading.keys[longest])}’s, {number(lengths[longest])}.")
    return [[reading.name, "pick"], [text, ""]]


def score(reading: Reading, whys: dict[int, str]) -> Parts:
    raw = reading.raw[reading.query]
    top = int(raw.argmax())
    rest = f"; the mean over {raw.size} keys is {number(raw.mean())}." if raw.size > 1 else "; there is no other key."
    return [[reading.name, "pick"], [f" meets {say(reading.keys[top])} with the highest score, ", ""],
            [number(raw[top]), "strong"], [rest, ""]]


def scale(reading: Reading, whys: dict[int, str]) -> Parts:
    raw, scores = reading.raw[reading.query], reading.scores[reading.query]
    if reading.scale == 1 and reading.bias is None:
        return [["Nothing is divided and nothing is added: the scores of ", ""], [reading.name, "pick"],
                [f" still spread over {number(np.ptp(raw))}.", ""]]
    done = []
    if reading.scale != 1:
        done.append(f"Dividing by {number(1 / reading.scale)}")
    if reading.bias is not None:
        done.append("the bias for distance" if done else "The bias for distance")
    verb = " bring" if len(done) == 2 else " brings"
    return [[" and ".join(done) + verb + " the spread of the scores of ", ""], [reading.name, "pick"],
            [f" from {number(np.ptp(raw))} to ", ""], [number(np.ptp(scores)), "strong"], [".", ""]]


def mask(reading: Reading, whys: dict[int, str]) -> Parts:
    hidden = len(reading.keys) - reading.sees
    if not hidden:
        return [[reading.name, "pick"], [f" may see all {len(reading.keys)} keys, so nothing is removed.", ""]]
    softmax = np.exp(reading.scores[reading.query] - reading.scores[reading.query].max())
    lost = float(softmax[list(whys)].sum() / softmax.sum())
    return [["The mask takes ", ""], [f"{hidden} of {len(reading.keys)}", "strong"], [" keys from ", ""],
            [reading.name, "pick"], [f"; without it they would get {number(lost)} of the weight.", ""]]


def normalize(reading: Reading, whys: dict[int, str]) -> Parts:
    i, best = reading.query, reading.best
    top = int(reading.raw[i].argmax())
    parts = [[reading.name, "pick"], [" gives ", ""], [number(reading.weights[i, best]), "strong"]]
    target = "itself" if best == i and reading.queries == reading.keys else say(reading.keys[best])
    parts.append([f" to {target}" + ("." if not target.endswith(".") else ""), ""])
    named = capital(say(reading.keys[top]), reading.keys[top])
    high = number(reading.raw[i, top])
    if top == best:
        even = f" Even attention would give each of {reading.sees} keys {number(1 / reading.sees)}."
        return parts + [[even if reading.sees > 1 else " It is the only key it may see.", ""]]
    if top in whys:
        return parts + [[f" {named} scored highest, {high}, but {_because(whys[top])}, so the mask removes it.", ""]]
    if reading.bias is None:  # equal scores, split by rounding
        return parts + [[".", ""]] if not parts[-1][0].endswith(".") else parts
    cost = number(-reading.bias[i, top])
    return parts + [[f" {named} scored highest, {high}, but the bias takes {cost} for its distance.", ""]]


def _because(why: str) -> str:
    return {"padding": "is padding", "too far": "is too far"}.get(why, why)


def weigh(reading: Reading, whys: dict[int, str]) -> Parts:
    i, best = reading.query, reading.best
    size = float(np.linalg.norm(reading.out[i]))
    share = float(reading.weights[i, best])
    longest = float(np.linalg.norm(reading.v[reading.allowed[i]], axis=1).max())
    return [["The output of ", ""], [reading.name, "pick"], [" has length ", ""], [number(size), "strong"],
            [f"; {say(reading.keys[best])} enters it with weight {number(share)}. "
             f"The longest value it may see has {number(longest)}.", ""]]


def caption(seed: int, given: bool, config, notes: tuple[str, ...]) -> str:
    """The conditions, and whatever was cut."""
    if given and config.score.key in ("dot", "scaled_dot"):
        first = "Q, K and V are as given, so every number can be checked by hand."
    else:
        first = f"Weights are random (seed {seed}), so the arithmetic is real and the preference means nothing yet."
    return " ".join([first, *notes])


def window(reading: Reading) -> list[str]:
    """Said when the small maps cannot hold every token."""
    most, dims = MAP_CELLS, reading.q.shape[1]
    notes = []
    if max(len(reading.queries), len(reading.keys)) > most:
        longest = max(len(reading.queries), len(reading.keys))
        notes.append(f"The maps show {most} of {longest} tokens, those around the query.")
    if dims > most:
        notes.append(f"The first {most} of {dims} dimensions are drawn; all of them are in every number.")
    return notes
