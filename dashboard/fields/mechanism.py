"""An editor of any mechanism."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import streamlit as st

from core.attention import (
    AXES,
    PRESETS,
    AttentionConfig,
    Choice,
    ConfigError,
    entry,
    preset,
    preset_of,
)
from core.attention.masks import COMPOSITIONS
from core.attention.text import PLAIN, choice_text
from core.entries import Entry, complete
from dashboard.draw.formats import choice_name, plain
from dashboard.fields.axis import choice_state, dated, draw_choice
from dashboard.fields.base import HERE, Fields, config_error, guarded, is_text
from dashboard.fields.reset import BUILT, last_choices
from dashboard.ui.panels import details, entries_panel, source_panel

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
    """Note the heads that a page shows at this width, as chosen by hand unless a change of the width brought them."""
    if st.session_state.get(f"{d_model}:heads", (0, 0, 0))[1:] != (width, heads):
        st.session_state[f"{d_model}:heads"] = heads, width, heads


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
                axis.capitalize(),
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
    """Say why the choices do not go together, with a button for each of the `repairs`; `use` takes the pressed one."""
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
                f"- **{axis.capitalize()}: {item.name}.** {plain(error)}"
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
        name = fields.draw("equation", into=HERE, choices=list(results))["equation"]
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
    name = fields.read("equation", choices=choices)["equation"]
    choice = next(choice for choice in choices if choice.key == name)
    source_panel(type(build(choice)))
    st.markdown("The same in a notebook:")
    st.code(code(choice), language="python")
    entries_panel(AXES[axis])


# One mechanism: what was last built on a page is what the next page opens with, until it is put back.


Built = dict[str, Choice]  # by axis, without what the default attention has


def set_built(page: str, choices: Mapping[str, Choice]) -> None:
    """Note these choices by axis as built on that page, for the next page that can take them."""
    whole = {axis: complete(choice, AXES[axis], axis) for axis, choice in choices.items()}
    st.session_state[BUILT] = (
        page,
        {axis: choice for axis, choice in whole.items() if choice != getattr(PLAIN, axis)},
    )


def watch_built(page: str, choices: Mapping[str, Choice]) -> None:
    """Note what a page shows once a control changes it: what it opens with was not built there."""
    before = last_choices(page)
    if before.is_set and before.value != choices:
        set_built(page, choices)
    before.value = choices


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
        last_choices(page).pop()  # so that taking it over does not count as building it
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
