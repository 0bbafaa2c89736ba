"""Sentences, numbers in equations, and tables of the page Heads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from core.attention import entry
from core.interpret import trace as analysis
from dashboard.draw.formats import MINUS, byte_size, number
from dashboard.views.heads import minilm
from dashboard.views.heads.compute import CacheSize, Split, TwoMaps
from dashboard.views.heads.controls import Controls
from dashboard.widgets.panels import plain

BYTES = 4  # of a number, fp32
SPLIT_HEAD = ["heads", "size of each", "parameters", "entropy", "distance", "overlap"]
HEAD_HEAD = ["head", "entropy", "distance"]
SHARED_HEAD = [
    "keys and values",
    "numbers per token",
    "bytes in the cache",
    "parameters",
    "overlap",
]
RANDOM = (
    "Weights and word vectors are random (seed {}). Every number is computed, but which word gets more weight "
    "has no meaning before training."
)

SHARED_SYMBOLS = (
    "The numbers that multi-head, grouped-query, multi-query and latent attention store for a token. H "
    "is the count of query heads, G of heads of keys and values, D the count of numbers in a head, R "
    "that in a latent vector and R_rope that in its rotated key."
)
ABOUT_MINILM = (
    "MiniLM is a small trained model that turns a sentence into a vector, for search. It has "
    f"{minilm.LAYERS} layers: each is one attention with {minilm.HEADS} heads and a feed-forward network, "
    "and reads the vectors that the layer before it put out."
)

Cell = tuple[int, int]


def head_rows(split: Split) -> list[list[str]]:
    """One row for each head, in the order of HEAD_HEAD."""
    entropy, distance = (
        analysis.entropy(split.weights).mean(1),
        analysis.mean_distance(split.weights),
    )
    return [
        [str(head), number(entropy[head]), number(distance[head])] for head in range(split.heads)
    ]


def conditions(controls: Controls) -> str:
    """Where the weights come from."""
    if controls.layer is None:
        return RANDOM.format(controls.seed)
    saved = f", saved on {minilm.saved_on()}" if controls.text == minilm.TEXT else ""
    return (
        f"Queries, keys and values are those of layer {controls.layer} of all-MiniLM-L6-v2, a trained model with "
        f"{minilm.HEADS} heads{saved}."
    )


def joined(lengths: np.ndarray, word: str) -> str:
    """Which head adds most to a word's new vector, and which least; `lengths` (H,)."""
    if len(lengths) == 1:
        return f"The one head makes the whole new vector of “{plain(word)}”: its part has length {number(lengths[0])}."
    most, least = int(lengths.argmax()), int(lengths.argmin())
    return (
        f"Each bar is the length of $A_h V_h W_{{o,h}}$ in the row of “{plain(word)}”. Head {most} adds most, "
        f"{number(lengths[most])}, and head {least} least, {number(lengths[least])}. The sum of the {len(lengths)} "
        "parts, with a bias, is what attention puts out for this word."
    )


def split_fact(controls: Controls, one: Split, many: Split, cell: Cell) -> str:
    row, column = cell
    words = f":primary[{plain(controls.tokens[row])}]", f"“{plain(controls.tokens[column])}”"
    single = number(one.weights[0, row, column])
    trained = (
        ""
        if controls.layer is None
        else f" (MiniLM was trained with {minilm.HEADS} heads, not with one)"
    )
    if many.heads == 1:
        return f"One head has one map: {words[0]} gives {words[1]} **{single}**."
    weights = many.weights[:, row, column]
    return (
        f"{words[0]} gives {words[1]} **{number(weights.max())}** in head {int(weights.argmax())} and "
        f"**{number(weights.min())}** in head {int(weights.argmin())}. One head "
        f"gives it {single}{trained}."
    )


def jobs(many: Split, tokens: Sequence[str]) -> str:
    """What MiniLM and a layer are, the column that most heads attend to, and the head that reads the token before."""
    first = many.weights.mean(1).argmax(1) == 0
    share = number(many.weights[first, :, 0].mean()) if first.any() else "0"
    sentences = [
        f"The first column is {tokens[0]}, a token that MiniLM puts before every text. In "
        f"{int(first.sum())} of the {many.heads} heads it gets the largest share of any token, mean of all "
        f"rows ({share} on average in these heads): a head often attends to it when no word fits."
    ]
    before = np.diagonal(many.weights, -1, 1, 2).mean(1)
    if before.max() > 0.5:
        sentences.append(
            f"Head {int(before.argmax())} attends to the token before ({number(before.max())})."
        )
    return " ".join([ABOUT_MINILM, *sentences])


def split_rows(controls: Controls, splits: Sequence[Split]) -> list[list[str]]:
    """One row for each number of heads, in the order of SPLIT_HEAD."""
    return [
        [
            str(each.heads),
            str(controls.d_model // each.heads),
            f"{each.parameters:,}",
            number(each.entropy),
            number(each.distance),
            _optional(each.overlap),
        ]
        for each in splits
    ]


def split_conditions(controls: Controls) -> str:
    even = math.log(len(controls.tokens))
    return " ".join(
        [
            "Every row of the table is the same layer, divided into another number of heads. Entropy is in nats (uniform "
            f"weights on {len(controls.tokens)} words have {number(even)}), the distance from query to key in words. "
            f"Overlap is the weight that two heads put on the same words. {conditions(controls)}",
            *controls.notes,
        ]
    )


def projection_name(cache: CacheSize) -> str:
    return entry("projection", cache.config.projection.key).name


def cache_note(cache: CacheSize, real: bool) -> str:
    """The numbers cached for each token; a trained model has no weights for latent attention."""
    random = real and cache.config.projection.key == "latent"
    return (
        f"{cache.numbers} per token, random weights"
        if random
        else f"{cache.numbers} numbers per token"
    )


def shared_fact(controls: Controls, caches: Sequence[CacheSize]) -> str:
    many, grouped, one, _ = caches
    heads = "1 shared KV head" if controls.kv_heads == 1 else f"{controls.kv_heads} shared KV heads"
    sizes = (
        f"For {controls.length:,} tokens multi-head attention caches **{byte_size(many.bytes)}** in each layer, "
        f"{heads} {byte_size(grouped.bytes)}, and a single one {byte_size(one.bytes)}."
    )
    if many.overlap is None or one.overlap is None:
        return sizes
    more = "more" if one.overlap > many.overlap else "less"
    return (
        f"{sizes} With one KV head for all, two heads have **{number(one.overlap)}** of their weight on the same "
        f"words instead of {number(many.overlap)}: their maps are {more} similar."
    )


def shared_rows(caches: Sequence[CacheSize]) -> list[list[str]]:
    """One row for each projection, in the order of SHARED_HEAD."""
    return [
        [
            projection_name(each),
            f"{each.numbers:,}",
            f"{each.bytes:,}",
            f"{each.parameters:,}",
            _optional(each.overlap),
        ]
        for each in caches
    ]


def shared_conditions(controls: Controls, caches: Sequence[CacheSize]) -> str:
    equal = all(each.bytes == BYTES * each.numbers * controls.length for each in caches)
    formula = "as many as the formula says" if equal else "not as many as the formula says"
    return " ".join(
        [
            f"Bytes are measured on the cached tensors of {controls.length:,} random tokens in one layer, fp32, {formula}; "
            f"a number has {BYTES} bytes. Shared heads are the means of the multi-head layer's heads, as when a "
            "grouped-query model is made from a multi-head model. Latent attention has its own random weights and a "
            "rotated key next to the latent vector. Overlap is the weight that two heads put on the same words. "
            f"{conditions(controls)}",
            *controls.notes,
        ]
    )


def subtract_fact(controls: Controls, maps: TwoMaps, cell: Cell) -> str:
    row, column = cell
    first, second = maps.first[row, column], maps.weight * maps.second[row, column]
    negative, cells = int((maps.difference < 0).sum()), maps.difference.size
    least = int(maps.difference[row].argmin())
    lowest = maps.difference[row, least]
    other = (
        f"and its lowest weight, **{number(lowest)}**, to “{plain(controls.tokens[least])}”"
        if lowest < 0
        else f"and its lowest weight, {number(lowest)}, to “{plain(controls.tokens[least])}”"
    )
    result = number(first - second)
    query, token = plain(controls.tokens[row]), plain(controls.tokens[column])
    return (
        f":primary[{query}] gives “{token}” {number(first)} {MINUS} {number(second)} = **{result}** {other}. The "
        f"two maps have {number(maps.common)} of their weight on the same keys, and {negative} of {cells} weights "
        "are below 0."
    )


def subtract_conditions(controls: Controls, maps: TwoMaps) -> str:
    half = controls.head_dim // 2
    start = f"0.8 {MINUS} 0.6·e^({MINUS}0.3·{controls.depth - 1}) = {number(maps.start)}"
    return " ".join(
        [
            f"Each head has two queries and two keys of {half} numbers instead of one of {controls.head_dim}, and one "
            f"value. λ depends on the layer set above, which is counted from 1: in layer {controls.depth} it starts near "
            f"{start} and is then learned. A row has the sum 1 {MINUS} λ = {number(1 - maps.weight)}; a norm "
            f"in each head corrects this. {conditions(controls)}",
            *[
                "MiniLM was not trained to subtract: its query and key are divided into two halves here."
            ]
            * (controls.layer is not None),
            *controls.notes,
        ]
    )


def _optional(value: float | None) -> str:
    return "–" if value is None else number(value)
