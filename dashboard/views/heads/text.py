"""Sentences, numbers in equations, and tables of the page Heads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core import analysis
from core.attention import entry
from dashboard.charts.numbers import byte_size, number
from dashboard.components.multiples import MINUS
from dashboard.views.heads.compute import CacheSize, Split, TwoMaps
from dashboard.views.heads.controls import Controls
from dashboard.widgets.panels import plain

BYTES = 4  # of a number, fp32
COUNTS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}
SPLIT_HEAD = ["heads", "size of each", "parameters", "entropy", "distance", "in common"]
SHARED_HEAD = ["keys and values", "numbers a token", "bytes held", "parameters", "in common"]

Cell = tuple[int, int]


def map_note(split: Split, head: int) -> str:
    """The entropy of a head's rows, and the mean distance of its keys."""
    weights = split.weights[head:head + 1]
    return f"{number(analysis.entropy(weights).mean())} nats · {number(analysis.mean_distance(weights)[0])} away"


def split_fact(controls: Controls, one: Split, many: Split, cell: Cell) -> str:
    row, column = cell
    words = f":primary[{plain(controls.tokens[row])}]", plain(controls.tokens[column])
    single = number(one.weights[0, row, column])
    if many.heads == 1 or many.overlap is None:
        return f"One head has one map: {words[0]} gives {words[1]} **{single}**, whatever else it might look for."
    weights = many.weights[:, row, column]
    return (f"{words[0]} gives {words[1]} **{number(weights.max())}** in head {int(weights.argmax())} and "
            f"**{number(weights.min())}** in head {int(weights.argmin())}; one head gives it {single}. With the same "
            f"{many.parameters:,} numbers {COUNTS[many.heads]} heads look in {COUNTS[many.heads]} ways: two of "
            f"them share {number(many.overlap)} of their weight.")


def split_rows(controls: Controls, splits: Sequence[Split]) -> list[list[str]]:
    """One row for each number of heads, in the order of SPLIT_HEAD."""
    return [[str(each.heads), str(controls.d_model // each.heads), f"{each.parameters:,}", number(each.entropy),
             number(each.distance), _optional(each.overlap)] for each in splits]


def split_conditions(controls: Controls) -> str:
    even = math.log(len(controls.tokens))
    return " ".join([
        "Every row of the table is one layer: the same four learned maps, only cut differently. Nats are a row's "
        f"entropy (even weight on {len(controls.tokens)} words would be {number(even)}); away is in words; in common "
        f"is the weight that two heads put on the same words. Weights and words are random (seed {controls.seed}), so "
        "the arithmetic is real and the preference means nothing yet.", *controls.notes])


def projection_name(cache: CacheSize) -> str:
    return entry("projection", cache.config.projection.key).name


def shared_fact(controls: Controls, caches: Sequence[CacheSize]) -> str:
    many, grouped, one, latent = caches
    heads = "1 shared key head" if controls.kv_heads == 1 else f"{controls.kv_heads} shared key heads"
    sizes = (f"Of {controls.length:,} tokens multi-head attention holds **{byte_size(many.bytes)}** a layer; {heads} "
             f"{byte_size(grouped.bytes)}, a single one {byte_size(one.bytes)}, a latent vector with its turned key "
             f"{byte_size(latent.bytes)}.")
    if many.overlap is None or one.overlap is None:
        return sizes
    return (f"{sizes} With one key head for all, two heads share **{number(one.overlap)}** of their weight instead of "
            f"{number(many.overlap)}: they look {'more' if one.overlap > many.overlap else 'less'} alike.")


def shared_rows(caches: Sequence[CacheSize]) -> list[list[str]]:
    """One row for each projection, in the order of SHARED_HEAD."""
    return [[projection_name(each), f"{each.numbers:,}", f"{each.bytes:,}", f"{each.parameters:,}",
             _optional(each.overlap)] for each in caches]


def shared_conditions(controls: Controls, caches: Sequence[CacheSize]) -> str:
    equal = all(each.bytes == BYTES * each.numbers * controls.length for each in caches)
    formula = "as many as the formula says" if equal else "not as many as the formula says"
    return " ".join([
        f"Bytes are those of the tensors that were held of {controls.length:,} random tokens, fp32, one layer, "
        f"{formula}; a number has {BYTES}. Shared key heads are the means of the multi-head layer's, as grouped-query "
        "models are made from one; latent attention has weights of its own, and a turned key beside the latent vector. "
        "In common is the weight that two heads put on the same words. "
        f"Seed {controls.seed}.", *controls.notes])


def subtract_fact(controls: Controls, maps: TwoMaps, cell: Cell) -> str:
    row, column = cell
    first, second = maps.first[row, column], maps.weight * maps.second[row, column]
    negative, cells = int((maps.difference < 0).sum()), maps.difference.size
    least = int(maps.difference[row].argmin())
    lowest = maps.difference[row, least]
    other = (f"and takes **{number(-lowest)}** away from {plain(controls.tokens[least])}" if lowest < 0 else
             f"and {plain(controls.tokens[least])} least, {number(lowest)}")
    result = number(first - second)
    query, token = plain(controls.tokens[row]), plain(controls.tokens[column])
    return (f":primary[{query}] gives {token} {number(first)} {MINUS} {number(second)} = **{result}** {other}. The "
            f"two maps have {number(maps.common)} of their weight in common, and {negative} of {cells} weights fall "
            "below zero.")


def subtract_conditions(controls: Controls, maps: TwoMaps) -> str:
    half = controls.head_dim // 2
    start = f"0.8 {MINUS} 0.6·e^({MINUS}0.3·{controls.depth - 1}) = {number(maps.start)}"
    return " ".join([
        f"Each head has two queries and two keys of {half} numbers instead of one of {controls.head_dim}, and one "
        f"value. In layer {controls.depth} λ starts near {start} and is learned from there; what is left of a row sums "
        f"to 1 {MINUS} λ = {number(1 - maps.weight)}, and a norm of each head makes up for it. Weights and words are "
        f"random (seed {controls.seed}), so the arithmetic is real and the preference means nothing yet.",
        *controls.notes])


def _optional(value: float | None) -> str:
    return "–" if value is None else number(value)
