"""Side by side: two to six mechanisms on the same tokens, with one crosshair, their differences and their costs."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st
import torch

import dashboard.page as lab
from core.attention import (
    AXES,
    PRESETS,
    AttentionConfig,
    ConfigError,
    Entry,
    check_sizes,
    entry,
    exact,
    heads_that_divide,
    preset,
)
from core.attention.cost import ClosedFormCost, Measurement, closed_form_cost
from core.attention.masks import COMPOSITIONS
from core.attention.presets import preset_of
from core.attention.text import from_text, to_text
from core.entries import quote, refuse_if
from core.interpret import trace as analysis
from core.models.cards import CARDS, card
from core.pretrained import PretrainedError
from core.studies import compare as study

# Names of mechanisms, the measured fact, the conditions under which it holds, and a cell's equation.


PLAIN = AttentionConfig()
SAME_SHARE = 0.005  # a smaller difference of two shares is not written


def changed_axes(config: AttentionConfig) -> list[str]:
    return [axis for axis in AXES if getattr(config, axis) != getattr(PLAIN, axis)]


def name_of(config: AttentionConfig) -> str:
    """A mechanism's name: its one changed choice, else its preset, else all of its changed choices."""
    axes = changed_axes(config)
    if len(axes) == 1:
        return lab.choice_name(axes[0], getattr(config, axes[0]))
    known = preset_of(config)
    if known not in (None, "self_attention"):  # which is named by its score
        return preset(known).name
    return (
        " + ".join(lab.choice_name(axis, getattr(config, axis)) for axis in axes) or "Dot product"
    )


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
    rules = [lab.rule(axis, getattr(config, axis)) for axis in axes]
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
    axes, lowered = changed_axes(config), lab.lower_name(name)
    if lowered == name or len(axes) > 1:
        return lowered
    if not axes:
        return f"the {lowered}"
    nouns = {"score": " score", "mask": "" if "window" in lowered else " mask", "kernel": " kernel"}
    return f"the {lowered}{nouns[axes[0]]}" if axes[0] in nouns else lowered


def fact_text(
    controls: study.Comparison,
    names: Sequence[str],
    results: Sequence[study.MapResult],
    tokens: study.Tokens,
    cell: tuple[int, int],
) -> str:
    a, b = controls.minus
    first, second = results[a], results[b]
    name_a, name_b = (
        spoken(controls.mechanisms[a], names[a]),
        spoken(controls.mechanisms[b], names[b]),
    )
    begin = name_a[:1].upper() + name_a[1:]
    even = study.MapResult(np.full(first.weights.shape, 1 / len(tokens.names))).near
    # a smaller difference does not show in three decimals
    if np.abs(first.weights - second.weights).max() < 5e-4:
        sentence = (
            f"{lab.plain(begin)} and {lab.plain(name_b)} give the same weights, with **{lab.share_text(first.near)}** of the "
            f"weight within two tokens; uniform weights would put {lab.share_text(even)} there."
        )
    elif abs(first.near - second.near) > SAME_SHARE:
        sentence = (
            f"{lab.plain(begin)} puts **{lab.share_text(first.near)}** of its weight within two tokens, {lab.plain(name_b)} "
            f"**{lab.share_text(second.near)}**; uniform weights would put {lab.share_text(even)} there."
        )
    else:
        sentence = (
            f"{lab.plain(begin)} and {lab.plain(name_b)} both put **{lab.share_text(first.near)}** of their weight "
            f"within two "
            f"tokens; uniform weights would put {lab.share_text(even)} there."
        )
    shared = "".join(sharing(controls.sized(controls.mechanisms[at]), names[at]) for at in (a, b))
    return f"{sentence}{shared} {_of_cell(first, second, name_a, name_b, tokens, cell)}"


GROUPED = "grouped_query", "multi_query"  # whose query heads share heads of keys


def sharing(config: AttentionConfig, name: str) -> str:
    """Which heads share keys; nothing where each has its own."""
    if config.kv_heads >= config.num_heads or config.projection.key not in GROUPED:
        return ""
    return (
        f" {lab.plain(name)}: {config.num_heads} query heads share {lab.plural(config.kv_heads, 'head')} "
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
    query, key = f":primary[**{lab.plain(tokens.names[i])}**]", f"“{lab.plain(tokens.names[j])}”"
    now, before = float(first.weights[i, j]), float(second.weights[i, j])
    masked = hidden(first, i, j), hidden(second, i, j)
    if all(masked):
        return f"{query} cannot attend to {key} in either."
    if any(masked):
        blind, weight = (name_a, before) if masked[0] else (name_b, now)
        return (
            f"{query} cannot attend to {key} under {lab.plain(blind)}; under the other, it gives {key} "
            f"{lab.share_text(weight)}."
        )
    if lab.share_text(now) == lab.share_text(before):
        return f"{query} gives {key} {lab.share_text(now)} in both."
    prefers = [int(each.weights[i].argmax()) == j for each in (first, second)]
    if not prefers[0]:
        return f"{query} gives {key} {lab.share_text(now)} instead of {lab.share_text(before)}."
    return (
        f"{query} {'still' if prefers[1] else 'now'} gives {key} its largest weight: {lab.share_text(now)} instead of "
        f"{lab.share_text(before)}."
    )


def hidden(result: study.MapResult, i: int, j: int) -> bool:
    return result.mask is not None and not bool(result.mask[i, j])


def caption_text(
    controls: study.Comparison,
    tokens: study.Tokens,
    results: Sequence[study.MapResult],
    names: Sequence[str],
) -> str:
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
        sentence += f" {lab.plain(', '.join(implied))}: implied weights, which the kernel itself does not compute."
    signed = [name for name, each in zip(names, results, strict=True) if each.signed]
    if signed:
        sentence += f" {lab.plain(', '.join(signed))}: weights may be negative; purple is negative, green positive."
    return " ".join([sentence, *tokens.notes])


def equation(result: study.MapResult, query: str, key: str, cell: tuple[int, int]) -> str:
    i, j = cell
    pair = rf"{query} \to {key}:\quad"
    weight = f"w = {lab.number(float(result.weights[i, j]))}"
    if hidden(result, i, j):
        return rf"{pair} s = -\infty,\quad w = 0"
    if result.products is None or result.scores is None:
        return f"{pair} {weight}"
    product, score = float(result.products[i, j]), float(result.scores[i, j])
    change = score - product
    added = f" {'+' if change > 0 else '-'} {lab.number(abs(change))} = {lab.number(score)}"
    return rf"{pair} s = {lab.number(product)}{added if abs(change) >= SAME_SHARE else ''},\quad {weight}"


# The controls (mechanisms in order, shared tokens and sizes) in the link and in the session.


MIN_MECHANISMS, MAX_MECHANISMS = 2, 6
MINILM = tuple(f"{layer}.{head}" for layer in range(study.LAYERS) for head in range(study.HEADS))
LAST_SEED, WIDEST, MAX_HEADS = 999_999, 512, 16
LENGTHS = (128, 256, 512, 1024)
NUMBERS = {"sizes": "16.4.0", "minus": "1.0", "seed": "126", "length": "512"}  # examples
# The session's keys of the controls, and of the link that they wrote.
CONTROLS, WRITTEN = "compare:setup", "compare:written"


def default_controls() -> study.Comparison:
    return study.Comparison(
        tuple(
            from_text(text, (study.WIDTH, study.HEADS))
            for text in ("", "position=alibi", "mask=local(window=3)", "kernel=linear")
        )
    )


def link_texts(controls: study.Comparison) -> dict[str, str | list[str]]:
    """All controls as query parameters, in the order in which they are read: mechanisms need the source's sizes."""
    return {
        "source": controls.source,
        "sizes": f"{controls.d_model}.{controls.num_heads}.{controls.head}",
        "m": [to_text(config, sizes=False) for config in controls.mechanisms],
        "minus": "{}.{}".format(*controls.minus),
        "seed": str(controls.seed),
        "length": str(controls.length),
        "text": controls.text,
    }


def to_query(controls: study.Comparison) -> dict[str, str | list[str]]:
    default = link_texts(default_controls())
    return {
        name: text
        for name, text in link_texts(controls).items()
        if text != default[name] and (name != "sizes" or controls.seeded)
    }


PARAMETERS = tuple(link_texts(default_controls()))


def from_query(query: Mapping[str, str | list[str]]) -> tuple[study.Comparison, list[str]]:
    controls, refused = default_controls(), []
    for name in filter(query.__contains__, PARAMETERS):
        try:
            controls = with_parameter(controls, name, query[name])
        except (ConfigError, ValueError) as error:
            refused.append(f"The link's {name} is not used. {lab.plain(str(error))}")
    return clamped(controls), refused


def clamped(controls: study.Comparison) -> study.Comparison:
    """The controls with a difference of two different existing mechanisms and an existing head."""
    last = len(controls.mechanisms) - 1
    fits = max(controls.minus) <= last and controls.minus[0] != controls.minus[1]
    return replace(
        controls,
        minus=controls.minus if fits else (1, 0),
        head=min(controls.head, controls.num_heads - 1),
    )


def with_parameter(controls: study.Comparison, name: str, value: Any) -> study.Comparison:
    """The controls with one parameter of a link; ConfigError for a text that it cannot have."""
    last = len(controls.mechanisms) - 1
    if name == "m":
        texts = [value] if isinstance(value, str) else value
        refuse_if(
            not MIN_MECHANISMS <= len(texts) <= MAX_MECHANISMS,
            f"It has {len(texts)} mechanisms; expected {MIN_MECHANISMS} to {MAX_MECHANISMS}.",
        )
        return replace(
            controls, mechanisms=tuple(from_text(text, controls.sizes) for text in texts)
        )
    if name not in NUMBERS:
        refuse_if(
            name == "source" and value not in (study.SEEDED, *MINILM),
            f"source = {quote(value)}; expected {study.SEEDED}, or MiniLM's layer.head from 0.0 to "
            f"{study.LAYERS - 1}.{study.HEADS - 1}.",
        )
        return replace(controls, **{name: value})
    example = NUMBERS[name]
    refuse_if(
        not re.fullmatch(re.sub("[0-9]+", "[0-9]{1,6}", re.escape(example)), value),
        f"{name} = {quote(value)}; expected whole numbers such as {name}={example}.",
    )
    numbers = tuple(map(int, value.split(".")))
    if name == "sizes":
        check_sizes(*numbers[:2])
        refuse_if(
            numbers[0] > WIDEST or numbers[1] > MAX_HEADS,
            f"sizes = {value}; expected d_model up to {WIDEST} and at most {MAX_HEADS} heads.",
        )
        return replace(controls, d_model=numbers[0], num_heads=numbers[1], head=numbers[2])
    refuse_if(
        name == "minus" and (max(numbers) > last or len({*numbers}) < 2),
        f"minus = {value}; expected two different mechanisms from 0 to {last}.",
    )
    refuse_if(
        name == "length" and numbers[0] not in LENGTHS,
        f"length = {value}; expected one of {', '.join(map(str, LENGTHS))}.",
    )
    value = numbers if name == "minus" else numbers[0]
    return replace(controls, **{name: value})


def load_controls() -> list[str]:
    """Take the link's controls where the link is not what this page wrote; returns what it says wrong.

    So the Back button takes a choice back. Coming from another page, which empties the link, takes nothing back.
    """
    linked = link_query()
    stayed = "compare:measure" in st.session_state  # a button's state goes with its page
    if CONTROLS in st.session_state and (
        linked == st.session_state.get(WRITTEN) or not (linked or stayed)
    ):
        return []
    controls, refused = from_query(linked)
    store_controls(controls)
    return refused


def link_query() -> dict[str, str | list[str]]:
    return {
        name: st.query_params.get_all(name) if name == "m" else st.query_params[name]
        for name in PARAMETERS
        if name in st.query_params
    }


def store_controls(controls: study.Comparison) -> None:
    """Store the controls and set every widget to them; for a callback, or before the widgets are drawn."""
    controls = clamped(controls)
    st.session_state[CONTROLS] = controls
    st.session_state.update(
        {
            "compare:source": controls.source,
            "compare:text": controls.text,
            "compare:seed": controls.seed,
            "compare:d_model": controls.d_model,
            f"compare:heads:{controls.d_model}": controls.num_heads,
            f"compare:head:{controls.num_heads}": controls.head,
            "compare:minuend": controls.minus[0],
            "compare:subtrahend": controls.minus[1],
            "compare:length": controls.length,
        }
    )


# The widgets: where queries and keys come from, which mechanisms in which order, and whose difference.


EDITING, EDITS = "compare:editing", "compare:edits"
CHANGE, UP, DOWN, TWICE, REMOVE = "Change", "Move before", "Move after", "Duplicate", "Remove"


OF_PAGE = {"bind": None}  # the link has names of its own, of several values each
WIDTHS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
SHARED = "source text seed d_model num_heads head length".split()  # the fields of a comparison


class Controls(lab.Fields, page="compare"):
    source = lab.Select(
        "Queries and keys from",
        {
            study.SEEDED: "A seeded layer",
            **{name: "MiniLM, layer {}, head {}".format(*name.split(".")) for name in MINILM},
        },
        also=OF_PAGE,
        help="A head of the model MiniLM, or a layer with random parameters.",
    )
    minuend = lab.Select[int](
        "Difference",
        lambda values: dict(enumerate(values.names)),
        lambda values: values.now.minus[0],
        also=OF_PAGE,
        help="The difference is this mechanism's map minus the other one's: green where it gives the key more weight, "
        "purple where it gives less.",
    )
    subtrahend = lab.Select[int](
        "minus",
        lambda values: dict(enumerate(values.names)),
        lambda values: values.now.minus[1],
        also=OF_PAGE,
        help="The mechanism whose map is subtracted.",
    )
    text = lab.Text(
        "Sentence",
        lines=True,
        also=OF_PAGE | {"height": 100, "max_chars": 20_000},  # as many as are read
        help="The text that every mechanism reads. It is split into tokens.",
    )
    seed = lab.Number(
        "Seed",
        0,
        0,
        LAST_SEED,
        also=OF_PAGE,
        help="Fixes the random numbers of all parameters that are not trained.",
    )
    d_model = lab.SelectSlider[int](
        "d_model",
        lambda values: sorted({*WIDTHS, values.now.d_model}),
        lambda values: values.now.d_model,
        also=OF_PAGE
        | lab.keep_heads(
            "compare:d_model",
            "compare:heads:{}".format,
            partial(heads_that_divide, max_heads=MAX_HEADS),
        ),
        help="How many numbers the vector of each token has.",
    )
    num_heads = lab.Select[int](
        "Heads",
        lambda values: heads_that_divide(values.d_model, MAX_HEADS),
        lambda values: heads_that_divide(values.d_model, values.now.num_heads)[-1],
        key=lambda values: f"heads:{values.d_model}",
        also=OF_PAGE,
        help="How many heads the layer has; the number divides d_model.",
    )
    head = lab.Select[int](
        "Head drawn",
        lambda values: range(values.num_heads),
        lambda values: min(values.now.head, values.num_heads - 1),
        key=lambda values: f"head:{values.num_heads}",
        also=OF_PAGE,
        help="The head whose maps are drawn.",
    )
    length = lab.Select(
        "Length T",
        LENGTHS,
        text="T = {}".format,
        also=lambda _: OF_PAGE | {"width": lab.room(110)},
        help="The number of tokens at which time, memory and FLOPs are given.",
    )


def tokens_panel(controls: study.Comparison) -> None:
    Controls.draw("text", "seed", into=lab.HERE)
    if controls.seeded:
        sizes = Controls.draw("d_model", "num_heads", "head", into=lab.HERE, now=controls)
        lab.note_heads("compare:d_model", sizes.d_model, sizes.num_heads)


def add_mechanism(names: Sequence[str]) -> None:
    """Draw the list that adds a mechanism."""
    full = len(names) >= MAX_MECHANISMS
    st.selectbox(
        "Add a mechanism",
        addable(),
        None,
        key="compare:add",
        format_func=addable().__getitem__,
        disabled=full,
        on_change=lab.guarded("compare:add", _take),
        args=("add",),
        placeholder=f"At most {MAX_MECHANISMS} mechanisms" if full else "A preset, or one choice",
        help="A published mechanism, or dot-product attention with one part changed.",
    )


def mechanisms_panel(names: Sequence[str]) -> None:
    count, full = len(names), len(names) >= MAX_MECHANISMS
    for index, name in enumerate(names):
        possible = {
            CHANGE: True,
            UP: index > 0,
            DOWN: index < count - 1,
            TWICE: not full,
            REMOVE: count > MIN_MECHANISMS,
        }
        st.menu_button(
            lab.plain(name),
            [action for action, can in possible.items() if can],
            key=f"compare:line:{index}",
            width="stretch",
            on_click=lab.guarded(f"compare:line:{index}", _act),
            args=(index,),
        )
    st.selectbox(
        "Compare the layers of a model",
        [one.key for one in CARDS if one.pattern > 1 and not one.untrained],
        None,
        key="compare:layers",
        format_func=lambda key: card(key).name,
        on_change=lab.guarded("compare:layers", _take),
        args=("layers",),
        placeholder="A model with unlike layers",
        help="Replace the list by the different attentions of a published model's layers, in small.",
    )


def _act(index: int) -> None:
    """Change a mechanism, or its place; the difference stays with its two where it can."""
    action, controls = st.session_state[f"compare:line:{index}"], st.session_state[CONTROLS]
    if action == CHANGE:
        st.session_state[EDITING] = index
        # A new editor, which starts from the mechanism
        st.session_state[EDITS] = st.session_state.get(EDITS, 0) + 1
    elif action is not None:
        before = list(range(len(controls.mechanisms)))
        order = {
            REMOVE: [*before[:index], *before[index + 1 :]],
            TWICE: [*before[: index + 1], *before[index:]],
            UP: [*before[: index - 1], index, index - 1, *before[index + 1 :]],
            DOWN: [*before[:index], index + 1, index, *before[index + 2 :]],
        }[action]
        minus = [order.index(old) if old in order else None for old in controls.minus]
        free = [place for place in range(len(order)) if place not in minus]
        store_controls(
            replace(
                controls,
                mechanisms=tuple(controls.mechanisms[old] for old in order),
                minus=tuple(free.pop(0) if place is None else place for place in minus),
            )
        )


def addable() -> dict[str, str]:
    """What can be added, by its option: dot product, every preset, and dot product with one other choice of one axis."""
    return {
        "": "Dot product, unchanged",
        **{f"preset={item.key}": item.name for item in PRESETS},
        **{
            f"{axis}={item.key}": f"{lab.AXIS_NAMES[axis]}: {item.name}"
            for axis, entries in AXES.items()
            for item in entries
            if item.key not in COMPOSITIONS and item.key != getattr(PLAIN, axis).key
        },
    }


def mechanism_of(option: str, sizes: tuple[int, int]) -> AttentionConfig:
    """The mechanism of an option of `addable`; ConfigError where the sizes (d_model, heads) do not fit it."""
    known = option.removeprefix("preset=")
    return from_text(option, sizes) if known == option else preset(known).config(*sizes)


def _take(name: str) -> None:
    controls, picked = st.session_state[CONTROLS], st.session_state[f"compare:{name}"]
    st.session_state[f"compare:{name}"] = None
    if picked is None:
        return
    try:
        if name == "add":
            new = mechanism_of(picked, controls.sizes)
            lab.set_built("compare", {axis: getattr(new, axis) for axis in AXES})
            controls = replace(controls, mechanisms=(*controls.mechanisms, new))
        else:
            controls = replace(
                controls,
                mechanisms=tuple(dict.fromkeys(card(picked).small(*controls.sizes))),
                minus=(1, 0),
            )
        store_controls(controls)
    except ConfigError as error:
        st.session_state["compare:refused"] = (
            f"{addable()[picked]} is not added. {error}"
            if name == "add"
            else f"The layers of {card(picked).name} are not compared. {error}"
        )


def adopt(built: lab.Built) -> None:
    """Compare what was built elsewhere with the first mechanism; of none, what was compared before."""
    controls, choices = st.session_state[CONTROLS], dict[str, Any](built)
    before, changed = st.session_state.pop("compare:before_yours", (None, None))
    if controls.mechanisms == changed:
        controls = replace(controls, mechanisms=before, minus=(1, 0))
    try:
        config = AttentionConfig(*controls.sizes, **choices)
    except ConfigError as error:
        st.session_state["compare:refused"] = (
            f"Your mechanism is not compared. {lab.plain(str(error))}"
        )
        built = {}
    if built and not controls.seeded and study.source_error(config):
        # it makes queries and keys of its own, which only the seeded layer leaves to it
        controls = replace(controls, source=study.SEEDED)
    first, *rest = old = controls.mechanisms
    if built and config not in old:
        # four maps stand in one row
        new = (first, config, *rest)[: max(len(old), 4)]
        st.session_state["compare:before_yours"] = old, new
        # The first query head of a seeded layer has the same keys as without sharing; the second has not
        head = 1 if sharing(config, "") else controls.head
        controls = replace(controls, mechanisms=new, minus=(1, 0), head=head)
    store_controls(controls)


@st.dialog("Change a mechanism", width="large")
def _dialog(controls: study.Comparison, index: int) -> None:
    start = controls.mechanisms[index]
    st.markdown(f"It starts as **{lab.plain(name_of(start))}**. Change any of the six axes.")
    try:
        start = controls.sized(start)
    except ConfigError as error:
        st.warning(lab.plain(str(error)))
        start = AttentionConfig(*controls.sizes)
    config = lab.mechanism(
        f"compare:edit:{st.session_state[EDITS]}",
        start,
        axes=tuple(axis for axis in AXES if controls.seeded or axis != "projection"),
    )

    def put() -> None:
        before = st.session_state[CONTROLS]
        lab.set_built("compare", {axis: getattr(config, axis) for axis in AXES})
        store_controls(
            replace(
                before,
                mechanisms=(*before.mechanisms[:index], config, *before.mechanisms[index + 1 :]),
            )
        )

    if st.button(
        "Compare this", type="primary", disabled=config is None, key="compare:take", on_click=put
    ):
        st.rerun()


# What the page computes as Python.


def script(
    controls: study.Comparison, results: Sequence[study.MapResult], names: Sequence[str]
) -> lab.Script:
    drawn = [index for index, result in enumerate(results) if not result.error]
    configs = [controls.sized(controls.mechanisms[index]) for index in drawn]
    made = lab.source_of(replace(controls, mechanisms=tuple(configs), minus=(1, 0)))
    first, second = controls.minus
    both = first != second and first in drawn and second in drawn
    difference = f"difference = weights[{names[first]!r}] - weights[{names[second]!r}]\n" * both
    call = "compare" if controls.seeded else "compare_pretrained"
    model = "" if controls.seeded else "load_minilm(), "
    load = "" if controls.seeded else "from core.pretrained import load_minilm\n"
    shown = np.stack([results[index].weights for index in drawn])
    known = [closed_form_cost(config, controls.length) for config in configs]
    values = {
        "list(weights.values())": shown,
        "list(measures.values())": np.array(
            [analysis.entropy(shown).mean(1), analysis.mean_distance(shown)]
        ).T,
        "[(cost.parameters, cost.flops) for cost in costs.values()]": np.array(
            [(cost.parameters, cost.flops) for cost in known]
        ),
    }
    if both:
        values["difference"] = results[first].weights - results[second].weights
    return lab.Script(
        (
            lab.Cell(
                "The same head under every mechanism, of layers with seeded weights or with MiniLM's own queries and "
                "keys:\nits weights, and the difference of two.",
                f"""
{lab.attention_import(made)}
{load}from core.studies.compare import Comparison, {call}

names = {lab.source_of([names[index] for index in drawn])}
comparison = {made}
read, maps = {call}({model}comparison)
tokens = read.names
weights = {{name: each.weights for name, each in zip(names, maps)}}  # (T, T) of the drawn head
{difference}""",
                """
from dashboard.show import show_maps

show_maps(weights, tokens, tokens)
""",
                "compare:maps",
            ),
            lab.Cell(
                "Entropy (nats) and distance (tokens) of each map, and what each mechanism costs.\n"
                f"core.attention.cost.race(configs, [{controls.length}]) measures time and memory here.",
                f"""
from core.interpret.trace import entropy, mean_distance
from core.attention.cost import closed_form_cost

measures = {{name: (float(entropy(each[None]).mean()), float(mean_distance(each[None])[0]))
            for name, each in weights.items()}}
costs = {{name: closed_form_cost(config, {controls.length}) for name, config in zip(names, comparison.mechanisms)}}
for name, cost in costs.items():
    print(name, *measures[name], f"{{cost.parameters:,}} parameters, {{cost.flops:,.0f}} FLOPs")
""",
            ),
        ),
        values,
    )


# The page Side by side, as one fragment: title, controls, maps, difference, fact, table of costs.


VISITED = "compare:visited"  # the session has seen the first measurements
MISSING = "–"
LOADED = "compare:loaded"


@lab.fragment
def page() -> None:
    head = st.container()  # over what is said of a mechanism that comes from another page
    errors = load_controls()
    lab.take_built("compare", adopt, linked=bool(link_query()))
    controls = st.session_state[CONTROLS]
    names = names_of(controls.mechanisms)
    # The controls with the values of all widgets, also of those in a closed popover and further down the page
    values = Controls.read(names=names, now=controls)
    controls = replace(
        controls,
        minus=(values.minuend, values.subtrahend),
        **{name: values[name] for name in SHARED},
    )
    # Save the controls in the session and in the link, which is written only where it changes
    st.session_state[CONTROLS] = controls
    query, linked = to_query(controls), link_query()
    for name in linked.keys() - query.keys():
        del st.query_params[name]
    for name, value in query.items():
        if linked.get(name) != value:
            st.query_params[name] = value
    st.session_state[WRITTEN] = query
    errors += filter(None, [st.session_state.pop("compare:refused", None)])
    with head:
        lab.title(
            "Side by side",
            "Compare attention maps on the same "
            + ("tokens and shared parameters." if controls.seeded else "queries and keys."),
        )
    for sentence in errors:
        st.warning(sentence)
    with st.grid(3, min_column_width=200, vertical_alignment="bottom"):
        Controls.draw("source", into=lab.HERE, now=controls)
        add_mechanism(names)
    maps = _compute_maps(controls)
    measure = None
    if maps is None:
        draw_details(controls, names)
    else:
        measure = _draw_result(controls, names, *maps)
    index = st.session_state.pop(EDITING, None)
    if index is not None and index < len(controls.mechanisms):
        _dialog(controls, index)
    if measure is not None:
        measure()  # a second or two, for which nothing else has to wait


def _compute_maps(controls: study.Comparison) -> study.Maps | None:
    shown = replace(controls, minus=(1, 0), length=LENGTHS[0])  # on which no map depends
    try:
        if controls.seeded:
            maps = lab.shared(study.compare, shown)
        else:
            new = not st.session_state.get(LOADED)
            with (
                st.spinner("Loading the model, 91 MB, first time only") if new else nullcontext(),
                st.skeleton(height=380) if new else nullcontext(),
            ):
                maps = lab.study_of(study.compare_pretrained, lab.EMBEDDED, shown)
    except PretrainedError as error:
        st.info(str(error), icon=":material/edit:")
        return None
    if not controls.seeded:
        st.session_state[LOADED] = True
    if not maps[0].names:
        st.info(
            "There is no token here. Open Tokens and type a word, or a sentence.",
            icon=":material/edit:",
        )
        return None
    return maps


def _draw_result(
    controls: study.Comparison,
    names: Sequence[str],
    tokens: study.Tokens,
    results: Sequence[study.MapResult],
) -> Callable[[], None] | None:
    tiles = {  # a mechanism's map under its name and rule, with its index as marker
        index: lab.Tile(
            names[index],
            heading_note(controls.mechanisms[index]) + " · implied" * each.implied,
            each.weights,
            each.mask,
            index,
        )
        for index, each in enumerate(results)
        if not each.error
    }
    measure = None
    errors = {name: each.error for name, each in zip(names, results, strict=True) if each.error}
    room_of_maps, rest = (
        st.columns([len(tiles), 1], gap="medium")
        if errors and tiles
        else (st.container(), st.container())
    )
    with rest:
        _no_map(controls, errors)
        for index in tiles:
            weights, even = results[index].weights, 1 / len(results[index].weights)
            if controls.mechanisms[index].kernel.key == "linear" and weights.max() < 2 * even:
                lab.caption(
                    f"{lab.plain(names[index])}: without softmax's exponential, similar scores give similar weights. "
                    f"All lie between {lab.share_text(weights.min())} and {lab.share_text(weights.max())}, near "
                    f"1/{len(weights)} "
                    f"= {lab.number(even)}, so the map is flat."
                )
    if tiles:
        # The maps under one crosshair; its pinned cell, else the default one
        drawn, size = list(tiles.values()), len(tokens.names)
        row, column = cell = study.default_cell(drawn[0].weights, tokens.special)
        with room_of_maps:
            pin = lab.multiples(
                drawn,
                tokens.names,
                key="compare:maps",
                query=row,
                column=column,
                pin=lab.read_linked("compare", "pin", (size, size)),
                link="compare",
                fact=f"{len(tiles)} maps of {size} tokens; the picked query is {tokens.names[row]}",
            )
        cell = lab.write_linked("compare", "pin", pin) or cell
        lab.add_script(partial(script, controls, results, names))
        _difference(controls, results, names, tokens, cell, tiles)
        measure = cost_table(controls, names, results)
        lab.caption(
            caption_text(
                controls,
                tokens,
                [results[index] for index in tiles],
                [names[index] for index in tiles],
            ),
        )
        lab.details(
            "Equations with their numbers, papers and the code that just ran",
            partial(sources, controls, names, results, tokens, cell),
            "compare:sources",
        )
    else:
        draw_details(controls, names)
    return measure


def _no_map(controls: study.Comparison, errors: Mapping[str, str]) -> None:
    """Say why mechanisms have no map, with the way out where MiniLM's queries and keys are the reason."""
    for name, error in errors.items():
        st.error(f"**{lab.plain(name)}** has no map here. {lab.plain(error)}")
    if errors and not controls.seeded:
        st.button(
            "Use the seeded layer",
            key="compare:seeded",
            on_click=lambda: store_controls(
                replace(st.session_state[CONTROLS], source=study.SEEDED)
            ),
            help="A layer with random parameters, which every mechanism can change.",
        )


def draw_details(controls: study.Comparison, names: Sequence[str]) -> None:
    """The mechanisms and what they read: below the maps, which stay in sight while these change."""
    with lab.settings_panel("Change or remove a mechanism", "compare:change"):
        mechanisms_panel(names)
    lab.details("Tokens", partial(tokens_panel, controls), "compare:tokens")


def _difference(
    controls: study.Comparison,
    results: Sequence[study.MapResult],
    names: Sequence[str],
    tokens: study.Tokens,
    cell: study.Pair,
    tiles: dict[int, lab.Tile],
) -> None:
    a, b = controls.minus
    both = a != b and a in tiles and b in tiles
    left, right = st.columns([0.58, 0.42], gap="medium")  # a phone shows the sentence first
    with right:
        Controls.draw(
            "minuend",
            "subtrahend",
            into=st.grid(2, min_column_width=120, vertical_alignment="bottom"),
            names=names,
            now=controls,
        )
        if both:
            difference = lab.number(
                lab.rounded(float(results[a].weights[cell]))
                - lab.rounded(float(results[b].weights[cell]))
            )
            lab.difference_map(
                tiles[a],
                tiles[b],
                tokens.names,
                key="compare:apart",
                query=cell[0],
                column=cell[1],
                pin=None,
                link="compare",
                fact=f"{names[a]} minus {names[b]}: {difference} there",
            )
        else:
            st.caption(
                "Choose two different mechanisms to see the difference of their maps."
                if a == b
                else "A mechanism without a map has no difference."
            )
    with left:
        if both:
            lab.fact(fact_text(controls, names, results, tokens, cell))
        draw_details(controls, names)


# The table under the fact: a row a mechanism with the marker of its map, what it measures and what it costs.


def cost_table(
    controls: study.Comparison, names: Sequence[str], results: Sequence[study.MapResult]
) -> Callable[[], None] | None:
    """Draw the table; what no session has measured yet waits for a press, except on the first visit.

    Returns what measures and fills the table, for the page to call when all else is drawn; None with nothing to do.
    """
    done: study.Measurements = lab.measurements("compare")
    configs = study.sized_configs(controls)
    possible = [config for config in configs if config is not None]
    closed = [
        None if config is None else lab.cached(closed_form_cost, config, controls.length)
        for config in configs
    ]
    first = next((cost.parameters for cost in closed if cost), 0)
    table_slot, progress_slot = st.empty(), st.empty()

    def measured() -> list[Measurement | None]:
        return [done.get((config, controls.length)) if config else None for config in configs]

    def draw() -> None:
        with table_slot.container():
            lab.table(
                ("mechanism", "entropy", "distance", "time", "memory", "FLOPs", "parameters"),
                [
                    row(*each, first)
                    for each in zip(
                        names, results, closed, range(len(names)), measured(), strict=True
                    )
                ],
                caption="Entropy, distance, time, memory, FLOPs and parameters of each mechanism",
            )

    def measure() -> None:
        bar = progress_slot.progress(0.0, "Measuring time and memory on this machine")
        for fraction in study.measure_costs(possible, controls.length, done):
            bar.progress(fraction, "Measuring time and memory on this machine")
        progress_slot.empty()
        st.session_state[VISITED] = True
        draw()

    draw()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        Controls.draw("length", into=lab.HERE)
        pressed = st.button(
            "Measure",
            icon=":material/speed:",
            key="compare:measure",
            help="Runs every mechanism on this machine, which takes a second or two.",
        )
    notes = [
        f"{lab.plain(name)}: {lab.plain(each.skipped)}"
        for name, each in zip(names, measured(), strict=True)
        if each and each.skipped
    ]
    if any(cost.dense for cost in closed if cost):
        notes.insert(
            0, "¹ This kernel computes all scores and then masks some, so it saves no time."
        )
    waiting = any((config, controls.length) not in done for config in possible)
    new = waiting and not st.session_state.get(VISITED)
    d_model, heads = controls.sizes
    conditions = (
        f"Costs at {controls.length} tokens, d_model {d_model}, {heads} heads, float32, "
        f"{lab.plural(torch.get_num_threads(), 'CPU thread')}. Time and memory: the kernel's forward pass, median of "
        f"{study.ROUNDS} runs. FLOPs: its matrix products; a bias such as ALiBi's, or a mask, is computed anew in "
        "each run, cell by cell: time that these FLOPs leave out. Entropy is in nats; distance is the mean distance of the "
        "weight, in tokens."
        + " Where a time is missing, press Measure."
        * (waiting and not new and not pressed)
    )
    lab.caption(" ".join([conditions, *notes]))
    if not new:
        st.session_state[VISITED] = True
    return measure if pressed or new else None


def row(
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
        time = lab.duration(measurement.seconds)
        if cost and cost.dense:
            time = lab.written(f"{time}¹", {", s": measurement.seconds})
        memory = lab.byte_size(measurement.bytes)
    if cost is not None:
        flops = lab.written(
            f"{'≤ ' if cost.at_most else ''}{lab.operations(cost.flops)}", cost.flops
        )
        more = cost.parameters - first
        parameters = lab.written(
            f"{'+' if more >= 0 else '−'} {abs(more):,}" if index else f"{cost.parameters:,}",
            {"": cost.parameters},
        )
    entropy, distance = (
        MISSING if value is None else lab.number(value)
        for value in (result.entropy, result.distance)
    )
    return [name, entropy, distance, time, memory, flops, parameters]


# The end of the page: each mechanism's equation with its numbers, its paper, the code that ran.


def sources(
    controls: study.Comparison,
    names: Sequence[str],
    results: Sequence[study.MapResult],
    tokens: study.Tokens,
    cell: study.Pair,
) -> None:
    query, key = (lab.latex_name(tokens.names[index], index) for index in cell)
    for config, label, each in zip(controls.mechanisms, names, results, strict=True):
        st.markdown(f"### {lab.plain(label)}")
        if not each.error:
            st.latex(equation(each, query, key, cell), width="content")
        axes = changed_axes(config) or ["score", "normalizer"]
        lab.entries_panel(
            [
                entry(axis, part.key)
                for axis in axes
                for part in getattr(config, axis).parts or (getattr(config, axis),)
            ]
        )
    st.markdown("### The code that just ran")
    lab.source_panel(exact)
