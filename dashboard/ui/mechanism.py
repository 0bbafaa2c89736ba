"""An editor of any mechanism."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import streamlit as st

from core.attention import (
    AXES,
    PRESETS,
    AttentionConfig,
    Choice,
    ConfigError,
    Preset,
    entry,
    preset,
    preset_of,
)
from core.attention.masks import COMPOSITIONS
from core.attention.text import PLAIN, choice_text
from core.entries import Entry, Value, complete
from dashboard.draw.formats import choice_name, plain
from dashboard.fields.base import HERE, Fields, config_error, guarded, is_text, param_widget
from dashboard.fields.link import BOUND, KEEP
from dashboard.fields.reset import BUILT
from dashboard.ui.panels import details, entries_panel, paragraph, source_panel

D_MODELS = [2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]


def keep_heads(
    d_model: str, heads: Callable[[int], str], fits: Callable[[int], Sequence[int]]
) -> dict[str, Any]:
    """The options of the d_model widget of key `d_model` by which its changes keep the heads that were chosen.

    `heads(d_model)` is the key of the heads' widget, whose value the page tells by `note_heads`.
    """

    def keep() -> None:
        width = st.session_state[d_model]
        fit_heads(d_model, width, heads(width), fits)

    return {"on_change": guarded(d_model, keep)}


def fit_heads(d_model: str, width: int, heads: str, fits: Callable[[int], Sequence[int]]) -> None:
    """Show the heads that were chosen at the new `width`, in the widget of key `heads`.

    Where these do not divide it, the largest number below them of `fits(width)` is shown until they do.
    """
    state = st.session_state
    if (noted := state.get(f"{d_model}:heads")) is not None:
        chosen = noted[0]
        shown = max((number for number in fits(width) if number <= chosen), default=fits(width)[0])
        state[heads], state[f"{d_model}:heads"] = shown, (chosen, width, shown)


def note_heads(d_model: str, width: int, heads: int) -> None:
    if st.session_state.get(f"{d_model}:heads", (0, 0, 0))[1:] != (width, heads):
        st.session_state[f"{d_model}:heads"] = heads, width, heads


def params_of(
    item: Entry,
    *,
    key: str,
    exclude: tuple[str, ...] = (),
    base: Choice | None = None,
    keep: dict[str, Any] = BOUND,
) -> dict[str, Value]:
    """Draw a widget for each of the entry's parameters except `exclude`; returns their values.

    They start from the values of `base` where it is a choice of that entry; `keep` are the options by which link and
    session hold them.
    """
    start = dict(base.params) if base is not None and base.key == item.key else {}
    return {
        param.key: param_widget(
            replace(param, default=start.get(param.key, param.default)),
            key=f"{key}:{item.key}:{param.key}",
            keep=keep,
        )
        for param in item.params
        if param.key not in exclude
    }


def params_panel(
    axis: str, *, key: str, exclude: Callable[[str], tuple[str, ...]] = lambda name: ()
) -> None:
    """Draw the parameters of all entries of an axis, but those that `exclude` names of an entry."""
    for item in AXES[axis]:
        if any(param.key not in exclude(item.key) for param in item.params):
            paragraph(f"**{item.name}**")
        params_of(item, key=key, exclude=exclude(item.key))


def params_in_session(item: Entry, *, key: str) -> dict[str, Value]:
    """The values that those widgets have, or will have; of a text that cannot be read, the last that could."""
    state, values = st.session_state, {}
    for param in item.params:
        name = f"{key}:{item.key}:{param.key}"
        value = state.get(name, param.default)
        if is_text(param) and config_error(param.check, value, param.name):
            value = state.get(f"{name}:read", param.default)
        elif is_text(param):
            state[f"{name}:read"] = value
        values[param.key] = value
    return values


# A choice on an axis as widgets: the list of its entries, then the parts and the parameters of the picked one.


PARTS = Choice("causal"), Choice("local")  # with which a composed mask starts
MAX_PARTS = 3
MAX_NESTED = 2  # parts of parts are plain masks here; deeper ones come by a link alone


def draw_choice(
    axis: str,
    label: str,
    base: Choice,
    *,
    key: str,
    help: str | None,
    keep: dict[str, Any] = KEEP,
    without: Collection[str] = (),
    depth: int = 0,
) -> Choice:
    """Draw the widgets of a choice that starts from `base`, of entries that are not in `without`; returns it."""
    hidden = {*without, *(COMPOSITIONS if depth >= MAX_NESTED else ())}
    if depth and axis == "position":  # only those that rotate or change scores can be joined
        hidden |= {
            item.key for item in AXES[axis] if item.parts or item.enters not in ("q, k", "scores")
        }
    hidden -= {st.session_state.get(key), base.key}
    options = [item.key for item in AXES[axis] if item.key not in hidden]
    name = st.selectbox(
        label,
        options,
        options.index(base.key),
        key=key,
        help=help,
        format_func=lambda name: entry(axis, name).name if depth else dated(entry(axis, name)),
        **keep,
    )
    return Choice.of(
        name,
        *draw_parts(axis, name, base, key=key, keep=keep, depth=depth),
        **params_of(entry(axis, name), key=key, base=base, keep=keep),
    )


def draw_parts(
    axis: str, name: str, base: Choice, *, key: str, keep: dict[str, Any] = KEEP, depth: int = 0
) -> list[Choice]:
    """Draw the parts of a composed choice, for masks joined by and or by or also how many there are."""
    count = len(part_starts(axis, name, base, key))
    label = entry(axis, name).name
    if axis == "mask" and name in ("and", "or"):
        st.number_input(
            f"{label}: parts",
            1,
            max(MAX_PARTS, count),
            count,
            key=f"{key}:{name}:parts",
            help="How many masks are joined",
            **keep,
        )
    return [
        draw_choice(
            axis,
            f"{label}: part {n + 1}",
            part,
            key=part_key(key, name, n),
            help="One of the choices that act together",
            keep=keep,
            depth=depth + 1,
        )
        for n, part in enumerate(part_starts(axis, name, base, key))
    ]


def part_starts(axis: str, name: str, base: Choice, key: str) -> tuple[Choice, ...]:
    """What each part of a choice starts from: the parts of `base` where it is of that entry, else the entry's own."""
    start = base.parts if base.key == name and base.parts else entry(axis, name).parts
    if axis == "mask" and name in COMPOSITIONS:
        start = start or PARTS[: 1 if name == "not" else 2]
    count = st.session_state.get(f"{key}:{name}:parts", len(start))
    return (*start, *start[-1:] * (count - len(start)))[:count]


def part_key(key: str, name: str, number: int) -> str:
    return f"{key}:{name}:part{number}"


def choice_in_session(axis: str, base: Choice, *, key: str) -> Choice:
    """The choice that those widgets have, or will have, before they are drawn."""
    name = st.session_state.get(key, base.key)
    return Choice.of(
        name,
        *(
            choice_in_session(axis, part, key=part_key(key, name, n))
            for n, part in enumerate(part_starts(axis, name, base, key))
        ),
        **params_in_session(entry(axis, name), key=key),
    )


def choice_state(key: str, choice: Choice) -> dict[str, Any]:
    """The state of the widgets for a choice, with all its parts; for a link or a callback, before they are drawn."""
    values: dict[str, Any] = {
        key: choice.key,
        **{f"{key}:{choice.key}:{name}": value for name, value in choice.params},
    }
    if choice.parts:
        values[f"{key}:{choice.key}:parts"] = len(choice.parts)
    for n, part in enumerate(choice.parts):
        values |= choice_state(part_key(key, choice.key, n), part)
    return values


def dated(item: Entry | Preset) -> str:
    """The name with the year of its paper, where it has one that the name does not say."""
    return (
        f"{item.name} · {item.year}"
        if item.paper and str(item.year) not in item.name
        else item.name
    )


AXIS_NAMES = {
    "projection": "Projection",
    "score": "Score",
    "position": "Position",
    "mask": "Mask",
    "normalizer": "Normalizer",
    "kernel": "Kernel",
}
AXIS_HELP = {
    "projection": "Where queries, keys and values come from.",
    "score": "How a query is compared with a key.",
    "position": "How the order of the tokens enters.",
    "mask": "Which keys each query may attend to.",
    "normalizer": "How scores become weights.",
    "kernel": "How attention is computed: exactly, or by a cheaper approximation.",
}
OWN = "own"  # the preset of a mechanism that is no preset

AxisChoices = dict[str, Any]  # an AttentionConfig's, before they are known to go together


def mechanism(
    key: str, start: AttentionConfig, *, axes: Collection[str] = tuple(AXES), presets: bool = True
) -> AttentionConfig | None:
    """Draw the editor; returns the mechanism, or None with the reason beside the control.

    It starts from `start`, and again when the page passes another one. Its sizes are those of
    `start`, and what is not drawn (`axes`) stays as there. The mechanism is kept for the session.
    """
    store = st.session_state.setdefault(f"{key}:mechanism", {})
    if store.get("start") != start:
        store["start"] = start
        if start != store.get("now"):  # else the page passed the edited mechanism itself
            adopt(key, start)
    base: AttentionConfig = store["base"]
    top = st.container() if presets else None
    fields: AxisChoices = dict(vars(base))
    grid = st.grid(min_column_width=210, gap="small")
    cells, broken = {}, False
    for axis in (name for name in AXES if name in axes):
        cells[axis] = grid.container()
        with cells[axis]:
            fields[axis] = draw_choice(
                axis,
                AXIS_NAMES[axis],
                getattr(base, axis),
                key=f"{key}:{axis}",
                help=AXIS_HELP[axis],
            )
        broken |= any(
            config_error(param.check, part.kwargs[param.key], param.name)
            for part in fields[axis].walk()
            for param in entry(axis, part.key).params
            if is_text(param) and param.key in part.kwargs
        )
    config = None
    try:
        config = None if broken else AttentionConfig(**fields)
    except ConfigError as error:  # beside the first control that it names
        named = [cells[axis] for axis in error.axes if axis in cells]
        with named[0] if named else st.container():
            show_refusal(
                fields,
                error,
                key,
                lambda axis, choice: adopt(key, AttentionConfig(**{**fields, axis: choice})),
            )
    if top is not None:
        with top:
            # Draw the preset that the choices are, if any; choosing another sets all six axes
            picker = f"{key}:preset"
            st.session_state[picker] = preset_of(config) or OWN
            st.selectbox(
                "Preset",
                [OWN, *(item.key for item in PRESETS)],
                key=picker,
                on_change=guarded(picker, _take_preset),
                args=(key,),
                help="A published mechanism. Choosing one sets all six axes.",
                format_func=lambda name: "Your own choices" if name == OWN else dated(preset(name)),
            )
            if config is not None and (known := preset_of(config)):
                st.caption(
                    plain(
                        " ".join(preset(known).changed(config.d_model, config.num_heads))
                        or preset(known).meaning
                    )
                )
            if problem := store.pop("refused", None):
                st.error(plain(problem))
    if config is not None:
        store["now"] = config
        details(
            "What cannot be combined with these choices",
            partial(_explain, config, axes),
            f"{key}:clashes",
        )
    return config


def adopt(key: str, config: AttentionConfig) -> None:
    """Set every widget of an editor to a mechanism; for a callback, before the widgets are drawn."""
    st.session_state.setdefault(f"{key}:mechanism", {})["base"] = config
    for axis in AXES:
        st.session_state.update(choice_state(f"{key}:{axis}", getattr(config, axis)))


def repairs(fields: AxisChoices, error: ConfigError) -> list[tuple[str, Choice]]:
    """Up to three choices that make the fields fit: those that the error names, else the plainest of another axis.

    Of the numbers that it names for a parameter only the one nearest to the parameter's.
    """
    offers: list[tuple[str, Choice]] = []
    for name, values in error.take.items():
        if name in AXES:
            offers += [(name, Choice(str(value))) for value in values]
        for axis in AXES:
            if isinstance(now := fields[axis].kwargs.get(name), int):
                offers.append(
                    (
                        axis,
                        Choice.of(
                            fields[axis].key,
                            *fields[axis].parts,
                            **(
                                fields[axis].kwargs
                                | {name: min(values, key=lambda value: abs(int(value) - now))}
                            ),
                        ),
                    )
                )
    if not offers:
        offers = [(axis, getattr(AttentionConfig(), axis)) for axis in reversed(AXES)]
    return [
        (axis, choice)
        for axis, choice in dict.fromkeys(offers)
        if choice != fields[axis]
        and config_error(AttentionConfig, **{**fields, axis: choice}) is None
    ][:3]


def clashes(
    config: AttentionConfig, axes: Collection[str] = tuple(AXES)
) -> list[tuple[str, Entry, str]]:
    """Every choice that the others rule out: its axis, its entry and the reason."""
    fields: AxisChoices = dict(vars(config))
    return [
        (axis, item, str(error))
        for axis in AXES
        if axis in axes
        for item in AXES[axis]
        if item.key not in COMPOSITIONS
        and (error := config_error(AttentionConfig, **{**fields, axis: Choice(item.key)}))
    ]


def show_refusal(
    fields: AxisChoices, error: ConfigError, key: str, use: Callable[[str, Choice], None]
) -> None:
    st.error(plain(str(error)))
    for axis, choice in repairs(fields, error):
        text = choice_text(choice, axis)
        st.button(
            f"Use {axis} = {text}",
            key=f"{key}:repair:{axis}:{text}",
            on_click=use,
            args=(axis, choice),
        )


def _explain(config: AttentionConfig, axes: Collection[str]) -> None:
    st.markdown(
        "\n".join(
            [
                f"- **{AXIS_NAMES[axis]}: {item.name}.** {plain(error)}"
                for axis, item, error in clashes(config, axes)
            ]
        )
        or "Every other choice can be combined with the rest."
    )


def _take_preset(key: str) -> None:
    store, name = st.session_state[f"{key}:mechanism"], st.session_state[f"{key}:preset"]
    if name == OWN:
        return
    current = store.get("now", store["base"])
    try:
        adopt(key, preset(name).config(current.d_model, current.num_heads))
    except ConfigError as error:
        store["refused"] = str(error)


# The page of one axis: the equation of the choice that its field `equation` names, and what stands behind it.


T = TypeVar("T")


def draw_equation(
    fields: type[Fields],
    axis: str,
    results: Mapping[Choice, T],
    write: Callable[[T], Iterable[str]],
) -> None:
    """The list of the choices with a result, and beside it the parts of the equation that `write` makes of the picked.

    The pick counts as built there.
    """
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        name = fields.draw("equation", into=HERE, choices=[choice.key for choice in results])[
            "equation"
        ]
        choice = next(choice for choice in results if choice.key == name)
        watch_built(fields.page_key, {axis: choice})
        st.markdown(
            r"$\quad$ ".join(rf"$\displaystyle {part}$ " for part in write(results[choice])),
            width="content",
        )


def equation_sources(
    fields: type[Fields],
    axis: str,
    choices: Sequence[Choice],
    build: Callable[[Choice], object],
    code: Callable[[Choice], str],
) -> None:
    """The source of what the picked choice builds, its `code` for a notebook, and all entries of the axis."""
    name = fields.read("equation", choices=[choice.key for choice in choices])["equation"]
    choice = next(choice for choice in choices if choice.key == name)
    source_panel(type(build(choice)))
    st.markdown("The same in a notebook:")
    st.code(code(choice), language="python")
    entries_panel(AXES[axis])


# One mechanism: what was last built on a page is what the next page opens with, until it is put back.


Built = dict[str, Choice]  # by axis, without what the default attention has


def set_built(page: str, choices: Mapping[str, Choice]) -> None:
    whole = {axis: complete(choice, AXES[axis], axis) for axis, choice in choices.items()}
    st.session_state[BUILT] = (
        page,
        {axis: choice for axis, choice in whole.items() if choice != getattr(PLAIN, axis)},
    )


def watch_built(page: str, choices: Mapping[str, Choice]) -> None:
    """Note what a page shows once a control changes it: what it opens with was not built there."""
    before, state = f"{page}:before", st.session_state
    if state.setdefault(before, choices) != choices:
        state[before] = choices
        set_built(page, choices)


def take_built(
    page: str,
    adopt: Callable[[Built], None],
    *,
    axes: Collection[str] = tuple(AXES),
    linked: bool | None = None,
) -> None:
    """Open a page with what was built on another one, and say so; call it before the page's widgets are drawn.

    `adopt` sets the widgets to these choices of `axes`, with none to the page's own. What the link says of the page
    (`linked`) wins.
    """
    state, taken = st.session_state, f"{page}:taken"
    origin, built = state.get(BUILT, ("", {}))
    built = {axis: choice for axis, choice in built.items() if axis in axes}
    if linked is None:
        linked = any(name.startswith(f"{page}:") for name in st.query_params)

    def put(choices: Built) -> None:
        state[taken] = choices
        state.pop(f"{page}:before", None)  # so that taking it over does not count as building it
        adopt(choices)

    def put_back() -> None:
        state.pop(BUILT, None)
        put({})

    if origin == page:
        state[taken] = built  # nothing to take over
        return
    if built != state.get(taken, {}):
        if linked:
            return
        put(built)
    if built:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            names = " + ".join(choice_name(axis, choice) for axis, choice in built.items())
            st.markdown(f"From another page: **{plain(names)}**", width="content")
            st.button("Put back", key=f"{page}:put_back", type="tertiary", on_click=put_back)
