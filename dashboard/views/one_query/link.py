"""The page's link: widgets of fixed name bind themselves; the six choices are written here, each as a few words."""

from __future__ import annotations

import streamlit as st

from core.attention import AXES, Choice, ConfigError, check_sizes, entry
from core.entries import complete
from core.sentence import labels, tokenize
from dashboard.runtime.link_start import write_start
from dashboard.runtime.mechanism_codec import choice_from_text, choice_text
from dashboard.views.one_query import session
from dashboard.views.one_query.session import default_choice, get, key, put, write_choice
from dashboard.widgets.panels import plain
from dashboard.widgets.params import D_MODELS

BOUND_NAMES = ("source", "tokens", "d_model", "heads", "seed", "real", "query", "head", "half", "stage", "matrices",
               "predict", "root:predict", "start")
FOCUS = "focus"  # the key that was pressed, which is written here
MAX_QUOTE = 40  # signs of a link's value that a message repeats


def read_link() -> list[str]:
    """Set the widgets to the link's choices; returns a sentence for each value that is refused.

    Only what differs from what this page wrote itself is read. A choice that was in the link and is not any more was
    taken back by the browser's Back button, unless the reader comes from another page, which empties the link.
    """
    params = {name.removeprefix("one:"): value for name, value in st.query_params.items() if name.startswith("one:")}
    written, same_page = get("written", {}), get("preset") is not None  # a widget's value goes with its page
    errors = []
    for axis in AXES:
        if axis in params and params[axis] != written.get(axis):
            errors += _read_axis(axis, params[axis])
        elif axis in written and axis not in params and same_page:
            write_choice(axis, _default(axis))
    put("written", {axis: params[axis] for axis in AXES if axis in params})
    if FOCUS in params and get("focus") is None:
        name, _, index = params[FOCUS].rpartition(":")
        put("focus", (name, int(index)) if index.isascii() and index.isdigit() and len(index) < 4 else None)
    fresh = {name: value for name, value in params.items() if key(name) not in st.session_state}
    return errors + _errors(fresh)


def write_link(current: dict[str, Choice]) -> None:
    """Write the choices, the pressed key and the link's start to the link where they changed."""
    axes = {axis: choice_text(choice, axis) for axis, choice in current.items() if choice != _default(axis)}
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
    named = {item.name: item.key for item in AXES[axis]}  # links of the first version held the names
    try:
        write_choice(axis, choice_from_text(named.get(text, text), axis))
    except ConfigError as error:
        default = entry(axis, default_choice(axis, axis)).name
        return [f"{_claim(axis, text)}, which cannot be read. {plain(str(error))} {default} is shown."]
    return []


def _claim(name: str, value: str) -> str:
    return f"The link says {name} = {plain(value[:MAX_QUOTE])}"


def _errors(params: dict[str, str]) -> list[str]:
    """Errors in the values that bound widgets would drop without a message."""
    errors = _size_errors(params)
    for name, allowed in (("source", session.SOURCES), ("stage", session.STAGES)):
        if name in params and params[name] not in allowed.values():
            errors.append(f"{_claim(name, params[name])}; expected one of {' · '.join(allowed.values())}.")
    for name, (low, high) in session.NUMBERS.items():
        if name in params and not _within(params[name], low, high):
            errors.append(f"{_claim(name, params[name])}; expected a number from {low:g} to {high:g}.")
    for name in sorted(params.keys() - {*BOUND_NAMES, FOCUS, *AXES}):
        if "matrices" not in name:
            errors.append(f"{_claim(plain(name[:MAX_QUOTE]), params[name])}; this page has no such setting.")
    return errors + _row_errors(params)


def _size_errors(params: dict[str, str]) -> list[str]:
    sizes: dict[str, int | None] = {}
    for name, default in (("d_model", get("d_model", session.start().d_model)), ("heads", None)):
        text = params.get(name)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 7):
            return [f"{_claim(name, text)}; expected a whole number from 1."]
        sizes[name] = default if text is None else int(text)
    d_model, heads = sizes["d_model"], sizes["heads"]
    if d_model not in D_MODELS:
        options = ", ".join(map(str, D_MODELS))
        return [f"The link says d_model = {d_model}; this page takes one of {options}. "
                f"{session.start().d_model} is shown."]
    if heads is None:
        return []
    try:
        check_sizes(d_model, heads)
    except ConfigError as error:
        return [f"In the link, {error} {session.default_heads(d_model)} is shown."]
    return []


def _row_errors(params: dict[str, str]) -> list[str]:
    """A query that is no token of the sentence, or a head that the layer does not have."""
    if params.get("source") == session.SOURCES["matrices"]:
        return []
    errors = []
    names = labels(tokenize(params.get("tokens", get("tokens", session.start().words))).tokens)
    if "query" in params and params["query"] not in {*names, *map(plain, names)}:
        quote = plain(params["query"][:MAX_QUOTE])
        errors.append(f"The link asks for the query {quote}, which is no token of this sentence.")
    heads = params.get("heads", str(get("heads", session.start().heads)))
    if "head" in params and heads.isdigit() and params["head"] not in map(str, range(int(heads[:4]))):
        errors.append(f"{_claim('head', params['head'])}; with {heads} heads they run from 0 to {int(heads) - 1}.")
    return errors


def _within(text: str, low: float, high: float) -> bool:
    try:
        return low <= float(text) <= high
    except ValueError:
        return False
