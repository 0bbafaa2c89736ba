"""Side by side: names of mechanisms, its sentences of numbers, equations, and rows of the table."""

from collections.abc import Mapping, Sequence

import numpy as np

from core.attention import AXES, AttentionConfig, Entry, entry, preset
from core.attention.cost import ClosedFormCost, Measurement
from core.attention.presets import preset_of
from core.studies import compare as study
from dashboard.draw import formats
from dashboard.draw.attention_view import Tile
from dashboard.draw.components import Cell
from dashboard.draw.formats import choice_name, lower_name, number, plain, rule, share_text, written

PLAIN = AttentionConfig()
SAME_SHARE = 0.005  # a smaller difference of two shares is not written


def changed_axes(config: AttentionConfig) -> list[str]:
    return [axis for axis in AXES if getattr(config, axis) != getattr(PLAIN, axis)]


def name_of(config: AttentionConfig) -> str:
    """A mechanism's name: its one changed choice, else its preset, else all of its changed choices."""
    axes = changed_axes(config)
    if len(axes) == 1:
        return choice_name(axes[0], getattr(config, axes[0]))
    known = preset_of(config)
    if known not in (None, "self_attention"):  # which is named by its score
        return preset(known).name
    return " + ".join(choice_name(axis, getattr(config, axis)) for axis in axes) or "Dot product"


def names_of(configs: Sequence[AttentionConfig]) -> list[str]:
    """A name for each, with a number where an earlier one has the same."""
    names: list[str] = []
    for base in map(name_of, configs):
        numbered = (base, *(f"{base} {n}" for n in range(2, len(configs) + 1)))
        names.append(next(name for name in numbered if name not in names))
    return names


def heading_note(config: AttentionConfig) -> str:
    axes = changed_axes(config)
    if not axes:
        return f"softmax · {citation(entry('score', PLAIN.score.key))}"
    rules = [rule(axis, getattr(config, axis)) for axis in axes]
    known = preset_of(config)
    if known is not None and len(axes) > 1:
        return f"{preset(known).paper.removesuffix(' et al.')} {preset(known).year}"
    if len(axes) == 1:
        rules.append(citation(entry(axes[0], getattr(config, axes[0]).key)))
    return " · ".join(filter(None, rules)) or name_of(config)


def citation(item: Entry) -> str:
    # a person's own rule has none
    return f"{item.paper.removesuffix(' et al.')} {item.year}" if item.paper else ""


def spoken_name(config: AttentionConfig, name: str) -> str:
    """A mechanism within a sentence: "the dot product", "ALiBi", "the local window"."""
    axes, lowered = changed_axes(config), lower_name(name)
    if lowered == name or len(axes) > 1:
        return lowered
    if not axes:
        return f"the {lowered}"
    nouns = {"score": " score", "mask": "" if "window" in lowered else " mask", "kernel": " kernel"}
    return f"the {lowered}{nouns[axes[0]]}" if axes[0] in nouns else lowered


def fact_text(
    comparison: study.Comparison,
    names: Sequence[str],
    results: Sequence[study.MapResult],
    tokens: study.Tokens,
    cell: tuple[int, int],
) -> str:
    a, b = comparison.minus
    first, second = results[a], results[b]
    name_a, name_b = (
        spoken_name(comparison.mechanisms[a], names[a]),
        spoken_name(comparison.mechanisms[b], names[b]),
    )
    begin = name_a[:1].upper() + name_a[1:]
    even = study.MapResult(np.full(first.weights.shape, 1 / len(tokens.names))).near
    # a smaller difference does not show in three decimals
    if np.abs(first.weights - second.weights).max() < 5e-4:
        sentence = (
            f"{plain(begin)} and {plain(name_b)} give the same weights, with **{share_text(first.near)}** of the "
            f"weight within two tokens; uniform weights would take {share_text(even)}."
        )
    elif abs(first.near - second.near) > SAME_SHARE:
        sentence = (
            f"{plain(begin)} takes **{share_text(first.near)}** from within two tokens, {plain(name_b)} "
            f"**{share_text(second.near)}**; uniform weights would take {share_text(even)}."
        )
    else:
        sentence = (
            f"{plain(begin)} and {plain(name_b)} both take **{share_text(first.near)}** from within two "
            f"tokens; uniform weights would take {share_text(even)}."
        )
    shared = "".join(
        sharing(comparison.sized(comparison.mechanisms[at]), names[at]) for at in (a, b)
    )
    return f"{sentence}{shared} {_of_cell(first, second, name_a, name_b, tokens, cell)}"


def pair_text(
    comparison: study.Comparison, names: Sequence[str], results: Sequence[study.MapResult]
) -> str:
    """Where the two mechanisms of the difference take their weight from; why not, where one has negative weights."""
    (first, a), (second, b) = (
        (spoken_name(comparison.mechanisms[at], names[at]), results[at]) for at in comparison.minus
    )
    begin = plain(f"{first[:1].upper()}{first[1:]} against {second}")
    if a.distance is None or b.distance is None or a.entropy is None or b.entropy is None:
        return f"**{begin}**: negative weights have no mean distance and no entropy."
    flatter = "flatter" if a.entropy > b.entropy else "sharper"
    same = number(a.entropy) == number(b.entropy)
    return (
        f"**{begin}**: a query takes its weight from keys {number(a.distance)} tokens away on average, instead of "
        f"{number(b.distance)}; its weights are {'as flat' if same else flatter}, with an entropy of "
        f"{number(a.entropy)} nats instead of {number(b.entropy)}."
    )


GROUPED = "grouped_query", "multi_query"  # whose query heads share heads of keys


def sharing(config: AttentionConfig, name: str) -> str:
    """Which heads share keys; nothing where each has its own."""
    if config.kv_heads >= config.num_heads or config.projection.key not in GROUPED:
        return ""
    return (
        f" {plain(name)}: {config.num_heads} query heads share {formats.plural(config.kv_heads, 'head')} "
        "of keys and values."
    )


def _of_cell(
    first: study.MapResult,
    second: study.MapResult,
    name_a: str,
    name_b: str,
    tokens: study.Tokens,
    cell: tuple[int, int],
) -> str:
    i, j = cell
    query, key = f":primary[**{plain(tokens.names[i])}**]", f"“{plain(tokens.names[j])}”"
    now, before = float(first.weights[i, j]), float(second.weights[i, j])
    masked = is_hidden(first, i, j), is_hidden(second, i, j)
    if all(masked):
        return f"{query} may take from {key} in neither."
    if any(masked):
        blind, weight = (name_a, before) if masked[0] else (name_b, now)
        return (
            f"{query} may not take from {key} under {plain(blind)}; under the other, it takes "
            f"{share_text(weight)} from it."
        )
    if share_text(now) == share_text(before):
        return f"{query} takes {share_text(now)} from {key} in both."
    prefers = [int(each.weights[i].argmax()) == j for each in (first, second)]
    if not prefers[0]:
        return f"{query} takes {share_text(now)} from {key} instead of {share_text(before)}."
    still = "still" if prefers[1] else "now"
    return (
        f"{query} {still} takes most from {key}: {share_text(now)} instead of {share_text(before)}."
    )


def is_hidden(result: study.MapResult, i: int, j: int) -> bool:
    return result.mask is not None and not bool(result.mask[i, j])


def caption_text(
    comparison: study.Comparison,
    tokens: study.Tokens,
    results: Sequence[study.MapResult],
    names: Sequence[str],
) -> str:
    layer, head = comparison.layer_head
    if comparison.seeded:
        sentence = (
            f"{len(tokens.names)} tokens, d_model {comparison.d_model}, head {head} of {comparison.num_heads}; "
            f"parameters are random (seed {comparison.seed}), so the numbers are computed, but which key a query "
            "prefers has no meaning."
        )
    else:
        sentence = (
            f"{len(tokens.names)} tokens; queries, keys and values in every map are those of all-MiniLM-L6-v2, "
            f"L{layer}·H{head}. All other parameters of a mechanism are random (seed {comparison.seed})."
        )
    implied = [name for name, each in zip(names, results, strict=True) if each.implied]
    if implied:
        sentence += f" {plain(', '.join(implied))}: implied weights, which the kernel itself does not compute."
    signed = [name for name, each in zip(names, results, strict=True) if each.signed]
    if signed:
        sentence += f" {plain(', '.join(signed))}: weights may be negative; purple is negative, green positive."
    return " ".join([sentence, *tokens.notes])


def weight_latex(result: study.MapResult, query: str, key: str, cell: tuple[int, int]) -> str:
    i, j = cell
    pair = rf"{query} \to {key}:\quad"
    weight = f"w = {number(float(result.weights[i, j]))}"
    if is_hidden(result, i, j):
        return rf"{pair} s = -\infty,\quad w = 0"
    if result.products is None or result.scores is None:
        return f"{pair} {weight}"
    product, score = float(result.products[i, j]), float(result.scores[i, j])
    change, added = score - product, ""
    if abs(change) >= SAME_SHARE:
        sign = "+" if change > 0 else "-"
        added = f" {sign} {number(abs(change))} = {number(score)}"
    return rf"{pair} s = {number(product)}{added},\quad {weight}"


MISSING = "–"
HEAD = ("mechanism", "entropy", "distance", "time", "memory", "FLOPs", "parameters")


def table_row(
    name: str,
    result: study.MapResult,
    cost: ClosedFormCost | None,
    index: int,
    measurement: Measurement | None,
    first: int,
) -> list[str]:
    """One line; parameters as more or less than the first's, `first`, except in the first line."""
    time = memory = flops = parameters = MISSING
    if measurement is not None and not measurement.skipped:
        time = formats.duration(measurement.seconds)
        if cost and cost.dense:
            time = written(f"{time}¹", {", s": measurement.seconds})
        memory = formats.byte_size(measurement.bytes)
    if cost is not None:
        most, more = "≤ " if cost.at_most else "", cost.parameters - first
        flops = formats.operations(cost.flops)
        flops = flops if flops == formats.UNKNOWN else written(f"{most}{flops}", cost.flops)
        change = f"+ {more:,}" if more >= 0 else f"− {-more:,}"
        text = change if index else f"{cost.parameters:,}"
        parameters = written(text, {"": cost.parameters})
    entropy, distance = (
        MISSING if value is None else number(value) for value in (result.entropy, result.distance)
    )
    return [name, entropy, distance, time, memory, flops, parameters]


def flat_text(name: str, result: study.MapResult) -> str:
    """Why the map of a linear kernel is flat; "" for one that is not."""
    weights, even = result.weights, 1 / len(result.weights)
    if weights.max() >= 2 * even:
        return ""
    return (
        f"{plain(name)}: without softmax's exponential, similar scores give similar weights, "
        f"{share_text(weights.min())} to {share_text(weights.max())}, all near 1/{len(weights)} = {number(even)}."
    )


def difference_text(
    names: Sequence[str], first: study.MapResult, second: study.MapResult, cell: study.Pair
) -> str:
    difference = formats.rounded(float(first.weights[cell])) - formats.rounded(
        float(second.weights[cell])
    )
    return f"{names[0]} minus {names[1]}: {number(difference)} there"


def tiles(
    comparison: study.Comparison, names: Sequence[str], results: Sequence[study.MapResult]
) -> dict[int, Tile]:
    """The maps under their names and rules by the places of their mechanisms, which are their markers."""
    notes = [
        heading_note(config) + (" · implied" if each.implied else "")
        for config, each in zip(comparison.mechanisms, results, strict=True)
    ]
    return {
        at: Tile(names[at], notes[at], each.weights, each.mask, at)
        for at, each in enumerate(results)
        if not each.error
    }


def conditions(comparison: study.Comparison, threads: int, missing: bool) -> str:
    """Under what the costs of the table hold; `missing`: some times are."""
    d_model, heads = comparison.sizes
    text = (
        f"Costs at {comparison.length} tokens, d_model {d_model}, {heads} heads, float32, "
        f"{formats.plural(threads, 'CPU thread')}. Time and memory: the kernel's forward pass, median of "
        f"{study.ROUNDS} runs. FLOPs: its matrix products; a bias such as ALiBi's, or a mask, is computed anew in "
        "each run, cell by cell: time that these FLOPs leave out. Entropy is in nats; distance is the mean distance of the "
        "weight, in tokens."
    )
    return f"{text} Where a time is missing, press Measure." if missing else text


def script_cells(
    comparison: study.Comparison, results: Sequence[study.MapResult], tiles: Mapping[int, Tile]
) -> list[Cell]:
    """What the script measures of the recorded `maps`, and the difference of the two that are subtracted."""
    measured = [(each.entropy, each.distance) for each in results if each.entropy is not None]
    cells = [
        Cell(
            "Entropy (nats) and distance (tokens) of each map.\n"
            f"core.attention.cost.race(configs, [{comparison.length}]) measures time and memory here.",
            "measures = [(each.entropy, each.distance) for each in maps[1] if each.entropy is not None]\nprint(measures)",
            results={"measures": measured},
        )
    ]
    a, b = comparison.minus
    if a != b and a in tiles and b in tiles:
        cells.append(
            Cell(
                "The difference of two maps.",
                f"difference = maps[1][{a}].weights - maps[1][{b}].weights\nprint(abs(difference).max())",
                "from dashboard.show import show_maps\n\n"
                f"show_maps({{{f'{tiles[a].name} − {tiles[b].name}'!r}: difference}}, maps[0].names, maps[0].names)",
                "compare:apart",
                {"difference": results[a].weights - results[b].weights},
            )
        )
    return cells
