"""Sentences of the page: the fact of each job, the conditions, and the jobs of other models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.interpret.evidence import Effect
from core.pretrained.answers import Candidate, ModelTask
from dashboard.draw.formats import number
from dashboard.views.use_model.compute import Answer, Head
from dashboard.widgets.panels import plain

LONGEST_SENTENCE = 90  # signs of a sentence
NOTHING = 5e-4  # a change of the answer that is none
SUBJECT = {"mask": "The masked word", "next": "The next token", "class": "The class"}


def short(text: str, most: int) -> str:
    """A text cut to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def answer_fact(answer: Answer, predictions: Sequence[Candidate], head: Head) -> str:
    """The answer, the second likeliest, and the answer without the head that matters most."""
    first, count = predictions[0], len(answer.baseline.answer.probabilities)  # type: ignore[arg-type]
    next_best = ""
    if len(predictions) > 1:
        next_best = (
            f", ahead of **{plain(predictions[1].word)}** with {number(predictions[1].probability)}"
        )
    subject = SUBJECT[answer.baseline.answer.kind]
    return (
        f"{subject} is :primary[**{plain(first.word)}**] with **{number(first.probability)}**{next_best}; chance "
        f"is 1 in {count:,}. {head_fact(answer, head, first.word)}"
    )


def translation_fact(answer: Answer, whole: str, head: Head) -> str:
    """The translation, or the given target, and the attention to the source by which one of its words is produced."""
    keys, weights = _row(answer, head)
    best, word = int(weights.argmax()), answer.baseline.word or ""
    verb = (
        "The model reads your target"
        if answer.baseline.question.inputs.target
        else "The model writes"
    )
    return (
        f"{verb} **{plain(whole)}**. For :primary[**{plain(word)}**], head **{head.name}** puts "
        f"**{number(weights[best])}** of its weight on **{plain(keys[best])}**; uniform attention would put "
        f"{number(1 / len(keys))} there. {_without(answer, head, word)}"
    )


def head_fact(answer: Answer, head: Head, word: str) -> str:
    """The key with the head's largest weight, and the answer without the head."""
    keys, weights = _row(answer, head)
    best = int(weights.argmax())
    attends = (
        f"Head **{head.name}** attends most to **{plain(keys[best])}**, with {number(weights[best])} of its "
        f"weight (uniform attention: {number(1 / len(keys))})"
    )
    return f"{attends}. {_without(answer, head, word)}"


def _without(answer: Answer, head: Head, word: str) -> str:
    if head.effect is None:
        return "The effect of each head on the answer is not measured yet."
    quantity = f"the {answer.baseline.quantity} of **{plain(word)}**"
    if abs(head.effect.change) < NOTHING and head.before:
        return f"Without it {quantity} stays at {number(answer.baseline.value)}: {_rank(answer, head)}."
    if abs(head.effect.change) < NOTHING:
        return (
            f"T{quantity[1:]} stays at {number(answer.baseline.value)} without any one of the {_heads(answer)}: "
            "other heads make up for it."
        )
    return f"Without it {quantity} would be {_instead(answer, head.effect)}: {_rank(answer, head)}."


def _instead(answer: Answer, effect: Effect) -> str:
    """A value and the full model's; their difference, where both have the same text."""
    value, was = number(effect.value), number(answer.baseline.value)
    more = "more" if effect.change > 0 else "less"
    return (
        f"{value} instead of {was}"
        if value != was
        else f"{number(abs(effect.change))} {more} than {was}"
    )


def _rank(answer: Answer, head: Head) -> str:
    if not head.before:
        return f"none of {_heads(answer)} changes it more"
    return (
        f"{head.before} of {_heads(answer)} {'changes' if head.before == 1 else 'change'} it more"
    )


def _heads(answer: Answer) -> str:
    cross = " of cross-attention" if answer.trace.kinds == ("cross",) else ""
    return f"{answer.heads} heads{cross}"


def pair_fact(
    table: np.ndarray, names: Sequence[str], pair: tuple[int, int], answer: Answer, head: Head
) -> str:
    """The similarity of the picked pair, the mean of all pairs, and the head with the largest effect on it."""
    others = table[np.triu_indices(len(names), 1)]
    first, second = (plain(short(names[index], LONGEST_SENTENCE)) for index in pair)
    out = (
        f":primary[**“{first}”**] is most similar to **“{second}”**: their cosine is "
        f"**{number(float(table[pair]))}**; the mean of all {len(others)} pairs is {number(float(others.mean()))}."
    )
    if head.effect is None:
        return out
    value = number(head.effect.value)
    if value == number(answer.baseline.value):
        value = _instead(answer, head.effect)
    if not answer.baseline.question.against:  # a vector is compared with itself before
        return (
            f"{out} Without head **{head.name}** the cosine of its vector with the original one is {value}; "
            f"{_rank(answer, head)}."
        )
    return f"{out} Without head **{head.name}** it would be {value}; {_rank(answer, head)}."


def _row(answer: Answer, head: Head) -> tuple[tuple[str, ...], np.ndarray]:
    item, keys = answer.trace.maps[head.index], list(answer.trace.maps[head.index].keys)
    if answer.baseline.source.grid is not None and answer.trace.kinds != ("causal",):
        rows, columns = answer.baseline.source.grid
        first = len(answer.baseline.source) - rows * columns
        for index in range(rows * columns):
            keys[first + index] = f"the patch in row {index // columns}, column {index % columns}"
    return tuple(keys), item.weights[head.head, head.row]


def conditions(answer: Answer, head: Head) -> str:
    """The conditions under which the numbers hold."""
    name = answer.baseline.pretrained.name
    method = (
        f"All {answer.heads} heads were switched off one by one, and the model was run again each time."
        if head.effect is not None
        else "No head was switched off."
    )
    return plain(
        f"{name}, {len(answer.baseline.source)} tokens, fp32 on the CPU. {method} A weight shows where a head "
        "attends; only switching the head off shows what it contributes to the answer."
    )


def own_job(own: ModelTask, name: str) -> str:
    """What this model is for."""
    return f"**{own.name}**: {plain(name)} {own.does}."


def other_jobs(own: ModelTask, name: str) -> str:
    """What this model has, and that other tasks need other models."""
    return plain(f"{name} has {own.needs}. Other tasks need other models.")
