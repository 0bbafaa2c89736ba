"""One query, step by step: a sentence or three matrices through the six stages of the formula."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import (
    AXES,
    PRESETS,
    AttentionConfig,
    Choice,
    ConfigError,
    Entry,
    Param,
    Preset,
    check_sizes,
    entry,
    heads_that_divide,
    preset,
    reference,
)
from core.attention.kernels.exact import exact
from core.attention.masks import COMPOSITIONS, MASKS
from core.attention.positions import enters, entries_of
from core.entries import Value, complete
from core.seeding import seeded_layer
from core.studies import one_query as study
from core.studies.one_query import (
    DIMS,
    KEYS,
    WORKED as WORKED_MATRICES,
    MatrixError,
    Rows,
    Scaling,
    Source,
    measure_scaling,
)
from core.tokens import SENTENCE, labels, tokenize
from dashboard.draw.formats import (
    added,
    coloured,
    latex,
    latex_signed as signed,
    listed,
    name as latex_name,
    number,
    plain,
)
from dashboard.draw.page_pictures import add_script
from dashboard.draw.palette import Ink
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.draw.step_view import (
    MAP_CELLS,
    Reading,
    StageTexts,
    payload,
    projection_payload,
    read,
    step_view,
)
from dashboard.draw.vega import Spec, config, layer, series_encoding, titled_figure
from dashboard.server.cache import cached
from dashboard.ui.links import BOUND, KEEP, fragment, read_start, write_start
from dashboard.ui.mechanism import (
    D_MODELS,
    choice_from_text,
    choice_text,
    is_text,
    joinable,
    keep_heads,
    note_heads,
    params_from,
    preset_of,
    refusal,
    repairs,
    unreadable,
)
from dashboard.ui.panels import (
    Move,
    Question,
    answered,
    details,
    entries_panel,
    fact,
    next_page,
    paragraph,
    picture as in_picture,
    predict,
    source_panel,
    theme,
    title,
    try_this,
)
from dashboard.ui.presentation import draw_chart, room
from dashboard.ui.threads import one_thread

# The session's values: what a link leaves out, and each axis's choice with its parameters and parts.

SEED = 1044  # in LAYER, a masked key has the highest score


@dataclass(frozen=True)
class Start:
    """What a link leaves out: the values with which the page opens."""

    words: str
    d_model: int
    heads: int
    stage: int
    position: Choice = Choice("none")  # noqa: RUF009
    mask: Choice = Choice("none")  # noqa: RUF009


LAYER = Start(
    SENTENCE, 16, 4, 5, Choice("alibi"), Choice("causal")
)  # of links that were made before SIMPLE
SIMPLE = Start("The animal slept", 4, 1, 1)
STARTS = {"simple": SIMPLE, "layer": LAYER}
STAGES = {
    1: "1 Project",
    2: "2 Score",
    3: "3 Scale + bias",
    4: "4 Mask",
    5: "5 Normalize",
    6: "6 Weigh values",
}
SOURCES = {
    "sentence": "Sentence",
    "matrices": "Matrices Q, K, V",
}  # the labels are in links, as the stages' are
NUMBERS = {"real": (0, 512), "seed": (0, 999_999)}
PARTS = ("causal", "local")  # with which a composed mask starts

key = "one:{}".format  # a widget's key, which is also its name in the link


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def put(name: str, value: Any) -> None:
    st.session_state[key(name)] = value


def uses_matrices() -> bool:
    """Whether Q, K and V are typed, instead of a sentence."""
    return get("source") == "matrices"


def open_link() -> None:
    """Find out from which start the link counts; before the first widget."""
    read_start("one", "simple", "layer")


def start() -> Start:
    """The values that the link leaves out."""
    return STARTS[get("start", "simple")]


def default_heads(d_model: int) -> int:
    """The most heads up to the start's that divide d_model."""
    return max(heads for heads in heads_that_divide(d_model) if heads <= start().heads)


def heads_of(d_model: int) -> int:
    """The picked number of heads, if it divides d_model."""
    heads = get("heads", start().heads)
    return heads if d_model % heads == 0 else default_heads(d_model)


def query_row(names: tuple[str, ...]) -> int:
    """The row of the picked query; the last word if it is not among the names."""
    picked = get("query")
    return names.index(picked) if picked in names else last_word(names)


def last_word(names: tuple[str, ...]) -> int:
    return max(
        (i for i, name in enumerate(names) if any(c.isalnum() for c in name)),
        default=len(names) - 1,
    )


def read_choice(axis: str, path: str = "") -> Choice:
    """The choice in the session at a path: the axis, or mask:0 for the first part of a mask."""
    path = path or axis
    item = entry(axis, get(path, default_choice(axis, path)))
    params = {
        param.key: _param_value(param, f"{path}:{item.key}:{param.key}") for param in item.params
    }
    parts = (read_choice(axis, f"{path}:{n}") for n in range(part_count(path, item.key)))
    return Choice.of(item.key, *parts, **params)


def write_choice(axis: str, choice: Choice, path: str = "") -> None:
    """Set the widgets of a choice; for a link or a callback, before they are drawn."""
    path = path or axis
    put(path, choice.key)
    for name, value in choice.params:
        put(f"{path}:{choice.key}:{name}", value)
    if choice.parts:
        put(f"{path}:parts", len(choice.parts))
    for n, part in enumerate(choice.parts):
        write_choice(axis, part, f"{path}:{n}")


def default_choice(axis: str, path: str) -> str:
    """The key of the choice at a path where none was picked."""
    if path == axis:
        opens = None if uses_matrices() else getattr(start(), axis, None)
        return (opens or getattr(AttentionConfig(), axis)).key
    parts = tuple(part.key for part in entry(axis, "and").parts) or PARTS
    return parts[min(int(path.rpartition(":")[2]), len(parts) - 1)]


def part_count(path: str, name: str) -> int:
    """The number of parts of a mask, or of joined positions."""
    if name not in COMPOSITIONS:
        return 0
    return 1 if name == "not" else int(get(f"{path}:parts", len(PARTS)))


def _param_value(param: Param, path: str) -> Value:
    """A parameter's value; for a text that cannot be read, the last that could, so that the picture stays."""
    value = get(path, param.default)
    if is_text(param):
        if unreadable(param, value):
            return get(f"{path}:read", param.default)
        put(f"{path}:read", value)
    return value


NO_TOKEN = "There is no token here. Type a word, or a sentence: each word becomes one token."
EXACT = Choice("exact")
PADDING = 2  # keys, when a padding mask is first chosen

Fields = dict[str, Any]  # of an AttentionConfig, before they are known to go together


@dataclass(frozen=True)
class Controls:
    """One state of the page: an input, a mechanism (None with the error when refused), and what is picked."""

    source: Source | None
    config: AttentionConfig | None
    error: str  # why there is no source, or no config
    notes: tuple[str, ...]
    items: tuple[tuple[str, Any], ...]  # the fields of the config, whether or not they go together
    seed: int
    real: int | None
    query: int = 0
    head: int = 0
    half: int = 0
    stage: int = 1
    focus: tuple[str, int] | None = None

    @property
    def exact_config(self) -> AttentionConfig | None:
        """The mechanism with the exact kernel, the only one that makes every step."""
        return self.config.with_(kernel=EXACT) if self.config else None

    @property
    def fields(self) -> Fields:
        return dict(self.items)


def read_controls() -> Controls:
    """Read the controls from the session, with a default wherever nothing was picked."""
    source, error, notes = _read_source()
    fields = _read_fields(source)
    config = None
    if source is not None:
        try:
            config = AttentionConfig(**fields)
        except ConfigError as why:
            error = str(why)
    real = int(get("real", default_real(source))) if needs_real(fields["mask"]) else None
    return Controls(
        source,
        config,
        error,
        notes,
        tuple(fields.items()),
        int(get("seed", SEED)),
        real,
        query_row(source.queries) if source else 0,
        _index("head", fields["num_heads"]),
        _index("half", map_count(config)),
        get("stage") or start().stage,
        get("focus"),
    )


def _index(name: str, count: int) -> int:
    """The picked index below `count` (of a head or a map), or 0."""
    index = get(name, 0) or 0
    return index if index < count else 0


def _read_source() -> tuple[Source | None, str, tuple[str, ...]]:
    """The input or None, the error, and notes on what was cut."""
    if uses_matrices():
        try:
            return (
                Source.of_matrices(study.check(get("edited") or study.parse(WORKED_MATRICES))),
                "",
                (),
            )
        except MatrixError as error:
            return None, str(error), ()
    cut = tokenize(get("tokens", start().words) or "")
    return (Source.sentence(cut.tokens), "", cut.notes) if cut.tokens else (None, NO_TOKEN, ())


def _read_fields(source: Source | None) -> Fields:
    """The six choices and the sizes; typed matrices are one head without a projection."""
    fields: Fields = {axis: read_choice(axis) for axis in AXES}
    if not uses_matrices():
        d_model = get("d_model", start().d_model)
        return fields | {"d_model": d_model, "num_heads": heads_of(d_model)}
    width = len(source.matrices.q[0]) if source and source.matrices else 1
    return fields | {"projection": Choice("identity"), "d_model": width, "num_heads": 1}


def needs_real(mask: Choice) -> bool:
    """Whether a mask depends on which keys are real: its rule then contains their number."""
    rules = {item.key: item.short for item in MASKS}
    return any("{length}" in rules[leaf.key] for leaf in mask.leaves())


def default_real(source: Source | None) -> int:
    return max(0, (len(source.keys) if source else 0) - PADDING)


def map_count(config: AttentionConfig | None) -> int:
    """The number of maps that the projection combines into one head."""
    return config.score_heads // config.num_heads if config else 1


# The widgets: what the formula is made of, and which query, head and stage are drawn.


WORKED, CUSTOM = "worked", "custom"
PLAIN = ("self_attention", "vaswani")  # which have nothing to compare
ROOMY = (16, 4)  # d_model and heads that nearly every preset fits

HELP = {
    "projection": "How queries, keys and values are made from the word vectors",
    "score": "How a query and a key are compared",
    "position": "How the order of the words enters",
    "mask": "Which keys a query may attend to",
    "normalizer": "How scores become weights",
    "kernel": "How the result is computed. The picture always shows the steps of the exact kernel.",
}
MAX_ROW_PILLS, MAX_HEAD_PILLS = 12, 8  # with more, a list
MAX_DEPTH = 2  # parts of parts are plain masks here; deeper ones come by a link alone
QUIET: dict[str, Any] = {"label_visibility": "collapsed", **BOUND}


def draw_row() -> None:
    """Draw the words or the matrices, and "More", which holds every other control."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if not uses_matrices():
            st.text_input(
                "Sentence",
                start().words,
                key=key("tokens"),
                bind="query-params",
                width=room(300),
                help="Each word, and each punctuation mark at the end of a word, becomes one token.",
            )
        with st.popover(
            "More",
            icon=":material/tune:",
            key=key("more"),
            width="content",
            help="Typed matrices, sizes, score, position, mask, normalizer, kernel and seed",
        ):
            _draw_more()
    if uses_matrices():
        draw_matrices(st.grid(6, min_column_width=120), st.container())


def draw_matrices(grid: DeltaGenerator, container: DeltaGenerator) -> None:
    """Draw Q, K and V as three editors, saved in the session and the link; warn if the link's are not used."""
    if note := _load():
        container.warning(note)
    parts: list[Rows] = get("base")
    with grid:
        keys, values = (
            _draw_width("Columns of Q and K", "d", parts[0]),
            _draw_width("Columns of V", "e", parts[2]),
        )
    columns = container.columns(3)
    edited = [
        _draw_editor(*each)
        for each in zip(columns, "QKV", parts, (keys, keys, values), strict=True)
    ]
    put("is_worked", edited == study.parse(WORKED_MATRICES))
    put("edited", edited)
    text = study.write(edited)
    if st.query_params.get(key("matrices")) != text:
        st.query_params[key("matrices")] = text


def _load() -> str:
    """Load the link's matrices when the page opens, or the worked example; returns why the link's are not used."""
    reset = get("reset_matrices")
    if get("base") is not None and not reset:
        return ""
    text = WORKED_MATRICES if reset else st.query_params.get(key("matrices"), WORKED_MATRICES)
    put("reset_matrices", False)
    put("version", get("version", 0) + 1)
    try:
        parts, note = study.parse(text), ""
        study.check(parts)
    except MatrixError as error:
        parts, note = study.parse(WORKED_MATRICES), f"{error} The worked example is shown."
    put("base", parts)
    return note


def _draw_width(label: str, name: str, rows: Rows) -> int:
    return int(
        st.number_input(
            label,
            1,
            study.MAX_COLUMNS,
            len(rows[0]),
            1,
            key=key(f"width_{name}{get('version')}"),
            help="A column is added with zeros, or the last one is removed",
        )
    )


def _draw_editor(container: DeltaGenerator, name: str, rows: Rows, columns: int) -> Rows:
    """Draw one matrix, cut or filled with 0 to `columns`; rows can be added and removed."""
    import pandas as pd  # a quarter of a second that the first page, a sentence, need not wait for

    wide = [(row + [0.0] * columns)[:columns] for row in rows]
    frame = pd.DataFrame(wide, columns=[str(c) for c in range(columns)], dtype=float)
    config = {
        c: st.column_config.NumberColumn(f"{name} {c}", format="%.3g", width="small")
        for c in frame.columns
    }
    edited = container.data_editor(
        frame,
        key=key(f"{name}{get('version')}-{columns}"),
        num_rows="dynamic",
        hide_index=True,
        column_config=config,
        alt=f"Matrix {name}, editable",
    )
    return [
        [float("nan") if value is None else float(value) for value in row]
        for row in edited.to_numpy().tolist()
    ]


def _draw_more() -> None:
    """Draw what to start from, the sizes, the six choices with their parameters, and the seed."""
    st.segmented_control(
        "Start from",
        list(SOURCES),
        default="sentence",
        required=True,
        key=key("source"),
        format_func=SOURCES.__getitem__,
        on_change=_change_source,
        **BOUND,
        help="A sentence: each word becomes a vector, and $W_q$, $W_k$ and $W_v$ make its query, key and "
        "value. Matrices: type Q, K and V yourself and check every number by hand.",
    )
    draw_select()
    note, without = HELP["position"], set[str]()
    if uses_matrices():
        note = f"{note} Positions that change the word vectors are left out: Q, K and V are given."
        without = {
            item.key for item in AXES["position"] if item.enters == "x" or "reads x" in item.traits
        }
    else:
        # Draw d_model, and the numbers of heads that divide it
        d_model = st.select_slider(
            "d_model",
            D_MODELS,
            start().d_model,
            key=key("d_model"),
            **BOUND,
            **keep_heads(key("d_model"), lambda _: key("heads"), heads_that_divide),
            help="How many numbers each word's vector x has",
        )
        if get("heads") is not None and heads_of(d_model) != get("heads"):
            put("heads", default_heads(d_model))
        note_heads(
            key("d_model"),
            d_model,
            st.select_slider(
                "Heads",
                heads_that_divide(d_model),
                default_heads(d_model),
                key=key("heads"),
                **BOUND,
                help="Into how many heads the d_model numbers are divided; each head attends on its own",
            ),
        )
        _draw_select("projection", "Projection", help=HELP["projection"])
        _draw_params("projection")
    for axis in ("score", "position", "mask", "normalizer", "kernel"):
        hidden = without if axis == "position" else ()
        _draw_select(
            axis, axis.capitalize(), without=hidden, help=note if axis == "position" else HELP[axis]
        )
        _draw_params(axis)
        if axis == "mask" and needs_real(read_choice("mask")):
            st.number_input(
                "Real tokens",
                *NUMBERS["real"],
                default_real(read_controls().source),
                1,
                key=key("real"),
                **BOUND,
                help="How many tokens are real. The keys after them are padding; with 0 every key is.",
            )
    st.number_input(
        "Seed",
        *NUMBERS["seed"],
        SEED,
        1,
        key=key("seed"),
        **BOUND,
        help="The random weights and word vectors are drawn from this number.",
    )


def _change_source() -> None:
    """Start typed matrices without a position or a mask, as the worked example does."""
    if uses_matrices():
        put("position", "none")
        put("mask", "none")


def _draw_select(
    axis: str, label: str, path: str = "", without: Collection[str] = (), help: str | None = None
) -> None:
    """Draw the list of the axis's entries."""
    path = path or axis
    hidden = {*without, *(COMPOSITIONS if path.count(":") >= MAX_DEPTH else ())}
    if path != axis:
        hidden |= {item.key for item in AXES[axis]} - {item.key for item in joinable(axis)}
    current, first = get(path), default_choice(axis, path)
    options = [
        item.key for item in AXES[axis] if item.key not in hidden or item.key in (current, first)
    ]
    st.selectbox(
        label,
        options,
        options.index(first),
        format_func=lambda name: entry(axis, name).name,
        key=key(path),
        help=help or HELP[axis],
        **KEEP,
    )


def _draw_params(axis: str, path: str = "") -> None:
    """Draw the parameters of the choice at a path; of a composed one, each part with its own."""
    path = path or axis
    name = get(path, default_choice(axis, path))
    params_from(entry(axis, name), Choice(name), key(path), KEEP)
    for n in range(part_count(path, name)):
        part = f"{path}:{n}"
        _draw_select(
            axis,
            f"{entry(axis, name).name}: part {part.removeprefix(f'{axis}:').replace(':', '.')}",
            part,
        )
        _draw_params(axis, part)


def draw_selection(queries: tuple[str, ...], config: AttentionConfig) -> None:
    """Draw query, head, and the map where a projection combines several: pills while they are few, else a list."""
    heads, maps = config.num_heads, map_count(config)
    with st.container(
        horizontal=True, vertical_alignment="center", gap="small", key=key("selection")
    ):
        st.markdown(
            "Query", width="content", help="The word whose attention is computed step by step"
        )
        _draw_query(queries)
        if heads > 1:
            st.space("stretch")
            st.markdown("Head", width="content", help="The head that is shown, counted from 0")
            _draw_index("head", heads)
        if maps > 1:
            name = entry("projection", config.projection.key).name
            st.markdown(
                "Map",
                width="content",
                help=f"{name} combines these maps into one; steps 1 to 4 show the picked one.",
            )
            _draw_index("half", maps)


def _draw_query(names: tuple[str, ...]) -> None:
    default = last_word(names)
    if get("query") is not None and (
        get("query") not in names or get("query") == get("default_query")
    ):
        put("query", names[default])  # as a link without a query, it follows the last word
    put("default_query", names[default])
    if len(names) <= MAX_ROW_PILLS:
        st.pills(
            "Query",
            names,
            default=names[default],
            required=True,
            format_func=plain,
            key=key("query"),
            wrap=True,
            **QUIET,
        )
    else:
        st.selectbox("Query", names, default, key=key("query"), width=room(260), **QUIET)


def _draw_index(name: str, count: int) -> None:
    """Draw the numbers from 0 to below `count`."""
    if get(name) is not None and get(name) >= count:
        put(name, 0)
    if count <= MAX_HEAD_PILLS:
        st.pills(name.capitalize(), range(count), default=0, required=True, key=key(name), **QUIET)
    else:
        st.selectbox(name.capitalize(), range(count), width=room(90), key=key(name), **QUIET)


def draw_stage(stage: int) -> None:
    """Draw the six steps, Back and Next."""
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key=key("steps")):
        st.markdown(
            "Step", width="content", help="The six steps from the word vectors to the output"
        )
        stage = (
            st.segmented_control(
                "Step of attention",
                list(STAGES),
                default=start().stage,
                required=True,
                format_func=STAGES.__getitem__,
                key=key("stage"),
                wrap=True,
                help="A step of attention for one query.",
                **QUIET,
            )
            or stage
        )
        put("shown_stage", get("stage", start().stage))
        st.space("stretch")
        for name, step, end in (("back", -1, 1), ("next", 1, 6)):
            st.button(
                name.capitalize(),
                icon=f":material/arrow_{'back' if step < 0 else 'forward'}:",
                on_click=_move_stage,
                args=(step,),
                disabled=stage == end,
                key=key(name),
            )


def _move_stage(step: int) -> None:
    # From the server's own stage: a second press that interrupts a run brings the browser's older one with it.
    stage = min(6, max(1, get("shown_stage", start().stage) + step))
    put("stage", stage)
    put("shown_stage", stage)


def apply_pick() -> None:
    """Apply the query, key or stage that was pressed in the picture."""
    pick, names = dict(get("view").pick or {}), get("names", ())
    if "stage" in pick:
        put("stage", min(6, max(1, int(pick["stage"]))))
        put("shown_stage", get("stage"))
        if get("shown_query") in names:  # as in _move_stage, the browser may bring an older one
            put("query", get("shown_query"))
    if "key" in pick and names:
        put("focus", (names[query_row(names)], int(pick["key"])))
    if "query" in pick and names:
        put("query", names[min(len(names) - 1, max(0, int(pick["query"])))])


# Published mechanisms on this page: the list, the one that the controls make, and its sentences.


def draw_select() -> None:
    """Draw the list of presets, which shows the one that the other controls make, and what this one changes."""
    put("preset", _current())
    st.selectbox(
        "Preset",
        [CUSTOM, WORKED, *(p.key for p in PRESETS)],
        key=key("preset"),
        format_func=_label,
        on_change=_apply,
        help="A published mechanism; it sets all six choices below",
    )
    for line in sentences(read_controls()):
        st.caption(plain(line))
    if error := get("preset_refused"):
        st.error(plain(error))
    put("preset_refused", "")


def _label(name: str) -> str:
    if name in (CUSTOM, WORKED):
        return {CUSTOM: "Your own", WORKED: "Worked example"}[name]
    item = preset(name)
    return item.name if str(item.year) in item.name else f"{item.name}, {item.year}"


def _current() -> str:
    controls = read_controls()
    if uses_matrices():
        unchanged = controls.config == AttentionConfig(
            controls.fields["d_model"], 1, Choice("identity")
        )
        return WORKED if get("is_worked", True) and unchanged else CUSTOM
    return preset_of(controls.config) or CUSTOM


def _apply() -> None:
    """Set all six axes to a preset, at this page's sizes where these fit."""
    name = get("preset")
    if name == WORKED:
        put("source", "matrices")
        put("reset_matrices", True)
        for axis in AXES:
            write_choice(axis, getattr(AttentionConfig(), axis))
    elif name != CUSTOM:
        put("source", "sentence")
        d_model = get("d_model", start().d_model)
        _apply_preset(preset(name), d_model, heads_of(d_model))


def _apply_preset(item: Preset, d_model: int, heads: int) -> None:
    """Set the first of these sizes that the preset fits, or keep why it does not fit the page's."""
    refused = None
    for sizes in ((d_model, heads), (d_model, item.heads), ROOMY, (ROOMY[0], item.heads)):
        try:
            config = item.config(*sizes)
        except ConfigError as error:
            refused = refused or error
            continue
        put("d_model", config.d_model)
        put("heads", config.num_heads)
        for axis in AXES:
            write_choice(axis, getattr(config, axis))
        return
    put("preset_refused", str(refused))


def sentences(controls: Controls) -> list[str]:
    """The preset's changes against Vaswani 2017, a sentence each; none where there is no preset."""
    config = controls.config
    name = preset_of(config)
    if (
        name is None
        or name in PLAIN
        or config is None
        or controls.source is None
        or controls.source.matrices
    ):
        return []
    item = preset(name)
    changes = item.changed(config.d_model, config.num_heads) or (item.meaning,)
    name = item.name if str(item.year) in item.name else f"{item.name} ({item.paper} {item.year})"
    return [f"{name} compared with Vaswani 2017" if len(changes) > 1 else name, *changes]


# Labels of the picture: a stage's rule, the head of its numbers, and why a key is masked.


FRACTIONS = {0.5: "½", 0.25: "¼", 0.125: "⅛", 0.75: "¾"}
MAX_HEAD = 8  # a longer rule does not fit over a column, so "score" stands there
LINEAR_TOLERANCE = 1e-4  # within which a bias counts as linear in the distance


def stage_words(
    config: AttentionConfig, reading: Reading, real: int | None, typed: bool
) -> tuple[StageTexts, ...]:
    """Title, short name, rule and column head of the six stages."""
    source = "Q, K, V given" if typed else rule("projection", config.projection)
    places = enters(config.position)
    position = ", x + position" if "x" in places else ", rotated" if "q, k" in places else ""
    score = rule("score", config.score)
    head = score if len(score) <= MAX_HEAD else "score"
    name = entry("normalizer", config.normalizer.key).name.lower()
    folded = f", {rule('projection', config.projection)}" if reading.folded else ""
    factor = ", × factor" if reading.reweighed else ""
    return (
        StageTexts("Project", "q", source + position, "k"),
        StageTexts("Score", head, score, head),
        StageTexts("Scale + bias", *scale_words(reading)),
        StageTexts("Mask", "mask", *mask_words(config, reading, real)),
        StageTexts(
            "Normalize", name, name + changed(config.normalizer) + factor + folded, "weight"
        ),
        StageTexts(
            "Weigh values",
            "out",
            "Σ w·v" + (" + positions" if reading.position_values is not None else ""),
            "weight × v",
        ),
    )


def rule(axis: str, choice: Choice, **values: Any) -> str:
    """A choice's rule in plain signs with its parameters and further values; a composed one by its parts."""
    if choice.parts:
        parts = [rule(axis, part, **values) for part in choice.parts]
        return (
            f"not ({parts[0]})"
            if choice.key == "not"
            else {"and": ", ", "or": " or "}[choice.key].join(parts)
        )
    item = entry(axis, choice.key)
    return (item.short or item.name).format(**dict(choice.params), **values)


def changed(choice: Choice) -> str:
    """The parameters of a normalizer that are not at their default."""
    params = {param.key: param for param in entry("normalizer", choice.key).params}
    return "".join(
        f", {params[name].name.lower()} {value if isinstance(value, bool | str) else short_number(float(value))}"
        for name, value in choice.params
        if value != params[name].default
    )


def short_number(value: float) -> str:
    if value in FRACTIONS:
        return FRACTIONS[value]
    if 0 < value < 1 and (1 / value).is_integer() and 1 / value <= 4096:
        return f"1/{1 / value:.0f}"
    return f"{value:.4g}".replace("-", "−")


def scale_words(reading: Reading) -> tuple[str, str, str]:
    """Short name, rule, column head."""
    factor, head = scale_rule(reading)
    effects = ["+ bias"] * (reading.bias is not None) + ["adjusted"] * reading.adjusted
    if reading.bias is not None:
        slope = slope_of(reading)
        head = (
            f"{head} {'+ bias' if slope is None else f'− {short_number(slope)}·distance'}".strip()
        )
    if reading.adjusted:
        head = f"{head}, adjusted" if head else "adjusted"
    words = ", ".join([factor] * bool(factor) + effects) or "unchanged"
    return effects[-1] if effects else "scale", words, head or "unchanged"


def scale_rule(reading: Reading) -> tuple[str, str]:
    """What the raw score is multiplied by, as a rule (÷ √D where it is that) and as a number."""
    dims = reading.q.shape[1]
    if reading.scale == 1:
        return "", ""
    if is_root(reading):
        return f"÷ √{dims}", f"÷{short_number(round(math.sqrt(dims), 2))}"
    return f"× {short_number(reading.scale)}", f"×{short_number(reading.scale)}"


def is_root(reading: Reading) -> bool:
    return math.isclose(reading.scale, reading.q.shape[1] ** -0.5, rel_tol=1e-6)


def slope_of(reading: Reading) -> float | None:
    """What one step of distance takes from this query's scores, read from the bias; None where it is not linear."""
    if reading.bias is None:
        return None
    row = reading.bias[reading.query]
    distance = np.abs(np.arange(len(row)) - reading.query)
    if not distance.any():
        return 0.0
    slope = round(-float(row[distance.argmax()]) / float(distance.max()), 9)
    return (
        slope if np.allclose(row, -slope * distance, atol=LINEAR_TOLERANCE) and slope >= 0 else None
    )


def mask_words(config: AttentionConfig, reading: Reading, real: int | None) -> tuple[str, str]:
    """Rule, and the question put to each key."""
    text = rule("mask", config.mask, length=real)
    if config.mask.key == "none":
        return text, text
    return f"allow {text}", re.sub(r"\bi\b", str(reading.query), text) + " ?"


def reasons_text(reading: Reading, real: int | None) -> dict[int, str]:
    """Why each masked key of the picked query is masked, as far as the row itself shows it."""
    allowed = reading.allowed[reading.query]
    visible = np.flatnonzero(allowed)
    return {int(j): _reason(int(j), reading.query, visible, real) for j in np.flatnonzero(~allowed)}


def _reason(j: int, i: int, visible: np.ndarray, real: int | None) -> str:
    """Padding; later, where no later key is visible; too far, where visible keys end nearer; else masked."""
    if real is not None and j >= real:
        return "padding"
    if j > i and not (visible > i).any():
        return "comes later"
    near = i in visible and abs(j - i) > max(
        (abs(int(n) - i) for n in visible if (n - i) * (j - i) >= 0), default=0
    )
    return "too far" if near else "masked"


# The equation of each stage: symbolic, and with the live numbers of one query and one key.


MAX_TERMS = 6
LARGEST_POWER = 8  # above it e^s is a long number, and only the fraction of powers is written
BREAK = " \\\\ "  # where a long line may be broken
ROOT = re.compile(r" */ *\\sqrt\{D\}$")

Pick = Callable[[str], str]


def equation(
    reading: Reading, config: AttentionConfig, stage: int, focus: int, colour: str
) -> tuple[str, ...]:
    """LaTeX of a stage (1 to 6) for the picked query and a key, marked in `colour`: symbols, then numbers in parts."""
    write = (project, score, scale, mask, normalize, weighted_sum)[stage - 1]
    symbols, live = write(reading, config, focus, lambda text: coloured(text, colour))
    return symbols, *live.split(BREAK)


def first_latex(axis: str, choice: Choice) -> str:
    """The first equation of an entry; a typed formula has its own."""
    item = entry(axis, choice.key)
    for param in item.params:
        if param.parse is not None and callable(
            latex := getattr(param.parse(str(choice[param.key])), "latex", None)
        ):
            return str(latex())
    return item.latex.split(r",\quad")[0]


def pair(reading: Reading, j: int) -> str:
    return f"{latex_name(reading.name, reading.query)},\\,{latex_name(reading.keys[j], j)}"


def vector(values: np.ndarray) -> str:
    """The first numbers of a vector, in brackets."""
    return f"({listed(values.tolist())})"


def project(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i = reading.query
    symbols = first_latex("projection", config.projection)
    symbols = (
        symbols if symbols.startswith("q_i") else "q_i = x_i W_q"
    )  # later stages show the rest
    places = enters(config.position)
    if "q, k" in places:
        symbols = f"q_i = R_i({symbols.removeprefix('q_i = ')})"
    if "x" in places:
        symbols = symbols.replace("x_i", "(x_i + p_i)")
    return symbols, pick(f"q_{{{latex_name(reading.name, i)}}}") + " = " + vector(reading.q[i])


def products(left: np.ndarray, right: np.ndarray, most: int) -> list[str]:
    """The first products of two vectors, and the sum of the others, so that what is shown adds up."""
    terms = [
        rf"{signed(a)} \cdot {signed(b)}" for a, b in zip(left[:most], right[:most], strict=True)
    ]
    if len(left) > most:
        rest = signed(float(left[most:] @ right[most:]))
        terms.append(rf"\underbrace{{{rest}}}_{{{len(left) - most}\text{{ more}}}}")
    return terms


def score(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i, result = reading.query, reading.raw[reading.query, j]
    left, value = pick(f"s_{{{pair(reading, j)}}}"), pick(rf"\mathbf{{{latex(result)}}}")
    if not math.isclose(float(reading.q[i] @ reading.k[j]), result, rel_tol=1e-4, abs_tol=1e-4):
        return "s_{ij} = " + ROOT.sub("", first_latex("score", config.score)), f"{left} = {value}"
    return (
        r"s_{ij} = q_i \cdot k_j",
        f"{left} = {' + '.join(products(reading.q[i], reading.k[j], 4))} = {value}",
    )


def scale(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i, dims = reading.query, reading.q.shape[1]
    symbols, live = "s_{ij}", latex(reading.raw[i, j])
    if reading.scale != 1 and is_root(reading):
        symbols, live = r"\frac{s_{ij}}{\sqrt{D}}", rf"\frac{{{live}}}{{\sqrt{{{dims}}}}}"
    elif reading.scale != 1:
        factor = latex(reading.scale)
        symbols, live = rf"{factor}\, s_{{ij}}", rf"{factor} \cdot {signed(reading.raw[i, j])}"
    rules = [
        first_latex("position", leaf)
        for leaf in config.position.leaves()
        if not config.position.parts or enters(leaf) == {"scores"}
    ]
    rule = (r",\quad " if any("arrow" in rule for rule in rules) else " + ").join(rules)
    if reading.bias is not None:
        live += added(float(reading.bias[i, j]))
        if not reading.adjusted:
            symbols += rule if rule.startswith("-") else f" + {rule}"
    left, result = (
        pick(f"b_{{{pair(reading, j)}}}"),
        pick(rf"\mathbf{{{latex(reading.scores[i, j])}}}"),
    )
    if reading.adjusted:  # the rule is of the whole score, from the left of the arrow
        return (
            rule if "=" in rule or "arrow" in rule else f"b_{{ij}} = {rule}",
            rf"{left}:\ {live} \;\to\; {result}",
        )
    return f"b_{{ij}} = {symbols}", f"{left} = {live} = {result}"


def mask(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i, allowed = reading.query, bool(reading.allowed[reading.query, j])
    rule = mask_latex(config.mask)
    symbols = rf"b_{{ij}} \leftarrow \begin{{cases}} b_{{ij}} & {rule} \\ -\infty & \text{{else}} \end{{cases}}"
    value = latex(reading.scores[i, j]) if allowed else r"-\infty"
    where = rf"\quad (i = {i},\ j = {j})"
    return symbols, pick(f"b_{{{pair(reading, j)}}}") + " = " + pick(rf"\mathbf{{{value}}}") + where


def mask_latex(mask: Choice) -> str:
    """The condition under which a key is visible; a composed mask by its parts."""
    if not mask.parts:
        return first_latex("mask", mask)
    parts = [
        rf"({mask_latex(part)})" if part.parts or "\\vee" in mask_latex(part) else mask_latex(part)
        for part in mask.parts
    ]
    return (
        rf"\neg({parts[0]})"
        if mask.key == "not"
        else {"and": r" \wedge ", "or": r" \vee "}[mask.key].join(parts)
    )


def normalize(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    """The normalizer's rule and result; every number of a softmax, and each map where a projection combines them."""
    i = reading.query
    left, value = (
        pick(f"w_{{{pair(reading, j)}}}"),
        pick(rf"\mathbf{{{latex(reading.weights[i, j])}}}"),
    )
    if reading.folded:
        maps = r",\quad ".join(
            f"a_{n + 1} = {latex(each[i, j])}" for n, each in enumerate(reading.normalized)
        )
        return first_latex("projection", config.projection), rf"{maps}{BREAK}\to\; {left} = {value}"
    if reading.reweighed:
        unfactored = float(reading.normalized[0][i, j])
        factor = float(reading.weights[i, j]) / unfactored if unfactored else 1.0
        return (
            r"w_{ij} = g_{ij}\, a_{ij}",
            rf"{left} = {latex(factor)} \cdot {latex(unfactored)} = {value}",
        )
    if not reading.allowed[i, j]:
        return weights_latex(config), f"{left} = " + pick(r"\mathbf{0}") + r"\quad (\text{masked})"
    if config.has("normalizer", "softmax"):
        return softmax(reading, config, j, left, value)
    total = (
        ""
        if reading.sums_to_one
        else rf"{BREAK}\quad \textstyle\sum_m w_{{im}} = {latex(reading.sum)}"
    )
    return weights_latex(config), f"{left} = {value}{total}"


def weights_latex(config: AttentionConfig) -> str:
    """The normalizer's equation, in b instead of s where b is free, as the stage before writes it."""
    rule = entry("normalizer", config.normalizer.key).latex
    return rule if "b_{i" in rule else rule.replace("s_{i", "b_{i")


def softmax(
    reading: Reading, config: AttentionConfig, j: int, left: str, value: str
) -> tuple[str, str]:
    i, tau = reading.query, float(config.normalizer["temperature"])
    allowed = [int(m) for m in reading.allowed[i].nonzero()[0]]
    top = r"b_{ij}" if tau == 1 else r"b_{ij} / \tau"
    below = top.replace("j", "m")
    # The keys that a sum runs over; m alone where the mask's rule is long
    rule = mask_latex(config.mask)
    short = config.mask.key != "none" and len(rule) <= 24 and re.search(r"\bj\b", rule)
    sum_over = re.sub(r"\bj\b", "m", rule) if short else "m"
    symbols = rf"w_{{ij}} = \frac{{e^{{{top}}}}}{{\sum_{{{sum_over}}} e^{{{below}}}}}"
    powers = {m: reading.scores[i, m] / tau for m in allowed}
    heaviest = sorted(allowed, key=lambda m: (m != j, -powers[m]))[:MAX_TERMS]
    terms = " + ".join(f"e^{{{latex(powers[m])}}}" for m in sorted(heaviest))
    terms += r" + \cdots" if len(allowed) > MAX_TERMS else ""
    live = rf"{left} ={BREAK}\frac{{e^{{{latex(powers[j])}}}}}{{{terms}}}"
    if max(abs(p) for p in powers.values()) < LARGEST_POWER:
        total = sum(math.exp(p) for p in powers.values())
        live += rf"{BREAK}= \frac{{{latex(math.exp(powers[j]))}}}{{{latex(total)}}}"
    return symbols, f"{live} = {value}"


def weighted_sum(reading: Reading, config: AttentionConfig, j: int, pick: Pick) -> tuple[str, str]:
    i = reading.query
    order: Sequence[int] = sorted(
        reading.allowed[i].nonzero()[0], key=lambda m: -abs(reading.weights[i, m])
    )
    terms = [
        rf"{latex(reading.weights[i, m])}\,v_{{{latex_name(reading.keys[m], m)}}}"
        for m in sorted(order[:4])
    ]
    more = r" + \cdots" if len(order) > 4 else ""
    position_values = (
        "" if reading.position_values is None else " + " + vector(reading.position_values[i])
    )
    symbols = r"o_i = \sum_j w_{ij}\, v_j" + (r" + p_i" if position_values else "")
    left = pick(f"o_{{{latex_name(reading.name, i)}}}")
    middle = (
        " = " + (" + ".join(terms) + more).replace("+ -", "- ") + position_values if terms else ""
    )
    return symbols, f"{left}{middle} = {vector(reading.out[i])}"


# One measured sentence for each stage, the conditions under which it holds, and the sentence on √D.


Parts = list[list[str]]  # [text, style]; style "", "pick" or "strong"
_MARKS = {
    ".": "the full stop",
    ",": "the comma",
    "?": "the question mark",
    "!": "the exclamation mark",
    ";": "the semicolon",
    ":": "the colon",
}
MIN_COST = 5e-3  # a smaller difference, which two decimals would not show, is not written
_REASONS = {
    "padding": "is padding, so ",
    "too far": "is too far, so ",
    "comes later": "comes later, so ",
}


def token_name(token: str) -> str:
    return _MARKS.get(token, token)


def facts_fact(
    reading: Reading, config: AttentionConfig, stage: int, whys: dict[int, str], head: int = 0
) -> Parts:
    """The sentence of the stage, or of an output that is not finite or a query that sees no key."""
    if not np.isfinite(reading.out[reading.query]).all():
        return [
            [reading.name, "pick"],
            [" has an output that is not a number: the sizes are beyond float32.", ""],
        ]
    if not reading.sees:
        return [
            [reading.name, "pick"],
            [" may attend to no key: every weight is 0 and its output is 0.", ""],
        ]
    if stage == 1:
        dims, i = reading.q.shape[1], reading.query
        size = number(float(np.linalg.norm(reading.q[i])))
        numbers = f"{dims} numbers" if dims > 1 else "1 number"
        if reading.queries != reading.keys:
            return [
                [reading.name, "pick"],
                [f" is a query of {numbers} with length ", ""],
                [size, "strong"],
                [f". It is compared with {len(reading.keys)} keys.", ""],
            ]
        key, value = (number(float(np.linalg.norm(part[i]))) for part in (reading.k, reading.v))
        text = (
            f", a key with length {key} and a value with length {value}. They come from one vector x and differ, "
            "because each has its own matrix."
        )
        if np.array_equal(reading.k[i], reading.v[i]):
            text = f" and a key with length {key}, which is also its value."
        return [
            [reading.name, "pick"],
            [f" has a query of {numbers} with length ", ""],
            [size, "strong"],
            [text + sharing(config, head), ""],
        ]
    return (score_fact, scale_fact, mask_fact, normalize_fact, weighted_sum_fact)[stage - 2](
        reading, config, whys
    )


def sharing(config: AttentionConfig, head: int) -> str:
    """Which heads share the picked head's keys and values, where there are fewer of these."""
    group = config.num_heads // config.kv_heads
    if group <= 1:
        return ""
    first = head // group * group
    others = [str(n) for n in range(first, first + group) if n != head]
    named = (
        f"head {others[0]}"
        if len(others) == 1
        else f"heads {', '.join(others[:-1])} and {others[-1]}"
    )
    return (
        f" Head {head} shares key and value head {head // group} of {config.kv_heads} with {named}."
    )


def score_fact(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    raw = reading.raw[reading.query]
    top = int(raw.argmax())
    rest = (
        f". The mean of its {raw.size} scores is {number(raw.mean())}."
        if raw.size > 1
        else ". It is the only key."
    )
    return [
        [reading.name, "pick"],
        [f" has its highest score with {token_name(reading.keys[top])}, ", ""],
        [number(raw[top]), "strong"],
        [rest, ""],
    ]


def scale_fact(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    raw, scores = reading.raw[reading.query], reading.scores[reading.query]
    changes = []
    if reading.scale != 1:
        factor = reading.scale if reading.scale > 1 else 1 / reading.scale
        changes.append(f"{'multiplying' if reading.scale > 1 else 'dividing'} by {number(factor)}")
    if reading.bias is not None:
        changes.append(f"the bias of {position(config)}")
    if reading.adjusted:
        changes.append(f"the rule of {position(config)}")
    if not changes:
        return [
            ["Nothing is divided and nothing is added: the highest and the lowest score of ", ""],
            [reading.name, "pick"],
            [f" still differ by {number(np.ptp(raw))}.", ""],
        ]
    subject = " and ".join(changes)
    verb = "change" if len(changes) > 1 else "changes"
    return [
        [
            f"{subject[0].upper()}{subject[1:]} {verb} the difference between the highest and the lowest score of ",
            "",
        ],
        [reading.name, "pick"],
        [f" from {number(np.ptp(raw))} to ", ""],
        [number(np.ptp(scores)), "strong"],
        [".", ""],
    ]


def position(config: AttentionConfig) -> str:
    return " and ".join(item.name for item in entries_of(config.position))


def mask_fact(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    hidden = len(reading.keys) - reading.sees
    if not hidden:
        allowed = f"all {len(reading.keys)} keys" if len(reading.keys) > 1 else "the only key"
        return [
            [reading.name, "pick"],
            [f" may attend to {allowed}, so the mask removes nothing.", ""],
        ]
    parts = [
        ["The mask removes ", ""],
        [f"{hidden} of {len(reading.keys)}", "strong"],
        [" keys for ", ""],
        [reading.name, "pick"],
    ]
    if not config.has("normalizer", "softmax"):
        return [*parts, [".", ""]]
    scores = reading.scores[reading.query] / float(config.normalizer["temperature"])
    softmax = np.exp(scores - scores.max())
    lost = float(softmax[list(whys)].sum() / softmax.sum())
    return [*parts, [f"; without the mask they would get {number(lost)} of the weight.", ""]]


def normalize_fact(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    i, best = reading.query, reading.best
    top = int(reading.raw[i].argmax())
    target = (
        "itself"
        if best == i and reading.queries == reading.keys
        else token_name(reading.keys[best])
    )
    parts = [
        [reading.name, "pick"],
        [" gives ", ""],
        [number(reading.weights[i, best]), "strong"],
        [f" to {target}" + ("." if not target.endswith(".") else ""), ""],
    ]
    if reading.folded:
        first, *rest = (number(each[i, best]) for each in reading.normalized)
        return [
            *parts,
            [
                f" The first map gives it {first}, the second {', '.join(rest)}. Its row sums to "
                f"{number(reading.sum)}.",
                "",
            ],
        ]
    if not reading.sums_to_one:
        before = (
            f"; before the mask’s factor it was {number(float(reading.normalized[0][i].sum()))}"
        )
        return [
            *parts,
            [f" Its row sums to {number(reading.sum)}{before * reading.reweighed}.", ""],
        ]
    named = token_name(reading.keys[top])
    named = (
        named.capitalize() if reading.keys[top] in _MARKS else named
    )  # a token stays as it was typed
    high = number(reading.raw[i, top])
    if top == best:
        even = (
            f" Equal weights would be {number(1 / reading.sees)} for each of {reading.sees} keys."
        )
        return [*parts, [even if reading.sees > 1 else " It may attend to no other key.", ""]]
    if top in whys:
        why = _REASONS.get(whys[top], "")
        return [
            *parts,
            [f" {named} has the highest score, {high}, but {why}the mask removes it.", ""],
        ]
    cost = float(reading.raw[i, top] * reading.scale - reading.scores[i, top])
    if cost < MIN_COST:  # equal scores, split by rounding
        return parts
    return [
        *parts,
        [
            f" {named} has the highest score, {high}, but {position(config)} subtracts {number(cost)}.",
            "",
        ],
    ]


def weighted_sum_fact(reading: Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    i, best = reading.query, reading.best
    size = float(np.linalg.norm(reading.out[i]))
    share = float(reading.weights[i, best])
    lengths = np.abs(reading.weights[i]) * np.linalg.norm(reading.v, axis=1)
    most = int(lengths.argmax())
    end = (
        f"The longest weighted value, weight × length of the value, is that of {token_name(reading.keys[most])}: "
        f"{number(float(lengths[most]))}."
    )
    if reading.position_values is not None:
        added = float(np.linalg.norm(reading.position_values[i]))
        end = f"What {position(config)} adds to the values has length {number(added)}."
    return [
        ["The output of ", ""],
        [reading.name, "pick"],
        [" has length ", ""],
        [number(size), "strong"],
        [
            f". The largest weight in it, {number(share)}, is that of {token_name(reading.keys[best])}. {end}",
            "",
        ],
    ]


def window(reading: Reading) -> list[str]:
    """Notes on the tokens and dimensions that the small maps cannot hold."""
    tokens, dims = max(len(reading.queries), len(reading.keys)), reading.q.shape[1]
    notes = []
    if tokens > MAP_CELLS:
        notes.append(f"The maps show {MAP_CELLS} of {tokens} tokens, those around the query.")
    if dims > MAP_CELLS:
        notes.append(
            f"The first {MAP_CELLS} of {dims} dimensions are drawn; all of them are in every number."
        )
    return notes


def kernel_note(config: AttentionConfig) -> str:
    """Which kernel's steps are drawn, where another was picked."""
    item = entry("kernel", config.kernel.key)
    if item.key == "exact":
        return ""
    if "same" in item.traits:
        return f"The steps of the exact kernel are shown; kernel = {item.key} gives the same output without them."
    return (
        f"The steps of the exact kernel are shown; kernel = {item.key} computes other weights. "
        "The page Cost and speed shows them."
    )


def largest_fact(points: tuple[Scaling, ...]) -> str:
    """The largest weight of a query at the largest D, with and without √D."""
    last = points[-1]
    return (
        f"At D = {last.dims} one of {KEYS} keys gets **{number(last.largest)}** of the weight on average. After "
        f"÷ √{last.dims} it gets **{number(last.scaled_largest)}**."
    )


def scaling_fact(points: tuple[Scaling, ...]) -> str:
    """Variance and entropy at the largest D, with and without √D."""
    last, even = points[-1], math.log(KEYS)
    return (
        f"At D = {last.dims} the scores have variance {number(last.variance)}, and the entropy of the weights is "
        f"{number(last.entropy / even)} of that of uniform weights. After ÷ √{last.dims} the scores have variance "
        f"{number(last.scaled_variance)}, and the entropy is {number(last.scaled_entropy / even)}."
    )


# What the page computes as Python.


STEPS = (
    "A layer with seeded weights, and every step of one of its heads; the picked query is one row."
)
SCRIPT_ROOT = "The mean of each row's largest weight, without √D and with it, as the number of dimensions D grows."
SCALING = f"""
from core.attention import attend
from core.seeding import seeded_generator

generator, largest = seeded_generator({SEED}, "scaling"), {{}}
for dims in (2**power for power in range(10)):
    a, b = (torch.randn(1, 1, 64, dims, generator=generator) for _ in range(2))  # queries and keys
    largest[dims] = [float(attend(a, b, b, scale=scale).weights.max(-1).values.mean()) for scale in (1.0, None)]
for dims, pair in largest.items():
    print(dims, *pair)
"""
DRAW = """
from core.show import show_maps

show_maps({"Scores": scores, "Weights": weights}, queries, keys, row=query)
"""


def script(controls: Controls, config: AttentionConfig, reading: Reading) -> Script:
    """The steps of the picked head on the picked input, and what √D does."""
    each = config.score_heads // config.num_heads
    head, score_head = controls.head, controls.head * each + controls.half
    of_scores = "head" if each == 1 else f"{score_head}"
    assert controls.source is not None
    key_mask = "" if controls.real is None else ", key_mask=key_mask"
    _call = (
        f"layer(x{key_mask})"
        if controls.source.matrices is None
        else f"layer.attend_heads(q, k, v{key_mask})"
    )
    code = f"""
import torch

{attention_import(source_of(config))}
from core.seeding import seeded_layer
{_input(controls, config)}
layer = seeded_layer(config, {controls.seed})
steps = {_call}
query, head = {controls.query}, {head}{f"  # its scores are those of {score_head} of {config.score_heads}" * (each > 1)}
q, k, v = steps.q[0, {of_scores}], steps.k[0, {of_scores}], steps.v[0, head]  # (T, D), (S, D), (S, D)
raw, scores = steps.raw[0, {of_scores}], steps.scores[0, {of_scores}]  # (T, S): q · k, then scaled and with the bias
allowed = torch.ones_like(scores, dtype=torch.bool) if steps.mask is None else (
    steps.mask.expand(steps.scores.shape)[0, {of_scores}])
weights, out = steps.weights[0, head], steps.out[0, head]  # (T, S), and their sum of the values (T, D)
print("weights of the query", weights[query].tolist(), "output", out[query].tolist())
"""
    points = cached(measure_scaling, SEED)
    return Script(
        (Cell(STEPS, code, DRAW, "one:view"), Cell(SCRIPT_ROOT, SCALING)),
        {
            "q": reading.q,
            "k": reading.k,
            "v": reading.v,
            "raw": reading.raw,
            "scores": reading.scores,
            "allowed": reading.allowed,
            "weights": reading.weights,
            "out": reading.out,
            "list(largest.values())": np.array(
                [[point.largest, point.scaled_largest] for point in points]
            ),
        },
    )


def _input(controls: Controls, config: AttentionConfig) -> str:
    source = controls.source
    assert source is not None
    padding = (
        ""
        if controls.real is None
        else (f"\nkey_mask = (torch.arange({len(source.keys)}) < {controls.real})[None]")
    )
    if source.matrices is None:
        return f"""from core.tokens import embed, labels

tokens = {source_of(source.tokens)}
queries = keys = labels(tokens)
config = {source_of(config)}
x = embed(tokens, {config.d_model}, seed={controls.seed})  # (1, T, C){padding}"""
    rows = (source.matrices.q, source.matrices.k, source.matrices.v)
    q, k, v = (f"torch.tensor({source_of(part, 17)})[None, None]" for part in rows)
    return f"""
q = {q}  # (1, 1, T, D)
k = {k}
v = {v}
queries, keys = {source_of(source.queries)}, {source_of(source.keys)}
config = {source_of(config)}{padding}"""


# The page: one query's picture in six steps, a question, things to try, and what each step means.


ONE_THREAD = 2**20  # products in the score matrix up to which one thread is enough
SMALL, LARGE = 4, 64  # head sizes of the question on √D
MUCH = 0.8  # an entropy below this share of the other's is much lower
TEMPERATURE = key("normalizer:softmax:temperature")
MEANING = {
    1: "Each word starts as a vector x, a row of numbers. Three matrices, which training learns, turn it "
    "into a query (what the word looks for), a key (what it is found by) and a value (what it passes on).",
    2: "The score of a query and a key says how well they fit. A dot product multiplies them number by number and adds "
    "the products.",
    3: "A score adds D products, where D is the count of numbers in a query. Dividing by √D keeps the scores at the "
    "same size for every D. Some models also add a bias here, such as a penalty for distance.",
    4: "The mask sets the score to −∞ for every key that the query may not attend to, so its weight becomes 0.",
    5: "The normalizer turns the scores of the allowed keys into weights. The softmax makes them positive, with sum 1.",
    6: "The output is the sum of the values, each multiplied by its weight. It is the new vector of the word.",
}

SHOWN = (4, 64, 512)  # sizes of the bars
NAMES = ["without √D", "divided by √D"]
X: Spec = {
    "field": "D",
    "type": "quantitative",
    "scale": {"type": "log", "base": 2, "domain": [1, 512]},
    "axis": {"values": list(DIMS), "grid": False, "title": "head size D"},
}

BOUND_NAMES = (
    "source",
    "tokens",
    "d_model",
    "heads",
    "seed",
    "real",
    "query",
    "head",
    "half",
    "stage",
    "matrices",
    "predict",
    "root:predict",
    "start",
)
FOCUS = "focus"  # the key that was pressed, which is written here
MAX_QUOTE = 40  # signs of a link's value that a message repeats

WEIGHTS = 5  # the stage whose picture tells the answer of the question
STRUT = r"\rule[-1em]{0pt}{2.35em}"
WIDE = "\u2003"  # a space that Markdown keeps
STAGE_ORDER = ("projection", "position", "score", "mask", "normalizer")


def page() -> None:
    """Draw the page from top to bottom."""
    open_link()
    put("link_errors", read_link())  # before the first widget takes its value out of the link
    title(
        "One query, step by step",
        "You will understand how one word's query, key and value lead to its output.",
    )
    explore()
    root_of_d()
    next_page("one_query")


@fragment
def explore() -> None:
    """Draw controls, picture, question and meaning, which rerun without the rest of the page."""
    controls = draw_controls()
    with in_picture("one"):
        reading = picture(controls)
    if reading is not None and controls.exact_config is not None:
        if (controls.stage < WEIGHTS or answered("one")) and (question := weight_question(reading)):
            predict("one", question)
        try_this("one", moves(reading))
        st.markdown("## What it means")
        st.markdown(MEANING[controls.stage])
        # Draw the equation of the step with its numbers, in parts between which a narrow page
        # breaks
        parts = equation(
            reading,
            controls.exact_config,
            controls.stage,
            focus_of(reading, controls),
            Ink.of(theme()).pick,
        )
        if (made := get("made")) is not None:
            terms, first = (
                products(made.x[reading.query], (made.w[0][:, 0]), MAX_TERMS),
                latex(reading.q[reading.query, 0]),
            )
            parts += (
                r"\quad\text{Its first number: }",
                terms[0],
                *(f"+ {term}" for term in terms[1:]),
                rf"= \mathbf{{{first}}}",
            )
        # A part in braces never breaks, and the strut keeps the lines of a narrow page apart.
        symbols, *live = (rf"$\displaystyle {{{STRUT} {part}}}$" for part in parts)
        st.markdown(f"{symbols} {WIDE} {' '.join(live)}", text_alignment="center")
        details(
            "Equation, paper and code of each step",
            partial(sources, controls.exact_config),
            key("sources"),
        )
    write_link({axis: read_choice(axis) for axis in AXES})


def draw_controls() -> Controls:
    """Draw the row of controls, then query, head and stage, or the error of a refused choice."""
    show_link_errors(get("link_errors", []))
    put("link_errors", [])
    draw_row()
    controls = read_controls()
    if controls.config is None or controls.source is None:
        show_error(controls)
    else:
        draw_selection(controls.source.queries, controls.config)
        draw_stage(controls.stage)
    return read_controls()


def show_link_errors(errors: Sequence[str]) -> None:
    """Show the errors of the link until a control is changed."""
    sentences, before = get("refused", ((), None))
    controls = read_controls()
    if errors:
        sentences, before = tuple(errors), None
    elif sentences and before not in (None, controls):
        sentences = ()
    put("refused", (sentences, None if errors else controls))
    for sentence in sentences:
        st.warning(sentence)


def show_error(controls: Controls) -> None:
    """Draw the error, and a button for each choice that fits."""
    if controls.source is None:
        st.warning(controls.error)
        return
    fields = {**controls.fields, "dropout": 0.0}
    if error := refusal(fields):
        st.error(plain(str(error)))
        for axis, choice in repairs(fields, error):
            st.button(
                f"Use {axis} = {choice_text(choice, axis)}",
                on_click=write_choice,
                args=(axis, choice),
                key=key(f"repair:{axis}:{choice_text(choice, axis)}"),
            )


def picture(controls: Controls) -> Reading | None:
    """Draw the six steps with sentence and conditions, or the error; returns the numbers."""
    config, source, stage = controls.exact_config, controls.source, controls.stage
    if config is None or controls.config is None or source is None:
        return None
    try:
        products = len(source.queries) * len(source.keys) * config.d_model
        with one_thread(products <= ONE_THREAD):
            steps = study.run(config, source, controls.seed, controls.real)
    except (ConfigError, ValueError) as error:
        st.error(plain(str(error)))
        return None
    reading = read(
        steps,
        source.queries,
        source.keys,
        controls.query,
        controls.head,
        half=controls.half,
        adjusts=config.has("position", "adjusts"),
    )
    add_script(partial(script, controls, config, reading))
    put("names", source.queries)
    put("shown_query", source.queries[controls.query])
    typed, reasons = source.matrices is not None, reasons_text(reading, controls.real)
    weightless = typed and not any(True for _ in seeded_layer(config, controls.seed).parameters())
    made = (
        study.projected(config, source, controls.seed, controls.head, steps) if stage == 1 else None
    )
    put("made", made)
    notes = (
        (
            f"x is the vector of {reading.name}, a row that is drawn from top to bottom: each of its numbers stands "
            "beside the row of W that it multiplies. The products in a column add up to one number of q, k or v."
        )
        if made
        else "",
        kernel_note(controls.config),
        *window(reading),
        *controls.notes,
    )
    first = (
        "Q, K and V are the typed ones, so every number can be checked by hand."
        if weightless
        else (
            f"Word vectors and matrices are random (seed {controls.seed}). Every number is computed, and rounded only "
            "where it is drawn, but which word gets more weight has no meaning before training."
        )
    )
    data = payload(
        reading,
        stage_words(config, reading, controls.real, typed),
        stage,
        focus_of(reading, controls),
        reasons,
        facts_fact(reading, config, stage, reasons, controls.head),
        " ".join(filter(None, [first, *notes])),
        None if made is None else projection_payload(reading, made.x, made.w),
    )
    step_view(data, reading, key=key("view"), on_pick=apply_pick)
    return reading


def focus_of(reading: Reading, controls: Controls) -> int:
    """The key in the equation: the one pressed for this row, else the one with most weight."""
    if (
        controls.focus is None
        or controls.focus[0] != reading.name
        or controls.focus[1] >= len(reading.keys)
    ):
        return reading.best
    return controls.focus[1]


def sources(config: AttentionConfig) -> None:
    """Draw where each step's equation is from and the function that just ran."""
    st.markdown(
        "The formula as a textbook writes it. Every choice on this page is tested against it:"
    )
    source_panel(reference.attention)
    entries_panel(draw_entries_of(config))
    st.markdown("The code that just ran. It has the same steps for every choice:")
    source_panel(exact)


def draw_entries_of(config: AttentionConfig) -> list[Entry]:
    """The entry of every choice in use, in the order of the stages; a composed mask by its parts."""
    return [
        entry(axis, leaf.key) for axis in STAGE_ORDER for leaf in getattr(config, axis).leaves()
    ]


def root_of_d() -> None:
    """Draw the largest weight with and without √D, and why a large one is bad."""
    st.markdown("## What √D does")
    points = cached(measure_scaling, SEED)
    # What happens to the weights at a larger head size when scores are not divided by √D
    small, large = (
        next(point for point in points if point.dims == dims) for dims in (SMALL, LARGE)
    )
    ratio = large.entropy / small.entropy
    answer = 0 if ratio < MUCH else 2 if ratio > 1 / MUCH else 1
    reason = (
        f"The largest weight goes from {number(small.largest)} at D = {SMALL} to {number(large.largest)} at "
        f"D = {LARGE}. A score adds D products, so its variance grows with D: {number(small.variance)} and "
        f"{number(large.variance)}. At D = {LARGE}, divided by √{LARGE}, it is {number(large.scaled_variance)}."
    )
    if not predict(
        "one:root",
        Question(
            f"Scores are not divided by √D, and the size D of queries and keys grows from {SMALL} to {LARGE}. What "
            "happens to the weights?",
            (
                "a few keys get almost all weight",
                "they stay about the same",
                "they become more equal",
            ),
            answer,
            (reason,) * 3,
        ),
    ):
        st.caption("The measurement is shown once you have picked an answer.")
        return
    draw_chart(
        st,
        largest(points, Ink.of(theme())),
        theme=None,
        key=key("largest"),
        alt="The largest weight with and without √D at three sizes D",
    )
    fact(largest_fact(points))
    paragraph(
        "Where one key has all the weight, a small change of a score changes no weight: the gradients of queries "
        "and keys are near 0, so training hardly changes them."
    )
    st.caption(
        f"Measured on {study.QUERIES} random queries and {study.KEYS} random keys (standard normal numbers, "
        f"seed {SEED})."
    )
    details("The same, measured for D from 1 to 512", partial(curves, points), key("curves"))


def curves(points: tuple[Scaling, ...]) -> None:
    """Draw variance and entropy over D."""
    figures = scaling_figures(points, Ink.of(theme()))
    for column, figure, alt in zip(
        st.columns(2, gap="medium"), figures, ("Variance", "Entropy"), strict=True
    ):
        draw_chart(
            column, figure, theme=None, key=key(alt), alt=f"{alt} with and without √D as D grows"
        )
    fact(scaling_fact(points))


# The page's link: widgets of fixed name bind themselves; the six choices are written here, each as a few words.


def read_link() -> list[str]:
    """Set the widgets to the link's choices; returns a sentence for each value that is refused.

    Only what differs from what this page wrote itself is read. A choice that was in the link and is not any more was
    taken back by the browser's Back button, unless the reader comes from another page, which empties the link.
    """
    params = {
        name.removeprefix("one:"): value
        for name, value in st.query_params.items()
        if name.startswith("one:")
    }
    written, same_page = (
        get("written", {}),
        get("preset") is not None,
    )  # a widget's value goes with its page
    errors = []
    for axis in AXES:
        if axis in params and params[axis] != written.get(axis):
            errors += _read_axis(axis, params[axis])
        elif axis in written and axis not in params and same_page:
            write_choice(axis, _default(axis))
    put("written", {axis: params[axis] for axis in AXES if axis in params})
    if FOCUS in params and get("focus") is None:
        name, _, index = params[FOCUS].rpartition(":")
        put(
            "focus",
            (name, int(index)) if index.isascii() and index.isdigit() and len(index) < 4 else None,
        )
    fresh = {name: value for name, value in params.items() if key(name) not in st.session_state}
    return errors + _errors(fresh)


def write_link(current: dict[str, Choice]) -> None:
    """Write the choices, the pressed key and the link's start to the link where they changed."""
    axes = {
        axis: choice_text(choice, axis)
        for axis, choice in current.items()
        if choice != _default(axis)
    }
    texts = {key(axis): text for axis, text in axes.items()}
    if focus := get(FOCUS):
        texts[key(FOCUS)] = f"{focus[0]}:{focus[1]}"
    for name in map(key, (*AXES, FOCUS)):
        if name not in texts:
            st.query_params.pop(name, None)
    if changed := {name: text for name, text in texts.items() if st.query_params.get(name) != text}:
        st.query_params.update(changed)
    put("written", axes)
    write_start("one")


def _default(axis: str) -> Choice:
    return complete(Choice(default_choice(axis, axis)), AXES[axis], axis)


def _read_axis(axis: str, text: str) -> list[str]:
    named = {
        item.name: item.key for item in AXES[axis]
    }  # links of the first version held the names
    try:
        write_choice(axis, choice_from_text(named.get(text, text), axis))
    except ConfigError as error:
        default = entry(axis, default_choice(axis, axis)).name
        return [
            f"{_claim(axis, text)}, which cannot be read. {plain(str(error))} {default} is shown."
        ]
    return []


def _claim(name: str, value: str) -> str:
    return f"The link says {name} = {plain(value[:MAX_QUOTE])}"


def _errors(params: dict[str, str]) -> list[str]:
    """Errors in the values that bound widgets would drop without a message."""
    errors = _size_errors(params)
    for name, allowed in (("source", SOURCES), ("stage", STAGES)):
        if name in params and params[name] not in allowed.values():
            errors.append(
                f"{_claim(name, params[name])}; expected one of {' · '.join(allowed.values())}."
            )
    for name, (low, high) in NUMBERS.items():
        if name in params and not _within(params[name], low, high):
            errors.append(
                f"{_claim(name, params[name])}; expected a number from {low:g} to {high:g}."
            )
    for name in sorted(params.keys() - {*BOUND_NAMES, FOCUS, *AXES}):
        if "matrices" not in name:
            errors.append(
                f"{_claim(plain(name[:MAX_QUOTE]), params[name])}; this page has no such setting."
            )
    return errors + _row_errors(params)


def _size_errors(params: dict[str, str]) -> list[str]:
    sizes: dict[str, int | None] = {}
    for name, default in (("d_model", get("d_model", start().d_model)), ("heads", None)):
        text = params.get(name)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 7):
            return [f"{_claim(name, text)}; expected a whole number from 1."]
        sizes[name] = default if text is None else int(text)
    d_model, heads = sizes["d_model"], sizes["heads"]
    if d_model not in D_MODELS:
        options = ", ".join(map(str, D_MODELS))
        return [
            f"The link says d_model = {d_model}; this page takes one of {options}. "
            f"{start().d_model} is shown."
        ]
    if heads is None:
        return []
    try:
        check_sizes(d_model, heads)
    except ConfigError as error:
        return [f"In the link, {error} {default_heads(d_model)} is shown."]
    return []


def _row_errors(params: dict[str, str]) -> list[str]:
    """A query that is no token of the sentence, or a head that the layer does not have."""
    if params.get("source") == SOURCES["matrices"]:
        return []
    errors = []
    names = labels(tokenize(params.get("tokens", get("tokens", start().words))).tokens)
    if "query" in params and params["query"] not in {*names, *map(plain, names)}:
        quote = plain(params["query"][:MAX_QUOTE])
        errors.append(f"The link asks for the query {quote}, which is no token of this sentence.")
    heads = params.get("heads", str(get("heads", start().heads)))
    if (
        "head" in params
        and heads.isdigit()
        and params["head"] not in map(str, range(int(heads[:4])))
    ):
        errors.append(
            f"{_claim('head', params['head'])}; with {heads} heads they run from 0 to {int(heads) - 1}."
        )
    return errors


def _within(text: str, low: float, high: float) -> bool:
    try:
        return low <= float(text) <= high
    except ValueError:
        return False


# The two figures of what √D does.


def scaling_figures(points: tuple[Scaling, ...], ink: Ink) -> tuple[Spec, Spec]:
    """Variance (both axes logarithmic) and entropy over D."""
    variance = [(p.dims, p.variance, p.scaled_variance) for p in points]
    entropy = [(p.dims, p.entropy, p.scaled_entropy) for p in points]
    even = math.log(KEYS)
    y = {"field": "value", "type": "quantitative"}
    label = {"value": even, "D": DIMS[-1], "text": f"uniform weights, ln {KEYS} = {number(even)}"}
    bound = [
        layer("rule", [{"value": even}], {"y": y}, strokeDash=[2, 3], color=ink.quiet),
        layer(
            "text",
            [label],
            {"y": y, "x": {"field": "D", "type": "quantitative"}, "text": {"field": "text"}},
            align="right",
            dx=-6,
            dy=-8,
            fontSize=12,
            color=ink.quiet,
        ),
    ]
    return (
        _figure("Variance of the scores", variance, ink, {"type": "log"}, []),
        _figure("Entropy of the weights, nats", entropy, ink, {"domain": [0, 5]}, bound),
    )


def largest(points: tuple[Scaling, ...], ink: Ink) -> Spec:
    """Two bars at each of three sizes: the largest weight of a query without √D and divided by it."""
    rows = [
        {"D": f"D = {p.dims}", "value": value, "text": number(value), "series": name}
        for p in points
        if p.dims in SHOWN
        for name, value in zip(NAMES, (p.largest, p.scaled_largest), strict=True)
    ]
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": {"domain": [0, 1]},
        "axis": {"title": None, "tickCount": 3},
    }
    x = {"field": "D", "type": "nominal", "sort": None, "axis": {"title": None, "labelAngle": 0}}
    encoding = {
        "x": x,
        "y": y,
        "xOffset": {"field": "series", "sort": NAMES},
        "color": series_encoding("series", NAMES, [ink.series[1], ink.series[0]]),
    }
    text = {"text": {"field": "text"}}
    colour = {"color": encoding["color"]}
    names = [
        layer(
            "text",
            rows[at : at + 1],
            {"text": {"field": "series"}, "x": {"value": 4}, "y": {"value": 8 + 18 * at}, **colour},
            align="left",
            fontSize=13,
        )
        for at in range(len(NAMES))
    ]  # over the small bars, where no bar is under them
    layers = [
        layer("bar", rows, encoding),
        layer("text", rows, {**encoding, **text}, dy=-7, fontSize=13),
        *names,
    ]
    return titled_figure("Largest weight of a query, mean", layers, 190, ink) | {
        "config": config(ink)
    }


def _figure(title: str, rows: list[tuple], ink: Ink, scale: Spec, bound: list[Spec]) -> Spec:
    """Two curves with names at their ends, and the bound over them; rows are (D, without √D, divided by √D)."""
    values = [
        {"D": dims, "value": value, "text": number(value), "series": name}
        for dims, *both in rows
        for name, value in zip(NAMES, both, strict=True)
    ]
    below = 14 if bound else -10  # the name goes under its line where the bound is over it
    ends = [value for value in values if value["D"] == DIMS[-1]]
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": scale,
        "axis": {"title": None, "tickCount": 4},
    }
    encoding = {
        "x": X,
        "y": y,
        "color": series_encoding("series", NAMES, [ink.series[1], ink.series[0]]),
    }
    dash = series_encoding("series", NAMES, [[5, 3], [1, 0]])
    tooltip = [{"field": "series"}, {"field": "D"}, {"field": "text", "title": "value"}]
    layers = [
        layer("line", values, {**encoding, "strokeDash": dash}, strokeWidth=2),
        layer("point", values, {**encoding, "tooltip": tooltip}, opacity=0, size=200),
        layer("point", ends, encoding, filled=True, size=45, opacity=1),
        layer(
            "text",
            ends,
            {**encoding, "text": {"field": "series"}},
            align="right",
            dx=-6,
            fontSize=12,
            dy={"expr": f"datum.series == '{NAMES[1]}' ? {below} : -10"},
        ),
    ]
    return titled_figure(title, layers + bound, 190, ink) | {
        "config": config(ink, titleAnchor="middle")
    }


# The questions and the things to try on this page; each answer is computed from what the page shows.


def weight_question(reading: Reading) -> Question | None:
    """Which key gets most weight: the query's own or another; None where there is no choice."""
    if reading.queries != reading.keys or reading.sees < 2:
        return None
    i, best = reading.query, reading.best
    name, other = plain(reading.name), plain(reading.keys[best])
    own = number(reading.weights[i, i])
    if best == i:
        result = f"{name} gives itself {own}, more than any other word"
    else:
        result = f"{name} gives {own} to itself and {number(reading.weights[i, best])} to {other}"
    why = "A word's query and key come from different matrices, so its own key need not fit its query best."
    reason = f"{result} (step 5). {why}"
    return Question(
        f"Each word has a query and a key. Which word gets the largest weight from {name}?",
        ("the word itself", "another word"),
        0 if best == i else 1,
        (reason, reason),
    )


def moves(reading: Reading) -> tuple[Move, ...]:
    """What to try: the weights, the causal mask, the score without √D, and a layer of six words and four heads.

    Each sets all that its notice relies on, whatever was tried before.
    """
    first, name = reading.queries[0], plain(reading.name)
    hide = Move(
        "Hide later words",
        _axes(mask="causal") | {key("query"): first, key("stage"): 4},
        f"Under the causal mask {plain(first)}, the first word, may attend only to itself: the score of every "
        "later word is −∞.",
    )
    # The largest weight of the picked word without and with the division by √D
    row = reading.raw[reading.query].astype(float)
    best, dims = int(row.argmax()), reading.q.shape[1]
    whole, divided = (
        number(float(weights[best])) for weights in (_softmax(row), _softmax(row / dims**0.5))
    )
    return (
        Move(
            "See the weights",
            {key("stage"): 5},
            f"The scores of {name} became weights. Press Next to see the values multiplied by them.",
        ),
        *([hide] if reading.queries == reading.keys else []),
        Move(
            "Do not divide by √D",
            _axes(score="dot") | {key("query"): reading.name, key("stage"): 5},
            (
                f"{plain(reading.name)} gives {whole} to {plain(reading.keys[best])}; divided by √{dims} it would give "
                f"{divided}. Larger scores make the largest weight larger. “What √D does” below shows it for larger D."
            ),
        ),
        Move(
            "Six words, four heads",
            _layer(SENTENCE, 16, 4, stage=5),
            "Each head has its own queries and keys. Pick another head: the same word attends to other words.",
        ),
    )


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def _axes(**axes: str) -> dict[str, object]:
    """Every axis's choice; axes that are not named get their first choice."""
    return {key(axis): axes.get(axis, getattr(AttentionConfig(), axis).key) for axis in AXES} | {
        TEMPERATURE: 1.0
    }


def _layer(words: str, d_model: int, heads: int, stage: int, **axes: str) -> dict[str, object]:
    """The controls of a layer; axes that are not named get their first choice."""
    names = labels(tokenize(words).tokens)
    values = {
        "source": "sentence",
        "tokens": words,
        "d_model": d_model,
        "heads": heads,
        "head": 0,
        "stage": stage,
        "query": names[last_word(names)],
    }
    return _axes(**axes) | {key(name): value for name, value in values.items()}
