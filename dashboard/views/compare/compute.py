"""The map of each mechanism on the shared tokens, or the error where there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core import analysis
from core.attention import Attention, AttentionConfig, ConfigError, Steps, entry
from core.pretrained import LayerQKV, layer_qkv
from core.seeding import seeded_layer
from dashboard.components.multiples.payload import LEAST_NEGATIVE
from dashboard.runtime.cache import cached, shared
from dashboard.runtime.tokens import embed, labels, tokenize
from dashboard.views.compare.link import SEEDED, Controls
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
    products: np.ndarray | None = None  # how query meets key, scaled; None where a kernel makes no scores
    scores: np.ndarray | None = None  # with what positions add or change

    @property
    def signed(self) -> bool:
        return bool(self.weights.min(initial=0.0) < LEAST_NEGATIVE)

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the rows in nats; None where there is no map, or one that holds no probabilities."""
        return None if self.error or self.signed else float(analysis.entropy(self.weights[None]).mean())

    @property
    def distance(self) -> float | None:
        """How many tokens away the weight lies on average; None where weights are negative."""
        return None if self.error or self.signed else float(analysis.mean_distance(self.weights[None])[0])

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
        first = cut.tokens[:MOST_TOKENS]
        notes = cut.notes if len(first) == len(cut.tokens) else (_shortened(len(cut.tokens)),)
        return Tokens(labels(first), (False,) * len(first), notes)
    heads_ = shared(_heads, controls.text, controls.place[0])
    first = heads_.tokens[:MOST_TOKENS]
    notes = (_shortened(len(heads_.tokens)),) if len(first) < len(heads_.tokens) else ()
    return Tokens(first, heads_.special[:MOST_TOKENS], notes)


def _shortened(count: int) -> str:
    return f"The text has {count:,} tokens; the first {MOST_TOKENS} are compared."


def compute_map(controls: Controls, config: AttentionConfig) -> MapResult:
    """The cached map of one mechanism, or its error."""
    try:
        sized = controls.sized(config)
    except ConfigError as error:
        return MapResult(np.zeros((0, 0)), error=str(error))
    if not controls.seeded and (reason := _source_error(sized)):
        return MapResult(np.zeros((0, 0)), error=reason)
    return cached(_compute_map, sized, controls.source, controls.text, controls.place[1], controls.seed)


def _source_error(config: AttentionConfig) -> str | None:
    """Why a mechanism cannot have MiniLM's own queries and keys, or None."""
    if config.projection.key not in ("multi_head", "identity"):
        return (f"projection = {config.projection.key} makes queries and keys of its own, and here they are MiniLM's; "
                "take the seeded layer.")
    if entry("position", config.position.key).enters == "x":
        return (f"position = {config.position.key} is added before queries and keys are made, and here they are made "
                "already; take the seeded layer, or position = rope.")
    return None


@torch.inference_mode()
def _compute_map(config: AttentionConfig, source: str, text: str, head: int, seed: int) -> MapResult:
    try:
        steps = _steps(config, source, text, seed)
    except (ConfigError, ValueError) as error:
        return MapResult(np.zeros((0, 0)), error=str(error))
    if steps.weights is None:
        return MapResult(np.zeros((0, 0)), error=f"kernel = {config.kernel.key} keeps no weights; take kernel = exact.")
    return head_map(steps, head)


def head_map(steps: Steps, head: int) -> MapResult:
    """One head of a layer's steps, as copies: steps share their memory with each other."""
    assert steps.weights is not None
    shape, num_heads = steps.weights.shape[-2:], steps.q.shape[1]
    query_head = head * (num_heads // steps.weights.shape[1])  # the first query head of its group

    def of_head(values: torch.Tensor | None) -> np.ndarray | None:
        return None if values is None else values.expand(1, num_heads, *shape)[0, query_head].numpy().copy()

    products = None if steps.raw is None else steps.raw * steps.scale
    weights = steps.weights[0, head].float().numpy().copy()
    return MapResult(weights, of_head(steps.mask), steps.implied, "", of_head(products), of_head(steps.scores))


def _steps(config: AttentionConfig, source: str, text: str, seed: int) -> Steps:
    layer: Attention = seeded_layer(config, seed)
    if source == SEEDED:
        tokens = tokenize(text).tokens[:MOST_TOKENS]
        x = embed(tokens, config.d_model, seed)
        return layer(x, key_mask=torch.ones(x.shape[:2], dtype=torch.bool) if _needs_padding(config) else None)
    recorded: LayerQKV = shared(_heads, text, int(source.split(".")[0]))
    q, k, v = (each[:, :, :MOST_TOKENS] for each in (recorded.q, recorded.k, recorded.v))
    x = recorded.x[:, :MOST_TOKENS]
    real = torch.ones(x.shape[:2], dtype=torch.bool) if _needs_padding(config) else None
    return layer.attend_heads(q, k, v, x, x, key_mask=real)


def _needs_padding(config: AttentionConfig) -> bool:
    """Whether the mask needs to know which tokens are padding; here none is."""
    return "padding" in str(config.mask)


def _heads(text: str, layer: int) -> LayerQKV:
    return layer_qkv(load_model(EMBEDDED), text, layer)


def shared_weights(controls: Controls, configs: list[AttentionConfig]) -> tuple[list[str], list[list[str]], list[int]]:
    """The weights that all mechanisms share, those of each alone, and the parameters of each.

    Weights are seeded by their names, so equal names and shapes are equal numbers. With MiniLM's queries and keys,
    the projections are MiniLM's in every map, and are no weights of the mechanism.
    """
    weights = []
    for config in configs:
        layer = seeded_layer(controls.sized(config), controls.seed)
        weights.append({(name, tuple(weight.shape)): weight.numel() for name, weight in layer.named_parameters()})
    common = set.intersection(*map(set, weights)) if weights else set()
    own = [[name for name, shape in each if (name, shape) not in common] for each in weights]
    return [name for name, _ in sorted(common)], own, [sum(each.values()) for each in weights]


def default_cell(weights: np.ndarray, special: tuple[bool, ...]) -> tuple[int, int]:
    """The picked cell at first: the largest weight on an ordinary token that is no neighbour of the query."""
    rows, columns = np.indices(weights.shape)
    hidden = np.asarray(special)
    candidates = np.where((np.abs(rows - columns) < NEAR) | hidden[:, None] | hidden[None, :], -1.0, weights)
    i, j = np.unravel_index(candidates.argmax(), candidates.shape)
    return int(i), int(j)
