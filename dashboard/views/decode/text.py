"""The page's sentences and equations, with the numbers of the search that just ran."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.decoding import EOS, Hypothesis, SearchSettings, Tree, penalty
from core.tasks import Task
from core.tokens import token_text
from dashboard.charts.numbers import duration, number, percent
from dashboard.charts.tokens import shorten
from dashboard.views.decode.compute import Score, SearchResult
from dashboard.widgets.panels import plain

END = "end"


def names(task: Task) -> list[str]:
    """Every target token as it is drawn."""
    return [END if i == EOS else token_text(token) for i, token in enumerate(task.target_vocab.tokens)]


def output_text(task: Task, tokens: Sequence[int]) -> str:
    """Tokens as a person would write them, up to the end mark."""
    words = task.target_vocab.decode(tokens)
    glue = " " if any(len(word) > 1 for word in words) or task.separator else ""
    return glue.join(words) or "nothing"


def quoted(task: Task, one: Hypothesis) -> str:
    """An output in a sentence."""
    return plain(shorten(output_text(task, one.tokens)))


def is_correct(result: SearchResult, task: Task, one: Hypothesis) -> bool | None:
    """Whether an output is what should be said; None where nobody knows."""
    return None if result.target is None else tuple(task.target_vocab.decode(one.tokens)) == tuple(result.target)


def verdict(result: SearchResult, task: Task, one: Hypothesis) -> str:
    known = is_correct(result, task, one)
    return "" if known is None else ", which is right" if known else ", which is wrong"


def chance(logp: float) -> str:
    """A probability, from its logarithm."""
    return number(math.exp(logp))


def fact(result: SearchResult, task: Task, settings: SearchSettings, greedy: Hypothesis) -> str:
    """The best output of the search beside the output of greedy decoding."""
    best = result.tree.hypotheses[0]
    output = f"**{quoted(task, best)}**{verdict(result, task, best)}"
    if settings.strategy == "sampling":
        return _sampling_fact(result, task, greedy, output)
    if settings.strategy == "greedy":
        candidates = result.tree.candidates
        weak = candidates[min(result.tree.path(best.leaf), key=lambda index: candidates[index].logp)]
        return (f"The likeliest token at each step gives {output}, in all with probability "
                f"{chance(best.logp)}; least sure is it of {plain(names(task)[weak.token])}, with {chance(weak.logp)}.")
    return _beam_fact(result, task, settings.width, greedy, output)


def _sampling_fact(result: SearchResult, task: Task, greedy: Hypothesis, output: str) -> str:
    outputs = result.tree.hypotheses
    best, drawn = outputs[0], sum(one.samples for one in outputs)
    same = "Greedy decoding says the same." if best.tokens == greedy.tokens else (
        f"Greedy decoding says {quoted(task, greedy)}, which has {chance(greedy.logp)}.")
    if best.samples == 1 < drawn:
        return (f"All {drawn} samples are different; the likeliest of them, {output}, "
                f"has probability {chance(best.logp)}. {same}")
    others = "" if len(outputs) == 1 else f" There are {len(outputs)} different outputs."
    return (f"{best.samples} of {drawn} samples {'is' if drawn == 1 else 'are'} {output}; "
            f"the model gives it {chance(best.logp)}.{others} {same}")


def _beam_fact(result: SearchResult, task: Task, width: int, greedy: Hypothesis, output: str) -> str:
    best, *others = result.tree.hypotheses
    if best.tokens == greedy.tokens:
        second = f"; the next best, {quoted(task, others[0])}, has {chance(others[0].logp)}" if others else ""
        return (f"A beam of {width} says what greedy decoding says: {output}. The model "
                f"gives it {chance(best.logp)}{second}.")
    return (f"A beam of {width} says {output}, with probability {chance(best.logp)}; "
            f"greedy decoding says {quoted(task, greedy)}{verdict(result, task, greedy)}, with "
            f"{chance(greedy.logp)}.")


def caption(result: SearchResult, task: Task, settings: SearchSettings, drawn: int, where: str) -> str:
    """Under which conditions the numbers hold, and what the figure leaves out."""
    tree = result.tree
    left = len(tree.candidates) - drawn
    more = f" {left} of them are not drawn." if left else ""
    unknown = f" Unknown to this model, and read as <unk>: {', '.join(result.unknown)}." if result.unknown else ""
    target = "" if result.target is None else f" It should say: {task.separator.join(result.target)}."
    return (f"{where}. {len(tree.candidates):,} candidates weighed in {duration(result.seconds)} of one core.{more} "
            "A number is the model's probability of the token after what stands before it; dashed is dropped."
            f"{target}{unknown}")


def equation(settings: SearchSettings, tree: Tree, path: Sequence[int]) -> str:
    """The rule of the strategy with the picked path's own numbers, in LaTeX."""
    last, alpha = tree.candidates[path[-1]], settings.length_penalty
    total, length = last.total, len(path)
    if settings.strategy == "beam":
        return (rf"\text{{score}} = \frac{{\sum_t \log p_t}}{{\left(\frac{{5 + |Y|}}{{6}}\right)^{{\alpha}}}} = "
                rf"\frac{{{number(total)}}}{{\left(\frac{{5 + {length}}}{{6}}\right)^{{{alpha:g}}}}} = "
                f"{number(total / penalty(length, alpha))}")
    own = math.exp(last.logp)
    if settings.strategy == "greedy":
        return rf"y_t = \arg\max_i\, p_i, \qquad p = {number(own)}, \qquad \sum_t \log p_t = {number(total)}"
    filters = [f"top-k {settings.top_k}" if settings.top_k else "",
               f"top-p {settings.top_p:g}" if settings.top_p < 1 else ""]
    over = ", ".join(filter(None, filters))
    over = rf"j \text{{ kept by {over}}}" if over else r"\text{all } j"
    return (rf"p'_i = \frac{{p_i^{{1/T}}}}{{\sum_{{{over}}} p_j^{{1/T}}}}, \qquad T = {settings.temperature:g}: \quad "
            rf"{number(own)} \to {number(last.chance or 0)}")


def cut_at(scores: Sequence[Score], task: Task, settings: SearchSettings) -> str:
    """How many outputs of each strategy reached the longest length, as a sentence; empty where none did."""
    if not any(one.cut for one in scores):
        return ""
    cap = min(settings.longest or task.max_target + 1, task.max_target + 1)
    return f" Cut at {cap} tokens, before an end mark: {' and '.join(str(one.cut) for one in scores)} of them."


def strategy_name(settings: SearchSettings) -> str:
    """A strategy in a few words."""
    if settings.strategy == "greedy":
        return "Greedy"
    if settings.strategy == "beam":
        return f"Beam of {settings.width}, α {settings.length_penalty:g}"
    return f"The most drawn of {settings.samples}, T {settings.temperature:g}"


def scores_fact(greedy: Score, other: Score) -> str:
    """Whether the search finds likelier outputs than greedy decoding, and whether more of them are right."""
    likelier = "likelier" if other.logp > greedy.logp + 1e-3 else "no likelier"
    change = 100 * (other.exact - greedy.exact)
    if abs(change) < 0.5:
        righter = "as often right"
    else:
        righter = f"right {abs(change):.0f} points {'more' if change > 0 else 'less'} often"
    return (f"What this search finds is {likelier} than what greedy decoding finds, {number(other.logp)} against "
            f"{number(greedy.logp)} in log-probability, and {righter}: {percent(other.exact)} against "
            f"{percent(greedy.exact)}.")
