"""The same tokens written with and without a cache, timed on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

from core.models.decoding import Clock, Written, write
from core.pretrained.hf_conversion import encode, load_lab_decoder
from core.studies.racing import ONE_AT_A_TIME
from dashboard.runtime.threads import one_thread
from dashboard.server import cache
from dashboard.views.cache.compute import MOST_PROMPT

PROMPT = "the old cat saw the small bird . the old"
MOST = 256  # tokens that are written
LIMIT, WAIT = 30.0, 2.0  # seconds of one measurement at most; of waiting for another session's


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
    """Both ways on this machine, one thread, each for at most `limit` seconds."""
    model, task = cache.model(load_lab_decoder, name)
    _, prompt, _ = encode(task, PROMPT, MOST_PROMPT)
    locked = ONE_AT_A_TIME.acquire(timeout=WAIT)
    try:
        with one_thread():
            write(model, prompt, 2, True)  # warms up
            return Pair(*(write(model, prompt, count, way, clock, limit) for way in (True, False)))
    finally:
        if locked:
            ONE_AT_A_TIME.release()
