"""Sentences and figures of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.interpret.attribution import Attribution, Part
from dashboard.draw.formats import latex, number, percent, signed
from dashboard.views.lens.compute import EMBEDDING, Decision
from dashboard.views.lens.controls import Controls
from dashboard.widgets.guide import Move
from dashboard.widgets.panels import plain


def after(state: str) -> str:
    """A state of the residual stream in a sentence."""
    return "the embedding" if state == EMBEDDING else state


def decided(controls: Controls, decision: Decision, words: Mapping[int, str]) -> str:
    """From which layer on the answer is the likeliest, its probability there, and what led before."""
    answer, states = plain(words[decision.tokens[0]]), decision.states
    probabilities, ranks = (
        values[:, 0].tolist()
        for values in (decision.trajectories.probabilities, decision.trajectories.ranks)
    )
    start = f"At **{plain(controls.line.tokens[controls.position])}**, :primary[**{answer}**] "
    if decision.stays is None:
        best = ranks.index(min(ranks))
        return (
            f"{start}is not the likeliest at the end: its rank is **{ranks[-1]:,}**, with a probability of "
            f"**{number(probabilities[-1])}**. It comes closest after **{after(states[best])}**, as number "
            f"{ranks[best]:,}."
        )
    at = decision.stays
    text = (
        f"{start}is the likeliest from **{after(states[at])}** on, with a probability of "
        f"**{number(probabilities[at])}**"
    )
    text += (
        "." if at == len(states) - 1 else f" there and **{number(probabilities[-1])}** at the end."
    )
    if at and decision.first is not None:
        before = plain(
            words[int(decision.lens.top[at - 1, controls.position - decision.lens.start, 0])]
        )
        text += (
            f" After {after(states[at - 1])} it was number {ranks[at - 1]:,}, with "
            f"{number(probabilities[at - 1])}, and **{before}** led."
        )
        if decision.first < at:
            text += f" It led once before, after {after(states[decision.first])}."
    return text


def rows_of(decision: Decision, words: Mapping[int, str], position: int) -> list[list[str]]:
    """The table of the layers at the picked position."""
    lens, along = decision.lens, decision.trajectories
    position -= lens.start
    return [
        [
            state,
            words[int(lens.top[row, position, 0])],
            number(float(lens.probabilities[row, position, 0])),
            number(float(along.probabilities[row, 0])),
            f"{int(along.ranks[row, 0]):,}",
            number(float(lens.entropy[row, position])),
        ]
        for row, state in enumerate(decision.states)
    ]


def wrote(
    controls: Controls,
    attribution: Attribution,
    parts: Sequence[tuple[str, Part]],
    answer: str,
    other: str | None,
) -> str:
    """The largest part, the largest head, and the sum beside the logit."""
    what = (
        f"The logit of :primary[**{plain(answer)}**] at **{plain(controls.line.tokens[controls.position])}**"
        + (f" minus that of **{plain(other)}**" if other is not None else "")
    )
    name, first = parts[0]
    heads = [(name, part) for name, part in parts if part.role == "head"]
    text = f"{what} is **{number(attribution.logit)}**. Most is written by **{name}**, **{signed(first.value)}**"
    if heads and heads[0][1] is not first:
        text += f"; among the heads, by **{heads[0][0]}**, **{signed(heads[0][1].value)}**"
    return (
        f"{text}. Sum of all {len(parts)} parts = **{number(attribution.total)}**, logit = "
        f"**{number(attribution.logit)}**."
    )


def share_of_heads(parts: Sequence[tuple[str, Part]]) -> str:
    """How much of what is written towards the logit comes from heads and from few of them."""
    sizes = [abs(part.value) for _, part in parts]
    heads = sorted((abs(part.value) for _, part in parts if part.role == "head"), reverse=True)
    if not heads or not sum(sizes):
        return ""
    most = next(
        count for count in range(1, len(heads) + 1) if sum(heads[:count]) >= 0.8 * sum(heads)
    )
    return (
        f"Heads write {percent(sum(heads) / sum(sizes))} of all that is added or taken away; {most} of the "
        f"{len(heads)} heads write 80\u00a0% of that."
    )


def equation(attribution: Attribution) -> str:
    """The sum of the parts by what they are, with its numbers, as LaTeX."""
    sums: dict[str, float] = {}
    for part in attribution.parts:
        name = ROLES.get(part.role, "biases")
        sums[name] = sums.get(name, 0.0) + part.value
    terms = [
        (rf"\underbrace{{{latex(abs(sums[name]))}}}_{{\text{{{name}}}}}", sums[name])
        for name in ORDER
        if name in sums
    ]
    written = " ".join(
        f"{'+' if value >= 0 else '-'} {term}" for term, value in terms
    ).removeprefix("+ ")
    return rf"\mathrm{{logit}} = {written} = {latex(attribution.total)}"


ROLES = {
    "embedding": "embeddings",
    "head": "heads",
    "mixer": "mixers",
    "feed-forward": "feed-forward",
}
ORDER = (*ROLES.values(), "biases")
LENS = r"\mathrm{lens}(x_\ell) = \mathrm{softmax}\big(W_U\, \mathrm{norm}(x_\ell)\big)"


def conditions(controls: Controls) -> str:
    """The conditions under which the numbers hold."""
    text = f"{plain(controls.reading.trace.source)}, {len(controls.line)} tokens; fp32, no dropout."
    if controls.reading.target is not None:
        text += " The layers are those of the decoder."
    if controls.view == "who":
        held = (
            "the scales of the norms, and the gates of the activation before the unembedding,"
            if controls.baseline.answer.kind == "mask"
            else "the scales of the norms"
        )
        return text + (
            f" Direct logit attribution: {held} are held at their values. What a part does by way of later "
            "layers counts as theirs."
        )
    return (
        text
        + " The last layer is the model’s own output; earlier layers were not trained to be read so."
    )


MOVES = (
    Move(
        "A passage without a repeat",
        {
            "inside:model": "induction",
            "inside:language": "induction",
            "lens:view": "when",
            "inside:text": "the old king walked to the dark river . the young dog",
        },
        "Nothing can be copied here, so no layer is sure: compare the entropy of the last layer with that of a "
        "passage that repeats.",
    ),
    Move(
        "A translation",
        {
            "inside:model": "numbers",
            "inside:language": "numbers",
            "lens:view": "when",
            "inside:text": "nine thousand three hundred and twelve",
        },
        "The layers are those of the decoder. Press a cell of another column to see where another word is decided.",
    ),
    Move(
        "Who copies?",
        {
            "inside:model": "induction",
            "inside:language": "induction",
            "lens:view": "who",
            "inside:text": "the old king walked to the dark river . the old king walked to the dark",
        },
        "The heads of the last layer write the word that they attend to: press one in the picture to see where it "
        "looks.",
    ),
)
