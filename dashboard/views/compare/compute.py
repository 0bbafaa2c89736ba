"""A mechanism on the tokens that all of them share → its map, or the sentence that says why there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core import analysis
from core.attention import Attention, AttentionConfig, ConfigError, Steps, entry
from core.pretrained import LayerQKV, layer_qkv
from dashboard.components.multiples.payload import LEAST_NEGATIVE
from dashboard.runtime.cache import cached, shared
from dashboard.runtime.seeding import seeded_layer
from dashboard.runtime.tokens import embed, labels, tokenize
from dashboard.views.compare.link import SEEDED, Setup
from dashboard.widgets.model_picker import EMBEDDED, load_model

MOST_TOKENS = 256
NEAR = 2  # tokens: "within two tokens"


@dataclass(frozen=True)
class Tokens:
    """What every mechanism reads: names of the tokens, which of them are special, and what was cut, in words."""

    names: tuple[str, ...]
    special: tuple[bool, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Weighed:
    """The map of one mechanism's head, (T, S), and what is measured on it; `said` instead, where there is no map."""

    weights: np.ndarray
    mask: np.ndarray | None = None
    implied: bool = False
    said: str = ""
    products: np.ndarray | None = None  # how query meets key, scaled; None where a kernel makes no scores
    scores: np.ndarray | None = None  # with what positions add or change

    @property
    def signed(self) -> bool:
        return bool(self.weights.min(initial=0.0) < LEAST_NEGATIVE)

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the rows in nats; None where there is no map, or one that holds no probabilities."""
        return None if self.said or self.signed else float(analysis.entropy(self.weights[None]).mean())

    @property
    def distance(self) -> float | None:
        """How many tokens away the weight lies on average; None where weights are negative."""
        return None if self.said or self.signed else float(analysis.mean_distance(self.weights[None])[0])

    @property
    def near(self) -> float:
        """The share of all weight that lies within two tokens of its query; a negative weight counts by its size."""
        rows, columns = np.indices(self.weights.shape)
        sizes = np.abs(self.weights)
        return float(sizes[np.abs(rows - columns) <= NEAR].sum() / (sizes.sum() or 1.0))


def tokens_of(setup: Setup) -> Tokens:
    """The tokens of the setup's text; PretrainedError when MiniLM has nothing to read."""
    if setup.seeded:
        cut = tokenize(setup.text)
        kept = cut.tokens[:MOST_TOKENS]
        notes = cut.notes if len(kept) == len(cut.tokens) else (_shortened(len(cut.tokens)),)
        return Tokens(labels(kept), (False,) * len(kept), notes)
    found = shared(_heads, setup.text, setup.place[0])
    kept = found.tokens[:MOST_TOKENS]
    notes = (_shortened(len(found.tokens)),) if len(kept) < len(found.tokens) else ()
    return Tokens(kept, found.special[:MOST_TOKENS], notes)


def _shortened(count: int) -> str:
    return f"The text has {count:,} tokens; the first {MOST_TOKENS} are compared."


def weigh(setup: Setup, config: AttentionConfig) -> Weighed:
    """The map of one mechanism in the setup, remembered; what cannot be drawn says why."""
    try:
        sized = setup.sized(config)
    except ConfigError as error:
        return Weighed(np.zeros((0, 0)), said=str(error))
    if not setup.seeded and (said := _not_given(sized)):
        return Weighed(np.zeros((0, 0)), said=said)
    return cached(_weigh, sized, setup.source, setup.text, setup.place[1], setup.seed)


def _not_given(config: AttentionConfig) -> str | None:
    """Why a mechanism cannot have MiniLM's own queries and keys, or None."""
    if config.projection.key not in ("multi_head", "identity"):
        return (f"projection = {config.projection.key} makes queries and keys of its own, and here they are MiniLM's; "
                "take the seeded layer.")
    if entry("position", config.position.key).enters == "x":
        return (f"position = {config.position.key} is added before queries and keys are made, and here they are made "
                "already; take the seeded layer, or position = rope.")
    return None


@torch.inference_mode()
def _weigh(config: AttentionConfig, source: str, text: str, head: int, seed: int) -> Weighed:
    try:
        steps = _steps(config, source, text, seed)
    except (ConfigError, ValueError) as error:
        return Weighed(np.zeros((0, 0)), said=str(error))
    if steps.weights is None:
        return Weighed(np.zeros((0, 0)), said=f"kernel = {config.kernel.key} keeps no weights; take kernel = exact.")
    return weighed(steps, head)


def weighed(steps: Steps, head: int) -> Weighed:
    """What is drawn of one head: copies, since a step may share its memory with the others."""
    assert steps.weights is not None
    shape, num_heads = steps.weights.shape[-2:], steps.q.shape[1]
    met = head * (num_heads // steps.weights.shape[1])  # the first of the heads that were folded into this one

    def drawn(found: torch.Tensor | None) -> np.ndarray | None:
        return None if found is None else found.expand(1, num_heads, *shape)[0, met].numpy().copy()

    products = None if steps.raw is None else steps.raw * steps.scale
    weights = steps.weights[0, head].float().numpy().copy()
    return Weighed(weights, drawn(steps.mask), steps.implied, "", drawn(products), drawn(steps.scores))


def _steps(config: AttentionConfig, source: str, text: str, seed: int) -> Steps:
    layer: Attention = seeded_layer(config, seed)
    if source == SEEDED:
        tokens = tokenize(text).tokens[:MOST_TOKENS]
        x = embed(tokens, config.d_model, seed)
        return layer(x, key_mask=torch.ones(x.shape[:2], dtype=torch.bool) if _pads(config) else None)
    found: LayerQKV = shared(_heads, text, int(source.split(".")[0]))
    q, k, v = (each[:, :, :MOST_TOKENS] for each in (found.q, found.k, found.v))
    x = found.x[:, :MOST_TOKENS]
    real = torch.ones(x.shape[:2], dtype=torch.bool) if _pads(config) else None
    return layer.attend_heads(q, k, v, x, x, key_mask=real)


def _pads(config: AttentionConfig) -> bool:
    """Whether a mask asks which tokens are padding: here none is."""
    return "padding" in str(config.mask)


def _heads(text: str, layer: int) -> LayerQKV:
    return layer_qkv(load_model(EMBEDDED), text, layer)


def shared_weights(setup: Setup, configs: list[AttentionConfig]) -> tuple[list[str], list[list[str]], list[int]]:
    """Names of the weights that all have alike, those that each has for itself, and how many numbers each has.

    Weights are seeded by their names, so equal names and shapes are equal numbers. With MiniLM's queries and keys,
    the projections are MiniLM's in every map, and are no weights of the mechanism.
    """
    held = []
    for config in configs:
        layer = seeded_layer(setup.sized(config), setup.seed)
        held.append({(name, tuple(weight.shape)): weight.numel() for name, weight in layer.named_parameters()})
    alike = set.intersection(*map(set, held)) if held else set()
    own = [[name for name, shape in each if (name, shape) not in alike] for each in held]
    return [name for name, _ in sorted(alike)], own, [sum(each.values()) for each in held]


def telling_cell(weights: np.ndarray, special: tuple[bool, ...]) -> tuple[int, int]:
    """The cell worth reading first: the most weight on an ordinary token that is no neighbour of the query."""
    rows, columns = np.indices(weights.shape)
    hidden = np.asarray(special)
    shown = np.where((np.abs(rows - columns) < NEAR) | hidden[:, None] | hidden[None, :], -1.0, weights)
    i, j = np.unravel_index(shown.argmax(), shown.shape)
    return int(i), int(j)
