"""The controls of the view Syntax: the file of sentences, the relation, the head and the example sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from core.entries import ConfigError
from core.interpret.syntax import MOST_CHARACTERS, parse_conllu
from core.interpret.trace import Head, Kind
from core.tasks import reading
from core.tasks.reading import decode_text
from dashboard.draw.formats import plain
from dashboard.server.limits import admit_upload, at_most, where_stored
from dashboard.ui.links import BOUND, KEEP, link_value, one_of
from dashboard.ui.model_picker import ModelChoice
from dashboard.ui.models import ModelRef
from dashboard.ui.progress import UNASKED, measure_with_progress
from dashboard.ui.uploads import clear_data, file_key
from dashboard.views.head_roles.fields import head_field, kind_field, reset_choice
from dashboard.views.head_roles.syntax.compute import (
    CHOICES,
    MOST_SENTENCES,
    NAMES,
    READ,
    Query,
    SyntaxResult,
    known_sentences,
    parses_of,
    ranked_heads,
    read_sentence,
    score_syntax,
)

RELATION, HEAD, SENTENCE, FILE, TROUBLE = (
    f"head_roles:{key}" for key in ("relation", "syntactic", "sentence", "conllu", "conllu:trouble")
)


@dataclass(frozen=True)
class Controls:
    """The file of sentences ("": the project's own), the relation (an index of CHOICES) and the head."""

    reference: str
    relation: int
    head: Head


def draw_controls(choice: ModelChoice) -> tuple[Controls, SyntaxResult] | None:
    """Draw the controls and measure; None after a message where no relation can be measured."""
    kinds: list[Kind] = [kind for kind in choice.reading.trace.kinds if kind != "cross"]
    columns = st.columns(3 + (len(kinds) > 1), vertical_alignment="bottom")
    kind = kind_field(kinds, columns[0])
    reference = _file_field(columns[-1])
    if (result := _measure(choice.ref, reference, kind)) is None:
        return None
    if not any(result.scores):
        st.info(
            "No relation has ten instances in these sentences, so none is measured.",
            icon=":material/info:",
        )
        return None
    of = f"{choice.ref} {kind} {reference}"
    relation = _relation_field(result, of, columns[-3])
    return Controls(reference, relation, _head_field(result, relation, of, columns[-2])), result


def _measure(ref: ModelRef, reference: str, kind: Kind) -> SyntaxResult | None:
    """Read the sentences one by one; None before the first relation has ten instances, while more can be read."""
    known = range(len(known_sentences(ref, reference)))
    read = measure_with_progress(
        READ,
        (ref, reference, kind),
        known,
        partial(read_sentence, ref, reference, kind),
        "sentences",
        UNASKED,
    )
    result = score_syntax(ref, reference, kind)
    return result if len(read) == len(known) or any(result.scores) else None


def sentence_field(
    result: SyntaxResult, queries: Mapping[int, tuple[Query, ...]], of: object
) -> int:
    """The example sentence, by its index; those in which the head is wrong come first."""
    texts = {str(index + 1): index for index in queries}
    marks = {
        number: "✓" if all(query.right for query in queries[index]) else "✗"
        for number, index in texts.items()
    }
    reset_choice(SENTENCE, list(texts), next(iter(texts)), of)
    link_value(
        SENTENCE, next(iter(texts)), one_of(texts)
    )  # by its number: the label has the verdict on this head
    number = st.selectbox(
        "Example sentence",
        list(texts),
        key=SENTENCE,
        **KEEP,
        format_func=lambda number: (
            f"{number} {marks[number]} {result.readings.sentences[texts[number]].parse.text}"
        ),
        help="✗: the head misses a target in it. These come first.",
    )
    return texts[number]


def _relation_field(result: SyntaxResult, of: object, column: Any) -> int:
    options = [name for name, score in zip(NAMES, result.scores, strict=True) if score is not None]
    default = NAMES[result.default()]
    reset_choice(RELATION, options, default, of)
    name = column.selectbox(
        "Relation",
        options,
        options.index(default),
        key=RELATION,
        **BOUND,
        help="From which word the head attends, and which word is the right one.",
    )
    return NAMES.index(name)


def _head_field(result: SyntaxResult, relation: int, of: object, column: Any) -> Head:
    """The picked head; another relation starts with the head of the highest accuracy."""
    score = result.scores[relation]
    assert score is not None
    options = {result.readings.name(head): head for head in ranked_heads(result, score)}
    return head_field(
        HEAD, options, (of, CHOICES[relation][0].key, CHOICES[relation][1]), column, "accuracy"
    )


def _file_field(column: Any) -> str:
    """The reference of an uploaded file; "" for the project's own sentences."""
    link_value(FILE, "", _reference)
    with column.popover("Sentences", icon=":material/account_tree:", width="stretch"):
        st.file_uploader(
            "CoNLL-U file",
            ["conllu", "txt"],
            key=file_key(FILE),
            on_change=_take_file,
            max_upload_size=at_most("upload_megabytes", MOST_CHARACTERS // 10**6),
            help=f"Sentences with their syntactic trees, at most {MOST_SENTENCES} of them and 2 MB. "
            f"{where_stored()}",
        )
        st.caption(
            "The page measures 179 English sentences, annotated by hand for it, until you upload others. "
            "docs/conllu.md in the repository describes the format."
        )
        if st.session_state.get(FILE):
            st.button(
                "Use the lab's own sentences",
                key=f"{FILE}:clear",
                on_click=clear_data,
                args=(FILE,),
            )
    if trouble := st.session_state.get(TROUBLE):
        st.warning(plain(trouble))
    reference = str(st.session_state.get(FILE, ""))
    try:
        parses_of(reference)
    except ConfigError as error:  # deleted since
        st.warning(plain(str(error)))
        return ""
    return reference


def _reference(text: str) -> str:
    """The reference in a link; ConfigError where its data is not on this machine, or no reference."""
    if not reading.is_reference(text):
        raise ConfigError("This is no reference to stored sentences.")
    parses_of(text)
    return text


def _take_file() -> None:
    """Store an uploaded file and use it, or keep the sentences and store the error."""
    file = st.session_state.get(file_key(FILE))
    st.session_state.pop(TROUBLE, None)
    if file is None:
        return
    try:
        admit_upload(file)
        text = decode_text(file.getvalue())
        count = len(parse_conllu(text))
    except ConfigError as error:
        st.session_state[TROUBLE] = f"{file.name}: {error}"
        return
    if count > MOST_SENTENCES:
        st.session_state[TROUBLE] = (
            f"{file.name} has {count:,} sentences; the first {MOST_SENTENCES} are measured."
        )
    st.session_state[FILE] = reading.put(text)
    st.session_state[f"{FILE}:files"] = st.session_state.get(f"{FILE}:files", 0) + 1
