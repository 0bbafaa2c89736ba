"""Greedy decoding beside the chosen way over held-out sources: is what is likelier also right more often?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from core.tasks.metrics import bleu, exact_match
from dashboard import cache
from dashboard.decode.controls import Asked
from dashboard.decode.state import GREEDY, How, Trained, longest_of, prompt_of, search
from dashboard.panels import fact
from dashboard.table import table

SOURCES = 50
MEASURED = "decode:measured"


@dataclass(frozen=True)
class Score:
    """One way of decoding over the same sources: means over their best outputs."""

    exact: float
    bleu: float | None
    logp: float
    tokens: float


def score(trained: Trained, how: How) -> Score:
    return cache.cached(_score, trained, how)


def _score(trained: Trained, how: How) -> Score:
    model, task = trained.load()
    examples = task.held_out(SOURCES)
    best = [search(model, prompt_of(task, example), how, longest_of(task, example, how)).hypotheses[0]
            for example in examples]
    written, wanted = [task.target_vocab.decode(one.tokens) for one in best], [e.target for e in examples]
    count = len(best)
    return Score(exact_match(written, wanted), bleu(written, wanted) if "bleu" in task.metrics else None,
                 sum(one.logp for one in best) / count, sum(map(len, best)) / count)


def section(asked: Asked) -> None:
    """A button, and once it was pressed the table for as long as the settings stay."""
    _, task = asked.trained.load()
    if task.form != "pairs":
        return
    this = (asked.trained, asked.how)
    if st.button(f"Measure on {SOURCES} held-out sources", icon=":material/speed:", type="tertiary",
                 key="decode:measure", help="a second or two"):
        st.session_state[MEASURED] = this
    if st.session_state.get(MEASURED) != this:
        return
    ways = {"Greedy": replace(asked.how, strategy=GREEDY), named(asked.how): asked.how}
    with st.spinner("Decoding"):
        scores = {name: score(asked.trained, how) for name, how in ways.items()}
    rows = [[name, f"{100 * one.exact:.0f} %", *([] if one.bleu is None else [f"{one.bleu:.1f}"]),
             f"{one.logp:.2f}".replace("-", "−"), f"{one.tokens:.1f}"] for name, one in scores.items()]
    head = ["way", "exact", *([] if scores["Greedy"].bleu is None else ["BLEU"]), "log-probability", "tokens"]
    table(head, rows, caption=f"Means over {SOURCES} held-out sources", markers=False)
    if len(scores) == 2:
        fact(sentence(scores["Greedy"], scores[named(asked.how)]))


def named(how: How) -> str:
    """A way of decoding in a few words; the same as greedy's where nothing else is asked."""
    if how.strategy == GREEDY:
        return "Greedy"
    if how.strategy == "Beam":
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
    return (f"What this search finds is {likelier} than what greedy decoding finds, {other.logp:.2f} against "
            f"{plain.logp:.2f} in log-probability, and {righter}: {100 * other.exact:.0f} % against "
            f"{100 * plain.exact:.0f} %.").replace("-", "−")
