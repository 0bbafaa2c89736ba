"""Greedy decoding beside the chosen way over held-out sources: is what is likelier also right more often?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from core.decoding import EOS, Hypothesis
from core.tasks import Task
from core.tasks.metrics import score
from dashboard.charts.numbers import number, percent
from dashboard.runtime import cache
from dashboard.views.decode.compute import BEAM, GREEDY, How, Trained, longest_of, prompt_of, search
from dashboard.views.decode.controls import Asked
from dashboard.widgets.panels import fact
from dashboard.widgets.table import table

SOURCES, SECONDS = 50, 8
MEASURED = "decode:measured"


@dataclass(frozen=True)
class Score:
    """One way of decoding over the same sources: means over their best outputs."""

    exact: float
    logp: float
    tokens: float
    bleu: float | None = None
    chrf: float | None = None
    cut: int = 0  # outputs that reached the longest without an end mark


def scores(trained: Trained, ways: tuple[How, ...]) -> tuple[int, tuple[Score, ...]]:
    """How many held-out sources were decoded in every way before the time was up, and how each way did."""
    return cache.cached(_scores, trained, ways)


def _scores(trained: Trained, ways: tuple[How, ...]) -> tuple[int, tuple[Score, ...]]:
    model, task = trained.load()
    best: list[list[Hypothesis]] = []
    ends = time.monotonic() + SECONDS
    examples = task.held_out(SOURCES)
    for example in examples:
        best.append([search(model, prompt_of(task, example), how, longest_of(task, example, how)).hypotheses[0]
                     for how in ways])
        if time.monotonic() > ends:
            break
    wanted = [example.target for example in examples[: len(best)]]
    return len(best), tuple(_score(task, found, wanted) for found in zip(*best, strict=True))


def _score(task: Task, found: Sequence[Hypothesis], wanted: Sequence[tuple[str, ...]]) -> Score:
    written, count = [task.target_vocab.decode(one.tokens) for one in found], len(found)
    return Score(logp=sum(one.logp for one in found) / count, tokens=sum(map(len, found)) / count,
                 cut=sum(one.tokens[-1] != EOS for one in found), **score(task, written, wanted))


def section(asked: Asked) -> None:
    """A button, and once it was pressed the table for as long as the settings stay."""
    _, task = asked.trained.load()
    if task.form != "pairs":
        return
    this = (asked.trained, asked.how)
    if st.button(f"Measure on {SOURCES} held-out sources", icon=":material/speed:", type="tertiary",
                 key="decode:measure", help=f"a second or two, {SECONDS} at most"):
        st.session_state[MEASURED] = this
    if st.session_state.get(MEASURED) != this:
        return
    ways = tuple(dict.fromkeys((replace(asked.how, strategy=GREEDY), asked.how)))
    with st.spinner("Decoding"):
        count, found = scores(asked.trained, ways)
    rows = [[named(how), percent(one.exact),
             *(number(value) for value in (one.bleu, one.chrf) if value is not None),
             number(one.logp), number(one.tokens)] for how, one in zip(ways, found, strict=True)]
    head = ["way", "exact",
            *(name for name, value in (("BLEU", found[0].bleu), ("chrF", found[0].chrf)) if value is not None),
            "log-probability", "tokens"]
    table(head, rows, caption=f"Means over {count} held-out sources", markers=False)
    st.caption(f"Means over the same {count} held-out sources.{cut_at(found, task, asked.how)}")
    if len(found) == 2:
        fact(sentence(*found))


def cut_at(found: Sequence[Score], task: Task, how: How) -> str:
    """How many outputs of each way reached the longest allowed, as a sentence; empty where none did."""
    if not any(one.cut for one in found):
        return ""
    cap = min(how.longest or task.max_target + 1, task.max_target + 1)
    return f" Cut at {cap} tokens, before an end mark: {' and '.join(str(one.cut) for one in found)} of them."


def named(how: How) -> str:
    """A way of decoding in a few words; the same as greedy's where nothing else is asked."""
    if how.strategy == GREEDY:
        return "Greedy"
    if how.strategy == BEAM:
        return f"Beam of {how.width}, α {how.penalty:g}"
    return f"The most drawn of {how.samples}, T {how.temperature:g}"


def sentence(plain: Score, other: Score) -> str:
    """Likelier, and righter?"""
    likelier = "likelier" if other.logp > plain.logp + 1e-3 else "no likelier"
    change = 100 * (other.exact - plain.exact)
    if abs(change) < 0.5:
        righter = "as often right"
    else:
        righter = f"right {abs(change):.0f} points {'more' if change > 0 else 'less'} often"
    return (f"What this search finds is {likelier} than what greedy decoding finds, {number(other.logp)} against "
            f"{number(plain.logp)} in log-probability, and {righter}: {percent(other.exact)} against "
            f"{percent(plain.exact)}.")
