"""A search for the continuation of a text that goes on step by step, and one step of one of its outputs."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from core.interpret.trace import AttentionTrace, Kind
from core.models.decoding import Hypothesis, SearchSettings, Tree
from core.pretrained import Pretrained
from core.pretrained.generate import (
    Continuation,
    GenerationStart,
    step_probabilities,
    token_names,
)

LIKELIEST = 10  # tokens that are named at a step
# seconds until an unfinished search is shown, and at least between two showings
PATIENCE, BETWEEN = 0.35, 0.2
SHARE = 4  # the time between two showings is at least this many times that of one


@dataclass(eq=False)
class Search:
    """A search: its tree so far, and the steps that are left (None once there are none)."""

    settings: SearchSettings
    start: GenerationStart
    steps: Iterator[Tree] | None
    tree: Tree = field(default_factory=Tree)
    seconds: float = 0.0
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self) -> bool:
        """One step more; False when there is none left. ValueError for a setting out of bounds."""
        with self.lock:
            if self.steps is None:
                return False
            started = time.monotonic()
            try:
                self.tree = next(self.steps)
            except StopIteration:
                self.steps = None
            finally:
                self.seconds += time.monotonic() - started
            return self.steps is not None

    @property
    def done(self) -> bool:
        return self.steps is None

    def outputs(self) -> list[Hypothesis]:
        return self.tree.outputs(self.done)


def run(search: Search, show: Callable[[Search], None]) -> None:
    """Take the remaining steps, and `show` the search from time to time once it takes longer than PATIENCE.

    A widget that is used meanwhile stops this between two steps; the next run of the page continues from there.
    """
    due = time.monotonic() + PATIENCE
    while not search.stopped and search.advance():
        if (start := time.monotonic()) >= due:
            show(search)
            end = time.monotonic()
            due = end + max(BETWEEN, SHARE * (end - start))


def picked_path(
    tree: Tree, hypotheses: Sequence[Hypothesis], pick: tuple[int, int] | None
) -> tuple[list[int], int]:
    """The best output through the picked candidate, or the path to it if it was dropped; and the picked step.

    With nothing picked the first step of the best output.
    """
    if pick is None:
        return tree.path(hypotheses[0].leaf), 0
    paths = (tree.path(one.leaf) for one in hypotheses)
    path = next((path for path in paths if pick[0] in path), None) or tree.path(pick[0])
    return path, min(pick[1], len(path) - 1)


@dataclass(frozen=True, eq=False)
class StepView:
    """One step of a path: its tokens, the model's logits and what the search makes of them, and the maps of one kind.

    `ids` are those of the maps' columns; `names` those of the tokens that were read, tried and written, and of the
    likeliest ones of each step.
    """

    step: int
    kind: Kind
    prefix: tuple[int, ...]  # what the output begins with, before the new tokens
    tokens: tuple[int, ...]
    trace: AttentionTrace
    logits: Tensor
    used: Tensor
    names: Mapping[int, str]
    ids: tuple[int, ...]
    sink: bool
    note: str | None


def step_view(
    search: Search,
    pretrained: Pretrained,
    path: Sequence[int],
    step: int,
    read: Continuation,
    kind: Kind,
    names: dict[int, str],
) -> StepView:
    """A step of a path, of which `read` are the logits and maps; `names` gets those of tokens that it lacks."""
    start, candidates = search.start, search.tree.candidates
    tokens, prefix = search.tree.tokens(path[-1]), start.prompt.prefix_tokens
    top = read.logits.topk(min(LIKELIEST, read.logits.shape[1])).indices.flatten().tolist()
    used = step_probabilities(pretrained, start, search.settings, tokens[:step], read.logits[step])
    top += used.topk(2).indices.tolist()
    named = (*prefix, *tokens, *top, *(one.token for one in candidates))
    names |= token_names(pretrained, [one for one in named if one not in names])
    ids = start.read.ids if kind == "cross" else (*prefix, *tokens[:-1])
    return StepView(
        step=step,
        kind=kind,
        prefix=prefix,
        tokens=tokens,
        trace=read.trace.of(kind),
        logits=read.logits[step],
        used=used,
        names=names,
        ids=(*ids, -1) if read.sink else ids,  # a sink is no token
        sink=read.sink,
        note=read.note,
    )
