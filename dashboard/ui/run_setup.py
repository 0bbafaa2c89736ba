"""The next run: its controls, for Train and for the buttons that open it, and which attention each layer has."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import (
    PRESETS,
    AttentionConfig,
    Choice,
    ConfigError,
    distinct_names,
    heads_that_divide,
    preset,
    preset_of,
)
from core.attention.text import from_text, pattern_from_text, pattern_to_text, to_text
from core.entries import Param
from core.models import BOUNDS, LONGEST, RECURRENT, STACKED, ModelConfig, count_parameters
from core.models.cards.base import ModelCard
from core.tasks import TASKS, Task, TaskConfig, make_task, task_entry, task_of
from core.training import (
    PATTERNS,
    SAME,
    RunConfig,
    card_recipe,
    devices,
    nanogpt,
    recommended,
    value_text,
)
from core.training.settings import (
    KINDS_WITH,
    MODEL_SETTINGS,
    RATE,
    TRAINING_SETTINGS,
    WIDTH,
)
from dashboard.draw import train as draw
from dashboard.draw.formats import plain, plural
from dashboard.fields.axis import dated
from dashboard.fields.base import (
    HERE,
    Field,
    Fields,
    N,
    Number,
    Of,
    Segmented,
    Select,
    SelectSlider,
    Toggle,
    config_error,
)
from dashboard.fields.data import DATA
from dashboard.fields.mechanism import (
    fit_heads,
    keep_heads,
    mechanism,
    note_heads,
    take_built,
    watch_built,
)
from dashboard.fields.reset import BUILT
from dashboard.fields.run import LinkedField, SettingsField
from dashboard.navigation import step_of
from dashboard.server import limits
from dashboard.server.session import SessionValue
from dashboard.ui.guide import TRIED
from dashboard.ui.panels import caption, lazy_panel, room, shown_errors, theme
from dashboard.ui.runs import MODEL_NAMES

WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
RATES = (1e-5, 1e-4, 2e-4, 4e-4, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.3, 1.0)
MAX_HEADS_ON_OFFER = 16
DIAL = {"smallest": -2, "small": -1, "medium": 0, "large": 1, "largest": 2}  # powers of two
RECOMMENDED, CUSTOM, NONE = "recommended", "own", "none"
SPECIAL = {RECOMMENDED: "Recommended", CUSTOM: "Custom", NONE: "No attention"}
USUAL = "plain"  # in a link: the default attention, which has no text
CUSTOM_PATTERN = "custom"
Attentions = tuple[AttentionConfig, ...]
heads_of = partial(heads_that_divide, max_heads=MAX_HEADS_ON_OFFER)


def nearest_heads(d_model: int, most: int) -> int:
    return max(heads for heads in heads_of(d_model) if heads <= most)


@dataclass(frozen=True)
class ParamSlider(Field[N]):
    """A number of a `param` along `stops`; a link may bring any other that the parameter takes."""

    param: Callable[[Any], Param] = field(kw_only=True)
    stops: tuple[float, ...] = field(kw_only=True)
    text: Callable[[Any], str] = field(default=str, kw_only=True)

    def start(self, controls: Any) -> Any:
        return self.param(controls).default

    def value_of(self, text: str, controls: Any) -> Any:
        param = self.param(controls)
        return param.check(type(param.default)(text), param.name)

    def widget(self, controls: Any, start: Any, shared: dict[str, Any]) -> Any:
        options = sorted({*self.stops, start, SessionValue(start, shared["key"]).value})
        return st.select_slider(str(self.label), options, start, format_func=self.text, **shared)


def pattern_label(key: str) -> str:
    return "Custom" if key == CUSTOM_PATTERN else value_text("pattern", key)


def of_setup(name: str) -> Of:
    """The key of a control of which each task and model has its own."""
    return lambda c: f"{c.name}:{name}"


def own_attention(place: str) -> LinkedField[AttentionConfig | None]:
    """An attention of the decoder that is not that of the layer's pattern; None without one."""
    return LinkedField(
        draw.PLACES[place],
        None,
        key=of_setup(place),
        from_text=lambda text, c: pattern_from_text(text, c.sizes)[0],
        to_text=lambda config: pattern_to_text([config] if config else []),
    )


class NextRun(Fields, page="train"):
    """The controls of the next run; each task and model has settings of its own."""

    task = Select[str](
        "Task",
        lambda c: {item.key: item.name for item in TASKS},  # with those of plug-ins
        hidden=True,
        always=lambda c: "run" in st.query_params,  # a run alone brings its own set-up
        help="What the model learns. From “Multi-query recall” on: benchmarks of the Scoreboard, which ask at places of the "
        "source. The tasks on your own data come last.",
    )
    task_settings = SettingsField("Task settings", key=lambda c: c.task)
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
    size = SelectSlider(
        "Size",
        list(DIAL),
        "medium",
        key=of_setup("size"),
        hidden=True,
        also=lambda c: {"on_change": resize, "args": (c, c.dialled)},
        help="Sets d_model, the feed-forward width, the layers and the steps together. A number that is "
        "set in All settings stays as it is.",
    )
    settings = SettingsField("Settings of the model and of its training", key=lambda c: c.name)
    d_model = ParamSlider[int](
        "d_model",
        param=lambda c: replace(WIDTH, default=c.usual),
        stops=WIDTHS,
        key=of_setup("d_model"),
        hidden=True,
        also=lambda c: keep_heads(c.declared["d_model"].key_of(c), c.heads_key, heads_of),
        help=WIDTH.help,
    )
    heads = SelectSlider[int](
        "Heads",
        lambda c: heads_of(c.d_model),
        lambda c: nearest_heads(c.d_model, c.base.model.num_heads),
        key=lambda c: f"{c.name}:heads:{c.d_model}",
        hidden=True,
        help="The number of attention heads in each layer. Only numbers that divide d_model.",
    ).when(lambda c: c.kind not in RECURRENT or c.base.model.num_heads > 1)
    rate = ParamSlider[float](
        "Learning rate",
        param=lambda c: replace(RATE, default=c.base.learning_rate),
        stops=RATES,
        # No two rates have the same text, by which the slider tells them apart.
        text=lambda rate: np.format_float_scientific(rate, trim="-", exp_digits=1).replace("+", ""),
        key=of_setup("rate"),
        hidden=True,
        help=RATE.help,
    )
    seed = Number(
        "Seed",
        0,
        0,
        2**31 - 1,
        hidden=True,
        help="Fixes the first weights, the data and its order: the same seed gives the same run.",
    )
    attention = LinkedField[AttentionConfig | None](
        "Attention",
        lambda c: c.usual_attention,
        key=of_setup("attention:now"),
        from_text=lambda text, c: (
            None if text == NONE else from_text("" if text == USUAL else text, c.sizes)
        ),
        to_text=lambda config: NONE if config is None else to_text(config) or USUAL,
    )
    mechanism = Select[str](
        "Mechanism",
        lambda c: c.mechanisms,
        key=of_setup("mechanism"),
        text=lambda key: SPECIAL.get(key) or dated(preset(key)),
        also=lambda c: {"bind": None, "on_change": take_mechanism, "args": (c,)},
        help="The attention mechanism. A published name sets all six axes.",
    )
    following = LinkedField[Attentions](
        "Attentions of the layers after the first",
        (),
        key=of_setup("following"),
        from_text=lambda text, c: pattern_from_text(text, c.sizes),
        to_text=pattern_to_text,
    )
    pattern = Select[str](
        "Pattern",
        lambda c: c.patterns,
        key=of_setup("pattern:published"),
        text=pattern_label,
        also=lambda c: {"bind": None, "on_change": take_pattern, "args": (c,)},
        help="The pattern of a published model, from its card, with small windows; it sets the mechanism and "
        "all that follows.",
    )
    count = Number[int](
        "Attentions in the pattern",
        1,
        1,
        LONGEST,
        key=of_setup("pattern:count"),
        also=lambda c: {"bind": None, "on_change": set_count, "args": (c,)},
        help="The layers take these attentions in turn: with two, every second layer has the second one. "
        "The first is the mechanism above.",
    )
    layer = Segmented[int](
        "Layer of the pattern",
        lambda c: range(len(c.following)),
        text=lambda index: f"Layer {index + 2}",
        key=of_setup("pattern:shown"),
        also={"bind": None},
        help="Which attention of the pattern the controls below change.",
    )
    kv_shared_layers = Number[int](
        "Layers that share keys and values",
        0,
        0,
        lambda c: c.most_shared,
        key=of_setup("kv_shared_layers"),
        hidden=True,
        help="The last layers compute no keys and values: each takes those of the last layer before "
        "them with the same attention (Gemma 3n).",
    )
    decoder_attention = own_attention("decoder_attention")
    cross_attention = own_attention("cross_attention")
    own = Toggle(
        lambda c: f"{draw.PLACES[c.own_place]} of its own",
        key=lambda c: f"{c.name}:{c.own_place}:own",
        also=lambda c: {"bind": None, "on_change": set_own, "args": (c,)},
        help="Without it, the decoder has the attention of the layer in the pattern.",
    )
    first = SessionValue[Mapping[str, str]]({})  # the first model that is recommended, by task
    built_then = SessionValue[Any](None)  # what was BUILT when settings came with a run or a button

    base: RunConfig  # what the task recommends for the model
    own_place: str  # of the attention that has a switch
    model: ModelConfig  # as the controls above make it, with the first attention of the pattern

    @property
    def name(self) -> str:
        return f"{self.task}:{self.kind}"

    @property
    def prefix(self) -> str:
        """Of the keys of all settings of this task and model."""
        return f"{self.page_key}:{self.name}"

    @property
    def sizes(self) -> tuple[int, int]:
        """d_model and the heads."""
        return self.d_model, self.heads

    @property
    def usual_attention(self) -> AttentionConfig | None:
        """The attention that the task recommends, at these sizes."""
        start = self.base.model.attention
        return start and start.with_(d_model=self.d_model, num_heads=self.heads)

    @property
    def dialled(self) -> dict[str, int]:
        """What the dial of size sets."""
        return sizes_of(self.base, NextRun.size.stored(self).value or "medium")

    def heads_key(self, d_model: int) -> str:
        return self.declared["heads"].key_of(type(self)(**vars(self) | {"d_model": d_model}))

    @classmethod
    def bring(cls, **values: Any) -> None:
        """Give fields these values, which hold until another mechanism is built."""
        cls.set(**values)
        cls.built_then.value = SessionValue[Any](None, BUILT).value


def next_run() -> RunConfig | None:
    """Draw the controls of the next run; returns what they ask for, None where it does not fit, with the reason."""
    last, move = TRIED.value or ("", None)
    shows = move.shows if move and last == NextRun.page_key else ()
    with st.container(gap="small"):
        cells = {name: st.container() for name in ("task", "own", *shows)}
        popover = st.popover(
            "All settings",
            icon=":material/tune:",
            width="stretch",
            help="Of the next run: its task, model, attention and training.",
        )
        with popover.container(width=room(320), gap="small"):  # narrow, beside the map
            hidden = "told param more model heads size sizes mechanism axes pattern rate seed training summary"
            cells |= {name: st.container() for name in hidden.split() if name not in shows}
    c, config = NextRun.draw("task", into=cells["task"]), None
    entry = task_entry(c.task)
    # All parameters of a person's own data are in sight, else the first one, and the others in a panel
    own = any(one.key == DATA for one in entry.params)
    count, cell = (len(entry.params), "own") if own else (1, "param")
    params, others = entry.params[:count], entry.params[count:]
    try:
        values = c.draw_more("task_settings", into=cells[cell], params=params).task_settings
        if others:
            key = f"{NextRun.task_settings.key_of(c)}:group"
            with lazy_panel("Task settings", key, cells["more"]) as panel:
                more = c.draw_or_read("task_settings", opened=panel.open, params=others)
            values |= more.task_settings
        task = task_of(TaskConfig.of(entry.key, seed=0, **values))
    except (ConfigError, ValueError) as error:
        cells["own"].error(plain(str(error)))
        return None
    if task.notes:
        cells["own"].caption(plain(" ".join(task.notes)))
    with shown_errors():
        config = _run(task, cells)
    no_map = config is not None and config.model.attention is None
    cells["told"].caption(f"{entry.meaning} {'' if no_map else entry.look}")
    return config


def _run(task: Task, cells: dict[str, DeltaGenerator]) -> RunConfig:
    # Where other data has another first recommended model, select it, unless a person had selected another
    kinds, first = list(task.recommended), NextRun.first.value
    c = NextRun(task=task.key, kinds=kinds, input=task.input)
    kind, before = NextRun.kind.stored(c), first.get(task.key, kinds[0])
    if before != kinds[0] and kind.value == before:
        kind.value = kinds[0]
    NextRun.first.value = {**first, task.key: kinds[0]}
    c = c.draw_more("kind", into=cells["model"])
    base = limits.within(recommended(task, c.kind))
    linked = any(param.startswith(f"{c.prefix}:") for param in st.query_params)
    c = c.draw_more("size", into=cells["size"], base=base)
    sizes = c.dialled
    # The panel of the model: its width, and the parameters of its type
    params = of_model(base.model, sizes)
    with lazy_panel("Model settings", f"{c.prefix}:sizes", cells["sizes"]) as panel:
        given = {"usual": sizes["d_model"], "params": params}
        c = c.draw_or_read("d_model", "settings", opened=panel.open, **given)
    values: dict[str, Any] = c.settings
    wider = [f"d_model {c.d_model}"] if c.d_model != sizes["d_model"] else []
    _show_changes(cells["sizes"], wider + draw.changes(values, params))
    c = c.draw_more("heads", into=cells["heads"])
    note_heads(NextRun.d_model.key_of(c), *c.sizes)
    # The panel of the training, in its groups
    groups = of_training(replace(base, steps=sizes["steps"]), task.form)
    training, every = dict[str, Any](), [one for params in groups.values() for one in params]
    with lazy_panel("Training settings", f"{c.prefix}:training", cells["training"]) as panel:
        for title, params in groups.items():
            if panel.open:
                st.markdown(f"**{title}**")
            training |= c.draw_or_read("settings", opened=panel.open, params=params).settings
    _show_changes(cells["training"], draw.changes(training, every))
    if {"length", "unit"} <= dict(task.config.params).keys():
        cells["training"].button(
            "nanoGPT's recipe",
            key="train:nanogpt",
            on_click=lambda: adopt_run(nanogpt(task.config)),
            help="The model and the training of nanoGPT's README for Shakespeare by characters on a CPU.",
        )
    c = c.draw_more("rate", into=cells["rate"]).draw_more("seed", into=cells["seed"])
    with cells["heads"]:
        _take_built(c, linked)
    attention = choose_attention(c, cells["mechanism"], cells["axes"])
    if attention is not None and c.kind in STACKED:
        attention = attention.with_(dropout=values["dropout"])
    sized = {"d_model": c.d_model, "num_heads": c.heads, **values}
    model = replace(base.model, attention=attention, **sized)
    pattern = layer_pattern(c, model, cells["pattern"])
    _show_changes(cells["pattern"], draw.pattern_changes(pattern))
    model = replace(model, **pattern)
    with cells["size"]:
        caption(
            f"{plural(model.layers, 'layer')} · at most {training['steps']:,} steps · "
            f"{count_parameters(model, task.shape):,} parameters"
        )
    with cells["summary"]:
        caption(f"d_model {c.d_model}. {draw.summary(model)}")
    return recommended(task, c.kind, model=model, learning_rate=c.rate, seed=c.seed, **training)


def _show_changes(cell: DeltaGenerator, changes: list[str]) -> None:
    if changes:
        cell.caption(plain(f"Changed: {', '.join(changes)}."))


def adopt_run(config: RunConfig) -> None:
    """Set all controls to the settings of a run."""
    config = limits.within(config)
    task, model = config.task, config.model
    NextRun.first.value = {key: one for key, one in NextRun.first.value.items() if key != task.key}
    training = [one for params in of_training(config, "pairs").values() for one in params]
    NextRun.bring(
        task=task.key,
        task_settings=dict(task.params),
        kind=model.kind,
        size="medium",
        d_model=model.d_model,
        heads=nearest_heads(model.d_model, model.num_heads),
        rate=config.learning_rate,
        seed=config.seed,
        attention=model.attention,
        settings={one.key: getattr(model, one.key) for one in of_model(model)}
        | {one.key: getattr(config, one.key) for one in training},
        **{name: getattr(model, name) for name in ("following", "kv_shared_layers", *draw.PLACES)},
    )


# The settings of a model and of its training, in groups, and the dial that sets the largest of them.


def sizes_of(base: RunConfig, size: str) -> dict[str, int]:
    """What the dial of size sets: width and steps double with each stop, and there is one layer more."""
    model, power = base.model, DIAL[size]
    widest, most_hidden, deepest = (int(BOUNDS[name][1]) for name in ("d_model", "d_ff", "layers"))
    return {
        "d_model": max(1, min(widest, int(model.d_model * 2.0**power))),
        "d_ff": min(most_hidden, int(model.d_ff * 2.0**power)),
        "layers": max(1, min(deepest, model.layers + power)),
        "steps": max(1, min(limits.max_run_steps(), int(base.steps * 2.0**power))),
    }


def resize(c: NextRun, before: Mapping[str, int]) -> None:
    """Have the dial set again the numbers that it had set; one that was set by hand stays."""
    for name, value in before.items():
        held = SessionValue[Any](None, NextRun.settings.param_key(c, name))
        if held.value == value:
            held.pop()
    width = NextRun.d_model.stored(c).value or c.dialled["d_model"]
    fit_heads(NextRun.d_model.key_of(c), width, c.heads_key(width), heads_of)


def of_model(start: ModelConfig, sizes: Mapping[str, int] = {}) -> tuple[Param, ...]:
    """The parameters of a type of model beside its width and its attention.

    Their defaults are the dial's `sizes`, else those of the recipe.
    """
    words: dict[str, Any] = (  # what a setting is called and means in a hierarchical model
        {
            "layers": {"meaning": "the number of layers of cells at each of the two levels"},
            "cell": {"meaning": "the recurrent cell at both levels, over words and over sentences"},
            "bidirectional": {
                "name": "Bidirectional",
                "meaning": "the cells read words, and sentences, in both directions",
            },
        }
        if start.kind == "hierarchical"
        else {}
    )
    return tuple(
        replace(param, default=sizes.get(key, getattr(start, key)), **words.get(key, {}))
        for key, param in MODEL_SETTINGS.items()
        if start.kind in KINDS_WITH.get(key, (start.kind,))
    )


def of_training(base: RunConfig, form: str) -> dict[str, tuple[Param, ...]]:
    excluded = {
        "label_smoothing": form == "series",
        "checkpointing": base.model.kind in RECURRENT,
        "finish_early": form in ("text", "series"),
        "initialization": base.model.kind in RECURRENT,
    }
    of_server: dict[str, dict[str, Any]] = {
        "steps": {"high": limits.max_run_steps()},
        "max_seconds": {"high": limits.max_run_seconds()},
        "device": {"choices": devices()},
    }
    return {
        name: tuple(
            replace(param, default=getattr(base, param.key), **of_server.get(param.key, {}))
            for param in params
            if not excluded.get(param.key)
        )
        for name, params in TRAINING_SETTINGS.items()
    }


# The attention that is trained: a published one by name, any choice on the six axes, or none.


def _take_built(c: NextRun, linked: bool) -> None:
    """Put what was last built on another page into the recipe's attention, where it can be trained there.

    The settings that came with a run or a button hold until something else is built.
    """
    usual, built = c.usual_attention, SessionValue[Any](None, BUILT).value
    if usual is None or (c.built_then.is_set and c.built_then.value == built):
        return
    choices: dict[str, Choice] = built[1] if built else {}
    if config_error(lambda: ModelConfig(c.base.model.kind, *c.sizes, usual.with_(**choices))):
        return

    def adopt(choices: Mapping[str, Choice]) -> None:
        NextRun.attention.stored(c).value = usual.with_(**choices)

    take_built(c.prefix, adopt, axes=draw.AXES_OF[c.kind], linked=linked)


def choose_attention(
    c: NextRun, cell: DeltaGenerator, axes: DeltaGenerator
) -> AttentionConfig | None:
    """Draw the list of mechanisms and the panel of the axes; the attention at these sizes, or None.

    Raises ConfigError, after the widgets are drawn, when the mechanism cannot have those sizes.
    """
    usual, problem = c.usual_attention, None
    config = NextRun.read("attention", **vars(c)).attention
    try:
        config = config and config.with_(d_model=c.d_model, num_heads=c.heads)
    except ConfigError as error:
        config, problem = usual, error
    panel = lazy_panel("Six axes of the mechanism", f"{c.prefix}:axes", axes)
    if panel.open:
        before = config or AttentionConfig(c.d_model, c.heads, "identity")
        with panel:
            edited = mechanism(
                f"{c.prefix}:attention", before, axes=draw.AXES_OF[c.kind], presets=False
            )
        if edited is None:
            problem = ConfigError(
                "The mechanism cannot be trained. The reason is beside one of the six axes."
            )
        elif edited != before:  # an unchanged one keeps its problem
            NextRun.attention.stored(c).value = config = edited
            problem = None
        NextRun.read("attention", **vars(c))  # puts what has just been changed into the link
    # The list of names, which agrees with the axes: choosing a name sets them
    mechanisms = [
        RECOMMENDED,
        *(item.key for item in PRESETS if trainable(item.key, c.kind, c.sizes)),
    ]
    current = (
        NONE if config is None else RECOMMENDED if config == usual else preset_of(config) or CUSTOM
    )
    if c.kind == "recurrent":
        mechanisms.append(NONE)
    if current not in mechanisms:
        mechanisms.append(current)
    NextRun.mechanism.stored(c).value = current
    c.draw_more("mechanism", into=cell, mechanisms=mechanisms, attention=config)
    if problem is not None:
        raise problem
    if config is not None and usual is not None:
        other = [
            axis for axis in draw.AXES_OF[c.kind] if getattr(config, axis) != getattr(usual, axis)
        ]
        watch_built(c.prefix, {axis: getattr(config, axis) for axis in other})
    return config


def take_mechanism(c: NextRun) -> None:
    """Set the attention to what was picked from the list of names."""
    special = {RECOMMENDED: c.usual_attention, CUSTOM: c.attention, NONE: None}
    picked = NextRun.mechanism.stored(c).value or RECOMMENDED
    NextRun.attention.stored(c).value = (
        special[picked] if picked in special else preset(picked).config(*c.sizes)
    )


@lru_cache(maxsize=1024)
def trainable(key: str, kind: Any, sizes: tuple[int, int]) -> bool:
    """Whether a published mechanism can be trained in a model of that kind, with d_model and heads."""
    try:
        config = preset(key).config(*sizes)
        ModelConfig(kind, *sizes, config)
    except ConfigError:
        return False
    return (config.projection.key == "identity") == (kind in ("recurrent", "hierarchical"))


# The buttons that take a mask, a position or a model's pattern from another page to Train, for the next run.


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
    _open_train(task=task, kind=model, attention=config)


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
    model = config.model
    _open_train(
        task=config.task.key,
        kind=model.kind,
        d_model=model.d_model,
        heads=model.num_heads,
        attention=model.attention,
        following=model.following,
        settings={name: getattr(model, name) for name in ("layers", "norm", "pool")},
    )


def _open_train(**values: Any) -> None:
    NextRun.bring(**values)
    # Without query_params the switch would clear the link, which bound widgets of this page forbid.
    st.switch_page(step_of("train").page(), query_params={})


def _stacked_model(task: str) -> tuple[str, str]:
    """The task and the first of its models that reads positions and masks; the first task's where it has none."""
    for key in (task, TASKS[0].key):
        for model in make_task(TaskConfig.of(key)).recommended:
            if model in STACKED and model != "one_token":
                return key, model
    raise AssertionError("the first task has a stacked model")


# The attention of each layer: the layers take those of the pattern in turn, of which the first is the mechanism above.


def layer_pattern(c: NextRun, model: ModelConfig, cell: DeltaGenerator) -> dict[str, Any]:
    """Draw the panel; the fields of a ModelConfig that a pattern sets, none for a model without layers.

    Raises ConfigError, after the widgets are drawn, for an attention that cannot have the model's sizes.
    """
    if model.kind not in STACKED or model.kind == "one_token":
        return {}
    more = {"decoder": ("kv_shared_layers",), "transformer": tuple(draw.PLACES)}
    names = "following", *more.get(model.kind, ())
    given = {**vars(c), "model": model, "most_shared": BOUNDS["kv_shared_layers"][1]}
    c, problems = NextRun.read(*names, **given), list[str]()
    panel = lazy_panel("Layers with unlike attentions", f"{c.prefix}:pattern", cell)
    if panel.open:
        with panel:
            _edit(c, problems)
        c = NextRun.read(*names, **given)  # puts what has just been changed into the link
    if problems:
        raise ConfigError(problems[0])
    fields = {name: c[name] for name in names}
    for place in draw.PLACES.keys() & fields.keys():
        fields[place] = fields[place] and _at(fields[place], model.attention)
    return fields | {"following": tuple(_at(one, model.attention) for one in c.following)}


def _at(config: AttentionConfig, first: AttentionConfig) -> AttentionConfig:
    return config.with_(d_model=first.d_model, num_heads=first.num_heads, dropout=first.dropout)


def _edit(c: NextRun, problems: list[str]) -> None:
    model, first, following = c.model, c.model.attention, c.following
    known = published(model.kind, *c.sizes)
    attentions = (first, *(_resized(one, first) for one in following))
    same = [key for key, of in known.items() if tuple(_at(one, first) for one in of) == attentions]
    current = same[0] if same else CUSTOM_PATTERN if following else SAME
    NextRun.pattern.stored(c).value = current
    NextRun.count.stored(c).value = len(attentions)
    patterns = [SAME, *known, *[CUSTOM_PATTERN] * (current == CUSTOM_PATTERN)]
    c.draw_more("pattern", "count", into=HERE, patterns=patterns)
    strip, shared = st.empty(), 0
    if following:
        at = c.draw_more("layer", into=HERE).layer
        edited = _mechanism(f"{c.prefix}:pattern:{at}", following[at], first, problems)
        following = (*following[:at], edited, *following[at + 1 :])
        NextRun.following.stored(c).value = following
    if model.kind == "decoder":
        most = model.layers - 1
        NextRun.kv_shared_layers.stored(c).value = min(most, c.kv_shared_layers)
        shared = c.draw_more("kv_shared_layers", into=HERE, most_shared=most).kv_shared_layers
    if model.kind == "transformer":
        for place in draw.PLACES:
            key, own = f"{c.prefix}:{place}", c[place]
            NextRun.own.stored(NextRun(**vars(c), own_place=place)).value = own is not None
            c.draw_more("own", into=HERE, own_place=place)
            if own is not None:
                edited = _mechanism(f"{key}:editor", own, first, problems)
                NextRun.declared[place].stored(c).value = edited
    names = distinct_names([_resized(one, first) for one in (first, *following)])
    kinds = [names[layer % len(names)] or "the same attention" for layer in range(model.layers)]
    strip.html(draw.layer_strip(kinds, shared, theme()))


def take_pattern(c: NextRun) -> None:
    """Set the attentions to those of the published pattern that was picked."""
    key = NextRun.pattern.stored(c).value or CUSTOM_PATTERN
    if key == CUSTOM_PATTERN:
        return
    attentions = published(c.model.kind, *c.sizes).get(key, (c.model.attention,))
    NextRun.attention.stored(c).value = attentions[0]
    NextRun.following.stored(c).value = attentions[1:]
    layers = SessionValue(0, NextRun.settings.param_key(c, "layers"))
    layers.value = max(c.model.layers, len(attentions))


def set_count(c: NextRun) -> None:
    """Give the pattern as many attentions, of which further ones are as the last."""
    count = (NextRun.count.stored(c).value or 1) - 1
    following = NextRun.following.stored(c).value or ()
    last = (following or (c.model.attention,))[-1:]
    NextRun.following.stored(c).value = (*following, *last * (count - len(following)))[:count]


def set_own(c: NextRun) -> None:
    """Give a place of the decoder the first attention, without positions that are added to the embedding, or none."""
    config = c.model.attention
    if config.position.key in ("sinusoidal", "learned"):
        config = config.with_(position="none")
    place = NextRun.declared[c.own_place].stored(c)
    place.value = config if NextRun.own.stored(c).value else None


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
