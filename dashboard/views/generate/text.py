"""The page's sentences and equations, with the numbers of the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from core.interpret import trace as induction_scores
from core.interpret.trace import AttentionMap
from core.models.decoding import Hypothesis, SearchSettings, Tree
from dashboard.draw.formats import duration, number, shorten
from dashboard.ui.decoding import step_equation
from dashboard.views.generate.compute import Search
from dashboard.widgets.panels import plain

Names = Mapping[int, str]
ORDER = {2: "second", 3: "third"}


def token_fact(logits: Tensor, token: int, names: Names, step: int) -> str:
    """The probability of a step's token, and of the next most likely."""
    shares = logits.softmax(-1)
    first, second = shares.topk(2).indices.tolist()
    rank = int((shares > shares[token]).sum()) + 1
    start = f"At step {step + 1} the model gives **{plain(names[token])}** {number(float(shares[token]))}"
    if rank == 1:
        return f"{start}; the next most likely, “{plain(names[second])}”, has {number(float(shares[second]))}."
    likeliest = f"“{plain(names[first])}”, with {number(float(shares[first]))}"
    return f"{start}, its {ordinal(rank)} choice; its first is {likeliest}."


def ordinal(rank: int) -> str:
    """A rank in words: second, third, 4th, 21st, …"""
    ending = "th" if 10 < rank % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return ORDER.get(rank, f"{rank:,}{ending}")


def attention_fact(
    item: AttentionMap, head: int, step: int, keys: Sequence[int], tokens: Sequence[int]
) -> str:
    """The largest weight of a head at a step, and over all steps its induction score."""
    row = item.weights[head, step]
    best, even = int(np.argmax(row)), 1 / float(item.visible[0, step].sum())
    out = (
        f"Head {item.layer_name}·H{head} puts {number(row[best])} of its weight on "
        f":primary[{plain(item.keys[best])}]; uniform attention would put {number(even)}."
    )
    scores = None if item.kind == "cross" else induction_scores.induction_score(item, keys, tokens)
    if scores is None:
        return out
    count = induction_scores.count_eligible_steps(item, keys, tokens)
    steps = "the one step" if count == 1 else f"the {count} steps"
    return (
        f"{out} Over {steps} whose new token occurred before, it puts {number(scores[head])} on that earlier "
        "token; uniform attention would put "
        f"{number(induction_scores.uniform_induction_score(item, keys, tokens))}."
    )


def outputs_fact(
    settings: SearchSettings, hypotheses: Sequence[Hypothesis], texts: Sequence[str]
) -> str:
    """How the outputs of all samples, or of a beam, differ; "" for one output."""
    if settings.strategy == "sampling" and (samples := sum(one.samples for one in hypotheses)) > 1:
        different = (
            "the same text" if len(hypotheses) == 1 else f"{len(hypotheses)} different texts"
        )
        return f"{samples} samples give {different}."
    if settings.strategy == "beam" and len(hypotheses) > 1:
        likeliest = max(hypotheses, key=lambda one: one.logp)
        if likeliest is hypotheses[0]:
            return f"A beam of {settings.width} ranks the most likely of its {len(hypotheses)} outputs first."
        return (
            f"A beam of {settings.width} ranks “{plain(shorten(texts[0]))}” first although another output is "
            f"more likely (log-probability {number(likeliest.logp)}, here {number(hypotheses[0].logp)}), because "
            f"it is longer: {len(hypotheses[0])} tokens instead of {len(likeliest)}."
        )
    return ""


def caption(search: Search, visible: int, note: str | None) -> str:
    """The conditions of the numbers, and how many candidates the figure leaves out."""
    tree, settings, room = search.tree, search.controls.settings, search.start.room
    hidden = len(tree.candidates) - visible
    more = f" {hidden:,} of them are not drawn." if hidden else ""
    timed = (
        f" in {duration(search.seconds)}, {search.length / search.seconds:,.0f} steps per second"
        if search.seconds
        else ""
    )  # none where another session searched
    short = (
        f" The model has positions for {len(search.start.prompt.prefix_tokens) + room} tokens, "
        f"so it writes at most {room}."
        if room < settings.longest
        else ""
    )
    return (
        f"{search.controls.ref.name}, fp32; {len(tree.candidates):,} candidates scored{timed}."
        f"{more} A number in the tree is the model's probability of the token "
        f"after the tokens before it; dashed ones were dropped.{short}{' ' + note if note else ''}"
    )


def equation(settings: SearchSettings, tree: Tree, path: Sequence[int], step: int) -> str:
    """The rule of the strategy with the picked path's own numbers, in LaTeX."""
    total = tree.candidates[path[-1]].total
    if settings.strategy == "beam":
        alpha, length = settings.length_penalty, len(path)
        return (
            rf"\text{{score}} = \frac{{\sum_t \log p_t}}{{|Y|^{{\alpha}}}} = \frac{{{number(total)}}}"
            rf"{{{length}^{{{alpha:g}}}}} = {number(total / length**alpha)}"
        )
    return step_equation(settings, tree.candidates[path[step]], total, f"{{{step + 1}}}")
