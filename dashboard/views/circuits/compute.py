"""Circuits of all heads of a model, its strongest compositions, and the tokens of one head; cached by the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.pretrained import Pretrained, PretrainedError
from core.pretrained.circuits import (
    CompositionKind,
    HeadMatrices,
    Vocabularies,
    compositions,
    copying_scores,
    effective_rank,
    ov_factors,
    qk_factors,
    random_composition,
    read_heads,
    read_vocabularies,
)
from core.pretrained.lines import display_tokens
from core.pretrained.reading import tokenized, tokenizer_of
from core.trace import to_numpy
from dashboard.runtime.cache import shared
from dashboard.runtime.threads import one_thread
from dashboard.widgets.model_picker import ModelRef, load_model

Head = tuple[int, int]  # (index of its attention in the order in which they run, head)
STREAMS = {"self": "encoder", "causal": "decoder", "cross": "cross"}
WORDS = ("river", "seven", "sieben", "the")  # the first that a stream reads as one token is its default
TOP, DIRECTIONS, ENDS = 8, 4, 3


@dataclass(frozen=True)
class Edge:
    """A composition of two heads, above that of random matrices."""

    kind: CompositionKind
    source: Head
    target: Head
    score: float


@dataclass(frozen=True, eq=False)
class Circuits:
    """The matrices of all heads and their measures, an array (H,) for each attention; copying is None without tokens.

    `scores` are compositions (H, I) by kind and the indices of the earlier and the later attention.
    """

    heads: tuple[HeadMatrices, ...]
    vocabularies: Vocabularies
    copying: tuple[np.ndarray | None, ...]
    ranks: tuple[np.ndarray, ...]
    scores: Mapping[tuple[CompositionKind, int, int], np.ndarray]

    def all(self) -> Iterator[Head]:
        return ((row, head) for row, one in enumerate(self.heads) for head in range(len(one.w_v)))

    def layer_name(self, row: int) -> str:
        one = self.heads[row]
        several = len({each.kind for each in self.heads}) > 1
        return f"{STREAMS[one.kind]} L{one.number}" if several else f"L{one.number}"

    def name(self, head: Head) -> str:
        return f"{self.layer_name(head[0])}·H{head[1]}"

    def has_tokens(self, row: int) -> bool:
        return self.vocabularies.serves(self.heads[row])

    @property
    def random_level(self) -> float:
        return random_composition(self.heads[0].w_o.shape[-1])

    @property
    def kinds(self) -> list[CompositionKind]:
        """The kinds of which there is a composition, K first."""
        present = {kind for kind, *_ in self.scores}
        return [kind for kind in ("K", "Q", "V") if kind in present]

    def edges(self, kind: CompositionKind) -> list[Edge]:
        """All compositions of a kind, the strongest first."""
        edges = [Edge(kind, (earlier, a), (later, b), float(score)) for (of, earlier, later), scores
                 in self.scores.items() if of == kind for (a, b), score in np.ndenumerate(scores)]
        return sorted(edges, key=lambda edge: -edge.score)

    def best_into(self, head: Head) -> dict[CompositionKind, Edge]:
        """Of each kind the strongest composition of a head with an earlier one."""
        best: dict[CompositionKind, Edge] = {}
        for (kind, earlier, later), scores in self.scores.items():
            if later == head[0]:
                source = int(scores[:, head[1]].argmax())
                edge = Edge(kind, (earlier, source), head, float(scores[source, head[1]]))
                best[kind] = max(best.get(kind, edge), edge, key=lambda one: one.score)
        return best


@dataclass(frozen=True)
class Direction:
    """One singular direction: its value, and the tokens furthest along it at both ends."""

    value: float
    first: tuple[str, ...]
    second: tuple[str, ...]


def circuits_of(ref: ModelRef) -> Circuits:
    """The circuits of a model. PretrainedError as in `read_heads`."""
    return shared(_circuits, ref)


def _circuits(ref: ModelRef) -> Circuits:
    model = load_model(ref)
    with one_thread(), torch.no_grad():
        heads, vocabularies = read_heads(model), read_vocabularies(model)
        copying = tuple(None if (score := copying_scores(one, vocabularies)) is None else to_numpy(score)
                        for one in heads)
        ranks = tuple(to_numpy(effective_rank(ov_factors(one)[1])) for one in heads)
        scores = {key: to_numpy(score) for key, score in compositions(heads).items()}
    return Circuits(heads, vocabularies, copying, ranks, scores)


def default_head(circuits: Circuits) -> Head:
    """The later head of the strongest composition; the first head where there is none."""
    return circuits.edges(circuits.kinds[0])[0].target if circuits.kinds else (0, 0)


def token_of(model: Pretrained, typed: str) -> tuple[int, int]:
    """The id of the first token of a typed word, and of how many it consists. PretrainedError for an unknown one."""
    ids = tokenized(model, f" {typed.strip()}", add_special_tokens=False)["input_ids"]
    ids = [one for one in ids if model_spells(model, one)]
    if not ids or ids[0] == tokenizer_of(model).unk_token_id:
        raise PretrainedError(f"{model.name} has no token for “{typed.strip()[:40]}”. Type another word.")
    return ids[0], len(ids)


def model_spells(model: Pretrained, token: int) -> bool:
    """Whether a token has any letters: SentencePiece spells a space before some words as a token of its own."""
    return bool(display_tokens(tokenizer_of(model), [token])[0].strip("▁ "))


def default_token(model: Pretrained, embeddings: Tensor) -> tuple[int, str]:
    """The first of WORDS that is one token with an embedding, else a token in the middle of the vocabulary."""
    for word in WORDS:
        try:
            token, pieces = token_of(model, word)
        except PretrainedError:
            continue
        if pieces == 1 and embeddings[token].any():
            return token, word
    token = len(tokenizer_of(model)) // 2
    return token, display_tokens(tokenizer_of(model), [token])[0]


def top_tokens(model: Pretrained, values: Tensor, count: int = TOP) -> list[tuple[str, float]]:
    """The tokens with the largest values, without special ones."""
    ids = _ordinary(model, len(values))
    best = values[ids].topk(min(count, len(ids)))
    best_ids = ids[best.indices.cpu()].tolist()
    return list(zip(display_tokens(tokenizer_of(model), best_ids), best.values.tolist(), strict=True))


def rank_of(model: Pretrained, values: Tensor, token: int) -> tuple[int, int]:
    """The rank of a token's value, 1 for the largest, and of how many tokens, without special ones."""
    ids = _ordinary(model, len(values))
    return 1 + int((values[ids] > values[token]).sum()), len(ids)


def _ordinary(model: Pretrained, size: int) -> Tensor:
    """The ids of all tokens with a value that are not special."""
    tokenizer = tokenizer_of(model)
    special = set(tokenizer.all_special_ids)
    return torch.tensor([one for one in range(min(size, len(tokenizer))) if one not in special])


def singular_values(circuits: Circuits, head: Head) -> dict[str, np.ndarray]:
    """Those of W_V W_O, and of W_Q W_Kᵀ where there is one."""
    one = circuits.heads[head[0]]
    factors = {"OV": ov_factors(one), "QK": qk_factors(one)}
    return {name: to_numpy(each[1][head[1]]) for name, each in factors.items() if each is not None}


def directions(model: Pretrained, circuits: Circuits, head: Head, circuit: str) -> list[Direction]:
    """The largest singular directions of a circuit (OV, QK) as tokens: of the key and the output, of query and key.

    A direction and its opposite are the same, so each is turned to where its first end is longest.
    """
    one, tables = circuits.heads[head[0]], circuits.vocabularies
    factors = ov_factors(one) if circuit == "OV" else qk_factors(one)
    if factors is None or not circuits.has_tokens(head[0]):
        return []
    u, values, vh = (each[head[1]] for each in factors)
    keys = tables.embeddings[one.reads]
    ends = (keys, tables.unembeddings[one.writes].T) if circuit == "OV" else (tables.embeddings[one.writes], keys)
    first, second = ends[0] @ u[:, :DIRECTIONS], ends[1] @ vh[:DIRECTIONS].T
    rows = []
    for index in range(first.shape[1]):
        turn = 1.0 if float(first[:, index].max()) >= -float(first[:, index].min()) else -1.0
        names = [tuple(name for name, _ in top_tokens(model, turn * side[:, index], ENDS)) for side in (first, second)]
        rows.append(Direction(float(values[index]), names[0], names[1]))
    return rows
