"""The page's sentences and equations, with the numbers of the search."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.models.decoding import EOS, Hypothesis, SearchSettings, Tree, penalty
from core.tasks import Task
from core.tokens import token_text
from dashboard.draw.formats import duration, number, percent, shorten
from dashboard.ui.decoding import step_equation
from dashboard.views.decode.compute import Score, SearchResult
from dashboard.widgets.panels import plain

END = "end"


def names(task: Task) -> list[str]:
    """The text of every target token."""
    return [
        END if i == EOS else token_text(token) for i, token in enumerate(task.target_vocab.tokens)
    ]


def output_text(task: Task, tokens: Sequence[int]) -> str:
    """Tokens as a person would write them, up to the end mark."""
    words = task.target_vocab.decode(tokens)
    glue = " " if any(len(word) > 1 for word in words) or task.separator else ""
    return glue.join(words) or "nothing"


def _quoted(task: Task, one: Hypothesis) -> str:
    """An output in a sentence."""
    return plain(shorten(output_text(task, one.tokens)))


def is_correct(result: SearchResult, task: Task, one: Hypothesis) -> bool:
    """Whether an output is the target."""
    return tuple(task.target_vocab.decode(one.tokens)) == result.target


def _verdict(result: SearchResult, task: Task, one: Hypothesis) -> str:
    if result.target is None:
        return ""
    return ", which is correct" if is_correct(result, task, one) else ", which is wrong"


def _probability(logp: float) -> str:
    return number(math.exp(logp))


def fact(result: SearchResult, task: Task, settings: SearchSettings, greedy: Hypothesis) -> str:
    """The best output of the search, compared with that of greedy decoding."""
    best = result.tree.hypotheses[0]
    output = f"**{_quoted(task, best)}**{_verdict(result, task, best)}"
    if settings.strategy == "sampling":
        return _sampling_fact(result, task, greedy, output)
    if settings.strategy == "greedy":
        candidates = result.tree.candidates
        weak = candidates[
            min(result.tree.path(best.leaf), key=lambda index: candidates[index].logp)
        ]
        return (
            f"The most probable token at each step gives {output}, with a total probability of "
            f"{_probability(best.logp)}; the least certain token is {plain(names(task)[weak.token])}, with "
            f"{_probability(weak.logp)}."
        )
    return _beam_fact(result, task, settings.width, greedy, output)


def _sampling_fact(result: SearchResult, task: Task, greedy: Hypothesis, output: str) -> str:
    outputs = result.tree.hypotheses
    best, samples = outputs[0], sum(one.samples for one in outputs)
    same = (
        "Greedy decoding gives the same output."
        if best.tokens == greedy.tokens
        else (
            f"Greedy decoding gives {_quoted(task, greedy)}, with probability {_probability(greedy.logp)}."
        )
    )
    if best.samples == 1 < samples:
        return (
            f"All {samples} samples are different; the most probable one, {output}, "
            f"has probability {_probability(best.logp)}. {same}"
        )
    others = "" if len(outputs) == 1 else f" There are {len(outputs)} different outputs."
    return (
        f"{best.samples} of {samples} samples {'is' if samples == 1 else 'are'} {output}; "
        f"the model gives it {_probability(best.logp)}.{others} {same}"
    )


def _beam_fact(
    result: SearchResult, task: Task, width: int, greedy: Hypothesis, output: str
) -> str:
    best, *others = result.tree.hypotheses
    if best.tokens == greedy.tokens:
        second = (
            f"; the next best, {_quoted(task, others[0])}, has {_probability(others[0].logp)}"
            if others
            else ""
        )
        return (
            f"A beam of {width} gives the same output as greedy decoding: {output}, with probability "
            f"{_probability(best.logp)}{second}."
        )
    return (
        f"A beam of {width} gives {output}, with probability {_probability(best.logp)}; "
        f"greedy decoding gives {_quoted(task, greedy)}{_verdict(result, task, greedy)}, with "
        f"{_probability(greedy.logp)}."
    )


def caption(result: SearchResult, task: Task, visible: int, model: str) -> str:
    """The conditions of the numbers, and how many candidates the figure leaves out."""
    tree = result.tree
    hidden = len(tree.candidates) - visible
    more = f" {hidden} of them are not shown." if hidden else ""
    unknown = (
        f" Not in the vocabulary, read as <unk>: {', '.join(result.unknown)}."
        if result.unknown
        else ""
    )
    target = "" if result.target is None else f" Target: {task.separator.join(result.target)}."
    return (
        f"{model}. {len(tree.candidates):,} candidates computed in {duration(result.seconds)} on one core.{more} "
        "Each number is the probability of a token, given the tokens before it; dashed candidates were dropped."
        f"{target}{unknown}"
    )


def equation(settings: SearchSettings, tree: Tree, path: Sequence[int]) -> str:
    """The rule of the strategy with the picked path's own numbers, in LaTeX."""
    last, alpha = tree.candidates[path[-1]], settings.length_penalty
    total, length = last.total, len(path)
    if settings.strategy == "beam":
        return (
            rf"\text{{score}} = \frac{{\sum_t \log p_t}}{{\left(\frac{{5 + |Y|}}{{6}}\right)^{{\alpha}}}} = "
            rf"\frac{{{number(total)}}}{{\left(\frac{{5 + {length}}}{{6}}\right)^{{{alpha:g}}}}} = "
            f"{number(total / penalty(length, alpha))}"
        )
    return step_equation(settings, last, total, "t")


def cut_at(scores: Sequence[Score], task: Task, settings: SearchSettings) -> str:
    """How many outputs of each strategy were cut at the longest length, as a sentence; "" where none was."""
    if not any(one.cut for one in scores):
        return ""
    cap = min(settings.longest or task.max_target + 1, task.max_target + 1)
    return f" Cut at {cap} tokens, before an end token: {' and '.join(str(one.cut) for one in scores)} outputs."


def strategy_name(settings: SearchSettings) -> str:
    """A strategy in a few words."""
    if settings.strategy == "greedy":
        return "Greedy"
    if settings.strategy == "beam":
        return f"Beam of {settings.width}, α {settings.length_penalty:g}"
    return f"Most frequent of {settings.samples} samples, T {settings.temperature:g}"


def scores_fact(greedy: Score, other: Score) -> str:
    """Whether the outputs of a search are more probable and more accurate than those of greedy decoding."""
    probable = "more probable" if other.logp > greedy.logp + 1e-3 else "no more probable"
    change = 100 * (other.exact - greedy.exact)
    points = f"{abs(change):.0f} points {'higher' if change > 0 else 'lower'}"
    accuracy = "the same" if abs(change) < 0.5 else points
    return (
        f"The outputs of this search are {probable} than those of greedy decoding (log-probability "
        f"{number(other.logp)} and {number(greedy.logp)}). Their accuracy is {accuracy}: {percent(other.exact)} "
        f"and {percent(greedy.exact)}."
    )
