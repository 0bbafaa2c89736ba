"""A person's own data as controls: text that is pasted or uploaded, and which of its columns a task reads."""

import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache

import streamlit as st

from core.attention import ConfigError
from core.entries import Param, Value
from core.tasks import ALL, column_choice, column_names, reading
from dashboard.draw.formats import cut
from dashboard.fields.base import (
    field_error,
    guarded,
    show_unreadable,
)
from dashboard.fields.link import KEEP, link_value, one_of
from dashboard.server.limits import admit_upload, where_stored
from dashboard.server.visitors import at_most

DATA = "data"  # the task parameter that holds a reader's own text, or refers to it
MAX_MB = 4 * reading.MAX_SIGNS // 1_000_000  # a character has at most four bytes
# characters; what is longer is stored for the link; is summed up instead of edited
SHORT, LONG = 1_000, 4_000
# labels of an empty column name
UNNAMED = {"label": "The last column", "text": "None: all columns"}
HEAD_LINES, HEAD_SIGNS = 4, 60


def data_widget(param: Param, key: str) -> str:
    """A field to paste into and a file to upload; returns the text, or the reference of a long one."""
    link_data(key, str(param.default))
    st.file_uploader(
        f"{param.name}: upload a file of at most {param.longest:,} characters, of up to four bytes each",
        key=file_key(key),
        type=["txt", "csv", "tsv", "jsonl", "md", "conllu"],
        max_upload_size=at_most("upload_megabytes", MAX_MB),
        on_change=guarded(file_key(key), _take_file),
        args=(key,),
        help=param.help,
    )
    value = str(st.session_state.get(key, param.default))
    if len(value) > LONG or reading.is_reference(value):
        if not reading.is_reference(value) and value != param.default:
            value = reading.put(value)
        st.session_state[key] = value  # no widget holds it while it is too long to be edited
        lines, signs, head = _summary(value)
        st.code(head, language=None, wrap_lines=False)
        st.button(
            "Replace the data",
            key=f"{key}:clear",
            type="tertiary",
            on_click=clear_data,
            args=(key,),
        )
    else:
        value = (
            st.text_area(
                "Or paste it",
                param.default,
                key=key,
                height=140,
                max_chars=reading.INLINE,
                help=param.help,
                **KEEP,
            )
            or ""
        )
        lines, signs = len(value.splitlines()), len(value)
    st.caption(
        f"{lines:,} lines, {signs:,} of at most {param.longest:,} characters. "
        f"{where_stored()} Nothing in it is executed."
    )
    if trouble := st.session_state.get(f"{key}:trouble"):
        field_error(trouble)
        if st.session_state.get(f"{key}:windows"):
            st.button(
                "Read it as Windows-1252",
                key=f"{key}:as-windows",
                icon=":material/translate:",
                on_click=_take_file,
                args=(key, "cp1252"),
            )
    show_unreadable(param, value)
    return value


def link_data(key: str, default: str) -> None:
    """Put the data into the link: a short text itself, a longer one as a reference to what is stored here."""
    link_value(
        key, default, _from_link, lambda text: text if len(text) <= SHORT else reading.put(text)
    )


def _from_link(text: str) -> str:
    try:
        data = reading.read(text)
    except ConfigError:
        return text
    return data if len(data) <= LONG else text


@lru_cache(maxsize=8)
def _summary(value: str) -> tuple[int, int, str]:
    """The lines and characters of a text, and its head; zeros for stored data that is missing."""
    try:
        text = reading.read(value)
    except ConfigError:
        return 0, 0, ""
    head = [cut(line, HEAD_SIGNS) for line in text.split("\n", HEAD_LINES)[:HEAD_LINES]]
    return len(text.splitlines()), len(text), "\n".join([*head, "…"])


def file_key(key: str) -> str:
    """The uploader's key, changed after each stored file, so that the session frees its bytes."""
    count = st.session_state.get(f"{key}:files", 0)
    return f"{key}:file:{count}" if count else f"{key}:file"


def column_widget(param: Param, values: Mapping[str, Value], key: str) -> str:
    names = ["", *names_of(str(values[DATA]), str(values["header"]))]
    link_value(key, "", one_of(names))
    if st.session_state.get(key, "") not in names:
        st.session_state.pop(key)  # a column of another table
    label = UNNAMED[param.key]
    picked = st.selectbox(
        param.name, names, key=key, help=param.help, **KEEP, format_func=lambda name: name or label
    )
    return picked or ""


def columns_widget(param: Param, values: Mapping[str, Value], key: str) -> str:
    """The columns to learn from, "" for the task's choice; reset with another table, class or reading of dates."""
    link_value(key, "", str)
    texts = {name: str(value) for name, value in values.items()}
    try:
        names, usual = column_choice(texts)
    except ConfigError:
        return ""
    if texts["text"] or not names:
        return ""
    state, every = st.session_state, names_of(texts[DATA], texts["header"])
    field = f"{key}:{zlib.crc32(repr((names, usual)).encode())}"
    if field not in state or state.get(key, "") != state.get(f"{key}:made", ""):
        # Columns by name or number, in the spelling of the table; unknown ones stay.
        known = {str(i): name for i, name in enumerate(every, 1)}
        known |= {name.casefold(): name for name in every}
        link = str(state.get(key, ""))
        linked = [known.get(name.strip().casefold(), name) for name in link.split(",")]
        linked = list(column_choice(texts, ALL)[1]) if link == ALL else linked
        state[field] = linked if set(linked) <= set(names) else list(usual)
    columns = st.multiselect(
        param.name,
        names,
        key=field,
        help=(
            "The columns that the model reads. Dates, constant columns and identifiers are left out at first; add those "
            "that say something about other rows."
        ),
        **KEEP,
    )
    numbered = (name if "," not in name else str(every.index(name) + 1) for name in columns)
    state[key] = "" if set(columns) == set(usual) else ",".join(numbered)
    state[f"{key}:made"] = state[key]
    link_value(key, "", str)  # what has just been changed
    return str(state[key])


def names_of(data: str, header: str) -> tuple[str, ...]:
    try:
        return column_names(data, header)
    except ConfigError:
        return ()


# How the parameters of a task on own data are asked for, by key: each after the values of those before it.
WIDGETS: dict[str, Callable[[Param, Mapping[str, Value], str], str]] = {
    DATA: lambda param, values, key: data_widget(param, key),
    **dict.fromkeys(UNNAMED, column_widget),
    "columns": columns_widget,
}


def clear_data(key: str, text: str = "") -> None:
    """Put a text in the place of the data, and forget what was wrong with a file."""
    st.session_state[key] = text
    st.session_state.pop(f"{key}:trouble", None)


def _take_file(key: str, encoding: str = "utf-8") -> None:
    """Store an uploaded file as the text, or its error and whether Windows-1252 would decode it."""
    state, file = st.session_state, st.session_state.get(file_key(key))
    for name in ("trouble", "windows"):
        state.pop(f"{key}:{name}", None)
    if file is None:
        return
    try:
        admit_upload(file)
        text = reading.validate_text(reading.decode_text(file.getvalue(), encoding), file.name)
        state[key] = text
        if len(text) > LONG:
            state[key] = reading.put(text)
            state[f"{key}:files"] = state.get(f"{key}:files", 0) + 1
    except ConfigError as error:
        state[f"{key}:trouble"] = str(error)
        state[f"{key}:windows"] = isinstance(error, reading.EncodingError) and bool(error.fits)
