"""The page: the mask as a board, weights with and without it, the guide, one equation, a batch; then the details."""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st
import torch
from streamlit.delta_generator import DeltaGenerator

from core.attention import Choice, ConfigError, entry
from core.attention.masks import build_mask, make_mask
from core.attention.masks.patterns import Rule
from dashboard.draw.multiples import Tile, multiples
from dashboard.draw.page_views import mask_board
from dashboard.draw.palette import Ink
from dashboard.runtime.link_values import fragment, read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import cached
from dashboard.ui.tables import table
from dashboard.ui.train_with import train_with
from dashboard.views.masks import compute, text
from dashboard.views.masks.compute import MaskEffect
from dashboard.views.masks.controls import (
    Controls,
    apply_drawing,
    draw_controls,
    key,
    link_errors,
    read_controls,
)
from dashboard.views.masks.script import script
from dashboard.widgets.guide import Move, Question, in_picture, predict, try_this
from dashboard.widgets.panels import (
    caption,
    details,
    entries_panel,
    fact,
    next_page,
    plain,
    source_panel,
    theme,
    title,
)

OPTIONS = ("Their rows", "Their columns", "Both")
PADDED = 2  # tokens of the question
FORMULA = "j <= i and i - j < 2 or j == 0"

MAP_HEIGHT = 300  # px, at most
MAX_BESIDE = 24  # tokens; with more, the cells of a board in a column are too small to click
COLUMNS = (
    1,
    2.35,
)  # widths of the board and of the maps beside it, which keep their names from 600 px on


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Masks",
        "A model that predicts the next word must not see it: a mask hides the words that come later.",
    )
    for sentence in link_errors():
        st.warning(sentence)
    explore()
    next_page("masks")


@fragment
def explore() -> None:
    """Draw the controls and all that they change, which reruns alone."""
    figure, below, words = st.container(), st.container(), st.container()
    with figure:
        controls, result = render_before_widgets(
            key("ready"),
            read_controls,
            partial(draw_controls, below),
            in_picture("masks", partial(show, words)),
        )
    if result is None:
        return
    effect, cell = result
    add_script(partial(script, controls, effect))
    predict("masks", question(len(effect.names)))
    try_this("masks", MOVES)
    st.markdown("## What the mask does to one weight")
    equation(effect, controls, cell)
    train_with("mask", controls.mask, key=key("train"))
    for pin, panel in (
        ("padded", "batched"),
        ("reach", "stacked"),
    ):  # a link to a cell opens its panel
        if key(pin) in st.query_params:
            st.session_state.setdefault(key(panel), True)
    details("A batch of sentences of different lengths", partial(batch, controls), key("batched"))
    details("How far a stack of layers reaches", partial(stack, effect), key("stacked"))
    details(
        "The same mask in PyTorch", partial(in_pytorch, effect, controls, cell[0]), key("pytorch")
    )
    details(
        "Equation, paper, code and measures of the mask",
        partial(sources, effect, controls),
        key("sources"),
    )


def show(words: DeltaGenerator, controls: Controls) -> tuple[MaskEffect, tuple[int, int]] | None:
    """Draw the maps, and in `words` the fact and the conditions; returns the numbers and the picked cell."""
    if not controls.tokens:
        st.warning(
            "There is no token here. Type a word, or a sentence: each word becomes one token."
        )
        return None
    if controls.stale:
        st.caption(
            f"The maps show the last rule that could be read: {plain(text.rule(controls.mask))}."
        )
    try:
        with one_thread():
            effect = cached(
                compute.mask_effect, controls.mask, controls.tokens, controls.real, controls.head
            )
    except ConfigError as error:
        st.error(plain(str(error)))
        return None
    st.session_state[key("shown")] = effect.drawing  # from which a drawing would start
    cell = maps(effect, controls.mask)
    with words:
        fact(text.fact(effect))
        caption(text.conditions(controls.notes))
    return effect, cell


def maps(effect: MaskEffect, mask: Choice) -> tuple[int, int]:
    """Draw the mask as a board to draw on, and the weights without it and with it; returns the picked cell."""
    query = most_changed_query(effect)
    name, note = text.title(mask), text.rule(mask)
    beside = len(effect.names) <= MAX_BESIDE
    left, right = st.columns(COLUMNS, gap="small") if beside else (st.container(), st.container())
    with left:
        mask_board(
            effect.allowed,
            effect.names,
            key=key("board"),
            on_draw=apply_drawing,
            query=query,
            title=name,
            note=note,
            fact=f"{name}: {int(effect.allowed.sum())} of {effect.allowed.size} cells are allowed.",
        )
    column, (rows, columns) = int(effect.after[query].argmax()), effect.allowed.shape
    tiles = [
        Tile(
            "Weights with the mask", note, effect.after, effect.allowed
        ),  # a phone shows the first
        Tile("Weights without the mask", "every key", effect.before),
    ]
    with right:
        pin = multiples(
            tiles,
            effect.names,
            key=key("maps"),
            query=query,
            column=column,
            height=MAP_HEIGHT,
            pin=read_linked("masks", key("cell"), (rows, columns)),
            fact=text.fact(effect).replace("*", ""),
        )
    return write_linked("masks", key("cell"), pin) or (query, column)


def most_changed_query(effect: MaskEffect) -> int:
    """The query whose weights the mask changes most, of those that see at least the median number of keys."""
    keys, change = effect.allowed.sum(1), np.abs(effect.after - effect.before).sum(1)
    least = min(max(float(np.median(keys)), 2.0), keys.max())
    return int(np.where(keys >= least, change, -1.0).argmax())


def in_pytorch(effect: MaskEffect, controls: Controls, query: int) -> None:
    """Draw one row of the mask in the two conventions of PyTorch, the code that converts, and what running it gave."""
    head, rows = text.torch_table(effect, query)
    table(head, rows, caption=head[0], markers=False)
    st.code(text.torch_code(len(effect.names)), language="python")
    check = cached(compute.torch_check, controls.mask, controls.tokens, controls.real)
    st.markdown(text.torch_fact(check))


def equation(effect: MaskEffect, controls: Controls, cell: tuple[int, int]) -> None:
    """Draw the set of keys that the picked query may attend to, and one of its weights with the numbers in it."""
    parts = text.equation(effect, controls.mask, *cell, Ink.of(theme()).pick)
    st.markdown(" ".join(rf"$\displaystyle {part}$" for part in parts), text_alignment="center")
    caption(
        "$M_i$ is the set of keys that query $i$ may attend to, and $w_{i,j}$ is its weight on key $j$."
    )


def stack(effect: MaskEffect) -> None:
    """Draw how many layers of this mask connect each pair of tokens."""
    fact(text.stack_fact(effect.needed))
    most = int(effect.needed.max(initial=0))
    left, right = st.columns([1, 1.2], gap="medium") if most > 1 else (None, st.container())
    if left is not None:  # a map in which every cell is 1 would show the mask again
        with left:
            tile = Tile(
                "Layers needed",
                "until information from the key reaches the query",
                effect.needed,
                effect.needed > 0,
                span=(0.0, float(most)),
            )
            rows, columns = effect.needed.shape
            pin = multiples(
                [tile],
                effect.names,
                key=key("stack"),
                noun="layers",
                height=MAP_HEIGHT,
                pin=read_linked("masks", key("reach"), (rows, columns)),
                fact=text.stack_fact(effect.needed).replace("*", ""),
            )
            write_linked("masks", key("reach"), pin)
            caption(
                "Each layer has this mask, and the residual connection passes on what it received. Hatched: never."
            )
    with right:
        heading = f"Each mask with its default parameters, {len(effect.names)} tokens"
        st.markdown(f"**{heading}**")
        table(
            text.PATTERN_HEAD,
            text.pattern_rows(cached(compute.patterns, len(effect.names))),
            caption=heading,
            left=2,
            markers=False,
        )
        st.caption(text.PATTERN_NOTE)


def batch(controls: Controls) -> None:
    """Draw the same mask on three sentences of unequal length, with their padding masked."""
    sentences = cached(compute.batch, controls.mask, controls.head)
    tiles = [
        Tile(" ".join(item.names[: item.real]), padding_note(item), item.weights, item.allowed)
        for item in sentences
    ]
    positions = [str(position) for position in range(len(sentences[0].names))]
    pin = multiples(
        tiles,
        positions,
        key=key("batch"),
        height=MAP_HEIGHT,
        pin=read_linked("masks", key("padded"), (len(positions), len(positions))),
        reads="position of the query (row) attends to → position of the key (column)",
        fact=text.batch_fact(sentences).replace("*", ""),
    )
    write_linked("masks", key("padded"), pin)
    fact(text.batch_fact(sentences))


def padding_note(item: compute.Sentence) -> str:
    """Which positions of a sentence are padding."""
    first, last = item.real, len(item.names) - 1
    return f"{item.real} tokens, " + (
        f"{first} to {last} are padding"
        if first < last
        else f"{last} is padding"
        if first == last
        else "no padding"
    )


def sources(effect: MaskEffect, controls: Controls) -> None:
    """Draw two measures of the weights, where each mask is from, and the rule that just ran."""
    caption(text.measures(effect, controls.head))
    mask = controls.mask
    config = compute.config_of(mask)
    for choice in config.mask.walk():
        item, piece = entry("mask", choice.key), make_mask(choice, config)
        entries_panel([item])
        source_panel(item.build if isinstance(piece, Rule) else type(piece))
    st.markdown("The same layer in a notebook:")
    st.code(text.snippet(mask), language="python")


# What a reader predicts and tries on Masks.


def question(tokens: int) -> Question:
    """Which cells a padding mask removes, counted on as many tokens as the page has."""
    size = max(tokens, PADDED + 1)
    words = torch.arange(size) < size - PADDED
    allowed = build_mask(Choice("padding"), size, size, key_mask=words[None])
    assert allowed is not None
    removed = ~allowed.expand(1, 1, size, size)[0, 0]
    rows, columns = bool(removed[~words].all()), bool(removed[:, ~words].all())
    rule = (
        f"A padding mask removes {int(removed.sum())} of {size * size} cells here: the last {PADDED} columns. No "
        "word attends to padding."
    )
    row = "A row of padding is still computed, but nothing reads its output."
    return Question(
        f"The last {PADDED} tokens are now padding: empty, to fill a batch. Which cells must be hidden, so "
        "that no word takes anything from them?",
        OPTIONS,
        {(True, False): 0, (False, True): 1, (True, True): 2}[rows, columns],
        (f"{rule} A row holds what its own query takes.", f"{rule} {row}", f"{rule} {row}"),
    )


def _mask(first: str, join: str = "alone", **params: object) -> dict[str, object]:
    return {
        "masks:first": first,
        "masks:join": join,
        **{f"masks:first:{first}:{name}": value for name, value in params.items()},
    }


MOVES = (
    Move(
        "Two words back",
        _mask("causal_local", lookback=2),
        "Each word attends to itself and the two words before it. “How far a stack of layers reaches” counts how many "
        "such layers connect the last word with the first.",
    ),
    Move(
        "Hide padding",
        _mask("padding"),
        "The last two tokens count as padding. Their columns are crossed out; their rows are not.",
    ),
    Move(
        "The opposite of causal",
        _mask("causal", "not"),
        "Now each word attends only to later words. The last word has no key left, so its output is 0 here.",
    ),
    Move(
        "Type a rule",
        _mask("formula", text=FORMULA),
        "A field appears below the maps. The rule allows a word, the one before it, and always the first one; edit it "
        "and watch the cells.",
    ),
)
