"""Heads: its sentences of numbers, its bars and squares, and its script beside the recorded calls."""

from collections.abc import Sequence
from html import escape

import numpy as np

from core.interpret.trace import head_name
from core.studies import heads as study
from dashboard.draw.attention_view import Pair
from dashboard.draw.components import Cell
from dashboard.draw.figures import Theme, colour_scale
from dashboard.draw.formats import MINUS, byte_size, cell, number, plain, plural, share_text

RANDOM = (
    "Weights and word vectors are random (seed {}). Every number is computed, but which word gets more weight "
    "has no meaning before training."
)
READER = (
    "MiniLM, a small trained model, reads pieces of words and adds [CLS] and [SEP]; heads often attend to [CLS] "
    "when no word fits."
)
ABOUT_MINILM = (
    "MiniLM is a small trained model that turns a sentence into a vector, for search. It has "
    f"{study.MINILM_LAYERS} layers: each is one attention with {study.MINILM_HEADS} heads and a feed-forward network, "
    "and reads the vectors that the layer before it put out."
)


def conditions(source: tuple[object, ...], layer: int | None, seed: int | None) -> str:
    if layer is None:
        return RANDOM.format(seed)
    saved = f", saved on {study.saved_on()}" if source[0] == study.MINILM_TEXT else ""
    return (
        f"Queries, keys and values are those of layer {layer} of all-MiniLM-L6-v2, a trained model with "
        f"{study.MINILM_HEADS} heads{saved}."
    )


def split_fact(
    tokens: Sequence[str],
    layer: int,
    weights: np.ndarray,
    shown: Sequence[Pair],
    row: int,
    first: int | None,
) -> str:
    """What a word gives most to in each head (H, T, T) of `shown`, (head, key); or what the `first` head gives one key."""
    word = f":primary[{plain(tokens[row])}]"
    if first is not None:
        key = shown[0][1]
        of_heads = weights[:, row, key]
        best = int(of_heads.argmax())
        others = f"the mean of {len(weights)} heads is {share_text(of_heads.mean())}"
        if first != best:
            others = f"most in {head_name(layer, best)}, {share_text(of_heads[best])}, and {others}"
        return (
            f"{word} gives “{plain(tokens[key])}” **{share_text(of_heads[first])}** in "
            f"{head_name(layer, first)} "
            f"(layer {layer}, head {first}); {others}."
        )
    each = ", ".join(
        f"“{plain(tokens[key])}” in {head_name(layer, head)} (**{share_text(weights[head, row, key])}**)"
        for head, key in shown
    )
    return f"Of the other words, {word} gives most to {each}."


def jobs(many: study.Split, tokens: Sequence[str]) -> str:
    """What MiniLM and a layer are, and the column that most heads attend to."""
    first = many.weights.mean(1).argmax(1) == 0
    share = share_text(many.weights[first, :, 0].mean()) if first.any() else "0"
    return (
        f"{ABOUT_MINILM} In {int(first.sum())} of the {many.heads} heads the first column, {tokens[0]}, gets the "
        f"largest share of any token, mean of all rows ({share} on average in these heads): a head often attends to "
        "it when no word fits (Clark et al., 2019)."
    )


def shared_fact(length: int, kv_heads: int, caches: Sequence[study.CacheSize]) -> str:
    many, grouped, one, _ = caches
    sizes = (
        f"For {length:,} tokens multi-head attention caches **{byte_size(many.bytes)}** in each layer, "
        f"{plural(kv_heads, 'shared KV head')} {byte_size(grouped.bytes)}, and a single one "
        f"{byte_size(one.bytes)}."
    )
    if many.overlap is None or one.overlap is None:
        return sizes
    than = "more" if one.overlap > many.overlap else "less"
    return (
        f"{sizes} With one KV head for all, two heads have **{number(one.overlap)}** of their weight on the same "
        f"words instead of {number(many.overlap)}: their maps are {than} similar."
    )


def subtract_fact(tokens: Sequence[str], maps: study.TwoMaps, cell: Pair) -> str:
    row, column = cell
    first, second = maps.first[row, column], maps.weight * maps.second[row, column]
    least = int(maps.difference[row].argmin())
    lowest = maps.difference[row, least]
    bold = "**" if lowest < 0 else ""
    return (
        f":primary[{plain(tokens[row])}] gives “{plain(tokens[column])}” {number(first)} {MINUS} "
        f"{number(second)} = "
        f"**{number(first - second)}** and its lowest weight, {bold}{number(lowest)}{bold}, to "
        f"“{plain(tokens[least])}”. The two maps have {number(maps.common)} of their weight on the same keys, and "
        f"{int((maps.difference < 0).sum())} of {maps.difference.size} weights are below 0."
    )


def optional_number(value: float | None) -> str:
    return "–" if value is None else number(value)


CELL = 28  # pixels, which two digits fill at the smallest size


def head_note(weights: np.ndarray, tokens: Sequence[str]) -> str:
    """A head's largest weight from one word to another, and what its rows attend to most."""
    row, column = study.largest_word_cell(weights[None], tokens)
    target, share = study.main_target(weights, tokens)
    return f"{tokens[row]} → {tokens[column]} {share_text(weights[row, column])}; {target} {share_text(share)}"


def bars_html(
    title: str, rows: Sequence[tuple[str, float, str, str]], label: int = 52, gap: int = 0
) -> str:
    """A bar for each (name, amount, its text, colour), as HTML, which a rerun draws at once."""
    # 42 % of the width leave room for names and amounts
    percent = 42 / (max(amount for _, amount, _, _ in rows) or 1.0)
    lines = "".join(
        f'<div style="display:flex;gap:8px;margin-bottom:{gap}px"><div style="flex:0 0 {label}px;'
        f'text-align:right">{escape(name)}</div><div style="height:14px;margin-top:2px;border-radius:2px;'
        f'background:{colour};width:{round(percent * amount, 1)}%"></div><div>{text}</div></div>'
        for name, amount, text, colour in rows
    )
    spoken = ", ".join(f"{name} {text}" for name, _, text, _ in rows)
    return (
        f'<div role="img" aria-label="{escape(f"{title}: {spoken}")}" style="font-size:13px;line-height:18px;'
        f'max-width:560px"><div style="font-size:14px;font-weight:600;margin-bottom:{4 + gap // 2}px">'
        f"{escape(title)}</div>{lines}</div>"
    )


def chosen_cell(many: study.Split, chosen: Sequence[int], pressed: int | None, row: int) -> Cell:
    own = "word_heads(many.weights, qkv.tokens)" if pressed is None else chosen
    return Cell(
        "The heads with the largest weights on another word, and one token in them.",
        f"""
from core.studies.heads import word_heads

chosen = {own}
row = many.weights[chosen, {row}]  # (heads, T)
print("heads", chosen, "largest weight of each", many.weights.max((1, 2)))
""",
        results={"row": many.weights[chosen, row]},
    )


def subtract_cell(maps: study.TwoMaps) -> Cell:
    return Cell(
        "Their difference.",
        """
print("λ", maps.weight, "weights from", maps.difference.min(), "to", maps.difference.max())
""",
        """
from dashboard.show import show_maps

show_maps(
    {"A1": maps.first, "λ A2": maps.weight * maps.second, "A1 − λ A2": maps.difference}, qkv.tokens, qkv.tokens
)
""",
        "heads:subtract",
        {
            "maps.difference": maps.difference,
            "maps.weight * maps.second": maps.weight * maps.second,
        },
    )


def overlap_square(overlap: np.ndarray, theme: Theme) -> str:
    """Heads by heads: the share of weight in common, in the blue of weights, with its number; a head's own has none."""
    heads, stops = range(len(overlap)), colour_scale(theme)

    def square(i: int, j: int) -> str:
        share = min(1.0, max(0.0, float(overlap[i, j])))
        overlapping, fill = number(overlap[i, j]), stops[round(share * (len(stops) - 1))]
        return (
            f'<td style="background:{fill};color:{stops[0 if share >= 0.5 else -1]}" title="head {i} and head {j}: '
            f'{overlapping}">{"" if i == j else cell(overlapping)}</td>'
        )

    head = '<th scope="col"></th>' + "".join(f'<th scope="col">{j}</th>' for j in heads)
    rows = "".join(
        f'<tr><th scope="row">{i}</th>{"".join(square(i, j) for j in heads)}</tr>' for i in heads
    )
    return (
        f"<style>.overlap{{border-collapse:separate;border-spacing:1px;font-size:11px;line-height:{CELL}px}}"
        f".overlap th{{font-weight:400;font-size:12px;opacity:.62;min-width:16px}}"
        f".overlap td{{width:{CELL}px;padding:0;text-align:center}}</style>"
        '<div style="font-size:14px;font-weight:600">Overlap of heads</div>'
        '<div style="font-size:13px;opacity:.62;margin-bottom:4px">'
        "the weight that two heads put on the same words</div>"
        '<table class="overlap" aria-label="Weight that two heads put on the same words">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )
