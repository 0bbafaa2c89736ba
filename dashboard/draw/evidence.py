"""Why this answer: the chart of answers, the maps of a head by every measure, and the sentences of numbers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from core.interpret import evidence, trace as flow
from core.interpret.corpus import CorpusConfig
from core.interpret.interventions import BY_KEY, WAYS, HeadKey
from core.pretrained import HeadSet, display_names
from dashboard.draw.attention_view import Tile, is_signed, span
from dashboard.draw.components import Cell
from dashboard.draw.figures import Ink, Spec, series_encoding, table_columns, text_tip
from dashboard.draw.formats import number, percent, plain, share_text, signed
from dashboard.draw.grids import bar_figure
from dashboard.draw.picture_files import csv_file
from dashboard.draw.two_models import SECOND


def before_after(
    rows: Sequence[Spec], words: Sequence[str], ink: Ink, unit: str = "probability"
) -> Spec:
    """Three marks a word, by STATES: bars from 0, or of logits, whose 0 means nothing, points; rows hold word, of, p."""
    logits = unit != "probability"
    low, high = min(row["p"] for row in rows), max(row["p"] for row in rows)
    room = 0.3 * ((high - low) or 1.0)  # for the number behind the mark
    domain = [low - 0.2 * room, high + room] if logits else [min(0, low), 1.25 * max(0.01, high)]
    return bar_figure(
        [row | {"end": max(row["p"], domain[0] if logits else 0)} for row in rows],
        "word",
        words,
        "p",
        ink,
        domain=domain,
        height={"step": 15},
        colour=series_encoding("of", evidence.STATES, [ink.quiet, ink.series[0], ink.pick])
        | {
            "sort": list(evidence.STATES),
            "legend": {
                "title": None,
                "orient": "top",
                "labelColor": ink.quiet,
                "labelFontSize": 12,
                "offset": 2,
                "symbolType": "square",
            },
        },
        tips=[
            text_tip("word", "answer"),
            text_tip("of", "heads"),
            text_tip("text", "value"),
        ],
        mark={"type": "point", "filled": True, "size": 60, "opacity": 1} if logits else None,
        offset={"field": "of", "sort": list(evidence.STATES)},
        dx=8 if logits else 4,
    ) | table_columns({"word": "answer", "of": "heads", "p": unit})


# What its script tells beside the recorded calls.


EVERY = Cell(
    "What the answer loses without each head, and without each layer: one forward pass each.",
    """
import numpy as np

from core.interpret.evidence import ablate_heads, head_sets

effects = {off: ablate_heads(baseline, off) for off in head_sets(reading.trace)}
drops = np.array([effect.drop for effect in effects.values()])
(needed,) = list(effects)[abs(drops).argmax()]
print("largest effect:", needed, drops[abs(drops).argmax()])
""",
    """
import altair as alt
import pandas as pd

rows = [{"layer": f"{kind} {layer}", "head": "all" if head is None else head, "drop": effect.drop}
        for off, effect in effects.items() for kind, layer, head in off]
alt.Chart(pd.DataFrame(rows)).mark_rect().encode(x="head:O", y="layer:N", color="drop:Q")
""",
    "evidence:grid",
)


def way_cell(way: str, corpus: CorpusConfig | None, second: evidence.Question | None) -> Cell:
    """What the answer owes to each head by a way, in place of EVERY."""
    needs, given, argument = BY_KEY[way].needs, "", ""
    if needs == "a mean":
        argument = ", means=mean_outputs(shorten(baseline.pretrained), texts)"
        given = f"""
from core.interpret.corpus import CorpusConfig, inputs_of, shorten
from core.interpret.interventions import mean_outputs

texts, _ = inputs_of({corpus!r})"""
    elif needs == "a second text":
        argument = ", other=other"
        given = f"""
from core.interpret.evidence import Question, ask
from core.pretrained import ModelInputs

other = ask(baseline.pretrained, {second!r})"""
    return Cell(
        f"What the answer owes to each head. {BY_KEY[way].asks}",
        f"""
import numpy as np

from core.interpret.interventions import head_effects
{given}
effects = head_effects(baseline, "{way}"{argument})
drops = np.array([effects[head] for head in sorted(effects)])
print("largest effect:", max(effects, key=lambda head: abs(effects[head])), drops[abs(drops).argmax()])
""",
        """
import altair as alt
import pandas as pd

rows = [{"layer": f"{kind} {layer}", "head": head, "drop": drop}
        for (kind, layer, head), drop in effects.items()]
alt.Chart(pd.DataFrame(rows)).mark_rect().encode(x="head:O", y="layer:N", color="drop:Q")
""",
        "evidence:grid",
    )


HIDE = Cell(
    "The tokens by each measure, and what the answer loses when each is hidden.",
    """
import numpy as np

from core.interpret.evidence import hide_token, token_scores
from core.ranks import kendall

scores = token_scores(baseline, reading.trace, contributions)
hidden = np.array([hide_token(baseline, token).drop for token in range(len(baseline.source))])
for name, score in scores.items():
    print(f"{name}: first {reading.source.tokens[score.argmax()]}, tau with hiding {kendall(score, abs(hidden))}")
rows = np.stack([*scores.values(), abs(hidden)])
shares = rows / rows.max(-1, keepdims=True).clip(1e-30)  # of the largest
""",
    """
from dashboard.show import show_maps

show_maps({"Share of the largest": shares}, [*scores, "hidden"], reading.source.tokens)
""",
    "evidence:strip",
)


PAPERS = r"""**‖α·v·W\_O‖** — the length of the vector that a head writes at a query for one key.
[Kobayashi et al. 2020](https://arxiv.org/abs/2004.10102)

**Rollout and flow** — attention combined over the layers, with the residual as half of every step.
[Abnar and Zuidema 2020](https://arxiv.org/abs/2005.00928)

**Heads switched off** — what the answer loses without a head, and α·∂answer/∂α as its estimate.
[Michel et al. 2019](https://arxiv.org/abs/1905.10650)

**Other baselines than zero** — the mean, resampled or patched output of a head, and what each asks.
[Wang et al. 2022](https://arxiv.org/abs/2211.00593), [Zhang and Nanda 2024](https://arxiv.org/abs/2309.16042),
[Heimersheim and Nanda 2024](https://arxiv.org/abs/2404.15255)

**Weights as explanation** — how the order of words by weight agrees with gradients and with leaving words out.
[Jain and Wallace 2019](https://arxiv.org/abs/1902.10186)

**A reply** — when another set of weights is a fair comparison, and when it is not.
[Wiegreffe and Pinter 2019](https://arxiv.org/abs/1908.04626)"""


# The rows of the grid of heads, of its tables and of the chart of answers.


LAYER = "all"  # the column of whole layers
TABLE_ROWS = 6
HIDDEN = "Measured"


def effect_rows(
    names: Mapping[tuple[str, int], str],
    effects: Mapping[HeadSet, evidence.Effect],
    ranked: Sequence[flow.Head],
    count: int,
    before: float,
) -> list[Spec]:
    """A cell for each head and each whole layer, whose `names` are given; `ranked` are those of `count` so far.

    `before` is the value that an effect starts from.
    """
    layers, rows = list(names.values()), list[Spec]()
    ranks = {head: rank for rank, head in enumerate(ranked, 1)}
    measured = "" if len(ranked) == count else " measured"
    for off, effect in effects.items():
        ((kind, layer, head),) = off
        name = names[kind, layer]
        rank, cell = None, {"head": LAYER, "name": f"all of {name}", "share": "a whole layer"}
        if head is not None:
            rank = ranks[layers.index(name), head]
            share = f"{rank} of {len(ranked)}{measured}"
            cell = {"head": str(head), "name": f"{name}·H{head}", "share": share}
        rows.append(
            cell
            | {
                "layer": name,
                "change": effect.drop,
                "by": signed(effect.drop),
                "answer": effect.value,
                "rank": rank,
                "now": f"{number(effect.value)} instead of {number(before)}",
            }
        )
    return rows


def way_effects(
    way: str, effects: Mapping[HeadKey, float], before: float
) -> dict[HeadSet, evidence.Effect]:
    """Effects by a way as those of one head each: the answer is lower without the head, or higher with it patched in."""
    sign = 1 if way == "patched" else -1
    return {
        frozenset({head}): evidence.Effect(before + sign * effect, effect, None)
        for head, effect in effects.items()
    }


ByWay = Mapping[str, Mapping[HeadKey, float]]  # effects of heads by each way that is measured


def most_effective(by_way: ByWay, picked: HeadKey) -> list[HeadKey]:
    """The heads with the largest effect by any way, and the picked one."""
    heads = {head for effects in by_way.values() for head in effects}
    largest = {
        head: max(abs(effects.get(head, 0.0)) for effects in by_way.values()) for head in heads
    }
    first = sorted(heads, key=lambda head: -largest[head])[:TABLE_ROWS]
    return first if picked in first else [*first, picked]


def ways_table(
    ids: Mapping[flow.Head, HeadKey],
    names: Mapping[flow.Head, str],
    by_way: ByWay,
    picked: HeadKey,
    estimates: Mapping[flow.Head, float],
    sharp: Mapping[flow.Head, float],
) -> dict[str, Sequence[str]]:
    """The heads with the largest effects × all ways, by columns."""
    at = {head: place for place, head in ids.items()}
    shown = most_effective(by_way, picked)
    columns: dict[str, Sequence[str]] = {"head": [names[at[head]] for head in shown]}
    for way in WAYS:
        effects = by_way.get(way.key, {})
        columns[way.name] = [signed(effects[head]) if head in effects else "–" for head in shown]
    if estimates:
        columns["by the gradient"] = [signed(estimates[at[head]]) for head in shown]
    return columns | {"mean largest weight": [number(sharp[at[head]]) for head in shown]}


def agreement_rows(
    names: Mapping[str, str], agree: Callable[[str, str], float | None]
) -> list[list[str]]:
    """Spearman's ρ of each one of these with every other, by their keys and names."""

    def text(first: str, second: str) -> str:
        ρ = agree(first, second)
        return "–" if ρ is None else number(ρ) if first == second else signed(ρ)

    return [[name, *(text(one, other) for other in names)] for one, name in names.items()]


def asks(ways: Iterable[str]) -> str:
    """What each way asks, as a list."""
    return "\n".join(f"- **{BY_KEY[way].name}**: {BY_KEY[way].asks}" for way in ways)


def disagreement(name: str, head: HeadKey, by_way: ByWay) -> str:
    """Why the ways give a head different effects, in numbers: what each leaves out that another has."""
    of = {way: effects[head] for way, effects in by_way.items() if head in effects}
    if "zero" not in of:
        return ""
    parts = [f"Without **{plain(name)}** the answer loses {signed(of['zero'])}."]
    if "mean" in of:
        parts.append(
            f"{signed(of['zero'] - of['mean'])} of that is the head’s mean output, which it writes on every text; "
            f"{signed(of['mean'])} is what it knows about this one."
        )
    much = 0.1 * max(map(abs, of.values()))
    if "resampled" in of:
        more, why = of["resampled"] - of.get("mean", of["zero"]), ""
        if more > much:
            why = f", {number(more)} more: there it writes for another answer"
        elif more < -much:
            why = f", {number(-more)} less: so much it writes alike on both texts"
        parts.append(
            f"When it writes what it writes on the second text, the answer loses {signed(of['resampled'])}{why}."
        )
    if "patched" in of:
        more = of["patched"] - of.get("resampled", of["zero"])
        why = ""
        if abs(more) > much:
            why = ", less than is lost without it: it needs what other heads write on this text"
            if more > 0:
                why = ", more than is lost without it: on this text other heads stand in for it"
        parts.append(f"Put into the second text alone it gains {signed(of['patched'])}{why}.")
    if "direct" in of:
        parts.append(
            f"It writes {signed(of['direct'])} of the answer itself; the rest of the effect by zero, "
            f"{signed(of['zero'] - of['direct'])}, goes through later layers, which read it."
        )
    return " ".join(parts)


def answer_rows(
    words: Sequence[str], answers: Mapping[int | None, Mapping[str, float]]
) -> list[Spec]:
    return [
        {"word": word, "of": way, "p": value, "text": number(value)}
        for word, by_way in zip(words, answers.values(), strict=True)
        for way, value in by_way.items()
    ]


def token_rows(
    words: Sequence[str], first: Mapping[str, int], agree: Mapping[str, float | None], needed: int
) -> list[list[str]]:
    """What each measure ranks first, and its τ with the measured changes, which come last."""
    return [
        *(
            [NAMES[name], MEANINGS[name], words[first[name]], "–" if tau is None else signed(tau)]
            for name, tau in agree.items()
        ),
        [HIDDEN, "the token hidden from every head", words[needed], ""],
    ]


# Sentences, LaTeX and the CSV.


NAMES = {
    "weights": "Weights",
    "written": "Written",
    "gradient": "Gradient",
    "rollout": "Rollout",
    "flow": "Flow",
}
NOTES = {
    "weights": "α of this head",
    "written": "‖α·v·W_O‖, share of its row",
    "gradient": "α · ∂answer/∂α, share of the largest",
    "rollout": "all heads, product over layers",
    "flow": "all heads, maximum flow",
}
SPOKEN = {
    "written": "what heads write",
    "gradient": "the gradient",
    "rollout": "rollout",
    "flow": "flow",
}


MEANINGS = {
    "weights": "mean of all heads",
    "written": "what all heads write",
    "gradient": "α·∂answer/∂α, all heads",
    "rollout": "product over layers",
    "flow": "maximum flow",
}


def target_text(baseline: evidence.Baseline) -> str:
    if baseline.word is None:
        other = "the other sentence" if baseline.question.against else "itself"
        return f"the similarity with {other}"
    is_answer = baseline.is_top and baseline.answer.kind != "class"
    kind = "answer" if is_answer else baseline.answer.output.split()[0]
    if baseline.quantity == "kl":
        return "minus the KL divergence from the full model’s answer"
    name = f"{kind} **{plain(baseline.word)}**"
    if baseline.other is not None:
        return f"the logit of the {name} minus that of **{plain(baseline.other)}**"
    return f"the {baseline.quantity} of the {name}"


def unit_of(baseline: evidence.Baseline) -> str:
    """What the chart of answers shows of each: a probability (a similarity too), its logarithm, or a logit."""
    of = {"logit": "logit", "difference": "logit", "log-probability": "log-probability"}
    return "probability" if baseline.id is None else of.get(baseline.quantity, "probability")


def usual_second(model: str) -> str:
    """The second text beside a model's own example, as on Two texts."""
    return SECOND.get(model, SECOND[""])


def second_text(text: str, first: evidence.Baseline, second: evidence.Baseline) -> str:
    """Which text it is, and which of its tokens stand for which where it has another length."""
    text, lengths = (
        f"Second text: “{plain(text)}”.",
        [len(one.source) for one in (first, second)],
    )
    if lengths[0] == lengths[1]:
        return text
    return (
        f"{text} It has {lengths[1]} tokens, the first one {lengths[0]}, so a token gets what the head writes at the same "
        "distance from where the answer is read."
    )


def measured_text(baseline: evidence.Baseline) -> str:
    """What is measured, and why a logit where nobody chose it."""
    text = f"The page measures {target_text(baseline)}."
    if baseline.quantity == "kl" and baseline.question.output is not None:
        return f"{text} It is of all answers, so the chosen one is not used."
    if baseline.id is None or baseline.quantity == "probability" or baseline.question.quantity:
        return text
    most = number(float(evidence.quantity_values(baseline.answer, "probability").max()))
    return (
        f"{text} The most likely has a probability of {most}, which changes little so close to 1, so the logit is "
        "measured."
    )


def tau_note(tokens: int, has_flow: bool) -> str:
    slow = f" Flow from {tokens} tokens takes too long, so it is left out."
    return (
        "Kendall’s τ compares the order of the tokens by a measure with their order by how much the answer "
        "changes when each is hidden: 1 is the same order, 0 no relation, −1 the reverse."
        f"{'' if has_flow else slow}"
    )


def moves(before: float, after: float) -> str:
    """ "falls from a to b" or "rises from a to b"; by how much, where both have the same text."""
    verb, first, last = (
        "falls" if after < before else "rises",
        number(before),
        number(after),
    )
    if first == last:
        return f"{verb} by **{number(abs(after - before))}** from **{first}**"
    return f"{verb} from **{first}** to **{last}**"


TITLES = {
    "zero": "Without each head",
    "uniform": "Each head with uniform weights",
    "mean": "Each head with its mean output",
    "resampled": "Each head as on the second text",
    "patched": "Each head put into the second text",
    "direct": "What each head writes itself",
}
CHANGED = {
    "uniform": "When {} gives all keys the same weight",
    "mean": "When {} writes its mean output",
    "resampled": "When {} writes what it writes on the second text",
    "patched": "When {} alone is put into the second text",
}


def way_fact(
    way: str,
    names: Mapping[flow.Head, str],
    baseline: evidence.Baseline,
    alone: Mapping[flow.Head, evidence.Effect],
    picked: flow.Head,
    before: float,
) -> str:
    """The head with the largest effect by a way, and the picked one."""
    ranked = list(alone)
    first, most = ranked[0], f"the largest effect of {len(ranked)} heads"
    name = (
        f":primary[**{plain(names[first])}**]" if first == picked else f"**{plain(names[first])}**"
    )
    target, effect = target_text(baseline), alone[first]
    if way == "direct":
        text = f"{name} itself writes **{signed(effect.drop)}** of {target}, {number(before)}: {most}. "
    else:
        text = f"{CHANGED[way].format(name)}, {target} {moves(before, effect.value)}, {most}. "
    if picked != first:
        text += (
            f":primary[**{plain(names[picked])}**] helps by {signed(alone[picked].drop)}, rank "
            f"{ranked.index(picked) + 1}. "
        )
    return text


def heads_fact(
    names: Mapping[flow.Head, str],
    baseline: evidence.Baseline,
    alone: Mapping[flow.Head, evidence.Effect],
    picked: flow.Head,
) -> str:
    ranked = list(alone)
    first = ranked[0]
    shown = (
        f":primary[**{plain(names[first])}**]" if first == picked else f"**{plain(names[first])}**"
    )
    without, target, then = alone[first], target_text(baseline), ""
    if without.id not in (None, baseline.id) and baseline.is_top:
        (word,) = display_names(baseline.pretrained, baseline.answer, [without.id])
        then = f" the model answers **{plain(word)}** instead of **{plain(baseline.word or '')}**."
        target = target.replace("the ", "The ", 1)
    if baseline.quantity == "logit":
        target = target.replace("logit of", "logit (score before the softmax) of", 1)
    text = f"Without {shown},{then} {target} {moves(baseline.value, without.value)}, " + (
        f"the largest change of {len(ranked)} heads. " if len(ranked) > 1 else "its only head. "
    )
    if picked != first:
        text += (
            f"Without :primary[**{plain(names[picked])}**] it is {number(alone[picked].value)}, the change of rank "
            f"{ranked.index(picked) + 1}{answer_then(baseline, alone[picked])}. "
        )
    return text


def answer_then(baseline: evidence.Baseline, effect: evidence.Effect) -> str:
    """What the model answers without a head, after the rest of a sentence; nothing where it has no likeliest answer."""
    if effect.id is None or not baseline.is_top:
        return ""
    (word,) = display_names(baseline.pretrained, baseline.answer, [effect.id])
    return (
        f", and the model {'still ' if effect.id == baseline.id else ''}answers **{plain(word)}**"
    )


def sharpness_text(
    names: Mapping[flow.Head, str],
    sharp: Mapping[flow.Head, float],
    estimates: Mapping[flow.Head, float],
    alone: Mapping[flow.Head, evidence.Effect],
) -> str:
    sharpest = max(sharp, key=sharp.__getitem__)
    rank = list(alone).index(sharpest)
    text = (
        f"The sharpest head, **{plain(names[sharpest])}** with a mean largest weight of "
        f"{number(sharp[sharpest])}, is {f'number {rank + 1}' if rank else 'first'} by "
        f"what the answer loses without it: {signed(alone[sharpest].drop)}."
    )
    by_weight, by_slope = evidence.rank_agreement(alone, sharp, estimates)
    if by_weight is None:
        return text
    slope = (
        ""
        if by_slope is None
        else f"; those by estimated and by measured effect with {signed(by_slope)}. The estimate, by the "
        "gradient, is the sum of α·∂answer/∂α over a head’s weights"
    )
    return (
        f"{text} Over all heads, the ranks by sharpness and by effect agree with ρ = "
        f"{signed(by_weight)}{slope}."
    )


def cell_fact(
    head: str, pair: tuple[str, str], measures: evidence.HeadMaps, row: int, column: int
) -> str:
    values = {name: float(each[row, column]) for name, each in measures.maps.items()}
    (query, key), weight, lengths = map(plain, pair), values["weights"], measures.lengths
    text = (
        f"In **{plain(head)}**, :primary[**{query}**] takes **{share_text(weight)}** from **{key}**"
    )
    if lengths is not None and column < lengths.shape[1]:
        share = values["written"]
        but = "but only" if share < weight - 0.02 else "and"
        text += f", {but} **{share_text(share)}** of what it writes comes from there"
        if abs(share - weight) > 0.02:
            text += (
                f": v·W_O has length {number(float(lengths[row, column]))} there and "
                f"{number(float(lengths[row].mean()))} on average"
            )
    if "gradient" in values:
        largest = np.abs(measures.maps["gradient"]).max() or 1.0
        text += (
            f"; by the gradient, this weight adds {signed(values['gradient'])} to the answer, in the map "
            f"{number(values['gradient'] / largest)} of the largest"
        )
    flowing = f", and at most {number(values['flow'])} can flow" if "flow" in values else ""
    return (
        f"{text}. Over all paths through attention and residuals, {number(values['rollout'])} of {query} comes "
        f"from {key}{flowing}."
    )


def heads_csv(
    ids: Mapping[flow.Head, HeadKey],
    sharp: Mapping[flow.Head, float],
    estimates: Mapping[flow.Head, float],
    by_way: ByWay,
) -> bytes:
    """Every head with its effect by each way, above 0 where it helps the answer; empty where it is not measured."""

    def text(value: float | None) -> str:
        return "" if value is None else f"{value:.8g}"

    return csv_file(
        ["kind", "layer", "head", *BY_KEY, "gradient_estimate", "largest_weight"],
        [
            [
                *head,
                *(text(by_way.get(way, {}).get(head)) for way in BY_KEY),
                text(estimates.get(at)),
                text(sharp[at]),
            ]
            for at, head in ids.items()
        ],
    )


def tokens_fact(
    tokens: Sequence[str],
    lost: Sequence[float],
    first: Mapping[str, int],
    agree: Mapping[str, float | None],
) -> str:
    needed, named = max(range(len(lost)), key=lambda index: abs(lost[index])), first["weights"]
    text = (
        f":primary[**{plain(tokens[needed])}**] matters most: hidden, the answer loses **{signed(lost[needed])}**. "
        + (
            f"The weights rank {plain(tokens[named])} first as well"
            if named == needed
            else f"The weights rank **{plain(tokens[named])}** first, but without it the answer loses "
            f"{signed(lost[named])}"
        )
    )
    known = {name: tau for name, tau in agree.items() if tau is not None}
    if "weights" not in known:
        return f"{text}."
    best = max(known, key=known.__getitem__)
    return (
        f"{text}; over all {len(tokens)} tokens their order agrees with the measured one with τ = "
        f"**{signed(known['weights'])}** (1: the same order, 0: no relation)"
        + (
            ", the most of all measures."
            if best == "weights"
            else f". The order by {SPOKEN[best]} agrees most, with {signed(known[best])}."
        )
    )


VERDICTS = (  # up to which share of the change of the head that is off, uniform weights change the answer
    (
        -0.1,
        "So where this head attends matters: with uniform weights the answer changes in the other direction.",
    ),
    (
        0.1,
        "So what the head writes matters here, and where it attends hardly does: other weights would "
        "give nearly the same answer.",
    ),
    (
        0.95,
        "So {share} of the head's contribution is where it attends; the rest is what it writes in any case.",
    ),
    (
        1.05,
        "So this head contributes by where it attends: with uniform weights its contribution is lost.",
    ),
    (
        math.inf,
        "So this head contributes by where it attends: uniform weights change the answer more than "
        "switching the head off.",
    ),
)


def even_fact(
    baseline: evidence.Baseline, head: str, even: evidence.Effect, off: evidence.Effect
) -> str:
    says = "The head changes nothing, so its weights change nothing either."
    if abs(off.drop) >= 1e-6:
        share = even.drop / off.drop
        says = next(verdict for limit, verdict in VERDICTS if share < limit)
        says = says.format(share=percent(share))
    return (
        f"**Other weights, the same answer?** With uniform weights, as Wiegreffe and Pinter test it, {plain(head)} "
        f"gives {number(even.value)} instead of {number(baseline.value)}; switched off it gives "
        f"{number(off.value)}. {says}"
    )


IN_GENERAL = (
    "Jain and Wallace (“Attention is not Explanation”, 2019) found that weights often order tokens differently from "
    "gradients and from leaving words out, and that other weights can give the same answer. Wiegreffe and Pinter "
    "(“Attention is not not Explanation”, 2019) reply that other weights are a fair test only if a whole model is "
    "trained to have them, and that such models learn less from them."
)


SIDES = (  # from the τ on: what the weights show, and whether their first token needs a word
    (0.6, "Here, yes: the weights show which tokens matter, though not how much", False),
    (0.2, "Here, in part: the weights show some of the tokens that matter", True),
    (-math.inf, "Here, hardly: the weights show little of which tokens matter", True),
)


def can_tell(agree: Mapping[str, float | None] | None, same_first: bool) -> str:
    """Whether weights explain, on this text, then in general; `same_first`: they put the most needed token first."""
    general = (
        f"**In general, a weight is one explanation of an answer, not the only one.** {IN_GENERAL}"
    )
    if agree is None:
        return general
    if (tau := agree.get("weights")) is None:
        return (
            f"Here there are too few tokens, or nothing changes, so it cannot be tested. {general}"
        )
    side, less = next((words, less) for limit, words, less in SIDES if tau >= limit)
    though = ", though they rank the one that matters most first" if same_first and less else ""
    return (
        f"**{side}{though}.** Each token was hidden in turn; the order by weight is beside the order by how much the "
        f"answer changed. {general}"
    )


def measure_tiles(measures: evidence.HeadMaps, item: flow.AttentionMap, head: int) -> list[Tile]:
    """A map for each measure of a head, the gradient as shares of the largest."""
    visible = None if item.mask is None else item.visible[head]
    tiles = {
        each: Tile(NAMES[each], NOTES[each], values, visible, index)
        for index, (each, values) in enumerate(measures.maps.items())
    }
    if item.state:  # on a scale of its own: the others are shares
        ends = span(measures.maps["weights"], is_signed(item))
        tiles["weights"] = replace(tiles["weights"], span=ends, signed=ends[0] < 0)
    if "flow" in tiles and (known := measures.known) is not None:
        known = np.pad(known, ((0, 0), (0, item.weights.shape[2] - known.shape[1])))
        note = f"{NOTES['flow']}; this row only"
        tiles["flow"] = replace(
            tiles["flow"], mask=known if visible is None else visible & known, note=note
        )
    if "gradient" in tiles:
        values = measures.maps["gradient"]
        tiles["gradient"] = replace(
            tiles["gradient"],
            weights=values / (np.abs(values).max() or 1.0),
            span=(-1.0, 1.0),
            signed=True,
        )
    return list(tiles.values())


def conditions(
    source: str, count: str, has_answer: bool, per_head: bool, several: bool, note: str
) -> str:
    """Of which model and how many tokens, and how it was run; whether there are several kinds of attention."""
    text = f"{plain(source)}, {count}{'; fp32, no dropout' if has_answer else ', as they came'}"
    if per_head:
        text += ", one forward pass per head"
    if several:
        text += (
            ". The paper on rollout and flow covers encoders only; here the decoder's steps follow the "
            "encoder's in one graph, and the part that reaches the source is shown"
        )
    return f"{text}. {plain(note)}".rstrip()


def length_latex(weight: float, length: float) -> str:
    return (
        rf"\lVert \alpha\, v\, W_O\rVert = {number(weight)} \times {number(length)} = "
        rf"{number(weight * length)}"
    )


def rollout_latex(row: int, column: int, value: float) -> str:
    return (
        rf"\tilde A = \prod_\ell \tfrac12\left(\bar A_\ell + I\right),\quad "
        rf"\tilde A_{{{row},{column}}} = {number(value)}"
    )
