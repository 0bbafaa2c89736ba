"""The controls of each part of the page."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.models.cards import FORMS, MODELS, WINDOW
from core.pretrained.hf_conversion import SEEDED, TRAINED
from dashboard.views.cache.compute import MOST_PROMPT, STEPS, Decoding
from dashboard.views.cache.decoding import LIMIT, MOST, PROMPT
from dashboard.views.cache.paging import LONGEST, MOST_SEQUENCES
from dashboard.widgets.params import BOUND

FIRST_STEP = 3
WRITERS = {SEEDED: "4 layers of 512, seeded", TRAINED: "2 layers of 64, trained"}
COUNT = 48
LENGTHS = tuple(2**power for power in range(10, 18))  # 1k to 128k tokens
LENGTH, BATCHES = 8192, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
NUMBER_BYTES = {2: "2 (bf16)", 1: "1 (fp8)", 4: "4 (fp32)"}
MOST_FORMS = 6  # curves in one figure
CURVES = tuple(form for form in FORMS if form != "keys_as_values")
BANDWIDTH, SPEED = 3350, 989  # GB/s and bf16 TFLOP/s of an H100
SEQUENCES = "90, 37, 12, 61, 25"
PAGE_SIZES = (8, 16, 32, 64)

key = "cache:{}".format  # a widget's key, which is also its name in the link


def draw_prompt() -> str:
    """Draw the field of the prompt."""
    return (
        st.text_input(
            "Prompt",
            PROMPT,
            key=key("prompt"),
            **BOUND,
            help=f"Each word is one token; the first {MOST_PROMPT} are read. The model knows 250 words, "
            "and continues what occurred before.",
        )
        or ""
    )


def read_prompt() -> str:
    """The prompt that the session holds."""
    return st.session_state.get(key("prompt"), PROMPT) or ""


def read_step(decoding: Decoding) -> tuple[int, tuple[int, int]]:
    """The step and the head, (layer, head), that the session holds."""
    return st.session_state.get(key("step"), FIRST_STEP), st.session_state.get(
        key("head"), decoding.sharpest_head()
    )


def draw_step(decoding: Decoding) -> None:
    """Draw the choice of the step and of the head."""
    left, right = st.columns([3, 1], gap="medium", vertical_alignment="bottom")
    with left:
        st.slider(
            "Step",
            0,
            STEPS,
            FIRST_STEP,
            key=key("step"),
            **BOUND,
            help="Step 0 reads the whole prompt (prefill); each later step reads one new token.",
        )
    with right:
        heads = decoding.heads
        st.selectbox(
            "Head",
            heads,
            heads.index(decoding.sharpest_head()),
            key=key("head"),
            **BOUND,
            format_func=lambda head: f"L{head[0]}·H{head[1]}",
            help="Layer and head, both from 0. First the head with the sharpest weights.",
        )


def draw_writers() -> tuple[str, int]:
    """Draw the model that writes and the number of tokens."""
    left, right = st.columns(2, gap="medium", vertical_alignment="bottom")
    with left:
        name = st.selectbox(
            "Model that writes",
            list(WRITERS),
            format_func=WRITERS.__getitem__,
            key=key("writer"),
            help="A decoder with random weights, whose text means nothing, or the lab's own trained "
            "one, which is smaller.",
            **BOUND,
        )
    with right:
        count = st.slider(
            "Tokens to write",
            8,
            MOST,
            COUNT,
            8,
            key=key("count"),
            **BOUND,
            help=f"How many tokens are written after the prompt. On this machine at most {LIMIT:g} s.",
        )
    return name or SEEDED, count


@dataclass(frozen=True)
class SizeControls:
    """The model whose cache is computed, the bytes of a number, and the curves."""

    model: str
    number_bytes: int
    curves: tuple[str, ...]


def draw_sizes() -> SizeControls:
    """Draw the controls of the cache's size."""
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with grid.cell(column_span=2):
        model = st.selectbox(
            "Model's sizes",
            list(MODELS),
            1,
            format_func=lambda name: MODELS[name].name,
            key=key("model"),
            **BOUND,
            help="A published model: its heads, their size, its layers.",
        )
    with grid.cell(column_span=2):
        number_bytes = st.selectbox(
            "Bytes a number",
            list(NUMBER_BYTES),
            format_func=NUMBER_BYTES.__getitem__,
            key=key("bytes"),
            **BOUND,
            help="How many bytes each stored number takes.",
        )
    with (
        grid.cell(column_span=2),
        st.popover("Curves", icon=":material/show_chart:", width="stretch"),
    ):
        curves = st.multiselect(
            f"Up to {MOST_FORMS} curves",
            list(FORMS),
            list(CURVES),
            key=key("curves"),
            **BOUND,
            max_selections=MOST_FORMS,
            format_func=lambda name: FORMS[name].name,
            help=f"Ways to store keys and values. The window is {WINDOW:,} tokens long.",
        )
    return SizeControls(model or "llama2", number_bytes or 2, tuple(curves))


@dataclass(frozen=True)
class MachineControls:
    """How keys and values are stored, how long the text is, how many sequences, and the machine."""

    form: str
    length: int
    batch: int
    bandwidth: float  # GB/s
    speed: float  # TFLOP/s


def draw_machine(form: str) -> MachineControls:
    """Draw the controls of a decoding step; `form` is the model's own way to store."""
    grid = st.grid(10, min_column_width=120, vertical_alignment="bottom")
    with grid.cell(column_span=2):
        choices = {"own": "as published", **{name: each.name for name, each in FORMS.items()}}
        chosen = st.selectbox(
            "Stored as",
            list(choices),
            format_func=choices.__getitem__,
            key=key("form"),
            **BOUND,
            help="How keys and values are stored: as in the published model, or in another form.",
        )
    with grid.cell(column_span=2):
        length = st.select_slider(
            "Tokens so far",
            LENGTHS,
            LENGTH,
            key=key("length"),
            **BOUND,
            format_func=lambda length: f"{length:,}",
            help="The length of each sequence.",
        )
    with grid.cell(column_span=2):
        batch = st.select_slider(
            "Sequences at once",
            BATCHES,
            8,
            key=key("batch"),
            **BOUND,
            help="The batch: each step writes one token for each of these sequences.",
        )
    with grid.cell(column_span=2):
        bandwidth = st.number_input(
            "Memory, GB/s",
            1,
            100_000,
            BANDWIDTH,
            50,
            key=key("bandwidth"),
            **BOUND,
            help="Bytes that the machine reads from memory in a second; 3,350 for an H100.",
        )
    with grid.cell(column_span=2):
        speed = st.number_input(
            "Speed, TFLOP/s",
            1,
            100_000,
            SPEED,
            10,
            key=key("speed"),
            **BOUND,
            help="Operations a second, in 10¹²; 989 in bf16 for an H100.",
        )
    return MachineControls(
        form if chosen in (None, "own") else chosen,
        length,
        batch,
        bandwidth or BANDWIDTH,
        speed or SPEED,
    )


def draw_paging() -> tuple[str, int]:
    """Draw the lengths and the size of a page."""
    left, right = st.columns([2, 1], gap="medium", vertical_alignment="bottom")
    with left:
        typed = st.text_input(
            "Lengths of the sequences",
            SEQUENCES,
            key=key("lengths"),
            **BOUND,
            help=f"Up to {MOST_SEQUENCES} numbers of tokens, at most {LONGEST}, with commas between.",
        )
    with right:
        size = st.select_slider(
            "Tokens a page",
            PAGE_SIZES,
            16,
            key=key("page"),
            **BOUND,
            help="How many tokens' keys and values one page of memory holds.",
        )
    return typed or "", size
