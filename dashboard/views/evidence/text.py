"""The page's sentences and its CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.interpret.evidence import Baseline, Effect
from dashboard.draw.formats import number, percent, signed
from dashboard.views.evidence.compute import HeadMaps, gradient_estimates, sharpness
from dashboard.views.evidence.controls import Controls, Head
from dashboard.widgets.panels import plain

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


def target_text(baseline: Baseline) -> str:
    """What the page measures, in a few words."""
    if baseline.word is None:
        return (
            "the similarity with the other sentence"
            if baseline.question.against
            else "the similarity with itself"
        )
    kind = "class" if baseline.answer.kind == "class" else "answer" if baseline.is_top else "token"
    name = f"{kind} **{plain(baseline.word)}**"
    if baseline.other is not None:
        return f"the logit of the {name} minus that of **{plain(baseline.other)}**"
    return f"the {baseline.quantity} of the {name}"


def why_logit(baseline: Baseline) -> str:
    """Why the logit is measured where nobody chose it; empty elsewhere."""
    if (
        baseline.question.quantity is not None
        or baseline.quantity != "logit"
        or baseline.answer.probabilities is None
    ):
        return ""
    most = number(float(baseline.answer.probabilities.max()))
    return (
        f" The most likely has a probability of {most}, which changes little so close to 1, so the logit is "
        "measured."
    )


def moves(before: float, after: float) -> str:
    """ "falls from a to b" or "rises from a to b"; by how much, where both have the same text."""
    verb, first, last = "falls" if after < before else "rises", number(before), number(after)
    if first == last:
        return f"{verb} by **{number(abs(after - before))}** from **{first}**"
    return f"{verb} from **{first}** to **{last}**"


def heads_fact(
    baseline: Baseline,
    ranked: Sequence[tuple[str, Effect]],
    picked: str,
    layer: tuple[str, Effect] | None,
    sharpest: tuple[str, float],
    agree: tuple[float | None, float | None],
) -> str:
    """The head and layer with the largest effects, the ranks of the picked and the sharpest head, how ranks agree."""
    first, effect = ranked[0]
    name_text = f":primary[**{plain(first)}**]" if first == picked else f"**{plain(first)}**"
    ranks = {name: rank for rank, (name, _) in enumerate(ranked)}
    text = (
        f"Without {name_text}, {target_text(baseline)} {moves(baseline.value, effect.value)}, "
        + (f"the largest change of {len(ranked)} heads" if len(ranked) > 1 else "its only head")
    )
    text += (
        f"; without all of {plain(layer[0])} it is {number(layer[1].value)}. " if layer else ". "
    )
    if picked != first:
        text += (
            f"Without :primary[**{plain(picked)}**] it is {number(ranked[ranks[picked]][1].value)}, number "
            f"{ranks[picked] + 1}. "
        )
    name, sharp = sharpest
    change = ranked[ranks[name]][1].change
    position = "first" if not ranks[name] else f"number {ranks[name] + 1}"
    text += (
        f"The sharpest head, **{plain(name)}** with a mean largest weight of {number(sharp)}, is {position}: "
        f"{signed(change)}."
    )
    by_weight, by_slope = agree
    if by_weight is not None:
        text += f" Over all heads, the ranks by sharpness and by change agree with ρ = {signed(by_weight)}"
        text += (
            "."
            if by_slope is None
            else f"; those by gradient estimate and by change with {signed(by_slope)}."
        )
    return text


def cell_fact(head: str, pair: tuple[str, str], measures: HeadMaps, row: int, column: int) -> str:
    """One cell in all measures: its weight, what is written, its gradient, and what arrives by paths of attention."""
    values = {name: float(each[row, column]) for name, each in measures.maps.items()}
    (query, key), weight, lengths = pair, values["weights"], measures.lengths
    text = (
        f"In **{plain(head)}**, :primary[**{plain(query)}**] puts **{number(weight)}** of its weight on "
        f"**{plain(key)}**"
    )
    if lengths is not None and column < lengths.shape[1]:
        share = values["written"]
        less, more = share < weight - 0.02, share > weight + 0.02
        text += f"{', but only' if less else ', and'} **{number(share)}** of what it writes comes from there"
        text += (
            f": v·W_O has length {number(float(lengths[row, column]))} there and "
            f"{number(float(lengths[row].mean()))} on average"
            if less or more
            else ""
        )
    if "gradient" in values:
        text += f"; the gradient gives this cell {signed(values['gradient'])}"
    text += (
        f". Over all paths through attention and residuals, {number(values['rollout'])} of {plain(query)} comes "
        f"from {plain(key)}"
    )
    return text + (
        "." if "flow" not in values else f", and at most {number(values['flow'])} can flow."
    )


def heads_csv(controls: Controls, changes: Mapping[Head, Effect]) -> str:
    """A line a head: the answer without it, the gradient's estimate, and its mean largest weight."""
    estimates, sharp = gradient_estimates(controls), sharpness(controls)
    lines = ["kind,layer,head,answer,change,gradient_estimate,largest_weight"]
    for head, effect in changes.items():
        kind, layer, index = controls.head_id(head)
        estimate = f"{estimates[head]:.8g}" if head in estimates else ""
        lines.append(
            f"{kind},{layer},{index},{effect.value:.8g},{effect.change:.8g},{estimate},{sharp[head]:.8g}"
        )
    return "\n".join(lines) + "\n"


def tokens_fact(
    tokens: Sequence[str],
    lost: Sequence[float],
    first: Mapping[str, int],
    agree: Mapping[str, float | None],
) -> str:
    """Which token the answer needs, which one the weights rank first, and how well each measure orders all of them."""
    needed = max(range(len(lost)), key=lambda index: abs(lost[index]))
    named = first["weights"]
    text = f"Hiding :primary[**{plain(tokens[needed])}**] changes the answer most, by **{signed(lost[needed])}**. "
    text += (
        f"The weights rank {plain(tokens[named])} first as well"
        if named == needed
        else f"The weights rank **{plain(tokens[named])}** first, but hiding it changes the answer by "
        f"{signed(lost[named])}"
    )
    known = {name: tau for name, tau in agree.items() if tau is not None}
    if "weights" not in known:
        return f"{text}."
    best = max(known, key=lambda name: known[name])
    text += f"; over all {len(tokens)} tokens their order agrees with the measured one with τ = "
    text += f"**{signed(known['weights'])}**"
    return text + (
        ", the most of all measures."
        if best == "weights"
        else f". The order by {SPOKEN[best]} agrees most, with {signed(known[best])}."
    )


def even_fact(baseline: Baseline, head: str, even: Effect, off: Effect) -> str:
    """How much of a head's effect is due to its weights, by the same head with uniform weights."""
    text = (
        f"**Other weights, the same answer?** With uniform weights, as Wiegreffe and Pinter test it, {plain(head)} "
        f"gives {number(even.value)} instead of {number(baseline.value)}; switched off it gives "
        f"{number(off.value)}. "
    )
    if abs(off.change) < 1e-6:
        return text + "The head changes nothing, so its weights change nothing either."
    share = even.change / off.change
    if share < 0.25:
        return text + (
            "So what the head writes matters here, and where it attends hardly does: other weights would "
            "give nearly the same answer."
        )
    if share > 1.25:
        return (
            text
            + "So this head contributes by where it attends: with uniform weights it does more harm than when "
            "it is off."
        )
    if share > 0.75:
        return (
            text
            + "So this head contributes by where it attends: with uniform weights its contribution is lost."
        )
    return (
        text
        + f"So {percent(share)} of the head's contribution is where it attends; the rest is what it writes "
        "in any case."
    )


CAN_TELL = (
    "**What weights can and cannot tell.** Jain and Wallace (“Attention is not Explanation”, 2019) found that weights "
    "often order tokens differently from gradients and from leaving words out, and that other weights can give the "
    "same answer. Wiegreffe and Pinter (“Attention is not not Explanation”, 2019) reply that other weights are a fair "
    "test only if a whole model is trained to have them, and that such models learn less from them: a weight is one "
    "explanation of an answer, if not the only one. "
)


def can_tell(agree: Mapping[str, float | None] | None, same_first: bool) -> str:
    """The two papers, and this text between them; `same_first`: the weights put the most needed token first."""
    if agree is None:
        return CAN_TELL
    tau = agree.get("weights")
    if tau is None:
        return (
            CAN_TELL
            + "Here there are too few tokens, or nothing changes, so neither can be tested."
        )
    side = (
        "so here the weights show well which tokens matter, but not how much"
        if tau >= 0.6
        else "so here they show in part which tokens matter"
        if tau >= 0.2
        else "so here they show little of which tokens matter"
    )
    if same_first and tau < 0.6:
        side += ", though they rank the one that matters most first"
    return (
        f"{CAN_TELL}On your text the order by weight agrees with the measured one with τ = {signed(tau)} (1: the "
        f"same order, 0: no relation), {side}."
    )


def conditions(controls: Controls) -> str:
    """Under which conditions the page's numbers hold."""
    text = f"{plain(controls.reading.trace.source)}, {controls.reading.source.count}"
    text += "; fp32, no dropout" if controls.baseline else ", as uploaded"
    text += ", one forward pass per head." if controls.recordable else "."
    if controls.mixed:
        text += (
            " The paper on rollout and flow covers encoders only; here the decoder's steps follow the encoder's "
            "in one graph, and the part that reaches the source is shown."
        )
    if controls.recordable:
        text += " A head that changes nothing by itself may be one of several that do the same."
    return text
