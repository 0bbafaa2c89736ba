"""The page's sentences and equations, with the numbers of the search that just ran."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.decoding import EOS, Hypothesis, Tree, penalty
from core.tasks import Task
from core.tokens import token_text
from dashboard.charts.numbers import duration, number
from dashboard.views.decode.compute import BEAM, GREEDY, SAMPLING, Decoded, How
from dashboard.widgets.panels import plain

END = "end"
WIDEST = 80  # letters of an output in a sentence or a table


def names(task: Task) -> list[str]:
    """Every target token as it is drawn."""
    return [END if i == EOS else token_text(token) for i, token in enumerate(task.target_vocab.tokens)]


def spoken(task: Task, tokens: Sequence[int]) -> str:
    """Tokens as a person would write them, up to the end mark."""
    words = task.target_vocab.decode(tokens)
    glue = " " if any(len(word) > 1 for word in words) or task.separator else ""
    return glue.join(words) or "nothing"


def shorten(text: str) -> str:
    """The ends of a long output, which is where outputs of one beam differ."""
    return text if len(text) <= WIDEST else f"{text[: WIDEST // 2 - 1]} … {text[-WIDEST // 2 + 2 :]}"


def quoted(task: Task, one: Hypothesis) -> str:
    """An output in a sentence."""
    return plain(shorten(spoken(task, one.tokens)))


def right(found: Decoded, task: Task, one: Hypothesis) -> bool | None:
    """Whether an output is what should be said; None where nobody knows."""
    return None if found.target is None else tuple(task.target_vocab.decode(one.tokens)) == tuple(found.target)


def verdict(found: Decoded, task: Task, one: Hypothesis) -> str:
    known = right(found, task, one)
    return "" if known is None else ", which is right" if known else ", which is wrong"


def chance(logp: float) -> str:
    """A probability, from its logarithm."""
    return number(math.exp(logp))


def fact(found: Decoded, task: Task, how: How, plainest: Hypothesis) -> str:
    """What the search found beside what greedy decoding finds."""
    best = found.tree.hypotheses[0]
    said = f"**{quoted(task, best)}**"
    if how.strategy == SAMPLING:
        drawn, own = sum(one.samples for one in found.tree.hypotheses), len(found.tree.hypotheses)
        same = "Greedy decoding says the same." if best.tokens == plainest.tokens else (
            f"Greedy decoding says {quoted(task, plainest)}, which has {chance(plainest.logp)}.")
        if best.samples == 1 < drawn:
            return (f"All {drawn} samples are different; the likeliest of them, {said}{verdict(found, task, best)}, "
                    f"has probability {chance(best.logp)}. {same}")
        others = "" if own == 1 else f" There are {own} different outputs."
        return (f"{best.samples} of {drawn} samples {'is' if drawn == 1 else 'are'} "
                f"{said}{verdict(found, task, best)}; the model gives it {chance(best.logp)}.{others} {same}")
    if how.strategy == GREEDY:
        first = min(found.tree.path(best.leaf), key=lambda place: found.tree.candidates[place].logp)
        weak = found.tree.candidates[first]
        return (f"The likeliest token at each step gives {said}{verdict(found, task, best)}, in all with probability "
                f"{chance(best.logp)}; least sure is it of {plain(names(task)[weak.token])}, with {chance(weak.logp)}.")
    return _beam(found, task, how, plainest, best, said)


def _beam(found: Decoded, task: Task, how: How, plainest: Hypothesis, best: Hypothesis, said: str) -> str:
    if best.tokens == plainest.tokens:
        others = [one for one in found.tree.hypotheses if one is not best]
        behind = f"; the next best, {quoted(task, others[0])}, has {chance(others[0].logp)}" if others \
            else ""
        return (f"A beam of {how.width} says what greedy decoding says: {said}{verdict(found, task, best)}. The model "
                f"gives it {chance(best.logp)}{behind}.")
    return (f"A beam of {how.width} says {said}{verdict(found, task, best)}, with probability {chance(best.logp)}; "
            f"greedy decoding says {quoted(task, plainest)}{verdict(found, task, plainest)}, with "
            f"{chance(plainest.logp)}.")


def caption(found: Decoded, task: Task, how: How, drawn: int, where: str) -> str:
    """The conditions, and what the picture leaves out."""
    tree = found.tree
    left = len(tree.candidates) - drawn
    more = f" {left} of them are not drawn." if left else ""
    unknown = f" Unknown to this model, and read as <unk>: {', '.join(found.unknown)}." if found.unknown else ""
    wanted = "" if found.target is None else f" It should say: {task.separator.join(found.target)}."
    return (f"{where}. {len(tree.candidates):,} candidates weighed in {duration(found.seconds)} of one core.{more} "
            "A number is the model's probability of the token after what stands before it; dashed is dropped."
            f"{wanted}{unknown}")


def equation(how: How, tree: Tree, path: Sequence[int]) -> str:
    """The rule of the strategy with the picked path's own numbers, in LaTeX."""
    last = tree.candidates[path[-1]]
    total, length = last.total, len(path)
    if how.strategy == BEAM:
        value = total / penalty(length, how.penalty)
        return (rf"\text{{score}} = \frac{{\sum_t \log p_t}}{{\left(\frac{{5 + |Y|}}{{6}}\right)^{{\alpha}}}} = "
                rf"\frac{{{number(total)}}}{{\left(\frac{{5 + {length}}}{{6}}\right)^{{{how.penalty:g}}}}} = "
                f"{number(value)}")
    own = math.exp(last.logp)
    if how.strategy == GREEDY:
        return rf"y_t = \arg\max_i\, p_i, \qquad p = {number(own)}, \qquad \sum_t \log p_t = {number(total)}"
    kept = r"\text{all } j" if not how.top_k and how.top_p == 1 else r"j \text{ kept by " + _kept(how) + "}"
    return (rf"p'_i = \frac{{p_i^{{1/T}}}}{{\sum_{{{kept}}} p_j^{{1/T}}}}, \qquad T = {how.temperature:g}: \quad "
            rf"{number(own)} \to {number(last.chance or 0)}")


def _kept(how: How) -> str:
    parts = [f"top-k {how.top_k}" if how.top_k else "", f"top-p {how.top_p:g}" if how.top_p < 1 else ""]
    return ", ".join(filter(None, parts))
