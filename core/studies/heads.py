"""One layer: a query through the formula, its parameters split into heads, four caches, and two maps with their λ.

Each of the queries, keys and values of a random layer or of a layer of MiniLM; those on MINILM_TEXT are saved, as are
one head and several trained on a task that needs two relations. `make heads` saves them again.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from core.attention import Attention, AttentionConfig, Choice, ConfigError, MultiHead, Steps, attend
from core.attention.cost import layer_admitted
from core.attention.projections.combined import Differential
from core.entries import quote
from core.interpret import trace as analysis
from core.pretrained import MINILM, MINILM_SHA256, Pretrained, layer_qkv, load_minilm
from core.seeding import pooled_layer, seeded_generator, seeded_layer, seeded_normal, seeded_rng
from core.studies.efficient import Saved, save
from core.tokens import embed, labels
from core.training.seed_stats import SeedStats

MINILM_LAYERS, MINILM_HEADS, MINILM_WIDTH = 6, 12, 384
MINILM_TEXT = "The animal didn't cross the street because it was too tired."
SAVED = Path(__file__).with_name("data") / "heads" / "minilm.safetensors"  # of MINILM_TEXT


@dataclass(frozen=True, eq=False)
class QKV:
    """The queries, keys and values of one layer on a text, by head.

    MiniLM's tokens have [CLS] first and [SEP] last.
    """

    tokens: tuple[str, ...]
    q: Float[Tensor, "1 H T D"]
    k: Float[Tensor, "1 H T D"]
    v: Float[Tensor, "1 H T D"]
    lengths: Float[np.ndarray, "H T"]  # of what each head adds to each token's new vector


@torch.inference_mode()
def random_qkv(tokens: tuple[str, ...], d_model: int, heads: int, seed: int) -> QKV:
    """The queries, keys and values of a multi-head layer with seeded weights, on seeded word vectors."""
    layer = seeded_layer(AttentionConfig(d_model, heads), seed)
    assert isinstance(layer.projection, MultiHead)
    steps = layer(embed(tokens, d_model, seed))
    return QKV(
        tokens,
        steps.q,
        steps.k,
        steps.v,
        head_parts(steps.out[0], layer.projection.output.weight).norm(dim=-1).numpy(),
    )


def saved_qkv(layer: int) -> QKV:
    """Those of a layer of MiniLM on MINILM_TEXT, as saved."""
    with safe_open(SAVED, "pt") as file:
        q, k, v, lengths = (file.get_slice(name)[layer] for name in ("q", "k", "v", "lengths"))
        return QKV(
            tuple(json.loads(file.metadata()["tokens"])), q[None], k[None], v[None], lengths.numpy()
        )


@torch.inference_mode()
def read_qkv(model: Pretrained, text: str, layer: int) -> QKV:
    """The queries, keys and values of a layer of MiniLM on a text; PretrainedError when it cannot read the text."""
    read = layer_qkv(model, text, layer)
    parts = head_parts(
        attend(read.q, read.k, read.v).out[0],
        model.model.encoder.layer[layer].attention.output.dense.weight,
    )
    return QKV(read.tokens, read.q, read.k, read.v, parts.norm(dim=-1).numpy())


def head_parts(out: Float[Tensor, "H T D"], w_o: Float[Tensor, "C HD"]) -> Float[Tensor, "H T C"]:
    """What each head adds to each word's new vector: its output times its D rows of W_o, as PyTorch stores it.

    The sum over the heads, with the bias, is the layer's output.
    """
    return torch.einsum("htd,hcd->htc", out, rearrange(w_o, "c (h d) -> h c d", h=len(out)))


def saved_on() -> str:
    """The date on which the saved arrays were made."""
    with safe_open(SAVED, "pt") as file:
        return str(file.metadata()["date"])


@dataclass(frozen=True, eq=False)
class Split:
    """One layer as H heads: weights (H, T, T), and their measures."""

    heads: int
    parameters: int
    weights: np.ndarray
    entropy: float  # of a row, nats, mean of all heads
    distance: float
    overlap: float | None  # of two heads, mean of all pairs; None for one head


@torch.inference_mode()
def split(qkv: QKV, heads: int) -> Split:
    """The same W_q, W_k, W_v and W_o cut into that many heads; MiniLM was trained with 12."""
    q, k, v = (
        rearrange(rearrange(part, "1 h t d -> t (h d)"), "t (h d) -> 1 h t d", h=heads)
        for part in (qkv.q, qkv.k, qkv.v)
    )
    weights, d_model = attend(q, k, v).weights[0].numpy(), heads * q.shape[-1]
    return Split(
        heads,
        4 * (d_model * d_model + d_model),
        weights,
        float(analysis.entropy(weights).mean()),
        float(analysis.mean_distance(weights).mean()),
        mean_overlap(weights),
    )


def mean_overlap(weights: np.ndarray) -> float | None:
    """The share of weight that two heads have in common, mean of all pairs; None for one head."""
    pairs = analysis.overlap(weights)[np.triu_indices(len(weights), 1)]
    return float(pairs.mean()) if pairs.size else None


def word_weights(weights: np.ndarray, tokens: Sequence[str]) -> np.ndarray:
    """The weights (H, T, T) between two different words, and −1 for all others, as of [CLS] or a full stop."""
    words = np.array(
        [any(sign.isalnum() for sign in token) and not token.startswith("[") for token in tokens]
    )
    pairs = words[:, None] & words & ~np.eye(len(words), dtype=bool)
    return np.where(pairs, weights, -1.0)


def word_heads(weights: np.ndarray, tokens: Sequence[str], count: int = 3) -> list[int]:
    """The heads of (H, T, T) with the largest weights from one word to another, in their order."""
    largest = word_weights(weights, tokens).max((1, 2))
    return sorted(np.argsort(-largest, kind="stable")[:count].tolist())


def largest_word_cell(weights: np.ndarray, tokens: Sequence[str]) -> tuple[int, int]:
    """Query and key of the largest weight of any head, (H, T, T), between two different words."""
    row, column = divmod(int(word_weights(weights, tokens).max(0).argmax()), len(tokens))
    return row, column


def word_targets(
    weights: np.ndarray, tokens: Sequence[str], heads: Sequence[int], row: int, key: int | None
) -> list[tuple[int, int]]:
    """Each of the heads with the key that a query gives most to, the largest weight first; the one `key` if given.

    (H, T, T) weights; only other words count, unless the query is no word.
    """
    words = word_weights(weights, tokens)[:, row]
    targets = [(head, int(words[head].argmax()) if key is None else key) for head in heads]
    return sorted(targets, key=lambda target: -weights[target[0], row, target[1]])


def main_target(weights: np.ndarray, tokens: Sequence[str]) -> tuple[str, float]:
    """What the rows of a map (T, T) attend to most, and its mean weight: one token, the one before, or the one after."""
    shares = [
        *zip(tokens, weights.mean(0), strict=True),
        ("the token before", analysis.previous_token(weights[None])[0]),
        ("the token after", analysis.previous_token(weights.T[None])[0]),
    ]
    name, share = max(shares, key=lambda each: each[1])
    return name, float(share)


@dataclass(frozen=True, eq=False)
class CacheSize:
    """A projection's weights and parameters, and the size of a decoder's cache of keys and values.

    In closed form, `config.sizes.cache` numbers are cached for each token.
    """

    config: AttentionConfig
    weights: np.ndarray  # (H, T, T)
    parameters: int
    overlap: float | None
    bytes: int  # of the tensors cached for `length` tokens, fp32, as they lie in memory


def projections(
    d_model: int, heads: int, kv_heads: int, latent: int
) -> tuple[AttentionConfig, ...]:
    """Multi-head, grouped-query, multi-query and latent attention; the last's rotated key is half a head."""
    return tuple(
        AttentionConfig(d_model, heads, choice)
        for choice in (
            Choice("multi_head"),
            Choice.of("grouped_query", kv_heads=kv_heads),
            Choice("multi_query"),
            Choice.of("latent", latent=latent, rope=max(2, d_model // heads // 4 * 2)),
        )
    )


@torch.inference_mode()
def share(qkv: QKV, config: AttentionConfig, seed: int, length: int) -> CacheSize:
    """The maps of a projection, and what a decoder caches with it for `length` random tokens, measured.

    Groups of heads share the mean of their keys and values; latent attention has random weights of its own.
    """
    layer = pooled_layer(config, seed)
    if config.projection.key == "latent":
        weights = layer(embed(qkv.tokens, config.d_model, seed)).weights
    else:
        k, v = (
            rearrange(part, "b (g n) t d -> b g n t d", g=config.kv_heads).mean(2)
            for part in (qkv.k, qkv.v)
        )
        weights = attend(qkv.q, k, v).weights
    context = seeded_normal(1, length, config.d_model, seed=seed, name="context")
    return CacheSize(
        config,
        weights[0].numpy(),
        sum(weight.numel() for weight in layer.parameters()),
        mean_overlap(weights[0].numpy()),
        sum(part.untyped_storage().nbytes() for part in layer.projection.cached(context)),
    )


@dataclass(frozen=True, eq=False)
class TwoMaps:
    """One head of differential attention: its two maps (T, T), λ, and λ at the start of training."""

    first: np.ndarray
    second: np.ndarray
    weight: float
    start: float

    @property
    def difference(self) -> np.ndarray:
        return self.first - self.weight * self.second

    @property
    def common(self) -> float:
        """The share of weight that both maps put on the same keys."""
        return float(analysis.overlap(np.stack((self.first, self.second)))[0, 1])


@torch.inference_mode()
def two_maps(qkv: QKV, head: int, depth: int, seed: int | None = None) -> TwoMaps:
    """One head's map from the first half of its query and key, and one from the second.

    λ is that of a layer with seeded weights, without a seed as training starts it; ConfigError for an odd head size.
    """
    _, heads, _, size = qkv.q.shape
    q, k, v = (part[:, head : head + 1] for part in (qkv.q, qkv.k, qkv.v))
    first, second = (
        attend(*halves, v).weights[0, 0].numpy()
        for halves in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)
    )
    projection = seeded_layer(
        AttentionConfig(heads * size, heads, Choice.of("differential", depth=depth)),
        0 if seed is None else seed,
    ).projection
    assert isinstance(projection, Differential)
    weight = projection.start if seed is None else float(projection.weight())
    return TwoMaps(first, second, weight, projection.start)


# One head against several of the same size, trained to name the letters on both sides of each letter.


# of the example, its middle letter
LETTERS, EXAMPLE, QUERY = (string.ascii_lowercase, "triangles", 4)
TRAINED_WIDTH, STEPS, BATCH, TESTED, SEEDS = 32, 400, 64, 1000, 5
RATES = (3e-3, 1e-2, 3e-2)
TRAINED = SAVED.with_name("trained.json")


class NeighbourModel(nn.Module):
    """Letters to scores of the letter before and the letter after each inner one: one attention, and a linear layer."""

    def __init__(self, heads: int, feed_forward: bool) -> None:
        super().__init__()
        width, config = TRAINED_WIDTH, AttentionConfig(TRAINED_WIDTH, heads, position="learned")
        self.embedding = nn.Embedding(len(LETTERS), width)
        self.attention = Attention(config, add_positions=True)
        inner = nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        self.feed_forward = nn.Sequential(*inner) if feed_forward else None
        self.output = nn.Linear(width, 2 * len(LETTERS))

    def forward(
        self, letters: Int[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B inner 2 letters"], Float[Tensor, "B H T T"]]:
        steps = self.attention(self.embedding(letters))
        x = steps.merged
        x = x if self.feed_forward is None else x + self.feed_forward(x)
        return self.output(x)[:, 1:-1].unflatten(-1, (2, len(LETTERS))), steps.weights


def draw_letters(count: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B inner 2"]]:
    """Random letters, and those before and after each inner one."""
    letters = torch.randint(len(LETTERS), (count, len(EXAMPLE)))
    return letters, torch.stack((letters[:, :-2], letters[:, 2:]), -1)


@dataclass(frozen=True)
class TrainedHeads:
    """Models of so many heads, trained from SEEDS seeds at the best of RATES.

    `accuracies` are the shares of neighbours that they name on fresh letters, `weights` (H, T) those of the first seed
    from the letter QUERY of EXAMPLE.
    """

    heads: int
    feed_forward: bool
    rate: float
    parameters: int
    accuracies: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]

    @property
    def accuracy(self) -> SeedStats:
        return SeedStats(self.accuracies, "share")


def train_heads(
    heads: int, feed_forward: bool, rate: float, seeds: int = SEEDS, steps: int = STEPS
) -> TrainedHeads:
    from core.claims.experiment import fit  # which no page that shows the result needs

    accuracies, weights = [], []
    for seed in range(seeds):
        with seeded_rng(seed):
            model = NeighbourModel(heads, feed_forward)

            def loss(model: NeighbourModel = model) -> Tensor:
                letters, neighbours = draw_letters(BATCH)
                return F.cross_entropy(model(letters)[0].flatten(0, 2), neighbours.flatten())

            fit(model, loss, steps, rate)
            letters, neighbours = draw_letters(TESTED)
        with torch.inference_mode():
            named = model(letters)[0].argmax(-1) == neighbours
            example = torch.tensor([[LETTERS.index(letter) for letter in EXAMPLE]])
            weights.append(model(example)[1][0, :, QUERY])
        accuracies.append(round(float(named.float().mean()), 5))
    return TrainedHeads(
        heads,
        feed_forward,
        rate,
        sum(weight.numel() for weight in model.parameters()),
        tuple(accuracies),
        tuple(tuple(round(weight, 4) for weight in row) for row in weights[0].tolist()),
    )


def load_trained() -> Saved[tuple[TrainedHeads, ...]]:
    """One, two and four heads, then one with a feed-forward network behind it."""
    return msgspec.json.decode(TRAINED.read_bytes(), type=Saved[tuple[TrainedHeads, ...]])


def compare_trained() -> tuple[TrainedHeads, ...]:
    """Train every model at each of RATES on one thread; about two minutes."""
    torch.set_num_threads(1)
    return tuple(
        max(
            (train_heads(heads, feed_forward, rate) for rate in RATES),
            key=lambda each: each.accuracy.mean,
        )
        for heads, feed_forward in ((1, False), (2, False), (4, False), (1, True))
    )


def main() -> None:
    """Save the trained heads, then MiniLM's q, k and v, each (layers, heads, tokens, head size), and what heads add."""
    save(TRAINED, Saved(compare_trained()))
    model = load_minilm()
    layers = [read_qkv(model, MINILM_TEXT, layer) for layer in range(MINILM_LAYERS)]
    tensors = {
        name: torch.cat([getattr(layer, name) for layer in layers]).contiguous() for name in "qkv"
    } | {"lengths": torch.from_numpy(np.stack([layer.lengths for layer in layers]))}
    save_file(
        tensors,
        SAVED,
        metadata={
            "tokens": json.dumps(layers[0].tokens),
            "text": MINILM_TEXT,
            "model": MINILM,
            "sha256": MINILM_SHA256,
            "date": datetime.now(UTC).date().isoformat(),
        },
    )


WORKED = "1,2|1,0;0,1;1,1|0.5,0.3;0.8,0.2;0.1,0.9"
MAX_ROWS, MAX_COLUMNS = 32, 16
Rows = list[list[float]]


# Three matrices that fit: Q (T, D), K (S, D), V (S, E).
Matrices: TypeAlias = tuple[Rows, Rows, Rows]


def parse(text: str) -> list[Rows]:
    """`1,2|1,0;0,1|…` → three lists of rows; ConfigError when there are not three, or a cell is not a number."""
    parts = text.split("|")
    if len(parts) != 3:
        raise ConfigError(
            "The link holds no Q, K and V: three matrices are written as 1,2|1,0;0,1|3;4."
        )
    return [
        [[_cell(c) for c in row.split(",")] for row in re.split("[;\n]", part) if row.strip()]
        for part in parts
    ]


def _cell(text: str) -> float:
    try:
        return float(text.replace("−", "-"))
    except ValueError as error:
        raise ConfigError(f"{quote(text.strip())} in the link's matrix is not a number.") from error


def write(parts: list[Rows]) -> str:
    return "|".join(
        ";".join(",".join(f"{value:.9g}" for value in row) for row in part) for part in parts
    )


def check(parts: list[Rows]) -> Matrices:
    """The three together; ConfigError names the first thing that does not fit, counting rows from 0."""
    for name, rows in zip("QKV", parts, strict=True):
        if not rows or not rows[0]:
            raise ConfigError(f"{name} has no rows; give it at least one.")
        if len(rows) > MAX_ROWS or max(map(len, rows)) > MAX_COLUMNS:
            raise ConfigError(
                f"{name} is larger than {MAX_ROWS} × {MAX_COLUMNS}; take fewer rows or columns."
            )
        if len({len(row) for row in rows}) > 1:
            raise ConfigError(
                f"{name}'s rows have {' and '.join(map(str, sorted({len(r) for r in rows})))} numbers; "
                "every row needs the same."
            )
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                if not abs(value) <= 1e6:
                    infinite = "infinite" if math.isinf(value) else f"{value:g}"
                    text = "empty or not a number (NaN)" if math.isnan(value) else infinite
                    raise ConfigError(
                        f"{name} row {i}, column {j} is {text}; "
                        "every cell needs a number between −1,000,000 and 1,000,000."
                    )
    q, k, v = parts
    if len(q[0]) != len(k[0]):
        raise ConfigError(
            f"Q has {len(q[0])} columns and K has {len(k[0])}; a query and a key are multiplied number "
            "by number, so give both the same."
        )
    if len(k) != len(v):
        raise ConfigError(
            f"K has {len(k)} rows and V has {len(v)}; each key has one value, so give both the same."
        )
    return q, k, v


DIMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
QUERIES, KEYS = 64, 64


@dataclass(frozen=True)
class Source:
    """The names of queries and keys, and either tokens or three typed matrices."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    matrices: Matrices | None = None

    @classmethod
    def sentence(cls, tokens: tuple[str, ...]) -> Source:
        names = labels(tokens)
        return cls(names, names, tokens)

    @classmethod
    def of_matrices(cls, matrices: Matrices) -> Source:
        return cls(
            tuple(f"q{i}" for i in range(len(matrices[0]))),
            tuple(f"k{j}" for j in range(len(matrices[1]))),
            (),
            matrices,
        )


@torch.inference_mode()
def run(config: AttentionConfig, source: Source, seed: int, real: int | None = None) -> Steps:
    """Every step of the attention of a layer with seeded weights on a source.

    `real` keys from the left are real, the others are padding. Typed matrices enter after the projection; ConfigError
    where a choice needs what they do not have.
    """
    key_mask = None if real is None else (torch.arange(len(source.keys)) < real)[None]
    with layer_admitted(config, len(source.queries), len(source.keys)):
        layer = seeded_layer(config, seed)
        if source.matrices is None:
            return layer(embed(source.tokens, config.d_model, seed), key_mask=key_mask)
    columns = len(source.matrices[2][0])
    if config.has("position", "values") and columns != config.v_dim:
        raise ConfigError(
            f"position = {config.position.key} adds vectors of size {config.v_dim} to the values, "
            f"and V has {columns} columns; give V as many columns as K, or take position = none."
        )
    q, k, v = (torch.tensor(part)[None, None] for part in source.matrices)  # one batch, one head
    return layer.attend_heads(q, k, v, key_mask=key_mask)


@torch.inference_mode()
def projected(
    config: AttentionConfig, source: Source, seed: int, head: int, steps: Steps
) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """What a head's query, key and value are made of, x (T, C) and the matrices w (C, D) without biases.

    q = x · w[0], k = x · w[1], v = x · w[2]; None where they are more than one matrix times x.
    """
    projection = seeded_layer(config, seed).projection
    if source.matrices is not None or not isinstance(projection, MultiHead):
        return None
    x = embed(source.tokens, config.d_model, seed)[0]
    rows = slice(head * config.head_dim, (head + 1) * config.head_dim)
    w = [part.weight[rows].T for part in (projection.query, projection.key, projection.value)]
    if not all(
        torch.allclose(x @ each, value, atol=1e-5)
        for each, value in zip(
            w, (steps.q[0, head], steps.k[0, head], steps.v[0, head]), strict=True
        )
    ):
        return None  # a position added to x or rotated q and k, or the score scaled them
    return x.numpy(), [each.numpy() for each in w]


class Scaling(NamedTuple):
    """One size: variance of the scores and mean entropy of the rows (nats), and the mean of each row's largest weight.

    Each for the dot product alone and divided by √D.
    """

    dims: int
    variance: tuple[float, ...]
    entropy: tuple[float, ...]
    largest: tuple[float, ...]


def measure_scaling(seed: int = 1044) -> tuple[Scaling, ...]:
    """64 standard normal queries against 64 such keys at each D from 1 to 512."""
    generator, points = seeded_generator(seed, "scaling"), []
    for dims in DIMS:
        q, k = (torch.randn(1, 1, rows, dims, generator=generator) for rows in (QUERIES, KEYS))
        both = attend(q, k, k, scale=1.0), attend(q, k, k)
        measures = zip(
            *(
                (
                    float(steps.scores.var()),
                    float(torch.special.entr(steps.weights).sum(-1).mean()),  # 0 · ln 0 as 0
                    float(steps.weights.max(-1).values.mean()),
                )
                for steps in both
            ),
            strict=True,
        )
        points.append(Scaling(dims, *measures))
    return tuple(points)
