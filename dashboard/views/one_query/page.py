"""The page: one query's picture in six steps, a question, things to try, and what each step means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from core.attention import (
    AXES,
    AttentionConfig,
    Choice,
    ConfigError,
    Entry,
    check_sizes,
    entry,
    reference,
)
from core.attention.kernels.exact import exact
from core.entries import complete
from core.seeding import seeded_layer
from core.tokens import SENTENCE, labels, tokenize
from dashboard.draw.formats import number
from dashboard.draw.palette import Ink
from dashboard.draw.step_view import Reading, payload, projection_payload, read, step_view
from dashboard.draw.vega import Spec, config, layer, series_encoding, titled_figure
from dashboard.runtime.link_start import write_start
from dashboard.runtime.link_values import fragment
from dashboard.runtime.mechanism_codec import choice_from_text, choice_text
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets
from dashboard.server.cache import cached
from dashboard.ui.presentation import draw_chart
from dashboard.views.one_query import compute, control_row, equations, facts, session, text
from dashboard.views.one_query.compute import DIMS, KEYS, Scaling
from dashboard.views.one_query.controls import Controls, nearest_fit, read_controls
from dashboard.views.one_query.script import script
from dashboard.views.one_query.session import (
    SEED,
    default_choice,
    get,
    key,
    last_word,
    open_link,
    put,
    read_choice,
    uses_matrices,
    write_choice,
)
from dashboard.widgets.guide import Move, Question, answered, in_picture, predict, try_this
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

SMALL, LARGE = 4, 64  # head sizes of the question on √D
MUCH = 0.8  # an entropy below this share of the other's is much lower
TEMPERATURE = key("normalizer:softmax:temperature")
MEANING = {
    1: "Each word starts as a vector x, a row of numbers. Three matrices, which training learns, turn it "
    "into a query (what the word looks for), a key (what it is found by) and a value (what it passes on).",
    2: "The score of a query and a key says how well they fit. A dot product multiplies them number by number and adds "
    "the products.",
    3: "A score adds D products, where D is the count of numbers in a query. Dividing by √D keeps the scores at the "
    "same size for every D. Some models also add a bias here, such as a penalty for distance.",
    4: "The mask sets the score to −∞ for every key that the query may not attend to, so its weight becomes 0.",
    5: "The normalizer turns the scores of the allowed keys into weights. The softmax makes them positive, with sum 1.",
    6: "The output is the sum of the values, each multiplied by its weight. It is the new vector of the word.",
}

SHOWN = (4, 64, 512)  # sizes of the bars
NAMES = ["without √D", "divided by √D"]
X: Spec = {
    "field": "D",
    "type": "quantitative",
    "scale": {"type": "log", "base": 2, "domain": [1, 512]},
    "axis": {"values": list(DIMS), "grid": False, "title": "head size D"},
}

BOUND_NAMES = (
    "source",
    "tokens",
    "d_model",
    "heads",
    "seed",
    "real",
    "query",
    "head",
    "half",
    "stage",
    "matrices",
    "predict",
    "root:predict",
    "start",
)
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
    title(
        "One query, step by step",
        "You will understand how one word's query, key and value lead to its output.",
    )
    explore()
    root_of_d()
    next_page("one_query")


@fragment
def explore() -> None:
    """Draw controls, picture, question and meaning, which rerun without the rest of the page."""
    if uses_matrices():
        put("ready", False)  # their editors must be read before the picture is drawn
    controls, reading = render_before_widgets(
        key("ready"), read_controls, draw_controls, in_picture("one", picture)
    )
    if reading is not None and controls.exact_config is not None:
        if (controls.stage < WEIGHTS or answered("one")) and (question := weight_question(reading)):
            predict("one", question)
        try_this("one", moves(reading))
        st.markdown("## What it means")
        st.markdown(MEANING[controls.stage])
        equation(reading, controls, controls.exact_config)
        details(
            "Equation, paper and code of each step",
            partial(sources, controls.exact_config),
            key("sources"),
        )
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
        st.button(
            f"Use {axis} = {choice_text(choice, axis)}",
            on_click=write_choice,
            args=(axis, choice),
            key=key(f"repair:{axis}"),
        )


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
    reading = read(
        steps,
        source.queries,
        source.keys,
        controls.query,
        controls.head,
        half=controls.half,
        adjusts=config.has("position", "adjusts"),
    )
    add_script(partial(script, controls, config, reading))
    put("names", source.queries)
    put("shown_query", source.queries[controls.query])
    typed, reasons = source.matrices is not None, text.reasons(reading, controls.real)
    weightless = typed and not any(True for _ in seeded_layer(config, controls.seed).parameters())
    made = (
        compute.projected(config, source, controls.seed, controls.head, steps)
        if stage == 1
        else None
    )
    put("made", made)
    notes = (
        facts.projection_note(reading) if made else "",
        facts.kernel_note(controls.config),
        *facts.window(reading),
        *controls.notes,
    )
    data = payload(
        reading,
        text.stage_words(config, reading, controls.real, typed),
        stage,
        focus_of(reading, controls),
        reasons,
        facts.fact(reading, config, stage, reasons, controls.head),
        facts.caption(controls.seed, weightless, notes),
        None if made is None else projection_payload(reading, made.x, made.w),
    )
    step_view(data, reading, key=key("view"), on_pick=control_row.apply_pick)
    return reading


def equation(reading: Reading, controls: Controls, config: AttentionConfig) -> None:
    """Draw the equation of the step with its numbers, in parts between which a narrow page breaks."""
    parts = equations.equation(
        reading, config, controls.stage, focus_of(reading, controls), Ink.of(theme()).pick
    )
    if (made := get("made")) is not None:
        parts += equations.product(reading, made.x[reading.query], made.w[0][:, 0])
    # A part in braces never breaks, and the strut keeps the lines of a narrow page apart.
    symbols, *live = (rf"$\displaystyle {{{STRUT} {part}}}$" for part in parts)
    st.markdown(f"{symbols} {WIDE} {' '.join(live)}", text_alignment="center")


def focus_of(reading: Reading, controls: Controls) -> int:
    """The key in the equation: the one pressed for this row, else the one with most weight."""
    if (
        controls.focus is None
        or controls.focus[0] != reading.name
        or controls.focus[1] >= len(reading.keys)
    ):
        return reading.best
    return controls.focus[1]


def sources(config: AttentionConfig) -> None:
    """Draw where each step's equation is from and the function that just ran."""
    st.markdown(
        "The formula as a textbook writes it. Every choice on this page is tested against it:"
    )
    source_panel(reference.attention)
    entries_panel(entries_of(config))
    st.markdown("The code that just ran. It has the same steps for every choice:")
    source_panel(exact)


def entries_of(config: AttentionConfig) -> list[Entry]:
    """The entry of every choice in use, in the order of the stages; a composed mask by its parts."""
    return [
        entry(axis, leaf.key) for axis in STAGE_ORDER for leaf in getattr(config, axis).leaves()
    ]


def root_of_d() -> None:
    """Draw the largest weight with and without √D, and why a large one is bad."""
    st.markdown("## What √D does")
    points = cached(compute.measure_scaling, SEED)
    if not predict("one:root", root_question(points)):
        st.caption("The measurement is shown once you have picked an answer.")
        return
    draw_chart(
        st,
        largest(points, Ink.of(theme())),
        theme=None,
        key=key("largest"),
        alt="The largest weight with and without √D at three sizes D",
    )
    fact(facts.largest_fact(points))
    paragraph(
        "Where one key has all the weight, a small change of a score changes no weight: the gradients of queries "
        "and keys are near 0, so training hardly changes them."
    )
    st.caption(
        f"Measured on {compute.QUERIES} random queries and {compute.KEYS} random keys (standard normal numbers, "
        f"seed {SEED})."
    )
    details("The same, measured for D from 1 to 512", partial(curves, points), key("curves"))


def curves(points: tuple[compute.Scaling, ...]) -> None:
    """Draw variance and entropy over D."""
    figures = scaling_figures(points, Ink.of(theme()))
    for column, figure, alt in zip(
        st.columns(2, gap="medium"), figures, ("Variance", "Entropy"), strict=True
    ):
        draw_chart(
            column, figure, theme=None, key=key(alt), alt=f"{alt} with and without √D as D grows"
        )
    fact(facts.scaling_fact(points))


# The page's link: widgets of fixed name bind themselves; the six choices are written here, each as a few words.


def read_link() -> list[str]:
    """Set the widgets to the link's choices; returns a sentence for each value that is refused.

    Only what differs from what this page wrote itself is read. A choice that was in the link and is not any more was
    taken back by the browser's Back button, unless the reader comes from another page, which empties the link.
    """
    params = {
        name.removeprefix("one:"): value
        for name, value in st.query_params.items()
        if name.startswith("one:")
    }
    written, same_page = (
        get("written", {}),
        get("preset") is not None,
    )  # a widget's value goes with its page
    errors = []
    for axis in AXES:
        if axis in params and params[axis] != written.get(axis):
            errors += _read_axis(axis, params[axis])
        elif axis in written and axis not in params and same_page:
            write_choice(axis, _default(axis))
    put("written", {axis: params[axis] for axis in AXES if axis in params})
    if FOCUS in params and get("focus") is None:
        name, _, index = params[FOCUS].rpartition(":")
        put(
            "focus",
            (name, int(index)) if index.isascii() and index.isdigit() and len(index) < 4 else None,
        )
    fresh = {name: value for name, value in params.items() if key(name) not in st.session_state}
    return errors + _errors(fresh)


def write_link(current: dict[str, Choice]) -> None:
    """Write the choices, the pressed key and the link's start to the link where they changed."""
    axes = {
        axis: choice_text(choice, axis)
        for axis, choice in current.items()
        if choice != _default(axis)
    }
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
    named = {
        item.name: item.key for item in AXES[axis]
    }  # links of the first version held the names
    try:
        write_choice(axis, choice_from_text(named.get(text, text), axis))
    except ConfigError as error:
        default = entry(axis, default_choice(axis, axis)).name
        return [
            f"{_claim(axis, text)}, which cannot be read. {plain(str(error))} {default} is shown."
        ]
    return []


def _claim(name: str, value: str) -> str:
    return f"The link says {name} = {plain(value[:MAX_QUOTE])}"


def _errors(params: dict[str, str]) -> list[str]:
    """Errors in the values that bound widgets would drop without a message."""
    errors = _size_errors(params)
    for name, allowed in (("source", session.SOURCES), ("stage", session.STAGES)):
        if name in params and params[name] not in allowed.values():
            errors.append(
                f"{_claim(name, params[name])}; expected one of {' · '.join(allowed.values())}."
            )
    for name, (low, high) in session.NUMBERS.items():
        if name in params and not _within(params[name], low, high):
            errors.append(
                f"{_claim(name, params[name])}; expected a number from {low:g} to {high:g}."
            )
    for name in sorted(params.keys() - {*BOUND_NAMES, FOCUS, *AXES}):
        if "matrices" not in name:
            errors.append(
                f"{_claim(plain(name[:MAX_QUOTE]), params[name])}; this page has no such setting."
            )
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
        return [
            f"The link says d_model = {d_model}; this page takes one of {options}. "
            f"{session.start().d_model} is shown."
        ]
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
    if (
        "head" in params
        and heads.isdigit()
        and params["head"] not in map(str, range(int(heads[:4])))
    ):
        errors.append(
            f"{_claim('head', params['head'])}; with {heads} heads they run from 0 to {int(heads) - 1}."
        )
    return errors


def _within(text: str, low: float, high: float) -> bool:
    try:
        return low <= float(text) <= high
    except ValueError:
        return False


# The two figures of what √D does.


def scaling_figures(points: tuple[Scaling, ...], ink: Ink) -> tuple[Spec, Spec]:
    """Variance (both axes logarithmic) and entropy over D."""
    variance = [(p.dims, p.variance, p.scaled_variance) for p in points]
    entropy = [(p.dims, p.entropy, p.scaled_entropy) for p in points]
    even = math.log(KEYS)
    y = {"field": "value", "type": "quantitative"}
    label = {"value": even, "D": DIMS[-1], "text": f"uniform weights, ln {KEYS} = {number(even)}"}
    bound = [
        layer("rule", [{"value": even}], {"y": y}, strokeDash=[2, 3], color=ink.quiet),
        layer(
            "text",
            [label],
            {"y": y, "x": {"field": "D", "type": "quantitative"}, "text": {"field": "text"}},
            align="right",
            dx=-6,
            dy=-8,
            fontSize=12,
            color=ink.quiet,
        ),
    ]
    return (
        _figure("Variance of the scores", variance, ink, {"type": "log"}, []),
        _figure("Entropy of the weights, nats", entropy, ink, {"domain": [0, 5]}, bound),
    )


def largest(points: tuple[Scaling, ...], ink: Ink) -> Spec:
    """Two bars at each of three sizes: the largest weight of a query without √D and divided by it."""
    rows = [
        {"D": f"D = {p.dims}", "value": value, "text": number(value), "series": name}
        for p in points
        if p.dims in SHOWN
        for name, value in zip(NAMES, (p.largest, p.scaled_largest), strict=True)
    ]
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": {"domain": [0, 1]},
        "axis": {"title": None, "tickCount": 3},
    }
    x = {"field": "D", "type": "nominal", "sort": None, "axis": {"title": None, "labelAngle": 0}}
    encoding = {
        "x": x,
        "y": y,
        "xOffset": {"field": "series", "sort": NAMES},
        "color": series_encoding("series", NAMES, [ink.series[1], ink.series[0]]),
    }
    text = {"text": {"field": "text"}}
    colour = {"color": encoding["color"]}
    names = [
        layer(
            "text",
            rows[at : at + 1],
            {"text": {"field": "series"}, "x": {"value": 4}, "y": {"value": 8 + 18 * at}, **colour},
            align="left",
            fontSize=13,
        )
        for at in range(len(NAMES))
    ]  # over the small bars, where no bar is under them
    layers = [
        layer("bar", rows, encoding),
        layer("text", rows, {**encoding, **text}, dy=-7, fontSize=13),
        *names,
    ]
    return titled_figure("Largest weight of a query, mean", layers, 190, ink) | {
        "config": config(ink)
    }


def _figure(title: str, rows: list[tuple], ink: Ink, scale: Spec, bound: list[Spec]) -> Spec:
    """Two curves with names at their ends, and the bound over them; rows are (D, without √D, divided by √D)."""
    values = [
        {"D": dims, "value": value, "text": number(value), "series": name}
        for dims, *both in rows
        for name, value in zip(NAMES, both, strict=True)
    ]
    below = 14 if bound else -10  # the name goes under its line where the bound is over it
    ends = [value for value in values if value["D"] == DIMS[-1]]
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": scale,
        "axis": {"title": None, "tickCount": 4},
    }
    encoding = {
        "x": X,
        "y": y,
        "color": series_encoding("series", NAMES, [ink.series[1], ink.series[0]]),
    }
    dash = series_encoding("series", NAMES, [[5, 3], [1, 0]])
    tooltip = [{"field": "series"}, {"field": "D"}, {"field": "text", "title": "value"}]
    layers = [
        layer("line", values, {**encoding, "strokeDash": dash}, strokeWidth=2),
        layer("point", values, {**encoding, "tooltip": tooltip}, opacity=0, size=200),
        layer("point", ends, encoding, filled=True, size=45, opacity=1),
        layer(
            "text",
            ends,
            {**encoding, "text": {"field": "series"}},
            align="right",
            dx=-6,
            fontSize=12,
            dy={"expr": f"datum.series == '{NAMES[1]}' ? {below} : -10"},
        ),
    ]
    return titled_figure(title, layers + bound, 190, ink) | {
        "config": config(ink, titleAnchor="middle")
    }


# The questions and the things to try on this page; each answer is computed from what the page shows.


def weight_question(reading: Reading) -> Question | None:
    """Which key gets most weight: the query's own or another; None where there is no choice."""
    if reading.queries != reading.keys or reading.sees < 2:
        return None
    i, best = reading.query, reading.best
    name, other = plain(reading.name), plain(reading.keys[best])
    own = number(reading.weights[i, i])
    if best == i:
        result = f"{name} gives itself {own}, more than any other word"
    else:
        result = f"{name} gives {own} to itself and {number(reading.weights[i, best])} to {other}"
    why = "A word's query and key come from different matrices, so its own key need not fit its query best."
    reason = f"{result} (step 5). {why}"
    return Question(
        f"Each word has a query and a key. Which word gets the largest weight from {name}?",
        ("the word itself", "another word"),
        0 if best == i else 1,
        (reason, reason),
    )


def root_question(points: Sequence[Scaling]) -> Question:
    """What happens to the weights at a larger head size when scores are not divided by √D."""
    small, large = (
        next(point for point in points if point.dims == dims) for dims in (SMALL, LARGE)
    )
    ratio = large.entropy / small.entropy
    answer = 0 if ratio < MUCH else 2 if ratio > 1 / MUCH else 1
    reason = (
        f"The largest weight goes from {number(small.largest)} at D = {SMALL} to {number(large.largest)} at "
        f"D = {LARGE}. A score adds D products, so its variance grows with D: {number(small.variance)} and "
        f"{number(large.variance)}. At D = {LARGE}, divided by √{LARGE}, it is {number(large.scaled_variance)}."
    )
    return Question(
        f"Scores are not divided by √D, and the size D of queries and keys grows from {SMALL} to {LARGE}. What "
        "happens to the weights?",
        ("a few keys get almost all weight", "they stay about the same", "they become more equal"),
        answer,
        (reason,) * 3,
    )


def moves(reading: Reading) -> tuple[Move, ...]:
    """What to try: the weights, the causal mask, the score without √D, and a layer of six words and four heads.

    Each sets all that its notice relies on, whatever was tried before.
    """
    first, name = reading.queries[0], plain(reading.name)
    hide = Move(
        "Hide later words",
        _axes(mask="causal") | {key("query"): first, key("stage"): 4},
        f"Under the causal mask {plain(first)}, the first word, may attend only to itself: the score of every "
        "later word is −∞.",
    )
    return (
        Move(
            "See the weights",
            {key("stage"): 5},
            f"The scores of {name} became weights. Press Next to see the values multiplied by them.",
        ),
        *([hide] if reading.queries == reading.keys else []),
        Move(
            "Do not divide by √D",
            _axes(score="dot") | {key("query"): reading.name, key("stage"): 5},
            _without_root(reading),
        ),
        Move(
            "Six words, four heads",
            _layer(SENTENCE, 16, 4, stage=5),
            "Each head has its own queries and keys. Pick another head: the same word attends to other words.",
        ),
    )


def _without_root(reading: Reading) -> str:
    """The largest weight of the picked word without and with the division by √D."""
    row = reading.raw[reading.query].astype(float)
    best, dims = int(row.argmax()), reading.q.shape[1]
    whole, divided = (
        number(float(weights[best])) for weights in (_softmax(row), _softmax(row / dims**0.5))
    )
    return (
        f"{plain(reading.name)} gives {whole} to {plain(reading.keys[best])}; divided by √{dims} it would give "
        f"{divided}. Larger scores make the largest weight larger. “What √D does” below shows it for larger D."
    )


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def _axes(**axes: str) -> dict[str, object]:
    """Every axis's choice; axes that are not named get their first choice."""
    return {key(axis): axes.get(axis, getattr(AttentionConfig(), axis).key) for axis in AXES} | {
        TEMPERATURE: 1.0
    }


def _layer(words: str, d_model: int, heads: int, stage: int, **axes: str) -> dict[str, object]:
    """The controls of a layer; axes that are not named get their first choice."""
    names = labels(tokenize(words).tokens)
    values = {
        "source": "sentence",
        "tokens": words,
        "d_model": d_model,
        "heads": heads,
        "head": 0,
        "stage": stage,
        "query": names[last_word(names)],
    }
    return _axes(**axes) | {key(name): value for name, value in values.items()}
