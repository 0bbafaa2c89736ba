"""Mechanisms on the same tokens: the map of each, or why there is none, what they share, and what each costs."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from core.attention import (
    AXES,
    PRESETS,
    Attention,
    AttentionConfig,
    ConfigError,
    Steps,
    check_sizes,
    entry,
    preset,
)
from core.attention.cost import Measurement, layer_admitted, race
from core.attention.masks import COMPOSITIONS
from core.attention.text import PLAIN, from_text, to_text
from core.entries import quote, refuse_if
from core.interpret import trace as analysis
from core.pretrained import LayerQKV, Pretrained, layer_qkv
from core.seeding import seeded_layer
from core.studies.efficient import ONE_AT_A_TIME
from core.tokens import embed, labels, tokenize

SENTENCE = "The animal didn't cross the street because it was too tired."
SEEDED = "seeded"
LAYERS, HEADS, WIDTH = 6, 12, 384  # of all-MiniLM-L6-v2
MAX_TOKENS = 256
NEAR = 2  # tokens: "within two tokens"
ROUNDING = 1e-6  # what rounding leaves below zero makes no map signed
ROUNDS = 5
POLL_INTERVAL = 0.1  # seconds between two tries while another measurement runs

Pair = tuple[int, int]
Moved = Literal["before", "after", "twice", "removed"]  # what becomes of a mechanism's place
# by mechanism at its sizes, and length
Measurements = dict[tuple[AttentionConfig, int], Measurement]


@dataclass(frozen=True)
class Comparison:
    """Mechanisms, the tokens and sizes that they share, and which two are subtracted."""

    mechanisms: tuple[AttentionConfig, ...]
    source: str = "3.1"  # SEEDED, or MiniLM's layer.head
    text: str = SENTENCE
    d_model: int = 16  # of the seeded layer, as num_heads and head
    num_heads: int = 4  # more than the 2 heads of keys that grouped-query has at first
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

    def moved(self, index: int, place: Moved) -> Comparison:
        """With that mechanism in another place, twice, or removed; the difference stays with its two where it can."""
        before = list(range(len(self.mechanisms)))
        order = {
            "removed": [*before[:index], *before[index + 1 :]],
            "twice": [*before[: index + 1], *before[index:]],
            "before": [*before[: index - 1], index, index - 1, *before[index + 1 :]],
            "after": [*before[:index], index + 1, index, *before[index + 2 :]],
        }[place]
        minus = [order.index(old) if old in order else None for old in self.minus]
        free = [place for place in range(len(order)) if place not in minus]
        first, second = (free.pop(0) if at is None else at for at in minus)
        mechanisms = tuple(self.mechanisms[old] for old in order)
        return replace(self, mechanisms=mechanisms, minus=(first, second))


def addable() -> dict[str, str]:
    """What can be added, by its option: dot product, every preset, and dot product with one other choice of one axis."""
    return {
        "": "Dot product, unchanged",
        **{f"preset={item.key}": item.name for item in PRESETS},
        **{
            f"{axis}={item.key}": f"{axis.capitalize()}: {item.name}"
            for axis, entries in AXES.items()
            for item in entries
            if item.key not in COMPOSITIONS and item.key != getattr(PLAIN, axis).key
        },
    }


def mechanism_of(option: str, sizes: Pair) -> AttentionConfig:
    """The mechanism of an option of `addable`; ConfigError where the sizes (d_model, heads) do not fit it."""
    known = option.removeprefix("preset=")
    return from_text(option, sizes) if known == option else preset(known).config(*sizes)


# The link of a comparison: mechanisms in order, shared tokens and sizes.


Link = dict[str, str | list[str]]
MIN_MECHANISMS, MAX_MECHANISMS = 2, 6
MINILM = tuple(f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS))
LAST_SEED, WIDEST, MAX_HEADS = 999_999, 512, 16
LENGTHS = (128, 256, 512, 1024)
NUMBERS = {"sizes": "16.4.0", "minus": "1.0", "seed": "126", "length": "512"}  # examples


def default_controls() -> Comparison:
    return Comparison(
        tuple(
            from_text(text, (WIDTH, HEADS))
            for text in ("", "position=alibi", "mask=local(window=3)", "kernel=linear")
        )
    )


def link_texts(comparison: Comparison) -> Link:
    """A comparison as texts of a link, in the order in which they are read: mechanisms need the source's sizes."""
    return {
        "source": comparison.source,
        "sizes": f"{comparison.d_model}.{comparison.num_heads}.{comparison.head}",
        "m": [to_text(config, sizes=False) for config in comparison.mechanisms],
        "minus": "{}.{}".format(*comparison.minus),
        "seed": str(comparison.seed),
        "length": str(comparison.length),
        "text": comparison.text,
    }


def to_query(comparison: Comparison) -> Link:
    default = link_texts(default_controls())
    return {
        name: text
        for name, text in link_texts(comparison).items()
        if text != default[name] and (name != "sizes" or comparison.seeded)
    }


PARAMETERS = tuple(link_texts(default_controls()))


def from_query(query: Mapping[str, str | list[str]]) -> tuple[Comparison, list[str]]:
    comparison, refused = default_controls(), []
    for name in filter(query.__contains__, PARAMETERS):
        try:
            comparison = with_parameter(comparison, name, query[name])
        except (ConfigError, ValueError) as error:
            refused.append(f"The link's {name} is not used. {error}")
    return clamped(comparison), refused


def clamped(comparison: Comparison) -> Comparison:
    """The comparison with a difference of two different existing mechanisms and an existing head."""
    last = len(comparison.mechanisms) - 1
    fits = max(comparison.minus) <= last and comparison.minus[0] != comparison.minus[1]
    return replace(
        comparison,
        minus=comparison.minus if fits else (1, 0),
        head=min(comparison.head, comparison.num_heads - 1),
    )


def with_parameter(comparison: Comparison, name: str, value: Any) -> Comparison:
    """The comparison with one parameter of a link; ConfigError for a text that it cannot have."""
    last = len(comparison.mechanisms) - 1
    if name == "m":
        texts = [value] if isinstance(value, str) else value
        refuse_if(
            not MIN_MECHANISMS <= len(texts) <= MAX_MECHANISMS,
            f"It has {len(texts)} mechanisms; expected {MIN_MECHANISMS} to {MAX_MECHANISMS}.",
        )
        return replace(
            comparison, mechanisms=tuple(from_text(text, comparison.sizes) for text in texts)
        )
    if name not in NUMBERS:
        refuse_if(
            name == "source" and value not in (SEEDED, *MINILM),
            f"source = {quote(value)}; expected {SEEDED}, or MiniLM's layer.head from 0.0 to "
            f"{LAYERS - 1}.{HEADS - 1}.",
        )
        return replace(comparison, **{name: value})
    example = NUMBERS[name]
    refuse_if(
        not re.fullmatch(re.sub("[0-9]+", "[0-9]{1,6}", re.escape(example)), value),
        f"{name} = {quote(value)}; expected whole numbers such as {name}={example}.",
    )
    numbers = tuple(map(int, value.split(".")))
    if name == "sizes":
        check_sizes(*numbers[:2])
        refuse_if(
            numbers[0] > WIDEST or numbers[1] > MAX_HEADS,
            f"sizes = {value}; expected d_model up to {WIDEST} and at most {MAX_HEADS} heads.",
        )
        return replace(comparison, d_model=numbers[0], num_heads=numbers[1], head=numbers[2])
    refuse_if(
        name == "minus" and (max(numbers) > last or len({*numbers}) < 2),
        f"minus = {value}; expected two different mechanisms from 0 to {last}.",
    )
    refuse_if(
        name == "length" and numbers[0] not in LENGTHS,
        f"length = {value}; expected one of {', '.join(map(str, LENGTHS))}.",
    )
    value = numbers if name == "minus" else numbers[0]
    return replace(comparison, **{name: value})


# What is compared.


@dataclass(frozen=True)
class Tokens:
    """The tokens that every mechanism reads, which of them are special, and notes on what was cut."""

    names: tuple[str, ...]
    special: tuple[bool, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MapResult:
    """The map of one mechanism's head, (T, S), and its statistics; where there is no map, `error` says why."""

    weights: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    mask: np.ndarray | None = None
    implied: bool = False
    error: str = ""
    # how query meets key, scaled; None where a kernel makes no scores
    products: np.ndarray | None = None
    scores: np.ndarray | None = None  # with what positions add or change

    @property
    def signed(self) -> bool:
        return bool(self.weights.min(initial=0.0) < -ROUNDING)

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the rows in nats; None where there is no map, or one that holds no probabilities."""
        return (
            None
            if self.error or self.signed
            else float(analysis.entropy(self.weights[None]).mean())
        )

    @property
    def distance(self) -> float | None:
        """How many tokens away the weight lies on average; None where weights are negative."""
        return (
            None
            if self.error or self.signed
            else float(analysis.mean_distance(self.weights[None])[0])
        )

    @property
    def near(self) -> float:
        """The share of all weight that lies within two tokens of its query; a negative weight counts by its size."""
        rows, columns = np.indices(self.weights.shape)
        sizes = np.abs(self.weights)
        return float(sizes[np.abs(rows - columns) <= NEAR].sum() / (sizes.sum() or 1.0))


Maps = tuple[Tokens, tuple[MapResult, ...]]


def compare_pretrained(model: Pretrained, comparison: Comparison) -> Maps:
    """The tokens, and the map of each mechanism on MiniLM's own queries and keys.

    PretrainedError when it has nothing to read.
    """
    return compare(comparison, layer_qkv(model, comparison.text, comparison.layer_head[0]))


def compare(comparison: Comparison, recorded: LayerQKV | None = None) -> Maps:
    """The tokens, and the map of each mechanism on them.

    There is no map where there is no token.

    Queries and keys are those of a seeded layer, or were recorded of a model.
    """
    tokens = tokens_of(comparison, recorded)
    configs = comparison.mechanisms if tokens.names else ()
    return tokens, tuple(compute_map(comparison, config, recorded) for config in configs)


def tokens_of(comparison: Comparison, recorded: LayerQKV | None = None) -> Tokens:
    """The tokens of the text, as split into words, or as the model read them."""
    if recorded is None:
        cut = tokenize(comparison.text)
        names, special, notes = (
            labels(cut.tokens[:MAX_TOKENS]),
            (False,) * len(cut.tokens),
            cut.notes,
        )
        count = len(cut.tokens)
    else:
        names, special, notes, count = recorded.tokens, recorded.special, (), len(recorded.tokens)
    if count > MAX_TOKENS:
        notes = (f"The text has {count:,} tokens; the first {MAX_TOKENS} are compared.",)
    return Tokens(names[:MAX_TOKENS], special[:MAX_TOKENS], notes)


@torch.inference_mode()
def compute_map(
    comparison: Comparison, config: AttentionConfig, recorded: LayerQKV | None = None
) -> MapResult:
    """The map of one mechanism, or its error."""
    try:
        sized = comparison.sized(config)
        if recorded is not None and (reason := source_error(sized)):
            return MapResult(error=reason)
        count = len(tokens_of(comparison, recorded).names)
        with layer_admitted(sized, count, count):
            steps = _steps(comparison, sized, recorded)
    except (ConfigError, ValueError) as error:
        return MapResult(error=str(error))
    if steps.weights is None:
        return MapResult(
            error=f"kernel = {sized.kernel.key} computes no weights; take kernel = exact."
        )
    return head_map(steps, comparison.layer_head[1])


def source_error(config: AttentionConfig) -> str | None:
    """Why a mechanism cannot have MiniLM's own queries and keys, or None."""
    if config.projection.key not in ("multi_head", "identity"):
        return (
            f"projection = {config.projection.key} computes its own queries and keys, and here they are those of "
            "MiniLM; choose the seeded layer."
        )
    if entry("position", config.position.key).enters == "x":
        return (
            f"position = {config.position.key} is added before queries and keys are made, and here they are made "
            "already; take the seeded layer, or position = rope."
        )
    return None


def head_map(steps: Steps, head: int) -> MapResult:
    """One head of a layer's steps, as copies: steps share their memory with each other."""
    shape, num_heads = steps.weights.shape[-2:], steps.q.shape[1]
    query_head = head * (num_heads // steps.weights.shape[1])  # the first query head of its group

    def of_head(values: torch.Tensor | None) -> np.ndarray | None:
        return (
            None
            if values is None
            else values.expand(1, num_heads, *shape)[0, query_head].numpy().copy()
        )

    return MapResult(
        steps.weights[0, head].float().numpy().copy(),
        of_head(steps.mask),
        steps.implied,
        "",
        of_head(None if steps.raw is None else steps.raw * steps.scale),
        of_head(steps.scores),
    )


def _steps(comparison: Comparison, config: AttentionConfig, recorded: LayerQKV | None) -> Steps:
    layer: Attention = seeded_layer(config, comparison.seed)
    if recorded is None:
        x = embed(tokenize(comparison.text).tokens[:MAX_TOKENS], config.d_model, comparison.seed)
        return layer(x, key_mask=_key_mask(config, x))
    q, k, v = (each[:, :, :MAX_TOKENS] for each in (recorded.q, recorded.k, recorded.v))
    x = recorded.x[:, :MAX_TOKENS]
    return layer.attend_heads(q, k, v, x, x, key_mask=_key_mask(config, x))


def _key_mask(config: AttentionConfig, x: torch.Tensor) -> torch.Tensor | None:
    """All tokens as real ones, for a mask that needs to know; else None."""
    return torch.ones(x.shape[:2], dtype=torch.bool) if "padding" in str(config.mask) else None


def default_cell(weights: np.ndarray, special: tuple[bool, ...]) -> tuple[int, int]:
    """The picked cell at first: the largest weight on an ordinary token that is no neighbour of the query."""
    rows, columns = np.indices(weights.shape)
    hidden = np.asarray(special)
    candidates = np.where(
        (np.abs(rows - columns) < NEAR) | hidden[:, None] | hidden[None, :], -1.0, weights
    )
    i, j = np.unravel_index(candidates.argmax(), candidates.shape)
    return int(i), int(j)


def sized_configs(comparison: Comparison) -> list[AttentionConfig | None]:
    """Every mechanism at the sizes compared; None where they do not fit it."""
    configs: list[AttentionConfig | None] = []
    for config in comparison.mechanisms:
        try:
            configs.append(comparison.sized(config))
        except ConfigError:
            configs.append(None)
    return configs


def measure_costs(
    configs: Sequence[AttentionConfig], length: int, measurements: Measurements
) -> Generator[float, None, None]:
    """Measure the mechanisms at one length in turn, into `measurements`; yields the progress, 0 to 1.

    It waits while this server measures anything else.
    """
    while not ONE_AT_A_TIME.acquire(timeout=POLL_INTERVAL):
        yield 0.0
    named = {str(index): config for index, config in enumerate(dict.fromkeys(configs))}
    try:
        for progress in race(named, [length], rounds=ROUNDS):
            for point in progress.points:
                measurements[named[point.name], length] = point
            yield progress.fraction
    finally:
        ONE_AT_A_TIME.release()
