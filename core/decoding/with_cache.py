"""Greedy decoding with a cache of keys and values and without one, which read the same text."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from core.models.transformer import Decoder

Clock = Callable[[], float]


@dataclass(frozen=True)
class Written:
    """The ids that a model wrote, the seconds of each step, and the tokens whose q, k and v each step computed."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    computed: tuple[int, ...]


@torch.inference_mode()
def write(
    model: Decoder,
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
        logits, state, _ = model.read(None, before, new if with_cache else text, False)
        new = logits[:, -1:].argmax(-1)
        seconds.append(clock() - start)
        computed.append(state.length - before.length)
        tokens.append(int(new))
        text = torch.cat((text, new), 1)
    return Written(tuple(tokens), tuple(seconds), tuple(computed))
