"""The controls of the next run, for Train and for the buttons that open it, and which attention each layer has.

    fields = layer_pattern("train:reverse:decoder", first, model, cell)
    model = replace(model, **fields)

The first attention of the pattern is the page's own mechanism; the panel holds the others.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from html import escape
from typing import Any

import numpy as np
import streamlit as st

from core.attention import AttentionConfig, Choice, ConfigError, distinct_names, heads_that_divide
from core.attention.text import pattern_from_text, pattern_to_text
from core.entries import Param
from core.models import BOUNDS, LONGEST, STACKED, ModelConfig
from core.models.cards.base import ModelCard
from core.tasks import TASKS, TaskConfig, make_task
from core.training import PATTERNS, SAME, card_recipe, value_text
from core.training.settings import RATE, WIDTH
from dashboard.draw.figures import CATEGORIES
from dashboard.draw.formats import plain
from dashboard.fields.base import (
    Field,
    Fields,
    N,
    Of,
    Select,
    SelectSlider,
    config_error,
    guarded,
)
from dashboard.fields.link import KEEP, between, link_value
from dashboard.fields.mechanism import keep_heads, mechanism
from dashboard.fields.reset import BUILT, BUILT_THEN
from dashboard.navigation import step_of
from dashboard.ui.panels import lazy_panel, theme
from dashboard.ui.runs import MODEL_NAMES

# The controls of the next run, as far as buttons of other pages set it, too.


WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
RATES = (1e-5, 1e-4, 2e-4, 4e-4, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.3, 1.0)
MAX_HEADS_ON_OFFER = 16
heads_of = partial(heads_that_divide, max_heads=MAX_HEADS_ON_OFFER)


def nearest_heads(d_model: int, most: int) -> int:
    return max(heads for heads in heads_of(d_model) if heads <= most)


@dataclass(frozen=True)
class ParamSlider(Field[N]):
    """A number of a `param` along `stops`; a link may bring any other that the parameter takes."""

    param: Param | Of = field(kw_only=True)
    stops: tuple[float, ...] = field(kw_only=True)
    text: Callable[[Any], str] = field(default=str, kw_only=True)

    def param_of(self, controls: Any) -> Param:
        return self.param(controls) if callable(self.param) else self.param

    def start(self, controls: Any) -> Any:
        return self.param_of(controls).default

    def value_of(self, text: str, controls: Any) -> Any:
        param = self.param_of(controls)
        return param.check(type(param.default)(text), param.name)

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        options = sorted({*self.stops, start, st.session_state.get(shared["key"], start)})
        return st.select_slider(str(self.label), options, start, format_func=self.text, **shared)


class NextRun(Fields, page="train"):
    """Task, model and sizes of the next run; each task and model has settings of its own."""

    task = Select[str](
        "Task",
        {item.key: item.name for item in TASKS},
        hidden=True,
        always=lambda c: "run" in st.query_params,  # a run alone brings its own set-up
        help="What the model learns. The tasks on your own data come last.",
    )
    kind = Select[str](
        "Model",
        lambda c: {
            kind: {
                ("transformer", "patches"): "Image to text",
                ("classifier", "patches"): "Vision Transformer",
            }.get((kind, c.input), MODEL_NAMES[kind])
            for kind in c.kinds
        },
        key=lambda c: f"{c.task}:kind",
        hidden=True,
        help="The architecture that is trained. Each has settings of its own.",
    )
    d_model = ParamSlider[int](
        "d_model",
        param=lambda c: replace(WIDTH, default=c.usual),
        stops=WIDTHS,
        key=lambda c: f"{c.name}:d_model",
        hidden=True,
        also=lambda c: keep_heads(
            f"{c.prefix}:d_model", lambda width: f"{c.prefix}:heads:{width}", heads_of
        ),
        help=WIDTH.help,
    )
    heads = SelectSlider[int](
        "Heads",
        lambda c: heads_of(c.d_model),
        lambda c: nearest_heads(c.d_model, c.base.model.num_heads),
        key=lambda c: f"{c.name}:heads:{c.d_model}",
        hidden=True,
        help="The number of attention heads in each layer. Only numbers that divide d_model.",
    )
    rate = ParamSlider[float](
        "Learning rate",
        param=lambda c: replace(RATE, default=c.base.learning_rate),
        stops=RATES,
        # No two rates have the same text, by which the slider tells them apart.
        text=lambda rate: np.format_float_scientific(rate, trim="-", exp_digits=1).replace("+", ""),
        key=lambda c: f"{c.name}:rate",
        hidden=True,
        help=RATE.help,
    )

    @property
    def name(self) -> str:
        return f"{self.task}:{self.kind}"

    @property
    def prefix(self) -> str:
        """Of the keys of all settings of this task and model."""
        return f"{self.page_key}:{self.name}"


# The buttons that take a mask, a position or a model's pattern from another page to Train, for the next run.


def attention_key(name: str) -> str:
    return f"{name}:attention:now"


def train_with(axis: str, choice: Choice, *, key: str) -> None:
    """Draw the button; a press opens Train with this choice on its axis, all else as the task recommends."""
    if not st.button(
        "Train a model with it",
        icon=":material/play_circle:",
        type="tertiary",
        key=key,
        help=f"Open Train and watch with this {axis} in the model; the rest of the model is as the task recommends.",
    ):
        return
    task, model = _stacked_model(NextRun.read("task").task)
    recommended = ModelConfig.from_json(
        make_task(TaskConfig.of(task)).recommended[model].model
    ).attention
    try:
        config = recommended.with_(**{axis: choice})
    except ConfigError as error:
        st.error(plain(str(error)))
        return
    opened = NextRun(task=task, kind=model)
    _open_train({**NextRun.state(task=task, kind=model), attention_key(opened.prefix): config})


def train_small(card: ModelCard, *, key: str) -> None:
    """Draw the button; a press opens Train with the card's pattern of layers in a model of a few heads."""
    if not st.button(
        "Train it small",
        icon=":material/play_circle:",
        key=key,
        help="Open Train with the same pattern of layers, with 64 dimensions and short windows.",
    ):
        return
    config = card_recipe(card)
    model, sizes = config.model, {"d_model": config.model.d_model, "heads": config.model.num_heads}
    opened = NextRun(task=config.task.key, kind=model.kind)
    _open_train(
        {
            **NextRun.state(**vars(opened), **sizes),
            attention_key(opened.prefix): model.attention,
            **{
                f"{opened.prefix}:{field}": getattr(model, field)
                for field in ("following", "layers", "norm", "pool")
            },
        }
    )


def _open_train(values: dict[str, Any]) -> None:
    st.session_state.update({**values, BUILT_THEN: st.session_state.get(BUILT)})
    # Without query_params the switch would clear the link, which bound widgets of this page forbid.
    st.switch_page(step_of("train").page(), query_params={})


def _stacked_model(task: str) -> tuple[str, str]:
    """The task and the first of its models that reads positions and masks; the first task's where it has none."""
    for key in (task, TASKS[0].key):
        for model in make_task(TaskConfig.of(key)).recommended:
            if model in STACKED and model != "one_token":
                return key, model
    raise AssertionError("the first task has a stacked model")


STRIP = (
    "display:grid;grid-auto-flow:column;grid-auto-columns:minmax(6px,22px);gap:2px;margin:2px 0 6px"
)
CELL = "height:18px;border-radius:3px;background:{colour}"
HOLLOW = ";box-shadow:inset 0 0 0 6px {colour};background:transparent"  # without keys of its own

PLACES = {"decoder_attention": "Decoder's self-attention", "cross_attention": "Cross-attention"}
CUSTOM = "custom"
Attentions = tuple[AttentionConfig, ...]


def layer_pattern(
    name: str, model: ModelConfig, cell: st.delta_generator.DeltaGenerator
) -> dict[str, Any]:
    """Draw the panel; the fields of a ModelConfig that a pattern sets, none for a model without layers.

    `model` has the first attention, the sizes and the number of layers. Raises ConfigError, after the widgets are
    drawn, for an attention that cannot have the model's sizes.
    """
    if model.kind not in STACKED or model.kind == "one_token":
        return {}
    first = model.attention
    _link(name, model)
    problems: list[str] = []
    panel = lazy_panel("Layers with unlike attentions", f"{name}:pattern", cell)
    if panel.open:
        with panel:
            _edit(name, model, problems)
        _link(name, model)  # what has just been changed
    if problems:
        raise ConfigError(problems[0])
    fields: dict[str, Any] = {"following": tuple(_at(one, first) for one in _following(name))}
    if model.kind == "decoder":
        fields["kv_shared_layers"] = st.session_state.get(f"{name}:kv_shared_layers", 0)
    if model.kind == "transformer":
        fields |= {
            place: own and _at(own, first)
            for place in PLACES
            for own in [st.session_state.get(f"{name}:{place}")]
        }
    return fields


def adopt_pattern(name: str, model: ModelConfig) -> dict[str, Any]:
    return {
        f"{name}:{field}": getattr(model, field)
        for field in ("following", "kv_shared_layers", *PLACES)
    }


def pattern_changes(fields: dict[str, Any]) -> list[str]:
    count, shared = len(fields.get("following", ())), fields.get("kv_shared_layers")
    own = [f"{label.lower()} of its own" for place, label in PLACES.items() if fields.get(place)]
    texts = [
        f"a pattern of {count + 1} layers" if count else "",
        f"{shared} layers with shared keys and values" if shared else "",
    ]
    return [*filter(None, texts), *own]


def _link(name: str, model: ModelConfig) -> None:
    sizes = (model.d_model, model.num_heads)
    link_value(
        f"{name}:following", (), lambda text: pattern_from_text(text, sizes), pattern_to_text
    )
    if model.kind == "decoder":
        link_value(f"{name}:kv_shared_layers", 0, between(*BOUNDS["kv_shared_layers"]))
    if model.kind == "transformer":
        for place in PLACES:
            link_value(
                f"{name}:{place}",
                None,
                lambda text: pattern_from_text(text, sizes)[0],
                lambda config: pattern_to_text([config]),
            )


def _following(name: str) -> Attentions:
    return st.session_state.get(f"{name}:following", ())


def _at(config: AttentionConfig, first: AttentionConfig) -> AttentionConfig:
    return config.with_(d_model=first.d_model, num_heads=first.num_heads, dropout=first.dropout)


def _edit(name: str, model: ModelConfig, problems: list[str]) -> None:
    first, state = model.attention, st.session_state
    key, known = f"{name}:pattern:published", published(model.kind, model.d_model, model.num_heads)
    pattern = (first, *(_resized(one, first) for one in _following(name)))
    same = [
        card
        for card, attentions in known.items()
        if tuple(_at(one, first) for one in attentions) == pattern
    ]
    state[key] = same[0] if same else CUSTOM if pattern[1:] else SAME
    st.selectbox(
        "Pattern",
        [SAME, *known, *[CUSTOM] * (state[key] == CUSTOM)],
        key=key,
        on_change=guarded(key, _take_published),
        args=(name, model),
        format_func=pattern_label,
        help="The pattern of a published model, from its card, with small windows; it sets the mechanism and "
        "all that follows.",
    )
    count_key, shown = f"{name}:pattern:count", f"{name}:pattern:shown"
    state[count_key] = len(_following(name)) + 1

    def set_count() -> None:
        count, following = state[count_key] - 1, _following(name)
        state[f"{name}:following"] = (
            *following,
            *((following or (first,))[-1:] * (count - len(following))),
        )[:count]

    st.number_input(
        "Attentions in the pattern",
        1,
        LONGEST,
        key=count_key,
        on_change=guarded(count_key, set_count),
        help="The layers take these attentions in turn: with two, every second layer has the second one. "
        "The first is the mechanism above.",
    )
    strip = st.empty()
    if following := _following(name):
        options = list(range(len(following)))
        if state.get(shown) not in options:
            state[shown] = 0
        index = st.segmented_control(
            "Layer of the pattern",
            options,
            key=shown,
            required=True,
            **KEEP,
            format_func=lambda index: f"Layer {index + 2}",
            help="Which attention of the pattern the controls below change.",
        )
        at = int(index or 0)
        state[f"{name}:following"] = (
            *following[:at],
            _mechanism(f"{name}:pattern:{at}", following[at], first, problems),
            *following[at + 1 :],
        )
    if model.kind == "decoder":
        key, most = f"{name}:kv_shared_layers", model.layers - 1
        state[key] = min(most, state.get(key, 0))
        st.number_input(
            "Layers that share keys and values",
            0,
            most,
            key=key,
            **KEEP,
            help="The last layers compute no keys and values: each takes those of the last layer before "
            "them with the same attention (Gemma 3n).",
        )
    if model.kind == "transformer":
        for place, label in PLACES.items():
            key, toggle = f"{name}:{place}", f"{name}:{place}:own"
            own = state.get(key)
            state[toggle] = own is not None
            st.toggle(
                f"{label} of its own",
                key=toggle,
                on_change=guarded(toggle, _set_own),
                args=(key, toggle, first),
                help="Without it, the decoder has the attention of the layer in the pattern.",
            )
            if own is not None:
                state[key] = _mechanism(f"{key}:editor", own, first, problems)
    names = distinct_names([_resized(one, first) for one in (first, *_following(name))])
    kinds = [names[layer % len(names)] or "the same attention" for layer in range(model.layers)]
    strip.html(layer_strip(kinds, state.get(f"{name}:kv_shared_layers", 0)))


def pattern_label(key: str) -> str:
    return "Custom" if key == CUSTOM else value_text("pattern", key)


def _take_published(name: str, model: ModelConfig) -> None:
    key = st.session_state[f"{name}:pattern:published"]
    if key == CUSTOM:
        return
    attentions = published(model.kind, model.d_model, model.num_heads).get(key, (model.attention,))
    st.session_state.update(
        {
            attention_key(name): attentions[0],
            f"{name}:following": attentions[1:],
            f"{name}:layers": max(model.layers, len(attentions)),
        }
    )


@lru_cache(maxsize=64)
def published(kind: Any, d_model: int, num_heads: int) -> dict[str, Attentions]:
    """The patterns of unlike layers that such a model can have: of published models, by their cards' keys, and of presets."""
    result = {}
    for one in PATTERNS.values():
        with suppress(ConfigError):
            attentions = one.small(d_model, num_heads)
            ModelConfig(kind, d_model, num_heads, attentions[0], following=attentions[1:])
            if len(set(attentions)) > 1:
                result[one.key] = attentions
    return result


def _resized(config: AttentionConfig, first: AttentionConfig) -> AttentionConfig:
    return config if config_error(_at, config, first) else _at(config, first)


def _set_own(key: str, toggle: str, first: AttentionConfig) -> None:
    """Give a place of the decoder the first attention, without positions that are added to the embedding, or none."""
    plain_position = (
        first
        if first.position.key not in ("sinusoidal", "learned")
        else first.with_(position="none")
    )
    st.session_state[key] = plain_position if st.session_state[toggle] else None


def _mechanism(
    key: str, stored: AttentionConfig, first: AttentionConfig, problems: list[str]
) -> AttentionConfig:
    """Draw the editor of an attention; returns the edited one, the stored one where it cannot be trained."""
    try:
        config = _at(stored, first)
    except ConfigError as error:
        st.error(plain(str(error)))
        problems.append(str(error))
        config = first
    edited = mechanism(key, config)
    if edited is None:
        problems.append(
            "An attention of the pattern cannot be trained. The reason is beside one of its axes."
        )
    return stored if edited in (None, config) else edited


# The layers of a model as a strip of cells, coloured by the kind of their attention.


def layer_strip(kinds: Sequence[str], shared: int) -> str:
    """HTML: a cell for each layer, the first one left, and a legend of the kinds; the last `shared` cells are hollow.

    Equal texts are one kind; more than eight have the same grey.
    """
    names = list(dict.fromkeys(kinds))
    palette = CATEGORIES[theme()]
    colours = {name: palette[min(index, len(palette) - 1)] for index, name in enumerate(names)}
    cells = []
    for index, kind in enumerate(kinds):
        style, words = CELL, f"Layer {index + 1}: {kind}"
        if index >= len(kinds) - shared:
            style, words = CELL + HOLLOW, f"{words}, with the keys and values of an earlier layer"
        cells.append(
            f'<span title="{escape(words)}" style="{style.format(colour=colours[kind])}"></span>'
        )
    legend = "".join(
        f'<span style="display:inline-flex;align-items:center;gap:5px;margin-right:14px"><span style="width:10px;'
        f'height:10px;border-radius:2px;background:{colours[name]}"></span>{escape(name)} × {kinds.count(name)}</span>'
        for name in names
    )
    return (
        f'<div role="img" aria-label="Layers: {escape(", ".join(kinds))}"><div style="{STRIP}">'
        f'{"".join(cells)}</div><div style="font-size:13px;line-height:20px">{legend}</div></div>'
    )
