"""What a model says: the next token, the masked word, a class, or an embedding, with all heads on or some off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.attention_recorder import NO_HEADS, HeadSet
from core.pretrained.base import Line, ModelInputs, Pretrained, PretrainedError
from core.pretrained.lines import CONTINUES, display_tokens
from core.pretrained.reading import encode, forward, tokenized, tokenizer_of

AnswerKind = Literal["next", "mask", "class", "embedding"]


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer at one place: logits (V,), or a vector (C,) of length one where the model has no head."""

    kind: AnswerKind
    logits: Float[Tensor, " V"] | None = None
    vector: Float[Tensor, " C"] | None = None
    place: int = 0

    @property
    def probabilities(self) -> Float[Tensor, " V"] | None:
        """The softmax of the logits; None for an embedding."""
        return None if self.logits is None else self.logits.softmax(-1)


class Candidate(NamedTuple):
    """One token or class of an answer: its number, how a person reads it, and its probability."""

    id: int
    word: str
    probability: float


def answer(pretrained: Pretrained, given: ModelInputs, off: HeadSet = NO_HEADS, place: int | None = None) -> Answer:
    """What the model says of what was given; `place` is the row that answers, by default the last or the masked one.

    PretrainedError when a model of masked words is given no mask.
    """
    batch, *_ = encode(pretrained, given)
    with torch.no_grad():
        output, _ = forward(pretrained, batch, off=off)
    return answer_of(pretrained, batch, output, place)


def answer_of(pretrained: Pretrained, batch: dict[str, Tensor], output: Any, place: int | None = None) -> Answer:
    """The answer in a model's output, which keeps its gradients."""
    if pretrained.head == "classify":
        return Answer("class", output.logits[0])
    if pretrained.head == "none":
        states = getattr(output, "last_hidden_state", None)
        if states is None:
            raise PretrainedError(f"{pretrained.name} ends in {type(pretrained.model).__name__}, whose answer is "
                                  "neither a token, a class nor an embedding; take a model that gives one of these.")
        mask = None if "decoder_input_ids" in batch else batch.get("attention_mask")
        return Answer("embedding", vector=embedding(states, mask))
    if place is None:
        place = mask_position(pretrained, batch["input_ids"]) if pretrained.head == "masked" else -1
    place = place % output.logits.shape[1]
    # A view would keep the logits of every place alive.
    logits = output.logits[0, place].clone()
    return Answer("mask" if pretrained.head == "masked" else "next", logits, place=place)


def top_candidates(pretrained: Pretrained, found: Answer, count: int = 10) -> tuple[Candidate, ...]:
    """The likeliest tokens or classes, the first first; none for an embedding."""
    if found.logits is None or found.probabilities is None:
        return ()
    best = found.probabilities.detach().topk(min(count, len(found.logits)))
    ids = best.indices.tolist()
    return tuple(map(Candidate, ids, display_names(pretrained, found, ids), best.values.tolist()))


def display_names(pretrained: Pretrained, found: Answer, ids: Sequence[int]) -> tuple[str, ...]:
    """How a person reads these numbers of an answer: the names of classes, or tokens as they are written.

    ## stands before a token that goes on with a word, in vocabularies that mark the ones that begin one.
    """
    if found.kind == "class":
        names = pretrained.model.config.id2label
        return tuple(str(names.get(one, one)) for one in ids)
    return display_tokens(tokenizer_of(pretrained), ids)


def maskable_words(line: Line) -> dict[int, str]:
    """The words of sentence A by the number that `with_mask` takes, each from all its pieces; PretrainedError for none.
    """
    found: dict[int, str] = {}
    for token, word, segment in zip(line.tokens, line.word, line.segment, strict=True):
        if word is not None and segment == 0:
            found[word] = found.get(word, "") + token.removeprefix(CONTINUES)
    if not found:
        raise PretrainedError("The text has no word that could be masked; write one or more.")
    return found


def mask_word(pretrained: Pretrained, text: str, word: int) -> str:
    """The text with a mask in place of one of its words, counted as `Line.word` counts them.

    PretrainedError when the model fills no masks, or the text has no such word.
    """
    mask = getattr(pretrained.tokenizer, "mask_token", None)
    if pretrained.head != "masked" or mask is None:
        raise PretrainedError(f"{pretrained.name} fills no masks; take a model of masked words, such as BERT.")
    found = tokenized(pretrained, text)
    if word not in found.word_ids():
        raise PretrainedError(f"The text has no word {word}.")
    start, end = found.word_to_chars(word)
    start = end - len(text[start:end].lstrip())
    return f"{text[:start]}{mask}{text[end:]}"


def embedding(states: Float[Tensor, "1 T C"], mask: Tensor | None) -> Float[Tensor, " C"]:
    """The mean of the real tokens' states, of length one. Reimers & Gurevych 2019, section 3."""
    real = states.new_ones(states.shape[:2]) if mask is None else mask.to(states)
    mean = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=-1)[0]


def mask_position(pretrained: Pretrained, ids: Tensor) -> int:
    """Where the first mask stands; PretrainedError when there is none."""
    token = pretrained.tokenizer.mask_token
    found = (ids[0] == pretrained.tokenizer.mask_token_id).nonzero()
    if not len(found):
        raise PretrainedError(f"{pretrained.name} fills masks: write {token} where a word is missing.")
    return int(found[0])
