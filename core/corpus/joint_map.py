"""A head's queries and keys as points of one plane (Yeh et al. 2023, AttentionViz)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from core.interpret.trace import Kind, to_numpy
from core.interpret.weight_breakdown import layer_attentions
from core.pretrained.base import ModelInputs, Pretrained, PretrainedError
from core.pretrained.reading import encode, encode_source


@dataclass(frozen=True, eq=False)
class HeadVectors:
    """The queries and keys of all layers of a kind, over several texts: one array (H or G, N, D) a layer.

    `tokens` are the N tokens, `positions` their places in their texts, and `texts` the number of its text.
    """

    q: tuple[Float[np.ndarray, "H N D"], ...]
    k: tuple[Float[np.ndarray, "G N D"], ...]
    tokens: tuple[str, ...]
    positions: Int[np.ndarray, " N"]
    texts: Int[np.ndarray, " N"]

    def head(
        self, layer: int, head: int
    ) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, "N D"]]:
        """The queries of one head, and the keys that they meet."""
        group = head // (len(self.q[layer]) // len(self.k[layer]))
        return self.q[layer][head], self.k[layer][group]


@dataclass(frozen=True, eq=False)
class TextVectors:
    """The same on one text of T tokens."""

    q: tuple[Float[np.ndarray, "H T D"], ...]
    k: tuple[Float[np.ndarray, "G T D"], ...]
    tokens: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class JointMap:
    """Queries and keys (N, 2) in the plane of most variance, and the share of variance of each axis.

    `scale` multiplied the queries and divided the keys, which leaves every product q·k as it is.
    """

    q: Float[np.ndarray, "N 2"]
    k: Float[np.ndarray, "N 2"]
    share: tuple[float, float]
    scale: float


def nearness(points: JointMap, vectors: HeadVectors, layer: int, head: int) -> float:
    """The correlation of −distance² in the plane with q·k, over all pairs of one text; nan where one is constant."""
    q, k = vectors.head(layer, head)
    same = vectors.texts[:, None] == vectors.texts[None, :]
    distance = ((points.q[:, None] - points.k[None]) ** 2).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(-distance[same], (q @ k.T)[same])[0, 1])


def head_vectors(
    pretrained: Pretrained, inputs: Sequence[ModelInputs], kind: Kind, most: int
) -> HeadVectors:
    """The queries and keys of every head on these texts, until they have `most` tokens.

    PretrainedError where they are not recorded.
    """
    return join_vectors(
        [text_vectors(pretrained, item, kind) for item in first_texts(pretrained, inputs, most)]
    )


def first_texts(
    pretrained: Pretrained, inputs: Sequence[ModelInputs], most: int
) -> list[ModelInputs]:
    """The first texts, until the model reads `most` tokens of them."""
    texts, tokens = [], 0
    for item in inputs:
        if tokens >= most:
            break
        texts.append(item)
        tokens += len(encode_source(pretrained, item)[1])
    return texts


def text_vectors(pretrained: Pretrained, item: ModelInputs, kind: Kind) -> TextVectors:
    """The queries and keys of every head on one text. PretrainedError where they are not recorded."""
    layers = [one for one in layer_attentions(pretrained, item) if one.kind == kind]
    if not layers:
        raise PretrainedError(
            f"{pretrained.name} has no layer of this kind whose queries and keys can be read."
        )
    line = encode_source(pretrained, item)[1]
    if kind == "causal":
        line = encode(pretrained, item)[2] or line  # an encoder–decoder may have to generate it
    return TextVectors(
        tuple(to_numpy(one.q) for one in layers),
        tuple(to_numpy(one.k) for one in layers),
        line.tokens,
    )


def join_vectors(parts: Sequence[TextVectors]) -> HeadVectors:
    """The vectors of all texts, one text after another."""
    q, k = (
        tuple(
            np.concatenate(layer, 1)
            for layer in zip(*(getattr(part, name) for part in parts), strict=True)
        )
        for name in "qk"
    )
    lengths = [len(part.tokens) for part in parts]
    return HeadVectors(
        q,
        k,
        tuple(token for part in parts for token in part.tokens),
        np.concatenate([np.arange(length) for length in lengths]),
        np.repeat(np.arange(len(parts)), lengths),
    )


def joint_map(q: Float[np.ndarray, "N D"], k: Float[np.ndarray, "N D"]) -> JointMap:
    """The first two principal components of queries and keys together.

    Both are made to overlap first without changing any weight: keys are moved to the mean of the queries, which adds
    the same number to all scores of a query, and both get the same standard deviation.
    """
    q, k = q.astype(np.float64), k.astype(np.float64)
    stds = [float(one.std(0).mean()) for one in (q, k)]
    scale = (stds[1] / stds[0]) ** 0.5 if min(stds) > 0 else 1.0
    q, k = q * scale, k / scale
    k = k - k.mean(0) + q.mean(0)
    both = np.concatenate([q, k])
    both = both - both.mean(0)
    _, sizes, axes = np.linalg.svd(both, full_matrices=False)
    axes = axes[:2] * np.where(
        axes[:2].sum(1, keepdims=True) < 0, -1, 1
    )  # one sign, whatever the library takes
    points, total = both @ axes.T, float((sizes**2).sum()) or 1.0
    share = tuple(float(size**2) / total for size in sizes[:2])
    return JointMap(points[: len(q)], points[len(q) :], (share[0], share[1]), scale)
