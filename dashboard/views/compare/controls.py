"""The page's controls (mechanisms in order, shared tokens and sizes), in the link and in the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from core.attention import AttentionConfig, ConfigError, check_sizes, heads_that_divide
from core.entries import quote
from dashboard.runtime.mechanism_codec import from_text, to_text
from dashboard.widgets.panels import plain

SENTENCE = "The animal didn't cross the street because it was too tired."
FIRST = ("", "position=alibi", "mask=local(window=3)", "kernel=linear")
FEWEST, MOST = 2, 6
SEEDED = "seeded"
LAYERS, HEADS, WIDTH = 6, 12, 384  # of all-MiniLM-L6-v2
MINILM = tuple(f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS))
LAST_SEED, WIDEST, MOST_HEADS = 999_999, 512, 16
LENGTHS = (128, 256, 512, 1024)
CONTROLS, WRITTEN = (
    "compare:setup",
    "compare:written",
)  # session keys: the controls, and the link that they wrote

Pair = tuple[int, int]
Query = Mapping[str, str | list[str]]


@dataclass(frozen=True)
class Controls:
    """All that the page depends on."""

    mechanisms: tuple[AttentionConfig, ...]
    source: str = "3.1"  # SEEDED, or MiniLM's layer.head
    text: str = SENTENCE
    d_model: int = 16  # of the seeded layer, as num_heads and head
    num_heads: int = 2
    head: int = 0
    seed: int = 126
    minus: Pair = (1, 0)  # the indices of the two mechanisms of the difference
    length: int = 512  # tokens at which costs are measured

    @property
    def seeded(self) -> bool:
        return self.source == SEEDED

    @property
    def sizes(self) -> Pair:
        """d_model and heads of every mechanism."""
        return (self.d_model, self.num_heads) if self.seeded else (WIDTH, HEADS)

    @property
    def layer_head(self) -> Pair:
        """The layer and the head whose map is drawn."""
        if self.seeded:
            return 0, self.head
        layer, head = self.source.split(".")
        return int(layer), int(head)

    def sized(self, config: AttentionConfig) -> AttentionConfig:
        """A mechanism at these sizes; ConfigError where they do not fit it."""
        d_model, num_heads = self.sizes
        return config.with_(d_model=d_model, num_heads=num_heads)


def default_controls() -> Controls:
    return Controls(tuple(from_text(text, (WIDTH, HEADS)) for text in FIRST))


def to_query(controls: Controls) -> dict[str, str | list[str]]:
    """The controls as query parameters, without those that have their default."""
    default = default_controls()
    parameters: dict[str, str | list[str]] = {}
    mechanisms = [to_text(config, sizes=False) for config in controls.mechanisms]
    if mechanisms != list(FIRST):
        parameters["m"] = mechanisms
    for name in ("source", "text", "seed", "length"):
        if getattr(controls, name) != getattr(default, name):
            parameters[name] = str(getattr(controls, name))
    if controls.seeded and (controls.sizes, controls.head) != (
        (default.d_model, default.num_heads),
        default.head,
    ):
        parameters["sizes"] = f"{controls.d_model}.{controls.num_heads}.{controls.head}"
    if controls.minus != default.minus:
        parameters["minus"] = f"{controls.minus[0]}.{controls.minus[1]}"
    return parameters


def from_query(query: Query) -> tuple[Controls, list[str]]:
    """The controls of a link, and a warning for each parameter that is not valid and keeps its default."""
    controls, refused = default_controls(), []
    for name, read in READERS.items():
        if name not in query:
            continue
        try:
            controls = read(controls, query[name])
        except (ConfigError, ValueError) as error:
            refused.append(f"The link's {name} is not used. {plain(str(error))}")
    return clamped(controls), refused


def clamped(controls: Controls) -> Controls:
    """The controls with a difference of two different existing mechanisms and an existing head."""
    last = len(controls.mechanisms) - 1
    minus = (
        controls.minus
        if max(controls.minus) <= last and controls.minus[0] != controls.minus[1]
        else (1, 0)
    )
    return replace(controls, minus=minus, head=min(controls.head, controls.num_heads - 1))


def _mechanisms(controls: Controls, value: str | list[str]) -> Controls:
    texts = [value] if isinstance(value, str) else list(value)
    if not FEWEST <= len(texts) <= MOST:
        raise ConfigError(f"It has {len(texts)} mechanisms; expected {FEWEST} to {MOST}.")
    return replace(controls, mechanisms=tuple(from_text(text, controls.sizes) for text in texts))


def _source(controls: Controls, value: str) -> Controls:
    if value != SEEDED and value not in MINILM:
        raise ConfigError(
            f"source = {quote(value)}; expected {SEEDED}, or MiniLM's layer.head from 0.0 to "
            f"{LAYERS - 1}.{HEADS - 1}."
        )
    return replace(controls, source=value)


def _sizes(controls: Controls, value: str) -> Controls:
    d_model, num_heads, head = _numbers(value, 3, "sizes", "16.2.0")
    if d_model > WIDEST:
        raise ConfigError(f"d_model = {d_model}; expected 1 to {WIDEST}.")
    check_sizes(d_model, num_heads)
    if num_heads > MOST_HEADS:
        raise ConfigError(f"num_heads = {num_heads}; expected at most {MOST_HEADS} here.")
    return replace(controls, d_model=d_model, num_heads=num_heads, head=head)


def _minus(controls: Controls, value: str) -> Controls:
    a, b = _numbers(value, 2, "minus", "1.0")
    last = len(controls.mechanisms) - 1
    if max(a, b) > last or a == b:
        raise ConfigError(f"minus = {a}.{b}; expected two different mechanisms from 0 to {last}.")
    return replace(controls, minus=(a, b))


def _seed(controls: Controls, value: str) -> Controls:
    (seed,) = _numbers(value, 1, "seed", "126")
    if seed > LAST_SEED:
        raise ConfigError(f"seed = {seed}; expected 0 to {LAST_SEED}.")
    return replace(controls, seed=seed)


def _length(controls: Controls, value: str) -> Controls:
    (length,) = _numbers(value, 1, "length", "512")
    if length not in LENGTHS:
        raise ConfigError(f"length = {length}; expected one of {', '.join(map(str, LENGTHS))}.")
    return replace(controls, length=length)


def _numbers(value: str, count: int, name: str, example: str) -> list[int]:
    parts = value.split(".")
    if len(parts) != count or not all(
        part.isascii() and part.isdigit() and len(part) < 7 for part in parts
    ):
        raise ConfigError(
            f"{name} = {quote(value)}; expected whole numbers such as {name}={example}."
        )
    return [int(part) for part in parts]


# in order of dependence: mechanisms are made at the sizes of the source
READERS: dict[str, Callable[[Controls, Any], Controls]] = {
    "source": _source,
    "sizes": _sizes,
    "m": _mechanisms,
    "minus": _minus,
    "seed": _seed,
    "length": _length,
    "text": lambda controls, value: replace(controls, text=value),
}


def load_controls() -> tuple[Controls, list[str]]:
    """The session's controls, or the link's where it is not what this page wrote, with its errors.

    So the Back button takes a choice back. Coming from another page, which empties the link, takes nothing back.
    """
    linked = link_query()
    stayed = "compare:measure" in st.session_state  # a button's state goes with its page
    if CONTROLS in st.session_state and (
        linked == st.session_state.get(WRITTEN) or not (linked or stayed)
    ):
        return st.session_state[CONTROLS], []
    controls, refused = from_query(linked)
    store_controls(controls)
    return controls, refused


def link_query() -> dict[str, str | list[str]]:
    """The link's parameters that this page reads."""
    return {
        name: st.query_params.get_all(name) if name == "m" else st.query_params[name]
        for name in READERS
        if name in st.query_params
    }


def store_controls(controls: Controls) -> None:
    """Store the controls and set every widget to them; for a callback, or before the widgets are drawn."""
    controls = clamped(controls)
    st.session_state[CONTROLS] = controls
    st.session_state.update(
        {
            "compare:source": controls.source,
            "compare:text": controls.text,
            "compare:seed": controls.seed,
            "compare:d_model": controls.d_model,
            f"compare:heads:{controls.d_model}": controls.num_heads,
            f"compare:head:{controls.num_heads}": controls.head,
            "compare:minuend": controls.minus[0],
            "compare:subtrahend": controls.minus[1],
            "compare:length": controls.length,
        }
    )


def use_seeded() -> None:
    """Switch to the seeded layer, for a callback."""
    store_controls(replace(st.session_state[CONTROLS], source=SEEDED))


def save_controls(controls: Controls) -> None:
    """Save the controls in the session and in the link, which is written only where it changes."""
    st.session_state[CONTROLS] = controls
    query, linked = to_query(controls), link_query()
    for name in linked.keys() - query.keys():
        del st.query_params[name]
    for name, value in query.items():
        if linked.get(name) != value:
            st.query_params[name] = value
    st.session_state[WRITTEN] = query


def read_widgets(controls: Controls) -> Controls:
    """The controls with the values of all widgets, also of those in a closed popover and further down the page."""

    def value_of(name: str, default: Any) -> Any:
        value = st.session_state.get(f"compare:{name}")
        return default if value is None else value

    d_model = value_of("d_model", controls.d_model)
    heads = value_of(
        f"heads:{d_model}",
        max(number for number in heads_of(d_model) if number <= controls.num_heads),
    )
    return replace(
        controls,
        source=value_of("source", controls.source),
        text=value_of("text", ""),
        seed=int(value_of("seed", controls.seed)),
        d_model=d_model,
        num_heads=heads,
        head=value_of(f"head:{heads}", min(controls.head, heads - 1)),
        length=value_of("length", controls.length),
        minus=(value_of("minuend", controls.minus[0]), value_of("subtrahend", controls.minus[1])),
    )


def heads_of(d_model: int) -> list[int]:
    return [heads for heads in heads_that_divide(d_model) if heads <= MOST_HEADS]
