"""The search, which may continue over several runs of the page, and one step of it with its attention."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from core.interpret.trace import AttentionTrace, Kind
from core.models.decoding import Hypothesis, Tree
from core.pretrained import ModelInputs, Pretrained
from core.pretrained.generate import (
    Continuation,
    GenerationStart,
    decode_text,
    generate_steps,
    prepare_generation,
    score_continuation,
    step_probabilities,
    token_names,
)
from dashboard.server.cache import measurements, shared
from dashboard.ui.models import ModelRef, load_model
from dashboard.views.generate.controls import Controls

PATIENCE, BETWEEN = (
    0.35,
    0.2,
)  # seconds until an unfinished search is drawn, and at least between two drawings
SHARE = 4  # the time between two drawings is at least this many times that of one drawing
LIKELIEST = 10  # tokens that are named at a step
NO_TOKEN = -1  # the id of a sink
FINISHED, NAMES = (
    "generate:finished",
    "generate:names",
)  # of all sessions: searches that are over, names of tokens
MAX_SHARED = 2000  # candidates of a search that other sessions get


@dataclass(eq=False)
class Search:
    """A search of this session: its tree so far, and the steps that are left (None once there are none)."""

    controls: Controls
    start: GenerationStart
    steps: Iterator[Tree] | None
    tree: Tree = field(default_factory=Tree)
    seconds: float = 0.0
    stopped: bool = False
    read: bool = False  # whether the pick in the link was read
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

    @classmethod
    def of(cls, controls: Controls, pretrained: Pretrained, read: bool) -> Search:
        """The finished search of any session, else a new one. PretrainedError as in `prepare_generation`."""
        if (finished := measurements(FINISHED, controls).get("search")) is not None:
            return cls(controls, finished[0], None, finished[1], read=read)
        start = prepare_generation(pretrained, controls.inputs)
        return cls(controls, start, generate_steps(pretrained, start, controls.settings), read=read)

    def share(self) -> None:
        """Give a finished search to all sessions."""
        if self.done and len(self.tree.candidates) <= MAX_SHARED:
            measurements(FINISHED, self.controls).setdefault("search", (self.start, self.tree))

    @property
    def done(self) -> bool:
        return self.steps is None

    @property
    def length(self) -> int:
        """The number of tokens of the longest output so far."""
        return 1 + max((one.step for one in self.tree.candidates), default=-1)


def run(search: Search, draw: Callable[[Search], None]) -> None:
    """Take the remaining steps, and `draw` the search from time to time once it takes longer than PATIENCE.

    A widget that is used meanwhile stops this between two steps; the next run of the page continues from there.
    """
    due = time.monotonic() + PATIENCE
    while not search.stopped and search.advance():
        if (start := time.monotonic()) >= due:
            draw(search)
            end = time.monotonic()
            due = end + max(BETWEEN, SHARE * (end - start))


def outputs(search: Search) -> list[Hypothesis]:
    """The outputs, the best first; while the search is not over, also the beginnings that it would continue."""
    tree, last = search.tree, search.length - 1
    hypotheses = list(tree.hypotheses)
    if not search.done:
        hypotheses += [
            Hypothesis(leaf, tree.tokens(leaf), one.total, one.total, one.samples)
            for leaf, one in enumerate(tree.candidates)
            if one.step == last and one.fate == "kept"
        ]
        hypotheses.sort(key=lambda one: (-one.samples, -one.logp))
    return hypotheses


def text_of(ref: ModelRef, tokens: Sequence[int]) -> str:
    """The tokens of an output as running text."""
    return shared(_text_of, ref, tuple(tokens))


def _text_of(ref: ModelRef, tokens: tuple[int, ...]) -> str:
    return decode_text(load_model(ref), tokens)


def score_path(ref: ModelRef, inputs: ModelInputs, tokens: Sequence[int]) -> Continuation:
    """All logits and the attention along one path."""
    return shared(_score_path, ref, inputs, tuple(tokens))


def _score_path(ref: ModelRef, inputs: ModelInputs, tokens: tuple[int, ...]) -> Continuation:
    pretrained = load_model(ref)
    return score_continuation(pretrained, prepare_generation(pretrained, inputs), tokens)


@dataclass(frozen=True, eq=False)
class StepView:
    """One step of a path: its tokens and their names, the model's logits, and the maps of one kind."""

    search: Search
    pretrained: Pretrained
    path: Sequence[int]
    step: int
    tokens: Sequence[int]
    names: Mapping[int, str]
    continuation: Continuation
    trace: AttentionTrace

    @property
    def kind(self) -> Kind:
        return self.trace.maps[0].kind

    @property
    def keys(self) -> tuple[int, ...]:
        """The ids of the maps' columns."""
        start = self.search.start
        ids = (
            start.read.ids
            if self.kind == "cross"
            else (*start.prompt.prefix_tokens, *self.tokens[:-1])
        )
        return (*ids, NO_TOKEN) if self.continuation.sink else ids


def step_view(
    search: Search,
    pretrained: Pretrained,
    path: Sequence[int],
    step: int,
    continuation: Continuation,
    kind: Kind,
) -> StepView:
    """One step of a path, with the names of all tokens that may be drawn."""
    tokens = search.tree.tokens(path[-1])
    top = (
        continuation.logits.topk(min(LIKELIEST, continuation.logits.shape[1]))
        .indices.flatten()
        .tolist()
    )
    candidates = (one.token for one in search.tree.candidates)
    names = _names(
        search.controls.ref, [*search.start.prompt.prefix_tokens, *tokens, *top, *candidates]
    )
    return StepView(
        search, pretrained, path, step, tokens, names, continuation, continuation.trace.of(kind)
    )


def _names(ref: ModelRef, ids: Sequence[int]) -> Mapping[int, str]:
    """The display names of tokens, among those of all tokens that any session has seen."""
    names = measurements(NAMES, ref)
    if missing := [one for one in ids if one not in names]:
        names |= token_names(load_model(ref), missing)
    return names


def search_probabilities(view: StepView) -> Tensor:
    """The probabilities (V,) that the search uses at a step."""
    search, tokens = view.search, tuple(view.tokens)
    if not search.done:  # each drawing of its progress has other tokens
        return step_probabilities(
            view.pretrained,
            search.start,
            search.controls.settings,
            tokens[: view.step],
            view.continuation.logits[view.step],
        )
    return shared(_search_probabilities, search.controls, tokens, view.step)


def _search_probabilities(controls: Controls, tokens: tuple[int, ...], step: int) -> Tensor:
    pretrained, path = load_model(controls.ref), score_path(controls.ref, controls.inputs, tokens)
    start = prepare_generation(pretrained, controls.inputs)
    return step_probabilities(
        pretrained, start, controls.settings, tokens[:step], path.logits[step]
    )
