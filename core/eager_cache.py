"""A cache of tensors that no trace of torch.compile or torch.export fills."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def eager_cache(maxsize: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """As `functools.lru_cache`, but a trace calls the function itself: its tensors hold no numbers for a later call."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cached = lru_cache(maxsize)(function)

        @wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            if torch.compiler.is_compiling():
                return function(*args, **named)
            return cached(*args, **named)  # type: ignore[arg-type]

        call.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
        return call

    return decorate
