"""The controls: the model, the texts, two measures for the axes, and the head with what is shown of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

import streamlit as st

from core.corpus import MEASURES, CorpusConfig, Measure
from core.corpus.config import DEFAULT_TEXTS, MOST_TEXTS, Split
from core.corpus.measures import AXES, BY_KEY
from core.corpus.statistics import MOST_TOKENS
from core.corpus.texts import LONGEST, has_training_data, split_texts
from core.entries import ConfigError, Param
from core.interpret.trace import Head, Kind
from core.pretrained import ModelInputs, Pretrained, PretrainedError
from core.pretrained.example_inputs import text_of
from core.runs.runs import Run
from core.tasks import data_store
from core.tasks.reading import MOST_SIGNS
from dashboard.runtime.link_values import between, link_value, one_of
from dashboard.ui.fine_tuned_models import config_name
from dashboard.ui.presentation import pressed_point
from dashboard.ui.uploads import data_widget, link_data
from dashboard.views.corpus.compute import Measurement
from dashboard.widgets.model_picker import EMBEDDED, ModelRef, load_model, reading_of
from dashboard.widgets.model_picker.choose import OTHER, PANELS, input_errors, model_box
from dashboard.widgets.model_picker.head_choice import (
    KIND_HELP,
    KINDS,
    choose_head,
    current_head_of,
)
from dashboard.widgets.model_picker.models import MODEL
from dashboard.widgets.model_picker.resolve import other_panel, resolve_model
from dashboard.widgets.panels import field_error
from dashboard.widgets.params import BOUND, KEEP

SOURCES = {
    "own": "The lab's 300 sentences",
    "training": "Its training data",
    "texts": "Your own texts",
}
SPLITS = {"lines": "One a line", "paragraphs": "One a paragraph"}
VIEWS = {
    "strongest": "Strongest",
    "typical": "Typical",
    "weakest": "Weakest",
    "map": "Queries and keys",
}
KINDS_OF_TEXT: list[Kind] = ["self", "causal"]
COLOURS = {"token": "Token", "position": "Position"}
ROLE = "role"  # of the measure: that of the head's own role
X, Y = "distance", "entropy"
LAST = "corpus:last"  # in the session

key = "corpus:{}".format  # a widget's key, which is also its name in the link


@dataclass(frozen=True)
class Controls:
    """The model, what is measured of it (None, with the reason on the page, while that is not known), and both axes."""

    ref: ModelRef
    config: CorpusConfig | None
    x: Measure
    y: Measure

    @property
    def noun(self) -> str:
        """What the model reads, of which there are hundreds."""
        return "picture" if load_model(self.ref).reads == "picture" else "text"


@dataclass(frozen=True)
class HeadControls:
    """The picked head, its measure, and what is shown of it."""

    head: Head
    measure: Measure
    view: str


@dataclass(frozen=True)
class Last:
    """What the last run of the page drew: its measurement, its controls, and its other settings."""

    run: Run
    controls: Controls
    settings: dict[str, Any]


def other_settings() -> dict[str, Any]:
    """What the session holds of the page but for the scatter's axes and its head."""
    own = (LAST, *map(key, ("x", "y", "head", "known", "scatter", "measure", "view")))
    return {
        str(name): value
        for name, value in st.session_state.items()
        if name == MODEL or str(name).startswith("corpus:") and name not in own
    }


def axes_now(controls: Controls) -> Controls:
    """The controls with the axes that the session holds, before they are drawn."""
    held = st.session_state
    return replace(
        controls,
        x=BY_KEY[held.get(key("x"), controls.x.key)],
        y=BY_KEY[held.get(key("y"), controls.y.key)],
    )


def head_now(measurement: Measurement) -> Head | None:
    """The head that the session holds, before it is drawn."""
    return measurement.heads.get(st.session_state.get(key("head"), ""))


def draw_controls() -> Controls | None:
    """Draw the controls of the measurement and of the scatter; None after a message when there is no model."""
    row = st.columns([1.3, 1.3, 0.8, 1, 1], vertical_alignment="bottom")
    name = model_box(row[0], EMBEDDED)
    with input_errors():
        if name == OTHER:
            other_panel(st)
        elif name in PANELS:
            raise PretrainedError(
                "Arrays hold the attention of one text; choose a model, which reads hundreds."
            )
        elif (ref := resolve_model(name)) is not None:
            pretrained = load_model(ref)
            config = _config(ref, pretrained, row[1], row[2])
            return Controls(
                ref, config, *(_axis(*one) for one in (("x", X, row[3]), ("y", Y, row[4])))
            )
    return None


def _axis(name: str, default: str, column: Any) -> Measure:
    keys = [measure.key for measure in AXES]
    label = {"x": "Across", "y": "Upwards"}[name]
    chosen = column.selectbox(
        label,
        keys,
        keys.index(default),
        key=key(name),
        **BOUND,
        format_func=lambda one: BY_KEY[one].name,
        help="What the scatter shows of every head on this axis: the mean over texts, or OV "
        "copying, which is read from the weights.",
    )
    return BY_KEY[chosen]


def _config(
    ref: ModelRef, pretrained: Pretrained, column: Any, options_column: Any
) -> CorpusConfig | None:
    model = config_name(ref)
    sources = [one for one in SOURCES if one != "training" or has_training_data(model)]
    if not pretrained.reads_text:
        sources = [one for one in sources if one == "training"]
    if not sources:
        raise PretrainedError(
            f"{pretrained.name} reads {pretrained.reads}s, and the lab has no corpus of these. Take "
            "a model that reads text."
        )
    first = "training" if "training" in sources else "own"
    source = column.selectbox(
        "Texts",
        sources,
        sources.index(first),
        key=key(f"source:{first}"),
        **BOUND,
        format_func=SOURCES.__getitem__,
        help=f"At most {MOST_TEXTS:,} texts are measured.",
    )
    options = _options(ref, pretrained, source, options_column)
    try:
        data = str(st.session_state.get(key("data"), "")) if source == "texts" else ""
        if data or source == "texts":
            split_texts(data_store.read(data), options["split"])
        return CorpusConfig(model, source, data, **options)
    except ConfigError as error:
        field_error(error)
    return None


def _only_kind(ref: ModelRef, pretrained: Pretrained) -> Kind:
    """The kind of attention of a model that has one kind, by its maps of a text; "self" for others."""
    if pretrained.reads != "text":
        return "self"
    kinds = reading_of(ref, ModelInputs(text_of(ref.name))).trace.kinds
    return "causal" if "self" not in kinds else "self"


def _options(ref: ModelRef, pretrained: Pretrained, source: str, column: Any) -> dict[str, Any]:
    """The settings of the measurement in a popover; while it is closed, those of the session."""
    usual = {
        "split": "lines",
        "kind": _only_kind(ref, pretrained),
        "count": DEFAULT_TEXTS,
        "ablation": False,
    }
    readers = {
        "split": one_of(get_args(Split)),
        "kind": one_of(KINDS),
        "count": between(1, MOST_TEXTS),
        "ablation": one_of([True, False]),
    }
    link_data(key("data"), "")
    for name, value in usual.items():
        if name != "kind":
            link_value(key(name), value, readers[name])
    kind: Kind = usual["kind"]  # type: ignore[assignment]
    if pretrained.reads == "pair":
        link_value(key("kind"), "self", readers["kind"])
        kind = st.session_state.get(key("kind"), "self")
    panel = column.popover(
        "Corpus",
        icon=":material/notes:",
        width="stretch",
        on_change="rerun",
        key=key("panel"),
        help="Your own texts, how many are measured, and whether heads are switched off.",
    )
    if panel.open:
        with panel:
            _draw_options(pretrained, source)
    values = {
        name: st.session_state.get(key(name), value)
        for name, value in usual.items()
        if name != "kind"
    }
    if source != "texts":
        values["split"] = "lines"
    return values | {
        "kind": st.session_state.get(key("kind"), kind) if pretrained.reads == "pair" else kind
    }


def _draw_options(pretrained: Pretrained, source: str) -> None:
    st.number_input(
        "Texts, at most",
        1,
        MOST_TEXTS,
        DEFAULT_TEXTS,
        key=key("count"),
        **KEEP,
        help="The first so many of the corpus are measured.",
    )
    st.toggle(
        "Switch heads off",
        key=key("ablation"),
        **KEEP,
        help="Measure how much the answer changes without each head: one pass a head and text, so about as many "
        "times longer as the model has heads.",
    )
    if pretrained.reads == "pair":
        st.selectbox(
            "Attention",
            KINDS_OF_TEXT,
            key=key("kind"),
            help=KIND_HELP,
            format_func=KINDS.__getitem__,
            **KEEP,
        )
    if source == "texts":
        st.segmented_control(
            "Texts are",
            list(SPLITS),
            default="lines",
            key=key("split"),
            required=True,
            **KEEP,
            format_func=SPLITS.__getitem__,
            help="How the file is divided into texts.",
        )
        data_widget(
            Param("data", "Your texts", "", meaning="Plain text", longest=MOST_SIGNS), key("data")
        )
        st.caption(
            f"At most {MOST_TEXTS:,} texts of {LONGEST:,} characters; of each, {MOST_TOKENS} tokens are read."
        )


def draw_head_controls(measurement: Measurement, ref: ModelRef) -> HeadControls:
    """Draw the choice of a head, of what is measured of it, and of what is shown."""
    names = list(measurement.heads)
    _take_head(measurement, ref)
    row = st.columns([1, 1.4, 2.4], vertical_alignment="bottom")
    default = names.index(measurement.scores.name(measurement.default_head))
    name = row[0].selectbox(
        "Head",
        names,
        default,
        key=key("head"),
        **BOUND,
        on_change=_store_head,
        args=(measurement, ref),
        help="One of the heads; a click in the scatter picks one, too.",
    )
    head = measurement.heads[name]
    keys = [ROLE, *(one.key for one in measurement.measures)]
    has_role = head in measurement.scores.head_roles
    own = f"{'Its role' if has_role else 'No role'}: {measurement.role_measure(head).name}"
    chosen = row[1].selectbox(
        "Sorted by",
        keys,
        key=key("measure"),
        **BOUND,
        help=(
            "The measure that the texts below are sorted by; of a head without a role its entropy."
        ),
        format_func=lambda one: own if one == ROLE else BY_KEY[one].name,
    )
    view = row[2].segmented_control(
        "Show",
        list(VIEWS),
        default="strongest",
        key=key("view"),
        required=True,
        **BOUND,
        format_func=VIEWS.__getitem__,
        wrap=True,
        help="Texts with the largest values, "
        "at each tenth of all, or with the smallest, where a role fails; or the head's "
        "queries and keys.",
    )
    measure = measurement.role_measure(head) if chosen == ROLE else BY_KEY[chosen]
    return HeadControls(head, measure, view or "strongest")


def draw_colour() -> str:
    """Draw the choice of the points' colour."""
    return (
        st.segmented_control(
            "Colour",
            list(COLOURS),
            default="token",
            key=key("colour"),
            required=True,
            **BOUND,
            format_func=COLOURS.__getitem__,
            help="Points of the most frequent tokens, or by their position in their text.",
        )
        or "token"
    )


def _take_head(measurement: Measurement, ref: ModelRef) -> None:
    """Take the head that was picked on another page since, and leave one that this model lacks."""
    state, shape = st.session_state, measurement.scores.score.shape[1:]
    head = current_head_of(ref, measurement.config.kind, shape)
    if head is not None and state.get(key("known")) != (ref, head):
        state[key("known")] = ref, head
        if (name := measurement.scores.name(head)) in measurement.heads:
            state[key("head")] = st.query_params[key("head")] = name
    if state.get(key("head"), next(iter(measurement.heads))) not in measurement.heads:
        state[key("head")] = measurement.scores.name(measurement.default_head)
    if BY_KEY.get(state.get(key("measure"), ROLE), MEASURES[0]) not in measurement.measures:
        state[key("measure")] = ROLE


def _store_head(measurement: Measurement, ref: ModelRef) -> None:
    head = measurement.heads[st.session_state[key("head")]]
    st.session_state[key("known")] = ref, head
    choose_head(ref, measurement.config.kind, head)


def pick_from_scatter(measurement: Measurement, ref: ModelRef) -> None:
    """Pick the head that was pressed in the scatter."""
    point = pressed_point(key("scatter"), "head")
    if point and point["name"] in measurement.heads:
        st.session_state[key("head")] = point["name"]
        _store_head(measurement, ref)
