"""Heads over a corpus: every head of a model measured on hundreds of texts."""

from functools import partial
from typing import Any, Literal

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import dashboard.page as lab
from core.entries import ConfigError, Param
from core.interpret import corpus as study
from core.interpret.trace import Head
from core.pretrained import ModelInputs, Pretrained, model_inputs, reject_if
from core.tasks import reading
from dashboard.draw import corpus as draw

# What is read of the texts of a measurement, for all sessions.


VECTORS = "corpus:vectors"  # the texts whose queries and keys were read, by their index


def axis_of(controls: "Controls", measure: str) -> study.Axis:
    """A measure of every head for an axis of the scatter; OV copying is read from the weights."""
    measurement = controls.measurement
    if measure != study.COPYING.key:
        return lab.computed(study.means, measurement, measure)
    shape = measurement.scores.score.shape[1:]
    return lab.study_of(study.copying, controls.ref, measurement.config.kind, shape)


def examples_of(controls: "Controls") -> list[study.TextExample]:
    """The texts that show a head most or least, or a text at each decile, each with one row."""
    measurement, ref = controls.measurement, controls.ref
    of = measurement.run, controls.sorted_by.key, controls.at
    arguments = *of, controls.view, measurement.corpus.texts
    # A measurement under way has other texts each second: they would push all else out of the cache.
    if measurement.live:
        examples = study.text_examples(lab.load_model(ref), *arguments)
        return lab.recorded(study.text_examples, (ref, *arguments), examples)
    return lab.study_of(study.text_examples, ref, *arguments)


# The controls: the model, the texts, two measures for the axes, and the head with what is shown of it.


SOURCES = {
    "own": "The lab's 300 sentences",
    "training": "Its training data",
    "texts": "Your own texts",
}


def axis_select(label: str, default: str) -> lab.Select:
    return lab.Select(
        label,
        {measure.key: measure.name for measure in study.AXES},
        default,
        help="What the scatter shows of every head on this axis: the mean over texts, or OV "
        "copying, which is read from the weights.",
    )


class Controls(lab.Fields, page="corpus"):
    ref: lab.ModelRef
    model: Pretrained
    config: study.CorpusConfig | None  # None with the reason on the page
    measurement: study.Measurement
    sources: list[study.Source]
    first: study.Source

    source = lab.Select[study.Source](
        "Texts",
        lambda c: {name: SOURCES[name] for name in c.sources},
        lambda c: c.first,
        key=lambda c: f"source:{c.first}",
        help=f"At most {study.MAX_TEXTS:,} texts are measured.",
    )
    x = axis_select("Across", "distance")
    y = axis_select("Upwards", "entropy")
    count = lab.Number(
        "Texts, at most",
        study.DEFAULT_TEXTS,
        1,
        study.MAX_TEXTS,
        hidden=True,
        help="The first so many of the corpus are measured.",
    )
    ablation = lab.Toggle(
        "Switch heads off",
        hidden=True,
        help="Measure how much the answer loses without each head: one pass a head and text, so about as many "
        "times longer as the model has heads.",
    )
    kind = lab.Select[Literal["self", "causal"]](
        "Attention",
        {kind: lab.KINDS[kind] for kind in ("self", "causal")},
        hidden=True,
        help=lab.KIND_HELP,
    ).optional(lambda c: c.model.reads == "pair")
    split = lab.Segmented[study.Split](
        "Texts are",
        {"lines": "One a line", "paragraphs": "One a paragraph"},
        hidden=True,
        help="How the file is divided into texts.",
    ).optional(lambda c: c.source == "texts")
    head = lab.Select[str](
        "Head",
        lambda c: list(c.measurement.heads),
        lambda c: c.measurement.scores.name(c.measurement.default_head),
        of=lambda c: (c.ref, c.measurement.config.kind),
        also=lambda c: {
            "on_change": _store_head,
            "args": (c.measurement, c.ref),
        },
        help="One of the heads; a click in the scatter picks one, too.",
    )
    measure = lab.Select[str](
        "Sorted by",
        lambda c: {ROLE: c.own_measure} | {one.key: one.name for one in c.measurement.measures},
        help="The measure that the texts below are sorted by; of a head without a role its entropy.",
    )
    view = lab.Segmented(
        "Show",
        {
            "strongest": "Strongest",
            "typical": "Typical",
            "weakest": "Weakest",
            "map": "Queries and keys",
        },
        help="Texts with the largest values, at each tenth of all, or with the smallest, where a role fails; or the "
        "head's queries and keys.",
        also={"wrap": True},
    )
    colour = lab.Segmented(
        "Colour",
        {"token": "Token", "position": "Position"},
        help="Points of the most frequent tokens, or by their position in their text.",
    )
    run = lab.LinkedValue("")  # the measurement of a link, by its id
    data = lab.SessionValue("")  # a person's own texts, or their reference
    # the model and the head that was picked here or taken over
    known = lab.SessionValue[object](None)

    @property
    def noun(self) -> str:
        """What the model reads, of which there are hundreds."""
        return "picture" if self.model.reads == "picture" else "text"

    @property
    def at(self) -> Head:
        return self.measurement.heads[self.head]

    @property
    def own_measure(self) -> str:
        has_role = self.at in self.measurement.scores.head_roles
        name = self.measurement.role_measure(self.at).name
        return f"Its role: {name}" if has_role else f"No role: {name}"

    @property
    def sorted_by(self) -> study.Measure:
        own = self.measure == ROLE
        return self.measurement.role_measure(self.at) if own else study.BY_KEY[self.measure]


ROLE = "role"  # of the measure: that of the head's own role

key = "corpus:{}".format  # a widget's key, which is also its name in the link


def draw_controls() -> Controls | None:
    """Draw the controls of the measurement and of the scatter; None after a message when there is no model."""
    *row, rest = st.columns([1.3, 1.3, 1.6], vertical_alignment="bottom")
    rest = rest.container(horizontal=True)  # side by side on a phone, too
    choice = lab.choose_model(("model",), has_inputs=False, columns=row)
    if choice is None:
        return None
    with lab.input_errors():
        config = _config(choice.ref, choice.model, row[1], rest)
        given = {"ref": choice.ref, "model": choice.model, "config": config}
        return Controls.draw("x", "y", into=rest.popover("Axes", width="stretch"), **given)
    return None


def _config(
    ref: lab.ModelRef,
    pretrained: Pretrained,
    column: DeltaGenerator,
    options_column: DeltaGenerator,
) -> study.CorpusConfig | None:
    model = lab.config_name(ref)
    sources = [
        one
        for one in SOURCES
        if (study.has_training_data(model) if one == "training" else pretrained.reads_text)
    ]
    reject_if(
        not sources,
        f"{pretrained.name} reads {pretrained.reads}s, and the lab has no corpus of these. Take "
        "a model that reads text.",
    )
    source = Controls.draw(
        "source",
        into=column,
        sources=sources,
        first="training" if "training" in sources else "own",
    ).source
    # The settings of the measurement in a popover; while it is closed, those of the session
    lab.link_data(key("data"), "")
    panel = options_column.popover(
        "Corpus",
        width="stretch",
        on_change="rerun",
        key=key("panel"),
        help="Your own texts, how many are measured, and whether heads are switched off.",
    )
    given = {"source": source, "model": pretrained}
    with panel:
        options = Controls(**given).draw_or_read(
            "count", "ablation", "kind", "split", opened=panel.open
        )
        if panel.open and source == "texts":
            lab.data_widget(
                Param(
                    "data",
                    "Your texts",
                    default="",
                    meaning="Plain text",
                    longest=reading.MAX_SIGNS,
                ),
                key("data"),
            )
            st.caption(
                f"At most {study.MAX_TEXTS:,} texts of {study.LONGEST:,} characters; of each, {study.MAX_TOKENS} "
                "tokens are read."
            )
    kind: Literal["self", "causal"] = options.kind or "self"
    if pretrained.reads == "text":  # the kind of the one that it has, by its maps of a text
        kind = (
            "causal"
            if "self"
            not in lab.reading_of(ref, ModelInputs(model_inputs.text_of(ref.name))).trace.kinds
            else "self"
        )
    split: study.Split = options.split or "lines"
    try:
        data = ""
        if source == "texts":
            data = Controls.data.value
            study.split_texts(reading.read(data), split)
        return study.CorpusConfig(
            model, source, data, split, kind, count=options.count, ablation=options.ablation
        )
    except ConfigError as error:
        lab.field_error(error)
    return None


def draw_head_controls(controls: Controls) -> Controls:
    """Draw what is shown of which head; a head that was picked on another page since is taken over."""
    ref, measurement = controls.ref, controls.measurement
    picked = lab.current_head_of(ref, measurement.config.kind, measurement.scores.score.shape[1:])
    if picked is not None and Controls.known.value != (ref, picked):
        Controls.known.value = ref, picked
        if (name := measurement.scores.name(picked)) in measurement.heads:
            Controls.set(head=name)
            st.query_params.update(Controls.state(head=name))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        controls = controls.draw_more("view", into=lab.HERE)
        with st.popover("Head", help="The head, and the measure that its texts are sorted by"):
            return controls.draw_more("head", "measure", into=lab.HERE)


def _store_head(measurement: study.Measurement, ref: lab.ModelRef) -> None:
    head = Controls.read("head", measurement=measurement, ref=ref).at
    Controls.known.value = ref, head
    lab.choose_head(ref, measurement.config.kind, head)


# The page Heads over a corpus: a scatter of heads, one head over all texts, the texts that show it, and its map.


def page() -> None:
    lab.title(
        "Heads over a corpus",
        "Do heads read alike? Each dot is a head, measured on hundreds of texts.",
    )
    lab.fragment_unless_measuring(_view)
    papers = [
        *(
            f"**{measure.name}** — {lab.plain(measure.meaning)}. {measure.source}"
            for measure in study.AXES
        ),
        "Queries and keys in one plane: "
        "[Yeh et al. 2023](https://arxiv.org/abs/2305.03210), AttentionViz.",
    ]
    lab.details(
        "Papers and source",
        partial(
            lab.sources, "\n\n".join(papers), study.measure_texts, study.Corpus, study.joint_map
        ),
        key("source-code"),
    )


def _view() -> None:
    controls = draw_controls()
    if controls is None:
        return
    lab.measurement(
        "corpus",
        Controls.run,
        controls.config,
        study.SAVED,
        study.read_measurement,
        partial(_draw, controls=controls),
        draw.progress,
        "These texts were not measured with this model yet."
        if controls.config
        else "Open Corpus, and paste texts or upload a file.",
        "A worker measures the texts one by one; Stop keeps what there is.",
        ("The heads appear here while the texts are measured.", draw.HEIGHT),
    )


@lab.input_errors()
def _draw(measurement: study.Measurement, controls: Controls) -> None:
    if not measurement.corpus.read:
        if measurement.live:
            lab.placeholder(
                "The model is loaded; the first heads appear in about five seconds.", draw.HEIGHT
            )
        return
    controls = Controls(**vars(controls), measurement=measurement)
    ref, noun, scatter = controls.ref, controls.noun, st.container()
    controls = draw_head_controls(controls)
    head, measure = controls.at, controls.sorted_by
    x, y = (axis_of(controls, one) for one in (controls.x, controls.y))
    of_head = lab.computed(study.head_values, measurement, measure.key, head)
    name = measurement.scores.name(head)
    with scatter:
        # The scatter and the roles below it
        left, right = st.columns([1.7, 1], gap="medium")
        with left:
            if measurement.scores.head_roles:
                lab.fact(draw.common_text(measurement))
            texts = draw.about(f"{measurement.corpus.read:,} texts", noun)
            lab.role_line(measurement.scores.head_roles, len(measurement.heads), texts, "dot")
            _scatter(controls, x, y)
    with right:
        # Draw the picked head's values over all texts, and its mean
        lab.draw_chart(
            st,
            draw.histogram(of_head.values, measure, f"{noun}s", lab.theme()),
            key=key("histogram"),
            alt=f"How many {noun}s have which {lab.lower_name(measure.name)} in {name}",
            heading=f"{measure.name} of {name}",
        )
        lab.fact(draw.about(draw.fact_text(measurement, measure, head, of_head), noun))
    results: dict[str, Any] = {}
    if controls.view == "map":
        if (plane := draw_map(controls)) is not None:
            results["plane"] = plane
    else:
        # Draw the texts that show the head, with a row of each map
        examples = results["examples"] = examples_of(controls)
        expected = before = ""
        if measure.role and measure.role.targets:
            expected = ", and the keys that the role expects are underlined"
            if controls.view == "weakest":  # how often the role fails
                before = (
                    f"In {int((of_head.values < 0.5).sum()):,} of {of_head.count:,} texts the head takes less "
                    f"than half from {measure.role.attends_to}. "
                )
        lab.caption(
            draw.about(
                f"{before}{draw.VIEW_NOTES[controls.view]} The query is outlined, each token has the colour of its "
                f"weight{expected}.",
                noun,
            )
        )
        st.html(draw.marked_table(examples, measure, noun, lab.theme()))
        if examples:
            # A link to the whole map of the head on one of the texts; none for pictures
            index = examples[0].text
            written, step = (
                study.load_inputs(measurement.run)[index].text,
                lab.step_of("pretrained"),
            )
            if written:
                st.page_link(
                    step.page(),
                    label=f"Open text {index + 1} in {step.title}",
                    icon=step.icon,
                    query_params={"head": f"{head[0]}.{head[1]}", lab.TEXT: written}
                    | {lab.MODEL: ref.written},
                )
    stories = [draw.EXAMPLES] if results.get("examples") else []
    lab.as_python(
        corpus=measurement.corpus,
        x=x,
        y=y,
        of_head=of_head,
        **results,
        draw=draw.CODES,
        also=stories,
    )
    with lab.settings_panel("How sure the mean is, and how it was measured"):
        st.latex(
            r"\bar{x} \pm t_{n-1}\,\frac{s}{\sqrt{n}}"
            rf" = {lab.latex(of_head.mean)} \pm {lab.latex(of_head.half)}, \qquad n = {of_head.count}",
            width="content",
        )
        for text in (
            draw.spread_text(measurement, of_head.values, head),
            lab.plain(draw.caption_text(measurement, lab.load_model(ref))),
        ):
            lab.caption(draw.about(text, noun))
    st.download_button(
        "All heads, CSV",
        lambda: draw.to_csv(measurement),
        "heads-over-a-corpus.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


def _scatter(controls: Controls, x: study.Axis, y: study.Axis) -> None:
    measurement = controls.measurement
    if missing := [one.measure for one in (x, y) if np.isnan(one.mean).all()]:
        measure = missing[0]
        # Why a measure has no values, and what would give some
        why = {
            study.ABLATION: "the model answers none of these texts, as one that fills masks",
            study.ABLATION_LOGIT: "the model gives no logit for these texts",
            study.COPYING.key: "this model reads and writes no tokens, or has no matrices of single heads",
        }.get(measure.key, "none of these texts can show it")
        text = f"{measure.name} has no values: {why}."
        if measure.key in (study.ABLATION, study.ABLATION_LOGIT):
            if not measurement.config.ablation:
                text = f"{measure.name} was not measured here. Turn on “Switch heads off” in Corpus, and measure again."
            elif study.ABLATION_LOGIT not in measurement.corpus.measures:
                text = f"{measure.name} was measured without its sign by an earlier version. Measure again."
        st.info(text, icon=":material/edit:")
        return

    def pick() -> None:
        point = lab.pressed_point(key("scatter"), "head")
        if point and point["name"] in measurement.heads:
            Controls.set(head=point["name"])
            _store_head(measurement, controls.ref)

    spec = draw.head_scatter(measurement, x, y, controls.at, lab.theme())
    lab.draw_chart(
        st,
        *lab.split_data(lab.titles_as_marks(spec, lab.Ink.of(lab.theme()))),
        key=key("scatter"),
        alt="Every head as a point of two measures",
        heading="Every head",
        selection_mode="head",
        on_select=pick,
    )


# The joint map of a head's queries and keys.


def draw_map(controls: Controls) -> study.HeadPlane | None:
    """Draw the head's queries and keys as points of one plane; returns that of all texts, None while some are unread."""
    measurement, head = controls.measurement, controls.at
    if measurement.live:
        st.info("The map is drawn once the measurement has ended.", icon=":material/info:")
        return None
    ref, run, kind = controls.ref, measurement.run, measurement.config.kind
    with st.spinner("Reading queries and keys"):
        short, texts = (
            study.shorten(lab.load_model(ref)),
            lab.study_of(study.texts_of_map, ref, run),
        )
    read = lab.measure_with_progress(
        VECTORS,
        (ref, str(run.path), kind),
        range(len(texts)),
        lambda text: study.text_vectors(short, texts[text], kind),
        f"{controls.noun}s",
        lab.UNASKED,
    )
    if not read:
        return None
    vectors = study.join_vectors(list(read.values()))
    lab.recorded(study.map_vectors, (ref, run), vectors)
    plane = lab.computed(study.head_plane, vectors, *head)
    points = plane.points
    colour = Controls.draw("colour", into=lab.HERE).colour
    name = measurement.scores.name(head)
    lab.draw_chart(
        st,
        draw.joint_chart(points, vectors, colour, lab.theme()),
        key=key("map"),
        alt=f"Queries and keys of {name} in the plane of most variance",
        heading=f"Queries ● and keys ▲ of {name} in the plane of most variance",
    )
    lab.caption(
        draw.about(
            (
                f"{len(vectors.tokens):,} queries and keys of {name} from the first "
                f"{int(vectors.texts[-1]) + 1} texts, projected onto the plane in which they vary most: "
                f"it holds {lab.percent(sum(points.share))} of their variance. The queries were multiplied by "
                f"{lab.number(points.scale)}, the keys divided by it and moved to the mean of the queries, which changes no "
                f"weight. The correlation of nearness in the plane, −distance², with q·k is {lab.signed(plane.near)}."
            ),
            controls.noun,
        )
    )
    return plane if len(read) == len(texts) else None
