"""The same tokens written with and without a cache, and the seconds of each step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from core.models.decoder import Decoder
from dashboard.runtime import cache
from dashboard.runtime.racing import ONE_AT_A_TIME
from dashboard.runtime.threads import one_thread
from dashboard.views.cache.compute import MOST_PROMPT
from dashboard.views.cache.models import encode, load

PROMPT = "the old cat saw the small bird . the old"
MOST = 256  # tokens that are written
LIMIT, WAIT = 30.0, 2.0  # seconds of one measurement at most; of waiting for another session's

Clock = Callable[[], float]


@dataclass(frozen=True)
class Written:
    """The ids that a model wrote, the seconds of each step, and the tokens whose q, k and v each step computed."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    computed: tuple[int, ...]


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


@torch.inference_mode()
def write(model: Decoder, prompt: Tensor, count: int, with_cache: bool, clock: Clock = time.perf_counter,
          limit: float = float("inf")) -> Written:
    """The likeliest `count` tokens after a prompt (1, T); without a cache each step reads the whole text again."""
    tokens, seconds, computed, begin = list[int](), list[float](), list[int](), clock()
    text, state, new = prompt, model.start(None), prompt
    for _ in range(count):
        start = clock()
        if start - begin > limit:
            break
        before = state if with_cache else model.start(None)
        logits, state, _ = model.read(None, before, new if with_cache else text, False)
        new = logits[:, -1:].argmax(-1)
        seconds.append(clock() - start)
        computed.append(state.length - before.length)
        tokens.append(int(new))
        text = torch.cat((text, new), 1)
    return Written(tuple(tokens), tuple(seconds), tuple(computed))


def measure(name: str, count: int, clock: Clock = time.perf_counter, limit: float = LIMIT / 2) -> Pair:
    """Both ways on this machine, one thread, each for at most `limit` seconds."""
    model, task = cache.model(load, name)
    _, prompt, _ = encode(task, PROMPT, MOST_PROMPT)
    locked = ONE_AT_A_TIME.acquire(timeout=WAIT)
    try:
        with one_thread():
            write(model, prompt, 2, True)  # warms up
            return Pair(*(write(model, prompt, count, way, clock, limit) for way in (True, False)))
    finally:
        if locked:
            ONE_AT_A_TIME.release()
