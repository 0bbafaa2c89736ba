"""The page's link: widgets of fixed name bind themselves; the six choices are written here, each as a few words."""

from __future__ import annotations

import streamlit as st

from core.attention import AXES, Choice, ConfigError, check_sizes
from core.entries import complete
from dashboard.runtime.mechanism_codec import choice_from_text, choice_text
from dashboard.runtime.tokens import SENTENCE, labels, tokenize
from dashboard.views.one_query import choices, session
from dashboard.views.one_query.session import USUAL, get, key, put
from dashboard.widgets.panels import plain
from dashboard.widgets.params import D_MODELS

BOUND_NAMES = ("source", "tokens", "d_model", "heads", "seed", "real", "query", "head", "half", "stage", "matrices")
LONGEST_SAID = 40  # signs of a link's value that a sentence repeats


def take() -> list[str]:
    """Put the link's choices where the widgets find them; returns a sentence for each thing that it cannot have.

    Only what differs from what this page wrote itself is read. A choice that was in the link and is not any more was
    taken back by the browser's Back button, unless the reader comes from another page, which empties the link.
    """
    asked = {name.removeprefix("one:"): value for name, value in st.query_params.items() if name.startswith("one:")}
    written, stayed = get("written", {}), get("preset") is not None  # a widget's value goes with its page
    found = []
    for axis in AXES:
        if axis in asked and asked[axis] != written.get(axis):
            found += _take_axis(axis, asked[axis])
        elif axis in written and axis not in asked and stayed:
            choices.write(axis, complete(Choice(choices.usual(axis, axis)), AXES[axis], axis))
    put("written", {axis: asked[axis] for axis in AXES if axis in asked})
    fresh = {name: value for name, value in asked.items() if key(name) not in st.session_state}
    return found + _refused(fresh)


def write(chosen: dict[str, Choice]) -> None:
    """Keep the choices in the link; the link is touched only where they change."""
    texts = {axis: choice_text(choice, axis) for axis, choice in chosen.items()
             if choice != complete(Choice(choices.usual(axis, axis)), AXES[axis], axis)}
    before = get("written", {})
    if texts == before and all(st.query_params.get(key(axis)) == text for axis, text in texts.items()):
        return
    for axis in AXES:
        name = key(axis)
        if axis not in texts:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != texts[axis]:
            st.query_params[name] = texts[axis]
    put("written", texts)


def _take_axis(axis: str, text: str) -> list[str]:
    named = {item.name: item.key for item in AXES[axis]}  # links of the first version held the names
    try:
        choices.write(axis, choice_from_text(named.get(text, text), axis))
    except ConfigError as error:
        usual = choices.entry(axis, getattr(USUAL, axis).key).name
        said = plain(text[:LONGEST_SAID])
        return [f"The link says {axis} = {said}, which cannot be read. {plain(str(error))} {usual} is shown."]
    return []


def _refused(asked: dict[str, str]) -> list[str]:
    """What the widgets that bind themselves would drop without a word."""
    found = [*_refused_sizes(asked)]
    for name, allowed in (("source", session.SOURCES), ("stage", session.STAGES)):
        if name in asked and asked[name] not in allowed.values():
            found.append(f"The link says {name} = {plain(asked[name][:LONGEST_SAID])}; expected one of "
                         f"{' · '.join(allowed.values())}.")
    for name, (low, high) in session.NUMBERS.items():
        if name in asked and not _within(asked[name], low, high):
            found.append(f"The link says {name} = {plain(asked[name][:LONGEST_SAID])}; expected a number from "
                         f"{low:g} to {high:g}.")
    for name in sorted(asked.keys() - {*BOUND_NAMES, *AXES}):
        if "matrices" not in name:
            found.append(f"The link says {plain(name[:LONGEST_SAID])} = {plain(asked[name][:LONGEST_SAID])}; this page "
                         "has no such setting.")
    return found + _refused_row(asked)


def _refused_sizes(asked: dict[str, str]) -> list[str]:
    wanted: dict[str, int | None] = {}
    for name, usual in (("d_model", session.D_MODEL), ("heads", None)):
        text = asked.get(name)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 7):
            return [f"The link says {name} = {plain(text[:LONGEST_SAID])}; expected a whole number from 1."]
        wanted[name] = usual if text is None else int(text)
    d_model, heads = wanted["d_model"], wanted["heads"]
    if d_model not in D_MODELS:
        sizes = ", ".join(map(str, D_MODELS))
        return [f"The link says d_model = {d_model}; this page takes one of {sizes}. {session.D_MODEL} is shown."]
    if heads is None:
        return []
    try:
        check_sizes(d_model, heads)
    except ConfigError as error:
        return [f"In the link, {error} {session.default_heads(d_model)} is shown."]
    return []


def _refused_row(asked: dict[str, str]) -> list[str]:
    """A query that is no token of the sentence, or a head that the layer does not have."""
    found, given = [], asked.get("source") == session.SOURCES["matrices"]
    names = labels(tokenize(asked.get("tokens", SENTENCE)).tokens)
    if "query" in asked and not given and asked["query"] not in {*names, *map(plain, names)}:
        said = plain(asked["query"][:LONGEST_SAID])
        found.append(f"The link asks for the query {said}, which is no token of this sentence.")
    heads = asked.get("heads", str(session.HEADS))
    if "head" in asked and not given and heads.isdigit() and asked["head"] not in map(str, range(int(heads[:4]))):
        last = int(heads) - 1
        found.append(f"The link says head = {plain(asked['head'][:LONGEST_SAID])}; with {heads} heads they run from 0 "
                     f"to {last}.")
    return found


def _within(text: str, low: float, high: float) -> bool:
    try:
        return low <= float(text) <= high
    except ValueError:
        return False
