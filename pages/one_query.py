"""One query, step by step: a sentence or three matrices through the six stages of the formula."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import streamlit as st

import dashboard.page as lab
from core.attention import (
    AXES,
    PRESETS,
    AttentionConfig,
    Choice,
    ConfigError,
    Steps,
    entry,
    exact,
    heads_that_divide,
    preset,
    reference,
)
from core.attention.presets import preset_of
from core.entries import refuse_if
from core.seeding import seeded_layer
from core.studies import heads as study
from core.tokens import SENTENCE, labels, tokenize
from dashboard.draw import one_query as draw

SEED = 1044  # in the start "layer", a masked key has the highest score


class Start(NamedTuple):
    """What a link leaves out: the values with which the page opens."""

    tokens: str
    stage: int
    config: AttentionConfig


STARTS = {
    "simple": Start("The animal slept", 1, AttentionConfig(4, 1)),
    # of links that were made before these
    "layer": Start(SENTENCE, 5, AttentionConfig(16, 4, position="alibi", mask="causal")),
}
# the labels are in links, as the stages' are
SOURCES = {"sentence": "Sentence", "matrices": "Matrices Q, K, V"}
EXACT = Choice("exact")
WORKED, CUSTOM = "worked", "custom"
WORKED_EXAMPLE = study.parse(study.WORKED)
ROOMY = (16, 4)  # d_model and heads that nearly every preset fits
TEMPERATURES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
MAX_ROW_PILLS, MAX_HEAD_PILLS = 12, 8  # with more, a list
OF_PAGE = {"bind": None}
OF_SESSION = ("preset", "temperature", "width_d", "width_e")  # the controls that are in no link
HELP = {
    "projection": "How queries, keys and values are made from the word vectors",
    "score": "How a query and a key are compared",
    "position": "How the order of the words enters",
    "mask": "Which keys a query may attend to",
    "normalizer": "How scores become weights",
    "kernel": "How the result is computed. The picture always shows the steps of the exact kernel.",
}
LEFT_OUT = " Positions that change the word vectors are left out: Q, K and V are given."
READS_X = {item.key for item in AXES["position"] if item.enters == "x" or "reads x" in item.traits}


def last_word(names: Sequence[str]) -> str:
    return next((name for name in reversed(names) if any(c.isalnum() for c in name)), names[-1])


def fitted(width: int, is_list: bool) -> Mapping[str, object]:
    return {"width": lab.room(width)} if is_list else {"wrap": True}


def change_source() -> None:
    """Start typed matrices without a position or a mask, as the worked example does."""
    if Controls.read("source").source == "matrices":
        Controls.set(position=Choice("none"), mask=Choice("none"))


def axis_field(axis: str) -> lab.WrittenChoice:
    def left_out(controls: "Controls") -> set[str]:
        return READS_X if axis == "position" and controls.is_typed else set()

    return lab.WrittenChoice(
        axis.capitalize(),
        lambda c: {item.key: item.name for item in AXES[axis] if item.key not in left_out(c)},
        lambda c: getattr(c.base, axis).key,
        axis=axis,
        help=lambda c: HELP[axis] + (LEFT_OUT if left_out(c) else ""),
    )


class MatricesField(lab.Field[list[study.Rows]]):
    """Q, K and V in three editors; the link has what is in them."""

    def read(self, controls: lab.Fields) -> list[study.Rows]:
        return Controls.edited.value

    def widget(
        self, controls: lab.Fields, start: None, shared: Mapping[str, object]
    ) -> list[study.Rows]:
        version, parts = Controls.opened.value
        grid, box = st.grid(6, min_column_width=120), st.container()
        if not parts:  # the page opens
            text, parts = st.query_params.get(self.key_of(controls)), WORKED_EXAMPLE
            try:
                parts = study.check(study.parse(text or study.WORKED))
            except ConfigError as error:
                box.warning(f"{error} The worked example is shown.")
            Controls.opened.value = version, parts
        sizes = Controls.draw("width_d", "width_e", into=grid, parts=parts, version=version)
        import pandas as pd  # a quarter of a second that the first page, a sentence, need not wait for

        edited = list[study.Rows]()
        widths = (sizes.width_d, sizes.width_d, sizes.width_e)
        for column, name, rows, width in zip(box.columns(3), "QKV", parts, widths, strict=True):
            names = [str(c) for c in range(width)]
            padded = [(row + [0.0] * width)[:width] for row in rows]
            frame = column.data_editor(
                pd.DataFrame(padded, columns=names, dtype=float),
                key=f"one:{name}{version}-{width}",
                num_rows="dynamic",
                hide_index=True,
                column_config={
                    c: st.column_config.NumberColumn(f"{name} {c}", format="%.3g", width="small")
                    for c in names
                },
                alt=f"Matrix {name}, editable",
            )
            edited.append(frame.astype(float).to_numpy().tolist())
        Controls.edited.value = edited
        lab.write_link(self.key_of(controls), study.write(edited))
        return edited


STAGES = dict(enumerate(("Project", "Score", "Scale", "Mask", "Normalize", "Weigh values"), 1))


class Controls(lab.Fields, page="one"):
    parts: Sequence[study.Rows]  # with which the editors of that version start
    version: int

    start = lab.SessionValue("simple")
    edited = lab.SessionValue(WORKED_EXAMPLE)
    opened = lab.SessionValue[tuple[int, Sequence[study.Rows]]]((1, ()))  # the version, its parts
    # the errors of a link until a control is changed, and the controls before that
    refusal = lab.SessionValue[tuple[list[str], Mapping[str, object] | None]](([], None))
    focus = lab.LinkedValue[tuple[str, int] | None](None)  # a query and the key pressed for it
    last, shown_stage = lab.SessionValue[str | None](None), lab.SessionValue(1)

    source = lab.Segmented(
        "Start from",
        SOURCES,
        also=lambda c: {"on_change": change_source},
        help="A sentence: each word becomes a vector, and $W_q$, $W_k$ and $W_v$ make its query, key and "
        "value. Matrices: type Q, K and V yourself and check every number by hand.",
    )
    preset = lab.Select[str](
        "Preset",
        lambda c: (
            {CUSTOM: "Your own", WORKED: "Worked example"}
            | {item.key: lab.dated(item) for item in PRESETS}
        ),
        also=lambda c: OF_PAGE | {"on_change": apply_preset},
        help="A published mechanism; it sets all six choices below",
    )
    tokens = lab.Text(
        "Sentence",
        lambda c: c.opens.tokens,
        also=lambda c: {"width": lab.room(300)},
        help="Each word, and each punctuation mark at the end of a word, becomes one token.",
    ).when(lambda c: not c.is_typed)
    d_model = lab.SelectSlider(
        "d_model",
        lab.D_MODELS,
        lambda c: c.opens.config.d_model,
        also=lab.keep_heads("one:d_model", lambda width: "one:heads", heads_that_divide),
        help="How many numbers each word's vector x has",
    ).when(lambda c: not c.is_typed)
    heads = lab.SelectSlider[int](
        "Heads",
        lambda c: heads_that_divide(c.d_model),
        lambda c: heads_that_divide(c.d_model, c.opens.config.num_heads)[-1],
        help="Into how many heads the d_model numbers are divided; each head attends on its own",
    ).when(lambda c: not c.is_typed)
    seed = lab.Number(
        "Seed",
        SEED,
        0,
        999_999,
        1,
        help="The random weights and word vectors are drawn from this number.",
    )
    projection, score, position, mask, normalizer, kernel = map(axis_field, AXES)
    matrices = MatricesField("Q, K and V").optional(lambda c: c.is_typed)
    width_d = lab.Number[int](
        "Columns of Q and K",
        lambda c: len(c.parts[0][0]),
        1,
        study.MAX_COLUMNS,
        1,
        key=lambda c: f"width_d{c.version}",
        also=OF_PAGE,
        help="A column is added with zeros, or the last one is removed",
    )
    width_e = lab.Number[int](
        "Columns of V",
        lambda c: len(c.parts[2][0]),
        1,
        study.MAX_COLUMNS,
        1,
        key=lambda c: f"width_e{c.version}",
        also=OF_PAGE,
        help="A column is added with zeros, or the last one is removed",
    )
    stage = lab.Segmented(
        "Step of attention",
        {at: f"{at} {name}" for at, name in STAGES.items()},
        lambda c: c.opens.stage,
        also={"label_visibility": "collapsed", "wrap": True},
        help="A step of attention for one query.",
    )
    temperature = lab.SelectSlider[float](
        "Temperature τ",
        lambda c: sorted({*TEMPERATURES, c.normalizer["temperature"]}),
        lambda c: c.normalizer["temperature"],  # in the link, it is a part of the normalizer
        also=lambda c: OF_PAGE | {"on_change": apply_temperature, "width": lab.room(150)},
        help="Each scaled score is divided by τ first. Below 1 the weights are sharper, above 1 flatter.",
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
        lambda c: any("{length}" in entry("mask", leaf.key).short for leaf in c.mask.leaves())
    )
    query = lab.Segmented(
        "Query",
        lambda c: {name: lab.plain(name) for name in c.names},
        lambda c: last_word(c.names),
        pills=True,
        max_options=MAX_ROW_PILLS,
        also=lambda c: fitted(260, len(c.names) > MAX_ROW_PILLS),
        help="The word whose attention is computed step by step",
    ).optional(lambda c: c.names)
    head = lab.Segmented[int](
        "Head",
        lambda c: range(1 if c.is_typed else c.heads),  # typed matrices are one head
        pills=True,
        max_options=MAX_HEAD_PILLS,
        also=lambda c: fitted(90, c.heads > MAX_HEAD_PILLS),
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
    def opens(self) -> Start:
        return STARTS[Controls.start.value]

    @property
    def base(self) -> AttentionConfig:
        """The layer from whose choices the axes start."""
        return AttentionConfig() if self.is_typed else self.opens.config

    @property
    def is_typed(self) -> bool:
        return self.source == "matrices"

    @property
    def given(self) -> study.Source:
        """The typed matrices or the sentence; ConfigError where nothing can attend."""
        if self.matrices is not None:
            return study.Source.of_matrices(study.check(self.matrices))
        tokens = tokenize(self.tokens).tokens
        refuse_if(
            not tokens,
            "There is no token here. Type a word, or a sentence: each word becomes one token.",
        )
        return study.Source.sentence(tokens)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the queries; none where nothing can attend."""
        with suppress(ConfigError):
            return self.given.queries
        return ()

    @property
    def choices(self) -> lab.AxisChoices:
        """What makes a config where it goes together; typed matrices are one head without a projection."""
        chosen = {axis: self[axis] for axis in AXES}
        if self.matrices is None:
            return {"d_model": self.d_model, "num_heads": self.heads} | chosen
        width = len(self.matrices[0][0])
        return {"d_model": width, "num_heads": 1} | chosen | {"projection": Choice("identity")}

    @property
    def config(self) -> AttentionConfig | None:
        """The layer; None where nothing can attend, or the choices do not go together."""
        with suppress(ConfigError):
            return AttentionConfig(**self.choices) if self.given else None
        return None

    @property
    def maps(self) -> int:
        """How many maps the projection combines into one."""
        return self.config.score_heads // self.config.num_heads if self.config else 1


def read_controls() -> Controls:
    """The values of all controls, with a default wherever nothing was picked."""
    sizes = "tokens", "d_model", "heads", "seed", "stage"
    return Controls.read("source", *sizes, *AXES, "matrices", "real", "query", "head", "half")


def draw_settings(grid: lab.Grid) -> None:
    with grid.cell(column_span=2):
        Controls.draw("source", into=lab.HERE)
    controls = read_controls()
    source, typed, config = controls.source, controls.is_typed, controls.config
    # The list shows the preset that the other controls make, and what this one changes
    known = None if typed else preset_of(config)
    if controls.matrices == WORKED_EXAMPLE and config == AttentionConfig(2, 1, "identity"):
        known = WORKED
    Controls.set(preset=known or CUSTOM)
    with grid.cell(column_span=2):
        Controls.draw("preset", into=lab.HERE)
        for line in [] if typed else draw.preset_words(config):
            st.caption(lab.plain(line))
    with grid.cell(column_span=2):
        sizes = Controls.draw("d_model", "heads", "seed", into=lab.HERE, source=source)
        if not typed:
            lab.note_heads("one:d_model", sizes.d_model, sizes.heads)
    for axis in AXES:
        if axis == "projection" and typed:
            continue
        with grid.cell(column_span=2):
            Controls.draw(axis, into=lab.HERE, source=source)
            if axis == "mask":
                read_controls().draw_more("real", into=lab.HERE)


def draw_controls(row: lab.Place) -> AttentionConfig | None:
    """Draw the matrices, and what is picked or why there is nothing to pick; returns the layer."""
    Controls.draw("matrices", into=lab.HERE, source=Controls.read("source").source)
    controls = read_controls()
    if error := lab.config_error(lambda: controls.given):
        st.warning(str(error))
        return None
    if error := lab.config_error(AttentionConfig, **controls.choices):
        lab.show_refusal(
            controls.choices, error, "one", lambda axis, choice: Controls.set(**{axis: choice})
        )
        return None
    last, config = last_word(controls.names), AttentionConfig(**controls.choices)
    if controls.query == Controls.last.value:
        Controls.set(query=last)  # as a link without a query, it follows the last word
    Controls.last.value = last
    controls.draw_more("query", into=row)
    if config.num_heads > 1:
        controls.draw_more("head", into=row)
    if controls.maps > 1:
        controls.draw_more("half", into=row)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="one:steps"):
        stage = Controls.draw("stage", into=lab.HERE).stage
        Controls.shown_stage.value = stage
        skips = config.mask.key == "none"  # the step of the mask, which then says nothing
        st.button(
            f"Next: {STAGES[following(stage, skips)]}" if stage < 6 else "Last step",
            icon=":material/arrow_forward:",
            # From the server's own stage: a second press that interrupts a run brings the browser's older one.
            on_click=lambda: move_stage(following(Controls.shown_stage.value, skips)),
            disabled=stage == 6,
            help="Without a mask, step 4 changes nothing and is skipped." if skips else None,
            key="one:next",
        )
        if stage == 5 and "temperature" in config.normalizer.kwargs:
            Controls.set(temperature=config.normalizer["temperature"])
            Controls.draw("temperature", into=row, normalizer=config.normalizer)
    return config


def apply_temperature() -> None:
    values = Controls.read("source", "normalizer", "temperature")
    now = values.normalizer.kwargs | {"temperature": values.temperature}
    Controls.set(normalizer=Choice.of(values.normalizer.key, **now))


def following(stage: int, skips_mask: bool) -> int:
    """The stage that Next leads to."""
    return stage + 1 + (stage == 3 and skips_mask)


def move_stage(stage: int) -> None:
    Controls.shown_stage.value = min(6, max(1, stage))
    Controls.set(stage=Controls.shown_stage.value)


def apply_pick(names: Sequence[str], query: str) -> None:
    """Answer a press in the picture, which shows the query of that name."""
    pick = dict(st.session_state["one:view"].pick or {})  # the component's own value
    if "stage" in pick:
        move_stage(int(pick["stage"]))
        Controls.set(query=query)  # as above, the browser may bring an older one
    if "key" in pick:
        Controls.focus.set((query, int(pick["key"])))
    if "query" in pick:
        Controls.set(query=names[min(len(names) - 1, max(0, int(pick["query"])))])


def apply_preset() -> None:
    """Set all six axes to a preset, at the first of these sizes that it fits: every one fits the last or the one before."""
    name, config = Controls.read("preset").preset, AttentionConfig()
    if name == CUSTOM:
        return
    Controls.set(source="matrices" if name == WORKED else "sentence")
    if name == WORKED:
        Controls.opened.value = Controls.opened.value[0] + 1, WORKED_EXAMPLE
        Controls.edited.value = WORKED_EXAMPLE
    else:
        item, now = preset(name), Controls.read("d_model", "heads", source="sentence")
        own = [
            (width, heads) for width in (now.d_model, ROOMY[0]) for heads in (now.heads, item.heads)
        ]
        sizes = own[0], own[1], ROOMY, own[3]
        config = next(
            item.config(*size) for size in sizes if not lab.config_error(item.config, *size)
        )
        Controls.set(d_model=config.d_model, heads=config.num_heads)
    Controls.set(**{axis: getattr(config, axis) for axis in AXES})


# The page: one query's picture in six steps, a question, things to try, and what each step means.

# On a phone the six steps are two rows of three.
STYLE = """<style>@media (max-width: 640px) {
.st-key-one-stage [role=radiogroup] > button { flex: 1 1 30%; padding: 0 6px }
.st-key-one-tokens label { display: none }
.st-key-one-query > div { display: flex; align-items: center; gap: 8px; > label { margin: 0 } }
}</style>"""


def page() -> None:
    lab.read_start("one", "simple", "layer")
    if st.query_params.get("one:stage") == "3 Scale + bias":  # a link of before
        del st.query_params["one:stage"]
        Controls.set(stage=3)
    linked = any(name.startswith("one:") for name in st.query_params)
    if errors := link_errors():  # before a widget takes its value out of the link
        Controls.refusal.value = errors, None
    lab.title(
        "One query, step by step",
        "Follow one word, a vector x, to its output.",
    )
    lab.take_built("one", adopt, linked=linked)
    st.html(STYLE)
    explore()


def adopt(built: lab.Built) -> None:
    """Set the axes to what was built elsewhere, in a layer of ROOMY size where the page's own is too small for it."""
    values = Controls.read("d_model", "heads", source="sentence")
    sizes = values.d_model, values.heads
    if not built:
        sizes = values.opens.config.d_model, values.opens.config.num_heads
    elif lab.config_error(AttentionConfig, *sizes, **built):
        sizes = ROOMY
    base = Controls.read("source").base
    Controls.set(
        d_model=sizes[0],
        heads=sizes[1],
        **{axis: built.get(axis, getattr(base, axis)) for axis in AXES},
    )


@lab.fragment
def explore() -> None:
    refused, above, figure = st.container(), st.container(), lab.picture("one")
    row = above.container(horizontal=True, vertical_alignment="bottom", gap="small")
    source = Controls.read("source").source
    Controls.draw("tokens", into=row, source=source)  # the settings depend on it
    with lab.settings_panel("All settings", "one:more"):
        draw_settings(st.grid(6, min_column_width=120))
    with above:
        config = draw_controls(row)
    controls = read_controls()
    if config is not None:  # else the choices do not go together
        lab.watch_built("one", {axis: controls[axis] for axis in AXES})
    focus = Controls.focus.linked(
        lambda text: (text.rpartition(":")[0], lab.between(0, 999)(text.rpartition(":")[2])),
        write=lambda focus: f"{focus[0]}:{focus[1]}",
    )
    # The errors of the link until a control is changed
    now = vars(controls) | {"focus": focus}
    errors, before = Controls.refusal.value
    Controls.refusal.value = errors, before or now
    for sentence in errors if before in (None, now) else ():
        refused.warning(sentence)
    steps = None
    with figure, lab.shown_errors(ValueError):
        if config is not None:
            layer = config.with_(kernel=EXACT)  # which alone makes every step
            steps = lab.computed(study.run, layer, controls.given, controls.seed, controls.real)
    if config is not None and steps is not None:
        show(controls, config, steps, focus, figure)
    lab.write_start("one")


def show(
    controls: Controls,
    config: AttentionConfig,
    steps: Steps,
    focus: tuple[str, int] | None,
    figure: lab.Place,
) -> None:
    """Draw the steps into `figure`; below it a question, things to try, and what the step means."""
    given, stage, seed, head = controls.given, controls.stage, controls.seed, controls.head
    layer = config.with_(kernel=EXACT)
    reading = lab.step_view.read(
        steps,
        given.queries,
        given.keys,
        given.queries.index(controls.query),
        head,
        half=controls.half,
        adjusts=config.has("position", "adjusts"),
    )
    lab.as_python(
        steps=steps,
        scaling=lab.cached(study.measure_scaling),
        also=[draw.head_cell(layer, reading, head, controls.half)],
    )
    notes = () if controls.is_typed else tokenize(controls.tokens).notes
    reasons = draw.reasons_text(reading, controls.real)
    made = study.projected(layer, given, seed, head, steps) if stage == 1 else None
    learned = not controls.is_typed or any(True for _ in seeded_layer(layer, seed).parameters())
    # The key in the equation: the one pressed for this row, else the one with most weight
    name, key = focus or ("", 0)
    key = key if name == reading.name and key < len(reading.keys) else reading.best
    with figure:
        lab.step_view.step_view(
            lab.step_view.payload(
                reading,
                draw.stage_words(layer, reading, controls.real, controls.is_typed),
                stage,
                key,
                reasons,
                draw.facts_fact(reading, layer, stage, reasons, head),
                " ".join([*draw.notes_on(reading, config, learned, made is not None), *notes]),
                None if made is None else lab.step_view.projection_payload(reading, *made),
            ),
            reading,
            key="one:view",
            on_pick=partial(apply_pick, given.queries, reading.name),
        )
    if stage == 3:  # the step to which √D belongs
        root_of_d()
    lab.try_this("one", moves(reading, layer))
    st.markdown("## What it means")
    st.markdown(draw.MEANING[stage])
    parts = draw.equation(reading, layer, stage, key, lab.Ink.of(lab.theme()).pick)
    st.markdown(draw.equation_text(parts, reading, made), text_alignment="center")
    lab.details("Equation, paper and code of each step", partial(sources, layer), "one:sources")


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
    points = lab.cached(study.measure_scaling)
    answer, reason = draw.root_answer(points)
    if not lab.predict(
        "one:root",
        lab.Question(
            draw.ROOT_QUESTION,
            draw.ROOT_ANSWERS,
            answer,
            (reason,) * len(draw.ROOT_ANSWERS),
        ),
    ):
        return
    lab.draw_chart(
        st,
        draw.largest_chart(points, lab.Ink.of(lab.theme())),
        theme=None,
        key="one:largest",
        alt="The largest weight with and without √D at three sizes D",
    )
    lab.fact(draw.largest_fact(points))
    lab.paragraph(
        "Where one key has all the weight, a small change of a score changes no weight: the gradients of queries "
        "and keys are near 0, so training hardly changes them."
    )
    lab.details("The same, measured for D from 1 to 512", partial(curves, points), "one:curves")


def curves(points: tuple[study.Scaling, ...]) -> None:
    ink = lab.Ink.of(lab.theme())
    for column, name in zip(st.columns(2, gap="medium"), draw.MEASURES, strict=True):
        lab.draw_chart(
            column,
            draw.scaling_chart(points, name, ink),
            theme=None,
            key=f"one:{name}",
            alt=f"{name} with and without √D as D grows",
        )
    lab.fact(draw.scaling_fact(points))
    lab.caption(
        f"Measured on {study.QUERIES} random queries and {study.KEYS} random keys (standard normal numbers).",
    )


def link_errors() -> list[str]:
    """A sentence for each text of the link that no control has."""
    link = {
        name.removeprefix("one:"): text
        for name, text in st.query_params.items()
        if name.startswith("one:")
    }
    others = {*Controls.declared, "focus", "root:predict", "start"} - {*OF_SESSION}
    return [
        f"The link says {lab.plain(name[:40])} = {lab.plain(text[:40])}; this page has no such setting."
        for name, text in sorted(link.items())
        if name not in others and "matrices" not in name
    ]


# The things to try on this page; each answer is computed.


def moves(reading: lab.step_view.Reading, config: AttentionConfig) -> tuple[lab.Move, ...]:
    """What to try: the causal mask, the score without √D, and a layer of six words and four heads.

    Each sets only what its words name, and its notice names the other choices of the settings, which stay; the last is
    a new layer.
    """
    layer = STARTS["layer"]
    query, later = draw.hidden_from(reading)

    def move(label: str, notice: str, stage: int, **values: Any) -> lab.Move:
        notice += draw.unchanged_text(config, values)
        return lab.Move(label, Controls.state(stage=stage, **values), notice)

    hide = move(
        f"Hide later words from {query}",
        f"The query is {lab.plain(query)}. Under the causal mask the scaled score of "
        f"{'the word' if later == 1 else f'each of the {later} words'} after it is −∞.",
        4,
        mask=Choice("causal"),
        query=query,
    )
    return (
        *([hide] if later else []),
        move("Do not divide by √D", draw.undivided_text(reading, config), 5, score=Choice("dot")),
        move(
            "Six words, four heads",
            "A new layer: six words, four heads, no mask. Pick another *Head*: the same word takes from other words.",
            layer.stage,
            **{axis: Choice(getattr(AttentionConfig(), axis).key) for axis in AXES},
            source="sentence",
            tokens=layer.tokens,
            d_model=layer.config.d_model,
            heads=layer.config.num_heads,
            head=0,
            query=last_word(labels(tokenize(SENTENCE).tokens)),
        ),
    )
