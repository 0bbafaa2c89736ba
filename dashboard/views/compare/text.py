"""Names of mechanisms, the measured fact, the conditions under which it holds, and a cell's equation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.attention import AXES, AttentionConfig, Choice, entry, preset
from core.entries import Entry
from dashboard.draw.formats import number, rule
from dashboard.views.compare.compute import MapResult, Tokens
from dashboard.views.compare.controls import Controls
from dashboard.widgets.mechanism_editor import preset_of
from dashboard.widgets.panels import plain

PLAIN = AttentionConfig()
PLAINEST = "Dot product"
JOINS = {"and": " and ", "or": " or "}
UNNAMED_PRESETS = ("self_attention",)  # named by its score
SAME_SHARE = 0.005  # a smaller difference of two shares is not written
SAME_CELL = 5e-4  # a smaller difference of two weights does not show in three decimals
SPOKEN = {
    "score": "the {} score",
    "mask": "the {} mask",
    "kernel": "the {} kernel",
    "position": "{}",
    "projection": "{}",
    "normalizer": "{}",
}


def changed_axes(config: AttentionConfig) -> list[str]:
    """The axes on which a mechanism is not plain dot-product attention."""
    return [axis for axis in AXES if getattr(config, axis) != getattr(PLAIN, axis)]


def name_of(config: AttentionConfig) -> str:
    """A mechanism's name: its one changed choice, else its preset, else all of its changed choices."""
    axes = changed_axes(config)
    if len(axes) == 1:
        return choice_name(axes[0], getattr(config, axes[0]))
    known = preset_of(config)
    if known is not None and known not in UNNAMED_PRESETS:
        return preset(known).name
    return " + ".join(choice_name(axis, getattr(config, axis)) for axis in axes) or PLAINEST


def choice_name(axis: str, choice: Choice) -> str:
    """An entry's name; of a composed mask, those of its parts."""
    if not choice.parts:
        return entry(axis, choice.key).name
    parts = [lower_name(choice_name(axis, part)) for part in choice.parts]
    name = f"not {parts[0]}" if choice.key == "not" else JOINS[choice.key].join(parts)
    return name[:1].upper() + name[1:]


def lower_name(name: str) -> str:
    """A name in the middle of a sentence: ALiBi, RoPE and Vaswani 2017 keep their letters."""
    return name.lower() if name == name.capitalize() else name


def names_of(configs: Sequence[AttentionConfig]) -> list[str]:
    """A name for each, with a number where an earlier one has the same."""
    names: list[str] = []
    for base in map(name_of, configs):
        numbered = (base, *(f"{base} {n}" for n in range(2, len(configs) + 1)))
        names.append(next(name for name in numbered if name not in names))
    return names


def heading_note(config: AttentionConfig) -> str:
    """The second line of a heading: the rule, and its paper and year."""
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
    return (
        f"{item.paper.removesuffix(' et al.')} {item.year}" if item.paper else ""
    )  # a person's own rule has none


def spoken(config: AttentionConfig, name: str) -> str:
    """A mechanism within a sentence: "the dot product", "ALiBi", "the local window"."""
    axes, lowered = changed_axes(config), lower_name(name)
    if lowered == name or len(axes) > 1:
        return lowered
    if not axes:
        return f"the {lowered}"
    article = SPOKEN[axes[0]].format(lowered)
    return article.removesuffix(" mask") if "window" in lowered else article


def fact(
    controls: Controls,
    names: Sequence[str],
    results: Sequence[MapResult],
    tokens: Tokens,
    cell: tuple[int, int],
) -> str:
    """Two sentences on the mechanisms whose difference is drawn: weight within two tokens, and the picked cell."""
    a, b = controls.minus
    first, second = results[a], results[b]
    name_a, name_b = (
        spoken(controls.mechanisms[a], names[a]),
        spoken(controls.mechanisms[b], names[b]),
    )
    begin = name_a[:1].upper() + name_a[1:]
    even = MapResult(np.full(first.weights.shape, 1 / len(tokens.names))).near
    if np.abs(first.weights - second.weights).max() < SAME_CELL:
        sentence = (
            f"{plain(begin)} and {plain(name_b)} give the same weights, with **{number(first.near)}** of the "
            f"weight within two tokens; uniform weights would put {number(even)} there."
        )
    elif abs(first.near - second.near) > SAME_SHARE:
        sentence = (
            f"{plain(begin)} puts **{number(first.near)}** of its weight within two tokens, {plain(name_b)} "
            f"**{number(second.near)}**; uniform weights would put {number(even)} there."
        )
    else:
        sentence = (
            f"{plain(begin)} and {plain(name_b)} both put **{number(first.near)}** of their weight within two "
            f"tokens; uniform weights would put {number(even)} there."
        )
    return f"{sentence} {_of_cell(first, second, name_a, name_b, tokens, cell)}"


def _of_cell(
    first: MapResult,
    second: MapResult,
    name_a: str,
    name_b: str,
    tokens: Tokens,
    cell: tuple[int, int],
) -> str:
    """The weight of the picked cell in both."""
    i, j = cell
    query, key = f":primary[**{plain(tokens.names[i])}**]", plain(tokens.names[j])
    now, before = float(first.weights[i, j]), float(second.weights[i, j])
    masked = hidden(first, i, j), hidden(second, i, j)
    if all(masked):
        return f"{query} cannot attend to {key} in either."
    if any(masked):
        blind, weight = (name_a, before) if masked[0] else (name_b, now)
        return f"{query} cannot attend to {key} under {plain(blind)}; under the other, it gives {key} {number(weight)}."
    if number(now) == number(before):
        return f"{query} gives {key} {number(now)} in both."
    prefers = [int(each.weights[i].argmax()) == j for each in (first, second)]
    if not prefers[0]:
        return f"{query} gives {key} {number(now)} instead of {number(before)}."
    return (
        f"{query} {'still' if prefers[1] else 'now'} gives {key} its largest weight: {number(now)} instead of "
        f"{number(before)}."
    )


def hidden(result: MapResult, i: int, j: int) -> bool:
    return result.mask is not None and not bool(result.mask[i, j])


def caption(
    controls: Controls, tokens: Tokens, results: Sequence[MapResult], names: Sequence[str]
) -> str:
    """Where queries, keys and weights are from, and which maps are implied or have negative weights."""
    layer, head = controls.layer_head
    if controls.seeded:
        sentence = (
            f"{len(tokens.names)} tokens, d_model {controls.d_model}, head {head} of {controls.num_heads}; "
            f"parameters are random (seed {controls.seed}), so the numbers are computed, but which key a query "
            "prefers has no meaning."
        )
    else:
        sentence = (
            f"{len(tokens.names)} tokens; queries, keys and values in every map are those of all-MiniLM-L6-v2, "
            f"L{layer}·H{head}. All other parameters of a mechanism are random (seed {controls.seed})."
        )
    implied = [name for name, each in zip(names, results, strict=True) if each.implied]
    if implied:
        sentence += f" {plain(', '.join(implied))}: implied weights, which the kernel itself does not compute."
    signed = [name for name, each in zip(names, results, strict=True) if each.signed]
    if signed:
        sentence += f" {plain(', '.join(signed))}: weights may be negative; purple is negative, green positive."
    return " ".join([sentence, *tokens.notes])


def shared_weights_text(
    shared: Sequence[str], own: Sequence[Sequence[str]], names: Sequence[str], seeded: bool
) -> str:
    """The weights that all mechanisms share, and those that each has alone."""
    alone = [
        f"{plain(name)}: {plain(', '.join(grouped(each)))}"
        for name, each in zip(names, own, strict=True)
        if each
    ]
    more = (
        f"Only one mechanism has these parameters: {'; '.join(alone)}."
        if alone
        else "No mechanism has parameters that another lacks."
    )
    if not seeded:
        return more
    common = plain(", ".join(grouped(shared)))
    return (
        f"All share the parameters {common}. {more}"
        if shared
        else f"They share no parameters. {more}"
    )


def grouped(names: Sequence[str]) -> list[str]:
    """projection.query.weight and projection.query.bias → projection.query."""
    return list(dict.fromkeys(name.removesuffix(".weight").removesuffix(".bias") for name in names))


def equation(result: MapResult, query: str, key: str, cell: tuple[int, int]) -> str:
    """The score and the weight of one cell as LaTeX, in numbers."""
    i, j = cell
    pair = rf"\text{{{tex(query)}}} \to \text{{{tex(key)}}}:\quad"
    weight = f"w = {number(float(result.weights[i, j]))}"
    if hidden(result, i, j):
        return rf"{pair} s = -\infty,\quad w = 0"
    if result.products is None or result.scores is None:
        return f"{pair} {weight}"
    product, score = float(result.products[i, j]), float(result.scores[i, j])
    change = score - product
    added = f" {'+' if change > 0 else '-'} {number(abs(change))} = {number(score)}"
    return (
        rf"{pair} s = {number(product)}{added if abs(change) >= SAME_SHARE else ''},\quad {weight}"
    )


def tex(token: str) -> str:
    """A token inside \\text: the signs that TeX reads are taken out or escaped."""
    escaped = "".join(
        f"\\{sign}" if sign in "#$%&_{}" else "" if sign in "\\^~" else sign for sign in token
    )
    return escaped or "?"
