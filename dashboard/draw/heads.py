"""Heads: its sentences of numbers, its bars and squares, and its script beside the recorded calls."""

import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from core.interpret import trace as analysis
from core.interpret.trace import head_name
from core.studies import heads as study
from core.studies.efficient import Saved
from dashboard.draw.attention_view import Pair
from dashboard.draw.components import Cell
from dashboard.draw.curves import seed_marks
from dashboard.draw.figures import Ink, Spec, Theme, colour_scale
from dashboard.draw.formats import (
    MINUS,
    SPACE,
    byte_size,
    cell,
    number,
    percent,
    plain,
    plural,
    share_text,
    whole,
)

RANDOM = (
    "Weights and word vectors are random (seed {}). Every number is computed, but which word gets more weight "
    "has no meaning before training."
)
READER = "MiniLM, a small trained model, adds [CLS] and [SEP]; a head often takes from [CLS] when no word fits."
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


MEANING = {
    "split": "Every head reads the whole vector of a word, with queries, keys and values of its own. The layer is not "
    "larger for it: its matrices are divided among the heads. A last matrix makes the word's new vector of their "
    "outputs, a sum with one part from each head.",
    "shared": "This is for later; the path goes on without it. A decoder stores the keys and values of all earlier "
    "tokens, because every new token attends to them. "
    "Query heads that share one head of keys and values make this cache smaller.",
    "subtract": "This is for later; the path goes on without it. A differential head makes two maps and subtracts λ "
    "times the second from the first. The weight that "
    "both maps put on the same key cancels.",
}
HALVES = " MiniLM was not trained to subtract: its query and key are divided into two halves here."
STORED = (
    "The numbers that multi-head, grouped-query, multi-query and latent attention store for a token. H "
    "is the count of query heads, G of heads of keys and values, D the count of numbers in a head, R "
    "that in a latent vector and R_rope that in its rotated key."
)
HEADS_NOTE = (
    "$Q_h$, $K_h$ and $V_h$ are the queries, keys and values of head $h$, a row for each word. Each head has $D$ of "
    "the $C$ columns of $W_q$, $W_k$ and $W_v$; $W_{o,h}$ are the $D$ rows of $W_o$ that belong to it. A bar above is "
    "the length of a row of $A_h V_h W_{o,h}$."
)
BYTES = 4  # of a number, fp32


def trained_chart(measured: Sequence[study.TrainedHeads], ink: Ink) -> Spec:
    """The share of neighbours that models of one head and of several name, and one head with a feed-forward network."""
    names = [*(plural(each.heads, "head") for each in measured[:-1]), "1 head, feed-forward"]
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"domain": [0, 1], "nice": False},
        "axis": {"title": None, "format": "%", "values": [0, 0.5, 1], "grid": False},
    }
    marks = [
        (name, each.accuracy, ink.series[0], "circle")
        for name, each in zip(names, measured, strict=True)
    ]
    return seed_marks("Neighbours that are named", marks, x, ink, ends=(0.0, 1.0), write=percent)


def trained_fact(one: study.TrainedHeads, four: study.TrainedHeads) -> str:
    low, high = one.accuracy.interval or (one.accuracy.mean,) * 2
    return (
        f"Each letter has to name the letter before it and the letter after it. One head names "
        f"**{percent(one.accuracy.mean)}** of them (95{SPACE}% interval {percent(low)} to "
        f"{percent(high)}), four heads "
        f"**{percent(four.accuracy.mean)}**, with the same {four.parameters:,} parameters."
    )


def trained_caption(saved: Saved[tuple[study.TrainedHeads, ...]]) -> str:
    one, *_, fed = saved.measured
    before, after = (study.EXAMPLE[study.QUERY + step] for step in (-1, 1))
    shares = [
        share_text(each.weights[0][study.QUERY + step]) for each in (one, fed) for step in (-1, 1)
    ]
    return (
        f"The one head takes {shares[0]} from “{before}” and {shares[1]} from “{after}”: "
        "a mix of both letters, which no longer says which of them came first. Of the four heads some take from one letter "
        "alone. With a "
        f"feed-forward network behind it, which can take apart a mix of unequal weights ({shares[2]} and "
        f"{shares[3]}), one head names {percent(fed.accuracy.mean)}. One layer of attention of width "
        f"{study.TRAINED_WIDTH} and a linear layer, {study.STEPS} steps on random letters, {study.SEEDS} seeds, each "
        f"model at the best of {len(study.RATES)} learning rates. Saved on {saved.date}, {saved.machine}."
    )


def lengths_text(names: Sequence[str], lengths: np.ndarray, token: str) -> str:
    if len(names) == 1:
        return f"The one head makes the whole new vector of “{plain(token)}”: its part has length {number(lengths[0])}."
    most, least = int(lengths.argmax()), int(lengths.argmin())
    return (
        f"{names[most]} adds most to the new vector of “{plain(token)}”, a part of length "
        f"{number(lengths[most])}, and "
        f"{names[least]} least, {number(lengths[least])}. The sum of the {len(lengths)} parts, with a bias, is what "
        "attention puts out for this word."
    )


def split_rows(splits: Sequence[study.Split], d_model: int) -> list[list[str]]:
    return [
        [
            str(each.heads),
            str(d_model // each.heads),
            whole(each.parameters),
            number(each.entropy),
            number(each.distance),
            optional_number(each.overlap),
        ]
        for each in splits
    ]


def split_note(words: int) -> str:
    return (
        "Every row of the table is the same layer, divided into another number of heads. Entropy is in "
        f"nats (uniform weights on {words} words have {number(math.log(words))}), the distance from "
        "query to key in words. Overlap is the weight that two heads put on the same words."
    )


def head_rows(weights: np.ndarray, name_of: Callable[[int], str]) -> list[list[str]]:
    measured = zip(analysis.entropy(weights).mean(1), analysis.mean_distance(weights), strict=True)
    return [
        [name_of(head), number(entropy), number(distance)]
        for head, (entropy, distance) in enumerate(measured)
    ]


def cache_rows(names: Sequence[str], caches: Sequence[study.CacheSize]) -> list[list[str]]:
    return [
        [
            name,
            whole(each.config.sizes.cache),
            whole(each.bytes),
            whole(each.parameters),
            optional_number(each.overlap),
        ]
        for name, each in zip(names, caches, strict=True)
    ]


def cache_note(length: int, caches: Sequence[study.CacheSize]) -> str:
    equal = all(each.bytes == BYTES * each.config.sizes.cache * length for each in caches)
    return (
        f"Bytes are measured on the cached tensors of {length:,} random tokens in one layer, fp32, "
        f"{'' if equal else 'not '}as many as the formula says; a number has {BYTES} bytes. Shared heads are the "
        "means of the multi-head layer's heads, as when a grouped-query model is made from a multi-head model. "
        "Latent attention has its own random weights and a rotated key next to the latent vector. Overlap is the "
        "weight that two heads put on the same words."
    )


def subtract_note(size: int, depth: int, maps: study.TwoMaps) -> str:
    start = f"0.8 {MINUS} 0.6·e^({MINUS}0.3·{depth - 1}) = {number(maps.start)}"
    return (
        f"Each head has two queries and two keys of {size // 2} numbers instead of one of {size}, and one "
        f"value. λ depends on the layer set above, which is counted from 1: in layer {depth} it starts near "
        f"{start} and is then learned. A row has the sum 1 {MINUS} λ = {number(1 - maps.weight)}; a norm "
        "in each head corrects this."
    )


def split_fact(
    tokens: Sequence[str],
    layer: int,
    weights: np.ndarray,
    shown: Sequence[Pair],
    row: int,
    first: int | None,
) -> str:
    """What a word takes most from in each head (H, T, T) of `shown`, (head, key); or from one key in `first`."""
    word = f":primary[{plain(tokens[row])}]"
    if first is not None:
        key = shown[0][1]
        of_heads = weights[:, row, key]
        best = int(of_heads.argmax())
        others = f"heads' mean: {share_text(of_heads.mean())}"
        if first != best:
            others = f"most in {head_name(layer, best)}, {share_text(of_heads[best])}, and {others}"
        return (
            f"{word} takes from “{plain(tokens[key])}” **{share_text(of_heads[first])}** in "
            f"{head_name(layer, first)} "
            f"(layer {layer}, head {first}); {others}."
        )
    each = ", ".join(
        f"“{plain(tokens[key])}” in {head_name(layer, head)} (**{share_text(weights[head, row, key])}**)"
        for head, key in shown
    )
    return f"Of the other words, {word} takes most from {each}."


def target_text(name: str, weights: np.ndarray, tokens: Sequence[str]) -> str:
    """What the rows of a head's map (T, T) take most from."""
    target, share = study.main_target(weights, tokens)
    return f"The head named first, {name}, gives {target} {share_text(share)} of its weight, on average."


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
        f":primary[{plain(tokens[row])}] takes from “{plain(tokens[column])}” {number(first)} {MINUS} "
        f"{number(second)} = "
        f"**{number(first - second)}** and its lowest weight, {bold}{number(lowest)}{bold}, from "
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


def chosen_cell(many: study.Split, tokens: Sequence[str], chosen: Sequence[int], row: int) -> Cell:
    usual = chosen == study.word_heads(many.weights, tokens)
    own = "word_heads(many.weights, qkv.tokens)" if usual else chosen
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


def of_cell(layers: Sequence[study.Split], row: int, column: int) -> np.ndarray:
    """The weight of one cell in each head of each layer: (H, layers)."""
    return np.stack([layer.weights[:, row, column] for layer in layers], 1)


def layers_cell(layers: Sequence[study.Split], row: int, column: int) -> Cell:
    return Cell(
        "What one token takes from another in each head (row) of each layer (column).",
        f"""
import numpy as np

every = np.stack([layer.weights[:, {row}, {column}] for layer in layers], 1)
print(every.round(3))
""",
        results={"every": of_cell(layers, row, column)},
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
