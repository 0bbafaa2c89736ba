"""What the circuits of one head make of tokens; cached, so that what is saved of it needs no tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.interpret.circuits import ov_factors, qk_factors
from core.interpret.trace import Kind
from core.pretrained import Pretrained, PretrainedError
from core.pretrained.base import display_tokens
from core.pretrained.reading import tokenized, tokenizer_of
from dashboard.server.cache import shared
from dashboard.ui.heads import weights_of
from dashboard.views.circuits.compute import Head
from dashboard.widgets.model_picker import ModelRef, load_model

WORDS = (
    "river",
    "seven",
    "sieben",
    "the",
)  # the first that a stream reads as one token is its default
TOP, DIRECTIONS, ENDS = 8, 4, 3


@dataclass(frozen=True)
class Extremes:
    """The tokens with the largest and with the smallest values, and the rank of one token among `count`."""

    most: list[tuple[str, float]]
    least: list[tuple[str, float]]
    rank: int
    count: int


@dataclass(frozen=True)
class Direction:
    """One singular direction: its value, and the tokens furthest along it at both ends."""

    value: float
    first: tuple[str, ...]
    second: tuple[str, ...]


def token_of(model: Pretrained, typed: str) -> tuple[int, int]:
    """The id of the first token of a typed word, and of how many it consists. PretrainedError for an unknown one."""
    ids = tokenized(model, f" {typed.strip()}", add_special_tokens=False)["input_ids"]
    ids = [one for one in ids if model_spells(model, one)]
    if not ids or ids[0] == tokenizer_of(model).unk_token_id:
        raise PretrainedError(
            f"{model.name} has no token for “{typed.strip()[:40]}”. Type another word."
        )
    return ids[0], len(ids)


def model_spells(model: Pretrained, token: int) -> bool:
    """Whether a token has any letters: SentencePiece spells a space before some words as a token of its own."""
    return bool(display_tokens(tokenizer_of(model), [token])[0].strip("▁ "))


def default_token(ref: ModelRef, stream: Kind) -> tuple[int, str]:
    """The first of WORDS that is one token which a stream embeds, else a token in the middle of the vocabulary."""
    return shared(_default_token, ref, stream)


def _default_token(ref: ModelRef, stream: Kind) -> tuple[int, str]:
    model, embeddings = load_model(ref), weights_of(ref).vocabularies.embeddings[stream]
    for word in WORDS:
        try:
            token, pieces = token_of(model, word)
        except PretrainedError:
            continue
        if pieces == 1 and embeddings[token].any():
            return token, word
    token = len(tokenizer_of(model)) // 2
    return token, display_tokens(tokenizer_of(model), [token])[0]


def extremes(ref: ModelRef, head: Head, circuit: str, token: int) -> Extremes | None:
    """What a circuit (OV, QK) of a head gives all tokens for one: the logits added, or the scores with its query.

    None where the token has no embedding.
    """
    return shared(_extremes, ref, head, circuit, token)


def _extremes(ref: ModelRef, head: Head, circuit: str, token: int) -> Extremes | None:
    model, weights = load_model(ref), weights_of(ref)
    tables, one = weights.vocabularies, weights.heads[head[0]]
    values = (tables.written if circuit == "OV" else tables.attended)(one, head[1], token)
    if values is None or not values.any():
        return None
    most, least = (top_tokens(model, sign * values) for sign in (1, -1))
    return Extremes(most, [(name, -value) for name, value in least], *rank_of(model, values, token))


def top_tokens(model: Pretrained, values: Tensor, count: int = TOP) -> list[tuple[str, float]]:
    """The tokens with the largest values, without special ones."""
    ids = _ordinary(model, len(values))
    best = values[ids].topk(min(count, len(ids)))
    best_ids = ids[best.indices.cpu()].tolist()
    return list(
        zip(display_tokens(tokenizer_of(model), best_ids), best.values.tolist(), strict=True)
    )


def rank_of(model: Pretrained, values: Tensor, token: int) -> tuple[int, int]:
    """The rank of a token's value, 1 for the largest, and of how many tokens, without special ones."""
    ids = _ordinary(model, len(values))
    return 1 + int((values[ids] > values[token]).sum()), len(ids)


def _ordinary(model: Pretrained, size: int) -> Tensor:
    """The ids of all tokens with a value that are not special."""
    tokenizer = tokenizer_of(model)
    ids = torch.arange(min(size, len(tokenizer)))
    return ids[~torch.isin(ids, torch.tensor(tokenizer.all_special_ids, dtype=torch.long))]


def directions(ref: ModelRef, head: Head, circuit: str) -> list[Direction]:
    """The largest singular directions of a circuit (OV, QK) as tokens: of the key and the output, of query and key.

    A direction and its opposite are the same, so each is turned to where its first end is longest.
    """
    return shared(_directions, ref, head, circuit)


def _directions(ref: ModelRef, head: Head, circuit: str) -> list[Direction]:
    model, weights = load_model(ref), weights_of(ref)
    one, tables = weights.heads[head[0]], weights.vocabularies
    factors = ov_factors(one) if circuit == "OV" else qk_factors(one)
    assert factors is not None
    u, values, vh = (each[head[1]] for each in factors)
    keys = tables.embeddings[one.reads]
    ends = (
        (keys, tables.unembeddings[one.writes].T)
        if circuit == "OV"
        else (tables.embeddings[one.writes], keys)
    )
    first, second = ends[0] @ u[:, :DIRECTIONS], ends[1] @ vh[:DIRECTIONS].T
    rows = []
    for index in range(first.shape[1]):
        turn = 1.0 if float(first[:, index].max()) >= -float(first[:, index].min()) else -1.0
        names = [
            tuple(name for name, _ in top_tokens(model, turn * side[:, index], ENDS))
            for side in (first, second)
        ]
        rows.append(Direction(float(values[index]), names[0], names[1]))
    return rows
