"""The cache: what a step of decoding computes and stores, both ways timed, its size, and pages.

`make cache` saves the times.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import torch

from core.attention import attend
from core.entries import refuse_if
from core.models.cards import FORMS, MODELS, Step, cache_bytes, decoding_step
from core.models.decoding import Clock, Written, write
from core.pretrained.hf_conversion import SEEDED, TRAINED, encode, load_lab_decoder
from core.studies.efficient import Saved, alone, save

MAX_PROMPT, STEPS = 16, 8  # tokens of a prompt, and tokens that are written after it
NAMES = ("q", "k", "v")


@dataclass(frozen=True)
class Counts:
    """How many vectors of each type one layer computes, reads from its cache, and stores after a step."""

    computed: dict[str, int]  # by name: q, k, v
    read: int  # stored keys, and as many values
    stored: int

    @property
    def without(self) -> int:
        """Queries, and as many keys and values, that a layer without a cache computes at this step."""
        return self.read + self.computed["k"]


@dataclass(frozen=True, eq=False)
class Decoding:
    """A prompt and the tokens written after it, with every layer's q, k, v (L, H, T, D) and weights, step by step.

    Step 0 reads the prompt; step s reads token `prompt + s − 1`. k and v are those of the cache, keys rotated, and
    repeated for the heads that share them. `weights[s]` (L, H, S) are those of the last token of step s.
    """

    tokens: tuple[str, ...]
    prompt: int
    vectors: dict[str, np.ndarray]
    weights: tuple[np.ndarray, ...]
    counts: tuple[Counts, ...]
    unknown: tuple[str, ...]

    def first_new(self, step: int) -> int:
        """The index of the first token that is read at a step."""
        return 0 if step == 0 else self.prompt + step - 1

    def last(self, step: int) -> int:
        """The index of the last token that is read at a step."""
        return self.prompt + step - 1

    @property
    def heads(self) -> list[tuple[int, int]]:
        """(layer, head) of every head."""
        layers, heads = self.weights[0].shape[:2]
        return [(layer, head) for layer in range(layers) for head in range(heads)]

    def sharpest_head(self) -> tuple[int, int]:
        """The head whose largest weight is largest on average over the steps."""
        mean = np.mean([weights.max(-1) for weights in self.weights], axis=0)
        layer, head = np.unravel_index(int(mean.argmax()), mean.shape)
        return int(layer), int(head)


@torch.no_grad()
def decode_steps(text: str) -> Decoding:
    """What each step of decoding computes, reads and stores: the text is read, then STEPS likeliest tokens are written.

    ValueError for a text without a word.
    """
    model, task = load_lab_decoder(TRAINED)
    tokens, ids, unknown = encode(task, text, MAX_PROMPT)
    refuse_if(len(tokens) < 2, "There is no word here. Type a few words: the model continues them.")
    state, new, queries, weights, counts = model.start(None), ids, [], [], []
    for step in range(STEPS + 1):
        before = state.length
        logits, state, maps = model.read(None, state, new, True)
        causal, heads = maps["causal"], [past.heads for past in state.past if past is not None]
        queries.append(torch.stack([steps.q[0] for steps in causal]))
        weights.append(
            np.stack(
                [steps.weights[0, :, -1].numpy() for steps in causal if steps.weights is not None]
            )
        )
        stored = heads[0][0].shape[2]
        counts.append(
            Counts(
                {
                    "q": causal[0].q.shape[2],
                    "k": stored - before,
                    "v": heads[0][1].shape[2] - before,
                },
                before,
                stored,
            )
        )
        new = logits[:, -1:].argmax(-1)
        if step < STEPS:
            tokens = [*tokens, *(task.target_vocab.decode(new[0].tolist()) or ["<end>"])]
    q = torch.cat(queries, 2)
    k, v = (torch.stack([layer[at][0] for layer in heads]) for at in (0, 1))
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    vectors = {name: each.numpy() for name, each in zip(NAMES, (q, k, v), strict=True)}
    return Decoding(tuple(tokens), ids.shape[1], vectors, tuple(weights), tuple(counts), unknown)


def changes(text: str) -> dict[str, float]:
    """How much the last token's output changes when all earlier q, k or v are set to zero, relative to its size.

    The tokens are those of a text and what is written after it; ValueError for a text without a word.
    """
    vectors = decode_steps(text).vectors
    tensors = {name: torch.from_numpy(vectors[name]) for name in NAMES}
    usual, result = attend(*tensors.values()).out[:, :, -1], {}
    for name, tensor in tensors.items():
        last = torch.zeros_like(tensor)
        last[:, :, -1] = tensor[:, :, -1]
        changed = attend(*(tensors | {name: last}).values()).out[:, :, -1]
        result[name] = float((changed - usual).norm() / usual.norm())
    return result


# The same tokens written with and without a cache, timed on this machine.


PROMPT = "the old cat saw the small bird . the old"
MAX_TOKENS = 256  # tokens that are written
LIMIT = 30.0  # seconds of one measurement at most


@dataclass(frozen=True)
class Pair:
    """The same text written with and without the cache."""

    cached: Written
    whole: Written

    @property
    def count(self) -> int:
        """Tokens that both wrote."""
        return min(len(self.cached.tokens), len(self.whole.tokens))

    def same(self, count: int) -> bool:
        """Whether the first tokens are equal."""
        return self.cached.tokens[:count] == self.whole.tokens[:count]

    def ratio(self, count: int) -> float:
        """How many times as long the first tokens took without the cache."""
        return sum(self.whole.seconds[:count]) / sum(self.cached.seconds[:count])


def measure(
    name: str, count: int, clock: Clock = time.perf_counter, limit: float = LIMIT / 2
) -> Pair:
    """Both ways on this machine, each for at most `limit` seconds."""
    model, task = load_lab_decoder(name)
    _, prompt, _ = encode(task, PROMPT, MAX_PROMPT)
    with alone():
        write(model, prompt, 2, True)  # warms up
        return Pair(*(write(model, prompt, count, way, clock, limit) for way in (True, False)))


# The saved times; `make cache` measures them again.


SAVED = Path(__file__).parent / "data" / "cache.json"
ROUNDS, DIGITS = 3, 6  # the fastest round of each step counts; decimals of a second


def load_measurement() -> Saved[dict[str, Pair]]:
    """The saved times of each step with and without the cache, by the model's name (`make cache` measures again)."""
    return msgspec.json.decode(SAVED.read_bytes(), type=Saved[dict[str, Pair]])


def main() -> None:
    """Measure both models on one thread, in processor time, and save the fastest round of each step."""
    torch.set_num_threads(1)
    pairs = {}
    for name in (TRAINED, SEEDED):
        rounds = [measure(name, MAX_TOKENS, time.process_time, float("inf")) for _ in range(ROUNDS)]
        ways = ([each.cached for each in rounds], [each.whole for each in rounds])
        pairs[name] = Pair(
            *(
                replace(
                    way[0],
                    seconds=tuple(
                        round(min(times), DIGITS)
                        for times in zip(*(each.seconds for each in way), strict=True)
                    ),
                )
                for way in ways
            )
        )
    save(SAVED, Saved(pairs))


# The cache's size, what bounds a step, and pages.


LENGTHS = tuple(2**power for power in range(10, 18))  # 1k to 128k tokens


def cache_sizes(model: str, number_bytes: int) -> dict[str, list[int]]:
    """Bytes of a published model's cache at each of LENGTHS, by the form in which it is stored."""
    return {
        name: [cache_bytes(MODELS[model], form, length, number_bytes) for length in LENGTHS]
        for name, form in FORMS.items()
    }


def step_bound(
    model: str,
    form: str,
    length: int,
    batch: int,
    number_bytes: int,
    bandwidth: float,
    speed: float,
) -> Step:
    """What bounds a step of decoding, in closed form: bytes and FLOPs a second are `bandwidth` and `speed`."""
    return decoding_step(MODELS[model], FORMS[form], length, batch, number_bytes, bandwidth, speed)


MAX_SEQUENCES, LONGEST_SEQUENCE = 8, 256


@dataclass(frozen=True)
class Page:
    """One page: the sequence that it belongs to, and how many of its places hold a token."""

    sequence: int
    filled: int


@dataclass(frozen=True)
class Paging:
    """Lengths of sequences, and the pages in the order in which they were taken."""

    lengths: tuple[int, ...]
    size: int
    pages: tuple[Page, ...]

    @property
    def used(self) -> int:
        return sum(self.lengths)

    @property
    def paged(self) -> int:
        """Places for a token in all pages."""
        return self.size * len(self.pages)

    @property
    def reserved(self) -> int:
        """Places where each sequence has room for the longest."""
        return len(self.lengths) * max(self.lengths)

    def wasted(self, places: int) -> float:
        """The share of the places that holds no token."""
        return 1 - self.used / places


def paging(lengths: tuple[int, ...], size: int) -> Paging:
    """Several sequences in pages of memory: they start together, grow by one token a step, and each takes a page when
    its last one is full."""
    pages = [
        Page(sequence, min(size, length - start))
        for start in range(0, max(lengths), size)
        for sequence, length in enumerate(lengths)
        if length > start
    ]
    return Paging(lengths, size, tuple(pages))


def parse_lengths(text: str) -> tuple[int, ...]:
    """Typed lengths; ValueError names the first that is none, and what would fit."""
    lengths = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        refuse_if(
            not (part.isascii() and part.isdigit() and len(part) < 10)
            or not 1 <= int(part) <= LONGEST_SEQUENCE,
            f"“{part[:20]}” is no length; type whole numbers from 1 to {LONGEST_SEQUENCE}, with commas.",
        )
        lengths.append(int(part))
    refuse_if(
        not 1 <= len(lengths) <= MAX_SEQUENCES,
        f"There are {len(lengths)} lengths; type 1 to {MAX_SEQUENCES}, such as 37, 5, 90.",
    )
    return tuple(lengths)
