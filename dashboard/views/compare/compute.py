"""The map of each mechanism on the shared tokens, or the error why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from core.attention import Attention, AttentionConfig, ConfigError, Steps, entry
from core.interpret import trace as analysis
from core.pretrained import LayerQKV, layer_qkv
from core.seeding import seeded_layer
from core.tokens import embed, labels, tokenize
from dashboard.draw.multiples import LEAST_NEGATIVE
from dashboard.server.cache import cached, shared
from dashboard.views.compare.controls import SEEDED, Controls
from dashboard.widgets.model_picker import EMBEDDED, load_model

MOST_TOKENS = 256
NEAR = 2  # tokens: "within two tokens"


@dataclass(frozen=True)
class Tokens:
    """The tokens that every mechanism reads, which of them are special, and notes on what was cut."""

    names: tuple[str, ...]
    special: tuple[bool, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MapResult:
    """The map of one mechanism's head, (T, S), and its statistics; where there is no map, `error` says why."""

    weights: np.ndarray
    mask: np.ndarray | None = None
    implied: bool = False
    error: str = ""
    products: np.ndarray | None = (
        None  # how query meets key, scaled; None where a kernel makes no scores
    )
    scores: np.ndarray | None = None  # with what positions add or change

    @property
    def signed(self) -> bool:
        return bool(self.weights.min(initial=0.0) < LEAST_NEGATIVE)

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


def tokens_of(controls: Controls) -> Tokens:
    """The tokens of the text; PretrainedError when MiniLM has nothing to read."""
    if controls.seeded:
        cut = tokenize(controls.text)
        names, special, notes = (
            labels(cut.tokens[:MOST_TOKENS]),
            (False,) * len(cut.tokens),
            cut.notes,
        )
        count = len(cut.tokens)
    else:
        recorded = shared(_heads, controls.text, controls.layer_head[0])
        names, special, notes, count = recorded.tokens, recorded.special, (), len(recorded.tokens)
    if count > MOST_TOKENS:
        notes = (f"The text has {count:,} tokens; the first {MOST_TOKENS} are compared.",)
    return Tokens(names[:MOST_TOKENS], special[:MOST_TOKENS], notes)


def compute_map(controls: Controls, config: AttentionConfig) -> MapResult:
    """The cached map of one mechanism, or its error."""
    try:
        sized = controls.sized(config)
    except ConfigError as error:
        return _no_map(str(error))
    if not controls.seeded and (reason := _source_error(sized)):
        return _no_map(reason)
    return cached(
        _compute_map, sized, controls.source, controls.text, controls.layer_head[1], controls.seed
    )


def _no_map(error: str) -> MapResult:
    return MapResult(np.zeros((0, 0)), error=error)


def _source_error(config: AttentionConfig) -> str | None:
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


@torch.inference_mode()
def _compute_map(
    config: AttentionConfig, source: str, text: str, head: int, seed: int
) -> MapResult:
    try:
        steps = _steps(config, source, text, seed)
    except (ConfigError, ValueError) as error:
        return _no_map(str(error))
    if steps.weights is None:
        return _no_map(f"kernel = {config.kernel.key} computes no weights; take kernel = exact.")
    return head_map(steps, head)


def head_map(steps: Steps, head: int) -> MapResult:
    """One head of a layer's steps, as copies: steps share their memory with each other."""
    assert steps.weights is not None
    shape, num_heads = steps.weights.shape[-2:], steps.q.shape[1]
    query_head = head * (num_heads // steps.weights.shape[1])  # the first query head of its group

    def of_head(values: torch.Tensor | None) -> np.ndarray | None:
        return (
            None
            if values is None
            else values.expand(1, num_heads, *shape)[0, query_head].numpy().copy()
        )

    products = None if steps.raw is None else steps.raw * steps.scale
    weights = steps.weights[0, head].float().numpy().copy()
    return MapResult(
        weights, of_head(steps.mask), steps.implied, "", of_head(products), of_head(steps.scores)
    )


def _steps(config: AttentionConfig, source: str, text: str, seed: int) -> Steps:
    layer: Attention = seeded_layer(config, seed)
    if source == SEEDED:
        x = embed(tokenize(text).tokens[:MOST_TOKENS], config.d_model, seed)
        return layer(x, key_mask=_key_mask(config, x))
    recorded: LayerQKV = shared(_heads, text, int(source.split(".")[0]))
    q, k, v = (each[:, :, :MOST_TOKENS] for each in (recorded.q, recorded.k, recorded.v))
    x = recorded.x[:, :MOST_TOKENS]
    return layer.attend_heads(q, k, v, x, x, key_mask=_key_mask(config, x))


def _key_mask(config: AttentionConfig, x: torch.Tensor) -> torch.Tensor | None:
    """All tokens as real ones, for a mask that needs to know; else None."""
    return torch.ones(x.shape[:2], dtype=torch.bool) if "padding" in str(config.mask) else None


def _heads(text: str, layer: int) -> LayerQKV:
    return layer_qkv(load_model(EMBEDDED), text, layer)


def shared_weights(
    controls: Controls, configs: Sequence[AttentionConfig]
) -> tuple[list[str], list[list[str]]]:
    """The names of the weights that all mechanisms share, and of those that each has alone.

    Weights are seeded by their names, so equal names and shapes are equal numbers. With MiniLM's queries and keys,
    the projections are MiniLM's in every map, and are no weights of the mechanism.
    """
    layers = [seeded_layer(controls.sized(config), controls.seed) for config in configs]
    weights = [
        [(name, weight.shape) for name, weight in layer.named_parameters()] for layer in layers
    ]
    common = set.intersection(*map(set, weights)) if weights else set()
    return sorted(name for name, _ in common), [
        [each[0] for each in layer if each not in common] for layer in weights
    ]


def default_cell(weights: np.ndarray, special: tuple[bool, ...]) -> tuple[int, int]:
    """The picked cell at first: the largest weight on an ordinary token that is no neighbour of the query."""
    rows, columns = np.indices(weights.shape)
    hidden = np.asarray(special)
    candidates = np.where(
        (np.abs(rows - columns) < NEAR) | hidden[:, None] | hidden[None, :], -1.0, weights
    )
    i, j = np.unravel_index(candidates.argmax(), candidates.shape)
    return int(i), int(j)
