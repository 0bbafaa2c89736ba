"""The attention that is trained: a published one by name, any choice on the six axes, or none."""

from __future__ import annotations

from functools import lru_cache, partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import AXES, PRESETS, AttentionConfig, ConfigError, entry, preset
from core.attention.presets import distinct_names
from core.models import ModelConfig
from core.models.blocks import encoder_masks, exact_fallbacks
from core.models.config import RECURRENT, STACKED
from dashboard.runtime.link_values import link_value
from dashboard.runtime.mechanism_codec import from_text, to_text
from dashboard.ui.train_with import attention_key
from dashboard.widgets.mechanism_editor import mechanism, preset_of
from dashboard.widgets.params import KEEP

RECOMMENDED, OWN, NONE = "recommended", "own", "none"
PLAIN = "plain"  # in a link: the default attention, which has no text
LABELS = {RECOMMENDED: "Recommended", OWN: "Custom", NONE: "No attention"}
AXES_OF = {
    **dict.fromkeys(STACKED, tuple(AXES)),
    **dict.fromkeys(RECURRENT, tuple(axis for axis in AXES if axis != "position")),
}


def choose_attention(
    name: str,
    start: ModelConfig,
    kind: str,
    d_model: int,
    heads: int,
    cell: DeltaGenerator,
    axes: DeltaGenerator,
) -> AttentionConfig | None:
    """Draw the list of mechanisms and the popover of the axes; the attention at those sizes, None for none.

    Raises ConfigError, after the widgets are drawn, when the mechanism cannot have those sizes.
    """
    usual = start.attention and start.attention.with_(d_model=d_model, num_heads=heads)
    link = partial(
        link_value,
        attention_key(name),
        usual,
        lambda text: _from_link(text, d_model, heads),
        _to_link,
    )
    link()
    config, problem = st.session_state.get(attention_key(name), usual), None
    try:
        config = config and config.with_(d_model=d_model, num_heads=heads)
    except ConfigError as error:
        config, problem = usual, error
    popover = axes.popover(
        "Six axes",
        icon=":material/tune:",
        width="stretch",
        on_change="rerun",
        key=f"{name}:axes",
        help="Projection, score, position, mask, normalizer and kernel of the attention.",
    )
    if popover.open:
        with popover:
            config, problem = _edit(
                name, kind, config, AttentionConfig(d_model, heads, "identity"), problem
            )
        link()  # what has just been changed
    with cell:
        # The list of names, which agrees with the axes: choosing a name sets them
        sizes = (d_model, heads)
        options = [RECOMMENDED, *(item.key for item in PRESETS if fits(item.key, kind, sizes))]
        options += [NONE] if kind == "recurrent" else []
        current = (
            NONE if config is None else RECOMMENDED if config == usual else preset_of(config) or OWN
        )
        if current not in options:
            options.append(current)
        st.session_state[f"{name}:mechanism"] = current
        st.selectbox(
            "Mechanism",
            options,
            key=f"{name}:mechanism",
            on_change=_select,
            args=(name, usual, sizes),
            format_func=lambda key: LABELS.get(key) or _preset_label(key),
            **KEEP,
            help="The attention mechanism. A published name sets all six axes.",
        )
    if problem is not None:
        raise problem
    return config


def _to_link(config: AttentionConfig | None) -> str:
    return NONE if config is None else to_text(config) or PLAIN


def _from_link(text: str, d_model: int, heads: int) -> AttentionConfig | None:
    """The attention of a link at the model's sizes; ConfigError for an unreadable one."""
    return None if text == NONE else from_text("" if text == PLAIN else text, (d_model, heads))


def _edit(
    name: str,
    kind: str,
    before: AttentionConfig | None,
    default: AttentionConfig,
    problem: ConfigError | None,
) -> tuple[AttentionConfig | None, ConfigError | None]:
    """Draw the editor; its mechanism, and why that cannot be trained. An unchanged one keeps its problem."""
    config = mechanism(f"{name}:attention", before or default, axes=AXES_OF[kind], presets=False)
    if config is None:
        return before, ConfigError(
            "The mechanism cannot be trained. The reason is beside one of the six axes."
        )
    if config == (before or default):
        return before, problem
    st.session_state[attention_key(name)] = config
    return config, None


def _preset_label(key: str) -> str:
    item = preset(key)
    return item.name if str(item.year) in item.name else f"{item.name} {item.year}"


@lru_cache(maxsize=1024)
def fits(key: str, kind: str, sizes: tuple[int, int]) -> bool:
    """Whether a preset is made for that type of model, and can have those sizes."""
    try:
        config = preset(key).config(*sizes)
        ModelConfig(kind, *sizes, config)
    except ConfigError:
        return False
    return (config.projection.key == "identity") == (kind in ("recurrent", "hierarchical"))


def _select(name: str, usual: AttentionConfig | None, sizes: tuple[int, int]) -> None:
    key = st.session_state[f"{name}:mechanism"]
    if key != OWN:
        config = (
            {RECOMMENDED: usual, NONE: None}.get(key)
            if key in LABELS
            else preset(key).config(*sizes)
        )
        st.session_state[attention_key(name)] = config


def summary(model: ModelConfig) -> str:
    """The six choices, and where the kernel gives way to the exact one."""
    config = model.attention
    if config is None:
        return "No attention: the decoder reads only the encoder's last state."
    names = " · ".join(entry(axis, getattr(config, axis).key).name for axis in AXES_OF[model.kind])
    sentences = [f"{names}."]
    if len(set(model.pattern)) > 1:
        sentences = [
            f"First layer: {names}. The layers in turn: {'; '.join(distinct_names(model.pattern))}."
        ]
    if model.kind == "transformer":
        if exact := exact_fallbacks(config):
            kernel = entry("kernel", config.kernel.key).name
            verb = "use" if exact[1:] else "uses"
            sentences.append(
                f"{kernel} is used in the encoder; {' and '.join(exact)} {verb} the exact kernel."
            )
        if masks := encoder_masks(config):
            sentences.append(
                f"{' and '.join(masks)} applies to the encoder only: it needs the length, which a decoder "
                "does not know."
            )
    if model.kind in ("transformer", "hybrid") and config.has("projection", "one sequence"):
        name = entry("projection", config.projection.key).name
        sentences.append(f"{name} applies to self-attention only; cross-attention uses multi-head.")
    return " ".join(sentences)
