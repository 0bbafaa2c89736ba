"""One query, step by step: a sentence or three matrices through the six stages of the formula."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import dashboard.page as lab
from core.attention import (
    AXES,
    PRESETS,
    AttentionConfig,
    Choice,
    ConfigError,
    entry,
    exact,
    heads_that_divide,
    preset,
    reference,
)
from core.attention.presets import preset_of
from core.attention.text import choice_from_text, choice_text
from core.entries import complete
from core.seeding import seeded_layer
from core.studies import heads as study
from core.tokens import SENTENCE, labels, tokenize
from dashboard.draw import one_query as draw

# The controls: what a link leaves out of them, what they are, and each axis's choice with its parameters and parts.

SEED = 1044  # in the start "layer", a masked key has the highest score
# What a link leaves out: the values with which the page opens, and those of links that were made before these.
STARTS: dict[str, dict[str, Any]] = {
    "simple": {"tokens": "The animal slept", "d_model": 4, "heads": 1, "stage": 1},
    "layer": {
        "tokens": SENTENCE,
        "d_model": 16,
        "heads": 4,
        "stage": 5,
        "position": "alibi",
        "mask": "causal",
    },
}
SOURCES = {
    "sentence": "Sentence",
    "matrices": "Matrices Q, K, V",
}  # the labels are in links, as the stages' are
EXACT = Choice("exact")
WORKED, CUSTOM = "worked", "custom"
PLAIN = ("self_attention", "vaswani")  # which have nothing to compare
ROOMY = (16, 4)  # d_model and heads that nearly every preset fits
MAX_ROW_PILLS, MAX_HEAD_PILLS = 12, 8  # with more, a list
HELP = {
    "projection": "How queries, keys and values are made from the word vectors",
    "score": "How a query and a key are compared",
    "position": "How the order of the words enters",
    "mask": "Which keys a query may attend to",
    "normalizer": "How scores become weights",
    "kernel": "How the result is computed. The picture always shows the steps of the exact kernel.",
}

key = "one:{}".format  # a widget's key, which is also its name in the link


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def put(name: str, value: Any) -> None:
    st.session_state[key(name)] = value


def start(name: str) -> Any:
    """What the link leaves out of a control."""
    return STARTS[get("start", "simple")].get(name)


def last_word(names: Sequence[str]) -> str:
    return next((name for name in reversed(names) if any(c.isalnum() for c in name)), names[-1])


def names_of(values: Any) -> tuple[str, ...]:
    """The names of the queries, for the errors of a link those of its sentence."""
    return getattr(values, "names", None) or labels(tokenize(values.tokens or "").tokens)


def fitted(width: int, is_list: bool) -> dict[str, Any]:
    return {"width": lab.room(width)} if is_list else {"wrap": True}


def change_source() -> None:
    """Start typed matrices without a position or a mask, as the worked example does."""
    if get("source") == "matrices":
        put("position", "none")
        put("mask", "none")


STAGES = dict(enumerate(("Project", "Score", "Scale", "Mask", "Normalize", "Weigh values"), 1))


class Controls(lab.Fields, page="one"):
    given: study.Source | None
    fields: dict[str, Any]  # of the config, whether or not they go together
    config: AttentionConfig | None  # None with the error
    error: str
    notes: tuple[str, ...]
    focus: tuple[str, int] | None
    names: tuple[str, ...]  # of the queries

    source = lab.Segmented(
        "Start from",
        SOURCES,
        also=lambda c: {"on_change": change_source},
        help="A sentence: each word becomes a vector, and $W_q$, $W_k$ and $W_v$ make its query, key and "
        "value. Matrices: type Q, K and V yourself and check every number by hand.",
    )
    tokens = lab.Text(
        "Sentence",
        lambda c: start("tokens"),
        also=lambda c: {"width": lab.room(300)},
        help="Each word, and each punctuation mark at the end of a word, becomes one token.",
    ).optional(lambda c: c.source == "sentence")
    d_model = lab.SelectSlider(
        "d_model",
        lab.D_MODELS,
        lambda c: start("d_model"),
        also=lab.keep_heads(key("d_model"), lambda width: key("heads"), heads_that_divide),
        help="How many numbers each word's vector x has",
    ).optional(lambda c: c.source == "sentence")
    heads = lab.SelectSlider(
        "Heads",
        lambda c: heads_that_divide(c.d_model),
        lambda c: max(n for n in heads_that_divide(c.d_model) if n <= start("heads")),
        help="Into how many heads the d_model numbers are divided; each head attends on its own",
    ).optional(lambda c: c.source == "sentence")
    seed = lab.Number(
        "Seed",
        SEED,
        0,
        999_999,
        1,
        help="The random weights and word vectors are drawn from this number.",
    )
    stage = lab.Segmented(
        "Step of attention",
        {at: f"{at} {name}" for at, name in STAGES.items()},
        lambda c: start("stage"),
        also={"label_visibility": "collapsed", "wrap": True},
        help="A step of attention for one query.",
    )
    real = lab.Number(
        "Real tokens",
        lambda c: max(0, len(c.names) - 2),  # two keys of padding at first
        0,
        512,
        1,
        # where the mask's rule depends on which keys are real
        help="How many tokens are real. The keys after them are padding; with 0 every key is.",
    ).optional(
        lambda c: any(
            "{length}" in entry("mask", leaf.key).short for leaf in c.fields["mask"].leaves()
        )
    )
    query = lab.Segmented(
        "Query",
        lambda c: {name: lab.plain(name) for name in names_of(c)},
        lambda c: last_word(names_of(c)),
        pills=True,
        max_options=MAX_ROW_PILLS,
        also=lambda c: fitted(260, len(c.names) > MAX_ROW_PILLS),
        help="The word whose attention is computed step by step",
    ).optional(names_of)
    head = lab.Segmented[int](
        "Head",
        lambda c: range(c.heads or 1),  # typed matrices are one head
        pills=True,
        max_options=MAX_HEAD_PILLS,
        also=lambda c: fitted(90, (c.heads or 1) > MAX_HEAD_PILLS),
        help="The head that is shown, counted from 0",
    )
    half = lab.Segmented[int](
        "Map",
        lambda c: range(c.maps),
        pills=True,
        max_options=MAX_HEAD_PILLS,
        also=lambda c: fitted(90, c.maps > MAX_HEAD_PILLS),
        help="The projection combines these maps into one; steps 1 to 4 show the picked one.",
    )

    @property
    def row(self) -> int:
        return self.names.index(self.query) if self.query else 0

    @property
    def maps(self) -> int:
        """How many maps the projection combines into one."""
        return self.config.score_heads // self.config.num_heads if self.config else 1


def base_of(axis: str) -> Choice:
    opens = get("source") != "matrices" and start(axis)
    return complete(opens or getattr(AttentionConfig(), axis).key, AXES[axis], axis)


def read_choice(axis: str) -> Choice:
    return lab.choice_in_session(axis, base_of(axis), key=key(axis))


def write_choice(axis: str, choice: Choice) -> None:
    """Set the widgets of a choice; for a link or a callback, before they are drawn."""
    st.session_state.update(lab.choice_state(key(axis), choice))


def read_controls() -> Controls:
    """The values of all controls, with a default wherever nothing was picked, and what they make."""
    values = Controls.read("source", "tokens", "d_model", "heads", "seed", "stage")
    fields: dict[str, Any] = {axis: read_choice(axis) for axis in AXES}
    fields |= {"d_model": values.d_model or 1, "num_heads": values.heads or 1}
    given: study.Source | None = None
    config, error, notes = None, "", tuple[str, ...]()
    try:
        if values.source == "matrices":  # one head without a projection
            matrices = study.check(get("edited") or study.parse(study.WORKED))
            given = study.Source.of_matrices(matrices)
            fields |= {"projection": Choice("identity"), "d_model": len(matrices[0][0])}
        elif (cut := tokenize(values.tokens or "")).tokens:
            given, notes = study.Source.sentence(cut.tokens), cut.notes
        else:
            error = (
                "There is no token here. Type a word, or a sentence: each word becomes one token."
            )
        config = AttentionConfig(**fields) if given else None
    except ConfigError as why:
        error = str(why)
    return Controls.read(
        "real",
        "query",
        "head",
        "half",
        **values,
        given=given,
        config=config,
        error=error,
        notes=notes,
        fields=fields,
        focus=get("focus"),
        names=given.queries if given else (),
    )


def draw_matrices(grid: DeltaGenerator, container: DeltaGenerator) -> None:
    """Draw Q, K and V as three editors, saved in the session and the link; warn if the link's are not used."""
    if get("base") is None:  # the link's matrices when the page opens, or the worked example
        try:
            parts = study.check(study.parse(st.query_params.get(key("matrices"), study.WORKED)))
        except ConfigError as error:
            parts = study.check(study.parse(study.WORKED))
            container.warning(f"{error} The worked example is shown.")
        put("base", parts)
        put("version", get("version", 0) + 1)
    parts = get("base")
    with grid:
        keys, values = (
            int(
                st.number_input(
                    label,
                    1,
                    study.MAX_COLUMNS,
                    len(rows[0]),
                    1,
                    key=key(f"width_{name}{get('version')}"),
                    help="A column is added with zeros, or the last one is removed",
                )
            )
            for label, name, rows in (
                ("Columns of Q and K", "d", parts[0]),
                ("Columns of V", "e", parts[2]),
            )
        )
    import pandas as pd  # a quarter of a second that the first page, a sentence, need not wait for

    edited = list[study.Rows]()
    for column, name, rows, width in zip(
        container.columns(3), "QKV", parts, (keys, keys, values), strict=True
    ):
        names = [str(c) for c in range(width)]
        frame = column.data_editor(
            pd.DataFrame(
                [(row + [0.0] * width)[:width] for row in rows], columns=names, dtype=float
            ),
            key=key(f"{name}{get('version')}-{width}"),
            num_rows="dynamic",
            hide_index=True,
            column_config={
                c: st.column_config.NumberColumn(f"{name} {c}", format="%.3g", width="small")
                for c in names
            },
            alt=f"Matrix {name}, editable",
        )
        edited.append(frame.astype(float).to_numpy().tolist())
    put("edited", edited)
    lab.write_link(key("matrices"), study.write(edited))


def draw_settings(grid: lab.Grid) -> None:
    with grid.cell(column_span=2):
        source = Controls.draw("source", into=lab.HERE).source
    values, typed = read_controls(), source == "matrices"
    # The list of presets, which shows the one that the other controls make, and what this one changes
    as_worked = typed and get("edited") in (None, study.parse(study.WORKED))
    worked = AttentionConfig(values.fields["d_model"], 1, Choice("identity"))
    known = CUSTOM if typed else preset_of(values.config) or CUSTOM
    put("preset", WORKED if as_worked and values.config == worked else known)
    names = {CUSTOM: "Your own", WORKED: "Worked example"} | {
        item.key: lab.dated(item) for item in PRESETS
    }
    with grid.cell(column_span=2):
        st.selectbox(
            "Preset",
            list(names),
            key=key("preset"),
            format_func=names.__getitem__,
            on_change=lab.guarded(key("preset"), _apply_preset),
            help="A published mechanism; it sets all six choices below",
        )
        for line in sentences(values):
            st.caption(lab.plain(line))
    with grid.cell(column_span=2):
        sizes = Controls.draw("d_model", "heads", "seed", into=lab.HERE, source=source)
        if not typed:
            lab.note_heads(key("d_model"), sizes["d_model"], sizes["heads"])
    for axis in AXES:
        if axis == "projection" and typed:
            continue
        note, hidden = HELP[axis], set[str]()
        if axis == "position" and typed:
            note += " Positions that change the word vectors are left out: Q, K and V are given."
            hidden = {
                item.key for item in AXES[axis] if item.enters == "x" or "reads x" in item.traits
            }
        with grid.cell(column_span=2):
            lab.draw_choice(
                axis, axis.capitalize(), base_of(axis), key=key(axis), help=note, without=hidden
            )
            if axis == "mask":
                read_controls().draw_more("real", into=lab.HERE)


def draw_picks(controls: Controls, config: AttentionConfig, row: DeltaGenerator) -> None:
    last = last_word(controls.names)
    if get("query") == get("default_query"):
        put("query", last)  # as a link without a query, it follows the last word
    put("default_query", last)
    controls.draw_more("query", into=row)
    if config.num_heads > 1:
        controls.draw_more("head", into=row)
    if controls.maps > 1:
        controls.draw_more("half", into=row)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=key("steps")):
        stage = Controls.draw("stage", into=lab.HERE).stage
        put("shown_stage", stage)
        st.button(
            f"Next: {STAGES[stage + 1]}" if stage < 6 else "Last step",
            icon=":material/arrow_forward:",
            # From the server's own stage: a second press that interrupts a run brings the browser's older one.
            on_click=lambda: move_stage(get("shown_stage") + 1),
            disabled=stage == 6,
            key=key("next"),
        )


def move_stage(stage: int) -> None:
    put("stage", min(6, max(1, stage)))
    put("shown_stage", get("stage"))


def apply_pick() -> None:
    pick, names = dict(get("view").pick or {}), get("names", ())
    if "stage" in pick:
        move_stage(int(pick["stage"]))
        if get("shown_query") in names:  # as above, the browser may bring an older one
            put("query", get("shown_query"))
    if "key" in pick and names:
        put("focus", (get("query", get("shown_query")), int(pick["key"])))
    if "query" in pick and names:
        put("query", names[min(len(names) - 1, max(0, int(pick["query"])))])


def _apply_preset() -> None:
    """Set all six axes to a preset, at the first of these sizes that it fits: every one fits the last or the one before."""
    name, config = get("preset"), AttentionConfig()
    if name == CUSTOM:
        return
    put("source", "matrices" if name == WORKED else "sentence")
    if name == WORKED:
        put("base", None)
        lab.write_link(key("matrices"), None)
    else:
        item, values = preset(name), Controls.read("d_model", "heads", source="sentence")
        sizes = (
            (values.d_model, values.heads),
            (values.d_model, item.heads),
            ROOMY,
            (ROOMY[0], item.heads),
        )
        config = next(
            item.config(*size) for size in sizes if not lab.config_error(item.config, *size)
        )
        put("d_model", config.d_model)
        put("heads", config.num_heads)
    for axis in AXES:
        write_choice(axis, getattr(config, axis))


def sentences(controls: Controls) -> list[str]:
    """The preset's changes against Vaswani 2017, a sentence each; none where there is no preset."""
    config, name = controls.config, preset_of(controls.config)
    if config is None or name is None or name in PLAIN or controls.source == "matrices":
        return []
    item = preset(name)
    changes = item.changed(config.d_model, config.num_heads) or (item.meaning,)
    name = item.name if str(item.year) in item.name else f"{item.name} ({item.paper} {item.year})"
    return [f"{name} compared with Vaswani 2017" if len(changes) > 1 else name, *changes]


# The page: one query's picture in six steps, a question, things to try, and what each step means.

SMALL, LARGE = 4, 64  # head sizes of the question on √D
MUCH = 0.8  # an entropy below this share of the other's is much lower
MEANING = {
    1: "Each word starts as a vector x, a row of numbers. Three matrices, which training learns, turn it "
    "into a query (what the word looks for), a key (what it is found by) and a value (what it passes on).",
    2: "The score of a query and a key says how well they fit. A dot product multiplies them number by number and adds "
    "the products.",
    3: "A score adds D products, where D is the count of numbers in a query. Dividing by √D keeps the scores at the "
    "same size for every D. Some models also add a bias here, such as a penalty for distance.",
    4: "The mask sets the score to −∞ for every key that the query may not attend to, so its weight becomes 0.",
    5: "The normalizer turns the scores of the allowed keys into weights. The softmax makes them positive, with sum 1.",
    6: "The output is the sum of the values v, each multiplied by its weight. It is the new vector of the word. A weight "
    "alone does not tell how much a word adds: that is weight × value, and later layers may undo it.",
}

STRUT = r"\rule[-1em]{0pt}{2.35em}"
# On a phone the six steps are two rows of three.
STYLE = """<style>@media (max-width: 640px) {
.st-key-one-stage [role=radiogroup] > button { flex: 1 1 30%; padding: 0 6px }
}</style>"""


def page() -> None:
    lab.read_start("one", "simple", "layer")
    if st.query_params.get(key("stage")) == "3 Scale + bias":  # a link of before
        del st.query_params[key("stage")]
        put("stage", 3)
    linked = any(name.startswith("one:") for name in st.query_params)
    put(
        "link_errors", link_errors() + sync_link()
    )  # before a widget takes its value out of the link
    lab.title(
        "One query, step by step",
        "How one word's query, key and value lead to its output.",
    )
    lab.take_built("one", adopt, linked=linked)
    st.html(STYLE)
    explore()


def adopt(built: lab.Built) -> None:
    """Set the axes to what was built elsewhere, in a layer of ROOMY size where the page's own is too small for it."""
    for axis in AXES:
        write_choice(axis, built.get(axis, base_of(axis)))
    values = Controls.read("d_model", "heads", source="sentence")
    width, heads = values.d_model, values.heads
    if not built:
        width, heads = start("d_model"), start("heads")
    elif lab.config_error(AttentionConfig, width, heads, **built):
        width, heads = ROOMY
    put("d_model", width)
    put("heads", heads)


def draw_controls(row: DeltaGenerator) -> Controls:
    if get("source") == "matrices":
        draw_matrices(st.grid(6, min_column_width=120), st.container())
    controls = read_controls()
    if controls.given is None:
        st.warning(controls.error)
    elif error := lab.config_error(
        AttentionConfig, **(fields := {**controls.fields, "dropout": 0.0})
    ):
        lab.show_refusal(fields, error, "one", write_choice)
    elif controls.config is not None:
        draw_picks(controls, controls.config, row)
        controls = read_controls()
    return controls


@lab.fragment
def explore() -> None:
    refused, above, figure = st.container(), st.container(), lab.picture("one")
    row = above.container(horizontal=True, vertical_alignment="bottom", gap="small")
    Controls.draw(
        "tokens", into=row, source=Controls.read("source").source
    )  # the settings depend on it
    with lab.settings_panel("All settings", key("more")):
        draw_settings(st.grid(6, min_column_width=120))
    with above:
        controls = draw_controls(row)
    if controls.config is not None:  # else the choices do not go together
        lab.watch_built("one", {axis: read_choice(axis) for axis in AXES})
    # The errors of the link until a control is changed
    if errors := st.session_state.pop(key("link_errors"), []):
        put("refused", (errors, vars(controls)))
    errors, before = get("refused", ([], None))
    for sentence in errors if before == vars(controls) else ():
        refused.warning(sentence)
    with figure:
        reading, made = picture(controls)
    beside_scale = st.container()  # the step to which √D belongs
    if reading is not None and controls.config is not None:
        config = controls.config.with_(kernel=EXACT)
        lab.predict("one", trained_question())
        lab.try_this("one", moves(reading))
        st.markdown("## What it means")
        st.markdown(MEANING[controls.stage])
        # The equation of the step with its numbers, in parts between which a narrow page breaks
        parts = draw.equation(
            reading,
            config,
            controls.stage,
            focus_of(reading, controls.focus),
            lab.Ink.of(lab.theme()).pick,
        )
        if made is not None:
            x, (w_q, *_) = made
            result = reading.q[reading.query, 0]
            (first, *terms), sign = draw.products(
                x[reading.query], w_q[:, 0], draw.MAX_TERMS, result
            )
            parts += (
                r"\quad\text{Its first number: }",
                first,
                *(f"+ {term}" for term in terms),
                rf"{sign} \mathbf{{{lab.latex(result)}}}",
            )
        # A part in braces never breaks, and the strut keeps the lines of a narrow page apart.
        symbols, *live = (rf"$\displaystyle {{{STRUT} {part}}}$" for part in parts)
        st.markdown(f"{symbols} \u2003 {' '.join(live)}", text_alignment="center")
        lab.details(
            "Equation, paper and code of each step", partial(sources, config), key("sources")
        )
    with beside_scale if controls.stage == 3 else st.container():
        root_of_d()
    sync_link()
    lab.write_start("one")


Made: TypeAlias = tuple[np.ndarray, list[np.ndarray]]  # x and the matrices of a projection


def picture(controls: Controls) -> tuple[lab.step_view.Reading | None, Made | None]:
    """Draw the steps, or an error; returns what is drawn, and in step 1 what it is made of."""
    if controls.config is None or controls.given is None:
        return None, None
    given, stage, seed = controls.given, controls.stage, controls.seed
    config: AttentionConfig = controls.config.with_(kernel=EXACT)  # which alone makes every step
    try:
        steps = lab.computed(study.run, config, given, seed, controls.real)
    except (ConfigError, ValueError) as error:
        st.error(lab.plain(str(error)))
        return None, None
    reading = lab.step_view.read(
        steps,
        given.queries,
        given.keys,
        controls.row,
        controls.head,
        half=controls.half,
        adjusts=config.has("position", "adjusts"),
    )
    scaling = lab.cached(study.measure_scaling, SEED)
    lab.as_python(
        steps=steps,
        scaling=scaling,
        also=[draw.head_cell(config, reading, controls.head, controls.half)],
    )
    put("names", given.queries)
    put("shown_query", reading.name)
    typed, reasons = given.matrices is not None, draw.reasons_text(reading, controls.real)
    made = study.projected(config, given, seed, controls.head, steps) if stage == 1 else None
    drawn = (
        f"x is the vector of {reading.name}, drawn from top to bottom: each number multiplies the row of W beside it, "
        "and a column adds up to one number of q, k or v."
    )
    first = "Word vectors and matrices are random: before training, which word gets more weight has no meaning."
    if typed and not any(True for _ in seeded_layer(config, seed).parameters()):
        first = "Q, K and V are the typed ones, so every number can be checked by hand."
    lab.step_view.step_view(
        lab.step_view.payload(
            reading,
            draw.stage_words(config, reading, controls.real, typed),
            stage,
            focus_of(reading, controls.focus),
            reasons,
            draw.facts_fact(reading, config, stage, reasons, controls.head),
            " ".join(
                [
                    first,
                    *[drawn] * bool(made),
                    *draw.notes_on(reading, controls.config),
                    *controls.notes,
                ]
            ),
            None if made is None else lab.step_view.projection_payload(reading, *made),
        ),
        reading,
        key=key("view"),
        on_pick=apply_pick,
    )
    return reading, made


def focus_of(reading: lab.step_view.Reading, focus: tuple[str, int] | None) -> int:
    """The key in the equation: the one pressed for this row, else the one with most weight."""
    is_there = focus and focus[0] == reading.name and focus[1] < len(reading.keys)
    return focus[1] if focus and is_there else reading.best


def sources(config: AttentionConfig) -> None:
    st.markdown(
        "The formula as a textbook writes it. Every choice on this page is tested against it:"
    )
    lab.source_panel(reference.attention)
    lab.entries_panel(
        entry(axis, leaf.key)
        for axis in ("projection", "position", "score", "mask", "normalizer")
        for leaf in getattr(config, axis).leaves()
    )
    st.markdown("The code that just ran. It has the same steps for every choice:")
    lab.source_panel(exact)


def root_of_d() -> None:
    st.markdown("## What √D does")
    points = lab.cached(study.measure_scaling, SEED)
    # What happens to the weights at a larger head size when scores are not divided by √D
    small, large = (
        next(point for point in points if point.dims == dims) for dims in (SMALL, LARGE)
    )
    ratio = large.entropy[0] / small.entropy[0]
    reason = (
        f"The largest weight goes from {lab.number(small.largest[0])} at D = {SMALL} to {lab.number(large.largest[0])} at "
        f"D = {LARGE}. A score adds D products, so its variance grows with D: {lab.number(small.variance[0])} and "
        f"{lab.number(large.variance[0])}. At D = {LARGE}, divided by √{LARGE}, it is {lab.number(large.variance[1])}."
    )
    if not lab.predict(
        "one:root",
        lab.Question(
            f"Scores are not divided by √D, and the size D of queries and keys grows from {SMALL} to {LARGE}. What "
            "happens to the weights?",
            (
                "a few keys get almost all weight",
                "they stay about the same",
                "they become more equal",
            ),
            0 if ratio < MUCH else 2 if ratio > 1 / MUCH else 1,
            (reason,) * 3,
        ),
    ):
        st.caption("The measurement is shown once you have picked an answer.")
        return
    lab.draw_chart(
        st,
        draw.largest_chart(points, lab.Ink.of(lab.theme())),
        theme=None,
        key=key("largest"),
        alt="The largest weight with and without √D at three sizes D",
    )
    lab.fact(draw.largest_fact(points))
    lab.paragraph(
        "Where one key has all the weight, a small change of a score changes no weight: the gradients of queries "
        "and keys are near 0, so training hardly changes them."
    )
    lab.caption(
        f"Measured on {study.QUERIES} random queries and {study.KEYS} random keys (standard normal numbers).",
    )
    lab.details("The same, measured for D from 1 to 512", partial(curves, points), key("curves"))


def curves(points: tuple[study.Scaling, ...]) -> None:
    ink, even = lab.Ink.of(lab.theme()), math.log(study.KEYS)
    uniform = lab.Curve(
        f"uniform: {lab.number(even)}", [(d, even) for d in study.DIMS], (), ink.quiet, 3
    )
    for column, alt, unit, log, bound in zip(
        st.columns(2, gap="medium"),
        ("Variance", "Entropy"),
        ("of the scores", f"of the weights, nats (uniform: ln {study.KEYS})"),
        (True, False),
        ([], [uniform]),
        strict=True,
    ):
        pairs = [
            lab.Curve(
                name,
                [(p.dims, getattr(p, alt.lower())[at]) for p in points],
                (),
                ink.series[1 - at],
                1 - at,
            )
            for at, name in enumerate(draw.NAMES)
        ]
        lab.draw_chart(
            column,
            lab.line_chart(
                f"{alt} {unit}",
                "head size D",
                [*pairs, *bound],
                ink,
                log=log,
                log_x=True,
                domain=None if log else (0, 5),
            ),
            theme=None,
            key=key(alt),
            alt=f"{alt} with and without √D as D grows",
        )
    lab.fact(draw.scaling_fact(points))


# The page's link: widgets of fixed name bind themselves; the six choices are written here, each as a few words.


def sync_link() -> list[str]:
    """Take the choices and the pressed key from a link that says new ones, and write those of the session into it.

    Returns a sentence for each choice that is refused.
    """
    errors = []
    for axis in AXES:
        name, now = key(f"{axis}:choice"), read_choice(axis)
        read, write = partial(choice_of_link, axis), partial(choice_text, axis=axis)
        text = st.query_params[key(axis)] if lab.is_new(key(axis)) else None
        if text is not None and (error := lab.config_error(read, text)):
            errors.append(
                f"The link says {axis} = {lab.plain(text[:40])}, which cannot be read. {lab.plain(str(error))} "
                f"{entry(axis, base_of(axis).key).name} is shown."
            )
        st.session_state[name] = now
        lab.link_value(name, base_of(axis), read, write, name=key(axis))
        if st.session_state[name] != now:
            write_choice(axis, st.session_state[name])
    lab.link_value(
        key("focus"),
        None,
        lambda text: (text.rpartition(":")[0], lab.between(0, 999)(text.rpartition(":")[2])),
        lambda focus: f"{focus[0]}:{focus[1]}",
    )
    return errors


def choice_of_link(axis: str, text: str) -> Choice:
    names = {item.name: item.key for item in AXES[axis]}  # in links of the first version
    return choice_from_text(names.get(text, text), axis)


def link_errors() -> list[str]:
    link = {
        name.removeprefix("one:"): text
        for name, text in st.query_params.items()
        if name.startswith("one:")
    }
    names = ["source", "seed", "stage"]
    if link.get("source", get("source")) not in ("matrices", SOURCES["matrices"]):
        names += ["tokens", "d_model", "heads", "query", "head"]
    return [
        f"The link says {lab.plain(name[:40])} = {lab.plain(text[:40])}; this page has no such setting."
        for name, text in sorted(link.items())
        if name
        not in (*Controls.declared, *AXES, "focus", "matrices", "predict", "root:predict", "start")
        and "matrices" not in name
    ] + Controls.refused(*names)


# The question and the things to try on this page; each answer is computed.


def trained_question() -> lab.Question:
    words = lab.cached(study.trained_weights)
    options = ("animal", "street", "tired")
    given = ", ".join(f"{lab.number(words[word])} to {word}" for word in options)
    return lab.Question(
        f"“{study.MINILM_TEXT}” In a trained model (MiniLM, layer {study.TRAINED_LAYER}, head {study.TRAINED_HEAD}), which "
        "word gets the largest weight from “it”?",
        options,
        options.index(max(options, key=words.__getitem__)),
        (
            f"In that head, “it” gives {given}. Training made the matrices so; those above are random.",
        )
        * len(options),
    )


def moves(reading: lab.step_view.Reading) -> tuple[lab.Move, ...]:
    """What to try: the weights, the causal mask, the score without √D, and a layer of six words and four heads.

    Each sets all that its notice relies on, whatever was tried before.
    """
    first, name = reading.queries[0], lab.plain(reading.name)
    hide = lab.Move(
        "Hide later words",
        axes_of(mask="causal") | {key("query"): first, key("stage"): 4},
        f"Under the causal mask {lab.plain(first)}, the first word, may attend only to itself: the score of every "
        "later word is −∞.",
    )
    # The largest weight of the picked word without and with the division by √D
    row = reading.raw[reading.query].astype(float)
    best, dims = int(row.argmax()), reading.q.shape[1]
    whole, divided = (
        lab.number(float(np.exp(scores[best] - np.logaddexp.reduce(scores))))
        for scores in (row, row / dims**0.5)
    )
    return (
        lab.Move(
            "See the weights",
            {key("stage"): 5},
            f"The scores of {name} became weights. The next step multiplies the values by them.",
        ),
        *([hide] if reading.queries == reading.keys else []),
        lab.Move(
            "Do not divide by √D",
            axes_of(score="dot") | {key("query"): reading.name, key("stage"): 5},
            (
                f"{lab.plain(reading.name)} gives {whole} to {lab.plain(reading.keys[best])}; divided by √{dims} it "
                f"would give "
                f"{divided}. Larger scores make the largest weight larger. “What √D does” shows it for larger D."
            ),
        ),
        lab.Move(
            "Six words, four heads",
            axes_of()
            | {key(name): STARTS["layer"][name] for name in ("tokens", "d_model", "heads", "stage")}
            | {
                key("source"): "sentence",
                key("head"): 0,
                key("query"): last_word(labels(tokenize(SENTENCE).tokens)),
            },
            "Each head has its own queries and keys. Pick another head: the same word attends to other words.",
        ),
    )


def axes_of(**axes: str) -> dict[str, object]:
    """Every axis's choice; axes that are not named get their first choice."""
    return {key(axis): axes.get(axis, getattr(AttentionConfig(), axis).key) for axis in AXES} | {
        key("normalizer:softmax:temperature"): 1.0
    }
