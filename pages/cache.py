"""Cache and decoding: what a decoder stores of each token, what that saves, and how much memory it takes."""

from collections.abc import Mapping
from functools import partial

import streamlit as st

import dashboard.page as lab
from core.attention import Attention, Choice
from core.models.cards import FORMS, MODELS, WINDOW
from core.pretrained.hf_conversion import SEEDED, TRAINED, load_lab_decoder
from core.studies import cache as study
from core.studies.efficient import machine
from dashboard.draw import cache as draw

MAX_FORMS = 6  # curves in one figure


class Controls(lab.Fields, page="cache"):
    decoding: study.Decoding

    prompt = lab.Text(
        "Prompt",
        study.PROMPT,
        help=f"Each word is one token; the first {study.MAX_PROMPT} are read. The model knows 250 words, "
        "and continues what occurred before.",
    )
    step = lab.Number(
        "Step",
        3,
        0,
        study.STEPS,
        slider=True,
        help="Step 0 reads the whole prompt (prefill); each later step reads one new token.",
    )
    head = lab.Select[tuple[int, int]](
        "Head",
        lambda c: c.decoding.heads,
        lambda c: c.decoding.sharpest_head(),
        text=lambda head: f"L{head[0]}·H{head[1]}",
        help="Layer and head, both from 0. First the head with the sharpest weights.",
    )
    writer = lab.Select(
        "Model that writes",
        {SEEDED: "4 layers of 512, seeded", TRAINED: "2 layers of 64, trained"},
        span=3,
        help="A decoder with random weights, whose text means nothing, or the lab's own trained "
        "one, which is smaller.",
    )
    count = lab.Number(
        "Tokens to write",
        48,
        8,
        study.MAX_TOKENS,
        8,
        slider=True,
        span=3,
        help=f"How many tokens are written after the prompt. On this machine at most {study.LIMIT:g} s.",
    )
    model = lab.Select(
        "Model's sizes",
        {key: f"{model.name}, {model.year}" for key, model in MODELS.items()},
        "llama2",
        span=2,
        help="A published model: its heads, their size, its layers.",
    )
    bytes = lab.Select(
        "Bytes a number",
        {2: "2 (bf16)", 1: "1 (fp8)", 4: "4 (fp32)"},
        span=2,
        help="How many bytes each stored number takes.",
    )
    curves = lab.MultiSelect(
        f"Up to {MAX_FORMS} curves",
        {name: form.name for name, form in FORMS.items()},
        [form for form in FORMS if form != "keys_as_values"],
        max_options=MAX_FORMS,
        help=f"Ways to store keys and values. The window is {WINDOW:,} tokens long.",
    )
    form = lab.Select(
        "Stored as",
        {"own": "as published", **{name: form.name for name, form in FORMS.items()}},
        span=2,
        help="How keys and values are stored: as in the published model, or in another form.",
    )
    length = lab.SelectSlider(
        "Tokens so far",
        study.LENGTHS,
        8192,
        text="{:,}".format,
        span=2,
        help="The length of each sequence.",
    )
    batch = lab.SelectSlider(
        "Sequences at once",
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        8,
        span=2,
        help="The batch: each step writes one token for each of these sequences.",
    )
    # Memory and speed are those of an H100.
    bandwidth = lab.Number(
        "Memory, GB/s",
        3350,
        1,
        100_000,
        50,
        span=2,
        help="Bytes that the machine reads from memory in a second; 3,350 for an H100.",
    )
    speed = lab.Number(
        "Speed, TFLOP/s",
        989,
        1,
        100_000,
        10,
        span=2,
        help="Operations a second, in 10¹²; 989 in bf16 for an H100.",
    )
    lengths = lab.Text(
        "Lengths of the sequences",
        "90, 37, 12, 61, 25",
        span=4,
        help=f"Up to {study.MAX_SEQUENCES} numbers of tokens, at most {study.LONGEST_SEQUENCE}, with commas between.",
    )
    page = lab.SelectSlider(
        "Tokens a page",
        (8, 16, 32, 64),
        16,
        span=2,
        help="How many tokens' keys and values one page of memory holds.",
    )
    measured = lab.SessionValue[tuple[str, int, study.Pair] | None](None)  # on this machine


def page() -> None:
    lab.title(
        "Cache: what a decoder stores",
        "A model keeps some vectors of each token, and computes the rest anew.",
    )
    st.html(draw.STYLE)
    lab.take_built("cache", adopt, axes=("projection",))
    steps()
    race()
    size()
    pages()
    lab.details(
        "The code that just ran", partial(lab.source_panel, Attention.step), "cache:sources"
    )


def adopt(built: lab.Built) -> None:
    """Store keys and values as the projection that was built elsewhere does, where it is one of the forms."""
    name = built["projection"].key if built else ""
    Controls.set(form=name if name in FORMS else "own")


@lab.fragment
@lab.shown_errors()
def steps() -> None:
    left, right = st.columns(2, gap="medium", vertical_alignment="bottom")
    controls = Controls.draw("prompt", into=left)
    decoding = lab.shared(study.decode_steps, controls.prompt)
    controls = controls.draw_more("step", into=right)
    lab.fact(draw.step_fact(decoding, controls.step))
    picture = st.container()
    if decoding.unknown:
        lab.caption(
            f"Not in the vocabulary, read as unknown: {lab.plain(', '.join(decoding.unknown))}.",
        )
    with lab.settings_panel("Head, and what the strips show", "cache:strips"):
        controls = controls.draw_more("head", into=lab.HERE, decoding=decoding)
        lab.caption(draw.strips_note(decoding, controls.step, controls.head))
    with picture:
        st.html(draw.step_table(decoding, controls.step, controls.head, lab.theme()))
    lab.as_python("steps", decoding=decoding, also=[draw.steps_cell(decoding)])
    lab.predict("cache", question(lab.cached(study.changes, study.PROMPT)))


@lab.fragment
def race() -> None:
    lab.paragraph(
        "## The same text with and without the cache\n\nWithout a cache, every step reads the whole text again. "
        "The output is the same, so the difference is time alone."
    )
    controls = Controls.draw(
        "writer", "count", into=st.grid(6, min_column_width=120, vertical_alignment="bottom")
    )
    name, count = controls.writer, controls.count
    saved = lab.cached(study.load_measurement)
    where = f"Saved on {saved.date}, {saved.machine}, processor time, fastest of 3 rounds."
    pair = saved.measured[name]
    if st.button(
        "Measure on this machine",
        icon=":material/timer:",
        key="cache:measure",
        help=f"Writes the tokens both ways, at most {study.LIMIT:g} s.",
    ):
        with st.spinner("Writing both ways"):
            Controls.measured.value = name, count, study.measure(name, count)
    if (measured := Controls.measured.value) and measured[:2] == (name, count):
        where, pair = f"Measured here: {machine()}.", measured[2]
    count = min(count, pair.count)
    lab.as_python("race", saved=saved, also=[draw.race_cell(name, count, saved.measured[name])])
    lab.fact(draw.race_fact(pair, count))
    lab.draw_chart(
        st,
        lab.line_chart(
            "Milliseconds of each step",
            "token",
            draw.seconds_curves(pair, count),
            lab.Ink.of(lab.theme()),
        ),
        key="cache:seconds",
        alt="Milliseconds of each step with and without the cache",
    )
    vocabulary = lab.model(load_lab_decoder, TRAINED)[1].target_vocab  # both have it
    words = " ".join(vocabulary.decode(pair.cached.tokens[: min(count, 24)])) + " …"
    lab.caption(f"{where} {draw.race_note(pair, count)} Written: {lab.plain(words)}")


@lab.fragment
def size() -> None:
    st.markdown("## How large the cache is")
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    controls = Controls.draw("model", "bytes", into=grid)
    with (
        grid.cell(column_span=2),
        st.popover("Curves", icon=":material/show_chart:", width="stretch"),
    ):
        controls = controls.draw_more("curves", into=lab.HERE)
    model, names = MODELS[controls.model], [form.name for form in FORMS.values()]
    sizes = lab.cached(study.cache_sizes, controls.model, controls.bytes)
    if controls.curves:
        curves = {
            FORMS[form].name: [*zip(study.LENGTHS, sizes[form], strict=True)]
            for form in controls.curves
        }
        lab.draw_chart(
            st,
            lab.size_figure(curves, names, study.LENGTHS, lab.theme()),
            key="cache:sizes",
            alt="Bytes of the cache by the length of the text, a line each form",
        )
    lab.fact(draw.size_fact(model, controls.bytes))
    lab.table(
        ("stored as", "a token", "8k tokens", "128k tokens", "of multi-head there", "FLOPs a byte"),
        draw.size_rows(model, controls.bytes),
        caption="Bytes of the cache by form",
        markers=False,
    )
    lab.caption(draw.size_note(model, controls.bytes))
    lab.paragraph(
        "## What bounds a step\n\nA machine reads bytes and computes operations side by side. Decoding reads all "
        "parameters and the cache for a few operations each, so that reading often takes longer."
    )
    controls = controls.draw_more(
        "form",
        "length",
        "batch",
        "bandwidth",
        "speed",
        into=st.grid(10, min_column_width=120, vertical_alignment="bottom"),
    )
    published = controls.form == "own"  # the model's, which was not built here
    form = model.attention.projection.key if published else controls.form
    lab.watch_built("cache", {} if published else {"projection": Choice(FORMS[form].projection)})
    bound = lab.cached(
        study.step_bound,
        controls.model,
        form,
        controls.length,
        controls.batch,
        controls.bytes,
        1e9 * controls.bandwidth,
        1e12 * controls.speed,
    )
    code = {"cache:sizes": draw.sizes_code(controls.curves)} if controls.curves else {}
    lab.as_python("size", code, sizes=sizes, bound=bound)
    lab.fact(
        draw.bound_fact(
            bound, controls.length, controls.batch, 1e3 * controls.speed / controls.bandwidth
        )
    )
    lab.caption(draw.bound_note(bound, model))


@lab.fragment
@lab.shown_errors()
def pages() -> None:
    lab.paragraph(
        "## Pages\n\nA server does not know how long each text becomes. It takes memory in pages of a few "
        "tokens, as they are needed."
    )
    controls = Controls.draw(
        "lengths", "page", into=st.grid(6, min_column_width=120, vertical_alignment="bottom")
    )
    paging = lab.cached(study.paging, study.parse_lengths(controls.lengths), controls.page)
    lab.as_python("pages", pages=paging, also=[draw.pages_cell(paging)])
    st.html(draw.pages_view(paging, lab.theme()))
    lab.fact(draw.pages_fact(paging))
    lab.caption(
        f"Each square has room for {controls.page} tokens, a narrow one for fewer; its filled part holds keys and values. "
        "Left, in the order of the sequences, with room for the longest; right, in the order of memory: a sequence takes "
        "a new page only when its last one is full, and a table tells which pages are its own. Bytes as in Llama 2 7B.",
    )


def question(changes: Mapping[str, float]) -> lab.Question:
    """Which vectors of earlier tokens the next one does not need; `changes` is what zeros in their place change."""
    tried = (
        f"With zeros in place of all earlier q, the new token's output changes by {lab.number(changes['q'])} of its "
        f"size; in place of k by {lab.number(changes['k'])}, in place of v by {lab.number(changes['v'])}."
    )
    why = "A query is read by its own token alone, so a decoder need not store it."
    return lab.Question(
        "Zeros replace the q, the k or the v of all earlier tokens. Which replacement leaves the output "
        "of the next token as it is?",
        tuple(study.NAMES),
        min(range(3), key=lambda at: changes[study.NAMES[at]]),
        (
            f"{tried} {why}",
            f"{tried} The weights come from q and k: other keys, other weights.",
            f"{tried} The output is a weighted sum of v.",
        ),
    )
