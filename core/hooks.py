"""Hooks on modules that are removed at the end of a block."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from torch.utils.hooks import RemovableHandle


@contextmanager
def hooked(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    with ExitStack() as stack:
        for handle in handles:
            stack.enter_context(handle)
        yield
