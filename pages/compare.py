"""Side by side: two to six mechanisms on the same tokens, with one crosshair, their differences and their costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape

import numpy as np
import streamlit as st
import torch
from streamlit.delta_generator import DeltaGenerator

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, Entry, entry, preset
from core.attention.cost import ClosedFormCost, Measurement, closed_form_cost, race
from core.attention.kernels.exact import exact
from core.attention.masks import COMPOSITIONS
from core.interpret import trace as analysis
from core.models.cards import CARDS, card
from core.pretrained import PretrainedError
from core.studies.racing import ONE_AT_A_TIME
from dashboard.draw.formats import MINUS, byte_size, duration, number, operations, rule
from dashboard.draw.multiples import Tile, difference_map, difference_span, multiples
from dashboard.draw.palette import SIGNED
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.runtime.link_values import fragment, read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import cached, measurements
from dashboard.ui.export import begin_before_title
from dashboard.ui.presentation import room
from dashboard.ui.tables import table
from dashboard.views.compare.compute import (
    MOST_TOKENS,
    MapResult,
    Tokens,
    compute_map,
    default_cell,
    shared_weights,
    tokens_of,
)
from dashboard.views.compare.controls import (
    CONTROLS,
    FEWEST,
    LAST_SEED,
    LENGTHS,
    MINILM,
    MOST,
    SEEDED,
    Controls,
    Pair,
    heads_of,
    load_controls,
    read_widgets,
    save_controls,
    store_controls,
    use_seeded,
)
from dashboard.widgets.mechanism_editor import AXIS_NAMES, mechanism, preset_of
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
from dashboard.widgets.params import KEEP, keep_heads, note_heads

# Names of mechanisms, the measured fact, the conditions under which it holds, and a cell's equation.


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


def fact_text(
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


def caption_text(
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


# The widgets: where queries and keys come from, which mechanisms in which order, and whose difference.


EDITING, EDITS, SENT = "compare:editing", "compare:edits", "compare:sent"
WIDTHS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
LONGEST_TEXT = 20_000  # as many as are read
CONTROL_ROW_PLAIN = "plain"
CHANGE, UP, DOWN, TWICE, REMOVE = "Change", "Move before", "Move after", "Duplicate", "Remove"


def tokens_popover(controls: Controls) -> None:
    """The sentence and the seed, and for a seeded layer its sizes and the head; drawn while it is open."""
    panel = st.popover(
        "Tokens",
        icon=":material/edit:",
        key="compare:tokens",
        on_change="rerun",
        help="The sentence that every mechanism reads, and the seed.",
    )
    if not panel.open:
        return
    with panel:
        st.text_area(
            "Sentence",
            key="compare:text",
            height=100,
            max_chars=LONGEST_TEXT,
            **KEEP,
            help="The text that every mechanism reads. It is split into tokens.",
        )
        st.number_input(
            "Seed",
            0,
            LAST_SEED,
            step=1,
            key="compare:seed",
            **KEEP,
            help="Fixes the random numbers of all parameters that are not trained.",
        )
        if not controls.seeded:
            return
        d_model, fits = controls.d_model, heads_of(controls.d_model)
        st.select_slider(
            "d_model",
            sorted({*WIDTHS, d_model}),
            d_model,
            key="compare:d_model",
            **KEEP,
            **keep_heads("compare:d_model", "compare:heads:{}".format, heads_of),
            help="How many numbers the vector of each token has.",
        )
        heads = st.selectbox(
            "Heads",
            fits,
            fits.index(controls.num_heads),
            key=f"compare:heads:{d_model}",
            **KEEP,
            help="How many heads the layer has; the number divides d_model.",
        )
        note_heads("compare:d_model", d_model, heads)
        st.selectbox(
            "Head drawn",
            range(controls.num_heads),
            controls.head,
            key=f"compare:head:{controls.num_heads}",
            **KEEP,
            help="The head whose maps are drawn.",
        )


def controls_row(controls: Controls, names: Sequence[str]) -> None:
    """The row of controls under the title."""
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with grid.cell(column_span=2):
        st.selectbox(
            "Queries and keys from",
            [SEEDED, *MINILM],
            key="compare:source",
            **KEEP,
            format_func=source_label,
            help="A head of the model MiniLM, or a layer with random parameters.",
        )
    with grid.cell(column_span=2):
        _mechanisms(controls, names)
    indices = range(len(controls.mechanisms))
    with grid:
        st.selectbox(
            "Difference",
            indices,
            key="compare:minuend",
            format_func=names.__getitem__,
            **KEEP,
            help="The mechanism from whose map the other map is subtracted.",
        )
        st.selectbox(
            "minus",
            indices,
            key="compare:subtrahend",
            format_func=names.__getitem__,
            **KEEP,
            help="The mechanism whose map is subtracted.",
        )


def source_label(source: str) -> str:
    if source == SEEDED:
        return "A seeded layer"
    layer, head = source.split(".")
    return f"MiniLM, layer {layer}, head {head}"


def _mechanisms(controls: Controls, names: Sequence[str]) -> None:
    """The list of mechanisms in a popover, drawn while it is open."""
    panel = st.popover(
        "Mechanisms",
        key="compare:list",
        on_change="rerun",
        width="stretch",
        help="Add, change, reorder or remove the mechanisms that are compared.",
    )
    if not panel.open:
        return
    with panel:
        count, full = len(names), len(names) >= MOST
        for index, name in enumerate(names):
            possible = {
                CHANGE: True,
                UP: index > 0,
                DOWN: index < count - 1,
                TWICE: not full,
                REMOVE: count > FEWEST,
            }
            key = f"compare:line:{index}"
            st.menu_button(
                plain(name),
                [action for action, can in possible.items() if can],
                key=key,
                width="stretch",
                on_click=_act,
                args=(key, index),
            )
        st.selectbox(
            "Add a mechanism",
            addable(),
            None,
            key="compare:add",
            format_func=add_label,
            disabled=full,
            on_change=_add,
            placeholder=f"At most {MOST} mechanisms" if full else "A preset, or one choice",
            help="A published mechanism, or dot-product attention with one part changed.",
        )
        st.selectbox(
            "Compare the layers of a model",
            [one.key for one in CARDS if one.pattern > 1],
            None,
            key="compare:layers",
            format_func=lambda key: card(key).name,
            on_change=_compare_layers,
            placeholder="A model with unlike layers",
            help="Replace the list by the different attentions of a published model's layers, in small.",
        )


def _act(key: str, index: int) -> None:
    """Do what was picked in a mechanism's menu."""
    action, order = st.session_state[key], list(range(len(st.session_state[CONTROLS].mechanisms)))
    if action == CHANGE:
        st.session_state[EDITING] = index
        st.session_state["compare:list"] = False  # the list would lie over the dialog
        st.session_state[EDITS] = (
            st.session_state.get(EDITS, 0) + 1
        )  # a new editor, which starts from the mechanism
    elif action == REMOVE:
        _reorder([*order[:index], *order[index + 1 :]])
    elif action == TWICE:
        _reorder([*order[: index + 1], *order[index:]])
    elif action in (UP, DOWN):
        other = index - 1 if action == UP else index + 1
        order[index], order[other] = order[other], order[index]
        _reorder(order)


def addable() -> list[str]:
    """What can be added: dot product, every preset, and dot product with one other choice of one axis."""
    singles = [
        f"{axis}={item.key}"
        for axis, entries in AXES.items()
        for item in entries
        if item.key not in COMPOSITIONS and item.key != getattr(AttentionConfig(), axis).key
    ]
    return [CONTROL_ROW_PLAIN, *(f"preset={item.key}" for item in PRESETS), *singles]


def add_label(option: str) -> str:
    if option == CONTROL_ROW_PLAIN:
        return "Dot product, unchanged"
    axis, _, key = option.partition("=")
    if axis == "preset":
        return preset(key).name
    return f"{AXIS_NAMES[axis]}: {entry(axis, key).name}"


def mechanism_of(option: str, sizes: tuple[int, int]) -> AttentionConfig:
    """The mechanism of an option of `addable`; ConfigError where the sizes (d_model, heads) do not fit it."""
    d_model, heads = sizes
    if option == CONTROL_ROW_PLAIN:
        return AttentionConfig(d_model, heads)
    axis, _, key = option.partition("=")
    if axis == "preset":
        return preset(key).config(d_model, heads)
    return AttentionConfig(d_model, heads).with_(**{axis: Choice(key)})


def _add() -> None:
    controls, option = st.session_state[CONTROLS], st.session_state["compare:add"]
    st.session_state["compare:add"] = None
    if option is None or len(controls.mechanisms) >= MOST:
        return
    try:
        store_controls(
            replace(
                controls, mechanisms=(*controls.mechanisms, mechanism_of(option, controls.sizes))
            )
        )
    except ConfigError as error:
        st.session_state["compare:refused"] = f"{add_label(option)} is not added. {error}"


def _compare_layers() -> None:
    """Compare each attention of the picked model's pattern once."""
    controls, key = st.session_state[CONTROLS], st.session_state["compare:layers"]
    st.session_state["compare:layers"] = None
    if key is None:
        return
    try:
        attentions = tuple(dict.fromkeys(card(key).small(*controls.sizes)))
    except ConfigError as error:
        st.session_state["compare:refused"] = (
            f"The layers of {card(key).name} are not compared. {error}"
        )
        return
    store_controls(replace(controls, mechanisms=attentions, minus=(1, 0)))


def _reorder(order: Sequence[int]) -> None:
    """The mechanisms in another order, some left out or twice; the difference stays with its two where it can."""
    controls = st.session_state[CONTROLS]
    minus = [order.index(old) if old in order else None for old in controls.minus]
    free = [index for index in range(len(order)) if index not in minus]
    pair = tuple(free.pop(0) if index is None else index for index in minus)
    store_controls(
        replace(controls, mechanisms=tuple(controls.mechanisms[old] for old in order), minus=pair)
    )


def edit_dialog(controls: Controls) -> None:
    """The dialog in which one mechanism is changed, while it is open."""
    index = st.session_state.pop(EDITING, None)
    if index is not None and index < len(controls.mechanisms):
        _dialog(controls, index)


@st.dialog("Change a mechanism", width="large")
def _dialog(controls: Controls, index: int) -> None:
    start = controls.mechanisms[index]
    st.markdown(f"It starts as **{plain(name_of(start))}**. Change any of the six axes.")
    axes = tuple(axis for axis in AXES if controls.seeded or axis != "projection")
    try:
        start = controls.sized(start)
    except ConfigError as error:
        st.warning(plain(str(error)))
        start = AttentionConfig(*controls.sizes)
    config = mechanism(f"compare:edit:{st.session_state[EDITS]}", start, axes=axes)
    if (
        st.button("Compare this", type="primary", disabled=config is None, key="compare:take")
        and config is not None
    ):
        before = st.session_state[CONTROLS]
        mechanisms = (*before.mechanisms[:index], config, *before.mechanisms[index + 1 :])
        st.session_state[SENT] = replace(before, mechanisms=mechanisms)
        st.rerun()


def apply_edit() -> None:
    """Apply what the dialog sent; call it before the widgets are drawn."""
    sent = st.session_state.pop(SENT, None)
    if sent is not None:
        store_controls(sent)


# What the page computes as Python.


TOKENS = {
    True: "The words as random vectors, for layers with seeded weights.",
    False: "MiniLM's own queries and keys of one layer, for every mechanism.",
}
MAPS = "The same head under every mechanism: its weights, and the difference of two."
COSTS = """Entropy (nats) and distance (tokens) of each map, and what each mechanism costs.
core.attention.cost.race(configs, [{length}]) measures time and memory here."""
DRAW = """
from core.show import show_maps

show_maps(weights, tokens, tokens)
"""


def script(
    controls: Controls, results: Sequence[MapResult], names: Sequence[str], tokens: Tokens
) -> Script:
    """The maps of the mechanisms that have one, the difference, and the exact part of the table."""
    drawn = [index for index, result in enumerate(results) if not result.error]
    configs = [controls.sized(controls.mechanisms[index]) for index in drawn]
    made = source_of({names[index]: config for index, config in zip(drawn, configs, strict=True)})
    padded = ", key_mask=torch.ones(1, len(tokens), dtype=torch.bool)" * any(
        "padding" in str(config.mask) for config in configs
    )
    call = "layer(x" if controls.seeded else "layer.attend_heads(q, k, v, x, x"
    first, second = controls.minus
    both = first != second and first in drawn and second in drawn
    difference = f"difference = weights[{names[first]!r}] - weights[{names[second]!r}]\n" * both
    maps = f"""
import torch

{attention_import(made)}
from core.seeding import seeded_layer

configs = {made}
weights = {{}}
for name, config in configs.items():
    layer = seeded_layer(config, {controls.seed})
    steps = {call}{padded})
    weights[name] = steps.weights[0, {controls.layer_head[1]}].detach()  # (T, T)
{difference}"""
    costs = f"""
from core.interpret.trace import entropy, mean_distance
from core.attention.cost import closed_form_cost

measures = {{name: (float(entropy(each[None].numpy()).mean()), float(mean_distance(each[None].numpy())[0]))
            for name, each in weights.items()}}
costs = {{name: closed_form_cost(config, {controls.length}) for name, config in configs.items()}}
for name, cost in costs.items():
    print(name, *measures[name], f"{{cost.parameters:,}} parameters, {{cost.flops:,.0f}} FLOPs")
"""
    return Script(
        (
            Cell(TOKENS[controls.seeded], _input(controls, tokens)),
            Cell(MAPS, maps, DRAW, "compare:maps"),
            Cell(COSTS.format(length=controls.length), costs),
        ),
        _results(controls, results, drawn, both),
    )


def _input(controls: Controls, tokens: Tokens) -> str:
    if controls.seeded:
        return f"""
from core.tokens import embed, labels, tokenize

words = tokenize({source_of(controls.text)}).tokens[:{MOST_TOKENS}]
tokens = labels(words)
x = embed(words, {controls.d_model}, seed={controls.seed})  # (1, T, C)
"""
    cut = len(tokens.names) == MOST_TOKENS  # the first tokens of a longer text
    heads, rows, names = (f"[{':, ' * axis}:{MOST_TOKENS}]" * cut for axis in (2, 1, 0))
    return f"""
from core.pretrained import layer_qkv, load_minilm

layer_inputs = layer_qkv(load_minilm(), {source_of(controls.text)}, {controls.layer_head[0]})
q, k, v = layer_inputs.q{heads}, layer_inputs.k{heads}, layer_inputs.v{heads}  # (1, H, T, D)
x, tokens = layer_inputs.x{rows}, layer_inputs.tokens{names}
"""


def _results(
    controls: Controls, results: Sequence[MapResult], drawn: Sequence[int], both: bool
) -> dict[str, np.ndarray]:
    maps = [results[index].weights for index in drawn]
    costs = [
        closed_form_cost(controls.sized(controls.mechanisms[index]), controls.length)
        for index in drawn
    ]
    values = {
        "torch.stack(list(weights.values()))": np.stack(maps),
        "list(measures.values())": np.array(
            [
                (
                    float(analysis.entropy(each[None]).mean()),
                    float(analysis.mean_distance(each[None])[0]),
                )
                for each in maps
            ]
        ),
        "[(cost.parameters, cost.flops) for cost in costs.values()]": np.array(
            [(cost.parameters, cost.flops) for cost in costs]
        ),
    }
    if both:
        first, second = controls.minus
        values["difference"] = results[first].weights - results[second].weights
    return values


# The page Side by side, as one fragment: title, controls, maps, difference, fact, table of costs.


ROUNDS = 5
POLL_INTERVAL = 0.1  # seconds between two tries while another measurement runs
UNABLE = (ConfigError, ValueError, RuntimeError)

Measurements = dict[
    tuple[AttentionConfig, int], Measurement
]  # by mechanism at its sizes, and length

VISITED = "compare:visited"  # the session has seen the first measurements
HEAD = ("mechanism", "entropy", "distance", "time", "memory", "FLOPs", "parameters")
MISSING = "–"
DENSE_NOTE = "¹ This kernel computes all scores and then masks some, so it saves no time."

LOADED, DRAWN = "compare:loaded", "compare:map_tiles"
SHORT = 64  # tokens, up to which one thread is enough
MAPS_HEIGHT = 380  # px of the placeholder while the model is loaded
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@fragment
def page() -> None:
    """Draw the page; its maps come before the controls above them, from session_state, except on the first run."""
    top, body = st.container(), st.container()
    apply_edit()
    controls, errors = load_controls()
    controls = read_widgets(controls)
    save_controls(controls)
    names = names_of(controls.mechanisms)
    errors += filter(None, [st.session_state.pop("compare:refused", None)])
    early = DRAWN in st.session_state
    measure = None
    if not early:
        _head(top, controls, names, errors)
    else:
        begin_before_title()
    with body:
        tokens = _read_tokens(controls)
        with one_thread(tokens is None or len(tokens.names) <= SHORT):
            results = (
                [compute_map(controls, config) for config in controls.mechanisms] if tokens else []
            )
        tiles = {
            index: _tile(controls, names, index, each)
            for index, each in enumerate(results)
            if not each.error
        }
        cell = _draw_maps(list(tiles.values()), tokens) if tokens and tiles else None
        if early:
            _head(top, controls, names, errors, first=False)
        if tokens and cell is not None:
            add_script(partial(script, controls, results, names, tokens))
            measure = _difference_and_table(controls, results, names, tokens, cell, tiles)
            details(
                "Equations with their numbers, papers and the code that just ran",
                partial(sources, controls, names, results, tokens, cell),
                "compare:sources",
            )
        # Draw why a mechanism has no map, and the way out where MiniLM's queries and keys are the reason
        for name, each in zip(names, results, strict=False):
            if each.error:
                st.error(f"**{plain(name)}** cannot be drawn here. {plain(each.error)}")
        if any(each.error for each in results) and not controls.seeded:
            st.button(
                "Use the seeded layer",
                key="compare:seeded",
                on_click=use_seeded,
                help="A layer with random parameters, which every mechanism can change.",
            )
    next_page("compare")
    edit_dialog(controls)
    if measure is not None:
        measure()  # a second or two, for which nothing else has to wait


def _head(
    container: DeltaGenerator,
    controls: Controls,
    names: Sequence[str],
    errors: Sequence[str],
    *,
    first: bool = True,
) -> None:
    """Draw title, errors of the link, and the row of controls."""
    count = COUNTS[len(controls.mechanisms)]
    lead = (
        f"Compare the attention maps of {count} mechanisms on the same tokens. Shared parameters are equal."
        if controls.seeded
        else f"Compare the attention maps of {count} mechanisms on the same queries and keys."
    )
    with container:
        title("Side by side", lead, partial(tokens_popover, controls), first=first)
        for sentence in errors:
            st.warning(sentence)
        controls_row(controls, names)


def _read_tokens(controls: Controls) -> Tokens | None:
    """The tokens, with the model loaded where its queries are used; None and a hint where there are none."""
    try:
        if controls.seeded or st.session_state.get(LOADED, False):
            tokens = tokens_of(controls)
        else:
            with (
                st.spinner("Loading the model, 91 MB, first time only"),
                st.skeleton(height=MAPS_HEIGHT),
            ):
                tokens = tokens_of(controls)
    except PretrainedError as error:
        st.info(str(error), icon=":material/edit:")
        return None
    if not controls.seeded:
        st.session_state[LOADED] = True
    if not tokens.names:
        st.info(
            "There is no token here. Open Tokens and type a word, or a sentence.",
            icon=":material/edit:",
        )
        return None
    return tokens


def _tile(controls: Controls, names: Sequence[str], index: int, result: MapResult) -> Tile:
    """A mechanism's map under its name and rule, with its index as marker."""
    note = "implied · " * result.implied + heading_note(controls.mechanisms[index])
    return Tile(names[index], note, result.weights, result.mask, index)


def _draw_maps(tiles: Sequence[Tile], tokens: Tokens) -> Pair:
    """Draw the maps under one crosshair; returns the pinned cell, else the default one."""
    size = len(tokens.names)
    linked = read_linked("compare", "pin", (size, size))
    st.session_state[DRAWN] = True
    row, column = default_cell(tiles[0].weights, tokens.special)
    sentence = f"{len(tiles)} maps of {size} tokens; the picked query is {tokens.names[row]}"
    pin = multiples(
        tiles,
        tokens.names,
        key="compare:maps",
        query=row,
        column=column,
        pin=linked,
        link="compare",
        fact=sentence,
    )
    return write_linked("compare", "pin", pin) or (row, column)


def _difference_and_table(
    controls: Controls,
    results: Sequence[MapResult],
    names: Sequence[str],
    tokens: Tokens,
    cell: Pair,
    tiles: dict[int, Tile],
) -> Callable[[], None] | None:
    """Draw the difference on the left; its scale, the fact and the table on the right.

    Returns what measures the costs, None where nothing is left to measure.
    """
    a, b = controls.minus
    both = a != b and a in tiles and b in tiles
    left, right = st.columns([0.34, 0.66], gap="medium")
    with left:
        if both:
            difference = number(float(results[a].weights[cell] - results[b].weights[cell]))
            difference_map(
                tiles[a],
                tiles[b],
                tokens.names,
                key="compare:apart",
                query=cell[0],
                column=cell[1],
                pin=None,
                link="compare",
                legend=False,
                fact=f"{names[a]} minus {names[b]}: {difference} there",
            )
        else:
            st.caption("Choose two different mechanisms above to see the difference of their maps.")
    with right:
        if both:
            _legend(difference_span(tiles[a], tiles[b]), names[a], names[b])
            fact(fact_text(controls, names, results, tokens, cell))
        measure = cost_table(controls, names, results)
        shared, own = cached(
            shared_weights, controls, tuple(controls.mechanisms[index] for index in tiles)
        )
        labels = [names[index] for index in tiles]
        caption(
            f"{caption_text(controls, tokens, [results[index] for index in tiles], labels)} "
            f"{shared_weights_text(shared, own, labels, controls.seeded)}"
        )
    return measure


def _legend(end: float, first: str, second: str) -> None:
    """The scale of the difference: purple is less, green is more."""
    stops = ", ".join(SIGNED[theme()])
    st.html(
        f'<div style="display:flex;flex-wrap:wrap;gap:0 16px;font-size:12px;line-height:18px">'
        f'<div style="width:226px;max-width:100%"><div style="height:8px;margin-top:5px;'
        f'background:linear-gradient(to right,{stops})"></div>'
        f'<div style="display:flex;justify-content:space-between;opacity:.62"><span>{MINUS}{end:g}</span>'
        f"<span>0</span><span>+{end:g}</span></div></div>"
        f'<span style="opacity:.62">weight of {escape(first)} minus weight of {escape(second)}</span></div>'
    )


# The table under the fact: a row a mechanism with the marker of its map, what it measures and what it costs.


def cost_table(
    controls: Controls, names: Sequence[str], results: Sequence[MapResult]
) -> Callable[[], None] | None:
    """Draw the table; what no session has measured yet waits for a press, except on the first visit.

    Returns what measures and fills the table, for the page to call when all else is drawn; None with nothing to do.
    """
    done: Measurements = measurements(__name__)
    configs = sized_configs(controls)
    possible = [config for config in configs if config is not None]
    closed = [
        None if config is None else cached(closed_form_cost, config, controls.length)
        for config in configs
    ]
    first = next((cost.parameters for cost in closed if cost), 0)
    table_slot, progress_slot = st.empty(), st.empty()

    def measured() -> list[Measurement | None]:
        return [done.get((config, controls.length)) if config else None for config in configs]

    def draw() -> None:
        rows = [
            row(*each, first)
            for each in zip(names, results, closed, range(len(names)), measured(), strict=True)
        ]
        with table_slot.container():
            table(
                HEAD,
                rows,
                caption="Entropy, distance, time, memory, FLOPs and parameters of each mechanism",
            )

    def measure() -> None:
        bar = progress_slot.progress(0.0, "Measuring time and memory on this machine")
        for fraction in measure_costs(possible, controls.length, done):
            bar.progress(fraction, "Measuring time and memory on this machine")
        progress_slot.empty()
        st.session_state[VISITED] = True
        draw()

    draw()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox(
            "Length T",
            LENGTHS,
            key="compare:length",
            persist_state="session",
            width=room(110),
            help="The number of tokens at which time, memory and FLOPs are given.",
            format_func=lambda size: f"T = {size}",
        )
        pressed = st.button(
            "Measure",
            icon=":material/speed:",
            key="compare:measure",
            help="Runs every mechanism on this machine, which takes a second or two.",
        )
    dense = any(cost.dense for cost in closed if cost)
    unable = [
        f"{plain(name)}: {plain(each.skipped)}"
        for name, each in zip(names, measured(), strict=True)
        if each and each.skipped
    ]
    caption(" ".join([conditions(controls), *[DENSE_NOTE] * dense, *unable]))
    new = not st.session_state.get(VISITED) and any(
        (config, controls.length) not in done for config in possible
    )
    if not new:
        st.session_state[VISITED] = True
    return measure if pressed or new else None


def row(
    name: str,
    result: MapResult,
    cost: ClosedFormCost | None,
    index: int,
    measurement: Measurement | None,
    first: int,
) -> list[str]:
    """One line; parameters as more or less than the first's, `first`, except in the first line."""
    time = memory = flops = parameters = MISSING
    if measurement is not None and not measurement.skipped:
        time = duration(measurement.seconds) + "¹" * bool(cost and cost.dense)
        memory = byte_size(measurement.bytes)
    if cost is not None:
        flops = ("≤ " if cost.at_most else "") + operations(cost.flops)
        more = cost.parameters - first
        parameters = (
            f"{'+' if more >= 0 else '−'} {abs(more):,}" if index else f"{cost.parameters:,}"
        )
    entropy, distance = (
        MISSING if value is None else number(value) for value in (result.entropy, result.distance)
    )
    return [name, entropy, distance, time, memory, flops, parameters]


# The time and memory of each mechanism, as measured here.


def sized_configs(controls: Controls) -> list[AttentionConfig | None]:
    """Every mechanism at the sizes compared; None where they do not fit it."""
    configs: list[AttentionConfig | None] = []
    for config in controls.mechanisms:
        try:
            configs.append(controls.sized(config))
        except ConfigError:
            configs.append(None)
    return configs


def measure_costs(
    configs: Sequence[AttentionConfig], length: int, measurements: Measurements
) -> Iterator[float]:
    """Measure the mechanisms at one length in turn, into `measurements`; yields the progress, 0 to 1.

    It waits while this server measures anything else.
    """
    while not ONE_AT_A_TIME.acquire(timeout=POLL_INTERVAL):
        yield 0.0
    try:
        yield from _measure_costs(configs, length, measurements)
    finally:
        ONE_AT_A_TIME.release()


def _measure_costs(
    configs: Sequence[AttentionConfig], length: int, measurements: Measurements
) -> Iterator[float]:
    named = {str(index): config for index, config in enumerate(dict.fromkeys(configs))}
    try:
        yield from _race_configs(named, length, measurements)
    except UNABLE:  # one of them cannot run at that length: each runs alone, and the error is recorded for that one
        for count, (name, config) in enumerate(named.items(), 1):
            try:
                for _ in _race_configs({name: config}, length, measurements):
                    pass
            except UNABLE as error:
                measurements[config, length] = Measurement(name, length, skipped=str(error))
            yield count / len(named)


def _race_configs(
    configs: Mapping[str, AttentionConfig], length: int, measurements: Measurements
) -> Iterator[float]:
    for progress in race(configs, [length], rounds=ROUNDS):
        for point in progress.points:
            measurements[configs[point.name], length] = point
        yield progress.fraction


def conditions(controls: Controls) -> str:
    """The conditions under which time and memory were measured."""
    d_model, heads = controls.sizes
    threads = torch.get_num_threads()
    return (
        f"T = {controls.length}, d_model {d_model}, {heads} heads, float32, {threads} CPU "
        f"{'thread' if threads == 1 else 'threads'}. Time and memory: the kernel's forward pass, median of "
        f"{ROUNDS} runs. FLOPs: its matrix products. Entropy is in nats; distance is the mean "
        "distance of the weight, in tokens."
    )


# The end of the page: each mechanism's equation with its numbers, its paper, the code that ran.


def sources(
    controls: Controls,
    names: Sequence[str],
    results: Sequence[MapResult],
    tokens: Tokens,
    cell: Pair,
) -> None:
    """Draw the cell's numbers in every mechanism, equations and papers, and the code."""
    query, key = tokens.names[cell[0]], tokens.names[cell[1]]
    for config, name, each in zip(controls.mechanisms, names, results, strict=True):
        st.markdown(f"### {plain(name)}")
        if not each.error:
            st.latex(equation(each, query, key, cell))
        entries_panel(entries_of(config))
    st.markdown("### The code that just ran")
    source_panel(exact)


def entries_of(config: AttentionConfig) -> list[Entry]:
    """The entries of the changed axes, each part of a mask; of the plain dot product, score and normalizer."""
    axes = changed_axes(config) or ["score", "normalizer"]
    return [
        entry(axis, part.key)
        for axis in axes
        for part in getattr(config, axis).parts or (getattr(config, axis),)
    ]
