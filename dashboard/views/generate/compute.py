"""What the page is asked for, and the search that answers: it may go on over several runs of the page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import streamlit as st

from core.decoding import Hypothesis, SearchSettings, Tree
from core.pretrained import ModelInputs, Pretrained
from core.pretrained.generate import (
    Continuation,
    GenerationStart,
    generate_steps,
    prepare_generation,
    score_continuation,
)
from dashboard.runtime.cache import shared
from dashboard.widgets.model_picker import ModelRef, load_model

GOING, PICKED = "generate:going", "generate:picked"
PATIENCE, BETWEEN = 0.35, 0.2  # seconds until a search that goes on is drawn, and from one drawing to the next
SHARE = 4  # and at least so many times as long as a drawing takes, so that most of the time goes to the search


@dataclass(frozen=True)
class Controls:
    """A model, what it reads, and how the next tokens are found."""

    ref: ModelRef
    given: ModelInputs
    settings: SearchSettings


@dataclass(eq=False)
class Search:
    """A search of this session: its tree so far, and the steps that are left (None once there are none)."""

    controls: Controls
    start: GenerationStart
    steps: Iterator[Tree] | None
    tree: Tree = field(default_factory=Tree)
    seconds: float = 0.0
    stopped: bool = False
    read: bool = False  # whether the link was asked what is picked
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

    @property
    def length(self) -> int:
        """Tokens said so far, by the longest."""
        return 1 + max((one.step for one in self.tree.candidates), default=-1)


def current_search(controls: Controls, pretrained: Pretrained) -> Search:
    """The session's search for these controls: the running one, or a new one with nothing picked in it.

    PretrainedError when the model cannot go on with what it is given.
    """
    now: Search | None = st.session_state.get(GOING)
    if now is None or now.controls != controls:
        start = prepare_generation(pretrained, controls.given)
        fresh = now is None  # a link's pick is of the search that the link began
        now = Search(controls, start, generate_steps(pretrained, start, controls.settings), read=not fresh)
        st.session_state[GOING], st.session_state[PICKED] = now, None
    return now


def run(now: Search, draw: Callable[[Search], None]) -> None:
    """Take the steps that are left; `draw` what there is from time to time, once it takes long enough to be seen.

    A widget that is used meanwhile breaks this off between two steps, and the next run of the page goes on from there.
    """
    due = time.monotonic() + PATIENCE
    while not now.stopped and now.advance():
        if (began := time.monotonic()) >= due:
            draw(now)
            took = time.monotonic() - began
            due = began + took + max(BETWEEN, SHARE * took)


def outputs(now: Search) -> list[Hypothesis]:
    """What has been said, the best first; while a search is not over, what it would go on with counts too."""
    tree, last = now.tree, now.length - 1
    outputs_ = list(tree.hypotheses)
    if not now.done:
        outputs_ += [Hypothesis(place, tree.tokens(place), one.total, one.total, one.samples)
                  for place, one in enumerate(tree.candidates) if one.step == last and one.fate == "kept"]
        outputs_.sort(key=lambda one: (-one.samples, -one.logp))
    return outputs_


def continuation_of(request: Controls, tokens: Sequence[int]) -> Continuation:
    """All logits and the attention along one path, remembered."""
    return shared(_continuation, request.ref, request.given, tuple(tokens))


def _continuation(ref: ModelRef, given: ModelInputs, tokens: tuple[int, ...]) -> Continuation:
    pretrained = load_model(ref)
    return score_continuation(pretrained, prepare_generation(pretrained, given), tokens)
