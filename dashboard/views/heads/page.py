"""The page: the maps of one idea (heads split, keys shared, maps subtracted), a question, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import TypeAlias

import numpy as np
import streamlit as st

from core.attention import ConfigError, entry
from core.attention.basics import MultiHead
from core.attention.projections.combined import Differential
from core.attention.projections.low_rank import Latent
from core.attention.projections.multi_head import GroupedQuery
from core.interpret.trace import overlap
from core.pretrained import PretrainedError
from dashboard.draw import formats
from dashboard.draw.formats import MINUS, byte_size, number
from dashboard.draw.palette import CATEGORIES, Theme, colour_scale
from dashboard.runtime.link_start import read_start, write_start
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets
from dashboard.runtime.threads import one_thread
from dashboard.ui.export import begin_before_title
from dashboard.ui.tables import table
from dashboard.views.heads import compute, layers, maps, minilm, text
from dashboard.views.heads.compute import CacheSize, Split, TwoMaps
from dashboard.views.heads.controls import (
    D_MODEL,
    FIRST,
    IDEAS,
    LAYER,
    LENGTH,
    LENGTHS,
    MAX_HEADS,
    SIZES,
    WEIGHTS,
    Controls,
    draw_controls,
    first_weights,
    key,
    read_controls,
)
from dashboard.views.heads.script import script
from dashboard.views.heads.text import Cell
from dashboard.widgets.guide import Move, Question, in_picture, predict, try_this
from dashboard.widgets.panels import (
    caption,
    details,
    entries_panel,
    fact,
    next_page,
    paragraph,
    plain,
    source_panel,
    theme,
    title,
)

CELL = 28  # pixels, which two digits fill at the smallest size
DARK = 0.5  # from here on a cell is nearer to the text's own colour than to the page's
LONGEST = 42  # percent of the width, which leaves room for names and amounts
BREAK = '<div style="flex-basis:100%;height:0"></div>'

MEANING = {
    "split": "A head has its own queries, keys and values, so several heads attend to different words at the same "
    "time. Every head reads the whole vector $x$ of a word. The columns of $W_q$, $W_k$ and $W_v$ are "
    "divided: each head has $D = C / H$ of the $C$ columns. The outputs of the heads stand side by side, $C$ "
    "numbers again, and a fourth matrix, $W_o$, mixes them into the word's new vector. $W_{o,h}$ are the $D$ "
    "rows of $W_o$ that belong to head $h$, so the new vector is a sum with one part from each head. "
    "$Q_h$, $K_h$ and $V_h$ are the queries, keys and values of head $h$, a row for each word.",
    "shared": "This is for later; the path goes on without it. A decoder stores the keys and values of all earlier "
    "tokens, because every new token attends to them. "
    "Query heads that share one head of keys and values make this cache smaller.",
    "subtract": "This is for later; the path goes on without it. A differential head makes two maps and subtracts λ "
    "times the second from the first. The weight that "
    "both maps put on the same key cancels.",
}

ENTRIES = {
    "split": ("multi_head",),
    "shared": ("grouped_query", "multi_query", "latent"),
    "subtract": ("differential",),
}
SOURCES = {"split": (MultiHead,), "shared": (GroupedQuery, Latent), "subtract": (Differential,)}
SPLIT_LATEX = r"A_h = \mathrm{softmax}\!\left(\frac{Q_h K_h^\top}{\sqrt{D}}\right),\quad D = C / H"
JOIN_LATEX = r"\mathrm{out} = [A_1 V_1 \cdots A_H V_H]\, W_o = \sum_h A_h V_h\, W_{o,h}"
SHARED_LATEX = r"2HD,\quad 2GD,\quad 2D,\quad R + R_\mathrm{rope}"
SUBTRACT_LATEX = r"w_{ij} = (A_1 - \lambda A_2)_{ij}"

Shown: TypeAlias = tuple[
    Question | None, Callable[[], None]
]  # a question, and what draws the rest after the controls


def page() -> None:
    """Draw the page from top to bottom."""
    open_link()
    for sentence in link_errors():
        st.warning(sentence)
    explore()
    next_page("heads")


@fragment
def explore() -> None:
    """Draw title, controls, maps, question and meaning, which rerun alone."""
    begin_before_title()
    controls, shown = render_before_widgets(
        key("ready"), read_controls, header, in_picture("heads", show)
    )
    if shown is not None:
        question, draw_rest = shown
        if question is not None:
            predict(key(controls.idea), question)
        try_this("heads", moves(controls.idea))
        paragraph(f"## What it means\n\n{MEANING[controls.idea]}")
        draw_rest()
        details("Equation, paper and code", partial(sources, controls), key("source"))
    write_start("heads")


def header() -> Controls:
    """Draw the title and the controls below it; returns the controls."""
    title(
        "Heads",
        "You will understand why attention is divided into heads, and what heads can share.",
        first=False,
    )
    return draw_controls()


def show(controls: Controls) -> Shown | None:
    """Draw the maps and the sentence, or an error."""
    if not controls.tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return None
    try:
        if controls.layer is not None:
            controls = replace(controls, tokens=read_tokens(controls.text, controls.layer))
        with one_thread():
            shown = {"split": split, "shared": shared, "subtract": subtract}[controls.idea](
                controls
            )
    except (ConfigError, PretrainedError) as error:
        st.error(plain(str(error)))
        return None
    add_script(partial(script, controls))
    return shown


def read_tokens(words: str, layer: int) -> tuple[str, ...]:
    """MiniLM's tokens of the words; words of the reader's own need the model."""
    if words == minilm.TEXT:
        return minilm.read_qkv(words, layer).tokens
    with st.spinner("MiniLM (91\u00a0MB) reads the words."):
        return minilm.read_qkv(words, layer).tokens


def split(controls: Controls) -> Shown:
    """Draw one head and several side by side."""
    one, many = (layers.split(controls, heads) for heads in (1, controls.heads))
    cell, place = maps.draw_split(controls, one, many)
    with place:  # below the map of one head, which is the smaller picture
        fact(text.split_fact(controls, one, many, cell))
        caption(
            text.RANDOM.format(controls.seed)
            if controls.layer is None
            else text.jobs(many, controls.tokens)
        )
    return split_question(controls, one, many), partial(below_split, controls, many, cell[0])


def below_split(controls: Controls, many: Split, word: int) -> None:
    """Draw the equations, and what each head adds to a word; one click further how the heads differ."""
    equation(SPLIT_LATEX, f"= {controls.d_model} / {controls.heads} = {controls.head_dim}")
    equation(JOIN_LATEX, "")
    lengths = layers.lengths(controls)[:, word]
    st.html(head_bars(controls.tokens[word], lengths, theme()))
    paragraph(text.joined(lengths, controls.tokens[word]))
    details(
        "How the heads differ, in numbers", partial(differences, controls, many), key("differences")
    )


def differences(controls: Controls, many: Split) -> None:
    """Draw the overlap of heads, every split as a row, and every head as a row."""
    left, right = st.columns([0.44, 0.56] if many.heads > MAX_HEADS else [0.34, 0.66], gap="medium")
    with left:
        st.html(overlap_square(overlap(many.weights), theme()))
    with right:
        every = (
            (1, 2, 4, MAX_HEADS, controls.heads) if controls.layer is None else (1, controls.heads)
        )
        counts = sorted({heads for heads in every if controls.d_model % heads == 0})
        table(
            text.SPLIT_HEAD,
            text.split_rows(controls, [layers.split(controls, heads) for heads in counts]),
            markers=False,
            caption="The same layer as one head and as several",
        )
        caption(text.split_conditions(controls))
        if many.heads > 1:
            table(text.HEAD_HEAD, text.head_rows(many), markers=False, caption="Each head")


def shared(controls: Controls) -> Shown:
    """Draw the same head under four projections."""
    configs = compute.projections(
        controls.d_model, controls.heads, controls.kv_heads, controls.latent
    )
    caches = [layers.cache_size(controls, config) for config in configs]
    maps.draw_shared(controls, caches)
    fact(text.shared_fact(controls, caches))
    half = layers.cache_size(replace(controls, length=controls.length // 2), configs[0])
    return shared_question(controls, half, caches[0]), partial(below_shared, controls, caches)


def below_shared(controls: Controls, caches: Sequence[compute.CacheSize]) -> None:
    """Draw the equation, and the cache of each projection as bars and as a table."""
    equation(
        SHARED_LATEX,
        f"= {',   '.join(f'{each.numbers:,}' for each in caches)} numbers for each token",
    )
    caption(text.SHARED_SYMBOLS)
    left, right = st.columns([0.36, 0.64], gap="medium")
    left.html(cache_bars(controls.length, caches, theme()))
    with right:
        table(
            text.SHARED_HEAD,
            text.shared_rows(caches),
            caption="What is stored for each token, with four ways to store keys and values",
        )
    caption(text.shared_conditions(controls, caches))


def subtract(controls: Controls) -> Shown:
    """Draw a differential head's two maps and their difference."""
    two = layers.two_maps(controls)
    cell = maps.draw_two_maps(controls, two)
    fact(text.subtract_fact(controls, two, cell))
    return subtract_question(two), partial(below_subtract, controls, two, cell)


def below_subtract(controls: Controls, maps: compute.TwoMaps, cell: Cell) -> None:
    """Draw the picked cell as an equation, and the conditions."""
    first, second, result = (
        number(map_[cell]) for map_ in (maps.first, maps.second, maps.difference)
    )
    equation(SUBTRACT_LATEX, f"= {first} {MINUS} {number(maps.weight)} · {second} = {result}")
    caption(text.subtract_conditions(controls, maps))


def equation(symbols: str, numbers: str) -> None:
    """Draw an equation in symbols, and its numbers as plain text: typesetting them takes a rerun too long."""
    with st.container(
        horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="xsmall"
    ):
        st.markdown(rf"$\displaystyle {symbols}$", width="content")
        html = f'<span style="font:1.21em KaTeX_Main,serif;white-space:pre-wrap">{escape(numbers)}</span>'
        st.html(html, width="content")


def sources(controls: Controls) -> None:
    """Draw equation, meaning and paper, and the classes that just ran."""
    entries_panel(entry("projection", name) for name in ENTRIES[controls.idea])
    for built in SOURCES[controls.idea]:
        source_panel(built)


# The questions and the things to try on this page; each answer is computed from what the page shows.


def split_question(controls: Controls, one: Split, many: Split) -> Question | None:
    """Whether several heads have more parameters than one; None for one head."""
    if many.heads == 1:
        return None
    counts = one.parameters, many.parameters
    same = (
        f"Both have {counts[0]:,} parameters: the matrices $W_q$, $W_k$, $W_v$ and $W_o$ are the same. "
        f"{many.heads} heads divide the {controls.d_model} columns of the first three into {many.heads} groups of "
        f"{controls.head_dim}."
    )
    return Question(
        f"The layer is used with one head, or with {many.heads} heads. Which has more parameters?",
        ("one head", "both the same", f"{many.heads} heads"),
        1 if counts[0] == counts[1] else 0 if counts[0] > counts[1] else 2,
        (
            f"{same} One head is wider, not larger.",
            same,
            f"{same} More heads give more maps, not more parameters.",
        ),
    )


def shared_question(controls: Controls, half: CacheSize, full: CacheSize) -> Question:
    """How the cache grows when the text becomes twice as long."""
    growth = full.bytes / half.bytes
    sizes = (
        f"For {controls.length // 2:,} tokens the cache of multi-head attention has {byte_size(half.bytes)}, for "
        f"{controls.length:,} tokens {byte_size(full.bytes)}: every token adds a key and a value to each head."
    )
    return Question(
        "The text becomes twice as long. How does the cache of each projection grow?",
        ("it keeps its size", "to twice its size", "to four times its size"),
        0 if growth < 1.5 else 1 if growth < 3 else 2,
        (
            f"{sizes} Only a model that forgets old tokens keeps its size.",
            sizes,
            f"{sizes} The number of scores becomes four times as large, but scores are not stored.",
        ),
    )


def subtract_question(maps: TwoMaps) -> Question:
    """The sum of a row of the difference."""
    total, weight = float(maps.difference.sum(1).mean()), maps.weight
    options = (0.0, 1 - weight, 1.0)
    sums = (
        f"A row of the first map has the sum 1, and a row of the second λ = {number(weight)} after the "
        f"multiplication. Their difference has the sum {number(total)}."
    )
    return Question(
        "The weights of a softmax have the sum 1 in each row. What is the sum of a row of A₁ − λA₂?",
        ("0", "1 − λ", "1"),
        min(range(3), key=lambda index: abs(options[index] - total)),
        (f"{sums} It would be 0 only with λ = 1.", sums, f"{sums} It would be 1 only with λ = 0."),
    )


def moves(idea: str) -> tuple[Move, ...]:
    """Three things to try for each idea."""
    random = Move(
        "Random weights",
        {key("weights"): "random"},
        "The heads differ here by chance. In MiniLM, training made them different.",
    )
    ideas = {
        "split": Move(
            "One head or many",
            {key("idea"): "split"},
            "The same numbers are shown as one head and as several heads.",
        ),
        "shared": Move(
            "Later: share keys and values",
            {key("idea"): "shared"},
            "Fewer heads of keys and values need a smaller cache. The last column of the table says how "
            "similar the maps of two heads are then.",
        ),
        "subtract": Move(
            "Later: subtract two maps",
            {key("idea"): "subtract"},
            "In the map A₁ − λA₂, purple cells are weights below 0. A softmax alone cannot make them.",
        ),
    }
    first = Move(
        "MiniLM's first layer",
        {key("weights"): "minilm", key("layer"): 0},
        "In head 2 of layer 0 nearly all weight is on the token before.",
    )
    others = [move for name, move in ideas.items() if name != idea]
    return (first, random, *others) if idea == "split" else (random, *others)


# What a link of this page says: the weights that it leaves out, and values that the page lacks.


def open_link() -> None:
    """Find out whether the link was made when this page opened on random weights; before the first widget."""
    read_start("heads", "minilm", "random")


def link_errors() -> list[str]:
    """A sentence for each value in the link that this page lacks; call it before the first widget takes its value."""
    allowed = {
        "idea": (list(IDEAS.values()), IDEAS[FIRST]),
        "weights": (list(WEIGHTS.values()), WEIGHTS[first_weights()]),
        "layer": (list(map(str, range(minilm.LAYERS))), str(LAYER)),
        "d_model": (list(map(str, SIZES)), str(D_MODEL)),
        "length": ([f"{length:,}" for length in LENGTHS], f"{LENGTH:,}"),
    }
    errors = []
    for name, (options, default) in allowed.items():
        value = None if key(name) in st.session_state else st.query_params.get(key(name))
        if value and value not in options:
            errors.append(
                f"The link says {plain(name)} = {plain(value[:40])}; expected one of "
                f"{plain(' | '.join(options))}. {plain(default)} is shown."
            )
    return errors


# Overlap of heads as a square of numbers, and cache sizes as bars: plain HTML, which a rerun draws at once.


def overlap_square(overlap: np.ndarray, theme: Theme) -> str:
    """Heads by heads: the share of weight in common, in the blue of weights, with its number."""
    heads = range(len(overlap))
    head = '<th scope="col"></th>' + "".join(f'<th scope="col">{j}</th>' for j in heads)
    rows = "".join(
        f'<tr><th scope="row">{i}</th>{"".join(_cell(overlap[i, j], i, j, theme) for j in heads)}</tr>'
        for i in heads
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


def _cell(share: float, i: int, j: int, theme: Theme) -> str:
    """One pair of heads; a head's overlap with itself is 1 and has no number."""
    stops = colour_scale(theme)
    fill = stops[round(min(1.0, max(0.0, float(share))) * (len(stops) - 1))]
    colour = stops[0] if share >= DARK else stops[-1]
    whole = formats.number(share)
    text = "" if i == j else formats.cell(whole)
    return f'<td style="background:{fill};color:{colour}" title="head {i} and head {j}: {whole}">{text}</td>'


def head_bars(word: str, lengths: np.ndarray, theme: Theme) -> str:
    """The length of what each head adds to one word's new vector, a bar for each head, (H,)."""
    most, colour = float(lengths.max()) or 1.0, CATEGORIES[theme][0]
    title = f"Length of what each head adds to “{word}”"
    label = ", ".join(
        f"head {head} {formats.number(float(each))}" for head, each in enumerate(lengths)
    )
    lines = "".join(
        f'<div style="display:flex;gap:8px"><div style="flex:0 0 52px;text-align:right">head {head}</div>'
        f'<div style="height:14px;margin-top:2px;border-radius:2px;background:{colour};'
        f'width:{round(LONGEST * float(each) / most, 1)}%"></div>'
        f"<div>{formats.number(float(each))}</div></div>"
        for head, each in enumerate(lengths)
    )
    return (
        f'<div role="img" aria-label="{escape(f"{title}: {label}")}" style="font-size:13px;line-height:18px;'
        f'max-width:560px"><div style="font-size:14px;font-weight:600;margin-bottom:4px">{escape(title)}</div>'
        f"{lines}</div>"
    )


def cache_bars(length: int, caches: Sequence[CacheSize], theme: Theme) -> str:
    """Bytes cached, a bar for each projection, with the amount at its end."""
    most = max(each.bytes for each in caches)
    names = [entry("projection", each.config.projection.key).name for each in caches]
    title = f"Cache of {length:,} tokens, one layer"
    label = ", ".join(
        f"{name} {byte_size(each.bytes)}" for name, each in zip(names, caches, strict=True)
    )
    lines = "".join(
        f'<div style="flex:0 0 104px;text-align:right">{escape(name)}</div><div style="height:18px;'
        f'border-radius:2px;width:{round(LONGEST * each.bytes / most, 1)}%;background:{colour}"></div>'
        f"<div>{byte_size(each.bytes)}</div>{BREAK}"
        for name, each, colour in zip(names, caches, CATEGORIES[theme], strict=False)
    )
    return (
        f'<div role="img" aria-label="{escape(f"{title}: {label}")}" style="font-size:13px;line-height:18px">'
        f'<div style="font-size:14px;font-weight:600;margin-bottom:8px">{title}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:10px 8px;align-items:center">{lines}</div></div>'
    )
