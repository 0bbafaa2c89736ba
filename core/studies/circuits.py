"""What a model's weights say of its heads: circuits, their strongest compositions, and what they make of tokens.

Also two circuits of the lab's own models, found by patching.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from core.interpret.circuits import (
    Composer,
    CompositionKind,
    Compositions,
    HeadWeights,
    copying_scores,
    effective_rank,
    ov_factors,
    qk_factors,
    random_composition,
)
from core.interpret.lens import attribute_logit
from core.interpret.patching import pair_of, patch, ranked
from core.interpret.trace import Kind, layer_names, to_numpy
from core.pretrained import ModelInputs, Pretrained, PretrainedError, read, reject_if
from core.pretrained.base import display_tokens
from core.pretrained.reading import tokenized, tokenizer_of

Head = tuple[int, int]  # (index of its attention in the order in which they run, head)
# The first that a stream reads as one token is its default.
WORDS = ("river", "seven", "sieben", "the")
TOP, DIRECTIONS, ENDS = 8, 4, 3
# Which word stood before which is all that differs, so a head that tells it and one that looks for it must do it.
PAIR = (
    ModelInputs("the dark river and the cold house . we saw the dark"),
    ModelInputs("the cold river and the dark house . we saw the dark"),
)
PAIRED_MODELS = ("only-attention", "induction")
# Only who gives differs, and only the number of the subject.
NAME_PAIRS = (
    (
        "when ann and ben went to the shop , ben gave the book to",
        "when ann and ben went to the shop , ann gave the book to",
    ),
    ("the dogs near the tree", "the dog near the tree"),
)


@dataclass(frozen=True)
class Edge:
    """A composition of two heads, less the mean of random matrices."""

    kind: CompositionKind
    source: Head
    target: Head
    score: float


@dataclass(frozen=True, eq=False)
class AttentionMeasures:
    """The measures of the heads of one attention: copying (None without tokens) and effective rank, arrays (H,)."""

    copying: np.ndarray | None
    ranks: np.ndarray
    compositions: Compositions


@dataclass(frozen=True, eq=False)
class Circuits(HeadWeights):
    """The matrices of all heads and the measures of each attention."""

    measures: tuple[AttentionMeasures, ...]
    _pairs: dict[CompositionKind, list[Edge]] = field(default_factory=dict, repr=False)

    def all(self) -> Iterator[Head]:
        return ((row, head) for row, one in enumerate(self.heads) for head in range(len(one.w_v)))

    @cached_property
    def layer_names(self) -> list[str]:
        numbers = {(one.kind, one.layer): one.number for one in self.heads}
        return list(layer_names(numbers).values())

    @cached_property
    def head_names(self) -> list[str]:
        return [str(head) for head in range(max(len(one.w_v) for one in self.heads))]

    @cached_property
    def names(self) -> dict[str, Head]:
        return {self.name(head): head for head in self.all()}

    def name(self, head: Head) -> str:
        return f"{self.layer_names[head[0]]}·H{head[1]}"

    def has_tokens(self, row: int) -> bool:
        return self.vocabularies.serves(self.heads[row])

    @property
    def random_level(self) -> float:
        return random_composition(self.heads[0].w_o.shape[-1])

    @cached_property
    def kinds(self) -> list[CompositionKind]:
        """The kinds of which there is a composition, K first."""
        present = {kind for one in self.measures for kind in one.compositions.highest}
        return [kind for kind in ("K", "Q", "V") if kind in present]

    def chance(self, kind: CompositionKind) -> tuple[float, int]:
        """The most that random matrices reach, and in how many pairs."""
        parts = [one.compositions for one in self.measures if kind in one.compositions.highest]
        return max(one.highest[kind] for one in parts), sum(one.pairs[kind] for one in parts)

    def pairs(self, kind: CompositionKind) -> list[Edge]:
        """All compositions of a kind, the strongest first."""
        if kind not in self._pairs:
            edges = [
                Edge(kind, (earlier, a), (later, b), float(score))
                for later, one in enumerate(self.measures)
                for (of, earlier), scores in one.compositions.scores.items()
                if of == kind
                for (a, b), score in np.ndenumerate(to_numpy(scores))
            ]
            self._pairs[kind] = sorted(edges, key=lambda edge: -edge.score)
        return self._pairs[kind]

    def edges(self, kind: CompositionKind) -> list[Edge]:
        """Those that are above all random ones."""
        most, _ = self.chance(kind)
        return [edge for edge in self.pairs(kind) if edge.score > most]

    def best_into(self, head: Head) -> dict[CompositionKind, Edge]:
        """Of each kind the strongest composition of a head with an earlier one."""
        best: dict[CompositionKind, Edge] = {}
        for (kind, earlier), scores in self.measures[head[0]].compositions.scores.items():
            source = int(scores[:, head[1]].argmax())
            edge = Edge(kind, (earlier, source), head, float(scores[source, head[1]]))
            best[kind] = max(best.get(kind, edge), edge, key=lambda one: one.score)
        return best


def measure_attention(weights: HeadWeights, composer: Composer, row: int) -> AttentionMeasures:
    """Measure one attention, by its index; the composer keeps what the next ones need of it."""
    one = weights.heads[row]
    with torch.no_grad():
        score = copying_scores(one, weights.vocabularies)
        return AttentionMeasures(
            None if score is None else to_numpy(score),
            to_numpy(effective_rank(ov_factors(one)[1])),
            composer.into(row),
        )


def default_head(circuits: Circuits) -> Head:
    """The later head of the strongest composition; the first head where there is none."""
    return circuits.pairs(circuits.kinds[0])[0].target if circuits.kinds else (0, 0)


def singular_values(model: Pretrained, weights: HeadWeights, head: Head) -> dict[str, np.ndarray]:
    """Those of W_V W_O, and of W_Q W_Kᵀ where there is one, arrays (D,)."""
    one = weights.heads[head[0]]
    factors = ("OV", ov_factors(one)), ("QK", qk_factors(one))
    return {name: to_numpy(each[1][head[1]]) for name, each in factors if each is not None}


@dataclass(frozen=True)
class Extremes:
    """The tokens with the largest and with the smallest values, and the rank of one token among `count`."""

    most: list[tuple[str, float]]
    least: list[tuple[str, float]]
    rank: int
    count: int


def token_of(model: Pretrained, typed: str) -> tuple[int, int]:
    """The id of the first token of a typed word, and of how many it consists. PretrainedError for an unknown one."""
    tokenizer = tokenizer_of(model)
    ids = tokenized(model, f" {typed.strip()}", add_special_tokens=False)["input_ids"]
    # SentencePiece spells a space before some words as a token of its own, without any letters.
    ids = [one for one in ids if display_tokens(tokenizer, [one])[0].strip("▁ ")]
    reject_if(
        not ids or ids[0] == tokenizer.unk_token_id,
        f"{model.name} has no token for “{typed.strip()[:40]}”. Type another word.",
    )
    return ids[0], len(ids)


def default_token(model: Pretrained, weights: HeadWeights, stream: Kind) -> tuple[int, str]:
    """The first of WORDS that is one token which a stream embeds, else a token in the middle of the vocabulary."""
    embeddings = weights.vocabularies.embeddings[stream]
    for word in WORDS:
        with suppress(PretrainedError):
            token, pieces = token_of(model, word)
            if pieces == 1 and embeddings[token].any():
                return token, word
    token = len(tokenizer_of(model)) // 2
    return token, display_tokens(tokenizer_of(model), [token])[0]


def extremes(
    model: Pretrained, weights: HeadWeights, head: Head, circuit: str, token: int
) -> Extremes | None:
    """What a circuit (OV, QK) of a head gives all tokens for one: the logits added, or the scores with its query.

    None where the token has no embedding.
    """
    tables = weights.vocabularies
    effect = tables.written if circuit == "OV" else tables.attended
    values = effect(weights.heads[head[0]], head[1], token)
    if values is None or not values.any():
        return None
    least = [(name, -value) for name, value in top_tokens(model, -values)]
    return Extremes(top_tokens(model, values), least, *rank_of(model, values, token))


def top_tokens(model: Pretrained, values: Tensor, count: int = TOP) -> list[tuple[str, float]]:
    """The tokens with the largest values, without special ones."""
    ids = _ordinary(model, len(values))
    best = values[ids].topk(min(count, len(ids)))
    names = display_tokens(tokenizer_of(model), ids[best.indices.cpu()].tolist())
    return list(zip(names, best.values.tolist(), strict=True))


def rank_of(model: Pretrained, values: Tensor, token: int) -> tuple[int, int]:
    """The rank of a token's value, 1 for the largest, and of how many tokens, without special ones."""
    ids = _ordinary(model, len(values))
    return 1 + int((values[ids] > values[token]).sum()), len(ids)


def _ordinary(model: Pretrained, size: int) -> Tensor:
    """The ids of all tokens with a value that are not special."""
    tokenizer = tokenizer_of(model)
    ids = torch.arange(min(size, len(tokenizer)))
    return ids[~torch.isin(ids, torch.tensor(tokenizer.all_special_ids, dtype=torch.long))]


def directions(
    model: Pretrained, weights: HeadWeights, head: Head, circuit: str
) -> list[tuple[float, list[str], list[str]]]:
    """The largest singular values of a circuit (OV, QK) with the tokens furthest along their directions at both ends.

    They are of the key and the output, or of query and key. A direction and its opposite are the same, so each is
    turned to where its first end is longest.
    """
    one, tables = weights.heads[head[0]], weights.vocabularies
    keys = tables.embeddings[one.reads]
    factors = ov_factors(one) if circuit == "OV" else qk_factors(one)
    ends = keys, tables.unembeddings[one.writes].T
    if circuit == "QK":
        ends = tables.embeddings[one.writes], keys
    assert factors is not None, "a circuit that the head does not have is not offered"
    u, values, vh = (each[head[1]] for each in factors)
    rows = []
    for value, left, right in zip(values[:DIRECTIONS].tolist(), u.T, vh, strict=False):
        first, second = ends[0] @ left, ends[1] @ right
        turn = 1 if float(first.max()) >= -float(first.min()) else -1
        words, others = (
            [name for name, _ in top_tokens(model, turn * side, ENDS)] for side in (first, second)
        )
        rows.append((value, words, others))
    return rows


@dataclass(frozen=True, eq=False)
class InductionCircuit:
    """The two heads of a circuit by patching, with what each recovers, and by composition; and where they attend.

    `previous` is the mean weight of the first head on the token before, `answer` the weight of the second one's last
    row on the token that the model then predicts.
    """

    patched: tuple[Head, Head]
    effects: tuple[float, float]
    composed: Edge
    previous: float
    answer: float
    word: str


def induction_circuit(model: Pretrained, composed: Edge) -> InductionCircuit:
    """The induction circuit of one of PAIRED_MODELS by patching, beside its strongest K-composition."""
    pair, reading = pair_of(model, *PAIR), read(model, PAIR[0])
    best = ranked(patch(pair), "denoise")
    (first, gained), (second, regained) = (
        next(((layer, head), value) for (_, layer), head, value in best if layer == number)
        for number in (0, 1)
    )
    earlier, later = (item.weights for item in reading.trace.maps)
    word = str(pair.clean.word)
    answer = float(later[second[1], -1, reading.source.tokens.index(word)])
    previous = float(earlier[first[1]].diagonal(-1).mean())
    return InductionCircuit((first, second), (gained, regained), composed, previous, answer, word)


@dataclass(frozen=True)
class Carrier:
    """The head that brings back most of the difference between two texts, with the answers to both.

    `weight` is that of its last query in the first text on `key`, where it attends most; `adds` what it writes directly
    to the logit of the answer minus that of the other one, in both texts.
    """

    texts: tuple[str, str]
    answer: str
    other: str
    head: Head
    effect: float
    key: str
    weight: float
    adds: tuple[float, float]


def carriers(model: Pretrained) -> tuple[Carrier, ...]:
    """The head that carries each of NAME_PAIRS in the lab's model of names."""
    carried = []
    for texts in NAME_PAIRS:
        clean, corrupted = map(ModelInputs, texts)
        pair, reading = pair_of(model, clean, corrupted), read(model, clean)
        layer, head, effect = ranked(patch(pair), "denoise")[0]
        weights = reading.trace.maps[layer[1]].weights[head, -1]
        key = int(weights.argmax())
        # What the head writes directly to the difference of the two answers' logits, in both texts
        first, second = (
            next(
                part.value
                for part in attribute_logit(one, one.id, one.contrast).parts  # type: ignore[arg-type]
                if (part.role, part.key, part.head) == ("head", layer, head)
            )
            for one in (pair.clean, pair.corrupted)
        )
        answer, other = str(pair.clean.word), str(pair.clean.other)
        where = reading.source.tokens[key], float(weights[key])
        carried.append(
            Carrier(texts, answer, other, (layer[1], head), effect, *where, (first, second))
        )
    return tuple(carried)
