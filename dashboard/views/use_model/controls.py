"""The controls: the sentences to compare, the word to mask or to explain, and the start of a long measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from core.pretrained import ModelInputs, Pretrained, example_inputs
from core.pretrained.answers import mask_word, maskable_words
from dashboard.draw.formats import distinct
from dashboard.runtime.link_values import link_value, one_of, write_link
from dashboard.views.use_model.compute import AT_ONCE, Answer, first_crossing, seconds, sentences
from dashboard.widgets.model_picker import ModelChoice, ModelRef
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND

MORE = "\n".join(
    (
        "The dog was too exhausted to walk over the road.",
        "Because it was raining, she took an umbrella.",
        "He forgot his umbrella and got wet.",
        "The bank raised its interest rates again.",
        "Money costs more to borrow this year.",
    )
)
MORE_SIGNS = 6_000
LONG_WORD = 4
MOST_BUTTONS = 40
WORD = "use_model:word"
PICK_HELP = "The page shows the answer for this word and the head that it depends on most."
Compared = tuple[tuple[str, ModelInputs], ...]


@dataclass(frozen=True)
class Controls:
    """The inputs that the model answers, the position of the answer if one is picked, and the inputs to compare."""

    inputs: ModelInputs
    position: int | None = None
    compared: Compared = ()


def draw_controls(task: str, choice: ModelChoice, pretrained: Pretrained) -> Controls:
    """Draw the controls of a task, a key of MODEL_TASKS; PretrainedError for too many sentences."""
    if task == "embed":
        return Controls(choice.inputs, compared=_compared_inputs(choice, pretrained))
    if task == "fill":
        return Controls(_masked_inputs(choice, pretrained))
    if task == "translate":
        return Controls(choice.inputs, _produced_position(choice))
    return Controls(choice.inputs)


def _compared_inputs(choice: ModelChoice, pretrained: Pretrained) -> Compared:
    if pretrained.reads == "picture":
        names = example_inputs.pictures(int(getattr(pretrained.model.config, "num_channels", 3)))[
            :8
        ]
        others = ((name, ModelInputs(picture=example_inputs.picture(name))) for name in names)
        return (
            ("This picture", choice.inputs),
            *(pair for pair in others if pair[1] != choice.inputs),
        )
    more = (
        st.text_area(
            "Other sentences, one per line",
            MORE,
            key="use_model:more",
            max_chars=MORE_SIGNS,
            height=150,
            help="Each is compared with the text above and with the others.",
            **BOUND,
        )
        or ""
    )
    names = sentences(choice.inputs.text, more)
    return tuple(
        zip(names, (choice.inputs, *map(ModelInputs, names[1:])), strict=False)
    )  # there may be no sentence


def _masked_inputs(choice: ModelChoice, pretrained: Pretrained) -> ModelInputs:
    """The inputs if they hold a mask, else with the picked word masked."""
    line = choice.reading.source
    if pretrained.tokenizer.mask_token_id in line.ids:
        return choice.inputs
    maskable = maskable_words(line)
    numbers, words = list(maskable), list(maskable.values())
    default = next(
        (
            i
            for i in reversed(range(len(words)))
            if words[i].isalpha() and len(words[i]) >= LONG_WORD
        ),
        0,
    )
    picked = _pick("Masked word", words, default, f"use_model:masked:{choice.inputs.text[:80]}")
    return replace(choice.inputs, text=mask_word(pretrained, choice.inputs.text, numbers[picked]))


def _produced_position(choice: ModelChoice) -> int:
    produced = choice.reading.produced
    assert produced is not None
    words = [position for position, special in enumerate(produced.special) if not special] or [0]
    key = f"use_model:word:{choice.inputs.text[:80]}:{choice.inputs.target or ''}"
    tokens = [produced.tokens[position] for position in words]
    return words[_pick("Word of the output", tokens, first_crossing(choice.reading, words), key)]


def _pick(label: str, tokens: Sequence[str], default: int, key: str) -> int:
    """The index of the picked token; the link holds it, for the text that it was made with."""
    names = [plain(name) for name in distinct(tokens)]
    indices, name_of = range(len(names)), names.__getitem__
    if st.session_state.setdefault(WORD, key) != key:
        st.session_state[WORD] = key
        write_link(WORD, None)
    st.session_state.setdefault(key, default)
    link_value(key, default, one_of(indices), name=WORD)
    if len(names) > MOST_BUTTONS:
        return st.selectbox(label, indices, format_func=name_of, key=key, help=PICK_HELP)
    choice = st.segmented_control(
        label, indices, format_func=name_of, key=key, required=True, help=PICK_HELP
    )
    return default if choice is None else int(choice)


def draw_measure(ref: ModelRef, answer: Answer) -> bool:
    """Whether to measure every head; a long measurement first needs a press of the button drawn here."""
    requested = f"use_model:measured:{ref.written}"
    if answer.work > AT_ONCE and not st.session_state.get(requested):
        st.button(
            f"Switch off each of {answer.heads} heads, about {seconds(answer):.0f} s",
            key="use_model:measure",
            help="The model runs once for each head, without it.",
            icon=":material/play_arrow:",
            on_click=st.session_state.update,
            args=({requested: True},),
        )
        return False
    return True
