"""Shared by all decoding: the prompt, the batch of prefixes that a search continues, and teacher-forced tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from core.decoding.filters import no_repeat as without_repeats
from core.decoding.tree import ROOT, Tree
from core.models.base import Seq2Seq

BOS, EOS, PAD = 1, 2, 0
LONGEST = 4096
P = ParamSpec("P")

EndTokens = int | Collection[int]  # the end mark, or all of them, even none
Rules = Callable[
    [Tensor, Sequence[Sequence[int]]], Tensor
]  # log-probabilities (B, V), the tokens of each row → (B, V)


@runtime_checkable
class Decoder(Protocol):
    """The interface of a model for a search: a Seq2Seq, or anything else with encode, start and step."""

    training: bool

    def encode(self, source: Tensor, source_mask: Tensor, /) -> Any: ...

    def start(self, memory: Any, /) -> Any: ...

    def step(self, memory: Any, state: Any, tokens: Tensor, /) -> tuple[Tensor, Any, Any]: ...

    def train(self, mode: bool = True, /) -> Any: ...

    def eval(self) -> Any: ...


def allow_all(
    logp: Float[Tensor, "B V"], prefixes: Sequence[Sequence[int]]
) -> Float[Tensor, "B V"]:
    """Rules that forbid nothing."""
    return logp


def end_tokens(eos: EndTokens) -> frozenset[int]:
    """The tokens that end an output."""
    return frozenset((eos,) if isinstance(eos, int) else eos)


@dataclass(frozen=True)
class Prompt:
    """One source to decode from: source (1, S) or (1, S, D), its mask (1, S), and the token that is fed first.

    With `text` the model continues the source, whose last token is the first one fed. `prefix_tokens` count as
    generated before, for `no_repeat` and rules.
    """

    source: Tensor
    mask: Bool[Tensor, "1 S"]
    first_token: int = BOS
    text: bool = False
    prefix_tokens: tuple[int, ...] = ()

    @classmethod
    def of_text(cls, ids: Sequence[int], device: str = "cpu") -> Prompt:
        """The prompt of a text to continue; ValueError for fewer than two tokens."""
        if len(ids) < 2:
            raise ValueError("A text to continue needs at least two tokens.")
        source = torch.tensor([ids[:-1]], device=device)
        return cls(source, torch.ones_like(source, dtype=torch.bool), int(ids[-1]), text=True)


@dataclass(frozen=True)
class ForcedSteps:
    """The log-probabilities of each step with teacher forcing, and its weights on the source, layer by layer (on all
    that was read, for text)."""

    logp: Float[Tensor, "T V"]
    source_attention: list[Float[Tensor, "H T S"]]


@torch.no_grad()
def force_tokens(model: Seq2Seq, prompt: Prompt, tokens: Sequence[int]) -> ForcedSteps:
    """The steps that generate these tokens, in one pass; ValueError for no token."""
    if not tokens:
        raise ValueError("There is no token to continue from.")
    inputs, first = torch.tensor([[prompt.first_token, *tokens[:-1]]], device=prompt.mask.device), 0
    with eval_mode(model):
        if prompt.text:
            sequence, first = torch.cat((prompt.source, inputs), dim=1), prompt.source.shape[1]
            output = model(sequence, torch.ones_like(sequence, dtype=torch.bool), record=True)
        else:
            output = model(prompt.source, prompt.mask, inputs, record=True)
    maps = [weights[0, :, first:] for weights in output.source_attention]
    return ForcedSteps(output.logits[0, first:].log_softmax(-1), maps)


def select_rows(state: Any, rows: Int[Tensor, " R"]) -> Any:
    """Those rows of a memory's or state's batch: its tensors have the batch first, or it has its own `pick`."""
    if hasattr(state, "pick"):
        return state.pick(rows)
    if isinstance(state, Tensor):
        return state[rows]
    if isinstance(state, tuple | list):
        return type(state)(select_rows(part, rows) for part in state)
    if is_dataclass(state) and not isinstance(state, type):
        return replace(
            state,
            **{
                field.name: select_rows(getattr(state, field.name), rows) for field in fields(state)
            },
        )
    return state


class Search:
    """The prefixes that a search continues, one a row of the decoder's batch, and the tree of all candidates. Each step
    is in inference mode, not a whole search, which may pause between its steps."""

    @torch.inference_mode()
    def __init__(self, model: Decoder, prompt: Prompt, no_repeat: int, rules: Rules) -> None:
        self.model, self.prompt, self.no_repeat, self.rules = model, prompt, no_repeat, rules
        self.tree, self.active = Tree(), [ROOT]
        self.memory = model.encode(prompt.source, prompt.mask)
        self.state = model.start(self.memory)
        self.tokens = torch.tensor([prompt.first_token], device=prompt.mask.device)

    @torch.inference_mode()
    def next_logp(self) -> tuple[Float[Tensor, "R V"], Float[Tensor, "R V"]]:
        """The log-probabilities of each prefix's next token, and the same with −∞ for what may not be generated."""
        memory = select_rows(self.memory, torch.zeros_like(self.tokens))
        logits, self.state, _ = self.model.step(memory, self.state, self.tokens)
        logp = logits.float().log_softmax(-1)
        prefixes = [self.prompt.prefix_tokens + self.tree.tokens(index) for index in self.active]
        return logp, self.rules(without_repeats(logp, prefixes, self.no_repeat), prefixes)

    def advance(self, active: list[int]) -> None:
        """Continue with those candidates of the tree."""
        candidates, device = [self.tree.candidates[index] for index in active], self.tokens.device
        rows = [self.active.index(candidate.parent) for candidate in candidates]
        self.state = select_rows(self.state, torch.tensor(rows, device=device))
        self.tokens = torch.tensor([candidate.token for candidate in candidates], device=device)
        self.active = active


def last_tree(search: Callable[P, Iterator[Tree]]) -> Callable[P, Tree]:
    """The search run to its end, without the trees between."""

    @wraps(search)
    def run(*args: P.args, **kwargs: P.kwargs) -> Tree:
        *_, tree = search(*args, **kwargs)
        return tree

    return run


@contextmanager
def eval_mode(model: Decoder) -> Iterator[None]:
    """The model in evaluation mode; its own mode is restored."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def length_cap(max_length: int | None, mask: Bool[Tensor, "B S"]) -> int:
    """The largest number of tokens, by default 2S + 2; ValueError unless it is 1 to LONGEST."""
    longest = 2 * mask.shape[1] + 2 if max_length is None else max_length
    if not 1 <= longest <= LONGEST:
        raise ValueError(f"max_length = {longest}; expected 1 to {LONGEST}.")
    return longest
