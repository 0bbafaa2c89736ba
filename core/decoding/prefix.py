"""What all decoding shares: a prompt, which rows go on, and a model that drops nothing out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from core.models.base import ModelOutput, Seq2Seq

BOS, EOS, PAD = 1, 2, 0
LONGEST = 4096

EndTokens = int | Collection[int]  # the end mark, or all tokens that are one, even none
Rules = Callable[[Tensor, Sequence[Sequence[int]]], Tensor]  # (B, V), what each row has said → allowed


@runtime_checkable
class Decoder(Protocol):
    """What a search asks of a model: a Seq2Seq, or anything else that reads a source and is fed one token a row."""

    training: bool

    def encode(self, source: Tensor, source_mask: Tensor, /) -> Any: ...

    def start(self, memory: Any, /) -> Any: ...

    def step(self, memory: Any, state: Any, tokens: Tensor, /) -> tuple[Tensor, Any, Any]: ...

    def train(self, mode: bool = True, /) -> Any: ...

    def eval(self) -> Any: ...


def allow_all(logp: Float[Tensor, "B V"], prefixes: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
    """The rule that forbids nothing."""
    return logp


def end_tokens(eos: EndTokens) -> frozenset[int]:
    """The tokens that end an output."""
    return frozenset((eos,) if isinstance(eos, int) else eos)


@dataclass(frozen=True)
class Prompt:
    """One source to decode from: source (1, S) or (1, S, D), its mask (1, S), and the token that is fed first.

    With `text` the model goes on with what it reads; then the last token read is the one that is fed first. `said`
    counts as said before, where nothing may be said twice.
    """

    source: Tensor
    mask: Bool[Tensor, "1 S"]
    first_token: int = BOS
    text: bool = False
    prefix_tokens: tuple[int, ...] = ()

    @classmethod
    def of_text(cls, ids: Sequence[int], device: str = "cpu") -> Prompt:
        """A text to go on with; ValueError for fewer than two tokens."""
        if len(ids) < 2:
            raise ValueError("A text to go on with needs two tokens at least.")
        source = torch.tensor([ids[:-1]], device=device)
        return cls(source, torch.ones_like(source, dtype=torch.bool), int(ids[-1]), text=True)


@dataclass(frozen=True)
class ForcedSteps:
    """What a model makes of one way to go on: all log-probabilities of each step, and where each step looked.

    `looks` holds, a layer, the weight of each said token on each place of the source (of all that was read, for text).
    """

    logp: Float[Tensor, "T V"]
    source_attention: list[Float[Tensor, "H T S"]]


@torch.no_grad()
def force_tokens(model: Seq2Seq, prompt: Prompt, tokens: Sequence[int]) -> ForcedSteps:
    """The steps that say these tokens, all at once, with attention recorded; ValueError for no token."""
    if not tokens:
        raise ValueError("There is no token to follow.")
    fed = torch.tensor([[prompt.first_token, *tokens[:-1]]], device=prompt.mask.device)
    with eval_mode(model):
        if not prompt.text:
            return _forced_steps(model(prompt.source, prompt.mask, fed, record=True), 0)
        line = torch.cat((prompt.source, fed), dim=1)
        return _forced_steps(model(line, torch.ones_like(line, dtype=torch.bool), record=True), prompt.source.shape[1])


def _forced_steps(answer: ModelOutput, first: int) -> ForcedSteps:
    maps = [weights[0, :, first:] for weights in answer.source_attention]
    return ForcedSteps(answer.logits[0, first:].log_softmax(-1), maps)


def select_rows(state: Any, rows: Int[Tensor, " R"]) -> Any:
    """A memory or a state with those rows of its batch: every tensor in one has the batch first, or it has its own
    `pick`."""
    if hasattr(state, "pick"):
        return state.pick(rows)
    if isinstance(state, Tensor):
        return state[rows]
    if isinstance(state, tuple | list):
        return type(state)(select_rows(part, rows) for part in state)
    if is_dataclass(state) and not isinstance(state, type):
        return replace(state, **{field.name: select_rows(getattr(state, field.name), rows) for field in fields(state)})
    return state


# Gradients are off in these two and not around a whole search: it is left and taken up again between its steps.
@torch.no_grad()
def encode_prompt(model: Decoder, prompt: Prompt) -> tuple[Any, Any]:
    """What was read, and the state before the first token."""
    memory = model.encode(prompt.source, prompt.mask)
    return memory, model.start(memory)


@torch.no_grad()
def decode_step(model: Decoder, memory: Any, state: Any, tokens: Int[Tensor, " R"]) -> tuple[Float[Tensor, "R V"], Any]:
    """One token a row, each row beside the one source: the next token's logits, and the new state."""
    logits, state, _ = model.step(select_rows(memory, torch.zeros_like(tokens)), state, tokens)
    return logits, state


@contextmanager
def eval_mode(model: Decoder) -> Iterator[None]:
    """Nothing is dropped out, whatever mode the model is in, and that mode comes back."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def length_cap(max_length: int | None, mask: Bool[Tensor, "B S"]) -> int:
    """The most tokens to say, twice the source and two more unless told; ValueError for none or too many."""
    longest = 2 * mask.shape[1] + 2 if max_length is None else max_length
    if not 1 <= longest <= LONGEST:
        raise ValueError(f"max_length = {longest}; expected 1 to {LONGEST}.")
    return longest
