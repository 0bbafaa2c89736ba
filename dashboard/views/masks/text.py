"""Sentences, equations and the table of the page Masks."""

from __future__ import annotations

import numpy as np

from core.attention import Choice, entry
from core.attention.formula import parse
from core.interpret import trace as analysis
from dashboard.draw.formats import coloured, latex, name, number, percent
from dashboard.draw.scripts import source_of
from dashboard.views.masks.compute import (
    D_MODEL,
    HEADS,
    SEED,
    MaskEffect,
    Pattern,
    Sentence,
    TorchCheck,
)
from dashboard.widgets.panels import plain

MAX_TERMS = 3
MOST_KEYS = 8  # columns of the table of PyTorch
PATTERN_HEAD = ("mask", "rule", "cells", "layers", "never")
PATTERN_NOTE = (
    "Cells: how many are allowed. Layers: how many connect all pairs that can be connected. Never: pairs "
    "that no number of layers connects."
)


def fact(effect: MaskEffect) -> str:
    """The number of cells left, and what becomes of the weights."""
    visible, cells = int(effect.allowed.sum()), effect.allowed.size
    if visible == cells:
        return f"Nothing is masked: all **{cells}** cells are allowed, and no weight changes."
    blind = ""
    if effect.blind:
        names = ", ".join(f"“{plain(effect.names[i])}”" for i in effect.blind[:4])
        more = f" and {len(effect.blind) - 4} more" if len(effect.blind) > 4 else ""
        whose = "its output is" if len(effect.blind) == 1 else "their outputs are"
        blind = f" No key is left for {names}{more}, so {whose} 0."
    share = (
        ""
        if effect.factor is not None
        else (
            " A hidden key gets the weight 0, and the keys that are left share the whole weight of a row."
        )
    )
    return f"The mask leaves **{visible} of {cells}** cells, {percent(visible / cells)}.{chosen(effect)}{share}{blind}"


def chosen(effect: MaskEffect) -> str:
    """What a mask that reads content has chosen; nothing for any other mask."""
    picked = effect.selection
    if picked is None:
        return ""
    return (
        f" It chose {number(picked.keys)} keys a query by their content: among them are {percent(picked.recall)} "
        f"of the keys with the largest weights of causal attention, and {percent(picked.weight)} of its weight."
    )


def conditions(notes: tuple[str, ...]) -> str:
    """How to read a rule, and the conditions under which the numbers hold."""
    return " ".join(
        [
            "In a rule, i is the position of the query (row) and j that of the key (column). The parameters are random "
            f"(seed {SEED}), so the maps show what the mask does, not what a trained model attends to.",
            *notes,
        ]
    )


def measures(effect: MaskEffect, head: int) -> str:
    """Two measures of the weights with the mask and without it."""
    maps = np.stack((effect.after, effect.before))
    entropy, distance = analysis.entropy(maps).mean(1), analysis.mean_distance(maps)
    return (
        f"The mean entropy of a row is {number(entropy[0])} nats (without the mask {number(entropy[1])}), and the "
        f"mean distance to the attended key {number(distance[0])} tokens ({number(distance[1])}). Head {head} of "
        f"{HEADS}, d_model {D_MODEL}, no positions."
    )


def mask_latex(mask: Choice) -> str:
    """The condition under which a key is allowed, as LaTeX; a composed mask by its parts, a typed one as typed."""
    if mask.parts:
        parts = [rf"\left({mask_latex(part)}\right)" for part in mask.parts]
        return (
            rf"\neg {parts[0]}"
            if mask.key == "not"
            else {"and": r" \wedge ", "or": r" \vee "}[mask.key].join(parts)
        )
    if mask.key == "formula":
        return parse(str(mask["text"]), "mask").latex()
    return entry("mask", mask.key).latex.split(r",\quad w_{ij}")[0]


def rule(mask: Choice) -> str:
    """A mask's rule in plain signs, with its numbers."""
    if mask.parts:
        parts = [rule(part) for part in mask.parts]
        return f"not ({parts[0]})" if mask.key == "not" else f" {mask.key} ".join(parts)
    item = entry("mask", mask.key)
    return (item.short or item.name).format(**dict(mask.params), length="length")


def title(mask: Choice) -> str:
    """What a map with this mask is called."""
    if mask.parts:
        parts = [title(part) for part in mask.parts]
        return (
            f"Not {parts[0].lower()}"
            if mask.key == "not"
            else f"{parts[0]} {mask.key} {parts[1].lower()}"
        )
    return entry("mask", mask.key).name


def equation(effect: MaskEffect, mask: Choice, i: int, j: int, colour: str) -> tuple[str, ...]:
    """The keys that query i may attend to, and its weight on key j in numbers: parts that a line may break between."""

    def pick(text: str) -> str:
        return coloured(text, colour)

    query, key = name(effect.names[i], i), name(effect.names[j], j)
    keys = [int(m) for m in np.flatnonzero(effect.allowed[i])]
    first = rf"M_i = \{{\, j : {mask_latex(mask)} \,\}} \quad"
    second = rf"{{M_{{{pick(query)}}} = {index_set(keys)} \quad}}"
    weight = pick(f"w_{{{query},\\,{key}}}")
    if j not in keys:
        zero = pick(r"\mathbf{0}")
        return first, second, rf"{weight} = {zero}\quad (j = {j} \notin M_i)"
    powers = effect.scores[i]
    terms = sorted(sorted(keys, key=lambda m: (m != j, -powers[m]))[:MAX_TERMS])
    below = " + ".join(f"e^{{{latex(powers[m])}}}" for m in terms) + (
        r" + \cdots" if len(keys) > len(terms) else ""
    )
    fraction = rf"\frac{{e^{{{latex(powers[j])}}}}}{{{below}}}"
    factor = "" if effect.factor is None else rf" \cdot {latex(effect.factor[i, j])}"
    result = pick(rf"\mathbf{{{latex(effect.after[i, j])}}}")
    unmasked = rf"\quad \text{{without the mask }} {latex(effect.before[i, j])}"
    # A part in braces never breaks over two lines.
    return first, second, weight, rf"{{= {fraction}{factor}}}", rf"{{= {result}{unmasked}}}"


def index_set(keys: list[int]) -> str:
    """A set of indices, abbreviated when it is long."""
    if not keys:
        return r"\varnothing"
    if len(keys) > 2 and keys == list(range(keys[0], keys[-1] + 1)):
        return rf"\{{{keys[0]}, \ldots, {keys[-1]}\}}"
    items = [str(j) for j in keys[:8]] + ([r"\ldots"] if len(keys) > 8 else [])
    return rf"\{{{', '.join(items)}\}}"


def snippet(mask: Choice) -> str:
    """The same layer in a notebook."""
    return (
        "from core.attention import Attention, AttentionConfig, Choice\n\n"
        f"mask = {source_of(mask)}\nlayer = Attention(AttentionConfig({D_MODEL}, {HEADS}, mask=mask))\n"
    )


def stack_fact(needed: np.ndarray) -> str:
    """The number of layers that connect every pair that can be connected."""
    pairs, never, most = needed.size, int((needed == 0).sum()), int(needed.max(initial=0))
    layers = "One layer" if most == 1 else f"**{most}** layers"
    connect = "connects" if most == 1 else "connect"
    if not never:
        steps = [
            f"{percent(float((needed <= n).mean()))} after {n}" for n in range(1, min(most, 4))
        ]
        short = f" ({', '.join(steps)})" if steps else ""
        return f"{layers} {connect} every token with every other{short}."
    if never == pairs - len(needed):
        return "No token receives information from another, however many layers are stacked."
    return (
        f"{layers} {connect} all pairs that this mask can connect; **{never} of {pairs}** pairs are never "
        "connected, however many layers are stacked."
    )


def pattern_rows(patterns: list[Pattern]) -> list[list[str]]:
    """One row a pattern, in the order of PATTERN_HEAD."""
    return [
        [name, rule, str(cells), str(layers), str(never or "–")]
        for name, rule, cells, layers, never in patterns
    ]


def batch_fact(sentences: list[Sentence]) -> str:
    """The weight that padding would get, and what it gets when masked."""
    worst = max(sentences, key=lambda item: item.leak)
    words = plain(" ".join(worst.names[: worst.real]))
    masked = float(worst.weights[: worst.real, worst.real :].sum(-1).mean())
    total = sum(len(item.names) ** 2 for item in sentences)
    padding = sum((len(item.names) - item.real) * len(item.names) for item in sentences)
    return (
        f"{padding} of {total} cells belong to padding. Without a mask, the words of “{words}” put "
        f"**{number(worst.leak)}** of their weight on padding; with it, **{number(masked)}**. A row of padding may "
        "get weights, too, but no word attends to it, so its output is never used."
    )


def torch_table(effect: MaskEffect, i: int) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table: query i as the two conventions write it, for the keys around it."""
    first = max(0, min(i - MOST_KEYS // 2, len(effect.names) - MOST_KEYS))
    keys = slice(first, first + MOST_KEYS)
    row = effect.allowed[i, keys]
    return [f"Query {i}: {effect.names[i]}", *effect.names[keys]], [
        [
            "here, F.scaled_dot_product_attention: True = may attend",
            *(str(bool(cell)) for cell in row),
        ],
        ["nn.MultiheadAttention: True = ignore", *(str(not cell) for cell in row)],
    ]


def torch_code(tokens: int) -> str:
    """How the mask is passed in PyTorch, by the two functions that read it in opposite ways."""
    return (
        f"# allowed: bool ({tokens}, {tokens}), True = may attend, as on this page\n"
        "attn_mask = ~allowed  # the line that converts: True = ignore\n"
        f"mha = nn.MultiheadAttention({D_MODEL}, {HEADS}, batch_first=True)\n"
        "out, weights = mha(x, x, x, attn_mask=attn_mask)\n\n"
        "out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)  # no conversion"
    )


def torch_fact(check: TorchCheck | None) -> str:
    """What running nn.MultiheadAttention with and without the conversion gave."""
    if check is None:
        return "This mask also multiplies the weights, which `nn.MultiheadAttention` cannot do."
    rows = (
        "the query that has" if check.nan_rows == 1 else f"the {check.nan_rows} queries that have"
    )
    nan = (
        f" It returns NaN for {rows} no key, where the layer of this page returns 0."
        if check.nan_rows
        else ""
    )
    without = (
        f"**{percent(check.forbidden)}** of the weight goes to keys that the mask forbids"
        if check.forbidden
        else "each key would be ignored and the result would be NaN"
    )
    return (
        f"Both layers were run on this sentence with the same parameters. With `~`, `nn.MultiheadAttention` gives "
        f"the weights above; the largest difference is {number(check.difference)}. Without `~`, {without}.{nan}"
    )
