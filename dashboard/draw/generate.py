"""Generate: the text at a step as HTML, its sentences of numbers, and code of its script."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import zip_longest

import numpy as np
from torch import Tensor

from core.interpret.steering import SteeredText
from core.interpret.trace import AttentionMap, Head, induction, to_numpy
from core.models.decoding import Hypothesis, SearchSettings
from core.studies import generate as study
from core.studies.generate import StepView
from dashboard.draw.attention_view import otherwise
from dashboard.draw.components import Cell, source_of
from dashboard.draw.figures import Ink, Theme, shade, text_on
from dashboard.draw.formats import duration, number, plain, share_text, shorten

STYLE = """<style>
.lab-strip{display:flex;flex-wrap:wrap;gap:3px 2px;font-size:14px;line-height:18px}
.lab-strip span{border-radius:4px;padding:2px 5px;text-align:center;white-space:pre}
.lab-strip small{display:block;font-size:11px;line-height:13px;min-height:13px;font-variant-numeric:tabular-nums}
</style>"""
GAP = "<span>…</span>"  # in place of those that are not


# Text as tokens, shaded by the weights of one step; the new token in the accent, later ones faint.


def strip(
    tokens: Sequence[str],
    weights: Sequence[float | None],
    theme: Theme,
    *,
    label: str,
    now: int | None = None,
    chance: float | None = None,
) -> str:
    """HTML of the tokens; a weight is None where no attention is possible.

    `now` is the index of the new token, with its `chance`; later tokens are faint. Of very many tokens, only those with
    some weight are shown.
    """
    ink, cells = Ink.of(theme), list[str]()
    for index, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        below, style, small = "", "", weight is not None and weight < 0.005
        if small and len(tokens) > 256:
            cells += [] if cells[-1:] == [GAP] else [GAP]
            continue
        if index == now:
            style = f"box-shadow:inset 0 0 0 2px {ink.pick};color:{ink.pick};font-weight:600"
            below = "" if chance is None else share_text(chance)
        elif now is not None and index > now:
            style = "opacity:.7"
        elif weight is not None:
            ground = shade(weight, theme)
            style = f"background:{ground};color:{text_on(ground, theme)}"
            below = "" if small else share_text(weight)
        cells.append(f'<span style="{style}">{escape(token)}<small>{below}</small></span>')
    return f'<div class="lab-strip" role="img" aria-label="{escape(label)}">{"".join(cells)}</div>'


def step_strips(view: StepView, item: AttentionMap, head: int, theme: Theme) -> str:
    """HTML of the text at a step: each token with its weight, the new one in the accent, later ones faint."""
    weights: list[float | None] = item.weights[head, view.step].tolist()
    generated = tuple(view.names[token] for token in view.tokens)
    prefix = view.prefix
    chance = float(view.used[view.tokens[view.step]])
    label = f"What head {item.layer_name}·H{head} takes from to write {generated[view.step]}"
    read = ""
    if view.kind == "cross":
        read = f"{strip(item.keys, weights, theme, label=label)}<div style='height:8px'></div>"
        before, shares, label = tuple(view.names[token] for token in prefix[1:]), [], "The output"
    else:
        sink = item.keys[-1:] if view.sink else ()
        before = (*sink, *item.keys[: len(prefix)])
        shares = [*weights[len(weights) - len(sink) :], *weights[: len(prefix) + view.step]]
    line = (*before, *generated)
    shares += [None] * (len(line) - len(shares))
    now = len(before) + view.step
    return f"{STYLE}{read}{strip(line, shares, theme, label=label, now=now, chance=chance)}"


# Sentences, with the numbers of the search.


def token_fact(used: Tensor, own: Tensor, token: int, names: Mapping[int, str], step: int) -> str:
    """The token with its probability as used; the model's own of it where the search changed that."""
    same = is_same(used, own)
    first, second = used.topk(2).indices.tolist()
    rank = int((used > used[token]).sum()) + 1
    other = second if rank == 1 else first
    likely, chance = plain(names[other]), share_text(float(used[other]))
    more = (
        "; no other token is allowed."
        if not used[other]
        else f"; the next most likely, “{likely}”, has {chance}."
        if rank == 1
        else f", its {ordinal(rank)} choice; its first is “{likely}”, with {chance}."
    )
    alone = (
        ""
        if same
        else f" At temperature 1 and with every token allowed: {share_text(float(own[token]))}."
    )
    return (
        f"At step {step + 1} the {'model' if same else 'search'} gives **{plain(names[token])}** "
        f"{share_text(float(used[token]))}{more}{alone}"
    )


def is_same(used: Tensor, own: Tensor) -> bool:
    return float((used - own).abs().max()) <= 1e-6


def ordinal(rank: int) -> str:
    """A rank in words: second, third, 4th, 21st, …"""
    ending = "th" if 10 < rank % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return {2: "second", 3: "third"}.get(rank, f"{rank:,}{ending}")


def attention_fact(
    item: AttentionMap, head: int, step: int, keys: Sequence[int], tokens: Sequence[int]
) -> str:
    row = item.weights[head, step]
    best = int(np.argmax(np.abs(row)))
    out = (
        f"Head {item.layer_name}·H{head} takes {share_text(row[best])} from "
        f":primary[{plain(item.keys[best])}]; {otherwise(item, head, step)}."
    )
    if item.kind == "cross" or (scored := induction(item, keys, tokens)) is None:
        return out
    steps = "the one step" if scored.steps == 1 else f"the {scored.steps} steps"
    return (
        f"{out} Over {steps} whose new token occurred before, it takes {share_text(scored.heads[head])} from that earlier "
        f"token; uniform attention would take {share_text(scored.uniform)}."
    )


def outputs_fact(
    settings: SearchSettings, hypotheses: Sequence[Hypothesis], texts: Sequence[str]
) -> str:
    """How the outputs of all samples, or of a beam, differ; "" for one output."""
    count, samples = len(hypotheses), sum(one.samples for one in hypotheses)
    if settings.strategy == "sampling" and samples > 1:
        different = "the same text" if count == 1 else f"{count} different texts"
        return f"{samples} samples give {different}."
    if settings.strategy != "beam" or count < 2:
        return ""
    best, likeliest = hypotheses[0], max(hypotheses, key=lambda one: one.logp)
    if likeliest is best:
        return f"A beam of {settings.width} ranks the most likely of its {count} outputs first."
    return (
        f"A beam of {settings.width} ranks “{plain(shorten(texts[0]))}” first although another output is "
        f"more likely (log-probability {number(likeliest.logp)}, here {number(best.logp)}), because "
        f"it is longer: {len(best)} tokens instead of {len(likeliest)}."
    )


def conditions(
    model: str, search: study.Search, settings: SearchSettings, visible: int, note: str | None
) -> str:
    """How many candidates there are, of which so many are in the tree, and what the numbers are."""
    candidates, length = search.tree.candidates, search.tree.length
    reads = len(search.start.prompt.prefix_tokens) + search.start.room
    hidden, share = (
        len(candidates) - visible,
        "model's probability of the token after the tokens before it",
    )
    if settings.strategy == "sampling":
        share = "probability with which the token is drawn after the tokens before it"
    timed = ""  # where another session searched
    if search.seconds:
        timed = f" in {duration(search.seconds)}, {length / search.seconds:,.0f} steps per second"
    more = {
        f"{hidden:,} of them are not in the tree.": hidden,
        f"A number in the tree is the {share}; dashed ones were dropped.": True,
        f"The model has positions for {reads} tokens, so it writes at most {search.start.room}.": (
            search.start.room < settings.longest
        ),
        note or "": note,
    }
    scored = f"{model}, fp32; {len(candidates):,} candidates scored{timed}."
    return " ".join([scored, *filter(more.get, more)])


# What the script says beside the page's calls.


def script_cells(view: StepView, settings: SearchSettings, head: Head) -> list[Cell]:
    """The maps of the kind and the likeliest tokens of the step, after `continuation` and with `tree` where it is done."""
    return [
        Cell(
            "The attention of each step of the output.",
            f"""
trace = continuation.trace.of({view.kind!r})  # a row for each new token
weights = trace.head({head[0]}, {head[1]})  # (T, S)
""",
            f"""
from dashboard.show import show

show(trace, layer={head[0]}, head={head[1]}, query={view.step})
""",
            f"generate:map:{view.kind}",
            {
                "weights": view.trace.head(*head),
                "[item.weights for item in trace.maps]": [item.weights for item in view.trace.maps],
            },
        ),
        Cell(
            "The likeliest tokens of one step, by the model and as the search uses them.",
            f"""
from core.models.decoding import SearchSettings
from core.pretrained.generate import prepare_generation, step_probabilities, token_names

logits, start = continuation.logits[{view.step}], prepare_generation(model, inputs)
model_share = logits.softmax(-1)
search_share = step_probabilities(
    model, start, {source_of(settings)}, {source_of(view.tokens[: view.step])}, logits
)
names = token_names(model, model_share.topk({study.LIKELIEST}).indices.tolist())
print({{name: float(model_share[token]) for token, name in names.items()}})
""",
            """
import altair as alt
import pandas as pd

rows = [(name, float(model_share[token])) for token, name in names.items()]
alt.Chart(pd.DataFrame(rows, columns=["token", "probability"])).mark_bar().encode(
    x="probability:Q", y=alt.Y("token:N", sort=None))
""",
            "The likeliest next tokens of this step",
            {
                "model_share": to_numpy(view.logits.softmax(-1)),
                "search_share": to_numpy(view.used),
            },
        ),
    ]


def outputs_cell(hypotheses: Sequence[Hypothesis], candidates: int) -> Cell:
    return Cell(
        "The outputs as text.",
        """
from core.pretrained.generate import decode_text

for output in tree.hypotheses:
    print(f"{output.logp:.3f} {decode_text(model, output.tokens)}")
""",
        results={
            "[output.logp for output in tree.hypotheses]": [one.logp for one in hypotheses],
            "len(tree.candidates)": candidates,
        },
    )


# Without and with a direction that is added.


STEERING = (
    "Both are written greedily. The direction is as long as the residual stream is on average where it is read, and is added "
    "after the layer at every token, those of the text included: [Turner et al. 2023](https://arxiv.org/abs/2308.10248), "
    "[Rimsky et al. 2024](https://arxiv.org/abs/2312.06681). In the chart the pale bar is without it."
)
STEERING_CHART = """
import altair as alt
import pandas as pd

top = steered.probabilities.topk(10).indices.tolist()
rows = [(str(token), side, float(one.probabilities[token])) for token in top for side, one in
        (("with", steered), ("model", plain))]
alt.Chart(pd.DataFrame(rows, columns=["token", "of", "probability"])).mark_bar().encode(
    x="probability:Q", y=alt.Y("token:N", sort=None), yOffset="of:N")
"""


def steered_fact(
    strength: float,
    layer: int,
    without: SteeredText,
    steered: SteeredText,
    names: Mapping[int, str],
) -> str:
    """The likeliest next token with the direction, with its probability without it, and how the texts differ."""
    token, first = int(steered.probabilities.argmax()), int(without.probabilities.argmax())
    chances = [share_text(float(one.probabilities[token])) for one in (steered, without)]
    pairs = list(zip_longest(steered.tokens, without.tokens))
    other = "" if token == first else f", and “{plain(names[first])}” is the likeliest"
    return (
        f"With {number(strength)} × the direction after L{layer}, **{plain(names[token])}** gets {chances[0]} as the next "
        f"token; without it, {chances[1]}{other}. {sum(a != b for a, b in pairs)} of {len(pairs)} tokens of the text change."
    )
