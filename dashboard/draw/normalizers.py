"""Normalizers: rows of weights as bars, its sentences of numbers and its equations."""

from collections.abc import Sequence
from html import escape

import numpy as np

from core.attention import AXES, Choice, Softmax, entry
from core.attention.normalizers import Entmax, Hard, Sigmoid, Sink, TopK
from core.studies.normalizers import RowWeights, Scores, example
from dashboard.draw.components import source_of
from dashboard.draw.figures import PICK, SIGNED, WEIGHTS, Theme
from dashboard.draw.formats import (
    NOISE,
    coloured,
    latex,
    latex_name,
    latex_signed,
    lower_name,
    number,
    plain,
    plural,
)

NAMES = {item.key: item.name for item in AXES["normalizer"]}
BASELINE = "softmax"
MAX_PILLS = 12  # keys; with more their names fit neither in pills nor under the bars
NO_KEY = "no key"
LABEL_HEIGHT = 0.17  # of that of the bars
MIN_UNASSIGNED = 5e-3  # a smaller weight, which two decimals would not show, is not drawn

STYLE = """<style>
.nb{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:20px 16px;--hair:color-mix(in srgb,
  currentColor 10%,transparent);--quiet:color-mix(in srgb,currentColor 62%,transparent)}
.nb .figure{margin:0;min-width:0;display:flex;flex-direction:column}
.nb .title{font-size:14px;line-height:18px;font-weight:600;margin-bottom:18px}
.nb small{display:block;font-size:12px;line-height:16px;font-weight:400;color:var(--quiet);overflow-wrap:anywhere}
.nb .bars{display:flex;gap:3px;height:max(84px,8vw - 20px);flex:none;margin-top:auto;border-bottom:1px solid var(--hair)}
.nb .bar{flex:1;position:relative;min-width:2px}
.nb .bar i{position:absolute;left:0;right:0;bottom:0;border-radius:2px 2px 0 0;background:var(--ink)}
.nb .bar b{position:absolute;left:-12px;right:-12px;text-align:center;font-size:12px;line-height:14px;font-weight:400}
.nb .none i{background:none;border:1px dashed var(--quiet);border-bottom:0;box-sizing:border-box}
.nb .masked{background:repeating-linear-gradient(45deg,var(--hair) 0 1px,transparent 1px 5px)}
.nb .names{display:flex;gap:3px;height:54px;font-size:12px;line-height:1.1}
.nb .names span{flex:1;writing-mode:vertical-rl;min-width:2px;display:flex;align-items:center;max-height:52px;
  overflow:hidden;white-space:nowrap;color:var(--quiet);padding-top:4px}
.nb .names .pick,.nb .pick b{color:var(--pick);font-weight:600}
.nb .sum{font-size:12px;line-height:16px;color:var(--quiet);margin-top:2px}
</style>"""


def bars(tiles: Sequence[str], theme: Theme) -> str:
    # STYLE is a separate element, which never changes
    colours = f"--ink:{WEIGHTS[theme][5]};--pick:{PICK[theme]}"
    return f'<div class="nb" style="{colours}">{"".join(tiles)}</div>'


def weights_tile(
    row: RowWeights, scores: Scores, names: Sequence[str], picked: int, rules: bool
) -> str:
    """One normalizer, with its rule where asked: a bar a key from 0 to 1, and a hollow one for no key."""
    weights = [
        None if score is None else float(weight)
        for score, weight in zip(scores, row.weights, strict=True)
    ]
    rest = row.unassigned > MIN_UNASSIGNED
    heights = [min(max(weight or 0.0, 0.0), 1.0) for weight in [*weights, row.unassigned]]
    labels = [*names, NO_KEY] if rest else [*names]
    top = max(range(len(weights)), key=lambda at: weights[at] or 0.0)
    marked = {picked, top, len(weights)}
    item = entry("normalizer", row.key)
    zeros = f" · {plural(row.zeros, 'exact zero')}" if row.zeros else ""
    return figure(
        item.name,
        item.short if rules else "weights",
        weights,
        [
            bar(
                labels[at],
                weight,
                (0.0, heights[at]),
                named=at in marked,
                raised=sum(
                    0 < at - other < len(labels) / 4
                    and abs(heights[at] - heights[other]) < LABEL_HEIGHT
                    for other in marked
                ),
                css="pick" if at == picked else "none" if at == len(weights) else "",
            )
            for at, weight in enumerate([*weights, row.unassigned][: len(labels)])
        ],
        labels,
        picked,
        f"sum {number(row.total)}{zeros}",
    )


def scores_tile(scaled: Scores, names: Sequence[str], picked: int, theme: Theme) -> str:
    """What goes in: signed bars around the line of 0, green above and purple below."""
    values = [0.0 if score is None else score for score in scaled]
    low, high = min(0.0, *values), max(0.0, *values)
    span, colours = (high - low) or 1.0, [SIGNED[theme][8 if v >= 0 else 2] for v in values]
    return figure(
        "Scores",
        "input",
        scaled,
        [
            bar(
                names[at],
                score,
                ((min(value, 0.0) - low) / span, (max(value, 0.0) - low) / span),
                named=at == picked,
                css="pick" if at == picked else "",
                style=f";background:{colours[at]};border-radius:2px",
                below=value < 0,
            )
            for at, (score, value) in enumerate(zip(scaled, values, strict=True))
        ],
        names,
        picked,
        f"{number(low)} to {number(high)}",
    )


def bar(
    name: str,
    value: float | None,
    ends: tuple[float, float],
    *,
    named: bool,
    css: str,
    raised: int = 0,
    style: str = "",
    below: bool = False,
) -> str:
    """One bar between two shares of the height, hatched where the key is masked (None).

    A number is raised by so many lines, where it would cover those of bars before it.
    """
    low, high = (100 * end for end in ends)
    value_text = "masked" if value is None else number(value)
    if value is None:
        css = f"masked {css}"
    edge = f"{low:.1f}% - 15px" if below else f"{high:.1f}% + {1 + 13 * raised}px"
    text = f'<b style="bottom:calc({edge})">{value_text}</b>' if named and value is not None else ""
    return (
        f'<div class="bar {css}" title="{escape(name)}: {value_text}">'
        f'<i style="bottom:{low:.1f}%;height:{high - low:.1f}%{style}"></i>{text}</div>'
    )


def figure(
    title: str,
    note: str,
    values: Sequence[float | None],
    bars: Sequence[str],
    names: Sequence[str],
    picked: int,
    foot: str,
) -> str:
    texts = ["masked" if value is None else number(value) for value in values]
    parts = [f"{name} {text}" for name, text in zip(names, texts, strict=False)]
    marks = ["pick" if at == picked else "" for at in range(len(names))]
    under = "".join(
        f"<span class='{mark}'>{escape(name)}</span>"
        for mark, name in zip(marks, names, strict=True)
    )
    below = (
        f'<div class="names" aria-hidden="true">{under}</div>'
        if len(names) <= MAX_PILLS + 1
        else ""
    )
    description = escape(f"{title}: {', '.join(parts)}; {foot}")
    return (
        f'<div class="figure" role="img" aria-label="{description}">'
        f'<div class="title">{escape(title)}<small>{escape(note)}</small></div>'
        f'<div class="bars">{"".join(bars)}</div>{below}<div class="sum">{escape(foot)}</div></div>'
    )


WRITTEN = (Softmax, TopK, Sink, Sigmoid, Entmax, Hard)  # the equations that have numbers


def fact_text(results: Sequence[RowWeights], scores: Scores) -> str:
    visible = sum(score is not None for score in scores)
    if not visible:
        return "Every key is masked, so every normalizer gives weights of 0, and no score has a gradient."
    softmax = next((each for each in results if each.key == BASELINE), results[0])
    soft = [each for each in results if "hard" not in entry("normalizer", each.key).traits]
    sparse = max(soft, key=lambda each: each.zeros)
    rest = ", ".join(
        f"**{number(each.unassigned)}** with {label(each, False)}"
        for each in results
        if each.unassigned > MIN_UNASSIGNED
    )
    zeros = (
        f"{label(sparse)} gives **{sparse.zeros} of {visible}** keys a weight of exactly 0; "
        f"{label(softmax, False)} gives {softmax.zeros or 'none'} a weight of 0."
        if sparse.zeros
        else "No soft normalizer here gives a key a weight of exactly 0."
    )
    return f"{zeros} Weight that goes to no key: {rest}." if rest else zeros


def snippet(choice: Choice, scores: Scores) -> str:
    values = ", ".join("0.0" if score is None else f"{score:g}" for score in scores)
    mask = ", ".join(str(score is not None) for score in scores)
    return (
        "import torch\nfrom core.attention import AttentionConfig, Choice, entry\n\n"
        f"choice = {source_of(choice)}\n"
        'normalizer = entry("normalizer", choice.key).build(AttentionConfig(2, 1, normalizer=choice))\n'
        f"weights = normalizer(torch.tensor([[[[{values}]]]]), torch.tensor([{mask}]))\nprint(weights)\n"
    )


def label(row: RowWeights, first: bool = True) -> str:
    return plain(NAMES[row.key] if first else lower_name(NAMES[row.key]))


def normalizer_latex(row: RowWeights, names: Sequence[str], j: int, colour: str) -> tuple[str, str]:
    left = coloured(rf"w_{{{latex_name(names[j], j)}}}", colour)
    result = coloured(rf"\mathbf{{{latex(float(row.weights[j]))}}}", colour)
    live = " = ".join(filter(None, (left, numbers(row, j), result)))
    return entry("normalizer", row.key).latex, live


def numbers(row: RowWeights, j: int) -> str:
    normalizer, score = row.normalizer, latex(float(row.prepared[j]))
    nonzero = [int(m) for m in np.flatnonzero(row.weights)]
    if nonzero and isinstance(normalizer, Hard):
        return rf"[\,{score} = \max_m s_m = {latex(float(row.prepared[nonzero].max()))}\,]"
    if nonzero and isinstance(normalizer, Entmax):
        top, step = int(row.weights.argmax()), normalizer.alpha - 1.0
        threshold = step * row.prepared[top] - row.weights[top] ** step
        outside = "" if step == 1 else f"^{{{latex(1 / step)}}}"
        scaled = latex(float(step * row.prepared[j]))
        return rf"\max({scaled} - {latex_signed(float(threshold))},\ 0){outside}"
    if j not in nonzero or not isinstance(normalizer, WRITTEN):
        return ""
    if isinstance(normalizer, Sigmoid):
        return rf"\sigma({score})"
    # e^s over a sum of such powers, of which four are written
    largest = sorted(sorted(nonzero, key=lambda m: (m != j, -row.prepared[m]))[:4])
    below = [f"e^{{{latex(float(row.prepared[m]))}}}" for m in largest]
    if isinstance(normalizer, Sink):
        rest = 0.0 if normalizer.sink is None else float(normalizer.sink.detach().max())
        below.insert(0, "1" if rest == 0 else f"e^{{{latex(rest)}}}")
    if len(largest) < len(nonzero):
        below.append(r"\cdots")
    return rf"\frac{{e^{{{score}}}}}{{{' + '.join(below)}}}"


HEAD = (
    "normalizer",
    "sum of weights",
    "to no key",
    "weights of 0",
    "entropy",
    "largest weight",
    "scores with gradient",
)


def table_rows(rows: Sequence[RowWeights]) -> list[list[str]]:
    return [
        [
            NAMES[each.key],
            number(each.total),
            number(each.unassigned) if each.unassigned > NOISE else "–",
            str(each.zeros),
            number(each.entropy),
            number(float(each.weights.max())),
            str(each.learning),
        ]
        for each in rows
    ]


def conditions(rows: Sequence[RowWeights], own: bool, factor: float, temperature: float) -> str:
    """Where the scores come from, and what the table and the bars mean; `own` are typed ones."""
    text = (
        "You typed these scores."
        if own
        else f"These are the scaled dot-product scores of the query {plain(example()[1])}, with "
        "head dimension 16 and seed 126."
    )
    if factor != 1:
        text += f" They are multiplied by {factor:g} first."
    text += (
        f" Temperature τ = {temperature:g}. A dashed bar is weight that goes to {NO_KEY}, "
        f"from {MIN_UNASSIGNED:g} on. Entropy is in nats. A score has a gradient if training changes it."
    )
    hard = [label(each) for each in rows if each.learning and isinstance(each.normalizer, Hard)]
    if hard:
        text += f" {' and '.join(hard)} trains with the gradient of softmax: its own is zero."
    return text
