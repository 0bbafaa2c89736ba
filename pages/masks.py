"""Masks: pick, compose, type or draw who may see whom, and watch the same scores become other weights."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import AXES, Choice, entry
from core.attention.masks import COMPOSITIONS, make_mask
from core.attention.masks.patterns import Rule
from core.entries import complete
from core.interpret import trace as analysis
from core.studies import masks as study
from core.tokens import Cut, tokenize
from dashboard.draw import masks as draw

# as many as a drawing may have; keys that a padding mask hides at first
MAX_TOKENS, PADDING = 64, 2
MASKS = {item.key: item.name for item in AXES["mask"] if item.key not in COMPOSITIONS}
JOINS = {
    "alone": "alone",
    "not": "not",
    "and": "and",
    "or": "or",
    "and_not": "and not",
    "or_not": "or not",
}


def start_drawing() -> None:
    """Start the first drawing from the mask on the page, when a drawing is chosen in the list."""
    if Controls.shown.value and Controls.read("first").first == complete(
        "drawn", AXES["mask"], "mask"
    ):
        Controls.set(first=Choice.of("drawn", drawing=Controls.shown.value))


def measured_steps() -> tuple[int, ...]:
    """The steps of the models on the page: fewer, where their training was stopped."""
    trained = Controls.trained.value
    return study.RECORDED[: len(trained[1]["none"])] if trained else study.RECORDED


Pair = tuple[study.Progress, study.Progress]  # with the mask and without it


class Controls(lab.Fields, page="masks"):
    tokens = lab.Text(
        "Sentence",
        "The animal didn't cross the street because it was too tired .",
        span=3,
        help="Each word becomes one token.",
    )
    first = lab.ChoiceField(
        "Mask",
        MASKS,
        "causal",
        axis="mask",
        span=2,
        # a drawing is hardly ever typed
        params=lambda c, item, param: (
            "settings" if item.key == "drawn" else "below" if lab.is_text(param) else ""
        ),
        help="Which keys each query may take from",
        also={"on_change": start_drawing},
    )
    join = lab.Select(
        "Combine",
        JOINS,
        place="join",
        hidden=True,  # but where masks are joined
        help="Use the mask alone, invert it, or join it with a second one",
    )
    second = lab.ChoiceField(
        "Second mask",
        MASKS,
        "causal",
        axis="mask",
        after=", 2nd",
        help="The mask that is joined with the first",
    ).optional(lambda c: c.join not in ("alone", "not"))
    head = lab.Select(
        "Head", range(study.HEADS), place="settings", help="The head whose weights are drawn"
    )
    real = lab.Number[int](
        "Real tokens",
        lambda c: max(0, len(c.text.tokens) - PADDING),
        0,
        512,
        help="Tokens after these are padding. With 0 every token is padding.",
    ).optional(lambda c: "padding" in [one.key for one in (c.first, c.second) if one])
    step = lab.SelectSlider[int](
        "Training step",
        lambda _: measured_steps(),
        lambda _: measured_steps()[-1],
        help="How many steps of training both models have had",
    )
    cell, padded, reach = lab.CellField(), lab.CellField(), lab.CellField()
    # the mask as a drawing; that before a press on the board
    shown, before = lab.SessionValue(""), lab.SessionValue("")
    # the seed of the models that were trained here, and these; the seed of a training, when it began, and its steps
    trained = lab.SessionValue[tuple[int, study.Models] | None](None)
    training = lab.SessionValue[tuple[int, float, Iterator[Pair]] | None](None)

    @property
    def text(self) -> Cut:
        return tokenize(self.tokens, MAX_TOKENS)

    @property
    def mask(self) -> Choice:
        operator, _, negated = self.join.partition("_")
        second = self.second and (Choice.of("not", self.second) if negated else self.second)
        others = [second] if second else []
        return self.first if self.join == "alone" else Choice.of(operator, self.first, *others)


CELL = 64  # px of a cell on a laptop, at most: of a few words all are as large as the width allows
# On a phone the sentence stands between the controls and the board, so that a press and what it does are in one screen.
STYLE = "<style>@media (max-width: 640px) { :has(> .st-key-masks-words) { order: -1 } }</style>"
BOARD, MAPS = "masks:board", "masks:maps"
SECONDS = 6  # that both models take to train on a core
PADDED = 2  # tokens of the question
PICTURE = "tokens", "first", "join", "second", "head", "real"  # the controls of the maps
FORMULA = "j <= i and i - j < 2 or j == 0"  # to try


def page() -> None:
    lab.title(
        "Masks",
        "To learn to predict the next word, a model must not see it: a mask hides the later words.",
    )
    st.html(STYLE)
    lab.fragment_unless_measuring(explore)


def explore() -> None:
    row, board = st.container(), st.container()
    with board:
        figure, below = lab.picture("masks"), st.container()
        words = st.container(key="masks:words")
    conditions, settings = st.container(), lab.settings_panel("All settings", "masks:settings")
    with row:
        rare = settings.grid(6, min_column_width=120)
        joined = Controls.read("join").join != "alone"
        places = {"below": below, "settings": rare} | ({} if joined else {"join": rare})
        controls = Controls.draw(*PICTURE, **places)
    hidden, effect = st.container(), None
    with figure, lab.shown_errors():
        if not controls.text.tokens:
            st.warning(
                "There is no token here. Type a word, or a sentence: each word becomes one token."
            )
        else:
            if controls.unread:
                rule = lab.plain(draw.rule_of(controls.mask))
                st.caption(f"The maps show the last rule that could be read: {rule}.")
            effect = effect_of(controls.mask, controls)
            cell, pressed = maps(effect, controls)
    with hidden:
        why_hidden()
    if effect is None:
        return
    with words:
        lab.fact(pressed + draw.fact_text(effect, None if pressed else cell))
    with conditions:
        lab.caption(" ".join([draw.conditions(controls.mask, controls.head), *controls.text.notes]))
    lab.as_python(effect=effect)
    lab.predict("masks", question(len(effect.names)))
    lab.try_this(
        "masks",
        (
            lab.Move(
                "Two words back",
                _state(first=Choice.of("causal_local", lookback=2), join="alone"),
                "Each word takes from itself and the two words before it. “How far layers reach” counts how "
                "many such layers connect the last word with the first.",
            ),
            lab.Move(
                "The opposite of causal",
                _state(first=Choice("causal"), join="not"),
                "Now each word takes from later words only. The last word has no key left, so its output is 0 here.",
            ),
            lab.Move(
                "Type a rule",
                _state(first=Choice.of("formula", text=FORMULA), join="alone"),
                "A field appears below the maps. The rule allows a word, the one before it, and always the first one; edit "
                "it and watch the cells.",
            ),
        ),
    )
    st.markdown("## One weight")
    lab.paragraph(
        "A hidden score becomes −∞: softmax makes its weight 0, and the other keys share the row."
    )
    parts = draw.equation(effect, controls.mask, *cell, lab.Ink.of(lab.theme()).pick)
    st.markdown(" ".join(rf"$\displaystyle {part}$" for part in parts), text_alignment="center")
    lab.caption(
        "$M_i$: the keys of query $i$ (row); $w_{i,j}$: its weight on key $j$.",
    )
    lab.train_with("mask", controls.mask, key="masks:train")
    for label, view, key, linked in (
        (
            "A padded batch",
            partial(batch, controls),
            "batched",
            Controls.padded.in_link,
        ),
        (
            "How far layers reach",
            partial(stack, effect),
            "stacked",
            Controls.reach.in_link,
        ),
        (
            "In PyTorch",
            partial(in_pytorch, effect, controls, cell[0]),
            "pytorch",
            False,
        ),
        (
            "Equation, paper and code",
            partial(sources, effect, controls),
            "sources",
            False,
        ),
    ):
        lab.details(label, view, f"masks:{key}", opened=linked)


def why_hidden() -> None:
    """Draw what a model learns with the causal mask and without a mask, at the picked step."""
    st.markdown("## Why hide the future?")
    lab.paragraph("Two equal models learn to name the next word. Move the step.")
    saved = [lab.cached(study.load_models, seed) for seed in range(study.SEEDS)]
    left, right = st.columns(2, gap="medium")
    with right:
        written = st.container()
        lab.details("Train both again", partial(train_again, saved), "masks:again")
    with left:
        chart = st.container()
        step = Controls.draw("step", into=lab.HERE).step
    future = saved[0]
    if Controls.trained.value:
        seed, future = Controls.trained.value
        lab.recorded(study.compare_masks, (seed, len(future["none"])), future)
    pair = [model[study.RECORDED.index(step)] for model in future.values()]
    lab.draw_chart(
        chart,
        draw.future_chart(future, step, lab.Ink.of(lab.theme())),
        alt="Loss by step of training, with the causal mask and without a mask, in training and in writing",
        key="masks:future",
    )
    with written:
        lab.fact(draw.future_fact(*pair))
        for name, one in zip(draw.MODELS, pair, strict=True):
            lab.paragraph(draw.written_text(name, one))
    lab.as_python("future", {"masks:future": draw.FUTURE}, future=future)


def train_again(saved: list[study.Models]) -> None:
    """Go on with a training that was started, and draw the button that starts one from the next seed."""
    if Controls.training.value:
        seed, began, pairs = Controls.training.value
        measured = lab.measure_with_progress(
            "masks:measured",
            (seed, began),
            study.RECORDED,
            lambda _: next(pairs),
            "points",
            lab.UNASKED,
        )
        if measured:
            models = zip(("causal", "none"), zip(*measured.values(), strict=True), strict=True)
            Controls.trained.value = seed, dict(models)
        if len(measured) == len(study.RECORDED):
            Controls.training.value = None
    drawn = Controls.trained.value[0] if Controls.trained.value else 0
    lab.caption(draw.future_conditions(drawn, saved))
    seed = max(drawn + 1, study.SEEDS)
    st.button(
        f"Train both with seed {seed}, {SECONDS} s",
        icon=":material/play_arrow:",
        key="masks:train_both",
        help="On this machine, from other first weights and sentences",
        on_click=start_training,
        args=(seed,),
    )


def start_training(seed: int) -> None:
    pairs = zip(study.train("causal", seed), study.train("none", seed), strict=True)
    Controls.training.value = seed, time.time(), pairs


def _state(**values: Any) -> dict[str, Any]:
    """These controls, and no cell that was pinned in the picture before."""
    return Controls.state(**values) | {Controls.cell.now.key: None}


def effect_of(mask: Choice, controls: Controls) -> study.MaskEffect:
    return lab.cached(study.mask_effect, mask, controls.text.tokens, controls.real, controls.head)


def maps(effect: study.MaskEffect, controls: Controls) -> tuple[tuple[int, int], str]:
    """Draw the board and the maps; returns the picked cell, and what a press on the board did to its row."""
    Controls.shown.value = effect.drawing  # from which a drawing would start
    earlier, pressed = None, None
    if controls.mask.key == "drawn" and Controls.before.value:
        earlier = effect_of(Choice.of("drawn", drawing=Controls.before.value), controls)
        for row, column in np.argwhere(earlier.allowed != effect.allowed)[:1].tolist():
            pressed = row, column
    query, column = pressed or effect.telling_cell
    size = (len(effect.names), len(effect.names))
    pin = Controls.cell.pinned(size)
    # before the maps are drawn: the board speaks of their cell
    cell = lab.settle_pin(lab.stores(MAPS, None)[1], MAPS, pin, size) or (query, column)
    name = lab.choice_name("mask", controls.mask)
    count = f"{effect.allowed.sum()} of {effect.allowed.size} cells"
    # Of more tokens the cells of a board in a column are too small to click; from 600 px on the maps keep their names.
    in_columns = len(effect.names) <= 24
    left, right = (
        st.columns([1, 1.84], gap="small") if in_columns else (st.container(), st.container())
    )
    with left:
        lab.mask_board(
            effect.allowed,
            effect.names,
            key=BOARD,
            weights=effect.after,
            cell=CELL,
            on_draw=apply_drawing,
            query=cell[0],
            title=name,
            note="query (row), key (column)",
            fact=f"{name}: {count} are allowed.",
        )
    tiles = [
        lab.Tile("With the mask", count, effect.after, effect.allowed),  # a phone shows the first
        lab.Tile("Without the mask", "every key", effect.before),
    ]
    with right:
        lab.linked_maps(
            Controls.cell,
            "maps",
            tiles,
            effect.names,
            fact=draw.fact_text(effect).replace("*", ""),
            height=420,  # and cells, as the board has
            cell=CELL,
            query=query,
            column=column,
        )
    if earlier is None or cell != pressed:
        return cell, ""
    return cell, draw.press_text(earlier, effect, cell)


def apply_drawing() -> None:
    """Make the mask the board's drawing, after cells were pressed."""
    Controls.before.value = Controls.shown.value
    Controls.set(first=Choice.of("drawn", drawing=lab.drawing_text(BOARD)), join="alone")
    Controls.cell.pin(None)  # the maps follow the pressed cell


def in_pytorch(effect: study.MaskEffect, controls: Controls, query: int) -> None:
    first = max(0, min(query - draw.MAX_KEYS // 2, len(effect.names) - draw.MAX_KEYS))
    keys = slice(first, first + draw.MAX_KEYS)
    row = effect.allowed[query, keys]
    heading, size = f"Query {query}: {effect.names[query]}", len(effect.names)
    lab.table(
        [heading, *effect.names[keys]],
        [
            [
                "here, F.scaled_dot_product_attention: True = may attend",
                *(str(bool(c)) for c in row),
            ],
            ["nn.MultiheadAttention: True = ignore", *(str(not c) for c in row)],
        ],
        caption=heading,
        markers=False,
    )
    st.code(
        f"# allowed: bool ({size}, {size}), True = may attend, as on this page\n"
        "attn_mask = ~allowed  # the line that converts: True = ignore\n"
        f"mha = nn.MultiheadAttention({study.D_MODEL}, {study.HEADS}, batch_first=True)\n"
        "out, weights = mha(x, x, x, attn_mask=attn_mask)\n\n"
        "out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)  # no conversion",
        language="python",
    )
    st.markdown(
        draw.torch_fact(
            lab.cached(study.torch_check, controls.mask, controls.text.tokens, controls.real)
        )
    )


def stack(effect: study.MaskEffect) -> None:
    lab.fact(draw.stack_fact(effect.needed))
    most = int(effect.needed.max(initial=0))
    left, right = st.columns([1, 1.2], gap="medium") if most > 1 else (None, st.container())
    if left is not None:  # a map in which every cell is 1 would show the mask again
        with left:
            lab.linked_maps(
                Controls.reach,
                "stack",
                [
                    lab.Tile(
                        "Layers needed",
                        "until information from the key reaches the query",
                        effect.needed,
                        effect.needed > 0,
                        span=(0.0, float(most)),
                    )
                ],
                effect.names,
                fact=draw.stack_fact(effect.needed).replace("*", ""),
                height=300,
                noun="layers",
            )
            lab.caption(
                "Each layer has this mask, and the residual connection passes on what it received. Hatched: never.",
            )
    with right:
        heading = f"Each mask with its default parameters, {len(effect.names)} tokens"
        st.markdown(f"**{heading}**")
        lab.table(
            ("mask", "rule", "cells", "layers", "never"),
            [
                [name, rule, str(cells), str(layers), str(never or "–")]
                for name, rule, cells, layers, never in lab.cached(
                    study.patterns, len(effect.names)
                )
            ],
            caption=heading,
            left=2,
            markers=False,
        )
        lab.caption(
            "Cells: how many are allowed. Layers: how many connect all pairs that can be connected. Never: pairs "
            "that no number of layers connects.",
        )


def batch(controls: Controls) -> None:
    sentences = lab.cached(study.batch, controls.mask, controls.head)
    tiles = [
        lab.Tile(
            " ".join(item.names[: item.real]),
            f"{item.real} tokens, {len(item.names) - item.real} of padding",
            item.weights,
            item.allowed,
        )
        for item in sentences
    ]
    lab.linked_maps(
        Controls.padded,
        "batch",
        tiles,
        [str(position) for position in range(len(sentences[0].names))],
        fact=draw.batch_fact(sentences).replace("*", ""),
        height=300,
        reads="position of the query (row) takes from → position of the key (column)",
    )
    lab.fact(draw.batch_fact(sentences))


def sources(effect: study.MaskEffect, controls: Controls) -> None:
    maps = np.stack((effect.after, effect.before))
    entropy, distance = analysis.entropy(maps).mean(1), analysis.mean_distance(maps)
    lab.caption(
        f"The mean entropy of a row is {lab.number(entropy[0])} nats (without the mask {lab.number(entropy[1])}), and the "
        f"mean distance to the attended key {lab.number(distance[0])} tokens ({lab.number(distance[1])}). Head "
        f"{controls.head} of {study.HEADS}, d_model {study.D_MODEL}, no positions.",
    )
    mask = controls.mask
    config = study.config_of(mask)
    for choice in config.mask.walk():
        item, piece = entry("mask", choice.key), make_mask(choice, config)
        lab.entries_panel([item])
        lab.source_panel(item.build if isinstance(piece, Rule) else type(piece))
    st.markdown("The same layer in a notebook:")
    st.code(
        "from core.attention import Attention, AttentionConfig, Choice\n\n"
        f"mask = {lab.source_of(mask)}\nlayer = Attention(AttentionConfig({study.D_MODEL}, {study.HEADS}, mask=mask))\n",
        language="python",
    )


# What a reader predicts and tries on Masks.


def question(tokens: int) -> lab.Question:
    size = max(tokens, PADDED + 1)
    removed = ~study.allowed_of(
        study.steps_of(Choice("padding"), ("word",) * size, size - PADDED), 0
    )
    rows, columns = bool(removed[-PADDED:].all()), bool(removed[:, -PADDED:].all())
    rule = (
        f"A padding mask removes {int(removed.sum())} of {size * size} cells here: the last {PADDED} columns. No "
        "word takes from padding."
    )
    row = "A row of padding is still computed, but nothing takes from it."
    return lab.Question(
        f"The last {PADDED} tokens are padding, empty. Which cells must the mask hide?",
        ("Their rows", "Their columns", "Both"),
        {(True, False): 0, (False, True): 1, (True, True): 2}[rows, columns],
        (f"{rule} A row holds what its own query takes.", f"{rule} {row}", f"{rule} {row}"),
    )
