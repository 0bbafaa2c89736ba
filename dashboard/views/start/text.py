"""The sentences of the page: attention in five of them, the stops of the path, and what the look-up returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboard.draw.formats import number
from dashboard.views.start.controls import NAMES, Controls

if TYPE_CHECKING:
    from dashboard.views.start.compute import Lookup  # which loads torch

LEAD = "Attention lets a model decide, for each word, how much to take from every other word."
SENTENCES = (
    "A translator without attention writes the whole translation from **one vector**. The longer the sentence, the "
    "more of it is lost.",
    "With **attention**, the translator reads every input word again at each step of its writing.",
    "Each step has a **query** and each input word a **key**: the better they match, the higher the word's score.",
    "**Softmax** turns the scores into **weights**: none is negative, and together they are 1.",
    "Each input word also has a **value**; the step receives the sum of all values, each times its weight.",
)
DICTIONARY = (
    "A dictionary returns the value of the key that is **equal** to the query. Attention returns **all** "
    "values, each times its weight. Change any number."
)


@dataclass(frozen=True)
class PathStop:
    """One of the six stops: its pages in order, its name and its sentence."""

    pages: tuple[str, ...]
    name: str
    sentence: str


PATH_STOPS = (
    PathStop(
        ("why",), "Why attention", "One vector loses long sentences; attention keeps them readable."
    ),
    PathStop(
        ("one_query",),
        "One query",
        "Follow one word from its query to its output, number by number.",
    ),
    PathStop(("heads",), "Heads", "Several heads read the same sentence in different ways."),
    PathStop(
        ("positions", "masks"),
        "Order",
        "Positions give attention the order of words; a mask hides later words.",
    ),
    PathStop(
        ("transformer",), "The Transformer", "Open a whole model and see where attention is in it."
    ),
    PathStop(("train",), "Train one", "Train a small model and watch its attention form."),
)


def mean_strongest(weights: Sequence[Sequence[float]]) -> str:
    """The mean of the output words' largest weights, and what uniform weights would be."""
    strongest = sum(max(row) for row in weights) / len(weights)
    return (
        f"Each output word has a strongest arrow. The mean weight of these {len(weights)} arrows is "
        f"**{number(strongest)}**; with uniform weights it would be {number(1 / len(weights[0]))}."
    )


def source_line(data: dict) -> str:
    """Where the weights of the picture come from."""
    return (
        f"Weights: cross-attention, layer {data['layer']}, head {data['head']}, of the lab's own number "
        f"translator, {data['date']}. \\<eos> marks the end of a sentence."
    )


def hard_text(controls: Controls, result: Lookup) -> str:
    """What a dictionary returns."""
    query = vector_text(controls.query)
    if result.equal is None:
        return f"**Hard look-up: nothing.** No key is equal to {query}."
    value = typed(controls.values[result.equal])
    return f"**Hard look-up: {value}.** Key {NAMES[result.equal]} is equal to {query}, so its value is returned."


def score_text(controls: Controls, result: Lookup) -> str:
    """How the last key's score comes about, with its numbers."""
    at = len(controls.keys) - 1
    terms = " + ".join(
        f"{typed(q)} · {typed(k)}" for q, k in zip(controls.query, controls.keys[at], strict=True)
    )
    return (
        f"**q · k** multiplies number by number and adds: for key {NAMES[at]}, {terms} = "
        f"{number(result.products[at])}. **÷ √2**, for 2 numbers: without it, longer vectors have larger scores."
    )


def soft_text(controls: Controls, result: Lookup) -> str:
    """What attention returns, with its sum."""
    terms = " + ".join(
        f"{number(weight)} · {typed(value)}"
        for weight, value in zip(result.weights, controls.values, strict=True)
    )
    return f"**Soft look-up: {number(result.output)}** ≈ {terms}"


def vector_text(values: tuple[float, ...]) -> str:
    """[1, 2]"""
    return f"[{', '.join(map(typed, values))}]"


def typed(value: float) -> str:
    """A number as the reader typed it: a whole one without decimals."""
    return number(value) if value % 1 else f"{value:.0f}".replace("-", "−")
