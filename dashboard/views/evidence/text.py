"""The page's sentences and its CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.pretrained.evidence import Baseline, Effect
from dashboard.charts.numbers import cell, number, percent, signed
from dashboard.views.evidence.compute import HeadMaps, gradient_estimates, sharpness
from dashboard.views.evidence.controls import Controls, Head
from dashboard.widgets.panels import plain

NAMES = {"weights": "Weights", "written": "Written", "gradient": "Gradient", "rollout": "Rollout", "flow": "Flow"}
NOTES = {"weights": "α, as the head looks", "written": "‖α·v·W_O‖, share of its row",
         "gradient": "α · ∂answer/∂α, of the largest", "rollout": "all heads, product over layers",
         "flow": "all heads, most that can flow"}
SPOKEN = {"written": "what heads write", "gradient": "the gradient", "rollout": "rollout", "flow": "flow"}
MEANINGS = {"weights": "mean of all heads", "written": "what all heads write", "gradient": "α·∂answer/∂α, all heads",
            "rollout": "product over layers", "flow": "most that can flow"}


def target_text(baseline: Baseline) -> str:
    """What the page follows, in a few words."""
    if baseline.word is None:
        return "the similarity with the other sentence" if baseline.question.against else "the similarity with itself"
    kind = "class" if baseline.answer.kind == "class" else "answer" if baseline.is_top else "token"
    name = f"{kind} **{plain(baseline.word)}**"
    if baseline.other is not None:
        return f"the logit of the {name} minus that of **{plain(baseline.other)}**"
    return f"the {baseline.quantity} of the {name}"


def why_logit(baseline: Baseline) -> str:
    """Why the logit is followed where nobody chose it; empty elsewhere."""
    if baseline.question.quantity is not None or baseline.quantity != "logit" or baseline.answer.probabilities is None:
        return ""
    most = number(float(baseline.answer.probabilities.max()))
    return f" The likeliest has a probability of {most}, which hardly moves so close to 1; so the logit is followed."


def moves(before: float, after: float) -> str:
    """"falls from a to b" or "rises from a to b"; by how much, where both have the same text."""
    verb, first, last = "falls" if after < before else "rises", number(before), number(after)
    if first == last:
        return f"{verb} by **{number(abs(after - before))}** from **{first}**"
    return f"{verb} from **{first}** to **{last}**"


def heads_fact(baseline: Baseline, ranked: Sequence[tuple[str, Effect]], picked: str, layer: tuple[str, Effect] | None,
               sharpest: tuple[str, float], agree: tuple[float | None, float | None]) -> str:
    """The head and layer with the largest effects, the ranks of the picked and the sharpest head, how ranks agree."""
    first, effect = ranked[0]
    name_text = f":primary[**{plain(first)}**]" if first == picked else f"**{plain(first)}**"
    ranks = {name: rank for rank, (name, _) in enumerate(ranked)}
    text = (f"Without {name_text}, {target_text(baseline)} {moves(baseline.value, effect.value)}, "
            + (f"the largest change of {len(ranked)} heads" if len(ranked) > 1 else "its only head"))
    text += f"; without all of {plain(layer[0])} it is {number(layer[1].value)}. " if layer else ". "
    if picked != first:
        text += (f"Without :primary[**{plain(picked)}**] it is {number(ranked[ranks[picked]][1].value)}, number "
                 f"{ranks[picked] + 1}. ")
    name, sharp = sharpest
    change = ranked[ranks[name]][1].change
    position = "first" if not ranks[name] else f"number {ranks[name] + 1}"
    text += (f"The head that looks hardest, **{plain(name)}** with {number(sharp)} on one token in the mean, is "
             f"{position}: {signed(change)}.")
    by_weight, by_slope = agree
    if by_weight is not None:
        text += f" How hard heads look and what they change agree in rank by ρ = {signed(by_weight)}"
        text += "." if by_slope is None else f"; what the gradient foresees agrees by {signed(by_slope)}."
    return text


def cell_fact(head: str, pair: tuple[str, str], measures: HeadMaps, row: int, column: int) -> str:
    """One cell in all measures: its weight, what is written, its gradient, and what arrives by all paths."""
    values = {name: float(each[row, column]) for name, each in measures.maps.items()}
    (query, key), weight, lengths = pair, values["weights"], measures.lengths
    text = (f"In **{plain(head)}**, :primary[**{plain(query)}**] puts **{number(weight)}** of its weight on "
            f"**{plain(key)}**")
    if lengths is not None and column < len(lengths):
        share = values["written"]
        less, more = share < weight - 0.02, share > weight + 0.02
        text += f"{', but only' if less else ', and'} **{number(share)}** of what it writes comes from there"
        text += (f", where v·W_O is {number(float(lengths[column]))} long against {number(float(lengths.mean()))} in "
                 "the mean" if less or more else "")
    if "gradient" in values:
        text += f"; to the answer that is worth {signed(values['gradient'])}"
    text += f". By all paths through the layers {number(values['rollout'])} of it comes from {plain(key)}"
    return text + ("." if "flow" not in values else f", and at most {number(values['flow'])} can flow.")


def heads_csv(controls: Controls, changes: Mapping[Head, Effect]) -> str:
    """A line a head: the answer without it, the gradient's estimate, and its mean largest weight."""
    estimates, sharp = gradient_estimates(controls), sharpness(controls)
    lines = ["kind,layer,head,answer,change,gradient_foresees,largest_weight"]
    for head, effect in changes.items():
        kind, layer, index = controls.head_id(head)
        estimate = f"{estimates[head]:.8g}" if head in estimates else ""
        lines.append(f"{kind},{layer},{index},{effect.value:.8g},{effect.change:.8g},{estimate},{sharp[head]:.8g}")
    return "\n".join(lines) + "\n"


def short(change: float, most: float) -> str:
    """A change in a cell; nothing where it hardly shows beside the largest."""
    return "" if abs(change) < 0.08 * most else cell(signed(change))


def tokens_fact(tokens: Sequence[str], lost: Sequence[float], first: Mapping[str, int],
                agree: Mapping[str, float | None]) -> str:
    """Which token the answer needs, which one the weights name, and how well each measure orders all of them."""
    needed = max(range(len(lost)), key=lambda index: abs(lost[index]))
    named = first["weights"]
    text = f"Hiding :primary[**{plain(tokens[needed])}**] changes the answer most, by **{signed(lost[needed])}**. "
    text += (f"The weights put {plain(tokens[named])} first as well" if named == needed else
             f"The weights put **{plain(tokens[named])}** first, which changes it by {signed(lost[named])}")
    known = {name: tau for name, tau in agree.items() if tau is not None}
    if "weights" not in known:
        return f"{text}."
    best = max(known, key=lambda name: known[name])
    text += f"; over all {len(tokens)} tokens their order agrees with the measured one by τ = "
    text += f"**{signed(known['weights'])}**"
    return text + (", most of all measures." if best == "weights" else
                   f", that of {SPOKEN[best]} by {signed(known[best])}, most of all.")


def even_fact(baseline: Baseline, head: str, even: Effect, off: Effect) -> str:
    """How much of a head's effect is due to its weights, by the same head with uniform weights."""
    text = (f"**Other weights, the same answer?** Made to look evenly, as Wiegreffe and Pinter try it, {plain(head)} "
            f"gives {number(even.value)} instead of {number(baseline.value)}; switched off it gives "
            f"{number(off.value)}. ")
    if abs(off.change) < 1e-6:
        return text + "The head changes nothing, so neither does where it looks."
    share = even.change / off.change
    if share < 0.25:
        return text + ("So what the head writes matters here, and hardly where it looks: other weights would have "
                       "given nearly the same answer.")
    if share > 1.25:
        return text + "So this head's part in the answer is where it looks: elsewhere it does more harm than none."
    if share > 0.75:
        return text + "So this head's part in the answer is where it looks: with other weights it is lost."
    return text + f"So {percent(share)} of what the head gives is where it looks, the rest is what it writes anyway."


CAN_TELL = (
    "**What weights can and cannot tell.** Jain and Wallace (“Attention is not Explanation”, 2019) found that weights "
    "often order tokens otherwise than gradients and left-out words do, and that other weights can give the same "
    "answer. Wiegreffe and Pinter (“Attention is not not Explanation”, 2019) reply that a rival is fair only when a "
    "whole model is trained to have it, and that such rivals carry less: a weight is one account of an answer, if not "
    "the only one. ")


def can_tell(agree: Mapping[str, float | None] | None, same_first: bool) -> str:
    """The two papers, and this text between them; `same_first`: the weights put the most needed token first."""
    if agree is None:
        return CAN_TELL
    tau = agree.get("weights")
    if tau is None:
        return CAN_TELL + "Here there are too few tokens, or nothing changes, so neither can be seen."
    side = ("so here the weights are a fair account of which tokens count, and still none of how much"
            if tau >= 0.6 else "so here they are part of the account" if tau >= 0.2 else
            "so here they say little about which tokens count")
    if same_first and tau < 0.6:
        side += ", though they name the one that counts most"
    return (f"{CAN_TELL}On your text the weights order the tokens with τ = {signed(tau)} (1 the same order, 0 "
            f"none), {side}.")


def conditions(controls: Controls) -> str:
    """Under which conditions the page's numbers hold."""
    text = f"{plain(controls.reading.trace.source)}, {controls.reading.source.count}"
    text += "; fp32, no dropout" if controls.baseline else ", as they were uploaded"
    text += ", one forward pass a head." if controls.recordable else "."
    if controls.mixed:
        text += (" The paper of rollout and flow has encoders alone; here the decoder's steps follow the encoder's in "
                 "one graph, and the part that reaches the source is shown.")
    if controls.recordable:
        text += " A head that changes nothing alone may still be one of several that do the same."
    return text
