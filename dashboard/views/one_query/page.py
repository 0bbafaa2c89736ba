"""The page: one query's picture in six steps, a question, things to try, and what each step means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from core.attention import AXES, AttentionConfig, Choice, ConfigError, Entry, check_sizes, entry, reference
from core.attention.kernels import exact
from core.entries import complete
from core.seeding import seeded_layer
from core.sentence import labels, tokenize
from dashboard.charts.palette import Ink
from dashboard.components.step_view import Reading, payload, projection_payload, read, step_view
from dashboard.runtime.cache import cached
from dashboard.runtime.link_start import write_start
from dashboard.runtime.link_values import fragment
from dashboard.runtime.mechanism_codec import choice_from_text, choice_text
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets
from dashboard.views.one_query import charts, compute, control_row, equations, facts, guide, session, text
from dashboard.views.one_query.controls import Controls, nearest_fit, read_controls
from dashboard.views.one_query.script import script
from dashboard.views.one_query.session import (
    SEED,
    default_choice,
    get,
    key,
    open_link,
    put,
    read_choice,
    uses_matrices,
    write_choice,
)
from dashboard.widgets.guide import answered, in_picture, predict, try_this
from dashboard.widgets.mechanism_editor import repairs
from dashboard.widgets.panels import (
    details,
    entries_panel,
    fact,
    next_page,
    paragraph,
    plain,
    source_panel,
    theme,
    title,
)
from dashboard.widgets.params import D_MODELS
from dashboard.widgets.presentation import draw_chart

BOUND_NAMES = ("source", "tokens", "d_model", "heads", "seed", "real", "query", "head", "half", "stage", "matrices",
               "predict", "root:predict", "start")
FOCUS = "focus"  # the key that was pressed, which is written here
MAX_QUOTE = 40  # signs of a link's value that a message repeats

WEIGHTS = 5  # the stage whose picture tells the answer of the question
STRUT = r"\rule[-1em]{0pt}{2.35em}"
WIDE = "\u2003"  # a space that Markdown keeps
STAGE_ORDER = ("projection", "position", "score", "mask", "normalizer")


def page() -> None:
    """Draw the page from top to bottom."""
    open_link()
    put("link_errors", read_link())  # before the first widget takes its value out of the link
    title("One query, step by step", "You will understand how one word's query, key and value lead to its output.")
    explore()
    root_of_d()
    next_page("one_query")


@fragment
def explore() -> None:
    """Draw controls, picture, question and meaning, which rerun without the rest of the page."""
    if uses_matrices():
        put("ready", False)  # their editors must be read before the picture is drawn
    controls, reading = render_before_widgets(key("ready"), read_controls, draw_controls,
                                              in_picture("one", picture))
    if reading is not None and controls.exact_config is not None:
        if (controls.stage < WEIGHTS or answered("one")) and (question := guide.question(reading)):
            predict("one", question)
        try_this("one", guide.moves(reading))
        st.markdown("## What it means")
        st.markdown(guide.MEANING[controls.stage])
        equation(reading, controls, controls.exact_config)
        details("Equation, paper and code of each step", partial(sources, controls.exact_config), key("sources"))
    write_link({axis: read_choice(axis) for axis in AXES})


def draw_controls() -> Controls:
    """Draw the row of controls, then query, head and stage, or the error of a refused choice."""
    show_link_errors(get("link_errors", []))
    put("link_errors", [])
    control_row.draw_row()
    controls = read_controls()
    if controls.config is None or controls.source is None:
        show_error(controls)
    else:
        control_row.draw_selection(controls.source.queries, controls.config)
        control_row.draw_stage(controls.stage)
    return read_controls()


def show_link_errors(errors: Sequence[str]) -> None:
    """Show the errors of the link until a control is changed."""
    sentences, before = get("refused", ((), None))
    controls = read_controls()
    if errors:
        sentences, before = tuple(errors), None
    elif sentences and before not in (None, controls):
        sentences = ()
    put("refused", (sentences, None if errors else controls))
    for sentence in sentences:
        st.warning(sentence)


def show_error(controls: Controls) -> None:
    """Draw the error, and a button for each choice that fits."""
    if controls.source is None:
        st.warning(controls.error)
        return
    st.error(plain(controls.error))
    fields = {**controls.fields, "dropout": 0.0}
    for axis, choice in nearest_fit(fields, controls.error) or repairs(fields, controls.error):
        st.button(f"Use {axis} = {choice_text(choice, axis)}", on_click=write_choice, args=(axis, choice),
                  key=key(f"repair:{axis}"))


def picture(controls: Controls) -> Reading | None:
    """Draw the six steps with sentence and conditions, or the error; returns the numbers."""
    config, source, stage = controls.exact_config, controls.source, controls.stage
    if config is None or controls.config is None or source is None:
        return None
    try:
        steps = compute.run(config, source, controls.seed, controls.real)
    except (ConfigError, ValueError) as error:
        st.error(plain(str(error)))
        return None
    reading = read(steps, source.queries, source.keys, controls.query, controls.head, half=controls.half,
                   adjusts=config.has("position", "adjusts"))
    add_script(partial(script, controls, config, reading))
    put("names", source.queries)
    put("shown_query", source.queries[controls.query])
    typed, reasons = source.matrices is not None, text.reasons(reading, controls.real)
    weightless = typed and not any(True for _ in seeded_layer(config, controls.seed).parameters())
    made = compute.projected(config, source, controls.seed, controls.head, steps) if stage == 1 else None
    put("made", made)
    notes = (facts.projection_note(reading) if made else "", facts.kernel_note(controls.config),
             *facts.window(reading), *controls.notes)
    data = payload(reading, text.stage_words(config, reading, controls.real, typed), stage,
                   focus_of(reading, controls), reasons, facts.fact(reading, config, stage, reasons, controls.head),
                   facts.caption(controls.seed, weightless, notes),
                   None if made is None else projection_payload(reading, made.x, made.w))
    step_view(data, reading, key=key("view"), on_pick=control_row.apply_pick)
    return reading


def equation(reading: Reading, controls: Controls, config: AttentionConfig) -> None:
    """Draw the equation of the step with its numbers, in parts between which a narrow page breaks."""
    parts = equations.equation(reading, config, controls.stage, focus_of(reading, controls), Ink.of(theme()).pick)
    if (made := get("made")) is not None:
        parts += equations.product(reading, made.x[reading.query], made.w[0][:, 0])
    # A part in braces never breaks, and the strut keeps the lines of a narrow page apart.
    symbols, *live = (rf"$\displaystyle {{{STRUT} {part}}}$" for part in parts)
    st.markdown(f"{symbols} {WIDE} {' '.join(live)}", text_alignment="center")


def focus_of(reading: Reading, controls: Controls) -> int:
    """The key in the equation: the one pressed for this row, else the one with most weight."""
    if controls.focus is None or controls.focus[0] != reading.name or controls.focus[1] >= len(reading.keys):
        return reading.best
    return controls.focus[1]


def sources(config: AttentionConfig) -> None:
    """Draw where each step's equation is from and the function that just ran."""
    st.markdown("The formula as a textbook writes it. Every choice on this page is tested against it:")
    source_panel(reference.attention)
    entries_panel(entries_of(config))
    st.markdown("The code that just ran. It has the same steps for every choice:")
    source_panel(exact)


def entries_of(config: AttentionConfig) -> list[Entry]:
    """The entry of every choice in use, in the order of the stages; a composed mask by its parts."""
    return [entry(axis, leaf.key) for axis in STAGE_ORDER for leaf in getattr(config, axis).leaves()]


def root_of_d() -> None:
    """Draw the largest weight with and without √D, and why a large one is bad."""
    st.markdown("## What √D does")
    points = cached(compute.measure_scaling, SEED)
    if not predict("one:root", guide.root_question(points)):
        st.caption("The measurement is shown once you have picked an answer.")
        return
    draw_chart(st, charts.largest(points, Ink.of(theme())), theme=None, key=key("largest"),
               alt="The largest weight with and without √D at three sizes D")
    fact(facts.largest_fact(points))
    paragraph("Where one key has all the weight, a small change of a score changes no weight: the gradients of queries "
              "and keys are near 0, so training hardly changes them.")
    st.caption(f"Measured on {compute.QUERIES} random queries and {compute.KEYS} random keys (standard normal numbers, "
               f"seed {SEED}).")
    details("The same, measured for D from 1 to 512", partial(curves, points), key("curves"))


def curves(points: tuple[compute.Scaling, ...]) -> None:
    """Draw variance and entropy over D."""
    figures = charts.figures(points, Ink.of(theme()))
    for column, figure, alt in zip(st.columns(2, gap="medium"), figures, ("Variance", "Entropy"), strict=True):
        draw_chart(column, figure, theme=None, key=key(alt), alt=f"{alt} with and without √D as D grows")
    fact(facts.scaling_fact(points))


# The page's link: widgets of fixed name bind themselves; the six choices are written here, each as a few words.


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
