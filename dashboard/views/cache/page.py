"""The page: a step of decoding, the same text with and without a cache, and the cache's size at real sizes."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.attention import Attention
from core.cards import cache_sizes as sizes
from core.pretrained.lab_decoder import TRAINED, load_lab_decoder
from dashboard.charts.lines import Curve, line_chart
from dashboard.charts.palette import Ink
from dashboard.runtime import cache
from dashboard.runtime.cache import cached, shared
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.racing import machine
from dashboard.runtime.threads import one_thread
from dashboard.views.cache import charts, compute, decoding, guide, measurement, paging, script, text
from dashboard.views.cache.controls import (
    LENGTHS,
    draw_machine,
    draw_paging,
    draw_prompt,
    draw_sizes,
    draw_step,
    draw_writers,
    key,
    read_prompt,
    read_step,
)
from dashboard.widgets.guide import predict
from dashboard.widgets.panels import caption, details, fact, next_page, paragraph, plain, source_panel, theme, title
from dashboard.widgets.presentation import draw_chart
from dashboard.widgets.table import table

MEASURED = key("measured")  # the model and count that were measured here, and the result


def page() -> None:
    """Draw the page from top to bottom."""
    title("Cache and decoding", "You will see what a decoder computes for each new token, what it stores of the "
                                "earlier ones, and how large that grows.")
    st.html(charts.STYLE)
    steps()
    race()
    size()
    pages()
    details("The code that just ran", partial(source_panel, Attention.step), key("sources"))
    next_page("cache")


@fragment
def steps() -> None:
    """Draw the question and the controls, then one step of decoding."""
    step_controls()
    step_picture()


def step_controls() -> None:
    """Draw the prompt, the question, and the choice of a step and a head."""
    typed = draw_prompt()
    try:
        with one_thread():
            result = shared(compute.decode_steps, typed)
            changes = cached(usual_changes)
    except ValueError as error:
        st.warning(plain(str(error)))
        return
    predict("cache", guide.question(changes))
    draw_step(result)


def step_picture() -> None:
    """Draw the step that the session holds; nothing of a prompt that was refused."""
    typed = read_prompt()
    try:
        with one_thread():
            result = shared(compute.decode_steps, typed)
    except ValueError:
        return
    step, head = read_step(result)
    add_script(partial(script.steps, typed, result, step, head), "steps")
    st.html(charts.step_table(result, step, head, theme()))
    fact(text.step_fact(result, step))
    caption(text.step_note(result, step, head))


def usual_changes() -> dict[str, float]:
    """What zeros in place of earlier vectors change, on the prompt that the page starts with."""
    return compute.changes(shared(compute.decode_steps, decoding.PROMPT))


@fragment
def race() -> None:
    """Draw the same text with and without the cache: saved, or measured here on request."""
    paragraph("## The same text with and without the cache\n\nWithout a cache, every step reads the whole text again. "
              "The output is the same, so the difference is time alone.")
    name, count = draw_writers()
    saved = cached(measurement.load)
    where, pair = f"Saved on {saved.date}, {saved.machine}, processor time, fastest of 3 rounds.", saved.pairs[name]
    pressed = st.button("Measure on this machine", icon=":material/timer:", key=key("measure"),
                        help=f"Writes the tokens both ways, at most {decoding.LIMIT:g} s.")
    if pressed:
        with st.spinner("Writing both ways"):
            st.session_state[MEASURED] = (name, count), decoding.measure(name, count)
    if st.session_state.get(MEASURED, (None,))[0] == (name, count):
        with one_thread():
            where, pair = f"Measured here: {machine()}.", st.session_state[MEASURED][1]
    count = min(count, pair.count)
    add_script(partial(script.race, name, count, saved.pairs[name]), "race")
    fact(text.race_fact(pair, count, name))
    curves = [Curve(label, [(at + 1, 1000 * seconds) for at, seconds in enumerate(each.seconds[:count])])
              for label, each in (("without", pair.whole), ("with cache", pair.cached))]
    draw_chart(st, line_chart("Milliseconds of each step", "token", curves, Ink.of(theme())), key=key("seconds"),
               alt="Milliseconds of each step with and without the cache")
    vocabulary = cache.model(load_lab_decoder, TRAINED)[1].target_vocab  # both have it
    caption(text.race_note(pair, count, where, " ".join(vocabulary.decode(pair.cached.tokens[:min(count, 24)])) + " …"))


@fragment
def size() -> None:
    """Draw the size of the cache, and below it what bounds a step."""
    st.markdown("## How large the cache is")
    controls = draw_sizes()
    model = sizes.MODELS[controls.model]
    if controls.curves:
        draw_chart(st, charts.size_chart(model, controls.curves, LENGTHS, controls.number_bytes, theme()),
                   key=key("sizes"), alt="Bytes of the cache by the length of the text, a line each form")
    fact(text.size_fact(model, controls.number_bytes))
    table(text.HEAD, text.size_rows(model, controls.number_bytes), caption="Bytes of the cache by form", markers=False)
    caption(text.size_note(model, controls.number_bytes))
    paragraph("## What bounds a step\n\nA machine reads bytes and computes operations side by side. Decoding reads all "
              "parameters and the cache for a few operations each, so that reading often takes longer.")
    chosen = draw_machine(model.form)
    add_script(partial(script.size, controls, chosen), "size")
    step = sizes.decoding_step(model, sizes.FORMS[chosen.form], chosen.length, chosen.batch, controls.number_bytes,
                               1e9 * chosen.bandwidth, 1e12 * chosen.speed)
    fact(text.bound_fact(model, step, chosen.length, chosen.batch, 1e3 * chosen.speed / chosen.bandwidth))
    caption(text.bound_note(model, step))


@fragment
def pages() -> None:
    """Draw several sequences in pages, against room for the longest."""
    paragraph("## Pages\n\nA server does not know how long each text becomes. It takes memory in pages of a few "
              "tokens, as they are needed.")
    typed, page_size = draw_paging()
    try:
        lengths = paging.parse_lengths(typed)
    except ValueError as error:
        st.warning(plain(str(error)))
        return
    result = paging.paging(lengths, page_size)
    add_script(partial(script.pages, result), "pages")
    st.html(charts.paging_drawing(result, theme()))
    model = sizes.MODELS["llama2"]
    token_bytes = sizes.cache_bytes(model, sizes.FORMS["multi_head"], 1, 2)
    fact(text.paging_fact(result, token_bytes))
    caption(text.lengths_note(lengths, page_size) + " Bytes as in Llama 2 7B.")
