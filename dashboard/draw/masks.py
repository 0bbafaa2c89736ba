"""Masks: its sentences of numbers, its equation and its chart."""

from functools import partial

import numpy as np

from core.attention import Choice, entry
from core.studies import masks as study
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.figures import Ink, Spec
from dashboard.draw.formats import (
    coloured,
    latex,
    latex_name,
    mask_latex,
    number,
    percent,
    plain,
    rule,
    share_text,
)

MAX_KEYS = 8  # columns of the table of PyTorch


def fact_text(effect: study.MaskEffect, cell: tuple[int, int] | None = None) -> str:
    """What the mask hides in all, and in the row of a cell what becomes of that weight."""
    visible, cells = int(effect.allowed.sum()), effect.allowed.size
    if visible == cells:
        return f"Nothing is masked: all **{cells}** cells are allowed, and no weight changes."
    text = f"The mask leaves **{visible} of {cells}** cells, {percent(visible / cells)}."
    if picked := effect.selection:  # of a mask that reads content
        text += (
            f" It chose {number(picked.keys)} keys a query by their content: among them are {percent(picked.recall)} "
            f"of the keys with the largest weights of causal attention, and {percent(picked.weight)} of its weight."
        )
    row, column = cell or (0, 0)
    hidden = np.flatnonzero(~effect.allowed[row])
    if effect.factor is None and cell and 0 < len(hidden) < len(effect.names):
        # how many cells there are stands above the map
        text = f"{text} It" if picked else "The mask"
        name, its = plain(effect.names[row]), "its" if len(hidden) == 1 else "their"
        keys = " and ".join(f"“{plain(effect.names[j])}”" for j in hidden)
        text += (
            f" hides {keys if len(hidden) < 3 else f'{len(hidden)} words'} from :primary[{name}]: {its} weight, "
            f"**{share_text(effect.before[row, hidden].sum())}**, goes to the keys that are left"
        )
        if effect.allowed[row, column]:
            now, before = effect.after[row, column], effect.before[row, column]
            text += f": “{plain(effect.names[column])}” has {share_text(now)} in place of {share_text(before)}"
        text += "."
    elif effect.factor is None:
        text += " A hidden key gets the weight 0; the others share the row."
    blind = np.flatnonzero(~effect.allowed.any(1))
    if blind.size:
        names = ", ".join(f"“{plain(effect.names[i])}”" for i in blind[:4])
        more = f" and {len(blind) - 4} more" if len(blind) > 4 else ""
        its = "its" if len(blind) == 1 else "their"
        text += (
            f" No key is left for {names}{more}: a share of nothing is 0/0, and by convention {its} weights and "
            f"{its} output are 0."
        )
    return text


def press_text(before: study.MaskEffect, after: study.MaskEffect, cell: tuple[int, int]) -> str:
    """What a press on the board, which changed that cell first, did to its row."""
    (i, j), names = cell, [*map(plain, after.names)]
    # the key gets weight or loses it, the others the opposite
    sign = 1 if after.allowed[i, j] else -1
    old, new = before.after[i], after.after[i]
    other = int((sign * (new - old)).argmin())
    largest = f"“{names[other]}” ({share_text(old[other])} → {share_text(new[other])})"
    if not after.allowed[i].any():
        rest = "no key is left"
    elif not before.allowed[i].any():
        rest = f"it gets **{share_text(new[j])}**; no key was left before"
    elif sign > 0:
        rest = f"it gets **{share_text(new[j])}**, most of it from {largest}"
    else:
        rest = f"its weight **{share_text(old[j])}** goes to the others, most of it to {largest}"
    count = int((before.allowed != after.allowed).sum())
    also = f" {count} cells have changed." * (count > 1)
    return f":primary[{names[i]}] may {'now' if sign > 0 else 'no longer'} take from “{names[j]}”: {rest}.{also} "


rule_of = partial(rule, "mask", changed=False, length="length")


def equation(
    effect: study.MaskEffect, mask: Choice, i: int, j: int, colour: str
) -> tuple[str, ...]:
    """The keys that query i may take from, and its weight on key j in numbers: parts that a line may break between."""

    pick = partial(coloured, colour=colour)
    query, key = latex_name(effect.names[i], i), latex_name(effect.names[j], j)
    keys = [int(m) for m in np.flatnonzero(effect.allowed[i])]
    first = rf"M_i = \{{\, j : {mask_latex(mask)} \,\}} \quad"
    second = rf"{{M_{{{pick(query)}}} = {index_set(keys)} \quad}}"
    weight = pick(f"w_{{{query},\\,{key}}}")
    unmasked = rf"\quad \text{{without the mask }} {latex(effect.before[i, j])}"
    if j not in keys:
        zero = pick(r"\mathbf{0}")
        return first, second, rf"{weight} = {zero}\quad (j = {j} \notin M_i)", rf"{{{unmasked}}}"
    powers = effect.scores[i]
    terms = sorted(sorted(keys, key=lambda m: (m != j, -powers[m]))[:3])
    below = " + ".join(f"e^{{{latex(powers[m])}}}" for m in terms) + (
        r" + \cdots" if len(keys) > len(terms) else ""
    )
    fraction = rf"\frac{{e^{{{latex(powers[j])}}}}}{{{below}}}"
    factor = "" if effect.factor is None else rf" \cdot {latex(effect.factor[i, j])}"
    result = pick(rf"\mathbf{{{latex(effect.after[i, j])}}}")
    # A part in braces never breaks over two lines.
    return first, second, weight, rf"{{= {fraction}{factor}}}", rf"{{= {result}{unmasked}}}"


def index_set(keys: list[int]) -> str:
    if not keys:
        return r"\varnothing"
    if len(keys) > 2 and keys == list(range(keys[0], keys[-1] + 1)):
        return rf"\{{{keys[0]}, \ldots, {keys[-1]}\}}"
    items = [str(j) for j in keys[:8]] + ([r"\ldots"] if len(keys) > 8 else [])
    return rf"\{{{', '.join(items)}\}}"


def stack_fact(needed: np.ndarray) -> str:
    pairs, never, most = needed.size, int((needed == 0).sum()), int(needed.max(initial=0))
    layers = "One layer connects" if most == 1 else f"**{most}** layers connect"
    if not never:
        steps = [
            f"{percent(float((needed <= n).mean()))} after {n}" for n in range(1, min(most, 4))
        ]
        short = f" ({', '.join(steps)})" if steps else ""
        return f"{layers} every token with every other{short}."
    if never == pairs - len(needed):
        return "No token receives information from another, however many layers are stacked."
    return (
        f"{layers} all pairs that this mask can connect; **{never} of {pairs}** pairs are never "
        "connected, however many layers are stacked."
    )


def batch_fact(sentences: list[study.Sentence]) -> str:
    worst = max(sentences, key=lambda item: item.leak)
    masked = float(worst.weights[: worst.real, worst.real :].sum(-1).mean())
    length = len(worst.names)  # of each
    padding = sum(length - item.real for item in sentences) * length
    return (
        f"{padding} of {len(sentences) * length**2} cells belong to padding. Without a mask, the words of "
        f"“{plain(' '.join(worst.names[: worst.real]))}” take **{number(worst.leak)}** from padding; "
        f"with it, **{number(masked)}**. A row of padding may get weights, too, but no word takes from it, so its "
        "output is never used."
    )


def torch_fact(check: study.TorchCheck | None) -> str:
    if check is None:
        return "This mask also multiplies the weights, which `nn.MultiheadAttention` cannot do."
    rows = (
        "the query that has" if check.nan_rows == 1 else f"the {check.nan_rows} queries that have"
    )
    nan = (
        f" It returns NaN for {rows} no key, where the layer of this page returns 0."
        if check.nan_rows
        else ""
    )
    without = (
        f"**{percent(check.forbidden)}** of the weight goes to keys that the mask forbids"
        if check.forbidden
        else "each key would be ignored and the result would be NaN"
    )
    return (
        f"Both layers were run on this sentence with the same parameters. With `~`, `nn.MultiheadAttention` gives "
        f"the weights above; the largest difference is {number(check.difference)}. Without `~`, {without}.{nan}"
    )


def conditions(mask: Choice, head: int) -> str:
    """What the mask means, its rule, and of what layer the maps are."""
    meaning, _, _ = entry("mask", mask.key).meaning.partition(". ")
    text = f": {plain(rule_of(mask))}" if mask.parts else ""
    return f"{meaning.removesuffix('.')}{text}. Head {head} of a random layer (seed {study.SEED})."


# Why the future is hidden: two models over the steps of their training.


MODELS, WRITTEN = ("With the mask", "Without the mask"), 9  # words of its text
FUTURE = """
import altair as alt
import pandas as pd

rows = [{"step": one.step, "loss": loss, "line": f"{mask}, {where}"} for mask, model in future.items() for one in model
        for where, loss in (("training", one.loss), ("writing", one.writing))]
alt.Chart(pd.DataFrame(rows)).mark_line(point=True).encode(x="step", y="loss", color="line")
"""


def future_chart(future: study.Models, step: int, ink: Ink) -> Spec:
    masked, unmasked = future.values()
    colour = ink.series[1]
    curves = [
        Curve(MODELS[0], [(one.step, one.loss) for one in masked]),
        Curve("Without, training", [(one.step, one.loss) for one in unmasked], (), colour, 0),
        Curve("Without, writing", [(one.step, one.writing) for one in unmasked], (), colour, 1),
    ]
    return line_chart("loss", "step", curves, ink, rule=step)


def future_fact(masked: study.Progress, unmasked: study.Progress) -> str:
    """The losses at a step, in training and where a model writes."""
    copies = " and copies it" if unmasked.loss < masked.loss / 2 else ""
    return (
        f"Without the mask a model sees the next word{copies}: at step {masked.step} its loss, how wrong it is, is "
        f"**{number(unmasked.loss)}**. When it writes, that word is not there yet: **{number(unmasked.writing)}**. With "
        f"the mask both are **{number(masked.loss)}**."
    )


def written_text(name: str, one: study.Progress) -> str:
    """How the text begins that a model writes."""
    return f"**{name}** it writes: {plain(' '.join(one.text.split()[:WRITTEN]))} …"


def future_conditions(seed: int, saved: list[study.Models]) -> str:
    ends = [sorted(models["none"][-1].writing for models in saved)[at] for at in (0, -1)]
    return (
        f"Two layers each, equal sentences (seed {seed}); measured on others. Seeds 0 to {len(saved) - 1} write without a "
        f"mask at {number(ends[0])} to {number(ends[1])}."
    )
