"""A model's answer: the next token, the masked word, a class, or an embedding, with all heads on or some off."""

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
    """The answer at one position: logits (V,), or a unit vector (C,) where the model has no head."""

    kind: AnswerKind
    logits: Float[Tensor, " V"] | None = None
    vector: Float[Tensor, " C"] | None = None
    position: int = 0

    @property
    def probabilities(self) -> Float[Tensor, " V"] | None:
        """The softmax of the logits; None for an embedding."""
        return None if self.logits is None else self.logits.softmax(-1)


class Candidate(NamedTuple):
    """One token or class of an answer: its id, its display name and its probability."""

    id: int
    word: str
    probability: float


def answer(
    pretrained: Pretrained,
    inputs: ModelInputs,
    off: HeadSet = NO_HEADS,
    position: int | None = None,
) -> Answer:
    """The model's answer to its inputs at `position`, by default the last one or the masked one.

    PretrainedError when a masked language model gets no mask.
    """
    batch, *_ = encode(pretrained, inputs)
    output, _ = forward(pretrained, batch, off=off)
    return answer_of(pretrained, batch, output, position)


def answer_of(pretrained: Pretrained, batch: dict[str, Tensor], output: Any, position: int | None = None,
              row: int = 0) -> Answer:  # fmt: skip
    """The answer in a row of a model's output; it keeps its gradients."""
    if pretrained.head == "classify":
        return Answer("class", output.logits[row])
    if pretrained.head == "none":
        states = getattr(output, "last_hidden_state", None)
        if states is None or states.ndim != 3:
            raise PretrainedError(
                f"{pretrained.name} is a {type(pretrained.model).__name__}, whose output is not a "
                "token, a class or an embedding that is shown here; take a model with one of these."
            )
        mask = None if "decoder_input_ids" in batch else batch.get("attention_mask")
        mask = None if mask is None else mask[row : row + 1]
        return Answer("embedding", vector=embedding(states[row : row + 1], mask))
    if position is None:
        position = (
            mask_position(pretrained, batch["input_ids"]) if pretrained.head == "masked" else -1
        )
    position = position % output.logits.shape[1]
    # Clone: a view would keep the logits of every position in memory.
    logits = output.logits[row, position].clone()
    return Answer("mask" if pretrained.head == "masked" else "next", logits, position=position)


def top_candidates(
    pretrained: Pretrained, answer: Answer, count: int = 10
) -> tuple[Candidate, ...]:
    """The `count` likeliest tokens or classes, likeliest first; empty for an embedding."""
    if answer.logits is None or answer.probabilities is None:
        return ()
    best = answer.probabilities.detach().topk(min(count, len(answer.logits)))
    ids = best.indices.tolist()
    return tuple(map(Candidate, ids, display_names(pretrained, answer, ids), best.values.tolist()))


def display_names(pretrained: Pretrained, answer: Answer, ids: Sequence[int]) -> tuple[str, ...]:
    """The names of classes, or the text of tokens, by their ids.

    ## marks a token that continues a word, in vocabularies that mark the beginning of words.
    """
    if answer.kind == "class":
        names = pretrained.model.config.id2label
        return tuple(str(names.get(one, one)) for one in ids)
    return display_tokens(tokenizer_of(pretrained), ids)


def maskable_words(line: Line) -> dict[int, str]:
    """The words of sentence A by the index that `mask_word` takes; PretrainedError when there are none."""
    words: dict[int, str] = {}
    for token, word, segment in zip(line.tokens, line.word, line.segment, strict=True):
        if word is not None and segment == 0:
            words[word] = words.get(word, "") + token.removeprefix(CONTINUES)
    if not words:
        raise PretrainedError("The text has no word that could be masked; write one or more.")
    return words


def mask_word(pretrained: Pretrained, text: str, word: int) -> str:
    """The text with one word replaced by the mask token, by its index in `Line.word`.

    PretrainedError when the model fills no masks, or the text has no such word.
    """
    mask = getattr(pretrained.tokenizer, "mask_token", None)
    if pretrained.head != "masked" or mask is None:
        raise PretrainedError(
            f"{pretrained.name} cannot fill masks; take a model of masked words, such as BERT."
        )
    encoding = tokenized(pretrained, text)
    if word not in encoding.word_ids():
        raise PretrainedError(f"The text has no word {word}.")
    start, end = encoding.word_to_chars(word)
    start = end - len(text[start:end].lstrip())
    return f"{text[:start]}{mask}{text[end:]}"


def embedding(states: Float[Tensor, "1 T C"], mask: Tensor | None) -> Float[Tensor, " C"]:
    """The mean state of all tokens but padding, normalized to length 1. Reimers & Gurevych 2019, section 3."""
    real = states.new_ones(states.shape[:2]) if mask is None else mask.to(states)
    mean = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=-1)[0]


def mask_position(pretrained: Pretrained, ids: Tensor) -> int:
    """The position of the first mask token; PretrainedError when there is none."""
    token = pretrained.tokenizer.mask_token
    masked = (ids[0] == pretrained.tokenizer.mask_token_id).nonzero()
    if not len(masked):
        raise PretrainedError(
            f"{pretrained.name} fills masks: write {token} where a word is missing."
        )
    return int(masked[0])
