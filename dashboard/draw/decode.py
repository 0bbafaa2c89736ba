"""Decode: its sentences of numbers, and code of its script."""

import math
from collections.abc import Sequence

from core.models.decoding import EOS, ForcedSteps, Hypothesis, SearchSettings
from core.studies.decode import Score, SearchResult
from core.tasks import Task
from core.tokens import token_text
from dashboard.draw.components import Cell
from dashboard.draw.formats import duration, number, percent, plain, shorten


def names_text(task: Task) -> list[str]:
    return [
        "end" if i == EOS else token_text(token) for i, token in enumerate(task.target_vocab.tokens)
    ]


def output_text(task: Task, tokens: Sequence[int]) -> str:
    words = task.target_vocab.decode(tokens)
    glue = " " if any(len(word) > 1 for word in words) or task.separator else ""
    return glue.join(words) or "nothing"


def quoted(task: Task, one: Hypothesis) -> str:
    return plain(shorten(output_text(task, one.tokens)))


def is_correct(result: SearchResult, task: Task, one: Hypothesis) -> bool:
    return tuple(task.target_vocab.decode(one.tokens)) == result.target


def verdict(result: SearchResult, task: Task, one: Hypothesis) -> str:
    if result.target is None:
        return ""
    return ", which is correct" if is_correct(result, task, one) else ", which is wrong"


def probability(logp: float) -> str:
    return number(math.exp(logp))


def fact_text(
    result: SearchResult, task: Task, settings: SearchSettings, greedy: Hypothesis
) -> str:
    best = result.tree.hypotheses[0]
    output = f"**{quoted(task, best)}**{verdict(result, task, best)}"
    chance = probability(best.logp)
    if settings.strategy == "greedy":
        weak = min(
            (result.tree.candidates[index] for index in result.tree.path(best.leaf)),
            key=lambda one: one.logp,
        )
        return (
            f"The most probable token at each step gives {output}, with a total probability of "
            f"{chance}; the least certain token is {plain(names_text(task)[weak.token])}, with "
            f"{probability(weak.logp)}."
        )
    usual = f"another{verdict(result, task, greedy)}, with {probability(greedy.logp)}"
    other = f"greedy decoding gives {'the same' if best.tokens == greedy.tokens else usual}."
    if settings.strategy == "beam":
        return f"A beam of {settings.width} gives {output}, with probability {chance}; {other}"
    samples = sum(one.samples for one in result.tree.hypotheses)
    return (
        f"{best.samples} of {samples} samples {'is' if samples == 1 else 'are'} {output}; the model gives it "
        f"{chance}; {other}"
    )


def strategy_name(settings: SearchSettings) -> str:
    return {
        "greedy": "Greedy",
        "beam": f"Beam of {settings.width}, α {settings.length_penalty:g}",
        "sampling": f"Most frequent of {settings.samples} samples, T {settings.temperature:g}",
    }[settings.strategy]


def scores_fact(greedy: Score, other: Score) -> str:
    probable = "more probable" if other.logp > greedy.logp + 1e-3 else "no more probable"
    change = 100 * (other.sequence_accuracy - greedy.sequence_accuracy)
    points = f"{abs(change):.0f} points {'higher' if change > 0 else 'lower'}"
    accuracy = "the same" if abs(change) < 0.5 else points
    return (
        f"The outputs of this search are {probable} than those of greedy decoding (log-probability "
        f"{number(other.logp)} and {number(greedy.logp)}). Their accuracy is {accuracy}: "
        f"{percent(other.sequence_accuracy)} "
        f"and {percent(greedy.sequence_accuracy)}."
    )


def score_rows(
    strategies: Sequence[SearchSettings], scores: Sequence[Score], optional: Sequence[str]
) -> list[list[str]]:
    return [
        [
            strategy_name(settings),
            percent(one.sequence_accuracy),
            *(number(getattr(one, name)) for name in optional),
            number(one.logp),
            number(one.tokens),
        ]
        for settings, one in zip(strategies, scores, strict=True)
    ]


def conditions(result: SearchResult, task: Task, settings: SearchSettings, visible: int) -> str:
    """How many candidates there are, of which so many are in the tree; the target, and unknown words."""
    count = len(result.tree.candidates)
    beam = " and take no place in the beam" if settings.strategy == "beam" else ""
    parts = {
        f"{count:,} candidates computed in {duration(result.seconds)} on one core.": True,
        f"{count - visible} of them are not shown.": count > visible,
        "Each number is the probability of a token after those before it. Solid boxes can be continued, or end an "
        f"output{beam}; dashed ones were dropped.": True,
        f"Target: {task.separator.join(result.target or ())}.": result.target is not None,
        f"Not in the vocabulary, read as <unk>: {', '.join(result.unknown)}.": result.unknown,
    }
    return " ".join(filter(parts.get, parts))


def outputs_cell(run: str, step: int, result: SearchResult, path: ForcedSteps) -> Cell:
    """The outputs in words, the likeliest tokens after a path, and the tree; `run` is the code of the run's folder."""
    tree = result.tree
    return Cell(
        "The outputs, the best first, and the likeliest tokens at the last step of the path.",
        f"""
from core.runs.runs import open_run

task = open_run({run}).model({step})[1]
for output in tree.hypotheses:
    print(task.separator.join(map(str, task.target_vocab.decode(output.tokens))), output.logp)
probabilities = path.logp[-1].exp()  # of every token after the others
print([(task.target_vocab.tokens[index], float(probabilities[index])) for index in probabilities.topk(3).indices])
""",
        """
import altair as alt
import pandas as pd

rows = [(one.step, task.target_vocab.tokens[one.token], one.total, one.fate) for one in tree.candidates]
alt.Chart(pd.DataFrame(rows, columns=["step", "token", "total", "fate"])).mark_text().encode(
    x="step:O", y="total", text="token", color="fate")
""",
        "decode:tree",
        {
            "[(one.token, one.step, one.logp, one.total) for one in tree.candidates]": [
                (one.token, one.step, one.logp, one.total) for one in tree.candidates
            ],
            "[output.score for output in tree.hypotheses]": [one.score for one in tree.hypotheses],
            "probabilities": path.logp[-1].exp().numpy(),
        },
    )
