"""Greedy, beam and sampling search with a cache of keys and values or without, and the tree of what it considered."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec, Protocol

import torch
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from core.models.base import Seq2Seq
from core.serialization import check_types

ROOT = -1


@dataclass
class Candidate:
    """One token after one prefix. `logp` is its log-probability there, `total` the sum from the start.

    `fate`: kept (the search continued with it), ended (it is an end mark), cut (kept at the last step), or dropped.
    `samples` counts the samples that drew it, `chance` is the probability with which each did.
    """

    token: int
    parent: int
    step: int
    logp: float
    total: float
    fate: str = "dropped"
    samples: int = 0
    chance: float | None = None


@dataclass(frozen=True)
class Hypothesis:
    """One output: its last candidate in the tree, its tokens (with its end mark, if any), and its score."""

    leaf: int
    tokens: tuple[int, ...]
    logp: float
    score: float
    samples: int = 0

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass
class Tree:
    """Candidates in the order of the search, and the outputs, best first."""

    candidates: list[Candidate] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def add(self, candidate: Candidate) -> int:
        self.candidates.append(candidate)
        return len(self.candidates) - 1

    def path(self, index: int) -> list[int]:
        """The indexes of the candidates from the first step to this one."""
        path = []
        while index != ROOT:
            path.append(index)
            index = self.candidates[index].parent
        return path[::-1]

    def tokens(self, index: int) -> tuple[int, ...]:
        """The tokens up to this candidate."""
        return tuple(self.candidates[step].token for step in self.path(index))

    @property
    def length(self) -> int:
        """The number of tokens of the longest output so far."""
        return 1 + max((one.step for one in self.candidates), default=-1)

    def outputs(self, done: bool) -> list[Hypothesis]:
        """The outputs, the best first; while the search is not done, also the beginnings that it would continue."""
        hypotheses, last = list(self.hypotheses), self.length - 1
        if not done:
            hypotheses += [
                Hypothesis(leaf, self.tokens(leaf), one.total, one.total, one.samples)
                for leaf, one in enumerate(self.candidates)
                if one.step == last and one.fate == "kept"
            ]
            hypotheses.sort(key=lambda one: (-one.samples, -one.logp))
        return hypotheses

    def finish(self, index: int, score: float) -> None:
        """Add the output that ends on this candidate."""
        leaf = self.candidates[index]
        self.hypotheses.append(
            Hypothesis(index, self.tokens(index), leaf.total, score, leaf.samples)
        )


NEVER = -torch.inf
Strategy = Literal["greedy", "beam", "sampling"]


@dataclass(frozen=True)
class Sampling:
    """Temperature, then top-k (Fan 2018), then top-p (Holtzman 2020, section 3); top_k = 0 and top_p = 1 keep all
    tokens. ConfigError for a setting out of bounds."""

    temperature: Annotated[float, Meta(ge=0.05, le=10)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0

    def __post_init__(self) -> None:
        check_types(self)

    def reshape(self, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """The logits of the distribution to sample from; −∞ for a token that is filtered out."""
        logits = logits / self.temperature
        logits = keep_top_k(logits, self.top_k) if self.top_k else logits
        return keep_top_p(logits, self.top_p) if self.top_p < 1 else logits


@dataclass(frozen=True)
class SearchSettings:
    """A search strategy and its settings; those of other strategies are ignored.

    `length_penalty` is the exponent of the divisor of a beam's log-probability. No `no_repeat` tokens in a row are
    generated twice (0: no limit). `longest` is the largest number of new tokens. The searches check the bounds.
    """

    strategy: Strategy = "greedy"
    width: int = 4
    length_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    samples: int = 5
    seed: int = 0
    no_repeat: int = 0
    longest: int = 20

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p)


def keep_top_k(logits: Float[Tensor, "B V"], k: int) -> Float[Tensor, "B V"]:
    """−∞ for all below the k-th largest; ties with it stay."""
    lowest = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
    return logits.masked_fill(logits < lowest, NEVER)


def keep_top_p(logits: Float[Tensor, "B V"], p: float) -> Float[Tensor, "B V"]:
    """−∞ for all but the fewest likeliest tokens that together have at least probability p; one always stays."""
    ordered, order = logits.sort(descending=True, stable=True)
    share = ordered.softmax(-1)
    beyond = share.cumsum(-1) - share >= p  # the tokens before have p already
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), NEVER)


def no_repeat(
    logits: Float[Tensor, "B V"], prefixes: Sequence[Sequence[int]], n: int
) -> Float[Tensor, "B V"]:
    """−∞ for a token that would complete an n-gram that its row has already; n = 0 forbids none. Paulus 2017, section
    2.5."""
    if n < 0:
        raise ValueError(f"no_repeat = {n}; expected 0, for none, or more.")
    logits = logits.clone() if n else logits
    for row, tokens in enumerate(prefixes if n else ()):
        last = tuple(tokens[len(tokens) - n + 1 :])
        repeated = [
            tokens[i + n - 1]
            for i in range(len(tokens) - n + 1)
            if tuple(tokens[i : i + n - 1]) == last
        ]
        logits[row, repeated] = NEVER
    return logits


BOS, EOS, PAD = 1, 2, 0
LONGEST = 4096
P = ParamSpec("P")
EndTokens = int | Collection[int]  # the end mark, or all of them, even none
# log-probabilities (B, V), the tokens of each row → (B, V)
Rules = Callable[[Tensor, Sequence[Sequence[int]]], Tensor]


class Decoder(Protocol):
    """What a search needs of a model: a Seq2Seq, or anything else with encode, start and step."""

    def encode(self, source: Tensor, source_mask: Tensor, /) -> Any: ...

    def start(self, memory: Any, /) -> Any: ...

    def step(self, memory: Any, state: Any, tokens: Tensor, /) -> tuple[Tensor, Any, Any]: ...


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
    def of_text(cls, ids: Sequence[int]) -> Prompt:
        """The prompt of a text to continue; ValueError for fewer than two tokens."""
        if len(ids) < 2:
            raise ValueError("A text to continue needs at least two tokens.")
        source = torch.tensor([ids[:-1]])
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
    def __init__(
        self,
        model: Decoder,
        prompt: Prompt,
        no_repeat: int,
        max_length: int | None,
        eos: EndTokens,
        rules: Rules | None,
    ) -> None:
        self.model, self.prompt, self.no_repeat, self.rules = model, prompt, no_repeat, rules
        self.longest = length_cap(max_length, prompt.mask)
        self.ends = frozenset((eos,) if isinstance(eos, int) else eos)
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
        allowed = no_repeat(logp, prefixes, self.no_repeat)
        return logp, allowed if self.rules is None else self.rules(allowed, prefixes)

    def totals(self) -> list[float]:
        """The log-probability of each prefix."""
        return [0.0 if one == ROOT else self.tree.candidates[one].total for one in self.active]

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
    training = model if isinstance(model, nn.Module) and model.training else None
    if training is not None:
        training.eval()
    try:
        yield
    finally:
        if training is not None:
            training.train()


def length_cap(max_length: int | None, mask: Bool[Tensor, "B S"]) -> int:
    """The largest number of tokens, by default 2S + 2; ValueError unless it is 1 to LONGEST."""
    longest = 2 * mask.shape[1] + 2 if max_length is None else max_length
    if not 1 <= longest <= LONGEST:
        raise ValueError(f"max_length = {longest}; expected 1 to {LONGEST}.")
    return longest


@torch.no_grad()
def greedy(
    model: Seq2Seq,
    source: Tensor,
    source_mask: Bool[Tensor, ...],
    max_length: int | None = None,
    *,
    begin: Int[Tensor, " B"] | None = None,
) -> Int[Tensor, "B L"]:
    """The likeliest token at each step for source (B, S) or (B, S, D) and source_mask (B, S).

    Each row ends on EOS, then is padded; a row without EOS was cut at `max_length` tokens, by default two more than
    twice its own source. `begin` is fed first instead of BOS. The model is in evaluation mode; one that reads sources
    of one length decodes them length by length. ValueError when sizes do not fit.
    """
    if source_mask.dim() != 2 or source.shape[:2] != source_mask.shape:
        raise ValueError(
            "source and source_mask are both (B, S), and source may have numbers at each place; got "
            f"{tuple(source.shape)} and {tuple(source_mask.shape)}."
        )
    longest, lengths = length_cap(max_length, source_mask), source_mask.sum(1)
    caps = 2 * lengths + 2 if max_length is None else torch.full_like(lengths, longest)
    begin = torch.full_like(source_mask[:, 0], BOS, dtype=torch.long) if begin is None else begin
    parts = (
        [(length, lengths == length) for length in lengths.unique().tolist()]
        if model.one_length
        else [(source.shape[1], torch.ones_like(lengths, dtype=torch.bool))]
    )
    outputs: dict[int, Tensor] = {}
    # In inference mode each operation of a step costs less than with torch.no_grad alone.
    with eval_mode(model), torch.inference_mode():
        for length, rows in parts:
            memory = model.encode(source[rows, :length], source_mask[rows, :length])
            state, tokens, output = model.start(memory), begin[rows], list[Tensor]()
            done = torch.zeros_like(tokens, dtype=torch.bool)
            while not bool(done.all()):
                logits, state, _ = model.step(memory, state, tokens)
                tokens = logits.argmax(-1).masked_fill(done, PAD)
                output.append(tokens)
                done = done | (tokens == EOS) | (len(output) >= caps[rows])
            outputs |= zip(rows.nonzero()[:, 0].tolist(), torch.stack(output, dim=1), strict=True)
    return pad_sequence(
        [outputs[row] for row in range(len(source))], batch_first=True, padding_value=PAD
    )


MAX_SAMPLES, PASSED_OVER = 200, 3


def sample_steps(
    model: Decoder,
    prompt: Prompt,
    generator: torch.Generator,
    *,
    samples: int = 8,
    sampling: Sampling | None = None,
    no_repeat: int = 0,
    max_length: int | None = None,
    eos: EndTokens = EOS,
    rules: Rules | None = None,
) -> Iterator[Tree]:
    """The tree of `samples` independent draws after each step; the last one has the outputs, ranked by their counts.

    Beside the drawn tokens stand the likeliest others. The same state of the generator (a CPU one) gives the same tree.
    `rules` may forbid tokens by −∞. ValueError for a setting out of bounds.
    """
    if not 1 <= samples <= MAX_SAMPLES:
        raise ValueError(f"samples = {samples}; expected 1 to {MAX_SAMPLES}.")
    sampling, counts = sampling or Sampling(), [samples]
    with eval_mode(model):
        search = Search(model, prompt, no_repeat, max_length, eos, rules)
        tree = search.tree
        for step in range(search.longest):
            logp, allowed = (tensor.cpu() for tensor in search.next_logp())
            chances, active = sampling.reshape(allowed).softmax(-1), list[int]()
            for row, (count, before) in enumerate(zip(counts, search.totals(), strict=True)):
                draws = torch.multinomial(
                    chances[row], count, replacement=True, generator=generator
                ).bincount(minlength=chances.shape[1])
                # The drawn tokens and PASSED_OVER likely others, the likeliest first.
                others = chances[row].masked_fill(draws > 0, 0.0)
                likely = others.topk(min(PASSED_OVER, len(others))).indices
                tokens = [*draws.nonzero()[:, 0].tolist(), *likely[others[likely] > 0].tolist()]
                for token in sorted(tokens, key=(-chances[row]).tolist().__getitem__):
                    score, times = float(logp[row, token]), int(draws[token])
                    candidate = Candidate(
                        token,
                        search.active[row],
                        step,
                        score,
                        before + score,
                        samples=times,
                        chance=float(chances[row, token]),
                    )
                    index = tree.add(candidate)
                    if times and token not in search.ends and step < search.longest - 1:
                        candidate.fate = "kept"
                        active.append(index)
                    elif times:
                        candidate.fate = "ended" if token in search.ends else "cut"
                        tree.finish(index, float(times))
            if not active:
                break
            yield tree
            counts = [tree.candidates[index].samples for index in active]
            search.advance(active)
    tree.hypotheses.sort(key=lambda hypothesis: (-hypothesis.samples, -hypothesis.logp))
    yield tree


sample = last_tree(sample_steps)


WIDEST = 64

# the length of an output and α → the divisor of its log-probability
Penalty = Callable[[int, float], float]


def length_power(length: int, alpha: float) -> float:
    """length^α, by which transformers divides a beam."""
    return float(length**alpha)


def penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^α."""
    return ((5 + length) / 6) ** alpha


def beam_steps(
    model: Decoder,
    prompt: Prompt,
    *,
    width: int = 4,
    length_penalty: float = 0.0,
    no_repeat: int = 0,
    max_length: int | None = None,
    eos: EndTokens = EOS,
    lp: Penalty = penalty,
    rules: Rules | None = None,
) -> Iterator[Tree]:
    """The tree of a beam search after each step; the last one has the outputs, at most `width`, ranked by
    log-probability / lp(length, α).

    By default lp is that of Wu 2016, section 7, equation 14; an α of 0 ranks by log-probability alone, which favours
    short outputs. `rules` may forbid tokens by −∞. Each step considers the 2 · width best candidates: an end mark among
    the first `width` of them is an output, the first `width` others are kept. The search ends once no kept candidate
    can reach the worst of `width` outputs. A width of 1 without a penalty is greedy decoding. ValueError for a setting
    out of bounds.
    """
    if not 1 <= width <= WIDEST:
        raise ValueError(f"width = {width}; expected 1 to {WIDEST}.")
    if not 0 <= length_penalty <= 5:
        raise ValueError(f"length_penalty = {length_penalty}; expected 0 to 5.")
    with eval_mode(model):
        search = Search(model, prompt, no_repeat, max_length, eos, rules)
        tree, largest = search.tree, lp(search.longest, length_penalty)
        for step in range(search.longest):
            logp, allowed = search.next_logp()
            totals = torch.tensor(search.totals(), device=logp.device)[:, None] + allowed
            considered = min(max(2, 1 + len(search.ends)) * width, totals.numel())
            best, cells = totals.flatten().topk(considered)
            active = list[int]()
            for rank, (total, cell) in enumerate(zip(best.tolist(), cells.tolist(), strict=True)):
                if not math.isfinite(total):
                    break
                row, token = divmod(cell, logp.shape[1])
                candidate = Candidate(
                    token, search.active[row], step, float(logp[row, token]), total
                )
                index = tree.add(candidate)
                if token in search.ends and rank < width:
                    candidate.fate = "ended"
                    tree.finish(index, total / lp(step + 1, length_penalty))
                elif token not in search.ends and len(active) < width:
                    candidate.fate = "kept"
                    active.append(index)
            # Even with certain tokens only, may a kept candidate reach the worst of `width` outputs?
            worst = sorted((one.score for one in tree.hypotheses), reverse=True)[width - 1 : width]
            totals_left = [tree.candidates[index].total for index in active]
            if not active or (worst and worst[0] >= max(totals_left) / largest):
                break
            yield tree
            search.advance(active)
        else:
            for index in search.active:
                tree.candidates[index].fate = "cut"
                tree.finish(index, tree.candidates[index].total / largest)
    tree.hypotheses = sorted(tree.hypotheses, key=lambda one: -one.score)[:width]
    yield tree


beam = last_tree(beam_steps)


def search_steps(
    model: Decoder,
    prompt: Prompt,
    settings: SearchSettings,
    longest: int,
    *,
    eos: EndTokens = EOS,
    lp: Penalty = penalty,
    rules: Rules | None = None,
) -> Iterator[Tree]:
    """The tree of a search for at most `longest` tokens, after each step; ValueError for settings out of bounds."""
    common: dict[str, Any] = dict(
        no_repeat=settings.no_repeat, max_length=longest, eos=eos, rules=rules
    )
    if settings.strategy == "sampling":
        generator = torch.Generator().manual_seed(settings.seed)
        chosen: Any = {"samples": settings.samples, "sampling": settings.sampling}
        return sample_steps(model, prompt, generator, **chosen, **common)
    if settings.strategy == "beam":
        common |= {"width": settings.width, "length_penalty": settings.length_penalty}
    return beam_steps(model, prompt, lp=lp, **{"width": 1} | common)


search = last_tree(search_steps)


Clock = Callable[[], float]


@dataclass(frozen=True)
class Written:
    """The ids that a model wrote, the seconds of each step, and the tokens whose q, k and v each step computed."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    computed: tuple[int, ...]


@torch.inference_mode()
def write(
    model: Any,
    prompt: Tensor,
    count: int,
    with_cache: bool,
    clock: Clock = time.perf_counter,
    limit: float = float("inf"),
) -> Written:
    """The likeliest `count` tokens after a prompt (1, T); without a cache each step reads the whole text again."""
    tokens, seconds, computed, begin = list[int](), list[float](), list[int](), clock()
    text, state, new = prompt, model.start(None), prompt
    for _ in range(count):
        start = clock()
        if start - begin > limit:
            break
        before = state if with_cache else model.start(None)
        logits, state, _ = model.read(None, before, new if with_cache else text)
        new = logits[:, -1:].argmax(-1)
        seconds.append(clock() - start)
        computed.append(state.length - before.length)
        tokens.append(int(new))
        text = torch.cat((text, new), 1)
    return Written(tuple(tokens), tuple(seconds), tuple(computed))
